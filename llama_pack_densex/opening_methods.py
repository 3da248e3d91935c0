"""The ways to open an index that is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.node_parser import NodeParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from typing_extensions import Self

from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.opening import Opened, open_store
from llama_pack_densex.options import Hybrid, Mode, PackOptions, RerankedUnit, SearchedGranularity
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.auto_merging import DEFAULT_RATIO_THRESH
from llama_pack_densex.retrieval.context import DEFAULT_MODE, ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.tokens import TokenizerSpec
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest
from llama_pack_densex.wiring import Given


class OpeningMethods:
    """The ways to open an index that is there."""

    if TYPE_CHECKING:  # the pack has it

        def _set_up(self, options: PackOptions, opened: Opened, given: Given) -> None: ...

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
        docstore: BaseDocumentStore | None = None,
        granularity: Sequence[SearchedGranularity] | None = None,
        hybrid: Hybrid | None = None,
        dense_weight: float | None = None,
        context: ContextMode | PropositionContextPostprocessor = DEFAULT_MODE,
        reranker: BaseNodePostprocessor | None = None,
        rerank: RerankedUnit = "passage",
        rerank_k: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        verbose: bool = False,
    ) -> Self:
        """Open an index that was persisted; nothing is asked of an LLM or embedded for its documents.

        Args:
            persist_dir: The folder.
            mode: None means the mode that the index was made for, and likewise for `similarity_top_k`,
                `granularity`, `hybrid` and `dense_weight`. The other arguments are those of the constructor.

        Raises:
            InvalidIndexError: The folder is no index, is damaged, or was made with another embedding model.
            ValueError: An argument is out of range.
        """
        Manifest.read(Path(persist_dir))  # says so where there is no index, before anything is made
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
        opened = open_store(persist_dir, given)
        options = _options(
            opened.manifest,
            mode=mode,
            granularity=granularity,
            similarity_top_k=similarity_top_k,
            hybrid=hybrid,
            dense_weight=dense_weight,
            fetch_k=fetch_k,
            simple_ratio_thresh=simple_ratio_thresh,
            streaming=streaming,
            verbose=verbose,
            context=context,
            rerank=rerank,
            rerank_k=rerank_k,
        )
        pack = cls.__new__(cls)
        pack._set_up(options, opened, given)
        return pack

    @classmethod
    def from_vector_store(
        cls,
        vector_store: BasePydanticVectorStore,
        proposition_llm: LLM | str | None = None,
        query_llm: LLM | str | None = None,
        embed_model: BaseEmbedding | str | None = None,
        text_splitter: NodeParser | None = None,
        similarity_top_k: int | None = None,
        streaming: bool = False,
        *,
        mode: Mode | None = None,
        propositionizer: Propositionizer | None = None,
        docstore: BaseDocumentStore | None = None,
        granularity: Sequence[SearchedGranularity] | None = None,
        hybrid: Hybrid | None = None,
        dense_weight: float | None = None,
        context: ContextMode | PropositionContextPostprocessor = DEFAULT_MODE,
        reranker: BaseNodePostprocessor | None = None,
        rerank: RerankedUnit = "passage",
        rerank_k: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        node_parser: BasePropositionNodeParser | None = None,
        fetch_k: int | None = None,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        verbose: bool = False,
    ) -> Self:
        """Open an index from its vector store alone; nothing is asked of an LLM or embedded for its documents.

        Passages and sections are read back by id from the store. Search by words needs all texts once, which are read
        at the first question; with `hybrid=False` they are not.

        Args:
            vector_store: Where a pack has written its nodes, in this process or another, or any pipeline with one of
                our node parsers.
            mode: None means the mode that the index was made for, and likewise for `similarity_top_k`,
                `granularity`, `hybrid` and `dense_weight`. The other arguments are those of the constructor.
            docstore: Where whole nodes are, for a vector store that cannot give them back.

        Raises:
            InvalidIndexError: There is no node of ours in the store, or the index was made with another embedding
                model.
            ValueError: An argument is out of range.
        """
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
        opened = open_store(None, given)
        if opened.store.is_empty():
            raise InvalidIndexError(
                f"there is nothing of ours in {opened.where}: index documents first, with "
                "DenseXRetrievalPack(documents, vector_store=...), and name the same collection here"
            )
        options = _options(
            opened.manifest,
            mode=mode,
            granularity=granularity,
            similarity_top_k=similarity_top_k,
            hybrid=hybrid,
            dense_weight=dense_weight,
            fetch_k=fetch_k,
            simple_ratio_thresh=simple_ratio_thresh,
            streaming=streaming,
            verbose=verbose,
            context=context,
            rerank=rerank,
            rerank_k=rerank_k,
        )
        pack = cls.__new__(cls)
        pack._set_up(options, opened, given)
        return pack


def _options(manifest: Manifest | None, **chosen: Any) -> PackOptions:
    """What the user chose, and where they chose nothing, what the index was made with."""
    names = ("mode", "granularity", "similarity_top_k", "hybrid", "dense_weight")
    made_with = {} if manifest is None else {name: getattr(manifest, name) for name in names}
    return PackOptions(**{**made_with, **{name: value for name, value in chosen.items() if value is not None}})
