"""Metadata filters: evaluated on a node's metadata, and what passes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters


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
    value, wanted, operator = metadata.get(condition.key), condition.value, condition.operator
    if operator == FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return operator in (FilterOperator.NE, FilterOperator.NIN)
    if operator in _ORDERED and isinstance(value, bool) != isinstance(wanted, bool):
        return False  # JSON's true and false are no numbers
    try:
        return bool(_OPERATORS[operator](value, wanted))
    except (TypeError, AttributeError):  # values of different kinds: no match
        return False


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


_FEW = 0.05


@dataclass(frozen=True)
class Passing:
    """The passages that pass filters.

    Args:
        ids: Their ids.
        share: How many they are of all.
        rows: Their rows, in order, where the store has any.
        read_to: The last row that was looked at.
    """

    ids: frozenset[str]
    share: float
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    read_to: int = 0

    @property
    def few(self) -> bool:
        """Whether a search is better told them than left to find them among all."""
        return self.share <= _FEW

    def fetched(self, wanted: int) -> int:
        """How many to look for among all, so that about as many as are wanted pass; none where none passes."""
        return int(1.2 * wanted / self.share) + 8 if self.ids else 0
