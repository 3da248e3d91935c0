"""One request: how often it is sent, how long it waits, what stops it, and what is kept. Mostly in virtual
time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, TypeVar

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse

from llama_pack_densex.llm.budget import Budget, BudgetError, Meter
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.errors import Failure, LLMError, classify, retry_after
from llama_pack_densex.llm.limits import MOST_WAIT, Limits
from llama_pack_densex.llm.requests import LLMRequest, Sender, Stop
from llama_pack_densex.llm.usage import Messages, Reply, Response, Usage
from tests.llm.virtual_time import VirtualLoop, run_virtually

T = TypeVar("T")


class ProviderError(Exception):
    """An error as providers' clients raise it."""

    def __init__(
        self, status: int, headers: dict[str, str] | None = None, message: str = "no"
    ) -> None:
        super().__init__(message)
        self.status_code = status
        self.response = type("Response", (), {"headers": headers or {}, "status_code": status})()


def refusal(seconds: float | None = None) -> ProviderError:
    return ProviderError(429, {} if seconds is None else {"retry-after": str(seconds)})


def reply(text: str = '["a b"]', input_tokens: int = 10, output_tokens: int = 5) -> ChatResponse:
    usage = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
    raw = {"choices": [{"finish_reason": "stop"}], "usage": usage}
    return ChatResponse(message=ChatMessage(text, role="assistant"), raw=raw)


REPLY = Reply('["a b"]', "stop", Usage(1, 10, 5))


class Server:
    """A server in this loop: `answer` gets how many-eth request it is, and returns a response or an error.

    It stands for the transport too.
    """

    def __init__(self, answer: Callable[[int], Response | Exception], seconds: float = 1.0) -> None:
        self.answer, self.seconds = answer, seconds
        self.moments: list[float] = []
        self.asked: list[str] = []

    async def __call__(self, messages: Messages, receive: Callable[[Response], None]) -> None:
        self.moments.append(asyncio.get_running_loop().time())
        self.asked.append(messages[-1].content or "")
        answer = self.answer(len(self.moments))
        await asyncio.sleep(self.seconds)
        if isinstance(answer, Exception):
            raise answer
        receive(answer)


def question(number: int = 0, **changes: Any) -> LLMRequest:
    text = f"Passage {number} is old. 段落{number}は古い。"
    return replace(LLMRequest(text, text, [ChatMessage("Split."), ChatMessage(text)]), **changes)


def sender(
    limits: Limits, cache: ReplyCache | None = None, budget: Budget | None = None, **arguments: Any
) -> Sender:
    meter = Meter(budget or Budget(), None)
    return Sender(
        {"model": "m"}, limits, meter, cache, **{"max_retries": 2, "retry_wait": 1.0, **arguments}
    )


def virtually(
    server: Server,
    work: Callable[[Sender, Stop], Coroutine[Any, Any, T]],
    *,
    concurrency: int = 8,
    requests_per_minute: float | None = None,
    **arguments: Any,
) -> tuple[T, float]:
    """Do something with a sender in virtual time; the second value is how long that took."""

    async def main(loop: VirtualLoop) -> tuple[T, float]:
        limits = Limits(concurrency, requests_per_minute)
        began = loop.time()
        return await work(sender(limits, **arguments), Stop(loop)), loop.time() - began

    return run_virtually(main)


async def outcome_of(coroutine: Coroutine[Any, Any, T]) -> T | BaseException:
    try:
        return await coroutine
    except (LLMError, asyncio.CancelledError) as error:
        return error


# Tries


def test_a_failure_is_tried_again_after_a_random_and_growing_wait() -> None:
    server = Server(lambda number: ProviderError(500) if number < 5 else reply(), seconds=0)
    made, _ = virtually(
        server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=6
    )
    waits = [
        later - sooner for sooner, later in zip(server.moments, server.moments[1:], strict=False)
    ]
    assert made == REPLY
    assert all(0 <= wait <= 2 ** (n + 1) for n, wait in enumerate(waits))
    assert len(set(waits)) == 4


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_it_is_given_up_after_its_tries(max_retries: int) -> None:
    server = Server(lambda number: ProviderError(500))
    made, _ = virtually(
        server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=max_retries
    )
    assert made == Failure("transient", "ProviderError 500")
    assert len(server.moments) == max_retries + 1


def test_a_server_that_says_when_is_asked_then_and_not_much_later() -> None:
    server = Server(lambda number: refusal(30 * number) if number < 4 else reply(), seconds=0)
    virtually(server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=0)
    waits = [
        later - sooner for sooner, later in zip(server.moments, server.moments[1:], strict=False)
    ]
    assert all(
        told <= wait <= 1.1 * told + 0.01 for told, wait in zip((30, 60, 90), waits, strict=True)
    )


def test_requests_that_are_told_the_same_time_do_not_all_come_back_at_once() -> None:
    server = Server(lambda number: refusal(100) if number <= 20 else reply(), seconds=0)

    async def work(sending: Sender, stop: Stop) -> None:
        await asyncio.gather(*(sending.ask(question(n), server, stop) for n in range(20)))

    virtually(server, work, concurrency=20)
    again = sorted(server.moments[20:])
    assert len(set(again)) == 20
    assert again[-1] - again[0] > 3


def test_a_server_that_says_to_come_back_at_once_is_not_stormed() -> None:
    server = Server(lambda number: refusal(0), seconds=0)
    _, seconds = virtually(
        server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=1
    )
    assert len(server.moments) <= 20
    assert seconds > 60


def test_a_quarter_of_an_hour_of_refusals_is_the_end_of_the_run() -> None:
    server = Server(lambda number: refusal(60), seconds=0)

    async def work(sending: Sender, stop: Stop) -> Any:
        return await asyncio.gather(
            *(outcome_of(sending.ask(question(n), server, stop)) for n in range(5))
        )

    made, seconds = virtually(server, work, max_retries=20)
    assert all("refused all requests for 1" in str(one) and "cache" in str(one) for one in made)
    assert MOST_WAIT < seconds <= MOST_WAIT + 120


def test_a_server_that_says_to_come_back_in_hours_ends_the_run_at_once() -> None:
    server = Server(lambda number: refusal(4 * 3600), seconds=0)
    made, seconds = virtually(
        server, lambda sending, stop: outcome_of(sending.ask(question(), server, stop))
    )
    assert "says to wait for 240 minutes" in str(made)
    assert seconds < 1


def test_an_hour_without_requests_is_no_hour_of_refusals() -> None:
    server = Server(lambda number: refusal(1) if number == 2 else reply(), seconds=0)

    async def work(sending: Sender, stop: Stop) -> list[Any]:
        first = await sending.ask(question(1), server, stop)
        await asyncio.sleep(3600)
        return [first, await sending.ask(question(2), server, stop)]

    assert virtually(server, work)[0] == [REPLY, REPLY]


def test_a_limit_that_was_used_up_is_so_until_the_server_takes_requests_again() -> None:
    server = Server(
        lambda number: refusal(3600) if number == 1 else refusal(1) if number == 3 else reply(),
        seconds=0,
    )

    async def work(sending: Sender, stop: Stop) -> list[Any]:
        made = [await outcome_of(sending.ask(question(1), server, stop))]
        await asyncio.sleep(3700)
        run = Stop(asyncio.get_running_loop())
        return made + [await sending.ask(question(n), server, run) for n in (2, 3)]

    refused, *later = virtually(server, work)[0]
    assert "says to wait for 60 minutes" in str(refused)
    assert later == [REPLY, REPLY]


def test_the_wait_for_ones_turn_is_held_against_nobody() -> None:
    """At ten requests a minute the last of 200 waits for twenty minutes, and is then refused once."""
    seen: set[str] = set()

    def answer(number: int) -> Response | Exception:
        is_new = server.asked[-1] not in seen
        seen.add(server.asked[-1])
        return refusal(5) if is_new else reply()

    server = Server(answer)

    async def work(sending: Sender, stop: Stop) -> list[Any]:
        return await asyncio.gather(*(sending.ask(question(n), server, stop) for n in range(200)))

    made, seconds = virtually(server, work, requests_per_minute=10, max_retries=0)
    assert seconds > 2 * MOST_WAIT
    assert made == [REPLY] * 200


# The end of a run


def stopping_at(server: Server, seconds: float, **arguments: Any) -> tuple[list[Any], float]:
    """Ask for fifty passages, and stop after some seconds."""

    async def work(sending: Sender, stop: Stop) -> list[Any]:
        asyncio.get_running_loop().call_later(seconds, stop.by, LLMError("the end"))
        return await asyncio.gather(
            *(outcome_of(sending.ask(question(n), server, stop)) for n in range(50))
        )

    return virtually(server, work, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"requests_per_minute": 6.0}, {"concurrency": 1}, {"budget": Budget(max_tokens_total=120)}],
    ids=["for the rate", "for a slot", "for the budget"],
)
def test_who_waits_is_told_at_once(arguments: dict[str, Any]) -> None:
    server = Server(lambda number: reply(), seconds=20)
    made, seconds = stopping_at(server, 5, **arguments)
    assert {str(one) for one in made if isinstance(one, Exception)} == {"the end"}
    assert made.count(REPLY) == len(server.moments) >= 1  # what was under way came to its end
    assert seconds <= 26


def test_who_waits_for_the_next_try_is_told_at_once() -> None:
    server = Server(lambda number: refusal(600), seconds=0)
    made, seconds = stopping_at(server, 5)
    assert [str(one) for one in made] == ["the end"] * 50
    assert seconds < 6


def test_what_the_waiting_had_reserved_is_free_again() -> None:
    server = Server(lambda number: reply())

    async def work(sending: Sender, stop: Stop) -> tuple[float, Any]:
        loop = asyncio.get_running_loop()
        loop.call_later(15, stop.by, LLMError("the end"))
        await asyncio.gather(
            *(outcome_of(sending.ask(question(n), server, stop)) for n in range(50))
        )
        began = loop.time()
        made = await sending.ask(question(99), server, Stop(asyncio.get_running_loop()))
        return loop.time() - began, made

    (waited, made), _ = virtually(server, work, requests_per_minute=6)
    assert made == REPLY
    assert waited <= 12


async def test_another_thread_may_stop_it() -> None:
    server = Server(lambda number: refusal(600), seconds=0)
    stop = Stop(asyncio.get_running_loop())
    asking = asyncio.ensure_future(sender(Limits(1)).ask(question(), server, stop))
    while not server.moments:
        await asyncio.sleep(0.01)
    threading.Timer(0.05, stop.by, [LLMError("the end")]).start()
    with pytest.raises(LLMError, match="the end"):
        await asyncio.wait_for(asking, 20)


def test_nothing_is_sent_after_the_end() -> None:
    server = Server(lambda number: reply())

    async def work(sending: Sender, stop: Stop) -> Any:
        stop.by(LLMError("the end"))
        return await outcome_of(sending.ask(question(), server, stop))

    made, _ = virtually(server, work)
    assert str(made) == "the end"
    assert server.moments == []


@pytest.mark.parametrize("wait", ["turn", "try", "reply"])
def test_a_cancelled_request_is_cancelled_and_gives_its_slot_back(wait: str) -> None:
    server = Server(
        lambda number: refusal(600) if wait == "try" else reply(),
        seconds=0 if wait == "try" else 10,
    )

    async def work(sending: Sender, stop: Stop) -> Any:
        first = asyncio.ensure_future(sending.ask(question(1), server, stop))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(sending.ask(question(2), server, stop))
        await asyncio.sleep(1)
        cancelled = second if wait == "turn" else first
        cancelled.cancel()
        assert isinstance(await outcome_of(cancelled), asyncio.CancelledError)  # type: ignore[arg-type]
        if wait == "try":
            second.cancel()
        server.answer = lambda number: reply()
        return await sending.ask(question(3), server, stop)

    made, _ = virtually(server, work, concurrency=1)
    assert made == REPLY


def test_an_error_that_would_meet_every_passage_is_raised_and_says_stop() -> None:
    key = "sk-secret-0123456789"
    server = Server(
        lambda number: ProviderError(401, message=f"Incorrect API key: {key}, at passage 段落.")
    )

    async def work(sending: Sender, stop: Stop) -> Any:
        return await outcome_of(sending.ask(question(), server, stop)), stop.error

    (raised, said), _ = virtually(server, work, secrets=[key])
    assert isinstance(raised, LLMError)
    assert raised.__context__ is None
    assert "check the key" in str(raised) == str(said)
    assert key not in str(raised)


def test_the_end_of_the_budget_says_stop() -> None:
    server = Server(lambda number: reply())

    async def work(sending: Sender, stop: Stop) -> Any:
        return await outcome_of(sending.ask(question(), server, stop)), stop.error

    (raised, said), _ = virtually(server, work, budget=Budget(max_tokens_total=10))
    assert isinstance(raised, BudgetError)
    assert raised is said
    assert server.moments == []


# What is kept


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache(tmp_path / "replies.sqlite")


def test_a_reply_is_kept_and_read_in_place_of_asking(cache: ReplyCache) -> None:
    server = Server(lambda number: reply())

    async def work(sending: Sender, stop: Stop) -> Any:
        return [await sending.ask(question(), server, stop) for _ in range(2)]

    assert virtually(server, work, cache=cache)[0] == [REPLY, REPLY]
    assert virtually(server, work, cache=ReplyCache(cache.path))[0] == [REPLY, REPLY]
    assert len(server.moments) == 1


def test_only_failures_that_would_come_back_are_kept(cache: ReplyCache) -> None:
    errors = {
        "too_long": ProviderError(400, message="maximum context length"),
        "filtered": ProviderError(400, message="content filter"),
        "rejected": ProviderError(400, message="unsupported"),
        "transient": ProviderError(500),
    }
    for number, (kind, error) in enumerate(errors.items(), 1):
        server = Server(lambda _, error=error: error)  # type: ignore[misc]
        cache.put(sender(Limits(1)).key(question()), REPLY)

        async def work(
            sending: Sender, stop: Stop, number: int = number, server: Server = server
        ) -> Any:
            await sending.ask(question(), server, stop)  # as a proof that the settings are right
            return [await sending.ask(question(number), server, stop) for _ in range(2)]

        made, _ = virtually(server, work, cache=cache, max_retries=0)
        assert [one.kind for one in made] == [kind, kind]
        assert len(server.moments) == (1 if kind in ("too_long", "filtered") else 2)


async def test_a_reply_is_counted_and_kept_though_its_caller_is_cancelled_meanwhile(
    cache: ReplyCache,
) -> None:
    server = Server(lambda number: reply(), seconds=0.2)
    sending = sender(Limits(1), cache)
    asking = asyncio.ensure_future(
        sending.ask(question(), server, Stop(asyncio.get_running_loop()))
    )
    while not server.moments:
        await asyncio.sleep(0.01)
    asking.cancel()
    assert isinstance(await outcome_of(asking), asyncio.CancelledError)  # type: ignore[arg-type]
    assert (sending.meter.usage, cache.get(sending.key(question()))) == (Usage(), None)
    await asyncio.sleep(0.3)
    assert (sending.meter.usage, cache.get(sending.key(question()))) == (REPLY.usage, REPLY)


# What stops a run that nobody would want to go on


@pytest.mark.parametrize(
    "error", [ProviderError(400, message="Unsupported value: 'temperature'"), ProviderError(422)]
)
def test_a_request_that_is_rejected_before_any_was_answered_stops_the_run(error: Exception) -> None:
    server = Server(lambda number: error)

    async def work(sending: Sender, stop: Stop) -> Any:
        return await outcome_of(sending.ask(question(), server, stop)), stop.error

    (raised, said), _ = virtually(server, work, max_retries=6)
    assert isinstance(raised, LLMError)
    assert raised is said
    assert str(error) in str(raised)
    assert "check the LLM's settings" in str(raised)
    assert len(server.moments) == 1


def test_a_request_that_is_rejected_after_others_were_answered_is_the_texts_matter() -> None:
    server = Server(lambda number: reply() if number == 1 else ProviderError(400))

    async def work(sending: Sender, stop: Stop) -> Any:
        made = [await outcome_of(sending.ask(question(n), server, stop)) for n in range(10)]
        return [one.kind if isinstance(one, Failure) else type(one).__name__ for one in made]

    made, _ = virtually(server, work)
    assert made == ["Reply", *["rejected"] * 7, "LLMError", "LLMError"]  # so many in a row are not
    assert len(server.moments) == 9


def test_a_reply_that_was_kept_proves_the_settings_too(cache: ReplyCache) -> None:
    server = Server(
        lambda number: reply() if number == 1 else ProviderError(403, message="a firewall")
    )
    virtually(server, lambda sending, stop: sending.ask(question(), server, stop), cache=cache)

    async def work(sending: Sender, stop: Stop) -> Any:
        return [await sending.ask(question(n), server, stop) for n in range(2)]

    made, _ = virtually(server, work, cache=cache)
    assert made == [REPLY, Failure("rejected", "ProviderError 403")]


def test_a_programming_error_stops_the_run_with_its_words_and_without_the_text() -> None:
    server = Server(
        lambda number: TypeError(f"chat() got an unexpected keyword at {question().part}")
    )

    async def work(sending: Sender, stop: Stop) -> Any:
        return await outcome_of(sending.ask(question(), server, stop))

    raised, seconds = virtually(server, work, max_retries=6)
    assert "TypeError: chat() got an unexpected keyword" in str(raised)
    assert "LLM's class" in str(raised)
    assert "段落" not in str(raised)
    assert (len(server.moments), seconds < 5) == (2, True)


def test_an_answer_that_is_garbage_is_asked_for_again() -> None:
    server = Server(
        lambda number: (
            TypeError("'NoneType' object is not subscriptable") if number == 1 else reply()
        )
    )
    assert (
        virtually(
            server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=6
        )[0]
        == REPLY
    )


def test_an_error_of_the_cache_is_raised_and_not_taken_for_the_providers(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    server = Server(lambda number: reply())
    with pytest.raises(OSError, match="folder"):
        virtually(
            server,
            lambda sending, stop: sending.ask(question(), server, stop),
            cache=ReplyCache(tmp_path / "folder"),
        )
    assert server.moments == []


def test_a_key_goes_by_what_is_sent() -> None:
    made = sender(Limits(1))
    asked = question()
    others = [
        question(1),
        question(text="another"),
        question(attempt=2),
        question(messages=[*asked.messages[:-1], ChatMessage("else")]),
        question(messages=[ChatMessage("Split.", role="system"), asked.messages[-1]]),
    ]
    keys = [made.key(asked), *map(made.key, others)]
    assert len(set(keys)) == len(keys)
    assert made.key(question(turn=7)) == keys[0]
    other_model = Sender(
        {"model": "n"}, Limits(1), Meter(Budget(), None), None, max_retries=0, retry_wait=0
    )
    assert other_model.key(asked) != keys[0]


def test_a_prompt_that_is_sent_back_before_the_answer_is_no_part_of_it() -> None:
    asked = question()
    echo = CompletionResponse(text=f'Split.\n\nTitle: . Section: . Content: {asked.part}["a b"]')
    server = Server(lambda number: echo)
    made, _ = virtually(server, lambda sending, stop: sending.ask(asked, server, stop))
    assert isinstance(made, Reply)
    assert made.text == '["a b"]'


# What errors say


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"retry-after-ms": "0", "retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "inf"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": ""}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        (
            {
                "retry-after": "Wed, 21 Oct 2015 07:28:09 GMT",
                "date": "Wed, 21 Oct 2015 07:28:00 GMT",
            },
            9,
        ),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_how_long_a_server_says_to_wait(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(ProviderError(429, headers)) == seconds


def test_a_server_may_name_a_moment() -> None:
    told = retry_after(
        ProviderError(429, {"retry-after": formatdate(time.time() + 100, usegmt=True)})
    )
    assert 97 < told <= 100


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError(), ProviderError(500)])
def test_an_error_without_headers_says_nothing(error: Exception) -> None:
    assert retry_after(error) == 0


class _CodeError(Exception):
    """As google-genai's: the status is in `code`, and the response may have come by another library."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code} RESOURCE_EXHAUSTED")
        self.code, self.status, self.response = code, "RESOURCE_EXHAUSTED", None


class _BotocoreError(Exception):
    """As botocore's: the response is a dictionary."""

    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"An error occurred ({code}) when calling the Converse operation")
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
        self.response = {"Error": {"Code": code}, "ResponseMetadata": metadata}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderError(429), True),
        (_CodeError(429), True),
        (ProviderError(503, {"retry-after": "3"}), True),
        (ProviderError(529, {"retry-after": "3"}), True),
        (ProviderError(529), True),
        (_BotocoreError(429, "ThrottlingException"), True),
        (_BotocoreError(400, "ThrottlingException"), True),
        (_BotocoreError(503, "ServiceUnavailableException", {"retry-after": "3"}), True),
        (_BotocoreError(500, "InternalServerException"), False),
        (ProviderError(503), False),
        (ProviderError(500, {"retry-after": "3"}), False),
        (_CodeError(500), False),
        (TimeoutError(), False),
        (ConnectionResetError(), False),
    ],
)
def test_a_refusal_is_told_from_a_failure(error: Exception, expected: bool) -> None:
    assert (classify(error).kind == "refused") == expected


def test_a_request_that_is_too_large_for_the_limit_is_too_long_and_not_refused_for_ever() -> None:
    error = ProviderError(
        429, message="Request too large for gpt-4o: Limit 30000, Requested 40000."
    )
    assert classify(error).kind == "too_long"


def test_refusals_count_a_tenth_of_a_try() -> None:
    server = Server(lambda number: refusal(1), seconds=0)
    made, _ = virtually(
        server, lambda sending, stop: sending.ask(question(), server, stop), max_retries=2
    )
    assert made == Failure("transient", "ProviderError 429")
    assert len(server.moments) == 30
