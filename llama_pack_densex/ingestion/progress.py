"""How far an ingestion is: counted as passages become ready, and shown by a display."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from llama_pack_densex.ingestion.pace import SOONEST, Pace
from llama_pack_densex.ingestion.rendering import last_figures, one_line
from llama_pack_densex.llm_requests.reply import Usage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgressState:
    """How far an ingestion is at a moment.

    Args:
        documents: Documents that are done.
        documents_total: Documents in all; None where that is not known, as of an iterator.
        passages: Passages whose propositions are ready.
        passages_total: Passages in all; None where that is not known.
        propositions: Propositions so far.
        fallbacks: Passages that are represented by their sentences.
        usage: What the requests used so far.
        cost: What they cost so far, in US dollars; None where the price is not known.
        kept: Replies that had been kept from before.
        started: When the ingestion began, in seconds of a monotonic clock.
        now: The moment, in seconds of the same clock.
        rate: Passages a minute of late; None as long as that cannot be told.
    """

    documents: int = 0
    documents_total: int | None = None
    passages: int = 0
    passages_total: int | None = None
    propositions: int = 0
    fallbacks: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    kept: int = 0
    started: float = 0.0
    now: float = 0.0
    rate: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the ingestion began."""
        return self.now - self.started

    @property
    def fraction(self) -> float | None:
        """The part of the work that is done, from 0 to 1; None where the whole is not known."""
        for done, total in ((self.passages, self.passages_total), (self.documents, self.documents_total)):
            if total is not None and total >= done:
                return done / total if total else 1.0
        return None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end, as things go; None where that cannot be told."""
        if self.passages_total is not None and self.passages_total >= self.passages:
            left = self.passages_total - self.passages
            return 0.0 if not left else left / self.rate * 60 if self.rate else None
        if self.documents_total is not None and self.documents_total >= self.documents >= 2 and self.seconds >= SOONEST:
            return (self.documents_total - self.documents) / self.documents * self.seconds
        return None


class Display(Protocol):
    """Shows an ingestion's progress."""

    def open(self, state: Callable[[], ProgressState]) -> None:
        """Begin; from now on the display asks for the state as often as it needs it, from a thread of its own."""

    def close(self, state: ProgressState) -> None:
        """End, with the last state."""


class IngestionProgress:
    """Counts what an ingestion has done, and has it shown as long as the `with` block lasts.

    Counting takes a lock and a few additions; whatever is drawn is drawn by the display's own thread, so that neither a
    slow terminal nor a server that does not answer holds anything up.

    Args:
        display: Where the progress is shown; `displays.display_for` chooses one.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock = display, clock
        self._lock = threading.Lock()
        self._started = clock()
        self._pace = Pace(self._started)
        self._documents = self._passages = self._propositions = self._fallbacks = self._kept = 0
        self._documents_total: int | None = None
        self._passages_total: int | None = None
        self._usage = Usage()
        self._cost: float | None = None
        self._shown = False
        self._last: ProgressState | None = None

    def __enter__(self) -> IngestionProgress:
        self._display.open(self.state)
        self._shown = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def expect(self, documents: int | None = None, passages: int | None = None) -> None:
        """Say how much there is to do, as far as that is known; None leaves what was said before."""
        with self._lock:
            self._documents_total = self._documents_total if documents is None else documents
            self._passages_total = self._passages_total if passages is None else passages

    def passage(self, propositions: int, status: str) -> None:
        """Count a passage that is ready.

        Args:
            propositions: How many propositions it has.
            status: Its status: "ok", "repaired" or "fallback".
        """
        now = self._clock()
        with self._lock:
            self._passages += 1
            self._propositions += propositions
            self._fallbacks += status == "fallback"
            self._pace.note(now, self._passages, self._kept)

    def document(self) -> None:
        """Count a document that is done."""
        with self._lock:
            self._documents += 1

    def used(self, usage: Usage, cost: float | None, kept: int = 0) -> None:
        """Say what the requests came to so far; the figures replace those given before.

        Args:
            usage: What they used.
            cost: What they cost in US dollars; None where the price is not known.
            kept: Replies that had been kept from before and were not asked for.
        """
        with self._lock:
            self._usage, self._cost, self._kept = usage, cost, kept

    def state(self) -> ProgressState:
        """How far the ingestion is now."""
        now = self._clock()
        with self._lock:
            return ProgressState(
                documents=self._documents,
                documents_total=self._documents_total,
                passages=self._passages,
                passages_total=self._passages_total,
                propositions=self._propositions,
                fallbacks=self._fallbacks,
                usage=self._usage,
                cost=self._cost,
                kept=self._kept,
                started=self._started,
                now=now,
                rate=self._pace.rate(now, self._passages),
            )

    def finish(self) -> str:
        """Stop showing the progress.

        Returns:
            The last line: what was done, at what rate and in what time.
        """
        self._last = self._last or self.state()
        if self._shown:
            self._shown = False
            try:
                self._display.close(self._last)
            except (OSError, ValueError) as error:  # the output is closed: that is no failure of the ingestion
                logger.warning("The last line of the progress could not be shown (%s).", error)
        return one_line(last_figures(self._last))
