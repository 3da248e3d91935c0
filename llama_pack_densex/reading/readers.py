"""One file into LlamaIndex documents."""

from __future__ import annotations

import codecs
import json
import logging
import posixpath
import re
import stat
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from email import message_from_bytes
from email.policy import default
from email.utils import parsedate_to_datetime
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element, fromstring
from zipfile import ZipFile

import yaml
from charset_normalizer import from_bytes
from llama_index.core import SimpleDirectoryReader
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_pack_densex.propositionizers.language import on_one_line, sendable
from llama_pack_densex.reading.files import MissingReaderError, UnreadableFileError
from llama_pack_densex.reading.tables import Row, rows_text, sheets

logger = logging.getLogger(__name__)

_FILES_ADVICE = 'install it with: pip install "llama-pack-densex[files]"'
_SLIDES = (".pptx", ".pptm")
_SHEETS = (".xlsx", ".xlsm")
_PACKED = (".docx", ".docm", ".epub", *_SLIDES, *_SHEETS)
_MOST_UNPACKED = 2**28  # bytes of markup: some kilobytes unpack to gigabytes
_MOST_MERGED = 10**6  # cells, of each of which openpyxl makes an object
_WHATWG = {  # what browsers take these labels for: pages say the first and are the second
    "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252",
    "ascii": "cp1252", "iso-8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030", "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932",
    "big5": "big5hkscs",
}  # fmt: skip
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n((?:.*\n)*?)(?:\1|\.\.\.)[ \t]*\r?(?:\n|\Z)")
_MOST_ALIASES = 20  # in front matter: of a few lines, some more make gigabytes
_SAMPLE = 10_000  # characters of a CSV file, of which most lines have what parts its cells
_BINARY = 8192  # bytes that tell a large binary file from text before it is read
_NO_TEXT = (
    "is no text (it has NUL characters): only text, Markdown, HTML, PDF, .docx, .xlsx, .pptx and EPUB can be read; "
    "convert it, or leave it out"
)
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_PLAUSIBLE = 0.8  # share of common characters; what is right has nearly all, what is wrong seldom half


def read_file(path: Path, document_id: str) -> list[Document]:
    """Read a file through core's `SimpleDirectoryReader`: text, Markdown, HTML, PDF, CSV, Office files, EPUB, mail.

    Args:
        path: The file.
        document_id: The id of its document; a PDF becomes one document a page, with `#page=1` and so on after it, and
            slides and the messages of a mailbox are counted like pages. A sheet's name is its page.

    Returns:
        The documents, with the metadata and the excluded keys that `SimpleDirectoryReader` gives them, and those of a
        text's YAML or TOML front matter.

    Raises:
        UnreadableFileError: The file is no text, is damaged, encrypted, or may not be read.
        MissingReaderError: A package is missing; the message says what to install.
    """
    suffix = path.suffix.lower()
    try:
        str(path).encode("utf-8")
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnreadableFileError(path, "is no regular file")
        if suffix in _PACKED:
            _check_archive(path)
        extractors: dict[str, BaseReader] = {suffix: _AlreadyRead(_READERS.get(suffix, _text)(path))}
        reader = SimpleDirectoryReader(input_files=[path], file_extractor=extractors, raise_on_error=True)
        documents = reader.load_data()
    except UnicodeEncodeError as error:
        raise UnreadableFileError(path, "has a name that is not UTF-8: rename it") from error
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ImportError as error:
        raise MissingReaderError(path, f"needs more packages ({error}): {_FILES_ADVICE}") from error
    except UnreadableFileError:
        raise
    except Exception as error:  # what is damaged fails anywhere in a reader, with any kind of error
        wrong = type(error.__cause__ or error).__name__  # not its message, which may quote the text
        kind = " as a PDF" if suffix == ".pdf" else ""
        advice = "it may be damaged or encrypted; save it anew, without a password"
        raise UnreadableFileError(path, f"cannot be read{kind} ({wrong}): {advice}") from error
    for number, document in enumerate(documents, 1):
        document.metadata["file_name"] = unicodedata.normalize("NFC", path.name)
        is_page = suffix in (".pdf", ".mbox", *_SHEETS, *_SLIDES)
        label = document.metadata["page_label"] if suffix in _SHEETS else number
        document.id_ = f"{document_id}#page={label}" if is_page else document_id
    return documents


class _AlreadyRead(BaseReader):
    """Hands over what was read; `SimpleDirectoryReader` adds the metadata, and would wrap what its readers raise."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    def load_data(self, file: Path, extra_info: dict[str, Any] | None = None) -> list[Document]:
        own = extra_info or {}
        return [Document(text=text, metadata={**own, **more, **own}) for text, more in self._parts]


_Parts = list[tuple[str, dict[str, Any]]]


def _text(file: Path) -> _Parts:
    """UTF-8, UTF-16, a Japanese encoding, or what it can be told to be; without front matter."""
    text = _decoded(file, _bytes(file))
    if text.startswith("{\\rtf"):
        raise UnreadableFileError(file, "is RTF, which cannot be read: save it as .docx or text")
    if found := _FRONT_MATTER.match(text):
        kind, read = ("YAML", _yaml) if found[1] == "---" else ("TOML", _toml)
        try:
            metadata = json.loads(json.dumps(read(found[2]), default=_plain), parse_constant=str)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError, ImportError) as error:
            logger.warning("%s: its front matter is no %s (%s) and stays in the text", file, kind, type(error).__name__)
        else:
            if isinstance(metadata, dict) or not found[2].strip():  # else it is text between two rules
                return [(text[found.end() :], metadata or {})]
    return [(text, {})]


def _yaml(text: str) -> Any:
    if sum(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)) > _MOST_ALIASES:
        raise ValueError("too many aliases")
    return yaml.safe_load(text)


def _toml(text: str) -> dict[str, Any]:
    """Hugo's front matter."""
    import tomllib  # which Python 3.10 lacks

    return tomllib.loads(text)


def _plain(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, set) else str(value)


def _csv(file: Path) -> _Parts:
    """A small table for each row."""
    text = _decoded(file, _bytes(file))
    lines = re.sub('"[^"]*"', "", text.strip()[:_SAMPLE]).split("\n")
    delimiter = max(",;\t|", key=lambda one: (sum(one in line for line in lines), lines[0].count(one)))
    rows: list[list[str]] = [[]]
    # not by csv, whose cells may have 131,072 characters, more only where that is set for the whole process
    for cell in re.finditer(rf'("[^"]*(?:""[^"]*)*"|)([^{delimiter}\r\n]*)([{delimiter}]|\r?\n|\r|\Z)', text):
        rows[-1].append(" ".join((cell[1][1:-1].replace('""', '"') + cell[2]).split()).replace("|", r"\|"))
        if cell[3] != delimiter:
            rows.append([])
    return [(rows_text(Row(row, [*filter(None, row)]) for row in rows), {})]


def _sheets(file: Path) -> _Parts:
    """The sheets of an Excel file, each below its name, with what its text boxes and charts say."""
    parts: _Parts = []
    rows = dict(sheets(file))
    with ZipFile(file) as archive:
        book = next(one for one in _related(archive, "").values() if "/workbook" in one)
        places = _related(archive, book)
        for sheet in _part(archive, book).iterfind("{*}sheets/{*}sheet"):
            others = _related(archive, places.get(_attribute(sheet, "id"), "")).values()
            drawn = [_shown_in(archive, one) for one in others if "/drawings/drawing" in one]
            name = sheet.get("name", "")
            text = "\n\n\n".join(filter(None, [rows.get(name, ""), *drawn]))
            parts.append((text and f"# {name}\n\n{text}", {"page_label": name}))
    return parts


def _html(file: Path) -> _Parts:
    """HTML as Markdown, without scripts, styles and navigation; the page's title is metadata."""
    from llama_pack_densex.reading.html import declared_encoding, html_to_text

    data = _bytes(file)
    title, text = html_to_text(_decoded(file, data, declared_encoding(data)))
    return [(text, {"title": title} if title else {})]


def _check_archive(file: Path) -> None:
    """Refuse what would take gigabytes and minutes to read."""
    with ZipFile(file) as archive:
        pages = [part for part in archive.infolist() if part.filename.endswith(("xml", "html", "htm"))]
        if sum(page.file_size for page in pages) > _MOST_UNPACKED:
            raise UnreadableFileError(file, "unpacks to more than 256 MB of markup: divide it, or save it as text")
        if file.suffix.lower() in _SHEETS:
            from openpyxl.utils import range_boundaries  # type: ignore[import-untyped]

            sheets = (archive.read(page) for page in pages if "/worksheets/" in page.filename)
            spans = (found.decode() for sheet in sheets for found in _MERGED.findall(sheet))
            sides = (range_boundaries(span) for span in spans)
            if sum((right - left + 1) * (low - high + 1) for left, high, right, low in sides) > _MOST_MERGED:
                raise UnreadableFileError(file, "has whole columns merged: unmerge them, or save it as CSV")


_MERGED = re.compile(rb"mergeCell\s+ref=[\"']([^\"']+)")


def _archive(file: Path) -> _Parts:
    """A book or a Word document as one text, with its title."""
    from llama_pack_densex.reading.html import declared_encoding, html_to_text

    title, pages = (_book_pages if file.suffix.lower() == ".epub" else _word_pages)(file)
    texts = [html_to_text(_decoded(file, page, declared_encoding(page)))[1] for page in pages]
    return [("\n".join(filter(None, texts)), _named(title))]


def _slides(file: Path) -> _Parts:
    """The slides of a presentation, each with its diagrams, charts and notes."""
    parts: _Parts = []
    with ZipFile(file) as archive:
        places, of_all = _related(archive, "ppt/presentation.xml"), _named(_core_title(archive))
        for slide in _part(archive, "ppt/presentation.xml").iterfind("{*}sldIdLst/{*}sldId"):
            text = _shown_in(archive, places[_attribute(slide, "id")])
            parts.append((text, {**of_all, "page_label": str(len(parts) + 1)}))
    return parts


def _shown_in(archive: ZipFile, place: str) -> str:
    """What a slide, or the drawing of a sheet, says."""
    from llama_pack_densex.reading.html import html_to_text

    others = _related(archive, place).values()
    read = [place, *(one for kind in _BESIDE for one in others if kind in one)]
    return html_to_text("".join(_as_html(_part(archive, one), {}) for one in read))[1]


def _related(archive: ZipFile, place: str) -> dict[str, str]:
    """The parts that one of an Office file leads to, by what it calls them."""
    folder, name = posixpath.split(place)
    links = posixpath.join(folder, "_rels", f"{name}.rels")
    found = _part(archive, links) if links in archive.namelist() else Element("none")
    inside = {one.get("Id", ""): one.get("Target", "") for one in found if one.get("TargetMode") != "External"}
    return {key: posixpath.normpath(posixpath.join("/", folder, target))[1:] for key, target in inside.items()}


def _core_title(archive: ZipFile) -> str:
    is_told = "docProps/core.xml" in archive.namelist()
    return ((_part(archive, "docProps/core.xml").findtext("{*}title") if is_told else "") or "").strip()


_BESIDE = ("/diagrams/data", "/charts/chart", "/notesSlides/")
_AS_HTML = {"tab": " ", "br": "<br>", "cr": "<br>", "noBreakHyphen": "-"}
_TAGS = {"tbl": "table", "tr": "tr", "tc": "td"}
_UNSEEN = ("del", "moveFrom", "rt", "Fallback", "pPr")  # what was deleted, readings above kanji, what is there twice
_ON_EACH_SLIDE = ("sldNum", "dt", "ftr")
_PARTS = ("document", "footnotes", "endnotes")
_STYLE = re.compile(r"(?i)(?:title|heading (\d)|(toc \d|table of figures))")


def _book_pages(file: Path) -> tuple[str, list[bytes]]:
    """The title of an EPUB, and its pages in the order of reading, but for its contents."""
    with ZipFile(file) as archive:
        place = _part(archive, "META-INF/container.xml").find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
        package = _part(archive, place)
        listed = [item for item in package.iterfind("{*}manifest/{*}item") if "nav" not in item.get("properties", "")]
        pages = {item.get("id"): item.get("href") for item in listed if "html" in item.get("media-type", "html")}
        read = filter(None, (pages.get(one.get("idref")) for one in package.iterfind("{*}spine/{*}itemref")))
        title = package.findtext("{*}metadata/{*}title") or ""
        return title.strip(), [archive.read(posixpath.normpath(f"{place}/../{unquote(page)}")) for page in read]


def _word_pages(file: Path) -> tuple[str, list[bytes]]:
    """The title of a Word document, and its text and its notes, without what repeats on each of its pages."""
    with ZipFile(file) as archive:
        names = archive.namelist()
        styles, numbering = (
            _part(archive, name) if name in names else Element("none")
            for name in ("word/styles.xml", "word/numbering.xml")
        )
        tags: dict[str, str] = {}
        placed: dict[str, tuple[str, int]] = {}
        for style in styles.iterfind("{*}style"):
            identity, based = _attribute(style, "styleId"), _value(style, "{*}basedOn")
            found = _STYLE.fullmatch(_value(style, "{*}name"))
            known = found and ("nav" if found[2] else f"h{min(int(found[1] or 1), 6)}")  # contents, which are left out
            tags[identity] = known or _tag(style, tags.get(based, ""))
            placed[identity] = _place_in_list(style, placed.get(based, ("", 0)))
        kept = [one for kind in _PARTS for one in names if re.fullmatch(rf"word/{kind}\d*\.xml", one)]
        pages = [_part(archive, name) for name in kept or ["word/document.xml"]]
        _number_paragraphs(pages[0], placed, numbering)
        return _core_title(archive), [_as_html(page, tags).encode() for page in pages]


def _number_paragraphs(page: Element, placed: Mapping[str, tuple[str, int]], numbering: Element) -> None:
    """Give paragraphs, as attributes, the numbers that Word shows before them.

    Args:
        page: The paragraphs.
        placed: The list of each style, and the level in it.
        numbering: Word's lists.
    """
    kinds = {_attribute(one, "abstractNumId"): one.findall("{*}lvl") for one in numbering.iterfind("{*}abstractNum")}
    lists = {_attribute(one, "numId"): one for one in numbering.iterfind("{*}num")}
    counted: defaultdict[str, list[int]] = defaultdict(list)
    for paragraph in page.iterfind(".//{*}p"):
        by_style = placed.get(_value(paragraph, "{*}pPr/{*}pStyle"), ("", 0))
        identity, depth = _place_in_list(paragraph, by_style)
        used = lists.get(identity, Element("none"))
        kind = _value(used, "{*}abstractNumId")
        levels = kinds.get(kind, [])[: depth + 1]
        if len(levels) > depth and paragraph.find(".//{*}t") is not None:
            counts = counted[kind if used.find("{*}lvlOverride") is None else f"{kind} {identity}"]  # begun anew
            goes_on, firsts = len(counts) > depth, [int(_value(level, "{*}start") or 1) for level in levels]
            counts[:] = [*counts[: depth + 1], *firsts[len(counts) :]]
            counts[depth] += goes_on
            number = _value(levels[depth], "{*}lvlText")
            for place, (count, level) in enumerate(zip(counts, levels, strict=True), 1):
                ordinals = _ORDINALS.get(_value(level, "{*}numFmt"), "")
                number = number.replace(f"%{place}", ordinals[count - 1] if 0 < count <= len(ordinals) else str(count))
            if "%" in _value(levels[depth], "{*}lvlText"):  # else it is a bullet
                paragraph.set("number", number)


def _place_in_list(element: Element, otherwise: tuple[str, int]) -> tuple[str, int]:
    """Word's list that a paragraph, or a style of paragraphs, is in, and the level in it."""
    own = "{*}pPr/{*}numPr/{*}"
    return _value(element, f"{own}numId") or otherwise[0], int(_value(element, f"{own}ilvl") or otherwise[1])


_KANJI, _ROMAN = "一二三四五六七八九十", ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_ORDINALS: dict[str, Sequence[str]] = {  # others are figures
    "upperLetter": ascii_uppercase, "lowerLetter": ascii_lowercase, "aiueoFullWidth": "アイウエオカキクケコサシスセソ",
    "upperRoman": [one.upper() for one in _ROMAN], "lowerRoman": _ROMAN,
    "japaneseCounting": [*_KANJI, *(f"十{one}" for one in _KANJI[:-1]), "二十"],
}  # fmt: skip


def _part(archive: ZipFile, name: str) -> Element:
    return fromstring(archive.read(name))


def _value(element: Element, path: str) -> str:
    """The `val` of what is there below an element, whose prefix is another one in strict files."""
    found = element.find(path)
    return "" if found is None else _attribute(found, "val")


def _attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.items() if key.endswith(f"}}{name}")), "")


def _tag(element: Element, otherwise: str) -> str:
    """The HTML tag of a paragraph, or of a style of paragraphs."""
    level = _value(element, "{*}pPr/{*}outlineLvl")
    if level and int(level) < 6:
        return f"h{int(level) + 1}"
    is_item = _value(element, "{*}pPr/{*}numPr/{*}numId") not in ("", "0")
    return "li" if is_item and not otherwise.startswith("h") else otherwise


def _as_html(element: Element, tags: dict[str, str]) -> str:
    name = element.tag.rpartition("}")[2]
    if name in _UNSEEN or name in _AS_HTML:
        return _AS_HTML.get(name, "")
    if name == "t":
        return escape(element.text or "")
    if name == "ser":  # of a chart
        found = (element.iterfind(f"{{*}}{side}//{{*}}v") for side in ("cat", "tx", "val"))
        names, title, values = ([value.text or "" for value in some] for some in found)
        rows = zip_longest(["", *names], title + values, fillvalue="")
        return f"<table>{''.join(f'<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>' for a, b in rows)}</table>"
    held = element.find("{*}nvSpPr/{*}nvPr/{*}ph") if name == "sp" else None
    kind = "" if held is None else held.get("type", "")
    if kind in _ON_EACH_SLIDE:
        return ""
    inside = "".join(_as_html(child, tags) for child in element)
    tag = "h1" if kind in ("title", "ctrTitle") else _TAGS.get(name, "")
    if name == "p":
        tag, number = _tag(element, tags.get(_value(element, "{*}pPr/{*}pStyle"), "")) or "p", element.get("number", "")
        if tag == "li":
            return f'<li number="{escape(number)}">{inside}</li>'
        inside = f"{escape(number)} {inside}"
    across = _value(element, "{*}tcPr/{*}gridSpan") or "1"
    below = element.find("{*}tcPr/{*}vMerge")
    is_below = "vMerge" in element.attrib or (below is not None and "restart" not in below.attrib.values())
    return f'<{tag} colspan="{across}"{" merged" * is_below}>{inside}</{tag}>' if tag else inside


def _mail(file: Path) -> _Parts:
    """The messages of a mail file or a mailbox, each with its subject for a title; what is attached is named."""
    from llama_pack_densex.reading.html import html_to_text

    parts: _Parts = []
    for data in filter(None, re.split(rb"(?:\A|\n\r?\n)From \S.*\d{4}\s*\n", file.read_bytes())):
        message = message_from_bytes(data, policy=default)
        about = {key: sendable(on_one_line(str(message[key] or ""))) for key in ("subject", "from", "to", "date")}
        with suppress(TypeError, ValueError):  # a date that is none stays as it is
            about["date"] = parsedate_to_datetime(about["date"]).isoformat(" ")
        text, body = "", message.get_body(("plain", "html"))
        if body is not None and isinstance(content := body.get_payload(decode=True), bytes):
            text = _decoded(file, content, body.get_content_charset())
            text = html_to_text(text)[1] if body.get_content_subtype() == "html" else text
        names = [sendable(name) for part in message.walk() if (name := part.get_filename())]
        said = {**about, "attached": ", ".join(names)}
        title = said.pop("subject")
        head = "\n".join(f"{key.capitalize()}: {value}" for key, value in said.items() if value)
        about |= {"title": about.pop("subject"), "page_label": str(len(parts) + 1) * (file.suffix.lower() == ".mbox")}
        known = {key: value for key, value in about.items() if value}
        parts.append(("\n\n".join(filter(None, (title and f"# {title}", head, text))), known))
    return parts or [("", {})]


_CUE = re.compile(r"(?m)^(?:\S.*\n)?[\d:.,]{5,} --> .*$")
_ABOUT_CUES = re.compile(r"(?m)^(?:\ufeff?WEBVTT|NOTE|STYLE|REGION)\b.*(?:\n.+)*")


def _subtitles(file: Path) -> _Parts:
    """What is said, by whom where that is told, and not when; as a text where sentences end somewhere."""
    text = _ABOUT_CUES.sub("", _decoded(file, _bytes(file)).replace("\r\n", "\n"))
    named = re.sub(r"<[^<>]*>", "", re.sub(r"<v[.\w]* ([^<>]*)>", r"\1: ", text))
    cues = [*filter(None, map(on_one_line, _CUE.split(named)))]
    text, ends = "\n".join(cues), sum(cue[-1] in ".?!。？！" for cue in cues)
    return [(on_one_line(text) if 4 * ends > len(cues) else text, {})]


def _notebook(file: Path) -> _Parts:
    """The cells of a Jupyter notebook, without what they put out."""
    cells = json.loads(_decoded(file, _bytes(file)))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    return [("\n\n".join(f"```\n{text}\n```" if is_code else text for text, is_code in texts), {})]


_PDFIUM = threading.Lock()  # it may be used by one thread at a time
_HYPHEN = re.compile(r"[\x02\ufffe](\S*) ?")  # what PDFium puts for one that parts a word at the end of a line
# Of a file's name, for one.
_NO_TITLE = re.compile(r"(?i)^(?:microsoft |powerpoint |untitled|無題|名称未設定)|\.\w{2,5}$")
_RUNNING, _NEAR = 2, 4  # lines that a page's head or foot has, and pages among which one recurs
_SECTION = r"(?:[^\W\d_]*[ \t]*[\dA-Z]{1,3}(?:\.\d{1,3})*[.:章節]?\s*)?"  # "Chapter 2", "2.1."
_DIGITS = re.compile(r"\d{1,5}")
# "Question 2", and not "Page 2" or "Handbook 2 / 10".
_LABEL = re.compile(r"(?i)(?!(?:page|p|seite|頁)\b)([^\d.:：]*[^\W\d])[ .#-]{0,2}\d+(?!\d| ?(?:/|of\b|頁|ページ))")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")  # broken fonts leave them, and stores do not take NUL


def _pdf(file: Path) -> _Parts:
    """The pages of a PDF, each with its label, the title, and the section of its bookmarks that all of it is in."""
    import pypdfium2  # type: ignore[import-untyped]

    parts: _Parts = []
    with _PDFIUM:
        try:
            document = pypdfium2.PdfDocument(file)
        except pypdfium2.PdfiumError as error:
            if "password" not in str(error):
                raise
            raise UnreadableFileError(file, "is encrypted: save it without a password") from None
        with closing(document):
            of_all, begun, section = _named(document.get_metadata_value("Title")), _sections_begun(document), ""
            texts = [page.get_textpage().get_text_range().replace("\r\n", "\n") for page in document]
            for number, text in enumerate(_without_running_lines(texts)):
                about = {**of_all, "page_label": document.get_page_label(number) or str(number + 1)}
                about |= {"section": section} if section and number not in begun else {}
                text = _CONTROLS.sub("", _HYPHEN.sub(_joined_word, text))
                text = re.sub("(?m)^#", "    #", text)  # comments of code, which nothing else tells from headings
                for path in begun.get(number, ()):
                    text, section = _with_heading(text, path), ", ".join(path)
                parts.append((text, about))
    return parts


def _named(title: str) -> dict[str, str]:
    """A title as metadata, but for one that a program made up."""
    return {"title": title.strip()} if title.strip() and not _NO_TITLE.search(title.strip()) else {}


def _without_running_lines(pages: Sequence[str]) -> list[str]:
    """Pages without the heads and feet that recur on those near them, where these have letters but for the first.

    Questions and forms that are counted as pages are, stay: what a head has before its number is a title somewhere.
    """
    left = [page.strip().split("\n") for page in pages]
    titles = {line.strip().casefold() for page in left for line in page}
    for edge in (0, -1) * _RUNNING:
        lines = [page[edge].strip() if page else "" for page in left]
        for i, line in enumerate(lines):
            near = range(max(i - _NEAR, 0), min(i + _NEAR + 1, len(lines)))
            same = [j for j in near if j != i and line and _recurs(line, lines[j], j - i)]
            if len(same) < 3 or (same[0] > i and re.search(r"[^\W\d]", line)):
                continue
            label = _LABEL.match(line)
            if not label or lines[same[0]].startswith(label[0]) or label[1].casefold() in titles:
                del left[i][edge]
    return ["\n".join(page) for page in left]


def _recurs(line: str, other: str, pages: int) -> bool:
    """Whether a line is that of some pages on, but for numbers that count pages."""
    numbers = zip(_DIGITS.findall(line), _DIGITS.findall(other), strict=False)
    return _DIGITS.sub("0", line) == _DIGITS.sub("0", other) and all(int(b) - int(a) in (0, pages) for a, b in numbers)


def _sections_begun(document: Any) -> dict[int, list[list[str]]]:
    """The sections that begin on each page, each below those that it is in."""
    begun: defaultdict[int, list[list[str]]] = defaultdict(list)
    path: list[str] = []
    for bookmark in document.get_toc():
        path[bookmark.level :] = [on_one_line(bookmark.get_title())]
        destination = bookmark.get_dest()
        if path[-1] and destination is not None and (number := destination.get_index()) is not None:
            begun[number].append([*filter(None, path)])
    return begun


def _with_heading(text: str, path: Sequence[str]) -> str:
    """A page with the lines of a section's title, and the number before these, as one heading."""
    title = r"\s*".join(map(re.escape, "".join(path[-1].split())))
    marks = "#" * min(len(path), 6)
    return re.sub(rf"(?m)^{_SECTION}{title}[ \t]*$", lambda found: f"{marks} {on_one_line(found[0])}", text, count=1)


def _joined_word(found: re.Match[str]) -> str:
    """The end of a word on the line that it began on; of "region-wide" the hyphen cannot be told from a line's."""
    return f"{'' if found[1][:1].islower() else '-'}{found[1]}\n"


_READERS = {".pdf": _pdf, ".html": _html, ".htm": _html, ".xhtml": _html, ".csv": _csv, ".tsv": _csv}
_READERS |= {".docx": _archive, ".docm": _archive, ".epub": _archive}
_READERS |= dict.fromkeys((".eml", ".mbox", ".mht", ".mhtml"), _mail)
_READERS |= {".srt": _subtitles, ".vtt": _subtitles, ".ipynb": _notebook}
_READERS |= {**dict.fromkeys(_SHEETS, _sheets), **dict.fromkeys(_SLIDES, _slides)}


_TYPOGRAPHIC = frozenset("“”„‘’«»–—…•·€£©®™°±×§µ²³½¼¾\xa0")
_LETTERS_TO_ONE = 50  # in Czech or Polish, which have these marks too, one letter in twenty is not of ASCII, or more


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode text.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, as UTF-8 if it can be, else as what it declares, else in the Japanese encoding that gives kana and
        common kanji, else as Windows' English, else in what charset-normalizer takes it for; None where nothing fits.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _try(data, "utf-32" if data.startswith(codecs.BOM_UTF32_LE) else "utf-16")
    if (text := _unmarked_utf_16(data)) is not None:
        return text
    named = [_WHATWG.get(declared.strip().lower(), declared), declared] if declared else []
    for encoding in [*(["iso2022_jp_ext"] if b"\x1b$" in data else []), "utf-8-sig", *named]:
        text = _try(data, encoding)
        if text is not None:
            return text
    for encoding in ("cp932", "euc_jp"):  # what has kana in one of them cannot be decoded from the other
        if (text := _try(data, encoding)) and _KANA.search(text) and _japanese_share(text) >= _PLAUSIBLE:
            return text
    if (text := _try(data, "cp1252")) is not None and _is_plain(text):
        return text
    guesses = from_bytes(data)
    guess = guesses.best()
    western = next((one for one in guesses if one.encoding == "cp1252"), None)
    if guess is not None and western is not None and western.coherence >= guess.coherence:
        guess = western  # of equals, short texts seem to be in some Baltic code page
    return str(guess) if guess is not None else None


def _is_plain(text: str) -> bool:
    """Whether a text is English or the like: beyond ASCII it has typographic marks, and hardly a letter."""
    foreign = [character for character in text if ord(character) > 127 and character not in _TYPOGRAPHIC]
    is_rare = len(foreign) * _LETTERS_TO_ONE <= sum(map(str.isalpha, text)) and all(map(str.isalpha, foreign))
    return is_rare and not re.search("[“”‘–—][À-ÿ]", text)  # as two bytes of Shift_JIS look


def _unmarked_utf_16(data: bytes) -> str | None:
    """The text of what is UTF-16 without a byte order mark."""
    guess = from_bytes(data, cp_isolation=["utf_16_le", "utf_16_be"]).best() if b"\0" in data else None
    return None if guess is None else str(guess)


def _japanese_share(text: str) -> float:
    """The share of a text's characters beyond ASCII that are common in Japanese.

    Common are the rows of JIS X 0208 with punctuation, letters, kana and the kanji of level 1. Half-width kana are only
    beside those: Korean and Chinese text read as Shift_JIS is full of them.
    """
    beyond = [character for character in text if ord(character) > 127]
    common = sum(map(_is_common, beyond))
    return (common + min(len(re.findall("[｡-ﾟ]", text)), 2 * common)) / len(beyond)


def _is_common(character: str) -> bool:
    try:
        row = character.encode("euc_jp")[0]
    except UnicodeEncodeError:
        return character in "①②③④⑤⑥⑦⑧⑨⑩㈱～－"  # of cp932 only, and common
    return 0xA1 <= row <= 0xA5 or 0xB0 <= row <= 0xCF


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):  # LookupError: a page declares an encoding that there is not
        return None


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(_BINARY)
        is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        # the last character may be cut in two
        is_utf_16 = is_utf_16 or any(_unmarked_utf_16(data[:end]) is not None for end in (_BINARY, -2))
        data += opened.read() if is_utf_16 or b"\0" not in data else b""
    if b"\0" in data and not is_utf_16:
        raise UnreadableFileError(file, _NO_TEXT)
    return data


def _decoded(file: Path, data: bytes, declared: str | None = None) -> str:
    text = decode(data, declared)
    if text is None or "\0" in text:
        unknown = "is text in no encoding that can be recognised: convert it to UTF-8, or leave it out"
        raise UnreadableFileError(file, unknown if text is None else _NO_TEXT)
    return text
