"""What a text is made of: its lines and its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Span = tuple[int, int]
"""Where something begins and ends in a text, in characters."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text.

    Args:
        start: Where it begins, in characters, without its indentation.
        end: Where it ends, without white space.
        text: What stands there; empty for a blank line.
        indent: The white space before it.
        number: How many-eth line of the text it is, from 0 on.
    """

    start: int
    end: int
    text: str
    indent: str
    number: int


Lines = Sequence[Line]


def find_lines(text: str) -> list[Line]:
    """The lines of a text; of several blank ones in a row the first."""
    lines: list[Line] = []
    position = 0
    for number, raw in enumerate(text.splitlines(keepends=True)):
        stripped = raw.strip()
        if stripped:
            indent = raw[: len(raw) - len(raw.lstrip())]
            start = position + len(indent)
            lines.append(Line(start, start + len(stripped), stripped, indent, number))
        elif not lines or lines[-1].text:
            lines.append(Line(position, position, "", "", number))
        position += len(raw)
    return lines


BlockKind = Literal[
    "heading", "prose", "item", "sentence", "columns", "group", "row", "code", "nothing"
]


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a text without white space around it.

    Args:
        start: Where it begins, in characters.
        end: Where it ends.
        kind: "prose" for a paragraph, "item" for the first paragraph of a list's item, "columns" for the
            header of a table, "group" for a row that is a heading for those below it, "code" for whatever
            stays whole, "nothing" for what says nothing: a rule, a picture, tags. A segment is a "sentence"
            in place of prose and items.
        level: Of a heading, 1 for the outermost; of what is in a list, how deep, 1 for the outermost.
        needs: Where what has to be read before it stands, in order: the line that leads a list in, the
            items above, the header of its table, the question that it answers, the term that it defines.
        until: Of a heading, where its section ends at the latest; None where the next heading decides.
        names: Of a row, the names of its columns, as far as they are known.
        cells: Of a row, what stands in it.
        row: Of a row, each cell behind the name of its column, and the heading within the table that it is
            below before them, so that it can be understood alone.
    """

    start: int
    end: int
    kind: BlockKind
    level: int = 0
    needs: tuple[Span, ...] = ()
    until: int | None = None
    names: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    row: str = ""

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.start, self.end
