from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores import loaded
from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.lance_nodes import LanceNodes
from llama_pack_densex.stores.node_store import FoundNode

Vector = list[float]


def passage(node_id: str, vector: Vector, **metadata: object) -> TextNode:
    return TextNode(
        id_=node_id,
        text=f"{node_id} の本文",
        embedding=vector,
        metadata={GRANULARITY_KEY: "passage", **metadata},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")},
    )


def proposition(node_id: str, leads_to: str, vector: Vector) -> IndexNode:
    metadata = {GRANULARITY_KEY: "proposition"}
    return IndexNode(id_=node_id, text=f"fact {node_id}", index_id=leads_to, embedding=vector, metadata=metadata)


def filled(*nodes: BaseNode) -> LanceVectorStore:
    store = LanceVectorStore()
    store.add(nodes)
    return store


def nearest(store: LanceVectorStore, vector: Vector, k: int = 10, passages: list[str] | None = None) -> list[FoundNode]:
    now = store.table.now
    places, cosines = now.nearest(vector, k, None if passages is None else frozenset(passages))
    return now.loaded.found(places, cosines) if len(places) else []


def found(store: LanceVectorStore, vector: Vector, k: int = 10) -> list[str]:
    """What is found, the same in short and as nodes."""
    short = [node.id for node in nearest(store, vector, k)]
    assert store.query(VectorStoreQuery(query_embedding=vector, similarity_top_k=k)).ids == short
    return short


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.integers(1, 100))
def test_it_finds_what_lancedb_finds(seed: int, rows: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((rows, 8), dtype=np.float32) * rng.uniform(0.1, 100, (rows, 1))
    store = filled(*(passage(f"p{n}", vector.tolist()) for n, vector in enumerate(vectors)))
    question = rng.standard_normal(8, dtype=np.float32).tolist()
    table = store.client.open_table("nodes")
    theirs = table.search(question).distance_type("cosine").select(["id", "_distance"]).limit(k).to_list()
    ours = nearest(store, question, k)
    assert [node.score for node in ours] == pytest.approx([1 - row["_distance"] for row in theirs], abs=1e-5)
    assert {node.id for node in ours} == {row["id"] for row in theirs}


def test_of_equally_near_nodes_those_written_first_come_first() -> None:
    names = [f"p{n}" for n in range(3000)]
    store = filled(*(passage(name, [1, n % 2]) for n, name in enumerate(names)))
    assert found(store, [1, 0], 1600) == names[::2] + names[1::2][:100]


def test_nothing_is_near_to_an_embedding_of_no_length() -> None:
    store = filled(passage("east", [1, 0]), passage("nowhere", [0, 0]))
    assert found(store, [1, 0]) == ["east"]
    assert found(store, [0, 0]) == []


def test_cosines_do_not_exceed_one() -> None:
    vector = [0.1, 0.7, 0.3, 1e-3]
    store = filled(*(passage(f"p{n}", [value * n for value in vector]) for n in range(1, 200)))
    assert max(node.score for node in nearest(store, vector, 200)) <= 1.0


def test_a_question_sees_every_change_before_it() -> None:
    store = filled(passage("east", [1, 0]), passage("north", [0, 1]))
    assert found(store, [1, 0]) == ["east", "north"]
    store.add([passage("south-east", [1, -0.1]), passage("east", [0, -1])])
    assert found(store, [1, 0]) == ["south-east", "north", "east"]
    assert [node.node_id for node in store.get_nodes(["east", "south-east"])] == ["east", "south-east"]
    store.delete_nodes(["south-east"])
    assert found(store, [1, 0]) == ["north", "east"]
    assert store.get_nodes(["south-east"]) == []
    store.delete("d")
    assert found(store, [1, 0]) == []
    store.clear()
    store.add([passage("up", [0, 0, 1])])
    assert found(store, [1, 0, 1]) == ["up"]


def test_only_some_passages_and_what_leads_to_them_are_searched() -> None:
    store = filled(
        passage("p'1", [1, 0]), passage("p2", [0, 1]),
        proposition("u1", "p'1", [0, 1]), proposition("u2", "p2", [1, 0]), proposition("u3", "p3", [1, 0]),
    )  # fmt: skip
    assert [node.id for node in nearest(store, [1, 0.1], 10, ["p'1", "p2"])] == ["p'1", "u2", "p2", "u1"]
    assert [node.id for node in nearest(store, [1, 0.1], 2, ["p'1"])] == ["p'1", "u1"]
    assert nearest(store, [1, 0.1], 10, []) == []


def test_a_table_too_large_for_memory_is_searched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [passage("p1", [1, 0]), passage("p2", [0, 1]), proposition("u1", "p1", [1, 1])]
    in_memory = filled(*nodes)
    monkeypatch.setattr(loaded, "MOST_BYTES", 0)
    too_large = filled(*nodes)
    for store in (in_memory, too_large):
        assert found(store, [1, 0.1]) == ["p1", "u1", "p2"]
        assert [node.id for node in nearest(store, [0.1, 1], 10, ["p1"])] == ["u1", "p1"]
        assert nearest(store, [0.1, 1], 10, []) == []
        assert [node.node_id for node in store.get_nodes(["p2", "gone", "u1"])] == ["p2", "u1"]


def test_a_filter_that_half_of_many_passages_pass_costs_no_result() -> None:
    nodes = LanceNodes()
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((1300, 4))
    nodes.replace([], [passage(f"p{n}", vector.tolist(), n=n) for n, vector in enumerate(vectors)])
    # those that pass are the ones that are farthest away, where half of what is found first would not do
    far = np.argsort(vectors @ [1, 0, 0, 0] / np.linalg.norm(vectors, axis=1))[:600]
    passing = MetadataFilters(filters=[MetadataFilter(key="n", operator=FilterOperator.IN, value=far.tolist())])
    question = VectorStoreQuery(query_embedding=[1, 0, 0, 0], similarity_top_k=20, filters=passing)
    assert [node.id for node in nodes.search(question)] == [f"p{n}" for n in far[:-21:-1]]


def test_questions_during_changes_get_nodes_that_were_there() -> None:
    store = filled(*(passage(f"p{n}", [1, n / 100]) for n in range(100)))
    problems: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                result = store.query(VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=20))
                assert [node.text for node in result.nodes or []] == [
                    f"{node_id} の本文" for node_id in result.ids or []
                ]
                assert len(result.ids or []) == 20
            except BaseException as problem:
                problems.append(problem)
                return

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for round_ in range(15):
        store.add([passage(f"p{n}", [1, n / 100 + round_]) for n in range(0, 100, 3)])
        store.delete_nodes([f"p{round_}"])
    stop.set()
    for thread in asking:
        thread.join()
    assert not problems


def test_what_another_process_wrote_is_seen_after_opening_anew_or_writing(tmp_path: Path) -> None:
    store = LanceVectorStore(tmp_path)
    store.add([passage("east", [1, 0])])
    assert found(store, [1, 0]) == ["east"]
    other = LanceVectorStore(tmp_path)
    other.add([passage("north", [0, 1])])
    assert found(LanceVectorStore(tmp_path), [1, 0]) == ["east", "north"]
    store.add([passage("west", [-1, 0])])
    assert found(store, [1, 0]) == ["east", "north", "west"]


@given(st.lists(st.text(max_size=40)))
def test_digests_tell_texts_apart_and_do_not_depend_on_their_neighbours(texts: list[str]) -> None:
    digests = loaded.digests_of(pa.array(texts, pa.string())).tolist()
    assert len(set(digests)) == len(set(texts))
    for start in range(len(texts)):
        assert loaded.digests_of(pa.array(texts, pa.string())[start:]).tolist() == digests[start:]


_IDS = st.text(min_size=1, max_size=8)


@settings(deadline=None)
@given(st.lists(_IDS, unique=True, min_size=1), st.data())
def test_nodes_are_found_by_id(ids: list[str], data: st.DataObject) -> None:
    sought = data.draw(st.lists(st.sampled_from(ids) | _IDS))
    store = filled(*(passage(node_id, [1, 0]) for node_id in ids))
    assert [node.node_id for node in store.get_nodes(sought)] == [node_id for node_id in sought if node_id in ids]
