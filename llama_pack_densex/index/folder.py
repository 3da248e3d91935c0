"""An index folder: created, opened, and taken from one consistent state to the next in a single step."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from filelock import FileLock, Timeout
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.database import DISK_IS_FULL
from llama_pack_densex.index.embedded import NODES_FILE, EmbeddedNodes, EmbeddedVectorStore
from llama_pack_densex.index.manifest import (
    FILE,
    REPLIES_FILE,
    InvalidIndexError,
    Manifest,
    is_index,
)
from llama_pack_densex.index.node_store import NodeStore

LOCK_FILE = "writer.lock"
WRITER_FILE = "writer.txt"
REPORT_FILE = "ingestion_report.json"
"""The file, beside the data, that reports the outcome of each document in the last ingestion."""
_DATA = "data-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class IndexFolder:
    """The folder of one index.

    The data is in a subfolder; there may be several versions, and the manifest names the current one. It is
    replaced in one step, so a stop at any moment leaves the state either before a change or after it.

    Args:
        path: The folder; it need not exist.

    Attributes:
        data: The subfolder in use, once it has been created or opened.

    Raises:
        InvalidIndexError: The path is a file, or a folder that holds something other than an index.
    """

    data: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        if os.path.lexists(path) and not path.is_dir():
            kind = "file" if path.exists() else "link to a folder that is not there"
            raise InvalidIndexError(f"{path} is a {kind}; an index needs a folder of its own.")
        if path.is_dir() and not is_index(path) and not all(map(_is_ours, path.iterdir())):
            raise InvalidIndexError(
                f"{path} is not an index and holds other files; an index needs a folder of its own, as in "
                f"`densex index {quote(str(path))} --to {quote(f'{path}-index')}`."
            )

    def create(self) -> Path:
        """Create the data subfolder of a new index, and return it."""
        self.data = self.path / f"{_DATA}{uuid.uuid4().hex[:12]}"
        self.data.mkdir(parents=True)
        return self.data

    def open(
        self,
        manifest: Manifest,
        vector_store: BasePydanticVectorStore | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> NodeStore:
        """Open the store of the index that the manifest describes, in the state that it names.

        Raises:
            InvalidIndexError: The data is missing or damaged, or is kept in a vector store that was not
                passed.
        """
        self.data = self.path / manifest.data
        if not self.data.is_dir() or self.data.parent != self.path:
            raise InvalidIndexError(
                f"{self.path} is damaged: its subfolder {manifest.data!r} is missing; rebuild the index."
            )
        if manifest.vector_store == EmbeddedVectorStore.class_name():
            if vector_store is not None:
                raise InvalidIndexError(
                    f"{self.path} keeps its nodes itself; leave vector_store out to open it."
                )
            if not (self.data / NODES_FILE).exists():
                raise InvalidIndexError(
                    f"{self.path} is damaged: {NODES_FILE} is missing; rebuild the index."
                )
            nodes = EmbeddedNodes(self.data)
            if nodes.version < manifest.version:
                raise nodes.database.damage(f"{NODES_FILE} lacks changes that {FILE} names")
            return nodes
        if vector_store is None:
            vector_store = _empty_store(manifest.vector_store)
        if vector_store is None:
            raise InvalidIndexError(
                f"{self.path} keeps its embeddings in a {manifest.vector_store}; pass it as vector_store=."
            )
        try:
            store = adapter_for(vector_store, docstore)
            store.reload(self.data, manifest.version)
        except ValueError as error:
            raise InvalidIndexError(str(error)) from error
        return store

    def clean(self, manifest: Manifest) -> None:
        """Remove what earlier or interrupted writes left beside the data in use."""
        for entry in self.path.iterdir():
            if entry.name == manifest.data or not entry.name.startswith((f".{FILE}.", _DATA)):
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _empty_store(name: str) -> BasePydanticVectorStore | None:
    """Return an empty store of a class that lives in memory, to be filled from a folder; None for other
    classes."""
    if name == SimpleVectorStore.__name__:
        return SimpleVectorStore()
    if name in ("FaissVectorStore", "FaissMapVectorStore"):
        from llama_pack_densex.index.adapters.faiss import exact_store

        return exact_store(1)
    return None


def folder_at(path: str | Path) -> Path:
    """Return the absolute path of an index folder, since programs may change their working directory."""
    return Path(os.path.expanduser(path)).absolute()  # `Path.expanduser` refuses a folder named ~x


def abandon(path: Path, keep: bool) -> None:
    """Remove what a failed attempt to create an index has left in its folder.

    Args:
        path: The folder; a folder that holds an index, or files that are not ours, is left alone.
        keep: Whether to keep the folder, with cached replies and the report.
    """
    if not path.is_dir() or is_index(path) or not all(map(_is_ours, path.iterdir())):
        return
    with suppress(IndexInUseError), writing_to(path):
        for entry in path.glob(f"{_DATA}*") if keep else [path]:
            shutil.rmtree(entry, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    name = path.name.removeprefix(".")
    return name in (FILE, LOCK_FILE, WRITER_FILE) or name.startswith(
        (f"{FILE}.", _DATA, REPLIES_FILE, REPORT_FILE)
    )


class IndexInUseError(RuntimeError):
    """Another process, or another pack of this one, is writing to an index folder.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_pack_densex import DenseXRetrievalPack, IndexInUseError
        >>> pack = DenseXRetrievalPack([Document(text="Miso is salty.")], persist_dir="my-index")
        >>> try:
        ...     pack.insert(Document(text="Tea is bitter."))
        ... except IndexInUseError as error:
        ...     print("try again later:", error)
        >>> pack.counts().documents
        2
    """


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Hold the lock of the only writer to an index folder; the operating system releases it if the process
    ends.

    Raises:
        IndexInUseError: There is another writer; the message says which.
        OSError: The folder is not writable, or the disk becomes full.
    """
    lock = FileLock(str(folder / LOCK_FILE), timeout=0)  # not shared: a fork would inherit it
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise IndexInUseError(_in_use(folder)) from None
    except OSError as error:
        why = f"{error.strerror}: an index can be searched there, but not made or changed"
        raise OSError(error.errno, why, str(folder)) from error
    writer = f"process {os.getpid()} on {socket.gethostname()} (since {time.strftime('%Y-%m-%d %H:%M:%S')})"
    try:
        with suppress(OSError):  # a full disk must not prevent a deletion
            (folder / WRITER_FILE).write_text(writer, encoding="utf-8")
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, DISK_IS_FULL, str(folder)) from error
    finally:
        with suppress(OSError):
            (folder / WRITER_FILE).unlink()
        lock.release()


def _in_use(folder: Path) -> str:
    who = "another process"
    with suppress(OSError, ValueError):
        who = (folder / WRITER_FILE).read_text(encoding="utf-8") or who
    return (
        f"{folder} is being written to by {who}: an index folder has one writer at a time. Wait until it "
        "is done (the index can be read meanwhile), or use a vector store on a server for several writers."
    )
