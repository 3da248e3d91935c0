"""Stores that are not a pack's alone: two packs in one, and rows that somebody else wrote."""

from __future__ import annotations

import uuid

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from tests.integration.stores.checks import each_search, everything, indexed_documents, node_ids
from tests.integration.stores.corpus import METADATA, QUESTIONS, corpus, document, options
from tests.integration.stores.open_store import OpenStore
from tests.openai_server import embed

pytestmark = pytest.mark.slow_cases("embedded-folder-auto_merging")

FIRST = ["tides", "bridge", "新幹線"]
SECOND = [name for name in METADATA if name not in FIRST]


@pytest.mark.column("two packs")
def test_two_packs_write_into_one_store(store: OpenStore, mode: str) -> None:
    first = store.build(corpus(*FIRST), **options(mode))
    second = store.build(corpus(*SECOND), **options(mode))
    for opened in (second, *each_search(store, mode).values()):
        assert set(opened.documents()) == set(METADATA)
        assert indexed_documents(opened) == set(METADATA)
        assert everything(opened) == set(METADATA)
        for question, name in QUESTIONS.items():
            assert opened.retrieve(question)[0].node.ref_doc_id == name
    for question, name in QUESTIONS.items():  # what it had it still has
        assert name not in FIRST or first.retrieve(question)[0].node.ref_doc_id == name


@pytest.mark.column("two packs")
def test_a_pack_that_writes_after_another_one_destroys_nothing(store: OpenStore, mode: str) -> None:
    first = store.build(corpus(*FIRST), **options(mode))
    second = store.build(corpus(*SECOND), **options(mode))
    first.insert(
        [document("extra", "Paper is made of wood pulp. 紙は木から作る。", {"topic": "craft"})]
    )
    second.delete("将棋")
    first.delete("bridge")
    left = {*METADATA, "extra"} - {"将棋", "bridge"}
    for opened in each_search(store, mode).values():
        assert set(opened.documents()) == left
        assert indexed_documents(opened) == left
        assert everything(opened) >= left - {"extra"}
        assert opened.retrieve("Paper is made of wood pulp.")[0].node.ref_doc_id == "extra"


@pytest.mark.column("two packs")
def test_the_same_documents_from_two_packs_are_there_once(store: OpenStore) -> None:
    first = store.build(corpus(), **options("recursive"))
    before = node_ids(first)
    store.build(corpus(), **options("recursive"))
    first.insert(corpus("miso"))
    assert node_ids(store.reopen(**options("recursive"))) == before


@pytest.mark.column("others' rows")
def test_rows_of_somebody_else_never_appear(store: OpenStore, mode: str) -> None:
    pack = store.build(corpus(), **options(mode))
    nodes = node_ids(pack)
    store.own_store(pack).add([_row(question) for question in QUESTIONS])
    for opened in (pack, *each_search(store, mode).values()):
        assert node_ids(opened) == nodes
        assert set(opened.documents()) == set(METADATA)
        for question, name in QUESTIONS.items():
            found = opened.retrieve(question, similarity_top_k=50)
            assert {hit.node.node_id for hit in found} <= set(nodes)
            assert found[0].node.ref_doc_id == name
        assert everything(opened) == set(METADATA)
        assert opened.counts().documents == len(METADATA)


@pytest.mark.column("others' rows")
def test_rows_of_somebody_else_may_be_there_before(store: OpenStore) -> None:
    if store.vector_store is None or not store.vector_store.stores_text:
        pytest.skip("a folder and a FAISS index belong to one pack from the beginning")
    strangers = [_row(text) for text in ("The first row.", "二つ目の行。")]
    store.vector_store.add(strangers)
    pack = store.build(corpus(), **options("recursive"))
    pack.refresh(corpus("bridge", "将棋"))
    pack.delete(["miso"])
    for opened in (pack, store.reopen(**options("recursive"))):
        assert indexed_documents(opened) == set(METADATA) - {"miso"}
        assert everything(opened) == set(METADATA) - {"miso"}
    assert (
        store.vector_store.get_nodes([strangers[0].node_id])[0].get_content()
        == strangers[0].get_content()
    )


def _row(text: str) -> TextNode:
    """A node such as other programs write."""
    node = TextNode(
        id_=str(uuid.uuid4()),
        text=text,
        metadata={"topic": "sea", "year": 1998},
        embedding=embed(text),
    )
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="somebody's")
    return node
