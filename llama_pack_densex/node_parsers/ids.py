"""Stable ids of nodes and hashes of documents: the same content always gets the same ones."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from llama_index.core.schema import BaseNode

from llama_pack_densex.node_parsers.metadata import lasting

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex")
PIECE = "piece: "
"""The prefix of the hash of a node that another parser made; the node's id follows the hash, since one
document has several such nodes."""


def content_hash(*parts: Any) -> str:
    """Hash JSON-like values; any other value is hashed as its string."""
    data = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()


def is_made_by(document_hash: str, fingerprint: str) -> bool:
    """Return whether the hash belongs to a document parsed with the propositionizer of this fingerprint."""
    own_hash, _, _ = document_hash.rpartition(PIECE)[2].partition(" ")
    return own_hash.endswith(marked("", fingerprint))


def marked(document_hash: str, fingerprint: str) -> str:
    """Return a document's hash whose end identifies the propositionizer by its fingerprint."""
    return document_hash[:48] + content_hash(fingerprint)[:16]


class NodeIds:
    """Assigns the node ids of one parser call: the same input gets the same ids, and no id is assigned twice.

    An id is a UUIDv5 of the document's key, the granularity, the text, the number of earlier occurrences of
    that text in the document, and the propositionizer's fingerprint. The key is the document's id. If
    LlamaIndex made that up (a random UUID), the key is a hash of the document's text and metadata, with the
    number of earlier documents that have the same.
    """

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._documents: Counter[str] = Counter()
        self._nodes: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)

    def document_key(self, document: BaseNode) -> str:
        """Return the key of a document, or of another parser's node; call it once for each."""
        source = document.source_node
        key = source.node_id if source else document.id_
        if is_random_id(key):
            key = ""
        elif not source:
            return key
        key = content_hash(key, document.get_content(), lasting(document.metadata))
        self._documents[key] += 1
        return f"{key}#{self._documents[key] - 1}"

    def of_document(self, document_key: str) -> Callable[[str, str], str]:
        """Return a function that assigns the id of the document's next node, by its granularity and text."""
        seen = self._nodes[document_key]

        def node_id(granularity: str, text: str) -> str:
            seen[granularity, text] += 1
            number = seen[granularity, text] - 1
            name = content_hash(document_key, granularity, text, number, self._fingerprint)
            return str(uuid.uuid5(_NAMESPACE, name))

        return node_id

    def forget(self) -> None:
        """Forget the texts counted so far, before the next document; earlier documents are remembered."""
        self._nodes.clear()


def is_random_id(document_id: str) -> bool:
    """Return whether an id is a random UUID, as LlamaIndex makes them up."""
    try:
        return uuid.UUID(document_id).version == 4
    except ValueError:
        return False


def named(document: BaseNode) -> str:
    """Return a document's id for a message; a random id is meaningless, so the file is added to it."""
    name = repr(document.id_)
    file = document.metadata.get("file_path")
    if file and is_random_id(document.id_):
        name += f" ({file!r})"
    return name
