"""Results for people: readable at 80 columns and any other width, Japanese included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from llama_pack_densex.cli.indexing import IndexReport
from llama_pack_densex.cli.results import Answer, InspectedPassage, Inspection, Result
from llama_pack_densex.cli.session import one_line, plain
from llama_pack_densex.cli.wrapping import hang
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary
from llama_pack_densex.ingestion.summary import summary_text
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.stores.folder import REPORT_FILE

_STATUS_STYLES = {"ok": "green", "repaired": "yellow", "fallback": "red"}
_INDENT = 3


def print_index_report(console: Console, report: IndexReport) -> None:
    """Print what `densex index` did and what the index holds."""
    counts = report.counts
    done = [f"{report.indexed} indexed", f"{report.unchanged} unchanged"]
    rare = {
        "removed": report.removed,
        "without text": report.blank,
        "unreadable, skipped": report.unreadable,
        "failed": report.ingestion.documents.get("failed", 0),
    }
    done += [f"{number} {what}" for what, number in rare.items() if number]
    write(console, f"Documents: {', '.join(done)}.")
    if report.ingestion.requests.usage.requests or report.failed:
        console.print()
        where = Path(report.folder) / REPORT_FILE if report.report else None
        print_ingestion(console, report.ingestion, report.failed, where)
        console.print()
    write(
        console,
        f"{one_line(report.folder)} holds {_many(counts.documents, 'document')}, {_many(counts.passages, 'passage')}, "
        f"{_many(counts.propositions, 'proposition')} and {_many(counts.sentences, 'further sentence')}.",
    )
    _print_statuses(console, counts.statuses)
    search = " It is searched by words." if report.embedding.startswith("none") else ""
    write(console, f"Propositions by {report.propositionizer}; embedding model: {report.embedding}.{search}")


def print_ingestion(
    console: Console, summary: IngestionSummary, failed: Sequence[DocumentOutcome] = (), report: Path | None = None
) -> None:
    """Print what an ingestion came to."""
    console.print(Text(summary_text(summary, failed, report, console.width)), soft_wrap=True)


def print_answer(console: Console, answer: Answer, advice: str = "") -> None:
    """Print an answer, and the passages with the units that found them.

    Args:
        console: Where to.
        answer: The answer.
        advice: How to get a written answer, to print above a quoted one.
    """
    if not answer.results:
        write(console, "Nothing in the index matches the question.")
        return
    write(console, "Answer" if answer.written else f"Answer, quoted{advice}", style="bold")
    for line in plain(answer.answer).splitlines():
        bullet = "- " if line.startswith("- ") else ""
        write(console, line.removeprefix(bullet), bullet=bullet)
    for number, result in enumerate(answer.results, 1):
        console.print()
        _print_result(console, number, result)


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Print an index's passages with their propositions and statuses."""
    document = None
    for passage in inspection.shown:
        if passage.document != document:
            document = passage.document
            print_heading(console, one_line(document))
        _print_passage(console, passage)
    write(
        console,
        f"{_many(inspection.documents, 'document')}, {_many(inspection.passages, 'passage')}, "
        f"{_many(inspection.propositions, 'proposition')}; mode {inspection.mode}; "
        f"searched: {', '.join(inspection.granularity)}; embedding model: {inspection.embed_model}.",
    )
    _print_statuses(console, inspection.statuses)


def print_heading(console: Console, text: str) -> None:
    """Print a heading with a line below it."""
    write(console, text, style="bold cyan")
    console.rule(style="cyan")


def write(console: Console, text: str, style: str = "", indent: int = 0, bullet: str = "") -> None:
    """Print text, wrapped for the console."""
    console.print(Text(hang(text, console.width, indent, bullet), style=style), soft_wrap=True)


def _print_result(console: Console, number: int, result: Result) -> None:
    score = "" if result.score is None else f" ({result.score:.3f})"
    place = _place(result.document, result.title, result.section)
    write(console, f"{place}{score}", style="bold cyan", bullet=f"{number}. ")
    if result.matched:
        write(console, f"{result.granularity or 'node'} found by", style="dim", indent=_INDENT)
    for unit in result.matched:
        write(console, _found_by(unit), indent=_INDENT, bullet="- ")
    console.print()
    write(console, plain(result.text.strip()), style="dim", indent=_INDENT)


def _print_passage(console: Console, passage: InspectedPassage) -> None:
    write(console, one_line(passage.section or passage.title or passage.document), style="bold")
    span = "" if passage.start is None else f", characters {passage.start} to {passage.end}"
    write(console, f"passage {passage.id}{span}", style="dim")
    if passage.status:
        reason = f": {plain(passage.reason)}" if passage.reason else ""
        write(console, f"status {passage.status}{reason}", style=_STATUS_STYLES.get(passage.status, ""))
    console.print()
    write(console, plain(passage.text.strip()), style="dim", indent=_INDENT)
    for kind, units in (("propositions", passage.propositions), ("further sentences", passage.sentences)):
        if units:
            console.print()
            write(console, kind, style="dim", indent=_INDENT)
        for unit in units:
            write(console, plain(unit.text), indent=_INDENT, bullet="- ")
    console.print()


def _print_statuses(console: Console, statuses: dict[str, int]) -> None:
    if statuses:
        parts = [Text(f"{count} {status}", _STATUS_STYLES.get(status, "")) for status, count in statuses.items()]
        console.print(Text("Passages by status: ").append_text(Text(", ").join(parts)))


def _found_by(unit: MatchedUnit) -> str:
    remarks = [unit.granularity] if unit.granularity == "sentence" else []
    remarks += [unit.status] if unit.status not in ("", "ok") else []
    return plain(unit.text) + (f" ({', '.join(remarks)})" if remarks else "")


def _place(document: str, title: str, section: str) -> str:
    parts = [document, "" if title in document else title, section]
    return one_line(" | ".join(part for part in parts if part))


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
