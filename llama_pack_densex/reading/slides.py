"""Slides as Markdown, by way of HTML. Needs the package python-pptx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from pptx import Presentation

from llama_pack_densex.reading.files import Part, titled
from llama_pack_densex.reading.html import html_to_text


def read_slides(file: Path) -> list[Part]:
    """The text of each slide with its notes, with the presentation's title."""
    show = Presentation(str(file))
    title = titled(show.core_properties.title)
    parts: list[Part] = []
    for number, slide in enumerate(show.slides, 1):
        html = "".join(_shapes_html(slide.shapes, has_items=True))
        if slide.has_notes_slide:
            html += "".join(_shapes_html(slide.notes_slide.shapes, has_items=False))
        _, text = html_to_text(html)
        parts.append(Part(text, {**title, "page_label": str(number)}, str(number)))
    return parts


_ON_EACH_SLIDE = ("SLIDE_NUMBER", "DATE", "FOOTER", "HEADER")


def _shapes_html(shapes: Iterable[Any], has_items: bool) -> Iterator[str]:
    """The text and the tables of shapes, without what is on each slide.

    Args:
        shapes: The shapes.
        has_items: Whether the layout may make items of paragraphs.
    """
    for shape in shapes:
        kind = shape.placeholder_format.type.name if shape.is_placeholder else ""
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes_html(shape.shapes, has_items)
        elif shape.has_table:
            rows = ("".join(map(_cell_html, row.cells)) for row in shape.table.rows)
            yield f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>"
        elif not shape.has_text_frame or kind in _ON_EACH_SLIDE:
            continue
        elif kind in ("TITLE", "CENTER_TITLE", "VERTICAL_TITLE"):
            yield f"<h1>{_text_html(shape.text_frame)}</h1>"
        else:
            yield from _paragraphs_html(shape.text_frame, has_items and _has_items(shape, kind))


def _has_items(shape: Any, kind: str) -> bool:
    """Whether the layout makes items of a shape's paragraphs."""
    if kind not in ("BODY", "OBJECT") or shape._base_placeholder is None:
        return False
    return not shape._base_placeholder.element.findall(".//{*}lvl1pPr/{*}buNone")


def _paragraphs_html(frame: Any, has_items: bool) -> Iterator[str]:
    """The paragraphs of a text, with items in lists within lists."""
    lists: list[str] = []
    for paragraph in frame.paragraphs:
        kind = _list_kind(paragraph, has_items)
        depth = paragraph.level + 1 if kind else 0
        while len(lists) > depth or (lists and len(lists) == depth and lists[-1] != kind):
            yield f"</{lists.pop()}>"
        while len(lists) < depth:
            lists.append(kind)
            yield f"<{kind}>"
        yield f"<{'li' if kind else 'p'}>{_paragraph_html(paragraph)}"
    yield from (f"</{kind}>" for kind in reversed(lists))


_KINDS = {"buNone": "", "buAutoNum": "ol", "buChar": "ul", "buBlip": "ul"}


def _list_kind(paragraph: Any, has_items: bool) -> str:
    """The kind of list that a paragraph is an item of; empty for none."""
    if not paragraph.text.strip():
        return ""
    for mark in paragraph._p.iterfind("{*}pPr/*"):
        if _name(mark) in _KINDS:
            return _KINDS[_name(mark)]
    return "ul" if has_items or paragraph.level else ""


def _paragraph_html(paragraph: Any) -> str:
    html = ""
    for part in paragraph._p:
        if _name(part) == "br":
            html += "<br>"
        elif _name(part) in ("r", "fld"):
            text = escape(part.findtext("{*}t") or "")
            marks = part.find("{*}rPr[@strike]")
            is_struck = marks is not None and marks.get("strike") != "noStrike"
            html += f"<s>{text}</s>" if is_struck else text
    return html


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _text_html(frame: Any) -> str:
    return "<br>".join(map(_paragraph_html, frame.paragraphs))


def _cell_html(cell: Any) -> str:
    if cell.is_spanned:
        return ""
    return f'<td rowspan="{cell.span_height}" colspan="{cell.span_width}">{_text_html(cell.text_frame)}</td>'
