"""Search for the nearest embeddings: an HNSW graph over most rows, and a comparison of all the others.

The database holds every embedding as the model returned it. The graph is derived from them: a file that is
written once, mapped by all processes, and can be rebuilt at any time. Rows that were deleted after it was
built are dropped from its results. Rows that were added later are held in memory until there are enough of
them for another graph.
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

from llama_pack_densex.index.database import Database, select_by_row
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
from llama_pack_densex.index.rows import hits_at
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

SCHEMA = "CREATE TABLE IF NOT EXISTS vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);"

MOST_COMPARED = 8_000
"""Number of rows outside the graph at which they are added to it; comparing that many takes a millisecond."""
MOST_COMPARED_MIDWAY = 100_000
"""The same limit in the middle of an ingestion, when few questions are asked."""
_MOST_OUTSIDE_MIDWAY = (
    0.5  # and the share of the graph's rows: each extension writes the whole file anew
)
_MOST_REMOVED = 0.2  # share of a graph's rows that may be deleted before it is rebuilt
_MOST_CANDIDATES = 0.15  # share of the searched rows; beyond it, comparing all of them is faster
_ROWS_A_PAGE = 4_096
_ROUNDING = 1e-5  # difference between machines in one component of a unit-normalised vector
_DIGITS = 6  # of a cosine, so that equal vectors score the same in the graph and outside it
_NO_ROWS = RowVectors(np.empty(0, np.int64), np.empty((0, 0), np.float32))
_NOTE = "graph"
_SUFFIX = ".hnsw"


@dataclass(frozen=True)
class GraphNote:
    """The description of the graph that the database stores.

    Args:
        name: The name of the graph's file; empty for a database in memory.
        rows: The number of rows in the graph.
        last_row: The last of these rows; later ones are not in the graph.
        size: The size of the file, in bytes.
        vectors_at: The offset of the vectors in the file, in bytes.
        checksum: The checksum of the file's content before the vectors.
        removed: The number of rows in the graph that have been deleted since it was built.
    """

    name: str = ""
    rows: int = 0
    last_row: int = 0
    size: int = 0
    vectors_at: int = 0
    checksum: int = 0
    removed: int = 0


class VectorTable:
    """The embeddings of a database; any number of threads may search them.

    Args:
        database: The database that holds the embeddings.
        folder: The folder of the graph's file; None for a database in memory.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._database = database
        self._folder = folder
        self._lock = threading.RLock()
        self._graph: Graph | None = None
        self._note: GraphNote | None = None
        self._later = _NO_ROWS  # rows that are not in the graph
        self._read_to = 0  # the last row covered by the graph or `_later`

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
        """Remove the embeddings of the given rows."""
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
        """Return the nodes nearest to an embedding, nearest first.

        Args:
            connection: A connection inside a read transaction.
            embedding: The query embedding, of the same dimension as the stored ones.
            limit: The number of nodes; fewer are returned only if there are no more.
            allowed: The rows to search, in ascending order; None means all.
        """
        embedding = embedding / (np.linalg.norm(embedding) or 1.0)
        with self._lock:
            self._catch_up(connection)
            size = sum(len(part.rows) for part in self._parts())
        searched = size if allowed is None else len(allowed)
        candidate_limit = limit
        if searched < size:
            candidate_limit = int(1.2 * limit * size / max(1, searched)) + 8
        while candidate_limit <= _MOST_CANDIDATES * searched:
            candidates, similarities = self._candidates(embedding, candidate_limit)
            if allowed is not None:
                is_allowed = np.isin(candidates, allowed)
                candidates = candidates[is_allowed]
                similarities = similarities[is_allowed]
            nearest = _nearest_existing(connection, candidates, similarities, limit)
            if len(nearest) == limit:
                return nearest
            candidate_limit *= 2
        if allowed is None:
            all_rows = connection.execute("SELECT row FROM vectors").fetchall()
            allowed = np.array(all_rows, np.int64).ravel()
        return _nearest_existing(connection, *self._compare(connection, embedding, allowed), limit)

    def maintain(self, midway: bool = False) -> bool:
        """Build the graph, or add later rows to it, if that is due; return whether it was done.

        Args:
            midway: Whether more rows are about to be written, in which case the graph may lag further behind.
        """
        with self._database.reading() as connection:
            note = self._noted() or GraphNote()
            last_row = _last_row(connection)
        is_lost = note.rows > 0 and self._is_lost(note)
        if is_lost:
            note = GraphNote()
        most_outside = MOST_COMPARED
        if midway:
            most_outside = max(MOST_COMPARED_MIDWAY, int(_MOST_OUTSIDE_MIDWAY * note.rows))
        is_due = is_lost or last_row - note.last_row >= most_outside
        if last_row == 0 or not is_due:
            return False
        try:
            self._build(note)
        except OSError as error:
            logger.warning("%s; questions are slow until a later change builds it", error)
            return False
        return True

    def _is_lost(self, note: GraphNote) -> bool:
        return note.removed > _MOST_REMOVED * note.rows or not self._is_there(note)

    def leave_no_trace(self) -> None:
        """Rebuild the graph if it is damaged or still contains embeddings of deleted rows."""
        note = self._noted()
        if note is not None and (note.removed or self.is_graph_damaged()):
            self._database.set_note(_NOTE, "")
            self._database.commit()
            with self._lock:
                self._hold(None, None)
            self.maintain()
            self.clean(timedelta(0))

    def is_graph_damaged(self) -> bool:
        """Return whether the graph that the database names is missing, damaged or differs from the stored
        embeddings, so that `leave_no_trace` builds another; False if there is none yet."""
        with self._database.reading() as connection:
            note = self._noted()
            if note is None:
                return False
            graph = self._mapped(note)
            if graph is None:
                return True
            for rows, vectors in _normalized_pages(connection, 0):
                is_linked = rows <= note.last_row
                if not _holds(graph, rows[is_linked], vectors[is_linked]):
                    return True
        return False

    def copy_graph(self, folder: Path) -> None:
        """Copy the graph's file to the folder of a copied database, unless it contains deleted rows."""
        note = self._noted()
        if self._folder is None or note is None or note.removed:
            return
        if self._is_there(note):
            shutil.copyfile(self._folder / note.name, folder / note.name)

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of earlier and unfinished graphs.

        Args:
            older_than: The minimum age of the files; another process may be about to map a recent one.
        """
        if self._folder is None:
            return
        note = self._noted()
        files = set(self._folder.glob(f"*{_SUFFIX}*"))
        if note is not None:
            files.discard(self._folder / note.name)
        remove_files(files, older_than)

    def _parts(self) -> list[RowVectors]:
        """Return the parts to search: the rows added after the graph was built, and the graph if any."""
        return [self._later] if self._graph is None else [self._later, self._graph]

    def _candidates(self, embedding: Vectors, limit: int) -> Compared:
        """Return the rows that are likely to be nearest; deleted rows may be among them."""
        with self._lock:
            return _joined([part.nearest(embedding, limit) for part in self._parts()])

    def _compare(self, connection: Connection, embedding: Vectors, requested: Rows) -> Compared:
        """Compute the cosines of the requested rows; rows without a usable embedding are skipped."""
        with self._lock:
            compared = [part.compare(embedding, requested) for part in self._parts()]
        # a newer graph may lack rows that were deleted only after the state being read
        missing = np.setdiff1d(requested, _joined(compared)[0])
        if len(missing):
            compared.append(_compare_stored(connection, embedding, missing))
        return _joined(compared)

    def _catch_up(self, connection: Connection) -> None:
        """Bring the graph and the later rows up to the state that the connection reads."""
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
        """Use this graph for searches from now on; None means that all rows are compared."""
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
        """Drop vectors of another dimension: all of their rows must have been deleted before vectors of this
        dimension could be added."""
        held = self._graph or self._later
        if held.vectors.shape[1] not in (0, dimension):
            self._graph = None
            self._later = _NO_ROWS

    def _noted(self) -> GraphNote | None:
        """Return the stored description of the graph, in the state that this thread reads or writes."""
        text = self._database.note(_NOTE)
        return GraphNote(**json.loads(text)) if text else None

    def _note_graph(self, note: GraphNote) -> None:
        self._database.set_note(_NOTE, json.dumps(asdict(note)))

    def _is_there(self, note: GraphNote) -> bool:
        if self._folder is None:
            return self._graph is not None
        return size_of(self._folder / note.name) == note.size

    def _mapped(self, note: GraphNote) -> Graph | None:
        """Map the graph's file; return None unless its checksum matches, because usearch may read out of
        bounds in a damaged file."""
        if self._folder is None:
            return self._graph
        file = self._folder / note.name
        try:
            is_whole = _checksum(file, note.vectors_at) == note.checksum
            return mapped_graph(file, note.vectors_at) if is_whole else None
        except (OSError, ValueError, RuntimeError):
            return None

    def _build(self, note: GraphNote) -> None:
        """Extend the graph that `note` describes, or build one over all rows if there is none to extend.

        Raises:
            OSError: The graph's file cannot be written.
        """
        earlier = self._mapped(note) if note.rows else None
        if earlier is None:
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


def _holds(graph: Graph, rows: Rows, vectors: Vectors) -> bool:
    """Return whether the graph holds these vectors, up to rounding, for these rows."""
    places = np.searchsorted(graph.rows, rows).clip(max=len(graph.rows) - 1)
    return np.array_equal(graph.rows[places], rows) and np.allclose(
        graph.vectors[places], vectors, atol=_ROUNDING
    )


def _save(draft: GraphDraft, pages: Iterable[Page], folder: Path, note: GraphNote) -> GraphNote:
    """Write a graph to a new file, and return the note completed with that file's description.

    Raises:
        OSError: The file cannot be written.
    """
    file = folder / f"{note.last_row}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
    unfinished = file.with_suffix(f"{_SUFFIX}.unfinished")
    try:
        vectors_at = draft.save(unfinished, pages)
        sync(unfinished)  # the database that will name it is synced to disk as well
    except (OSError, RuntimeError) as error:  # usearch and numpy give no more detail
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


def _nearest_existing(
    connection: Connection, candidates: Rows, similarities: Cosines, limit: int
) -> list[FoundNode]:
    """Return the nearest candidates whose rows still exist, nearest first; of equally near ones, the older
    first."""
    scores = np.round(np.clip(similarities, -1, 1), _DIGITS)
    order = np.lexsort((candidates, -scores))
    nearest: list[FoundNode] = []
    for start in range(0, len(order), limit):
        places = order[start : start + limit]
        rows = candidates[places].tolist()
        existing = hits_at(connection, rows)
        nearest += [
            FoundNode(*existing[row], score, score)
            for row, score in zip(rows, scores[places].tolist(), strict=True)
            if row in existing
        ]
        if len(nearest) >= limit:
            break
    return nearest[:limit]


def _compare_stored(connection: Connection, embedding: Vectors, requested: Rows) -> Compared:
    """Compute the cosines of the requested rows from the embeddings in the database."""
    select = "SELECT row, vector FROM vectors WHERE row IN"
    pairs = select_by_row(connection, select, requested.tolist()).fetchall()
    if not pairs:
        return requested[:0], np.empty(0)
    rows, vectors = _normalized(*_as_arrays(pairs))
    return rows, cosines(vectors, embedding)


def _normalized_pages(connection: Connection, after: int) -> Iterator[Page]:
    return (_normalized(*page) for page in _pages(connection, after))


def _as_arrays(pairs: Sequence[tuple[int, bytes]]) -> Page:
    vectors = np.frombuffer(b"".join(vector for _, vector in pairs), np.float32)
    return np.array([row for row, _ in pairs], np.int64), vectors.reshape(len(pairs), -1)


def _normalized(rows: Rows, vectors: Vectors) -> Page:
    """Return the vectors unit-normalised, without those that are zero or not finite."""
    lengths = np.linalg.norm(vectors, axis=1)
    is_comparable = np.isfinite(lengths) & (lengths > 0)
    return rows[is_comparable], vectors[is_comparable] / lengths[is_comparable, None]


def _pages(connection: Connection, after: int) -> Iterator[Page]:
    """Yield the rows after the given one with their embeddings, in ascending order, page by page."""
    select = "SELECT row, vector FROM vectors WHERE row > ? ORDER BY row"
    cursor = connection.execute(select, (after,))
    while page := cursor.fetchmany(_ROWS_A_PAGE):
        yield _as_arrays(page)


def _checksum(file: Path, size: int) -> int:
    """Return a checksum of the first `size` bytes of a file; half a gigabyte takes a tenth of a second."""
    words = np.memmap(file, np.uint64, mode="r", shape=(size // 8,))
    return int(np.add.reduce(words, dtype=np.uint64)) ^ int(np.bitwise_xor.reduce(words))


def _last_row(connection: Connection) -> int:
    (last_row,) = connection.execute("SELECT coalesce(max(row), 0) FROM vectors").fetchone()
    return int(last_row)


def _joined(parts: Sequence[Compared]) -> Compared:
    rows, similarities = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(similarities)
