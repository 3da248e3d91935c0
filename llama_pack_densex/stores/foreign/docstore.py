"""A vector store that cannot give nodes back, and a docstore beside it that can."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.storage.docstore.utils import json_to_doc
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.foreign.docstore_tables import DocstoreTables, KeptDocument, Row
from llama_pack_densex.stores.foreign.saved_parts import read_parts, save_parts
from llama_pack_densex.stores.node_store import FoundNode, NodeStore
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

DOCSTORE = "docstore"
"""Of the files of a folder, the one with a docstore that was in memory."""
_VECTORS = "vectors"
_UNFINISHED = "unfinished.json"


@dataclass(frozen=True)
class Nearest:
    """What one search returned.

    Args:
        found: The nodes, best first.
        all: Whether there are no more.
    """

    found: list[FoundNode]
    all: bool


class DocstoreNodes(NodeStore):
    """The vectors in a vector store, the whole nodes in a docstore.

    A vector whose node is not in the docstore is never found. A document's nodes are written first, then its vectors,
    and last the note that it is whole.

    Args:
        vector_store: Any vector store of LlamaIndex that takes nodes with their ids and returns these ids.
        docstore: Any docstore of LlamaIndex. None makes one in memory; `persist` keeps it in a folder.

    Raises:
        TypeError: The docstore is not kept in a key-value store.
    """

    docstore: BaseDocumentStore

    def __init__(self, vector_store: BasePydanticVectorStore, docstore: BaseDocumentStore | None = None) -> None:
        super().__init__()
        self.vector_store = vector_store
        self.docstore = docstore if docstore is not None else SimpleDocumentStore()
        self._tables = DocstoreTables(self.docstore)
        self._folder: Path | None = None  # where it is kept
        self._saved: object | None = None  # which state of it is in the folder

    @classmethod
    def load(
        cls,
        folder: Path,
        docstore: BaseDocumentStore | None = None,
        vector_store: BasePydanticVectorStore | None = None,
    ) -> DocstoreNodes:
        """Open what `persist` kept.

        Args:
            folder: The folder.
            docstore: The docstore, where it was not one in memory.
            vector_store: The vector store, where it was not LlamaIndex's `SimpleVectorStore`.

        Raises:
            ValueError: There is nothing in the folder, it is damaged, or a store is missing.
        """
        in_memory = docstore is None or isinstance(docstore, SimpleDocumentStore)
        if in_memory or vector_store is None or isinstance(vector_store, SimpleVectorStore):
            vector_store, docstore = read_parts(folder, lambda parts: _read(folder, parts, docstore, vector_store))
        nodes = cls(vector_store, docstore)
        nodes._folder, nodes._saved = folder, nodes._state
        nodes._tables.begin(document_id for document_id in nodes._unfinished() if document_id in nodes.documents())
        return nodes

    def persist(self, folder: Path) -> None:
        """Keep what is in memory in a folder; a stop at any moment leaves the old state or the new one.

        Stores that are not in memory keep themselves.
        """
        if self._folder == folder and self._saved is self._state:
            return
        state = self._state
        self.copy_to(folder)
        (folder / _UNFINISHED).unlink(missing_ok=True)
        self._folder, self._saved = folder, state

    def reload(self, folder: Path) -> None:
        if not self._parts():
            return
        docstore = None if isinstance(self.docstore, SimpleDocumentStore) else self.docstore
        self._take_over(type(self).load(folder, docstore, self._store_elsewhere()))
        self._changed()
        self._folder, self._saved = folder, self._state

    def _store_elsewhere(self) -> BasePydanticVectorStore | None:
        """The vector store, where its vectors are not in the folder."""
        return None if isinstance(self.vector_store, SimpleVectorStore) else self.vector_store

    def _take_over(self, there: DocstoreNodes) -> None:
        """Hold what was read again, in the vector store that others hold too."""
        if isinstance(self.vector_store, SimpleVectorStore) and isinstance(there.vector_store, SimpleVectorStore):
            self.vector_store.data = there.vector_store.data
        self.docstore, self._tables = there.docstore, there._tables

    def copy_to(self, folder: Path) -> str:
        """Write a copy of what is in memory into a folder."""
        if parts := self._parts():
            save_parts(folder, parts, self._notes())
        return self.version

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode]) -> None:
        by_document: dict[str, list[BaseNode]] = {}
        for node in nodes:
            by_document.setdefault(node.ref_doc_id or "", []).append(node)
        affected = list(dict.fromkeys([*document_ids, *by_document]))
        if not affected:
            return
        lists = self._tables.node_ids(affected)
        before = {document_id: lists.get(document_id, []) for document_id in affected}
        version = uuid.uuid4().hex
        try:
            self._check(nodes)
            self._note_unfinished(affected)
            self._tables.write(by_document, before)
            self._replace_vectors(by_document, before, version)
            documents = {one: _document(theirs, version) for one, theirs in by_document.items()}
            self._tables.finish(by_document, before, documents)
        finally:
            self._changed()

    def remove(self, document_ids: Sequence[str]) -> None:
        there = self._tables.documents()
        self.replace([document_id for document_id in document_ids if document_id in there], [])

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        return {node_id: json_to_doc(row) for node_id, row in self._tables.rows(node_ids).items()}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        wanted, allowed, share = question.similarity_top_k, None, 1.0
        if question.filters is not None and question.filters.filters:
            allowed = self.passages_matching(question.filters)
            if not allowed:
                return []
            share = len(allowed) / max(len(self.passage_metadata()), len(allowed))
        # what is dropped is made up for beforehand, since a second search takes as long as the first
        limit = wanted if share == 1 else int(1.2 * wanted / share) + 8
        while True:
            nearest = self._nearest(question, limit)
            kept = [node for node in nearest.found if allowed is None or node.leads_to in allowed]
            if len(kept) >= wanted or nearest.all:
                return kept[:wanted]
            limit *= 4

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        for _, row in self._tables.all_rows():
            theirs = _granularity(row)
            if theirs and (granularity is None or theirs == granularity):
                yield NodeRecord.of(json_to_doc(row))

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents by id; one that is not whole has no hash."""
        return {one: DocumentRecord(kept.hash, kept.file) for one, kept in self._tables.documents().items()}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        return {node_id for ids in self._tables.node_ids(document_ids).values() for node_id in ids}

    def is_empty(self) -> bool:
        return not self._tables.documents()

    def read_about(self) -> str | None:
        return self._tables.about

    def write_about(self, about: str) -> bool:
        self._tables.about = about
        self._changed()
        return True

    def _parts(self) -> dict[str, Callable[[Path], None]]:
        """What is written to the folder: the name of each file, and what writes it."""
        parts: dict[str, Callable[[Path], None]] = {}
        docstore, vector_store = self.docstore, self.vector_store
        if isinstance(docstore, SimpleDocumentStore):
            parts[DOCSTORE] = lambda path: docstore.persist(str(path))
        if isinstance(vector_store, SimpleVectorStore):
            parts[_VECTORS] = lambda path: vector_store.persist(str(path))
        return parts

    def _notes(self) -> dict[str, int]:
        """What is to be known of the files without reading them."""
        return {}

    def _replace_vectors(
        self, nodes: Mapping[str, Sequence[BaseNode]], before: Mapping[str, Sequence[str]], version: str
    ) -> None:
        """Make vectors of `nodes` the only ones of these documents.

        Args:
            nodes: The nodes by document.
            before: The ids of the nodes that each document had before; others may have stayed behind after a stop.
            version: Tells this change from others.
        """
        written = [node for theirs in nodes.values() for node in theirs]
        ids = list(dict.fromkeys([*(one for them in before.values() for one in them), *(n.node_id for n in written)]))
        # first, because several stores keep both rows of an id, and some the old one
        if type(self.vector_store).delete_nodes is not BasePydanticVectorStore.delete_nodes:
            if ids:
                self.vector_store.delete_nodes(ids)
        else:
            for document_id in before:
                self.vector_store.delete(document_id)
        embedded = [_slim(node) for node in written if node.embedding is not None]
        if embedded:
            self.vector_store.add(embedded)

    def _nearest(self, question: VectorStoreQuery, limit: int) -> Nearest:
        """The nodes that are nearest, those left out that are not in the docstore."""
        result = self.vector_store.query(replace(question, similarity_top_k=limit, filters=None))
        ids = result.ids if result.ids is not None else [node.node_id for node in result.nodes or []]
        scores = result.similarities if result.similarities is not None else [0.0] * len(ids)
        best = dict(reversed(list(zip(ids, scores, strict=True))))  # the first of each id
        rows = self._tables.rows(ids)
        found = [
            FoundNode(node_id, _granularity(rows[node_id]), _passage_id(rows[node_id]), float(best[node_id]))
            for node_id in dict.fromkeys(ids)
            if node_id in rows and _granularity(rows[node_id])
        ]
        return Nearest(found, len(ids) < limit)

    def _check(self, nodes: Sequence[BaseNode]) -> None:
        """Refuse nodes that cannot be written, before anything is changed."""

    def _note_unfinished(self, document_ids: Sequence[str]) -> None:
        # where the folder has one of the two stores, the other may be ahead of it after a stop
        if self._folder is None or len(self._parts()) != 1:
            return
        noted = list(dict.fromkeys([*self._unfinished(), *document_ids]))
        temporary = self._folder / f".{_UNFINISHED}"
        temporary.write_text(json.dumps(noted), encoding="utf-8")
        temporary.replace(self._folder / _UNFINISHED)

    def _unfinished(self) -> list[str]:
        assert self._folder is not None
        try:
            return [str(document_id) for document_id in json.loads((self._folder / _UNFINISHED).read_bytes())]
        except FileNotFoundError:
            return []


def read_docstore(file: Path) -> SimpleDocumentStore:
    """Read a docstore that was in memory.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        return SimpleDocumentStore.from_persist_path(str(file))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read ({error}); index the documents anew.") from error


def _read(
    folder: Path,
    parts: Mapping[str, Path],
    docstore: BaseDocumentStore | None,
    vector_store: BasePydanticVectorStore | None,
) -> tuple[BasePydanticVectorStore, BaseDocumentStore]:
    if docstore is None or isinstance(docstore, SimpleDocumentStore):
        if DOCSTORE not in parts:
            raise ValueError(f"the nodes of {folder} are in a docstore of their own; pass it as docstore=")
        docstore = read_docstore(parts[DOCSTORE])
    if vector_store is None or isinstance(vector_store, SimpleVectorStore):
        if _VECTORS not in parts:
            raise ValueError(f"the embeddings of {folder} are in a vector store of their own; pass it as vector_store=")
        kept = SimpleVectorStore.from_persist_path(str(parts[_VECTORS]))
        if vector_store is None:
            vector_store = kept
        elif not vector_store.data.embedding_dict:
            vector_store.data = kept.data
    return vector_store, docstore


def _granularity(row: Row) -> str:
    return str(row["__data__"].get("metadata", {}).get(GRANULARITY_KEY, ""))


def _passage_id(row: Row) -> str:
    return str(row["__data__"].get("index_id") or "")


def _document(nodes: Sequence[BaseNode], version: str) -> KeptDocument:
    heads = (record for record in map(NodeRecord.of, nodes) if record.document_hash)
    head = next(heads, None)
    return KeptDocument("", "", version) if head is None else KeptDocument(head.document_hash, head.file, version)


def _slim(node: BaseNode) -> TextNode:
    """What a vector store gets of a node: metadata that every store takes, and the text for its own search by words."""
    metadata = {key: value for key, value in node.metadata.items() if isinstance(value, str | int | float | bool)}
    return TextNode(
        id_=node.node_id,
        text=node.text if isinstance(node, TextNode) else node.get_content(),
        embedding=node.embedding,
        metadata=metadata,
        excluded_embed_metadata_keys=node.excluded_embed_metadata_keys,
        excluded_llm_metadata_keys=node.excluded_llm_metadata_keys,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=node.ref_doc_id or "")},
    )
