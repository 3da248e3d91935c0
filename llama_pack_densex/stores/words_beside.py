"""The words of nodes whose store does not keep any: in a small LanceDB table beside it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pyarrow as pa
from llama_index.core.schema import BaseNode

from llama_pack_densex.stores.lance_table import (
    ALL,
    IN_MEMORY,
    PASSAGE_WORDS,
    UNIT_WORDS,
    NodeTable,
    TableVersion,
    any_of,
)
from llama_pack_densex.stores.manifest import OLD_VERSIONS
from llama_pack_densex.stores.node_store import RECORD_COLUMNS, NodeRecord
from llama_pack_densex.stores.words import SAYING, Words, adds_words

FOLDER = "words"
"""Of an index folder's data, where the table is."""
_STATE = "state"  # a file in it: the state of the store that the table is of; none while that is not certain
_RECORDS = pa.schema([(name, pa.string()) for name in RECORD_COLUMNS])
_KEPT = ["id", "document_id", "granularity", "passage_id", "status", PASSAGE_WORDS, UNIT_WORDS]
_RECORDS_AT_ONCE = 2_000

Records = Callable[[str], Iterable[NodeRecord]]
"""Reads all nodes of a granularity, in any order."""


class WordsBeside:
    """The words of the nodes in a store, in a table of their own.

    They are compared with the nodes when they are first needed, and kept in step from then on: in memory, or by who
    writes (`settle`) in a folder. There they last, with the name of the store's state that they are of.

    Args:
        words: How words are told; None where none are kept here, and nothing is to be done.
    """

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self._changing = threading.RLock()
        self._table: NodeTable | None = None

    def reopen(self, folder: Path, state: str) -> None:
        """Go on with the words in a folder, if they are of the store's state."""
        file = folder / FOLDER / _STATE
        with self._changing:
            self._table = None
            written = file.read_text(encoding="utf-8") if state and file.exists() else ""
            if self.words is not None and written and written == state and note_of(folder) in ("", self.words.note):
                self._table = NodeTable(str(folder / FOLDER))

    def now(self, records: Records) -> TableVersion:
        """The table as the nodes are now.

        Args:
            records: Reads the nodes, where the words are not in step with them.
        """
        with self._changing:
            if self._table is None:
                self._table = self._in_step(NodeTable(IN_MEMORY), records)
            return self._table.now

    def settle(self, folder: Path, records: Records) -> None:
        """Keep the words in a folder from now on, in step with the nodes; for who has the folder's lock."""
        place = folder / FOLDER
        with self._changing:
            if self.words is None or (self._table is not None and self._table.uri == str(place)):
                return
            self._table = None
            place.mkdir(exist_ok=True)
            (place / _STATE).unlink(missing_ok=True)
            self._table = self._in_step(NodeTable(str(place)), records)

    def begin(self) -> None:
        """A change of the store follows, which a stop may leave half done."""
        with self._changing:
            if self._table is not None and self._table.uri != IN_MEMORY:
                (Path(self._table.uri) / _STATE).unlink(missing_ok=True)

    def done(self, state: str) -> None:
        """All nodes of this state of the store are in the table."""
        with self._changing:
            if self._table is None:
                return
            if self._table.maintain():
                self._table.clean(OLD_VERSIONS)
            if self._table.uri != IN_MEMORY:  # what a stop leaves half written names no state
                (Path(self._table.uri) / _STATE).write_text(state, encoding="utf-8")

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode]) -> None:
        """Note a change, after it was made in the store; see `NodeStore.replace`."""
        with self._changing:
            if self._table is None:
                return
            records = [NodeRecord.of(node) for node in nodes]
            gone = list(dict.fromkeys([*document_ids, *(record.document_id for record in records)]))
            try:
                if records:
                    self._table.replace(self._rows(records), gone)
                else:
                    _delete(self._table, gone)
            except BaseException:
                self._table = None  # the nodes changed all the same: they are compared anew
                raise

    def forget(self) -> None:
        """Compare with the nodes before the next use, since a change of them may have come half-way."""
        with self._changing:
            self._table = None

    def compact(self) -> None:
        """Leave no word of texts that went."""
        with self._changing:
            if self._table is not None:
                self._table.compact()
                self._table.clean(timedelta(0))

    def copy_to(self, folder: Path, state: str, records: Records) -> None:
        """Keep a copy in the data of another index folder, which is in this state."""
        copy = WordsBeside(self.words)
        copy.settle(folder, records)
        copy.done(state)

    def _in_step(self, table: NodeTable, records: Records) -> NodeTable:
        """Compare a table with the nodes by their ids, which tell the text, and write documents anew that differ."""
        assert self.words is not None, "a table is of some words"
        if table.now.note not in ("", self.words.note):
            table.delete(ALL)
        kept: dict[str, str] = {}
        for batch in table.now.scan(["id", "document_id"]):
            kept |= zip(*(batch.column(name).to_pylist() for name in ("id", "document_id")), strict=True)
        names, differ = (*SAYING, "sentence", "passage"), set[str]()  # passages have the words of others
        if kept:
            there = {record.id: record.document_id for name in names for record in records(name)}
            differ = {kept.get(node_id) or there[node_id] for node_id in kept.keys() ^ there.keys()}
            _delete(table, differ)
        for name in names if differ or not kept else ():
            due = (record for record in records(name) if not kept or record.document_id in differ)
            while some := list(islice(due, _RECORDS_AT_ONCE)):
                stated = _stated(table, [record.id for record in some]) if name == "passage" else {}
                table.replace(self._rows(some, stated))
        table.maintain()
        return table

    def _rows(self, records: Sequence[NodeRecord], stated: Mapping[str, list[str]] | None = None) -> pa.Table:
        assert self.words is not None, "a table is of some words"
        distinct = {record.id: vars(record) for record in records}
        rows = pa.Table.from_pylist(list(distinct.values()), _RECORDS)
        return self.words.added_to(rows, stated).select(_KEPT)


def _delete(table: NodeTable, document_ids: Collection[str]) -> None:
    for condition in any_of("document_id", document_ids):
        table.delete(condition)


def note_of(folder: Path) -> str:
    """What the words in an index folder's data say of themselves; empty where there are none."""
    return NodeTable(str(folder / FOLDER)).now.note if (folder / FOLDER).is_dir() else ""


def _stated(table: NodeTable, passage_ids: Sequence[str]) -> dict[str, list[str]]:
    """The words of the propositions and questions of some passages."""
    stated: defaultdict[str, list[str]] = defaultdict(list)
    names = ["passage_id", "granularity", "status", UNIT_WORDS]
    for batch in table.now.scan_any_of(names, "passage_id", passage_ids):
        for passage_id, granularity, status, words in zip(*(batch.column(n).to_pylist() for n in names), strict=True):
            if adds_words(granularity, status):
                stated[passage_id].append(words)
    return stated
