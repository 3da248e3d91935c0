"""Two base parsers: one that keeps documents whole, one that cuts them at their headings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode

from llama_pack_densex.node_parsers.headings import find_headings


class WholeDocumentNodeParser(NodeParser):
    """Keeps each document whole as one passage, for corpora whose documents are passages already."""

    @classmethod
    def class_name(cls) -> str:
        return "WholeDocumentNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        return [
            made for node in nodes for made in build_nodes_from_splits([node.get_content()], node, id_func=self.id_func)
        ]


class SectionNodeParser(NodeParser):
    """Cuts documents at their Markdown or wiki headings; a section reaches to the next heading of its depth.

    Args:
        depth: The deepest heading level that opens a section of its own (1 to 6).
    """

    depth: int = Field(default=2, ge=1, le=6, description="The deepest heading level that opens a section.")

    @classmethod
    def class_name(cls) -> str:
        return "SectionNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        return [
            made
            for node in nodes
            for made in build_nodes_from_splits(self._sections(node.get_content()), node, id_func=self.id_func)
        ]

    def _sections(self, text: str) -> list[str]:
        cuts = [0]
        after_headings = 0  # where the headings end that the current section begins with
        for heading in find_headings(text):
            says_something = bool(text[max(cuts[-1], after_headings) : heading.start].strip())
            if heading.level <= self.depth and says_something:
                cuts.append(heading.start)
            if not says_something or cuts[-1] == heading.start:
                after_headings = heading.end
        sections = (text[start:end].strip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True))
        return [section for section in sections if section]
