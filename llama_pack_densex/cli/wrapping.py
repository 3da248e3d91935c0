"""Lines of a given width on the screen, for text with and without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

# What may not begin a line, and what may not end one (JIS X 4051, the common part).
_NOT_FIRST = "、。，．・：；？！」』）］｝〉》】〕”’ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々‐–〜%％,.:;?!)]}"
_NOT_LAST = "「『（［｛〈《【〔“‘([{"
_PIECE = re.compile(
    rf"\s+|[{re.escape(_NOT_LAST)}]*(?:[^\s\u1100-\uffdc]+|[\u1100-\uffdc])[{re.escape(_NOT_FIRST)}]*|\S"
)


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` cells; a Chinese, Japanese or Korean character takes two.

    Lines break at spaces and between such characters, but not before closing punctuation or after opening brackets.
    What is longer than a line without any such place is broken anywhere.
    """
    lines = []
    for paragraph in text.expandtabs(4).splitlines() or [""]:
        line = ""
        for piece in _PIECE.findall(paragraph):
            for part in _parts(piece, width) if cell_len(piece) > width else [piece]:
                if line.strip() and cell_len(line + part.rstrip()) > width:
                    lines.append(line.rstrip())
                    line = part.lstrip()
                else:
                    line += part
        lines.append(line.rstrip())
    return lines


def hang(text: str, width: int, indent: int = 0, bullet: str = "") -> str:
    """Wrap text under an indentation; further lines begin below the first one's text."""
    first = " " * indent + bullet
    lines = wrap(text, max(width - cell_len(first), 10))
    margin = " " * cell_len(first)
    return "\n".join((first if i == 0 else margin if line else "") + line for i, line in enumerate(lines))


def _parts(piece: str, width: int) -> Iterator[str]:
    """A piece that is longer than a line, in parts that are not."""
    part = ""
    for character in piece:
        if part and cell_len(part + character) > width:
            yield part
            part = ""
        part += character
    yield part
