"""The embedded vector store: a LanceDB table, in memory or in a folder.

Not llama-index-vector-stores-lancedb (0.6): it quotes ids wrongly in `get_nodes` and `delete`, appends a second row for
an id that is there already, keeps metadata in a struct that the first node fixes, measures squared L2 distances, and
cannot hold nodes without embeddings, which lexical search needs.
"""

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

from llama_pack_densex.stores.filters import matches
from llama_pack_densex.stores.lance_conditions import is_any_of, query_condition
from llama_pack_densex.stores.lance_rows import dimension_of, to_node, to_rows
from llama_pack_densex.stores.lance_table import IN_MEMORY, NodeTable


class LanceVectorStore(BasePydanticVectorStore):
    """Keeps nodes, and their embeddings where they have any, in one LanceDB table.

    Writing a node whose id is there replaces it. Similarity is the cosine. A store whose nodes have no embeddings
    holds text only and answers no query.

    Embeddings of up to 512 MiB are searched exactly, in memory, from the first question after a change on. More are
    searched by LanceDB, with an index where `LanceNodes.maintain` made one.

    Args:
        uri: A folder, or "memory://" for a store that lives as long as this object.
        version: The version of the table to read and to write on top of; 0 for the time before there was one. None
            means the latest.

    Raises:
        InvalidIndexError: The version is not there any more, or a file is damaged.
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in dimension.
    """

    stores_text: bool = True
    uri: str = IN_MEMORY

    _table: NodeTable = PrivateAttr()

    def __init__(self, uri: str | Path = IN_MEMORY, version: int | None = None, **kwargs: Any) -> None:
        given = {"uri": str(uri), **kwargs}
        super().__init__(**given)
        self._table = NodeTable(self.uri, version)

    @classmethod
    def class_name(cls) -> str:
        return "LanceVectorStore"

    @property
    def client(self) -> Any:
        """The LanceDB connection."""
        return self._table.connection

    @property
    def table(self) -> NodeTable:
        """The table, for what LlamaIndex's interface has no method for."""
        return self._table

    @property
    def dimension(self) -> int | None:
        """The dimension of the embeddings; None where there are none."""
        return self._table.now.dimension

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those whose ids are there, in one transaction."""
        if nodes:
            self._table.replace(to_rows(nodes, dimension_of(nodes)))
        return [node.node_id for node in nodes]

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Read nodes by id, in the order of the ids, by metadata, or by both; an empty list of ids means no node."""
        now = self._table.now
        if node_ids is None:
            contents = (content for batch in now.scan(["node"]) for content in batch.column("node").to_pylist())
            nodes = [to_node(content) for content in contents]
        else:
            rows = now.take(now.places_of(node_ids), ["id", "node"])
            found = dict(zip(rows["id"].to_pylist(), rows["node"].to_pylist(), strict=True))
            nodes = [to_node(found[node_id]) for node_id in node_ids if node_id in found]
        return [node for node in nodes if matches(node.metadata, filters)]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        self._table.delete(is_any_of("document_id", [ref_doc_id]))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by metadata, or by both; an empty list of ids deletes nothing."""
        if filters is not None:
            node_ids = [node.node_id for node in self.get_nodes(node_ids, filters)]
        if node_ids:
            self._table.delete(is_any_of("id", node_ids))

    def clear(self) -> None:
        """Delete all nodes."""
        self._table.clear()

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes nearest to an embedding by cosine; filtered ones are dropped and more fetched in their place."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"LanceVectorStore answers queries of mode 'default' only, not {query.mode.value!r}")
        now, condition = self._table.now, query_condition(query)
        limit = wanted = max(query.similarity_top_k, 0)
        while True:
            if condition:
                places, cosines = now.nearest_where(query.query_embedding, limit, condition)
            else:
                places, cosines = now.nearest(query.query_embedding, limit)
            nodes = [to_node(content) for content in now.take(places, ["node"])["node"].to_pylist()]
            kept = [
                (node, float(score))
                for node, score in zip(nodes, cosines, strict=True)
                if matches(node.metadata, query.filters)
            ]
            if len(kept) >= wanted or len(places) < limit:
                break
            limit *= 4
        return VectorStoreQueryResult(
            nodes=[node for node, _ in kept[:wanted]],
            similarities=[score for _, score in kept[:wanted]],
            ids=[node.node_id for node, _ in kept[:wanted]],
        )
