"""How a command is declared, and the options that several commands share.

A command is a class whose attributes are its arguments and options, and a function of another module that
gets an instance of it. Options that several commands share belong to a base class, so that each is declared
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from llama_pack_densex.cli.output import print_json, session

if TYPE_CHECKING:
    from llama_pack_densex.cli.places import IndexPlace

REQUIRED: Any = ...
KINDS = "llm, sentence, recorded:FILE or seq2seq[:MODEL]"
HELP_MODE = "How propositions lead to passages: recursive or auto_merging."
HELP_HOPS = "2: questions go on from what they find to what shares a rare name with it."
HELP_EMBED = (
    'PROVIDER:NAME, a folder, "local", "minilm", "ruri" (docs/embeddings.md), or "none": by words.'
)
DEFAULT_EMBED = "multilingual-e5-small if it is here, else none."
HELP_LLM = (
    "an OpenAI model, or azure:DEPLOYMENT, bedrock:NAME, anthropic:NAME, google:NAME, ollama:NAME, "
    "openai-like:NAME, huggingface:NAME"
)
CONFIGURABLE = ("index", "query")
"""The commands whose options a configuration file and the environment may set."""
UNITS = ("proposition", "sentence", "passage", "question")
_MODELS = ("llm", "query_llm", "reader_model", "judge_model", "embed_model")

Mode = Literal["recursive", "auto_merging", "auto-merging"]
C = TypeVar("C", bound="Command")


def option(usage: str, default: Any = None, **more: Any) -> Any:
    """Declare an option by its line in the help, "--names METAVAR  What it does.", where both may be left
    out.

    Args:
        usage: Its names, by default made from the attribute's, what stands for its value, by default its
            type, and, behind two spaces, what it does. A switch has a name alone.
        default: Its value where it is not given, or `REQUIRED`.
        **more: Further arguments of `typer.Option`.
    """
    *head, help = usage.split("  ")
    words = " ".join(head).split()
    names = [word for word in words if word.startswith("-")]
    # a switch takes no value: typer would put <bool> there
    of_type = "" if names else None
    metavar = next((word for word in words if word not in names), of_type)
    more = {"show_envvar": "envvar" in more, **more}
    return typer.Option(default, *names, metavar=metavar, help=help, **more)


def argument(metavar: str | None, help: str, **more: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


class Command:
    """What a user wants: the values of a command's arguments and options.

    Attributes:
        configured: The names of the options whose values are a configuration file's.
    """

    configured: Collection[str] = ()

    def __init__(self, configured: Collection[str], **values: Any) -> None:
        vars(self).update(values, configured=configured)

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of some options that the command has and that were given."""
        values = {name: vars(self).get(name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, [])}


def command(
    group: typer.Typer, panel: str | None, name: str, function: str
) -> Callable[[type[C]], type[C]]:
    """Register a class as a command, whose help is the docstring.

    Args:
        group: What the command belongs to.
        panel: The heading under which the help has the command; None for the usual one.
        name: The command's name.
        function: What it does, as in "ingest:index_paths": a function of a module beside this one, which is
            imported when it is called. It gets an instance; False ends the command with exit code 1.
    """

    def register(kind: type[C]) -> type[C]:
        @session()
        def run(click_context: typer.Context, **values: Any) -> None:
            options = kind(_configured(click_context), **_with_addresses(values))
            if resolve_name(f"{__package__}.{function}")(options) is False:
                raise typer.Exit(1)

        hints = get_type_hints(kind)
        del hints["configured"]
        parameters = [Parameter("click_context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        declared = {option: getattr(kind, option) for option in hints}
        if name in CONFIGURABLE:
            declared = {
                option: _with_variable(name, option, info) for option, info in declared.items()
            }
        parameters += [
            Parameter(option, Parameter.KEYWORD_ONLY, default=info, annotation=hints[option])
            for option, info in sorted(
                declared.items(), key=lambda item: item[1].default is not REQUIRED
            )
        ]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        help = _unwrapped(kind.__doc__ or "")
        group.command(name, help=help, rich_help_panel=panel)(run)
        return kind

    return register


def _unwrapped(docstring: str) -> str:
    """A docstring with a line for each paragraph: typer would keep the line breaks of all but the first."""
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _with_variable(command: str, name: str, info: Any) -> Any:
    """An option that an environment variable such as DENSEX_INDEX_LLM sets too; an argument as it is."""
    info = copy(info)
    if isinstance(info, OptionInfo):
        info.envvar = f"DENSEX_{command}_{name}".upper()
    return info


def options_of(context: typer.Context, name: str) -> dict[str, Any]:
    """The options of a command by their names at the command line, without "--"."""
    group: Any = context.command
    parameters = group.get_command(context, name).params
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    return {
        text.removeprefix("--"): option
        for option in options
        for text in option.opts
        if text.startswith("--")
    }


def _configured(context: typer.Context) -> set[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        name
        for name, source in sources.items()
        if source is not None and source.name == "DEFAULT_MAP"
    }


def _with_addresses(values: dict[str, Any]) -> dict[str, Any]:
    """The values of options, with the address of --api-base in the names of the models served there."""
    address = values.get("api_base")
    if address is None:
        return values
    models = {
        option: values[option] for option in _MODELS if values.get(option) not in (None, "none")
    }
    if not models:
        raise ValueError(
            "--api-base needs a model that is served there: name one, as openai-like:qwen3:8b"
        )
    from llama_pack_densex.llm.names import with_address, with_provider

    models |= {
        option: with_provider(name) for option, name in models.items() if option != "embed_model"
    }
    return values | dict(zip(models, with_address(models.values(), address), strict=True))


class WithJson(Command):
    as_json: bool = option("--json  Print JSON.", False)

    def show(self, result: Any, print_text: Callable[[Any], None]) -> None:
        """Print a result as JSON where that was asked for, else for people."""
        if self.as_json:
            print_json(result)
        else:
            print_text(result)


class OfIndex(Command):
    place: str = argument("DIR|URL", "The index's folder, or its store's URL.")

    @property
    def index(self) -> IndexPlace:
        """Where the index is."""
        from llama_pack_densex.cli.places import IndexPlace

        return IndexPlace.of(self.place)


class OfFolder(OfIndex):
    place: str = argument("DIR", "The index's folder.")


class WithApiBase(Command):
    api_base: str | None = option("URL  Where openai-like:, ollama: or openai: models are served.")


class Opening(OfIndex):
    embed_model: str | None = option(
        "MODEL  The index's model, where it is at an address or in a folder: these have to be named by you."
    )


class Answering(WithApiBase, Opening):
    query_llm: str | None = option(
        f'--query-llm --llm --llm-model NAME  Answers: {HELP_LLM}; "none" quotes passages. '
        "Default: gpt-4o-mini if there is a key.",
    )


class WithTopK(Command):
    top_k: int | None = option("N  Passages to retrieve. Default: the index's, at first 4.", min=1)


class Searching(Answering, WithTopK):
    filters: list[str] = option(
        "--filter K=V  Where it holds in the metadata; !=, >=, <=, >, < too.", []
    )


class WithPrices(Command):
    prices: Path | None = option(
        "FILE  JSON of your own prices, in US dollars for a million tokens: "
        '{"gpt-4o-mini": {"input": 0.15, "output": 0.6}}.',
    )


class Ingesting(WithPrices):
    paths: list[Path] = argument("PATH", "Folders, files (text, HTML, PDF, ...), datasets.")
    mode: Mode | None = option(f"MODE  {HELP_MODE} Default: the index's; at first recursive.")
    llm: str | None = option(
        f'--llm --llm-model NAME  Makes propositions: {HELP_LLM}; "none": sentences. Default: gpt-4o-mini.'
    )
    questions: bool | None = option(
        "--questions  The LLM writes questions too, which find passages: +33 % cost, in Japanese +45 %."
    )
    include: list[str] = option(
        "GLOB  Read such files too, though they are code or data: '*.csv'.", []
    )
    exclude: list[str] = option(
        "GLOB  Leave out such files and folders: 'drafts', 'notes/*.txt'.", []
    )
    strict: bool = option(
        "--strict  Refuse files that cannot be read. Default: name them, and go on.", False
    )


def _unit(name: str) -> str:
    if name not in UNITS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(UNITS)}")
    return name


class WithRates(WithApiBase):
    max_concurrency: int | None = option(
        "N  Requests at a time. Default: 8, or what the rates take.", min=1
    )
    requests_per_minute: float | None = option("N  What the LLM's provider allows.", min=0.001)
    tokens_per_minute: float | None = option("N  What the LLM's provider allows.", min=1)


class IngestingByRequests(Ingesting, WithRates):
    embed_model: str | None = option(
        f"MODEL  {HELP_EMBED} Default: the index's; at first {DEFAULT_EMBED}"
    )
    granularity: list[str] | None = option(
        f"UNIT  Units to search: {', '.join(UNITS)}; any number of times. Default: the index's, or all.",
        parser=_unit,
    )


class Spending(Command):
    max_cost: float | None = option(
        "N  US dollars each LLM stops at in a run; what was paid is kept.", min=0
    )
    yes: bool = option(
        "--yes -y  Spend what it takes without asking. --max-cost does not ask either.", False
    )

    @property
    def has_own_limit(self) -> bool:
        """Whether the user, and not a configuration file, said what may be spent."""
        return self.max_cost is not None and "max_cost" not in self.configured


class Ranking(Command):
    keep_identical_ids: bool = option(
        "--keep-identical-ids  Rank documents that have the question's id, too; they are the question "
        "itself.",
        False,
    )


class Evaluating(Ranking, Spending, WithApiBase):
    reader_model: str | None = option(
        "NAME  An LLM, named as for --llm, that answers from each context, for EM and F1."
    )
    judge_model: str | None = option("NAME  An LLM that judges the answers by the RAG triad.")
    trulens: Path | None = option("FILE  Have TruLens judge, and record it in this SQLite file.")
    out: Path | None = option(
        "DIR  For report.json, .csv and .html; embeddings and replies are kept there."
    )
    language: str | None = option('CODE  Of the questions: "en", "ja", ... Default: detected.')
    limit: int | None = option("N  Take the first N questions.", min=1)
