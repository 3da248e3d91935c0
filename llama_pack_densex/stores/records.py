"""What an index needs to know of every node without reading the whole node."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llama_index.core.schema import BaseNode, IndexNode, TextNode

from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY, SECTION_KEY, STATUS_KEY


@dataclass(frozen=True)
class NodeRecord:
    """A node in short.

    Args:
        id: The node's id.
        document_id: Its document's id.
        granularity: "proposition", "sentence", "passage" or "section"; empty for a node that is not of our parsers.
        passage_id: Of a unit, the passage it leads to; otherwise empty.
        text: Its text.
        status: Of a passage and of a proposition, how it came about; otherwise empty.
        section: The headings above it, outermost first, joined by ", ".
        document_hash: Of base nodes, what their document was like when it was indexed; otherwise empty.
        file: Of base nodes, the file (and page) their document was read from; empty where there is none.
        metadata: Of a passage, its metadata as JSON; otherwise empty.
    """

    id: str
    document_id: str
    granularity: str
    passage_id: str
    text: str
    status: str
    section: str
    document_hash: str
    file: str
    metadata: str = ""

    @property
    def leads_to(self) -> str:
        """The id of the passage that is read where this node was found; of a passage, its own."""
        return self.passage_id or self.id

    @classmethod
    def of(cls, node: BaseNode) -> NodeRecord:
        """The record of a node that one of our parsers made."""
        metadata = node.metadata
        granularity = str(metadata.get(GRANULARITY_KEY, ""))
        return cls(
            id=node.node_id,
            document_id=node.ref_doc_id or "",
            granularity=granularity,
            passage_id=node.index_id if isinstance(node, IndexNode) else "",
            text=node.text if isinstance(node, TextNode) else node.get_content(),
            status=str(metadata.get(STATUS_KEY, "")),
            section=str(metadata.get(SECTION_KEY, "")),
            document_hash=str(metadata.get(DOCUMENT_HASH_KEY, "")),
            file=file_of(node) if metadata.get(DOCUMENT_HASH_KEY) else "",
            metadata=_as_json(node) if granularity == "passage" else "",
        )


def _as_json(node: BaseNode) -> str:
    # what cannot be kept as JSON is refused when the node is written
    return json.dumps(node.metadata, ensure_ascii=False, default=str)


def file_of(node: BaseNode) -> str:
    """The file, and the page of it, that a document or node was read from; empty where its metadata names none."""
    path, page = node.metadata.get("file_path"), node.metadata.get("page_label")
    return f"{path}#page={page}" if path and page else str(path or "")


@dataclass(frozen=True)
class DocumentRecord:
    """A document as the index has it: the hash that tells whether it changed, and its file."""

    hash: str = ""
    file: str = ""
