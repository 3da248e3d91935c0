"""The nodes of an index in the embedded store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_pack_densex.stores.lance import LanceVectorStore
from llama_pack_densex.stores.lance_conditions import is_any_of, quote
from llama_pack_densex.stores.lance_rows import RECORD_COLUMNS, dimension_of, to_node, to_record, to_records, to_rows
from llama_pack_densex.stores.lance_table import NodeTable
from llama_pack_densex.stores.lance_version import TableVersion
from llama_pack_densex.stores.node_store import Contents, FoundNode, NodeStore, Tally
from llama_pack_densex.stores.passage_metadata import PassageMetadata
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord

_OURS = "granularity != ''"  # what others wrote into the same table stays out of the index


class LanceNodes(NodeStore):
    """Nodes in a `LanceVectorStore`. Each change is another version of its table, and seen as a whole or not at all.

    Who keeps the number of a version can go back to it, until `clean` removes it: see `roll_back`.

    Args:
        vector_store: The store; a new one in memory where it is None.
    """

    atomic = True
    needs_embeddings = False

    vector_store: LanceVectorStore

    def __init__(self, vector_store: LanceVectorStore | None = None) -> None:
        super().__init__()
        self.vector_store = vector_store if vector_store is not None else LanceVectorStore()

    @property
    def version(self) -> str:
        """The version of the table that is read and written on top of; "0" where there is no table yet."""
        return str(self._now.version)

    def replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode]) -> None:
        if not nodes:
            self.remove(document_ids)
            return
        try:
            self._table.replace(to_rows(nodes, dimension_of(nodes)), document_ids)
        finally:
            self._changed()

    def remove(self, document_ids: Sequence[str]) -> None:
        if not document_ids:
            return
        try:
            self._table.delete(is_any_of("document_id", document_ids))
        finally:
            self._changed()

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        return self.read(node_ids, ()).nodes

    def read(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        now = self._now
        rows = now.take(now.places_of({*node_ids, *record_ids}), ["id", "node"])
        contents = dict(zip(rows["id"].to_pylist(), rows["node"].to_pylist(), strict=True))
        return Contents(
            {node_id: to_node(contents[node_id]) for node_id in node_ids if node_id in contents},
            {node_id: to_record(contents[node_id]) for node_id in record_ids if node_id in contents},
        )

    async def aread(self, node_ids: Sequence[str], record_ids: Sequence[str]) -> Contents:
        return await asyncio.to_thread(self.read, node_ids, record_ids)

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        now, filters = self._now, question.filters
        allowed = self.passages_matching(filters) if filters is not None and filters.filters else None
        places, cosines = now.nearest(question.query_embedding, question.similarity_top_k, allowed)
        return now.loaded.found(places, cosines) if len(places) else []

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        condition = _OURS if granularity is None else f"granularity = {quote(granularity)}"
        for batch in self._now.scan(RECORD_COLUMNS, condition):
            yield from to_records(batch)

    def documents(self) -> dict[str, DocumentRecord]:
        documents: dict[str, DocumentRecord] = {}
        names = ["document_id", "document_hash", "file"]
        for batch in self._now.scan(names, "document_hash != ''"):
            ids, hashes, files = (batch.column(name).to_pylist() for name in names)
            for document_id, document_hash, file in zip(ids, hashes, files, strict=True):
                if document_id not in documents:
                    documents[document_id] = DocumentRecord(document_hash, file)
        return documents

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        batches = self._now.scan_any_of(["id"], "document_id", document_ids)
        return {node_id for batch in batches for node_id in batch.column("id").to_pylist()}

    def is_empty(self) -> bool:
        return not self._now.count(_OURS)

    def tally(self) -> Tally:
        documents: set[str] = set()
        granularities: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for batch in self._now.scan(["document_id", "granularity", "status"], _OURS):
            documents.update(pc.unique(batch.column("document_id")).to_pylist())
            granularities.update(_counted(batch.column("granularity")))
            passages = batch.filter(pc.equal(batch.column("granularity"), "passage"))
            statuses.update(_counted(passages.column("status")))
        del statuses[""]
        return Tally(len(documents), dict(granularities), dict(statuses))

    def roll_back(self, version: str) -> None:
        """Go on from a version, which may be another process's; what was written after it is left out.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        before = self._now
        try:
            self._table.roll_back(int(version))
        finally:
            if self._now is not before:
                self._changed()

    def reopen(self, version: str) -> None:
        """Read another version, which another process made.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        self._table.reopen(int(version))
        self._changed()

    def maintain(self) -> bool:
        """Do what upkeep of indices and files is due; to be called after each change, and quick where nothing is."""
        return self._table.maintain()

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of versions that are older than this, and what writers left that were killed.

        This is done directly after a `maintain` that returned True and after `compact`, and otherwise not; the version
        after those has to be the one that readers will open. Nobody else may be writing. Whoever still reads a version
        that is removed is told to load the index again.
        """
        self._table.clean(older_than)

    def compact(self) -> None:
        """Write all nodes and indices anew, as another version.

        After `clean(timedelta(0))` no file has anything of deleted or replaced nodes.
        """
        self._table.compact()

    def copy_to(self, folder: Path) -> str:
        """Write all nodes into an empty folder; returns the version of the table there."""
        return str(self._table.copy_to(folder))

    def bad_vectors(self) -> Iterator[tuple[str, str]]:
        if self._now.dimension is None:
            return
        for batch in self._now.scan(["id", "document_id", "vector"], _OURS):
            values = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
            lengths = np.linalg.norm(values.reshape(batch.num_rows, -1), axis=1)
            for place in np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0))).tolist():
                yield batch.column("id")[place].as_py(), batch.column("document_id")[place].as_py()

    def read_about(self) -> str | None:
        return self._table.note

    def write_about(self, about: str) -> bool:
        """Keep what made the index; where a folder's manifest says it, and names a version, that is enough."""
        if self._table.is_pinned:
            return False
        self._table.write_note(about)
        return True

    def _read_passage_metadata(self) -> PassageMetadata:
        rows = list(self._now.scan(["id", "metadata"], "granularity = 'passage'"))
        schema = pa.schema([("id", pa.string()), ("metadata", pa.string())])
        columns = pa.Table.from_batches(rows, schema)
        return PassageMetadata(columns["id"].combine_chunks(), columns["metadata"].combine_chunks())

    @property
    def _table(self) -> NodeTable:
        return self.vector_store.table

    @property
    def _now(self) -> TableVersion:
        return self.vector_store.table.now


def _counted(values: pa.Array) -> dict[Any, int]:
    return {one["values"]: one["counts"] for one in pc.value_counts(values).to_pylist()}
