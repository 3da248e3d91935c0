"""An event loop whose clock moves on instead of waiting, and servers that count requests by it."""

from __future__ import annotations

import asyncio
import selectors
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Accepts = Callable[[float], bool]
"""Whether a server takes a request that arrives at a moment."""


class VirtualSelector(selectors.DefaultSelector):
    """Waits by moving its clock on, later than asked for as an event loop is."""

    def __init__(self, lateness: Callable[[], float]) -> None:
        super().__init__()
        self.now = 1000.0
        self.lateness = lateness

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        if not events and timeout:
            self.now += timeout + self.lateness()
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, lateness: Callable[[], float] = float) -> None:
        self.virtual = VirtualSelector(lateness)
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:  # type: ignore[override]
        """What threads do takes none of its time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_virtually(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], lateness: Callable[[], float] = float
) -> T:
    loop = VirtualLoop(lateness)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def sliding_window(requests: int, seconds: float) -> Accepts:
    accepted: list[float] = []

    def accepts(moment: float) -> bool:
        del accepted[: bisect_right(accepted, moment - seconds)]
        if len(accepted) >= requests:
            return False
        insort(accepted, moment)
        return True

    return accepts


def fixed_windows(requests: int, seconds: float) -> Accepts:
    accepted: Counter[int] = Counter()

    def accepts(moment: float) -> bool:
        window = int((moment + 0.37 * seconds) // seconds)
        accepted[window] += 1
        return accepted[window] <= requests

    return accepts


def bucket(capacity: float, a_second: float) -> Accepts:
    held, filled = capacity, 0.0

    def accepts(moment: float) -> bool:
        nonlocal held, filled
        held, filled = min(capacity, held + a_second * (moment - filled)), moment
        if held < 1:
            return False
        held -= 1
        return True

    return accepts
