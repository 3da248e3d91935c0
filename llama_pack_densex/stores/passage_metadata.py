"""The metadata of all passages, each distinct one kept once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from llama_index.core.vector_stores.types import MetadataFilters

from llama_pack_densex.stores.filters import matches


class PassageMetadata:
    """Tells which passages pass filters, without an object for each passage.

    Args:
        ids: The passages' ids; an Arrow array of strings.
        metadata: Their metadata as JSON; an Arrow array of strings of the same length.
    """

    def __init__(self, ids: pa.Array, metadata: pa.Array) -> None:
        encoded = metadata.dictionary_encode()
        self.ids = ids
        self._numbers: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._distinct = encoded.dictionary
        self._last: tuple[str, frozenset[str]] | None = None  # both sides of a hybrid search ask

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> PassageMetadata:
        """Of pairs of a passage's id and its metadata as JSON."""
        ids: list[str] = []
        metadata: list[str] = []
        for passage_id, text in pairs:
            ids.append(passage_id)
            metadata.append(text)
        return cls(pa.array(ids, pa.string()), pa.array(metadata, pa.string()))

    def __len__(self) -> int:
        return len(self.ids)

    def matching(self, filters: MetadataFilters) -> frozenset[str]:
        """The ids of the passages that pass filters; the same object where the last question asked the same."""
        asked, last = repr(filters), self._last
        if last is None or last[0] != asked:
            passing = np.array([matches(values, filters) for values in self._values], dtype=bool)
            chosen = passing[self._numbers] if len(self.ids) else np.zeros(0, dtype=bool)
            last = self._last = asked, frozenset(pc.filter(self.ids, pa.array(chosen)).to_pylist())
        return last[1]

    @cached_property
    def _values(self) -> list[dict[str, Any]]:
        return [json.loads(text) if text else {} for text in self._distinct.to_pylist()]
