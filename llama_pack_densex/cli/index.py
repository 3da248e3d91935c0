"""`densex index`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llama_pack_densex.cli.choices import (
    EMBED_MODEL_HELP,
    PROPOSITIONIZERS,
    Granularity,
    IndexChoices,
    MaxConcurrency,
    ModeChoice,
    RequestsPerMinute,
    TokensPerMinute,
    check_propositionizer,
)
from llama_pack_densex.cli.session import session, stderr, stdout


def index(
    paths: Annotated[list[Path], typer.Argument(help="Folders and files: text, Markdown, HTML, PDF.", metavar="PATH")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The index's folder, made if it is not there; or a vector store: chroma://, qdrant://, milvus://, "
            "postgresql:// or faiss://, see docs/stores.md.",
            metavar="DIR|URL",
        ),
    ],
    propositionizer: Annotated[
        str | None,
        typer.Option(
            callback=check_propositionizer,
            metavar="KIND",
            help=f"What makes propositions: {PROPOSITIONIZERS}. Default: what made the index; at first llm if there is "
            "an OPENAI_API_KEY, else sentence.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        ModeChoice | None,
        typer.Option(
            help="How propositions lead to passages. Default: the index's; at first recursive.", show_default=False
        ),
    ] = None,
    embed_model: Annotated[
        str | None,
        typer.Option(
            help=f"{EMBED_MODEL_HELP} Default: the index's; at first multilingual-e5-small if it is on this machine, "
            "else none.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    llm_model: Annotated[
        str | None,
        typer.Option(
            help="The OpenAI model that makes propositions. Default: gpt-4o-mini.", metavar="NAME", show_default=False
        ),
    ] = None,
    granularity: Granularity = None,
    max_concurrency: MaxConcurrency = None,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    passages_per_request: Annotated[
        int | None, typer.Option(min=1, max=100, help="Passages to ask for together. Default: 1.", show_default=False)
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="US dollars to stop at; what was paid for is kept.", show_default=False)
    ] = None,
    max_tokens_total: Annotated[
        int | None, typer.Option(min=0, help="Tokens to stop at, sent and received.", show_default=False)
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Prices beside, or in place of, the package's own: JSON.", metavar="FILE", show_default=False
        ),
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Warn about files that cannot be read, and go on without them.")
    ] = False,
) -> None:
    """Index documents; of those indexed before, only changed ones are done again, and deleted ones removed.

    Replies of the LLM are kept in the index's folder, and what became of each document is in its
    ingestion_report.json: after a stop, the same command goes on where it was. With a URL there is no such folder:
    documents that were whole are in the store, the others are asked for again.
    """
    limits = {
        "max_concurrency": max_concurrency,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "passages_per_request": passages_per_request,
        "max_cost": max_cost,
        "max_tokens_total": max_tokens_total,
        "prices": prices,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    given = [*limits, *(["llm_model"] if llm_model is not None else [])]
    if given and propositionizer not in (None, "llm"):
        raise typer.BadParameter("it is for --propositionizer llm", param_hint=f"--{given[0].replace('_', '-')}")
    choices = IndexChoices(
        propositionizer=propositionizer,
        mode=mode.value if mode else None,
        embed_model=embed_model,
        llm_model=llm_model,
        granularity=tuple(unit.value for unit in granularity or ()),
        limits=limits,
    )
    with session():
        from llama_pack_densex.cli.indexing import index_paths, report_file
        from llama_pack_densex.cli.printing import print_index_report, print_ingestion
        from llama_pack_densex.llm_requests.failures import PropositionizerError

        try:
            report = index_paths(paths, to, choices, skip_unreadable)
        except PropositionizerError as error:
            if error.ingestion is not None:
                print_ingestion(stderr(), error.ingestion, report=report_file(to))
            raise
        print_index_report(stdout(), report)
        if report.failed:
            raise typer.Exit(1)
