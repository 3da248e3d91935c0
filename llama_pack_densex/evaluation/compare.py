"""Strategies side by side over the same documents, questions and embeddings."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distributions, version
from itertools import groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.schema import Document, MetadataMode, NodeWithScore, QueryBundle

from llama_pack_densex.evaluation import answers, judging, report
from llama_pack_densex.evaluation.answers import Answer, Asked, Judged, Verdicts
from llama_pack_densex.evaluation.datasets import EvaluationSet, Question, read_questions, to_dataset
from llama_pack_densex.evaluation.judging import LENGTHS, Finding, Judge, within_passages
from llama_pack_densex.evaluation.models import CachedEmbedding, KeptLLM, at_once
from llama_pack_densex.evaluation.report import COMPARED, Report
from llama_pack_densex.evaluation.runs import Scores
from llama_pack_densex.evaluation.significance import Comparison, bootstrap_interval, randomisation_test
from llama_pack_densex.evaluation.strategies import resolve_strategies
from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.ingestion.report import describe
from llama_pack_densex.models import NONE, embed_model_identity, resolve_embed_model
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.text.language import WITHOUT_SPACES

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

READER_LENGTHS = (100, 200, 500)
"""Words (characters) of context that the reader gets: the l of EM@l and F1@l."""

REPLIES = "replies.sqlite"
"""Where replies are kept in a report's folder."""
_EMBEDDINGS = "embeddings.sqlite"
_OURS = "densex"
_RESAMPLES = 1_000  # of a metric's questions, of which there are many
_PACKAGES = (
    "llama-pack-densex", "llama-index-core", "llama-index-retrievers-bm25", "bm25s", "lancedb", "ir-measures", "numpy",
    "trulens-core",
)  # fmt: skip
_PROMPT = (
    "Answer the question from the context below, in as few words as possible: a name, a date, a number, a phrase. Give "
    "the answer alone, in the words and the language of the context, without a sentence around it.\n\n"
    "Context:\n{context}\n\nQuestion: {question}\nAnswer:"
)


def compare(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: str | Path | Sequence[Question | Mapping[str, Any]] | None = None,
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
) -> Report:
    """Run strategies over the same documents and questions, and say which finds more.

    Relevance is judged by answer strings and by where in the documents a unit stands, never by node ids, so that
    strategies that cut documents differently can be compared. A strategy that fails is left out, and the report says
    with what; where none is left, its error is raised.

    Args:
        documents: A dataset (an `EvaluationSet`, or the path of one in a format that `read_dataset` knows); or
            documents, or their folder, with `questions` about them.
        questions: Questions about the documents: a file; or `Question`s; or mappings with "question", "answers" (a
            list; several in a text are divided by "|") and, where it is known, "document" (an id). None where
            `documents` is a dataset.
        strategies: Names of those that come with the pack, and `Strategy` objects of your own; None means all that
            come with the pack and suit the dataset.
        embed_model: What `DenseXRetrievalPack` takes; "none" to compare without one. Each text is embedded once.
        propositionizer: Where LLM propositions come from (`RecordedPropositionizer`, `LLMPropositionizer`). Without it
            those strategies are left out that need them. Nothing is asked of an LLM that was not passed.
        llm: Writes the headers of contextual retrieval; None means that they are made of title and headings.
        reader_llm: Answers from the first 100, 200 and 500 words of each strategy's context, for exact match and F1;
            None means that these are not measured.
        judge_llm: Judges answers by the RAG triad, through LlamaIndex's evaluators: `context_relevance`, `groundedness`
            and `answer_relevance`. The answers are those of a strategy's own query engine, else `reader_llm`'s from the
            default context, by LlamaIndex's own prompt. None means that nothing is judged.
        trulens: An SQLite file, made if it is not there: TruLens judges in place of LlamaIndex's evaluators, asking
            `judge_llm`, and keeps answers and verdicts there, each strategy a version of the app "densex".
        depth: How many distinct results the metrics of rankings look at; metrics of more are not given.
        language: "en", "ja", ... Default: what the dataset says, or the questions tell.
        cache_dir: A folder to keep embeddings and the replies of all LLMs in for the next comparison.
        max_cost: US dollars that each of the LLMs may use before it stops; None means no limit.
        progress: Called while it runs.

    Raises:
        DatasetError: The dataset cannot be read.
        ValueError: There is nothing to compare, or an argument is out of range; the message says which.
        ImportError: The extra `evaluation` is not installed, or for `trulens` the extra of that name.

    Examples:
        ```python
        report = compare("squad.json", strategies=["densex-sentences", "sentence-window"], embed_model="minilm")
        report.write("comparison")  # report.json, report.csv, report.html
        ```
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}: at least 1 is needed")
    if trulens is not None and judge_llm is None:
        raise ValueError("TruLens needs a judge: pass judge_llm (--judge-model)")
    dataset = to_dataset(documents, questions, language)
    chosen = resolve_strategies(strategies, ranking=any(question.candidates for question in dataset.questions))
    tell: Progress = progress if progress is not None else lambda what, done, total: None
    tell("Loading the embedding model", 0, 1)
    model, _ = resolve_embed_model(embed_model)
    with ExitStack() as stack:
        folder = Path(cache_dir or stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        folder.mkdir(parents=True, exist_ok=True)
        propositionizer = propositionizer and propositionizer.keeping_replies(folder / REPLIES)
        given = {"llm": llm, "reader_llm": reader_llm, "judge_llm": judge_llm}
        made = {
            use: one if one is None or isinstance(one, KeptLLM) else KeptLLM(one, folder / REPLIES, max_cost)
            for use, one in given.items()
        }
        headers, reader, judged_by = made.values()
        verdicts: Verdicts | None = None if judged_by is None else partial(answers.verdicts_of, judged_by)
        if trulens is not None and judged_by is not None:
            from llama_pack_densex.evaluation.trulens import Recorder

            verdicts = Recorder(trulens, judged_by).verdicts_of  # says now what is missing
        settings = report.Settings(
            embed_model=embed_model_identity(model) if model is not None else None,
            propositionizer=propositionizer.class_name() if propositionizer is not None else None,
            **{use: None if one is None else one.metadata.model_name for use, one in made.items()},
            depth=depth,
            lengths=list(LENGTHS),
            versions=_versions(),
        )
        cached = None
        if model is not None:
            cached = CachedEmbedding(model, folder / _EMBEDDINGS, partial(tell, "Embedding"))
            stack.callback(cached.close)
            cached.embed_queries([question.text for question in dataset.questions])
        corpus = Corpus(dataset, depth, cached, propositionizer, headers)
        asked = [each for each in (propositionizer, *made.values()) if each is not None]
        run = _Run(corpus, Judge(dataset), reader, verdicts, asked, tell)
        observed, skipped = run.observe_all(chosen)
    tell("Testing differences", 0, 1)
    metrics = dict.fromkeys(metric for found in observed for metric in found.scores)
    return Report(
        _describe(dataset),
        settings,
        [replace(each.result, metrics={**metrics, **each.result.metrics}) for each in observed],
        skipped,
        list(_comparisons(observed)),
        list(_equal_contexts(dataset, observed)),
        list(_questions(dataset, observed)),
    )


def evaluate(
    pack: DenseXRetrievalPack,
    questions: str | Path | Sequence[Question | Mapping[str, Any]],
    *,
    name: str = "index",
    language: str | None = None,
    max_questions: int | None = None,
    **options: Any,
) -> Report:
    """Ask an index questions, and measure what is read and what is answered.

    Metrics of rankings need the documents, and are `compare`'s. What the pack's own `query_llm` is asked is its own
    affair; a `KeptLLM` keeps it.

    Args:
        pack: The index, with what answers.
        questions: Questions, as `compare` takes them; the documents of a dataset are not looked at.
        name: What the report calls the index.
        language: "en", "ja", ... Default: what the questions say, or tell.
        max_questions: Ask the first so many.
        **options: Of `compare`: `reader_llm`, `judge_llm`, `trulens`, `cache_dir`, `max_cost` and `progress`.

    Returns:
        A report with one strategy: its `metrics` and, beside them, in `failed`, how many items failed.

    Raises:
        DatasetError: The questions cannot be read, or there are none.
        ValueError: An argument is out of range.
        ImportError: The extra of `trulens` is not installed.
    """
    dataset, about = read_questions(questions, language=language, max_questions=max_questions), pack.counts()

    def build(corpus: Corpus) -> Built:
        return Built(pack.as_retriever(corpus.depth), pack.retriever, (), pack.query_engine)

    strategy = Strategy(name, build, str(pack), node_postprocessors=(PropositionContextPostprocessor(),))
    found = compare(dataset, None, [strategy], embed_model=NONE, **options)
    model = pack.get_modules()["embed_model"]
    identity = None if model is None else embed_model_identity(model)
    units = about.passages + about.propositions
    return replace(
        found,
        dataset=replace(found.dataset, documents=about.documents, passages=about.passages),
        settings=replace(found.settings, embed_model=identity, propositionizer="as the index has them"),
        strategies=[replace(one, cost=replace(one.cost, units=units, tokens=None)) for one in found.strategies],
    )


@dataclass(frozen=True)
class _Observed:
    """A strategy with what it found, and its figures."""

    result: report.StrategyResult
    scores: Scores
    findings: dict[str, Finding]


@dataclass(frozen=True)
class _Run:
    """What all strategies of a comparison are run with; see `compare`."""

    corpus: Corpus
    judge: Judge
    reader: KeptLLM | None
    verdicts: Verdicts | None
    asked: Sequence[Propositionizer | KeptLLM]
    tell: Progress

    def observe_all(self, strategies: Sequence[Strategy]) -> tuple[list[_Observed], list[report.Skipped]]:
        """Run each; one that fails is left out, so that what the others found is kept."""
        observed: list[_Observed] = []
        skipped: list[report.Skipped] = []
        failures: list[Exception] = []
        for place, strategy in enumerate(strategies, 1):
            try:
                observed.append(self._observe(strategy, f"{strategy.name} ({place} of {len(strategies)})"))
            except StrategyUnavailable as reason:
                skipped.append(report.Skipped(strategy.name, str(reason)))
            except Exception as error:  # whatever a retriever or a server raises; told here and in the report
                logger.warning("%s failed (%s); it is left out.", strategy.name, type(error).__name__)
                skipped.append(report.Skipped(strategy.name, f"it failed: {describe(error)}"))
                failures.append(error)
        if failures and not observed:
            raise failures[0]
        return observed, skipped

    def _observe(self, strategy: Strategy, name: str) -> _Observed:
        """Build a strategy, ask it every question, and have LLMs read, answer and judge, where there are any.

        Raises:
            StrategyUnavailable: It cannot be run here.
        """
        corpus, questions = self.corpus, self.corpus.dataset.questions
        self.tell(f"{name}: indexing", 0, len(questions))
        corpus.take_embedded()  # by strategies before this one
        before = [each.figures for each in self.asked]
        index_seconds = 0.0
        units: list[str] = []
        engines: dict[str, BaseQueryEngine] = {}
        findings: dict[str, Finding] = {}
        read: dict[str, list[NodeWithScore]] = {}
        contexts: dict[str, list[str]] = {}
        took: list[float] = []
        for candidates, asked in groupby(questions, key=lambda question: question.candidates):
            started = corpus.clock()
            built = strategy.on(corpus.among(candidates))
            index_seconds += corpus.clock() - started
            units += corpus.take_embedded() if built.units is None else built.units
            for question in asked:
                started = time.perf_counter()
                results = built.retriever.retrieve(question.text)
                took.append(time.perf_counter() - started)
                default = results[: strategy.context_k]
                if built.context_retriever is not None:
                    default = built.context_retriever.retrieve(question.text)
                read[question.id] = _context(strategy, question, default)
                contexts[question.id] = _texts(_context(strategy, question, results[: corpus.depth]))
                nodes, default_texts = [result.node for result in results], _texts(read[question.id])
                findings[question.id] = self.judge.finding(question, nodes, contexts[question.id], default_texts)
                if built.query_engine is not None:
                    engines[question.id] = built.query_engine
                self.tell(name, len(findings), len(questions))
        lost = sum(finding.unlocated for finding in findings.values())
        if lost and corpus.documents:
            said = "%s: %d of its %d results are nowhere in the documents; they count as not from the gold passage."
            logger.warning(said, strategy.name, lost, sum(finding.results for finding in findings.values()))
        in_passages = bool(corpus.documents) and within_passages(findings)
        if not in_passages:  # then results are ranked as they are
            for key, found in findings.items():
                rank, gold_rank = found.unit_ranks
                findings[key] = replace(found, rank=rank, gold_rank=gold_rank)
        judged = Judged(judging.score(corpus.dataset, findings, in_passages, corpus.depth))
        if self.reader is not None:
            self._read(judged, contexts, self.reader, f"{strategy.name}: reading")
        if engines:
            self._ask(judged, findings, lambda question: engines[question.id].query(question.text), strategy.name)
        elif self.reader is not None and self.verdicts is not None:
            self._ask(judged, findings, answers.reading(read, self.reader), strategy.name)
        spent = [each.figures.since(earlier) for each, earlier in zip(self.asked, before, strict=True)]
        paid = [each.cost for each in spent if each.usage.requests]
        cost = report.Cost(
            units=len(units),
            tokens=sum(map(corpus.count_tokens, units)),
            index_seconds=index_seconds,
            query_ms=1000 * statistics.median(took),
            context_words=statistics.fmean(found.context_words for found in findings.values()),
            context_k=strategy.context_k,
            llm_calls=sum(each.usage.requests + each.cache_hits for each in spent),
            llm_tokens=sum(each.usage.total_tokens for each in spent),
            llm_dollars=None if None in paid else sum(filter(None, paid), 0.0),
        )
        judged.warn(strategy.name)
        bounds = {metric: bootstrap_interval(list(each.values()), _RESAMPLES) for metric, each in judged.scores.items()}
        result = report.StrategyResult(
            strategy.name,
            strategy.description,
            _is_ours(strategy.name),
            {metric: bound.mean for metric, bound in bounds.items()},
            {metric: (bound.low, bound.high) for metric, bound in bounds.items()},
            cost,
            {metric: reasons.total() for metric, reasons in judged.failed.items()},
        )
        return _Observed(result, judged.scores, findings)

    def _read(self, judged: Judged, contexts: Mapping[str, list[str]], reader: KeptLLM, name: str) -> None:
        """Have an LLM answer from the beginning of each context, and score it: `em@100`, `f1@100` and so on."""
        work = [(length, each) for length in READER_LENGTHS for each in self.corpus.dataset.questions if each.answers]
        prompts = []
        for length, each in work:
            context = "\n\n".join(judging.first_words(contexts[each.id], length, self.corpus.language))
            prompts.append([ChatMessage(_PROMPT.format(context=context, question=each.text))])
        for (length, each), reply in zip(work, at_once(reader.ask, prompts, partial(self.tell, name)), strict=True):
            for metric, measure in (("em", judging.exact_match), ("f1", judging.f1)):
                value = measure(reply, each.answers, self.corpus.language) if isinstance(reply, str) else reply
                judged.add(each.id, {f"{metric}@{length}": value})

    def _ask(self, judged: Judged, findings: dict[str, Finding], asked: Asked, name: str) -> None:
        """Have questions answered, and the answers judged."""
        questions, language = self.corpus.dataset.questions, self.corpus.language
        given = answers.answer_questions(asked, questions, partial(self.tell, f"{name}: answering"))
        for question, answer in given:
            if isinstance(answer, Answer):
                findings[question.id] = replace(findings[question.id], answer=answer.text)
        answers.score_answers(judged, given, language)
        if self.verdicts is not None:
            answers.judge_answers(judged, self.verdicts, given, partial(self.tell, f"{name}: judging"), name)


def _context(strategy: Strategy, question: Question, results: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """What a reader gets of results; they stay as they are."""
    nodes = [NodeWithScore(node=result.node.model_copy(), score=result.score) for result in results]
    for postprocessor in strategy.node_postprocessors:
        nodes = postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(question.text))
    return nodes


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [found.node.get_content(metadata_mode=MetadataMode.NONE) for found in nodes]


def _questions(dataset: EvaluationSet, observed: Sequence[_Observed]) -> Iterator[report.QuestionResult]:
    titles = {document.id_: title_of(document) or document.id_ for document in dataset.documents}
    for one in dataset.questions:
        found = {each.result.name: each.findings[one.id] for each in observed}
        yield report.QuestionResult(one.id, one.text, list(one.answers), titles.get(one.document_id, ""), found)


def _comparisons(observed: Sequence[_Observed]) -> Iterator[Comparison]:
    """The first of ours against every other strategy, or the first of all where none of ours was run."""
    values = {each.result.name: each.scores for each in observed}
    first = next((name for name in (_OURS, *filter(_is_ours, values), *values) if name in values), "")
    for metric in COMPARED:
        for second in values:
            ours, theirs = values[first].get(metric), values[second].get(metric)
            if second != first and ours and theirs:
                yield Comparison(metric, first, second, *randomisation_test(ours, theirs))


def _equal_contexts(dataset: EvaluationSet, observed: Sequence[_Observed]) -> Iterator[report.EqualContext]:
    answered = [question.id for question in dataset.questions if question.answers]
    for ours, other in product(observed, observed):
        if answered and ours.result.ours and not other.result.ours:
            words = other.result.cost.context_words
            first = judging.recall_within({key: ours.findings[key] for key in answered}, words)
            second = other.scores["answer_recall"]
            mean, other_mean = statistics.fmean(first.values()), statistics.fmean(second.values())
            tested = randomisation_test(first, second)
            yield report.EqualContext(ours.result.name, other.result.name, words, mean, other_mean, *tested)


def _is_ours(name: str) -> bool:
    return name == _OURS or name.startswith(f"{_OURS}-")


def _describe(dataset: EvaluationSet) -> report.DatasetInfo:
    digest = hashlib.sha256()
    for document in dataset.documents:
        digest.update(json.dumps([document.id_, document.text, dataset.passages.get(document.id_)]).encode())
    for question in dataset.questions:
        digest.update(json.dumps([question.id, question.text, question.answers, question.span]).encode())
    return report.DatasetInfo(
        name=dataset.name,
        language=dataset.language,
        documents=len(dataset.documents),
        passages=sum(len(dataset.passages.get(document.id_, [()])) for document in dataset.documents),
        questions=len(dataset.questions),
        length_unit="characters" if dataset.language in WITHOUT_SPACES else "words",
        hash=digest.hexdigest(),
        gold="passage" if dataset.relevance or any(each.span for each in dataset.questions) else "document",
    )


def _versions() -> dict[str, str]:
    installed = (package for package in _PACKAGES if any(distributions(name=package)))
    return {**{package: version(package) for package in installed}, "python": platform.python_version()}
