"""From what strategies found to a report. Pure, but for the versions of installed packages."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM

from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.findings import Finding
from llama_pack_densex.evaluation.measures import LENGTHS, recall_in_context, recall_within, score, within_passages
from llama_pack_densex.evaluation.metrics import Scores
from llama_pack_densex.evaluation.normalise import WITHOUT_SPACES
from llama_pack_densex.evaluation.observe import Observed
from llama_pack_densex.evaluation.report import (
    Comparison,
    DatasetInfo,
    EqualContext,
    Found,
    QuestionResult,
    Report,
    Settings,
    Skipped,
    StrategyResult,
)
from llama_pack_densex.evaluation.significance import bootstrap_interval, randomisation_test
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.node_parsers.passages import title_of
from llama_pack_densex.propositionizers.base import Propositionizer

COMPARED = ("recall@1", "recall@5", "gold@1", "answer_recall@100", "answer_recall@200", "answer_recall@500")
"""The metrics whose differences are tested."""

_OURS = "densex"
_CONFIDENCE = 0.95
_PACKAGES = (
    "llama-pack-densex", "llama-index-core", "llama-index-retrievers-bm25", "bm25s", "lancedb", "ir-measures", "numpy",
)  # fmt: skip


@dataclass(frozen=True)
class Chance:
    """How differences and intervals are worked out.

    Args:
        permutations: Of the randomisation test.
        resamples: Of the bootstrap.
        seed: Of both.
    """

    permutations: int
    resamples: int
    seed: int


@dataclass(frozen=True)
class ModelNames:
    """What a report calls the models; None for those that there were not."""

    embed_model: str | None
    propositionizer: str | None
    llm: str | None
    reader_llm: str | None


def describe_models(
    embed_model: BaseEmbedding | None, propositionizer: Propositionizer | None, llm: LLM | None, reader_llm: LLM | None
) -> ModelNames:
    """The names of the models."""
    return ModelNames(
        embed_model_identity(embed_model) if embed_model is not None else None,
        propositionizer.class_name() if propositionizer is not None else None,
        llm.metadata.model_name if llm is not None else None,
        reader_llm.metadata.model_name if reader_llm is not None else None,
    )


def make_report(
    dataset: EvaluationSet,
    observed: Sequence[Observed],
    skipped: Sequence[Skipped],
    read: Mapping[str, Scores],
    models: ModelNames,
    depth: int,
    chance: Chance,
) -> Report:
    """The report of a comparison.

    Args:
        dataset: What was asked about.
        observed: What each strategy found.
        skipped: The strategies that were left out.
        read: By strategy, what a reader LLM's answers scored.
        models: The models' names.
        depth: How many distinct results rankings were looked at.
        chance: How differences and intervals are worked out.
    """
    scores = {
        found.strategy.name: score(dataset, found.findings) | read.get(found.strategy.name, Scores({}))
        for found in observed
    }
    names = list(dict.fromkeys(name for made in scores.values() for name in made.values))
    settings = Settings(
        embed_model=models.embed_model,
        propositionizer=models.propositionizer,
        llm=models.llm,
        reader_llm=models.reader_llm,
        depth=depth,
        lengths=list(LENGTHS),
        confidence=_CONFIDENCE,
        resamples=chance.resamples,
        permutations=chance.permutations,
        seed=chance.seed,
        versions=dict(_versions()),
    )
    return Report(
        dataset=_describe(dataset),
        settings=settings,
        strategies=[_result(found, scores[found.strategy.name], names, chance) for found in observed],
        skipped=list(skipped),
        comparisons=list(_comparisons(scores, chance)),
        equal_context=list(_equal_contexts(dataset, observed, chance)),
        questions=_questions(dataset, observed),
    )


def _result(found: Observed, scores: Scores, names: Sequence[str], chance: Chance) -> StrategyResult:
    intervals = {
        name: bootstrap_interval(list(values.values()), _CONFIDENCE, chance.resamples, chance.seed)
        for name, values in scores.values.items()
        if values
    }
    return StrategyResult(
        name=found.strategy.name,
        description=found.strategy.description,
        ours=_is_ours(found.strategy.name),
        metrics={name: intervals[name].mean if name in intervals else None for name in names},
        intervals={name: (interval.low, interval.high) for name, interval in intervals.items()},
        cost=found.cost,
    )


def _comparisons(scores: Mapping[str, Scores], chance: Chance) -> Iterator[Comparison]:
    """The first of ours against every other strategy, or the first of all where none of ours was run."""
    first = next((name for name in scores if _is_ours(name)), next(iter(scores), ""))
    first = _OURS if _OURS in scores else first
    for metric in COMPARED:
        for second in scores:
            ours, theirs = scores[first].values.get(metric), scores[second].values.get(metric)
            if second != first and ours and theirs:
                tested = randomisation_test(ours, theirs, chance.permutations, chance.seed)
                yield Comparison(metric, first, second, tested.mean, tested.p_value, tested.questions)


def _equal_contexts(dataset: EvaluationSet, observed: Sequence[Observed], chance: Chance) -> Iterator[EqualContext]:
    answered = [question.id for question in dataset.questions if question.answers]
    if not answered:
        return
    for ours in observed:
        for other in observed:
            if not _is_ours(ours.strategy.name) or _is_ours(other.strategy.name):
                continue
            words = other.cost.context_words
            first = recall_within(ours.findings, answered, words)
            second = recall_in_context(other.findings, answered)
            tested = randomisation_test(first, second, chance.permutations, chance.seed)
            yield EqualContext(
                ours.strategy.name,
                other.strategy.name,
                words,
                sum(first.values()) / len(answered),
                sum(second.values()) / len(answered),
                tested.mean,
                tested.p_value,
                tested.questions,
            )


def _questions(dataset: EvaluationSet, observed: Sequence[Observed]) -> list[QuestionResult]:
    titles = {document.id_: title_of(document) or document.id_ for document in dataset.documents}
    mapped = {found.strategy.name: within_passages(found.findings) for found in observed}
    return [
        QuestionResult(
            question.id,
            question.text,
            list(question.answers),
            titles.get(question.document_id, ""),
            {
                found.strategy.name: _found(question, found.findings[question.id], mapped[found.strategy.name])
                for found in observed
            },
        )
        for question in dataset.questions
    ]


def _found(question: Question, finding: Finding, mapped: bool) -> Found:
    ranks = finding.passages if mapped else finding.units
    return Found(ranks.answer, ranks.gold, finding.words, finding.text, finding.source)


def _is_ours(name: str) -> bool:
    return name == _OURS or name.startswith(f"{_OURS}-")


def _describe(dataset: EvaluationSet) -> DatasetInfo:
    return DatasetInfo(
        name=dataset.name,
        language=dataset.language,
        documents=len(dataset.documents),
        passages=sum(len(dataset.passages.get(document.id_, [()])) for document in dataset.documents),
        questions=len(dataset.questions),
        length_unit="characters" if dataset.language in WITHOUT_SPACES else "words",
        hash=_hash(dataset),
    )


def _hash(dataset: EvaluationSet) -> str:
    digest = hashlib.sha256()
    for document in dataset.documents:
        digest.update(json.dumps([document.id_, document.text, dataset.passages.get(document.id_)]).encode())
    for question in dataset.questions:
        digest.update(json.dumps([question.id, question.text, question.answers, question.span]).encode())
    return digest.hexdigest()


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue
    yield "python", platform.python_version()
