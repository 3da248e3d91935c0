"""The manifest of an index: what made the index, and which state of its data is current."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_STATE_NUMBER = re.compile(r'(?<="version": ")\d{12}(?=")')

SCHEMA = 6
"""The version of the layout of folders and stores that this code reads and writes."""

FILE = "densex.json"
REPLIES_FILE = "replies.db"
"""The file of cached LLM replies, beside the data; SQLite keeps its own files beside it."""
OLD_VERSIONS = timedelta(minutes=1)
"""How long superseded files are kept for questions that are being answered; after that, readers that opened
the index earlier switch to its current state."""


class InvalidIndexError(ValueError):
    """A folder is not an index, is damaged, or was made with other settings or by an incompatible version.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, InvalidIndexError
        >>> try:
        ...     DenseXRetrievalPack.load("my-index")
        ... except InvalidIndexError as error:
        ...     print("cannot open it:", error)
        cannot open it: ...my-index is not an index: it does not exist. ...
    """


Measured = tuple[str, int, float | None, float | None, bool, float | None]
"""What was measured of an embedding model in a language: the fields of `LanguageTrust`."""


@dataclass(frozen=True)
class Manifest:
    """An index's description of itself, kept in a folder's `densex.json` or in a row of a vector store.

    A new field needs a default, so that older indexes without it still open.

    Args:
        data: The name of the subfolder with the data; empty in a vector store.
        version: The state of the store: for the embedded store the number of the last change, for others a
            new name after each change.
        mode: The retrieval mode that the index was made for.
        granularity: The granularities of the units that are searched.
        similarity_top_k: The number of nodes returned if a query does not set it.
        embed_model: The identity of the embedding model, or "none".
        embed_spec: The string by which the user named the embedding model; empty if it was not a string.
        propositionizer: The fingerprint of the propositionizer.
        vector_store: "EmbeddedVectorStore", or the class name of the user's own store.
        hybrid: Whether dense and keyword search are fused; "store" if the vector store does so.
        dense_weight: The weight of dense search in the fusion; None if the user chose none.
        embed_metadata: The metadata keys that are embedded with each text.
        llm_metadata: The metadata keys that the LLM reads with each text.
        languages: What was measured of the embedding model, one entry per language.
        hops: The number of hops of a question.
        schema: The version of the layout.
    """

    data: str
    version: str
    mode: str
    granularity: tuple[str, ...]
    similarity_top_k: int
    embed_model: str
    embed_spec: str
    propositionizer: str
    vector_store: str
    hybrid: bool | str
    dense_weight: float | None
    embed_metadata: tuple[str, ...]
    llm_metadata: tuple[str, ...]
    languages: tuple[Measured, ...]
    hops: int = 1
    schema: int = SCHEMA

    def is_alike(self, other: Manifest) -> bool:
        """Return whether both indexes have the same kind of store and the same embedding model."""
        return (self.vector_store, self.embed_model) == (other.vector_store, other.embed_model)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a folder's manifest.

        Raises:
            InvalidIndexError: The folder is not an index, its manifest is damaged, or another version of this
                package made it.
        """
        file = folder / FILE
        how = (
            f"`densex index PATH --to {shlex.quote(str(folder))}` or DenseXRetrievalPack(documents, "
            "persist_dir=...)"
        )
        if not file.is_file():
            raise InvalidIndexError(
                f"{folder} is not an index: it {_lack_of(folder)}. Make one with {how}."
            )
        rebuild = (
            f"remove {FILE} and the folders data-*, and use {how}; cached LLM replies are reused"
        )
        return cls.parsed(file.read_bytes(), str(file), rebuild)

    @classmethod
    def parsed(cls, text: str | bytes, where: str, rebuild: str) -> Manifest:
        """Parse a manifest that `as_text` wrote.

        Args:
            text: The manifest as JSON.
            where: Where the text comes from, for error messages.
            rebuild: How to rebuild the index, for error messages.

        Raises:
            InvalidIndexError: The manifest is damaged, or another version of this package made it.
        """
        advice = f"rebuild the index: {rebuild}."
        try:
            content = json.loads(text)
            schema = int(content["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidIndexError(f"{where} is damaged ({error}); {advice}") from error
        if schema != SCHEMA:
            raise InvalidIndexError(
                f"{where} was made by another version of llama-pack-densex (layout {schema}, this one reads "
                f"{SCHEMA}); upgrade with pip install -U llama-pack-densex, or {advice}"
            )
        required = [field.name for field in fields(cls) if field.default is MISSING]
        lacking = [name for name in required if name not in content]
        if lacking:
            raise InvalidIndexError(
                f"{where} was made by an earlier version of llama-pack-densex: it does not say "
                f"{', '.join(lacking)}; {advice}"
            )
        try:
            return _reader().validate_json(text)
        except ValueError as error:
            raise InvalidIndexError(f"{where} is damaged ({error}); {advice}") from error

    def as_text(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(vars(self), indent=2, ensure_ascii=False)

    def write(self, folder: Path) -> None:
        """Write the manifest; this single step makes `data` the folder's current data.

        If only the number of the embedded store's state changed, which always has the same number of digits,
        the file is overwritten in place: a stop half-way cannot leave a number above that state's.
        """
        file = folder / FILE
        text = self.as_text()
        if file.is_file():
            earlier = file.read_text(encoding="utf-8")
            if _without_version(text) == _without_version(earlier):
                with file.open("r+b") as stream:
                    stream.write(text.encode())
                return
        write_whole(file, text)


@cache
def _reader() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _without_version(text: str) -> str:
    return _STATE_NUMBER.sub("", text)


def is_index(folder: Path) -> bool:
    """Return whether a folder holds an index."""
    return os.path.isfile(folder / FILE)  # False, not an error, if the folder may not be entered


def while_it_changes(folder: Path, read: Callable[[], T]) -> T:
    """Read an index, and retry as long as that fails while its current state changes.

    While another process replaces an index's data with a compacted copy, the index may seem damaged.

    Raises:
        InvalidIndexError: Reading failed although the current state did not change.
    """
    current = Manifest.read(folder)
    while True:
        try:
            return read()
        except InvalidIndexError:
            earlier = current
            current = Manifest.read(folder)
            if current == earlier:
                raise


def write_whole(file: Path, text: str) -> None:
    """Write a file in one step; a stop or a full disk leaves either the old file or the new one.

    A lone surrogate becomes its escape, which JSON parsers decode.
    """
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
        sync(temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)


def remove_files(files: Iterable[Path], older_than: timedelta) -> None:
    """Remove the files that are at least this old; a file that another process has mapped may stay."""
    latest = math.inf  # an age of zero means every file, whatever the clocks say
    if older_than:
        latest = time.time() - older_than.total_seconds()
    for file in files:
        with suppress(OSError):  # on Windows, a file that another process maps
            if file.stat().st_mtime <= latest:
                file.unlink()


def size_of(file: Path) -> int:
    """Return the size of a file in bytes; 0 if it is missing: other processes may remove it at any time."""
    try:
        return file.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power failure; not every system supports that for
    folders."""
    if os.name == "nt" and path.is_dir():
        return
    # Windows does not sync a file that is open only for reading
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _lack_of(folder: Path) -> str:
    """Return why a folder without a manifest is not an index, as a verb phrase."""
    if (folder / REPLIES_FILE).is_file():
        return f"has kept replies and no {FILE}, because a run stopped before any document was complete"
    if folder.is_dir():
        return f"has no {FILE}"
    if folder.exists():
        return "is a file"
    return "does not exist"
