"""The reading order of the lines on a page of a PDF.

Columns are read one after another, upright lines from the right. Lines stay as they are if they are in that
order already, or if their columns may be those of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, zip_longest
from statistics import median

from llama_pack_densex.reading.pdf_lines import Boxes, Line, Lines, right_of, rows_of
from llama_pack_densex.text.sentences import STOPS

# Upright text

_LEAST_UPRIGHT = 6  # characters below others; fewer are part of a drawing


def is_upright(boxes: Boxes) -> bool:
    """Return whether most characters are below the one before them."""
    down = across = 0
    for (place, box), (next_place, next_box) in pairwise(boxes.items()):
        if next_place != place + 1:
            continue
        if next_box.top > box.y and abs(next_box.x - box.x) < box.size / 3:
            down += 1
        elif next_box.left > box.x and abs(next_box.y - box.y) < box.size / 3:
            across += 1
    return down > max(across, _LEAST_UPRIGHT)


_READING_SIZE = 0.6  # times the size of lines
_READING = re.compile(r"[ぁ-ゖァ-ヺー\s]+")


def without_readings(lines: Lines) -> list[Line]:
    """Remove the lines of small kana (furigana) beside upright lines."""
    usual = median(line.box.size for line in lines)
    smallest = _READING_SIZE * usual
    return [line for line in lines if line.box.size > smallest or not _READING.fullmatch(line.text)]


# Columns

_Columns = list[list[Line]]

_MOST_LINES = 1_000  # per page; a page with more is a drawing
_LEAST_LINES = 2  # of a column
_LEAST_LINES_IN_ALL = 5
_NARROWEST = 6.0  # times the size of characters; a narrower column holds figures or notes
_FULL = 0.7  # of a column's width; a line of this length continues on the next one
_MOST = 0.5  # share of a column's lines that are full
_FLOWING = 0.3  # share of a column's lines that begin within a sentence, or in which one ends
_OUT_OF_ORDER = 0.2  # share of lines that come before their predecessor in reading order
_INNER_STOP = re.compile(r"[、。，．！？].")


def reading_order(lines: Lines, upright: bool) -> list[list[Line]]:
    """Return lines in reading order, in rows: each line with those beside it in its column.

    Args:
        lines: The lines of a page in the order of its text.
        upright: Whether they are upright: then even the lines of a single column may be out of order.
    """
    ordered = [[line] for line in lines]
    if len(lines) > _MOST_LINES:
        return ordered
    numbers = {line: number for number, line in enumerate(lines)}
    for columns in _regions(lines):
        if not upright and not are_prose(columns):
            continue
        rows = [*chain(*map(rows_of, columns))]
        places = [numbers[line] for line in chain(*rows)]
        if _is_out_of_order(places, rows):
            for place in places:
                ordered[place] = []
            for place, row in zip(sorted(places), rows, strict=False):
                ordered[place] = row
    return list(filter(None, ordered))


def _is_out_of_order(places: Sequence[int], rows: Sequence[Lines]) -> bool:
    """Return whether too many lines come before their predecessor in reading order.

    Args:
        places: The numbers of the lines in the page's text, in reading order.
        rows: The lines; if a table is among them, no exception is tolerated.
    """
    in_text = sorted(range(len(places)), key=places.__getitem__)
    steps_back = sum(later < earlier for earlier, later in pairwise(in_text))
    has_table = any(not line.text for line in chain(*rows))
    tolerated = 0 if has_table else _OUT_OF_ORDER * (len(places) - 1)
    lines = [*chain(*rows)]
    breaks_sentence = _count_joined([lines[place] for place in in_text]) < _count_joined(lines)
    return breaks_sentence or steps_back > tolerated


def _count_joined(lines: Lines) -> int:
    """Return how many lines go on with the sentence of the line before them, as far as letters show it."""
    pairs = pairwise(lines)
    return sum(
        below.text[:1].islower() and not above.text.endswith(tuple(STOPS)) for above, below in pairs
    )


def _regions(lines: Lines) -> Iterator[_Columns]:
    """Yield the columns of each region of a page that is divided by the same gaps."""
    columns: _Columns = []
    by_height = sorted(lines, key=lambda line: (line.box.top, line.box.left))
    for line, following in zip_longest(by_height, by_height[1:]):
        merged = _with_line(columns, line)
        is_beside_next = following and line.box.gap_beside(following.box) > 0
        begins_columns = len(merged) == 1 and is_beside_next
        joins_columns = len(merged) < len(columns) and all(
            len(column) >= _LEAST_LINES for column in columns
        )
        if columns and (begins_columns or joins_columns):
            yield columns
            merged = [[line]]
        columns = merged
    yield columns


def _with_line(columns: _Columns, line: Line) -> _Columns:
    """Add a line to the columns, merging those that it overlaps; from left to right."""
    joined = [line]
    apart: _Columns = []
    for column in columns:
        overlaps = _left(column) < line.box.right and line.box.left < right_of(column)
        if overlaps:
            joined = [*column, *joined]
        else:
            apart.append(column)
    return sorted([*apart, joined], key=_left)


def _left(column: Lines) -> float:
    return min(line.box.left for line in column)


def are_prose(columns: _Columns) -> bool:
    """Return whether text flows down each of several columns, and not across them as in a table."""
    if len(columns) < 2 or sum(map(len, columns)) < _LEAST_LINES_IN_ALL:
        return False
    return all(map(_is_prose, columns))


def _is_prose(column: Lines) -> bool:
    width = right_of(column) - _left(column)
    lines = [line for line in column if line.text]
    if not lines:
        return True
    size = median(line.box.size for line in lines)
    if len(lines) < _LEAST_LINES or width < _NARROWEST * size:
        return False
    full = sum(line.box.width >= _FULL * width for line in lines)
    texts = [line.text for line in lines]
    flowing = sum(text[0].islower() or _INNER_STOP.search(text) is not None for text in texts)
    return full >= _MOST * len(lines) and flowing >= _FLOWING * len(lines)
