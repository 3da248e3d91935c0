"""Display of an ingestion's progress: one live line in a terminal or notebook, else a line at intervals."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from llama_pack_densex.text.terminal import one_line, plain_logger

logger = plain_logger("llama_pack_densex.ingestion")


@dataclass(frozen=True)
class Display:
    """A way to show progress.

    Args:
        write: Shows a line, in place of the last one if possible.
        seconds: The interval between lines; None means one line at the end only.
        around: A context manager that is active while lines are shown.
    """

    write: Callable[[str], None]
    seconds: float | None = None
    around: AbstractContextManager[Any] = field(default_factory=nullcontext)


@dataclass
class TaskLine:
    """Shows how much of a task is done, at the interval of its display.

    Args:
        display: Shows the lines.
        shown_at: The time of the last line, in seconds of a monotonic clock.
    """

    display: Display
    shown_at: float = -math.inf

    def __call__(self, task: str, done: int, total: int) -> None:
        interval = self.display.seconds
        now = time.monotonic()
        if interval is None or now < self.shown_at + interval:
            return
        self.shown_at = now
        self.display.write(f"{one_line(task)}: {done:,} of {total:,}")


def display_for(show: bool, transient: bool = False) -> Display:
    """Choose how to show progress: in a notebook, or on stderr.

    Args:
        show: Whether to show progress; if not, only the last line is logged.
        transient: Whether a terminal's live line is removed in the end.
    """
    if not show:
        return Display(logger.info)
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if console.is_jupyter:  # rich would need ipywidgets for a line that changes
        from IPython.display import display

        handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        return Display(lambda line: handle.update({"text/plain": line}, raw=True), 0.5)
    # rich takes a pipe for a terminal if colour is forced
    if not (console.is_interactive and console.file.isatty()):
        return Display(lambda line: print(line, file=sys.stderr, flush=True), 30.0)
    # stdout is redirected only if it is a terminal, so that output to a file stays as it is
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        transient=transient,
    )
    return Display(lambda line: live.update(Text(line), refresh=True), 0.1, _with_logging(live))


@contextmanager
def _with_logging(live: Live) -> Iterator[None]:
    """Print log lines above a live line; handlers hold the original stream, and would write into the line."""
    with live, ExitStack() as exits:
        handlers = [h for h in logging.getLogger().handlers if isinstance(h, logging.StreamHandler)]
        for proxy in (sys.stdout, sys.stderr):
            for handler in handlers:
                if isinstance(proxy, FileProxy) and handler.stream is proxy.rich_proxied_file:
                    exits.callback(handler.setStream, handler.setStream(proxy))
        yield


def many(number: int, noun: str) -> str:
    """Format a number with its noun, such as "1 passage" or "14,310 passages"."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"


def money(amount: float | None, unknown: str = "not known") -> str:
    """Format US dollars, such as "$0.41"; less than a cent is "<$0.01"."""
    if amount is None:
        return unknown
    if 0 < amount < 0.01:
        return "<$0.01"
    return f"${amount:,.2f}"


def duration(seconds: float) -> str:
    """Format a duration: "8.3 s", "40 s", "2 min 05 s", "2 h 05 min", "3 d 4 h"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"
