"""Stable node ids and document hashes."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter, defaultdict
from typing import Any

from llama_index.core.schema import BaseNode

from llama_pack_densex.node_parsers.metadata import lasting

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex")


def content_hash(*parts: Any) -> str:
    """Hash JSON-like values; anything that is no JSON value counts as its string."""
    data = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()


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
        parts = ["" if is_random_id(key) else key, document.get_content(), lasting(document.metadata)]
        key = content_hash(*parts)
        self._documents[key] += 1
        return f"{key}#{self._documents[key] - 1}"

    def node_id(self, document_key: str, granularity: str, text: str) -> str:
        """The id of the document's next node with this granularity and text."""
        seen = self._nodes[document_key]
        occurrence = seen[granularity, text]
        seen[granularity, text] += 1
        name = (document_key, granularity, text, occurrence, self._fingerprint)
        return str(uuid.uuid5(_NAMESPACE, content_hash(*name)))

    def forget(self) -> None:
        """Let go of the texts seen so far: what comes next is counted anew, and which documents there were is kept."""
        self._nodes.clear()


def is_random_id(document_id: str) -> bool:
    try:
        return uuid.UUID(document_id).version == 4
    except ValueError:
        return False
