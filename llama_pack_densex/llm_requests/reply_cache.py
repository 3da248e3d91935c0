"""A durable cache of what LLMs replied, so that nothing is asked, and paid for, twice."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_pack_densex.llm_requests.kv_replies import FACTORY_ADVICE, KVReplies
from llama_pack_densex.llm_requests.reply_stores import DamagedEntry, Outcome, ReplyStore, seal, unseal
from llama_pack_densex.llm_requests.sql_replies import SQLReplies

logger = logging.getLogger(__name__)

Source = str | Path | BaseKVStore | Callable[[], BaseKVStore]


def passage_digest(text: str) -> str:
    """Return the 24 hexadecimal digits by which a passage's entries are found again."""
    return _digest(text, 12)


def reply_key(text: str, payload: str) -> str:
    """Return the key of a reply: 57 characters.

    Args:
        text: The passage's text.
        payload: All that the reply depends on: what is sent, to which model, with which settings.
    """
    return f"{passage_digest(text)}-{_digest(payload, 16)}"


class ReplyCache:
    """Replies that are kept as they arrive, in a file or a KV store, for many threads and processes at once.

    A reply is safe when `put` returns: a process that is killed then loses nothing. Each entry has a checksum. One
    that is damaged is warned of and counted, and is then missing, so that its passage is asked for again.

    A file is an SQLite database that only its owner can read, and of the folders above it, those that are missing are
    made. Nothing is opened before the first use. Copies of a cache are the same cache; pickled, it becomes a cache of
    the same file or of a store made by the same factory.

    Args:
        store: A file's path; or a LlamaIndex KV store (Redis, Postgres); or, where other processes use the cache too, a
            function without arguments that makes the store, or that function's name as "module:name".
        max_age: Entries that are older are missing. The first use deletes them, which for a KV store means that it
            fetches all entries.

    Raises:
        ValueError: `store` is a URL or a name that cannot be imported, or `max_age` is not positive.

    Examples:
        >>> import tempfile
        >>> from llama_pack_densex.llm_requests.reply import Reply
        >>> cache = ReplyCache(Path(tempfile.mkdtemp()) / "replies.sqlite")
        >>> key = reply_key("Miso is salty.", "the prompt, the model and its settings")
        >>> cache.put(key, Reply('["Miso is salty."]', "stop"))
        >>> cache.get(key).text
        '["Miso is salty."]'
        >>> cache.purge(["Miso is salty."])
        1
    """

    def __init__(self, store: Source, *, max_age: timedelta | None = None) -> None:
        if max_age is not None and max_age <= timedelta(0):
            raise ValueError(f"max_age must be positive, not {max_age}")
        self._max_age = max_age
        self._source = _absolute(store)
        self._store: ReplyStore = (
            SQLReplies(str(self._source)) if isinstance(self._source, Path) else KVReplies(self._source)
        )
        self._swept = max_age is None
        self._damaged: set[str] = set()
        self._reports = itertools.count()

    @classmethod
    def of(cls, value: ReplyCache | Source) -> ReplyCache:
        """Return a cache as it is, and make one of anything else that names a store."""
        return value if isinstance(value, ReplyCache) else cls(value)

    def get(self, key: str) -> Outcome | None:
        """Return what was kept under a key; None where there is nothing, or it is too old or damaged.

        Raises:
            OSError: The store cannot be used; the message names it and says what to do. The same holds for all methods.
        """
        self._sweep()
        try:
            entry = self._store.read(key)
            if entry is None or entry.written < self._oldest():
                return None
            return unseal(key, entry)
        except DamagedEntry:
            self._report(key)
            return None

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, in the place of an earlier one. It is safe when this returns.

        Args:
            key: What `reply_key` returned.
            outcome: A reply, or a failure that is the passage's matter: "too_long" or "filtered".

        Raises:
            ValueError: The failure is of another kind, and may not happen again.
        """
        self._sweep()
        self._store.write(key, seal(key, outcome, _now()))

    def known(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have an entry; `get` may still find it damaged.

        A file is asked for 500 keys at a time, a KV store for each.
        """
        self._sweep()
        return self._store.known(keys, self._oldest())

    def purge(self, texts: Iterable[str]) -> int:
        """Delete all that was ever kept for passages: for every prompt, every model and every part of a retry.

        From a file the texts are erased: they are overwritten, in its -wal file too. A KV store is searched by fetching
        all its entries; whether it keeps deleted data on its disks or in backups is its own matter.

        Args:
            texts: The passages' texts.

        Returns:
            How many entries were deleted.
        """
        self._sweep()
        return self._store.purge(passage_digest(text) for text in texts)

    def remove_expired(self) -> int:
        """Delete the entries that are older than `max_age`, and return how many they were."""
        removed = 0 if self._max_age is None else self._store.remove_older(self._oldest())
        self._swept = True
        return removed

    def __len__(self) -> int:
        self._sweep()
        return self._store.count(self._oldest())

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache

    def close(self) -> None:
        """Close the file or let go of the store; the next use opens it again."""
        self._store.close()

    @property
    def damaged(self) -> int:
        """Entries that this object found damaged so far."""
        return len(self._damaged) + self._store.lost

    @property
    def description(self) -> str:
        """The path, or the name of the store's class or factory. It holds no credentials."""
        return self._store.description

    def __repr__(self) -> str:
        return f"ReplyCache({self.description!r})"

    def __copy__(self) -> ReplyCache:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplyCache:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._source, BaseKVStore):
            raise TypeError(f"A reply cache in a {self.description} object cannot be pickled. {FACTORY_ADVICE}")
        return _rebuild, (self._source, self._max_age)

    def _oldest(self) -> int:
        return 0 if self._max_age is None else _now() - self._max_age // timedelta(milliseconds=1)

    def _sweep(self) -> None:
        if not self._swept:
            self.remove_expired()

    def _report(self, key: str) -> None:
        self._damaged.add(key)
        if next(self._reports) == 0:
            logger.warning(
                "An entry of the reply cache %s is damaged; its passage is asked for again. "
                "Further ones are only counted.",
                self.description,
            )


def _rebuild(source: Path | str | Callable[[], BaseKVStore], max_age: timedelta | None) -> ReplyCache:
    return ReplyCache(source, max_age=max_age)


def _absolute(store: Source) -> Source:
    if isinstance(store, BaseKVStore) or callable(store) or _is_factory_name(store):
        return store
    if isinstance(store, str) and "://" in store:
        raise ValueError(f"A reply cache takes a path, not a URL; for a server, a KV store. {FACTORY_ADVICE}")
    return Path(os.path.abspath(store))


def _is_factory_name(store: object) -> bool:
    return isinstance(store, str) and _FACTORY_NAME.fullmatch(store) is not None


def _now() -> int:
    return time.time_ns() // 1_000_000


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


# Two letters at least before the colon: "C:replies" is a path.
_FACTORY_NAME = re.compile(r"[^\W\d]\w[\w.]*:[^\W\d][\w.]*")
