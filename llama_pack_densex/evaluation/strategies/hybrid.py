"""LlamaIndex's BM25 retriever, and its fusion with a vector index."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, MetadataMode

from llama_pack_densex.evaluation.corpus import Corpus, StrategyUnavailable
from llama_pack_densex.evaluation.strategies.passages import passage_nodes
from llama_pack_densex.evaluation.strategies.vector import SMALL_CHUNK, small_chunks, vector_index
from llama_pack_densex.evaluation.strategy import Built, Strategy


def bm25_retriever(nodes: Sequence[BaseNode], depth: int) -> BaseRetriever:
    """LlamaIndex's BM25Retriever as it comes.

    Raises:
        StrategyUnavailable: Its package is not installed.
    """
    try:
        module: Any = import_module("llama_index.retrievers.bm25")
    except ModuleNotFoundError as error:
        if error.name not in ("llama_index.retrievers", "llama_index.retrievers.bm25"):
            raise
        raise StrategyUnavailable(
            "it needs the package llama-index-retrievers-bm25: install it with: "
            'pip install "llama-pack-densex[evaluation]"'
        ) from error
    retriever: BaseRetriever = module.BM25Retriever.from_defaults(
        nodes=list(nodes), similarity_top_k=min(depth, len(nodes))
    )
    return retriever


def fused(nodes: Sequence[BaseNode], corpus: Corpus) -> BaseRetriever:
    """A vector index and BM25 over the same nodes, fused by reciprocal rank (core's QueryFusionRetriever)."""
    dense = vector_index(nodes, corpus).as_retriever(similarity_top_k=corpus.depth)
    return QueryFusionRetriever(
        [dense, bm25_retriever(nodes, corpus.depth)],
        llm=MockLLM(),  # it asks for one even where it makes no further queries
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=corpus.depth,
        num_queries=1,
        use_async=False,
        callback_manager=CallbackManager(),
    )


def _bm25(corpus: Corpus) -> Built:
    nodes = passage_nodes(corpus)
    texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
    return Built(bm25_retriever(nodes, corpus.depth), units=texts)


def _hybrid(corpus: Corpus, chunked: bool) -> BaseRetriever:
    return fused(small_chunks(corpus) if chunked else passage_nodes(corpus), corpus)


STRATEGIES = (
    Strategy(
        "bm25",
        _bm25,
        "LlamaIndex's BM25Retriever (llama-index-retrievers-bm25) as it comes, over the dataset's passages.",
        DEFAULT_SIMILARITY_TOP_K,
    ),
    Strategy(
        "hybrid",
        partial(_hybrid, chunked=False),
        "VectorStoreIndex and BM25Retriever over the dataset's passages, fused by reciprocal rank "
        "(QueryFusionRetriever).",
        DEFAULT_SIMILARITY_TOP_K,
    ),
    Strategy(
        "hybrid-256",
        partial(_hybrid, chunked=True),
        f"The same over whole articles in chunks of {SMALL_CHUNK} tokens.",
        DEFAULT_SIMILARITY_TOP_K,
    ),
)
