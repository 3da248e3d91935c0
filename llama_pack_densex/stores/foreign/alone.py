"""Any other store that keeps text and returns nodes, through LlamaIndex's own interface only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.foreign.base import GRANULARITIES, Conditions, Member, StoreAlone
from llama_pack_densex.stores.foreign.wire import HEAD_KEY, Row, node_id_of, row_of


class StoreAloneNodes(StoreAlone):
    """Nodes in a store of which nothing is known but what LlamaIndex asks of each.

    LlamaIndex has no interface to read a store page by page: what reads all nodes reads those of one granularity at
    once. Scores are the store's own.

    Args:
        vector_store: A store with `get_nodes` and `delete_nodes` of its own, of which the former can filter by what
            LlamaIndex writes beside a node (`ref_doc_id`) and by the node's metadata.

    Raises:
        ValueError: (on the first writing) The store does not return what was written, by id or by document.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        super().__init__(vector_store)
        self._written_dimension: int | None = None
        self._works = False

    def _put(self, wires: Sequence[BaseNode]) -> None:
        self._drop([wire.node_id for wire in wires])  # many stores would keep the old row, or both
        self.vector_store.add(list(wires))
        self._written_dimension = len(wires[0].get_embedding())
        if not self._works:
            self._try(wires[0])

    def _try(self, wire: BaseNode) -> None:
        """Do not go on with a store in which what is written cannot be found to be replaced or deleted."""
        by_id = {row.id for row in self._rows([wire.node_id])}
        by_document = {row.id for row in self._having("ref_doc_id", wire.ref_doc_id or "None")}
        if not by_id & by_document:
            by = "id" if not by_id else "document"
            raise ValueError(
                f"{self.name} does not return nodes by {by} that were written a moment ago; give a docstore as well, "
                "in which the nodes are then kept"
            )
        self._works = True

    def _rows(self, store_ids: Sequence[str]) -> Iterable[Row]:
        wanted = set(store_ids)
        return [row for row in map(row_of, self.vector_store.get_nodes(list(store_ids))) if row.id in wanted]

    def _members(self, document_ids: Sequence[str]) -> dict[str, Member]:
        rows = (row for document_id in document_ids for row in self._having("ref_doc_id", document_id))
        return {row.id: Member(node_id_of(row), row.metadata.get(HEAD_KEY) is True) for row in rows if row.is_ours}

    def _unmark(self, store_ids: Sequence[str]) -> None:
        self._drop(store_ids)

    def _drop(self, store_ids: Sequence[str]) -> None:
        self.vector_store.delete_nodes(list(store_ids))

    def _scan(self, conditions: Conditions) -> Iterator[Row]:
        # by granularity in any case: stores differ in how they take True, and in what they do without filters
        wanted = conditions.get(GRANULARITY_KEY)
        for granularity in [str(wanted)] if wanted else GRANULARITIES:
            for row in self._having(GRANULARITY_KEY, granularity):
                if all(row.metadata.get(key) == value for key, value in conditions.items()):
                    yield row

    def _nearest(self, question: VectorStoreQuery, limit: int, conditions: Conditions) -> list[tuple[Row, float]]:
        return self._ask(question, limit)

    def _dimension(self) -> int | None:
        return self._written_dimension

    def _having(self, key: str, value: str) -> Iterator[Row]:
        filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
        rows = map(row_of, self.vector_store.get_nodes(None, filters))
        return (row for row in rows if row.metadata.get(key) == value)
