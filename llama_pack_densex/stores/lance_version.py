"""One version of a LanceDB table, as it is read."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llama_pack_densex.stores.lance_conditions import any_of
from llama_pack_densex.stores.lance_rows import ROWS_A_BATCH, dimension_in
from llama_pack_densex.stores.loaded import Chosen, LoadedTable, Places, best_of, unit, units
from llama_pack_densex.stores.manifest import InvalidIndexError, VersionGoneError

NPROBES = 100
"""Partitions of the vector index that a question is compared with: see `lance_upkeep` for how many there are."""

Cosines = npt.NDArray[np.floating[Any]]
_FEW_ROWS = 5_000  # so many embeddings are read and compared when filters leave no more
_VERSION_GONE = "no longer exists"  # what LanceDB says of a version whose files were removed


class TableVersion:
    """A version of the table; it does not change, whatever is written meanwhile, here or by another process.

    Args:
        connection: LanceDB's.
        name: The table's.
        uri: What errors call the index.
        version: Which version; 0 for the time before there was a table.

    Raises:
        InvalidIndexError: The version is not there any more, or its files are damaged.
    """

    def __init__(self, connection: Any, name: str, uri: str, version: int) -> None:
        self.version, self.uri = version, uri
        self.table: Any = None
        self.dimension: int | None = None
        self._connection, self._name = connection, name
        self._loading = threading.Lock()
        self._loaded: LoadedTable | None = None
        self._last_chosen: tuple[frozenset[str], Chosen] | None = None
        if version:
            with self.reading():
                self.table = connection.open_table(name, version=version)
                self.dimension = dimension_in(self.table.schema)

    @property
    def loaded(self) -> LoadedTable:
        """What is kept in memory of it, read by the first thread that asks."""
        with self._loading:
            if self._loaded is None:
                with self.reading():
                    self._loaded = LoadedTable.read(self.table, self.dimension)
            return self._loaded

    def count(self, condition: str | None = None) -> int:
        """How many rows there are."""
        if self.table is None:
            return 0
        with self.reading():
            return int(self.table.count_rows(condition))

    def scan(self, columns: Sequence[str], condition: str | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, or of those that meet a condition, a batch at a time."""
        if self.table is None:
            return
        search = self.table.search().select(list(columns))
        if condition:
            search = search.where(condition)
        with self.reading():
            yield from search.to_batches(batch_size=ROWS_A_BATCH)

    def scan_any_of(self, columns: Sequence[str], column: str, values: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows that have one of some values in a column."""
        for condition in any_of(column, values):
            yield from self.scan(columns, condition)

    def places_of(self, node_ids: Collection[str]) -> Places:
        """Where the rows of some nodes are."""
        return self.loaded.places_of(node_ids) if self.table is not None and node_ids else np.zeros(0, np.int64)

    def take(self, places: Places, columns: Sequence[str]) -> pa.Table:
        """Some columns of the rows at some places, in the order of the places."""
        if not len(places):
            return pa.table({name: pa.array([], pa.string()) for name in columns})
        wanted = self.loaded.row_ids[places]
        with self.reading():
            rows = self.table.take_row_ids(wanted.tolist()).with_row_id().select(list(columns)).to_arrow()
        there = rows["_rowid"].to_numpy()
        by_row = np.argsort(there)
        return rows.select(list(columns)).take(by_row[np.searchsorted(there, wanted, sorter=by_row)])

    def nearest(
        self, embedding: Sequence[float] | None, limit: int, passage_ids: frozenset[str] | None = None
    ) -> tuple[Places, Cosines]:
        """The rows nearest to an embedding, nearest first, with their cosines.

        Args:
            embedding: Of the table's dimension.
            limit: How many; fewer are returned only where there are no more.
            passage_ids: Only these passages and what leads to them; None means all rows.

        Raises:
            ValueError: There is no embedding, or it has another dimension.
        """
        if not self._can_search(embedding, limit):
            return _NOTHING
        assert embedding is not None
        chosen = None if passage_ids is None else self._leading_to(passage_ids)
        if self.loaded.vectors is not None:
            return self.loaded.nearest(embedding, limit, chosen)
        if chosen is None:
            return self._search(embedding, limit)
        if not len(chosen.places):
            return _NOTHING
        if len(chosen.places) <= _FEW_ROWS:
            places, cosines = best_of(self._vectors_at(chosen.places) @ unit(embedding), limit)
            return chosen.places[places], cosines
        # what is dropped is made up for beforehand, since a second search takes as long as the first
        asked = int(1.2 * limit * len(chosen.mask) / len(chosen.places)) + 8
        while True:
            places, cosines = self._search(embedding, asked)
            kept = chosen.mask[places]
            if kept.sum() >= limit or len(places) < asked:
                return places[kept][:limit], cosines[kept][:limit]
            asked *= 4

    def nearest_where(self, embedding: Sequence[float] | None, limit: int, condition: str) -> tuple[Places, Cosines]:
        """As `nearest`, of the rows that meet a condition."""
        if not self._can_search(embedding, limit):
            return _NOTHING
        assert embedding is not None
        return self._search(embedding, limit, condition)

    def _leading_to(self, passage_ids: frozenset[str]) -> Chosen:
        last = self._last_chosen
        if last is None or last[0] is not passage_ids:  # the same filters mean the same object
            last = self._last_chosen = passage_ids, self.loaded.leading_to(passage_ids)
        return last[1]

    def _vectors_at(self, places: Places) -> npt.NDArray[np.float32]:
        """Embeddings with lengths of 1; shape (places, dimension)."""
        column = self.take(places, ["vector"])["vector"].combine_chunks()
        return units(column.flatten().to_numpy(zero_copy_only=False).reshape(len(places), -1))

    def _can_search(self, embedding: Sequence[float] | None, limit: int) -> bool:
        if self.table is None or limit <= 0:
            return False
        if embedding is None or self.dimension is None:
            if self.dimension is None and not self.count():
                return False
            raise ValueError("a vector query needs a query embedding, and a store whose nodes have embeddings")
        if len(embedding) != self.dimension:
            raise ValueError(
                f"the query has {len(embedding)} dimensions, the index {self.dimension}: it was made with "
                "another embedding model; use that one, or build the index anew"
            )
        return True

    def _search(
        self, embedding: Sequence[float], limit: int, condition: str = "", exactly: bool = False
    ) -> tuple[Places, Cosines]:
        search = self.table.search(list(embedding), vector_column_name="vector").distance_type("cosine")
        if condition:
            search = search.where(condition, prefilter=True)
        # of few rows each is compared; an index would be searched in vain for most of its partitions
        exactly = exactly or bool(condition)
        search = search.bypass_vector_index() if exactly else search.nprobes(NPROBES)
        limit = min(limit, len(self.loaded.row_ids))
        if not limit:
            return _NOTHING
        with self.reading():
            rows = search.with_row_id(True).select(["_distance"]).limit(limit).to_arrow()
        if len(rows) < limit and not exactly:  # the partitions that were searched have no more
            return self._search(embedding, limit, exactly=True)
        cosines = np.clip(1.0 - rows["_distance"].to_numpy().astype(np.float64), -1, 1)
        return self.loaded.places_of_rows(rows["_rowid"].to_numpy()), cosines

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what LanceDB raises over missing and damaged files into an error that names the index."""
        try:
            yield
        except BaseException as error:
            # a damaged file can make the Rust library panic, which is no Exception and has no importable class
            if isinstance(error, InvalidIndexError) or not (
                isinstance(error, (OSError, RuntimeError, ValueError)) or type(error).__name__ == "PanicException"
            ):
                raise
            if self._is_gone():
                raise VersionGoneError(
                    f"the index in {self.uri} was compacted since it was opened, and the files of its earlier version "
                    "are gone: load the index again."
                ) from error
            raise InvalidIndexError(
                f"the index in {self.uri} cannot be read: a file in it is damaged or missing "
                f"({type(error).__name__}). Build the index anew, or restore the folder from a backup."
            ) from error

    def _is_gone(self) -> bool:
        """Whether the table is there, but not this version of it."""
        try:
            self._connection.open_table(self._name)
            self._connection.open_table(self._name, version=self.version)
        except (OSError, RuntimeError, ValueError) as error:
            return _VERSION_GONE in str(error)
        return False


_NOTHING: tuple[Places, Cosines] = np.zeros(0, np.int64), np.zeros(0)
