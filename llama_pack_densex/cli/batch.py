"""`densex batch`: propositions through OpenAI's Batch API, at half the price and within a day."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal
from rich.text import Text

from llama_pack_densex.cli.choices import Choices
from llama_pack_densex.cli.output import many, one_line, plain, stdout, waiting, warn, write
from llama_pack_densex.cli.places import IndexPlace, PathDocuments, document_hashes
from llama_pack_densex.ingestion.batch import ImportReport, RequestFile, export_requests, import_results, request_files
from llama_pack_densex.ingestion.estimate import Estimate
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.names import OPENAI_MODEL, check_known, named_llm, parse_name
from llama_pack_densex.llm.usage import read_prices
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.stores.folder import REPLIES_FILE, IndexFolder

_ENDS = {
    "length": "cut off",
    "refused": "refused by the model",
    "filtered": "stopped by the content filter",
    "too_long": "too long for the model",
}
_NO_PRICE = "at a price that is not known"


@dataclass(frozen=True)
class ExportReport:
    """What `densex batch export` wrote.

    Args:
        folder: Where the files are.
        index: The folder of the index that they are for.
        estimate: What was made into requests, and what they will take.
        blank: Documents without text.
        unreadable: Files that were skipped.
        files: The files.
    """

    folder: str
    index: str
    estimate: Estimate
    blank: int
    unreadable: int
    files: tuple[RequestFile, ...]


def export_paths(
    paths: Sequence[Path],
    to: Path,
    out: Path,
    choices: Choices,
    requests_per_file: int,
    force: bool,
) -> ExportReport:
    """Write request files for the documents of some paths.

    Args:
        paths: Folders, files and datasets.
        to: The index's folder, which need not exist: what is in it is left out.
        out: Where the request files go.
        choices: What will make the index: a model, a mode, whether there are questions, prices, and of which files.
        requests_per_file: The most requests in a file.
        force: Whether to replace the files of an earlier export.

    Raises:
        ValueError: There is nothing to read, or a choice cannot be used.
        OSError: A path does not exist.
    """
    manifest = IndexPlace.of(to).manifest()
    if out.resolve().is_relative_to(to.resolve()):
        raise ValueError(f"{out} is in the index's folder, which is for the index alone: give another one")
    for path in paths:
        if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
            raise ValueError(f"{out} is below {path}, and its files would be indexed: give a folder elsewhere")
    if manifest is not None and {"proposition", "question"}.isdisjoint(manifest.granularity):
        raise ValueError(f"{to} is searched by {' and '.join(manifest.granularity)}: it needs no propositions")
    name = choices.llm or OPENAI_MODEL
    if parse_name(name)[0] != "openai":
        raise ValueError(f"{name!r} is not of OpenAI, whose Batch API this is for")
    llm = named_llm(name, asked=False)
    check_known(llm, name)
    propositionizer = LLMPropositionizer(llm, **choices.limits)
    if (to / REPLIES_FILE).exists():
        propositionizer = propositionizer.keeping_replies(to / REPLIES_FILE)
    documents = PathDocuments(paths, leave_out=[to], choices=choices)
    with request_files(out, force=force, max_requests=requests_per_file) as files:
        parser, prices = choices.node_parser(manifest, propositionizer), choices.limits.get("prices")
        found = export_requests(documents, parser, files, prices=prices, indexed=document_hashes(to, manifest))
    if found.broken_documents:
        warn(f"{found.broken_documents:,} documents cannot be split; of the first: {one_line(found.first_error)}")
    if not found.documents and not found.unchanged_documents and not found.broken_documents:
        raise ValueError(f"{', '.join(map(str, paths))}: there is no file with any text")
    return ExportReport(
        folder=str(out),
        index=str(to),
        estimate=found,
        blank=len(documents.blank),
        unreadable=len(documents.unreadable),
        files=tuple(files.written),
    )


def import_files(files: Sequence[Path], to: Path, prices: Path | None = None) -> ImportReport:
    """Keep the replies in result files, for `densex index` to find them.

    Args:
        files: What the Batch API wrote.
        to: The index's folder.
        prices: A file of prices.

    Raises:
        ValueError: The folder or the prices cannot be used.
    """
    table = read_prices(prices)
    IndexFolder(to)  # says so if the folder cannot be used
    with waiting("Importing"):
        return import_results(files, ReplyCache(to / REPLIES_FILE), table)


def print_export(report: ExportReport, index_arguments: Sequence[str]) -> None:
    """Print what `densex batch export` wrote, and what to do with it.

    Args:
        report: What it wrote.
        index_arguments: The paths and options that `densex index` is to have, besides the folder and the model.
    """
    found = report.estimate
    passages = [f"{found.requests:,} to ask for"]
    rare = {"identical to others": found.passages - found.distinct_passages, "with a reply already": found.already_kept}
    passages += [f"{number:,} {what}" for what, number in rare.items() if number]
    chosen = ["--to", report.index, "--propositionizer", "llm", "--llm", found.model]
    index_command = shlex.join(["densex", "index", *index_arguments, *chosen])
    unchanged = f" ({found.unchanged_documents:,} more are unchanged in the index)" if found.unchanged_documents else ""
    write(f"Documents: {found.documents:,}{unchanged}. Passages: {', '.join(passages)}.")
    if not report.files:
        write("There is nothing to ask for. To bring the index into step:")
        _print_command(index_command)
        return
    write(
        f"About {found.input_tokens:,} tokens to send and {found.output_tokens:,} to come back "
        f"from {found.model}: {money(found.cost_batch, _NO_PRICE)} by the Batch API.",
    )
    for file in report.files:
        write(f"{one_line(file.path)}: {many(file.requests, 'request')}, {decimal(file.bytes)}", bullet="- ")
    write()
    write("Upload them, have a batch made of each, and download what comes of it (docs/ingestion.md). Then:")
    _print_command(shlex.join(["densex", "batch", "import", "RESULTS...", "--to", report.index]))
    _print_command(index_command)


def print_import(report: ImportReport, index: str) -> None:
    """Print what `densex batch import` kept, and how to go on."""
    ends = [f"{report.outcomes[end]:,} {what}" for end, what in _ENDS.items() if report.outcomes.get(end)]
    there = f", {report.already_there:,} there already" if report.already_there else ""
    remark = f" ({', '.join(ends)})" if ends else ""
    write(f"Results: {report.lines:,}. Imported: {report.imported:,}{remark}{there}.")
    if report.unusable:
        number = sum(report.unusable.values())
        write(f"Not usable: {number:,}. densex index asks for them directly; another export has them again.")
    for problem, number in report.unusable.items():
        write(f"{number:,}: {one_line(problem)}", bullet="- ")
    if report.usage.requests:
        used = f"{report.usage.input_tokens:,} tokens sent and {report.usage.output_tokens:,} received"
        write(f"The imported ones used {used}: {money(report.cost, _NO_PRICE)} by the Batch API.")
    if report.imported or report.already_there:
        write("To finish, with the paths, the model and the options of the export:")
        _print_command(f"densex index PATH... --to {shlex.quote(index)} --propositionizer llm --llm NAME")


def _print_command(command: str) -> None:
    stdout().print(Text(f"   {plain(command)}", style="bold"), soft_wrap=True)
