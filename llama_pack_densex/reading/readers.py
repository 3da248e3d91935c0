"""One file into LlamaIndex documents."""

from __future__ import annotations

import json
import logging
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import fromstring
from zipfile import ZipFile

import yaml
from llama_index.core.readers.file.base import default_file_metadata_func
from llama_index.core.schema import Document

from llama_pack_densex.reading.encoding import decode_file, read_bytes
from llama_pack_densex.reading.files import Found, UnreadableFileError
from llama_pack_densex.reading.office import check_archive, read_slides, word_to_text
from llama_pack_densex.reading.pdf import read_pages
from llama_pack_densex.reading.sheets import csv_to_text, read_workbook
from llama_pack_densex.text.tokens import on_one_line, strip_surrogates

logger = logging.getLogger(__name__)

_WORD = (".docx", ".docm")
_SLIDES = (".pptx", ".pptm")
_SHEETS = (".xlsx", ".xlsm")
_PACKED = (*_WORD, *_SLIDES, *_SHEETS, ".epub")
_PAGED = (*_SLIDES, *_SHEETS, ".pdf")
_UNSEEN = [
    "file_name",
    "file_type",
    "file_size",
    "creation_date",
    "last_modified_date",
    "last_accessed_date",
]

_Files = Iterable[tuple[Path, str]]
_Parts = list[tuple[str, dict[str, Any]]]
"""The texts of a file's documents, with their metadata."""


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
        parts = _read_parts(path)
        of_file = {
            **default_file_metadata_func(str(path)),
            "file_name": unicodedata.normalize("NFC", path.name),
        }
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
    documents: list[Document] = []
    for number, (text, metadata) in enumerate(parts, 1):
        document = Document(text=text, metadata={**of_file, **metadata, **of_file})
        document.excluded_embed_metadata_keys = [*_UNSEEN]
        document.excluded_llm_metadata_keys = [*_UNSEEN]
        page = metadata["page_label"] if suffix in _SHEETS else number
        document.id_ = f"{document_id}#page={page}" if suffix in _PAGED else document_id
        documents.append(document)
    return documents


def _read_parts(path: Path) -> _Parts:
    str(path).encode("utf-8")
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UnreadableFileError(path, "is no regular file")
    suffix = path.suffix.lower()
    if suffix in _PACKED:
        check_archive(path)
    return _READERS.get(suffix, _text)(path)


_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n((?:.*\n)*?)(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)")


def _text(file: Path) -> _Parts:
    """A text without its front matter, which is metadata."""
    text = decode_file(file)
    if text.startswith("{\\rtf") or file.suffix.lower() == ".mbox":
        raise UnreadableFileError(
            file,
            "is RTF or a mailbox, which cannot be read: save it as .docx, .eml or text",
        )
    front = _FRONT_MATTER.match(text)
    if front is None:
        return [(text, {})]
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(front[1])):
            raise ValueError("it has aliases, of which some lines make gigabytes")
        metadata = json.loads(json.dumps(yaml.safe_load(front[1]), default=_plain), parse_constant=str)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        logger.warning(
            "%s: its front matter is no YAML (%s) and stays in the text",
            file,
            type(error).__name__,
        )
        return [(text, {})]
    if isinstance(metadata, dict) or not front[1].strip():
        return [(text[front.end() :], metadata or {})]
    return [(text, {})]  # it is text between two rules


def _plain(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, set) else str(value)  # in one order in every process


def _csv(file: Path) -> _Parts:
    return [(csv_to_text(decode_file(file)), {})]


def _sheets(file: Path) -> _Parts:
    """The sheets of an Excel file, each below its name, with that as its page."""
    sheets = read_workbook(file)
    return [(text and f"# {title}\n\n{text}", {"page_label": title}) for title, text in sheets]


def _html(file: Path) -> _Parts:
    """HTML as Markdown, without scripts, styles and navigation; the page's title is metadata."""
    title, text = _page(file, read_bytes(file))
    return [(text, {"title": title} if title else {})]


def _page(file: Path, data: bytes) -> tuple[str, str]:
    """The title and the text of a page, in the encoding that it names."""
    from llama_pack_densex.reading.html import declared_encoding, html_to_text

    return html_to_text(decode_file(file, data, declared_encoding(data)))


def _book(file: Path) -> _Parts:
    """An EPUB as one text: its pages in the order of reading, but for its contents."""
    with ZipFile(file) as archive:
        container = fromstring(archive.read("META-INF/container.xml"))
        place = container.find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
        package = fromstring(archive.read(place))
        items = [item for item in package.iterfind("{*}manifest/{*}item") if "nav" not in item.get("properties", "")]
        names = {item.get("id"): item.get("href") for item in items if "html" in item.get("media-type", "html")}
        order = [names.get(item.get("idref")) for item in package.iterfind("{*}spine/{*}itemref")]
        pages = [archive.read(posixpath.normpath(f"{place}/../{unquote(name)}")) for name in order if name]
    texts = [_page(file, page)[1] for page in pages]
    return [
        (
            "\n".join(filter(None, texts)),
            _titled(package.findtext("{*}metadata/{*}title") or ""),
        )
    ]


def _word(file: Path) -> _Parts:
    title, text = word_to_text(file)
    return [(text, _titled(title))]


def _slides(file: Path) -> _Parts:
    title, slides = read_slides(file)
    return [(text, {**_titled(title), "page_label": str(number)}) for number, text in enumerate(slides, 1)]


def _pdf(file: Path) -> _Parts:
    title, pages = read_pages(file)
    return [(text, {**_titled(title), **metadata}) for text, metadata in pages]


# Of a file's name, for one.
_NO_TITLE = re.compile(r"(?i)^(?:microsoft |powerpoint |untitled|無題|名称未設定)|\.\w{2,5}$")


def _titled(title: str) -> dict[str, str]:
    """A title as metadata, but for one that a program made up."""
    title = title.strip()
    return {"title": title} if title and not _NO_TITLE.search(title) else {}


def _mail(file: Path) -> _Parts:
    """A message with its subject for a title, or a page that a browser saved as one."""
    from llama_pack_densex.reading.html import html_to_text

    message = message_from_bytes(file.read_bytes(), policy=default)
    header = {key: strip_surrogates(on_one_line(str(message[key] or ""))) for key in ("from", "to", "date", "subject")}
    text = ""
    body = message.get_body(("plain", "html"))
    if body is not None and isinstance(content := body.get_payload(decode=True), bytes):
        text = decode_file(file, content, body.get_content_charset())
        text = html_to_text(text)[1] if body.get_content_subtype() == "html" else text
    title = header.pop("subject")
    lines = "\n".join(f"{key.capitalize()}: {value}" for key, value in header.items() if value)
    metadata = {key: value for key, value in {**header, "title": title}.items() if value}
    return [("\n\n".join(filter(None, [title and f"# {title}", lines, text])), metadata)]


def _subtitles(file: Path) -> _Parts:
    """What is said, and by whom where that is marked, in lines without the times."""
    text = re.sub(r"<v[.\w]* ([^<>]*)>", r"\1: ", decode_file(file))
    lines = re.sub(r"(?m)<[^<>]*>|^(?:WEBVTT.*|(?:\d+[^\S\n]*\n)?.* --> .*)$", "", text).splitlines()
    return [("\n".join(filter(None, lines)), {})]


def _notebook(file: Path) -> _Parts:
    """The cells of a Jupyter notebook, without their outputs."""
    cells = json.loads(decode_file(file))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    return [
        (
            "\n\n".join(f"```\n{text}\n```" if is_code else text for text, is_code in texts),
            {},
        )
    ]


_READERS = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys(_WORD, _word),
    **dict.fromkeys(_SLIDES, _slides),
    **dict.fromkeys(_SHEETS, _sheets),
    **dict.fromkeys((".eml", ".mht", ".mhtml"), _mail),
    **dict.fromkeys((".srt", ".vtt"), _subtitles),
    ".pdf": _pdf,
    ".epub": _book,
    ".ipynb": _notebook,
}
