"""The values of form fields in a PDF, inserted next to the labels of the fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, c_ushort, cast, create_string_buffer
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from pypdfium2 import raw  # type: ignore[import-untyped]

from llama_pack_densex.reading.pdf_lines import Box, Boxes, Line, Lines, find_lines, page_box
from llama_pack_densex.text.tokens import on_one_line

_HIDDEN = 1 | 2 | 32  # flags of annotations: invisible, hidden, no view
_PASSWORD = 1 << 13  # flag of text fields
_BOXES = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_CHOICES = (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_MARKS = {True: "☑", False: "☐"}


@dataclass(frozen=True)
class Field:
    """A field of a form.

    Args:
        name: Its name, which is used if it has no label.
        value: What was filled in; a mark for a check box or radio button.
        box: Its position.
        is_box: Whether it is a check box or radio button.
    """

    name: str
    value: str
    box: Box
    is_box: bool


def read_fields(document: Any, page: Any, turns: int) -> Iterator[Field]:
    """Yield the fields of a page, which is turned by quarters, that have a value."""
    for number in range(raw.FPDFPage_GetAnnotCount(page) if document.formenv else 0):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        try:
            field = _field(document.formenv, annotation, turns)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
        if field and field.value:
            yield field


def _field(form: Any, annotation: Any, turns: int) -> Field | None:
    is_field = raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_WIDGET
    if not is_field or raw.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
        return None
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    rectangle = raw.FS_RECTF()
    raw.FPDFAnnot_GetRect(annotation, rectangle)
    name = string_of(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or string_of(raw.FPDFAnnot_GetFormFieldName, form, annotation).rpartition(".")[2]
    sides = (rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)
    box = page_box(sides, turns)
    return Field(name, _value(form, annotation, kind), box, kind in _BOXES)


def _value(form: Any, annotation: Any, kind: int) -> str:
    if kind in _BOXES:
        return _MARKS[bool(raw.FPDFAnnot_IsChecked(form, annotation))]
    if kind in _CHOICES:
        count = raw.FPDFAnnot_GetOptionCount(form, annotation)
        labels = [
            string_of(raw.FPDFAnnot_GetOptionLabel, form, annotation, option)
            for option in range(count)
            if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)
        ]
        return ", ".join(labels) or string_of(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    is_secret = raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD
    if kind != raw.FPDF_FORMFIELD_TEXTFIELD or is_secret:
        return ""
    return string_of(raw.FPDFAnnot_GetFormFieldValue, form, annotation)


def string_of(function: Callable[..., int], *arguments: Any) -> str:
    """Return the string that a function of PDFium writes into a buffer, on one line."""
    size = function(*arguments, None, 0)
    buffer = create_string_buffer(size)
    function(*arguments, cast(buffer, POINTER(c_ushort)), size)
    return on_one_line(buffer.raw[:size].decode("utf-16-le", "replace").replace("\0", ""))


# Labels


_FARTHEST_BESIDE = 300.0  # points from a label to its field
_FARTHEST_BEHIND = 40.0  # points from a check box to the label after it
_FARTHEST_ABOVE = 1.5  # times the size of a label's characters
_FAR = 100.0  # points; with its label farther left than this, a field takes one above instead


def with_fields(text: str, boxes: Boxes, fields: Sequence[Field]) -> tuple[str, Boxes]:
    """Return the text of a page with the values of its fields inserted, and the boxes of its characters.

    Args:
        text: The page's text.
        boxes: The boxes of its characters; empty if they are unknown.
        fields: The fields.
    """
    if not fields:
        return text, boxes
    characters = [(sign, boxes.get(place)) for place, sign in enumerate(text)]
    lines = find_lines(text, boxes)
    insertions = [(*_insertion(field, lines, len(text)), field.box) for field in fields]
    in_order = sorted(insertions, key=itemgetter(0))
    for place, value, box in reversed(in_order):
        characters[place:place] = _value_characters(value, box)
    signs, boxes_of_signs = zip(*characters, strict=True)
    return "".join(signs), {place: box for place, box in enumerate(boxes_of_signs) if box}


def _insertion(field: Field, lines: Lines, end: int) -> tuple[int, str]:
    """Return where to insert a value (after its label, before the label that follows a check box, else at
    the end), and the value with its separators.
    """
    behind = _behind(field, lines) if field.is_box else None
    label = _label_before(field, lines)
    if behind and (label is None or _gap(field, behind) <= _gap(field, label)):
        return behind.places[0], f"{field.value} "
    if label:
        return label.places[-1] + 1, f" {field.value}"
    name = f"{field.name}: " if field.name else ""
    return end, f"\n{name}{field.value}"


def _value_characters(value: str, box: Box) -> Iterator[tuple[str, Box | None]]:
    """Yield the characters of a value, side by side in a box; white space has no box."""
    width = min(box.width / len(value), box.size)
    for number, sign in enumerate(value):
        left = box.left + number * width
        yield sign, None if sign.isspace() else box._replace(left=left, right=left + width)


def _gap(field: Field, line: Line) -> float:
    return max(field.box.left - line.box.right, line.box.left - field.box.right, 0.0)


def _nearest(field: Field, lines: Lines, farthest: float) -> Line | None:
    """Return the line that is nearest to a field, among those beside it, within a distance."""
    beside = [line for line in lines if _is_beside(field, line) and _gap(field, line) <= farthest]
    return min(beside, key=partial(_gap, field), default=None)


def _behind(field: Field, lines: Lines) -> Line | None:
    behind = [line for line in lines if line.box.x > field.box.right]
    return _nearest(field, behind, _FARTHEST_BEHIND)


def _label_before(field: Field, lines: Lines) -> Line | None:
    """Return the label of a field: to its left, or close above it."""
    nearest = _nearest(
        field, [line for line in lines if line.box.x < field.box.left], _FARTHEST_BESIDE
    )
    if nearest and _gap(field, nearest) <= _FAR:
        return nearest
    above = [line for line in lines if _is_close_above(field, line)]
    return max(above, key=lambda line: line.box.bottom, default=nearest)


def _is_beside(field: Field, line: Line) -> bool:
    return field.box.is_on_line_of(line.box) or line.box.is_on_line_of(field.box)


def _is_close_above(field: Field, line: Line) -> bool:
    gap = field.box.top - line.box.bottom
    overlaps = line.box.left < field.box.right and field.box.left < line.box.right
    return overlaps and -line.box.size / 2 < gap < _FARTHEST_ABOVE * line.box.size
