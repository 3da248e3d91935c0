"""PostgreSQL with pgvector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from llama_pack_densex.stores.foreign.alone import Measured, StoreAlone
from llama_pack_densex.stores.foreign.wire import CONTENT_KEY, LEADS_TO, Condition, Row

_LEAST_CANDIDATES = 200  # of an HNSW search: with as many as are asked for, few of the nearest are found
_MOST_CANDIDATES = 1000  # pgvector's HNSW index looks at no more of them


class PostgresNodes(StoreAlone):
    """Nodes in a table of PostgreSQL; each change is one transaction.

    The integration (0.9) writes a second row for an id that is there, and keeps no index by node id: one is made
    where the store may set up its table. A search that an approximate vector index cannot answer in
    full is answered without it.

    Args:
        vector_store: A `PGVectorStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._store: Any = vector_store

    def _describe(self) -> tuple[int | None, str]:
        return self._store.embed_dim, "cosine"

    @cached_property
    def _engine(self) -> Any:
        self._store.add([])  # it connects, and makes its table, when it is first used
        return self._store.client

    @cached_property
    def _session(self) -> scoped_session[Session]:
        """Each thread's own."""
        return scoped_session(sessionmaker(self._engine))

    @cached_property
    def _table(self) -> sa.Table:
        import pgvector.sqlalchemy  # noqa: F401  # with which SQLAlchemy knows the vectors' types

        schema = sa.MetaData(schema=self._store.schema_name)
        table = sa.Table(f"data_{self._store.table_name}", schema, autoload_with=self._engine)
        if self._store.perform_setup:
            sa.Index(f"{table.name}_densex_ids", table.c.node_id).create(self._engine, checkfirst=True)
        return table

    def _value(self, key: str) -> Any:
        return self._table.c.metadata_[key].astext

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            with super()._changing(), self._session.begin():
                yield
        except sa.exc.DBAPIError as error:  # the rest of its message has the texts that were to be written
            said = str(error.orig).partition("\n")[0]
            raise ConnectionError(f"PostgreSQL did not take a change: {type(error.orig).__name__}: {said}") from None

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
        self._drop([wire.node_id for wire in wires])
        self._session.execute(sa.insert(self._table), rows)

    def _rows(self, node_ids: Sequence[str]) -> Iterable[Row]:
        table = self._table.c
        asked = sa.select(table.node_id, table.metadata_, table.text).where(self._is_any_of(node_ids))
        with self._engine.connect() as connection:
            return [Row(*row) for row in connection.execute(asked)]

    def _drop(self, node_ids: Sequence[str]) -> None:
        self._session.execute(sa.delete(self._table).where(self._is_any_of(node_ids)))

    def _scan(self, key: str, values: Sequence[str]) -> Iterable[Row]:
        table, after = self._table.c, -1
        asked = sa.select(table.id, table.node_id, table.metadata_, table.text).where(self._value(key).in_(values))
        while True:
            page = asked.where(table.id > after).order_by(table.id).limit(self.rows_a_request)
            with self._engine.connect() as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            after = rows[-1].id
            yield from (Row(*row[1:]) for row in rows)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Sequence[Condition]) -> Iterable[Measured]:
        keys = (*LEADS_TO, CONTENT_KEY) if question.filters else LEADS_TO
        table = self._table.c
        distance = table.embedding.cosine_distance(question.query_embedding or []).label("distance")
        nearest = sa.select(table.id, distance).where(*map(self._meets, conditions)).order_by(distance).limit(limit)
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
        return [(Row(row[0], dict(zip(keys, row[2:], strict=True))), 1.0 - row[1]) for row in rows]

    def _is_any_of(self, node_ids: Sequence[str]) -> Any:
        return self._table.c.node_id == sa.any_(sa.literal(list(node_ids), sa.ARRAY(sa.String)))

    def _meets(self, condition: Condition) -> Any:
        text, value = self._value(condition.key), condition.value
        if condition.sign == "in":
            return text.in_(value)
        kind = sa.func.jsonb_typeof(sa.cast(self._table.c.metadata_[condition.key], JSONB))
        # in a CASE, since other rows may hold under the same key what is no number
        number = sa.case((kind == "number", sa.cast(text, sa.Numeric)))
        return number.bool_op(condition.sign)(sa.cast(sa.literal(repr(value)), sa.Numeric))
