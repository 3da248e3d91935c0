"""Untrusted texts and names, made safe to print on a terminal."""

from __future__ import annotations

import logging
import re
from typing import Any

# control characters except tab and line feed, and those that change the writing direction
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u206f]")
_LINE_ENDS = {ord(sign): ascii(sign).strip("'") for sign in "\n\r\t\u2028\u2029"}


def plain(text: str) -> str:
    """Replace the characters in a text or file name that control a terminal."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a file name or heading on one line, with its line breaks and tabs written as escapes."""
    return plain(text.translate(_LINE_ENDS))


def plain_json(text: str) -> str:
    """Return equivalent JSON in which the characters that control a terminal are escaped."""
    return _STEERING.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


class PlainFormatter(logging.Formatter):
    """A formatter of log records, tracebacks included, that replaces what controls a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def plain_logger(name: str) -> logging.Logger:
    """Return a module's logger, which writes each argument on one line and safe for a terminal.

    This is not left to handlers: if there are none, Python prints messages unchanged.
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
    """Return an argument in printable form; numbers stay numbers, for %d."""
    return argument if isinstance(argument, (int, float)) else one_line(str(argument))
