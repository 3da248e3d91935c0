"""Qdrant, on a server, in a folder or in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.stores.foreign.alone import Measured, StoreAlone
from llama_pack_densex.stores.foreign.wire import LEADS_TO, Condition, Row


class QdrantNodes(StoreAlone):
    """Nodes in a Qdrant collection, which is made with the first ones.

    Qdrant's ids are UUIDs, as those of our nodes are. The integration (0.10, qdrant-client 1.20) returns at most 9,999
    nodes to `get_nodes` with filters only.

    Scores are cosines in a collection of cosine distance, and in others where all vectors are equally long.

    Args:
        vector_store: A `QdrantVectorStore` with a sync client.

    Raises:
        ValueError: The store has an async client only.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        store: Any = vector_store
        self._store, self._client, self._collection = store, store.client, store.collection_name
        if self._client is None:
            raise ValueError("the QdrantVectorStore has an async client only; give it client=QdrantClient(...) as well")

    def _describe(self) -> tuple[int | None, str] | None:
        if not self._client.collection_exists(self._collection):
            return None
        vectors = self._client.get_collection(self._collection).config.params.vectors
        vector = vectors[self._store.dense_vector_name] if isinstance(vectors, dict) else vectors
        return vector.size, vector.distance.value

    def _put(self, wires: Sequence[BaseNode]) -> None:
        self._store.add(list(wires))

    def _rows(self, node_ids: Sequence[str]) -> Iterable[Row]:
        return map(_row, self._client.retrieve(self._collection, ids=list(node_ids)))

    def _scan(self, key: str, values: Sequence[str]) -> Iterable[Row]:
        offset, asked = None, _filter([Condition(key, "in", values)])
        while True:
            points, offset = self._client.scroll(
                self._collection, asked, self.rows_a_request, offset=offset, with_payload=True
            )
            yield from map(_row, points)
            if offset is None:
                return

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Sequence[Condition]) -> Iterable[Measured]:
        found = self._client.query_points(
            self._collection,
            query=list(question.query_embedding or []),
            using=self._store.dense_vector_name,
            limit=limit,
            query_filter=_filter(conditions),
            with_payload=True if question.filters else list(LEADS_TO),
        )
        return ((_row(point), point.score) for point in found.points)


def _filter(conditions: Sequence[Condition]) -> Any:
    from qdrant_client import models

    def one(condition: Condition) -> Any:
        key, value = condition.key, condition.value
        if condition.sign == "in":
            return models.FieldCondition(key=key, match=models.MatchAny(any=list(value)))
        limits = models.Range(gte=value) if condition.sign == ">=" else models.Range(lte=value)
        return models.FieldCondition(key=key, range=limits)

    return models.Filter(must=[one(condition) for condition in conditions])


def _row(point: Any) -> Row:
    return Row(str(point.id), point.payload or {})
