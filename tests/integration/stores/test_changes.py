"""Documents refreshed, inserted again, deleted, and links that lead nowhere."""

from __future__ import annotations

import logging

import pytest

from llama_pack_densex import DenseXRetrievalPack
from tests.integration.stores.checks import close_to, each_search, everything, node_ids
from tests.integration.stores.corpus import (
    HOSTILE_ID,
    METADATA,
    QUESTIONS,
    PairPropositionizer,
    corpus,
    document,
    options,
)
from tests.integration.stores.open_store import OpenStore
from tests.integration.stores.reopen import answers
from tests.searching import ShortEmbedding

pytestmark = pytest.mark.slow_cases("embedded-folder-recursive*")

NEW_TEXT = "The bridge was painted green last spring. 橋は緑色に塗られた。"


@pytest.mark.column("refresh")
def test_unchanged_documents_cost_nothing(store: OpenStore, mode: str) -> None:
    model, propositionizer = ShortEmbedding(), PairPropositionizer()
    pack = store.build(
        corpus(), **options(mode, embed_model=model, propositionizer=propositionizer)
    )
    spent, before = (model.embedded, propositionizer.asked), answers(pack)
    for opened in (
        pack,
        store.reopen(**options(mode, embed_model=model, propositionizer=propositionizer)),
    ):
        for _ in range(3):
            assert opened.refresh(corpus()) == [False] * len(METADATA)
        assert (model.embedded, propositionizer.asked) == spent
        assert answers(opened) == close_to(before)


@pytest.mark.column("refresh")
def test_a_changed_document_is_replaced(store: OpenStore, mode: str) -> None:
    pack = store.build(corpus(), **options(mode))
    kept = {node.node_id for node in pack.nodes() if node.ref_doc_id != "bridge"}
    changed = [
        document(name, NEW_TEXT, METADATA[name]) if name == "bridge" else corpus(name)[0]
        for name in METADATA
    ]
    assert pack.refresh(changed) == [name == "bridge" for name in METADATA]
    for opened in (pack, *each_search(store, mode).values()):
        nodes = opened.nodes()
        assert kept < {node.node_id for node in nodes}
        of_bridge = [node.get_content() for node in nodes if node.ref_doc_id == "bridge"]
        assert of_bridge
        assert not any("Akashi" in text for text in of_bridge)
        assert opened.retrieve("The bridge was painted green.")[0].node.ref_doc_id == "bridge"
        assert not any(
            "Akashi" in hit.node.get_content()
            for hit in opened.retrieve("When did the Akashi Bridge open?")
        )


@pytest.mark.column("refresh")
def test_changed_metadata_is_replaced(store: OpenStore) -> None:
    pack = store.build(corpus("bridge", "将棋"), **options("recursive"))
    text = corpus("bridge")[0].text
    assert pack.refresh([document("bridge", text, {"topic": "red"}), *corpus("将棋")]) == [
        True,
        False,
    ]
    for opened in (pack, store.reopen(**options("recursive"))):
        for node in opened.nodes():
            assert node.metadata["topic"] == ("red" if node.ref_doc_id == "bridge" else "遊び")
            assert ("year" in node.metadata) == (node.ref_doc_id != "bridge")


@pytest.mark.column("insert")
def test_a_document_that_is_inserted_again_is_there_once(store: OpenStore, mode: str) -> None:
    pack = store.build(corpus(), **options(mode))
    before, rows, found = node_ids(pack), _rows(store, pack), answers(pack)
    pack.insert(corpus("bridge", "将棋", HOSTILE_ID))
    store.reopen(**options(mode)).insert(corpus("bridge"))
    assert node_ids(pack) == before
    assert _rows(store, pack) == rows
    for opened in (pack, store.reopen(**options(mode))):
        assert node_ids(opened) == before
        assert answers(opened) == close_to(found)


@pytest.mark.column("delete")
@pytest.mark.parametrize("gone", [["tides"], ["将棋", HOSTILE_ID]], ids=["tides", "several"])
@pytest.mark.slow_cases("*-tides", but=["embedded-folder*"])
def test_nothing_is_left_of_a_deleted_document(
    store: OpenStore, mode: str, gone: list[str]
) -> None:
    pack = store.build(corpus(), **options(mode))
    rows, nodes = _rows(store, pack), pack.nodes()
    assert pack.delete(gone) == len(gone)
    left = sorted(node.node_id for node in nodes if node.ref_doc_id not in gone)
    assert _rows(store, pack) == rows - (len(nodes) - len(left))
    for opened in (pack, *each_search(store, mode).values()):
        assert node_ids(opened) == left
        assert set(opened.documents()) == set(METADATA) - set(gone)
        assert everything(opened) == set(METADATA) - set(gone)
        for question, name in QUESTIONS.items():
            found = opened.retrieve(question)
            assert not {hit.node.ref_doc_id for hit in found} & set(gone)
            assert name in gone or found[0].node.ref_doc_id == name
    assert pack.delete(gone) == 0


@pytest.mark.column("delete")
def test_a_deleted_document_can_come_back(store: OpenStore, mode: str) -> None:
    pack = store.build(corpus(), **options(mode))
    before, found = node_ids(pack), answers(pack)
    pack.delete(["tides", "琵琶湖"])
    store.reopen(**options(mode)).insert(corpus("tides", "琵琶湖"))
    opened = store.reopen(**options(mode))
    assert node_ids(opened) == before
    assert answers(opened) == close_to(found)


@pytest.mark.column("missing link")
def test_a_link_that_leads_nowhere_costs_that_hit_only(
    store: OpenStore, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    pack = store.build(corpus(), **options(mode, hybrid=False))
    lost = [node.node_id for node in pack.nodes("passage") if node.ref_doc_id == "bridge"]
    if store.drop_row is not None:
        for node_id in lost:
            store.drop_row(node_id)
        pack = store.reopen(**options(mode, hybrid=False))
    else:  # its folder is the pack's own: what is done behind its back is done within
        store.delete_within(pack, lost)
    with caplog.at_level(logging.WARNING):
        found = pack.retrieve("When did the Akashi Bridge open?")
    assert found
    assert not {hit.node.node_id for hit in found} & set(lost)
    assert len([record for record in caplog.records if "not in the index" in record.message]) == 1
    assert str(pack.run("When did the Akashi Bridge open?"))
    assert everything(pack) >= set(METADATA) - {"bridge"}
    for question, name in QUESTIONS.items():
        assert name == "bridge" or pack.retrieve(question)[0].node.ref_doc_id == name


def _rows(store: OpenStore, pack: DenseXRetrievalPack) -> int:
    """The rows that the store's client sees; of the embedded one in a folder, its nodes."""
    return store.count_rows() if store.count_rows is not None else len(pack.nodes())
