"""The embedded vector store: a LanceDB table, in memory or in a folder.

Not llama-index-vector-stores-lancedb (0.6): it quotes ids wrongly in `get_nodes` and `delete`, appends a second row for
an id that is there already, keeps metadata in a struct that the first node fixes, measures squared L2 distances, and
cannot hold nodes without embeddings, which lexical search needs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_pack_densex.stores.filters import matches
from llama_pack_densex.stores.lance_conditions import IDS_A_CONDITION, any_of, query_condition, quote
from llama_pack_densex.stores.loaded import Unchanged
from llama_pack_densex.stores.manifest import InvalidIndexError
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

_TABLE = "nodes"
_RECORD_COLUMNS = tuple(field.name for field in fields(NodeRecord))
_TEXT_COLUMNS = (*_RECORD_COLUMNS, "node")
_ROWS_A_BATCH = 1024  # LanceDB stores and reads batches as they come; large ones cost a search two thirds of its time
_MOST_ROWS = 2**32 - 1  # LanceDB takes no larger limit


class LanceVectorStore(BasePydanticVectorStore):
    """Keeps nodes, and their embeddings where they have any, in one LanceDB table.

    Writing a node whose id is there replaces it. Similarity is the cosine. A store whose nodes have no embeddings
    holds text only and answers no query.

    Search is exact. Embeddings of up to 512 MiB are kept in memory from the first question after a change on, since
    LanceDB takes several times as long to go through them.

    Args:
        uri: A folder, or "memory://" for a store that lives as long as this object.

    Raises:
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in dimension.
    """

    stores_text: bool = True
    uri: str = "memory://"

    _connection: Any = PrivateAttr()
    _table: Any = PrivateAttr(default=None)
    _dimension: int | None = PrivateAttr(default=None)  # LanceDB takes a millisecond to tell its schema
    _unchanged: Unchanged = PrivateAttr(default_factory=Unchanged)  # another one after each change

    def __init__(self, uri: str | Path = "memory://", **kwargs: Any) -> None:
        given = {"uri": str(uri), **kwargs}
        super().__init__(**given)
        self._connection = lancedb.connect(self.uri)
        if self.uri != "memory://" and (Path(self.uri) / f"{_TABLE}.lance").exists():
            with self._reading():
                self._table = self._connection.open_table(_TABLE)
                self._dimension = _dimension_of(self._table.schema)

    @classmethod
    def class_name(cls) -> str:
        return "LanceVectorStore"

    @property
    def client(self) -> Any:
        """The LanceDB connection."""
        return self._connection

    @property
    def dimension(self) -> int | None:
        """The dimension of the embeddings; None where there are none."""
        return self._dimension

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those whose ids are there, in one transaction."""
        if not nodes:
            return []
        dimensions = {len(node.embedding) if node.embedding is not None else None for node in nodes}
        if self._table is not None:
            dimensions.add(self.dimension)
        if len(dimensions) != 1:
            raise ValueError(
                f"nodes of one store must all have embeddings of one dimension, or none; found {_named(dimensions)}. "
                "Embed all of them with one model, or build the index anew."
            )
        (dimension,) = dimensions
        rows = _to_arrow({node.node_id: node for node in nodes}.values(), dimension)
        with self._changing():
            if self._table is None:
                self._table = self._connection.create_table(_TABLE, rows)
                self._dimension = dimension
            else:
                merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows)
        return [node.node_id for node in nodes]

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Read nodes by id, in the order of the ids, by metadata, or by both; an empty list of ids means no node."""
        if node_ids is None:
            nodes = [_to_node(row) for row in self._rows(["node"])]
        else:
            found = {row["id"]: row for row in self._rows_of(node_ids)}
            nodes = [_to_node(found[node_id]) for node_id in node_ids if node_id in found]
        return [node for node in nodes if matches(node.metadata, filters)]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        if self._table is not None:
            with self._changing():
                self._table.delete(f"document_id = {quote(ref_doc_id)}")

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by metadata, or by both; an empty list of ids deletes nothing."""
        if filters is not None:
            node_ids = [node.node_id for node in self.get_nodes(node_ids, filters)]
        if self._table is not None and node_ids:
            with self._changing():
                for condition in any_of("id", node_ids):
                    self._table.delete(condition)

    def clear(self) -> None:
        """Delete all nodes."""
        if self._table is not None:
            with self._changing():
                self._connection.drop_table(_TABLE)
                self._table = self._dimension = None

    def erase_deleted(self) -> None:
        """Write all rows anew, since LanceDB only marks deleted ones; other processes have to open the table again."""
        if self._table is not None:
            with self._changing(), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that others may be reading
                if self._table.count_rows():
                    self._table.update(values_sql={"id": "id"})
                self._table.optimize(cleanup_older_than=timedelta(0))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes nearest to an embedding by cosine; filtered ones are dropped and more fetched in their place."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"LanceVectorStore answers queries of mode 'default' only, not {query.mode.value!r}")
        limit = wanted = max(query.similarity_top_k, 0)
        while True:
            rows = self._nearest(query.query_embedding, limit, ["node"], query_condition(query)).to_pylist()
            found = [(json.loads(row["node"]), 1.0 - row["_distance"]) for row in rows]
            kept = [(content, score) for content, score in found if matches(_metadata(content), query.filters)]
            if len(kept) >= wanted or len(rows) < limit:
                break
            limit *= 4
        nodes = [json_to_doc(content) for content, _ in kept[:wanted]]
        return VectorStoreQueryResult(
            nodes=nodes,
            similarities=[score for _, score in kept[:wanted]],
            ids=[node.node_id for node in nodes],
        )

    def nearest(
        self, embedding: Sequence[float], limit: int, passage_ids: Sequence[str] | None = None
    ) -> list[tuple[NodeRecord, float]]:
        """The nodes nearest to an embedding, in short, with their cosines.

        Args:
            embedding: Of the store's dimension.
            limit: How many.
            passage_ids: Only these passages and the units that lead to them; None means all nodes.
        """
        rows = self._nearest(embedding, limit, list(_RECORD_COLUMNS), passage_ids=passage_ids)
        records = map(NodeRecord, *(rows[name].to_pylist() for name in _RECORD_COLUMNS))
        return [
            (record, 1.0 - distance) for record, distance in zip(records, rows["_distance"].to_pylist(), strict=True)
        ]

    def passage_metadata(self) -> dict[str, dict[str, Any]]:
        """The metadata of all passages by id."""
        rows = self._rows(["id", "node"], "granularity = 'passage'")
        return {row["id"]: _metadata(json.loads(row["node"])) for row in rows}

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents by id."""
        rows = self._rows(["document_id", "document_hash", "file"], "document_hash != ''")
        return {row["document_id"]: DocumentRecord(row["document_hash"], row["file"]) for row in rows}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        """The ids of all nodes of some documents."""
        conditions = any_of("document_id", document_ids)
        return {row["id"] for condition in conditions for row in self._rows(["id"], condition)}

    def records(self) -> Iterator[NodeRecord]:
        """All nodes in short, without parsing them."""
        return (NodeRecord(**row) for row in self._rows(list(_RECORD_COLUMNS)))

    def copy_to(self, folder: Path) -> None:
        """Write the whole table into an empty folder."""
        if self._table is not None:
            lancedb.connect(str(folder)).create_table(_TABLE, self._table.to_arrow())

    def _nearest(
        self,
        embedding: Sequence[float] | None,
        limit: int,
        columns: list[str],
        condition: str = "",
        passage_ids: Sequence[str] | None = None,
    ) -> Any:
        """An Arrow table, nearest first, of these columns and `_distance`."""
        if self._table is None or limit <= 0:
            return pa.table({name: pa.array([], pa.string()) for name in (*columns, "_distance")})
        if embedding is None or self.dimension is None:
            raise ValueError("a vector query needs a query embedding, and a store whose nodes have embeddings")
        if len(embedding) != self.dimension:
            raise ValueError(
                f"the query has {len(embedding)} dimensions, the index {self.dimension}: it was made with "
                "another embedding model; use that one, or build the index anew"
            )
        with self._reading():
            loaded = None if condition else self._unchanged.load(self._table, _RECORD_COLUMNS, self.dimension)
            if loaded is not None:
                places, cosines = loaded.nearest(embedding, limit, passage_ids)
                rows = loaded.rows(self._table, places, columns)
                if rows is not None:
                    return rows.append_column("_distance", pa.array(1 - cosines))
            if passage_ids is not None:
                ids = ", ".join(map(quote, passage_ids)) or "''"
                condition = f"passage_id IN ({ids}) OR id IN ({ids})"
            search = self._table.search(list(embedding), vector_column_name="vector")
            if condition:
                search = search.where(condition, prefilter=True)
            search = search.distance_type("cosine").select([*columns, "_distance"]).limit(min(limit, _MOST_ROWS))
            return search.to_arrow()

    def _rows_of(self, node_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The ids and nodes of some rows, in any order."""
        loaded = self._unchanged.loaded
        if loaded is not None and len(node_ids) <= IDS_A_CONDITION:
            with self._reading():
                rows = loaded.rows(self._table, loaded.places_of(node_ids), ["id", "node"])
            if rows is not None:
                yield from rows.to_pylist()
                return
        for condition in any_of("id", node_ids):
            yield from self._rows(["id", "node"], condition)

    def _rows(self, columns: list[str], condition: str | None = None) -> Iterator[dict[str, Any]]:
        if self._table is None:
            return
        search = self._table.search().select(columns)
        if condition:
            search = search.where(condition)
        with self._reading():
            batches = search.to_arrow().to_batches()
        for batch in batches:
            yield from batch.to_pylist()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Forget what is loaded, after a change and also where one failed half-way."""
        try:
            yield
        finally:
            self._unchanged = Unchanged()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what LanceDB raises over damaged files into an error that names the index."""
        try:
            yield
        except BaseException as error:
            # a damaged file can make the Rust library panic, which is no Exception and has no importable class
            if isinstance(error, (OSError, RuntimeError, ValueError)) or type(error).__name__ == "PanicException":
                raise InvalidIndexError(
                    f"the index in {self.uri} cannot be read: a file in it is damaged or missing "
                    f"({type(error).__name__}). Build the index anew, or restore the folder from a backup."
                ) from error
            raise


def _to_arrow(nodes: Any, dimension: int | None) -> pa.Table:
    nodes = list(nodes)
    records = [NodeRecord.of(node) for node in nodes]
    columns: dict[str, Any] = {
        name: pa.array([getattr(record, name) for record in records], pa.string()) for name in _RECORD_COLUMNS
    }
    columns["node"] = pa.array([_to_json(node) for node in nodes], pa.string())
    if dimension is not None:
        columns["vector"] = pa.array([node.embedding for node in nodes], pa.list_(pa.float32(), dimension))
    rows = pa.table(columns)
    return pa.Table.from_batches(rows.to_batches(max_chunksize=_ROWS_A_BATCH), rows.schema)


def _dimension_of(schema: Any) -> int | None:
    return int(schema.field("vector").type.list_size) if "vector" in schema.names else None


def _to_json(node: BaseNode) -> str:
    bare = node.model_copy(update={"embedding": None})
    try:
        return json.dumps(doc_to_json(bare), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metadata of document {node.ref_doc_id!r} cannot be kept as JSON ({error}); use strings, numbers, "
            "booleans, lists and dictionaries"
        ) from error


def _metadata(content: dict[str, Any]) -> dict[str, Any]:
    """The metadata in what `doc_to_json` made of a node."""
    metadata: dict[str, Any] = content["__data__"]["metadata"]
    return metadata


def _to_node(row: dict[str, Any]) -> BaseNode:
    return json_to_doc(json.loads(row["node"]))


def _named(dimensions: set[int | None]) -> str:
    return " and ".join(sorted("none" if d is None else f"{d} dimensions" for d in dimensions))
