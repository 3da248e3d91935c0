"""Finding passages by their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array, distinct
from llama_pack_densex.retrieval.lexical_formula import Statistics, summed
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_segment import Segment
from llama_pack_densex.retrieval.lexical_words import hashes, tokens_of
from llama_pack_densex.retrieval.tokens import TextTokenizer, is_cjk
from llama_pack_densex.stores.node_store import FoundNode


@dataclass(frozen=True)
class LexicalHit:
    """A passage that a query found by its words.

    Args:
        passage_id: The passage's node id.
        score: Its BM25 score, above 0.
        units: Its units with scores above 0, best first, equal ones in reading order; the passage itself among them
            where passages are searched.
    """

    passage_id: str
    score: float
    units: tuple[FoundNode, ...]


@dataclass(frozen=True, eq=False)
class _Asked:
    """The words of a query.

    Args:
        words: Their hashes, each once.
        counts: How often each is asked for.
        passages: In how many passages each occurs.
        units: In how many units.
    """

    words: Array
    counts: Array
    passages: Array
    units: Array


@dataclass(frozen=True, eq=False)
class _Found:
    """A segment's passages for a query.

    Args:
        part: The segment.
        places: Those that pass, ascending, so that they are sorted by their ids.
        scores: Their scores.
    """

    part: LiveSegment
    places: Array
    scores: Array


@dataclass(frozen=True, eq=False)
class _Place:
    """A passage that was found, and where it is."""

    score: float
    passage_id: str
    part: LiveSegment
    place: int


class LexicalIndex:
    """Finds passages by BM25, and ranks each found passage's units among themselves.

    It does not change once it is made, so any number of threads may search it. What it finds depends on the texts
    alone, not on the segments that they are in: the statistics are exact, and of passages with equal scores that with
    the smaller id comes first.

    Args:
        segments: The texts; no passage is in two of them.
        tokenizer: Splits questions; the one that split the texts.
    """

    def __init__(self, segments: Sequence[LiveSegment], tokenizer: TextTokenizer) -> None:
        self.segments = tuple(segments)
        self._tokenizer = tokenizer
        self._passages = Statistics(sum(s.passages for s in segments), sum(s.tokens for s in segments))
        self._units = Statistics(sum(s.units for s in segments), sum(s.unit_tokens for s in segments))

    def __len__(self) -> int:
        """How many passages there are."""
        return self._passages.texts

    def ids(self) -> Iterator[tuple[str, str]]:
        """Id and granularity of each passage and unit."""
        for segment in self.segments:
            yield from segment.ids()

    def search(
        self, query: str, passages: int, granularity: Collection[str], allowed: frozenset[str] | None = None
    ) -> tuple[list[LexicalHit], int]:
        """Search.

        Args:
            query: The question.
            passages: How many passages to return at most.
            granularity: The granularities of the units to return.
            allowed: The ids of the passages to search; None means all.

        Returns:
            The passages, best first, and how many were found in all. None is found where no word of the query occurs.
        """
        if not self.segments:
            return [], 0
        asked = self._asked(query)
        weights = self._passages.idf(asked.passages) * asked.counts
        found = [self._found_in(number, asked.words, weights, allowed) for number in range(len(self.segments))]
        best = _best(found, passages)
        hits = []
        for place, units in zip(best, self._ranked_units(best, asked, granularity), strict=True):
            if "passage" in granularity:
                units.append(FoundNode(place.passage_id, "passage", "", place.score))
            ranked = sorted(units, key=lambda unit: -unit.score)
            hits.append(LexicalHit(place.passage_id, place.score, tuple(ranked)))
        return hits, sum(len(part.places) for part in found)

    def _asked(self, query: str) -> _Asked:
        """The words of a query; where only single characters of it are known, also the pairs that these are in."""
        tokens = Counter(tokens_of(self._tokenizer, query))
        asked = self._counted(hashes(tokens), list(tokens.values()))
        lone = [len(token) == 1 and is_cjk(token) for token in tokens]
        known = asked.passages + asked.units > 0
        if not self._tokenizer.pairs or not any(lone) or (known & ~np.array(lone)).any():
            return asked
        pairs: Counter[int] = Counter()
        for token, count in tokens.items():
            if len(token) == 1 and is_cjk(token):
                with_it = distinct(np.concatenate([part.segment.pairs_with(token) for part in self.segments]))
                pairs.update(dict.fromkeys(with_it.tolist(), count))
        words = np.concatenate((asked.words, np.array(list(pairs), dtype=np.uint64)))
        return self._counted(words, [*tokens.values(), *pairs.values()])

    def _counted(self, words: Array, counts: list[int]) -> _Asked:
        passages, units = np.zeros((2, len(words)), dtype=np.int64)
        for part in self.segments:
            numbers = part.segment.numbers(words)
            units += part.unit_frequencies(numbers)
            for place in np.flatnonzero(numbers >= 0).tolist():
                passages[place] += part.passage_frequency(int(numbers[place]))
        return _Asked(words, np.array(counts, dtype=np.int64), passages, units)

    def _found_in(self, number: int, words: Array, weights: Array, allowed: frozenset[str] | None) -> _Found:
        part, postings = self.segments[number], self.segments[number].segment.postings
        numbers = part.segment.numbers(words)
        present = np.flatnonzero(numbers >= 0)
        if not len(present):
            return _Found(part, np.zeros(0, dtype=np.int64), np.zeros(0))
        starts = postings.starts[numbers[present]].tolist()
        ends = postings.starts[numbers[present] + 1].tolist()
        slices = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        places = np.concatenate([postings.values[one] for one in slices]).astype(np.intp)
        frequencies = np.concatenate([part.segment.frequencies[one] for one in slices])
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        scores = summed(
            places,
            np.repeat(weights[present], lengths),
            frequencies,
            self._norms[number][places],
            len(part.segment.passages),
        )
        passing = scores > 0
        if part.mask is not None:
            passing &= part.mask
        if allowed is not None:
            passing &= part.segment.has_passages(allowed)
        found = np.flatnonzero(passing)
        return _Found(part, found, scores[found])

    def _ranked_units(
        self, best: Sequence[_Place], asked: _Asked, granularity: Collection[str]
    ) -> list[list[FoundNode]]:
        """The units of each of the best passages, in reading order, those that a word of the query occurs in."""
        ranked: list[list[FoundNode]] = [[] for _ in best]
        weights = self._units.idf(asked.units) * asked.counts
        for part in {id(place.part): place.part for place in best}.values():
            numbers = [number for number, place in enumerate(best) if place.part is part]
            passages = np.array([best[number].place for number in numbers], dtype=np.int64)
            segment = part.segment
            units = segment.units_of(passages)
            searched = np.array([name in granularity for name in segment.granularities.texts()], dtype=bool)
            scores = self._unit_scores(segment, units, asked.words, weights)
            owners = np.repeat(np.array(numbers), segment.unit_counts(passages))
            for row in np.flatnonzero((scores > 0) & searched[segment.unit_granularity[units]]).tolist():
                unit, owner = int(units[row]), int(owners[row])
                name = segment.granularities.text(int(segment.unit_granularity[unit]))
                found = FoundNode(segment.units.text(unit), name, best[owner].passage_id, float(scores[row]))
                ranked[owner].append(found)
        return ranked

    def _unit_scores(self, segment: Segment, units: Array, words: Array, weights: Array) -> Array:
        tokens = segment.unit_tokens.take(units)
        numbers = segment.numbers(words)
        by_number = np.argsort(numbers, kind="stable")
        ordered = numbers[by_number]
        where = np.minimum(np.searchsorted(ordered, tokens.values), len(ordered) - 1)
        asked_for = ordered[where] == tokens.values
        texts = np.repeat(np.arange(len(units)), tokens.lengths)[asked_for]
        # each text's words in the order of the query
        occurrences, frequencies = np.unique(texts * len(words) + by_number[where[asked_for]], return_counts=True)
        texts, which = np.divmod(occurrences, len(words))
        norms = self._units.norms(tokens.lengths)
        return summed(texts, weights[which], frequencies, norms[texts], len(units))

    @cached_property
    def _norms(self) -> list[Array]:
        return [self._passages.norms(part.segment.lengths) for part in self.segments]


def _best(found: Sequence[_Found], count: int) -> list[_Place]:
    """The best of all segments' passages; of equal ones those with the smallest ids."""
    least = 0.0
    scores = np.concatenate([part.scores for part in found])
    if count <= 0:
        return []
    if count < len(scores):
        least = float(np.partition(scores, -count)[-count])
    best = []
    for part in found:
        enough = np.flatnonzero(part.scores >= least)
        for number in enough[np.argsort(-part.scores[enough], kind="stable")[:count]].tolist():
            place = int(part.places[number])
            passage_id = part.part.segment.passages.text(place)
            best.append(_Place(float(part.scores[number]), passage_id, part.part, place))
    return sorted(best, key=lambda place: (-place.score, place.passage_id))[:count]
