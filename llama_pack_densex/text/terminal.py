"""What a terminal may be shown of texts and names that others wrote."""

from __future__ import annotations

import logging
import re
from typing import Any

# control characters but tab and line feed, and what turns the direction of writing round
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u206f]")
_LINE_ENDS = {ord(sign): ascii(sign).strip("'") for sign in "\n\r\t\u2028\u2029"}


def plain(text: str) -> str:
    """Text of a document or a file name without what steers a terminal."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A file name or heading, whose line ends are shown and not obeyed."""
    return plain(text.translate(_LINE_ENDS))


def plain_json(text: str) -> str:
    """JSON that holds the same, and has escapes for what steers a terminal."""
    return _STEERING.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


class PlainFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without what steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def plain_logger(name: str) -> logging.Logger:
    """A module's logger, whose messages quote names and texts on one line, without what steers a terminal.

    It is not left to handlers: without any, Python prints what is logged as it is.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_quote)
    return logger


def _quote(record: logging.LogRecord) -> bool:
    arguments: Any = record.args
    if isinstance(arguments, tuple):
        record.args = tuple(map(_quoted, arguments))
    return True


def _quoted(argument: Any) -> Any:
    """An argument as it may be printed; figures stay figures, for %d."""
    return argument if isinstance(argument, (int, float)) else one_line(str(argument))
