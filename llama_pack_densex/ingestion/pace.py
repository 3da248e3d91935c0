"""How fast passages are coming."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW = 60.0
"""Seconds that a rate looks back; further where fewer than `FEWEST` passages came in them."""

FEWEST = 10
"""Passages that a rate looks back for at least, so that a slow model's does not jump."""

LONGEST = 600.0
"""Seconds that a rate looks back at most."""

SOONEST = 5.0
"""Seconds before which there is no rate: the first replies come in a bunch."""

_STEP = 1.0


@dataclass(frozen=True)
class Mark:
    """How many passages were ready at a moment.

    Args:
        time: The moment, in seconds of a monotonic clock.
        passages: Passages that were ready.
        kept: Replies among theirs that had been kept from before.
    """

    time: float
    passages: int
    kept: int = 0


class Pace:
    """Measures passages a minute over the last minute or so.

    An ingestion that is taken up again begins with replies that were kept and come at once; where they end, the rate
    starts anew, lest the time that is left be told from them.

    Args:
        started: When the ingestion began, in seconds of a monotonic clock.
    """

    def __init__(self, started: float) -> None:
        self._marks = deque([Mark(started, 0)])
        self._replaying = True

    def note(self, now: float, passages: int, kept: int) -> None:
        """Take note of how many passages are ready; at most one note a second is kept."""
        last = self._marks[-1]
        if now - last.time < _STEP:
            return
        if self._replaying and kept - last.kept <= (passages - last.passages) / 2:
            self._replaying = False
            if kept:
                self._marks.clear()
        self._marks.append(Mark(now, passages, kept))
        while len(self._marks) > 2 and self._marks[1].time <= now - LONGEST:
            self._marks.popleft()

    def rate(self, now: float, passages: int) -> float | None:
        """Passages a minute; None as long as nothing can be told."""
        since = self._beginning(now, passages)
        if now - since.time < SOONEST or passages <= since.passages:
            return None
        return (passages - since.passages) / (now - since.time) * 60

    def _beginning(self, now: float, passages: int) -> Mark:
        for mark in reversed(self._marks):
            if mark.time <= now - WINDOW and mark.passages <= passages - FEWEST:
                return mark
        return self._marks[0]
