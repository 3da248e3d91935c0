"""`densex index`, `densex estimate` and `densex batch`: an index brought into step with its files."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import typer
from rich.filesize import decimal
from rich.table import Column
from rich.text import Text

from llama_pack_densex.cli.output import figures, one_line, print_table, stdout, waiting, warn, write
from llama_pack_densex.cli.places import IndexPlace, PathDocuments
from llama_pack_densex.cli.results import print_statuses
from llama_pack_densex.ingestion.batch import ImportReport, RequestFiles, export_requests, import_results, request_files
from llama_pack_densex.ingestion.estimate import Estimate, estimate, llm_behind
from llama_pack_densex.ingestion.progress import duration, many, money
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary, summary_rows
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.names import OPENAI_MODEL, check_known, named_llm, parse_name
from llama_pack_densex.llm.usage import read_prices
from llama_pack_densex.models import E5, NONE, cached_model, embed_model_identity, resolve_embed_model
from llama_pack_densex.options import PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Propositionizer, PropositionizerError
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.propositionizers.seq2seq import PROPOSITIONIZER, Seq2SeqPropositionizer
from llama_pack_densex.stores.folder import REPLIES_FILE
from llama_pack_densex.stores.manifest import Manifest
from llama_pack_densex.stores.node_store import DocumentRecord
from llama_pack_densex.wiring import Given, make_node_parser

_LIMITS = (
    "questions", "strictness", "max_concurrency", "requests_per_minute", "tokens_per_minute", "max_cost",
    "max_tokens_total", "prices",
)  # fmt: skip
_FILES = ("include", "exclude", "strict")  # of `PathDocuments`

Options = Mapping[str, Any]
"""A command's options by name, those that were not given None: `propositionizer` ("llm", "sentence", "recorded:FILE",
"seq2seq" or "seq2seq:MODEL"), `llm` (a name or "none"), `mode`, `granularity`, `embed_model`, and those named above."""


def _given(options: Options, names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) not in (None, [])}


def pack_arguments(options: Options, manifest: Manifest | None) -> dict[str, Any]:
    """The pack's arguments.

    Args:
        options: Of the command.
        manifest: Of the index that is there already.

    Raises:
        typer.BadParameter: Something was chosen for an LLM, and none is asked.
        ValueError: As `make_propositionizer`.
    """
    propositionizer = make_propositionizer(options, manifest)
    for_llm = [*_given(options, _LIMITS), *([] if options.get("llm") in (None, NONE) else ["llm"])]
    if for_llm and llm_behind(propositionizer) is None:  # who sets a budget should not believe that it is kept to
        raise typer.BadParameter("it is for --propositionizer llm", param_hint=f"--{for_llm[0].replace('_', '-')}")
    given = _given(options, ("mode", "granularity", "embed_model"))
    return {"propositionizer": propositionizer, "query_llm": NONE, **given}


def make_propositionizer(options: Options, manifest: Manifest | None = None) -> Propositionizer:
    """What makes the propositions.

    Args:
        options: Of the command.
        manifest: Of the index that is there already.

    Raises:
        typer.BadParameter: There is no such propositionizer.
        ValueError: Something is missing for the choice, or the index was made by a propositionizer that has to be
            named.
    """
    made_by = None if manifest is None else manifest.propositionizer
    llm, named_kind, limits = options.get("llm"), options.get("propositionizer"), _given(options, _LIMITS)
    chosen: Propositionizer = SentencePropositionizer()
    by_key = bool(os.environ.get("OPENAI_API_KEY")) and made_by != chosen.fingerprint
    asks = by_key if llm is None else llm != NONE
    kind, _, named = (named_kind or ("llm" if asks else "sentence")).partition(":")
    if kind == "recorded" and named:
        chosen = RecordedPropositionizer(Path(named))
    elif kind == "seq2seq":
        otherwise = None if llm in (None, NONE) else LLMPropositionizer(llm=llm, **limits)
        chosen = Seq2SeqPropositionizer(named or PROPOSITIONIZER, otherwise=otherwise)
    elif kind == "llm" and not named:
        chosen = LLMPropositionizer(llm=llm or OPENAI_MODEL, **limits)
    elif kind != "sentence" or named:
        raise typer.BadParameter(f"{named_kind!r} is no file, and not llm, sentence, recorded:FILE or seq2seq[:MODEL]")
    if named_kind is None and llm is None and made_by not in (None, chosen.fingerprint):
        raise ValueError(
            "the index's propositions were not made by what is the default here. Say with --propositionizer what "
            "made them (llm, sentence, recorded:FILE or seq2seq; for an LLM also --llm and --questions), or what "
            "is to make them from now on."
        )
    return chosen


def index_paths(paths: Sequence[Path], to: str, options: Options) -> bool:
    """Index the files below some paths, and print what came of it.

    Args:
        paths: Folders and files.
        to: The index's folder, or a vector store's URL. If it holds an index, changed documents are replaced in it,
            and those of files and pages that are gone from `paths` are removed.
        options: What makes the index. What is in it of files that cannot be read stays.

    Returns:
        Whether no document failed.

    Raises:
        ValueError: There is nothing to index, a file cannot be read, or the folder cannot be used.
        OSError: A path does not exist.
        PropositionizerError: No more propositions can be had; what the ingestion came to is printed on stderr.
    """
    place = IndexPlace.of(to)  # says so if the folder cannot be used, before anything is read or paid for
    manifest = place.manifest()
    arguments = pack_arguments(options, manifest)
    pack = place.open(**arguments) if manifest is not None else None
    indexed = pack.documents() if pack else {}
    leave_out = [] if place.folder is None else [place.folder]
    files = dict(_file_of(document_id, record) for document_id, record in indexed.items() if record.file)
    documents = PathDocuments(paths, leave_out, files, **_given(options, _FILES))
    gone = _gone(indexed, paths, documents)
    if not documents and len(gone) in (0, len(indexed)):
        end = f"; to do away with the index, delete {place.name}" if gone else ""
        raise ValueError(f"{', '.join(map(str, paths))}: there is no file with any text that can be read{end}")
    by_default = pack is None and options.get("embed_model") is None
    try:
        if pack is None:
            pack = place.build(documents, show_progress=True, **arguments)
        else:
            pack.refresh(documents, show_progress=True, gone=gone)
    except PropositionizerError as error:
        if error.ingestion is not None:
            with redirect_stdout(sys.stderr):
                _print_ingestion(error.ingestion)
        raise
    _print_index(pack, place.name, documents, by_default)
    return not pack.failed_documents


def _print_index(pack: DenseXRetrievalPack, name: str, documents: PathDocuments, by_default: bool) -> None:
    """Print what was indexed and what the index holds; where there is no embedding model by default, also why."""
    summary, counts = pack.ingestion, pack.counts()
    assert summary is not None
    states = summary.documents
    done = {
        "indexed": states.get("done", 0) + states.get("changed", 0),
        "unchanged": states.get("unchanged", 0),
        "removed": states.get("deleted", 0),
        "without text": len(documents.blank),
        "unreadable, skipped": len(documents.unreadable),
        "failed": states.get("failed", 0),
    }
    shown = [f"{number} {what}" for what, number in done.items() if number or what in ("indexed", "unchanged")]
    write(f"Documents: {', '.join(shown)}.")
    if summary.requests.usage.requests or pack.failed_documents:
        write()
        _print_ingestion(summary, pack.failed_documents)
        write()
    write(f"{one_line(name)} holds {counts}.")
    print_statuses(counts.statuses)
    model = pack.get_modules()["embed_model"]
    embedding = resolve_embed_model(None)[1] if model is None and by_default else embed_model_identity(model)
    search = " It is searched by words." if embedding.startswith("none") else ""
    made_by = pack.node_parser.propositionizer.class_name()
    write(f"Propositions by {made_by}; embedding model: {embedding}.{search}")


def _print_ingestion(summary: IngestionSummary, failed: Sequence[DocumentOutcome] = ()) -> None:
    rows = ([label, one_line(text)] for label, text in summary_rows(summary, failed))
    print_table([Column(no_wrap=True), ""], rows, header=False)


def _file_of(document_id: str, record: DocumentRecord) -> tuple[str, str]:
    """The file of a document, and the document's id; of a PDF's page both without the page."""
    file, _, _ = record.file.rpartition("#page=")
    name, _, _ = document_id.rpartition("#page=")
    return (file, name) if file and name else (record.file, document_id)


def _gone(indexed: Mapping[str, DocumentRecord], paths: Sequence[Path], documents: PathDocuments) -> list[str]:
    """The indexed documents from below these paths that are no longer there or no longer have text."""
    skipped = [unreadable.path for unreadable in documents.unreadable]
    roots = [path.resolve() if path.is_dir() else path.parent.resolve() / path.name for path in paths]
    gone = []
    for document_id, record in indexed.items():
        file = Path(_file_of(document_id, record)[0])
        asked_for = any(file.is_relative_to(root) for root in roots)
        if document_id not in documents.ids and asked_for and not any(file.is_relative_to(path) for path in skipped):
            gone.append(document_id)
    return gone


def estimate_paths(
    paths: Sequence[Path], to: str | None, options: Options, sample: int = 0, files: RequestFiles | None = None
) -> Estimate:
    """Estimate what it takes to index the documents of files and datasets.

    Args:
        paths: Folders, files and datasets.
        to: The folder of an index, which need not exist, or a store's URL: what is in it does not count, and the
            replies of a sample are kept in the folder.
        options: What would make the index; its LLM is "none" for sentences.
        sample: Passages to ask for.
        files: Where requests for the Batch API are written; None for nowhere.

    Raises:
        ValueError: There is nothing to read, or a choice cannot be used.
        OSError: A path does not exist.
    """
    place = None if to is None else IndexPlace.of(to)
    folder, manifest = (None, None) if place is None else (place.folder, place.manifest())
    llm, limits = options.get("llm"), _given(options, _LIMITS)
    if llm in (None, NONE):
        propositionizer: LLMPropositionizer | SentencePropositionizer = SentencePropositionizer()
    else:
        propositionizer = LLMPropositionizer(named_llm(llm, asked=sample > 0), **limits)
        if folder is not None and (sample or (folder / REPLIES_FILE).exists()):
            propositionizer = propositionizer.keeping_replies(folder / REPLIES_FILE)
    known = {} if manifest is None else {"mode": manifest.mode, "granularity": manifest.granularity}
    chosen = PackOptions(**{**known, **_given(options, ("mode", "granularity"))})
    parser, _ = make_node_parser(chosen, Given(propositionizer=propositionizer))
    if place is not None and manifest is not None and manifest.propositionizer != propositionizer.fingerprint:
        warn(f"the propositions in {one_line(place.name)} were made otherwise, so that all documents count as new")
    documents = PathDocuments(paths, [] if folder is None else [folder], **_given(options, _FILES))
    if not documents:
        raise ValueError(f"{', '.join(map(str, paths))}: there is no file with any text that can be read")
    indexed = [] if place is None or manifest is None else place.nodes()[1].documents().values()
    about: Any = {"prices": limits.get("prices"), "indexed": {record.hash for record in indexed}}
    if files is not None:
        return export_requests(documents, parser, files, **about)
    model = _embed_model(options.get("embed_model"), manifest)
    return estimate(documents, parser, embed_model_name=model, sample=sample, **about)


def _embed_model(name: str | None, manifest: Manifest | None) -> str | None:
    """The name of the embedding model that `densex index` would take; None for none."""
    if name is None and manifest is not None:
        name = NONE if manifest.embed_model == NONE else manifest.embed_spec or manifest.embed_model.partition(": ")[2]
    if name is None:
        name = E5 if cached_model(E5) is not None else NONE
    return None if name == NONE else name


def print_estimate(estimate: Estimate) -> None:
    """Print an estimate, and what it rests upon."""
    columns = [Column(no_wrap=True), figures(), Column(style="dim", overflow="fold")]
    rows: list[list[str | Text]] = []
    for name, figure, remark in _rows(estimate):
        style = "bold" if name == "cost" else ""
        if figure:
            rows.append([Text(name, style), Text(figure, style), one_line(remark)])
    print_table(columns, rows, header=False)
    write()
    for note in estimate.notes:
        write(one_line(note), style="dim", bullet="- ")


def _rows(of: Estimate) -> list[tuple[str, str, str]]:
    """What is shown: names, figures (none where there is nothing to show), remarks."""

    def number(count: int) -> str:
        return f"{count:,}" if count else ""

    unchanged = f"and {of.unchanged_documents:,} unchanged in the index" if of.unchanged_documents else ""
    distinct = of.distinct_passages if of.distinct_passages < of.passages else 0
    return [
        ("documents", f"{of.documents:,}", unchanged),
        ("passages", f"{of.passages:,}", ""),
        ("distinct passages", number(distinct), "identical ones are asked for once"),
        ("replies kept before", number(of.already_kept), "they are not asked for"),
        ("requests", f"{of.requests:,}", f"to {of.model or 'no LLM'}"),
        ("tokens sent", number(of.input_tokens), ""),
        ("tokens received", number(of.output_tokens), ""),
        ("cost", money(of.cost), ""),
        ("cost as a batch", money(of.cost_batch) if of.cost_batch else "", "through the Batch API, within a day"),
        ("time", duration(of.seconds) if of.requests else "", ""),
        ("propositions", f"{of.propositions:,}", ""),
        ("questions", number(of.questions), "that the passages answer"),
        ("nodes", f"{of.units:,}", "passages and sentences included"),
        ("tokens embedded", number(of.embedding_tokens), f"by {of.embed_model}"),
        ("cost of embedding", money(of.embedding_cost) if of.embed_model else "", ""),
    ]


# `densex batch`: propositions through OpenAI's Batch API


def export_paths(
    paths: Sequence[Path], to: str, out: Path, options: Options, requests_per_file: int, force: bool
) -> dict[str, Any]:
    """Write request files for the documents of some paths.

    Args:
        paths: Folders, files and datasets.
        to: The index's folder, which need not exist: what is in it is left out.
        out: Where the request files go.
        options: What will make the index: a model, a mode, whether there are questions, prices, and of which files.
        requests_per_file: The most requests in a file.
        force: Whether to replace the files of an earlier export.

    Returns:
        `folder`, where the files are; `index`, the folder of the index that they are for; `estimate`, what was made
        into requests and what they will take; and the `files`.

    Raises:
        ValueError: There is nothing to read, or a choice cannot be used.
        OSError: A path does not exist.
    """
    if out.resolve().is_relative_to(IndexPlace.of(to).own_folder().resolve()):
        raise ValueError(f"{out} is in the index's folder, which is for the index alone: give another one")
    name = options.get("llm") or OPENAI_MODEL
    if parse_name(name)[0] != "openai":
        raise ValueError(f"{name!r} is not of OpenAI, whose Batch API this is for")
    check_known(named_llm(name, asked=False), name)
    with request_files(out, force=force, max_requests=requests_per_file) as files:
        found = estimate_paths(paths, to, {**options, "llm": name}, files=files)
    return {"folder": str(out), "index": to, "estimate": found, "files": files.written}


def print_export(report: dict[str, Any]) -> None:
    """Print what `densex batch export` wrote, and what to do with it."""
    print_estimate(report["estimate"])
    write()
    for file in report["files"]:
        write(f"{one_line(file.path)}: {many(file.requests, 'request')}, {decimal(file.bytes)}", bullet="- ")
    if report["files"]:
        write("Upload them, have a batch made of each, and download what comes of it (docs/ingestion.md). Then:")
        _print_command("batch", "import", "RESULTS...", "--to", report["index"])
    else:
        write("There is nothing to ask for.")
    _print_last_step(report["index"], report["estimate"].model)


def import_files(files: Sequence[Path], to: str, prices: Path | None = None) -> ImportReport:
    """Keep the replies in result files, for `densex index` to find them.

    Args:
        files: What the Batch API wrote.
        to: The index's folder.
        prices: A file of prices.

    Raises:
        ValueError: The folder or the prices cannot be used.
    """
    table = read_prices(prices)
    folder = IndexPlace.of(to).own_folder()
    with waiting("Importing"):
        return import_results(files, ReplyCache(folder / REPLIES_FILE), table)


def print_import(report: ImportReport, index: str) -> None:
    """Print what `densex batch import` kept, and how to go on."""
    there = f", {report.already_there:,} there already" if report.already_there else ""
    write(f"Results: {report.lines:,}. Imported: {report.imported:,}{there}.")
    if report.unusable:
        number = sum(report.unusable.values())
        write(f"Not usable: {number:,}. densex index asks for them directly; another export has them again.")
    for problem, number in report.unusable.items():
        write(f"{number:,}: {one_line(problem)}", bullet="- ")
    if report.usage.requests:
        used = f"{report.usage.input_tokens:,} tokens sent and {report.usage.output_tokens:,} received"
        write(f"The imported ones used {used}: {money(report.cost)} by the Batch API.")
    if report.imported or report.already_there:
        _print_last_step(index, "NAME")


def _print_last_step(index: str, model: str) -> None:
    write("To finish, with the paths and options of the export (without its --questions or --mode, all is paid anew):")
    _print_command("index", "PATH...", "--to", index, "--propositionizer", "llm", "--llm", model)


def _print_command(*arguments: str) -> None:
    stdout().print(Text(f"   densex {one_line(shlex.join(arguments))}", style="bold"), soft_wrap=True)
