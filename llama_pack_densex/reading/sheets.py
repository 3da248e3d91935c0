"""CSV files and the sheets of Excel as records, one a row, each of which can be understood alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from llama_pack_densex.reading.tables import (
    Cell,
    Grid,
    Row,
    cells_of,
    count_form_rows,
    count_header_rows,
    form_blocks,
    has_figures,
    join_names,
    record,
    row_texts,
    rows_with_text,
)
from llama_pack_densex.text.tokens import on_one_line

_MOST_HEADER_ROWS = 6
_SAMPLE = 10_000  # characters by which the delimiter is detected


def csv_to_text(text: str) -> str:
    """The rows of a CSV file as records."""
    lines = re.sub('"[^"]*"', "", text.strip()[:_SAMPLE]).split("\n")
    delimiter = max(
        ",;\t|",
        key=lambda mark: (sum(mark in line for line in lines), lines[0].count(mark)),
    )
    rows: list[list[str]] = [[]]
    # not by csv, whose cells may have 131,072 characters, more only where that is set for the whole process
    for match in re.finditer(rf'("[^"]*(?:""[^"]*)*"|)([^{delimiter}\r\n]*)([{delimiter}]|\r?\n|\r|\Z)', text):
        rows[-1].append(match[1][1:-1].replace('""', '"') + match[2])
        if match[3] != delimiter:
            rows.append([])
    width = max(map(len, rows))
    cells = {
        (y, x): Cell(on_one_line(row[x]))
        for y, row in enumerate(rows)
        for x in range(width)
        if x < len(row) and row[x].strip()
    }
    return _sheet_text(cells, has_forms=False)


def read_workbook(file: Path) -> list[tuple[str, str]]:
    """The names of an Excel file's sheets, and what each says as records."""
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    with warnings.catch_warnings():  # of what would not be written again
        warnings.simplefilter("ignore")
        book = load_workbook(file, data_only=True, rich_text=True)
    return [(sheet.title, _sheet_text(_sheet_cells(sheet), has_forms=True)) for sheet in book.worksheets]


_Cells = dict[tuple[int, int], Cell]


def _sheet_cells(sheet: Any) -> _Cells:
    """The cells of a sheet by row and column; a merged one is at each of its places."""
    # not by its rows and columns, since of a cell that is far away there are as many as Excel has
    filled = {place: cell for place, cell in sorted(sheet._cells.items()) if cell.value is not None}
    last_fills = {y: cell._style.fillId for (y, _), cell in filled.items()}
    cells: _Cells = {}
    for place, cell in filled.items():
        is_name = bool(cell.font.b) or cell._style.fillId != last_fills[place[0]]
        cells[place] = Cell(on_one_line(_cell_text(cell)), is_name=is_name)
    for span in sheet.merged_cells.ranges:
        if first := cells.get((span.min_row, span.min_col)):
            merged = replace(first, rows=span.size["rows"], columns=span.size["columns"])
            cells.update(dict.fromkeys(span.cells, merged))
    return cells


# Excel's formats of dates that were typed in Japanese: their numbers stand alone, and openpyxl does not know them.
_JAPANESE_DATES = {*range(27, 37), *range(50, 59)}


def _cell_text(cell: Any) -> str:
    from openpyxl.cell.rich_text import CellRichText, TextBlock  # type: ignore[import-untyped]

    if isinstance(cell.value, CellRichText):
        parts = (
            _struck(part.text) if isinstance(part, TextBlock) and part.font.strike else str(part) for part in cell.value
        )
        return "".join(parts)
    return _struck(_value_text(cell)) if cell.font.strike else _value_text(cell)


def _struck(text: str) -> str:
    return f"~~{text.strip()}~~"


def _value_text(cell: Any) -> str:
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    value = cell.value
    if isinstance(value, int | float) and cell._style.numFmtId in _JAPANESE_DATES:
        value = from_excel(value, cell.parent.parent.epoch)
    if isinstance(value, int | float) and "%" in cell.number_format:
        return f"{100 * value:.15g}%"
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value).removesuffix(" 00:00:00")  # of a date


def _sheet_text(cells: _Cells, has_forms: bool) -> str:
    """The rows of a sheet as records, its forms as such, its titles and notes as lines."""
    stretches = list(_stretches(cells))
    lengths = [len(cells_of(row)) for rows in stretches for row in rows]
    sheet = _Sheet(longest_row=max(lengths, default=0))
    for rows in stretches:
        form = count_form_rows(rows) if has_forms else 0
        sheet.blocks += form_blocks(rows[:form])
        sheet.read(rows[form:])
    sheet.end_table()
    return "\n\n\n".join(filter(None, sheet.blocks))


def _stretches(cells: _Cells) -> Iterator[Grid]:
    """The rows between empty ones."""
    rows = rows_with_text(cells)
    filled = {y for y, _ in cells}
    stretch: Grid = []
    for y in sorted(filled):
        if y - 1 not in filled and stretch:
            yield stretch
            stretch = []
        if y in rows:
            stretch.append(rows[y])
    yield stretch


class _Sheet:
    """What has been read of a sheet."""

    def __init__(self, longest_row: int) -> None:
        self.blocks: list[str] = []
        self._longest_row = longest_row
        self._names: list[str] = []
        self._has_rows = False

    def read(self, rows: Grid) -> None:
        """Read the rows between empty ones, below the names among them, or those above them."""
        start = self._find_names(rows)
        if start is None:
            self._read_rows(rows)
            return
        self._read_rows(rows[:start])
        self.end_table()
        header = _header(rows, start)
        self._names = join_names(header, len(rows[start]))
        self._has_rows = False
        self._read_rows(rows[start + len(header) :])

    def end_table(self) -> None:
        """Say what the columns' names are where there was no row below them."""
        if not self._has_rows:
            self.blocks.append(" ".join(filter(None, self._names)))

    def _find_names(self, rows: Grid) -> int | None:
        """The place of the first row of names: one that is long enough, or has groups of columns.

        Below an empty row there are new names only where the first row of several cells has no figures, and the next
        one has some.
        """
        for place, row in enumerate(rows):
            count = len(cells_of(row))
            if (count > 1 or not row[0].text) and len(_header(rows, place)) > 1:
                return place
            if count < 2:
                continue
            if self._names:
                is_above_figures = place + 1 < len(rows) and _has_digits(rows[place + 1])
                return place if is_above_figures and not _has_digits(row) else None
            if 2 * count > self._longest_row:
                return place
        return None

    def _read_rows(self, rows: Grid) -> None:
        for row in rows:
            pairs = [(name, text) for name, text in zip(self._names, row_texts(row), strict=False) if text]
            if self._names and cells_of(row) != [row[0]]:
                self.blocks.append(record(pairs))
                self._has_rows = True
            else:
                self.blocks.append(" ".join(cell.text for cell in cells_of(row)))


def _has_digits(row: Row) -> bool:
    return any(re.search(r"\d", cell.text) for cell in row)


def _header(rows: Grid, start: int) -> Grid:
    """The rows of names from a row on, which is one of them."""
    row, *others = rows[start : start + _MOST_HEADER_ROWS]
    table = [_with_groups(row, others[0]), *others] if others else [row]
    return table[: max(count_header_rows(table), 1)]


def _with_groups(row: Row, below: Row) -> Row:
    """A row of names, with those that stand above several columns as if they were merged over them."""
    inside = {x for x, (upper, lower) in enumerate(zip(row, below, strict=True)) if lower.text and not upper.text}
    first = {x for x, cell in enumerate(below) if cell.text and x not in inside}
    are_groups = bool(inside) and len(cells_of(row)) > 1 and all(x + 1 in inside for x in first)
    if not are_groups or has_figures(below):
        return row
    merged = [*row]
    for x in sorted(inside - {0}):
        merged[x] = merged[x - 1]
    return merged
