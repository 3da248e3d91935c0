"""Finds the tables on a page of a PDF: cells between ruling lines, or aligned figures.

If neither clearly shows rows and columns there is no table, and the page's text stays as it is.
Coordinates are in points from the top left.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, dropwhile, pairwise, product
from typing import NamedTuple

from llama_pack_densex.reading.pdf_lines import Boxes, Line, right_of, rows_of
from llama_pack_densex.reading.tables import (
    Cell,
    Grid,
    Row,
    cells_of,
    is_figure,
    read_header,
    rows_with_text,
    runs,
)
from llama_pack_densex.text.tokens import LEADER, on_one_line, words

# Marks of hyphenation, characters from broken fonts, and spaces after a currency sign.
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]\s*|(?<=[$€£¥￥(△▲]) +(?=\d)")
_LEAST_FILLED = 0.5  # share of a table's cells that have text


class Ruling(NamedTuple):
    """A horizontal or vertical line on a page.

    Args:
        position: Its distance from the top (horizontal) or left (vertical) of the page.
        start: Where it begins.
        end: Where it ends.
    """

    position: float
    start: float
    end: float


class PdfTable(NamedTuple):
    """A table of a page.

    Args:
        grid: Its cells.
        places: The places of its characters in the page's text.
        edges: The edges of its columns: all of them in a table with lines, else the left ones.
    """

    grid: Grid
    places: Collection[int]
    edges: Sequence[float]

    def below(self, upper: PdfTable) -> PdfTable:
        """Return this table with the header of one on the page before, if it continues that without it."""
        texts = [cell.text for cell in self.grid[0]]
        upper_texts = [cell.text for cell in upper.grid[0]]
        if self.edges != upper.edges or texts == upper_texts:
            return self
        _, depth = read_header(upper.grid)
        return self._replace(grid=upper.grid[:depth] + self.grid)


def find_tables(
    text: str,
    boxes: Boxes,
    frames: Iterable[Frame],
    is_code: Callable[[int], bool],
) -> list[PdfTable]:
    """Find the tables of a page.

    Args:
        text: The page's text.
        boxes: The boxes of its characters.
        frames: The lines on it that may rule tables.
        is_code: Returns whether the character at a place is in a font for code.
    """
    tables = list(filter(None, (_ruled_table(text, boxes, frame) for frame in frames)))
    within = {place for table in tables for place in table.places}
    free = {place: box for place, box in boxes.items() if place not in within}
    for table in _aligned_tables(text, free):
        if not is_code(min(table.places)) and not is_code(max(table.places)):
            tables.append(table)
    return tables


def _text_of(text: str, places: Collection[int]) -> str:
    """Return the text of a cell, whose lines may be apart in the page's text."""
    if not places:
        return ""
    stretch = range(min(places), max(places) + 1)
    characters = (
        text[place] if place in places or text[place] == " " else "\n" for place in stretch
    )
    return on_one_line(_NO_TEXT.sub("", "".join(characters)))


# Tables with lines

_TOUCHING = 3.0  # points between lines that are meant to touch
_MOST_RULINGS = 2_000  # per page; a page with more is a drawing
_LONGEST_CELL = 600  # characters
_MANY_LINES = 3  # of text in each cell: then there are several rows, without lines between them

_Positions = Sequence[float]
"""Positions of lines, in order."""

_Rulings = Sequence[Ruling]

_Slot = tuple[float, float]
"""The top of a row and the left of a column."""

_Cells = dict[_Slot, _Slot]


class Frame(NamedTuple):
    """Lines that may rule a table.

    Args:
        xs: The edges of columns, from the left.
        ys: The edges of rows, from the top.
        cells: Maps each slot to the first slot of its cell, which may span several.
    """

    xs: _Positions
    ys: _Positions
    cells: _Cells


def find_frames(across: _Rulings, down: _Rulings) -> Iterator[Frame]:
    """Yield groups of adjacent vertical lines, with the horizontal ones across them, as possible tables."""
    if len(across) + len(down) > _MOST_RULINGS:
        return
    for columns in runs(sorted(down, key=lambda ruling: ruling.start), _is_beside):
        top = columns[0].start
        bottom = max(ruling.end for ruling in columns)
        rows = [
            ruling for ruling in across if top - _TOUCHING <= ruling.position <= bottom + _TOUCHING
        ]
        ends = (end for _, *both_ends in rows for end in both_ends)
        xs = _distinct([*(ruling.position for ruling in columns), *ends])
        ys = _distinct([top, bottom, *(ruling.position for ruling in rows)])
        yield Frame(xs, ys, _cells(columns, rows, xs, ys))


def _is_beside(run: _Rulings, ruling: Ruling) -> bool:
    return ruling.start <= max(other.end for other in run) + _TOUCHING


def _distinct(values: Iterable[float]) -> list[float]:
    touching = runs(sorted(values), lambda run, value: value <= run[-1] + _TOUCHING)
    return [run[0] for run in touching]


def _values_between(first: float, end: float, values: _Positions) -> list[float]:
    return [value for value in values if first <= value < end]


def _cells(
    columns: _Rulings,
    rows: _Rulings,
    xs: _Positions,
    ys: _Positions,
) -> _Cells:
    """Map each slot to the first slot of its cell; empty if cells overlap, as in a drawing."""
    below = cache(partial(_crossing, rows, ys))
    cells: _Cells = {}
    for top, bottom in pairwise(ys):
        for left, right in pairwise(_crossing(columns, xs, (top + bottom) / 2)):
            if (top, left) in cells:
                continue
            end = next(y for y in below((left + right) / 2) if y > top)
            spanned = product(_values_between(top, end, ys), _values_between(left, right, xs))
            slots = dict.fromkeys(spanned, (top, left))
            if cells.keys() & slots.keys():
                return {}
            cells |= slots
    return cells if len(cells) == (len(xs) - 1) * (len(ys) - 1) else {}


def _crossing(rulings: _Rulings, places: _Positions, middle: float) -> list[float]:
    """Return the edges at which lines cross the middle of a row or column; the outermost always count."""
    crossing = {places[0], places[-1]}
    for ruling in rulings:
        if ruling.start <= middle <= ruling.end:
            crossing.add(places[bisect(places, ruling.position) - 1])
    return sorted(crossing)


def _ruled_table(text: str, boxes: Boxes, frame: Frame) -> PdfTable | None:
    """Return the table in a frame; None for boxes of text, drawings, and rows without lines between them."""
    places: defaultdict[_Slot, set[int]] = defaultdict(set)
    line_ys: defaultdict[_Slot, list[float]] = defaultdict(list)
    for place, box in boxes.items():
        row = frame.ys[bisect(frame.ys, box.y) - 1]
        column = frame.xs[bisect(frame.xs, box.x) - 1]
        slot = (row, column)
        if slot in frame.cells:
            line_ys[slot].append(box.y)
            places[frame.cells[slot]].add(place)
    cells = {first: Cell(_text_of(text, places[first])) for first in frame.cells.values()}
    rows = rows_with_text({slot: cells[first] for slot, first in frame.cells.items()})
    grid = list(rows.values())
    if not _is_table(grid) or _has_undivided_rows(line_ys):
        return None
    return PdfTable(grid, {*chain(*places.values())}, frame.xs)


def _is_table(grid: Grid) -> bool:
    """Return whether a grid is a table, and not boxes of text or parts of a drawing."""
    full = [row for row in grid if len(cells_of(row)) > 1]
    texts = [cell.text for cell in {*chain(*grid)}]
    is_filled = sum(map(bool, texts)) >= _LEAST_FILLED * len(texts)
    return len(full) > 1 and is_filled and max(map(len, texts)) <= _LONGEST_CELL


def _has_undivided_rows(line_ys: Mapping[_Slot, _Positions]) -> bool:
    """Return whether all cells of a row have as many lines of text as several rows would."""
    lines: defaultdict[float, list[int]] = defaultdict(list)
    for (row, _), of_cell in line_ys.items():
        lines[row].append(len(_distinct(of_cell)))
    return any(len(counts) > 1 and min(counts) >= _MANY_LINES for counts in lines.values())


# Tables without lines

_LEAST_ROWS = 3  # rows with figures
_WIDE_GAP = 1.2  # times the size of characters; text across a wider gap is in another column
# the same before a currency sign, which may be at the left of its column
_WIDE_GAP_BEFORE_SIGN = 0.5
_WIDE_GAP_BEHIND_SIGN = 20.0
# times the size of characters, from the middle of a table's line to that of the next
_NEXT_LINE = 2.6
_MOST_OTHER_LINES = 2  # lines without figures between two with figures
_MOST_LINES_ABOVE = 5  # lines of a header and the first section's name
_MOST = 0.7  # share of a column's cells
_LONG_LINE = 18.0  # times the size of characters: the length of lines in columns of prose
_NIL = words("- – — ― − n/a N/A")
_SIGNS = "$€£¥￥(△▲"
_FIGURE_AT_END = r"(?:^|[\s$€£¥￥(△▲−-])\d[\d.,]*[)）%％円]?[^\S\n]*$"
_FIGURES_IN_LINES = re.compile(rf"(?m)(?:{_FIGURE_AT_END}(?:\n.*){{1,3}}?){{2}}{_FIGURE_AT_END}")


def may_have_columns(text: str) -> bool:
    """Return whether a page has nearby lines that end in figures, as a table without ruling lines has."""
    return _FIGURES_IN_LINES.search(text) is not None


_Line = list[Line]
"""The pieces of a line, from left to right."""

_Columns = Sequence[tuple[float, float]]
"""The left and right edges of columns."""


def _aligned_tables(text: str, boxes: Boxes) -> Iterator[PdfTable]:
    lines = rows_of(_pieces(text, boxes))
    rows = [number for number, line in enumerate(lines) if _has_figures(line)]
    for stretch in runs(rows, lambda run, number: _is_near(lines, run[-1], number)):
        columns = _columns([lines[number] for number in stretch])
        if columns:
            end = _end(lines, stretch[-1], columns)
            table = [*_lines_above(lines, stretch[0], columns), *lines[stretch[0] : end]]
            places = [place for piece in chain(*table) for place in piece.places]
            yield PdfTable(_grid(table, columns), places, [left for left, _ in columns])


def _pieces(text: str, boxes: Boxes) -> Iterator[Line]:
    def goes_on(run: list[int], place: int) -> bool:
        if place == run[-1] + 1:  # PDFium puts spaces into gaps
            return True
        widest = _WIDE_GAP
        if text[place] in _SIGNS:
            widest = _WIDE_GAP_BEFORE_SIGN
        if len(run) == 1 and text[run[0]] in _SIGNS:
            widest = _WIDE_GAP_BEHIND_SIGN
        return boxes[place].follows(boxes[run[-1]], widest)

    for run in runs(boxes, goes_on):
        box = boxes[run[0]]._replace(right=boxes[run[-1]].right)
        yield Line(_text_of(text, run), run, box)


def _has_figures(line: _Line) -> bool:
    return any(is_figure(piece.text) for piece in line[1:])


def _is_near(lines: Sequence[_Line], first: int, last: int) -> bool:
    """Return whether two lines may belong to one table."""
    box = lines[first][0].box
    steps = last - first
    step = (lines[last][0].box.y - box.y) / steps
    return steps - 1 <= _MOST_OTHER_LINES and step <= _NEXT_LINE * box.size


def _columns(rows: Sequence[_Line]) -> _Columns:
    """Return the columns of rows; none if these are not a table."""
    pieces = sorted(chain(*rows), key=lambda piece: piece.box.left)
    columns = runs(pieces, lambda run, piece: piece.box.left <= right_of(run))
    is_sparse = len(pieces) < _LEAST_FILLED * len(rows) * len(columns)
    if is_sparse or any(len(column) > len(rows) or _is_prose(column) for column in columns):
        return []
    if _is_contents(rows) or not any(map(_is_of_figures, columns[1:])):
        return []
    return [(column[0].box.left, right_of(column)) for column in columns]


def _is_of_figures(cells: Sequence[Line]) -> bool:
    figures = sum(is_figure(cell.text) or cell.text in _NIL for cell in cells)
    return figures >= max(_LEAST_ROWS, _MOST * len(cells))


def _is_prose(cells: Sequence[Line]) -> bool:
    long = sum(cell.box.width > _LONG_LINE * cell.box.size for cell in cells)
    return long >= _MOST * len(cells)


def _is_contents(rows: Sequence[_Line]) -> bool:
    """Return whether the figures are page numbers, as in a table of contents."""
    last = [row[-1].text for row in rows]
    has_leaders = any(re.search(LEADER, piece.text) for piece in chain(*rows))
    is_only_column = not any(_has_figures(row[:-1]) for row in rows)
    rises = all(map(str.isdecimal, last)) and last == sorted(last, key=int)
    return has_leaders or (is_only_column and rises)


def _numbers(piece: Line, columns: _Columns) -> list[int]:
    """Return the numbers of the columns that a piece overlaps, or of the nearest one."""
    gaps = [max(piece.box.left - right, left - piece.box.right, 0) for left, right in columns]
    return [number for number, gap in enumerate(gaps) if gap == min(gaps)]


def _is_label(line: _Line, columns: _Columns) -> bool:
    return len(line) == 1 and _numbers(line[0], columns) == [0]


def _lines_above(lines: Sequence[_Line], first: int, columns: _Columns) -> Iterator[_Line]:
    """Return the lines above the first row that name columns, and below them the first section's name."""
    start = first
    while start and first - start < _MOST_LINES_ABOVE and _is_near(lines, start - 1, start):
        spans = [_numbers(piece, columns) for piece in lines[start - 1]]
        if any(span[0] == 0 and len(span) > 1 for span in spans):  # a line of prose
            break
        start -= 1
    return dropwhile(lambda line: _is_label(line, columns), lines[start:first])


def _end(lines: Sequence[_Line], last: int, columns: _Columns) -> int:
    """Return the number of the line below a table; lines without a first column continue its last row."""
    end = last + 1
    while end < len(lines) and _is_near(lines, end - 1, end):
        if any(_numbers(piece, columns)[0] == 0 for piece in lines[end]):
            break
        end += 1
    return end


def _grid(lines: Sequence[_Line], columns: _Columns) -> Grid:
    """Return a row of column names, if there are any, and each row joined with the lines that continue it."""

    def goes_on(row: list[_Line], line: _Line) -> bool:
        is_in_row = not _begins_row(row[0], columns) or _numbers(line[0], columns)[0] > 0
        return is_in_row and not _begins_row(line, columns)

    return [_row(row, columns) for row in runs(lines, goes_on)]


def _begins_row(line: _Line, columns: _Columns) -> bool:
    """Return whether a line begins a row, and does not hold names of columns."""
    return _has_figures(line) or _is_label(line, columns)


def _row(lines: Sequence[_Line], columns: _Columns) -> Row:
    is_name = not _begins_row(lines[0], columns)
    texts = [_texts(line, columns, is_name) for line in lines]
    return [Cell(on_one_line("\n".join(parts)), is_name) for parts in zip(*texts, strict=True)]


def _texts(line: _Line, columns: _Columns, are_names: bool) -> list[str]:
    """Return the text of a line in each column; names that are evenly spread cover all columns near them."""
    texts = [""] * len(columns)
    for piece in line:
        for number in _numbers(piece, columns):
            texts[number] = f"{texts[number]} {piece.text}"
    names = [piece for piece in line if _numbers(piece, columns) != [0]]
    if not are_names or len(names) < 2:
        return texts
    return [texts[0], *(_spread(names, columns[1:]) or texts[1:])]


def _spread(names: _Line, columns: _Columns) -> list[str]:
    """Return the nearest name for each column; empty if the names are not evenly spread."""
    middles = [(left + right) / 2 for left, right in columns]
    nearest = [min(names, key=lambda name: abs(name.box.x - middle)) for middle in middles]
    counts = {nearest.count(name) for name in names}
    return [name.text for name in nearest] if len(counts) == 1 else []
