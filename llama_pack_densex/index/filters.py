"""Metadata filters: evaluated on a node's metadata, and what passes them."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

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
        matches(metadata, part)
        if isinstance(part, MetadataFilters)
        else _matches_one(metadata, part)
        for part in filters.filters
    )
    if filters.condition == FilterCondition.OR:
        return any(results)
    if filters.condition == FilterCondition.NOT:
        return not any(results)
    return all(results)


def keys_of(filters: MetadataFilters | None) -> set[str]:
    """The keys that filters look at."""
    keys: set[str] = set()
    for part in filters.filters if filters is not None else ():
        keys |= keys_of(part) if isinstance(part, MetadataFilters) else {part.key}
    return keys


def _matches_one(metadata: Mapping[str, Any], condition: MetadataFilter) -> bool:
    value = metadata.get(condition.key)
    wanted: Any = condition.value
    sample = wanted[0] if isinstance(wanted, list) and wanted else wanted
    if type(sample) not in (str, int, float):
        wanted = plain_value(wanted, condition.key)  # the form in which metadata are kept
    if condition.operator == FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return condition.operator in (FilterOperator.NE, FilterOperator.NIN)
    if condition.operator in _ORDERED:
        if isinstance(value, bool) != isinstance(wanted, bool):
            return False  # JSON's true and false are no numbers
        value, wanted = _as_moments(value, wanted)
    try:
        return bool(_OPERATORS[condition.operator](value, wanted))
    except (TypeError, AttributeError):  # values of different kinds: no match
        return False


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
    FilterOperator.EQ: operator.eq,
    FilterOperator.NE: operator.ne,
    FilterOperator.GT: operator.gt,
    FilterOperator.GTE: operator.ge,
    FilterOperator.LT: operator.lt,
    FilterOperator.LTE: operator.le,
    FilterOperator.IN: lambda value, wanted: value in wanted,
    FilterOperator.NIN: lambda value, wanted: value not in wanted,
    FilterOperator.ANY: lambda value, wanted: any(item in value for item in wanted),
    FilterOperator.ALL: lambda value, wanted: all(item in value for item in wanted),
    FilterOperator.CONTAINS: operator.contains,
    FilterOperator.TEXT_MATCH: operator.contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda value, wanted: wanted.lower() in value.lower(),
}


@dataclass(frozen=True)
class Passing:
    """The passages that pass filters.

    Args:
        ids: Their ids.
        share: How many they are of all.
        rows: In the embedded store, their rows and those of their units, in order.
        database: What these are rows of; None elsewhere.
        state: The state of the store that was read.
        read_to: The last row that was read.
    """

    ids: frozenset[str] = frozenset()
    share: float = 0.0
    rows: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False
    )
    database: object = None
    state: object = ""
    read_to: int = 0

    def fetched(self, wanted: int) -> int:
        """How many to look for among all, so that about as many as are wanted pass; none where none
        passes."""
        return int(1.2 * wanted / self.share) + 8 if self.ids else 0
