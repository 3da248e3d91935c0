"""Chroma's embedded folder after a kill: found out, and mended from what Chroma keeps.

Chroma (1.5) writes the files of its vector index in place, one after the other, each time a thousand vectors have come
together. A process that is killed meanwhile leaves files that do not belong together, and such a folder cannot be
opened any more; opening may also end the process that tries. What is lost is mostly the graph: the vectors are in the
file of the vectors and in the log that Chroma keeps in SQLite of what came after the last write. So the vectors are
written into that log, from which Chroma builds its index anew.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_pack_densex.stores.lock import WriterLock

logger = logging.getLogger(__name__)

DATABASE = "chroma.sqlite3"
_HEADER, _VECTORS, _LENGTHS, _IDS = "header.bin", "data_level0.bin", "length.bin", "index_metadata.pickle"
_ADD, _UPSERT, _DELETE = 0, 2, 3  # operations in Chroma's log
_ADVICE = "The embedded LanceDB (a folder without chroma://) and a Chroma server (`chroma run`) withstand a kill."

_PROBE = """
import sys
import chromadb
client = chromadb.PersistentClient(sys.argv[1])
for collection in client.list_collections():
    some = collection.get(limit=10, include=["embeddings"])
    if len(some["ids"]):
        collection.query(query_embeddings=some["embeddings"], n_results=min(50, collection.count()))
"""


class DamagedFolderError(ValueError):
    """A Chroma folder cannot be opened, and cannot be mended."""


@dataclass(frozen=True)
class Health:
    """What became of opening and querying a Chroma folder in another process.

    Args:
        sound: Whether it worked.
        reason: Why not.
    """

    sound: bool
    reason: str = ""


@dataclass(frozen=True)
class Recovery:
    """What `recover` did.

    Args:
        vectors: How many vectors were put back.
        lost: The documents that were deleted because a vector of theirs is lost, by their ids; where nodes name no
            document, their own ids.
    """

    vectors: int
    lost: tuple[str, ...]


@dataclass(frozen=True)
class _Segment:
    id: str
    collection: str
    metadata_segment: str


def ensure_healthy(folder: Path, wait_s: float = 3.0) -> None:
    """Mend a folder that a killed process left; reads its list of ids only where there is nothing to do.

    Args:
        folder: The folder.
        wait_s: How long another process may take to write its files, before it is taken for killed.

    Raises:
        DamagedFolderError: It cannot be mended.
    """
    until = time.monotonic() + wait_s
    while looks_torn(folder):
        if time.monotonic() >= until:
            break
        time.sleep(0.1)  # somebody may be writing
    else:
        return
    health = probe(folder)
    if health.sound:
        _note_soundness(folder)
        return
    done = recover(folder)
    again = probe(folder, timeout_s=3_600)
    if not again.sound:
        raise DamagedFolderError(_said(folder, again.reason))
    logger.warning(
        "The Chroma folder %s was left damaged by a process that was killed (%s). Its index was built anew from %d "
        "vectors. %s %s",
        folder,
        health.reason,
        done.vectors,
        f"{len(done.lost)} documents lost vectors and are to be indexed again." if done.lost else "Nothing is lost.",
        _ADVICE,
    )


def looks_torn(folder: Path) -> bool:
    """Whether files of a vector index may not belong together, by their sizes, times and numbers of vectors."""
    return any(_is_torn(header.parent) for header in folder.glob(f"*/{_HEADER}"))


def probe(folder: Path, timeout_s: float = 300) -> Health:
    """Open a folder and query its collections in another process, since opening may end the process that does it.

    Args:
        folder: The folder.
        timeout_s: How long it may take.
    """
    command = [sys.executable, "-c", _PROBE, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Health(False, f"no answer within {timeout_s:.0f} s")
    if done.returncode == 0:
        return Health(True)
    if done.returncode < 0:
        return Health(False, f"opening it ends with signal {-done.returncode}")
    return Health(False, (done.stderr.strip().splitlines() or ["it cannot be opened"])[-1])


def recover(folder: Path) -> Recovery:
    """Have Chroma build its vector indexes anew when the folder is opened the next time.

    A stop at any moment leaves a folder that can be recovered again. Documents whose vectors are lost are deleted
    whole, so that indexing finds them missing.

    Args:
        folder: The folder, which no other process may have open.

    Raises:
        DamagedFolderError: The ids of the vectors or Chroma's database cannot be read.
        IndexInUseError: Another process is writing to it.
    """
    with WriterLock(folder).held():
        try:
            with closing(sqlite3.connect(folder / DATABASE, timeout=10, isolation_level=None)) as database:
                database.execute("BEGIN EXCLUSIVE")
                segments = [one for one in _segments(database) if (folder / one.id).is_dir()]
                done = [_to_log(database, one, folder / one.id) for one in segments]
                database.execute("COMMIT")
        except (OSError, sqlite3.Error, pickle.UnpicklingError, EOFError, struct.error, ValueError, KeyError) as error:
            raise DamagedFolderError(_said(folder, str(error))) from error
        for segment in segments:
            shutil.rmtree(folder / segment.id)  # the log has all of it
    return Recovery(sum(one.vectors for one in done), tuple(lost for one in done for lost in one.lost))


def _note_soundness(folder: Path) -> None:
    """See to it that a copied folder, whose files have the times of the copying, is not opened twice each time."""
    for ids in folder.glob(f"*/{_IDS}"):
        with suppress(OSError):  # it may be read only
            ids.touch()


def _is_torn(segment: Path) -> bool:
    try:
        _, _, count, stride, _, _ = _header(segment)
        lengths, vectors = (segment / _LENGTHS).stat(), (segment / _VECTORS).stat()
        if lengths.st_size < 4 * count or vectors.st_size < stride * count:  # there may be room for more
            return True
        ids = segment / _IDS
        if not ids.is_file():
            return count > 0
        if ids.stat().st_mtime_ns < vectors.st_mtime_ns:
            return True
        with ids.open("rb") as stream:
            return bool(_DataOnly(stream).load()["total_elements_added"] != count)
    except (OSError, struct.error, pickle.UnpicklingError, EOFError, KeyError, TypeError):
        return True


def _header(segment: Path) -> tuple[int, int, int, int, int, int]:
    """The sizes in an index's header: offset, capacity, elements, bytes an element, and where label and vector are."""
    with (segment / _HEADER).open("rb") as stream:
        offset, capacity, count, stride, label, vector = struct.unpack("<4x6Q", stream.read(52))
    return offset, capacity, count, stride, label, vector


def _segments(database: sqlite3.Connection) -> Iterator[_Segment]:
    rows = database.execute(
        "SELECT v.id, v.collection, m.id FROM segments v JOIN segments m ON m.collection = v.collection "
        "WHERE v.scope = 'VECTOR' AND m.scope = 'METADATA' AND v.type LIKE '%hnsw-local-persisted'"
    )
    for row in rows.fetchall():
        yield _Segment(*row)


def _to_log(database: sqlite3.Connection, segment: _Segment, folder: Path) -> Recovery:
    """Write a segment's vectors to the log, before what the log has of it, and have Chroma read it from the start."""
    topic = f"persistent://default/default/{segment.collection}"
    log = database.execute(
        "SELECT seq_id, operation, id, vector IS NOT NULL FROM embeddings_queue WHERE topic = ? ORDER BY seq_id",
        (topic,),
    ).fetchall()
    there = database.execute("SELECT embedding_id FROM embeddings WHERE segment_id = ?", (segment.metadata_segment,))
    live = {node_id for (node_id,) in there}
    in_log = {node_id for _, operation, node_id, has in log if has and operation in (_ADD, _UPSERT)}
    vectors = {one: vector for one, vector in _vectors(folder) if one in live and one not in in_log}
    lost = live - vectors.keys() - in_log
    (highest,) = database.execute(
        "SELECT max(coalesce((SELECT max(seq_id) FROM embeddings_queue), 0), "
        "coalesce((SELECT max(seq_id) FROM max_seq_id), 0))"
    ).fetchone()
    numbers = list(islice(_free(database, log[0][0] if log else highest + 1), len(vectors)))
    database.executemany(
        "INSERT INTO embeddings_queue (seq_id, operation, topic, id, vector, encoding) "
        "VALUES (?, ?, ?, ?, ?, 'FLOAT32')",
        (
            (number, _ADD, topic, one, vector.astype("<f4").tobytes())
            for number, (one, vector) in zip(numbers, vectors.items(), strict=True)
        ),
    )
    of = _documents(database, segment) if lost else {}
    documents = {of.get(one, one) for one in lost}
    gone = [one for one in live if lost and of.get(one, one) in documents]
    database.executemany(
        "INSERT INTO embeddings_queue (seq_id, operation, topic, id) VALUES (?, ?, ?, ?)",
        ((highest + 1 + place, _DELETE, topic, one) for place, one in enumerate(gone)),
    )
    database.execute("DELETE FROM max_seq_id WHERE segment_id = ?", (segment.id,))
    return Recovery(len(vectors), tuple(sorted(documents)))


def _vectors(folder: Path) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """The vectors of an index by their ids; of cosine collections, Chroma keeps them normalised."""
    if not (folder / _IDS).is_file():  # it was never written whole, so the log has all of it
        return
    with (folder / _IDS).open("rb") as stream:
        labels: dict[str, int] = _DataOnly(stream).load()["id_to_label"]
    _, _, _, stride, label, vector = _header(folder)
    file = folder / _VECTORS
    count = file.stat().st_size // stride
    rows = np.memmap(file, dtype=np.uint8, mode="r", shape=(count, stride))
    numbers = np.ascontiguousarray(rows[:, label : label + 8]).view("<u8").ravel()
    places = {int(number): place for place, number in enumerate(numbers)}
    for node_id, number in labels.items():
        if number in places:
            yield node_id, np.frombuffer(rows[places[number], vector:label].tobytes(), dtype="<f4")


def _free(database: sqlite3.Connection, before: int) -> Iterator[int]:
    """Numbers in the log that are free: each vector that is not in it had one of its own once."""
    taken = {
        number for (number,) in database.execute("SELECT seq_id FROM embeddings_queue WHERE seq_id < ?", (before,))
    }
    return (number for number in range(1, before) if number not in taken)


def _documents(database: sqlite3.Connection, segment: _Segment) -> dict[str, str]:
    """The documents of those nodes that name one."""
    rows = database.execute(
        "SELECT e.embedding_id, m.string_value FROM embeddings e JOIN embedding_metadata m ON m.id = e.id "
        "WHERE e.segment_id = ? AND m.key = 'ref_doc_id' AND m.string_value IS NOT NULL",
        (segment.metadata_segment,),
    )
    return dict(rows.fetchall())


class _DataOnly(pickle.Unpickler):
    """Reads dictionaries, strings and numbers, and runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not expected in Chroma's files")


def _said(folder: Path, reason: str) -> str:
    return (
        f"the Chroma folder {folder} is damaged, most likely by a process that was killed while it wrote ({reason}), "
        f"and cannot be mended: its vectors are lost. Delete it and index the documents anew. {_ADVICE}"
    )
