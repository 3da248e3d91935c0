"""Keyword search (BM25) over our own tokens, in tables of an SQLite database that commit with all else in it.

For each token there are the rows that have it, in blocks of neighboring rows: six bytes an occurrence, which
numpy reads as they are stored. A document that is added or removed changes the blocks of its own tokens
alone.
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
"""The field of the texts that passages are found by."""
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
_B = 0.75  # both as Lucene and Elasticsearch have them
_ROWS_A_BLOCK = 4_096
_ENTRY = np.dtype([("place", "<u2"), ("count", "<u2"), ("length", "<u2")])
_pack_entry = struct.Struct("<HHH").pack
_KEYS_A_QUERY = 300  # of three values each
_TOKENS_A_QUERY = 100  # whose postings are in memory at once
_FEW = 10  # places, to look for which one by one takes a tenth of the time of `np.isin`
_MOST = 65_535  # that an entry can tell, of both

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Block = tuple[str, int, int]
"""The token, the field and the number of a block of postings: what a document changes lies together."""


class RowWords(NamedTuple):
    """The tokens of a row, with spaces between them, and the field that they are searched in."""

    row: int
    field: int
    words: str


class _Counts(NamedTuple):
    """How many texts and tokens some rows have in each field, and how many texts each token is in."""

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
        """Add them to those of the database, or take them away: `by` is 1 or -1."""
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
        length = min(len(tokens), _MOST)
        for token, count in Counter(tokens).items():
            entries[token, field, block] += _pack_entry(place, min(count, _MOST), length)
    connection.executemany("INSERT INTO words VALUES (?, ?, ?)", rows)
    # joined as texts, blobs become one, byte for byte
    connection.executemany(
        "INSERT INTO postings (token, field, block, entries) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "entries = CAST(entries || excluded.entries AS BLOB)",
        ((*key, entries[key]) for key in sorted(entries)),
    )
    _Counts.of(rows).change(connection, 1)


def remove_words(connection: Connection, rows: Collection[int]) -> None:
    """Remove the tokens of some rows, and their names."""
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
    """Remove the entries of some places from each of some blocks of postings."""
    changed: list[tuple[bytes, str, int, int]] = []
    emptied: list[Block] = []
    for keys in iter_batch(sorted(places), _KEYS_A_QUERY):
        values = ", ".join(["(?, ?, ?)"] * len(keys))
        # the keys first, each of which is then looked up
        select = (
            f"WITH keys (token, field, block) AS (VALUES {values}) "
            "SELECT token, field, block, entries FROM keys CROSS JOIN postings USING (token, field, block)"
        )
        for token, field, block, content in connection.execute(
            select, list(chain.from_iterable(keys))
        ):
            left = _without(np.frombuffer(content, _ENTRY), places[token, field, block])
            if len(left):
                changed.append((left.tobytes(), token, field, block))
            else:
                emptied.append((token, field, block))
    condition = "token = ? AND field = ? AND block = ?"
    connection.executemany(f"UPDATE postings SET entries = ? WHERE {condition}", changed)
    connection.executemany(f"DELETE FROM postings WHERE {condition}", emptied)


def _without(entries: npt.NDArray[Any], places: Sequence[int]) -> npt.NDArray[Any]:
    if len(places) > _FEW:
        return entries[~np.isin(entries["place"], places)]
    for place in places:
        entries = entries[entries["place"] != place]
    return entries


def clear_words(connection: Connection) -> None:
    """Remove all tokens and names."""
    for table in ("words", "names", "postings", "frequencies", "totals"):
        connection.execute(f"DELETE FROM {table}")


def inconsistency(connection: Connection) -> str:
    """In which way the tables contradict one another; empty if they do not."""
    rows = map(RowWords._make, connection.execute("SELECT row, field, words FROM words"))
    counts = _Counts.of(rows)
    texts = Counter(dict(connection.execute("SELECT field, texts FROM totals")))
    tokens = Counter(dict(connection.execute("SELECT field, tokens FROM totals")))
    if counts.texts != texts or counts.tokens != tokens:
        return "words are missing"
    in_postings = f"SELECT token, field, sum(length(entries)) / {_ENTRY.itemsize} FROM postings"
    for select in ("SELECT * FROM frequencies", f"{in_postings} GROUP BY token, field"):
        frequencies = {
            (token, field): number for token, field, number in connection.execute(select)
        }
        if frequencies != counts.frequencies:
            return "the index of words is not complete"
    return ""


def read_words(connection: Connection, rows: Collection[int]) -> Iterable[RowWords]:
    """The tokens of some rows; those that have none are left out."""
    return map(
        RowWords._make,
        select_by_row(connection, "SELECT row, field, words FROM words WHERE row IN", rows),
    )


def add_names(connection: Connection, names: Mapping[int, Iterable[str]]) -> None:
    """Add the names that passages mention, by row: of each its tokens, with spaces between them."""
    lines = ((row, "\n".join(of_row)) for row, of_row in names.items())
    connection.executemany("INSERT INTO names VALUES (?, ?)", lines)


def read_names(connection: Connection, rows: Collection[int]) -> dict[int, list[str]]:
    """What `add_names` added of some rows."""
    names = select_by_row(connection, "SELECT row, names FROM names WHERE row IN", rows)
    return {row: lines.split("\n") for row, lines in names}


def passages_with(
    connection: Connection, tokens: Iterable[str], most: int | None = None
) -> dict[str, Rows]:
    """Of each token the rows of the passages that have it, in order; tokens that more than `most` have are
    left out."""
    frequencies = _frequencies(connection, PASSAGES, tokens)
    rare = [token for token, texts in frequencies.items() if most is None or texts <= most]
    select = f"SELECT token, block, entries FROM postings WHERE field = {PASSAGES} AND token IN"
    blocks: defaultdict[str, list[Rows]] = defaultdict(list)
    for token, block, content in select_by_text(connection, select, rare):
        places = np.frombuffer(content, _ENTRY)["place"].astype(np.int64)
        blocks[token].append(block * _ROWS_A_BLOCK + places)
    return {token: np.sort(np.concatenate(rows), kind="stable") for token, rows in blocks.items()}


def count_passages(connection: Connection) -> int:
    """How many passages have words."""
    return _totals(connection, PASSAGES)[0]


def best_rows(
    connection: Connection,
    weights: Mapping[str, float],
    wanted: int,
    allowed: Rows | None = None,
) -> tuple[Rows, Scores, bool]:
    """The passages with the best scores by BM25, best first.

    Args:
        connection: A connection that is reading.
        weights: The tokens of a question, and what each counts.
        wanted: How many rows; further ones are returned where they are as good as the last.
        allowed: The rows that may be returned, in order; None means all.

    Returns:
        The rows, their scores, and whether there are others.
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
    if count > wanted:
        least = np.partition(scores, count - wanted)[count - wanted]
        rows = rows[scores >= least]
        scores = scores[scores >= least]
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order], count > len(rows)


def scores_of_units(
    connection: Connection, weights: Mapping[str, float], units: Collection[int]
) -> dict[int, float]:
    """The scores by BM25 of some units; those that have none of the tokens are left out.

    Args:
        connection: A connection that is reading.
        weights: The tokens of a question, and what each counts.
        units: Their rows.
    """
    wanted = np.array(sorted(units), np.int64)
    sums = np.zeros(len(wanted))
    for rows, scores in _occurrences(connection, UNITS, weights, wanted):
        places = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
        is_wanted = wanted[places] == rows
        sums += np.bincount(places[is_wanted], scores[is_wanted], len(wanted))
    has_tokens = sums > 0
    return dict(zip(wanted[has_tokens].tolist(), sums[has_tokens].tolist(), strict=True))


def tokens_with(connection: Connection, characters: Collection[str]) -> list[str]:
    """The tokens of passages that some characters are in."""
    select = f"SELECT token FROM frequencies WHERE field = {PASSAGES} AND instr(token, ?)"
    tokens: dict[str, None] = {}
    for character in sorted(characters):
        tokens |= dict.fromkeys(token for (token,) in connection.execute(select, (character,)))
    return list(tokens)


def _occurrences(
    connection: Connection,
    field: int,
    weights: Mapping[str, float],
    wanted: Rows | None = None,
) -> Iterator[tuple[Rows, Scores]]:
    """The rows that have some tokens, each once for each of its tokens, and what that adds to its score; some
    tokens at a time.

    Args:
        connection: A connection that is reading.
        field: Where.
        weights: The tokens, and what each counts.
        wanted: Rows in whose blocks to look; None means all.
    """
    texts, all_tokens = _totals(connection, field)
    if not all_tokens:
        return
    in_blocks = ""
    blocks: list[str] = []
    if wanted is not None:
        in_blocks = "AND block IN (SELECT value FROM json_each(?))"
        blocks = [json.dumps(np.unique(wanted // _ROWS_A_BLOCK).tolist())]
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
    """How rare some tokens are in a field, as BM25 counts it; those that are not there are the rarest."""
    tokens = [*tokens]
    texts, _ = _totals(connection, field)
    frequencies = _frequencies(connection, field, tokens)
    return {token: rarity(texts, frequencies.get(token, 0)) for token in tokens}


def rarity(texts: int, frequency: float) -> float:
    """How rare a token is that some of the texts have, as BM25 counts it."""
    return math.log(1 + (texts - frequency + 0.5) / (frequency + 0.5))


def _frequencies(connection: Connection, field: int, tokens: Iterable[str]) -> dict[str, int]:
    """In how many texts of a field each of some tokens is, those that are in any."""
    select = f"SELECT token, texts FROM frequencies WHERE field = {field} AND token IN"
    return dict(select_by_text(connection, select, tokens))


def _totals(connection: Connection, field: int) -> tuple[int, int]:
    """How many texts and tokens a field has."""
    select = "SELECT texts, tokens FROM totals WHERE field = ?"
    return connection.execute(select, (field,)).fetchone() or (0, 0)


def _tokens_in(words: str) -> list[str]:
    return words.split(" ") if words else []
