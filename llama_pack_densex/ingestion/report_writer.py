"""Writing an ingestion report as the ingestion goes."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO

from llama_pack_densex.ingestion.report import PART_SUFFIX, DocumentOutcome, IngestionSummary
from llama_pack_densex.llm_requests.failures import scrub
from llama_pack_densex.llm_requests.reply import RequestFigures

logger = logging.getLogger(__name__)

KEPT_DOCUMENTS = 20
"""Failed documents, and documents with fallbacks, that a writer keeps in memory for the summary on the screen."""

_MESSAGE_CHARACTERS = 500
_REASONS = 10
_DISTINCT_REASONS = 1000
_OTHER_REASONS = "other reasons"


class ReportWriter:
    """Writes an ingestion report document by document, so that memory does not grow with the corpus.

    Documents go into `<name>.part` beside the report, a JSON object a line. `finish` makes the report of them and puts
    it in the place of an earlier one in one step; killed before that, the earlier report is still there, and the lines.
    All files are readable by their owner only.

    As a context manager it finishes when the block is left: as "finished", or, by an exception, as "stopped".

    Args:
        path: The report; None to write none, and only count.
        requests: Says what the requests came to so far; asked for when the report is finished.

    Raises:
        OSError: The report cannot be written there.
    """

    def __init__(self, path: str | Path | None = None, requests: Callable[[], RequestFigures] = RequestFigures) -> None:
        self._requests = requests
        self._lock = threading.Lock()
        self._started, self._clock = datetime.now(timezone.utc), time.monotonic()
        self._documents: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._passages = self._propositions = 0
        self._failed: list[DocumentOutcome] = []
        self._fallen_back: list[DocumentOutcome] = []
        self._summary: IngestionSummary | None = None
        self._file = None if path is None else _ReportFile(Path(path))

    def __enter__(self) -> ReportWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._summary is not None:
            return
        if error is None:
            self.finish()
            return
        try:
            self.finish(why_stopped=describe(error))
        except OSError as failure:  # the exception that stopped the ingestion matters more, and goes on
            logger.error("The ingestion report could not be written: %s", failure)

    def add(self, outcome: DocumentOutcome) -> None:
        """Write what became of a document; keys are taken out of its error and its reasons.

        Raises:
            OSError: The line could not be written; then nothing of it was.
        """
        outcome = _scrubbed(outcome)
        with self._lock:
            if self._summary is not None:
                raise ValueError("the report is finished: no document can be added to it")
            if self._file is not None:
                self._file.append(_json(asdict(outcome)))
            self._count(outcome)

    def finish(self, why_stopped: str = "") -> IngestionSummary:
        """Write the report.

        Args:
            why_stopped: Why the ingestion stopped before everything was done, such as at its budget; "" if it did not.

        Returns:
            What it came to. Calling it again returns the same and writes nothing.

        Raises:
            OSError: The report could not be written; an earlier one is still there.
        """
        requests = self._requests()
        with self._lock:
            if self._summary is None:
                summary = self._summed_up(requests, _plain(why_stopped))
                if self._file is not None:
                    self._file.finish(_json(asdict(summary), indent=2))
                self._summary = summary
            return self._summary

    @property
    def failed(self) -> tuple[DocumentOutcome, ...]:
        """The first documents that failed, at most `KEPT_DOCUMENTS`."""
        return tuple(self._failed)

    @property
    def fallen_back(self) -> tuple[DocumentOutcome, ...]:
        """The first documents with passages that fell back, at most `KEPT_DOCUMENTS`."""
        return tuple(self._fallen_back)

    def _count(self, outcome: DocumentOutcome) -> None:
        self._documents[outcome.state] += 1
        self._passages += outcome.passages
        self._propositions += outcome.propositions
        self._statuses.update(outcome.statuses)
        for fallback in outcome.fallbacks:
            is_known = fallback.reason in self._reasons or len(self._reasons) < _DISTINCT_REASONS
            self._reasons[fallback.reason if is_known else _OTHER_REASONS] += 1
        if outcome.state == "failed" and len(self._failed) < KEPT_DOCUMENTS:
            self._failed.append(outcome)
        if outcome.fallbacks and len(self._fallen_back) < KEPT_DOCUMENTS:
            self._fallen_back.append(outcome)

    def _summed_up(self, requests: RequestFigures, why_stopped: str) -> IngestionSummary:
        return IngestionSummary(
            state="stopped" if why_stopped else "finished",
            why_stopped=why_stopped,
            started=self._started.isoformat(timespec="seconds"),
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._clock, 3),
            documents=dict(self._documents),
            passages=self._passages,
            propositions=self._propositions,
            statuses=dict(self._statuses),
            fallback_reasons=dict(self._reasons.most_common(_REASONS)),
            requests=requests,
            version=_version(),
        )


class _ReportFile:
    """The report's file, and the lines that it is made of."""

    def __init__(self, path: Path) -> None:
        self._path, self._part_path = path, path.with_name(path.name + PART_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; name a file for the ingestion report.")
        # A new file, not the old one emptied: another process may still be writing that.
        self._part_path.unlink(missing_ok=True)
        self._part = _create_private(self._part_path)

    def append(self, record: bytes) -> None:
        """Append a line: all of it, or nothing."""
        size = self._part.seek(0, os.SEEK_END)
        try:
            _write_all(self._part, record + b"\n")
        except BaseException:
            self._part.truncate(size)
            raise

    def finish(self, summary: bytes) -> None:
        """Make the report of the summary and the lines."""
        temporary = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        try:
            with _create_private(temporary) as raw, open(raw.fileno(), "wb", closefd=False) as report:
                report.write(b'{"summary": ' + summary + b',\n"documents": [')
                self._part.seek(0)
                with open(self._part.fileno(), "rb", closefd=False) as lines:
                    for number, line in enumerate(lines):
                        report.write((b",\n" if number else b"\n") + line.rstrip(b"\n"))
                report.write(b"\n]}\n")
                report.flush()
                os.fsync(report.fileno())
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._part.close()
        self._part_path.unlink(missing_ok=True)


def describe(error: BaseException) -> str:
    """Say what an exception is, on one line and without keys."""
    message = _plain(str(error))[:_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _scrubbed(outcome: DocumentOutcome) -> DocumentOutcome:
    if not outcome.error and not outcome.fallbacks:
        return outcome
    fallbacks = tuple(replace(fallback, reason=_plain(fallback.reason)) for fallback in outcome.fallbacks)
    return replace(outcome, error=_plain(outcome.error), fallbacks=fallbacks)


def _plain(text: str) -> str:
    """A message on one line, without keys: those that look like one, and those of the environment."""
    secrets = [value for name, value in os.environ.items() if name.upper().endswith("_API_KEY")]
    return scrub(" ".join(text.split()), secrets)


def _json(record: object, indent: int | None = None) -> bytes:
    # half a character (a lone surrogate) of a document's id becomes its escape, which JSON reads back
    return json.dumps(record, ensure_ascii=False, indent=indent).encode("utf-8", "backslashreplace")


def _create_private(path: Path) -> IO[bytes]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=0)


def _write_all(file: IO[bytes], data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _version() -> str:
    try:
        return version("llama-pack-densex")
    except PackageNotFoundError:  # run from a copied folder
        return "unknown"
