"""One index over the store that its nodes are in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters, VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.lance_nodes import LanceNodes
from llama_pack_densex.stores.manifest import VersionGoneError
from llama_pack_densex.stores.node_store import Contents, FoundNode, NodeStore
from llama_pack_densex.stores.recent import Recent
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

logger = logging.getLogger(__name__)

_NODES_KEPT = 2_000  # whole nodes, of a few kilobytes each
_RECORDS_KEPT = 10_000
_NODES_READ_AT_ONCE = 500


class NodeIndex:
    """All nodes of a corpus, of all granularities: embedded and written together, read back by id in one batch.

    What was read last is kept, up to some thousand nodes, until something is written.

    Args:
        store: Where the nodes are: a store of ours, or a LlamaIndex vector store; None means an embedded one in
            memory.
        embed_model: Embeds nodes; None for an embedded store that is searched lexically, and where nothing is written.
        docstore: Where whole nodes are kept beside a vector store that cannot give them back.

    Attributes:
        changed: Whether something was written; who has made that lasting sets it back.
        follow: Called where the version of the store that was opened is gone, to go on with the current one; None
            where there is nobody who knows it.
    """

    def __init__(
        self,
        store: NodeStore | BasePydanticVectorStore | None = None,
        embed_model: BaseEmbedding | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> None:
        self.store = store if isinstance(store, NodeStore) else node_store(store, docstore)
        self.embed_model = embed_model
        self._forget()
        self._missing = 0
        self.changed = False
        self.follow: Callable[[], None] | None = None

    @property
    def vector_store(self) -> BasePydanticVectorStore:
        """The store as LlamaIndex's own classes see it."""
        return self.store.vector_store

    @property
    def docstore(self) -> BaseDocumentStore | None:
        """Where whole nodes are kept beside it; None where the vector store alone is enough."""
        return self.store.docstore

    @property
    def missing_links(self) -> int:
        """How often a found unit led to a node that is not in the index, since this object was made."""
        return self._missing

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        """All nodes in short, or those of one granularity."""
        return self.store.records(granularity)

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents of the index by id."""
        return self.store.documents()

    def passage_texts(self, document_ids: Sequence[str]) -> list[str]:
        """The texts of the passages of some documents."""
        nodes = self.store.fetch(sorted(self.store.node_ids(document_ids))).values()
        return [node.get_content() for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage"]

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        """The nodes nearest to a question, of any granularity, in short.

        Args:
            question: An embedding, how many nodes, filters by metadata; for a vector store of the user's own also its
                mode.
        """
        try:
            return self.store.search(question)
        except VersionGoneError:
            self._go_on()
            return self.store.search(question)

    async def asearch(self, question: VectorStoreQuery) -> list[FoundNode]:
        """What `search` does, without blocking the event loop."""
        try:
            return await self.store.asearch(question)
        except VersionGoneError:
            self._go_on()
            return await self.store.asearch(question)

    def passages_matching(self, filters: MetadataFilters | None) -> frozenset[str] | None:
        """The ids of the passages that pass filters by metadata; None where there is no filter."""
        if filters is None or not filters.filters:
            return None
        return self.store.passages_matching(filters)

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Read nodes in one batch; ids that are not there are left out."""
        return self.read(node_ids, []).nodes

    async def afetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """What `fetch` does, without blocking the event loop."""
        return (await self.aread(node_ids, [])).nodes

    def read(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        """Read some nodes whole and others in short, in one batch; ids that are not there are left out."""
        kept = self._kept
        nodes, records = kept.nodes.get(node_ids), kept.records.get(record_ids)
        missing = _lacking(node_ids, nodes), _lacking(record_ids, records)
        if not any(missing):  # several vector stores return everything for an empty list
            return Contents(nodes, records)
        try:
            return kept.joined(nodes, records, self.store.read(*missing))
        except VersionGoneError:
            self._go_on()
            return kept.joined(nodes, records, self.store.read(*missing))

    async def aread(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        """What `read` does, without blocking the event loop."""
        kept = self._kept
        nodes, records = kept.nodes.get(node_ids), kept.records.get(record_ids)
        missing = _lacking(node_ids, nodes), _lacking(record_ids, records)
        if not any(missing):
            return Contents(nodes, records)
        try:
            return kept.joined(nodes, records, await self.store.aread(*missing))
        except VersionGoneError:
            self._go_on()
            return kept.joined(nodes, records, await self.store.aread(*missing))

    def all_nodes(self, granularity: str | None = None) -> Iterator[BaseNode]:
        """Whole nodes of one granularity, or all, in any order; some hundred are in memory at a time."""
        ids: list[str] = []
        for record in self.store.records(granularity):
            ids.append(record.id)
            if len(ids) == _NODES_READ_AT_ONCE:
                yield from self.store.fetch(ids).values()
                ids = []
        if ids:
            yield from self.store.fetch(ids).values()

    def note_missing(self, node_ids: Sequence[str]) -> None:
        """Count links that lead nowhere: each costs its hit, not the query; the first time, say so."""
        if node_ids and not self._missing:
            logger.warning(
                "%d found units lead to nodes that are not in the index (the first is %s); they are left out. Index "
                "their documents again. This is said once; `missing_links` counts on.",
                len(node_ids), node_ids[0],
            )  # fmt: skip
        self._missing += len(node_ids)

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode], show_progress: bool = False) -> None:
        """Make `nodes` the nodes of these documents, embedding those that are not; see `NodeStore.replace`.

        Args:
            document_ids: Documents of which the store may have nodes that are to go.
            nodes: All nodes of some documents, document by document.
            show_progress: Whether the embedding model shows its progress.
        """
        if not document_ids and not nodes:
            return
        self._embed(nodes, show_progress)
        try:
            self.store.replace(document_ids, nodes)
        finally:
            self._after_change()

    def remove(self, document_ids: Sequence[str]) -> None:
        """Delete all nodes of some documents."""
        if not document_ids:
            return
        try:
            self.store.remove(document_ids)
        finally:
            self._after_change()

    def reload(self, folder: Path) -> None:
        """Go on from what another writer left; see `NodeStore.reload`."""
        self.store.reload(folder)
        self._forget()

    def roll_back(self, version: str) -> None:
        """Go on from a state of the store, which may be another process's; see `NodeStore.roll_back`."""
        if version != self.store.version:
            self._forget()
        self.store.roll_back(version)

    def maintain(self) -> bool:
        """See `NodeStore.maintain`."""
        return self.store.maintain()

    def compact(self) -> None:
        """See `NodeStore.compact`."""
        try:
            self.store.compact()
        finally:
            self._after_change()

    def reopen(self, version: str) -> None:
        """Read another state of the store, which another process made; see `NodeStore.reopen`."""
        self.store.reopen(version)
        self._forget()

    def _go_on(self) -> None:
        """Follow to the current version, or raise what is being handled."""
        if self.follow is None:
            raise
        self.follow()

    def _after_change(self) -> None:
        self.changed = True
        self._forget()

    def _forget(self) -> None:
        self._kept = _Kept()

    def _embed(self, nodes: Sequence[BaseNode], show_progress: bool) -> None:
        missing = [node for node in nodes if node.embedding is None]
        if self.embed_model is None or not missing:
            return
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in missing]
        embeddings = self.embed_model.get_text_embedding_batch(texts, show_progress=show_progress)
        for node, embedding in zip(missing, embeddings, strict=True):
            node.embedding = embedding


def node_store(vector_store: BasePydanticVectorStore | None, docstore: BaseDocumentStore | None = None) -> NodeStore:
    """The store of an index that is kept in a LlamaIndex vector store.

    Args:
        vector_store: None means an embedded one in memory.
        docstore: Used where the vector store cannot give nodes back.
    """
    if vector_store is None or isinstance(vector_store, LanceVectorStore):
        return LanceNodes(vector_store if vector_store is not None else LanceVectorStore())
    from llama_pack_densex.stores.foreign.choosing import adapter_for

    return adapter_for(vector_store, docstore)


class _Kept:
    """What was read since the last change."""

    def __init__(self) -> None:
        self.nodes: Recent[BaseNode] = Recent(_NODES_KEPT)
        self.records: Recent[NodeRecord] = Recent(_RECORDS_KEPT)

    def joined(self, nodes: dict[str, BaseNode], records: dict[str, NodeRecord], read: Contents) -> Contents:
        """What was kept and what was read now, which is kept from now on."""
        self.nodes.put(read.nodes)
        self.records.put(read.records)
        return Contents({**nodes, **read.nodes}, {**records, **read.records})


def _lacking(ids: Sequence[str], found: dict[str, BaseNode] | dict[str, NodeRecord]) -> list[str]:
    return [node_id for node_id in dict.fromkeys(ids) if node_id not in found]
