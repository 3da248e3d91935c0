"""Tables that are typed in plain text: their cells are separated by bars, tabs or several spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from llama_pack_densex.text.column_names import has_names, is_figure, is_value
from llama_pack_densex.text.layout import Block, Element, Line, Lines, Span, lines_from
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.markdown import with_labels
from llama_pack_densex.text.plain import line_width

_SPACES = re.compile(r"(?<![.!?:;,])[ \u3000]{2,}")  # some put two spaces between sentences
_SEPARATORS = (re.compile(r"(?<!\\)[|｜│┃║]"), re.compile(r"\t"), _SPACES)
_OUTER_BAR = re.compile(r"^[|｜│┃║]|(?<!\\)[|｜│┃║]$")
_RULE = re.compile(r"[-=+|:\s\u2500-\u257f]+")
_DASHES = re.compile(r"[-=─━═]+")
_LINES_COMPARED = 20
_LEAST_VALUES = 2  # behind the first column, so that aligned text counts as a table


@dataclass(frozen=True)
class _Row:
    """A row with the rules around it.

    Args:
        start: Where it begins, with the rule above the first row, in characters.
        end: Where it ends, with the rule below it.
        after: The number of the line after it.
        cells: Its cells, as they are written.
        is_ruled: Whether there is a rule below it.
    """

    start: int
    end: int
    after: int
    cells: tuple[str, ...]
    is_ruled: bool = False


def typed_table(lines: Lines, place: int) -> Element | None:
    """Return the table that begins at a line; None unless its first row names its columns.

    The first row does if it alone has a rule below it (as psql and MySQL print tables), or if its cells tell
    (`has_names`). It names them again where it is repeated.

    Args:
        lines: The lines of a text.
        place: The index of the line.
    """
    for separator in _SEPARATORS:
        if _is_table([*_rows(lines, place, separator, _LINES_COMPARED)]):
            return _table([*_rows(lines, place, separator)])
    return None


def _rows(
    lines: Lines, place: int, separator: re.Pattern[str], most: int | None = None
) -> Iterator[_Row]:
    """Yield the rows on the lines from an index on, as long as they have no more cells than the first one.

    Args:
        lines: The lines of a text.
        place: The index of the first line.
        separator: What is between two cells.
        most: How many lines to read; None means all.
    """
    start = lines[place].start
    row: _Row | None = None
    columns: list[Span] = []
    for line in islice(lines_from(lines, place), most):
        if _is_rule(line.text, is_below=row is not None):
            if row is not None:
                row = replace(row, end=line.end, after=line.number + 1, is_ruled=True)
            continue
        pieces = _pieces(line, separator)
        columns = columns or _spans(line, pieces)
        cells = pieces if separator is not _SPACES else _placed(line, pieces, columns)
        is_as_wide = len(cells) == len(columns)
        if row is not None and separator is _SPACES and is_as_wide and _is_wrap(cells):
            row = _joined(row, line, cells)
            continue
        if not 1 < len(pieces) <= len(columns):
            break
        if row is not None:
            yield row
            start = line.start
        row = _Row(start, line.end, line.number + 1, cells)
    if row is not None:
        yield row


def _is_rule(text: str, is_below: bool) -> bool:
    """Return whether a line is a rule between rows; below a row, it may be one for all columns."""
    least = 1 if is_below else 2
    return len(_DASHES.findall(text)) >= least and _RULE.fullmatch(text) is not None


def _pieces(line: Line, separator: re.Pattern[str]) -> tuple[str, ...]:
    # a tab before the first name belongs to the table
    text = line.indent.replace(" ", "") + line.text
    if not separator.search(text):
        return (text,)
    return tuple(map(str.strip, separator.split(_OUTER_BAR.sub("", text))))


def _spans(line: Line, pieces: Sequence[str]) -> list[Span]:
    """Return the columns of a terminal that the pieces of a line take up."""
    spans: list[Span] = []
    column = line_width(line.indent)
    place = 0
    for piece in pieces:
        start = line.text.find(piece, place)
        column += line_width(line.text[place:start])
        spans.append((column, column + line_width(piece)))
        column = spans[-1][1]
        place = start + len(piece)
    return spans


def _placed(line: Line, pieces: Sequence[str], columns: Sequence[Span]) -> tuple[str, ...]:
    """Return pieces that are fewer than the columns as cells: each below the first name that it is under, or
    else that is nearest.
    """
    if len(pieces) >= len(columns):
        return tuple(pieces)
    cells = [""] * len(columns)
    for piece, (start, end) in zip(pieces, _spans(line, pieces), strict=True):
        gaps = [max(left - end, start - right, 0) for left, right in columns]
        nearest = gaps.index(min(gaps))
        cells[nearest] = f"{cells[nearest]} {piece}".strip()
    return tuple(cells)


def _is_wrap(cells: Sequence[str]) -> bool:
    """Return whether a line only has text that goes on from the row above it, behind its first cell."""
    label, *values = cells
    texts = [*filter(None, values)]
    are_texts = not any(map(is_figure, texts))
    are_ends = len(texts) == 1 or (texts and all(text[0].islower() for text in texts))
    return bool(not label and are_texts and are_ends)


def _joined(row: _Row, line: Line, cells: Sequence[str]) -> _Row:
    joined = (f"{above} {cell}".strip() for above, cell in zip(row.cells, cells, strict=True))
    return replace(row, end=line.end, after=line.number + 1, cells=tuple(joined))


def _is_table(rows: Sequence[_Row]) -> bool:
    if len(rows) < 2:
        return False
    first, *below = rows
    if first.is_ruled:
        return not any(map(is_figure, first.cells)) and not any(row.is_ruled for row in below[:-1])
    values = [cell for row in below for cell in row.cells[1:] if cell and is_value(cell)]
    return len(values) >= _LEAST_VALUES and has_names([row.cells for row in rows])


def _table(rows: Sequence[_Row]) -> Element:
    names: tuple[str, ...] = ()
    blocks: list[Block] = []
    texts = [[" ".join(searchable_text(cell).split()) for cell in row.cells] for row in rows]
    for row, text in zip(rows, with_labels(texts), strict=True):
        cells = tuple(text)
        if not names or cells[1:] == names[1:]:
            names = cells
            blocks.append(Block(row.start, row.end, "columns", names=names))
        else:
            blocks.append(Block(row.start, row.end, "row", names=names, cells=cells))
    return Element(rows[-1].after, tuple(blocks))
