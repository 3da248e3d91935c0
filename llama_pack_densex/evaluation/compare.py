"""Strategies side by side over the same documents, questions and embeddings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import Document

from llama_pack_densex.evaluation.cached_embedding import CachedEmbedding, EmbeddingFile
from llama_pack_densex.evaluation.corpus import Models, StrategyUnavailable
from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.findings import Observer
from llama_pack_densex.evaluation.inputs import to_dataset
from llama_pack_densex.evaluation.metrics import Scores
from llama_pack_densex.evaluation.observe import Observed, Progress, Runner
from llama_pack_densex.evaluation.reader import READER_LENGTHS, read_answers
from llama_pack_densex.evaluation.report import Report, Skipped
from llama_pack_densex.evaluation.reporting import Chance, describe_models, make_report
from llama_pack_densex.evaluation.strategies import resolve_strategies
from llama_pack_densex.evaluation.strategy import Strategy
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.propositionizers.base import Propositionizer

__all__ = ["compare"]

logger = logging.getLogger(__name__)

_CACHE = "embeddings.sqlite"


def compare(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: str | Path | Sequence[Question | Mapping[str, Any]] | None = None,
    strategies: Sequence[str | Strategy] | None = None,
    *,
    embed_model: BaseEmbedding | str | None = None,
    propositionizer: Propositionizer | None = None,
    llm: LLM | None = None,
    reader_llm: LLM | None = None,
    context_k: int | None = None,
    depth: int = 20,
    cache_dir: str | Path | None = None,
    permutations: int = 10_000,
    resamples: int = 1_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Run strategies over the same documents and questions, and say which finds more.

    Relevance is judged by answer strings and by where in the documents a unit stands, never by node ids, so that
    strategies that cut documents differently can be compared.

    Args:
        documents: A dataset (an `EvaluationSet`, or the path of one in a format that `read_dataset` knows); or
            documents, or their folder, with `questions` about them.
        questions: Questions about the documents: a file; or `Question`s; or mappings with "question", "answers" and,
            where it is known, "document" (an id). None where `documents` is a dataset.
        strategies: Names of those that come with the pack, and `Strategy` objects of your own; None means all that
            come with the pack.
        embed_model: What `DenseXRetrievalPack` takes; "none" to compare without one. Each text is embedded once.
        propositionizer: Where LLM propositions come from (`RecordedPropositionizer`, `LLMPropositionizer`). Without it
            those strategies are left out that need them. Nothing is asked of an LLM that was not passed.
        llm: Writes the headers of contextual retrieval; None means that they are made of title and headings.
        reader_llm: Answers from the first 100, 200 and 500 words of each strategy's context, for exact match and F1;
            None means that these are not measured.
        context_k: How many retrieved nodes are read, in place of the strategies' own defaults. Retrievers that decide
            themselves (auto-merging) keep to theirs.
        depth: How many distinct results the metrics of rankings look at.
        cache_dir: A folder to keep embeddings in for the next comparison.
        permutations: Of the randomisation test.
        resamples: Of the bootstrap for confidence intervals.
        seed: Of both.
        progress: Called while it runs.

    Raises:
        DatasetError: The dataset cannot be read.
        ValueError: There is nothing to compare, or an argument is out of range; the message says which.
        ImportError: The extra `evaluation` is not installed.

    Examples:
        ```python
        report = compare("squad.json", strategies=["densex-sentences", "sentence-window"], embed_model="minilm")
        report.write("comparison")  # report.json, report.csv, report.html
        ```
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}: at least 1 is needed")
    if context_k is not None and context_k < 1:
        raise ValueError(f"context_k is {context_k}: it must be at least 1, or None for the strategies' own")
    chosen = resolve_strategies(strategies)
    dataset = to_dataset(documents, questions)
    tell = progress if progress is not None else _silent
    model, _ = resolve_embed_model(embed_model)
    with _embeddings(model, cache_dir, tell) as cached:
        if cached is not None:
            cached.embed_queries([question.text for question in dataset.questions])
        observer = Observer(dataset, READER_LENGTHS if reader_llm is not None else ())
        runner = Runner(dataset, Models(cached, propositionizer, llm), depth, observer, tell, context_k)
        observed, skipped = _run(runner, chosen)
    read: dict[str, Scores] = {}
    if reader_llm is not None:
        for found in observed:
            read[found.strategy.name] = read_answers(reader_llm, dataset, found.findings, found.strategy.name, tell)
    tell("Testing differences", 0, 1)
    models = describe_models(model, propositionizer, llm, reader_llm)
    return make_report(dataset, observed, skipped, read, models, depth, Chance(permutations, resamples, seed))


def _run(runner: Runner, strategies: Sequence[Strategy]) -> tuple[list[Observed], list[Skipped]]:
    observed: list[Observed] = []
    skipped: list[Skipped] = []
    for strategy in strategies:
        try:
            found = runner.run(strategy)
        except StrategyUnavailable as reason:
            skipped.append(Skipped(strategy.name, str(reason)))
            continue
        observed.append(found)
        unlocated = sum(finding.unlocated for finding in found.findings.values())
        if unlocated:
            logger.warning(
                "%s: %d of its %d results are nowhere in the documents; they count as not from the gold passage.",
                strategy.name, unlocated, sum(finding.results for finding in found.findings.values()),
            )  # fmt: skip
    return observed, skipped


@contextmanager
def _embeddings(
    model: BaseEmbedding | None, cache_dir: str | Path | None, progress: Progress
) -> Iterator[CachedEmbedding | None]:
    """The embedding model as strategies share it, with its file open."""
    if model is None:
        yield None
        return
    if cache_dir is not None:
        Path(cache_dir).mkdir(parents=True, exist_ok=True)
    file = EmbeddingFile(Path(cache_dir) / _CACHE) if cache_dir is not None else None
    try:
        yield CachedEmbedding(model, file, lambda done, total: progress("Embedding", done, total))
    finally:
        if file is not None:
            file.close()


def _silent(what: str, done: int, total: int) -> None:
    return None
