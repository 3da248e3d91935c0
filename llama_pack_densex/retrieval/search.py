"""Searching the units: by embeddings, by words (BM25), or by both, fused by relative score."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, collapse
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in
from llama_pack_densex.stores.filters import Passing
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.lance_table import PASSAGE_WORDS, UNIT_WORDS, TableVersion, is_any_of, is_of_any, quote
from llama_pack_densex.stores.node_store import FoundNode
from llama_pack_densex.stores.words import Words
from llama_pack_densex.text.tokens import IS_CJK, content_words, strip_surrogates, tokenize

LEAST_UNITS = 100
"""Units that are looked through for the passages of those that are wanted, whose own similarity counts too: among 20
the right passage came first for 2 of 100 questions less."""

DENSE_UNITS = 200
"""Units that the dense side of a hybrid search is asked for at first: among 200, one question of SQuAD in 11 has fewer
passages than the scale of relative scores needs, which then costs another search; of 300, one in 140."""

HEAD_PASSAGES = 30
"""Passages of each side between whose best and last score the scale of relative scores lies.

Of 20 to 50, all within a question in a hundred of one another; a fixed number keeps a ranking as it is when more is
fetched."""

HEAD_UNITS = 100
"""The same for units, of which a passage has several."""

_NOTHING = SearchResult((), exhausted=True, share=0.0)  # what an empty question finds: there is nothing to embed in it
_MOST_PASSAGES = 1_000  # named where their units are asked for
_SPARE = 8  # passages that are fetched beyond those asked for, to see whether others score as much as the last one
_PAIRS_READ = 1_000  # passages with a single character that are looked at for the words that it is in


# Japanese words that ask, as English stop words do: rare in documents, they would find those that ask something else.
_ASKING = frozenset(
    tokenize(
        "とは何ですか 何でしょうか 何の 何が 何を 何に 何は ますか どのくらいですか どれくらい どのように どうすれば "
        "どうやって どんな どこですか いつですか なぜですか だれですか 誰ですか いくらですか いくつですか てください"
    )
)


class UnitSearch:
    """Finds units, and the passages they lead to: by embeddings, by words (BM25), or by both, fused by relative score.

    Where both are asked (see `fuse`), the side by words counts as far as words go: by the share of the question's words
    that its best passage holds, so that a passage with one of ten words is no better than it is. A question none of
    whose words occurs is answered by the embeddings alone.

    Args:
        index: The nodes. Without an embedding model they are searched by words alone.
        granularity: The units that are searched.
        filters: Only nodes whose metadata pass are searched; None means all.
        dense_weight: The embeddings' share for a question, from 0 to 1; None leaves it to the words. At 0 only words
            decide, and the question is not even embedded unless they find nothing; at 1 only embeddings, as for all
            questions where this is None.
        of_store: How the vector store is asked in its own hybrid mode, by fields of `VectorStoreQuery`; None means by
            the embedding alone.
    """

    def __init__(
        self,
        index: NodeIndex,
        granularity: Sequence[str] = ("proposition",),
        filters: MetadataFilters | None = None,
        dense_weight: Callable[[str], float | None] | None = None,
        of_store: Mapping[str, Any] | None = None,
    ) -> None:
        self._index, self._searched, self._filters = index, tuple(granularity), filters
        self._dense_weight = dense_weight if dense_weight is not None else lambda question: 1.0
        self._of_store = of_store

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once.

        Args:
            query: The question; its embedding is filled in where one is needed and missing.
            k: Units to look for.
        """
        if self._index.embed_model is None:
            return self.by_words(query, k)
        weight = self._dense_weight(query.query_str)
        if weight == 1:
            return self.by_embedding(query, k)
        units = max(k, DENSE_UNITS)
        if weight == 0:
            by_words = self.by_words(query, max(k, HEAD_PASSAGES))
            return by_words if by_words.passages else self.by_embedding(query, units)
        near = cache(self._begin_by_embedding(query, units))  # the store looks for them while it looks for the words
        by_words = self.by_words(query, max(k, HEAD_PASSAGES), meanwhile=near)
        by_meaning = near()
        while len(by_meaning.passages) < HEAD_PASSAGES and not by_meaning.exhausted:  # few passages with many units
            units *= 2
            by_meaning = self.by_embedding(query, units)
        if not by_words.passages:
            return by_meaning
        fused = fuse(by_meaning.passages, by_words.passages, 1 / (1 + by_words.share) if weight is None else weight)
        return SearchResult(fused, by_meaning.exhausted and by_words.exhausted)

    def by_embedding(self, query: QueryBundle, k: int) -> SearchResult:
        """Find the units whose embeddings are nearest to the question's.

        The store holds other nodes beside the searched units. They are fetched too and dropped: filters by granularity
        slow some stores down fiftyfold.
        """
        return self._begin_by_embedding(query, k)()

    def _begin_by_embedding(self, query: QueryBundle, k: int) -> Callable[[], SearchResult]:
        if query.embedding is None:
            if not query.embedding_strs:
                return lambda: _NOTHING
            assert self._index.embed_model is not None, "dense search needs an index with an embedding model"
            query.embedding = self._index.embed_model.get_agg_embedding_from_queries(_embeddable(query))
        embedding = query.embedding
        if not math.isfinite(sum(embedding)):
            raise ValueError("the embedding of the question is not finite: look into the embedding model")

        def begin(limit: int) -> Callable[[], list[FoundNode]]:
            about: dict[str, Any] = {"query_str": query.query_str, "filters": self._filters}
            if self._of_store:
                about |= {**self._of_store, "sparse_top_k": limit, "hybrid_top_k": limit}
            return self._index.begin_search(VectorStoreQuery(embedding, limit, **about))

        # other nodes are dropped: there is a passage for every few units, and a section for every few passages
        passages = "passage" in self._searched
        asked = max(k + 4 + (k // 8 if passages else k // 2), LEAST_UNITS if passages else 0)
        begun = begin(asked)

        def wait() -> SearchResult:
            found, limit = begun(), asked
            while True:
                units = [node for node in found if node.granularity in self._searched]
                if not self._of_store and units and units[0].similarity is None:
                    units = [node._replace(similarity=node.score) for node in units]
                nothing_left = len(found) < limit
                if len(units) >= k or nothing_left:
                    hits = collapse(units[:k], units if passages else ())
                    return SearchResult(hits, exhausted=nothing_left and len(units) <= k)
                limit *= 2
                found = begin(limit)()

        return wait

    def by_words(self, query: QueryBundle, k: int, meanwhile: Callable[[], object] = lambda: None) -> SearchResult:
        """Find passages by BM25, and rank the units of each found passage among themselves; see `find_by_words`.

        BM25 is that of LanceDB's full-text index over our tokens: the textbook's, with k1 1.2 and b 0.75, over the rows
        that have words in a column. The index knows how words are told.
        """
        words = self._index.words
        assert words is not None, "an index without words is not searched by words"

        def find() -> SearchResult:
            passing = self._index.store.passing(self._filters)
            return find_by_words(self._index.words_now(), words, query.query_str, k, self._searched, passing, meanwhile)

        return self._index.reading(find)

    async def prepare(self, query: QueryBundle) -> None:
        """Embed a question, if it will be searched by embeddings, without blocking the event loop."""
        model, is_lacking = self._index.embed_model, query.embedding is None and query.embedding_strs
        if model is not None and is_lacking and self._dense_weight(query.query_str) != 0:
            query.embedding = await model.aget_agg_embedding_from_queries(_embeddable(query))


def dense_weight(
    trust: Mapping[str, LanguageTrust], chosen: float | None, known: Collection[str] = ()
) -> Callable[[str], float | None]:
    """The dense side's share in hybrid search, by question.

    Args:
        trust: What was found out about the embedding model, by language; read at every question.
        chosen: The user's choice for all questions. None leaves it to the words of the question, but for questions in
            a language that the model does not know: these are left to search by words. Where it knows none of the
            documents' languages, that holds for numbers and for questions in other languages too.
        known: Languages that the user says it knows.

    Returns:
        The share; None where the words decide.
    """

    def weight(question: str) -> float | None:
        strangers = {language for language, of in trust.items() if not of.known} - set(known)
        if chosen is not None or not strangers:
            return chosen
        asked = trust_in(trust, question)
        return 0.0 if (asked.language in strangers if asked else strangers == set(trust)) else None

    return weight


def fuse(dense: Sequence[PassageHit], lexical: Sequence[PassageHit], dense_weight: float) -> tuple[PassageHit, ...]:
    """Merge what two searches found, by node id: passages among passages, units among units.

    Scores are made relative first (min-max over the best of each side: 1 for the best, 0 for the last one of the
    head and for what is not in it), then added by weight. Core's `QueryFusionRetriever` merges nodes of equal text.

    Args:
        dense: What the embeddings found, best first.
        lexical: What the words found, best first.
        dense_weight: The dense side's share, from 0 to 1.

    Returns:
        Passages, best first, with scores from 0 to 1, and their units with scores of the same kind.
    """
    sides = (dense, lexical)
    passages = _fused([{hit.passage_id: hit.score for hit in side} for side in sides], HEAD_PASSAGES, dense_weight)
    units = _fused([{u.id: u.score for hit in side for u in hit.units} for side in sides], HEAD_UNITS, dense_weight)
    found = {unit.id: unit for side in reversed(sides) for hit in side for unit in hit.units}
    units_of: defaultdict[str, list[FoundNode]] = defaultdict(list)
    for unit_id in sorted(units, key=units.__getitem__, reverse=True):
        unit, score = found[unit_id], units[unit_id][0]
        of_passage = units_of[unit.leads_to]
        if score > 0 or not of_passage:  # what no side has in its head found nothing
            of_passage.append(FoundNode(unit.id, unit.granularity, unit.passage_id, score, unit.similarity))
    ranked = sorted(passages, key=passages.__getitem__, reverse=True)
    return tuple(PassageHit(p, passages[p][0], tuple(units_of[p])) for p in ranked)


def relative_scores(scores: Mapping[str, float], head: int, floor: float | None = None) -> dict[str, float]:
    """Place scores on a scale on which the best is 1 and the last one of the head is 0.

    Args:
        scores: Scores by id, in any order.
        head: How many of the best the scale spans.
        floor: The score that is 0 on the scale where there are fewer than `head`; None means the lowest.

    Returns:
        The places by id; what comes after the head is below 0.
    """
    ranked = sorted(scores.values(), reverse=True)
    if not ranked:
        return {}
    high = ranked[0]
    low = ranked[head - 1] if len(ranked) >= head else ranked[-1] if floor is None else floor
    if high <= low:  # a single one, or all alike
        return dict.fromkeys(scores, 1.0)
    return {node_id: (score - low) / (high - low) for node_id, score in scores.items()}


def _fused(
    sides: Sequence[Mapping[str, float]], head: int, dense_weight: float
) -> dict[str, tuple[float, float, float]]:
    """By id the fused score, and what orders equal ones: a score that goes below 0 for what no side has in its head,
    and the weight of the sides that found it."""
    dense, lexical = sides
    by_meaning, by_words = relative_scores(dense, head), relative_scores(lexical, head, floor=0.0)  # BM25 is 0 for none
    lowest = min(0.0, min(by_meaning.values(), default=0.0)), min(0.0, min(by_words.values(), default=0.0))
    other_weight = 1.0 - dense_weight
    fused: dict[str, tuple[float, float, float]] = {}
    for node_id in by_meaning | by_words:
        near, alike = by_meaning.get(node_id), by_words.get(node_id)
        found = (0.0 if near is None else dense_weight) + (0.0 if alike is None else other_weight)
        by_near = dense_weight * (lowest[0] if near is None else near)
        by_alike = other_weight * (lowest[1] if alike is None else alike)
        # conditions in place of `max`: of some hundred nodes a question that is half of the time
        score = (by_near if by_near > 0 else 0.0) + (by_alike if by_alike > 0 else 0.0)
        fused[node_id] = (score if score < 1 else 1.0, by_near + by_alike, found)
    return fused


def find_by_words(
    now: TableVersion,
    words: Words,
    question: str,
    k: int,
    granularity: Collection[str],
    passing: Passing | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> SearchResult:
    """Find passages by BM25, and rank each found passage's units among themselves.

    Args:
        now: A table with the columns of `words`.
        words: How the question is split.
        question: The question.
        k: How many passages to return at most.
        granularity: The granularities of the units to return.
        passing: The passages to search; None means all.
        meanwhile: What is to be done while the units are searched; not done where no passage is found.

    Returns:
        The passages, of equal ones first that with the smaller id; of their units, equal ones in reading order.
    """
    asked = words.tokens(question)
    asked = [token for token in asked if token not in _ASKING] or asked
    lone = {token for token in asked if words.pairs and len(token) == 1 and IS_CJK.match(token)}
    others = [token for token in asked if token not in lone]
    best, more = _best(now, asked, k, passing)
    there = _words_of(now, best[:1])  # read while the units are searched
    if lone and there().isdisjoint(others) and not _best(now, others, 1, passing)[0]:
        # a single character may be hidden in the pairs of others; where nothing else is known, these are asked for
        asked = [*asked, *_words_with(now, lone)]
        best, more = _best(now, asked, k, passing)
        there = _words_of(now, best[:1])
    if not best:
        return _NOTHING
    units: defaultdict[str, list[FoundNode]] = defaultdict(list)
    if {*granularity} - {"passage"}:
        named = is_any_of("passage_id", [passage.id for passage in best]) if len(best) <= _MOST_PASSAGES else ""
        begun = now.begin_match(" ".join(asked), UNIT_WORDS, None, named)
        meanwhile()
        for unit in begun():
            if unit.score > 0 and unit.granularity in granularity:
                units[unit.passage_id].append(unit)
    hits = tuple(PassageHit(passage.id, passage.score, tuple(units[passage.id])) for passage in best)
    told, held = content_words([*others, *lone]), there()
    has = sum(word in held or (word in lone and any(word in pair for pair in held)) for word in told)
    return SearchResult(hits, not more, has / len(told))


def _best(
    now: TableVersion, asked: Sequence[str], passages: int, passing: Passing | None
) -> tuple[list[FoundNode], bool]:
    """The best passages, and whether there are more."""
    if not asked or passages <= 0 or (passing is not None and not passing.ids):
        return [], False
    limit = passages + _SPARE
    condition = is_of_any(passing, "id") if passing is not None else ""
    if passing is not None and not condition:
        limit = passing.fetched(limit)
    while True:
        rows = now.begin_match(" ".join(asked), PASSAGE_WORDS, limit, condition)()
        found = [row for row in rows if row.score > 0 and (passing is None or row.id in passing.ids)]
        found.sort(key=lambda row: (-row.score, row.id))
        # of equal scores LanceDB returns any: one that is out of reach must not be as good as the last one returned
        if len(rows) < limit or (len(found) > passages and found[passages - 1].score > rows[-1].score):
            return found[:passages], len(found) > passages
        limit *= 4


def _words_of(now: TableVersion, passages: Sequence[FoundNode]) -> Callable[[], set[str]]:
    held = now.begin_contents([passage.id for passage in passages], PASSAGE_WORDS)
    return lambda: {word for text in held().values() for word in text.split(" ")}


def _words_with(now: TableVersion, characters: set[str]) -> list[str]:
    """The pairs of characters that some single ones are in."""
    condition = " OR ".join(f"{PASSAGE_WORDS} LIKE {quote(f'%{character}%')}" for character in sorted(characters))
    pairs: dict[str, None] = {}
    for (text,) in islice(now.values([PASSAGE_WORDS], condition), _PAIRS_READ):
        known = (word for word in text.split(" ") if len(word) == 2)
        pairs |= dict.fromkeys(word for word in known if not characters.isdisjoint(word))
    return list(pairs)


def _embeddable(query: QueryBundle) -> list[str]:
    return [strip_surrogates(text) for text in query.embedding_strs]
