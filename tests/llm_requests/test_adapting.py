"""AdaptiveConcurrency against simulated servers: discrete events, a virtual clock, seeded chance."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.llm_requests.adapting import AdaptiveConcurrency, Outcome

MAXIMUM = 64
OK: list[Outcome] = ["ok"]
REFUSED: list[Outcome] = ["refused"]
FAILED: list[Outcome] = ["failed"]

Answer = Callable[[float, int, random.Random], Outcome]
"""What a server answers: the moment, the requests that it works on, chance."""


@dataclass(frozen=True)
class Finish:
    """The end of an attempt, and the limit after it."""

    moment: float
    outcome: Outcome
    limit: int


def simulate(
    answer: Answer, attempts: int, *, latency: float = 1.0, refusal: float = 0.05, passages: int = 64, seed: int = 0
) -> list[Finish]:
    """Send requests for `passages` at a time; a refused one is sent again a second later."""
    chance = random.Random(seed)
    adaptive = AdaptiveConcurrency(MAXIMUM)
    events: list[tuple[float, int, Outcome | None]] = []
    order = count()
    now, ready, in_flight, at_work = 0.0, passages, 0, 0
    finishes: list[Finish] = []
    while len(finishes) < attempts:
        while ready and in_flight < adaptive.limit:
            outcome = answer(now, at_work, chance)
            ready -= 1
            in_flight += 1
            at_work += outcome != "refused"
            lasts = (refusal if outcome == "refused" else latency) * chance.uniform(0.9, 1.1)
            heapq.heappush(events, (now + lasts, next(order), outcome))
        now, _, finished = heapq.heappop(events)
        if finished is None:
            ready += 1
            continue
        adaptive.record(finished, in_flight)
        finishes.append(Finish(now, finished, adaptive.limit))
        in_flight -= 1
        at_work -= finished != "refused"
        if finished == "refused":
            heapq.heappush(events, (now + 1.0, next(order), None))
        else:
            ready += 1
    return finishes


def at_most(in_flight: int, *, refused_at_random: float = 0.0) -> Answer:
    """A server that works on so many requests at a time."""

    def answer(now: float, at_work: int, chance: random.Random) -> Outcome:
        return "refused" if at_work >= in_flight or chance.random() < refused_at_random else "ok"

    return answer


def ten_a_second() -> Answer:
    """A server with a bucket of ten requests that fills up by ten a second."""
    bucket, filled = 10.0, 0.0

    def answer(now: float, at_work: int, chance: random.Random) -> Outcome:
        nonlocal bucket, filled
        bucket, filled = min(10.0, bucket + 10 * (now - filled)), now
        if bucket < 1:
            return "refused"
        bucket -= 1
        return "ok"

    return answer


def settled(finishes: list[Finish]) -> list[Finish]:
    """The last three quarters of the time."""
    return [finish for finish in finishes if finish.moment > finishes[-1].moment / 4]


def mean_limit(finishes: list[Finish]) -> float:
    lasting = sum(one.limit * (after.moment - one.moment) for one, after in pairwise(finishes))
    return lasting / (finishes[-1].moment - finishes[0].moment)


def refused(finishes: list[Finish]) -> float:
    return mean(finish.outcome == "refused" for finish in finishes)


def started(maximum: int) -> AdaptiveConcurrency:
    """Past the attempts that were sent at once at the start."""
    adaptive = AdaptiveConcurrency(maximum)
    feed(adaptive, OK * maximum)
    return adaptive


def feed(adaptive: AdaptiveConcurrency, outcomes: Iterable[Outcome]) -> None:
    """Finish attempts while as many are in flight as may be."""
    for outcome in outcomes:
        adaptive.record(outcome, adaptive.limit)


@pytest.mark.parametrize("refusal", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("allowed", [1, 4, 16, 50])
def test_it_settles_at_what_the_server_works_on_at_a_time(allowed: int, refusal: float) -> None:
    finishes = settled(simulate(at_most(allowed), 2000 if allowed > 1 else 1000, refusal=refusal))
    assert mean_limit(finishes) == pytest.approx(allowed, rel=0.25)
    assert refused(finishes) < 0.06


@pytest.mark.parametrize(("latency", "needed"), [(0.2, 2), (1.0, 10)])
def test_it_settles_near_what_a_rate_needs(latency: float, needed: int) -> None:
    finishes = settled(simulate(ten_a_second(), 3000, latency=latency))
    assert mean_limit(finishes) == pytest.approx(needed, rel=0.25)
    assert refused(finishes) < 0.15


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2])
def test_refusals_that_do_not_depend_on_the_load_hardly_lower_it(share: float) -> None:
    runs = [simulate(at_most(10**6, refused_at_random=share), 2000, seed=seed) for seed in range(5)]
    assert min(mean_limit(run) for run in runs) >= 0.9 * MAXIMUM


@pytest.mark.parametrize("allowed", [4, 16, 50])
def test_it_settles_too_where_a_tenth_is_refused_at_random(allowed: int) -> None:
    runs = [settled(simulate(at_most(allowed, refused_at_random=0.1), 2000, seed=seed)) for seed in range(5)]
    assert mean(mean_limit(run) for run in runs) == pytest.approx(allowed, rel=0.25)
    assert mean(refused(run) for run in runs) < 0.1 + 0.06


def test_it_finds_out_that_a_server_takes_more_than_before() -> None:
    def answer(now: float, at_work: int, chance: random.Random) -> Outcome:
        return "refused" if at_work >= (8 if now < 60 else 40) else "ok"

    finishes = simulate(answer, 8000)
    assert mean_limit([finish for finish in finishes if 30 < finish.moment < 60]) == pytest.approx(8, rel=0.25)
    assert mean_limit(finishes[-1000:]) == pytest.approx(40, rel=0.25)


def test_it_finds_out_that_a_server_takes_less_than_before() -> None:
    def answer(now: float, at_work: int, chance: random.Random) -> Outcome:
        return "refused" if at_work >= (40 if now < 60 else 8) else "ok"

    finishes = simulate(answer, 5000)
    assert mean_limit(finishes[-500:]) == pytest.approx(8, rel=0.25)


def test_a_server_that_breaks_down_gets_few_requests_and_later_all_of_them() -> None:
    def answer(now: float, at_work: int, chance: random.Random) -> Outcome:
        return "failed" if 30 < now < 60 else "ok"

    finishes = simulate(answer, 8000)
    assert min(finish.limit for finish in finishes if 30 < finish.moment < 60) <= 2
    assert finishes[-1].limit == MAXIMUM


def test_it_starts_at_the_maximum() -> None:
    assert AdaptiveConcurrency(MAXIMUM).limit == MAXIMUM


def test_refusals_of_one_in_twenty_lower_nothing() -> None:
    adaptive = started(20)
    feed(adaptive, (OK * 19 + REFUSED) * 20)
    assert adaptive.limit == 20


def test_two_refusals_in_a_window_are_too_few_to_judge_by() -> None:
    adaptive = started(20)
    feed(adaptive, OK * 18 + REFUSED * 2)
    assert adaptive.limit == 20


def test_too_many_refusals_lower_it_by_their_share() -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, OK * 48 + REFUSED * 16)
    assert adaptive.limit == 48


def test_it_falls_by_half_at_most() -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, REFUSED * 64)
    assert adaptive.limit == MAXIMUM // 2


def test_attempts_sent_before_it_fell_do_not_lower_it_again() -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, OK * 48 + REFUSED * 16)
    feed(adaptive, REFUSED * 63)
    assert adaptive.limit == 48


def test_a_fall_that_does_not_help_is_taken_back() -> None:
    adaptive = started(20)
    pattern = REFUSED + OK * 4
    feed(adaptive, pattern * 12)
    assert adaptive.limit == 16
    feed(adaptive, pattern * 60)
    assert adaptive.limit == 20


def test_it_is_taken_back_too_where_only_many_attempts_can_tell() -> None:
    adaptive = started(20)
    pattern = REFUSED + OK * 12
    feed(adaptive, pattern * 13)
    assert adaptive.limit == 18
    feed(adaptive, pattern * 40)
    assert adaptive.limit == 20


def test_refusals_are_tolerated_until_they_cease() -> None:
    adaptive = started(20)
    feed(adaptive, (REFUSED + OK * 4) * 100)
    feed(adaptive, (REFUSED + OK * 7) * 20)
    assert adaptive.limit == 20
    feed(adaptive, OK * 1000)
    feed(adaptive, (REFUSED + OK * 7) * 20)
    assert adaptive.limit < 20


def test_refusals_are_counted_against_what_was_in_flight_rather_than_what_might_have_been() -> None:
    adaptive = started(MAXIMUM)
    for outcome in REFUSED * 16 + OK * 48:
        adaptive.record(outcome, 20)
    assert adaptive.limit == 15


def test_failures_of_half_the_attempts_lower_nothing() -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, (OK + FAILED) * 200)
    assert adaptive.limit == MAXIMUM


@pytest.mark.parametrize("answered", [0, 30])
def test_failures_of_more_than_half_the_attempts_halve_it_at_once(answered: int) -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, OK * answered + FAILED * 33)
    assert adaptive.limit == MAXIMUM // 2


def test_it_does_not_grow_while_it_is_not_used() -> None:
    adaptive = started(MAXIMUM)
    feed(adaptive, FAILED * 64)
    lowered = adaptive.limit
    for _ in range(1000):
        adaptive.record("ok", 3)
    assert adaptive.limit == lowered


@given(st.integers(1, 100), st.lists(st.sampled_from(["ok", "refused", "failed"]), max_size=1000), st.data())
def test_it_stays_between_one_and_the_maximum(maximum: int, outcomes: list[Outcome], data: st.DataObject) -> None:
    adaptive = AdaptiveConcurrency(maximum)
    used = data.draw(st.floats(0, 1))
    for outcome in outcomes:
        adaptive.record(outcome, max(1, int(adaptive.limit * used)))
        assert 1 <= adaptive.limit <= maximum
