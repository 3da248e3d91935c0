"""A durable cache of what LLMs replied, so that nothing is asked, and paid for, twice."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock

from llama_pack_densex.llm.errors import Failure
from llama_pack_densex.llm.usage import Reply, Usage

logger = logging.getLogger(__name__)

KEPT_FAILURES = ("too_long", "filtered")
"""Failures that would come back as they are."""

_BEGINNING = b"SQLite format 3\0"
_SCHEMA = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, written INTEGER NOT NULL, body TEXT NOT NULL)"
_CLAIMS = "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL)"
_CLAIMED = 3_000  # milliseconds
_BUSY_SECONDS = 30
_FOREIGN = "it is not a reply cache"
_INHERITED: list[sqlite3.Connection | None] = []
"""Connections of a process that forked: SQLite forbids to use them, and closing them would disturb the parent's."""


def passage_digest(text: str) -> str:
    """Return the 24 hexadecimal digits by which a text's entries are found again."""
    return _digest(text, 12)


def reply_key(text: str, payload: str) -> str:
    """Return the key of a reply: 57 characters.

    Args:
        text: The text that it is about.
        payload: All that the reply depends on: what is sent, to which model, with which settings.
    """
    return f"{passage_digest(text)}-{_digest(payload, 16)}"


class ReplyCache:
    """Replies that are kept as they arrive, in an SQLite file, for many threads and processes at once.

    A reply is safe when `put` returns (WAL): a process that is killed at any moment then loses nothing. Only its owner
    can read the file, and of the folders above it, those that are missing are made. One that turns out to be damaged is
    renamed to end in ".damaged", with a warning, and begun anew; a file of something else is refused. Nothing is opened
    before the first use. Pickled or copied, it is a cache of the same file.

    Args:
        path: The file.
        max_age: Entries that are older are missing; they are deleted at the first use.

    Raises:
        ValueError: `path` is a URL, or `max_age` is not positive.

    Examples:
        >>> import tempfile
        >>> cache = ReplyCache(Path(tempfile.mkdtemp()) / "replies.sqlite")
        >>> key = reply_key("Miso is salty.", "the prompt, the model and its settings")
        >>> cache.put(key, Reply('["Miso is salty."]', "stop"))
        >>> cache.get(key).text
        '["Miso is salty."]'
        >>> cache.purge(["Miso is salty."])
        1
    """

    def __init__(self, path: str | Path, max_age: timedelta | None = None) -> None:
        if max_age is not None and max_age <= timedelta(0):
            raise ValueError(f"max_age must be positive, not {max_age}")
        if "://" in str(path):
            raise ValueError("A reply cache takes the path of a file, not a URL")
        self.path, self.max_age = Path(os.path.realpath(path)), max_age
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def get(self, key: str) -> Reply | Failure | None:
        """Return what was kept under a key; None where there is nothing, or it is too old or unreadable.

        Raises:
            OSError: The file cannot be used; the message names it and says what to do. The same holds for all methods.
        """
        rows = self._run("SELECT body FROM replies WHERE key = ? AND written >= ?", (key, self._oldest()))
        try:
            return _decode(json.loads(rows[0][0])) if rows else None
        except (ValueError, TypeError, KeyError):
            logger.warning("An entry of the reply cache %s is damaged and is asked for again.", self.path)
            return None

    def put(self, key: str, outcome: Reply | Failure) -> None:
        """Keep an outcome, in the place of an earlier one. It is safe when this returns.

        Args:
            key: What `reply_key` returned.
            outcome: A reply, or a failure of `KEPT_FAILURES`.
        """
        self._run("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, _now(), _encode(outcome)))

    def claim(self, key: str, owner: str) -> bool:
        """Say for some seconds, or for some more, that a key is being asked for; False where somebody else says so."""
        says = (
            "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, "
            "until = excluded.until WHERE owner = excluded.owner OR until < ? RETURNING 1"
        )
        return bool(self._run(says, (key, owner, _now() + _CLAIMED, _now())))

    def release(self, key: str, owner: str) -> None:
        """Take back what `claim` said."""
        self._run("DELETE FROM claims WHERE key = ? AND owner = ?", (key, owner))

    def purge(self, texts: Iterable[str]) -> int:
        """Delete all that was ever kept for texts: for every prompt, every model and every part of a retry.

        The texts are erased: they are overwritten, in the -wal file too, and so is a damaged file that was set aside.

        Returns:
            How many entries were deleted.
        """
        between = "DELETE FROM replies WHERE key BETWEEN ? AND ? RETURNING 1"  # "." comes next after "-"
        digests = {passage_digest(text) for text in texts}
        removed = sum(len(self._run(between, (f"{digest}-", f"{digest}."))) for digest in digests)
        Path(f"{self.path}.damaged").unlink(missing_ok=True)
        # The -wal file holds the deleted texts until it is emptied into the database, where secure_delete wrote zeroes.
        if self._run("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            raise OSError(
                f"{removed} entries were deleted from the reply cache {self.path}, but their text is still in its -wal "
                "file, as another process keeps reading: call purge again when it is done"
            )
        return removed

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplyCache, (self.path, self.max_age)

    def _oldest(self) -> int:
        """The moment before which entries are too old."""
        return 0 if self.max_age is None else _now() - self.max_age // timedelta(milliseconds=1)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if self._process != os.getpid():  # forked: another thread may have held the lock, and the connection is lost
            _INHERITED.append(self._connection)
            self._lock, self._connection, self._process = threading.RLock(), None, os.getpid()
        with self._lock:
            for _ in range(2):
                try:
                    return self._opened().execute(statement, values).fetchall()
                except (sqlite3.OperationalError, OSError) as error:
                    said = getattr(error, "strerror", None) or str(error)
                    break
                except sqlite3.DatabaseError as error:
                    said = str(error)
                    self._set_aside()
        raise OSError(
            f"The reply cache {self.path} cannot be used ({said}). See whether that is the path of a file, the "
            "file and its folder are writable, the disk has room and no other process keeps it locked; or give another "
            "path."
        )

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that the path names now: one that was deleted or set aside is begun anew."""
        if self._connection is not None and self._identity == _identity(self.path):
            return self._connection
        self.close()
        for folder in reversed([folder for folder in self.path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        if self.path.exists() and not os.path.exists(f"{self.path}.lock"):  # a cache of ours has its lock
            with self.path.open("rb") as stream:
                if stream.read(len(_BEGINNING)) not in (b"", _BEGINNING):
                    raise OSError(_FOREIGN)
        with FileLock(f"{self.path}.lock", mode=0o600):
            if not self.path.exists():
                for suffix in ("-wal", "-shm"):  # of a file that was deleted or set aside
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            os.close(open_private(str(self.path), os.O_CREAT | os.O_RDWR))  # -wal and -shm get the same mode
            self._identity = _identity(self.path)
            connection = sqlite3.connect(self.path, _BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(connection)
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = bytes  # what is no text any more costs its entry only
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if tables and b"replies" not in tables:
            raise OSError(_FOREIGN)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(_SCHEMA)
        connection.execute(_CLAIMS)
        if self.max_age is not None:
            connection.execute("DELETE FROM replies WHERE written < ?", (self._oldest(),))

    def _set_aside(self) -> None:
        """Rename a damaged file, unless another process did so meanwhile."""
        self.close()
        with FileLock(f"{self.path}.lock", mode=0o600):
            if _identity(self.path) != self._identity:
                return
            self.path.replace(f"{self.path}.damaged")
        logger.warning(
            "The reply cache %s was damaged: it lies in %s.damaged now, and a new one is begun. What it held is asked "
            "for again.",
            str(self.path),
            str(self.path),
        )


def open_private(path: str, flags: int) -> int:
    """An `opener` for files that only their owner may read."""
    return os.open(path, flags, 0o600)


def _identity(path: Path) -> tuple[int, int] | None:
    status = path.stat() if path.exists() else None
    return None if status is None else (status.st_dev, status.st_ino)


def _encode(outcome: Reply | Failure) -> str:
    if isinstance(outcome, Reply):
        fields: dict[str, Any] = {"text": outcome.text, "finish": outcome.finish, "usage": astuple(outcome.usage)}
    else:
        fields = {"failure": outcome.kind, "summary": outcome.summary}
    # A lone surrogate can only be inside a JSON string, where its backslash escape is JSON's own.
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def _decode(fields: Any) -> Reply | Failure:
    if "failure" in fields:
        return Failure(fields["failure"], fields["summary"])
    return Reply(fields["text"], fields["finish"], Usage(*fields["usage"]))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
