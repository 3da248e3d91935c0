"""Tables on a page of a PDF, by the lines that rule them or by their columns of figures.

Where neither tells rows and columns for sure there is no table, and the page's text stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import NamedTuple

from llama_pack_densex.reading.tables import (
    Cell,
    Grid,
    cells_of,
    count_header_rows,
    is_figure,
    row_texts,
    rows_with_text,
)
from llama_pack_densex.text.tokens import on_one_line

_TOUCHING = 3.0  # points between lines that are meant to touch, and between what is meant to be aligned
_MOST_RULINGS = 2_000  # of a page: what has more is a drawing
_LONGEST_CELL = 600  # characters
_LEAST_FILLED = 0.5  # share of a table's cells in which something stands
_LEAST_ROWS = 3  # with figures, of a table without lines
_NEAR_LINES = 7  # of a page's text, among which those have to be
# Marks of hyphenation, and what broken fonts leave.
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]\s*")
_FIGURE_AT_END = re.compile(r"(?:^|[\s$€£¥￥(△▲−-])\d[\d.,]*[)）%％円]?\s*$")


class Box(NamedTuple):
    """Where something stands on a page, in points from the bottom left."""

    left: float
    bottom: float
    right: float
    top: float


class Ruling(NamedTuple):
    """A straight line across or down a page.

    Args:
        place: How high it is, or how far right.
        start: Where it begins.
        end: Where it ends.
    """

    place: float
    start: float
    end: float


@dataclass(frozen=True)
class PdfTable:
    """A table that was found.

    Args:
        grid: Its cells.
        characters: The places of its characters in the page's text.
        edges: Where its columns begin, in points.
    """

    grid: Grid
    characters: Collection[int]
    edges: Sequence[float]

    @property
    def first(self) -> int:
        """The place of its first character."""
        return min(self.characters)

    @property
    def last(self) -> int:
        """The place of its last character."""
        return max(self.characters)

    def below(self, upper: PdfTable) -> PdfTable:
        """This table with the names of the one on the page before, where it goes on with that without them."""
        is_aligned = len(upper.edges) == len(self.edges) and all(
            abs(x - y) < _TOUCHING for x, y in zip(upper.edges, self.edges, strict=True)
        )
        header = upper.grid[: count_header_rows(upper.grid)]
        if not is_aligned or row_texts(self.grid[0]) == row_texts(upper.grid[0]):
            return self
        return replace(self, grid=[*header, *self.grid])


class Frame(NamedTuple):
    """Lines that may rule a table.

    Args:
        across: The lines across.
        down: The lines down.
        xs: How far right columns begin and end.
        ys: How high rows begin and end, from the top.
    """

    across: Sequence[Ruling]
    down: Sequence[Ruling]
    xs: Sequence[float]
    ys: Sequence[float]


def may_have_columns(text: str) -> bool:
    """Whether a page has enough lines that end with figures near one another for a table without lines."""
    numbers = [number for number, line in enumerate(text.split("\n")) if _FIGURE_AT_END.search(line)]
    return any(third - first <= _NEAR_LINES for first, third in zip(numbers, numbers[2:], strict=False))


def find_tables(
    text: str,
    boxes: Mapping[int, Box],
    frames: Iterable[Frame],
    is_code: Callable[[int], bool],
) -> list[PdfTable]:
    """Find the tables of a page.

    Args:
        text: The page's text.
        boxes: Where its characters stand, by their places in it, without white space.
        frames: The lines on it that may rule tables.
        is_code: Whether a character, told by its place, is of a font for code.
    """
    ruled = (_ruled_table(text, boxes, frame) for frame in frames)
    tables = [table for table in ruled if table]
    within = {place for table in tables for place in table.characters}
    free = {place: box for place, box in boxes.items() if place not in within}
    if may_have_columns(text):
        aligned = _aligned_tables(text, free)
        tables += [table for table in aligned if not (is_code(table.first) or is_code(table.last))]
    return tables


def _cell_text(text: str, places: Iterable[int]) -> str:
    """The text of a cell, whose lines may stand apart in the page's."""
    parts: list[str] = []
    before = -1
    for place in sorted(places):
        if parts and place != before + 1:
            gap = text[before + 1 : place]
            parts.append("\n" if gap.strip() or "\n" in gap else gap)
        parts.append(text[place])
        before = place
    return on_one_line(_NO_TEXT.sub("", "".join(parts)))


# Tables with lines


def find_frames(across: Sequence[Ruling], down: Sequence[Ruling]) -> list[Frame]:
    """The lines across with those down that they are as high as, where these make two rows and columns at least."""
    if len(across) + len(down) > _MOST_RULINGS:
        return []
    frames: list[Frame] = []
    band: list[Ruling] = []
    for ruling in sorted(down, key=lambda ruling: ruling.start):
        if band and ruling.start > max(other.end for other in band) + _TOUCHING:
            frames.append(_frame(across, band))
            band = []
        band.append(ruling)
    if band:
        frames.append(_frame(across, band))
    return [frame for frame in frames if min(len(frame.xs), len(frame.ys)) > 2]


def _frame(across: Sequence[Ruling], down: Sequence[Ruling]) -> Frame:
    bottom = min(ruling.start for ruling in down) - _TOUCHING
    top = max(ruling.end for ruling in down) + _TOUCHING
    left = min(ruling.place for ruling in down) - _TOUCHING
    right = max(ruling.place for ruling in down) + _TOUCHING
    rows = [
        ruling for ruling in across if bottom <= ruling.place <= top and ruling.start <= right and left <= ruling.end
    ]
    xs = [ruling.place for ruling in down] + [end for ruling in rows for end in ruling[1:]]
    ys = [ruling.place for ruling in rows] + [bottom + _TOUCHING, top - _TOUCHING]
    return Frame(rows, down, _distinct(xs), _distinct(ys)[::-1])


def _distinct(values: Iterable[float]) -> list[float]:
    distinct: list[float] = []
    for value in sorted(values):
        if not distinct or value > distinct[-1] + _TOUCHING:
            distinct.append(value)
    return distinct


_Spot = tuple[int, int]
"""A row and a column."""


def _ruled_table(text: str, boxes: Mapping[int, Box], frame: Frame) -> PdfTable | None:
    """The table in a frame; None for boxes of text, for drawings, and where no lines part rows."""
    inside = _inside(boxes, frame)
    grid = list(rows_with_text(_framed_cells(text, inside, frame)).values())
    if not _has_rows(boxes, inside) or not _is_table(grid):
        return None
    return PdfTable(grid, {place for places in inside.values() for place in places}, frame.xs)


def _has_rows(boxes: Mapping[int, Box], inside: Mapping[_Spot, list[int]]) -> bool:
    """Whether lines part all rows: none has as many lines of text in each column as several rows would."""
    counts: defaultdict[int, list[int]] = defaultdict(list)
    for (row, _), places in inside.items():
        counts[row].append(len(_distinct(_height(boxes[place]) for place in places)))
    return not any(len(lines) > 1 and min(lines) >= _LEAST_ROWS for lines in counts.values())


def _inside(boxes: Mapping[int, Box], frame: Frame) -> dict[_Spot, list[int]]:
    """The characters within a frame by row and column."""
    inside: dict[_Spot, list[int]] = {}
    heights = [-y for y in frame.ys]
    for place, box in boxes.items():
        row = bisect(heights, -_height(box)) - 1
        column = bisect(frame.xs, (box.left + box.right) / 2) - 1
        if 0 <= row < len(heights) - 1 and 0 <= column < len(frame.xs) - 1:
            inside.setdefault((row, column), []).append(place)
    return inside


def _framed_cells(text: str, inside: Mapping[_Spot, list[int]], frame: Frame) -> dict[_Spot, Cell]:
    """The cells of a frame by row and column; where no line parts two neighbours, they are one cell."""
    below = _walls(frame.across, frame.ys, frame.xs)
    beside = _walls(frame.down, frame.xs, frame.ys)
    rows = range(len(frame.ys) - 1)
    columns = range(len(frame.xs) - 1)
    cells: dict[_Spot, Cell] = {}
    for row, column in product(rows, columns):
        if (row, column) not in cells:
            right = next(x for x in columns[column:] if x + 1 not in columns or (x + 1, row) in beside)
            bottom = next(y for y in rows[row:] if y + 1 not in rows or (y + 1, column) in below)
            spots = list(product(range(row, bottom + 1), range(column, right + 1)))
            if not cells.keys().isdisjoint(spots):
                return {}  # what overlaps is a drawing
            characters = [place for spot in spots for place in inside.get(spot, ())]
            cell = Cell(_cell_text(text, characters), bottom + 1 - row, right + 1 - column)
            cells.update(dict.fromkeys(spots, cell))
    return cells


def _walls(rulings: Sequence[Ruling], lines: Sequence[float], ends: Sequence[float]) -> set[tuple[int, int]]:
    """Where there is a line: the numbers of the line, and of the row or column that it passes."""
    middles = [(end + following) / 2 for end, following in pairwise(ends)]
    return {
        (line, passed)
        for ruling in rulings
        for line, place in enumerate(lines)
        if abs(ruling.place - place) <= _TOUCHING
        for passed, middle in enumerate(middles)
        if ruling.start <= middle <= ruling.end
    }


def _is_table(grid: Grid) -> bool:
    """Whether what lines enclose are rows and columns, and no boxes of text or parts of a drawing."""
    full = [row for row in grid if len(cells_of(row)) > 1]
    if len(full) < 2:
        return False
    cells = {cell for row in grid for cell in row}
    filled = [cell for cell in cells if cell.text]
    longest = max(len(cell.text) for cell in filled)
    return len(filled) >= _LEAST_FILLED * len(cells) and longest <= _LONGEST_CELL


# Tables without lines

_WIDE_GAP = 1.2  # of the height of characters: what is farther apart on a line is in two columns
_WIDE_GAP_BEFORE_SIGN = 0.5  # the same before a currency's sign, which stands at the left of its column
_NEXT_LINE = 2.6  # of the height of characters, from the middle of a line to that of the next of a table
_MOST_OTHER_LINES = 2  # without figures, between two with figures
_MOST_HEADER_LINES = 3
_OFF_MIDDLE = 0.25  # of the width of columns, that the name of a group may stand beside their middle
_OF_FIGURES = 0.7  # share of a column's cells that are figures
_LONG_LINE = 20  # characters
_NIL = ("-", "–", "—", "―", "−", "n/a", "N/A")
_SIGNS = ("$", "€", "£", "¥", "￥", "(", "△", "▲")
_LEADERS = (". . .", "....", "……", "・・・")


@dataclass(frozen=True)
class _Fragment:
    """A stretch of a line without a wide gap."""

    box: Box
    characters: list[int]
    text: str

    @property
    def middle(self) -> float:
        return (self.box.left + self.box.right) / 2

    @property
    def is_amount(self) -> bool:
        return is_figure(self.text) or self.text in _NIL


_Line = list[_Fragment]
"""The fragments of a line from the left."""


def _aligned_tables(text: str, boxes: Mapping[int, Box]) -> Iterator[PdfTable]:
    lines = _lines(text, boxes)
    for first, last in _stretches(lines):
        columns = _columns([line for line in lines[first : last + 1] if _has_figures(line)])
        if not columns or _is_list(lines[first : last + 1]):
            continue
        while last + 1 < len(lines) and _goes_on(lines[last], lines[last + 1], columns):
            last += 1
        header, body = _header(lines, first, columns)
        grid = _aligned_grid(lines[header:body], lines[body : last + 1], columns)
        parts = [part for line in lines[header : last + 1] for part in line]
        characters = [place for part in parts for place in part.characters]
        yield PdfTable(grid, characters, [column.left for column in columns])


def _lines(text: str, boxes: Mapping[int, Box]) -> list[_Line]:
    pieces: list[list[int]] = []
    for place, box in boxes.items():
        widest = _WIDE_GAP_BEFORE_SIGN if text[place] in _SIGNS else _WIDE_GAP
        if pieces and _is_next(boxes[pieces[-1][-1]], box, widest):
            pieces[-1].append(place)
        else:
            pieces.append([place])
    fragments = [
        _Fragment(_around(boxes[place] for place in piece), piece, _cell_text(text, piece)) for piece in pieces
    ]
    lines: list[_Line] = []
    for fragment in sorted(fragments, key=lambda fragment: -_height(fragment.box)):
        if lines and lines[-1][0].box.bottom < _height(fragment.box) < lines[-1][0].box.top:
            lines[-1].append(fragment)
        else:
            lines.append([fragment])
    return [_with_signs(sorted(line, key=lambda fragment: fragment.box.left)) for line in lines]


def _height(box: Box) -> float:
    return (box.bottom + box.top) / 2


def _around(boxes: Iterable[Box]) -> Box:
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return Box(min(lefts), min(bottoms), max(rights), max(tops))


def _is_next(before: Box, box: Box, widest: float) -> bool:
    size = before.top - before.bottom
    gap = (box.left - before.right) / size if size else widest
    return -1 < gap < widest and before.bottom < _height(box) < before.top


def _with_signs(line: _Line) -> _Line:
    """A line in which a currency's sign that stands apart is with its figure."""
    joined: _Line = []
    for fragment in line:
        if joined and (joined[-1].text in _SIGNS or fragment.text in (")", "%")):
            last = joined[-1]
            box = _around([last.box, fragment.box])
            joined[-1] = _Fragment(box, last.characters + fragment.characters, last.text + fragment.text)
        else:
            joined.append(fragment)
    return joined


def _has_figures(line: _Line) -> bool:
    return any(is_figure(fragment.text) for fragment in line[1:])


def _distance(upper: _Line, lower: _Line) -> float:
    """From one line to the next, in heights of its characters."""
    box = upper[0].box
    return (_height(box) - _height(lower[0].box)) / (box.top - box.bottom)


def _stretches(lines: Sequence[_Line]) -> Iterator[tuple[int, int]]:
    """The first and last lines with figures of what may be tables."""
    numbers = [number for number, line in enumerate(lines) if _has_figures(line)]
    stretch: list[int] = []
    for number in numbers:
        if stretch and not _is_near(lines[stretch[-1] : number + 1]):
            if len(stretch) >= _LEAST_ROWS:
                yield stretch[0], stretch[-1]
            stretch = []
        stretch.append(number)
    if len(stretch) >= _LEAST_ROWS:
        yield stretch[0], stretch[-1]


def _is_near(lines: Sequence[_Line]) -> bool:
    return len(lines) <= _MOST_OTHER_LINES + 2 and all(
        _distance(upper, lower) <= _NEXT_LINE for upper, lower in pairwise(lines)
    )


def _columns(lines: Sequence[_Line]) -> list[Box]:
    """The columns of lines; none where these have no two columns, or no figures in line below one another."""
    columns: list[Box] = []
    for fragment in sorted((part for line in lines for part in line), key=lambda part: part.box.left):
        if columns and fragment.box.left <= columns[-1].right:
            columns[-1] = _around([columns[-1], fragment.box])
        else:
            columns.append(fragment.box)
    below: list[list[_Fragment]] = [[] for _ in columns]
    for line in lines:
        numbers = [_column_of(fragment, columns) for fragment in line]
        if len({*numbers}) < len(numbers):
            return []
        for number, fragment in zip(numbers, line, strict=True):
            below[number].append(fragment)
    has_figures = any(map(_is_of_figures, below[1:]))
    return columns if has_figures and not any(map(_is_prose, below)) else []


def _column_of(fragment: _Fragment, columns: Sequence[Box]) -> int:
    """The number of the column that a fragment begins in, or that is nearest to it."""
    return min(range(len(columns)), key=lambda n: _apart(fragment.box, columns[n]))


def _apart(box: Box, column: Box) -> float:
    return max(box.left - column.right, column.left - box.right, 0)


def _is_of_figures(cells: Sequence[_Fragment]) -> bool:
    figures = [cell for cell in cells if cell.is_amount]
    if len(figures) < max(_LEAST_ROWS, _OF_FIGURES * len(cells)):
        return False
    sides = ([cell.box.left, cell.middle, cell.box.right] for cell in figures)
    return any(_is_aligned(side) for side in zip(*sides, strict=True))


def _is_prose(cells: Sequence[_Fragment]) -> bool:
    """Whether long lines end below one another, as those of a paragraph do."""
    is_long = sum(len(cell.text) > _LONG_LINE for cell in cells) >= _OF_FIGURES * len(cells)
    return is_long and _is_aligned([cell.box.right for cell in cells])


def _is_aligned(values: Sequence[float]) -> bool:
    """Whether most values are the same, but for a closing bracket or a minus sign."""
    middle = sorted(values)[len(values) // 2]
    return sum(abs(value - middle) <= 2 * _TOUCHING for value in values) >= _OF_FIGURES * len(values)


def _is_list(lines: Sequence[_Line]) -> bool:
    """Whether the figures are numbers of pages, as in a table of contents."""
    rows = [line for line in lines if _has_figures(line)]
    last = [line[-1].text for line in rows]
    texts = [fragment.text for line in lines for fragment in line]
    if any(mark in text for text in texts for mark in _LEADERS):
        return True
    if any(_has_figures(line[:-1]) for line in rows) or not all(map(str.isdecimal, last)):
        return False
    numbers = list(map(int, last))
    return numbers == sorted(numbers)


def _goes_on(last: _Line, line: _Line, columns: Sequence[Box]) -> bool:
    """Whether a line below the last row goes on with a cell of it, but not with its first one."""
    return _distance(last, line) <= _NEXT_LINE / 2 and all(
        _column_of(fragment, columns) and _spans(fragment, columns) == 1 for fragment in line
    )


def _spans(fragment: _Fragment, columns: Sequence[Box]) -> int:
    return sum(not _apart(fragment.box, column) for column in columns)


def _header(lines: Sequence[_Line], first: int, columns: Sequence[Box]) -> tuple[int, int]:
    """The numbers of the first line of names, and of the one after them.

    Between these and the first line with figures there may be the name of a section.
    """
    body = first
    while first - body < _MOST_OTHER_LINES and _is_above(lines, body) and _is_label(lines[body - 1], columns):
        body -= 1
    start = body
    while body - start < _MOST_HEADER_LINES and _is_above(lines, start) and _is_names(lines[start - 1], columns):
        start -= 1
    return (start, body) if start < body else (first, first)


def _is_above(lines: Sequence[_Line], number: int) -> bool:
    return number > 0 and _distance(lines[number - 1], lines[number]) <= _NEXT_LINE


def _is_label(line: _Line, columns: Sequence[Box]) -> bool:
    return len(line) == 1 and _column_of(line[0], columns) == 0 and _spans(line[0], columns) <= 1


def _is_names(line: _Line, columns: Sequence[Box]) -> bool:
    is_beside = len(line) > 1 or _column_of(line[0], columns) > 0
    first_columns = [part for part in line if _column_of(part, columns) == 0]
    return is_beside and all(_spans(part, columns) <= 1 for part in first_columns)


def _aligned_grid(header: Sequence[_Line], lines: Sequence[_Line], columns: Sequence[Box]) -> Grid:
    grid = [_names(line, columns) for line in header]
    rows: list[list[_Line]] = []
    for line in lines:
        is_row = _has_figures(line) or _column_of(line[0], columns) == 0
        if is_row or not rows:
            rows.append([line])
        else:
            rows[-1].append(line)
    return grid + [_row(row, columns) for row in rows]


def _names(line: _Line, columns: Sequence[Box]) -> list[Cell]:
    """The names of columns, or of groups of as many columns each, which are above the middles of these."""
    first = [Cell(line[0].text, is_name=True)] if _column_of(line[0], columns) == 0 else []
    parts = line[len(first) :]
    size, rest = divmod(len(columns) - 1, len(parts) or 1)
    groups = [columns[n : n + size] for n in range(1, len(columns), size)] if size and not rest else []
    if size < 2 or not groups or not all(map(_is_above_middle, parts, groups)):
        return _row([line], columns, is_name=True)
    cells = [cell for part in parts for cell in [Cell(part.text, columns=size, is_name=True)] * size]
    return [*(first or [Cell()]), *cells]


def _is_above_middle(part: _Fragment, columns: Sequence[Box]) -> bool:
    middle = (columns[0].left + columns[-1].right) / 2
    return abs(part.middle - middle) <= _OFF_MIDDLE * (columns[-1].right - columns[0].left)


def _row(lines: Sequence[_Line], columns: Sequence[Box], is_name: bool = False) -> list[Cell]:
    texts: dict[int, str] = {}
    for line in lines:
        for part in line:
            column = _column_of(part, columns)
            texts[column] = on_one_line(f"{texts.get(column, '')}\n{part.text}")
    return [Cell(texts.get(column, ""), is_name=is_name) for column in range(len(columns))]
