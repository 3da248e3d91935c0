"""What `densex compare`, `densex score` and `densex score-propositions` print."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from llama_pack_densex.cli.output import bare_table, many, one_line, progress, write

if TYPE_CHECKING:
    from llama_pack_densex.evaluation.propositions import PropositionReport
    from llama_pack_densex.evaluation.report import Report
    from llama_pack_densex.evaluation.runs import ScoreReport

_SHOWN = ("recall@1", "recall@5", "answer_recall@100", "answer_recall@200", "answer_recall@500")
_WITHOUT_ANSWERS = ("gold@1", "gold@5", "mrr@10", "ndcg@10")
_TITLES = {
    "answer_recall": "AR", "recall": "R", "mrr": "MRR", "ndcg": "nDCG", "em": "EM", "f1": "F1",
    "context_relevance": "context", "groundedness": "grounded", "answer_relevance": "relevant",
}  # fmt: skip
_ANSWERS = {
    ("em@100", "f1@100", "em@500", "f1@500"): "EM@l, F1@l: the reader's answers from the first l {unit}.",
    ("str_em", "answered", "cited", "supported"): (
        'str_em: an accepted answer is in the answer; answered: it is no "not found"; cited, supported: its sentences '
        "with a footnote, and with a proposition that says them. Failed items are not counted."
    ),
    ("context_relevance", "groundedness", "answer_relevance"): (
        "By the judge: the context is relevant to the question, the answer grounded in it, and relevant to the "
        "question. Failed items are not counted."
    ),
}
_SIGNIFICANT = 0.05
_NAMED = 5  # passages that only one side has


def print_report(console: Console, report: Report, written: Sequence[Path] = ()) -> None:
    """Print the main figures, what was left out, and what was written."""
    dataset, settings = report.dataset, report.settings
    write(
        console,
        f"{one_line(dataset.name)}: {many(dataset.questions, 'question')} about "
        f"{many(dataset.documents, 'document')} in {many(dataset.passages, 'passage')}. Embedding model: "
        f"{settings.embed_model or 'none'}; propositions: {settings.propositionizer or 'none'}.",
    )
    if report.strategies:
        console.print()
        metrics = _SHOWN if _is_given(report, "answer_recall") else _WITHOUT_ANSWERS
        context = {strategy.name: strategy.cost.context_words for strategy in report.strategies}
        console.print(_table(report, metrics, "context", context))
        console.print()
        for line in _legend(report):
            write(console, line, style="dim")
    for group, meaning in _ANSWERS.items():
        if any(_is_given(report, name) for name in group):
            failed = {one.name: max(one.failed.get(name, 0) for name in group) for one in report.strategies}
            console.print()
            console.print(_table(report, group, "failed", failed))
            console.print()
            write(console, meaning.format(unit=dataset.length_unit), style="dim")
    for reason in dict.fromkeys(left.reason for left in report.skipped):
        names = ", ".join(one_line(left.name) for left in report.skipped if left.reason == reason)
        write(console, f"Left out: {names}: {reason}.")
    if written:
        write(console, f"Written: {', '.join(one_line(str(path)) for path in written)}.")


def _table(report: Report, metrics: Sequence[str], last: str, lasts: Mapping[str, float]) -> Table:
    """Metrics that are given, a row a strategy, with one more column."""
    shown = [name for name in metrics if _is_given(report, name)]
    best = {name: max(strategy.metrics.get(name) or 0.0 for strategy in report.strategies) for name in shown}
    differing = {(tested.metric, tested.second) for tested in report.comparisons if tested.p_value < _SIGNIFICANT}
    titles = ["".join([_TITLES.get(kind, kind), at, k]) for kind, at, k in (name.partition("@") for name in shown)]
    table = bare_table(Column("strategy", overflow="fold"), *map(_figures, [*titles, last]), gap=1)
    for strategy in report.strategies:
        cells = [Text(one_line(strategy.name), style="bold" if strategy.ours else "")]
        for name in shown:
            value, mark = strategy.metrics.get(name), "*" if (name, strategy.name) in differing else " "
            style = "dim" if value is None else "bold green" if value == best[name] else ""
            cells.append(Text("- " if value is None else f"{value:.3f}{mark}", style=style))
        table.add_row(*cells, f"{lasts[strategy.name]:,.0f}")
    return table


def _is_given(report: Report, metric: str) -> bool:
    return any(strategy.metrics.get(metric) is not None for strategy in report.strategies)


def _legend(report: Report) -> Iterator[str]:
    unit = report.dataset.length_unit
    if _is_given(report, "recall@1"):
        yield "R@k: an answer is in one of the first k distinct passages; not for units that reach over several."
    if _is_given(report, "answer_recall"):
        yield f"AR@l: an answer is in the first l {unit} that are read; context: {unit} read by default."
    elif _is_given(report, "gold@1"):
        named = "the passage that it was written for" if report.dataset.gold == "passage" else "the document it names"
        yield f"gold@k: {named} is among the first k; context: {unit} read by default."
    if report.comparisons:
        first = one_line(report.comparisons[0].first)
        yield f"*: differs from {first}, p < {_SIGNIFICANT} (paired randomisation test)."


@contextmanager
def shown_progress() -> Iterator[Callable[[str, int, int], None]]:
    """What to call with what is being done, how much of it is done, and how much there is."""
    with progress("{task.description}") as bar:
        task = bar.add_task("Reading the dataset", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


@contextmanager
def said_once(logger: str) -> Iterator[None]:
    """Let a logger say each thing once: every strategy of ours makes a pack, and each warns of the same model."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        new = record.getMessage() not in said
        said.add(record.getMessage())
        return new

    logging.getLogger(logger).addFilter(is_new)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(is_new)


def print_scores(console: Console, report: ScoreReport) -> None:
    """Print the scores and, for two runs and more, the comparisons."""
    metrics = list(report.runs[0].scores)
    scores = _paired_table("run", metrics, "95 %", "dim")
    for run in report.runs:
        cells = []
        for metric in metrics:
            bounds = run.intervals[metric]
            cells += [f"{run.scores[metric]:.4f}", f"{bounds.low:.3f}-{bounds.high:.3f}"]
        scores.add_row(one_line(run.name), *cells)
    write(console, f"{many(report.questions, 'question')} with labels.")
    console.print()
    console.print(scores)
    for run in report.runs:
        if run.unanswered:
            write(console, f"{one_line(run.name)} lacks {run.unanswered:,} of the questions; they count as 0.")
    if not report.comparisons:
        return
    console.print()
    write(console, "First minus second, with p of the paired randomisation test")
    differences = _paired_table("runs", metrics, "p", "")
    rows: dict[str, list[str]] = {}
    for compared in report.comparisons:  # metric by metric
        p_value = "<0.001" if compared.p_value < 0.001 else f"{compared.p_value:.3f}"
        row = rows.setdefault(one_line(f"{compared.first} vs {compared.second}"), [])
        row += [f"{compared.difference:+.4f}", p_value]
    for name, cells in rows.items():
        differences.add_row(name, *cells)
    console.print(differences)


def print_proposition_scores(console: Console, report: PropositionReport) -> None:
    """Print the scores, what both sides are like, and the passages that only one of them has."""
    write(console, f"{many(report.passages, 'passage')}. Similarity: {one_line(report.similarity)}.")
    console.print()
    for metric, value in report.scores.items():
        bounds = report.intervals[metric]
        write(console, f"{metric:9} {value:.3f} ({bounds.low:.3f}-{bounds.high:.3f})")
    console.print()
    sides = (report.predicted, report.reference)
    titles = (f"predicted: {one_line(report.predicted.name)}", f"reference: {one_line(report.reference.name)}")
    table = bare_table(Column(overflow="fold"), *(Column(title, justify="right", overflow="fold") for title in titles))
    table.add_row("propositions", *(f"{side.propositions:,}" for side in sides))
    table.add_row("a passage", *(f"{side.a_passage:.1f}" for side in sides))
    table.add_row(f"{report.length_unit} each", *(f"{side.length:.1f}" for side in sides))
    for kind in report.reference.failing:
        of = " (passages)" if kind == "coverage" else ""
        table.add_row(f"fails {kind.replace('_', '-')}{of}", *(f"{100 * side.failing[kind]:.1f} %" for side in sides))
    console.print(table)
    for passages, said in ((report.missing, "missing, counted as 0"), (report.extra, "without a reference")):
        if passages:
            console.print()
            write(console, f"{many(len(passages), 'passage')} {said}:")
            for passage in passages[:_NAMED]:
                write(console, one_line(passage), bullet="- ")
            if len(passages) > _NAMED:
                write(console, f"and {len(passages) - _NAMED:,} more (--json names all).")


def _paired_table(first: str, metrics: Sequence[str], beside: str, style: str) -> Table:
    """A table with two columns for each metric."""
    figures = (column for metric in metrics for column in (_figures(metric), _figures(beside, style)))
    return bare_table(Column(first, overflow="fold"), *figures)


def _figures(title: str, style: str = "") -> Column:
    return Column(title, justify="right", style=style, no_wrap=True)
