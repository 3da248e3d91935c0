"""`densex check` and `densex compact`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llama_pack_densex.cli.session import print_json, session, stdout, waiting

if TYPE_CHECKING:
    from rich.console import Console

    from llama_pack_densex.checking import CheckReport

_FOLDER_HELP = "The index's folder."


def check(
    folder: Annotated[Path, typer.Argument(help=_FOLDER_HELP, metavar="DIR")],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Mend what can be mended; what is left of documents that are not whole is removed, and listed.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check an index: its links, its documents, its embeddings, its lexical side.

    Ends with exit code 1 where something is wrong that was not mended.
    """
    with session():
        from llama_pack_densex.checking import check_index
        from llama_pack_densex.cli.opening import damage_reported

        with waiting("Checking"), damage_reported(folder):
            report = check_index(folder, repair)
        print_json(report) if as_json else _print_check(stdout(), report)
        if not report.sound:
            raise typer.Exit(1)


def compact(folder: Annotated[Path, typer.Argument(help=_FOLDER_HELP, metavar="DIR")]) -> None:
    """Give back the space of what was deleted and replaced, and erase it from the index's files."""
    with session():
        from llama_pack_densex.cli.opening import damage_reported
        from llama_pack_densex.cli.printing import write
        from llama_pack_densex.maintenance import compact_index

        with waiting("Compacting"), damage_reported(folder):
            compaction = compact_index(folder)
        saved = compaction.bytes_before - compaction.bytes_after
        write(stdout(), f"{folder}: {_size(compaction.bytes_after)}, {_size(saved)} less than before.")


def _print_check(console: Console, report: CheckReport) -> None:
    from llama_pack_densex.cli.printing import write

    many = report.tally.granularities
    write(
        console,
        f"{report.folder}: {report.tally.documents:,} documents, {many.get('passage', 0):,} passages, "
        f"{many.get('proposition', 0):,} propositions, {many.get('sentence', 0):,} sentences, "
        f"{many.get('section', 0):,} sections.",
    )
    for fault in report.faults:
        write(
            console, f"{fault.text}{' (mended)' if fault.mended else ''}", "yellow" if fault.mended else "red", 0, "- "
        )
    if report.removed:
        write(console, f"What was left of these documents was removed, index them again: {', '.join(report.removed)}")
    elif not report.sound:
        write(console, f"Mend it with: densex check {report.folder} --repair")
    else:
        write(console, "It is whole.", "green")


def _size(number: int) -> str:
    return f"{number / 2**20:,.1f} MB"
