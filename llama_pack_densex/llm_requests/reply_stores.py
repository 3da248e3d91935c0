"""What a reply cache keeps for each request, in a form that every store keeps unchanged. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from llama_pack_densex.llm_requests.failures import Failure
from llama_pack_densex.llm_requests.finish_reasons import Finish
from llama_pack_densex.llm_requests.reply import Reply, Usage

Outcome = Reply | Failure


class DamagedEntry(ValueError):
    """An entry is not as it was written."""


@dataclass(frozen=True)
class Entry:
    """What is stored under a key.

    Args:
        written: When, in milliseconds since 1970.
        checksum: Of the key, the time and the body, so that an entry under the wrong key is found out too.
        body: The outcome as JSON. It has neither NUL nor lone surrogates, which databases refuse: they are escaped.
    """

    written: int
    checksum: str
    body: str


class ReplyStore(Protocol):
    """Where entries are. Times are in milliseconds since 1970; a prefix is a `passage_digest`.

    Every method may raise OSError, which names the store and what to do.
    """

    @property
    def description(self) -> str:
        """The store's name for messages, without credentials."""

    @property
    def lost(self) -> int:
        """Entries that were lost with damaged parts of the store, as far as they could be counted."""

    def read(self, key: str) -> Entry | None:
        """Return an entry, None where there is none; raise DamagedEntry where it is no entry."""

    def write(self, key: str, entry: Entry) -> None:
        """Write an entry, or replace it. It is safe when this returns."""

    def known(self, keys: Sequence[str], oldest: int) -> set[str]:
        """Return those of the keys that have an entry which is not older."""

    def purge(self, prefixes: Iterable[str]) -> int:
        """Delete all entries of these passages, beyond recovery from the store's files where they are ours."""

    def remove_older(self, oldest: int) -> int:
        """Delete the entries that are older."""

    def count(self, oldest: int) -> int:
        """Count the entries that are not older."""

    def close(self) -> None:
        """Let go of files and connections; the next call opens them again."""


def seal(key: str, outcome: Outcome, written: int) -> Entry:
    """Make the entry for an outcome."""
    body = _encode(outcome)
    return Entry(written, _checksum(key, written, body), body)


def unseal(key: str, entry: Entry) -> Outcome:
    """Read an outcome from its entry.

    Raises:
        DamagedEntry: It is not as `seal` made it.
    """
    if _checksum(key, entry.written, entry.body) != entry.checksum:
        raise DamagedEntry("wrong checksum")
    try:
        return _decode(json.loads(entry.body))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedEntry(type(error).__name__) from None


def checked_entry(written: Any, checksum: Any, body: Any) -> Entry:
    """Make an entry of what a store returned.

    Raises:
        DamagedEntry: A value has the wrong type.
    """
    if type(written) is int and type(checksum) is str and type(body) is str:
        return Entry(written, checksum, body)
    raise DamagedEntry("wrong types")


def _checksum(key: str, written: int, body: str) -> str:
    content = f"{key}\n{written}\n{body}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _encode(outcome: Outcome) -> str:
    if isinstance(outcome, Reply):
        usage = outcome.usage
        counts = (usage.requests, usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)
        fields: dict[str, Any] = {"text": outcome.text, "finish": outcome.finish, "usage": counts}
    elif outcome.kind in _KEPT_FAILURES:
        fields = {"failure": outcome.kind, "summary": outcome.summary}
    else:
        raise ValueError(f"A {outcome.kind!r} failure may not happen again: only {_KEPT_FAILURES} are kept.")
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate can only be inside a JSON string, where its backslash escape is JSON's own.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _decode(fields: Any) -> Outcome:
    if "failure" in fields:
        return Failure(_member(fields["failure"], _KEPT_FAILURES), _string(fields["summary"]))
    counts = fields["usage"]
    if len(counts) != 4 or any(type(count) is not int or count < 0 for count in counts):
        raise ValueError
    return Reply(_string(fields["text"]), _member(fields["finish"], _FINISHES), Usage(*counts))


def _string(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _member(value: Any, of: tuple[str, ...]) -> Any:
    if value not in of:
        raise ValueError
    return value


_KEPT_FAILURES = ("too_long", "filtered")
_FINISHES: tuple[str, ...] = get_args(Finish)
