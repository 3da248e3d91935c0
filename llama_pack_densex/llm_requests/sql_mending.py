"""Saving what can still be read of a damaged SQLite reply cache."""

from __future__ import annotations

import os
import shutil
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
    DamagedFile,
    connect,
    create_table,
    discard,
    entry_of,
    is_damage,
    make_private,
    row_of,
)

_FRESH = ".mended"
_COPY = ".mended-copy"
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
    discard_leftovers(path)
    fresh = path + _FRESH
    make_private(fresh)
    connection = connect(fresh)
    try:
        for pragma in ("journal_mode = OFF", "synchronous = FULL"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        create_table(connection)
        first_page = _first_page(fresh)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        mended = _copy_entries(path, connection) or _copy_under_new_schema(path, first_page, connection)
        connection.exec_driver_sql("COMMIT")
    finally:
        connection.close()
    # A -wal file that stayed behind would be taken for the new file's.
    discard(path + "-wal", path + "-shm", path + "-journal")
    os.replace(fresh, path)
    return mended


def discard_leftovers(path: str) -> None:
    """Delete what a process left that died while it was mending. The caller holds the exclusive lock."""
    fresh, copy = path + _FRESH, path + _COPY
    discard(fresh, fresh + "-journal", copy, copy + "-wal", copy + "-shm", copy + "-journal")


def _copy_entries(path: str, target: Connection) -> Mended | None:
    """Copy the good entries; None where not even the schema can be read."""
    kept = bad = 0
    with closing(connect(path)) as connection:
        # Straight from sqlite3: tens of thousands of places may have to be tried, and each fails ten times faster.
        source: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        extent = _extent(source, path)
        if extent is None:
            return None
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


def _copy_under_new_schema(path: str, first_page: bytes, target: Connection) -> Mended:
    """Copy the entries of a file whose first page is ruined: the header and the schema are the same in every cache."""
    copy = path + _COPY
    try:
        for ending in ("", "-wal"):
            if os.path.exists(path + ending):
                make_private(copy + ending)
                shutil.copyfile(path + ending, copy + ending)
        with open(copy, "r+b") as file:
            file.write(first_page)
        return _copy_entries(copy, target) or Mended(0, 1)
    finally:
        discard(copy, copy + "-wal", copy + "-shm", copy + "-journal")


def _first_page(path: str) -> bytes:
    """Read a new cache's first page, and let it say neither how long the file is nor that it has no -wal file."""
    with open(path, "rb") as file:
        page = bytearray(file.read(100))
        page += file.read(int.from_bytes(page[16:18], "big") - len(page))
    page[18:20] = b"\2\2"  # WAL
    page[92:96] = b"\0\0\0\0"  # the length is valid for another version of the file
    return bytes(page)


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
                if row[0] <= seen:  # a damaged tree can lead in circles
                    raise DamagedFile
                seen = row[0]
                yield row[1], row[2:]
        except (sqlite3.Error, UnicodeDecodeError, DamagedFile) as error:
            if not is_damage(error, path):
                raise
            unreadable += 1
            rest = seen + 1
            if first < last and rest <= last:
                middle = (rest + last) // 2
                ranges += [(middle + 1, last), (rest, middle)] if rest < last else [(last, last)]
