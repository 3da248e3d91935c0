"""The words of nodes whose store does not keep them, in a database beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from sqlite3 import Connection

from llama_index.core.utils import iter_batch

from llama_pack_densex.index import keywords, rows
from llama_pack_densex.index.database import Database, get_note, set_note
from llama_pack_densex.index.node_store import Ids, NodeRecord, Nodes
from llama_pack_densex.index.words import Words

FILE = "words.db"
"""The name of the database's file in an index's data folder."""

_SCHEMA = f"{rows.SCHEMA}{keywords.SCHEMA}"
# keys of the notes in the database
_STATE = "state"  # the state of the store that the words belong to; empty while that is uncertain
_WORDS = "words"  # which tokenizer made the words, as in `Words.note`
# passages last: their tokens include those of their units
_GRANULARITIES = ("proposition", "question", "sentence", "passage")
_RECORDS_AT_ONCE = 2_000

Records = Callable[[str], Iterable[NodeRecord]]
"""Reads the records of all nodes of a granularity, in any order."""


class WordsBeside:
    """The words of the nodes in a store that does not keep words itself.

    They are compared with the nodes when they are first needed, and kept in step from then on: in memory, or,
    once the writer has called `settle`, in a folder. A folder also stores the name of the store's state that
    the words belong to.

    Args:
        words: The tokenizer; None if no words are kept here, so that there is nothing to do.
    """

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self._changing = threading.RLock()
        self._database: Database | None = None

    def reopen(self, folder: Path, state: str) -> None:
        """Use the words in a folder, if they were made by the same tokenizer from this state of the store."""
        with self._changing:
            self._database = None
            if self.words is None or not state or not (folder / FILE).exists():
                return
            database = _database_in(folder)
            with database.reading() as connection:
                notes = (get_note(connection, _STATE), get_note(connection, _WORDS))
            if notes == (state, self.words.note):
                self._database = database

    def now(self, records: Records) -> Database:
        """Return the database with the words of the current nodes.

        Args:
            records: Reads the nodes if the words have to be brought in step with them.
        """
        with self._changing:
            if self._database is None:
                database = Database(None, _SCHEMA)
                self._bring_in_step(database, records)
                database.commit()
                self._database = database
            return self._database

    def settle(self, folder: Path, records: Records) -> None:
        """Keep the words in a folder from now on, in step with the nodes; only for the holder of the folder's
        lock."""
        with self._changing:
            if self.words is None:
                return
            if self._database is not None and self._database.file == folder / FILE:
                return
            database = _database_in(folder)
            self._bring_in_step(database, records)
            self._database = database

    def begin(self) -> None:
        """Mark the words as uncertain before a change of the store, which a stop may leave half done."""
        self.done("")  # the name of no state

    def done(self, state: str) -> None:
        """Record that the words belong to this state of the store, and commit them."""
        with self._changing:
            if self._database is not None:
                set_note(self._database.writing(), _STATE, state)
                self._database.commit()

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Apply a change that was made in the store; see `NodeStore.replace`."""
        with self._changing:
            if self._database is None:
                return
            connection = self._database.writing()
            records = {node.node_id: NodeRecord.of(node) for node in nodes}
            _remove(connection, rows.rows_of_documents(connection, document_ids))
            _remove(connection, rows.rows_with_ids(connection, records))
            self._add(connection, list(records.values()))
            if self._database.file is None:
                self._database.commit()

    def forget(self) -> None:
        """Compare the words with the nodes before the next use, because a change may be incomplete."""
        with self._changing:
            if self._database is not None:
                self._database.roll_back()
            self._database = None

    def compact(self) -> None:
        """Erase the words of deleted texts."""
        with self._changing:
            if self._database is not None:
                self._database.vacuum()

    def copy_to(self, folder: Path, state: str, records: Records) -> None:
        """Write the words to the data folder of a copied index, whose store has this state."""
        copy = WordsBeside(self.words)
        copy.settle(folder, records)
        copy.done(state)

    def _bring_in_step(self, database: Database, records: Records) -> None:
        """Compare the words with the nodes by id, and renew those of documents that differ.

        Ids are enough, because a node's id depends on its text.
        """
        assert self.words is not None, "words need a tokenizer"
        connection = database.writing()
        if get_note(connection, _WORDS) != self.words.note:
            keywords.clear_words(connection)
            connection.execute("DELETE FROM nodes")
            set_note(connection, _WORDS, self.words.note)
        stored = dict(connection.execute("SELECT id, document_id FROM nodes").fetchall())
        documents = {record.id: record.document_id for record in _all(records)}
        documents_by_node = stored | documents
        differ = {documents_by_node[node_id] for node_id in stored.keys() ^ documents.keys()}
        if not differ:
            return
        _remove(connection, rows.rows_of_documents(connection, differ))
        due = (record for record in _all(records) if record.document_id in differ)
        for records_due in iter_batch(due, _RECORDS_AT_ONCE):
            self._add(connection, records_due)

    def _add(self, connection: Connection, records: Sequence[NodeRecord]) -> None:
        assert self.words is not None, "words need a tokenizer"
        searched = [record for record in records if record.granularity in _GRANULARITIES]
        numbers = rows.add_rows(connection, searched)
        self.words.add(connection, dict(zip(numbers, searched, strict=True)))


def note_of(folder: Path) -> str:
    """Return which tokenizer made the words in a data folder, as in `Words.note`; empty if it has none."""
    if not (folder / FILE).exists():
        return ""
    with _database_in(folder).reading() as connection:
        return get_note(connection, _WORDS)


def _database_in(folder: Path) -> Database:
    return Database(folder / FILE, _SCHEMA)


def _all(records: Records) -> Iterator[NodeRecord]:
    for granularity in _GRANULARITIES:
        yield from records(granularity)


def _remove(connection: Connection, old: Sequence[rows.NodeRow]) -> None:
    numbers = [row.row for row in old]
    keywords.remove_words(connection, numbers)
    rows.remove_rows(connection, numbers)
