"""Metadata filters: evaluated on a node's metadata, and on that of all passages."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS
from llama_pack_densex.text.values import plain_value


def matches(metadata: Mapping[str, Any], filters: MetadataFilters | None) -> bool:
    """Whether metadata passes filters; nested filters work, and values that cannot be compared do not match.

    Args:
        metadata: A node's metadata.
        filters: LlamaIndex metadata filters, or None, which everything passes.
    """
    if filters is None or not filters.filters:
        return True
    results = (
        matches(metadata, part) if isinstance(part, MetadataFilters) else _matches_one(metadata, part)
        for part in filters.filters
    )
    if filters.condition == FilterCondition.OR:
        return any(results)
    if filters.condition == FilterCondition.NOT:
        return not any(results)
    return all(results)


def keys_of(filters: MetadataFilters | None) -> set[str]:
    """The keys that filters look at."""
    parts = filters.filters if filters is not None else ()
    return {key for part in parts for key in (keys_of(part) if isinstance(part, MetadataFilters) else {part.key})}


def _matches_one(metadata: Mapping[str, Any], condition: MetadataFilter) -> bool:
    value, operator = metadata.get(condition.key), condition.operator
    wanted = _as_kept(condition.value, condition.key)
    if operator == FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return operator in (FilterOperator.NE, FilterOperator.NIN)
    if operator in _ORDERED:
        if isinstance(value, bool) != isinstance(wanted, bool):
            return False  # JSON's true and false are no numbers
        value, wanted = _as_moments(value, wanted)
    try:
        return bool(_OPERATORS[operator](value, wanted))
    except (TypeError, AttributeError):  # values of different kinds: no match
        return False


def _as_kept(wanted: Any, key: str) -> Any:
    """A filter's value in the form in which metadata are kept."""
    sample = wanted[0] if isinstance(wanted, list) and wanted else wanted
    return wanted if type(sample) in (str, int, float) else plain_value(wanted, key)


def _as_moments(value: Any, wanted: Any) -> tuple[Any, Any]:
    """Two times with zones as what can be compared; anything else as it is."""
    texts = (value, wanted)
    if not all(isinstance(text, str) and _ZONED.fullmatch(text) for text in texts):
        return texts
    try:
        return _moment(value), _moment(wanted)
    except ValueError:
        return texts


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 knows no Z


_ZONED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d(:\d\d)?)")
_ORDERED = (FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE)
_OPERATORS: dict[FilterOperator, Any] = {
    FilterOperator.EQ: lambda value, wanted: value == wanted,
    FilterOperator.NE: lambda value, wanted: value != wanted,
    FilterOperator.GT: lambda value, wanted: value > wanted,
    FilterOperator.GTE: lambda value, wanted: value >= wanted,
    FilterOperator.LT: lambda value, wanted: value < wanted,
    FilterOperator.LTE: lambda value, wanted: value <= wanted,
    FilterOperator.IN: lambda value, wanted: value in wanted,
    FilterOperator.NIN: lambda value, wanted: value not in wanted,
    FilterOperator.ANY: lambda value, wanted: any(item in value for item in wanted),
    FilterOperator.ALL: lambda value, wanted: all(item in value for item in wanted),
    FilterOperator.CONTAINS: lambda value, wanted: wanted in value,
    FilterOperator.TEXT_MATCH: lambda value, wanted: wanted in value,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda value, wanted: wanted.lower() in value.lower(),
}


_MOST_NAMED = 5_000  # in a condition
_FEW = 0.05


@dataclass(frozen=True)
class Passing:
    """The passages that pass filters.

    Args:
        ids: Their ids.
        share: How many they are of all.
        documents: The documents whose passages they are, where none of these has others; otherwise None.
    """

    ids: frozenset[str]
    share: float
    documents: frozenset[str] | None = None

    @property
    def few(self) -> bool:
        """Whether a search is better told them than left to find them among all."""
        named = self.ids if self.documents is None else self.documents
        return len(named) <= _MOST_NAMED and self.share <= _FEW

    def fetched(self, wanted: int) -> int:
        """How many to look for among all, so that about as many as are wanted pass; none where none passes."""
        return int(1.2 * wanted / self.share) + 8 if self.ids else 0


class PassageMetadata:
    """Tells which passages pass filters, without an object for each passage.

    Args:
        batches: Rows with the columns of `SCHEMA`.
    """

    SCHEMA = pa.schema([("id", pa.string()), ("document_id", pa.string()), ("metadata", pa.string())])

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches((batch.select(self.SCHEMA.names) for batch in batches), self.SCHEMA)
        self.ids = rows["id"].combine_chunks()
        self._document_of, self._documents = _numbered(rows["document_id"])
        self._numbers, self._distinct = _numbered(rows["metadata"])
        self._last: tuple[str, Passing] | None = None  # both sides of a hybrid search ask

    def passing(self, filters: MetadataFilters) -> Passing:
        """The passages that pass filters; the same object where the last question asked the same."""
        asked, last = repr(filters), self._last
        if last is None or last[0] != asked:
            passing = np.array([matches(values, filters) for values in self._values], dtype=bool)
            chosen = passing[self._numbers] if len(self.ids) else np.zeros(0, dtype=bool)
            ids = frozenset(pc.filter(self.ids, pa.array(chosen)).to_pylist())
            has, lacks = np.unique(self._document_of[chosen]), self._document_of[~chosen]
            whole = None if np.isin(has, lacks).any() else frozenset(self._documents.take(has).to_pylist())
            last = self._last = asked, Passing(ids, len(ids) / max(1, len(self.ids)), whole)
        return last[1]

    def known(self) -> dict[str, list[Any]]:
        """The users' keys, each with its distinct values."""
        found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for metadata in self._values:
            for key, value in metadata.items():
                if key not in BOOKKEEPING_KEYS:
                    found[key].setdefault(repr(value), value)
        return {key: list(values.values()) for key, values in found.items()}

    @cached_property
    def _values(self) -> list[dict[str, Any]]:
        return [json.loads(text) if text else {} for text in self._distinct.to_pylist()]


def _numbered(texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The number of each text among the distinct ones, and these."""
    encoded = texts.dictionary_encode().combine_chunks()  # joined first, texts of 2 GB are refused
    return encoded.indices.to_numpy(), encoded.dictionary
