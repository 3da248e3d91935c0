"""How fast requests go, in virtual time: told limits are kept to, and those that nobody told are found
out."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

import pytest
from llama_index.core.base.llms.types import ChatMessage

from llama_pack_densex.llm.budget import Budget, Meter
from llama_pack_densex.llm.errors import Failure
from llama_pack_densex.llm.limits import Limits, Ticket
from llama_pack_densex.llm.requests import LLMRequest, Sender, Stop
from llama_pack_densex.llm.usage import Messages, Reply, Response
from tests.llm.test_requests import ProviderError, reply
from tests.llm.virtual_time import (
    Accepts,
    VirtualLoop,
    bucket,
    fixed_windows,
    run_virtually,
    sliding_window,
)


class Allowance(Protocol):
    """So much a minute: how long until a cost is allowed (0 takes it)."""

    def take(self, cost: float, now: float) -> float: ...


class Bucket:
    """Refilled continuously."""

    def __init__(self, per_minute: float, burst: float) -> None:
        self._rate = per_minute / 60
        self._level = self._size = max(1.0, self._rate * burst)
        self._time = 0.0

    def take(self, cost: float, now: float) -> float:
        self._level, self._time = (
            min(self._size, self._level + self._rate * (now - self._time)),
            now,
        )
        missing = min(cost, self._size) - self._level
        if missing > 1e-6:
            return missing / self._rate
        self._level -= cost
        return 0.0


class Window:
    """So much in any minute."""

    def __init__(self, per_minute: float) -> None:
        self._allowed, self._used = per_minute, 0.0
        self._taken: deque[tuple[float, float]] = deque()

    def take(self, cost: float, now: float) -> float:
        while self._taken and self._taken[0][0] <= now - 60:
            self._used -= self._taken.popleft()[1]
        if self._used + cost > self._allowed and self._taken:
            return self._taken[0][0] + 60 - now
        self._taken.append((now, cost))
        self._used += cost
        return 0.0


class Server:
    """Refuses what is over its allowance, and answers the rest after a second or so."""

    def __init__(
        self, allowance: Allowance, cost: Callable[[random.Random], float], header: str
    ) -> None:
        self._allowance, self._cost, self._header = allowance, cost, header
        self._random = random.Random(0)
        self.refused = self.answered = 0

    async def __call__(self, messages: Messages, receive: Callable[[Response], None]) -> None:
        loop = asyncio.get_running_loop()
        wait = self._allowance.take(self._cost(self._random), loop.time())
        await asyncio.sleep(0.03)
        if wait:
            self.refused += 1
            headers = {"retry-after": f"{math.ceil(wait)}"} if self._header else {}
            if self._header == "with limits":
                headers |= {
                    "x-ratelimit-limit-requests": "14400",
                    "x-ratelimit-remaining-requests": "14000",
                }
            raise ProviderError(429, headers)
        await asyncio.sleep(self._random.uniform(0.5, 1.5))
        self.answered += 1
        receive(reply())


async def entered(limits: Limits, tokens: int = 0, turn: int | None = None) -> Ticket:
    """Wait until a request may go; where the waiting is cancelled, its place is given back."""
    sent = limits.enter(tokens, turn)
    try:
        await sent.departure
    except asyncio.CancelledError:
        limits.leave(sent, used_tokens=0)
        raise
    return sent


def ask(server: Server, count: int, concurrency: int) -> tuple[list[Reply | Failure], float]:
    async def main(loop: VirtualLoop) -> tuple[list[Reply | Failure], float]:
        sender = Sender(
            {}, Limits(concurrency), Meter(Budget(), None), None, max_retries=6, retry_wait=1.0
        )
        stop, began = Stop(loop), loop.time()
        questions = [LLMRequest(str(n), str(n), [ChatMessage(str(n))]) for n in range(count)]
        made = await asyncio.gather(*(sender.ask(one, server, stop) for one in questions))
        return made, loop.time() - began

    return run_virtually(main, lambda: 0.002)


@pytest.mark.parametrize("header", ["", "alone", "with limits"])
@pytest.mark.parametrize("kind", ["bucket", "window"])
@pytest.mark.parametrize(
    ("per_minute", "count", "concurrency"),
    [(30, 300, 8), (120, 400, 8), (600, 2000, 64), ("tokens", 400, 8)],
)
@pytest.mark.slow_cases("600-*", but=["*-window-", "*-window-alone"])
def test_a_rate_that_was_not_told_is_found_out(
    per_minute: float | str, count: int, concurrency: int, kind: str, header: str
) -> None:
    def tokens(chance: random.Random) -> float:
        return chance.randint(400, 1600)

    allowed, cost = (
        (48_000.0, tokens) if per_minute == "tokens" else (float(per_minute), lambda chance: 1.0)
    )
    burst = 6 if per_minute == "tokens" else 1  # seconds: a bucket holds more than one request
    server = Server(Bucket(allowed, burst) if kind == "bucket" else Window(allowed), cost, header)
    made, seconds = ask(server, count, concurrency)
    ideal = count / (48 if per_minute == "tokens" else allowed) * 60
    assert all(isinstance(one, Reply) for one in made)
    assert server.refused <= (server.refused + server.answered) / 3
    assert seconds <= 1.3 * ideal


class Chance:
    """Refuses some, whatever their number, as servers under load do."""

    def __init__(self, share: float, wait: float) -> None:
        self._random, self._share, self._wait = random.Random(0), share, wait

    def take(self, cost: float, now: float) -> float:
        return self._wait if self._random.random() < self._share else 0.0


@pytest.mark.parametrize(
    ("share", "wait", "header"), [(0.1, 1.0, "alone"), (0.1, 1.0, ""), (0.02, 20.0, "alone")]
)
@pytest.mark.parametrize(("count", "concurrency"), [(400, 8), (4000, 64)])
@pytest.mark.slow_cases("4000-*", but=["*-0.1-1.0-alone"])
def test_refusals_by_chance_hold_up_those_alone_that_they_meet(
    count: int, concurrency: int, share: float, wait: float, header: str
) -> None:
    server = Server(Chance(share, wait), lambda chance: 1.0, header)
    made, seconds = ask(server, count, concurrency)
    assert all(isinstance(one, Reply) for one in made)
    # a second each; the first and the last wait may be for all
    assert seconds <= 1.5 * count / concurrency + 2 * wait


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize(("count", "concurrency"), [(400, 8), (4000, 64)])
@pytest.mark.slow_cases("4000-*", but=["*-0.1-1.0-alone"])
def test_refusals_by_chance_that_are_many_do_not_bring_all_to_a_standstill(
    count: int, concurrency: int, share: float
) -> None:
    server = Server(Chance(share, 1.0), lambda chance: 1.0, "alone")
    made, seconds = ask(server, count, concurrency)
    assert all(isinstance(one, Reply) for one in made)
    # 3 to 12 of these; 20 to 2,000 where they were taken for a limit
    assert seconds <= 50 * count / concurrency


@pytest.mark.slow
def test_a_time_of_refusals_does_not_slow_down_all_that_comes_after_it() -> None:
    class Overloaded(Chance):
        """Refuses half of what comes, for two minutes."""

        def take(self, cost: float, now: float) -> float:
            return super().take(cost, now) if 1030 < now < 1150 else 0.0

    server = Server(Overloaded(0.5, 1.0), lambda chance: 1.0, "alone")
    made, seconds = ask(server, 8000, 64)
    assert all(isinstance(one, Reply) for one in made)
    assert seconds <= 3 * 8000 / 64


class Falling:
    """A limit that becomes lower after some minutes, as where others use it too."""

    def __init__(self, *limits: Allowance, seconds: float) -> None:
        self._limits, self._seconds, self._until = limits, seconds, math.inf

    def take(self, cost: float, now: float) -> float:
        self._until = min(self._until, now + self._seconds)
        return self._limits[now >= self._until].take(cost, now)


@pytest.mark.parametrize("header", ["", "alone"])
@pytest.mark.slow_cases("alone")
def test_a_limit_that_falls_is_not_taken_for_chance(header: str) -> None:
    server = Server(Falling(Bucket(600, 1), Bucket(60, 1), seconds=180), lambda chance: 1.0, header)
    made, _ = ask(server, 3000, 64)
    assert all(isinstance(one, Reply) for one in made)
    assert server.refused <= (server.refused + server.answered) / 3


@pytest.mark.parametrize("most", [1, 4, 16])
def test_a_server_that_takes_only_some_at_a_time_gets_no_more_for_long(most: int) -> None:
    async def main(loop: VirtualLoop) -> tuple[int, float]:
        limits, chance, refused, active = Limits(64), random.Random(0), 0, 0

        async def one() -> None:
            nonlocal refused, active
            turn = limits.next_turn()
            while True:
                sent = await entered(limits, turn=turn)
                await asyncio.sleep(0.03)
                if active < most:
                    break
                refused += 1
                limits.leave(sent, refused=True)
            active += 1
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            active -= 1
            limits.leave(sent, taken=True)

        began = loop.time()
        await asyncio.gather(*(one() for _ in range(500)))
        return refused, loop.time() - began

    refused, seconds = run_virtually(main)
    assert refused <= 500 / 3
    assert seconds <= 1.6 * 500 / most


# Limits that were told


def departures(
    limits: Limits, count: int, seconds: float, tokens: int = 0
) -> tuple[list[float], float]:
    """Send so many requests that each take some seconds, and see when they leave."""

    async def main(loop: VirtualLoop) -> tuple[list[float], float]:
        moments: list[float] = []

        async def one() -> None:
            sent = await entered(limits, tokens)
            moments.append(loop.time())
            await asyncio.sleep(seconds)
            limits.leave(sent, used_tokens=tokens, taken=True)

        began = loop.time()
        await asyncio.gather(*(one() for _ in range(count)))
        return moments, loop.time() - began

    return run_virtually(main, lambda: random.Random(1).uniform(0, 0.008))


@pytest.mark.parametrize(
    "accepts",
    [sliding_window(600, 60), fixed_windows(600, 60), bucket(10, 10), sliding_window(20, 2)],
    ids=["any minute", "each minute", "a bucket", "any two seconds"],
)
def test_a_told_rate_is_kept_to_and_used(accepts: Accepts) -> None:
    moments, seconds = departures(Limits(64, requests_per_minute=600), 1500, 1.0)
    assert all(accepts(moment) for moment in moments)
    assert seconds <= 1.03 * 150 + 1


def test_told_tokens_are_kept_to_and_used() -> None:
    moments, seconds = departures(Limits(64, tokens_per_minute=60_000), 300, 1.0, tokens=500)
    assert seconds <= 1.03 * 150 + 1
    assert all(later - sooner > 59 for sooner, later in zip(moments, moments[121:], strict=False))


def test_tokens_are_set_right_by_what_was_used() -> None:
    async def main(loop: VirtualLoop) -> float:
        limits = Limits(1, tokens_per_minute=6_000)
        for _ in range(20):
            limits.leave(await entered(limits, 3_000), used_tokens=100, taken=True)
        return loop.time() - 1000

    assert run_virtually(main) <= 25


@pytest.mark.parametrize("most", [1, 8])
def test_no_more_are_in_flight_than_allowed(most: int) -> None:
    moments, seconds = departures(Limits(most), 40, 1.0)
    assert seconds >= 40 / most
    assert sorted(moments) == moments


def test_the_first_come_goes_first_and_what_is_sent_again_keeps_its_place() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        limits, order = Limits(1), list[int]()
        first = await entered(limits, turn=limits.next_turn())
        turns = [limits.next_turn() for _ in range(4)]

        async def one(turn: int) -> None:
            sent = await entered(limits, turn=turn)
            order.append(turns.index(turn))
            limits.leave(sent, taken=True)

        tasks = [
            asyncio.ensure_future(one(turn)) for turn in (turns[2], turns[3], turns[0], turns[1])
        ]
        await asyncio.sleep(1)
        limits.leave(first, taken=True)
        await asyncio.gather(*tasks)
        return order

    assert run_virtually(main) == [0, 1, 2, 3]


def test_nothing_leaves_before_the_moment_that_a_refusal_told() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        limits, moments = Limits(8), list[float]()

        async def one() -> None:
            limits.leave(await entered(limits), taken=True)
            moments.append(loop.time())

        limits.leave(await entered(limits), refused=True, wait=30)
        began = loop.time()
        await asyncio.gather(*(one() for _ in range(5)))
        return [moment - began for moment in moments]

    assert min(run_virtually(main)) >= 30


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def main(loop: VirtualLoop) -> float:
        limits = Limits(1)
        first = await entered(limits)
        waiting = asyncio.ensure_future(entered(limits))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        limits.leave(first, taken=True)
        began = loop.time()
        limits.leave(await entered(limits), taken=True)
        return loop.time() - began

    assert run_virtually(main) == 0
