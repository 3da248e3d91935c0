"""Strategies compared over the same documents, questions and embeddings."""

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
from llama_index.core.schema import Document, NodeWithScore

from llama_pack_densex.evaluation import answers, metrics, report
from llama_pack_densex.evaluation.datasets import Questions, read_questions, to_dataset
from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Question
from llama_pack_densex.evaluation.evidence import Assessor, Retrieval, first_words
from llama_pack_densex.evaluation.models import AskingFailed, CachedEmbedding, KeptLLM, at_once
from llama_pack_densex.evaluation.report import COMPARED, Report
from llama_pack_densex.evaluation.significance import (
    Comparison,
    bootstrap_intervals,
    compare_systems,
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
"""A progress callback: called with the name of the task, the steps done, and the steps in all."""

READER_LENGTHS = (100, 200, 500)
"""Numbers of words (or characters) of context that the reader gets: the l of EM@l and F1@l."""

REPLIES = "replies.sqlite"
"""The file of cached replies in a report's folder."""
EMBEDDINGS = "embeddings.sqlite"
"""The file of cached embeddings in that folder."""
_RESAMPLES = 1_000  # for each metric; there are many metrics
_PACKAGES = (
    "llama-pack-densex",
    "llama-index-core",
    "llama-index-retrievers-bm25",
    "bm25s",
    "usearch",
    "ir-measures",
    "numpy",
    "trulens-core",
)
_PROMPT = (
    "Answer the question from the context below, in as few words as possible: a name, a date, a number, "
    "a phrase. Give the answer alone, in the words and the language of the context, without a sentence "
    "around it.\n\nContext:\n{context}\n\nQuestion: {question}\nAnswer:"
)


def compare(  # noqa: PLR0913 (public: each argument is an option of its own)
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
    """Run strategies over the same documents and questions, and report how well each of them retrieves.

    Relevance is judged by answer strings and by a unit's place in its document, never by node ids, so that
    strategies that cut documents differently can be compared. A strategy that fails is left out, and the
    report gives its error; if none is left, the first error is raised.

    Args:
        documents: A dataset (an `EvaluationSet`, or the path of one in a format that `read_dataset` knows);
            or documents, or their folder, with `questions` about them.
        questions: Questions about the documents: a file; or `Question` objects; or mappings with "question",
            "answers" (a list, or a string with "|" between several) and, where it is known, "document" (an
            id). None where `documents` is a dataset.
        strategies: Names of strategies that come with the pack, and `Strategy` objects of your own; None
            means all that come with the pack and suit the dataset.
        embed_model: As for `DenseXRetrievalPack`; "none" compares without one. Each text is embedded once.
        propositionizer: Where LLM propositions come from (`RecordedPropositionizer`, `LLMPropositionizer`).
            Without it, strategies that need them are left out. Only LLMs that you pass are called.
        llm: Writes the headers of contextual retrieval; None means that they consist of title and headings.
        reader_llm: Answers from the first 100, 200 and 500 words of each strategy's context, for exact match
            and F1; None means that these are not measured.
        judge_llm: Judges answers by the RAG triad, with the prompts of LlamaIndex's evaluators:
            `context_relevance`, `groundedness` and `answer_relevance`. The answers are those of a strategy's
            own query engine, else those that `reader_llm` gives from the default context, to LlamaIndex's own
            prompt. None means that nothing is judged.
        trulens: An SQLite file, created if missing. TruLens then judges in place of LlamaIndex's evaluators,
            with `judge_llm`, and stores answers and verdicts in the file, each strategy as a version of the
            app "densex".
        depth: How many distinct results rankings consist of; metrics at a larger depth are left out.
        language: "en", "ja", ... Default: the dataset's, else detected from the questions.
        cache_dir: A folder in which embeddings and the replies of all LLMs are cached for the next
            comparison.
        max_cost: US dollars that each of the LLMs may cost before it stops; None means no limit.
        progress: Called as it runs with the name of the task, the steps done, and the steps in all.
        show_progress: Whether to show the progress, in the notebook or on stderr.
        ignore_identical_ids: Whether to leave out of a question's results a document that is the question
            itself, under the same id, as BEIR does (ArguAna, Quora). In a dataset without relevance labels,
            its text must also be the question's; a document that is labelled as relevant stays.

    Raises:
        DatasetError: The dataset cannot be read.
        ValueError: There is nothing to compare, or an argument is out of range; the message says which.
        ImportError: The extra `evaluation` is not installed, or for `trulens` the extra of that name.

    Example:
        >>> from llama_pack_densex import compare, load_sample
        >>> sample = load_sample("en")
        >>> report = compare(
        ...     sample.documents, sample.questions, ["densex-sentences", "bm25"], embed_model="none"
        ... )
        >>> [strategy.name for strategy in report.strategies]
        ['densex-sentences', 'bm25']
        >>> files = report.write("comparison")  # report.json, report.csv and report.html
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}: at least 1 is needed")
    if trulens is not None and judge_llm is None:
        raise ValueError("TruLens needs a judge: pass judge_llm (--judge-model)")
    dataset = to_dataset(documents, questions, language)
    if not ignore_identical_ids:
        dataset = _with_own_documents(dataset)
    chosen = resolve_strategies(strategies, ranking=dataset.has_candidates)
    display = display_for(show_progress, transient=True)
    show = progress or TaskLine(display)
    with ExitStack() as stack:
        stack.enter_context(display.around)
        show("Loading the embedding model", 0, 1)
        model, _ = resolve_embed_model(embed_model)
        folder = Path(
            cache_dir or stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        )
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
        corpus = Corpus(
            dataset, depth + _most_own_passages(dataset), embeddings, propositionizer, header_llm
        )
        setup = _Setup(corpus, depth, reader, judge, verdicts, show)
        trials, skipped = setup.run_all(chosen)
        show("Testing differences", 0, 1)
        return _report(setup, trials, skipped)


def evaluate(
    pack: DenseXRetrievalPack,
    questions: Questions,
    *,
    name: str = "index",
    language: str | None = None,
    max_questions: int | None = None,
    **options: Any,
) -> Report:
    """Ask an index questions, and measure the contexts that a reader gets and the quality of the answers.

    Metrics of rankings need the documents: for these, use `compare`. Replies of the pack's own `query_llm`
    are not cached, unless it is a `KeptLLM`.

    Args:
        pack: The index, with the LLM that answers.
        questions: The questions, as for `compare`; the documents of a dataset are ignored.
        name: What the report calls the index.
        language: "en", "ja", ... Default: the language that the questions state, else the one detected.
        max_questions: How many of the questions to ask, from the first on; None means all.
        **options: Options of `compare`: `reader_llm`, `judge_llm`, `trulens`, `cache_dir`, `max_cost`,
            `progress`, `show_progress` and `ignore_identical_ids`.

    Returns:
        A report with a single strategy: its `metrics` and, in `failed`, how many items failed for each
        metric.

    Raises:
        DatasetError: The questions cannot be read, or there are none.
        ValueError: An argument is out of range.
        ImportError: The extra `trulens` is not installed.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, load_sample
        >>> from llama_pack_densex.evaluation import evaluate
        >>> sample = load_sample("ja")
        >>> pack = DenseXRetrievalPack(sample.documents, propositionizer=sample.propositionizer())
        >>> report = evaluate(pack, sample.questions, name="articles", max_questions=10)
        >>> report.strategies[0].metrics["answer_recall@100"]
        0.8
    """

    def build(corpus: Corpus) -> Built:
        return Built(pack.as_retriever(corpus.depth), pack.retriever, (), pack.query_engine)

    strategy = Strategy(
        name, build, str(pack), node_postprocessors=(PropositionContextPostprocessor(),)
    )
    dataset = read_questions(questions, language=language, max_questions=max_questions)
    compared = compare(dataset, None, [strategy], embed_model=NONE, **options)
    (result,) = compared.strategies
    counts = pack.counts()
    model = pack.get_modules()["embed_model"]
    identity = embed_model_identity(model) if model else None
    cost = replace(result.cost, units=counts.passages + counts.propositions, tokens=None)
    return replace(
        compared,
        dataset=replace(compared.dataset, documents=counts.documents, passages=counts.passages),
        settings=replace(
            compared.settings, embed_model=identity, propositionizer="as the index has them"
        ),
        strategies=[replace(result, cost=cost)],
    )


@dataclass(frozen=True)
class _Setup:
    """The corpus, models and callbacks that all strategies of a comparison share; see `compare`.

    `depth` is the number of results in a ranking. The depth of `corpus` is larger where a question's own
    document may be among the results and is removed from them.
    """

    corpus: Corpus
    depth: int
    reader: KeptLLM | None
    judge: KeptLLM | None
    verdicts: answers.Verdicts | None
    show: Progress

    def figures(self) -> list[RequestFigures]:
        """Return the figures of the requests to each LLM so far."""
        senders: list[Propositionizer | KeptLLM | None] = [
            self.corpus.propositionizer_or_none,
            self.corpus.header_llm,
            self.reader,
            self.judge,
        ]
        return [sender.figures for sender in senders if sender]

    def run_all(self, strategies: Sequence[Strategy]) -> tuple[list[_Trial], list[report.Skipped]]:
        """Run each strategy; one that fails is left out, so that the results of the others are kept."""
        trials = []
        skipped = []
        failures = []
        for number, strategy in enumerate(strategies, 1):
            trial = _Trial(self, strategy)
            try:
                trial.run(f"{trial.name} ({number} of {len(strategies)})")
                trials.append(trial)
            except StrategyUnavailable as reason:
                skipped.append(report.Skipped(trial.name, str(reason)))
            except Exception as error:
                # any exception of a retriever or a server is logged and reported
                logger.warning("%s failed (%s); it is left out.", trial.name, type(error).__name__)
                skipped.append(report.Skipped(trial.name, f"it failed: {describe(error)}"))
                failures.append(error)
        if failures and not trials:
            raise failures[0]
        return trials, skipped


class _Trial:
    """A strategy in a comparison: its results, their scores, and its cost."""

    result: report.StrategyResult
    measured: answers.Measured

    def __init__(self, setup: _Setup, strategy: Strategy) -> None:
        self.setup = setup
        self.corpus = setup.corpus
        self.strategy = strategy
        self.name = strategy.name
        self.units: list[str] = []
        self.index_seconds = 0.0
        self.query_seconds: list[float] = []  # without embedding the question
        # both by question id; a context is made from all ranked results
        self.retrievals: dict[str, Retrieval] = {}
        self.contexts: dict[str, list[str]] = {}
        self.to_answer: list[tuple[Question, answers.AnswerQuestion]] = []

    def run(self, task: str) -> None:
        """Build the strategy, ask it every question, and have the LLMs read, answer and judge.

        Raises:
            StrategyUnavailable: It cannot be run here.
        """
        earlier = self.setup.figures()
        self._search(task)
        self._score()
        self._read()
        self._answer()
        self.measured.warn(self.name)
        intervals = bootstrap_intervals(self.measured.scores, _RESAMPLES)
        self.result = report.StrategyResult(
            self.name,
            self.strategy.description,
            _is_ours(self.name),
            {metric: interval.mean for metric, interval in intervals.items()},
            {metric: (interval.low, interval.high) for metric, interval in intervals.items()},
            self._cost(earlier),
            {metric: reasons.total() for metric, reasons in self.measured.failed.items()},
        )

    def _search(self, task: str) -> None:
        """Index the documents, and search for every question."""
        corpus = self.corpus
        questions = corpus.dataset.questions
        assessor = Assessor(corpus.dataset)
        self.setup.show(f"{task}: indexing", 0, len(questions))
        corpus.take_embedded()  # drops the texts of earlier strategies
        for candidates, group in groupby(questions, key=lambda question: question.candidates):
            started = corpus.clock()
            built = self.strategy.on(corpus.among(candidates))
            self.index_seconds += corpus.clock() - started
            self.units += corpus.take_embedded() if built.units is None else built.units
            for question in group:
                self._search_for(question, built, assessor)
                self.setup.show(task, len(self.retrievals), len(questions))

    def _search_for(self, question: Question, built: Built, assessor: Assessor) -> None:
        started = time.perf_counter()
        results = built.retriever.retrieve(question.text)
        self.query_seconds.append(time.perf_counter() - started)
        results = assessor.without_own(question, results)
        default = results[: self.strategy.context_k]
        if built.context_retriever:
            retrieved = built.context_retriever.retrieve(question.text)
            default = assessor.without_own(question, retrieved)
        read = self.strategy.context_of(question.text, default)
        context = _texts(self.strategy.context_of(question.text, results[: self.setup.depth]))
        self.contexts[question.id] = context
        if built.query_engine:
            self.to_answer.append((question, built.query_engine.query))
        elif self.setup.reader and self.setup.verdicts:
            self.to_answer.append((question, answers.reading(self.setup.reader, read)))
        nodes = [result.node for result in results]
        self.retrievals[question.id] = assessor.assess(question, nodes, context, _texts(read))

    def _score(self) -> None:
        """Score the results; if they lie within the dataset's passages, those passages are ranked."""
        in_passages = False
        if self.corpus.documents:  # `evaluate` has none
            results = sum(retrieval.results for retrieval in self.retrievals.values())
            unlocated = sum(retrieval.unlocated for retrieval in self.retrievals.values())
            if unlocated:
                logger.warning(
                    "%s: %d of its %d results are nowhere in the documents; they never count as the gold "
                    "passage.",
                    self.name, unlocated, results,
                )  # fmt: skip
            in_passages = metrics.within_passages(self.retrievals)
        if not in_passages:
            for key, retrieval in self.retrievals.items():
                self.retrievals[key] = retrieval.of_units()
        scores = metrics.score(self.corpus.dataset, self.retrievals, in_passages, self.setup.depth)
        self.measured = answers.Measured(scores)

    def _read(self) -> None:
        """Have an LLM answer from the beginning of each context, and score it: `em@100`, `f1@100`, ..."""
        if not self.setup.reader:
            return
        language = self.corpus.language
        answerable = [question for question in self.corpus.dataset.questions if question.answers]
        work = list(product(READER_LENGTHS, answerable))
        prompts = []
        for length, question in work:
            context = "\n\n".join(first_words(self.contexts[question.id], length, language))
            prompts.append([ChatMessage(_PROMPT.format(context=context, question=question.text))])
        replies = at_once(
            self.setup.reader.ask, prompts, partial(self.setup.show, f"{self.name}: reading")
        )
        for (length, question), reply in zip(work, replies, strict=True):
            values: dict[str, float | AskingFailed]
            if isinstance(reply, AskingFailed):
                values = {f"em@{length}": reply, f"f1@{length}": reply}
            else:
                values = {
                    f"em@{length}": metrics.exact_match(reply, question.answers, language),
                    f"f1@{length}": metrics.f1(reply, question.answers, language),
                }
            self.measured.add(question.id, values)

    def _answer(self) -> None:
        """Have questions answered, and the answers judged."""
        show = self.setup.show
        step = partial(show, f"{self.name}: answering")
        answered = answers.answer_questions(self.to_answer, step)
        for answer in answered:
            key = answer.question.id
            self.retrievals[key] = replace(self.retrievals[key], answer=answer.text)
        answers.score_answers(self.measured, answered, self.corpus.language)
        if self.setup.verdicts and answered:
            step = partial(show, f"{self.name}: judging")
            answers.judge_answers(self.measured, self.setup.verdicts, answered, step, self.name)

    def _cost(self, earlier: Sequence[RequestFigures]) -> report.Cost:
        """Return what the strategy cost; `earlier` are the LLMs' figures from before it was run."""
        figures = self.setup.figures()
        spent = [after.since(before) for after, before in zip(figures, earlier, strict=True)]
        dollars = [used.cost for used in spent if used.usage.requests]
        return report.Cost(
            units=len(self.units),
            tokens=sum(map(_count_tokens, self.units)),
            index_seconds=self.index_seconds,
            query_ms=1000 * median(self.query_seconds),
            context_words=fmean(retrieval.context_words for retrieval in self.retrievals.values()),
            context_k=self.strategy.context_k,
            llm_calls=sum(used.usage.requests + used.cache_hits for used in spent),
            llm_tokens=sum(used.usage.total_tokens for used in spent),
            llm_dollars=None if None in dollars else sum(filter(None, dollars), 0.0),
        )


def _most_own_passages(dataset: EvaluationSet) -> int:
    """Return how many results of a question may be passages of its own document."""
    own = {question.own_document_id for question in dataset.questions} - {""}
    return max((len(dataset.passages.get(document_id, [(0, 0)])) for document_id in own), default=0)


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [result.get_content() for result in nodes]


_count_tokens = cache(count_tokens)  # strategies share most of their texts


def _with_own_documents(dataset: EvaluationSet) -> EvaluationSet:
    """Return the dataset with documents that are the question itself treated like any other."""
    questions = [replace(question, own_document_id="") for question in dataset.questions]
    return replace(dataset, questions=questions)


def _report(setup: _Setup, trials: Sequence[_Trial], skipped: list[report.Skipped]) -> Report:
    corpus = setup.corpus
    titles = corpus.dataset.titles
    names = [metric for trial in trials for metric in trial.measured.scores]
    embeddings = corpus.embed_model_or_none
    propositionizer = corpus.propositionizer_or_none
    retrievals = {trial.name: trial.retrievals for trial in trials}
    return Report(
        _describe(corpus.dataset),
        report.RunSettings(
            embed_model=embeddings.identity if embeddings else None,
            propositionizer=propositionizer.class_name() if propositionizer else None,
            llm=_model_name(corpus.header_llm),
            reader_llm=_model_name(setup.reader),
            judge_llm=_model_name(setup.judge),
            depth=setup.depth,
            lengths=list(metrics.LENGTHS),
            versions=_versions(),
        ),
        [
            replace(trial.result, metrics={**dict.fromkeys(names), **trial.result.metrics})
            for trial in trials
        ],
        skipped,
        list(_comparisons(trials)),
        list(_equal_contexts(trials)),
        [
            report.QuestionResult(
                question.id,
                question.text,
                list(question.answers),
                titles.get(question.document_id, ""),
                {name: of_trial[question.id] for name, of_trial in retrievals.items()},
            )
            for question in corpus.dataset.questions
        ],
    )


def _model_name(llm: KeptLLM | None) -> str | None:
    return llm.metadata.model_name if llm else None


def _comparisons(trials: Sequence[_Trial]) -> Iterator[Comparison]:
    """Compare our main strategy with every other one; if none of ours was run, compare the first."""
    scores = {trial.name: trial.measured.scores for trial in trials}
    if not scores:
        return
    first = max(scores, key=lambda name: (name == "densex", _is_ours(name)))
    for metric, second in product(COMPARED, scores):
        if second != first and metric in scores[first] and metric in scores[second]:
            yield compare_systems(scores, metric, first, second)


def _equal_contexts(trials: Sequence[_Trial]) -> Iterator[report.EqualContext]:
    """Compare each of ours, cut to the length of the other's default context, with every other strategy."""
    for ours, other in product(trials, trials):
        recall = other.measured.scores.get("answer_recall")
        if not recall or not ours.result.ours or other.result.ours:
            continue
        words = other.result.cost.context_words
        within = metrics.recall_within({key: ours.retrievals[key] for key in recall}, words)
        mean = fmean(within.values())
        other_mean = fmean(recall.values())
        tested = randomisation_test(within, recall)
        yield report.EqualContext(ours.name, other.name, words, mean, other_mean, *tested)


def _is_ours(name: str) -> bool:
    return f"{name}-".startswith("densex-")


def _describe(dataset: EvaluationSet) -> report.DatasetInfo:
    questions = dataset.questions
    content: list[Any] = []
    for document in dataset.documents:
        content.append([document.id_, document.text, dataset.passages.get(document.id_)])
    for question in questions:
        content.append([question.id, question.text, question.answers, question.span])
    has_passages = dataset.relevance or any(question.span for question in questions)
    return report.DatasetInfo(
        name=dataset.name,
        language=dataset.language,
        documents=len(dataset.documents),
        passages=sum(len(dataset.passages_of(document)) for document in dataset.documents),
        questions=len(questions),
        length_unit="characters" if dataset.language in WITHOUT_SPACES else "words",
        hash=hashlib.sha256("".join(map(json.dumps, content)).encode()).hexdigest(),
        gold="passage" if has_passages else "document",
    )


def _versions() -> dict[str, str]:
    installed = [package for package in _PACKAGES if any(distributions(name=package))]
    return {name: version(name) for name in installed} | {"python": platform.python_version()}
