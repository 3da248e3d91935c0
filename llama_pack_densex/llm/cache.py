"""A durable cache of LLM replies, so that no request is sent, and paid for, twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from llama_pack_densex.llm.errors import Failure
from llama_pack_densex.llm.usage import Reply, Usage
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

T = TypeVar("T")
Outcome = Reply | Failure
"""The outcome of a request: a reply, or why there is none."""

KEPT_FAILURES = ("too_long", "filtered")
"""Kinds of failures that are cached, since the same request would fail again."""

_SQLITE_HEADER = b"SQLite format 3\0"
_NOT_OURS = "it is not a reply cache"
_CLAIM_SECONDS = 3
_BUSY_SECONDS = 30
_SET_UP = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA secure_delete = ON;
    CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, written INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL);
"""
# Each renewal changes `until`; only earlier versions of this package compare it with the time of day.
_CLAIM = """
    INSERT INTO claims VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, until = max(excluded.until, until + 1)
    WHERE owner = excluded.owner OR (owner, until) = (CAST(? AS TEXT), ?) RETURNING 1
"""


def passage_digest(text: str) -> str:
    """Return the 24 hexadecimal digits by which a text's entries are found."""
    return _digest(text, 12)


def reply_key(text: str, payload: str) -> str:
    """Return the key of a reply: 57 characters.

    Args:
        text: The text that the request is about.
        payload: Everything that the reply depends on: the messages, the model and its settings.
    """
    return f"{passage_digest(text)}-{_digest(payload, 16)}"


class ReplyCache:
    """A store of replies in an SQLite file that many threads and processes may share.

    A reply is safe as soon as `put` returns (WAL), even if the process is then killed. Only the file's owner
    can read it; missing parent folders are created. If the file turns out to be damaged, it is renamed to end
    in ".damaged", with a warning, and replaced by a new one; a file of another kind is refused. The file is
    opened at the first use. A pickled or copied cache uses the same file.

    Args:
        path: The path of the file.
        max_age: Older entries count as missing, and are deleted at the first use.

    Raises:
        ValueError: `path` is a URL, or `max_age` is not positive.

    Example:
        >>> from datetime import timedelta
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import LLMPropositionizer, Passage
        >>> from llama_pack_densex.llm.cache import ReplyCache
        >>> cache = ReplyCache("replies.db", max_age=timedelta(days=90))
        >>> passages = [Passage("Miso, a seasoning, is made of soybeans.")]
        >>> for _ in range(2):
        ...     propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"), cache=cache)
        ...     sets = propositionizer.propositionize(passages)
        ...     print(propositionizer.figures.usage.requests, propositionizer.figures.cache_hits)
        1 0
        0 1
    """

    def __init__(self, path: str | Path, max_age: timedelta | None = None) -> None:
        if max_age is not None and max_age <= timedelta(0):
            raise ValueError(f"max_age must be positive, not {max_age}")
        if "://" in str(path):
            raise ValueError("A reply cache takes the path of a file, not a URL")
        self.path = Path(os.path.realpath(path))
        self.max_age = max_age
        self._connections: dict[int, _Connection] = {}  # by process id
        # claims of others by key: owner and `until`, and when they were first seen with these values
        self._seen_claims: dict[str, tuple[Any, float]] = {}

    def get(self, key: str) -> Outcome | None:
        """Return the entry of a key; None if there is none, or it is too old or unreadable.

        Raises:
            OSError: The file cannot be used; the message names it and says what to do. All methods raise
                this.
        """
        rows = self._run(
            "SELECT body FROM replies WHERE key = ? AND written >= ?", key, self._oldest()
        )
        if not rows:
            return None
        try:
            return _decode(json.loads(rows[0][0]))
        except (ValueError, TypeError, KeyError):
            logger.warning(
                "An entry of the reply cache %s is damaged: its reply is requested again.",
                self.path,
            )
            return None

    def put(self, key: str, outcome: Outcome) -> None:
        """Store an outcome, replacing an earlier one. It is safe when this returns.

        Args:
            key: The key that `reply_key` returned.
            outcome: A reply, or a failure of a kind in `KEPT_FAILURES`.
        """
        self._run("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", key, _now(), _encode(outcome))

    def claim(self, key: str, owner: str) -> bool:
        """Claim a key, or renew the claim, before requesting its reply; False if another owner holds it.

        Owners renew their claims every second. A claim that was not renewed for some seconds is taken over.
        These seconds are measured by this process's monotonic clock, because the time of day may be changed
        and differs between machines.
        """
        nobody = (None, None)
        seen, since = self._seen_claims.get(key, (nobody, math.inf))
        abandoned = seen if time.monotonic() - since >= _CLAIM_SECONDS else nobody
        if self._run(_CLAIM, key, owner, _now() + _CLAIM_SECONDS * 1_000, *abandoned):
            self._seen_claims.pop(key, None)
            return True
        rows = self._run("SELECT owner, until FROM claims WHERE key = ?", key)
        if rows and rows[0] != seen:
            self._seen_claims[key] = (rows[0], time.monotonic())
        return False

    def release(self, key: str, owner: str) -> None:
        """Withdraw a claim, and stop watching those of other owners."""
        self._seen_claims.pop(key, None)
        self._run("DELETE FROM claims WHERE key = ? AND owner = ?", key, owner)

    def purge(self, texts: Iterable[str]) -> int:
        """Delete all entries for some texts, whatever the prompt, model or attempt.

        The entries are erased: they are overwritten, in the -wal file too, and a damaged file that was set
        aside is deleted.

        Returns:
            The number of deleted entries.

        Example:
            >>> cache.purge(["Miso, a seasoning, is made of soybeans."])
            1
        """
        between = "DELETE FROM replies WHERE key BETWEEN ? AND ? RETURNING 1"  # "." follows "-"
        digests = {passage_digest(text) for text in texts}
        removed = sum(len(self._run(between, f"{digest}-", f"{digest}.")) for digest in digests)
        Path(f"{self.path}.damaged").unlink(missing_ok=True)
        # The -wal file holds the texts until it is written back to the database, where they become zeroes.
        if self._run("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            raise OSError(
                f"{removed} entries were deleted from the reply cache {self.path}, but their text is still "
                "in its -wal file, because another process is reading: call purge again when it has finished"
            )
        return removed

    async def in_thread(self, use: Callable[..., T], *values: Any) -> T:
        """Call a method in this cache's own thread, so that a locked file does not block the event loop.

        Calls keep their order, even if nobody waits for one any more.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._connection.thread, use, *values
        )

    def close(self) -> None:
        """Close the file; the next use opens it again.

        Example:
            >>> cache.close()
            >>> cache.purge([])
            0
        """
        self._connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplyCache, (self.path, self.max_age)

    def _oldest(self) -> int:
        """Return the time before which entries are too old, in milliseconds since the epoch."""
        if not self.max_age:
            return 0
        return _now() - self.max_age // timedelta(milliseconds=1)

    @property
    def _connection(self) -> _Connection:
        """This process's own connection: SQLite forbids using or closing one that was open across a fork."""
        process = os.getpid()
        if process not in self._connections:
            self._connections.setdefault(process, _Connection())
        return self._connections[process]

    @property
    def _file_lock(self) -> FileLock:
        """A new lock for each use: one made before a fork cannot be used after it."""
        return FileLock(f"{self.path}.lock", mode=0o600)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._connection.lock:
            for _ in range(2):
                try:
                    return self._open().execute(statement, values).fetchall()
                except (sqlite3.OperationalError, OSError) as error:
                    reason = getattr(error, "strerror", None) or str(error)
                    break
                except sqlite3.DatabaseError as error:
                    reason = str(error)
                    self._set_aside()
        raise OSError(
            f"The reply cache {self.path} cannot be used ({reason}). Check that this is the path of a file, "
            "that the file and its folder are writable, that the disk has room and that no other process "
            "keeps it locked; or give another path."
        )

    def _open(self) -> sqlite3.Connection:
        """Connect to the file at the path; reconnect if it was deleted or set aside meanwhile."""
        connection = self._connection
        if connection.database and connection.file == _identity(self.path):
            return connection.database
        connection.close()
        for folder in reversed(self.path.parents):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        self._check_is_ours()
        with self._file_lock:
            if not self.path.exists():
                for suffix in ("-wal", "-shm"):  # of a file that was deleted or set aside
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            # SQLite gives -wal and -shm the same mode
            os.close(open_private(str(self.path), os.O_CREAT | os.O_RDWR))
            connection.file = _identity(self.path)
            connection.database = self._connect()
        return connection.database

    def _check_is_ours(self) -> None:
        if os.path.exists(self._file_lock.lock_file) or not self.path.exists():
            return
        with self.path.open("rb") as stream:
            if stream.read(len(_SQLITE_HEADER)) not in (b"", _SQLITE_HEADER):
                raise OSError(_NOT_OURS)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self.path, _BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            database.text_factory = bytes  # an entry that is no longer text spoils only itself
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if tables and b"replies" not in tables:
                raise OSError(_NOT_OURS)
            database.executescript(_SET_UP)
            if self.max_age:
                database.execute("DELETE FROM replies WHERE written < ?", (self._oldest(),))
        except BaseException:
            database.close()
            raise
        return database

    def _set_aside(self) -> None:
        """Rename the damaged file, unless another process already has."""
        self._connection.close()
        with self._file_lock:
            if _identity(self.path) != self._connection.file:
                return
            self.path.replace(f"{self.path}.damaged")
        logger.warning(
            "The reply cache %s was damaged: it was renamed to %s.damaged and replaced by a new one. Its "
            "replies are requested again.",
            self.path,
            self.path,
        )


@dataclass
class _Connection:
    """One process's connection to a cache's file, with its lock and thread."""

    lock: Any = field(default_factory=threading.RLock)
    thread: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, 1, "reply cache")
    )
    database: sqlite3.Connection | None = None
    file: tuple[int, int] | None = None

    def close(self) -> None:
        with self.lock:
            if self.database:
                self.database.close()
            self.database = None


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read; serves as an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def _identity(path: Path) -> tuple[int, int] | None:
    if not path.exists():
        return None
    status = path.stat()
    return status.st_dev, status.st_ino


def _encode(outcome: Outcome) -> str:
    if isinstance(outcome, Reply):
        fields = {"text": outcome.text, "finish": outcome.finish, "usage": astuple(outcome.usage)}
    else:
        fields = {"failure": outcome.kind, "summary": outcome.summary}
    # A lone surrogate can only be inside a JSON string, where its backslash escape is JSON's own.
    text = json.dumps(fields, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _decode(fields: Any) -> Outcome:
    if "failure" in fields:
        return Failure(fields["failure"], fields["summary"])
    return Reply(fields["text"], fields["finish"], Usage(*fields["usage"]))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
