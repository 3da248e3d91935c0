"""A vector store that cannot give nodes back, and a docstore beside it that can."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode, NodeRelationship
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.storage.docstore.types import RefDocInfo
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.index.adapters.alone import asking_for
from llama_pack_densex.index.adapters.wire import to_wire
from llama_pack_densex.index.manifest import remove_files, sync, write_whole
from llama_pack_densex.index.node_store import (
    DocumentRecord,
    DocumentRecords,
    FoundNode,
    Ids,
    NodeRecord,
    Nodes,
    NodeStore,
    check_question,
    file_of,
    granularity_of,
    look_further,
)
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY

_DOCSTORE = "docstore"  # files have the name of what they hold, and of its state
_VECTORS = "vectors"
_FILE = "unfinished.json"
_ABOUT = "densex/about"
_CHANGED = "densex/changed"
_ANEW = "index the documents anew (replies of an LLM that are kept are used again)"

T = TypeVar("T")
Notes = dict[str, list[str]]
"""The ids of the old and new nodes of documents, while these are changed."""
Writers = dict[str, Callable[[str], None]]
"""By the name of a part of a state what writes it to a file."""
ReadPart = Callable[[str, Callable[[str], Any]], Any]
"""Reads a part of a state by its name and by what reads its file."""


class DocstoreNodes(NodeStore):
    """The vectors in a vector store, the whole nodes in a docstore.

    A document has the hash and file that its first node has. Whoever changes documents notes that first, with
    the ids of their old and new nodes, where a docstore keeps documents' hashes: those that are noted are not
    whole. A vector whose node is not in the docstore is never found.

    What is in memory, `persist` keeps in a folder: a docstore, a `SimpleVectorStore`, in a subclass an index
    of FAISS. Where only one of the two stores is kept there, the other may be ahead of it after a stop; so a
    file in the folder has such notes as well, of all that was changed since.

    Args:
        vector_store: Any vector store of LlamaIndex that takes nodes with their ids and returns these ids.
        docstore: Any docstore of LlamaIndex; None makes one in memory.
    """

    docstore: BaseDocumentStore

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        docstore: BaseDocumentStore | None = None,
    ) -> None:
        super().__init__()
        self.vector_store = vector_store
        self.docstore = docstore if docstore is not None else SimpleDocumentStore()
        self._folder: Path | None = None  # where it is kept
        self._version = ""  # which state of it
        self._ahead: Notes = {}  # what was changed since then, where the docstore does not say so

    @property
    def dimension(self) -> int | None:
        return next(map(len, _vectors_in(self.vector_store).values()), None)

    # What a subclass replaces.

    def _writers(self) -> Writers:
        """What is in memory, and kept in a folder: by its name what writes it to a file."""
        writers: Writers = {}
        if isinstance(self.docstore, SimpleDocumentStore):
            writers[_DOCSTORE] = self.docstore.persist
        if isinstance(self.vector_store, SimpleVectorStore):
            writers[_VECTORS] = self.vector_store.persist
        return writers

    def _reload_vectors(self, read: ReadPart) -> None:
        """Go on with the vectors of a state, in the vector store that others hold too."""
        if isinstance(self.vector_store, SimpleVectorStore):
            kept = read(_VECTORS, SimpleVectorStore.from_persist_path)
            self._check_same(_vectors_in(self.vector_store), _vectors_in(kept))
            self.vector_store.data = kept.data

    def _wires(self, nodes: Nodes) -> list[BaseNode]:
        """The nodes as vector stores take them; refuses what cannot be kept, before anything is changed."""
        wires = []
        for node in nodes:  # the docstore has all links, and some vector stores have little room
            links = {
                kind: link
                for kind, link in node.relationships.items()
                if kind == NodeRelationship.SOURCE
            }
            wires.append(to_wire(node).model_copy(update={"relationships": links}))
        return wires

    def _add_vectors(self, wires: Nodes) -> None:
        self.vector_store.add(list(wires))

    def _delete_vectors(self, document_ids: Iterable[str], node_ids: Ids) -> None:
        """Delete the vectors of documents, which are those of these nodes."""
        if type(self.vector_store).delete_nodes is not BasePydanticVectorStore.delete_nodes:
            self.vector_store.delete_nodes(list(node_ids))
            return
        for document_id in document_ids:
            self.vector_store.delete(document_id)

    def _nearest(self, question: VectorStoreQuery, limit: int) -> dict[str, float]:
        """What is nearest by node id with its score, best first; fewer only where there is no more."""
        result = self.vector_store.query(asking_for(question, limit))
        return dict(zip(result.ids or [], result.similarities or [], strict=True))

    def reload(self, folder: Path, version: str) -> None:
        """Go on with what `persist` kept; an empty `SimpleVectorStore` or FAISS index is filled.

        Raises:
            ValueError: It is not in the folder, it is damaged, or the vector store holds other vectors than
                the folder.
        """
        read = partial(read_part, folder, version)
        if _DOCSTORE in self._writers():
            self.docstore = read(_DOCSTORE, SimpleDocumentStore.from_persist_path)
        self._reload_vectors(read)
        self._folder = folder
        self._version = version
        listed = self._listed()
        self._ahead = {
            key: node_ids for key, node_ids in _noted_in(folder).items() if key in listed
        }
        self._changed()

    def persist(self, folder: Path, version: str) -> None:
        """Keep what is in memory in a folder; stores that are not in memory keep themselves."""
        if self._ahead:
            self._note(self._noted())
        self.copy_to(folder, version)
        self._folder = folder
        self._version = version

    def copy_to(self, folder: Path, version: str) -> None:
        for name, write in self._writers().items():
            file = folder / f"{name}-{version}"
            if not file.exists():
                write(str(file))
                sync(file)
        sync(folder)

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of other states than the one that was kept last, which somebody may be about to
        read."""
        if self._folder is None:
            return
        if not self._ahead:
            (self._folder / _FILE).unlink(missing_ok=True)
        for name in self._writers():
            files = self._folder.glob(f"{name}-*")
            earlier = (file for file in files if not file.name.endswith(self._version))
            remove_files(earlier, older_than)

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        wires = self._wires(nodes)
        old = self._members(document_ids)
        changed = _notes_for(old, nodes)
        if not changed:
            return
        try:
            if self._folder is not None and len(self._writers()) == 1:
                write_whole(
                    self._folder / _FILE, json.dumps({**_noted_in(self._folder), **changed})
                )
            self._note({**self._noted(), **changed})
            # those that are written as well: stores keep both rows of an id, or the old one
            self._delete_vectors(old, set(chain(*changed.values())))
            for node_id in chain(*old.values()):
                self.docstore.delete_document(node_id, raise_error=False)
            if nodes:
                self.docstore.add_documents(
                    [node.model_copy(update={"embedding": None}) for node in nodes]
                )
                self._add_vectors([wire for wire in wires if wire.embedding is not None])
            notes = self._noted()  # again, since others may write to the same docstore
            self._note({key: notes[key] for key in notes.keys() - changed.keys()})
        finally:
            self._changed()

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        nodes = {
            node_id: self.docstore.get_document(node_id, raise_error=False)
            for node_id in dict.fromkeys(node_ids)
        }
        return {node_id: node for node_id, node in nodes.items() if node is not None}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        check_question(question.query_embedding, self.dimension)
        passing = self.passing(question.filters)

        def find(limit: int) -> tuple[list[FoundNode], int]:
            scores = self._nearest(question, limit)
            kept = []
            for node_id, node in self.fetch(list(scores)).items():
                passage_id = getattr(node, "index_id", "")
                hit = FoundNode(node_id, granularity_of(node), passage_id, float(scores[node_id]))
                if hit.granularity and (passing is None or hit.leads_to in passing.ids):
                    kept.append(hit)
            return kept, len(scores)

        count = question.similarity_top_k
        # what is dropped is made up for beforehand, since a second search takes as long as the first
        return look_further(find, count, count if passing is None else passing.fetched(count))

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        for info in self._listed().values():
            for node in self.fetch(info.node_ids).values():
                if granularity_of(node) and granularity in (None, granularity_of(node)):
                    yield NodeRecord.of(node)

    def documents(self) -> DocumentRecords:
        """The documents by id; one that is not whole has no hash."""
        records = {
            document_id: DocumentRecord(info.metadata[DOCUMENT_HASH_KEY], file_of(info.metadata))
            for document_id, info in self._listed().items()
        }
        return {**records, **dict.fromkeys(self._noted(), DocumentRecord())}

    def node_ids(self, document_ids: Ids) -> set[str]:
        return set(chain(*self._members(document_ids).values()))

    def read_about(self) -> str | None:
        return self.docstore.get_document_hash(_ABOUT)

    def write_about(self, text: str) -> None:
        self.docstore.set_document_hash(_ABOUT, text)
        self._changed()

    def _check_same(self, held: Collection[Any], kept: Collection[Any]) -> None:
        if self._folder is None and held and set(held) != set(kept):
            raise ValueError(
                "the folder has other vectors: leave vector_store out, or pass one that is empty"
            )

    def _listed(self) -> dict[str, RefDocInfo]:
        """What the docstore lists of each document of ours."""
        infos = self.docstore.get_all_ref_doc_info() or {}
        return {
            document_id: info
            for document_id, info in infos.items()
            if DOCUMENT_HASH_KEY in info.metadata
        }

    def _members(self, document_ids: Iterable[str]) -> dict[str, set[str]]:
        """The ids of the nodes of those documents that are there, or that were there before a stop."""
        notes = self._noted()
        members = {
            document_id: set(notes[document_id])
            for document_id in document_ids
            if document_id in notes
        }
        for document_id in document_ids:
            info = self.docstore.get_ref_doc_info(document_id)
            if info is not None and DOCUMENT_HASH_KEY in info.metadata:
                members.setdefault(document_id, set()).update(info.node_ids)
        return members

    def _noted(self) -> Notes:
        return {
            **json.loads(self.docstore.get_document_hash(_CHANGED) or "{}"),
            **self._ahead,
        }

    def _note(self, notes: Notes) -> None:
        self.docstore.set_document_hashes({_CHANGED: json.dumps(notes)})
        self._ahead = {}


def _notes_for(old: dict[str, set[str]], nodes: Nodes) -> Notes:
    """The ids of the old and new nodes of documents."""
    changed = {document_id: list(node_ids) for document_id, node_ids in old.items()}
    for node in nodes:
        changed.setdefault(node.ref_doc_id or "", []).append(node.node_id)
    return changed


def _vectors_in(store: BasePydanticVectorStore) -> dict[str, list[float]]:
    """The vectors in memory, by node id."""
    return store.data.embedding_dict if isinstance(store, SimpleVectorStore) else {}


def _noted_in(folder: Path) -> Notes:
    file = folder / _FILE
    return dict(json.loads(file.read_bytes())) if file.exists() else {}


def read_part(folder: Path, version: str, name: str, read: Callable[[str], T]) -> T:
    """What a folder has of a part in some state.

    Raises:
        ValueError: It is not there, or damaged.
    """
    file = folder / f"{name}-{version}"
    try:
        file.open("rb").close()  # what the system may do better another time is raised as it is
        return read(str(file))
    except FileNotFoundError as error:
        store = "docstore" if name == _DOCSTORE else "vector_store"
        raise ValueError(
            f"{file} is missing: if there is a {store} of its own, pass it as {store}=, else {_ANEW}."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{file} is damaged ({error}); {_ANEW}.") from error
