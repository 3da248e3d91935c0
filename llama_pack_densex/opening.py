"""Where a pack's nodes are, and what is known of them before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.index import node_store
from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.manifest import Manifest, is_index
from llama_pack_densex.stores.node_store import NodeStore
from llama_pack_densex.wiring import Given

_REBUILD = "empty the vector store, and index the documents again"


@dataclass(frozen=True)
class Opened:
    """The store of an index.

    Args:
        store: Where the nodes are.
        folder: Where the rest is kept, and in the embedded store the nodes as well; None where nothing is.
        manifest: What the index says about itself; None where there is none yet, or it does not say.
        lexical: The name of the lexical side's saved state that goes with the nodes; empty where there is none.
    """

    store: NodeStore
    folder: IndexFolder | None
    manifest: Manifest | None
    lexical: str

    @property
    def where(self) -> str:
        """The index, for messages."""
        return str(self.folder.path) if self.folder is not None else f"the {self.store.name}"


def open_store(persist_dir: str | Path | None, given: Given) -> Opened:
    """Open the store of a pack, or make a new one.

    Args:
        persist_dir: The pack's folder; None where it has none.
        given: The parts that the user gave.

    Raises:
        InvalidIndexError: The folder or what is in the store cannot be used.
        ValueError: There are two places for the nodes.
    """
    folder = None if persist_dir is None else IndexFolder(Path(persist_dir))
    if folder is not None and isinstance(given.vector_store, LanceVectorStore):
        raise ValueError("persist_dir keeps its nodes itself, in a store of this kind: leave vector_store out")
    if folder is not None and is_index(folder.path):
        manifest = Manifest.read(folder.path)
        store = folder.open(manifest, given.vector_store, given.docstore)
        now = about(store)  # others may have written to the same store, and have kept their lexical side elsewhere
        return Opened(store, folder, manifest, manifest.lexical if not now or now.version == manifest.version else "")
    if folder is not None:
        store = folder.create(given.vector_store, given.docstore)
    else:
        store = node_store(given.vector_store, given.docstore)
    return Opened(store, folder, about(store), "")


def about(store: NodeStore) -> Manifest | None:
    """What a vector store says about the index in it.

    Raises:
        InvalidIndexError: That is damaged, or of another version of this package.
    """
    text = store.read_about()
    return None if text is None else Manifest.parsed(text, f"the index in the {store.name}", _REBUILD)
