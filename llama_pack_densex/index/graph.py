"""A graph (HNSW) over embeddings, and the embeddings themselves, in one file that all processes map.

The graph has a byte a number, which is enough to find candidates. They are then compared by the vectors
behind it, so that cosines are exact.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
Small World graphs", 2016; by usearch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llama_pack_densex.index.keywords import Rows

if TYPE_CHECKING:
    from usearch.index import Index

# Links of a row, and the candidates that usearch looks at for each row that it adds, and for each question
# at least. So the ten nearest of 50,000 real sentences are found to 0.99; of a million made-up ones to 0.98,
# measured with 24 links (benchmarks/RESULTS.md).
_BUILDING = {"connectivity": 32, "expansion_add": 192}
_LEAST_EXPANSION = 256
_ROWS_AT_ONCE = 16_384  # that are compared: of all, a copy would take too much memory
_ASIDE = 0.1  # how far from its place a vector is linked that was linked before
_ITS_OWN = 4  # of a row's nearest, among which it is itself
_ALIKE = 0.98  # a cosine; among many that are so near, a row may not be one of its own nearest
_LEAST_CANDIDATES = 64  # with a byte a number, the nearest is not always before the next

Vectors = npt.NDArray[np.float32]
Cosines = npt.NDArray[np.float64]
Page = tuple[Rows, Vectors]
"""Some rows, in order, with their vectors."""
Compared = tuple[Rows, Cosines]
"""Some rows, in any order, with their cosines."""


@dataclass(frozen=True)
class RowVectors:
    """Rows with their embeddings, which are compared one by one.

    Args:
        rows: In order.
        vectors: Of the rows, of length 1.
    """

    rows: Rows
    vectors: Vectors

    def nearest(self, embedding: Vectors, limit: int) -> Compared:
        """Rows that are likely to be the nearest.

        Args:
            embedding: Of length 1.
            limit: How many.
        """
        similarities = cosines(self.vectors, embedding)
        if len(similarities) <= limit:
            return self.rows, similarities
        nearest = np.argpartition(-similarities, limit)[:limit]
        return self.rows[nearest], similarities[nearest]

    def compare(self, embedding: Vectors, wanted: Rows) -> Compared:
        """Those of some rows that are there.

        Args:
            embedding: Of length 1.
            wanted: The rows.
        """
        rows = self.rows
        places = np.searchsorted(rows, wanted)
        places[places == len(rows)] = 0
        places = places[rows[places] == wanted] if len(rows) else places[:0]
        parts = np.split(places, range(_ROWS_AT_ONCE, len(places), _ROWS_AT_ONCE))
        similarities = [cosines(self.vectors[part], embedding) for part in parts]
        return rows[places], np.concatenate(similarities)


@dataclass(frozen=True)
class Graph(RowVectors):
    """Rows with their embeddings, and the links between them.

    Args:
        links: Has the rows as keys.
        file: What it is mapped from; None means that it is in memory.
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
    """A graph whose vectors are yet to be read: a million of them are more than a gigabyte.

    Args:
        links: Of all rows.
        rows: In order.
        earlier: The graph that it goes on with, or None.
    """

    links: Index
    rows: Rows
    earlier: Graph | None

    @classmethod
    def of(cls, pages: Iterable[Page], earlier: Graph | None) -> GraphDraft | None:
        """Link some rows, and those of an earlier graph, which stays as it is; None if there are no rows.

        Args:
            pages: Rows and their vectors, of length 1, in order; later than those of the earlier graph.
            earlier: The graph to go on with.
        """
        from usearch.index import Index

        links: Index | None = None
        rows: list[Rows] = []
        linked: set[int] = set()
        if earlier is not None:
            # a copy in memory, to add to it
            source = earlier.links.save() if earlier.file is None else earlier.file
            links = Index.restore(source, view=False, **_BUILDING)
            rows.append(earlier.rows)
        for page_rows, page_vectors in pages:
            if not len(page_rows):
                continue
            if links is None:
                # of length 1: the inner product is the cosine, and takes less time
                links = Index(ndim=page_vectors.shape[1], metric="ip", dtype="i8", **_BUILDING)
            _link(links, page_rows.astype(np.uint64), _apart(page_vectors, linked))
            rows.append(page_rows)
        return None if links is None else cls(links, np.concatenate(rows), earlier)

    def save(self, file: Path, pages: Iterable[Page]) -> int:
        """Write the graph into a file: the links as usearch writes them, then the rows, then the vectors.

        Args:
            file: The file.
            pages: The same as before.

        Returns:
            Where the vectors begin, in bytes.

        Raises:
            OSError, RuntimeError: It cannot be written.
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
        """The graph in memory; `pages` are the same as before."""
        return Graph(self.rows, np.concatenate([*self._vectors(pages)]), self.links)

    def _vectors(self, pages: Iterable[Page]) -> Iterator[Vectors]:
        if self.earlier is not None:
            yield self.earlier.vectors
        for _, vectors in pages:
            yield vectors


def _link(links: Index, keys: npt.NDArray[np.uint64], vectors: Vectors) -> None:
    """Add rows, and those that no search reaches once more.

    Threads that add at once now and then leave a row without a link to it: of 6,000 rows two threads up to 5.
    """
    links.add(keys, vectors)
    links.expansion_search = _LEAST_CANDIDATES
    nearest = links.search(vectors, _ITS_OWN).keys.reshape(len(keys), -1)
    missed = np.flatnonzero(~(nearest == keys[:, None]).any(axis=1))
    if not len(missed):
        return
    neighbours = np.vstack(links.get(nearest[missed, 0])).astype(np.float32)
    neighbours /= np.linalg.norm(neighbours, axis=1, keepdims=True)
    similarities = np.sum(neighbours * vectors[missed], axis=1)
    lost = missed[similarities < _ALIKE]
    if len(lost):
        links.remove(keys[lost])
        links.add(keys[lost], vectors[lost], threads=1)


def _apart(vectors: Vectors, linked: set[int]) -> Vectors:
    """Vectors as they are linked: those that were linked before a little aside.

    Hundreds of equal ones would have links to one another alone, and a search that comes among them finds
    nothing else. What is found is compared by the vectors as they are.

    Args:
        vectors: Of length 1.
        linked: The hashes of those that were linked before, to which these are added.
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
    shifted = vectors[repeated] + _ASIDE / np.sqrt(shape[1]) * shifts
    apart = vectors.copy()
    apart[repeated] = shifted / np.linalg.norm(shifted, axis=1, keepdims=True)
    return apart


def mapped_graph(file: Path, vectors_at: int) -> Graph:
    """The graph in a file; of a damaged one, usearch may read what is outside.

    Args:
        file: What `GraphDraft.save` wrote.
        vectors_at: What it returned.

    Raises:
        OSError: The file cannot be read.
        RuntimeError: It is no graph.
        ValueError: The vectors are not complete.
    """
    from usearch.index import Index

    links = Index.restore(file, view=True)
    if links is None:
        raise RuntimeError("no graph is in the file")
    rows_at = vectors_at - len(links) * np.dtype(np.int64).itemsize
    rows = np.memmap(file, np.int64, "r", rows_at, (len(links),))
    vectors = np.memmap(file, np.float32, "r", vectors_at, (len(links), links.ndim))
    return Graph(rows, vectors, links, file)


def cosines(vectors: Vectors, embedding: Vectors) -> Cosines:
    """The cosines of an embedding with any number of vectors, all of length 1."""
    return (vectors @ embedding).astype(np.float64) if len(vectors) else np.empty(0)
