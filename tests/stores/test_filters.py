from __future__ import annotations

from datetime import date
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


@pytest.mark.parametrize("wanted", [["2023", date(2024, 5, 1)], [date(2024, 5, 1), "2023"]])
def test_each_value_of_a_list_is_compared_in_the_form_in_which_it_is_stored(
    wanted: list[Any],
) -> None:
    filters = MetadataFilters(
        filters=[MetadataFilter.model_construct(key="day", value=wanted, operator="in")]
    )
    assert matches({"day": "2024-05-01"}, filters)
    assert matches({"day": "2023"}, filters)


@pytest.mark.parametrize("key", ["doc_id", "document_id", "ref_doc_id"])
def test_a_document_s_id_has_the_names_of_llama_index_s_stores(key: str) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key=key, value="tea.md")])
    assert matches({"densex_document_id": "tea.md"}, filters)
    assert not matches({"densex_document_id": "tea.md", key: "the user's own"}, filters)
