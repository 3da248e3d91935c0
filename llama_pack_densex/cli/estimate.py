"""`densex estimate`: what indexing will take, before it is begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from llama_pack_densex.cli.choices import (
    EMBED_MODEL_HELP,
    Granularity,
    MaxConcurrency,
    ModeChoice,
    RequestsPerMinute,
    TokensPerMinute,
)
from llama_pack_densex.cli.session import one_line, print_json, session, stdout, warn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from llama_pack_densex.ingestion.estimate import Estimate

_LEAST_SAMPLE = 5


def estimate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders and files, as for index; or a dataset, as for compare, whose documents count.",
            metavar="PATH",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="An index's folder: what is in it does not count, neither documents nor replies that are kept.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    llm_model: Annotated[
        str,
        typer.Option(help='The model that makes propositions, any provider\'s; "none" for sentences.', metavar="NAME"),
    ] = "gpt-4o-mini",
    embed_model: Annotated[
        str | None,
        typer.Option(
            help=f"{EMBED_MODEL_HELP} Default: the index's; at first multilingual-e5-small if it is on this machine, "
            "else none.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    dimension: Annotated[
        int | None,
        typer.Option(min=1, help="Of the embedding model's vectors, where it is not known.", show_default=False),
    ] = None,
    mode: Annotated[
        ModeChoice | None,
        typer.Option(
            help="How propositions lead to passages. Default: the index's; at first recursive.", show_default=False
        ),
    ] = None,
    granularity: Granularity = None,
    max_concurrency: MaxConcurrency = None,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    passages_per_request: Annotated[int, typer.Option(min=1, max=100, help="Passages to ask for together.")] = 1,
    prices: Annotated[
        Path | None,
        typer.Option(
            help='Prices beside, or in place of, the package\'s own: JSON such as {"gpt-4o-mini": {"input": 0.15, '
            '"output": 0.6}}, in dollars for a million tokens.',
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int,
        typer.Option(
            help="Really ask for N passages, and correct the estimate by them. Costs money; needs OPENAI_API_KEY. "
            "With --to, the replies are kept.",
            metavar="N",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what indexing will take: requests, tokens, money, time, and how large the index will be.

    No request is made but those of a sample.
    """
    if sample and sample < _LEAST_SAMPLE:
        raise typer.BadParameter(f"it must be 0, or {_LEAST_SAMPLE} or more", param_hint="--sample")
    if sample and llm_model == "none":
        raise typer.BadParameter("without an LLM there is nothing to ask for", param_hint="--sample")
    limits = {
        "max_concurrency": max_concurrency,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "passages_per_request": passages_per_request,
        "prices": prices,
    }
    with session():
        from llama_pack_densex.cli.estimating import EstimateChoices, estimate_paths

        choices = EstimateChoices(
            llm_model=llm_model,
            embed_model=embed_model,
            dimension=dimension,
            mode=mode.value if mode else None,
            granularity=tuple(unit.value for unit in granularity or ()),
            sample=sample,
            limits={name: value for name, value in limits.items() if value is not None},
        )
        found = estimate_paths(paths, to, choices)
        print_json(found) if as_json else print_estimate(stdout(), found)


def print_estimate(console: Console, estimate: Estimate) -> None:
    """Print an estimate, and what it rests upon."""
    from llama_pack_densex.cli.printing import write

    console.print(_table(estimate))
    if estimate.broken_documents:
        warn(f"{estimate.broken_documents:,} documents cannot be split; of the first: {estimate.first_error}")
    console.print()
    for note in estimate.notes:
        write(console, one_line(note), style="dim", bullet="- ")


def _table(estimate: Estimate) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for name, figure, remark in _rows(estimate):
        style = "bold" if name == "cost" else ""
        table.add_row(Text(name, style), Text(figure, style), Text(one_line(remark)))
    return table


def _rows(estimate: Estimate) -> Iterator[tuple[str, str, str]]:
    """What is shown: names, figures, remarks."""
    from llama_pack_densex.ingestion.rendering import time_left

    unchanged = estimate.unchanged_documents
    yield "documents", f"{estimate.documents:,}", f"and {unchanged:,} unchanged in the index" if unchanged else ""
    yield "passages", f"{estimate.passages:,}", _languages(estimate)
    if estimate.distinct_passages < estimate.passages:
        yield "distinct passages", f"{estimate.distinct_passages:,}", "identical ones are asked for once"
    if estimate.already_kept:
        yield "replies kept before", f"{estimate.already_kept:,}", "they are not asked for"
    if estimate.model:
        yield "requests", f"{estimate.requests:,}", f"to {estimate.model}"
        yield "tokens sent", f"{estimate.input_tokens:,}", ""
        yield "tokens received", f"{estimate.output_tokens:,}", ""
    yield "cost", _money(estimate.cost), "" if estimate.model else "no LLM is asked"
    if estimate.cost_batch and estimate.cost_batch != estimate.cost:
        yield "cost as a batch", _money(estimate.cost_batch), "through the Batch API, within a day"
    if estimate.requests:
        yield "time", time_left(estimate.seconds), _bound(estimate)
    yield "", "", ""
    yield "propositions", f"{estimate.propositions:,}", ""
    yield "nodes", f"{estimate.units:,}", "passages and sentences included"
    if estimate.embed_model:
        yield "tokens embedded", f"{estimate.embedding_tokens:,}", f"by {estimate.embed_model}"
        yield "cost of embedding", _money(estimate.embedding_cost), ""
    vectors = f"{_size(estimate.vector_bytes)} of it for vectors of {estimate.dimension} dimensions"
    yield "size of the index", _size(estimate.index_bytes), vectors if estimate.dimension else ""


def _languages(estimate: Estimate) -> str:
    from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES

    often = [
        (count, LANGUAGE_NAMES[code])
        for code, count in estimate.languages.items()
        if count * 50 >= estimate.passages and code
    ]
    return ", ".join(f"{count:,} in {name}" for count, name in sorted(often, reverse=True))


def _bound(estimate: Estimate) -> str:
    if estimate.bound_by == "concurrency":
        return f"{estimate.max_concurrency:,} requests at a time, {estimate.seconds_a_reply:.1f} s a reply"
    return f"as fast as the {estimate.bound_by} a minute allow"


def _money(amount: float | None) -> str:
    from llama_pack_densex.ingestion.rendering import money

    return "not known" if amount is None else money(amount)


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if round(number) < 1000:
            break
        number, unit = number / 1000, {"B": "kB", "kB": "MB", "MB": "GB", "GB": "TB"}[unit]
    return f"{number:,.0f} {unit}" if number >= 99.5 or unit == "B" else f"{number:.1f} {unit}"
