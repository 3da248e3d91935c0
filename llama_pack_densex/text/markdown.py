"""The structure of Markdown, as markdown-it parses it: code, tables and list items; and the HTML in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from markdown_it import MarkdownIt
from markdown_it.token import Token

from llama_pack_densex.text.containers import closes_fence, fence_below, find_containers
from llama_pack_densex.text.layout import Block, Blocks, Line, Lines, lines_between
from llama_pack_densex.text.links import DATA_URI
from llama_pack_densex.text.plain import text_at, underlined
from llama_pack_densex.text.tables import PipeRows, cell_text, html_table, pipe_table


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
        for number in numbers_within(elements, lines):
            raw[number] = ""
        tokens = _parse(raw)
        elements += _tables(tokens, by_number)
        elements += _code(tokens, by_number)
        elements += _comments(lines, numbers_within(elements, lines))
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
            if token.type == "list_item_open":
                depth += 1
                first = _lines_of(token).start
                self.items[first] = depth
                if above == "list_item_close":
                    self.later_items.add(first)
            elif token.type == "list_item_close":
                depth -= 1
            elif depth and token.type in ("inline", "fence", "table_open"):
                lines = _lines_of(token)
                self.depths.update(dict.fromkeys(lines, depth))
                if token.type == "inline":
                    indentation = _indentation(raw[lines.start])
                    below = (number for number in lines if _indentation(raw[number]) > indentation)
                    self.continued.update(below)
            above = token.type


_ByNumber = Mapping[int, Line]
"""The lines that are not blank, by number."""


def numbers_within(elements: Iterable[Blocks], lines: Lines) -> set[int]:
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
        if first is None or "-->" not in line.text:
            continue
        if line.text.partition("-->")[2] == "":
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
        if "\n" in part[0]:
            below_first = lines_between(lines, part.start() + 1, part.end())
            yield from (line.number for line in below_first)


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


# Tables and other HTML


def _tables(tokens: Sequence[Token], by_number: _ByNumber) -> Iterator[Blocks]:
    """Yield the pipe tables, row by row."""
    rows: PipeRows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append((by_number[_lines_of(token).start], []))
        elif token.type == "inline" and rows:
            rows[-1][1].append(cell_text(token.content))
        elif token.type == "table_close":
            header, _ = rows[0]
            yield pipe_table(rows, by_number[header.number + 1])
            rows = []


_ELEMENT_TAG = re.compile(r"<(/?)(table|pre|script|style)\b[^<>]*(?:>|\Z)", re.IGNORECASE)
_UNSEEN = ("script", "style")
_ENDS_WITH_ROW = re.compile(r"</t[dhr]>\s*\Z", re.IGNORECASE)


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
        # a table that holds another one is only layout
        if name == "table" and len(_ELEMENT_TAG.findall(text, first.start, last.end)) <= 2:
            blocks = html_table(text, first.start, last.end)
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
