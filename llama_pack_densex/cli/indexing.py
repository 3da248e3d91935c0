"""`densex index`: an index made, or brought into step with its files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_pack_densex.cli.choices import IndexChoices
from llama_pack_densex.cli.datasets import split_datasets
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.cli.session import logged_progress, one_line, progress, warn
from llama_pack_densex.indexing import IndexCounts
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.models import embed_model_identity, resolve_embed_model
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.reading import FoundFile, Unreadable, UnreadableFileError, document_ids, find_files, read_file
from llama_pack_densex.stores.folder import REPORT_FILE
from llama_pack_densex.stores.records import DocumentRecord

if TYPE_CHECKING:
    from llama_index.core.schema import Document

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexReport:
    """What `densex index` did.

    Args:
        folder: The index: its folder, or its store's URL.
        report: Whether `ingestion_report.json` is in its folder.
        propositionizer: What made the propositions of the documents that were indexed.
        embedding: The embedding model; where there is none by default, why.
        indexed: Documents that were new or changed.
        unchanged: Documents that were not.
        removed: Documents whose files or pages are gone.
        blank: Documents without text.
        unreadable: Files that were skipped.
        counts: What the index holds now.
        ingestion: What the ingestion came to.
        failed: The first documents that failed in it.
    """

    folder: str
    report: bool
    propositionizer: str
    embedding: str
    indexed: int
    unchanged: int
    removed: int
    blank: int
    unreadable: int
    counts: IndexCounts
    ingestion: IngestionSummary
    failed: Sequence[DocumentOutcome]


def report_file(to: str) -> Path | None:
    """Where the ingestion report of an index is; None where there is none."""
    folder = IndexPlace.of(to).folder
    return None if folder is None else folder / REPORT_FILE


@dataclass(frozen=True)
class _Reading:
    """The ids of the documents with text, and of those without; the files that could not be read."""

    documents: set[str]
    blank: list[str]
    unreadable: list[Unreadable]


def index_paths(
    paths: Sequence[Path], to: str | Path, choices: IndexChoices, skip_unreadable: bool = False
) -> IndexReport:
    """Index the files below some paths.

    Args:
        paths: Folders and files.
        to: The index's folder, or a vector store's URL. If it holds an index, changed documents are replaced in it,
            and those of files and pages that are gone from `paths` are removed.
        choices: What makes the index.
        skip_unreadable: Whether to warn of files that cannot be read, in place of failing. What is in the index of
            them stays.

    Raises:
        ValueError: There is nothing to index, a file cannot be read, or the folder cannot be used.
        OSError: A path does not exist.
    """
    place = IndexPlace.of(to)  # says so if the folder cannot be used, before anything is read or paid for
    from_datasets, rest = split_datasets(paths)
    files, unlisted = find_files(rest, leave_out=[] if place.folder is None else [place.folder])
    manifest = place.manifest()
    arguments = choices.pack_arguments(manifest)
    pack = place.open(**arguments) if manifest is not None else None
    indexed = pack.documents() if pack else {}
    ids = document_ids(files, _files_of(indexed))
    reading = _survey(files, ids, unlisted, skip_unreadable)
    gone = _gone(indexed, rest, reading)
    if not from_datasets and not reading.documents and len(gone) in (0, len(indexed)):
        given = ", ".join(str(path) for path in paths)
        what = "no file has any text" if reading.blank else "there is no file to read"
        raise ValueError(f"{given}: {what}" + (f"; to do away with the index, delete {place.name}" if gone else ""))
    documents = Documents(files, ids, reading.documents, from_datasets)
    new = pack is None
    with logged_progress():
        if pack is None:
            pack = place.build(documents, show_progress=True, **arguments)
        else:
            pack.refresh(documents, show_progress=True, gone=gone)
    summary = pack.ingestion
    assert summary is not None
    states = summary.documents
    return IndexReport(
        folder=place.name,
        report=place.folder is not None,
        propositionizer=pack.node_parser.propositionizer.class_name(),
        embedding=_embedding(pack, new and choices.embed_model is None),
        indexed=states.get("done", 0) + states.get("changed", 0),
        unchanged=states.get("unchanged", 0),
        removed=states.get("deleted", 0),
        blank=len(reading.blank),
        unreadable=len(reading.unreadable),
        counts=pack.counts(),
        ingestion=summary,
        failed=pack.failed_documents,
    )


class Documents:
    """The documents of files, read one file at a time, each time anew.

    Args:
        files: The files.
        ids: The ids of their documents.
        wanted: The ids of the documents to read; a PDF's pages are documents of their own.
        before: Documents that come before these.
    """

    def __init__(
        self,
        files: Sequence[FoundFile],
        ids: Mapping[Path, str],
        wanted: Collection[str],
        before: Sequence[Document] = (),
    ) -> None:
        self._files, self._ids, self._wanted, self._before = files, ids, wanted, before

    def __len__(self) -> int:
        return len(self._before) + len(self._wanted)

    def __iter__(self) -> Iterator[Document]:
        yield from self._before
        for file in self._files:
            try:
                documents = read_file(file.path, self._ids[file.path])
            except UnreadableFileError as error:  # it could be read a moment ago, or was to be skipped
                logger.info("Left out: %s", error)
                continue
            yield from (document for document in documents if document.id_ in self._wanted)


def _survey(
    files: Sequence[FoundFile], ids: Mapping[Path, str], unlisted: Sequence[Unreadable], skip_unreadable: bool
) -> _Reading:
    """Read all files once, and keep of them what there is: what cannot be read is said before anything is paid for."""
    reading = _Reading(set(), [], list(unlisted))
    with progress("Reading files") as bar:
        for file in bar.track(files):
            try:
                documents = read_file(file.path, ids[file.path])
            except UnreadableFileError as error:
                reading.unreadable.append(error.unreadable)
                if not skip_unreadable:
                    break
                continue
            for document in documents:
                if document.text.strip():
                    reading.documents.add(document.id_)
                else:
                    reading.blank.append(document.id_)
    if reading.unreadable and not skip_unreadable:
        first = reading.unreadable[0]
        raise ValueError(f"{one_line(str(first.path))} {first.reason} (or skip such files with --skip-unreadable)")
    for unreadable in reading.unreadable:
        warn(f"skipped: {one_line(str(unreadable.path))} {unreadable.reason}")
    for document_id in reading.blank:
        warn(f"no text in {one_line(document_id)}")
    return reading


def _embedding(pack: DenseXRetrievalPack, by_default: bool) -> str:
    """The embedding model; where there is none by default, also why."""
    model = pack.get_modules()["embed_model"]
    if model is None and by_default:
        return resolve_embed_model(None)[1]
    return embed_model_identity(model)


def _files_of(indexed: Mapping[str, DocumentRecord]) -> dict[str, str]:
    """The files of an index, with the ids of their documents, a PDF's without the page."""
    files = {}
    for document_id, record in indexed.items():
        path = _path_of(document_id, record)
        if path:
            is_page = path != record.file
            files[path] = document_id.rpartition("#page=")[0] if is_page else document_id
    return files


def _path_of(document_id: str, record: DocumentRecord) -> str:
    """The file of a document, without the page."""
    is_page = "#page=" in document_id and "#page=" in record.file
    return record.file.rpartition("#page=")[0] if is_page else record.file


def _gone(indexed: Mapping[str, DocumentRecord], paths: Sequence[Path], reading: _Reading) -> list[str]:
    """The indexed documents from below these paths that are no longer there or no longer have text."""
    skipped = [unreadable.path for unreadable in reading.unreadable]
    roots = [path.resolve() if path.is_dir() else path.parent.resolve() / path.name for path in paths]
    gone = []
    for document_id, record in indexed.items():
        file = Path(_path_of(document_id, record))
        asked_for = any(file.is_relative_to(root) for root in roots)
        is_there = document_id in reading.documents
        if not is_there and asked_for and not any(file.is_relative_to(path) for path in skipped):
            gone.append(document_id)
    return gone
