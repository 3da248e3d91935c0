from __future__ import annotations

import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.datasets import Question
from llama_pack_densex.evaluation.evidence import Place, is_gold
from llama_pack_densex.evaluation.runs import Scores, rank_metrics

pytestmark = pytest.mark.pure


def means_of(scores: Scores) -> dict[str, float]:
    return {name: fmean(values.values()) for name, values in scores.items()}


QUESTION = Question("q", "Where?", ("France",), "normans", (100, 200))


def test_rank_metrics_have_their_usual_values() -> None:
    scores = rank_metrics({"q": {"a": 1, "b": 1}}, {"q": ["x", "a", "y", "b"]})
    means = means_of(scores)
    assert means["mrr@10"] == 0.5
    assert means["ndcg@10"] == pytest.approx(
        (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    )


def test_a_rank_beyond_k_does_not_count() -> None:
    ranking = [f"x{place}" for place in range(10)] + ["a"]
    assert means_of(rank_metrics({"q": {"a": 1}}, {"q": ranking})) == {
        "mrr@10": 0.0,
        "ndcg@10": 0.0,
    }
    assert means_of(rank_metrics({"q": {"a": 1}}, {"q": ranking}, 11))["mrr@11"] == pytest.approx(
        1 / 11
    )


def test_questions_without_a_ranking_or_a_relevant_document_score_zero() -> None:
    scores = rank_metrics({"found": {"a": 1}, "lost": {"a": 1}, "empty": {"a": 1}, "unlabelled": {}},
                          {"found": ["a"], "empty": [], "unlabelled": ["a"]})  # fmt: skip
    assert scores["ndcg@10"] == {"found": 1.0, "lost": 0.0, "empty": 0.0, "unlabelled": 0.0}


def test_an_id_counts_once_however_often_it_is_returned() -> None:
    means = means_of(rank_metrics({"q": {"a": 1, "b": 1}}, {"q": ["a", "a", "a", "b"]}, 2))
    assert means == {"ndcg@2": pytest.approx(1.0), "mrr@2": 1.0}


@given(
    relevant=st.sets(st.sampled_from("abcdefgh"), min_size=1),
    ranking=st.lists(st.sampled_from("abcdefghxyz"), max_size=20),
)
def test_every_metric_stays_between_zero_and_one(relevant: set[str], ranking: list[str]) -> None:
    scores = rank_metrics({"q": dict.fromkeys(relevant, 1)}, {"q": ranking}, 3)
    assert set(scores) == {"ndcg@3", "mrr@3"}
    assert all(0 <= values["q"] <= 1 + 1e-9 for values in scores.values())


@pytest.mark.parametrize(
    ("span", "gold"),
    [
        ((100, 200), True),
        ((120, 140), True),
        ((0, 1000), True),
        ((190, 400), False),
        ((130, 400), True),
        ((200, 300), False),
        (None, True),
    ],
)
def test_a_unit_is_gold_when_half_of_it_or_of_the_gold_passage_is_in_both(
    span: tuple[int, int] | None, gold: bool
) -> None:
    assert is_gold(QUESTION, Place("normans", span)) is gold
    assert not is_gold(QUESTION, Place("another", span))
