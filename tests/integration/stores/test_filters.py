"""The user's metadata filters: they reach propositions, passages and search by words alike."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_pack_densex import DenseXRetrievalPack
from tests.integration.stores.checks import documents_of, everything
from tests.integration.stores.corpus import (
    ABOUT_ALL,
    EVERYTHING,
    FILTERS,
    METADATA,
    QUESTIONS,
    corpus,
    one,
    options,
)
from tests.integration.stores.open_store import OpenStore

pytestmark = pytest.mark.column("filters")


def test_what_passes_filters_is_found_and_nothing_else(pack: DenseXRetrievalPack) -> None:
    found = {name: everything(pack, filters=filters) for name, (filters, _) in FILTERS.items()}
    assert found == {name: passing for name, (_, passing) in FILTERS.items()}


@pytest.mark.parametrize("name", ["nested", "nobody"])
def test_answers_and_asynchronous_search_keep_to_filters(
    pack: DenseXRetrievalPack, name: str
) -> None:
    filters, passing = FILTERS[name]
    answer = pack.run(ABOUT_ALL, similarity_top_k=EVERYTHING, filters=filters)
    assert documents_of(answer.source_nodes) == passing
    assert documents_of(asyncio.run(pack.aretrieve(ABOUT_ALL, EVERYTHING, filters))) == passing


def test_a_filtered_out_document_is_not_found_by_its_own_question(
    pack: DenseXRetrievalPack,
) -> None:
    for question, document in QUESTIONS.items():
        others = one("topic", FilterOperator.NE, METADATA[document]["topic"])
        hits = pack.retrieve(question, similarity_top_k=EVERYTHING, filters=others)
        assert document not in documents_of(hits)
        same = one("topic", FilterOperator.EQ, METADATA[document]["topic"])
        hits = pack.retrieve(question, filters=same)
        assert hits[0].node.ref_doc_id == document


def test_filters_hold_after_reopening_and_for_what_was_inserted(
    store: OpenStore, mode: str
) -> None:
    filters, passing = FILTERS["nested"]
    pack = store.build(corpus(*(name for name in METADATA if name != "琵琶湖")), **options(mode))
    assert everything(pack, filters=filters) == passing - {"琵琶湖"}
    pack.insert(corpus("琵琶湖"))
    for opened in (pack, store.reopen(**options(mode))):
        assert everything(opened, filters=filters) == passing
    pack.delete("tides")
    for opened in (pack, store.reopen(**options(mode))):
        assert everything(opened, filters=filters) == passing - {"tides"}
