"""Searching the units: by embeddings, or by words."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery, VectorStoreQueryMode

from llama_pack_densex._sync import run_without_waiting
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, collapse
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.node_store import FoundNode

logger = logging.getLogger(__name__)

_NOTHING = SearchResult((), exhausted=True)  # what an empty question finds: there is nothing to embed in it


class UnitRetriever(BaseRetriever):
    """Finds units, and the passages they lead to.

    As a LlamaIndex retriever it returns the units, passage by passage, and a passage itself where that was found
    without any. Our recursive and auto-merging retrievers use `search`, which also says whether there is more to find.

    Args:
        index: The nodes.
        granularity: The units that are searched.
        filters: Only nodes whose metadata pass are searched; None means all.
        fetch_k: Units in a search as a plain retriever.
    """

    def __init__(
        self,
        index: NodeIndex,
        granularity: Sequence[str] = ("proposition",),
        filters: MetadataFilters | None = None,
        fetch_k: int = 20,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._index = index
        self._searched = tuple(granularity)
        self._filters = filters
        self._fetch_k = fetch_k
        super().__init__(callback_manager=callback_manager)

    @abstractmethod
    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once.

        Args:
            query: The question; its embedding is filled in where one is needed and missing.
            k: Units to look for.
        """

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        """What `search` does, asynchronously."""
        return self.search(query, k)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = _found(self.search(query_bundle, self._fetch_k))
        return _with_nodes(found, self._index.fetch([node_id for node_id, _ in found]))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = _found(await self.asearch(query_bundle, self._fetch_k))
        return _with_nodes(found, await self._index.afetch([node_id for node_id, _ in found]))


class DenseUnitRetriever(UnitRetriever):
    """Finds the units whose embeddings are nearest to the question's.

    The store holds other nodes beside the searched units. They are fetched too and dropped: filters by granularity
    slow some stores down fiftyfold.

    Args:
        store_mode: The query mode of the vector store; its own hybrid mode, for one.
        alpha: In that mode, the dense side's share; None means the store's default.
        **kwargs: What `UnitRetriever` takes.
    """

    def __init__(
        self,
        index: NodeIndex,
        granularity: Sequence[str] = ("proposition",),
        *,
        store_mode: VectorStoreQueryMode = VectorStoreQueryMode.DEFAULT,
        alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._store_mode, self._alpha = store_mode, alpha
        super().__init__(index, granularity, **kwargs)

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        if query.embedding is None:
            if not query.embedding_strs:
                return _NOTHING
            query.embedding = self._embed_model.get_agg_embedding_from_queries(_embeddable(query))

        async def ask(question: VectorStoreQuery) -> list[FoundNode]:
            return self._index.search(question)

        return run_without_waiting(self._find(query, k, ask))

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        if query.embedding is None:
            if not query.embedding_strs:
                return _NOTHING
            query.embedding = await self._embed_model.aget_agg_embedding_from_queries(_embeddable(query))
        return await self._find(query, k, self._index.asearch)

    @property
    def _embed_model(self) -> BaseEmbedding:
        assert self._index.embed_model is not None, "dense search needs an index with an embedding model"
        return self._index.embed_model

    async def _find(
        self,
        query: QueryBundle,
        k: int,
        ask: Callable[[VectorStoreQuery], Awaitable[list[FoundNode]]],
    ) -> SearchResult:
        # other nodes are dropped: there is a passage for every few units, and a section for every few passages
        limit = k + 4 + (k // 8 if "passage" in self._searched else k // 2)
        while True:
            found = await ask(self._question(query, limit))
            units = [node for node in found if node.granularity in self._searched]
            nothing_left = len(found) < limit
            if len(units) >= k or nothing_left:
                return SearchResult(collapse(units[:k]), exhausted=nothing_left and len(units) <= k)
            limit *= 2

    def _question(self, query: QueryBundle, limit: int) -> VectorStoreQuery:
        if self._store_mode == VectorStoreQueryMode.DEFAULT:
            return VectorStoreQuery(
                query_embedding=query.embedding,
                similarity_top_k=limit,
                query_str=query.query_str,
                filters=self._filters,
            )
        return VectorStoreQuery(
            query_embedding=query.embedding,
            similarity_top_k=limit,
            sparse_top_k=limit,
            hybrid_top_k=limit,
            query_str=query.query_str,
            mode=self._store_mode,
            alpha=self._alpha,
            filters=self._filters,
        )


class LexicalUnitRetriever(UnitRetriever):
    """Finds passages by BM25, and ranks the units of each found passage among themselves.

    Args:
        lexical: The lexical side of the index, kept by whoever changes the index.
        **kwargs: What `UnitRetriever` takes.
    """

    def __init__(self, lexical: LexicalSide, **kwargs: Any) -> None:
        self._lexical = lexical
        super().__init__(**kwargs)

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        return await asyncio.to_thread(self.search, query, k)  # after a change, the first search makes the index

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        lexical = self._lexical.get(self._index.records)
        hits, found = lexical.search(
            query.query_str, k, self._searched, allowed=self._index.passages_matching(self._filters)
        )
        if not found:
            logger.warning("No word of the question occurs in the indexed passages: nothing is found by words.")
        passages = (
            PassageHit(hit.passage_id, hit.score, tuple(unit for unit in hit.units if unit.id != hit.passage_id))
            for hit in hits
        )
        return SearchResult(tuple(passages), exhausted=len(hits) >= found)


def _embeddable(query: QueryBundle) -> list[str]:
    """What is embedded of a question; few embedding models take half a character (a lone surrogate)."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in query.embedding_strs]


def _found(result: SearchResult) -> list[tuple[str, float]]:
    return [
        found
        for hit in result.passages
        for found in [(unit.id, unit.score) for unit in hit.units] or [(hit.passage_id, hit.score)]
    ]


def _with_nodes(found: Sequence[tuple[str, float]], nodes: dict[str, BaseNode]) -> list[NodeWithScore]:
    return [NodeWithScore(node=nodes[node_id], score=score) for node_id, score in found if node_id in nodes]
