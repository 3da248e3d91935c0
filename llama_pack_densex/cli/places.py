"""What paths and URLs stand for: where an index is, and the documents of files and datasets."""

from __future__ import annotations

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
from llama_pack_densex.index.manifest import InvalidIndexError, Manifest, is_index
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

_FAISS = "faiss://"  # everything of it is in a folder
# bytes of documents that are kept there; more of them go to a file without a name
_IN_MEMORY = 32 * 2**20


@dataclass(frozen=True)
class IndexPlace:
    """Where an index is, or is to be.

    Args:
        name: A folder's path or a store's URL, as it may be shown.
        folder: The folder; None for a store that keeps everything itself.
        url: The store's URL; empty for the embedded one.
    """

    name: str
    folder: Path | None = None
    url: str = ""

    @classmethod
    def of(cls, location: str | Path) -> IndexPlace:
        """The place that a user wrote.

        Raises:
            InvalidIndexError: It is a folder that cannot be an index's.
        """
        text = str(location)
        if not is_store_url(text):
            return cls(text, IndexFolder(Path(text)).path)
        folder = None
        if text.startswith(_FAISS):
            folder = IndexFolder(Path(text.removeprefix(_FAISS))).path
        return cls(redacted(text), folder, text)

    def own_folder(self) -> Path:
        """The folder, for what is done with its files.

        Raises:
            ValueError: A store keeps everything itself.
        """
        if not self.folder:
            raise ValueError(f"{self.name} is a store; check, compact and batch are for folders")
        return self.folder

    def read(self) -> tuple[Manifest, NodeIndex] | None:
        """What the index says about itself, and its nodes; None where there is none yet. Needs no embedding
        model.

        Raises:
            InvalidIndexError: The index is damaged.
        """
        if self.folder:
            if not is_index(self.folder):
                return None
            manifest = Manifest.read(self.folder)
            folder = IndexFolder(self.folder)
            return manifest, NodeIndex(folder.open(manifest), folder=folder, current=manifest)
        try:
            store = adapter_for(open_url(self.url, None))
        except MissingIndexError:
            return None
        stored = about(store)
        return (stored, NodeIndex(store)) if stored else None

    def nodes(self) -> tuple[Manifest, NodeIndex]:
        """The same of an index that has to be there.

        Raises:
            InvalidIndexError: There is no index, or it is damaged.
        """
        index = self.read()
        if not index:
            raise InvalidIndexError(
                f"no index is at {self.name}: make one by `densex index PATH --to PLACE`"
            )
        return index

    def open(self, **arguments: Any) -> DenseXRetrievalPack:
        """Open the index to search or change it, with further arguments of the pack.

        In a terminal the user is asked about a model at a place that only the index names.

        Raises:
            InvalidIndexError: There is none, or it is damaged.
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
        """Open the index for somebody who waits for answers, and soon hears of a model that is not there.

        Args:
            command: What the user wants, with the options of the pack that they chose.
            **arguments: Further arguments of the pack, which come before those.

        Raises:
            ValueError: The server of a model is not there.
        """
        if self.folder and (missing := left_out(self.folder / REPORT_FILE)):
            warn(f"{missing}; what is missing is not found until `densex index` is run again")
        chosen = command.chosen("query_llm", "embed_model", *PackOptions.model_fields)
        pack = self.open(**{**chosen, "proposition_llm": NONE, **arguments})
        modules = pack.get_modules()
        model = modules["embed_model"]
        check_server(model)
        check_server(modules["query_llm"])
        # of core and, each time, of the client: more than a minute
        if getattr(model, "max_retries", 0) > 1:
            model.max_retries = 1
        return pack

    def build(self, documents: Iterable[Document], **arguments: Any) -> DenseXRetrievalPack:
        """Make the index of documents, with further arguments of the pack.

        Raises:
            ValueError: A vector store needs an embedding model, and there is none.
        """
        if self.url:
            named = arguments.pop("embed_model", None)
            model, reason = resolve_embed_model(named)
            if not model:
                raise ValueError(
                    f"{self.name} holds embeddings, and there is no embedding model ({reason}): name one "
                    "with --embed-model"
                )
            dimension = len(embed_texts(model, ["dimension"])[0])
            arguments |= {
                "vector_store": open_url(self.url, dimension),
                "embed_model": named or model,
            }
        return DenseXRetrievalPack(documents, persist_dir=self.folder, **arguments)


def check_embedding_server(name: str | None) -> None:
    """Refuse an embedding model by its name with a provider where the server is not there; see
    `check_server`."""
    # whose weights are loaded
    if name is not None and is_model_name(name) and not name.startswith("huggingface:"):
        model, _ = resolve_embed_model(name)
        check_server(model)


def check_server(model: Any) -> None:
    """Refuse a model whose server is not there, which its client would ask again and again for a minute or
    more.

    Nothing is sent. Behind a proxy nothing is checked.

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
    """Where a model's client sends requests; empty where it does not say."""
    for name in ("azure_endpoint", "api_base", "base_url"):
        address = getattr(model, name, None)
        if isinstance(address, str) and address:
            return address
    return ""


class PathDocuments:
    """The documents with text of folders, files and datasets, one after the other.

    All of them are read at once: what cannot be read is named, and skipped, before anything is paid for.

    Args:
        paths: Folders, files and datasets.
        leave_out: A folder not to read: the index's.
        indexed: The files that are in the index by path, with their ids.
        include: Globs of files to read though they are code or data by their names.
        exclude: Globs of files not to read.

    Attributes:
        ids: The ids of the documents with text.
        blank: Those of the documents without.
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
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (it lasts as long as this object)
        with waiting("Reading files"):
            for document in chain(*datasets.values(), read_files(files)):
                if document.text.strip():
                    self.ids.add(document.id_)
                    self._count += 1
                    pickle.dump(document, self._file)
                else:
                    self.blank.append(document.id_)

    def refuse_unreadable(self) -> None:
        """Raise an error that names the files that cannot be read, if there are any.

        Raises:
            ValueError: There are.
        """
        if self.unreadable:
            names = "".join(f"\n- {one_line(str(file))}" for file in self.unreadable)
            number = len(self.unreadable)
            raise ValueError(f"nothing is done, since {number} cannot be read (--strict):{names}")

    def warn_of_skipped(self) -> None:
        """Name what is skipped."""
        for file in self.unreadable:
            warn(f"skipped: {one_line(str(file))}")
        media = list(filter(is_media, self._other_kinds))
        if media:
            warn(f"left out as pictures, sound, video or fonts: {_kinds(media)}")
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
            self._file.seek(place)  # somebody else may go through them too
            document = pickle.load(self._file)
            place = self._file.tell()
            yield document


def _kinds(files: Sequence[Path]) -> str:
    """How many files there are of each kind, by their suffixes."""
    kinds = Counter(file.suffix or file.name for file in files)
    return ", ".join(f"{number:,} {one_line(kind)}" for kind, number in kinds.most_common())


def _read_dataset(path: Path) -> list[Document]:
    """The documents of a dataset; none of anything else."""
    try:
        documents = read_dataset(path).documents
    # what is wrong with it is reported when it is read as a file
    except (DatasetError, OSError, UnicodeDecodeError):
        return []
    warn(f"{one_line(str(path))} is a dataset: its {len(documents):,} documents are meant")
    return documents
