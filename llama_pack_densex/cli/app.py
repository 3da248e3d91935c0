"""The commands and their options."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from llama_pack_densex.cli.batch import batch
from llama_pack_densex.cli.choices import EMBED_MODEL_HELP, ModeChoice
from llama_pack_densex.cli.compare import compare
from llama_pack_densex.cli.estimate import estimate
from llama_pack_densex.cli.index import index
from llama_pack_densex.cli.maintenance import check, compact
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


app.command()(index)
app.command()(estimate)


@app.command()
def query(
    place: Annotated[str, typer.Argument(help="The index's folder, or its store's URL.", metavar="DIR|URL")],
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
        from llama_pack_densex.cli.places import IndexPlace
        from llama_pack_densex.cli.printing import print_answer
        from llama_pack_densex.cli.results import answer_question

        with waiting("Searching"):
            pack = IndexPlace.of(place).open(proposition_llm="none", query_llm=make_llm(llm_model))
            answer = answer_question(pack, argument(question), top_k)
        advice = " (for a written one set OPENAI_API_KEY)"
        print_json(answer) if as_json else print_answer(stdout(), answer, advice if llm_model is None else "")


@app.command()
def inspect(
    place: Annotated[str, typer.Argument(help="The index's folder, or its store's URL.", metavar="DIR|URL")],
    passage: Annotated[
        str | None,
        typer.Option(help="Show this passage only; the beginning of its id will do.", metavar="ID", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show an index's passages with their propositions and statuses."""
    with session():
        from llama_pack_densex.cli.places import IndexPlace
        from llama_pack_densex.cli.printing import print_inspection
        from llama_pack_densex.cli.results import inspect_index

        inspection = inspect_index(*IndexPlace.of(place).read(), passage)
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
    embed_model: Annotated[str, typer.Option(help=EMBED_MODEL_HELP, metavar="MODEL")] = "none",
    verbose: Annotated[bool, typer.Option("--verbose", help="List the questions that were missed.")] = False,
) -> None:
    """Index the repository's documents in memory, answer four questions, and count how many of 60 it can answer.

    Ends with exit code 1 where that is less than 80 %.
    """
    with session():
        from llama_pack_densex.cli.demo_command import show_demo

        if not show_demo(data, mode.value, embed_model, verbose):
            raise typer.Exit(1)


app.command()(check)
app.command()(compact)
app.command()(compare)
app.command()(score)
app.add_typer(batch, name="batch")
