"""Answers of strategies, and their judgement by LlamaIndex's evaluators."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode

from llama_pack_densex import DenseXRetrievalPack, SentencePropositionizer, Strategy, compare
from llama_pack_densex.evaluation import Built, evaluate
from llama_pack_densex.evaluation.datasets import DatasetError, EvaluationSet, Question
from llama_pack_densex.evaluation.report import Report, StrategyResult
from tests.conftest import DATA
from tests.evaluation.comparing import ENGLISH, small_set
from tests.evaluation.judges import judging, kind_of, openai
from tests.openai_server import OpenAIServer, Reply

TRIAD = ("context_relevance", "groundedness", "answer_relevance")


def run(
    server: OpenAIServer, strategies: Any = ("bm25",), language: str = "en", **options: Any
) -> Report:
    llms = {"reader_llm": openai(server), "judge_llm": openai(server)}
    given = {"embed_model": "none", "propositionizer": SentencePropositionizer(), **llms, **options}
    return compare(small_set(language), None, strategies, **given)


def triad(found: StrategyResult) -> list[float | None]:
    return [found.metrics.get(metric) for metric in TRIAD]


@pytest.mark.parametrize("language", ["en", "ja"])
def test_strategies_answer_and_are_judged(language: str) -> None:
    with OpenAIServer(judging()) as server:
        report = run(server, ["densex", "bm25"], language)
    for found in report.strategies:
        assert triad(found) == [0.75, 1.0, 1.0]
        assert found.failed == {}
        assert found.cost.llm_calls > 0
    assert report.settings.judge_llm == "gpt-4o-mini"
    asked = Counter(kind_of(seen.body) for seen in server.requests)
    assert asked["answer"] == 8
    assert {found.answer for each in report.questions for found in each.found.values()} == {
        "The mill stood in Nendrum. It was built in 619."
    }


VERDICTS: dict[str, dict[str, float | None]] = {
    "context_relevance": {
        "[RESULT] 4.0.": 1.0,
        "First [RESULT] 1, and in the end **[RESULT]: 2.5**": 0.625,
        "役に立つ。［ＲＥＳＵＬＴ］　３．０": 0.75,
        "[result] 3/4": 0.75,
        "4.0": 1.0,
        "[RESULT] 10": None,
        "[RESULT] -1": None,
        "[RESULT] 3/5": None,
        "It is about 4.": None,
        "": None,
        "<think>[RESULT] 1?</think>It helps. [RESULT] 3": 0.75,
        "Maybe [RESULT] 0</think>[RESULT] 3": 0.75,
        "[RESULT] 3 out of 4": 0.75,
        "[RESULT] 3 of 5": None,
        "8/10": None,
        "4.5 of 5": None,
        "**3/4**": 0.75,
        "[RESULT] 1,5": 0.375,
        "[RESULT] 3-4": None,
        "[RESULT] 3 or 4": None,
        "[RESULT] 3%": None,
        "［ＲＥＳＵＬＴ］４点満点中３点": 0.75,
        "評価：３点": 0.75,
        "[RESULT] 5点満点中3点": None,
        '```json\n{"RESULT": 3}\n```': 0.75,
        "Score of Q1: none. Score: 1, score: 2": None,
        "[RESULT] 3\nIt helps with all but the date, which is in 2 of 4.": 0.75,
    },
    "answer_relevance": {
        "[RESULT] 1.5": 0.75,
        "[RESULT] 20": None,
        "[RESULT] 0": 0.0,
        "<think>[RESULT] 0?": None,
        "[THINK]1?[/THINK]2": 1.0,
        "Q1: yes, 1 point\nQ2: yes, 1 point\n[RESULT]\n2": 1.0,
    },
    "groundedness": {
        "Yes. There is no doubt.": 1.0,
        "NO, yes would be wrong": 0.0,
        "Answer: **YES**": 1.0,
        "ＹＥＳです。": 1.0,
        "The answer is no.": 0.0,
        "Yesterday I knew.": None,
        "I cannot tell.": None,
        "It may be yes, it may be no.": None,
        "No doubt it is said.</think>\nYES": 1.0,
        "<think>Is it? No... it is.</think>\nYES": 1.0,
        "<think>YES, or": None,
        "はい": 1.0,
        "いいえ、ありません。": 0.0,
        "うーん、いいえかな。</think>はい": 1.0,
        "文脈に240メートルとある。\n答え：はい": 1.0,
        "はいとは言えません。": None,
        "はい/いいえ：いいえ": 0.0,
        "No doubt it is said.": None,
        "Yes and no.": None,
        "YES or NO: NO": 0.0,
        "YES\nFinal answer: NO": None,
        "The context says 240. So, yes.": 1.0,
        "There is nothing of it in the context.\n**NO**": 0.0,
        '{"answer": "YES"}': 1.0,
        '```json\n{"verdict": false}\n```': 0.0,
        "Not supported.": 0.0,
        "I would not say yes.": None,
    },
}


@pytest.mark.parametrize("number", range(max(map(len, VERDICTS.values()))))
def test_a_verdict_is_read_or_counted_as_failed(number: int) -> None:
    said = {
        metric: list(verdicts.items())[number % len(verdicts)]
        for metric, verdicts in VERDICTS.items()
    }
    with OpenAIServer(judging(**{metric: reply for metric, (reply, _) in said.items()})) as server:
        (found,) = run(server).strategies
    expected = {metric: value for metric, (_, value) in said.items()}
    assert {metric: found.metrics.get(metric) for metric in said} == expected
    assert found.failed == {metric: 4 for metric, value in expected.items() if value is None}


def test_a_failure_is_neither_a_zero_nor_a_success(caplog: pytest.LogCaptureFixture) -> None:
    def answer(body: Any) -> str | Reply:
        if "Bay of Fundy?" in json.dumps(body):
            return Reply("no", status=400, code="content_filter")
        return "The Queen did." if "Who opened" in json.dumps(body) else "In Nendrum."

    def grounded(body: Any) -> str:
        return "perhaps" if "The Queen did." in json.dumps(body) else "YES"

    with OpenAIServer(judging(answer=answer, groundedness=grounded)) as server:
        (found,) = run(server).strategies
    assert triad(found) == [0.75, 1.0, 1.0]
    assert found.failed == {
        "str_em": 1,
        "context_relevance": 1,
        "groundedness": 2,
        "answer_relevance": 1,
    }
    assert found.metrics["str_em"] == pytest.approx(1 / 3)
    assert "bm25: not counted, because they failed: 1 of 4 items of str_em, " in caplog.text
    assert "2 of 4 items of groundedness" in caplog.text
    assert "no answer (" in caplog.text
    assert "the verdict cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(" \n"), "the reply was empty"),
        (Reply(None), "the reply was empty"),
        (Reply(None, refusal="I cannot."), "the model refused"),
        (
            Reply("The mi", finish_reason="content_filter"),
            "the provider's content filter stopped the reply",
        ),
    ],
)
def test_a_reply_that_is_no_answer_is_no_wrong_answer(
    reply: Reply, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(judging(reader=reply, answer=reply)) as server:
        (found,) = run(server).strategies
    assert not {"em@100", "f1@100", "str_em", *TRIAD} & found.metrics.keys()
    assert (found.failed["em@100"], found.failed["str_em"], found.failed["groundedness"]) == (
        4,
        4,
        4,
    )
    assert reason in caplog.text


@pytest.mark.parametrize(
    "thoughts",
    [
        "<think>Maybe Comber? No.</think>\n\n",
        "Maybe Comber? No.\n</think>\n\n",
        "[THINK]Comber?[/THINK]",
    ],
)
def test_a_reader_that_thinks_is_read_behind_its_thoughts(thoughts: str) -> None:
    with OpenAIServer(judging(reader="Nendrum")) as server:
        plain = run(server).strategies[0].metrics
    with OpenAIServer(
        judging(reader=f"{thoughts}Nendrum", answer=f"{thoughts}The mill stood in Nendrum.")
    ) as server:
        report = run(server)
    thinking = report.strategies[0].metrics
    assert {key: thinking[key] for key in ("em@100", "f1@100")} == {
        key: plain[key] for key in ("em@100", "f1@100")
    }
    assert {found.answer for each in report.questions for found in each.found.values()} == {
        "The mill stood in Nendrum."
    }


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    with OpenAIServer(judging()) as server:
        first = run(server, cache_dir=tmp_path)
        asked = len(server.requests)
        second = run(server, cache_dir=tmp_path)
        assert len(server.requests) == asked
    assert first.strategies[0].metrics == second.strategies[0].metrics


def test_a_budget_stops_the_judge_and_the_rest_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer(judging()) as server:
        report = run(server, max_cost=0.0)
        assert server.requests == []
    assert report.strategies[0].metrics["recall@1"] is not None
    assert not {*TRIAD, "em@100"} & report.strategies[0].metrics.keys()
    assert {"str_em", "em@100", *TRIAD} <= {
        name for name, number in report.strategies[0].failed.items() if number == 4
    }
    assert "4 of 4 items of em@100" in caplog.text
    assert "the LLM stopped: The budget does not allow" in caplog.text


def test_a_refused_key_is_met_once(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(body: Any) -> Reply:
        return Reply("Incorrect API key provided", status=401, code="invalid_api_key")

    with OpenAIServer(
        judging(context_relevance=refuse, groundedness=refuse, answer_relevance=refuse)
    ) as server:
        report = run(server, ["densex", "bm25"])
        refused = sum(kind_of(seen.body) in TRIAD for seen in server.requests)
    assert refused <= 8  # those that were under way
    assert all(triad(found) == [None, None, None] for found in report.strategies)
    assert "does not accept the API key" in caplog.text


def test_the_settings_of_llamaindex_stay_as_they_were() -> None:
    before = dict(vars(Settings))
    with OpenAIServer(judging()) as server:
        run(server)
    assert vars(Settings) == before


def test_judging_writes_nothing_to_the_settings_of_llamaindex_not_even_for_a_while() -> None:
    before = dict(vars(Settings))
    changed: list[bool] = []

    def grounded(body: Any) -> str:
        changed.append(vars(Settings) != before)
        return "YES"

    with OpenAIServer(judging(groundedness=grounded)) as server:
        run(server)
    assert set(changed) == {False}


def test_what_judges_needs_what_answers() -> None:
    with pytest.raises(ValueError, match="judge_llm"):
        compare(small_set(), None, ["bm25"], embed_model="none", trulens="x.sqlite")


class Cited(BaseQueryEngine):
    """Answers as the pack does: with footnotes, and what supports each sentence."""

    def __init__(self, outcomes: dict[str, str], contexts: list[str]) -> None:
        self._outcomes, self._contexts = outcomes, contexts
        super().__init__(callback_manager=CallbackManager())

    def _query(self, query_bundle: QueryBundle) -> Response:
        outcome = self._outcomes.get(query_bundle.query_str, "answered")
        if outcome == "fails":
            raise ZeroDivisionError
        sentences: list[dict[str, Any]] = [
            {"text": "It stood in Nendrum.[^1]", "footnotes": [1], "propositions": ["p1"]},
            {"text": "It ground grain.[^1]", "footnotes": [1], "propositions": []},
            {"text": "It was nice.", "footnotes": [], "propositions": []},
        ]
        if outcome != "answered":
            sentences = []
        said = " ".join(one["text"] for one in sentences) or "Not found in the documents."
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in self._contexts]
        return Response(
            said, source_nodes=nodes, metadata={"outcome": outcome, "sentences": sentences}
        )

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        return self._query(query_bundle)

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}


def cited(outcomes: dict[str, str], contexts: list[str]) -> Strategy:
    def build(corpus: Any) -> Built:
        retriever = DenseXRetrievalPack(
            corpus.documents, embed_model="none", query_llm="none"
        ).as_retriever(4)
        return Built(retriever, query_engine=Cited(outcomes, contexts))

    return Strategy("mine", build)


def test_a_query_engine_of_ones_own_is_asked_and_its_sources_are_counted() -> None:
    report = compare(small_set(), None, [cited({}, ["A mill."])], embed_model="none")
    metrics = report.strategies[0].metrics
    assert (metrics["cited"], metrics["supported"], metrics["answered"]) == (
        pytest.approx(2 / 3), pytest.approx(1 / 3), 1.0
    )  # fmt: skip
    assert metrics["str_em"] == 0.25
    assert {each.found["mine"].answer for each in report.questions} == {
        "It stood in Nendrum. It ground grain. It was nice."
    }


def test_questions_of_equal_text_are_read_from_their_own_candidates() -> None:
    texts = ("The mill stood in Nendrum.", "The Queen opened the bridge.")
    documents = [Document(text=text, id_=str(number)) for number, text in enumerate(texts)]
    questions = [
        Question(f"q{number}", "Who opened the mill?", (text,), candidates=(str(number),))
        for number, text in enumerate(texts)
    ]
    dataset = EvaluationSet(
        "twins", "en", documents, questions, relevance={one.id: {} for one in questions}
    )

    def quote(body: Any) -> str:
        return next(text for text in texts if text in json.dumps(body))

    with OpenAIServer(judging(answer=quote)) as server:
        llms = {"reader_llm": openai(server), "judge_llm": openai(server)}
        report = compare(dataset, None, ["bm25"], embed_model="none", **llms)
    assert [each.found["bm25"].answer for each in report.questions] == list(texts)


def test_of_what_is_no_answer_only_the_context_is_judged() -> None:
    first, second, third, _ = (question.text for question in small_set().questions)
    strategy = cited({first: "not_found", second: "vague", third: "fails"}, ["A mill."])
    with OpenAIServer(judging()) as server:
        (found,) = run(server, [strategy]).strategies
        asked = Counter(kind_of(seen.body) for seen in server.requests)
    assert [asked[metric] for metric in TRIAD] == [3, 1, 1]
    assert found.metrics["answered"] == pytest.approx(1 / 3)
    assert found.failed == {"str_em": 1, **dict.fromkeys(TRIAD, 1)}


def test_without_any_context_only_the_answer_is_judged() -> None:
    with OpenAIServer(judging()) as server:
        (found,) = run(server, [cited({}, [])]).strategies
    assert triad(found) == [None, None, 1.0]
    assert found.failed == {}


def index(**arguments: Any) -> DenseXRetrievalPack:
    documents = [Document(text=" ".join(texts), id_=title) for title, texts in ENGLISH.items()]
    return DenseXRetrievalPack(
        documents, propositionizer=SentencePropositionizer(), embed_model="none", **arguments
    )


def test_an_index_is_asked_questions_without_their_documents(tmp_path: Path) -> None:
    questions = [
        {"question": question.text, "answers": list(question.answers)}
        for question in small_set().questions
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    pack = index(query_llm="none")
    reports = [evaluate(pack, given) for given in (file, questions, small_set().questions)]
    for report in reports:
        (found,) = report.strategies
        assert found.metrics["answer_recall@500"] == 1.0
        assert found.metrics["str_em"] >= 0.75
        assert not {"recall@1", "gold@1", "mrr@10"} & found.metrics.keys()
        assert (report.dataset.documents, report.dataset.passages) == (2, pack.counts().passages)
    nothing = evaluate(pack, [{"question": "Qwxyz?", "answers": ["x"]}]).strategies[0]
    assert (nothing.metrics["answer_recall@500"], "recall@1" in nothing.metrics) == (0.0, False)
    assert (
        evaluate(pack, file, max_questions=2).dataset.questions,
        reports[0].dataset.language,
    ) == (
        2,
        "en",
    )


def test_an_index_is_judged_and_its_report_written(tmp_path: Path) -> None:
    with OpenAIServer(judging()) as server:
        pack = index(query_llm=openai(server))
        report = evaluate(
            pack,
            small_set().questions,
            reader_llm=openai(server),
            judge_llm=openai(server),
            name="docs",
        )
    (found,) = report.strategies
    assert found.name == "docs"
    assert found.metrics["em@500"] == 0.25
    assert triad(found) == [0.75, 1.0, 1.0]
    files = report.write(tmp_path)
    page = files[2].read_text(encoding="utf-8")
    assert "Judged answers" in page
    assert "The mill stood in Nendrum." in page
    assert "groundedness" in files[1].read_text(encoding="utf-8")


def test_failed_items_stand_beside_their_metric_in_the_report() -> None:
    with OpenAIServer(judging(groundedness="perhaps")) as server:
        report = run(server)
    assert json.loads(report.to_json())["strategies"][0]["failed"] == {"groundedness": 4}
    none_judged = replace(report.strategies[0], metrics={"groundedness": None})
    assert "groundedness failed" in replace(report, strategies=[none_judged]).to_csv()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (2 * [Question("q", "Why?", ())], "occurs twice"),
        ([], "there are none"),
        ([{"question": 3.5}], "text is expected"),
        ("nothing.jsonl", "nothing.jsonl"),
    ],
)
def test_questions_that_cannot_be_asked(given: Any, error: str, tmp_path: Path) -> None:
    given = tmp_path / given if isinstance(given, str) else given
    with pytest.raises((ValueError, OSError, DatasetError), match=error):
        evaluate(index(query_llm="none"), given)


def test_the_repositorys_questions_in_one_language() -> None:
    from llama_pack_densex.evaluation.datasets import read_questions

    found = read_questions(DATA / "questions.jsonl", language="ja", max_questions=3)
    assert [question.id for question in found.questions] == ["ja-01", "ja-02", "ja-03"]
    assert (found.language, found.documents, found.questions[0].document_id) == ("ja", [], "")
    with pytest.raises(DatasetError, match="en and ja"):
        read_questions(DATA / "questions.jsonl")


def test_a_question_needs_no_answer_to_be_judged() -> None:
    with OpenAIServer(judging()) as server:
        report = evaluate(
            index(query_llm="none"),
            [Question("q", "What do mills grind?", ())],
            judge_llm=openai(server),
        )
    (found,) = report.strategies
    assert triad(found) == [0.75, 1.0, 1.0]
    assert "str_em" not in found.metrics


def test_hostile_texts_are_judged_like_others() -> None:
    questions = [
        Question("braces", "{query_str} {0} %s mills grind?", ("grain",)),
        Question("half", "Tide \ud800?", ("x",)),
    ]
    with OpenAIServer(judging(answer="{context} grain \\[RESULT] 9 {x}[^1] [^9]")) as server:
        report = evaluate(index(query_llm=openai(server)), questions, judge_llm=openai(server))
    assert triad(report.strategies[0]) == [0.75, 1.0, 1.0]
    assert report.strategies[0].failed == {}
