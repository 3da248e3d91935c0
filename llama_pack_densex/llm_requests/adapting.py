"""How many requests may be in flight, learnt from what a server refuses."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

Outcome = Literal["ok", "refused", "failed"]
"""How one attempt ended: answered, refused by the server's rate or concurrency limit, or failed otherwise."""

_MIN_WINDOW = 20
_TOO_MANY = 0.05
_FEW = 0.025  # growth stops before refusals are so many that the limit has to fall
_OVERLOAD = 0.5
_FELL = 0.7
_SURE = 2.5  # standard deviations
_LIKELY = 1.5
_EXPECTED = 20  # refusals that would have come, had fewer requests not helped: enough to tell whether they did
_ENOUGH = 12  # refusals, for a share that can be compared
_MAX_PATIENCE = 32  # windows
_MEMORY = 10  # windows


@dataclass(frozen=True)
class Window:
    """What became of attempts that finished one after the other.

    Args:
        finished: Attempts.
        refused: Those that the server refused.
        failed: Those that failed otherwise.
        peak: The most that were in flight.
    """

    finished: int = 0
    refused: int = 0
    failed: int = 0
    peak: int = 0

    def __add__(self, other: Window) -> Window:
        return Window(
            self.finished + other.finished,
            self.refused + other.refused,
            self.failed + other.failed,
            max(self.peak, other.peak),
        )

    @property
    def share(self) -> float:
        """The share of refused attempts."""
        return self.refused / self.finished if self.finished else 0.0


class AdaptiveConcurrency:
    """Settles at as many requests in flight as a server takes, from the outcomes of the attempts alone.

    It starts at the maximum. Too many refusals in a window of attempts lower the limit by their share, at most to the
    half: refusals come back sooner than replies, so that their share says more than the load's excess. If the share
    then stays as it was, refusals do not depend on the load, the limit is taken back, and that share is tolerated.
    Windows with few refusals raise the limit: halfway towards the lowest limit that is known to be refused, and up to
    that one ever more rarely.

    Args:
        maximum: The most that may be in flight.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._limit = maximum
        self._ceiling: _Level | None = None  # the lowest limit at which too many refusals came
        self._tolerated = Window()  # refusals that do not depend on the load
        self._raised_from: int | None = None  # where the latest rise began, until a quiet window confirms it
        self._trial: _Level | None = None  # the limit from which it fell, while it is open whether that helps
        self._patience = 1
        self._quiet_windows = 0
        self._since_tolerated = Window()
        self._seen = Window()  # the windows at this limit so far
        self._finished = self._refused = self._failed = self._peak = 0
        self._size = max(maximum, _MIN_WINDOW)
        self._to_skip = maximum  # of what is sent at once, refusals come back first

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return self._limit

    def record(self, outcome: Outcome, in_flight: int) -> None:
        """Take note of an attempt that finished.

        Args:
            outcome: How it ended.
            in_flight: Attempts in flight just before it ended, itself included.
        """
        if self._to_skip > 0:  # sent before the limit fell: its refusal has been acted upon
            self._to_skip -= 1
            return
        self._finished += 1
        self._refused += outcome == "refused"
        self._failed += outcome == "failed"
        self._peak = max(self._peak, in_flight)
        if self._finished >= self._size or (outcome != "ok" and self._is_decided()):
            window = Window(self._finished, self._refused, self._failed, self._peak)
            self._open_window()
            self._judge(window, in_flight - 1)

    def _is_decided(self) -> bool:
        """Tell whether the window's verdict is certain before its end: the sooner, the fewer requests are wasted."""
        if self._failed > _OVERLOAD * self._size:
            return True
        is_overload = self._refused > _OVERLOAD * self._size or self._raised_from is not None
        return is_overload and _is_too_many(Window(self._size, self._refused), self._tolerated)

    def _judge(self, window: Window, in_flight: int) -> None:
        is_confirmed = self._seen.finished > 0
        is_stale = self._trial is None and self._seen.finished > _MEMORY * max(self._limit, _MIN_WINDOW)
        self._seen = window if is_stale else self._seen + window
        too_many = any(_is_too_many(seen, self._tolerated) for seen in (window, self._seen))
        used = min(self._limit, window.peak)
        if window.failed > _OVERLOAD * window.finished:
            self._lower(used // 2, in_flight)
        elif too_many and self._raised_from is not None:
            self._ceiling = _Level(self._limit, window)
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
            self._lower(self._raised_from, in_flight)
        elif too_many and window.share > _OVERLOAD:
            self._ceiling = _Level(max(used, 2), window)
            self._lower(used * 3 // 4 if is_confirmed else used // 2, in_flight)
        elif self._trial is not None:
            self._judge_trial(self._trial, in_flight)
        elif too_many:
            if self._seen.refused >= _ENOUGH:
                self._try_less(in_flight)
        else:
            self._go_on(window, in_flight)

    def _try_less(self, in_flight: int) -> None:
        before = _Level(self._limit, self._seen)
        used = min(self._limit, self._seen.peak)
        if used == 1:  # one at a time is no load
            self._tolerate(self._seen)
            self._trial = None
        else:
            self._lower(int(used * (1 - self._seen.share)), in_flight)
            self._trial = before

    def _judge_trial(self, trial: _Level, in_flight: int) -> None:
        after = self._seen
        if after.finished * trial.seen.share < _EXPECTED:
            return
        if _is_too_many(after, trial.seen):
            self._try_less(in_flight)
        elif after.share < _FELL * trial.seen.share and _is_surely_more(trial.seen, after, _SURE):
            self._trial = None
            self._ceiling = trial
        else:
            self._tolerate(trial.seen + after)
            limit = trial.limit
            if self._ceiling is not None and not _is_too_many(self._ceiling.seen, self._tolerated):
                limit = max(limit, self._ceiling.limit)  # nor did the fall before this one help
                self._ceiling = None
            self._move(limit, in_flight)

    def _tolerate(self, window: Window) -> None:
        self._tolerated = window
        self._since_tolerated = Window()

    def _go_on(self, window: Window, in_flight: int) -> None:
        self._raised_from = None
        if self._ceiling is not None and self._limit >= self._ceiling.limit:  # the server takes more than it did
            self._ceiling = None
            self._patience = 1
        self._since_tolerated += window
        if self._since_tolerated.finished * self._tolerated.share >= _EXPECTED:
            if self._since_tolerated.share < self._tolerated.share / 2:
                self._tolerated = Window()
            self._since_tolerated = Window()
        is_used = window.peak >= self._limit
        few = self._seen.share <= _FEW or not _is_surely_more(self._seen, self._tolerated, _LIKELY)
        if is_used and few and self._limit < self._maximum:
            self._raise(in_flight)

    def _raise(self, in_flight: int) -> None:
        if self._ceiling is None:
            limit = min(self._limit + max(1, self._limit // 4), self._maximum)
        else:
            limit = self._limit + max(1, min(self._limit, (self._ceiling.limit - self._limit) // 2))
            if limit >= self._ceiling.limit:
                self._quiet_windows += 1
                if self._quiet_windows < self._patience:
                    return
        before = self._limit
        self._move(limit, in_flight)
        self._raised_from = before

    def _lower(self, limit: int, in_flight: int) -> None:
        self._move(max(1, limit))
        self._to_skip = in_flight

    def _move(self, limit: int, longer_by: int = 0) -> None:
        """Change the limit; the first window is longer by the attempts that were sent before."""
        self._limit = limit
        self._seen = Window()
        self._raised_from = self._trial = None
        self._quiet_windows = 0
        self._open_window(longer_by)

    def _open_window(self, longer_by: int = 0) -> None:
        self._finished = self._refused = self._failed = self._peak = 0
        self._size = max(self._limit, _MIN_WINDOW) + longer_by


@dataclass(frozen=True)
class _Level:
    """A limit and what was seen at it."""

    limit: int
    seen: Window


def _is_too_many(seen: Window, tolerated: Window) -> bool:
    """Tell whether refusals are more than those that are tolerated explain."""
    return seen.share > max(_TOO_MANY, 1.5 * tolerated.share) and _is_surely_more(seen, tolerated, _SURE)


def _is_surely_more(seen: Window, than: Window, deviations: float) -> bool:
    """Tell whether a share of refusals is above another by more than chance, by a test of two proportions."""
    if not than.finished:
        return seen.refused > 0
    pooled = (seen + than).share
    spread = sqrt(pooled * (1 - pooled) * (1 / seen.finished + 1 / than.finished))
    return seen.share - than.share > deviations * spread
