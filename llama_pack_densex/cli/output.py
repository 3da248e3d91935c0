"""Output of the commands: consoles, wrapped lines, tables, JSON, and the report of failures."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import json
import logging
import os
import re
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from tempfile import gettempdir

import typer
from pydantic import ValidationError
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from llama_pack_densex.text.terminal import PlainFormatter, one_line, plain, plain_json

# Characters that may not begin a line, and those that may not end one (JIS X 4051, the common part).
# joiners, marks of voiced kana, variation selectors
_JOINED = "\u200c\u200d\u3099\u309a\ufe0e\ufe0f"
_SMALL_KANA = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
_NOT_FIRST = "、。，．・：；？！」』）］｝〉》】〕”’ー々‐–〜%％,.:;?!)]}" + _SMALL_KANA + _JOINED
_NOT_LAST = "「『（［｛〈《【〔“‘([{"
_PIECE = re.compile(
    rf"\s+|[{re.escape(_NOT_LAST)}]*(?:[^\s\u1100-\uffdc]+|[\u1100-\uffdc])[{re.escape(_NOT_FIRST)}]*|\S"
)


stdout = partial(Console, highlight=False, emoji=False, markup=False)
"""Makes a console for results."""
stderr = partial(stdout, stderr=True)
"""Makes a console for progress, warnings and errors."""


def waiting(what: str) -> Status:
    """Return a context manager that shows, in a terminal, what the command is doing."""
    return stderr().status(plain(what))


def warn(message: str, kind: str = "Warning", style: str = "yellow") -> None:
    """Print a warning, or an error."""
    # Rich 13 takes quadratic time for tabs
    text = plain(message).expandtabs(4)
    stderr().print(Text.assemble((f"{kind}: ", style), text), soft_wrap=True)


def inform(message: str) -> None:
    """Print a line that is not part of the results, on stderr."""
    stderr().print(Text(plain(message)), soft_wrap=True)


def is_terminal() -> bool:
    """Return whether stderr is a terminal, where progress can be shown."""
    # while Rich shows progress it replaces stderr by an object that, before 14.2, claims not to be a terminal
    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return bool(stream.isatty())


def can_ask() -> bool:
    """Return whether there is a user at a terminal to ask."""
    return sys.stdin.isatty() and is_terminal()


def is_trusted(warning: str) -> bool:
    """Print a warning and ask the user whether to go on; return False if there is no terminal to ask in."""
    if not can_ask():
        return False
    warn(warning)
    return typer.confirm("Use it this time?", err=True)


def print_error(error: Exception) -> None:
    """Print an error that the user can do something about; re-raise any other."""
    message = message_of(error)
    if message is None:
        raise error
    warn(message, "Error", "bold red")


def write(text: str = "", style: str = "", indent: int = 0, bullet: str = "") -> None:
    """Print text wrapped to the console's width, without terminal control sequences; or an empty line.

    A text that begins with the bullet gets no second one.
    """
    console = stdout()
    lines = hang(plain(text).removeprefix(bullet), console.width, indent, bullet)
    console.print(Text(lines, style=style), soft_wrap=True)


def write_list(items: Iterable[str], style: str = "", indent: int = 0) -> None:
    """Print each item on a line of its own, with a bullet."""
    for item in items:
        write(one_line(item), style, indent, "- ")


def print_heading(text: str) -> None:
    """Print a heading with a rule below it."""
    write(text, style="bold cyan")
    stdout().rule(style="cyan")


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, gap: int = 2
) -> None:
    """Print a table without rules: `texts` columns of text, then columns of figures.

    Texts are folded if they do not fit; figures never are.
    """
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for title in titles[:texts]:
        table.add_column(title, overflow="fold")
    for title in titles[texts:]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(one_line, row))
    write()
    stdout().print(table)


def print_figures(rows: Iterable[tuple[str, str]]) -> None:
    """Print rows of a label and its text."""
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for label, text in rows:
        table.add_row(label, one_line(text))
    stdout().print(table)


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` cells; a Chinese, Japanese or Korean character takes two.

    Lines break at spaces and between such characters, but not before closing punctuation or after opening
    brackets. A piece that is longer than a line and has no such place is broken anywhere.
    """
    wrapped = []
    for line in text.expandtabs(4).splitlines() or [""]:
        wrapped += _wrap_line(line, width)
    return wrapped


def _wrap_line(line: str, width: int) -> list[str]:
    """Break a line, measuring each of its parts once, so that many invisible characters cost little."""
    wrapped = []
    current = ""
    cells = 0
    has_text = False
    for part in _parts(line, width):
        is_blank = part.isspace()
        part_cells = cell_len(part)
        if has_text and not is_blank and cells + part_cells > width:
            wrapped.append(current.rstrip())
            current = ""
            cells = 0
        current += part
        cells += part_cells
        has_text = has_text or not is_blank
    return [*wrapped, current.rstrip()]


def _parts(line: str, width: int) -> Iterator[str]:
    """Yield the pieces between which a line may be broken, none wider than `width`."""
    for piece in _PIECE.findall(line):
        if cell_len(piece) > width:
            yield from chop_cells(piece, width)
        else:
            yield piece  # chop_cells would drop invisible pieces


def hang(text: str, width: int, indent: int, bullet: str) -> str:
    """Wrap text with a hanging indent: further lines are aligned with the text after the bullet."""
    first = " " * indent + bullet
    margin = " " * cell_len(first)
    lines = wrap(text, max(width - len(margin), 10))
    return first + textwrap.indent("\n".join(lines), margin).removeprefix(margin)


def print_json(result: object, indent: int | None = 2) -> None:
    """Print a result, which may contain dataclasses, as JSON; with `indent=None`, on one line."""
    encoding = str(sys.stdout.encoding).lower().replace("-", "")
    text = json.dumps(result, default=asdict, ensure_ascii=encoding != "utf8", indent=indent)
    print(plain_json(text))


@contextmanager
def session() -> Iterator[None]:
    """Run a command; an error that the user can do something about ends it with a message and exit code 1."""
    # transformers draws a progress bar each time it loads a model
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for stream in (sys.stdout, sys.stderr):
        # characters that the encoding lacks (Japanese in ASCII) are escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with ExitStack() as undo:
        _collect_less_garbage(undo)
        _end_on_signals(undo)
        _warn_once_and_plainly(undo)
        try:
            yield
        except Exception as error:
            print_error(error)
            raise typer.Exit(1) from None


def _collect_less_garbage(undo: ExitStack) -> None:
    """Collect garbage less often than Python does by default, and not at the end of the process.

    Importing torch and LlamaIndex creates millions of objects; scanning them repeatedly took a third of the
    time of a question.
    """
    undo.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def _end_on_signals(undo: ExitStack) -> None:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, with exit code 143.

    Docker, Kubernetes and systemd stop a program with SIGTERM; SIGHUP is sent when a terminal or a connection
    is closed. With `nohup`, the command continues.
    """
    for stop in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(stop) is signal.SIG_DFL:
            signal.signal(stop, lambda *_: sys.exit(128 + signal.SIGTERM))
            undo.callback(signal.signal, stop, signal.SIG_DFL)


def _warn_once_and_plainly(undo: ExitStack) -> None:
    """Log each warning once and each error, and strip control sequences from what other packages log.

    Every strategy of a comparison makes a pack, and all of them would warn about the same model. Messages
    about the models that a pack chose are dropped: the commands print them themselves.
    """
    logged = set[str]()
    handler = logging.lastResort or logging.NullHandler()

    def is_news(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = record.levelno >= logging.ERROR or message not in logged
        logged.add(message)
        return is_new and record.name != "llama_pack_densex.pack"

    handler.addFilter(is_news)
    undo.callback(handler.removeFilter, is_news)
    undo.callback(handler.setFormatter, handler.formatter)
    handler.setFormatter(PlainFormatter())
    format_warning = warnings.formatwarning
    undo.callback(setattr, warnings, "formatwarning", format_warning)
    warnings.formatwarning = lambda *args, **named: plain(format_warning(*args, **named))


_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLIENTS = ("openai", "anthropic", "google", "ollama", "httpx")
_ASKING = ("llama_index.llms.", "llama_index.embeddings.")


def message_of(error: Exception) -> str | None:
    """Return the message of an error for the user; None if they can do nothing about it, such as a bug."""
    if isinstance(error, BrokenPipeError):
        return None  # typer ends quietly
    if isinstance(error, ValidationError):  # of a parser's or a propositionizer's fields
        problem = error.errors(include_url=False)[0]
        return ": ".join([*map(str, problem["loc"]), problem["msg"].removeprefix("Value error, ")])
    if isinstance(error, OSError) and error.strerror:
        place = _place_of(error)
        if place:
            return f"{one_line(place)}: {error.strerror}"
    if _is_of_a_model(error):
        return f"the model could not be asked: {_reason_of_a_model(error)}"
    is_ours = type(error).__module__.startswith("llama_pack_densex.")  # its message says what to do
    if is_ours or isinstance(error, (ValueError, OSError, ImportError)):
        from llama_pack_densex.llm.errors import secrets_in_environment, without_keys

        return without_keys(str(error), secrets_in_environment())
    return None


def _place_of(error: OSError) -> str:
    """Return the file that an error is about, or what is full; "" if it is not known."""
    if error.filename is not None:
        return str(error.filename)
    if error.errno in _FULL:
        return f"the output, or {gettempdir()}"
    return ""


def _reason_of_a_model(error: Exception) -> str:
    from llama_pack_densex.llm.errors import classify, secrets_in_environment

    failure = classify(error, secrets_in_environment())
    if failure.kind == "fatal":
        return failure.message
    # only the summary: the error itself may quote a document
    return f"{failure.summary}. Try again later, or check the server's address."


def _is_of_a_model(error: Exception) -> bool:
    """Return whether an error comes from a request to a model."""
    if isinstance(error, (ValueError, OSError, ImportError)):
        # a server's reply is not JSON; invalid files raise errors of their own
        return isinstance(error, json.JSONDecodeError)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    # such as an IndexError in LlamaIndex for a reply without choices
    raised_by = str(frame.f_globals.get("__name__"))
    return type(error).__module__.partition(".")[0] in _CLIENTS or raised_by.startswith(_ASKING)
