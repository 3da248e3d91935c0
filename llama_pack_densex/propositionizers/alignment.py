"""Which sentences of a passage say a proposition. Pure, by shared words.

No model is asked: what it says of its own sources would have to be checked in the same way. The figures below
were chosen on half of the articles of SQuAD and JSQuAD with recorded propositions; what they come to on the
other half is in docs/measurements.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.tokens import tokenize

Span = tuple[int, int]

_OWN = 1.5  # the power of how rare a word is among the propositions: a subject is in many, whoever says it
_LATER = 0.5  # what a proposition's last word counts more than its first: its subject may be from elsewhere
_NUMERAL = 3.0  # what a number counts for the chief source: sentences about two models differ by little else
_LENGTH = 0.3  # the power of a sentence's weight that it is divided by: long ones share words by chance
_HEADING = 0.5  # what a heading counts, or a table's header: it names what stands below it
_NAMING = ("heading", "columns")
_FURTHER = 0.25  # the share of a proposition that a further sentence has to have
_LEAST = 0.2  # the share of a proposition that all its sentences have to have
_SAID = 0.5  # the share of a sentence that its propositions have to have
_SAID_BESIDE = 0.85  # the same, where it is no proposition's chief source
_ANSWERS_TOO = 0.8  # of what the likeliest answer shares with a question
_COMMON = 100  # words in more sentences than this tell none from the others, and cost time


def align(passage: str, propositions: Sequence[str], context: str = "") -> list[tuple[Span, ...]]:
    """Find the sentences that say each proposition.

    A proposition that stands in the passage word for word is where it stands, and so is a row of a table that
    is said with the names of its columns. The chief source of any other is the sentence that shares most of
    its words: those that are rare in the passage count more, those that many propositions have (a subject
    that stands for a pronoun) less, numbers and later ones more. A further sentence is added where it has a
    quarter of the proposition that the others lack.

    Args:
        passage: The text of a passage.
        propositions: What was made of it; their order does not matter.
        context: The Markdown that stands before the passage; it names the columns of rows.

    Returns:
        For each proposition the (start, end) of its sentences in the passage, in order; none where no
        sentence says it.
    """
    exact = list(_where(passage, propositions, context))
    if all(exact):  # sentences that are their own propositions
        return [(span,) for span in exact if span]
    return [source.spans for source in compare(passage, tuple(propositions), context).sources]


def answers(questions: Sequence[str], propositions: Sequence[str]) -> list[list[int]]:
    """Which propositions answer each question: those that share most with it, the words that few of them have
    first.

    Returns:
        For each question the places of propositions, the likeliest first; the first of all where none shares
        a word.
    """
    words = [set(tokenize(text)) for text in propositions]
    frequency = Counter(word for found in words for word in found)
    telling = {word: math.log((1 + len(words)) / count) for word, count in frequency.items()}
    found: list[list[int]] = []
    for question in questions:
        asked = set(tokenize(question))
        shared = [sum(telling[word] for word in asked & there) / math.sqrt(len(there) or 1) for there in words]
        ranked = sorted(range(len(words)), key=lambda place: -shared[place])
        found.append([place for place in ranked if shared[place] >= _ANSWERS_TOO * shared[ranked[0]] > 0] or ranked[:1])
    return found


@dataclass(frozen=True)
class _Source:
    """What says a proposition: spans, and the segments that these are in, those that count as chief sources first."""

    spans: tuple[Span, ...] = ()
    chief: tuple[int, ...] = ()
    further: tuple[int, ...] = ()


class Comparison:
    """A passage and its propositions, word by word."""

    def __init__(self, passage: str, propositions: Sequence[str], context: str) -> None:
        self.segments = segment(passage, context)
        sentences = (passage[region.start : region.end] for region in self.segments)
        self._tokens = [frozenset(tokenize(searchable_text(sentence))) for sentence in sentences]
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, tokens in enumerate(self._tokens):
            for token in tokens:
                places[token].append(place)
        rare = _rarities(len(self.segments))
        self._rarity = {token: rare[len(found)] for token, found in places.items()}
        self._places = {token: found for token, found in places.items() if len(found) <= _COMMON}
        self._weights = [self._weight(tokens) for tokens in self._tokens]
        self._factors = [
            (_HEADING if region.kind in _NAMING else 1.0) / (1 + weight) ** _LENGTH
            for region, weight in zip(self.segments, self._weights, strict=True)
        ]
        stated = [tokenize(searchable_text(proposition)) for proposition in propositions]
        frequency = Counter(token for tokens in stated for token in {*tokens})
        own = [rarity**_OWN for rarity in _rarities(len(stated))]
        weights = {token: self._rarity.get(token, rare[0]) * own[count] for token, count in frequency.items()}
        exact = _where(passage, propositions, context)
        self.sources = [
            self._around(span) if span else self._shared(tokens, weights)
            for span, tokens in zip(exact, stated, strict=True)
        ]
        self._chief: set[int] = set()
        self._said: defaultdict[int, set[str]] = defaultdict(set)
        for source, words in zip(self.sources, stated, strict=True):
            self._chief.update(source.chief)
            for place in (*source.chief, *source.further):
                self._said[place].update(words)

    def span(self, place: int) -> Span:
        return self.segments[place].start, self.segments[place].end

    def is_said(self, place: int) -> bool:
        """Whether the propositions that a segment is a source of say it."""
        share = _SAID if place in self._chief else _SAID_BESIDE
        return self._weight(self._tokens[place] & self._said[place]) >= share * self._weights[place]

    def _weight(self, tokens: Iterable[str]) -> float:
        return math.fsum(self._rarity[token] for token in tokens)  # the same in any order

    def _around(self, span: Span) -> _Source:
        first = bisect_right(self.segments, span[0], key=lambda region: region.end)
        after = bisect_left(self.segments, span[1], key=lambda region: region.start)
        return _Source((span,), tuple(range(first, after)))

    def _shared(self, tokens: Sequence[str], weights: dict[str, float]) -> _Source:
        """What says a proposition that stands nowhere word for word: the segments that share most of its tokens."""
        last = max(len(tokens) - 1, 1)
        places = {token: i / last for i, token in enumerate(tokens)}
        remaining = {token: weights[token] * (1 + _LATER * place) for token, place in places.items()}
        whole = sum(remaining.values())
        shared = 0.0
        chosen: list[int] = []
        while not chosen or sum(remaining.values()) >= _FURTHER * whole:
            best = self._best_segment(remaining, 0.0 if not chosen else _FURTHER * whole)
            if best is None:
                break
            shared += sum(weight for token, weight in remaining.items() if token in self._tokens[best])
            remaining = {token: weight for token, weight in remaining.items() if token not in self._tokens[best]}
            if not chosen:
                # first words that stand above the chief source are what its pronoun means, and the fact is below
                for token in remaining:
                    if self._places.get(token, [best])[0] < best:
                        remaining[token] *= min(1.0, 2 * places[token])
            chosen.append(best)
        if shared < _LEAST * whole:
            return _Source()
        return _Source(
            tuple(map(self.span, sorted(chosen))),
            tuple(chosen[:1]),
            tuple(chosen[1:]),
        )

    def _best_segment(self, weights: dict[str, float], least: float) -> int | None:
        """The segment that shares most of some tokens; a further one, with a least share, is no heading."""
        shares: defaultdict[int, float] = defaultdict(float)
        for token, weight in weights.items():
            counted = weight * _NUMERAL if token[0].isdigit() and not least else weight
            for place in self._places.get(token, ()):
                shares[place] += counted
        best = max(
            shares,
            key=lambda place: (shares[place] * self._factors[place], -place),
            default=None,
        )
        if best is None or shares[best] < least:
            return None
        return None if least and self.segments[best].kind in _NAMING else best


def _rarities(number: int) -> list[float]:
    """How rare a word is that 0, 1, 2, ... of a number of texts have; one that none has is as rare as it can be."""
    return [math.log(1 + number / max(count, 1)) for count in range(number + 1)]


@lru_cache(maxsize=256)  # checks and, a batch later, nodes ask about the same propositions; 34 kB each
def compare(passage: str, propositions: tuple[str, ...], context: str = "") -> Comparison:
    """Compare a passage and its propositions, word by word."""
    return Comparison(passage, propositions, context)


def _where(passage: str, propositions: Sequence[str], context: str) -> Iterator[Span | None]:
    """Where each proposition stands word for word; of two that are alike the second takes the next place."""
    reworded = {stated.text: stated.span for stated in statements(passage, context) if stated.text not in passage}
    searched: dict[str, int] = {}
    for proposition in propositions:
        text = proposition.strip()
        if text in reworded:
            yield reworded[text]
            continue
        start = passage.find(text, searched.get(text, 0)) if text else -1
        if start < 0 and text in searched:
            start = passage.find(text)
        if start < 0:
            yield None
        else:
            searched[text] = start + len(text)
            yield start, searched[text]
