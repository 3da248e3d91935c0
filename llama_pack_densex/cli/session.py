"""What every command needs: where output goes, and how failures are reported."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Loggers that tell a user of the command line nothing: core's says for each file that it has no reader of its own, and
# the pack's which models were chosen, which the commands say themselves.
_NOISY = ("llama_index.core.readers.file.base", "pypdf", "llama_pack_densex.wiring")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def stdout() -> Console:
    """Where results go."""
    return Console(highlight=False, emoji=False, markup=False)


def stderr() -> Console:
    """Where progress, warnings and errors go."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def plain(text: str) -> str:
    """Text of a document or a file name without what steers a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A file name or heading, whose line ends are shown and not obeyed."""
    return plain(text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t"))


def argument(text: str) -> str:
    """An argument as it was typed; Python reads it as ASCII where the locale says so."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def progress(what: str) -> Progress:
    """A progress bar, shown in a terminal only."""
    console = stderr()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def waiting(what: str) -> AbstractContextManager[object]:
    """Say what is being done while it lasts, in a terminal only."""
    console = stderr()
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


@contextlib.contextmanager
def logged_progress() -> Iterator[None]:
    """Print the progress of an ingestion as plain lines where there is no terminal to show it in."""
    console = stderr()
    logger = logging.getLogger("llama_pack_densex.ingestion")
    handler = _Printing(console)
    level, propagate = logger.level, logger.propagate
    if not console.is_terminal:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _Printing(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(Text(plain(record.getMessage())), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning."""
    stderr().print(Text.assemble(("Warning: ", "yellow"), plain(message)), soft_wrap=True)


def print_json(result: DataclassInstance) -> None:
    """Print a result as JSON, and nothing else."""
    ascii_only = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") != "utf8"
    print(json.dumps(asdict(result), ensure_ascii=ascii_only, indent=2))


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Run a command: failures that a user can do something about end it with one message and exit code 1."""
    with _mended_streams(), _muted(_NOISY):
        try:
            yield
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            stderr().print(Text.assemble(("Error: ", "bold red"), plain(message)), soft_wrap=True)
            raise typer.Exit(1) from None


def _message(error: Exception) -> str | None:
    """What to tell the user of an error; None for one that is not for them, such as a fault of ours."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return None  # typer ends quietly
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return str(error)
    openai: Any = sys.modules.get("openai")
    if openai is not None and isinstance(error, openai.OpenAIError):
        return _llm_message(error)
    if any(kind.__name__ == "PropositionizerError" for kind in type(error).__mro__):  # not imported: that takes seconds
        return str(error)
    if str(error).startswith("lance error") or type(error).__name__ == "RustPanic":
        return f"the index is damaged and cannot be read; build it anew. ({error})"
    return None


def _llm_message(error: Exception) -> str:
    """What a provider says, without keys, and without what it may quote of a document."""
    from llama_pack_densex.llm_requests.failures import classify

    failure = classify(error, [os.environ.get("OPENAI_API_KEY", "")])
    advice = failure.message or f"{failure.summary}. Try again later, or see whether OPENAI_API_BASE is right."
    return f"the LLM could not be asked: {advice}"


@contextlib.contextmanager
def _muted(names: Sequence[str]) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _mended_streams() -> Iterator[None]:
    """Show what a stream cannot encode (Japanese in an ASCII terminal) as its code, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    yield
