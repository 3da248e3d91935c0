from __future__ import annotations

from pathlib import Path

import pytest
from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_pack_densex.index.embedded import EmbeddedVectorStore


def node(
    node_id: str, vector: list[float] | None = None, document: str = "d", **metadata: object
) -> TextNode:
    return TextNode(
        id_=node_id,
        text=f"text of {node_id}",
        embedding=vector,
        metadata=metadata,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)},
    )


@pytest.fixture
def store() -> EmbeddedVectorStore:
    store = EmbeddedVectorStore()
    store.add(
        [node("east", [1, 0], n=1), node("north", [0, 1], n=2), node("north-east", [1, 1], n=3)]
    )
    return store


def test_nearest_nodes_come_first_with_their_cosine(store: EmbeddedVectorStore) -> None:
    result = store.query(VectorStoreQuery(query_embedding=[2, 0], similarity_top_k=2))
    assert result.ids == ["east", "north-east"]
    assert result.similarities == pytest.approx([1.0, 0.7071], abs=1e-3)


def test_writing_an_id_again_replaces_the_node(store: EmbeddedVectorStore) -> None:
    store.add([node("east", [0, 1], n=9)])
    (found,) = store.get_nodes(["east"])
    assert found.metadata == {"n": 9}
    assert len(store.get_nodes()) == 3


def test_nodes_are_read_in_the_order_of_their_ids_and_missing_ones_left_out(
    store: EmbeddedVectorStore,
) -> None:
    assert [n.node_id for n in store.get_nodes(["north", "gone", "east"])] == ["north", "east"]


def test_an_empty_list_of_ids_means_no_node(store: EmbeddedVectorStore) -> None:
    assert store.get_nodes([]) == []
    store.delete_nodes([])
    assert len(store.get_nodes()) == 3


@pytest.mark.parametrize(
    "text", ["it's", 'say "hi"', "日本語", "a\\b", "x' OR '1'='1", "nul\x00", "😀"]
)
def test_any_id_and_any_text_survive(text: str) -> None:
    store = EmbeddedVectorStore()
    store.add([node(text, [1, 0], document=text), node("other", [0, 1])])
    assert [n.node_id for n in store.get_nodes([text])] == [text]
    store.delete(text)
    assert [n.node_id for n in store.get_nodes()] == ["other"]


def test_metadata_of_any_json_shape_survives() -> None:
    metadata = {
        "list": [1, "二", None],
        "nested": {"a": {"b": [True]}},
        "none": None,
        "float": 0.1,
        "": "empty key",
    }
    store = EmbeddedVectorStore()
    store.add([node("a", [1, 0], **metadata), node("b", [1, 0], quite="different")])
    assert store.get_nodes(["a"])[0].metadata == metadata


def test_metadata_that_is_no_json_is_refused_with_the_documents_name() -> None:
    with pytest.raises(ValueError, match="document 'd' cannot be kept as JSON"):
        EmbeddedVectorStore().add([node("a", [1, 0], when=object())])


def test_an_index_node_comes_back_as_one() -> None:
    store = EmbeddedVectorStore()
    store.add([IndexNode(id_="a", text="t", index_id="passage", embedding=[1, 0])])
    (found,) = store.get_nodes(["a"])
    assert isinstance(found, IndexNode)
    assert found.index_id == "passage"


def test_nodes_without_embeddings_are_kept_and_read() -> None:
    store = EmbeddedVectorStore()
    store.add([node("a"), node("b")])
    assert store.nodes.dimension is None
    assert [n.get_content() for n in store.get_nodes(["b"])] == ["text of b"]


def test_embeddings_of_two_dimensions_are_refused(store: EmbeddedVectorStore) -> None:
    with pytest.raises(ValueError, match="2 dimensions and 3 dimensions"):
        store.add([node("x", [1, 2, 3])])
    with pytest.raises(ValueError, match="2 dimensions and none"):
        store.add([node("x")])


def test_a_query_of_another_dimension_says_that_the_model_differs(
    store: EmbeddedVectorStore,
) -> None:
    with pytest.raises(ValueError, match="another embedding model"):
        store.query(VectorStoreQuery(query_embedding=[1, 2, 3], similarity_top_k=1))


def test_filtered_nodes_are_replaced_by_others_until_there_are_enough(
    store: EmbeddedVectorStore,
) -> None:
    filters = MetadataFilters(
        filters=[MetadataFilter(key="n", operator=FilterOperator.GT, value=1)]
    )
    result = store.query(
        VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=2, filters=filters)
    )
    assert result.ids == ["north-east", "north"]


def test_nested_filters_work(store: EmbeddedVectorStore) -> None:
    one_or_three = MetadataFilters(
        filters=[MetadataFilter(key="n", value=1), MetadataFilter(key="n", value=3)],
        condition=FilterCondition.OR,
    )
    not_three = MetadataFilters(
        filters=[MetadataFilter(key="n", value=3)], condition=FilterCondition.NOT
    )
    found = store.get_nodes(filters=MetadataFilters(filters=[one_or_three, not_three]))
    assert [n.node_id for n in found] == ["east"]


def test_a_store_in_a_folder_is_there_again_when_it_is_opened_anew(tmp_path: Path) -> None:
    EmbeddedVectorStore(tmp_path / "日本 語").add([node("a", [1, 0])])
    assert [n.node_id for n in EmbeddedVectorStore(tmp_path / "日本 語").get_nodes()] == ["a"]


def test_two_stores_in_memory_are_apart(store: EmbeddedVectorStore) -> None:
    assert EmbeddedVectorStore().get_nodes() == []


def test_clear_leaves_nothing(store: EmbeddedVectorStore) -> None:
    store.clear()
    assert store.get_nodes() == []
    assert store.query(VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=1)).ids == []


def test_thousands_of_ids_are_read_at_once() -> None:
    store = EmbeddedVectorStore()
    ids = [f"id-{i}" for i in range(3000)]
    store.add([node(node_id) for node_id in ids])
    assert [n.node_id for n in store.get_nodes(ids)] == ids
    store.delete_nodes(ids[1:])
    assert [n.node_id for n in store.get_nodes()] == ids[:1]
