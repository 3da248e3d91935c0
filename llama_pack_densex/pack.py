"""The pack: documents in, propositions searched, an answer out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import LLM
from llama_index.core.node_parser import NodeParser
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, NodeWithScore, QueryType
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.answering.extractive import ExtractiveQueryEngine
from llama_pack_densex.indexing import DocumentIndexer, IndexCounts, checked_documents, reading_order
from llama_pack_densex.models import embed_model_identity, resolve_llm
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.options import Mode, PackOptions, SearchedGranularity, check_top_k
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.bm25 import LexicalIndexCache
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.manifest import Manifest, is_index
from llama_pack_densex.wiring import (
    Given,
    embed_model_for,
    make_node_parser,
    make_query_engine,
    make_retriever,
    make_vector_index,
    report_choices,
)

try:  # until llama-index-core 0.14.20
    from llama_index.core.llama_pack import BaseLlamaPack as _Base
except ImportError:
    _Base = object


class DenseXRetrievalPack(_Base):  # type: ignore[misc]
    """Searches propositions and answers from the passages they came from (Dense X Retrieval, Chen et al., 2023).

    Documents are split into passages, passages into propositions; a question finds propositions, and what is read are
    they and their passages. Without any model it searches by words and quotes what it finds.

    Args:
        documents: Documents to index.
        proposition_llm: The LLM that makes propositions; None means `Settings.llm` if it is set, else OpenAI if
            `OPENAI_API_KEY` is set, else sentences stand in for propositions. "none" means sentences.
        query_llm: The LLM that answers; None means the same defaults, without which answers are quotations. "none"
            means quotations.
        embed_model: The embedding model: an object, "minilm", "none" (search by words), a model folder, or what
            LlamaIndex resolves. None means `Settings.embed_model` if it is set, else multilingual-e5-small if it is
            on this machine, else none.
        text_splitter: The node parser that makes the passages; the default cuts at sentence ends, 256 tokens.
        similarity_top_k: Nodes that a query returns where it does not say: distinct passages, or what they merged into.
        streaming: Whether answers come as a stream.
        mode: "recursive" or "auto_merging".
        propositionizer: What makes propositions, in place of `proposition_llm`.
        vector_store: A LlamaIndex vector store to keep nodes in; the default is an embedded LanceDB.
        persist_dir: A folder to keep the index in. If it holds one, that is opened, and only documents that are new
            or changed are indexed.
        granularity: The units that are searched: "proposition", "sentence" or both.
        node_parser: A proposition node parser of your own, in place of `text_splitter`, `propositionizer` and
            `proposition_llm`.
        fetch_k: Units in the first round of a search; it grows until there are `similarity_top_k` results.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is returned.
        show_progress: Whether to show progress bars while indexing.
        verbose: Whether retrievers print what they do.

    Attributes:
        node_parser: Makes nodes of documents.
        vector_index: A `VectorStoreIndex` over all nodes; None without an embedding model.
        retriever: Returns passages (or what they merged into) for a question.
        query_engine: Answers a question.

    Raises:
        ValueError: There is nothing to index, or an argument is out of range; the message says which.
        InvalidIndexError: `persist_dir` cannot be used.
    """

    def __init__(
        self,
        documents: Sequence[BaseNode],
        proposition_llm: LLM | str | None = None,
        query_llm: LLM | str | None = None,
        embed_model: BaseEmbedding | str | None = None,
        text_splitter: NodeParser | None = None,
        similarity_top_k: int = 4,
        streaming: bool = False,
        *,
        mode: Mode = "recursive",
        propositionizer: Propositionizer | None = None,
        vector_store: BasePydanticVectorStore | None = None,
        persist_dir: str | Path | None = None,
        granularity: Sequence[SearchedGranularity] = ("proposition", "sentence"),
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = 0.5,
        show_progress: bool = False,
        verbose: bool = False,
    ) -> None:
        options = PackOptions(
            mode, tuple(granularity), similarity_top_k, fetch_k, simple_ratio_thresh, streaming, verbose
        )
        documents = checked_documents(documents)
        folder = None if persist_dir is None else IndexFolder(Path(persist_dir))
        manifest = Manifest.read(folder.path) if folder is not None and is_index(folder.path) else None
        self._set_up(
            options,
            folder,
            manifest,
            Given(proposition_llm, query_llm, embed_model, text_splitter, propositionizer, vector_store, node_parser),
        )
        self.refresh(documents, show_progress=show_progress)
        if not self.counts().passages:
            raise ValueError("none of the documents has any text: there is nothing to search")

    def _set_up(
        self, options: PackOptions, folder: IndexFolder | None, manifest: Manifest | None, given: Given
    ) -> None:
        parser, proposition_source = make_node_parser(options, given)
        query_llm, answering_source = resolve_llm(given.query_llm, "query_llm")
        embed_model, embedding_source = embed_model_for(manifest, given.embed_model, folder)
        if folder is not None and manifest is not None:
            index = folder.open(manifest, given.vector_store, embed_model)
        else:
            store = folder.create(given.vector_store) if folder is not None else given.vector_store
            index = NodeIndex(store, embed_model)
        self._options, self._folder, self._given = options, folder, given
        self._index, self._query_llm = index, query_llm
        self._embed_spec = given.embed_spec or (manifest.embed_spec if manifest else "")
        self._made_by = manifest.propositionizer if manifest else ""
        self._lexical = LexicalIndexCache()
        self._indexer = DocumentIndexer(index, parser, self._lexical)
        self.node_parser = parser
        self.retriever = make_retriever(options, index, self._lexical, options.similarity_top_k)
        self.query_engine = make_query_engine(options, self.retriever, query_llm)
        self.vector_index = make_vector_index(index, parser)
        lacking = (embed_model is None and given.embed_model is None) or (query_llm is None and given.query_llm is None)
        report_choices(proposition_source, embedding_source, answering_source, lacking)

    @classmethod
    def load(
        cls,
        persist_dir: str | Path,
        proposition_llm: LLM | str | None = None,
        query_llm: LLM | str | None = None,
        embed_model: BaseEmbedding | str | None = None,
        text_splitter: NodeParser | None = None,
        similarity_top_k: int | None = None,
        streaming: bool = False,
        *,
        mode: Mode | None = None,
        propositionizer: Propositionizer | None = None,
        vector_store: BasePydanticVectorStore | None = None,
        granularity: Sequence[SearchedGranularity] | None = None,
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = 0.5,
        verbose: bool = False,
    ) -> DenseXRetrievalPack:
        """Open an index that was persisted; nothing is asked of an LLM or embedded for its documents.

        Args:
            persist_dir: The folder.
            mode: None means the mode that the index was made for, and likewise for `similarity_top_k` and
                `granularity`. The other arguments are those of the constructor.

        Raises:
            InvalidIndexError: The folder is no index, is damaged, or was made with another embedding model.
            ValueError: An argument is out of range.
        """
        folder = IndexFolder(Path(persist_dir))
        manifest = Manifest.read(folder.path)
        options = PackOptions(
            mode or manifest.mode,  # type: ignore[arg-type]  # checked there
            tuple(granularity or manifest.granularity),  # type: ignore[arg-type]
            similarity_top_k if similarity_top_k is not None else manifest.similarity_top_k,
            fetch_k,
            simple_ratio_thresh,
            streaming,
            verbose,
        )
        pack = cls.__new__(cls)
        pack._set_up(
            options,
            folder,
            manifest,
            Given(proposition_llm, query_llm, embed_model, text_splitter, propositionizer, vector_store, node_parser),
        )
        return pack

    def get_modules(self) -> dict[str, Any]:
        """The pack's parts by name."""
        return {
            "query_engine": self.query_engine,
            "retriever": self.retriever,
            "vector_index": self.vector_index,
            "node_parser": self.node_parser,
            "query_llm": self._query_llm,
            "embed_model": self._index.embed_model,
        }

    def run(self, query: QueryType, similarity_top_k: int | None = None) -> RESPONSE_TYPE:
        """Answer a question.

        Args:
            query: The question.
            similarity_top_k: Nodes to retrieve for this question; None means the pack's number.

        Returns:
            The answer, with the retrieved nodes as `source_nodes`.
        """
        return self._engine(similarity_top_k).query(query)

    async def arun(self, query: QueryType, similarity_top_k: int | None = None) -> RESPONSE_TYPE:
        """What `run` does, asynchronously."""
        return await self._engine(similarity_top_k).aquery(query)

    def retrieve(self, query: QueryType, similarity_top_k: int | None = None) -> list[NodeWithScore]:
        """Find nodes for a question.

        Returns:
            Passages, or what they merged into, best first; each carries the units that found it under the metadata
            key `densex_matched`.
        """
        return self._retriever(similarity_top_k).retrieve(query)

    async def aretrieve(self, query: QueryType, similarity_top_k: int | None = None) -> list[NodeWithScore]:
        """What `retrieve` does, asynchronously."""
        return await self._retriever(similarity_top_k).aretrieve(query)

    def insert(self, documents: BaseNode | Sequence[BaseNode], show_progress: bool = False) -> None:
        """Index documents; one whose id is there is replaced, and so is an earlier state of its file."""
        self._require_own_propositionizer()
        self._indexer.insert(checked_documents(documents), show_progress)
        self._after_change()

    def refresh(self, documents: BaseNode | Sequence[BaseNode], show_progress: bool = False) -> list[bool]:
        """Index those documents that are new or changed; the others cost nothing.

        Returns:
            For each document whether it was indexed.
        """
        self._require_own_propositionizer()
        changed = self._indexer.refresh(checked_documents(documents), show_progress)
        self._after_change()
        return changed

    def delete(self, documents: str | BaseNode | Sequence[str | BaseNode]) -> int:
        """Delete documents, given by id or as documents.

        Returns:
            How many of them were there.
        """
        given = [documents] if isinstance(documents, (str, BaseNode)) else list(documents)
        deleted = self._indexer.delete([part if isinstance(part, str) else part.id_ for part in given])
        self._after_change()
        return deleted

    def counts(self) -> IndexCounts:
        """Count documents, passages, propositions and their statuses."""
        return self._indexer.counts()

    def nodes(self, granularity: str | None = None) -> list[BaseNode]:
        """All nodes of the index, or those of one granularity, in the order of their documents.

        Args:
            granularity: "section", "passage", "proposition" or "sentence"; None means all.
        """
        wanted = [record.id for record in self._index.records() if granularity in (None, record.granularity)]
        return sorted(self._index.fetch(wanted).values(), key=reading_order)

    def persist(self, persist_dir: str | Path | None = None) -> None:
        """Write the index to a folder; a stop in between leaves what was there before.

        Args:
            persist_dir: The folder; None means the pack's own, where changes are written as they happen.

        Raises:
            ValueError: There is no folder.
            InvalidIndexError: The folder is a file, or holds other things than an index.
        """
        if persist_dir is None and self._folder is None:
            raise ValueError("this pack was made without persist_dir: say where to, persist(persist_dir=...)")
        if self._folder is not None and (
            persist_dir is None or Path(persist_dir).resolve() == self._folder.path.resolve()
        ):
            self._folder.commit(self._manifest(self._folder), self._index)
            return
        folder = IndexFolder(Path(str(persist_dir)))
        folder.fill_from(self._index)
        folder.commit(self._manifest(folder), self._index)

    def _retriever(self, similarity_top_k: int | None) -> BaseRetriever:
        if similarity_top_k is None:
            return self.retriever
        return make_retriever(self._options, self._index, self._lexical, check_top_k(similarity_top_k))

    def _engine(self, similarity_top_k: int | None) -> RetrieverQueryEngine | ExtractiveQueryEngine:
        if similarity_top_k is None:
            return self.query_engine
        return self.query_engine.with_retriever(self._retriever(similarity_top_k))

    def _after_change(self) -> None:
        if not self._index.vector_store.stores_text:
            self.vector_index = make_vector_index(self._index, self.node_parser)
        self._made_by = self.node_parser.propositionizer.fingerprint
        if self._folder is not None:
            self._folder.commit(self._manifest(self._folder), self._index)

    def _manifest(self, folder: IndexFolder) -> Manifest:
        return Manifest(
            data=folder.data_name,
            mode=self._options.mode,
            granularity=self._options.granularity,
            similarity_top_k=self._options.similarity_top_k,
            embed_model=embed_model_identity(self._index.embed_model),
            embed_spec=self._embed_spec,
            propositionizer=self._made_by or self.node_parser.propositionizer.fingerprint,
            vector_store=self._index.vector_store.class_name(),
        )

    def _require_own_propositionizer(self) -> None:
        """Refuse to let a default that differs from what made the index replace its propositions."""
        fingerprint = self.node_parser.propositionizer.fingerprint
        if self._made_by and self._made_by != fingerprint and not self._given.propositions:
            raise ValueError(
                "the index's propositions were made by another propositionizer than the default one here "
                f"({self.node_parser.propositionizer.class_name()}); pass the one that made them (proposition_llm= or "
                "propositionizer=), or the default one by name to have changed documents made by it"
            )
