"""The order in which ranx ranks documents of equal score, so that figures published with it come out again.

Many published figures, JQaRA's among them, were computed by ranx, which sorts a run with numba's `argsort`:
a quicksort that is not stable. Systems that round their scores have thousands of ties. With the ties of
JQaRA's run of ruri-small left in the file's order, nDCG@10 is 0.5357; in trec_eval's order (by id) 0.5360;
in ranx's 0.5359, which is published. The order depends on nothing but the scores and where they stand in the
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHORT = 15  # numba sorts by insertion where the last place is less than this after the first


def rank(scores: Mapping[str, float]) -> list[str]:
    """Ids by falling score, equal scores as ranx (0.3, with numba) sorts them.

    Args:
        scores: Id to score, in the order of the run file.
    """
    ids = list(scores)
    keys = [-score for score in scores.values()]
    return [ids[place] for place in _argsort(keys)]


def _argsort(keys: Sequence[float]) -> list[int]:
    """The places of the keys in rising order, by numba's quicksort: it goes on with the shorter part."""
    order = list(range(len(keys)))
    waiting = [(0, len(keys) - 1)]
    while waiting:
        low, high = waiting.pop()
        while high - low >= _SHORT:
            pivot = _partition(keys, order, low, high)
            if high - pivot > pivot - low:
                waiting.append((pivot + 1, high))
                high = pivot - 1
            else:
                waiting.append((low, pivot - 1))
                low = pivot + 1
        # stable, as insertion is
        order[low : high + 1] = sorted(order[low : high + 1], key=keys.__getitem__)
    return order


def _partition(keys: Sequence[float], order: list[int], low: int, high: int) -> int:
    """Put what is smaller than a pivot, the median of three, before it; return the pivot's place."""
    middle = (low + high) // 2
    for left, right in ((low, middle), (middle, high), (low, middle)):
        if keys[order[right]] < keys[order[left]]:
            _swap(order, left, right)
    pivot = keys[order[middle]]
    _swap(order, middle, high)
    left = low
    right = high - 1
    while True:
        while left < high and keys[order[left]] < pivot:
            left += 1
        while right >= low and pivot < keys[order[right]]:
            right -= 1
        if left >= right:
            break
        _swap(order, left, right)
        left += 1
        right -= 1
    _swap(order, left, high)
    return left


def _swap(order: list[int], first: int, second: int) -> None:
    order[first], order[second] = order[second], order[first]
