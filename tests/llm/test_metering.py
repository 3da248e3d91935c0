"""Counting what is used, and stopping at a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.llm.budget import Budget, BudgetError, Meter
from llama_pack_densex.llm.errors import LLMError
from llama_pack_densex.llm.usage import NOTHING, Price, Usage

pytestmark = pytest.mark.pure

PRICE = Price(input=100.0, output=1000.0)  # a ten-thousandth and a thousandth of a dollar a token
EXPECTED = Usage(1, 600, 300)


def meter(**budget: Any) -> Meter:
    return Meter(Budget(**budget), PRICE)


def in_flight(made: Meter, expected: Usage = EXPECTED) -> int:
    """Reserve as often as that is possible."""
    return next(number for number in range(10_000) if not made.reserve(expected))


def answered(made: Meter, used: Usage | None) -> None:
    """Reserve for a request, and have it answered."""
    assert made.reserve(EXPECTED)
    made.settle(EXPECTED, used)


def test_without_a_budget_nothing_stops() -> None:
    free = Meter(Budget(), None)
    assert free.reserve(EXPECTED)
    assert all(free.reserve(EXPECTED) for _ in range(1000))


@pytest.mark.parametrize(
    ("budget", "fits"),
    [({"max_tokens_total": 900}, 1), ({"max_cost": 0.36}, 1), ({"max_cost": 0.35}, 0)],
)
def test_a_request_goes_if_what_it_is_expected_to_use_is_there(
    budget: dict[str, Any], fits: int
) -> None:
    made = meter(**budget)
    for _ in range(fits):
        assert made.reserve(EXPECTED)
    if not fits:
        with pytest.raises(BudgetError):
            made.reserve(EXPECTED)


def test_the_tighter_of_two_limits_stops() -> None:
    with pytest.raises(BudgetError):
        meter(max_cost=100.0, max_tokens_total=899).reserve(EXPECTED)
    with pytest.raises(BudgetError):
        meter(max_cost=0.1, max_tokens_total=10_000).reserve(EXPECTED)


def test_what_is_under_way_may_turn_out_cheaper_and_is_waited_for() -> None:
    made = meter(max_tokens_total=2000)
    assert made.reserve(EXPECTED)
    assert not made.reserve(EXPECTED)
    made.settle(EXPECTED, Usage(1, 600, 100))
    assert made.reserve(EXPECTED)


def test_near_its_end_fewer_go_at_a_time() -> None:
    made = meter(max_tokens_total=90_900)
    answered(made, EXPECTED)
    assert in_flight(made) == 85  # of 100 that would fit, were all as expected
    assert in_flight(meter(max_tokens_total=2_000)) == 1


def test_what_no_outcome_can_make_possible_is_not_waited_for() -> None:
    made = meter(max_tokens_total=1700)
    answered(made, EXPECTED)
    with pytest.raises(BudgetError):
        made.reserve(EXPECTED)


def test_what_was_not_answered_is_given_back() -> None:
    made = meter(max_tokens_total=900)
    for _ in range(5):
        answered(made, None)
    assert made.usage == NOTHING


def test_what_was_used_before_counts() -> None:
    with pytest.raises(BudgetError):
        Meter(Budget(max_tokens_total=1000), None, usage=Usage(1, 100, 1)).reserve(EXPECTED)


def test_what_is_set_aside_grows_with_what_others_used() -> None:
    used = Usage(1, 660, 3000)
    for left, fits in ((3660, True), (3659, False)):
        made = meter(max_tokens_total=used.total_tokens + left)
        answered(made, used)
        if fits:
            assert made.reserve(EXPECTED)
        else:
            with pytest.raises(BudgetError):
                made.reserve(EXPECTED)


def test_it_does_not_shrink_below_what_is_expected() -> None:
    made = meter(max_tokens_total=63 + 899)
    answered(made, Usage(1, 60, 3))
    with pytest.raises(BudgetError):
        made.reserve(EXPECTED)


def test_without_an_expectation_the_budget_is_kept_by_what_was_used() -> None:
    made = meter(max_tokens_total=1000)
    for _ in range(2):
        assert made.reserve(Usage(1))
        made.settle(Usage(1), EXPECTED)
    with pytest.raises(BudgetError):
        made.reserve(Usage(1))


@given(
    st.integers(1, 50_000),
    st.lists(
        st.tuples(st.integers(0, 2000), st.integers(1, 2000), st.floats(0, 1.5)),
        min_size=1,
        max_size=80,
    ),
)
def test_what_is_used_never_exceeds_the_budget_by_more_than_one_error(
    budget: int, requests: list[tuple[int, int, float]]
) -> None:
    """Whatever is under way at a time, where replies are up to one and a half times as long as expected."""
    made = meter(max_tokens_total=budget)
    under_way: list[tuple[Usage, Usage]] = []
    largest_error = 0
    for sent, received, factor in requests:
        expected, used = Usage(1, sent, received), Usage(1, sent, int(received * factor))
        try:
            while not made.reserve(expected):
                made.settle(*under_way.pop(0))
        except BudgetError:
            break
        under_way.append((expected, used))
        largest_error = max(largest_error, used.total_tokens - expected.total_tokens)
    for one in under_way:
        made.settle(*one)
    assert made.usage.total_tokens <= budget + max(largest_error, 0)


def test_threads_count_everything() -> None:
    made = meter(max_tokens_total=10**9)

    def work() -> None:
        for _ in range(300):
            answered(made, Usage(1, 2, 3, 1))
            made.count("cache_hits")
            made.count("refused")
            made.count("failed")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = made.figures("m")
    assert figures.usage == Usage(2400, 4800, 7200, 2400)
    assert (figures.cache_hits, figures.refused, figures.failed, figures.model) == (
        2400,
        2400,
        2400,
        "m",
    )
    assert figures.cost == pytest.approx(PRICE.of(figures.usage))


def test_what_was_used_since_is_the_difference() -> None:
    made = meter()
    made.settle(None, EXPECTED)
    before = made.figures("m")
    made.settle(None, Usage(1, 10, 1))
    made.count("cache_hits")
    since = made.figures("m").since(before)
    assert (since.usage, since.cache_hits) == (Usage(1, 10, 1), 1)
    assert since.cost == pytest.approx(PRICE.of(Usage(1, 10, 1)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: meter(max_tokens_total=1_000), "max_tokens_total is 1,000."),
        (lambda: meter(max_cost=0.5), "max_cost is $0.5."),
        (
            lambda: meter(max_cost=0.5, max_tokens_total=1_000),
            "max_cost is $0.5 and max_tokens_total is 1,000.",
        ),
    ],
)
def test_the_error_names_what_was_used_and_the_limits(make: Callable[[], Meter], said: str) -> None:
    made = make()
    made.settle(None, Usage(3, 5000, 400))
    with pytest.raises(BudgetError) as caught:
        made.reserve(EXPECTED)
    assert "5,400 tokens ($0.9000) used in 3 requests" in str(caught.value)
    assert said in str(caught.value)
    assert isinstance(caught.value, LLMError)


def test_where_the_price_is_not_known_the_error_says_nothing_of_money() -> None:
    made = Meter(Budget(max_tokens_total=1), None)
    with pytest.raises(BudgetError, match="0 tokens used in 0 requests, and max_tokens_total is 1"):
        made.reserve(EXPECTED)
