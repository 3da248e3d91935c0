"""Searching the units: by embeddings, or by words."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult

from llama_pack_densex._sync import run_without_waiting
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.retrieval.bm25 import LexicalHit, LexicalIndexCache
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, UnitHit, collapse
from llama_pack_densex.stores.index import NodeIndex

logger = logging.getLogger(__name__)


class UnitRetriever(BaseRetriever):
    """Finds units, and the passages they lead to.

    As a LlamaIndex retriever it returns the units (`IndexNode`s), passage by passage. Our recursive and auto-merging
    retrievers use `search`, which also says whether there is more to find.

    Args:
        index: The nodes.
        granularity: The units that are searched.
        fetch_k: Units in a search as a plain retriever.
    """

    def __init__(
        self,
        index: NodeIndex,
        granularity: Sequence[str] = ("proposition",),
        fetch_k: int = 20,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._index = index
        self._searched = tuple(granularity)
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
        return _units_of(self.search(query_bundle, self._fetch_k))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _units_of(await self.asearch(query_bundle, self._fetch_k))


class DenseUnitRetriever(UnitRetriever):
    """Finds the units whose embeddings are nearest to the question's.

    The store holds other nodes beside the searched units. They are fetched too and dropped: filters by granularity
    slow some stores down fiftyfold.
    """

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        if query.embedding is None:
            query.embedding = self._embed_model.get_agg_embedding_from_queries(query.embedding_strs)

        async def ask(question: VectorStoreQuery) -> VectorStoreQueryResult:
            return self._index.vector_store.query(question)

        async def fetch(node_ids: Sequence[str]) -> dict[str, BaseNode]:
            return self._index.fetch(node_ids)

        return run_without_waiting(self._find(query, k, ask, fetch))

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        if query.embedding is None:
            query.embedding = await self._embed_model.aget_agg_embedding_from_queries(query.embedding_strs)
        return await self._find(query, k, self._index.vector_store.aquery, self._index.afetch)

    @property
    def _embed_model(self) -> BaseEmbedding:
        assert self._index.embed_model is not None, "dense search needs an index with an embedding model"
        return self._index.embed_model

    async def _find(
        self,
        query: QueryBundle,
        k: int,
        ask: Callable[[VectorStoreQuery], Awaitable[VectorStoreQueryResult]],
        fetch: Callable[[Sequence[str]], Awaitable[dict[str, BaseNode]]],
    ) -> SearchResult:
        limit = k + k // 2 + 8  # there is a base node for every few units
        while True:
            question = VectorStoreQuery(
                query_embedding=query.embedding, similarity_top_k=limit, query_str=query.query_str
            )
            result = await ask(question)
            ids = result.ids or [node.node_id for node in result.nodes or []]
            by_id = {n.node_id: n for n in result.nodes} if result.nodes is not None else await fetch(ids)
            scores = result.similarities or [0.0] * len(ids)
            units = [
                UnitHit(by_id[node_id], float(score))
                for node_id, score in zip(ids, scores, strict=True)
                if node_id in by_id and by_id[node_id].metadata.get(GRANULARITY_KEY) in self._searched
            ]
            nothing_left = len(ids) < limit
            if len(units) >= k or nothing_left:
                return SearchResult(collapse(units[:k]), exhausted=nothing_left and len(units) <= k)
            limit *= 2


class LexicalUnitRetriever(UnitRetriever):
    """Finds passages by BM25, and ranks the units of each found passage among themselves.

    Args:
        lexical: The lexical side of the index, kept by whoever changes the index.
        **kwargs: What `UnitRetriever` takes.
    """

    def __init__(self, lexical: LexicalIndexCache, **kwargs: Any) -> None:
        self._lexical = lexical
        super().__init__(**kwargs)

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        hits, found = self._find(query, k)
        return self._result(hits, found, self._index.fetch(_unit_ids(hits)))

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        hits, found = self._find(query, k)
        return self._result(hits, found, await self._index.afetch(_unit_ids(hits)))

    def _find(self, query: QueryBundle, k: int) -> tuple[list[LexicalHit], int]:
        index = self._lexical.get(self._index.records())
        hits, found = index.search(query.query_str, passages=k, units=k, granularity=self._searched)
        if not found:
            logger.info("No word of the question occurs in the indexed passages: nothing found.")
        return hits, found

    def _result(self, hits: list[LexicalHit], found: int, nodes: dict[str, BaseNode]) -> SearchResult:
        passages = tuple(
            PassageHit(
                hit.passage_id,
                hit.score,
                tuple(UnitHit(nodes[unit_id], score) for unit_id, score in hit.units if unit_id in nodes),
            )
            for hit in hits
        )
        return SearchResult(passages, exhausted=len(hits) >= found)


def _unit_ids(hits: Sequence[LexicalHit]) -> list[str]:
    return [unit_id for hit in hits for unit_id, _ in hit.units]


def _units_of(result: SearchResult) -> list[NodeWithScore]:
    return [NodeWithScore(node=unit.node, score=unit.score) for hit in result.passages for unit in hit.units]
