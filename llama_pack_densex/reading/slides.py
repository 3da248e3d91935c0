"""Converts slides to Markdown, by way of HTML. Needs the package python-pptx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

from pptx.oxml import parse_xml
from pptx.package import Package
from pptx.parts.slide import NotesSlidePart

from llama_pack_densex.reading.charts import chart_html, choose_alternatives, diagram_html, has_text
from llama_pack_densex.reading.equations import equation_text, local_name
from llama_pack_densex.reading.files import Part, titled
from llama_pack_densex.reading.html import html_to_text
from llama_pack_densex.text.tokens import words


def read_slides(file: Path) -> Iterator[Part]:
    """Yield the text of each slide and its notes, with the presentation's title."""
    # not `Presentation(file)`, which refuses slide shows and templates
    show = Package.open(str(file)).main_document_part.presentation
    title = titled(show.core_properties.title)
    for number, slide in enumerate(show.slides, 1):
        # for python-pptx, a box with equations, not pictures of them
        choose_alternatives(slide._element, list)
        html = _shapes_html(slide.shapes)
        if slide.has_notes_slide:
            html += _shapes_html(slide.notes_slide.shapes)
        _, text = html_to_text(html)
        yield Part(text, title, str(number))


_DATA = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_ON_EACH_SLIDE = words("SLIDE_NUMBER DATE FOOTER HEADER")
_TITLES = words("TITLE CENTER_TITLE VERTICAL_TITLE")


def _shapes_html(shapes: Iterable[Any]) -> str:
    """Return the text and tables of shapes in reading order, without what is repeated on each slide."""
    titles = ""
    boxes: _Boxes = []
    for shape in shapes:
        kind = shape.placeholder_format.type.name if shape.is_placeholder else ""
        html = _shape_html(shape, kind)
        if kind in _TITLES:
            titles += html
        elif html:
            boxes.append(_box(shape, html))
    return titles + "".join(box.html for box in _reading_order(boxes))


def _shape_html(shape: Any, kind: str) -> str:
    if hasattr(shape, "shapes"):  # a group
        return _shapes_html(shape.shapes)
    if not shape.has_text_frame:
        return _frame_html(shape)
    if kind in _ON_EACH_SLIDE or not has_text(shape._element):
        return ""
    if kind in _TITLES:
        return f"<h1>{_text_html(shape.text_frame)}</h1>"
    return "".join(_paragraphs_html(shape.text_frame, _has_items(shape, kind)))


def _frame_html(shape: Any) -> str:
    """Return the HTML of a table, a chart or a diagram; empty for pictures."""
    if shape.has_table:
        first = "th" if shape.table.first_row else "td"  # the first row may have a style of its own
        rows = map(_row_html, shape.table.rows, chain([first], repeat("td")))
        return f"<table>{''.join(rows)}</table>"
    if shape.has_chart:
        return chart_html(shape.chart.element)
    relations = (diagram.get(_DATA) for diagram in shape._element.iter("{*}relIds"))
    data = (parse_xml(shape.part.related_part(relation).blob) for relation in relations)
    return "".join(map(diagram_html, data))


@dataclass(frozen=True)
class _Box:
    """The HTML of a shape, and its position in EMU."""

    html: str
    left: int
    top: int
    right: int
    bottom: int
    is_vertical: bool


_Boxes = list[_Box]


def _box(shape: Any, html: str) -> _Box:
    left = shape.left or 0
    top = shape.top or 0
    body = shape._element.find("{*}txBody/{*}bodyPr")
    is_vertical = body is not None and body.get("vert") == "eaVert"
    return _Box(html, left, top, left + (shape.width or 0), top + (shape.height or 0), is_vertical)


_ROWS = ("top", "bottom")
_COLUMNS = ("left", "right")
# EMU (a tenth of an inch) by which adjacent boxes may overlap
_OVERLAP = 91440


_MOST_DIVIDED = 200  # boxes; the depth of recursion, if each is divided from the rest


def _reading_order(boxes: _Boxes) -> _Boxes:
    """Return boxes in reading order: divided at the widest gaps between rows or columns, recursively."""
    if len(boxes) < 2:
        return boxes
    row_gap, rows = _divide(boxes, _ROWS)
    column_gap, columns = _divide(boxes, _COLUMNS)
    if max(row_gap, column_gap) < -_OVERLAP or len(boxes) > _MOST_DIVIDED:
        return sorted(boxes, key=lambda box: (box.top, box.left))
    has_labelled_rows = row_gap >= -_OVERLAP and _are_labels(columns)
    groups = columns
    if row_gap >= column_gap or has_labelled_rows:
        groups = rows
    elif all(box.is_vertical for box in boxes):
        groups.reverse()
    return [*chain(*map(_reading_order, groups))]


def _divide(boxes: _Boxes, sides: tuple[str, str]) -> tuple[int, list[_Boxes]]:
    """Return the width of the widest gap between boxes, from the top or left, and the groups that it divides.

    The width is negative if each box overlaps those before it.
    """
    start = attrgetter(sides[0])
    end = attrgetter(sides[1])
    first, *following = sorted(boxes, key=start)
    reach = end(first)
    gaps: list[int] = []
    for box in following:
        gaps.append(start(box) - reach)
        reach = max(reach, end(box))
    widest = max(gaps)
    groups = [[first]]
    for box, gap in zip(following, gaps, strict=True):
        if gap == widest:
            groups.append([])
        groups[-1].append(box)
    return widest, groups


def _are_labels(columns: Sequence[_Boxes]) -> bool:
    """Return whether narrow boxes are labels of the wide ones beside them, such as years or names."""
    if len(columns) != 2:
        return False
    narrow, wide = map(_width, columns)
    return 2 * narrow < wide


def _width(column: _Boxes) -> int:
    return max(box.right for box in column) - min(box.left for box in column)


def _has_items(shape: Any, kind: str) -> bool:
    """Return whether the layout makes list items of a shape's paragraphs, as it does except in notes."""
    is_text = kind in ("BODY", "OBJECT") and not isinstance(shape.part, NotesSlidePart)
    if not is_text or shape._base_placeholder is None:
        return False
    return not shape._base_placeholder.element.findall(".//{*}lvl1pPr/{*}buNone")


def _paragraphs_html(frame: Any, has_items: bool) -> Iterator[str]:
    """Yield the HTML of a text's paragraphs, with list items in nested lists."""
    lists: list[str] = []
    for paragraph in frame.paragraphs:
        kind = _list_kind(paragraph, has_items)
        depth = paragraph.level + 1 if kind else 0
        while len(lists) > depth or (lists and len(lists) == depth and lists[-1] != kind):
            yield f"</{lists.pop()}>"
        while len(lists) < depth:
            lists.append(kind)
            yield f'<{kind} start="{_start(paragraph)}">'
        yield f"<{'li' if kind else 'p'}>{_paragraph_html(paragraph)}"
    yield from (f"</{kind}>" for kind in reversed(lists))


_KINDS = {"buNone": "", "buAutoNum": "ol", "buChar": "ul", "buBlip": "ul"}


def _list_kind(paragraph: Any, has_items: bool) -> str:
    """Return the tag of the list that a paragraph is an item of; empty if it is not an item."""
    if not paragraph.text.strip():
        return ""
    for mark in paragraph._p.iterfind("{*}pPr/*"):
        if local_name(mark) in _KINDS:
            return _KINDS[local_name(mark)]
    return "ul" if has_items or paragraph.level else ""


def _start(paragraph: Any) -> str:
    """Return the number of a list's first item; the list may continue one on another slide."""
    mark = paragraph._p.find("{*}pPr/{*}buAutoNum")
    return "1" if mark is None else str(mark.get("startAt", "1"))


def _paragraph_html(paragraph: Any) -> str:
    html = ""
    for part in paragraph._p:
        if local_name(part) == "br":
            html += "<br>"
        elif local_name(part) in ("r", "fld"):
            html += _run_html(part)
        elif local_name(part) == "m":
            html += escape(equation_text(part))
    return html


def _run_html(run: Any) -> str:
    html = escape(run.findtext("{*}t") or "")
    marks = run.find("{*}rPr")
    if marks is None:
        return html
    if not marks.get("baseline", "0").startswith(("-", "0")):
        html = f"<sup>{html}</sup>"
    if marks.get("strike", "noStrike") != "noStrike":
        html = f"<s>{html}</s>"
    return html


def _text_html(frame: Any) -> str:
    return "<br>".join(map(_paragraph_html, frame.paragraphs))


def _row_html(row: Any, tag: str) -> str:
    html = "<tr>"
    for cell in row.cells:
        if not cell.is_spanned:
            spans = f'rowspan="{cell.span_height}" colspan="{cell.span_width}"'
            html += f"<{tag} {spans}>{_text_html(cell.text_frame)}</{tag}>"
    return f"{html}</tr>"
