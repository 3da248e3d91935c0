"""Searching the units: by embeddings, or by words."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult

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
    """Finds the units whose embeddings are nearest to the question's."""

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        model = self._embed_model()
        if query.embedding is None:
            query.embedding = model.get_agg_embedding_from_queries(query.embedding_strs)
        result = self._index.vector_store.query(_store_query(query, k))
        return self._collapse(result, k, {} if result.nodes is not None else self._index.fetch(result.ids or []))

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        model = self._embed_model()
        if query.embedding is None:
            query.embedding = await model.aget_agg_embedding_from_queries(query.embedding_strs)
        result = await self._index.vector_store.aquery(_store_query(query, k))
        return self._collapse(result, k, {} if result.nodes is not None else await self._index.afetch(result.ids or []))

    def _embed_model(self) -> BaseEmbedding:
        assert self._index.embed_model is not None, "dense search needs an index with an embedding model"
        return self._index.embed_model

    def _collapse(self, result: VectorStoreQueryResult, k: int, fetched: dict[str, BaseNode]) -> SearchResult:
        if result.nodes is not None:
            nodes: list[BaseNode | None] = list(result.nodes)
        else:
            nodes = [fetched.get(node_id) for node_id in result.ids or []]
        scores = result.similarities or [0.0] * len(nodes)
        units = [
            UnitHit(node, float(score))
            for node, score in zip(nodes, scores, strict=True)
            if node is not None and node.metadata.get(GRANULARITY_KEY) in self._searched
        ]
        return SearchResult(collapse(units), exhausted=len(nodes) < k)


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


def _store_query(query: QueryBundle, k: int) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=query.embedding, similarity_top_k=k, query_str=query.query_str)


def _unit_ids(hits: Sequence[LexicalHit]) -> list[str]:
    return [unit_id for hit in hits for unit_id, _ in hit.units]


def _units_of(result: SearchResult) -> list[NodeWithScore]:
    return [NodeWithScore(node=unit.node, score=unit.score) for hit in result.passages for unit in hit.units]
