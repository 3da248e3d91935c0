"""Metrics of what a reader LLM answered. Pure functions over its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from llama_pack_densex.evaluation.data import Question
from llama_pack_densex.evaluation.metrics import Scores
from llama_pack_densex.evaluation.normalise import answer_tokens, normalise_answer
from llama_pack_densex.evaluation.word_budget import at_length


def exact_match(answer: str, answers: Sequence[str], language: str = "en") -> float:
    """1.0 if a reader's answer equals one of the right ones once normalised, else 0.0."""
    given = normalise_answer(answer, language)
    return float(any(given == normalise_answer(right, language) for right in answers))


def f1(answer: str, answers: Sequence[str], language: str = "en") -> float:
    """The F1 of a reader's answer and the right one that is nearest to it, over words (in Japanese over characters).

    As in SQuAD's script, an answer of which nothing is left once normalised equals only another such one.
    """
    return max((_f1(answer_tokens(answer, language), answer_tokens(right, language)) for right in answers), default=0.0)


def reader_scores(
    questions: Iterable[Question],
    answers: Mapping[str, str | None],
    language: str = "en",
    *,
    length: int | None = None,
) -> Scores:
    """Score a reader LLM's answers: `em` and `f1`, or `em@100words` and so on (the paper's EM@l, table 3).

    Args:
        questions: The questions; those without right answers are left out.
        answers: Question id to the reader's answer. One that is missing or None failed, and is not counted.
        language: "en", "ja", ...
        length: How many words the reader was given (see `first_words`), for the metrics' names.
    """
    given = [
        (question, answer)
        for question in questions
        if question.answers and (answer := answers.get(question.id)) is not None
    ]
    suffix = "" if length is None else f"@{at_length(length, language)}"
    return Scores(
        {
            f"em{suffix}": {question.id: exact_match(answer, question.answers, language) for question, answer in given},
            f"f1{suffix}": {question.id: f1(answer, question.answers, language) for question, answer in given},
        }
    )


def _f1(given: Sequence[str], right: Sequence[str]) -> float:
    if not given or not right:
        return float(not given and not right)
    shared = sum((Counter(given) & Counter(right)).values())
    return 2 * shared / (len(given) + len(right))
