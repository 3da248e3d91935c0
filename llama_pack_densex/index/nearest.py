"""The nearest of many embeddings: a graph (HNSW) over most of them, and the others compared one by one.

All embeddings are in the database, as they were made. The graph is derived from them: a file that is written
once, that all processes map, and that can be built again at any time. What was deleted since is left out of
what it finds. Rows that came after it are held in memory, until there are enough for another graph.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection

import numpy as np

from llama_pack_densex.index.database import Database, get_note, select_by_row, set_note
from llama_pack_densex.index.graph import (
    Compared,
    Cosines,
    Graph,
    GraphDraft,
    Page,
    RowVectors,
    Vectors,
    cosines,
    mapped_graph,
)
from llama_pack_densex.index.keywords import Rows
from llama_pack_densex.index.manifest import remove_files, size_of, sync
from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);"

MOST_COMPARED = 8_000
"""Rows outside the graph, from which on it takes them in: comparing so many takes a millisecond."""
MOST_COMPARED_MIDWAY = 100_000
"""The same while much is written, when few questions come in between."""
_MOST_REMOVED = 0.2  # of a graph's rows, before it is built again
_MOST_CANDIDATES = 0.15  # of the rows to look among; to compare them all takes less time than more
_ROWS_A_PAGE = 4_096
_ROUNDING = 1e-5  # of a number of a vector of length 1, on another machine
_DIGITS = 6  # of a cosine, so that equal vectors are equally near, however they were compared
_NO_ROWS = RowVectors(np.empty(0, np.int64), np.empty((0, 0), np.float32))
_NOTE = "graph"
_SUFFIX = ".hnsw"


@dataclass(frozen=True)
class GraphNote:
    """What the database says about its graph.

    Args:
        name: The file's name; empty for a database in memory.
        rows: How many rows it has.
        last_row: The last of them; later ones are not in it.
        size: The file's size, in bytes.
        vectors_at: Where its vectors begin, in bytes.
        checksum: What its content before them adds up to.
        removed: How many of its rows were deleted since.
    """

    name: str = ""
    rows: int = 0
    last_row: int = 0
    size: int = 0
    vectors_at: int = 0
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
        self._graph: Graph | None = None
        self._note: GraphNote | None = None
        self._later = _NO_ROWS  # that are not in the graph
        self._read_to = 0  # the last row that was read

    def prepare(self) -> None:
        """Map the graph now, so that the first question does not wait for it."""
        with self._database.reading() as connection, self._lock:
            note = self._noted()
            if note is not None and self._is_there(note):
                self._catch_up(connection)

    def add(self, connection: Connection, rows: Sequence[int], vectors: Vectors) -> None:
        """Add the embeddings of rows that have none yet."""
        content = (vector.tobytes() for vector in vectors)
        connection.executemany("INSERT INTO vectors VALUES (?, ?)", zip(rows, content, strict=True))

    def remove(self, connection: Connection, rows: Collection[int]) -> None:
        """Remove the embeddings of some rows."""
        select_by_row(connection, "DELETE FROM vectors WHERE row IN", rows)
        note = self._noted()
        if note is not None:
            in_graph = sum(row <= note.last_row for row in rows)
            self._note_graph(replace(note, removed=note.removed + in_graph))

    def search(
        self,
        connection: Connection,
        embedding: Vectors,
        limit: int,
        allowed: Rows | None = None,
    ) -> list[FoundNode]:
        """The nodes nearest to an embedding, nearest first.

        Args:
            connection: A connection that is reading.
            embedding: Of the dimension of those that are there.
            limit: How many; fewer are returned only where there are no more.
            allowed: The rows to look among, in order; None means all.
        """
        embedding = embedding / (np.linalg.norm(embedding) or 1.0)
        with self._lock:
            self._catch_up(connection)
            size = sum(len(part.rows) for part in self._parts())
        searched = size if allowed is None else len(allowed)
        wanted = limit
        if searched < size:
            wanted = int(1.2 * limit * size / max(1, searched)) + 8
        while wanted <= _MOST_CANDIDATES * searched:
            candidates, similarities = self._candidates(embedding, wanted)
            if allowed is not None:
                is_allowed = np.isin(candidates, allowed)
                candidates = candidates[is_allowed]
                similarities = similarities[is_allowed]
            nearest = _nearest_there(connection, candidates, similarities, limit)
            if len(nearest) == limit:
                return nearest
            wanted *= 2
        if allowed is None:
            all_rows = connection.execute("SELECT row FROM vectors").fetchall()
            allowed = np.array(all_rows, np.int64).ravel()
        return _nearest_there(connection, *self._compare(connection, embedding, allowed), limit)

    def maintain(self, midway: bool = False) -> bool:
        """Build the graph, or add to it what came later, if that is due; whether it was done.

        Args:
            midway: Whether more will be written at once.
        """
        with self._database.reading() as connection:
            note = self._noted()
            last_row = _last_row(connection)
        most_outside = MOST_COMPARED_MIDWAY if midway else MOST_COMPARED
        is_lost = note is not None and (
            note.removed > _MOST_REMOVED * note.rows or not self._is_there(note)
        )
        if is_lost:
            note = None
        outside = last_row - (note.last_row if note else 0)
        is_due = last_row > 0 and (is_lost or outside >= most_outside)
        if not is_due:
            return False
        try:
            self._build(note)
        except OSError as error:
            logger.warning("%s; questions are slow until a later change builds it", error)
            return False
        return True

    def leave_no_trace(self) -> None:
        """Build the graph again if it is damaged, or has something of rows that were deleted."""
        note = self._noted()
        if note is not None and (note.removed or self.is_graph_damaged()):
            set_note(self._database.writing(), _NOTE, "")
            self._database.commit()
            with self._lock:
                self._hold(None, None)
            self.maintain()
            self.clean(timedelta(0))

    def is_graph_damaged(self) -> bool:
        """Whether there should be a graph, and it is missing, damaged or has other vectors than the
        database."""
        with self._database.reading() as connection:
            note = self._noted()
            if note is None:
                return False
            graph = self._mapped(note)
            if graph is None:
                return True
            for rows, vectors in _normalized_pages(connection, 0):
                is_linked = rows <= note.last_row
                if not _has(graph, rows[is_linked], vectors[is_linked]):
                    return True
        return False

    def copy_graph(self, folder: Path) -> None:
        """Copy the graph to a copy of the database, unless it has something of rows that were deleted."""
        note = self._noted()
        if self._folder is None or note is None or note.removed:
            return
        if self._is_there(note):
            shutil.copyfile(self._folder / note.name, folder / note.name)

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of earlier graphs, which somebody may be about to map, and of unfinished ones."""
        if self._folder is None:
            return
        note = self._noted()
        files = set(self._folder.glob(f"*{_SUFFIX}*"))
        if note is not None:
            files.discard(self._folder / note.name)
        remove_files(files, older_than)

    def _parts(self) -> list[RowVectors]:
        """What is searched: the rows that came after the graph, and the graph."""
        return [self._later] if self._graph is None else [self._later, self._graph]

    def _candidates(self, embedding: Vectors, limit: int) -> Compared:
        """Rows that are likely to be the nearest, deleted ones among them."""
        with self._lock:
            return _joined([part.nearest(embedding, limit) for part in self._parts()])

    def _compare(self, connection: Connection, embedding: Vectors, wanted: Rows) -> Compared:
        """Those of some rows that can be compared."""
        with self._lock:
            compared = [part.compare(embedding, wanted) for part in self._parts()]
        # others may have made another graph without what was deleted after this state
        missing = np.setdiff1d(wanted, _joined(compared)[0])
        if len(missing):
            compared.append(_compare_stored(connection, embedding, missing))
        return _joined(compared)

    def _catch_up(self, connection: Connection) -> None:
        """Bring the graph and the rows beside it up to the state that is read."""
        note = self._noted()
        held = self._note
        if note is not None and (
            held is None or (note.last_row >= held.last_row and note.name != held.name)
        ):
            graph = self._mapped(note)
            if graph is None:
                logger.warning(
                    "%s is missing or damaged: questions are slow until pack.compact()", note.name
                )
            self._hold(graph, note)
        for rows, vectors in _pages(connection, self._read_to):
            self._read_to = int(rows[-1])
            rows, vectors = _normalized(rows, vectors)
            self._forget_other_dimensions(vectors.shape[1])
            earlier = self._later.vectors.reshape(-1, vectors.shape[1])
            self._later = RowVectors(
                np.concatenate([self._later.rows, rows]), np.concatenate([earlier, vectors])
            )

    def _hold(self, graph: Graph | None, note: GraphNote | None) -> None:
        """Search with this graph from now on; without one, among all rows."""
        last_row = note.last_row if graph is not None and note is not None else 0
        if self._read_to >= last_row > 0:
            is_later = self._later.rows > last_row
            self._later = RowVectors(self._later.rows[is_later], self._later.vectors[is_later])
        else:
            self._later = _NO_ROWS
            self._read_to = last_row
        self._graph = graph
        self._note = note

    def _forget_other_dimensions(self, dimension: int) -> None:
        """Let go of vectors of another dimension: all of their rows were deleted, or these would not be
        there."""
        held = self._graph or self._later
        if held.vectors.shape[1] not in (0, dimension):
            self._graph = None
            self._later = _NO_ROWS

    def _noted(self) -> GraphNote | None:
        """What the database says about its graph, in the state that this thread reads or writes."""
        with self._database.reading() as connection:
            text = get_note(connection, _NOTE)
        return GraphNote(**json.loads(text)) if text else None

    def _note_graph(self, note: GraphNote) -> None:
        set_note(self._database.writing(), _NOTE, json.dumps(asdict(note)))

    def _is_there(self, note: GraphNote) -> bool:
        if self._folder is None:
            return self._graph is not None
        return size_of(self._folder / note.name) == note.size

    def _mapped(self, note: GraphNote) -> Graph | None:
        """The graph in its file; None if that is not what was written: usearch would read outside of it."""
        if self._folder is None:
            return self._graph
        file = self._folder / note.name
        try:
            is_whole = _checksum(file, note.vectors_at) == note.checksum
            return mapped_graph(file, note.vectors_at) if is_whole else None
        except (OSError, ValueError, RuntimeError):
            return None

    def _build(self, note: GraphNote | None) -> None:
        """Build a graph over all rows, or add to the one that there is.

        Raises:
            OSError: Its file cannot be written.
        """
        earlier = None if note is None else self._mapped(note)
        if note is None or earlier is None:
            note = GraphNote()
        with self._database.reading() as connection:
            draft = GraphDraft.of(_normalized_pages(connection, note.last_row), earlier)
            if draft is None:
                return
            pages = _normalized_pages(connection, note.last_row)
            note = GraphNote("", len(draft.rows), _last_row(connection), removed=note.removed)
            graph = None
            if self._folder is None:
                graph = draft.graph(pages)
            else:
                note = _save(draft, pages, self._folder, note)
        self._note_graph(note)
        self._database.commit()
        with self._lock:
            self._hold(graph or self._mapped(note), note)


def _has(graph: Graph, rows: Rows, vectors: Vectors) -> bool:
    """Whether a graph has some rows, with these vectors."""
    places = np.searchsorted(graph.rows, rows).clip(max=len(graph.rows) - 1)
    return np.array_equal(graph.rows[places], rows) and np.allclose(
        graph.vectors[places], vectors, atol=_ROUNDING
    )


def _save(draft: GraphDraft, pages: Iterable[Page], folder: Path, note: GraphNote) -> GraphNote:
    """Write a graph into a file of its own, and note its name and content."""
    file = folder / f"{note.last_row}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
    unfinished = file.with_suffix(f"{_SUFFIX}.unfinished")
    try:
        vectors_at = draft.save(unfinished, pages)
        sync(unfinished)  # as what names it is
    except (OSError, RuntimeError) as error:  # neither usearch nor numpy says more
        unfinished.unlink(missing_ok=True)
        raise OSError(f"the graph of embeddings cannot be written to {folder}: {error}") from error
    os.replace(unfinished, file)
    sync(folder)
    return replace(
        note,
        name=file.name,
        size=file.stat().st_size,
        vectors_at=vectors_at,
        checksum=_checksum(file, vectors_at),
    )


def _nearest_there(
    connection: Connection, candidates: Rows, similarities: Cosines, limit: int
) -> list[FoundNode]:
    """The nearest of some rows that are still there; of equal ones the older first."""
    scores = np.round(np.clip(similarities, -1, 1), _DIGITS)
    order = np.lexsort((candidates, -scores))
    select = "SELECT row, id, granularity, passage_id FROM nodes WHERE row IN"
    nearest: list[FoundNode] = []
    for start in range(0, len(order), limit):
        places = order[start : start + limit]
        rows = candidates[places].tolist()
        names = {
            row: (node_id, granularity, passage_id)
            for row, node_id, granularity, passage_id in select_by_row(connection, select, rows)
        }
        nearest += [
            FoundNode(*names[row], score, score)
            for row, score in zip(rows, scores[places].tolist(), strict=True)
            if row in names
        ]
        if len(nearest) >= limit:
            break
    return nearest[:limit]


def _compare_stored(connection: Connection, embedding: Vectors, wanted: Rows) -> Compared:
    """Those of some rows that can be compared, by what the database has."""
    select = "SELECT row, vector FROM vectors WHERE row IN"
    pairs = select_by_row(connection, select, wanted.tolist()).fetchall()
    if not pairs:
        return wanted[:0], np.empty(0)
    rows, vectors = _normalized(*_as_arrays(pairs))
    return rows, cosines(vectors, embedding)


def _normalized_pages(connection: Connection, after: int) -> Iterator[Page]:
    return (_normalized(*page) for page in _pages(connection, after))


def _as_arrays(pairs: Sequence[tuple[int, bytes]]) -> Page:
    vectors = np.frombuffer(b"".join(vector for _, vector in pairs), np.float32)
    return np.array([row for row, _ in pairs], np.int64), vectors.reshape(len(pairs), -1)


def _normalized(rows: Rows, vectors: Vectors) -> Page:
    """The vectors at length 1, without those that cannot be compared."""
    lengths = np.linalg.norm(vectors, axis=1)
    is_comparable = np.isfinite(lengths) & (lengths > 0)
    return rows[is_comparable], vectors[is_comparable] / lengths[is_comparable, None]


def _pages(connection: Connection, after: int) -> Iterator[Page]:
    """The embeddings of the rows after one, in order, some thousand at a time."""
    select = "SELECT row, vector FROM vectors WHERE row > ? ORDER BY row"
    cursor = connection.execute(select, (after,))
    while page := cursor.fetchmany(_ROWS_A_PAGE):
        yield _as_arrays(page)


def _checksum(file: Path, size: int) -> int:
    """A checksum of the first bytes of a file; of half a gigabyte it takes a tenth of a second."""
    words = np.memmap(file, np.uint64, mode="r", shape=(size // 8,))
    return int(np.add.reduce(words, dtype=np.uint64)) ^ int(np.bitwise_xor.reduce(words))


def _last_row(connection: Connection) -> int:
    (last_row,) = connection.execute("SELECT coalesce(max(row), 0) FROM vectors").fetchone()
    return int(last_row)


def _joined(parts: Sequence[Compared]) -> Compared:
    rows, similarities = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(similarities)
