"""Vector stores that need no docstore, because they keep texts and return nodes: a general adapter, and the
base of the specific ones."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_pack_densex.index.adapters.wire import (
    WIRE_KEY,
    Conditions,
    Row,
    StoredRows,
    conditions_of,
    to_wire,
)
from llama_pack_densex.index.filters import keys_of, matches
from llama_pack_densex.index.node_store import (
    DocumentRecord,
    DocumentRecords,
    FoundNode,
    Ids,
    NodeRecord,
    Nodes,
    NodeStore,
    check_question,
    look_further,
    nowhere,
)
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    DOCUMENT_HASH_KEY,
    GRANULARITY_KEY,
    Granularity,
)

ABOUT_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex/about"))
"""The id of the row that holds the manifest of an index."""
DIMENSION_KEY = "densex_dimension"
"""Metadata key of that row, for the dimension of the embeddings."""
# keys whose value may differ between a unit and its passage
_OF_A_NODE = frozenset({"section", *BOOKKEEPING_KEYS})

T = TypeVar("T")
Measured = tuple[Row, float]
"""A row, and the store's measure of its embedding and the question's: a similarity or a distance."""
Hits = Iterable[Measured]


class Space(NamedTuple):
    """The vector space of a store.

    Args:
        dimension: The dimension of the vectors; None if there are none yet.
        metric: The metric between them, as the store names it.
    """

    dimension: int | None
    metric: str = "cosine"


class StoreAlone(NodeStore):
    """Nodes that are kept entirely in a vector store.

    These stores have no transactions over several requests. So a document's first base node is its head,
    which is written last; a document without a head counts as missing and is written again.

    This class itself serves any store, using only LlamaIndex's interface. That interface cannot read a store
    page by page, so all nodes of one granularity are read together; filters are evaluated here, and scores
    are the store's own. A subclass overrides what a particular store can do better, or does wrongly.

    Async callers run these methods in threads: a client's async connections belong to the event loop that
    opened them, and an index is used from several loops.

    Args:
        vector_store: A store of LlamaIndex that keeps text and returns nodes by id. Without a subclass of its
            own, it needs `get_nodes` and `delete_nodes`, and `get_nodes` must be able to filter by the node's
            metadata and by what LlamaIndex writes beside it (`ref_doc_id`).

    Raises:
        ValueError: (on the first writing) The store does not return what was written, by id or by document.
    """

    rows_a_request = 1000
    """The largest number of rows or ids in one request to the store."""
    most_found: float = math.inf
    """The largest number of rows that one search of the store returns."""
    taken_keys: frozenset[str] = frozenset()
    """Metadata keys that the store uses itself."""

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__()
        self.vector_store = vector_store
        self._store: Any = vector_store
        self._space: Space | None = None

    # For subclasses to override; they never receive an empty list of ids, nor more than `rows_a_request`.

    def _describe(self) -> Space | None:
        """Read the vector space of the store; None if its collection does not exist yet."""
        dimensions = [row.metadata.get(DIMENSION_KEY) for row in self._rows([ABOUT_ID])]
        return Space(dimensions[0] if dimensions else None)

    def _put(self, wires: Nodes) -> None:
        """Write nodes in wire form, replacing the rows of the same ids."""
        self._drop([wire.node_id for wire in wires])  # many stores would keep the old row, or both
        self._store.add(list(wires))
        if self.dimension is None:
            self._prove(wires[0])

    def _drop(self, node_ids: Ids) -> None:
        """Delete rows."""
        self._store.delete_nodes(list(node_ids))

    def _rows(self, node_ids: Ids) -> StoredRows:
        """Return whole rows by id."""
        requested = set(node_ids)  # some stores return everything if they have none of the ids
        rows = map(Row.of, self._store.get_nodes(list(node_ids)))
        return [row for row in rows if row.id in requested]

    def _scan(self, key: str, values: Sequence[str]) -> StoredRows:
        """Yield the whole rows that have one of the values under a metadata key, page by page.

        Args:
            key: "ref_doc_id" or the key of the granularity; a store needs to index no other key.
            values: The values to match.
        """
        for value in values:
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
            rows = map(Row.of, self._store.get_nodes(None, filters))
            yield from (row for row in rows if row.metadata.get(key) == value)

    def _nearest(self, embedding: Embedding, limit: int, conditions: Conditions) -> Hits:
        """Return the rows nearest to an embedding, among those that meet the conditions, with the measure.

        The rows may lack their texts, and all metadata except `HIT_KEYS`. Whether the measure is a similarity
        or a distance depends on the metric; see `cosine`. This general method ignores the conditions.
        """
        return self._ask(VectorStoreQuery(query_embedding=embedding), limit)

    def described(self) -> Space | None:
        """Return the vector space of the store; None if its collection does not exist yet."""
        if self._space is None or self._space.dimension is None:
            self._space = self._describe()
        return self._space

    @property
    def dimension(self) -> int | None:
        space = self.described()
        if space is None:
            return None
        return space.dimension

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        heads = _heads(nodes)
        wires = {}
        for node in nodes:
            is_head = node.node_id in heads
            wires[node.node_id] = to_wire(node, head=is_head, taken=self.taken_keys)
        new_heads = [wire for node_id, wire in wires.items() if node_id in heads]
        new_others = [wire for node_id, wire in wires.items() if node_id not in heads]
        old = {row.id: row.is_head for row in self._rows_of_documents(document_ids)}
        old_heads = [node_id for node_id, is_head in old.items() if is_head]
        # in this order, so that an incomplete document never counts as complete
        with self._changing():
            self._each(self._drop, old_heads)
            self._each(self._put, new_others)
            gone = old.keys() - wires.keys() - set(old_heads)
            self._each(self._drop, list(gone))
            self._each(self._put, new_heads)

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        nodes = {row.id: row.node for row in self._paged(self._rows, node_ids) if row.is_ours}
        return {node_id: nodes[node_id] for node_id in node_ids if node_id in nodes}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        space = self.described()
        if space is None:
            return []
        check_question(question.query_embedding, space.dimension)
        filters = question.filters
        passing = None
        if keys_of(filters) & _OF_A_NODE:
            passing = self.passing(filters)

        def passes(row: Row) -> bool:
            if passing is not None:
                return (row.passage_id or row.id) in passing.ids
            return matches(row.node_metadata, filters)

        def find(limit: int) -> tuple[list[FoundNode], int]:
            hits = self._hits(question, limit, space)
            nodes: dict[str, FoundNode] = {}
            for row, score in sorted(hits, key=lambda hit: -hit[1]):
                if row.is_ours and passes(row):
                    nodes.setdefault(
                        row.id, FoundNode(row.id, row.granularity, row.passage_id, score)
                    )
            return list(nodes.values()), len(hits)

        # one more, because the row of the manifest may be among the hits
        return look_further(
            find, question.similarity_top_k, question.similarity_top_k + 1, self.most_found
        )

    def _hits(self, question: VectorStoreQuery, limit: int, space: Space) -> list[Measured]:
        if question.mode != VectorStoreQueryMode.DEFAULT:
            return self._ask(question, limit)
        embedding = question.query_embedding or []
        conditions = conditions_of(question.filters, self.taken_keys | _OF_A_NODE)
        nearest = self._nearest(embedding, limit, conditions)
        return [(row, cosine(space.metric, measured, embedding)) for row, measured in nearest]

    def _ask(self, question: VectorStoreQuery, limit: int) -> list[Measured]:
        """Return the hits of the store's own search, with its scores; the caller evaluates the filters."""
        result = self._store.query(asking_for(question, limit))
        return list(zip(map(Row.of, result.nodes or []), result.similarities or [], strict=True))

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        granularities = [granularity] if granularity else get_args(Granularity)
        for row in self._rows_with(GRANULARITY_KEY, granularities):
            yield NodeRecord.of(row.node)

    def documents(self) -> DocumentRecords:
        bases = self._rows_with(GRANULARITY_KEY, ["passage", "section"])
        documents = {}
        for row in bases:
            # rows that a pipeline wrote have no heads
            if row.is_head or not row.metadata.get(WIRE_KEY):
                record = NodeRecord.of(row.node)
                documents[record.document_id] = DocumentRecord(record.document_hash, record.file)
        return documents

    def node_ids(self, document_ids: Ids) -> set[str]:
        return {row.id for row in self._rows_of_documents(document_ids)}

    def read_about(self) -> str | None:
        return next((row.node.get_content() for row in self._paged(self._rows, [ABOUT_ID])), None)

    def write_about(self, text: str) -> None:
        if self.dimension is None:
            return
        metadata = {DIMENSION_KEY: self.dimension}
        row = TextNode(
            id_=ABOUT_ID, text=text, embedding=nowhere(self.dimension), metadata=metadata
        )
        with self._changing():
            self._put([to_wire(row, taken=self.taken_keys)])

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Enclose a change: a single transaction, if the store has transactions."""
        try:
            yield
        finally:
            self._changed()

    def _each(self, send: Callable[[Sequence[T]], None], items: Sequence[T]) -> None:
        for page in iter_batch(items, self.rows_a_request):
            send(page)

    def _rows_of_documents(self, document_ids: Iterable[str]) -> Iterator[Row]:
        rows = self._rows_with("ref_doc_id", filter(None, document_ids))
        return (row for row in rows if row.is_ours)

    def _rows_with(self, key: str, values: Iterable[str]) -> Iterator[Row]:
        return self._paged(partial(self._scan, key), values)

    def _paged(
        self, read: Callable[[Sequence[str]], StoredRows], values: Iterable[str]
    ) -> Iterator[Row]:
        if self.described() is not None:
            for page in iter_batch(dict.fromkeys(values), self.rows_a_request):
                yield from read(page)

    def _prove(self, wire: BaseNode) -> None:
        """Check that the store returns a row that was just written, by id and by document.

        Raises:
            ValueError: It does not, so that nothing could be replaced or deleted.
        """
        by_id = {row.id for row in self._rows([wire.node_id])}
        by_document = {row.id for row in self._scan("ref_doc_id", [wire.ref_doc_id or "None"])}
        if not by_id & by_document:
            by = "document" if by_id else "id"
            raise ValueError(
                f"{self.name} does not return nodes by {by}: pass a docstore= as well, to keep them in"
            )
        self._space = Space(len(wire.get_embedding()))


def _heads(nodes: Nodes) -> set[str]:
    """Return the id of the first base node of each document."""
    heads: dict[str | None, str] = {}
    for node in nodes:
        if DOCUMENT_HASH_KEY in node.metadata:
            heads.setdefault(node.ref_doc_id, node.node_id)
    return set(heads.values())


def asking_for(question: VectorStoreQuery, limit: int) -> VectorStoreQuery:
    """Return the question with this limit for each side of a store's own search, and without its filters."""
    return replace(
        question,
        filters=None,
        similarity_top_k=limit,
        sparse_top_k=question.sparse_top_k and limit,
        hybrid_top_k=question.hybrid_top_k and limit,
    )


def cosine(metric: str, measured: float, embedding: Sequence[float]) -> float:
    """Convert a store's measure to a cosine.

    It is a cosine if all vectors are as long as the question's; otherwise a score with the same ranking.

    Args:
        metric: "cosine", "ip" or "dot" (similarities), "l2" (a squared distance) or "euclid" (a distance), in
            upper or lower case; anything else is taken for a distance.
        measured: The store's measure.
        embedding: The question's embedding.
    """
    if math.isnan(measured):  # a zero vector has no direction
        return 0.0
    if metric.casefold() == "cosine":
        return measured
    squared_length = math.fsum(part * part for part in embedding) or 1.0
    match metric.casefold():
        case "ip" | "dot":
            return measured / squared_length
        case "l2":
            return 1.0 - measured / (2.0 * squared_length)
        case "euclid":
            return 1.0 - measured * measured / (2.0 * squared_length)
    return -measured
