"""Searching the units by embeddings and by words at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import QueryBundle

from llama_pack_densex._sync import run_without_waiting
from llama_pack_densex.retrieval.fusion import HEAD_PASSAGES, fuse
from llama_pack_densex.retrieval.hits import SearchResult
from llama_pack_densex.retrieval.units import DenseUnitRetriever, LexicalUnitRetriever, UnitRetriever
from llama_pack_densex.stores.index import NodeIndex

DENSE_UNITS = 300
"""Units that the dense side is asked for at first: among 100, half the questions of SQuAD have fewer passages than the
scale of relative scores needs, among 300 one in 160, which then costs another search."""

Search = Callable[[QueryBundle, int], Awaitable[SearchResult]]


class HybridUnitRetriever(UnitRetriever):
    """Fuses dense search of the units with BM25 over their passages, by relative score (see `fuse`).

    A question none of whose words occurs is answered by the dense side alone.

    Args:
        dense: Searches by embeddings.
        lexical: Searches by words.
        dense_weight: The dense side's share for a question, from 0 to 1. At 0 only words decide, and the question is
            not even embedded unless they find nothing; at 1 only embeddings.
        index: The nodes.
    """

    def __init__(
        self,
        dense: DenseUnitRetriever,
        lexical: LexicalUnitRetriever,
        dense_weight: Callable[[str], float],
        index: NodeIndex,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._dense, self._lexical, self._dense_weight = dense, lexical, dense_weight
        super().__init__(index, callback_manager=callback_manager)

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        async def dense(query: QueryBundle, k: int) -> SearchResult:
            return self._dense.search(query, k)

        async def lexical(query: QueryBundle, k: int) -> SearchResult:
            return self._lexical.search(query, k)

        return run_without_waiting(self._find(query, k, dense, lexical))

    async def asearch(self, query: QueryBundle, k: int) -> SearchResult:
        return await self._find(query, k, self._dense.asearch, self._lexical.asearch)

    async def _find(self, query: QueryBundle, k: int, dense: Search, lexical: Search) -> SearchResult:
        weight = self._dense_weight(query.query_str)
        if weight >= 1.0:
            return await dense(query, k)
        by_words = await lexical(query, max(k, HEAD_PASSAGES))
        if weight <= 0.0 and by_words.passages:
            return by_words
        units = max(k, DENSE_UNITS)
        by_meaning = await dense(query, units)
        while len(by_meaning.passages) < HEAD_PASSAGES and not by_meaning.exhausted:  # few passages with many units
            units *= 2
            by_meaning = await dense(query, units)
        if not by_words.passages:
            return by_meaning
        return SearchResult(
            fuse(by_meaning.passages, by_words.passages, weight), by_meaning.exhausted and by_words.exhausted
        )
