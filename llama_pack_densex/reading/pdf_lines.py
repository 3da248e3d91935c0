"""The boxes of the characters on a page of a PDF, and the lines that they form.

Coordinates are in points from the top left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llama_pack_densex.reading.tables import runs

HYPHENS = ("\x02", "\ufffe")
"""PDFium's marks for the hyphen of a word that is split at the end of a line."""
WIDE_GAP = 0.9
"""Times the size of characters; text across a wider gap may be in another column."""


class Box(NamedTuple):
    """The position of something on a page."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def x(self) -> float:
        """The horizontal position of its middle."""
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        """The vertical position of its middle."""
        return (self.top + self.bottom) / 2

    @property
    def width(self) -> float:
        """Its width."""
        return self.right - self.left

    @property
    def size(self) -> float:
        """Its height, as a measure of its font."""
        return max(self.bottom - self.top, 1.0)

    def is_on_line_of(self, other: Box) -> bool:
        """Return whether its middle is neither above nor below another box."""
        return other.top < self.y < other.bottom

    def follows(self, other: Box, widest_gap: float) -> bool:
        """Return whether it follows another box on its line, within `widest_gap` times that one's size."""
        gap = (self.left - other.right) / other.size
        is_on_line = self.is_on_line_of(other) or other.is_on_line_of(self)
        return -1 < gap < widest_gap and is_on_line

    def gap_beside(self, other: Box) -> float:
        """Return the horizontal gap to another box; negative if they overlap or are not on one line."""
        if other.top >= self.bottom or self.top >= other.bottom:
            return -inf
        return max(other.left - self.right, self.left - other.right)

    def turned(self) -> Box:
        """Return it as if its line, which runs down, ran to the right; lines to the left are then below."""
        return Box(self.top, -self.right, self.bottom, -self.left)


def page_box(rectangle: Sequence[float], turns: int) -> Box:
    """Return the box of a rectangle (left, bottom, right, top) on a page, turned back by quarters."""
    left, bottom, right, top = rectangle
    box = Box(left, -top, right, -bottom)
    for _ in range(turns):
        box = box.turned()
    return box


Boxes = Mapping[int, Box]
"""The boxes of characters other than white space, by their places in the page's text."""


@dataclass(frozen=True, eq=False)
class Line:
    """A line, or a part of one between wide gaps.

    Args:
        text: Its text; empty for a table, which counts as one line.
        places: The places of its characters in the page's text.
        box: Its box; for upright lines as if the page were turned so that they run to the right.
    """

    text: str
    places: Sequence[int]
    box: Box


Lines = Sequence[Line]


def find_lines(text: str, boxes: Boxes) -> list[Line]:
    """Return the lines of a page in the order of its text.

    Args:
        text: The page's text.
        boxes: The boxes of its characters.
    """

    def goes_on(run: list[int], place: int) -> bool:
        last = run[-1]
        is_next = place == last + 1 and text[last] not in HYPHENS
        return is_next or boxes[place].follows(boxes[last], WIDE_GAP)

    lines: list[Line] = []
    for run in runs(boxes, goes_on):
        places = range(run[0], run[-1] + 1)
        lines.append(Line(text[places.start : places.stop], places, around(boxes, run)))
    return lines


def rows_of(lines: Iterable[Line]) -> list[list[Line]]:
    """Return lines in rows from top to bottom, each from left to right."""
    from_above = sorted(lines, key=lambda line: line.box.y)
    rows = runs(from_above, lambda row, line: line.box.y < row[0].box.bottom)
    return [sorted(row, key=lambda line: line.box.left) for row in rows]


def right_of(lines: Iterable[Line]) -> float:
    """Return the right edge of lines."""
    return max(line.box.right for line in lines)


def around(boxes: Boxes, places: Collection[int]) -> Box:
    """Return the box around the characters at the given places."""
    lefts, tops, rights, bottoms = zip(*(boxes[place] for place in places), strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))
