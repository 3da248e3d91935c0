"""The text of an HTML page, as Markdown. Needs the package beautifulsoup4."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import Tag

from llama_pack_densex.propositionizers.language import on_one_line

# what a browser does not show, what repeats on every page of a site, and readings set above kanji
_DROPPED = (
    "title", "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "nav", "footer", "button",
    "select", "textarea", "dialog", "rt", "rp", "[hidden]", "[role=navigation]", "[role=search]", "a.headerlink",
    ".navheader", ".navfooter", "#toc", "div.toc", "ul.toc", "ol.toc", "dl.toc",
    '[style*="display:none" i]', '[style*="display: none" i]', '[style*="visibility:hidden" i]',
)  # fmt: skip
_BLOCKS = [
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "header", "hgroup", "hr", "html", "main", "ol", "p", "section", "summary",
    "table", "td", "th", "tr", "ul",
]  # fmt: skip
_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LISTS, _CELLS = ["ol", "ul"], ["td", "th"]
_LONGEST_CELL = 1_000  # characters
_MAX_SPAN = 100  # of a table cell
_DEEPEST_LIST = 50  # of lists within lists
# What a tag ends where that was left open, unless one of the others was opened inside of it.
_ENDS = {
    "li": (["li"], [*_LISTS, "table"]),
    "p": (["p"], [*{*_BLOCKS, "li"} - {"p"}]),
    **dict.fromkeys(["dt", "dd"], (["dt", "dd"], ["dl"])),
    **dict.fromkeys(["tr", "tbody", "tfoot"], (["tr"], ["table"])),
    **dict.fromkeys(_CELLS, (_CELLS, ["tr", "table"])),
}

# Marks that no text has: the end of a block, a line break, a block that is ready, and the end of a list item's number.
_END, _BREAK, _READY, _ITEM = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"


class _Page(BeautifulSoup):
    """A page whose authors may leave out what ends a paragraph, an item, a row and a cell, as HTML allows."""

    def handle_starttag(self, name: str, *args: Any, **kwargs: Any) -> Tag | None:
        ends, within = _ENDS.get(name, ([], []))
        around = (tag.name for tag in reversed(self.tagStack)) if ends else ()
        nearest = next((one for one in around if one in ends or one in within), "")
        if nearest in ends:
            self.handle_endtag(nearest)
        return super().handle_starttag(name, *args, **kwargs)


def html_to_text(html: str) -> tuple[str, str]:
    """A page's title and text: headings as `#`, list items as `-` and `1.`, tables with pipes, code in fences."""
    soup = _Page(html, "html.parser")
    title = on_one_line(" ".join(one.get_text() for one in soup.select("title:not(svg title)", limit=1)))
    for tag in soup.select(", ".join(_DROPPED)):
        tag.extract()
    _drop_menus(soup)
    ready: list[str] = []

    def put(tag: Tag, block: str) -> None:
        ready.append(block)
        tag.replace_with(f"{_END}{_READY}{len(ready) - 1}{_END}")

    for tag in soup.find_all("table"):
        if not tag.find(["table", *_HEADINGS, "pre"]) and (table := _pipe_table(tag)):
            put(tag, table)
    for tag in soup.find_all("pre"):
        code = tag.get_text().strip("\r\n")
        put(tag, f"```\n{code}\n```" if code.strip() else "")
    for tag in soup.find_all(_HEADINGS):
        text = _flat(tag)
        put(tag, f"{'#' * int(tag.name[1])} {text}" if text else "")
    for tag in soup.find_all("dt"):
        _put_before_definition(tag)
    for tag in soup.find_all("br"):
        tag.replace_with(_BREAK)
    _mark_items(soup)
    for tag in soup.find_all(_BLOCKS):
        tag.insert(0, _END)
        tag.append(_END)
    return title, _joined(_blocks(soup.get_text(), ready))


def declared_encoding(data: bytes) -> str | None:
    """The encoding that a page names in its head."""
    return EncodingDetector.find_declared_encoding(data, is_html=True)


def _drop_menus(soup: Tag) -> None:
    """Drop the lists above the first heading in which there is nothing but links: a site has them on every page."""
    heading = soup.find(_HEADINGS)
    if isinstance(heading, Tag):
        around = {id(tag) for tag in heading.parents}
        for menu in [tag for tag in heading.find_all_previous(_LISTS) if id(tag) not in around]:
            if all(text.find_parent("a") for text in menu.find_all(string=re.compile(r"\S"))):
                menu.extract()


def _put_before_definition(term: Tag) -> None:
    """Begin a definition with its term, since neither says anything alone."""
    below, name = term.find_next_sibling(["dt", "dd"]), on_one_line(term.get_text())
    if not name or not isinstance(below, Tag) or below.name == "dt":
        return
    for first in below.find_all(string=re.compile(r"\S"), limit=1):
        is_listed = any(part.name == "li" for part in first.parents if below in part.parents)
        said = name if name.endswith(("?", "？", ":", "：")) else f"{name}:"
        (below.contents[0] if is_listed else first).insert_before(f"{said} ")
        term.extract()


def _mark_items(soup: Tag) -> None:
    numbers: Counter[int] = Counter()  # of the last item of each list
    depths = {id(None): -1}
    for inner in soup.find_all(_LISTS):
        depths[id(inner)] = min(depths[id(inner.find_parent(_LISTS))] + 1, _DEEPEST_LIST)
    for item in soup.find_all("li"):
        around = item.find_parent(_LISTS)
        mark = item.get("number") or "-"  # Word's
        if isinstance(around, Tag) and around.name == "ol":
            numbers[id(around)] += 1
            start = str(around.get("start", "1"))
            first = int(start) if start.lstrip("-").isdecimal() else 1
            mark = f"{first - 1 + numbers[id(around)]}."
        item.insert(0, f"{_END}{'  ' * depths[id(around)]}{mark} {_ITEM}")
        item.append(f"{_END}{_ITEM}")


def _blocks(text: str, ready: list[str]) -> Iterator[str]:
    mark = ""
    for part in text.split(_END):
        before, found, rest = part.rpartition(_ITEM)
        mark = before if found else mark
        if rest.startswith(_READY):
            yield ready[int(rest.removeprefix(_READY))]
            continue
        lines = filter(None, map(on_one_line, rest.split(_BREAK)))
        if block := f"\n{' ' * len(mark)}".join(lines):
            yield mark + block
            mark = " " * len(mark)


def _joined(blocks: Iterable[str]) -> str:
    text = ""
    for block in filter(None, blocks):
        tight = _is_item(block) and _is_item(text.rsplit("\n", 1)[-1])
        text += ("\n" if tight else "\n\n") + block if text else block
    return text + "\n" if text else ""


def _pipe_table(table: Tag) -> str:
    """A table of data, "" for one that only lays out; a cell that spans rows is in each of them."""
    rows = table.find_all("tr")
    grid: dict[tuple[int, int], str] = {}
    for y, row in enumerate(rows):
        x = 0
        for cell in row.find_all(_CELLS):
            while (y, x) in grid:
                x += 1
            text = _flat(cell).replace("|", r"\|")
            if cell.has_attr("merged"):  # Word's cells, with the one above
                text = grid.get((y - 1, x), "")
            across = _span(cell, "colspan")
            for down in range(_span(cell, "rowspan")):
                grid |= {(y + down, x + i): text if i == 0 else "" for i in range(across)}
            x += across
    width = max((x for _, x in grid), default=0) + 1
    lines = [[grid.get((y, x), "") for x in range(width)] for y in range(len(rows))]
    lines = [line for line in lines if any(line)]
    filled = [x for x in range(width) if any(line[x] for line in lines)]
    lines = [[line[x] for x in filled] for line in lines]
    is_line = len(lines) < 2 and not table.th
    if len(filled) < 2 or is_line or any(len(cell) > _LONGEST_CELL for line in lines for cell in line):
        return ""  # it only lays out the page
    lines.insert(1, ["---"] * len(filled))
    pipes = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    caption = on_one_line(table.caption.get_text()) if table.caption else ""
    return f"{caption}\n\n{pipes}" if caption else pipes


def _flat(tag: Tag) -> str:
    """The text of a tag in one line; words of different lines do not run together."""
    return on_one_line(tag.get_text(" " if tag.find(["br", "p", "li", "div"]) else ""))


def _span(cell: Tag, attribute: str) -> int:
    value = str(cell.get(attribute, "1"))
    return min(max(int(value), 1), _MAX_SPAN) if value.isdecimal() else 1


def _is_item(block: str) -> bool:
    return bool(re.match(r" *(?:-|-?\d+\.) ", block))
