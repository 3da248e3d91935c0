"""A segment without the passages that went since it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array, distinct
from llama_pack_densex.retrieval.lexical_segment import Segment


def _none() -> Array:
    return np.zeros(0, dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """What is left of a segment.

    Args:
        segment: The segment.
        gone: The places of the passages that went, with their units; sorted.
        gone_words: The words of those units; sorted.
        gone_frequencies: In how many of those units each of them occurs.
    """

    segment: Segment
    gone: Array = field(default_factory=_none)
    gone_words: Array = field(default_factory=_none)
    gone_frequencies: Array = field(default_factory=_none)

    @classmethod
    def of_arrays(cls, segment: Segment, arrays: Mapping[str, Array]) -> LiveSegment:
        """What is left of a segment, of which a file tells what went.

        Raises:
            ValueError: That is not possible.
        """
        try:
            live = cls(segment, arrays["gone"], arrays["gone_words"], arrays["gone_frequencies"])
        except KeyError as error:
            raise ValueError(f"what went of the segment {segment.name} lacks {error}") from error
        if (
            len(live.gone_words) != len(live.gone_frequencies)
            or int(live.gone.max(initial=0)) >= max(1, len(segment.passages))
            or int(live.gone_words.max(initial=0)) >= max(1, len(segment.words))
            or not all((np.diff(part.astype(np.int64)) > 0).all() for part in (live.gone, live.gone_words))
        ):
            raise ValueError(f"what went of the segment {segment.name} does not fit it")
        return live

    def arrays(self) -> dict[str, Array]:
        """What went, as `of_arrays` takes it."""
        return {"gone": self.gone, "gone_words": self.gone_words, "gone_frequencies": self.gone_frequencies}

    @cached_property
    def passages(self) -> int:
        """How many passages are left."""
        return len(self.segment.passages) - len(self.gone)

    @cached_property
    def tokens(self) -> int:
        """How many tokens these have."""
        lengths = self.segment.lengths
        return int(lengths.sum(dtype=np.int64)) - int(lengths[self.gone].sum(dtype=np.int64))

    @cached_property
    def units(self) -> int:
        """How many units are left."""
        starts = self.segment.unit_starts.astype(np.int64)
        return int(starts[-1]) - int((starts[self.gone + 1] - starts[self.gone]).sum())

    @cached_property
    def unit_tokens(self) -> int:
        """How many tokens these have."""
        first, last = self.segment.unit_starts[self.gone], self.segment.unit_starts[self.gone + 1]
        starts = self.segment.unit_tokens.starts
        went = starts[last].astype(np.int64) - starts[first].astype(np.int64)
        return int(starts[-1]) - int(went.sum())

    @cached_property
    def size(self) -> int:
        """What it costs to merge it."""
        return self.passages + self.tokens + self.units + self.unit_tokens

    @cached_property
    def share_gone(self) -> float:
        """How much of the segment went."""
        segment = self.segment
        tokens = int(segment.lengths.sum(dtype=np.int64)) + len(segment.unit_tokens.values)
        whole = len(segment.passages) + len(segment.units) + tokens
        return 1 - self.size / whole if whole else 1.0

    @cached_property
    def mask(self) -> Array | None:
        """Whether each passage is left; None where all are."""
        if not len(self.gone):
            return None
        mask = np.ones(len(self.segment.passages), dtype=bool)
        mask[self.gone] = False
        return mask

    def without(self, passages: Array) -> LiveSegment:
        """The same without some more passages, by their places; some of them may have gone before."""
        new = np.setdiff1d(passages, self.gone)
        if not len(new):
            return self
        tokens = self.segment.unit_tokens.take(self.segment.units_of(new))
        words = distinct_words(np.repeat(np.arange(len(tokens)), tokens.lengths), tokens.values)
        all_words = np.concatenate((self.gone_words, words))
        gone_words, which = np.unique(all_words, return_inverse=True)
        counts = np.concatenate((self.gone_frequencies, np.ones(len(words), dtype=np.uint32)))
        return LiveSegment(
            self.segment,
            np.union1d(self.gone, new).astype(np.uint32),
            gone_words.astype(np.uint32),
            np.bincount(which, counts, len(gone_words)).astype(np.uint32),
        )

    def passage_frequency(self, word: int) -> int:
        """In how many of the passages that are left a word occurs, which is given by its number."""
        postings = self.segment.postings
        start, end = int(postings.starts[word]), int(postings.starts[word + 1])
        return end - start if self.mask is None else int(self.mask[postings.values[start:end]].sum())

    def unit_frequencies(self, words: Array) -> Array:
        """In how many of the units that are left each of some words occurs; words by number, -1 for none."""
        found = np.where(words >= 0, self.segment.unit_frequencies[words], 0) if len(self.segment.words) else words * 0
        found = found.astype(np.int64)
        if len(self.gone_words):
            places = np.minimum(np.searchsorted(self.gone_words, words), len(self.gone_words) - 1)
            found -= np.where(self.gone_words[places] == words, self.gone_frequencies[places], 0)
        return found

    def ids(self) -> Iterator[tuple[str, str]]:
        """Id and granularity of each passage and unit that is left."""
        segment, mask = self.segment, self.mask
        starts, granularities = segment.unit_starts.tolist(), segment.granularities.texts()
        for passage in range(len(segment.passages)):
            if mask is None or mask[passage]:
                yield segment.passages.text(passage), "passage"
                for unit in range(starts[passage], starts[passage + 1]):
                    yield segment.units.text(unit), granularities[segment.unit_granularity[unit]]


def distinct_words(texts: Array, words: Array) -> Array:
    """The words of some texts, each once for each text that it is in.

    Args:
        texts: The numbers of the texts, token by token.
        words: The numbers of the words of the tokens.
    """
    return distinct(texts.astype(np.int64) << 32 | words.astype(np.int64)) & 0xFFFFFFFF
