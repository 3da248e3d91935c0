"""Converts CSV files and Excel sheets to tables, or to records, one per row, where the rows are long."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import chain, groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from statistics import mode
from typing import Any
from zipfile import ZipFile

from llama_pack_densex.reading.encoding import decode_file
from llama_pack_densex.reading.files import Part, UnreadableFileError, packed
from llama_pack_densex.reading.tables import (
    Cell,
    Grid,
    Places,
    Row,
    Texts,
    cell_texts,
    cells_of,
    is_line,
    pipe_table,
    read_header,
    record,
    row_texts,
    rows_with_text,
    runs,
    take_form,
)
from llama_pack_densex.text.column_names import has_names, is_figure
from llama_pack_densex.text.tables import LONGEST_GROUP, with_labels
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import on_one_line

logger = plain_logger(__name__)

_MOST_MERGED = 10**6  # cells; openpyxl makes an object of each
_MERGED = re.compile(rb"mergeCell\s+ref=[\"']([^\"']+)")
_SAMPLE = 10_000  # characters in which the delimiter is detected
_LONGEST_ROW = 300  # characters, on average over a table; longer rows are records
_MOST_COLUMNS = 20  # in more, a reader loses the name of a cell: then rows are records, too

_HeadedRow = tuple[str, Sequence[str]]
"""The heading that a row is below (empty if there is none), and its cells."""


def read_csv(file: Path) -> Iterator[Part]:
    """Yield the rows of a CSV file as tables."""
    text = decode_file(file).removeprefix("\ufeff")
    named = _NAMED_DELIMITER.match(text)
    if named:
        delimiter = named[1]
        text = text[named.end() :]
    else:
        delimiter = _delimiter(text)
    table = _csv_table(text, delimiter)
    title_count = _count_titles(table)
    titles = [[f"{delimiter} ".join(row)] for row in table[:title_count]]
    places: Places = {
        (y, x): Cell(content)
        for y, row in enumerate(titles + table[title_count:])
        for x, content in enumerate(row)
        if content
    }
    yield Part(_to_tables(places, has_forms=False))


# CSV

# the first line of some CSV files for Excel
_NAMED_DELIMITER = re.compile(r'"?sep=([^\r\n])"?[,;\t ]*(?:\r\n?|\n|\Z)', re.IGNORECASE)


def _csv_table(text: str, delimiter: str) -> Texts:
    """Return the rows of a CSV file, read with or without backslash escapes: what breaks fewer cells."""
    broken, table = _read_csv(text, delimiter, has_escapes=False)
    if broken:
        broken_otherwise, other_table = _read_csv(text, delimiter, has_escapes=True)
        if broken_otherwise < broken:
            table = other_table
    return [[*map(on_one_line, row)] for row in table]


def _delimiter(text: str) -> str:
    """Return the delimiter that most lines have."""
    sample = re.sub('"[^"]*"', "", text.strip()[:_SAMPLE])
    lines = sample.split("\n")
    # breaks ties: commas as in "3,50" are less likely delimiters
    outside_numbers = re.sub(r"(?<=\d),(?=\d)", "", sample)
    return max(
        ",;\t|",
        key=lambda mark: (sum(mark in line for line in lines), outside_numbers.count(mark)),
    )


def _read_csv(text: str, delimiter: str, has_escapes: bool) -> tuple[int, Texts]:
    """Return the number of broken cells of a CSV file (with misplaced quotation marks), and its rows.

    The module csv is not used: raising its limit of 131,072 characters per cell affects the whole process.

    Args:
        text: The text of the file.
        delimiter: The delimiter of its cells.
        has_escapes: Whether a backslash escapes the next character.
    """
    mark = re.escape(delimiter)
    within = r'(?:[^"\\]|\\[\s\S]|"")*' if has_escapes else '[^"]*(?:""[^"]*)*'
    pattern = re.compile(rf'("{within}"|)([^{mark}\r\n]*)({mark}|\r?\n|\r|\Z)')
    broken = 0
    rows: Texts = [[]]
    for quoted, plain, end in pattern.findall(text):
        content = quoted[1:-1].replace('""', '"')
        if has_escapes:
            content = re.sub(r'\\(["\\])', r"\1", content)
        broken += '"' in plain or bool(quoted and plain.strip())
        rows[-1].append(content + plain)
        if end != delimiter:
            rows.append([])
    return broken, rows


def _count_titles(table: Texts) -> int:
    """Return the number of lines above the names of columns: those before the first of the usual width."""
    sizes = [len(row) for row in table if len(row) > 1]
    if not sizes:
        return 0
    size = mode(sizes)
    first = next(y for y, row in enumerate(table) if len(row) == size)
    names, *rows = table[first:]
    if any(map(is_figure, names)) or not any(map(is_figure, chain(*rows))):
        return 0
    return first


def read_workbook(file: Path) -> Iterator[Part]:
    """Yield the sheets of an Excel file as tables, each sheet below its name, which is also its page."""
    book = _load(file)
    _warn_of_uncalculated(file, book)
    for sheet in book.worksheets:
        tables = _split_tables(_sheet_places(sheet))
        texts = (_to_tables(places, has_forms=True) for places in tables)
        text = "\n\n\n".join(filter(None, texts))
        if text:
            text = f"# {sheet.title}\n\n{text}"
        yield Part(text, {}, sheet.title)


def _load(file: Path) -> Any:
    """Return a workbook, with marks for the missing values of formulas."""
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    with ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    worksheets = {name: part for name, part in contents.items() if "xl/worksheets/" in name}
    if sum(map(_count_merged, worksheets.values())) > _MOST_MERGED:
        raise UnreadableFileError(file, "has whole columns merged: unmerge them, or save it as CSV")
    workbooks = [part for name, part in contents.items() if name.endswith("workbook.xml")]
    recalculates = any(map(_RECALCULATES.search, workbooks))
    marked = {name: _mark_uncalculated(part, recalculates) for name, part in worksheets.items()}
    with warnings.catch_warnings():  # openpyxl warns of what it would lose when it writes the file
        warnings.simplefilter("ignore")
        return load_workbook(packed({**contents, **marked}), data_only=True, rich_text=True)


def _count_merged(worksheet: bytes) -> int:
    from openpyxl.utils import range_boundaries  # type: ignore[import-untyped]

    spans = (range_boundaries(span.decode()) for span in _MERGED.findall(worksheet))
    return sum((right - left + 1) * (bottom - top + 1) for left, top, right, bottom in spans)


_UNCALCULATED = "\ufdd4"  # stands for the value of a formula that has not been calculated
_FORMULA = re.compile(rb"<(?:\w+:)?f[ />]")
# Programs that do not calculate write no values, or zeros, and request this for when the file is opened.
_RECALCULATES = re.compile(rb"<(?:\w+:)?calcPr [^>]*fullCalcOnLoad=[\"'](?:1|true)")


def _mark_uncalculated(worksheet: bytes, recalculates: bool) -> bytes:
    """Mark the missing values of formulas in a worksheet; to openpyxl they are blank cells."""
    if not _FORMULA.search(worksheet):
        return worksheet
    from lxml import etree

    root = etree.fromstring(worksheet)
    for formula in root.iterfind(".//{*}c/{*}f"):
        cell = formula.getparent()
        if _is_calculated(cell, recalculates):
            continue
        cell.set("t", "str")
        for child in [*cell]:
            cell.remove(child)
        etree.SubElement(cell, formula.tag[:-1] + "v").text = _UNCALCULATED
    mended: bytes = etree.tostring(root)
    return mended


def _is_calculated(cell: Any, recalculates: bool) -> bool:
    value = cell.findtext("{*}v")
    if cell.get("t") == "str":
        return value is not None  # an empty text is a value
    return bool(value) and not (recalculates and value in ("0", "0.0"))


_MOST_NAMED = 5  # cells that a warning names


def _warn_of_uncalculated(file: Path, book: Any) -> None:
    """Warn of formulas without values, and blank their cells."""
    names: list[str] = []
    for sheet in book.worksheets:
        for cell in sheet._cells.values():
            if cell.value == _UNCALCULATED:
                cell.value = None
                names.append(f"{sheet.title}!{cell.coordinate}")
    if not names:
        return
    count = len(names)
    if count > _MOST_NAMED:
        names[_MOST_NAMED:] = ["..."]
    shown = ", ".join(names)
    advice = "open it in Excel or LibreOffice and save it"
    logger.warning(
        "%s: formulas have no value and cannot be read (%d: %s): %s", file, count, shown, advice
    )


def _sheet_places(sheet: Any) -> Places:
    # not by rows and columns: a single cell far away makes millions of them
    cells = sorted(sheet._cells.items())
    filled = {place: cell for place, cell in cells if cell.value is not None}
    last_fills = {y: cell._style.fillId for (y, _), cell in filled.items()}
    places: Places = {}
    for place, cell in filled.items():
        is_name = bool(cell.font.b) or cell._style.fillId != last_fills[place[0]]
        places[place] = Cell(on_one_line(_cell_text(cell)), is_name)
    for span in sheet.merged_cells.ranges:
        first = places.get((span.min_row, span.min_col))
        if first:
            places.update(dict.fromkeys(span.cells, first))
    return places


def _split_tables(places: Places) -> list[Places]:
    """Split off the tables that are beside others, after an empty column; the rest comes first."""
    beside: list[Places] = []
    for stretch in _split_where_empty(places, _ROW):
        beside += _tables_beside(stretch)
    places_beside = set(chain(*beside))
    rest = {place: cell for place, cell in places.items() if place not in places_beside}
    return [rest, *beside]


_ROW = 0
_COLUMN = 1


def _split_where_empty(places: Places, axis: int) -> list[Places]:
    """Split cells at empty rows or empty columns."""
    groups: list[Places] = []
    group_of: dict[float, Places] = {}
    for numbers in _runs({place[axis] for place in places}):
        group: Places = {}
        groups.append(group)
        group_of.update(dict.fromkeys(numbers, group))
    for place, cell in places.items():
        group_of[place[axis]][place] = cell
    return groups


def _tables_beside(stretch: Places) -> Iterator[Places]:
    """Yield the tables in rows that are to the right of something else, after an empty column."""
    left, *groups = _split_where_empty(stretch, _COLUMN)
    grid = [*rows_with_text(stretch).values()]
    if not groups or take_form(grid)[0]:
        return
    for group in groups:
        if _is_apart(left, group):
            yield group
        left = {**left, **group}


def _runs(numbers: Collection[float]) -> list[list[float]]:
    """Split the numbers of rows or columns, in order, where numbers are missing."""
    return runs(sorted(numbers), lambda run, number: number == run[-1] + 1)


def _is_apart(left: Places, right: Places) -> bool:
    """Return whether cells are a table apart from the one to their left: with labels, and with other rows
    than that one or the same names; or with figures below names that are lower than those of that one.
    """
    rows = rows_with_text(right)
    rows_beside = rows_with_text(left)
    grid = [*rows.values()]
    grid_beside = [*rows_beside.values()]
    labels = [row[0].text for row in grid]
    if not _is_table(grid) or not _is_table(grid_beside) or not all(labels):
        return False
    if any(map(is_figure, labels)):
        has_names = not any(is_figure(cell.text) for cell in grid[0])
        return has_names and min(rows) > min(rows_beside)
    names = {cell.text for cell in cells_of(grid[0])}
    names_beside = {cell.text for cell in cells_of(grid_beside[0])}
    return rows.keys() != rows_beside.keys() or names <= names_beside


def _is_table(grid: Grid) -> bool:
    """Return whether a grid has at least two rows and two columns."""
    return len(grid) >= 2 and all(len(row) >= 2 for row in grid)


# The numbers of Excel's formats for dates typed in Japanese, which openpyxl does not know.
_JAPANESE_DATES = {*range(27, 37), *range(50, 59)}


def _cell_text(cell: Any) -> str:
    from openpyxl.cell.rich_text import CellRichText, TextBlock  # type: ignore[import-untyped]

    if not isinstance(cell.value, CellRichText):
        return _struck(_value_text(cell), cell.font)
    text = ""
    for part in cell.value:
        if isinstance(part, TextBlock):
            part = _struck(part.text, part.font)
        text += part
    return text


def _struck(text: str, font: Any) -> str:
    return f"~~{text.strip()}~~" if font.strike else text


def _value_text(cell: Any) -> str:
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    value = cell.value
    is_number = cell.data_type == "n"
    if is_number and cell._style.numFmtId in _JAPANESE_DATES:
        value = from_excel(value, cell.parent.parent.epoch)
    elif is_number:
        return _formatted(value, cell.number_format)
    if isinstance(value, timedelta):
        return _hours(value)
    return str(value).removesuffix(" 00:00:00")  # of a date without a time


# What a format writes around a number; and its parts, of which spaces and colours are not text.
_AROUND = r'(?:"[^"]*"|\\.|\[[^\]]*\]|[_*].|[$€£¥ ])*'
_FORMAT = re.compile(rf"({_AROUND})([#0?,.]*[#0?.]|General)(,*)({_AROUND})")
_QUOTED = re.compile(r'"[^"]*"|\\.')  # a percent sign in it does not multiply
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|[_*].|(.)')


def _formatted(value: float, number_format: str) -> str:
    """Return a number with the currency, unit and leading zeros of its format, in thousands if so shown."""
    if "%" in number_format:
        is_multiplied = "%" in _QUOTED.sub("", number_format)
        return f"{_digits(100 * value if is_multiplied else value)}%"
    match = _FORMAT.fullmatch(number_format.partition(";")[0])
    if match is None:
        return _digits(value)
    prefix, digits, thousands, suffix = match.groups()
    if thousands:
        value /= 1000 ** len(thousands)
    whole, point, decimals = _digits(abs(value)).partition(".")
    whole = whole.zfill(digits.partition(".")[0].count("0"))
    sign = "-" if value < 0 else ""
    text_before = _literal_text(prefix).lstrip()
    return f"{sign}{text_before}{whole}{point}{decimals}{_literal_text(suffix).rstrip()}"


def _digits(number: float) -> str:
    """Return a number without the inexact last digits of floating-point arithmetic."""
    return f"{number:.15g}" if isinstance(number, float) else str(number)


def _literal_text(number_format: str) -> str:
    """Return the literal text of a part of a format."""
    return "".join(filter(None, chain(*_LITERAL.findall(number_format))))


def _hours(duration: timedelta) -> str:
    """Return a duration as Excel shows it, in hours instead of days: 168:30:00."""
    minutes, seconds = divmod(round(abs(duration).total_seconds()), 60)
    sign = "-" if duration < timedelta() else ""
    return f"{sign}{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _to_tables(places: Places, has_forms: bool) -> str:
    rows = rows_with_text(places)
    stretches = [
        [rows[y] for y in stretch if y in rows] for stretch in _runs({y for y, _ in places})
    ]
    return "\n\n\n".join(filter(None, _blocks(stretches, has_forms)))


def _blocks(stretches: Sequence[Grid], has_forms: bool) -> Iterator[str]:
    """Yield the rows of a sheet as tables, its forms as records, its titles and notes as lines."""
    widest = max([2, *map(_width, chain(*stretches))])
    names: list[str] = []
    unread = ""  # names without a row below them so far
    for rows in stretches:
        blocks_below: list[str] = []
        if has_forms:
            records, rows, blocks_below = take_form(rows)
            yield from records
        start = _find_repeated(rows, names)
        if start is None:
            start = _find_names(rows, widest, has_names=bool(names))
        elif all(2 * _width(row) <= _width(rows[start]) for row in rows[:start]):
            names = []  # those above are titles, such as the year of the figures below
        yield from _rows_below(names, rows[:start])
        if start < len(rows):
            yield unread
            names, depth = read_header(rows[start:], least=1)
            unread = " ".join(filter(None, names))
            title = ""
            if len(stretches) > 1:
                title = _title_above(rows, start)  # tells tables apart
            rows = rows[start + depth :]
            yield from _rows_below(names, rows, title)
        if names and not all(map(is_line, rows)):
            unread = ""
        yield from blocks_below
    yield unread


def _rows_below(names: Sequence[str], rows: Grid, heading: str = "") -> Iterator[str]:
    """Yield rows below the names of their columns as tables, and other rows as lines between these.

    Args:
        names: The names of the columns.
        rows: The rows.
        heading: The heading that the first rows are below; headings among the rows take its place.
    """
    texts = with_labels([*map(row_texts, rows)])
    table: list[_HeadedRow] = []
    for row, values, below in zip_longest(rows, texts, rows[1:]):
        if names and not is_line(row):
            table.append((heading, values))
        elif len(names) > 2 and _is_heading(row, below):
            heading = row[0].text
        else:
            yield from _tables(names, table)
            table = []
            yield " ".join(cell.text for cell in cells_of(row))
    yield from _tables(names, table)


def _tables(names: Sequence[str], rows: Sequence[_HeadedRow]) -> Iterator[str]:
    """Yield rows as a table, or as a record each if they are long or have many columns.

    A table needs half as many passages as records do, and 500 words show all cells that answer for 9 in 100
    more of the questions about Wikipedia's tables (FeTaQA).
    """
    if rows and _fit_in_table(len(names), rows):
        yield pipe_table(names, _with_headings(rows))
        return
    for heading, values in rows:
        pairs = [*zip(names, values, strict=True)]
        if heading != values[0]:
            pairs = [("", heading), *pairs]
        yield record((name, text) for name, text in pairs if text)


def _fit_in_table(columns: int, rows: Sequence[_HeadedRow]) -> bool:
    longest_heading = max((heading for heading, _ in rows), key=len)
    if longest_heading and (columns < 3 or len(longest_heading) > LONGEST_GROUP):
        return False
    length = sum(len(" ".join(values)) for _, values in rows)
    return columns <= _MOST_COLUMNS and length <= _LONGEST_ROW * len(rows)


def _with_headings(rows: Sequence[_HeadedRow]) -> Iterator[Sequence[str]]:
    """Yield the rows of a table, each heading as a row above those that it is for."""
    for heading, headed in groupby(rows, key=itemgetter(0)):
        texts = [values for _, values in headed]
        if heading:
            yield [heading, *[""] * (len(texts[0]) - 1)]
        yield from texts


def _is_heading(line: Row, below: Row | None) -> bool:
    """Return whether a line is marked or merged, and above a row."""
    if not is_line(line) or below is None or is_line(below):
        return False
    is_marked = line[0].is_name or line[0] is line[1]
    return is_marked and len(line[0].text) <= LONGEST_GROUP


def _title_above(rows: Grid, start: int) -> str:
    """Return the heading directly above names of columns; empty if there is none."""
    if start > 0 and _is_heading(*rows[start - 1 : start + 1]):
        return rows[start - 1][0].text
    return ""


def _find_repeated(rows: Grid, names: Sequence[str]) -> int | None:
    """Return the index of the first row that repeats the names of the table above; None if there is none."""
    for number, row in enumerate(rows):
        if any(names) and [cell.text.strip() for cell in row] == [*names]:
            return number
    return None


def _find_names(rows: Grid, widest: int, has_names: bool) -> int:
    """Return the index of the first row of names, or the number of rows if there is none.

    It is the first row that is wide enough, or that has no label above one without. If there are names
    already, only the first row after an empty one can have new ones: if it has groups of columns, or no
    figures although the row below has some.
    """
    for number, (row, below) in enumerate(zip_longest(rows, rows[1:])):
        if has_names and not is_line(row):
            is_header = _is_new_header(rows[number:])
        elif _has_no_labels(row, below):
            is_header = True
        elif 2 * _width(row) > widest and not _is_title(row, below):
            is_header = _is_header(rows[number:])
        else:
            continue
        return number if is_header else len(rows)
    return len(rows)


def _has_no_labels(row: Row, below: Row | None) -> bool:
    return below is not None and not row[0].text and not below[0].text


def _is_new_header(rows: Grid) -> bool:
    """Return whether the first row has other names: groups of columns, or no figures above some."""
    _, depth = read_header(rows, least=1)
    return depth > 1 or [*map(_has_digits, rows[:2])] == [False, True]


def _is_title(row: Row, below: Row | None) -> bool:
    """Return whether a wide row is above the names of columns: one cell, or a label and figures."""
    if below is None:
        return len(cells_of(row)) == 1
    has_label = row[0].text != "" and below[0].text != "" and below[0] is not row[0]
    is_narrower = _width(row) < _width(below)
    return has_label and is_narrower and _has_digits(row) and not _has_digits(below)


def _is_header(rows: Grid) -> bool:
    """Return whether the first row has names of columns, not values."""
    if all(cell.is_name for cell in cells_of(rows[0])):
        return True
    return has_names(cell_texts(rows), otherwise=True)


def _has_digits(row: Row) -> bool:
    return any(re.search(r"\d", cell.text) for cell in row)


def _width(row: Row) -> int:
    """Return the number of columns that a row has; 0 for a line."""
    if is_line(row):
        return 0
    return sum(cell.text != "" for cell in row)
