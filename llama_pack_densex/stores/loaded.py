"""A table's embeddings in memory, searched exactly."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MOST_BYTES = 512 * 2**20
"""Embeddings that take more than this are not loaded: 350,000 of 384 dimensions, 87,000 of 1,536."""

Places = npt.NDArray[np.int64]
_ROW = "_rowid"


@dataclass(frozen=True)
class LoadedTable:
    """All rows of a table without their nodes: LanceDB reads every embedding anew for each search, this does not.

    Args:
        columns: The columns that are kept, among them "id", "passage_id" and LanceDB's row ids.
        vectors: The embeddings; shape (rows, dimension).
        scales: What makes the embeddings' lengths 1; NaN for embeddings of length 0, which nothing is near to.
    """

    columns: pa.Table
    vectors: npt.NDArray[np.float32]
    scales: npt.NDArray[np.float32]

    @classmethod
    def read(cls, table: Any, columns: Sequence[str], dimension: int) -> LoadedTable:
        """Read a LanceDB table.

        Args:
            table: It has a column "vector".
            columns: The columns to keep beside.
            dimension: Of the embeddings.
        """
        kept: list[pa.RecordBatch] = []
        parts = [np.zeros((0, dimension), dtype=np.float32)]
        for batch in table.search().with_row_id(True).select([*columns, "vector"]).to_batches():
            values = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
            parts.append(values.astype(np.float32, copy=False).reshape(-1, dimension))
            kept.append(batch.select([*columns, _ROW]))
        vectors = np.concatenate(parts)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        scales = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1), np.nan).astype(np.float32)
        schema = pa.schema([*((name, pa.string()) for name in columns), (_ROW, pa.uint64())])
        return cls(pa.Table.from_batches(kept, schema).combine_chunks(), vectors, scales)

    def nearest(
        self, embedding: Sequence[float], limit: int, passage_ids: Iterable[str] | None = None
    ) -> tuple[Places, npt.NDArray[np.float32]]:
        """The rows nearest to an embedding, nearest first, with their cosines; of equal ones those written first.

        Args:
            embedding: Of the table's dimension.
            limit: How many.
            passage_ids: Only these passages and what leads to them; None means all rows.
        """
        wanted = np.asarray(embedding, dtype=np.float32)
        length = np.float32(np.linalg.norm(wanted))
        cosines = (self.vectors @ (wanted / (length or np.float32(np.nan)))) * self.scales
        there = np.isfinite(cosines)
        if passage_ids is not None:
            there &= self._are(passage_ids, "passage_id", "id")
        places: Places = np.flatnonzero(there)
        if 0 < limit < len(places):
            least = np.partition(cosines[places], -limit)[-limit]
            places = places[cosines[places] >= least]
        best = places[np.argsort(-cosines[places], kind="stable")][:limit]
        return best, np.clip(cosines[best], -1, 1)

    def rows(self, table: Any, places: Places, columns: list[str]) -> pa.Table | None:
        """Some columns of some rows, in the order of `places`.

        Args:
            table: The table that this was read from; asked for columns that are not kept.
            places: Which rows.
            columns: Which columns.

        Returns:
            An Arrow table; None where the table changed meanwhile and lacks some of the rows.
        """
        if set(columns) <= set(self.columns.column_names):
            return self.columns.select(columns).take(places)
        if not len(places):
            return pa.table({name: pa.array([], pa.string()) for name in columns})
        ids, row_ids = self.columns["id"].take(places), self.columns[_ROW].take(places).to_pylist()
        rows = table.take_row_ids(row_ids).select(list(dict.fromkeys(["id", *columns]))).to_arrow()
        order = pc.index_in(ids, value_set=rows["id"].combine_chunks())
        return None if order.null_count else rows.select(columns).take(order)

    def places_of(self, node_ids: Sequence[str]) -> Places:
        """Where the rows of some nodes are, in the order of the table."""
        return np.flatnonzero(self._are(node_ids, "id"))

    def _are(self, values: Iterable[str], *names: str) -> npt.NDArray[np.bool_]:
        wanted = pa.array(list(values), pa.string())
        found = np.zeros(len(self.vectors), dtype=bool)
        for name in names:
            found |= pc.is_in(self.columns[name], value_set=wanted).to_numpy()
        return found


class Unchanged:
    """The time in which a table does not change, and what was loaded in it, by the first thread that asks.

    Attributes:
        loaded: None where nothing was asked yet, and for a table that is too large.
    """

    def __init__(self) -> None:
        self.loaded: LoadedTable | None = None
        self._loading = threading.Lock()

    def load(self, table: Any, columns: Sequence[str], dimension: int) -> LoadedTable | None:
        """What is loaded; None where it would be too large."""
        with self._loading:
            if self.loaded is None and 4 * dimension * table.count_rows() <= MOST_BYTES:
                self.loaded = LoadedTable.read(table, columns, dimension)
            return self.loaded
