"""The embedding models of benchmarks/stores.py: MiniLM's vectors from a folder, and a mixture's vectors."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

DIMENSION = 384

Vectors = npt.NDArray[np.float32]


class KeptEmbedding(BaseEmbedding):
    """Looks up vectors that all-MiniLM-L6-v2 computed earlier.

    Args:
        folder: The folder of the vectors.
    """

    folder: Path
    _loaded: tuple[dict[bytes, int], Vectors] | None = PrivateAttr(default=None)

    def __init__(self, folder: Path, **kwargs: Any) -> None:
        arguments = {
            "folder": folder,
            "model_name": "all-MiniLM-L6-v2",
            "embed_batch_size": 1000,
            **kwargs,
        }
        super().__init__(**arguments)

    @classmethod
    def class_name(cls) -> str:
        return "KeptEmbedding"

    @property
    def is_there(self) -> bool:
        """Whether the folder has vectors."""
        return (self.folder / "vectors.npy").exists()

    def fill(self, texts: Iterable[str]) -> None:
        """Embed texts and store the vectors; sorted by length, so that a batch needs little padding."""
        from llama_pack_densex.models import resolve_embed_model

        model, _ = resolve_embed_model("minilm")
        assert model is not None
        model.embed_batch_size = 64
        distinct = sorted(set(texts), key=len, reverse=True)
        vectors = np.empty((len(distinct), DIMENSION), dtype=np.float32)
        for start in range(0, len(distinct), 2048):
            batch = distinct[start : start + 2048]
            vectors[start : start + len(batch)] = model.get_text_embedding_batch(batch)
            print(f"... {start + len(batch)} of {len(distinct)} texts embedded", flush=True)
        np.save(self.folder / "keys.npy", np.array([_key(text) for text in distinct], dtype="S32"))
        np.save(self.folder / "vectors.partial.npy", vectors)
        (self.folder / "vectors.partial.npy").replace(self.folder / "vectors.npy")

    def _look_up(self, texts: Sequence[str]) -> list[list[float]]:
        if self._loaded is None:
            keys = np.load(self.folder / "keys.npy")
            rows = {key: row for row, key in enumerate(keys.tolist())}
            self._loaded = rows, np.load(self.folder / "vectors.npy", mmap_mode="r")
        rows, vectors = self._loaded
        try:
            places = [rows[_key(text)] for text in texts]
        except KeyError:
            raise ValueError(
                f"a text is not among those embedded in {self.folder}: remove that folder"
            ) from None
        looked_up: list[list[float]] = vectors[places].tolist()
        return looked_up

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._look_up([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._look_up(texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._look_up([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._look_up([query])[0]


class MixtureEmbedding(BaseEmbedding):
    """Computes a text's vector in the mixture from the number of its document and from its words."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(model_name=f"mixture-{DIMENSION}", embed_batch_size=1000, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "MixtureEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        title, _, content = text.rpartition("\n\n")
        number = re.search(r"Volume (\d+)", title)
        vector: list[float] = mixture(int(number[1]) if number else 0, content).tolist()
        return vector

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class _Axes:
    """The axes of the mixture: their spread and their directions."""

    @cached_property
    def rotated(self) -> Vectors:
        rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, DIMENSION)))
        spread = 1 / np.sqrt(np.arange(1, DIMENSION + 1))
        rotated: Vectors = (spread[:, None] * rotation / np.linalg.norm(spread)).astype(np.float32)
        return rotated


_axes = _Axes()


@lru_cache(maxsize=20_000)
def mixture(number: int, content: str) -> Vectors:
    """Return the unit-normalised vector of a text in a document."""
    own = noise(zlib.crc32(f"{number} {content}".encode()))
    return unit(0.5 * _common(number % 1000) + 0.5 * _common(1_000_000 + number) + 0.71 * own)


def noise(seed: int) -> Vectors:
    """Return a random vector whose length is about 1."""
    drawn: Vectors = (
        np.random.default_rng(seed).standard_normal(DIMENSION, dtype=np.float32) @ _axes.rotated
    )
    return drawn


@lru_cache(maxsize=5_000)
def _common(seed: int) -> Vectors:
    return noise(seed)


def unit(vector: Vectors) -> Vectors:
    """Unit-normalise a vector."""
    scaled: Vectors = vector / np.linalg.norm(vector)
    return scaled


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest().encode()
