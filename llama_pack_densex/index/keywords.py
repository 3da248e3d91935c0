"""Keyword search (BM25) over our own tokens, in SQLite tables that commit together with the nodes.

The posting list of a token is stored in blocks of neighbouring rows, with six bytes per entry, which numpy
reads without conversion. Adding or removing a document changes only the blocks of that document's tokens.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from sqlite3 import Connection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llama_index.core.utils import iter_batch

from llama_pack_densex.index.database import select_by_row, select_by_text

PASSAGES = 0
"""The field of the passages' texts, which are searched."""
UNITS = 1
"""The field of the texts of propositions, sentences and questions."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS names (row INTEGER PRIMARY KEY, names TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS words (row INTEGER PRIMARY KEY, field INTEGER NOT NULL, words TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS postings (
    token TEXT NOT NULL,
    field INTEGER NOT NULL,
    block INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (token, field, block)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frequencies (
    token TEXT NOT NULL,
    field INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    PRIMARY KEY (token, field)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (
    field INTEGER PRIMARY KEY,
    texts INTEGER NOT NULL,
    tokens INTEGER NOT NULL
);
"""

_K1 = 1.2
_B = 0.75  # both are the defaults of Lucene and Elasticsearch
_ROWS_A_BLOCK = 4_096
_ENTRY = np.dtype([("place", "<u2"), ("count", "<u2"), ("length", "<u2")])
_pack_entry = struct.Struct("<HHH").pack
_KEYS_A_QUERY = 300  # each key binds three values
_TOKENS_A_QUERY = 100  # whose posting lists are in memory together
_FEW_PLACES = 10  # comparing this few one by one takes a tenth of the time of `np.isin`
_LARGEST_COUNT = 65_535  # of occurrences and of tokens, in the 16 bits that an entry has for each

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Block = tuple[str, int, int]
"""The token, field and number of a block of a posting list."""


class RowWords(NamedTuple):
    """The tokens of a row, separated by spaces, and the field that they belong to."""

    row: int
    field: int
    words: str


class _Counts(NamedTuple):
    """The number of texts and tokens in each field, and the number of texts that contain each token."""

    texts: Counter[int]
    tokens: Counter[int]
    frequencies: Counter[tuple[str, int]]

    @classmethod
    def of(cls, rows: Iterable[RowWords]) -> _Counts:
        counts = cls(Counter(), Counter(), Counter())
        for _, field, words in rows:
            tokens = _tokens_in(words)
            counts.texts[field] += 1
            counts.tokens[field] += len(tokens)
            counts.frequencies.update((token, field) for token in set(tokens))
        return counts

    def change(self, connection: Connection, by: int) -> None:
        """Add these counts to the database's (`by` is 1), or subtract them (`by` is -1)."""
        connection.executemany(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
            "texts = texts + excluded.texts, tokens = tokens + excluded.tokens",
            [(field, by * texts, by * self.tokens[field]) for field, texts in self.texts.items()],
        )
        connection.executemany(
            "INSERT INTO frequencies VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
            "texts = texts + excluded.texts",
            ((*key, by * self.frequencies[key]) for key in sorted(self.frequencies)),
        )


def add_words(connection: Connection, rows: Iterable[RowWords]) -> None:
    """Add the tokens of rows that have none yet."""
    rows = list(rows)
    entries: defaultdict[Block, bytearray] = defaultdict(bytearray)
    for row, field, words in rows:
        block, place = divmod(row, _ROWS_A_BLOCK)
        tokens = _tokens_in(words)
        length = min(len(tokens), _LARGEST_COUNT)
        for token, count in Counter(tokens).items():
            entries[token, field, block] += _pack_entry(place, min(count, _LARGEST_COUNT), length)
    connection.executemany("INSERT INTO words VALUES (?, ?, ?)", rows)
    # `||` concatenates blobs byte by byte, but its result is text
    connection.executemany(
        "INSERT INTO postings (token, field, block, entries) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "entries = CAST(entries || excluded.entries AS BLOB)",
        ((*key, entries[key]) for key in sorted(entries)),
    )
    _Counts.of(rows).change(connection, 1)


def remove_words(connection: Connection, rows: Collection[int]) -> None:
    """Remove the tokens and the names of the given rows."""
    removed = [*read_words(connection, rows)]
    places: defaultdict[Block, list[int]] = defaultdict(list)
    for row, field, words in removed:
        block, place = divmod(row, _ROWS_A_BLOCK)
        for token in set(_tokens_in(words)):
            places[token, field, block].append(place)
    _remove_entries(connection, places)
    select_by_row(connection, "DELETE FROM words WHERE row IN", rows)
    select_by_row(connection, "DELETE FROM names WHERE row IN", rows)
    counts = _Counts.of(removed)
    counts.change(connection, -1)
    connection.executemany(
        "DELETE FROM frequencies WHERE token = ? AND field = ? AND texts = 0", counts.frequencies
    )


def _remove_entries(connection: Connection, places: Mapping[Block, Sequence[int]]) -> None:
    """Remove entries from posting lists.

    Args:
        connection: A connection inside a write transaction.
        places: For each block to change, the places in it whose entries are removed.
    """
    changed: list[tuple[bytes, str, int, int]] = []
    emptied: list[Block] = []
    for keys in iter_batch(sorted(places), _KEYS_A_QUERY):
        values = ", ".join(["(?, ?, ?)"] * len(keys))
        # CROSS JOIN makes SQLite look up each key in turn
        select = (
            f"WITH keys (token, field, block) AS (VALUES {values}) "
            "SELECT token, field, block, entries FROM keys CROSS JOIN postings USING (token, field, block)"
        )
        for token, field, block, content in connection.execute(
            select, list(chain.from_iterable(keys))
        ):
            remaining = _without(np.frombuffer(content, _ENTRY), places[token, field, block])
            if len(remaining):
                changed.append((remaining.tobytes(), token, field, block))
            else:
                emptied.append((token, field, block))
    condition = "token = ? AND field = ? AND block = ?"
    connection.executemany(f"UPDATE postings SET entries = ? WHERE {condition}", changed)
    connection.executemany(f"DELETE FROM postings WHERE {condition}", emptied)


def _without(entries: npt.NDArray[Any], places: Sequence[int]) -> npt.NDArray[Any]:
    if len(places) > _FEW_PLACES:
        return entries[~np.isin(entries["place"], places)]
    for place in places:
        entries = entries[entries["place"] != place]
    return entries


def clear_words(connection: Connection) -> None:
    """Remove all tokens and names."""
    for table in ("words", "names", "postings", "frequencies", "totals"):
        connection.execute(f"DELETE FROM {table}")


def inconsistency(connection: Connection) -> str:
    """Return a description of the first contradiction between the tables; empty if there is none."""
    rows = map(RowWords._make, connection.execute("SELECT row, field, words FROM words"))
    counts = _Counts.of(rows)
    texts = Counter(dict(connection.execute("SELECT field, texts FROM totals")))
    tokens = Counter(dict(connection.execute("SELECT field, tokens FROM totals")))
    if counts.texts != texts or counts.tokens != tokens:
        return "the counts of the keyword index are wrong"
    in_postings = f"SELECT token, field, sum(length(entries)) / {_ENTRY.itemsize} FROM postings"
    for select in ("SELECT * FROM frequencies", f"{in_postings} GROUP BY token, field"):
        frequencies = {
            (token, field): number for token, field, number in connection.execute(select)
        }
        if frequencies != counts.frequencies:
            return "the keyword index is incomplete"
    return ""


def read_words(connection: Connection, rows: Collection[int]) -> Iterable[RowWords]:
    """Return the tokens of the given rows; rows without any are left out."""
    return map(
        RowWords._make,
        select_by_row(connection, "SELECT row, field, words FROM words WHERE row IN", rows),
    )


def add_names(connection: Connection, names: Mapping[int, Iterable[str]]) -> None:
    """Add the names that passages mention.

    Args:
        connection: A connection inside a write transaction.
        names: For each passage's row, its names; a name is its tokens, separated by spaces.
    """
    lines = ((row, "\n".join(of_row)) for row, of_row in names.items())
    connection.executemany("INSERT INTO names VALUES (?, ?)", lines)


def read_names(connection: Connection, rows: Collection[int]) -> dict[int, list[str]]:
    """Return the names that `add_names` stored for the given rows."""
    names = select_by_row(connection, "SELECT row, names FROM names WHERE row IN", rows)
    return {row: lines.split("\n") for row, lines in names}


def passages_with(
    connection: Connection, tokens: Iterable[str], most: int | None = None
) -> dict[str, Rows]:
    """Return, for each token, the rows of the passages that contain it, in ascending order.

    Args:
        connection: A connection inside a read transaction.
        tokens: The tokens to look up; those that no passage contains are left out.
        most: The largest number of passages that a token may be in before it is left out; None means no
            limit.
    """
    frequencies = _frequencies(connection, PASSAGES, tokens)
    rare = [token for token, texts in frequencies.items() if most is None or texts <= most]
    select = f"SELECT token, block, entries FROM postings WHERE field = {PASSAGES} AND token IN"
    blocks: defaultdict[str, list[Rows]] = defaultdict(list)
    for token, block, content in select_by_text(connection, select, rare):
        places = np.frombuffer(content, _ENTRY)["place"].astype(np.int64)
        blocks[token].append(block * _ROWS_A_BLOCK + places)
    return {token: np.sort(np.concatenate(rows), kind="stable") for token, rows in blocks.items()}


def count_passages(connection: Connection) -> int:
    """Return the number of passages that have tokens."""
    return _totals(connection, PASSAGES)[0]


def best_rows(
    connection: Connection,
    weights: Mapping[str, float],
    limit: int,
    allowed: Rows | None = None,
) -> tuple[Rows, Scores, bool]:
    """Return the passages with the best BM25 scores, best first.

    Args:
        connection: A connection inside a read transaction.
        weights: The tokens of a question, with their weights.
        limit: The number of rows; more are returned if they score the same as the last one.
        allowed: The rows that may be returned, in ascending order; None means all.

    Returns:
        The rows, their scores, and whether other passages have a score too.
    """
    occurrences = [*_occurrences(connection, PASSAGES, weights)]
    if not occurrences:
        return np.empty(0, np.int64), np.empty(0), False
    rows, places = np.unique(np.concatenate([rows for rows, _ in occurrences]), return_inverse=True)
    all_scores = np.concatenate([scores for _, scores in occurrences])
    scores = np.bincount(places, all_scores).astype(np.float64)
    if allowed is not None:
        is_allowed = np.isin(rows, allowed, assume_unique=True)
        rows = rows[is_allowed]
        scores = scores[is_allowed]
    count = len(rows)
    if count > limit:
        least = np.partition(scores, count - limit)[count - limit]
        rows = rows[scores >= least]
        scores = scores[scores >= least]
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order], count > len(rows)


def scores_of_units(
    connection: Connection, weights: Mapping[str, float], units: Collection[int]
) -> dict[int, float]:
    """Return the BM25 scores of the given units; those that contain none of the tokens are left out.

    Args:
        connection: A connection inside a read transaction.
        weights: The tokens of a question, with their weights.
        units: The rows of the units.
    """
    unit_rows = np.array(sorted(units), np.int64)
    sums = np.zeros(len(unit_rows))
    for rows, scores in _occurrences(connection, UNITS, weights, unit_rows):
        places = np.minimum(np.searchsorted(unit_rows, rows), len(unit_rows) - 1)
        is_requested = unit_rows[places] == rows
        sums += np.bincount(places[is_requested], scores[is_requested], len(unit_rows))
    has_tokens = sums > 0
    return dict(zip(unit_rows[has_tokens].tolist(), sums[has_tokens].tolist(), strict=True))


def tokens_with(connection: Connection, characters: Collection[str]) -> list[str]:
    """Return the tokens of passages that contain any of the characters."""
    select = f"SELECT token FROM frequencies WHERE field = {PASSAGES} AND instr(token, ?)"
    tokens: dict[str, None] = {}
    for character in sorted(characters):
        tokens |= dict.fromkeys(token for (token,) in connection.execute(select, (character,)))
    return list(tokens)


def tokens_beginning(connection: Connection, beginning: str) -> list[str]:
    """Return the tokens of passages that begin in a certain way."""
    select = f"SELECT token FROM frequencies WHERE field = {PASSAGES} AND token >= ? AND token < ?"
    return [token for (token,) in connection.execute(select, (beginning, beginning + "\U0010ffff"))]


def _occurrences(
    connection: Connection,
    field: int,
    weights: Mapping[str, float],
    requested: Rows | None = None,
) -> Iterator[tuple[Rows, Scores]]:
    """Yield the rows that contain the tokens, once per token, with what that token adds to the row's score.

    Each yielded pair of arrays covers one batch of tokens.

    Args:
        connection: A connection inside a read transaction.
        field: The field to search.
        weights: The tokens, with their weights.
        requested: Search only the blocks of these rows, which may hold other rows as well; None means all.
    """
    texts, all_tokens = _totals(connection, field)
    if not all_tokens:
        return
    in_blocks = ""
    blocks: list[str] = []
    if requested is not None:
        in_blocks = "AND block IN (SELECT value FROM json_each(?))"
        blocks = [json.dumps(np.unique(requested // _ROWS_A_BLOCK).tolist())]
    for batch in iter_batch(weights, _TOKENS_A_QUERY):
        condition = f"WHERE field = ? AND token IN ({', '.join('?' * len(batch))})"
        select = f"SELECT token, block, entries FROM postings {condition} {in_blocks}"
        postings = connection.execute(select, (field, *batch, *blocks)).fetchall()
        if not postings:
            continue
        entries = np.frombuffer(b"".join(content for _, _, content in postings), _ENTRY)
        sizes = [len(content) // _ENTRY.itemsize for _, _, content in postings]
        rows = (
            np.repeat([block * _ROWS_A_BLOCK for _, block, _ in postings], sizes) + entries["place"]
        )
        weight = np.repeat([weights[token] for token, _, _ in postings], sizes)
        counts = entries["count"].astype(np.float64)
        lengths = entries["length"] * (texts / all_tokens)
        yield rows, weight * counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * lengths))


def rarities(connection: Connection, field: int, tokens: Iterable[str]) -> dict[str, float]:
    """Return the inverse document frequency of each token in a field; a token no text contains has the
    highest."""
    tokens = [*tokens]
    texts, _ = _totals(connection, field)
    frequencies = _frequencies(connection, field, tokens)
    return {token: rarity(texts, frequencies.get(token, 0)) for token in tokens}


def rarity(texts: int, frequency: float) -> float:
    """Return BM25's inverse document frequency of a token that `frequency` of the `texts` texts contain."""
    return math.log(1 + (texts - frequency + 0.5) / (frequency + 0.5))


def _frequencies(connection: Connection, field: int, tokens: Iterable[str]) -> dict[str, int]:
    """Return, for each token that occurs in a field, the number of its texts that contain it."""
    select = f"SELECT token, texts FROM frequencies WHERE field = {field} AND token IN"
    return dict(select_by_text(connection, select, tokens))


def _totals(connection: Connection, field: int) -> tuple[int, int]:
    """Return the number of texts and of tokens in a field."""
    select = "SELECT texts, tokens FROM totals WHERE field = ?"
    return connection.execute(select, (field,)).fetchone() or (0, 0)


def _tokens_in(words: str) -> list[str]:
    return words.split(" ") if words else []
