"""Search of the units: by embeddings, by keywords (BM25), or by both, fused by relative score."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.llm.endpoint import awithin, in_time, longest_request
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, collapse
from llama_pack_densex.retrieval.lexical import NOTHING, KeywordSearch
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in
from llama_pack_densex.text.tokens import strip_surrogates

LEAST_UNITS = 100
"""Minimum number of nodes to fetch if passages are searched too, so that the own similarities of passages
whose units were found are known: with only 20, the right passage came first for 2 in 100 fewer
questions."""

DENSE_UNITS = 128
"""Minimum number of units that the dense side of a hybrid search looks for at first.

If they belong to fewer passages than the scale of relative scores needs, the number is multiplied by four:
with 50,000 units that happens for one question in 50."""

HEAD_PASSAGES = 30
"""Number of best passages of each side whose scores span the scale of relative scores, from 1 to 0.

Numbers from 20 to 50 differ by no more than one question in a hundred. The number is fixed so that a ranking
stays the same when more is fetched."""

HEAD_UNITS = 100
"""The same for units; a passage has several of them."""


@dataclass
class FollowUp(QueryBundle):
    """A question of a conversation.

    Args:
        context: The questions before it. The right passage may have their words, even if the question itself
            has none of them.
    """

    context: str = ""


@dataclass
class UnitSearch:
    """A search for units and their passages by embeddings, keywords (BM25), or both, fused by relative score.

    In hybrid search (see `fuse`), the weight of keywords grows with the share of the question's words that
    their best passage holds, rare words counting more; otherwise a passage with one of ten words would count
    as a perfect hit. A question none of whose words occurs is answered by embeddings alone.

    Args:
        index: The index. Without an embedding model it is searched by keywords alone.
        granularity: The granularities of the units that are searched.
        filters: Only nodes whose metadata pass these are searched; None means all nodes.
        dense_weight: Returns the embeddings' share for a question, from 0 to 1, or None to let the question's
            coverage decide. At 0 keywords alone are used, and the question is embedded only if they find
            nothing; at 1, the default, embeddings alone are used.
        of_store: Fields of `VectorStoreQuery` by which the vector store searches in its own hybrid mode; None
            means that it searches by embedding alone.
    """

    index: NodeIndex
    granularity: Sequence[str] = ("proposition",)
    filters: MetadataFilters | None = None
    dense_weight: Callable[[str], float | None] = lambda question: 1.0
    of_store: Mapping[str, Any] | None = None

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once.

        Args:
            query: The question; its embedding is filled in if one is needed and missing.
            k: The number of units to look for.
        """
        if not self.index.embed_model:
            return self.by_words(query, k)
        weight = self.dense_weight(query.query_str)
        if weight == 1:
            return self.by_embedding(query, k)
        lexical = self.by_words(query, max(k, HEAD_PASSAGES))
        if weight != 0:
            return self._hybrid(query, k, lexical, weight)
        if lexical.passages:
            return lexical
        return self.by_embedding(query, max(k, DENSE_UNITS))

    def _hybrid(
        self, query: QueryBundle, k: int, lexical: SearchResult, weight: float | None
    ) -> SearchResult:
        units = max(k, DENSE_UNITS)
        dense = self.by_embedding(query, units)
        # the units may belong to few passages with many units each
        while len(dense.passages) < HEAD_PASSAGES and not dense.exhausted:
            units *= 4
            dense = self.by_embedding(query, units)
        if not lexical.passages:
            return dense
        if weight is None:
            weight = 1 / (1 + keyword_weight(lexical.coverage))
        fused = fuse(dense.passages, lexical.passages, weight)
        return SearchResult(fused, dense.exhausted and lexical.exhausted)

    def rounds(self, query: QueryBundle, k: int) -> Iterator[SearchResult]:
        """Search for `k` units, then for twice as many each time, until there are no more to find."""
        while True:
            result = self.search(query, k)
            yield result
            if result.exhausted:
                return
            k *= 2

    def by_embedding(self, query: QueryBundle, k: int) -> SearchResult:
        """Find the units whose embeddings are nearest to the question's.

        The store holds other nodes beside the searched units. They are fetched too, and dropped: a filter by
        granularity slows some stores down fiftyfold.
        """
        if query.embedding is None:
            if not query.embedding_strs:
                return NOTHING
            model = self.index.embed_model
            assert model is not None, "dense search needs an index with an embedding model"
            query.embedding = _embedding_of(query, model)
        if not math.isfinite(sum(query.embedding)):
            raise ValueError(
                "the embedding of the question is not finite: look into the embedding model"
            )
        # leaves room for the other nodes, which are dropped: there is one passage for every few units
        limit = k + 4 + k // 4
        if "passage" in self.granularity:
            limit = max(k + 4 + k // 8, LEAST_UNITS)
        return self._enough(query, k, limit)

    def by_words(self, query: QueryBundle, k: int) -> SearchResult:
        """Find passages by BM25, with their ranked units; see `KeywordSearch`."""
        words = self.index.words
        assert words is not None, "an index without words is not searched by words"

        def find() -> SearchResult:
            passing = self.index.store.passing(self.filters)
            database = self.index.searched_by_words()
            keyword_search = KeywordSearch(database, words, self.granularity)
            context = query.context if isinstance(query, FollowUp) else ""
            return keyword_search.find(query.query_str, k, passing, context)

        return self.index.reading(find)

    def embed(self, query: QueryBundle) -> None:
        """Embed a question if it will be searched by embeddings."""
        model = self._model_for(query)
        if model:
            query.embedding = _embedding_of(query, model)

    async def aembed(self, query: QueryBundle) -> None:
        """Do what `embed` does, without blocking the event loop."""
        model = self._model_for(query)
        if model:
            embedding = model.aget_agg_embedding_from_queries(_embeddable(query))
            query.embedding = await awithin(longest_request(model), embedding)

    def _model_for(self, query: QueryBundle) -> BaseEmbedding | None:
        if query.embedding is not None or not query.embedding_strs:
            return None
        if self.dense_weight(query.query_str) == 0:
            return None
        return self.index.embed_model

    def _nearest(self, query: QueryBundle, limit: int) -> list[FoundNode]:
        of_store: dict[str, Any] = {}
        if self.of_store:
            of_store = {**self.of_store, "sparse_top_k": limit, "hybrid_top_k": limit}
        return self.index.search(
            VectorStoreQuery(
                query.embedding, limit, query_str=query.query_str, filters=self.filters, **of_store
            )
        )

    def _enough(self, query: QueryBundle, k: int, limit: int) -> SearchResult:
        """Return the best `k` units among the nearest nodes, fetching more nodes until there are enough."""
        while True:
            nearest = self._nearest(query, limit)
            units = self._units_among(nearest)
            nothing_left = len(nearest) < limit
            if len(units) >= k or nothing_left:
                around = units if "passage" in self.granularity else []
                hits = collapse(units[:k], around)
                return SearchResult(hits, exhausted=nothing_left and len(units) <= k)
            limit *= 2

    def _units_among(self, nodes: Sequence[FoundNode]) -> list[FoundNode]:
        """Return the nodes that are searched, with their similarities."""
        units = [node for node in nodes if node.granularity in self.granularity]
        if self.of_store or not units or units[0].similarity is not None:
            return units
        return [unit._replace(similarity=unit.score) for unit in units]


def dense_weight(
    trust: Mapping[str, LanguageTrust], chosen: float | None, known: Collection[str] = ()
) -> Callable[[str], float | None]:
    """Return a function that gives the dense side's share in hybrid search for a question.

    Args:
        trust: What was measured of the embedding model, by language; read again for each question.
        chosen: The user's choice for all questions. None lets the question's coverage decide, except for
            questions in a language that the model does not know: these are searched by keywords alone. If the
            model knows none of the documents' languages, that also holds for numbers and for questions in
            other languages.
        known: Languages that the model knows according to the user.

    Returns:
        The function; it returns None where the coverage decides.
    """

    def weight(question: str) -> float | None:
        measured = list(trust.items())  # an insert in another thread may add a language
        unsupported = {language for language, support in measured if not support.known} - {*known}
        if chosen is not None or not unsupported:
            return chosen
        support = trust_in(trust, question)
        languages = {support.language} if support else {*trust}
        return 0.0 if languages <= unsupported else None

    return weight


def keyword_weight(coverage: float) -> float:
    """Return how much keywords count in hybrid search, where embeddings count 1.

    The weight grows with the coverage, and faster once most words are covered: 0.1 at a coverage of 0.1, 0.53
    at 0.5, 1.5 at 1. Compared with the coverage itself, up to 2 in 100 more questions about articles, annual
    reports and code find their passage first, and paraphrased ones are as before (benchmarks/RESULTS.md).

    Args:
        coverage: The share of the question's words that the best passage by keywords holds, from 0 to 1.
    """
    return coverage + coverage**4 / 2


def fuse(
    dense: Sequence[PassageHit], lexical: Sequence[PassageHit], dense_weight: float
) -> tuple[PassageHit, ...]:
    """Merge the results of two searches by node id: passages with passages, units with units.

    Scores are first made relative by min-max over the head of each side: 1 for the best, 0 for the last of
    the head and whatever is not in it. Then the weighted scores are added. By keywords, a passage's score
    is the mean of its own and that of its best unit, since words that stand together say more. Questions
    that the passage answers do not count there: with them, the right passage came first for 1 in 100 fewer
    of SQuAD's questions. Core's `QueryFusionRetriever` would merge nodes of equal text.

    Args:
        dense: The results of dense search, best first.
        lexical: The results of keyword search, best first.
        dense_weight: The dense side's share, from 0 to 1.

    Returns:
        Passages, best first, with scores from 0 to 1, and their units with scores of the same kind.
    """
    near = relative_scores({hit.passage_id: hit.score for hit in dense}, HEAD_PASSAGES)
    passages = _fused(near, _places_by_words(lexical), dense_weight)
    near_units = relative_scores(_scores_of_units(dense), HEAD_UNITS)
    units_by_words = relative_scores(_scores_of_units(lexical), HEAD_UNITS, floor=0.0)
    unit_scores = _fused(near_units, units_by_words, dense_weight)
    units = {unit.id: unit for hit in (*lexical, *dense) for unit in hit.units}
    by_passage: defaultdict[str, list[FoundNode]] = defaultdict(list)
    for unit_id, score in unit_scores.items():
        unit = units[unit_id]
        ranked = by_passage[unit.leads_to]
        if score > 0 or not ranked:  # units that are in neither head do not count as matches
            ranked.append(
                FoundNode(unit.id, unit.granularity, unit.passage_id, score, unit.similarity)
            )
    return tuple(
        PassageHit(node_id, score, tuple(by_passage[node_id]))
        for node_id, score in passages.items()
    )


def relative_scores(
    scores: Mapping[str, float], head: int, floor: float | None = None
) -> dict[str, float]:
    """Map scores to a scale on which the best is 1 and the last of the head is 0.

    Args:
        scores: Scores by id, in any order.
        head: The number of best scores that the scale spans.
        floor: The score that maps to 0 if there are fewer than `head`; None means the lowest score.

    Returns:
        The relative scores by id; those after the head are negative.
    """
    ranked = sorted(scores.values(), reverse=True)
    if not ranked:
        return {}
    high = ranked[0]
    low = ranked[:head][-1]
    if floor is not None and len(ranked) < head:
        low = floor
    if high <= low:  # a single score, or all equal
        return dict.fromkeys(scores, 1.0)
    return {node_id: (score - low) / (high - low) for node_id, score in scores.items()}


def _scores_of_units(hits: Iterable[PassageHit]) -> dict[str, float]:
    return {unit.id: unit.score for hit in hits for unit in hit.units}


def _places_by_words(hits: Sequence[PassageHit]) -> dict[str, float]:
    """Return the relative scores of passages in keyword search: the mean of each passage's own and that of
    its best unit that states something."""
    # BM25 is 0 for a text without any of the words
    own = relative_scores({hit.passage_id: hit.score for hit in hits}, HEAD_PASSAGES, floor=0.0)
    best_units = {}
    for hit in hits[:HEAD_PASSAGES]:
        statement = hit.best_statement
        if statement:
            best_units[hit.passage_id] = statement.score
    if not best_units:
        return own
    of_units = relative_scores(best_units, HEAD_PASSAGES, floor=0.0)
    return {key: (score + of_units.get(key, 0.0)) / 2 for key, score in own.items()}


def _fused(
    dense: Mapping[str, float], lexical: Mapping[str, float], dense_weight: float
) -> dict[str, float]:
    """Return fused scores by id, best first, given the relative scores of both sides.

    Ties are ordered by the sum before negative scores are cut to 0, then by the weight of the sides that
    found the node.
    """
    lexical_weight = 1.0 - dense_weight
    least_dense = min([0.0, *dense.values()])
    least_lexical = min([0.0, *lexical.values()])
    ranks = {}
    for node_id in {**dense, **lexical}:
        near = dense_weight * dense.get(node_id, least_dense)
        alike = lexical_weight * lexical.get(node_id, least_lexical)
        # conditions instead of `max`, which took half of the time for the hundreds of nodes of a question
        score = (near if near > 0 else 0.0) + (alike if alike > 0 else 0.0)
        weight = dense_weight * (node_id in dense) + lexical_weight * (node_id in lexical)
        ranks[node_id] = (score if score < 1 else 1.0, near + alike, weight)
    ranked = sorted(ranks, key=ranks.__getitem__, reverse=True)
    return {node_id: ranks[node_id][0] for node_id in ranked}


def _embedding_of(query: QueryBundle, model: BaseEmbedding) -> list[float]:
    return in_time(model, lambda: model.get_agg_embedding_from_queries(_embeddable(query)))


def _embeddable(query: QueryBundle) -> list[str]:
    return [strip_surrogates(text) for text in query.embedding_strs]
