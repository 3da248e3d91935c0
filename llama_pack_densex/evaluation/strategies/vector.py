"""LlamaIndex's plain vector index."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode

from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.evaluation.strategy import Strategy

SMALL_CHUNK, SMALL_OVERLAP = 256, 20
"""Tokens. SentenceSplitter's own overlap is 200 whatever the size: of chunks of 256, nearly the whole chunk."""


def vector_index(nodes: Sequence[BaseNode], corpus: Corpus) -> VectorStoreIndex:
    """An index in memory that reads nothing from `Settings`."""
    return VectorStoreIndex(
        nodes,
        embed_model=corpus.embed_model,
        transformations=[SentenceSplitter()],  # not run over nodes, but core would make the global one
        callback_manager=CallbackManager(),
        insert_batch_size=max(len(nodes), 1),
    )


def small_chunks(corpus: Corpus) -> list[BaseNode]:
    """The articles in chunks of 256 tokens."""
    return SentenceSplitter(chunk_size=SMALL_CHUNK, chunk_overlap=SMALL_OVERLAP).get_nodes_from_documents(
        corpus.documents
    )


def _large(corpus: Corpus) -> BaseRetriever:
    nodes = SentenceSplitter().get_nodes_from_documents(corpus.documents)
    return vector_index(nodes, corpus).as_retriever(similarity_top_k=corpus.depth)


def _small(corpus: Corpus) -> BaseRetriever:
    return vector_index(small_chunks(corpus), corpus).as_retriever(similarity_top_k=corpus.depth)


STRATEGIES = (
    Strategy(
        "vector",
        _large,
        "LlamaIndex's VectorStoreIndex over whole articles, cut by SentenceSplitter with its defaults (1,024 tokens).",
        DEFAULT_SIMILARITY_TOP_K,
    ),
    Strategy(
        "vector-256",
        _small,
        f"The same with chunks of {SMALL_CHUNK} tokens and an overlap of {SMALL_OVERLAP}.",
        DEFAULT_SIMILARITY_TOP_K,
    ),
)
