"""The embedded store: an SQLite file with nodes, embeddings and tokens, and an HNSW graph over the
embeddings; and the same store as LlamaIndex's own classes see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Protocol, TypeVar

import numpy as np
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.constants import DATA_KEY
from llama_index.core.schema import BaseNode, NodeRelationship
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_pack_densex.index import keywords, nearest, rows
from llama_pack_densex.index.compression import compress, decompress
from llama_pack_densex.index.database import Database, select_by_row, select_by_text
from llama_pack_densex.index.filters import Passing, matches
from llama_pack_densex.index.keywords import Rows
from llama_pack_densex.index.node_store import (
    DocumentRecord,
    DocumentRecords,
    FoundNode,
    Ids,
    KnownDocuments,
    NodeLinks,
    NodeRecord,
    Nodes,
    NodeStore,
    check_question,
    granularity_of,
    kept_as_json,
    look_further,
    same_dimension,
)
from llama_pack_densex.index.words import Words, words_in

NODES_FILE = "nodes.db"
"""The name of the database's file in an index's data folder."""

T = TypeVar("T")

_SCHEMA = f"""
{rows.SCHEMA}
{keywords.SCHEMA}
{nearest.SCHEMA}
CREATE TABLE IF NOT EXISTS contents (
    row INTEGER PRIMARY KEY,
    text TEXT NOT NULL,
    section TEXT NOT NULL,
    document_hash TEXT NOT NULL,
    file TEXT NOT NULL,
    metadata TEXT NOT NULL,
    span_start INTEGER,
    span_end INTEGER,
    unverified INTEGER NOT NULL,
    node BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, hash TEXT NOT NULL, file TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS documents_by_hash ON documents (hash);
CREATE INDEX IF NOT EXISTS documents_by_file ON documents (file) WHERE file != '';
"""
_RECORD = (
    "nodes.row, id, document_id, granularity, passage_id, text, status, section, document_hash, file, "
    "metadata, span_start, span_end, unverified"
)
_INSERT_CONTENT = (
    "INSERT INTO contents VALUES (:row, :text, :section, :document_hash, :file, :metadata, :span_start, "
    ":span_end, :unverified, :node)"
)
_RELATIONSHIPS = f"$.{DATA_KEY}.relationships"
# extracted by SQLite, which parses a node's JSON in a third of the time
_LINKS = (
    f"json_extract(decompress(node), '{_RELATIONSHIPS}.\"{NodeRelationship.PARENT.value}\".node_id', "
    f"'{_RELATIONSHIPS}.\"{NodeRelationship.CHILD.value}\"')"
)
_OURS = "granularity != ''"  # excludes nodes that other programs wrote to the same database

# keys of the notes in the database
_VERSION = "version"
# of the embeddings; "none" if the nodes have none, empty if there are no nodes
_DIMENSION = "dimension"
_TOKENIZER = "tokenizer"  # which tokenizer made the tokens, as in `Words.note`
_HAS_WORDLESS = "wordless"  # not empty if some nodes lack tokens made by that tokenizer
_MANIFEST = "manifest"

_NONE = "none"
_RECORDS_AT_ONCE = 500


class Keeper(Protocol):
    """The object through which LlamaIndex's own classes read and change the nodes."""

    def reading(self, read: Callable[[], T]) -> T: ...

    def changing(self) -> AbstractContextManager[None]: ...


class EmbeddedNodes(NodeStore):
    """Nodes in an SQLite database, with their embeddings, if they have any, and their tokens.

    Other processes and threads see changes only when they are committed, and then all of them together.

    Args:
        folder: The folder of the database's file; None for a database in memory.

    Attributes:
        words: The tokenizer for nodes that are written; None continues with the one that made the existing
            tokens.
        vectors: The embeddings, and the graph over them.
        keeper: These nodes themselves, or the index that keeps them in step with a folder.
    """

    words: Words | None = None

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.keeper: Keeper = self
        self.folder = folder
        self.database = Database(folder and folder / NODES_FILE, _SCHEMA)
        self.vectors = nearest.VectorTable(self.database, folder)
        if self.database.is_a_copy:
            # a file copied while it was written to may mix pages of several states: refuse it
            self.database.check()
            finding = self.inconsistency()
            if finding:
                raise self.database.damage(finding)
            self.database.accept_copy()
        self.vectors.prepare()

    @property
    def vector_store(self) -> EmbeddedVectorStore:  # type: ignore[override]  # not stored: no reference cycle
        return EmbeddedVectorStore(self.folder, nodes=self)

    @property
    def dimension(self) -> int | None:
        dimension = self.database.note(_DIMENSION)
        if dimension in ("", _NONE):
            return None
        return int(dimension)

    @property
    def version(self) -> str:
        """The number of the last change, padded with zeros to twelve digits."""
        return self.database.note(_VERSION).zfill(12)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self.database.reading():
            yield

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Commit the changes made within, or none of them if an exception is raised."""
        try:
            yield
        except BaseException:
            self.roll_back()
            raise
        self.commit()

    def reload(self, folder: Path, version: str) -> None:
        if folder != self.folder or self.database.is_replaced:
            opened = EmbeddedNodes(folder)  # if it cannot be read, nothing changes here
            self.database.close()
            self.folder = folder
            self.database = opened.database
            self.vectors = opened.vectors
            self._passing = {}

    def commit(self) -> None:
        self.database.commit()

    def roll_back(self) -> None:
        self.database.roll_back()

    def replace(self, document_ids: Ids, nodes: Nodes, node_ids: Ids = ()) -> None:
        """Replace nodes as every store does, and delete those with the given ids."""
        distinct = {node.node_id: node for node in nodes}
        contents = [_content_of(node) for node in distinct.values()]
        records = [NodeRecord.of(node) for node in distinct.values()]
        with self._change() as connection:
            old_rows = [
                *rows.rows_of_documents(connection, document_ids),
                *rows.rows_with_ids(connection, [*distinct, *node_ids]),
            ]
            self._remove(connection, {row.row for row in old_rows})
            numbers = self._add(connection, records, contents)
            self._add_vectors(connection, numbers, list(distinct.values()))
            self._add_words(connection, dict(zip(numbers, records, strict=True)))
            changed_documents = set(document_ids)
            changed_documents.update(row.document_id for row in old_rows)
            changed_documents.update(record.document_id for record in records)
            _update_documents(connection, changed_documents)

    @contextmanager
    def _change(self) -> Iterator[Connection]:
        """Make one change in a savepoint: if it fails half-way, nothing of it remains."""
        connection = self.database.writing()
        with self.database.explaining_errors():
            try:
                connection.execute("SAVEPOINT change")
                yield connection
                self.database.set_note(_VERSION, str(int(self.database.note(_VERSION) or 0) + 1))
                connection.execute("RELEASE change")
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended the transaction
                    connection.execute("ROLLBACK TO change")
                    connection.execute("RELEASE change")
                else:
                    self.database.roll_back()
                raise

    def _remove(self, connection: Connection, old: Collection[int]) -> None:
        if not old:
            return
        rows.remove_rows(connection, old)
        keywords.remove_words(connection, old)
        self.vectors.remove(connection, old)
        select_by_row(connection, "DELETE FROM contents WHERE row IN", old)
        if _is_empty(connection):
            self.database.set_note(_DIMENSION, "")

    def _add(
        self, connection: Connection, records: Sequence[NodeRecord], contents: Sequence[bytes]
    ) -> list[int]:
        numbers = rows.add_rows(connection, records)
        values = []
        for number, record, content in zip(numbers, records, contents, strict=True):
            start, end = record.span or (None, None)
            columns = {"row": number, "span_start": start, "span_end": end, "node": content}
            values.append(vars(record) | columns)
        connection.executemany(_INSERT_CONTENT, values)
        return numbers

    def _add_vectors(self, connection: Connection, numbers: Sequence[int], nodes: Nodes) -> None:
        searched_rows = []
        embeddings = []
        dimensions = {self.database.note(_DIMENSION)} - {""}
        for number, node in zip(numbers, nodes, strict=True):
            if granularity_of(node) == "section":
                continue
            searched_rows.append(number)
            embeddings.append(node.embedding)
            dimensions.add(_NONE if node.embedding is None else str(len(node.embedding)))
        dimension = same_dimension(dimensions)
        if dimension is None:
            return
        self.database.set_note(_DIMENSION, dimension)
        if dimension != _NONE:
            self.vectors.add(connection, searched_rows, np.array(embeddings, np.float32))

    def _add_words(self, connection: Connection, records: dict[int, NodeRecord]) -> None:
        if not records:
            return
        tokenizer = self.tokenizer_note
        words = self.words or _own_words(tokenizer)
        if not _has_any(connection, f"SELECT 1 FROM nodes WHERE row < {min(records)}"):
            tokenizer = "" if words is None else words.note
            self.database.set_note(_TOKENIZER, tokenizer)
            self.database.set_note(_HAS_WORDLESS, "")
        if words is None or words.note != tokenizer:
            self.database.set_note(_HAS_WORDLESS, "yes")
        else:
            words.add(connection, records)

    @property
    def tokenizer_note(self) -> str:
        """The description of the tokenizer that made the nodes' tokens, as in `Words.note`; empty if there
        are no tokens."""
        return self.database.note(_TOKENIZER)

    def has_words_of(self, words: Words) -> bool:
        """Return whether the database has this tokenizer's tokens of all nodes."""
        with self.database.reading() as connection:
            if self.tokenizer_note == words.note and not self.database.note(_HAS_WORDLESS):
                return True
            return _is_empty(connection)

    def update_words(self) -> None:
        """Tokenize all nodes again if some have no tokens, or tokens of another tokenizer than `words`."""
        if self.words is not None and not self.has_words_of(self.words):
            self.rebuild_words()

    def rebuild_words(self) -> None:
        """Tokenize all nodes again, unless their tokenizer is a user's function that was not passed here."""
        words = self.words or _own_words(self.tokenizer_note)
        if words is None:
            return
        with self._change() as connection:
            keywords.clear_words(connection)
            # passages after units: a passage's tokens include those of its units
            for condition in ("passage_id != ''", "granularity = 'passage'"):
                for page in iter_batch(self._records_by_row(condition), _RECORDS_AT_ONCE):
                    words.add(connection, dict(page))
            self.database.set_note(_TOKENIZER, words.note)
            self.database.set_note(_HAS_WORDLESS, "")

    def maintain(self, midway: bool = False) -> bool:
        return self.vectors.maintain(midway)

    def clean(self, older_than: timedelta) -> None:
        self.vectors.clean(older_than)
        self.database.empty_log()

    def compact(self) -> None:
        self._compress_nodes()
        self.database.vacuum()
        self.vectors.leave_no_trace()

    def _compress_nodes(self) -> None:
        """Compress the nodes that an earlier version wrote as text."""
        is_text = "typeof(node) = 'text'"
        with self.database.reading() as connection:
            if not _has_any(connection, f"SELECT 1 FROM contents WHERE {is_text}"):
                return
        with self._change() as connection:
            connection.execute(f"UPDATE contents SET node = compress(node) WHERE {is_text}")

    def copy_to(self, folder: Path, version: str) -> None:
        self.database.copy_to(folder / NODES_FILE)
        self.vectors.copy_graph(folder)
        copy = EmbeddedNodes(folder)
        copy.vectors.leave_no_trace()  # builds the graph that could not be copied
        copy.database.close()

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        contents = self._contents(node_ids)
        in_order = [node_id for node_id in node_ids if node_id in contents]
        return {node_id: self._node_of(contents[node_id]) for node_id in in_order}

    def links(self, node_ids: Ids) -> dict[str, NodeLinks]:
        links = self._contents(node_ids, _LINKS)
        return {node_id: _links_in(of_node) for node_id, of_node in links.items()}

    def _contents(self, node_ids: Ids, column: str = "node") -> dict[str, Any]:
        select = f"SELECT id, {column} FROM nodes JOIN contents USING (row) WHERE id IN"
        with self.database.reading() as connection:
            return dict(select_by_text(connection, select, node_ids))

    def records_with_ids(self, node_ids: Ids) -> dict[str, NodeRecord]:
        records = self._records_selected("id IN", node_ids)
        return {record.id: record for record in records}

    def records_of(self, document_ids: Ids, granularity: str | None = None) -> Iterator[NodeRecord]:
        records = self._records_selected(f"{_OURS} AND document_id IN", document_ids)
        return (record for record in records if granularity in (None, record.granularity))

    def _records_selected(self, condition: str, texts: Ids) -> list[NodeRecord]:
        with self.database.reading() as connection:
            select = f"SELECT {_RECORD} FROM nodes JOIN contents USING (row) WHERE {condition}"
            return [_record_of(values) for values in select_by_text(connection, select, texts)]

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        with self.database.reading():
            passing = self.passing(question.filters)
            allowed = None if passing is None else passing.rows
            return self.nearest_nodes(question.query_embedding, question.similarity_top_k, allowed)

    def nearest_nodes(
        self, embedding: Sequence[float] | None, limit: int, allowed: Rows | None = None
    ) -> list[FoundNode]:
        """Return the nodes nearest to an embedding, of any granularity, nearest first.

        Args:
            embedding: The query embedding, of the same dimension as the stored ones.
            limit: The number of nodes.
            allowed: The rows to search, in ascending order; None means all.

        Raises:
            ValueError: There is no query embedding, the nodes have none, or the dimensions differ.
        """
        with self.database.reading() as connection:
            if limit <= 0 or _is_empty(connection):
                return []
            dimension = self.dimension
            if embedding is None or dimension is None:
                raise ValueError(
                    "a vector query needs a query embedding, and a store whose nodes have embeddings"
                )
            check_question(embedding, dimension)
            return self.vectors.search(
                connection, np.asarray(embedding, np.float32), limit, allowed
            )

    def rows_of(self, node_ids: Ids | None, document_ids: Ids | None) -> Rows | None:
        """Return the rows of the nodes that have one of these ids and are in one of these documents.

        An empty argument does not restrict the nodes; None is returned if both are empty.
        """
        if not node_ids and not document_ids:
            return None
        with self.database.reading() as connection:
            if node_ids:
                candidates = rows.rows_with_ids(connection, node_ids)
            else:
                candidates = rows.rows_of_documents(connection, document_ids or [])
        if document_ids:
            candidates = [row for row in candidates if row.document_id in document_ids]
        return np.array([row.row for row in candidates], np.int64)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        if granularity is None:
            by_row = self._records_by_row(_OURS)
        else:
            by_row = self._records_by_row("granularity = ?", granularity)
        return (record for _, record in by_row)

    def _records_by_row(self, condition: str, *arguments: str) -> Iterator[tuple[int, NodeRecord]]:
        """Return the records of the nodes that meet an SQL condition, with their rows."""
        select = (
            f"SELECT {_RECORD} FROM nodes JOIN contents USING (row) "
            f"WHERE {condition} AND nodes.row > ? ORDER BY nodes.row LIMIT ?"
        )
        return ((values[0], _record_of(values)) for values in self.database.rows(select, arguments))

    def all_nodes(self) -> Iterator[BaseNode]:
        """Return all nodes, including those that our parsers did not make."""
        select = "SELECT row, node FROM contents WHERE row > ? ORDER BY row LIMIT ?"
        return (self._node_of(content) for _, content in self.database.rows(select))

    def _node_of(self, content: bytes | str) -> BaseNode:
        try:
            return json_to_doc(json.loads(decompress(content)))
        except (ValueError, KeyError) as error:
            raise self.database.damage(f"a node is not readable: {type(error).__name__}") from error

    def all_ids(self) -> list[str]:
        """Return the ids of all nodes, including those that our parsers did not make."""
        select = "SELECT row, id FROM nodes WHERE row > ? ORDER BY row LIMIT ?"
        return [node_id for _, node_id in self.database.rows(select)]

    def documents(self) -> DocumentRecords:
        return self._documents_where("1")

    def known_documents(self) -> KnownDocuments:
        return _DocumentTable(self)

    def _documents_where(self, condition: str, *arguments: str) -> DocumentRecords:
        select = f"SELECT id, hash, file FROM documents WHERE {condition}"
        with self.database.reading() as connection:
            return {
                document_id: DocumentRecord(document_hash, file)
                for document_id, document_hash, file in connection.execute(select, arguments)
            }

    def node_ids(self, document_ids: Ids) -> set[str]:
        with self.database.reading() as connection:
            return {row.id for row in rows.rows_of_documents(connection, document_ids)}

    def is_empty(self) -> bool:
        with self.database.reading() as connection:
            return not _has_any(connection, f"SELECT 1 FROM nodes WHERE {_OURS}")

    def _kinds(self) -> Iterator[tuple[Any, ...]]:
        with self.database.reading() as connection:
            select = f"SELECT document_id, granularity, status FROM nodes WHERE {_OURS}"
            return iter(connection.execute(select).fetchall())

    def bad_vectors(self) -> Iterator[tuple[str, str]]:
        """Yield the ids of nodes whose embedding is missing, zero or not finite, and of their documents."""
        if self.dimension is None:
            return
        select = (
            "SELECT row, id, document_id, vector FROM nodes LEFT JOIN vectors USING (row) "
            f"WHERE {_OURS} AND granularity != 'section' AND row > ? ORDER BY row LIMIT ?"
        )
        for _, node_id, document_id, vector in self.database.rows(select):
            length = 0.0
            if vector is not None:
                length = float(np.linalg.norm(np.frombuffer(vector, np.float32)))
            if not np.isfinite(length) or not length:
                yield node_id, document_id

    def wrong_words(self) -> str:
        """Return what is wrong with the nodes' tokens; empty if nothing is, or there are no tokens."""
        without_words = (
            "SELECT 1 FROM nodes LEFT JOIN words USING (row) "
            "WHERE granularity = 'passage' AND words.row IS NULL"
        )
        with self.database.reading() as connection:
            if not self.tokenizer_note:
                return ""
            if _has_any(connection, without_words) or self.database.note(_HAS_WORDLESS):
                return "passages have no words"
            return keywords.inconsistency(connection)

    def inconsistency(self) -> str:
        """Return a description of the first contradiction between the tables; empty if there is none."""
        queries = {
            "nodes without content": (
                "SELECT 1 FROM nodes LEFT JOIN contents USING (row) WHERE contents.row IS NULL"
            ),
            "content without a node": (
                "SELECT 1 FROM contents LEFT JOIN nodes USING (row) WHERE nodes.row IS NULL"
            ),
            "words without a node": (
                "SELECT 1 FROM words LEFT JOIN nodes USING (row) WHERE nodes.row IS NULL"
            ),
            "vectors without a node": (
                "SELECT 1 FROM vectors LEFT JOIN nodes USING (row) WHERE nodes.row IS NULL"
            ),
            "documents without a node": (
                "SELECT 1 FROM documents WHERE id NOT IN (SELECT document_id FROM nodes)"
            ),
            "units without a passage": (
                "SELECT 1 FROM nodes WHERE passage_id != '' AND passage_id NOT IN (SELECT id FROM nodes)"
            ),
        }
        with self.database.reading() as connection:
            for finding, query in queries.items():
                if _has_any(connection, query):
                    return finding
            return keywords.inconsistency(connection)

    def _passing_now(self, filters: MetadataFilters, earlier: Passing) -> Passing:
        """Return what passes the filters, extending an earlier result.

        Rows never change, so only those written after the earlier result are read. Rows that were deleted
        since stay in it, which does no harm; a passage that was written again has a new, later row.
        """
        select = (
            "SELECT row, id, metadata FROM nodes JOIN contents USING (row) "
            "WHERE granularity = 'passage' AND row > ? ORDER BY row"
        )
        with self.database.reading() as connection:
            state = self.state
            if state == earlier.state:
                return earlier
            later = connection.execute(select, (earlier.read_to,)).fetchall()
            passed = {
                node_id: row
                for row, node_id, metadata in later
                if matches(json.loads(metadata), filters)
            }
            written_again = earlier.ids.intersection(node_id for _, node_id, _ in later)
            of_earlier = [*rows.hits_in_passages(connection, written_again)]
            of_later = [*rows.hits_in_passages(connection, passed)]
        ids = (earlier.ids - written_again).union(passed)
        all_rows = np.union1d(
            np.setdiff1d(earlier.rows, of_earlier),
            np.array([*passed.values(), *of_later], np.int64),
        )
        last_row = later[-1][0] if later else earlier.read_to
        return Passing(ids, rows=all_rows, database=self.database, state=state, read_to=last_row)

    def read_about(self) -> str | None:
        return self.database.note(_MANIFEST) or None

    def write_about(self, text: str) -> None:
        if text != self.read_about():
            self.database.set_note(_MANIFEST, text)


class EmbeddedVectorStore(BasePydanticVectorStore):
    """A vector store that keeps nodes, and their embeddings if they have any, in an SQLite database.

    Writing a node replaces the node with the same id. Similarity is the cosine. A store whose nodes have no
    embeddings holds only text and answers no queries.

    Args:
        folder: The folder of the database; None for a store that lives as long as this object.
        nodes: The nodes to use, if they have been opened already.

    Raises:
        InvalidIndexError: A file is damaged.
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in
            dimension.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> store = EmbeddedVectorStore()
        >>> store.add([TextNode(id_="a", text="Tea is grown in Uji.", embedding=[1.0, 0.0])])
        ['a']
    """

    stores_text: bool = True
    folder: str | None = None

    _nodes: EmbeddedNodes = PrivateAttr()

    def __init__(
        self, folder: str | Path | None = None, nodes: EmbeddedNodes | None = None, **kwargs: Any
    ) -> None:
        path = None if folder is None else Path(folder)
        super().__init__(**{"folder": path and str(path), **kwargs})
        self._nodes = nodes or EmbeddedNodes(path)

    @classmethod
    def class_name(cls) -> str:
        return "EmbeddedVectorStore"

    @property
    def client(self) -> Any:
        """The database."""
        return self._nodes.database

    @property
    def nodes(self) -> EmbeddedNodes:
        """The nodes, for operations that LlamaIndex's interface lacks."""
        return self._nodes

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those with the same ids, in one transaction."""
        if nodes:
            with self._nodes.keeper.changing():
                self._nodes.replace([], nodes)
        return [node.node_id for node in nodes]

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Read nodes by id (in the order of the ids), by metadata or by both; an empty list of ids means no
        nodes."""
        return self._nodes.keeper.reading(lambda: self._read(node_ids, filters))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        with self._nodes.keeper.changing():
            self._nodes.replace([ref_doc_id], [])

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id, by metadata or by both; an empty list of ids deletes nothing."""
        with self._nodes.keeper.changing():
            if filters is not None:
                node_ids = [node.node_id for node in self._read(node_ids, filters)]
            self._nodes.replace([], [], node_ids or [])

    def clear(self) -> None:
        """Delete all nodes."""
        with self._nodes.keeper.changing():
            self._nodes.replace([], [], self._nodes.all_ids())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to an embedding by cosine; nodes that fail the filters are dropped, and
        more are fetched in their place.

        Raises:
            ValueError: The query has another mode than "default", or its embedding is missing or has another
                dimension than the stored ones.
        """
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(
                f"EmbeddedVectorStore answers only queries of mode 'default', not {query.mode.value!r}"
            )
        return self._nodes.keeper.reading(lambda: self._search(query))

    def _read(
        self, node_ids: Sequence[str] | None, filters: MetadataFilters | None
    ) -> list[BaseNode]:
        if node_ids is None:
            return [node for node in self._nodes.all_nodes() if matches(node.metadata, filters)]
        nodes = self._nodes.fetch(node_ids).values()
        return [node for node in nodes if matches(node.metadata, filters)]

    def _search(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        candidates = self._nodes.rows_of(query.node_ids, query.doc_ids)

        def find(limit: int) -> tuple[list[tuple[BaseNode, float]], int]:
            hits = self._nodes.nearest_nodes(query.query_embedding, limit, candidates)
            scores = {hit.id: hit.score for hit in hits}
            nodes = self._read(list(scores), query.filters)
            return [(node, scores[node.node_id]) for node in nodes], len(hits)

        best = look_further(find, query.similarity_top_k, query.similarity_top_k)
        nodes = [node for node, _ in best]
        scores = [score for _, score in best]
        return VectorStoreQueryResult(nodes, scores, [node.node_id for node in nodes])


class _DocumentTable(KnownDocuments):
    """The documents as they are in the database at the moment of each call."""

    def __init__(self, nodes: EmbeddedNodes) -> None:
        self._nodes = nodes

    def get(self, document_id: str) -> DocumentRecord | None:
        return self._nodes._documents_where("id = ?", document_id).get(document_id)

    def with_hash(self, document_hash: str) -> DocumentRecords:
        return self._nodes._documents_where("hash = ?", document_hash)

    def in_file(self, file: str) -> DocumentRecords:
        return self._nodes._documents_where("file != '' AND file = ?", file)

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Do nothing: the database itself has changed."""


def _own_words(note: str) -> Words | None:
    """Return the tokenizer that a note describes; None unless it is one of this package's."""
    words = words_in(note)
    if not isinstance(words, Words):
        return None
    return words


def _is_empty(connection: Connection) -> bool:
    return not _has_any(connection, "SELECT 1 FROM nodes")


def _has_any(connection: Connection, select: str) -> bool:
    """Return whether a query selects any row."""
    return connection.execute(f"{select} LIMIT 1").fetchone() is not None


def _update_documents(connection: Connection, document_ids: Ids) -> None:
    """Update the hash and file of changed documents from the first base node of each."""
    for document_id in document_ids:
        first = connection.execute(
            "SELECT document_hash, file FROM nodes JOIN contents USING (row) "
            "WHERE document_id = ? AND document_hash != '' ORDER BY row LIMIT 1",
            (document_id,),
        ).fetchone()
        if first is None:
            connection.execute("DELETE FROM documents WHERE id = ?", (document_id,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (document_id, *first)
            )


def _record_of(values: Sequence[Any]) -> NodeRecord:
    _, *fields, start, end, is_unverified = values
    span = None if start is None else (start, end)
    fields += [span, bool(is_unverified)]
    return NodeRecord(*fields)


def _content_of(node: BaseNode) -> bytes:
    as_json = doc_to_json(node.model_copy(update={"embedding": None}))
    return compress(kept_as_json(as_json, node.ref_doc_id))


def _links_in(links: str) -> NodeLinks:
    """Parse the links of a node, as `_LINKS` selects them."""
    parent_id, children = json.loads(links)
    return NodeLinks(parent_id, tuple(child["node_id"] for child in children or ()))
