"""Answers, and how good they are: the RAG triad by LlamaIndex's prompts, and what supports their sentences.

A failure of the LLM is data: an answer or a verdict that did not come, or cannot be read, is counted as
failed, with the reason, and never as a 0 or a success.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.evaluation import (
    BaseEvaluator,
    ContextRelevancyEvaluator,
    FaithfulnessEvaluator,
    answer_relevancy,
)
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.response_synthesizers import BaseSynthesizer, get_response_synthesizer
from llama_index.core.schema import Document, NodeWithScore

from llama_pack_densex.answering.footnotes import plain_answer
from llama_pack_densex.evaluation.evaluation_set import Question
from llama_pack_densex.evaluation.evidence import contains_answer
from llama_pack_densex.evaluation.models import AskingFailed, KeptLLM, Step, at_once
from llama_pack_densex.evaluation.runs import Scores
from llama_pack_densex.llm.errors import LLMError
from llama_pack_densex.llm.thoughts import without_thoughts
from llama_pack_densex.propositionizers.replies import REASONS
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import strip_surrogates

logger = plain_logger(__name__)

TRIAD = ("context_relevance", "groundedness", "answer_relevance")
"""What TruLens calls the RAG triad; groundedness is LlamaIndex's faithfulness."""

_RESULT = re.compile(r"\[RESULT\]\W*?(?=-?\d)", re.IGNORECASE)
_SCORE_NAME = re.compile(
    r"(?:\b(?:result|score|rating)\b|得点|点数|評点|評価|スコア|結果)[\s*\"']*(?:[:=]|\bis\b|は)[^\w\-]*(?=-?\d)",
    re.IGNORECASE,
)
_SCORE = re.compile(
    r"(-?\d+(?:[.,]\d+)?)(?:\s*点)?(?:\s*\(?(?:/|(?:out )?of)\s*(\d+(?:\.0)?))?"
    r"(?![.,]?\d|\s*(?:点\s*)?(?:[%/]|[~\-\u2013\u301c]\s*\d|\(?(?:out )?of\b|(?:or|to|か|から)\s*\d))",
    re.IGNORECASE,
)
_NUMBER_ALONE = re.compile(rf"[\s*`\"'\[(]*({_SCORE.pattern})[\s*`\"'\])!.。]*", re.IGNORECASE)
_OUT_OF_JA = re.compile(r"(\d+)点(?:満点)?(?:中|のうち)の?、?\s*(\d+(?:\.\d+)?)(?:点|(?![\d.]))")
_YES = ("yes", "true", "supported", "はい")
_WORD = "yes|no|true|false|supported|not supported|unsupported|はい|いいえ"
_NAME = (
    r"(?:answer|verdict|result|conclusion|judge?ment|答え|回答|判定|結論)[\s*\"']*"
    r"(?:[:=]|\b(?:is|would be)\b|は)"
)
_OPENS = r"[\s*_#:\"'`({\[「『]*"
_CLOSES = r"(?=[\s*_\"'`)}\]」』]*(?:[.,;:!。、]|[\-\u2013\u2014]|です|\n|\Z))"
_BOTH = re.compile(
    r"(?:\byes|はい)\s*(?:[/|,]|and|or|か|または)\s*(?:no\b|いいえ)|\bno\s*(?:[/|]|and|or)\s*yes\b",
    re.IGNORECASE,
)
# a "no" that goes on may belong to a noun: "No doubt it is said."
_VERDICT_FIRST = re.compile(
    rf"{_OPENS}(?:(?:the |my |final )*{_NAME}{_OPENS})?"
    rf"(yes(?![a-z])|no(?=\s(?:it|this|that|the)\b)|(?:{_WORD}){_CLOSES})",
    re.IGNORECASE,
)
_VERDICT_LAST = re.compile(
    rf"(?:{_NAME}|\n|[.!。,]\s?|\bso,? ){_OPENS}({_WORD})[^\w?]*(?:です)?[^\w?]*\Z", re.IGNORECASE
)
_VERDICT_WITHIN = re.compile(
    rf"(?:(?i:{_NAME}){_OPENS}|[\"'「*])((?i:{_WORD})){_CLOSES}|\b(YES|NO)\b{_CLOSES}"
)


@dataclass(frozen=True)
class AnsweredQuestion:
    """What a query engine answered.

    Args:
        question: The question, without halves of surrogate pairs.
        text: The answer, without footnotes and marks.
        contexts: The texts that it was made from.
        outcome: "answered", "not_found", "small_talk" or "vague"; "" if the engine does not say.
        sentences: Its sentences, each with `footnotes` and `propositions` (the ids of those that support it);
            empty if the engine does not say.
        failure: Why there is no answer.
    """

    question: Question
    text: str = ""
    contexts: Sequence[str] = ()
    outcome: str = ""
    sentences: Sequence[Mapping[str, Any]] = ()
    failure: AskingFailed | None = None

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the triad that apply to it: a "not found" is neither grounded nor relevant."""
        context = TRIAD[:1] if self.contexts else ()
        if not self.text or self.outcome not in ("", "answered"):
            return context
        return (*context, *TRIAD[1:]) if context else TRIAD[2:]


Verdict = Mapping[str, float | AskingFailed]
"""Metric to a value, or to why there is none."""

Verdicts = Callable[[Sequence[AnsweredQuestion], Step, str], Sequence[Verdict]]
"""A judge: gets answers, what to call while it judges, and the name of what answered."""

AnswerQuestion = Callable[[str], RESPONSE_TYPE]


@dataclass
class Measured:
    """What was measured, question by question.

    Args:
        scores: Metric to question to value; of what failed there is none.
        failed: Metric to how often it failed for which reason.
    """

    scores: Scores
    failed: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, question: str, verdict: Verdict) -> None:
        """Add what was measured for a question."""
        for metric, value in verdict.items():
            if isinstance(value, AskingFailed):
                self.failed[metric][str(value)] += 1
            else:
                self.scores.setdefault(metric, {})[question] = value

    def warn(self, name: str) -> None:
        """Log what failed."""
        counts = []
        distinct: set[str] = set()
        for metric, reasons in self.failed.items():
            failed = reasons.total()
            counts.append(
                f"{failed} of {failed + len(self.scores.get(metric, ()))} items of {metric}"
            )
            distinct |= reasons.keys()
        if counts:
            logger.warning(
                "%s: not counted, since they failed: %s (%s).",
                name, ", ".join(counts), "; ".join(sorted(distinct)),
            )  # fmt: skip


def reading(llm: KeptLLM, nodes: list[NodeWithScore]) -> AnswerQuestion:
    """What answers as LlamaIndex's own query engine does, with its own prompts.

    Args:
        llm: Answers.
        nodes: What it reads.
    """
    return lambda question: _synthesizer(llm).synthesize(question, nodes)


def answer_questions(
    questions: Sequence[tuple[Question, AnswerQuestion]], step: Step
) -> list[AnsweredQuestion]:
    """Have questions answered.

    Args:
        questions: The questions, each with what answers it.
        step: Called while it answers.

    Returns:
        Their answers. If an LLM stops, all of them are failures.
    """

    def ask(item: tuple[Question, AnswerQuestion]) -> AnsweredQuestion:
        question, answer = item
        try:
            response: Any = answer(question.text)
        except (AskingFailed, LLMError):
            raise
        except Exception as error:
            # whatever a user's engine raises costs one answer, and is reported
            raise AskingFailed(type(error).__name__) from error
        metadata = response.metadata or {}
        if metadata.get("outcome") == "no_answer":
            raise AskingFailed(REASONS["empty"])
        contexts = [node.get_content() for node in response.source_nodes]
        return AnsweredQuestion(
            replace(question, text=strip_surrogates(question.text)),
            strip_surrogates(plain_answer(without_thoughts(str(response)))),
            [strip_surrogates(context) for context in contexts if context.strip()],
            str(metadata.get("outcome", "")),
            metadata.get("sentences", ()),
        )

    answered = []
    for (question, _), answer in zip(questions, at_once(ask, questions, step), strict=True):
        if isinstance(answer, AskingFailed):
            answer = AnsweredQuestion(question, failure=answer)
        answered.append(answer)
    return answered


def score_answers(measured: Measured, answers: Sequence[AnsweredQuestion], language: str) -> None:
    """What can be said of answers without a judge.

    - `str_em`: whether an accepted answer is in the answer, as ALCE (Gao et al., 2023) calls it.
    - `answered`: whether there was an answer in place of a "not found", a greeting or advice.
    - `cited`, `supported`: the share of an answer's sentences that have a footnote, and a proposition that
      says them.

    Args:
        measured: What to add it to.
        answers: The answers.
        language: "en", "ja", ...
    """
    for answer in answers:
        accepted = answer.question.answers
        values: dict[str, float | AskingFailed] = {}
        if answer.failure:
            values["str_em" if accepted else "answered"] = answer.failure
        elif accepted:
            values["str_em"] = float(contains_answer(answer.text, accepted, language))
        if answer.outcome:
            values["answered"] = float(answer.outcome == "answered")
        if answer.sentences and answer.outcome in ("", "answered"):
            values["cited"] = fmean(
                bool(sentence.get("footnotes")) for sentence in answer.sentences
            )
            values["supported"] = fmean(
                bool(sentence.get("propositions")) for sentence in answer.sentences
            )
        measured.add(answer.question.id, values)


def judge_answers(
    measured: Measured, judge: Verdicts, answers: Sequence[AnsweredQuestion], step: Step, name: str
) -> None:
    """Have answers judged by the RAG triad: a value from 0 to 1 for each metric.

    Nothing is judged of an answer that failed, and of a "not found" only what was retrieved.

    Args:
        measured: What to add it to.
        judge: Judges.
        answers: The answers.
        step: Called while it judges.
        name: What answered.
    """
    verdicts = iter(judge([answer for answer in answers if not answer.failure], step, name))
    for answer in answers:
        failed = dict.fromkeys(TRIAD, AskingFailed(f"no answer ({answer.failure})"))
        measured.add(answer.question.id, failed if answer.failure else next(verdicts))


def judged_by(judge: KeptLLM | None, trulens: str | Path | None) -> Verdicts | None:
    """What judges: TruLens if there is a database for it, else LlamaIndex's prompts; None without a judge.

    Raises:
        ImportError: TruLens is not installed.
    """
    if judge is None:
        return None
    if trulens is None:
        return partial(verdicts_of, judge)
    from llama_pack_densex.evaluation.trulens import Recorder

    return Recorder(trulens, judge).verdicts_of


def verdicts_of(
    llm: KeptLLM, answers: Sequence[AnsweredQuestion], step: Step, name: str
) -> Sequence[Verdict]:
    """Have an LLM judge by the prompts of LlamaIndex's evaluators (see `Verdicts`).

    The evaluators themselves write to core's `Settings`, and misread some replies.
    """

    def judge(request: tuple[str, AnsweredQuestion]) -> float:
        metric, answer = request
        question = answer.question.text
        if metric == "context_relevance":
            reply = _reply(llm, ContextRelevancyEvaluator(llm), question, answer.contexts)
            score = _read_score(reply, 4.0)
        elif metric == "groundedness":
            reply = _reply(llm, FaithfulnessEvaluator(llm), answer.text, answer.contexts)
            score = _read_yes_or_no(reply)
        else:
            template = answer_relevancy.DEFAULT_EVAL_TEMPLATE
            score = _read_score(llm.predict(template, query=question, response=answer.text), 2.0)
        if score is None:
            raise AskingFailed("the verdict cannot be read")
        return score

    requests = [(metric, answer) for answer in answers for metric in answer.metrics]
    scores = iter(at_once(judge, requests, step))
    return [{metric: next(scores) for metric in answer.metrics} for answer in answers]


def _reply(llm: KeptLLM, evaluator: BaseEvaluator, query: str, contexts: Sequence[str]) -> str:
    """What an evaluator would ask for: the reply to its prompts over some contexts."""
    prompts = evaluator.get_prompts()
    synthesizer = _synthesizer(
        llm, text_qa_template=prompts["eval_template"], refine_template=prompts["refine_template"]
    )
    documents = [Document(text=context) for context in contexts]
    nodes = SentenceSplitter().get_nodes_from_documents(documents)
    return str(synthesizer.synthesize(query, [NodeWithScore(node=node) for node in nodes]))


def _synthesizer(llm: KeptLLM, **templates: Any) -> BaseSynthesizer:
    """LlamaIndex's default one, which reads nothing from `Settings`."""
    return get_response_synthesizer(llm=llm, callback_manager=CallbackManager(), **templates)


def _read_score(reply: str, most: float) -> float | None:
    """The number after the last "[RESULT]", after a name for it, or alone, as a share of `most`.

    Of another scale, a range and a percentage it is not known what was meant. LlamaIndex's own reading
    crashes at "[RESULT] 4.0.", takes the 1 of "10" and of "1.5", and no number alone.
    """
    reply = _OUT_OF_JA.sub(r"\2/\1", unicodedata.normalize("NFKC", reply))
    places = [match.end() for match in _RESULT.finditer(reply)][-1:]
    places = places or [match.end() for match in _SCORE_NAME.finditer(reply)]
    if alone := _NUMBER_ALONE.fullmatch(reply):
        places = [alone.start(1)]
    scores = {_share(_SCORE.match(reply, place), most) for place in places}
    return scores.pop() if len(scores) == 1 else None


def _share(score: re.Match[str] | None, most: float) -> float | None:
    if score is None:
        return None
    value = float(score[1].replace(",", "."))
    return value / most if 0 <= value <= most == float(score[2] or most) else None


def _read_yes_or_no(reply: str) -> float | None:
    """1.0 or 0.0 by the verdict that a reply begins or ends with, else by the only one that it names.

    LlamaIndex takes every reply without a yes for a no.
    """
    reply = _BOTH.sub("", unicodedata.normalize("NFKC", reply).replace("\u2019", "'"))
    matches = [
        match for match in (_VERDICT_FIRST.match(reply), _VERDICT_LAST.search(reply)) if match
    ]
    matches = matches or list(_VERDICT_WITHIN.finditer(reply))
    verdicts = {match[match.lastindex or 0].lower() in _YES for match in matches}
    return float(verdicts.pop()) if len(verdicts) == 1 else None
