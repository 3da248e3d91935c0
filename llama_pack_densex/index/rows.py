"""The rows of nodes: what each node is and which passage it leads to, in a table small enough to be read for
every hit."""

from __future__ import annotations

from collections.abc import Iterable
from sqlite3 import Connection
from typing import Any, NamedTuple

from llama_pack_densex.index.database import select_by_row, select_by_text
from llama_pack_densex.index.node_store import Ids, NodeRecord

SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document_id TEXT NOT NULL,
    granularity TEXT NOT NULL,
    passage_id TEXT NOT NULL,
    status TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS nodes_by_document ON nodes (document_id);
CREATE INDEX IF NOT EXISTS nodes_by_passage ON nodes (passage_id) WHERE passage_id != '';
CREATE INDEX IF NOT EXISTS passages ON nodes (row) WHERE granularity = 'passage';
"""

_COLUMNS = "row, id, document_id, granularity, passage_id, status"
_SELECT_HITS = "SELECT row, id, granularity, passage_id FROM nodes WHERE"
_INSERT = (
    "INSERT INTO nodes (id, document_id, granularity, passage_id, status) "
    "VALUES (:id, :document_id, :granularity, :passage_id, :status)"
)


class NodeRow(NamedTuple):
    """The row of a node; a tuple, because a question reads hundreds of them.

    Args:
        row: The row's number; a row that is written later has a higher one, and numbers are never reused.
        id: The node's id.
        document_id: The id of its document.
        granularity: As in `NodeRecord`.
        passage_id: For a unit, the id of the passage it leads to; otherwise empty.
        status: As in `NodeRecord`.
    """

    row: int
    id: str
    document_id: str
    granularity: str
    passage_id: str
    status: str


HitColumns = tuple[str, str, str]
"""The id, granularity and passage id of a row: the fields of a `FoundNode` other than its scores."""


def add_rows(connection: Connection, records: Iterable[NodeRecord]) -> list[int]:
    """Add rows for nodes whose ids have none yet, and return their numbers."""
    inserted = (connection.execute(_INSERT, vars(record)) for record in records)
    return [int(cursor.lastrowid or 0) for cursor in inserted]


def remove_rows(connection: Connection, rows: Iterable[int]) -> None:
    """Remove the rows with the given numbers."""
    select_by_row(connection, "DELETE FROM nodes WHERE row IN", rows)


def read_rows(connection: Connection, rows: Iterable[int]) -> dict[int, NodeRow]:
    """Return the rows with the given numbers; unknown numbers are left out."""
    selected = select_by_row(connection, f"SELECT {_COLUMNS} FROM nodes WHERE row IN", rows)
    return {values[0]: NodeRow._make(values) for values in selected}


def rows_with_ids(connection: Connection, node_ids: Iterable[str]) -> list[NodeRow]:
    """Return the rows of the nodes with the given ids."""
    return _rows_where(connection, "id", node_ids)


def rows_of_documents(connection: Connection, document_ids: Iterable[str]) -> list[NodeRow]:
    """Return the rows of all nodes of the given documents."""
    return _rows_where(connection, "document_id", document_ids)


def units_of_passages(connection: Connection, passage_ids: Ids) -> list[NodeRow]:
    """Return the rows of all units that lead to the given passages."""
    return _rows_where(connection, "passage_id != '' AND passage_id", passage_ids)


def hits_in_passages(connection: Connection, passage_ids: Ids) -> dict[int, HitColumns]:
    """Return the units that lead to the given passages, by row; faster than `units_of_passages`."""
    condition = "passage_id != '' AND passage_id IN"
    return _by_row(select_by_text(connection, f"{_SELECT_HITS} {condition}", passage_ids))


def hits_at(connection: Connection, rows: Iterable[int]) -> dict[int, HitColumns]:
    """Return the nodes with the given row numbers, by row; unknown numbers are left out."""
    return _by_row(select_by_row(connection, f"{_SELECT_HITS} row IN", rows))


def _by_row(hits: Iterable[tuple[Any, ...]]) -> dict[int, HitColumns]:
    return {
        row: (node_id, granularity, passage_id) for row, node_id, granularity, passage_id in hits
    }


def _rows_where(connection: Connection, condition: str, texts: Iterable[str]) -> list[NodeRow]:
    select = f"SELECT {_COLUMNS} FROM nodes WHERE {condition} IN"
    return [*map(NodeRow._make, select_by_text(connection, select, texts))]
