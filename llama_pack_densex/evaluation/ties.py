"""The order in which ranx ranks items of equal score, so that figures published with it come out again.

Many published figures, JQaRA's among them, were computed by ranx, which sorts a run with numba's `argsort`. That sort
is not stable, and systems that round their scores have thousands of ties: with the ties of JQaRA's run of ruri-small
left in the file's order nDCG@10 is 0.5357, in trec_eval's order (by id) 0.5360, in ranx's 0.5359. The order depends on
nothing but the scores and where they stand in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SMALL = 15  # a stretch of at most so many items is sorted by insertion


def rank(scored: Mapping[str, float]) -> list[str]:
    """Sort ids by falling score, equal scores as ranx (0.3, with numba) sorts them.

    Args:
        scored: Id to score, in the order of the run file.
    """
    ids = list(scored)
    keys = [-score for score in scored.values()]
    if len(set(keys)) == len(keys):
        return sorted(ids, key=lambda item: -scored[item])
    return [ids[place] for place in _argsort(keys)]


def _argsort(keys: Sequence[float]) -> list[int]:
    """The places of the keys in rising order, by quicksort: the larger part is put off, short ones are inserted."""
    order = list(range(len(keys)))
    waiting = [(0, len(keys) - 1)]
    while waiting:
        low, high = waiting.pop()
        while high - low >= _SMALL:
            pivot = _partition(keys, order, low, high)
            if high - pivot > pivot - low:
                waiting.append((pivot + 1, high))
                high = pivot - 1
            else:
                waiting.append((low, pivot - 1))
                low = pivot + 1
        _insert(keys, order, low, high)
    return order


def _partition(keys: Sequence[float], order: list[int], low: int, high: int) -> int:
    """Put what is smaller than a pivot (the median of first, middle and last) before it; where it ends up."""
    middle = (low + high) // 2
    for left, right in ((low, middle), (middle, high), (low, middle)):
        if keys[order[right]] < keys[order[left]]:
            order[left], order[right] = order[right], order[left]
    pivot = keys[order[middle]]
    order[high], order[middle] = order[middle], order[high]
    left, right = low, high - 1
    while True:
        while left < high and keys[order[left]] < pivot:
            left += 1
        while right >= low and pivot < keys[order[right]]:
            right -= 1
        if left >= right:
            break
        order[left], order[right] = order[right], order[left]
        left, right = left + 1, right - 1
    order[left], order[high] = order[high], order[left]
    return left


def _insert(keys: Sequence[float], order: list[int], low: int, high: int) -> None:
    for place in range(low + 1, high + 1):
        item = order[place]
        while place > low and keys[item] < keys[order[place - 1]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = item
