"""Tables as Markdown: pipe tables below one row of columns' names, and records of names beside values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of a table, which is equal to itself alone.

    Args:
        text: What it says, in one line.
        rows: How many rows it spans.
        columns: How many columns it spans.
        is_name: Whether it is marked as the name of a column or of a row: a header cell, or one in bold.
    """

    text: str = ""
    rows: int = 1
    columns: int = 1
    is_name: bool = False


Row = list[Cell]
Grid = list[Row]
"""Rows of equal length; a cell that spans several places stands in each of them."""


def lay_out(rows: Iterable[Iterable[Cell]]) -> Grid:
    """Lay cells out in a grid, as HTML does, without the rows and columns in which no text begins."""
    places: dict[tuple[int, int], Cell] = {}
    for y, row in enumerate(rows):
        x = 0
        for cell in row:
            while (y, x) in places:
                x += 1
            for place in product(range(y, y + cell.rows), range(x, x + cell.columns)):
                places.setdefault(place, cell)
            x += cell.columns
    return list(rows_with_text(places).values())


def rows_with_text(places: Mapping[tuple[int, int], Cell]) -> dict[int, Row]:
    """The rows in which a text begins by their numbers, without the columns in which none does.

    Args:
        places: Cells by row and column, a merged one first where it begins.
    """
    starts: dict[Cell, tuple[int, int]] = {}
    for place, cell in places.items():
        if cell.text:
            starts.setdefault(cell, place)
    numbers = sorted({y for y, _ in starts.values()})
    columns = sorted({x for _, x in starts.values()})
    blank = Cell()
    return {y: [places.get((y, x), blank) for x in columns] for y in numbers}


def cells_of(row: Row) -> list[Cell]:
    """The cells of a row that say something, each once."""
    return [cell for cell in dict.fromkeys(row) if cell.text]


def to_markdown(grid: Grid) -> str:
    """A table as Markdown.

    Several rows of names become one, in which each column's name begins with those of the groups above it. Names beside
    values become a record, which has an empty header. What is merged over the whole width is a line of its own, below
    which the names are repeated.
    """
    form = count_form_rows(grid)
    blocks = form_blocks(grid[:form])
    grid = grid[form:]
    table = [row for row in grid if not _is_line(row)]
    if not table:
        return "\n\n".join(blocks)
    header = table[: count_header_rows(table)]
    names = join_names(header, len(table[0]))
    for is_line, group in groupby(grid, key=_is_line):
        rows = list(group)
        body = [row_texts(row) for row in rows if row not in header]
        if is_line:
            blocks += [cell.text for cell in dict.fromkeys(row[0] for row in rows)]
        elif body or rows == table:
            blocks.append(pipe_table(names, body))
    return "\n\n".join(blocks)


def _is_line(row: Row) -> bool:
    return len(row) > 1 and len({*row}) == 1


def pipe_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown's form with pipes."""
    lines = [names, ["---"] * len(names), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)


def record(pairs: Iterable[tuple[str, str]]) -> str:
    """Names beside values, as a table whose header is empty."""
    return pipe_table(["", ""], pairs)


def row_texts(row: Row) -> list[str]:
    """What a row says in each column: a merged cell in each that it spans, but a merged label only in the first."""
    is_label = [x > 0 and cell is row[0] for x, cell in enumerate(row)]
    return ["" if repeated else cell.text for cell, repeated in zip(row, is_label, strict=True)]


# Names of columns

_FIGURE = re.compile(r"[-+−–—△▲(（¥￥$€£<>≤≥±~≈\s]*\d[\d,.\s]*(?:[%％)）円]|\s?[A-Za-zµμΩ°/]{1,4})?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_UNIT = re.compile(
    r"[(（\[［].{1,12}[)）\]］]|[千百万億兆]*(?:円|ドル|人|名|件|個|台|本|枚|株|日|年|月|時間|分|秒)|[%％]|°C|℃|yen|"
    r"(?:USD|EUR|GBP|JPY)(?: ?(?:m|bn|million|thousand))?|[munpkMGµμ]?(?:m|g|s|A|V|W|Wh|Hz|Pa|K|N|J|Ω|F|H|L|l|B|bit)"
)


def is_figure(text: str) -> bool:
    """Whether a cell is a number, perhaps with a unit, and not a year, which names columns."""
    return _FIGURE.fullmatch(text) is not None and not _YEAR.fullmatch(text)


def has_figures(cells: Iterable[Cell]) -> bool:
    """Whether one of the cells is a number."""
    return any(is_figure(cell.text) for cell in cells)


def count_header_rows(grid: Grid) -> int:
    """How many of the first rows name columns; 0 where the first one has values already."""
    marked = 0
    while marked < len(grid) and _is_marked(grid[marked]):
        marked += 1
    if marked == len(grid):
        marked = min(marked, 1)
    has_names_beside = len(grid[0]) == 2 and any(cell.is_name for cell in grid[0])
    depth = marked or int(not has_figures(grid[0]) and not has_names_beside)
    while 0 < depth < len(grid) - 1:
        has_parts = _divides_groups(grid[depth - 1], grid[depth])
        has_parts = has_parts and (not marked or has_figures(grid[depth + 1]))
        if not has_parts and not _is_row_of_units(grid[depth], below=grid[depth - 1]):
            break
        depth += 1
    return depth


def join_names(header: Grid, width: int) -> list[str]:
    """The name of each column, behind those of the groups that it is in."""
    columns = [[row[x].text for row in header] for x in range(width)]
    return [" ".join(dict.fromkeys(filter(None, column))) for column in columns]


def has_groups(row: Row) -> bool:
    """Whether a row has a cell that is merged over some of its columns."""
    has_merged = any(left is right and left.text for left, right in pairwise(row))
    return has_merged and len(cells_of(row)) > 1


def _is_marked(row: Row) -> bool:
    cells = cells_of(row)
    return bool(cells) and all(cell.is_name for cell in cells)


def _divides_groups(upper: Row, lower: Row) -> bool:
    """Whether a row names the columns of which the row above has merged the names."""
    inside = [x for x in range(1, len(upper)) if upper[x] is upper[x - 1] and upper[x].text]
    return any(lower[x] is not lower[x - 1] for x in inside) and not has_figures(cells_of(lower))


def _is_row_of_units(row: Row, below: Row) -> bool:
    cells = [cell for cell in cells_of(row) if cell not in below]
    return bool(cells) and all(_UNIT.fullmatch(cell.text) for cell in cells)


# Forms: names beside values, perhaps several in a row

_LONGEST_LABEL = 30  # characters
_LARGEST_FORM = 40  # rows: what is longer is a table, which may be cut
_LEAST_OF_A_KIND = 0.25
_NUMBER = re.compile(r"[¥￥$€£(]?\d")
_LABEL = re.compile(
    r"(?:[おご])?(?:氏名|名前|名称|フリガナ|ふりがな|申請[者日]|所属|部[署門]|役職|職種|住所|所在地|郵便番号|電話(?:番号)?|連絡先|"
    r"メール(?:アドレス)?|生年月日|年齢|性別|国籍|期[間日]|日[付時程]|場所|会場|目的|件名|用件|内容|行き?先|出張先|訪問先|担当者?|"
    r"金額|合計|交通費|宿泊費|日当|理由|備考|会社名?|商号|代表者|設立|資本金|従業員数?|作成[者日]|承認者?|提出[先日]|開始日|終了日|"
    r"有効期限|締切|契約[者日]|契約期間|管理番号|品名|型番|勤務地|給与|休日|振込先|支払期限|発行日|請求番号)|"
    r"(?:full |first |last |family |given )?name|address|(?:tele)?phone(?: number)?|tel\.?|fax|e-?mail(?: address)?|"
    r"date(?: of birth)?|birthday|nationality|department|position|job title|subject|purpose|reason|period|destination|"
    r"venue|location|contact(?: person)?|company|employer|remarks|signature|applicant|(?:approv|prepar|request)ed by|"
    r"customer|supplier|(?:invoice|order|account|reference) (?:no\.?|number|date)|due date|payment terms|"
    r"employee(?: id| no\.?| number)?|manager|start date|end date|deadline|author|version",
    re.IGNORECASE,
)


def count_form_rows(grid: Grid) -> int:
    """How many of the first rows are a form, in which names stand beside values and not above them.

    That is told by the names: they are marked, end with colons, or are what forms often ask for; and of a whole table
    by its shape.
    """
    for count in range(min(len(grid), _LARGEST_FORM), 0, -1):
        rows = [cells for cells in map(cells_of, grid[:count]) if len(cells) > 1]
        if rows and _is_form(rows, is_whole=count == len(grid)):
            return count
    return 0


def form_blocks(grid: Grid) -> list[str]:
    """The records of a form, and between them what stands alone in a row."""
    blocks: list[str] = []
    pairs: list[tuple[str, str]] = []
    for cells in map(cells_of, grid):
        if len(cells) > 1:
            pairs += [(label.text, value) for label, value in _pairs(cells)]
            continue
        if pairs:
            blocks.append(record(pairs))
            pairs = []
        blocks += [cell.text for cell in cells]
    if pairs:
        blocks.append(record(pairs))
    return blocks


def _is_form(rows: Sequence[list[Cell]], is_whole: bool) -> bool:
    pairs = [pair for cells in rows for pair in _pairs(cells)]
    labels = [label for label, _ in pairs]
    values = [value for _, value in pairs if value]
    names_columns = all(map(_is_label, rows[0]))
    if names_columns or 2 * len(values) <= len(pairs) or not all(map(_may_be_label, labels)):
        return False
    evident = sum(map(_is_label, labels))
    has_evident_labels = evident > 1 and 2 * evident >= len(labels)
    if not is_whole:
        return has_evident_labels and _is_row_of_form(rows[-1])
    has_shape_of_form = _is_uneven(rows) or _has_values_of_kinds(rows, values)
    return has_evident_labels or (has_shape_of_form and len(values) == len(labels))


def _is_row_of_form(cells: Sequence[Cell]) -> bool:
    """Whether a row is not the names of a table that stands below a form."""
    return all(value and _is_label(label) for label, value in _pairs(cells))


def _pairs(cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    """The names of a form's row with their values, which may be empty; a name of several rows goes before theirs."""
    rest = [*cells]
    group = ""
    while rest:
        label = rest.pop(0)
        is_alone = not rest or _is_label(rest[0])
        if is_alone and rest and label.rows > 1:
            group = label.text
            continue
        value = "" if is_alone else rest.pop(0).text
        yield replace(label, text=f"{group} {label.text}".strip()), value


def _may_be_label(cell: Cell) -> bool:
    return len(cell.text) <= _LONGEST_LABEL and not is_figure(cell.text)


def _is_label(cell: Cell) -> bool:
    return cell.is_name or cell.text.endswith((":", "：")) or _LABEL.fullmatch(cell.text) is not None


def _is_uneven(rows: Sequence[list[Cell]]) -> bool:
    """Whether a row merges its value over the names of others."""
    most = max(map(len, rows))
    return any(cells[-1].columns > 1 and len(cells) < most for cells in rows)


def _has_values_of_kinds(rows: Sequence[list[Cell]], values: Sequence[str]) -> bool:
    """Whether numbers and texts stand below one another, or names and numbers beside one another."""
    numbers = sum(_NUMBER.match(value) is not None for value in values[1:])
    texts = len(values) - 1 - numbers
    if len(rows[0]) > 2:
        return all(map(is_figure, values))
    return min(numbers, texts) > max(1, _LEAST_OF_A_KIND * len(values))
