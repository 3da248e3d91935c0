"""From documents to base nodes: what a base parser returns, with spans, parents and sections worked out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.interface import MetadataAwareTextSplitter
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document

from llama_pack_densex.node_parsers.metadata import FILE_KEYS
from llama_pack_densex.node_parsers.spans import Span, locate

logger = logging.getLogger(__name__)

_MIN_TOKENS = 50  # core prints a warning to stdout where metadata leaves a chunk less than this


@dataclass
class BasePiece:
    """A base node in the making.

    Args:
        node: What a base parser made.
        span: Where its text stands in the document's text; None where it does not stand there word for word.
        parent: The index of the piece above it in the same list, or None.
    """

    node: BaseNode
    span: Span | None
    parent: int | None = None


def split(document: BaseNode, parsers: Sequence[NodeParser]) -> list[BasePiece]:
    """Split a document with one parser a level, each level's pieces again with the next level's parser.

    Args:
        document: A document, or a node that another parser made of one.
        parsers: Node parsers, the coarsest first. A parser that makes a hierarchy of its own (core's
            `HierarchicalNodeParser`) keeps it.

    Returns:
        The pieces level by level, in document order within a level. Blank ones are left out.

    Raises:
        ValueError: A parser cannot split the document.
    """
    pieces: list[BasePiece] = []
    level: list[int | None] = [None]
    for parser in parsers:
        below: list[int | None] = []
        for index in level:
            offset = len(pieces)
            for piece in _split_once(document, None if index is None else pieces[index], parser):
                piece.parent = index if piece.parent is None else offset + piece.parent
                pieces.append(piece)
            parents = {piece.parent for piece in pieces[offset:]}
            below += [i for i in range(offset, len(pieces)) if i not in parents]
        level = below
    return pieces


def title_of(document: BaseNode) -> str:
    """A document's title: "title" in its metadata, else its file's stem, else nothing."""
    if document.metadata.get("title"):
        return str(document.metadata["title"])
    file = document.metadata.get("file_name") or document.metadata.get("file_path")
    return PurePath(str(file)).stem if file else ""


def _split_once(document: BaseNode, above: BasePiece | None, parser: NodeParser) -> list[BasePiece]:
    text = (above.node if above else document).get_content()
    source = Document(
        id_=document.id_,
        text=text,
        metadata=dict((above.node if above else document).metadata),
        excluded_embed_metadata_keys=[*document.excluded_embed_metadata_keys, *FILE_KEYS],
        excluded_llm_metadata_keys=[*document.excluded_llm_metadata_keys, *FILE_KEYS],
        metadata_template=document.metadata_template,
        metadata_separator=document.metadata_separator,
    )
    try:
        nodes = [node for node in _run(parser, source) if node.get_content().strip()]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{parser.class_name()} cannot split document {document.id_!r}: {error}") from error
    index_of = {node.node_id: i for i, node in enumerate(nodes)}
    parents = [index_of.get(node.parent_node.node_id) if node.parent_node else None for node in nodes]
    spans = _spans(nodes, parents, text, _offset(document, above))
    return [BasePiece(*piece) for piece in zip(nodes, spans, parents, strict=True)]


def _run(parser: NodeParser, source: Document) -> list[BaseNode]:
    if not isinstance(parser, MetadataAwareTextSplitter):
        return parser.get_nodes_from_documents([source])
    tokens = _metadata_tokens(parser, source)
    chunk_size = getattr(parser, "chunk_size", None)
    if chunk_size is None or chunk_size - tokens >= _MIN_TOKENS:
        return parser.get_nodes_from_documents([source])
    if tokens:
        logger.warning(
            "The metadata of document %r takes %d of the %d tokens of a chunk, so it was not counted when the document "
            "was split. Exclude long metadata from embedding and LLM (Document.excluded_embed_metadata_keys and "
            "excluded_llm_metadata_keys), or use a larger chunk_size.",
            source.id_, tokens, chunk_size,
        )  # fmt: skip
    nodes = build_nodes_from_splits(parser.split_text(source.text), source, id_func=parser.id_func)
    return parser._postprocess_parsed_nodes(list(nodes), {source.id_: source})


def _metadata_tokens(parser: MetadataAwareTextSplitter, source: Document) -> int:
    tokenizer = getattr(parser, "_tokenizer", None)
    return len(tokenizer(parser._get_metadata_str(source))) if tokenizer else 0


def _offset(document: BaseNode, above: BasePiece | None) -> int | None:
    """Where the text that is split starts in the document, or None where that is not known."""
    if above is not None:
        return above.span[0] if above.span else None
    if document.source_node is None:
        return 0
    start = getattr(document, "start_char_idx", None)  # a node of another parser
    return start if isinstance(start, int) else None


def _spans(
    nodes: Sequence[BaseNode], parents: Sequence[int | None], text: str, offset: int | None
) -> list[Span | None]:
    """Locate the nodes, one level of the parser's own hierarchy at a time: within a level they stand in order."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent is None or parent >= len(depths) else depths[parent] + 1)
    spans: list[Span | None] = [None] * len(nodes)
    if offset is None:
        return spans
    for depth in set(depths):
        members = [i for i in range(len(nodes)) if depths[i] == depth]
        for i, span in zip(members, locate([nodes[m].get_content() for m in members], text), strict=True):
            spans[i] = (span[0] + offset, span[1] + offset) if span else None
    return spans
