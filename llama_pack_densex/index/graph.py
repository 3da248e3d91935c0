"""A graph (HNSW) over embeddings, and the embeddings themselves, in one file that all processes map.

The graph has a byte a number, which is enough to find candidates. They are then compared by the vectors
behind it, so that cosines are exact.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
Small World graphs", 2016; by usearch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llama_pack_densex.index.keywords import Rows

if TYPE_CHECKING:
    from usearch.index import Index

# Links of a row, and the candidates that usearch looks at for each row that it adds, and for each question
# at least. So the ten nearest are found to 0.99 among 50,000 real sentences and to 0.98 among a million
# made-up ones; with 192 for a question to 0.96 there.
_BUILDING = {"connectivity": 24, "expansion_add": 192}
_LEAST_EXPANSION = 256
_LEAST_CANDIDATES = 64  # with a byte a number, the nearest is not always before the next

Vectors = npt.NDArray[np.float32]
Cosines = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EmbeddedRows:
    """Rows with their embeddings.

    Args:
        rows: In order.
        vectors: Of the rows, of length 1.
    """

    rows: Rows
    vectors: Vectors

    def nearest(self, embedding: Vectors, limit: int) -> tuple[Rows, Cosines]:
        """The nearest rows, with their cosines, in any order.

        Args:
            embedding: Of length 1.
            limit: How many.
        """
        similarities = cosines(self.vectors, embedding)
        if len(self.rows) <= limit:
            return self.rows, similarities
        nearest = np.argpartition(-similarities, limit)[:limit]
        return self.rows[nearest], similarities[nearest]

    def compare(self, embedding: Vectors, wanted: Rows) -> tuple[Rows, Cosines]:
        """Those of some rows that are there, with their cosines.

        Args:
            embedding: Of length 1.
            wanted: The rows.
        """
        places = np.searchsorted(self.rows, wanted)
        places[places == len(self.rows)] = 0
        places = places[self.rows[places] == wanted] if len(self.rows) else places[:0]
        return self.rows[places], cosines(self.vectors[places], embedding)


@dataclass(frozen=True)
class Graph(EmbeddedRows):
    """Rows with their embeddings, and the links between them.

    Args:
        rows: In order.
        vectors: Of the rows, of length 1.
        links: Has the rows as keys.
    """

    links: Index

    def nearest(self, embedding: Vectors, limit: int) -> tuple[Rows, Cosines]:
        """Rows that are likely to be the nearest; more than are asked for."""
        candidates = max(limit, _LEAST_CANDIDATES)
        self.links.expansion_search = max(candidates, _LEAST_EXPANSION)
        matches = self.links.search(embedding, candidates, threads=1)
        return self.compare(embedding, matches.keys.astype(np.int64))

    def save(self, file: Path) -> int:
        """Write it into a file: the links as usearch writes them, then the rows, then the vectors; return
        where these begin, in bytes."""
        self.links.save(file)
        with file.open("ab") as stream:
            stream.write(bytes(-stream.tell() % self.rows.itemsize))
            self.rows.tofile(stream)
            vectors_at = stream.tell()
            self.vectors.tofile(stream)
        return vectors_at


def built_graph(
    pages: Iterable[tuple[Rows, Vectors]], earlier: Graph | None = None
) -> Graph | None:
    """A graph of some rows, and those of an earlier one, which stays as it is; None if there are no rows.

    Args:
        pages: Rows with their vectors, of length 1, in order; later than those of the earlier graph.
        earlier: The graph to go on with.
    """
    from usearch.index import Index

    links: Index | None = None
    rows: list[Rows] = []
    vectors: list[Vectors] = []
    if earlier is not None:
        links = Index.restore(earlier.links.save(), view=False, **_BUILDING)
        rows = [earlier.rows]
        vectors = [earlier.vectors]
    for page_rows, page_vectors in pages:
        if not len(page_rows):
            continue
        if links is None:
            # of length 1: the inner product is the cosine, and takes less time
            links = Index(ndim=page_vectors.shape[1], metric="ip", dtype="i8", **_BUILDING)
        links.add(page_rows.astype(np.uint64), page_vectors)
        rows.append(page_rows)
        vectors.append(page_vectors)
    if links is None:
        return None
    return Graph(np.concatenate(rows), np.concatenate(vectors), links)


def mapped_graph(file: Path, vectors_at: int) -> Graph:
    """The graph in a file; of a damaged one, usearch may read what is outside.

    Args:
        file: What `Graph.save` wrote.
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
    return Graph(rows, vectors, links)


def cosines(vectors: Vectors, embedding: Vectors) -> Cosines:
    """The cosines of an embedding with any number of vectors, all of length 1."""
    return (vectors @ embedding).astype(np.float64) if len(vectors) else np.empty(0)
