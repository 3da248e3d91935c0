"""FAISS: vectors by number, each node's made of its id."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.stores.foreign.docstore import DocstoreNodes, Part
from llama_pack_densex.stores.node_store import DocumentRecord

_INDEX = "faiss"


class FaissNodes(DocstoreNodes):
    """The vectors in a FAISS index, the whole nodes in a docstore.

    Vectors are normalised, so that inner products and distances both tell the cosine, which is the score. A node's
    number in the index is made of its id. An index that takes no numbers is put into an `IndexIDMap2`. The index and a
    docstore that is in memory are kept together by `persist`.

    Args:
        vector_store: A `FaissVectorStore` or `FaissMapVectorStore`.
        docstore: Any docstore of LlamaIndex; None makes one in memory.

    Raises:
        ValueError: The index has vectors without numbers, cannot delete, is not trained, or measures something else
            than inner products or Euclidean distances.
    """

    def __init__(self, vector_store: BasePydanticVectorStore, docstore: BaseDocumentStore | None = None) -> None:
        super().__init__(vector_store, docstore)
        self._lock = threading.RLock()  # FAISS is not to be searched while it is written to
        self._search_in(_numbered(vector_store.client))

    def _search_in(self, index: Any) -> None:
        """Search this index, with the vectors in it that are of nodes of ours, by number."""
        numbers = set(_numbers_in(index).tolist())
        ids = (node_id for document_id in self._notes() for node_id in self._listed(document_id)) if numbers else ()
        store: Any = self.vector_store
        with self._lock:
            self._names = {number: node_id for node_id in ids if (number := _number(node_id)) in numbers}
            store._faiss_index = index
            if hasattr(store, "_faiss_id_to_node_id_map"):
                store._faiss_id_to_node_id_map = self._names  # what a FaissMapVectorStore looks up

    def _parts(self) -> dict[str, Part]:
        import faiss

        def write(file: str) -> None:
            with self._lock:
                faiss.write_index(self._index, file)

        return {**super()._parts(), _INDEX: (faiss.read_index, write)}

    def _hold(self, read: Mapping[str, Any]) -> None:
        super()._hold(read)
        self._search_in(read[_INDEX])
        # a docstore elsewhere may have gone on without the index before a stop
        left = np.setdiff1d(_numbers_in(self._index), np.fromiter(self._names, np.int64))
        if len(left):
            self._index.remove_ids(left)

    def _vectors(self, read: Mapping[str, Any] | None = None) -> set[Any]:
        return set(_numbers_in(self._index if read is None else read[_INDEX]).tolist())

    def documents(self) -> dict[str, DocumentRecord]:
        """The documents by id; one that is not whole has no hash, nor has one of which the index has no vector."""
        return {
            document_id: record
            if any(_number(node_id) in self._names for node_id in self._listed(document_id))
            else DocumentRecord("", record.file)
            for document_id, record in self._notes().items()
        }

    def positions(self) -> dict[str, str]:
        looked_up = hasattr(self.vector_store, "_faiss_id_to_node_id_map")
        return {name if looked_up else str(number): name for number, name in self._names.items()}

    @property
    def _index(self) -> Any:
        return self.vector_store.client

    def _wires(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        wires = super()._wires(nodes)
        self._normalised([node.embedding for node in nodes if node.embedding is not None])
        return wires

    def _delete_vectors(self, document_ids: Sequence[str], node_ids: Sequence[str]) -> None:
        numbers = _numbers(node_ids)
        with self._lock:
            if len(numbers) and self._index.ntotal:
                self._index.remove_ids(numbers)
            for number in numbers.tolist():
                self._names.pop(number, None)

    def _add_vectors(self, wires: Sequence[BaseNode]) -> None:
        distinct = {wire.node_id: wire.get_embedding() for wire in wires}
        if distinct:
            numbers = _numbers(distinct)
            with self._lock:
                self._index.add_with_ids(self._normalised(list(distinct.values())), numbers)
                self._names.update(zip(numbers.tolist(), distinct, strict=True))

    def _nearest(self, question: VectorStoreQuery, limit: int) -> dict[str, float]:
        import faiss

        asked = self._normalised([question.query_embedding or []])
        with self._lock:
            index, names = self._index, self._names
            count = min(limit + index.ntotal - len(names), index.ntotal)  # others may have written there too
            if not count:
                return {}
            scores, numbers = index.search(asked, count)
            if numbers[0][-1] < 0 and isinstance(index, faiss.IndexIVF):  # there are more in the other lists
                every: Any = faiss.SearchParametersIVF(nprobe=index.nlist)  # type: ignore[call-arg]
                scores, numbers = index.search(asked, count, params=every)
            if index.metric_type != faiss.METRIC_INNER_PRODUCT:
                scores = 1 - scores / 2
            pairs = zip(numbers[0].tolist(), np.clip(scores[0], -1, 1).tolist(), strict=True)
            return {names[number]: score for number, score in pairs if number in names}

    def _normalised(self, embeddings: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
        dimension = self._index.d
        other = next((len(one) for one in embeddings if len(one) != dimension), None)
        if other is not None:
            raise ValueError(
                f"the FAISS index takes vectors of {dimension} dimensions, but the embedding model makes {other}: "
                f"create the index with faiss.IndexFlatIP({other})"
            )
        vectors = np.array(embeddings, dtype=np.float32).reshape(-1, dimension)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.ascontiguousarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def exact_store(dimension: int) -> BasePydanticVectorStore:
    """A store over an empty index that searches exactly."""
    import faiss
    from llama_index.vector_stores.faiss import FaissVectorStore

    return FaissVectorStore(faiss.IndexFlatIP(dimension))  # type: ignore[no-any-return]


def _number(node_id: str) -> int:
    """A node's number: 63 bits of a hash, of which a hundred million have two alike with a chance of one in 2,000."""
    return int.from_bytes(hashlib.blake2b(node_id.encode(), digest_size=8).digest(), "big") >> 1


def _numbers(node_ids: Iterable[str]) -> npt.NDArray[np.int64]:
    return np.array([_number(node_id) for node_id in node_ids], dtype=np.int64)


def _numbered(index: Any) -> Any:
    """The index if it takes a number with each vector, and can delete by number; else one around it that does."""
    import faiss

    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    measures = index.metric_type in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2) and not isinstance(
        inner, faiss.IndexLSH
    )
    is_flat = isinstance(inner, faiss.IndexFlatCodes) and not isinstance(inner, faiss.IndexLSH)
    has_lists = isinstance(index, faiss.IndexIVF)
    if not (measures and (is_flat or has_lists) and index.is_trained):
        raise ValueError(
            f"a {type(index).__name__} of FAISS cannot be used here: an index must be trained with normalised "
            "embeddings (index.train), measure inner products or Euclidean distances, and delete vectors by number; "
            "faiss.IndexFlatIP(dimension) searches exactly, and faiss.index_factory(dimension, 'IVF256,Flat', "
            "faiss.METRIC_INNER_PRODUCT) fast"
        )
    if inner is not index or has_lists:
        return index
    if index.ntotal:
        raise ValueError(
            f"the FAISS index has {index.ntotal} vectors, and none of them is of a known node: FAISS keeps no ids. "
            "Pass an empty index and index the documents with it, or open the folder of an earlier one"
        )
    return faiss.IndexIDMap2(index)


def _numbers_in(index: Any) -> npt.NDArray[np.int64]:
    """The numbers of all vectors of an index; an index without numbers counts them."""
    import faiss

    if isinstance(index, faiss.IndexIDMap):
        return np.asarray(faiss.vector_to_array(index.id_map), dtype=np.int64)
    if not isinstance(index, faiss.IndexIVF):
        return np.arange(index.ntotal)
    lists: Any = index.invlists
    sizes = {number: size for number in range(index.nlist) if (size := lists.list_size(number))}
    some = [faiss.rev_swig_ptr(lists.get_ids(number), size).copy() for number, size in sizes.items()]
    return np.concatenate([np.empty(0, np.int64), *some])
