"""Metadata filters evaluated on a node's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def _matches_one(metadata: Mapping[str, Any], condition: MetadataFilter) -> bool:
    value, wanted, operator = metadata.get(condition.key), condition.value, condition.operator
    if operator == FilterOperator.IS_EMPTY:
        return value is None or value in ("", [])
    if value is None:
        return operator in (FilterOperator.NE, FilterOperator.NIN)
    try:
        return bool(_OPERATORS[operator](value, wanted))
    except TypeError:  # values of different kinds: no match
        return False


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
