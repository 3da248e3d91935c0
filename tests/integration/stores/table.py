"""The table in docs/stores.md: what each store passes, and why it does not pass the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.integration.stores.kinds import KINDS

BEGIN = "<!-- made by `make test-stores` -->"
END = "<!-- end of what `make test-stores` made -->"
COLUMNS = (
    "build",
    "recursive",
    "auto-merging",
    "another process",
    "insert",
    "refresh",
    "delete",
    "filters",
    "metadata",
    "ids, Japanese",
    "two packs",
    "others' rows",
    "other model refused",
    "missing link",
    "core's index",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one check of one store.

    Args:
        kind: The store's slug.
        column: The check's column.
        outcome: "passed", "failed" or "skipped", as pytest calls it.
        reason: Of an expected failure and of a skipped check, why.
    """

    kind: str
    column: str
    outcome: str
    reason: str


def write_table(file: Path, outcomes: Sequence[Outcome]) -> None:
    """Put the table between its marks in a document.

    Raises:
        ValueError: The document has no such marks.
    """
    text = file.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{file} has no place for the table: it needs the lines {BEGIN!r} and {END!r}"
        )
    file.write_text(f"{before}{BEGIN}\n{render(outcomes)}{END}{after}", encoding="utf-8")


def render(outcomes: Sequence[Outcome]) -> str:
    """The table and its footnotes in Markdown."""
    notes: list[str] = []
    rows = []
    for slug, kind in KINDS.items():
        theirs = {
            name: [part for part in outcomes if (part.kind, part.column) == (slug, name)]
            for name in COLUMNS
        }
        cells = [_cell(theirs[name], notes) for name in COLUMNS]
        rows.append(f"| {kind.name} | {' | '.join(cells)} |")
    head = ["| store | " + " | ".join(COLUMNS) + " |", "|---" + "|:-:" * len(COLUMNS) + "|"]
    footnotes = [f"{number}. {note[:1].upper()}{note[1:]}." for number, note in enumerate(notes, 1)]
    packages = sorted({package for kind in KINDS.values() for package in kind.packages})
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    return "\n".join(
        [
            *head,
            *rows,
            *(["", *footnotes] if footnotes else []),
            "",
            f"Checked with {versions}.",
            "",
        ]
    )


def _cell(outcomes: Sequence[Outcome], notes: list[str]) -> str:
    if any(part.outcome == "failed" for part in outcomes):
        return "fails"
    reasons = dict.fromkeys(part.reason for part in outcomes if part.reason)
    notes.extend(reason for reason in reasons if reason not in notes)
    numbers = ", ".join(str(notes.index(reason) + 1) for reason in reasons)
    passed = any(part.outcome == "passed" for part in outcomes)
    mark = "✓" if passed else "–"
    return f"{mark} ({numbers})" if reasons else mark


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
