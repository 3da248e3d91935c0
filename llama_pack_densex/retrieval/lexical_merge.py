"""Few segments however many changes there were: small ones are merged, and ones of which much went are made anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array, Ragged
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_rows import joined_words
from llama_pack_densex.retrieval.lexical_segment import Postings, Segment, Words, assemble

LARGEST = 4_000_000
"""The size up to which segments are merged, in tokens and texts; it bounds the memory and the time of a merge."""

_SMALLEST = 10_000  # below this, segments are of one level
_AT_ONCE = 5  # so many segments of a level make one of the next
_GONE = 1 / 3


def settled(segments: Iterable[LiveSegment], largest: int = LARGEST) -> tuple[LiveSegment, ...]:
    """The same texts in few segments: no more than a handful of each level of size.

    Args:
        segments: The segments, no passage of which is in two of them.
        largest: The size up to which they are merged.
    """
    kept = [
        LiveSegment(merged([segment])) if segment.share_gone > _GONE else segment
        for segment in segments
        if segment.passages
    ]
    while group := _next(kept, largest):
        kept = [segment for segment in kept if segment not in group] + [LiveSegment(merged(group))]
    return tuple(kept)


def merged(parts: Sequence[LiveSegment]) -> Segment:
    """One segment of what is left of several, no passage of which is in two of them."""
    segments = [part.segment for part in parts]
    words, numbers = joined_words([_words(segment) for segment in segments])
    kept = [_left(part) for part in parts]
    ids = [segment.passages.bytes_at(place) for segment, own in zip(segments, kept, strict=True) for place in own]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    place_of = np.empty(len(ids), dtype=np.int64)
    place_of[order] = np.arange(len(ids))
    own_places = np.split(place_of, np.cumsum([len(own) for own in kept])[:-1])

    units = [segment.units_of(own) for segment, own in zip(segments, kept, strict=True)]
    counts = [segment.unit_counts(own) for segment, own in zip(segments, kept, strict=True)]
    owners = np.concatenate([np.repeat(places, count) for places, count in zip(own_places, counts, strict=True)])
    unit_order = np.argsort(owners, kind="stable")
    names = tuple(dict.fromkeys(name for segment in segments for name in segment.granularities.texts()))
    unit_tokens = [segment.unit_tokens.take(own) for segment, own in zip(segments, units, strict=True)]
    documents = [
        segment.documents.bytes_at(document)
        for segment, own in zip(segments, kept, strict=True)
        for document in segment.document_of[own].tolist()
    ]
    return assemble(
        words,
        [ids[place] for place in order],
        [documents[place] for place in order],
        np.concatenate([segment.lengths[own] for segment, own in zip(segments, kept, strict=True)])[order],
        _postings(segments, kept, own_places, numbers),
        Ragged.joined([segment.units.take(own) for segment, own in zip(segments, units, strict=True)]).take(unit_order),
        np.bincount(owners, minlength=len(ids)),
        (
            np.concatenate([_renamed(segment, names)[own] for segment, own in zip(segments, units, strict=True)])[
                unit_order
            ],
            Ragged.of_texts(names),
        ),
        Ragged.joined(
            [Ragged(number[own.values], own.starts) for number, own in zip(numbers, unit_tokens, strict=True)]
        ).take(unit_order),
        _unit_frequencies(parts, numbers, len(words.hashes)),
    )


def _next(segments: Sequence[LiveSegment], largest: int) -> list[LiveSegment]:
    levels: defaultdict[int, list[LiveSegment]] = defaultdict(list)
    for segment in segments:
        levels[_level(segment.size)].append(segment)
    for _, level in sorted(levels.items()):
        if len(level) >= _AT_ONCE:
            level.sort(key=lambda segment: segment.size)
            sizes = np.cumsum([segment.size for segment in level])
            group = level[: int((sizes <= largest).sum())]
            if len(group) > 1:
                return group
    return []


def _level(size: int) -> int:
    level = 0
    while size > _SMALLEST:
        size, level = size // _AT_ONCE, level + 1
    return level


def _words(segment: Segment) -> Words:
    first, second = np.zeros((2, len(segment.words)), dtype=np.uint32)
    first[segment.pair_words], second[segment.pair_words] = segment.pair_first, segment.pair_second
    return Words(segment.words, first, second)


def _left(part: LiveSegment) -> Array:
    return np.arange(len(part.segment.passages)) if part.mask is None else np.flatnonzero(part.mask)


def _postings(
    segments: Sequence[Segment], kept: Sequence[Array], own_places: Sequence[Array], numbers: Sequence[Array]
) -> Postings:
    found = []
    for segment, own, places, number in zip(segments, kept, own_places, numbers, strict=True):
        place_of = np.full(len(segment.passages), -1, dtype=np.int64)
        place_of[own] = places
        passages = place_of[segment.postings.values]
        words = np.repeat(number, segment.postings.lengths)
        left = passages >= 0
        found.append((words[left], passages[left], segment.frequencies[left]))
    return Postings(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _renamed(segment: Segment, names: Sequence[str]) -> Array:
    own = np.array([names.index(name) for name in segment.granularities.texts()], dtype=np.int64)
    return own[segment.unit_granularity]


def _unit_frequencies(parts: Sequence[LiveSegment], numbers: Sequence[Array], words: int) -> Array:
    frequencies = np.zeros(words, dtype=np.int64)
    for part, number in zip(parts, numbers, strict=True):
        frequencies[number] += part.segment.unit_frequencies
        frequencies[number[part.gone_words]] -= part.gone_frequencies
    return frequencies
