"""The structure of Markdown, as markdown-it parses it: the lines of code, tables and list items; also HTML
tables.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import unescape
from itertools import chain, pairwise, takewhile, zip_longest

from markdown_it import MarkdownIt
from markdown_it.token import Token

from llama_pack_densex.text.column_names import has_names
from llama_pack_densex.text.containers import closes_fence, fence_below, find_containers
from llama_pack_densex.text.layout import (
    Block,
    BlockKind,
    Blocks,
    Line,
    Lines,
    lines_between,
    lines_from,
)
from llama_pack_densex.text.links import DATA_URI, searchable_text
from llama_pack_densex.text.plain import text_at, underlined


class Structure:
    """What markdown-it says about a text, parsed as Markdown with tables. Lines are given by their numbers.

    Args:
        text: The text.
        lines: Its lines.

    Attributes:
        elements: Code, tables, boxes and comments, by where they begin, in characters.
        items: The depths of list items, 1 for the outermost, by the line on which they begin.
        later_items: The lines on which items begin that are not the first of their list.
        depths: The depth in lists of each line of a paragraph, code or table.
        continued: Lines that continue the one above: indented lines of an item's paragraph, and lines below
            the first of a footnote, a comment, or the data of a picture.
    """

    def __init__(self, text: str, lines: Lines) -> None:
        raw = text.splitlines()
        by_number = {line.number: line for line in lines if line.text}
        for number in _tilde_underlines(lines):
            raw[number] = ""
            del by_number[number]
        elements = [
            *find_containers([*by_number.values()]),
            *_front_matter(raw, by_number),
            *_html_elements(text, lines),
            *_tagged_code(text, lines),
        ]
        for number in _numbers_within(elements, lines):
            raw[number] = ""
        tokens = _parse(raw)
        elements += _tables(tokens, by_number)
        elements += _code(tokens, by_number)
        elements += _comments(lines, _numbers_within(elements, lines))
        self.elements = {blocks[0].start: blocks for blocks in elements}
        self.items: dict[int, int] = {}
        self.later_items: set[int] = set()
        self.depths: dict[int, int] = {}
        self.continued = {*_footnote_lines(raw), *_unbroken_lines(text, lines)}
        self._read_items(tokens, raw)

    def _read_items(self, tokens: Sequence[Token], raw: Sequence[str]) -> None:
        depth = 0
        above = ""
        for token in tokens:
            lines = _lines_of(token)
            if token.type == "list_item_open":
                depth += 1
                self.items[lines.start] = depth
                if above == "list_item_close":
                    self.later_items.add(lines.start)
            elif token.type == "list_item_close":
                depth -= 1
            elif depth and token.type in ("inline", "fence", "table_open"):
                self.depths.update(dict.fromkeys(lines, depth))
                if token.type == "inline":
                    indentation = _indentation(raw[lines.start])
                    below = (number for number in lines if _indentation(raw[number]) > indentation)
                    self.continued.update(below)
            above = token.type


_ByNumber = Mapping[int, Line]
"""The lines that are not blank, by number."""


def _numbers_within(elements: Iterable[Blocks], lines: Lines) -> set[int]:
    """Return the numbers of the lines that belong to elements."""
    within = (lines_between(lines, blocks[0].start, blocks[-1].end) for blocks in elements)
    return {line.number for line in chain.from_iterable(within)}


@cache
def _parser() -> MarkdownIt:
    """Return the parser, which parses blocks but not what is within them.

    Indented text is seldom code if it comes from plain text or PDF, `plain` recognises underlined headings,
    and HTML tags are treated as text without words.
    """
    parser = MarkdownIt("commonmark").enable("table")
    parser.disable(["code", "lheading", "html_block", "reference"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


_MOST_ATTEMPTS = 8


def _parse(raw: list[str]) -> list[Token]:
    """Parse lines, treating bare fences that are never closed as text.

    Such a fence more likely closes code that began in the passage before. One that names a language runs to
    the end, as in CommonMark.
    """
    for _ in range(_MOST_ATTEMPTS):
        tokens = _parser().parse("\n".join(raw))
        unclosed = [token for token in tokens if token.type == "fence" and _is_unclosed(token, raw)]
        if not unclosed:
            return tokens
        for token in unclosed:
            raw[_lines_of(token).start] = ""
    return tokens


def _is_unclosed(token: Token, raw: Sequence[str]) -> bool:
    lines = _lines_of(token)
    is_closed = len(lines) > 1 and closes_fence(raw[lines[-1]].strip(" \t>"), token.markup)
    return not token.info and not is_closed


def _lines_of(token: Token) -> range:
    """Return the numbers of the lines of a block."""
    return range(*(token.map or (0, 0)))


def _tilde_underlines(lines: Lines) -> Iterator[int]:
    """Yield the numbers of lines that underline a heading, as in reStructuredText, and would begin code in
    Markdown.
    """
    fence = ""  # of the code that a line is in
    for place, line in enumerate(lines):
        heading = text_at(lines, place - 1)
        may_underline = heading and not fence
        if may_underline and underlined(text_at(lines, place - 2), heading, line.text) == "~":
            yield line.number
        else:
            fence = fence_below(line.text, fence)


def _comments(lines: Lines, in_elements: Container[int]) -> Iterator[Blocks]:
    """Yield the comments that take up whole lines, except those that begin within an element."""
    first: Line | None = None
    for line in lines:
        if first is None and line.text.startswith("<!--") and line.number not in in_elements:
            first = line
        _, end, rest = line.text.partition("-->")
        if first is None or not end:
            continue
        if not rest:
            yield [Block(first.start, line.end, "nothing")]
        first = None


_YAML_LINE = re.compile(r"[\w\"'-]+\s*:(?:\s|\Z)|\s|-\s|#|\Z")


def _front_matter(raw: Sequence[str], by_number: _ByNumber) -> Iterator[Blocks]:
    """Yield the front matter of a document: metadata between lines of three dashes."""
    if not raw or raw[0].rstrip() != "---":
        return
    closings = (number for number, line in enumerate(raw[1:], 1) if line.rstrip() in ("---", "..."))
    closing = next(closings, 0)
    if closing > 1 and all(map(_YAML_LINE.match, raw[1:closing])):
        yield _kept_whole(by_number[0], by_number[closing])


def _kept_whole(first: Line, last: Line) -> Blocks:
    return [Block(first.start, last.end, "code")]


def _code(tokens: Sequence[Token], by_number: _ByNumber) -> Iterator[Blocks]:
    for token in tokens:
        if token.type == "fence":
            lines = [by_number[number] for number in _lines_of(token) if number in by_number]
            yield _kept_whole(lines[0], lines[-1])


_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]:")


def _footnote_lines(raw: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the lines of footnotes below their first ones."""
    is_footnote = False
    for number, line in enumerate(raw):
        if is_footnote and line.strip() and _indentation(line):
            yield number
        else:
            is_footnote = _FOOTNOTE.match(line) is not None


_COMMENT = re.compile(r"<!--(?:(?!-->|\n\s*\n).){0,2000}-->", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z](?:[^<>\n]|\n(?!\s*\n)){0,2000}>")
_UNBROKEN = (DATA_URI, _COMMENT, _TAG)


def _unbroken_lines(text: str, lines: Lines) -> Iterator[int]:
    """Yield the numbers of the lines of wrapped data URIs, comments and tags, below their first ones."""
    for part in chain.from_iterable(pattern.finditer(text) for pattern in _UNBROKEN):
        for line in lines_between(lines, part.start() + 1, part.end()):
            yield line.number


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


# Jekyll's and Hugo's: {% highlight ruby %}, {{< code-toggle >}}
_TAGGED_CODE = re.compile(
    r"^[ \t]*(?P<tag>\{%|\{\{<|\{\{%)[ \t-]*(?P<name>highlight|code-toggle)\b[^{}\n]*\}"
    r"(?:(?!(?P=tag)[ \t-]*(?P=name)).)*?(?P=tag)[ \t-]*(?:end|/)(?P=name)\b[^{}\n]*\}+[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def _tagged_code(text: str, lines: Lines) -> Iterator[Blocks]:
    """Yield code between tags of Jekyll and Hugo."""
    for match in _TAGGED_CODE.finditer(text):
        within = lines_between(lines, *match.span())
        yield _kept_whole(within[0], within[-1])


# Tables


_Rows = list[tuple[Line, list[str]]]
"""Pairs of a row's line and its cells."""


def _tables(tokens: Sequence[Token], by_number: _ByNumber) -> Iterator[Blocks]:
    """Yield the pipe tables, row by row."""
    rows: _Rows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append((by_number[_lines_of(token).start], []))
        elif token.type == "inline" and rows:
            rows[-1][1].append(cell_text(token.content))
        elif token.type == "table_close":
            yield _pipe_table(rows, by_number)
            rows = []


def _pipe_table(rows: _Rows, by_number: _ByNumber) -> Blocks:
    (first, header), *below = rows
    names = tuple(header)
    # markdown-it takes a line below a table for a row of one cell
    body = [*takewhile(lambda row: "|" in row[0].text, below)]
    texts = [cells for _, cells in body]
    is_record = names == ("", "")
    if not is_record:
        texts = with_labels(texts)
    rule = by_number[first.number + 1]
    blocks = [Block(first.start, rule.end, "columns", names=names)]
    for (line, _), cells in zip(body, texts, strict=True):
        cells += _beyond_header(line.text, len(names))
        blocks.append(Block(line.start, line.end, "row", names=names, cells=tuple(cells)))
    if is_record and {len(row.cells) for row in blocks[1:]} == {2}:
        return [_record(blocks)]
    return _with_groups(blocks)


def _beyond_header(line: str, columns: int) -> Iterator[str]:
    """Yield the cells of a row beyond the columns of its header, which markdown-it drops."""
    cells = re.split(PIPE, line.removesuffix("|"))
    if not any(map(str.isalnum, cells[0])):  # what is before the first pipe
        del cells[0]
    yield from map(_pipe_cell, cells[columns:])


LONGEST_GROUP = 60  # characters of a table row that is a heading


def _with_groups(blocks: Blocks) -> Blocks:
    """Mark rows as headings in a table of three or more columns: those with only a short first cell,
    above a full row.
    """
    grouped: list[Block] = []
    for block, below in pairwise(blocks):
        if _is_label(block) and not _is_label(below):
            block = replace(block, kind="group")
        grouped.append(block)
    return [*grouped, blocks[-1]]


def _is_label(block: Block) -> bool:
    label, *values = block.cells or ("",)
    return 0 < len(label) <= LONGEST_GROUP and len(values) > 1 and not any(values)


def _record(blocks: Blocks) -> Block:
    """Return a table with an empty header as one row, which has names in one column, values in the other."""
    names, cells = zip(*(row.cells for row in blocks[1:]), strict=True)
    return Block(blocks[0].start, blocks[-1].end, "row", names=names, cells=cells)


def cell_text(content: str) -> str:
    """Return the text of a table's cell as it is searched, on one line."""
    return " ".join(searchable_text(content).split())


_DELIMITERS = re.compile(r"[|:+=\- \t]*")
PIPE = r"(?<!\\)\|"
"""The separator of the cells of a row."""


def bare_row(line: str) -> tuple[str, ...] | None:
    """Return the cells of a pipe table's row whose header is elsewhere; None for any other line."""
    if not line.startswith("|") or not line.endswith("|") or len(re.findall(PIPE, line)) < 2:
        return None
    if _DELIMITERS.fullmatch(line):
        return ()
    return _cells(line)


def _cells(line: str) -> tuple[str, ...]:
    return tuple(map(_pipe_cell, re.split(PIPE, line)[1:-1]))


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


# HTML within Markdown

_ELEMENT_TAG = re.compile(r"<(/?)(table|pre|script|style)\b[^<>]*(?:>|\Z)", re.IGNORECASE)
_UNSEEN = ("script", "style")
_ROW_END = r"(?<!\s)(?=\s*(?:<tr\b|</t(?:able|body|head|foot)\b|\Z))"
_ROW = re.compile(rf"<tr\b.*?{_ROW_END}", re.IGNORECASE | re.DOTALL)
_CELL_TAG = re.compile(r"<(t[hd])\b", re.IGNORECASE)
_CELL = re.compile(r"<t[hd]\b([^<>]*)>(.*?)(?=<t[hd]\b|</tr\b|\Z)", re.IGNORECASE | re.DOTALL)
_ENDS_WITH_ROW = re.compile(r"</t[dhr]>\s*\Z", re.IGNORECASE)
_MOST_CELLS = 100  # the most rows or columns that a cell spans


def _html_elements(text: str, lines: Lines) -> Iterator[Blocks]:
    """Yield tables, preformatted text, scripts and styles that begin a line; of nested ones the outermost."""
    after_last = 0
    outer_first = sorted(
        _html_pairs(text, lines), key=lambda pair: (pair[0].number, -pair[1].number)
    )
    for first, last, name in outer_first:
        if first.number < after_last:
            continue
        after_last = last.number + 1
        blocks: Blocks = ()
        if name == "table":
            blocks = _html_table(text, first.start, last.end)
        elif name in _UNSEEN:
            blocks = [Block(first.start, last.end, "nothing")]
        yield blocks or _kept_whole(first, last)


def _html_pairs(text: str, lines: Lines) -> Iterator[tuple[Line, Line, str]]:
    """Yield each element's first and last line and name; an unclosed table counts if a row ends the text."""
    opened: defaultdict[str, list[Line | None]] = defaultdict(list)  # None: within a line
    for line, tag in _element_tags(lines):
        name = tag[2].lower()
        if not tag[1]:
            opened[name].append(None if tag.start() else line)
        elif opened[name]:
            first = opened[name].pop()
            if first:
                yield first, line, name
    unclosed = next(iter(opened["table"]), None)
    if unclosed and _ENDS_WITH_ROW.search(text):
        yield unclosed, next(line for line in reversed(lines) if line.text), "table"


def _element_tags(lines: Lines) -> Iterator[tuple[Line, re.Match[str]]]:
    for line in lines:
        for tag in _ELEMENT_TAG.finditer(line.text):
            yield line, tag


def _html_table(text: str, start: int, end: int) -> Blocks:
    """Return the rows of a table; none if it holds another table, since it is then only layout."""
    rows = list(_ROW.finditer(text, start, end))
    if not rows or len(_ELEMENT_TAG.findall(text, start, end)) > 2:
        return ()
    grid = _html_grid(rows)
    headers = len([*takewhile(_is_header, rows)]) or int(has_names(grid))
    columns = zip(*grid[:headers], strict=True)
    names = tuple(" ".join(dict.fromkeys(filter(None, column))) for column in columns)
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
    between them. Totals, and rows that only begin further right, are in no group.

    Example:
        >>> with_labels([["East", "Tea", "5"], ["", "Milk", "3"], ["West", "Tea", "4"]])
        [['East', 'Tea', '5'], ['East', 'Milk', '3'], ['West', 'Tea', '4']]
    """
    rows = _without_dittos(rows)
    filled = [[*row] for row in rows]
    columns = [*zip(*rows, strict=False)]
    counts_rows = columns != [] and all(map(str.isdecimal, columns[0]))
    first = end = int(counts_rows)
    grouped = [row for row in filled if not any(map(TOTAL.search, row[: first + 2]))]
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
