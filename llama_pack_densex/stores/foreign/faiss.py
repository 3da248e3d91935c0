"""FAISS: vectors by row number, and beside them what says which node a row is of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.stores.foreign.docstore import DOCSTORE, DocstoreNodes, Nearest, read_docstore
from llama_pack_densex.stores.foreign.faiss_rows import FaissRows
from llama_pack_densex.stores.foreign.saved_parts import read_parts
from llama_pack_densex.stores.node_store import FoundNode
from llama_pack_densex.stores.records import DocumentRecord

DIMENSION = "dimension"
"""A note in the folder: the dimension of the index's vectors."""
_INDEX, _ROWS = "faiss", "rows"  # files of the folder
_NO_MAP = 0  # faiss.DirectMap.NoMap, which its type hints lack
_WORTH_COMPACTING = 1_000  # dead rows
_AT_ONCE = 50_000  # vectors that are copied together
_ADVICE = (
    "faiss.IndexFlatIP(dimension) searches exactly, faiss.IndexHNSWFlat(dimension, 32, faiss.METRIC_INNER_PRODUCT)"
)


class FaissNodes(DocstoreNodes):
    """The vectors in a FAISS index, the whole nodes in a docstore.

    Vectors are normalised, so that inner products and distances both tell the cosine, which is the score. Rows of
    replaced and deleted nodes stay in the index, where no question finds them, until `compact` builds it anew.
    The index, what its rows are of, and a docstore that is in memory are kept together by `persist`.

    Args:
        vector_store: A `FaissVectorStore` or `FaissMapVectorStore`.
        docstore: Any docstore of LlamaIndex; None makes one in memory.
        rows: What the rows of the vector store's index are of; None where it is empty.

    Raises:
        ValueError: The index has other rows, is not trained, or measures something else than inner products or
            Euclidean distances.
    """

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        docstore: BaseDocumentStore | None = None,
        rows: FaissRows | None = None,
    ) -> None:
        super().__init__(vector_store, docstore)
        self._rows = rows if rows is not None else FaissRows()
        self._lock = threading.RLock()  # FAISS is not to be searched while it is written to
        _check_kind(self._index)
        self._check_rows()
        self._reads_rows = _reads_rows(self._index)
        self._tell_store(0)

    @classmethod
    def load(
        cls,
        folder: Path,
        docstore: BaseDocumentStore | None = None,
        vector_store: BasePydanticVectorStore | None = None,
    ) -> FaissNodes:
        """Open what `persist` kept.

        Documents of which the docstore has another version than the index, after a stop in between, have no hash and
        are not found until they are indexed again.

        Args:
            folder: The folder.
            docstore: The docstore, where it was not one in memory.
            vector_store: A store that is to hold the index; its own must be empty, or be what was kept. None makes one.

        Raises:
            ValueError: There is nothing in the folder, it is damaged, or the docstore or the vector store is another.
        """

        def read(parts: dict[str, Path]) -> tuple[Any, FaissRows, BaseDocumentStore]:
            nodes = docstore
            if nodes is None or isinstance(nodes, SimpleDocumentStore):
                if DOCSTORE not in parts:
                    raise ValueError(f"the nodes of {folder} are in a docstore of their own; pass it as docstore=")
                nodes = read_docstore(parts[DOCSTORE])
            return _read_index(parts[_INDEX]), FaissRows.read(parts[_ROWS]), nodes

        index, rows, kept = read_parts(folder, read)
        if index.ntotal != len(rows):
            raise ValueError(
                f"{folder} is damaged: {index.ntotal} vectors, {len(rows)} rows; index the documents anew."
            )
        nodes = cls(_holding(index, vector_store), kept, rows)
        documents = nodes._tables.documents()
        rows.drop([one for one, of in rows.versions.items() if one not in documents or documents[one].version != of])
        nodes._folder, nodes._saved = folder, nodes._state
        return nodes

    def _store_elsewhere(self) -> None:
        return None

    def _take_over(self, there: DocstoreNodes) -> None:
        assert isinstance(there, FaissNodes)
        super()._take_over(there)
        store: Any = self.vector_store
        with self._lock:
            store._faiss_index, self._rows = there._index, there._rows
            self._tell_store(0)

    @property
    def rows(self) -> FaissRows:
        """What the index's rows are of."""
        return self._rows

    def documents(self) -> dict[str, DocumentRecord]:
        versions = self._rows.versions
        return {
            one: DocumentRecord(kept.hash if versions.get(one) == kept.version else "", kept.file)
            for one, kept in self._tables.documents().items()
        }

    def positions(self) -> dict[str, str]:
        if _has_ids(self._index):
            return {node_id: node_id for node_id in self._rows.ids(self._rows.live())}
        live = self._rows.live()
        return {str(row): node_id for row, node_id in zip(live, self._rows.ids(live), strict=True)}

    def maintain(self) -> bool:
        # most of what is searched is dead, and graphs lose their way in it
        if self._rows.dead < max(_WORTH_COMPACTING, len(self._rows) // 2) or not self._reads_rows:
            return False
        self.compact()
        return True

    def compact(self) -> None:
        """Build the index anew without the rows of replaced and deleted nodes.

        Raises:
            ValueError: The index is of a kind that cannot give its vectors back.
        """
        with self._lock:
            self._check_rows()
            if not self._rows.dead:
                return
            vectors = _vectors(self._index, self._rows.live())
            self._index.reset()
            self._rows = self._rows.compacted()
            for start in range(0, len(vectors), _AT_ONCE):
                self._add(vectors[start : start + _AT_ONCE], start)
            self._tell_store(0)
            self._changed()

    @property
    def _index(self) -> Any:
        return self.vector_store.client

    def _parts(self) -> dict[str, Callable[[Path], None]]:
        return {**super()._parts(), _INDEX: self._write_index, _ROWS: self._rows.write}

    def _check(self, nodes: Sequence[BaseNode]) -> None:
        self._check_dimension([node.embedding for node in nodes if node.embedding is not None])
        self._check_rows()

    def _note_unfinished(self, document_ids: Sequence[str]) -> None:
        """Nothing: the versions of the rows tell."""

    def _notes(self) -> dict[str, int]:
        return {DIMENSION: self._index.d, "vectors": self._index.ntotal}

    def _write_index(self, path: Path) -> None:
        import faiss

        with self._lock:
            faiss.write_index(self._index, str(path))

    def _replace_vectors(
        self, nodes: Mapping[str, Sequence[BaseNode]], before: Mapping[str, Sequence[str]], version: str
    ) -> None:
        embedded = [node for theirs in nodes.values() for node in theirs if node.embedding is not None]
        vectors = self._normalised([node.get_embedding() for node in embedded])
        with self._lock:
            self._check_rows()
            there = self._rows.of(before)
            same = [self._has(there.get(node.node_id), vector) for node, vector in zip(embedded, vectors, strict=True)]
            kept = [there[node.node_id] for node, is_same in zip(embedded, same, strict=True) if is_same]
            added = {node.node_id for node, is_same in zip(embedded, same, strict=True) if not is_same}
            self._rows.drop(before, kept)
            start = len(self._rows)
            if added:
                self._add(np.ascontiguousarray(vectors[~np.array(same)]), start)
            for document_id, theirs in nodes.items():
                self._rows.append(document_id, version, [node for node in theirs if node.node_id in added])
            self._tell_store(start)

    def _has(self, row: int | None, vector: npt.NDArray[np.float32]) -> bool:
        # rows are not written again for nothing: FAISS's graphs fall apart where there are many equal vectors
        if row is None or _has_ids(self._index) or not self._reads_rows:
            return False
        return bool(np.allclose(self._index.reconstruct(row), vector, atol=1e-6))

    def _nearest(self, question: VectorStoreQuery, limit: int) -> Nearest:
        asked = self._normalised([question.query_embedding or []])
        with self._lock:
            self._check_rows()
            total = len(self._rows)
            living = total - self._rows.dead
            # what is dropped is made up for beforehand; where the dead are near to the question, more is asked for
            count = min(total, limit if living == total else int(1.2 * limit * total / max(living, 1)) + 8)
            while count:
                kept = self._search_rows(self._index, asked, count)
                if count == total and len(kept) < min(limit, living):
                    kept = self._search_rows(_scanned(self._index), asked, count)
                if len(kept) >= limit or count == total:
                    return Nearest(kept[:limit], count == total and len(kept) <= limit)
                count = min(total, 4 * count)
        return Nearest([], True)

    def _search_rows(self, index: Any, asked: npt.NDArray[np.float32], count: int) -> list[FoundNode]:
        scores, rows = index.search(asked, count)
        pairs = zip(rows[0].tolist(), self._cosines(scores[0]), strict=True)
        return [node for row, score in pairs if (node := self._rows.found(row, score)) is not None]

    def _check_dimension(self, embeddings: Sequence[Sequence[float]]) -> None:
        dimension = self._index.d
        other = next((len(one) for one in embeddings if len(one) != dimension), None)
        if other is not None:
            raise ValueError(
                f"the FAISS index takes vectors of {dimension} dimensions, but the embedding model makes {other}: "
                f"create the index with faiss.IndexFlatIP({other})"
            )

    def _normalised(self, embeddings: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
        self._check_dimension(embeddings)
        vectors = np.array(embeddings, dtype=np.float32).reshape(-1, self._index.d)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.ascontiguousarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)

    def _cosines(self, scores: npt.NDArray[np.float32]) -> list[float]:
        import faiss

        cosines = scores if self._index.metric_type == faiss.METRIC_INNER_PRODUCT else 1 - scores / 2
        return [float(cosine) for cosine in np.clip(cosines, -1, 1)]

    def _add(self, vectors: npt.NDArray[np.float32], start: int) -> None:
        if _has_ids(self._index):
            self._index.add_with_ids(vectors, np.arange(start, start + len(vectors), dtype=np.int64))
        else:
            self._index.add(vectors)

    def _check_rows(self) -> None:
        if self._index.ntotal != len(self._rows):
            raise ValueError(
                f"the FAISS index has {self._index.ntotal} vectors, of which {len(self._rows)} are of known nodes: "
                "FAISS keeps no ids. Pass an empty index and index the documents with it, or open the folder of an "
                "earlier one, and leave it to the pack to change"
            )

    def _tell_store(self, start: int) -> None:
        """Bring the ids up to date that `FaissMapVectorStore` looks up when it is asked itself."""
        if not _has_ids(self._index) or not hasattr(self.vector_store, "_faiss_id_to_node_id_map"):
            return
        store: Any = self.vector_store
        if not start:
            store._faiss_id_to_node_id_map, store._node_id_to_faiss_id_map = {}, {}
        numbers = range(start, len(self._rows))
        for number, node_id in zip(numbers, self._rows.ids(numbers), strict=True):
            store._faiss_id_to_node_id_map[number] = node_id
            store._node_id_to_faiss_id_map[node_id] = number


def _check_kind(index: Any) -> None:
    import faiss

    kind = type(index).__name__
    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2) or isinstance(index, faiss.IndexLSH):
        raise ValueError(f"a {kind} measures neither inner products nor Euclidean distances: {_ADVICE} fast")
    if not index.is_trained:
        raise ValueError(
            f"the {kind} is not trained: call index.train(vectors) with normalised embeddings of some of the texts, or "
            f"take one that needs no training: {_ADVICE} fast"
        )


def _has_ids(index: Any) -> bool:
    import faiss

    return isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2)


def _scanned(index: Any) -> Any:
    """What finds all rows of an index: of a graph, which does not lead to each of its vectors, the vectors."""
    import faiss

    return faiss.downcast_index(index.storage) if isinstance(index, faiss.IndexHNSW) else index


def _reads_rows(index: Any) -> bool:
    """Whether an index gives single vectors back as they were added."""
    import faiss

    return isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat)


def _vectors(index: Any, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Read vectors back; row numbers are ids as well, since nothing but `reset` takes rows away."""
    import faiss

    inner = faiss.downcast_index(index.index) if _has_ids(index) else index
    inverted = faiss.try_extract_index_ivf(inner)
    vectors = np.empty((len(rows), index.d), dtype=np.float32)
    try:
        if inverted is not None:
            inverted.make_direct_map()
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            vectors[start : start + len(some)] = inner.reconstruct_batch(some)
    except RuntimeError as error:
        raise ValueError(
            f"a {type(inner).__name__} cannot give its vectors back ({str(error).splitlines()[0]}): index the "
            f"documents anew into an empty index. Those that can: {_ADVICE} fast"
        ) from error
    finally:
        if inverted is not None:
            inverted.set_direct_map_type(_NO_MAP)
    return vectors


def _read_index(path: Path) -> Any:
    import faiss

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path} is damaged ({error}); index the documents anew.") from error


def _holding(index: Any, store: Any) -> BasePydanticVectorStore:
    """A vector store that holds an index: the one that is given, or a new one."""
    from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore

    if store is None:
        made: BasePydanticVectorStore = (FaissMapVectorStore if _has_ids(index) else FaissVectorStore)(index)
        return made
    theirs = store.client
    if theirs.ntotal == 0:
        store._faiss_index = index
    elif (theirs.ntotal, theirs.d, theirs.metric_type) != (index.ntotal, index.d, index.metric_type):
        raise ValueError(
            f"the vector store holds {theirs.ntotal} vectors of {theirs.d} dimensions, but the folder {index.ntotal} "
            f"of {index.d}: leave vector_store out, or pass one with an empty index"
        )
    return store  # type: ignore[no-any-return]
