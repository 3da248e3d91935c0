"""A second hop without an LLM: from the passages that a question found to others that share a name."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import QueryBundle

from llama_pack_densex.index import keywords
from llama_pack_densex.index.keywords import Rows
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.index.rows import hits_in_passages, read_rows, rows_with_ids
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult, best_first
from llama_pack_densex.retrieval.lexical import rows_passing, weight_of
from llama_pack_densex.retrieval.search import HEAD_PASSAGES, UnitSearch
from llama_pack_densex.text.tokens import content_words, search_tokens

# Measured on 60 questions of MuSiQue (benchmarks/RESULTS.md): with half or twice any of these values, as many
# supporting passages are found, give or take a question or two.
FIRST_PASSAGES = 8
"""Number of best passages of the first hop whose names are followed."""

MOST_WITH_NAME = 40
"""Maximum number of passages with a name: a name in more of them leads everywhere."""

MOST_WITH_TOKEN = 200
"""The same for a token of a name: more frequent tokens are ignored, as "New" in "New Delhi"."""

ADDING_NOTHING = 0.5
"""Factor on a path whose second passage adds no word of the question to those of the first."""

MOST_PATHS = 64
"""Maximum number of paths whose second passages are looked at."""

LED_PASSAGES = 10
"""Maximum number of second passages."""

BEST_PASSAGES = 3
"""Number of best passages of the first hop that stay ahead of second passages; see `LEAST_SHARE`.

Behind them, second passages take every other place, so that questions without a second hop lose little."""

LEAST_SHARE = 0.5
ADDED_SHARE = 0.05
"""A second passage may rank ahead of the `BEST_PASSAGES` if the two units of its path hold `LEAST_SHARE` of
the question's words, and `ADDED_SHARE` more than any unit of those passages.

The best path does so for 3 in 10 of MuSiQue's and HotpotQA's questions, for 1 in 20 of SQuAD's, and for
none of the paraphrased ones."""

IDLE_SHARE = 0.25
"""Factor on the score of the unit that any other path leads to, so that it is read after those that the
question found."""

ANSWERED_SHARE = 0.8
"""A question needs no second hop if one passage holds this share of its words, as for 2 % of MuSiQue's
questions, half of SQuAD's and 79 % of JSQuAD's."""


class TwoHopSearch(UnitSearch):
    """A search of units that continues from the passages that a question found to those that they lead to.

    "Who led the society that publishes the journal?" finds the journal, whose passage names the society,
    whose own passage answers. Paths of two passages are joined by a name, as PropRAG joins propositions
    (arXiv 2504.18070). A path is rated by the share of the question's words that its passages hold, by the
    rarity of the name, and by the score of its first passage. The second passage never scores higher than the
    first, so that the best result stays the best. Unless its path holds clearly more of the question than any
    one unit of the best three, it also ranks behind these, where second passages take every other place.

    A question gets no second hop if one passage holds most of its words.
    """

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once; see `UnitSearch.search`."""
        result = super().search(query, k)
        if not result.passages:
            return result
        first = [_Ranked(rank, hit) for rank, hit in enumerate(result.passages)]
        second = self.index.reading(lambda: self._second_hop(query.query_str, result.passages))
        passages = {passage.hit.passage_id: passage for passage in (*first, *second)}
        ordered = sorted(passages.values(), key=lambda passage: (-passage.hit.score, passage.rank))
        return replace(result, passages=tuple(passage.hit for passage in ordered))

    def _second_hop(self, text: str, hits: Sequence[PassageHit]) -> list[_Ranked]:
        """Return the passages that a question's hits lead to; none if it needs no second hop."""
        words = self.index.words
        assert words is not None, "an index has words where there are two hops"
        tokens = content_words(text, words.tokens) & {*search_tokens(text, words.tokens)}
        database = self.index.searched_by_words()
        passing = self.index.store.passing(self.filters)
        scores = {hit.passage_id: hit.score for hit in hits}
        least = hits[:HEAD_PASSAGES][-1].score
        with database.reading() as connection:
            question = _Question.read(connection, tokens)
            firsts = rows_with_ids(connection, [*scores][:FIRST_PASSAGES])
            margins = {first.row: scores[first.id] - least for first in firsts}
            if not margins or question.is_answered([*margins]):
                return []
            allowed = rows_passing(passing, database, connection)
            paths = _best_paths(connection, question, margins, allowed)
            targets = _best_targets(connection, paths, scores, least)
            return _with_units(connection, targets, question, self.granularity, hits)


class _Ranked(NamedTuple):
    """A passage, and its rank among those with the same score."""

    rank: float
    hit: PassageHit


class Path(NamedTuple):
    """A path from one passage to another.

    Args:
        first: The row of a passage that the question found.
        second: The row of the passage that it leads to.
        link: The name that joins them, as its tokens separated by spaces.
        gain: What the path adds to the score of the second passage.
    """

    first: int
    second: int
    link: str
    gain: float


class Led(NamedTuple):
    """A second passage, with the name and the first passage of its best path, and the resulting score."""

    link: str
    first_id: str
    passage_id: str
    score: float


class _Question(NamedTuple):
    """The words of a question.

    Args:
        rows: For each word that occurs, the sorted rows of the passages with it.
        weights: The weight of each word: its BM25 rarity, as a share of the sum over all words.
        passages: The number of passages in the index.
    """

    rows: Mapping[str, Rows]
    weights: Mapping[str, float]
    passages: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, tokens: set[str]) -> _Question:
        """Look up the words of a question, given as its tokens."""
        passages = keywords.count_passages(connection)
        rows = keywords.passages_with(connection, tokens)
        rarities = {token: keywords.rarity(passages, len(rows.get(token, ()))) for token in tokens}
        total = sum(rarities.values())
        return cls(rows, {token: rarity / total for token, rarity in rarities.items()}, passages)

    def is_answered(self, passages: Sequence[int]) -> bool:
        """Return whether one of these passages holds most of the words, regardless of their rarity."""
        counts = self._has_words(np.array(passages, np.int64)).sum(axis=0)
        return bool(counts.max() >= ANSWERED_SHARE * len(self.weights))

    def shares(self, firsts: Rows, seconds: Rows) -> npt.NDArray[np.float64]:
        """Return the share of the question's words that each pair of passages holds.

        It is multiplied by `ADDING_NOTHING` where the second passage adds no word.
        """
        weights = np.array([self.weights[token] for token in self.rows])
        of_firsts = self._has_words(firsts)
        of_both = of_firsts | self._has_words(seconds)
        adds_words = (of_both != of_firsts).any(axis=0)
        return weights @ of_both * np.where(adds_words, 1, ADDING_NOTHING)

    def _has_words(self, passages: Rows) -> npt.NDArray[np.bool_]:
        """Return a matrix of whether each word that occurs (rows) is in each passage (columns)."""
        has_words = np.zeros((len(self.rows), len(passages)), bool)
        for place, rows in enumerate(self.rows.values()):
            has_words[place] = (
                rows[np.minimum(np.searchsorted(rows, passages), len(rows) - 1)] == passages
            )
        return has_words


def _best_paths(
    connection: sqlite3.Connection,
    question: _Question,
    margins: Mapping[int, float],
    allowed: Rows | None,
) -> list[Path]:
    """Return the paths with the largest gains, one per pair of passages, by the rarest name that joins them.

    Args:
        connection: A connection in a read transaction.
        question: The words of the question.
        margins: How far the score of each first passage is above that of the last of the head, by row.
        allowed: The sorted rows of the passages that may be second; None means all.
    """
    links = _links(connection, question, [*margins])
    if allowed is not None:
        is_allowed = {*np.intersect1d([second for _, second in links], allowed).tolist()}
        links = {pair: link for pair, link in links.items() if pair[1] in is_allowed}
    if not links:
        return []
    firsts, seconds = np.array([*links], np.int64).T
    shares = question.shares(firsts, seconds).tolist()
    paths = [
        Path(first, second, name, share * rarity * margins[first])
        for ((first, second), (rarity, name)), share in zip(links.items(), shares, strict=True)
    ]
    return sorted(paths, key=lambda path: (-path.gain, path.first, path.second))[:MOST_PATHS]


def _links(
    connection: sqlite3.Connection, question: _Question, firsts: Sequence[int]
) -> dict[tuple[int, int], tuple[float, str]]:
    """Return the rarest name that joins each pair of passages, and before it its rarity from 0 to 1.

    Names that the question contains are skipped: they lead to nothing new.
    """
    names = keywords.read_names(connection, firsts)
    tokens = {token for name in chain(*names.values()) for token in name.split(" ")}
    rows = keywords.passages_with(connection, tokens, MOST_WITH_TOKEN)
    sets = {token: frozenset(of_token.tolist()) for token, of_token in rows.items()}
    links: dict[tuple[int, int], tuple[float, str]] = {}
    for first in firsts:
        for name in names.get(first, ()):
            of_name = name.split(" ")
            with_name = _with_all(of_name, sets)
            is_known = question.weights.keys() >= {*of_name}
            if is_known or not 1 < len(with_name) <= MOST_WITH_NAME:
                continue
            link = (1 - math.log(len(with_name)) / math.log(question.passages), name)
            for second in with_name - {first}:
                links[first, second] = max(links.get((first, second), link), link)
    return links


def _with_all(tokens: Sequence[str], rows: Mapping[str, frozenset[int]]) -> frozenset[int]:
    """Return the rows of the passages with all of the rare tokens; none if no token is rare."""
    rare = [rows[token] for token in tokens if token in rows]
    return frozenset.intersection(*rare) if rare else frozenset()


def _best_targets(
    connection: sqlite3.Connection, paths: Sequence[Path], scores: Mapping[str, float], least: float
) -> list[Led]:
    """Return the second passages whose score rises by a path, best first.

    Args:
        connection: A connection in a read transaction.
        paths: The paths that lead to them.
        scores: The scores of the passages that the question found, by id.
        least: The initial score of passages that it did not find.
    """
    passages = read_rows(connection, {row for path in paths for row in (path.first, path.second)})
    targets: dict[str, Led] = {}
    for path in paths:
        first_id = passages[path.first].id
        second_id = passages[path.second].id
        own_score = scores.get(second_id, least)
        target = Led(path.link, first_id, second_id, min(own_score + path.gain, scores[first_id]))
        best = targets.get(second_id)
        if target.score > (own_score if best is None else best.score):
            targets[second_id] = target
    return best_first(targets.values())[:LED_PASSAGES]


def _with_units(
    connection: sqlite3.Connection,
    targets: Sequence[Led],
    question: _Question,
    granularity: Sequence[str],
    hits: Sequence[PassageHit],
) -> list[_Ranked]:
    """Return second passages, each with its best unit, which names the unit that led there.

    If these two units together hold enough of the question (see `LEAST_SHARE`), a passage keeps the score of
    its path. Otherwise it takes the next of every other place behind the best passages, and its unit's score
    is multiplied by `IDLE_SHARE`.
    """
    best_hits = hits[:BEST_PASSAGES]
    passage_ids = {hit.passage_id for hit in best_hits}
    for target in targets:
        passage_ids |= {target.first_id, target.passage_id}
    units = _read_units(connection, passage_ids, granularity)
    weights = question.weights
    shares = [
        weight_of(unit.tokens, weights) for hit in best_hits for unit in units[hit.passage_id]
    ]
    least_share = max(LEAST_SHARE, max(shares, default=0.0) + ADDED_SHARE)
    first = {hit.passage_id: _Ranked(rank, hit) for rank, hit in enumerate(hits)}
    passages = []
    # rank of the passage before the next second one that holds too little
    rank_before = len(best_hits) - 1
    for target in targets:
        name = dict.fromkeys(target.link.split(" "), 1.0)
        leading = _best_unit(units, target.first_id, name)
        second = _best_unit(units, target.passage_id, {**weights, **name})
        new_hit = PassageHit(target.passage_id, -math.inf, ())
        own_rank, hit = first.get(target.passage_id, _Ranked(math.inf, new_hit))
        rank = first[target.first_id].rank
        score = target.score
        unit_score = target.score
        if weight_of(leading.tokens | second.tokens, weights) < least_share:
            rank = min(rank_before, len(hits) - 1)
            rank_before += 1
            score = max(hit.score, min(score, hits[rank].score))
            unit_score = min(unit_score, IDLE_SHARE * unit_score)  # a cosine may be negative
        led_to = second.node._replace(score=unit_score, led_by=leading.node.id)
        hit = PassageHit(target.passage_id, score, _with_unit(hit.units, led_to))
        passages.append(_Ranked(min(own_rank, rank + 0.5), hit))
    return passages


def _with_unit(units: tuple[FoundNode, ...], unit: FoundNode) -> tuple[FoundNode, ...]:
    """Return the units that found a passage, best first, with the one that a path led to among them."""
    if unit.granularity == "passage":
        return units
    by_id = {own.id: own for own in units}
    own = by_id.get(unit.id, unit)
    by_id[unit.id] = own._replace(score=max(own.score, unit.score), led_by=unit.led_by)
    return tuple(best_first(by_id.values()))


class _Unit(NamedTuple):
    """A unit, not yet scored, and its tokens."""

    node: FoundNode
    tokens: frozenset[str]


def _read_units(
    connection: sqlite3.Connection, passage_ids: Collection[str], granularity: Sequence[str]
) -> defaultdict[str, list[_Unit]]:
    """Return the units of passages that are searched and state something, all but questions, by passage."""
    searched = {*granularity} - {"question"}
    hits = {
        row: FoundNode(*columns, 0.0)
        for row, columns in hits_in_passages(connection, passage_ids).items()
    }
    words = keywords.read_words(connection, hits)
    tokens = {row: frozenset(of_row.split(" ")) for row, _, of_row in words}
    units = defaultdict(list)
    for row, unit in hits.items():
        if unit.granularity in searched:
            units[unit.passage_id].append(_Unit(unit, tokens.get(row, frozenset())))
    return units


def _best_unit(
    units: defaultdict[str, list[_Unit]], passage_id: str, weights: Mapping[str, float]
) -> _Unit:
    """Return the unit of a passage whose words have the most weight, the first of equal ones; a passage
    without units stands for itself, with no words."""
    passage = _Unit(FoundNode(passage_id, "passage", "", 0.0), frozenset())
    return max(units[passage_id] or [passage], key=lambda unit: weight_of(unit.tokens, weights))
