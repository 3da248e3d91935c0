"""The form in which vector stores keep nodes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from llama_pack_densex.index.adapters.wire import (
    HEAD_KEY,
    WIRE_KEY,
    Condition,
    Row,
    conditions_of,
    from_wire,
    to_wire,
)
from llama_pack_densex.index.filters import matches
from tests.stores.foreign.made_nodes import ANY_JSON

ANY_TEXT = st.text(max_size=12)
ANY_KEY = ANY_TEXT | st.sampled_from(
    ["id", "doc_id", "text", "author", "_node_content", "a.b", "味", "$or", ""]
)
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
ID = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)


@st.composite
def any_nodes(draw: st.DrawFn) -> TextNode:
    metadata = draw(st.dictionaries(ANY_KEY, ANY_VALUE, max_size=6))
    related = draw(st.dictionaries(ID, ID, max_size=3))
    fields: dict[str, Any] = {
        "id_": draw(ID),
        "text": draw(ANY_TEXT),
        "metadata": metadata,
        "relationships": {
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id=draw(ID), metadata=related),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id=draw(ID), hash="h")],
        },
        "excluded_embed_metadata_keys": draw(st.lists(ID, max_size=3)),
        "excluded_llm_metadata_keys": [],
        "start_char_idx": draw(st.none() | st.integers(0, 9)),
        "metadata_template": "{key}={value}",
    }
    return draw(st.sampled_from([TextNode(**fields), IndexNode(**fields, index_id=draw(ID))]))


def kept(wire: Any) -> Row:
    """What a store returns that keeps plain values in UTF-8 and in columns that it sorts as it likes."""
    metadata = node_to_metadata_dict(wire, remove_text=True, flat_metadata=True)
    assert all(isinstance(value, (str, bool, int, float)) for value in metadata.values())
    assert not any(
        isinstance(value, float) and not math.isfinite(value) for value in metadata.values()
    )
    assert all(-(2**63) <= value < 2**63 for value in metadata.values() if type(value) is int)
    encoded = json.dumps(metadata, ensure_ascii=False, sort_keys=True).encode()
    wire.text.encode()
    assert "\0" not in wire.text
    assert not any("\0" in value for value in metadata.values() if isinstance(value, str))
    return Row(wire.node_id, json.loads(encoded), wire.text)


@given(any_nodes(), st.booleans())
def test_any_node_comes_back_as_it_was(node: TextNode, head: bool) -> None:
    before = node.model_copy(deep=True)
    row = kept(to_wire(node, head=head))
    read = row.node
    assert read == node == before
    assert type(read) is type(node)
    assert list(read.metadata) == list(node.metadata)
    assert row.node_metadata == node.metadata
    assert row.passage_id == (node.index_id if isinstance(node, IndexNode) else "")


def test_plain_values_stay_what_they_are() -> None:
    node = TextNode(
        text="t", metadata={"author": "味噌 'x'", "year": 2023, "ratio": 0.5, "draft": False}
    )
    wire = to_wire(node)
    assert node.metadata.items() <= wire.metadata.items()
    assert wire.metadata.keys() - node.metadata.keys() == {WIRE_KEY, HEAD_KEY}


def test_nan_comes_back() -> None:
    node = TextNode(text="t", metadata={"score": math.nan})
    assert math.isnan(from_wire(to_wire(node)).metadata["score"])


def test_what_only_we_read_is_hidden_from_models() -> None:
    node = TextNode(text="t", metadata={"author": "x"})
    assert to_wire(node).get_content("embed") == node.get_content("embed")  # type: ignore[arg-type]
    assert to_wire(node).get_content("llm") == node.get_content("llm")  # type: ignore[arg-type]


def test_a_node_that_others_wrote_is_read_as_it_is() -> None:
    node = TextNode(text="t", metadata=ANY_JSON)
    assert from_wire(node) == node


@pytest.mark.parametrize("value", [b"x", object(), {"deep": [b"x"]}])
def test_what_is_no_json_is_refused_with_the_document_s_name(value: object) -> None:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="資料.md")}
    with pytest.raises(ValueError, match=r"metadata of document '資料\.md' cannot be kept as JSON"):
        to_wire(TextNode(text="t", metadata={"x": value}, relationships=source))


def test_ids_that_stores_cannot_keep_are_refused() -> None:
    with pytest.raises(ValueError, match="contains a NUL"):
        to_wire(TextNode(id_="a\0b", text="t"))
    with pytest.raises(ValueError, match="contains a NUL"):
        to_wire(IndexNode(text="t", index_id="a\0b"))


NUMBER = st.integers() | st.integers(-3, 3) | st.floats()
HANDED_ON = [FilterOperator(sign) for sign in ("==", ">", ">=", "<", "<=", "in")]


@given(
    st.sampled_from(["author", "a.b", "id", "味"]),
    ANY_TEXT | NUMBER,
    ANY_VALUE | NUMBER,
    st.sampled_from(HANDED_ON),
)
@example("author", "Ann, Bo", "Bo", FilterOperator.IN)
@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few values pass a filter
def test_what_passes_a_filter_meets_the_conditions_that_stores_are_given(
    key: str, wanted: Any, value: Any, operator: FilterOperator
) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key=key, value=wanted, operator=operator)])
    assume(matches({key: value}, filters))
    kept_value = to_wire(TextNode(text="t", metadata={key: value})).metadata.get(key)
    for condition in conditions_of(filters):
        assert condition.key == key
        if condition.sign == "in":
            assert kept_value in condition.value
        else:
            assert (
                kept_value >= condition.value
                if condition.sign == ">="
                else kept_value <= condition.value
            )


def test_only_what_every_row_that_passes_has_is_a_condition() -> None:
    either = MetadataFilters(
        filters=[MetadataFilter(key="author", value="x"), MetadataFilter(key="year", value=1990)],
        condition=FilterCondition.OR,
    )
    assert conditions_of(either) == []
    both = MetadataFilters(filters=[MetadataFilter(key="author", value="y"), either])
    assert conditions_of(both) == [Condition("author", "in", ["y"])]
    assert conditions_of(both, frozenset(["author"])) == []


@pytest.mark.parametrize(
    "operator", [FilterOperator.EQ, FilterOperator.GT, FilterOperator.NIN, FilterOperator.ANY]
)
@pytest.mark.parametrize("values", [["a"], [1990], []])
def test_a_list_is_a_condition_only_where_one_of_it_is_enough(
    operator: FilterOperator, values: list[Any]
) -> None:
    assert (
        conditions_of(
            MetadataFilters(filters=[MetadataFilter(key="tags", value=values, operator=operator)])
        )
        == []
    )
    nothing = MetadataFilter(key="tags", value=[], operator=FilterOperator.IN)
    assert conditions_of(MetadataFilters(filters=[nothing])) == []
