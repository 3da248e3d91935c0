"""One index over a vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.filters import matches
from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

_FEW_PASSAGES = 500  # filters that so few passages pass are left to the store; others are applied to what it returns


class NodeIndex:
    """All nodes of a corpus, of all granularities: written together, read back by id in one batch.

    The embedded store gives nodes back by itself. Other LlamaIndex vector stores differ in whether and how they do
    that, so beside them a docstore keeps the nodes.

    Args:
        vector_store: Where the nodes and their embeddings go.
        embed_model: Embeds nodes and queries; None for an index that is searched lexically.
        docstore: Where the nodes are kept beside a vector store other than the embedded one; made where it is None.

    Raises:
        ValueError: A vector store other than the embedded one without an embedding model.
    """

    def __init__(
        self,
        vector_store: BasePydanticVectorStore | None = None,
        embed_model: BaseEmbedding | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> None:
        self.vector_store = vector_store if vector_store is not None else LanceVectorStore()
        self.embed_model = embed_model
        self.docstore = docstore
        self._nodes = object()  # the nodes' state: another object after each change
        self._passage_metadata: tuple[object, Mapping[str, Mapping[str, Any]]] | None = None  # in which state, and what
        # the last filters and what passes them: both sides of a hybrid search ask
        self._last_matching: tuple[Mapping[str, Mapping[str, Any]], str, frozenset[str]] | None = None
        if not isinstance(self.vector_store, LanceVectorStore):
            if embed_model is None:
                raise ValueError(
                    f"{self.vector_store.class_name()} holds embeddings, but there is no embedding model: pass "
                    "embed_model=, or leave vector_store out to search lexically"
                )
            self.docstore = docstore if docstore is not None else SimpleDocumentStore()

    def records(self) -> Iterator[NodeRecord]:
        """All nodes in short."""
        if isinstance(self.vector_store, LanceVectorStore):
            return self.vector_store.records()
        assert self.docstore is not None
        return (NodeRecord.of(node) for node in self.docstore.docs.values())

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents of the index by id."""
        if isinstance(self.vector_store, LanceVectorStore):
            return self.vector_store.documents()
        records = (record for record in self.records() if record.document_hash)
        return {record.document_id: DocumentRecord(record.document_hash, record.file) for record in records}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        """The ids of all nodes of some documents."""
        if not document_ids:
            return set()
        if isinstance(self.vector_store, LanceVectorStore):
            return self.vector_store.node_ids(document_ids)
        wanted = set(document_ids)
        return {record.id for record in self.records() if record.document_id in wanted}

    def passage_texts(self, document_ids: Sequence[str]) -> list[str]:
        """The texts of the passages of some documents."""
        passages = self.fetch(sorted(self.node_ids(document_ids))).values()
        return [node.get_content() for node in passages if node.metadata.get(GRANULARITY_KEY) == "passage"]

    def search(self, question: VectorStoreQuery) -> list[tuple[NodeRecord, float]]:
        """The nodes nearest to a question, of any granularity, in short.

        Args:
            question: An embedding, how many nodes, filters by metadata; for a vector store of the user's own also its
                mode.
        """
        if isinstance(self.vector_store, LanceVectorStore):
            return self._search_embedded(self.vector_store, question)
        result = self.vector_store.query(question)
        return _scored(result, {} if result.nodes is not None else self.fetch(result.ids or []))

    async def asearch(self, question: VectorStoreQuery) -> list[tuple[NodeRecord, float]]:
        """What `search` does, without blocking the event loop where the store does not."""
        if isinstance(self.vector_store, LanceVectorStore):
            return await asyncio.to_thread(self._search_embedded, self.vector_store, question)
        result = await self.vector_store.aquery(question)
        return _scored(result, {} if result.nodes is not None else await self.afetch(result.ids or []))

    def passages_matching(self, filters: MetadataFilters | None) -> frozenset[str] | None:
        """The ids of the passages that pass filters by metadata; None where there is no filter."""
        if filters is None or not filters.filters:
            return None
        metadata, asked, last = self._metadata_of_passages(), repr(filters), self._last_matching
        if last is None or last[0] is not metadata or last[1] != asked:
            passing = frozenset(passage_id for passage_id, values in metadata.items() if matches(values, filters))
            last = self._last_matching = metadata, asked, passing
        return last[2]

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Read nodes in one batch; ids that are not there are left out."""
        ids = list(dict.fromkeys(node_ids))
        if not ids:
            return {}  # several vector stores return everything for an empty list
        nodes = self.docstore.get_nodes(ids, raise_error=False) if self.docstore else self.vector_store.get_nodes(ids)
        return {node.node_id: node for node in nodes if node is not None}

    async def afetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """What `fetch` does, without blocking the event loop where the store does not."""
        ids = list(dict.fromkeys(node_ids))
        if not ids:
            return {}
        if self.docstore:
            nodes = await self.docstore.aget_nodes(ids, raise_error=False)
        else:
            nodes = await self.vector_store.aget_nodes(ids)
        return {node.node_id: node for node in nodes if node is not None}

    def write(self, nodes: Sequence[BaseNode], show_progress: bool = False) -> None:
        """Embed nodes where there is an embedding model, and write them, replacing those whose ids are there."""
        if not nodes:
            return
        self._embed(nodes, show_progress)
        try:
            if self.docstore is None:
                self.vector_store.add(nodes)
                return
            there = list(self.fetch([node.node_id for node in nodes]))
            if there:
                self.vector_store.delete_nodes(there)  # some stores keep both rows of an id, some the old one
            self.vector_store.add(list(nodes))
            self.docstore.add_documents([node.model_copy(update={"embedding": None}) for node in nodes])
        finally:
            self._nodes = object()  # after the change, so that no question in between keeps what it read for later

    def remove(self, node_ids: Sequence[str]) -> None:
        """Delete nodes by id; ids that are not there do not matter."""
        if not node_ids:
            return
        try:
            self.vector_store.delete_nodes(list(node_ids))
            if self.docstore is not None:
                for node_id in node_ids:
                    self.docstore.delete_document(node_id, raise_error=False)
        finally:
            self._nodes = object()

    def erase_deleted(self) -> None:
        """See to it that no file of the embedded store has text that was deleted or replaced.

        What another vector store keeps of deleted nodes is its own matter.
        """
        if isinstance(self.vector_store, LanceVectorStore):
            self.vector_store.erase_deleted()

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode], show_progress: bool = False) -> None:
        """Make `nodes` the nodes of these documents: write them first, then delete what is no longer produced.

        A stop in between leaves a document with nodes of both versions, none without; doing it again mends it.
        """
        before = self.node_ids(document_ids)
        self.write(nodes, show_progress)
        self.remove(sorted(before - {node.node_id for node in nodes}))

    def _search_embedded(self, store: LanceVectorStore, question: VectorStoreQuery) -> list[tuple[NodeRecord, float]]:
        embedding, wanted = question.query_embedding or [], question.similarity_top_k
        allowed = self.passages_matching(question.filters)
        if allowed is None:
            return store.nearest(embedding, wanted)
        if len(allowed) <= _FEW_PASSAGES:
            return store.nearest(embedding, wanted, sorted(allowed)) if allowed else []
        # what is dropped is made up for beforehand, since a second search takes as long as the first
        share = len(allowed) / max(len(self._metadata_of_passages()), len(allowed))
        limit = wanted if share == 1 else int(1.2 * wanted / share) + 8
        while True:
            found = store.nearest(embedding, limit)
            kept = [(record, score) for record, score in found if record.leads_to in allowed]
            if len(kept) >= wanted or len(found) < limit:
                return kept[:wanted]
            limit *= 4

    def _metadata_of_passages(self) -> Mapping[str, Mapping[str, Any]]:
        nodes, read = self._nodes, self._passage_metadata
        if read is None or read[0] is not nodes:
            read = self._passage_metadata = nodes, self._read_passage_metadata()
        return read[1]

    def _read_passage_metadata(self) -> Mapping[str, Mapping[str, Any]]:
        if isinstance(self.vector_store, LanceVectorStore):
            return self.vector_store.passage_metadata()
        assert self.docstore is not None
        nodes = self.docstore.docs.values()
        return {node.node_id: node.metadata for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage"}

    def _embed(self, nodes: Sequence[BaseNode], show_progress: bool) -> None:
        missing = [node for node in nodes if node.embedding is None]
        if self.embed_model is None or not missing:
            return
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in missing]
        embeddings = self.embed_model.get_text_embedding_batch(texts, show_progress=show_progress)
        for node, embedding in zip(missing, embeddings, strict=True):
            node.embedding = embedding


def _scored(result: VectorStoreQueryResult, fetched: Mapping[str, BaseNode]) -> list[tuple[NodeRecord, float]]:
    """What a vector store found, whether it returned nodes or their ids."""
    nodes = {node.node_id: node for node in result.nodes} if result.nodes is not None else fetched
    ids = result.ids or list(nodes)
    scores = result.similarities or [0.0] * len(ids)
    return [
        (NodeRecord.of(nodes[node_id]), float(score))
        for node_id, score in zip(ids, scores, strict=True)
        if node_id in nodes
    ]
