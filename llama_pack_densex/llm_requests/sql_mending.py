"""Saving what can still be read of a damaged SQLite reply cache."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from llama_pack_densex.llm_requests.reply_stores import DamagedEntry, unseal
from llama_pack_densex.llm_requests.sql_files import (
    TABLE,
    WRITE,
    connect,
    create_table,
    discard,
    entry_of,
    is_damage,
    make_private,
    row_of,
)

MENDED_SUFFIX = ".mended"

_LEAST_ROW = 64  # bytes
_UNREADABLE_LIMIT = 100_000  # places that could not be read; a ruined tree would otherwise be searched for hours


@dataclass(frozen=True)
class Mended:
    """What became of a damaged file.

    Args:
        kept: Entries that were read, found good and kept.
        lost: Entries that were not; those of which no trace is left are not counted.
    """

    kept: int
    lost: int


def mend(path: str) -> Mended:
    """Replace a damaged file by a new one with the entries that can still be read.

    The caller holds the exclusive lock and has no connection to the file. Other processes that have the old file open
    find out, before they write, that the path names another one.
    """
    fresh = path + MENDED_SUFFIX
    discard(fresh, fresh + "-journal")
    make_private(fresh)
    connection = connect(fresh)
    try:
        for pragma in ("journal_mode = OFF", "synchronous = FULL"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        create_table(connection)
        mended = _copy_entries(path, connection)
        connection.exec_driver_sql("COMMIT")
    finally:
        connection.close()
    # A -wal file that stayed behind would be taken for the new file's.
    discard(path + "-wal", path + "-shm", path + "-journal")
    os.replace(fresh, path)
    return mended


def _copy_entries(path: str, target: Connection) -> Mended:
    kept = bad = 0
    with closing(connect(path)) as connection:
        # Straight from sqlite3: tens of thousands of places may have to be tried, and each fails ten times faster.
        source: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        extent = _extent(source, path)
        if extent is None:
            return Mended(0, 1)
        expected, last = extent
        for key, row in _readable_rows(source, path, last):
            try:
                text = key.decode()
                entry = entry_of(row)
                unseal(text, entry)
            except (DamagedEntry, UnicodeDecodeError, AttributeError):
                bad += 1
                continue
            target.exec_driver_sql(WRITE, row_of(text, entry))
            kept += 1
    return Mended(kept, max(bad, expected - kept))


def _extent(source: sqlite3.Connection, path: str) -> tuple[int, int] | None:
    """How many entries there should be, and the last one's id, by whichever tree can be read; None without a table."""
    for statement in (
        f"SELECT count(*), max(id) FROM {TABLE} INDEXED BY sqlite_autoindex_{TABLE}_1",
        f"SELECT count(*), max(id) FROM {TABLE} INDEXED BY {TABLE}_written",
        f"SELECT 1, max(id) FROM {TABLE} NOT INDEXED",
        f"EXPLAIN SELECT id FROM {TABLE}",  # reads the schema only
    ):
        try:
            row = source.execute(statement).fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_damage(error, path):
                raise
            continue
        return (1, os.path.getsize(path) // _LEAST_ROW) if statement.startswith("EXPLAIN") else (row[0], row[1] or 0)
    return None


def _readable_rows(source: sqlite3.Connection, path: str, last: int) -> Iterator[tuple[Any, Any]]:
    """Read the rows in the order of the table itself, without its indexes, around the places that cannot be read."""
    columns = f"SELECT id, key, written, checksum, body FROM {TABLE} NOT INDEXED WHERE"
    ranges = [(1, last)]
    unreadable = 0
    while ranges and unreadable < _UNREADABLE_LIMIT:
        first, last = ranges.pop()
        seen = first - 1
        try:
            # To find its end, a range is read one row too far, perhaps into the damage; a single id is not.
            rows = (
                source.execute(f"{columns} id = ?", (first,))
                if first == last
                else source.execute(f"{columns} id BETWEEN ? AND ? ORDER BY id", (first, last))
            )
            for row in rows:
                seen = row[0]
                yield row[1], row[2:]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_damage(error, path):
                raise
            unreadable += 1
            rest = seen + 1
            if first < last and rest <= last:
                middle = (rest + last) // 2
                ranges += [(middle + 1, last), (rest, middle)] if rest < last else [(last, last)]
