"""Finds the files to read, and gives their documents ids."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from io import BytesIO
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zipfile import ZipFile

from pygments.lexers import find_lexer_class_for_filename

from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.text.tokens import words

# The lexers of Pygments whose files are prose; files of all others are code or data. Pygments takes .jp for
# JMESPath, and .mhtml for Mason.
_PROSE = words("text markdown restructuredtext html tex org email groff jmespath mason")
# Formats of data that some versions of Pygments do not know.
_DATA = words(".csv .tsv .jsonl .ndjson .ipynb .geojson .lock .map .conf .svelte")
_UNREAD = ("image/", "audio/", "video/", "font/")  # a saved page may have many of these
# Files that programs leave beside documents: locks, backups, drafts, unfinished downloads, thumbnails.
_LEFT_BESIDE = re.compile(
    r"~\$.+|#.+#|.+~|thumbs\.db|ehthumbs.*\.db|desktop\.ini|icon\r|.+___jb_(?:tmp|old)___|"
    r".+\.(?:tmp|temp|bak|backup|orig|rej|sw[k-p]|save|crdownload|opdownload|download|part|partial|filepart|"
    r"wbk|xlk|asd|xar|\$\w+|lck|idlk|dwl2?|laccdb)",
    re.IGNORECASE,
)
_BINS = (
    "$RECYCLE.BIN",
    "System Volume Information",
    "#recycle",
    "@eaDir",
    "lost+found",
    "__MACOSX",
)


class UnreadableFileError(ValueError):
    """A file cannot be read, or a folder cannot be listed; the message also says what to do.

    Args:
        path: The file.
        reason: The message after the path.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class Part(NamedTuple):
    """The text of one of a file's documents.

    Args:
        text: The text.
        metadata: The metadata that the file has for it. Its `page_label` is what citations show in place of
            `page`.
        page: The page, slide or sheet, which is appended to the document's id; empty if the file is one
            document.
    """

    text: str
    metadata: Mapping[str, Any] = {}
    page: str = ""


def packed(contents: Mapping[str, bytes]) -> BytesIO:
    """Pack files into a ZIP archive in memory, as Office files are.

    Args:
        contents: The contents of the files, by name.
    """
    archive = BytesIO()
    with ZipFile(archive, "w") as opened:
        for name, content in contents.items():
            opened.writestr(name, content)
    return archive


_Value = TypeVar("_Value")


def by_word(table: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a table of words, given one whose keys are several of them."""
    return {word: value for words, value in table.items() for word in words.split()}


# Titles that programs make up, such as the name of the file, or a number.
_NO_TITLE = re.compile(
    r"(?i)^(?:microsoft |powerpoint |untitled|無題|名称未設定|\((?:anonymous|unspecified|untitled|none)\)$"
    r"|(?:document|presentation|文書|プレゼンテーション)\s?\d+$|[\W\d_]{6,}$)|\.\w{2,5}$"
)


def titled(title: str) -> dict[str, str]:
    """Return a document's title as metadata; nothing for one that a program made up, such as a file name."""
    title = title.strip()
    if not title or _NO_TITLE.search(title):
        return {}
    return {"title": title}


class FoundFiles(NamedTuple):
    """The files below the given paths.

    Args:
        files: The files to read and the ids of their documents, in the order of the paths; those below a
            folder by name.
        unreadable: Errors for the folders that could not be listed.
        other_kinds: Files that are code, data or media by their names, and were not asked for.
    """

    files: dict[Path, str]
    unreadable: list[UnreadableFileError]
    other_kinds: list[Path]


def find_files(
    paths: Sequence[Path],
    leave_out: Sequence[Path] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    indexed: Mapping[str, str] | None = None,
) -> FoundFiles:
    """Find the files below folders, and files given directly, each once, with the ids of their documents.

    Hidden files and folders are left out unless they are given directly, and so are index folders. Files that
    programs leave beside documents, such as locks and backups, are read only if they are given directly or
    included. Code and data are read only if they are asked for: given directly, included, or in the index.
    Symbolic links are followed, except to a folder that contains them; a folder that can be reached in two
    ways is read once. A file below two of the folders belongs to the first.

    The id of a file's document is its path below the folder. If two files have the same path below different
    folders, the folders' names are put before it. A file that is in the index keeps its id there; an id is
    free again once the file that it stood for is gone.

    Args:
        paths: Folders and files.
        leave_out: Folders not to read.
        include: Globs of files to read whatever their kind. They match paths below a folder, or any part of
            these.
        exclude: Globs of files not to read, which match likewise.
        indexed: The ids of the files that are in the index, by path.

    Raises:
        FileNotFoundError: One of the paths does not exist.
        ValueError: One of the paths is an index, or neither a file nor a folder.
    """
    left_out = set(map(os.path.realpath, leave_out))
    indexed = indexed or {}
    roots: dict[Path, Path] = {}
    unreadable: list[UnreadableFileError] = []
    other_kinds: list[Path] = []
    for path in paths:
        root = _root(path)
        is_file = path.is_file()
        files = [root / path.name] if is_file else _walk(root, left_out, unreadable)
        for file in files:
            name = _name(file, root)
            if _matches(name, exclude):
                continue
            if is_file or _matches(name, include) or _is_read_unasked(file, indexed):
                roots.setdefault(file, root)
            elif not _LEFT_BESIDE.fullmatch(file.name):
                other_kinds.append(file)
    not_read = [*itertools.filterfalse(roots.__contains__, other_kinds)]
    return FoundFiles(_document_ids(roots, indexed), unreadable, not_read)


def _root(path: Path) -> Path:
    """Return the folder to which the names of a path's files are relative."""
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} does not exist: give a folder or a file to read")
    if path.is_file():
        return path.parent.resolve()
    if not path.is_dir():
        raise ValueError(f"{path} is neither a file nor a folder")
    if is_index(path):
        raise ValueError(f"{path} is an index: give the folder that its documents are in")
    return path.resolve()


def _matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a glob matches a path, a folder above it, or one of its parts alone."""
    parts = unicodedata.normalize("NFC", name).split("/")
    candidates = {*parts, *itertools.accumulate(parts, "{}/{}".format)}
    for glob in globs:
        pattern = unicodedata.normalize("NFC", glob)
        pattern = pattern.removeprefix("./").removeprefix("**/").rstrip("/")
        if any(fnmatchcase(candidate, pattern) for candidate in candidates):
            return True
    return False


def _is_read_unasked(path: Path, indexed: Mapping[str, str]) -> bool:
    if _LEFT_BESIDE.fullmatch(path.name):
        return False
    return str(path) in indexed or _is_prose(path)


def is_media(path: Path) -> bool:
    """Return whether a file is a picture, sound, video or font, by its name."""
    kind, _ = guess_type(path.name, strict=False)
    return (kind or "").startswith(_UNREAD)


def _is_prose(path: Path) -> bool:
    if path.suffix.lower() in _DATA or is_media(path):
        return False
    lexer = find_lexer_class_for_filename(path.name) or find_lexer_class_for_filename(
        path.name.lower()
    )
    return lexer is None or not _PROSE.isdisjoint(lexer.aliases)


def _document_ids(roots: Mapping[Path, Path], indexed: Mapping[str, str]) -> dict[Path, str]:
    """Return the ids of files' documents, in the order of `roots`, which maps files to their folders."""
    ids = {file: indexed[str(file)] for file in roots if str(file) in indexed}
    used_ids = {*ids.values(), *(id_ for path, id_ in indexed.items() if os.path.exists(path))}
    by_name: defaultdict[str, list[Path]] = defaultdict(list)
    for file, root in roots.items():
        if file not in ids:
            by_name[_name(file, root)].append(file)
    for files in by_name.values():
        names = _distinct_names(files, roots, used_ids)
        for file, name in zip(files, names, strict=True):
            ids[file] = _composed(name, used_ids, by_name)
        used_ids.update(map(ids.__getitem__, files))
    return {file: ids[file] for file in roots}


def _composed(name: str, *used_names: Container[str]) -> str:
    """Return a name in NFC (macOS writes ガ as two characters), unless another file has that name."""
    composed = unicodedata.normalize("NFC", name)
    return name if any(composed in names for names in used_names) else composed


def _distinct_names(
    files: Sequence[Path], roots: Mapping[Path, Path], used_ids: Set[str]
) -> list[str]:
    """Return the names of files, with as many folders of their roots as it takes to tell them apart."""
    for folders in itertools.count():
        names = [_name(file, roots[file], folders) for file in files]
        if len({*names}) == len(names) and used_ids.isdisjoint(names):
            break
    return names


def _name(file: Path, root: Path, folders: int = 0) -> str:
    """Return a file's path below its root, preceded by the last `folders` folders of the root itself."""
    return "/".join(file.parts[max(len(root.parts) - folders, 0) :])


def _walk(root: Path, left_out: set[str], unreadable: list[UnreadableFileError]) -> Iterator[Path]:
    errors: list[OSError] = []
    seen = set(left_out)
    for path, folder_names, file_names in os.walk(root, onerror=errors.append, followlinks=True):
        folder = Path(path)
        real = folder.resolve()
        if str(real) in seen or real in root.parents:
            folder_names.clear()
            continue
        seen.add(str(real))
        folder_names[:] = [
            name for name in sorted(folder_names) if _may_hold_documents(folder / name)
        ]
        yield from (folder / name for name in sorted(file_names) if not name.startswith("."))
    for error in errors:
        reason = f"cannot be listed: {error.strerror}"
        unreadable.append(UnreadableFileError(Path(error.filename), reason))


def _may_hold_documents(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.name not in _BINS and not is_index(folder)
