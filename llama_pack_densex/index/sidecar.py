"""The words of nodes whose store does not keep any: in a database of their own beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from sqlite3 import Connection

from llama_index.core.utils import iter_batch

from llama_pack_densex.index import keywords, rows
from llama_pack_densex.index.database import Database, get_note, set_note
from llama_pack_densex.index.node_store import Ids, NodeRecord, Nodes
from llama_pack_densex.index.words import Words

FILE = "words.db"
"""Of an index folder's data."""

_SCHEMA = f"{rows.SCHEMA}{keywords.SCHEMA}"
_STATE = "state"  # of the store that the words are of; none while that is not certain
_WORDS = "words"  # what told them
# passages have the words of others
_GRANULARITIES = ("proposition", "question", "sentence", "passage")
_RECORDS_AT_ONCE = 2_000

Records = Callable[[str], Iterable[NodeRecord]]
"""Reads all nodes of a granularity, in any order."""


class WordsBeside:
    """The words of the nodes in a store.

    They are compared with the nodes when they are first needed, and kept in step from then on: in memory, or
    by who writes (`settle`) in a folder. There they last, with the name of the store's state that they are
    of.

    Args:
        words: How words are told; None where none are kept here, and nothing is to be done.
    """

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self._changing = threading.RLock()
        self._database: Database | None = None

    def reopen(self, folder: Path, state: str) -> None:
        """Go on with the words in a folder, if they are of the store's state."""
        with self._changing:
            self._database = None
            if self.words is None or not state or not (folder / FILE).exists():
                return
            database = _database_in(folder)
            with database.reading() as connection:
                if (
                    get_note(connection, _STATE) == state
                    and get_note(connection, _WORDS) == self.words.note
                ):
                    self._database = database

    def now(self, records: Records) -> Database:
        """The words as the nodes are now.

        Args:
            records: Reads the nodes, where the words are not in step with them.
        """
        with self._changing:
            if self._database is None:
                database = Database(None, _SCHEMA)
                self._bring_in_step(database, records)
                database.commit()
                self._database = database
            return self._database

    def settle(self, folder: Path, records: Records) -> None:
        """Keep the words in a folder from now on, in step with the nodes; for who has the folder's lock."""
        with self._changing:
            if self.words is None or (
                self._database is not None and self._database.file == folder / FILE
            ):
                return
            database = _database_in(folder)
            self._bring_in_step(database, records)
            self._database = database

    def begin(self) -> None:
        """A change of the store follows, which a stop may leave half done."""
        self.done("")  # which is no state

    def done(self, state: str) -> None:
        """All nodes of this state of the store have their words."""
        with self._changing:
            if self._database is not None:
                set_note(self._database.writing(), _STATE, state)
                self._database.commit()

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Note a change, after it was made in the store; see `NodeStore.replace`."""
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
        """Compare with the nodes before the next use, since a change of them may have come half-way."""
        with self._changing:
            if self._database is not None:
                self._database.roll_back()
            self._database = None

    def compact(self) -> None:
        """Leave no word of texts that went."""
        with self._changing:
            if self._database is not None:
                self._database.vacuum()

    def copy_to(self, folder: Path, state: str, records: Records) -> None:
        """Keep a copy in the data of another index folder, which is in this state."""
        copy = WordsBeside(self.words)
        copy.settle(folder, records)
        copy.done(state)

    def _bring_in_step(self, database: Database, records: Records) -> None:
        """Compare the words with the nodes by their ids, which tell the text, and renew where they differ."""
        assert self.words is not None, "words are told by something"
        connection = database.writing()
        if get_note(connection, _WORDS) != self.words.note:
            keywords.clear_words(connection)
            connection.execute("DELETE FROM nodes")
            set_note(connection, _WORDS, self.words.note)
        kept = dict(connection.execute("SELECT id, document_id FROM nodes").fetchall())
        documents = {record.id: record.document_id for record in _all(records)}
        differ = {
            kept.get(node_id) or documents[node_id] for node_id in kept.keys() ^ documents.keys()
        }
        if not differ:
            return
        _remove(connection, rows.rows_of_documents(connection, differ))
        due = (record for record in _all(records) if record.document_id in differ)
        for records_due in iter_batch(due, _RECORDS_AT_ONCE):
            self._add(connection, records_due)

    def _add(self, connection: Connection, records: Sequence[NodeRecord]) -> None:
        assert self.words is not None, "words are told by something"
        searched = [record for record in records if record.granularity in _GRANULARITIES]
        numbers = rows.add_rows(connection, searched)
        self.words.add(connection, dict(zip(numbers, searched, strict=True)))


def note_of(folder: Path) -> str:
    """What the words in an index folder's data say of themselves; empty where there are none."""
    if not (folder / FILE).exists():
        return ""
    with _database_in(folder).reading() as connection:
        return get_note(connection, _WORDS)


def _database_in(folder: Path) -> Database:
    return Database(folder / FILE, _SCHEMA)


def _all(records: Records) -> Iterable[NodeRecord]:
    return (record for granularity in _GRANULARITIES for record in records(granularity))


def _remove(connection: Connection, old: Sequence[rows.NodeRow]) -> None:
    numbers = [row.row for row in old]
    keywords.remove_words(connection, numbers)
    rows.remove_rows(connection, numbers)
