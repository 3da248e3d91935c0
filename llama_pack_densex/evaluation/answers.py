"""Answers, and how good they are: the RAG triad by LlamaIndex's evaluators, and what supports their sentences.

What an LLM fails at is data: an answer or a verdict that did not come, or cannot be read, is counted as failed, with
the reason, and never as a 0 or a success.
"""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from llama_index.core import Settings, evaluation
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_pack_densex.answering.citations import plain_answer
from llama_pack_densex.evaluation.datasets import Question
from llama_pack_densex.evaluation.judging import contains_answer
from llama_pack_densex.evaluation.models import AskingFailed, KeptLLM, Step, at_once
from llama_pack_densex.evaluation.runs import Scores
from llama_pack_densex.llm.errors import LLMError
from llama_pack_densex.text.tokens import strip_surrogates

logger = logging.getLogger(__name__)

TRIAD = ("context_relevance", "groundedness", "answer_relevance")
"""What TruLens calls the RAG triad; groundedness is LlamaIndex's faithfulness."""

_VERDICT = re.compile(r"\[RESULT\]\W*?(-?\d+(?:\.\d+)?)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(?<![a-z])(yes|no)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What a query engine answered.

    Args:
        text: The answer, without footnotes and marks.
        contexts: The texts that it was made from.
        outcome: "answered", "not_found", "small_talk" or "vague"; "" where the engine does not say.
        sentences: Its sentences, each with `footnotes` and `propositions` (the ids of those that support it); empty
            where the engine does not say.
    """

    text: str
    contexts: list[str]
    outcome: str = ""
    sentences: Sequence[Mapping[str, Any]] = ()


Verdict = Mapping[str, float | AskingFailed]
"""Metric to a value, or to why there is none."""


@dataclass
class Judged:
    """What was found out, question by question.

    Args:
        scores: Metric to question to value; of what failed there is none.
        failed: Metric to how often it failed for which reason.
    """

    scores: Scores
    failed: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, question: str, verdict: Verdict) -> None:
        """Add what was found out about a question."""
        for metric, value in verdict.items():
            if isinstance(value, AskingFailed):
                self.failed.setdefault(metric, Counter())[str(value)] += 1
            else:
                self.scores.setdefault(metric, {})[question] = value

    def warn(self, name: str) -> None:
        """Say what failed."""
        if self.failed:
            lost = {metric: reasons.total() for metric, reasons in self.failed.items()}
            given = {metric: lost[metric] + len(self.scores.get(metric, ())) for metric in lost}
            counts = ", ".join(f"{lost[metric]} of {given[metric]} items of {metric}" for metric in lost)
            reasons = "; ".join(sorted({reason for each in self.failed.values() for reason in each}))
            logger.warning("%s: not counted, since they failed: %s (%s).", name, counts, reasons)


Wanted = tuple[Question, Answer, list[str]]
"""What is to be judged: a question, its answer, and the metrics of the triad."""

Verdicts = Callable[[Sequence[Wanted], Step, str], Sequence[Verdict]]
"""A judge: gets what is to be judged, what to call while it judges, and what answered."""

Asked = Callable[[Question], RESPONSE_TYPE]
"""Answers a question."""

Answers = Sequence[tuple[Question, Answer | AskingFailed]]
"""Questions, each with its answer, or with why there is none."""


def reading(read: Mapping[str, list[NodeWithScore]], llm: KeptLLM) -> Asked:
    """What answers as LlamaIndex's own query engine does, with its own prompts.

    Args:
        read: What a reader gets for each question, by its id: others of a dataset may have its text.
        llm: Answers.
    """
    synthesizer = get_response_synthesizer(llm=llm, callback_manager=CallbackManager())
    return lambda question: synthesizer.synthesize(question.text, read[question.id])


def answer_questions(asked: Asked, questions: Sequence[Question], step: Step) -> Answers:
    """Have questions answered.

    Args:
        asked: Answers.
        questions: The questions.
        step: Called while it answers.

    Returns:
        The questions with their answers. Where an LLM stops, there is none to any.
    """

    def ask(question: Question) -> Answer:
        try:
            return _answer(asked(question))
        except (AskingFailed, LLMError):
            raise
        except Exception as error:  # whatever a user's engine raises costs one answer, and is told
            raise AskingFailed(type(error).__name__) from error

    return list(zip(questions, at_once(ask, questions, step), strict=True))


def _answer(response: Any) -> Answer:
    said = response.metadata or {}
    texts = [strip_surrogates(node.node.get_content(MetadataMode.NONE)) for node in response.source_nodes]
    return Answer(
        strip_surrogates(plain_answer(str(response))),
        [text for text in texts if text.strip()],
        str(said.get("outcome", "")),
        said.get("sentences", ()),
    )


def score_answers(judged: Judged, answers: Answers, language: str) -> None:
    """What can be said of answers without a judge.

    - `str_em`: whether an accepted answer is in the answer, as ALCE (Gao et al., 2023) calls it.
    - `answered`: whether there was an answer in place of a "not found", a greeting or advice.
    - `cited`, `supported`: the share of an answer's sentences that have a footnote, and a proposition that says them.

    Args:
        judged: What to add it to.
        answers: What `answer_questions` returned.
        language: "en", "ja", ...
    """
    for question, answer in answers:
        if isinstance(answer, AskingFailed):
            judged.add(question.id, {"str_em" if question.answers else "answered": answer})
            continue
        found: dict[str, float] = {}
        if question.answers:
            found["str_em"] = float(contains_answer(answer.text, question.answers, language))
        if answer.outcome:
            found["answered"] = float(answer.outcome == "answered")
        if answer.sentences and answer.outcome in ("", "answered"):
            for metric, key in (("cited", "footnotes"), ("supported", "propositions")):
                found[metric] = fmean(bool(sentence.get(key)) for sentence in answer.sentences)
        judged.add(question.id, found)


def judge_answers(judged: Judged, judge: Verdicts, answers: Answers, step: Step, name: str) -> None:
    """Have answers judged by the RAG triad: a value from 0 to 1 for each metric.

    Of an answer that failed nothing is judged, and of a "not found" nothing but what was retrieved.

    Args:
        judged: What to add it to.
        judge: Judges.
        answers: What `answer_questions` returned.
        step: Called while it judges.
        name: What answered.
    """
    wanted: list[Wanted] = []
    for question, answer in answers:
        if isinstance(answer, AskingFailed):
            judged.add(question.id, dict.fromkeys(TRIAD, AskingFailed(f"no answer ({answer})")))
            continue
        metrics = ["context_relevance"] if answer.contexts else []
        if answer.outcome in ("", "answered") and answer.text:  # a "not found" is neither grounded nor relevant
            metrics += TRIAD[1:] if answer.contexts else TRIAD[2:]
        wanted.append((replace(question, text=strip_surrogates(question.text)), answer, metrics))
    for (question, _, _), verdict in zip(wanted, judge(wanted, step, name), strict=True):
        judged.add(question.id, verdict)


def verdicts_of(llm: KeptLLM, wanted: Sequence[Wanted], step: Step, name: str) -> Sequence[Verdict]:
    """Have LlamaIndex's evaluators judge (see `Verdicts`)."""
    evaluators: dict[str, evaluation.BaseEvaluator] = {
        "context_relevance": evaluation.ContextRelevancyEvaluator(
            llm, parser_function=partial(_read_verdict, most=4.0)
        ),
        "groundedness": evaluation.FaithfulnessEvaluator(llm),
        "answer_relevance": evaluation.AnswerRelevancyEvaluator(llm, parser_function=partial(_read_verdict, most=2.0)),
    }

    def judge(one: tuple[str, Question, Answer]) -> float:
        metric, question, answer = one
        result = asyncio.run(evaluators[metric].aevaluate(question.text, answer.text, answer.contexts))
        score = _read_yes_or_no(result.feedback or "") if metric == "groundedness" else result.score
        if score is None:
            raise AskingFailed("the verdict cannot be read")
        return score

    asked = [(metric, question, answer) for question, answer, metrics in wanted for metric in metrics]
    # core writes defaults into its Settings where the evaluators read them; the models are not among them
    unset = [each for each, value in vars(Settings).items() if value is None and each not in ("_llm", "_embed_model")]
    try:
        scores = iter(at_once(judge, asked, step))
    finally:
        for each in unset:
            setattr(Settings, each, None)
    return [{metric: next(scores) for metric in metrics} for _, _, metrics in wanted]


def _read_verdict(reply: str, most: float) -> tuple[float | None, str | None]:
    """The number after the last "[RESULT]", or alone, as core's refine prompt has it; None if it is not 0 to `most`.

    LlamaIndex's own reading crashes at "[RESULT] 4.0.", takes the 1 of "10" and of "1.5", and no number alone.
    """
    said = unicodedata.normalize("NFKC", reply).strip()
    found = _VERDICT.findall(f"[RESULT]{said}" if re.fullmatch(r"[\d.]+", said) else said)
    score, of = found[-1] if found else ("-1", "")
    return (float(score), reply) if 0 <= float(score) <= most == float(of or most) else (None, None)


def _read_yes_or_no(reply: str) -> float | None:
    """1.0 or 0.0 where a reply begins with one of both, or says only one; LlamaIndex takes any other reply for a no."""
    reply = unicodedata.normalize("NFKC", reply).lower().lstrip("*#\"'「 \n").removeprefix("answer:").lstrip()
    first = _YES_OR_NO.match(reply)
    said = {first[1]} if first else set(_YES_OR_NO.findall(reply))
    return float(said == {"yes"}) if len(said) == 1 else None
