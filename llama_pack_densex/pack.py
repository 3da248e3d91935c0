"""The pack: documents in, propositions searched, an answer out."""

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
from llama_pack_densex.index.node_store import DocumentRecord, IndexCounts, NodeRecord
from llama_pack_densex.index.pack_index import Opened, PackIndex, open_store
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

    Documents are split into passages, and passages into propositions. A question finds propositions, and the
    LLM reads these and their passages. Without any model, search is by words and answers are quotations.

    Args:
        documents: The documents to index: any iterable, which is read lazily.
        proposition_llm: The LLM that makes propositions; None means `Settings.llm` if it is set, else OpenAI
            if `OPENAI_API_KEY` is set, else sentences stand in for propositions. "none" means sentences.
        query_llm: The LLM that answers; None means the same defaults, without which answers are quotations.
            "none" means quotations. For both, a name such as "gpt-4o-mini" means that model of OpenAI, and
            "ollama:qwen3:8b" one of another provider (docs/models.md).
        embed_model: The embedding model: an object, "minilm", "none" (search by words), a model folder, a
            retriever such as "contriever" or "ruri" (docs/embeddings.md), or a name such as
            "openai:text-embedding-3-small". None means `Settings.embed_model` if it is set, else
            multilingual-e5-small if it is on this machine, else none.
        text_splitter: The node parser that makes the passages; the default cuts at sentence ends, into at
            most 256 tokens.
        similarity_top_k: How many nodes a query returns by default: distinct passages, or what they merged
            into.
        streaming: Whether answers are streamed.
        mode: "recursive" or "auto_merging".
        propositionizer: What makes propositions, in place of `proposition_llm`.
        vector_store: A LlamaIndex vector store to keep nodes in; the default is an embedded SQLite database.
            If it holds an index, that is opened, and only documents that are new or changed are indexed.
        docstore: Where whole nodes are kept beside a vector store that cannot give them back, such as FAISS;
            None means one in memory, written to `persist_dir`.
        persist_dir: A folder to keep the index in. If it holds one, that is opened, and only documents that
            are new or changed are indexed. Its options become those given here, or the defaults; `load` opens
            it with its own.
        granularity: The units whose embeddings are searched: any of "proposition", "sentence", "passage" and,
            where the propositionizer wrote any, "question".
        hybrid: Whether search by embeddings is fused with search by words (BM25 over passages). "store"
            leaves that to the hybrid mode of `vector_store`. Without an embedding model, search is by words
            in any case.
        dense_weight: The embeddings' share in hybrid search, from 0 to 1. None leaves it to each question:
            the words count as much as embeddings where the best passage holds all of them, half as much where
            it holds half; and alone in a language that the embedding model turned out not to know.
        hops: 2 goes on from the passages that a question finds to those that share a rare name with them,
            where no passage says most of what is asked (docs/retrieval.md).
        languages: Languages that the embedding model knows, whatever was measured: "ja", "en" and others; see
            `languages` below.
        embed_metadata: The metadata keys that are embedded with each text, none by default; "title" and
            "section" can be named for any document. Filters see all metadata.
        llm_metadata: The metadata keys that the LLM reads with each text: by default title, section, file and
            page.
        context: What the LLM reads: "propositions+passages", "propositions", "passages", "window", or a
            `PropositionContextPostprocessor`, which has a budget too.
        reranker: Any LlamaIndex node postprocessor that scores nodes anew, a cross-encoder for one.
        rerank: What it scores: each "passage", or each matched "proposition" (and sentence), of which the
            best one counts.
        rerank_k: How many nodes it scores; None means five times those asked for, at least 20.
        tokenizer: How texts and questions are split for search by words: "bigrams" (words, and pairs of
            characters where words have no spaces between them), or a function from a text to its tokens. None
            means what the index was made with, which is "bigrams" for a new one.
        node_parser: A proposition node parser of your own, in place of `text_splitter`, `propositionizer` and
            `proposition_llm`.
        fetch_k: How many units the first round of a search fetches; the number grows until there are
            `similarity_top_k` results.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is
            returned.
        show_progress: Whether to show the progress while indexing.
        verbose: Whether retrievers print what they do.

    Attributes:
        node_parser: Makes nodes of documents.
        vector_index: A `VectorStoreIndex` over all nodes as they are now; None without an embedding model.
        retriever: Returns passages (or what they merged into) for a question.
        query_engine: Answers a question.

    Raises:
        ValueError: There is nothing to index, or an argument is out of range; the message says which.
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
            self._set_up(options, open_store(persist_dir, arguments), arguments)
            self.refresh(documents, show_progress=show_progress)
            if self._index.nodes.store.is_empty():
                raise ValueError("none of the documents has any text: there is nothing to search")
        except BaseException as error:
            if folder is not None:
                is_paid = (
                    hasattr(self, "node_parser")
                    and self.node_parser.propositionizer.usage.requests > 0
                )
                abandon(folder, keep=was_there or is_paid or getattr(error, "is_silence", False))
            raise

    @classmethod
    def load(cls, persist_dir: str | Path, **arguments: Unpack[UserArguments]) -> Self:
        """Open an index that was persisted; no LLM is asked, and no document is embedded.

        Args:
            persist_dir: The folder.
            **arguments: Those of the constructor; `vector_store` if the nodes are in one of your own. `mode`,
                `similarity_top_k`, `granularity`, `hybrid`, `dense_weight`, `hops`,
                `embed_metadata` and `llm_metadata` are what the index was made with, unless they are given.

        Raises:
            InvalidIndexError: The folder is no index, is damaged, or was made with another embedding model.
            ValueError: An argument is out of range.

        Example:
            >>> pack.persist("my-index")
            >>> DenseXRetrievalPack.load("my-index").counts()
            IndexCounts(documents=2, passages=2, propositions=3, ...)
        """
        checked = _checked(arguments)
        # which says so where there is no index, before anything is made
        return while_it_changes(
            folder_at(persist_dir), lambda: cls._over(open_store(persist_dir, checked), checked)
        )

    @classmethod
    def from_vector_store(
        cls, vector_store: BasePydanticVectorStore, **arguments: Unpack[PackArguments]
    ) -> Self:
        """Open an index from its vector store alone; no LLM is asked, and no document is embedded.

        Passages and sections are read back by id from the store. Search by words needs all texts, which are
        read once, at the first question; with `hybrid=False` they are not read.

        Args:
            vector_store: Where a pack has written its nodes, in this process or another, or any pipeline with
                one of our node parsers.
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
        return cls._over(open_store(None, checked), checked)

    @classmethod
    def _over(cls, opened: Opened, arguments: UserArguments) -> Self:
        if not opened.state and opened.store.is_empty():
            raise InvalidIndexError(
                f"there is nothing of ours in the {opened.store.name}: index documents first, with "
                "DenseXRetrievalPack(documents, vector_store=...), and name the same collection here"
            )
        pack = cls.__new__(cls)
        pack._set_up(PackOptions.for_index(opened.manifest, arguments), opened, arguments)
        return pack

    def _set_up(self, options: PackOptions, opened: Opened, arguments: UserArguments) -> None:
        parser, proposition_source = wiring.make_node_parser(options, arguments)
        if opened.folder is not None:
            propositionizer = parser.propositionizer.keeping_replies(
                opened.folder.path / REPLIES_FILE
            )
            if propositionizer is not parser.propositionizer:
                parser = parser.model_copy(update={"propositionizer": propositionizer})
        query_llm, answering_source = resolve_llm(arguments.get("query_llm"), "query_llm")
        self._index = PackIndex(options, arguments, parser, opened)
        if self._index.is_made_elsewhere:
            proposition_source = "propositions as the index has them"
        self._query_llm, self.node_parser = query_llm, parser
        self._make_retriever = wiring.RetrieverMaker(
            options, self._index.nodes, self._index.trust, arguments.get("reranker")
        )
        self.retriever = self._make_retriever()
        self._synthesizer = wiring.make_synthesizer(options, self._index.trust, query_llm)
        self._queries = ConversationQuery(query_llm)
        self.query_engine = PropositionQueryEngine(
            self.retriever, self._synthesizer, callback_manager=wiring.callback_manager()
        )
        sources = (proposition_source, self._index.embedding_source, answering_source)
        self._choices = wiring.describe_choices(options.hybrid, *sources)
        used = {"embed_model": self._index.nodes.embed_model, "query_llm": query_llm}
        # which nobody left out
        if any(part is None and arguments.get(name) is None for name, part in used.items()):
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
        """LlamaIndex's own `VectorStoreIndex` over all nodes as they are now; None without an embedding
        model.

        Example:
            >>> from llama_index.core import MockEmbedding
            >>> embedded = DenseXRetrievalPack(documents, embed_model=MockEmbedding(8))
            >>> results = embedded.vector_index.as_retriever(similarity_top_k=2).retrieve("tunnels")
            >>> len(results)
            2
        """
        return wiring.make_vector_index(self._index.nodes, self.node_parser)

    @property
    def languages(self) -> dict[str, LanguageTrust]:
        """How well the embedding model knows each language of the documents, as measured on them.

        Example:
            >>> pack.languages["en"].passages
            2
        """
        return dict(self._index.trust)

    def get_modules(self) -> dict[str, Any]:
        """The pack's parts by name.

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
            "embed_model": self._index.nodes.embed_model,
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
            similarity_top_k: How many nodes to retrieve for this question; None means the pack's number.
            filters: Searches only documents whose metadata match; None means all.
            query_str: The question, under the name that LlamaIndex uses for it.

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
        """What `run` does, asynchronously.

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
            similarity_top_k: How many; None means the pack's number.
            filters: Searches only documents whose metadata match; None means all.

        Returns:
            Passages, or what they merged into, best first; each carries the units that found it under the
            metadata key `densex_matched`.

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
        """What `retrieve` does, asynchronously.

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
            similarity_top_k: How many nodes it returns; None means the pack's number.
            filters: Searches only documents whose metadata match; None means all.

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
        """Make a query engine over `as_retriever`, which takes the same arguments.

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
        """Start a conversation over `as_retriever`; without an LLM, its answers are quotations.

        Args:
            similarity_top_k: How many nodes to retrieve for each question; None means the pack's number.
            filters: Searches only documents whose metadata match; None means all.
            chat_history: What was said before.
            memory: Where the conversation is kept; None means its last 3,000 tokens, in memory.

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
        """Make a tool of the query engine, for LlamaIndex's agents.

        Args:
            name: The name by which the agent calls it.
            description: Tells the agent when to use it; None means one that names some of the documents.

        Example:
            >>> pack.as_tool().metadata.description
            "Answers a question from 2 documents, with its sources: 'akashi.md', 'seikan.md'."
        """
        if description is None:
            description = wiring.describe_tool(self.documents())
        return QueryEngineTool.from_defaults(self.query_engine, name=name, description=description)

    def insert(self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False) -> None:
        """Index documents; one whose id is in the index already is replaced.

        Documents are read lazily. A document that fails is logged and reported (see `ingestion`); what the
        index has of it stays, and the others are indexed.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress, in the notebook or on stderr.

        Raises:
            PropositionizerError: No more propositions can be made: the key, the model, the quota or the
                budget is at fault. Documents that were complete by then are in the index.
            ValueError: Something is not a document, or every document failed.

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
        """Index those documents that are new or changed; the others cost nothing.

        Documents whose ids LlamaIndex made up, new ones at each reading, are recognised by their text, and
        replace whatever else the index has of their file; so do documents whose id is their file's path.
        Therefore pass all documents of a file in one call. A node of another parser counts as a document of
        its own.

        Args:
            documents: Any iterable of documents.
            show_progress: Whether to show the progress.
            gone: The ids of documents to delete once the others are indexed.

        Returns:
            For each document, whether it was new or changed, and has been indexed.

        Raises:
            PropositionizerError: As `insert`.
            ValueError: As `insert`.

        Example:
            >>> documents.append(Document(id_="kurobe.md", text="The Kurobe Dam is 186 metres high."))
            >>> pack.refresh(documents)
            [False, False, True]
        """
        return self._ingest(
            documents,
            show_progress,
            only_changed=True,
            gone=[gone] if isinstance(gone, str) else gone,
        )

    async def ainsert(
        self, documents: BaseNode | Iterable[BaseNode], show_progress: bool = False
    ) -> None:
        """What `insert` does, without blocking the event loop.

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
        """What `refresh` does, without blocking the event loop.

        Example:
            >>> import asyncio
            >>> asyncio.run(pack.arefresh(documents))
            [False, False]
        """
        return await asyncio.to_thread(self.refresh, documents, show_progress, gone)

    async def adelete(
        self, documents: str | BaseNode | Sequence[str | BaseNode], purge: bool = False
    ) -> int:
        """What `delete` does, without blocking the event loop.

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
            documents: The documents, or their ids; also nodes of another parser that were indexed as
                documents.
            purge: Whether their text is erased from the reply cache, from recordings and from the files of
                the embedded store as well; another process that has the index open has to load it again.
                Where the document itself is passed, what is kept of it is found even if the index does not
                have it. What is kept of its earlier versions is not found: give the cache a `max_age`.

        Returns:
            How many of them were there.

        Raises:
            TypeError: Something is neither an id nor a document.
            IndexInUseError: Another pack or process is writing to the index folder.

        Example:
            >>> pack.delete("akashi.md")
            1
            >>> list(pack.documents())
            ['seikan.md']
        """
        is_one = isinstance(documents, (str, BaseNode)) or not isinstance(documents, Iterable)
        targets: list[Any] = [documents] if is_one else list(documents)
        if wrong := [target for target in targets if not isinstance(target, (str, BaseNode))]:
            raise TypeError(
                f"give the documents to delete, or their ids: a {type(wrong[0]).__name__} is neither"
            )
        return self._index.delete(targets, purge)

    def compact(self) -> None:
        """Free the space of what was deleted or replaced, and erase it from the files of the index.

        The embedded store, the words kept beside other stores, and a FAISS index are written anew. A store on
        a server does this in its own way. Other processes that have the index open go on with what there is
        now.

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
        """How often a found unit led to a node that is not in the index; each time, one hit was lost and not
        the query.

        Example:
            >>> pack.missing_links
            0
        """
        return self._index.nodes.missing_links

    @property
    def ingestion(self) -> IngestionSummary | None:
        """Documents by state, passages, fallbacks, requests, tokens and money of the last ingestion.

        With a `persist_dir`, its `ingestion_report.json` has these for every document. None after `load`.

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
        """The documents that failed in the last ingestion, the first 20 at most.

        Example:
            >>> len(pack.failed_documents)
            0
        """
        return self._index.failed

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents of the index by id, each with a hash of its content and the file it was read from.

        Example:
            >>> sorted(pack.documents())
            ['akashi.md', 'seikan.md']
        """
        return self._index.nodes.documents()

    def metadata_values(self) -> dict[str, list[Any]]:
        """What `filters` can ask for: the keys of the documents' metadata, each with its distinct values.

        Example:
            >>> pack.metadata_values()
            {'topic': ['railways', 'roads']}
        """
        return self._index.nodes.metadata_values()

    def counts(self) -> IndexCounts:
        """Count documents, passages, propositions and their statuses.

        Example:
            >>> print(pack.counts())
            2 documents, 2 passages, 3 propositions
        """
        return self._index.nodes.counts()

    def nodes(self, granularity: str | None = None) -> list[BaseNode]:
        """All nodes of the index, or those of one granularity, in the order of their documents.

        Args:
            granularity: "section", "passage", "proposition", "sentence" or "question"; None means all.

        Example:
            >>> for node in pack.nodes("proposition"):
            ...     print(node.text)
            The Akashi Bridge opened in 1998.
            The Seikan Tunnel links Honshu and Hokkaido.
            It lies 240 metres below the sea.
        """
        return self._index.all_nodes(granularity)

    def get_nodes(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Read whole nodes by their ids, in one batch.

        Args:
            node_ids: The ids of nodes of any granularity.

        Returns:
            The nodes by id, without those that are not in the index.

        Example:
            >>> proposition = pack.nodes("proposition")[0]
            >>> pack.get_nodes([proposition.index_id])[proposition.index_id].text
            'The Akashi Bridge opened in 1998.'
        """
        return self._index.nodes.fetch(node_ids)

    def records(
        self, granularity: str | None = None, document_ids: Sequence[str] | None = None
    ) -> Iterator[NodeRecord]:
        """Iterate over short records of the nodes, in any order: the way to go through a large index.

        Args:
            granularity: As for `nodes`.
            document_ids: The documents whose nodes they are; None means all.

        Example:
            >>> sorted(record.text for record in pack.records("proposition", ["seikan.md"]))
            ['It lies 240 metres below the sea.', 'The Seikan Tunnel links Honshu and Hokkaido.']
        """
        return self._index.nodes.records(granularity, document_ids)

    def persist(self, persist_dir: str | Path | None = None) -> None:
        """Write the index to a folder; if that is interrupted, what was there before stays.

        Args:
            persist_dir: The folder; None means the pack's own, where changes are written as they happen.

        Raises:
            ValueError: There is no folder.
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
        nodes: Iterable[BaseNode] = checked_documents(documents)
        if isinstance(documents, (BaseNode, Sequence)):
            nodes = list(nodes)  # says what is no document before anything is done
        total = len(documents) if isinstance(documents, Sized) else None
        if isinstance(documents, BaseNode):
            total = 1
        return self._index.ingest(nodes, only_changed, gone, display_for(show_progress), total)


_PARTS = ("embed_model", "text_splitter", "propositionizer", "docstore", "reranker", "node_parser")


def _checked(arguments: Mapping[str, Any]) -> UserArguments:
    """What the user gave, checked.

    Raises:
        TypeError: There is no argument of some name.
        ValueError: A part is something else than it has to be.
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
