"""Strategies side by side over the same documents, questions and embeddings."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import distributions, version
from itertools import groupby, product
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.schema import Document, MetadataMode, NodeWithScore, QueryBundle

from llama_pack_densex.evaluation import answers, judging, report
from llama_pack_densex.evaluation.datasets import Questions, read_questions, to_dataset
from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Question
from llama_pack_densex.evaluation.models import CachedEmbedding, KeptLLM, at_once
from llama_pack_densex.evaluation.report import COMPARED, Report
from llama_pack_densex.evaluation.runs import Scores
from llama_pack_densex.evaluation.significance import (
    Comparison,
    bootstrap_intervals,
    randomisation_test,
)
from llama_pack_densex.evaluation.strategies import resolve_strategies
from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.ingestion.progress import TaskLine, display_for
from llama_pack_densex.ingestion.report import describe
from llama_pack_densex.llm.usage import RequestFigures, count_tokens
from llama_pack_densex.models import NONE, embed_model_identity, resolve_embed_model
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.text.language import WITHOUT_SPACES
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

READER_LENGTHS = (100, 200, 500)
"""Words (characters) of context that the reader gets: the l of EM@l and F1@l."""

REPLIES = "replies.sqlite"
"""Where replies are kept in a report's folder."""
EMBEDDINGS = "embeddings.sqlite"
"""Where embeddings are kept there."""
_RESAMPLES = 1_000  # of a metric's questions, of which there are many
_PACKAGES = (
    "llama-pack-densex",
    "llama-index-core",
    "llama-index-retrievers-bm25",
    "bm25s",
    "lancedb",
    "ir-measures",
    "numpy",
    "trulens-core",
)
_UNLOCATED = "%s: %d of its %d results are nowhere in the documents; they count as not from the gold passage."
_PROMPT = (
    "Answer the question from the context below, in as few words as possible: a name, a date, a number, "
    "a phrase. Give the answer alone, in the words and the language of the context, without a sentence "
    "around it.\n\n"
    "Context:\n{context}\n\nQuestion: {question}\nAnswer:"
)


def compare(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: Questions | None = None,
    strategies: Sequence[str | Strategy] | None = None,
    *,
    embed_model: BaseEmbedding | str | None = None,
    propositionizer: Propositionizer | None = None,
    llm: LLM | None = None,
    reader_llm: LLM | None = None,
    judge_llm: LLM | None = None,
    trulens: str | Path | None = None,
    depth: int = 20,
    language: str | None = None,
    cache_dir: str | Path | None = None,
    max_cost: float | None = None,
    progress: Progress | None = None,
    show_progress: bool = False,
    ignore_identical_ids: bool = True,
) -> Report:
    """Run strategies over the same documents and questions, and report which finds more.

    Relevance is judged by answer strings and by where in the documents a unit stands, never by node ids, so
    that strategies that cut documents differently can be compared. A strategy that fails is left out, and
    the report gives its error; if none is left, the first error is raised.

    Args:
        documents: A dataset (an `EvaluationSet`, or the path of one in a format that `read_dataset` knows);
            or documents, or their folder, with `questions` about them.
        questions: Questions about the documents: a file; or `Question`s; or mappings with "question",
            "answers" (a list; several in a text are divided by "|") and, where it is known, "document" (an
            id). None where `documents` is a dataset.
        strategies: Names of those that come with the pack, and `Strategy` objects of your own; None means all
            that come with the pack and suit the dataset.
        embed_model: What `DenseXRetrievalPack` takes; "none" to compare without one. Each text is embedded
            once.
        propositionizer: Where LLM propositions come from (`RecordedPropositionizer`, `LLMPropositionizer`).
            Without it those strategies are left out that need them. Nothing is asked of an LLM that was not
            passed.
        llm: Writes the headers of contextual retrieval; None means that they are made of title and headings.
        reader_llm: Answers from the first 100, 200 and 500 words of each strategy's context, for exact match
            and F1; None means that these are not measured.
        judge_llm: Judges answers by the RAG triad, through LlamaIndex's evaluators: `context_relevance`,
            `groundedness` and `answer_relevance`. The answers are those of a strategy's own query engine,
            else `reader_llm`'s from the default context, by LlamaIndex's own prompt. None means that nothing
            is judged.
        trulens: An SQLite file, created if missing: TruLens judges in place of LlamaIndex's evaluators,
            asking `judge_llm`, and keeps answers and verdicts there, each strategy a version of the app
            "densex".
        depth: How many distinct results the metrics of rankings look at; metrics of more are not given.
        language: "en", "ja", ... Default: the dataset's, else detected from the questions.
        cache_dir: A folder to keep embeddings and the replies of all LLMs in for the next comparison.
        max_cost: US dollars that each of the LLMs may use before it stops; None means no limit.
        progress: Called while it runs.
        show_progress: Whether to show what is being done, in the notebook or on stderr.
        ignore_identical_ids: Whether a document that is the question itself, under the same id, is left out of what
            every strategy finds for it, as BEIR does (ArguAna, Quora). Of a dataset without relevance labels its text
            has to be the question's too; one that is labelled as relevant stays.

    Raises:
        DatasetError: The dataset cannot be read.
        ValueError: There is nothing to compare, or an argument is out of range; the message says which.
        ImportError: The extra `evaluation` is not installed, or for `trulens` the extra of that name.

    Examples:
        ```python
        report = compare("squad.json", strategies=["densex-sentences", "sentence-window"],
        embed_model="minilm") report.write("comparison")  # report.json, report.csv, report.html
        ```
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}: at least 1 is needed")
    if trulens is not None and judge_llm is None:
        raise ValueError("TruLens needs a judge: pass judge_llm (--judge-model)")
    dataset = to_dataset(documents, questions, language)
    if not ignore_identical_ids:
        dataset = replace(dataset, questions=[replace(question, own_document_id="") for question in dataset.questions])
    chosen = resolve_strategies(
        strategies,
        ranking=any(question.candidates for question in dataset.questions),
    )
    display = display_for(show_progress, transient=True)
    show = progress or TaskLine(display)
    with ExitStack() as stack:
        stack.enter_context(display.around)
        show("Loading the embedding model", 0, 1)
        model, _ = resolve_embed_model(embed_model)
        folder = Path(cache_dir or stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        folder.mkdir(parents=True, exist_ok=True)
        replies = folder / REPLIES
        if propositionizer:
            propositionizer = propositionizer.keeping_replies(replies)
        header_llm = KeptLLM.of(llm, replies, max_cost)
        reader = KeptLLM.of(reader_llm, replies, max_cost)
        judge = KeptLLM.of(judge_llm, replies, max_cost)
        verdicts = answers.judged_by(judge, trulens)
        embeddings = None
        if model:
            embeddings = CachedEmbedding(model, folder / EMBEDDINGS, partial(show, "Embedding"))
            stack.callback(embeddings.close)
            embeddings.embed_queries([question.text for question in dataset.questions])
        corpus = Corpus(dataset, depth + _most_own_passages(dataset), embeddings, propositionizer, header_llm)
        run = _Run(corpus, depth, reader, judge, verdicts, show)
        observed, skipped = run.observe_all(chosen)
        show("Testing differences", 0, 1)
        return _report(run, observed, skipped)


def evaluate(
    pack: DenseXRetrievalPack,
    questions: Questions,
    *,
    name: str = "index",
    language: str | None = None,
    max_questions: int | None = None,
    **options: Any,
) -> Report:
    """Ask an index questions, and measure what a reader gets and what is answered.

    Metrics of rankings need the documents, and are `compare`'s. Replies of
    the pack's own `query_llm` are not cached, unless it is a `KeptLLM`.

    Args:
        pack: The index, with what answers.
        questions: Questions, as `compare` takes them; the documents of a dataset are ignored.
        name: What the report calls the index.
        language: "en", "ja", ... Default: the one that they state, else detected.
        max_questions: Ask the first so many.
        **options: Of `compare`: `reader_llm`, `judge_llm`, `trulens`, `cache_dir`, `max_cost`, `progress`,
            `show_progress` and `ignore_identical_ids`.

    Returns:
        A report with one strategy: its `metrics` and, beside them, in `failed`, how many items failed.

    Raises:
        DatasetError: The questions cannot be read, or there are none.
        ValueError: An argument is out of range.
        ImportError: The extra of `trulens` is not installed.
    """
    dataset = read_questions(questions, language=language, max_questions=max_questions)

    def build(corpus: Corpus) -> Built:
        return Built(pack.as_retriever(corpus.depth), pack.retriever, (), pack.query_engine)

    strategy = Strategy(
        name,
        build,
        str(pack),
        node_postprocessors=(PropositionContextPostprocessor(),),
    )
    compared = compare(dataset, None, [strategy], embed_model=NONE, **options)
    (result,) = compared.strategies
    counts = pack.counts()
    cost = replace(result.cost, units=counts.passages + counts.propositions, tokens=None)
    model = pack.get_modules()["embed_model"]
    identity = embed_model_identity(model) if model else None
    return replace(
        compared,
        dataset=replace(
            compared.dataset,
            documents=counts.documents,
            passages=counts.passages,
        ),
        settings=replace(
            compared.settings,
            embed_model=identity,
            propositionizer="as the index has them",
        ),
        strategies=[replace(result, cost=cost)],
    )


@dataclass(frozen=True)
class _Observation:
    """A strategy with what it found, and its figures."""

    result: report.StrategyResult
    scores: Scores
    findings: dict[str, judging.Finding]


@dataclass(frozen=True)
class _Search:
    """What a strategy returned for a question.

    Args:
        question: The question.
        finding: What was found.
        context: What a reader gets of as many results as rankings look at.
        answer: What answers it, where answers are wanted.
        seconds: How long the search took.
    """

    question: Question
    finding: judging.Finding
    context: list[str]
    answer: answers.AnswerQuestion | None
    seconds: float


@dataclass
class _Index:
    """The texts that a strategy searches, and how long indexing them took."""

    units: list[str]
    seconds: float = 0.0


@dataclass(frozen=True)
class _Run:
    """What all strategies of a comparison are run with; see `compare`.

    `depth` is how many results rankings look at; the corpus has strategies return some more where a question's own
    document may be among them.
    """

    corpus: Corpus
    depth: int
    reader: KeptLLM | None
    judge: KeptLLM | None
    verdicts: answers.Verdicts | None
    show: Progress

    @property
    def metered(self) -> list[Propositionizer | KeptLLM]:
        """What may send requests to an LLM."""
        corpus = self.corpus
        return [
            sender for sender in (corpus.propositionizer_or_none, corpus.header_llm, self.reader, self.judge) if sender
        ]

    def observe_all(
        self,
        strategies: Sequence[Strategy],
    ) -> tuple[list[_Observation], list[report.Skipped]]:
        """Run each; one that fails is left out, so that what the others found is kept."""
        observed: list[_Observation] = []
        skipped: list[report.Skipped] = []
        failures: list[Exception] = []
        for number, strategy in enumerate(strategies, 1):
            try:
                observed.append(
                    self._observe(
                        strategy,
                        f"{strategy.name} ({number} of {len(strategies)})",
                    )
                )
            except StrategyUnavailable as reason:
                skipped.append(report.Skipped(strategy.name, str(reason)))
            except Exception as error:  # whatever a retriever or a server raises is logged and reported
                logger.warning(
                    "%s failed (%s); it is left out.",
                    strategy.name,
                    type(error).__name__,
                )
                skipped.append(report.Skipped(strategy.name, f"it failed: {describe(error)}"))
                failures.append(error)
        if failures and not observed:
            raise failures[0]
        return observed, skipped

    def _observe(self, strategy: Strategy, task: str) -> _Observation:
        """Build a strategy, ask it every question, and have LLMs read, answer and judge, where there are any.

        Raises:
            StrategyUnavailable: It cannot be run here.
        """
        name = strategy.name
        figures = [sender.figures for sender in self.metered]
        searches, index = self._search(strategy, task)
        findings = {search.question.id: search.finding for search in searches}
        in_passages = self._in_passages(name, findings)
        if not in_passages:
            findings = {key: finding.of_units() for key, finding in findings.items()}
        measured = answers.Measured(judging.score(self.corpus.dataset, findings, in_passages, self.depth))
        if self.reader:
            self._read(measured, searches, self.reader, f"{name}: reading")
        for answer in self._answer(measured, searches, name):
            findings[answer.question.id] = replace(
                findings[answer.question.id],
                answer=answer.text,
            )
        measured.warn(name)
        intervals = bootstrap_intervals(measured.scores, _RESAMPLES)
        result = report.StrategyResult(
            name,
            strategy.description,
            _is_ours(name),
            {metric: interval.mean for metric, interval in intervals.items()},
            {metric: (interval.low, interval.high) for metric, interval in intervals.items()},
            self._cost(strategy, searches, index, figures),
            {metric: reasons.total() for metric, reasons in measured.failed.items()},
        )
        return _Observation(result, measured.scores, findings)

    def _in_passages(self, name: str, findings: judging.Findings) -> bool:
        """Whether results are counted as the dataset's passages; an index comes without documents here."""
        if not self.corpus.documents:
            return False
        unlocated = sum(finding.unlocated for finding in findings.values())
        if unlocated:
            results = sum(finding.results for finding in findings.values())
            logger.warning(_UNLOCATED, name, unlocated, results)
        return judging.within_passages(findings)

    def _search(
        self,
        strategy: Strategy,
        task: str,
    ) -> tuple[list[_Search], _Index]:
        """Index the documents, and search for each question."""
        corpus = self.corpus
        questions = corpus.dataset.questions
        judge = judging.Judge(corpus.dataset)
        searches: list[_Search] = []
        index = _Index([])
        self.show(f"{task}: indexing", 0, len(questions))
        corpus.take_embedded()  # by strategies before this one
        for candidates, group in groupby(questions, key=lambda question: question.candidates):
            started = corpus.clock()
            built = strategy.on(corpus.among(candidates))
            index.seconds += corpus.clock() - started
            index.units += corpus.take_embedded() if built.units is None else built.units
            for question in group:
                started = time.perf_counter()
                retrieved = built.retriever.retrieve(question.text)
                seconds = time.perf_counter() - started
                results = judge.without_own(question, retrieved)
                default = results[: strategy.context_k]
                if built.context_retriever:
                    default = judge.without_own(question, built.context_retriever.retrieve(question.text))
                read = _context(strategy, question, default)
                context = _texts(_context(strategy, question, results[: self.depth]))
                finding = judge.finding(
                    question,
                    [result.node for result in results],
                    context,
                    _texts(read),
                )
                answer: answers.AnswerQuestion | None = None
                if built.query_engine:
                    answer = built.query_engine.query
                elif self.reader and self.verdicts:
                    answer = answers.reading(self.reader, read)
                searches.append(_Search(question, finding, context, answer, seconds))
                self.show(task, len(searches), len(questions))
        return searches, index

    def _cost(
        self,
        strategy: Strategy,
        searches: Sequence[_Search],
        index: _Index,
        figures: Sequence[RequestFigures],
    ) -> report.Cost:
        spent = [sender.figures.since(earlier) for sender, earlier in zip(self.metered, figures, strict=True)]
        dollars = [figures.cost for figures in spent if figures.usage.requests]
        return report.Cost(
            units=len(index.units),
            tokens=sum(map(_count_tokens, index.units)),
            index_seconds=index.seconds,
            query_ms=1000 * median(search.seconds for search in searches),
            context_words=fmean(search.finding.context_words for search in searches),
            context_k=strategy.context_k,
            llm_calls=sum(figures.usage.requests + figures.cache_hits for figures in spent),
            llm_tokens=sum(figures.usage.total_tokens for figures in spent),
            llm_dollars=None if None in dollars else sum(filter(None, dollars), 0.0),
        )

    def _read(
        self,
        measured: answers.Measured,
        searches: Sequence[_Search],
        reader: KeptLLM,
        task: str,
    ) -> None:
        """Have an LLM answer from the beginning of each context, and score that: `em@100`, `f1@100`, ..."""
        language = self.corpus.language
        work = [(length, search) for length in READER_LENGTHS for search in searches if search.question.answers]
        prompts = []
        for length, search in work:
            context = "\n\n".join(judging.first_words(search.context, length, language))
            prompts.append([ChatMessage(_PROMPT.format(context=context, question=search.question.text))])
        replies = at_once(reader.ask, prompts, partial(self.show, task))
        for (length, search), reply in zip(work, replies, strict=True):
            for metric, measure in (("em", judging.exact_match), ("f1", judging.f1)):
                value = measure(reply, search.question.answers, language) if isinstance(reply, str) else reply
                measured.add(search.question.id, {f"{metric}@{length}": value})

    def _answer(
        self,
        measured: answers.Measured,
        searches: Sequence[_Search],
        name: str,
    ) -> list[answers.Answer]:
        """Have questions answered, and the answers judged."""
        questions = [(search.question, search.answer) for search in searches if search.answer]
        answered = answers.answer_questions(
            questions,
            partial(self.show, f"{name}: answering"),
        )
        answers.score_answers(measured, answered, self.corpus.language)
        if self.verdicts and answered:
            answers.judge_answers(
                measured,
                self.verdicts,
                answered,
                partial(self.show, f"{name}: judging"),
                name,
            )
        return answered


def _most_own_passages(dataset: EvaluationSet) -> int:
    """How many results of a question may be passages of its own document."""
    own = {question.own_document_id for question in dataset.questions} - {""}
    return max((len(dataset.passages.get(document_id, [(0, 0)])) for document_id in own), default=0)


_count_tokens = cache(count_tokens)  # strategies share most of their texts


def _context(
    strategy: Strategy,
    question: Question,
    results: Sequence[NodeWithScore],
) -> list[NodeWithScore]:
    """What a reader gets of results; they stay as they are."""
    nodes = [NodeWithScore(node=result.node.model_copy(), score=result.score) for result in results]
    for postprocessor in strategy.node_postprocessors:
        nodes = postprocessor.postprocess_nodes(
            nodes,
            query_bundle=QueryBundle(question.text),
        )
    return nodes


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [result.node.get_content(metadata_mode=MetadataMode.NONE) for result in nodes]


def _report(
    run: _Run,
    observed: Sequence[_Observation],
    skipped: list[report.Skipped],
) -> Report:
    corpus = run.corpus
    titles = corpus.dataset.titles
    metrics = dict.fromkeys(metric for observation in observed for metric in observation.scores)
    embeddings = corpus.embed_model_or_none
    propositionizer = corpus.propositionizer_or_none
    return Report(
        _describe(corpus.dataset),
        report.RunSettings(
            embed_model=embeddings.identity if embeddings else None,
            propositionizer=propositionizer.class_name() if propositionizer else None,
            llm=_model_name(corpus.header_llm),
            reader_llm=_model_name(run.reader),
            judge_llm=_model_name(run.judge),
            depth=run.depth,
            lengths=list(judging.LENGTHS),
            versions=_versions(),
        ),
        [replace(observation.result, metrics={**metrics, **observation.result.metrics}) for observation in observed],
        skipped,
        list(_comparisons(observed)),
        list(_equal_contexts(observed)),
        [
            report.QuestionResult(
                question.id,
                question.text,
                list(question.answers),
                titles.get(question.document_id, ""),
                {observation.result.name: observation.findings[question.id] for observation in observed},
            )
            for question in corpus.dataset.questions
        ],
    )


def _model_name(llm: KeptLLM | None) -> str | None:
    return llm.metadata.model_name if llm else None


def _comparisons(observed: Sequence[_Observation]) -> Iterator[Comparison]:
    """The first of ours against every other strategy; if none of ours was run, the first of all."""
    scores = {observation.result.name: observation.scores for observation in observed}
    first = next(
        (name for name in ("densex", *filter(_is_ours, scores), *scores) if name in scores),
        "",
    )
    for metric, second in product(COMPARED, scores):
        if second != first and metric in scores[first] and metric in scores[second]:
            tested = randomisation_test(scores[first][metric], scores[second][metric])
            yield Comparison(metric, first, second, *tested)


def _equal_contexts(observed: Sequence[_Observation]) -> Iterator[report.EqualContext]:
    """Each of ours against each other strategy, cut to the length of the other's default context."""
    for ours, other in product(observed, observed):
        recall = other.scores.get("answer_recall")
        if recall and ours.result.ours and not other.result.ours:
            words = other.result.cost.context_words
            within = judging.recall_within({key: ours.findings[key] for key in recall}, words)
            mean = fmean(within.values())
            other_mean = fmean(recall.values())
            tested = randomisation_test(within, recall)
            yield report.EqualContext(
                ours.result.name,
                other.result.name,
                words,
                mean,
                other_mean,
                *tested,
            )


def _is_ours(name: str) -> bool:
    return f"{name}-".startswith("densex-")


def _describe(dataset: EvaluationSet) -> report.DatasetInfo:
    content: list[Any] = [
        [document.id_, document.text, dataset.passages.get(document.id_)] for document in dataset.documents
    ]
    content += [[question.id, question.text, question.answers, question.span] for question in dataset.questions]
    return report.DatasetInfo(
        name=dataset.name,
        language=dataset.language,
        documents=len(dataset.documents),
        passages=sum(len(dataset.passages_of(document)) for document in dataset.documents),
        questions=len(dataset.questions),
        length_unit="characters" if dataset.language in WITHOUT_SPACES else "words",
        hash=hashlib.sha256("".join(map(json.dumps, content)).encode()).hexdigest(),
        gold="passage" if dataset.relevance or any(question.span for question in dataset.questions) else "document",
    )


def _versions() -> dict[str, str]:
    versions = {package: version(package) for package in _PACKAGES if any(distributions(name=package))}
    return {**versions, "python": platform.python_version()}
