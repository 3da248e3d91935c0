"""Adapter for a vector store that cannot return nodes, with a docstore beside it that keeps them."""

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

_DOCSTORE = "docstore"  # files are named after the part that they hold and its state
_VECTORS = "vectors"
_FILE = "unfinished.json"
_ABOUT = "densex/about"
_CHANGED = "densex/changed"
_ADVICE = "index the documents again (cached LLM replies are reused)"

T = TypeVar("T")
Notes = dict[str, list[str]]
"""For each document that is being changed, the ids of its old and new nodes."""
Writers = dict[str, Callable[[str], None]]
"""For each part of a state, by name, the function that writes it to a file."""
ReadPart = Callable[[str, Callable[[str], Any]], Any]
"""Reads a part of a state, given its name and the function that reads its file."""


class DocstoreNodes(NodeStore):
    """Nodes whose vectors are in a vector store, and which are themselves in a docstore.

    A document has the hash and file of its first node. Before documents are changed, the ids of their old and
    new nodes are noted in the docstore, as a document hash: a document with such a note is incomplete. A
    vector whose node is not in the docstore is never found.

    `persist` writes what is in memory to a folder: the docstore, a `SimpleVectorStore`, or (in a subclass) a
    FAISS index. If only one of the two stores is kept there, the other may be ahead of it after a stop; so a
    file in the folder has notes as well, of everything that was changed since.

    Args:
        vector_store: Any vector store of LlamaIndex that takes nodes with their ids and returns these ids.
        docstore: Any docstore of LlamaIndex; None creates one in memory.
    """

    docstore: BaseDocumentStore

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        docstore: BaseDocumentStore | None = None,
    ) -> None:
        super().__init__()
        self.vector_store = vector_store
        if docstore is None:
            docstore = SimpleDocumentStore()
        self.docstore = docstore
        self._folder: Path | None = None  # the folder that the state was persisted in
        self._version = ""  # the name of that state
        self._ahead: Notes = {}  # notes of changes since that state, if the docstore lacks them

    @property
    def dimension(self) -> int | None:
        return next(map(len, _vectors_in(self.vector_store).values()), None)

    # For subclasses to override.

    def _writers(self) -> Writers:
        """Return, by name, the functions that write the parts in memory to files in a folder."""
        writers: Writers = {}
        if isinstance(self.docstore, SimpleDocumentStore):
            writers[_DOCSTORE] = self.docstore.persist
        if isinstance(self.vector_store, SimpleVectorStore):
            writers[_VECTORS] = self.vector_store.persist
        return writers

    def _reload_vectors(self, read: ReadPart) -> None:
        """Load the vectors of a state into the vector store object, which other code may hold as well."""
        if isinstance(self.vector_store, SimpleVectorStore):
            persisted = read(_VECTORS, SimpleVectorStore.from_persist_path)
            self._check_same(_vectors_in(self.vector_store), _vectors_in(persisted))
            self.vector_store.data = persisted.data

    def _wires(self, nodes: Nodes) -> list[BaseNode]:
        """Return the nodes as the vector store takes them; raises before any change if one cannot be kept."""
        wires = []
        # the docstore has all links, and some vector stores limit the size of a node
        for node in nodes:
            links = {}
            if node.source_node:
                links[NodeRelationship.SOURCE] = node.source_node
            wires.append(to_wire(node).model_copy(update={"relationships": links}))
        return wires

    def _add_vectors(self, wires: Nodes) -> None:
        self.vector_store.add(list(wires))

    def _delete_vectors(self, document_ids: Iterable[str], node_ids: Ids) -> None:
        """Delete the vectors of documents, whose nodes have these ids."""
        if type(self.vector_store).delete_nodes is not BasePydanticVectorStore.delete_nodes:
            self.vector_store.delete_nodes(list(node_ids))
            return
        for document_id in document_ids:
            self.vector_store.delete(document_id)

    def _nearest(self, question: VectorStoreQuery, limit: int) -> dict[str, float]:
        """Return the scores of the nearest nodes by id, best first; fewer than `limit` only if there are no
        more."""
        result = self.vector_store.query(asking_for(question, limit))
        return dict(zip(result.ids or [], result.similarities or [], strict=True))

    def reload(self, folder: Path, version: str) -> None:
        """Load what `persist` wrote; an empty `SimpleVectorStore` or FAISS index is filled.

        Raises:
            ValueError: A file is missing or damaged, or the vector store holds other vectors than the folder.
        """
        read = partial(read_part, folder, version)
        if _DOCSTORE in self._writers():
            self.docstore = read(_DOCSTORE, SimpleDocumentStore.from_persist_path)
        self._reload_vectors(read)
        self._folder = folder
        self._version = version
        noted = _noted_in(folder)
        self._ahead = {key: noted[key] for key in self._listed() if key in noted}
        self._changed()

    def persist(self, folder: Path, version: str) -> None:
        """Write what is in memory to a folder; other stores persist themselves."""
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
        """Remove the files of all states except the one persisted last, if they are at least this old: other
        processes may be about to read them."""
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
                ahead = _noted_in(self._folder) | changed
                write_whole(self._folder / _FILE, json.dumps(ahead))
            self._note(self._noted() | changed)
            # new ids too: if an id exists already, stores would keep both vectors, or the old one
            self._delete_vectors(old, set(chain(*changed.values())))
            for node_id in chain(*old.values()):
                self.docstore.delete_document(node_id, raise_error=False)
            if nodes:
                self.docstore.add_documents(
                    [node.model_copy(update={"embedding": None}) for node in nodes]
                )
                self._add_vectors([wire for wire in wires if wire.embedding is not None])
            notes = self._noted()  # read again, because others may write to the same docstore
            self._note({key: notes[key] for key in notes.keys() - changed.keys()})
        finally:
            self._changed()

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        nodes = {}
        for node_id in dict.fromkeys(node_ids):
            node = self.docstore.get_document(node_id, raise_error=False)
            if node is not None:
                nodes[node_id] = node
        return nodes

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        check_question(question.query_embedding, self.dimension)
        passing = self.passing(question.filters)

        def find(limit: int) -> tuple[list[FoundNode], int]:
            scores = self._nearest(question, limit)
            hits = []
            for node_id, node in self.fetch(list(scores)).items():
                passage_id = getattr(node, "index_id", "")
                hit = FoundNode(node_id, granularity_of(node), passage_id, float(scores[node_id]))
                if hit.granularity and (passing is None or hit.leads_to in passing.ids):
                    hits.append(hit)
            return hits, len(scores)

        count = question.similarity_top_k
        limit = count
        if passing is not None:
            # to make up for filtered hits: a second search takes as long as the first
            limit = passing.fetched(count)
        return look_further(find, count, limit)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        for info in self._listed().values():
            for node in self.fetch(info.node_ids).values():
                if granularity_of(node) and granularity in (None, granularity_of(node)):
                    yield NodeRecord.of(node)

    def documents(self) -> DocumentRecords:
        """Return the documents by id; an incomplete one has no hash."""
        records = {
            document_id: DocumentRecord(info.metadata[DOCUMENT_HASH_KEY], file_of(info.metadata))
            for document_id, info in self._listed().items()
        }
        return records | dict.fromkeys(self._noted(), DocumentRecord())

    def node_ids(self, document_ids: Ids) -> set[str]:
        return set(chain(*self._members(document_ids).values()))

    def read_about(self) -> str | None:
        return self.docstore.get_document_hash(_ABOUT)

    def write_about(self, text: str) -> None:
        self.docstore.set_document_hash(_ABOUT, text)
        self._changed()

    def _check_same(self, held: Collection[Any], persisted: Collection[Any]) -> None:
        if self._folder is None and held and set(held) != set(persisted):
            raise ValueError(
                "the vector store holds other vectors than the folder: leave vector_store out, or pass an "
                "empty one"
            )

    def _listed(self) -> dict[str, RefDocInfo]:
        """Return the docstore's entries of the documents that our parsers made."""
        infos = self.docstore.get_all_ref_doc_info() or {}
        return {
            document_id: info
            for document_id, info in infos.items()
            if DOCUMENT_HASH_KEY in info.metadata
        }

    def _members(self, document_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the node ids of those documents that are in the docstore, or that a note names."""
        notes = self._noted()
        members: dict[str, set[str]] = {}
        for document_id in document_ids:
            if document_id in notes:
                members[document_id] = set(notes[document_id])
            info = self.docstore.get_ref_doc_info(document_id)
            if info is not None and DOCUMENT_HASH_KEY in info.metadata:
                members.setdefault(document_id, set()).update(info.node_ids)
        return members

    def _noted(self) -> Notes:
        in_docstore: Notes = json.loads(self.docstore.get_document_hash(_CHANGED) or "{}")
        return in_docstore | self._ahead

    def _note(self, notes: Notes) -> None:
        self.docstore.set_document_hashes({_CHANGED: json.dumps(notes)})
        self._ahead = {}


def _notes_for(old: dict[str, set[str]], nodes: Nodes) -> Notes:
    """Return, for each document, the ids of its old and new nodes."""
    changed = {document_id: list(node_ids) for document_id, node_ids in old.items()}
    for node in nodes:
        changed.setdefault(node.ref_doc_id or "", []).append(node.node_id)
    return changed


def _vectors_in(store: BasePydanticVectorStore) -> dict[str, list[float]]:
    """Return the vectors of a `SimpleVectorStore`, by node id; nothing for other stores."""
    if isinstance(store, SimpleVectorStore):
        return store.data.embedding_dict
    return {}


def _noted_in(folder: Path) -> Notes:
    file = folder / _FILE
    if not file.exists():
        return {}
    return dict(json.loads(file.read_bytes()))


def read_part(folder: Path, version: str, name: str, read: Callable[[str], T]) -> T:
    """Read a part of a state from its file in a folder.

    Raises:
        ValueError: The file is missing or damaged.
    """
    file = folder / f"{name}-{version}"
    try:
        file.open("rb").close()  # raises an OSError that may be temporary
        return read(str(file))
    except FileNotFoundError as error:
        store = "docstore" if name == _DOCSTORE else "vector_store"
        raise ValueError(
            f"{file} is missing: if the index was made with a {store} of its own, pass it as {store}=; "
            f"otherwise {_ADVICE}."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{file} is damaged ({error}); {_ADVICE}.") from error
