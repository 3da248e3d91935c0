"""The files of an SQLite reply cache: made private, locked, recognised, and found damaged."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from llama_pack_densex.llm_requests.reply_stores import DamagedEntry, Entry, checked_entry

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TABLE = "densex_replies"
WRITE = (
    f"INSERT INTO {TABLE} (key, written, checksum, body) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
    "SET written = excluded.written, checksum = excluded.checksum, body = excluded.body"
)
LOCK_SUFFIX = ".lock"

_BUSY_SECONDS = 30
_SQLITE_HEADER = b"SQLite format 3\0"
# Keys and bodies are BLOBs: SQLite neither decodes nor compares them by an encoding that damage could change.
_SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, written INTEGER NOT NULL, "
    "checksum BLOB NOT NULL, body BLOB NOT NULL)",
    f"CREATE INDEX IF NOT EXISTS {TABLE}_written ON {TABLE} (written)",
)
_ROOM = 16 * 2**20  # bytes with which a disk is not full


def discard(*paths: str) -> None:
    """Delete files where they are there."""
    for path in paths:
        Path(path).unlink(missing_ok=True)


class DamagedFile(Exception):
    """A file that was a reply cache is none any more, although SQLite can read it."""


# What working with a file may raise; `is_damage` tells them apart.
FILE_ERRORS = (DBAPIError, sqlite3.Error, DamagedFile, UnicodeDecodeError)


def make_folders(path: str) -> None:
    """Make the folders above a file that are missing, for their owner only."""
    for folder in reversed([folder for folder in Path(path).parents if not folder.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)


def make_private(path: str) -> bool:
    """Make a file that only its owner can read, where there is none; True if it is new.

    SQLite gives the files beside its database (-wal, -shm) the same mode. A file that is there keeps its mode, and is
    not opened: closing it would drop the locks that SQLite has on it in this process.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True


def refuse_foreign(path: str) -> None:
    """Refuse a file that can be no reply cache and never was one here, so that a wrong path destroys nothing.

    Raises:
        FileExistsError: The file is something else.
    """
    if os.path.exists(path + LOCK_SUFFIX) or not os.path.exists(path):
        return
    with open(path, "rb") as file:
        head = file.read(len(_SQLITE_HEADER))
    if head and head != _SQLITE_HEADER:
        raise foreign(path)


def foreign(path: str) -> FileExistsError:
    """Return the error for a file that is something else."""
    return FileExistsError(
        errno.EEXIST, "is not a reply cache. Give another path, or delete it if it is a cache that was damaged", path
    )


class LockFile:
    """The file beside the cache that keeps the processes apart when the cache's own file is made or replaced.

    It is marked once the cache has been opened: what then stands in the cache's place is a damaged cache, not a
    file of something else.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def held(self, *, exclusive: bool, wait: bool = True) -> Iterator[None]:
        """Hold the lock: shared while something is written, exclusive while the file is made or replaced.

        Raises:
            BlockingIOError: Another one holds it, and `wait` is false.
        """
        _lock(self._descriptor, exclusive, wait)
        try:
            yield
        finally:
            _unlock(self._descriptor)

    @property
    def marked(self) -> bool:
        """Whether the file beside it has been a reply cache."""
        return os.fstat(self._descriptor).st_size > 0

    def mark(self) -> None:
        """Keep in mind that the file beside it is a reply cache."""
        if not self.marked:
            os.write(self._descriptor, b"llama_pack_densex reply cache\n")

    def close(self) -> None:
        """Close the file; where the lock is held, it is given up."""
        os.close(self._descriptor)


if sys.platform == "win32":
    # Windows locks a range for one process only; the byte is beyond the mark. LK_LOCK gives up after ten seconds.
    def _lock(descriptor: int, exclusive: bool, wait: bool) -> None:
        while True:
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)
            try:
                return msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if error.errno not in (errno.EDEADLK, errno.EACCES):
                    raise
                if not wait:
                    raise BlockingIOError(error.errno, error.strerror) from None

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:

    def _lock(descriptor: int, exclusive: bool, wait: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def connect(path: str) -> Connection:
    """Connect to an SQLite file; a statement is committed when it returns."""
    engine = create_engine(
        URL.create("sqlite", database=path),
        isolation_level="AUTOCOMMIT",
        poolclass=NullPool,
        hide_parameters=True,  # they are the passages' texts, and would be in errors and in SQLAlchemy's log
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
    )
    connection = engine.connect()
    driver: Any = connection.connection.driver_connection
    driver.text_factory = bytes
    return connection


def connect_to_replies(path: str, *, new: bool, marked: bool) -> Connection:
    """Connect to a file and see to it that it is a reply cache. The caller holds the exclusive lock.

    Args:
        path: The file; it exists.
        new: Whether it was just made and may be empty.
        marked: Whether it has been a reply cache before.

    Raises:
        DamagedFile: It was a reply cache, and its table is gone.
        FileExistsError: It is a database of something else.
    """
    connection = connect(path)
    try:
        names = [row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master")]
        if TABLE.encode() not in names:
            if names and not any(TABLE.encode() in name for name in names):
                raise foreign(path)
            if names or (marked and not new):
                raise DamagedFile
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        create_table(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def create_table(connection: Connection) -> None:
    """Make the table of replies."""
    for statement in _SCHEMA:
        connection.exec_driver_sql(statement)


def row_of(key: str, entry: Entry) -> tuple[bytes, int, bytes, bytes]:
    """Return the values that `WRITE` takes."""
    return key.encode(), entry.written, entry.checksum.encode(), entry.body.encode()


def entry_of(row: Any) -> Entry:
    """Read an entry from its row (written, checksum, body).

    Raises:
        DamagedEntry: It has other types than were written.
    """
    written, checksum, body = row
    if type(checksum) is not bytes or type(body) is not bytes:
        raise DamagedEntry("wrong types")
    try:
        return checked_entry(written, checksum.decode(), body.decode())
    except UnicodeDecodeError as error:
        raise DamagedEntry(type(error).__name__) from None


def is_damage(error: Exception, path: str) -> bool:
    """Tell whether an error comes from what is in the file, and not from the disk, its rights or other processes."""
    if isinstance(error, (DamagedFile, UnicodeDecodeError)):  # sqlite3 decodes messages that quote a damaged schema
        return True
    cause = getattr(error, "orig", error)
    if not isinstance(cause, sqlite3.DatabaseError) or isinstance(cause, sqlite3.ProgrammingError):
        return False
    said = str(cause).lower()
    folder = os.path.dirname(path)
    if "readonly" in said:  # or the byte that says how the file may be opened was changed
        return os.access(path, os.W_OK) and os.access(folder, os.W_OK)
    if "full" in said:  # or a page's number is beyond all that a file may have
        return shutil.disk_usage(folder).free > _ROOM
    circumstances = ("i/o error", "locked", "unable to open", "locking protocol", "interrupted")
    return not (isinstance(cause, sqlite3.OperationalError) and any(word in said for word in circumstances))
