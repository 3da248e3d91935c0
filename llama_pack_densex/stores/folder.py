"""An index folder: created, opened, and changed over to new data in one step."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.manifest import FILE, InvalidIndexError, Manifest, is_index

REPLIES_FILE = "replies.db"
"""Beside the data: the replies that are kept of an LLM, with SQLite's own files beside it."""
REPORT_FILE = "ingestion_report.json"
"""Beside the data: what became of each document in the last ingestion."""
_DOCSTORE = "docstore.json"
_DATA = "data-"


class IndexFolder:
    """The folder of one index.

    Nodes lie in a subfolder that nothing refers to until the manifest names it, so a stop at any moment leaves the
    old index or the new one.

    Args:
        path: The folder; it need not exist.

    Raises:
        InvalidIndexError: It is a file, or holds other things than an index.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data: Path | None = None
        if path.exists() and not path.is_dir():
            raise InvalidIndexError(f"{path} is a file; an index needs a folder of its own.")
        if path.is_dir() and not is_index(path) and any(not _is_ours(entry) for entry in path.iterdir()):
            raise InvalidIndexError(f"{path} holds other files; an index needs a folder of its own.")

    @property
    def data(self) -> Path:
        """The subfolder in use."""
        assert self._data is not None, "the folder is neither created nor opened"
        return self._data

    def create(self, vector_store: BasePydanticVectorStore | None) -> BasePydanticVectorStore:
        """Make an empty data folder, and the embedded store in it where there is no other."""
        self._data = self.path / f"{_DATA}{uuid.uuid4().hex[:12]}"
        self._data.mkdir(parents=True)
        return vector_store if vector_store is not None else LanceVectorStore(self._data)

    def open(
        self, manifest: Manifest, vector_store: BasePydanticVectorStore | None, embed_model: BaseEmbedding | None
    ) -> NodeIndex:
        """Open the index that the manifest describes.

        Raises:
            InvalidIndexError: Its data is missing or damaged, or is kept in a vector store that was not passed.
        """
        self._data = self.path / manifest.data
        if not self._data.is_dir() or self._data.parent != self.path:
            raise InvalidIndexError(
                f"{self.path} is damaged: its subfolder {manifest.data!r} is missing; build the index anew."
            )
        if manifest.vector_store == LanceVectorStore.class_name():
            if vector_store is not None:
                raise InvalidIndexError(f"{self.path} keeps its nodes itself; leave vector_store out to open it.")
            index = NodeIndex(LanceVectorStore(self._data), embed_model)
        else:
            if vector_store is None:
                raise InvalidIndexError(
                    f"{self.path} keeps its embeddings in a {manifest.vector_store}; pass it as vector_store=."
                )
            index = NodeIndex(vector_store, embed_model, _read_docstore(self._data / _DOCSTORE))
        if not any(True for _ in index.records()):
            raise InvalidIndexError(f"{self.path} is damaged: there is no node in it; build the index anew.")
        return index

    def commit(self, manifest: Manifest, index: NodeIndex) -> None:
        """Make the data folder in use the index's, and remove what earlier and interrupted writes left."""
        assert self._data is not None
        if isinstance(index.docstore, SimpleDocumentStore):
            temporary = self._data / f"{_DOCSTORE}.{uuid.uuid4().hex}"
            index.docstore.persist(str(temporary))
            temporary.replace(self._data / _DOCSTORE)
        manifest.write(self.path)
        for entry in self.path.iterdir():
            if entry.name not in (manifest.data, FILE) and entry.name.startswith((f".{FILE}.", _DATA)):
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)

    def fill_from(self, index: NodeIndex) -> None:
        """Make a new data folder with a copy of an index's nodes; `commit` makes it the index's."""
        store = self.create(index.vector_store)
        if isinstance(store, LanceVectorStore):
            assert self._data is not None
            store.copy_to(self._data)


def _read_docstore(file: Path) -> SimpleDocumentStore:
    try:
        return SimpleDocumentStore.from_persist_path(str(file))
    except (OSError, ValueError) as error:
        raise InvalidIndexError(f"{file} cannot be read ({error}); build the index anew.") from error


def _is_ours(path: Path) -> bool:
    name = path.name.removeprefix(".")
    return name == FILE or name.startswith((f"{FILE}.", _DATA, REPLIES_FILE, REPORT_FILE))
