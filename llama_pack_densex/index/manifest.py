"""What made an index, and which state of its data is the current one."""

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
"""The version of the layout, of folders and of what stores keep, that this code reads and writes."""

FILE = "densex.json"
REPLIES_FILE = "replies.db"
"""Beside the data: the replies that are kept of an LLM, with SQLite's own files beside it."""
OLD_VERSIONS = timedelta(minutes=1)
"""How long what a change made superfluous is kept, for questions that are being answered; after that, who
opened the index before goes on with its current state."""


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
"""What is known of an embedding model in a language: the fields of `LanguageTrust`."""


@dataclass(frozen=True)
class Manifest:
    """What an index says about itself: a folder in `densex.json`, a vector store in a row of its own.

    A field that is added gets a default, so that indexes without it open.

    Args:
        data: The name of the subfolder with the data; empty in a vector store.
        version: The state of the store: of the embedded one the number of the last change, of others a name
            that each change gives it anew.
        mode: The retrieval mode it was made for.
        granularity: The units that are searched.
        similarity_top_k: Nodes returned where a query does not say.
        embed_model: Which embedding model made it, or "none".
        embed_spec: What the user named the embedding model by, where that was a string; else empty.
        propositionizer: The fingerprint of what made its propositions.
        vector_store: "EmbeddedVectorStore", or the class of the user's own store.
        hybrid: Whether search by embeddings and by words are fused, or "store".
        dense_weight: The embeddings' share in that, where the user chose one.
        embed_metadata: The metadata keys that are embedded with each text.
        llm_metadata: The metadata keys that the LLM reads with each text.
        languages: What is known of the embedding model by language: the language, and what was measured.
        hops: How many hops a question takes.
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
        """Whether both are of indexes in the same kind of store, by the same embedding model."""
        return (self.vector_store, self.embed_model) == (other.vector_store, other.embed_model)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a folder's manifest.

        Raises:
            InvalidIndexError: The folder is not an index, its manifest is damaged, or a newer version made
                it.
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
            f"remove {FILE} and the folders data-*, and use {how}; "
            "kept replies of an LLM are used again"
        )
        return cls.parsed(file.read_bytes(), str(file), rebuild)

    @classmethod
    def parsed(cls, text: str | bytes, where: str, rebuild: str) -> Manifest:
        """Read what `as_text` made.

        Args:
            text: The text.
            where: Where it was, for errors.
            rebuild: How to build the index anew, for errors.

        Raises:
            InvalidIndexError: It is damaged, or another version of this package made it.
        """
        anew = f"build the index anew: {rebuild}."
        try:
            content = json.loads(text)
            schema = int(content["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidIndexError(f"{where} is damaged ({error}); {anew}") from error
        if schema != SCHEMA:
            raise InvalidIndexError(
                f"{where} was made by another version of llama-pack-densex (layout {schema}, this one reads "
                f"{SCHEMA}); upgrade with pip install -U llama-pack-densex, or {anew}"
            )
        required = [field.name for field in fields(cls) if field.default is MISSING]
        if lacking := [name for name in required if name not in content]:
            raise InvalidIndexError(
                f"{where} was made by an earlier version of llama-pack-densex: it does not say "
                f"{', '.join(lacking)}; {anew}"
            )
        try:
            return _reader().validate_json(text)
        except ValueError as error:
            raise InvalidIndexError(f"{where} is damaged ({error}); {anew}") from error

    def as_text(self) -> str:
        """As JSON."""
        return json.dumps(vars(self), indent=2, ensure_ascii=False)

    def write(self, folder: Path) -> None:
        """Write the manifest; the folder's data changes over to `data` in this one step.

        Where nothing changed but the number of the embedded store's state, which has as many digits as
        before, it is written over the old one: whatever a stop leaves there is no higher than that state's.
        """
        file = folder / FILE
        text = self.as_text()
        if file.is_file() and _without_version(text) == _without_version(
            file.read_text(encoding="utf-8")
        ):
            with file.open("r+", encoding="utf-8") as stream:
                stream.write(text)
            return
        write_whole(file, text)


@cache
def _reader() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _without_version(text: str) -> str:
    return _STATE_NUMBER.sub("", text)


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index."""
    return os.path.isfile(folder / FILE)  # False where the folder may not be entered


def while_it_changes(folder: Path, read: Callable[[], T]) -> T:
    """Read an index, again where that fails and another state of it is the current one by then.

    While another process replaces an index's data by a compacted copy, it may seem damaged.

    Raises:
        InvalidIndexError: The state that is current cannot be read either.
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
    """Write a file in one step; a stop at any moment leaves the old one or the new one."""
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(file)
    sync(file.parent)


def remove_files(files: Iterable[Path], older_than: timedelta) -> None:
    """Remove those of some files that were written so long ago; one that somebody has mapped may stay."""
    # none at all is no question of clocks
    latest = time.time() - older_than.total_seconds() if older_than else math.inf
    for file in files:
        with suppress(OSError):  # on Windows, one that another process maps
            if file.stat().st_mtime <= latest:
                file.unlink()


def size_of(file: Path) -> int:
    """In bytes; 0 where there is none, which another process may see to at any moment."""
    try:
        return file.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, outlast a power failure; not every system can do that for
    folders."""
    if os.name == "nt" and path.is_dir():
        return
    # Windows syncs no file open for reading
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _lack_of(folder: Path) -> str:
    """Why a folder without a manifest is no index."""
    if (folder / REPLIES_FILE).is_file():
        return (
            f"has kept replies and no {FILE}, since a run stopped before any document was complete"
        )
    if folder.is_dir():
        return f"has no {FILE}"
    return "is a file" if folder.exists() else "does not exist"
