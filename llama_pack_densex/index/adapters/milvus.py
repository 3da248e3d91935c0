"""Milvus, on a server or as Milvus Lite in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.index.adapters.alone import Hits, Space, StoreAlone
from llama_pack_densex.index.adapters.wire import (
    HEAD_KEY,
    HIT_KEYS,
    Condition,
    Conditions,
    Row,
    StoredRows,
)
from llama_pack_densex.index.node_store import Ids, Nodes
from llama_pack_densex.index.urls import StoreAddress

# a reader sees everything that anyone wrote before its request
_STRONG = {"consistency_level": "Strong"}
_MOST_BYTES = 65_535  # of a row's text, and on a server also of all its metadata


def open_at(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection, or create it."""
    from llama_index.vector_stores.milvus import MilvusVectorStore
    from pymilvus import MilvusClient

    if address.path is not None:
        address.path.parent.mkdir(parents=True, exist_ok=True)
    place = {
        "uri": str(address.path or address.url),
        "token": f"{address.user}:{address.password}".strip(":"),
    }
    if dimension is None and not MilvusClient(**place).has_collection(address.collection):
        raise address.missing()
    return MilvusVectorStore(  # type: ignore[no-any-return]
        **place,
        collection_name=address.collection,
        dim=dimension,
        similarity_metric="COSINE",
        index_config={"index_type": "AUTOINDEX"},
        use_async_client=False,
    )


class MilvusNodes(StoreAlone):
    """Nodes in a Milvus collection.

    The integration (1.2, pymilvus 2.6) writes a second row for an id that exists already unless it is created
    with `upsert_mode`, which the adapter sets on a copy of its own; it returns everything for an empty list
    of ids; and it does not load a collection that it did not create, so that nothing can be read in another
    process.

    Milvus returns at most 16,384 rows per search. A user's filter that Milvus cannot evaluate itself (it can
    compare strings for equality, and numbers) is applied to these rows alone, so a filter that hardly
    anything passes may find too little. A row's text and metadata have at most 65,535 bytes each.

    Scores are cosines if the collection has cosine distance, or if all vectors have the same length.

    Args:
        vector_store: A `MilvusVectorStore` with dense embeddings.
    """

    most_found = 16_384

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        store = self._store
        self._client = store.client
        self._collection = store.collection_name
        self._upserting = store.model_copy(update={"upsert_mode": True})
        self.taken_keys = frozenset(
            [
                store.text_key,
                store.doc_id_field,
                store.embedding_field,
                store.sparse_embedding_field,
            ]
        )

    def _describe(self) -> Space:
        self._client.load_collection(self._collection)
        field = self._store.embedding_field
        fields = {
            field["name"]: field
            for field in self._client.describe_collection(self._collection)["fields"]
        }
        index = self._client.describe_index(self._collection, field) or {}
        return Space(
            fields[field]["params"]["dim"],
            index.get("metric_type", self._store.similarity_metric),
        )

    def _put(self, wires: Nodes) -> None:
        for wire in wires:
            _check_size("text", wire.get_content(), wire)
            _check_size("metadata", _quote(node_to_metadata_dict(wire, remove_text=True)), wire)
        self._upserting.add(list(wires))

    def _rows(self, node_ids: Ids) -> StoredRows:
        # an iterator would make several requests, and with Milvus Lite log a warning
        expression = f"id in {_quote(node_ids)}"
        return map(self._row, self._client.query(self._collection, expression, **self._whole_rows))

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        pages = self._client.query_iterator(
            self._collection,
            self.rows_a_request,
            filter=_expression([Condition(key, "in", values)]),
            **self._whole_rows,
        )
        try:
            while page := pages.next():
                yield from map(self._row, page)
        finally:
            pages.close()

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        (hits,) = self._client.search(
            self._collection,
            [embedding],
            _expression(conditions),
            limit,
            list(HIT_KEYS),
            self._store.search_config,
            anns_field=self._store.embedding_field,
            **_STRONG,
        )
        return ((Row(hit["id"], hit["entity"]), hit["distance"]) for hit in hits)

    @property
    def _whole_rows(self) -> dict[str, Any]:
        fields = [*HIT_KEYS, HEAD_KEY, "_node_type", self._store.text_key]
        return {"output_fields": fields, **_STRONG}

    def _row(self, entity: dict[str, Any]) -> Row:
        return Row(entity["id"], entity, entity[self._store.text_key])


def _quote(value: object) -> str:
    # Milvus accepts JSON's literals, but not its \u escapes
    return json.dumps(value, ensure_ascii=False)


def _expression(conditions: Conditions) -> str:
    return " and ".join(map(_test, conditions))


def _test(condition: Condition) -> str:
    field = f"$meta[{_quote(condition.key)}]"
    if condition.sign != "in":
        return f"{field} {condition.sign} {_quote(condition.value)}"
    # not "in", which Milvus Lite supports only for columns
    return f"({' or '.join(f'{field} == {_quote(value)}' for value in condition.value)})"


def _check_size(what: str, content: str, wire: BaseNode) -> None:
    size = len(content.encode())
    if size > _MOST_BYTES:
        raise ValueError(
            f"the {what} of a node of document {wire.ref_doc_id!r} has {size:,} bytes, but Milvus keeps at "
            f"most {_MOST_BYTES:,}; use smaller passages, or less metadata"
        )
