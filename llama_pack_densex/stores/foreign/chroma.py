"""Chroma, in memory, in a folder or on a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.stores.foreign.base import Conditions, Member, StoreAlone, cosine
from llama_pack_densex.stores.foreign.wire import HEAD_KEY, Row

_METADATA_A_QUERY = 10_000  # of more than 32,000 rows Chroma's SQL has too many variables
_IDS_A_LIST = 100_000  # Chroma counts from the first row on to find the next ones, so long lists of ids cost less


class ChromaNodes(StoreAlone):
    """Nodes in a Chroma collection.

    The integration's `add` (0.6, chromadb 1.5) keeps the old row of an id that is there, its `get_nodes` returns
    everything for an empty list of ids, and its similarity is exp(-distance). Chroma's `upsert` keeps those metadata
    keys of the old row that the new one lacks.

    Scores are cosines in a collection of cosine distance, and in others where all vectors are equally long.

    Args:
        vector_store: A `ChromaVectorStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._collection: Any = vector_store.client
        self._known_dimension: int | None = None
        self._metric = _metric_of(self._collection)

    def _put(self, wires: Sequence[BaseNode]) -> None:
        ids = [wire.node_id for wire in wires]
        metadatas = [_metadata_of(wire) for wire in wires]
        before = self._collection.get(ids=ids, include=["metadatas"])
        old_keys = {row_id: set(old or ()) for row_id, old in zip(before["ids"], before["metadatas"], strict=True)}
        for row_id, metadata in zip(ids, metadatas, strict=True):
            metadata.update(dict.fromkeys(old_keys.get(row_id, set()) - metadata.keys()))  # None takes a key away
        self._collection.upsert(
            ids=ids,
            embeddings=[wire.get_embedding() for wire in wires],
            metadatas=metadatas,
            documents=[wire.get_content(metadata_mode=MetadataMode.NONE) for wire in wires],
        )

    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        got = self._collection.get(ids=list(store_ids), include=["metadatas", "documents"])
        return map(_row, got["ids"], got["metadatas"], got["documents"])

    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        # first the ids alone: documents may have more rows than one request is to bring
        ids = self._collection.get(where={"ref_doc_id": {"$in": list(document_ids)}}, include=[])["ids"]
        rows = (row for page in self._paged(ids) for row in self._rows(page))
        return {row.id: Member(row.id, row.metadata.get(HEAD_KEY) is True) for row in rows if row.is_ours}

    def _unmark(self, store_ids: Sequence[str]) -> None:
        self._collection.update(ids=list(store_ids), metadatas=[{HEAD_KEY: False}] * len(store_ids))

    def _drop(self, store_ids: Sequence[str]) -> None:
        self._collection.delete(ids=list(store_ids))

    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        offset, where = 0, _where(conditions)
        while ids := self._collection.get(where=where, include=[], limit=_IDS_A_LIST, offset=offset)["ids"]:
            offset += len(ids)
            for page in self._paged(ids):
                yield from self._rows(page)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        embedding = question.query_embedding or []
        few = limit <= _METADATA_A_QUERY
        got = self._collection.query(
            query_embeddings=[embedding],
            n_results=limit,
            where=_where(conditions),
            include=["metadatas", "distances"] if few else ["distances"],
        )
        ids, cosines = got["ids"][0], [self._cosine(distance, embedding) for distance in got["distances"][0]]
        if few:
            return list(zip(map(_row, ids, got["metadatas"][0]), cosines, strict=True))
        rows = {row.id: row for page in self._paged(ids) for row in self._rows(page)}
        return [(rows[row_id], cosine) for row_id, cosine in zip(ids, cosines, strict=True) if row_id in rows]

    def _cosine(self, distance: float, embedding: Sequence[float]) -> float:
        # only "l2" is a distance by itself; the other two are 1 less a similarity
        return cosine(self._metric, distance if self._metric == "l2" else 1.0 - distance, embedding)

    def _dimension(self) -> int | None:
        if self._known_dimension is None:
            got = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
            self._known_dimension = len(got[0]) if len(got) else None
        return self._known_dimension


def _metric_of(collection: Any) -> str:
    configuration = collection.configuration
    for index in ("hnsw", "spann"):
        space = (configuration.get(index) or {}).get("space")
        if space:
            return str(space)
    return "l2"


def _metadata_of(wire: BaseNode) -> dict[str, Any]:
    return node_to_metadata_dict(wire, remove_text=True, flat_metadata=True)


def _row(row_id: str, metadata: Mapping[str, Any] | None, text: str | None = None) -> Row:
    return Row(row_id, metadata or {}, text)


def _where(conditions: Conditions) -> dict[str, Any] | None:
    each: list[dict[str, Any]] = [
        {key: {"$in": value} if isinstance(value, list) else value} for key, value in conditions.items()
    ]
    return {"$and": each} if len(each) > 1 else (each[0] if each else None)
