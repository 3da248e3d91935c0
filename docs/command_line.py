"""The page "Command line", from the commands themselves."""

from __future__ import annotations

import re

import click
import typer

from llama_pack_densex.cli import app

INTRODUCTION = """\
# Command line

`densex --help` and `densex COMMAND --help` say the same in the terminal. This page is made \
from the commands while the
documentation is built.
"""


def reference() -> str:
    root = typer.main.get_command(app)
    sections = [INTRODUCTION]
    for path, command in commands("densex", root):
        sections.append(section(path, command))
    return "\n".join(sections)


def commands(path: str, group: click.Command) -> list[tuple[str, click.Command]]:
    listed: list[tuple[str, click.Command]] = []
    for name, command in sorted(group.commands.items()):
        full = f"{path} {name}"
        listed += commands(full, command) if hasattr(command, "commands") else [(full, command)]
    return listed


def section(path: str, command: click.Command) -> str:
    lines = [f"## `{path}`", "", plain(command.help or ""), ""]
    lines += ["| argument or option | what it does |", "|---|---|"]
    lines += [f"| {names(parameter)} | {description(parameter)} |" for parameter in command.params]
    return "\n".join(lines) + "\n"


def names(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        shown = (parameter.metavar or parameter.name.upper()).replace("|", "\\|")
        return f"`{shown}`"
    return ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])


def description(parameter: click.Parameter) -> str:
    text = plain(getattr(parameter, "help", "") or "").replace("\n", " ").replace("|", "\\|")
    default = parameter.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        text += f" (default: `{default}`)"
    return text.strip()


def plain(text: str) -> str:
    """Help text as Markdown: no marks of the terminal, and nothing that Markdown would take for a tag."""
    text = re.sub(r"\[/?(?:bold|dim|italic)\]", "", text)
    return text.replace("<", "&lt;").replace("\b", "").strip()
