"""The embedded vector store: one SQLite file with nodes, embeddings and tokens, and a graph over the embeddings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
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

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores import keywords, nearest, rows
from llama_pack_densex.stores.database import (
    ABOUT_SCHEMA,
    Database,
    get_note,
    number_lists,
    select_by_text,
    set_note,
)
from llama_pack_densex.stores.filters import Passing, matches
from llama_pack_densex.stores.keywords import Rows
from llama_pack_densex.stores.node_store import (
    DocumentRecord,
    FoundNode,
    NodeRecord,
    NodeStore,
    check_question,
    kept_as_json,
    look_further,
    same_dimension,
)
from llama_pack_densex.stores.words import Words, words_in

FILE = "nodes.sqlite"
"""In the folder of an index's data."""
IN_MEMORY = "memory"

_SCHEMA = f"""
{ABOUT_SCHEMA}
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
    node TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, hash TEXT NOT NULL, file TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS documents_by_hash ON documents (hash);
CREATE INDEX IF NOT EXISTS documents_by_file ON documents (file) WHERE file != '';
"""
_RECORD = (
    "nodes.row, id, document_id, granularity, passage_id, text, status, section, document_hash, file, metadata, "
    "span_start, span_end, unverified"
)
_OURS = "granularity != ''"  # what others wrote into the same database stays out of the index

_VERSION = "version"
_DIMENSION = "dimension"  # of the embeddings; "none" where nodes have none, empty where there are no nodes
_WORDS = "words"  # what tells the tokens of all nodes; empty where some have none
_MANIFEST = "manifest"
_NONE = "none"
_MOST_PASSING = 8  # filters of which it is remembered what passes them


class EmbeddedVectorStore(BasePydanticVectorStore):
    """Keeps nodes, and their embeddings where they have any, in an SQLite database.

    Writing a node whose id is there replaces it. Similarity is the cosine. A store whose nodes have no embeddings
    holds text only and answers no query.

    Args:
        folder: A folder; None for a store that lives as long as this object.
        nodes: What it writes to and reads, where that is there already.

    Raises:
        InvalidIndexError: A file is damaged.
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in dimension.
    """

    stores_text: bool = True
    folder: str | None = None

    _nodes: EmbeddedNodes = PrivateAttr()

    def __init__(self, folder: str | Path | None = None, nodes: EmbeddedNodes | None = None, **kwargs: Any) -> None:
        given = {"folder": None if folder is None else str(folder), **kwargs}
        super().__init__(**given)
        self._nodes = nodes if nodes is not None else EmbeddedNodes(None if folder is None else Path(folder))

    @classmethod
    def class_name(cls) -> str:
        return "EmbeddedVectorStore"

    @property
    def client(self) -> Any:
        """The database."""
        return self._nodes.database

    @property
    def nodes(self) -> EmbeddedNodes:
        """The nodes, for what LlamaIndex's interface has no method for."""
        return self._nodes

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those whose ids are there, in one transaction."""
        if nodes:
            with self._nodes.changing():
                self._nodes.replace([], nodes)
        return [node.node_id for node in nodes]

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Read nodes by id, in the order of the ids, by metadata, or by both; an empty list of ids means no node."""
        return self._nodes.reading_by(lambda: self._read(node_ids, filters))  # type: ignore[no-any-return]

    def _read(self, node_ids: Sequence[str] | None, filters: MetadataFilters | None) -> list[BaseNode]:
        nodes = self._nodes.all_nodes() if node_ids is None else self._nodes.fetch(node_ids).values()
        return [node for node in nodes if matches(node.metadata, filters)]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        with self._nodes.changing():
            self._nodes.replace([ref_doc_id], [])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by metadata, or by both; an empty list of ids deletes nothing."""
        with self._nodes.changing():
            if filters is not None:
                node_ids = [node.node_id for node in self._read(node_ids, filters)]
            if node_ids:
                self._nodes.delete_nodes(node_ids)

    def clear(self) -> None:
        """Delete all nodes."""
        with self._nodes.changing():
            self._nodes.delete_nodes(self._nodes.all_ids())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes nearest to an embedding by cosine; filtered ones are dropped and more fetched in their place."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"EmbeddedVectorStore answers queries of mode 'default' only, not {query.mode.value!r}")
        return self._nodes.reading_by(lambda: self._found(query))  # type: ignore[no-any-return]

    def _found(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        chosen = self._nodes.rows_of(query.node_ids, query.doc_ids)

        def find(limit: int) -> tuple[list[tuple[BaseNode, float]], int]:
            hits = self._nodes.nearest_nodes(query.query_embedding, limit, chosen)
            nodes = {node.node_id: node for node in self._read([hit.id for hit in hits], query.filters)}
            return [(nodes[hit.id], hit.score) for hit in hits if hit.id in nodes], len(hits)

        best = look_further(find, query.similarity_top_k, query.similarity_top_k)
        return VectorStoreQueryResult(
            [node for node, _ in best], [score for _, score in best], [node.node_id for node, _ in best]
        )


class EmbeddedNodes(NodeStore):
    """Nodes in an SQLite database, with all that they are searched by.

    What is changed is seen by others once it is committed, all at once.

    Args:
        folder: Where the database's file is; None for one in memory.

    Attributes:
        words: How the tokens of what is written are told; None where it is not searched by words.
        reading_by: Reads for LlamaIndex's own classes by a function, from another folder where the one that was opened
            is gone; for who keeps the folder.
        change_in: What these classes change is changed in it, and kept at its end.
        others: How many nodes that are not of our parsers are in the database.
    """

    atomic = True

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.words: Words | None = None
        self.reading_by: Callable[[Callable[[], Any]], Any] = lambda read: read()
        self.change_in: Callable[[], AbstractContextManager[None]] | None = None
        self._open(folder)

    def _open(self, folder: Path | None) -> None:
        self.folder = folder
        file = None if folder is None else folder / FILE
        self.database = Database(file, _SCHEMA, IN_MEMORY if folder is None else str(folder))
        self._vectors = nearest.VectorTable(self.database, folder)
        self._passing: dict[str, Passing] = {}

    @property
    def vector_store(self) -> EmbeddedVectorStore:  # type: ignore[override]  # not kept: they would keep one another
        return EmbeddedVectorStore(self.folder, nodes=self)

    @property
    def name(self) -> str:
        return EmbeddedVectorStore.class_name()

    @property
    def dimension(self) -> int | None:
        dimension = self._note(_DIMENSION)
        return int(dimension) if dimension not in ("", _NONE) else None

    @property
    def version(self) -> str:
        """The number of the last change; "0" before the first one."""
        return self._note(_VERSION) or "0"

    @property
    def state(self) -> object:
        return self.version

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state throughout."""
        with self.database.reading():
            yield

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the nodes for LlamaIndex's own classes, all or nothing."""
        with self.change_in() if self.change_in is not None else nullcontext():
            try:
                yield
            except BaseException:
                self.database.roll_back()
                raise
            self.database.commit()

    def reload(self, folder: Path, version: str) -> None:
        if folder != self.folder:
            self.database.close()
            self._open(folder)

    def commit(self) -> None:
        self.database.commit()

    def roll_back(self) -> None:
        self.database.roll_back()

    def replace(self, document_ids: Collection[str], nodes: Sequence[BaseNode]) -> None:
        distinct = {node.node_id: node for node in nodes}
        contents = [_content_of(node) for node in distinct.values()]
        records = [NodeRecord.of(node) for node in distinct.values()]
        with self._changing() as connection:
            old = rows.rows_of_documents(connection, document_ids) + rows.rows_with_ids(connection, distinct)
            self._remove(connection, {row.row: row for row in old})
            numbers = self._add(connection, records, contents)
            self._add_vectors(connection, numbers, list(distinct.values()))
            self._add_words(connection, numbers, records)
            touched = {*document_ids, *(row.document_id for row in old), *(one.document_id for one in records)}
            _update_documents(connection, touched)

    def delete_nodes(self, node_ids: Sequence[str]) -> None:
        """Delete nodes by id."""
        with self._changing() as connection:
            old = rows.rows_with_ids(connection, node_ids)
            self._remove(connection, {row.row: row for row in old})
            _update_documents(connection, {row.document_id for row in old})

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One change; what fails half-way leaves nothing."""
        connection = self.database.writing()
        try:
            connection.execute("SAVEPOINT change")
            yield connection
            set_note(connection, _VERSION, str(int(get_note(connection, _VERSION) or 0) + 1))
            connection.execute("RELEASE change")
        except BaseException as error:
            if connection.in_transaction:  # a full disk may have ended it
                connection.execute("ROLLBACK TO change")
                connection.execute("RELEASE change")
            else:
                self.database.roll_back()
            if isinstance(error, sqlite3.DatabaseError):
                raise self.database.error_for(error) from error
            raise

    def _remove(self, connection: sqlite3.Connection, old: dict[int, rows.NodeRow]) -> None:
        if not old:
            return
        rows.remove_rows(connection, old)
        keywords.remove_words(connection, old)
        self._vectors.remove(connection, list(old))
        for some in number_lists(old):
            connection.execute(f"DELETE FROM contents WHERE row IN ({some})")
        if connection.execute("SELECT 1 FROM nodes LIMIT 1").fetchone() is None:
            set_note(connection, _DIMENSION, "")
            set_note(connection, _WORDS, "")

    def _add(self, connection: sqlite3.Connection, records: Sequence[NodeRecord], contents: Sequence[str]) -> list[int]:
        numbers = rows.add_rows(
            connection, [(one.id, one.document_id, one.granularity, one.passage_id, one.status) for one in records]
        )
        values = (
            (
                number, one.text, one.section, one.document_hash, one.file, one.metadata,
                *(one.span or (None, None)), one.unverified, content,
            )
            for number, one, content in zip(numbers, records, contents, strict=True)
        )  # fmt: skip
        connection.executemany(f"INSERT INTO contents VALUES ({', '.join('?' * 10)})", values)
        return numbers

    def _add_vectors(self, connection: sqlite3.Connection, numbers: Sequence[int], nodes: Sequence[BaseNode]) -> None:
        searched = [
            (number, node.embedding)
            for number, node in zip(numbers, nodes, strict=True)
            if node.metadata.get(GRANULARITY_KEY) != "section"
        ]
        dimensions = {_NONE if embedding is None else str(len(embedding)) for _, embedding in searched}
        dimension = same_dimension(dimensions | ({get_note(connection, _DIMENSION)} - {""}))
        if dimension is None:
            return
        set_note(connection, _DIMENSION, dimension)
        if dimension != _NONE:
            vectors = np.array([embedding for _, embedding in searched], np.float32)
            self._vectors.add(connection, [number for number, _ in searched], vectors)

    def _add_words(self, connection: sqlite3.Connection, numbers: Sequence[int], records: Sequence[NodeRecord]) -> None:
        if not numbers:
            return
        words = self.words
        note = get_note(connection, _WORDS)
        is_first = connection.execute("SELECT 1 FROM nodes WHERE row < ? LIMIT 1", (numbers[0],)).fetchone() is None
        if words is None or (note != words.note and not is_first):
            set_note(connection, _WORDS, "")  # of some nodes there are none
            return
        if is_first:
            keywords.clear_words(connection)
            set_note(connection, _WORDS, words.note)
        words.add(connection, dict(zip(numbers, records, strict=True)))

    @property
    def words_note(self) -> str:
        """What tells the tokens of all nodes; empty where some have none."""
        return self._note(_WORDS)

    def can_be_searched_by(self, words: Words) -> bool:
        """Whether all nodes have tokens, as they are asked for."""
        with self.database.reading() as connection:
            return self.words_note == words.note or _is_empty(connection)

    def make_words(self) -> bool:
        """Tell the tokens of all nodes anew, where they were told otherwise or not at all; whether it was needed."""
        if self.words is None or self.can_be_searched_by(self.words):
            return False
        self.mend_words()
        return True

    def mend_words(self) -> None:
        """Tell the tokens of all nodes anew, as they are asked for or were told before by our tokenizer."""
        words = self.words or words_in(self.words_note)
        if not isinstance(words, Words):  # there are none, or a user's function told them, which is not here
            return
        with self._changing() as connection:
            keywords.clear_words(connection)
            for condition in ("passage_id != ''", "granularity = 'passage'"):  # passages have the words of units
                for some in _pages_of(self.records_by_row(condition)):
                    words.add(connection, some)
            set_note(connection, _WORDS, words.note)

    def wrong_words(self) -> str:
        """What is wrong with the tokens of nodes; empty where nothing is."""
        if not self.words_note:
            return ""
        lacking = (
            "SELECT 1 FROM nodes LEFT JOIN words USING (row) "
            "WHERE granularity = 'passage' AND words.row IS NULL LIMIT 1"
        )
        with self.database.reading() as connection:
            if connection.execute(lacking).fetchone() is not None:
                return "passages have no words"
        return ""

    def maintain(self, midway: bool = False) -> bool:
        return self._vectors.maintain(midway)

    def clean(self, older_than: timedelta) -> None:
        self._vectors.clean(older_than)

    def compact(self) -> None:
        self.database.vacuum()

    def copy_to(self, folder: Path, version: str) -> None:
        self.database.copy_to(folder / FILE)
        copy = EmbeddedNodes(folder)
        copy._vectors.forget_graph()
        copy.database.close()

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        with self.database.reading() as connection:
            select = "SELECT id, node FROM nodes JOIN contents USING (row) WHERE id IN"
            contents = dict(select_by_text(connection, select, node_ids))
        return {node_id: _node_of(contents[node_id]) for node_id in node_ids if node_id in contents}

    def records_with_ids(self, node_ids: Sequence[str]) -> dict[str, NodeRecord]:
        with self.database.reading() as connection:
            select = f"SELECT {_RECORD} FROM nodes JOIN contents USING (row) WHERE id IN"
            records = (_record_of(values) for values in select_by_text(connection, select, node_ids))
            return {record.id: record for record in records}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        with self.database.reading() as connection:
            passing = self.passing(question.filters)
            wanted = question.similarity_top_k
            if passing is None:
                return self.nearest_nodes(question.query_embedding, wanted)
            if not passing.ids:
                return []
            if passing.few:
                units = {row.row for row in rows.units_of_passages(connection, passing.ids)}
                return self.nearest_nodes(question.query_embedding, wanted, np.array([*units, *passing.rows]))

            def find(limit: int) -> tuple[list[FoundNode], int]:
                hits = self.nearest_nodes(question.query_embedding, limit)
                return [hit for hit in hits if hit.leads_to in passing.ids], len(hits)

            return look_further(find, wanted, passing.fetched(wanted))

    def nearest_nodes(
        self, embedding: Sequence[float] | None, limit: int, chosen: Rows | None = None
    ) -> list[FoundNode]:
        """The nodes nearest to an embedding, of any granularity, nearest first.

        Args:
            embedding: Of the dimension of those that are there.
            limit: How many.
            chosen: The rows to look among; None means all.

        Raises:
            ValueError: There is no embedding, or it has another dimension.
        """
        with self.database.reading() as connection:
            if limit <= 0 or _is_empty(connection):
                return []
            dimension = self.dimension
            if embedding is None or dimension is None:
                raise ValueError("a vector query needs a query embedding, and a store whose nodes have embeddings")
            check_question(embedding, dimension)
            asked = np.asarray(embedding, np.float32)
            numbers, cosines = self._vectors.search(connection, asked, limit, chosen)
            links = rows.read_rows(connection, numbers.tolist())
        pairs = zip(numbers.tolist(), cosines.tolist(), strict=True)
        return [
            FoundNode(links[row].id, links[row].granularity, links[row].passage_id, cosine, cosine)
            for row, cosine in pairs
        ]

    def rows_of(self, node_ids: Sequence[str] | None, document_ids: Sequence[str] | None) -> Rows | None:
        """The rows of nodes with one of some ids and of one of some documents; None where neither is given."""
        if not node_ids and not document_ids:
            return None
        with self.database.reading() as connection:
            found = rows.rows_with_ids(connection, node_ids) if node_ids else None
            if document_ids:
                of_documents = rows.rows_of_documents(connection, document_ids)
                found = of_documents if found is None else [*{*found} & {*of_documents}]
        return np.array([row.row for row in found or ()], np.int64)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        condition = _OURS if granularity is None else "granularity = ?"
        return (record for _, record in self.records_by_row(condition, [] if granularity is None else [granularity]))

    def records_by_row(self, condition: str, arguments: Sequence[object] = ()) -> Iterator[tuple[int, NodeRecord]]:
        """The nodes that meet a condition, with their rows."""
        select = (
            f"SELECT {_RECORD} FROM nodes JOIN contents USING (row) "
            f"WHERE {condition} AND nodes.row > ? ORDER BY nodes.row LIMIT ?"
        )
        return ((values[0], _record_of(values)) for values in self.database.rows(select, arguments))

    def all_nodes(self) -> Iterator[BaseNode]:
        """All nodes, those too that are not of our parsers."""
        select = "SELECT row, node FROM contents WHERE row > ? ORDER BY row LIMIT ?"
        return (_node_of(content) for _, content in self.database.rows(select))

    def all_ids(self) -> list[str]:
        """The ids of all nodes, those too that are not of our parsers."""
        return [node_id for _, node_id in self.database.rows("SELECT row, id FROM nodes WHERE row > ? LIMIT ?")]

    def documents(self) -> dict[str, DocumentRecord]:
        with self.database.reading() as connection:
            found = connection.execute("SELECT id, hash, file FROM documents").fetchall()
        return {document_id: DocumentRecord(document_hash, file) for document_id, document_hash, file in found}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        with self.database.reading() as connection:
            return {row.id for row in rows.rows_of_documents(connection, document_ids)}

    def is_empty(self) -> bool:
        with self.database.reading() as connection:
            return connection.execute(f"SELECT 1 FROM nodes WHERE {_OURS} LIMIT 1").fetchone() is None

    def _kinds(self) -> Iterator[tuple[Any, ...]]:
        with self.database.reading() as connection:
            found = connection.execute(f"SELECT document_id, granularity, status FROM nodes WHERE {_OURS}").fetchall()
        return iter(found)

    def bad_vectors(self) -> Iterator[tuple[str, str]]:
        """Nodes whose embedding cannot be compared, with their documents."""
        if self.dimension is None:
            return
        select = (
            "SELECT row, id, document_id, vector FROM nodes LEFT JOIN vectors USING (row) "
            f"WHERE {_OURS} AND granularity != 'section' AND row > ? ORDER BY row LIMIT ?"
        )
        for _, node_id, document_id, vector in self.database.rows(select):
            length = 0.0 if vector is None else float(np.linalg.norm(np.frombuffer(vector, np.float32)))
            if not np.isfinite(length) or not length:
                yield node_id, document_id

    def passing(self, filters: MetadataFilters | None) -> Passing | None:
        if filters is None or not filters.filters:
            return None
        key = repr(filters)
        before = self._passing.pop(key, None)
        passing = self._brought_up(filters, before or Passing(frozenset(), 0.0))
        self._passing[key] = passing
        if len(self._passing) > _MOST_PASSING:
            self._passing.pop(next(iter(self._passing)), None)
        return passing

    def _brought_up(self, filters: MetadataFilters, before: Passing) -> Passing:
        """What passes filters, of which some is known: rows do not change, so that only later ones are looked at."""
        select = (
            "SELECT row, id, metadata FROM nodes JOIN contents USING (row) "
            "WHERE granularity = 'passage' AND row > ? ORDER BY row"
        )
        with self.database.reading() as connection:
            (count,) = connection.execute("SELECT count(*) FROM nodes WHERE granularity = 'passage'").fetchone()
            last = before.read_to
            ids = []
            numbers = []
            for row, node_id, metadata in connection.execute(select, (before.read_to,)):
                last = row
                if matches(json.loads(metadata), filters):
                    ids.append(node_id)
                    numbers.append(row)
        if last == before.read_to:
            return before
        all_rows = np.concatenate([before.rows, np.array(numbers, np.int64)])
        return Passing(before.ids.union(ids), len(all_rows) / max(1, count), all_rows, last)

    def read_about(self) -> str | None:
        return self._note(_MANIFEST) or None

    def write_about(self, about: str) -> None:
        set_note(self.database.writing(), _MANIFEST, about)

    def _note(self, key: str) -> str:
        with self.database.reading() as connection:
            return get_note(connection, key)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM nodes LIMIT 1").fetchone() is None


def _update_documents(connection: sqlite3.Connection, document_ids: Collection[str]) -> None:
    """Note of documents that changed what they are like now: as the first of their nodes says that does."""
    for document_id in document_ids:
        found = connection.execute(
            "SELECT document_hash, file FROM nodes JOIN contents USING (row) "
            "WHERE document_id = ? AND document_hash != '' ORDER BY row LIMIT 1",
            (document_id,),
        ).fetchone()
        if found is None:
            connection.execute("DELETE FROM documents WHERE id = ?", (document_id,))
        else:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (document_id, *found))


def _pages_of(records: Iterator[tuple[int, NodeRecord]], size: int = 500) -> Iterator[dict[int, NodeRecord]]:
    page: dict[int, NodeRecord] = {}
    for row, record in records:
        page[row] = record
        if len(page) == size:
            yield page
            page = {}
    if page:
        yield page


def _record_of(values: Sequence[Any]) -> NodeRecord:
    span = None if values[11] is None else (values[11], values[12])
    texts: list[Any] = list(values[1:11])
    return NodeRecord(*texts, span, bool(values[13]))


def _content_of(node: BaseNode) -> str:
    return kept_as_json(doc_to_json(node.model_copy(update={"embedding": None})), node.ref_doc_id)


def _node_of(content: str) -> BaseNode:
    return json_to_doc(json.loads(content))
