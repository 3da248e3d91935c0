"""A second hop: from the passages that a question found to others, by a name that both have; no LLM."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
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
from llama_pack_densex.retrieval.search import HEAD_PASSAGES, UnitSearch, rows_passing, without_asking
from llama_pack_densex.text.tokens import content_words

# Measured on 60 questions of MuSiQue (benchmarks/RESULTS.md), where half or twice as much of each finds as
# many of the supporting passages, but for a question or two.
FIRST_PASSAGES = 8
"""The best passages of the first hop, whose names are followed."""

MOST_WITH_NAME = 40
"""Passages that have a name, at most: one that more have leads everywhere."""

MOST_WITH_TOKEN = 200
"""The same of a token of a name: more frequent ones are left out of it, as New of New Delhi."""

PATH_SHARE = 0.75
"""What a path that says all of the question adds to a passage: a share of the lead of its first passage."""

LED_PASSAGES = 10
"""Passages that are led to, at most."""

ANSWERED_SHARE = 0.8
"""The share of a question's words that makes a second hop idle where one passage has them: so it is of 2 % of
MuSiQue's questions, of half of SQuAD's and of 79 % of JSQuAD's."""


class TwoHopSearch(UnitSearch):
    """A search of units that goes on from the passages that a question found to those that they lead to.

    "Who led the society that publishes the journal?" finds the journal, whose passage names the society,
    whose own passage answers. Paths of two passages are joined by a name, as PropRAG joins propositions (arXiv
    2504.18070). A path counts by the share of the question's words that one of its passages has, by the rarity
    of the name, and by the score of its first passage. The second one stands behind the first, so that what a
    question finds first remains so.

    A question most of whose words one passage has needs no second hop, and is left as it is.
    """

    def search(self, query: QueryBundle, k: int) -> SearchResult:
        """Search once; see `UnitSearch.search`."""
        result = super().search(query, k)
        return (
            self._index.reading(lambda: self._lead_on(query.query_str, result)) if result.passages else result
        )

    def _lead_on(self, question: str, result: SearchResult) -> SearchResult:
        words = self._index.words
        assert words is not None, "an index has words where there are two hops"
        database = self._index.searched_by_words()
        passing = self._index.store.passing(self._filters)
        first_ids = [hit.passage_id for hit in result.passages[:FIRST_PASSAGES]]
        with database.reading() as connection:
            asked = _Asked.read(connection, content_words(without_asking(words.tokens(question))))
            firsts = {row.row: row.id for row in rows_with_ids(connection, first_ids)}
            if asked.has_words(np.array([*firsts], np.int64)).mean(axis=0).max() >= ANSWERED_SHARE:
                return result
            allowed = None if passing is None else rows_passing(passing, database, connection)
            scores = {hit.passage_id: hit.score for hit in result.passages}
            paths = list(_find_paths(connection, asked, [*firsts], allowed))
            seconds = {
                row.row: row.id for row in read_rows(connection, {path.second for path in paths}).values()
            }
            led = _led(paths, firsts | seconds, scores, result.passages[:HEAD_PASSAGES][-1].score)
            found = _with_units(connection, led, asked, self._granularity, result.passages)
        passages = {hit.passage_id: hit for hit in result.passages} | {hit.passage_id: hit for hit in found}
        ordered = sorted(passages.values(), key=lambda hit: -hit.score)
        return SearchResult(tuple(ordered), result.exhausted, result.coverage)


class Path(NamedTuple):
    """A path of two passages.

    Args:
        first: The row of a passage that the question found.
        second: The row of the passage that it leads to.
        link: The name that joins them, as its tokens with spaces between them.
        weight: The share of the question's words that one of them has, times the rarity of the name; from 0 to 1.
    """

    first: int
    second: int
    link: str
    weight: float


class Led(NamedTuple):
    """A passage that is led to: by the best of the paths, and with the score that it has by that."""

    path: Path
    first_id: str
    passage_id: str
    score: float


class _Asked(NamedTuple):
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
    def read(cls, connection: sqlite3.Connection, tokens: set[str]) -> _Asked:
        passages = keywords.count_passages(connection)
        rows = keywords.passages_with(connection, tokens)
        frequencies = {token: len(rows.get(token, ())) for token in tokens}
        rarities = {
            token: float(np.log(1 + (passages - frequency + 0.5) / (frequency + 0.5)))
            for token, frequency in frequencies.items()
        }
        total = sum(rarities.values())
        return cls(rows, {token: rarity / total for token, rarity in rarities.items()}, passages)

    def has_words(self, passages: Rows) -> npt.NDArray[np.bool_]:
        """Whether the passages, a column each, have the words, a row each."""
        nowhere = np.empty(0, np.int64)
        return np.array([np.isin(passages, self.rows.get(token, nowhere)) for token in self.weights])


def _find_paths(
    connection: sqlite3.Connection, asked: _Asked, firsts: Sequence[int], allowed: Rows | None
) -> Iterator[Path]:
    """The paths from some passages, of each pair of passages that by the rarest name.

    Args:
        connection: A connection that is reading.
        asked: What the question asks for; names that it has itself lead nowhere new.
        firsts: The rows of the passages.
        allowed: The rows that may be led to, in order; None means all.
    """
    names = keywords.read_names(connection, firsts)
    tokens = {token for name in chain(*names.values()) for token in name.split(" ")}
    rows = keywords.passages_with(connection, tokens, MOST_WITH_TOKEN)
    links: dict[tuple[int, int], tuple[float, str]] = {}
    for first in firsts:
        for name in names.get(first, ()):
            if asked.weights.keys() >= {*name.split(" ")}:
                continue
            with_name = _rows_with_all([rows[token] for token in name.split(" ") if token in rows])
            if not 1 < len(with_name) <= MOST_WITH_NAME:
                continue
            rarity = 1 - float(np.log(len(with_name)) / np.log(asked.passages))
            for second in with_name.tolist():
                links[first, second] = max(links.get((first, second), (0.0, "")), (rarity, name))
    pairs = [pair for pair in links if pair[0] != pair[1]]
    if not pairs:
        return
    starts, ends = np.array(pairs, np.int64).T
    shares = [*asked.weights.values()] @ (asked.has_words(starts) | asked.has_words(ends))
    is_allowed = np.ones(len(pairs), bool) if allowed is None else np.isin(ends, allowed)
    for pair, share, passes in zip(pairs, shares.tolist(), is_allowed.tolist(), strict=True):
        rarity, name = links[pair]
        if passes:
            yield Path(*pair, name, share * rarity)


def _rows_with_all(rows: Sequence[Rows]) -> Rows:
    if not rows:
        return np.empty(0, np.int64)
    return reduce(lambda left, right: np.intersect1d(left, right, assume_unique=True), rows)


def _led(
    paths: Sequence[Path], ids: Mapping[int, str], scores: Mapping[str, float], least: float
) -> list[Led]:
    """The passages that are led to and gain by it, best first.

    Args:
        paths: What leads to them.
        ids: The passages' ids by their rows.
        scores: The scores of those that the question found, by id.
        least: The score of the last that counts, which others have too.
    """
    best: dict[str, Led] = {}
    for path in paths:
        first_id = ids[path.first]
        second_id = ids[path.second]
        score = scores.get(second_id, least)
        gain = PATH_SHARE * path.weight * (scores[first_id] - least)
        gained = min(score + gain, scores[first_id])
        known = best[second_id].score if second_id in best else score
        if gained > known or (second_id not in scores and second_id not in best):
            best[second_id] = Led(path, first_id, second_id, gained)
    return sorted(best.values(), key=lambda led: -led.score)[:LED_PASSAGES]


def _with_units(
    connection: sqlite3.Connection,
    led: Sequence[Led],
    asked: _Asked,
    granularity: Sequence[str],
    found: Sequence[PassageHit],
) -> list[PassageHit]:
    """Passages that are led to with the units that are read of them: that which says most, and who led there."""
    rows = units_of_passages(
        connection, {passage for one in led for passage in (one.first_id, one.passage_id)}
    )
    units: defaultdict[str, list[NodeRow]] = defaultdict(list)
    for row in rows:
        if row.granularity in granularity and row.granularity != "question":
            units[row.passage_id].append(row)
    tokens = {
        row: {*words.split(" ")}
        for row, _, words in keywords.read_words(connection, [row.row for row in rows])
    }
    hits = {hit.passage_id: hit.units for hit in found}
    passages = []
    for one in led:
        name = dict.fromkeys(one.path.link.split(" "), 1.0)
        leading = _best_unit(units[one.first_id], tokens, name)
        best = _best_unit(units[one.passage_id], tokens, {**asked.weights, **name})
        others = [unit for unit in hits.get(one.passage_id, ()) if best is None or unit.id != best.id]
        own = []
        if best is not None:
            led_by = one.first_id if leading is None else leading.id
            own = [FoundNode(best.id, best.granularity, one.passage_id, one.score, None, led_by)]
        passages.append(PassageHit(one.passage_id, one.score, (*own, *others)))
    return passages


def _best_unit(
    units: Sequence[NodeRow], tokens: Mapping[int, set[str]], weights: Mapping[str, float]
) -> NodeRow | None:
    """The unit that has most of some words, the first of equal ones; None where there is none."""
    shares = [sum(weights[token] for token in weights.keys() & tokens.get(unit.row, ())) for unit in units]
    return units[int(np.argmax(shares))] if units else None
