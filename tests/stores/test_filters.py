from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_pack_densex.index.filters import matches

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("value", "operator", "wanted", "passes"),
    [
        (1990, FilterOperator.TEXT_MATCH_INSENSITIVE, "19", False),
        ("Tea Room", FilterOperator.TEXT_MATCH_INSENSITIVE, "tea", True),
        (["tea"], FilterOperator.TEXT_MATCH_INSENSITIVE, "tea", False),
        ("1990", FilterOperator.GT, 1980, False),
        (True, FilterOperator.GT, 0, False),
        (2**53 + 1, FilterOperator.GT, 2**53, True),
        (None, FilterOperator.NE, 1, True),
    ],
)
def test_values_that_cannot_be_compared_do_not_match(
    value: Any, operator: FilterOperator, wanted: Any, passes: bool
) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="key", value=wanted, operator=operator)])
    assert matches({"key": value}, filters) is passes
