"""What `densex compare`, `evaluate`, `score` and `score-propositions` print; little is imported for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column
from rich.text import Text

from llama_pack_densex.cli.output import figures, one_line, print_table, progress, write
from llama_pack_densex.ingestion.progress import many, money

if TYPE_CHECKING:
    from llama_pack_densex.evaluation.propositions import PropositionReport
    from llama_pack_densex.evaluation.report import Report
    from llama_pack_densex.evaluation.runs import ScoreReport
    from llama_pack_densex.llm.usage import RequestFigures

_WITH_ANSWERS = ("recall@1", "recall@5", "answer_recall@100", "answer_recall@200", "answer_recall@500")
_WITHOUT = ("gold@1", "gold@5", "mrr@10", "ndcg@10")
_ANSWERS = (
    ("em@100", "f1@100", "em@500", "f1@500"),
    ("str_em", "answered", "cited", "supported"),
    ("context_relevance", "groundedness", "answer_relevance"),
)
_TITLES = {
    "answer_recall": "AR", "recall": "R", "mrr": "MRR", "ndcg": "nDCG", "em": "EM", "f1": "F1",
    "context_relevance": "context", "groundedness": "grounded", "answer_relevance": "relevant",
}  # fmt: skip
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


def print_report(report: Report, written: Sequence[Path] = ()) -> None:
    """Print the main figures, what was left out, and what was written."""
    dataset, settings = report.dataset, report.settings
    write(
        f"{one_line(dataset.name)}: {many(dataset.questions, 'question')} about "
        f"{many(dataset.documents, 'document')} in {many(dataset.passages, 'passage')}. Embedding model: "
        f"{settings.embed_model or 'none'}; propositions: {settings.propositionizer or 'none'}.",
    )
    if report.strategies:
        metrics = _WITH_ANSWERS if _is_given(report, "answer_recall") else _WITHOUT
        context = {strategy.name: strategy.cost.context_words for strategy in report.strategies}
        _print_metrics(report, metrics, "context", context)
        if report.comparisons:
            first = one_line(report.comparisons[0].first)
            write(f"*: differs from {first}, p < {_SIGNIFICANT} (paired randomisation test).", "dim")
    for group in _ANSWERS:
        if any(_is_given(report, name) for name in group):
            failed = {one.name: max(one.failed.get(name, 0) for name in group) for one in report.strategies}
            _print_metrics(report, group, "failed", failed)
    for reason in dict.fromkeys(left.reason for left in report.skipped):
        lacking = ", ".join(one_line(left.name) for left in report.skipped if left.reason == reason)
        write(f"Left out: {lacking}: {reason.removesuffix('.')}.")
    if report.all_failed:
        write(f"All failed for: {', '.join(report.all_failed)}.")
    if written:
        write(f"Written: {', '.join(one_line(str(path)) for path in written)}.")


def _print_metrics(report: Report, metrics: Sequence[str], last: str, lasts: Mapping[str, float]) -> None:
    """Print metrics that are given, a row a strategy, with one more column, and what they mean."""
    shown = [name for name in metrics if _is_given(report, name)]
    best = {name: max(strategy.metrics.get(name) or 0.0 for strategy in report.strategies) for name in shown}
    differing = {(tested.metric, tested.second) for tested in report.comparisons if tested.p_value < _SIGNIFICANT}
    titles = ["".join([_TITLES.get(kind, kind), at, k]) for kind, at, k in (name.partition("@") for name in shown)]
    rows: list[list[str | Text]] = []
    for strategy in report.strategies:
        cells = [Text(one_line(strategy.name), style="bold" if strategy.ours else "")]
        for name in shown:
            value, mark = strategy.metrics.get(name), "*" if (name, strategy.name) in differing else " "
            style = "dim" if value is None else "bold green" if value == best[name] else ""
            cells.append(Text("- " if value is None else f"{value:.3f}{mark}", style=style))
        rows.append([*cells, f"{lasts[strategy.name]:,.0f}"])
    print_table(["strategy", *map(figures, [*titles, last])], rows, gap=1)
    write()
    for name in shown:
        if name in _MEANINGS:
            write(_MEANINGS[name].format(unit=report.dataset.length_unit, gold=report.dataset.gold), "dim")


def _is_given(report: Report, metric: str) -> bool:
    return any(strategy.metrics.get(metric) is not None for strategy in report.strategies)


def by_language(questions: Path, language: str | None, out: Path | None) -> list[tuple[str | None, Path | None]]:
    """The languages to ask in, each with the folder of its report.

    Args:
        questions: A file or dataset; where its questions are in several languages, each has a report below `out`.
        language: The one to ask in.
        out: Where reports go.
    """
    from llama_pack_densex.evaluation.datasets import languages_of

    several = [] if language is not None else languages_of(questions)
    return [(one, out and out / one) for one in several] if len(several) > 1 else [(language, out)]


@contextmanager
def shown_progress() -> Iterator[Callable[[str, int, int], None]]:
    """What to call with what is being done, how much of it is done, and how much there is."""
    with progress("{task.description}") as bar:
        task = bar.add_task("Reading the dataset", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def print_scores(report: ScoreReport) -> None:
    """Print the scores and, for two runs and more, the comparisons."""
    write(f"{many(report.questions, 'question')} with labels.")
    scores = [
        [one_line(run.name), metric, f"{run.scores[metric]:.4f}", f"{bounds.low:.3f}-{bounds.high:.3f}"]
        for run in report.runs
        for metric, bounds in run.intervals.items()
    ]
    print_table(["run", "metric", figures("score"), figures("95 %", "dim")], scores)
    for run in report.runs:
        if run.unanswered:
            write(f"{one_line(run.name)} lacks {run.unanswered:,} of the questions; they count as 0.")
    if report.comparisons:
        differences = [
            [one_line(f"{one.first} vs {one.second}"), one.metric, f"{one.difference:+.4f}", f"{one.p_value:.3f}"]
            for one in report.comparisons
        ]
        print_table(["runs", "metric", figures("difference"), figures("p")], differences)
        write("First minus second, with p of the paired randomisation test.", "dim")


def print_proposition_scores(report: PropositionReport) -> None:
    """Print the scores, what both sides are like, and how many passages only one of them has."""
    write(f"{many(report.passages, 'passage')}. Similarity: {one_line(report.similarity)}.")
    write()
    for metric, value in report.scores.items():
        bounds = report.intervals[metric]
        write(f"{metric:9} {value:.3f} ({bounds.low:.3f}-{bounds.high:.3f})")
    sides = (report.predicted, report.reference)
    titles = (f"predicted: {one_line(report.predicted.name)}", f"reference: {one_line(report.reference.name)}")
    rows = [
        ["propositions", *(f"{side.propositions:,}" for side in sides)],
        ["a passage", *(f"{side.a_passage:.1f}" for side in sides)],
        [f"{report.length_unit} each", *(f"{side.length:.1f}" for side in sides)],
    ]
    for kind in report.reference.failing:
        of = " (passages)" if kind == "coverage" else ""
        rows.append([f"fails {kind.replace('_', '-')}{of}", *(f"{100 * side.failing[kind]:.1f} %" for side in sides)])
    print_table(["", *(Column(title, justify="right", overflow="fold") for title in titles)], rows)
    for passages, said in ((report.missing, "missing, counted as 0"), (report.extra, "without a reference")):
        if passages:
            write(f"{many(len(passages), 'passage')} {said} (--json names them).")


# `densex evaluate`

_VERDICT = 'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
STAND_INS = {"answers": "word " * 60 + "[^1]", "reader": "word " * 5, "judge": _VERDICT}
"""By what an LLM is asked for, replies of the length that is reckoned with."""


def flat(report: Report) -> dict[str, Any]:
    """A report's metrics by their usual names, with how many items failed."""
    found, dataset = report.strategies[0], report.dataset
    metrics = {name: value for name, value in found.metrics.items() if value is not None}
    return {**metrics, "failed": found.failed, "questions": dataset.questions, "language": dataset.language}


def print_requests(asked: Mapping[str, RequestFigures], only_estimate: bool) -> None:
    """Print what LLMs were, or would be, asked, and what that costs."""
    rows = []
    for role, of_role in asked.items():
        used = of_role.usage
        numbers = (used.requests, of_role.cache_hits, used.input_tokens, used.output_tokens)
        rows.append([role, one_line(of_role.model), *(f"{number:,}" for number in numbers), money(of_role.cost)])
    if rows:
        print_table(["LLM of", "model", *map(figures, ("requests", "kept", "tokens sent", "received", "cost"))], rows)
    if only_estimate:
        write("Replies are taken to be of the usual length.", "dim")
