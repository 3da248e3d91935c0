"""Chroma, in memory, in a folder or on a server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.adapters.alone import Hits, Space, StoreAlone
from llama_pack_densex.index.adapters.wire import Condition, Conditions, Row, StoredRows
from llama_pack_densex.index.node_store import Ids
from llama_pack_densex.index.urls import StoreAddress

_METADATA_A_QUERY = 10_000  # for more than 32,000 rows, Chroma's SQL has too many variables
# long pages of ids cost less, because Chroma counts from the first row to find each page
_IDS_A_PAGE = 100_000


def open_at(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection, or create it with cosine distance; Chroma's default is Euclidean distance."""
    import chromadb
    from chromadb.errors import NotFoundError
    from llama_index.vector_stores.chroma import ChromaVectorStore

    client: Any
    if address.path is None:
        parts = urlsplit(address.url)
        headers = None
        if address.password:
            headers = {"x-chroma-token": address.password}
        client = chromadb.HttpClient(
            parts.hostname, parts.port, ssl=parts.scheme == "https", headers=headers
        )
    else:
        file = address.path / "chroma.sqlite3"
        if dimension is None and not file.is_file():  # Chroma would create it
            raise address.missing()
        client = chromadb.PersistentClient(str(address.path))
    try:
        collection = client.get_collection(address.collection, embedding_function=None)
    except NotFoundError:
        if dimension is None:
            raise address.missing() from None
        cosine = {"hnsw": {"space": "cosine"}}
        collection = client.create_collection(
            address.collection, configuration=cosine, embedding_function=None
        )
    vectors = collection.get(limit=1, include=["embeddings"])["embeddings"]
    if len(vectors):  # fails now, not later, if the index of the vectors is torn
        collection.query(query_embeddings=vectors, n_results=1, include=[])
    return ChromaVectorStore(chroma_collection=collection)  # type: ignore[no-any-return]


class ChromaNodes(StoreAlone):
    """Nodes in a Chroma collection.

    The integration's `get_nodes` (0.6, chromadb 1.5) returns everything for an empty list of ids, and its
    similarity is exp(-distance).

    Scores are cosines if the collection has cosine distance, or if all vectors have the same length.

    Args:
        vector_store: A `ChromaVectorStore`.
    """

    def _describe(self) -> Space:
        collection = self._store.client
        vectors = collection.get(limit=1, include=["embeddings"])["embeddings"]
        dimension = len(vectors[0]) if len(vectors) else None
        for kind in ("hnsw", "spann"):
            settings = collection.configuration.get(kind) or {}
            if settings.get("space"):
                return Space(dimension, settings["space"])
        return Space(dimension, "l2")

    def _rows(self, node_ids: Ids) -> StoredRows:
        got = self._store.client.get(ids=list(node_ids), include=["metadatas", "documents"])
        return map(Row, got["ids"], got["metadatas"], got["documents"])

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        offset = 0
        query = {"where": {key: {"$in": list(values)}}, "include": [], "limit": _IDS_A_PAGE}
        while True:
            ids = self._store.client.get(**query, offset=offset)["ids"]
            if not ids:
                return
            yield from self._paged(self._rows, ids)
            offset += len(ids)

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        include = ["distances"]
        if limit <= _METADATA_A_QUERY:
            include.append("metadatas")
        got = self._store.client.query(
            [embedding], n_results=limit, where=_where(conditions), include=include
        )
        distances = dict(zip(got["ids"][0], got["distances"][0], strict=True))
        rows: Iterable[Row] = self._paged(self._rows, distances)
        if got["metadatas"]:
            rows = map(Row, distances, got["metadatas"][0])
        if self._space is not None and self._space.metric == "l2":
            return [(row, distances[row.id]) for row in rows]
        return [(row, 1.0 - distances[row.id]) for row in rows]


def _where(conditions: Conditions) -> dict[str, Any] | None:
    parts = list(map(_part, conditions))
    if not parts:
        return None
    if len(parts) == 1:  # Chroma refuses "$and" with a single part
        return parts[0]
    return {"$and": parts}


def _part(condition: Condition) -> dict[str, Any]:
    key = condition.key
    value = condition.value
    if condition.sign == "in":
        return {key: {"$in": value}}
    # Chroma compares integers only with integers, and floats only with floats
    if condition.sign == ">=":
        return {"$or": [{key: {"$gte": math.floor(value)}}, {key: {"$gte": float(value)}}]}
    return {"$or": [{key: {"$lte": math.ceil(value)}}, {key: {"$lte": float(value)}}]}
