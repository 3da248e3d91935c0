"""Auto-merging retrieval: propositions, or what contains enough of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.storage import StorageContext

from llama_pack_densex._sync import run_without_waiting
from llama_pack_densex.retrieval.gather import Access, AsyncAccess, BlockingAccess, gather
from llama_pack_densex.retrieval.hits import SearchResult, with_matches
from llama_pack_densex.retrieval.merging import Merged, best_units, merge_level, merge_units
from llama_pack_densex.retrieval.units import UnitRetriever
from llama_pack_densex.stores.index import NodeIndex

logger = logging.getLogger(__name__)

DEFAULT_RATIO_THRESH = 0.4
"""Of 0 to 0.5 with 10 to 160 counted units, 0.4 with ten units a node finds the most answers for the words it makes a
reader read; core's 0.5 seldom merges ten propositions to a passage, and from 0.3 on, long sections are merged into."""

_UNITS_A_NODE = 10
_MIN_UNITS = 40


class PropositionAutoMergingRetriever(AutoMergingRetriever):
    """Searches units and returns, for each found passage, its best unit, the passage, or the section around it.

    Core's `AutoMergingRetriever` with what it lacks: a level of parents is read in one batch, no node is returned
    together with one above it, merged nodes keep the best score under them, it waits asynchronously, and each returned
    node carries the units that found it. `similarity_top_k` counts returned nodes.

    Args:
        units: Searches the units.
        index: Where passages and sections are read.
        similarity_top_k: Nodes to return.
        simple_ratio_thresh: A parent takes the place of its children where more than this share of them was found.
        fetch_k: Units in the first round of the search, and the number of the best ones that count as found when a
            share is taken: weak hits, of which hybrid search has many, merge nothing. None means ten times
            `similarity_top_k`, at least 40.
        verbose: Whether to print merges, as core does.
    """

    def __init__(
        self,
        units: UnitRetriever,
        index: NodeIndex,
        similarity_top_k: int = 4,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        fetch_k: int | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        self._units, self._index = units, index
        self._similarity_top_k = similarity_top_k
        self._fetch_k = fetch_k or max(_MIN_UNITS, _UNITS_A_NODE * similarity_top_k)
        super().__init__(
            vector_retriever=units,  # type: ignore[arg-type]  # core calls nothing but `retrieve`
            storage_context=StorageContext.from_defaults(docstore=index.docstore, vector_store=index.vector_store),
            simple_ratio_thresh=simple_ratio_thresh,
            verbose=verbose,
            callback_manager=callback_manager,
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run_without_waiting(self._gather(query_bundle, BlockingAccess(self._units, self._index)))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._gather(query_bundle, AsyncAccess(self._units, self._index))

    async def _gather(self, query: QueryBundle, access: Access) -> list[NodeWithScore]:
        async def merge(found: SearchResult) -> list[Merged]:
            return await self._merge(found, access)

        merged = await gather(access, query, self._similarity_top_k, self._fetch_k, merge)
        units = [unit.id for result in merged for unit in result.units]
        records = (await access.read([], units)).records
        return [with_matches(result.node, result.score, result.units, records) for result in merged]

    async def _merge(self, found: SearchResult, access: Access) -> list[Merged]:
        read: dict[str, BaseNode] = {}
        alone = [hit.units[0].id for hit in found.passages if hit.units]
        read.update(await access.fetch([*(hit.passage_id for hit in found.passages), *alone]))
        self._index.note_missing([hit.passage_id for hit in found.passages if hit.passage_id not in read])
        hits = [hit for hit in found.passages if hit.passage_id in read]
        counted = best_units(hits, self._fetch_k)
        results = [merge_units(hit, read, counted, self._simple_ratio_thresh) for hit in hits]
        self._report([result for result in results if result.whole])
        changed = True
        while changed:
            wanted = [result.parent_id for result in results if result.whole and result.parent_id]
            read.update(await access.fetch([node_id for node_id in wanted if node_id not in read]))
            before = {result.node.node_id for result in results}
            results, changed = merge_level(results, read, self._simple_ratio_thresh)
            self._report([result for result in results if result.node.node_id not in before])
        return results

    def _report(self, merged: Sequence[Merged]) -> None:
        for result in merged:
            info = (
                f"> Merging {len(result.units)} nodes into parent node.\n> Parent node id: {result.node.node_id}.\n"
                f"> Parent node text: {result.node.get_content()[:100]}\n"
            )
            logger.debug(info)
            if self._verbose:
                print(info)  # core's AutoMergingRetriever prints the same lines
