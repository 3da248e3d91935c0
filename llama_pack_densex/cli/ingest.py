"""`densex index` and `densex estimate`: an index brought into step with its files, and what that will take."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from rich.table import Column
from rich.text import Text

from llama_pack_densex.cli.choices import Choices
from llama_pack_densex.cli.output import figures, logged_progress, many, one_line, print_table, warn, write
from llama_pack_densex.cli.places import IndexPlace, PathDocuments, document_hashes
from llama_pack_densex.cli.results import print_statuses
from llama_pack_densex.ingestion.estimate import Estimate, estimate
from llama_pack_densex.ingestion.progress import duration, money
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary, summary_rows
from llama_pack_densex.llm.names import named_llm
from llama_pack_densex.models import E5, NONE, cached_model, embed_model_identity, resolve_embed_model
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import PropositionizerError
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.stores.folder import REPLIES_FILE
from llama_pack_densex.stores.manifest import Manifest
from llama_pack_densex.stores.node_store import DocumentRecord


def index_paths(paths: Sequence[Path], to: str, choices: Choices) -> bool:
    """Index the files below some paths, and print what came of it.

    Args:
        paths: Folders and files.
        to: The index's folder, or a vector store's URL. If it holds an index, changed documents are replaced in it,
            and those of files and pages that are gone from `paths` are removed.
        choices: What makes the index. What is in it of files that cannot be read stays.

    Returns:
        Whether no document failed.

    Raises:
        ValueError: There is nothing to index, a file cannot be read, or the folder cannot be used.
        OSError: A path does not exist.
        PropositionizerError: No more propositions can be had; what the ingestion came to is printed on stderr.
    """
    place = IndexPlace.of(to)  # says so if the folder cannot be used, before anything is read or paid for
    manifest = place.manifest()
    arguments = choices.pack_arguments(manifest)
    pack = place.open(**arguments) if manifest is not None else None
    indexed = pack.documents() if pack else {}
    leave_out = [] if place.folder is None else [place.folder]
    files = dict(_file_of(document_id, record) for document_id, record in indexed.items() if record.file)
    documents = PathDocuments(paths, leave_out, files, choices)
    gone = _gone(indexed, paths, documents)
    if not documents and len(gone) in (0, len(indexed)):
        given = ", ".join(str(path) for path in paths)
        what = "no file has any text" if documents.blank else "there is no file to read"
        what = "no file could be read" if documents.unreadable else what
        raise ValueError(f"{given}: {what}" + (f"; to do away with the index, delete {place.name}" if gone else ""))
    by_default = pack is None and choices.embed_model is None
    try:
        with logged_progress():
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
    write(
        f"{one_line(name)} holds {many(counts.documents, 'document')}, {many(counts.passages, 'passage')}, "
        f"{many(counts.propositions, 'proposition')} and {many(counts.sentences, 'further sentence')}"
        + (f", and {many(counts.questions, 'question')} that they answer." if counts.questions else "."),
    )
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


def estimate_paths(paths: Sequence[Path], to: Path | None, choices: Choices, sample: int) -> Estimate:
    """Estimate what it takes to index the documents of files and datasets.

    Args:
        paths: Folders, files and datasets.
        to: The folder of an index, which need not exist: what is in it does not count, and the replies of a sample are
            kept in it.
        choices: What would make the index; its LLM is "none" for sentences.
        sample: Passages to ask for.

    Raises:
        ValueError: There is nothing to read, or a choice cannot be used.
        OSError: A path does not exist.
    """
    manifest = None if to is None else IndexPlace.of(to).manifest()
    if choices.llm in (None, NONE):
        propositionizer: LLMPropositionizer | SentencePropositionizer = SentencePropositionizer()
    else:
        propositionizer = LLMPropositionizer(named_llm(choices.llm, asked=sample > 0), **choices.limits)
        if to is not None and (sample or (to / REPLIES_FILE).exists()):
            propositionizer = propositionizer.keeping_replies(to / REPLIES_FILE)
    parser = choices.node_parser(manifest, propositionizer)
    if manifest is not None and manifest.propositionizer != propositionizer.fingerprint:
        warn(f"the propositions in {one_line(str(to))} were made otherwise, so that all documents count as new")
    documents = PathDocuments(paths, leave_out=[] if to is None else [to], choices=choices)
    found = estimate(
        documents,
        parser,
        prices=choices.limits.get("prices"),
        embed_model_name=_embed_model(choices.embed_model, manifest),
        sample=sample,
        indexed=document_hashes(to, manifest),
    )
    if not found.documents and not found.unchanged_documents and not found.broken_documents:
        raise ValueError(f"{', '.join(map(str, paths))}: there is no file to read")
    return found


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
        rows.append([Text(name, style), Text(figure, style), one_line(remark)])
    print_table(columns, rows, header=False)
    if estimate.broken_documents:
        warn(f"{estimate.broken_documents:,} documents cannot be split; of the first: {estimate.first_error}")
    write()
    for note in estimate.notes:
        write(one_line(note), style="dim", bullet="- ")


def _rows(estimate: Estimate) -> Iterator[tuple[str, str, str]]:
    """What is shown: names, figures, remarks."""
    unchanged = estimate.unchanged_documents
    often = sorted((count, LANGUAGE_NAMES[code]) for code, count in estimate.languages.items() if code)
    shown = [f"{count:,} in {name}" for count, name in reversed(often) if count * 50 >= estimate.passages]
    yield "documents", f"{estimate.documents:,}", f"and {unchanged:,} unchanged in the index" if unchanged else ""
    yield "passages", f"{estimate.passages:,}", ", ".join(shown)
    if estimate.distinct_passages < estimate.passages:
        yield "distinct passages", f"{estimate.distinct_passages:,}", "identical ones are asked for once"
    if estimate.already_kept:
        yield "replies kept before", f"{estimate.already_kept:,}", "they are not asked for"
    if estimate.model:
        yield "requests", f"{estimate.requests:,}", f"to {estimate.model}"
        yield "tokens sent", f"{estimate.input_tokens:,}", ""
        yield "tokens received", f"{estimate.output_tokens:,}", ""
    yield "cost", money(estimate.cost), "" if estimate.model else "no LLM is asked"
    if estimate.cost_batch and estimate.cost_batch != estimate.cost:
        yield "cost as a batch", money(estimate.cost_batch), "through the Batch API, within a day"
    if estimate.requests:
        yield "time", duration(estimate.seconds), ""
    yield "", "", ""
    yield "propositions", f"{estimate.propositions:,}", ""
    if estimate.questions:
        yield "questions", f"{estimate.questions:,}", "that the passages answer"
    yield "nodes", f"{estimate.units:,}", "passages and sentences included"
    if estimate.embed_model:
        yield "tokens embedded", f"{estimate.embedding_tokens:,}", f"by {estimate.embed_model}"
        yield "cost of embedding", money(estimate.embedding_cost), ""
