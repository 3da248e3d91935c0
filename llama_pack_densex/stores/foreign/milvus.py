"""Milvus, on a server or as Milvus Lite in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.foreign.base import Conditions, Member, StoreAlone, cosine, uuid_for
from llama_pack_densex.stores.foreign.wire import HEAD_KEY, WIRE_KEY, Row, node_id_of

_CONTENT = ["_node_content", "_node_type"]
_LEADS_TO = [GRANULARITY_KEY, WIRE_KEY, "ref_doc_id"]
_MISREAD = re.compile(r"""["'\\\x00-\x1f]""")
_STRONG = "Strong"  # a reader sees what was written before it asked, by whomever
_MOST_BYTES = 65_535  # of a text, and on a server of all metadata of a row


class MilvusNodes(StoreAlone):
    """Nodes in a Milvus collection.

    The integration (1.2, pymilvus 2.6) writes a second row for an id that is there unless it is made with
    `upsert_mode`, which the adapter sets on a copy of its own; it returns everything for an empty list of ids; it does
    not load a collection that it did not make, so that nothing can be read in another process; and it quotes ids
    wrongly that hold a quote or a backslash, as pymilvus does: such a node gets the UUIDv5 of its id.

    Milvus returns at most 16,384 rows to one search: filters of the user that hardly anything passes, and that Milvus
    cannot look at itself (it can where a string must be equal), find nothing beyond these. A row's text and metadata
    are at most 65,535 bytes each.

    Scores are cosines in a collection of cosine distance, and in others where all vectors are equally long.

    Args:
        vector_store: A `MilvusVectorStore` with dense embeddings.
    """

    most_found = 16_384

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        store: Any = vector_store
        self._store = store
        self._upserting: Any = vector_store.model_copy(update={"upsert_mode": True})
        self._client: Any = store.client
        self._collection = str(store.collection_name)
        self._is_loaded = False
        self._known_dimension: int | None = None
        self.taken_keys = frozenset(
            (store.text_key, store.doc_id_field, store.embedding_field, store.sparse_embedding_field)
        )

    def _store_id(self, node_id: str) -> str:
        return uuid_for(node_id) if _MISREAD.search(node_id) else node_id

    def _put(self, wires: Sequence[BaseNode]) -> None:
        for wire in wires:
            _check_size(wire)
        self._upserting.add(list(wires))

    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        return map(self._row, self._query(filter=f"id in {_quote(list(store_ids))}", output_fields=self._whole))

    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        asked = f"{self._store.doc_id_field} in {_quote(list(document_ids))}"
        rows = map(self._row, self._pages(asked, ["id", GRANULARITY_KEY, WIRE_KEY, HEAD_KEY]))
        return {row.id: Member(node_id_of(row), bool(row.metadata.get(HEAD_KEY))) for row in rows if row.is_ours}

    def _unmark(self, store_ids: Sequence[str]) -> None:
        self._drop(store_ids)  # Milvus has no change of one field; the rows are written again at the end

    def _drop(self, store_ids: Sequence[str]) -> None:
        self._client.delete(self._collection, ids=list(store_ids))

    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        return map(self._row, self._pages(_condition(conditions), self._whole))

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        if not self._exists():
            return []
        embedding = list(question.query_embedding or [])
        (hits,) = self._client.search(
            self._collection,
            data=[embedding],
            anns_field=self._store.embedding_field,
            limit=limit,
            filter=_condition(conditions),
            output_fields=[*_LEADS_TO, *(_CONTENT if question.filters else [])],
            search_params=self._store.search_config,
            consistency_level=_STRONG,
        )
        metric = self._metric()
        return [(Row(hit["id"], hit["entity"]), cosine(metric, hit["distance"], embedding)) for hit in hits]

    def _dimension(self) -> int | None:
        if self._known_dimension is None and self._exists():
            fields = self._client.describe_collection(self._collection)["fields"]
            sizes = {field["name"]: field["params"].get("dim") for field in fields}
            self._known_dimension = sizes.get(self._store.embedding_field)
        return self._known_dimension

    @property
    def _whole(self) -> list[str]:
        return [*_LEADS_TO, *_CONTENT, self._store.text_key]

    def _row(self, entity: Mapping[str, Any]) -> Row:
        return Row(entity["id"], entity, entity.get(self._store.text_key) or "")

    def _metric(self) -> str:
        described = self._client.describe_index(self._collection, self._store.embedding_field) or {}
        return str(described.get("metric_type", self._store.similarity_metric)).lower()

    def _exists(self) -> bool:
        exists = bool(self._client.has_collection(self._collection))
        if exists and not self._is_loaded:  # the integration loads a collection when it makes it, and not again
            self._client.load_collection(self._collection)
        self._is_loaded = exists
        return exists

    def _query(self, **asked: Any) -> list[dict[str, Any]]:
        if not self._exists():
            return []
        return list(self._client.query(self._collection, consistency_level=_STRONG, **asked))

    def _pages(self, condition: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        if not self._exists():
            return
        first = self._query(filter=condition, output_fields=fields, limit=self.rows_a_request + 1)
        if len(first) <= self.rows_a_request:
            yield from first
            return
        iterator = self._client.query_iterator(
            self._collection,
            batch_size=self.rows_a_request,
            filter=condition,
            output_fields=fields,
            consistency_level=_STRONG,
        )
        try:
            while page := iterator.next():
                yield from page
        finally:
            iterator.close()


def _quote(value: object) -> str:
    # Milvus takes JSON's literals but not its \u escapes
    return json.dumps(value, ensure_ascii=False)


def _condition(conditions: Conditions) -> str:
    def one(key: str, value: str | bool | list[str]) -> str:
        # not "in", which Milvus Lite knows for columns only
        either = value if isinstance(value, list) else [value]
        return "(" + " or ".join(f"$meta[{_quote(key)}] == {_quote(item)}" for item in either) + ")"

    return " and ".join(one(key, value) for key, value in conditions.items())


def _check_size(wire: BaseNode) -> None:
    text = len(wire.get_content().encode())
    metadata = len(_quote(node_to_metadata_dict(wire, remove_text=True)).encode())
    for what, size in (("text", text), ("metadata", metadata)):
        if size > _MOST_BYTES:
            raise ValueError(
                f"the {what} of a node of document {wire.ref_doc_id!r} has {size:,} bytes, and Milvus keeps "
                f"{_MOST_BYTES:,}; use smaller passages, or less metadata"
            )
