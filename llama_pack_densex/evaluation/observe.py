"""Running a strategy over the questions of a dataset."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import get_tokenizer

from llama_pack_densex.evaluation.cached_embedding import CachedEmbedding
from llama_pack_densex.evaluation.corpus import Corpus, Models
from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.findings import Finding, Observer
from llama_pack_densex.evaluation.strategy import Built, Strategy

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Cost:
    """What a strategy costs.

    Args:
        units: Searched units.
        tokens: Their tokens.
        index_seconds: Parsing and indexing, without the embedding model.
        query_ms: The median search, without embedding the question.
        context_words: The mean length of the default context.
        context_k: How many nodes that is made of; None where the retriever says.
    """

    units: int
    tokens: int
    index_seconds: float
    query_ms: float
    context_words: float
    context_k: int | None


@dataclass(frozen=True)
class Observed:
    """A strategy's findings and their cost."""

    strategy: Strategy
    findings: dict[str, Finding]
    cost: Cost


class Runner:
    """Runs strategies over a dataset.

    Args:
        dataset: Documents and questions.
        models: The models that strategies share.
        depth: How many distinct results the metrics of rankings look at.
        observer: Reduces what is retrieved.
        progress: Called while strategies run.
        context_k: In place of the strategies' own numbers of nodes in a context.
    """

    def __init__(
        self,
        dataset: EvaluationSet,
        models: Models,
        depth: int,
        observer: Observer,
        progress: Progress,
        context_k: int | None = None,
    ) -> None:
        self._models, self._depth, self._observer, self._context_k = models, depth, observer, context_k
        self._progress, self._questions = progress, len(dataset.questions)
        self._corpora = [
            (Corpus(part.documents, part.passage_documents(), part.language, depth, models), part.questions)
            for part in _parts(dataset)
        ]

    def run(self, strategy: Strategy) -> Observed:
        """Run a strategy.

        Raises:
            StrategyUnavailable: It cannot be run here.
        """
        strategy = replace(strategy, context_k=self._context_k or strategy.context_k)
        findings: dict[str, Finding] = {}
        units = tokens = 0
        index_seconds = 0.0
        for corpus, questions in self._corpora:
            self._progress(f"{strategy.name}: indexing", len(findings), self._questions)
            self._embedded()  # what strategies before this one asked for
            started, embedding = time.perf_counter(), self._embedding_seconds()
            built = strategy.on(corpus)
            index_seconds += time.perf_counter() - started - (self._embedding_seconds() - embedding)
            texts = built.units if built.units is not None else self._embedded()
            units += len(texts)
            tokens += sum(map(_count_tokens, texts))
            for question in questions:
                findings[question.id] = self._ask(strategy, built, question)
                self._progress(strategy.name, len(findings), self._questions)
        cost = Cost(
            units=units,
            tokens=tokens,
            index_seconds=index_seconds,
            query_ms=1000 * statistics.median(finding.seconds for finding in findings.values()),
            context_words=statistics.fmean(finding.context_words for finding in findings.values()),
            context_k=strategy.context_k,
        )
        return Observed(strategy, findings, cost)

    def _ask(self, strategy: Strategy, built: Built, question: Question) -> Finding:
        started = time.perf_counter()
        results = built.retriever.retrieve(question.text)
        seconds = time.perf_counter() - started
        if built.context_retriever is None:
            default = results[: strategy.context_k]
        else:
            default = built.context_retriever.retrieve(question.text)
        return self._observer.finding(
            question,
            [result.node for result in results],
            _context(strategy, question, results[: self._depth]),
            _context(strategy, question, default),
            seconds,
        )

    def _embedded(self) -> list[str]:
        model = self._models.embed_model
        return model.take_requested() if isinstance(model, CachedEmbedding) else []

    def _embedding_seconds(self) -> float:
        model = self._models.embed_model
        return model.seconds if isinstance(model, CachedEmbedding) else 0.0


def _context(strategy: Strategy, question: Question, results: Sequence[NodeWithScore]) -> list[str]:
    """The texts that a reader gets; the results stay as they are."""
    nodes = [NodeWithScore(node=result.node.model_copy(), score=result.score) for result in results]
    for postprocessor in strategy.node_postprocessors:
        nodes = postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(question.text))
    return [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]


def _parts(dataset: EvaluationSet) -> Iterator[EvaluationSet]:
    """The dataset itself; where questions come with candidates, each such list of documents with its questions."""
    groups: dict[tuple[str, ...], list[Question]] = {}
    for question in dataset.questions:
        groups.setdefault(question.candidates, []).append(question)
    for candidates, questions in groups.items():
        wanted = set(candidates)
        documents = [document for document in dataset.documents if not wanted or document.id_ in wanted]
        yield replace(dataset, documents=documents, questions=questions)


def _count_tokens(text: str) -> int:
    return len(get_tokenizer()(text))
