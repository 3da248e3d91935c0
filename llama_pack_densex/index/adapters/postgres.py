"""PostgreSQL with pgvector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from llama_pack_densex.index.adapters.alone import Hits, Space, StoreAlone
from llama_pack_densex.index.adapters.wire import HIT_KEYS, Condition, Conditions, Row, StoredRows
from llama_pack_densex.index.node_store import Ids, Nodes
from llama_pack_densex.index.urls import StoreAddress

_HNSW_DIMENSIONS = 2_000  # the longest vectors that pgvector's HNSW index takes
# of an HNSW search: examining only as many as are requested would find few of the nearest
_LEAST_CANDIDATES = 200
_MOST_CANDIDATES = 1000  # the limit of pgvector's HNSW index

_DIMENSION = (
    "SELECT NULLIF(atttypmod, -1) FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = "
    "'embedding'"
)
_INSERT = """
INSERT INTO {table} (node_id, text, metadata_, embedding)
SELECT node_id, text, metadata, CAST(embedding AS vector) FROM json_to_recordset(CAST(:rows AS json))
AS row (node_id text, text text, metadata json, embedding text)
"""
_DELETE = "DELETE FROM {table} WHERE node_id = ANY(:ids)"
_SELECT = "SELECT node_id, metadata_, text FROM {table} WHERE node_id = ANY(:ids)"
_PAGE = """
SELECT id, node_id, metadata_, text FROM {table}
WHERE metadata_ ->> '{key}' = ANY(:values) AND id > :after ORDER BY id LIMIT :limit
"""
_NEAREST = """
SELECT node_id, 1 - distance, {columns} FROM {table} JOIN (
    SELECT id, embedding <=> :embedding AS distance FROM {table} \
WHERE {conditions} ORDER BY distance LIMIT :limit
) AS nearest USING (id)
"""
_IS_IN = "metadata_ ->> '{key}' = ANY({value})"
_IS_WITHIN = """
CASE jsonb_typeof(CAST(metadata_ -> '{key}' AS jsonb))
WHEN 'number' THEN CAST(metadata_ ->> '{key}' AS numeric) {sign} {value} END
"""  # other rows may have a value under the same key that is not a number


def open_at(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a table, or create it."""
    from llama_index.vector_stores.postgres import PGVectorStore

    url = sa.make_url(address.url)
    asynchronous = url
    if "sslmode" in url.query:  # the two drivers use different names for this option
        asynchronous = url.difference_update_query(["sslmode"])
        asynchronous = asynchronous.update_query_dict({"ssl": url.query["sslmode"]})
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg2"))
    with engine.connect() as connection:
        table = {"name": f"public.data_{address.collection}"}
        size = connection.scalar(sa.text(_DIMENSION), table) or dimension
    if size is None:
        raise address.missing()
    hnsw = None
    if size <= _HNSW_DIMENSIONS:
        hnsw = {
            "hnsw_m": 16,
            "hnsw_ef_construction": 64,
            "hnsw_ef_search": 100,
            "hnsw_dist_method": "vector_cosine_ops",
        }
    return PGVectorStore(  # type: ignore[no-any-return]
        engine=engine,
        async_engine=create_async_engine(asynchronous.set(drivername="postgresql+asyncpg")),
        table_name=address.collection,
        embed_dim=size,
        perform_setup=dimension is not None,
        initialization_fail_on_error=True,
        use_jsonb=True,
        hnsw_kwargs=hnsw,
    )


class PostgresNodes(StoreAlone):
    """Nodes in a table of PostgreSQL; each change is one transaction.

    The integration (0.9) writes a second row for an id that exists already, and has no database index on node
    ids: one is created if the store is allowed to set up its table. A search that an approximate vector index
    cannot answer in full is repeated without it.

    Args:
        vector_store: A `PGVectorStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._name = f"data_{self._store.table_name}"
        self._table = f'"{self._store.schema_name}"."{self._name}"'

    @cached_property
    def _engine(self) -> sa.Engine:
        self._store.add([])  # the first use makes it connect, and create its table
        engine: sa.Engine = self._store.client
        if self._store.perform_setup:
            table = sa.Table(self._name, sa.MetaData(self._store.schema_name), sa.Column("node_id"))
            sa.Index(f"{self._name}_densex_ids", table.c.node_id).create(engine, checkfirst=True)
        return engine

    @cached_property
    def _session(self) -> scoped_session[Session]:
        """A separate session for each thread."""
        return scoped_session(sessionmaker(self._engine))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            with super()._changing(), self._session.begin():
                yield
        except (
            sa.exc.DBAPIError
        ) as error:  # the rest of its message contains the texts to be written
            reason = str(error.orig).partition("\n")[0]
            raise ConnectionError(
                f"PostgreSQL refused a change: {type(error.orig).__name__}: {reason}"
            ) from None

    def _describe(self) -> Space:
        return Space(self._store.embed_dim)

    def _put(self, wires: Nodes) -> None:
        rows = [
            {
                "node_id": wire.node_id,
                "text": wire.get_content(),
                "metadata": node_to_metadata_dict(wire, remove_text=True),
                "embedding": wire.get_embedding(),
            }
            for wire in wires
        ]
        self._drop([wire.node_id for wire in wires])
        self._session.execute(self._sql(_INSERT), {"rows": json.dumps(rows)})

    def _drop(self, node_ids: Ids) -> None:
        self._session.execute(self._sql(_DELETE), {"ids": list(node_ids)})

    def _rows(self, node_ids: Ids) -> StoredRows:
        with self._engine.connect() as connection:
            return [
                Row(*row) for row in connection.execute(self._sql(_SELECT), {"ids": list(node_ids)})
            ]

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        after = -1
        while True:
            with self._engine.connect() as connection:
                parameters = {
                    "values": list(values),
                    "after": after,
                    "limit": self.rows_a_request,
                }
                rows = connection.execute(self._sql(_PAGE, key=key), parameters).all()
            if not rows:
                return
            after = rows[-1].id
            yield from (Row(*row[1:]) for row in rows)

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        columns = ", ".join(f"metadata_ ->> '{key}'" for key in HIT_KEYS)
        tests = [_test(condition, f":value{place}") for place, condition in enumerate(conditions)]
        sql = self._sql(_NEAREST, columns=columns, conditions=" AND ".join(["TRUE", *tests]))
        parameters = {
            f"value{place}": condition.value for place, condition in enumerate(conditions)
        }
        parameters |= {"embedding": str(embedding), "limit": limit}
        rows: Sequence[Any] = []
        with self._engine.begin() as connection:
            if limit <= _MOST_CANDIDATES:
                connection.execute(
                    sa.text(f"SET LOCAL hnsw.ef_search = {max(limit, _LEAST_CANDIDATES)}")
                )
                rows = connection.execute(sql, parameters).all()
            if len(rows) < limit:
                connection.execute(sa.text("SET LOCAL enable_indexscan = off"))
                rows = connection.execute(sql, parameters).all()
        return [(Row(row[0], dict(zip(HIT_KEYS, row[2:], strict=True))), row[1]) for row in rows]

    def _sql(self, statement: str, **parts: str) -> sa.TextClause:
        return sa.text(statement.format(table=self._table, **parts))


def _test(condition: Condition, value: str) -> str:
    if condition.sign == "in":
        return _IS_IN.format(key=condition.key, value=value)
    return _IS_WITHIN.format(key=condition.key, sign=condition.sign, value=value)
