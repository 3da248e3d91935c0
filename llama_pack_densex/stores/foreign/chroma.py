"""Chroma, in memory, in a folder or on a server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.stores.foreign.alone import Measured, StoreAlone
from llama_pack_densex.stores.foreign.wire import Condition, Row

_METADATA_A_QUERY = 10_000  # of more than 32,000 rows Chroma's SQL has too many variables
_IDS_A_LIST = 100_000  # Chroma counts from the first row on to find the next ones, so long lists of ids cost less


class ChromaNodes(StoreAlone):
    """Nodes in a Chroma collection.

    The integration's `get_nodes` (0.6, chromadb 1.5) returns everything for an empty list of ids, and its similarity is
    exp(-distance).

    Scores are cosines in a collection of cosine distance, and in others where all vectors are equally long.

    Args:
        vector_store: A `ChromaVectorStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._collection: Any = vector_store.client

    def _describe(self) -> tuple[int | None, str]:
        some = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
        configuration = self._collection.configuration
        spaces = [(configuration.get(kind) or {}).get("space") for kind in ("hnsw", "spann")]
        return len(some[0]) if len(some) else None, str(next(filter(None, spaces), "l2"))

    def _rows(self, node_ids: Sequence[str]) -> Iterable[Row]:
        got = self._collection.get(ids=list(node_ids), include=["metadatas", "documents"])
        return map(_row, got["ids"], got["metadatas"], got["documents"])

    def _scan(self, key: str, values: Sequence[str]) -> Iterable[Row]:
        offset, where = 0, {key: {"$in": list(values)}}
        while ids := self._collection.get(where=where, include=[], limit=_IDS_A_LIST, offset=offset)["ids"]:
            offset += len(ids)
            yield from self._rows_of(ids)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Sequence[Condition]) -> Iterable[Measured]:
        few = limit <= _METADATA_A_QUERY
        got = self._collection.query(
            query_embeddings=[question.query_embedding or []],
            n_results=limit,
            where=_where(conditions),
            include=["metadatas", "distances"] if few else ["distances"],
        )
        ids, distances = got["ids"][0], got["distances"][0]
        rows = map(_row, ids, got["metadatas"][0]) if few else self._rows_of(ids)
        by_id = {row.id: row for row in rows}
        _, metric = self._known or self._describe()
        for row_id, distance in zip(ids, distances, strict=True):
            if row_id in by_id:  # "l2" alone is a distance by itself; the other two are 1 less a similarity
                yield by_id[row_id], distance if metric == "l2" else 1.0 - distance


def _row(row_id: str, metadata: Mapping[str, Any] | None, text: str | None = None) -> Row:
    return Row(row_id, metadata or {}, text)


def _where(conditions: Sequence[Condition]) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = []
    for condition in conditions:
        key, value = condition.key, condition.value
        if condition.sign == "in":
            parts.append({key: {"$in": list(value)}})
        else:  # whole numbers are compared with whole numbers only, and floats with floats
            name, whole = ("$gte", math.floor) if condition.sign == ">=" else ("$lte", math.ceil)
            parts.append({"$or": [{key: {name: whole(value)}}, {key: {name: float(value)}}]})
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None
