"""Tables on a page of a PDF, by the lines that rule them or by their columns of figures.

Where neither tells rows and columns for sure there is no table, and the page's text stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from llama_pack_densex.reading.tables import Cell, Grid, cells_of, is_figure, rows_with_text
from llama_pack_densex.text.tokens import on_one_line

_TOUCHING = 3.0  # points between lines that are meant to touch, and between what is meant to be aligned
_MOST_RULINGS = 1_000  # of a page: what has more is a drawing
_LONGEST_CELL = 600  # characters
_LEAST_FILLED = 0.4  # share of a table's places in which something stands
_LEAST_ROWS = 3  # with figures, of a table without lines
_NEAR_LINES = 7  # of a page's text, among which those have to be
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


class Frame(NamedTuple):
    """Lines across and down that touch one another.

    Args:
        across: The lines across.
        down: The lines down.
        xs: How far right columns begin and end.
        ys: How high rows begin and end, from the top.
    """

    across: list[Ruling]
    down: list[Ruling]
    xs: list[float]
    ys: list[float]


def may_have_columns(text: str) -> bool:
    """Whether a page has enough lines that end with figures near one another for a table without lines."""
    numbers = [number for number, line in enumerate(text.split("\n")) if _FIGURE_AT_END.search(line)]
    return any(third - first <= _NEAR_LINES for first, third in zip(numbers, numbers[2:], strict=False))


def find_tables(
    text: str, boxes: Mapping[int, Box], frames: Iterable[Frame], is_code: Callable[[int], bool]
) -> list[PdfTable]:
    """Find the tables of a page.

    Args:
        text: The page's text.
        boxes: Where its characters stand, by their places in it, without white space.
        frames: The lines on it that may rule tables.
        is_code: Whether a character, told by its place, is of a font for code.
    """
    tables = [table for frame in frames for table in _ruled_table(text, boxes, frame)]
    within = {place for table in tables for place in table.characters}
    free = {place: box for place, box in boxes.items() if place not in within}
    aligned = _aligned_tables(text, free) if may_have_columns(text) else ()
    return [*tables, *(table for table in aligned if not is_code(min(table.characters)))]


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
    return on_one_line("".join(parts))


# Tables with lines


def _joined(rulings: Iterable[Ruling]) -> list[Ruling]:
    """Lines, with the pieces of one as one; none where there are as many as in a drawing."""
    joined: list[Ruling] = []
    for ruling in sorted(rulings, key=lambda ruling: (round(ruling.place / _TOUCHING), ruling.start)):
        last = joined[-1] if joined else ruling
        if joined and abs(ruling.place - last.place) < _TOUCHING and ruling.start <= last.end + _TOUCHING:
            joined[-1] = Ruling(last.place, last.start, max(last.end, ruling.end))
        else:
            joined.append(ruling)
    return joined if len(joined) <= _MOST_RULINGS else []


def find_frames(across: Iterable[Ruling], down: Iterable[Ruling]) -> list[Frame]:
    """The lines that touch one another, where they have two rows and two columns at least."""
    groups: list[tuple[list[Ruling], list[Ruling]]] = [([ruling], []) for ruling in _joined(across)]
    for ruling in _joined(down):
        touched = [group for group in groups if any(_cross(row, ruling) for row in group[0])]
        rows = [row for group in touched for row in group[0]]
        columns = [column for group in touched for column in group[1]]
        groups = [group for group in groups if group not in touched]
        groups.append((rows, [*columns, ruling]))
    frames: list[Frame] = []
    for rows, columns in groups:
        xs = _distinct([*(ruling.place for ruling in columns), *(end for row in rows for end in row[1:])])
        ys = _distinct([*(ruling.place for ruling in rows), *(end for column in columns for end in column[1:])])
        if columns and min(len(xs), len(ys)) > 2:
            frames.append(Frame(rows, columns, xs, ys[::-1]))
    return frames


def _ruled_table(text: str, boxes: Mapping[int, Box], frame: Frame) -> Iterator[PdfTable]:
    cells = _framed_cells(text, boxes, frame)
    grid = list(rows_with_text({place: cell for place, (cell, _) in cells.items()}).values())
    if _is_table(grid):
        yield PdfTable(grid, {place for _, inside in cells.values() for place in inside}, frame.xs)


def _cross(row: Ruling, column: Ruling) -> bool:
    return _covers(row, column.place, _TOUCHING) and _covers(column, row.place, _TOUCHING)


def _covers(ruling: Ruling, point: float, tolerance: float = 0) -> bool:
    return ruling.start - tolerance <= point <= ruling.end + tolerance


def _distinct(values: Iterable[float]) -> list[float]:
    distinct: list[float] = []
    for value in sorted(values):
        if not distinct or value > distinct[-1] + _TOUCHING:
            distinct.append(value)
    return distinct


def _framed_cells(text: str, boxes: Mapping[int, Box], frame: Frame) -> dict[tuple[int, int], tuple[Cell, list[int]]]:
    """The cells of a frame by row and column, with the places of their characters.

    Where no line parts two neighbours, they are one cell.
    """
    inside: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    heights = [-y for y in frame.ys]
    for place, box in boxes.items():
        row = bisect(heights, -_height(box)) - 1
        column = bisect(frame.xs, (box.left + box.right) / 2) - 1
        inside[row, column].append(place)
    cells: dict[tuple[int, int], tuple[Cell, list[int]]] = {}
    for row, column in product(range(len(frame.ys) - 1), range(len(frame.xs) - 1)):
        if (row, column) not in cells:
            middle_x = (frame.xs[column] + frame.xs[column + 1]) / 2
            middle_y = (frame.ys[row] + frame.ys[row + 1]) / 2
            right = _end_of_cell(frame.xs, column, frame.down, middle_y)
            bottom = _end_of_cell(frame.ys, row, frame.across, middle_x)
            spanned = list(product(range(row, bottom), range(column, right)))
            characters = [place for spot in spanned for place in inside[spot]]
            cell = Cell(_cell_text(text, characters), bottom - row, right - column)
            cells.update(dict.fromkeys(spanned, (cell, characters)))
    return cells


def _end_of_cell(lines: Sequence[float], start: int, rulings: Sequence[Ruling], at: float) -> int:
    """The number of the line that a cell ends at."""
    end = start + 1
    while end < len(lines) - 1 and not any(
        abs(ruling.place - lines[end]) <= _TOUCHING and _covers(ruling, at) for ruling in rulings
    ):
        end += 1
    return end


def _is_table(grid: Grid) -> bool:
    """Whether what lines enclose are rows and columns, and no boxes of text or parts of a drawing."""
    full = [row for row in grid if len(cells_of(row)) > 1]
    if len(full) < 2 or len(grid[0]) < 2:
        return False
    cells = [cell for row in grid for cell in row]
    filled = sum(bool(cell.text) for cell in cells)
    return filled >= _LEAST_FILLED * len(cells) and all(len(cell.text) <= _LONGEST_CELL for cell in cells)


# Tables without lines

_WIDE_GAP = 1.2  # of the height of characters: what is farther apart on a line is in two columns
_NEXT_LINE = 2.6  # of the height of characters, from the middle of a line to that of the next of a table
_MOST_OTHER_LINES = 2  # without figures, between two with figures
_MOST_HEADER_LINES = 3
_OFF_MIDDLE = 0.15  # of the width of columns, that the name of a group may stand beside their middle
_OF_FIGURES = 0.7  # share of a column's cells that are figures
_NIL = ("-", "–", "—", "―", "−", "n/a", "N/A")
_SIGNS = ("$", "€", "£", "¥", "￥", "(", "△", "▲")
_LEADERS = (". . .", "....", "……", "・・・")


@dataclass
class _Fragment:
    """A stretch of a line without a wide gap."""

    box: Box
    characters: list[int]
    text: str = ""

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
        characters = [place for line in lines[header : last + 1] for part in line for place in part.characters]
        yield PdfTable(grid, characters, [column.left for column in columns])


def _lines(text: str, boxes: Mapping[int, Box]) -> list[_Line]:
    fragments: list[_Fragment] = []
    for place, box in boxes.items():
        last = fragments[-1] if fragments else None
        if last and _is_next(last.box, box):
            last.box = _around(last.box, box)
            last.characters.append(place)
        else:
            fragments.append(_Fragment(box, [place]))
    lines: list[_Line] = []
    for fragment in sorted(fragments, key=lambda fragment: -_height(fragment.box)):
        fragment.text = _cell_text(text, fragment.characters)
        if lines and lines[-1][0].box.bottom < _height(fragment.box) < lines[-1][0].box.top:
            lines[-1].append(fragment)
        else:
            lines.append([fragment])
    return [_with_signs(sorted(line, key=lambda fragment: fragment.box.left)) for line in lines]


def _height(box: Box) -> float:
    return (box.bottom + box.top) / 2


def _around(first: Box, second: Box) -> Box:
    return Box(
        min(first.left, second.left),
        min(first.bottom, second.bottom),
        max(first.right, second.right),
        max(first.top, second.top),
    )


def _is_next(before: Box, box: Box) -> bool:
    size = before.top - before.bottom
    return before.bottom < _height(box) < before.top and -size < box.left - before.right < _WIDE_GAP * size


def _with_signs(line: _Line) -> _Line:
    """A line in which a currency's sign that stands apart is with its figure."""
    joined: _Line = []
    for fragment in line:
        if joined and (joined[-1].text in _SIGNS or fragment.text in (")", "%")):
            last = joined[-1]
            joined[-1] = _Fragment(
                _around(last.box, fragment.box), last.characters + fragment.characters, last.text + fragment.text
            )
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
            columns[-1] = _around(columns[-1], fragment.box)
        else:
            columns.append(fragment.box)
    cells = [[_column_of(fragment, columns) for fragment in line] for line in lines]
    if len(columns) < 2 or any(len({*numbers}) < len(numbers) for numbers in cells):
        return []
    below = [[line[n.index(c)] for line, n in zip(lines, cells, strict=True) if c in n] for c in range(1, len(columns))]
    return columns if any(map(_is_of_figures, below)) else []


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


def _is_aligned(values: Sequence[float]) -> bool:
    """Whether most values are the same, but for a closing bracket or a minus sign."""
    middle = sorted(values)[len(values) // 2]
    return sum(abs(value - middle) <= 2 * _TOUCHING for value in values) >= _OF_FIGURES * len(values)


def _is_list(lines: Sequence[_Line]) -> bool:
    """Whether the figures are numbers of pages, as in a table of contents."""
    last = [line[-1].text for line in lines if _has_figures(line)]
    is_counted = all(text.isdecimal() for text in last) and all(int(a) <= int(b) for a, b in pairwise(last))
    has_leaders = any(mark in fragment.text for line in lines for fragment in line for mark in _LEADERS)
    return has_leaders or (is_counted and all(len(line) <= 2 for line in lines))


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
    return is_beside and all(_column_of(part, columns) > 0 or _spans(part, columns) <= 1 for part in line)


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
    first = [Cell(line[0].text)] if _column_of(line[0], columns) == 0 else []
    parts = line[len(first) :]
    size, rest = divmod(len(columns) - 1, len(parts) or 1)
    groups = [columns[n : n + size] for n in range(1, len(columns), size)] if size and not rest else []
    if size < 2 or not groups or not all(map(_is_above_middle, parts, groups)):
        return _row([line], columns)
    cells = [cell for part in parts for cell in [Cell(part.text, columns=size)] * size]
    return [*(first or [Cell()]), *cells]


def _is_above_middle(part: _Fragment, columns: Sequence[Box]) -> bool:
    middle = (columns[0].left + columns[-1].right) / 2
    return abs(part.middle - middle) <= _OFF_MIDDLE * (columns[-1].right - columns[0].left)


def _row(lines: Sequence[_Line], columns: Sequence[Box]) -> list[Cell]:
    texts: dict[int, str] = {}
    for line in lines:
        for part in line:
            column = _column_of(part, columns)
            texts[column] = on_one_line(f"{texts.get(column, '')}\n{part.text}")
    return [Cell(texts.get(column, "")) for column in range(len(columns))]
