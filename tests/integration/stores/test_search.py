"""Building an index in a store, and asking it."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.schema import IndexNode, NodeRelationship

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, MATCHED_KEY
from tests.integration.stores.checks import close_to, everything
from tests.integration.stores.conftest import Library
from tests.integration.stores.corpus import METADATA, QUESTIONS, corpus
from tests.integration.stores.open_store import StoreKind
from tests.integration.stores.reopen import answers, as_json

JAPANESE = [question for question in QUESTIONS if not question.isascii()]


def in_column_of_its_mode(check: object) -> object:
    """A check in both modes, each a column of its own."""
    columns = [
        pytest.param("recursive", marks=pytest.mark.column("recursive")),
        pytest.param("auto_merging", marks=pytest.mark.column("auto-merging")),
    ]
    return pytest.mark.parametrize("mode", columns)(check)


@pytest.mark.column("build")
def test_every_node_is_there_and_linked(library: Library, kind: StoreKind, mode: str) -> None:
    pack = library.pack(kind, mode, "hybrid")
    nodes = {node.node_id: node for node in pack.nodes()}
    counts = pack.counts()
    assert set(pack.documents()) == set(METADATA)
    assert counts.documents == len(METADATA)
    assert counts.passages == len(pack.nodes("passage")) > len(METADATA)
    assert counts.propositions == len(pack.nodes("proposition")) > counts.passages
    assert len(pack.nodes("section")) == (len(METADATA) if mode == "auto_merging" else 0)
    for node in nodes.values():
        for relationship, related in node.relationships.items():
            if relationship != NodeRelationship.SOURCE:
                linked = related if isinstance(related, list) else [related]
                assert {part.node_id for part in linked} <= set(nodes)
        if isinstance(node, IndexNode):
            assert nodes[node.index_id].metadata[GRANULARITY_KEY] == "passage"


@pytest.mark.column("build")
def test_nodes_come_back_as_they_were_made(library: Library, kind: StoreKind, mode: str) -> None:
    pack = library.pack(kind, mode, "hybrid")
    made = pack.node_parser.get_nodes_from_documents(corpus())
    kept = {node.node_id: node for node in pack.nodes()}
    assert len(made) == len(kept)
    for node in made:
        back = kept[node.node_id]
        assert type(back) is type(node)
        assert back.model_dump(exclude={"embedding"}) == node.model_dump(exclude={"embedding"})


@in_column_of_its_mode
def test_the_right_document_comes_first(pack: DenseXRetrievalPack) -> None:
    hits = {question: pack.retrieve(question) for question in QUESTIONS}
    assert {question: found[0].node.ref_doc_id for question, found in hits.items()} == QUESTIONS
    for found in hits.values():
        scores = [hit.score or 0.0 for hit in found]
        assert scores == sorted(scores, reverse=True)
        assert len({hit.node.node_id for hit in found}) == len(found)
        assert found[0].node.metadata[MATCHED_KEY]


@in_column_of_its_mode
def test_all_is_found_where_all_is_asked_for(pack: DenseXRetrievalPack) -> None:
    assert everything(pack) == set(METADATA)


@in_column_of_its_mode
def test_answers_quote_what_was_found(pack: DenseXRetrievalPack) -> None:
    question = "Does the lamp of the lighthouse turn every ten seconds?"
    assert "Its lamp turns every ten seconds" in str(pack.run(question))


@in_column_of_its_mode
def test_asynchronous_search_finds_the_same_in_any_event_loop(pack: DenseXRetrievalPack) -> None:
    synchronous = answers(pack)
    for question in JAPANESE:  # each time in another loop
        assert as_json(asyncio.run(pack.aretrieve(question))) == close_to(synchronous[question])

    async def at_once() -> list[object]:
        hits = await asyncio.gather(*(pack.aretrieve(question) for question in QUESTIONS))
        return [as_json(part) for part in hits]

    assert asyncio.run(at_once()) == close_to(list(synchronous.values()))


@in_column_of_its_mode
async def test_a_running_event_loop_is_no_obstacle(pack: DenseXRetrievalPack) -> None:
    question = JAPANESE[0]
    assert as_json(pack.retrieve(question)) == close_to(as_json(await pack.aretrieve(question)))
    assert str(await pack.arun(question)) == str(pack.run(question))


@pytest.mark.column("core's index")
def test_cores_own_index_searches_the_store(library: Library, kind: StoreKind, mode: str) -> None:
    pack = library.pack(kind, mode, "dense")
    assert pack.vector_index is not None
    nodes = {node.node_id: node for node in pack.nodes()}
    retriever = pack.vector_index.as_retriever(similarity_top_k=5)
    for question, document in QUESTIONS.items():
        hits = retriever.retrieve(question)
        assert len(hits) == 5
        assert document in {nodes[hit.node.node_id].ref_doc_id for hit in hits}
        for hit in hits:
            assert hit.node.get_content() == nodes[hit.node.node_id].get_content()
