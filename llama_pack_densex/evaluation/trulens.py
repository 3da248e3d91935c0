"""Answers recorded and judged by TruLens, in an SQLite database that its dashboard can open.

TruLens writes to stdout, changes loggers, environment variables and warning filters, keeps one session per
process, and instruments the classes of the engines that it records. None of that happens before a `Recorder`
is made, and whatever can be undone is undone. The requests of its metrics go through a `KeptLLM`; nothing
else leaves the machine.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import ChatMessage
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.utils import iter_batch

from llama_pack_densex.evaluation.answers import TRIAD, AnsweredQuestion, Verdict
from llama_pack_densex.evaluation.models import AskingFailed, KeptLLM, Step
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.text.segments import passage_sentences

APP = "densex"
"""The name of the application in the database; strategies are its versions."""

_AS_JSON = (
    "\n\nReply with a JSON object alone: "
    '{"criteria": "...", "supporting_evidence": "...", "score": N}, where N is a number on the scale above.'
)
_AT_ONCE = 8  # records that are judged together; TruLens uses one thread for each


class Recorder:
    """Records the answers of query engines, and judges them by TruLens' RAG triad.

    A record holds the question, the retrieved texts and the answer. The engine is not run again, so its
    latency is not recorded.

    Use one recorder at a time, and none beside a TruLens session of your own: TruLens has one session per
    process.

    Args:
        database: An SQLite file, created if missing; its content is kept.
        judge: The LLM that judges.

    Raises:
        ImportError: The extra `trulens` is not installed.
    """

    def __init__(self, database: str | Path, judge: KeptLLM) -> None:
        self._database = Path(database).absolute()
        self._judge = judge
        with _contained():
            self._core = _trulens("core")
            self._app = _trulens("apps.llamaindex").TruLlama
            self._metrics = _metrics(self._core, judge)

    def verdicts_of(
        self, answers: Sequence[AnsweredQuestion], step: Step, name: str
    ) -> list[Verdict]:
        """Record a strategy's answers as a version of the app, and judge them (see `answers.Verdicts`).

        Raises:
            SQLAlchemyError: The database cannot be used.
            ValueError: There is a TruLens session over another database.
        """
        verdicts: list[Verdict] = []
        with _contained(), self._session() as session:
            retriever = _Retrieved(callback_manager=CallbackManager())
            engine = _Answered(retriever=retriever)
            app = self._app(engine, app_name=APP, app_version=name, start_evaluator=False)
            # the metrics are computed below; TruLens' own evaluator would warn that it was never started
            app._evaluator = None
            for batch in iter_batch(answers, _AT_ONCE):
                records = []
                for retriever.answer in batch:
                    with app as recording:
                        engine.query(retriever.answer.question.text)
                    records.append(recording.records[0].record_id)
                session.force_flush()
                events = session.get_events(
                    app_name=APP,
                    app_version=name,
                    record_ids=records,
                )
                session.compute_feedbacks_on_events(events, self._metrics)
                session.force_flush()
                if self._judge.stopped:
                    why = AskingFailed(f"the LLM stopped: {self._judge.stopped}")
                    return [dict.fromkeys(answer.metrics, why) for answer in answers]
                frame, _ = session.get_records_and_feedback(record_ids=records)
                rows = {row["record_id"]: row for row in frame.to_dict(orient="records")}
                for record, answer in zip(records, batch, strict=True):
                    row = rows.get(record, {})
                    verdicts.append({metric: _value(row.get(metric)) for metric in answer.metrics})
                step(len(verdicts), len(answers))
        return verdicts

    @contextmanager
    def _session(self) -> Iterator[Any]:
        self._database.parent.mkdir(parents=True, exist_ok=True)
        session = self._core.TruSession(database_url=f"sqlite:///{self._database}")
        if session.connector.db.engine.url.database != str(self._database):
            raise ValueError(
                "TruLens keeps one session per process, and another is open: close it with "
                "TruSession.delete_singleton"
            )
        try:
            yield session
        finally:
            session.force_flush()
            # otherwise it would receive the next session's records
            session._experimental_otel_span_processor.shutdown()
            self._core.TruSession.delete_singleton(self._core.TruSession)


class _Retrieved(BaseRetriever):
    """Returns the contexts of a given answer, because TruLens records what a retriever returns."""

    answer: AnsweredQuestion

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text)) for text in self.answer.contexts]


class _Answered(CustomQueryEngine):
    """Returns a given answer, for TruLens to record."""

    retriever: _Retrieved

    def custom_query(self, query_str: str) -> Response:
        return Response(self.retriever.answer.text, self.retriever.retrieve(query_str))


def _metrics(core: Any, judge: KeptLLM) -> list[Any]:
    """Make the metrics of the RAG triad as in TruLens' documentation, with `judge` as their LLM."""
    provider = _provider(judge)
    select = core.Selector
    question = select.select_record_input()
    answer = select.select_record_output()
    context = select.select_context(collect_list=False)
    contexts = select.select_context(collect_list=True)
    configs = _trulens("core.feedback.feedback").GroundednessConfigs
    metrics: Any = (
        (
            provider.context_relevance_with_cot_reasons,
            {"question": question, "context": context},
            {},
        ),
        (
            provider.groundedness_measure_with_cot_reasons,
            {"source": contexts, "statement": answer},
            {
                "groundedness_configs": configs(
                    use_sent_tokenize=False,
                    filter_trivial_statements=False,
                ),
            },
        ),
        (provider.relevance_with_cot_reasons, {"prompt": question, "response": answer}, {}),
    )
    return [
        core.Metric(name=name, implementation=measure, selectors=selectors, **options)
        for name, (measure, selectors, options) in zip(TRIAD, metrics, strict=True)
    ]


def _provider(judge: KeptLLM) -> Any:
    """Make the LLM provider of TruLens' metrics; its class can be defined only after TruLens is imported."""
    base = _trulens("feedback.llm_provider").LLMProvider
    split_prompt = _trulens("feedback.templates.rag").Groundedness.sentences_splitter_prompt

    class KeptLLMProvider(base):  # type: ignore[misc, valid-type]
        def _create_chat_completion(
            self,
            prompt: str | None = None,
            messages: Any = None,
            response_format: Any = None,
            **kwargs: Any,
        ) -> str:
            messages = messages or [{"role": "user", "content": prompt}]
            *earlier, last = [
                ChatMessage(message["content"], role=message["role"]) for message in messages
            ]
            text = last.content or ""
            # sentences are split here, at no cost and in any language
            if messages[0]["content"] == split_prompt:
                return "\n".join(" ".join(sentence.split()) for sentence in passage_sentences(text))
            if response_format is None:
                return judge.ask([*earlier, last])
            request = ChatMessage(f"{text}{_AS_JSON}", role=last.role)
            return json.dumps(_read_verdict(judge.ask([*earlier, request])))

    # the judge itself keeps to the rate limits and the budget, and retries
    endpoint = _trulens("core.feedback.endpoint").Endpoint(name=APP, rpm=1e9, retries=0)
    return KeptLLMProvider(model_engine=judge.metadata.model_name, endpoint=endpoint)


def _read_verdict(reply: str) -> dict[str, Any]:
    """Return the JSON object in a reply, with its score as a number.

    Raises:
        ValueError: There is no object or no score. TruLens would take any number in the text for the score.
    """
    first_brace = reply.find("{")
    last_brace = reply.rfind("}")
    verdict = json.loads(reply[first_brace : last_brace + 1])
    score = verdict.get("score")
    if isinstance(score, bool) or not isinstance(score, (int, float, str)):
        raise ValueError("the verdict has no score")
    return {"criteria": "", "supporting_evidence": "", **verdict, "score": float(score)}


def _value(score: Any) -> float | AskingFailed:
    """Return a score from 0 to 1; TruLens gives -1 or NaN for a missing one, which is a failure."""
    if isinstance(score, (int, float)) and 0 <= score <= 1:
        return score
    return AskingFailed("no verdict")


def _trulens(module: str) -> Any:
    return require(f"trulens.{module}", "trulens-core", "recording with TruLens", "trulens")


@contextmanager
def _contained() -> Iterator[None]:
    """Suppress TruLens' output and logs (which quote documents), and undo its changes to the process."""
    with (
        ExitStack() as stack,
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        patch.dict(os.environ),
    ):
        warnings.simplefilter("ignore")
        for logger in map(logging.getLogger, ("trulens", "opentelemetry", "dotenv.main")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield
