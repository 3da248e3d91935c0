"""Chroma, in memory, in a folder or on a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.stores.foreign.alone import Measured, StoreAlone
from llama_pack_densex.stores.foreign.wire import Row

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

    def _describe(self) -> tuple[int | None, str]:
        some = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
        configuration = self._collection.configuration
        spaces = [(configuration.get(kind) or {}).get("space") for kind in ("hnsw", "spann")]
        return len(some[0]) if len(some) else None, str(next(filter(None, spaces), "l2"))

    def _put(self, wires: Sequence[BaseNode]) -> None:
        ids = [wire.node_id for wire in wires]
        metadatas = [node_to_metadata_dict(wire, remove_text=True, flat_metadata=True) for wire in wires]
        before = self._collection.get(ids=ids, include=["metadatas"])
        old = dict(zip(before["ids"], before["metadatas"], strict=True))
        for row_id, metadata in zip(ids, metadatas, strict=True):
            metadata.update(dict.fromkeys((old.get(row_id) or {}).keys() - metadata.keys()))  # None takes a key away
        self._collection.upsert(
            ids=ids,
            embeddings=[wire.get_embedding() for wire in wires],
            metadatas=metadatas,
            documents=[wire.get_content(metadata_mode=MetadataMode.NONE) for wire in wires],
        )

    def _rows(self, node_ids: Sequence[str]) -> Iterable[Row]:
        got = self._collection.get(ids=list(node_ids), include=["metadatas", "documents"])
        return map(_row, got["ids"], got["metadatas"], got["documents"])

    def _scan(self, key: str, values: Sequence[str]) -> Iterable[Row]:
        offset, where = 0, {key: {"$in": list(values)}}
        while ids := self._collection.get(where=where, include=[], limit=_IDS_A_LIST, offset=offset)["ids"]:
            offset += len(ids)
            yield from self._rows_of(ids)

    def _nearest(self, question: VectorStoreQuery, limit: int, document_ids: Sequence[str]) -> Iterable[Measured]:
        few = limit <= _METADATA_A_QUERY
        got = self._collection.query(
            query_embeddings=[question.query_embedding or []],
            n_results=limit,
            where={"ref_doc_id": {"$in": list(document_ids)}} if document_ids else None,
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
