"""Files that are archives of markup: Word documents and e-books, as the HTML pages that they say."""

from __future__ import annotations

import posixpath
import re
from html import escape
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element, fromstring
from zipfile import ZipFile

_AS_HTML = {"tab": " ", "br": "<br>", "cr": "<br>", "noBreakHyphen": "-"}
_TAGS = {"tbl": "table", "tr": "tr", "tc": "td"}
_UNSEEN = ("del", "moveFrom", "rt", "Fallback", "pPr")  # what was deleted, readings above kanji, what is there twice
_PARTS = ("document", "footnotes", "endnotes")
_HEADING = re.compile(r"(?i)title|heading (\d)")


def book_pages(file: Path) -> tuple[str, list[bytes]]:
    """The title of an EPUB, and its pages in the order of reading, but for its contents."""
    with ZipFile(file) as archive:
        place = _part(archive, "META-INF/container.xml").find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
        package = _part(archive, place)
        listed = [item for item in package.iterfind("{*}manifest/{*}item") if "nav" not in item.get("properties", "")]
        pages = {item.get("id"): item.get("href") for item in listed if "html" in item.get("media-type", "html")}
        read = filter(None, (pages.get(one.get("idref")) for one in package.iterfind("{*}spine/{*}itemref")))
        title = package.findtext("{*}metadata/{*}title") or ""
        return title.strip(), [archive.read(posixpath.normpath(f"{place}/../{unquote(page)}")) for page in read]


def word_pages(file: Path) -> tuple[str, list[bytes]]:
    """The title of a Word document, and its text and its notes, without what repeats on each of its pages."""
    with ZipFile(file) as archive:
        names = archive.namelist()
        styles = _part(archive, "word/styles.xml") if "word/styles.xml" in names else Element("none")
        tags: dict[str, str] = {}
        for style in styles.iterfind("{*}style"):
            identity = next((value for key, value in style.items() if key.endswith("styleId")), "")
            based = tags.get(_value(style, "{*}basedOn"), "")
            found = _HEADING.fullmatch(_value(style, "{*}name"))
            tags[identity] = f"h{min(int(found[1] or 1), 6)}" if found else _tag(style, based)
        kept = [one for kind in _PARTS for one in names if re.fullmatch(rf"word/{kind}\d*\.xml", one)]
        pages = [_html(_part(archive, name), tags).encode() for name in kept or ["word/document.xml"]]
        title = _part(archive, "docProps/core.xml").findtext("{*}title") if "docProps/core.xml" in names else ""
        return (title or "").strip(), pages


def _part(archive: ZipFile, name: str) -> Element:
    return fromstring(archive.read(name))


def _value(element: Element, path: str) -> str:
    """The `val` of what is there below an element, whose prefix is another one in strict files."""
    found = element.find(path)
    return "" if found is None else next((value for key, value in found.items() if key.endswith("}val")), "")


def _tag(element: Element, otherwise: str) -> str:
    """The HTML tag of a paragraph, or of a style of paragraphs."""
    level = _value(element, "{*}pPr/{*}outlineLvl")
    if level and int(level) < 6:
        return f"h{int(level) + 1}"
    is_item = _value(element, "{*}pPr/{*}numPr/{*}numId") not in ("", "0")
    return "li" if is_item and not otherwise.startswith("h") else otherwise


def _html(element: Element, tags: dict[str, str]) -> str:
    name = element.tag.rpartition("}")[2]
    if name in _UNSEEN or name in _AS_HTML:
        return _AS_HTML.get(name, "")
    if name == "t":
        return escape(element.text or "")
    inside = "".join(_html(child, tags) for child in element)
    tag = _TAGS.get(name, "")
    if name == "p":
        tag = _tag(element, tags.get(_value(element, "{*}pPr/{*}pStyle"), "")) or "p"
    across = _value(element, "{*}tcPr/{*}gridSpan") or "1"
    return f'<{tag} colspan="{across}">{inside}</{tag}>' if tag else inside
