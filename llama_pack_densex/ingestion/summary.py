"""What an ingestion came to, in a few lines for people."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from llama_pack_densex.ingestion.rendering import count, duration, money, per_minute
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary

_LABEL = 14
_SHOWN_FAILURES = 5
_SHOWN_REASONS = 3
# What steers a terminal, and halves of characters, which no terminal takes.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def summary_text(
    summary: IngestionSummary,
    failed: Sequence[DocumentOutcome] = (),
    report: Path | None = None,
    width: int = 80,
) -> str:
    """Say what an ingestion came to, in lines of at most `width` cells.

    Args:
        summary: What it came to.
        failed: Failed documents, the first of which are named.
        report: Where the report was written, if it was.
        width: Cells a line; a Chinese, Japanese or Korean character takes two.
    """
    rows = [*_outcome_rows(summary, failed), *_request_rows(summary), ("Time", _time(summary))]
    if report is not None:
        rows.append(("Report", str(report)))
    return "\n".join(line for label, text in rows for line in _row(label, text, width))


def _outcome_rows(summary: IngestionSummary, failed: Sequence[DocumentOutcome]) -> Iterator[tuple[str, str]]:
    if summary.state == "stopped":
        yield "Stopped", summary.why_stopped
    yield "Documents", _counts(summary.documents, ("done", "changed", "unchanged", "deleted", "blank", "failed")) or "0"
    named = failed[:_SHOWN_FAILURES]
    for outcome in named:
        yield "", f"failed: {outcome.document_id}: {outcome.error}"
    if named and (more := summary.documents.get("failed", 0) - len(named)) > 0:
        yield "", f"and {more:,} more that failed"
    if not summary.passages:
        return
    statuses = _counts(summary.statuses, ("ok", "repaired", "fallback"))
    yield "Passages", f"{summary.passages:,}" + (f": {statuses}" if statuses else "")
    reasons = list(summary.fallback_reasons.items())[:_SHOWN_REASONS]
    rest = summary.statuses.get("fallback", 0) - sum(times for _, times in reasons)
    for reason, times in [*reasons, *([("other reasons", rest)] if reasons and rest > 0 else [])]:
        yield "", f"{count(times, 'fallback')}: {reason}"
    yield "Propositions", f"{summary.propositions:,}"


def _request_rows(summary: IngestionSummary) -> Iterator[tuple[str, str]]:
    requests, usage = summary.requests, summary.requests.usage
    told = [
        (usage.requests, "answered"),
        (requests.cache_hits, "from the cache"),
        (requests.refused, "refused for a limit and sent again"),
        (requests.failed, "failed"),
    ]
    if any(number for number, _ in told):
        yield "Requests", ", ".join(f"{number:,} {what}" for number, what in told if number)
    if usage.total_tokens:
        cached = f" ({usage.cached_input_tokens:,} cached)" if usage.cached_input_tokens else ""
        yield "Tokens", f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
    if usage.requests:
        if requests.cost is None:
            yield "Cost", f"unknown: no price is known for {requests.model or 'the model'}"
        else:
            model = f" ({requests.model})" if requests.model else ""
            yield "Cost", money(requests.cost, requests.currency) + model


def _time(summary: IngestionSummary) -> str:
    rate = summary.passages / summary.seconds * 60 if summary.seconds >= 1 else 0
    return duration(summary.seconds) + (f", {per_minute(rate, ' passages')}" if rate else "")


def _counts(counts: dict[str, int], order: Iterable[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts.get(name))


def _row(label: str, text: str, width: int) -> list[str]:
    plain = Text(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))
    console = Console(file=io.StringIO(), width=width)
    lines = [line.plain.rstrip() for line in plain.wrap(console, max(width - _LABEL, 10))]
    first = label + " " * (_LABEL - cell_len(label))
    return [(first if number == 0 else " " * _LABEL) + line for number, line in enumerate(lines)]
