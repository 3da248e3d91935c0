"""Reads the pages of a PDF. Needs the package pypdfium2."""

from __future__ import annotations

import operator
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from ctypes import c_double, c_float, create_string_buffer
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise, product
from math import hypot, inf, pi
from pathlib import Path
from statistics import median
from typing import Any

from pypdfium2 import PdfDocument, raw  # type: ignore[import-untyped]

from llama_pack_densex.node_parsers.metadata import ABOVE_KEY
from llama_pack_densex.reading.files import Part, titled
from llama_pack_densex.reading.pdf_flow import (
    OPEN,
    fence_code,
    join_sentences,
    join_words,
    mark_lines,
)
from llama_pack_densex.reading.pdf_forms import read_fields, string_of, with_fields
from llama_pack_densex.reading.pdf_headings import (
    Font,
    Sections,
    as_heading,
    body_font,
    count_fonts,
    find_headings,
    font_of,
    is_apart,
    mark_headings,
    tag_mark,
    with_headings,
    with_mark_of,
    without_marks,
)
from llama_pack_densex.reading.pdf_lines import (
    WIDE_GAP,
    Box,
    Boxes,
    Line,
    around,
    find_lines,
    page_box,
)
from llama_pack_densex.reading.pdf_order import is_upright, reading_order, without_readings
from llama_pack_densex.reading.pdf_paragraphs import TextLine, find_joints, read_lines, whole_line
from llama_pack_densex.reading.pdf_tables import (
    PdfTable,
    Ruling,
    find_frames,
    find_rules,
    find_tables,
    may_have_columns,
)
from llama_pack_densex.reading.tables import runs, to_markdown
from llama_pack_densex.text.plain import PAGE_OF
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import on_one_line

logger = plain_logger(__name__)

_XFA = (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND)
_XFA_ADVICE = "whose fields may be missing here: print it to a PDF in Adobe Acrobat, and read that"
_FONT_ADVICE = (
    "has text in a font that is neither embedded in it nor installed here, and some of it may be missing: "
    "install fonts for its language (for Japanese on Debian: apt install fonts-noto-cjk)"
)
_PDFIUM = threading.Lock()  # PDFium may be used by only one thread at a time
# Broken fonts yield them, and stores do not accept NUL.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")


def read_pages(file: Path) -> Iterator[Part]:
    """Yield the pages of a PDF, with its title, page labels, and the headings that each begins below."""
    with _PDFIUM, closing(PdfDocument(file)) as document:
        if document.get_formtype() in _XFA:
            logger.warning("%s is an XFA form, %s", file, _XFA_ADVICE)
        document.init_forms()
        title = titled(document.get_metadata_value("Title"))
        fonts: Counter[Font] = Counter()
        pages = _without_running_lines(_page_texts(document, file, fonts))
        pages = join_words(join_sentences(pages))
        pages = [_CONTROLS.sub("", page).translate(_LIGATURES) for page in pages]
        # indent comments of code, which would look like headings
        pages = fence_code([re.sub("(?m)^#", "    #", page) for page in pages])
        sections = _best_sections(document, pages, fonts)
        for number, (text, above) in enumerate(sections):
            page = str(number + 1)
            metadata = {**title, "page_label": document.get_page_label(number) or page}
            if above:
                metadata[ABOVE_KEY] = above
            yield Part(text.strip("\n"), metadata, page)


@dataclass
class _Layout:
    """The text of a page and its positions.

    Args:
        text: Its text, with the values of its form fields.
        lines: Its lines in reading order, in pieces.
        tables: Its tables.
        box_at: Returns the box of the character at a place; as if upright lines ran to the right.
        joints: What joins a piece with the one before, by where it starts; others begin a line.
        has_fonts: Whether all fonts are available; without its font, PDFium leaves out characters.
        marks: The marks of lines, by where they start, or where they end.
        fonts: The characters in each font.
    """

    text: str
    lines: Sequence[Sequence[TextLine]]
    tables: Sequence[PdfTable]
    box_at: Callable[[int], Box]
    joints: dict[int, str]
    has_fonts: bool = True
    marks: dict[int, str] = field(default_factory=dict)
    fonts: Counter[Font] = field(default_factory=Counter)

    def is_at_top(self, table: PdfTable) -> bool:
        """Return whether a table may continue one of the page before."""
        return self.text.count("\n", 0, min(table.places)) <= _RUNNING

    def is_at_bottom(self, table: PdfTable) -> bool:
        """Return whether a table may continue on the next page."""
        return self.text.count("\n", max(table.places)) <= _RUNNING


def _page_texts(document: Any, file: Path, fonts: Counter[Font]) -> Iterator[str]:
    """Yield the text of each page, with its tables as Markdown and the values of its form fields.

    Lines that may be headings are marked; the characters in each font are counted.
    """
    last_table: PdfTable | None = None  # at the end of the page before
    is_warned = False
    for page in document:
        layout = _read_layout(document, page)
        fonts += layout.fonts
        if not layout.has_fonts and not is_warned:
            is_warned = True
            logger.warning("%s %s", file, _FONT_ADVICE)
        tables: list[PdfTable] = []
        for table in layout.tables:
            if last_table and layout.is_at_top(table):
                table = table.below(last_table)
            tables.append(table)
        last_table = next(filter(layout.is_at_bottom, reversed(tables)), None)
        yield _page_text(layout, tables)


def _read_layout(document: Any, page: Any) -> _Layout:
    text_page, turns = _upright_text(page)
    text_objects = [*page.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT])]
    flat_texts = [*_flat_texts(text_objects, text_page)]
    box_at = _box_reader(text_page, turns, text_objects)
    text = _without_copies(_text(text_page), box_at)
    text = _without_line_numbers(text, box_at)
    text = _with_superscripts(text, box_at, partial(_baseline, text_page, turns))
    fields = [*read_fields(document, page, turns)]
    across, down = _rulings(page, turns)
    frames = [*find_frames(across, down)]
    rules = find_rules(across, down)
    may_have_tables = bool(frames or rules) or may_have_columns(text)
    has_shape = fields or may_have_tables or flat_texts or _may_be_out_of_order(text_page, turns)
    boxes: Boxes = {}
    if has_shape:  # takes as long as everything else
        boxes = {place: box_at(place) for place, sign in enumerate(text) if not sign.isspace()}
    text, boxes = with_fields(text, boxes, fields)
    tables: list[PdfTable] = []
    if may_have_tables:
        tables = find_tables(text, boxes, frames, rules, partial(_has_code_font, text_page))
    layout = _in_order(text, boxes, tables, box_at)
    layout.has_fonts = all(map(_is_embedded, flat_texts))
    if not fields:
        _join_lines(layout, page, text_page)
    return layout


def _in_order(
    text: str, boxes: Boxes, tables: Sequence[PdfTable], box_at: Callable[[int], Box]
) -> _Layout:
    """Return the layout of a page with its lines in reading order; `box_at` reads boxes if there are none."""
    upright = is_upright(boxes)
    if upright:
        boxes = {place: box.turned() for place, box in boxes.items()}
    if boxes:
        box_at = boxes.__getitem__
    rows = _in_reading_order(text, boxes, tables, upright)
    between = "" if upright else " "
    joints = {stretch.start: between for row in rows for stretch in row[1:]}
    return _Layout(text, read_lines(text, chain(*rows), box_at), tables, box_at, joints)


def _join_lines(layout: _Layout, page: Any, text_page: Any) -> None:
    """Find the joints, marks and fonts of the lines of a page."""
    if not layout.lines:
        return
    in_tables = {place for table in layout.tables for place in table.places}
    outside = [pieces for pieces in layout.lines if pieces[0].start not in in_tables]
    lines = [*map(whole_line, outside)]
    all_lines = [*map(whole_line, layout.lines)]
    fonts = {
        line.start: font_of(layout.text, line, partial(_font_at, text_page)) for line in all_lines
    }
    # a page may have little text but the headings of its tables
    body = min(body_font(count_fonts(part, fonts)) for part in (lines, all_lines) if part)
    headings = mark_headings(layout.text, lines, layout.box_at, fonts, body)
    headings |= _tagged_lines(lines, page, text_page)

    def are_apart(above: TextLine, below: TextLine) -> bool:
        is_code = fonts[above.start].is_code and fonts[below.start].is_code
        return is_code or is_apart(headings, above, below)

    joints, open_lines = find_joints(layout.text, outside, are_apart)
    layout.joints |= joints
    layout.marks |= mark_lines(lines, fonts, joints) | headings
    layout.marks |= {line.end - 1: OPEN for line in open_lines}
    layout.fonts += count_fonts(lines, fonts)


def _upright_text(page: Any) -> tuple[Any, int]:
    """Turn a page so that its text is upright; return its text, and by how many quarters it was turned."""
    text_page = page.get_textpage()
    turns = _turns(text_page)
    rotation = -90 * turns % 360
    if page.get_rotation() != rotation:  # then the text may be in reverse order
        page.set_rotation(rotation)
        text_page = page.get_textpage()
    return text_page, turns


def _page_text(layout: _Layout, tables: Sequence[PdfTable]) -> str:
    """Return the text of a page in reading order, with the given tables in place of its own."""
    characters = [*layout.text]
    for place, mark in layout.marks.items():
        characters[place] = (
            f"{characters[place]}{mark}" if mark == OPEN else f"{mark}{characters[place]}"
        )
    for table in tables:
        for place in table.places:
            characters[place] = ""
        characters[min(table.places)] = f"\n\n{to_markdown(table.grid)}\n\n"
    parts: list[str] = []
    for piece in chain(*layout.lines):
        text = "".join(characters[piece.start : piece.end]).strip(" ")
        if text:
            parts += [layout.joints.get(piece.start, "\n"), text]
    text = "".join(parts)
    return re.sub(r"\n{3,}", "\n\n", text) if tables else text


# Fonts of TeX without names, whose characters are bitmaps, have these in places of their own.
_SIGNS_OF_TEX = str.maketrans("\x10\x11\x15\x16\x1b\x1c\x1d\x1e\x1f\x88", "“”–—ﬀﬁﬂﬃﬄ•")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def _paired(pair: re.Match[str]) -> str:
    sign = pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return f"{sign}\uffff"


def _text(text_page: Any) -> str:
    """Return the text of a page, in which each character has the place that it has for PDFium.

    One that PDFium has in two places, as in UTF-16 (an emoji, 𠮷), is followed by a filler, which is removed
    later; others of that kind (an italic 𝑥) have one place.
    """
    units = map(partial(raw.FPDFText_GetUnicode, text_page), range(text_page.count_chars()))
    text = _PAIR.sub(_paired, "".join(map(chr, units)))
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    text = without_marks(text, "\ufffd")  # a font's own signs of private use

    def sign(match: re.Match[str]) -> str:
        is_nameless = not _font_name(text_page, match.start())
        return match[0].translate(_SIGNS_OF_TEX) if is_nameless else match[0]

    return re.sub("[\x10-\x1f\x88]", sign, text)


_LINE = re.compile(r"\S[^\r\n]*")


def _without_copies(text: str, box_at: Callable[[int], Box]) -> str:
    """Return a text with spaces in place of lines that are drawn again in the same place, as the text of a
    cell that spans several rows may be.
    """
    counts = Counter(_LINE.findall(text))
    drawn: set[tuple[str, Box]] = set()

    def without_copy(line: re.Match[str]) -> str:
        if counts[line[0]] == 1:
            return line[0]
        drawing = (line[0], box_at(line.start()))
        if drawing in drawn:
            return " " * len(line[0])
        drawn.add(drawing)
        return line[0]

    return _LINE.sub(without_copy, text)


_LEAST_NUMBERED = 10  # lines
_ALONE = re.compile(r"(?m)^(\d{1,4})[ \r]*$")


def _without_line_numbers(text: str, box_at: Callable[[int], Box]) -> str:
    """Return a text with spaces in place of the numbers that a draft has beside its lines."""

    def goes_on(run: list[re.Match[str]], number: re.Match[str]) -> bool:
        left, top, *_ = box_at(number.start())
        last = box_at(run[-1].start())
        is_next = int(number[1]) == int(run[-1][1]) + 1
        return is_next and top > last.bottom - last.size / 2 and abs(left - last.left) < last.width

    for run in runs(_ALONE.finditer(text), goes_on):
        if len(run) >= _LEAST_NUMBERED:
            for number in run:
                start, end = number.span(1)
                text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


# not behind a sign such as "−", whose font may be larger
_MAY_BE_RAISED = re.compile(r"[\w.,;:!?)\]”’。、．](?:(?:\r\n)?[-−]?\d)+")
_SUPERSCRIPTS = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_SMALL = 0.85  # times the size of the characters before
_RAISED = 0.15


def _with_superscripts(
    text: str,
    box_at: Callable[[int], Box],
    baseline_at: Callable[[int], float],
) -> str:
    """Return a text with raised digits as such: without that, 10⁵ would be 105."""

    def is_raised(place: int, base: int) -> bool:
        size = box_at(base).size
        is_small = box_at(place).size < _SMALL * size
        return is_small and baseline_at(base) - baseline_at(place) > _RAISED * size

    signs = [*text]
    for match in _MAY_BE_RAISED.finditer(text):
        base = last = match.start()
        for place in range(base + 1, match.end()):
            if text[place].isspace():
                continue
            if box_at(place).follows(box_at(last), WIDE_GAP) and is_raised(place, base):
                signs[place] = text[place].translate(_SUPERSCRIPTS)
            else:
                base = place
            last = place
    return "".join(signs)


_EVERY = 8  # characters; enough to tell how a page is turned


def _turns(text_page: Any) -> int:
    """Return by how many quarters most characters of a page are turned clockwise, as for a wide table."""
    places = range(0, text_page.count_chars(), _EVERY)
    angles = [raw.FPDFText_GetCharAngle(text_page, place) for place in places]
    return round(median(angles) / (pi / 2)) if angles else 0


_Rectangle = tuple[float, float, float, float]
"""Left, bottom, right, top."""

_ABOVE = 0.9  # of the size of a font; what its characters take up above their baseline
_BELOW = 0.2


def _box_reader(text_page: Any, turns: int, text_objects: Sequence[Any]) -> Callable[[int], Box]:
    """Return what reads boxes of characters: by their fonts, if most of these say how high characters are."""
    have_metrics = 2 * sum(map(_has_metrics, text_objects)) > len(text_objects)
    rectangle_of = _rectangle if have_metrics else _rectangle_by_size
    return lambda place: page_box(rectangle_of(text_page, place), turns)


def _has_metrics(text_object: Any) -> bool:
    """Return whether the font of a text has a height; fonts in files by LibreOffice 7 have not all of it."""
    descent = c_float()
    raw.FPDFFont_GetDescent(raw.FPDFTextObj_GetFont(text_object), 1, descent)
    return descent.value < 0


def _rectangle(text_page: Any, place: int) -> _Rectangle:
    left, bottom, right, top = text_page.get_charbox(place, loose=True)
    return left, bottom, right, top


def _rectangle_by_size(text_page: Any, place: int) -> _Rectangle:
    """Return the rectangle of a character, as high as the size of its font tells."""
    left, bottom, right, top = _rectangle(text_page, place)
    x, y = _origin(text_page, place)
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page, place, matrix)
    size = raw.FPDFText_GetFontSize(text_page, place)
    xs = (x + _ABOVE * size * matrix.c, x - _BELOW * size * matrix.c)
    ys = (y + _ABOVE * size * matrix.d, y - _BELOW * size * matrix.d)
    return min(left, *xs), min(bottom, *ys), max(right, *xs), max(top, *ys)


def _origin(text_page: Any, place: int) -> tuple[float, float]:
    x = c_double()
    y = c_double()
    raw.FPDFText_GetCharOrigin(text_page, place, x, y)
    return x.value, y.value


def _baseline(text_page: Any, turns: int, place: int) -> float:
    origin = _origin(text_page, place)
    return page_box((*origin, *origin), turns).bottom


# Text without shapes

_FLAT = 0.1  # points; visible characters are higher
_ONE_CHARACTER = 4  # bytes, with the NUL at its end


def _flat_texts(text_objects: Iterable[Any], text_page: Any) -> Iterator[Any]:
    """Yield text objects whose characters have no height: OCR text of a scan, or text in a missing font."""
    for text_object in text_objects:
        left, bottom, right, top = text_object.get_bounds()
        if left == right or top - bottom >= _FLAT:
            continue
        size = raw.FPDFTextObj_GetText(text_object, text_page, None, 0)
        if size > _ONE_CHARACTER:  # a single one may be a space
            yield text_object


def _is_embedded(text_object: Any) -> bool:
    return bool(raw.FPDFFont_GetIsEmbedded(raw.FPDFTextObj_GetFont(text_object)))


# Columns

_LEAST_BESIDE = 3  # pieces of text beside the piece before them, as lines of columns are
_LEAST_UPRIGHT = 2


def _may_be_out_of_order(text_page: Any, turns: int) -> bool:
    """Return whether lines are beside one another, go on at the left of the line before, or are upright."""
    rectangles = map(text_page.get_rect, range(text_page.count_rects()))
    boxes = [page_box(rectangle, turns) for rectangle in rectangles]
    upright = sum(box.bottom - box.top > 2 * box.width for box in boxes)
    beside = sum(box.gap_beside(following) > box.size / 2 for box, following in pairwise(boxes))
    starts = [box for above, box in pairwise(boxes) if above.gap_beside(box) == -inf]
    returns = any(following.right < box.left for box, following in pairwise(starts))
    return beside >= _LEAST_BESIDE or returns or upright >= _LEAST_UPRIGHT


def _in_reading_order(
    text: str, boxes: Boxes, tables: Iterable[PdfTable], upright: bool
) -> list[list[range]]:
    """Return the rows of a page in reading order, as stretches of its text; one row if it is in order."""
    whole = [[range(len(text))]]
    if not boxes:
        return whole
    outside = {**boxes}
    lines: list[Line] = []
    for table in tables:
        first = min(table.places)
        lines.append(Line("", range(first, first + 1), around(boxes, table.places)))
        for place in table.places:
            outside.pop(place, None)
    lines += find_lines(text, outside)
    if upright:
        lines = without_readings(lines)
    lines.sort(key=lambda line: line.places[0])
    rows = reading_order(lines, upright)
    if [*chain(*rows)] == lines and not upright:
        return whole
    return [[range(line.places[0], line.places[-1] + 1) for line in row] for row in rows]


# Tables

_STRAIGHT = 1.5  # points
_SHORT = 6.0  # points; shorter lines are marks on a scale
_LONGEST_NAME = 100  # of a font, in bytes
_MOST_PATHS = 2_000  # per page; a page with more is a drawing
_MOST_SEGMENTS = 200  # of a path
_FONT_FOR_CODE = re.compile(rb"(?i)mono|cour|consol|typewriter|code|cmtt|[a-z]tt\d")


def _has_code_font(text_page: Any, place: int) -> bool:
    return _FONT_FOR_CODE.search(_font_name(text_page, place)) is not None


def _font_name(text_page: Any, place: int) -> bytes:
    name = create_string_buffer(_LONGEST_NAME)
    raw.FPDFText_GetFontInfo(text_page, place, name, _LONGEST_NAME, None)
    return name.value


def _rulings(page: Any, turns: int) -> tuple[list[Ruling], list[Ruling]]:
    """Return the horizontal and the vertical lines of a page, including the edges of rectangles."""
    paths = [*page.get_objects([raw.FPDF_PAGEOBJ_PATH], max_depth=1)]
    across: list[Ruling] = []
    down: list[Ruling] = []
    if len(paths) > _MOST_PATHS:
        return across, down
    for start, end in chain(*map(_edges, paths)):
        left, top, right, bottom = page_box((*map(min, start, end), *map(max, start, end)), turns)
        if bottom - top < _STRAIGHT and right - left > _SHORT:
            across.append(Ruling(top, left, right))
        elif right - left < _STRAIGHT and bottom - top > _SHORT:
            down.append(Ruling(left, top, bottom))
    return across, down


_Point = tuple[float, float]


def _edges(path: Any) -> Iterator[tuple[_Point, _Point]]:
    """Yield the line segments of a path."""
    x = c_float()
    y = c_float()
    to_page = path.get_matrix()
    start = first = (0.0, 0.0)
    for number in range(min(raw.FPDFPath_CountSegments(path), _MOST_SEGMENTS)):
        segment = raw.FPDFPath_GetPathSegment(path, number)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = to_page.on_point(x.value, y.value)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_LINETO:
            yield start, point
        elif kind == raw.FPDF_SEGMENT_MOVETO:
            first = point
        if raw.FPDFPathSegment_GetClose(segment):
            yield point, first
        start = point


# Headings

_BOLD = re.compile(rb"(?i)bold|black|heavy|demi|cmbx|cmb\d|-b$|-w[6-9]")
_GOTHIC = re.compile(rb"(?i)gothic")
_LEAST_BOLD = 600
_LARGEST = 1_000  # half points


def _font_at(text_page: Any, place: int) -> Font:
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page, place, matrix)
    size = raw.FPDFText_GetFontSize(text_page, place) * hypot(matrix.c, matrix.d)
    half_points = round(min(2 * abs(size), _LARGEST))
    name = _font_name(text_page, place)
    text_object = raw.FPDFText_GetTextObject(text_page, place)
    # a font without a bold face is drawn twice, or with a thick edge
    is_stroked = (
        raw.FPDFTextObj_GetTextRenderMode(text_object) == raw.FPDF_TEXTRENDERMODE_FILL_STROKE
    )
    is_heavy = raw.FPDFText_GetFontWeight(text_page, place) >= _LEAST_BOLD
    weight = int(_GOTHIC.search(name) is not None)
    if is_stroked or is_heavy or _BOLD.search(name):
        weight = 2
    return Font(half_points, weight, _FONT_FOR_CODE.search(name) is not None)


def _tagged_lines(lines: Iterable[TextLine], page: Any, text_page: Any) -> dict[int, str]:
    """Return the marks of the lines of a page that its tags make headings, by where they start."""
    tree = raw.FPDF_StructTree_GetForPage(page)
    if not tree:
        return {}
    headings: dict[int, tuple[int, int]] = {}
    for number in range(raw.FPDF_StructTree_CountChildren(tree)):
        _read_tags(raw.FPDF_StructTree_GetChildAtIndex(tree, number), headings)
    raw.FPDF_StructTree_Close(tree)
    marks: dict[int, str] = {}
    last: tuple[int, int] | None = None
    for line in lines:
        heading = headings.get(_content_at(text_page, line.start))
        if heading and heading == headings.get(_content_at(text_page, line.end - 1)):
            marks[line.start] = tag_mark(0 if heading == last else heading[1])
        last = heading
    return marks


def _content_at(text_page: Any, place: int) -> int:
    """Return the number of the piece of content that the character at a place is in."""
    text_object = raw.FPDFText_GetTextObject(text_page, place)
    return int(raw.FPDFPageObj_GetMarkedContentID(text_object))


def _read_tags(
    element: Any, headings: dict[int, tuple[int, int]], heading: tuple[int, int] | None = None
) -> None:
    """Map each piece of content below an element that belongs to a heading to its number and level."""
    if not element:
        return
    tag = string_of(raw.FPDF_StructElement_GetType, element)
    if match := re.fullmatch(r"H([1-6]?)", tag):
        heading = (len(headings), int(match[1] or 1))
    for number in range(raw.FPDF_StructElement_CountChildren(element)):
        content = raw.FPDF_StructElement_GetChildMarkedContentID(element, number)
        if content < 0:
            _read_tags(raw.FPDF_StructElement_GetChildAtIndex(element, number), headings, heading)
        elif heading:
            headings[content] = heading


# Running headers and footers

_RUNNING = 2  # the usual number of lines of a running header or footer
_MOST_RUNNING = 6  # the most lines of one
_NEAR = 4  # pages before and after that are compared
_LEAST_SAME = 3  # of these pages have to have the same line
# The most of these pages without a further line of a header: below their titles, several statements in a row
# may have "(Unaudited)".
_MOST_OTHERS = 2
_DIGITS = re.compile(r"\d{1,5}")
_PAGE_OF = re.compile(rf"(?i)(?<!\w)(?:{PAGE_OF})(?!\w)")
_BETWEEN = " \t\r|·•-–—"
# "Question 2", but not "Page 2" or "Handbook 2 / 10".
_LABEL = re.compile(
    r"(?i)(?!(?:page|p|seite|頁)\b)([^\d.:：]*[^\W\d])[ .#-]{0,2}\d+(?!\d| ?(?:/|of\b|頁|ページ))"
)


def _without_running_lines(texts: Iterable[str]) -> list[str]:
    """Remove headers and footers, which recur on nearby pages; those with letters stay on the first page.

    Titles that are numbered like pages ("Question 2") stay, unless their text is a line by itself somewhere,
    as a document's title is. If the removed line began a heading, the next one does. What stands beside
    "Page 2 of 4" stays once if no other line has it, as the number of a report.
    """
    pages = [text.strip().split("\n") for text in texts]
    titles = {without_marks(line).strip().casefold() for line in chain(*pages)}
    elsewhere = {without_marks(line) for line in chain(*pages) if not _PAGE_OF.search(line)}
    for depth, edge in product(range(_MOST_RUNNING), (0, -1)):
        lines = [without_marks(page[edge]).strip() if page else "" for page in pages]
        for number, page in enumerate(pages):
            if _is_running(lines, number, titles, depth):
                _take_out(page, edge, elsewhere)
    return ["\n".join(page) for page in pages]


def _take_out(page: list[str], edge: int, elsewhere: set[str]) -> None:
    """Remove the first (0) or last (-1) line of a page, but not what only it has beside the page's number.

    Args:
        page: The lines of the page.
        edge: Which line to remove.
        elsewhere: The lines without page numbers; what is left is added.
    """
    removed = page.pop(edge)
    page[:1] = map(partial(with_mark_of, removed), page[:1])
    beside = _beside_page_number(removed)
    if beside and not any(beside in line for line in elsewhere):
        elsewhere.add(beside)
        page.insert(edge % (len(page) + 1), beside)


def _beside_page_number(line: str) -> str:
    """Return what else a line has than "Page 2 of 4"; empty if it has no such number."""
    number = _PAGE_OF.search(line)
    if number is None:
        return ""
    return without_marks(line.replace(number[0], "")).strip(_BETWEEN)


def _is_running(lines: Sequence[str], number: int, titles: set[str], depth: int) -> bool:
    """Return whether a line of a page is in its header or footer.

    Args:
        lines: The first or last lines of all pages, without those that are running already.
        number: The number of the page.
        titles: The lines of all pages.
        depth: How many running lines the header or footer may have already.
    """
    line = lines[number]
    if not line or line.startswith("|"):
        return False
    first = max(number - _NEAR, 0)
    near = lines[first : number + _NEAR + 1]
    distances = range(first - number, first - number + len(near))
    same = [
        pages
        for pages, other in zip(distances, near, strict=True)
        if pages and _recurs(line, other, pages)
    ]
    if len(same) < _least_same(line, len(near) - 1, depth):
        return False
    if same[0] > 0 and _stays_once(line):
        return False
    label = _LABEL.match(line)
    if not label or label[1].casefold() in titles:
        return True
    return lines[number + same[0]].startswith(label[0])


def _least_same(line: str, near: int, depth: int) -> int:
    """Return how many of the near pages have to have the same line."""
    if _PAGE_OF.search(line):
        return 1
    if depth < _RUNNING:
        return _LEAST_SAME
    return max(_LEAST_SAME, near - _MOST_OTHERS)


def _stays_once(line: str) -> bool:
    """Return whether the first page with a running line keeps it: it says more than the page's number."""
    return not _PAGE_OF.search(line) and re.search(r"[^\W\d]", line) is not None


def _recurs(line: str, other: str, pages: int) -> bool:
    """Return whether another line, `pages` later, is the same except for numbers that count pages.

    Of "Page 2 of 4" and what stands beside it, only the former is compared.
    """
    number = _PAGE_OF.search(line)
    other_number = _PAGE_OF.search(other)
    if number and other_number:
        line = number[0]
        other = other_number[0]
    if _DIGITS.sub("0", line) != _DIGITS.sub("0", other):
        return False
    numbers = map(int, _DIGITS.findall(line))
    other_numbers = map(int, _DIGITS.findall(other))
    differences = map(operator.sub, other_numbers, numbers)
    return all(difference in (0, pages) for difference in differences)


# Bookmarks

_SECTION = r"(?:[^\W\d_]*[ \t]*[\dA-Z]{1,3}(?:\.\d{1,3})*[.:章節]?\s*)?"  # "Chapter 2", "2.1."
_AGREED = 0.9  # share of the bookmarks on a page that its headings have, too


def _best_sections(document: Any, pages: Sequence[str], fonts: Counter[Font]) -> Sections:
    """Return the pages with the headings that tags or fonts tell, unless bookmarks tell others."""
    headings = find_headings(pages, fonts)
    by_layout = with_headings(pages, headings)
    bookmarks = [*_bookmarks(document)]
    by_bookmarks = _with_bookmarks([*map(without_marks, pages)], bookmarks)
    bookmarked = agreed = 0
    for number, path in bookmarks:
        bookmarked += _has_heading(by_bookmarks[number], path)
        agreed += _has_heading(by_layout[number], path)
    return by_layout if headings and agreed >= _AGREED * bookmarked else by_bookmarks


def _bookmarks(document: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the page of each bookmark, and its path of titles, outermost first."""
    path: list[str] = []
    for bookmark in document.get_toc():
        path[bookmark.level :] = [on_one_line(bookmark.get_title())]
        destination = bookmark.get_dest()
        number = destination.get_index() if destination else None
        if number is not None and any(map(str.isalnum, path[-1])):
            yield number, [*filter(None, path)]


def _with_bookmarks(pages: Sequence[str], bookmarks: Iterable[tuple[int, list[str]]]) -> Sections:
    """Return pages with the headings that bookmarks name; one that lacks a name begins below none."""
    begun: defaultdict[int, list[list[str]]] = defaultdict(list)
    for number, path in bookmarks:
        begun[number].append(path)
    sections: Sections = []
    above: list[str] = []
    for number, text in enumerate(pages):
        paths = begun[number]
        for path in paths:
            if match := re.search(f"(?m)^{_pattern(path)}$", text):
                heading = as_heading(match[0], len(path))
                text = f"{text[: match.start()]}{heading}{text[match.end() :]}"
        is_found = all(_has_heading((text, above), path) for path in paths)
        sections.append((text, above if is_found else []))
        above = paths[-1] if paths else above
    return sections


def _has_heading(section: tuple[str, Sequence[str]], path: Sequence[str]) -> bool:
    return re.search(f"(?m)^#+ {_pattern(path)}$", section[0]) is not None


def _pattern(path: Sequence[str]) -> str:
    """Return a pattern of a section's title, which may have several lines and a number before it.

    Only its letters and digits are compared: a page may have other quotes or dashes, or lines drawn for "_".
    """
    title = r"[\W_]*".join(filter(str.isalnum, path[-1]))
    return rf"{_SECTION}[^\w\n]*(?i:{title})[^\w\n]*"
