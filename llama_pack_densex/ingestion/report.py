"""What becomes of each document of an ingestion, and of all: `ingestion_report.json`, and a summary for people."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Literal

from llama_index.core.schema import BaseNode, TextNode

from llama_pack_densex.ingestion.progress import Display, duration, many, money
from llama_pack_densex.llm.cache import open_private
from llama_pack_densex.llm.errors import message_of, scrub, secrets_in_environment, without_quotes
from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, REASON_KEY, STATUS_KEY, findings_of
from llama_pack_densex.node_parsers.parsers import ParsedDocument
from llama_pack_densex.propositionizers.base import Propositionizer, PropositionSet, report_fallbacks
from llama_pack_densex.propositionizers.prompts import REASONS
from llama_pack_densex.text.tokens import has_letters

logger = logging.getLogger(__name__)

PART_SUFFIX = ".part"

KEPT_DOCUMENTS = 20
"""Failed documents that are kept in memory for the summary on the screen."""

_MESSAGE_CHARACTERS = 500
_SOONEST = 5.0  # seconds before which no rate is told: the first replies come in a bunch
_REASONS = 10
_SHOWN_FAILURES, _SHOWN_REASONS = 5, 3

DocumentState = Literal["done", "changed", "unchanged", "failed", "deleted", "blank"]


@dataclass(frozen=True)
class PassageFallback:
    """A passage whose propositions could not be had, so that its sentences stand in for them.

    Args:
        passage: Its number in the document, from 1.
        start: Where it begins in the document's text; None where that is not known.
        end: Where it ends.
        reason: Why its propositions could not be had. It never holds the passage's text.
    """

    passage: int
    start: int | None
    end: int | None
    reason: str


@dataclass(frozen=True)
class DocumentOutcome:
    """What became of a document.

    Args:
        document_id: The document.
        state: "done" (new), "changed" (replaced an earlier version), "unchanged" (left as it is), "failed" (its earlier
            version, if there is one, stays), "deleted" (it is gone) or "blank" (it has no text).
        passages: Passages that were made of it in this run; none where it was left alone.
        propositions: Propositions that were made of it in this run.
        statuses: Those passages by status: "ok", "repaired" and "fallback".
        fallbacks: The passages that fell back, in order.
        error: For a failed document, what failed and what to do; else "".
        findings: What checks found wrong with those propositions, by kind.
    """

    document_id: str
    state: DocumentState
    passages: int = 0
    propositions: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    fallbacks: tuple[PassageFallback, ...] = ()
    error: str = ""
    findings: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class IngestionSummary:
    """What an ingestion came to in all.

    Args:
        state: "finished", or "stopped" before everything was done.
        why_stopped: Why it stopped; "" where it did not.
        started: When it began, in ISO 8601, UTC.
        finished: When it ended.
        seconds: How long it took.
        documents: Documents by state.
        passages: Passages that were made.
        propositions: Propositions that were made.
        statuses: Those passages by status: "ok", "repaired" and "fallback".
        fallback_reasons: The most frequent reasons of fallbacks, with their numbers.
        requests: What the requests came to.
        findings: What checks found wrong with the propositions, by kind.
        report: Where the report with every document was written; "" where there is none. The report itself has not.
    """

    state: Literal["finished", "stopped"]
    why_stopped: str
    started: str
    finished: str
    seconds: float
    documents: dict[str, int]
    passages: int
    propositions: int
    statuses: dict[str, int]
    fallback_reasons: dict[str, int]
    requests: RequestFigures
    findings: dict[str, int] = field(default_factory=dict)
    report: str = field(default="", compare=False)

    def __str__(self) -> str:
        return "\n".join(f"{label:<13} {text}" for label, text in summary_rows(self))


class Watch:
    """Watches one ingestion, from `with` to the end of it: shows its progress, logs, and writes its report.

    The progress is drawn by a thread of its own, so that neither a slow terminal nor a server that does not answer
    holds anything up. Documents go into `<name>.part` beside the report, one a line, so that memory does not grow with
    the corpus. In the end that file takes the place of an earlier report in one step; killed before, the earlier one is
    still there.

    Args:
        propositionizer: What makes the propositions; its requests are counted from now on.
        report: The report's file, of which this is the only writer; None for none.
        display: Shows the progress.
        documents: How many documents there are; None where that is not known.
        clock: A monotonic clock in seconds.
        is_proven: Whether it made what the index has: then a refusal or a content filter is the matter of the text.

    Attributes:
        summary: What it came to; None until the end, and where something stopped it and the report cannot be written.
        outcomes_failed: The first documents that failed, at most `KEPT_DOCUMENTS`.

    Raises:
        OSError: The report cannot be written.
    """

    def __init__(
        self,
        propositionizer: Propositionizer,
        report: Path | None,
        display: Display,
        documents: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        is_proven: bool = False,
    ) -> None:
        self._propositionizer, self._before = propositionizer, propositionizer.figures
        self._display, self._total, self._clock = display, documents or 0, clock
        self._report, self._is_proven = None if report is None else _ReportFile(report), is_proven
        self._started, self._began = _now(), clock()
        self._anew = self._began, 0, 0  # from where on the rate is told: the time, documents and passages
        self._ready = Counter[str]()  # what was made, also of documents that are not done
        self._states, self._statuses, self._reasons = Counter[str](), Counter[str](), Counter[str]()
        self._findings = Counter[str]()
        self._passages = self._propositions = 0
        self._fallback: PropositionSet | None = None  # the last one that may be another's matter than its text's
        self._is_sound = False  # whether other propositions came
        self._first_error: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="densex-progress", daemon=True)
        self.outcomes_failed: tuple[DocumentOutcome, ...] = ()
        self.summary: IngestionSummary | None = None

    def __enter__(self) -> Watch:
        self._display.around.__enter__()
        if self._display.seconds is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)  # not for ever: an output that is held takes nothing
        self._write(is_last=True)
        with suppress(OSError):  # its terminal is closed, as when a connection is lost
            self._display.around.__exit__(None, None, None)
        summary = IngestionSummary(
            state="finished" if error is None else "stopped",
            why_stopped="" if error is None else describe(error),
            started=self._started,
            finished=_now(),
            seconds=round(self._clock() - self._began, 3),
            documents=dict(self._states),
            passages=self._passages,
            propositions=self._propositions,
            statuses=dict(self._statuses),
            fallback_reasons=dict(self._reasons.most_common(_REASONS)),
            requests=self._figures(),
            findings=dict(self._findings.most_common()),
            report="" if self._report is None else str(self._report.path),
        )
        try:
            if self._report is not None:
                self._report.finish(summary)
            self.summary = summary
        except OSError as failure:
            if error is None:
                raise
            logger.error("The ingestion report could not be written: %s", failure)  # and the error goes on
        report_fallbacks(self._reasons, summary.passages)

    def passage(self, made: PropositionSet) -> None:
        """The propositions of a passage are ready."""
        self._ready.update(passages=1, propositions=len(made.texts), fallbacks=int(made.status == "fallback"))
        self._begin_anew()
        if made.status == "fallback":
            is_of_its_text = REASONS["filtered"] in made.reason or REASONS["refused"] in made.reason
            if not (self._is_proven and is_of_its_text):
                self._fallback = made
        else:
            self._is_sound = self._is_sound or any(map(has_letters, made.texts))

    @property
    def unanswered(self) -> str:
        """Why what fell back does not count as done: no request was answered so far, or no answer was of use."""
        requests, last = self._figures(), self._fallback
        if last is None or not (requests.usage.requests or requests.failed):
            return ""  # nothing was asked
        is_silent = last.is_passing and not requests.usage.requests
        if self._is_sound and not is_silent:
            return ""
        said = "The provider never answered" if is_silent else "None of the passages came to propositions"
        return (
            f"{said}; the last passage: {last.reason}. See whether the provider is up, and its address, the model and "
            "the settings are right, and run again: sentences do not stand in, and all is asked anew."
        )

    def done(self, parsed: ParsedDocument, replaced: bool) -> None:
        """A document is in the index."""
        self._add(_outcome(parsed, replaced))
        if not parsed.nodes:
            logger.warning("Document %r has no text, and so nothing to index.", parsed.document.id_)

    def unchanged(self, document: BaseNode) -> None:
        """A document was in the index as it is."""
        self._add(DocumentOutcome(document.id_, "unchanged"))
        self._begin_anew()

    def deleted(self, document_id: str) -> None:
        """A document is no longer in the index."""
        self._add(DocumentOutcome(document_id, "deleted"))

    def failed(self, document: BaseNode, error: Exception) -> None:
        """A document could not be indexed; what the index had of it is there as it was."""
        self._first_error = self._first_error or error
        outcome = DocumentOutcome(document.id_, "failed", error=describe(error, document.get_content()))
        self._add(outcome)
        self.outcomes_failed = (*self.outcomes_failed, outcome)[:KEPT_DOCUMENTS]
        logger.error("Document %r was not indexed: %s", document.id_, outcome.error)

    def raise_if_all_failed(self) -> None:
        """Raise the first document's error if no document was indexed: then it is the caller's matter."""
        if self._first_error is not None and not any(map(self._states.get, ("done", "changed", "unchanged"))):
            raise self._first_error

    def _add(self, outcome: DocumentOutcome) -> None:
        if self._report is not None:
            self._report.append(outcome)
        self._states[outcome.state] += 1
        self._passages += outcome.passages
        self._propositions += outcome.propositions
        self._statuses.update(outcome.statuses)
        self._findings.update(outcome.findings)
        self._reasons.update(fallback.reason for fallback in outcome.fallbacks)

    def figures(self, is_last: bool = False) -> list[str]:
        """How far the ingestion is, in figures for people, without those that are unknown or zero.

        Args:
            is_last: Whether it is over: then they tell its average rate and its time.
        """
        now = self._clock()
        begun, documents, passages = (self._began, 0, 0) if is_last else self._anew
        seconds, figures = now - begun, list(self._made())
        if seconds >= _SOONEST and self._ready["passages"] > passages:
            figures.append(f"{(self._ready['passages'] - passages) / seconds * 60:,.1f}/min")
        done, left = self._done - documents, self._total - self._done
        if is_last:
            return [*figures, f"in {duration(now - self._began)}"]
        if left > 0 and done >= 2 and seconds >= _SOONEST:
            return [*figures, f"{duration(left / done * seconds)} left"]
        return [*figures, f"{duration(now - self._began)} so far"]

    @property
    def _done(self) -> int:
        return self._states.total() - self._states["deleted"]

    def _begin_anew(self) -> None:
        """An ingestion that is taken up again begins with what was kept, at once: nothing can be told from that."""
        if self._ready["passages"] <= self._figures().cache_hits:
            self._anew = self._clock(), self._done, self._ready["passages"]

    def _made(self) -> Iterator[str]:
        """What was made, and what it took."""
        if self._total > self._done:
            yield f"{self._done:,}/{many(self._total, 'document')}"
        elif self._done:
            yield many(self._done, "document")
        yield many(self._ready["passages"], "passage")
        for noun in ("proposition", "fallback"):
            if number := self._ready[f"{noun}s"]:
                yield many(number, noun)
        used = self._figures()
        if used.cache_hits:
            yield f"{used.cache_hits:,} from the cache"
        if used.usage.total_tokens:
            yield f"{used.usage.total_tokens:,} tokens"
        if used.cost:
            yield money(used.cost)

    def _show(self) -> None:
        while not self._over.wait(self._display.seconds) and self._write():
            pass

    def _write(self, is_last: bool = False) -> bool:
        try:
            self._display.write(", ".join(self.figures(is_last)))
        except (OSError, ValueError) as error:  # the output is closed: that is no failure of the ingestion
            logger.warning("Progress is no longer shown (%s).", error)
            return False
        return True

    def _figures(self) -> RequestFigures:
        return self._propositionizer.figures.since(self._before)


class _ReportFile:
    """The report in the making, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path, self._part = path, path.with_name(path.name + PART_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part.unlink(missing_ok=True)  # of an ingestion that was killed
        # half a character (a lone surrogate) of a document's id becomes its escape, which JSON reads back
        self._file = open(self._part, "x", encoding="utf-8", errors="backslashreplace", opener=open_private)  # noqa: SIM115
        self._file.write('{"documents": [')
        self._between = "\n"

    def append(self, outcome: DocumentOutcome) -> None:
        self._file.write(self._between + json.dumps(asdict(outcome), ensure_ascii=False))
        self._file.flush()
        self._between = ",\n"

    def finish(self, summary: IngestionSummary) -> None:
        with self._file:
            said = {name: value for name, value in asdict(summary).items() if name != "report"}
            self._file.write('\n],\n"summary": ' + json.dumps(said, ensure_ascii=False, indent=2) + "}\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._part.replace(self.path)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def describe(error: BaseException, text: str = "") -> str:
    """Say what an exception is, on one line, without keys and without what it quotes of a text."""
    message = _plain(without_quotes(message_of(error)[: 10 * _MESSAGE_CHARACTERS], text))[:_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _plain(text: str) -> str:
    """A message on one line, without keys: those that look like one, and those of the environment."""
    return scrub(" ".join(text.split()), secrets_in_environment())


def _outcome(parsed: ParsedDocument, replaced: bool) -> DocumentOutcome:
    nodes = [node for node in parsed.nodes if isinstance(node, TextNode)]
    passages = [node for node in nodes if node.metadata[GRANULARITY_KEY] == "passage"]
    fallbacks = [
        PassageFallback(number, node.start_char_idx, node.end_char_idx, _plain(node.metadata[REASON_KEY]))
        for number, node in enumerate(passages, 1)
        if node.metadata.get(STATUS_KEY) == "fallback"
    ]
    return DocumentOutcome(
        document_id=parsed.document.id_,
        state="blank" if not parsed.nodes else "changed" if replaced else "done",
        passages=len(passages),
        propositions=sum(node.metadata[GRANULARITY_KEY] == "proposition" for node in nodes),
        statuses=dict(Counter(node.metadata[STATUS_KEY] for node in passages if STATUS_KEY in node.metadata)),
        fallbacks=tuple(fallbacks),
        findings=dict(Counter(one.partition(":")[0] for node in nodes for one in findings_of(node))),
    )


def summary_rows(summary: IngestionSummary, failed: Sequence[DocumentOutcome] = ()) -> Iterator[tuple[str, str]]:
    """Say what an ingestion came to: labels, "" under the same label, and what is said.

    Args:
        summary: What it came to.
        failed: Failed documents, the first of which are named.
    """
    if summary.state == "stopped":
        yield "Stopped", summary.why_stopped
    yield "Documents", _counts(summary.documents, ("done", "changed", "unchanged", "deleted", "blank", "failed")) or "0"
    for outcome in failed[:_SHOWN_FAILURES]:
        yield "", f"failed: {outcome.document_id}: {outcome.error}"
    if summary.passages:
        statuses = _counts(summary.statuses, ("ok", "repaired", "fallback"))
        yield "Passages", f"{summary.passages:,}" + (f": {statuses}" if statuses else "")
        for reason, times in list(summary.fallback_reasons.items())[:_SHOWN_REASONS]:
            yield "", f"{many(times, 'fallback')}: {reason}"
        yield "Propositions", f"{summary.propositions:,}"
        if summary.findings:
            found = ", ".join(f"{times:,} {kind.replace('_', '-')}" for kind, times in summary.findings.items())
            yield "Findings", f"{found} (densex inspect DIR --findings)"
    requests, usage = summary.requests, summary.requests.usage
    numbers = {
        "answered": usage.requests,
        "from the cache": requests.cache_hits,
        "refused for a limit and sent again": requests.refused,
        "failed": requests.failed,
    }
    if any(numbers.values()):
        yield "Requests", _counts(numbers, numbers)
    if usage.requests:
        cached = f" ({usage.cached_input_tokens:,} cached)" if usage.cached_input_tokens else ""
        yield "Tokens", f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
        cost = money(requests.cost, "unknown: no price is known")
        yield "Cost", cost + (f" ({requests.model})" if requests.model else "")
    yield "Time", duration(summary.seconds)
    if summary.report:
        yield "Report", summary.report


def _counts(counts: Mapping[str, int], names: Iterable[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts.get(name))
