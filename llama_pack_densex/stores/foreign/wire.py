"""Nodes in a form that every vector store keeps, and back. Pure.

Stores differ in what they keep: some refuse lists and dictionaries, some drop None, some keep 64-bit numbers only, some
have columns that a metadata key may collide with, and some cannot hold a NUL. So plain values
stay what and where they are, for users' own tools to filter on, and all others go into one JSON string.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from llama_index.core.schema import BaseNode, IndexNode, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.node_store import kept_as_json

WIRE_KEY = "densex_wire"
"""Metadata key of the JSON string; every row that an adapter wrote has it."""
HEAD_KEY = "densex_head"
"""Metadata key that is True on one row of each document whose rows are all there, and False on all others."""
CONTENT_KEY = "_node_content"
"""Metadata key under which core's integrations keep a node."""
LEADS_TO = (GRANULARITY_KEY, WIRE_KEY, "ref_doc_id")
"""What a search without filters has to return of a row."""

_OURS = (WIRE_KEY, HEAD_KEY)
_TAKEN = frozenset(
    "id id_ node_id doc_id document_id ref_doc_id text document embedding sparse_embedding vector metadata metadata_ "
    f"node_info relationships {CONTENT_KEY} _node_type {WIRE_KEY} {HEAD_KEY}".split()
)
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]{0,127}")  # nothing that stores' filters take for syntax
_NUL = "\0"
_EXCLUDED = ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
_EXACT = 2**53  # beyond it stores round numbers
_MOST_VALUES = 100  # in a condition that a store is asked to look at


@dataclass(frozen=True)
class Condition:
    """What a row must have under a metadata key.

    Args:
        key: The key.
        sign: How it compares with `value`.
        value: A number; for "in" the strings of which it is to be one.
    """

    key: str
    sign: Literal["in", ">=", "<="]
    value: Any


@dataclass(frozen=True)
class Row:
    """What a store keeps of a node.

    Args:
        id: The node's id.
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
    def is_head(self) -> bool:
        """Whether it tells that all rows of its document are there."""
        return self.metadata.get(HEAD_KEY) is True

    @property
    def says_enough(self) -> bool:
        """Whether it can be told what the node leads to; of rows that others wrote only where they are whole."""
        return bool(self.metadata.get(WIRE_KEY) or self.metadata.get(CONTENT_KEY))

    @property
    def node(self) -> BaseNode:
        """The whole node of a whole row."""
        return from_wire(metadata_dict_to_node(dict(self.metadata), text=self.text))

    @property
    def node_metadata(self) -> dict[str, Any]:
        """The metadata of the node of a whole row, of which the text may be missing."""
        return _metadata(json.loads(self.metadata[CONTENT_KEY]).get("metadata", {}), _more(self.metadata))

    @property
    def passage_id(self) -> str:
        """The id of the passage that the node leads to; empty where the node is none that leads to another."""
        if self.metadata.get(WIRE_KEY):
            return str(_more(self.metadata).get("passage", ""))
        return str(json.loads(self.metadata[CONTENT_KEY]).get("index_id") or "")


def to_wire(node: BaseNode, *, head: bool = False, taken: frozenset[str] = frozenset()) -> BaseNode:
    """The node in a form that every store keeps; of the same class, and with its text, so that others can read it.

    Args:
        node: Any node; it is not changed.
        head: Whether its row is to tell that its document is whole.
        taken: Further metadata keys that the store uses itself.

    Raises:
        ValueError: An id holds a NUL, or the metadata is not JSON.
    """
    if _NUL in "".join([node.node_id, node.ref_doc_id or "", getattr(node, "index_id", "")]):
        raise ValueError(f"an id in document {node.ref_doc_id!r} holds a NUL: give it another")
    plain = {k: v for k, v in node.metadata.items() if k not in taken and _is_plain(k, v)}
    more: dict[str, Any] = {}
    if len(plain) < len(node.metadata):
        more["keys"] = list(node.metadata)
        more["values"] = {k: v for k, v in node.metadata.items() if k not in plain}
        # a number that stores cannot hold stands in its place as the nearest one, so that their filters find it
        plain |= {k: _nearest(v) for k, v in more["values"].items() if _is_number(v) and k not in taken and _is_free(k)}
    if isinstance(node, IndexNode):
        more["passage"] = node.index_id
    changes: dict[str, Any] = {name: [*getattr(node, name), *_OURS] for name in _EXCLUDED}
    text = node.text if isinstance(node, TextNode) else node.get_content()
    if _NUL in text:
        more["text"] = text
        changes["text"] = text.replace(_NUL, "\ufffd")
    changes["metadata"] = {**plain, WIRE_KEY: kept_as_json(more, node.ref_doc_id), HEAD_KEY: head}
    return node.model_copy(update=changes)


def from_wire(node: BaseNode) -> BaseNode:
    """The node that `to_wire` was given, without its embedding; a node that others wrote is returned as it is."""
    changes: dict[str, Any] = {"embedding": None}
    if isinstance(node.metadata.get(WIRE_KEY), str):
        more = _more(node.metadata)
        changes["metadata"] = _metadata(node.metadata, more)
        for name in _EXCLUDED:
            changes[name] = [key for key in getattr(node, name) if key not in _OURS]
        if "text" in more:
            changes["text"] = more["text"]
    return node.model_copy(update=changes)


def row_of(wire: BaseNode) -> Row:
    """The whole row of a node that an integration made of a row."""
    text = wire.text if isinstance(wire, TextNode) else wire.get_content()
    return Row(wire.node_id, node_to_metadata_dict(wire, remove_text=True), text)


def conditions_of(filters: MetadataFilters | None, taken: frozenset[str] = frozenset()) -> list[Condition]:
    """What rows that pass filters have in any case, as far as a store can look at it; they may have to pass more.

    Args:
        filters: The user's filters.
        taken: Metadata keys that the store uses itself.
    """
    if filters is None or filters.condition not in (None, FilterCondition.AND):
        return []
    found: list[Condition] = []
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            found += conditions_of(part, taken)
        elif part.key not in taken and _is_free(part.key):
            listed = part.operator == FilterOperator.IN and isinstance(part.value, list)  # in a string is what it holds
            values: list[Any] = part.value if listed else [part.value]  # type: ignore[assignment]
            equal = listed or part.operator == FilterOperator.EQ
            if equal and len(values) <= _MOST_VALUES and all(map(_is_plain_text, values)):
                found.append(Condition(part.key, "in", values))
            elif all(_is_number(one) and one not in (0, 1) and abs(one) <= _EXACT for one in values):
                if equal or part.operator in (FilterOperator.GT, FilterOperator.GTE):
                    found.append(Condition(part.key, ">=", min(values)))
                if equal or part.operator in (FilterOperator.LT, FilterOperator.LTE):
                    found.append(Condition(part.key, "<=", max(values)))
    return [condition for condition in found if condition.value]


def _is_plain(key: str, value: object) -> bool:
    exact = type(value) is bool or (_is_number(value) and _nearest(value) == value)
    return _is_free(key) and (exact or _is_plain_text(value))


def _is_plain_text(value: object) -> bool:
    return type(value) is str and _NUL not in value


def _is_free(key: str) -> bool:
    return key not in _TAKEN and _PLAIN_KEY.fullmatch(key) is not None


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float) and value == value  # not NaN


def _nearest(value: int | float) -> int | float:
    """The number itself, or the nearest one that stores keep."""
    least, most = (-sys.float_info.max, sys.float_info.max) if isinstance(value, float) else (-(2**63), 2**63 - 1)
    return min(max(value, least), most)


def _metadata(plain: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    there = {**plain, **more.get("values", {})}
    return {key: there[key] for key in more.get("keys", there) if key not in _OURS}


def _more(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(metadata.get(WIRE_KEY) or "{}"))
