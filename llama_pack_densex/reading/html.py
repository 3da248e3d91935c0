"""Converts HTML pages and EPUB books to Markdown. Needs the packages beautifulsoup4 and lxml."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import fromstring
from zipfile import ZipFile

import lxml  # noqa: F401  (Beautiful Soup loads it by name, and its error would not name the missing package)
from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PreformattedString, Tag

from llama_pack_densex.reading.encoding import decode_file, read_bytes
from llama_pack_densex.reading.equations import mathml_text
from llama_pack_densex.reading.files import Part, titled
from llama_pack_densex.reading.tables import Cell, Grid, cells_of, lay_out, runs, to_markdown
from llama_pack_densex.text.links import with_tags_as_code
from llama_pack_densex.text.tokens import on_one_line, words

# what the reader of a page unfolds
_PANEL = "[role=tabpanel], [role=region][aria-labelledby], [hidden=until-found]"
# what a browser does not show, what is repeated on every page of a site, line numbers of code, and furigana
# above kanji
_DROPPED = f"""
    title, script, style, noscript, template, svg, canvas, iframe, object, nav,
    footer:not(blockquote *), #footer, div.footer, p:has(> a:is([accesskey], [rel~=next], [rel~=prev])),
    button:not(:is(h1, h2, h3, h4, h5, h6, dt, summary) *), select, textarea, dialog,
    rt, rp, .katex-mathml + *,
    [role=navigation], [role=search], [role=contentinfo], [role=dialog], [role=alertdialog],
    a.headerlink, .mw-editsection,
    .linenos, .lineno, .linenodiv, .ln, .line-number, .line-numbers-wrapper,
    pre [style*="user-select:none"],
    .navheader, .navfooter, #toc, div.toc, ul.toc, ol.toc, dl.toc,
    [hidden]:not({_PANEL}), [style*="visibility:hidden" i],
    [style*="display:none" i]:not({_PANEL}), [style*="display: none" i]:not({_PANEL}, :has(> math))
"""
# the classes of notes and warnings in the pages of documentation tools, GitHub, Bootstrap and Confluence
_BOXES = words(
    "admonition admonitionblock theme-admonition custom-block markdown-alert alert note tip hint info"
    " important caution warning danger callout starlight-aside confluence-information-macro"
)
_BLOCKS = sorted(
    words(
        "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure"
        " footer header hgroup hr html li main ol p section summary table td th tr ul"
    )
)
_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LISTS = ["ol", "ul"]
_LONGEST_CELL = 1_000  # characters
_MAX_SPAN = 100  # of a table cell
_DEEPEST_INDENT = 100  # of nested lists
_DEEPEST_TAG = 200  # levels; deeper nesting was not written by people, and takes minutes to read
_LONGEST_BOLD_LINE = 80  # characters of a paragraph in bold that serves as a heading
_SIGNS = {"#", "¶", "§", "🔗"}  # of links by which a heading can be cited
_STRUCK = 's, strike, del, [style*="line-through" i]'
_TEXT = re.compile(r"\S")
_PLACE = re.compile("^#.")  # of the page, in a link
# the start of text that looks like a heading of Markdown or AsciiDoc
_NO_HEADING = re.compile(r"\A(?=(?:#{1,6}|={1,6}) )")

# Marks, by characters that no text has.
_END = "\ufdd0"  # the end of a block
_BREAK = "\ufdd1"  # a line break
_COLUMN = "column"  # attribute: the column where the text of an item begins
LABELLED = "labelled"  # attribute of an item whose number is in its text, such as (a)
_READY = "\ufdd2"  # before a block that is Markdown already
_ITEM = "\ufdd3"  # after the marker of a list item
# before an item that Markdown takes for text unless a blank line precedes it
_APART = "\ufdd5"


def read_page(file: Path) -> Iterator[Part]:
    """Yield an HTML page as Markdown, without scripts, styles and navigation; its title is metadata."""
    title, text = _page_text(file, read_bytes(file))
    yield Part(text, {"title": title} if title else {})


def read_book(file: Path) -> Iterator[Part]:
    """Yield an EPUB as one text: its pages in reading order, without its table of contents."""
    with ZipFile(file) as archive:
        container = fromstring(archive.read("META-INF/container.xml"))
        place = container.find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
        package = fromstring(archive.read(place))
        names = {
            item.get("id"): posixpath.normpath(f"{place}/../{unquote(item.attrib['href'])}")
            for item in package.iterfind("{*}manifest/{*}item")
            if "html" in item.get("media-type", "html") and "nav" not in item.get("properties", "")
        }
        order = [item.get("idref") for item in package.iterfind("{*}spine/{*}itemref")]
        pages = [archive.read(names[key]) for key in order if key in names]
    texts = [_page_text(file, page)[1] for page in pages]
    title = package.findtext("{*}metadata/{*}title") or ""
    yield Part("\n".join(filter(None, texts)), titled(title))


def _page_text(file: Path, data: bytes) -> tuple[str, str]:
    """Return the title and text of a page, decoded as it declares."""
    encoding = EncodingDetector.find_declared_encoding(data, is_html=True)
    return html_to_text(decode_file(file, data, encoding))


def html_to_text(html: str) -> tuple[str, str]:
    """Return a page's title, and its text as Markdown: headings, list items, pipe tables, fenced code."""
    # without the XML declaration of most EPUB pages, of which Beautiful Soup would warn
    soup = BeautifulSoup(re.sub(r"\A\s*<\?xml[^>]*>", "", html), "lxml")
    _flatten_deepest(soup)
    title_tag = soup.select_one("title:not(svg title)")
    title = _line_of(title_tag) if title_tag else ""
    _lay_out_summaries(soup)
    _name_tabs(soup)
    _drop_marginal(soup)
    for tag in soup.select('input[type="checkbox"][disabled]'):  # others operate menus
        tag.replace_with("☑ " if tag.has_attr("checked") else "☐ ")
    for box in soup.find_all(_is_box):
        _name_box(box)
    _find_code(soup)
    _set_numbers_apart(soup)
    _find_marked_lists(soup)
    _write_inline(soup)
    _write_blocks(soup)
    _put_terms_before_definitions(soup)
    for tag in soup.find_all("br"):
        tag.replace_with(_BREAK)
    for around in soup.find_all(_LISTS):
        _mark_items(around)
    _mark_blocks(soup)
    return title, _joined(soup.get_text())


def _mark_blocks(tag: Tag) -> None:
    for block in tag.find_all(_BLOCKS):
        block.insert(0, _END)
        block.append(_END)


def _flatten_deepest(soup: Tag) -> None:
    """Replace tags that are too deep with their text."""
    depths = {id(soup): 0}
    deepest: list[Tag] = []
    for tag in soup.find_all(True):
        depth = depths[id(tag.parent)] + 1
        depths[id(tag)] = depth
        if depth == _DEEPEST_TAG:
            deepest.append(tag)
    for tag in deepest:
        tag.string = tag.get_text("\n")


def _write_blocks(soup: Tag) -> None:
    # inner tags first
    for tag in reversed(soup.find_all([*_HEADINGS, "table", "pre", "summary", "p"])):
        block = _ready_block(tag)
        if block is not None:
            tag.replace_with(f"{_END}{_READY}{block}{_END}")


def _lay_out_summaries(soup: BeautifulSoup) -> None:
    """Make tables of the grids in which Javadoc lists classes and methods."""
    for grid in soup.select(".summary-table"):
        width = len(grid.select(".table-header"))
        cells = grid.find_all("div", recursive=False)
        grid.name = "table"
        for place in range(0, len(cells), max(width, 1)):
            row = cells[place].wrap(soup.new_tag("tr"))
            row.extend(cells[place + 1 : place + width])
        for cell in cells:
            cell.name = "th" if "table-header" in str(cell.get("class")) else "td"


def _name_tabs(soup: Tag) -> None:
    """Make the name of a tab the title of its panel."""
    # inner tabs first
    for tabs in reversed(soup.select("[role=tablist], .tabbed-labels")):
        names = tabs.select("[role=tab], label")
        panels = tabs.find_all_next(_is_panel, limit=len(names))
        if len(panels) == len(names):
            for panel, name in zip(panels, names, strict=True):
                _mark_box(panel, "tab", name)
                panel.attrs.clear()
            tabs.extract()


def _is_panel(tag: Tag) -> bool:
    return tag.get("role") == "tabpanel" or "tabbed-block" in str(tag.get("class"))


def _is_box(tag: Tag) -> bool:
    return tag.name in ("div", "aside", "section") and not _BOXES.isdisjoint(tag.get("class") or ())


def _name_box(box: Tag) -> None:
    """Make the heading of a note or a warning its title, since text below the box is not about it."""
    first = box.find(string=_TEXT)
    title = first and first.find_parent(_is_title)
    item = box.find_parent(["li", "table"])
    begins_item = item and (item.name == "table" or item.find(string=_TEXT) is first)
    if title and box in title.parents and not begins_item and _is_above_text(title, box):
        _mark_box(box, "note", title)
        title.extract()


def _is_above_text(title: Tag, box: Tag) -> bool:
    length = len(title.get_text().strip())
    return length <= _LONGEST_BOLD_LINE and length < len(box.get_text().strip())


def _is_title(tag: Tag) -> bool:
    classes = str(tag.get("class")).lower()
    has_class = any(word in classes for word in ("title", "heading", "label"))
    return has_class or tag.name in [*_HEADINGS, "th"]


def _mark_box(box: Tag, kind: str, title: Tag) -> None:
    """Write the marks of Markdown's dialects around a box."""
    box.insert_before(f"{_END}{_READY}:::{kind} {_line_of(title)}{_END}")
    box.insert_after(f"{_END}{_READY}:::{_END}")


def _drop_marginal(soup: Tag) -> None:
    """Remove what a browser does not show, and what only leads about the site."""
    for tag in soup.select(_DROPPED):
        tag.extract()
    for link in soup.select('a[href^="#"]'):
        if link.get_text().strip() in _SIGNS:
            link.extract()
    for text in soup.find_all(string=_TEXT):
        link_to_content = text.find_parent("a", href=_PLACE)
        if link_to_content and not text.find_parent(_HEADINGS):
            link_to_content.extract()
        elif not isinstance(text, PreformattedString):
            break
    _drop_menus(soup)


def _drop_menus(soup: Tag) -> None:
    """Remove lists of links alone that a site has on every page, or that lead to places of the page.

    The former are above the first heading, or in a header.
    """
    heading = soup.find(_HEADINGS)
    menus: set[int] = set()
    if isinstance(heading, Tag):
        menus = {*map(id, heading.find_all_previous(_LISTS))} - {*map(id, heading.parents)}
    for menu in soup.find_all(_LISTS):
        texts = menu.find_all(string=_TEXT)
        links = menu.select('a:not([href^="#"]), a[href="#"]')
        is_menu = not links or id(menu) in menus or menu.find_parent("header")
        if is_menu and all(text.find_parent("a") for text in texts):
            menu.extract()


def _find_code(soup: Tag) -> None:
    """Take code of several lines that is within a paragraph for a block."""
    for code in soup.select("code:has(br):not(pre code, table code)"):
        for text in code.find_all(string=True):
            text.replace_with(re.sub(r"[ \t\r\n]+", " ", text))
        code.name = "pre"


def _write_inline(soup: Tag) -> None:
    """Write what tags say within a line as text."""
    _mark_written_tags(soup)
    _write_pictures(soup)
    for link in soup.select("a:not(:empty) + a:not(:empty, pre a)"):
        if isinstance(link.previous_sibling, Tag):  # a style sheet parts them
            link.insert_before(" ")
    for tag in soup.find_all("sup"):
        _write_superscript(tag)
    for equation in soup.find_all("math"):
        equation.string = mathml_text(str(equation))
    for tag in soup.select(_STRUCK):
        _strike(tag)


def _mark_written_tags(soup: Tag) -> None:
    """Mark tags that a text writes about as code, since Markdown would take them for tags."""
    for text in soup.find_all(string=re.compile("<|-->")):
        if not isinstance(text, PreformattedString) and not text.find_parent("pre"):
            text.replace_with(with_tags_as_code(text))


def _write_pictures(soup: Tag) -> None:
    """Replace pictures within a sentence, and alone in a cell of data, with their alternative text.

    They are formulas, signs and rare characters.
    """
    alone = {id(tag) for tag in soup.select("table:has(th) :is(td, td > p) > img:only-child")}
    for picture in soup.select("img[alt]"):
        left = picture.previous_sibling
        is_in_sentence = isinstance(left, NavigableString) and left.strip()
        if is_in_sentence or id(picture) in alone:
            picture.replace_with(str(picture["alt"]))


_WORD_END = re.compile(r"(?:[^\W\d_]{4}|[^\x00-\u2fff])\Z")  # longer than a unit, or of Japanese


def _write_superscript(tag: Tag) -> None:
    """Separate a power or a note mark from the digits or the word before it by "^" or brackets."""
    text = tag.get_text()
    preceding = tag.find_previous(string=True) or ""
    is_alone = not (tag.previous_sibling or tag.next_sibling)
    if not re.fullmatch(r"[-−]?\d+", text):
        return
    if tag.a or is_alone or _WORD_END.search(preceding):
        tag.string = f"[{text}]"
    elif preceding[-1:].isdecimal():
        tag.string = f"^{text}"


def _strike(tag: Tag) -> None:
    """Mark struck-out text within a line, and remove struck-out blocks, which Markdown cannot mark."""
    text = tag.get_text(" " if tag.br else "")
    content = text.strip()
    if tag.find(_BLOCKS):
        tag.extract()
    elif content:
        tag.string = text.replace(content, f"~~{content}~~")


def _ready_block(tag: Tag) -> str | None:
    """Return a table, code, a heading or a line that serves as one, as Markdown; None for other tags."""
    if tag.find_parent("pre"):
        return None
    if tag.name == "table":
        return _table(tag)
    if tag.name == "pre":
        return _code(tag)
    if tag.name in _HEADINGS:
        text = _flat(tag)
        return text and f"{'#' * int(tag.name[1])} {text}"
    return f"**{_flat(tag)}**" if _is_bold_line(tag) else None


def _code(tag: Tag) -> str:
    """Return code in a fence; nothing for a column of line numbers."""
    for line_break in tag.find_all("br"):
        line_break.replace_with("\n")
    _mark_blocks(tag)
    code = re.sub(f"\n?{_END}+", "\n", tag.get_text()).strip("\r\n")
    numbers = map(str, range(1, code.count("\n") + 2))
    if not code.strip() or (tag.find_parent("td") and code.split() == [*numbers]):
        return ""
    return f"```\n{code}\n```"


def _is_bold_line(tag: Tag) -> bool:
    """Return whether a tag serves as a heading: the summary of `<details>`, or a paragraph all in bold."""
    text = tag.get_text()
    if not text.strip() or _END in text:
        return False
    is_free = len(text) <= _LONGEST_BOLD_LINE and not tag.find_parent([*_LISTS, "table", "dl"])
    return tag.name == "summary" or (is_free and _is_bold(tag))


def _is_bold(tag: Tag) -> bool:
    texts = tag.find_all(string=_TEXT)
    return bool(texts) and all(text.find_parent(["b", "strong"]) for text in texts)


# the number or letter of an item of a law: (a), 1., iv); and what it is of in a heading
_SIGN_OF_ITEM = r"[(（]?(?:\d{1,3}[a-z]{0,2}|[A-Za-z]|[ivxIVX]{1,5})"
_MARK_OF_ITEM = re.compile(rf"{_SIGN_OF_ITEM}[)）.][)）.]?|[–—]")
_NUMBER_OF_PART = re.compile(rf"(?:[^\W\d_]+ |§ ?)?{_SIGN_OF_ITEM}[)）.]*")


def _find_marked_lists(soup: Tag) -> None:
    """Make lists of the tables and definitions in which laws set the numbers of items before their texts."""
    for around in reversed(soup.find_all(["table", "dl"])):
        pairs = _marks_and_texts(around)
        if not pairs:
            continue
        around.name = "ol"
        around.attrs.clear()
        around.clear()
        for mark, text in pairs:
            _become_item(text, mark.get_text().strip())
            around.append(text)


def _marks_and_texts(around: Tag) -> list[tuple[Tag, Tag]]:
    """Return the parts of a table or of definitions in pairs; none unless each is a mark and its text."""
    parts = [
        part
        for part in around.find_all(["td", "th", "dt", "dd"])
        if part.find_parent(["table", "dl"]) is around
    ]
    if len(parts) % 2:
        return []
    pairs = [*zip(parts[::2], parts[1::2], strict=True)]
    return pairs if all(_is_mark_of_item(*pair) for pair in pairs) else []


def _is_mark_of_item(mark: Tag, text: Tag) -> bool:
    is_before_text = mark.find_next_sibling(True) is text
    return is_before_text and _MARK_OF_ITEM.fullmatch(mark.get_text().strip()) is not None


def _set_numbers_apart(soup: Tag) -> None:
    """Set numbers of items apart from the texts that only a style sheet parts them from."""
    for text in soup.select("span + span"):
        number = text.previous_sibling
        if not isinstance(number, Tag) or number.previous_sibling is not None:
            continue
        if _NUMBER_OF_PART.fullmatch(number.get_text().strip()):
            text.insert_before(" ")


def _become_item(tag: Tag, mark: str) -> None:
    """Make a tag the item of a list, numbered as Markdown has it, or with its mark as text."""
    tag.name = "li"
    number = mark.rstrip(".")
    tag.attrs = {"value": number} if number.isdecimal() else {LABELLED: ""}
    first = tag.find(string=_TEXT)
    if first and not number.isdecimal() and mark not in "–—":
        first.insert_before(f"{mark} ")


def _put_terms_before_definitions(soup: Tag) -> None:
    """Begin definitions (except lists) with their terms, since neither can be understood alone."""
    tags_by_list: defaultdict[int, list[Tag]] = defaultdict(list)
    for tag in soup.find_all(["dt", "dd"]):
        tags_by_list[id(tag.find_parent("dl"))].append(tag)
    for tags in tags_by_list.values():
        for group in runs(tags, lambda group, tag: tag.name == "dd" or group[-1].name == "dt"):
            _define(group)


def _define(group: Sequence[Tag]) -> None:
    terms = [tag for tag in group if tag.name == "dt"]
    definitions = group[len(terms) :]
    lead = _lead_of(terms)
    texts = [tag.find(string=_TEXT) for tag in definitions if not tag.find(_LISTS)]
    if not lead or not any(texts):
        return
    for text in filter(None, texts):
        text.insert_before(f"{lead} ")
    if len(texts) == len(definitions):
        for term in terms:
            term.extract()


def _lead_of(terms: Sequence[Tag]) -> str:
    """Return terms as they are written before their definition."""
    name = ", ".join(filter(None, map(_line_of, terms)))
    if not name or name.endswith(("?", "？", ":", "：")):
        return name
    return f"{name}:"


def _mark_items(around: Tag) -> None:
    """Insert markers before the items of a list, indented to the text of the enclosing item."""
    outer = around.find_parent("li") or around.find_previous_sibling("li")
    indent = " " * _number(outer, _COLUMN, 0)
    number = _number(around, "start", 1)
    for place, item in enumerate(around.find_all("li", recursive=False)):
        number = _number(item, "value", number)
        mark = f"{indent}- "
        if around.name == "ol" and not item.has_attr(LABELLED):
            mark = f"{indent}{number}. "
        column = min(len(mark), _DEEPEST_INDENT)
        text = item.find(string=_TEXT)
        if text and text.find_parent("li") is not item:  # the item only holds another list
            column = len(indent)
        item[_COLUMN] = str(column)
        if place == 0 and number != 1:
            mark = _APART + mark
        item.insert(0, f"{_END}{mark}{_ITEM}")
        item.append(f"{_END}{_ITEM}")
        number += 1


def _number(tag: Tag | None, attribute: str, otherwise: int) -> int:
    value = str(tag.get(attribute)) if tag else ""
    return int(value) if value.isdecimal() else otherwise


_ITEM_MARK = re.compile(r" *(?:-|\d+\.) ")


def _joined(text: str) -> str:
    """Join the blocks between marks, with the markers of items, and the content of items indented."""
    joined: list[str] = []
    last_line = ""
    for block in _indented(text.split(_END)):
        if not _ITEM_MARK.match(block) or not _ITEM_MARK.match(last_line):
            joined.append("")
        joined.append(block.removeprefix(_APART))
        last_line = joined[-1].rsplit("\n", 1)[-1]
    return "\n".join([*joined, ""])[1:]


def _indented(parts: list[str]) -> Iterator[str]:
    mark = ""
    for part in parts:
        new_mark, is_item, block = part.rpartition(_ITEM)
        if is_item:
            mark = new_mark
        is_ready = block.startswith(_READY)
        block = block.removeprefix(_READY)
        if is_ready and block.startswith("#"):  # the title of a card, which is not an item
            yield block
            continue
        if not is_ready:
            lines = filter(None, map(on_one_line, block.split(_BREAK)))
            block = "\n".join(_NO_HEADING.sub(r"\\", line) for line in lines)
        if block:
            indent = " " * len(mark.removeprefix(_APART))
            yield mark + block.replace("\n", f"\n{indent}")
            mark = indent


def _table(table: Tag) -> str | None:
    """Return a table of data below its caption; None for a table that lays out the page.

    A table within a table of data is replaced by a line of text, and None is returned too.
    """
    if _READY in table.get_text():
        return None
    grid = lay_out(map(_cell, row.find_all(["td", "th"])) for row in table.find_all("tr"))
    if _is_within_data(table):
        rows = (": ".join(cell.text for cell in cells_of(row)) for row in grid)
        table.replace_with(" ", "; ".join(rows))
        return None
    if _is_layout(grid, least_rows=1 if table.th else 2):
        return None
    caption = table.caption.get_text() if table.caption else ""
    return to_markdown(grid, caption)


def _is_layout(grid: Grid, least_rows: int) -> bool:
    """Return whether a table is too small for data, or has too long a text in a cell."""
    if len(grid) < least_rows or len(grid[0]) < 2:
        return True
    return any(len(cell.text) > _LONGEST_CELL for cell in chain(*grid))


def _is_within_data(table: Tag) -> bool:
    around = table.find_parent("table")
    if around is None:
        return False
    return any(cell.find_parent("table") is around for cell in around.find_all("th"))


def _cell(tag: Tag) -> Cell:
    is_name = tag.name == "th" or _is_bold(tag)
    return Cell(_flat(tag), is_name, _span(tag, "rowspan"), _span(tag, "colspan"))


def _span(cell: Tag, attribute: str) -> int:
    return min(max(_number(cell, attribute, 1), 1), _MAX_SPAN)


def _line_of(tag: Tag) -> str:
    return on_one_line(tag.get_text())


def _flat(tag: Tag) -> str:
    """Return the text of a tag on one line, with spaces between its lines."""
    for line in tag.find_all(["br", *_BLOCKS]):
        line.insert_before(" ")
        line.insert_after(" ")
    return _line_of(tag)
