"""The text of an HTML page, as Markdown. Needs the packages beautifulsoup4 and lxml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import lxml  # noqa: F401  (Beautiful Soup takes it by name, and would not say which package is missing)
from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import Tag

from llama_pack_densex.reading.tables import Cell, cells_of, lay_out, to_markdown
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
_DEEPEST_INDENT = 100  # of lists within lists

# Marks that no text has.
_END = "\ufdd0"  # of a block
_BREAK = "\ufdd1"  # of a line
_READY = "\ufdd2"  # before the number of a block that is ready
_ITEM = "\ufdd3"  # behind the mark of a list's item
_APART = "\ufdd5"  # before an item that Markdown takes for text unless it stands below an empty line
_STRUCK = 's, strike, del, [style*="line-through" i]'
_LONGEST_BOLD_LINE = 80  # characters of a paragraph in bold that stands as a heading


def html_to_text(html: str) -> tuple[str, str]:
    """A page's title and text, as Markdown: headings, items of lists, tables with pipes, code in fences."""
    # Beautiful Soup warns of most pages of books, which begin as XML
    soup = BeautifulSoup(re.sub(r"\A\s*<\?xml[^>]*>", "", html), "lxml")
    title = on_one_line(" ".join(tag.get_text() for tag in soup.select("title:not(svg title)", limit=1)))
    for tag in soup.select(", ".join(_DROPPED)):
        tag.extract()
    _drop_menus(soup)
    for tag in soup.find_all("sup"):
        _write_superscript(tag)
    for tag in soup.select(_STRUCK):
        _strike(tag)
    return title, _joined(_Blocks(soup).texts())


def declared_encoding(data: bytes) -> str | None:
    """The encoding that a page names in its head."""
    return EncodingDetector.find_declared_encoding(data, is_html=True)


def _drop_menus(soup: Tag) -> None:
    """Drop the lists above the first heading in which there is nothing but links: a site has them on every page."""
    heading = soup.find(_HEADINGS)
    if not isinstance(heading, Tag):
        return
    around = {id(tag) for tag in heading.parents}
    for menu in heading.find_all_previous(_LISTS):
        texts = menu.find_all(string=re.compile(r"\S"))
        if id(menu) not in around and all(text.find_parent("a") for text in texts):
            menu.extract()


def _write_superscript(tag: Tag) -> None:
    """Tell a power, and the mark of a note, from the digits before it."""
    text = tag.get_text()
    is_note = tag.a or not (tag.previous_sibling or tag.next_sibling)
    follows_digit = re.search(r"\d\Z", tag.find_previous(string=True) or "")
    if re.fullmatch(r"[-−]?\d+", text) and (is_note or follows_digit):
        tag.string = f"[{text}]" if is_note else f"^{text}"


def _strike(tag: Tag) -> None:
    """Mark what is struck out within a line, and drop whole blocks of it, which Markdown cannot mark."""
    text = tag.get_text(" " if tag.br else "")
    words = text.strip()
    if tag.find(_BLOCKS):
        tag.extract()
    elif words:
        tag.string = text.replace(words, f"~~{words}~~")


class _Blocks:
    """The blocks of a page, of which some are ready before the text around them."""

    def __init__(self, soup: Tag) -> None:
        self._soup = soup
        self._ready: list[str] = []

    def texts(self) -> Iterator[str]:
        """The blocks in order, those within lists with the items' marks and indented below them."""
        for table in reversed(self._soup.find_all("table")):  # those within others first
            self._put(table, _table(table))
        for code in self._soup.find_all("pre"):
            text = code.get_text().strip("\r\n")
            self._put(code, f"```\n{text}\n```" if text.strip() else "")
        for heading in self._soup.find_all(_HEADINGS):
            text = _flat(heading)
            self._put(heading, text and f"{'#' * int(heading.name[1])} {text}")
        for line in filter(_is_bold_line, self._soup.find_all(["summary", "p"])):
            self._put(line, f"**{_flat(line)}**")
        for term in self._soup.find_all("dt"):
            _put_before_definition(term)
        for tag in self._soup.find_all("br"):
            tag.replace_with(_BREAK)
        _mark_items(self._soup)
        for tag in self._soup.find_all(_BLOCKS):
            tag.insert(0, _END)
            tag.append(_END)
        return self._indented()

    def _put(self, tag: Tag, block: str | None) -> None:
        if block is not None:
            self._ready.append(block)
            tag.replace_with(f"{_END}{_READY}{len(self._ready) - 1}{_END}")

    def _indented(self) -> Iterator[str]:
        mark = ""
        for part in self._soup.get_text().split(_END):
            before, is_item, rest = part.rpartition(_ITEM)
            mark = before if is_item else mark
            block = self._block(rest)
            if rest.startswith(_READY) and block.startswith("#"):  # the title of a card, which is no item
                yield block
            elif block:
                indent = " " * len(mark.removeprefix(_APART))
                yield mark + block.replace("\n", f"\n{indent}")
                mark = indent

    def _block(self, text: str) -> str:
        if text.startswith(_READY):
            return self._ready[int(text.removeprefix(_READY))]
        lines = map(on_one_line, text.split(_BREAK))
        return "\n".join(filter(None, lines))


def _is_bold_line(tag: Tag) -> bool:
    """Whether a line stands as a heading: the summary of what can be unfolded, or a paragraph that is all in bold."""
    text = tag.get_text()
    if not text.strip() or _END in text:
        return False
    is_free = len(text) <= _LONGEST_BOLD_LINE and not tag.find_parent([*_LISTS, "table", "dl"])
    return tag.name == "summary" or (is_free and _is_bold(tag))


def _is_bold(tag: Tag) -> bool:
    texts = tag.find_all(string=re.compile(r"\S"))
    return bool(texts) and all(text.find_parent(["b", "strong"]) for text in texts)


def _put_before_definition(term: Tag) -> None:
    """Begin a definition, but for a list, with its term, since neither says anything alone."""
    definition = term.find_next_sibling(["dt", "dd"])
    name = on_one_line(term.get_text())
    if not name or not isinstance(definition, Tag) or definition.name == "dt" or definition.find(_LISTS):
        return
    if text := definition.find(string=re.compile(r"\S")):
        text.insert_before(f"{name} " if name.endswith(("?", "？", ":", "：")) else f"{name}: ")
        term.extract()


def _mark_items(soup: Tag) -> None:
    """Put marks before the items of lists, indented to where the text of the item around them begins."""
    columns: dict[int, int] = {}  # where the texts of items begin
    for around in soup.find_all(_LISTS):
        outer = around.find_parent("li") or around.find_previous_sibling("li")
        indent = " " * columns.get(id(outer), 0)
        number = _number(around, "start", 1)
        for item in around.find_all("li", recursive=False):
            number = _number(item, "value", number)
            text = item.find(string=re.compile(r"\S"))
            is_empty = text is not None and text.find_parent("li") is not item  # it only holds another list
            mark = f"{indent}{number}." if around.name == "ol" else f"{indent}-"
            is_first = item.find_previous_sibling("li") is None
            item.insert(0, f"{_END}{_APART if is_first and number != 1 else ''}{mark} {_ITEM}")
            item.append(f"{_END}{_ITEM}")
            columns[id(item)] = len(indent) if is_empty else min(len(mark) + 1, _DEEPEST_INDENT)
            number += 1


def _number(tag: Tag, attribute: str, otherwise: int) -> int:
    value = str(tag.get(attribute, ""))
    return int(value) if value.isdecimal() else otherwise


def _joined(blocks: Iterable[str]) -> str:
    text = ""
    for block in filter(None, blocks):
        tight = all(re.match(r" *(?:-|\d+\.) ", line) for line in (block, text.rsplit("\n", 1)[-1]))
        block = block.removeprefix(_APART)
        text += ("\n" if tight else "\n\n") + block if text else block
    return text + "\n" if text else ""


def _table(table: Tag) -> str | None:
    """A table of data below its caption, in one line within another; None for one that only lays out the page."""
    if table.find([*_HEADINGS, "pre"]) or _READY in table.get_text():
        return None
    grid = lay_out(map(_row, table.find_all("tr")))
    if _is_within_data(table):
        rows = (": ".join(cell.text for cell in cells_of(row)) for row in grid)
        table.replace_with(" ", "; ".join(rows))
        return None
    cells = {cell for row in grid for cell in row}
    is_line = len(grid) < 2 and not table.th
    if not grid or len(grid[0]) < 2 or is_line or any(len(cell.text) > _LONGEST_CELL for cell in cells):
        return None
    caption = on_one_line(table.caption.get_text()) if table.caption else ""
    return "\n\n".join(filter(None, [caption, to_markdown(grid)]))


def _is_within_data(table: Tag) -> bool:
    around = table.find_parent("table")
    return around is not None and any(cell.find_parent("table") is around for cell in around.find_all("th"))


def _row(row: Tag) -> list[Cell]:
    return [
        Cell(
            _flat(cell),
            _span(cell, "rowspan"),
            _span(cell, "colspan"),
            cell.name == "th" or _is_bold(cell),
        )
        for cell in row.find_all(_CELLS)
    ]


def _flat(tag: Tag) -> str:
    """The text of a tag in one line; words of different lines do not run together."""
    return on_one_line(tag.get_text(" " if tag.find(["br", "p", "li", "div"]) else ""))


def _span(cell: Tag, attribute: str) -> int:
    return min(max(_number(cell, attribute, 1), 1), _MAX_SPAN)
