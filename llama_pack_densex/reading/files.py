"""Which files to read, and the ids of their documents."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_pack_densex.stores.manifest import is_index


@dataclass(frozen=True)
class FoundFile:
    """A file to read.

    Args:
        path: Where it is, absolute.
        root: The folder that was asked for, or the folder of the file that was asked for.
    """

    path: Path
    root: Path

    @property
    def name(self) -> str:
        """The path below the root, with forward slashes."""
        return self.path.relative_to(self.root).as_posix()


@dataclass(frozen=True)
class Unreadable:
    """A file or folder that cannot be read; the reason is a phrase to follow its path."""

    path: Path
    reason: str


def find_files(paths: Sequence[Path], leave_out: Sequence[Path] = ()) -> tuple[list[FoundFile], list[Unreadable]]:
    """Find the files below folders, and those given themselves, each once.

    Hidden files and folders are left out unless they are given themselves, and so are the folders of indexes. Links
    are followed, but not to a folder that they are in; a folder that can be reached in two ways is read once. A file
    below two of the folders belongs to the outer one.

    Args:
        paths: Folders and files.
        leave_out: Folders not to read.

    Returns:
        The files in the order of `paths`, below a folder by name; and what could not be listed.

    Raises:
        FileNotFoundError: One of the paths does not exist.
        ValueError: One of the paths is an index, or neither a file nor a folder.
    """
    left_out = {os.path.realpath(folder) for folder in leave_out}
    found: dict[Path, FoundFile] = {}
    unreadable: list[Unreadable] = []
    for path in paths:
        for file in _below(path, left_out, unreadable):
            earlier = found.get(file.path)
            if earlier is None or len(file.root.parts) < len(earlier.root.parts):
                found[file.path] = file
    return list(found.values()), unreadable


def document_ids(files: Sequence[FoundFile], indexed: Mapping[str, str]) -> dict[Path, str]:
    """The ids of files' documents: their paths below their roots.

    Where two files have the same path below different roots, the roots' names are put before it. A file that is in the
    index keeps the id that it has there; an id is free again when the file that it stood for is gone.

    Args:
        files: The files.
        indexed: The files that are in the index by path, with their ids.
    """
    ids = {file.path: indexed[str(file.path)] for file in files if str(file.path) in indexed}
    taken = {*ids.values(), *(id_ for path, id_ in indexed.items() if os.path.exists(path))}
    new: defaultdict[str, list[FoundFile]] = defaultdict(list)
    for file in files:
        if file.path not in ids:
            new[file.name].append(file)
    for same_name in new.values():
        for folders in itertools.count():  # of the roots' own paths
            names = [_name_with_root(file, folders) for file in same_name]
            if len({*names}) == len(names) and taken.isdisjoint(names):
                break
        ids.update(zip((file.path for file in same_name), names, strict=True))
        taken.update(names)
    return ids


def _name_with_root(file: FoundFile, folders: int) -> str:
    """A file's path below its root, with some of the root's own folders before it."""
    return "/".join(file.path.parts[max(len(file.root.parts) - folders, 0) :])


def _below(path: Path, left_out: set[str], unreadable: list[Unreadable]) -> Iterator[FoundFile]:
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} does not exist: give a folder or a file to read")
    if path.is_dir():
        root = path.resolve()
        if is_index(root):
            raise ValueError(f"{path} is an index: give the folder that its documents are in")
        yield from (FoundFile(file, root) for file in _walk(root, left_out, unreadable))
    elif path.is_file():
        root = path.parent.resolve()
        yield FoundFile(root / path.name, root)
    else:
        raise ValueError(f"{path} is neither a file nor a folder")


def _walk(root: Path, left_out: set[str], unreadable: list[Unreadable]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        unreadable.append(Unreadable(Path(str(error.filename)), f"cannot be listed: {error.strerror}"))

    seen = set(left_out)
    waiting = deque([root])
    while waiting:  # links wait until all that is really here has been seen, so that a file's own path wins
        for parent, folders, files in os.walk(waiting.popleft(), onerror=note):
            real = os.path.realpath(parent)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            here = Path(parent)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and not is_index(here / name))
            links = (here / name for name in folders if os.path.islink(here / name))
            waiting.extend(link for link in links if not Path(real).is_relative_to(link.resolve()))
            yield from (here / name for name in sorted(files) if not name.startswith("."))
