"""What the two commands of `densex batch` print."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from llama_pack_densex.cli.printing import write
from llama_pack_densex.cli.session import one_line, plain
from llama_pack_densex.ingestion.batch_files import RequestFile
from llama_pack_densex.ingestion.batching import ExportCounts, ImportReport
from llama_pack_densex.ingestion.rendering import money

_ENDS = {
    "length": "cut off",
    "refused": "refused by the model",
    "filtered": "stopped by the content filter",
    "too_long": "too long for the model",
}


@dataclass(frozen=True)
class ExportReport:
    """What `densex batch export` wrote.

    Args:
        folder: Where the files are.
        index: The folder of the index that they are for.
        model: The model that the requests are for.
        counts: What was made into requests.
        blank: Documents without text.
        unreadable: Files that were skipped.
        files: The files.
        cost: What the expected tokens cost by the Batch API, in US dollars; None where the price is not known.
    """

    folder: str
    index: str
    model: str
    counts: ExportCounts
    blank: int
    unreadable: int
    files: tuple[RequestFile, ...]
    cost: float | None


def print_export(console: Console, report: ExportReport, index_arguments: Sequence[str]) -> None:
    """Print what `densex batch export` wrote, and what to do with it.

    Args:
        console: Where to.
        report: What it wrote.
        index_arguments: The paths and options that `densex index` is to have, besides the folder and the model.
    """
    counts = report.counts
    passages = [f"{counts.requests:,} to ask for"]
    rare = {"identical to others": counts.identical, "with a reply already": counts.kept}
    passages += [f"{number:,} {what}" for what, number in rare.items() if number]
    unchanged = f" ({counts.unchanged:,} more are unchanged in the index)" if counts.unchanged else ""
    write(console, f"Documents: {counts.documents:,}{unchanged}. Passages: {', '.join(passages)}.")
    if not report.files:
        write(console, "There is nothing to ask for. To bring the index into step:")
        _print_command(console, _index_command(report, index_arguments))
        return
    write(
        console,
        f"About {counts.expected.input_tokens:,} tokens to send and {counts.expected.output_tokens:,} to come back "
        f"from {report.model}: {_money(report.cost)} by the Batch API.",
    )
    for file in report.files:
        requests = f"{file.requests:,} request{'' if file.requests == 1 else 's'}"
        write(console, f"{one_line(file.path)}: {requests}, {_size(file.bytes)}", bullet="- ")
    console.print()
    _print_steps(console, report, _index_command(report, index_arguments))


def print_import(console: Console, report: ImportReport, index: str) -> None:
    """Print what `densex batch import` kept, and how to go on."""
    ends = [f"{report.outcomes[end]:,} {what}" for end, what in _ENDS.items() if report.outcomes.get(end)]
    there = f", {report.already_there:,} there already" if report.already_there else ""
    remark = f" ({', '.join(ends)})" if ends else ""
    write(console, f"Results: {report.lines:,}. Imported: {report.imported:,}{remark}{there}.")
    if report.unusable:
        number = sum(report.unusable.values())
        write(console, f"Not usable: {number:,}. densex index asks for them directly; another export has them again.")
    for problem, number in report.unusable.items():
        write(console, f"{number:,}: {one_line(problem)}", bullet="- ")
    if report.usage.requests:
        used = f"{report.usage.input_tokens:,} tokens sent and {report.usage.output_tokens:,} received"
        write(console, f"The imported ones used {used}: {_money(report.cost)} by the Batch API.")
    if report.imported or report.already_there:
        write(console, "To finish, with the paths, the model and the options of the export:")
        _print_command(
            console, f"densex index PATH... --to {shlex.quote(index)} --propositionizer llm --llm-model NAME"
        )


def _index_command(report: ExportReport, arguments: Sequence[str]) -> str:
    chosen = ["--to", report.index, "--propositionizer", "llm", "--llm-model", report.model]
    return shlex.join(["densex", "index", *arguments, *chosen])


def _print_steps(console: Console, report: ExportReport, index_command: str) -> None:
    api = '"$OPENAI_API_BASE"' if os.environ.get("OPENAI_API_BASE") else "https://api.openai.com/v1"
    key = '-H "Authorization: Bearer $OPENAI_API_KEY"'
    request = '{"input_file_id": "FILE_ID", "endpoint": "/v1/chat/completions", "completion_window": "24h"}'
    content = '-H "Content-Type: application/json"'
    steps = {
        "1. Upload each file, and make a batch of it with the id that comes back:": [
            f"curl {api}/files {key} -F purpose=batch -F {shlex.quote(f'file=@{report.files[0].path}')}",
            f"curl {api}/batches {key} {content} -d '{request}'",
        ],
        "2. When its status is completed (or expired), download its output file, and its error file if it has one:": [
            f"curl {api}/batches/BATCH_ID {key}",
            f"curl {api}/files/OUTPUT_FILE_ID/content {key} -o results-0001.jsonl",
        ],
        "3. Import them, and let the index be finished: what is missing or cannot be used is asked for directly.": [
            shlex.join(["densex", "batch", "import", "results-0001.jsonl", "--to", report.index]),
            index_command,
        ],
    }
    for what, commands in steps.items():
        write(console, what)
        for command in commands:
            _print_command(console, command)


def _print_command(console: Console, command: str) -> None:
    console.print(Text(f"   {plain(command)}", style="bold"), soft_wrap=True)


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number >= 1e5 else f"{number / 1e3:,.1f} kB"


def _money(amount: float | None) -> str:
    return "at a price that is not known" if amount is None else money(amount)
