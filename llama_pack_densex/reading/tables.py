"""Rows of tables as text that can be understood alone. Excel files need the package openpyxl."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from llama_pack_densex.propositionizers.language import on_one_line


class Row(NamedTuple):
    """A row of a table, with "" where a cell is empty.

    Args:
        cells: What its cells say.
        said: The same without what is empty, of a merged cell once.
        is_name: Whether it may name the columns; None where nothing but its words can tell.
    """

    cells: list[str]
    said: list[str]
    is_name: bool | None = None


def sheets(file: Path) -> Iterator[tuple[str, str]]:
    """The names of an Excel file's sheets and their rows; what a merged cell says, each of its rows says."""
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    with warnings.catch_warnings():  # of what would not be written again
        warnings.simplefilter("ignore")
        book = load_workbook(file, data_only=True)
    for sheet in book.worksheets:
        own = [place for place, cell in sheet._cells.items() if cell.value is not None]
        for span in sheet.merged_cells.ranges:
            sheet._cells |= dict.fromkeys(span.cells, sheet.cell(span.min_row, span.min_col))
        cells = {place: cell for place, cell in sheet._cells.items() if cell.value is not None}
        filled, columns = {number for number, _ in cells}, sorted({column for _, column in own})
        numbers = sorted({number for number, _ in own} | {number + 1 for number in filled} - filled)
        rows = [[cells.get((number, column)) for column in columns] for number in numbers]
        marked = [{bool(cell.font.b or cell.fill.fill_type) for cell in row if cell} for row in rows]
        unmarked = False if any(map(any, marked)) else None
        texts = {id(cell): _shown(cell) for cell in cells.values()}
        read: list[Row] = []
        for row, of_row in zip(rows, marked, strict=True):
            said = [texts[id(cell)] for cell in dict.fromkeys(row) if cell and texts[id(cell)]]
            is_name = of_row == {True} or unmarked  # of a form, only labels are marked
            read.append(Row([texts.get(id(cell), "") for cell in row], said, is_name))
        yield sheet.title, rows_text(read)


def rows_text(rows: Iterable[Row]) -> str:
    """A small table of names and values for each row, so that it can be understood alone and is never cut.

    Names are in the first row that may have them, or in two, and anew below an empty row; titles and notes are lines.
    """
    listed = [*rows, Row([], [])]
    names, blocks, unused = list[str](), list[str](), True
    own = list[tuple[int, str]]()  # names that one column has
    most = max(len({*said}) for _, said, _ in listed)
    is_apart = False  # whether no row of a table follows the last empty row
    for (row, said, is_name), below in pairwise(listed):
        begins = is_apart and _names_others(row, below, bool(is_name)) if names else 2 * len({*said}) > most
        was_apart, is_apart = is_apart, False
        if begins and is_name is not False and len(said) > 1:
            blocks.append(" ".join(filter(None, names)) * unused)
            names, unused, times = row, True, Counter(row)
            own = [(place, name) for place, name in enumerate(names) if name and times[name] == 1]
        elif own and all(row[place : place + 1] == [name] for place, name in own):  # merged with the row above
            names = [" ".join(dict.fromkeys(filter(None, both))) for both in zip_longest(names, row, fillvalue="")]
        elif names and said and (len(said) > 1 or not row[0]):
            blocks.append(row_table(names, row))
            unused = False
        else:
            blocks.append(" ".join(said))
            is_apart = was_apart or not said
    return "\n\n\n".join(filter(None, [*blocks, " ".join(filter(None, names)) * unused]))


_FIGURE = re.compile(r"[^\w\s]*\d[\d.,:/-]*(?![年月日期度QH])\W*\w{0,3}")  # "500円", and not "4月"


def _names_others(row: Sequence[str], below: Row, is_marked: bool) -> bool:
    """Whether a row below an empty one names columns: it has no figures, and the next has, or lacks its marks."""
    of_next = [_FIGURE.fullmatch(cell) for name, cell in zip(row, below.cells, strict=False) if name]
    return not any(map(_FIGURE.fullmatch, row)) and (any(of_next) or (is_marked and len(below.said) > 1))


def row_table(names: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row below one another, each beside its column's name."""
    first, *others = [f"| {name} | {cell} |" for name, cell in zip_longest(names, row, fillvalue="") if cell]
    return "\n".join([first, "| --- | --- |", *others])


# Formats that Excel gives to what is typed in Japanese, by numbers alone that openpyxl does not know.
_JAPANESE_DATES = {
    **dict.fromkeys((27, 28, 29, 36, 50, 51, 54, 57, 58), "ge年m月d日"), **dict.fromkeys((34, 52, 55), "yyyy年m月"),
    **dict.fromkeys((30, 31, 35, 53, 56), "yyyy年m月d日"), **dict.fromkeys((32, 33), "h時mm分"),
}  # fmt: skip
_YEAR_9800 = 2_885_000  # as days; where it ends depends on where it begins, in 1900 or 1904
_ERAS = (("令和", 2018, (2019, 5, 1)), ("平成", 1988, (1989, 1, 8)), ("昭和", 1925, (1926, 12, 25)), ("", 0, (0, 0, 0)))
_QUOTED = re.compile(r'"([^"]*)"|\\(.)|\[\$([^]-]*)[^]]*\]|[_*].|\[[^]]*\]')  # or what is there for the eye
_PLACES = re.compile(r"(?:[#0?][#0?,]*(?:\.[#0?]*)?|\.[#0?]+),*")
_APART = {code: code + 0xE000 for code in range(128)}  # quoted characters, which stand for themselves
_BACK = {apart: code for code, apart in _APART.items()}
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP, traps=[])


def _shown(cell: Any) -> str:
    """What a cell says as Excel shows it, but for dates, which have their year."""
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    value, code = cell.value, cell.number_format
    typed = _JAPANESE_DATES.get(cell._style.numFmtId)
    if typed and isinstance(value, int | float) and 0 <= value < _YEAR_9800:
        value, code = from_excel(value, cell.parent.parent.epoch), typed
    text = _moment(value, code) if isinstance(value, date | time | timedelta) else formatted(value, code)
    return on_one_line(text).replace("|", r"\|")


def formatted(value: Any, code: str) -> str:
    """A number or a text in one of Excel's number formats, but for fractions, powers and conditions."""
    plain = f"{value:.15g}" if isinstance(value, float) else str(value)
    sections = _QUOTED.sub(lambda found: "".join(filter(None, found.groups())).translate(_APART), code).split(";")
    if isinstance(value, str):
        around = next((section for section in sections if "@" in section), "@")
        return value.join(part.translate(_BACK) for part in around.split("@"))
    if isinstance(value, bool) or not isinstance(value, int | float) or re.search(r"\[[<>=]", code):
        return plain
    of_sign = 1 if value < 0 else 2 if value == 0 else 0  # positive, negative, zero
    section = sections[of_sign] if of_sign < len(sections) else sections[0]
    if "General" in section:
        return section.replace("General", plain.lstrip("-") if len(sections) > 1 else plain).translate(_BACK)
    places = _PLACES.findall(section)
    if len(places) > 1 or re.search("@|/|E[+-]", section):
        return plain
    text = _PLACES.sub(lambda found: _digits(value, found[0], section.count("%")), section).translate(_BACK)
    return f"-{text}" if value < 0 and len(sections) < 2 and re.search("[1-9]", text) else text


def _digits(value: float, places: str, percents: int) -> str:
    whole, _, decimals = places.rstrip(",").partition(".")
    thousands = len(places) - len(places.rstrip(","))
    number = abs(Decimal(repr(value))).scaleb(2 * percents - 3 * thousands, _EXACT)
    number = number.quantize(Decimal(1).scaleb(-len(decimals)), context=_EXACT)
    width = whole.count("0") + len(decimals) + bool(decimals)
    text = f"{number:,f}" if "," in whole else f"{number:f}".zfill(width)
    text = text if "0" in whole else text.removeprefix("0")
    optional = len(decimals) - len(decimals.rstrip("#?"))
    return re.sub(rf"\.?0{{1,{optional}}}\Z", "", text) if optional else text


def _moment(value: date | time | timedelta, code: str) -> str:
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(abs(value.total_seconds())), 60)
        text = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}".removesuffix(":00")
        return f"-{text}" if value < timedelta(0) else text
    letters = re.sub(r'("[^"]*")|\[[^]]*\]|AM/PM', lambda found: re.sub("[^年月日]", "", found[0]), code).lower()
    day = _day(value, "y/m/d" if "F800" in code else letters) if isinstance(value, date) else ""  # F800: the system's
    is_timed = isinstance(value, time) or (isinstance(value, datetime) and "h" in letters and value.time() != time())
    return f"{day} {value:%H:%M:%S}".strip().removesuffix(":00") if is_timed else day


def _day(value: date, letters: str) -> str:
    """A date in the style of a format's letters."""
    year, month, day = value.year, value.month, value.day
    text = f"{year}/{month}/{day}" if "/" in letters or letters == "mm-dd-yy" else f"{value:%Y-%m-%d}"
    if "mmm" in letters:
        text = f"{value:%B} {f'{day}, ' * bool(re.search('(?<!d)dd?(?!d)', letters))}{year}"
    elif re.search("[ge年月]", letters):
        era, before = next(one[:2] for one in _ERAS if (year, month, day) >= one[2])
        of_era = f"{era}{year - before}年（{year}年）".replace(f"{era}1年", f"{era}元年")
        text = of_era if era and re.search("[ge]", letters) else f"{year}年"
        text += f"{month}月" * ("m" in letters) + f"{day}日" * ("d" in letters)
    return f"{text}({'月火水木金土日'[value.weekday()]})" if "aaa" in letters else text
