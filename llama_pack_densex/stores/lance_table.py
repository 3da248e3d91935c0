"""The LanceDB table that an embedded store writes: every change is another version of it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llama_pack_densex.stores import lance_upkeep
from llama_pack_densex.stores.lance_conditions import is_any_of
from llama_pack_densex.stores.lance_rows import ROWS_A_BATCH, dimension_in, same_dimension
from llama_pack_densex.stores.lance_version import TableVersion
from llama_pack_densex.stores.loaded import Digests, are_in, digests_of
from llama_pack_densex.stores.manifest import InvalidIndexError

IN_MEMORY = "memory://"
TABLE = "nodes"
_NOTES = "notes"  # beside it, what is said of all nodes
MOST_MERGED = 100_000
"""Rows of a table up to which a document is replaced in one transaction. LanceDB joins the new rows to the whole table
for it: with 1,000,000 rows that takes 1.4 s and 2 GB, deleting and appending takes 0.1 s."""
_KEPT_IN_MEMORY = timedelta(minutes=1)  # earlier versions of a table in memory: threads may be reading one


class NodeTable:
    """Rows by node id; whoever reads holds on to `now` and sees one version throughout.

    Args:
        uri: A folder, or "memory://".
        version: The version to read, and to write on top of; 0 for the time before there was a table. None means the
            latest, whoever wrote it.

    Raises:
        InvalidIndexError: The version is not there, or a file is damaged.
    """

    def __init__(self, uri: str, version: int | None = None) -> None:
        self.uri = uri
        self.connection = lancedb.connect(uri)
        self._pinned = version is not None
        # somebody knows the version to go back to after a stop half-way, or there is nothing left after one
        self._keeps_versions = self._pinned or uri == IN_MEMORY
        self._writing = threading.RLock()
        self._seen: tuple[int, Digests] | None = None  # a version, and digests of all ids in it, perhaps of more
        self._settled: int | None = None  # the version after which there is nothing to compact or to index
        if version is None:
            version = self._latest_version()
        self.now = self._at(version)

    def replace(self, rows: pa.Table, document_ids: Collection[str] = ()) -> None:
        """Write rows, replacing those whose ids are there, and delete the other rows of some documents.

        Nobody who reads sees a part of it. It is one transaction, except for a large table that was opened at some
        version: there a stop in between leaves a newer version, which `roll_back` leaves out.

        Raises:
            ValueError: The rows' embeddings are not of the table's dimension.
            InvalidIndexError: Another process has written to a table that was opened at some version.
        """
        with self._changing() as table:
            ids = rows["id"].combine_chunks()
            if table is None or not table.count_rows():
                self.connection.create_table(TABLE, rows, mode="create" if table is None else "overwrite")
                return
            same_dimension({dimension_in(table.schema), dimension_in(rows.schema)})
            gone = is_any_of("document_id", document_ids) if document_ids else ""
            if gone and not table.count_rows(gone):
                gone = ""
            if gone and self._keeps_versions and table.count_rows() > MOST_MERGED:
                known = ids.filter(pa.array(self._may_be_in(table, ids))).to_pylist()
                table.delete(f"{gone} OR {is_any_of('id', known)}" if known else gone)
                table.add(rows)
            elif gone or self._may_be_in(table, ids).any():
                merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                (merge.when_not_matched_by_source_delete(gone) if gone else merge).execute(rows)
            else:
                seen = self._digests_in(table)
                table.add(rows)
                self._seen = int(table.version), np.sort(np.concatenate([seen, digests_of(ids)]), kind="stable")

    def delete(self, condition: str) -> None:
        """Delete the rows that meet a condition, in one transaction."""
        with self._changing() as table:
            if table is not None:
                table.delete(condition)

    def clear(self) -> None:
        """Delete all rows, in one transaction."""
        with self._changing() as table:
            if table is not None:
                self._empty(table)

    def roll_back(self, version: int) -> None:
        """Go on from a version that may be another process's; what was written after it is left out.

        Args:
            version: 0 leaves an empty table, if there is one.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        with self._writing:
            latest = self._latest_version()
            if version != latest:
                with self._at(version).reading():
                    table = self.connection.open_table(TABLE)
                    if version:
                        table.restore(version)
                    elif table.count_rows():
                        self._empty(table)
            self._follow()

    def reopen(self, version: int) -> None:
        """Read another version, which another process made; nothing is written.

        Raises:
            InvalidIndexError: The version is not there any more.
        """
        with self._writing:
            if version != self.now.version:
                self.now = self._at(version)

    def maintain(self) -> bool:
        """Do what upkeep is due; see `lance_upkeep`.

        Returns:
            Whether there is another version now.
        """
        before = self.now.version
        with self._changing() as table:
            if table is not None and lance_upkeep.keep_up(table, dimension_in(table.schema)):
                self._settled = int(table.version)
                if self.uri == IN_MEMORY:
                    lance_upkeep.remove_versions(table, _KEPT_IN_MEMORY)
        return self.now.version != before

    def clean(self, older_than: timedelta) -> None:
        """Remove the files of versions that are older, and what writers left that were killed.

        Done only directly after a `maintain` that returned True or after `compact`: at other times LanceDB would
        compact in the same go, and remove the version before that.
        """
        with self._writing:
            if self._settled is not None and self._settled == self.now.version == self._latest_version():
                with self.now.reading():
                    lance_upkeep.remove_versions(self.connection.open_table(TABLE), older_than)

    def compact(self) -> None:
        """Write all rows and all indices anew; `clean(timedelta(0))` then erases what was deleted or replaced."""
        with self._changing() as table:
            if table is None:
                return
            written = self.connection.create_table(TABLE, self._stream(), mode="overwrite")
            lance_upkeep.keep_up(written, dimension_in(written.schema))
            lance_upkeep.settle(written)
            self._settled = int(written.version)

    def copy_to(self, folder: Path) -> int:
        """Write all rows into an empty folder, with indices where they are due.

        Returns:
            The version of the table there; 0 where there is none.
        """
        if self.now.table is None:
            return 0
        written = lancedb.connect(str(folder)).create_table(TABLE, self._stream())
        lance_upkeep.keep_up(written, self.now.dimension)
        return int(written.version)

    def _empty(self, table: Any) -> None:
        # not dropped: the numbers of versions would begin anew
        self.connection.create_table(TABLE, table.schema.empty_table(), mode="overwrite")

    @property
    def is_pinned(self) -> bool:
        """Whether it was opened at some version, which somebody else keeps."""
        return self._pinned

    @property
    def note(self) -> str | None:
        """What `write_note` kept; None where there is nothing."""
        if self._pinned or _NOTES not in self.connection.list_tables().tables:
            return None
        rows = self.connection.open_table(_NOTES).to_arrow()
        return str(rows["text"][0].as_py()) if len(rows) else None

    def write_note(self, text: str) -> None:
        """Keep a text beside the rows."""
        there = _NOTES in self.connection.list_tables().tables  # LanceDB warns of overwriting what is not
        self.connection.create_table(_NOTES, pa.table({"text": [text]}), mode="overwrite" if there else "create")

    def _stream(self) -> pa.RecordBatchReader:
        now = self.now
        schema = now.table.schema
        return pa.RecordBatchReader.from_batches(schema, now.scan(schema.names))

    @contextmanager
    def _changing(self) -> Iterator[Any]:
        """The table as it is written to, or None where there is none; what failed half-way is taken back."""
        with self._writing:
            table = self._open_latest()
            before = int(table.version) if table is not None else 0
            try:
                yield table
            except BaseException:
                self._take_back(before)
                raise
            finally:
                self._follow()

    def _follow(self) -> None:
        version = self._latest_version()
        if version != self.now.version:
            self.now = self._at(version)

    def _open_latest(self) -> Any:
        latest = self._latest_version()
        if self._pinned and latest != self.now.version:
            raise InvalidIndexError(
                f"the index in {self.uri} was written to since version {self.now.version} of its table, which is now "
                f"at version {latest}: load the index again."
            )
        if not latest:
            return None
        with self.now.reading():
            return self.connection.open_table(TABLE)

    def _take_back(self, version: int) -> None:
        if version and self._latest_version() != version:
            self.connection.open_table(TABLE).restore(version)

    def _at(self, version: int) -> TableVersion:
        return TableVersion(self.connection, TABLE, self.uri, version)

    def _latest_version(self) -> int:
        if not self._exists():
            return 0
        with TableVersion(self.connection, TABLE, self.uri, 0).reading():
            return int(self.connection.open_table(TABLE).version)

    def _exists(self) -> bool:
        if self.uri == IN_MEMORY:
            return TABLE in self.connection.list_tables().tables
        # a writer that was killed before its first version was whole leaves a folder without one
        return any((Path(self.uri) / f"{TABLE}.lance" / "_versions").glob("*.manifest"))

    def _may_be_in(self, table: Any, ids: pa.StringArray) -> npt.NDArray[np.bool_]:
        """For each id whether it may be in the table; False is certain."""
        return are_in(digests_of(ids), self._digests_in(table))

    def _digests_in(self, table: Any) -> Digests:
        version = int(table.version)
        if self._seen is None or self._seen[0] != version:
            batches = table.search().select(["id"]).to_batches(batch_size=8 * ROWS_A_BATCH)
            digests = [digests_of(batch.column("id")) for batch in batches]
            self._seen = version, np.sort(np.concatenate([np.zeros(0, np.uint64), *digests]))
        return self._seen[1]
