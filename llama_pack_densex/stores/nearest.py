"""The nearest of many embeddings: a graph (HNSW) over most of them, and the others compared one by one.

All embeddings are in the database, as they were made. The graph is derived from them: a file that is written once, that
all processes map, and that can be made anew at any time. It has a byte a number; what it finds is compared again by the
embeddings themselves, so that scores are exact, and only what was deleted since has to be left out. Rows that came
after it are held in memory, until there are enough for another graph.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World
graphs", 2016; by usearch.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llama_pack_densex.stores.database import Database, get_note, number_lists, set_note
from llama_pack_densex.stores.keywords import Rows
from llama_pack_densex.text.terminal import plain_logger

if TYPE_CHECKING:
    from usearch.index import Index

logger = plain_logger(__name__)

SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);"

MOST_COMPARED = 8_000
"""Rows outside the graph, from which on it takes them in: comparing so many takes a millisecond."""
MOST_COMPARED_MIDWAY = 100_000
"""The same while much is written, when few questions come in between."""
_MOST_REMOVED = 0.2  # of a graph's rows, before it is made anew
_LINKS = 16  # of a row in the graph, twice as many on the lowest level
_LOOKED_AT_BUILDING = 64
_LOOKED_AT = 1.25  # times what is asked for, when searching
_ROWS_A_PAGE = 4_096
_NOTE = "graph"
_SUFFIX = ".hnsw"

Vectors = npt.NDArray[np.float32]
Cosines = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GraphNote:
    """What the database says about its graph.

    Args:
        name: The file's name; empty for a database in memory.
        rows: How many rows it has.
        last_row: The last of them; later ones are not in it.
        size: The file's size, in bytes.
        checksum: What its content adds up to.
        removed: How many of its rows were deleted since.
    """

    name: str
    rows: int
    last_row: int
    size: int = 0
    checksum: int = 0
    removed: int = 0


class VectorTable:
    """The embeddings of a database, of which any number of threads may search.

    Args:
        database: The database.
        folder: Where the graph's file is; None for a database in memory.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._database = database
        self._folder = folder
        self._lock = threading.RLock()
        self._graph: Index | None = None
        self._graph_note: GraphNote | None = None
        self._rows: Rows = np.empty(0, np.int64)  # that are not in the graph, in order
        self._vectors: Vectors = np.empty((0, 0), np.float32)  # of length 1
        self._read_to = 0  # the last row that was read

    def add(self, connection: sqlite3.Connection, rows: Sequence[int], vectors: Vectors) -> None:
        """Add the embeddings of rows that have none yet."""
        content = (vector.tobytes() for vector in np.ascontiguousarray(vectors, np.float32))
        connection.executemany("INSERT INTO vectors VALUES (?, ?)", zip(rows, content, strict=True))

    def remove(self, connection: sqlite3.Connection, rows: Sequence[int]) -> None:
        """Remove the embeddings of some rows."""
        for some in number_lists(rows):
            connection.execute(f"DELETE FROM vectors WHERE row IN ({some})")
        note = _read_note(connection)
        if note is not None:
            removed = note.removed + sum(row <= note.last_row for row in rows)
            set_note(connection, _NOTE, json.dumps(asdict(note) | {"removed": removed}))

    def search(
        self, connection: sqlite3.Connection, embedding: Vectors, limit: int, rows: Rows | None = None
    ) -> tuple[Rows, Cosines]:
        """The rows nearest to an embedding, and the cosines, nearest first.

        Args:
            connection: A connection that is reading.
            embedding: Of the dimension of those that are there.
            limit: How many; fewer are returned only where there are no more.
            rows: The rows to compare with, one by one; None means all.
        """
        embedding = embedding / (np.linalg.norm(embedding) or 1.0)
        if rows is not None:
            return _best(*self._compared(connection, embedding, rows), limit)
        asked = limit
        while True:
            candidates, is_all = self._candidates(connection, embedding, asked)
            best = _best(*self._compared(connection, embedding, candidates), limit)
            if len(best[0]) == limit or is_all:
                return best
            asked *= 4

    def maintain(self, midway: bool = False) -> bool:
        """Make the graph, or take into it what came later, where that is due; whether it was done.

        Args:
            midway: Whether more will be written at once.
        """
        with self._database.reading() as connection:
            note = _read_note(connection)
            (last_row,) = connection.execute("SELECT coalesce(max(row), 0) FROM vectors").fetchone()
        added = last_row - (note.last_row if note is not None else 0)
        is_due = added >= (MOST_COMPARED_MIDWAY if midway else MOST_COMPARED)
        is_worn = note is not None and note.removed > _MOST_REMOVED * note.rows and not midway
        if not last_row or not (is_due or is_worn):
            return False
        self._build(None if is_worn else note)
        return True

    def forget_graph(self) -> None:
        """Make the graph anew the next time; for a copy of a database, whose graph stays with the original."""
        set_note(self._database.writing(), _NOTE, "")
        self._database.commit()

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of earlier graphs, which somebody may be about to map, and of unfinished ones."""
        if self._folder is None:
            return
        with self._database.reading() as connection:
            note = _read_note(connection)
        latest = time.time() - older_than.total_seconds()
        for file in self._folder.glob(f"*{_SUFFIX}*"):
            with suppress(OSError):  # on Windows, one that another process maps
                if (note is None or file.name != note.name) and file.stat().st_mtime <= latest:
                    file.unlink()

    def _candidates(self, connection: sqlite3.Connection, embedding: Vectors, limit: int) -> tuple[Rows, bool]:
        """Rows that are likely to be the nearest, deleted ones among them; and whether they are all that there are."""
        with self._lock:
            self._read_later(connection)
            graph = self._graph
            later = self._rows
            if len(later) > limit:
                cosines = self._vectors @ embedding
                later = later[np.argpartition(-cosines, limit)[:limit]]
            if graph is None:
                return later, len(later) == len(self._rows)
            graph.expansion_search = max(int(limit * _LOOKED_AT), _LOOKED_AT_BUILDING)
            found = graph.search(embedding, min(limit, len(graph)), threads=1).keys.astype(np.int64)
            return np.concatenate([found, later]), limit >= len(graph) and len(later) == len(self._rows)

    def _read_later(self, connection: sqlite3.Connection) -> None:
        """Bring graph and later rows up to the state that is read."""
        note = _read_note(connection)
        if note is not None and (self._graph_note is None or note.last_row > self._graph_note.last_row):
            self._open(note)
        for rows, vectors in _pages(connection, self._read_to):
            self._read_to = int(rows[-1])
            lengths = np.linalg.norm(vectors, axis=1)
            is_comparable = np.isfinite(lengths) & (lengths > 0)
            vectors = vectors[is_comparable] / lengths[is_comparable, None]
            self._rows = np.concatenate([self._rows, rows[is_comparable]])
            self._vectors = np.concatenate([self._vectors.reshape(-1, vectors.shape[1]), vectors])

    def _open(self, note: GraphNote) -> None:
        """Map a graph; where its file is damaged or missing, all rows are compared until it is made anew."""
        graph = None if self._folder is None else _mapped(self._folder / note.name, note)
        if graph is None and self._folder is not None:
            logger.warning("%s is missing or damaged: questions are slow until the index is changed", note.name)
            note = GraphNote("", 0, 0)
        self._hold(graph, note)

    def _hold(self, graph: Index | None, note: GraphNote) -> None:
        is_later = self._rows > note.last_row
        self._rows = self._rows[is_later]
        self._vectors = self._vectors[is_later]
        self._read_to = max(self._read_to, note.last_row)
        self._graph = graph
        self._graph_note = note

    def _build(self, note: GraphNote | None) -> None:
        graph = self._to_extend(note)
        first = note.last_row if note is not None and graph is not None else 0
        last = first
        with self._database.reading() as connection:
            for rows, vectors in _pages(connection, first):
                lengths = np.linalg.norm(vectors, axis=1)
                is_comparable = np.isfinite(lengths) & (lengths > 0)
                graph = graph if graph is not None else _empty_graph(vectors.shape[1])
                if is_comparable.any():
                    graph.add(rows[is_comparable].astype(np.uint64), vectors[is_comparable])
                last = int(rows[-1])
        if graph is None:
            return
        removed = note.removed if note is not None and first else 0
        made = self._written(graph, GraphNote("", len(graph), last, removed=removed))
        set_note(self._database.writing(), _NOTE, json.dumps(asdict(made)))
        self._database.commit()
        with self._lock:
            if self._folder is None:
                self._hold(graph, made)
            else:
                self._open(made)

    def _to_extend(self, note: GraphNote | None) -> Index | None:
        """A copy in memory of the graph that is there, to be added to; None where there is none that is whole."""
        if note is None:
            return None
        from usearch.index import Index

        if self._folder is None:
            return self._graph and Index.restore(self._graph.save(), view=False, **_settings())
        if _mapped(self._folder / note.name, note) is None:
            return None
        return Index.restore(self._folder / note.name, view=False, **_settings())

    def _written(self, graph: Index, note: GraphNote) -> GraphNote:
        if self._folder is None:
            return note
        name = f"{note.last_row}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        file = self._folder / name
        partial = file.with_suffix(f"{_SUFFIX}.partial")
        graph.save(partial)
        os.replace(partial, file)
        about = asdict(note) | {"name": name, "size": file.stat().st_size, "checksum": _checksum(file)}
        return GraphNote(**about)

    def _compared(self, connection: sqlite3.Connection, embedding: Vectors, rows: Rows) -> tuple[Rows, Cosines]:
        """Those of some rows that are there and can be compared, with their cosines."""
        found: list[tuple[int, bytes]] = []
        for some in number_lists(rows.tolist()):
            found += connection.execute(f"SELECT row, vector FROM vectors WHERE row IN ({some})").fetchall()
        if not found:
            return np.empty(0, np.int64), np.empty(0)
        vectors = np.frombuffer(b"".join(vector for _, vector in found), np.float32).reshape(len(found), -1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            cosines = (vectors @ embedding).astype(np.float64) / np.linalg.norm(vectors, axis=1)
        is_told = np.isfinite(cosines)
        there = np.array([row for row, _ in found], np.int64)
        return there[is_told], np.clip(cosines[is_told], -1, 1)


def _best(rows: Rows, cosines: Cosines, limit: int) -> tuple[Rows, Cosines]:
    """The nearest; of equal ones the older."""
    order = np.lexsort((rows, -cosines))[:limit]
    return rows[order], cosines[order]


def _pages(connection: sqlite3.Connection, after: int) -> Iterator[tuple[Rows, Vectors]]:
    """The embeddings of the rows after one, in order, some thousand at a time."""
    while True:
        page = connection.execute(
            "SELECT row, vector FROM vectors WHERE row > ? ORDER BY row LIMIT ?", (after, _ROWS_A_PAGE)
        ).fetchall()
        if not page:
            return
        after = page[-1][0]
        vectors = np.frombuffer(b"".join(vector for _, vector in page), np.float32)
        yield np.array([row for row, _ in page], np.int64), vectors.reshape(len(page), -1)


def _settings() -> dict[str, Any]:
    return {"metric": "cos", "dtype": "i8", "connectivity": _LINKS, "expansion_add": _LOOKED_AT_BUILDING}


def _empty_graph(dimension: int) -> Index:
    from usearch.index import Index

    return Index(ndim=dimension, **_settings())


def _mapped(file: Path, note: GraphNote) -> Index | None:
    """A graph in a file; None where that is not what was written there. usearch would read outside of a damaged one."""
    from usearch.index import Index

    try:
        if file.stat().st_size != note.size or _checksum(file) != note.checksum:
            return None
        return Index.restore(file, view=True)
    except (OSError, ValueError, RuntimeError):
        return None


def _checksum(file: Path) -> int:
    """What the content of a file adds up to; of half a gigabyte, that takes a tenth of a second."""
    size = file.stat().st_size
    if size < 8:
        return size
    words = np.memmap(file, np.uint64, mode="r", shape=(size // 8,))
    return int(np.add.reduce(words, dtype=np.uint64)) ^ int(np.bitwise_xor.reduce(words))


def _read_note(connection: sqlite3.Connection) -> GraphNote | None:
    text = get_note(connection, _NOTE)
    return GraphNote(**json.loads(text)) if text else None
