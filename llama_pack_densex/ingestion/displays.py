"""Where an ingestion's progress is shown: in a terminal, in a notebook, in a log."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from llama_pack_densex.ingestion.progress import Display, ProgressState
from llama_pack_densex.ingestion.rendering import COMMA, DOT, figures, fit, last_figures, one_line

logger = logging.getLogger("llama_pack_densex.ingestion")

_QUIET_SECONDS = 30.0
_STEPS = 20


def display_for(show: bool, keep_last: bool = True) -> Display:
    """Choose how to show progress: in a notebook, on the terminal that stderr is, or else in the log.

    Args:
        show: Whether it is to be shown; if not, only the last line is logged.
        keep_last: Whether the last line stays in the terminal; not where a summary follows it.
    """
    if not show:
        return _LastLine()
    if _in_notebook():
        return _Notebook()
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    # A colour that was forced on a pipe does not make it a terminal.
    if _is_terminal(sys.stderr) and console.is_terminal and console.is_interactive and not console.is_dumb_terminal:
        return _Terminal(console, keep_last)
    return line_display(logger.info)


def line_display(write: Callable[[str], None]) -> Display:
    """Show progress as plain lines: one every 30 seconds, and one every twentieth of the work.

    Args:
        write: Takes a line, which has no line end.
    """
    return _Lines(write)


def is_due(shown: ProgressState, now: ProgressState) -> bool:
    """Whether a log needs another line after the state that it last showed."""
    if now.now - shown.now >= _QUIET_SECONDS:
        return True
    before, after = shown.fraction, now.fraction
    return after is not None and int(after * _STEPS) > int((before or 0) * _STEPS)


class _Ticker:
    """Calls a function again and again in a thread, until it is stopped or the function fails for good.

    Args:
        tick: What to call.
        seconds: How long to wait in between.
    """

    def __init__(self, tick: Callable[[], None], seconds: float) -> None:
        self._tick, self._seconds = tick, seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="densex-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)  # not for ever: a terminal that is held (Ctrl-S) takes no output

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._tick()
            except (OSError, ValueError) as error:  # the output is closed: the ingestion goes on without it
                logger.warning("Progress is no longer shown (%s).", error)
                return


class _LastLine:
    """Logs what was done in the end, and shows nothing before."""

    def open(self, state: Callable[[], ProgressState]) -> None:
        pass

    def close(self, state: ProgressState) -> None:
        logger.info(one_line(last_figures(state)))


class _Lines:
    """Writes lines, now and then."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def open(self, state: Callable[[], ProgressState]) -> None:
        self._state = state
        self._shown = state()
        self._ticker = _Ticker(self._show_if_due, seconds=1.0)
        self._ticker.start()

    def close(self, state: ProgressState) -> None:
        self._ticker.stop()
        self._write(one_line(last_figures(state)))

    def _show_if_due(self) -> None:
        state = self._state()
        if is_due(self._shown, state):
            self._shown = state
            self._write(one_line(figures(state)))


class _Notebook:
    """Shows one output below the cell, and changes its text."""

    def open(self, state: Callable[[], ProgressState]) -> None:
        self._state = state
        self._id = f"densex-{uuid.uuid4().hex}"
        self._text = ""
        self._show(one_line(figures(state()), DOT))
        self._ticker = _Ticker(lambda: self._show(one_line(figures(self._state()), DOT)), seconds=0.5)
        self._ticker.start()

    def close(self, state: ProgressState) -> None:
        self._ticker.stop()
        self._show(one_line(last_figures(state), DOT))

    def _show(self, text: str) -> None:
        from IPython import display  # there only because this runs in its kernel

        if text != self._text:
            publish: Any = display.update_display if self._text else display.display
            publish({"text/plain": text}, raw=True, display_id=self._id)
            self._text = text


class _Terminal:
    """Draws a live line, below whatever else is printed meanwhile."""

    def __init__(self, console: Console, keep_last: bool) -> None:
        self._console, self._keep_last = console, keep_last
        utf8 = console.encoding.lower().startswith("utf")
        self._separator = DOT if utf8 else COMMA

    def open(self, state: Callable[[], ProgressState]) -> None:
        self._state = state
        self._open = ExitStack()
        streams = sys.stdout, sys.stderr
        self._live = self._open.enter_context(
            Live(
                self._drawn(),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=_is_terminal(sys.stdout),  # what is written into a file is left alone
            )
        )
        self._open.enter_context(_logging_above(streams))
        self._ticker = _Ticker(lambda: self._live.update(self._drawn(), refresh=True), seconds=0.25)
        self._ticker.start()

    def close(self, state: ProgressState) -> None:
        self._ticker.stop()
        self._open.close()
        if self._keep_last:
            self._console.print("\n".join(fit(last_figures(state), self._console.width, self._separator, lines=None)))

    def _drawn(self) -> Text:
        lines = fit(figures(self._state()), self._console.width, self._separator)
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


@contextmanager
def _logging_above(before: Sequence[TextIO]) -> Iterator[None]:
    """Send log lines through the streams that a live line has put in place of stdout and stderr.

    A handler keeps the stream that it was made with, and would write into the live line.
    """
    instead = {id(stream): now for stream, now in zip(before, (sys.stdout, sys.stderr), strict=True)}
    moved: list[tuple[Any, TextIO]] = []
    for handler in _stream_handlers():
        if id(handler.stream) in instead:
            moved.append((handler, handler.stream))
            handler.setStream(instead[id(handler.stream)])
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


def _stream_handlers() -> Iterator[Any]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for handler in {handler for each in loggers if isinstance(each, logging.Logger) for handler in each.handlers}:
        if isinstance(handler, logging.StreamHandler):
            yield handler


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; a program without a console has none at all."""
    return stream is not None and not stream.closed and stream.isatty()


def _in_notebook() -> bool:
    """Whether this runs in an IPython kernel, without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)
