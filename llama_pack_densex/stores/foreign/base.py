"""What adapters share for stores that are enough alone: the order of writing, and searching until enough is found."""

from __future__ import annotations

import math
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, get_args

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY, Granularity
from llama_pack_densex.stores.filters import matches
from llama_pack_densex.stores.foreign.wire import (
    HEAD_KEY,
    Row,
    is_plain_condition,
    metadata_of,
    node_id_of,
    node_of,
    passage_id_of,
    row_of,
    to_wire,
)
from llama_pack_densex.stores.node_store import FoundNode, NodeStore
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

ABOUT_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex/about"))
"""The id of the row that says what made an index."""
GRANULARITIES = list(get_args(Granularity))
_MOST_VALUES = 100  # values in a condition that a store is asked to look at
_GROWTH = 4  # how many times as many rows are asked for where filters left too few

T = TypeVar("T")
Conditions: TypeAlias = Mapping[str, str | bool | list[str]]
"""Metadata keys with the value that a row must have there, or with a list of values of which it must have one."""


@dataclass(frozen=True)
class Member:
    """A row of a document.

    Args:
        node_id: The node's id; the store's own may be another.
        is_head: Whether it tells that the document is whole.
    """

    node_id: str
    is_head: bool


@dataclass(frozen=True)
class Change:
    """What is to be done to a store, in this order, so that no half document counts as whole at any moment.

    Args:
        unmark: Ids of rows that no longer tell that their document is whole.
        write: Nodes to write.
        drop: Ids of rows to delete.
        heads: Nodes to write last: they tell that their documents are whole.
    """

    unmark: Sequence[str] = ()
    write: Sequence[BaseNode] = ()
    drop: Sequence[str] = ()
    heads: Sequence[BaseNode] = ()


class StoreAlone(NodeStore):
    """Nodes of which everything is in a vector store.

    These stores have no transaction over several requests. So a document's first base node is its head, written last;
    a document without head counts as missing and is written again.

    Async methods run in threads: the clients' async connections belong to the event loop that opened them, and an
    index is used from several.

    Args:
        vector_store: A store of LlamaIndex that keeps text and returns nodes by id.
    """

    rows_a_request = 1000
    """How many rows, or ids, one request to the store is about."""
    most_found: float = math.inf
    """How many rows one search of the store returns at most."""
    taken_keys: frozenset[str] = frozenset()
    """Metadata keys that the store uses itself."""

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__()
        self.vector_store = vector_store
        self._about: str | None = None  # what is to be written with the first nodes

    # What each store does in its own way; an empty list of ids never gets here, nor more than `rows_a_request`.

    @abstractmethod
    def _put(self, wires: Sequence[BaseNode]) -> None:
        """Write nodes in wire form, replacing the rows of the same ids."""

    @abstractmethod
    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        """Whole rows by id."""

    @abstractmethod
    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        """The rows of some documents by the store's ids; not those that are not ours."""

    @abstractmethod
    def _unmark(self, store_ids: Sequence[str]) -> None:
        """Make rows no heads any more; they may as well be deleted."""

    @abstractmethod
    def _drop(self, store_ids: Sequence[str]) -> None:
        """Delete rows."""

    @abstractmethod
    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        """Whole rows with these values, page by page; with no conditions all rows."""

    @abstractmethod
    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        """Rows nearest to the question's embedding with their cosines, those with these values only.

        The rows may lack their texts, and without filters in the question all but what tells where they lead.
        """

    @abstractmethod
    def _dimension(self) -> int | None:
        """The dimension of the store's vectors; None where it takes that of the first ones."""

    def _store_id(self, node_id: str) -> str:
        return node_id

    def _apply(self, change: Change) -> None:
        for ids in self._paged(change.unmark):
            self._unmark(ids)
        for wires in self._paged(change.write):
            self._put(wires)
        for ids in self._paged(change.drop):
            self._drop(ids)
        for wires in self._paged(change.heads):
            self._put(wires)

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode]) -> None:
        self._check_embeddings(nodes)
        distinct = {node.node_id: node for node in nodes}
        heads: dict[str, str] = {}
        for node in distinct.values():
            if DOCUMENT_HASH_KEY in node.metadata:
                heads.setdefault(node.ref_doc_id or "", node.node_id)
        head_ids = set(heads.values())
        wires = {node_id: self._to_wire(node, node_id in head_ids) for node_id, node in distinct.items()}
        # of documents that a kill left half written there may be rows although nobody knows of the documents
        known = self._members_of([*document_ids, *(node.ref_doc_id or "" for node in distinct.values())])
        written = {wire.node_id for wire in wires.values()}
        change = Change(
            unmark=[store_id for store_id, member in known.items() if member.is_head],
            write=[wire for node_id, wire in wires.items() if node_id not in head_ids],
            drop=[store_id for store_id in known if store_id not in written],
            heads=[wire for node_id, wire in wires.items() if node_id in head_ids],
        )
        try:
            self._apply(change)
            if self._about is not None and wires:
                self.write_about(self._about)
        finally:
            self._changed()

    def remove(self, document_ids: Sequence[str]) -> None:
        known = self._members_of(document_ids)
        try:
            self._apply(Change(drop=sorted(known, key=lambda store_id: not known[store_id].is_head)))
        finally:
            self._changed()

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        rows = self._rows_of([self._store_id(node_id) for node_id in node_ids])
        found = {node.node_id: node for node in (node_of(row) for row in rows if row.is_ours)}
        return {node_id: found[node_id] for node_id in node_ids if node_id in found}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        wanted = question.similarity_top_k
        if wanted <= 0:
            return []
        self._check_question(question)
        conditions = self._conditions(question.filters)
        limit = wanted + 1  # the row that says what made the index may be among them
        while True:
            limit = int(min(limit, self.most_found))
            if question.mode == VectorStoreQueryMode.DEFAULT:
                hits = self._nearest(question, limit, conditions)
            else:
                hits = self._ask(question, limit)
            found = self._found(hits, question)
            if len(found) >= wanted or len(hits) < limit or limit >= self.most_found:
                return sorted(found, key=lambda node: (-node.score, node.id))[:wanted]
            limit *= _GROWTH

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        rows = self._scan({GRANULARITY_KEY: granularity} if granularity else {})
        return (NodeRecord.of(node_of(row)) for row in rows if row.is_ours)

    def documents(self) -> dict[str, DocumentRecord]:
        heads = (NodeRecord.of(node_of(row)) for row in self._scan({HEAD_KEY: True}) if row.is_ours)
        return {record.document_id: DocumentRecord(record.document_hash, record.file) for record in heads}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        return {member.node_id for member in self._members_of(document_ids).values()}

    def is_empty(self) -> bool:
        return next(self.records(), None) is None

    def read_about(self) -> str | None:
        if self._about is not None:
            return self._about
        return next((node_of(row).get_content() for row in self._rows([ABOUT_ID])), None)

    def write_about(self, about: str) -> bool:
        dimension = self._dimension()
        self._about = about if dimension is None else None
        if dimension is not None:
            # of length 1, as cosines need, and as good as orthogonal to what models embed
            embedding = [(-1.0) ** place / math.sqrt(dimension) for place in range(dimension)]
            self._put([to_wire(TextNode(id_=ABOUT_ID, text=about, embedding=embedding))])
        return True

    def _to_wire(self, node: BaseNode, head: bool) -> BaseNode:
        store_id = self._store_id(node.node_id)
        return to_wire(node, head=head, store_id=store_id if store_id != node.node_id else "", taken=self.taken_keys)

    def _rows_of(self, store_ids: Iterable[str]) -> Iterator[Row]:
        for page in self._paged(list(dict.fromkeys(store_ids))):
            yield from self._rows(page)

    def _members_of(self, document_ids: Iterable[str]) -> dict[str, Member]:
        known: dict[str, Member] = {}
        for page in self._paged(list(dict.fromkeys(filter(None, document_ids)))):
            known |= self._members(page)
        return known

    def _paged(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """So many at a time as one request is about."""
        return (items[i : i + self.rows_a_request] for i in range(0, len(items), self.rows_a_request))

    def _conditions(self, filters: MetadataFilters | None) -> Conditions:
        """The part of the filters that the store may look at as well: strings that must be there as they are."""
        if filters is None or filters.condition not in (None, FilterCondition.AND):
            return {}
        conditions: dict[str, str | bool | list[str]] = {}
        for part in filters.filters:
            if isinstance(part, MetadataFilters):
                continue
            one_of = part.value if part.operator == FilterOperator.IN else [part.value]
            if part.operator not in (FilterOperator.EQ, FilterOperator.IN) or not isinstance(one_of, list):
                continue
            if 0 < len(one_of) <= _MOST_VALUES and all(
                is_plain_condition(part.key, value, self.taken_keys) for value in one_of
            ):
                conditions[part.key] = [str(value) for value in one_of]
        return conditions

    def _ask(self, question: VectorStoreQuery, limit: int) -> list[tuple[Row, float]]:
        """What the store's own search returns, with its scores; the filters are evaluated here."""
        result = self.vector_store.query(replace(question, similarity_top_k=limit, filters=None))
        nodes = result.nodes or []
        return [(row_of(node), score) for node, score in zip(nodes, result.similarities or [], strict=True)]

    def _found(self, hits: Sequence[tuple[Row, float]], question: VectorStoreQuery) -> list[FoundNode]:
        missing = [row.id for row, _ in hits if row.is_ours and not row.says_enough]
        whole = {row.id: row for row in self._rows_of(missing)}
        found: dict[str, FoundNode] = {}
        for hit, score in sorted(hits, key=lambda pair: -pair[1]):
            row = whole.get(hit.id, hit)
            if row.is_ours and row.says_enough and _passes(row, question):
                node_id = node_id_of(row)
                granularity = str(row.metadata[GRANULARITY_KEY])
                found.setdefault(node_id, FoundNode(node_id, granularity, passage_id_of(row), score))
        return list(found.values())

    def _check_question(self, question: VectorStoreQuery) -> None:
        dimension = self._dimension()
        if dimension is not None and question.query_embedding and len(question.query_embedding) != dimension:
            raise ValueError(
                f"the query has {len(question.query_embedding)} dimensions, the index {dimension}: it was made with "
                "another embedding model; use that one, or build the index anew"
            )

    def _check_embeddings(self, nodes: Sequence[BaseNode]) -> None:
        if any(node.embedding is None for node in nodes):
            raise ValueError(
                f"{self.name} keeps no nodes without embeddings; give an embedding model, or use the embedded store, "
                "which lexical search alone needs no embeddings in"
            )
        dimensions = {len(node.embedding or ()) for node in nodes}
        dimension = self._dimension() if nodes else None
        if dimension is not None:
            dimensions.add(dimension)
        if len(dimensions) > 1:
            raise ValueError(
                f"nodes of one store must all have embeddings of one dimension; found {sorted(dimensions)}. "
                "Embed all of them with one model, or build the index anew."
            )


def uuid_for(node_id: str) -> str:
    """A UUID in place of an id that a store cannot take."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"llama-pack-densex:{node_id}"))


def cosine(metric: str, value: float, question: Sequence[float]) -> float:
    """The cosine of what a store measured, where all vectors are as long as the question's; else what orders the same.

    Args:
        metric: "cosine" or "ip" (a similarity), "l2" (a squared distance), anything else (a distance).
        value: What the store measured.
        question: The embedding that was asked for.
    """
    if math.isnan(value):  # a vector of zeros has no direction
        return 0.0
    if metric == "cosine":
        return value
    squared = math.fsum(part * part for part in question) or 1.0
    if metric == "ip":
        return value / squared
    if metric == "l2":
        return 1.0 - value / (2.0 * squared)
    return -value


def _passes(row: Row, question: VectorStoreQuery) -> bool:
    if question.node_ids and node_id_of(row) not in question.node_ids:
        return False
    if question.doc_ids and row.metadata.get("ref_doc_id") not in question.doc_ids:
        return False
    return question.filters is None or matches(metadata_of(row), question.filters)
