"""What is kept in memory of a table: where each node's row is, and the embeddings where they are not too many."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from llama_pack_densex.stores.node_store import FoundNode

MOST_BYTES = 512 * 2**20
"""Embeddings that take more than this are not loaded: 350,000 of 384 dimensions, 87,000 of 1,536."""

Places = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]
_ROW = "_rowid"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Chosen:
    """Some rows of a table.

    Args:
        mask: For each row whether it is among them.
        places: Where they are, in ascending order.
    """

    mask: npt.NDArray[np.bool_]
    places: Places


@dataclass(frozen=True)
class LoadedTable:
    """All rows of one version of a table, in about 70 bytes each besides their embeddings.

    A row is named by its place, from 0 in the order of writing.

    Args:
        ids: The nodes' ids; an Arrow array.
        granularities: An Arrow dictionary array.
        passage_ids: An Arrow dictionary array.
        row_ids: LanceDB's numbers of the rows, by which it reads them fastest.
        digests: Of the ids, in ascending order.
        order: The places of the digests.
        vectors: The embeddings with lengths of 1, shape (rows, dimension), NaN for embeddings of length 0; None where
            there are none or too many.
    """

    ids: pa.Array
    granularities: pa.DictionaryArray
    passage_ids: pa.DictionaryArray
    row_ids: npt.NDArray[np.uint64]
    digests: Digests
    order: npt.NDArray[np.uint32]
    vectors: npt.NDArray[np.float32] | None

    @classmethod
    def read(cls, table: Any, dimension: int | None) -> LoadedTable:
        """Read a LanceDB table.

        Args:
            table: It has the columns "id", "granularity" and "passage_id".
            dimension: Of the embeddings in its column "vector"; None where it has none.
        """
        rows = table.count_rows()
        with_vectors = dimension is not None and 4 * dimension * rows <= MOST_BYTES
        vectors = np.empty((rows, dimension), dtype=np.float32) if with_vectors and dimension is not None else None
        names = ["id", "granularity", "passage_id"]
        kept: list[pa.RecordBatch] = []
        there = 0
        search = table.search().with_row_id(True).select([*names, "vector"] if with_vectors else names)
        for batch in search.to_batches(batch_size=_ROWS_A_BATCH):
            if vectors is not None:
                values = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
                units(values.reshape(-1, vectors.shape[1]), vectors[there : there + batch.num_rows])
            there += batch.num_rows
            kept.append(batch.select([*names, _ROW]))
        schema = pa.schema([*((name, pa.string()) for name in names), (_ROW, pa.uint64())])
        columns = pa.Table.from_batches(kept, schema)
        digests = np.concatenate([np.zeros(0, np.uint64), *(digests_of(part) for part in columns["id"].chunks)])
        order = np.argsort(digests).astype(np.uint32)
        return cls(
            ids=_joined(columns["id"].cast(pa.large_string())),
            granularities=_joined(columns["granularity"]).dictionary_encode(),
            passage_ids=_joined(columns["passage_id"].cast(pa.large_string())).dictionary_encode(),
            row_ids=columns[_ROW].to_numpy(),
            digests=digests[order],
            order=order,
            vectors=vectors,
        )

    def nearest(
        self, embedding: Sequence[float], limit: int, chosen: Chosen | None = None
    ) -> tuple[Places, npt.NDArray[np.float32]]:
        """The rows nearest to an embedding, nearest first, with their cosines; of equal ones those written first.

        Args:
            embedding: Of the table's dimension.
            limit: How many.
            chosen: Which rows; None means all.
        """
        assert self.vectors is not None
        if chosen is None:
            return best_of(self.vectors @ unit(embedding), limit)
        if 4 * len(chosen.places) > len(self.vectors):  # reading all is quicker than picking so many
            cosines = self.vectors @ unit(embedding)
            cosines[~chosen.mask] = np.nan
            return best_of(cosines, limit)
        places, cosines = best_of(self.vectors[chosen.places] @ unit(embedding), limit)
        return chosen.places[places], cosines

    def found(self, places: Places, scores: Sequence[float] | npt.NDArray[np.floating[Any]]) -> list[FoundNode]:
        """What is found in some rows."""
        rows = pa.array(places)
        columns = (self.ids, self.granularities, self.passage_ids)
        names = [column.take(rows).to_pylist() for column in columns]
        return list(map(FoundNode, *names, np.asarray(scores, dtype=float).tolist()))

    def places_of(self, node_ids: Collection[str]) -> Places:
        """Where the rows of some nodes are, in the order of the table."""
        wanted = pa.array(node_ids, pa.string())
        sought = np.sort(digests_of(wanted.unique()))
        starts = np.searchsorted(self.digests, sought)
        stops = np.searchsorted(self.digests, sought, side="right")
        places = np.sort(self.order[_ranges(starts, stops)].astype(np.int64))
        same = pc.is_in(self.ids.take(pa.array(places)).cast(pa.string()), value_set=wanted)  # digests can agree
        chosen: Places = places[same.to_numpy(zero_copy_only=False)]
        return chosen

    def leading_to(self, passage_ids: Collection[str]) -> Chosen:
        """Some passages and what leads to them."""
        wanted = pa.array(passage_ids, pa.large_string())
        codes = pc.index_in(wanted, value_set=self.passage_ids.dictionary).drop_null().to_numpy()
        allowed = np.zeros(len(self.passage_ids.dictionary) + 1, dtype=bool)
        allowed[codes] = True
        mask = allowed[self.passage_ids.indices.to_numpy()]
        mask[self.places_of(passage_ids)] = True
        return Chosen(mask, np.flatnonzero(mask))

    def places_of_rows(self, row_ids: npt.NDArray[np.uint64]) -> Places:
        """Where the rows are that LanceDB names."""
        return self._by_row[np.searchsorted(self.row_ids, row_ids, sorter=self._by_row)]

    @cached_property
    def _by_row(self) -> Places:
        return np.argsort(self.row_ids, kind="stable")


def unit(embedding: Sequence[float]) -> npt.NDArray[np.float32]:
    """An embedding with a length of 1; NaN for one of length 0, to which nothing is near."""
    wanted = np.asarray(embedding, dtype=np.float32)
    return (wanted / (float(np.linalg.norm(wanted)) or np.nan)).astype(np.float32)


def units(vectors: npt.NDArray[np.float32], out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
    """Embeddings, shape (rows, dimension), with lengths of 1; NaN for those of length 0."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    lengths[lengths == 0] = np.nan
    scaled: npt.NDArray[np.float32] = np.divide(vectors, lengths[:, None], out=out)
    return scaled


def best_of(cosines: npt.NDArray[np.float32], limit: int) -> tuple[Places, npt.NDArray[np.float32]]:
    """The places of the greatest, greatest first, with their values; of equal ones the first come first.

    Args:
        cosines: NaN where there is nothing to find; may be written to.
        limit: How many.
    """
    np.nan_to_num(cosines, copy=False, nan=-np.inf)
    least = np.partition(cosines, -limit)[-limit] if 0 < limit < len(cosines) else np.float32(-np.inf)
    best = np.flatnonzero((cosines >= least) & (cosines > -np.inf))
    best = best[np.argsort(-cosines[best], kind="stable")][:limit]
    return best, np.clip(cosines[best], -1, 1)


def are_in(sought: Digests, digests: Digests) -> npt.NDArray[np.bool_]:
    """For each digest whether it is among others, which are in ascending order."""
    if not len(digests):
        return np.zeros(len(sought), dtype=bool)
    found: npt.NDArray[np.bool_] = digests[np.searchsorted(digests, sought) % len(digests)] == sought
    return found


def digests_of(texts: pa.StringArray) -> Digests:
    """A number for each text, which hardly any two texts share; a polynomial of its bytes, modulo 2^64."""
    _, offset_bytes, content = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(offset_bytes, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    values = np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    powers = np.multiply.accumulate(np.full(max(int(lengths.max()), 1), _FACTOR))
    values *= powers[np.arange(len(values)) - np.repeat(starts - offsets[0], lengths)]
    digests = np.zeros(len(texts), np.uint64)
    full = np.flatnonzero(lengths)
    if len(full):
        digests[full] = np.add.reduceat(values, starts[full] - offsets[0])
    return digests


_ROWS_A_BATCH = 8192


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _ranges(starts: Places, stops: Places) -> Places:
    """The numbers from each start up to its stop, one after another."""
    lengths = stops - starts
    shifts: Places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return np.arange(len(shifts)) + shifts
