"""PostgreSQL with pgvector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from sqlalchemy.dialects import postgresql

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.foreign.base import Change, Conditions, Member, StoreAlone, cosine
from llama_pack_densex.stores.foreign.wire import HEAD_KEY, WIRE_KEY, Row

_LEADS_TO = (GRANULARITY_KEY, WIRE_KEY, "ref_doc_id")
_LEAST_CANDIDATES = 200  # of an HNSW search: with as many as are asked for, few of the nearest are found
_MOST_CANDIDATES = 1000  # pgvector's HNSW index looks at no more of them


class PostgresNodes(StoreAlone):
    """Nodes in a table of PostgreSQL; each change is one transaction.

    The integration (0.9) writes a second row for an id that is there, and keeps no index by node id: one is made with
    the first nodes, where the store may set up its table. A search that an approximate vector index cannot answer in
    full is answered without it.

    Args:
        vector_store: A `PGVectorStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._store: Any = vector_store
        self._has_indexes = False
        self._writing: Any = None  # the connection of the change that is under way

    @cached_property
    def _engine(self) -> Any:
        self._store.add([])  # it connects, and makes its table, when it is first used
        return self._store.client

    @cached_property
    def _table(self) -> sa.Table:
        from pgvector.sqlalchemy import HALFVEC, Vector

        vector = HALFVEC if self._store.use_halfvec else Vector
        return sa.Table(
            f"data_{self._store.table_name}",
            sa.MetaData(schema=self._store.schema_name),
            sa.Column("id", sa.BigInteger, primary_key=True),
            sa.Column("text", sa.String),
            sa.Column("metadata_", postgresql.JSONB if self._store.use_jsonb else postgresql.JSON),
            sa.Column("node_id", sa.String),
            sa.Column("embedding", vector(self._store.embed_dim)),
        )

    def _value(self, key: str) -> Any:
        return self._table.c.metadata_[key].astext

    def _apply(self, change: Change) -> None:
        self._make_indexes()
        with self._engine.begin() as connection:
            self._writing = connection
            try:
                super()._apply(change)
            finally:
                self._writing = None

    def _put(self, wires: Sequence[BaseNode]) -> None:
        rows = [
            {
                "node_id": wire.node_id,
                "text": wire.get_content(metadata_mode=MetadataMode.NONE),
                "metadata_": node_to_metadata_dict(wire, remove_text=True),
                "embedding": wire.get_embedding(),
            }
            for wire in wires
        ]
        with self._changing() as connection:
            connection.execute(self._those([wire.node_id for wire in wires], sa.delete(self._table)))
            connection.execute(sa.insert(self._table), rows)

    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        table = self._table.c
        with self._engine.connect() as connection:
            got = connection.execute(self._those(store_ids, sa.select(table.node_id, table.metadata_, table.text)))
            return [Row(node_id, metadata, text) for node_id, metadata, text in got]

    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        is_head = self._value(HEAD_KEY) == "true"
        asked = sa.select(self._table.c.node_id, is_head).where(
            self._value("ref_doc_id").in_(list(document_ids)), self._value(GRANULARITY_KEY).is_not(None)
        )
        with self._engine.connect() as connection:
            return {node_id: Member(node_id, bool(head)) for node_id, head in connection.execute(asked)}

    def _unmark(self, store_ids: Sequence[str]) -> None:
        """Nothing: what is changed in one transaction is never half changed."""

    def _drop(self, store_ids: Sequence[str]) -> None:
        with self._changing() as connection:
            connection.execute(self._those(store_ids, sa.delete(self._table)))

    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        table, after = self._table.c, -1
        asked = sa.select(table.id, table.node_id, table.metadata_, table.text).where(*self._where(conditions))
        while True:
            page = asked.where(table.id > after).order_by(table.id).limit(self.rows_a_request)
            with self._engine.connect() as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            after = rows[-1].id
            yield from (Row(row.node_id, row.metadata_, row.text) for row in rows)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        embedding = question.query_embedding or []
        keys = (*_LEADS_TO, "_node_content") if question.filters else _LEADS_TO
        table = self._table.c
        distance = table.embedding.cosine_distance(embedding).label("distance")
        nearest = sa.select(table.id, distance).where(*self._where(conditions)).order_by(distance).limit(limit)
        found = nearest.subquery()  # what else is asked for is read of these rows only
        asked = sa.select(table.node_id, found.c.distance, *map(self._value, keys)).where(table.id == found.c.id)
        with self._engine.begin() as connection:
            rows = []
            if limit <= _MOST_CANDIDATES:
                connection.execute(sa.text(f"SET LOCAL hnsw.ef_search = {max(limit, _LEAST_CANDIDATES)}"))
                rows = connection.execute(asked).all()
            if len(rows) < limit:
                connection.execute(sa.text("SET LOCAL enable_indexscan = off"))
                rows = connection.execute(asked).all()
        return [
            (Row(row[0], dict(zip(keys, row[2:], strict=True))), cosine("cosine", 1.0 - row[1], embedding))
            for row in rows
        ]

    def _dimension(self) -> int | None:
        return int(self._store.embed_dim)

    def _changing(self) -> Any:
        return nullcontext(self._writing) if self._writing is not None else self._engine.begin()

    def _those(self, node_ids: Sequence[str], statement: Any) -> Any:
        return statement.where(self._table.c.node_id == sa.any_(sa.literal(list(node_ids), sa.ARRAY(sa.String))))

    def _where(self, conditions: Conditions) -> list[Any]:
        return [self._value(key).in_([_as_text(one) for one in _listed(value)]) for key, value in conditions.items()]

    def _make_indexes(self) -> None:
        if self._has_indexes or not self._store.perform_setup:
            return
        name = f"data_{self._store.table_name}"
        sa.Index(f"{name}_densex_ids", self._table.c.node_id).create(self._engine, checkfirst=True)
        self._has_indexes = True


def _listed(value: str | bool | list[str]) -> Sequence[str | bool]:
    return value if isinstance(value, list) else [value]


def _as_text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
