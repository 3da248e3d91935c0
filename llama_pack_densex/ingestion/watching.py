"""What becomes of documents while they are ingested: shown, written into the report, logged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from llama_index.core.schema import BaseNode, TextNode

from llama_pack_densex.ingestion.progress import Display, IngestionProgress
from llama_pack_densex.ingestion.report import DocumentOutcome, IngestionSummary, PassageFallback
from llama_pack_densex.ingestion.report_writer import ReportWriter, describe
from llama_pack_densex.llm_requests.reply import RequestFigures
from llama_pack_densex.node_parsers.base import ParsedDocument
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, REASON_KEY, STATUS_KEY
from llama_pack_densex.propositionizers.base import Propositionizer, PropositionSet
from llama_pack_densex.retrieval.trust import LanguageTrust

logger = logging.getLogger(__name__)


class Watch:
    """Watches one ingestion, from `with` to the end of it.

    Args:
        propositionizer: What makes the propositions; its requests are counted from now on.
        report: The report's file; None for none.
        display: Shows the progress.
        documents: How many documents there are; None where that is not known.

    Attributes:
        strangers: Languages of which it turned out that the embedding model does not know them.
        summary: What it came to; None until the end, and where something stopped it and the report cannot be written.
    """

    def __init__(
        self, propositionizer: Propositionizer, report: Path | None, display: Display, documents: int | None = None
    ) -> None:
        self._propositionizer, self._before = propositionizer, propositionizer.figures
        self._report = ReportWriter(report, self._figures)
        self._progress = IngestionProgress(display)
        self._progress.expect(documents=documents)
        self._indexed = 0
        self._first_error: Exception | None = None
        self.strangers: list[LanguageTrust] = []
        self.summary: IngestionSummary | None = None

    def __enter__(self) -> Watch:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show_usage()
        self._progress.finish()
        try:
            self.summary = self._report.finish("" if error is None else describe(error))
        except OSError as failure:
            if error is None:
                raise
            logger.error("The ingestion report could not be written: %s", failure)  # and the error goes on
        if self.summary is not None and self._report.fallen_back:
            logger.warning(
                "Sentences stand in for propositions in %d of %d passages: %s",
                self.summary.statuses.get("fallback", 0),
                self.summary.passages,
                "; ".join(f"{reason} ({count})" for reason, count in list(self.summary.fallback_reasons.items())[:5]),
            )

    @property
    def outcomes_failed(self) -> Sequence[DocumentOutcome]:
        """The first documents that failed."""
        return self._report.failed

    def passage(self, made: PropositionSet) -> None:
        """The propositions of a passage are ready."""
        self._progress.passage(len(made.texts), made.status)
        self._show_usage()

    def done(self, parsed: ParsedDocument, replaced: bool) -> None:
        """A document is in the index."""
        self._progress.document()
        self._indexed += bool(parsed.nodes) or replaced
        self._report.add(_outcome(parsed, replaced))
        if not parsed.nodes:
            logger.warning("Document %r has no text, and so nothing to index.", parsed.document.id_)

    def unchanged(self, document: BaseNode) -> None:
        """A document was in the index as it is."""
        self._progress.document()
        self._indexed += 1
        self._report.add(DocumentOutcome(document.id_, "unchanged"))

    def deleted(self, document_id: str) -> None:
        """A document is no longer in the index."""
        self._report.add(DocumentOutcome(document_id, "deleted"))

    def failed(self, document: BaseNode, error: Exception) -> None:
        """A document could not be indexed; what the index had of it is there as it was."""
        self._progress.document()
        self._first_error = self._first_error or error
        self._report.add(DocumentOutcome(document.id_, "failed", error=describe(error)))
        logger.error("Document %r was not indexed: %s", document.id_, describe(error))

    def written(self, strangers: Sequence[LanguageTrust]) -> None:
        """Documents were written."""
        self.strangers += strangers

    def raise_if_all_failed(self) -> None:
        """Raise the first document's error if no document was indexed: then it is the caller's matter."""
        if self._first_error is not None and not self._indexed:
            raise self._first_error

    def _figures(self) -> RequestFigures:
        return self._propositionizer.figures.since(self._before)

    def _show_usage(self) -> None:
        figures = self._figures()
        self._progress.used(figures.usage, figures.cost, figures.cache_hits)


def _outcome(parsed: ParsedDocument, replaced: bool) -> DocumentOutcome:
    granularities: Counter[str] = Counter(str(node.metadata.get(GRANULARITY_KEY)) for node in parsed.nodes)
    passages = [node for node in parsed.nodes if node.metadata.get(GRANULARITY_KEY) == "passage"]
    return DocumentOutcome(
        document_id=parsed.document.id_,
        state="blank" if not parsed.nodes else "changed" if replaced else "done",
        passages=len(passages),
        propositions=granularities["proposition"],
        statuses=dict(Counter(str(node.metadata[STATUS_KEY]) for node in passages if STATUS_KEY in node.metadata)),
        fallbacks=tuple(
            _fallback(number, passage)
            for number, passage in enumerate(passages, 1)
            if passage.metadata.get(STATUS_KEY) == "fallback"
        ),
    )


def _fallback(number: int, passage: BaseNode) -> PassageFallback:
    span = (passage.start_char_idx, passage.end_char_idx) if isinstance(passage, TextNode) else (None, None)
    return PassageFallback(number, *span, "fallback", str(passage.metadata.get(REASON_KEY, "")))
