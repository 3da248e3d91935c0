"""Tables that are typed in plain text: their cells are separated by bars, tabs or several spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from llama_pack_densex.text.layout import Block, Element, Line, Lines, lines_from
from llama_pack_densex.text.links import searchable_text

_SEPARATORS = (
    re.compile(r"(?<!\\)[|｜│┃║]"),
    re.compile(r"\t"),
    re.compile(r"(?<![.!?:;,])[ \u3000]{2,}"),  # some put two spaces between sentences
)
_OUTER_BAR = re.compile(r"^[|｜│┃║]|(?<!\\)[|｜│┃║]$")
_RULE = re.compile(r"[-=+|:\s\u2500-\u257f]+")
_DASHES = re.compile(r"[-=─━═]+")
_LINES_COMPARED = 20
_LEAST_FIGURES = 2  # in columns of figures, so that the first row counts as their names

_FIGURE = re.compile(
    r"[-+−–—△▲(（¥￥$€£<>≤≥±~≈\s]*\d+(?:[.,]\d+|\s\d{3})*\s?(?:[%％)）円€£$]|[A-Za-zµμΩ°/]{1,4})?[¹²³⁰-⁹]*"
)
_YEAR = re.compile(r"(?:19|20)\d\d")


def is_figure(text: str) -> bool:
    """Return whether a text is a number, perhaps with a unit, but not a year, which may name a column."""
    return bool(_FIGURE.fullmatch(text)) and not _YEAR.fullmatch(text)


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

    The first row does if it alone has a rule below it (as psql and MySQL print tables), or if it has no
    figures and one of the columns below it has nothing else. It names them again where it is repeated.

    Args:
        lines: The lines of a text.
        place: The index of the line.
    """
    for separator in _SEPARATORS:
        if _has_names([*_rows(lines, place, separator, _LINES_COMPARED)]):
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
    columns = 0
    for line in islice(lines_from(lines, place), most):
        if _is_rule(line.text):
            if row is not None:
                row = replace(row, end=line.end, after=line.number + 1, is_ruled=True)
            continue
        cells = _cells(line, separator)
        columns = columns or len(cells)
        if not 1 < len(cells) <= columns:
            break
        if row is not None:
            yield row
            start = line.start
        row = _Row(start, line.end, line.number + 1, cells)
    if row is not None:
        yield row


def _is_rule(text: str) -> bool:
    return len(_DASHES.findall(text)) > 1 and _RULE.fullmatch(text) is not None


def _cells(line: Line, separator: re.Pattern[str]) -> tuple[str, ...]:
    # a tab before the first name belongs to the table
    text = line.indent.replace(" ", "") + line.text
    if not separator.search(text):
        return (text,)
    return tuple(map(str.strip, separator.split(_OUTER_BAR.sub("", text))))


def _has_names(rows: Sequence[_Row]) -> bool:
    if len(rows) < 2:
        return False
    first, *below = rows
    label, *names = first.cells
    if label.endswith((":", "：")) or not all(map(_may_name_a_column, names)):
        return False
    if first.is_ruled:
        return not any(row.is_ruled for row in below[:-1])
    columns = [_figures(column, name, below) for column, name in enumerate(names, 1)]
    return sum(map(len, columns)) >= _LEAST_FIGURES


def _may_name_a_column(text: str) -> bool:
    has_letter = any(map(str.isalpha, text))
    return (has_letter and not is_figure(text)) or _YEAR.search(text) is not None


def _figures(column: int, name: str, rows: Sequence[_Row]) -> list[str]:
    """Return the figures of a column; none if it has other text, except its name where that is repeated."""
    cells = [row.cells[column] for row in rows if column < len(row.cells)]
    written = [cell for cell in cells if cell != name and any(map(str.isalnum, cell))]
    return written if all(map(is_figure, written)) else []


def _table(rows: Sequence[_Row]) -> Element:
    names: tuple[str, ...] = ()
    blocks: list[Block] = []
    for row in rows:
        cells = tuple(" ".join(searchable_text(cell).split()) for cell in row.cells)
        if not names or cells[1:] == names[1:]:
            names = cells
            blocks.append(Block(row.start, row.end, "columns", names=names))
        else:
            blocks.append(Block(row.start, row.end, "row", names=names, cells=cells))
    return Element(rows[-1].after, tuple(blocks))
