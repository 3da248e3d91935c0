"""Where retrieved nodes stand in the documents, whichever node parser made them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from llama_pack_densex.evaluation.data import EvaluationSet, Place, Span
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY

_MOSTLY = 0.9  # of a unit's characters lie in the passage that it is from


@dataclass(frozen=True)
class PassageOf:
    """A passage of a document, as a unit's source.

    Args:
        number: The passage's place among its document's passages, from 0.
        within: Whether the unit lies within it, but for a small part.
    """

    number: int
    within: bool


class Locator:
    """Finds the source span of a node, and the passage of the dataset that a span is from.

    A node's own span is believed where the document has the node's text there; else the text is looked for. Core's
    hierarchical parser counts from the parent, and core looks for a repeated text at its first place.

    Args:
        dataset: The documents and their passages.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._texts = {document.id_: document.text for document in dataset.documents}
        self._passages = {
            document.id_: dataset.passages.get(document.id_, [(0, len(document.text))])
            for document in dataset.documents
        }
        self._sources = {document_id: (document_id, 0) for document_id in self._texts}
        self._sources |= {
            f"{document_id}/{number}": (document_id, start)
            for document_id, spans in self._passages.items()
            for number, (start, _) in enumerate(spans)
        }
        self._found: dict[tuple[str, str], Place | None] = {}

    def place(self, node: BaseNode) -> Place | None:
        """Where a node stands: None where neither its document nor its text is known."""
        key = (node.node_id, node.get_content())  # two strategies may give the same id to different nodes
        if key not in self._found:
            self._found[key] = self._locate(node)
        return self._found[key]

    def passage(self, place: Place | None) -> PassageOf | None:
        """The passage that a unit is from: the one that has most of it."""
        if place is None or place.span is None:
            return None
        start, end = self._bare(place.document_id, place.span)
        spans = self._passages[place.document_id]
        first = max(bisect_right([span[0] for span in spans], start) - 1, 0)
        shares: list[int] = []
        for span in spans[first:]:
            if shares and span[0] >= end:
                break
            shares.append(_shared(span, (start, end)))
        most = max(shares)
        return PassageOf(first + shares.index(most), within=most >= _MOSTLY * max(end - start, 1))

    def passage_text(self, document_id: str, number: int) -> str:
        """The text of a passage."""
        return self._texts[document_id][slice(*self.passage_span(document_id, number))]

    def passage_span(self, document_id: str, number: int) -> Span:
        """Where a passage stands."""
        return self._passages[document_id][number]

    def _locate(self, node: BaseNode) -> Place | None:
        text = node.get_content().strip()
        sources = list(dict.fromkeys(self._named(node)))
        for document_id, offset in sources:
            span = self._own_span(node, document_id, offset) or self._search(text, document_id, offset)
            if span is not None:
                return Place(document_id, span)
        if sources:
            return Place(sources[0][0])
        for document_id in self._texts:  # a retriever that was built over copies of the documents
            span = self._search(text, document_id, 0)
            if span is not None:
                return Place(document_id, span)
        return None

    def _named(self, node: BaseNode) -> Iterator[tuple[str, int]]:
        """The documents that a node says it is from, each with the place where its text begins in the article."""
        for name in (node.metadata.get(DOCUMENT_ID_KEY), node.source_node and node.source_node.node_id, node.node_id):
            if name in self._sources:
                yield self._sources[name]

    def _own_span(self, node: BaseNode, document_id: str, offset: int) -> Span | None:
        start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
        if start is None or end is None:
            return None
        span = (start + offset, end + offset)
        stands_there = self._texts[document_id][slice(*span)].strip()
        # a proposition has the span of its passage, or of its sentence, and words of its own
        return span if stands_there and (stands_there == node.get_content().strip() or _is_unit(node)) else None

    def _search(self, text: str, document_id: str, offset: int) -> Span | None:
        start = self._texts[document_id].find(text, offset) if text else -1
        return (start, start + len(text)) if start >= 0 else None

    def _bare(self, document_id: str, span: Span) -> Span:
        """A span without the white space at its ends, which splitters divide among neighbours as they like."""
        text = self._texts[document_id][slice(*span)]
        return span[0] + len(text) - len(text.lstrip()), span[0] + len(text.rstrip())


def _is_unit(node: BaseNode) -> bool:
    return DOCUMENT_ID_KEY in node.metadata


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))
