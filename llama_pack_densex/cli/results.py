"""What `densex query` and `densex inspect` show, as data that becomes JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, TextNode

from llama_pack_densex.answering.extractive import NOTHING_FOUND
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    GRANULARITY_KEY,
    REASON_KEY,
    SECTION_KEY,
    STATUS_KEY,
    TITLE_KEY,
)
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.retrieval.hits import MatchedUnit, matched_units
from llama_pack_densex.stores.manifest import Manifest


@dataclass(frozen=True)
class Result:
    """A retrieved node.

    Args:
        id: Its node id.
        granularity: "passage", or in mode "auto_merging" also "section", "proposition" or "sentence".
        document: Its document's id.
        title: Its document's title.
        section: The headings above it.
        score: Its score.
        start: Where it starts in its document's text, in characters; None where that is not known.
        end: Where it ends.
        text: Its text.
        matched: The units that found it, best first.
        metadata: The document's metadata.
    """

    id: str
    granularity: str
    document: str
    title: str
    section: str
    score: float | None
    start: int | None
    end: int | None
    text: str
    matched: list[MatchedUnit]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """An answered question.

    Args:
        question: The question.
        answer: The answer; empty where nothing was found.
        written: Whether an LLM wrote it; otherwise it is quoted.
        results: What was retrieved, best first.
    """

    question: str
    answer: str
    written: bool
    results: list[Result]


@dataclass(frozen=True)
class InspectedUnit:
    """A proposition or sentence: its id, text and place in its document."""

    id: str
    text: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class InspectedPassage:
    """A passage with its units.

    Args:
        id: Its node id.
        document: Its document's id.
        title: Its document's title.
        section: The headings above it.
        start: Where it starts in its document's text, in characters; None where that is not known.
        end: Where it ends.
        status: "ok", "repaired" or "fallback"; empty where there are no propositions.
        reason: Why the status is not "ok".
        text: Its text.
        propositions: Its propositions.
        sentences: The sentence units beside them.
    """

    id: str
    document: str
    title: str
    section: str
    start: int | None
    end: int | None
    status: str
    reason: str
    text: str
    propositions: list[InspectedUnit]
    sentences: list[InspectedUnit]


@dataclass(frozen=True)
class Inspection:
    """An index: how it was made, how much is in it, and the passages that were asked for.

    Args:
        mode: The retrieval mode.
        granularity: The units that are searched.
        embed_model: The embedding model, or "none".
        documents: Number of documents.
        passages: Number of passages.
        propositions: Number of propositions.
        statuses: Number of passages by status.
        shown: The passages, in the order of their documents.
    """

    mode: str
    granularity: list[str]
    embed_model: str
    documents: int
    passages: int
    propositions: int
    statuses: dict[str, int]
    shown: list[InspectedPassage]


def answer_question(pack: DenseXRetrievalPack, question: str, top_k: int | None = None) -> Answer:
    """Answer a question.

    Args:
        pack: The pack.
        question: The question.
        top_k: Passages to retrieve; None means the pack's number.
    """
    response = pack.run(question, similarity_top_k=top_k)
    text = str(response).strip()
    return Answer(
        question=question,
        answer=text if response.source_nodes or text != NOTHING_FOUND else "",
        written=pack.get_modules()["query_llm"] is not None,
        results=[_result(node) for node in response.source_nodes],
    )


def inspect_index(manifest: Manifest, nodes: Sequence[BaseNode], passage: str | None = None) -> Inspection:
    """Gather an index's passages with their units.

    Args:
        manifest: The index's manifest.
        nodes: All its nodes, in reading order.
        passage: The id of the only passage to show, or the beginning of one passage's id.

    Raises:
        ValueError: There is no such passage, or more than one.
    """
    by_granularity: defaultdict[str, list[BaseNode]] = defaultdict(list)
    units: defaultdict[str, list[IndexNode]] = defaultdict(list)
    for node in nodes:
        by_granularity[str(node.metadata.get(GRANULARITY_KEY))].append(node)
        if isinstance(node, IndexNode):
            units[node.index_id].append(node)
    passages = by_granularity["passage"]
    shown = passages if passage is None else [_passage_of_id(passages, passage)]
    return Inspection(
        mode=manifest.mode,
        granularity=list(manifest.granularity),
        embed_model=manifest.embed_model,
        documents=len({node.ref_doc_id for node in passages}),
        passages=len(passages),
        propositions=len(by_granularity["proposition"]),
        statuses=dict(Counter(str(node.metadata[STATUS_KEY]) for node in passages if node.metadata.get(STATUS_KEY))),
        shown=[_inspected(node, units[node.node_id]) for node in shown],
    )


def _passage_of_id(passages: Sequence[BaseNode], beginning: str) -> BaseNode:
    found = [node for node in passages if node.node_id.startswith(beginning)] if beginning else []
    if len(found) != 1:
        what = "no passage has" if not found else f"{len(found)} passages have"
        raise ValueError(f"{what} an id that begins with {beginning!r}; `densex inspect DIR` shows them all")
    return found[0]


def _result(found: NodeWithScore) -> Result:
    node, metadata = found.node, found.node.metadata
    start, end = _span(node)
    return Result(
        id=node.node_id,
        granularity=str(metadata.get(GRANULARITY_KEY, "")),
        document=node.ref_doc_id or "",
        title=str(metadata.get(TITLE_KEY) or ""),
        section=str(metadata.get(SECTION_KEY) or ""),
        score=found.score,
        start=start,
        end=end,
        text=node.get_content(),
        matched=matched_units(node),
        metadata={key: value for key, value in metadata.items() if key not in BOOKKEEPING_KEYS},
    )


def _inspected(node: BaseNode, units: Sequence[IndexNode]) -> InspectedPassage:
    start, end = _span(node)
    return InspectedPassage(
        id=node.node_id,
        document=node.ref_doc_id or "",
        title=str(node.metadata.get(TITLE_KEY) or ""),
        section=str(node.metadata.get(SECTION_KEY) or ""),
        start=start,
        end=end,
        status=str(node.metadata.get(STATUS_KEY, "")),
        reason=str(node.metadata.get(REASON_KEY, "")),
        text=node.get_content(),
        propositions=_units(node, units, "proposition"),
        sentences=_units(node, units, "sentence"),
    )


def _units(passage: BaseNode, units: Sequence[IndexNode], granularity: str) -> list[InspectedUnit]:
    """Units of a passage: propositions in the order in which they were made, sentences in that of the text."""
    order = {child.node_id: place for place, child in enumerate(passage.child_nodes or [])}
    wanted = [unit for unit in units if unit.metadata.get(GRANULARITY_KEY) == granularity]
    wanted.sort(key=lambda unit: order.get(unit.node_id, len(order)))
    return [InspectedUnit(unit.node_id, unit.text, *_span(unit)) for unit in wanted]


def _span(node: BaseNode) -> tuple[int | None, int | None]:
    return (node.start_char_idx, node.end_char_idx) if isinstance(node, TextNode) else (None, None)
