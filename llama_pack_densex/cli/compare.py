"""`densex compare` and `densex evaluate`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.status import Status
from rich.text import Text

from llama_pack_densex.cli.app import CompareCommand, EvaluateCommand
from llama_pack_densex.cli.ingest import make_propositionizer
from llama_pack_densex.cli.options import Evaluating
from llama_pack_densex.cli.output import figures, one_line, print_heading, print_json, print_table, waiting, write
from llama_pack_densex.evaluation.compare import REPLIES, Progress, compare, evaluate
from llama_pack_densex.evaluation.datasets import languages_of, read_dataset
from llama_pack_densex.evaluation.models import KeptLLM
from llama_pack_densex.evaluation.report import Report, StrategyResult
from llama_pack_densex.ingestion.progress import many, money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.models import NONE

_MAIN_WITH_ANSWERS = ("recall@1", "recall@5", "answer_recall@100", "answer_recall@200", "answer_recall@500")
_MAIN_WITHOUT = ("gold@1", "gold@5", "mrr@10", "ndcg@10")
_OF_ANSWERS: tuple[Sequence[str], ...] = (
    ("em@100", "f1@100", "em@500", "f1@500"),
    ("str_em", "answered", "cited", "supported"),
    ("context_relevance", "groundedness", "answer_relevance"),
)
_TITLES = {
    "answer_recall": "AR",
    "recall": "R",
    "mrr": "MRR",
    "ndcg": "nDCG",
    "em": "EM",
    "f1": "F1",
    "context_relevance": "context",
    "groundedness": "grounded",
    "answer_relevance": "relevant",
}
_MEANINGS = {
    "recall@1": "R@k: an answer is in one of the first k distinct passages; not for units that reach over several.",
    "answer_recall@100": "AR@l: an answer is in the first l {unit} that are read; context: {unit} read by default.",
    "gold@1": "gold@k: the {gold} that it is about is among the first k; context: {unit} read by default.",
    "em@100": "EM@l, F1@l: the reader's answers from the first l {unit}.",
    "str_em": 'str_em: an accepted answer is in the answer; answered: it is no "not found"; cited, supported: its '
    "sentences with a footnote, and with a proposition that says them. Failed items are not counted.",
    "groundedness": "By the judge: the context is relevant to the question, the answer grounded in it, and relevant to "
    "the question. Failed items are not counted.",
}
_SIGNIFICANT = 0.05

# replies of the length that is reckoned with, by what an LLM is asked for
_VERDICT = 'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
_STAND_INS = {"answers": "word " * 60 + "[^1]", "reader": "word " * 5, "judge": _VERDICT}


def compare_strategies(options: CompareCommand) -> bool:
    """Compare ways of retrieving, language by language; False where all of something failed."""
    if options.judge_model and not options.reader_model:
        raise typer.BadParameter("it needs --reader-model", param_hint="--judge-model")
    llm = options.llm
    if options.propositionizer == "llm":
        llm = llm or OPENAI_MODEL
    models = {"llm": llm, "reader_llm": options.reader_model, "judge_llm": options.judge_model}
    llms: dict[str, Any] = {use: named_llm(name) for use, name in models.items() if name not in (None, NONE)}
    propositionizer = None
    if options.propositionizer is not None:
        propositionizer = make_propositionizer(options.propositionizer, llm, **options.chosen("max_cost"))
    strategies = None
    if options.strategies is not None:
        strategies = [name.strip() for name in options.strategies.split(",") if name.strip()]
    failed: list[str] = []
    for language, folder in _languages(options, options.dataset):
        with waiting("Reading the dataset") as status:
            dataset = read_dataset(
                options.dataset,
                options.documents,
                name=None if language == options.language else f"{options.dataset.stem} ({language})",
                language=language,
                max_questions=options.limit,
                leave_out=[options.out] if options.out else [],
            )
            report = compare(
                dataset,
                strategies=strategies,
                embed_model=options.embed_model,
                propositionizer=propositionizer,
                trulens=options.trulens,
                cache_dir=options.out,
                max_cost=options.max_cost,
                progress=_progress_on(status),
                **llms,
            )
        _write_and_print(report, folder)
        failed += report.all_failed
    return not failed


def evaluate_index(options: EvaluateCommand) -> bool:
    """Ask an index questions, language by language; False where all of something failed."""
    index = options.index
    results: dict[str | None, Any] = {}
    failed: list[str] = []
    for language, folder in _languages(options, options.questions):
        llms = _llms(options)
        answers = llms.get("answers", NONE)
        pack = index.open(proposition_llm=NONE, query_llm=answers, similarity_top_k=options.top_k)
        with waiting("Reading the questions") as status:
            report = evaluate(
                pack,
                options.questions,
                name=index.name,
                language=language,
                max_questions=options.limit,
                reader_llm=llms.get("reader"),
                judge_llm=llms.get("judge"),
                trulens=None if options.estimate else options.trulens,
                progress=_progress_on(status),
            )
        requests = {role: llm.figures for role, llm in llms.items()}
        if language != options.language and not options.as_json:
            print_heading(str(language))
        if options.estimate:
            results[language] = requests
        else:
            results[language] = _main_figures(report)
            failed += report.all_failed
            _write_and_print(report, folder, is_printed=not options.as_json)
        if not options.as_json:
            _print_requests(requests, options.estimate)
    if options.as_json:
        print_json(results.get(options.language, results))
    return not failed


def _languages(options: Evaluating, questions: Path) -> Iterator[tuple[str | None, Path | None]]:
    """The languages to ask in, and the folder of each one's report: of several, each has one of its own."""
    languages = [] if options.language else languages_of(questions)
    if len(languages) < 2:
        yield options.language, options.out
        return
    for language in languages:
        yield language, options.out and options.out / language


def _progress_on(status: Status) -> Progress:
    return lambda what, done, total: status.update(f"{what}: {done:,} of {total:,}")


def _llms(options: EvaluateCommand) -> dict[str, KeptLLM]:
    """The LLMs that are asked, by what for; for an estimate they only count what they would be asked."""
    default = OPENAI_MODEL if os.environ.get("OPENAI_API_KEY") else None
    names = {
        "answers": options.query_llm or default,
        "reader": options.reader_model,
        "judge": options.judge_model,
    }
    replies = options.out and options.out / REPLIES
    if replies and options.estimate and not replies.exists():
        replies = None
    return {
        role: KeptLLM(
            named_llm(name, asked=not options.estimate),
            replies,
            options.max_cost,
            _STAND_INS[role] if options.estimate else None,
        )
        for role, name in names.items()
        if name not in (None, NONE)
    }


def _main_figures(report: Report) -> dict[str, Any]:
    """The metrics of a report with one strategy by their usual names, with how many items failed."""
    (strategy,) = report.strategies
    metrics = {name: value for name, value in strategy.metrics.items() if value is not None}
    return {
        **metrics,
        "failed": strategy.failed,
        "questions": report.dataset.questions,
        "language": report.dataset.language,
    }


def _write_and_print(report: Report, folder: Path | None, is_printed: bool = True) -> None:
    """Write a report into a folder, and print its main figures and what was left out."""
    files = [] if folder is None else report.write(folder)
    if not is_printed:
        return
    dataset = report.dataset
    write(
        f"{one_line(dataset.name)}: {many(dataset.questions, 'question')} about "
        f"{many(dataset.documents, 'document')} in {many(dataset.passages, 'passage')}. Embedding model: "
        f"{report.settings.embed_model or 'none'}; propositions: {report.settings.propositionizer or 'none'}."
    )
    if report.strategies:
        main = _MAIN_WITH_ANSWERS if _is_measured(report, "answer_recall") else _MAIN_WITHOUT
        lengths = [strategy.cost.context_words for strategy in report.strategies]
        _print_metrics(report, main, "context", lengths)
        if report.comparisons:
            first = one_line(report.comparisons[0].first)
            write(f"*: differs from {first}, p < {_SIGNIFICANT} (paired randomisation test).", "dim")
    for metrics in _OF_ANSWERS:
        if any(_is_measured(report, metric) for metric in metrics):
            failed = [max(strategy.failed.get(metric, 0) for metric in metrics) for strategy in report.strategies]
            _print_metrics(report, metrics, "failed", failed)
    for reason in dict.fromkeys(skipped.reason for skipped in report.skipped):
        names = ", ".join(one_line(skipped.name) for skipped in report.skipped if skipped.reason == reason)
        write(f"Left out: {names}: {reason.removesuffix('.')}.")
    if report.all_failed:
        write(f"All failed for: {', '.join(report.all_failed)}.")
    if files:
        write(f"Written: {', '.join(one_line(str(file)) for file in files)}.")


def _is_measured(report: Report, metric: str) -> bool:
    return any(strategy.metrics.get(metric) is not None for strategy in report.strategies)


def _print_metrics(report: Report, metrics: Sequence[str], last_title: str, last: Sequence[float]) -> None:
    """Print those metrics that were measured, a row a strategy, with one more column, and what they mean."""
    metrics = [metric for metric in metrics if _is_measured(report, metric)]
    rows: list[list[str | Text]] = [
        [
            Text(one_line(strategy.name), "bold" if strategy.ours else ""),
            *(_cell(report, strategy, metric) for metric in metrics),
            f"{number:,.0f}",
        ]
        for strategy, number in zip(report.strategies, last, strict=True)
    ]
    print_table(["strategy", *map(figures, [*map(_title, metrics), last_title])], rows, gap=1)
    write()
    for metric in metrics:
        if metric in _MEANINGS:
            write(_MEANINGS[metric].format(unit=report.dataset.length_unit, gold=report.dataset.gold), "dim")


def _title(metric: str) -> str:
    kind, at, k = metric.partition("@")
    return _TITLES.get(kind, kind) + at + k


def _cell(report: Report, strategy: StrategyResult, metric: str) -> Text:
    """A figure: the best is green, and one that differs from ours has an asterisk."""
    value = strategy.metrics.get(metric)
    if value is None:
        return Text("- ", "dim")
    differing = [(tested.metric, tested.second) for tested in report.comparisons if tested.p_value < _SIGNIFICANT]
    mark = "*" if (metric, strategy.name) in differing else " "
    best = max(other.metrics.get(metric) or 0.0 for other in report.strategies)
    return Text(f"{value:.3f}{mark}", "bold green" if value == best else "")


def _print_requests(requests: Mapping[str, RequestFigures], is_estimate: bool) -> None:
    """Print what LLMs were, or would be, asked, and what that costs."""
    rows = []
    for role, of_role in requests.items():
        used = of_role.usage
        numbers = (used.requests, of_role.cache_hits, used.input_tokens, used.output_tokens)
        rows.append([role, one_line(of_role.model), *(f"{number:,}" for number in numbers), money(of_role.cost)])
    if rows:
        titles = ("requests", "kept", "tokens sent", "received", "cost")
        print_table(["LLM of", "model", *map(figures, titles)], rows)
    if is_estimate:
        write("Replies are taken to be of the usual length.", "dim")
