"""Converts Word files to Markdown, by way of HTML. Needs the packages mammoth and lxml."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mammoth
from lxml import etree

from llama_pack_densex.reading.charts import (
    chart_html,
    choose_alternatives,
    diagram_html,
    letters_of,
)
from llama_pack_densex.reading.equations import equation_text, local_name
from llama_pack_densex.reading.files import Part, by_word, packed, titled
from llama_pack_densex.reading.html import LABELLED, html_to_text

# What Mammoth does not handle by itself: titles, tables of contents (which are left out), lists that styles
# nest, code, underlined headings, and breaks.
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name^='toc '] => !
p[style-name='table of figures'] => !
p[style-name='List Bullet 2'] => ul|ol > li > ul > li:fresh
p[style-name='List Number 2'] => ul|ol > li > ol > li:fresh
p[style-name='List Bullet 3'] => ul|ol > li > ul|ol > li > ul > li:fresh
p[style-name='List Number 3'] => ul|ol > li > ul|ol > li > ol > li:fresh
p.SourceCode => pre:separator('\\n')
u => strong
br[type='page'] => br
br[type='column'] => br
"""
# Furigana above kanji, and the tags of elements that Mammoth would leave out together with their text.
_UNKNOWN = re.compile(
    rb"(?s)<w:rt>(?:(?!<w:rt>).)*?</w:rt>|"
    rb"</?w:(?:ruby|rubyBase|fldSimple|bdo|dir)\b[^>]*>",
)
# Note marks, and the tags of links, by which html_to_text would take lists of links for menus.
_NOTE_OR_LINK = re.compile(r'<a href="#(?:foot|end)note-[^>]*>[^<]*</a>|</?a\b[^>]*>')
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_STRICT_W = b"http://purl.oclc.org/ooxml/wordprocessingml/main"
_NUMBER = "\ufdd4"  # around the number of an item or heading, since Mammoth does not read these
_DRAWN = "\ufdd5"  # around the number of a chart or diagram
_NUMBERED_ITEM = re.compile(f"<li>((?:<(?!li>)[^>]*>)*){_NUMBER}([^{_NUMBER}]*){_NUMBER}")
_DOCUMENT = "word/document.xml"
_WITH_TEXT = re.compile(r"word/(?:document|footnotes|endnotes|header\d*|footer\d*)\.xml")
_RELATIONSHIPS = "word/_rels/document.xml.rels"


def read_word(file: Path) -> Iterator[Part]:
    """Yield the text of a Word document between its headers and footers, with its notes at the end."""
    with ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith((".xml", ".rels"))]
        parts = {name: _mended(archive.read(name)) for name in names}
    style_tags = _parsed(parts, "word/styles.xml").iterfind("{*}style")
    styles = {_attribute(style, "styleId"): style for style in style_tags}
    hidden_styles = {id_ for id_ in styles if _is_on(_inherited(styles, id_, _VANISH))}
    for name in filter(_WITH_TEXT.fullmatch, names):
        root = _parsed(parts, name)
        choose_alternatives(root, reversed)
        _leave_out_hidden(root, hidden_styles)
        _leave_out_prompts(root)
        _unwrap_boxes(root)
        _write_equations(root)
        parts[name] = etree.tostring(root)
    document = etree.fromstring(parts[_DOCUMENT])
    _number_items(document, _parsed(parts, "word/numbering.xml"), styles)
    _mark_headings(document, styles)
    _mark_code(document, styles)
    _put_in_margins(document, parts)
    drawn = _take_drawings(document, parts)
    parts[_DOCUMENT] = etree.tostring(document)
    mended = packed(parts)
    html = mammoth.convert_to_html(mended, style_map=_STYLES, convert_image=lambda image: []).value
    html = _NUMBERED_ITEM.sub(_item_html, _NOTE_OR_LINK.sub("", html))
    for number, drawing in enumerate(drawn):
        html = html.replace(f"{_DRAWN}{number}{_DRAWN}", drawing)
    html = html.replace("<input ", "<input disabled ")  # disabled, so that html_to_text keeps them
    _, text = html_to_text(re.sub(f"{_NUMBER}(.*?){_NUMBER}", r"\1 ", html))
    title = _parsed(parts, "docProps/core.xml").findtext("{*}title") or ""
    yield Part(text, titled(title))


def _mended(part: bytes) -> bytes:
    """Replace markup that Mammoth does not read with markup that it does."""
    part = part.replace(_STRICT_W, _W.encode()).replace(b"<w:dstrike", b"<w:strike")
    # tabs within a header, and an older form of line breaks
    part = part.replace(b"<w:ptab ", b"<w:tab ").replace(b"<w:cr/>", b"<w:br/>")
    return _UNKNOWN.sub(b"", part)


def _parsed(parts: dict[str, bytes], name: str) -> Any:
    return etree.fromstring(parts.get(name, b"<none/>"))


def _inherited(styles: _Styles, id_: str, path: str) -> Any:
    """Return a setting of a style, or of the nearest style that it is based on; None if there is none."""
    unseen = {**styles}
    style = unseen.pop(id_, None)
    while style is not None:
        setting = style.find(path)
        if setting is not None:
            return setting
        style = unseen.pop(_value(style, "w:basedOn"), None)
    return None


_Styles = Mapping[str, Any]
"""The styles of a document, by id."""

_VANISH = "{*}rPr/{*}vanish"
_OF_FIELDS = ("rPr", "fldChar", "instrText")  # parts of runs that are not text


def _leave_out_hidden(root: Any, hidden_styles: set[str]) -> None:
    """Remove text that Word does not show, and rows and paragraphs that are hidden as a whole."""
    for row in [*root.iter("{*}tr")]:
        if _is_on(row.find("{*}trPr/{*}hidden")):
            row.getparent().remove(row)
    for paragraph in [*root.iter("{*}p")]:
        in_hidden_style = _value(paragraph, "w:pPr/w:pStyle") in hidden_styles
        for run in paragraph.iterfind(".//{*}r"):
            if _is_hidden(run, "w:rStyle", hidden_styles, in_hidden_style):
                _empty(run)
        properties = paragraph.find("{*}pPr")
        if properties is None or properties.find("{*}sectPr") is not None or letters_of(paragraph):
            continue
        if _is_hidden(properties, "w:pStyle", hidden_styles, in_hidden_style):
            paragraph.getparent().remove(paragraph)


def _write_equations(root: Any) -> None:
    """Put runs with the texts of equations in place of these; adjacent ones are apart."""
    etree.strip_tags(root, "{*}oMathPara")
    for equation in [*root.iter("{*}oMath")]:
        text = equation_text(equation)
        is_followed = equation.getnext() is not None and local_name(equation.getnext()) == "oMath"
        run = etree.fromstring(f'<w:r xmlns:w="{_W}"><w:t/></w:r>')
        run[0].text = f"{text}, " if is_followed else text
        run.tail = equation.tail
        equation.getparent().replace(equation, run)


def _empty(run: Any) -> None:
    for part in [*run]:
        if etree.QName(part).localname not in _OF_FIELDS:
            run.remove(part)


def _is_hidden(element: Any, style: str, hidden_styles: set[str], otherwise: bool) -> bool:
    """Return whether a run, or the end of a paragraph, is hidden: by itself, its style, or `otherwise`."""
    vanish = element.find(_VANISH)
    if vanish is not None:
        return _is_on(vanish)
    return otherwise or _value(element, f"w:rPr/{style}") in hidden_styles


def _leave_out_prompts(root: Any) -> None:
    """Remove the prompts of fields that are not filled in, such as "Click here to enter text."."""
    for control in root.iter("{*}sdt"):
        if _is_on(control.find("{*}sdtPr/{*}showingPlcHdr")):
            for run in control.iterfind("{*}sdtContent//{*}r"):
                _empty(run)


_SHAPES = ("{*}drawing", "{*}pict")


def _unwrap_boxes(root: Any) -> None:
    """Reduce shapes to their text boxes, so that Mammoth reads these."""
    for shape in [*root.iter(*_SHAPES)]:
        boxes = [
            box
            for box in shape.iter("{*}txbxContent")
            if next(box.iterancestors(*_SHAPES)) is shape
        ]
        if not boxes:
            continue
        shape.clear()
        shape.tag = f"{{{_W}}}pict"
        shape.extend(boxes)


def _take_drawings(document: Any, parts: dict[str, bytes]) -> list[str]:
    """Replace charts and diagrams by marks with their numbers, and return their HTML."""
    drawn: list[str] = []
    for drawing in [*document.iter("{*}drawing")]:
        charts = [_related(reference, "id", parts) for reference in drawing.iter("{*}chart")]
        diagrams = [_related(reference, "dm", parts) for reference in drawing.iter("{*}relIds")]
        html = "".join([*map(chart_html, charts), *map(diagram_html, diagrams)])
        if html:
            drawing.clear()
            drawing.tag = f"{{{_W}}}t"
            drawing.text = f"{_DRAWN}{len(drawn)}{_DRAWN}"
            drawn.append(html)
    return drawn


def _related(element: Any, name: str, parts: dict[str, bytes]) -> Any:
    """Return the part of a document that an attribute of an element refers to, or else an empty one."""
    relations = _parsed(parts, _RELATIONSHIPS).xpath("*[@Id = $id]", id=_attribute(element, name))
    target = relations[0].get("Target") if relations else ""
    return _parsed(parts, posixpath.normpath(posixpath.join("/word", target)).lstrip("/"))


# Numbers other than digits: (b), iv., 第二章, ②, ウ.
_KANJI = "一二三四五六七八九"
_SIGNS: Mapping[str, Sequence[str]] = by_word(
    {
        "lowerLetter": "abcdefghijklmnopqrstuvwxyz",
        "lowerRoman": ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"],
        "decimalEnclosedCircle": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
        "aiueo aiueoFullWidth": "アイウエオカキクケコサシスセソタチツテト",
        "iroha irohaFullWidth": "イロハニホヘトチリヌルヲワカヨタレソツネ",
        "japaneseCounting chineseCounting ideographDigital japaneseDigitalTenThousand": [
            *_KANJI,
            *map("十{}".format, ["", *_KANJI]),
            "二十",
        ],
    }
)
_AROUND_NUMBER = " .)(．）（、:"


def _item_html(match: re.Match[str]) -> str:
    """Return the beginning of an item with its number: as Markdown has it, or as text if it cannot."""
    marks, number = match.groups()
    digits = number.strip(_AROUND_NUMBER)
    if digits.isdecimal():
        return f'<li value="{int(digits)}">{marks}'
    return f"<li {LABELLED}>{marks}{number} "


def _formatted_number(number: int, kind: str) -> str:
    """Return a number in the format of a kind of list."""
    lower_kind = kind.replace("upper", "lower")
    signs = _SIGNS.get(lower_kind, "")
    if not 0 < number <= len(signs):
        return str(number)
    sign = signs[number - 1]
    return sign.upper() if kind != lower_kind else sign


_IN_DEFINITION = "w:abstractNum[@w:abstractNumId=$id]/w:lvl[@w:ilvl=$level]"


def _number_items(document: Any, numbering: Any, styles: _Styles) -> None:
    """Insert the numbers of items and headings before their texts, between marks.

    They are counted as in Word: the numbers of lists with one definition continue, wherever the lists are.
    """
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for paragraph in document.iter(f"{{{_W}}}p"):
        style = styles.get(_value(paragraph, "w:pPr/w:pStyle"), paragraph)
        list_id = _list_value(paragraph, style, "numId")
        level = _list_value(paragraph, style, "ilvl") or "0"
        definition = _value(numbering, "w:num[@w:numId=$id]/w:abstractNumId", id=list_id)
        kind = _value(numbering, f"{_IN_DEFINITION}/w:numFmt", id=definition, level=level)
        if kind in ("", "bullet", "none"):
            continue
        in_list = "w:num[@w:numId=$id]/w:lvlOverride[@w:ilvl=$level]"
        start = _value(numbering, f"{in_list}/w:startOverride", id=list_id, level=level)
        levels = counts[definition, list_id if start else ""]
        start = start or _value(numbering, f"{_IN_DEFINITION}/w:start", id=definition, level=level)
        levels[level] = levels.get(level, int(start or 1) - 1) + 1
        for deeper in [other for other in levels if other > level]:
            del levels[deeper]
        number = _number_shown(numbering, definition, levels, level)
        run = etree.Element(f"{{{_W}}}r")
        etree.SubElement(run, f"{{{_W}}}t").text = f"{_NUMBER}{number}{_NUMBER}"
        paragraph.insert(1, run)  # after its properties


def _number_shown(numbering: Any, definition: str, counts: Mapping[str, int], level: str) -> str:
    """Return a number as Word shows it, with those of the levels above: 2.1, (b), 第3条.

    Args:
        numbering: The definitions of lists.
        definition: The id of the list's definition.
        counts: The number of items so far, by level.
        level: The level of the number.
    """
    depth = int(level) + 1
    number = _value(numbering, f"{_IN_DEFINITION}/w:lvlText", id=definition, level=level)
    number = number or f"%{depth}"
    for upper in map(str, range(depth)):
        kind = _value(numbering, f"{_IN_DEFINITION}/w:numFmt", id=definition, level=upper)
        number = number.replace(f"%{int(upper) + 1}", _formatted_number(counts.get(upper, 1), kind))
    # a sentence would end after "Article II."
    return number.removesuffix(".") if " " in number else number


_LONGEST_HEADING = 80  # characters
_DEEPEST_HEADING = 6
_OUTLINE_LEVEL = "{*}pPr/{*}outlineLvl"


def _mark_headings(document: Any, styles: _Styles) -> None:
    """Give short paragraphs with an outline level, except in tables, heading styles that Mammoth reads."""
    in_tables = {*document.iterfind(".//{*}tbl//{*}p")}
    for paragraph in {*document.iter(f"{{{_W}}}p")} - in_tables:
        level = _outline_level(paragraph, styles)
        text = letters_of(paragraph)
        is_short = len(text) <= _LONGEST_HEADING and not text.endswith((".", "。"))
        if not level or int(level) >= _DEEPEST_HEADING or not is_short:
            continue
        _set_style(paragraph, f"Heading{int(level) + 1}")


def _set_style(paragraph: Any, name: str) -> None:
    properties = paragraph.find("{*}pPr")
    if properties is None:
        properties = etree.Element(f"{{{_W}}}pPr")
        paragraph.insert(0, properties)
    for style in properties.findall("{*}pStyle"):
        properties.remove(style)
    properties.insert(0, etree.Element(f"{{{_W}}}pStyle", {f"{{{_W}}}val": name}))


_CODE_FONT = re.compile(r"(?i)mono|cour|consol|typewriter|code")
_FONTS = "{*}rPr/{*}rFonts"


def _mark_code(document: Any, styles: _Styles) -> None:
    """Give paragraphs in a font for code a style of their own, unless most of the document is in such."""
    paragraphs = [
        paragraph for paragraph in document.iterfind("{*}body/{*}p") if letters_of(paragraph)
    ]
    code = [paragraph for paragraph in paragraphs if _is_code(paragraph, styles)]
    if 2 * len(code) <= len(paragraphs):
        for paragraph in code:
            _set_style(paragraph, "SourceCode")


def _is_code(paragraph: Any, styles: _Styles) -> bool:
    """Return whether all text of a paragraph that is no list item or heading is in a font for code."""
    if paragraph.find("{*}pPr/{*}numPr") is not None or _outline_level(paragraph, styles):
        return False
    of_style = _inherited(styles, _value(paragraph, "w:pPr/w:pStyle"), _FONTS)
    for run in paragraph.iterfind(".//{*}r"):
        fonts = run.find(_FONTS)
        if fonts is None:
            fonts = of_style
        is_code = fonts is not None and _CODE_FONT.search(_attribute(fonts, "ascii"))
        if letters_of(run) and not is_code:
            return False
    return True


def _outline_level(paragraph: Any, styles: _Styles) -> str:
    """Return the outline level of a paragraph, its own or that of its style; empty if there is none."""
    level = paragraph.find(_OUTLINE_LEVEL)
    if level is None:
        level = _inherited(styles, _value(paragraph, "w:pPr/w:pStyle"), _OUTLINE_LEVEL)
    return "" if level is None else _attribute(level, "val")


# Matched without spaces. Codes and dates (C-12, 2024-05-01) are no page numbers.
_PAGE_NUMBER = re.compile(
    r"(?i)[-–—(\[]*(?:全\d{1,4}(?:ページ|頁)(?:中|[:/])?)?(?:pages?|pg\.?|p\.?|seite|página|ページ|頁|第)?[|:]?"
    r"(?:\d{1,4}|[ivx]+)(?:ページ|頁|p)?"
    r"(?:(?:of|von|sur|de|/|\||[(（])(?:全|pages?)?\d{1,4}(?:ページ|頁|p)?(?:中)?[)）]?)?[-–—)\]]*"
)


def _put_in_margins(document: Any, parts: dict[str, bytes]) -> None:
    """Insert the content of headers before the text, and that of footers after it, each once."""
    body = document.find("{*}body")
    has_even = _is_on(_parsed(parts, "word/settings.xml").find("{*}evenAndOddHeaders"))
    margins: dict[str, list[Any]] = {"headerReference": [], "footerReference": []}
    texts = {""}
    for section in document.iterfind(".//{*}sectPr"):
        pages = {"first": _is_on(section.find("{*}titlePg")), "even": has_even}
        for reference in section.iterchildren("*"):
            blocks = margins.get(etree.QName(reference).localname)
            if blocks is None or not pages.get(_attribute(reference, "type"), True):
                continue
            for block in _related(reference, "id", parts).iterchildren("*"):
                text = letters_of(block)
                if text not in texts and not _PAGE_NUMBER.fullmatch(text):
                    texts.add(text)
                    blocks.append(_without_links(block))
    body[:0] = margins["headerReference"]
    body.extend(margins["footerReference"])


def _is_on(setting: Any) -> bool:
    return setting is not None and _attribute(setting, "val") not in ("0", "false", "off")


def _attribute(element: Any, name: str) -> str:
    """Return the value of an attribute in any namespace; empty if there is none."""
    return str(element.xpath("string(@*[local-name() = $name])", name=name))


def _without_links(block: Any) -> Any:
    """Remove ids of links and pictures, which the document lacks, from a part of a header or footer."""
    for element in block.iter("*"):
        for name in [*element.attrib]:
            if (etree.QName(name).namespace or "").endswith("/relationships"):
                del element.attrib[name]
    return block


def _list_value(paragraph: Any, style: Any, name: str) -> str:
    """Return a setting of the list that a paragraph is in, by the paragraph itself or by its style."""
    path = f"w:pPr/w:numPr/w:{name}"
    return _value(paragraph, path) or _value(style, path)


def _value(element: Any, path: str, **names: str) -> str:
    """Return the value of an element below another one; empty if there is none."""
    return str(element.xpath(f"string({path}/@w:val)", namespaces={"w": _W}, **names))
