"""How much has to be read until an answer comes: the paper's figure 4, and what a reader gets of l words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from llama_pack_densex.evaluation.data import Question
from llama_pack_densex.evaluation.metrics import Scores
from llama_pack_densex.evaluation.normalise import WITHOUT_SPACES, contains_answer

LENGTHS = tuple(range(0, 501, 50))
"""The numbers of words that the paper's figure 4 covers."""


def answer_recall_within(
    questions: Iterable[Question],
    texts: Mapping[str, Sequence[str]],
    lengths: Sequence[int] = LENGTHS,
    language: str = "en",
    *,
    whole_words: bool = False,
) -> Scores:
    """Say of each question whether an answer is in the first l words of what was retrieved (the paper's figure 4).

    The metrics are `answer_recall@100words`, or `answer_recall@100chars` where words have no spaces between them.

    Args:
        questions: The questions; those without answers are left out.
        texts: Question id to the texts of the retrieved units, best first. They are read one after the other.
        lengths: The values of l.
        language: "en", "ja", ...
        whole_words: What `contains_answer` takes.
    """
    read = {
        question.id: length_until_answer(
            texts.get(question.id, ()), question.answers, language, whole_words=whole_words
        )
        for question in questions
        if question.answers
    }
    return Scores(
        {
            f"answer_recall@{at_length(length, language)}": {
                question: float(needed is not None and needed <= length) for question, needed in read.items()
            }
            for length in lengths
        }
    )


def length_until_answer(
    texts: Sequence[str], answers: Sequence[str], language: str = "en", *, whole_words: bool = False
) -> int | None:
    """Count the words (or characters) that are read until an answer is complete; None if none ever is.

    Args:
        texts: Units, best first.
        answers: The right answers.
        language: "en", "ja", ...
        whole_words: What `contains_answer` takes.
    """
    before = 0
    for text in texts:
        ends = _ends(text, language)
        if contains_answer(text, answers, language, whole_words=whole_words):
            low, high = 1, len(ends)  # the more is read, the more answers are in it: search by halves
            while low < high:
                middle = (low + high) // 2
                if contains_answer(text[: ends[middle - 1]], answers, language, whole_words=whole_words):
                    high = middle
                else:
                    low = middle + 1
            return before + low
        before += len(ends)
    return None


def first_words(texts: Sequence[str], length: int, language: str = "en") -> list[str]:
    """Cut retrieved texts after l words (or characters): what a reader gets in the paper's EM@l.

    Args:
        texts: Units, best first.
        length: How many words.
        language: "en", "ja", ...

    Returns:
        The units that fit, the last one cut; their own white space is kept.
    """
    kept: list[str] = []
    for text in texts:
        ends = _ends(text, language)
        if length <= 0:
            break
        kept.append(text if len(ends) <= length else text[: ends[length - 1]])
        length -= len(ends)
    return kept


def at_length(length: int, language: str) -> str:
    """A length as metrics' names have it: "100words", or "100chars"."""
    return f"{length}{'chars' if language in WITHOUT_SPACES else 'words'}"


def _ends(text: str, language: str) -> list[int]:
    """Where each word of a text ends; where words have no spaces between them, each character but spaces."""
    return [found.end() for found in re.finditer(r"\S" if language in WITHOUT_SPACES else r"\S+", text)]
