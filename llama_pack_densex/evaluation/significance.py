"""Whether a difference between two systems is more than chance, and how sure a mean is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_AT_ONCE = 1_000  # resamples in memory together, of so many questions that they stay within _VALUES
_VALUES = 1 << 24


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval.

    Args:
        mean: The mean.
        low: The lower bound.
        high: The upper bound.
    """

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """How the means of two systems differ over the same questions.

    Args:
        mean: The first system's mean minus the second's.
        p_value: How likely a difference at least as large, in either direction, would be if both were equally good.
        questions: The number of questions that both have a value for.
    """

    mean: float
    p_value: float
    questions: int


@dataclass(frozen=True)
class Comparison:
    """How two systems differ in a metric.

    Args:
        metric: The metric.
        first: A system: a strategy's name, or a run's.
        second: Another.
        difference: The first one's mean minus the second's.
        p_value: Of the paired randomisation test.
        questions: How many both have a value for.
    """

    metric: str
    first: str
    second: str
    difference: float
    p_value: float
    questions: int


def randomisation_test(
    first: Mapping[str, float], second: Mapping[str, float], permutations: int = 10_000
) -> Difference:
    """Compare two systems by Fisher's paired randomisation test, two-sided (Smucker et al., 2007).

    If both systems were equally good, it would be chance which of them got which of a question's two values: they
    are swapped at random many times, and p is (b + 1) / (m + 1), where b of m swaps give a difference at least as large
    as the one seen.

    Args:
        first: A system's values by question id.
        second: Another's. Questions that only one of them has are left out.
        permutations: How many swaps.

    Raises:
        ValueError: The systems have no question in common.
    """
    shared = [question for question in first if question in second]
    if not shared:
        raise ValueError("the two systems have no question in common")
    differences = np.array([first[question] - second[question] for question in shared], dtype=np.float64)
    moving = differences[differences != 0]  # swapping two equal values changes nothing
    seen = abs(moving.sum()) - 1e-9  # sums in another order differ in their last digits
    generator = np.random.default_rng(0)
    as_large = 0
    for size in _batches(permutations, moving.size):
        swapped = generator.integers(0, 2, size=(size, moving.size), dtype=np.uint8).astype(np.float64)
        as_large += int(np.count_nonzero(np.abs(moving.sum() - 2 * (swapped @ moving)) >= seen))
    return Difference(float(differences.mean()), (as_large + 1) / (permutations + 1), len(shared))


def bootstrap_interval(values: Sequence[float], resamples: int = 10_000) -> Interval:
    """Bound a mean, with 95 % confidence, by the percentiles of the means of questions drawn anew, with replacement.

    Args:
        values: A system's values, one a question.
        resamples: How many times questions are drawn.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("there are no values to bound the mean of")
    drawn = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(0)
    means: list[npt.NDArray[np.float64]] = [
        drawn[generator.integers(0, drawn.size, size=(size, drawn.size))].mean(axis=1)
        for size in _batches(resamples, drawn.size)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Interval(float(drawn.mean()), float(low), float(high))


def _batches(number: int, questions: int) -> list[int]:
    at_once = max(1, min(_AT_ONCE, _VALUES // max(1, questions)))
    full, rest = divmod(number, at_once)
    return [at_once] * full + [rest] * (rest > 0)
