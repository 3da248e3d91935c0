"""Ingestion reports, read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary


@dataclass(frozen=True)
class IngestionReport:
    """What an ingestion came to: in all, and for each document in the order in which they were finished."""

    summary: IngestionSummary
    documents: tuple[DocumentOutcome, ...]


def read_report(path: Path) -> IngestionReport:
    """Read the file of a report."""
    return TypeAdapter(IngestionReport).validate_json(path.read_bytes())
