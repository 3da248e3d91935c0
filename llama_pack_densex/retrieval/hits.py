"""What a search of the units found, gathered by passage, in growing rounds until there is enough."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex.index.node_store import FoundNode, NodeRecord, Span, span_of
from llama_pack_densex.node_parsers.metadata import (
    GRANULARITY_KEY,
    MATCHED_KEY,
    SECTION_KEY,
    TITLE_KEY,
)
from llama_pack_densex.text import markup

MIN_FETCH = 20
"""Units in the first round of a search, at least."""

PASSAGE_SHARE = 0.3
"""What a passage's own similarity counts beside that of its best unit."""

ANSWER_SHARE = 0.7
"""What a proposition counts that a question led to: only their words say that it answers the question."""


@dataclass(frozen=True)
class MatchedUnit:
    """A unit that matches a query; retrieved nodes carry theirs under `densex_matched`, best first.

    Args:
        id: The unit's node id.
        text: Its text.
        score: Its own score: a cosine, in keyword search BM25, in hybrid search a share of the best.
        granularity: "proposition" or "sentence".
        status: Of its passage's propositions: "ok", "repaired" or "fallback"; empty for sentences.
        section: The headings above it, outermost first, joined by ", ".
        question: The question that led to this proposition, which answers it; otherwise empty.
        span: The (start, end) in its document of what it is from: the first to the last of a proposition's
            sentences, or its passage, where no sentence says it. None where that is not known.
        unverified: Whether it is a proposition that no sentence of its passage says.
        similarity: The cosine of its embedding and the question's; None where it was not found by embeddings.
        led_by: What the unit of another passage says that led here in a second hop; otherwise empty.
    """

    id: str
    text: str
    score: float
    granularity: str
    status: str
    section: str = ""
    question: str = ""
    span: tuple[int, int] | None = None
    unverified: bool = False
    similarity: float | None = None
    led_by: str = ""

    @classmethod
    def of_record(
        cls,
        record: NodeRecord,
        score: float,
        similarity: float | None = None,
        led_by: str = "",
    ) -> list[MatchedUnit]:
        """What is shown of a unit that was found: of a question, the propositions that answer it."""
        shared: dict[str, Any] = {
            "status": record.status,
            "section": record.section,
            "similarity": similarity,
            "led_by": led_by,
        }
        if record.granularity != "question":
            kind = record.granularity
            return [
                cls(
                    record.id,
                    record.text,
                    score,
                    kind,
                    span=record.span,
                    unverified=record.unverified,
                    **shared,
                )
            ]
        shared |= {
            "score": score * ANSWER_SHARE,
            "granularity": "proposition",
            "question": record.text,
        }
        return [
            cls(
                node_id,
                text,
                span=None if end is None else (start, end),
                unverified=unverified,
                **shared,
            )
            for node_id, text, start, end, unverified in json.loads(record.metadata or "[]")
        ]


class PassageHit(NamedTuple):
    """A passage that was found: by its units, or as a whole; a tuple, since a question finds some hundred.

    Args:
        passage_id: The passage's node id.
        score: The passage's score; in dense search that of its best unit (Dense X Retrieval, section 4.3).
        units: The units that were found, best first; the passage itself is not among them.
    """

    passage_id: str
    score: float
    units: tuple[FoundNode, ...]

    @property
    def best_statement(self) -> FoundNode | None:
        """The best unit that states something, which questions do not."""
        return next((unit for unit in self.units if unit.granularity != "question"), None)


@dataclass(frozen=True)
class SearchResult:
    """One round of a search.

    Args:
        passages: Best first, each once.
        exhausted: Whether a larger round would find nothing more.
        coverage: Of a keyword search, how much of the question the best passage holds: the share of its
            words, each counted as it is rare.
    """

    passages: tuple[PassageHit, ...]
    exhausted: bool
    coverage: float = 1.0


def rounds(search: Callable[[int], SearchResult], k: int) -> Iterator[SearchResult]:
    """Search for `k` units, and go on with twice as many while there are more to find."""
    while True:
        result = search(k)
        yield result
        if result.exhausted:
            return
        k *= 2


def collapse(
    units: Sequence[FoundNode], around: Sequence[FoundNode] = ()
) -> tuple[PassageHit, ...]:
    """Gather units by the passage they lead to.

    A passage scores as its best unit (Dense X Retrieval, section 4.3), which may be a question that it
    answers. Where passages were searched too, its score is the mean of that and its own, which counts
    `PASSAGE_SHARE` of it; one that was not found counts as the last found.

    Args:
        units: What was found, best first.
        around: The same and more, with passages among them; nothing where passages were not searched.
    """
    own = {unit.id: unit.score for unit in around}
    last = around[-1].score if around else 0.0
    share = PASSAGE_SHARE if around else 0.0
    by_passage: defaultdict[str, list[FoundNode]] = defaultdict(list)
    for unit in units:
        by_passage[unit.passage_id or unit.id].append(
            unit,
        )  # a question finds hundreds: `leads_to` takes longer
    hits = []
    for passage_id, matched in by_passage.items():
        score = (matched[0].score + share * own.get(passage_id, last)) / (1 + share)
        hits.append(
            PassageHit(passage_id, score, tuple([unit for unit in matched if unit.passage_id]))
        )
    return tuple(sorted(hits, key=lambda hit: -hit.score))


# of the best unit's score: in keyword search nearly every sentence has a word of the question
_MARKED_SHARE = 0.5
_LISTED_UNITS = 10


class RetrievedNode(NodeWithScore):
    """A retrieved node; a notebook shows it with the units that found it marked in its text."""

    def _repr_html_(self) -> str:
        metadata = self.node.metadata
        text = self.node.get_content()
        units = matched_units(self.node)
        place = str(
            metadata.get(SECTION_KEY) or metadata.get(TITLE_KEY) or self.node.ref_doc_id or ""
        )
        granularity = str(metadata.get(GRANULARITY_KEY, "node"))
        best = [unit for unit in units if unit.score >= _MARKED_SHARE * units[0].score]
        rows = [
            (f"{unit.score:.2f}", unit.granularity, unit.text) for unit in units[:_LISTED_UNITS]
        ]
        return markup.block(
            place,
            markup.note(f"{granularity}, score {self.get_score():.3f}"),
            markup.passage(
                text, spans_within(span_of(self.node), text, [unit.span for unit in best])
            ),
            markup.folded(f"What found it ({len(units)})", markup.table(rows)) if units else "",
        )


def spans_within(place: Span | None, text: str, spans: Iterable[Span | None]) -> list[Span]:
    """Spans of a document as spans of a node's text; none, where the text is not what stands in the document.

    Args:
        place: The node's span in the document, in characters.
        text: The node's text.
        spans: Spans in the document.
    """
    if place is None or place[1] - place[0] != len(text):
        return []
    return [(span[0] - place[0], span[1] - place[0]) for span in spans if span is not None]


def ids_of(units: Iterable[FoundNode]) -> list[str]:
    """The ids of units, and of those that led to them."""
    return [node_id for unit in units for node_id in (unit.id, unit.led_by) if node_id]


def with_matches(
    node: BaseNode, score: float, units: Sequence[FoundNode], records: Mapping[str, NodeRecord]
) -> NodeWithScore:
    """A copy of a node that carries the units that found it.

    Args:
        node: The node.
        score: Its score.
        units: What found it, best first.
        records: Those of `ids_of(units)` by id; a unit without one was deleted meanwhile.
    """
    matched: dict[str, MatchedUnit] = {}
    for unit in units:
        if unit.id not in records:
            continue
        led_by = records[unit.led_by].text if unit.led_by in records else ""
        for shown in MatchedUnit.of_record(records[unit.id], unit.score, unit.similarity, led_by):
            first = matched.setdefault(shown.id, shown)
            if first is not shown:  # found itself, and by questions
                score_of_both = max(first.score, shown.score)
                matched[shown.id] = replace(
                    first,
                    score=score_of_both,
                    question=first.question or shown.question,
                )
    return carrying(node, score, sorted(matched.values(), key=lambda unit: -unit.score))


def carrying(node: BaseNode, score: float | None, units: Sequence[MatchedUnit]) -> NodeWithScore:
    """A copy of a node that carries some units, best first, under a key that our nodes hide from models."""
    copy = node.model_copy()
    # `asdict` would copy every string, which is most of the time that this takes
    copy.metadata = {**node.metadata, MATCHED_KEY: [dict(vars(unit)) for unit in units]}
    return RetrievedNode(node=copy, score=score)


def matched_units(node: BaseNode) -> list[MatchedUnit]:
    """The units that found a retrieved node, best first; none for a node that another retriever found."""
    units = node.metadata.get(MATCHED_KEY, [])
    spans = [tuple(unit["span"]) if unit.get("span") else None for unit in units]
    return [MatchedUnit(**{**unit, "span": span}) for unit, span in zip(units, spans, strict=True)]
