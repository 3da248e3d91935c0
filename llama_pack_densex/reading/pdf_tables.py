"""Finds the tables on a page of a PDF: cells between ruling lines, columns between rules, aligned figures.

If neither clearly shows rows and columns there is no table, and the page's text stays as it is.
Coordinates are in points from the top left.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, dropwhile, filterfalse, pairwise, product
from operator import attrgetter
from typing import NamedTuple

from llama_pack_densex.reading.pdf_lines import Box, Boxes, Line, around, right_of, rows_of
from llama_pack_densex.reading.pdf_order import are_prose
from llama_pack_densex.reading.tables import (
    Cell,
    Grid,
    Row,
    cells_of,
    is_one_cell,
    join_signs,
    read_header,
    rows_with_text,
    runs,
)
from llama_pack_densex.text.column_names import is_figure, is_year
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
        columns: The left and right edges of the texts in its columns.
    """

    grid: Grid
    places: Collection[int]
    edges: Sequence[float]
    columns: _Columns

    @property
    def has_names(self) -> bool:
        """Whether its first row names the columns."""
        return len(cells_of(self.grid[0])) > 1 and read_header(self.grid)[1] > 0

    def below(self, upper: PdfTable) -> PdfTable:
        """Return this table with the header of one above it, perhaps on the page before, if it continues that
        without it."""
        texts = [cell.text for cell in self.grid[0]]
        upper_texts = [cell.text for cell in upper.grid[0]]
        if len(texts) != len(upper_texts) or texts == upper_texts:
            return self
        has_same_columns = not self.has_names and _are_alike(self.columns, upper.columns)
        if self.edges != upper.edges and not has_same_columns:
            return self
        below_title = [*filterfalse(is_one_cell, upper.grid)]
        _, depth = read_header(below_title)
        names = {cell: replace(cell, is_name=True) for cell in chain(*below_title[:depth])}
        header = [[names[cell] for cell in row] for row in below_title[:depth]]
        return self._replace(grid=header + self.grid)


def find_tables(
    text: str,
    boxes: Boxes,
    frames: Iterable[Frame],
    rules: Iterable[_Rulings],
    is_code: Callable[[int], bool],
) -> list[PdfTable]:
    """Find the tables of a page.

    Args:
        text: The page's text.
        boxes: The boxes of its characters.
        frames: The lines on it that may rule tables.
        rules: The horizontal lines alone that may rule tables.
        is_code: Returns whether the character at a place is in a font for code.
    """
    ruled = list(filter(None, (_ruled_table(text, boxes, frame) for frame in frames)))
    outside = _without(ruled, boxes)
    tables = [_with_names_above(table, text, boxes, outside) for table in ruled]
    tables += _tables_between(rules, text, _without(tables, boxes))
    tables += _aligned_forms(text, _without(tables, boxes))
    for table in _aligned_tables(text, _without(tables, boxes)):
        if not is_code(min(table.places)) and not is_code(max(table.places)):
            tables.append(table)
    return _continued(sorted(tables, key=lambda table: min(table.places)))


def _continued(tables: Iterable[PdfTable]) -> list[PdfTable]:
    """Return the tables of a page; one without names that continues the one above has the names of that."""
    continued: list[PdfTable] = []
    for table in tables:
        if continued and not table.has_names:
            table = table.below(continued[-1])
        continued.append(table)
    return continued


def _without(tables: Iterable[PdfTable], boxes: Boxes) -> Boxes:
    within = {place for table in tables for place in table.places}
    return {place: box for place, box in boxes.items() if place not in within}


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
_MOST_PAIRS = 50_000  # of vertical and horizontal lines in a group; one with more is a drawing
_LONGEST_CELL = 600  # characters
_ONLY_SIGNS = re.compile(r"[$€£¥￥()（）%％ ]+")
_LARGER = 1.05  # times the size of the characters of a table, those of its title
_WITHIN_WORD = 0.1  # times the size of characters
_MOST_CUT = 0.1  # words per cell; text may run over the edge of its cell
_MANY_LINES = 3  # of text in each cell: then there are several rows, without lines between them

_Positions = Sequence[float]
"""Positions of lines, in order."""

_Rulings = Sequence[Ruling]

_Slot = tuple[float, float]
"""The top of a row and the left of a column."""

_Cells = dict[_Slot, _Slot]

_Places = defaultdict[_Slot, set[int]]
"""The places of the characters in slots or cells."""


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

    def is_beside(self, other: Frame) -> bool:
        """Return whether it has a row beside one of another frame."""
        is_level = self.ys[0] < other.ys[-1] and other.ys[0] < self.ys[-1]
        return is_level and (self.xs[-1] <= other.xs[0] or other.xs[-1] <= self.xs[0])


def find_frames(across: _Rulings, down: _Rulings) -> Iterator[Frame]:
    """Yield groups of adjacent vertical lines, with the horizontal ones across them, as possible tables."""
    if len(across) + len(down) > _MOST_RULINGS:
        return
    for columns in runs(sorted(down, key=lambda ruling: ruling.start), _is_beside):
        top = columns[0].start - _TOUCHING
        bottom = max(ruling.end for ruling in columns) + _TOUCHING
        beside = [ruling for ruling in across if top <= ruling.position <= bottom]
        yield from _frames_of(columns, _without_underlines(beside, columns))


def _frames_of(columns: _Rulings, rows: _Rulings) -> Iterator[Frame]:
    """Yield the frame of all lines, or if they are no grid, because a chart is in a cell, those of lines that
    touch one another, but for frames beside one another, which are parts of rows.
    """
    frame = _frame(columns, rows)
    if frame.cells:
        yield frame
    elif len(columns) * len(rows) <= _MOST_PAIRS:
        frames = [_frame(*lines) for lines in _connected(columns, rows)]
        grids = [frame for frame in frames if len(frame.cells) > 1]
        yield from (grid for grid in grids if not any(map(grid.is_beside, grids)))


def _frame(columns: _Rulings, rows: _Rulings) -> Frame:
    ends = (end for _, *both_ends in rows for end in both_ends)
    xs = _distinct([*(ruling.position for ruling in columns), *ends])
    tops = (ruling.start for ruling in columns)
    bottoms = (ruling.end for ruling in columns)
    ys = _distinct([min(tops), max(bottoms), *(ruling.position for ruling in rows)])
    return Frame(xs, ys, _cells(columns, rows, xs, ys))


def _connected(columns: _Rulings, rows: _Rulings) -> list[tuple[list[Ruling], list[Ruling]]]:
    """Return vertical and horizontal lines in groups that touch one another."""
    groups: list[tuple[list[Ruling], list[Ruling]]] = [([column], []) for column in columns]
    for row in rows:
        touching = [group for group in groups if any(_touch(row, column) for column in group[0])]
        if touching:
            groups = [group for group in groups if group not in touching]
            joined = [[*chain(*lines)] for lines in zip(*touching, strict=True)]
            groups.append((joined[0], [*joined[1], row]))
    return groups


def _touch(row: Ruling, column: Ruling) -> bool:
    is_at_row = column.start - _TOUCHING <= row.position <= column.end + _TOUCHING
    is_at_column = row.start - _TOUCHING <= column.position <= row.end + _TOUCHING
    return is_at_row and is_at_column


def _without_underlines(rows: _Rulings, columns: _Rulings) -> list[Ruling]:
    """Return horizontal lines without those that underline words: their ends meet no other line."""
    ends = [ruling.position for ruling in columns]
    ends += chain(*(both_ends for _, *both_ends in rows))
    ends.sort()

    def meets_other(end: float) -> bool:
        near = bisect(ends, end + _TOUCHING) - bisect(ends, end - _TOUCHING)
        return near > 1  # it is one of them itself

    return [row for row in rows if meets_other(row.start) or meets_other(row.end)]


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
    in_slots: _Places = defaultdict(set)
    for place, box in boxes.items():
        row = frame.ys[bisect(frame.ys, box.y) - 1]
        column = frame.xs[bisect(frame.xs, box.x) - 1]
        slot = (row, column)
        if slot in frame.cells:
            in_slots[slot].add(place)
    first_slots = _with_signs_apart(frame.cells, in_slots, text)
    first_slots = _without_title(first_slots, in_slots, boxes)
    places = _places_by_cell(first_slots, in_slots)
    cells = {first: Cell(_text_of(text, places[first])) for first in first_slots.values()}
    rows = rows_with_text({slot: cells[first] for slot, first in first_slots.items()})
    grid = join_signs(list(rows.values()))
    if not _is_table(grid) or _has_undivided_rows(in_slots, boxes):
        return None
    if _cuts_words(text, boxes, places.values()):
        return None
    pieces = [
        Line(cell.text, [*places[first]], around(boxes, places[first]))
        for first, cell in cells.items()
        if _NOT_A_SIGN.search(cell.text)
    ]
    columns = _columns_of([pieces], _TOUCHING)
    return PdfTable(grid, {*chain(*places.values())}, frame.xs, columns)


def _places_by_cell(first_slots: _Cells, in_slots: _Places) -> _Places:
    places: _Places = defaultdict(set)
    for slot, within in in_slots.items():
        if slot in first_slots:
            places[first_slots[slot]] |= within
    return places


def _without_title(first_slots: _Cells, in_slots: _Places, boxes: Boxes) -> _Cells:
    """Leave out the first row if it is one cell with a line of larger characters: a heading of the table."""
    title = min(first_slots.values(), default=(0.0, 0.0))
    rest = {slot: first for slot, first in first_slots.items() if slot[0] != title[0]}
    in_first_row = {first for slot, first in first_slots.items() if slot not in rest}
    if in_first_row != {title} or title in rest.values():
        return first_slots
    places = _places_by_cell(first_slots, in_slots)
    own = [boxes[place] for place in places.pop(title, ())]
    others = [boxes[place] for place in chain(*places.values())]
    return rest if _is_larger_line(own, others) else first_slots


def _is_larger_line(own: Sequence[Box], others: Sequence[Box]) -> bool:
    """Return whether characters are on one line, and all larger than others."""
    if not others or len(_distinct(box.y for box in own)) != 1:
        return False
    smallest = min(box.size for box in own)
    return smallest > _LARGER * max(box.size for box in others)


def _with_signs_apart(first_slots: _Cells, in_slots: _Places, text: str) -> _Cells:
    """Divide cells by rows that have only the signs of figures, between which no lines are drawn."""
    places = _places_by_cell(first_slots, in_slots)
    of_signs = {
        first for first, within in places.items() if _ONLY_SIGNS.fullmatch(_text_of(text, within))
    }
    return {
        slot: (slot[0], first[1]) if first in of_signs else first
        for slot, first in first_slots.items()
    }


def _with_names_above(table: PdfTable, text: str, boxes: Boxes, outside: Boxes) -> PdfTable:
    """Return a table with the names of its columns if they are above its lines, as above shaded rows.

    Args:
        table: The table.
        text: The page's text.
        boxes: The boxes of its characters.
        outside: Those of the characters outside tables.
    """
    if table.has_names or len(table.grid[0]) != len(table.columns):
        return table
    top = min(table.places, key=lambda place: boxes[place].y)
    above = {place: box for place, box in outside.items() if box.y < boxes[top].y}
    lines = [*rows_of(_pieces(text, above, _WIDE_GAP)), [Line("", [top], boxes[top])]]
    names = [*_lines_above(lines, len(lines) - 1, table.columns)]  # and rows that are not shaded
    grid = [*_grid(names, table.columns), *table.grid]
    return table._replace(grid=grid, places={*table.places, *_places_in(chain(*names))})


def _is_table(grid: Grid) -> bool:
    """Return whether a grid is a table, and not boxes of text or parts of a drawing."""
    full = [row for row in grid if len(cells_of(row)) > 1]
    texts = [cell.text for cell in {*chain(*grid)}]
    is_filled = sum(map(bool, texts)) >= _LEAST_FILLED * len(texts)
    return len(full) > 1 and is_filled and max(map(len, texts)) <= _LONGEST_CELL


def _has_undivided_rows(in_slots: _Places, boxes: Boxes) -> bool:
    """Return whether all cells of a row have as many lines of text as several rows would."""
    lines: defaultdict[float, list[int]] = defaultdict(list)
    for (row, _), places in in_slots.items():
        lines[row].append(len(_distinct(boxes[place].y for place in places)))
    return any(len(counts) > 1 and min(counts) >= _MANY_LINES for counts in lines.values())


def _cuts_words(text: str, boxes: Boxes, cells: Collection[Collection[int]]) -> bool:
    """Return whether edges of cells go through words, as those of highlighted words do."""

    def is_cut(places: Collection[int], place: int) -> bool:
        if place + 1 in places or place + 1 not in boxes:
            return False
        is_within_word = text[place : place + 2].isalpha()
        return is_within_word and boxes[place + 1].follows(boxes[place], _WITHIN_WORD)

    ends = sum(is_cut(places, place) for places in cells for place in places)
    return ends > _MOST_CUT * len(cells)


# Tables with horizontal lines only

_LEAST_RULES = 3
_COLUMN_GAP = 0.7  # times the size of characters, where rules tell of a table
_MOST_LINES_OF_LABEL = 3
_FROM_RULE = 1.5  # times the size of characters; the widest gap below a line of a header
_FARTHER = 1.2  # times the distance of lines within a cell; the next row is farther

_Band = list["_Line"]
"""The lines between two rules."""


def find_rules(across: _Rulings, down: _Rulings) -> list[list[Ruling]]:
    """Return groups of horizontal lines with the same ends, and without vertical lines at these."""
    rules: list[Ruling] = []
    for level in _alike(across, "position"):
        for parts in runs(sorted(level, key=attrgetter("start")), _is_beside):
            rules.append(parts[0]._replace(end=max(part.end for part in parts)))
    open_rules = [rule for rule in rules if not any(_begins_at(rule, side) for side in down)]
    groups = chain(*(_alike(group, "end") for group in _alike(open_rules, "start")))
    return [sorted(group) for group in groups if len(group) >= _LEAST_RULES]


def _alike(rulings: Iterable[Ruling], name: str) -> list[list[Ruling]]:
    """Return rulings in groups of those that have nearly the same value of an attribute."""
    value = attrgetter(name)
    in_order = sorted(rulings, key=value)
    return runs(in_order, lambda run, ruling: value(ruling) <= value(run[-1]) + _TOUCHING)


def _begins_at(rule: Ruling, side: Ruling) -> bool:
    is_crossed = side.start - _TOUCHING <= rule.position <= side.end + _TOUCHING
    return is_crossed and abs(rule.start - side.position) <= _TOUCHING


def _tables_between(rules: Iterable[_Rulings], text: str, boxes: Boxes) -> Iterator[PdfTable]:
    pieces = [*_pieces(text, boxes, _COLUMN_GAP)]
    for group in rules:
        lines = rows_of(piece for piece in pieces if group[0].start < piece.box.x < group[0].end)
        for header, body in _ruled_stretches(lines, [rule.position for rule in group]):
            table = _table_of_bands(header, body)
            if table:
                yield table


def _table_of_bands(header: _Band, bands: Sequence[_Band]) -> PdfTable | None:
    columns = _columns_of(line for line in chain(*bands) if len(line) > 1)
    grid = [_row(header, columns, True)]
    grid += (_row(row, columns, False) for row in _rows_between(bands, columns))
    if len(columns) < 2 or not _is_table(grid):
        return None
    places = _places_in(chain(*header, *chain(*bands)))
    return PdfTable(grid, places, [left for left, _ in columns], columns)


def _ruled_stretches(
    lines: Sequence[_Line], ys: _Positions
) -> Iterator[tuple[_Band, Sequence[_Band]]]:
    """Yield the lines of names and the bands below them for each stretch of bands with cells."""

    def rules_above(line: _Line) -> int:
        return bisect(ys, line[0].box.y)

    bands = runs(lines, lambda band, line: rules_above(line) == rules_above(band[0]))
    ruled = [band for band in bands if 0 < rules_above(band[0]) < len(ys)]
    for stretch in runs(ruled, lambda run, band: _has_cells(run[-1]) and _has_cells(band)):
        if len(stretch) > 1:
            first = stretch[0][0]
            number = rules_above(first) - 1
            over = [line for line in lines if rules_above(line) == number]
            header = _header_above(over, ys[number])
            header, *body = [header, *stretch] if header else stretch
            yield header, body


def _has_cells(band: _Band) -> bool:
    """Return whether lines begin with cells beside one another, and are not columns of prose."""
    return len(band[0]) > 1 and not are_prose(_stacks(band))


def _header_above(lines: Sequence[_Line], y: float) -> _Band:
    """Return the lines close above the first rule of a table that name its columns, if there are any."""
    header: _Band = []
    for line in reversed(lines):
        box = line[0].box
        is_near = y - box.bottom < _FROM_RULE * box.size
        is_above = len(line) == 1 and len(header) > 0 and len(header[0]) > 1
        if is_above or not is_near:
            break
        header.insert(0, line)
        y = box.top
    return [*dropwhile(lambda line: len(line) == 1, header)]


def _stacks(lines: Iterable[_Line], gap: float = 0) -> list[list[Line]]:
    """Return the pieces of lines by column: those that are no farther from others than a gap, in points."""
    pieces = sorted(chain(*lines), key=lambda piece: piece.box.left)
    return runs(pieces, lambda run, piece: piece.box.left <= right_of(run) + gap)


def _columns_of(lines: Iterable[_Line], gap: float = 0) -> _Columns:
    return [(stack[0].box.left, right_of(stack)) for stack in _stacks(lines, gap)]


def _rows_between(bands: Sequence[_Band], columns: _Columns) -> Iterable[_Band]:
    """Return the lines of each row: those of a band, or of a part of it if the bands have several rows."""
    if _are_rows(bands, columns):
        return bands
    pairs = [*chain(*map(pairwise, bands))]
    close = _FARTHER * min((_distance(*pair) for pair in pairs), default=0)
    near = [below for above, below in pairs if _distance(above, below) < close]
    are_partial = sum(len(line) < len(columns) for line in near) > len(near) / 2
    are_wraps = are_partial and len(near) < len(pairs)

    def goes_on(row: _Band, line: _Line) -> bool:
        if are_wraps:
            return _distance(row[-1], line) < close
        has_figure = any(is_figure(piece.text) for piece in line)
        return not has_figure and not _begins_with(columns, line)

    return chain(*(runs(band, goes_on) for band in bands))


def _are_rows(bands: Sequence[_Band], columns: _Columns) -> bool:
    """Return whether bands are a row each: most have one label, and others one of few lines."""
    labels = [sum(_begins_with(columns, line) for line in band) for band in bands]
    has_one_label = sum(count <= 1 for count in labels) > len(bands) / 2
    return has_one_label and max(labels) <= _MOST_LINES_OF_LABEL


def _begins_with(columns: _Columns, line: _Line) -> bool:
    """Return whether a line has text in the first column."""
    return _numbers(line[0], columns)[0] == 0


def _distance(above: _Line, below: _Line) -> float:
    return below[0].box.y - above[0].box.y


# Tables without lines

_LEAST_ROWS = 3  # rows with figures
_WIDE_GAP = 1.2  # times the size of characters; text across a wider gap is in another column
# the same before a currency sign, which may be at the left of its column
_WIDE_GAP_BEFORE_SIGN = 0.5
_WIDE_GAP_BEHIND_SIGN = 20.0
# times the size of characters, from the middle of a table's line to that of the next
_NEXT_LINE = 2.6
_NEXT_LINED_UP = 4.0  # the same between rows whose cells are above one another
_MOST_CROWDED = 0.1  # share of a table's rows; figures in a label or its notes are there too
# lines without figures between two with figures; more if they are labels
_MOST_OTHER_LINES = 2
_MOST_LABELS = 4
_MOST_LINES_ABOVE = 5  # lines of a header and the first section's name
_MOST = 0.7  # share of a column's cells
_LONG_LINE = 18.0  # times the size of characters: the length of lines in columns of prose
_NIL = words("- – — ― − n/a N/A")
_SIGNS = "$€£¥￥(△▲"
_NOT_A_SIGN = re.compile(r"[\w–—―−-]")
_FIGURE_AT_END = r"(?:^|[\s$€£¥￥(△▲−-])\d[\d.,]*[)）%％円]?[^\S\n]*$"
_FIGURES_IN_LINES = re.compile(rf"(?m)(?:{_FIGURE_AT_END}(?:\n.*){{1,3}}?){{2}}{_FIGURE_AT_END}")

_NAMES_IN_LINES = re.compile(r"(?m)(?:^[^:：\n]{1,40}[:：][^\S\n].*[:：](?:\s.*)?\n(?:.*\n)?){2}")


def may_have_columns(text: str) -> bool:
    """Return whether a page has nearby lines that end in figures, or have two names, as tables without
    ruling lines have.
    """
    return any(pattern.search(text) for pattern in (_FIGURES_IN_LINES, _NAMES_IN_LINES))


_Line = list[Line]
"""The pieces of a line, from left to right."""

_Columns = Sequence[tuple[float, float]]
"""The left and right edges of columns."""


def _aligned_tables(text: str, boxes: Boxes) -> Iterator[PdfTable]:
    lines = rows_of(_pieces(text, boxes, _WIDE_GAP))
    end = 0  # of the table above
    for stretch in _stretches(lines):
        first = stretch[0]
        names = lines[first - 1][1:] if first > end else []
        years = len(names) if all(is_year(name.text) for name in names) else 0
        columns = _columns([lines[number] for number in stretch], years)
        if columns:
            above = _lines_above(lines[end:], first - end, columns)
            end = _end(lines, stretch[-1], columns)
            table = [*above, *lines[first:end]]
            places = _places_in(chain(*table))
            lefts = [left for left, _ in columns]
            yield PdfTable(_grid(table, columns), places, lefts, columns)


def _aligned_forms(text: str, boxes: Boxes) -> Iterator[PdfTable]:
    """Yield forms without lines: names with a colon in several columns, apart from their values."""
    lines = rows_of(_pieces(text, boxes, _COLUMN_GAP))
    for stretch in runs(lines, _goes_on_form):
        names = [[piece for piece in line if _is_name(piece)] for line in stretch]
        starts = _distinct(name.box.left for name in chain(*names))
        if len(stretch) >= _LEAST_ROWS and _are_columns(names, starts):
            rows = runs(stretch, lambda row, line: not _is_name(line[0]))
            grid = [_form_row(chain(*row), starts) for row in rows]
            yield PdfTable(grid, _places_in(chain(*stretch)), starts, _columns_of(stretch))


def _are_columns(names: Sequence[_Line], starts: _Positions) -> bool:
    """Return whether names begin at as many places as a line has names; several lines have more than one."""
    beside = [line for line in names if len(line) > 1]
    return len(beside) > 1 and len(starts) == max(map(len, beside))


def _goes_on_form(run: Sequence[_Line], line: _Line) -> bool:
    """Return whether a line has names below those of a form, or goes on with the values above it."""
    first = run[0]
    if not _has_pairs(first) or not _is_near([run[-1], line], 0, 1):
        return False
    if _is_name(line[0]):
        return _has_pairs(line) and _are_aligned(first[0], line[0])
    values = [piece for piece in run[-1] if not _is_name(piece)]
    return all(any(_are_aligned(value, piece) for value in values) for piece in line)


def _has_pairs(line: _Line) -> bool:
    """Return whether a line begins with a name, and has one before each value."""
    are_names = [*map(_is_name, line)]
    return are_names[0] and all(map(any, pairwise(are_names)))


def _is_name(piece: Line) -> bool:
    return piece.text.endswith((":", "："))


def _are_aligned(upper: Line, lower: Line) -> bool:
    return abs(upper.box.left - lower.box.left) <= _TOUCHING


def _form_row(pieces: Iterable[Line], starts: _Positions) -> Row:
    """Return a row of names, which begin at given places, each with the value behind it."""
    texts = [""] * (2 * len(starts))
    for piece in pieces:
        column = 2 * bisect(starts, piece.box.left + _TOUCHING) - 1 - _is_name(piece)
        texts[column] = f"{texts[column]}\n{piece.text}"
    return [Cell(on_one_line(text)) for text in texts]


def _stretches(lines: Sequence[_Line]) -> Iterator[list[int]]:
    """Yield the numbers of the rows with figures that may belong to one table."""

    def is_crowded(numbers: Iterable[int]) -> bool:
        return _is_crowded([lines[number] for number in numbers])

    rows = [number for number, line in enumerate(lines) if _has_figures(line)]
    for stretch in runs(rows, lambda run, number: _goes_on(lines, run[-1], number)):
        if is_crowded(stretch):
            yield from runs(stretch, lambda run, number: not is_crowded([*run, number]))
        else:
            yield stretch


def _are_alike(columns: _Columns, upper: _Columns) -> bool:
    """Return whether the columns of two tables overlap one by one."""
    pairs = zip(columns, upper, strict=False)
    return len(columns) == len(upper) and all(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


def _places_in(pieces: Iterable[Line]) -> list[int]:
    return [place for piece in pieces for place in piece.places]


def _pieces(text: str, boxes: Boxes, wide_gap: float) -> Iterator[Line]:
    def goes_on(run: list[int], place: int) -> bool:
        if place == run[-1] + 1:  # PDFium puts spaces into gaps
            return True
        widest = wide_gap
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


def _goes_on(lines: Sequence[_Line], first: int, last: int) -> bool:
    """Return whether two lines with figures may belong to one table."""
    between = lines[first + 1 : last]
    figures_at = min(piece.box.left for piece in lines[first][1:])
    are_labels = all(line[-1].box.right < figures_at for line in between)
    most = _MOST_LABELS if are_labels else _MOST_OTHER_LINES
    of_first, of_last = _columns_of([lines[first]]), _columns_of([lines[last]])
    line_up = not between and len(of_last) > 2 and _are_alike(of_first, of_last)
    widest = _NEXT_LINED_UP if line_up else _NEXT_LINE
    return len(between) <= most and _is_near(lines, first, last, widest)


def _is_near(lines: Sequence[_Line], first: int, last: int, widest: float = _NEXT_LINE) -> bool:
    """Return whether the lines from one to another are as close as those of a table."""
    box = lines[first][0].box
    step = (lines[last][0].box.y - box.y) / (last - first)
    return step <= widest * box.size


def _is_crowded(rows: Sequence[_Line]) -> bool:
    """Return whether rows are of several tables: too many have a figure and more in one column."""
    columns = _columns_of(rows)
    crowded = 0
    for row in rows:
        places = [_numbers(piece, columns)[0] for piece in row]
        figures = [place for place, piece in zip(places, row, strict=True) if is_figure(piece.text)]
        crowded += any(places.count(place) > 1 for place in figures)
    return crowded > _MOST_CROWDED * len(rows)


def _columns(rows: Sequence[_Line], years: int) -> _Columns:
    """Return the columns of rows; none if these are not a table. Below a year for each, a single row may be
    one.
    """
    columns = _stacks(rows)
    is_below_years = len(columns) == years + 1 > 2
    least = 1 if is_below_years else _LEAST_ROWS
    without_prose = columns[1:] if is_below_years else columns
    is_sparse = sum(map(len, columns)) < _LEAST_FILLED * len(rows) * len(columns)
    if is_sparse or any(map(_is_prose, without_prose)):
        return []
    if _is_contents(rows) or not any(_is_of_figures(cells, least) for cells in columns[1:]):
        return []
    return _columns_of(rows)


def _is_of_figures(cells: Sequence[Line], least: int) -> bool:
    figures = sum(is_figure(cell.text) or cell.text in _NIL for cell in cells)
    return figures >= max(least, _MOST * len(cells))


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
        if _begins_with(columns, lines[end]):
            break
        end += 1
    return end


def _grid(lines: Sequence[_Line], columns: _Columns) -> Grid:
    """Return a row of column names, if there are any, and each row joined with the lines that continue it."""

    def goes_on(row: list[_Line], line: _Line) -> bool:
        if _continues_label(row, line, columns):
            return True
        is_in_row = not _begins_row(row[0], columns) or not _begins_with(columns, line)
        return is_in_row and not _begins_row(line, columns)

    return [_row(row, columns, not _begins_row(row[0], columns)) for row in runs(lines, goes_on)]


def _continues_label(row: Sequence[_Line], line: _Line, columns: _Columns) -> bool:
    """Return whether a line goes on with the label of a row, and not both have figures."""
    above = row[-1]
    if not _begins_row(above, columns) or not _begins_row(line, columns):
        return False
    if _has_figures(line) and any(map(_has_figures, row)):
        return False
    are_labels = _begins_with(columns, above) and _begins_with(columns, line)
    is_continued = not above[0].text.endswith((":", "."))
    return are_labels and is_continued and line[0].text[:1].islower()


def _begins_row(line: _Line, columns: _Columns) -> bool:
    """Return whether a line begins a row, and does not hold names of columns."""
    return _has_figures(line) or _is_label(line, columns)


def _row(lines: Sequence[_Line], columns: _Columns, is_name: bool) -> Row:
    texts = [_texts(line, columns, is_name) for line in lines]
    return [Cell(on_one_line("\n".join(parts)), is_name) for parts in zip(*texts, strict=True)]


def _texts(line: _Line, columns: _Columns, are_names: bool) -> list[str]:
    """Return the text of a line in each column; names that are evenly spread cover all columns near them."""
    texts = [""] * len(columns)
    for piece in line:
        for number in _numbers(piece, columns):
            texts[number] = f"{texts[number]} {piece.text}"
    names = [piece for piece in line if _numbers(piece, columns) != [0]]
    if not are_names or not names:
        return texts
    if len(names) == 1 and not _is_above_all(names[0], columns[1:]):
        return texts
    return [texts[0], *(_spread(names, columns[1:]) or texts[1:])]


def _is_above_all(name: Line, columns: _Columns) -> bool:
    """Return whether a name is in the middle of an even number of columns.

    Figures are aligned at the right: a name that is only above the right one of the middle two reaches it, or
    begins behind the left one.
    """
    half, odd = divmod(len(columns), 2)
    if odd:
        return False
    left_end = columns[half - 1][1]
    right_start = columns[half][0]
    return name.box.left < left_end < name.box.x and name.box.right < right_start


def _spread(names: _Line, columns: _Columns) -> list[str]:
    """Return the nearest name for each column; empty if the names are not evenly spread."""
    middles = [(left + right) / 2 for left, right in columns]
    nearest = [min(names, key=lambda name: abs(name.box.x - middle)) for middle in middles]
    counts = {nearest.count(name) for name in names}
    return [name.text for name in nearest] if len(counts) == 1 else []
