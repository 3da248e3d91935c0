"""A pack's index: opened or created, changed, and taken from one consistent state to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.folder import REPORT_FILE, IndexFolder, folder_at
from llama_pack_densex.index.indexer import DocumentIndexer, reading_order
from llama_pack_densex.index.manifest import Manifest, Measured, is_index
from llama_pack_densex.index.node_index import NodeIndex, about
from llama_pack_densex.index.words import Words, note_of, words_in
from llama_pack_densex.ingestion.progress import Display
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary, Watch, describe
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.models import embed_model_identity, with_whole_path
from llama_pack_densex.node_parsers.ids import is_made_by
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.options import OF_THE_INDEX, PackOptions
from llama_pack_densex.propositionizers.base import PropositionizerError
from llama_pack_densex.retrieval.trust import LanguageTrust, TrustMeter
from llama_pack_densex.text.language import LANGUAGE_NAMES
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.wiring import UserArguments, embed_model_for

logger = plain_logger(__name__)


def open_nodes(persist_dir: str | Path | None, arguments: UserArguments) -> NodeIndex:
    """Open the nodes of a pack, or create a new store for them; without an embedding model.

    The manifest of what is opened may be one that the user's vector store keeps of an index elsewhere.

    Args:
        persist_dir: The pack's folder; None if it has none.
        arguments: The components that the user passed.

    Raises:
        InvalidIndexError: The folder or the store's content cannot be used.
        ValueError: Both the folder and an embedded vector store were given to hold the nodes.
    """
    vector_store = arguments.get("vector_store")
    docstore = arguments.get("docstore")
    folder = None
    if persist_dir is not None:
        folder = IndexFolder(folder_at(persist_dir))
        if isinstance(vector_store, EmbeddedVectorStore):
            raise ValueError(
                "persist_dir already keeps the nodes in a store of this kind: leave vector_store out"
            )
        if is_index(folder.path):
            return NodeIndex.open(folder, vector_store, docstore)
        data = folder.create()
        if vector_store is None:
            vector_store = EmbeddedVectorStore(data)
    store = adapter_for(vector_store, docstore)
    return NodeIndex(store, folder=folder, current=about(store))


class PackIndex(NodeIndex):
    """The index of a pack, which also makes the nodes of documents, and knows what made them.

    Args:
        options: The pack's settings.
        arguments: The components that the user passed.
        parser: The parser that makes nodes from documents.
        opened: The opened nodes.

    Attributes:
        trust: What was measured of the embedding model, by language.
        embedding_source: A phrase that says where the embedding model comes from.
        ingestion: The summary of the last ingestion; None before the first one.
        failed: The first documents that failed in the last ingestion.

    Raises:
        InvalidIndexError: The index was made with another embedding model.
        ValueError: The vector store needs an embedding model and there is none, or `hybrid="store"` is set
            without a vector store of the user's.
    """

    def __init__(
        self,
        options: PackOptions,
        arguments: UserArguments,
        parser: BasePropositionNodeParser,
        opened: NodeIndex,
    ) -> None:
        self._options = options
        self._parser = parser
        folder = opened.folder
        manifest = opened.current
        if options.hybrid == "store" and (opened.embedded or arguments.get("vector_store") is None):
            raise ValueError(
                'hybrid="store" is for a vector_store of your own; with the embedded one, use hybrid=True'
            )
        embed_model, self.embedding_source = embed_model_for(
            manifest, arguments.get("embed_model"), opened.where
        )
        if embed_model is None and not opened.embedded:
            raise ValueError(
                f"{opened.where} holds embeddings, but there is no embedding model: pass embed_model=, or "
                "leave vector_store out to search by keywords alone"
            )
        self._embed_model = embed_model_identity(embed_model)
        self._embed_spec = _embed_spec(arguments.get("embed_model"), manifest)
        words = _words_for(options, arguments, opened, embed_model)
        super().__init__(opened.store, embed_model, words, folder, _committed(opened))
        if folder is not None:
            self.beside.reopen(folder.data, opened.shared_state)
        languages: tuple[Measured, ...] = ()
        self._made_by = ""
        if manifest is not None:
            languages = manifest.languages
            self._made_by = manifest.propositionizer
        self._trust = TrustMeter(LanguageTrust(*measured) for measured in languages)
        self.trust = self._trust.known
        makers = ("proposition_llm", "propositionizer", "node_parser")
        self._is_chosen = any(arguments.get(maker) is not None for maker in makers)
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
            only_changed: Whether to skip documents that are in the index unchanged.
            gone: The ids of documents to delete afterwards.
            show: The display of the progress.
            total: The number of documents; None if it is not known.

        Returns:
            For each document, whether it was indexed.

        Raises:
            ValueError: The index's propositions were made by another propositionizer, and the user chose none
                here, so that the default one would replace them.
        """
        if self.is_made_elsewhere:
            raise ValueError(
                "the index's propositions were made by another propositionizer than the default one here "
                f"({self._parser.propositionizer.class_name()}): pass the one that made them "
                "(proposition_llm= or propositionizer=), or pass the default one explicitly to use it for "
                "changed documents"
            )
        with self.writing():
            previous_maker = self._made_by
            self._made_by = self._parser.propositionizer.fingerprint
            report = None
            if self.folder is not None:
                report = self.folder.path / REPORT_FILE
            watch = Watch(
                self._parser.propositionizer,
                report,
                show,
                total,
                is_proven=previous_maker == self._made_by,
            )
            try:
                with watch:
                    indexer = DocumentIndexer(self, self._parser, self._trust, watch)
                    indexed = indexer.ingest(documents, only_changed)
                    for document_id in self.delete(gone):
                        watch.deleted(document_id)
                    watch.raise_if_all_failed()
            except BaseException as error:
                if self.current is not None:  # something was written
                    self.commit()
                if isinstance(error, PropositionizerError):
                    error.ingestion = watch.summary
                raise
            finally:
                self.ingestion = watch.summary
                self.failed = watch.outcomes_failed
            self._measure_languages()
            self.commit()
            return indexed

    def delete_documents(self, documents: Sequence[str | BaseNode], purge: bool = False) -> int:
        """Delete documents, and return how many of them were indexed; see `DenseXRetrievalPack.delete`."""
        with self.writing():
            document_ids = [part if isinstance(part, str) else part.id_ for part in documents]
            # before the deletion, because the index says what to purge: after a stop, it can be repeated
            if purge:
                texts = self.passage_texts(document_ids)
                self._parser.propositionizer.purge([*texts, *self._texts_of(documents)])
                deleted = self.rewrite(document_ids)
            else:
                deleted = self.delete(document_ids)
            self.commit()
        return len(deleted)

    def _texts_of(self, documents: Sequence[str | BaseNode]) -> Iterator[str]:
        """Yield the passages of the documents that were passed as objects, not as ids: replies may be cached
        for passages that never reached the index."""
        for document in documents:
            if isinstance(document, str):
                continue
            with suppress(ValueError):  # a document that cannot be split never led to a request
                yield from (passage.text for passage in self._parser.passages_of(document))

    def compact(self) -> None:
        """Free unused space, and erase what was deleted; see `DenseXRetrievalPack.compact`."""
        with self.writing():
            self.rewrite()

    def nodes(self, granularity: str | None) -> list[BaseNode]:
        """Return all nodes, or those of one granularity, in reading order, document by document."""
        return self.reading(lambda: sorted(self.all_nodes(granularity), key=reading_order))

    def persist(self, persist_dir: str | Path | None) -> None:
        """Write the index to a folder; None means its own folder.

        Raises:
            ValueError: No folder was given, and the index has none.
            InvalidIndexError: The path is a file, or a folder that holds something other than an index.
        """
        folder = self.folder
        if persist_dir is not None:
            path = folder_at(persist_dir)
        elif folder is not None:
            path = folder.path
        else:
            raise ValueError(
                "this pack was made without persist_dir: pass a folder, persist(persist_dir=...)"
            )
        if folder is None or path.resolve() != folder.path.resolve():
            self.copy_to(IndexFolder(path))
            return
        with self.writing():
            self.commit()

    def describe(self) -> Manifest:
        return Manifest(
            data="",
            version="",
            embed_model=self._embed_model,
            embed_spec=self._embed_spec,
            propositionizer=self._made_by or self._parser.propositionizer.fingerprint,
            vector_store=self.store.name,
            languages=tuple(astuple(trust) for trust in list(self.trust.values())),
            **{name: getattr(self._options, name) for name in OF_THE_INDEX},
        )

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether the user chose no propositionizer, and the default one differs from the index's."""
        fingerprint = self._parser.propositionizer.fingerprint
        if self._is_chosen:
            return False
        if self._made_by:
            return self._made_by != fingerprint
        # an ingestion pipeline may have written the nodes, which leaves no manifest
        passages = self.records("passage")
        hashes = filter(None, (passage.document_hash for passage in passages))
        return not all(is_made_by(document_hash, fingerprint) for document_hash in hashes)

    def _measure_languages(self) -> None:
        """Measure whether the embedding model knows the languages of the passages, and warn if it may not."""
        model = self.embed_model
        options = self._options
        if model is None:
            self._trust.count()
            return
        try:
            strangers = self._trust.measure(
                partial(embed_texts, model), lambda: self.records("passage")
            )
        except Exception as error:  # the documents are in the index already, and can be searched
            logger.warning(
                "Could not measure whether the embedding model knows the documents' language: %s",
                describe(error),
            )
            return
        for trust in strangers:
            if trust.language not in options.languages:
                logger.warning(
                    "%s may not know %s: among %d passages, it finds the one that a sentence comes from in "
                    "%.0f %% of the cases. So if hybrid is on and dense_weight is not set, questions in that "
                    "language are searched by keywords alone. Pass an embedding model that knows the "
                    'language, or languages=["%s"] if this one does (see pack.languages).',
                    self._embed_model, LANGUAGE_NAMES[trust.language], trust.passages,
                    100 * (trust.first or 0.0), trust.language,
                )  # fmt: skip


def _committed(opened: NodeIndex) -> Manifest | None:
    """Return the manifest of the committed state; a new folder has none, whatever its store keeps of an index
    elsewhere."""
    if opened.folder is not None and not is_index(opened.folder.path):
        return None
    return opened.current


def _embed_spec(embed_model: BaseEmbedding | str | None, manifest: Manifest | None) -> str:
    """Return the string that names the embedding model: the one given, or the one in the manifest."""
    if isinstance(embed_model, str):
        return with_whole_path(embed_model)
    if manifest is None:
        return ""
    return manifest.embed_spec


def _words_for(
    options: PackOptions,
    arguments: UserArguments,
    opened: NodeIndex,
    embed_model: BaseEmbedding | None,
) -> Words | None:
    """Return the tokenizer of an index; None for an index without keyword search.

    Raises:
        ValueError: There is no such tokenizer, or the index was made with a function, which must be passed
            again.
    """
    if embed_model is not None and options.hybrid is not True and options.hops == 1:
        return None
    tokenizer = arguments.get("tokenizer")
    if isinstance(tokenizer, Words):  # `compare` passes one without the tokens of propositions
        return tokenizer
    if tokenizer is not None:
        return Words.by(tokenizer)
    note = ""
    if opened.embedded:
        note = opened.embedded.tokenizer_note
    elif opened.folder:
        note = note_of(opened.folder.data)
    words = words_in(note)
    if isinstance(words, str):
        raise ValueError(
            f"the words of {opened.where} were made by the tokenizer {words}, which is not part of this "
            'package: pass that function as tokenizer=, or tokenizer="bigrams" to make them again with ours'
        )
    return words or Words.by("bigrams")
