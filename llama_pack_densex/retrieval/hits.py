"""What a search of the units found, gathered by passage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    GRANULARITY_KEY,
    MATCHED_KEY,
    SECTION_KEY,
    STATUS_KEY,
    hide,
)
from llama_pack_densex.stores.node_store import FoundNode
from llama_pack_densex.stores.records import NodeRecord


@dataclass(frozen=True)
class MatchedUnit:
    """A unit that a query found; retrieved nodes carry theirs under the metadata key `densex_matched`, best first.

    Args:
        id: The unit's node id.
        text: Its text.
        score: Its own score: a cosine, a BM25 score in lexical search, or in hybrid search a share of the best.
        granularity: "proposition" or "sentence".
        status: How its passage's propositions came about: "ok", "repaired" or "fallback"; empty for sentences.
        section: The headings above it, outermost first, joined by ", ".
    """

    id: str
    text: str
    score: float
    granularity: str
    status: str
    section: str = ""

    @classmethod
    def of_record(cls, record: NodeRecord, score: float) -> MatchedUnit:
        """What is shown of a unit that was found."""
        return cls(record.id, record.text, score, record.granularity, record.status, record.section)

    @classmethod
    def of(cls, node: BaseNode, score: float) -> MatchedUnit:
        """A unit node that a retriever returned itself."""
        return cls(
            id=node.node_id,
            text=node.get_content(),
            score=score,
            granularity=str(node.metadata.get(GRANULARITY_KEY, "")),
            status=str(node.metadata.get(STATUS_KEY, "")),
            section=str(node.metadata.get(SECTION_KEY, "")),
        )


@dataclass(frozen=True)
class PassageHit:
    """A passage that was found: by its units, or as a whole.

    Args:
        passage_id: The passage's node id.
        score: The passage's score; in dense search that of its best unit (Dense X Retrieval, section 4.3).
        units: The units that were found, best first; the passage itself is not among them.
    """

    passage_id: str
    score: float
    units: tuple[FoundNode, ...]


@dataclass(frozen=True)
class SearchResult:
    """One round of a search.

    Args:
        passages: Best first, each once.
        exhausted: Whether a larger round would find nothing more.
    """

    passages: tuple[PassageHit, ...]
    exhausted: bool


def collapse(units: Iterable[FoundNode]) -> tuple[PassageHit, ...]:
    """Gather units by the passage they lead to; a passage scores as its best unit."""
    by_passage: dict[str, list[FoundNode]] = {}
    for unit in sorted(units, key=lambda unit: -unit.score):
        by_passage.setdefault(unit.leads_to, []).append(unit)
    return tuple(
        PassageHit(passage_id, found[0].score, tuple(unit for unit in found if unit.id != passage_id))
        for passage_id, found in by_passage.items()
    )


def with_matches(
    node: BaseNode, score: float, units: Sequence[FoundNode], records: Mapping[str, NodeRecord]
) -> NodeWithScore:
    """A copy of a node that carries the units that found it, hidden from embedding model and LLM.

    Args:
        node: The node.
        score: Its score.
        units: What found it, best first.
        records: The units' records by id; a unit without one was deleted meanwhile.
    """
    # `asdict` would copy every string, which is most of the time that this takes
    matched: list[dict[str, Any]] = [
        dict(vars(MatchedUnit.of_record(records[unit.id], unit.score))) for unit in units if unit.id in records
    ]
    copy = node.model_copy()
    copy.metadata = {**node.metadata, MATCHED_KEY: matched}
    hide(copy, BOOKKEEPING_KEYS)
    return NodeWithScore(node=copy, score=score)


def matched_units(node: BaseNode) -> list[MatchedUnit]:
    """The units that found a retrieved node, best first; none for a node that another retriever found."""
    return [MatchedUnit(**unit) for unit in node.metadata.get(MATCHED_KEY, [])]
