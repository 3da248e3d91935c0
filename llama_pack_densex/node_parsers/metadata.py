"""Metadata keys that the node parsers and retrievers write, and which keys no model gets to see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llama_index.core.schema import BaseNode

Granularity = Literal["proposition", "sentence", "passage", "section"]

GRANULARITY_KEY = "densex_granularity"
"""What a node is: "proposition", "sentence", "passage" or "section"."""
STATUS_KEY = "densex_status"
"""How a passage's propositions came about: "ok", "repaired" or "fallback"; on the passage and on its propositions."""
REASON_KEY = "densex_reason"
"""Why the status is not "ok"."""
TITLE_KEY = "densex_title"
"""The title of the passage's document."""
SECTION_KEY = "densex_section"
"""The headings above a passage, outermost first, joined by ", "."""
DOCUMENT_HASH_KEY = "densex_document_hash"
"""Of base nodes: a hash of what decides their document's nodes; it tells changed documents from unchanged ones."""
DOCUMENT_ID_KEY = "densex_document_id"
"""The id of a node's document; core's ingestion cache tells nodes apart by text and metadata alone."""
MATCHED_KEY = "densex_matched"
"""Of retrieved nodes: the units that found them, best first (see `MatchedUnit`)."""

BOOKKEEPING_KEYS = (
    GRANULARITY_KEY, STATUS_KEY, REASON_KEY, TITLE_KEY, SECTION_KEY, DOCUMENT_ID_KEY,
    DOCUMENT_HASH_KEY, MATCHED_KEY,
)  # fmt: skip

VOLATILE_FILE_KEYS = ("creation_date", "last_modified_date", "last_accessed_date")
"""A file's dates, as `SimpleDirectoryReader` writes them: a `touch` changes them and nothing else."""

# SimpleDirectoryReader hides all of these but file_path. A path says where a folder lies, not what a text says, and a
# splitter that counts it cuts the same file differently in two folders.
FILE_KEYS = ("file_path", "file_name", "file_type", "file_size", *VOLATILE_FILE_KEYS)


def hide(node: BaseNode, keys: Iterable[str]) -> None:
    """Exclude metadata keys from what the embedding model and the LLM see of a node."""
    node.excluded_embed_metadata_keys = list(dict.fromkeys([*node.excluded_embed_metadata_keys, *keys]))
    node.excluded_llm_metadata_keys = list(dict.fromkeys([*node.excluded_llm_metadata_keys, *keys]))


def lasting(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a document's metadata that is its user's: not a file's dates, not ours."""
    return {k: v for k, v in metadata.items() if k not in VOLATILE_FILE_KEYS and k not in BOOKKEEPING_KEYS}
