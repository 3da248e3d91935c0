"""An SQLite database as an index needs it: one writer, and readers that each see one whole state meanwhile.

A database in a file is in SQLite's WAL mode: readers go on with the state at their beginning while another
process writes, and a stop at any moment, also a kill, leaves the last state that was committed. A database in
memory has one connection, which its threads take in turns.
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

from llama_pack_densex.index.manifest import InvalidIndexError, size_of

IN_MEMORY = "memory"
DISK_IS_FULL = "the disk is full; what was committed before is kept"

_BUSY_SECONDS = 30.0  # how long a second writer waits for the first one's commit
_PAGE_CACHE_KIB = 32 * 1024  # for each connection
_MOST_IDLE = 8  # connections that are kept open for the next readers
_ROWS_A_PAGE = 1_000
_PAGES_OF_LOG = 4_000  # of 4 KiB, with which SQLite takes the log over into the file
_LARGE_LOG = 4_096 * _PAGES_OF_LOG  # bytes; taken over, it keeps its length
_TEXTS_A_QUERY = 500  # fewer than SQLite takes arguments
_ABOUT_SCHEMA = "CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
_HEADER = b"SQLite format 3\0"
_ERRORS_OF_THE_MACHINE = (
    ("disk is full", errno.ENOSPC, DISK_IS_FULL),
    ("readonly", errno.EROFS, "an index can be searched there, but not made or changed"),
    ("locked", errno.EBUSY, "another process has been writing to it for too long; try again"),
)
_NOT_OPENED = "the system does not let the index be opened: see to that, and do not build it anew"
_INODE = "inode"  # of the file that was written to; a copy has another one


class Database:
    """A database, in a file or in memory, from any number of threads, and in processes that are forked.

    Args:
        file: The file, which is made where it is missing; None for a database in memory.
        schema: Creates its tables.

    Raises:
        InvalidIndexError: The file is damaged, or no database.
        OSError: It cannot be opened or written to.
    """

    _idle: list[Connection]
    _writer: Connection | None

    def __init__(self, file: Path | None, schema: str) -> None:
        self.file = file
        self._where = IN_MEMORY if file is None else str(file.parent)
        self._memory = _connect(None) if file is None else None
        self._turns = threading.RLock()  # of the threads, in memory
        self._begin_process()
        if file is None or not size_of(file):
            self._create(schema)
        elif file.is_file() and not _is_database(
            file
        ):  # SQLite would read what it has in the log beside it
            raise self.damage("file is not a database")
        self._opened = None if file is None else self._inode_now()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read one state throughout; within it, and in a thread that is writing, it is the same state
        again."""
        connection = self._current_connection()
        if connection is not None:
            with self._errors_explained():
                yield connection
            return
        with self._errors_explained(), self._borrowed() as connection:
            connection.execute("BEGIN")
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None
                connection.execute("ROLLBACK")

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, of which any number takes little memory.

        Of a database in a file all are of one state. One in memory is read in pages, so that others have
        their turns; so is a state that this thread is in the middle of writing or reading.

        Args:
            sql: Selects rows, the first column of which is their number. It has the conditions `row > ?` and
                a limit of `?` as its last arguments, in the order of the numbers.
            arguments: Those before.
        """
        if self._memory is None and self._current_connection() is None:
            with self._errors_explained(), self._borrowed() as connection:
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
        """The connection to write with, until `commit` or `roll_back`; nobody else sees what it writes until
        then."""
        self._follow_fork()
        writer = self._own_writer()
        if writer is not None:
            return writer
        with self._errors_explained():
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
        """Make what was written the state that all see."""
        writer = self._own_writer()
        if writer is None:
            return
        try:
            with self._errors_explained():
                writer.execute("COMMIT")
        except BaseException:  # the disk may be full
            self.roll_back()
            raise
        self._end_writing(writer)

    def roll_back(self) -> None:
        """Forget what was written since the last commit."""
        writer = self._own_writer()
        if writer is not None:
            with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                writer.execute("ROLLBACK")
            self._end_writing(writer)

    def copy_to(self, file: Path) -> None:
        """Write a copy of the current state, without anything that was deleted.

        Raises:
            OSError: It cannot be written.
        """
        with closing(_connect(file)) as copy, self.reading() as connection:
            connection.backup(copy)
            copy.execute("VACUUM")
            copy.execute("PRAGMA journal_mode = WAL")
            _set_inode(copy, file)

    def vacuum(self) -> None:
        """Commit, and leave nothing in the file of what was deleted, nor its space.

        Raises:
            OSError: Another process has been reading for too long.
        """
        self.commit()
        connection = self.writing()
        with self._errors_explained():
            connection.execute("COMMIT")
            try:
                connection.execute("VACUUM")
                is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._end_writing(connection)
        if is_busy:
            reason = (
                "somebody has been reading for too long, so that what was deleted is still in its files; "
                "try again"
            )
            raise OSError(errno.EBUSY, reason, self._where)

    def empty_log(self) -> None:
        """Take over into the file what has gathered in the log beside it, unless somebody is reading that
        now."""
        if self.file is None:
            return
        log = self.file.with_name(f"{self.file.name}-wal")
        if size_of(log) < _LARGE_LOG:
            return
        with self._errors_explained(), self._borrowed() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._guard:
            idle = self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    @property
    def is_a_copy(self) -> bool:
        """Whether the file is a copy that others made of the one that was written to, perhaps while it
        was."""
        if self.file is None:
            return False
        with self.reading() as connection:
            return get_note(connection, _INODE) != self._inode_now()

    def check(self) -> None:
        """Look into all of the file.

        Raises:
            InvalidIndexError: It is damaged.
        """
        with self.reading() as connection:
            (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if finding != "ok":
            raise self.damage(finding)

    def accept_copy(self) -> None:
        """Take the file for no copy any more, once it was looked into; nothing is noted where it cannot be
        written."""
        if self.file is not None and _is_writable(self.file):
            _set_inode(self.writing(), self.file)
            self.commit()

    def damage(self, finding: str) -> InvalidIndexError:
        """The error that says that the file is damaged."""
        return InvalidIndexError(
            f"the index in {self._where} cannot be read: a file in it is damaged or missing ({finding}). "
            "If it was copied while it was written to, copy it again; otherwise restore a backup, or remove "
            "it and build it anew (kept replies of an LLM are used again)."
        )

    def explained(self, error: DatabaseError) -> Exception:
        """The error that says what is wrong with the index, or with the machine, for one of SQLite."""
        text = str(error)
        for words, code, reason in _ERRORS_OF_THE_MACHINE:
            if words in text:
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
        """Open connections anew in a process that was forked: SQLite's must not be carried into it, nor
        closed."""
        if self._process == os.getpid():
            return
        self._turns = threading.RLock()
        _inherited.append(self._idle)
        self._begin_process()

    def _current_connection(self) -> Connection | None:
        """The connection that this thread is writing or reading with."""
        self._follow_fork()
        return self._own_writer() or getattr(self._local, "connection", None)

    def _own_writer(self) -> Connection | None:
        """The connection that this thread is writing with."""
        return self._writer if self._writing_thread == threading.get_ident() else None

    def _end_writing(self, connection: Connection) -> None:
        self._writer = None
        self._writing_thread = 0
        self._give_back(connection)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
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
        # a connection that is open would go on with what was removed
        if self._inode_now() != self._opened:
            raise InvalidIndexError(
                f"{self.file} was replaced by another file since it was opened, as by a backup: load the "
                "index again"
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
        # one that may not write may have been told that nobody does
        is_kept = not connection.in_transaction and _is_writable(self.file)
        with self._guard:
            if len(self._idle) < _MOST_IDLE and is_kept:
                self._idle.append(connection)
                return
        connection.close()

    def _create(self, schema: str) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        with self._errors_explained():
            connection = self._memory or _connect(self.file)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {_ABOUT_SCHEMA} {schema} COMMIT;")
            if self.file is not None:
                _set_inode(connection, self.file)
                connection.close()

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise self.explained(error) from error


# of a parent process: to close them would take its locks away
_inherited: list[list[Connection]] = []


def get_note(connection: Connection, key: str) -> str:
    """What the database keeps about itself under a key; empty if nothing."""
    row = connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def set_note(connection: Connection, key: str, value: str) -> None:
    """Keep something about the whole database."""
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))


def select_by_row(connection: Connection, select: str, rows: Iterable[int]) -> Cursor:
    """What a query selects (or deletes) that ends in `WHERE row IN`, for any number of rows.

    They are bound as one value: a query that has them in its text is parsed anew each time, which takes
    longer than to look half of them up.
    """
    return connection.execute(
        f"{select} (SELECT value FROM json_each(?))", [json.dumps(sorted(rows))]
    )


def select_by_text(
    connection: Connection, select: str, texts: Iterable[str]
) -> Iterator[tuple[Any, ...]]:
    """What a query selects that ends in `column IN`, for any number of texts."""
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
    connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_OF_LOG}")
    connection.execute("PRAGMA synchronous = FULL")  # a commit outlasts a power failure
    return connection


def _is_writable(file: Path) -> bool:
    return os.access(file.parent, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))


def _read_only_uri(file: Path) -> str:
    """Where the files cannot be made that SQLite needs beside it for a log, it is told that nobody writes."""
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


def _set_inode(connection: Connection, file: Path) -> None:
    set_note(connection, _INODE, _inode_of(file))
