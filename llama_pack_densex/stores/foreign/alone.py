"""Stores that are enough alone, since they keep texts and give nodes back: what adapters share, and one for any."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar, get_args

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, DOCUMENT_HASH_KEY, GRANULARITY_KEY, Granularity
from llama_pack_densex.stores.filters import Passing, keys_of, matches
from llama_pack_densex.stores.foreign.wire import WIRE_KEY, Condition, Row, conditions_of, row_of, to_wire
from llama_pack_densex.stores.node_store import DocumentRecord, FoundNode, NodeRecord, NodeStore, look_further, nowhere

ABOUT_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex/about"))
"""The id of the row that says what made an index."""
_DIMENSION_KEY = "densex_dimension"  # of that row
_OF_A_NODE = frozenset({"section", *BOOKKEEPING_KEYS})  # a unit may have another one than its passage

T = TypeVar("T")
Measured = tuple[Row, float]
"""A row, and what was measured between its embedding and the question's."""


class StoreAlone(NodeStore):
    """Nodes of which everything is in a vector store.

    These stores have no transaction over several requests. So a document's first base node is its head, written last;
    a document without head counts as missing and is written again.

    As it is, this serves a store of which nothing is known but what LlamaIndex asks of each. LlamaIndex has no way
    to read a store page by page: what reads all nodes reads those of one granularity at once; filters are evaluated
    here, and scores are the store's own. A subclass replaces what a kind of store does better, or wrongly.

    Async methods run in threads: the clients' async connections belong to the event loop that opened them, and an
    index is used from several.

    Args:
        vector_store: A store of LlamaIndex that keeps text and returns nodes by id; without a subclass of its own, one
            with `get_nodes` and `delete_nodes`, of which the former can filter by what LlamaIndex writes beside a node
            (`ref_doc_id`) and by the node's metadata.

    Raises:
        ValueError: (on the first writing) The store does not return what was written, by id or by document.
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
        self._known: tuple[int | None, str] | None = None
        self._works = False

    # What subclasses replace; an empty list of ids never gets here, nor more than `rows_a_request`.

    def _describe(self) -> tuple[int | None, str] | None:
        """The dimension of the vectors, None where there are none yet, and what is measured; None without any place."""
        dimensions = (row.metadata.get(_DIMENSION_KEY) for row in self._rows([ABOUT_ID]))
        return next(dimensions, None), "cosine"

    def _put(self, wires: Sequence[BaseNode]) -> None:
        """Write nodes in wire form, replacing the rows of the same ids."""
        self._drop([wire.node_id for wire in wires])  # many stores would keep the old row, or both
        self.vector_store.add(list(wires))
        if not self._works:
            self._try(wires[0])
            _, metric = self._known or (None, "cosine")
            self._works, self._known = True, (len(wires[0].get_embedding()), metric)

    def _drop(self, node_ids: Sequence[str]) -> None:
        """Delete rows."""
        self.vector_store.delete_nodes(list(node_ids))

    def _rows(self, node_ids: Sequence[str]) -> Iterable[Row]:
        """Whole rows by id."""
        wanted = {*node_ids}  # some stores return everything where none of the ids is there
        return (row for row in map(row_of, self.vector_store.get_nodes(list(node_ids))) if row.id in wanted)

    def _scan(self, key: str, values: Sequence[str]) -> Iterable[Row]:
        """Whole rows that have one of some values under a metadata key, page by page."""
        for value in values:
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
            rows = map(row_of, self.vector_store.get_nodes(None, filters))
            yield from (row for row in rows if row.metadata.get(key) == value)

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Sequence[Condition]) -> Iterable[Measured]:
        """Rows nearest to the question's embedding with what was measured, of those only that meet these conditions.

        The rows may lack their texts, and without filters in the question all but `LEADS_TO`.
        """
        return self._ask(question, limit)

    def described(self) -> tuple[int | None, str] | None:
        """The dimension of the store's vectors and what it measures; see `_describe`."""
        if self._known is None or self._known[0] is None:
            self._known = self._describe()
        return self._known

    def replace(self, document_ids: Collection[str], nodes: Sequence[BaseNode]) -> None:
        # of each document the first base node: seen from behind, the last one
        first = {node.ref_doc_id: node.node_id for node in reversed(nodes) if DOCUMENT_HASH_KEY in node.metadata}
        heads = set(first.values())
        wires = {n.node_id: to_wire(n, head=n.node_id in heads, taken=self.taken_keys) for n in nodes}
        known = self._members_of(document_ids)
        with self._changing():  # in this order, so that no half document counts as whole at any moment
            self._each(self._drop, [node_id for node_id, is_head in known.items() if is_head])
            self._each(self._put, [wire for node_id, wire in wires.items() if node_id not in heads])
            self._each(self._drop, [node_id for node_id in known if node_id not in wires and not known[node_id]])
            self._each(self._put, [wire for node_id, wire in wires.items() if node_id in heads])

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        found = {row.id: row.node for row in self._rows_of(node_ids) if row.is_ours}
        return {node_id: found[node_id] for node_id in node_ids if node_id in found}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        wanted, described = question.similarity_top_k, self.described()
        if described is None:
            return []
        conditions = conditions_of(question.filters, self.taken_keys | _OF_A_NODE)
        passing = self.passing(question.filters) if keys_of(question.filters) & _OF_A_NODE else None

        def find(limit: int) -> tuple[list[FoundNode], int]:
            if question.mode == VectorStoreQueryMode.DEFAULT:
                measured, asked = self._nearest(question, limit, conditions), question.query_embedding or []
                hits = [(row, cosine(described[1], value, asked)) for row, value in measured]
            else:
                hits = self._ask(question, limit)
            return self._found(hits, question, passing), len(hits)

        # the row that says what made the index may be among them
        return look_further(find, wanted, wanted + 1, self.most_found)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        rows = self._of_granularities([granularity] if granularity else get_args(Granularity))
        return (NodeRecord.of(row.node) for row in rows)

    def documents(self) -> dict[str, DocumentRecord]:
        bases = self._of_granularities(["passage", "section"])
        # a pipeline marks no heads
        whole = (NodeRecord.of(row.node) for row in bases if row.is_head or not row.metadata.get(WIRE_KEY))
        return {record.document_id: DocumentRecord(record.document_hash, record.file) for record in whole}

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        return set(self._members_of(document_ids))

    def read_about(self) -> str | None:
        return next((row.node.get_content() for row in self._rows_of([ABOUT_ID])), None)

    def write_about(self, about: str) -> None:
        if self.dimension is None:
            return
        about_it = {_DIMENSION_KEY: self.dimension}
        row = TextNode(id_=ABOUT_ID, text=about, embedding=nowhere(self.dimension), metadata=about_it)
        with self._changing():
            self._put([to_wire(row)])

    @property
    def dimension(self) -> int | None:
        known = self.described()
        return None if known is None else known[0]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What belongs together: one transaction, where the store has any."""
        try:
            yield
        finally:
            self._changed()

    def _of_granularities(self, granularities: Sequence[str]) -> Iterable[Row]:
        return self._scan(GRANULARITY_KEY, granularities) if self.described() is not None else ()

    def _rows_of(self, node_ids: Iterable[str]) -> Iterator[Row]:
        if self.described() is not None:
            for page in iter_batch(dict.fromkeys(node_ids), self.rows_a_request):
                yield from self._rows(page)

    def _members_of(self, document_ids: Iterable[str]) -> dict[str, bool]:
        """The ids of all rows of some documents that are ours, and whether each is its document's head."""
        if self.described() is None:
            return {}
        pages = iter_batch(dict.fromkeys(filter(None, document_ids)), self.rows_a_request)
        return {row.id: row.is_head for page in pages for row in self._scan("ref_doc_id", page) if row.is_ours}

    def _each(self, send: Callable[[Sequence[T]], None], items: Sequence[T]) -> None:
        for page in iter_batch(items, self.rows_a_request):
            send(page)

    def _try(self, wire: BaseNode) -> None:
        """Do not go on with a store in which what is written cannot be found to be replaced or deleted."""
        by_id = {row.id for row in self._rows([wire.node_id])}
        by_document = {row.id for row in self._scan("ref_doc_id", [wire.ref_doc_id or "None"])}
        if not by_id & by_document:
            by = "document" if by_id else "id"
            raise ValueError(f"{self.name} does not return nodes by {by}: give a docstore as well, which keeps them")

    def _ask(self, question: VectorStoreQuery, limit: int) -> list[Measured]:
        """What the store's own search returns, with its scores; the filters are evaluated here."""
        result = self.vector_store.query(asking_for(question, limit))
        return list(zip(map(row_of, result.nodes or []), result.similarities or [], strict=True))

    def _found(self, hits: Sequence[Measured], question: VectorStoreQuery, passing: Passing | None) -> list[FoundNode]:
        whole = {row.id: row for row in self._rows_of(row.id for row, _ in hits if row.is_ours and not row.says_enough)}
        found: dict[str, FoundNode] = {}
        for hit, score in sorted(hits, key=lambda pair: -pair[1]):
            row = whole.get(hit.id, hit)
            if row.is_ours and row.says_enough and _passes(row, question, passing):
                granularity = str(row.metadata[GRANULARITY_KEY])
                found.setdefault(row.id, FoundNode(row.id, granularity, row.passage_id, score))
        return list(found.values())


def asking_for(question: VectorStoreQuery, limit: int) -> VectorStoreQuery:
    """A question for so many nodes on each side of a store's own search; its filters are evaluated here."""
    dense, sparse, both = limit, question.sparse_top_k and limit, question.hybrid_top_k and limit
    return replace(question, similarity_top_k=dense, sparse_top_k=sparse, hybrid_top_k=both, filters=None)


def cosine(metric: str, measured: float, question: Sequence[float]) -> float:
    """The cosine of what a store measured, where all vectors are as long as the question's; else what orders the same.

    Args:
        metric: "cosine", "ip" or "dot" (a similarity), "l2" (a squared distance), "euclid", in any case; anything else
            is a distance.
        measured: What the store measured.
        question: The embedding that was asked for.
    """
    metric = metric.casefold()
    if math.isnan(measured):  # a vector of zeros has no direction
        return 0.0
    if metric == "cosine":
        return measured
    squared = math.fsum(part * part for part in question) or 1.0
    if metric in ("ip", "dot"):
        return measured / squared
    if metric in ("l2", "euclid"):
        return 1.0 - (measured if metric == "l2" else measured * measured) / (2.0 * squared)
    return -measured


def _passes(row: Row, question: VectorStoreQuery, passing: Passing | None) -> bool:
    if passing is not None:
        return (row.passage_id or row.id) in passing.ids
    return question.filters is None or matches(row.node_metadata, question.filters)
