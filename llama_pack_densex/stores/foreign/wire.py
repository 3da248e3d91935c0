"""Nodes in a form that every vector store keeps, and back. Pure.

Stores differ in what they keep: some refuse lists and dictionaries, some drop None, some keep 64-bit numbers only, some
have columns that a metadata key may collide with, and some cannot hold a NUL or half a surrogate pair. So plain values
stay what and where they are, for users' own tools to filter on, and all others go into one JSON string.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from pydantic_core import PydanticSerializationError

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY

WIRE_KEY = "densex_wire"
"""Metadata key of the JSON string; every row that an adapter wrote has it."""
HEAD_KEY = "densex_head"
"""Metadata key that is True on one row of each document whose rows are all there, and False on all others."""

_CONTENT_KEY, _TYPE_KEY = "_node_content", "_node_type"  # what core's integrations keep a node under
_OURS = (WIRE_KEY, HEAD_KEY)
_TAKEN = frozenset(
    "id id_ node_id doc_id document_id ref_doc_id text document embedding sparse_embedding vector metadata metadata_ "
    f"node_info relationships {_CONTENT_KEY} {_TYPE_KEY} {WIRE_KEY} {HEAD_KEY}".split()
)
_PLAIN_KEY = re.compile(
    r"[^\W\d][\w-]{0,127}"
)  # no dots, quotes or dollar signs, which stores' filters take for syntax
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_LINKS = ("relationships", "excluded_embed_metadata_keys", "excluded_llm_metadata_keys")


@dataclass(frozen=True)
class Row:
    """What a store keeps of a node.

    Args:
        id: The store's id of it.
        metadata: What `node_to_metadata_dict` of LlamaIndex's core made of the node, or the part that was asked for.
        text: Its text, where that was asked for and is not in the metadata.
    """

    id: str
    metadata: Mapping[str, Any]
    text: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether one of our parsers made the node."""
        return bool(self.metadata.get(GRANULARITY_KEY))

    @property
    def says_enough(self) -> bool:
        """Whether it can be told what the node leads to; of rows that others wrote only where they are whole."""
        return bool(self.metadata.get(WIRE_KEY) or self.metadata.get(_CONTENT_KEY))


def to_wire(node: BaseNode, *, head: bool = False, store_id: str = "", taken: frozenset[str] = frozenset()) -> BaseNode:
    """The node in a form that every store keeps; of the same class, and with its text, so that others can read it.

    Args:
        node: Any node; it is not changed.
        head: Whether its row is to tell that its document is whole.
        store_id: The id that the store takes in place of the node's own.
        taken: Further metadata keys that the store uses itself.

    Raises:
        ValueError: An id holds a NUL or half a surrogate pair, or the metadata is not JSON.
    """
    _check_ids(node)
    plain = {k: v for k, v in node.metadata.items() if k not in taken and _is_plain(k, v)}
    more: dict[str, Any] = {}
    if len(plain) < len(node.metadata):
        more["keys"] = list(node.metadata)
        more["values"] = {k: v for k, v in node.metadata.items() if k not in plain}
    if isinstance(node, IndexNode):
        more["passage"] = node.index_id
    if store_id:
        more["id"] = node.node_id
    changes: dict[str, Any] = {
        "id_": store_id or node.node_id,
        "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, *_OURS],
        "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, *_OURS],
    }
    text = node.text if isinstance(node, TextNode) else node.get_content()
    if _REFUSED.search(text):
        more["text"] = text
        changes["text"] = _REFUSED.sub("\ufffd", text)
    bare = node.model_copy(update={**changes, "metadata": {}, "embedding": None})
    try:
        bare.model_dump_json()
    except PydanticSerializationError:  # half a surrogate pair in what the links or the excluded keys say
        more["links"] = {name: value for name, value in node.model_dump(mode="json").items() if name in _LINKS}
        changes |= {
            "relationships": _bare_links(node),
            "excluded_embed_metadata_keys": list(_OURS),
            "excluded_llm_metadata_keys": list(_OURS),
        }
    changes["metadata"] = {**plain, WIRE_KEY: _to_json(more, node), HEAD_KEY: head}
    return node.model_copy(update=changes)


def from_wire(node: BaseNode) -> BaseNode:
    """The node that `to_wire` was given, without its embedding; a node that others wrote is returned as it is."""
    wire = node.metadata.get(WIRE_KEY)
    changes: dict[str, Any] = {"embedding": None}
    if isinstance(wire, str):
        more = json.loads(wire)
        changes["metadata"] = _metadata(node.metadata, more)
        for name in _LINKS[1:]:
            changes[name] = [key for key in getattr(node, name) if key not in _OURS]
        if "id" in more:
            changes["id_"] = more["id"]
        if "text" in more:
            changes["text"] = more["text"]
        if "links" in more:
            read = type(node).model_validate({**node.model_dump(exclude=set(_LINKS)), **more["links"]})
            changes |= {name: getattr(read, name) for name in _LINKS}
    return node.model_copy(update=changes)


def node_of(row: Row) -> BaseNode:
    """The whole node of a whole row."""
    return from_wire(metadata_dict_to_node(dict(row.metadata), text=row.text))


def row_of(wire: BaseNode) -> Row:
    """The whole row of a node that an integration made of a row."""
    text = wire.text if isinstance(wire, TextNode) else wire.get_content()
    return Row(wire.node_id, node_to_metadata_dict(wire, remove_text=True), text)


def metadata_of(row: Row) -> dict[str, Any]:
    """The metadata of the node of a whole row; its text may be missing."""
    return _metadata(json.loads(row.metadata[_CONTENT_KEY]).get("metadata", {}), _more(row))


def node_id_of(row: Row) -> str:
    """The id of a row's node."""
    return str(_more(row).get("id", row.id))


def passage_id_of(row: Row) -> str:
    """The id of the passage that a row's node leads to; empty where the node is none that leads to another."""
    if row.metadata.get(WIRE_KEY):
        return str(_more(row).get("passage", ""))
    return str(json.loads(row.metadata[_CONTENT_KEY]).get("index_id") or "")


def is_plain_condition(key: str, value: object, taken: frozenset[str] = frozenset()) -> bool:
    """Whether all nodes with this string under this metadata key have it in the store under the same key."""
    return isinstance(value, str) and key not in taken and _is_plain(key, value)


def _is_plain(key: str, value: object) -> bool:
    if key in _TAKEN or not _PLAIN_KEY.fullmatch(key):
        return False
    kind = type(value)
    if kind is str:
        return not _REFUSED.search(str(value))
    if kind is int:
        return -(2**63) <= value < 2**63  # type: ignore[operator]
    return kind is bool or (kind is float and math.isfinite(value))  # type: ignore[arg-type]


def _metadata(plain: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    if "keys" not in more:
        return {key: value for key, value in plain.items() if key not in _OURS}
    kept = more["values"]
    return {key: kept[key] if key in kept else plain[key] for key in more["keys"]}


def _more(row: Row) -> dict[str, Any]:
    wire = row.metadata.get(WIRE_KEY)
    return dict(json.loads(wire)) if wire else {}


def _to_json(more: dict[str, Any], node: BaseNode) -> str:
    try:
        text = json.dumps(more, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metadata of document {node.ref_doc_id!r} cannot be kept as JSON ({error}); use strings, numbers, "
            "booleans, lists and dictionaries"
        ) from error
    return json.dumps(more) if _REFUSED.search(text) else text


def _check_ids(node: BaseNode) -> None:
    links = node.relationships.values()
    ids = [node.node_id, *(one.node_id for link in links for one in (link if isinstance(link, list) else [link]))]
    if isinstance(node, IndexNode):
        ids.append(node.index_id)
    if any(map(_REFUSED.search, ids)):
        raise ValueError(
            f"an id of document {node.ref_doc_id!r}, or of one of its nodes, holds a NUL or half a surrogate pair, "
            "which vector stores cannot keep; give the document another id"
        )


def _bare_links(node: BaseNode) -> dict[NodeRelationship, Any]:
    def bare(link: RelatedNodeInfo) -> RelatedNodeInfo:
        return RelatedNodeInfo(node_id=link.node_id, node_type=link.node_type)

    return {
        kind: [bare(one) for one in link] if isinstance(link, list) else bare(link)
        for kind, link in node.relationships.items()
    }
