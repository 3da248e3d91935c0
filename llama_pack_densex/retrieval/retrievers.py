"""From matched units to retrieved nodes: their passages, or the nodes that contain enough of them;
reranking."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import AutoMergingRetriever, RecursiveRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.storage import StorageContext
from llama_index.core.utils import print_text

from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import FoundNode, NodeLinks
from llama_pack_densex.node_parsers.metadata import MATCHED_KEY
from llama_pack_densex.retrieval.context import is_unit
from llama_pack_densex.retrieval.hits import (
    MIN_FETCH,
    PassageHit,
    RetrievedNode,
    best_first,
    carrying,
    ids_of,
    matched_units,
    with_matches,
)
from llama_pack_densex.retrieval.search import UnitSearch
from llama_pack_densex.text.terminal import one_line

_ROOT = "units"


class _UnitRetriever(BaseRetriever):
    """Base of both retrievers: awaits embeddings, and answers a question from one state of the index."""

    _units: UnitSearch
    _index: NodeIndex

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = replace(query_bundle)
        await self._units.aembed(query)
        return await asyncio.to_thread(self._retrieve, query)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # a copy, since the caller may pass the same question on to a retriever with another embedding model
        query = replace(query_bundle)
        # embedded before any nodes are read, so that a slow model does not hold that up
        self._units.embed(query)
        return self._index.answer(partial(self._find, query))

    @abstractmethod
    def _find(self, query: QueryBundle) -> tuple[list[NodeWithScore], set[str]]:
        """Return the nodes to return, and the ids of missing nodes that units lead to."""


class PropositionRecursiveRetriever(_UnitRetriever, RecursiveRetriever):
    """Retriever of the passages that matched units lead to, each once, with the units that found it.

    It adds to core's `RecursiveRetriever` what that lacks: the passages are read from the store in one batch
    (there is no `node_dict` to keep), scores stay unchanged (core turns 0.0 into 1.0), it is truly
    asynchronous, it continues until there are `similarity_top_k` distinct passages, and a unit whose
    passage is missing costs only that hit, not the query.

    Args:
        units: The search of the units.
        index: The index from which passages are read.
        similarity_top_k: Number of passages to return.
        fetch_k: Number of units in the first round; None means five times `similarity_top_k`, at least 20.
        **core: Arguments of core's class: `verbose`, to print the passages that are entered, and
            `callback_manager`.
    """

    def __init__(
        self,
        units: UnitSearch,
        index: NodeIndex,
        similarity_top_k: int = 4,
        fetch_k: int | None = None,
        **core: Any,
    ) -> None:
        self._units = units
        self._index = index
        self._similarity_top_k = similarity_top_k
        self._fetch_k = fetch_k or max(MIN_FETCH, 5 * similarity_top_k)
        super().__init__(root_id=_ROOT, retriever_dict={_ROOT: self}, **core)

    def _find(self, query: QueryBundle) -> tuple[list[NodeWithScore], set[str]]:
        top_k = self._similarity_top_k
        passages = []
        missing: set[str] = set()
        for result in self._units.rounds(query, self._fetch_k):
            hits = result.passages
            if len(hits) < top_k and not result.exhausted:
                continue  # passages are read only once there are enough, in one batch
            passages = self._read(hits[:top_k])
            best_ids = {hit.passage_id for hit in hits[:top_k]}
            lost = best_ids.difference(passage.node_id for passage in passages)
            if lost:
                missing |= lost
                passages = self._read(hits)
            if len(passages) >= top_k:
                break
        passages = passages[:top_k]
        if self._verbose:
            _print_entered(passages)
        return passages, missing

    def _read(self, hits: Sequence[PassageHit]) -> list[NodeWithScore]:
        """Read the passages of the hits, with the units that found them; missing ones are left out."""
        unit_ids = ids_of(unit for hit in hits for unit in hit.units)
        nodes, records = self._index.read([hit.passage_id for hit in hits], unit_ids)
        return [
            with_matches(nodes[hit.passage_id], hit.score, hit.units, records)
            for hit in hits
            if hit.passage_id in nodes
        ]


def _print_entered(passages: Sequence[NodeWithScore]) -> None:
    """Print what core's RecursiveRetriever prints."""
    for passage in passages:
        node_id = one_line(passage.node_id)
        print_text(f"Retrieved node with id, entering: {node_id}\n", color="pink")


DEFAULT_RATIO_THRESH = 0.4
"""Default share of found children at which they merge into their parent.

Of thresholds from 0 to 0.5 with 10 to 160 counted units, 0.4 with ten units per node finds the most answers
for the number of words to read. Core's 0.5 seldom merges ten propositions into a passage, and at 0.3 and
below, hits merge into long sections."""

# A statement represents its passage only with this share of the best unit's score, which may be a question's.
_STATING_SHARE = 0.3
_UNITS_A_NODE = 10
_MIN_UNITS = 40


class PropositionAutoMergingRetriever(_UnitRetriever, AutoMergingRetriever):
    """Retriever that returns, for each passage found, its best unit, the passage, or the section around it.

    It adds to core's `AutoMergingRetriever` what that lacks: each level of parents is read in one batch, no
    node is returned together with its ancestor, merged nodes keep the best score below them, it is truly
    asynchronous, and each returned node carries the units that found it. `similarity_top_k` counts returned
    nodes.

    Args:
        units: The search of the units.
        index: The index from which passages and sections are read.
        similarity_top_k: Number of nodes to return.
        simple_ratio_thresh: A parent replaces its children if more than this share of them was found.
        fetch_k: Number of units in the first round of the search, and of the best units that count as found
            in that share: weak hits, of which hybrid search has many, merge nothing. None means ten times
            `similarity_top_k`, at least 40.
        **core: Arguments of core's class: `verbose`, to print merges, and `callback_manager`.
    """

    def __init__(
        self,
        units: UnitSearch,
        index: NodeIndex,
        similarity_top_k: int = 4,
        simple_ratio_thresh: float = DEFAULT_RATIO_THRESH,
        fetch_k: int | None = None,
        **core: Any,
    ) -> None:
        self._units = units
        self._index = index
        self._similarity_top_k = similarity_top_k
        self._fetch_k = fetch_k or max(_MIN_UNITS, _UNITS_A_NODE * similarity_top_k)
        store = index.store
        super().__init__(
            vector_retriever=units,  # type: ignore[arg-type]  # core calls nothing but `retrieve`
            storage_context=StorageContext.from_defaults(
                docstore=store.docstore, vector_store=store.vector_store
            ),
            simple_ratio_thresh=simple_ratio_thresh,
            **core,
        )

    def _find(self, query: QueryBundle) -> tuple[list[NodeWithScore], set[str]]:
        merger = _Merger(self._index, self._simple_ratio_thresh)
        results = []
        for hits_so_far in self._units.rounds(query, self._fetch_k):
            results = self._arrange(hits_so_far.passages, merger)
            if len(results) >= self._similarity_top_k:
                break
        results = results[: self._similarity_top_k]
        unit_ids = ids_of(unit for result in results for unit in result.units)
        nodes, records = self._index.read([result.node_id for result in results], unit_ids)
        retrieved = []
        for result in results:
            if result.node_id not in nodes:
                merger.missing.add(result.node_id)
                continue
            if self._verbose and result.whole:
                _print_merged(result)
            node = nodes[result.node_id]
            retrieved.append(with_matches(node, result.score, result.units, records))
        return retrieved, merger.missing

    def _arrange(self, hits: Sequence[PassageHit], merger: _Merger) -> list[Merged]:
        units = (unit for hit in hits for unit in hit.units if unit.granularity != "question")
        counted = {unit.id for unit in best_first(units)[: self._fetch_k]}
        most = self._fetch_k
        # Weak passages merge nothing either, unless too few results are left without them.
        while True:
            results = merger.merge(hits[:most], counted)
            if len(results) >= self._similarity_top_k or most >= len(hits):
                return results
            most *= 2


def _print_merged(result: Merged) -> None:
    """Print what core's AutoMergingRetriever prints."""
    if result.units:
        print(f"> Merging {len(result.units)} nodes into parent node.")
        print(f"> Parent node id: {one_line(result.node_id)}.")


@dataclass
class _Merger:
    """Merger of hits into the nodes that contain enough of them; it caches the links that it reads.

    Args:
        index: The index from which links are read.
        ratio_thresh: A parent replaces its children if more than this share of them was found.
        links: The parents and children of the passages and sections seen so far, by id.
        missing: The ids of passages that are missing in the store.
    """

    index: NodeIndex
    ratio_thresh: float
    links: dict[str, NodeLinks] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def merge(self, hits: Sequence[PassageHit], counted: Container[str]) -> list[Merged]:
        """Return units, passages or sections for the hits, best first; units in `counted` count as found."""
        self._read_links(hit.passage_id for hit in hits)
        self.missing |= {hit.passage_id for hit in hits} - self.links.keys()
        results = [
            merge_units(hit, self.links[hit.passage_id], counted, self.ratio_thresh)
            for hit in hits
            if hit.passage_id in self.links
        ]
        while True:
            self._read_links(result.parent_id for result in results if result.whole)
            merged = merge_level(results, self.links, self.ratio_thresh)
            if merged == results:
                return results
            results = merged

    def _read_links(self, node_ids: Iterable[str | None]) -> None:
        unread = {*filter(None, node_ids)} - self.links.keys() - self.missing
        self.links |= self.index.links(sorted(unread))


@dataclass(frozen=True)
class Merged:
    """A node to return.

    Args:
        node_id: The id of a passage or section, or of the best unit of a passage whose units did not merge.
        parent_id: The id of its parent, for a unit the parent of its passage; None at the top.
        score: The best score of the hits that it stands for.
        units: The units that found it, best first.
        whole: Whether it is a passage or section, and not a unit.
    """

    node_id: str
    parent_id: str | None
    score: float
    units: tuple[FoundNode, ...]
    whole: bool


def merge_units(
    hit: PassageHit, links: NodeLinks, counted: Container[str], ratio_thresh: float
) -> Merged:
    """Return a passage if enough of its propositions were found, else its best unit.

    The ratio counts only propositions: sentence units are not among a passage's children. A proposition
    between two found ones counts as found, since core's retriever fills such gaps too. A passage is also
    returned whole if no unit that states something was found, if all such units score far below a question
    that found it, or if a second hop led to it.

    Args:
        hit: The passage with the units that were found.
        links: The links to its parent and children.
        counted: The ids of the units that count as found.
        ratio_thresh: The share of propositions above which the passage is returned.
    """
    passage = Merged(hit.passage_id, links.parent_id, hit.score, hit.units, whole=True)
    statement = hit.best_statement
    if not statement or any(unit.led_by for unit in hit.units):
        return passage
    best_score = hit.units[0].score
    if statement.score < min(best_score, _STATING_SHARE * best_score):
        return passage
    if links.child_ids and _ratio(links.child_ids, counted) > ratio_thresh:
        return passage
    return replace(passage, node_id=statement.id, whole=False)


def merge_level(
    results: Sequence[Merged], parents: dict[str, NodeLinks], ratio_thresh: float
) -> list[Merged]:
    """Merge base nodes one level up, into each parent with enough of its children among the results.

    A merged parent replaces everything below it, including units of passages that did not merge, so that no
    node is returned together with its ancestor.

    Args:
        results: The results so far.
        parents: The links of the parents, by id.
        ratio_thresh: The share of children above which a parent replaces them.

    Returns:
        The new results, best first.
    """
    siblings = defaultdict(list)
    for result in results:
        if result.parent_id in parents:
            siblings[result.parent_id].append(result)
    merged = {}
    for parent_id, children in siblings.items():
        links = parents[parent_id]
        whole = {child.node_id for child in children if child.whole}
        if whole and _ratio(links.child_ids, whole) > ratio_thresh:
            merged[parent_id] = _merged(parent_id, links.parent_id, children)
    unmerged = [result for result in results if result.parent_id not in merged]
    return best_first([*unmerged, *merged.values()])


def _merged(node_id: str, parent_id: str | None, group: Sequence[Merged]) -> Merged:
    units = best_first(unit for result in group for unit in result.units)
    score = max(result.score for result in group)
    return Merged(node_id, parent_id, score, tuple(units), whole=True)


def _ratio(children: Sequence[str], found: Container[str]) -> float:
    """Return the share of a node's children that was found, gaps of one included; 1 without children."""
    if not children:
        return 1.0
    is_found = [child in found for child in children]
    neighbours = zip(is_found, is_found[1:], is_found[2:], strict=False)
    gaps = sum(left and right and not middle for left, middle, right in neighbours)
    return (sum(is_found) + gaps) / len(children)


MIN_CANDIDATES = 20
"""Minimum number of nodes to rerank, unless the user gives a number."""


class RerankingRetriever(BaseRetriever):
    """Retriever that fetches more nodes than it returns, and has a reranker score them.

    The reranker scores distinct passages, so that no passage fills several places. With `by_units`, a passage
    scores as its best unit (as in Dense X Retrieval, section 4.3), its matched units carry the new scores,
    and a unit that auto-merging returned is replaced by the unit of its passage that is now the best.

    Args:
        retriever: One of our retrievers, which finds the candidates.
        index: The index from which such replacement units are read.
        reranker: Any LlamaIndex node postprocessor. Its `top_n`, if it has one, is set to the number of
            candidates, since `similarity_top_k` makes the cut. Nodes that it drops are not returned.
        similarity_top_k: Number of nodes to return.
        by_units: Whether to score the matched propositions and sentences in place of the passages.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        index: NodeIndex,
        reranker: BaseNodePostprocessor,
        similarity_top_k: int = 4,
        by_units: bool = False,
    ) -> None:
        self._retriever = retriever
        self._index = index
        self._reranker = reranker
        self._similarity_top_k = similarity_top_k
        self._by_units = by_units
        super().__init__(callback_manager=retriever.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = self._retriever.retrieve(query_bundle)
        if not nodes:
            return []
        candidates = self._candidates(nodes)
        reranker = self._reranker_of(candidates)
        return self._best(nodes, reranker.postprocess_nodes(candidates, query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = await self._retriever.aretrieve(query_bundle)
        if not nodes:
            return []
        candidates = self._candidates(nodes)
        reranker = self._reranker_of(candidates)
        scored = await reranker.apostprocess_nodes(candidates, query_bundle)
        return await asyncio.to_thread(self._best, nodes, scored)

    def _candidates(self, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Return copies to score, since postprocessors modify the nodes that they get."""
        if self._by_units:
            return [unit for node in nodes for unit in _units(node)]
        return [node.model_copy() for node in nodes]

    def _reranker_of(self, candidates: Sequence[NodeWithScore]) -> BaseNodePostprocessor:
        """Return the reranker, set to return all candidates."""
        if "top_n" not in type(self._reranker).model_fields:
            return self._reranker
        return self._reranker.model_copy(update={"top_n": len(candidates)})

    def _best(
        self, nodes: Sequence[NodeWithScore], scored: Sequence[NodeWithScore]
    ) -> list[NodeWithScore]:
        # cross-encoders return numpy numbers, which are not JSON, and sometimes NaN, which cannot be sorted
        best: list[NodeWithScore] = [
            RetrievedNode(node=node.node, score=float(np.nan_to_num(node.score or 0.0)))
            for node in scored
        ]
        if self._by_units:
            scores = {unit.node_id: unit.get_score() for unit in best}
            rescored = [_rescored(node, scores) for node in nodes]
            best = sorted(filter(None, rescored), key=NodeWithScore.get_score, reverse=True)
        return self._with_best_units(best[: self._similarity_top_k])

    def _with_best_units(self, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Return the nodes with each retrieved unit replaced by what is now the best unit of its passage."""
        best_ids = {node.node_id: matched_units(node.node)[0].id for node in nodes if is_unit(node)}
        units = self._index.fetch([best for own, best in best_ids.items() if best != own])
        results = [*nodes]
        for place, node in enumerate(nodes):
            unit = units.get(best_ids.get(node.node_id, ""))
            if unit:
                results[place] = carrying(unit, node.score, matched_units(node.node))
        return results


def _units(node: NodeWithScore) -> list[NodeWithScore]:
    """Return the matched units of a node as nodes, or a copy of the node itself if no unit found it."""
    metadata = {key: value for key, value in node.metadata.items() if key != MATCHED_KEY}
    units = []
    for unit in matched_units(node.node):
        own = {"id_": unit.id, "text": unit.text, "metadata": dict(metadata), "embedding": None}
        units.append(NodeWithScore(node=node.node.model_copy(update=own), score=unit.score))
    return units or [node.model_copy()]


def _rescored(node: NodeWithScore, scores: dict[str, float]) -> NodeWithScore | None:
    """Return a node with its units' new scores; None if the reranker dropped all of them."""
    rescored = (
        replace(unit, score=scores[unit.id])
        for unit in matched_units(node.node)
        if unit.id in scores
    )
    units = best_first(rescored)
    if units:
        return carrying(node.node, units[0].score, units)
    if node.node_id in scores:
        return RetrievedNode(node=node.node, score=scores[node.node_id])
    return None
