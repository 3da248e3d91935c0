"""Tables on a page of a PDF: cells within ruling lines, or figures below one another.

Where neither shows rows and columns for sure there is no table, and the page's text stays as it is. Coordinates are in
points from the top left.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, dropwhile, pairwise, product, takewhile
from typing import NamedTuple

from llama_pack_densex.reading.tables import Cell, Grid, Row, cells_of, is_figure, read_header, rows_with_text
from llama_pack_densex.text.tokens import on_one_line

_TOUCHING = 3.0  # points between lines that are meant to touch, and between what is meant to be aligned
# Marks of hyphenation, what broken fonts leave, and spaces behind a currency's sign.
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]\s*|(?<=[$€£¥￥(△▲]) +(?=\d)")


class Ruling(NamedTuple):
    """A straight line across or down a page.

    Args:
        place: How far down it is, or how far right.
        start: Where it begins.
        end: Where it ends.
    """

    place: float
    start: float
    end: float


class Box(NamedTuple):
    """Where something stands on a page."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """How far right its middle is."""
        return (self.left + self.right) / 2

    @property
    def height(self) -> float:
        """How far down its middle is."""
        return (self.top + self.bottom) / 2


@dataclass(frozen=True)
class PdfTable:
    """A table of a page.

    Args:
        grid: Its cells.
        places: Where its characters are in the page's text.
        edges: Where its columns begin.
    """

    grid: Grid
    places: Collection[int]
    edges: Sequence[float]

    def below(self, upper: PdfTable) -> PdfTable:
        """This table with the names of the one on the page before, where it goes on with that without them."""
        _, depth = read_header(upper.grid)
        header = upper.grid[:depth]
        texts = [[cell.text for cell in rows[0]] for rows in (self.grid, upper.grid)]
        if self.edges != upper.edges or texts[0] == texts[1]:
            return self
        return replace(self, grid=[*header, *self.grid])


def _text_of(text: str, places: Collection[int]) -> str:
    """The text of a cell, whose lines may stand apart in the page's."""
    stretch = range(min(places, default=0), max(places, default=-1) + 1)
    characters = (text[place] if place in places or text[place] == " " else "\n" for place in stretch)
    return on_one_line(_NO_TEXT.sub("", "".join(characters)))


def _merged(spans: Iterable[tuple[float, float]], gap: float = _TOUCHING) -> list[tuple[float, float]]:
    """Spans in order, those that overlap or nearly touch as one."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + gap:
            start, last = merged.pop()
            end = max(end, last)
        merged.append((start, end))
    return merged


def _distinct(values: Iterable[float]) -> list[float]:
    return [first for first, _ in _merged((value, value) for value in values)]


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
        is_code: Whether the character at a place is of a font for code.
    """
    ruled = [_ruled_table(text, boxes, frame) for frame in frames]
    tables = [table for table in ruled if table]
    within = {place for table in tables for place in table.places}
    free = {place: box for place, box in boxes.items() if place not in within}
    for table in _aligned_tables(text, free):
        if not is_code(min(table.places)) and not is_code(max(table.places)):
            tables.append(table)
    return tables


# Tables with lines

_MOST_RULINGS = 2_000  # of a page: what has more is a drawing
_LONGEST_CELL = 600  # characters
_LEAST_FILLED = 0.5  # share of a table's cells in which something stands
_MANY_LINES = 3  # of text in each cell: several rows that no line parts

_Slot = tuple[int, int]
"""A row and a column."""


class Frame(NamedTuple):
    """Lines that may rule a table.

    Args:
        xs: How far right columns begin and end.
        ys: How far down rows begin and end.
        cells: For each row and column the first one of its cell, which may span several.
    """

    xs: Sequence[float]
    ys: Sequence[float]
    cells: Mapping[_Slot, _Slot]

    def slot_at(self, box: Box) -> _Slot:
        """The row and column that something stands in, or numbers that no row or column has."""
        return bisect(self.ys, box.height) - 1, bisect(self.xs, box.middle) - 1


def find_frames(across: Sequence[Ruling], down: Sequence[Ruling]) -> list[Frame]:
    """The lines down that are next to one another with those across them, if they make two rows and columns at least."""
    if len(across) + len(down) > _MOST_RULINGS:
        return []
    heights = _merged((ruling.start, ruling.end) for ruling in down)
    frames = [_frame(across, down, top, bottom) for top, bottom in heights]
    return [frame for frame in frames if min(len(frame.xs), len(frame.ys)) > 2]


def _frame(across: Sequence[Ruling], down: Sequence[Ruling], top: float, bottom: float) -> Frame:
    columns = [ruling for ruling in down if top <= ruling.start <= bottom]
    left = min(ruling.place for ruling in columns) - _TOUCHING
    right = max(ruling.place for ruling in columns) + _TOUCHING
    rows = [ruling for ruling in across if top - _TOUCHING <= ruling.place <= bottom + _TOUCHING]
    rows = [ruling for ruling in rows if ruling.start <= right and left <= ruling.end]
    ends = [end for ruling in rows for end in ruling[1:]]
    xs = _distinct([ruling.place for ruling in columns] + ends)
    ys = _distinct([ruling.place for ruling in rows] + [top, bottom])
    beside = _walls(columns, xs, ys)
    above = _walls(rows, ys, xs)
    cells: dict[_Slot, _Slot] = {}
    for slot in product(range(len(ys) - 1), range(len(xs) - 1)):
        row, column = slot
        if slot not in cells:
            right = next(x for x in range(column + 1, len(xs)) if x + 1 == len(xs) or (x, row) in beside)
            bottom_ = next(y for y in range(row + 1, len(ys)) if y + 1 == len(ys) or (y, column) in above)
            slots = dict.fromkeys(product(range(row, bottom_), range(column, right)), slot)
            if cells.keys() & slots.keys():
                return Frame([], [], {})  # what overlaps is a drawing
            cells |= slots
    return Frame(xs, ys, cells)


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


def _ruled_table(text: str, boxes: Mapping[int, Box], frame: Frame) -> PdfTable | None:
    """The table in a frame; None for boxes of text, for drawings, and where no lines part rows."""
    places: defaultdict[_Slot, list[int]] = defaultdict(list)
    heights: defaultdict[_Slot, list[float]] = defaultdict(list)
    for place, box in boxes.items():
        slot = frame.slot_at(box)
        if slot in frame.cells:
            heights[slot].append(box.height)
            places[frame.cells[slot]].append(place)
    cells = {first: Cell(_text_of(text, {*places[first]})) for first in frame.cells.values()}
    grid = list(rows_with_text({slot: cells[first] for slot, first in frame.cells.items()}).values())
    if not _is_table(grid) or _has_unparted_rows(heights):
        return None
    return PdfTable(grid, {*chain(*places.values())}, frame.xs)


def _has_unparted_rows(heights: Mapping[_Slot, Sequence[float]]) -> bool:
    """Whether each cell of a row has as many lines of text as several rows would."""
    counts: defaultdict[int, list[int]] = defaultdict(list)
    for (row, _), of_slot in heights.items():
        counts[row].append(len(_distinct(of_slot)))
    return any(len(lines) > 1 and min(lines) >= _MANY_LINES for lines in counts.values())


def _is_table(grid: Grid) -> bool:
    """Whether what lines enclose are rows and columns, and no boxes of text or parts of a drawing."""
    full = [row for row in grid if len(cells_of(row)) > 1]
    texts = [cell.text for cell in {cell for row in grid for cell in row}]
    is_filled = sum(map(bool, texts)) >= _LEAST_FILLED * len(texts)
    return len(full) > 1 and is_filled and max(map(len, texts)) <= _LONGEST_CELL


# Tables without lines

_LEAST_ROWS = 3  # with figures
_WIDE_GAP = 1.2  # of the height of characters: what is farther apart on a line is in two columns
_WIDE_GAP_BEFORE_SIGN = 0.5  # the same before a currency's sign, which stands at the left of its column
_WIDE_GAP_BEHIND_SIGN = 20.0
_NEXT_LINE = 2.6  # of the height of characters, from the middle of a line to that of the next of a table
_MOST_OTHER_LINES = 2  # without figures, between two with figures
_MOST_LINES_ABOVE = 5  # of a header and the first section's name
_OF_FIGURES = 0.7  # share of a column's cells that are figures
_LONG_LINE = 18.0  # of the height of characters: as long as those in columns of prose
_NIL = ("-", "–", "—", "―", "−", "n/a", "N/A")
_SIGNS = ("$", "€", "£", "¥", "￥", "(", "△", "▲")
_FIGURE_AT_END = r"(?:^|[\s$€£¥￥(△▲−-])\d[\d.,]*[)）%％円]?[^\S\n]*$"
_FIGURES_IN_LINES = re.compile(rf"(?m)(?:{_FIGURE_AT_END}(?:\n.*){{1,3}}?){{2}}{_FIGURE_AT_END}")


def may_have_columns(text: str) -> bool:
    """Whether a page has lines that end with figures near one another, as a table without lines has."""
    return _FIGURES_IN_LINES.search(text) is not None


class _Piece(NamedTuple):
    """A stretch of a line without a wide gap."""

    text: str
    places: range
    box: Box

    @property
    def is_amount(self) -> bool:
        return is_figure(self.text) or self.text in _NIL


_Line = list[_Piece]
"""The pieces of a line from the left."""

_Columns = Sequence[tuple[float, float]]
"""Where columns begin and end."""


def _aligned_tables(text: str, boxes: Mapping[int, Box]) -> Iterator[PdfTable]:
    lines = _lines(_pieces(text, boxes))
    stretches: list[list[int]] = []
    for number in filter(lambda number: _has_figures(lines[number]), range(len(lines))):
        if stretches and _is_near(lines, stretches[-1][-1], number):
            stretches[-1].append(number)
        else:
            stretches.append([number])
    for stretch in stretches:
        rows = [lines[number] for number in stretch]
        columns = _columns(rows)
        if columns:
            yield _aligned_table(lines, stretch[0], stretch[-1], columns)


def _pieces(text: str, boxes: Mapping[int, Box]) -> list[_Piece]:
    ends: list[tuple[int, int]] = []
    for place in boxes:
        first = place
        if ends and _is_next(text, boxes, ends[-1], place):
            first, _ = ends.pop()
        ends.append((first, place))
    pieces = []
    for first, last in ends:
        places = range(first, last + 1)
        box = boxes[first]._replace(right=boxes[last].right)
        pieces.append(_Piece(_text_of(text, places), places, box))
    return pieces


def _is_next(text: str, boxes: Mapping[int, Box], ends: tuple[int, int], place: int) -> bool:
    first, last = ends
    before = boxes[last]
    box = boxes[place]
    widest = _WIDE_GAP
    if text[place] in _SIGNS:
        widest = _WIDE_GAP_BEFORE_SIGN
    if text[first : last + 1] in _SIGNS:
        widest = _WIDE_GAP_BEHIND_SIGN
    size = before.bottom - before.top
    return -size < box.left - before.right < widest * size and before.top < box.height < before.bottom


def _lines(pieces: Iterable[_Piece]) -> list[_Line]:
    lines: list[_Line] = []
    for piece in sorted(pieces, key=lambda piece: piece.box.height):
        if lines and lines[-1][0].box.top < piece.box.height < lines[-1][0].box.bottom:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [sorted(line, key=lambda piece: piece.box.left) for line in lines]


def _has_figures(line: _Line) -> bool:
    return any(is_figure(piece.text) for piece in line[1:])


def _is_near(lines: Sequence[_Line], first: int, last: int, most: float = _NEXT_LINE) -> bool:
    """Whether two lines may be of one table."""
    box = lines[first][0].box
    distance = lines[last][0].box.height - box.height
    step = distance / (last - first)
    return last - first - 1 <= _MOST_OTHER_LINES and step <= most * (box.bottom - box.top)


def _columns(rows: Sequence[_Line]) -> _Columns:
    """The columns of rows; none where these are no table."""
    columns = _merged(((piece.box.left, piece.box.right) for row in rows for piece in row), gap=0)
    cells = [[piece for row in rows for piece in row if _numbers(piece, columns)[0] == n] for n in range(len(columns))]
    is_double = any(len({_numbers(piece, columns)[0] for piece in row}) < len(row) for row in rows)
    is_filled = len([*chain(*rows)]) >= _LEAST_FILLED * len(rows) * len(columns)
    if len(rows) < _LEAST_ROWS or is_double or not is_filled or _is_contents(rows):
        return []
    return columns if any(map(_is_of_figures, cells[1:])) and not any(map(_is_prose, cells)) else []


def _numbers(piece: _Piece, columns: _Columns) -> list[int]:
    """The numbers of the columns that a piece is above or in, or of that which is nearest to it."""
    gaps = [max(piece.box.left - right, left - piece.box.right, 0) for left, right in columns]
    return [number for number, gap in enumerate(gaps) if gap == min(gaps)]


def _is_of_figures(cells: Sequence[_Piece]) -> bool:
    figures = sum(cell.is_amount for cell in cells)
    return figures >= max(_LEAST_ROWS, _OF_FIGURES * len(cells))


def _is_prose(cells: Sequence[_Piece]) -> bool:
    long = [box for _, _, box in cells if box.right - box.left > _LONG_LINE * (box.bottom - box.top)]
    return len(long) >= _OF_FIGURES * len(cells)


def _is_contents(rows: Sequence[_Line]) -> bool:
    """Whether the figures are numbers of pages, as in a table of contents."""
    last = [row[-1].text for row in rows]
    if any(_has_figures(row[:-1]) for row in rows) or not all(map(str.isdecimal, last)):
        return False
    return last == sorted(last, key=int)


def _aligned_table(lines: Sequence[_Line], first: int, last: int, columns: _Columns) -> PdfTable:
    start = first
    while first - start < _MOST_LINES_ABOVE and _has_line_above(lines, start, columns):
        start -= 1
    while _goes_on(lines, last, columns):
        last += 1
    table = list(dropwhile(lambda line: _is_label(line, columns), lines[start:first])) + [*lines[first : last + 1]]
    names = list(takewhile(lambda line: not _is_label(line, columns) and not _has_figures(line), table))
    rows: list[list[_Line]] = []
    for line in table[len(names) :]:
        if rows and not _has_figures(line) and _numbers(line[0], columns)[0] > 0:
            rows[-1].append(line)
        else:
            rows.append([line])
    grid = [_row(row, columns) for row in rows]
    if names:
        grid.insert(0, _header(names, columns))
    places = [place for line in table for piece in line for place in piece.places]
    return PdfTable(grid, places, [left for left, _ in columns])


def _has_line_above(lines: Sequence[_Line], number: int, columns: _Columns) -> bool:
    """Whether the line above one may be of the same table: it has names of columns, or of a section."""
    if number == 0 or not _is_near(lines, number - 1, number):
        return False
    spans = [_numbers(piece, columns) for piece in lines[number - 1]]
    return all(span[0] > 0 or span == [0] for span in spans)


def _goes_on(lines: Sequence[_Line], last: int, columns: _Columns) -> bool:
    """Whether a line below the last row goes on with a cell of it, but not with its first one."""
    if last + 1 == len(lines) or not _is_near(lines, last, last + 1, _NEXT_LINE / 2):
        return False
    spans = [_numbers(piece, columns) for piece in lines[last + 1]]
    return all(span[0] > 0 and len(span) == 1 for span in spans)


def _is_label(line: _Line, columns: _Columns) -> bool:
    return len(line) == 1 and _numbers(line[0], columns) == [0]


def _row(lines: Sequence[_Line], columns: _Columns) -> Row:
    texts = [""] * len(columns)
    for piece in chain(*lines):
        number = _numbers(piece, columns)[0]
        texts[number] = on_one_line(f"{texts[number]}\n{piece.text}")
    return [Cell(text) for text in texts]


def _header(lines: Sequence[_Line], columns: _Columns) -> Row:
    names = [""] * len(columns)
    for line in lines:
        for piece, numbers in zip(line, _groups(line, columns), strict=True):
            for number in numbers:
                names[number] = on_one_line(f"{names[number]}\n{piece.text}")
    return [Cell(name, is_name=True) for name in names]


def _groups(line: _Line, columns: _Columns) -> list[Sequence[int]]:
    """The columns that each name of a line is above: as many each, where the names are above the middles of these."""
    numbers: list[Sequence[int]] = [_numbers(piece, columns) for piece in line]
    labels = numbers[: numbers[0] == [0]]
    parts = line[len(labels) :]
    size, rest = divmod(len(columns) - 1, len(parts))
    groups = [range(number, number + size) for number in range(1, len(columns), size or 1)]
    middles = [sum(column) / 2 for column in columns]
    pairs = zip(parts, groups, strict=False)
    if rest or size < 2 or not all(middles[g[0]] < part.box.middle < middles[g[-1]] for part, g in pairs):
        return numbers
    return [*labels, *groups]
