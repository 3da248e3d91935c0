"""The commands and their options."""

from __future__ import annotations

from enum import Enum
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from llama_pack_densex.cli.choices import PROPOSITIONIZERS, IndexChoices, check_propositionizer
from llama_pack_densex.cli.compare import compare
from llama_pack_densex.cli.score import score
from llama_pack_densex.cli.session import argument, print_json, session, stdout, waiting

app = typer.Typer(
    name="densex",
    help="Dense X Retrieval: search propositions, read the passages they came from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ModeChoice(str, Enum):
    """The retrieval modes."""

    recursive = "recursive"
    auto_merging = "auto_merging"


class UnitChoice(str, Enum):
    """The units that can be searched."""

    proposition = "proposition"
    sentence = "sentence"
    passage = "passage"


_EMBED_MODEL = 'Embedding model: a name or folder, "minilm" (English), or "none" to search by words.'


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"densex {installed_version('llama-pack-densex')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def index(
    paths: Annotated[list[Path], typer.Argument(help="Folders and files: text, Markdown, HTML, PDF.", metavar="PATH")],
    to: Annotated[Path, typer.Option("--to", help="The index's folder, made if it is not there.", metavar="DIR")],
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
            help=f"{_EMBED_MODEL} Default: the index's; at first multilingual-e5-small if it is on this machine, else "
            "none.",
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
    granularity: Annotated[
        list[UnitChoice] | None,
        typer.Option(
            help="Units to search; give it several times for several. Default: the index's; at first all.",
            show_default=False,
        ),
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Warn about files that cannot be read, and go on without them.")
    ] = False,
) -> None:
    """Index documents; of those indexed before, only changed ones are done again, and deleted ones removed."""
    if llm_model is not None and propositionizer not in (None, "llm"):
        raise typer.BadParameter("it is for --propositionizer llm", param_hint="--llm-model")
    choices = IndexChoices(
        propositionizer=propositionizer,
        mode=mode.value if mode else None,
        embed_model=embed_model,
        llm_model=llm_model,
        granularity=tuple(unit.value for unit in granularity or ()),
    )
    with session():
        from llama_pack_densex.cli.indexing import index_paths
        from llama_pack_densex.cli.printing import print_index_report

        print_index_report(stdout(), index_paths(paths, to, choices, skip_unreadable))


@app.command()
def query(
    folder: Annotated[Path, typer.Argument(help="The index's folder.", metavar="DIR")],
    question: Annotated[str, typer.Argument(help="The question.", metavar="QUESTION")],
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Passages to retrieve. Default: the index's, at first 4.", show_default=False),
    ] = None,
    llm_model: Annotated[
        str | None,
        typer.Option(
            help='The OpenAI model that writes the answer, or "none" for quotations. '
            "Default: gpt-4o-mini if there is an OPENAI_API_KEY, else quotations.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Answer a question from an index, and show the passages and the propositions that found them."""
    if not question.strip():
        raise typer.BadParameter("it is blank", param_hint="QUESTION")
    with session():
        from llama_pack_densex.cli.choices import make_llm
        from llama_pack_densex.cli.opening import open_pack
        from llama_pack_densex.cli.printing import print_answer
        from llama_pack_densex.cli.results import answer_question

        with waiting("Searching"):
            pack = open_pack(folder, proposition_llm="none", query_llm=make_llm(llm_model))
            answer = answer_question(pack, argument(question), top_k)
        advice = " (for a written one set OPENAI_API_KEY)"
        print_json(answer) if as_json else print_answer(stdout(), answer, advice if llm_model is None else "")


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="The index's folder.", metavar="DIR")],
    passage: Annotated[
        str | None,
        typer.Option(help="Show this passage only; the beginning of its id will do.", metavar="ID", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show an index's passages with their propositions and statuses."""
    with session():
        from llama_pack_densex.cli.opening import read_index
        from llama_pack_densex.cli.printing import print_inspection
        from llama_pack_densex.cli.results import inspect_index

        inspection = inspect_index(*read_index(folder), passage)
        print_json(inspection) if as_json else print_inspection(stdout(), inspection)


@app.command()
def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The repository's data folder. Default: the one beside the package.", show_default=False
        ),
    ] = None,
    mode: Annotated[ModeChoice, typer.Option(help="How propositions lead to passages.")] = ModeChoice.recursive,
    embed_model: Annotated[str, typer.Option(help=_EMBED_MODEL, metavar="MODEL")] = "none",
    verbose: Annotated[bool, typer.Option("--verbose", help="List the questions that were missed.")] = False,
) -> None:
    """Index the repository's documents in memory, answer four questions, and count how many of 60 it can answer.

    Ends with exit code 1 where that is less than 80 %.
    """
    with session():
        from llama_pack_densex.cli.demo_command import show_demo

        if not show_demo(data, mode.value, embed_model, verbose):
            raise typer.Exit(1)


app.command()(compare)
app.command()(score)
