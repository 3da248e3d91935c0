"""Conversion of nodes to a form that every vector store keeps, and back. Pure.

Stores differ in what they keep: some refuse lists and dictionaries, some drop None, some keep only 64-bit
numbers, some have columns that a metadata key may collide with, and some cannot hold a NUL. So all metadata
is stored in one JSON string; plain values also stay under their own keys, where stores and users' tools can
filter on them.
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
"""Metadata key that is True on one row of each complete document, its head, and False on all other rows."""
CONTENT_KEY = "_node_content"
"""Metadata key under which LlamaIndex's integrations store a node."""
HIT_KEYS = (GRANULARITY_KEY, WIRE_KEY, CONTENT_KEY)
"""The metadata keys of a row that a search must return."""

_OURS = (WIRE_KEY, HEAD_KEY)
_EXCLUDED = ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
_TAKEN = frozenset(
    "id id_ node_id doc_id document_id ref_doc_id text document embedding sparse_embedding vector metadata "
    f"metadata_ node_info relationships {CONTENT_KEY} _node_type {WIRE_KEY} {HEAD_KEY}".split()
)
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]{0,127}")  # excludes what stores' filters parse as syntax
_NUL = "\0"
_EXACT = 2**53  # stores round larger numbers
_MOST_VALUES = 100  # in a condition that is passed to a store
Sign = Literal["in", ">=", "<="]
_LIMITS: dict[FilterOperator, dict[Sign, Callable[[list[Any]], Any]]] = {
    FilterOperator.EQ: {">=": min, "<=": max},
    FilterOperator.IN: {">=": min, "<=": max},
    FilterOperator.GT: {">=": min},
    FilterOperator.GTE: {">=": min},
    FilterOperator.LT: {"<=": max},
    FilterOperator.LTE: {"<=": max},
}


@dataclass(frozen=True)
class Condition:
    """A condition on a row's value under a metadata key.

    Args:
        key: The key, of letters, digits, "_" and "-".
        sign: How the row's value compares with `value`.
        value: A number; for "in", the strings one of which the row's value must be.
    """

    key: str
    sign: Sign
    value: Any


Conditions = Sequence[Condition]


@dataclass(frozen=True)
class Row:
    """A node as it is stored.

    Args:
        id: The node's id.
        metadata: The result of LlamaIndex's `node_to_metadata_dict`; for a search hit, at least `HIT_KEYS`.
        text: The node's text, if it was requested and is not in the metadata.
    """

    id: str
    metadata: Mapping[str, Any]
    text: str | None = None

    @classmethod
    def of(cls, wire: BaseNode) -> Row:
        """Return the complete row from which an integration made this node."""
        return cls(wire.node_id, node_to_metadata_dict(wire, remove_text=True), wire.get_content())

    @property
    def is_ours(self) -> bool:
        """Whether one of our parsers made the node."""
        return bool(self.granularity)

    @property
    def granularity(self) -> str:
        """The node's granularity; empty if our parsers did not make it."""
        return str(self.metadata.get(GRANULARITY_KEY) or "")

    @property
    def is_head(self) -> bool:
        """Whether this row marks its document as complete."""
        return self.metadata.get(HEAD_KEY) is True

    @property
    def node(self) -> BaseNode:
        """The node of a complete row, which has its text."""
        return from_wire(metadata_dict_to_node(dict(self.metadata), text=self.text))

    @property
    def node_metadata(self) -> dict[str, Any]:
        """The metadata of the node."""
        return dict(self._own["metadata"])

    @property
    def passage_id(self) -> str:
        """The id of the passage that the node leads to; empty if it is not a unit of a passage."""
        return str(self._own.get("index_id") or "")

    @property
    def _own(self) -> dict[str, Any]:
        return dict(json.loads(self.metadata.get(WIRE_KEY) or self.metadata[CONTENT_KEY]))


StoredRows = Iterable[Row]


def to_wire(node: BaseNode, *, head: bool = False, taken: frozenset[str] = frozenset()) -> BaseNode:
    """Convert a node to a form that every store keeps; class and text stay, so that other programs can read
    it.

    Args:
        node: Any node; it is not changed.
        head: Whether its row marks its document as complete.
        taken: Further metadata keys that the store uses itself.

    Raises:
        ValueError: An id contains a NUL, or the metadata cannot be expressed as JSON.
    """
    own: dict[str, Any] = {"metadata": node.metadata}
    if isinstance(node, IndexNode):
        own["index_id"] = node.index_id
    if _NUL in f"{node.node_id}{node.ref_doc_id}{own.get('index_id')}":
        raise ValueError(f"an id in document {node.ref_doc_id!r} contains a NUL: use another id")
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
    """Return the node that was passed to `to_wire`, without its embedding; any other node loses only its
    embedding."""
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
    """Return conditions that every row passing the filters meets, as far as a store can evaluate them.

    They are necessary, not sufficient: the filters still have to be evaluated on the rows that meet them.

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
    values: Any = part.value
    if part.operator != FilterOperator.IN:
        values = [part.value]
    limits = _LIMITS.get(part.operator, {})
    # IN with a string tests for a substring, which is not passed to stores
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_VALUES:
        return []
    if len(limits) == 2 and all(map(_is_plain_text, values)):
        return [Condition(part.key, "in", values)]
    if not all(map(_is_compared_alike, values)):
        return []
    return [Condition(part.key, sign, limit(values)) for sign, limit in limits.items()]


def _is_compared_alike(value: object) -> bool:
    """Return whether all stores compare this number alike; some take True for 1."""
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
    """Return the value; for a number that stores cannot hold, the nearest one that they can."""
    if type(value) is int:
        return min(max(value, -(2**63)), 2**63 - 1)
    if type(value) is float:
        return min(max(value, -sys.float_info.max), sys.float_info.max)
    return value
