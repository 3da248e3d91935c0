"""Which node each row of a FAISS index is of; FAISS itself numbers its rows and knows no more."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llama_index.core.schema import BaseNode, IndexNode

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.stores.node_store import FoundNode

_VERSIONS = b"versions"


class FaissRows:
    """The rows of a FAISS index, those included that count as deleted until the index is rebuilt.

    Rows know their document and not the other way round, so there is no dictionary of all nodes.

    Attributes:
        versions: Of each document that has rows that count, which of its versions they are of.
    """

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self._ids: list[str] = []
        self._granularities: list[str] = []
        self._passages: list[str] = []
        self._documents = array("q")  # numbers; the ids are below
        self._live = bytearray()
        self._dead = 0
        self._document_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        """How many rows there are, the deleted ones included."""
        return len(self._ids)

    @property
    def dead(self) -> int:
        """How many rows count as deleted."""
        return self._dead

    def append(self, document_id: str, version: str, nodes: Sequence[BaseNode]) -> None:
        """Add rows for the nodes of one version of a document."""
        number = self._document_numbers.setdefault(document_id, len(self._document_numbers))
        shared: dict[str, str] = {}  # the units of a passage name the same object
        for node in nodes:
            passage_id = node.index_id if isinstance(node, IndexNode) else ""
            self._ids.append(node.node_id)
            self._granularities.append(str(node.metadata.get(GRANULARITY_KEY, "passage")))
            self._passages.append(shared.setdefault(passage_id, passage_id))
        self._documents.extend([number] * len(nodes))
        self._live.extend(b"\x01" * len(nodes))
        self.versions[document_id] = version

    def of(self, document_ids: Collection[str]) -> dict[str, int]:
        """The rows of some documents that count, by their nodes' ids."""
        rows = np.flatnonzero(self._are_of(document_ids)).tolist()
        return {self._ids[row]: row for row in rows if self._live[row]}

    def drop(self, document_ids: Collection[str], kept: Collection[int] = ()) -> None:
        """Count the rows of some documents as deleted, but for those that are kept."""
        dropped = self._are_of(document_ids)
        dropped[list(kept)] = False
        np.frombuffer(self._live, dtype=np.uint8)[dropped] = 0
        self._dead = self._live.count(0)
        for document_id in document_ids:
            self.versions.pop(document_id, None)

    def _are_of(self, document_ids: Collection[str]) -> npt.NDArray[np.bool_]:
        numbers = [self._document_numbers[one] for one in document_ids if one in self._document_numbers]
        return np.isin(np.frombuffer(self._documents, dtype=np.int64), numbers)

    def live(self) -> npt.NDArray[np.int64]:
        """The rows that count."""
        return np.flatnonzero(np.frombuffer(bytes(self._live), dtype=np.uint8))

    def found(self, row: int, score: float) -> FoundNode | None:
        """The node of a row; None where it is deleted, or FAISS found none."""
        if not 0 <= row < len(self._live) or not self._live[row]:
            return None
        return FoundNode(self._ids[row], self._granularities[row], self._passages[row], score)

    def ids(self, rows: Iterable[int]) -> list[str]:
        """The ids of the nodes of some rows."""
        return [self._ids[row] for row in rows]

    def compacted(self) -> FaissRows:
        """The rows that count, numbered anew in the same order."""
        table = self._table()
        return FaissRows._of(table.filter(table["live"]), self.versions)

    def write(self, path: Path) -> None:
        """Write them to a file."""
        table = self._table().replace_schema_metadata({_VERSIONS: json.dumps(self.versions).encode()})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    @classmethod
    def read(cls, path: Path) -> FaissRows:
        """Read what `write` wrote.

        Raises:
            ValueError: The file is damaged.
        """
        try:
            with pa.OSFile(str(path), "rb") as source:
                table = pa.ipc.open_file(source).read_all()
            return cls._of(table, json.loads(table.schema.metadata[_VERSIONS]))
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, KeyError, TypeError, OSError, ValueError) as error:
            raise ValueError(f"{path} is damaged ({error}); index the documents anew.") from error

    def _table(self) -> Any:
        live = np.frombuffer(bytes(self._live), dtype=np.uint8).astype(bool)
        numbers = np.frombuffer(bytes(self._documents), dtype=np.int64)
        # nothing is written of documents that are gone
        names = pa.array([one if one in self.versions else "" for one in self._document_numbers], pa.string())
        return pa.table(
            {
                "id": pa.array(self._ids, pa.string()),
                "granularity": pa.array(self._granularities, pa.string()).dictionary_encode(),
                "passage": pa.array(self._passages, pa.string()).dictionary_encode(),
                "document": pa.DictionaryArray.from_arrays(pa.array(numbers), names),
                "live": pa.array(live),
            }
        )

    @classmethod
    def _of(cls, table: Any, versions: Mapping[str, str]) -> FaissRows:
        rows = cls()
        rows.versions = dict(versions)
        rows._ids = table["id"].to_pylist()
        rows._granularities = _shared(table["granularity"])
        rows._passages = _shared(table["passage"])
        rows._live = bytearray(np.asarray(table["live"].to_numpy(zero_copy_only=False), dtype=np.uint8).tobytes())
        rows._dead = rows._live.count(0)
        for name in _shared(table["document"]):
            rows._documents.append(rows._document_numbers.setdefault(name, len(rows._document_numbers)))
        return rows


def _shared(column: Any) -> list[str]:
    """A column's strings, equal ones as the same object."""
    strings: list[str] = []
    for chunk in column.chunks:
        distinct = chunk.dictionary.to_pylist()
        strings += [distinct[number] for number in chunk.indices.to_pylist()]
    return strings
