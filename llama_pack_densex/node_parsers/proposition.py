"""Propositions under the passages of any node parser."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field, SerializeAsAny, field_serializer, field_validator
from llama_index.core.node_parser import NodeParser, SentenceSplitter

from llama_pack_densex.node_parsers.base import BasePropositionNodeParser, UnitGranularity
from llama_pack_densex.node_parsers.serialising import load_parser, parser_to_dict
from llama_pack_densex.propositionizers.base import Propositionizer

DEFAULT_CHUNK_SIZE = 256
"""Tokens in a passage."""


def default_base_parser() -> NodeParser:
    """Passages of up to 256 tokens without overlap: overlapping passages would give the same proposition twice."""
    return SentenceSplitter(chunk_size=DEFAULT_CHUNK_SIZE, chunk_overlap=0)


class PropositionNodeParser(BasePropositionNodeParser):
    """Splits documents into passages and each passage into propositions (Dense X Retrieval, Chen et al., 2023).

    You get the passages and, under them, their propositions: small self-contained facts to search, each an
    `IndexNode` that leads to the passage to read. The same input always gets the same node ids.

    Args:
        base_parser: Any node parser; its nodes are the passages. Its own settings count.
        propositionizer: What turns a passage into propositions: `LLMPropositionizer(llm)`,
            `RecordedPropositionizer(path)`, or sentences, the default.
        granularity: `("proposition",)`, `("sentence",)` or both.

    Raises:
        ValueError: (on parsing) The base parser cannot split a document, or a document's text cannot be encoded.

    Examples:
        >>> from llama_index.core import Document
        >>> parser = PropositionNodeParser()
        >>> nodes = parser.get_nodes_from_documents([Document(text="Rain fell. The match was called off.")])
        >>> [node.text for node in nodes]
        ['Rain fell. The match was called off.', 'Rain fell.', 'The match was called off.']
    """

    base_parser: SerializeAsAny[NodeParser] = Field(
        default_factory=default_base_parser,
        description="The node parser that makes the passages.",
    )

    @field_validator("base_parser", mode="before")
    @classmethod
    def _base_parser_of_dict(cls, value: Any) -> Any:
        return load_parser(value)

    @field_serializer("base_parser")
    def _base_parser_to_dict(self, value: NodeParser) -> dict[str, Any]:
        return parser_to_dict(value)

    @classmethod
    def from_defaults(
        cls,
        base_parser: NodeParser | None = None,
        propositionizer: Propositionizer | None = None,
        granularity: tuple[UnitGranularity, ...] = ("proposition",),
        include_metadata: bool = True,
        include_prev_next_rel: bool = True,
        **kwargs: Any,
    ) -> PropositionNodeParser:
        """Make a parser from what is given and the defaults for what is None."""
        given = {"base_parser": base_parser, "propositionizer": propositionizer}
        kwargs |= {name: value for name, value in given.items() if value is not None}
        return cls(
            granularity=granularity,
            include_metadata=include_metadata,
            include_prev_next_rel=include_prev_next_rel,
            **kwargs,
        )

    @classmethod
    def class_name(cls) -> str:
        return "PropositionNodeParser"

    def _levels(self) -> list[NodeParser]:
        return [self.base_parser]
