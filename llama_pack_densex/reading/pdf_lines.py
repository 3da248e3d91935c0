"""Where the characters of a page of a PDF stand, and the lines that they make.

Coordinates are in points from the top left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llama_pack_densex.reading.tables import runs

HYPHENS = ("\x02", "\ufffe")
"""What PDFium puts for a hyphen that parts a word at the end of a line."""
_WIDE_GAP = 0.9  # of the size of characters: what is farther apart on a line may be in two columns


class Box(NamedTuple):
    """Where something stands on a page."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def x(self) -> float:
        """How far right its middle is."""
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        """How far down its middle is."""
        return (self.top + self.bottom) / 2

    @property
    def width(self) -> float:
        """How wide it is."""
        return self.right - self.left

    @property
    def size(self) -> float:
        """Its height, as a measure of its font."""
        return max(self.bottom - self.top, 1.0)

    def is_on_line_of(self, other: Box) -> bool:
        """Whether its middle is not above or below another one."""
        return other.top < self.y < other.bottom

    def follows(self, other: Box, widest_gap: float) -> bool:
        """Whether it stands behind another one on its line, with a gap of so many of its sizes at most."""
        gap = (self.left - other.right) / other.size
        return -1 < gap < widest_gap and self.is_on_line_of(other)

    def gap_beside(self, other: Box) -> float:
        """How far it stands to the left or right of another one; negative where no line crosses both."""
        if other.top >= self.bottom or self.top >= other.bottom:
            return -inf
        return max(other.left - self.right, self.left - other.right)


Boxes = Mapping[int, Box]
"""Where characters stand, by their places in a page's text, without white space."""


@dataclass(frozen=True, eq=False)
class Line:
    """A stretch of a line without a wide gap.

    Args:
        text: What it says; nothing of a table, which stands as one line.
        places: Where its characters are in the page's text.
        box: Where it stands; of upright lines as if the page were turned, so that they run to the right.
    """

    text: str
    places: Sequence[int]
    box: Box


Lines = Sequence[Line]


def find_lines(text: str, boxes: Boxes) -> list[Line]:
    """The lines of a page in the order of its text.

    Args:
        text: The page's text.
        boxes: Where its characters stand, by their places in it, without white space.
    """

    def goes_on(run: list[int], place: int) -> bool:
        last = run[-1]
        is_next = place == last + 1 and text[last] not in HYPHENS
        return is_next or boxes[place].follows(boxes[last], _WIDE_GAP)

    lines: list[Line] = []
    for run in runs(boxes, goes_on):
        places = range(run[0], run[-1] + 1)
        lines.append(Line(text[places.start : places.stop], places, around(boxes, run)))
    return lines


def rows_of(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines from above; those on one height from the left."""
    from_above = sorted(lines, key=lambda line: line.box.y)
    rows = runs(from_above, lambda row, line: line.box.y < row[0].box.bottom)
    return [sorted(row, key=lambda line: line.box.left) for row in rows]


def right_of(lines: Iterable[Line]) -> float:
    """How far right some lines reach."""
    return max(line.box.right for line in lines)


def around(boxes: Boxes, places: Collection[int]) -> Box:
    """The box around the characters at some places."""
    lefts, tops, rights, bottoms = zip(*(boxes[place] for place in places), strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))
