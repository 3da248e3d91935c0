"""An embedding model that embeds each text once, in this process and, where it has a file, in later ones."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from llama_pack_densex.models import embed_model_identity

Vector = npt.NDArray[np.float32]
Step = Callable[[int, int], None]

_BATCH = 512  # texts between two writes
_LOOKED_UP = 500  # keys in one query: SQLite allows 999 in old versions
_SETTINGS = ("query_instruction", "text_instruction", "normalize", "max_length", "pooling", "dimensions")


class EmbeddingFile:
    """Vectors by key, in an SQLite file. Keys are hashes: no text of a document is written.

    Args:
        path: The file, made if it is not there.

    Raises:
        OSError: The file cannot be used, or (later) not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # threads of a model's batches take turns
            self._database = sqlite3.connect(path, check_same_thread=False)
            self._database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        except sqlite3.Error as error:
            raise OSError(
                f"{path} cannot be used to keep embeddings ({error}): delete it, or use another folder"
            ) from error

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The vectors of those keys that are there."""
        found: dict[bytes, Vector] = {}
        for start in range(0, len(keys), _LOOKED_UP):
            some = keys[start : start + _LOOKED_UP]
            marks = ",".join("?" * len(some))
            rows = self._database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", some)
            found.update((key, np.frombuffer(vector, dtype=np.float32)) for key, vector in rows)
        return found

    def write(self, vectors: Iterable[tuple[bytes, Vector]]) -> None:
        """Keep vectors."""
        rows = [(key, vector.tobytes()) for key, vector in vectors]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: embeddings cannot be kept there ({error})") from error

    def close(self) -> None:
        self._database.close()


class CachedEmbedding(BaseEmbedding):
    """Another embedding model, each text of which is embedded once.

    Args:
        inner: The model.
        file: Where vectors are kept for later processes; None for this one only.
        step: Called with (done, all) while many texts are embedded.
    """

    _inner: BaseEmbedding = PrivateAttr()
    _file: EmbeddingFile | None = PrivateAttr()
    _step: Step | None = PrivateAttr()
    _known: dict[bytes, Vector] = PrivateAttr()
    _requested: list[str] = PrivateAttr()
    _salt: str = PrivateAttr()
    _seconds: float = PrivateAttr(default=0.0)

    def __init__(self, inner: BaseEmbedding, file: EmbeddingFile | None = None, step: Step | None = None) -> None:
        super().__init__(model_name=inner.model_name, embed_batch_size=2048)
        self._inner, self._file, self._step = inner, file, step
        self._known, self._requested = {}, []
        settings = {name: str(getattr(inner, name)) for name in _SETTINGS if getattr(inner, name, None) is not None}
        self._salt = json.dumps([embed_model_identity(inner), settings])

    @classmethod
    def class_name(cls) -> str:
        return "CachedEmbedding"

    @property
    def seconds(self) -> float:
        """How long the model has worked."""
        return self._seconds

    def take_requested(self) -> list[str]:
        """The texts (not questions) that were asked for since the last call."""
        taken, self._requested = self._requested, []
        return taken

    def embed_queries(self, queries: Sequence[str]) -> None:
        """Embed questions beforehand, `num_workers` of the model at a time."""
        missing = self._missing("query", queries)
        for start in range(0, len(missing), _BATCH):
            some = missing[start : start + _BATCH]
            with self._timed(), ThreadPoolExecutor(self._inner.num_workers or 1) as threads:
                vectors = list(threads.map(self._inner.get_query_embedding, some))
            self._keep("query", some, vectors)
            self._report(start + len(some), len(missing))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - started

    def _get_query_embedding(self, query: str) -> list[float]:
        if self._missing("query", [query]):
            self._keep("query", [query], [self._inner.get_query_embedding(query)])
        return self._vector("query", query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        if self._missing("query", [query]):
            self._keep("query", [query], [await self._inner.aget_query_embedding(query)])
        return self._vector("query", query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._requested += texts
        # texts of like length together: a model pads a batch to its longest text
        missing = sorted(self._missing("text", texts), key=len)
        for start in range(0, len(missing), _BATCH):
            some = missing[start : start + _BATCH]
            with self._timed():
                vectors = self._inner.get_text_embedding_batch(some)
            self._keep("text", some, vectors)
            self._report(start + len(some), len(missing))
        return [self._vector("text", text) for text in texts]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._requested += texts
        missing = sorted(self._missing("text", texts), key=len)
        for start in range(0, len(missing), _BATCH):
            some = missing[start : start + _BATCH]
            with self._timed():
                vectors = await self._inner.aget_text_embedding_batch(some)
            self._keep("text", some, vectors)
            self._report(start + len(some), len(missing))
        return [self._vector("text", text) for text in texts]

    def _missing(self, kind: str, texts: Sequence[str]) -> list[str]:
        """The texts, each once, whose vectors are neither in memory nor in the file."""
        keys = {self._key(kind, text): text for text in texts}
        unknown = [key for key in keys if key not in self._known]
        if unknown and self._file is not None:
            self._known.update(self._file.read(unknown))
        return [keys[key] for key in unknown if key not in self._known]

    def _keep(self, kind: str, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
        made = {
            self._key(kind, text): np.asarray(vector, dtype=np.float32)
            for text, vector in zip(texts, vectors, strict=True)
        }
        self._known.update(made)
        if self._file is not None:
            self._file.write(made.items())

    def _vector(self, kind: str, text: str) -> list[float]:
        vector: list[float] = self._known[self._key(kind, text)].tolist()
        return vector

    def _key(self, kind: str, text: str) -> bytes:
        return hashlib.sha256(f"{self._salt}\n{kind}\n{text}".encode("utf-8", "surrogatepass")).digest()

    def _report(self, done: int, total: int) -> None:
        if self._step is not None:
            self._step(done, total)
