"""The linked nodes of a document: base nodes with their sections, contexts and parents, and their units."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from llama_index.core.bridge.pydantic import BeforeValidator, Field
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from llama_pack_densex.node_parsers.ids import PIECE, NodeIds, named
from llama_pack_densex.node_parsers.metadata import (
    ABOVE_KEY,
    ANSWERS_KEY,
    CONTEXT_KEY,
    DOCUMENT_HASH_KEY,
    DOCUMENT_ID_KEY,
    EMBED_METADATA,
    FINDINGS_KEY,
    GRANULARITY_KEY,
    LLM_METADATA,
    REASON_KEY,
    SECTION_KEY,
    STATUS_KEY,
    TITLE_KEY,
    UNVERIFIED_KEY,
    appearance,
    context_of,
    exclusions,
    users_metadata,
)
from llama_pack_densex.node_parsers.splitting import BasePiece, split, title_of
from llama_pack_densex.propositionizers.alignment import align, answers
from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.replies import unique
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.sentences import Span
from llama_pack_densex.text.tokens import strip_surrogates
from llama_pack_densex.text.values import kept_metadata, plain_values

UnitGranularity = Literal["proposition", "sentence"]

_INCOMPLETE = "incomplete: "
_SIGNATURES = {"%PDF-": "a PDF file", "PK\x03\x04": "a Word, Excel, PowerPoint, EPUB or ZIP file"}
_LOOKED_AT = 4_096  # characters at the beginning of a text
# control characters among these that a text may have; white space (\t to \r) and the escapes of logs do not
# count
_MOST_CONTROLS = 20
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def _listed(names: Any) -> tuple[Any, ...]:
    """Return names as a tuple; a single name becomes a tuple of one."""
    if isinstance(names, Collection) and not isinstance(names, str):
        return tuple(names)
    return (names,)


Listed = BeforeValidator(_listed)


class NodeSettings(NodeParser):
    """The settings that the nodes of documents depend on, except for their propositions."""

    granularity: Annotated[tuple[UnitGranularity, ...], Listed] = Field(
        default=("proposition",), description="The kinds of units made of each passage."
    )
    embed_metadata: Annotated[tuple[str, ...], Listed] = Field(
        default=EMBED_METADATA, description="Metadata keys that are embedded with a text."
    )
    llm_metadata: Annotated[tuple[str, ...], Listed] = Field(
        default=LLM_METADATA, description="Metadata keys that the LLM reads with a text."
    )

    @abstractmethod
    def base_parsers(self) -> list[NodeParser]:
        """Return the base parsers, the coarsest first; the last one makes the passages."""


class DocumentNodes:
    """The nodes of one document: sections and passages first, their units once the propositions are known.

    Args:
        document: The document, or a node that another parser made of one.
        settings: The settings that its nodes depend on.
        ids: Assigns the ids of this parser call.
        document_hash: Returns a document's hash, which is written on every base node, so that an index can
            tell whether the document has changed.

    Attributes:
        passages: The document's passages, as a propositionizer takes them.

    Raises:
        ValueError: The document cannot be split, encoded or hashed.
    """

    def __init__(
        self,
        document: BaseNode,
        settings: NodeSettings,
        ids: NodeIds,
        document_hash: Callable[[BaseNode], str],
    ) -> None:
        metadata = kept_metadata(document.metadata, document.id_)
        document = document.model_copy(update={"metadata": metadata})
        _require_encodable(document)
        _require_text(document)
        parsers = [settings, *settings.base_parsers()]
        pieces = split(document, parsers[1:])
        self._document = document
        self._settings = settings
        self._title = title_of(document)
        self._includes_metadata = all(parser.include_metadata for parser in parsers)
        self._links_neighbours = all(parser.include_prev_next_rel for parser in parsers)
        self._hash = document_hash(document)
        self._node_id = ids.of_document(ids.document_key(document))
        if document.source_node:
            self._hash = f"{PIECE}{self._hash} {document.id_}"
            self._source = document.source_node
        else:
            self._source = RelatedNodeInfo(
                node_id=document.id_, node_type=ObjectType.DOCUMENT, hash=document.hash
            )
        text = "" if document.source_node else document.get_content()
        self._outline = Outline(text, document.metadata.get(ABOVE_KEY, ()))
        self._base_nodes: list[TextNode] = []
        self._passage_nodes: list[TextNode] = []
        self._links: dict[str, RelatedNodeInfo] = {}
        self._add_base_nodes(pieces)
        self.passages = [passage_of(node) for node in self._passage_nodes]

    @property
    def wanted(self) -> list[Passage]:
        """The passages that need propositions: all, or none if the granularity lacks "proposition"."""
        return self.passages if "proposition" in self._settings.granularity else []

    def with_units(self, propositions: Sequence[PropositionSet]) -> list[BaseNode]:
        """Make the unit nodes, and link all nodes.

        Args:
            propositions: One set for each passage in `wanted`.

        Returns:
            All nodes of the document: base nodes level by level, then the units passage by passage.
        """
        if any(passage_set.is_passing for passage_set in propositions):
            for node in self._base_nodes:  # so that the document counts as changed the next time
                node.metadata[DOCUMENT_HASH_KEY] = f"{_INCOMPLETE}{self._hash}"
        units = []
        for number, passage in enumerate(self._passage_nodes):
            units += self._units_of(passage, propositions[number] if self.wanted else None)
        return [*self._base_nodes, *units]

    # Base nodes

    def _add_base_nodes(self, pieces: Sequence[BasePiece]) -> None:
        parents = {piece.parent for piece in pieces}
        siblings = defaultdict(list)
        for number, piece in enumerate(pieces):
            granularity = "section" if number in parents else "passage"
            node = self._base_node(piece, granularity)
            self._base_nodes.append(node)
            siblings[piece.parent].append(node)
            if granularity == "passage":
                self._passage_nodes.append(node)
        for parent, children in siblings.items():
            if parent is not None:
                self._adopt(self._base_nodes[parent], children)
            self._link_neighbours(children)

    def _base_node(self, piece: BasePiece, granularity: str) -> TextNode:
        document = self._document
        settings = self._settings
        metadata: dict[str, Any] = {}
        if self._includes_metadata:
            metadata = plain_values(users_metadata(document.metadata | piece.node.metadata))
        start = None
        end = None
        section = ""
        context = ""
        if piece.span:
            start, end = piece.span
            section = self._outline.section_of(start, end)
            context = self._outline.context_of(start, end)
        section = str(metadata.get("section") or section)
        if self._includes_metadata:  # also under plain names, for models and filters
            own = {"title": self._title, "section": section, "context": context.strip()}
            metadata = {name: value for name, value in own.items() if value} | metadata
        text = piece.node.get_content()
        bookkeeping = {
            GRANULARITY_KEY: granularity,
            TITLE_KEY: self._title,
            SECTION_KEY: section,
            CONTEXT_KEY: context,
            DOCUMENT_ID_KEY: self._source.node_id,
            DOCUMENT_HASH_KEY: self._hash,
        }
        shown: dict[str, Any] = exclusions(
            document, metadata, settings.embed_metadata, settings.llm_metadata
        )
        return TextNode(
            id_=self._node_id(granularity, text),
            text=text,
            start_char_idx=start,
            end_char_idx=end,
            extra_info=metadata | bookkeeping,  # LlamaIndex's alias of `metadata` in constructors
            relationships={NodeRelationship.SOURCE: self._source},
            **shown,
            **appearance(piece.node),
        )

    # Units

    def _units_of(self, passage: TextNode, passage_set: PropositionSet | None) -> list[IndexNode]:
        propositions = self._propositions(passage, passage_set) if passage_set else []
        units = list(propositions)
        if "sentence" in self._settings.granularity:
            units += self._sentences(passage, {node.text for node in propositions})
        if passage_set and passage_set.questions:
            units += self._questions(passage, passage_set.questions, propositions)
        return units

    def _propositions(self, passage: TextNode, propositions: PropositionSet) -> list[IndexNode]:
        findings = defaultdict(list)
        for finding in propositions.findings:
            text = None
            if finding.proposition is not None:
                text = propositions.texts[finding.proposition]
            findings[text].append(str(finding))
        own = passage_of(passage)
        propositions = _nothing_lost(own, propositions)
        passage.metadata[STATUS_KEY] = propositions.status
        if propositions.reason:
            passage.metadata[REASON_KEY] = propositions.reason
        verbatim = set(own.sentences)
        sources = align(own.text, propositions.texts, own.context)
        nodes = []
        for text, spans in zip(propositions.texts, sources, strict=True):
            span = (spans[0][0], spans[-1][1]) if spans else None
            node = self._unit(passage, "proposition", text, span, text in verbatim)
            _note_findings(node, findings[text])
            nodes.append(node)
        _note_findings(passage, findings[None])
        self._adopt(passage, nodes)
        self._link_neighbours(nodes)
        return nodes

    def _sentences(self, passage: TextNode, propositions: set[str]) -> list[IndexNode]:
        """Make sentence units, except for sentences that are also propositions of their passage."""
        stated = statements(passage.text, context_of(passage))
        nodes = [
            self._unit(passage, "sentence", statement.text, statement.span, is_verbatim=True)
            for statement in stated
            if statement.text not in propositions
        ]
        self._link_neighbours(nodes)
        return nodes

    def _questions(
        self, passage: TextNode, questions: Sequence[str], propositions: Sequence[TextNode]
    ) -> list[IndexNode]:
        """Make question units, each with the propositions that answer it."""
        questions = unique(strip_surrogates(question) for question in questions if question.strip())
        nodes = [self._unit(passage, "question", question, None) for question in questions]
        answering = answers(questions, [node.text for node in propositions])
        for node, places in zip(nodes, answering, strict=True):
            shown = [_shown_answer(propositions[place]) for place in places]
            node.metadata[ANSWERS_KEY] = json.dumps(shown, ensure_ascii=False)
        self._link_neighbours(nodes)
        return nodes

    def _unit(
        self,
        passage: TextNode,
        granularity: str,
        text: str,
        span: Span | None,
        is_verbatim: bool = False,
    ) -> IndexNode:
        hidden = {DOCUMENT_HASH_KEY, FINDINGS_KEY, CONTEXT_KEY, "context"}
        if granularity == "sentence":
            hidden |= {STATUS_KEY, REASON_KEY}
        metadata = {key: value for key, value in passage.metadata.items() if key not in hidden}
        if not span and granularity == "proposition":
            metadata[UNVERIFIED_KEY] = True
        metadata[GRANULARITY_KEY] = granularity
        start = passage.start_char_idx
        end = passage.end_char_idx
        if span and start is not None:
            end = start + span[1]
            start += span[0]
            metadata |= self._own_section(start, end)
            if is_verbatim:
                metadata[CONTEXT_KEY] = self._outline.leads_of(start, end)
        return IndexNode(
            id_=self._node_id(granularity, text),
            text=text,
            index_id=passage.node_id,
            start_char_idx=start,
            end_char_idx=end,
            extra_info=metadata,
            relationships={
                NodeRelationship.SOURCE: self._source,
                NodeRelationship.PARENT: self._link_to(passage),
            },
            excluded_embed_metadata_keys=list(passage.excluded_embed_metadata_keys),
            excluded_llm_metadata_keys=list(passage.excluded_llm_metadata_keys),
            **appearance(passage),
        )

    def _own_section(self, start: int, end: int) -> dict[str, Any]:
        """Return the metadata for the headings above a unit, which may be more than those of its passage.

        A passage has the headings that all of its text is below.
        """
        if "section" in self._document.metadata:
            return {}
        section = self._outline.section_of(start, end)
        if section and self._includes_metadata:
            return {SECTION_KEY: section, "section": section}
        return {SECTION_KEY: section}

    # Links

    def _adopt(self, parent: TextNode, children: Sequence[TextNode]) -> None:
        parent.relationships[NodeRelationship.CHILD] = [self._link_to(node) for node in children]
        for node in children:
            node.relationships[NodeRelationship.PARENT] = self._link_to(parent)

    def _link_neighbours(self, siblings: Sequence[TextNode]) -> None:
        if not self._links_neighbours:
            return
        for node, following in pairwise(siblings):
            node.relationships[NodeRelationship.NEXT] = self._link_to(following)
            following.relationships[NodeRelationship.PREVIOUS] = self._link_to(node)

    def _link_to(self, node: TextNode) -> RelatedNodeInfo:
        """Return the link to a node, one object for all nodes that have it.

        It lacks the metadata that `as_related_node_info` copies into every link, and the hash over them,
        which is not final while nodes are being linked.
        """
        link = self._links.get(node.node_id)
        if not link:
            link = RelatedNodeInfo(node_id=node.node_id, node_type=node.get_type())
            self._links[node.node_id] = link
        return link


def binary_kind(text: str) -> str:
    """Return the kind of binary file whose bytes were read as a text; empty for a real text.

    LlamaIndex's `SimpleDirectoryReader` reads a file in this way if it lacks a reader for it.

    Args:
        text: The text of a document.
    """
    for signature, kind in _SIGNATURES.items():
        if text.startswith(signature):
            return kind
    controls = _CONTROL.findall(text, 0, _LOOKED_AT)
    if len(controls) > _MOST_CONTROLS and len(set(controls)) > 2:
        return "a binary file"
    return ""


def _require_text(document: BaseNode) -> None:
    kind = binary_kind(document.get_content())
    if kind:
        raise ValueError(
            f"the text of document {named(document)} is the bytes of {kind}, not the text in it: "
            "SimpleDirectoryReader reads PDF and Word files after `pip install llama-index-readers-file "
            "docx2txt`, `densex index` with the extra `files`"
        )


def _require_encodable(document: BaseNode) -> None:
    if not document.id_:
        raise ValueError(
            "a document's id is empty, so that no store can find its nodes by it: give the document an id"
        )
    texts = {"text": document.get_content(), "id": document.id_}
    for key, value in document.metadata.items():
        texts[f"metadata, under the key {key!r}"] = json.dumps({key: value}, ensure_ascii=False)
    for where, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Document {document.id_!r} has half a character (a lone surrogate) at position "
                f"{error.start} "
                f"of its {where}, which no store can save; read its file with the right encoding or with "
                "errors='replace', or give the file a name in UTF-8"
            ) from error


def passage_of(node: BaseNode) -> Passage:
    """Return a passage's node as the `Passage` that a propositionizer takes."""
    keys = (TITLE_KEY, SECTION_KEY, CONTEXT_KEY)
    return Passage(node.get_content(), *(str(node.metadata[key]) for key in keys))


def _shown_answer(proposition: TextNode) -> list[Any]:
    is_unverified = UNVERIFIED_KEY in proposition.metadata
    span = [proposition.start_char_idx, proposition.end_char_idx]
    return [proposition.node_id, proposition.text, *span, is_unverified]


def _note_findings(node: TextNode, findings: Sequence[str]) -> None:
    if findings:
        node.metadata[FINDINGS_KEY] = "\n".join(findings)


def _nothing_lost(passage: Passage, propositions: PropositionSet) -> PropositionSet:
    """Complete the propositions of a passage: with its sentences if there are none, and in any case with the
    rows of its tables and its code blocks.
    """
    texts = [strip_surrogates(text) for text in propositions.texts if text.strip()]
    if not texts:
        texts = [*passage.sentences]
        reason = propositions.reason or "the propositionizer returned nothing"
        propositions = replace(propositions, status="fallback", reason=reason)
    missing = [text for text in _rows_and_code(passage) if text not in texts]
    return replace(propositions, texts=(*texts, *dict.fromkeys(missing)))


def _rows_and_code(passage: Passage) -> list[str]:
    """Return the table rows and code blocks of a passage, as statements."""
    parts = segment(passage.text, passage.context)
    whole = {part.span for part in parts if part.kind in ("row", "code")}
    stated = statements(passage.text, passage.context)
    return [statement.text for statement in stated if statement.span in whole]
