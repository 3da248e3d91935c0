"""Alignment of propositions with the sentences of their passage, by shared words. Pure.

No model is asked for the sources of its own propositions: its answer would have to be checked in the same
way. The constants below were chosen on half of the articles of SQuAD and JSQuAD with recorded propositions;
benchmarks/RESULTS.md has the results on the other half.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from llama_pack_densex.text.layout import Block, Span, overlapping
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.tokens import tokenize

_Weights = dict[str, float]
"""Weights of tokens."""

# exponent of a word's rarity among the propositions: a subject recurs in many of them, whichever
# sentence states them
_OWN = 1.5
# extra weight of a proposition's last word over its first: its subject may come from elsewhere
_LATER = 0.5
# factor for numbers in the choice of the chief source: often only they tell sentences about two models apart
_NUMERAL = 3.0
# exponent of the weight of a sentence that its share is divided by: long ones share words by chance
_LENGTH = 0.3
_HEADING = 0.5  # factor for headings and table headers, which only name what stands below them
_NAMING = ("heading", "columns", "group")
_FURTHER = 0.25  # share of a proposition that each further source has to add
_LEAST = 0.2  # share of a proposition that its sources have to state together
_SAID = 0.5  # share of a sentence that its propositions have to state
_SAID_BESIDE = 0.85  # the same for a sentence that is no proposition's chief source
_ANSWERS_TOO = 0.8  # share of the likeliest answer's score that further answers have to reach
_COMMON = 100  # words in more sentences than this distinguish none, and cost time


def align(
    passage: str,
    propositions: Sequence[str],
    context: str = "",
) -> list[tuple[Span, ...]]:
    """Find the sentences that state each proposition.

    The source of a proposition that occurs verbatim in the passage is that occurrence; likewise for a table
    row written with the names of its columns. Otherwise the chief source is the sentence that shares most of
    the proposition's words. Words that are rare in the passage, numbers and later words weigh more; words of
    many propositions (such as a subject that replaces a pronoun) weigh less. Further sentences are added
    while each adds a quarter of the proposition that the sources so far lack.

    Args:
        passage: The text of a passage.
        propositions: Its propositions, in any order.
        context: The Markdown before the passage; it names the columns of rows.

    Returns:
        For each proposition the (start, end) of its source sentences in the passage, in order; empty if no
        sentence states it.
    """
    exact = list(_where(passage, propositions, context))
    if all(exact):  # as when sentences are used as propositions
        return [(span,) for span in exact if span]
    return [*compare(passage, tuple(propositions), context).sources]


def answers(questions: Sequence[str], propositions: Sequence[str]) -> list[list[int]]:
    """Find the propositions that answer each question, by shared words; rare ones weigh more.

    Returns:
        For each question the indices of propositions, the likeliest first; the index of the first proposition
        if none shares a word.
    """
    words = [set(tokenize(text)) for text in propositions]
    frequency = Counter(chain.from_iterable(words))
    rarity = {word: math.log((1 + len(words)) / count) for word, count in frequency.items()}
    answering = []
    for question in questions:
        question_words = set(tokenize(question))
        shares = [
            math.fsum(map(rarity.__getitem__, question_words & own)) / math.sqrt(len(own) or 1)
            for own in words
        ]
        ranked = sorted(range(len(words)), key=shares.__getitem__, reverse=True)
        least = _ANSWERS_TOO * max(shares, default=0.0)
        likely = [place for place in ranked if shares[place] >= least > 0]
        answering.append(likely or ranked[:1])
    return answering


class Comparison:
    """A comparison of a passage with its propositions, word by word.

    Attributes:
        segments: The segments of the passage.
        sentences: Their texts.
        sources: For each proposition the spans of its source sentences.
    """

    def __init__(self, passage: str, propositions: tuple[str, ...], context: str = "") -> None:
        self.segments = segment(passage, context)
        self.sentences = [region.text_in(passage) for region in self.segments]
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
                places: Sequence[int] = overlapping(self.segments, *span)
                self._chief.update(places)
                yield (span,)
            else:
                places = self._sharing(tokens, weights)
                self._chief.update(places[:1])
                yield tuple(self.segments[place].span for place in sorted(places))
            for place in places:
                self._said[place].update(tokens)

    def is_said(self, place: int) -> bool:
        """Return whether the propositions that have the segment at this index as a source cover it."""
        share = _SAID if place in self._chief else _SAID_BESIDE
        weight = self._weight(self._tokens[place] & self._said[place])
        return weight >= share * self._weights[place]

    def _weight(self, tokens: set[str]) -> float:
        # `fsum`, since the order of a set varies and its result does not
        return math.fsum(self._rarity[token] for token in tokens)

    def _sharing(self, tokens: Sequence[str], weights: _Weights) -> list[int]:
        """Find the source segments of a proposition that does not occur verbatim, the chief source first.

        Args:
            tokens: The proposition's tokens in order.
            weights: The weight of each of them.

        Returns:
            The indices of the segments that share most of the tokens; empty if they share too few.
        """
        last = max(len(tokens) - 1, 1)
        positions = {token: i / last for i, token in enumerate(tokens)}
        lacking = {}
        for token, position in positions.items():
            lacking[token] = weights[token] * (1 + _LATER * position)
        whole = sum(lacking.values())
        shared = 0.0
        chosen: list[int] = []
        best = self._best_segment(lacking)
        while best is not None:
            tokens_of_best = [token for token in lacking if token in self._tokens[best]]
            shared += sum(map(lacking.pop, tokens_of_best))
            if not chosen:
                self._discount_subject(lacking, positions, best)
            chosen.append(best)
            if sum(lacking.values()) < _FURTHER * whole:
                break
            best = self._best_segment(lacking, _FURTHER * whole)
        return chosen if shared >= _LEAST * whole else []

    def _discount_subject(self, weights: _Weights, positions: dict[str, float], chief: int) -> None:
        """Reduce the weights of early words of a proposition that occur before the chief source.

        They are the subject that a pronoun of the chief source stands for; further sources should state the
        fact, not the subject.
        """
        for token in weights:
            if self._places.get(token, [chief])[0] < chief:
                weights[token] *= min(1.0, 2 * positions[token])

    def _best_segment(self, weights: _Weights, least: float = 0.0) -> int | None:
        """Find the segment that shares most of the weighted tokens.

        Args:
            weights: The weights of the tokens.
            least: The share that a further source needs, which cannot be a heading; 0 for the chief source.

        Returns:
            The segment's index; None if none shares enough.
        """
        shares: defaultdict[int, float] = defaultdict(float)
        for token, weight in weights.items():
            if token[0].isdigit() and not least:
                weight *= _NUMERAL
            for place in self._places.get(token, ()):
                shares[place] += weight
        best = max(
            shares, key=lambda place: (shares[place] * self._factors[place], -place), default=None
        )
        if best is None or shares[best] < least:
            return None
        if least and self.segments[best].kind in _NAMING:
            return None
        return best


compare = lru_cache(maxsize=256)(Comparison)
"""Compare a passage with its propositions. Cached, since the checks and, a batch later, the nodes need the
same comparison, of about 34 kB."""


def _factor(region: Block, weight: float) -> float:
    """The factor for a segment's shares: less for long segments, and for headings."""
    factor = 1 / math.pow(1 + weight, _LENGTH)
    if region.kind in _NAMING:
        factor *= _HEADING
    return factor


def _tokens_of(text: str) -> list[str]:
    return tokenize(searchable_text(text))


def _rarities(number: int) -> list[float]:
    """The rarity of a word by how many of the texts have it (0, 1, 2, ...); 0 texts count as 1."""
    return [math.log(1 + number / max(count, 1)) for count in range(number + 1)]


def _where(passage: str, propositions: Sequence[str], context: str) -> Iterator[Span | None]:
    """Yield the span where each proposition occurs verbatim, or None.

    Of identical propositions, each takes the next statement or occurrence. A heading that has the same words
    is none.
    """
    stated: defaultdict[str, list[Span]] = defaultdict(list)
    for statement in reversed(statements(passage, context)):
        stated[statement.text].append(statement.span)
    searched: dict[str, int] = {}
    for proposition in propositions:
        text = proposition.strip()
        spans = stated[text]
        if spans:
            span = spans[-1]
            if len(spans) > 1 or text in passage:
                spans.pop()
            searched[text] = span[1]
            yield span
            continue
        start = passage.find(text, searched.get(text, 0))
        if start < 0 and text in searched:
            start = passage.find(text)
        if start < 0 or not text:
            yield None
        else:
            searched[text] = start + len(text)
            yield start, searched[text]
