"""What every command needs: where output goes, and how failures are reported."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Loggers that tell a user of the command line nothing: core's says once a file that it has no reader of its own for it.
_NOISY = ("llama_index.core.readers.file.base", "pypdf")
_CHOICES_LOGGER = "llama_pack_densex.pack"
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


def warn(message: str) -> None:
    """Print a warning."""
    stderr().print(Text.assemble(("Warning: ", "yellow"), plain(message)), soft_wrap=True)


def print_json(result: DataclassInstance) -> None:
    """Print a result as JSON, and nothing else."""
    ascii_only = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(asdict(result), ensure_ascii=ascii_only, indent=2) + "\n")


@contextlib.contextmanager
def session(quiet: bool = False) -> Iterator[None]:
    """Run a command: failures that a user can do something about end it with one message and exit code 1.

    Args:
        quiet: Whether not to say which models were chosen.
    """
    with _mended_streams(), _muted([*_NOISY, *([_CHOICES_LOGGER] if quiet else [])]):
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
    from llama_pack_densex.propositionizers.failures import PropositionizerError

    if isinstance(error, PropositionizerError):
        return str(error)
    openai: Any = sys.modules.get("openai")
    if openai is not None and isinstance(error, openai.OpenAIError):
        return f"the LLM could not be asked: {error}"
    return None


@contextlib.contextmanager
def _muted(names: list[str]) -> Iterator[None]:
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
