"""Where an index is: a folder, or a vector store by its URL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.cli.opening import open_pack, read_index
from llama_pack_densex.indexing import reading_order
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.opening import about
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.index import NodeIndex, node_store
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest, is_index
from llama_pack_densex.stores.urls import is_store_url, open_url, redacted

if TYPE_CHECKING:
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import BaseNode, Document

_FAISS = "faiss://"  # everything of it is in a folder


@dataclass(frozen=True)
class IndexPlace:
    """Where an index is, or is to be.

    Args:
        name: A folder's path or a store's URL, as it may be shown.
        folder: The folder; None for a store that keeps everything itself.
        url: The store's URL; empty for the embedded one.
    """

    name: str
    folder: Path | None
    url: str

    @classmethod
    def of(cls, text: str | Path) -> IndexPlace:
        """What a user wrote.

        Raises:
            InvalidIndexError: It is a folder that cannot be an index's.
        """
        if isinstance(text, Path) or not is_store_url(text):
            return cls(str(text), IndexFolder(Path(text)).path, "")
        folder = IndexFolder(Path(text[len(_FAISS) :])).path if text.startswith(_FAISS) else None
        return cls(redacted(text), folder, text)

    def manifest(self) -> Manifest | None:
        """What the index says about itself; None where there is none yet."""
        if self.folder is not None:
            return Manifest.read(self.folder) if is_index(self.folder) else None
        try:
            return about(node_store(open_url(self.url, None).vector_store))
        except ValueError as error:
            if isinstance(error, InvalidIndexError):
                raise
            return None  # there is no such collection yet

    def open(self, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index to search or change it.

        Args:
            **arguments: The pack's.

        Raises:
            InvalidIndexError: There is none, or it is damaged.
        """
        if self.folder is not None:
            return open_pack(self.folder, **arguments)
        return DenseXRetrievalPack.from_vector_store(open_url(self.url, None).vector_store, **arguments)

    def build(self, documents: Iterable[Document], **arguments: Any) -> DenseXRetrievalPack:
        """Make the index.

        Args:
            documents: The documents.
            **arguments: The pack's.

        Raises:
            ValueError: A vector store needs an embedding model, and there is none.
        """
        if not self.url:
            return DenseXRetrievalPack(documents, persist_dir=self.folder, **arguments)
        model, why = resolve_embed_model(arguments.pop("embed_model", None))
        if model is None:
            raise ValueError(
                f"{self.name} holds embeddings, and there is no embedding model ({why}): name one with --embed-model"
            )
        store = open_url(self.url, _dimension(model)).vector_store
        return DenseXRetrievalPack(
            documents, vector_store=store, persist_dir=self.folder, embed_model=model, **arguments
        )

    def read(self) -> tuple[Manifest, list[BaseNode]]:
        """All nodes, in reading order; needs no embedding model.

        Raises:
            InvalidIndexError: There is no index, or it is damaged.
        """
        if self.folder is not None:
            return read_index(self.folder)
        store = node_store(open_url(self.url, None).vector_store)
        manifest = about(store)
        if manifest is None:
            raise InvalidIndexError(f"there is no index at {self.name}: make one with `densex index PATH --to URL`")
        return manifest, sorted(NodeIndex(store).all_nodes(), key=reading_order)


def _dimension(model: BaseEmbedding) -> int:
    return len(model.get_text_embedding("dimension"))
