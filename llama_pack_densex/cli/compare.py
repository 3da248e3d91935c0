"""`densex compare`: strategies side by side over the same documents, questions and embeddings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from llama_pack_densex.cli.choices import PROPOSITIONIZERS, IndexChoices, check_propositionizer, make_llm
from llama_pack_densex.cli.session import one_line, progress, session, stdout

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from rich.console import Console
    from rich.table import Table

    from llama_pack_densex.evaluation.report import Report, Skipped
    from llama_pack_densex.propositionizers.base import Propositionizer


def compare(
    dataset: Annotated[
        Path,
        typer.Argument(
            help="A dataset: SQuAD or JSQuAD JSON, a BEIR folder, JQaRA's rows, LlamaIndex's; or questions in JSON, "
            "JSONL, CSV or TSV.",
            metavar="DATASET",
        ),
    ],
    documents: Annotated[
        Path | None,
        typer.Option(
            help="What the questions are about, where DATASET has questions alone: a folder, or a corpus as TSV.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Names, divided by commas, such as densex,vector-256,sentence-window. Default: all.",
            metavar="NAMES",
            show_default=False,
        ),
    ] = None,
    embed_model: Annotated[
        str | None,
        typer.Option(
            help='Embedding model: a name or folder, "minilm" (English), or "none". Default: multilingual-e5-small if '
            "it is on this machine, else none.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    propositionizer: Annotated[
        str | None,
        typer.Option(
            callback=check_propositionizer,
            metavar="KIND",
            help=f"Where propositions come from: {PROPOSITIONIZERS}. Default: from nowhere, and the strategies that "
            "need them are left out.",
            show_default=False,
        ),
    ] = None,
    llm_model: Annotated[
        str | None,
        typer.Option(
            help="The OpenAI model that makes propositions, with --propositionizer llm, and the headers of contextual "
            "retrieval. Default: gpt-4o-mini with --propositionizer llm; else headers are title and headings.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    reader_model: Annotated[
        str | None,
        typer.Option(
            help="The OpenAI model that answers from each strategy's context, for exact match and F1. Default: none.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for report.json, report.csv and report.html; it keeps the embeddings for the next run too.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Take the first N questions.", metavar="N", show_default=False),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, help="Nodes that are read. Default: each strategy's own number.", metavar="K", show_default=False
        ),
    ] = None,
) -> None:
    """Compare ways of retrieving, LlamaIndex's and ours, on a dataset or on your own documents and questions."""
    with session():
        from llama_pack_densex.evaluation.compare import compare as run
        from llama_pack_densex.evaluation.datasets import read_dataset
        from llama_pack_densex.evaluation.strategies import resolve_strategies
        from llama_pack_densex.models import OPENAI_MODEL

        names = None if strategies is None else [name.strip() for name in strategies.split(",") if name.strip()]
        chosen = resolve_strategies(names)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        bar = progress("{task.description}")
        with bar, _said_once("llama_pack_densex.pack_index"):
            task = bar.add_task("Reading the dataset", total=None)

            def tell(what: str, done: int, total: int) -> None:
                bar.update(task, description=what, completed=done, total=total)

            report = run(
                read_dataset(dataset, documents, max_questions=limit),
                strategies=chosen,
                embed_model=embed_model,
                propositionizer=_propositionizer(propositionizer, llm_model),
                llm=_llm(llm_model if propositionizer != "llm" else llm_model or OPENAI_MODEL),
                reader_llm=_llm(reader_model),
                context_k=top_k,
                cache_dir=out,
                progress=tell,
            )
        written = report.write(out) if out is not None else []
        print_report(stdout(), report, written)


@contextmanager
def _said_once(logger: str) -> Iterator[None]:
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


def print_report(console: Console, report: Report, written: Sequence[Path] = ()) -> None:
    """Print the main figures, narrow or wide as there is room, what was left out, and what was written."""
    from llama_pack_densex.cli.printing import write

    dataset, settings = report.dataset, report.settings
    write(
        console,
        f"{one_line(dataset.name)}: {_many(dataset.questions, 'question')} about "
        f"{_many(dataset.documents, 'document')} in {_many(dataset.passages, 'passage')}. Embedding model: "
        f"{settings.embed_model or 'none'}; propositions: {settings.propositionizer or 'none'}.",
    )
    if report.strategies:
        console.print()
        console.print(_table(report, console.width))
        console.print()
        for line in _legend(report):
            write(console, line, style="dim")
    for reason, names in _by_reason(report.skipped).items():
        write(console, f"Left out: {', '.join(map(one_line, names))}: {reason}.")
    if written:
        write(console, f"Written: {', '.join(one_line(str(path)) for path in written)}.")


_NARROW = {
    "recall@1": "R@1",
    "recall@5": "R@5",
    "answer_recall@100": "AR@100",
    "answer_recall@200": "AR@200",
    "answer_recall@500": "AR@500",
}
_WIDE = {
    "recall@1": "R@1",
    "recall@5": "R@5",
    "recall@20": "R@20",
    "gold@1": "gold@1",
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
    "answer_recall@50": "AR@50",
    "answer_recall@100": "AR@100",
    "answer_recall@200": "AR@200",
    "answer_recall@500": "AR@500",
    "answer_recall": "AR",
}
_COSTS = ("context", "units", "tokens", "index s", "query ms")
_WIDE_FROM = 160  # columns of the terminal
_SIGNIFICANT = 0.05


def _table(report: Report, width: int) -> Table:
    from rich.table import Table

    wide = width >= _WIDE_FROM
    shown = {
        name: title
        for name, title in (_WIDE if wide else _NARROW).items()
        if any(strategy.metrics.get(name) is not None for strategy in report.strategies)
    }
    best = {name: max(strategy.metrics.get(name) or 0.0 for strategy in report.strategies) for name in shown}
    differing = {(tested.metric, tested.second) for tested in report.comparisons if tested.p_value < _SIGNIFICANT}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("strategy", overflow="fold")
    for title in (*shown.values(), *(_COSTS if wide else _COSTS[:1])):
        table.add_column(title, justify="right", no_wrap=True)
    for strategy in report.strategies:
        figures = [_cell(strategy.metrics.get(name), best[name], (name, strategy.name) in differing) for name in shown]
        cost = strategy.cost
        costs = [
            f"{cost.context_words:,.0f}",
            f"{cost.units:,}",
            f"{cost.tokens:,}",
            f"{cost.index_seconds:.1f}",
            f"{cost.query_ms:.1f}",
        ]
        name = Text(one_line(strategy.name), style="bold" if strategy.ours else "")
        table.add_row(name, *figures, *(costs if wide else costs[:1]))
    return table


def _cell(value: float | None, best: float, differs: bool) -> Text:
    if value is None:
        return Text("- ", style="dim")
    return Text(f"{value:.3f}{'*' if differs else ' '}", style="bold green" if value == best else "")


def _legend(report: Report) -> Iterator[str]:
    unit = report.dataset.length_unit
    if any(strategy.metrics.get("recall@1") is not None for strategy in report.strategies):
        yield "R@k: an answer is in one of the first k distinct passages; not for units that reach over several."
    yield f"AR@l: an answer is in the first l {unit} that are read; context: {unit} read by default."
    if report.comparisons:
        first = one_line(report.comparisons[0].first)
        yield f"*: differs from {first}, p < {_SIGNIFICANT} (paired randomisation test)."


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _by_reason(skipped: Sequence[Skipped]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for left in skipped:
        reasons.setdefault(left.reason, []).append(left.name)
    return reasons


def _propositionizer(kind: str | None, llm_model: str | None) -> Propositionizer | None:
    if kind is None:
        return None
    choices = IndexChoices(propositionizer=kind, llm_model=llm_model if kind == "llm" else None)
    made: Propositionizer = choices.pack_arguments(None)["propositionizer"]
    return made


def _llm(name: str | None) -> LLM | None:
    llm = make_llm(name)
    return None if llm is None or isinstance(llm, str) else llm
