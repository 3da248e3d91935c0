"""A bounded cache of what was read last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Keeps what was read last by id, up to a number of things; any number of threads may use it.

    Args:
        size: How many.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, ids: Iterable[str]) -> dict[str, T]:
        """Those of some ids that are kept."""
        with self._lock:
            found = {node_id: self._kept[node_id] for node_id in ids if node_id in self._kept}
            for node_id in found:
                self._kept.move_to_end(node_id)
        return found

    def put(self, things: Mapping[str, T]) -> None:
        """Keep things by id, and let go of those that were not asked for the longest."""
        with self._lock:
            for node_id, thing in things.items():
                self._kept[node_id] = thing
                self._kept.move_to_end(node_id)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
