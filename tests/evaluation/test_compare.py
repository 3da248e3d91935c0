"""Comparing strategies over the same documents and questions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, SentencePropositionizer, Strategy, compare
from llama_pack_densex.evaluation.datasets import EvaluationSet, Question
from llama_pack_densex.evaluation.report import Report, StrategyResult
from llama_pack_densex.evaluation.strategy import Corpus
from llama_pack_densex.propositionizers.base import Propositionizer
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding
from tests.evaluation.comparing import small_set
from tests.openai_server import OpenAIServer, Reply


def run(strategies: Any = None, language: str = "en", **options: Any) -> Report:
    options = {
        "embed_model": TrigramEmbedding(),
        "propositionizer": SentencePropositionizer(),
        **options,
    }
    return compare(small_set(language), strategies=strategies, **options)


def result_of(report: Report, name: str) -> StrategyResult:
    return next(strategy for strategy in report.strategies if strategy.name == name)


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.slow_cases("en")
def test_every_strategy_runs_or_says_why_not(language: str) -> None:
    report = run(language=language)
    assert {
        "densex",
        "vector",
        "vector-256",
        "sentence-window",
        "auto-merging",
        "bm25",
        "hybrid",
        "contextual",
    } <= {strategy.name for strategy in report.strategies}
    assert {left.name for left in report.skipped} == {
        name for name in (s.name for s in report.skipped) if name.startswith("densex-sentences")
    } | {"densex-without-questions"}
    for strategy in report.strategies:
        assert all(value is None or 0 <= value <= 1 for value in strategy.metrics.values()), (
            strategy.name
        )
        assert strategy.cost.units > 0
        assert strategy.cost.tokens > 0
        assert strategy.cost.context_words > 0


@pytest.mark.parametrize("language", ["en", "ja"])
def test_without_an_embedding_model_ours_search_by_words(language: str) -> None:
    report = run(["densex", "densex-dense", "bm25", "vector"], language, embed_model="none")
    assert [strategy.name for strategy in report.strategies] == ["densex", "bm25"]
    assert {left.name for left in report.skipped} == {"densex-dense", "vector"}
    assert all("embedding model" in left.reason for left in report.skipped)
    assert result_of(report, "densex").metrics["gold@1"] == 1.0


def test_without_propositions_those_strategies_are_left_out() -> None:
    report = run(["densex", "densex-sentences", "dense-x"], propositionizer=None)
    assert [strategy.name for strategy in report.strategies] == ["densex-sentences"]
    assert {left.name for left in report.skipped} == {"densex", "dense-x"}
    assert "propositions" in report.skipped[0].reason


def test_recall_is_given_where_units_lie_within_passages_only() -> None:
    report = run(["densex", "bm25", "sentence-window", "vector"])
    for name in ("densex", "bm25", "sentence-window"):
        assert result_of(report, name).metrics["recall@1"] is not None, name
    vector = result_of(report, "vector")  # a chunk is a whole article here
    assert vector.metrics["recall@1"] is None
    assert vector.metrics["gold@1"] is None
    assert vector.metrics["answer_recall@100"] is not None


def test_every_strategy_has_every_metric_of_the_run() -> None:
    report = run(["densex", "vector"])
    assert list(result_of(report, "densex").metrics) == list(result_of(report, "vector").metrics)
    assert {f"answer_recall@{length}" for length in range(0, 501, 50)} <= set(
        report.strategies[0].metrics
    )


def test_each_text_is_embedded_once_for_all_strategies() -> None:
    model = TrigramEmbedding()
    run(["vector", "vector-256"], embed_model=model)
    assert model.embedded == 2  # both cut the short articles into one chunk each


def test_a_second_run_with_the_same_folder_embeds_nothing(tmp_path: Path) -> None:
    first, second = TrigramEmbedding(), TrigramEmbedding()
    before = run(["densex", "sentence-window"], embed_model=first, cache_dir=tmp_path)
    after = run(["densex", "sentence-window"], embed_model=second, cache_dir=tmp_path)
    assert first.embedded > 0
    assert second.embedded == 0
    assert [strategy.metrics for strategy in before.strategies] == [
        strategy.metrics for strategy in after.strategies
    ]


def test_a_users_own_strategy_takes_three_lines() -> None:
    def sentences(corpus: Corpus) -> BaseRetriever:
        splitter = SentenceSplitter(chunk_size=32, chunk_overlap=0)
        index = VectorStoreIndex.from_documents(
            corpus.documents, transformations=[splitter], embed_model=corpus.embed_model
        )
        return index.as_retriever(similarity_top_k=corpus.depth)

    report = run(["densex", Strategy("mine", sentences, context_k=2)])
    mine = result_of(report, "mine")
    assert not mine.ours
    assert mine.cost.units == 6
    assert mine.cost.context_k == 2
    assert mine.metrics["answer_recall@100"] == 1.0


def test_a_users_own_strategy_without_the_embedding_model_it_needs_is_left_out() -> None:
    def build(corpus: Corpus) -> BaseRetriever:
        return VectorStoreIndex.from_documents(
            corpus.documents, embed_model=corpus.embed_model
        ).as_retriever()

    report = run(["bm25", Strategy("mine", build)], embed_model="none")
    assert [left.name for left in report.skipped] == ["mine"]


class _Always(BaseRetriever):
    """Returns the same texts for every question."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in self._texts]


def test_a_ready_retriever_can_be_compared() -> None:
    """Its nodes are of documents with other ids: the texts say where they stand."""
    report = run([Strategy("always", _Always("The Akashi Bridge opened in 1998."))])
    ranks = {
        question.id: found.rank
        for question in report.questions
        for found in question.found.values()
    }
    assert ranks == {"en0": None, "en1": None, "en2": 1, "en3": None}
    assert result_of(report, "always").metrics["gold@1"] == 0.25


def test_an_answer_inside_a_word_is_not_found() -> None:
    dataset = replace(
        small_set(), questions=[Question("q", "How many bridges are there?", ("99",))]
    )
    report = compare(
        dataset, strategies=[Strategy("always", _Always("The Akashi Bridge opened in 1998."))]
    )
    assert result_of(report, "always").metrics["recall@1"] == 0.0
    assert result_of(report, "always").metrics["answer_recall"] == 0.0


def test_results_that_are_nowhere_in_the_documents_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = run(
        [Strategy("summary", _Always("A bridge was opened by Queen Elizabeth, in short."))]
    )
    assert "summary: 4 of its 4 results are nowhere in the documents" in caplog.text
    assert result_of(report, "summary").metrics["ndcg@10"] == 0.0
    assert result_of(report, "summary").metrics["answer_recall"] == 0.25


def test_documents_without_text_are_no_results(caplog: pytest.LogCaptureFixture) -> None:
    documents = [
        Document(text=text, id_=str(number))
        for number, text in enumerate((*small_texts(), "", " \n"))
    ]
    questions = [
        {"question": "Who opened the Humber Bridge?", "answers": "Queen Elizabeth", "document": "0"}
    ]
    report = compare(
        documents, questions, ["densex-sentences", "bm25", "hybrid"], embed_model=TrigramEmbedding()
    )
    assert [strategy.name for strategy in report.strategies] == [
        "densex-sentences",
        "bm25",
        "hybrid",
    ]
    assert "nowhere in the documents" not in caplog.text


def test_ours_is_tested_against_every_other_strategy() -> None:
    report = run(["vector-256", "densex", "bm25"])
    tested = {(compared.first, compared.second) for compared in report.comparisons}
    assert tested == {("densex", "vector-256"), ("densex", "bm25")}
    assert {compared.metric for compared in report.comparisons if compared.second == "bm25"} >= {
        "recall@1", "recall@5", "answer_recall@100", "answer_recall@200", "answer_recall@500",
    }  # fmt: skip
    assert all(
        0 < compared.p_value <= 1 and compared.questions == 4 for compared in report.comparisons
    )


def test_ours_is_compared_at_the_length_of_the_others_context() -> None:
    report = run(["densex", "auto-merging"])
    (equal,) = report.equal_context
    other = result_of(report, "auto-merging")
    assert (equal.first, equal.second) == ("densex", "auto-merging")
    assert equal.words == other.cost.context_words
    assert equal.second_recall == other.metrics["answer_recall"]


def test_japanese_lengths_count_characters() -> None:
    report = run(["densex"], "ja", embed_model="none")
    assert report.dataset.length_unit == "characters"
    assert report.strategies[0].metrics["answer_recall@0"] == 0.0
    assert report.strategies[0].metrics["answer_recall@100"] == 1.0


def test_documents_and_questions_of_ones_own() -> None:
    documents = [Document(text=text, id_=f"page {n}") for n, text in enumerate(small_texts())]
    questions = [
        {"question": "Who opened the Humber Bridge?", "answers": "Queen Elizabeth"},
        {"question": "When did the Akashi Bridge open?", "answers": ["1998"], "document": "page 1"},
    ]
    report = compare(documents, questions, ["densex-sentences", "bm25"], embed_model="none")
    assert [question.document for question in report.questions] == ["", "page 1"]
    assert result_of(report, "densex-sentences").metrics["answer_recall@500"] == 1.0


def test_long_documents_without_known_passages_are_cut() -> None:
    text = " ".join(
        f"Gate {number} of the harbour was painted in {1900 + number}." for number in range(200)
    )
    report = compare(
        [Document(text=text, id_="gates")],
        [{"question": "When was gate 150 painted?", "answers": ["2050"], "document": "gates"}],
        ["densex-sentences"],
        embed_model="none",
    )
    assert report.dataset.passages > 5
    assert report.strategies[0].cost.units > 200


@pytest.mark.parametrize(
    ("documents", "questions", "message"),
    [
        ([Document(text="a")], None, "questions"),
        ([], [{"question": "Who?", "answers": ["me"]}], "no documents"),
        ([Document(text="a", id_="x")], [], "expected questions with answers, and there are none"),
        ([Document(text="a", id_="x")], [{"question": "Who?"}], "question 1"),
        ([Document(text="a", id_="x")], [{"question": "Who?", "document": "y"}], "'y'"),
        (
            [Document(text="a", id_="x")],
            [{"question": "Who?", "answers": None}],
            "question 1: expected 'answers'",
        ),
        (
            [Document(text="a", id_="x")],
            [{"question": "When?", "answers": 1889}],
            "question 1: 'answers' must be",
        ),
        (
            [Document(text="a", id_="x"), Document(text="b", id_="x")],
            [{"question": "W?", "answers": "a"}],
            "'x' occurs",
        ),
    ],
)
def test_what_is_missing_is_named(documents: Any, questions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(documents, questions, ["bm25"], embed_model="none")


def test_unknown_strategies_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"no strategy 'vectors': use any of densex, .*vector"):
        run(["vectors"])


def test_two_strategies_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two strategies named 'bm25'"):
        run(["bm25", Strategy("bm25", _Always("x"))])


def test_a_strategy_that_builds_no_retriever_is_refused() -> None:
    with pytest.raises(TypeError, match="'odd' must return a LlamaIndex retriever"):
        run([Strategy("odd", lambda corpus: "nothing")])  # type: ignore[arg-type, return-value]


def test_metrics_beyond_the_depth_are_not_given() -> None:
    metrics = run(["densex-sentences", "bm25"], propositionizer=None, depth=2).strategies[0].metrics
    assert {"recall@1", "mrr@2"} <= set(metrics)
    assert not {"recall@5", "recall@20", "gold@5", "gold@20", "mrr@10", "ndcg@10"} & set(metrics)


def test_labels_of_questions_that_are_not_asked_do_no_harm() -> None:
    small = small_set()
    dataset = replace(
        small, questions=small.questions[:2], relevance={"en0": {"Tides": 1}, "en3": {"Bridges": 1}}
    )
    report = compare(dataset, strategies=["bm25"], embed_model="none")
    assert report.strategies[0].metrics["mrr@10"] == 1.0


def test_a_language_can_be_chosen() -> None:
    report = compare(DATA, DATA / "questions.jsonl", ["bm25"], language="ja", embed_model="none")
    assert report.dataset.language == "ja"


def test_a_strategy_that_fails_is_left_out_and_the_others_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(corpus: Corpus) -> BaseRetriever:
        raise RuntimeError("the server is down, sk-very-secret-key")

    class Late(_Always):
        """Fails at the third question."""

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            if "Akashi" in query_bundle.query_str:
                raise TimeoutError
            return super()._retrieve(query_bundle)

    report = run([Strategy("first", fail), "bm25", Strategy("late", Late("The Moon"))])
    assert [strategy.name for strategy in report.strategies] == ["bm25"]
    first, late = report.skipped
    assert (first.name, late.name, late.reason) == ("first", "late", "it failed: TimeoutError")
    assert first.reason.startswith("it failed: RuntimeError: the server is down")
    assert "very-secret" not in report.to_json()
    assert "first failed (RuntimeError)" in caplog.text


def test_where_every_strategy_fails_the_error_is_raised() -> None:
    def fail(corpus: Corpus) -> BaseRetriever:
        raise RuntimeError("the server is down")

    with pytest.raises(RuntimeError, match="the server is down"):
        run([Strategy("only", fail), "dense-x"], propositionizer=None)


def with_candidates(*candidates: str) -> EvaluationSet:
    """A set whose questions come with the documents to rank, as JQaRA's."""
    documents = [
        Document(text=passage.text, id_=passage.id_) for passage in small_set().passage_documents()
    ]
    questions = [
        Question(
            question.id,
            question.text,
            question.answers,
            f"{question.document_id}/{place}",
            None,
            candidates,
        )
        for question, place in zip(small_set().questions, (1, 2, 0, 1), strict=True)
    ]
    relevance = {question.id: {question.document_id: 1} for question in questions}
    return EvaluationSet("ranked", "en", documents, questions, relevance=relevance)


def test_candidates_are_ranked_by_words_by_embeddings_and_by_both_without_an_index() -> None:
    dataset = with_candidates("Bridges/0", "Bridges/1", "Tides/1", "Tides/2")
    report = compare(dataset, embed_model=TrigramEmbedding())
    names = [strategy.name for strategy in report.strategies]
    assert names == ["densex-rank", "densex-rank-dense", "densex-rank-words"]
    for strategy in report.strategies:
        assert strategy.metrics["mrr@10"] == strategy.metrics["ndcg@10"] == 1.0, strategy.name
        assert strategy.cost.units == 4
    (by_words,) = compare(dataset, strategies=["densex-rank-words"], embed_model="none").strategies
    assert by_words.metrics["mrr@10"] == 1.0


def test_each_strategy_that_is_named_ranks_the_candidates_of_each_question() -> None:
    dataset = with_candidates("Bridges/0", "Bridges/1", "Tides/1", "Tides/2")
    report = compare(
        dataset, None, ["densex-sentences", "vector", "bm25"], embed_model=TrigramEmbedding()
    )
    for strategy in report.strategies:
        assert strategy.metrics["mrr@10"] == strategy.metrics["ndcg@10"] == 1.0, strategy.name
    assert [strategy.cost.units for strategy in report.strategies] == [12, 4, 4]
    (by_words,) = compare(dataset, strategies=["densex-sentences"], embed_model="none").strategies
    assert by_words.metrics["mrr@10"] == 1.0


def test_no_document_but_a_questions_candidates_is_ranked() -> None:
    report = compare(
        with_candidates("Tides/0", "Tides/1"),
        None,
        ["densex-sentences", "bm25"],
        embed_model="none",
    )
    found = [each for question in report.questions for each in question.found.values()]
    # "" where no word of a question is in any of them
    assert {each.source.partition(",")[0] for each in found} <= {"Tides/0", "Tides/1", ""}
    assert report.strategies[0].metrics["mrr@10"] == 0.25


def test_questions_of_equal_text_have_candidates_of_their_own() -> None:
    dataset = with_candidates("Tides/0", "Tides/1")
    first = dataset.questions[0]
    twin = replace(first, id="twin", candidates=("Bridges/0", "Bridges/1"))
    dataset = replace(
        dataset,
        questions=[first, twin],
        relevance={first.id: {"Tides/0": 1}, "twin": {"Bridges/0": 1}},
    )
    report = compare(dataset, strategies=["vector"], embed_model=TrigramEmbedding())
    found = [question.found["vector"].source.partition("/")[0] for question in report.questions]
    assert found == ["Tides", "Bridges"]


def test_a_users_own_ranking_is_compared() -> None:
    class Backwards(BaseRetriever):
        def __init__(self, documents: list[Document]) -> None:
            self._documents = documents
            super().__init__()

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [
                NodeWithScore(node=document, score=0.0) for document in reversed(self._documents)
            ]

    mine = Strategy("mine", lambda corpus: Backwards(corpus.documents))
    report = compare(with_candidates("Tides/2", "Tides/1"), strategies=[mine], embed_model="none")
    assert report.strategies[0].metrics["mrr@10"] == (1 + 1 / 2) / 4


def test_a_dataset_of_relevance_labels_alone_is_ranked_by_document() -> None:
    """BEIR's questions have no answers and no passages."""
    documents = [Document(text=text, id_=f"d{number}") for number, text in enumerate(small_texts())]
    questions = [Question("q", "Who opened the Humber Bridge?", ())]
    dataset = EvaluationSet(
        "labels", "en", documents, questions, relevance={"q": {"d1": 2, "d0": 0}}
    )
    report = compare(dataset, None, ["densex-sentences", "bm25"], embed_model="none")
    for strategy in report.strategies:
        assert (strategy.metrics["mrr@10"], strategy.metrics["ndcg@10"]) == (1.0, 1.0)
        assert "answer_recall@100" not in strategy.metrics
    assert report.to_html()


ARGUMENTS = {
    "en": [
        (
            "Zoos protect rare animals and teach children.",
            "Zoos lock animals up and teach children nothing.",
        ),
        ("Homework trains pupils to work alone.", "Homework only trains pupils to copy."),
        ("Bicycle lanes make streets safer.", "Bicycle lanes make streets narrower."),
    ],
    "ja": [
        ("動物園は珍しい動物を守る。", "動物園は動物を閉じ込める。"),
        ("宿題は生徒の自習を助ける。", "宿題は生徒に写すことを教える。"),
        ("自転車道は道路を安全にする。", "自転車道は道路を狭くする。"),
    ],
}


def arguments(language: str, relevance: bool = True) -> EvaluationSet:
    """Each question is a document too, under the same id, and no answer to itself, as in ArguAna."""
    pairs = ARGUMENTS[language]
    documents = [Document(text=text, id_=f"a{number}") for number, (text, _) in enumerate(pairs)]
    documents += [Document(text=text, id_=f"b{number}") for number, (_, text) in enumerate(pairs)]
    questions = [
        Question(f"a{number}", text, (), f"b{number}") for number, (text, _) in enumerate(pairs)
    ]
    labels = {question.id: {question.document_id: 1} for question in questions}
    return EvaluationSet(
        "arguments", language, documents, questions, relevance=labels if relevance else {}
    )


@pytest.mark.parametrize("language", ["en", "ja"])
def test_no_strategy_finds_the_question_itself(language: str) -> None:
    options: dict[str, Any] = {
        "embed_model": TrigramEmbedding(),
        "propositionizer": SentencePropositionizer(),
    }
    report = compare(arguments(language), **options)
    assert len(report.strategies) > 10
    for question in report.questions:
        for name, finding in question.found.items():
            assert not finding.source.startswith(question.id), name
    for name in ("densex", "vector", "auto-merging", "dense-x"):
        metrics = result_of(report, name).metrics
        assert (metrics["gold@1"], metrics["mrr@10"], metrics["ndcg@10"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("relevance", [True, False])
def test_the_question_itself_is_ranked_where_that_is_wanted(relevance: bool) -> None:
    dataset = arguments("en", relevance)
    for ignore, expected in ((True, 1.0), (False, 0.5)):
        report = compare(dataset, None, ["bm25"], embed_model="none", ignore_identical_ids=ignore)
        assert report.strategies[0].metrics["mrr@10"] == expected


def test_a_question_and_a_document_of_one_number_are_two_things() -> None:
    """Questions that nobody named are numbered."""
    documents = [
        Document(text=text, id_=str(number)) for number, (text, _) in enumerate(ARGUMENTS["ja"], 1)
    ]
    questions = [{"question": "動物園は何を守る？", "answers": ["珍しい動物"]}]
    report = compare(documents, questions, ["densex-sentences"], embed_model="none")
    assert report.strategies[0].metrics["answer_recall"] == 1.0


def test_rankings_are_as_deep_without_the_question_itself() -> None:
    report = compare(arguments("en"), None, ["bm25"], embed_model="none", depth=1)
    assert report.strategies[0].metrics["gold@1"] == 1.0
    assert report.settings.depth == 1


def test_a_labelled_document_that_is_gone_counts_as_not_found() -> None:
    dataset = arguments("en")
    there = [document for document in dataset.documents if document.id_ != "b0"]
    report = compare(replace(dataset, documents=there), None, ["bm25"], embed_model="none")
    for metric in ("gold@1", "mrr@10", "ndcg@10"):
        assert report.strategies[0].metrics[metric] == pytest.approx(2 / 3)


def test_each_of_several_documents_that_are_labelled_as_relevant_is_a_right_one() -> None:
    documents = [Document(text=text, id_=f"d{number}") for number, text in enumerate(small_texts())]
    question = Question("q", "Who opened the Humber Bridge?", (), "d0")
    dataset = EvaluationSet(
        "labels", "en", documents, [question], relevance={"q": {"d0": 1, "d1": 1, "d2": 0}}
    )
    report = compare(dataset, None, ["densex-sentences"], embed_model="none")
    assert report.strategies[0].metrics["gold@1"] == report.strategies[0].metrics["mrr@10"] == 1.0


def test_a_reader_llm_is_scored_on_the_beginning_of_each_context() -> None:
    def read(body: dict[str, Any]) -> str:
        return "The Nendrum." if "oldest tidal mill stand" in json.dumps(body) else "the Moon"

    with OpenAIServer(read) as server:
        report = run(["densex", "bm25"], reader_llm=reader(server))
    for strategy in report.strategies:
        assert strategy.metrics["em@100"] == 0.25
        assert strategy.metrics["f1@500"] == 0.25
    assert report.settings.reader_llm == "gpt-4o-mini"
    asked = [json.dumps(request.body) for request in server.requests]
    assert (
        len(asked) == len(set(asked)) < 2 * 3 * 4
    )  # where two strategies, or two lengths, read the same, it is asked once


def test_a_question_that_the_reader_failed_at_is_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filtered = Reply("no", status=400, code="content_filter")

    def read(body: dict[str, Any]) -> Reply | str:
        return "Nendrum" if "oldest tidal mill stand" in json.dumps(body) else filtered

    with OpenAIServer(read) as server:
        report = run(["bm25"], reader_llm=reader(server))
    assert report.strategies[0].metrics["em@100"] == 1.0
    assert report.strategies[0].failed["f1@500"] == 3
    assert "bm25: not counted, because they failed: 3 of 4 items of em@100, " in caplog.text


def test_a_reader_that_is_disturbed_is_asked_again_and_its_answers_are_kept(tmp_path: Path) -> None:
    replies = iter([Reply("busy", status=500)])
    with OpenAIServer(lambda body: next(replies, "Nendrum")) as server:
        first = run(["bm25"], reader_llm=reader(server), cache_dir=tmp_path)
        asked = len(server.requests)
        second = run(["bm25"], reader_llm=reader(server), cache_dir=tmp_path)
        assert len(server.requests) == asked
    assert first.strategies[0].metrics["em@100"] == second.strategies[0].metrics["em@100"] == 0.25


def test_the_propositions_of_a_comparison_are_paid_for_once(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: '["The oldest tidal mill stood in Nendrum."]') as server:
        for _ in range(2):
            run(["densex"], propositionizer=LLMPropositionizer(reader(server)), cache_dir=tmp_path)
            assert len(server.requests) == 6


def test_no_strategy_asks_for_propositions_that_another_one_had() -> None:
    with OpenAIServer(lambda body: '["The oldest tidal mill stood in Nendrum."]') as server:
        asking = LLMPropositionizer(reader(server))
        report = run(["densex", "densex-dense", "densex-passage-words"], propositionizer=asking)
        assert len(server.requests) == 6
    assert [each.cost.llm_calls for each in report.strategies] == [6, 6, 6]
    assert [each.cost.llm_tokens > 0 for each in report.strategies] == [True, False, False]


def test_without_their_questions_propositions_are_asked_for_once() -> None:
    reply = '{"propositions": ["The mill stood in Nendrum."], "questions": ["Where did the mill stand?"]}'
    with OpenAIServer(lambda body: reply) as server:
        asking = LLMPropositionizer(reader(server), questions=True)
        (found,) = run(["densex-without-questions"], propositionizer=asking).strategies
    assert found.cost.llm_calls == len(server.requests) == 6


def test_what_a_strategy_failed_with_says_what_to_do_about_the_key() -> None:
    refused = Reply("no", status=401, code="invalid_api_key")
    with OpenAIServer(lambda body: refused) as server:
        report = run(["bm25", "densex"], propositionizer=LLMPropositionizer(reader(server)))
    assert "check the key (OpenAI: OPENAI_API_KEY)" in report.skipped[0].reason


def test_a_reader_stops_at_its_budget_and_what_was_found_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer(lambda body: "Nendrum") as server:
        report = run(["bm25"], reader_llm=reader(server), max_cost=0.0)
    assert server.requests == []
    assert report.strategies[0].metrics["recall@1"] is not None
    assert "em@100" not in report.strategies[0].metrics
    assert "the LLM stopped: The budget does not allow" in caplog.text


@pytest.mark.parametrize(
    ("language", "filler", "said", "answer"),
    [("en", "Nothing of note is told here. ", "The mill stood in Nendrum.", "Nendrum"),
     ("ja", "ここには特に何も書かれていない。", "水車は根戸村に立っていた。", "根戸村")],
)  # fmt: skip
def test_what_is_shown_of_a_passage_has_the_answer_and_the_unit_that_found_it(
    language: str, filler: str, said: str, answer: str
) -> None:
    documents = [Document(text=f"{40 * filler}{said} {40 * filler}", id_="d")]
    dataset = EvaluationSet(
        "own", language, documents, [Question("q", said, (answer,), "d")], {"d": [(0, 10_000)]}
    )
    report = compare(dataset, None, ["densex-sentences", "bm25"], embed_model="none")
    ours, other = (report.questions[0].found[name] for name in ("densex-sentences", "bm25"))
    assert report.dataset.gold == "document"
    assert ours.unit.strip() == said
    assert other.unit == ""
    for text in (ours.text, other.text):
        assert answer in text
        assert text[0] == text[-1] == "…"
        assert len(text) <= 300


def test_it_tells_which_strategy_of_how_many_is_at_work() -> None:
    told: list[tuple[str, int, int]] = []
    run(["densex", "bm25"], progress=lambda *step: told.append(step))
    assert ("densex (1 of 2)", 4, 4) in told
    assert ("bm25 (2 of 2)", 4, 4) in told
    assert all(done <= total for _, done, total in told)


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(
        ValueError, match=r"max_cost needs the price of .*: leave out max_cost \(--max-cost\)"
    ):
        run(["bm25"], reader_llm=MockLLM(), max_cost=1.0)


def test_an_llm_writes_the_headers_of_contextual_retrieval() -> None:
    def situate(body: dict[str, Any]) -> str:
        return (
            "On mills that the sea drives"
            if "<chunk>A tidal mill" in json.dumps(body)
            else "Something else"
        )

    dataset = replace(
        small_set(), questions=[Question("q", "Which mills does the sea drive?", ("Nendrum",))]
    )
    with OpenAIServer(situate) as server:
        written = compare(
            dataset, None, ["contextual"], embed_model=TrigramEmbedding(), llm=reader(server)
        )
    plain = compare(dataset, None, ["contextual"], embed_model=TrigramEmbedding())
    assert len(server.requests) == 6
    assert (written.settings.llm, plain.settings.llm) == ("gpt-4o-mini", None)
    assert written.questions[0].found["contextual"].rank == 1
    spent, unspent = written.strategies[0].cost, plain.strategies[0].cost
    assert (spent.llm_calls, unspent.llm_calls, unspent.llm_tokens, unspent.llm_dollars) == (
        6,
        0,
        0,
        0.0,
    )
    assert spent.llm_tokens > 0
    assert spent.llm_dollars
    assert written.strategies[0].cost.tokens > plain.strategies[0].cost.tokens


def test_what_an_unpriced_llm_was_asked_leaves_the_others_their_price() -> None:
    openai_like = pytest.importorskip(
        "llama_index.llms.openai_like", reason="the class of unpriced models"
    )
    with OpenAIServer(lambda body: '["The tide rises.", "The sea drives a mill."]') as server:
        own = openai_like.OpenAILike(
            model="own-model", api_base=server.url, api_key="none", is_chat_model=True
        )
        options = {"propositionizer": LLMPropositionizer(llm=own), "llm": reader(server)}
        unpriced, priced, without = run(["densex", "contextual", "bm25"], **options).strategies
    assert (unpriced.cost.llm_dollars, without.cost.llm_dollars) == (None, 0.0)
    assert priced.cost.llm_dollars


def reader(server: OpenAIServer) -> OpenAI:
    return OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)


def test_the_same_run_gives_the_same_report() -> None:
    def stable(report: Report) -> Any:
        given = json.loads(report.to_json())
        for strategy in given["strategies"]:
            strategy["cost"] |= {"index_seconds": 0, "query_ms": 0}
        return given

    assert stable(run(["densex", "bm25"])) == stable(run(["densex", "bm25"]))


def test_figures_do_not_depend_on_where_the_files_are(tmp_path: Path) -> None:
    questions = [
        {
            "question": "How far does the water rise?",
            "answers": ["16 metres"],
            "document": "tides.txt",
        }
    ]
    found = []
    for folder in (tmp_path / "here", tmp_path / "a water of which the metres rise far" / "there"):
        folder.mkdir(parents=True)
        (folder / "tides.txt").write_text(
            "The water rises by 16 metres in the Bay of Fundy.\n" * 40, encoding="utf-8"
        )
        (folder / "piers.txt").write_text("A pier stands in the water.\n" * 40, encoding="utf-8")
        given = json.loads(
            compare(folder, questions, ["vector-256"], embed_model=TrigramEmbedding()).to_json()
        )
        for strategy in given["strategies"]:
            strategy["cost"] |= {"index_seconds": 0, "query_ms": 0}
        found.append(given)
    assert found[0] == found[1]


def test_propositions_come_from_what_was_passed() -> None:
    class Shouting(SentencePropositionizer):
        def propositionize(self, passages: Any) -> Any:
            asked.extend(passage.text for passage in passages)
            return super().propositionize(passages)

    asked: list[str] = []
    propositionizer: Propositionizer = Shouting()
    run(["densex"], propositionizer=propositionizer)
    assert len(asked) == 6


def small_texts() -> list[str]:
    return [document.text for document in small_set().documents]


def test_a_folder_can_be_asked_a_list_of_questions(tmp_path: Path) -> None:
    (tmp_path / "tides.txt").write_text(
        "The water rises by 16 metres in the Bay of Fundy.", encoding="utf-8"
    )
    questions = [
        {
            "question": "How far does the water rise?",
            "answers": ["16 metres"],
            "document": "tides.txt",
        }
    ]
    report = compare(tmp_path, questions, ["densex-sentences"], embed_model="none")
    assert result_of(report, "densex-sentences").metrics["gold@1"] == 1.0


def test_a_report_shows_itself_in_a_line() -> None:
    assert repr(run(["densex-sentences"])).startswith("Report('")
    assert len(repr(run(["densex-sentences"]))) < 200
