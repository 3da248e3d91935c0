"""Nodes in a form that every vector store keeps, and back. Pure.

Stores differ in what they keep: some refuse lists and dictionaries, some drop None, some keep 64-bit numbers
only, some have columns that a metadata key may collide with, and some cannot hold a NUL. So all metadata are
in one JSON string, and plain values also where they were, for stores and users' own tools to filter on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from llama_pack_densex.index.node_store import kept_as_json
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY

WIRE_KEY = "densex_wire"
"""Metadata key of the JSON string; every row that an adapter wrote has it."""
HEAD_KEY = "densex_head"
"""Metadata key that is True on one row of each document whose rows are all there, and False on all others."""
CONTENT_KEY = "_node_content"
"""Metadata key under which core's integrations keep a node."""
HIT_KEYS = (GRANULARITY_KEY, WIRE_KEY, CONTENT_KEY)
"""What a search has to return of a row's metadata."""

_OURS = (WIRE_KEY, HEAD_KEY)
_EXCLUDED = ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
_TAKEN = frozenset(
    "id id_ node_id doc_id document_id ref_doc_id text document embedding sparse_embedding vector metadata "
    f"metadata_ node_info relationships {CONTENT_KEY} _node_type {WIRE_KEY} {HEAD_KEY}".split()
)
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]{0,127}")  # nothing that stores' filters take for syntax
_NUL = "\0"
_EXACT = 2**53  # beyond it stores round numbers
_MOST_VALUES = 100  # in a condition that a store is asked to look at
_LIMITS: dict[FilterOperator, Sequence[Callable[[list[Any]], Any]]] = {
    FilterOperator.EQ: (min, max),
    FilterOperator.IN: (min, max),
    FilterOperator.GT: (min,),
    FilterOperator.GTE: (min,),
    FilterOperator.LT: (max,),
    FilterOperator.LTE: (max,),
}


@dataclass(frozen=True)
class Condition:
    """What a row must have under a metadata key.

    Args:
        key: The key, of letters, digits, "_" and "-".
        sign: How it compares with `value`.
        value: A number; for "in" the strings of which it is to be one.
    """

    key: str
    sign: Literal["in", ">=", "<="]
    value: Any


Conditions = Sequence[Condition]


@dataclass(frozen=True)
class Row:
    """What a store keeps of a node.

    Args:
        id: The node's id.
        metadata: What `node_to_metadata_dict` of LlamaIndex's core made of the node; of a hit at least
            `HIT_KEYS`.
        text: Its text, where that was asked for and is not in the metadata.
    """

    id: str
    metadata: Mapping[str, Any]
    text: str | None = None

    @classmethod
    def of(cls, wire: BaseNode) -> Row:
        """The whole row of a node that an integration made of a row."""
        return cls(wire.node_id, node_to_metadata_dict(wire, remove_text=True), wire.get_content())

    @property
    def is_ours(self) -> bool:
        """Whether one of our parsers made the node."""
        return bool(self.granularity)

    @property
    def granularity(self) -> str:
        """The node's granularity; empty where none of our parsers made it."""
        return str(self.metadata.get(GRANULARITY_KEY) or "")

    @property
    def is_head(self) -> bool:
        """Whether it tells that all rows of its document are there."""
        return self.metadata.get(HEAD_KEY) is True

    @property
    def node(self) -> BaseNode:
        """The whole node of a whole row."""
        return from_wire(metadata_dict_to_node(dict(self.metadata), text=self.text))

    @property
    def node_metadata(self) -> dict[str, Any]:
        """The metadata of the node."""
        return dict(self._own["metadata"])

    @property
    def passage_id(self) -> str:
        """The id of the passage that the node leads to; empty where the node is none that leads to
        another."""
        return str(self._own.get("index_id") or "")

    @property
    def _own(self) -> dict[str, Any]:
        return dict(json.loads(self.metadata.get(WIRE_KEY) or self.metadata[CONTENT_KEY]))


StoredRows = Iterable[Row]


def to_wire(node: BaseNode, *, head: bool = False, taken: frozenset[str] = frozenset()) -> BaseNode:
    """The node in a form that every store keeps; of the same class, and with its text, so that others can
    read it.

    Args:
        node: Any node; it is not changed.
        head: Whether its row is to tell that its document is whole.
        taken: Further metadata keys that the store uses itself.

    Raises:
        ValueError: An id holds a NUL, or the metadata is not JSON.
    """
    own: dict[str, Any] = {"metadata": node.metadata}
    if isinstance(node, IndexNode):
        own["index_id"] = node.index_id
    if _NUL in f"{node.node_id}{node.ref_doc_id}{own.get('index_id')}":
        raise ValueError(f"an id in document {node.ref_doc_id!r} holds a NUL: give it another")
    changes: dict[str, Any] = {name: [*getattr(node, name), *_OURS] for name in _EXCLUDED}
    text = node.get_content()
    if _NUL in text:
        own["text"] = text
        changes["text"] = text.replace(_NUL, "\ufffd")
    plain = {
        key: _nearest(value)
        for key, value in node.metadata.items()
        if _is_free(key, taken) and _is_plain(value)
    }
    changes["metadata"] = {
        **plain,
        WIRE_KEY: kept_as_json(own, node.ref_doc_id),
        HEAD_KEY: head,
    }
    return node.model_copy(update=changes)


def from_wire(node: BaseNode) -> BaseNode:
    """The node that `to_wire` was given, without its embedding; a node that others wrote is returned as it
    is."""
    changes: dict[str, Any] = {"embedding": None}
    if isinstance(node.metadata.get(WIRE_KEY), str):
        changes |= json.loads(node.metadata[WIRE_KEY])
        changes |= {
            name: [key for key in getattr(node, name) if key not in _OURS] for name in _EXCLUDED
        }
    return node.model_copy(update=changes)


def conditions_of(
    filters: MetadataFilters | None, taken: frozenset[str] = frozenset()
) -> list[Condition]:
    """What rows that pass filters have in any case, as far as a store can look at it; they may have to pass
    more.

    Args:
        filters: The user's filters.
        taken: Metadata keys that the store uses itself.
    """
    if filters is None or filters.condition not in (None, FilterCondition.AND):
        return []
    conditions: list[Condition] = []
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            conditions += conditions_of(part, taken)
        elif _is_free(part.key, taken):
            conditions += _conditions(part)
    return conditions


def _conditions(part: MetadataFilter) -> list[Condition]:
    values: Any = part.value if part.operator == FilterOperator.IN else [part.value]
    limits = _LIMITS.get(part.operator, ())
    # in a string is what it holds
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_VALUES:
        return []
    if len(limits) == 2 and all(map(_is_plain_text, values)):
        return [Condition(part.key, "in", values)]
    if not all(map(_is_compared_alike, values)):
        return []
    return [Condition(part.key, ">=" if limit is min else "<=", limit(values)) for limit in limits]


def _is_compared_alike(value: object) -> bool:
    """Whether it is a number that means the same to all stores; some take True for 1."""
    return _is_number(value) and value not in (0, 1) and abs(value) <= _EXACT


def _is_free(key: str, taken: frozenset[str]) -> bool:
    return key not in taken and key not in _TAKEN and _PLAIN_KEY.fullmatch(key) is not None


def _is_plain(value: object) -> bool:
    return type(value) is bool or _is_plain_text(value) or _is_number(value)


def _is_plain_text(value: object) -> bool:
    return type(value) is str and _NUL not in value


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float) and value == value  # not NaN


def _nearest(value: Any) -> Any:
    """The value itself; of a number that stores cannot hold, the nearest one that they can."""
    if type(value) is int:
        return min(max(value, -(2**63)), 2**63 - 1)
    if type(value) is float:
        return min(max(value, -sys.float_info.max), sys.float_info.max)
    return value
