"""`densex index`: an index made, or brought into step with its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.cli.choices import IndexChoices
from llama_pack_densex.cli.opening import open_pack
from llama_pack_densex.cli.session import one_line, progress, stderr, warn
from llama_pack_densex.indexing import IndexCounts
from llama_pack_densex.models import embed_model_identity, resolve_embed_model
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.reading import FoundFile, Unreadable, UnreadableFileError, document_ids, find_files, read_file
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.manifest import Manifest, is_index

if TYPE_CHECKING:
    from llama_index.core.schema import Document


@dataclass(frozen=True)
class IndexReport:
    """What `densex index` did.

    Args:
        folder: The index.
        propositionizer: What made the propositions of the documents that were indexed.
        embedding: The embedding model; where there is none by default, why.
        indexed: Documents that were new or changed.
        unchanged: Documents that were not.
        removed: Documents whose files or pages are gone.
        blank: Documents without text.
        unreadable: Files that were skipped.
        counts: What the index holds now.
    """

    folder: str
    propositionizer: str
    embedding: str
    indexed: int
    unchanged: int
    removed: int
    blank: int
    unreadable: int
    counts: IndexCounts


@dataclass(frozen=True)
class _Reading:
    """The documents with text; the ids of those without; the files that could not be read."""

    documents: list[Document]
    blank: list[str]
    unreadable: list[Unreadable]


def index_paths(paths: Sequence[Path], to: Path, choices: IndexChoices, skip_unreadable: bool = False) -> IndexReport:
    """Index the files below some paths.

    Args:
        paths: Folders and files.
        to: The index's folder. If it holds an index, changed documents are replaced in it, and those of files and
            pages that are gone from `paths` are removed.
        choices: What makes the index.
        skip_unreadable: Whether to warn of files that cannot be read, in place of failing. What is in the index of
            them stays.

    Raises:
        ValueError: There is nothing to index, a file cannot be read, or the folder cannot be used.
        OSError: A path does not exist.
    """
    IndexFolder(to)  # says so if the folder cannot be used, before anything is read or paid for
    files, unlisted = find_files(paths, leave_out=[to])
    arguments = choices.pack_arguments(Manifest.read(to) if is_index(to) else None)
    pack = open_pack(to, **arguments) if is_index(to) else None
    indexed = _indexed_documents(pack) if pack else {}
    reading = _read(files, document_ids(files, _files_of(indexed)), unlisted, skip_unreadable)
    gone = _gone(indexed, paths, reading)
    if not reading.documents and len(gone) in (0, len(indexed)):
        given = ", ".join(str(path) for path in paths)
        what = "no file has any text" if reading.blank else "there is no file to read"
        raise ValueError(f"{given}: {what}" + (f"; to do away with the index, delete {to}" if gone else ""))
    show_progress = stderr().is_terminal
    new = pack is None
    if pack is None:
        pack = DenseXRetrievalPack(reading.documents, persist_dir=to, show_progress=show_progress, **arguments)
        changed = [True] * len(reading.documents)
    else:
        changed = pack.refresh(reading.documents, show_progress=show_progress)
        if gone:
            pack.delete(gone)
    return IndexReport(
        folder=str(to),
        propositionizer=pack.node_parser.propositionizer.class_name(),
        embedding=_embedding(pack, new and choices.embed_model is None),
        indexed=sum(changed),
        unchanged=len(changed) - sum(changed),
        removed=len(gone),
        blank=len(reading.blank),
        unreadable=len(reading.unreadable),
        counts=pack.counts(),
    )


def _read(
    files: Sequence[FoundFile], ids: Mapping[Path, str], unlisted: Sequence[Unreadable], skip_unreadable: bool
) -> _Reading:
    reading = _Reading([], [], list(unlisted))
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
                    reading.documents.append(document)
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


def _indexed_documents(pack: DenseXRetrievalPack) -> dict[str, dict[str, Any]]:
    """The metadata of a passage of each document, by document id."""
    return {node.ref_doc_id or "": node.metadata for node in pack.nodes("passage")}


def _files_of(indexed: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files of an index, with the ids of their documents, a PDF's without the page."""
    files = {}
    for document_id, metadata in indexed.items():
        if metadata.get("file_path"):
            is_page = "page_label" in metadata
            files[str(metadata["file_path"])] = document_id.rpartition("#page=")[0] if is_page else document_id
    return files


def _gone(indexed: Mapping[str, Mapping[str, Any]], paths: Sequence[Path], reading: _Reading) -> list[str]:
    """The indexed documents from below these paths that are no longer there or no longer have text."""
    read = {document.id_ for document in reading.documents}
    skipped = [unreadable.path for unreadable in reading.unreadable]
    roots = [path.resolve() if path.is_dir() else path.parent.resolve() / path.name for path in paths]
    gone = []
    for document_id, metadata in indexed.items():
        file = Path(str(metadata.get("file_path", "")))
        asked_for = any(file.is_relative_to(root) for root in roots)
        if document_id not in read and asked_for and not any(file.is_relative_to(path) for path in skipped):
            gone.append(document_id)
    return gone
