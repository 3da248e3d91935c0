"""Answers and texts in the forms in which they are compared. Pure; by language, without a model."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

WITHOUT_SPACES = frozenset(("ja", "zh", "th", "lo", "km", "my"))
"""Languages that put no spaces between words: there lengths and F1 count characters."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORD = re.compile(r"\w+|[^\w\s]")


def normalise_answer(text: str, language: str = "en") -> str:
    """An answer as exact match compares it.

    English is treated as SQuAD's evaluation script does (Rajpurkar et al., 2016): lower case, no ASCII punctuation, no
    articles, single spaces. Other languages keep their articles and lose all that Unicode calls punctuation, and
    variants of width become one (NFKC); where words have no spaces between them, spaces go as well, so that
    "「２０２３ 年」" and "2023年" are equal.

    Args:
        text: The answer.
        language: "en", "ja", ...
    """
    if language == "en":
        bare = "".join(character for character in text.lower() if character not in _ASCII_PUNCTUATION)
        return " ".join(_ARTICLES.sub(" ", bare).split())
    bare = "".join(
        character for character in unicodedata.normalize("NFKC", text).lower() if not _is_punctuation(character)
    )
    return ("" if language in WITHOUT_SPACES else " ").join(bare.split())


def answer_tokens(text: str, language: str = "en") -> list[str]:
    """What F1 counts of an answer: the normalised words, or characters where words have no spaces between them."""
    normalised = normalise_answer(text, language)
    return list(normalised) if language in WITHOUT_SPACES else normalised.split()


def contains_answer(text: str, answers: Sequence[str], language: str = "en", *, whole_words: bool = False) -> bool:
    """Say whether a text holds one of the answers, whatever the case, the width of characters and the spacing.

    Args:
        text: A passage, or any other unit.
        answers: The right answers; blank ones are never found.
        language: "en", "ja", ...
        whole_words: Whether an answer has to begin and end where a word does, as in DPR's evaluation (Karpukhin et al.,
            2020): "art" is then not in "party". Without effect where words have no spaces between them.
    """
    form = _words if whole_words and language not in WITHOUT_SPACES else _folded
    folded = form(text, language)
    return any(answer.strip() and form(answer, language) in folded for answer in answers)


def _folded(text: str, language: str) -> str:
    pieces = unicodedata.normalize("NFKC", text).casefold().split()
    return ("" if language in WITHOUT_SPACES else " ").join(pieces)


def _words(text: str, language: str) -> str:
    return f" {' '.join(_WORD.findall(_folded(text, language)))} "


_ASCII_PUNCTUATION = frozenset(string.punctuation)


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
