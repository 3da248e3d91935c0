"""Keyword search (BM25) of passages, and of the matching units of each."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from llama_pack_densex.index import keywords
from llama_pack_densex.index.database import Database
from llama_pack_densex.index.filters import Passing
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.index.rows import NodeRow, hits_in_passages, read_rows, rows_with_ids
from llama_pack_densex.index.words import Words
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult
from llama_pack_densex.text.clauses import clause_tokens, references_in
from llama_pack_densex.text.tokens import (
    FORM_SHARE,
    IS_CJK,
    beginnings_of_forms,
    content_words,
    forms_among,
    is_foreign,
    search_tokens,
)

NOTHING = SearchResult((), exhausted=True, coverage=0.0)
"""An empty result; also that of an empty question, in which there is nothing to search for or to embed."""


CONTEXT_WEIGHT = 0.2
"""How much a word of earlier questions counts, where one of the newest question counts 1.

With them, the right passage is among the first five for 88 instead of 83 % of the follow-ups in IBM's MTRAG
and MTRAG-UN; from 0.15 to 0.3 the results are alike."""

# How often the number of a clause counts in a question, so that the clause itself comes before the passages
# that refer to it.
_TIMES_OF_CLAUSE = 3


class _Scored(NamedTuple):
    """A passage and its BM25 score."""

    row: NodeRow
    score: float


@dataclass(frozen=True)
class KeywordSearch:
    """A BM25 search of passages that also ranks the units of each passage among themselves.

    BM25 is the textbook's, with k1 = 1.2 and b = 0.75, over our tokens.

    Args:
        database: The database with the tokens of the nodes.
        words: Splits a question into tokens.
        granularity: The granularities of the units to return.
    """

    database: Database
    words: Words
    granularity: Collection[str]

    def find(
        self, question: str, k: int, passing: Passing | None = None, context: str = ""
    ) -> SearchResult:
        """Search once.

        Args:
            question: The question.
            k: The maximum number of passages to return.
            passing: The passages to search; None means all.
            context: Earlier questions of the conversation; their words count less.

        Returns:
            The passages, best first; equal scores are ordered by id, and those of a passage's units in
            reading order.
        """
        tokens = search_tokens(question, self.words.tokens)
        for path in references_in(question):
            tokens += _TIMES_OF_CLAUSE * clause_tokens(path)
        single = self._single_characters(tokens)
        with self.database.reading() as connection:
            allowed = rows_passing(passing, self.database, connection)
            pairs = _pairs_with(connection, tokens, single, allowed)
            searched: dict[str, float] = {**Counter([*tokens, *pairs])}
            if is_foreign(question):
                searched = _forms_of(connection, tokens) | searched
            if context:
                earlier = search_tokens(context, self.words.tokens)
                searched = dict.fromkeys(earlier, CONTEXT_WEIGHT) | searched
            rarities = keywords.rarities(connection, keywords.PASSAGES, searched)
            weights = _weights(searched, rarities)
            passages, has_more = _best_passages(connection, weights, k, allowed)
            if not passages:
                return NOTHING
            units = self._matching_units(connection, searched, passages)
            content = {
                token: rarities[token]
                for token in content_words(question, self.words.tokens)
                if token in rarities
            }
            coverage = _coverage(connection, content, single, passages[0].row.row)
        hits = tuple(
            PassageHit(passage.id, score, tuple(units[passage.id])) for passage, score in passages
        )
        return SearchResult(hits, not has_more, coverage)

    def _single_characters(self, tokens: Sequence[str]) -> set[str]:
        """Return the one-character tokens of scripts whose words are searched by pairs of characters."""
        if not self.words.pairs:
            return set()
        return {token for token in tokens if len(token) == 1 and IS_CJK.match(token)}

    def _matching_units(
        self,
        connection: sqlite3.Connection,
        tokens: Mapping[str, float],
        passages: Sequence[_Scored],
    ) -> Mapping[str, list[FoundNode]]:
        """Return the units of some passages that have any of the tokens, by passage id, best first."""
        units: defaultdict[str, list[FoundNode]] = defaultdict(list)
        if {*self.granularity} == {"passage"}:
            return units
        hits = hits_in_passages(connection, [passage.row.id for passage in passages])
        weights = _weights(tokens, keywords.rarities(connection, keywords.UNITS, tokens))
        scores = keywords.scores_of_units(connection, weights, hits)
        for row in sorted(scores, key=lambda row: (-scores[row], row)):
            unit_id, granularity, passage_id = hits[row]
            if granularity in self.granularity:
                units[passage_id].append(FoundNode(unit_id, granularity, passage_id, scores[row]))
        return units


def _forms_of(connection: sqlite3.Connection, tokens: Sequence[str]) -> dict[str, float]:
    """Return how much other forms of a question's words count, of those that passages contain."""
    forms: list[str] = []
    for token in tokens:
        for beginning in beginnings_of_forms(token):
            forms += forms_among(token, keywords.tokens_beginning(connection, beginning))
    return dict.fromkeys(forms, FORM_SHARE)


def rows_passing(
    passing: Passing | None, database: Database, connection: sqlite3.Connection
) -> keywords.Rows | None:
    """Return the rows of the passages that pass the filters, in the keyword search's database."""
    if not passing:
        return None
    if passing.database is database:
        return passing.rows
    return np.array(sorted(row.row for row in rows_with_ids(connection, passing.ids)), np.int64)


def share_held(rarities: Mapping[str, float], tokens: Collection[str]) -> float:
    """Return the share of the words that are among the tokens, each word weighted by its rarity."""
    return weight_of(tokens, rarities) / (sum(rarities.values()) or 1.0)


def weight_of(tokens: Collection[str], weights: Mapping[str, float]) -> float:
    """Return the sum of the weights of those words that are among the tokens."""
    return sum(weight for word, weight in weights.items() if word in tokens)


def _pairs_with(
    connection: sqlite3.Connection,
    tokens: Sequence[str],
    single: Collection[str],
    allowed: keywords.Rows | None,
) -> list[str]:
    """Return the pairs that contain the single characters, if a question's other tokens find nothing."""
    longer = [token for token in tokens if token not in single]
    if not single:
        return []
    weights = _weights(Counter(longer), keywords.rarities(connection, keywords.PASSAGES, longer))
    if _best_passages(connection, weights, 1, allowed)[0]:
        return []
    return [token for token in keywords.tokens_with(connection, single) if len(token) == 2]


def _best_passages(
    connection: sqlite3.Connection,
    weights: Mapping[str, float],
    k: int,
    allowed: keywords.Rows | None,
) -> tuple[list[_Scored], bool]:
    """Return the best passages, and whether there are more."""
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


def _weights(times: Mapping[str, float], rarities: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each token of a question; one that occurs twice counts twice."""
    return {token: count * rarities[token] for token, count in times.items()}


def _coverage(
    connection: sqlite3.Connection, content: Mapping[str, float], single: Collection[str], row: int
) -> float:
    """Return the share of a question's words that a passage holds, each weighted by its rarity.

    Args:
        connection: A connection in a read transaction.
        content: The rarity of each of the question's content words.
        single: The single characters among them, which count if they are in a pair.
        row: The passage's row.
    """
    (passage,) = keywords.read_words(connection, [row])
    in_pairs = {character for character in single if character in passage.words}
    return share_held(content, in_pairs.union(passage.words.split(" ")))
