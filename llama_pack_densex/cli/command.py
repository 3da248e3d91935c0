"""How a command is declared.

A command is a class whose attributes are its arguments and options, and a function of another module that
gets an instance of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from inspect import Parameter, Signature, cleandoc
from pkgutil import resolve_name
from typing import Any, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from llama_pack_densex.cli.output import session

REQUIRED: Any = ...
CONFIGURABLE = ("index", "query")
"""The commands whose options a configuration file and the environment may set."""
_MODELS = ("llm", "query_llm", "reader_model", "judge_model", "embed_model")

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
        parameters = []
        for option, annotation in hints.items():
            info = getattr(kind, option)
            if name in CONFIGURABLE:
                info = _with_variable(name, option, info)
            parameters.append(
                Parameter(option, Parameter.KEYWORD_ONLY, default=info, annotation=annotation)
            )
        parameters.sort(key=lambda parameter: parameter.default.default is not REQUIRED)
        context = Parameter("click_context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        run.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
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
    return {
        text.removeprefix("--"): parameter
        for parameter in group.get_command(context, name).params
        for text in parameter.opts
        if text.startswith("--")  # an argument's name does not
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
