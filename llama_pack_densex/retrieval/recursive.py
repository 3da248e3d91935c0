"""From propositions to the passages they came from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import RecursiveRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.utils import print_text

from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, gather, with_matches, worth_keeping
from llama_pack_densex.retrieval.search import UnitRetriever
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.node_store import NodeRecord

_ROOT = "units"


class PropositionRecursiveRetriever(RecursiveRetriever):
    """Searches units and returns the passages they lead to, each once, with the units that found it.

    Core's `RecursiveRetriever` with what it lacks: the passages are read from the store in one batch (there is no
    `node_dict` to keep), scores stay as they are (core turns 0.0 into 1.0), it waits asynchronously, it goes on until
    there are `similarity_top_k` distinct passages, and a unit whose passage is missing costs that hit, not the query.

    Args:
        units: Searches the units.
        index: Where passages are read.
        similarity_top_k: Passages to return.
        fetch_k: Units in the first round of the search; None means five times `similarity_top_k`, at least 20.
        verbose: Whether to print what is entered, as core does.
    """

    def __init__(
        self,
        units: UnitRetriever,
        index: NodeIndex,
        similarity_top_k: int = 4,
        fetch_k: int | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        self._units, self._index = units, index
        self._similarity_top_k, self._fetch_k = similarity_top_k, fetch_k
        super().__init__(
            root_id=_ROOT, retriever_dict={_ROOT: units}, callback_manager=callback_manager, verbose=verbose
        )

    def _get_object(self, query_id: str) -> Any:
        """What core follows a link to in `retrieve_all`: a node of the store."""
        node = self._index.fetch([query_id]).get(query_id)
        return super()._get_object(query_id) if node is None else node

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await self._units.prepare(query_bundle)
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = self._index.answer(partial(self._find, query_bundle))
        if self._verbose:
            for result in results:
                print_text(f"Retrieved node with id, entering: {result.node.node_id}\n", color="pink")
        return results

    def _find(self, query_bundle: QueryBundle) -> tuple[list[NodeWithScore], set[str]]:
        read: dict[str, BaseNode] = {}
        records: dict[str, NodeRecord] = {}
        missing: set[str] = set()

        def passages(found: SearchResult) -> list[NodeWithScore]:
            hits, top_k = found.passages, self._similarity_top_k
            if len(hits) < top_k and not found.exhausted:
                return []  # a larger round follows; what that finds is read in one batch
            read_all(hits[:top_k])
            lost = {hit.passage_id for hit in hits[:top_k]} - read.keys()
            missing.update(lost)
            if lost:
                read_all(hits[top_k:])
            there = [hit for hit in hits if hit.passage_id in read]
            return [with_matches(read[hit.passage_id], hit.score, hit.units, records) for hit in there]

        def read_all(hits: Sequence[PassageHit]) -> None:
            """Read passages and the units that found them in one batch."""
            new = [hit.passage_id for hit in hits if hit.passage_id not in read]
            units = [unit.id for hit in hits for unit in worth_keeping(hit.units) if unit.id not in records]
            contents = self._index.read(new, units)
            read.update(contents.nodes)
            records.update(contents.records)

        search = partial(self._units.search, query_bundle)
        return gather(search, self._similarity_top_k, self._fetch_k, passages), missing
