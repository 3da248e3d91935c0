"""Rates of a Pacer, in an event loop with a virtual clock, against simulated servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.llm_requests.pacing import Pacer, RequestSchedule, TokenSchedule
from tests.llm_requests.virtual_time import Accepts, VirtualLoop, bucket, fixed_windows, run_virtually, sliding_window

Lateness = Callable[[random.Random], float]

SERVERS: dict[str, Callable[[], Accepts]] = {
    "sliding minute": partial(sliding_window, 600, 60),
    "sliding second": partial(sliding_window, 10, 1),
    "fixed minutes": partial(fixed_windows, 600, 60),
    "fixed seconds": partial(fixed_windows, 10, 1),
    "bucket": partial(bucket, 10, 10),
}
LATENESS: dict[str, Lateness] = {
    "to the millisecond": lambda chance: chance.uniform(0, 0.001),
    "always 8 ms late": lambda chance: 0.008,
    "up to 5 ms late": lambda chance: chance.uniform(0, 0.005),
}


@dataclass
class Traffic:
    """What a server saw."""

    accepted: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def a_minute(self) -> float:
        return 60 * (len(self.accepted) - 1) / (self.accepted[-1] - self.accepted[0])

    @property
    def share_refused(self) -> float:
        return self.refused / (self.refused + len(self.accepted))


async def send(
    loop: VirtualLoop,
    pacer: Pacer,
    accepts: Accepts,
    requests: int,
    chance: random.Random,
    limit_per_minute: float | None = None,
) -> Traffic:
    """Send requests, 100 of them at a time; they arrive up to 4 ms later and are answered after about a second."""
    traffic = Traffic()
    left = iter(range(requests))

    async def work() -> None:
        for _ in left:
            while not await attempt():
                await asyncio.sleep(1)

    async def attempt() -> bool:
        await pacer.enter(100)
        await asyncio.sleep(chance.uniform(0, 0.004))
        if not accepts(loop.time()):
            traffic.refused += 1
            pacer.leave("refused", limit_per_minute=limit_per_minute)
            return False
        traffic.accepted.append(loop.time())
        await asyncio.sleep(chance.uniform(0.8, 1.2))
        pacer.leave("ok", 100, 100)
        return True

    await asyncio.gather(*(work() for _ in range(100)))
    return traffic


@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("server", SERVERS)
def test_an_allowance_is_used_and_not_exceeded(server: str, lateness: str) -> None:
    chance = random.Random(0)

    async def main(loop: VirtualLoop) -> Traffic:
        pacer = Pacer(64, requests_per_minute=600, clock=loop.time)
        return await send(loop, pacer, SERVERS[server](), 900, chance)

    traffic = run_virtually(main, lambda: LATENESS[lateness](chance))
    assert traffic.a_minute >= 0.95 * 600
    assert traffic.share_refused <= 0.01


@pytest.mark.parametrize("server", ["sliding minute", "fixed seconds", "bucket"])
def test_a_loop_that_is_held_up_now_and_then_neither_bursts_nor_falls_behind(server: str) -> None:
    chance = random.Random(0)

    async def main(loop: VirtualLoop) -> Traffic:
        pacer = Pacer(64, requests_per_minute=600, clock=loop.time)
        return await send(loop, pacer, SERVERS[server](), 1800, chance)

    traffic = run_virtually(main, lambda: 0.1 if chance.random() < 0.003 else 0.001)
    assert traffic.a_minute >= 0.95 * 600
    assert traffic.share_refused <= 0.01


def test_a_refusing_server_tells_the_pace() -> None:
    chance = random.Random(0)

    async def main(loop: VirtualLoop) -> Traffic:
        pacer = Pacer(64, clock=loop.time)
        await send(loop, pacer, SERVERS["bucket"](), 300, chance, limit_per_minute=600)
        return await send(loop, pacer, SERVERS["bucket"](), 600, chance, limit_per_minute=600)

    traffic = run_virtually(main)
    assert traffic.a_minute >= 0.95 * 600
    assert traffic.share_refused <= 0.01


def test_what_the_user_says_goes_before_what_the_server_says() -> None:
    async def main(loop: VirtualLoop) -> float:
        pacer = Pacer(8, requests_per_minute=60, clock=loop.time)
        await pacer.enter(1)
        pacer.leave("refused", limit_per_minute=6)
        begin = loop.time()
        await pacer.enter(1)
        return loop.time() - begin

    assert run_virtually(main) == pytest.approx(60 / 60, rel=0.02)


@pytest.mark.parametrize("nonsense", [0, -1, float("nan"), float("inf")])
def test_nonsense_from_a_server_is_no_pace(nonsense: float) -> None:
    async def main(loop: VirtualLoop) -> float:
        pacer = Pacer(8, clock=loop.time)
        begin = loop.time()
        for _ in range(5):
            await pacer.enter(1)
            pacer.leave("refused", limit_per_minute=nonsense)
        return loop.time() - begin

    assert run_virtually(main) == 0


def test_tokens_are_let_through_at_their_rate() -> None:
    chance = random.Random(0)

    async def main(loop: VirtualLoop) -> float:
        pacer = Pacer(64, tokens_per_minute=60_000, clock=loop.time)
        sizes = [chance.randrange(200, 1800) for _ in range(200)]
        begin = loop.time()
        for size in sizes:
            await pacer.enter(size)
            pacer.leave("ok", size, size)
        return 60 * sum(sizes) / (loop.time() - begin)

    assert 0.95 * 60_000 <= run_virtually(main) <= 60_000


@pytest.mark.parametrize(("used", "later"), [(100, 0.1), (1000, 1.0), (3000, 3.0)])
def test_what_a_request_used_replaces_the_estimate(used: int, later: float) -> None:
    async def main(loop: VirtualLoop) -> float:
        pacer = Pacer(8, tokens_per_minute=60_000, clock=loop.time)
        await pacer.enter(1000)
        pacer.leave("ok", used_tokens=used, estimated_tokens=1000)
        begin = loop.time()
        await pacer.enter(0)
        return loop.time() - begin

    assert run_virtually(main) == pytest.approx(max(later / 0.985 - 0.5, 0))


def test_a_request_larger_than_a_minutes_tokens_goes_and_the_next_waits_a_minute() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        pacer = Pacer(8, tokens_per_minute=1000, clock=loop.time)
        moments = []
        for _ in range(2):
            await pacer.enter(50_000)
            moments.append(loop.time() - 1000)
            pacer.leave("ok", used_tokens=50_000, estimated_tokens=50_000)
        return moments

    assert run_virtually(main) == [0, pytest.approx(60, abs=1)]


@pytest.mark.parametrize("allowance", [0.5, 1, 3, 600, 1e6])
def test_allowances_of_any_size_are_kept(allowance: float) -> None:
    async def main(loop: VirtualLoop) -> float:
        pacer = Pacer(8, requests_per_minute=allowance, clock=loop.time)
        begin = loop.time()
        for _ in range(100):
            await pacer.enter(1)
            pacer.leave("ok")
        return loop.time() - begin

    expected = 99 * 60 / allowance
    assert run_virtually(main) == pytest.approx(expected / 0.985, rel=0.02, abs=0.002)


def test_idle_time_is_not_saved_up_for_a_burst() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        pacer = Pacer(64, requests_per_minute=600, clock=loop.time)
        await pacer.enter(1)
        await asyncio.sleep(600)

        async def one() -> float:
            await pacer.enter(1)
            return loop.time()

        return sorted(await asyncio.gather(*(one() for _ in range(20))))

    moments = run_virtually(main)
    assert all(after - before > 0.099 for before, after in pairwise(moments))


def test_cancelled_waits_for_the_rate_leave_their_places_to_others() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, int]:
        pacer = Pacer(64, requests_per_minute=60, clock=loop.time)
        await pacer.enter(1)
        waiting = [asyncio.ensure_future(pacer.enter(1)) for _ in range(30)]
        await asyncio.sleep(0.5)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(pacer.enter(1) for _ in range(2)))
        return loop.time() - 1000, sum(task.cancelled() for task in waiting)

    seconds, cancelled = run_virtually(main)
    assert cancelled == 30
    assert seconds == pytest.approx(2, rel=0.02)


def departures(schedule: RequestSchedule, requests: int, lateness: Callable[[int], float]) -> list[float]:
    """Let requests leave one after the other, each woken later than it asked for."""
    now = 0.0
    moments = []
    for number in range(requests):
        place = schedule.reserve(now, now)
        while (wait_for := schedule.depart(place, now)) is not None:
            now = wait_for + lateness(number)
        moments.append(now)
    return moments


def test_after_a_stall_requests_keep_their_distance() -> None:
    moments = departures(RequestSchedule(600), 100, lambda number: 0.5 if number == 20 else 0.0)
    assert min(after - before for before, after in pairwise(moments)) > 0.09
    assert all(after - before >= 1 for before, after in zip(moments, moments[10:], strict=False))


def test_time_lost_in_a_stall_is_made_up_for_slowly() -> None:
    punctual = departures(RequestSchedule(600), 1000, lambda number: 0.0)
    stalled = departures(RequestSchedule(600), 1000, lambda number: 0.1 if number == 20 else 0.0)
    assert stalled[30] - punctual[30] > 0.08
    assert stalled[-1] == pytest.approx(punctual[-1], abs=0.001)


@pytest.mark.parametrize("late", [0.005, 0.02])
def test_steady_lateness_does_not_add_up(late: float) -> None:
    moments = departures(RequestSchedule(600), 1000, lambda number: late)
    assert moments[-1] - moments[0] == pytest.approx(999 * 0.1 / 0.985, abs=0.2)


@given(st.data())
@settings(max_examples=50)
def test_places_are_never_taken_twice_and_never_closer_than_the_interval(data: st.DataObject) -> None:
    schedule = RequestSchedule(600)
    now = 0.0
    taken: list[float] = []
    for _ in range(30):
        now += data.draw(st.floats(0, 0.3))
        if taken and taken[-1] > now and data.draw(st.booleans()):
            schedule.give_back(taken.pop(data.draw(st.integers(0, len(taken) - 1))))
        else:
            place = schedule.reserve(now, now + data.draw(st.sampled_from([0.0, 0.5])))
            assert place >= now
            taken.append(place)
        assert all(after - before > 0.1 for before, after in pairwise(sorted(taken)))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.integers(1000, 100_000))
def test_tokens_are_never_promised_faster_than_they_come(sizes: list[int], allowance: int) -> None:
    schedule = TokenSchedule(allowance)
    moments = [schedule.reserve(size, 0.0) for size in sizes]
    for number, moment in enumerate(moments):
        before = sum(min(size, allowance) for size in sizes[:number])
        assert before <= allowance / 60 * (moment + 0.5) + 1e-6


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0,), "max_concurrency"),
        ((8, 0), "requests_per_minute"),
        ((8, -1), "requests_per_minute"),
        ((8, float("nan")), "requests_per_minute"),
        ((8, None, 0), "tokens_per_minute"),
        ((8, None, float("inf")), "tokens_per_minute"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Pacer(*arguments)
