"""The reply cache in one process: what is kept, found, deleted and refused."""

from __future__ import annotations

import logging
import os
import pickle
import random
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_pack_densex.llm.cache import ReplyCache, passage_digest, reply_key
from llama_pack_densex.llm.errors import Failure
from llama_pack_densex.llm.usage import Reply, Usage
from tests.index_folders import bytes_in
from tests.replies import kept
from tests.waiting import let_pass

ENGLISH = "Miso is a paste of fermented soya beans."
JAPANESE = "味噌は大豆を発酵させた調味料である。"
REPLY = Reply('["Miso is a paste."]', "stop", Usage(1, 210, 35, 128))

counts = st.integers(0, 2**53)
replies = st.builds(
    Reply,
    st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cc", "Lo"])),
    st.sampled_from(["stop", "length", "filtered", "refused", ""]),
    st.builds(Usage, counts, counts, counts, counts),
)
failures = st.builds(Failure, st.sampled_from(["too_long", "filtered"]), st.text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


@pytest.fixture
def cache(path: Path) -> Iterator[ReplyCache]:
    with closing(ReplyCache(path)) as cache:
        yield cache


def key_of(text: str, prompt: str = "prompt") -> str:
    return reply_key(text, prompt)


def fill(cache: ReplyCache, count: int) -> dict[str, Reply]:
    """Put replies of many sizes, so that the file has pages of every kind."""
    sizes = random.Random(count)
    wanted = {
        key_of(f"{JAPANESE} {number}"): Reply(
            f"{number} 命題 " * sizes.choice([1, 5, 100, 900]), "stop", Usage(number)
        )
        for number in range(count)
    }
    for key, reply in wanted.items():
        cache.put(key, reply)
    return wanted


def spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


# Keys


@pytest.mark.parametrize("text", [ENGLISH, JAPANESE, "", "half a pair: \ud83d", "\x00"])
def test_a_key_is_57_characters_that_a_batch_file_takes_as_custom_id(text: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{24}-[0-9a-f]{32}", reply_key(text, text))


def test_a_key_depends_on_text_and_payload_and_begins_with_the_text_s_digest() -> None:
    assert (
        len({reply_key(text, payload) for text in (ENGLISH, JAPANESE) for payload in ("a", "b")})
        == 4
    )
    assert reply_key(JAPANESE, "a").startswith(passage_digest(JAPANESE) + "-")


# Getting and putting


@given(outcome=replies | failures)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)
def test_every_outcome_comes_back_as_it_was_put(
    cache: ReplyCache, outcome: Reply | Failure
) -> None:
    cache.put(key_of(ENGLISH), outcome)
    found = cache.get(key_of(ENGLISH))
    # two surrogates that together are a character come back as that character
    if isinstance(outcome, Reply):
        text = outcome.text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        outcome = Reply(text, outcome.finish, outcome.usage)
    assert found == outcome


def test_lone_surrogates_and_nul_come_back(cache: ReplyCache) -> None:
    reply = Reply('a\x00b \ud83d c \udc00 d "\\ud83d"', "stop")
    cache.put(key_of(JAPANESE), reply)
    assert cache.get(key_of(JAPANESE)) == reply


def test_a_missing_key_is_none(cache: ReplyCache) -> None:
    assert cache.get(key_of(ENGLISH)) is None


def test_a_later_outcome_takes_the_place_of_an_earlier_one(cache: ReplyCache) -> None:
    cache.put(key_of(ENGLISH), Failure("too_long", "BadRequestError 400"))
    cache.put(key_of(ENGLISH), REPLY)
    assert cache.get(key_of(ENGLISH)) == REPLY
    assert kept(cache) == 1


def test_what_was_put_is_there_after_closing(path: Path) -> None:
    cache = ReplyCache(path)
    cache.put(key_of(JAPANESE), REPLY)
    cache.close()
    assert cache.get(key_of(JAPANESE)) == REPLY
    assert ReplyCache(path).get(key_of(JAPANESE)) == REPLY


def test_threads_use_one_cache_at_once(cache: ReplyCache) -> None:
    keys = [key_of(f"{JAPANESE} {number}") for number in range(800)]
    missing: list[str] = []

    def work(part: list[str]) -> None:
        for key in part:
            cache.put(key, Reply(key))
            missing.extend([] if cache.get(key) == Reply(key) else [key])

    threads = [threading.Thread(target=work, args=(keys[number::16],)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing == []
    assert all(cache.get(key) == Reply(key) for key in keys)


# Age


def test_an_entry_that_is_too_old_is_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ReplyCache(path).put(key_of(ENGLISH), REPLY)
    aging = ReplyCache(path, max_age=timedelta(hours=1))
    aging.put(key_of(JAPANESE), REPLY)
    assert aging.get(key_of(JAPANESE)) == REPLY
    let_pass(monkeypatch, timedelta(hours=2))
    assert aging.get(key_of(JAPANESE)) is None


def test_the_first_use_deletes_what_is_too_old(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ReplyCache(path)
    fill(cache, 700)
    let_pass(monkeypatch, timedelta(hours=2))
    assert ReplyCache(path, max_age=timedelta(days=1)).get(key_of(ENGLISH)) is None
    assert kept(cache) == 700
    ReplyCache(path, max_age=timedelta(hours=1)).get(key_of(ENGLISH))
    assert kept(cache) == 0


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=-1)])
def test_a_max_age_that_is_not_positive_is_refused(path: Path, age: timedelta) -> None:
    with pytest.raises(ValueError, match="max_age"):
        ReplyCache(path, max_age=age)


# Purging


def test_purge_deletes_every_prompt_and_part_of_a_passage_and_nothing_else(
    cache: ReplyCache,
) -> None:
    for text in (ENGLISH, JAPANESE, "another"):
        for prompt in ("first", "second", "its second half"):
            cache.put(key_of(text, prompt), REPLY)
    assert cache.purge([ENGLISH, JAPANESE, "never seen"]) == 6
    assert kept(cache) == 3
    assert cache.get(key_of("another", "second")) == REPLY
    assert cache.purge([]) == 0


def test_a_purged_text_is_in_none_of_the_files_any_more(path: Path) -> None:
    with closing(ReplyCache(path)) as cache, closing(ReplyCache(path)) as other:
        fill(cache, 200)
        other.get(key_of(ENGLISH))
        for size in (1, 40, 900):  # in a page with others, and over pages of its own
            cache.put(key_of(JAPANESE, f"{size}"), Reply("秘密の味噌蔵。secret cellar " * size))
            cache.put(
                key_of(JAPANESE, f"{size}"), Reply("秘密の味噌蔵。secret cellar " * (size + 7))
            )
        assert b"secret cellar" in bytes_in(path.parent)
        assert cache.purge([JAPANESE]) == 3
        content = bytes_in(path.parent)
        assert b"secret cellar" not in content
        assert "秘密".encode() not in content
        assert kept(other) == 200


# Files


def modes_in(folder: Path) -> dict[str, int]:
    return {
        file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir() if file.is_file()
    }


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_made_folders_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        with closing(ReplyCache(tmp_path / "new" / "deep" / "replies")) as cache:
            cache.put(key_of(ENGLISH), REPLY)
            modes = modes_in(tmp_path / "new" / "deep")
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["replies", "replies-wal", "replies-shm", "replies.lock"], 0o600)
    folders = [tmp_path, tmp_path / "new", tmp_path / "new" / "deep"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o755, 0o700, 0o700]


def test_nothing_is_opened_before_the_first_use(path: Path) -> None:
    cache = ReplyCache(path)
    assert cache.path == path
    assert list(path.parent.iterdir()) == []


def test_a_relative_path_is_where_it_was_when_the_cache_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = ReplyCache("replies")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cache.put(key_of(ENGLISH), REPLY)
    assert (tmp_path / "replies").exists()


def test_a_file_that_is_deleted_while_open_is_made_again(path: Path) -> None:
    cache = ReplyCache(path)
    cache.put(key_of(ENGLISH), REPLY)
    path.unlink()
    assert cache.get(key_of(ENGLISH)) is None
    cache.put(key_of(JAPANESE), REPLY)
    assert [ReplyCache(path).get(key_of(text)) for text in (ENGLISH, JAPANESE)] == [None, REPLY]


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_text('{"title": "", "text": "recorded"}\n')
    for _ in range(2):
        with pytest.raises(
            OSError, match=r"replies\.sqlite cannot be used \(it is not a reply cache"
        ):
            ReplyCache(path).put(key_of(ENGLISH), REPLY)
    assert path.read_text() == '{"title": "", "text": "recorded"}\n'
    assert not Path(f"{path}.damaged").exists()


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    spoil(path, "CREATE TABLE accounts (name)")
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(OSError, match="not a reply cache"):
            ReplyCache(path).get(key_of(ENGLISH))
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file/replies cannot be used.*another path"):
        ReplyCache(tmp_path / "file" / "replies").put(key_of(ENGLISH), REPLY)


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"path of a file"):
        ReplyCache(tmp_path).get(key_of(ENGLISH))


# Damage


def test_an_entry_that_cannot_be_read_is_missing_and_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ReplyCache(path)
    fill(cache, 3)
    cache.close()
    spoil(path, "UPDATE replies SET body = substr(body, 3)")
    keys = [key_of(f"{JAPANESE} {number}") for number in range(3)]
    assert [cache.get(key) for key in keys] == [None] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert str(path) in caplog.text
    assert "命題" not in caplog.text
    cache.put(keys[0], REPLY)
    assert cache.get(keys[0]) == REPLY


@pytest.mark.slow
def test_a_damaged_file_is_set_aside_with_a_warning_and_begun_anew(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ReplyCache(path)
    wanted = fill(cache, 300)
    cache.purge([])  # moves everything from the -wal file into the database
    cache.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    for key, reply in wanted.items():
        if cache.get(key) is None:
            cache.put(key, reply)
    assert {key: cache.get(key) for key in wanted} == wanted
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{path}.damaged" in caplog.text
    aside = Path(f"{path}.damaged")
    assert aside.read_bytes() == bytes(content)
    assert set(modes_in(path.parent).values()) == {0o600}
    cache.purge([])
    assert not aside.exists()  # there may be a purged text in it


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_damage_anywhere_stops_nobody(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with closing(ReplyCache(path)) as cache:
        wanted = fill(cache, 40)
        cache.purge([])
    spoilt = bytearray(path.read_bytes())
    page = chance.randrange(1, len(spoilt) // 4096) * 4096
    spoilt[page : page + 4096] = chance.randbytes(4096)
    path.write_bytes(spoilt if seed % 2 else spoilt[: page + 100])
    with closing(ReplyCache(path)) as cache:
        for key, reply in wanted.items():
            cache.put(key, reply)
            assert cache.get(key) == reply
        gone = key_of(f"{JAPANESE} 7")
        cache.purge([f"{JAPANESE} 7"])  # which may find the damage itself, and then begins anew too
        assert cache.get(gone) is None
        assert gone.encode() not in bytes_in(path.parent)


# Copies, pickles and names


def test_a_pickled_cache_is_of_the_same_file_and_age(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ReplyCache(path, max_age=timedelta(hours=1))
    cache.put(key_of(JAPANESE), REPLY)
    again = pickle.loads(pickle.dumps(cache))
    assert again.get(key_of(JAPANESE)) == REPLY
    let_pass(monkeypatch, timedelta(hours=2))
    assert again.get(key_of(JAPANESE)) is None


def test_a_url_is_refused_without_quoting_its_password() -> None:
    with pytest.raises(ValueError, match="path of a file") as caught:
        ReplyCache("redis://user:hunter2@127.0.0.1:6379/0")
    assert "hunter2" not in str(caught.value)


def test_no_text_reaches_the_log_of_the_database_library(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cache = ReplyCache(path)
    cache.put(key_of(ENGLISH), Reply("a secret recipe"))
    assert cache.get(key_of(ENGLISH)) == Reply("a secret recipe")
    assert "secret" not in caplog.text
