"""Metadata of any JSON shape, Japanese, and ids that look like something else."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS
from tests.integration.stores.checks import (
    close_to,
    documents_of,
    each_search,
    everything,
    node_ids,
)
from tests.integration.stores.corpus import (
    ABOUT_ALL,
    HOSTILE_ID,
    METADATA,
    QUESTIONS,
    corpus,
    document,
    one,
    options,
)
from tests.integration.stores.open_store import OpenStore
from tests.integration.stores.reopen import answers

SHAPES: dict[str, dict[str, Any]] = {
    "nested": {
        "author": {"name": "清少納言", "born": 966, "works": [{"title": "枕草子", "parts": [1, [2, None]]}]},
    },
    "numbers": {
        "big": 2**63 - 1, "negative": -(2**63), "odd": 2**53 + 1, "tenth": 0.1,
        "tiny": 5e-324, "large": 1e300,
    },
    "nothing": {
        "none": None, "empty": "", "no list": [], "no dict": {}, "true": True, "false": False, "zero": 0,
    },
    "lists": {
        "mixed": [1, "一", None, 2.5, True, {"a": [1]}], "lists": [[1, 2], []], "strings": ["a", "", "山"],
    },
    "names": {
        "鍵": "値", "": "no name", "a.b": 1, "a b": 2, "$set": 3, "it's": "quoted", "x[0]": 4, "🗝": "emoji",
        "A": 1, "a": 2,
    },
    "taken": {
        "text": "not the text", "id": "not the id", "id_": 1, "doc_id": "no",
        "document_id": "none", "ref_doc_id": "x", "node_id": 2, "embedding": [0.5],
        "vector": "v", "score": 9, "metadata": {"metadata_": 1}, "_id": "y", "relationships": [],
        "class_name": "Other", "$vector": 1, "page_content": "p", "pk": 7, "distance": 0.1,
    },
    "syntax": {"quote": "\"'\\\n\t\u2028{}%s", "key = value": "x", "json": '{"a": [1]}', "nul": "a\x00b"},
}  # fmt: skip


@pytest.mark.column("metadata")
def test_metadata_comes_back_as_it_was(store: OpenStore) -> None:
    check_round_trip(store, SHAPES)


@pytest.mark.column("metadata")
def test_long_metadata_comes_back_as_it_was(store: OpenStore) -> None:
    check_round_trip(store, {"long": {"story": "長い話。" * 10_000}})


def check_round_trip(store: OpenStore, shapes: dict[str, dict[str, Any]]) -> None:
    """Check what comes back of documents' metadata, here and after reopening."""
    given = {"other": {"plain": 1}, **shapes}
    documents = [
        document(name, f"The lighthouse of {name} stands on a cliff. 灯台は崖に立つ。", metadata)
        for name, metadata in given.items()
    ]
    pack = store.build(documents, **options("recursive"))
    for opened in (pack, store.reopen(**options("recursive"))):
        for node in opened.nodes():
            check_metadata(node.metadata, given[str(node.ref_doc_id)])
        hits = opened.retrieve("The lighthouse on a cliff", similarity_top_k=50)
        assert documents_of(hits) == set(given)
        for hit in hits:
            check_metadata(hit.node.metadata, given[str(hit.node.ref_doc_id)])
        assert opened.refresh(documents) == [False] * len(documents)


def check_metadata(kept: dict[str, Any], given: dict[str, Any]) -> None:
    """Check that metadata, without what is kept there of ours, is what was given, types and all."""
    users = {key: value for key, value in kept.items() if key not in BOOKKEEPING_KEYS}
    assert users == given
    assert {key: type(value) for key, value in users.items()} == {
        key: type(value) for key, value in given.items()
    }


@pytest.mark.column("metadata")
def test_a_whole_number_of_64_bits_is_compared_exactly(store: OpenStore) -> None:
    documents = [
        document("even", "Glass is melted from sand.", {"number": 2**53}),
        document("odd", "The lighthouse stands on a cliff.", {"number": 2**53 + 1}),
    ]
    pack = store.build(documents, **options("recursive"))
    for opened in (pack, store.reopen(**options("recursive"))):
        assert everything(opened, filters=one("number", FilterOperator.EQ, 2**53 + 1)) == {"odd"}
        assert everything(opened, filters=one("number", FilterOperator.GT, 2**53)) == {"odd"}


@pytest.mark.column("metadata")
def test_values_of_different_kinds_under_one_key(store: OpenStore) -> None:
    values: list[Any] = [1, "one", [1, 2], {"one": 1}, None, 1.5, True]
    documents = [
        document(f"d{place}", "Glass is sand.", {"value": value})
        for place, value in enumerate(values)
    ]
    pack = store.build(documents, **options("recursive"))
    for opened in (pack, store.reopen(**options("recursive"))):
        kept = {str(node.ref_doc_id): node.metadata["value"] for node in opened.nodes()}
        assert kept == {f"d{place}": value for place, value in enumerate(values)}
        hits = opened.retrieve(ABOUT_ALL, 50, one("value", FilterOperator.EQ, "one"))
        assert documents_of(hits) == {"d1"}


@pytest.mark.column("ids, Japanese")
def test_documents_are_told_apart_by_ids_of_any_characters(store: OpenStore) -> None:
    ids = [
        HOSTILE_ID,
        "'",
        '"',
        "%",
        "_",
        "\\",
        "a\nb",
        "日本語 の id",
        "é",
        "e\u0301",
        "*",
        "x" * 400,
        " x",
        "x",
        "X",
    ]
    documents = [
        document(name, f"Fact {place} of glass.", {"place": place})
        for place, name in enumerate(ids)
    ]
    pack = store.build(documents, **options("recursive"))
    assert set(pack.documents()) == set(ids)
    for name in ids[::2]:
        assert pack.delete(name) == 1
    left = set(ids[1::2])
    for opened in (pack, store.reopen(**options("recursive"))):
        assert set(opened.documents()) == left
        assert {node.ref_doc_id for node in opened.nodes()} == left
        assert documents_of(opened.retrieve("glass", similarity_top_k=50)) == left
    assert pack.refresh(documents) == [name not in left for name in ids]


@pytest.mark.column("ids, Japanese")
def test_japanese_texts_and_ids_are_found(store: OpenStore, mode: str) -> None:
    japanese = [name for name in METADATA if not name.isascii() and name != HOSTILE_ID]
    pack = store.build(corpus(*japanese), **options(mode))
    before, nodes = answers(pack), node_ids(pack)
    for opened in (pack, *each_search(store, mode).values()):
        for question, name in QUESTIONS.items():
            if name in japanese:
                assert opened.retrieve(question)[0].node.ref_doc_id == name
        assert node_ids(opened) == nodes
    assert answers(store.reopen(**options(mode))) == close_to(before)
