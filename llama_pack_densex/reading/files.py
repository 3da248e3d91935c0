"""Which files to read, and the ids of their documents."""

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
from typing import Any, NamedTuple
from zipfile import ZipFile

from pygments.lexers import find_lexer_class_for_filename

from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.text.tokens import words

# Of what Pygments knows by a file's name, the languages that people write to one another; the rest is code or
# data. It takes .jp for JMESPath, and .mhtml for Mason.
_PROSE = words("text markdown restructuredtext html tex org email groff jmespath mason")
# Of these not all of its versions know.
_DATA = words(".csv .tsv .jsonl .ndjson .ipynb .geojson .lock .map .conf .svelte")
_UNREAD = ("image/", "audio/", "video/", "font/")  # a page has many, and each would be warned of
# What programs leave beside documents: locks, backups, drafts, downloads under way, pictures of folders.
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
    """A file's text cannot be had, or a folder cannot be listed; the message also says what can be done.

    Args:
        path: The file.
        reason: A phrase to follow its path.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class Part(NamedTuple):
    """The text of one of a file's documents.

    Args:
        text: The text.
        metadata: What the file says about it.
        page: What is added to the document's id; empty where the file is one document.
    """

    text: str
    metadata: Mapping[str, Any] = {}
    page: str = ""


def packed(contents: Mapping[str, bytes]) -> BytesIO:
    """An archive as Office files are, in memory.

    Args:
        contents: Its files by their names.
    """
    archive = BytesIO()
    with ZipFile(archive, "w") as opened:
        for name, content in contents.items():
            opened.writestr(name, content)
    return archive


# Of a file's name, for one.
_NO_TITLE = re.compile(
    r"(?i)^(?:microsoft |powerpoint |untitled|無題|名称未設定|\((?:anonymous|unspecified|untitled|none)\)$"
    r"|(?:document|presentation|文書|プレゼンテーション)\s?\d+$)|\.\w{2,5}$"
)


def titled(title: str) -> dict[str, str]:
    """A title as metadata, but for one that a program made up."""
    title = title.strip()
    return {"title": title} if title and not _NO_TITLE.search(title) else {}


class FoundFiles(NamedTuple):
    """The files below some paths.

    Args:
        files: The files to read with the ids of their documents, in the order of the paths; those below a
            folder by name.
        unreadable: What could not be listed.
        other_kinds: Files that are code, data or media by their names, which nobody asked for.
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
    """Find the files below folders, and those given themselves, each once, with the ids of their documents.

    Hidden files and folders are left out unless they are given themselves, and so are the folders of
    indexes. What programs leave beside documents, as locks and backups, is only read if it is given itself or
    included. Code and data are left out unless they are asked for: given themselves, included, or in the
    index. Links are followed, but not to a folder that they are in; a folder that can be reached in two ways
    is read once. A file below two of the folders belongs to the first.

    The id of a file's document is its path below the folder. Where two files have the same path below
    different folders, the folders' names are put before it. A file that is in the index keeps the id that it
    has there; an id is free again when the file that it stood for is gone.

    Args:
        paths: Folders and files.
        leave_out: Folders not to read.
        include: Globs of files to read whatever their kind, of paths below a folder or of any part of these.
        exclude: The same of files not to read.
        indexed: The files that are in the index by path, with their ids.

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
            is_asked_for = is_file or _matches(name, include)
            if _matches(name, exclude):
                continue
            if is_asked_for or _is_read_unasked(file, indexed):
                roots.setdefault(file, root)
            elif not _LEFT_BESIDE.fullmatch(file.name):
                other_kinds.append(file)
    other_kinds = list(itertools.filterfalse(roots.__contains__, other_kinds))
    return FoundFiles(_document_ids(roots, indexed), unreadable, other_kinds)


def _root(path: Path) -> Path:
    """The folder below which a path's files are named."""
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
    """Whether one of the globs is for a path, for a folder above it, or for a part of it by itself."""
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
    """Whether a file is a picture, sound, video or font by its name."""
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
    """The ids of files' documents, in the order of the files, which come with the folders they are below."""
    ids = {file: indexed[str(file)] for file in roots if str(file) in indexed}
    taken = {*ids.values(), *(id_ for path, id_ in indexed.items() if os.path.exists(path))}
    by_name: defaultdict[str, list[Path]] = defaultdict(list)
    for file, root in roots.items():
        if file not in ids:
            by_name[_name(file, root)].append(file)
    for files in by_name.values():
        names = _distinct_names(files, roots, taken)
        for file, name in zip(files, names, strict=True):
            ids[file] = _composed(name, taken, by_name)
        taken.update(map(ids.__getitem__, files))
    return {file: ids[file] for file in roots}


def _composed(name: str, *taken: Container[str]) -> str:
    """A name with ガ as one character, which macOS writes as two; unless that name is another file's."""
    composed = unicodedata.normalize("NFC", name)
    return name if any(composed in names for names in taken) else composed


def _distinct_names(
    files: Sequence[Path], roots: Mapping[Path, Path], taken: Set[str]
) -> list[str]:
    """The names of files, with as many of their roots' own folders as tell them from one another."""
    for folders in itertools.count():
        names = [_name(file, roots[file], folders) for file in files]
        if len({*names}) == len(names) and taken.isdisjoint(names):
            break
    return names


def _name(file: Path, root: Path, folders: int = 0) -> str:
    """A file's path below its root, with some of the root's own folders before it."""
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
