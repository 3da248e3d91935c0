"""Qdrant, on a server, in a folder or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.adapters.alone import Hits, Space, StoreAlone
from llama_pack_densex.index.adapters.wire import HIT_KEYS, Condition, Conditions, Row, StoredRows
from llama_pack_densex.index.node_store import Ids, Nodes
from llama_pack_densex.index.urls import StoreAddress


def open_at(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection, which is created with the first nodes."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import AsyncQdrantClient, QdrantClient

    if address.path is not None:
        return QdrantVectorStore(address.collection, QdrantClient(path=str(address.path)))  # type: ignore[no-any-return]
    options: Any = {"url": address.url, "api_key": address.password or None}
    client = QdrantClient(**options)
    asynchronous = AsyncQdrantClient(**options)
    return QdrantVectorStore(address.collection, client, aclient=asynchronous)  # type: ignore[no-any-return]


class QdrantNodes(StoreAlone):
    """Nodes in a Qdrant collection, which is created with the first nodes.

    Qdrant's ids are UUIDs, as are those of our nodes. `get_nodes` of the integration (0.10, qdrant-client
    1.20) returns at most 9,999 nodes if it is called with filters alone.

    Scores are cosines if the collection has cosine distance, or if all vectors have the same length.

    Args:
        vector_store: A `QdrantVectorStore` with a sync client.

    Raises:
        ValueError: The store has only an async client.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._client = self._store.client
        self._collection = self._store.collection_name
        if self._client is None:
            raise ValueError(
                "the QdrantVectorStore has only an async client; give it client=QdrantClient(...) as well"
            )

    def _describe(self) -> Space | None:
        if not self._client.collection_exists(self._collection):
            return None
        vector = self._client.get_collection(self._collection).config.params.vectors
        if isinstance(vector, dict):
            vector = vector[self._store.dense_vector_name]
        return Space(vector.size, vector.distance.value)

    def _put(self, wires: Nodes) -> None:
        self._store.add(list(wires))

    def _rows(self, node_ids: Ids) -> StoredRows:
        return map(_row, self._client.retrieve(self._collection, node_ids))

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        offset = None
        condition = _filter([Condition(key, "in", values)])
        while True:
            points, offset = self._client.scroll(
                self._collection, condition, self.rows_a_request, offset=offset
            )
            yield from map(_row, points)
            if offset is None:
                return

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        response = self._client.query_points(
            self._collection,
            embedding,
            using=self._store.dense_vector_name,
            limit=limit,
            query_filter=_filter(conditions),
            with_payload=list(HIT_KEYS),
        )
        return ((_row(point), point.score) for point in response.points)


def _filter(conditions: Conditions) -> Any:
    from qdrant_client.models import Filter

    limits = {">=": "gte", "<=": "lte"}
    parts: list[dict[str, Any]] = []
    for condition in conditions:
        if condition.sign == "in":
            parts.append({"key": condition.key, "match": {"any": condition.value}})
        else:
            parts.append({"key": condition.key, "range": {limits[condition.sign]: condition.value}})
    return Filter.model_validate({"must": parts})


def _row(point: Any) -> Row:
    return Row(str(point.id), point.payload or {})
