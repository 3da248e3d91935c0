"""A small real embedding model for tests: hashed character trigrams, counted, normalised."""

from __future__ import annotations

import math
import zlib
from functools import lru_cache
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field

DIMENSION = 512


class TrigramEmbedding(BaseEmbedding):
    """Texts that share character trigrams are near to each other, in any language; counts what it embeds."""

    embedded: int = Field(default=0, exclude=True)

    def __init__(self, model_name: str = "trigrams", **kwargs: Any) -> None:
        super().__init__(model_name=model_name, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "TrigramEmbedding"

    def _embed(self, text: str) -> list[float]:
        return list(_counted(text))

    def _get_text_embedding(self, text: str) -> list[float]:
        self.embedded += 1
        return self._embed(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._embed(query)


@lru_cache(4096)
def _counted(text: str) -> tuple[float, ...]:
    vector = [0.0] * DIMENSION
    padded = f"  {text.casefold()} "
    for i in range(len(padded) - 2):
        vector[zlib.crc32(padded[i : i + 3].encode()) % DIMENSION] += 1.0
    norm = math.sqrt(sum(value * value for value in vector)) or 1.0
    return tuple(value / norm for value in vector)
