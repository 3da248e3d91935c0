"""A vector store that cannot give nodes back, and a docstore beside it that can."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY
from llama_pack_densex.stores.foreign.alone import asking_for
from llama_pack_densex.stores.foreign.wire import to_wire
from llama_pack_densex.stores.manifest import sync, write_whole
from llama_pack_densex.stores.node_store import DocumentRecord, FoundNode, NodeRecord, NodeStore, look_further

_DOCSTORE, _VECTORS = "docstore", "vectors"  # the parts of a state, each a file that has the state's name too
_UNFINISHED = "unfinished.json"
_ABOUT = "densex/about"
_DOCUMENT = "densex/document/"
_ANEW = "index the documents anew (replies of an LLM that are kept are used again)"

Read = TypeVar("Read")
Part = tuple[Callable[[str], Any], Callable[[str], None]]
"""How a part of it is read from a file, and how it is written to one."""


class DocstoreNodes(NodeStore):
    """The vectors in a vector store, the whole nodes in a docstore.

    What is known of the documents is kept where a docstore keeps documents' hashes. A document without hash is not
    whole: whoever changes a document takes its hash away first, and gives it one last. A vector whose node is not in
    the docstore is never found.

    Args:
        vector_store: Any vector store of LlamaIndex that takes nodes with their ids and returns these ids.
        docstore: Any docstore of LlamaIndex. None makes one in memory; `persist` keeps it in a folder.
    """

    docstore: BaseDocumentStore

    def __init__(self, vector_store: BasePydanticVectorStore, docstore: BaseDocumentStore | None = None) -> None:
        super().__init__()
        self.vector_store = vector_store
        self.docstore = docstore if docstore is not None else SimpleDocumentStore()
        self._folder: Path | None = None  # where it is kept
        self._kept = ""  # which state of it

    @property
    def dimension(self) -> int | None:
        vectors = self.vector_store.data.embedding_dict if isinstance(self.vector_store, SimpleVectorStore) else {}
        return next(map(len, vectors.values()), None)

    def reload(self, folder: Path, version: str) -> None:
        """Go on with what `persist` kept; an empty `SimpleVectorStore` or FAISS index is filled.

        Raises:
            ValueError: It is not in the folder, it is damaged, or the vector store holds other vectors than the folder.
        """
        parts = self._parts()
        if not parts:
            return
        read = {part: read_part(folder, part, version, reading) for part, (reading, _) in parts.items()}
        held, kept = self._vectors(), self._vectors(read)
        if self._folder is None and held and held != kept:
            raise ValueError("the folder has other vectors: leave vector_store out, or pass one that is empty")
        self._hold(read)
        self._folder, self._kept = folder, version
        there = self._notes()
        self._note(dict.fromkeys(there.keys() & _unfinished(folder), DocumentRecord()))
        self._changed()

    def persist(self, folder: Path, version: str) -> None:
        """Keep what is in memory in a folder; stores that are not in memory keep themselves."""
        self.copy_to(folder, version)
        self._folder, self._kept = folder, version

    def copy_to(self, folder: Path, version: str) -> None:
        for part, (_, write) in self._parts().items():
            file = folder / f"{part}-{version}"
            if not file.exists():
                write(str(file))
                sync(file)
        sync(folder)

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of other states than the one that was kept last, which somebody may be about to read."""
        if self._folder is None:
            return
        (self._folder / _UNFINISHED).unlink(missing_ok=True)
        latest = time.time() - older_than.total_seconds() if older_than else math.inf
        for file in (file for part in self._parts() for file in self._folder.glob(f"{part}-*")):
            if not file.name.endswith(self._kept) and file.stat().st_mtime <= latest:
                file.unlink()

    def replace(self, document_ids: Collection[str], nodes: Sequence[BaseNode]) -> None:
        wires = self._wires(nodes)
        by_document: defaultdict[str, list[BaseNode]] = defaultdict(list)
        for node in nodes:
            by_document[node.ref_doc_id or ""].append(node)
        before = self._node_ids(document_ids)
        affected = list(dict.fromkeys([*before, *by_document]))
        if not affected:
            return
        try:
            if self._folder is not None and len(self._parts()) == 1:
                # the folder has one of the two stores, and the other may be ahead of it after a stop
                write_whole(self._folder / _UNFINISHED, json.dumps([*_unfinished(self._folder), *affected]))
            self._note(dict.fromkeys(affected, DocumentRecord()))
            # those that are to be written as well: stores keep both rows of an id, or the old one
            due = {*(node_id for ids in before.values() for node_id in ids), *(node.node_id for node in nodes)}
            self._delete_vectors(list(before), sorted(due))
            for document_id, node_ids in before.items():
                self.docstore.delete_ref_doc(document_id, raise_error=False)
                for node_id in filter(self.docstore.document_exists, node_ids):  # those that a stop left behind
                    self.docstore.delete_document(node_id, raise_error=False)
            if nodes:
                self.docstore.add_documents([node.model_copy(update={"embedding": None}) for node in nodes])
                self._add_vectors([wire for wire in wires if wire.embedding is not None])
                self._note({document_id: _record(theirs) for document_id, theirs in by_document.items()})
            for document_id in before.keys() - by_document.keys():
                self.docstore.delete_document(f"{_DOCUMENT}{document_id}", raise_error=False)
        finally:
            self._changed()

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        found = {node_id: self.docstore.get_document(node_id, raise_error=False) for node_id in dict.fromkeys(node_ids)}
        return {node_id: node for node_id, node in found.items() if node is not None}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        wanted, passing = question.similarity_top_k, self.passing(question.filters)
        # what is dropped is made up for beforehand, since a second search takes as long as the first
        limit = wanted if passing is None else passing.fetched(wanted)

        def find(limit: int) -> tuple[list[FoundNode], int]:
            nearest = self._nearest(question, limit)
            found = [_found(node, nearest[node_id]) for node_id, node in self.fetch(list(nearest)).items()]
            kept = [node for node in found if node.granularity and (passing is None or node.leads_to in passing.ids)]
            return kept, len(nearest)

        return look_further(find, wanted, limit)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        for document_id in self._notes():
            for node in self.fetch(self._listed(document_id)).values():
                theirs = node.metadata.get(GRANULARITY_KEY)
                if theirs and granularity in (None, theirs):
                    yield NodeRecord.of(node)

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents by id; one that is not whole has no hash."""
        return self._notes()

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        return {node_id for ids in self._node_ids(document_ids).values() for node_id in ids}

    def read_about(self) -> str | None:
        return self.docstore.get_document_hash(_ABOUT)

    def write_about(self, about: str) -> None:
        self.docstore.set_document_hash(_ABOUT, about)
        self._changed()

    def _parts(self) -> dict[str, Part]:
        """What of it is in memory, and kept in a folder."""
        parts: dict[str, Part] = {}
        if isinstance(self.docstore, SimpleDocumentStore):
            parts[_DOCSTORE] = SimpleDocumentStore.from_persist_path, self.docstore.persist
        if isinstance(self.vector_store, SimpleVectorStore):
            parts[_VECTORS] = SimpleVectorStore.from_persist_path, self.vector_store.persist
        return parts

    def _hold(self, read: Mapping[str, Any]) -> None:
        """Go on with parts that were read, in the vector store that others hold too."""
        self.docstore = read.get(_DOCSTORE, self.docstore)
        if isinstance(self.vector_store, SimpleVectorStore):
            self.vector_store.data = read[_VECTORS].data

    def _vectors(self, read: Mapping[str, Any] | None = None) -> set[Any]:
        """What the vectors in memory, or those that were read, are called."""
        store = self.vector_store if read is None else read.get(_VECTORS)
        return set(store.data.embedding_dict) if isinstance(store, SimpleVectorStore) else set()

    def _notes(self) -> dict[str, DocumentRecord]:
        """What is noted of each document, as a hash of which there is no other."""
        notes = {}
        for text, key in self.docstore.get_all_document_hashes().items():
            if key.startswith(_DOCUMENT):
                document_id, document_hash, file = json.loads(text)
                notes[document_id] = DocumentRecord(document_hash, file)
        return notes

    def _note(self, documents: Mapping[str, DocumentRecord]) -> None:
        """Note of documents what they are like; without a hash, that they are not whole."""
        self.docstore.set_document_hashes(
            {f"{_DOCUMENT}{one}": json.dumps([one, record.hash, record.file]) for one, record in documents.items()}
        )

    def _listed(self, document_id: str) -> list[str]:
        info = self.docstore.get_ref_doc_info(document_id)
        return list(info.node_ids) if info is not None else []

    def _node_ids(self, document_ids: Collection[str]) -> dict[str, list[str]]:
        """The ids of the nodes of those documents that are there."""
        notes = self._notes()
        ids = {document_id: self._listed(document_id) for document_id in document_ids if document_id in notes}
        if any(not notes[document_id].hash for document_id in ids):
            # a docstore writes a node before it lists it, and lists it no more before it deletes it
            for node in self.docstore.docs.values():
                if node.ref_doc_id in ids and node.node_id not in ids[node.ref_doc_id]:
                    ids[node.ref_doc_id].append(node.node_id)
        return ids

    def _wires(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        """The nodes as every vector store takes them; refuses what cannot be kept, before anything is changed."""

        def without_links(node: BaseNode) -> BaseNode:  # which the docstore has, and some stores have little room
            links = {kind: to for kind, to in node.relationships.items() if kind == NodeRelationship.SOURCE}
            return node.model_copy(update={"relationships": links})

        return [without_links(to_wire(node)) for node in nodes]

    def _delete_vectors(self, document_ids: Sequence[str], node_ids: Sequence[str]) -> None:
        """Delete the vectors of documents, which are those of these nodes."""
        if type(self.vector_store).delete_nodes is BasePydanticVectorStore.delete_nodes:
            for document_id in document_ids:
                self.vector_store.delete(document_id)
        elif node_ids:
            self.vector_store.delete_nodes(list(node_ids))

    def _add_vectors(self, wires: Sequence[BaseNode]) -> None:
        if wires:
            self.vector_store.add(list(wires))

    def _nearest(self, question: VectorStoreQuery, limit: int) -> dict[str, float]:
        """The ids of the nodes that are nearest with their scores, best first; fewer only where there are no more."""
        result = self.vector_store.query(asking_for(question, limit))
        ids = result.ids if result.ids is not None else [node.node_id for node in result.nodes or []]
        scores = result.similarities if result.similarities is not None else [0.0] * len(ids)
        return dict(zip(ids, map(float, scores), strict=True))


def _unfinished(folder: Path) -> list[str]:
    file = folder / _UNFINISHED
    return list(json.loads(file.read_bytes())) if file.exists() else []


def _found(node: BaseNode, score: float) -> FoundNode:
    passage_id = node.index_id if isinstance(node, IndexNode) else ""
    return FoundNode(node.node_id, str(node.metadata.get(GRANULARITY_KEY, "")), passage_id, score)


def _record(nodes: Sequence[BaseNode]) -> DocumentRecord:
    heads = (NodeRecord.of(node) for node in nodes if DOCUMENT_HASH_KEY in node.metadata)
    return next((DocumentRecord(head.document_hash, head.file) for head in heads), DocumentRecord())


def read_part(folder: Path, part: str, version: str, read: Callable[[str], Read]) -> Read:
    """What a folder has of a part in some state.

    Raises:
        ValueError: It is not there, or damaged.
    """
    file = folder / f"{part}-{version}"
    try:
        with file.open("rb"):  # what the system may do better another time is raised as it is
            pass
        return read(str(file))
    except FileNotFoundError as error:
        store = "docstore" if part == _DOCSTORE else "vector_store"
        raise ValueError(
            f"{file} is missing: if there is a {store} of its own, pass it as {store}=, else {_ANEW}."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{file} is damaged ({error}); {_ANEW}.") from error
