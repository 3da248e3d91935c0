"""The lines and blocks that a text consists of."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

Span = tuple[int, int]
"""The start and end of something in a text, in characters."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text.

    Args:
        start: Where it begins after its indentation, in characters.
        end: Where it ends before trailing white space.
        text: Its text between these; empty for a blank line.
        indent: The white space before it; in a quotation, that after the mark.
        number: Its number in the text, from 0.
        depth: How many marks of quotations it has, in Markdown or a mail (`>`).
    """

    start: int
    end: int
    text: str
    indent: str
    number: int
    depth: int = 0

    @property
    def is_quoted(self) -> bool:
        """Whether it is in a quotation."""
        return self.depth > 0


Lines = Sequence[Line]


def find_lines(text: str) -> list[Line]:
    """Return the lines of a text, with consecutive blank lines reduced to the first."""
    lines: list[Line] = []
    position = 0
    above: Line | None = None
    for number, raw in enumerate(text.splitlines(keepends=True)):
        mark = _quotation_mark(raw, above)
        quoted = raw[len(mark) :]
        stripped = quoted.strip()
        indent = quoted[: len(quoted) - len(quoted.lstrip())] if stripped else ""
        start = position + (len(mark) + len(indent) if stripped else 0)
        above = Line(start, start + len(stripped), stripped, indent, number, mark.count(">"))
        if stripped or not lines or lines[-1].text:
            lines.append(above)
        position += len(raw)
    return lines


def lines_between(lines: Lines, start: int, end: int) -> Lines:
    """Return the lines that begin in a stretch of the text, which is given in characters."""
    first = bisect_left(lines, start, key=attrgetter("start"))
    return lines[first : bisect_left(lines, end, key=attrgetter("start"))]


def lines_from(lines: Lines, place: int) -> Iterator[Line]:
    """Return the lines from an index on; unlike a slice, this takes no time for those that are not read."""
    return map(lines.__getitem__, range(place, len(lines)))


QUOTATION_MARK = r"[ \t]*(?!>>>[ \t])(?:>[ \t]?)+"
"""What a line of a quotation begins with; three marks and a space are the prompt of Python."""
_QUOTATION_MARK = re.compile(QUOTATION_MARK)


def _quotation_mark(raw: str, above: Line | None) -> str:
    """Return the mark of a quotation that a line begins with; empty if it is in none.

    Args:
        raw: The line.
        above: The line above it, or None.
    """
    mark = _QUOTATION_MARK.match(raw)
    if mark is None:
        return ""
    if above is not None and above.is_quoted:
        return mark[0]
    rest = raw[mark.end() :].strip()
    is_below_text = above is not None and above.text != ""
    is_end_of_tag = not rest or (is_below_text and not mark[0].endswith((" ", "\t")))
    is_comparison = rest[:1].isdigit() or rest.startswith("=")  # "> 5 mg" means more than 5 mg
    if is_end_of_tag or is_comparison:
        return ""
    return mark[0]


def quotation_depth(text: str, place: int) -> int:
    """Return how many marks of quotations stand before a place on its line."""
    return text.count(">", text.rfind("\n", 0, place) + 1, place)


BlockKind = Literal[
    "heading", "prose", "item", "sentence", "columns", "group", "row", "code", "nothing"
]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a text, without surrounding white space.

    Args:
        start: Where it begins, in characters.
        end: Where it ends.
        kind: "prose" for a paragraph, "item" for the first paragraph of a list's item, "columns" for the
            header of a table, "group" for a table row that is a heading for the rows below it, "code" for
            whatever is kept whole, "nothing" for what has no words: a rule, a picture, tags. Segments have
            "sentence" in place of prose and items.
        level: The level of a heading or the depth of a block in lists, 1 for the outermost; 0 for others.
        needs: The spans of what has to be read before it, in order: the lead-in of its list or table, the
            enclosing items, the header of its table, the question that it answers, the term that it defines.
        until: For a heading, where its section ends at the latest; None if the next heading decides.
        names: For rows and the header of a table, the names of its columns, as far as they are known.
        cells: For a row, the texts of its cells.
        row: For a row, a statement that can be understood alone: the heading within the table that it is
            below, then each cell after the name of its column. For a sentence of a conversation, the
            sentence after the label of its turn.
        label: For a paragraph of a conversation, what says who speaks, and perhaps when.
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
    label: str = ""

    @property
    def span(self) -> Span:
        """Its start and end."""
        return self.start, self.end

    def text_in(self, text: str) -> str:
        """Return what the text that it is a block of has there."""
        return text[self.start : self.end]

    def leads_in(self, other: Block) -> bool:
        """Return whether it introduces another block, which cannot be understood without it."""
        return any(self.start <= start < self.end for start, _ in other.needs)


Blocks = Sequence[Block]
"""The blocks of whole lines that belong together: those of a table, code, a heading, a comment."""


def overlapping(blocks: Blocks, start: int, end: int) -> range:
    """Return the indices of the blocks that a stretch overlaps."""
    first = bisect_right(blocks, start, key=attrgetter("end"))
    return range(first, bisect_left(blocks, end, key=attrgetter("start")))
