"""A second hop without an LLM: from the passages that a question found to others that share a name."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import QueryBundle

from llama_pack_densex.index import keywords
from llama_pack_densex.index.keywords import Rows
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.index.rows import NodeRow, read_rows, rows_with_ids, units_of_passages
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult
from llama_pack_densex.retrieval.lexical import rows_passing
from llama_pack_densex.retrieval.search import HEAD_PASSAGES, UnitSearch
from llama_pack_densex.text.tokens import content_words

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

BEST_PASSAGES = 2
"""Number of best passages of the first hop that stay ahead of second passages; see `LEAST_SHARE`."""

LEAST_SHARE = 0.5
ADDED_SHARE = 0.05
"""A second passage may rank ahead of the `BEST_PASSAGES` if the two units of its path hold `LEAST_SHARE` of
the question's words, and `ADDED_SHARE` more than any unit of those passages.

The best path does so for 3 in 10 of MuSiQue's and HotpotQA's questions, for 1 in 20 of SQuAD's, and for
none of the paraphrased ones."""

IDLE_SHARE = 0.5
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
    first, so that the best result stays the best. It also ranks behind the best two, unless its path holds
    clearly more of the question than any one unit of theirs.

    A question gets no second hop if one passage holds most of its words.
    """

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once; see `UnitSearch.search`."""
        result = super().search(query, k)
        if not result.passages:
            return result
        second_hits = self._index.reading(
            lambda: self._second_hop(query.query_str, result.passages)
        )
        best_ids = {hit.passage_id for hit in result.passages[:BEST_PASSAGES]}
        second_by_id = {hit.passage_id: hit for hit in second_hits}

        def order(hit: PassageHit) -> tuple[float, int]:
            """Among equal scores, the best first-hop passages come first, then second passages."""
            if hit.passage_id in best_ids:
                return -hit.score, 0
            return -hit.score, 1 if hit.passage_id in second_by_id else 2

        passages = {hit.passage_id: hit for hit in result.passages} | second_by_id
        ordered = sorted(passages.values(), key=order)
        return SearchResult(tuple(ordered), result.exhausted, result.coverage)

    def _second_hop(self, text: str, hits: Sequence[PassageHit]) -> list[PassageHit]:
        """Return the passages that a question's hits lead to; none if it needs no second hop."""
        words = self._index.words
        assert words is not None, "an index has words where there are two hops"
        tokens = content_words(text, words.tokens)
        database = self._index.searched_by_words()
        passing = self._index.store.passing(self._filters)
        scores = {hit.passage_id: hit.score for hit in hits}
        least = hits[:HEAD_PASSAGES][-1].score
        with database.reading() as connection:
            question = _Question.read(connection, tokens)
            firsts = rows_with_ids(connection, [hit.passage_id for hit in hits[:FIRST_PASSAGES]])
            if not firsts or question.is_answered([first.row for first in firsts]):
                return []
            allowed = None if passing is None else rows_passing(passing, database, connection)
            margins = {first.row: scores[first.id] - least for first in firsts}
            paths = _best_paths(connection, question, margins, allowed)
            rows = {path.first for path in paths} | {path.second for path in paths}
            ids = {row: node.id for row, node in read_rows(connection, rows).items()}
            targets = _best_targets(paths, ids, scores, least)
            return _with_units(connection, targets, question, self._granularity, hits)


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
    paths: Sequence[Path], ids: Mapping[int, str], scores: Mapping[str, float], least: float
) -> list[Led]:
    """Return the second passages whose score rises by a path, best first.

    Args:
        paths: The paths that lead to them.
        ids: The ids of all passages on the paths, by row.
        scores: The scores of the passages that the question found, by id.
        least: The initial score of passages that it did not find.
    """
    best: dict[str, Led] = {}
    for path in paths:
        first_id = ids[path.first]
        second_id = ids[path.second]
        own_score = scores.get(second_id, least)
        score = min(own_score + path.gain, scores[first_id])
        best_score = best[second_id].score if second_id in best else own_score
        if score > best_score:
            best[second_id] = Led(path.link, first_id, second_id, score)
    return sorted(best.values(), key=lambda target: -target.score)[:LED_PASSAGES]


def _with_units(
    connection: sqlite3.Connection,
    targets: Sequence[Led],
    question: _Question,
    granularity: Sequence[str],
    hits: Sequence[PassageHit],
) -> list[PassageHit]:
    """Return second passages as hits, each with its best unit, which names the unit that led there.

    If these two units together hold enough of the question (see `LEAST_SHARE`), a passage keeps the score of
    its path. Otherwise it ranks behind the best passages, and its unit's score is multiplied by `IDLE_SHARE`.
    """
    best_hits = hits[:BEST_PASSAGES]
    passage_ids = {hit.passage_id for hit in best_hits}
    for target in targets:
        passage_ids |= {target.first_id, target.passage_id}
    units = _Units(connection, passage_ids, granularity, question.weights)
    shares = [units.share([unit]) for hit in best_hits for unit in units.of(hit.passage_id)]
    least_share = max([LEAST_SHARE, *(share + ADDED_SHARE for share in shares)])
    own_hits = {hit.passage_id: hit for hit in hits}
    passages = []
    for target in targets:
        leading, best = units.of_path(target)
        hit = own_hits.get(target.passage_id, PassageHit(target.passage_id, -math.inf, ()))
        score = target.score
        unit_score = target.score
        if units.share([leading, best]) < least_share:
            score = max(hit.score, min(score, best_hits[-1].score))
            unit_score = min(unit_score, IDLE_SHARE * unit_score)  # a cosine may be negative
        matched = list(hit.units)
        if best is not None:
            led_by = target.first_id if leading is None else leading.id
            matched = _with_second_unit(matched, best, unit_score, led_by)
        passages.append(PassageHit(target.passage_id, score, tuple(matched)))
    return passages


def _with_second_unit(
    matched: Sequence[FoundNode], unit: NodeRow, score: float, led_by: str
) -> list[FoundNode]:
    """Return the units that found a passage, best first, with the one that a path led to among them."""
    units = {node.id: node for node in matched}
    second = FoundNode(unit.id, unit.granularity, unit.passage_id, score, led_by=led_by)
    if unit.id in units:
        node = units[unit.id]
        second = node._replace(score=max(node.score, score), led_by=led_by)
    units[unit.id] = second
    return sorted(units.values(), key=lambda node: -node.score)


class _Units:
    """The units of some passages that are searched and state something: all but questions.

    Args:
        connection: A connection in a read transaction.
        passage_ids: The ids of the passages.
        granularity: The granularities that are searched.
        weights: The weight of each word of the question.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        passage_ids: Collection[str],
        granularity: Sequence[str],
        weights: Mapping[str, float],
    ) -> None:
        self._weights = weights
        self._by_passage: defaultdict[str, list[NodeRow]] = defaultdict(list)
        rows = []
        for unit in units_of_passages(connection, passage_ids):
            if unit.granularity in granularity and unit.granularity != "question":
                self._by_passage[unit.passage_id].append(unit)
                rows.append(unit.row)
        self._tokens = {
            row: {*words.split(" ")} for row, _, words in keywords.read_words(connection, rows)
        }

    def of(self, passage_id: str) -> Sequence[NodeRow]:
        """Return the units of a passage."""
        return self._by_passage[passage_id]

    def of_path(self, led: Led) -> tuple[NodeRow | None, NodeRow | None]:
        """Return the unit of the first passage with most of the name, and that of the second with most of the
        name and the question; None for a passage without units."""
        link = dict.fromkeys(led.link.split(" "), 1.0)
        return self._best(led.first_id, link), self._best(led.passage_id, {**self._weights, **link})

    def _best(self, passage_id: str, weights: Mapping[str, float]) -> NodeRow | None:
        """Return the unit of a passage whose words have the most weight; the first of equal ones."""
        return max(
            self._by_passage[passage_id],
            key=lambda unit: _sum_of(weights, self._tokens.get(unit.row, set())),
            default=None,
        )

    def share(self, units: Iterable[NodeRow | None]) -> float:
        """Return the share of the question's words that some units hold together."""
        tokens: set[str] = set()
        for unit in units:
            if unit is not None:
                tokens |= self._tokens.get(unit.row, set())
        return _sum_of(self._weights, tokens)


def _sum_of(weights: Mapping[str, float], tokens: Collection[str]) -> float:
    return sum(weight for token, weight in weights.items() if token in tokens)
