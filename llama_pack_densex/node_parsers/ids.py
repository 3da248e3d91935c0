"""Ids of nodes and hashes of documents, which stay the same as long as what they stand for does."""

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
"""Before the hash and the id of a node that another parser made: of one document there are several."""


def content_hash(*parts: Any) -> str:
    """Hash JSON-like values; anything that is no JSON value counts as its string."""
    data = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()


def is_made_by(document_hash: str, fingerprint: str) -> bool:
    """Whether a document with this hash has its propositions from the propositionizer with this
    fingerprint."""
    own_hash, _, _ = document_hash.rpartition(PIECE)[2].partition(" ")
    return own_hash.endswith(marked("", fingerprint))


def marked(document_hash: str, fingerprint: str) -> str:
    """A document's hash that tells what its propositions are from."""
    return document_hash[:48] + content_hash(fingerprint)[:16]


class NodeIds:
    """Gives out the ids of one parser call: the same input gets the same ids, and no id twice.

    An id is a UUIDv5 of the document's key, the granularity, the text, how many-eth occurrence of that text
    in the document it is, and the propositionizer's fingerprint. The key is the document's id, or, where core
    made that id up (a random UUID), a hash of the document's text and metadata and how many-eth document with
    these it is.
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
        key = content_hash(
            "" if is_random_id(key) else key,
            document.get_content(),
            lasting(document.metadata),
        )
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


def named(document: BaseNode) -> str:
    """A document by its id, for a message; of a random id, which tells nobody anything, with its file."""
    file = document.metadata.get("file_path")
    is_unknown = file and is_random_id(document.id_)
    return f"{document.id_!r} ({file!r})" if is_unknown else repr(document.id_)
