"""An HNSW graph over embeddings, and the embeddings themselves, in one file that all processes map.

The graph stores one byte per dimension, which is precise enough to find candidates. The candidates are then
compared by their full vectors, which follow the graph in the file, so the cosines are exact.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
Small World graphs", 2016; implemented by usearch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llama_pack_densex.index.keywords import Rows

if TYPE_CHECKING:
    from usearch.index import Index

# HNSW parameters: links per row, and the number of candidates examined when a row is added and (at least)
# when a question is searched. They give recall@10 of 0.99 on 50,000 real sentences and on a million
# synthetic ones (benchmarks/RESULTS.md).
_HNSW_PARAMETERS = {"connectivity": 32, "expansion_add": 192}
_LEAST_EXPANSION = 320
_ROWS_PER_COMPARISON = 16_384  # copying the vectors of all rows together would take too much memory
_DUPLICATE_OFFSET = 0.1  # offset (of a unit vector) at which a duplicate vector is inserted
_SELF_SEARCH_LIMIT = 4  # a row that can be found is among this many nearest to its own vector
_SELF_SEARCH_CANDIDATES = (16, 64)  # the second search is for the few rows that the first misses
_NEARLY_EQUAL = 0.98  # cosine; among many rows this close, a row need not be one of its own nearest
_LEAST_CANDIDATES = 64  # one byte per dimension does not always rank near neighbours correctly

Vectors = npt.NDArray[np.float32]
Cosines = npt.NDArray[np.float64]
Page = tuple[Rows, Vectors]
"""Rows in ascending order, with their vectors."""
Compared = tuple[Rows, Cosines]
"""Rows in any order, with their cosines to the query embedding."""


@dataclass(frozen=True)
class RowVectors:
    """Rows with their embeddings, searched by comparing every one of them.

    Args:
        rows: The rows, in ascending order.
        vectors: Their embeddings, unit-normalised.
    """

    rows: Rows
    vectors: Vectors

    def nearest(self, embedding: Vectors, limit: int) -> Compared:
        """Return the rows that are likely to be nearest to an embedding, in any order.

        Args:
            embedding: The query embedding, unit-normalised.
            limit: The number of rows to look for; a `Graph` may return more.
        """
        similarities = cosines(self.vectors, embedding)
        if len(similarities) <= limit:
            return self.rows, similarities
        nearest = np.argpartition(-similarities, limit)[:limit]
        return self.rows[nearest], similarities[nearest]

    def compare(self, embedding: Vectors, requested: Rows) -> Compared:
        """Compute the cosines of the requested rows; rows that this part does not hold are skipped.

        Args:
            embedding: The query embedding, unit-normalised.
            requested: The rows to compare, in any order.
        """
        rows = self.rows
        places = np.searchsorted(rows, requested)
        places[places == len(rows)] = 0
        places = places[rows[places] == requested] if len(rows) else places[:0]
        parts = np.split(places, range(_ROWS_PER_COMPARISON, len(places), _ROWS_PER_COMPARISON))
        similarities = [cosines(self.vectors[part], embedding) for part in parts]
        return rows[places], np.concatenate(similarities)


@dataclass(frozen=True)
class Graph(RowVectors):
    """Rows with their embeddings, searched by the HNSW links between them.

    Args:
        links: The usearch index; its keys are the rows.
        file: The file that the graph is mapped from; None if it is in memory.
    """

    links: Index
    file: Path | None = None

    def nearest(self, embedding: Vectors, limit: int) -> Compared:
        candidates = max(limit, _LEAST_CANDIDATES)
        self.links.expansion_search = max(candidates, _LEAST_EXPANSION)
        matches = self.links.search(embedding, candidates, threads=1)
        return self.compare(embedding, matches.keys.astype(np.int64))


@dataclass(frozen=True)
class GraphDraft:
    """A linked graph whose vectors are not kept in memory: a million of them take more than a gigabyte.

    Args:
        links: The usearch index of all rows.
        rows: The rows, in ascending order.
        earlier: The graph that this one extends, or None.
    """

    links: Index
    rows: Rows
    earlier: Graph | None

    @classmethod
    def of(cls, pages: Iterable[Page], earlier: Graph | None) -> GraphDraft | None:
        """Link new rows, in addition to those of an earlier graph, which is left unchanged.

        Args:
            pages: The new rows with their unit-normalised vectors, in ascending order, all after the rows of
                the earlier graph.
            earlier: The graph to extend, or None.

        Returns:
            The draft, or None if there are no rows at all.
        """
        links: Index | None = None
        rows: list[Rows] = []
        linked: set[int] = set()
        if earlier is not None:
            # a copy in memory, so that rows can be added
            source = earlier.links.save() if earlier.file is None else earlier.file
            links = _index_class().restore(source, view=False, **_HNSW_PARAMETERS)
            rows.append(earlier.rows)
        for page_rows, page_vectors in pages:
            if not len(page_rows):
                continue
            if links is None:
                # for unit vectors the inner product is the cosine, and faster
                dimension = page_vectors.shape[1]
                links = _index_class()(ndim=dimension, metric="ip", dtype="i8", **_HNSW_PARAMETERS)
            _link(
                links, page_rows.astype(np.uint64), _with_shifted_duplicates(page_vectors, linked)
            )
            rows.append(page_rows)
        return None if links is None else cls(links, np.concatenate(rows), earlier)

    def save(self, file: Path, pages: Iterable[Page]) -> int:
        """Write the graph to a file: the links in usearch's format, then the rows, then the vectors.

        Args:
            file: The file to write.
            pages: The same pages as were passed to `of`.

        Returns:
            The offset of the vectors in the file, in bytes.

        Raises:
            OSError, RuntimeError: The file cannot be written.
        """
        self.links.save(file)
        with file.open("ab") as stream:
            stream.write(bytes(-stream.tell() % self.rows.itemsize))
            self.rows.tofile(stream)
            vectors_at = stream.tell()
            for vectors in self._vectors(pages):
                vectors.tofile(stream)
        return vectors_at

    def graph(self, pages: Iterable[Page]) -> Graph:
        """Return the graph, held in memory; `pages` are the same as were passed to `of`."""
        return Graph(self.rows, np.concatenate([*self._vectors(pages)]), self.links)

    def _vectors(self, pages: Iterable[Page]) -> Iterator[Vectors]:
        if self.earlier is not None:
            yield self.earlier.vectors
        for _, vectors in pages:
            yield vectors


def _index_class() -> Any:
    """Return usearch's class, after FAISS was loaded if it is installed: in a process that loads it later,
    `faiss.index_factory` crashes (usearch 2.26.6, faiss-cpu 1.15.1).
    """
    if find_spec("faiss"):
        import faiss  # noqa: F401
    from usearch.index import Index

    return Index


def _link(links: Index, keys: npt.NDArray[np.uint64], vectors: Vectors) -> None:
    """Add rows to the graph, and add again those that a search for their own vector does not find.

    When several threads add rows concurrently, usearch occasionally leaves a row without any link to it: with
    two threads, up to 5 of 6,000 rows.
    """
    links.add(keys, vectors)
    missed = np.arange(len(keys))
    for candidates in _SELF_SEARCH_CANDIDATES:
        links.expansion_search = candidates
        matches = links.search(vectors[missed], _SELF_SEARCH_LIMIT)
        nearest = matches.keys.reshape(len(missed), -1)
        is_missed = ~(nearest == keys[missed, None]).any(axis=1)
        missed = missed[is_missed]
        nearest = nearest[is_missed]
        if not len(missed):
            return
    neighbours = np.vstack(links.get(nearest[:, 0])).astype(np.float32)
    neighbours /= np.linalg.norm(neighbours, axis=1, keepdims=True)
    similarities = np.sum(neighbours * vectors[missed], axis=1)
    unreachable = missed[similarities < _NEARLY_EQUAL]
    if len(unreachable):
        links.remove(keys[unreachable])
        links.add(keys[unreachable], vectors[unreachable], threads=1)


def _with_shifted_duplicates(vectors: Vectors, linked: set[int]) -> Vectors:
    """Return the vectors to insert into the graph: a duplicate of an earlier vector is shifted a little.

    Hundreds of identical vectors would link only to each other, and a search that reaches one of them would
    find nothing else. Shifting affects only the links: candidates are compared by their real vectors.

    Args:
        vectors: The vectors, unit-normalised.
        linked: The hashes of the vectors inserted so far; those of `vectors` are added to it.
    """
    repeated: list[int] = []
    for place, vector in enumerate(vectors):
        key = hash(vector.tobytes())
        if key in linked:
            repeated.append(place)
        linked.add(key)
    if not repeated:
        return vectors
    shape = (len(repeated), vectors.shape[1])
    shifts = np.random.default_rng(len(linked)).standard_normal(shape)
    shifted = vectors[repeated] + _DUPLICATE_OFFSET / np.sqrt(shape[1]) * shifts
    to_insert = vectors.copy()
    to_insert[repeated] = shifted / np.linalg.norm(shifted, axis=1, keepdims=True)
    return to_insert


def mapped_graph(file: Path, vectors_at: int) -> Graph:
    """Map the graph in a file, which must be intact: usearch may read out of bounds in a damaged one.

    Args:
        file: A file that `GraphDraft.save` wrote.
        vectors_at: The offset of the vectors that it returned.

    Raises:
        OSError: The file cannot be read.
        RuntimeError: The file does not contain a graph.
        ValueError: The vectors are incomplete.
    """
    links = _index_class().restore(file, view=True)
    if links is None:
        raise RuntimeError("no graph is in the file")
    rows_at = vectors_at - len(links) * np.dtype(np.int64).itemsize
    rows = np.memmap(file, np.int64, "r", rows_at, (len(links),))
    vectors = np.memmap(file, np.float32, "r", vectors_at, (len(links), links.ndim))
    return Graph(rows, vectors, links, file)


def cosines(vectors: Vectors, embedding: Vectors) -> Cosines:
    """Return the cosine of an embedding with each vector; all of them are unit-normalised."""
    return (vectors @ embedding).astype(np.float64) if len(vectors) else np.empty(0)
