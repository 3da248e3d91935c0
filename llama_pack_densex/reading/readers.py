"""One file into LlamaIndex documents."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from llama_index.core import SimpleDirectoryReader
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_pack_densex.reading.encodings import decode
from llama_pack_densex.reading.files import Unreadable
from llama_pack_densex.reading.html import declared_encoding, html_to_text

FILES_ADVICE = 'install it with: pip install "llama-pack-densex[files]"'
_HEAD = 8192  # bytes that tell a binary file from text


class UnreadableFileError(ValueError):
    """A file's text cannot be had; the message names the file, the reason, and what can be done.

    Args:
        path: The file.
        reason: A phrase to follow its path.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.unreadable = Unreadable(path, reason)


def read_file(path: Path, document_id: str) -> list[Document]:
    """Read a text, Markdown, HTML or PDF file through core's `SimpleDirectoryReader`.

    Args:
        path: The file.
        document_id: The id of its document; a PDF becomes one document a page, with `#page=1` and so on after it.

    Returns:
        The documents, with the metadata and the excluded keys that `SimpleDirectoryReader` gives them.

    Raises:
        UnreadableFileError: The file is no text, is damaged, encrypted, or may not be read.
        ImportError: A package is missing; the message says which extra has it.
    """
    _require_name(path)
    suffix = path.suffix.lower()
    reader = {".pdf": PdfReader, ".html": HtmlReader, ".htm": HtmlReader, ".xhtml": HtmlReader}.get(suffix, TextReader)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnreadableFileError(path, "is no regular file")
        documents = SimpleDirectoryReader(
            input_files=[path], file_extractor={suffix: reader()}, raise_on_error=True
        ).load_data()
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ImportError:
        raise
    except Exception as error:  # SimpleDirectoryReader wraps whatever its readers raise in a plain Exception
        if isinstance(error.__cause__, UnreadableFileError):
            raise error.__cause__ from None
        if isinstance(error.__cause__, OSError):
            raise UnreadableFileError(path, f"cannot be read: {error.__cause__.strerror}") from error
        raise
    for number, document in enumerate(documents, 1):
        document.id_ = f"{document_id}#page={number}" if suffix == ".pdf" else document_id
    return documents


class TextReader(BaseReader):
    """Reads text: UTF-8, UTF-16 with a byte order mark, or a Japanese encoding."""

    def load_data(self, file: Path, extra_info: dict[str, Any] | None = None) -> list[Document]:
        """The file as one document."""
        return [Document(text=_text(file, _bytes(file)), metadata=extra_info or {})]


class HtmlReader(BaseReader):
    """Reads HTML as Markdown: headings, lists, tables, paragraphs; without scripts, styles and navigation."""

    def load_data(self, file: Path, extra_info: dict[str, Any] | None = None) -> list[Document]:
        """The file as one document; the page's title goes into its metadata."""
        try:
            import bs4  # noqa: F401  # said here, where the file is known
        except ImportError as error:
            raise ImportError(f"reading {file} needs the package beautifulsoup4: {FILES_ADVICE}") from error
        data = _bytes(file)
        page = html_to_text(_text(file, data, declared_encoding(data)))
        title = {"title": page.title} if page.title else {}
        return [Document(text=page.text, metadata={**(extra_info or {}), **title})]


class PdfReader(BaseReader):
    """Reads the text of a PDF, page by page."""

    def load_data(self, file: Path, extra_info: dict[str, Any] | None = None) -> list[Document]:
        """The pages, each with its label as "page_label" in its metadata."""
        try:
            import pypdf
        except ImportError as error:
            raise ImportError(f"reading {file} needs the package pypdf: {FILES_ADVICE}") from error
        try:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableFileError(file, "is encrypted: save it without a password")
            return [
                Document(text=_encodable(page.extract_text()), metadata={**(extra_info or {}), "page_label": label})
                for page, label in zip(reader.pages, reader.page_labels, strict=True)
            ]
        except (UnreadableFileError, OSError):
            raise
        except Exception as error:  # a damaged PDF fails anywhere in pypdf, with any kind of error
            raise UnreadableFileError(
                file, f"cannot be read as a PDF ({type(error).__name__}: {error}): it may be damaged; save it anew"
            ) from error


def _bytes(file: Path) -> bytes:
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
        utf_16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
        if b"\0" in head and not utf_16:
            raise UnreadableFileError(
                file, "is no text: only text, Markdown, HTML and PDF files can be read; convert it, or leave it out"
            )
        return head + stream.read()


def _text(file: Path, data: bytes, declared: str | None = None) -> str:
    text = decode(data, declared)
    if text is None:
        raise UnreadableFileError(
            file, "is neither UTF-8 nor Shift_JIS, EUC-JP or JIS text: convert it to UTF-8, or leave it out"
        )
    if "\0" in text:
        raise UnreadableFileError(file, "is no text: it has NUL characters; mend it, or leave it out")
    return text


def _require_name(path: Path) -> None:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnreadableFileError(path, "has a name that is not UTF-8: rename it") from error


def _encodable(text: str) -> str:
    """The text with half characters (lone surrogates), which broken fonts leave in PDFs, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
