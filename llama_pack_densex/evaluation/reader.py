"""A reader LLM's answers from the beginning of each strategy's context."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from llama_index.core.llms import LLM

from llama_pack_densex.evaluation.data import EvaluationSet
from llama_pack_densex.evaluation.findings import Finding
from llama_pack_densex.evaluation.metrics import Scores
from llama_pack_densex.evaluation.observe import Progress
from llama_pack_densex.evaluation.reader_metrics import reader_scores

logger = logging.getLogger(__name__)

READER_LENGTHS = (100, 200, 500)
"""Words (characters) of context that the reader gets: the l of EM@l and F1@l."""

_WORKERS = 8
_AT_ONCE = 64  # questions between two movements of a progress bar
_PROMPT = (
    "Answer the question from the context below, in as few words as possible: a name, a date, a number, a phrase. Give "
    "the answer alone, in the words and the language of the context, without a sentence around it.\n\n"
    "Context:\n{context}\n\nQuestion: {question}\nAnswer:"
)


def read_answers(
    llm: LLM,
    dataset: EvaluationSet,
    findings: Mapping[str, Finding],
    name: str,
    progress: Progress,
) -> Scores:
    """Let a reader LLM answer, and score it: `em@100`, `f1@100` and so on.

    A question that the LLM failed at counts neither as right nor as wrong.

    Args:
        llm: The reader.
        dataset: The questions.
        findings: What a strategy found.
        name: The strategy's name, for progress and log.
        progress: Called with what is being done, how much of it is done, and how much there is.
    """
    questions = [question for question in dataset.questions if question.answers]
    scores = Scores({})
    failures: list[str] = []
    with ThreadPoolExecutor(_WORKERS) as threads:
        for length in READER_LENGTHS:
            answers: dict[str, str | None] = {}
            for start in range(0, len(questions), _AT_ONCE):
                some = questions[start : start + _AT_ONCE]
                prompts = [
                    _PROMPT.format(context="\n\n".join(findings[question.id].read[length]), question=question.text)
                    for question in some
                ]
                # the synchronous client: an asynchronous one belongs to the event loop that first used it
                given = list(threads.map(partial(_ask, llm, failures), prompts))
                answers |= {question.id: answer for question, answer in zip(some, given, strict=True)}
                progress(f"{name}: reading {length}", start + len(some), len(questions))
            made = reader_scores(questions, answers, dataset.language)
            scores |= Scores({f"{metric}@{length}": values for metric, values in made.values.items()})
    if failures:
        logger.warning(
            "%s: the reader LLM failed at %d of %d answers (%s); they are not counted.",
            name, len(failures), len(READER_LENGTHS) * len(questions), ", ".join(sorted(set(failures))),
        )  # fmt: skip
    return scores


def _ask(llm: LLM, failures: list[str], prompt: str) -> str | None:
    try:
        return llm.complete(prompt).text.strip()
    except Exception as error:  # whatever a provider raises; counted and reported
        failures.append(type(error).__name__)
        return None
