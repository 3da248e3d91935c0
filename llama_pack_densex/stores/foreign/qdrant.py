"""Qdrant, on a server, in a folder or in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.foreign.base import Conditions, Member, StoreAlone, cosine, uuid_for
from llama_pack_densex.stores.foreign.wire import HEAD_KEY, WIRE_KEY, Row, node_id_of

_METRICS = {"Cosine": "cosine", "Dot": "ip", "Euclid": "euclid"}
_LEADS_TO = [GRANULARITY_KEY, WIRE_KEY, "ref_doc_id"]

T = TypeVar("T")


class QdrantNodes(StoreAlone):
    """Nodes in a Qdrant collection.

    Qdrant's ids are UUIDs (or numbers), so that a node with another id gets the UUIDv5 of it. The integration (0.10,
    qdrant-client 1.20) returns at most 9,999 nodes to `get_nodes` with filters only.

    Scores are cosines in a collection of cosine distance, and in others where all vectors are equally long.

    Args:
        vector_store: A `QdrantVectorStore` with a sync client.

    Raises:
        ValueError: The store has an async client only.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        store: Any = vector_store
        self._client: Any = store.client
        if self._client is None:
            raise ValueError("the QdrantVectorStore has an async client only; give it client=QdrantClient(...) as well")
        self._store = store
        self._collection = str(store.collection_name)
        self._known: tuple[int, str] | None = None  # the dimension and the metric, once there is a collection

    def _store_id(self, node_id: str) -> str:
        try:
            as_uuid = str(uuid.UUID(node_id))
        except ValueError:
            as_uuid = ""
        return node_id if node_id == as_uuid else uuid_for(node_id)

    def _put(self, wires: Sequence[BaseNode]) -> None:
        self._store.add(list(wires))

    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        return map(_row, self._or_nothing(lambda: self._client.retrieve(self._collection, ids=list(store_ids)), []))

    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        points = self._scroll(_filter({"ref_doc_id": list(document_ids)}), [GRANULARITY_KEY, WIRE_KEY, HEAD_KEY])
        return {row.id: Member(node_id_of(row), bool(row.metadata.get(HEAD_KEY))) for row in points if row.is_ours}

    def _unmark(self, store_ids: Sequence[str]) -> None:
        self._client.set_payload(self._collection, payload={HEAD_KEY: False}, points=list(store_ids))

    def _drop(self, store_ids: Sequence[str]) -> None:
        self._client.delete(self._collection, points_selector=list(store_ids))

    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        return self._scroll(_filter(conditions), True)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        known = self._described()
        if known is None:
            return []
        embedding = question.query_embedding or []
        got: list[Any] = self._or_nothing(
            lambda: (
                self._client.query_points(
                    self._collection,
                    query=list(embedding),
                    using=self._store.dense_vector_name,
                    limit=limit,
                    query_filter=_filter(conditions),
                    with_payload=True if question.filters else _LEADS_TO,
                ).points
            ),
            [],
        )
        return [(_row(point), _cosine(known[1], point.score, embedding)) for point in got]

    def _dimension(self) -> int | None:
        known = self._described()
        return None if known is None else known[0]

    def _described(self) -> tuple[int, str] | None:
        if self._known is None:
            info = self._or_nothing(lambda: self._client.get_collection(self._collection), None)
            if info is not None:
                vectors = info.config.params.vectors
                vector = vectors[self._store.dense_vector_name] if isinstance(vectors, dict) else vectors
                self._known = vector.size, _METRICS.get(vector.distance.value, "")
        return self._known

    def _scroll(self, condition: Any, payload: bool | list[str]) -> Iterator[Row]:
        points: list[Any]
        offset: Any = None
        while True:
            points, offset = self._or_nothing(
                lambda: self._client.scroll(
                    self._collection,
                    scroll_filter=condition,
                    limit=self.rows_a_request,
                    offset=offset,  # noqa: B023
                    with_payload=payload,
                ),
                ([], None),
            )
            yield from map(_row, points)
            if offset is None:
                return

    def _or_nothing(self, ask: Callable[[], T], nothing: T) -> T:
        """The answer, or nothing where there is no collection, which is only made with the first nodes."""
        try:
            return ask()
        except Exception:  # in a folder a ValueError, from a server an UnexpectedResponse or a gRPC error
            if self._client.collection_exists(self._collection):
                raise
            self._known = None
            return nothing


def _filter(conditions: Conditions) -> Any:
    from qdrant_client import models

    return models.Filter(
        must=[
            models.FieldCondition(
                key=key,
                match=models.MatchAny(any=value) if isinstance(value, list) else models.MatchValue(value=value),
            )
            for key, value in conditions.items()
        ]
    )


def _row(point: Any) -> Row:
    return Row(str(point.id), point.payload or {})


def _cosine(metric: str, score: float, embedding: Sequence[float]) -> float:
    return cosine("l2", score * score, embedding) if metric == "euclid" else cosine(metric, score, embedding)
