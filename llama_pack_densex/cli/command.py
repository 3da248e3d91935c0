"""Declaration of commands.

A command is a class whose attributes are its arguments and options, and a function in another module that is
called with an instance of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from inspect import Parameter, Signature, cleandoc
from pkgutil import resolve_name
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from llama_pack_densex.cli.output import session

REQUIRED: Any = ...
CONFIGURABLE = ("index", "query")
"""Commands whose options may be set by a configuration file and by environment variables."""
_NAMES_SHOWN = 2
_MODELS = ("llm", "query_llm", "reader_model", "judge_model", "embed_model")

C = TypeVar("C", bound="Command")


def option(usage: str, default: Any = None, **more: Any) -> Any:
    """Declare an option by its line in the help, "--names METAVAR  What it does."

    Args:
        usage: The option's names, the placeholder for its value and, after two spaces, its help text. Without
            names, the attribute's name is used; without a placeholder, the type. A switch has only names.
        default: The value if the option is not given, or `REQUIRED`.
        **more: Further arguments of `typer.Option`.
    """
    *head, help = usage.split("  ")
    words = " ".join(head).split()
    names = [word for word in words if word.startswith("-")]
    # a switch takes no value: typer would show <bool> as its placeholder
    default_metavar = "" if names else None
    metavar = next((word for word in words if word not in names), default_metavar)
    more = {"show_envvar": "envvar" in more, **more}
    return typer.Option(default, *names, metavar=metavar, help=help, **more)


def argument(metavar: str | None, help: str, **more: Any) -> Any:
    """Declare an argument by its placeholder and its help text."""
    return typer.Argument(metavar=metavar, help=help, **more)


class Command:
    """The values of a command's arguments and options.

    Attributes:
        configured: The names of the options whose values come from a configuration file.
    """

    configured: Collection[str] = ()

    def __init__(self, configured: Collection[str], **values: Any) -> None:
        vars(self).update(values, configured=configured)

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return the values of those of these options that the command has and that were given."""
        values = {name: vars(self).get(name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, [])}


def command(
    group: typer.Typer, panel: str | None, name: str, function: str
) -> Callable[[type[C]], type[C]]:
    """Register the decorated class as a command; its docstring is the help text.

    Args:
        group: The group that the command belongs to.
        panel: The heading above the command in the group's help; None for typer's default.
        name: The command's name.
        function: The function that runs the command, such as "ingest:index_paths" for one in the module
            `ingest` beside this one. The module is imported when the command runs. The function gets an
            instance of the class; if it returns False, the exit code is 1.
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
            parameters.append(
                Parameter(option, Parameter.KEYWORD_ONLY, default=info, annotation=annotation)
            )
        parameters.sort(key=lambda parameter: parameter.default.default is not REQUIRED)
        context = Parameter("click_context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        run.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
        help = _unwrapped(kind.__doc__ or "")
        settings = {}
        if name in CONFIGURABLE:  # variables such as DENSEX_INDEX_LLM set options too
            settings["auto_envvar_prefix"] = f"DENSEX_{name}".upper()
        group.command(
            name,
            cls=_HelpfulCommand,
            context_settings=settings,
            help=help,
            rich_help_panel=panel,
        )(run)
        return kind

    return register


class _HelpfulCommand(TyperCommand):
    """A command whose help shows at most two names of an option: a third is cut off at 80 columns."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = copy(self)
        shown.params = [copy(parameter) for parameter in self.params]
        for parameter in shown.params:
            parameter.opts = parameter.opts[:_NAMES_SHOWN]
        super(_HelpfulCommand, shown).format_help(ctx, formatter)


def _unwrapped(docstring: str) -> str:
    """Return a docstring with one line per paragraph: typer unwraps only the first paragraph itself."""
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def options_of(context: typer.Context, name: str) -> dict[str, Any]:
    """Return the options of a command by their names on the command line, without "--"."""
    group: Any = context.command
    options = {}
    for parameter in group.get_command(context, name).params:
        for text in parameter.opts:
            if text.startswith("--"):  # arguments have no dashes
                options[text.removeprefix("--")] = parameter
    return options


def _configured(context: typer.Context) -> set[str]:
    configured = set()
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "DEFAULT_MAP":
            configured.add(name)
    return configured


def _with_addresses(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options, with the address from --api-base added to the names of models.

    Raises:
        ValueError: --api-base is given, but no model.
    """
    address = values.get("api_base")
    if address is None:
        return values
    named = [option for option in _MODELS if values.get(option) not in (None, "none")]
    if not named:
        raise ValueError(
            "--api-base needs a model that is served there: name one, such as openai-like:qwen3:8b"
        )
    from llama_pack_densex.llm.names import with_address, with_provider

    names = []
    for option in named:
        name = values[option]
        if option != "embed_model":
            name = with_provider(name)
        names.append(name)
    return values | dict(zip(named, with_address(names, address), strict=True))
