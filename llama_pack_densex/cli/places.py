"""What paths and URLs stand for: where an index is, and the documents of files and datasets."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.cli.output import one_line, progress, warn
from llama_pack_densex.evaluation.datasets import DatasetError, read_dataset
from llama_pack_densex.models import NONE, resolve_embed_model
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.reading import find_files, read_files
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.foreign import adapter_for
from llama_pack_densex.stores.index import NodeIndex, about
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest, is_index
from llama_pack_densex.stores.urls import MissingIndexError, is_store_url, open_url, redacted

_FAISS = "faiss://"  # everything of it is in a folder
_IN_MEMORY = 32 * 2**20  # bytes of documents that are kept there; more of them go to a file without a name


@dataclass(frozen=True)
class IndexPlace:
    """Where an index is, or is to be.

    Args:
        name: A folder's path or a store's URL, as it may be shown.
        folder: The folder; None for a store that keeps everything itself.
        url: The store's URL; empty for the embedded one.
    """

    name: str
    folder: Path | None
    url: str

    @classmethod
    def of(cls, text: str | Path) -> IndexPlace:
        """What a user wrote.

        Raises:
            InvalidIndexError: It is a folder that cannot be an index's.
        """
        if isinstance(text, Path) or not is_store_url(text):
            return cls(str(text), IndexFolder(Path(text)).path, "")
        folder = IndexFolder(Path(text[len(_FAISS) :])).path if text.startswith(_FAISS) else None
        return cls(redacted(text), folder, text)

    def own_folder(self) -> Path:
        """The folder, for what is done with its files.

        Raises:
            ValueError: A store keeps everything itself.
        """
        if self.folder is None:
            raise ValueError(f"{self.name} is a store, not a folder: check, compact and batch are for folders")
        return self.folder

    def manifest(self) -> Manifest | None:
        """What the index says about itself; None where there is none yet."""
        if self.folder is not None:
            return Manifest.read(self.folder) if is_index(self.folder) else None
        try:
            return about(adapter_for(open_url(self.url, None)))
        except MissingIndexError:
            return None

    def open(self, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index to search or change it.

        Args:
            **arguments: The pack's.

        Raises:
            InvalidIndexError: There is none, or it is damaged.
        """
        if self.folder is not None:
            return DenseXRetrievalPack.load(self.folder, **arguments)
        return DenseXRetrievalPack.from_vector_store(open_url(self.url, None), **arguments)

    def open_to_ask(self, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index for somebody who waits for answers: an embedding model that is not there is told of soon.

        Args:
            **arguments: The pack's.

        Raises:
            InvalidIndexError: As `open`.
        """
        pack = self.open(proposition_llm=NONE, **arguments)
        model = pack.get_modules()["embed_model"]
        if getattr(model, "max_retries", 0) > 1:  # of core and, each time, of the client: more than a minute
            model.max_retries = 1
        return pack

    def build(self, documents: Iterable[Document], **arguments: Any) -> DenseXRetrievalPack:
        """Make the index.

        Args:
            documents: The documents.
            **arguments: The pack's.

        Raises:
            ValueError: A vector store needs an embedding model, and there is none.
        """
        if not self.url:
            return DenseXRetrievalPack(documents, persist_dir=self.folder, **arguments)
        named = arguments.pop("embed_model", None)
        model, why = resolve_embed_model(named)
        if model is None:
            raise ValueError(
                f"{self.name} holds embeddings, and there is no embedding model ({why}): name one with --embed-model"
            )
        store = open_url(self.url, len(model.get_text_embedding("dimension")))
        return DenseXRetrievalPack(
            documents, vector_store=store, persist_dir=self.folder, embed_model=named or model, **arguments
        )

    def nodes(self) -> tuple[Manifest, NodeIndex]:
        """What the index says about itself, and its nodes to read; needs no embedding model.

        Raises:
            InvalidIndexError: There is no index, or it is damaged.
        """
        if self.folder is not None:
            manifest, folder = Manifest.read(self.folder), IndexFolder(self.folder)
            return manifest, NodeIndex(folder.open(manifest), folder=folder, current=manifest)
        store = adapter_for(open_url(self.url, None))
        found = about(store)
        if found is None:
            raise InvalidIndexError(f"there is no index at {self.name}: make one with `densex index PATH --to URL`")
        return found, NodeIndex(store)


class PathDocuments:
    """The documents with text of folders, files and datasets, one after the other.

    All of them are read at once: what cannot be read is said, and skipped, before anything is paid for.

    Args:
        paths: Folders, files and datasets.
        leave_out: Folders not to read.
        indexed: The files that are in the index by path, with their ids.
        include: Globs of files to read though they are code or data by their names.
        exclude: Globs of files not to read.
        strict: Whether files that cannot be read are refused, in place of being skipped.

    Attributes:
        ids: The ids of the documents with text.
        blank: Those of the documents without.
        unreadable: The files and folders that cannot be read.

    Raises:
        OSError: A path does not exist.
        ValueError: There are files that cannot be read, and they are not to be skipped; all of them are named.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        leave_out: Sequence[Path] = (),
        indexed: Mapping[str, str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strict: bool = False,
    ) -> None:
        datasets = {path: documents for path in paths if (documents := _dataset(path)) is not None}
        others = [path for path in paths if path not in datasets]
        found = find_files(others, leave_out, include, exclude, indexed)
        self.unreadable = found.unreadable
        self.ids: set[str] = set()
        self.blank: list[str] = []
        self._number = 0
        self._read = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (it lasts as long as this object)
        with progress("Reading files") as bar:
            for document in chain(*datasets.values(), read_files(found, bar.track)):
                if document.text.strip():
                    self.ids.add(document.id_)
                    self._number += 1
                    pickle.dump(document, self._read)
                else:
                    self.blank.append(document.id_)
        if strict and self.unreadable:
            named = "".join(f"\n- {one_line(str(one))}" for one in self.unreadable)
            raise ValueError(f"nothing is done, since {len(self.unreadable)} cannot be read (--strict):{named}")
        for unreadable in self.unreadable:
            warn(f"skipped: {one_line(str(unreadable))}")
        if found.other_kinds:
            kinds = Counter(path.suffix or path.name for path in found.other_kinds)
            counted = ", ".join(f"{number:,} {one_line(kind)}" for kind, number in kinds.most_common())
            advice = f"--include '*{one_line(next(iter(kinds)))}' reads such files too"
            warn(f"left out as code or data, not prose: {counted} ({advice})")
        for document_id in self.blank:
            warn(f"no text in {one_line(document_id)}")

    def __len__(self) -> int:
        """How many there are."""
        return self._number

    def __iter__(self) -> Iterator[Document]:
        place = 0
        for _ in range(self._number):
            self._read.seek(place)  # somebody else may go through them too
            document = pickle.load(self._read)
            place = self._read.tell()
            yield document


def _dataset(path: Path) -> list[Document] | None:
    """The documents of a dataset that has some; None for anything else."""
    try:
        found = read_dataset(path).documents
    except (DatasetError, OSError, UnicodeDecodeError):  # what is wrong with it is said when it is read as a file
        return None
    warn(f"{one_line(str(path))} is a dataset: its {len(found):,} documents are meant")
    return found
