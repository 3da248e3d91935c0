"""Replies in one of LlamaIndex's KV stores: Redis, Postgres, or whatever else stands behind `BaseKVStore`."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_pack_densex.llm_requests.failures import scrub
from llama_pack_densex.llm_requests.reply_stores import DamagedEntry, Entry, checked_entry

COLLECTION = "densex_replies"
KVFactory = Callable[[], BaseKVStore]

_T = TypeVar("_T")
_FIRST_TRIES = 5
# Other errors may quote what was to be stored.
_HARMLESS_MESSAGES = re.compile("Connection|Timeout|Operational|Authentication")


class KVReplies:
    """Replies in a KV store, in the collection "densex_replies".

    A KV store can only fetch one key or everything: `known` asks for each key, and `purge`, `remove_older` and `count`
    fetch the whole collection. Whether deleted text is gone from the server's disk and backups is the server's matter.

    Args:
        source: The store; or the function that makes it, which other processes and forked ones need; or its name as
            "module:name".
    """

    lost = 0

    def __init__(self, source: BaseKVStore | KVFactory | str) -> None:
        self.description = _describe(source)
        self._factory = _factory(source)
        self._store = source if isinstance(source, BaseKVStore) else None
        self._parents: BaseKVStore | None = None
        self._ready = False
        self._process = os.getpid()
        self._lock = threading.Lock()

    def read(self, key: str) -> Entry | None:
        store = self._connected()
        try:
            value = store.get(key, collection=COLLECTION)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:  # it would stop every later scan of the collection
            self._run("written", lambda: store.delete(key, collection=COLLECTION))
            raise DamagedEntry(type(error).__name__) from None
        except Exception as error:
            raise self._failure("read", error) from None
        return None if value is None else _entry(value)

    def write(self, key: str, entry: Entry) -> None:
        value = {"written": entry.written, "checksum": entry.checksum, "body": entry.body}
        store = self._connected()
        self._run("written", lambda: store.put(key, value, collection=COLLECTION))

    def known(self, keys: Sequence[str], oldest: int) -> set[str]:
        found = set()
        for key in keys:
            try:
                entry = self.read(key)
            except DamagedEntry:
                continue
            if entry is not None and entry.written >= oldest:
                found.add(key)
        return found

    def purge(self, prefixes: Iterable[str]) -> int:
        wanted = set(prefixes)
        return self._delete([key for key in self._everything() if key.partition("-")[0] in wanted])

    def remove_older(self, oldest: int) -> int:
        return self._delete([key for key, value in self._everything().items() if _written(value) < oldest])

    def count(self, oldest: int) -> int:
        return sum(_written(value) >= oldest for value in self._everything().values())

    def close(self) -> None:
        if self._factory is not None:
            self._store, self._ready = None, False

    def _delete(self, keys: list[str]) -> int:
        store = self._connected()
        return sum(self._run("written", lambda: [store.delete(key, collection=COLLECTION) for key in keys]))

    def _everything(self) -> dict[str, Any]:
        store = self._connected()
        return self._run("read", lambda: dict(store.get_all(collection=COLLECTION)))

    def _connected(self) -> BaseKVStore:
        if self._process != os.getpid():
            self._leave_parent()
        store = self._store
        if store is None or not self._ready:
            with self._lock:
                store = self._store or self._make()
                if not self._ready:
                    self._set_up(store)
                self._store, self._ready = store, True
        return store

    def _leave_parent(self) -> None:
        """Let go of the parent's connections after a fork, without closing them, and of its lock, which may be held."""
        if self._factory is None:
            raise RuntimeError(f"The {self.description} of a reply cache was made in another process. {FACTORY_ADVICE}")
        self._parents = self._store
        self._store, self._ready, self._lock = None, False, threading.Lock()
        self._process = os.getpid()

    def _make(self) -> BaseKVStore:
        assert self._factory is not None
        try:
            store = self._factory()
        except Exception as error:
            raise OSError(f"{self.description} failed: {scrub(f'{type(error).__name__}: {error}')}") from None
        if not isinstance(store, BaseKVStore):
            raise ValueError(f"{self.description} made a {type(store).__name__}, not a LlamaIndex KV store")
        return store

    def _set_up(self, store: BaseKVStore) -> None:
        """Ask once, in one thread: the Postgres store creates its table then, and fails if another process does too."""
        for tried in range(1, _FIRST_TRIES + 1):
            try:
                store.get("", collection=COLLECTION)
                return
            except Exception as error:
                if tried == _FIRST_TRIES:
                    raise self._failure("opened", error) from None
                time.sleep(0.05 * tried)

    def _run(self, verb: str, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except Exception as error:
            raise self._failure(verb, error) from None

    def _failure(self, verb: str, error: Exception) -> OSError:
        return OSError(
            f"The reply cache in {self.description} cannot be {verb}: {_reason(error)}. Check that its server can be "
            f"reached and takes writes; replies kept so far are not lost."
        )


FACTORY_ADVICE = 'Give the cache a function at the top level of a module that makes the store, or its "module:name".'


def _factory(source: BaseKVStore | KVFactory | str) -> KVFactory | None:
    if isinstance(source, BaseKVStore):
        return None
    if not isinstance(source, str):
        return source
    try:
        found = pkgutil.resolve_name(source)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{source!r} cannot be imported here (expected "module:name"): {error}') from error
    if not callable(found):
        raise ValueError(f"{source!r} is a {type(found).__name__}, not a function that makes a KV store")
    made: KVFactory = found
    return made


def _describe(source: BaseKVStore | KVFactory | str) -> str:
    if isinstance(source, BaseKVStore):
        return type(source).__name__
    if isinstance(source, str):
        return source
    name = getattr(source, "__qualname__", type(source).__name__)
    return f"{getattr(source, '__module__', '')}:{name}".lstrip(":")


def _entry(value: Any) -> Entry:
    if not isinstance(value, dict):
        raise DamagedEntry("wrong types")
    return checked_entry(value.get("written"), value.get("checksum"), value.get("body"))


def _written(value: Any) -> int:
    """When an entry was written; a damaged one counts as old."""
    try:
        return _entry(value).written
    except DamagedEntry:
        return -1


def _reason(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy's own message quotes the statement with its values
    name = type(cause).__name__
    lines = str(cause).splitlines()
    return scrub(f"{name}: {lines[0]}") if lines and _HARMLESS_MESSAGES.search(name) else name
