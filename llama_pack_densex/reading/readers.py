"""One file into LlamaIndex documents."""

from __future__ import annotations

import codecs
import json
import logging
import posixpath
import re
import threading
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from email import message_from_bytes
from email.policy import default
from html import escape
from io import BytesIO
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import fromstring
from zipfile import ZipFile

import yaml
from charset_normalizer import from_bytes
from llama_index.core.readers.file.base import default_file_metadata_func
from llama_index.core.schema import Document

from llama_pack_densex.reading.files import Found, UnreadableFileError
from llama_pack_densex.text.tokens import on_one_line, strip_surrogates

logger = logging.getLogger(__name__)

_WORD, _SLIDES, _SHEETS = (".docx", ".docm"), (".pptx", ".pptm"), (".xlsx", ".xlsm")
_PACKED = (*_WORD, *_SLIDES, *_SHEETS, ".epub")
_PAGED = (*_SLIDES, *_SHEETS, ".pdf")
_UNSEEN = ["file_name", "file_type", "file_size", "creation_date", "last_modified_date", "last_accessed_date"]
_MARKUP = ("xml", "html", "htm")
_MOST_UNPACKED = 2**28  # bytes of markup: some kilobytes unpack to gigabytes
_MOST_MERGED = 10**6  # cells, of each of which openpyxl makes an object
_MERGED = re.compile(rb"mergeCell\s+ref=[\"']([^\"']+)")
_WHATWG = {  # what browsers take these labels for: pages say the first and are the second
    "iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030",
    "euc-kr": "cp949", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932",
}  # fmt: skip
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n((?:.*\n)*?)(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)")
_SAMPLE = 10_000  # characters by which a file's encoding is told, and what parts the cells of CSV
_BINARY = 8192  # bytes that tell a large binary file from text before it is read
_NO_TEXT = (
    "is no text (it has NUL characters): only text, Markdown, HTML, PDF, .docx, .xlsx, .pptx and EPUB can be read; "
    "convert it, or leave it out"
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BEYOND = re.compile(r"[^\x00-\x7f]")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_PLAUSIBLE = 0.8  # share of common characters; what is right has nearly all, what is wrong seldom half


_Files = Iterable[tuple[Path, str]]


def read_files(found: Found, track: Callable[[_Files], _Files] = iter) -> Iterator[Document]:
    """Read the files that were found, one after the other; those that cannot be read join what was unreadable.

    Args:
        found: What `find_files` found.
        track: Goes through the files, with their ids, and may show how far it is.
    """
    for path, document_id in track(found.files.items()):
        try:
            yield from read_file(path, document_id)
        except UnreadableFileError as error:
            found.unreadable.append(error)


def read_file(path: Path, document_id: str) -> list[Document]:
    """Read a file: text, Markdown, HTML, PDF, CSV, Office files, EPUB, mail.

    Args:
        path: The file.
        document_id: The id of its document; a PDF becomes one document a page, with `#page=1` and so on after it, and
            slides are counted like pages. A sheet's name is its page.

    Returns:
        The documents, with the metadata and the excluded keys that core's `SimpleDirectoryReader` gives them, and those
        of a text's YAML front matter.

    Raises:
        UnreadableFileError: The file is no text, is damaged, encrypted, or may not be read; or a package is missing,
            and the message says what to install.
    """
    suffix = path.suffix.lower()
    try:
        str(path).encode("utf-8")
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UnreadableFileError(path, "is no regular file")
        if suffix in _PACKED:
            _check_archive(path)
        parts = _READERS.get(suffix, _text)(path)
        of_file = {**default_file_metadata_func(str(path)), "file_name": unicodedata.normalize("NFC", path.name)}
    except UnreadableFileError:
        raise
    except UnicodeEncodeError as error:
        raise UnreadableFileError(path, "has a name that is not UTF-8: rename it") from error
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ImportError as error:
        install = 'install it with: pip install "llama-pack-densex[files]"'
        raise UnreadableFileError(path, f"needs more packages ({error}): {install}") from error
    except Exception as error:  # what is damaged fails anywhere in a reader, with any kind of error
        wrong = type(error).__name__  # not its message, which may quote the text
        advice = "it may be damaged or encrypted; save it anew, without a password"
        raise UnreadableFileError(path, f"cannot be read ({wrong}): {advice}") from error
    documents = []
    for number, (text, about) in enumerate(parts, 1):
        document = Document(text=text, metadata={**of_file, **about, **of_file})
        document.excluded_embed_metadata_keys, document.excluded_llm_metadata_keys = [*_UNSEEN], [*_UNSEEN]
        page = about["page_label"] if suffix in _SHEETS else number
        document.id_ = f"{document_id}#page={page}" if suffix in _PAGED else document_id
        documents.append(document)
    return documents


_Parts = list[tuple[str, dict[str, Any]]]


def _text(file: Path) -> _Parts:
    """UTF-8, UTF-16, a Japanese encoding, or what it can be told to be; without front matter."""
    text = _decoded(file, _bytes(file))
    if text.startswith("{\\rtf") or file.suffix.lower() == ".mbox":
        raise UnreadableFileError(file, "is RTF or a mailbox, which cannot be read: save it as .docx, .eml or text")
    if found := _FRONT_MATTER.match(text):
        try:
            if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(found[1])):
                raise ValueError("it has aliases, of which some lines make gigabytes")
            metadata = json.loads(json.dumps(yaml.safe_load(found[1]), default=_plain), parse_constant=str)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            logger.warning("%s: its front matter is no YAML (%s) and stays in the text", file, type(error).__name__)
        else:
            if isinstance(metadata, dict) or not found[1].strip():  # else it is text between two rules
                return [(text[found.end() :], metadata or {})]
    return [(text, {})]


def _plain(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, set) else str(value)  # in one order in every process


def _csv(file: Path) -> _Parts:
    """A small table for each row."""
    text = _decoded(file, _bytes(file))
    lines = re.sub('"[^"]*"', "", text.strip()[:_SAMPLE]).split("\n")
    delimiter = max(",;\t|", key=lambda one: (sum(one in line for line in lines), lines[0].count(one)))
    rows: list[list[str]] = [[]]
    # not by csv, whose cells may have 131,072 characters, more only where that is set for the whole process
    for cell in re.finditer(rf'("[^"]*(?:""[^"]*)*"|)([^{delimiter}\r\n]*)([{delimiter}]|\r?\n|\r|\Z)', text):
        rows[-1].append(cell[1][1:-1].replace('""', '"') + cell[2])
        if cell[3] != delimiter:
            rows.append([])
    return [(_rows_text(rows), {})]


# Excel's formats of dates that were typed in Japanese: their numbers stand alone, and openpyxl does not know them.
_JAPANESE_DATES = {*range(27, 37), *range(50, 59)}


def _sheets(file: Path) -> _Parts:
    """The sheets of an Excel file, each below its name, with that as its page; each row of a merged cell says it."""
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    with warnings.catch_warnings():  # of what would not be written again
        warnings.simplefilter("ignore")
        book = load_workbook(file, data_only=True)
    parts: _Parts = []
    for sheet in book.worksheets:
        # not by its rows and columns, since of a cell that is far away there are as many as Excel has
        cells = {place: _said(cell) for place, cell in sheet._cells.items() if cell.value is not None}
        own, columns = {number for number, _ in cells}, sorted({column for _, column in cells})
        for span in sheet.merged_cells.ranges:
            first = cells.get((span.min_row, span.min_col), "")
            cells |= {(number, span.min_col): first for number in range(span.min_row, span.max_row + 1)}
        empty = {number + 1 for number in own} - {number for number, _ in cells}
        rows = ([cells.get((number, column), "") for column in columns] for number in sorted(own | empty))
        text = _rows_text(rows)
        parts.append((text and f"# {sheet.title}\n\n{text}", {"page_label": sheet.title}))
    return parts


def _said(cell: Any) -> str:
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    value = cell.value
    if isinstance(value, int | float) and cell._style.numFmtId in _JAPANESE_DATES:
        value = from_excel(value, cell.parent.parent.epoch)
    if isinstance(value, int | float) and "%" in cell.number_format:
        return f"{100 * value:.15g}%"
    return f"{value:.15g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")  # of a date


def _rows_text(rows: Iterable[Sequence[str]]) -> str:
    """A small table of names and values for each row, so that it can be understood alone and is never cut.

    Names are in the first row that is long enough, and anew below an empty row; titles and notes are lines.
    """
    listed = [[on_one_line(cell).replace("|", r"\|") for cell in row] for row in rows]
    most = max((len({*row} - {""}) for row in listed), default=0)
    names, blocks, unused, is_apart = list[str](), list[str](), False, False
    for row, below in pairwise([*listed, []]):
        said, both = [*filter(None, row)], [*zip_longest(names, row, fillvalue="")]
        begins = is_apart and _names_others(row, below) if names else 2 * len({*said}) > most
        if begins and len(said) > 1:
            blocks.append(" ".join(filter(None, names)) * unused)
            names, unused = row, True
        elif unused and any(a == b != "" for a, b in both) and any(b and not a for a, b in both):
            names = [" ".join(dict.fromkeys(filter(None, pair))) for pair in both]  # in two rows, partly merged
        elif names and said and (len(said) > 1 or not row[0]):
            blocks.append(_row_table(names, row))
            unused = False
        else:
            blocks.append(" ".join(said))
        is_apart = not said or (is_apart and len(said) == 1)
    return "\n\n\n".join(filter(None, [*blocks, " ".join(filter(None, names)) * unused]))


def _names_others(row: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row below an empty one names columns: it has no figures, and the next has."""
    return not re.search(r"\d", "".join(row)) and bool(re.search(r"\d", "".join(below)))


def _row_table(names: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row below one another, each beside its column's name."""
    first, *others = [f"| {name} | {cell} |" for name, cell in zip_longest(names, row, fillvalue="") if cell]
    return "\n".join([first, "| --- | --- |", *others])


def _html(file: Path) -> _Parts:
    """HTML as Markdown, without scripts, styles and navigation; the page's title is metadata."""
    title, text = _page(file, _bytes(file))
    return [(text, {"title": title} if title else {})]


def _page(file: Path, data: bytes) -> tuple[str, str]:
    """The title and the text of a page, in the encoding that it names."""
    from llama_pack_densex.reading.html import declared_encoding, html_to_text

    return html_to_text(_decoded(file, data, declared_encoding(data)))


def _check_archive(file: Path) -> None:
    """Refuse what would take gigabytes and minutes to read."""
    with ZipFile(file) as archive:
        parts = archive.infolist()
        large = (one for one in parts if one.filename.endswith(_MARKUP) or one.file_size > 100 * one.compress_size)
        if sum(one.file_size for one in large) > _MOST_UNPACKED:
            raise UnreadableFileError(file, "unpacks to more than 256 MB of markup: divide it, or save it as text")
        if file.suffix.lower() in _SHEETS:
            from openpyxl.utils import range_boundaries  # type: ignore[import-untyped]

            worksheets = (archive.read(one) for one in parts if "/worksheets/" in one.filename)
            spans = (range_boundaries(span.decode()) for sheet in worksheets for span in _MERGED.findall(sheet))
            if sum((right - left + 1) * (low - high + 1) for left, high, right, low in spans) > _MOST_MERGED:
                raise UnreadableFileError(file, "has whole columns merged: unmerge them, or save it as CSV")


def _book(file: Path) -> _Parts:
    """An EPUB as one text: its pages in the order of reading, but for its contents."""
    with ZipFile(file) as archive:
        container = fromstring(archive.read("META-INF/container.xml"))
        place = container.find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
        package = fromstring(archive.read(place))
        listed = [item for item in package.iterfind("{*}manifest/{*}item") if "nav" not in item.get("properties", "")]
        names = {item.get("id"): item.get("href") for item in listed if "html" in item.get("media-type", "html")}
        read = filter(None, (names.get(one.get("idref")) for one in package.iterfind("{*}spine/{*}itemref")))
        pages = [archive.read(posixpath.normpath(f"{place}/../{unquote(name)}")) for name in read]
    texts = [_page(file, page)[1] for page in pages]
    return [("\n".join(filter(None, texts)), _named(package.findtext("{*}metadata/{*}title") or ""))]


# Headings beside those that Mammoth knows, and tables of contents, which are left out.
_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name^='toc '] => !\np[style-name='table of figures'] => !"
# Readings above kanji, and the marks of elements that Mammoth would leave out together with the text in them.
_UNKNOWN = re.compile(rb"(?s)<w:rt>(?:(?!<w:rt>).)*?</w:rt>|</?(?:w:(?:ruby|rubyBase|fldSimple|bdo|dir)\b|m:)[^>]*>")
_RUN = b"<w:r><w:t>%b</w:t></w:r>"
# The marks of notes, and those of links, which tell menus in a page of the web.
_NOTE_OR_LINK = re.compile(r'<a href="#(?:foot|end)note-[^>]*>[^<]*</a>|</?a\b[^>]*>')


def _word(file: Path) -> _Parts:
    """A Word document, with its notes at its end, and without the numbers of lists, which Mammoth counts otherwise."""
    import mammoth

    from llama_pack_densex.reading.html import html_to_text

    mended = BytesIO()
    with ZipFile(file) as archive, ZipFile(mended, "w") as copy:
        parts = {name: archive.read(name) for name in archive.namelist() if name.endswith((".xml", ".rels"))}
        for name, part in parts.items():
            # equations as text, in which powers and fractions can still be told
            part = part.replace(b"<m:sup>", _RUN % b"^").replace(b"<m:den>", _RUN % b"/")
            copy.writestr(name, _UNKNOWN.sub(b"", re.sub(rb"<(/?)m:([rt])(?=[ >])", rb"<\1w:\2", part)))
    html = mammoth.convert_to_html(mended, style_map=_STYLES, convert_image=lambda image: []).value
    about = fromstring(parts.get("docProps/core.xml", b"<none/>"))
    text = html_to_text(_NOTE_OR_LINK.sub("", html).replace("ol>", "ul>"))[1]
    return [(text, _named(about.findtext("{*}title") or ""))]


def _slides(file: Path) -> _Parts:
    """The slides of a presentation, each with its notes."""
    from pptx import Presentation

    from llama_pack_densex.reading.html import html_to_text

    show = Presentation(str(file))
    of_all, parts = _named(show.core_properties.title), []
    for number, slide in enumerate(show.slides, 1):
        shapes = [*slide.shapes, *(slide.notes_slide.shapes if slide.has_notes_slide else [])]
        parts.append((html_to_text("".join(_shown(shapes)))[1], {**of_all, "page_label": str(number)}))
    return parts


_ON_EACH_SLIDE = ("SLIDE_NUMBER", "DATE", "FOOTER", "HEADER")


def _shown(shapes: Iterable[Any]) -> Iterator[str]:
    """The text and the tables of shapes, as HTML, without what is on each slide."""
    for shape in shapes:
        kind = shape.placeholder_format.type.name if shape.is_placeholder else ""
        if hasattr(shape, "shapes"):  # a group
            yield from _shown(shape.shapes)
        elif shape.has_table:
            rows = ("".join(map(_cell, row.cells)) for row in shape.table.rows)
            yield f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>"
        elif shape.has_text_frame and kind not in _ON_EACH_SLIDE:
            tag = "h1" if kind.endswith("TITLE") and kind != "SUBTITLE" else "p"
            yield from (f"<{tag}>{escape(one.text)}</{tag}>" for one in shape.text_frame.paragraphs)


def _cell(cell: Any) -> str:
    spans = f'rowspan="{cell.span_height}" colspan="{cell.span_width}"'
    return "" if cell.is_spanned else f"<td {spans}>{escape(cell.text)}</td>"


def _mail(file: Path) -> _Parts:
    """A message with its subject for a title, or a page that a browser saved as one."""
    from llama_pack_densex.reading.html import html_to_text

    message = message_from_bytes(file.read_bytes(), policy=default)
    about = {key: strip_surrogates(on_one_line(str(message[key] or ""))) for key in ("from", "to", "date")}
    title = strip_surrogates(on_one_line(str(message["subject"] or "")))
    text, body = "", message.get_body(("plain", "html"))
    if body is not None and isinstance(content := body.get_payload(decode=True), bytes):
        text = _decoded(file, content, body.get_content_charset())
        text = html_to_text(text)[1] if body.get_content_subtype() == "html" else text
    lines = [f"{key.capitalize()}: {value}" for key, value in about.items() if value]
    known = {key: value for key, value in {**about, "title": title}.items() if value}
    return [("\n\n".join(filter(None, [title and f"# {title}", "\n".join(lines), text])), known)]


def _subtitles(file: Path) -> _Parts:
    """What is said, and by whom where that is told, in lines without the times."""
    text = re.sub(r"<v[.\w]* ([^<>]*)>", r"\1: ", _decoded(file, _bytes(file)))
    lines = re.sub(r"(?m)<[^<>]*>|^(?:WEBVTT.*|(?:\d+[^\S\n]*\n)?.* --> .*)$", "", text).splitlines()
    return [("\n".join(filter(None, lines)), {})]


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
    with _PDFIUM, closing(pypdfium2.PdfDocument(file)) as document:
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


_READERS = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html), **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys(_WORD, _word), **dict.fromkeys(_SLIDES, _slides), **dict.fromkeys(_SHEETS, _sheets),
    **dict.fromkeys((".eml", ".mht", ".mhtml"), _mail), **dict.fromkeys((".srt", ".vtt"), _subtitles),
    ".pdf": _pdf, ".epub": _book, ".ipynb": _notebook,
}  # fmt: skip


_TYPOGRAPHIC = frozenset("“”„‘’«»–—…•·€£©®™°±×§µ²³½¼¾\xa0")
_LETTERS_TO_ONE = 50  # in Czech or Polish, which have these marks too, one letter in twenty is not of ASCII, or more


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode text.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, as UTF-8 if it can be, else as what it declares, else as UTF-8, in the Japanese encoding that gives
        kana and common kanji, or as Windows' English, with "�" for what cannot be decoded, where that is little, else
        in what charset-normalizer takes it for; None where nothing fits.
    """
    if data.startswith(_UTF_16):
        return _try(data, "utf-32" if data.startswith(codecs.BOM_UTF32_LE) else "utf-16")
    named = [_WHATWG.get(declared.strip().lower(), declared)] if declared else []
    for encoding in [*(["iso2022_jp_ext"] if b"\x1b$" in data else []), "utf-8-sig", *named]:
        if (text := _try(data, encoding)) is not None:
            return text
    # some bytes may be wrong, as where a file was cut off; what has kana in a Japanese one has none in the other
    for encoding, fits in (("utf-8", bool), ("cp932", _is_japanese), ("euc_jp", _is_japanese), ("cp1252", _is_plain)):
        text = data.decode(encoding, "replace")
        if 10 * text.count("\ufffd") <= len(_BEYOND.findall(text)) and fits(text):
            return text
    guesses = [*from_bytes(data)]
    western = (one for one in guesses if one.encoding == "cp1252" and one.coherence >= guesses[0].coherence)
    guess = next(western, guesses[0] if guesses else None)  # of equals, short texts seem to be in some Baltic code page
    return None if guess is None else str(guess)


def _is_plain(text: str) -> bool:
    """Whether a text is English or the like: beyond ASCII it has typographic marks, and hardly a letter."""
    foreign = [character for character in text if ord(character) > 127 and character not in _TYPOGRAPHIC]
    is_rare = len(foreign) * _LETTERS_TO_ONE <= sum(map(str.isalpha, text)) and all(map(str.isalpha, foreign))
    return is_rare and not re.search("[“”‘–—][À-ÿ]", text)  # as two bytes of Shift_JIS look


def _is_japanese(text: str) -> bool:
    """Whether a text has kana, and most of its characters beyond ASCII are common in Japanese.

    Common are the rows of JIS X 0208 with punctuation, letters, kana and the kanji of level 1. Half-width kana are only
    beside those: Korean and Chinese text read as Shift_JIS is full of them.
    """
    beyond = _BEYOND.findall(text)[:_SAMPLE]
    common = sum(map(_is_common, beyond))
    plausible = common + min(len(re.findall("[｡-ﾟ]", "".join(beyond))), 2 * common)
    return bool(_KANA.search(text)) and plausible >= _PLAUSIBLE * len(beyond)


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
        if b"\0" in data and not data.startswith(_UTF_16):
            raise UnreadableFileError(file, _NO_TEXT)
        return data + opened.read()


def _decoded(file: Path, data: bytes, declared: str | None = None) -> str:
    text = decode(data, declared)
    if text is None or "\0" in text:
        unknown = "is text in no encoding that can be recognised: convert it to UTF-8, or leave it out"
        raise UnreadableFileError(file, unknown if text is None else _NO_TEXT)
    if "\ufffd" in text and "\ufffd".encode() not in data:
        logger.warning('%s has bytes that are no text in its encoding: "\ufffd" stands for them', file)
    return text
