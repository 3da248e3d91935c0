"""A pack's index: opened or made anew, changed, and brought from one whole state to the next."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_pack_densex.committing import CommittedIndex
from llama_pack_densex.indexing import DocumentIndexer, IndexCounts, reading_order
from llama_pack_densex.ingestion.progress import Display
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.ingestion.watching import Watch
from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.opening import Opened
from llama_pack_densex.options import PackOptions
from llama_pack_densex.retrieval.lexical_side import LexicalSide
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
        opened: The store of its nodes.

    Attributes:
        nodes: The index over the store.
        lexical: Its lexical side.
        trust: What is known of the embedding model, by language.
        embedding_source: A phrase that says where the embedding model comes from.
        ingestion: What the last ingestion came to; None before the first one.
        failed: The first documents that failed in it.

    Raises:
        InvalidIndexError: The index was made with another embedding model.
        ValueError: The vector store has no use without an embedding model.
    """

    def __init__(self, options: PackOptions, given: Given, parser: BasePropositionNodeParser, opened: Opened) -> None:
        check_hybrid(options.hybrid, given.vector_store)
        manifest, folder = opened.manifest, opened.folder
        embed_model, self.embedding_source = embed_model_for(manifest, given.embed_model, opened.where)
        if embed_model is None and opened.store.needs_embeddings:
            raise ValueError(
                f"{opened.where} holds embeddings, but there is no embedding model: pass embed_model=, or leave "
                "vector_store out to search lexically"
            )
        self.nodes = NodeIndex(opened.store, embed_model)
        saved = folder.data if folder is not None and opened.lexical else None
        empty = opened.manifest is None and opened.store.is_empty()
        self.lexical = LexicalSide(given.tokenizer, saved, opened.lexical, empty=empty)
        self._trust = TrustMeter(LanguageTrust(*known) for known in manifest.languages) if manifest else TrustMeter()
        self.trust = self._trust.known
        self._options, self._given, self._parser, self._folder = options, given, parser, folder
        self._embed_spec = given.embed_spec or (manifest.embed_spec if manifest else "")
        self._made_by = manifest.propositionizer if manifest else ""
        there = manifest if folder is not None and is_index(folder.path) else None
        self._committed = None if folder is None else CommittedIndex(folder, self.nodes, self.lexical, there)
        # its files are opened now, while they are there; a writer may have gone on to the next state a moment ago
        if saved is not None and not self.lexical.is_readable() and self._committed is not None:
            self._committed.follow()
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
        with self._writing():
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
                if self._committed is not None and self._committed.current is not None:  # something was written
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
        with self._writing():
            if purge:  # first, since the index says what there is to purge: after a stop it can be done again
                texts = self.nodes.passage_texts(document_ids)
                self._parser.propositionizer.purge([*texts, *self._texts_of(documents)])
            deleted = len(self._indexer.delete(document_ids))
            self._compact() if purge else self._after_change()
        return deleted

    def _texts_of(self, documents: Sequence[str | BaseNode]) -> Iterator[str]:
        """The passages of those that are given whole: what is kept of them may never have got into the index."""
        for document in documents:
            with suppress(ValueError):  # it cannot be split, so nothing was ever asked about it
                passages = [] if isinstance(document, str) else self._parser.passages_of(document)
                yield from (passage.text for passage in passages)

    def compact(self) -> None:
        """Give back space, and erase what was deleted; see `IndexMethods.compact`."""
        with self._writing():
            self._compact()

    def _compact(self) -> None:
        if self._committed is not None and self._committed.current is not None:
            self._committed.compact(self._about(), self._by_words)
        else:
            self.lexical.forget()
            self.nodes.compact()

    def counts(self) -> IndexCounts:
        """Count what is in the index."""
        return self._indexer.counts()

    def all_nodes(self, granularity: str | None) -> list[BaseNode]:
        """All nodes, or those of one granularity, in the order of their documents."""
        return sorted(self.nodes.all_nodes(granularity), key=reading_order)

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
            with self._writing():
                self._after_change()
            return
        folder = IndexFolder(Path(str(persist_dir)))
        with folder.lock.held():
            folder.create(self.nodes.vector_store, self.nodes.docstore)
            version = self.nodes.store.copy_to(folder.data) or uuid.uuid4().hex
            lexical = self.lexical.save(folder.data, self.nodes.records) if self._by_words else ""
            manifest = replace(self._about(), data=folder.data.name, version=version, lexical=lexical)
            self.nodes.store.write_about(manifest.as_text())
            folder.commit(manifest)
            folder.clean(manifest)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._committed is None:
            yield
        else:
            with self._committed.writing():
                yield

    def _after_write(self) -> None:
        """Make what was written so far the index's state, so that a stop loses nothing of it."""
        if self._committed is None:
            self.nodes.maintain()
        elif self.nodes.store.atomic or self._committed.current is None:
            self._committed.commit(self._about(), self._by_words)

    def _after_change(self) -> None:
        """Make what there is now the index's state; documents that are all blank make no index."""
        store, committed = self.nodes.store, self._committed
        if committed is None:
            if self.nodes.changed and not store.is_empty():
                store.write_about(replace(self._about(), version=uuid.uuid4().hex).as_text())
                self.nodes.changed = False
        elif committed.current is not None or not store.is_empty():
            committed.commit(self._about(), self._by_words)
            committed.tidy()

    @property
    def _by_words(self) -> bool:
        """Whether there is a lexical side."""
        return self.nodes.embed_model is None or self._options.hybrid is True

    def _about(self) -> Manifest:
        return Manifest(
            data="",
            version="",
            lexical="",
            mode=self._options.mode,
            granularity=self._options.granularity,
            similarity_top_k=self._options.similarity_top_k,
            embed_model=embed_model_identity(self.nodes.embed_model),
            embed_spec=self._embed_spec,
            propositionizer=self._made_by or self._parser.propositionizer.fingerprint,
            vector_store=self.nodes.store.name,
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
