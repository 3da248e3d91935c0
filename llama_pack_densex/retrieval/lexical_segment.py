"""A part of a lexical index that never changes: some passages, their units, and where which word occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import (
    Array,
    Ragged,
    arrays_of,
    parts_of,
    ranges,
    smallest,
    starts_of,
)
from llama_pack_densex.retrieval.lexical_files import new_name

_FIND = 20  # how many times longer it takes to find one id among sorted ones than to look at one


@dataclass(frozen=True, eq=False)
class Segment:
    """Some passages, sorted by their ids, with their units and the numbers of their words.

    Its arrays may lie in a file. A passage's place is its number here; a word's number is its place in `words`.

    Args:
        words: The hashes of the words, sorted; uint64.
        pair_words: The numbers of the words that are pairs of Chinese, Japanese or Korean characters.
        pair_first: Their first characters.
        pair_second: Their second characters.
        documents: The ids of the passages' documents, sorted.
        document_of: Of each passage, the place of its document.
        passages: The passages' ids, sorted.
        lengths: Of each passage, how many tokens it has.
        postings: Of each word, the places of the passages that it occurs in, ascending.
        frequencies: How often it does; as long as the values of `postings`.
        units: The units' ids, passage by passage and there in reading order.
        unit_starts: Where each passage's units start, and where those of the last one end.
        unit_granularity: Of each unit, the place of its granularity.
        granularities: The names of the units' granularities.
        unit_tokens: Of each unit, the words of its tokens.
        unit_frequencies: Of each word, in how many units it occurs.
        name: A name that no other segment has.
    """

    words: Array
    pair_words: Array
    pair_first: Array
    pair_second: Array
    documents: Ragged
    document_of: Array
    passages: Ragged
    lengths: Array
    postings: Ragged
    frequencies: Array
    units: Ragged
    unit_starts: Array
    unit_granularity: Array
    granularities: Ragged
    unit_tokens: Ragged
    unit_frequencies: Array
    name: str = field(default_factory=new_name)

    @classmethod
    def of_arrays(cls, name: str, arrays: Mapping[str, Array]) -> Segment:
        """The segment of which a file holds the arrays.

        Raises:
            ValueError: They do not fit together, as far as that is seen without reading them.
        """
        try:
            parts = parts_of(cls, arrays)
        except KeyError as error:
            raise ValueError(f"the segment {name} lacks {error}") from error
        segment = cls(**parts, name=name)
        if not segment._fits():
            raise ValueError(f"the parts of the segment {name} do not fit together")
        return segment

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, as `of_arrays` takes them."""
        return arrays_of(self)

    def numbers(self, words: Array) -> Array:
        """The numbers of words by their hashes, -1 where one does not occur."""
        if not len(self.words):
            return np.full(len(words), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        return np.where(self.words[places] == words, places, -1)

    def pairs_with(self, character: str) -> Array:
        """The hashes of the pairs that a character is part of."""
        found = (self.pair_first == ord(character)) | (self.pair_second == ord(character))
        words: Array = self.words[self.pair_words[found]]
        return words

    def passages_of(self, documents: Sequence[str]) -> Array:
        """The places of the passages of some documents."""
        known = [place for place in map(self.documents.find, documents) if place >= 0]
        if not known:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.isin(self.document_of, known))

    def units_of(self, passages: Array) -> Array:
        """The places of the units of some passages, passage by passage."""
        return ranges(self.unit_starts[passages].astype(np.int64), self.unit_counts(passages))

    def unit_counts(self, passages: Array) -> Array:
        """How many units some passages have."""
        counts: Array = self.unit_starts[passages + 1].astype(np.int64) - self.unit_starts[passages]
        return counts

    def has_passages(self, ids: frozenset[str]) -> Array:
        """Whether each passage is among some; the last answer is kept, for the next question with the same filter."""
        last = self._last_mask.get("last")
        if last is not None and last[0] is ids:
            return last[1]
        mask = np.zeros(len(self.passages), dtype=bool)
        if len(ids) * _FIND < len(mask):
            mask[[place for place in map(self.passages.find, ids) if place >= 0]] = True
        else:
            mask[:] = [passage_id in ids for passage_id in self.passages.texts()]
        self._last_mask["last"] = ids, mask
        return mask

    @cached_property
    def _last_mask(self) -> dict[str, tuple[frozenset[str], Array]]:
        return {}

    def _fits(self) -> bool:
        passages, units = len(self.passages), len(self.units)
        ragged = (self.documents, self.passages, self.postings, self.units, self.granularities, self.unit_tokens)
        return (
            all(part.fits for part in (*ragged, Ragged(self.units.starts[:-1], self.unit_starts)))
            and len(self.document_of) == len(self.lengths) == len(self.unit_starts) - 1 == passages
            and len(self.unit_granularity) == len(self.unit_tokens) == units
            and len(self.postings) == len(self.unit_frequencies) == len(self.words)
            and len(self.frequencies) == len(self.postings.values)
            and len(self.pair_words) == len(self.pair_first) == len(self.pair_second)
        )


@dataclass(frozen=True, eq=False)
class Postings:
    """Where words occur, in any order.

    Args:
        words: The number of a word.
        passages: The place of a passage that it occurs in.
        frequencies: How often.
    """

    words: Array
    passages: Array
    frequencies: Array


@dataclass(frozen=True, eq=False)
class Words:
    """Words that a segment is made of, some of which may not occur any more.

    Args:
        hashes: Sorted.
        first: Of a pair of Chinese, Japanese or Korean characters, the first; of others 0.
        second: The second.
    """

    hashes: Array
    first: Array
    second: Array


def assemble(
    words: Words,
    passages: list[bytes],
    documents: list[bytes],
    lengths: Array,
    postings: Postings,
    units: Ragged,
    unit_counts: Array,
    granularities: tuple[Array, Ragged],
    unit_tokens: Ragged,
    unit_frequencies: Array,
) -> Segment:
    """Make a segment.

    Args:
        words: The words; those that do not occur are left out.
        passages: The passages' ids, sorted.
        documents: The documents' ids of the passages.
        lengths: The lengths of the passages in tokens.
        postings: Where words occur.
        units: The units' ids, passage by passage.
        unit_counts: How many units each passage has.
        granularities: Of each unit, the place of its granularity, and the granularities.
        unit_tokens: The words of each unit's tokens.
        unit_frequencies: Of each word, in how many units it occurs.
    """
    used = unit_frequencies > 0
    used[postings.words] = True
    numbers = np.cumsum(used) - 1
    order = np.argsort(postings.words.astype(np.int64) << 32 | postings.passages, kind="stable")
    found = numbers[postings.words[order]]
    pairs = np.flatnonzero(used & (words.first > 0))
    distinct = sorted(set(documents))
    place = {document: place for place, document in enumerate(distinct)}
    return Segment(
        words=words.hashes[used],
        pair_words=numbers[pairs].astype(np.uint32),
        pair_first=words.first[pairs],
        pair_second=words.second[pairs],
        documents=_of_bytes(distinct),
        document_of=smallest(np.array([place[document] for document in documents], dtype=np.int64)),
        passages=_of_bytes(passages),
        lengths=smallest(lengths),
        postings=Ragged.of(smallest(postings.passages[order]), np.bincount(found, minlength=int(used.sum()))),
        frequencies=smallest(postings.frequencies[order]),
        units=units,
        unit_starts=starts_of(unit_counts),
        unit_granularity=smallest(granularities[0]),
        granularities=granularities[1],
        unit_tokens=Ragged(smallest(numbers[unit_tokens.values]), unit_tokens.starts),
        unit_frequencies=unit_frequencies[used].astype(np.uint32),
    )


def _of_bytes(texts: Sequence[bytes]) -> Ragged:
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return Ragged.of(np.frombuffer(b"".join(texts), dtype=np.uint8), lengths)
