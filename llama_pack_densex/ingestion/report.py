"""Report of an ingestion: each document's outcome in `ingestion_report.json`, and a summary for people."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, asdict, dataclass, field
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from llama_index.core.schema import BaseNode, TextNode

from llama_pack_densex.ingestion.progress import Display, duration, many, money
from llama_pack_densex.llm.cache import open_private
from llama_pack_densex.llm.errors import message_of, scrub, secrets_in_environment, without_quotes
from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.node_parsers.ids import named
from llama_pack_densex.node_parsers.metadata import (
    GRANULARITY_KEY,
    REASON_KEY,
    STATUS_KEY,
    findings_of,
)
from llama_pack_densex.node_parsers.parsers import ParsedDocument
from llama_pack_densex.propositionizers.base import (
    Propositionizer,
    PropositionSet,
    report_fallbacks,
)
from llama_pack_densex.propositionizers.replies import REASONS
from llama_pack_densex.text import markup
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import has_letters

logger = plain_logger(__name__)

PART_SUFFIX = ".part"
_SUMMARY = '"summary": '  # at the end of the report
_LONGEST_SUMMARY = 2**16  # bytes

KEPT_DOCUMENTS = 20
"""Failed documents that are held in memory for the summary on the screen."""

_MESSAGE_CHARACTERS = 500
_RATE_AFTER = 5.0  # seconds before a rate is shown, since the first replies arrive in a burst
_REASONS = 10
_SHOWN_FAILURES = 5
_SHOWN_REASONS = 3
_DUE_TO_TEXT = (REASONS["filtered"], REASONS["refused"])

Row = tuple[str, str]
DocumentState = Literal["done", "changed", "unchanged", "failed", "deleted", "blank"]


@dataclass(frozen=True)
class PassageFallback:
    """A passage whose sentences stand in for propositions that could not be obtained.

    Args:
        passage: The passage's number in the document, from 1.
        start: Where it begins in the document's text; None if that is not known.
        end: Where it ends.
        reason: Why there are no propositions; never contains the passage's text.
    """

    passage: int
    start: int | None
    end: int | None
    reason: str


@dataclass(frozen=True)
class DocumentOutcome:
    """The outcome of one document of an ingestion.

    Args:
        document_id: The document's id.
        state: "done" (new), "changed" (replaced an earlier version), "unchanged" (already in the index),
            "failed" (its earlier version, if there is one, stays), "deleted" or "blank" (it has no text).
        passages: Passages made of it in this run; 0 if it was skipped.
        propositions: Propositions made of it in this run.
        statuses: The number of those passages by status: "ok", "repaired" and "fallback".
        fallbacks: The passages with status "fallback", in order.
        error: For a failed document, what failed and what to do; else "".
        findings: The number of findings of checks about those propositions, by kind.
    """

    document_id: str
    state: DocumentState
    passages: int = 0
    propositions: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    fallbacks: tuple[PassageFallback, ...] = ()
    error: str = ""
    findings: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, parsed: ParsedDocument, replaced: bool) -> DocumentOutcome:
        """Make the outcome of a document that is now in the index.

        Args:
            parsed: The document.
            replaced: Whether it replaced an earlier version.
        """
        nodes = [node for node in parsed.nodes if isinstance(node, TextNode)]
        units = Counter(node.metadata[GRANULARITY_KEY] for node in nodes)
        passages = [node for node in nodes if node.metadata[GRANULARITY_KEY] == "passage"]
        statuses = Counter(
            node.metadata[STATUS_KEY] for node in passages if STATUS_KEY in node.metadata
        )
        return cls(
            document_id=parsed.document.id_,
            state=_state_of(parsed, replaced),
            passages=units["passage"],
            propositions=units["proposition"],
            statuses=dict(statuses),
            fallbacks=tuple(_fallbacks(passages)),
            findings=_count_findings(nodes),
        )


def _state_of(parsed: ParsedDocument, replaced: bool) -> DocumentState:
    if not parsed.nodes:
        return "blank"
    return "changed" if replaced else "done"


@dataclass(frozen=True)
class IngestionSummary:
    """The totals of an ingestion.

    Args:
        state: "finished", or "stopped" before everything was done.
        why_stopped: Why it stopped; "" if it did not.
        started: When it began, in ISO 8601, UTC.
        finished: When it ended, likewise.
        seconds: How long it took.
        documents: The number of documents by state.
        passages: Passages that were made.
        propositions: Propositions that were made.
        statuses: The number of those passages by status: "ok", "repaired" and "fallback".
        fallback_reasons: The most frequent reasons of fallbacks, with their counts.
        requests: The requests, their usage and cost.
        findings: The number of findings of checks about the propositions, by kind.
        report: The path of the report with every document; "" if there is none. The report itself lacks this
            field.
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

    def _repr_html_(self) -> str:
        return markup.block("Ingestion", markup.table(summary_rows(self)))


@dataclass(eq=False)
class Watch:
    """Watches one ingestion, as a context manager around it: shows progress, logs, and writes the report.

    A thread of its own draws the progress, so that neither a slow terminal nor a server that does not answer
    delays the ingestion. Outcomes of documents are written to `<name>.part` beside the report, one per line,
    so that memory does not grow with the corpus. In the end that file replaces an earlier report in one step;
    if the process is killed first, the earlier report remains.

    Args:
        propositionizer: Makes the propositions; its requests are counted from now on.
        report: The path of the report, of which this is the only writer; None for no report.
        display: Shows the progress.
        documents: The number of documents; None if it is not known.
        clock: A monotonic clock in seconds.
        is_proven: Whether the propositionizer made what is in the index, so that a refusal or a content
            filter can be blamed on the text.

    Attributes:
        summary: The totals; None until the end, and None if the ingestion was stopped by an error and the
            report could not be written.
        outcomes_failed: The first documents that failed, at most `KEPT_DOCUMENTS`.

    Raises:
        OSError: The report cannot be written.
    """

    propositionizer: Propositionizer
    report: InitVar[Path | None]
    display: Display
    documents: int | None = None
    clock: Callable[[], float] = time.monotonic
    is_proven: bool = False
    summary: IngestionSummary | None = field(default=None, init=False)
    outcomes_failed: tuple[DocumentOutcome, ...] = field(default=(), init=False)

    def __post_init__(self, report: Path | None) -> None:
        self._initial_figures = self.propositionizer.figures
        self._total = self.documents or 0
        self._report = None if report is None else _ReportFile(report)
        self._started = _now()
        self._began = self.clock()
        self._rate_from = _Mark(self._began)
        # passages, propositions and fallbacks, including those of documents that are not yet done
        self._ready = Counter[str]()
        self._states = Counter[str]()
        self._units = Counter[str]()
        self._statuses = Counter[str]()
        self._reasons = Counter[str]()
        self._findings = Counter[str]()
        # the last fallback that may have another cause than the passage's text
        self._doubtful_fallback: PropositionSet | None = None
        self._has_propositions = False
        self._first_error: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="densex-progress", daemon=True)

    def __enter__(self) -> Watch:
        self.display.around.__enter__()
        if self.display.seconds is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)  # a blocked output could hang for ever
        self._write(is_last=True)
        with suppress(OSError):  # the terminal is closed, as when a connection is lost
            self.display.around.__exit__(None, None, None)
        summary = self._summarise(error)
        try:
            if self._report:
                self._report.finish(summary)
            self.summary = summary
        except OSError as failure:
            if error is None:
                raise
            # the ingestion's own error is raised
            logger.error("The ingestion report could not be written: %s", failure)
        report_fallbacks(self._reasons, summary.passages)

    def _summarise(self, error: BaseException | None) -> IngestionSummary:
        return IngestionSummary(
            state="finished" if error is None else "stopped",
            why_stopped="" if error is None else describe(error),
            started=self._started,
            finished=_now(),
            seconds=round(self.clock() - self._began, 3),
            documents=dict(self._states),
            passages=self._units["passages"],
            propositions=self._units["propositions"],
            statuses=dict(self._statuses),
            fallback_reasons=dict(self._reasons.most_common(_REASONS)),
            requests=self._figures(),
            findings=dict(self._findings.most_common()),
            report="" if self._report is None else str(self._report.path),
        )

    def passage(self, propositions: PropositionSet) -> None:
        """Record a passage whose propositions are ready."""
        self._ready.update(passages=1, propositions=len(propositions.texts))
        self._restart_rate()
        if propositions.status != "fallback":
            self._has_propositions |= any(map(has_letters, propositions.texts))
            return
        self._ready.update(fallbacks=1)
        is_due_to_text = any(why in propositions.reason for why in _DUE_TO_TEXT)
        if not (self.is_proven and is_due_to_text):
            self._doubtful_fallback = propositions

    @property
    def unanswered(self) -> str:
        """Why fallbacks do not count as done: no request was answered, or no reply was usable; else ""."""
        requests = self._figures()
        last = self._doubtful_fallback
        if not last or not (requests.usage.requests or requests.failed):
            return ""  # no request was sent
        is_silent = last.is_passing and not requests.usage.requests
        if self._has_propositions and not is_silent:
            return ""
        problem = "None of the passages yielded propositions"
        if is_silent:
            problem = "The provider never answered"
        return (
            f"{problem}; the last passage: {last.reason}. Check that the provider is up, and that its "
            "address, the model and the settings are right, and run again: no sentences were indexed in "
            "place of propositions, and the next run asks for all of them again."
        )

    def done(self, parsed: ParsedDocument, replaced: bool) -> None:
        """Record a document that is now in the index."""
        self._add(DocumentOutcome.of(parsed, replaced))
        if not parsed.nodes:
            logger.warning(
                "Document %s has no text, so there is nothing to index.", named(parsed.document)
            )

    def unchanged(self, document: BaseNode) -> None:
        """Record a document that the index already has unchanged."""
        self._add(DocumentOutcome(document.id_, "unchanged"))
        self._restart_rate()

    def deleted(self, document_id: str) -> None:
        """Record a document that is no longer in the index."""
        self._add(DocumentOutcome(document_id, "deleted"))

    def failed(self, document: BaseNode, error: Exception) -> None:
        """Record a document that could not be indexed; an earlier version stays in the index."""
        self._first_error = self._first_error or error
        why = describe(error, document.get_content())
        outcome = DocumentOutcome(document.id_, "failed", error=why)
        self._add(outcome)
        self.outcomes_failed = (*self.outcomes_failed, outcome)[:KEPT_DOCUMENTS]
        logger.error("Document %s was not indexed: %s", named(document), why)

    def raise_if_all_failed(self) -> None:
        """Raise the first error of a document if no document could be indexed."""
        indexed = any(self._states[state] for state in ("done", "changed", "unchanged"))
        if self._first_error and not indexed:
            raise self._first_error

    def _add(self, outcome: DocumentOutcome) -> None:
        if self._report:
            self._report.append(outcome)
        self._states[outcome.state] += 1
        self._units.update(passages=outcome.passages, propositions=outcome.propositions)
        self._statuses.update(outcome.statuses)
        self._findings.update(outcome.findings)
        self._reasons.update(fallback.reason for fallback in outcome.fallbacks)

    def figures(self, is_last: bool = False) -> list[str]:
        """Return the figures of a progress line, for people, without those that are unknown or zero.

        Args:
            is_last: Whether the ingestion is over: then the rate is the average, and the duration replaces
                the time left.
        """
        now = self.clock()
        mark = self._rate_from
        if is_last:
            mark = _Mark(self._began)
        seconds = now - mark.time
        passages = self._ready["passages"] - mark.passages
        documents = self._done - mark.documents
        left = self._total - self._done
        figures = list(self._results())
        if seconds >= _RATE_AFTER and passages > 0:
            figures.append(f"{passages / seconds * 60:,.1f}/min")
        if is_last:
            return [*figures, f"in {duration(now - self._began)}"]
        if left > 0 and documents >= 2 and seconds >= _RATE_AFTER:
            return [*figures, f"{duration(left / documents * seconds)} left"]
        return [*figures, f"{duration(now - self._began)} so far"]

    @property
    def _done(self) -> int:
        return self._states.total() - self._states["deleted"]

    def _restart_rate(self) -> None:
        """Restart the rate while all passages come from the cache, as at the start of a resumed ingestion."""
        if self._ready["passages"] <= self._figures().cache_hits:
            self._rate_from = _Mark(self.clock(), self._done, self._ready["passages"])

    def _results(self) -> Iterator[str]:
        """Yield the figures of what was made, and of the requests for it."""
        if self._total > self._done:
            yield f"{self._done:,}/{many(self._total, 'document')}"
        elif self._done:
            yield many(self._done, "document")
        yield many(self._ready["passages"], "passage")
        for noun in ("proposition", "fallback"):
            if self._ready[f"{noun}s"]:
                yield many(self._ready[f"{noun}s"], noun)
        requests = self._figures()
        if requests.cache_hits:
            yield f"{requests.cache_hits:,} from the cache"
        if requests.usage.total_tokens:
            yield f"{requests.usage.total_tokens:,} tokens"
        if requests.cost:
            yield money(requests.cost)

    def _show(self) -> None:
        while not self._over.wait(self.display.seconds) and self._write():
            pass

    def _write(self, is_last: bool = False) -> bool:
        try:
            self.display.write(", ".join(self.figures(is_last)))
        except (OSError, ValueError) as error:  # the output is closed, and the ingestion continues
            logger.warning("Progress is no longer shown (%s).", error)
            return False
        return True

    def _figures(self) -> RequestFigures:
        return self.propositionizer.figures.since(self._initial_figures)


@dataclass(frozen=True)
class _Mark:
    """The progress of an ingestion at a time."""

    time: float
    documents: int = 0
    passages: int = 0


class _ReportFile:
    """The report while it is being written, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + PART_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part.unlink(missing_ok=True)  # left by an ingestion that was killed
        # a lone surrogate in a document's id is written as its escape, which JSON reads back
        self._file = open(  # noqa: SIM115
            self._part, "x", encoding="utf-8", errors="backslashreplace", opener=open_private
        )
        self._file.write('{"documents": [')
        self._between = "\n"

    def append(self, outcome: DocumentOutcome) -> None:
        self._file.write(self._between + json.dumps(asdict(outcome), ensure_ascii=False))
        self._file.flush()
        self._between = ",\n"

    def finish(self, summary: IngestionSummary) -> None:
        with self._file:
            fields = asdict(summary)
            del fields["report"]
            text = json.dumps(fields, ensure_ascii=False, indent=2)
            self._file.write(f"\n],\n{_SUMMARY}{text}}}\n")
        self._part.replace(self.path)


def left_out(report: Path) -> str:
    """Return why the last ingestion left documents out of an index, for people; empty if none, or unknown.

    Args:
        report: The path of its report.
    """
    if report.with_name(report.name + PART_SUFFIX).exists():
        return "documents are being indexed, or the process that indexed them was killed"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # not a report of ours
        summary = _read_summary(report)
        if summary["state"] == "stopped":
            return f"the last ingestion stopped before its end: {summary['why_stopped']}"
        failed = summary["documents"].get("failed", 0)
        if failed:
            number = many(failed, "document")
            return f"the last ingestion failed for {number} ({report.name} says why)"
    return ""


def _read_summary(report: Path) -> dict[str, Any]:
    """Read the summary at the end of a report, without its documents, which may be very many."""
    with report.open("rb") as file:
        file.seek(max(0, report.stat().st_size - _LONGEST_SUMMARY))
        end = file.read().decode("utf-8", "replace")
    return dict(json.loads("{" + end[end.rindex(_SUMMARY) :])["summary"])


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def describe(error: BaseException, text: str = "") -> str:
    """Describe an exception on one line, without keys and without quotations of a text."""
    name = type(error).__name__
    message = message_of(error)[: 10 * _MESSAGE_CHARACTERS]
    message = _plain(without_quotes(message, text))[:_MESSAGE_CHARACTERS]
    if not message:
        return name
    return f"{name}: {message}"


def _plain(text: str) -> str:
    """Put a message on one line, without anything that looks like a key, or is one of the environment's."""
    return scrub(" ".join(text.split()), secrets_in_environment())


def _count_findings(nodes: Sequence[TextNode]) -> dict[str, int]:
    findings = chain.from_iterable(map(findings_of, nodes))
    return dict(Counter(finding.partition(":")[0] for finding in findings))


def is_fallback(node: BaseNode) -> bool:
    """Return whether a node is a passage whose sentences stand in for propositions."""
    is_passage = node.metadata.get(GRANULARITY_KEY) == "passage"
    return is_passage and node.metadata.get(STATUS_KEY) == "fallback"


def _fallbacks(passages: Sequence[TextNode]) -> Iterator[PassageFallback]:
    for number, node in enumerate(passages, 1):
        if is_fallback(node):
            reason = _plain(node.metadata[REASON_KEY])
            yield PassageFallback(number, node.start_char_idx, node.end_char_idx, reason)


def summary_rows(
    summary: IngestionSummary, failed: Sequence[DocumentOutcome] = ()
) -> Iterator[Row]:
    """Yield the rows of an ingestion's summary: a label ("" if the same as above) and a text.

    Args:
        summary: The totals.
        failed: Failed documents, the first of which are named.
    """
    if summary.state == "stopped":
        yield "Stopped", summary.why_stopped
    states = ("done", "changed", "unchanged", "deleted", "blank", "failed")
    yield "Documents", _counts(summary.documents, states) or "0"
    for outcome in failed[:_SHOWN_FAILURES]:
        yield "", f"failed: {outcome.document_id}: {outcome.error}"
    if summary.passages:
        yield from _passage_rows(summary)
    yield from _request_rows(summary.requests)
    yield "Time", duration(summary.seconds)
    if summary.report:
        yield "Report", summary.report


def _passage_rows(summary: IngestionSummary) -> Iterator[Row]:
    passages = f"{summary.passages:,}"
    statuses = _counts(summary.statuses, ("ok", "repaired", "fallback"))
    if statuses:
        passages += f": {statuses}"
    yield "Passages", passages
    for reason, times in list(summary.fallback_reasons.items())[:_SHOWN_REASONS]:
        yield "", f"{many(times, 'fallback')}: {reason}"
    yield "Propositions", f"{summary.propositions:,}"
    if summary.findings:
        kinds = _counts(summary.findings, summary.findings).replace("_", "-")
        yield "Findings", f"{kinds} (densex inspect DIR --findings)"


def _request_rows(requests: RequestFigures) -> Iterator[Row]:
    usage = requests.usage
    numbers = {
        "answered": usage.requests,
        "from the cache": requests.cache_hits,
        "refused for a limit and sent again": requests.refused,
        "failed": requests.failed,
    }
    if any(numbers.values()):
        yield "Requests", _counts(numbers, numbers)
    if usage.requests:
        sent = f"{usage.input_tokens:,} in"
        if usage.cached_input_tokens:
            sent += f" ({usage.cached_input_tokens:,} cached)"
        yield "Tokens", f"{sent}, {usage.output_tokens:,} out"
        cost = money(requests.cost, "unknown: no price is known")
        if requests.model:
            cost += f" ({requests.model})"
        yield "Cost", cost


def _counts(counts: Mapping[str, int], names: Iterable[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts.get(name))
