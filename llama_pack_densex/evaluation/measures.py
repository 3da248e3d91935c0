"""From findings to metrics, and from metrics to comparisons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_pack_densex.evaluation.data import EvaluationSet
from llama_pack_densex.evaluation.findings import Finding, Ranks
from llama_pack_densex.evaluation.metrics import Scores, rank_metrics

CUTS = (1, 5, 20)
LENGTHS = tuple(range(0, 501, 50))
"""The numbers of words (characters) that the paper's figure 4 covers."""
RANKED = ("mrr@10", "ndcg@10")

_MAPPED = 0.9  # of the results lie within a passage: then they are ranked as passages
_FIRST = "first right one"


def within_passages(findings: Mapping[str, Finding]) -> bool:
    """Whether a strategy's units lie within the dataset's passages, so that passages can be counted."""
    results = sum(finding.results for finding in findings.values())
    return sum(finding.in_passage for finding in findings.values()) >= _MAPPED * results


def score(dataset: EvaluationSet, findings: Mapping[str, Finding]) -> Scores:
    """All metrics of a strategy that can be given.

    Args:
        dataset: The questions, with what is known about their answers.
        findings: Question id to what was found.
    """
    mapped = within_passages(findings)
    answered = [question.id for question in dataset.questions if question.answers]
    placed = [question.id for question in dataset.questions if question.document_id]
    ranks = {key: finding.passages if mapped else finding.units for key, finding in findings.items()}
    scores = _answers(answered, findings)
    if mapped:
        scores = (
            _hits({key: ranks[key].answer for key in answered}, "recall")
            | _hits({key: ranks[key].gold for key in placed}, "gold")
            | scores
        )
    return scores | _ranked(dataset, placed, ranks, findings)


def recall_within(findings: Mapping[str, Finding], questions: Sequence[str], length: float) -> dict[str, float]:
    """Say of each question whether an answer is complete within a length of context."""
    return {key: float((words := findings[key].words) is not None and words <= length) for key in questions}


def recall_in_context(findings: Mapping[str, Finding], questions: Sequence[str]) -> dict[str, float]:
    """Say of each question whether an answer is in the default context."""
    return {key: float(findings[key].context_answer is not None) for key in questions}


def _answers(questions: Sequence[str], findings: Mapping[str, Finding]) -> Scores:
    curve = {f"answer_recall@{length}": recall_within(findings, questions, length) for length in LENGTHS}
    return Scores({**curve, "answer_recall": recall_in_context(findings, questions)} if questions else {})


def _hits(ranks: Mapping[str, int | None], name: str) -> Scores:
    if not ranks:
        return Scores({})
    scores = rank_metrics({key: {_FIRST: 1} for key in ranks}, _rankings(ranks), [f"hit@{k}" for k in CUTS])
    return Scores({f"{name}@{k}": scores.values[f"hit@{k}"] for k in CUTS})


def _ranked(
    dataset: EvaluationSet, placed: Sequence[str], ranks: Mapping[str, Ranks], findings: Mapping[str, Finding]
) -> Scores:
    """MRR and nDCG: by relevance labels of documents where there are such, else of the gold passage."""
    if dataset.relevance:
        return rank_metrics(dataset.relevance, {key: findings[key].documents for key in dataset.relevance}, RANKED)
    if not placed:
        return Scores({})
    return rank_metrics({key: {_FIRST: 1} for key in placed}, _rankings({k: ranks[k].gold for k in placed}), RANKED)


def _rankings(ranks: Mapping[str, int | None]) -> dict[str, list[str]]:
    """Rankings in which the first right result stands at its rank; further right ones are the same passage again."""
    return {
        key: [] if rank is None else [*(f"{place}" for place in range(1, rank)), _FIRST] for key, rank in ranks.items()
    }
