"""Rows of tables as text that can be understood alone. Excel files need the package openpyxl."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from llama_pack_densex.propositionizers.language import on_one_line

# Excel's formats of dates that were typed in Japanese: their numbers stand alone, and openpyxl does not know them.
_JAPANESE_DATES = {*range(27, 37), *range(50, 59)}


def sheets(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The sheets of an Excel file, each below its name, with that as its page; each row of a merged cell says it."""
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    with warnings.catch_warnings():  # of what would not be written again
        warnings.simplefilter("ignore")
        book = load_workbook(file, data_only=True)
    parts = []
    for sheet in book.worksheets:
        # not by its rows and columns, since of a cell that is far away there are as many as Excel has
        cells = {place: _said(cell) for place, cell in sheet._cells.items() if cell.value is not None}
        own, columns = {number for number, _ in cells}, sorted({column for _, column in cells})
        for span in sheet.merged_cells.ranges:
            first = cells.get((span.min_row, span.min_col), "")
            cells |= {(number, span.min_col): first for number in range(span.min_row, span.max_row + 1)}
        empty = {number + 1 for number in own} - {number for number, _ in cells}
        rows = ([cells.get((number, column), "") for column in columns] for number in sorted(own | empty))
        text = rows_text(rows)
        parts.append((text and f"# {sheet.title}\n\n{text}", {"page_label": sheet.title}))
    return parts


def _said(cell: Any) -> str:
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    value = cell.value
    if isinstance(value, int | float) and cell._style.numFmtId in _JAPANESE_DATES:
        value = from_excel(value, cell.parent.parent.epoch)
    return f"{value:.15g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")  # of a date


def rows_text(rows: Iterable[Sequence[str]]) -> str:
    """A small table of names and values for each row, so that it can be understood alone and is never cut.

    Names are in the first row that is long enough, and anew below an empty row; titles and notes are lines.
    """
    listed = [[on_one_line(cell).replace("|", r"\|") for cell in row] for row in rows]
    most = max((len({*row} - {""}) for row in listed), default=0)
    names, blocks, unused, is_apart = list[str](), list[str](), False, False
    for row, below in pairwise([*listed, []]):
        said = [*filter(None, row)]
        begins = is_apart and _names_others(row, below) if names else 2 * len({*said}) > most
        if begins and len(said) > 1:
            blocks.append(" ".join(filter(None, names)) * unused)
            names, unused = row, True
        elif unused and said and any(name == cell for name, cell in zip(names, row, strict=False) if name):
            # names in two rows, of which some are merged
            names = [" ".join(dict.fromkeys(filter(None, both))) for both in zip_longest(names, row, fillvalue="")]
        elif names and said and (len(said) > 1 or not row[0]):
            blocks.append(row_table(names, row))
            unused = False
        else:
            blocks.append(" ".join(said))
        is_apart = not said or (is_apart and len(said) == 1)
    return "\n\n\n".join(filter(None, [*blocks, " ".join(filter(None, names)) * unused]))


def _names_others(row: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row below an empty one names columns: it has no figures, and the next has."""
    return not re.search(r"\d", "".join(row)) and bool(re.search(r"\d", "".join(below)))


def row_table(names: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row below one another, each beside its column's name."""
    first, *others = [f"| {name} | {cell} |" for name, cell in zip_longest(names, row, fillvalue="") if cell]
    return "\n".join([first, "| --- | --- |", *others])
