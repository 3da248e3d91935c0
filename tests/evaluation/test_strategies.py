"""The strategies that come with the pack."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.schema import Document, NodeWithScore

from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.evaluation import KeptLLM
from llama_pack_densex.evaluation.datasets import EvaluationSet
from llama_pack_densex.evaluation.strategies import built_in_strategies, resolve_strategies
from llama_pack_densex.evaluation.strategy import Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.node_parsers.metadata import MATCHED_KEY
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from tests.embedding import TrigramEmbedding
from tests.evaluation.comparing import small_set
from tests.evaluation.judges import openai
from tests.openai_server import OpenAIServer

NAMES = list(built_in_strategies())
SEARCHING = [name for name in NAMES if not name.startswith(("densex-sentences", "densex-rank"))]


class AskingSentences(SentencePropositionizer):
    """Sentences, with a question for each passage."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return self.propositionize(passages)

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [
            replace(one, questions=(f"What of {one.texts[0]}?",))
            for one in super().propositionize(passages)
        ]


def corpus(language: str = "en", **models: Any) -> Corpus:
    given = {"embed_model": TrigramEmbedding(), "propositionizer": AskingSentences(), **models}
    return Corpus(small_set(language), 20, **given)


def retrieved(name: str, question: str, over: Corpus | None = None) -> list[NodeWithScore]:
    return built_in_strategies()[name].on(over or corpus()).retriever.retrieve(question)


def texts(nodes: list[NodeWithScore]) -> list[str]:
    return [node.node.get_content() for node in nodes]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_described(name: str) -> None:
    assert built_in_strategies()[name].description.endswith(".")


@pytest.mark.parametrize("name", SEARCHING)
@pytest.mark.parametrize("language", ["en", "ja"])
def test_each_finds_something(name: str, language: str) -> None:
    question = small_set(language).questions[0].text
    assert retrieved(name, question, corpus(language))


def test_they_leave_the_global_settings_alone() -> None:
    for name in SEARCHING:
        retrieved(name, "Who opened the Humber Bridge?")
    assert (Settings._llm, Settings._embed_model, Settings._node_parser) == (None, None, None)


def test_ours_come_first_in_both_modes_with_and_without_bm25_and_llm() -> None:
    ours = [name for name in NAMES if name.startswith("densex")]
    assert NAMES[: len(ours)] == ours
    assert set(ours) == {
        "densex", "densex-dense", "densex-auto-merging", "densex-auto-merging-dense", "densex-sentences",
        "densex-sentences-dense", "densex-sentences-auto-merging", "densex-sentences-auto-merging-dense",
        "densex-passage-words", "densex-without-questions", "densex-hops", "densex-sentences-hops",
        "densex-chunked", "densex-sentences-chunked",
        "densex-topics", "densex-sentences-topics", "densex-rank", "densex-rank-dense", "densex-rank-words",
    }  # fmt: skip


def test_ours_return_the_datasets_passages() -> None:
    nodes = retrieved("densex", "Who opened the Humber Bridge?")
    assert set(texts(nodes)) <= {passage.text for passage in corpus().passages}
    assert nodes[0].node.metadata[MATCHED_KEY]


def test_a_ranking_embeds_its_documents_once_for_all_questions() -> None:
    model = TrigramEmbedding()
    built = built_in_strategies()["densex-rank"].on(corpus(embed_model=model))
    for question in small_set().questions:
        assert built.retriever.retrieve(question.text)
    assert model.embedded == len(small_set().documents)


def test_chunked_ours_cut_the_articles_themselves() -> None:
    nodes = retrieved("densex-chunked", "Who opened the Humber Bridge?")
    assert texts(nodes)[0] == next(
        document.text for document in corpus().documents if document.id_ == "Bridges"
    )


@pytest.mark.parametrize(("language", "added"), [("en", "Wuthering."), ("ja", "嵐が丘。")])
def test_passages_are_found_by_their_own_words_alone_where_that_is_compared(
    language: str, added: str
) -> None:
    class Reworded(Propositionizer):
        async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
            return [PropositionSet((f"{passage.text} {added}",)) for passage in passages]

        def fingerprint_data(self) -> dict[str, Any]:
            return {}

    over = corpus(language, embed_model=None, propositionizer=Reworded())
    assert retrieved("densex", added, over)
    assert not retrieved("densex-passage-words", added, over)


def test_sentence_propositions_make_the_variants_without_llm_needless() -> None:
    with pytest.raises(StrategyUnavailable, match="sentences"):
        retrieved("densex-sentences", "Who?")
    assert retrieved(
        "densex-sentences", "Who opened the Humber Bridge?", corpus(propositionizer=None)
    )


def test_dense_x_returns_chunks_for_propositions() -> None:
    nodes = retrieved("dense-x", "Who opened the Humber Bridge?")
    assert set(texts(nodes)) == {document.text for document in corpus().documents}


def test_sentence_window_reads_the_neighbours_of_a_sentence() -> None:
    strategy = built_in_strategies()["sentence-window"]
    nodes = strategy.on(corpus()).retriever.retrieve("Queen Elizabeth opened that bridge in 1981.")[
        :1
    ]
    assert texts(nodes)[0].strip() == "Queen Elizabeth opened that bridge in 1981."
    for postprocessor in strategy.node_postprocessors:
        nodes = postprocessor.postprocess_nodes(nodes)
    assert "Humber Bridge was the longest" in texts(nodes)[0]


def test_contextual_headers_are_title_and_headings_without_an_llm() -> None:
    text = "# Harbour\n\n## Gates\n\nThey were painted in 1901.\n\n## Cranes\n\nThey were painted in 1902."
    dataset = small_set()
    document = Document(id_="Harbour", text=text, metadata={"title": "Ōarai"})
    places = [(text.index("They"), text.index("\n\n## Cranes")), (text.rindex("They"), len(text))]
    passages = {**dataset.passages, "Harbour": places}
    with_it = replace(dataset, documents=[*dataset.documents, document], passages=passages)
    over = Corpus(with_it, 20, TrigramEmbedding())
    (first, *_) = retrieved("contextual", "Harbour cranes of Ōarai", over)
    assert first.node.get_content() == "They were painted in 1902."
    assert first.node.metadata["context"] == "Ōarai, Harbour, Cranes"


@pytest.mark.parametrize(
    "thoughts", ["<think>A mill.</think>\n", "A mill.\n</think>\n\n", "[THINK]A mill.[/THINK]"]
)
def test_contextual_headers_are_without_the_thoughts_of_the_llm(thoughts: str) -> None:
    with OpenAIServer(lambda body: f"{thoughts}Of the harbour.") as server:
        over = Corpus(small_set(), 20, TrigramEmbedding(), header_llm=KeptLLM(openai(server)))
        headers = {
            found.node.metadata["context"]
            for found in retrieved("contextual", "Who opened it?", over)
        }
    assert headers == {"Of the harbour."}


def test_a_repeated_chunk_gets_the_headings_of_each_of_its_places() -> None:
    passage = "They were painted in 1901."
    text = f"# Harbour\n\n## Gates\n\n{passage}\n\n## Cranes\n\n{passage}"
    spans = [(start, start + len(passage)) for start in (text.index(passage), text.rindex(passage))]
    dataset = EvaluationSet(
        "harbour", "en", [Document(id_="Harbour", text=text)], [], {"Harbour": spans}
    )
    over = Corpus(dataset, 20, TrigramEmbedding())
    found = {
        node.node.metadata["context"]
        for node in retrieved("contextual", "When were they painted?", over)
    }
    assert found == {"Harbour, Gates", "Harbour, Cranes"}


def test_bm25_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_index.retrievers.bm25", None)
    with pytest.raises(ImportError, match=r"llama-pack-densex\[evaluation\]"):
        retrieved("bm25", "Who?")


def test_strategies_are_chosen_by_name_or_given() -> None:
    own = Strategy("own", lambda corpus: built_in_strategies()["vector"].on(corpus))
    assert [strategy.name for strategy in resolve_strategies(["bm25", own])] == ["bm25", "own"]
    assert [strategy.name for strategy in resolve_strategies(None)] == [
        name for name in NAMES if not name.startswith("densex-rank")
    ]


@pytest.mark.parametrize("given", [{"name": " "}, {"name": "x", "context_k": 0}])
def test_a_strategy_has_a_name_and_a_positive_number(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|context_k"):
        Strategy(build=lambda corpus: built_in_strategies()["vector"].on(corpus), **given)


def test_none_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no strategies"):
        resolve_strategies([])


@pytest.mark.parametrize("name", ["paper-sentences", "paper-propositions"])
def test_the_papers_units_are_the_same_of_equal_hits_in_every_run(name: str) -> None:
    text = "".join(f"The gate was painted. {number} harbours are there. " for number in range(40))
    over = Corpus(
        EvaluationSet("gates", "en", [Document(id_="gates", text=text)], []),
        1,
        TrigramEmbedding(),
        AskingSentences(),
    )
    found = {
        tuple(hit.node.start_char_idx for hit in retrieved(name, "Painted gate", over))
        for _ in range(6)
    }
    assert len(found) == 1


def test_dense_x_takes_the_same_of_equal_hits_in_every_run() -> None:
    names = ("Oarai", "Nakaminato", "Hitachi", "Kujihama", "Naka", "Isohama", "Hiraiso", "Kawajiri")
    documents = [
        Document(id_=name, text=f"The gate was painted. {name} is a harbour.") for name in names
    ]
    over = Corpus(
        EvaluationSet("gates", "en", documents, []),
        20,
        TrigramEmbedding(),
        SentencePropositionizer(),
    )
    taken = set()
    for _ in range(6):
        read = built_in_strategies()["dense-x"].on(over).context_retriever
        assert read is not None
        taken.add(frozenset(texts(read.retrieve("The gate was painted."))))
    assert len(taken) == 1
