"""Made-up English and Japanese text, with word frequencies by Zipf's law."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

VOCABULARY = 30_000


@dataclass(frozen=True)
class Language:
    """The shape of made-up text.

    Args:
        grammar: Function words, which are put between the content words.
        words: The content words, most frequent first.
        space: The separator of words.
        stop: The end of a sentence.
        question: A question about a fact, with {} in place of the fact.
    """

    grammar: tuple[str, ...]
    words: tuple[str, ...]
    space: str
    stop: str
    question: str
    weights: list[float] = field(
        default_factory=lambda: list(accumulate(1 / (r + 2.7) for r in range(VOCABULARY)))
    )

    def word(self, rng: random.Random) -> str:
        """Draw a word by Zipf's law with Mandelbrot's shift."""
        return self.words[bisect(self.weights, rng.random() * self.weights[-1])]

    def topic(self, rng: random.Random) -> list[str]:
        """Draw the words that a document is about."""
        return [self.words[rng.randrange(200, VOCABULARY)] for _ in range(20)]

    def fact(self, rng: random.Random, topic: Sequence[str]) -> str:
        """Draw four to seven content words, some of them from the topic, each followed by a function word."""
        words = [
            rng.choice(topic) if rng.random() < 0.3 else self.word(rng)
            for _ in range(rng.randint(4, 7))
        ]
        return self.space.join(
            part for word in words for part in (word, rng.choice(self.grammar))
        ).capitalize()


@cache
def english() -> Language:
    """Return the English shape: words of two or three syllables, separated by spaces."""
    rng = random.Random("en")
    syllables = [
        c + v + e for c in "bcdfghlmnprstvw" for v in "aeiou" for e in ("", "n", "r", "s", "t", "l")
    ]
    words = dict.fromkeys(
        "".join(rng.choices(syllables, k=rng.choice((2, 2, 3)))) for _ in range(2 * VOCABULARY)
    )
    grammar = (
        "the",
        "of",
        "and",
        "in",
        "to",
        "was",
        "is",
        "for",
        "as",
        "on",
        "with",
        "by",
        "that",
        "from",
        "it",
    )
    return Language(grammar, tuple(words)[:VOCABULARY], " ", ". ", "What was {}?")


@cache
def japanese() -> Language:
    """Return the Japanese shape: words of one to three Han characters or of four katakana, without spaces."""
    rng = random.Random("ja")
    kanji = [chr(0x4E00 + n) for n in rng.sample(range(0x5000), 2000)]
    kana = [chr(0x30A2 + n) for n in range(0, 64, 2)]
    cumulative_weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(kanji))))
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        katakana = rng.random() < 0.15
        parts = (
            rng.choices(kana, k=4)
            if katakana
            else rng.choices(kanji, cum_weights=cumulative_weights, k=rng.choice((1, 2, 2, 3)))
        )
        words["".join(parts)] = None
    grammar = (
        "は",
        "が",
        "を",
        "に",
        "の",
        "で",
        "と",
        "した",
        "された",
        "から",
        "まで",
        "である",
        "も",
        "へ",
    )
    return Language(grammar, tuple(words), "", "。", "{}何ですか。")
