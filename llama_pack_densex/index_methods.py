"""The methods of a pack that read and change its index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode

from llama_pack_densex.indexing import IndexCounts, checked_documents
from llama_pack_densex.ingestion.displays import display_for
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.pack_index import PackIndex
from llama_pack_densex.stores.records import DocumentRecord
from llama_pack_densex.wiring import make_vector_index


class IndexMethods:
    """The methods of a pack that read and change its index."""

    node_parser: BasePropositionNodeParser
    vector_index: VectorStoreIndex | None
    _index: PackIndex

    def insert(self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False) -> None:
        """Index documents; one whose id is there is replaced, and so is an earlier state of its file.

        Documents are read as their turn comes. One that fails is logged and reported (see `ingestion`), and leaves
        what the index has of it; the others go on.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress, in the terminal or the notebook; else in the log.

        Raises:
            PropositionizerError: No more propositions can be had: the key, the model, the quota or the budget is at
                fault. The documents that were whole are in the index.
            ValueError: Something is no document, or every document failed.
        """
        self._ingest(documents, show_progress, only_changed=False)

    def refresh(
        self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False, gone: Sequence[str] = ()
    ) -> list[bool]:
        """Index those documents that are new or changed; the others cost nothing.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress.
            gone: The ids of documents to delete once the others are indexed.

        Returns:
            For each document whether it was new or changed, and is indexed now.

        Raises:
            PropositionizerError: As `insert`.
            ValueError: As `insert`.
        """
        return self._ingest(documents, show_progress, only_changed=True, gone=gone)

    def delete(self, documents: str | BaseNode | Sequence[str | BaseNode], purge: bool = False) -> int:
        """Delete documents, given by id or as documents.

        Args:
            documents: The documents.
            purge: Whether their text is erased from the reply cache, from recordings and from the files of the embedded
                store as well; another process that has the index open has to load it again. Of a document that is given
                whole, what is kept of it is found also where the index does not have it. What is kept of earlier
                versions is not found: give the cache a `max_age`.

        Returns:
            How many of them were there.

        Raises:
            IndexInUseError: Somebody else is writing to the index folder.
        """
        given = [documents] if isinstance(documents, (str, BaseNode)) else list(documents)
        deleted = self._index.delete(given, purge)
        self._after_change()
        return deleted

    def compact(self) -> None:
        """Give back the space of what was deleted and replaced, and erase it from the files of the index.

        What the embedded store, the lexical side and a FAISS index keep is written anew. A store on a server does that
        in its own way. Other processes that have the index open have to load it again.

        Raises:
            IndexInUseError: Somebody else is writing to the index folder.
        """
        self._index.compact()

    @property
    def missing_links(self) -> int:
        """How often a found unit led to a node that is not in the index; each time cost a hit, not the query."""
        return self._index.nodes.missing_links

    @property
    def ingestion(self) -> IngestionSummary | None:
        """What the last ingestion came to: documents by state, passages, fallbacks, requests, tokens, money.

        With a `persist_dir`, `ingestion_report.json` in it has that for every document. None after `load`.
        """
        return self._index.ingestion

    @property
    def failed_documents(self) -> Sequence[DocumentOutcome]:
        """The first documents that failed in the last ingestion, at most 20."""
        return self._index.failed

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents of the index by id, each with the hash of what it was like and the file it was read from."""
        return self._index.nodes.documents()

    def counts(self) -> IndexCounts:
        """Count documents, passages, propositions and their statuses."""
        return self._index.counts()

    def nodes(self, granularity: str | None = None) -> list[BaseNode]:
        """All nodes of the index, or those of one granularity, in the order of their documents.

        Args:
            granularity: "section", "passage", "proposition" or "sentence"; None means all.
        """
        return self._index.all_nodes(granularity)

    def persist(self, persist_dir: str | Path | None = None) -> None:
        """Write the index to a folder; a stop in between leaves what was there before.

        Args:
            persist_dir: The folder; None means the pack's own, where changes are written as they happen.

        Raises:
            ValueError: There is no folder.
            InvalidIndexError: The folder is a file, or holds other things than an index.
        """
        self._index.persist(persist_dir)

    def _ingest(
        self,
        documents: BaseNode | Iterable[BaseNode],
        show_progress: bool,
        only_changed: bool,
        gone: Sequence[str] = (),
    ) -> list[bool]:
        given: Iterable[BaseNode] = checked_documents(documents)
        if isinstance(documents, (BaseNode, Sequence)):
            given = list(given)  # says what is no document before anything is done
        total = len(documents) if isinstance(documents, Sized) else 1 if isinstance(documents, BaseNode) else None
        try:
            return self._index.ingest(given, only_changed, gone, display_for(show_progress), total)
        finally:
            self._after_change()

    def _after_change(self) -> None:
        if not self._index.nodes.vector_store.stores_text:
            self.vector_index = make_vector_index(self._index.nodes, self.node_parser)
