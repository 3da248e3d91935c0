"""The pack: documents in, propositions searched, an answer out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import LLM
from llama_index.core.node_parser import NodeParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, NodeWithScore, QueryType
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters

from llama_pack_densex.answering.extractive import ExtractiveQueryEngine
from llama_pack_densex.index_methods import IndexMethods
from llama_pack_densex.models import resolve_llm
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.opening import Opened, open_store
from llama_pack_densex.opening_methods import OpeningMethods
from llama_pack_densex.options import (
    DEFAULT_GRANULARITY,
    Hybrid,
    Mode,
    PackOptions,
    RerankedUnit,
    SearchedGranularity,
    check_top_k,
)
from llama_pack_densex.pack_index import PackIndex
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.auto_merging import DEFAULT_RATIO_THRESH
from llama_pack_densex.retrieval.context import DEFAULT_MODE, ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.tokens import TokenizerSpec
from llama_pack_densex.stores.folder import REPLIES_FILE
from llama_pack_densex.wiring import (
    Given,
    Searched,
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


class DenseXRetrievalPack(OpeningMethods, IndexMethods, _Base):  # type: ignore[misc]
    """Searches propositions and answers from the passages they came from (Dense X Retrieval, Chen et al., 2023).

    Documents are split into passages, passages into propositions; a question finds propositions, and what is read are
    they and their passages. Without any model it searches by words and quotes what it finds.

    Args:
        documents: Documents to index: any iterable, which is read as their turn comes.
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
        vector_store: A LlamaIndex vector store to keep nodes in; the default is an embedded LanceDB. If it holds an
            index, that is opened, and only documents that are new or changed are indexed.
        docstore: Where whole nodes are kept beside a vector store that cannot give them back, such as FAISS; None
            means one in memory, written to `persist_dir`.
        persist_dir: A folder to keep the index in. If it holds one, that is opened, and only documents that are new
            or changed are indexed.
        granularity: The units that embeddings are searched for: any of "proposition", "sentence" and "passage".
        hybrid: Whether search by embeddings is fused with search by words (BM25 over passages). "store" leaves that to
            the hybrid mode of `vector_store`. Without an embedding model, search is by words in any case.
        dense_weight: The embeddings' share in hybrid search, from 0 to 1. None means one half, and nothing for
            questions in a language that the embedding model turned out not to know.
        context: What the LLM reads: "propositions+passages", "propositions", "passages", "window", or a
            `PropositionContextPostprocessor`, which has a budget too.
        reranker: Any LlamaIndex node postprocessor that scores nodes anew, a cross-encoder for one.
        rerank: Whether it scores each "passage", or each matched "proposition" (and sentence); the best one counts.
        rerank_k: Nodes that it scores; None means five times those asked for, at least 20.
        tokenizer: Splits texts and questions for search by words: "bigrams" (words, and pairs of characters where
            words have no spaces between them), "sudachi" (a Japanese dictionary), or a function from a text to its
            tokens. None means what the index was made with, "bigrams" at first.
        node_parser: A proposition node parser of your own, in place of `text_splitter`, `propositionizer` and
            `proposition_llm`.
        fetch_k: Units in the first round of a search; it grows until there are `similarity_top_k` results.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is returned.
        show_progress: Whether to show the progress while indexing.
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
        documents: Iterable[BaseNode],
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
        docstore: BaseDocumentStore | None = None,
        persist_dir: str | Path | None = None,
        granularity: Sequence[SearchedGranularity] = DEFAULT_GRANULARITY,
        hybrid: Hybrid = True,
        dense_weight: float | None = None,
        context: ContextMode | PropositionContextPostprocessor = DEFAULT_MODE,
        reranker: BaseNodePostprocessor | None = None,
        rerank: RerankedUnit = "passage",
        rerank_k: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        show_progress: bool = False,
        verbose: bool = False,
    ) -> None:
        options = PackOptions(
            mode=mode,
            granularity=granularity,  # type: ignore[arg-type]  # made a tuple there
            similarity_top_k=similarity_top_k,
            fetch_k=fetch_k,
            simple_ratio_thresh=simple_ratio_thresh,
            streaming=streaming,
            verbose=verbose,
            hybrid=hybrid,
            dense_weight=dense_weight,
            context=context,
            rerank=rerank,
            rerank_k=rerank_k,
        )
        given = Given(
            proposition_llm,
            query_llm,
            embed_model,
            text_splitter,
            propositionizer,
            vector_store,
            docstore,
            node_parser,
            reranker,
            tokenizer,
        )
        self._set_up(options, open_store(persist_dir, given), given)
        self.refresh(documents, show_progress=show_progress)
        if self._index.nodes.store.is_empty():
            raise ValueError("none of the documents has any text: there is nothing to search")

    def _set_up(self, options: PackOptions, opened: Opened, given: Given) -> None:
        parser, proposition_source = make_node_parser(options, given)
        if opened.folder is not None:
            propositionizer = parser.propositionizer.keeping_replies(opened.folder.path / REPLIES_FILE)
            if propositionizer is not parser.propositionizer:
                parser = parser.model_copy(update={"propositionizer": propositionizer})
        query_llm, answering_source = resolve_llm(given.query_llm, "query_llm")
        self._index = PackIndex(options, given, parser, opened)
        self._searched = Searched(self._index.nodes, self._index.lexical, self._index.trust)
        self._options, self._reranker, self._query_llm = options, given.reranker, query_llm
        self.node_parser = parser
        self.retriever = make_retriever(options, self._searched, given.reranker, options.similarity_top_k)
        self.query_engine = make_query_engine(options, self.retriever, query_llm)
        self.vector_index = make_vector_index(self._index.nodes, parser)
        embed_model, embedding_source = self._index.nodes.embed_model, self._index.embedding_source
        lacking = (embed_model is None and given.embed_model is None) or (query_llm is None and given.query_llm is None)
        report_choices(options.hybrid, proposition_source, embedding_source, answering_source, lacking)

    def get_modules(self) -> dict[str, Any]:
        """The pack's parts by name."""
        return {
            "query_engine": self.query_engine,
            "retriever": self.retriever,
            "vector_index": self.vector_index,
            "node_parser": self.node_parser,
            "query_llm": self._query_llm,
            "embed_model": self._index.nodes.embed_model,
        }

    def run(
        self, query: QueryType, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> RESPONSE_TYPE:
        """Answer a question.

        Args:
            query: The question.
            similarity_top_k: Nodes to retrieve for this question; None means the pack's number.
            filters: Only documents whose metadata pass are searched; None means all.

        Returns:
            The answer, with the retrieved nodes as `source_nodes`.
        """
        return self._engine(similarity_top_k, filters).query(query)

    async def arun(
        self, query: QueryType, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> RESPONSE_TYPE:
        """What `run` does, asynchronously."""
        return await self._engine(similarity_top_k, filters).aquery(query)

    def retrieve(
        self, query: QueryType, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> list[NodeWithScore]:
        """Find nodes for a question.

        Args:
            query: The question.
            similarity_top_k: How many; None means the pack's number.
            filters: Only documents whose metadata pass are searched; None means all.

        Returns:
            Passages, or what they merged into, best first; each carries the units that found it under the metadata
            key `densex_matched`.
        """
        return self._retriever(similarity_top_k, filters).retrieve(query)

    async def aretrieve(
        self, query: QueryType, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> list[NodeWithScore]:
        """What `retrieve` does, asynchronously."""
        return await self._retriever(similarity_top_k, filters).aretrieve(query)

    def _retriever(self, similarity_top_k: int | None, filters: MetadataFilters | None) -> BaseRetriever:
        if similarity_top_k is None and filters is None:
            return self.retriever
        top_k = self._options.similarity_top_k if similarity_top_k is None else check_top_k(similarity_top_k)
        return make_retriever(self._options, self._searched, self._reranker, top_k, filters)

    def _engine(
        self, similarity_top_k: int | None, filters: MetadataFilters | None
    ) -> RetrieverQueryEngine | ExtractiveQueryEngine:
        if similarity_top_k is None and filters is None:
            return self.query_engine
        return self.query_engine.with_retriever(self._retriever(similarity_top_k, filters))
