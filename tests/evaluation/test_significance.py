from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.significance import bootstrap_interval, randomisation_test

pytestmark = pytest.mark.pure

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def _system(values: list[float]) -> dict[str, float]:
    return {str(number): value for number, value in enumerate(values)}


def test_a_system_does_not_differ_from_itself() -> None:
    same = randomisation_test(_system([0.2, 0.9, 1.0]), _system([0.2, 0.9, 1.0]), 100)
    assert (same.mean, same.p_value, same.questions) == (0.0, 1.0, 3)


def test_a_large_and_steady_difference_has_the_smallest_p_there_is() -> None:
    found = randomisation_test(_system([1.0] * 40), _system([0.0] * 40), 999)
    assert found.mean == 1.0
    assert found.p_value == 1 / 1000


def test_p_comes_near_that_of_all_swaps() -> None:
    differences = [0.5, 0.3, -0.1, 0.4, 0.2, -0.2, 0.6, 0.1]
    sums = [
        abs(sum(np.multiply(signs, differences)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    exact = float(np.mean([value >= abs(sum(differences)) - 1e-9 for value in sums]))
    found = randomisation_test(_system(differences), _system([0.0] * len(differences)), 20_000)
    assert found.p_value == pytest.approx(exact, abs=0.01)


@given(VALUES, VALUES)
def test_p_is_two_sided_and_between_its_bounds(first: list[float], second: list[float]) -> None:
    one = randomisation_test(_system(first), _system(second), 50)
    other = randomisation_test(_system(second), _system(first), 50)
    assert 1 / 51 <= one.p_value <= 1
    assert (one.p_value, one.mean) == (other.p_value, -other.mean)


def test_only_questions_that_both_have_are_compared() -> None:
    assert randomisation_test({"1": 1.0, "2": 0.0}, {"1": 1.0}, 10).questions == 1
    with pytest.raises(ValueError, match="no question in common"):
        randomisation_test({"1": 1.0}, {"2": 1.0})


def test_the_same_values_give_the_same_result_again() -> None:
    first, second = _system([0.1, 0.7, 0.4, 0.9]), _system([0.2, 0.3, 0.3, 0.8])
    assert randomisation_test(first, second, 500) == randomisation_test(first, second, 500)
    assert bootstrap_interval([0.1, 0.5, 0.9]) == bootstrap_interval([0.1, 0.5, 0.9])


@given(VALUES)
def test_an_interval_lies_within_the_values(values: list[float]) -> None:
    found = bootstrap_interval(values, resamples=200)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found.mean == pytest.approx(np.mean(values))


def test_an_interval_is_as_wide_as_the_normal_distribution_says() -> None:
    values = [0.0, 1.0] * 200
    found = bootstrap_interval(values)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.5 / 400**0.5, abs=0.006)


def test_no_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])
