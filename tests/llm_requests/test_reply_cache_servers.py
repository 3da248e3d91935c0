"""The reply cache in real Redis and Postgres servers on the loopback interface, through LlamaIndex's KV stores."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_pack_densex.llm_requests.failures import Failure
from llama_pack_densex.llm_requests.reply import Reply, Usage
from llama_pack_densex.llm_requests.reply_cache import ReplyCache, reply_key
from tests.llm_requests.test_reply_cache_processes import fork

COLLECTION = "densex_replies"
JAPANESE = "味噌は大豆を発酵させた調味料である。"
REPLY = Reply('["味噌は発酵食品である。", "a\x00b", "\ud83d"]', "stop", Usage(1, 210, 35, 128))
KEY = reply_key(JAPANESE, "prompt")


def redis_store() -> BaseKVStore:
    from llama_index.storage.kvstore.redis import RedisKVStore

    return RedisKVStore(redis_uri=f"redis://user:hunter2@127.0.0.1:{os.environ['DENSEX_TEST_REDIS']}")


def postgres_store(*, use_jsonb: bool = False) -> BaseKVStore:
    from llama_index.storage.kvstore.postgres import PostgresKVStore

    return PostgresKVStore.from_params(
        host="127.0.0.1",
        port=os.environ["DENSEX_TEST_POSTGRES"],
        database="postgres",
        user="densex",
        password="hunter2",
        table_name=os.environ["DENSEX_TEST_TABLE"],
        use_jsonb=use_jsonb,
    )


def postgres_jsonb_store() -> BaseKVStore:
    return postgres_store(use_jsonb=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[object], port: int, how_to_stop: int, **options: Any) -> Iterator[None]:
    """Run a server until the block ends; it is ready when its port answers."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        for _ in range(400):
            assert process.poll() is None, "the server did not start"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.025)
        yield
    finally:
        process.send_signal(how_to_stop)
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def redis_port() -> Iterator[int]:
    pytest.importorskip("llama_index.storage.kvstore.redis", reason="llama-index-storage-kvstore-redis is missing")
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is missing")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", "127.0.0.1", "--save", "", "--user", "user", "on", ">hunter2", "~*", "+@all"]
        with running([server, "--port", port, "--dir", folder, *options], port, signal.SIGTERM):
            yield port


@pytest.fixture(scope="module")
def postgres_port() -> Iterator[int]:
    pytest.importorskip(
        "llama_index.storage.kvstore.postgres", reason="llama-index-storage-kvstore-postgres is missing"
    )
    package = importlib.util.find_spec("pgserver")  # not imported: as root it adds a user to the system
    if package is None or not package.submodule_search_locations:
        pytest.skip("pgserver, which brings Postgres, is missing")
    programs = Path(package.submodule_search_locations[0]) / "pginstall" / "bin"
    port = free_port()
    folder = Path(tempfile.mkdtemp())
    options: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:  # Postgres does not run as root
        shutil.chown(folder, "nobody")
        options |= {"user": "nobody", "extra_groups": []}
    data = folder / "data"
    try:
        make = [programs / "initdb", "-D", data, "-U", "densex", "--auth=trust", "--encoding=utf8", "--no-sync"]
        try:
            subprocess.run(make, check=True, capture_output=True, timeout=60, **options)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"Postgres does not run here: {error}")
        with running(
            [programs / "postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", folder, "-F"],
            port,
            signal.SIGINT,
            **options,
        ):
            yield port
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["redis", "postgres", "postgres_jsonb"])
def factory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], BaseKVStore]:
    """A factory of a store that no other test has used."""
    if request.param == "redis":
        monkeypatch.setenv("DENSEX_TEST_REDIS", str(request.getfixturevalue("redis_port")))
        client = redis_store()._redis_client  # type: ignore[attr-defined]
        client.flushall()
    else:
        monkeypatch.setenv("DENSEX_TEST_POSTGRES", str(request.getfixturevalue("postgres_port")))
        monkeypatch.setenv("DENSEX_TEST_TABLE", f"t{time.time_ns()}")
    made: Callable[[], BaseKVStore] = globals()[f"{request.param}_store"]
    return made


def test_outcomes_come_back_as_they_were_put(factory: Callable[[], BaseKVStore]) -> None:
    cache = ReplyCache(factory())
    failure = Failure("filtered", "BadRequestError 400 content_filter")
    cache.put(KEY, Failure("too_long", ""))
    cache.put(KEY, REPLY)
    cache.put(reply_key(JAPANESE, "other"), failure)
    assert ReplyCache(factory).get(KEY) == REPLY
    assert ReplyCache(factory).get(reply_key(JAPANESE, "other")) == failure
    assert cache.get(reply_key("absent", "")) is None


def test_known_count_and_purge(factory: Callable[[], BaseKVStore]) -> None:
    cache = ReplyCache(factory)
    keys = [reply_key(text, prompt) for text in (JAPANESE, "other") for prompt in "abc"]
    for key in keys:
        cache.put(key, REPLY)
    assert cache.known([*keys, reply_key("absent", "")]) == set(keys)
    assert cache.purge([JAPANESE, "absent"]) == 3
    assert cache.known(keys) == set(keys[3:])
    assert len(cache) == 3


def test_entries_that_are_too_old_are_deleted(factory: Callable[[], BaseKVStore]) -> None:
    aging = ReplyCache(factory, max_age=timedelta(milliseconds=200))
    aging.put(KEY, REPLY)
    assert aging.get(KEY) == REPLY
    time.sleep(0.25)
    assert aging.get(KEY) is None
    assert aging.known([KEY]) == set()
    aging.put(reply_key("new", ""), REPLY)
    assert aging.remove_expired() == 1
    assert len(ReplyCache(factory)) == 1


@pytest.mark.parametrize("value", [{}, {"written": 1, "checksum": "0", "body": "{}"}, {"body": None}])
def test_a_damaged_entry_is_missing_until_it_is_put_again(
    factory: Callable[[], BaseKVStore], value: dict[str, Any]
) -> None:
    factory().put(KEY, value, collection=COLLECTION)
    cache = ReplyCache(factory)
    assert cache.get(KEY) is None
    assert cache.damaged == 1
    cache.put(KEY, REPLY)
    assert cache.get(KEY) == REPLY
    assert cache.purge([JAPANESE]) == 1


def test_what_is_no_json_in_redis_is_missing_and_does_not_stop_a_purge(
    redis_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENSEX_TEST_REDIS", str(redis_port))
    store: Any = redis_store()
    store._redis_client.flushall()
    store._redis_client.hset(COLLECTION, KEY, '{"written": 1, "bo')
    cache = ReplyCache(store)
    with pytest.raises(OSError, match="RedisKVStore cannot be read"):
        cache.purge([JAPANESE])
    assert cache.get(KEY) is None
    assert cache.damaged == 1
    assert cache.purge([JAPANESE]) == 0


def test_threads_use_one_cache_at_once(factory: Callable[[], BaseKVStore]) -> None:
    cache = ReplyCache(factory)
    keys = [reply_key(f"{JAPANESE} {number}", "") for number in range(96)]
    wrong: list[str] = []

    def work(part: list[str]) -> None:
        for key in part:
            cache.put(key, Reply(key))
            wrong.extend([] if cache.get(key) == Reply(key) else [key])

    threads = [threading.Thread(target=work, args=(keys[number::12],)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) == len(keys)


def test_processes_that_begin_at_once_share_a_new_store(factory: Callable[[], BaseKVStore]) -> None:
    cache = ReplyCache(f"{__name__}:{factory.__name__}")
    children = [fork(partial(cache.put, reply_key(str(number), ""), Reply(str(number)))) for number in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    again = pickle.loads(pickle.dumps(cache))
    assert [again.get(reply_key(str(number), "")) for number in range(4)] == [Reply(str(number)) for number in range(4)]


def test_an_open_cache_works_on_after_its_process_forked(factory: Callable[[], BaseKVStore]) -> None:
    cache = ReplyCache(factory)
    cache.put(KEY, REPLY)

    def use_in_child() -> None:
        assert cache.get(KEY) == REPLY
        cache.put(reply_key("child", ""), REPLY)

    assert os.waitpid(fork(use_in_child), 0)[1] == 0
    assert cache.get(reply_key("child", "")) == REPLY
    assert len(cache) == 2


@pytest.mark.parametrize("make", [redis_store, postgres_store])
def test_a_server_that_is_away_is_an_error_without_texts_and_passwords(
    make: Callable[[], BaseKVStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("redis" if make is redis_store else "psycopg2")
    port = free_port()
    for name in ("DENSEX_TEST_REDIS", "DENSEX_TEST_POSTGRES", "DENSEX_TEST_TABLE"):
        monkeypatch.setenv(name, str(port))
    with pytest.raises(OSError, match=rf"{make.__name__} cannot be opened.*{port}.*server can be") as caught:
        ReplyCache(make).put(KEY, Reply("secret"))
    assert "secret" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_write_that_the_server_refuses_is_an_error_without_texts(
    redis_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENSEX_TEST_REDIS", str(redis_port))
    store: Any = redis_store()
    cache = ReplyCache(store)
    cache.put(KEY, REPLY)
    store._redis_client.delete(COLLECTION)
    store._redis_client.set(COLLECTION, "of another type")
    with pytest.raises(OSError, match=r"RedisKVStore cannot be written") as caught:
        cache.put(KEY, Reply("secret"))
    assert "secret" not in str(caught.value)
    store._redis_client.delete(COLLECTION)
