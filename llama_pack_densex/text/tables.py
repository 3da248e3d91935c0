"""Tables that a text has with marks (pipes, the borders of a grid, HTML), and what their rows state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import unescape
from itertools import chain, pairwise, takewhile, zip_longest

from llama_pack_densex.text.column_names import (
    column_names,
    further_names,
    has_names,
    is_above_figures,
    is_figure,
)
from llama_pack_densex.text.layout import Block, BlockKind, Blocks, Line, Lines, lines_from
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.tokens import has_letters, has_words

PipeRows = list[tuple[Line, list[str]]]
"""Pairs of a row's line and its cells."""


def pipe_table(rows: PipeRows, rule: Line) -> Blocks:
    """Return the blocks of a pipe table.

    Args:
        rows: Its rows, of which the first is its header.
        rule: The line below the header.
    """
    (first, header), *below = rows
    # markdown-it takes a line below a table for a row of one cell
    body = [*takewhile(lambda row: "|" in row[0].text, below)]
    header_rows = [(rule, header)]
    is_record = header == ["", ""]
    if not is_record:
        header_rows += body[: further_names([header], [cells for _, cells in body])]
    names = tuple(column_names([cells for _, cells in header_rows]))
    body = body[len(header_rows) - 1 :]
    texts = [cells for _, cells in body]
    if not is_record:
        texts = with_labels(texts)
    blocks = [Block(first.start, header_rows[-1][0].end, "columns", names=names)]
    for (line, _), cells in zip(body, _whole_rows(body, texts, len(names)), strict=True):
        blocks.append(Block(line.start, line.end, "row", names=names, cells=tuple(cells)))
    if is_record and {len(row.cells) for row in blocks[1:]} == {2}:
        return [_record(blocks)]
    return _with_groups(blocks)


def _whole_rows(rows: PipeRows, texts: Sequence[list[str]], columns: int) -> Iterator[list[str]]:
    """Yield the texts of rows, with those beyond the columns of the header; once, if one cell is over all."""
    counts = Counter(chain.from_iterable(texts))
    for (line, _), cells in zip(rows, texts, strict=True):
        cells += _beyond_header(line.text, columns)
        if _is_one_cell(cells, counts):
            cells[1:] = [""] * (len(cells) - 1)
        yield cells


def _is_one_cell(cells: Sequence[str], counts: Mapping[str, int]) -> bool:
    """Return whether a row is one cell over all columns, which converters to Markdown repeat in each.

    Args:
        cells: The cells of the row.
        counts: How often each text occurs in the table; a value such as "yes" is in other rows too.
    """
    label = cells[0]
    is_repeated = len(cells) > 2 and {*cells} == {label}
    return is_repeated and counts[label] == len(cells) and has_letters(label)


def _beyond_header(line: str, columns: int) -> Iterator[str]:
    """Yield the cells of a row beyond the columns of its header, which markdown-it drops."""
    cells = PIPE.split(line.removesuffix("|"))
    if not has_words(cells[0]):  # what is before the first pipe
        del cells[0]
    yield from map(_pipe_cell, cells[columns:])


LONGEST_GROUP = 60  # characters of a table row that is a heading


def _with_groups(blocks: Blocks) -> Blocks:
    """Mark rows as headings in a table of three or more columns: those with only a short first cell, or a
    short cell above figures, above a full row.
    """
    grouped: list[Block] = []
    for block, below in pairwise(blocks):
        heading = "".join(block.cells)
        if heading in block.cells and _is_group(block.cells, below.cells):
            cells = (heading, *[""] * (len(block.cells) - 1))
            block = replace(block, kind="group", cells=cells)
        grouped.append(block)
    return [*grouped, blocks[-1]]


def _is_group(cells: Sequence[str], below: Sequence[str]) -> bool:
    """Return whether a row of one text is a heading."""
    if len(cells) < 3 or len("".join(cells)) > LONGEST_GROUP:
        return False
    is_label = cells[0] != ""
    return (is_label and any(below[1:])) or is_above_figures(cells, [below])


def _record(blocks: Blocks) -> Block:
    """Return a table with an empty header as one row, which has names in one column, values in the other.

    A line of one cell, such as to whom an estimate is addressed, has no name; one that ends in a colon is a
    name without a value. The last one may be a name whose value has been cut off.
    """
    *lines, last = [row.cells for row in blocks[1:]]
    names = [name for name, _ in [*lines, last]]
    values = ["" if name.endswith((":", "：")) else name for name, _ in lines]
    cells = [value or name for (_, value), name in zip(lines, values, strict=True)]
    cells.append(last[1])
    return Block(blocks[0].start, blocks[-1].end, "row", names=tuple(names), cells=tuple(cells))


# Characters; a shorter record is one unit. Since the fields of forms are units of their own, 0.88 of the
# questions about accident reports (0.52 before) have their answer in the first 50 words, and 0.81 (0.75) the
# right passage first.
_LONGEST_RECORD = 200
_RECORD_LINE = re.compile(r"\|.*")


def record_lines(text: str, row: Block) -> Blocks:
    """Return each name with its value in a long record as a row, after its first one, which says what it is a
    record of; empty for other rows.

    Args:
        text: The text that the row is a block of; the beginning of a record may be in another passage.
        row: A row with its statement.
    """
    begins_with_line = text.startswith("|", row.start)  # and not within a value
    if len(row.row) <= _LONGEST_RECORD or not begins_with_line:
        return ()
    lines = [line for line in _RECORD_LINE.finditer(text, *row.span) if has_words(line[0])]
    names = tuple(_cells(f"{line[0]}|")[0] for line in lines)
    first = len(row.names) - len(names)
    if not names or names != row.names[first:]:
        return ()
    fields = [_field(row, number, line.span()) for number, line in enumerate(lines, first)]
    return [replace(fields[0], start=row.start), *fields[1:]]


def _field(record: Block, number: int, span: tuple[int, int]) -> Block:
    """Return a name with its value in a record, after the first one."""
    chosen = [0, number] if number and record.cells[number] else [number]
    names = tuple(record.names[place] for place in chosen)
    cells = tuple(record.cells[place] for place in chosen)
    start, end = span
    statement = row_statement(names, cells)
    return replace(record, start=start, end=end, names=names, cells=cells, row=statement)


def cell_text(content: str) -> str:
    """Return the text of a table's cell as it is searched, on one line."""
    return " ".join(searchable_text(content).split())


_DELIMITERS = re.compile(r"[|:+=\- \t]*")
PIPE = re.compile(r"(?<!\\)\|")
"""The separator of the cells of a row."""


def bare_row(line: str) -> tuple[str, ...] | None:
    """Return the cells of a pipe table's row whose header is elsewhere; None for any other line."""
    if not line.startswith("|") or not line.endswith("|") or len(PIPE.findall(line)) < 2:
        return None
    if _DELIMITERS.fullmatch(line):
        return ()
    return _cells(line)


def _cells(line: str) -> tuple[str, ...]:
    return tuple(map(_pipe_cell, PIPE.split(line)[1:-1]))


def _pipe_cell(written: str) -> str:
    return cell_text(written.replace(r"\|", "|"))


_BORDERS = ("+-", "+=")


def grid_table(lines: Lines, place: int) -> Blocks:
    """Return the reStructuredText grid table whose top border is a line; empty for any other line."""
    top = lines[place]
    if not top.text.startswith(_BORDERS):
        return ()
    starts = ("|", *_BORDERS)
    below = [*takewhile(lambda line: line.text.startswith(starts), lines_from(lines, place + 1))]
    if _has_a_row_per_line(below):
        return ()
    blocks: list[Block] = []
    names: tuple[str, ...] = ()
    row: list[Line] = []
    start = top.start
    for line in below:
        if not line.text.startswith(_BORDERS):
            row.append(line)
            continue
        if not row:
            continue
        cells = _grid_cells(row)
        kind: BlockKind = "row"
        if line.text.startswith("+="):
            kind = "columns"
            names = cells
        blocks.append(Block(start, line.end, kind, names=names, cells=cells))
        row = []
        start = line.end + 1
    return blocks


def _has_a_row_per_line(below: Lines) -> bool:
    """Return whether the lines below a top border are names, a border, rows and a border, as MySQL prints
    tables.
    """
    borders = [number for number, line in enumerate(below) if line.text.startswith("+-")]
    rows = below[2:-1]
    is_printed = len(rows) > 1 and borders == [1, len(below) - 1]
    return is_printed and all(_cells(row.text)[:1] != ("",) for row in rows)


def _grid_cells(row: Lines) -> tuple[str, ...]:
    columns = zip(*(_cells(line.text) for line in row), strict=False)
    return tuple(" ".join(filter(None, column)) for column in columns)


_ROW_END = r"(?<!\s)(?=\s*(?:<tr\b|</t(?:able|body|head|foot)\b|\Z))"
_ROW = re.compile(rf"<tr\b.*?{_ROW_END}", re.IGNORECASE | re.DOTALL)
_CELL_TAG = re.compile(r"<(t[hd])\b", re.IGNORECASE)
_CELL = re.compile(r"<t[hd]\b([^<>]*)>(.*?)(?=<t[hd]\b|</tr\b|\Z)", re.IGNORECASE | re.DOTALL)
_MOST_CELLS = 100  # the most rows or columns that a cell spans


def html_table(text: str, start: int, end: int) -> Blocks:
    """Return the blocks of the HTML table in a stretch of a text; empty if it has no rows."""
    rows = list(_ROW.finditer(text, start, end))
    if not rows:
        return ()
    grid = _html_grid(rows)
    headers = len([*takewhile(_is_header, rows)]) or int(has_names(grid))
    if headers:
        headers += further_names(grid[:headers], grid[headers:])
    names = tuple(column_names(grid[:headers]))
    blocks: list[Block] = []
    if headers:
        blocks.append(Block(start, rows[headers - 1].end(), "columns", names=names))
    for row, cells in zip(rows[headers:], grid[headers:], strict=True):
        if len(set(cells)) == 1:  # one cell spans all columns
            cells[1:] = [""] * (len(cells) - 1)
        blocks.append(Block(row.start(), row.end(), "row", names=names, cells=tuple(cells)))
    blocks[0] = replace(blocks[0], start=start)
    blocks[-1] = replace(blocks[-1], end=end)
    return _with_groups(blocks)


def _is_header(row: re.Match[str]) -> bool:
    return {tag.lower() for tag in _CELL_TAG.findall(row[0])} == {"th"}


def _html_grid(rows: Sequence[re.Match[str]]) -> list[list[str]]:
    """Return the cells of a table by row and column; a cell that spans several is repeated in each."""
    grid: list[dict[int, str]] = [{} for _ in rows]
    for y, row in enumerate(rows):
        x = 0
        for cell in _CELL.finditer(row[0]):
            while x in grid[y]:
                x += 1
            text = cell_text(unescape(cell[2]))
            across = spanned(cell[1], "col")
            for lower in grid[y : y + spanned(cell[1], "row")]:
                lower.update(dict.fromkeys(range(x, x + across), text))
            x += across
    columns = range(max(chain(*grid), default=-1) + 1)
    return [[row.get(x, "") for x in columns] for row in grid]


def spanned(attributes: str, kind: str) -> int:
    """Return how many rows ("row") or columns ("col") a cell spans."""
    span = re.search(rf"\b{kind}span\s*=\s*[\"']?(\d{{1,3}})", attributes, re.IGNORECASE)
    if span is None:
        return 1
    return min(max(int(span[1]), 1), _MOST_CELLS)


TOTAL = re.compile(r"\b(?:sub)?total\b|[小合総]計|^計$", re.IGNORECASE)
_LEAST_BLANK = 0.2  # of the cells of a column with labels of groups


def with_labels(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the rows of a table with the labels of groups repeated in the blank cells below them, and what
    is above ditto marks in place of these.

    Labels are in the first columns (or behind one that counts the rows), distinct, and with blank cells
    between them. Totals, rows that only begin further right, and those that have only figures behind the
    blank cell, as totals without a label do, or a text above figures, are in no group.

    Example:
        >>> with_labels([["East", "Tea", "5"], ["", "Milk", "3"], ["West", "Tea", "4"]])
        [['East', 'Tea', '5'], ['East', 'Milk', '3'], ['West', 'Tea', '4']]
    """
    rows = _without_dittos(rows)
    filled = [[*row] for row in rows]
    columns = [*zip(*rows, strict=False)]
    counts_rows = columns != [] and all(map(str.isdecimal, columns[0]))
    first = end = int(counts_rows)
    pairs = pairwise([*filled, []])
    grouped = [row for row, below in pairs if _may_be_in_group(row[first:], below[first:])]
    while end + 1 < len(columns):
        below_labels = _below_labels(grouped, first, end)
        if not _are_labels(grouped, first, end, below_labels):
            break
        for place in below_labels:
            grouped[place][end] = grouped[place - 1][end]
        end += 1
    for row, unlabelled in zip(filled, rows, strict=True):
        if not any(unlabelled[first : end + 1]):
            row[:] = unlabelled
    return filled


def _may_be_in_group(row: Sequence[str], below: Sequence[str]) -> bool:
    """Return whether a row has the label of a group or may be below one: a total or heading is not."""
    if any(map(TOTAL.search, row[:2])):
        return False
    if any(row[:1]):
        return True
    texts = [*filter(None, row)]
    is_heading = len(texts) == 1 and is_above_figures(row, [below])
    return not is_heading and not all(map(is_figure, texts))


_DITTO = re.compile(r"〃|仝|同上|\"|''|,,|ditto|dito|idem|(?:same )?as above", re.IGNORECASE)


def _without_dittos(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    filled = [[*row] for row in rows]
    for above, row in pairwise(filled):
        for x, (upper, cell) in enumerate(zip(above, row, strict=False)):
            if _DITTO.fullmatch(cell):
                row[x] = upper
    return filled


def _below_labels(rows: Sequence[Sequence[str]], first: int, column: int) -> list[int]:
    """Return the indices of the rows that have a blank cell in a column and, from `first` to it, the labels
    of the row above.
    """
    return [
        place
        for place, (above, row) in enumerate(pairwise(rows), 1)
        if not row[column] and row[first:column] == above[first:column]
    ]


def _are_labels(
    rows: Sequence[Sequence[str]], first: int, column: int, below_labels: Sequence[int]
) -> bool:
    """Return whether the cells of a column that are not blank are labels of groups, within those of the
    columns from `first` to it.
    """
    places = [place for place, row in enumerate(rows) if row[column]]
    if not places or not any(places[0] < place < places[-1] for place in below_labels):
        return False
    labels = {tuple(rows[place][first : column + 1]) for place in places}
    least = _LEAST_BLANK * (len(below_labels) + len(places))
    return len(labels) == len(places) and len(below_labels) >= least


def row_statement(names: Sequence[str], cells: Sequence[str]) -> str:
    """Return the statement that a row makes by itself: each cell after the name of its column.

    Args:
        names: The columns' names; empty, or fewer than there are cells, if they are not known.
        cells: The cells; empty ones are left out.

    Example:
        >>> row_statement(["Part", "Price in yen"], ["P120", "940"])
        'Part: P120; Price in yen: 940'
    """
    statements: list[str] = []
    for name, cell in zip_longest(names, cells, fillvalue=""):
        label = name.rstrip(":： ")
        if cell:
            statements.append(f"{label}: {cell}" if label and label != cell else cell)
    return "; ".join(statements)
