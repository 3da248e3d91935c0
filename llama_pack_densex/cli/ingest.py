"""`densex index`: update an index from files; and `densex estimate`: what that will take."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    Propositionizer,
    PropositionizerError,
    RecordedPropositionizer,
    SentencePropositionizer,
    Seq2SeqPropositionizer,
)
from llama_pack_densex.cli.app import (
    KINDS,
    BatchExportCommand,
    EstimateCommand,
    IndexCommand,
    Ingesting,
)
from llama_pack_densex.cli.inspect import print_statuses
from llama_pack_densex.cli.output import print_figures, print_json, warn, write, write_list
from llama_pack_densex.cli.places import IndexPlace, PathDocuments
from llama_pack_densex.cli.spending import expenses_of_indexing, expenses_of_llm, is_agreed
from llama_pack_densex.index.manifest import REPLIES_FILE, Manifest
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import DocumentRecord
from llama_pack_densex.ingestion.estimate import Estimate, estimate, llm_behind
from llama_pack_densex.ingestion.report import summary_rows
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import Usage
from llama_pack_densex.models import (
    E5,
    NONE,
    cached_model,
    embed_model_identity,
)
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.options import PackOptions
from llama_pack_densex.propositionizers.seq2seq import PROPOSITIONIZER
from llama_pack_densex.text.terminal import one_line
from llama_pack_densex.wiring import UserArguments, make_node_parser


def index_paths(options: IndexCommand) -> bool:
    """Index the files below the given paths, and print the outcome.

    In an existing index, changed documents are replaced, and documents of files and pages that no longer
    exist below the paths are removed; documents of files that cannot be read stay.

    Returns:
        False if the user did not agree to the cost, or a document failed.

    Raises:
        ValueError: There is nothing to index, a file cannot be read, or the folder cannot be used.
        OSError: A path does not exist.
        PropositionizerError: No more propositions can be had; what the ingestion came to is printed on
            stderr.
    """
    # raises if the folder cannot be used, before anything is read or paid for
    index = IndexPlace.of(options.to)
    opened = index.read()
    manifest = opened.manifest if opened else None
    arguments = _pack_arguments(options, manifest)
    pack = None
    if manifest:
        pack = index.open(**arguments)
    plan = plan_ingestion(options, arguments["propositionizer"], index, opened)
    documents = plan.documents
    gone = _gone(plan.files, options.paths, documents)
    if not documents and not gone:
        raise _nothing_to_read(options.paths)
    if not documents and len(gone) == len(plan.files):
        raise _nothing_to_read(options.paths, f"; to remove the index, delete {index.name}")
    if not _is_agreed(options, plan):
        return False
    with _figures_on_failure():
        if pack is None:
            pack = index.build(documents, show_progress=not options.as_json, **arguments)
        else:
            pack.refresh(documents, show_progress=not options.as_json, gone=gone)
    if options.as_json:
        print_json(_described(pack, index, documents))
    else:
        _print_documents(pack, documents)
        write(f"{one_line(index.name)} holds {pack.counts()}.")
        print_statuses(pack.counts())
        _print_models(pack)
        _print_default_left(pack, options)
    return not pack.failed_documents


@contextmanager
def _figures_on_failure() -> Iterator[None]:
    """If an ingestion fails, print its figures on stderr."""
    try:
        yield
    except PropositionizerError as error:
        if error.ingestion:
            with redirect_stdout(sys.stderr):
                print_figures(summary_rows(error.ingestion))
        raise


def _is_agreed(options: IndexCommand, plan: Plan) -> bool:
    """Check the models' servers, and return whether the user agrees to the cost."""
    expenses = expenses_of_indexing(
        plan.documents, plan.parser, plan.indexed, plan.embed_model, options.prices
    )
    return is_agreed(expenses, options)


def _described(
    pack: DenseXRetrievalPack, index: IndexPlace, documents: PathDocuments
) -> dict[str, Any]:
    """Return the outcome of the documents and the contents of the index, as JSON."""
    return {
        "index": index.name,
        "ingestion": pack.ingestion,
        "blank": documents.blank,
        "unreadable": [str(file) for file in documents.unreadable],
        "failed": [
            {"document": failed.document_id, "error": failed.error}
            for failed in pack.failed_documents
        ],
        "counts": pack.counts(),
        "propositionizer": pack.node_parser.propositionizer.class_name(),
        "embed_model": embed_model_identity(pack.get_modules()["embed_model"]),
    }


def _pack_arguments(options: IndexCommand, manifest: Manifest | None) -> dict[str, Any]:
    """Return the pack's arguments.

    Raises:
        typer.BadParameter: An option for an LLM was given, but no LLM is used.
        ValueError: As `make_propositionizer`.
    """
    made_by = manifest.propositionizer if manifest else None
    settings = options.chosen(*LLMPropositionizer.model_fields)
    propositionizer = make_propositionizer(
        options.propositionizer, options.llm, made_by, **settings
    )
    unused = [name for name, value in options.chosen(*settings, "llm").items() if value != NONE]
    # a user who sets a budget must not believe that it is enforced
    if unused and not llm_behind(propositionizer):
        name = unused[0].replace("_", "-")
        raise typer.BadParameter("only for --propositionizer llm", param_hint=f"--{name}")
    chosen = options.chosen("embed_model", *PackOptions.model_fields)
    return {"propositionizer": propositionizer, "query_llm": NONE, **chosen}


def make_propositionizer(
    kind: str | None,
    llm: str | None = None,
    made_by: str | None = None,
    **settings: Any,
) -> Propositionizer:
    """Make a propositionizer.

    Args:
        kind: "llm", "sentence", "recorded:FILE", "seq2seq" or "seq2seq:MODEL"; None means the default.
        llm: The name of an LLM or "none"; None means the default.
        made_by: The fingerprint of the propositionizer that made the index, if there is one.
        **settings: Settings of `LLMPropositionizer`.

    Raises:
        typer.BadParameter: There is no such propositionizer.
        ValueError: Something is missing for this propositionizer, or the index was made by another one than
            the default, which therefore has to be named.
    """
    propositionizer = _named_propositionizer(kind or _default_kind(llm, made_by), llm, settings)
    if kind is None and llm is None and made_by not in (None, propositionizer.fingerprint):
        raise ValueError(
            "the index's propositions were not made by the default propositionizer. Name with "
            "--propositionizer the one that made them (llm, sentence, recorded:FILE or seq2seq; for an LLM "
            "also --llm and --questions), or the one to use from now on."
        )
    return propositionizer


def _named_propositionizer(kind: str, llm: str | None, settings: dict[str, Any]) -> Propositionizer:
    base, _, name = kind.partition(":")
    otherwise = None
    if llm is not None and base in ("recorded", "seq2seq"):
        otherwise = _named_propositionizer(_default_kind(llm, None), llm, settings)
    if base == "recorded" and name:
        return RecordedPropositionizer(Path(name), otherwise)
    if base == "seq2seq":
        return Seq2SeqPropositionizer(name or PROPOSITIONIZER, otherwise=otherwise)
    if kind == "llm":
        return LLMPropositionizer(llm=llm or OPENAI_MODEL, **settings)
    if kind == "sentence":
        return SentencePropositionizer()
    raise typer.BadParameter(f"{kind!r} is neither a file nor {KINDS}")


def _default_kind(llm: str | None, made_by: str | None) -> str:
    if llm == NONE:
        return "sentence"
    if llm is not None:
        return "llm"
    by_sentences = made_by == SentencePropositionizer().fingerprint
    if os.environ.get("OPENAI_API_KEY") and not by_sentences:
        return "llm"
    return "sentence"


def _file_of(document_id: str, file: str) -> tuple[str, str]:
    """Return a document's file and id, both without the page if the document is a page of a file."""
    if "#page=" in document_id and "#page=" in file:
        return file.rpartition("#page=")[0], document_id.rpartition("#page=")[0]
    return file, document_id


def _gone(
    files: Mapping[str, tuple[str, str]], paths: Sequence[Path], documents: PathDocuments
) -> list[str]:
    """Return the indexed documents below these paths that no longer exist or no longer have text.

    Raises:
        ValueError: A folder that they were in is empty, as where a drive is not mounted.
    """
    skipped = [unreadable.path for unreadable in documents.unreadable]
    roots = list(map(_root_of, paths))
    missing = [document_id for document_id in files if document_id not in documents.ids]
    gone = {}
    for document_id in missing:
        file = Path(files[document_id][0])
        if _is_below(file, roots) and not _is_below(file, skipped):
            gone[document_id] = file
    for root in roots:
        if root.is_dir() and not any(root.iterdir()):
            _refuse_empty(root, gone.values())
    return list(gone)


def _refuse_empty(root: Path, gone: Iterable[Path]) -> None:
    if any(file.is_relative_to(root) for file in gone):
        raise ValueError(
            f"{root} is empty, but the index has documents from it: is a drive not mounted? If they are "
            "to be removed, put another file there, or use densex delete"
        )


def _root_of(path: Path) -> Path:
    """Return a path as documents name their files; a link to a file is not followed."""
    if path.is_dir():
        return path.resolve()
    return path.parent.resolve() / path.name


def _is_below(file: Path, paths: Sequence[Path]) -> bool:
    return any(map(file.is_relative_to, paths))


def _print_documents(pack: DenseXRetrievalPack, documents: PathDocuments) -> None:
    """Print the outcome of the documents and, if an LLM was asked or a document failed, all figures."""
    summary = pack.ingestion
    assert summary is not None
    states = Counter(summary.documents)
    numbers = {
        "removed": states["deleted"],
        "without text": len(documents.blank),
        "unreadable, skipped": len(documents.unreadable),
        "failed": states["failed"],
    }
    parts = [f"{states['done'] + states['changed']} indexed", f"{states['unchanged']} unchanged"]
    parts += [f"{number} {what}" for what, number in numbers.items() if number]
    write(f"Documents: {', '.join(parts)}.")
    if summary.requests.usage.requests or pack.failed_documents:
        write()
        print_figures(summary_rows(summary, pack.failed_documents))
        write()


def _print_models(pack: DenseXRetrievalPack) -> None:
    """Print which propositionizer and which embedding model the index uses."""
    embedding = embed_model_identity(pack.get_modules()["embed_model"])
    made_by = pack.node_parser.propositionizer.class_name()
    line = f"Propositions by {made_by}; embedding model: {embedding}."
    if embedding == NONE:
        line += " Search is by keywords."
    write(line)


def _print_default_left(pack: DenseXRetrievalPack, options: IndexCommand) -> None:
    """Tell the user that the index stays without an LLM, although a new one would now be made with one."""
    is_chosen = options.llm is not None or options.propositionizer is not None
    is_of_sentences = isinstance(pack.node_parser.propositionizer, SentencePropositionizer)
    if is_of_sentences and not is_chosen and _default_kind(None, None) == "llm":
        write(
            "The index was made without an LLM, and stays so although there is a key now: with --llm "
            f"{OPENAI_MODEL}, the LLM writes propositions for all its documents."
        )


@dataclass(frozen=True)
class Plan:
    """The inputs of an ingestion.

    Args:
        documents: The documents.
        parser: Turns them into nodes.
        embed_model: The name of the embedding model; None for none.
        indexed: The hashes of the documents in the index.
        files: For each document in the index, by id, its file and the file's id.
    """

    documents: PathDocuments
    parser: BasePropositionNodeParser
    embed_model: str | None
    indexed: set[str]
    files: dict[str, tuple[str, str]]


def plan_ingestion(
    options: Ingesting,
    propositionizer: Propositionizer,
    index: IndexPlace | None,
    opened: NodeIndex | None,
) -> Plan:
    """Plan an ingestion by `densex index`.

    Args:
        options: The command's options.
        propositionizer: Makes the propositions.
        index: The place of the index; None if it is not known.
        opened: The nodes of the index; None if there is no index yet.

    Raises:
        ValueError: An option cannot be used.
        OSError: A path does not exist.
    """
    manifest = None
    records: Mapping[str, DocumentRecord] = {}
    if opened:
        manifest = opened.manifest
        records = opened.documents()
    folder = index.folder if index else None
    if folder and (folder / REPLIES_FILE).exists():
        propositionizer = propositionizer.keeping_replies(folder / REPLIES_FILE)
    parser, _ = make_node_parser(
        PackOptions.for_index(manifest, options.chosen(*PackOptions.model_fields)),
        UserArguments(propositionizer=propositionizer),
    )
    files = {
        document_id: _file_of(document_id, record.file) for document_id, record in records.items()
    }
    documents = PathDocuments(
        options.paths, folder, dict(files.values()), **options.chosen("include", "exclude")
    )
    if options.strict:
        documents.refuse_unreadable()
    documents.warn_of_skipped()
    embed_model = _embed_model_name(manifest, **options.chosen("embed_model"))
    return Plan(documents, parser, embed_model, {record.hash for record in records.values()}, files)


def _propositionizer_by_llm(
    options: EstimateCommand | BatchExportCommand, is_called: bool
) -> Propositionizer:
    if options.llm == NONE:
        return SentencePropositionizer()
    llm = named_llm(options.llm or OPENAI_MODEL, is_called=is_called)
    return LLMPropositionizer(llm, **options.chosen(*LLMPropositionizer.model_fields))


def plan_by_llm(options: EstimateCommand | BatchExportCommand, asks: bool = False) -> Plan:
    """Plan an ingestion by `densex index` with an LLM.

    Args:
        options: The command's options.
        asks: Whether the LLM is going to be called.

    Raises:
        ValueError: There is nothing to read, or an option cannot be used.
        OSError: A path does not exist.
    """
    index = opened = None
    if options.to is not None:
        index = IndexPlace.of(options.to)
        opened = index.read()
    propositionizer = _propositionizer_by_llm(options, asks)
    if asks and index and index.folder:  # keep the replies for densex index
        propositionizer = propositionizer.keeping_replies(index.folder / REPLIES_FILE)
    if index and opened and opened.manifest.propositionizer != propositionizer.fingerprint:
        warn(
            f"the propositions in {one_line(index.name)} were made in another way, so all documents count as "
            "new"
        )
    plan = plan_ingestion(options, propositionizer, index, opened)
    if not plan.documents:
        raise _nothing_to_read(options.paths)
    return plan


def _nothing_to_read(paths: Sequence[Path], end: str = "") -> ValueError:
    return ValueError(
        f"{', '.join(map(str, paths))}: there is no file with any text that can be read{end}"
    )


def estimate_paths(options: EstimateCommand) -> None:
    """Estimate what it takes to index the documents in files and datasets."""
    plan = plan_by_llm(options, asks=options.sample > 0)
    report = estimate(
        plan.documents,
        plan.parser,
        prices=options.prices,
        embed_model_name=plan.embed_model,
        sample=options.sample,
        indexed=plan.indexed,
        before_sample=partial(_agree, options, plan.parser),
    )
    options.show(report, print_estimate)


def _agree(options: EstimateCommand, parser: BasePropositionNodeParser, usage: Usage) -> None:
    """End the command if the user does not agree to the cost of a sample."""
    asking = llm_behind(parser.propositionizer)
    if asking and not is_agreed(expenses_of_llm(asking.llm, usage, options.prices), options):
        raise typer.Exit(1)


def _embed_model_name(manifest: Manifest | None, embed_model: str | None = None) -> str | None:
    """Return the name of the embedding model that `densex index` would use; None for none."""
    if embed_model is None and manifest:
        embed_model = manifest.embed_spec or manifest.embed_model.partition(": ")[2]
    if embed_model is None and cached_model(E5):
        embed_model = E5
    if embed_model in ("", NONE):
        return None
    return embed_model


def print_estimate(report: Estimate) -> None:
    """Print an estimate and its notes."""
    rows = report.rows()
    width = max(len(figure) for _, figure, _ in rows)
    print_figures((label, f"{figure:>{width}}  {remark}") for label, figure, remark in rows)
    write()
    write_list(report.notes, "dim")
