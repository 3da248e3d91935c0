"""Keyword search (BM25): passages by their words, and the units of each that have them."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from llama_pack_densex.index import keywords
from llama_pack_densex.index.database import Database
from llama_pack_densex.index.filters import Passing
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.index.rows import NodeRow, read_rows, rows_with_ids, units_of_passages
from llama_pack_densex.index.words import Words
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult
from llama_pack_densex.text.tokens import IS_CJK, content_words, tokenize

NOTHING = SearchResult((), exhausted=True, coverage=0.0)
"""What an empty question finds, in which there is nothing to search for or to embed."""

# Japanese words that ask, as English stop words do: rare in documents, they would find those that ask
# something else.
_ASKING = frozenset(
    tokenize(
        "とは何ですか 何でしょうか 何の 何が 何を 何に 何は ますか どのくらいですか どれくらい どのように "
        "どうすれば "
        "どうやって どんな どこですか いつですか なぜですか だれですか 誰ですか いくらですか いくつですか "
        "てください"
    )
)


class _Scored(NamedTuple):
    """A passage, and its score by BM25."""

    row: NodeRow
    score: float


@dataclass(frozen=True)
class KeywordSearch:
    """Finds passages by BM25, and ranks the units of each among themselves.

    BM25 is the textbook's, with k1 1.2 and b 0.75, over our tokens.

    Args:
        database: Has the tokens of nodes.
        words: How a question is split.
        granularity: The granularities of the units to return.
    """

    database: Database
    words: Words
    granularity: Collection[str]

    def find(self, question: str, k: int, passing: Passing | None = None) -> SearchResult:
        """Search once.

        Args:
            question: The question.
            k: How many passages to return at most.
            passing: The passages to search; None means all.

        Returns:
            The passages, of equal ones first that with the smaller id; of their units, equal ones in reading
            order.
        """
        tokens = without_asking(self.words.tokens(question))
        single = self._single_characters(tokens)
        with self.database.reading() as connection:
            allowed = None if passing is None else rows_passing(passing, self.database, connection)
            searched = [*tokens, *_hiding(connection, tokens, single, allowed)]
            rarities = keywords.rarities(connection, keywords.PASSAGES, searched)
            passages, has_more = _best_passages(
                connection, _weights(searched, rarities), k, allowed
            )
            if not passages:
                return NOTHING
            units = self._matching_units(connection, searched, passages)
            content = {token: rarities[token] for token in content_words(tokens)}
            coverage = _coverage(connection, content, single, passages[0].row.row)
        hits = tuple(
            PassageHit(passage.id, score, tuple(units[passage.id])) for passage, score in passages
        )
        return SearchResult(hits, not has_more, coverage)

    def _single_characters(self, tokens: Sequence[str]) -> set[str]:
        """The tokens that are one character of a script whose words are searched by pairs of characters."""
        if not self.words.pairs:
            return set()
        return {token for token in tokens if len(token) == 1 and IS_CJK.match(token)}

    def _matching_units(
        self, connection: sqlite3.Connection, tokens: Sequence[str], passages: Sequence[_Scored]
    ) -> Mapping[str, list[FoundNode]]:
        """The units of some passages that have any of some tokens, by passage, best first."""
        units: defaultdict[str, list[FoundNode]] = defaultdict(list)
        if {*self.granularity} == {"passage"}:
            return units
        of_passages = units_of_passages(connection, [passage.row.id for passage in passages])
        searched = {unit.row: unit for unit in of_passages if unit.granularity in self.granularity}
        weights = _weights(tokens, keywords.rarities(connection, keywords.UNITS, tokens))
        scores = keywords.scores_of_units(connection, weights, searched)
        for row in sorted(scores, key=lambda row: (-scores[row], row)):
            unit = searched[row]
            units[unit.passage_id].append(
                FoundNode(unit.id, unit.granularity, unit.passage_id, scores[row])
            )
        return units


def without_asking(tokens: list[str]) -> list[str]:
    """The tokens of a question without those that only ask, where there are others."""
    return [token for token in tokens if token not in _ASKING] or tokens


def rows_passing(
    passing: Passing, database: Database, connection: sqlite3.Connection
) -> keywords.Rows:
    """The rows of the passages that pass, in the database that is searched by words."""
    if passing.database is database:
        return passing.rows
    return np.array(sorted(row.row for row in rows_with_ids(connection, passing.ids)), np.int64)


def share_held(rarities: Mapping[str, float], tokens: Collection[str]) -> float:
    """The share of some words that some tokens hold, each word counted as it is rare."""
    held = sum(rarity for word, rarity in rarities.items() if word in tokens)
    return held / (sum(rarities.values()) or 1.0)


def _hiding(
    connection: sqlite3.Connection,
    tokens: Sequence[str],
    single: Collection[str],
    allowed: keywords.Rows | None,
) -> list[str]:
    """The pairs that single characters may be hidden in, where no other token of a question is known."""
    longer = [token for token in tokens if token not in single]
    if not single:
        return []
    weights = _weights(longer, keywords.rarities(connection, keywords.PASSAGES, longer))
    if _best_passages(connection, weights, 1, allowed)[0]:
        return []
    return [token for token in keywords.tokens_with(connection, single) if len(token) == 2]


def _best_passages(
    connection: sqlite3.Connection,
    weights: Mapping[str, float],
    k: int,
    allowed: keywords.Rows | None,
) -> tuple[list[_Scored], bool]:
    """The best passages, and whether there are more."""
    if not weights or k <= 0:
        return [], False
    numbers, scores, has_more = keywords.best_rows(connection, weights, k, allowed)
    rows = read_rows(connection, numbers.tolist())
    passages = [
        _Scored(rows[number], score)
        for number, score in zip(numbers.tolist(), scores.tolist(), strict=True)
    ]
    passages.sort(key=lambda passage: (-passage.score, passage.row.id))
    return passages[:k], has_more or len(passages) > k


def _weights(tokens: Iterable[str], rarities: Mapping[str, float]) -> dict[str, float]:
    """What each token of a question counts: one that occurs twice counts twice."""
    return {token: times * rarities[token] for token, times in Counter(tokens).items()}


def _coverage(
    connection: sqlite3.Connection, content: Mapping[str, float], single: Collection[str], row: int
) -> float:
    """How much of a question a passage holds, each word as it is rare.

    Args:
        connection: A connection that is reading.
        content: The question's content words, and how rare each is.
        single: Single characters among them, which may be hidden in a pair.
        row: The passage's row.
    """
    (passage,) = keywords.read_words(connection, [row])
    in_pairs = {character for character in single if character in passage.words}
    return share_held(content, in_pairs.union(passage.words.split(" ")))
