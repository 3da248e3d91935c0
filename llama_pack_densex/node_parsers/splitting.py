"""Splitting documents into base pieces: sections and passages with their spans in the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from llama_index.core.bridge.pydantic import Field
from llama_index.core.node_parser import NodeParser, TextSplitter
from llama_index.core.schema import BaseNode, Document

from llama_pack_densex.node_parsers.ids import named
from llama_pack_densex.node_parsers.metadata import appearance
from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.plain import heading_text
from llama_pack_densex.text.sentences import Span, after_space

# suffixes of the formats in which the first heading of a file is its title
HEADED = (".md", ".markdown", ".rst", ".adoc", ".asciidoc", ".html", ".htm", ".xhtml")


@dataclass(frozen=True)
class BasePiece:
    """A section or passage of a document, before it becomes a base node.

    Args:
        node: The node that a base parser made.
        span: The place of its text in the document's text; None if it does not occur there verbatim.
        parent: The index of the piece above it in the same list, or None.
    """

    node: BaseNode
    span: Span | None
    parent: int | None


def split(document: BaseNode, parsers: Sequence[NodeParser]) -> list[BasePiece]:
    """Split a document with one parser per level; each splits the pieces of the level above.

    Args:
        document: A document, or a node that another parser made of one.
        parsers: Node parsers, the coarsest first. If one makes a hierarchy of its own (as LlamaIndex's
            `HierarchicalNodeParser`), only its leaves are used.

    Returns:
        The pieces level by level, in document order within a level. Blank ones are left out.

    Raises:
        ValueError: A parser cannot split the document.
    """
    # a node of another parser may lack its start in the document
    start = 0 if document.source_node is None else getattr(document, "start_char_idx", None)
    span = None if start is None else (start, start + len(document.get_content()))
    root = BasePiece(document, span, None)
    pieces: list[BasePiece] = []
    level: list[tuple[int | None, BasePiece]] = [(None, root)]
    for parser in parsers:
        first = len(pieces)
        for number, above in level:
            for node, place in _split_once(document, above, parser):
                pieces.append(BasePiece(node, place, number))
        level = list(enumerate(pieces[first:], first))
    return pieces


def title_of(document: BaseNode) -> str:
    """Return a document's title: "title" in its metadata, else its first heading if it is a file with markup,
    else the file's stem.
    """
    metadata = document.metadata
    title = metadata.get("title")
    if title:
        parts = title if isinstance(title, (list, tuple)) else [title]
        return ", ".join(map(str, parts))
    file = PurePath(str(metadata.get("file_name") or metadata.get("file_path") or ""))
    if file.suffix.lower() in HEADED and not document.source_node:
        text = document.get_content()
        for block in find_blocks(text):
            if block.kind == "heading":
                return heading_text(block.text_in(text)) or file.stem
    return file.stem


def _split_once(
    document: BaseNode, above: BasePiece, parser: NodeParser
) -> list[tuple[BaseNode, Span | None]]:
    """Split a piece with one parser, and return the nodes with their spans in the document."""
    text = above.node.get_content()
    if not text.strip():
        return []
    metadata = dict(above.node.metadata)
    source = Document(
        id_=document.id_,
        text=text,
        metadata=metadata,
        # a splitter that counts the metadata's tokens sees none, so that cuts depend on the text alone
        excluded_embed_metadata_keys=[*metadata],
        excluded_llm_metadata_keys=[*metadata],
        **appearance(document),
    )
    try:
        nodes = parser.get_nodes_from_documents([source])
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{parser.class_name()} cannot split document {named(document)}: {error}"
        ) from error
    nodes = [node for node in nodes if node.get_content().strip() and not node.child_nodes]
    # LlamaIndex's parsers return nothing for invalid JSON, and for HTML without the tags that they read
    nodes = nodes or [source]
    spans = locate([node.get_content() for node in nodes], text)
    return [(node, _shifted(span, above.span)) for node, span in zip(nodes, spans, strict=True)]


def _shifted(span: Span | None, above: Span | None) -> Span | None:
    """Convert a span in a piece to one in the document; None if either is unknown."""
    if not span or not above:
        return None
    return span[0] + above[0], span[1] + above[0]


def locate(pieces: Sequence[str], text: str) -> list[Span | None]:
    """Find the spans of pieces that were cut from a text in order, with or without overlap.

    If a piece occurs several times, its place is the last occurrence that leaves no gap after the previous
    piece (only white space may be lost between two pieces), so that repeated text is found where it was cut.

    Args:
        pieces: The pieces that a splitter returned, in document order.
        text: The document's text.

    Returns:
        For each piece `(start, end)` with `text[start:end] == piece`, or None if it does not occur verbatim
        in the text (as with a parser that rewrites).
    """
    spans: list[Span | None] = []
    # of the previous piece that was found
    start = 0
    end = 0
    for piece in pieces:
        place = text.rfind(piece, start, after_space(text, end) + len(piece))
        if place < 0:  # the splitter left something out
            place = text.find(piece, start)
        if place < 0:  # the previous piece was found too late, at another occurrence
            place = text.find(piece)
        if place < 0 or not piece:
            spans.append(None)
            continue
        start = place
        end = place + len(piece)
        spans.append((start, end))
    return spans


class WholeDocumentNodeParser(TextSplitter):
    """Keeps each document whole as one passage, for corpora whose documents are passages already."""

    @classmethod
    def class_name(cls) -> str:
        return "WholeDocumentNodeParser"

    def split_text(self, text: str) -> list[str]:
        """Return the whole text as one passage."""
        return [text]


class SectionNodeParser(TextSplitter):
    """Cuts documents at their Markdown or wiki headings, down to a depth.

    A section that holds nothing but headings is joined with the next one.

    Args:
        depth: The deepest heading level that opens a section of its own (1 to 6).
    """

    depth: int = Field(
        default=2, ge=1, le=6, description="The deepest heading level that opens a section."
    )

    @classmethod
    def class_name(cls) -> str:
        return "SectionNodeParser"

    def split_text(self, text: str) -> list[str]:
        """Split a text into its sections."""
        cuts = [0]
        says_something = False  # whether the current section has more than headings
        for block in find_blocks(text):
            if block.kind != "heading":
                says_something = True
            elif block.level <= self.depth and says_something:
                cuts.append(block.start)
                says_something = False
        sections = (text[start:end].strip() for start, end in pairwise([*cuts, len(text)]))
        return [section for section in sections if section]
