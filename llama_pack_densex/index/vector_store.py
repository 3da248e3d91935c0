"""The embedded store as LlamaIndex's own classes see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_pack_densex.index.embedded import EmbeddedNodes
from llama_pack_densex.index.filters import matches
from llama_pack_densex.index.node_store import look_further


class EmbeddedVectorStore(BasePydanticVectorStore):
    """A vector store that keeps nodes, and their embeddings if they have any, in an SQLite database.

    Writing a node replaces the node with the same id. Similarity is the cosine. A store whose nodes have no
    embeddings holds only text and answers no queries.

    Args:
        folder: The folder of the database; None for a store that lives as long as this object.
        nodes: The nodes to use, if they have been opened already.

    Raises:
        InvalidIndexError: A file is damaged.
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in
            dimension.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> store = EmbeddedVectorStore()
        >>> store.add([TextNode(id_="a", text="Tea is grown in Uji.", embedding=[1.0, 0.0])])
        ['a']
    """

    stores_text: bool = True
    folder: str | None = None

    _nodes: EmbeddedNodes = PrivateAttr()

    def __init__(
        self, folder: str | Path | None = None, nodes: EmbeddedNodes | None = None, **kwargs: Any
    ) -> None:
        path = None if folder is None else Path(folder)
        super().__init__(**{"folder": path and str(path), **kwargs})
        self._nodes = nodes or EmbeddedNodes(path)

    @classmethod
    def class_name(cls) -> str:
        return "EmbeddedVectorStore"

    @property
    def client(self) -> Any:
        """The database."""
        return self._nodes.database

    @property
    def nodes(self) -> EmbeddedNodes:
        """The nodes, for operations that LlamaIndex's interface lacks."""
        return self._nodes

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those with the same ids, in one transaction."""
        if nodes:
            with self._nodes.keeper.changing():
                self._nodes.replace([], nodes)
        return [node.node_id for node in nodes]

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Read nodes by id (in the order of the ids), by metadata or by both; an empty list of ids means no
        nodes."""
        return self._nodes.keeper.reading(lambda: self._read(node_ids, filters))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        with self._nodes.keeper.changing():
            self._nodes.replace([ref_doc_id], [])

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id, by metadata or by both; an empty list of ids deletes nothing."""
        with self._nodes.keeper.changing():
            if filters is not None:
                node_ids = [node.node_id for node in self._read(node_ids, filters)]
            self._nodes.replace([], [], node_ids or [])

    def clear(self) -> None:
        """Delete all nodes."""
        with self._nodes.keeper.changing():
            self._nodes.replace([], [], self._nodes.all_ids())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to an embedding by cosine; nodes that fail the filters are dropped, and
        more are fetched in their place.

        Raises:
            ValueError: The query has another mode than "default", or its embedding is missing or has another
                dimension than the stored ones.
        """
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(
                f"EmbeddedVectorStore answers only queries of mode 'default', not {query.mode.value!r}"
            )
        return self._nodes.keeper.reading(lambda: self._search(query))

    def _read(
        self, node_ids: Sequence[str] | None, filters: MetadataFilters | None
    ) -> list[BaseNode]:
        if node_ids is None:
            return [node for node in self._nodes.all_nodes() if matches(node.metadata, filters)]
        nodes = self._nodes.fetch(node_ids).values()
        return [node for node in nodes if matches(node.metadata, filters)]

    def _search(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        candidates = self._nodes.rows_of(query.node_ids, query.doc_ids)

        def find(limit: int) -> tuple[list[tuple[BaseNode, float]], int]:
            hits = self._nodes.nearest_nodes(query.query_embedding, limit, candidates)
            scores = {hit.id: hit.score for hit in hits}
            nodes = self._read(list(scores), query.filters)
            return [(node, scores[node.node_id]) for node in nodes], len(hits)

        best = look_further(find, query.similarity_top_k, query.similarity_top_k)
        nodes = [node for node, _ in best]
        scores = [score for _, score in best]
        return VectorStoreQueryResult(nodes, scores, [node.node_id for node in nodes])
