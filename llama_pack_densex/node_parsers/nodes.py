"""From documents to linked nodes: base pieces with spans, parents and sections, their units, and stable ids."""

from __future__ import annotations

import hashlib
import json
import uuid
from abc import abstractmethod
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field, field_validator
from llama_index.core.node_parser import NodeParser, SentenceSplitter, TextSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    IndexNode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from llama_pack_densex.llm.usage import tokens_of
from llama_pack_densex.node_parsers.metadata import (
    ANSWERS_KEY,
    BOOKKEEPING_KEYS,
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
    exclusions,
    lasting,
)
from llama_pack_densex.propositionizers.alignment import Span, align, answers
from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.prompts import unique
from llama_pack_densex.text.sentences import (
    Region,
    after_space,
    find_headings,
    find_regions,
    heading_text,
    passage_sentences,
    segment,
    sentence_spans,
)
from llama_pack_densex.text.tokens import strip_surrogates

UnitGranularity = Literal["proposition", "sentence"]

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex")
_INCOMPLETE = "incomplete: "
PIECE = "piece: "
"""Before the hash and the id of a node that another parser made: of one document there are several."""
_HEADED = (".md", ".markdown", ".rst", ".adoc", ".asciidoc", ".html", ".htm", ".xhtml")


class NodeSettings(NodeParser):
    """What decides the nodes of documents, but for their propositions."""

    granularity: tuple[UnitGranularity, ...] = Field(default=("proposition",), description="The units of each passage.")
    embed_metadata: tuple[str, ...] = Field(default=EMBED_METADATA, description="Metadata keys embedded with a text.")
    llm_metadata: tuple[str, ...] = Field(default=LLM_METADATA, description="Metadata keys that the LLM reads.")

    @field_validator("granularity", "embed_metadata", "llm_metadata", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else tuple(value)

    @abstractmethod
    def base_parsers(self) -> list[NodeParser]:
        """The base parsers, the coarsest first; the last one makes the passages."""


class DocumentNodes:
    """The nodes of one document: sections and passages first, their units once the propositions are known.

    Args:
        document: The document, or a node that another parser made of one.
        settings: What decides its nodes.
        ids: The ids of this parser call.
        document_hash: Kept on every base node, so that an index can tell a changed document from an unchanged one.

    Attributes:
        passages: What can be turned into propositions.

    Raises:
        ValueError: The document cannot be split, encoded or hashed.
    """

    def __init__(
        self, document: BaseNode, settings: NodeSettings, ids: NodeIds, document_hash: Callable[[BaseNode], str]
    ) -> None:
        _require_encodable(document)
        parsers = settings.base_parsers()
        pieces = split(document, parsers)
        self._document, self._settings = document, settings
        self._includes_metadata = all(one.include_metadata for one in (settings, *parsers))
        self._links_neighbours = all(one.include_prev_next_rel for one in (settings, *parsers))
        self._hash = document_hash(document)
        if document.source_node:
            self._hash = f"{PIECE}{self._hash} {document.id_}"
        self._node_id = ids.of_document(ids.document_key(document))
        self._source = document.source_node or RelatedNodeInfo(
            node_id=document.id_, node_type=ObjectType.DOCUMENT, hash=document.hash
        )
        self._outline = Outline(document.get_content() if document.source_node is None else "")
        self._title = title_of(document)
        inner = {piece.parent for piece in pieces}
        self._base_nodes = [
            self._base_node(piece, "section" if i in inner else "passage") for i, piece in enumerate(pieces)
        ]
        self._passage_nodes = [node for i, node in enumerate(self._base_nodes) if i not in inner]
        families: defaultdict[int | None, list[TextNode]] = defaultdict(list)
        for piece, node in zip(pieces, self._base_nodes, strict=True):
            families[piece.parent].append(node)
        for parent, children in families.items():
            if parent is not None:
                _adopt(self._base_nodes[parent], children)
            self._link_neighbours(children)
        self.passages = [
            Passage(node.text, str(node.metadata[TITLE_KEY]), str(node.metadata[SECTION_KEY]))
            for node in self._passage_nodes
        ]

    @property
    def wanted(self) -> list[Passage]:
        """Those of `passages` whose propositions are wanted: all or none."""
        return self.passages if "proposition" in self._settings.granularity else []

    def with_units(self, propositions: Sequence[PropositionSet]) -> list[BaseNode]:
        """Make the unit nodes and link everything.

        Args:
            propositions: A set for each of `wanted`.

        Returns:
            All nodes of the document: base nodes level by level, then the units passage by passage.
        """
        if any(one.is_passing for one in propositions):
            for node in self._base_nodes:  # so that it counts as changed the next time
                node.metadata[DOCUMENT_HASH_KEY] = f"{_INCOMPLETE}{self._hash}"
        units: list[BaseNode] = []
        sets = propositions if self.wanted else [None] * len(self._passage_nodes)
        for passage, one in zip(self._passage_nodes, sets, strict=True):
            made = [] if one is None else self._propositions(passage, one)
            units += made
            if "sentence" in self._settings.granularity:
                units += self._sentences(passage, {node.text for node in made})
            if one is not None and one.questions:
                units += self._questions(passage, one.questions, made)
        return [*self._base_nodes, *units]

    def _base_node(self, piece: BasePiece, granularity: str) -> TextNode:
        merged = {**self._document.metadata, **piece.node.metadata} if self._includes_metadata else {}
        metadata = {key: value for key, value in merged.items() if key not in BOOKKEEPING_KEYS}
        section = str(metadata.get("section") or (self._outline.section_at(*piece.span) if piece.span else ""))
        metadata = self._named(metadata, section)
        text = piece.node.get_content()
        start, end = piece.span or (None, None)
        ours = {
            GRANULARITY_KEY: granularity,
            TITLE_KEY: self._title,
            SECTION_KEY: section,
            DOCUMENT_ID_KEY: self._source.node_id,
            DOCUMENT_HASH_KEY: self._hash,
        }
        return TextNode(
            id_=self._node_id(granularity, text),
            text=text,
            start_char_idx=start,
            end_char_idx=end,
            metadata=metadata | ours,
            relationships={NodeRelationship.SOURCE: self._source},
            **exclusions(self._document, metadata, self._settings.embed_metadata, self._settings.llm_metadata),
            **appearance(piece.node),
        )

    def _propositions(self, passage: TextNode, propositions: PropositionSet) -> list[IndexNode]:
        found: defaultdict[str | None, list[str]] = defaultdict(list)
        for one in propositions.findings:
            found[None if one.proposition is None else propositions.texts[one.proposition]].append(str(one))
        propositions = _nothing_lost(passage.text, propositions)
        passage.metadata[STATUS_KEY] = propositions.status
        if propositions.reason:
            passage.metadata[REASON_KEY] = propositions.reason
        nodes = [
            self._unit(passage, "proposition", text, (sources[0][0], sources[-1][1]) if sources else None)
            for text, sources in zip(propositions.texts, align(passage.text, propositions.texts), strict=True)
        ]
        if nodes:
            _adopt(passage, nodes)
        self._link_neighbours(nodes)
        for node, told in [(passage, found.get(None)), *((node, found.get(node.text)) for node in nodes)]:
            if told:
                node.metadata[FINDINGS_KEY] = "\n".join(told)
        return nodes

    def _sentences(self, passage: TextNode, known: set[str]) -> list[IndexNode]:
        """Sentence units, but for those that are a proposition of their passage already."""
        spans = {span: passage.text[slice(*span)] for span in sentence_spans(passage.text)}
        wanted = {*passage_sentences(passage.text)} - known
        nodes = [self._unit(passage, "sentence", text, span) for span, text in spans.items() if text in wanted]
        self._link_neighbours(nodes)
        return nodes

    def _questions(
        self, passage: TextNode, questions: Sequence[str], propositions: Sequence[TextNode]
    ) -> list[IndexNode]:
        """Question units, each with what answers it."""
        questions = unique(strip_surrogates(one) for one in questions if one.strip())
        nodes = [self._unit(passage, "question", text, None) for text in questions]
        found = answers(questions, [node.text for node in propositions])
        for node, places in zip(nodes, found, strict=True):
            told = [
                [one.node_id, one.text, one.start_char_idx, one.end_char_idx, UNVERIFIED_KEY in one.metadata]
                for one in map(propositions.__getitem__, places)
            ]
            node.metadata[ANSWERS_KEY] = json.dumps(told, ensure_ascii=False)
        self._link_neighbours(nodes)
        return nodes

    def _unit(self, passage: TextNode, granularity: str, text: str, span: Span | None) -> IndexNode:
        left_out = {DOCUMENT_HASH_KEY, FINDINGS_KEY, *((STATUS_KEY, REASON_KEY) if granularity == "sentence" else ())}
        metadata = {key: value for key, value in passage.metadata.items() if key not in left_out}
        if span is None and granularity == "proposition":
            metadata[UNVERIFIED_KEY] = True
        metadata[GRANULARITY_KEY] = granularity
        start, end = passage.start_char_idx, passage.end_char_idx
        if span and start is not None:
            above = self._outline.section_at(start, start + len(passage.text))
            start, end = start + span[0], start + span[1]
            if metadata[SECTION_KEY] == above and "section" not in self._document.metadata:
                # a passage can reach into the next section, and then this unit may stand there
                section = self._outline.section_at(start, end)
                others = {key: value for key, value in metadata.items() if key != "section"}
                metadata = self._named({**others, SECTION_KEY: section}, section)
        return IndexNode(
            id_=self._node_id(granularity, text),
            text=text,
            index_id=passage.node_id,
            start_char_idx=start,
            end_char_idx=end,
            extra_info=metadata,  # as core calls it when a node is made
            relationships={NodeRelationship.SOURCE: self._source, NodeRelationship.PARENT: _info(passage)},
            excluded_embed_metadata_keys=list(passage.excluded_embed_metadata_keys),
            excluded_llm_metadata_keys=list(passage.excluded_llm_metadata_keys),
            **appearance(passage),
        )

    def _named(self, metadata: dict[str, Any], section: str) -> dict[str, Any]:
        """A node's metadata with title and section under their plain names, first, for models and filters."""
        if not self._includes_metadata:
            return metadata
        known = {"title": self._title, "section": section}
        return {**{name: value for name, value in known.items() if value}, **metadata}

    def _link_neighbours(self, siblings: Sequence[TextNode]) -> None:
        if self._links_neighbours:
            for (before, to_before), (after, to_after) in pairwise([(node, _info(node)) for node in siblings]):
                before.relationships[NodeRelationship.NEXT] = to_after
                after.relationships[NodeRelationship.PREVIOUS] = to_before


def _require_encodable(document: BaseNode) -> None:
    if not document.id_:
        raise ValueError("a document's id is empty, and no store finds its nodes by that: give it another one")
    metadata = json.dumps(document.metadata, ensure_ascii=False, skipkeys=True, default=str)
    for where, text in (("text", document.get_content()), ("id", document.id_), ("metadata", metadata)):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Document {document.id_!r} has half a character (a lone surrogate) at position {error.start} of its "
                f"{where}, which no store can keep; read its file with the right encoding or with errors='replace', "
                "or give the file a name in UTF-8"
            ) from error


def _info(node: TextNode) -> RelatedNodeInfo:
    # Without the metadata that `as_related_node_info` copies into every link, and without the hash over it, which is
    # not final while nodes are being linked.
    return RelatedNodeInfo(node_id=node.node_id, node_type=node.get_type())


def _adopt(parent: TextNode, children: Sequence[TextNode]) -> None:
    parent.relationships[NodeRelationship.CHILD] = [_info(node) for node in children]
    about = _info(parent)
    for node in children:
        node.relationships[NodeRelationship.PARENT] = about


def _nothing_lost(text: str, made: PropositionSet) -> PropositionSet:
    """The propositions of a passage: its sentences if there are none, and its tables and code blocks whole."""
    texts, status, reason = tuple(strip_surrogates(one) for one in made.texts if one.strip()), made.status, made.reason
    if not texts:
        texts, status = passage_sentences(text), "fallback"
        reason = reason or "the propositionizer returned nothing"
    blocks = (text[part.start : part.end] for part in find_regions(text) if part.kind == "block")
    missing = dict.fromkeys(block for block in blocks if block not in texts and any(map(str.isalnum, block)))
    return PropositionSet((*texts, *missing), status, reason, questions=made.questions)


def content_hash(*parts: Any) -> str:
    """Hash JSON-like values; anything that is no JSON value counts as its string."""
    data = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()


def is_made_by(document_hash: str, fingerprint: str) -> bool:
    """Whether a document with this hash has its propositions from the propositionizer with this fingerprint."""
    return piece_of(document_hash)[0].endswith(marked("", fingerprint))


def piece_of(document_hash: str) -> tuple[str, str | None]:
    """A hash without, and the id of the node that another parser made, if it is of one."""
    before, mark, rest = document_hash.partition(PIECE)
    own, _, node_id = rest.partition(" ")
    return f"{before}{mark}{own}", node_id or None


def marked(document_hash: str, fingerprint: str) -> str:
    """A document's hash that tells what its propositions are from."""
    return document_hash[:48] + content_hash(fingerprint)[:16]


class NodeIds:
    """Gives out the ids of one parser call: the same input gets the same ids, and no id twice.

    An id is a UUIDv5 of the document's key, the granularity, the text, how many-eth occurrence of that text in the
    document it is, and the propositionizer's fingerprint. The key is the document's id, or, where core made that id
    up (a random UUID), a hash of the document's text and metadata and how many-eth document with these it is.
    """

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._documents: Counter[str] = Counter()
        self._nodes: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)

    def document_key(self, document: BaseNode) -> str:
        """The key of a document, or of a node that another parser made of one; call it once for each."""
        key = document.id_ if document.source_node is None else document.source_node.node_id
        if document.source_node is None and not is_random_id(key):
            return key
        key = content_hash("" if is_random_id(key) else key, document.get_content(), lasting(document.metadata))
        self._documents[key] += 1
        return f"{key}#{self._documents[key] - 1}"

    def of_document(self, document_key: str) -> Callable[[str, str], str]:
        """What gives out the id of the document's next node, by its granularity and text."""
        seen = self._nodes[document_key]

        def node_id(granularity: str, text: str) -> str:
            seen[granularity, text] += 1
            name = (document_key, granularity, text, seen[granularity, text] - 1, self._fingerprint)
            return str(uuid.uuid5(_NAMESPACE, content_hash(*name)))

        return node_id

    def forget(self) -> None:
        """Count the texts of a document that comes next anew; which documents there were is kept."""
        self._nodes.clear()


def is_random_id(document_id: str) -> bool:
    """Whether core made an id up."""
    try:
        return uuid.UUID(document_id).version == 4
    except ValueError:
        return False


@dataclass(frozen=True)
class BasePiece:
    """A base node in the making.

    Args:
        node: What a base parser made.
        span: Where its text stands in the document's text; None where it does not stand there word for word.
        parent: The index of the piece above it in the same list, or None.
    """

    node: BaseNode
    span: Span | None
    parent: int | None


def split(document: BaseNode, parsers: Sequence[NodeParser]) -> list[BasePiece]:
    """Split a document with one parser a level, each level's pieces again with the next level's parser.

    Args:
        document: A document, or a node that another parser made of one.
        parsers: Node parsers, the coarsest first. Of one that makes a hierarchy of its own (core's
            `HierarchicalNodeParser`) its leaves are taken.

    Returns:
        The pieces level by level, in document order within a level. Blank ones are left out.

    Raises:
        ValueError: A parser cannot split the document.
    """
    pieces: list[BasePiece] = []
    level: list[int | None] = [None]
    for parser in parsers:
        begun = len(pieces)
        for index in level:
            above = None if index is None else pieces[index]
            pieces += [BasePiece(node, span, index) for node, span in _split_once(document, above, parser)]
        level = [*range(begun, len(pieces))]
    return pieces


def title_of(document: BaseNode) -> str:
    """A document's title: "title" in its metadata, else the first heading of its markup, else the file's stem."""
    if title := document.metadata.get("title"):
        return ", ".join(map(str, title)) if isinstance(title, (list, tuple)) else str(title)
    file = PurePath(str(document.metadata.get("file_name") or document.metadata.get("file_path") or ""))
    if file.suffix.lower() in _HEADED and document.source_node is None:
        text = document.get_content()
        for heading in find_headings(text)[:1]:
            return heading_text(text[heading.start : heading.end]) or file.stem
    return file.stem


def _split_once(
    document: BaseNode, above: BasePiece | None, parser: NodeParser
) -> Iterator[tuple[BaseNode, Span | None]]:
    text = (above.node if above else document).get_content()
    metadata = dict((above.node if above else document).metadata)
    source = Document(
        id_=document.id_,
        text=text,
        metadata=metadata,
        # a splitter inside of a parser that counts metadata sees none, so that borders depend on the text alone
        excluded_embed_metadata_keys=[*metadata],
        excluded_llm_metadata_keys=[*metadata],
        **appearance(document),
    )
    try:
        made = parser.get_nodes_from_documents([source]) if text.strip() else []
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{parser.class_name()} cannot split document {document.id_!r}: {error}") from error
    nodes = [node for node in made if node.get_content().strip() and not node.child_nodes]
    if not nodes and text.strip():  # core's parsers make nothing of what is no JSON, and of HTML without their tags
        nodes = [source]
    if above is not None:
        offset = above.span[0] if above.span else None
    else:  # a node of another parser may not know where it starts
        offset = getattr(document, "start_char_idx", None) if document.source_node else 0
    for node, span in zip(nodes, locate([node.get_content() for node in nodes], text), strict=True):
        yield node, None if span is None or offset is None else (span[0] + offset, span[1] + offset)


def locate(pieces: Sequence[str], text: str) -> list[Span | None]:
    """Find the spans of pieces that were cut from a text in order, with or without overlap.

    Of the places where a piece occurs, the last one that leaves no gap to the piece before it is taken (only white
    space may be lost between two pieces), so that repeated text is found where it was cut.

    Args:
        pieces: What a splitter returned, in document order.
        text: The document's text.

    Returns:
        For each piece `(start, end)` with `text[start:end] == piece`, or None where it does not stand in the text
        word for word (a parser that rewrites).
    """
    spans: list[Span | None] = []
    start = end = 0  # of the last found piece
    for piece in pieces:
        found = text.rfind(piece, start, after_space(text, end) + len(piece))
        if found < 0:  # the splitter left something out
            found = text.find(piece, start)
        if found < 0:  # the piece before was taken for a later one like it
            found = text.find(piece)
        if found >= 0 and piece:
            start, end = found, found + len(piece)
        spans.append((start, end) if found >= 0 and piece else None)
    return spans


class Outline:
    """The headings of one document.

    Args:
        text: The document's text; Markdown and wiki (`== … ==`) headings are found, outside of code and tables.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.headings = find_headings(text)
        self._starts = [heading.start for heading in self.headings]
        self._sections: list[str] = []  # that each heading opens
        path: list[Region] = []
        for heading in self.headings:
            while path and path[-1].level >= heading.level:
                path.pop()
            path.append(heading)
            self._sections.append(
                ", ".join(filter(None, (heading_text(text[above.start : above.end]) for above in path)))
            )

    def section_at(self, start: int, end: int) -> str:
        """The headings above a passage, outermost first, joined by ", ".

        A passage that begins with headings belongs under them; further headings inside it do not count.

        Args:
            start: Where the passage starts, in characters.
            end: Where it ends.
        """
        start = after_space(self._text, start)
        above = bisect_right(self._starts, min(start, end - 1))
        while above and start < min(end, self.headings[above - 1].end):
            start = after_space(self._text, self.headings[above - 1].end)
            # a passage of headings alone belongs to the section that its last heading opens
            above = bisect_right(self._starts, min(start, end - 1))
        return self._sections[above - 1] if above else ""


class WholeDocumentNodeParser(TextSplitter):
    """Keeps each document whole as one passage, for corpora whose documents are passages already."""

    @classmethod
    def class_name(cls) -> str:
        return "WholeDocumentNodeParser"

    def split_text(self, text: str) -> list[str]:
        """The text."""
        return [text]


class PassageNodeParser(SentenceSplitter):
    """LlamaIndex's `SentenceSplitter` over the sentences of this package, none of which is cut unless it is too long.

    LlamaIndex's own sentences are English: of the passages that it made of manuals of Debian, one of eight in English
    and one of three in Japanese ended within a sentence. A heading stays with the sentence below it.

    Args:
        **settings: What `SentenceSplitter` takes.
    """

    def __init__(self, **settings: Any) -> None:
        ours = {"chunk_overlap": 0, "chunking_tokenizer_fn": _sentences_under_headings, "tokenizer": tokens_of}
        super().__init__(**{**ours, **settings})

    @classmethod
    def class_name(cls) -> str:
        return "PassageNodeParser"

    def split_text_metadata_aware(self, text: str, metadata_str: str) -> list[str]:
        """The passages of a text, whatever metadata it has; core prints to stdout where chunks are small."""
        return self.split_text(text)


def _sentences_under_headings(text: str) -> list[str]:
    """All of a text, in pieces that are a sentence or block each, with the headings above it."""
    found = segment(text)
    cuts = [after.start for before, after in pairwise(found) if before.kind != "heading"]
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


class SectionNodeParser(TextSplitter):
    """Cuts documents at their Markdown or wiki headings; a section reaches to the next heading of its depth.

    Args:
        depth: The deepest heading level that opens a section of its own (1 to 6).
    """

    depth: int = Field(default=2, ge=1, le=6, description="The deepest heading level that opens a section.")

    @classmethod
    def class_name(cls) -> str:
        return "SectionNodeParser"

    def split_text(self, text: str) -> list[str]:
        """The sections of a text."""
        cuts, says_something = [0], False  # of the current section: something but headings
        for part in find_regions(text):
            if part.kind != "heading":
                says_something = True
            elif part.level <= self.depth and says_something:
                cuts.append(part.start)
                says_something = False
        sections = (text[start:end].strip() for start, end in pairwise([*cuts, len(text)]))
        return [section for section in sections if section]
