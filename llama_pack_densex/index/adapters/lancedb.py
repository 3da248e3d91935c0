"""LanceDB, in a folder or on object storage, opened with LlamaIndex's own integration."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.index.adapters.alone import Hits, Space, StoreAlone
from llama_pack_densex.index.adapters.wire import CONTENT_KEY, Conditions, Row, StoredRows
from llama_pack_densex.index.node_store import Ids, Nodes

_STORED_KEYS = (
    CONTENT_KEY,
    "_node_type",
    "document_id",
    "doc_id",
    "ref_doc_id",
)  # the metadata keys that every table has


class LanceDBNodes(StoreAlone):
    """Nodes in a LanceDB table, which is created with the first nodes.

    The integration (0.6, lancedb 0.40) takes ids for column names, so that it can neither delete nor read by
    id; it writes a second row for an id that exists already, keeps reading the state in which it opened the
    table, and raises a warning if nothing is found. So everything is done through LanceDB itself.

    A table has the metadata keys of its first rows. LanceDB refuses rows that have others, and cannot filter
    by a key that some rows lack. So users' keys are only in the node's JSON, and filters are evaluated here.

    Scores are cosines. A search that an approximate vector index cannot answer in full is repeated without
    it.

    Args:
        vector_store: A `LanceDBVectorStore`.
    """

    def _describe(self) -> Space | None:
        table = self._newest()
        if table is None:
            return None
        return Space(table.schema.field(self._store.vector_column_name).type.list_size)

    def _put(self, wires: Nodes) -> None:
        store = self._store
        table = self._newest()
        if table is None:
            rows = [self._row_for(wire, _STORED_KEYS) for wire in wires]
            store._table = store.client.create_table(store._table_name, rows)
            return
        fields = [field.name for field in table.schema.field("metadata").type]
        merging = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merging.execute([self._row_for(wire, fields) for wire in wires])

    def _drop(self, node_ids: Ids) -> None:
        self._newest().delete(_is_any_of("id", node_ids))

    def _rows(self, node_ids: Ids) -> StoredRows:
        return self._read(_is_any_of("id", node_ids))

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        if key == "ref_doc_id":
            return self._read(_is_any_of(self._store.doc_id_key, values))
        return (row for row in self._read("TRUE") if row.metadata.get(key) in values)

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        search = self._newest().search(embedding, self._store.vector_column_name)
        search = search.distance_type("cosine")
        search = search.select({**self._columns, "distance": "_distance"}).limit(limit)
        items = search.to_list()
        if len(items) < limit:
            items = search.bypass_vector_index().to_list()
        return [(_row(item), 1.0 - item["distance"]) for item in items]

    def _newest(self) -> Any:
        """Return the table in its latest state, whoever changed it; None if it does not exist yet."""
        store = self._store
        if store._table is None and store._table_exists():
            store._table = store.client.open_table(store._table_name)
        if store._table is not None:
            store._table.checkout_latest()
        return store._table

    @property
    def _columns(self) -> dict[str, str]:
        return {
            "id": "id",
            "text": self._store.text_key,
            "content": f"metadata.{CONTENT_KEY}",
        }

    def _read(self, condition: str) -> StoredRows:
        search = self._newest().search().where(condition).select(self._columns)
        for page in search.to_batches(self.rows_a_request):
            yield from map(_row, page.to_pylist())

    def _row_for(self, wire: BaseNode, fields: Sequence[str]) -> dict[str, Any]:
        metadata = node_to_metadata_dict(wire)
        stored: dict[str, Any] = dict.fromkeys(fields)
        for key in _STORED_KEYS:
            stored[key] = metadata[key]
        return {
            "id": wire.node_id,
            self._store.doc_id_key: wire.ref_doc_id,
            self._store.vector_column_name: wire.get_embedding(),
            self._store.text_key: wire.get_content(),
            "metadata": stored,
        }


def _is_any_of(column: str, values: Collection[str]) -> str:
    quoted = ["'" + value.replace("'", "''") + "'" for value in values]
    return f"{column} IN ({', '.join(quoted)})"


def _row(item: Mapping[str, Any]) -> Row:
    node = json.loads(item["content"])
    metadata = {
        **node["metadata"],
        CONTENT_KEY: item["content"],
        "_node_type": node["class_name"],
    }
    return Row(item["id"], metadata, item["text"])
