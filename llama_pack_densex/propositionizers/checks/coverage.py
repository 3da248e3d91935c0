"""What a passage says and no proposition does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_pack_densex.propositionizers.alignment import Span, compare
from llama_pack_densex.propositionizers.checks.names import is_common_katakana, shortened
from llama_pack_densex.propositionizers.checks.texts import ADDRESS, Text
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.sentences import LIST_MARKER, Region
from llama_pack_densex.text.tokens import STOP_WORDS, normal


@dataclass(frozen=True)
class Gap:
    """A sentence, list item or row of a passage that no proposition says, or not all of it.

    Args:
        span: Where it is in the passage.
        terms: The numbers and names in it that are missing; none where all of it is.
    """

    span: Span
    terms: tuple[str, ...] = ()

    def reason(self, passage: str) -> str:
        """What is missing, in words."""
        sentence = shortened(passage[slice(*self.span)])
        if not self.terms:
            return f'no proposition says "{sentence}"'
        terms = ", ".join(f'"{shortened(term)}"' for term in self.terms)
        return f'no proposition says {terms} of "{sentence}"'


def uncovered(passage: str, propositions: Sequence[str]) -> list[Gap]:
    """Find what a passage says and no proposition does.

    A sentence is missing where the propositions that it is a source of have less than half of what it says; of other
    sentences, numbers and names are that stand in no proposition. Headings, greetings, questions and pointers to
    other pages state nothing, nor do sentences that announce what follows ("as follows:"); tables and code become
    units of their own, whatever the propositions are. Names are words with a capital in English, and words in
    katakana and Latin letters in Japanese.

    Args:
        passage: The text of a passage.
        propositions: What was made of it; their order does not matter.

    Returns:
        The gaps in order, one a sentence.
    """
    compared = compare(passage, tuple(propositions))
    terms = _Terms(propositions, detect_language(passage))
    gaps: list[Gap] = []
    for place, region in enumerate(compared.segments):
        sentence = passage[region.start : region.end]
        if not _states(region, sentence):
            continue
        span = (region.start, region.end)
        if not compared.is_said(place):
            gaps.append(Gap(span))
        elif missing := tuple(terms.missing_in(sentence)):
            gaps.append(Gap(span, missing))
    return gaps


class _Terms:
    """The numbers and names of propositions, and of what was already missed.

    Args:
        propositions: The propositions.
        language: The passage's.
    """

    def __init__(self, propositions: Sequence[str], language: str) -> None:
        stated = Text("\n".join(propositions))
        self._text = normal(stated.plain)
        self._values = {value for number in stated.numbers for value in number.values}
        self._reported: set[str] = set()
        self._language = language

    def missing_in(self, sentence: str) -> Iterator[str]:
        """The numbers and names of a sentence that stand in no proposition; each is reported once."""
        marker = LIST_MARKER.match(sentence)
        text = Text(sentence[marker.end() :] if marker else sentence)
        for term in (*self._missing_numbers(text), *self._missing_names(text)):
            if term not in self._reported:
                self._reported.add(term)
                yield term

    def _missing_numbers(self, text: Text) -> Iterator[str]:
        for number in text.numbers:
            is_footnote = text.plain[number.start - 1 : number.start] == "["
            if is_footnote or not number.shown[0].isdecimal():
                continue
            is_said = self._has(number.name) if number.is_glued else not self._values.isdisjoint(number.values)
            if not is_said:
                yield number.name or number.shown

    def _missing_names(self, text: Text) -> Iterator[str]:
        names = _NAMES.get(self._language)
        for name in names.finditer(text.plain) if names else ():
            is_within = self._language == "ja" or _WITHIN.search(text.plain[: name.start()][-2:])
            is_common = normal(name[0]) in STOP_WORDS or is_common_katakana(name[0])
            if is_within and not is_common and not self._has(name[0]):
                yield name[0]

    def _has(self, name: str) -> bool:
        """Whether a proposition has a name: "Norwegians" is said where "Norwegian" is."""
        stem = normal(name)
        return stem[: max(3, len(stem) - 3)] in self._text


_NAMES = {  # in Japanese, what follows a number is its unit
    "en": re.compile(r"(?!(?:[DMJS]r|Mrs|Ms|Prof|Inc|Ltd|Co|Corp)\b)[A-Z][a-zA-ZÀ-ɏ]+"),
    "ja": re.compile(r"(?<![\dァ-ヺーA-Za-z])(?:[ァ-ヺー]{3,}|[A-Za-z]{2,})"),
}
_WITHIN = re.compile(r"[\w,;][ -]$")  # what is before a word that is not the first of a sentence or quotation


def _states(region: Region, sentence: str) -> bool:
    """Whether a sentence, list item or row states something."""
    if region.kind in ("heading", "block"):
        return False
    words = ADDRESS.sub("", searchable_text(sentence))
    words = _ATTRIBUTES.sub("", words).strip()
    if not any(map(str.isalnum, words)):
        return False
    return not any(rule.search(words) for rule in _STATE_NOTHING)


_ATTRIBUTES = re.compile(r"\{[.#][^{}\n]*\}")
_STATE_NOTHING = [
    re.compile(r"[:：]\W*$|as follows\W*$|(?:以下|次)の(?:通り|とおり|よう)"),  # it announces what follows
]
