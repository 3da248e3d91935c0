"""The grid that represents tables of all file formats, and its Markdown: pipe tables, records, and lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, filterfalse, groupby, pairwise, product, takewhile
from typing import TypeVar

from llama_pack_densex.text.column_names import column_names, further_names, has_names, is_figure
from llama_pack_densex.text.tables import LONGEST_GROUP, with_labels
from llama_pack_densex.text.tokens import on_one_line


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of a table. Cells are compared by identity.

    Args:
        text: Its text, on one line.
        is_name: Whether its format marks it as the name of a column or row: a header cell, or in bold.
        down: The number of rows that it spans.
        across: The number of columns that it spans.
    """

    text: str = ""
    is_name: bool = False
    down: int = 1
    across: int = 1


Row = list[Cell]
Grid = list[Row]
"""Rows of equal length; a merged cell is repeated in each place that it spans."""

Texts = list[list[str]]
"""The texts of cells, row by row."""

Places = dict[tuple[float, float], Cell]
"""Cells by row and column; the first place of a merged cell is where it begins."""

_Item = TypeVar("_Item")


def runs(
    items: Iterable[_Item], goes_on: Callable[[list[_Item], _Item], bool]
) -> list[list[_Item]]:
    """Split items, in order, before each one that does not continue the run before it."""
    split: list[list[_Item]] = []
    for item in items:
        if split and goes_on(split[-1], item):
            split[-1].append(item)
        else:
            split.append([item])
    return split


def lay_out(rows: Iterable[Iterable[Cell]]) -> Grid:
    """Lay cells out in a grid, as HTML does."""
    places: Places = {}
    for y, row in enumerate(rows):
        x = 0
        for cell in row:
            while (y, x) in places:
                x += 1
            for place in product(range(y, y + cell.down), range(x, x + cell.across)):
                places.setdefault(place, cell)
    return join_signs(list(rows_with_text(places).values()))


def rows_with_text(places: Places) -> dict[float, Row]:
    """Return the rows in which a cell with text begins, by number, without columns in which none does."""
    starts = {cell: place for place, cell in reversed(places.items()) if cell.text}
    rows = sorted({y for y, _ in starts.values()})
    columns = sorted({x for _, x in starts.values()})
    blank = Cell()
    return {y: [places.get((y, x), blank) for x in columns] for y in rows}


def join_signs(grid: Grid) -> Grid:
    """Join columns of signs, which financial statements set apart, with those of their figures."""
    joined: dict[Cell, Cell] = {}  # what became of cells, some of which are in further columns
    columns: list[Row] = []
    for column in zip(*grid, strict=True):
        cells = [joined.get(cell, cell) for cell in column]
        if columns and _are_apart(zip(columns[-1], cells, strict=True)):
            columns[-1] = [_joined(*pair, joined) for pair in zip(columns[-1], cells, strict=True)]
        else:
            columns.append(cells)
    return [list(row) for row in zip(*columns, strict=True)]


_SIGN_BEFORE = re.compile(r"[(−-]?(?:(?:[A-Z]{0,3}[$€£¥￥₩₹]|EUR|USD|GBP|JPY|CHF) ?)+\(?")
_SIGN_BEHIND = re.compile(r"[)）]?[%％円]?|[%％][)）]")
_BEGINNING_OF_FIGURE = re.compile(r"\S{0,2}\d|[-–—−]")


def _are_apart(pairs: Iterable[tuple[Cell, Cell]]) -> bool:
    """Return whether one of two adjacent columns has the signs of the figures in the other."""
    texts = [(a.text, b.text) for a, b in pairs if a is not b and a.text and b.text]
    are_before = all(
        _SIGN_BEFORE.fullmatch(sign) and _BEGINNING_OF_FIGURE.match(figure)
        for sign, figure in texts
    )
    are_behind = all(
        _BEGINNING_OF_FIGURE.match(figure) and _SIGN_BEHIND.fullmatch(sign)
        for figure, sign in texts
    )
    return bool(texts) and (are_before or are_behind)


def _joined(left: Cell, right: Cell, joined: dict[Cell, Cell]) -> Cell:
    """Return two adjacent cells as one, and note that it takes their place."""
    if left is right or not right.text:
        return left
    if not left.text:
        return right
    both = Cell(left.text + right.text, right.is_name)
    joined[left] = joined[right] = both
    return both


def cells_of(row: Row) -> list[Cell]:
    """Return the cells of a row that have text, merged ones once."""
    return [cell for cell in dict.fromkeys(row) if cell.text]


def is_line(row: Row) -> bool:
    """Return whether only the first cell of a row has text."""
    return cells_of(row) == [row[0]]


def row_texts(row: Row) -> list[str]:
    """Return a row's text in each column. Merged cells are repeated, except a label that begins the row."""
    label, *values = row
    return [label.text, *("" if cell is label else cell.text for cell in values)]


def cell_texts(grid: Grid) -> Texts:
    """Return the text of each cell."""
    return [[cell.text for cell in row] for row in grid]


# Markdown


def to_markdown(grid: Grid, title: str = "") -> str:
    """Return a table as Markdown: its title, the form that it begins with, and rows below column names.

    A cell that is merged across the whole width becomes a row with a heading for the rows below it, or else a
    line; below a line the names are repeated.
    """
    records, grid, records_below = take_form(grid)
    blocks = [on_one_line(title), *records]
    table = list(filterfalse(is_one_cell, grid))
    names, depth = read_header(table)
    header = table[:depth]
    headings = _headings(grid, header)
    for is_line, rows in groupby(grid, key=lambda row: is_one_cell(row) and row not in headings):
        body = [row for row in rows if row not in header]
        if is_line:
            blocks += dict.fromkeys(row[0].text for row in body)
        elif body or header == table:
            rows_below = with_labels([*map(row_texts, body)])
            blocks.append(pipe_table(names, rows_below) if any(names) else _nameless(rows_below))
    return "\n\n".join(filter(None, [*blocks, *records_below]))


def _nameless(rows: Texts) -> str:
    """Return rows without names of columns: two cells as "name: value" in a list, since a table of two
    columns without names would be one record.
    """
    if len(rows[0]) != 2:
        return pipe_table([""] * len(rows[0]), rows)
    pairs = ((name.rstrip(":： "), value) for name, value in rows)
    return "\n".join(f"- {': '.join(filter(None, pair))}" for pair in pairs)


def _headings(grid: Grid, header: Grid) -> Grid:
    """Return the rows below the names of the columns that are headings for the rows below them."""
    start = grid.index(header[-1]) + 1 if header else 0
    return [row for row, below in pairwise(grid[start:]) if _is_heading(row, below)]


def is_one_cell(row: Row) -> bool:
    """Return whether a row is one cell that is merged across all columns."""
    return len(row) > 1 and len({*row}) == 1


def _is_heading(row: Row, below: Row) -> bool:
    """Return whether a row of three or more columns is one cell, the heading of the rows below it."""
    is_short = len(row[0].text) <= LONGEST_GROUP
    return len(row) > 2 and is_one_cell(row) and not is_one_cell(below) and is_short


def record(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and their values as a pipe table with an empty header."""
    return pipe_table(["", ""], pairs)


def pipe_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a pipe table."""
    lines = [names, ["---"] * len(names), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)


# The names of columns


def read_header(grid: Grid, least: int = 0) -> tuple[list[str], int]:
    """Return the names of columns (each after those of its groups) and how many rows they take up.

    Args:
        grid: The table, which begins with the names if it has any.
        least: How many of the first rows are known to be names.
    """
    depth = len(list(takewhile(_is_marked, grid)))
    while 1 < depth < len(grid) and {*cells_of(grid[depth - 1])} <= {*grid[depth]}:
        depth -= 1  # labels of the rows below, which they span
    if depth == len(grid) or (depth == 0 and _has_names(grid)):
        depth = 1
    depth = max(least, depth)
    texts = cell_texts(grid)
    if depth:
        depth += further_names(texts[:depth], texts[depth:])
    return column_names(texts[:depth]), depth


def _has_names(grid: Grid) -> bool:
    """Return whether the first row of a table names columns, or their groups above a row that does."""
    first, *below = grid
    if first[0].is_name:
        return False
    has_groups = len(cells_of(first)) < sum(bool(cell.text) for cell in first)
    is_above_names = has_groups or is_line(first)
    return has_names(cell_texts(grid)) or (is_above_names and has_names(cell_texts(below)))


def _is_marked(row: Row) -> bool:
    return all(cell.is_name for cell in cells_of(row))


# Forms: names beside values, perhaps several in a row

_LARGEST_FORM = 40  # rows; a longer one is a table, which may be split between passages
_LONGEST_VALUE = 80  # characters; a longer one is a record of its own
_COLONS = (":", "：")
_LABEL = re.compile(
    r"(?:[おご])?(?:氏名|名前|名称|フリガナ|ふりがな|申請[者日]|所属|部[署門]|役職|職種|住所|所在地|郵便番号|電話(?:番号)?|連絡先|"
    r"メール(?:アドレス)?|生年月日|年齢|性別|国籍|期[間日]|日[付時程]|場所|会場|目的|件名|用件|内容|行き?先|出張先|訪問先|担当者?|"
    r"金額|合計|交通費|宿泊費|日当|理由|備考|会社名?|商号|代表者|設立|資本金|従業員数?|作成[者日]|承認者?|提出[先日]|開始日|終了日|"
    r"有効期限|締切|契約[者日]|契約期間|管理番号|品名|型番|勤務地|給与|休日|振込先|支払期限|発行日|請求番号)|"
    r"(?:full |first |last |family |given )?name|address|(?:tele)?phone(?: number)?|tel\.?|fax|"
    r"e-?mail(?: address)?|"
    r"date(?: of birth)?|birthday|nationality|department|position|job title|subject|purpose|reason|"
    r"period|destination|"
    r"venue|location|contact(?: person)?|company|employer|remarks|signature|applicant|"
    r"(?:approv|prepar|request)ed by|"
    r"customer|supplier|(?:invoice|order|account|reference) (?:no\.?|number|date)|due date|payment terms|"
    r"employee(?: id| no\.?| number)?|(?:\w+ )?manager|owner|sponsor|client|"
    r"status|budget|start date|end date|deadline|author|version",
    re.IGNORECASE,
)


def take_form(grid: Grid) -> tuple[list[str], Grid, list[str]]:
    """Return the records and lines of the form at the beginning of a grid (if any), the rows below it,
    and the records with which the form goes on below these.
    """
    names = _names(grid[:_LARGEST_FORM])
    form_rows = [_FormRow(row, names) for row in grid[:_LARGEST_FORM]]
    for size in range(len(form_rows), 0, -1):
        if _is_form(form_rows[:size], is_whole=size == len(grid)):
            rows = grid[size:]
            end = len(rows) - len([*takewhile(_is_beside, reversed(rows))])
            below = [*_form_blocks(rows[end:], names)]
            return [*_form_blocks(grid[:size], names)], rows[:end], below
    return [], grid, []


def _names(grid: Grid) -> set[Cell]:
    """Return the cells that are names: the labels, and all cells of a column if most are marked as names."""
    rows = [row for row in grid if _has_pairs(row)]
    names = {cell for cell in chain(*rows) if _is_label(cell)}
    for left, column in pairwise([[None] * len(rows), *zip(*rows, strict=True)]):
        begun = {cell for cell, before in zip(column, left, strict=True) if cell is not before}
        texts = {cell for cell in begun if cell.text}
        if 2 * sum(map(_is_marked_name, texts)) > len(texts):
            names |= texts
    return names


def _form_blocks(grid: Grid, names: Container[Cell]) -> Iterable[str]:
    for has_pairs, rows in groupby(grid, key=_has_pairs):
        cells = chain(*(_pairs(row, names) for row in rows))
        pairs = [(name.text, value.text) for name, value in cells]
        if has_pairs:
            yield from map(record, runs(pairs, _are_short))
        else:
            yield from (line for line, _ in pairs)


def _has_pairs(row: Row) -> bool:
    return len(cells_of(row)) > 1


def _are_short(above: Sequence[tuple[str, str]], pair: tuple[str, str]) -> bool:
    """Return whether a pair is read with those above; not if one is a text or answers a question."""
    name, value = pair
    return not _is_question(name) and len(above[-1][1]) <= _LONGEST_VALUE >= len(value)


_Pair = list[Cell]
"""A name with its value, which may be blank."""


def _pairs(row: Row, names: Container[Cell]) -> list[_Pair]:
    """Return the names in a row, each with the cell behind it unless that is another name."""
    pairs = runs(cells_of(row), lambda pair, cell: len(pair) == 1 and cell not in names)
    return [[*pair, Cell()][:2] for pair in pairs]


class _FormRow:
    """A row of a form.

    Attributes:
        cells: Its places.
        pairs: Its names, each with the cell behind it unless that is another name.
        has_value: Whether a name in it has a value.
        is_beside: Whether it is a question and its answer, or a name and a value merged to the end.
        are_labelled: For each pair, whether it is a name with its value.
    """

    def __init__(self, row: Row, names: Container[Cell]) -> None:
        self.cells = row
        self.pairs = _pairs(row, names)
        self.has_value = any(value.text for _, value in self.pairs)
        self.is_beside = _is_beside(row)
        self.are_labelled = [
            self.is_beside or (value.text != "" and name in names) for name, value in self.pairs
        ]


def _is_form(rows: Sequence[_FormRow], is_whole: bool) -> bool:
    """Return whether names are beside values, not above them; by the names, or the shape of a whole table."""
    rows = [row for row in rows if _has_pairs(row.cells)]
    if is_whole and _is_blank(rows):
        return True
    if not rows or not rows[0].has_value or any(map(_are_list, rows, rows[1:])):
        return False
    if _has_labels(rows):
        return is_whole or all(rows[-1].are_labelled)
    return is_whole and _is_shaped_as_form(rows)


def _is_blank(rows: Sequence[_FormRow]) -> bool:
    """Return whether rows have names, most of them with a colon, but no values."""
    pairs = [*chain(*(row.pairs for row in rows))]
    with_colon = sum(name.text.endswith(_COLONS) for name, _ in pairs)
    return 2 * with_colon > len(pairs) and not any(row.has_value for row in rows)


def _has_labels(rows: Sequence[_FormRow]) -> bool:
    """Return whether half of the pairs are names with their values, from the first row on."""
    are_labelled = [*chain(*(row.are_labelled for row in rows))]
    begins = any(rows[0].are_labelled) or not any(row.is_beside for row in rows)
    return begins and sum(are_labelled) >= max(2, len(are_labelled) / 2)


def _is_beside(row: Row) -> bool:
    """Return whether a row is a question and its answer, or a name and a value merged to the end."""
    return len(cells_of(row)) == 2 and (_ends_merged(row) or _is_question(row[0].text))


def _ends_merged(row: Row) -> bool:
    return row[-1] is row[-2] and row[-1].text != ""


def _is_question(text: str) -> bool:
    return text.endswith(("?", "？"))


def _are_list(upper: _FormRow, lower: _FormRow) -> bool:
    """Return whether two rows are of a list beside its name: they share the first cell."""
    name = upper.cells[0]
    is_shared = lower.cells[0] is name or not lower.cells[0].text
    return is_shared and not any(lower.are_labelled) and len({*cells_of(lower.cells)} - {name}) > 2


def _is_shaped_as_form(rows: Sequence[_FormRow]) -> bool:
    """Return whether a row ends in a merged value, or a column of values mixes figures and texts."""
    names, values = zip(*chain(*(row.pairs for row in rows)), strict=True)
    if not all(value.text for value in values) or any(is_figure(name.text) for name in names):
        return False
    figures = sum(is_figure(value.text) for value in values)
    rarer = min(figures, len(values) - figures)
    is_mixed = len(rows[0].pairs) == 1 and rarer > len(values) // 4 + 1
    return is_mixed or any(_ends_merged(row.cells) for row in rows)


def _is_label(cell: Cell) -> bool:
    return _is_marked_name(cell) or _LABEL.fullmatch(cell.text) is not None


def _is_marked_name(cell: Cell) -> bool:
    return cell.is_name or cell.text.endswith(_COLONS)
