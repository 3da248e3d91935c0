"""From base pieces and their propositions to linked nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from llama_pack_densex.node_parsers.headings import Outline
from llama_pack_densex.node_parsers.ids import NodeIds
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    DOCUMENT_HASH_KEY,
    DOCUMENT_ID_KEY,
    FILE_KEYS,
    GRANULARITY_KEY,
    REASON_KEY,
    SECTION_KEY,
    STATUS_KEY,
    TITLE_KEY,
    hide,
)
from llama_pack_densex.node_parsers.passages import BasePiece, title_of
from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.blocks import find_regions
from llama_pack_densex.propositionizers.segmentation import sentence_spans
from llama_pack_densex.propositionizers.sentences import passage_sentences

_INCOMPLETE = "incomplete: "


@dataclass(frozen=True)
class LinkOptions:
    """What the nodes of a document get, besides their text.

    Args:
        include_metadata: Whether they carry the document's metadata.
        include_prev_next_rel: Whether neighbours are linked.
        propositions: Whether there are proposition nodes.
        sentences: Whether there are sentence nodes.
    """

    include_metadata: bool
    include_prev_next_rel: bool
    propositions: bool
    sentences: bool


class DocumentNodes:
    """The nodes of one document: sections and passages first, their units once the propositions are known.

    Args:
        document: The document, or a node that another parser made of one.
        pieces: Its base pieces.
        document_hash: Kept on every base node, so that an index can tell a changed document from an unchanged one.
        ids: The ids of this parser call.
        options: What the nodes get.
    """

    def __init__(
        self, document: BaseNode, pieces: Sequence[BasePiece], document_hash: str, ids: NodeIds, options: LinkOptions
    ) -> None:
        self._ids = ids
        self._options = options
        self._key = ids.document_key(document)
        self._source = document.source_node or RelatedNodeInfo(
            node_id=document.id_, node_type=ObjectType.DOCUMENT, hash=document.hash
        )
        self._outline = Outline(document.get_content()) if document.source_node is None else Outline("")
        self._title = title_of(document)
        self._document = document
        self._hash = document_hash
        inner = {piece.parent for piece in pieces}
        self.base_nodes = [
            self._base_node(piece, "section" if i in inner else "passage") for i, piece in enumerate(pieces)
        ]
        self.passage_nodes = [node for i, node in enumerate(self.base_nodes) if i not in inner]
        for piece, node in zip(pieces, self.base_nodes, strict=True):
            if piece.parent is not None:
                _adopt(self.base_nodes[piece.parent], [node])
        self._link_neighbours(self.base_nodes)

    @property
    def passages(self) -> list[Passage]:
        """What is turned into propositions, one for each of `passage_nodes`."""
        return [
            Passage(node.text, str(node.metadata[TITLE_KEY]), str(node.metadata[SECTION_KEY]))
            for node in self.passage_nodes
        ]

    @property
    def wanted_passages(self) -> list[Passage]:
        """Those of `passages` whose propositions are wanted: all or none."""
        return self.passages if self._options.propositions else []

    @property
    def wanted(self) -> int:
        """How many passages' propositions are wanted."""
        return len(self.passage_nodes) if self._options.propositions else 0

    def with_units(self, propositions: Sequence[PropositionSet]) -> list[BaseNode]:
        """Make the unit nodes and link everything.

        Args:
            propositions: A set for each of `wanted_passages`.

        Returns:
            All nodes of the document: base nodes level by level, then the units passage by passage.
        """
        units: list[BaseNode] = []
        if any(one.is_passing for one in propositions):
            for node in self.base_nodes:  # so that it counts as changed the next time
                node.metadata[DOCUMENT_HASH_KEY] = f"{_INCOMPLETE}{self._hash}"
        sets = propositions if self._options.propositions else [None] * len(self.passage_nodes)
        for passage, one in zip(self.passage_nodes, sets, strict=True):
            made: list[IndexNode] = []
            if one is not None:
                made = self._propositions(passage, one)
                if made:
                    _adopt(passage, made)
                units += made
            if self._options.sentences:
                units += self._sentences(passage, {node.text for node in made})
        return [*self.base_nodes, *units]

    def _base_node(self, piece: BasePiece, granularity: str) -> TextNode:
        theirs = self._document.metadata
        own = {key: value for key, value in piece.node.metadata.items() if theirs.get(key) != value}
        merged: dict[str, Any] = {**theirs, **own} if self._options.include_metadata else own
        metadata = {key: value for key, value in merged.items() if key not in BOOKKEEPING_KEYS}
        section = metadata.get("section") or (self._outline.section_at(*piece.span) if piece.span else "")
        text = piece.node.get_content()
        fields: dict[str, Any] = {
            "id_": self._ids.node_id(self._key, granularity, text),
            "text": text,
            "metadata": {
                **metadata,
                GRANULARITY_KEY: granularity,
                TITLE_KEY: self._title,
                SECTION_KEY: str(section),
                DOCUMENT_ID_KEY: self._source.node_id,
                DOCUMENT_HASH_KEY: self._hash,
            },
            "relationships": {NodeRelationship.SOURCE: self._source},
            **_appearance(piece.node),
        }
        node = TextNode(**fields)
        if piece.span:
            node.start_char_idx, node.end_char_idx = piece.span
        hide(node, [*BOOKKEEPING_KEYS, *FILE_KEYS])
        return node

    def _propositions(self, passage: TextNode, propositions: PropositionSet) -> list[IndexNode]:
        propositions = _with_blocks(passage.text, _never_empty(passage.text, propositions))
        marks: dict[str, str] = {STATUS_KEY: propositions.status}
        if propositions.reason:
            marks[REASON_KEY] = propositions.reason
        passage.metadata.update(marks)
        nodes = [self._unit(passage, "proposition", text, _find(passage.text, text)) for text in propositions.texts]
        self._link_neighbours(nodes)
        return nodes

    def _sentences(self, passage: TextNode, known: set[str]) -> list[IndexNode]:
        """Sentence units, but for those that are a proposition of their passage already."""
        spans = [span for span in sentence_spans(passage.text) if passage.text[slice(*span)] not in known]
        stating = set(passage_sentences(passage.text))
        nodes = [
            self._unit(passage, "sentence", passage.text[slice(*span)], span)
            for span in spans
            if passage.text[slice(*span)] in stating
        ]
        self._link_neighbours(nodes)
        return nodes

    def _unit(self, passage: TextNode, granularity: str, text: str, span: tuple[int, int] | None) -> IndexNode:
        left_out = {DOCUMENT_HASH_KEY} if granularity == "proposition" else {DOCUMENT_HASH_KEY, STATUS_KEY, REASON_KEY}
        metadata = {key: value for key, value in passage.metadata.items() if key not in left_out}
        fields: dict[str, Any] = {
            "id_": self._ids.node_id(self._key, granularity, text),
            "text": text,
            "index_id": passage.node_id,
            "metadata": {**metadata, GRANULARITY_KEY: granularity},
            "relationships": {NodeRelationship.SOURCE: self._source, NodeRelationship.PARENT: _info(passage)},
            **_appearance(passage),
        }
        node = IndexNode(**fields)
        if passage.start_char_idx is not None and passage.end_char_idx is not None:
            start, end = span or (0, passage.end_char_idx - passage.start_char_idx)
            node.start_char_idx, node.end_char_idx = passage.start_char_idx + start, passage.start_char_idx + end
            if span and not passage.metadata.get("section"):
                # a passage can reach into the next section, and then this unit may stand there
                node.metadata[SECTION_KEY] = self._outline.section_at(node.start_char_idx, node.end_char_idx)
        return node

    def _link_neighbours(self, nodes: Sequence[TextNode]) -> None:
        if not self._options.include_prev_next_rel:
            return
        siblings: defaultdict[str | None, list[TextNode]] = defaultdict(list)
        for node in nodes:
            siblings[node.parent_node.node_id if node.parent_node else None].append(node)
        for family in siblings.values():
            for before, after in pairwise(family):
                before.relationships[NodeRelationship.NEXT] = _info(after)
                after.relationships[NodeRelationship.PREVIOUS] = _info(before)


def _appearance(node: BaseNode) -> dict[str, Any]:
    """How a node shows its metadata and text to models."""
    names = (
        "excluded_embed_metadata_keys",
        "excluded_llm_metadata_keys",
        "metadata_template",
        "metadata_separator",
        "text_template",
    )
    return {name: getattr(node, name) for name in names if hasattr(node, name)}


def _info(node: TextNode) -> RelatedNodeInfo:
    # Without the metadata that `as_related_node_info` copies into every link, and without the hash over it, which is
    # not final while nodes are being linked.
    return RelatedNodeInfo(node_id=node.node_id, node_type=node.get_type())


def _adopt(parent: TextNode, children: Sequence[TextNode]) -> None:
    parent.relationships[NodeRelationship.CHILD] = [*(parent.child_nodes or []), *(_info(node) for node in children)]
    for node in children:
        node.relationships[NodeRelationship.PARENT] = _info(parent)


def _never_empty(text: str, propositions: PropositionSet) -> PropositionSet:
    texts = tuple(t for t in propositions.texts if t.strip())
    if texts:
        return PropositionSet(texts, propositions.status, propositions.reason)
    return PropositionSet(
        passage_sentences(text), "fallback", propositions.reason or "the propositionizer returned nothing"
    )


def _with_blocks(text: str, propositions: PropositionSet) -> PropositionSet:
    """Add the tables and code blocks of a passage whole, as units of their own."""
    blocks = (text[part.start : part.end] for part in find_regions(text) if part.kind == "block")
    missing = tuple(dict.fromkeys(block for block in blocks if block not in propositions.texts))
    return PropositionSet(propositions.texts + missing, propositions.status, propositions.reason)


def _find(text: str, proposition: str) -> tuple[int, int] | None:
    """The span of a proposition that stands in its passage word for word, once."""
    start = text.find(proposition)
    if start < 0 or text.find(proposition, start + 1) >= 0:
        return None
    return start, start + len(proposition)
