"""A pack's index: opened or made anew, changed, and written to its folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_pack_densex.indexing import DocumentIndexer, IndexCounts, reading_order
from llama_pack_densex.ingestion.progress import Display
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.ingestion.watching import Watch
from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.options import PackOptions
from llama_pack_densex.retrieval.bm25 import LexicalIndexCache
from llama_pack_densex.retrieval.trust import LanguageTrust, TrustMeter
from llama_pack_densex.stores.folder import REPORT_FILE, IndexFolder
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.manifest import Manifest, is_index
from llama_pack_densex.wiring import Given, check_hybrid, embed_model_for

logger = logging.getLogger(__name__)


class PackIndex:
    """The nodes of a pack, their lexical side, and the folder that both are kept in.

    Args:
        options: The pack's settings.
        given: The parts that its user gave.
        parser: Makes nodes of documents.
        folder: Where the index is kept; None for one that lives as long as this object.
        manifest: What the folder says about the index in it; None where a new one is to be made.

    Attributes:
        nodes: The index over the vector store.
        lexical: Its lexical side.
        trust: What is known of the embedding model, by language.
        embedding_source: A phrase that says where the embedding model comes from.
        ingestion: What the last ingestion came to; None before the first one.
        failed: The first documents that failed in it.

    Raises:
        InvalidIndexError: The folder cannot be used, or its index was made with another embedding model.
        ValueError: The vector store has no use without an embedding model.
    """

    def __init__(
        self,
        options: PackOptions,
        given: Given,
        parser: BasePropositionNodeParser,
        folder: IndexFolder | None,
        manifest: Manifest | None,
    ) -> None:
        check_hybrid(options.hybrid, given.vector_store)
        embed_model, self.embedding_source = embed_model_for(manifest, given.embed_model, folder)
        if folder is not None and manifest is not None:
            self.nodes = folder.open(manifest, given.vector_store, embed_model)
            self.lexical = LexicalIndexCache(given.tokenizer, folder.data)
        else:
            store = folder.create(given.vector_store) if folder is not None else given.vector_store
            self.nodes = NodeIndex(store, embed_model)
            self.lexical = LexicalIndexCache(given.tokenizer)
        self._trust = TrustMeter(LanguageTrust(*known) for known in manifest.languages) if manifest else TrustMeter()
        self.trust = self._trust.known
        self._options, self._given, self._parser, self._folder = options, given, parser, folder
        self._embed_spec = given.embed_spec or (manifest.embed_spec if manifest else "")
        self._made_by = manifest.propositionizer if manifest else ""
        self._indexer = DocumentIndexer(self.nodes, parser, self.lexical, self._trust, self._after_write)
        self.ingestion: IngestionSummary | None = None
        self.failed: Sequence[DocumentOutcome] = ()

    def ingest(
        self,
        documents: Iterable[BaseNode],
        only_changed: bool,
        gone: Sequence[str],
        show: Display,
        total: int | None = None,
    ) -> list[bool]:
        """Index documents.

        Args:
            documents: The documents.
            only_changed: Whether to leave those alone that are in the index as they are.
            gone: The ids of documents to delete after that.
            show: Shows the progress.
            total: How many documents there are; None where that is not known.

        Returns:
            For each document whether it was indexed.
        """
        self._require_own_propositionizer()
        self._made_by = self._parser.propositionizer.fingerprint
        watch = Watch(
            self._parser.propositionizer,
            self._folder.path / REPORT_FILE if self._folder is not None else None,
            show,
            total,
        )
        try:
            with watch:
                indexed = self._indexer.ingest(documents, watch, only_changed)
                for document_id in self._indexer.delete(gone):
                    watch.deleted(document_id)
                watch.raise_if_all_failed()
        except BaseException as error:
            if self._folder is not None and is_index(self._folder.path):  # something was written
                self._after_change()
            if isinstance(error, PropositionizerError):
                error.ingestion = watch.summary
            raise
        finally:
            self.ingestion, self.failed = watch.summary, watch.outcomes_failed
            self._report(watch.strangers)
        self._after_change()
        return indexed

    def delete(self, documents: Sequence[str | BaseNode], purge: bool = False) -> int:
        """Delete documents, and say how many of them were there; see `IndexMethods.delete`."""
        document_ids = [part if isinstance(part, str) else part.id_ for part in documents]
        if purge:  # first, since the index says what there is to purge: after a stop it can be done again
            self._parser.propositionizer.purge([*self.nodes.passage_texts(document_ids), *self._texts_of(documents)])
        deleted = len(self._indexer.delete(document_ids))
        if purge:
            self.nodes.erase_deleted()
            self.lexical.forget()
        self._after_change()
        return deleted

    def _texts_of(self, documents: Sequence[str | BaseNode]) -> Iterator[str]:
        """The passages of those that are given whole: what is kept of them may never have got into the index."""
        for document in documents:
            with suppress(ValueError):  # it cannot be split, so nothing was ever asked about it
                passages = [] if isinstance(document, str) else self._parser.passages_of(document)
                yield from (passage.text for passage in passages)

    def counts(self) -> IndexCounts:
        """Count what is in the index."""
        return self._indexer.counts()

    def all_nodes(self, granularity: str | None) -> list[BaseNode]:
        """All nodes, or those of one granularity, in the order of their documents."""
        wanted = [record.id for record in self.nodes.records() if granularity in (None, record.granularity)]
        return sorted(self.nodes.fetch(wanted).values(), key=reading_order)

    def persist(self, persist_dir: str | Path | None) -> None:
        """Write the index to a folder; None means its own.

        Raises:
            ValueError: There is no folder.
            InvalidIndexError: The folder is a file, or holds other things than an index.
        """
        own = self._folder
        if persist_dir is None and own is None:
            raise ValueError("this pack was made without persist_dir: say where to, persist(persist_dir=...)")
        if own is not None and (persist_dir is None or Path(persist_dir).resolve() == own.path.resolve()):
            self._commit(own)
            return
        folder = IndexFolder(Path(str(persist_dir)))
        folder.fill_from(self.nodes)
        self._commit(folder)

    def _after_write(self) -> None:
        """Make what was written so far an index that can be opened, so that a stop loses nothing of it."""
        if self._folder is not None and not is_index(self._folder.path) and self._has_nodes():
            self._folder.commit(self._manifest(self._folder), self.nodes)

    def _after_change(self) -> None:
        if self._folder is not None and (is_index(self._folder.path) or self._has_nodes()):
            self._commit(self._folder)

    def _has_nodes(self) -> bool:
        """Whether there is anything: a folder whose documents have all been blank is no index yet."""
        return any(True for _ in self.nodes.records())

    def _commit(self, folder: IndexFolder) -> None:
        if self.nodes.embed_model is None or self._options.hybrid is True:
            self.lexical.save(folder.data, self.nodes.records)
        folder.commit(self._manifest(folder), self.nodes)

    def _manifest(self, folder: IndexFolder) -> Manifest:
        return Manifest(
            data=folder.data.name,
            mode=self._options.mode,
            granularity=self._options.granularity,
            similarity_top_k=self._options.similarity_top_k,
            embed_model=embed_model_identity(self.nodes.embed_model),
            embed_spec=self._embed_spec,
            propositionizer=self._made_by or self._parser.propositionizer.fingerprint,
            vector_store=self.nodes.vector_store.class_name(),
            hybrid=self._options.hybrid,
            dense_weight=self._options.dense_weight,
            languages=tuple(astuple(trust) for trust in self.trust.values()),
        )

    def _require_own_propositionizer(self) -> None:
        """Refuse to let a default that differs from what made the index replace its propositions."""
        propositionizer = self._parser.propositionizer
        if self._made_by and self._made_by != propositionizer.fingerprint and not self._given.propositions:
            raise ValueError(
                "the index's propositions were made by another propositionizer than the default one here "
                f"({propositionizer.class_name()}); pass the one that made them (proposition_llm= or "
                "propositionizer=), or the default one by name to have changed documents made by it"
            )

    def _report(self, strangers: Sequence[LanguageTrust]) -> None:
        """Say which languages the embedding model does not know, when that turns out."""
        model = embed_model_identity(self.nodes.embed_model)
        for trust in strangers:
            if not self._options.hybrid:
                advice = "Leave hybrid on, or pass an embedding model that knows the language."
            elif self._options.hybrid == "store" or self._options.dense_weight is not None:
                advice = "Pass an embedding model that knows the language."
            else:
                advice = (
                    "So questions in that language are searched by words alone; pass an embedding model that knows "
                    "it to have both, or dense_weight= to weigh this one yourself."
                )
            logger.warning("%s. %s", trust.describe(model), advice)
