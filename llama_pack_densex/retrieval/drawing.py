"""A picture of an index's tree: sections around passages around propositions, and what a question found in
it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import shorten

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex.node_parsers.metadata import SECTION_KEY, TITLE_KEY
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.text.markup import escape

# readable on light and dark backgrounds
_FOUND_COLOR = "#3f8fe0"
_RETURNED_COLOR = "#e07b1a"

# all in pixels
_PASSAGE_WIDTH = 178
_PASSAGES_A_ROW = 5
_GAP = 10
_LABEL_HEIGHT = 30
_DOT_STEP = 21
_DOTS_A_ROW = 8
_WIDTH = _PASSAGES_A_ROW * (_PASSAGE_WIDTH + _GAP) + 14
_LABEL_CHARACTERS = 21
_TOOLTIP_CHARACTERS = 300


@dataclass(frozen=True)
class TreeDrawing:
    """A drawing that a notebook displays.

    Args:
        svg: The SVG source; lines take the colour of the surrounding text.
    """

    svg: str

    def _repr_html_(self) -> str:
        return self.svg


def draw_tree(nodes: Iterable[BaseNode], retrieved: Sequence[NodeWithScore] = ()) -> TreeDrawing:
    """Draw sections and passages as boxes, and propositions as dots; pointing at one shows its text.

    Args:
        nodes: All nodes of some documents, as `DenseXRetrievalPack.nodes` and our node parsers return them.
            All of them are drawn; up to a few hundred fit into one picture.
        retrieved: What a pack's retriever returned for them. Matched units are filled in blue and counted in
            the corner of their passage; returned nodes are outlined in orange.

    Returns:
        An SVG picture that a notebook displays.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, draw_tree, load_sample
        >>> sample = load_sample("en")
        >>> pack = DenseXRetrievalPack(sample.documents[:1], propositionizer=sample.propositionizer())
        >>> drawing = draw_tree(pack.nodes(), pack.retrieve("How did the astronauts survive?"))
        >>> drawing.svg[:4]  # a notebook displays the drawing itself
        '<svg'
    """
    by_id = {node.node_id: node for node in nodes}
    matched = {unit.id for result in retrieved for unit in matched_units(result.node)}
    tree = _Tree(by_id, matched, {result.node_id for result in retrieved})
    top = 0
    for node in by_id.values():
        if node.child_nodes and (not node.parent_node or node.parent_node.node_id not in by_id):
            top += tree.draw(node, x=2, y=top + 2, width=_WIDTH - 4) + 12
    return TreeDrawing(
        f'<svg viewBox="0 0 {_WIDTH} {top}" style="width:100%;max-width:{_WIDTH}px;height:auto" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13">{"".join(tree.parts)}</svg>'
    )


@dataclass
class _Tree:
    """The drawing in progress: nodes, each inside its parent.

    Args:
        by_id: All nodes by id.
        matched: The ids of the matched units.
        returned: The ids of the returned nodes.
        parts: The SVG elements drawn so far.
    """

    by_id: dict[str, BaseNode]
    matched: set[str]
    returned: set[str]
    parts: list[str] = field(default_factory=list)

    def draw(self, node: BaseNode, x: int, y: int, width: int) -> int:
        """Draw a node and everything below it; return its height."""
        children = self._children(node)
        place = len(self.parts)
        if self._has_passages(node):
            height = self._draw_boxes(children, x, y, width)
        else:
            height = self._draw_dots(children, x, y)
        self.parts.insert(place, self._box(node, x, y, width, height))
        return height

    def _children(self, node: BaseNode) -> list[BaseNode]:
        links = node.child_nodes or []
        return [self.by_id[link.node_id] for link in links if link.node_id in self.by_id]

    def _draw_boxes(self, children: Sequence[BaseNode], x: int, y: int, width: int) -> int:
        """Draw sections below one another, and passages in rows."""
        bottom = y + _LABEL_HEIGHT
        a_row = _PASSAGES_A_ROW
        child_width = _PASSAGE_WIDTH
        if any(map(self._has_passages, children)):
            a_row = 1
            child_width = width - 2 * _GAP
        for start in range(0, len(children), a_row):
            heights = [
                self.draw(child, x + _GAP + place * (child_width + _GAP), bottom, child_width)
                for place, child in enumerate(children[start : start + a_row])
            ]
            bottom += max(heights) + _GAP
        return bottom - y

    def _has_passages(self, node: BaseNode) -> bool:
        return any(child.child_nodes for child in self._children(node))

    def _draw_dots(self, units: Sequence[BaseNode], x: int, y: int) -> int:
        for place, unit in enumerate(units):
            down, across = divmod(place, _DOTS_A_ROW)
            dot = self._dot(unit, x + 15 + _DOT_STEP * across, y + 36 + _DOT_STEP * down)
            self.parts.append(dot)
        rows = -(-len(units) // _DOTS_A_ROW)
        return _LABEL_HEIGHT + _DOT_STEP * rows

    def _box(self, node: BaseNode, x: int, y: int, width: int, height: int) -> str:
        children = self._children(node)
        number = sum(child.node_id in self.matched for child in children)
        corner = ""
        if number:
            corner = f"{number}/{len(children)}"
        look = 'fill="none" stroke="currentColor" stroke-opacity=".45"'
        if node.node_id in self.returned:
            look = f'fill="{_RETURNED_COLOR}" fill-opacity=".16" stroke="{_RETURNED_COLOR}" stroke-width="3"'
        longest = _LABEL_CHARACTERS * width // _PASSAGE_WIDTH
        label = shorten(_heading(node), longest, placeholder=" …")
        return (
            f"<g><title>{escape(shorten(node.get_content(), _TOOLTIP_CHARACTERS, placeholder=' …'))}</title>"
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" {look} pointer-events="all"/>'
            f'<g fill="currentColor"><text x="{x + 9}" y="{y + 18}">{escape(label)}</text>'
            f'<text x="{x + width - 9}" y="{y + 18}" text-anchor="end" opacity=".75">{corner}</text></g></g>'
        )

    def _dot(self, unit: BaseNode, x: int, y: int) -> str:
        look = 'fill="none" stroke="currentColor"'
        if unit.node_id in self.matched:
            look = f'fill="{_FOUND_COLOR}" stroke="{_FOUND_COLOR}"'
        ring = ""
        if unit.node_id in self.returned:
            ring = (
                f'<circle cx="{x}" cy="{y}" r="9.5" fill="none" '
                f'stroke="{_RETURNED_COLOR}" stroke-width="3"/>'
            )
        return (
            f"<g><title>{escape(unit.get_content())}</title>{ring}"
            f'<circle cx="{x}" cy="{y}" r="5.5" {look} stroke-opacity=".7" pointer-events="all"/></g>'
        )


def _heading(node: BaseNode) -> str:
    """Return the innermost heading above a node or, if that is the document's title, those in its text."""
    title = str(node.metadata.get(TITLE_KEY) or node.ref_doc_id or "")
    section = str(node.metadata.get(SECTION_KEY) or title)
    if not node.parent_node:
        return section or title
    below_title = section.removeprefix(title).removeprefix(", ")
    if below_title:
        return below_title.rpartition(", ")[2]
    return ", ".join(re.findall(r"^#+ (.*)", node.get_content(), re.MULTILINE)) or title
