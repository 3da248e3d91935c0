"""Searching in growing rounds until there is enough, the same for synchronous and asynchronous callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from llama_index.core.schema import BaseNode, QueryBundle

from llama_pack_densex.retrieval.hits import SearchResult
from llama_pack_densex.retrieval.units import UnitRetriever
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.node_store import Contents

T = TypeVar("T")

MIN_FETCH = 20
"""Units in the first round of a search, at least."""


class Access(Protocol):
    """How a retriever searches and reads nodes; there is a blocking and an asynchronous one."""

    async def search(self, query: QueryBundle, k: int) -> SearchResult: ...

    async def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]: ...

    async def read(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents: ...


class BlockingAccess:
    """Coroutines that never wait, to be driven by `run_without_waiting`."""

    def __init__(self, units: UnitRetriever, index: NodeIndex) -> None:
        self._units, self._index = units, index

    async def search(self, query: QueryBundle, k: int) -> SearchResult:
        return self._units.search(query, k)

    async def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        return self._index.fetch(node_ids)

    async def read(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        return self._index.read(node_ids, record_ids)


class AsyncAccess:
    """Coroutines that wait for embedding model and store without blocking."""

    def __init__(self, units: UnitRetriever, index: NodeIndex) -> None:
        self._units, self._index = units, index

    async def search(self, query: QueryBundle, k: int) -> SearchResult:
        return await self._units.asearch(query, k)

    async def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        return await self._index.afetch(node_ids)

    async def read(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        return await self._index.aread(node_ids, record_ids)


async def gather(
    access: Access,
    query: QueryBundle,
    top_k: int,
    fetch_k: int | None,
    arrange: Callable[[SearchResult], Awaitable[list[T]]],
) -> list[T]:
    """Search in rounds, each twice as large as the last, until there are `top_k` results or no more to find.

    Args:
        access: How to search.
        query: The question.
        top_k: Results wanted.
        fetch_k: Units in the first round; None means five times `top_k`, at least 20.
        arrange: Makes results, best first, of what a round found.
    """
    if top_k <= 0:
        return []
    k = max(fetch_k or max(MIN_FETCH, 5 * top_k), 1)
    while True:
        found = await access.search(query, k)
        results = await arrange(found)
        if len(results) >= top_k or found.exhausted:
            return results[:top_k]
        k *= 2
