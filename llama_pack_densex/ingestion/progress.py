"""How it is shown how far an ingestion is: in a terminal, in a notebook, or in a log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

logger = logging.getLogger("llama_pack_densex.ingestion")

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


def many(number: int, noun: str) -> str:
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
