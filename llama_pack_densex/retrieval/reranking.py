"""Reranking what was retrieved, by any LlamaIndex node postprocessor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.node_parsers.metadata import MATCHED_KEY
from llama_pack_densex.retrieval.context import is_unit
from llama_pack_densex.retrieval.hits import carrying, matched_units
from llama_pack_densex.stores.index import NodeIndex

MIN_CANDIDATES = 20
"""Nodes that are reranked, at least, where the user says nothing."""


class RerankingRetriever(BaseRetriever):
    """Retrieves more nodes than are wanted, has them scored anew, and returns the best.

    What is scored are distinct passages, so that no passage takes the place of several. Scored by their propositions,
    each counts as its best one (as in Dense X Retrieval, section 4.3), and its matched units carry the new scores; a
    proposition that auto-merging would return gives way to the one of its passage that now is the best.

    Args:
        retriever: Finds the candidates; one of ours.
        index: Where units are read that take the place of others.
        reranker: Any LlamaIndex node postprocessor. Its `top_n`, where it has one, is set to the number of
            candidates: `similarity_top_k` is what cuts. Nodes that it drops are not returned.
        similarity_top_k: Nodes to return.
        by_units: Whether the matched propositions and sentences are scored in place of the passages.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        index: NodeIndex,
        reranker: BaseNodePostprocessor,
        similarity_top_k: int = 4,
        by_units: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._retriever, self._index, self._reranker = retriever, index, reranker
        self._similarity_top_k, self._by_units = similarity_top_k, by_units
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._retriever.retrieve(query_bundle)
        candidates, reranker = self._candidates(found)
        return self._best(found, reranker.postprocess_nodes(candidates, query_bundle)) if candidates else []

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = await self._retriever.aretrieve(query_bundle)
        candidates, reranker = self._candidates(found)
        if not candidates:
            return []
        scored = await reranker.apostprocess_nodes(candidates, query_bundle)
        return await asyncio.to_thread(self._best, found, scored)

    def _candidates(self, found: Sequence[NodeWithScore]) -> tuple[list[NodeWithScore], BaseNodePostprocessor]:
        """Copies to score, since postprocessors change the nodes that they get; and what has room for all of them."""
        candidates = [NodeWithScore(node=node.node, score=node.score) for node in found]
        if self._by_units:
            candidates = [unit for node in found for unit in _units(node)]
        all_of_them = {"top_n": len(candidates)} if "top_n" in type(self._reranker).model_fields else {}
        return candidates, self._reranker.model_copy(update=all_of_them) if all_of_them else self._reranker

    def _best(self, found: Sequence[NodeWithScore], scored: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        # cross-encoders give numpy's numbers, which are no JSON
        best = [NodeWithScore(node=node.node, score=float(node.score or 0.0)) for node in scored]
        if self._by_units:
            scores = {unit.node.node_id: unit.score or 0.0 for unit in best}
            best = [rescored for node in found if (rescored := _rescored(node, scores)) is not None]
            best.sort(key=lambda node: -(node.score or 0.0))
        return self._with_best_units(best[: self._similarity_top_k])

    def _with_best_units(self, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """The nodes, where a retrieved unit is not the best one of its passage any more, with that in its place."""
        best = {node.node.node_id: matched_units(node.node)[0].id for node in nodes if is_unit(node)}
        units = self._index.fetch([best_id for node_id, best_id in best.items() if best_id != node_id])
        shown = ((node, units.get(best.get(node.node.node_id, ""))) for node in nodes)
        return [node if unit is None else carrying(unit, node.score, matched_units(node.node)) for node, unit in shown]


def _units(node: NodeWithScore) -> list[NodeWithScore]:
    """The matched units of a node as nodes; the node itself, where no unit found it."""
    units = matched_units(node.node)
    if not units:
        return [NodeWithScore(node=node.node, score=node.score)]
    shared = {key: value for key, value in node.node.metadata.items() if key != MATCHED_KEY}
    found = []
    for unit in units:
        own = {"id_": unit.id, "text": unit.text, "metadata": dict(shared), "embedding": None}
        found.append(NodeWithScore(node=node.node.model_copy(update=own), score=unit.score))
    return found


def _rescored(node: NodeWithScore, scores: dict[str, float]) -> NodeWithScore | None:
    """A node with its units' new scores; None where the reranker dropped all of them."""
    units = [replace(unit, score=scores[unit.id]) for unit in matched_units(node.node) if unit.id in scores]
    if not units:
        own = scores.get(node.node.node_id)
        return None if own is None else NodeWithScore(node=node.node, score=own)
    units.sort(key=lambda unit: -unit.score)
    return carrying(node.node, units[0].score, units)
