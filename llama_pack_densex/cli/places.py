"""What the user's paths and URLs stand for: the place of an index, and documents from files and datasets."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from llama_index.core.schema import Document

from llama_pack_densex.cli.command import Command
from llama_pack_densex.cli.output import is_trusted, waiting, warn
from llama_pack_densex.evaluation.datasets import DatasetError, read_dataset
from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.folder import REPORT_FILE, IndexFolder
from llama_pack_densex.index.manifest import InvalidIndexError, is_index
from llama_pack_densex.index.node_index import NodeIndex, about
from llama_pack_densex.index.urls import MissingIndexError, is_store_url, open_url, redacted
from llama_pack_densex.ingestion.report import left_out
from llama_pack_densex.llm.claims import UnnamedModelError
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.llm.errors import is_unreachable, unreachable_message
from llama_pack_densex.llm.names import is_model_name
from llama_pack_densex.models import NONE, resolve_embed_model
from llama_pack_densex.options import PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.reading import find_files, is_media, read_files
from llama_pack_densex.text.terminal import one_line

_FAISS = "faiss://"  # a store whose files are all in one folder
_IN_MEMORY = 32 * 2**20  # bytes of documents kept in memory; beyond that they go to an unnamed file


@dataclass(frozen=True)
class IndexPlace:
    """Where an index is, or is to be.

    Args:
        name: The folder's path or the store's URL, for messages; without a password.
        folder: The folder; None for a store on a server.
        url: The store's URL; empty for the embedded one.
    """

    name: str
    folder: Path | None = None
    url: str = ""

    @classmethod
    def of(cls, location: str | Path) -> IndexPlace:
        """Return the place that a user's path or URL stands for.

        Raises:
            InvalidIndexError: It is a folder that cannot hold an index.
        """
        text = str(location)
        if not is_store_url(text):
            return cls(text, IndexFolder(Path(os.path.expanduser(text))).path)
        folder = None
        if text.startswith(_FAISS):
            folder = IndexFolder(Path(os.path.expanduser(text.removeprefix(_FAISS)))).path
        return cls(redacted(text), folder, text)

    def own_folder(self) -> Path:
        """Return the folder, for commands that work on its files.

        Raises:
            ValueError: The index has no folder.
        """
        if not self.folder:
            raise ValueError(f"{self.name} is a store; check, compact and batch need a folder")
        return self.folder

    def read(self) -> NodeIndex | None:
        """Return the nodes of the index, without an embedding model; None if there is no index yet.

        Raises:
            InvalidIndexError: The index is damaged.
        """
        if self.folder:
            if not is_index(self.folder):
                return None
            return NodeIndex.open(IndexFolder(self.folder))
        try:
            store = adapter_for(open_url(self.url, None))
        except MissingIndexError:
            return None
        stored = about(store)
        if not stored:
            return None
        return NodeIndex(store, current=stored)

    def nodes(self) -> NodeIndex:
        """Return the nodes of an existing index.

        Raises:
            InvalidIndexError: There is no index, or it is damaged.
        """
        index = self.read()
        if not index:
            raise InvalidIndexError(
                f"there is no index at {self.name}: make one with `densex index PATH --to PLACE`"
            )
        return index

    def open(self, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index to search or change it, with further arguments of the pack.

        If only the index names the place of its embedding model, the user is asked, in a terminal, whether to
        use it.

        Raises:
            InvalidIndexError: There is no index, or it is damaged.
            UnnamedModelError: The user does not trust that place, or cannot be asked.
        """
        try:
            return self._open(arguments)
        except UnnamedModelError as error:
            if not is_trusted(str(error)):
                raise
            return self._open(arguments | {"embed_model": error.model})

    def _open(self, arguments: Mapping[str, Any]) -> DenseXRetrievalPack:
        if self.folder:
            return DenseXRetrievalPack.load(self.folder, **arguments)
        return DenseXRetrievalPack.from_vector_store(open_url(self.url, None), **arguments)

    def open_to_ask(self, command: Command, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index for interactive questions; fail quickly if the server of a model is unreachable.

        Args:
            command: The command, with the pack's options that the user chose.
            **arguments: Further arguments of the pack; they override those options.

        Raises:
            ValueError: The server of a model is unreachable.
        """
        missing = self.folder and left_out(self.folder / REPORT_FILE)
        if missing:
            warn(f"{missing}; what is missing cannot be found until `densex index` is run again")
        chosen = command.chosen("query_llm", "embed_model", *PackOptions.model_fields)
        pack = self.open(**{**chosen, "proposition_llm": NONE, **arguments})
        modules = pack.get_modules()
        model = modules["embed_model"]
        check_server(model)
        check_server(modules["query_llm"])
        # core's retries multiply with those of the client: more than a minute in all
        if getattr(model, "max_retries", 0) > 1:
            model.max_retries = 1
        return pack

    def build(self, documents: Iterable[Document], **arguments: Any) -> DenseXRetrievalPack:
        """Build the index from documents, with further arguments of the pack.

        Raises:
            ValueError: The place is a vector store, and there is no embedding model.
        """
        if self.url:
            chosen_model = arguments.pop("embed_model", None)
            model, reason = resolve_embed_model(chosen_model)
            if not model:
                raise ValueError(
                    f"{self.name} stores embeddings, but there is no embedding model ({reason}): name one "
                    "with --embed-model"
                )
            dimension = len(embed_texts(model, ["dimension"])[0])
            arguments |= {
                "vector_store": open_url(self.url, dimension),
                "embed_model": chosen_model or model,
            }
        return DenseXRetrievalPack(documents, persist_dir=self.folder, **arguments)


def check_embedding_server(name: str | None) -> None:
    """Check the server of an embedding model named with its provider; see `check_server`."""
    # models of Hugging Face run in this process
    if name is not None and is_model_name(name) and not name.startswith("huggingface:"):
        model, _ = resolve_embed_model(name)
        check_server(model)


def check_server(model: Any) -> None:
    """Check that a model's server is reachable: its client would retry for a minute or more.

    Nothing is sent. Behind a proxy, nothing is checked.

    Raises:
        ValueError: The connection is refused, or there is no such host.
    """
    address = _address_of(model)
    parts = urlsplit(address)
    if parts.hostname is None or (
        parts.scheme in getproxies() and not proxy_bypass(parts.hostname)
    ):
        return
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=3).close()
    except OSError as error:
        if is_unreachable(error):
            raise ValueError(
                unreachable_message(redacted(address), str(error.strerror or error))
            ) from None


def _address_of(model: Any) -> str:
    """Return the address that a model's client sends requests to; empty if unknown."""
    for name in ("azure_endpoint", "api_base", "base_url"):
        address = getattr(model, name, None)
        if isinstance(address, str) and address:
            return address
    return ""


class PathDocuments:
    """An iterable over the documents with text in folders, files and datasets.

    All files are read when it is created, so that unreadable ones are reported and skipped before anything is
    paid for.

    Args:
        paths: Folders, files and datasets.
        leave_out: A folder not to read: the index's.
        indexed: The ids of the files in the index, by path.
        include: Globs of files to read although their names are those of code or data.
        exclude: Globs of files not to read.

    Attributes:
        ids: The ids of the documents with text.
        blank: The ids of the documents without text.
        unreadable: The files and folders that cannot be read.

    Raises:
        OSError: A path does not exist.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        leave_out: Path | None = None,
        indexed: Mapping[str, str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> None:
        datasets = {path: _read_dataset(path) for path in paths}
        no_datasets = [path for path in paths if not datasets[path]]
        left_out = [leave_out] if leave_out else []
        files = find_files(no_datasets, left_out, include, exclude, indexed)
        self.unreadable = files.unreadable
        self._other_kinds = files.other_kinds
        self.ids: set[str] = set()
        self.blank: list[str] = []
        self._count = 0
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (it lives as long as this object)
        with waiting("Reading files"):
            for document in chain(*datasets.values(), read_files(files)):
                if document.text.strip():
                    self.ids.add(document.id_)
                    self._count += 1
                    pickle.dump(document, self._file)
                else:
                    self.blank.append(document.id_)

    def refuse_unreadable(self) -> None:
        """Raise an error that names the files that cannot be read.

        Raises:
            ValueError: There are such files.
        """
        if self.unreadable:
            names = "".join(f"\n- {one_line(str(file))}" for file in self.unreadable)
            number = len(self.unreadable)
            raise ValueError(f"nothing was done: {number} cannot be read (--strict):{names}")

    def warn_of_skipped(self) -> None:
        """Warn about files that are skipped or left out, and about documents without text."""
        for file in self.unreadable:
            warn(f"skipped: {one_line(str(file))}")
        media = list(filter(is_media, self._other_kinds))
        if media:
            warn(f"left out as images, audio, video or fonts: {_kinds(media)}")
        data = list(filterfalse(is_media, self._other_kinds))
        if data:
            example = one_line(data[0].suffix or data[0].name)
            advice = f"--include '*{example}' reads such files too"
            warn(f"left out as code or data, not prose: {_kinds(data)} ({advice})")
        for document_id in self.blank:
            warn(f"no text in {one_line(document_id)}")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Document]:
        place = 0
        for _ in range(self._count):
            self._file.seek(place)  # another iterator may have moved the position
            document = pickle.load(self._file)
            place = self._file.tell()
            yield document


def _kinds(files: Sequence[Path]) -> str:
    """Return the number of files per suffix, most frequent first."""
    kinds = Counter(file.suffix or file.name for file in files)
    return ", ".join(f"{number:,} {one_line(kind)}" for kind, number in kinds.most_common())


def _read_dataset(path: Path) -> list[Document]:
    """Return the documents of a dataset; an empty list if the path is not a dataset."""
    try:
        documents = read_dataset(path).documents
    # problems are reported when the path is read as a file
    except (DatasetError, OSError, UnicodeDecodeError):
        return []
    warn(f"{one_line(str(path))} is a dataset: its {len(documents):,} documents are used")
    return documents
