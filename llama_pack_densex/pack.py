"""The pack: index documents, search their propositions, answer questions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.node_parser import NodeParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, QueryType
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.tools import QueryEngineTool
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters
from typing_extensions import Self, Unpack

from llama_pack_densex import wiring
from llama_pack_densex.answering.chat import PropositionChatEngine, PropositionQueryEngine
from llama_pack_densex.answering.conversation import ConversationQuery
from llama_pack_densex.index.folder import abandon, folder_at
from llama_pack_densex.index.indexer import checked_documents
from llama_pack_densex.index.manifest import REPLIES_FILE, InvalidIndexError, while_it_changes
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import DocumentRecord, IndexCounts, NodeRecord
from llama_pack_densex.index.pack_index import PackIndex, open_nodes
from llama_pack_densex.index.words import TokenizerSpec
from llama_pack_densex.ingestion.progress import display_for
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.llm.errors import shown
from llama_pack_densex.models import NO_EMBED_MODEL, resolve_llm
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.options import (
    Hops,
    Hybrid,
    Mode,
    PackArguments,
    PackOptions,
    RerankedUnit,
    SearchedGranularity,
    UserArguments,
)
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.context import ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.retrievers import DEFAULT_RATIO_THRESH
from llama_pack_densex.retrieval.trust import LanguageTrust
from llama_pack_densex.text import markup
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

try:  # until llama-index-core 0.14.20
    from llama_index.core.llama_pack import BaseLlamaPack as _Base
except ImportError:
    _Base = object


class DenseXRetrievalPack(_Base):  # type: ignore[misc]
    """Searches propositions and answers from the passages they came from (Dense X Retrieval, Chen et al.,
    2023).

    Documents are split into passages, and passages into propositions. A search finds the propositions that
    match a question, and the LLM reads them together with their passages. Without any model, search is by
    keywords and answers are quotations.

    Args:
        documents: The documents to index: any iterable; it is read lazily.
        proposition_llm: The LLM that writes propositions. None means `Settings.llm` if it is set, else OpenAI
            if `OPENAI_API_KEY` is set, else no LLM: sentences stand in for propositions. "none" means
            sentences.
        query_llm: The LLM that answers. None means the same defaults; if there is no LLM, answers are
            quotations. "none" means quotations. For both LLMs, a name such as "gpt-4o-mini" means that model
            of OpenAI, and "ollama:qwen3:8b" one of another provider (docs/models.md).
        embed_model: The embedding model: an object, "minilm", "none" (keyword search only), a model folder, a
            retriever such as "contriever" or "ruri" (docs/embeddings.md), or a name such as
            "openai:text-embedding-3-small". None means `Settings.embed_model` if it is set, else
            multilingual-e5-small if it is on this machine, else none.
        text_splitter: The node parser that makes the passages; the default splits at sentence ends, into
            passages of at most 256 tokens.
        similarity_top_k: How many nodes a query returns by default: distinct passages, or the sections that
            they were merged into.
        streaming: Whether answers are streamed.
        mode: "recursive" or "auto_merging".
        propositionizer: The propositionizer to use instead of `proposition_llm`.
        vector_store: A LlamaIndex vector store to keep nodes in; the default is an embedded SQLite database.
            If the store already holds an index, that index is opened, and only new and changed documents are
            indexed.
        docstore: Where whole nodes are kept beside a vector store that cannot return them, such as FAISS;
            None means an in-memory one that is written to `persist_dir`.
        persist_dir: A folder to keep the index in. If it already holds an index, that index is opened, and
            only new and changed documents are indexed. The index then takes the options given here, or the
            defaults; `load` opens it with the options that it was made with.
        granularity: The units whose embeddings are searched: any of "proposition", "sentence", "passage" and,
            if the propositionizer wrote any, "question".
        hybrid: Whether dense search is fused with keyword search (BM25 over passages). "store" leaves this to
            the hybrid mode of `vector_store`. Without an embedding model, there is only keyword search.
        dense_weight: The share of dense search in hybrid search, from 0 to 1. None chooses it for each
            question: keywords count one and a half times as much as embeddings if the best passage contains
            all words of the question, and half as much if it contains half of them. In a language that the
            embedding model was measured not to know, only keywords count.
        hops: 2 also follows the passages found for a question to others that share a rare name with them,
            unless one passage already contains most of the question's words (docs/retrieval.md).
        languages: Languages that the embedding model knows, such as "ja" and "en", whatever was measured; see
            `languages` below.
        embed_metadata: The metadata keys that are embedded with each text, none by default; "title" and
            "section" are available for every document. Filters see all metadata.
        llm_metadata: The metadata keys that the LLM reads with each text: by default title, section, file and
            page.
        context: What the LLM reads: "propositions+passages", "propositions", "passages", "window", or a
            `PropositionContextPostprocessor`, which also sets a budget.
        reranker: Any LlamaIndex node postprocessor that rescores nodes, such as a cross-encoder.
        rerank: What the reranker scores: each "passage", or each matched "proposition" (and sentence); a
            passage then gets the score of its best one.
        rerank_k: How many nodes the reranker scores; None means five times the number of results requested,
            and at least 20.
        tokenizer: How texts and questions are split for keyword search: "bigrams" (words, and pairs of
            characters in scripts without spaces between words), or a function from a text to its tokens. None
            means the tokenizer that the index was made with, "bigrams" for a new index.
        node_parser: A proposition node parser of your own, in place of `text_splitter`, `propositionizer` and
            `proposition_llm`.
        fetch_k: How many units the first round of a search fetches; further rounds fetch more until there are
            `similarity_top_k` results.
        simple_ratio_thresh: In mode "auto_merging", a parent is returned in place of its children if more
            than this share of them was found.
        show_progress: Whether to show the progress while indexing.
        verbose: Whether retrievers print what they do.

    Attributes:
        node_parser: Turns documents into nodes.
        vector_index: A `VectorStoreIndex` over all current nodes; None without an embedding model.
        retriever: Returns passages (or the sections that they were merged into) for a question.
        query_engine: Answers a question.

    Raises:
        ValueError: There is nothing to index, or an argument is out of range; the message says which one.
        InvalidIndexError: `persist_dir` cannot be used.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_pack_densex import DenseXRetrievalPack
        >>> tunnel = "The Seikan Tunnel links Honshu and Hokkaido. It lies 240 metres below the sea."
        >>> bridge = "The Akashi Bridge opened in 1998."
        >>> documents = [
        ...     Document(id_="seikan.md", text=tunnel, metadata={"topic": "railways"}),
        ...     Document(id_="akashi.md", text=bridge, metadata={"topic": "roads"}),
        ... ]
        >>> pack = DenseXRetrievalPack(documents, similarity_top_k=1)
        >>> print(pack.run("When did the Akashi Bridge open?"))
        The Akashi Bridge opened in 1998.[^1]
    """

    def __init__(  # noqa: PLR0913 (public)
        self,
        documents: Iterable[BaseNode],
        proposition_llm: LLM | str | None = None,
        query_llm: LLM | str | None = None,
        embed_model: BaseEmbedding | str | None = None,
        text_splitter: NodeParser | None = None,
        similarity_top_k: int = 4,
        streaming: bool = False,
        *,
        mode: Mode | None = None,
        propositionizer: Propositionizer | None = None,
        vector_store: BasePydanticVectorStore | None = None,
        docstore: BaseDocumentStore | None = None,
        persist_dir: str | Path | None = None,
        granularity: Sequence[SearchedGranularity] | None = None,
        hybrid: Hybrid | None = None,
        dense_weight: float | None = None,
        hops: Hops | None = None,
        languages: Sequence[str] = (),
        embed_metadata: Sequence[str] | None = None,
        llm_metadata: Sequence[str] | None = None,
        context: ContextMode | PropositionContextPostprocessor | None = None,
        reranker: BaseNodePostprocessor | None = None,
        rerank: RerankedUnit = "passage",
        rerank_k: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        verbose: bool = False,
        show_progress: bool = False,
    ) -> None:
        values = locals()
        arguments = _checked({name: values[name] for name in UserArguments.__annotations__})
        options = PackOptions.for_index(None, arguments)
        folder = None if persist_dir is None else folder_at(persist_dir)
        was_there = folder is not None and folder.exists()
        try:
            self._set_up(options, open_nodes(persist_dir, arguments), arguments)
            self.refresh(documents, show_progress=show_progress)
            if self._index.store.is_empty():
                raise ValueError("none of the documents has any text: there is nothing to search")
        except BaseException as error:
            if folder:
                is_silence = getattr(error, "is_silence", False)
                abandon(folder, keep=was_there or is_silence or self._has_paid())
            raise

    def _has_paid(self) -> bool:
        """Return whether requests were answered, even if the pack could not be made."""
        parser = getattr(self, "node_parser", None)
        return parser is not None and parser.propositionizer.usage.requests > 0

    @classmethod
    def load(cls, persist_dir: str | Path, **arguments: Unpack[UserArguments]) -> Self:
        """Open a persisted index without calling an LLM and without embedding any document.

        Args:
            persist_dir: The folder.
            **arguments: The arguments of the constructor; `vector_store` if the nodes are in a store of your
                own. `mode`, `similarity_top_k`, `granularity`, `hybrid`, `dense_weight`, `hops`,
                `embed_metadata` and `llm_metadata` default to the values that the index was made with.

        Raises:
            InvalidIndexError: The folder is not an index, is damaged, or was made with another embedding
                model.
            ValueError: An argument is out of range.

        Example:
            >>> pack.persist("my-index")
            >>> DenseXRetrievalPack.load("my-index").counts()
            IndexCounts(documents=2, passages=2, propositions=3, ...)
        """
        checked = _checked(arguments)
        # open_nodes comes first: it raises if there is no index, before anything else is built
        return while_it_changes(
            folder_at(persist_dir), lambda: cls._over(open_nodes(persist_dir, checked), checked)
        )

    @classmethod
    def from_vector_store(
        cls, vector_store: BasePydanticVectorStore, **arguments: Unpack[PackArguments]
    ) -> Self:
        """Open an index from its vector store alone, without calling an LLM or embedding any document.

        Passages and sections are read from the store by id. Keyword search needs all texts; they are read
        once, at the first question, and not at all with `hybrid=False`.

        Args:
            vector_store: The store that holds the nodes. A pack wrote them, in this process or another, or an
                ingestion pipeline that uses one of our node parsers.
            **arguments: As for `load`.

        Raises:
            InvalidIndexError: The store holds no nodes of a pack, or the index was made with another
                embedding model.
            ValueError: An argument is out of range.

        Example:
            >>> from chromadb import EphemeralClient
            >>> from llama_index.core import MockEmbedding
            >>> from llama_index.vector_stores.chroma import ChromaVectorStore
            >>> store = ChromaVectorStore(EphemeralClient().create_collection("tunnels"))
            >>> written = DenseXRetrievalPack(documents, embed_model=MockEmbedding(8), vector_store=store)
            >>> reopened = DenseXRetrievalPack.from_vector_store(store, embed_model=MockEmbedding(8))
            >>> reopened.counts().documents
            2
        """
        checked = _checked({**arguments, "vector_store": vector_store})
        return cls._over(open_nodes(None, checked), checked)

    @classmethod
    def _over(cls, opened: NodeIndex, arguments: UserArguments) -> Self:
        if not opened.shared_state and opened.store.is_empty():
            raise InvalidIndexError(
                f"there is no index in the {opened.store.name}: index documents first, with "
                "DenseXRetrievalPack(documents, vector_store=...), and name the same collection here (and "
                "the docstore, if the store keeps no text)"
            )
        pack = cls.__new__(cls)
        pack._set_up(PackOptions.for_index(opened.current, arguments), opened, arguments)
        return pack

    def _set_up(self, options: PackOptions, opened: NodeIndex, arguments: UserArguments) -> None:
        parser, proposition_source = wiring.make_node_parser(options, arguments)
        if opened.folder:
            replies = opened.folder.path / REPLIES_FILE
            propositionizer = parser.propositionizer.keeping_replies(replies)
            if propositionizer is not parser.propositionizer:
                parser = parser.model_copy(update={"propositionizer": propositionizer})
        query_llm, answering_source = resolve_llm(arguments.get("query_llm"), "query_llm")
        self._index = PackIndex(options, arguments, parser, opened)
        if self._index.is_made_elsewhere:
            proposition_source = "propositions as the index has them"
        self._query_llm = query_llm
        self.node_parser = parser
        self._make_retriever = wiring.RetrieverMaker(
            options, self._index, self._index.trust, arguments.get("reranker")
        )
        self.retriever = self._make_retriever()
        self._synthesizer = wiring.make_synthesizer(options, self._index.trust, query_llm)
        self._queries = ConversationQuery(query_llm)
        self.query_engine = PropositionQueryEngine(
            self.retriever, self._synthesizer, callback_manager=wiring.callback_manager()
        )
        sources = (proposition_source, self._index.embedding_source, answering_source)
        self._choices = wiring.describe_choices(options.hybrid, *sources)
        models = {"embed_model": self._index.embed_model, "query_llm": query_llm}
        # warn only about models that the user did not decline with "none"
        if any(model is None and arguments.get(name) is None for name, model in models.items()):
            logger.warning("%s", wiring.describe_lacks(*sources))
            if self._index.embedding_source == NO_EMBED_MODEL:
                wiring.warn_of_missing_model()
        else:
            logger.info("%s", self._choices)

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.counts()}.\n{self._choices}"

    def _repr_html_(self) -> str:
        return markup.block(
            type(self).__name__,
            f"<div>{markup.escape(str(self.counts()))}</div>",
            markup.note(self._choices),
        )

    @property
    def vector_index(self) -> VectorStoreIndex | None:
        """LlamaIndex's own `VectorStoreIndex` over all current nodes; None without an embedding model.

        Example:
            >>> from llama_index.core import MockEmbedding
            >>> embedded = DenseXRetrievalPack(documents, embed_model=MockEmbedding(8))
            >>> results = embedded.vector_index.as_retriever(similarity_top_k=2).retrieve("tunnels")
            >>> len(results)
            2
        """
        return wiring.make_vector_index(self._index, self.node_parser)

    @property
    def languages(self) -> dict[str, LanguageTrust]:
        """How well the embedding model knows each language of the documents, measured on the documents.

        Example:
            >>> pack.languages["en"].passages
            2
        """
        return dict(self._index.trust)

    def get_modules(self) -> dict[str, Any]:
        """Return the pack's parts by name.

        Example:
            >>> sorted(pack.get_modules())
            ['embed_model', 'node_parser', 'query_engine', 'query_llm', 'retriever', 'vector_index']
        """
        return {
            "query_engine": self.query_engine,
            "retriever": self.retriever,
            "vector_index": self.vector_index,
            "node_parser": self.node_parser,
            "query_llm": self._query_llm,
            "embed_model": self._index.embed_model,
        }

    def run(
        self,
        query: QueryType | None = None,
        similarity_top_k: int | None = None,
        filters: MetadataFilters | None = None,
        *,
        query_str: str | None = None,
    ) -> RESPONSE_TYPE:
        """Answer a question.

        Args:
            query: The question.
            similarity_top_k: How many nodes to retrieve for this question; None means the pack's default.
            filters: Restrict the search to documents whose metadata match; None means all documents.
            query_str: The question, under LlamaIndex's name for it.

        Returns:
            The answer, with the retrieved nodes as `source_nodes`.

        Example:
            >>> response = pack.run("When did the Akashi Bridge open?")
            >>> print(response)
            The Akashi Bridge opened in 1998.[^1]
            >>> response.source_nodes[0].node.ref_doc_id
            'akashi.md'
        """
        return self.as_query_engine(similarity_top_k, filters).query(_question_of(query, query_str))

    async def arun(
        self,
        query: QueryType | None = None,
        similarity_top_k: int | None = None,
        filters: MetadataFilters | None = None,
        *,
        query_str: str | None = None,
    ) -> RESPONSE_TYPE:
        """Answer a question asynchronously; see `run`.

        Example:
            >>> import asyncio
            >>> print(asyncio.run(pack.arun("When did the Akashi Bridge open?")))
            The Akashi Bridge opened in 1998.[^1]
        """
        return await self.as_query_engine(similarity_top_k, filters).aquery(
            _question_of(query, query_str)
        )

    def retrieve(
        self,
        query: QueryType,
        similarity_top_k: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Find nodes for a question.

        Args:
            query: The question.
            similarity_top_k: How many nodes to return; None means the pack's default.
            filters: Restrict the search to documents whose metadata match; None means all documents.

        Returns:
            Passages, or the sections that they were merged into, best first. Each has the units that matched
            the question under the metadata key `densex_matched`.

        Example:
            >>> result = pack.retrieve("How far below the sea?", similarity_top_k=1)[0]
            >>> result.text
            'The Seikan Tunnel links Honshu and Hokkaido. It lies 240 metres below the sea.'
            >>> result.metadata["densex_matched"][0]["text"]
            'It lies 240 metres below the sea.'
        """
        return self.as_retriever(similarity_top_k, filters).retrieve(_question_of(query))

    async def aretrieve(
        self,
        query: QueryType,
        similarity_top_k: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Find nodes for a question asynchronously; see `retrieve`.

        Example:
            >>> import asyncio
            >>> asyncio.run(pack.aretrieve("How far below the sea?"))[0].node.ref_doc_id
            'seikan.md'
        """
        return await self.as_retriever(similarity_top_k, filters).aretrieve(_question_of(query))

    def as_retriever(
        self, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> BaseRetriever:
        """Make a retriever with its own number of nodes and filters.

        Args:
            similarity_top_k: How many nodes it returns; None means the pack's default.
            filters: Restrict the search to documents whose metadata match; None means all documents.

        Example:
            >>> from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
            >>> roads = MetadataFilters(filters=[MetadataFilter(key="topic", value="roads")])
            >>> retriever = pack.as_retriever(filters=roads)
            >>> [result.text for result in retriever.retrieve("When did the tunnel open?")]
            ['The Akashi Bridge opened in 1998.']
        """
        if similarity_top_k is None and filters is None:
            return self.retriever
        return self._make_retriever(similarity_top_k, filters)

    def as_query_engine(
        self, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> PropositionQueryEngine:
        """Make a query engine over the retriever that `as_retriever` makes from the same arguments.

        Example:
            >>> engine = pack.as_query_engine(similarity_top_k=2)
            >>> print(engine.query("When did the Akashi Bridge open?"))
            The Akashi Bridge opened in 1998.[^1]
        """
        if similarity_top_k is None and filters is None:
            return self.query_engine
        retriever = self.as_retriever(similarity_top_k, filters)
        return PropositionQueryEngine(
            retriever, self._synthesizer, callback_manager=wiring.callback_manager()
        )

    def as_chat_engine(
        self,
        similarity_top_k: int | None = None,
        filters: MetadataFilters | None = None,
        *,
        chat_history: Sequence[ChatMessage] = (),
        memory: BaseMemory | None = None,
    ) -> PropositionChatEngine:
        """Start a conversation about the documents; without an LLM, its answers are quotations.

        Args:
            similarity_top_k: How many nodes to retrieve for each question; None means the pack's default.
            filters: Restrict the search to documents whose metadata match; None means all documents.
            chat_history: Earlier messages of the conversation.
            memory: Where the conversation is kept; None means a buffer of its last 3,000 tokens.

        Example:
            >>> chat = pack.as_chat_engine()
            >>> print(chat.chat("When did the Akashi Bridge open?"))
            The Akashi Bridge opened in 1998.[^1]
            >>> len(chat.chat_history)
            2
        """
        return PropositionChatEngine(
            self.as_retriever(similarity_top_k, filters),
            self._synthesizer,
            self._queries,
            memory,
            chat_history,
        )

    def as_tool(
        self, name: str = "search_documents", description: str | None = None
    ) -> QueryEngineTool:
        """Wrap the query engine as a tool for LlamaIndex's agents.

        Args:
            name: The name by which the agent calls it.
            description: Tells the agent when to use the tool; None means a description that names some of the
                documents.

        Example:
            >>> pack.as_tool().metadata.description
            "Answers a question from 2 documents, with its sources: 'akashi.md', 'seikan.md'."
        """
        if description is None:
            description = wiring.describe_tool(self.documents())
        return QueryEngineTool.from_defaults(self.query_engine, name=name, description=description)

    def insert(self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False) -> None:
        """Index documents; a document whose id is already in the index is replaced.

        Documents are read lazily. A document that fails is logged and reported (see `ingestion`); its earlier
        version stays in the index, and the other documents are indexed.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress, in the notebook or on stderr.

        Raises:
            PropositionizerError: No more propositions can be made because of the key, the model, the quota or
                the budget. Documents completed before that are in the index.
            ValueError: An item is not a document, or every document failed.

        Example:
            >>> pack.insert(Document(id_="kurobe.md", text="The Kurobe Dam is 186 metres high."))
            >>> print(pack.run("How high is the Kurobe Dam?"))
            The Kurobe Dam is 186 metres high.[^1]
        """
        self._ingest(documents, show_progress, only_changed=False)

    def refresh(
        self,
        documents: BaseNode | Iterable[BaseNode],
        show_progress: bool = False,
        gone: Sequence[str] = (),
    ) -> list[bool]:
        """Index only the documents that are new or changed; the others cost nothing.

        LlamaIndex generates a new random id whenever it reads a document without one. Such documents are
        recognised by their text, and replace whatever else the index holds of their file; so do documents
        whose id is their file's path. Therefore pass all documents of a file in one call. A node from another
        parser counts as a document of its own.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress.
            gone: The ids of documents to delete once the others are indexed.

        Returns:
            For each document, whether it was new or changed and has been indexed.

        Raises:
            PropositionizerError: As `insert`.
            ValueError: As `insert`.

        Example:
            >>> documents.append(Document(id_="kurobe.md", text="The Kurobe Dam is 186 metres high."))
            >>> pack.refresh(documents)
            [False, False, True]
        """
        if isinstance(gone, str):
            gone = [gone]
        return self._ingest(documents, show_progress, only_changed=True, gone=gone)

    async def ainsert(
        self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False
    ) -> None:
        """Index documents without blocking the event loop; see `insert`.

        Example:
            >>> import asyncio
            >>> dam = Document(id_="kurobe.md", text="The Kurobe Dam is 186 metres high.")
            >>> asyncio.run(pack.ainsert(dam))
            >>> pack.counts().documents
            3
        """
        await asyncio.to_thread(self.insert, documents, show_progress)

    async def arefresh(
        self,
        documents: BaseNode | Iterable[BaseNode],
        show_progress: bool = False,
        gone: Sequence[str] = (),
    ) -> list[bool]:
        """Index new and changed documents without blocking the event loop; see `refresh`.

        Example:
            >>> import asyncio
            >>> asyncio.run(pack.arefresh(documents))
            [False, False]
        """
        return await asyncio.to_thread(self.refresh, documents, show_progress, gone)

    async def adelete(
        self, documents: str | BaseNode | Sequence[str | BaseNode], purge: bool = False
    ) -> int:
        """Delete documents without blocking the event loop; see `delete`.

        Example:
            >>> import asyncio
            >>> asyncio.run(pack.adelete("akashi.md"))
            1
        """
        return await asyncio.to_thread(self.delete, documents, purge)

    def delete(
        self, documents: str | BaseNode | Sequence[str | BaseNode], purge: bool = False
    ) -> int:
        """Delete documents.

        Args:
            documents: The documents or their ids; also nodes from another parser that were indexed as
                documents.
            purge: Whether to erase their text from the reply cache, from recordings and from the files of
                the embedded store as well. If you pass the document itself, cached replies and recordings for
                it are erased even if it is not in the index. Those for its earlier versions are not found:
                give the cache a `max_age`.

        Returns:
            How many of them were in the index.

        Raises:
            TypeError: An item is neither an id nor a document.
            IndexInUseError: Another pack or process is writing to the index folder.

        Example:
            >>> pack.delete("akashi.md")
            1
            >>> list(pack.documents())
            ['seikan.md']
        """
        if isinstance(documents, (str, BaseNode)) or not isinstance(documents, Iterable):
            documents = [documents]
        targets: list[Any] = list(documents)
        for target in targets:
            if not isinstance(target, (str, BaseNode)):
                raise TypeError(
                    f"give the documents to delete, or their ids: a {type(target).__name__} is neither"
                )
        return self._index.delete_documents(targets, purge)

    def compact(self) -> None:
        """Free the space of deleted and replaced nodes, and erase them from the files of the index.

        The embedded store, the words kept beside other stores, and a FAISS index are rewritten. A store on a
        server does this in its own way. Other processes that have the index open switch to the new files.

        Raises:
            IndexInUseError: Another pack or process is writing to the index folder.

        Example:
            >>> pack.delete("akashi.md")
            1
            >>> pack.compact()
            >>> pack.counts().documents
            1
        """
        self._index.compact()

    @property
    def missing_links(self) -> int:
        """How often a search found a unit whose passage is not in the index; each time costs one hit, not the
        whole query.

        Example:
            >>> pack.missing_links
            0
        """
        return self._index.missing_links

    @property
    def ingestion(self) -> IngestionSummary | None:
        """Summary of the last ingestion: documents by state, passages, fallbacks, requests, tokens and cost.

        With a `persist_dir`, `ingestion_report.json` in it has the same for every document. None after
        `load`.

        Example:
            >>> print(pack.ingestion)
            Documents     2 done
            Passages      2: 2 ok
            Propositions  3
            Time          ...
        """
        return self._index.ingestion

    @property
    def failed_documents(self) -> Sequence[DocumentOutcome]:
        """The documents that failed in the last ingestion, at most the first 20.

        Example:
            >>> len(pack.failed_documents)
            0
        """
        return self._index.failed

    def documents(self) -> dict[str, DocumentRecord]:
        """Return the indexed documents by id, each with a hash of its content and the file it came from.

        Example:
            >>> sorted(pack.documents())
            ['akashi.md', 'seikan.md']
        """
        return self._index.documents()

    def metadata_values(self) -> dict[str, list[Any]]:
        """Return what `filters` can match: the documents' metadata keys, each with its distinct values.

        Example:
            >>> pack.metadata_values()
            {'topic': ['railways', 'roads']}
        """
        return self._index.metadata_values()

    def counts(self) -> IndexCounts:
        """Count documents, passages, propositions and their statuses.

        Example:
            >>> print(pack.counts())
            2 documents, 2 passages, 3 propositions
        """
        return self._index.counts()

    def nodes(self, granularity: str | None = None) -> list[BaseNode]:
        """Return all nodes of the index, or those of one granularity, in the order of their documents.

        Args:
            granularity: "section", "passage", "proposition", "sentence" or "question"; None means all.

        Example:
            >>> for node in pack.nodes("proposition"):
            ...     print(node.text)
            The Akashi Bridge opened in 1998.
            The Seikan Tunnel links Honshu and Hokkaido.
            It lies 240 metres below the sea.
        """
        return self._index.nodes(granularity)

    def get_nodes(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Read whole nodes by their ids, in one batch.

        Args:
            node_ids: The ids of nodes of any granularity.

        Returns:
            The nodes by id; ids that are not in the index are left out.

        Example:
            >>> proposition = pack.nodes("proposition")[0]
            >>> pack.get_nodes([proposition.index_id])[proposition.index_id].text
            'The Akashi Bridge opened in 1998.'
        """
        return self._index.fetch(node_ids)

    def records(
        self, granularity: str | None = None, document_ids: Sequence[str] | None = None
    ) -> Iterator[NodeRecord]:
        """Iterate over short records of the nodes in no particular order; use this for a large index.

        Args:
            granularity: As for `nodes`.
            document_ids: The documents whose nodes to return; None means all.

        Example:
            >>> sorted(record.text for record in pack.records("proposition", ["seikan.md"]))
            ['It lies 240 metres below the sea.', 'The Seikan Tunnel links Honshu and Hokkaido.']
        """
        return self._index.records(granularity, document_ids)

    def persist(self, persist_dir: str | Path | None = None) -> None:
        """Write the index to a folder; an interrupted write leaves the previous contents in place.

        Args:
            persist_dir: The folder; None means the pack's own, where changes are written as they happen.

        Raises:
            ValueError: No folder is given, and the pack has none.
            InvalidIndexError: The folder is a file, or holds something other than an index.

        Example:
            >>> pack.persist("my-index")
            >>> DenseXRetrievalPack.load("my-index").counts().documents
            2
        """
        self._index.persist(persist_dir)

    def _ingest(
        self,
        documents: BaseNode | Iterable[BaseNode],
        show_progress: bool,
        only_changed: bool,
        gone: Sequence[str] = (),
    ) -> list[bool]:
        if isinstance(documents, BaseNode):
            documents = [documents]
        nodes: Iterable[BaseNode] = checked_documents(documents)
        if isinstance(documents, Sequence):
            nodes = list(nodes)  # reject what is not a document before indexing any
        total = None
        if isinstance(documents, Sized):
            total = len(documents)
        return self._index.ingest(nodes, only_changed, gone, display_for(show_progress), total)


_PARTS = ("embed_model", "text_splitter", "propositionizer", "docstore", "reranker", "node_parser")


def _checked(arguments: Mapping[str, Any]) -> UserArguments:
    """Return the user's arguments after checking their names and the types of the parts.

    Raises:
        TypeError: An argument has an unknown name.
        ValueError: A part has the wrong type.
    """
    types = get_type_hints(UserArguments)
    unknown = sorted(arguments.keys() - types.keys())
    if unknown:
        raise TypeError(f"DenseXRetrievalPack got an unexpected keyword argument {unknown[0]!r}")
    for name in _PARTS:
        part = arguments.get(name)
        kinds = get_args(types[name])
        if not isinstance(part, kinds):
            names = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            raise ValueError(f"{name} must be a {names}, not {shown(part)}")
    return cast(UserArguments, arguments)


def _question_of(query: QueryType | None, query_str: str | None = None) -> QueryType:
    questions = [question for question in (query, query_str) if question is not None]
    if len(questions) != 1 or not isinstance(questions[0], (str, QueryBundle)):
        raise TypeError(
            "pass one question, a string or a QueryBundle: run(query), or run(query_str=...)"
        )
    return questions[0]
