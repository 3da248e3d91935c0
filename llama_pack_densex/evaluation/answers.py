"""Answers and their quality: the RAG triad with LlamaIndex's prompts, and the support for their sentences.

A failure of the LLM is data: an answer or a verdict that is missing or cannot be read is counted as failed,
with the reason, and never as a 0 or a success.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
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
"""The RAG triad, in TruLens' terms; groundedness is what LlamaIndex calls faithfulness."""

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
# a "no" that other words follow may belong to a noun: "No doubt it is said."
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
    """A question and the answer that a query engine gave.

    Args:
        question: The question, without lone surrogates.
        text: The answer, without footnotes and markers.
        contexts: The texts of the nodes that it was written from; blank ones are left out.
        outcome: "answered", "not_found", "small_talk" or "vague"; "" if the engine does not report it.
        sentences: The answer's sentences, each with `footnotes` and `propositions` (the ids of those that
            support it); empty if the engine does not report them.
        failure: Why there is no answer; None if there is one.
    """

    question: Question
    text: str = ""
    contexts: Sequence[str] = ()
    outcome: str = ""
    sentences: Sequence[Mapping[str, Any]] = ()
    failure: AskingFailed | None = None

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the triad that apply: only an answer is judged for groundedness and relevance."""
        is_answered = self.text and self.outcome in ("", "answered")
        if self.contexts and is_answered:
            return TRIAD
        if self.contexts:
            return ("context_relevance",)
        if is_answered:
            return ("answer_relevance",)
        return ()


Verdict = Mapping[str, float | AskingFailed]
"""Metric to its value, or to the failure that left it without one."""

Verdicts = Callable[[Sequence[AnsweredQuestion], Step, str], Sequence[Verdict]]
"""A judge: called with the answers, a progress callback, and the name of the strategy that answered."""

AnswerQuestion = Callable[[str], RESPONSE_TYPE]


@dataclass
class Measured:
    """The values measured for each question, and the failures.

    Args:
        scores: Metric to question id to value; a failed item has no value.
        failed: Metric to the number of failures by reason.
    """

    scores: Scores
    failed: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, question: str, verdict: Verdict) -> None:
        """Add the values and failures of one question."""
        for metric, value in verdict.items():
            if isinstance(value, AskingFailed):
                self.failed[metric][str(value)] += 1
            else:
                self.scores.setdefault(metric, {})[question] = value

    def warn(self, name: str) -> None:
        """Log a warning that counts the failures, if there are any."""
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
                "%s: not counted, because they failed: %s (%s).",
                name, ", ".join(counts), "; ".join(sorted(distinct)),
            )  # fmt: skip


def reading(llm: KeptLLM, nodes: list[NodeWithScore]) -> AnswerQuestion:
    """Return a function that answers a question from fixed nodes, as LlamaIndex's default query engine does.

    Args:
        llm: The LLM that answers, to LlamaIndex's own prompts.
        nodes: The nodes that it reads.
    """
    return lambda question: _synthesizer(llm).synthesize(question, nodes)


def answer_questions(
    questions: Sequence[tuple[Question, AnswerQuestion]], step: Step
) -> list[AnsweredQuestion]:
    """Have questions answered, several at a time.

    Args:
        questions: The questions, each with the function that answers it.
        step: The progress callback.

    Returns:
        The answers, in the order of the questions. If an LLM stops, all of them are failures.
    """

    def ask(item: tuple[Question, AnswerQuestion]) -> AnsweredQuestion:
        question, answer = item
        try:
            response: Any = answer(question.text)
        except (AskingFailed, LLMError):
            raise
        except Exception as error:
            # any exception of a user's engine costs that one answer, and is reported
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
    """Add the metrics of answers that need no judge.

    - `str_em`: whether the answer contains an accepted answer; the name is ALCE's (Gao et al., 2023).
    - `answered`: whether the question was answered, rather than met with "not found", a greeting or advice.
    - `cited`: the share of an answer's sentences that have a footnote.
    - `supported`: the share of its sentences that a proposition states.

    Args:
        measured: Where the values are added.
        answers: The answers.
        language: "en", "ja", ...
    """
    for answer in answers:
        accepted = answer.question.answers
        values: dict[str, float | AskingFailed] = {}
        if answer.failure and accepted:
            values["str_em"] = answer.failure
        elif answer.failure:
            values["answered"] = answer.failure
        elif accepted:
            values["str_em"] = float(contains_answer(answer.text, accepted, language))
        if answer.outcome:
            values["answered"] = float(answer.outcome == "answered")
        if answer.sentences and answer.outcome in ("", "answered"):
            values["cited"] = _share_with("footnotes", answer.sentences)
            values["supported"] = _share_with("propositions", answer.sentences)
        measured.add(answer.question.id, values)


def _share_with(name: str, sentences: Sequence[Mapping[str, Any]]) -> float:
    return fmean(bool(sentence.get(name)) for sentence in sentences)


def judge_answers(
    measured: Measured, judge: Verdicts, answers: Sequence[AnsweredQuestion], step: Step, name: str
) -> None:
    """Have answers judged by the RAG triad, and add a value from 0 to 1 for each metric.

    An answer that failed is not judged; for a "not found", only the relevance of the context is.

    Args:
        measured: Where the values are added.
        judge: The judge.
        answers: The answers.
        step: The progress callback.
        name: The name of the strategy that answered.
    """
    verdicts = iter(judge([answer for answer in answers if not answer.failure], step, name))
    for answer in answers:
        if answer.failure:
            failed = AskingFailed(f"no answer ({answer.failure})")
            measured.add(answer.question.id, dict.fromkeys(TRIAD, failed))
        else:
            measured.add(answer.question.id, next(verdicts))


def judged_by(judge: KeptLLM | None, trulens: str | Path | None) -> Verdicts | None:
    """Return the judge: TruLens if it has a database, else LlamaIndex's prompts; None without an LLM.

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
    """Have an LLM judge answers with the prompts of LlamaIndex's evaluators (see `Verdicts`).

    The evaluators themselves are not used: they write to core's `Settings` and misread some replies.
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
    """Return the reply to an evaluator's prompts over these contexts, as the evaluator would request it."""
    prompts = evaluator.get_prompts()
    synthesizer = _synthesizer(
        llm, text_qa_template=prompts["eval_template"], refine_template=prompts["refine_template"]
    )
    documents = [Document(text=context) for context in contexts]
    nodes = SentenceSplitter().get_nodes_from_documents(documents)
    return str(synthesizer.synthesize(query, [NodeWithScore(node=node) for node in nodes]))


def _synthesizer(llm: KeptLLM, **templates: Any) -> BaseSynthesizer:
    """Make LlamaIndex's default synthesizer without reading anything from `Settings`."""
    return get_response_synthesizer(llm=llm, callback_manager=CallbackManager(), **templates)


def _read_score(reply: str, most: float) -> float | None:
    """Read a score as a share of `most`; None if there is none, or it is ambiguous.

    The score is a number that stands alone, or after the last "[RESULT]", or after a word such as "Score:".
    Numbers on another scale, ranges and percentages are ambiguous. LlamaIndex's own parser crashes on
    "[RESULT] 4.0.", reads "10" and "1.5" as 1, and accepts no number that stands alone.
    """
    reply = _OUT_OF_JA.sub(r"\2/\1", unicodedata.normalize("NFKC", reply))
    alone = _NUMBER_ALONE.fullmatch(reply)
    if alone:
        return _share(_SCORE.match(reply, alone.start(1)), most)
    places = [match.end() for match in _RESULT.finditer(reply)][-1:]
    places = places or [match.end() for match in _SCORE_NAME.finditer(reply)]
    return _only({_share(_SCORE.match(reply, place), most) for place in places})


def _share(score: re.Match[str] | None, most: float) -> float | None:
    if score is None:
        return None
    value = float(score[1].replace(",", "."))
    scale = float(score[2] or most)
    if scale != most or not 0 <= value <= most:
        return None
    return value / most


def _read_yes_or_no(reply: str) -> float | None:
    """Read a verdict as 1.0 or 0.0; None if there is none, or verdicts contradict each other.

    The verdict is the one that the reply begins or ends with, else the only one that it names. LlamaIndex
    takes every reply without a "yes" for a "no".
    """
    reply = _BOTH.sub("", unicodedata.normalize("NFKC", reply).replace("\u2019", "'"))
    outer = (_VERDICT_FIRST.match(reply), _VERDICT_LAST.search(reply))
    matches = list(filter(None, outer)) or list(_VERDICT_WITHIN.finditer(reply))
    return _only({float(match[match.lastindex or 0].lower() in _YES) for match in matches})


def _only(scores: Set[float | None]) -> float | None:
    """Return the score if there is only one."""
    if len(scores) != 1:
        return None
    (score,) = scores
    return score
