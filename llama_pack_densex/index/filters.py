"""Metadata filters: their evaluation on a node's metadata, and the passages that pass them."""

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

from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY
from llama_pack_densex.text.values import plain_value

_DOCUMENT_ID = ("doc_id", "document_id", "ref_doc_id")
"""The keys under which LlamaIndex's vector stores keep the id of a node's document."""


def matches(metadata: Mapping[str, Any], filters: MetadataFilters | MetadataFilter | None) -> bool:
    """Return whether metadata passes filters, which may be nested; values that cannot be compared fail.

    Args:
        metadata: A node's metadata.
        filters: LlamaIndex metadata filters; everything passes None.
    """
    if isinstance(filters, MetadataFilter):
        return _matches_one(metadata, filters)
    if filters is None or not filters.filters:
        return True
    results = (matches(metadata, part) for part in filters.filters)
    if filters.condition == FilterCondition.OR:
        return any(results)
    if filters.condition == FilterCondition.NOT:
        return not any(results)
    return all(results)


def keys_of(filters: MetadataFilters | MetadataFilter | None) -> set[str]:
    """Return the metadata keys that the filters test."""
    if filters is None:
        return set()
    if isinstance(filters, MetadataFilter):
        return {filters.key}
    return set().union(*map(keys_of, filters.filters))


def _value_of(metadata: Mapping[str, Any], key: str) -> Any:
    if key in _DOCUMENT_ID and key not in metadata:
        key = DOCUMENT_ID_KEY
    return metadata.get(key)


def _matches_one(metadata: Mapping[str, Any], condition: MetadataFilter) -> bool:
    value = _value_of(metadata, condition.key)
    operand: Any = condition.value
    operands = operand if isinstance(operand, list) else [operand]
    if not {str, int, float}.issuperset(map(type, operands)):
        operand = plain_value(operand, condition.key)  # the form in which metadata is stored
    if condition.operator == FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return condition.operator in (FilterOperator.NE, FilterOperator.NIN)
    if condition.operator in _ORDERED:
        if isinstance(value, bool) != isinstance(operand, bool):
            return False  # in JSON, true and false are not numbers
        value, operand = _as_moments(value, operand)
    try:
        return bool(_OPERATORS[condition.operator](value, operand))
    except (TypeError, AttributeError):  # values of different types do not match
        return False


def _as_moments(value: Any, operand: Any) -> tuple[Any, Any]:
    """Convert two texts to times if both are times with a zone; return anything else unchanged."""
    texts = (value, operand)
    if not all(isinstance(text, str) and _ZONED.fullmatch(text) for text in texts):
        return texts
    try:
        return _moment(value), _moment(operand)
    except ValueError:
        return texts


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not parse Z


_ZONED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d(:\d\d)?)")
_ORDERED = (FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE)
_OPERATORS: dict[FilterOperator, Any] = {
    FilterOperator.EQ: operator.eq,
    FilterOperator.NE: operator.ne,
    FilterOperator.GT: operator.gt,
    FilterOperator.GTE: operator.ge,
    FilterOperator.LT: operator.lt,
    FilterOperator.LTE: operator.le,
    FilterOperator.IN: lambda value, operand: value in operand,
    FilterOperator.NIN: lambda value, operand: value not in operand,
    FilterOperator.ANY: lambda value, operand: any(item in value for item in operand),
    FilterOperator.ALL: lambda value, operand: all(item in value for item in operand),
    FilterOperator.CONTAINS: operator.contains,
    FilterOperator.TEXT_MATCH: operator.contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda value, operand: operand.lower() in value.lower(),
}


@dataclass(frozen=True)
class Passing:
    """The passages that pass filters.

    Args:
        ids: The ids of these passages.
        share: Their share of all passages, from 0 to 1; not known in the embedded store.
        rows: In the embedded store, the rows of these passages and of their units, in ascending order.
        database: The database that holds these rows; None for other stores.
        state: The state of the store that the result is of.
        read_to: In the embedded store, the last row that was read.
    """

    ids: frozenset[str] = frozenset()
    share: float = 0.0
    rows: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False
    )
    database: object = None
    state: object = ""
    read_to: int = 0

    def fetched(self, limit: int) -> int:
        """Return how many hits to search for without the filters so that about `limit` pass; 0 if none
        does."""
        if not self.ids:
            return 0
        return int(1.2 * limit / self.share) + 8
