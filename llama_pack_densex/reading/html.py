"""The text of an HTML page, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bs4.element import Tag

# what a browser does not show, what repeats on every page of a site, and readings set above kanji
_DROPPED = (
    "title", "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "nav", "footer", "button",
    "select", "textarea", "dialog", "rt", "rp", "[hidden]", "[role=navigation]", "[role=search]",
)  # fmt: skip
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "header", "hgroup", "hr", "html", "main", "ol", "p", "section", "summary", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_CELLS = ["td", "th"]
_MAX_SPAN = 100  # of a table cell

_WIDE = r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_BREAK_IN_WIDE_TEXT = re.compile(rf"(?<={_WIDE})[ \t]*[\r\n]\s*(?={_WIDE})")
_SPACE = re.compile(r"[ \t\r\n\f\v\xa0]+")


@dataclass(frozen=True)
class Page:
    """The title of a page, empty where it has none, and its text."""

    title: str
    text: str


def html_to_text(html: str) -> Page:
    """Extract a page's text: headings as `#`, list items as `-` and `1.`, tables with pipes, code in fences.

    Needs the package beautifulsoup4.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    title = _inline(soup.title.get_text()) if soup.title else ""
    for tag in soup.select(", ".join(_DROPPED)):
        tag.extract()
    writer = _Writer()
    _write(soup, writer)
    return Page(title, writer.text())


def declared_encoding(data: bytes) -> str | None:
    """The encoding that a page names in its head. Needs the package beautifulsoup4."""
    from bs4.dammit import EncodingDetector

    return EncodingDetector.find_declared_encoding(data, is_html=True)


@dataclass
class _Writer:
    """Gathers inline text into blocks."""

    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    lists: list[int | None] = field(default_factory=list)  # the open lists: the last number, None without numbers
    prefix: str = ""

    def end_block(self) -> None:
        lines = [_inline(line) for line in "".join(self.inline).split("\0")]
        text = "\n".join(line for line in lines if line)
        self.inline = []
        if text:
            self.add(self.prefix + text.replace("\n", "\n" + " " * len(self.prefix)))
            self.prefix = " " * len(self.prefix)

    def add(self, block: str) -> None:
        self.blocks.append(block)

    def start_item(self) -> None:
        self.end_block()
        mark = "-"
        if self.lists and self.lists[-1] is not None:
            self.lists[-1] += 1
            mark = f"{self.lists[-1]}."
        self.prefix = "  " * (len(self.lists) - 1) + f"{mark} "

    def text(self) -> str:
        self.end_block()
        text = ""
        for block in self.blocks:
            tight = _is_item(block) and _is_item(text.rsplit("\n", 1)[-1])
            text += ("\n" if tight else "\n\n") + block if text else block
        return text + "\n" if text else ""


def _write(soup: Any, writer: _Writer) -> None:
    """Write a tree; with a stack of its own, since pages nest deeper than Python does."""
    from bs4.element import CData, NavigableString, PreformattedString, Tag

    stack: list[tuple[Any, bool]] = [(soup, False)]
    while stack:
        node, done = stack.pop()
        if isinstance(node, NavigableString):
            if not isinstance(node, PreformattedString) or isinstance(node, CData):  # no comments, no doctype
                writer.inline.append(str(node))
        elif isinstance(node, Tag):
            if done:
                _close(node, writer)
            elif not _write_whole(node, writer):
                _open(node, writer)
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(node.contents))


def _open(tag: Tag, writer: _Writer) -> None:
    if tag.name == "br":
        writer.inline.append("\0")
    elif tag.name == "li":
        writer.start_item()
    elif tag.name in _BLOCKS or tag.name in ("tr", "td", "th", "table"):
        writer.end_block()
        if tag.name in ("ol", "ul"):
            start = str(tag.get("start", "1"))
            writer.lists.append(int(start) - 1 if tag.name == "ol" and start.lstrip("-").isdecimal() else None)


def _close(tag: Tag, writer: _Writer) -> None:
    if tag.name in _BLOCKS or tag.name in ("li", "tr", "td", "th", "table"):
        writer.end_block()
    if tag.name in ("ol", "ul"):
        writer.lists.pop()
        writer.prefix = ""
    elif tag.name == "li":
        writer.prefix = ""


def _write_whole(tag: Tag, writer: _Writer) -> bool:
    """Write a heading, a code block or a table of data at once; False for any other tag."""
    if tag.name in _HEADINGS:
        writer.end_block()
        if text := _flat(tag, list(tag.strings)):
            writer.add(f"{_HEADINGS[tag.name]} {text}")
        return True
    if tag.name == "pre":
        writer.end_block()
        code = tag.get_text().strip("\r\n")
        if code.strip():
            writer.add(f"```\n{code}\n```")
        return True
    if tag.name == "table" and not tag.find(["table", *_HEADINGS, "pre"]):
        rows = list(_rows(tag))
        if max(map(len, rows), default=0) > 1:
            writer.end_block()
            if tag.caption and (caption := _inline(tag.caption.get_text())):
                writer.add(caption)
            writer.add(_pipe_table(rows))
            return True
    return False


def _rows(table: Tag) -> Iterator[list[str]]:
    """The cells row by row; a cell that spans rows is in each of them, one that spans columns in the first."""
    hanging: dict[int, tuple[int, str]] = {}  # by column: for how many rows more, and what
    for tr in table.find_all("tr"):
        row: list[str] = []
        for cell in tr.find_all(_CELLS):
            if cell.find_parent("tr") is not tr:
                continue  # a row may be left open, and the next one is then inside it
            _hang_down(row, hanging)
            text = _flat(cell, [string for string in cell.strings if string.find_parent(_CELLS) is cell])
            across, down = _span(cell, "colspan"), _span(cell, "rowspan")
            if down > 1:
                hanging.update({len(row) + i: (down - 1, text if i == 0 else "") for i in range(across)})
            row += [text, *[""] * (across - 1)]
        _hang_down(row, hanging)
        if any(row):
            yield row


def _hang_down(row: list[str], hanging: dict[int, tuple[int, str]]) -> None:
    """Put the cells into a row that hang down into its next columns from above."""
    while len(row) in hanging:
        left, text = hanging.pop(len(row))
        if left > 1:
            hanging[len(row)] = (left - 1, text)
        row.append(text)


def _flat(tag: Tag, strings: Sequence[str]) -> str:
    """Strings of a tag in one line; words of different lines do not run together."""
    return _inline((" " if tag.find(["br", "p", "li", "div"]) else "").join(strings))


def _span(cell: Tag, attribute: str) -> int:
    value = str(cell.get(attribute, "1"))
    return min(max(int(value), 1), _MAX_SPAN) if value.isdecimal() else 1


def _pipe_table(rows: list[list[str]]) -> str:
    width = max(map(len, rows))
    lines = [[cell.replace("|", r"\|") for cell in [*row, *[""] * (width - len(row))]] for row in rows]
    lines.insert(1, ["---"] * width)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _inline(text: str) -> str:
    return _SPACE.sub(" ", _BREAK_IN_WIDE_TEXT.sub("", text)).strip(" ")


def _is_item(block: str) -> bool:
    return bool(re.match(r" *(?:-|-?\d+\.) ", block))
