"""Word files and slides as Markdown, by way of HTML. Needs the packages mammoth and python-pptx."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from llama_pack_densex.reading.files import UnreadableFileError

_MARKUP = ("xml", "html", "htm")
_MOST_UNPACKED = 2**28  # bytes of markup: some kilobytes unpack to gigabytes
_MOST_MERGED = 10**6  # cells, of each of which openpyxl makes an object
_MERGED = re.compile(rb"mergeCell\s+ref=[\"']([^\"']+)")


def check_archive(file: Path) -> None:
    """Refuse what would take gigabytes and minutes to read."""
    with ZipFile(file) as archive:
        parts = archive.infolist()
        large = [part for part in parts if part.filename.endswith(_MARKUP) or part.file_size > 100 * part.compress_size]
        if sum(part.file_size for part in large) > _MOST_UNPACKED:
            raise UnreadableFileError(
                file,
                "unpacks to more than 256 MB of markup: divide it, or save it as text",
            )
        worksheets = [archive.read(part) for part in parts if "xl/worksheets/" in part.filename]
    if worksheets and sum(map(_count_merged, worksheets)) > _MOST_MERGED:
        raise UnreadableFileError(file, "has whole columns merged: unmerge them, or save it as CSV")


def _count_merged(worksheet: bytes) -> int:
    from openpyxl.utils import range_boundaries  # type: ignore[import-untyped]

    spans = (range_boundaries(span.decode()) for span in _MERGED.findall(worksheet))
    return sum((right - left + 1) * (bottom - top + 1) for left, top, right, bottom in spans)


# Word

# Headings beside those that Mammoth knows, and tables of contents, which are left out.
_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name^='toc '] => !\np[style-name='table of figures'] => !"
# Readings above kanji, and the marks of elements that Mammoth would leave out together with the text in them.
_UNKNOWN = re.compile(rb"(?s)<w:rt>(?:(?!<w:rt>).)*?</w:rt>|</?(?:w:(?:ruby|rubyBase|fldSimple|bdo|dir)\b|m:)[^>]*>")
_RUN = b"<w:r><w:t>%b</w:t></w:r>"
# The marks of notes, and those of links, which tell menus in a page of the web.
_NOTE_OR_LINK = re.compile(r'<a href="#(?:foot|end)note-[^>]*>[^<]*</a>|</?a\b[^>]*>')
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_NUMBER = "\ufdd4"  # around the number of an item, which Mammoth does not read
_NUMBERED_ITEM = re.compile(f"<li>((?:<[^>]*>)*){_NUMBER}(\\d+){_NUMBER}")


def word_to_text(file: Path) -> tuple[str, str]:
    """The title and the text of a Word document, with its notes at its end."""
    import mammoth
    from lxml import etree

    from llama_pack_densex.reading.html import html_to_text

    with ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name.endswith((".xml", ".rels"))}
    parts = {name: _mended(part) for name, part in parts.items()}
    parsed = {name: etree.fromstring(parts[name]) for name in parts if name.endswith(_PARSED)}
    _number_items(parsed)
    parts |= {name: etree.tostring(root) for name, root in parsed.items()}
    mended = BytesIO()
    with ZipFile(mended, "w") as copy:
        for name, part in parts.items():
            copy.writestr(name, part)
    html = mammoth.convert_to_html(mended, style_map=_STYLES, convert_image=lambda image: []).value
    html = _NUMBERED_ITEM.sub(r'<li value="\2">\1', _NOTE_OR_LINK.sub("", html))
    html = re.sub(f"{_NUMBER}\\d*", "", html)
    properties = parsed.get("docProps/core.xml")
    title = "" if properties is None else properties.findtext("{*}title") or ""
    return title, html_to_text(html)[1]


_DOCUMENT, _NUMBERING, _STYLE_SHEET = (
    "word/document.xml",
    "word/numbering.xml",
    "word/styles.xml",
)
_PARSED = (_DOCUMENT, _NUMBERING, _STYLE_SHEET, "docProps/core.xml")


def _mended(part: bytes) -> bytes:
    """Markup that Mammoth reads in place of some that it does not."""
    part = part.replace(b"<w:dstrike", b"<w:strike")
    # equations as text, in which powers and fractions can still be told
    part = part.replace(b"<m:sup>", _RUN % b"^").replace(b"<m:den>", _RUN % b"/")
    return _UNKNOWN.sub(b"", re.sub(rb"<(/?)m:([rt])(?=[ >])", rb"<\1w:\2", part))


def _number_items(parts: dict[str, Any]) -> None:
    """Put the numbers of items before their texts, in marks."""
    document = parts.get(_DOCUMENT)
    numbering = parts.get(_NUMBERING)
    if document is None or numbering is None:
        return
    lists = _NumberedLists(numbering, parts.get(_STYLE_SHEET))
    for paragraph in document.iter(f"{_W}p"):
        number = lists.next_number(paragraph)
        if number is not None:
            run = paragraph.makeelement(f"{_W}r")
            text = run.makeelement(f"{_W}t")
            text.text = f"{_NUMBER}{number}{_NUMBER}"
            run.append(text)
            paragraph.insert(1, run)  # behind its properties


class _NumberedLists:
    """Counts the items of lists as Word does: those of one definition go on, wherever they stand.

    Args:
        numbering: The definitions.
        styles: The styles of paragraphs, some of which make items of them.
    """

    def __init__(self, numbering: Any, styles: Any) -> None:
        self._lists = {num.get(f"{_W}numId"): num for num in numbering.iter(f"{_W}num")}
        definitions = numbering.iter(f"{_W}abstractNum")
        self._definitions = {definition.get(f"{_W}abstractNumId"): definition for definition in definitions}
        styled = [] if styles is None else styles.iter(f"{_W}style")
        self._styles = {style.get(f"{_W}styleId"): style for style in styled}
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)

    def next_number(self, paragraph: Any) -> int | None:
        """The number of a paragraph; None where it has none."""
        style = self._styles.get(_value(paragraph, "pPr/pStyle"))
        properties = paragraph if _value(paragraph, "pPr/numPr/numId") else style
        number_id = _value(properties, "pPr/numPr/numId")
        if number_id not in self._lists:
            return None
        level = int(_value(properties, "pPr/numPr/ilvl") or 0)
        return self._count(self._lists[number_id], level)

    def _count(self, numbered: Any, level: int) -> int | None:
        definition_id = _value(numbered, "abstractNumId")
        definition = self._definitions.get(definition_id)
        of_level = f"lvl[@w:ilvl='{level}']"
        if _value(definition, f"{of_level}/numFmt") in ("", "bullet", "none"):
            return None
        start = _value(numbered, f"lvlOverride[@w:ilvl='{level}']/startOverride")
        counts = self._counts[numbered.get(f"{_W}numId") if start else definition_id]
        first = int(start or _value(definition, f"{of_level}/start") or 1)
        counts[level] = counts[level] + 1 if level in counts else first
        for deeper in [other for other in counts if other > level]:
            del counts[deeper]
        return counts[level]


def _value(element: Any, path: str) -> str:
    """The value of an element below another one; empty where there is none."""
    steps = "/".join(f"w:{step}" for step in path.split("/"))
    below = None if element is None else element.find(steps, {"w": _W.strip("{}")})
    return "" if below is None else below.get(f"{_W}val", "")


# Slides


def read_slides(file: Path) -> tuple[str, list[str]]:
    """The title of a presentation, and the text of each slide with its notes."""
    from pptx import Presentation

    from llama_pack_densex.reading.html import html_to_text

    show = Presentation(str(file))
    texts: list[str] = []
    for slide in show.slides:
        html = "".join(_shapes_html(slide.shapes, slide.slide_layout))
        if slide.has_notes_slide:
            html += "".join(_shapes_html(slide.notes_slide.shapes, None))
        texts.append(html_to_text(html)[1])
    return show.core_properties.title, texts


_ON_EACH_SLIDE = ("SLIDE_NUMBER", "DATE", "FOOTER", "HEADER")


def _shapes_html(shapes: Iterable[Any], layout: Any) -> Iterator[str]:
    """The text and the tables of shapes, without what is on each slide.

    Args:
        shapes: The shapes.
        layout: The slide's layout, which tells whether paragraphs are items; None where none are.
    """
    for shape in shapes:
        kind = shape.placeholder_format.type.name if shape.is_placeholder else ""
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes_html(shape.shapes, layout)
        elif shape.has_table:
            rows = ("".join(map(_cell_html, row.cells)) for row in shape.table.rows)
            yield f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>"
        elif shape.has_text_frame and kind.endswith("TITLE") and kind != "SUBTITLE":
            yield f"<h1>{'<br>'.join(map(_paragraph_html, shape.text_frame.paragraphs))}</h1>"
        elif shape.has_text_frame and kind not in _ON_EACH_SLIDE:
            yield from _paragraphs_html(shape, _has_items(shape, kind, layout))


def _has_items(shape: Any, kind: str, layout: Any) -> bool:
    """Whether a layout makes items of a shape's paragraphs."""
    if layout is None or kind not in ("BODY", "OBJECT"):
        return False
    index = shape.placeholder_format.idx
    same = [place for place in layout.placeholders if place.placeholder_format.idx == index]
    return not any(place.element.findall(".//{*}lvl1pPr/{*}buNone") for place in same)


def _paragraphs_html(shape: Any, has_items: bool) -> Iterator[str]:
    """The paragraphs of a shape, with items in lists within lists."""
    lists: list[str] = []
    for paragraph in shape.text_frame.paragraphs:
        kind = _list_kind(paragraph, has_items)
        depth = paragraph.level + 1 if kind else 0
        while len(lists) > depth or (lists and len(lists) == depth and lists[-1] != kind):
            yield f"</{lists.pop()}>"
        while len(lists) < depth:
            lists.append(kind)
            yield f"<{kind}>"
        yield (f"<li>{_paragraph_html(paragraph)}" if kind else f"<p>{_paragraph_html(paragraph)}</p>")
    yield from (f"</{kind}>" for kind in reversed(lists))


_KINDS = {"buNone": "", "buAutoNum": "ol", "buChar": "ul", "buBlip": "ul"}


def _list_kind(paragraph: Any, has_items: bool) -> str:
    """The kind of list that a paragraph is an item of; empty for none."""
    if not paragraph.text.strip():
        return ""
    properties = [] if paragraph._p.pPr is None else paragraph._p.pPr
    marks = [_KINDS[name] for name in map(_local_name, properties) if name in _KINDS]
    if marks:
        return marks[0]
    return "ul" if has_items or paragraph.level else ""


def _paragraph_html(paragraph: Any) -> str:
    html = ""
    for part in paragraph._p:
        name = _local_name(part)
        if name == "br":
            html += "<br>"
        elif name in ("r", "fld"):
            text = escape(part.findtext("{*}t") or "")
            properties = part.find("{*}rPr")
            is_struck = properties is not None and properties.get("strike", "noStrike") != "noStrike"
            html += f"<s>{text}</s>" if is_struck else text
    return html


def _local_name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _cell_html(cell: Any) -> str:
    if cell.is_spanned:
        return ""
    text = "<br>".join(map(_paragraph_html, cell.text_frame.paragraphs))
    return f'<td rowspan="{cell.span_height}" colspan="{cell.span_width}">{text}</td>'
