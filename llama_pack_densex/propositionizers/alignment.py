"""Which sentences of a passage say a proposition. Pure, by shared words.

No model is asked: what it says of its own sources would have to be checked in the same way. The figures below
were chosen on half of the articles of SQuAD and JSQuAD with recorded propositions; what they come to on the
other half is in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from llama_pack_densex.text.layout import Block
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.tokens import tokenize

Span = tuple[int, int]

_Weights = dict[str, float]
"""What tokens count."""

# the power of how rare a word is among the propositions: a subject is in many, whoever says it
_OWN = 1.5
# what a proposition's last word counts more than its first: its subject may be from elsewhere
_LATER = 0.5
# what a number counts for the chief source: sentences about two models differ by little else
_NUMERAL = 3.0
# the power of a sentence's weight that it is divided by: long ones share words by chance
_LENGTH = 0.3
_HEADING = 0.5  # what a heading counts, or a table's header: it names what stands below it
_NAMING = ("heading", "columns", "group")
_FURTHER = 0.25  # the share of a proposition that a further sentence has to have
_LEAST = 0.2  # the share of a proposition that all its sentences have to have
_SAID = 0.5  # the share of a sentence that its propositions have to have
_SAID_BESIDE = 0.85  # the same, where it is no proposition's chief source
_ANSWERS_TOO = 0.8  # of what the likeliest answer shares with a question
_COMMON = 100  # words in more sentences than this tell none from the others, and cost time


def align(
    passage: str,
    propositions: Sequence[str],
    context: str = "",
) -> list[tuple[Span, ...]]:
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
    return [*compare(passage, tuple(propositions), context).sources]


def answers(questions: Sequence[str], propositions: Sequence[str]) -> list[list[int]]:
    """Which propositions answer each question: those that share most with it, above all rare words.

    Returns:
        For each question the places of propositions, the likeliest first; the first of all where none shares
        a word.
    """
    words = [set(tokenize(text)) for text in propositions]
    frequency = Counter(chain.from_iterable(words))
    rarity = {word: math.log((1 + len(words)) / count) for word, count in frequency.items()}
    answering = []
    for question in questions:
        wanted = set(tokenize(question))
        shares = [
            math.fsum(map(rarity.__getitem__, wanted & own)) / math.sqrt(len(own) or 1)
            for own in words
        ]
        ranked = sorted(range(len(words)), key=shares.__getitem__, reverse=True)
        least = _ANSWERS_TOO * max(shares, default=0.0)
        likely = [place for place in ranked if shares[place] >= least > 0]
        answering.append(likely or ranked[:1])
    return answering


class Comparison:
    """A passage and its propositions, word by word.

    Attributes:
        segments: The segments of the passage.
        sentences: Their texts.
        sources: Where each proposition is said in the passage.
    """

    def __init__(self, passage: str, propositions: tuple[str, ...], context: str = "") -> None:
        self.segments = segment(passage, context)
        self.sentences = [passage[slice(*region.span)] for region in self.segments]
        self._tokens = [set(_tokens_of(sentence)) for sentence in self.sentences]
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, tokens in enumerate(self._tokens):
            for token in tokens:
                places[token].append(place)
        rarities = _rarities(len(self.segments))
        self._rarity = {token: rarities[len(held_by)] for token, held_by in places.items()}
        self._places = {
            token: held_by for token, held_by in places.items() if len(held_by) <= _COMMON
        }
        self._weights = [self._weight(tokens) for tokens in self._tokens]
        self._factors = list(map(_factor, self.segments, self._weights))
        self.sources = [*self._sources(passage, propositions, context)]

    def _sources(
        self, passage: str, propositions: tuple[str, ...], context: str
    ) -> Iterator[tuple[Span, ...]]:
        stated = list(map(_tokens_of, propositions))
        frequency = Counter(chain.from_iterable(map(set, stated)))
        own = [rarity**_OWN for rarity in _rarities(len(stated))]
        unheard = _rarities(len(self.segments))[0]
        weights = {}
        for token, count in frequency.items():
            weights[token] = self._rarity.get(token, unheard) * own[count]
        self._chief: set[int] = set()
        self._said: defaultdict[int, set[str]] = defaultdict(set)
        for span, tokens in zip(_where(passage, propositions, context), stated, strict=True):
            if span:
                places: Sequence[int] = self._around(span)
                self._chief.update(places)
                yield (span,)
            else:
                places = self._sharing(tokens, weights)
                self._chief.update(places[:1])
                yield tuple(self.segments[place].span for place in sorted(places))
            for place in places:
                self._said[place].update(tokens)

    def is_said(self, place: int) -> bool:
        """Whether the propositions that a segment is a source of say it."""
        share = _SAID if place in self._chief else _SAID_BESIDE
        weight = self._weight(self._tokens[place] & self._said[place])
        return weight >= share * self._weights[place]

    def _weight(self, tokens: set[str]) -> float:
        return math.fsum(self._rarity[token] for token in tokens)  # the same in any order

    def _around(self, span: Span) -> range:
        """The segments that a stretch holds, wholly or in part."""
        first = bisect_right(self.segments, span[0], key=lambda region: region.end)
        return range(first, bisect_left(self.segments, span[1], key=lambda region: region.start))

    def _sharing(self, tokens: Sequence[str], weights: _Weights) -> list[int]:
        """The segments that say a proposition that stands nowhere word for word, the chief source first:
        those that share most of its tokens.
        """
        last = max(len(tokens) - 1, 1)
        positions = {token: i / last for i, token in enumerate(tokens)}
        lacking = {}
        for token, position in positions.items():
            lacking[token] = weights[token] * (1 + _LATER * position)
        whole = sum(lacking.values())
        shared = 0.0
        chosen: list[int] = []
        while not chosen or sum(lacking.values()) >= _FURTHER * whole:
            best = self._best_segment(lacking, _FURTHER * whole if chosen else 0.0)
            if best is None:
                break
            shared += self._take_shared(lacking, best)
            if not chosen:
                self._discount_subject(lacking, positions, best)
            chosen.append(best)
        return chosen if shared >= _LEAST * whole else []

    def _take_shared(self, weights: _Weights, place: int) -> float:
        """Take the tokens of a segment out of those with weights; returns how much they weigh."""
        shared = [token for token in weights if token in self._tokens[place]]
        return sum(map(weights.pop, shared))

    def _discount_subject(self, weights: _Weights, positions: dict[str, float], chief: int) -> None:
        """First words that stand above the chief source are what its pronoun means; the fact is below."""
        for token in weights:
            if self._places.get(token, [chief])[0] < chief:
                weights[token] *= min(1.0, 2 * positions[token])

    def _best_segment(self, weights: _Weights, least: float) -> int | None:
        """The segment that shares most of some tokens; a further one, with a least share, is no heading."""
        shares: defaultdict[int, float] = defaultdict(float)
        for token, weight in weights.items():
            counted = weight * _NUMERAL if token[0].isdigit() and not least else weight
            for place in self._places.get(token, ()):
                shares[place] += counted
        best = max(
            shares, key=lambda place: (shares[place] * self._factors[place], -place), default=None
        )
        if best is None or shares[best] < least:
            return None
        if least and self.segments[best].kind in _NAMING:
            return None
        return best


compare = lru_cache(maxsize=256)(Comparison)
"""Compare a passage and its propositions: checks and, a batch later, nodes need the same ones; 34 kB each."""


def _factor(region: Block, weight: float) -> float:
    """By what a segment's share counts: less of a long one and of a heading."""
    factor = 1 / math.pow(1 + weight, _LENGTH)
    return factor * _HEADING if region.kind in _NAMING else factor


def _tokens_of(text: str) -> list[str]:
    return tokenize(searchable_text(text))


def _rarities(number: int) -> list[float]:
    """How rare a word is that 0, 1, 2, ... of a number of texts have; none is as rare as one."""
    return [math.log(1 + number / max(count, 1)) for count in range(number + 1)]


def _where(passage: str, propositions: Sequence[str], context: str) -> Iterator[Span | None]:
    """Where each proposition stands word for word; of two that are alike the second takes the next place."""
    reworded = {}
    for statement in statements(passage, context):
        if statement.text not in passage:
            reworded[statement.text] = statement.span
    searched: dict[str, int] = {}
    for proposition in propositions:
        text = proposition.strip()
        if text in reworded:
            yield reworded[text]
            continue
        start = passage.find(text, searched.get(text, 0))
        if start < 0 and text in searched:
            start = passage.find(text)
        if start < 0 or not text:
            yield None
        else:
            searched[text] = start + len(text)
            yield start, searched[text]
