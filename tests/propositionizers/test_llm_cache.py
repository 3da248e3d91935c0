"""Replies that LLMPropositionizer keeps: what is asked again and what is not, in one process and in
several."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.node_parsers.parsers import PropositionNodeParser
from llama_pack_densex.propositionizers.base import Passage, PropositionizerError, PropositionSet
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.made_up_passages import made_up
from tests.openai_server import OpenAIServer, Reply, asked_content, in_turn
from tests.replies import kept as entries
from tests.stand_in_llm import Answered, StandInLLM, digest, propositions_of
from tests.waiting import let_pass

ENGLISH = Passage(
    "The tower of Arlen was built in 1874. Its keeper sold the lamp.", "Arlen", "History"
)
JAPANESE = Passage("新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。", "新幹線", "歴史")
PASSAGES = [ENGLISH, JAPANESE]
MANY = list(made_up(60, japanese=0.4))
ROOT = Path(__file__).parents[2]
WAYS = ("sync", "async", "stream")


def right(body: dict[str, Any]) -> Reply:
    return Reply(json.dumps(propositions_of(asked_content(body)), ensure_ascii=False))


def propositionizer(
    url: str,
    model: str = "gpt-4o-mini",
    temperature: float = 0.1,
    additional_kwargs: Any = None,
    **arguments: Any,
) -> Any:
    settings = {
        "model": model,
        "temperature": temperature,
        "additional_kwargs": additional_kwargs or {},
    }
    llm = OpenAI(**settings, api_base=url, api_key="sk-test-0123456789", timeout=10)
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 0, **arguments})


def ask(way: str, asking: LLMPropositionizer, passages: Sequence[Passage]) -> list[PropositionSet]:
    if way == "async":
        return asyncio.run(asking.apropositionize(passages))
    return asking.propositionize(passages) if way == "sync" else list(asking.stream(passages))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


# One process


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow_cases("*", but=["sync"])
def test_several_that_begin_at_once_ask_for_each_passage_once(way: str, path: Path) -> None:
    with OpenAIServer(lambda body: replace(right(body), delay=0.01)) as server:
        begin, made = threading.Barrier(3), []

        def run() -> None:
            asking = propositionizer(server.url, cache=path, max_concurrency=8)
            begin.wait()
            made.append(ask(way, asking, MANY))

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.requests) == len({passage.text for passage in MANY})
    assert made[0] == made[1] == made[2]


@pytest.mark.slow
def test_nobody_waits_for_ever_for_who_was_killed_while_asking(path: Path) -> None:
    with OpenAIServer(right) as server, closing(ReplyCache(path)) as cache:
        asking = propositionizer(server.url, cache=path)
        assert cache.claim(asking.key(asking.question(ENGLISH)), "who was killed")
        (made,) = asking.propositionize([ENGLISH])
        assert made.status == "ok"
        assert len(server.requests) == 1


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
@pytest.mark.parametrize("passage", PASSAGES, ids=["en", "ja"])
@pytest.mark.slow
def test_nobody_waits_for_who_was_killed_before_the_clock_was_set(
    passage: Passage, hours: int, path: Path
) -> None:
    with OpenAIServer(right) as server, closing(ReplyCache(path)) as cache:
        asking = propositionizer(server.url, cache=path)
        with pytest.MonkeyPatch.context() as clock:
            clock.setattr(time, "time_ns", lambda now=time.time_ns: now() + hours * 3600 * 10**9)
            assert cache.claim(asking.key(asking.question(passage)), "who was killed")
        (made,) = asking.propositionize([passage])
        assert made.status == "ok"
        assert len(server.requests) == 1


@pytest.mark.parametrize("hours", [-1, 0, 1, 24])
def test_a_claim_of_who_lives_is_taken_by_nobody_however_the_clock_is_set(
    hours: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ReplyCache(path)) as first, closing(ReplyCache(path)) as second:
        assert first.claim("key", "first")
        monkeypatch.setattr(time, "time_ns", lambda now=time.time_ns: now() + hours * 3600 * 10**9)
        assert not second.claim("key", "second")
        assert first.claim("key", "first")
        assert not second.claim("key", "second")
        first.release("key", "first")
        assert second.claim("key", "second")


def test_a_cache_that_somebody_keeps_locked_holds_up_no_request_of_others(
    path: Path, tmp_path: Path
) -> None:
    with OpenAIServer(right) as server, closing(ReplyCache(path)) as cache:
        cache.get("key")  # makes the file
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as locking,
            ThreadPoolExecutor() as threads,
        ):
            locking.execute("BEGIN EXCLUSIVE")
            waiting = threads.submit(propositionizer(server.url, cache=path).propositionize, MANY)
            others = propositionizer(server.url, cache=tmp_path / "other.sqlite").propositionize(
                PASSAGES
            )
            assert not waiting.done()
            locking.execute("ROLLBACK")
            assert {result.status for result in [*waiting.result(), *others]} == {"ok"}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_second_run_asks_nothing_and_gives_equal_sets(
    first: str, second: str, path: Path
) -> None:
    with OpenAIServer(right) as server:
        made = ask(first, propositionizer(server.url, cache=path), PASSAGES)
        asked = len(server.requests)
        again = propositionizer(server.url, cache=path)
        assert ask(second, again, PASSAGES) == made
        assert len(server.requests) == asked == 2
    assert [one.texts for one in made] == [
        tuple(propositions_of(passage.text)) for passage in PASSAGES
    ]
    assert (again.usage.requests, again.figures.cache_hits) == (0, 2)


PROMPTS = {
    "proposition_prompt": PromptTemplate("Split. Title: . Section: . Content: {content}"),
    "japanese_proposition_prompt": PromptTemplate("分けて。Title: . Section: . Content: {content}"),
}


@pytest.mark.parametrize("passage", PASSAGES, ids=["en", "ja"])
@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({}, {"title": "Another"}),
        ({}, {"section": "別の節"}),
        ({"model": "gpt-4o"}, {}),
        ({"temperature": 0.7}, {}),
        (PROMPTS, {}),
        ({"additional_kwargs": {"max_completion_tokens": 4000}}, {}),
        ({"additional_kwargs": {"extra_body": {"thinking": {"type": "disabled"}}}}, {}),
    ],
    ids=["title", "section", "model", "temperature", "prompt", "limit", "thinking"],
)
def test_what_is_sent_otherwise_is_asked_again(
    arguments: dict[str, Any], changes: dict[str, str], passage: Passage, path: Path
) -> None:
    with OpenAIServer(right) as server:
        propositionizer(server.url, cache=path).propositionize([passage])
        propositionizer(server.url, cache=path, **arguments).propositionize(
            [replace(passage, **changes)]
        )
        assert len(server.requests) == 2


def test_another_server_is_asked_although_its_model_has_the_same_name(path: Path) -> None:
    with OpenAIServer(right) as server, OpenAIServer(right) as other:
        first, second = (
            propositionizer(server.url, cache=path),
            propositionizer(other.url, cache=path),
        )
        first.propositionize(PASSAGES)
        second.propositionize(PASSAGES)
        assert (len(server.requests), len(other.requests)) == (2, 2)
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("text", [ENGLISH.text, JAPANESE.text], ids=["en", "ja"])
def test_a_document_under_another_id_is_not_asked_for_again(text: str, path: Path) -> None:
    with OpenAIServer(right) as server:
        made = [
            PropositionNodeParser(
                propositionizer=propositionizer(server.url, cache=path)
            ).get_nodes_from_documents([Document(id_=name, text=text)])
            for name in ("old/place.txt", "新しい/場所.txt")
        ]
        assert len(server.requests) == 1
    assert [node.get_content() for node in made[0]] == [node.get_content() for node in made[1]]
    assert not {node.id_ for node in made[0]} & {node.id_ for node in made[1]}


@pytest.mark.parametrize(
    "failure",
    [
        Reply("This context is too long.", status=400, code="context_length_exceeded"),
        Reply("The response was filtered.", status=400, code="content_filter"),
    ],
    ids=["too long", "filtered"],
)
@pytest.mark.parametrize("text", ["Miso is salty.", "味噌は塩辛い。"], ids=["en", "ja"])
def test_a_failure_that_would_come_back_is_kept(failure: Reply, text: str, path: Path) -> None:
    with OpenAIServer(lambda body: failure) as server:
        made = [
            propositionizer(server.url, cache=path).propositionize([Passage(text)])
            for _ in range(2)
        ]
        assert made[0] == made[1] == [PropositionSet((text,), "fallback", made[0][0].reason)]
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_that_may_pass_is_asked_again(status: int, path: Path) -> None:
    with OpenAIServer(
        in_turn(*[Reply("no", status=status)] * (10 if status == 429 else 1), right)
    ) as server:
        statuses = [
            made.status
            for _ in range(2)
            for made in propositionizer(server.url, cache=path).propositionize(
                [Passage("Miso is salty.")]
            )
        ]
    assert statuses == ["fallback", "ok"]


@pytest.mark.parametrize("passage", PASSAGES, ids=["en", "ja"])
def test_what_is_asked_of_parts_is_kept_too(passage: Passage, path: Path) -> None:
    def respond(body: dict[str, Any]) -> Reply:
        whole = asked_content(body) == passage.text
        return Reply('["The tower', finish_reason="length") if whole else right(body)

    with OpenAIServer(respond) as server:
        made = propositionizer(server.url, cache=path).propositionize([passage])
        assert len(server.requests) == 3
        assert propositionizer(server.url, cache=path).propositionize([passage]) == made
        assert len(server.requests) == 3
    assert (made[0].status, len(made[0].texts)) == ("repaired", 4)


def test_requests_that_were_repeated_are_kept_each_by_itself(path: Path) -> None:
    with OpenAIServer(in_turn("", "I'm sorry, but I can't help with that.", right)) as server:
        made = propositionizer(server.url, cache=path).propositionize(PASSAGES)
        assert propositionizer(server.url, cache=path).propositionize(PASSAGES) == made
        assert len(server.requests) == 6
    assert [one.status for one in made] == ["repaired", "repaired"]


def test_a_packs_replies_that_are_overwritten_are_set_aside_and_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [Document(id_=passage.title, text=passage.text) for passage in PASSAGES]
    kept = tmp_path / "replies.db"
    garbage = random.Random(1).randbytes(9000)

    def build(url: str) -> None:
        asking = propositionizer(url)
        pack = DenseXRetrievalPack(
            documents,
            propositionizer=asking,
            query_llm="none",
            embed_model="none",
            persist_dir=tmp_path,
        )
        assert pack.retrieve("新幹線")[0].node.ref_doc_id == "新幹線"
        pack.node_parser.propositionizer.cache.close()  # type: ignore[attr-defined]

    with OpenAIServer(right) as server:
        build(server.url)
        (tmp_path / "densex.json").unlink()
        kept.write_bytes(garbage)
        build(server.url)
        assert len(server.requests) == 4
    assert Path(f"{kept}.damaged").read_bytes() == garbage
    assert entries(kept) == 2
    warned = [
        record.getMessage() for record in caplog.records if "reply cache" in record.getMessage()
    ]
    assert len(warned) == 1
    assert "was damaged" in warned[0]


def test_a_damaged_entry_is_asked_for_again_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(right) as server:
        made = propositionizer(server.url, cache=path).propositionize(PASSAGES)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE replies SET body = substr(body, 2) WHERE rowid = 1")
        again = propositionizer(server.url, cache=path)
        assert again.propositionize(PASSAGES) == made
        assert len(server.requests) == 3
        assert propositionizer(server.url, cache=path).propositionize(PASSAGES) == made
        assert len(server.requests) == 3
    assert "damaged" in caplog.text
    assert str(path) in caplog.text


@pytest.mark.parametrize("way", WAYS)
def test_replies_that_arrive_while_an_error_stops_the_run_are_kept(way: str, path: Path) -> None:
    passages = MANY[:12]

    def respond(body: dict[str, Any]) -> Reply:
        if asked_content(body) == passages[1].text and not is_mended:
            wait_until(lambda: len(server.requests) >= 4)
            return Reply("Incorrect API key provided.", status=401, code="invalid_api_key")
        return Reply(right(body).content, delay=0.3)

    is_mended = False
    with OpenAIServer(respond) as server:
        with pytest.raises(PropositionizerError):
            ask(way, propositionizer(server.url, cache=path, max_concurrency=4), passages)
        answered = {seen.content for seen in server.requests} - {passages[1].text}
        assert len(answered) >= 3
        del server.requests[:]
        is_mended = True
        made = ask(way, propositionizer(server.url, cache=path), passages)
        asked = [seen.content for seen in server.requests]
    assert sorted(asked) == sorted(
        passage.text for passage in passages if passage.text not in answered
    )
    assert {one.status for one in made} == {"ok"}


@pytest.mark.parametrize("way", WAYS)
def test_replies_that_arrive_while_a_recording_cannot_be_written_are_kept(
    way: str, path: Path, tmp_path: Path
) -> None:
    recording = tmp_path / "propositions.jsonl"
    lock = threading.Lock()

    def respond(body: dict[str, Any]) -> Reply:
        with lock:
            if recording.is_file():  # until the first request comes
                recording.unlink()
                recording.mkdir()
        return Reply(right(body).content, delay=0.0 if asked_content(body) == MANY[0].text else 0.3)

    with OpenAIServer(respond) as server:
        with pytest.raises(OSError, match="propositions"):
            ask(
                way,
                propositionizer(server.url, cache=path, record_to=recording, max_concurrency=4),
                MANY[:4],
            )
        del server.requests[:]
        assert len(ask(way, propositionizer(server.url, cache=path), MANY[:4])) == 4
        assert server.requests == []


def test_what_was_answered_before_a_stream_is_closed_is_kept(path: Path) -> None:
    class SlowCache(ReplyCache):
        def put(self, key: str, outcome: Any) -> None:
            time.sleep(0.1)
            super().put(key, outcome)

    cache = SlowCache(path)
    with OpenAIServer(right) as server:
        asking = propositionizer(server.url, cache=cache, max_concurrency=8)
        stream = asking.stream(MANY[:8])
        next(stream)
        wait_until(lambda: asking.usage.requests == 8)
        stream.close()
    assert entries(cache) == 8


def test_replies_that_are_too_old_are_asked_for_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(right) as server:
        for hours in (0, 2, 0):
            let_pass(monkeypatch, timedelta(hours=hours))
            cache = ReplyCache(path, max_age=timedelta(hours=1))
            propositionizer(server.url, cache=cache).propositionize(PASSAGES)
        assert len(server.requests) == 4


# Several processes


@pytest.mark.slow
def test_another_process_asks_nothing_and_gives_equal_sets(path: Path) -> None:
    code = """
import sys
from tests.propositionizers.test_llm_cache import *
asking = propositionizer(sys.argv[2], cache=sys.argv[1])
print(json.dumps([[one.texts, one.status, one.reason] for one in asking.propositionize(PASSAGES)]))
"""
    with OpenAIServer(right) as server:
        made = propositionizer(server.url, cache=path).propositionize(PASSAGES)
    printed = subprocess.run(
        [sys.executable, "-c", code, path, server.url],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(printed.stdout) == [[list(one.texts), one.status, one.reason] for one in made]


def test_a_pickled_propositionizer_uses_the_same_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with OpenAIServer(right) as server:
        asking = propositionizer(server.url, cache=path)
        made = asking.propositionize(PASSAGES)
        unpickled = pickle.loads(pickle.dumps(asking))
        assert unpickled.cache.path == path
        assert unpickled.propositionize(PASSAGES) == made
        assert len(server.requests) == 2


RUNNER = """
from tests.propositionizers.test_llm_cache import *
run_children()
"""
AT_A_TIME = 4


def run_children() -> None:
    """Fork a child for each line, which propositionises and writes down what it made: one process imports for
    all."""
    print("ready", flush=True)
    for line in sys.stdin:
        url, cache, order, result = json.loads(line)
        child = os.fork()
        if child == 0:
            passages = MANY if order == "forwards" else MANY[::-1]
            asking = propositionizer(url, cache=cache, max_concurrency=AT_A_TIME)
            os.write(1, f"{os.getpid()}\n".encode())
            Path(result).write_bytes(pickle.dumps(asking.propositionize(passages)))
            os._exit(0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: who has ended is gone


class Children:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUNNER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def start(self, server: StandInLLM, cache: Path, result: Path, order: str = "forwards") -> int:
        """Start a run, and return its process when it begins to ask."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([server.url, str(cache), order, str(result)]) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def children() -> Iterator[Children]:
    with closing(Children()) as made:
        yield made


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def kill(process: int) -> None:
    """Kill a process and wait for its end; one that has finished by itself is none the worse."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not is_running(process))


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


def kept_in(path: Path, url: str) -> set[str]:
    """The digests of the passages whose reply is in a cache."""
    requests = propositionizer(url)
    keys = {requests.key(requests.question(passage)): digest(passage.text) for passage in MANY}
    with closing(ReplyCache(path)) as cache:
        return {one for key, one in keys.items() if cache.get(key) is not None}


def uninterrupted(server: StandInLLM) -> list[PropositionSet]:
    made: list[PropositionSet] = propositionizer(server.url).propositionize(MANY)
    server.reset()
    return made


def asked_twice(log: list[Answered]) -> Counter[str]:
    return Counter(asked for entry in log for asked in entry.digests) - Counter(
        {digest(one.text): 1 for one in MANY}
    )


@pytest.mark.slow
def test_ten_kills_cost_no_more_than_what_was_in_flight(
    path: Path, tmp_path: Path, children: Children
) -> None:
    rng = random.Random(4)
    with StandInLLM(latency=0.05) as server:
        expected = uninterrupted(server)
        # the length of the log at each kill, and what was kept then
        finished: list[tuple[int, set[str]]] = []
        for _ in range(10):
            process = children.start(server, path, tmp_path / "result")
            seen = len(server.log())
            enough = seen + rng.randrange(0, 8)
            wait_until(
                lambda enough=enough, process=process: (
                    len(server.log()) >= enough or not is_running(process)
                )
            )  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.1))
            kill(process)
            finished.append((len(server.log()), kept_in(path, server.url)))
        process = children.start(server, path, tmp_path / "result")
        wait_until(lambda: not is_running(process))
        log = server.log()
    for length, kept in finished:
        assert not kept & {asked for entry in log[length:] for asked in entry.digests}
    assert finished[-1][1]
    assert asked_twice(log).total() <= 10 * AT_A_TIME
    assert pickle.loads((tmp_path / "result").read_bytes()) == expected


@pytest.mark.slow
def test_two_processes_that_share_a_cache_and_are_killed_do_each_others_work(
    path: Path, tmp_path: Path, children: Children
) -> None:
    rng = random.Random(7)
    orders = ("forwards", "backwards")
    with StandInLLM(latency=0.05) as server:
        expected = uninterrupted(server)
        finished: list[tuple[int, set[str]]] = []
        for number in range(11):
            processes = [children.start(server, path, tmp_path / order, order) for order in orders]
            if number == 10:
                wait_until(lambda processes=processes: not any(map(is_running, processes)))  # type: ignore[misc]
                break
            time.sleep(rng.uniform(0, 0.2))
            for process in processes:
                kill(process)
            finished.append((len(server.log()), kept_in(path, server.url)))
        log = server.log()
    for length, kept in finished:
        assert not kept & {asked for entry in log[length:] for asked in entry.digests}
    assert asked_twice(log).total() <= 10 * 2 * AT_A_TIME + 2 * AT_A_TIME
    assert pickle.loads((tmp_path / "forwards").read_bytes()) == expected
    assert pickle.loads((tmp_path / "backwards").read_bytes()) == expected[::-1]


@pytest.mark.slow
def test_what_one_process_finishes_meanwhile_another_does_not_ask_for(
    path: Path, tmp_path: Path, children: Children
) -> None:
    with StandInLLM(latency=0.05) as server:
        processes = [
            children.start(server, path, tmp_path / order, order)
            for order in ("forwards", "backwards")
        ]
        wait_until(lambda: not any(map(is_running, processes)))
        log = server.log()
    assert len({asked for entry in log for asked in entry.digests}) == len(MANY)
    # what both had in flight when they met, and what was on its way into the cache
    assert asked_twice(log).total() <= 2 * AT_A_TIME
