"""The hits of a search of the units: gathered by passage, in rounds that grow until there are enough."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

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
"""Minimum number of units to fetch in the first round of a search."""

PASSAGE_SHARE = 0.3
"""Weight of a passage's own similarity; that of its best unit has weight 1."""

ANSWER_SHARE = 0.7
"""Factor on the score of a proposition found through a question: only shared words suggest that it answers
it."""


@dataclass(frozen=True)
class MatchedUnit:
    """A unit that matches a query; retrieved nodes carry theirs under `densex_matched`, best first.

    Args:
        id: The unit's node id.
        text: Its text.
        score: Its own score: a cosine in dense search, BM25 in keyword search, a share of the best score in
            hybrid search.
        granularity: "proposition" or "sentence".
        status: The status of its passage's propositions: "ok", "repaired" or "fallback"; empty for sentences.
        section: The headings above it, outermost first, joined by ", ".
        question: The question that led to this proposition, which answers it; otherwise empty.
        span: The (start, end) of its source in the document: from the first to the last of the sentences that
            say a proposition, or its passage if no sentence does. None if that is not known.
        unverified: Whether it is a proposition that no sentence of its passage says.
        similarity: The cosine of its embedding and the question's; None if embeddings did not find it.
        led_by: In a second hop, the text of the unit of another passage that led here; otherwise empty.
    """

    id: str
    text: str
    score: float
    granularity: str
    status: str
    section: str = ""
    question: str = ""
    span: Span | None = None
    unverified: bool = False
    similarity: float | None = None
    led_by: str = ""

    @classmethod
    def of_record(
        cls, record: NodeRecord, score: float, similarity: float | None = None, led_by: str = ""
    ) -> list[MatchedUnit]:
        """Return what to show for a unit that was found: for a question, the propositions that answer it."""
        unit = cls(
            record.id,
            record.text,
            score,
            record.granularity,
            record.status,
            record.section,
            span=record.span,
            unverified=record.unverified,
            similarity=similarity,
            led_by=led_by,
        )
        if record.granularity != "question":
            return [unit]
        unit = replace(
            unit, score=score * ANSWER_SHARE, granularity="proposition", question=record.text
        )
        answers = []
        for node_id, text, start, end, unverified in json.loads(record.metadata or "[]"):
            span = None if end is None else (start, end)
            answers.append(replace(unit, id=node_id, text=text, span=span, unverified=unverified))
        return answers


class PassageHit(NamedTuple):
    """A passage that was found by its units or as a whole; a tuple, since a search makes hundreds of them.

    Args:
        passage_id: The passage's node id.
        score: The passage's score; in dense search that of its best unit (Dense X Retrieval, section 4.3).
        units: The units that were found, best first; never the passage itself.
    """

    passage_id: str
    score: float
    units: tuple[FoundNode, ...]

    @property
    def best_statement(self) -> FoundNode | None:
        """The best unit that is not a question, since questions state nothing."""
        return next((unit for unit in self.units if unit.granularity != "question"), None)


@dataclass(frozen=True)
class SearchResult:
    """The result of one round of a search.

    Args:
        passages: The passages, best first, each once.
        exhausted: Whether a larger round would find nothing more.
        coverage: In a keyword search, the share of the question's words that the best passage holds, rare
            words counting more.
    """

    passages: tuple[PassageHit, ...]
    exhausted: bool
    coverage: float = 1.0


_Scored = TypeVar("_Scored")


def best_first(scored: Iterable[_Scored]) -> list[_Scored]:
    """Sort by score, the best first; equal ones keep their order."""
    return sorted(scored, key=attrgetter("score"), reverse=True)


def collapse(
    units: Sequence[FoundNode], around: Sequence[FoundNode] = ()
) -> tuple[PassageHit, ...]:
    """Gather units by the passage they lead to.

    A passage scores as its best unit (Dense X Retrieval, section 4.3), which may be a question that it
    answers. If passages were searched too, its score is the weighted mean of that and its own similarity,
    with weight `PASSAGE_SHARE`; a passage that was not itself found gets the similarity of the last node
    found.

    Args:
        units: The units that were found, best first.
        around: These and further nodes that were found, passages among them; empty if passages were not
            searched.
    """
    own = {unit.id: unit.score for unit in around}
    last = around[-1].score if around else 0.0
    share = PASSAGE_SHARE if around else 0.0
    by_passage = defaultdict(list)
    for unit in units:
        # not `unit.leads_to`: a search finds hundreds of units, and the property is slower
        by_passage[unit.passage_id or unit.id].append(unit)
    hits = []
    for passage_id, matched in by_passage.items():
        score = (matched[0].score + share * own.get(passage_id, last)) / (1 + share)
        below_passage = [unit for unit in matched if unit.passage_id]
        hits.append(PassageHit(passage_id, score, tuple(below_passage)))
    return tuple(best_first(hits))


# A unit is marked from this share of the best one's score: in keyword search nearly every sentence matches.
_MARKED_SHARE = 0.5
_LISTED_UNITS = 10


class RetrievedNode(NodeWithScore):
    """A retrieved node that a notebook displays with the units that found it marked in its text."""

    def _repr_html_(self) -> str:
        metadata = self.node.metadata
        text = self.node.get_content()
        units = matched_units(self.node)
        place = metadata.get(SECTION_KEY) or metadata.get(TITLE_KEY) or self.node.ref_doc_id or ""
        granularity = metadata.get(GRANULARITY_KEY, "node")
        best = [unit.span for unit in units if unit.score >= _MARKED_SHARE * units[0].score]
        parts = [
            markup.note(f"{granularity}, score {self.get_score():.3f}"),
            markup.passage(text, spans_within(span_of(self.node), text, best)),
        ]
        if units:
            shown = units[:_LISTED_UNITS]
            table = markup.table([(f"{u.score:.2f}", u.granularity, u.text) for u in shown])
            parts.append(markup.folded(f"What found it ({len(units)})", table))
        return markup.block(str(place), *parts)


def spans_within(place: Span | None, text: str, spans: Iterable[Span | None]) -> list[Span]:
    """Convert spans of a document to spans of a node's text; none if the text is not the document's own.

    Args:
        place: The node's span in the document, in characters.
        text: The node's text.
        spans: Spans in the document.
    """
    if not place or place[1] - place[0] != len(text):
        return []
    return [(span[0] - place[0], span[1] - place[0]) for span in spans if span]


def ids_of(units: Iterable[FoundNode]) -> list[str]:
    """Return the ids of units, and of the nodes that led to them in a second hop."""
    return [node_id for unit in units for node_id in (unit.id, unit.led_by) if node_id]


def with_matches(
    node: BaseNode, score: float, units: Sequence[FoundNode], records: Mapping[str, NodeRecord]
) -> NodeWithScore:
    """Return a copy of a node that carries the units that found it.

    Args:
        node: The node.
        score: Its score.
        units: The units that found it, best first.
        records: The records of `ids_of(units)`, by id; a unit without one was deleted meanwhile, and is left
            out.
    """
    matched: dict[str, MatchedUnit] = {}
    for unit in units:
        if unit.id not in records:
            continue
        led_by = records[unit.led_by].text if unit.led_by in records else ""
        for shown in MatchedUnit.of_record(records[unit.id], unit.score, unit.similarity, led_by):
            first = matched.setdefault(shown.id, shown)
            if first is not shown:  # found more than once: itself, or by questions
                best_score = max(first.score, shown.score)
                question = first.question or shown.question
                matched[shown.id] = replace(first, score=best_score, question=question)
    return carrying(node, score, best_first(matched.values()))


def carrying(node: BaseNode, score: float | None, units: Sequence[MatchedUnit]) -> NodeWithScore:
    """Return a copy of a node with some units, best first, under a metadata key hidden from models."""
    # not `asdict`: copying every string would take most of the time
    matched = {MATCHED_KEY: [dict(vars(unit)) for unit in units]}
    metadata = _RetrievedMetadata(node.metadata | matched)
    metadata.node_id = node.node_id
    copy = node.model_copy(update={"metadata": metadata})
    return RetrievedNode(node=copy, score=score)


class _RetrievedMetadata(dict[str, Any]):
    """The metadata of a retrieved node; as a string, of which LlamaIndex makes the node's hash, they have its
    id in place of the matched units.

    By this hash, LlamaIndex's `QueryFusionRetriever` recognises a node that several questions found, and its
    retrievers (in earlier versions) tell nodes of equal text apart.
    """

    node_id = ""

    def __str__(self) -> str:
        return str({**self, MATCHED_KEY: self.node_id})


def matched_units(node: BaseNode) -> list[MatchedUnit]:
    """Return the units that found a retrieved node, best first; none for a node from another retriever."""
    units = []
    for fields in node.metadata.get(MATCHED_KEY, []):
        span = fields.get("span")
        units.append(MatchedUnit(**{**fields, "span": span and tuple(span)}))
    return units
