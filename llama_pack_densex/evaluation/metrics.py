"""Metrics of rankings and of retrieved texts, each a value a question.

Whatever concerns ranks is computed by ir-measures (TREC's own code behind it); what is here decides what counts as a
hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llama_pack_densex.evaluation.data import Place, Question
from llama_pack_densex.evaluation.extras import require
from llama_pack_densex.evaluation.normalise import contains_answer


@dataclass(frozen=True)
class Scores:
    """What metrics say of each question.

    Args:
        values: Metric name to question id to value. A question that has no value for a metric, because its reader
            failed, is not there: it counts neither as a zero nor as a success.
    """

    values: Mapping[str, Mapping[str, float]]

    def means(self) -> dict[str, float]:
        """The mean of each metric that has any value."""
        return {name: fmean(values.values()) for name, values in self.values.items() if values}

    def __or__(self, other: Scores) -> Scores:
        return Scores({**self.values, **other.values})


def rank_metrics(
    relevance: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
    names: Sequence[str] = ("recall@1", "recall@5", "recall@20", "mrr@10", "ndcg@10"),
) -> Scores:
    """Score rankings of ids against relevance labels, with ir-measures.

    Args:
        relevance: Question id to id to label, above 0 for what is relevant. All of these questions are scored.
        rankings: Question id to ids, best first. An id counts once, where it first stands; a question without a
            ranking, or with an empty one, scores 0.
        names: Any of `hit@k`, `recall@k`, `precision@k`, `mrr@k`, `map@k` and `ndcg@k`. `recall@k` is the share of
            a question's relevant ids that is among the first k, `hit@k` whether there is one.

    Raises:
        ValueError: A name is none of these.
        ImportError: ir-measures is not installed.
    """
    measures = {name: _measure(name) for name in names}
    labels = {question: dict(labelled) for question, labelled in relevance.items() if labelled}
    run = {
        question: {item: float(-rank) for rank, item in enumerate(dict.fromkeys(rankings.get(question, ())))}
        for question in labels
    }
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(relevance, 0.0) for name in names}
    if labels:
        library = require("ir_measures", "ir-measures", "scoring rankings")
        names_of = {str(measure): name for name, measure in measures.items()}
        found = {question: ranked for question, ranked in run.items() if ranked}
        for result in library.iter_calc(list(measures.values()), labels, found):
            values[names_of[str(result.measure)]][result.query_id] = float(result.value)
    return Scores(values)


def answer_recall(
    questions: Iterable[Question],
    texts: Mapping[str, Sequence[str]],
    ks: Sequence[int] = (1, 5, 20),
    language: str = "en",
    *,
    whole_words: bool = False,
) -> Scores:
    """Say of each question whether one of its first k texts holds an answer: `answer_recall@k` (the paper's recall@k).

    Args:
        questions: The questions; those without answers are left out.
        texts: Question id to the texts of the retrieved units, best first.
        ks: The numbers of texts.
        language: "en", "ja", ...
        whole_words: What `contains_answer` takes.
    """
    hits = {
        question.id: [
            contains_answer(text, question.answers, language, whole_words=whole_words)
            for text in texts.get(question.id, ())[: max(ks, default=0)]
        ]
        for question in questions
        if question.answers
    }
    return _hits_within(hits, ks, "answer_recall")


def gold_recall(
    questions: Iterable[Question], places: Mapping[str, Sequence[Place]], ks: Sequence[int] = (1, 5, 20)
) -> Scores:
    """Say of each question whether one of its first k units comes from the gold passage: `gold_recall@k`.

    Units of any size can be compared: one counts when at least half of it, or half of the gold passage, is in both.
    Where a question has no span or a unit has none, the document decides.

    Args:
        questions: The questions; those without a document are left out.
        places: Question id to where the retrieved units stand, best first.
        ks: The numbers of units.
    """
    hits = {
        question.id: [is_gold(question, place) for place in places.get(question.id, ())[: max(ks, default=0)]]
        for question in questions
        if question.document_id
    }
    return _hits_within(hits, ks, "gold_recall")


def is_gold(question: Question, place: Place) -> bool:
    """Say whether a unit comes from a question's gold passage; see `gold_recall`."""
    if place.document_id != question.document_id or not question.document_id:
        return False
    if question.span is None or place.span is None:
        return True
    (start, end), (gold_start, gold_end) = place.span, question.span
    shared = min(end, gold_end) - max(start, gold_start)
    return shared > 0 and 2 * shared >= min(end - start, gold_end - gold_start)


_NAME = re.compile(r"(hit|recall|precision|mrr|map|ndcg)@([1-9]\d*)")
_MEASURES = {"hit": "Success", "recall": "R", "precision": "P", "mrr": "RR", "map": "AP", "ndcg": "nDCG"}


def _measure(name: str) -> object:
    found = _NAME.fullmatch(name)
    if found is None:
        known = ", ".join(f"{kind}@k" for kind in _MEASURES)
        raise ValueError(f"there is no metric {name!r}: use any of {known}, with a number for k")
    library = require("ir_measures", "ir-measures", "scoring rankings")
    return getattr(library, _MEASURES[found[1]]) @ int(found[2])


def _hits_within(hits: Mapping[str, Sequence[bool]], ks: Sequence[int], name: str) -> Scores:
    places = {question: [str(place) for place in range(len(found))] for question, found in hits.items()}
    relevance = {
        question: {place: 1 for place, hit in zip(places[question], found, strict=True) if hit}
        for question, found in hits.items()
    }
    scores = rank_metrics(relevance, places, [f"hit@{k}" for k in ks])
    return Scores({f"{name}@{k}": scores.values[f"hit@{k}"] for k in ks})
