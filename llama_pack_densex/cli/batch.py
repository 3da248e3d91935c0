"""`densex batch`: propositions through OpenAI's Batch API."""

from __future__ import annotations

import shlex
from functools import partial

from rich.filesize import decimal
from rich.text import Text

from llama_pack_densex.cli.app import BatchExportCommand, BatchImportCommand
from llama_pack_densex.cli.ingest import plan_by_llm, print_estimate
from llama_pack_densex.cli.output import stdout, waiting, write, write_list
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.cli.search import Json
from llama_pack_densex.index.manifest import REPLIES_FILE
from llama_pack_densex.ingestion import batch
from llama_pack_densex.ingestion.progress import many, money
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.names import OPENAI_MODEL, parse_name
from llama_pack_densex.llm.usage import read_prices
from llama_pack_densex.text.terminal import one_line


def export_requests(options: BatchExportCommand) -> None:
    """Write request files for the documents below the given paths.

    The JSON has `folder`, where the files are; `index`, the folder of the index that they are for;
    `estimate`, the estimate for the requests; and the `files`.

    Raises:
        ValueError: There is nothing to read, or an option cannot be used.
        OSError: A path does not exist.
    """
    if options.out.resolve().is_relative_to(IndexPlace.of(options.to).own_folder().resolve()):
        raise ValueError(
            f"{options.out} is in the index's folder, which holds nothing but the index: name another folder"
        )
    name = options.llm or OPENAI_MODEL
    if parse_name(name)[0] != "openai":
        raise ValueError(f"{name!r} is not a model of OpenAI; this is for OpenAI's Batch API")
    with batch.request_files(
        options.out,
        force=options.force,
        max_requests=options.requests_per_file,
    ) as files:
        plan = plan_by_llm(options)
        estimate = batch.export_requests(
            plan.documents,
            plan.parser,
            files,
            prices=options.prices,
            indexed=plan.indexed,
        )
    report = {
        "folder": str(options.out),
        "index": options.to,
        "estimate": estimate,
        "files": files.written,
    }
    options.show(report, _print_export)


def _print_export(report: Json) -> None:
    print_estimate(report["estimate"])
    write()
    files = report["files"]
    write_list(
        f"{file.path}: {many(file.requests, 'request')}, {decimal(file.bytes)}" for file in files
    )
    if files:
        write(
            "Upload them, create a batch from each, and download the results (docs/batch.md). Then:"
        )
        _print_command("batch", "import", "RESULTS...", "--to", report["index"])
    else:
        write("There is nothing to request.")
    _print_last_step(report["index"], report["estimate"].model)


def import_results(options: BatchImportCommand) -> bool:
    """Import the replies from result files into the index's reply cache.

    Returns:
        False if no line can be used.

    Raises:
        ValueError: The folder or the prices cannot be used.
    """
    prices = read_prices(options.prices)
    replies = IndexPlace.of(options.to).own_folder() / REPLIES_FILE
    with waiting("Importing"):
        report = batch.import_results(options.files, ReplyCache(replies), prices)
    options.show(report, partial(_print_import, options.to))
    return bool(report.imported or report.already_there)


def _print_import(index: str, report: batch.ImportReport) -> None:
    imported = f"{report.imported:,}"
    if report.already_there:
        imported += f", {report.already_there:,} there already"
    write(f"Results: {report.lines:,}. Imported: {imported}.")
    if report.unusable:
        number = sum(report.unusable.values())
        write(
            f"Not usable: {number:,}. densex index requests them directly; a new export includes them."
        )
    write_list(f"{number:,}: {problem}" for problem, number in report.unusable.items())
    if report.usage.requests:
        write(
            f"The imported replies took {report.usage.input_tokens:,} tokens sent and "
            f"{report.usage.output_tokens:,} received: {money(report.cost)} by the Batch API."
        )
    if report.imported or report.already_there:
        _print_last_step(index, "NAME")


def _print_last_step(index: str, model: str) -> None:
    write(
        "To finish, use the export's paths and options; with others (say, without --questions) you pay for "
        "everything again:"
    )
    _print_command("index", "PATH...", "--to", index, "--propositionizer", "llm", "--llm", model)


def _print_command(*arguments: str) -> None:
    stdout().print(
        Text(f"   densex {one_line(shlex.join(arguments))}", style="bold"), soft_wrap=True
    )
