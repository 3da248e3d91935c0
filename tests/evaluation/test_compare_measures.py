"""From what was found to metrics."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.evaluation.datasets import EvaluationSet
from llama_pack_densex.evaluation.evidence import Retrieval
from llama_pack_densex.evaluation.metrics import LENGTHS, METRICS, kind_of, within_passages
from llama_pack_densex.evaluation.metrics import score as score_to
from llama_pack_densex.evaluation.runs import Scores
from tests.conftest import ROOT
from tests.evaluation.comparing import small_set
from tests.evaluation.test_metrics import means_of

NOTHING = Retrieval(None, None, None, "", "")
FOUND = replace(
    NOTHING,
    rank=1,
    gold_rank=2,
    unit_ranks=(3, 4),
    results=20,
    in_passage=20,
    words=120,
    in_context=True,
)


def score(
    dataset: EvaluationSet, found: dict[str, Retrieval], in_passages: bool = True, depth: int = 20
) -> Scores:
    return score_to(dataset, found, in_passages, depth)


def findings(*made: Retrieval) -> dict[str, Retrieval]:
    given = [*made, *[NOTHING] * (4 - len(made))]
    return {
        question.id: finding for question, finding in zip(small_set().questions, given, strict=True)
    }


def test_a_question_counts_from_the_rank_of_its_first_right_passage() -> None:
    means = means_of(score(small_set(), findings(FOUND)))
    assert (means["recall@1"], means["gold@1"], means["gold@5"]) == (0.25, 0.0, 0.25)
    assert means["mrr@10"] == pytest.approx(0.5 / 4)
    assert means["ndcg@10"] == pytest.approx(1 / log2(3) / 4)


def test_units_over_several_passages_are_ranked_as_they_are_and_get_no_recall() -> None:
    scores = score(small_set(), findings(replace(FOUND, gold_rank=4)), in_passages=False)
    assert "recall@1" not in scores
    assert "gold@1" not in scores
    assert means_of(scores)["mrr@10"] == pytest.approx(0.25 / 4)


def test_a_few_units_over_two_passages_are_still_ranked_as_passages() -> None:
    assert within_passages(findings(replace(FOUND, in_passage=18)))
    assert not within_passages(findings(replace(FOUND, in_passage=10)))


def test_an_answer_counts_from_the_length_at_which_it_is_complete() -> None:
    means = means_of(score(small_set(), findings(FOUND)))
    assert [means[f"answer_recall@{length}"] for length in (0, 100, 150, 500)] == [
        0.0,
        0.0,
        0.25,
        0.25,
    ]
    assert means["answer_recall"] == 0.25


def test_labels_of_documents_decide_where_a_dataset_has_them() -> None:
    dataset = replace(small_set(), relevance={"en0": {"Tides": 1}, "en1": {"Bridges": 1}})
    found = replace(FOUND, documents=("Tides", "Bridges"))
    assert means_of(score(dataset, findings(found, found)))["mrr@10"] == pytest.approx(0.75)


def test_questions_without_answers_or_documents_are_left_out() -> None:
    small = small_set()
    questions = [
        replace(small.questions[0], answers=(), document_id="", span=None),
        *small.questions[1:],
    ]
    scores = score(replace(small, questions=questions), findings(FOUND))
    assert len(scores["recall@1"]) == len(scores["mrr@10"]) == 3


ranks = st.none() | st.integers(1, 40)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(ranks, ranks, st.none() | st.integers(0, 900)), min_size=4, max_size=4))
def test_metrics_stay_in_range_and_grow_with_k_and_length(
    drawn: list[tuple[int | None, int | None, int | None]],
) -> None:
    made = [
        replace(FOUND, rank=answer, gold_rank=gold, words=words) for answer, gold, words in drawn
    ]
    means = means_of(score(small_set(), findings(*made)))
    assert all(0 <= value <= 1 for value in means.values())
    for name in ("recall", "gold"):
        assert means[f"{name}@1"] <= means[f"{name}@5"] <= means[f"{name}@20"]
    curve = [means[f"answer_recall@{length}"] for length in LENGTHS]
    assert curve == sorted(curve)
    assert (
        means["recall@20"] == sum(answer is not None and answer <= 20 for answer, _, _ in drawn) / 4
    )


def test_metrics_of_more_results_than_were_looked_at_are_not_given() -> None:
    assert [
        name for name in score(small_set(), findings(FOUND), depth=5) if name.startswith("recall")
    ] == [
        "recall@1",
        "recall@5",
    ]


def test_labels_of_questions_that_are_not_asked_are_left_out() -> None:
    small = small_set()
    dataset = replace(
        small, questions=small.questions[:1], relevance={"en0": {"Tides": 1}, "other": {"Tides": 1}}
    )
    scores = score(dataset, {"en0": replace(FOUND, documents=("Tides",))})
    assert scores["mrr@10"] == {"en0": 1.0}


def test_every_metric_is_declared() -> None:
    dataset = small_set()
    several_needed = {question.id: {"a": 1, "b": 1} for question in dataset.questions}
    kinds = set()
    for labels in ({}, several_needed):
        kinds |= set(map(kind_of, score(replace(dataset, relevance=labels), findings(FOUND))))
    assert {"gold", "answer_recall", "support"} <= kinds
    assert kinds <= METRICS.keys(), "metrics.METRICS has a row for each metric of score"


def test_every_metric_is_in_the_table_of_the_docs() -> None:
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    table = text.partition("## What is measured")[2].partition("\n\n")[2].partition("\n\n")[0]
    names = re.findall(r"[a-z_0-9]+", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert METRICS.keys() <= set(names)
