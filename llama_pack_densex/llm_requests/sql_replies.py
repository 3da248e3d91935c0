"""Replies in one SQLite file, written by many threads and several processes at once."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection

from llama_pack_densex.llm_requests.reply_stores import Entry
from llama_pack_densex.llm_requests.sql_files import (
    FILE_ERRORS,
    LOCK_SUFFIX,
    TABLE,
    WRITE,
    DamagedFile,
    LockFile,
    connect_to_replies,
    discard,
    entry_of,
    foreign,
    is_damage,
    make_folders,
    make_private,
    refuse_foreign,
    row_of,
)
from llama_pack_densex.llm_requests.sql_mending import discard_leftovers, mend

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_READ = f"SELECT written, checksum, body FROM {TABLE} WHERE key = ?"
_STAMP = f"SELECT written, checksum FROM {TABLE} WHERE key = ?"
_PURGE = f"DELETE FROM {TABLE} WHERE key >= ? AND key < ?"
_REMOVE = f"DELETE FROM {TABLE} WHERE id IN (SELECT id FROM {TABLE} WHERE written < ? LIMIT ?)"
_BATCH = 500  # keys in a query, and deletions in a transaction: other writers wait for its end
_TRIES = 3
_ERASING_SECONDS = 30


@dataclass(frozen=True)
class _Opened:
    connection: Connection
    lock: LockFile
    identity: tuple[int, int]


class SQLReplies:
    """Replies in an SQLite file that only its owner can read.

    Each write is committed when it returns: what was written outlives the process's death at any moment (WAL,
    synchronous=NORMAL; after a power failure the last few may be gone, the others stay whole). One connection serves
    all threads of the process, which is cheaper than one for each: SQLite would let them wait for one another in
    sleeps. It is closed before the process is forked, and opened again on both sides.

    A file whose pages are damaged is replaced by a new one with the entries that can still be read. Beside the file
    lies another that ends in ".lock": writers share its lock, and whoever replaces the file has it alone, so that no
    reply is written into a file that is being replaced.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.description = path
        self.lost = 0
        self._path = os.path.realpath(path)
        self._guard = threading.RLock()
        self._opened: _Opened | None = None
        self._lost: weakref.finalize[..., SQLReplies] | None = None
        with _FORKING:
            _ALL.add(self)

    def read(self, key: str) -> Entry | None:
        row = self._do(partial(_first, _READ, (key.encode(),)))
        return None if row is None else entry_of(row)

    def write(self, key: str, entry: Entry) -> None:
        self._do(partial(_write, row_of(key, entry)), writing=True)

    def known(self, keys: Sequence[str], oldest: int) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(keys), _BATCH):
            part = keys[start : start + _BATCH]
            statement = f"SELECT key FROM {TABLE} WHERE written >= ? AND key IN ({','.join('?' * len(part))})"
            rows = self._do(partial(_all, statement, (oldest, *(key.encode() for key in part))))
            stored = {row[0] for row in rows}
            found.update(key for key in part if key.encode() in stored)
        return found

    def purge(self, prefixes: Iterable[str]) -> int:
        removed = 0
        waiting = iter(prefixes)
        while batch := list(islice(waiting, _BATCH)):
            removed += self._do(partial(_delete, batch), writing=True)
        self._erase(removed)
        return removed

    def remove_older(self, oldest: int) -> int:
        removed = 0
        while True:
            count = self._do(partial(_change, _REMOVE, (oldest, _BATCH)), writing=True)
            removed += count
            if count < _BATCH:
                return removed

    def count(self, oldest: int) -> int:
        return int(self._do(partial(_first, f"SELECT count(*) FROM {TABLE} WHERE written >= ?", (oldest,)))[0])

    def close(self) -> None:
        with self._guard:
            found = None if self._lost is None else self._lost.detach()
            self._opened = self._lost = None
            if found is not None:
                _close(*found[2])

    def _erase(self, removed: int) -> None:
        """Empty the -wal file, which holds the deleted texts, into the database, where secure_delete wrote zeroes."""
        until = time.monotonic() + _ERASING_SECONDS
        while self._do(partial(_first, "PRAGMA wal_checkpoint(TRUNCATE)", ()), writing=True)[0]:
            if time.monotonic() > until:
                raise OSError(
                    f"{removed} entries were deleted from the reply cache {self.description}, but their text is still "
                    "in its -wal file, as another process keeps reading: call purge again when it is done"
                )
            time.sleep(0.05)

    def _do(self, work: Callable[[Connection], _T], *, writing: bool = False) -> _T:
        """Work with the file that the path names now, and once more where it had to be mended."""
        failures = 0
        with self._guard:
            while True:
                opened = self._current() or self._open()
                try:
                    if not writing:
                        return work(opened.connection)
                    with opened.lock.held(exclusive=False):
                        if self._current():  # else another process replaced it before we had the lock
                            return work(opened.connection)
                except FILE_ERRORS as error:
                    failures += 1
                    if failures == _TRIES or not is_damage(error, self._path):
                        raise self._failure(error) from None
                    self._mend(opened)

    def _current(self) -> _Opened | None:
        opened = self._opened
        return opened if opened is not None and opened.identity == _identity(self._path) else None

    def _open(self) -> _Opened:
        self.close()
        try:
            refuse_foreign(self._path)
            make_folders(self._path)
            lock = LockFile(self._path + LOCK_SUFFIX)
            try:
                with lock.held(exclusive=True):
                    opened = _Opened(self._connected(lock), lock, _identity(self._path))
            except BaseException:
                lock.close()
                raise
        except (*FILE_ERRORS, OSError) as error:
            raise self._failure(error) from None
        self._opened = opened
        self._lost = weakref.finalize(self, _close_lost, opened.connection, lock, self._guard)
        return opened

    def _connected(self, lock: LockFile) -> Connection:
        discard_leftovers(self._path)
        new = make_private(self._path)
        if new:  # of a file that was deleted; a process that has it open must not share them with us
            discard(self._path + "-wal", self._path + "-shm", self._path + "-journal")
        try:
            connection = connect_to_replies(self._path, new=new, marked=lock.marked)
        except FILE_ERRORS as error:
            if not is_damage(error, self._path):
                raise
            if not lock.marked:
                raise foreign(self._path) from None
            self._replace()
            connection = connect_to_replies(self._path, new=True, marked=True)
        lock.mark()
        return connection

    def _mend(self, opened: _Opened) -> None:
        try:
            with opened.lock.held(exclusive=True):
                if self._current():  # else another process mended it before we had the lock
                    opened.connection.close()
                    self._replace()
        except (*FILE_ERRORS, OSError) as error:
            raise self._failure(error) from None
        finally:
            self.close()

    def _replace(self) -> None:
        mended = mend(self._path)
        self.lost += mended.lost
        logger.warning(
            "The reply cache %s was damaged and has been replaced: %d entries were kept, at least %d lost. "
            "Replies that are missing are asked for again.",
            self.description,
            mended.kept,
            mended.lost,
        )

    def _failure(self, error: Exception) -> OSError:
        if isinstance(error, FileExistsError) and error.filename == self._path:
            return error
        said = getattr(error, "strerror", None) or str(getattr(error, "orig", "")) or type(error).__name__
        advice = next((advice for word, advice in _ADVICE.items() if word in said.lower()), _OTHER_ADVICE)
        message = f"The reply cache {self.description} cannot be used ({said}). {advice}"
        return OSError(error.errno, message) if isinstance(error, OSError) and error.errno else OSError(message)


def _first(statement: str, values: tuple[Any, ...], connection: Connection) -> Any:
    return connection.exec_driver_sql(statement, values).first()


def _all(statement: str, values: tuple[Any, ...], connection: Connection) -> Sequence[Any]:
    return connection.exec_driver_sql(statement, values).all()


def _change(statement: str, values: tuple[Any, ...], connection: Connection) -> int:
    return connection.exec_driver_sql(statement, values).rowcount


def _write(row: tuple[bytes, int, bytes, bytes], connection: Connection) -> None:
    connection.exec_driver_sql(WRITE, row)
    found = connection.exec_driver_sql(_STAMP, row[:1]).first()
    if found is None or tuple(found) != row[1:3]:  # through a damaged index, a reply can be put out of reach
        raise DamagedFile


def _delete(prefixes: list[str], connection: Connection) -> int:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        bounds = [(f"{prefix}-".encode(), f"{prefix}.".encode()) for prefix in prefixes]  # "." comes next after "-"
        removed = sum(_change(_PURGE, bound, connection) for bound in bounds)
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        connection.connection.rollback()
        raise
    return removed


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _close(connection: Connection, lock: LockFile, guard: threading.RLock) -> None:
    """Close under the lock: the last connection to a file deletes the -wal file by its name, whosever that is then."""
    try:
        with guard, lock.held(exclusive=False):
            connection.close()
    finally:
        lock.close()


def _close_lost(connection: Connection, lock: LockFile, guard: threading.RLock) -> None:
    """Close what the garbage collector found, without waiting: this thread may hold the lock for another connection."""
    try:
        with guard, lock.held(exclusive=False, wait=False):
            connection.close()
    except BlockingIOError:
        threading.Thread(target=_close, args=(connection, lock, guard), daemon=True).start()
    else:
        lock.close()


_MOVE = "or give another path."
_ADVICE = {
    "full": f"Free space on its disk, {_MOVE}",
    "no space": f"Free space on its disk, {_MOVE}",
    "readonly": f"Make the file and its folder writable, {_MOVE}",
    "read-only": f"Make the file and its folder writable, {_MOVE}",
    "permission": f"Make the file and its folder writable, {_MOVE}",
    "unable to open": f"Make the file and its folder readable and writable, {_MOVE}",
    "is a directory": "Give the path of a file.",
    "locked": "Another process has kept it locked: end that process, or wait until it is done.",
    "malformed": "It was damaged again right after it was mended: look at its disk.",
}
_OTHER_ADVICE = f"Look at its disk and folder, {_MOVE}"

# A connection must not be carried over a fork: SQLite's locks belong to the process, and the child would take them for
# its own. So all connections are closed before, and nothing is written until both sides go on.
_ALL: weakref.WeakSet[SQLReplies] = weakref.WeakSet()
_FORKING = threading.Lock()
_stopped: list[SQLReplies] = []


def _before_fork() -> None:
    _FORKING.acquire()  # and is released by `_after_fork`, on both sides
    for replies in list(_ALL):
        replies._guard.acquire()
        _stopped.append(replies)
        replies.close()


def _after_fork() -> None:
    while _stopped:
        _stopped.pop()._guard.release()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
