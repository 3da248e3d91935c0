"""`densex score`: run files against relevance labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llama_pack_densex.cli.session import one_line, print_json, session, stdout, waiting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from llama_pack_densex.evaluation.score import ScoreReport


def score(
    qrels: Annotated[
        Path, typer.Option("--qrels", help="Relevance labels: TREC text, BEIR's TSV, or ranx's JSON.", metavar="FILE")
    ],
    runs: Annotated[
        list[Path],
        typer.Option("--run", help="A run: TREC text, or ranx's JSON or lz4. Give it once a run.", metavar="FILE"),
    ],
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="hit@k, recall@k, precision@k, mrr@k, map@k or ndcg@k; any number of times. Default: ndcg@10 and "
            "mrr@10.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    permutations: Annotated[
        int, typer.Option(min=1, help="Of the randomisation test that compares runs.", metavar="M")
    ] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the test and of the confidence intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score runs against relevance labels, and compare them pair by pair."""
    with session():
        from llama_pack_densex.evaluation.score import METRICS, score_runs

        with waiting("Scoring"):
            report = score_runs(qrels, runs, tuple(dict.fromkeys(metrics or METRICS)), permutations, seed)
        print_json(report) if as_json else print_scores(stdout(), report)


def print_scores(console: Console, report: ScoreReport) -> None:
    """Print the scores and, for two runs and more, the comparisons."""
    from rich.table import Table

    from llama_pack_densex.cli.printing import write

    metrics = list(report.runs[0].scores)
    scores = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    scores.add_column("run", overflow="fold")
    for metric in metrics:
        scores.add_column(metric, justify="right", no_wrap=True)
        scores.add_column("95 %", justify="right", style="dim", no_wrap=True)
    for run in report.runs:
        cells = [
            cell
            for metric in metrics
            for cell in (
                f"{run.scores[metric]:.4f}",
                f"{run.intervals[metric].low:.3f}-{run.intervals[metric].high:.3f}",
            )
        ]
        scores.add_row(one_line(run.name), *cells)
    write(console, f"{report.questions:,} questions with labels.")
    console.print()
    console.print(scores)
    for run in report.runs:
        if run.unanswered:
            write(console, f"{one_line(run.name)} lacks {run.unanswered:,} of the questions; they count as 0.")
    if report.comparisons:
        console.print()
        write(console, "First minus second, with p of the paired randomisation test")
        console.print(_differences(report, metrics))


def _differences(report: ScoreReport, metrics: list[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("runs", overflow="fold")
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
        table.add_column("p", justify="right", no_wrap=True)
    found = {(compared.first, compared.second, compared.metric): compared for compared in report.comparisons}
    for first, second in dict.fromkeys((compared.first, compared.second) for compared in report.comparisons):
        cells = [
            cell
            for metric in metrics
            for cell in (f"{found[first, second, metric].difference:+.4f}", _p(found[first, second, metric].p_value))
        ]
        table.add_row(one_line(f"{first} vs {second}"), *cells)
    return table


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
