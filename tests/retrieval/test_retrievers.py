from __future__ import annotations

import functools
import math
from collections import Counter

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
)
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, QueryBundle

from llama_pack_densex import (
    DenseXRetrievalPack,
    HierarchicalPropositionNodeParser,
    PropositionNodeParser,
)
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.index.words import Words
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.retrieval.context import (
    PropositionContextPostprocessor,
    choose_facts,
    count_words,
    rank_facts,
)
from llama_pack_densex.retrieval.hits import collapse, matched_units
from llama_pack_densex.retrieval.retrievers import (
    PropositionAutoMergingRetriever,
    PropositionRecursiveRetriever,
)
from llama_pack_densex.retrieval.search import UnitSearch
from tests.embedding import DIMENSION, TrigramEmbedding

KINDS = ["dense", "lexical"]


def many_documents() -> list[Document]:
    """Forty passages in four documents; each passage has its own colour and number."""
    colours = ["red", "green", "blue", "white"]
    paragraph = (
        "The {c} lamp number {n} hangs in hall {n}. It was lit in {y}. "
        "Its keeper wears {c} boots.\n\n\n"
    )
    return [
        Document(id_=c, text="".join(paragraph.format(c=c, n=n, y=1900 + n) for n in range(10)))
        for c in colours
    ]


def build(
    kind: str, hierarchy: bool = False, documents: list[Document] | None = None
) -> tuple[UnitSearch, NodeIndex]:
    parser = (
        HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[150, 35])
        if hierarchy
        else PropositionNodeParser.from_defaults()
    )
    if not hierarchy:
        parser.base_parser.chunk_size = 35
    index = NodeIndex(
        embed_model=TrigramEmbedding() if kind == "dense" else None, words=Words.by("bigrams")
    )
    index.replace([], parser.get_nodes_from_documents(documents or many_documents()))
    index.store.commit()
    return UnitSearch(index), index


built = functools.cache(build)
"""The same for tests that only read it."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_passage_of_the_best_unit_comes_first(kind: str) -> None:
    retriever = PropositionRecursiveRetriever(*built(kind), similarity_top_k=3)
    found = retriever.retrieve("blue lamp number 7")
    assert found[0].node.get_content().startswith("The blue lamp number 7 hangs in hall 7.")
    assert found[0].node.metadata[GRANULARITY_KEY] == "passage"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("top_k", [1, 4, 17, 33])
def test_top_k_counts_distinct_passages(kind: str, top_k: int) -> None:
    retriever = PropositionRecursiveRetriever(*built(kind), similarity_top_k=top_k, fetch_k=2)
    ids = [hit.node.node_id for hit in retriever.retrieve("lamp keeper")]
    assert len(ids) == len(set(ids)) == top_k


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_where_nothing_is_left(kind: str) -> None:
    found = PropositionRecursiveRetriever(*built(kind), similarity_top_k=1000).retrieve(
        "lamp keeper"
    )
    assert len(found) == 40


@pytest.mark.parametrize("kind", KINDS)
def test_scores_fall(kind: str) -> None:
    scores = [
        hit.score
        for hit in PropositionRecursiveRetriever(*built(kind), similarity_top_k=20).retrieve(
            "lamp 3"
        )
    ]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_passage_carries_the_units_that_found_it(kind: str) -> None:
    (found,) = PropositionRecursiveRetriever(*built(kind), similarity_top_k=1).retrieve(
        "the keeper's green boots"
    )
    units = matched_units(found.node)
    assert units[0].text == "Its keeper wears green boots."
    assert units[0].granularity == "proposition"
    assert units[0].status == "ok"
    assert [unit.score for unit in units] == sorted((unit.score for unit in units), reverse=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hierarchy", [False, True])
async def test_asynchronous_retrieval_finds_the_same(kind: str, hierarchy: bool) -> None:
    retriever_class = (
        PropositionAutoMergingRetriever if hierarchy else PropositionRecursiveRetriever
    )
    retriever = retriever_class(*built(kind, hierarchy), similarity_top_k=5)
    for query in ("white lamp 4", "boots", "nothing of this kind"):
        blocking, waiting = retriever.retrieve(query), await retriever.aretrieve(query)
        assert [(hit.node.node_id, hit.score) for hit in blocking] == [
            (hit.node.node_id, hit.score) for hit in waiting
        ]


class NoNumber(TrigramEmbedding):
    """Knows texts, and no question."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return [math.nan] * DIMENSION

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


async def test_an_embedding_of_a_question_that_is_no_number_is_told() -> None:
    pack = DenseXRetrievalPack(many_documents(), "none", "none", NoNumber())
    with pytest.raises(ValueError, match="not finite"):
        pack.retrieve("blue lamp number 7")
    with pytest.raises(ValueError, match="not finite"):
        await pack.aretrieve("blue lamp number 7")


@pytest.mark.parametrize("use_async", [False, True])
def test_core_fuses_packs_with_different_embedding_models(use_async: bool) -> None:
    models = [TrigramEmbedding(), MockEmbedding(embed_dim=8)]
    packs = [
        DenseXRetrievalPack(many_documents(), "none", "none", model, similarity_top_k=2)
        for model in models
    ]
    fusion = QueryFusionRetriever(
        [pack.retriever for pack in packs],
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=4,
        use_async=use_async,
    )
    expected = {hit.node_id for pack in packs for hit in pack.retrieve("blue lamp number 7")}
    assert {hit.node_id for hit in fusion.retrieve("blue lamp number 7")} == expected


def test_core_adds_up_what_several_questions_find() -> None:
    pack = DenseXRetrievalPack(many_documents(), "none", "none", TrigramEmbedding())
    questions = ["blue lamp number 7", "the keeper of the blue lamp wears boots"]
    fusion = QueryFusionRetriever(
        [pack.retriever],
        llm=MockLLM(),
        query_gen_prompt=questions[1],  # a MockLLM repeats its prompt
        num_queries=2,
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=8,
        use_async=False,
    )
    scores: Counter[str] = Counter()
    for question in questions:
        for rank, hit in enumerate(pack.retrieve(question)):
            scores[hit.node_id] += 1 / (60 + rank)
    assert len(scores) < 8  # both find some of the same passages
    hits = fusion.retrieve(questions[0])
    assert {hit.node_id: hit.score for hit in hits} == pytest.approx(scores)


def test_core_tells_passages_of_equal_text_apart() -> None:
    sentence = "The lamp is red and hangs in the old hall by the sea, where the keeper lit it."
    splitter = SentenceSplitter(chunk_size=30, chunk_overlap=0)
    document = Document(text="\n\n\n".join([sentence] * 6))
    pack = DenseXRetrievalPack([document], "none", "none", TrigramEmbedding(), splitter, 6)
    hits = pack.retrieve("Where is the lamp?")
    assert len({hit.node.text for hit in hits}) < len(hits)
    assert len({hit.node.hash for hit in hits}) == len(hits)
    assert {hit.node.hash for hit in hits} == {hit.node.hash for hit in pack.retrieve("a lamp")}


def test_a_missing_passage_costs_its_hit_and_not_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    units, index = build("dense")
    retriever = PropositionRecursiveRetriever(units, index, similarity_top_k=3)
    before = retriever.retrieve("red lamp number 2")
    index.store.vector_store.delete_nodes([before[0].node.node_id])
    # without a cache
    retriever = PropositionRecursiveRetriever(units, NodeIndex(index.store), similarity_top_k=3)
    after = retriever.retrieve("red lamp number 2")
    assert [hit.node.node_id for hit in after][:2] == [hit.node.node_id for hit in before][1:]
    assert len(after) == 3
    assert "not in the index" in caplog.text


def test_nearer_base_nodes_do_not_crowd_out_the_units() -> None:
    units, _ = built("dense", hierarchy=True)
    whole_passage = (
        "The blue lamp number 7 hangs in hall 7. It was lit in 1907. Its keeper wears blue boots."
    )
    result = units.search(QueryBundle(whole_passage), 5)
    assert sum(len(hit.units) for hit in result.passages) == 5


def test_a_score_of_zero_stays_zero() -> None:
    assert collapse([FoundNode("u", "proposition", "p", 0.0)])[0].score == 0.0


def test_a_lexical_question_without_a_known_word_finds_nothing() -> None:
    assert PropositionRecursiveRetriever(*build("lexical")).retrieve("zzz 量子力学 ???") == []


def test_a_question_of_one_japanese_character_finds_words_with_it() -> None:
    documents = [Document(text="琵琶湖は日本最大である。"), Document(text="富士山は高い。")]
    retriever = PropositionRecursiveRetriever(*build("lexical", documents=documents))
    assert [hit.node.get_content() for hit in retriever.retrieve("湖")] == [
        "琵琶湖は日本最大である。"
    ]


def test_the_retrievers_are_cores() -> None:
    assert issubclass(PropositionRecursiveRetriever, RecursiveRetriever)
    assert issubclass(PropositionAutoMergingRetriever, AutoMergingRetriever)


def test_cores_retrieve_all_follows_links_through_the_store() -> None:
    units, index = build("dense")
    nodes, _ = PropositionRecursiveRetriever(units, index).retrieve_all(
        QueryBundle("blue lamp number 7")
    )
    assert nodes[0].node.get_content().startswith("The blue lamp number 7")


@pytest.mark.parametrize("kind", KINDS)
def test_auto_merging_returns_a_passage_where_most_of_its_propositions_were_found(
    kind: str, documents: list[Document]
) -> None:
    units, index = build(kind, hierarchy=True, documents=documents)
    retriever = PropositionAutoMergingRetriever(units, index, similarity_top_k=1, fetch_k=3)
    (found,) = retriever.retrieve(
        "The Akashi Bridge crosses a busy strait; when did it open, how long is its main span?"
    )
    assert found.node.metadata[GRANULARITY_KEY] in ("passage", "section")
    assert found.node.get_content().startswith("The Akashi Bridge opened in 1998. Its main span")


@pytest.mark.parametrize("kind", KINDS)
def test_auto_merging_returns_a_lone_proposition_as_it_is(kind: str) -> None:
    retriever = PropositionAutoMergingRetriever(
        *build(kind, hierarchy=True), similarity_top_k=1, fetch_k=1
    )
    (found,) = retriever.retrieve("lit in 1903")
    assert found.node.metadata[GRANULARITY_KEY] == "proposition"
    assert "1903" in found.node.get_content()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("top_k", [1, 3, 8])
@pytest.mark.slow_cases("*", but=["3-*"])
def test_no_node_is_returned_together_with_one_above_it(
    kind: str, threshold: float, top_k: int
) -> None:
    units, index = built(kind, hierarchy=True)
    by_id = index.fetch([record.id for record in index.records()])
    retriever = PropositionAutoMergingRetriever(units, index, top_k, threshold, fetch_k=30)
    for query in ("red lamp", "keeper boots", "hall 4 1904"):
        found = retriever.retrieve(query)
        assert 0 < len(found) <= top_k
        ids = {hit.node.node_id for hit in found}
        assert len(ids) == len(found)
        for hit in found:
            assert not ids & set(ancestors(by_id[hit.node.node_id], by_id))


def ancestors(node: BaseNode, by_id: dict[str, BaseNode]) -> list[str]:
    above = []
    while node.parent_node is not None:
        above.append(node.parent_node.node_id)
        node = by_id[node.parent_node.node_id]
    return above


def test_a_low_threshold_merges_up_to_the_section() -> None:
    units, index = built("dense", hierarchy=True)
    (found,) = PropositionAutoMergingRetriever(
        units, index, 1, simple_ratio_thresh=0.0, fetch_k=5
    ).retrieve("red lamp")
    assert found.node.metadata[GRANULARITY_KEY] == "section"
    assert matched_units(found.node)


def test_verbose_prints_what_was_merged_once_and_no_text_is_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    units, index = built("dense", hierarchy=True)
    with caplog.at_level("DEBUG"):
        PropositionAutoMergingRetriever(units, index, 1, 0.0, fetch_k=5).retrieve("red lamp")
    assert "lamp" not in caplog.text
    assert capsys.readouterr().out == ""
    found = PropositionAutoMergingRetriever(units, index, 1, 0.0, fetch_k=5, verbose=True).retrieve(
        "red lamp"
    )
    assert capsys.readouterr().out.count("Merging") == len(found) == 1


def test_the_context_has_the_facts_first_and_then_the_passages() -> None:
    found = PropositionRecursiveRetriever(*build("dense"), similarity_top_k=2).retrieve(
        "blue lamp number 7"
    )
    facts, *passages = PropositionContextPostprocessor(budget=None).postprocess_nodes(found)
    assert facts.node.get_content().splitlines()[0] == "- The blue lamp number 7 hangs in hall 7."
    assert [hit.node.node_id for hit in passages] == [hit.node.node_id for hit in found]


def test_facts_fit_into_their_budget_and_none_is_there_twice() -> None:
    found = PropositionRecursiveRetriever(*build("dense"), similarity_top_k=20).retrieve(
        "lamp boots"
    )
    facts = [fact.unit.text for fact in choose_facts(rank_facts(found), 50)]
    assert 30 < sum(map(count_words, facts)) <= 50
    assert len(facts) == len(set(facts))


@pytest.mark.parametrize(
    ("text", "words"),
    [("one two", 2), ("don't 3.5", 2), ("雨が降った。", 2.5), ("GIを8勝", 3), ("", 0)],
)
def test_words_are_counted_in_both_languages(text: str, words: float) -> None:
    assert count_words(text) == words
