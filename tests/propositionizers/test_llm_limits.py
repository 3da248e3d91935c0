"""What LLMPropositionizer does at a server's limits: how often it asks, how fast, and when it gives up."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import openai
import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.llms.openai import OpenAI

from llama_pack_densex.propositionizers.base import Passage, PropositionizerError, PropositionSet
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.made_up_passages import InstantLLM, made_up
from tests.openai_server import OpenAIServer, Reply, asked_content, in_turn
from tests.stand_in_llm import Faults, StandInLLM, propositions_of
from tests.waiting import wait_until

PASSAGES = list(made_up(40, japanese=0.5))
BROKEN = Reply("The server had an error.", status=500)
BAD_KEY = Reply("Incorrect API key provided.", status=401, code="invalid_api_key")
BOTH = pytest.mark.parametrize("way", ["sync", "async"])


def right(body: dict[str, Any]) -> Reply:
    return Reply(json.dumps(propositions_of(asked_content(body)), ensure_ascii=False))


def llm_of(url: str, **arguments: Any) -> OpenAI:
    return OpenAI(
        **{
            "model": "gpt-4o-mini",
            "api_base": url,
            "api_key": "sk-test-0123456789",
            "timeout": 10,
            **arguments,
        }
    )


def propositionizer(url: str, **arguments: Any) -> LLMPropositionizer:
    return LLMPropositionizer(llm_of(url), **{"retry_wait": 0, "max_retries": 0, **arguments})


def ask(way: str, asking: LLMPropositionizer, passages: list[Passage]) -> list[PropositionSet]:
    return (
        asking.propositionize(passages)
        if way == "sync"
        else asyncio.run(asking.apropositionize(passages))
    )


def texts_of(made: list[PropositionSet]) -> list[list[str]]:
    return [list(one.texts) for one in made]


def right_texts(passages: list[Passage]) -> list[list[str]]:
    return [propositions_of(passage.text) for passage in passages]


# The provider's client


@BOTH
def test_the_providers_client_tries_nothing_again_underneath(way: str) -> None:
    with OpenAIServer(lambda body: BROKEN) as server:
        asking = LLMPropositionizer(llm_of(server.url, max_retries=5), max_retries=2, retry_wait=0)
        made = ask(way, asking, PASSAGES[:3])
        asked = [seen.content for seen in server.requests]
    assert {one.status for one in made} == {"fallback"}
    assert sorted(asked) == sorted([passage.text for passage in PASSAGES[:3]] * 3)


@BOTH
def test_the_users_llm_stays_as_it_was(way: str) -> None:
    with OpenAIServer(right) as server:
        llm = llm_of(server.url, max_retries=5)
        clients = llm._get_client(), llm._get_aclient()
        assert texts_of(ask(way, LLMPropositionizer(llm), PASSAGES[:2])) == right_texts(
            PASSAGES[:2]
        )
        assert (llm.max_retries, llm._get_client(), llm._get_aclient()) == (5, *clients)
        assert [client.max_retries for client in clients] == [5, 5]
        assert llm.complete("Title: . Section: . Content: It is used on.").text


def test_one_propositionizer_asks_in_one_event_loop_after_another() -> None:
    with OpenAIServer(right) as server:
        asking = LLMPropositionizer(llm_of(server.url, max_retries=5), max_retries=0)
        for start in (0, 10, 20):
            passages = PASSAGES[start : start + 10]
            assert texts_of(asyncio.run(asking.apropositionize(passages))) == right_texts(passages)
        assert len(server.requests) == 30


async def test_it_asks_inside_a_running_loop_both_ways_at_once() -> None:
    with OpenAIServer(right) as server:
        asking = propositionizer(server.url)
        in_a_thread = asyncio.to_thread(asking.propositionize, PASSAGES[10:20])
        both = await asyncio.gather(asking.apropositionize(PASSAGES[:10]), in_a_thread)
        assert asking.propositionize(PASSAGES[20:30]) == await asking.apropositionize(
            PASSAGES[20:30]
        )
    assert [texts_of(made) for made in both] == [
        right_texts(PASSAGES[:10]),
        right_texts(PASSAGES[10:20]),
    ]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
@pytest.mark.slow
def test_calls_that_are_over_leave_no_more_connections_open_than_are_used_again() -> None:
    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    with OpenAIServer(right) as server:
        asking = propositionizer(server.url)
        before = open_files()
        for _ in range(4):
            asyncio.run(asking.apropositionize(PASSAGES[:8]))
        assert open_files() <= before + 8 * 3  # of the client, of the server, and the loop's own


class AzureLike(OpenAI):
    """As llama-index-llms-azure-openai: the same LLM with another client."""

    azure_endpoint: str

    def _get_client(self) -> openai.OpenAI:
        if self._client is None:
            self._client = openai.AzureOpenAI(**self._azure_settings())
        return self._client

    def _get_aclient(self) -> openai.AsyncOpenAI:
        if self._aclient is None:
            self._aclient = openai.AsyncAzureOpenAI(**self._azure_settings())
        return self._aclient

    def _azure_settings(self) -> dict[str, Any]:
        settings = {
            "azure_endpoint": self.azure_endpoint,
            "azure_deployment": "mini",
            "api_version": "2024-10-21",
        }
        return {
            **settings,
            "api_key": self.api_key,
            "max_retries": self.max_retries,
            "timeout": self.timeout,
        }


@BOTH
@pytest.mark.parametrize("is_used", [False, True], ids=["new", "used before"])
def test_azure_is_asked_at_its_own_address_and_not_again_underneath(
    way: str, is_used: bool
) -> None:
    with OpenAIServer(in_turn(BROKEN, BROKEN, right)) as server:
        endpoint = server.url.removesuffix("/v1")
        llm = AzureLike(
            model="gpt-4o-mini", api_key="azure-key", max_retries=4, azure_endpoint=endpoint
        )
        if is_used:
            llm._get_client(), llm._get_aclient()
        asking = LLMPropositionizer(llm, max_retries=2, retry_wait=0)
        assert texts_of(ask(way, asking, PASSAGES[:2])) == right_texts(PASSAGES[:2])
        assert len(server.requests) == 6
    (path,) = {seen.path for seen in server.requests}
    assert path.startswith("/openai/deployments/mini/chat/completions?api-version=2024-10-21")


@BOTH
def test_a_client_that_the_user_made_is_the_one_that_asks(way: str) -> None:
    with OpenAIServer(in_turn(BROKEN, right)) as server:
        settings: dict[str, Any] = {
            "base_url": server.url,
            "api_key": "sk-gateway",
            "default_headers": {"X-Team": "research"},
        }
        own = (
            openai.OpenAI(**settings, max_retries=5),
            openai.AsyncOpenAI(**settings, max_retries=5),
        )
        llm = OpenAI(
            model="gpt-4o-mini",
            api_key="sk-other",
            openai_client=own[0],
            async_openai_client=own[1],
        )
        asking = LLMPropositionizer(llm, max_retries=1, retry_wait=0)
        assert texts_of(ask(way, asking, PASSAGES[:2])) == right_texts(PASSAGES[:2])
        assert len(server.requests) == 4
        headers = [
            {name.lower(): value for name, value in seen.headers.items()}
            for seen in server.requests
        ]
        assert {(sent["x-team"], sent["authorization"]) for sent in headers} == {
            ("research", "Bearer sk-gateway")
        }
        assert [client.is_closed() for client in own] == [False, False]
        assert [client.max_retries for client in own] == [5, 5]


# What a server says


def seconds_header() -> tuple[float, dict[str, str]]:
    return 1.0, {"Retry-After": "1"}


def milliseconds_header() -> tuple[float, dict[str, str]]:
    return 0.35, {"retry-after-ms": "350", "Retry-After": "30"}


def date_header() -> tuple[float, dict[str, str]]:
    until = int(time.time()) + 2
    return until - time.time(), {"Retry-After": formatdate(until, usegmt=True)}


@BOTH
@pytest.mark.parametrize(
    ("header", "status"),
    [
        (seconds_header, 429),
        (milliseconds_header, 429),
        (date_header, 429),
        (milliseconds_header, 503),
    ],
)
@pytest.mark.slow_cases("date_header*", but=["*-sync"])
def test_a_server_that_says_when_is_asked_again_no_sooner(
    way: str, header: Callable[[], tuple[float, dict[str, str]]], status: int
) -> None:
    told = []

    def refuse(body: dict[str, Any]) -> Reply:
        wait, headers = header()
        told.append(wait)
        return Reply("later", status=status, headers=headers)

    with OpenAIServer(in_turn(refuse, right)) as server:
        made = ask(
            way, propositionizer(server.url), PASSAGES[:1]
        )  # of a refusal, another try is not one of max_retries
    first, second = server.requests
    assert second.time - first.time >= told[0]
    assert made[0].status == "ok"


@BOTH
@pytest.mark.slow_cases("*", but=["sync"])
def test_refusals_at_random_cost_no_passage(way: str) -> None:
    with StandInLLM(faults=Faults(rate_limited=0.2, retry_after=0.02)) as server:
        asking = propositionizer(server.url)
        assert texts_of(ask(way, asking, PASSAGES)) == right_texts(PASSAGES)
        kinds = server.totals().kinds
    assert kinds["ok"] == len(PASSAGES)
    assert kinds["rate_limited"] == asking.figures.refused > 3


def test_a_server_that_is_away_for_too_long_ends_the_run_and_is_not_waited_for() -> None:
    with OpenAIServer(
        lambda body: Reply("tomorrow", status=429, headers={"Retry-After": "90000"})
    ) as server:
        with pytest.raises(PropositionizerError, match="says to wait for 1500 minutes"):
            propositionizer(server.url, max_retries=6).propositionize(PASSAGES[:1])
        assert len(server.requests) == 1


# A server that is down


def test_eight_requests_given_up_in_a_row_stop_the_run() -> None:
    with OpenAIServer(lambda body: BROKEN) as server:
        stream = propositionizer(server.url, max_concurrency=1, max_retries=1).stream(PASSAGES)
        with pytest.raises(
            PropositionizerError, match=r"8 requests in a row, each retried 1 times.*run again"
        ):
            next(stream)  # and no fallback before, since nothing else came
        assert len(server.requests) == 16


@BOTH
def test_what_failed_in_an_earlier_run_does_not_end_a_later_one_sooner(way: str) -> None:
    with OpenAIServer(lambda body: BROKEN) as server:
        asking = propositionizer(server.url, max_concurrency=1)
        made = [one.status for _ in range(3) for one in ask(way, asking, PASSAGES[:5])]
    assert made == ["fallback"] * 15


@BOTH
def test_a_server_that_is_down_stops_the_run(way: str) -> None:
    with (
        OpenAIServer(lambda body: BROKEN) as server,
        pytest.raises(PropositionizerError, match="check whether it is up"),
    ):
        ask(way, propositionizer(server.url, max_concurrency=4), PASSAGES)
    assert 8 <= len(server.requests) <= 8 + 4


def test_a_reply_in_between_shows_that_the_server_is_up(tmp_path: Path) -> None:
    good = {PASSAGES[7].text, PASSAGES[15].text, PASSAGES[23].text}
    first, made_of_it = {passage.text for passage in PASSAGES[:7]}, tmp_path / "propositions.jsonl"

    def respond(body: dict[str, Any]) -> Reply:
        if asked_content(body) in good:
            return right(body)
        # the first good reply is read beside further requests, and twenty passages without one would end the
        # run
        wait_until(
            lambda: (
                asked_content(body) in first
                or (made_of_it.exists() and made_of_it.stat().st_size > 0)
            )
        )
        return BROKEN

    with OpenAIServer(respond) as server:
        asking = propositionizer(server.url, max_concurrency=1, record_to=made_of_it)
        made = asking.propositionize(PASSAGES[:31])
    assert [n for n, one in enumerate(made) if one.status == "ok"] == [7, 15, 23]


def test_a_passage_that_is_refused_for_itself_shows_that_the_server_is_up() -> None:
    rejected = Reply("Unsupported.", status=400)
    answers = {PASSAGES[0].text: right, PASSAGES[7].text: rejected, PASSAGES[15].text: rejected}

    def respond(body: dict[str, Any]) -> Reply:
        answer = answers.get(asked_content(body), BROKEN)
        return answer(body) if callable(answer) else answer

    with OpenAIServer(respond) as server:
        made = propositionizer(server.url, max_concurrency=1).propositionize(PASSAGES[:20])
    assert [n for n, one in enumerate(made) if not one.is_passing] == [0, 7, 15]


def test_nothing_counts_as_done_that_was_rejected_before_the_run_was_stopped_for_it() -> None:
    rejected = 0

    def respond(body: dict[str, Any]) -> Reply:
        nonlocal rejected
        number = [passage.text for passage in PASSAGES].index(asked_content(body))
        if number < 4:  # while what left before is answered, what leaves now is not
            wait_until(lambda: rejected >= 2 * number)
            return right(body)
        rejected += 1
        return Reply("Forbidden.", status=403)

    made: list[PropositionSet] = []
    with OpenAIServer(respond) as server:
        stream = propositionizer(server.url, max_concurrency=4).stream(PASSAGES)
        with pytest.raises(PropositionizerError, match="check the LLM's settings"):
            made.extend(stream)
    assert {one.status for one in made} == {"ok"}
    assert rejected <= 8 + 3


# An error that stops the run ends all waiting


def in_time(way: str, asking: LLMPropositionizer, passages: list[Passage]) -> list[PropositionSet]:
    """Ask, and fail if that would take minutes."""
    run: Future[list[PropositionSet]] = Future()

    def work() -> None:
        try:
            run.set_result(ask(way, asking, passages))
        except BaseException as error:
            run.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return run.result(timeout=45)


@BOTH
@pytest.mark.parametrize(
    "arguments",
    [
        {"requests_per_minute": 4.0},
        {"tokens_per_minute": 2000.0},
        {"requests_per_minute": 4.0, "max_concurrency": 1},
    ],
    ids=["requests", "tokens", "one at a time"],
)
def test_nobody_waits_for_the_rates_once_the_key_is_refused(
    way: str, arguments: dict[str, Any]
) -> None:
    with OpenAIServer(lambda body: BAD_KEY) as server:
        with pytest.raises(PropositionizerError, match="check the key"):
            in_time(way, propositionizer(server.url, **arguments), PASSAGES)
        assert len(server.requests) == 1


@BOTH
def test_nobody_waits_for_the_next_try_once_the_key_is_refused(way: str) -> None:
    later = Reply("later", status=429, headers={"Retry-After": "600"})
    all_are_there, told = threading.Barrier(8), threading.Semaphore(0)

    def respond(body: dict[str, Any]) -> Reply:
        all_are_there.wait(40)  # after the first refusal no other request would come
        if asked_content(body) != PASSAGES[3].text:
            told.release()
            return later
        for _ in range(7):
            told.acquire(timeout=40)
        return BAD_KEY

    with OpenAIServer(respond) as server:
        asking = LLMPropositionizer(
            llm_of(server.url, timeout=60), max_retries=0, max_concurrency=8
        )
        with pytest.raises(PropositionizerError, match="check the key"):
            in_time(way, asking, PASSAGES[:8])


def test_after_an_error_the_next_run_need_not_wait_for_the_places_of_the_last() -> None:
    with OpenAIServer(lambda body: BAD_KEY) as server:
        asking = propositionizer(server.url, requests_per_minute=30)
        with pytest.raises(PropositionizerError):
            in_time("sync", asking, PASSAGES)
        server.responder = right
        assert in_time("sync", asking, PASSAGES[:1])[0].status == "ok"


# The user's limits


class NotingLLM(InstantLLM):
    """Answers at once, in this process, and notes when it is asked; a connection in three is lost if so
    wanted."""

    is_unreliable: bool = False
    _moments: list[float] = PrivateAttr(default_factory=list)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._moments.append(time.monotonic())
        if self.is_unreliable and len(self._moments) % 3 == 0:
            raise ConnectionResetError("reset")
        return super().chat(messages)

    def most_in_a_second(self) -> int:
        return max(
            sum(first <= moment < first + 1 for moment in self._moments) for first in self._moments
        )


def ask_in_two_threads(asking: LLMPropositionizer, count: int) -> None:
    """Two calls at once: half of the passages in threads, half in an event loop."""
    halves = PASSAGES[: count // 2], PASSAGES[count // 2 : count]
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(ask, way, asking, half)
            for way, half in zip(("sync", "async"), halves, strict=True)
        ]
        for run, half in zip(runs, halves, strict=True):
            assert texts_of(run.result(timeout=60)) == right_texts(half)


# A busy machine makes some requests late, so that others follow them sooner: hence 1.4 times what a second
# allows. Two calls that each kept to the limit by themselves would come to twice as many.


@pytest.mark.parametrize(("workers", "a_second"), [(1, 10), (2, 5)])
@pytest.mark.slow_cases("1-10")
def test_requests_a_minute_are_kept_by_two_calls_together(workers: int, a_second: int) -> None:
    llm = NotingLLM()
    ask_in_two_threads(
        LLMPropositionizer(llm, requests_per_minute=600, workers=workers), 3 * a_second // 2 * 2
    )
    assert llm.most_in_a_second() <= 1.4 * a_second


@pytest.mark.parametrize(("workers", "a_second"), [(1, 10), (2, 5)])
@pytest.mark.slow_cases("1-10")
def test_tokens_a_minute_are_kept_by_two_calls_together(workers: int, a_second: int) -> None:
    llm = NotingLLM()  # which says that it used 1,000 tokens for each request
    ask_in_two_threads(
        LLMPropositionizer(llm, tokens_per_minute=600_000, workers=workers), 3 * a_second // 2 * 2
    )
    # half a second's tokens may go at once, and a request goes when its first token is there
    assert llm.most_in_a_second() <= 1.4 * (1.5 * a_second + 1)


def test_what_is_tried_again_counts_too() -> None:
    llm = NotingLLM(is_unreliable=True)
    asking = LLMPropositionizer(llm, requests_per_minute=900, max_retries=20, retry_wait=0)
    assert texts_of(asking.propositionize(PASSAGES[:24])) == right_texts(PASSAGES[:24])
    assert len(llm._moments) > 30
    assert llm.most_in_a_second() <= 1.4 * 15


def test_no_more_are_in_flight_than_may_be_in_two_calls_together() -> None:
    with StandInLLM(latency=0.05) as server:
        ask_in_two_threads(propositionizer(server.url, max_concurrency=3), 30)
        assert server.totals().peak_in_flight == 3
