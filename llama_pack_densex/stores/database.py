"""An SQLite database as an index needs it: one writer, and readers that each see one whole state meanwhile.

A database in a file is in SQLite's WAL mode: who reads goes on with the state at its beginning while another process
writes, and a stop at any moment, also a kill, leaves the last state that was committed. A database in memory has one
connection, which its threads take in turns.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from llama_pack_densex.stores.manifest import InvalidIndexError

_BUSY_SECONDS = 30.0  # how long a second writer waits for the first one's commit
_PAGE_CACHE_KIB = 32 * 1024  # for each connection
_MOST_IDLE = 8  # connections that are kept open for the next readers
_ROWS_A_PAGE = 1_000
_NUMBERS_A_QUERY = 1_000
_TEXTS_A_QUERY = 500  # fewer than SQLite takes arguments


class Database:
    """A database, in a file or in memory, from any number of threads.

    Args:
        file: The file, which is made where it is missing; None for a database in memory.
        schema: What makes its tables where they are missing.
        where: What errors call the index.

    Raises:
        InvalidIndexError: The file is damaged, or no database.
        OSError: It cannot be opened or written to.
    """

    def __init__(self, file: Path | None, schema: str, where: str) -> None:
        self.file = file
        self.where = where
        self._process = os.getpid()
        self._local = threading.local()
        self._turns = threading.RLock()  # of the threads, in memory
        self._guard = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._writing_thread = 0
        self._memory = self._connect() if file is None else None
        if file is None or not file.exists() or not file.stat().st_size:
            self._create(schema)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one state throughout; within it, and in a thread that is writing, it is the same state again."""
        self._check_process()
        connection = getattr(self._local, "connection", None)
        if self._is_writing():
            connection = self._writer
        if connection is not None:
            with self._translated():
                yield connection
            return
        with self._translated(), self._taken() as connection:
            connection.execute("BEGIN")
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None
                connection.execute("ROLLBACK")

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, some at a time, so that any number of them takes little memory.

        Args:
            sql: Selects rows, the first column of which is their number. It has the conditions `row > ?` and a limit
                of `?` as its last arguments, in the order of the numbers.
            arguments: Those before.
        """
        last = -1
        while True:
            with self.reading() as connection:
                page = connection.execute(sql, (*arguments, last, _ROWS_A_PAGE)).fetchall()
            yield from page
            if len(page) < _ROWS_A_PAGE:
                return
            last = page[-1][0]

    def writing(self) -> sqlite3.Connection:
        """The connection to write with, until `commit` or `roll_back`; nobody else sees what it writes before."""
        self._check_process()
        if self._is_writing():
            assert self._writer is not None
            return self._writer
        with self._translated():
            if self._memory is not None:
                self._turns.acquire()
                connection = self._memory
            else:
                connection = self._taken_idle() or self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                self._end(connection)
                raise
        self._writer = connection
        self._writing_thread = threading.get_ident()
        return connection

    def commit(self) -> None:
        """Make what was written the state that all see."""
        if self._is_writing():
            assert self._writer is not None
            with self._translated():
                self._writer.execute("COMMIT")
            self._release()

    def roll_back(self) -> None:
        """Forget what was written since the last commit."""
        if self._is_writing():
            assert self._writer is not None
            with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                self._writer.execute("ROLLBACK")
            self._release()

    def copy_to(self, file: Path) -> None:
        """Write a copy without any of what was deleted, as its state is now.

        Raises:
            OSError: It cannot be written.
        """
        with self.reading() as connection:
            copied = sqlite3.connect(file, isolation_level=None)
            try:
                connection.backup(copied)
                copied.execute("VACUUM")
                copied.execute("PRAGMA journal_mode = WAL")
            finally:
                copied.close()

    def vacuum(self) -> None:
        """Leave nothing of what was deleted, and give back its space; for who writes.

        Raises:
            OSError: Somebody else has been reading for too long.
        """
        self.commit()
        with self._translated():
            self.writing().execute("COMMIT")
            assert self._writer is not None
            try:
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                self._release()

    def close(self) -> None:
        """Close what is open; a database in memory is gone then."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _is_writing(self) -> bool:
        """Whether this thread is."""
        return self._writer is not None and self._writing_thread == threading.get_ident()

    def _release(self) -> None:
        connection, self._writer = self._writer, None
        self._writing_thread = 0
        assert connection is not None
        self._end(connection)

    def _end(self, connection: sqlite3.Connection) -> None:
        if self._memory is not None:
            self._turns.release()
        else:
            self._give_back(connection)

    @contextmanager
    def _taken(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            with self._turns:
                yield self._memory
            return
        connection = self._taken_idle() or self._connect()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _taken_idle(self) -> sqlite3.Connection | None:
        with self._guard:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if len(self._idle) < _MOST_IDLE and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()

    def _create(self, schema: str) -> None:
        with self._translated():
            connection = self._memory or _connected(str(self.file))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {schema} COMMIT;")
            if self._memory is None:
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = self._opened()
        connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted leaves no trace in the file
        return connection

    def _opened(self) -> sqlite3.Connection:
        if self.file is None:
            return _connected(":memory:")
        if os.access(self.file.parent, os.W_OK) and os.access(self.file, os.W_OK):
            return _connected(self.file)
        return self._opened_to_read(self.file)

    def _opened_to_read(self, file: Path) -> sqlite3.Connection:
        """Open what may not be written to: there SQLite cannot make the files beside it that it needs for others."""
        uri = f"{file.absolute().as_uri()}?mode=ro"
        log = file.with_name(f"{file.name}-wal")
        if not log.exists() or not log.stat().st_size:
            uri += "&immutable=1"
        return _connected(uri, is_uri=True)

    def _check_process(self) -> None:
        """Open anew in a process that was forked: SQLite's connections must not be carried into it."""
        if self._process == os.getpid():
            return
        if self._memory is None:
            self._process = os.getpid()
            self._idle = []  # closing them would take the parent's locks away
            self._writer = None
            self._local = threading.local()
            self._guard = threading.Lock()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into such that say what is wrong with the index, or with the machine."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self.error_for(error) from error

    def error_for(self, error: sqlite3.DatabaseError) -> Exception:
        text = str(error)
        if "disk is full" in text:
            return OSError(errno.ENOSPC, "the disk is full; what was committed before is kept", self.where)
        if "readonly" in text:
            return OSError(errno.EROFS, "an index can be searched there, but not made or changed", self.where)
        if "locked" in text:
            return OSError(errno.EBUSY, "another process has been writing to it for too long; try again", self.where)
        if "unable to open" in text and self.file is not None and self.file.exists():
            return OSError(errno.EACCES, "the index cannot be opened: see its rights and the open files", self.where)
        return InvalidIndexError(
            f"the index in {self.where} cannot be read: a file in it is damaged or missing ({text}). "
            "If it was copied while it was written to, copy it again; otherwise build it anew, or restore a backup."
        )


def _connected(file: str | Path, is_uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=is_uri)


ABOUT_SCHEMA = "CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);"


def get_note(connection: sqlite3.Connection, key: str) -> str:
    """What is kept about the whole database under a key; empty where there is nothing."""
    found = connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
    return str(found[0]) if found else ""


def set_note(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Keep something about the whole database."""
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))


def number_lists(numbers: Iterable[int]) -> Iterator[str]:
    """Numbers as they stand between the brackets of `IN (...)`, some hundred at a time."""
    ordered = sorted(numbers)
    for start in range(0, len(ordered), _NUMBERS_A_QUERY):
        yield ", ".join(map(str, ordered[start : start + _NUMBERS_A_QUERY]))


def select_by_text(connection: sqlite3.Connection, select: str, texts: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """What a query selects that ends in `column IN`, for any number of texts."""
    distinct = list(dict.fromkeys(texts))
    for start in range(0, len(distinct), _TEXTS_A_QUERY):
        some = distinct[start : start + _TEXTS_A_QUERY]
        yield from connection.execute(f"{select} ({', '.join('?' * len(some))})", some)
