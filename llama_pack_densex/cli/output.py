"""What every command needs: where output goes, lines that fit, and how failures are reported."""

from __future__ import annotations

import atexit
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

import typer
from pydantic import ValidationError
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from llama_pack_densex.text.terminal import PlainFormatter, one_line, plain, plain_json

# What may not begin a line, and what may not end one (JIS X 4051, the common part).
# joiners, marks of voiced kana, variation selectors
_JOINED = "\u200c\u200d\u3099\u309a\ufe0e\ufe0f"
_SMALL_KANA = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
_NOT_FIRST = "、。，．・：；？！」』）］｝〉》】〕”’ー々‐–〜%％,.:;?!)]}" + _SMALL_KANA + _JOINED
_NOT_LAST = "「『（［｛〈《【〔“‘([{"
_PIECE = re.compile(
    rf"\s+|[{re.escape(_NOT_LAST)}]*(?:[^\s\u1100-\uffdc]+|[\u1100-\uffdc])[{re.escape(_NOT_FIRST)}]*|\S"
)


stdout = partial(Console, highlight=False, emoji=False, markup=False)
"""Where results go."""
stderr = partial(stdout, stderr=True)
"""Where progress, warnings and errors go."""


def waiting(what: str) -> Status:
    """Show what is being done while it lasts, in a terminal only."""
    return stderr().status(plain(what))


def warn(message: str, kind: str = "Warning", style: str = "yellow") -> None:
    """Print a warning, or an error."""
    # Rich 13 takes a time for tabs that grows with their square
    text = plain(message).expandtabs(4)
    stderr().print(Text.assemble((f"{kind}: ", style), text), soft_wrap=True)


def inform(message: str) -> None:
    """Print a line beside the results, on stderr."""
    stderr().print(Text(plain(message)), soft_wrap=True)


def is_terminal() -> bool:
    """Whether progress is shown, on stderr."""
    # what Rich puts in its place while it shows progress is no terminal before its version 14.2
    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return bool(stream.isatty())


def can_ask() -> bool:
    """Whether there is a user to ask."""
    return sys.stdin.isatty() and is_terminal()


def is_trusted(warning: str) -> bool:
    """Ask the user, in a terminal, whether to use what a warning is about; where nobody can be asked: no."""
    if not can_ask():
        return False
    warn(warning)
    return typer.confirm("Use it this time?", err=True)


def print_error(error: Exception) -> None:
    """Print what went wrong; what a user can do nothing about is raised again."""
    message = message_of(error)
    if message is None:
        raise error
    warn(message, "Error", "bold red")


def write(text: str = "", style: str = "", indent: int = 0, bullet: str = "") -> None:
    """Print text, wrapped for the console and without what steers a terminal; without any, an empty line."""
    console = stdout()
    console.print(
        Text(hang(plain(text), console.width, indent, bullet), style=style), soft_wrap=True
    )


def write_list(items: Iterable[str], style: str = "", indent: int = 0) -> None:
    """Print a line for each of some names or messages, with a bullet."""
    for item in items:
        write(one_line(item), style, indent, "- ")


def print_heading(text: str) -> None:
    """Print a heading with a line below it."""
    write(text, style="bold cyan")
    stdout().rule(style="cyan")


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, gap: int = 2
) -> None:
    """Print a table without lines, whose first columns are texts and the others figures.

    Texts are broken where there is no room for them, figures never.
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
    """Print labels, and what belongs to each."""
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for label, text in rows:
        table.add_row(label, one_line(text))
    stdout().print(table)


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` cells; a Chinese, Japanese or Korean character takes two.

    Lines break at spaces and between such characters, but not before closing punctuation or after opening
    brackets. What is longer than a line without any such place is broken anywhere.
    """
    lines = text.expandtabs(4).splitlines() or [""]
    return [wrapped for line in lines for wrapped in _wrap_line(line, width)]


def _wrap_line(line: str, width: int) -> list[str]:
    """Break a line, measuring each part of it once, however many invisible characters there are."""
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
    """What a line may be broken between."""
    for piece in _PIECE.findall(line):
        if cell_len(piece) > width:
            yield from chop_cells(piece, width)
        else:
            yield piece  # also where it is invisible


def hang(text: str, width: int, indent: int = 0, bullet: str = "") -> str:
    """Wrap text under an indentation; further lines begin below the first one's text."""
    first = " " * indent + bullet
    margin = " " * cell_len(first)
    lines = wrap(text, max(width - len(margin), 10))
    return first + textwrap.indent("\n".join(lines), margin).removeprefix(margin)


def print_json(result: object, indent: int | None = 2) -> None:
    """Print a result, which may hold dataclasses, as JSON; without an indent on one line."""
    encoding = str(sys.stdout.encoding).lower().replace("-", "")
    text = json.dumps(result, default=asdict, ensure_ascii=encoding != "utf8", indent=indent)
    print(plain_json(text))


@contextmanager
def session() -> Iterator[None]:
    """Run a command: failures that a user can do something about end it with one message and exit code 1."""
    # transformers draws one each time it loads a model
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for stream in (sys.stdout, sys.stderr):
        # what it cannot encode (Japanese in ASCII) is shown as its code
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
    """Collect garbage less often than Python does, and not at the end of the process.

    torch and LlamaIndex make millions of objects as they are imported; looking through them again and again
    took a third of the time of a question.
    """
    undo.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def _end_on_signals(undo: ExitStack) -> None:
    """Have SIGTERM and SIGHUP end the command as Ctrl-C does, with exit code 143.

    Docker, Kubernetes and systemd stop a program by SIGTERM; SIGHUP comes when a terminal or a connection is
    closed. With `nohup` the command goes on.
    """
    for stop in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(stop) is signal.SIG_DFL:
            signal.signal(stop, lambda *_: sys.exit(128 + signal.SIGTERM))
            undo.callback(signal.signal, stop, signal.SIG_DFL)


def _warn_once_and_plainly(undo: ExitStack) -> None:
    """Log each warning once, and keep what other packages log or warn of from steering the terminal.

    Every strategy of a comparison makes a pack, and all warn of the same model. Which models a pack chose is
    left out: the commands say it themselves.
    """
    logged = set[str]()
    handler = logging.lastResort or logging.NullHandler()

    def is_news(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = record.name != "llama_pack_densex.pack" and message not in logged
        logged.add(message)
        return is_new

    handler.addFilter(is_news)
    undo.callback(handler.removeFilter, is_news)
    undo.callback(handler.setFormatter, handler.formatter)
    handler.setFormatter(PlainFormatter())
    format_warning = warnings.formatwarning
    undo.callback(setattr, warnings, "formatwarning", format_warning)
    warnings.formatwarning = lambda *args, **named: plain(format_warning(*args, **named))


_CLIENTS = ("openai", "anthropic", "google", "ollama", "httpx")
_ASKING = ("llama_index.llms.", "llama_index.embeddings.")


def message_of(error: Exception) -> str | None:
    """What to tell the user of an error; None for one that is not for them, such as a fault of ours."""
    if isinstance(error, BrokenPipeError):
        return None  # typer ends quietly
    if isinstance(error, ValidationError):  # of a parser's or a propositionizer's fields
        wrong = error.errors(include_url=False)[0]
        return ": ".join([*map(str, wrong["loc"]), wrong["msg"].removeprefix("Value error, ")])
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{one_line(str(error.filename))}: {error.strerror}"
    if _is_of_a_model(error):
        from llama_pack_densex.llm.errors import classify, secrets_in_environment

        # without what it may quote of a document
        failure = classify(error, secrets_in_environment())
        advice = (
            f"{failure.summary}. Try again later, or see whether the server's address is right."
        )
        return f"the model could not be asked: {failure.message if failure.kind == 'fatal' else advice}"
    is_ours = type(error).__module__.startswith("llama_pack_densex.")  # it says what can be done
    if is_ours or isinstance(error, (ValueError, OSError, ImportError)):
        from llama_pack_densex.llm.errors import secrets_in_environment, without_keys

        return without_keys(str(error), secrets_in_environment())
    return None


def _is_of_a_model(error: Exception) -> bool:
    """Whether a model could not be asked."""
    if isinstance(error, (ValueError, OSError, ImportError)):
        # what a server said: of files that is reported otherwise
        return isinstance(error, json.JSONDecodeError)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    # an IndexError in LlamaIndex, say, of a reply without choices
    raised_by = str(frame.f_globals.get("__name__"))
    return type(error).__module__.partition(".")[0] in _CLIENTS or raised_by.startswith(_ASKING)
