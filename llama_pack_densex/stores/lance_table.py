"""The LanceDB table of an embedded store: its versions as they are read, changed, and kept quick and small.

Every change is another version. What keeps a growing table fast are its indices, and few large files instead of many.
From some 20,000 rows on embeddings have an index, IVF_SQ: one byte a number. Of 57,500 made-up ones it finds 0.99 of
the ten nearest in half the time and a quarter of the space of IVF_FLAT (which finds 0.997), and with it the right
passage comes first for one question of SQuAD in 1,299 less. Of 1,000,000 embeddings of 384 dimensions it takes ten
seconds and 1 GB of memory to make on two cores and finds 0.98 in 16 ms; IVF_HNSW_SQ with 8 partitions takes twenty
times as long to make, half as much space again, and has to be read as a whole before the first answer.

Rows that are written later are compared one by one until so many have gathered that they are added to the index, as a
segment of it. Once there are several segments, the index is made anew.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import re
import threading
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.background_loop import LOOP
from lancedb.index import FTS, BTree, IvfSq
from lancedb.query import MatchQuery

from llama_pack_densex.stores.filters import Passing
from llama_pack_densex.stores.manifest import InvalidIndexError
from llama_pack_densex.stores.node_store import FoundNode, check_question

ROWS_A_BATCH = 1024
"""LanceDB stores and reads batches as they come; large ones cost a search two thirds of its time."""
PASSAGE_WORDS, UNIT_WORDS = "passage_words", "unit_words"
"""The columns that are searched by words, where a table has them (see `words`)."""
_NOTE = b"densex_words"  # the key in a table's schema of what is said of these columns

NPROBES = 20, 100
"""The fewest and the most partitions of the vector index that a question is compared with; in between, four of five: of
a million made-up embeddings that finds as many of the ten nearest as all do."""
# of so many the index of words is read at once (1.5 kB a row), not word by word as they are asked
_ROWS_WARMED = 100_000


class TableVersion:
    """A version of the table; it does not change, whatever is written meanwhile, here or by another process.

    It is read by LanceDB's asynchronous interface: the synchronous one goes from thread to thread five times a query,
    a millisecond in all.

    Args:
        connection: LanceDB's, asynchronous.
        uri: What errors call the index.
        version: Which version; 0 for the time before there was a table.

    Attributes:
        dimension: The dimension of the embeddings; None where there are none.
        note: What it says about its words; empty where it has none.

    Raises:
        InvalidIndexError: The version is not there any more, or its files are damaged.
    """

    def __init__(self, connection: Any, uri: str, version: int) -> None:
        self.version, self.uri = version, uri
        self.table: Any = None
        self.schema = pa.schema([])
        self._opening = threading.Lock()
        self._read: _Directory | None = None
        self._begun: set[str] = set()  # by what it was searched
        if version:
            self.table = self._run(connection.open_table(TABLE, version=version))
            self.schema = self._run(self.table.schema())
        self.dimension = dimension_in(self.schema)
        self.note = note_in(self.schema)

    def count(self, condition: str | None = None) -> int:
        """How many rows there are."""
        return 0 if self.table is None else int(self._run(self.table.count_rows(condition)))

    def scan(self, columns: Sequence[str], condition: str | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, or of those that meet a condition, a batch at a time."""
        if self.table is None:
            return
        search = self.table.query().select(list(columns))
        if condition:
            search = search.where(condition)
        with reading(self.uri):
            batches = LOOP.run(search.to_batches(max_batch_length=ROWS_A_BATCH))
            while (batch := LOOP.run(_next(batches))) is not None:
                yield batch

    def values(self, columns: Sequence[str], condition: str | None = None) -> Iterator[tuple[Any, ...]]:
        """The same, row by row."""
        for batch in self.scan(columns, condition):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    @cached_property
    def has_all_words(self) -> bool:
        """Whether it can be searched by words, and has those of all passages."""
        if self.table is None:
            return True
        indexed = self._indexed
        if not {PASSAGE_WORDS, UNIT_WORDS} <= indexed.keys():
            return False
        with suppress(InvalidIndexError):  # what is damaged is told by the search
            for column in (PASSAGE_WORDS, UNIT_WORDS) if self.rows <= _ROWS_WARMED else ():
                self._run(self.table.prewarm_index(indexed[column]))
        lacking = self.count(f"granularity = 'passage' AND {PASSAGE_WORDS} IS NULL")
        _give_back()
        return not lacking

    def begin_match(
        self, words: str, column: str, limit: int | None, condition: str = ""
    ) -> Callable[[], list[FoundNode]]:
        """The nodes that have any of some words in a column, best first; of equal ones the older.

        LanceDB looks for them while something else is done; what is returned waits for it.

        Args:
            words: The words, with spaces between them; one that occurs twice counts twice.
            column: A column of words.
            limit: How many of the best; None means all.
            condition: Only rows that meet it; empty means all.
        """
        if self.table is None:
            return list
        search = self.table.query().nearest_to_text(MatchQuery(words, column))
        begun = self._begin_best(search, "_score", self.rows if limit is None else limit, condition)
        return lambda: self._directory.found(*begun())

    def begin_contents(self, node_ids: Iterable[str], column: str = "node") -> Callable[[], dict[str, str]]:
        """What some nodes have in a column, by id; LanceDB reads it while something else is done."""
        distinct = list(dict.fromkeys(node_ids))
        places = None if self._read is None else self._read.rows_of(distinct)
        if not distinct or places is None:
            return lambda: dict(self.values(["id", column], is_any_of("id", distinct))) if distinct else {}
        rows = self.table.take_row_ids(places).with_row_id().select([column])
        begun = self._begin(rows.to_arrow())

        def wait() -> dict[str, str]:
            found = begun()
            ids = dict(zip(places, distinct, strict=True))
            return dict(zip(map(ids.__getitem__, found["_rowid"].to_pylist()), found[column].to_pylist(), strict=True))

        return wait

    def begin_nearest(
        self, embedding: Sequence[float] | None, limit: int, condition: str = "", exactly: bool = False
    ) -> Callable[[], list[FoundNode]]:
        """The nodes nearest to an embedding by cosine, nearest first; of equal ones the older.

        LanceDB looks for them while something else is done; what is returned waits for it.

        Args:
            embedding: Of the table's dimension.
            limit: How many; fewer are returned only where there are no more.
            condition: Only rows that meet it; empty means all.
            exactly: Whether to compare with all of them, whatever index there is.

        Raises:
            ValueError: There is no embedding, or it has another dimension.
        """
        if self.table is None or limit <= 0 or (self.dimension is None and not self.rows):
            return list
        if embedding is None or self.dimension is None:
            raise ValueError("a vector query needs a query embedding, and a store whose nodes have embeddings")
        check_question(embedding, self.dimension)
        search = self.table.query().nearest_to(list(embedding)).column("vector").distance_type("cosine")
        exactly = exactly or "vector" not in self._indexed
        fewest, most = NPROBES
        probes = min(max(fewest, self.rows * 4 // (5 * ROWS_A_PARTITION)), most)
        search = search.bypass_vector_index() if exactly else search.nprobes(probes)
        begun = self._begin_best(search, "_distance", limit, condition)

        def wait() -> list[FoundNode]:
            rows, distances = begun()
            if len(rows) < min(limit, self.rows) and not exactly:  # the partitions that were searched have no more
                return self.begin_nearest(embedding, limit, condition, exactly=True)()
            told = np.isfinite(distances)
            cosines = np.clip(1.0 - distances[told].astype(np.float64), -1, 1)
            return self._directory.found(rows[told], cosines, are_cosines=True)

        return wait

    def _begin_best(
        self, search: Any, column: str, limit: int, condition: str
    ) -> Callable[[], tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """The places of the best rows, and their scores or distances; best first."""
        search = search.where(condition) if condition else search
        search = search.with_row_id().select([column]).limit(max(1, min(limit, self.rows)))
        begun = self._begin(search.to_arrow())

        def wait() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
            found = begun()
            if column not in self._begun:  # LanceDB has read an index for it
                self._begun.add(column)
                _give_back()
            rows, values = found["_rowid"].to_numpy(), found[column].to_numpy()
            order = np.lexsort((rows, values if column == "_distance" else -values))
            return rows[order], values[order]

        return wait

    @cached_property
    def rows(self) -> int:
        """How many rows there are."""
        return self.count()

    @property
    def _directory(self) -> _Directory:
        with self._opening:  # questions come in threads, each of which would read it
            if self._read is None:
                self._read = _Directory(self.scan([*_LINKS, "_rowid"]))
                _give_back()
            return self._read

    @cached_property
    def _indexed(self) -> dict[str, str]:
        """The columns that have an index, with its name."""
        return {index.columns[0]: index.name for index in self._run(self.table.list_indices())}

    def _begin(self, asked: Coroutine[Any, Any, Any]) -> Callable[[], Any]:
        begun = asyncio.run_coroutine_threadsafe(asked, LOOP.loop)

        def wait() -> Any:
            with reading(self.uri):
                return begun.result()

        return wait

    def _run(self, asked: Coroutine[Any, Any, Any]) -> Any:
        return self._begin(asked)()


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Turn what LanceDB raises over missing and damaged files into an error that names the index."""
    try:
        yield
    except InvalidIndexError:
        raise
    except BaseException as error:
        # a damaged file can make the Rust library panic, which is no Exception and has no importable class
        told = isinstance(error, (OSError, RuntimeError, ValueError)) or type(error).__name__ == "PanicException"
        if not told or _is_of_the_system(error):
            raise
        raise InvalidIndexError(
            f"the index in {uri} cannot be read: a file in it is damaged or missing ({type(error).__name__}). "
            "If it was compacted since it was opened, load the index again; if it was copied while it was written to, "
            "copy it again. Otherwise `densex check DIR --repair` makes the index of words anew; what that does not "
            "mend is to be built anew, or restored from a backup."
        ) from error


def _give_back() -> None:
    """Give the system back what reading a whole column left behind: of a million rows some 400 MB."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # LanceDB allocates with the C library; only GNU's can be told
        ctypes.CDLL(None).malloc_trim(0)


async def _next(batches: Any) -> pa.RecordBatch | None:
    return await anext(batches, None)


def _is_of_the_system(error: BaseException) -> bool:
    """Whether the system cannot read at the moment (no file descriptors left, no rights), which is no damage."""
    told = re.search(r"os error (\d+)", str(error))
    number = int(told.group(1)) if told else getattr(error, "errno", None)
    return number is not None and number not in (errno.ENOENT, errno.ENOTDIR)


_LINKS = ("id", "granularity", "passage_id")
_BATCHES_AT_ONCE = 64
_NUMBERED = pa.dictionary(pa.int32(), pa.string())
_MOST_KNOWN = 8_000  # places of found nodes that are remembered: a question finds 700, and more slow it down


class _Directory:
    """What each row of a version is and leads to, by its place: so that a search need not read the rows that it finds.

    To read three columns of 340 rows takes LanceDB as long as to find them. Here a row takes some 60 bytes.

    Args:
        batches: The links of all rows, with their places.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        kinds = pa.string(), _NUMBERED, _NUMBERED, pa.uint64()
        schema = pa.schema(list(zip((*_LINKS, "_rowid"), kinds, strict=True)))
        parts = (batch.select(schema.names).cast(schema) for batch in batches)
        columns = pa.Table.from_batches([], schema)
        # some at a time, so that what LanceDB read does not stay in memory until the last: 200 MB of a million rows
        while some := list(islice(parts, _BATCHES_AT_ONCE)):
            columns = pa.concat_tables([columns, _combined(pa.Table.from_batches(some, schema))])
        columns = _combined(columns)
        rows = columns["_rowid"].to_numpy()
        if (rows[1:] < rows[:-1]).any():
            columns = columns.sort_by("_rowid")
        self._rows: npt.NDArray[np.uint64] = columns["_rowid"].to_numpy()
        self._ids = columns["id"].combine_chunks()
        granularities, passages = (columns[name].combine_chunks() for name in _LINKS[1:])
        self._granularities: list[str] = granularities.dictionary.to_pylist()
        self._granularity_of = granularities.indices.to_numpy()
        self._passages, self._passage_of = passages.dictionary, passages.indices.to_numpy()
        bases = np.flatnonzero(pc.equal(passages, "").to_numpy(zero_copy_only=False))
        places = pc.fill_null(pc.index_in(self._passages, value_set=self._ids.take(bases)), -1).to_numpy()
        self._passage_rows = np.append(self._rows[bases].astype(np.int64), -1)[places]  # -1: it is not there
        self._known: dict[str, int] = {}

    def found(
        self, rows: npt.NDArray[np.uint64], scores: npt.NDArray[Any], are_cosines: bool = False
    ) -> list[FoundNode]:
        """The nodes in some rows, with their scores."""
        places = np.searchsorted(self._rows, rows)
        passages = self._passage_of[places]
        ids, leads_to = self._ids.take(places).to_pylist(), self._passages.take(passages).to_pylist()
        if len(self._known) > _MOST_KNOWN:
            self._known = {}
        self._known.update(zip(leads_to, self._passage_rows[passages].tolist(), strict=True))
        self._known.update(zip(ids, rows.tolist(), strict=True))
        granularities = map(self._granularities.__getitem__, self._granularity_of[places].tolist())
        similarities = scores.tolist() if are_cosines else repeat(None)
        return list(map(FoundNode, ids, granularities, leads_to, scores.tolist(), similarities))

    def rows_of(self, node_ids: Sequence[str]) -> list[int] | None:
        """The places of nodes that were found lately, or are the passages of such; None where one is not."""
        known = self._known
        places = [known.get(node_id, -1) for node_id in node_ids]
        return None if -1 in places else places


def _combined(columns: pa.Table) -> pa.Table:
    return columns.unify_dictionaries().combine_chunks()


IN_MEMORY = "memory://"
TABLE = "nodes"
_NOTES = "notes"  # beside it, what is said of all nodes
_KEPT_IN_MEMORY = timedelta(minutes=1)  # earlier versions of a table in memory: threads may be reading one


class NodeTable:
    """Rows by node id; whoever reads holds on to `now` and sees one version throughout.

    Args:
        uri: A folder, or "memory://".
        version: The version to read, and to write on top of; 0 for the time before there was a table. None means the
            latest, whoever wrote it.

    Attributes:
        pinned: Whether it was opened at some version, which somebody else keeps.
        is_shared: Whether others may write to it at any time, since nobody keeps its version.

    Raises:
        InvalidIndexError: The version is not there, or a file is damaged.
        RuntimeError: LanceDB was used in a process that this one was forked from.
    """

    def __init__(self, uri: str, version: int | None = None) -> None:
        _check_process()
        self.uri = uri
        session = lancedb.Session()  # both connections see one table in memory, and what either has read of a file
        self.connection = lancedb.connect(uri, session=session)
        # the default region would make it another table in memory
        self._reading = LOOP.run(lancedb.connect_async(uri, session=session, region=None))
        self.pinned = version is not None
        self.is_shared = not self.pinned and uri != IN_MEMORY
        self._writing = threading.RLock()
        self._about: str | None = None  # of a table in memory
        self._settled: int | None = None  # the version after which there is nothing to compact or to index
        self._now = self._at(_number(self._open()) if version is None else version)

    @property
    def now(self) -> TableVersion:
        """The version that is read."""
        _check_process()
        return self._now

    def write(self, rows: pa.Table, document_ids: Collection[str] = ()) -> None:
        """Write rows in place of all rows of some documents, and of those that have the same ids.

        Nobody who reads this object sees a part of it. A stop in between leaves a newer version, which `roll_back`
        leaves out.

        Raises:
            ValueError: The rows' embeddings are not of the table's dimension.
            InvalidIndexError: Another process has written to a table that was opened at some version.
        """
        rows = pa.Table.from_batches(rows.to_batches(max_chunksize=ROWS_A_BATCH), rows.schema)
        with self._changing() as table:
            if table is None or not table.count_rows():
                mode = "create" if table is None else "overwrite"
                # of two that make one at once, the later has only its own rows: where others may, rows come last
                made = self.connection.create_table(TABLE, rows[:0] if self.is_shared else rows, mode=mode)
                keep_up(made, midway=True)  # after a stop before this, the next upkeep makes the indices of words
                if self.is_shared:
                    made.add(rows)
                return
            schema = table.schema
            same_dimension({dimension_in(schema), dimension_in(rows.schema)})
            if note_in(rows.schema) != note_in(schema):  # they were told otherwise: LanceDB fills in nulls
                rows = _without_words(rows)
            # not all by their ids, which take LanceDB ten times as long to look for
            of_rows = zip(rows["id"].to_pylist(), rows["document_id"].to_pylist(), strict=True)
            others = [node_id for node_id, document_id in of_rows if document_id not in document_ids]
            gone = f"{is_any_of('document_id', document_ids)} OR {is_any_of('id', others)}"
            # in two steps, since for one LanceDB joins the rows to the whole table (2 GB and 1.4 s of a million)
            if table.count_rows(gone):
                table.delete(gone)
            table.add(rows)

    def delete(self, condition: str = "true") -> None:
        """Delete the rows that meet a condition, or all, in one transaction."""
        with self._changing() as table:
            if table is not None:
                table.delete(condition)

    def roll_back(self, version: str) -> None:
        """Go on from a version that may be another process's; what was written after it is left out.

        Args:
            version: "0" leaves an empty table, if there is one.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        with self._writing:
            table, number = self._open(), int(version)
            if number != _number(table):
                self._at(number)  # it says so where that is gone
                with reading(self.uri):
                    _go_back(table, number)
            self._follow(table)

    def follow(self) -> None:
        """Read what others have written, where nobody keeps the version."""
        if self.is_shared:
            self._follow(self._open())

    def reload(self, folder: Path, version: str) -> None:
        """Read another version, which another process made, or another table in its place; nothing is written.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        with self._writing:
            if str(folder) != self.uri:
                NodeTable.__init__(self, str(folder), int(version))
            elif int(version) != self.now.version:
                self._now = self._at(int(version))

    def maintain(self, midway: bool = False) -> bool:
        """Do what upkeep of indices and files is due; see `keep_up`.

        Args:
            midway: Whether more will be written at once.

        Returns:
            Whether there is another version now.
        """
        before = self.now.version
        with self._changing() as table:
            if table is not None and keep_up(table, midway):
                self._settled = int(table.version)
                _give_back()
                if self.uri == IN_MEMORY:
                    remove_versions(table, _KEPT_IN_MEMORY)
        return self.now.version != before

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of versions that are older, and what writers left that were killed.

        Done only directly after a `maintain` that returned True or after `compact`: at other times LanceDB would
        compact in the same go, and remove the version before that.
        """
        with self._writing:
            table = self._open()
            if self._settled is not None and self._settled == self.now.version == _number(table):
                with reading(self.uri):
                    remove_versions(table, older_than)
                    if not older_than and self.uri != IN_MEMORY and len(table.list_versions()) > 1:
                        # the clock was set back, and LanceDB keeps what is later than now
                        for file in self._versions():
                            if file.name != f"{_LAST_NUMBER - self.now.version:020}.manifest":
                                file.unlink()
                        remove_versions(table, older_than)

    def compact(self, change: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> None:
        """Write all rows and all indices anew; `clean(timedelta(0))` then erases what was deleted or replaced.

        Args:
            change: What is to be changed in the rows.
        """
        with self._changing() as table:
            if table is None:
                return
            written = self.connection.create_table(TABLE, self._stream(change), mode="overwrite")
            keep_up(written)
            settle(written)
            self._settled = int(written.version)

    def copy_to(self, folder: Path, version: str) -> str:
        """Write all rows into an empty folder, with indices where they are due; returns its version there."""
        if self.now.table is None:
            return "0"
        with reading(self.uri):
            written = lancedb.connect(str(folder)).create_table(TABLE, self._stream())
        keep_up(written)
        return str(written.version)

    def read_about(self) -> str | None:
        """What `write_about` kept; None where there is nothing."""
        if self.uri == IN_MEMORY or self.pinned or _NOTES not in self.connection.list_tables().tables:
            return self._about
        rows = self.connection.open_table(_NOTES).to_arrow()
        return str(rows["text"][0].as_py()) if len(rows) else None

    def write_about(self, about: str) -> None:
        """Keep a text beside the rows; where somebody keeps the version, who keeps the text too, that is enough."""
        if self.uri == IN_MEMORY:
            self._about = about
        elif not self.pinned:
            there = _NOTES in self.connection.list_tables().tables  # LanceDB warns of overwriting what is not
            self.connection.create_table(_NOTES, pa.table({"text": [about]}), mode="overwrite" if there else "create")

    def _stream(self, change: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> pa.RecordBatchReader:
        now = self.now
        schema = change(now.schema.empty_table()).schema
        changed = (change(pa.Table.from_batches([batch])) for batch in now.scan(now.schema.names))
        return pa.RecordBatchReader.from_batches(schema, (part for rows in changed for part in rows.to_batches()))

    @contextmanager
    def _changing(self) -> Iterator[Any]:
        """The table as it is written to, or None where there is none; what failed half-way is taken back."""
        with self._writing:
            table = self._open()
            before = _number(table)
            if self.pinned and before != self.now.version:
                raise InvalidIndexError(
                    f"{self.uri} was written to since version {self.now.version} of its table: load the index again."
                )
            try:
                yield table
            except BaseException:
                latest = self._open()
                if latest is not None and _number(latest) != before and (before or not self.is_shared):
                    _go_back(latest, before)
                raise
            finally:
                self._follow(table)

    def _follow(self, table: Any) -> None:
        """Read what a table is now; None where there was none."""
        if table is None:
            table = self._open()
        else:
            with reading(self.uri):
                table.checkout_latest()
        if (version := _number(table)) != self.now.version:
            self._now = self._at(version)

    def _at(self, version: int) -> TableVersion:
        return TableVersion(self._reading, self.uri, version)

    def _open(self) -> Any:
        """The latest version, as it is written to; None where there is no table."""
        _check_process()
        # a writer that was killed before its first version was whole left none
        there = TABLE in self.connection.list_tables().tables if self.uri == IN_MEMORY else self._versions()
        with reading(self.uri):
            return self.connection.open_table(TABLE) if there else None

    def _versions(self) -> list[Path]:
        """The files that LanceDB has of the versions in a folder, one each."""
        return list((Path(self.uri) / f"{TABLE}.lance" / "_versions").glob("*.manifest"))


_used_in: set[int] = set()


def _check_process() -> None:
    """Refuse what ends badly: of processes forked from one that had searched, half crashed or waited for ever."""
    _used_in.add(os.getpid())
    if len(_used_in) > 1:
        raise RuntimeError(
            "this process was forked from one that had opened an index, and LanceDB's threads do not survive a fork. "
            "Open the index in each worker, and not before the workers are forked (gunicorn without --preload), or "
            "start them with multiprocessing's 'spawn' or 'forkserver'."
        )


def _number(table: Any) -> int:
    """The version that a table is at; 0 where there is none."""
    return 0 if table is None else int(table.version)


def _go_back(table: Any, version: int) -> None:
    """Make a version the latest again; 0 leaves an empty table."""
    if version:
        table.restore(version)
    else:  # not dropped: the numbers of versions would begin anew
        table.delete("true")


ROWS_A_PARTITION = 32_768
"""Of the vector index: LanceDB's own size, to which it joins smaller ones whenever it completes an index."""
ROWS_WITH_INDEX = 20_000
"""From so many rows on there are indices of embeddings and ids; fewer are read through in some 20 ms."""
MOST_UNINDEXED = 4096
"""Rows of a small table that may be outside the indices; of a large one the twenty-fifth part may."""
MOST_SEGMENTS = 8
"""Parts of the vector index, each of which is searched."""
MOST_FRAGMENTS = 64
"""Files of rows; a hundred thousand rows may have another ten."""
MOST_FRAGMENTS_MIDWAY = 1_000
"""The same while much is written: of two million nodes."""
_FOREVER = timedelta(days=36500)
_LAST_NUMBER = 2**64 - 1  # LanceDB counts the files of versions down from it
_WORDS = FTS(
    base_tokenizer="whitespace", max_token_length=None, lower_case=False, stem=False, remove_stop_words=False,
    ascii_folding=False, with_position=False,
)  # fmt: skip


def keep_up(table: Any, midway: bool = False) -> bool:
    """Make or complete indices and merge files where it is due; those of words are made at once.

    Args:
        table: LanceDB's.
        midway: Whether more will be written at once: then only what would slow the writing down is done. Every merging
            writes all rows and indices anew, which at each doubling was a fifth of the time of building.

    Returns:
        Whether anything but that was done.
    """
    stats, columns = table.stats(), set(table.schema.names)
    rows, fragments = int(stats["num_rows"]), int(stats["fragment_stats"]["num_fragments"])
    indexed = {index.columns[0]: index for index in table.list_indices()}
    for column in sorted({PASSAGE_WORDS, UNIT_WORDS} & columns - indexed.keys()):
        table.create_index(column, config=_WORDS)
    if midway:
        due = fragments > MOST_FRAGMENTS_MIDWAY
        if due:
            settle(table)
        return due
    wanted = ("id", "passage_id", "document_id", "vector") if rows >= ROWS_WITH_INDEX else ()
    lacking = [column for column in wanted if column in columns - indexed.keys()]
    unindexed = {column: int(index.num_unindexed_rows or 0) for column, index in indexed.items()}
    due = bool(lacking) or fragments > MOST_FRAGMENTS + rows // 10_000
    due = due or unindexed.get(PASSAGE_WORDS, 0) > rows // 25
    due = due or unindexed.get("vector", 0) > max(MOST_UNINDEXED, rows // 25)
    if due:
        settle(table)  # before there are indices, which merging changes too
    for column in lacking:
        if column != "vector":
            table.create_index(column, config=BTree())
    segments = int(indexed["vector"].num_segments or 0) if "vector" in indexed else 0
    anew = "vector" in lacking or (due and segments >= MOST_SEGMENTS)
    if anew:
        config = IvfSq("cosine", sample_rate=64, max_iterations=10, target_partition_size=ROWS_A_PARTITION)
        table.create_index("vector", config=config, replace=True)
    if lacking or anew:
        settle(table)
    return due


def settle(table: Any) -> None:
    """Merge files and complete indices until there is nothing left to do; every version is kept."""
    before, now = None, table.version
    while before != now:
        table.optimize(cleanup_older_than=_FOREVER)
        before, now = now, table.version


def remove_versions(table: Any, older_than: timedelta) -> None:
    """Remove the files of earlier versions and of writers that were killed.

    Nobody may be writing, and nothing be due: LanceDB merges files in the same go, and would remove the version before.
    No tag guards that one: Lance makes a folder of tags beside a path that is not ASCII, which it takes for a URL.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that others may be reading
        table.optimize(cleanup_older_than=older_than, delete_unverified=True)


def same_dimension(dimensions: set[int | None]) -> int | None:
    """The only one of some dimensions; None where there is none.

    Raises:
        ValueError: There are several.
    """
    if len(dimensions) > 1:
        named = " and ".join(sorted("none" if d is None else f"{d} dimensions" for d in dimensions))
        raise ValueError(f"nodes of one store must all have embeddings of one model, or none; found {named}.")
    return next(iter(dimensions), None)


def dimension_in(schema: pa.Schema) -> int | None:
    """The dimension of the embeddings in a table; None where there are none."""
    return int(schema.field("vector").type.list_size) if "vector" in schema.names else None


def note_in(schema: pa.Schema) -> str:
    """What a table says about its words; empty where it has none."""
    return (schema.metadata or {}).get(_NOTE, b"").decode() if PASSAGE_WORDS in schema.names else ""


def with_words(
    rows: pa.Table, passage_words: Sequence[str | None], unit_words: Sequence[str | None], note: str
) -> pa.Table:
    """Rows with these words, and what is said of them."""
    bare = _without_words(rows)
    for name, words in ((PASSAGE_WORDS, passage_words), (UNIT_WORDS, unit_words)):
        bare = bare.append_column(name, pa.array(words, pa.string()))
    return bare.replace_schema_metadata({_NOTE: note})


def _without_words(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([name for name in (PASSAGE_WORDS, UNIT_WORDS) if name in rows.column_names])


def quote(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def is_any_of(column: str, values: Collection[str]) -> str:
    """The condition that a column has one of some values, of which `IN` needs one."""
    return f"{column} IN ({', '.join(map(quote, dict.fromkeys(values)))})" if values else "false"


def is_of_any(passing: Passing, *columns: str) -> str:
    """A condition that a row meets which leads to one of some passages; empty where they are too many for one.

    Whole documents are named by their ids: to look up some hundred passages takes longer than to search a million rows.

    Args:
        passing: The passages.
        columns: Those that may have a passage's id.
    """
    if not passing.few:
        return ""
    if passing.documents is not None:
        columns, named = ("document_id",), passing.documents
    else:
        named = passing.ids
    return " OR ".join(is_any_of(column, sorted(named)) for column in columns)
