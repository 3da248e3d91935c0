"""Reads a file into LlamaIndex documents, with the reader for its kind."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile, ZipInfo, is_zipfile

from llama_index.core.readers.file.base import default_file_metadata_func
from llama_index.core.schema import Document

from llama_pack_densex.reading.files import FoundFiles, Part, UnreadableFileError, by_word
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

# The functions that read files, by suffix; imported late, since most need packages of the extra `files`.
READERS = {
    ".html .htm .xhtml": "html.read_page",
    ".epub": "html.read_book",
    ".pdf": "pdf.read_pages",
    ".docx .docm .dotx .dotm": "word.read_word",
    ".pptx .pptm .ppsx .ppsm .potx .potm": "slides.read_slides",
    ".xlsx .xlsm .xltx .xltm": "sheets.read_workbook",
    ".csv .tsv": "sheets.read_csv",
    ".json .jsonl .ndjson": "data.read_json",
    ".yaml .yml": "data.read_yaml",
    ".eml .mht .mhtml": "conversations.read_mail",
    ".mbox": "conversations.read_mailbox",
    ".srt .vtt": "conversations.read_subtitles",
    ".ipynb": "plain.read_notebook",
    ".mdx .adoc .asciidoc .org .wiki .mediawiki": "notations.read_notation",
    ".rst .rest": "restructuredtext.read_restructuredtext",
}
_UNSEEN = [
    "file_name",
    "file_type",
    "file_size",
    "creation_date",
    "last_modified_date",
    "last_accessed_date",
]


def read_files(files: FoundFiles) -> Iterator[Document]:
    """Read the files that were found, one by one; errors are added to `files.unreadable`.

    Args:
        files: What `find_files` returns.
    """
    for path, document_id in files.files.items():
        try:
            yield from read_file(path, document_id)
        except UnreadableFileError as error:
            files.unreadable.append(error)


def read_file(path: Path, document_id: str) -> list[Document]:
    """Read a file: text, Markdown, HTML, PDF, CSV, JSON, YAML, Office files, EPUB, mail.

    Args:
        path: The file.
        document_id: The id of its document. A PDF becomes one document per page, slides one per slide, with
            `#page=1` and so on appended to the id; a sheet of a workbook has its name as its page.

    Returns:
        The documents, with the metadata and excluded keys that core's `SimpleDirectoryReader` sets, and the
        metadata of YAML front matter.

    Raises:
        UnreadableFileError: The file is not text, is damaged or encrypted, or may not be read; or a package
            is missing, in which case the message says what to install.
    """
    try:
        parts = list(_read_parts(path))
        of_file = default_file_metadata_func(str(path))
    except UnreadableFileError:
        raise
    except UnicodeEncodeError as error:
        raise UnreadableFileError(path, "has a name that is not UTF-8: rename it") from error
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ImportError as error:
        install = 'install them with: pip install "llama-pack-densex[files]"'
        raise UnreadableFileError(path, f"needs more packages ({error}): {install}") from error
    except Exception as error:  # a damaged file can raise any error anywhere in a reader
        kind = type(error).__name__  # the message might quote the text
        advice = "it may be damaged or encrypted; save it again, without a password"
        raise UnreadableFileError(path, f"cannot be read ({kind}): {advice}") from error
    of_file["file_name"] = unicodedata.normalize("NFC", path.name)
    return [
        Document(
            id_=f"{document_id}#page={part.page}" if part.page else document_id,
            text=part.text,
            metadata={**of_file, **_label_of(part), **part.metadata, **of_file},
            excluded_embed_metadata_keys=[*_UNSEEN],
            excluded_llm_metadata_keys=[*_UNSEEN],
        )
        for part in parts
    ]


def _label_of(part: Part) -> dict[str, str]:
    """Return the metadata that tells the parts of a file apart, also in the index."""
    return {"page_label": part.page} if part.page else {}


def _read_parts(path: Path) -> Iterator[Part]:
    str(path).encode("utf-8")
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise UnreadableFileError(path, "is not a regular file")
    if is_zipfile(path):
        with ZipFile(path) as archive:
            contents = archive.infolist()
        _check_size(path, contents)
        _warn_of_unread(path, contents)
    reader = by_word(READERS).get(path.suffix.lower(), "plain.read_text")
    module, function = reader.split(".")
    reading = import_module(f"llama_pack_densex.reading.{module}")
    yield from getattr(reading, function)(path)


# Archives

_MARKUP = ("xml", "html", "htm")
_MOST_UNPACKED = 2**28  # bytes of markup: a few kilobytes can unpack to gigabytes


def _check_size(file: Path, contents: Sequence[ZipInfo]) -> None:
    """Raise an error for an archive that would take gigabytes and minutes to read."""
    unpacked = 0
    for part in contents:
        if part.filename.endswith(_MARKUP) or part.file_size > 100 * part.compress_size:
            unpacked += part.file_size
    if unpacked > _MOST_UNPACKED:
        reason = "unpacks to more than 256 MB of markup: divide it, or save it as text"
        raise UnreadableFileError(file, reason)


# Parts of Office files that no reader supports, by the patterns of their names.
_UNREAD = {
    r"xl/charts/|(?:word|ppt)/charts/chartEx": "charts",
    r"xl/diagrams/": "diagrams",
    r"(?:word|xl|ppt)/embeddings/": "embedded files",
    r"(?:word|xl|ppt)/comments": "comments",
    r"xl/drawings/drawing": "drawings and text boxes",
}


def _warn_of_unread(file: Path, contents: Sequence[ZipInfo]) -> None:
    names = "\n".join(part.filename for part in contents)
    kinds = [kind for place, kind in _UNREAD.items() if re.search(f"(?m)^{place}", names)]
    if kinds:
        logger.warning("%s: not read: its %s", file, ", ".join(kinds))
