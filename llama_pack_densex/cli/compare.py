"""`densex compare` and `densex evaluate`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import typer
from llama_index.core.llms import LLM

from llama_pack_densex.cli.app import CompareCommand, EvaluateCommand, Evaluating
from llama_pack_densex.cli.ingest import make_propositionizer
from llama_pack_densex.cli.output import (
    is_terminal,
    print_heading,
    print_json,
    print_table,
    waiting,
    write,
)
from llama_pack_densex.cli.places import check_embedding_server, check_server
from llama_pack_densex.cli.spending import (
    Expense,
    expenses_of_embedding,
    expenses_of_indexing,
    expenses_of_llm,
    is_agreed,
    is_local_name,
)
from llama_pack_densex.evaluation import KeptLLM, Report, read_dataset
from llama_pack_densex.evaluation.answers import TRIAD
from llama_pack_densex.evaluation.compare import (
    EMBEDDINGS,
    READER_LENGTHS,
    REPLIES,
    compare,
    evaluate,
)
from llama_pack_densex.evaluation.datasets import languages_of
from llama_pack_densex.evaluation.evaluation_set import EvaluationSet
from llama_pack_densex.evaluation.metrics import METRICS, kind_of, title_of
from llama_pack_densex.evaluation.report import StrategyResult
from llama_pack_densex.evaluation.strategies import resolve_strategies
from llama_pack_densex.evaluation.strategy import Strategy
from llama_pack_densex.ingestion.progress import many, money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm, with_provider
from llama_pack_densex.llm.usage import RequestFigures, Usage, count_tokens
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.parsers import PropositionNodeParser
from llama_pack_densex.options import PackOptions
from llama_pack_densex.text.terminal import one_line

_WITH_ANSWERS = (
    "recall@1",
    "recall@5",
    "answer_recall@100",
    "answer_recall@200",
    "answer_recall@500",
)
_WITHOUT_ANSWERS = ("gold@1", "gold@5", "mrr@10", "ndcg@10")
_OF_READER = ("em@100", "f1@100", "em@500", "f1@500")
_OF_ANSWERS = ("str_em", "answered", "cited", "supported")
_LAST = {"context": "{unit} in the default context.", "failed": "items that are not counted."}
_SIGNIFICANT = 0.05

# for a rough estimate of the cost of a comparison
_TOKENS_OF_A_WORD = 1.4
_TOKENS_OF_A_PROMPT = 300
_TOKENS_OF_A_PASSAGE = 256
_TASKS = {"reader_llm": "answers", "judge_llm": "verdicts", "llm": "headers"}

# replies of the usual length, by the task of the LLM
_VERDICT = (
    'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
)
_STAND_INS = {
    "answers": "word " * 60 + "[^1]",
    "reader": "word " * 5,
    "judge": _VERDICT,
    "llm": "word " * 100,
}


def compare_strategies(options: CompareCommand) -> bool:
    """Compare retrieval strategies, language by language.

    Returns:
        False if the user did not agree to the cost, or all answers or all verdicts failed.
    """
    if options.judge_model and not options.reader_model:
        raise typer.BadParameter("needs --reader-model", param_hint="--judge-model")
    arguments = _arguments(options)
    for role in _TASKS:
        check_server(arguments.get(role))
    check_embedding_server(options.embed_model)
    comparisons = [
        _Comparison(options, arguments, language, folder, _read_dataset(options, language))
        for language, folder in _languages(options, options.dataset)
    ]
    expenses = [expense for comparison in comparisons for expense in comparison.expenses()]
    if not is_agreed(expenses, options):
        return False
    results = {}
    failed = []
    for comparison in comparisons:
        report = comparison.run()
        _publish(options, report, comparison.folder)
        results[comparison.language] = report.to_dict()
        failed += report.all_failed
    if options.as_json:
        print_json(results.get(options.language, results))
    return not failed


def _read_dataset(options: CompareCommand, language: str | None) -> EvaluationSet:
    name = None
    if language != options.language:  # one of several
        name = f"{options.dataset.stem} ({language})"
    with waiting("Reading the dataset"):
        return read_dataset(
            options.dataset,
            options.documents,
            name=name,
            language=language,
            max_questions=options.limit,
            leave_out=[options.out] if options.out else [],
        )


@dataclass(frozen=True)
class _Comparison:
    """A comparison in one language, and its expected expenses.

    Args:
        options: The command's options.
        arguments: The arguments of `compare` that are the same for each language.
        language: The language; None to detect it.
        folder: The folder for the report.
        dataset: The questions in that language.
    """

    options: CompareCommand
    arguments: Mapping[str, Any]
    language: str | None
    folder: Path | None
    dataset: EvaluationSet

    def run(self, **stand_ins: Any) -> Report:
        """Compare; `stand_ins` override arguments of `compare`."""
        return compare(
            self.dataset,
            cache_dir=self.options.out,
            show_progress=is_terminal(),
            ignore_identical_ids=not self.options.keep_identical_ids,
            **{**self.arguments, **stand_ins},
        )

    def expenses(self) -> list[Expense]:
        """Return what the comparison is going to request from models."""
        expenses = self._expenses_of_documents()
        llms = {role: llm for role, llm in self.arguments.items() if role in _TASKS}
        if not llms:
            return expenses
        replies = _kept(self.options, REPLIES)
        can_count = replies and not expenses
        usages = self._count_usages(llms, replies) if can_count else self._guess_usages()
        for role, llm in llms.items():
            expenses += expenses_of_llm(llm, usages[role], purpose=f" for {_TASKS[role]}")
        return expenses

    def _expenses_of_documents(self) -> list[Expense]:
        """Return the expenses of propositions and embeddings that are not kept in the report's folder."""
        expenses = []
        documents = self.dataset.documents
        propositionizer = self.arguments.get("propositionizer")
        if propositionizer:
            replies = _kept(self.options, REPLIES)
            if replies:
                propositionizer = propositionizer.keeping_replies(replies)
            parser = PropositionNodeParser(propositionizer=propositionizer)
            expenses += expenses_of_indexing(documents, parser)
        embed_model = self.options.embed_model
        if embed_model is not None and not _kept(self.options, EMBEDDINGS):
            tokens = sum(count_tokens(document.text) for document in documents)
            # each strategy splits the documents in its own way
            expenses += expenses_of_embedding(embed_model, len(self._strategies()) * tokens)
        return expenses

    def _strategies(self) -> Sequence[Strategy]:
        return resolve_strategies(self.arguments.get("strategies"), self.dataset.has_candidates)

    def _count_usages(self, llms: Mapping[str, LLM], replies: Path | None) -> dict[str, Usage]:
        """Count the requests that an earlier comparison has no replies to, by a run with made-up replies."""
        counting = {
            role: KeptLLM(llm, replies, stand_in=_stand_in(role)) for role, llm in llms.items()
        }
        self.run(**counting, trulens=None)
        return {role: llm.figures.usage for role, llm in counting.items()}

    def _guess_usages(self) -> dict[str, Usage]:
        """Guess the usage of LLMs roughly: without propositions, the contexts are not known."""
        strategies = self._strategies()
        answers = len(self.dataset.questions) * len(strategies)
        read = fmean(READER_LENGTHS) * _TOKENS_OF_A_WORD
        judged = max(READER_LENGTHS) * _TOKENS_OF_A_WORD
        reader = _usage("reader_llm", answers * len(READER_LENGTHS), read)
        judge = _usage("judge_llm", answers * len(TRIAD), judged)
        headers = Usage()
        if any(strategy.name.startswith("contextual") for strategy in strategies):
            for document in self.dataset.documents:  # each passage is sent with its whole document
                tokens = count_tokens(document.text)
                headers += _usage("llm", ceil(tokens / _TOKENS_OF_A_PASSAGE), tokens)
        return {"reader_llm": reader, "judge_llm": judge, "llm": headers}


def _kept(options: Evaluating, name: str) -> Path | None:
    """Return a file that an earlier command left in the report's folder; None if there is none."""
    file = options.out and options.out / name
    if file and file.exists():
        return file
    return None


def _stand_in(role: str) -> str:
    return _STAND_INS[role.removesuffix("_llm")]


def _usage(role: str, requests: int, context: float) -> Usage:
    """Return the usage of requests that have `context` tokens of context each."""
    sent = round(requests * (context + _TOKENS_OF_A_PROMPT))
    return Usage(requests, sent, requests * count_tokens(_stand_in(role)))


def _arguments(options: CompareCommand) -> dict[str, Any]:
    """Return the arguments of `compare` that are the same for each language."""
    llm = options.llm
    if options.propositionizer == "llm":
        llm = llm or OPENAI_MODEL
    models = {"llm": llm, "reader_llm": options.reader_model, "judge_llm": options.judge_model}
    arguments = options.chosen("embed_model", "trulens", "max_cost")
    arguments |= {use: named_llm(name) for use, name in models.items() if name not in (None, NONE)}
    if options.propositionizer is not None:
        if options.propositionizer.startswith("recorded:"):
            llm = None  # it is for headers only
        arguments["propositionizer"] = make_propositionizer(
            options.propositionizer, llm, **options.chosen("max_cost")
        )
    if options.strategies is not None:
        names = map(str.strip, options.strategies.split(","))
        arguments["strategies"] = [name for name in names if name]
    return arguments


def evaluate_index(options: EvaluateCommand) -> bool:
    """Ask an index questions, language by language.

    Returns:
        False if the user did not agree to the cost, or all answers or all verdicts failed.
    """
    if not options.estimate and not is_agreed(_expenses_of_evaluation(options), options):
        return False
    results = {}
    failed = []
    for language, folder in _languages(options, options.questions):
        if not options.as_json and language != options.language:
            print_heading(str(language))
        report, requests = _evaluate(options, language, options.estimate)
        if options.estimate:
            results[language] = requests
        else:
            _publish(options, report, folder)
            results[language] = _main_figures(report)
            failed += report.all_failed
        if not options.as_json:
            _print_requests(requests, options.estimate)
    if options.as_json:
        print_json(results.get(options.language, results))
    return not failed


def _evaluate(
    options: EvaluateCommand, language: str | None, is_estimate: bool
) -> tuple[Report, dict[str, RequestFigures]]:
    """Ask the questions in one language; return the report, and the (estimated) requests of each LLM."""
    llms = _llms(options, is_estimate)
    pack = options.index.open(
        proposition_llm=NONE,
        query_llm=llms.get("answers", NONE),
        similarity_top_k=options.top_k,
        **options.chosen("embed_model", *PackOptions.model_fields),
    )
    report = evaluate(
        pack,
        options.questions,
        name=options.index.name,
        language=language,
        max_questions=options.limit,
        reader_llm=llms.get("reader"),
        judge_llm=llms.get("judge"),
        trulens=None if is_estimate else options.trulens,
        show_progress=is_terminal(),
        ignore_identical_ids=not options.keep_identical_ids,
    )
    return report, {role: llm.figures for role, llm in llms.items()}


def _expenses_of_evaluation(options: EvaluateCommand) -> list[Expense]:
    """Return what the LLMs would be asked, counted by an evaluation with made-up replies."""
    names = {role: with_provider(name) for role, name in _llm_names(options).items()}
    costly = {role: name for role, name in names.items() if not is_local_name(name)}
    if not costly:
        return []
    for name in names.values():
        check_server(named_llm(name))
    expenses = []
    for language, _ in _languages(options, options.questions):
        _, requests = _evaluate(options, language, is_estimate=True)
        for role, name in costly.items():
            expenses.append(Expense.of(f"{name} ({role})", requests[role]))
    return expenses


def _languages(options: Evaluating, questions: Path) -> Iterator[tuple[str | None, Path | None]]:
    """Yield the languages to ask in, each with the folder of its report: a subfolder if there are several."""
    languages = []
    if not options.language:
        languages = languages_of(questions)
    if len(languages) < 2:
        yield options.language, options.out
        return
    for language in languages:
        yield language, options.out and options.out / language


def _llm_names(options: EvaluateCommand) -> dict[str, str]:
    """Return the names of the LLMs that are used, by role."""
    query_llm = options.query_llm
    if not query_llm and os.environ.get("OPENAI_API_KEY"):
        query_llm = OPENAI_MODEL
    names = {"answers": query_llm, "reader": options.reader_model, "judge": options.judge_model}
    return {role: name for role, name in names.items() if name is not None and name != NONE}


def _llms(options: EvaluateCommand, is_estimate: bool) -> dict[str, KeptLLM]:
    """Return the LLMs that are used, by role; for an estimate they only count their requests."""
    replies = options.out and options.out / REPLIES
    stand_ins: Mapping[str, str] = {}
    if is_estimate:
        replies = _kept(options, REPLIES)
        stand_ins = _STAND_INS
    llms = {}
    for role, name in _llm_names(options).items():
        llm = named_llm(name, is_called=not is_estimate)
        llms[role] = KeptLLM(llm, replies, options.max_cost, stand_ins.get(role))
    return llms


def _main_figures(report: Report) -> dict[str, Any]:
    """Return the metrics of a report on one strategy by their usual names, with numbers of failures."""
    (strategy,) = report.strategies
    return {
        **{metric: value for metric, value in strategy.metrics.items() if value is not None},
        "failed": strategy.failed,
        "questions": report.dataset.questions,
        "language": report.dataset.language,
    }


def _publish(
    options: CompareCommand | EvaluateCommand, report: Report, folder: Path | None
) -> None:
    """Write a report to its folder, and print it unless the output is JSON."""
    files = []
    if folder:
        files = [one_line(str(file)) for file in report.write(folder)]
    if options.as_json:
        return
    _print_report(report)
    if files:
        write(f"Written: {', '.join(files)}.")


def _print_report(report: Report) -> None:
    """Print the main figures, and what was left out."""
    dataset = report.dataset
    write(
        f"{one_line(dataset.name)}: {many(dataset.questions, 'question')} about "
        f"{many(dataset.documents, 'document')} in {many(dataset.passages, 'passage')}. Embedding model: "
        f"{report.settings.embed_model or 'none'}; propositions: {report.settings.propositionizer or 'none'}."
    )
    lengths = [strategy.cost.context_words for strategy in report.strategies]
    main = _WITH_ANSWERS if _is_measured(report, "answer_recall") else _WITHOUT_ANSWERS
    _print_metrics(report, main, "context", lengths)
    if report.comparisons:
        first = one_line(report.comparisons[0].first)
        write(f"*: differs from {first}, p < {_SIGNIFICANT} (paired randomisation test).", "dim")
    for names in (_OF_READER, _OF_ANSWERS, TRIAD):
        failures = []
        for strategy in report.strategies:
            failures.append(max(strategy.failed.get(metric, 0) for metric in names))
        _print_metrics(report, names, "failed", failures)
    _print_skipped(report)
    if report.all_failed:
        write(f"All failed for: {', '.join(report.all_failed)}.")


def _print_skipped(report: Report) -> None:
    names_by_reason = defaultdict(list)
    for skipped in report.skipped:
        names_by_reason[skipped.reason].append(one_line(skipped.name))
    for reason, names in names_by_reason.items():
        write(f"Left out: {', '.join(names)}: {reason.removesuffix('.')}.")


def _print_metrics(
    report: Report, names: Sequence[str], last_title: str, last: Sequence[float]
) -> None:
    """Print the metrics that were measured, one row per strategy, with an extra last column and a legend."""
    metrics = [metric for metric in names if _is_measured(report, metric)]
    if not metrics:
        return
    differing = _differences(report)
    rows = []
    for strategy, number in zip(report.strategies, last, strict=True):
        values = (_marked_value(strategy, metric, differing) for metric in metrics)
        rows.append([strategy.name, *values, f"{number:,.0f}"])
    print_table(["strategy", *map(title_of, metrics), last_title], rows, gap=1)
    write()
    dataset = report.dataset
    described = [METRICS[kind] for kind in dict.fromkeys(map(kind_of, metrics))]
    legend = {metric.name: metric.meaning for metric in described} | {last_title: _LAST[last_title]}
    for name, meaning in legend.items():
        write(f"{name}: {meaning.format(unit=dataset.length_unit, gold=dataset.gold)}", "dim")


def _differences(report: Report) -> set[tuple[str, str]]:
    """Return the pairs of a metric and a strategy's name in which it differs significantly from the first."""
    tests = (test for test in report.comparisons if test.p_value < _SIGNIFICANT)
    return {(test.metric, test.second) for test in tests}


def _marked_value(
    strategy: StrategyResult, metric: str, differing: Collection[tuple[str, str]]
) -> str:
    value = strategy.metrics.get(metric)
    if value is None:
        return "- "
    if (metric, strategy.name) in differing:
        return f"{value:.3f}*"
    return f"{value:.3f} "


def _is_measured(report: Report, metric: str) -> bool:
    return any(strategy.metrics.get(metric) is not None for strategy in report.strategies)


def _print_requests(requests: Mapping[str, RequestFigures], is_estimate: bool) -> None:
    """Print the requests that LLMs got, or would get, and their cost."""
    rows = []
    for role, figures in requests.items():
        usage = figures.usage
        numbers = (usage.requests, figures.cache_hits, usage.input_tokens, usage.output_tokens)
        rows.append([role, figures.model, *map("{:,}".format, numbers), money(figures.cost)])
    if rows:
        titles = ("LLM of", "model", "requests", "kept", "tokens sent", "received", "cost")
        print_table(titles, rows, texts=2)
    if is_estimate and rows:
        write("Replies are assumed to have the usual length.", "dim")
    elif is_estimate:
        write("No LLM is asked.", "dim")
