"""Significance tests for the difference of two systems, and confidence intervals of means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_ROWS = 1_000  # resamples in memory at a time; fewer if they would have more than _VALUES values
_VALUES = 1 << 24

Values = Mapping[str, float]
"""Question id to value."""


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
    """The difference between two systems' means over the same questions.

    Args:
        mean: The first system's mean minus the second's.
        p_value: The probability of a difference at least as large, in either direction, if both were equally
            good.
        questions: The number of questions that both have a value for.
    """

    mean: float
    p_value: float
    questions: int


@dataclass(frozen=True)
class Comparison:
    """The difference between two systems in a metric.

    Args:
        metric: The metric.
        first: The name of a system: a strategy or a run.
        second: The name of another.
        difference: The first one's mean minus the second's.
        p_value: The p-value of the paired randomisation test.
        questions: The number of questions that both have a value for.
    """

    metric: str
    first: str
    second: str
    difference: float
    p_value: float
    questions: int


def randomisation_test(first: Values, second: Values, permutations: int = 10_000) -> Difference:
    """Compare two systems by Fisher's paired randomisation test, two-sided (Smucker et al., 2007).

    If both systems were equally good, it would be chance which of them got which of a question's two values.
    The values are therefore swapped at random m times, and p is (b + 1) / (m + 1), where b of the m
    permutations give a difference at least as large as the one observed.

    Args:
        first: A system's values.
        second: Another system's values. Questions that only one of them has are left out.
        permutations: The number of permutations.

    Raises:
        ValueError: The systems have no question in common.
    """
    differences = np.array(
        [first[question] - second[question] for question in first if question in second]
    )
    if not differences.size:
        raise ValueError("the two systems have no question in common")
    moving = differences[differences != 0]  # swapping two equal values changes nothing
    observed = abs(moving.sum()) - 1e-9  # rounding depends on the order of summation
    as_large = 0
    for swaps in _draws(permutations, moving.size, 2, np.uint8):
        swapped = moving.sum() - 2 * (swaps.astype(np.float64) @ moving)
        as_large += int(np.count_nonzero(np.abs(swapped) >= observed))
    return Difference(
        float(differences.mean()), (as_large + 1) / (permutations + 1), differences.size
    )


def compare_systems(
    scores: Mapping[str, Mapping[str, Values]], metric: str, first: str, second: str
) -> Comparison:
    """Compare two systems in a metric; see `randomisation_test`."""
    tested = randomisation_test(scores[first][metric], scores[second][metric])
    return Comparison(metric, first, second, *tested)


def bootstrap_interval(values: Sequence[float], resamples: int = 10_000) -> Interval:
    """Bound a mean, with 95 % confidence, by the percentile bootstrap over questions.

    Args:
        values: A system's values, one per question.
        resamples: The number of resamples.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("there are no values to bound the mean of")
    sample = np.asarray(values, dtype=np.float64)
    means = [
        sample[draws].mean(axis=1)
        for draws in _draws(resamples, sample.size, sample.size, np.int64)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Interval(float(sample.mean()), float(low), float(high))


def bootstrap_intervals(
    scores: Mapping[str, Values], resamples: int = 10_000
) -> dict[str, Interval]:
    """Bound the mean of each metric; see `bootstrap_interval`."""
    return {
        metric: bootstrap_interval(list(values.values()), resamples)
        for metric, values in scores.items()
    }


def _draws(number: int, size: int, bound: int, dtype: type) -> Iterator[npt.NDArray[Any]]:
    """Yield `number` rows of `size` random integers below `bound`, in batches; always the same integers."""
    generator = np.random.default_rng(0)
    rows = min(_ROWS, _VALUES // max(1, size)) or 1
    for start in range(0, number, rows):
        yield generator.integers(0, bound, size=(min(rows, number - start), size), dtype=dtype)
