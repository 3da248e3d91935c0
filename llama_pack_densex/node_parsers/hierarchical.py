"""Propositions as the leaves of a hierarchy of sections and passages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from llama_index.core.bridge.pydantic import Field, SerializeAsAny, field_serializer, field_validator
from llama_index.core.node_parser import NodeParser, SentenceSplitter

from llama_pack_densex.node_parsers.base import BasePropositionNodeParser, UnitGranularity
from llama_pack_densex.node_parsers.proposition import DEFAULT_CHUNK_SIZE
from llama_pack_densex.node_parsers.sections import SectionNodeParser
from llama_pack_densex.node_parsers.serialising import load_parser, parser_to_dict
from llama_pack_densex.propositionizers.base import Propositionizer

DEFAULT_CHUNK_SIZES = (2048, DEFAULT_CHUNK_SIZE)
"""Tokens in a section and in a passage."""


def _default_levels() -> list[NodeParser]:
    return _splitters(DEFAULT_CHUNK_SIZES, 0)


class HierarchicalPropositionNodeParser(BasePropositionNodeParser):
    """Splits documents into sections, sections into passages, and passages into propositions.

    Core's `HierarchicalNodeParser` idea with propositions as the leaves, made for auto-merging retrieval: where
    enough propositions of a passage are found, the passage is read instead, and so on upwards.

    Args:
        levels: Node parsers, the coarsest first; each splits what the one before it made, and the last one's nodes
            are the passages. Use `from_defaults` to get them from chunk sizes or headings.
        propositionizer: What turns a passage into propositions.
        granularity: The units under each passage; auto-merging counts propositions.

    Raises:
        ValueError: There is no level, or (on parsing) a level cannot split a document.
    """

    levels: list[SerializeAsAny[NodeParser]] = Field(
        default_factory=_default_levels,
        description="The node parsers of the levels above the propositions, the coarsest first.",
    )

    @field_validator("levels", mode="before")
    @classmethod
    def _levels_of_dicts(cls, value: Any) -> Any:
        return [load_parser(level) for level in value] if isinstance(value, list) else value

    @field_serializer("levels")
    def _levels_to_dicts(self, value: list[NodeParser]) -> list[dict[str, Any]]:
        return [parser_to_dict(level) for level in value]

    @field_validator("levels")
    @classmethod
    def _has_levels(cls, levels: list[NodeParser]) -> list[NodeParser]:
        if not levels:
            raise ValueError("levels must hold at least one node parser, the one that makes the passages")
        return levels

    @classmethod
    def from_defaults(
        cls,
        chunk_sizes: Sequence[int] | None = None,
        chunk_overlap: int = 0,
        sections: bool = False,
        propositionizer: Propositionizer | None = None,
        granularity: tuple[UnitGranularity, ...] = ("proposition",),
        include_metadata: bool = True,
        include_prev_next_rel: bool = True,
        **kwargs: Any,
    ) -> HierarchicalPropositionNodeParser:
        """Make a parser from chunk sizes.

        Args:
            chunk_sizes: Tokens in the nodes of each level, the largest first; the default is 2048 and 256, or 256
                alone with `sections`.
            chunk_overlap: Tokens that neighbouring nodes of a level share.
            sections: Whether the topmost level is the document's sections, by its headings.
            propositionizer: What turns a passage into propositions; None means sentences.
            granularity: The units under each passage.
            include_metadata: Whether nodes carry their document's metadata.
            include_prev_next_rel: Whether neighbours are linked.
            **kwargs: Further fields of the class.

        Raises:
            ValueError: The chunk sizes do not become smaller from level to level, or one is not positive.
        """
        if chunk_sizes is None:
            chunk_sizes = DEFAULT_CHUNK_SIZES[1:] if sections else DEFAULT_CHUNK_SIZES
        if any(lower >= upper for upper, lower in pairwise(chunk_sizes)):
            raise ValueError(f"chunk_sizes must become smaller from level to level, not {list(chunk_sizes)}")
        levels = _splitters(chunk_sizes, chunk_overlap)
        if sections:
            levels.insert(0, SectionNodeParser())
        if propositionizer is not None:
            kwargs["propositionizer"] = propositionizer
        return cls(
            levels=levels,
            granularity=granularity,
            include_metadata=include_metadata,
            include_prev_next_rel=include_prev_next_rel,
            **kwargs,
        )

    @classmethod
    def class_name(cls) -> str:
        return "HierarchicalPropositionNodeParser"

    def _levels(self) -> list[NodeParser]:
        return self.levels


def _splitters(chunk_sizes: Sequence[int], chunk_overlap: int) -> list[NodeParser]:
    return [SentenceSplitter(chunk_size=size, chunk_overlap=min(chunk_overlap, size)) for size in chunk_sizes]
