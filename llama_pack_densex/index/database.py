"""An SQLite database for an index: one writer, and concurrent readers that each see one consistent state.

A database in a file uses SQLite's WAL mode: readers keep the state at which they began while another process
writes, and a process that stops at any moment, even if it is killed, leaves the last committed state. A
database in memory has one connection, which its threads use in turn.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from sqlite3 import Connection, Cursor, DatabaseError
from typing import Any

from llama_index.core.utils import iter_batch

from llama_pack_densex.index.compression import compress, decompress
from llama_pack_densex.index.manifest import InvalidIndexError, size_of

IN_MEMORY = "memory"
DISK_IS_FULL = "the disk is full: make room, and run again; what was committed before is kept"

_BUSY_SECONDS = 30.0  # how long a second writer waits for the first one's commit
_PAGE_CACHE_KIB = 32 * 1024  # for each connection
_MOST_IDLE = 8  # connections that are kept open for the next readers
_ROWS_A_PAGE = 1_000
_PAGES_OF_LOG = 4_000  # of 4 KiB; at this size of the write-ahead log, SQLite checkpoints it
_LARGE_LOG = 4_096 * _PAGES_OF_LOG  # bytes; a checkpoint alone does not shrink the log's file
_TEXTS_A_QUERY = 500  # below SQLite's limit of arguments
_ABOUT_SCHEMA = "CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
_HEADER = b"SQLite format 3\0"
_ERRORS_OF_THE_MACHINE = (
    ("disk is full", errno.ENOSPC, DISK_IS_FULL),
    ("readonly", errno.EROFS, "an index can be searched there, but not made or changed"),
    ("locked", errno.EBUSY, "another process has been writing to it for too long; try again"),
    (
        "disk I/O error",
        errno.EIO,
        "its disk cannot be read or written: see whether a quota is used up, or a network drive has gone; "
        "what was committed before is kept",
    ),
)
_NOT_OPENED = "the system does not let the index be opened: fix that, and do not rebuild the index"
_INODE = "inode"  # key of the note with the file's inode number; a copied file has another one


class ReplacedIndexError(InvalidIndexError):
    """Another folder has taken the place of the database's, such as a newer copy of the index."""


class Database:
    """A database in a file or in memory, for use by any number of threads and in forked processes.

    Args:
        file: The file, which is created if it is missing; None for a database in memory.
        schema: The SQL that creates the tables.

    Raises:
        InvalidIndexError: The file is damaged, or is not a database.
        OSError: The file cannot be opened or written to.
    """

    _idle: list[Connection]
    _writer: Connection | None

    def __init__(self, file: Path | None, schema: str) -> None:
        self.file = file
        self._where = IN_MEMORY if file is None else str(file.parent)
        self._memory = _connect(None) if file is None else None
        self._turns = threading.RLock()  # held by the thread that uses the connection in memory
        self._begin_process()
        if file is None or not size_of(file):
            self._create(schema)
        elif file.is_file() and not _is_database(
            file
        ):  # SQLite would ignore that, and read the pages in the log beside it
            raise self.damage("file is not a database")
        self._opened = None if file is None else self._inode_now()
        self._folder = None if file is None else _inode_of(file.parent)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read from one state throughout.

        Nested calls, and calls in the thread that is writing, read from the state that is already open.
        """
        connection = self._current_connection()
        if connection is not None:
            with self.explaining_errors():
                yield connection
            return
        with self._borrowed() as connection:
            connection.execute("BEGIN")
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None
                connection.execute("ROLLBACK")

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; any number of them takes little memory.

        Rows from a file all come from one state. A database in memory is read page by page, so that other
        threads get their turn; so is a state that this thread is already reading or writing.

        Args:
            sql: A query whose first column is the row number, ordered by it, and whose last two arguments are
                those of `row > ?` and `LIMIT ?`.
            arguments: The query's other arguments, which come first.
        """
        if self._memory is None and self._current_connection() is None:
            with self._borrowed() as connection:
                yield from connection.execute(sql, (*arguments, -1, -1))
            return
        last_row = -1
        while True:
            with self.reading() as connection:
                page = connection.execute(sql, (*arguments, last_row, _ROWS_A_PAGE)).fetchall()
            yield from page
            if len(page) < _ROWS_A_PAGE:
                return
            last_row = page[-1][0]

    def writing(self) -> Connection:
        """Return the connection for writing until `commit` or `roll_back`; nobody else sees what it writes
        before it is committed."""
        self._follow_fork()
        writer = self._own_writer()
        if writer is not None:
            return writer
        with self.explaining_errors():
            connection = self._take()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                self._give_back(connection)
                raise
        self._writer = connection
        self._writing_thread = threading.get_ident()
        return connection

    def commit(self) -> None:
        """Commit what was written, so that everyone sees it."""
        writer = self._own_writer()
        if writer is None:
            return
        try:
            with self.explaining_errors():
                writer.execute("COMMIT")
        except BaseException:  # the disk may be full
            self.roll_back()
            raise
        self._end_writing(writer)

    def roll_back(self) -> None:
        """Discard what was written since the last commit."""
        writer = self._own_writer()
        if writer is not None:
            with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                writer.execute("ROLLBACK")
            self._end_writing(writer)

    def note(self, key: str) -> str:
        """Return the note that the database stores about itself under a key; empty if there is none."""
        with self.reading() as connection:
            row = connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def set_note(self, key: str, value: str) -> None:
        """Store a note about the whole database under a key, with what is being written."""
        _set_note(self.writing(), key, value)

    def copy_to(self, file: Path) -> None:
        """Write a copy of the current state, without traces of deleted rows.

        Raises:
            OSError: The copy cannot be written.
        """
        with closing(_connect(file)) as copy, self.reading() as connection:
            connection.backup(copy)
            copy.execute("VACUUM")
            copy.execute("PRAGMA journal_mode = WAL")
            _set_note(copy, _INODE, _inode_of(file))

    def vacuum(self) -> None:
        """Commit, then erase deleted rows from the file and free their space.

        Raises:
            OSError: A reader has held the log for too long.
        """
        self.commit()
        connection = self.writing()
        with self.explaining_errors():
            connection.execute("COMMIT")
            try:
                connection.execute("VACUUM")
                is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._end_writing(connection)
        if is_busy:
            reason = (
                "a reader has held the index open for too long, so deleted data is still in its files; "
                "try again"
            )
            raise OSError(errno.EBUSY, reason, self._where)

    def empty_log(self) -> None:
        """Move a large write-ahead log into the file and truncate it, unless somebody is reading from it."""
        if self.file is None:
            return
        log = self.file.with_name(f"{self.file.name}-wal")
        if size_of(log) < _LARGE_LOG:
            return
        with self._borrowed() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    def close(self) -> None:
        """Close the idle connections."""
        with self._guard:
            idle = self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    @property
    def is_a_copy(self) -> bool:
        """Whether the file is a copy that was not made by `copy_to`, perhaps of a file being written to."""
        if self.file is None:
            return False
        return self.note(_INODE) != self._inode_now()

    @property
    def is_replaced(self) -> bool:
        """Whether another folder has taken the place of the one that the file was opened in."""
        if self.file is None or self._inode_now() == self._opened:
            return False
        return _inode_of(self.file.parent) != self._folder

    def check(self) -> None:
        """Check the integrity of the whole file.

        Raises:
            InvalidIndexError: The file is damaged.
        """
        with self.reading() as connection:
            (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if finding != "ok":
            raise self.damage(finding)

    def accept_copy(self) -> None:
        """Record that the file was checked, so that it no longer counts as a copy; a read-only file keeps
        counting as one."""
        if self.file is not None and _is_writable(self.file):
            self.set_note(_INODE, _inode_of(self.file))
            self.commit()

    def damage(self, finding: str) -> InvalidIndexError:
        """Return the error that says that the file is damaged."""
        return InvalidIndexError(
            f"the index in {self._where} cannot be read: a file in it is damaged or missing ({finding}). "
            "If it was copied while being written to, copy it again; otherwise restore a backup, or remove "
            "the index and rebuild it (cached LLM replies are reused)."
        )

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Translate an error of SQLite into one that says what is wrong with the index or the machine."""
        try:
            yield
        except DatabaseError as error:
            raise self._explained(error) from error

    def _explained(self, error: DatabaseError) -> Exception:
        text = str(error)
        for fragment, code, reason in _ERRORS_OF_THE_MACHINE:
            if fragment in text:
                return OSError(code, reason, self._where)
        if "unable to open" in text and self.file is not None and self.file.exists():
            return OSError(errno.EACCES, _NOT_OPENED, self._where)
        return self.damage(text)

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._local = threading.local()
        self._guard = threading.Lock()
        self._idle = []
        self._writer = None
        self._writing_thread = 0

    def _follow_fork(self) -> None:
        """Start with new connections in a forked process: SQLite's must be neither used there nor closed."""
        if self._process == os.getpid():
            return
        self._turns = threading.RLock()
        _inherited.append(self._idle)
        self._begin_process()

    def _current_connection(self) -> Connection | None:
        """Return the connection that this thread is writing or reading with, or None."""
        self._follow_fork()
        return self._own_writer() or getattr(self._local, "connection", None)

    def _own_writer(self) -> Connection | None:
        """Return the connection that this thread is writing with, or None."""
        return self._writer if self._writing_thread == threading.get_ident() else None

    def _end_writing(self, connection: Connection) -> None:
        self._writer = None
        self._writing_thread = 0
        self._give_back(connection)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        with self.explaining_errors():
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)

    def _take(self) -> Connection:
        if self._memory is not None:
            if not self._turns.acquire(timeout=_BUSY_SECONDS):
                raise OSError(
                    errno.EBUSY, "another thread has been writing to it for too long", self._where
                )
            return self._memory
        assert self.file is not None
        # an open connection would keep reading the removed file
        if self._inode_now() != self._opened:
            # files copied into the same folder may not be complete yet
            kind = ReplacedIndexError if self.is_replaced else InvalidIndexError
            raise kind(
                f"{self.file} was replaced by another file since it was opened, for example by restoring a "
                "backup: load the index again, or restart the server"
            )
        with self._guard:
            if self._idle:
                return self._idle.pop()
        return _connect(self.file)

    def _inode_now(self) -> str:
        assert self.file is not None
        try:
            return _inode_of(self.file)
        except (FileNotFoundError, NotADirectoryError):
            raise self.damage(f"{self.file.name} is missing") from None

    def _give_back(self, connection: Connection) -> None:
        if self._memory is not None:
            self._turns.release()
            return
        assert self.file is not None
        # a read-only connection may have been opened as immutable, and would miss later changes
        is_kept = not connection.in_transaction and _is_writable(self.file)
        with self._guard:
            if len(self._idle) < _MOST_IDLE and is_kept:
                self._idle.append(connection)
                return
        connection.close()

    def _create(self, schema: str) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.explaining_errors():
            connection = self._memory or _connect(self.file)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {_ABOUT_SCHEMA} {schema} COMMIT;")
            if self.file is not None:
                _set_note(connection, _INODE, _inode_of(self.file))
                connection.close()


# connections of parent processes: closing them would release the parent's locks
_inherited: list[list[Connection]] = []


def select_by_row(connection: Connection, select: str, rows: Iterable[int]) -> Cursor:
    """Run a query (or a deletion) that ends in `WHERE row IN`, for any number of rows.

    The rows are bound as one value: a query that lists them in its text would be parsed every time, which
    takes longer than looking up half of them.
    """
    return connection.execute(
        f"{select} (SELECT value FROM json_each(?))", [json.dumps(sorted(rows))]
    )


def select_by_text(
    connection: Connection, select: str, texts: Iterable[str]
) -> Iterator[tuple[Any, ...]]:
    """Return what a query that ends in `column IN` selects, for any number of texts."""
    batches = iter_batch(dict.fromkeys(texts), _TEXTS_A_QUERY)
    return chain.from_iterable(
        connection.execute(f"{select} ({', '.join('?' * len(batch))})", batch) for batch in batches
    )


def _connect(file: Path | None) -> Connection:
    place = ":memory:"
    if file is not None:
        place = str(file) if _is_writable(file) else _read_only_uri(file)
    connection = sqlite3.connect(
        place,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=place.startswith("file://"),
    )
    connection.create_function("compress", 1, compress, deterministic=True)
    connection.create_function("decompress", 1, decompress, deterministic=True)
    connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_OF_LOG}")
    connection.execute("PRAGMA synchronous = FULL")  # a commit outlasts a power failure
    return connection


def _is_writable(file: Path) -> bool:
    return os.access(file.parent, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))


def _read_only_uri(file: Path) -> str:
    """Return a URI that opens the file read-only; as immutable if there is no log beside it.

    SQLite could not create the files that it needs for a log, and reads an immutable database without them.
    """
    uri = f"{file.absolute().as_uri()}?mode=ro"
    log = file.with_name(f"{file.name}-wal")
    if not size_of(log):
        uri += "&immutable=1"
    return uri


def _is_database(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_HEADER)) == _HEADER


def _inode_of(file: Path) -> str:
    return str(file.stat().st_ino)


def _set_note(connection: Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))
