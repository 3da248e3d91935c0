"""How far an ingestion is: counted as passages become ready, and shown in a terminal, in a notebook, or in a log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.propositionizers.base import PropositionSet

logger = logging.getLogger("llama_pack_densex.ingestion")

_SOONEST = 5.0  # seconds before which no rate is told: the first replies come in a bunch
_DOT = " · "


@dataclass(frozen=True)
class Display:
    """How progress is shown.

    Args:
        write: Shows a line, in place of the one before where it can.
        seconds: How often it is called; None means in the end only.
        separator: What stands between figures; the encoding of a log is not known.
        around: Entered for as long as the line changes; the last line is shown after that.
    """

    write: Callable[[str], None]
    seconds: float | None = None
    separator: str = ", "
    around: AbstractContextManager[Any] = field(default_factory=nullcontext)


class IngestionProgress:
    """Counts what an ingestion has done, and has it shown as long as the `with` block lasts.

    Whatever is drawn is drawn by a thread of its own, so that neither a slow terminal nor a server that does not answer
    holds anything up.

    Args:
        display: Where the progress is shown; `display_for` chooses one.
        documents: Documents in all; None where that is not known, as of an iterator.
        requests: Says what the requests came to so far.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self,
        display: Display,
        documents: int | None = None,
        requests: Callable[[], RequestFigures] = RequestFigures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._display, self._total, self._requests, self._clock = display, documents or 0, requests, clock
        self._documents = self._passages = self._propositions = self._fallbacks = 0
        self._used = RequestFigures()
        self._started = clock()
        self._anew = self._started, 0, 0  # from where on the rate is told: the time, documents and passages
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="densex-progress", daemon=True)

    def __enter__(self) -> IngestionProgress:
        if self._display.seconds is not None:
            self._display.around.__enter__()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display.seconds is not None:
            self._over.set()
            self._thread.join(timeout=5)  # not for ever: an output that is held takes nothing
            self._display.around.__exit__(None, None, None)
        self._used = self._requests()
        self._write(is_last=True)

    def passage(self, made: PropositionSet) -> None:
        """Count a passage whose propositions are ready."""
        self._passages += 1
        self._propositions += len(made.texts)
        self._fallbacks += made.status == "fallback"
        before, self._used = self._used, self._requests()
        if self._used.cache_hits > before.cache_hits and not self._used.usage.requests:
            self._begin_anew()

    def document(self, unchanged: bool = False) -> None:
        """Count a document that is done, or was before."""
        self._documents += 1
        if unchanged and not self._passages:
            self._begin_anew()

    def figures(self, is_last: bool = False) -> list[str]:
        """How far the ingestion is, in figures for people, without those that are unknown or zero.

        Args:
            is_last: Whether it is over: then they tell its average rate and its time.
        """
        now = self._clock()
        begun, documents, passages = (self._started, 0, 0) if is_last else self._anew
        seconds = now - begun
        figures = list(self._done())
        if seconds >= _SOONEST and self._passages > passages:
            figures.append(f"{(self._passages - passages) / seconds * 60:,.1f}/min")
        done, left = self._documents - documents, self._total - self._documents
        if is_last:
            return [*figures, f"in {duration(now - self._started)}"]
        if left > 0 and done >= 2 and seconds >= _SOONEST:
            return [*figures, f"{duration(left / done * seconds)} left"]
        return [*figures, f"{duration(now - self._started)} so far"]

    def _begin_anew(self) -> None:
        """An ingestion that is taken up again begins with what was kept, at once: nothing can be told from that."""
        self._anew = self._clock(), self._documents, self._passages

    def _done(self) -> Iterator[str]:
        """What was made, and what it took."""
        if self._total > self._documents:
            yield f"{self._documents:,}/{count(self._total, 'document')}"
        elif self._documents:
            yield count(self._documents, "document")
        yield count(self._passages, "passage")
        if self._propositions:
            yield count(self._propositions, "proposition")
        if self._fallbacks:
            yield count(self._fallbacks, "fallback")
        if self._used.cache_hits:
            yield f"{self._used.cache_hits:,} from the cache"
        if self._used.usage.total_tokens:
            yield f"{self._used.usage.total_tokens:,} tokens"
        if self._used.cost:
            yield money(self._used.cost)

    def _show(self) -> None:
        while not self._over.wait(self._display.seconds) and self._write():
            pass

    def _write(self, is_last: bool = False) -> bool:
        try:
            self._display.write(self._display.separator.join(self.figures(is_last)))
        except (OSError, ValueError) as error:  # the output is closed: that is no failure of the ingestion
            logger.warning("Progress is no longer shown (%s).", error)
            return False
        return True


def display_for(show: bool) -> Display:
    """Choose how to show progress: in a notebook, on the terminal that stderr is, or else in the log.

    Args:
        show: Whether it is to be shown; if not, only the last line is logged.
    """
    if not show:
        return Display(logger.info)
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if console.is_jupyter:
        return _notebook_output()
    # A colour that was forced on a pipe does not make it a terminal.
    return _live_line(console) if console.is_interactive and console.file.isatty() else Display(logger.info, 30.0)


def _notebook_output() -> Display:
    """One output below the cell, whose text changes; rich would need ipywidgets for that."""
    from IPython.display import DisplayHandle  # there only because this runs in its kernel

    make: Any = DisplayHandle  # which has no types
    handle = make()
    handle.display({"text/plain": ""}, raw=True)
    return Display(lambda line: handle.update({"text/plain": line}, raw=True), 0.5, _DOT)


def _live_line(console: Console) -> Display:
    """A line below whatever else is printed meanwhile; what is written into a file is left alone."""
    live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty())

    def write(line: str) -> None:
        if live.is_started:
            live.update(Text(line), refresh=True)
        else:
            console.print(line)

    separator = _DOT if console.encoding.lower().startswith("utf") else ", "
    return Display(write, 0.1, separator, _with_logging(live))


@contextmanager
def _with_logging(live: Live) -> Iterator[None]:
    """Have log lines printed above a live line: a handler keeps its stream, and would write into the line."""
    moved: list[tuple[logging.StreamHandler[Any], Any]] = []
    with live:
        proxies = {id(one.rich_proxied_file): one for one in (sys.stdout, sys.stderr) if isinstance(one, FileProxy)}
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and id(handler.stream) in proxies:
                moved.append((handler, handler.setStream(proxies[id(handler.stream)])))
        try:
            yield
        finally:
            for handler, stream in moved:
                handler.setStream(stream)


def count(number: int, noun: str) -> str:
    """A number with what it counts, such as "1 passage" and "14,310 passages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def money(amount: float | None, unknown: str = "not known") -> str:
    """US dollars, such as "$0.41"; what is less than a cent is not called nothing."""
    if amount is None:
        return unknown
    return "<$0.01" if 0 < amount < 0.01 else f"${amount:,.2f}"


def duration(seconds: float) -> str:
    """A time: "8.3 s", "40 s", "2 min 05 s", "2 h 05 min", "3 d 4 h"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
