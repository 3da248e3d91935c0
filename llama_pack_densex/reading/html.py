"""The text of an HTML page, as Markdown. Needs the packages beautifulsoup4 and lxml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import lxml  # noqa: F401  (Beautiful Soup takes it by name, and would not say which package is missing)
from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import Tag

from llama_pack_densex.text.tokens import on_one_line

# what a browser does not show, what repeats on every page of a site, and readings set above kanji
_DROPPED = (
    "title", "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "nav", "footer", "button",
    "select", "textarea", "dialog", "rt", "rp", "[hidden]", "[role=navigation]", "[role=search]", "a.headerlink",
    ".navheader", ".navfooter", "#toc", "div.toc", "ul.toc", "ol.toc", "dl.toc",
    '[style*="display:none" i]', '[style*="display: none" i]', '[style*="visibility:hidden" i]',
)  # fmt: skip
_BLOCKS = [
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "header", "hgroup", "hr", "html", "li", "main", "ol", "p", "section", "summary",
    "table", "td", "th", "tr", "ul",
]  # fmt: skip
_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LISTS, _CELLS = ["ol", "ul"], ["td", "th"]
_LONGEST_CELL = 1_000  # characters
_MAX_SPAN = 100  # of a table cell
_DEEPEST_LIST = 50  # of lists within lists

# Marks that no text has: the end of a block, a line break, a block that is ready, and the end of a list item's number.
_END, _BREAK, _READY, _ITEM = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"


def html_to_text(html: str) -> tuple[str, str]:
    """A page's title and text: headings as `#`, list items as `-` and `1.`, tables with pipes, code in fences."""
    # Beautiful Soup warns of most pages of books, which begin as XML
    soup = BeautifulSoup(re.sub(r"\A\s*<\?xml[^>]*>", "", html), "lxml")
    title = on_one_line(" ".join(one.get_text() for one in soup.select("title:not(svg title)", limit=1)))
    for tag in soup.select(", ".join(_DROPPED)):
        tag.extract()
    _drop_menus(soup)
    for tag in soup.find_all("sup"):  # a power, or the mark of a note
        text, is_note = tag.get_text(), tag.a or not (tag.previous_sibling or tag.next_sibling)
        if re.fullmatch(r"[-−]?\d+", text) and (is_note or re.search(r"\d\Z", tag.find_previous(string=True) or "")):
            tag.string = f"[{text}]" if is_note else f"^{text}"
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
    """Begin a definition, but for a list, with its term, since neither says anything alone."""
    below, name = term.find_next_sibling(["dt", "dd"]), on_one_line(term.get_text())
    if not name or not isinstance(below, Tag) or below.name == "dt" or below.find(_LISTS):
        return
    if first := below.find(string=re.compile(r"\S")):
        first.insert_before(f"{name} " if name.endswith(("?", "？", ":", "：")) else f"{name}: ")
        term.extract()


def _mark_items(soup: Tag) -> None:
    for around in soup.find_all(_LISTS):
        depth = len(around.find_parents(_LISTS, limit=_DEEPEST_LIST))
        start = str(around.get("start", ""))
        for number, item in enumerate(around.find_all("li", recursive=False), int(start) if start.isdecimal() else 1):
            mark = f"{number}." if around.name == "ol" else "-"
            item.insert(0, f"{_END}{'  ' * depth}{mark} {_ITEM}")
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
        tight = all(re.match(r" *(?:-|-?\d+\.) ", one) for one in (block, text.rsplit("\n", 1)[-1]))
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
            across = _span(cell, "colspan")
            for down in range(_span(cell, "rowspan")):
                grid |= {(y + down, x + i): text if i == 0 else "" for i in range(across)}
            x += across
    numbers, filled = ({place[side] for place, text in grid.items() if text} for side in (0, 1))
    lines = [[grid.get((y, x), "") for x in sorted(filled)] for y in sorted(numbers) if y < len(rows)]
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
