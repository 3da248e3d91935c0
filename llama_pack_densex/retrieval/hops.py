"""A second hop: from the passages that a question found to others, by a name that both have; no LLM."""

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
from llama_pack_densex.retrieval.lexical import rows_passing, without_asking
from llama_pack_densex.retrieval.search import HEAD_PASSAGES, UnitSearch
from llama_pack_densex.text.tokens import content_words

# Measured on 60 questions of MuSiQue (benchmarks/RESULTS.md), where half or twice as much of each finds as
# many of the supporting passages, but for a question or two.
FIRST_PASSAGES = 8
"""The best passages of the first hop, whose names are followed."""

MOST_WITH_NAME = 40
"""Passages that have a name, at most: one that more have leads everywhere."""

MOST_WITH_TOKEN = 200
"""The same of a token of a name: more frequent ones are left out of it, as New of New Delhi."""

ADDING_NOTHING = 0.5
"""What a path counts whose second passage has no word of the question that the first one lacks."""

MOST_PATHS = 64
"""Paths whose second passages are looked at, at most."""

LED_PASSAGES = 10
"""Passages that are led to, at most."""

BEST_PASSAGES = 2
"""The best passages of the first hop, which stay before what a path leads to; see `LEAST_SHARE`."""

LEAST_SHARE = 0.5
ADDED_SHARE = 0.05
"""What a path leads to may stand before them where its two units have this share of the question's words,
and so much more than any unit of theirs. The best path of 3 in 10 of MuSiQue's and HotpotQA's questions does
so, of 1 in 20 of SQuAD's, and of none in other words."""

IDLE_SHARE = 0.5
"""What the unit that any other path leads to counts: it is read after those that the question found."""

ANSWERED_SHARE = 0.8
"""The share of a question's words that makes a second hop idle where one passage has them: so it is of 2 % of
MuSiQue's questions, of half of SQuAD's and of 79 % of JSQuAD's."""


class TwoHopSearch(UnitSearch):
    """A search of units that goes on from the passages that a question found to those that they lead to.

    "Who led the society that publishes the journal?" finds the journal, whose passage names the society,
    whose own passage answers. Paths of two passages are joined by a name, as PropRAG joins propositions
    (arXiv 2504.18070). A path counts by the share of the question's words that one of its passages has, by
    the rarity of the name, and by the score of its first passage. The second one stands behind the first, so
    that what a question finds first remains so; and behind the best two, where one unit of theirs says as
    much of the question as the path.

    A question most of whose words one passage has needs no second hop, and is left as it is.
    """

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once; see `UnitSearch.search`."""
        result = super().search(query, k)
        if not result.passages:
            return result
        led = self._index.reading(lambda: self._led_passages(query.query_str, result.passages))
        best_ids = {hit.passage_id for hit in result.passages[:BEST_PASSAGES]}
        led_by_id = {hit.passage_id: hit for hit in led}

        def order(hit: PassageHit) -> tuple[float, int]:
            """Of equal ones the best stay first, and what is led to follows."""
            if hit.passage_id in best_ids:
                return -hit.score, 0
            return -hit.score, 1 if hit.passage_id in led_by_id else 2

        passages = {hit.passage_id: hit for hit in result.passages} | led_by_id
        ordered = sorted(passages.values(), key=order)
        return SearchResult(tuple(ordered), result.exhausted, result.coverage)

    def _led_passages(self, text: str, hits: Sequence[PassageHit]) -> list[PassageHit]:
        """The passages that a question's hits lead to; none where it needs no second hop."""
        words = self._index.words
        assert words is not None, "an index has words where there are two hops"
        tokens = content_words(without_asking(words.tokens(text)))
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
            leads = {first.row: scores[first.id] - least for first in firsts}
            paths = _best_paths(connection, question, leads, allowed)
            rows = {path.first for path in paths} | {path.second for path in paths}
            ids = {row: node.id for row, node in read_rows(connection, rows).items()}
            led = _led(paths, ids, scores, least)
            return _with_units(connection, led, question, self._granularity, hits)


class Path(NamedTuple):
    """A path of two passages.

    Args:
        first: The row of a passage that the question found.
        second: The row of the passage that it leads to.
        link: The name that joins them, as its tokens with spaces between them.
        gain: What it adds to the score of the second one.
    """

    first: int
    second: int
    link: str
    gain: float


class Led(NamedTuple):
    """A passage that is led to, with the best path there and the score that it has by that."""

    link: str
    first_id: str
    passage_id: str
    score: float


class _Question(NamedTuple):
    """The words of a question.

    Args:
        rows: Of each that occurs the passages that have it, in order.
        weights: How much each counts: its rarity, as of BM25, as a share of that of all words.
        passages: How many passages there are.
    """

    rows: Mapping[str, Rows]
    weights: Mapping[str, float]
    passages: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, tokens: set[str]) -> _Question:
        """Look up the words of a question, given by its tokens."""
        passages = keywords.count_passages(connection)
        rows = keywords.passages_with(connection, tokens)
        rarities = {token: keywords.rarity(passages, len(rows.get(token, ()))) for token in tokens}
        total = sum(rarities.values())
        return cls(rows, {token: rarity / total for token, rarity in rarities.items()}, passages)

    def is_answered(self, passages: Sequence[int]) -> bool:
        """Whether one of some passages has most of the words, however rare."""
        counts = self._has_words(np.array(passages, np.int64)).sum(axis=0)
        return bool(counts.max() >= ANSWERED_SHARE * len(self.weights))

    def shares(self, firsts: Rows, seconds: Rows) -> npt.NDArray[np.float64]:
        """The share of the question's words that one passage of each pair has."""
        weights = np.array([self.weights[token] for token in self.rows])
        of_firsts = self._has_words(firsts)
        of_both = of_firsts | self._has_words(seconds)
        adds_words = (of_both != of_firsts).any(axis=0)
        return weights @ of_both * np.where(adds_words, 1, ADDING_NOTHING)

    def _has_words(self, passages: Rows) -> npt.NDArray[np.bool_]:
        """Whether the passages, a column each, have the words that occur, a row each."""
        has_words = np.zeros((len(self.rows), len(passages)), bool)
        for place, rows in enumerate(self.rows.values()):
            has_words[place] = (
                rows[np.minimum(np.searchsorted(rows, passages), len(rows) - 1)] == passages
            )
        return has_words


def _best_paths(
    connection: sqlite3.Connection,
    question: _Question,
    leads: Mapping[int, float],
    allowed: Rows | None,
) -> list[Path]:
    """The paths that add most, of each pair of passages that by the rarest name.

    Args:
        connection: A connection that is reading.
        question: What the question asks for.
        leads: How far the first passages are before the last, by row.
        allowed: The rows that may be led to, in order; None means all.
    """
    links = _links(connection, question, [*leads])
    if allowed is not None:
        is_allowed = {*np.intersect1d([second for _, second in links], allowed).tolist()}
        links = {pair: link for pair, link in links.items() if pair[1] in is_allowed}
    if not links:
        return []
    firsts, seconds = np.array([*links], np.int64).T
    shares = question.shares(firsts, seconds).tolist()
    paths = [
        Path(first, second, name, share * rarity * leads[first])
        for ((first, second), (rarity, name)), share in zip(links.items(), shares, strict=True)
    ]
    return sorted(paths, key=lambda path: (-path.gain, path.first, path.second))[:MOST_PATHS]


def _links(
    connection: sqlite3.Connection, question: _Question, firsts: Sequence[int]
) -> dict[tuple[int, int], tuple[float, str]]:
    """What joins passages with others: the rarest name, and how rare it is, from 0 to 1.

    A name that the question has itself leads to nothing new.
    """
    names = keywords.read_names(connection, firsts)
    tokens = {token for name in chain(*names.values()) for token in name.split(" ")}
    rows = keywords.passages_with(connection, tokens, MOST_WITH_TOKEN)
    sets = {token: frozenset(of_token.tolist()) for token, of_token in rows.items()}
    links: dict[tuple[int, int], tuple[float, str]] = {}
    for first in firsts:
        for name in names.get(first, ()):
            of_name = name.split(" ")
            rare = [sets[token] for token in of_name if token in sets]
            if not rare or question.weights.keys() >= {*of_name}:
                continue
            with_name = frozenset.intersection(*rare)
            if not 1 < len(with_name) <= MOST_WITH_NAME:
                continue
            link = (1 - math.log(len(with_name)) / math.log(question.passages), name)
            for second in with_name - {first}:
                links[first, second] = max(links.get((first, second), link), link)
    return links


def _led(
    paths: Sequence[Path], ids: Mapping[int, str], scores: Mapping[str, float], least: float
) -> list[Led]:
    """The passages that are led to and gain by it, best first.

    Args:
        paths: What leads to them.
        ids: The passages' ids by their rows.
        scores: The scores of those that the question found, by id.
        least: The score that others have before.
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
    return sorted(best.values(), key=lambda led: -led.score)[:LED_PASSAGES]


def _with_units(
    connection: sqlite3.Connection,
    led: Sequence[Led],
    question: _Question,
    granularity: Sequence[str],
    hits: Sequence[PassageHit],
) -> list[PassageHit]:
    """Passages that are led to, each with the unit of it that says most, and with that which led there.

    Where these two units together say more of the question than any unit of the best passages, a passage
    stands where its path puts it. Any other stands behind the best passages, and its unit counts half.
    """
    best_hits = hits[:BEST_PASSAGES]
    passage_ids = {hit.passage_id for hit in best_hits}
    for target in led:
        passage_ids |= {target.first_id, target.passage_id}
    units = _Units(connection, passage_ids, granularity, question.weights)
    shares = [units.share([unit]) for hit in best_hits for unit in units.of(hit.passage_id)]
    least_share = max([LEAST_SHARE, *(share + ADDED_SHARE for share in shares)])
    own_hits = {hit.passage_id: hit for hit in hits}
    passages = []
    for target in led:
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
            matched = _with_led(matched, best, unit_score, led_by)
        passages.append(PassageHit(target.passage_id, score, tuple(matched)))
    return passages


def _with_led(
    matched: Sequence[FoundNode], unit: NodeRow, score: float, led_by: str
) -> list[FoundNode]:
    """The units that found a passage, best first, with the one that was led to, which may be among them."""
    units = {node.id: node for node in matched}
    led = FoundNode(unit.id, unit.granularity, unit.passage_id, score, led_by=led_by)
    if unit.id in units:
        node = units[unit.id]
        led = node._replace(score=max(node.score, score), led_by=led_by)
    units[unit.id] = led
    return sorted(units.values(), key=lambda node: -node.score)


class _Units:
    """The units of some passages that are searched and state something.

    Args:
        connection: A connection that is reading.
        passage_ids: The passages.
        granularity: What is searched.
        weights: How much each word of the question counts.
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
        """The units of a passage."""
        return self._by_passage[passage_id]

    def of_path(self, led: Led) -> tuple[NodeRow | None, NodeRow | None]:
        """The unit that leads on, and the one that is led to: it has the name, and says most of what is
        asked. None where a passage has no units."""
        link = dict.fromkeys(led.link.split(" "), 1.0)
        return self._best(led.first_id, link), self._best(led.passage_id, {**self._weights, **link})

    def _best(self, passage_id: str, weights: Mapping[str, float]) -> NodeRow | None:
        """The unit that has most of some words, the first of equal ones."""
        return max(
            self._by_passage[passage_id],
            key=lambda unit: _sum_of(weights, self._tokens.get(unit.row, set())),
            default=None,
        )

    def share(self, units: Iterable[NodeRow | None]) -> float:
        """The share of the question's words that some units have together."""
        tokens: set[str] = set()
        for unit in units:
            if unit is not None:
                tokens |= self._tokens.get(unit.row, set())
        return _sum_of(self._weights, tokens)


def _sum_of(weights: Mapping[str, float], tokens: Collection[str]) -> float:
    return sum(weight for token, weight in weights.items() if token in tokens)
