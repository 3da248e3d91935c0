"""What became of each document of an ingestion, and what it came to in all: `ingestion_report.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from llama_pack_densex.llm_requests.reply import RequestFigures, Usage

PART_SUFFIX = ".part"

DocumentState = Literal["done", "changed", "unchanged", "failed", "deleted", "blank"]


class InvalidReportError(ValueError):
    """A file is no ingestion report, or is damaged."""


@dataclass(frozen=True)
class PassageFallback:
    """A passage whose propositions could not be had, so that its sentences stand in for them.

    Args:
        passage: Its number in the document, from 1.
        start: Where it begins in the document's text; None where that is not known.
        end: Where it ends.
        status: "fallback".
        reason: Why its propositions could not be had. It never holds the passage's text.
    """

    passage: int
    start: int | None
    end: int | None
    status: str
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
    """

    document_id: str
    state: DocumentState
    passages: int = 0
    propositions: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    fallbacks: tuple[PassageFallback, ...] = ()
    error: str = ""


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
        version: The version of llama-pack-densex.
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
    version: str


@dataclass(frozen=True)
class IngestionReport:
    """What an ingestion came to.

    Args:
        summary: In all.
        documents: For each document, in the order in which they were finished.
    """

    summary: IngestionSummary
    documents: tuple[DocumentOutcome, ...]


def read_report(path: str | Path) -> IngestionReport:
    """Read an ingestion report.

    Raises:
        FileNotFoundError: There is none; the message says so if an ingestion was killed before it could write one.
        InvalidReportError: The file is no report, or is damaged.
    """
    path = Path(path)
    part = path.with_name(path.name + PART_SUFFIX)
    if not path.is_file() and part.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: the ingestion is running, or was killed. {part.name} has the documents that were "
            "finished until then, a JSON object a line; run the ingestion again to complete it."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return IngestionReport(_summary(content["summary"]), tuple(map(_outcome, content["documents"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidReportError(f"{path} is no ingestion report, or is damaged ({error!r}).") from error


def _summary(record: dict[str, Any]) -> IngestionSummary:
    requests = _known(RequestFigures, record["requests"])
    requests["usage"] = Usage(**_known(Usage, requests["usage"]))
    return IngestionSummary(**{**_known(IngestionSummary, record), "requests": RequestFigures(**requests)})


def _outcome(record: dict[str, Any]) -> DocumentOutcome:
    fallbacks = tuple(PassageFallback(**_known(PassageFallback, each)) for each in record["fallbacks"])
    return DocumentOutcome(**{**_known(DocumentOutcome, record), "fallbacks": fallbacks})


def _known(kind: type, record: dict[str, Any]) -> dict[str, Any]:
    """A record's values that this version knows; a later one may write more."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in record.items() if name in names}
