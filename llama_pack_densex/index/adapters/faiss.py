"""FAISS, whose vectors have numbers instead of ids: a node's number is derived from its id."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from faiss.contrib.inspect_tools import get_invlist
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.index.adapters.docstore import DocstoreNodes, ReadPart, Writers
from llama_pack_densex.index.node_store import DocumentRecord, DocumentRecords, Ids, Nodes
from llama_pack_densex.index.urls import StoreAddress

_INDEX = "faiss"


class FaissNodes(DocstoreNodes):
    """Nodes whose vectors are in a FAISS index, and which are themselves in a docstore.

    Vectors are unit-normalised, so that inner products and distances both yield the cosine, which is the
    score. A node's number in the index is derived from its id. An index that takes no numbers is wrapped in
    an `IndexIDMap2`. `persist` writes the index, together with a docstore that is in memory.

    Args:
        vector_store: A `FaissVectorStore` or `FaissMapVectorStore`.
        docstore: Any docstore of LlamaIndex; None creates one in memory.

    Raises:
        ValueError: The index holds vectors without numbers, cannot delete, is not trained, or measures
            something other than inner products or Euclidean distances; or (on `read_about`, which precedes
            each use) it holds vectors whose nodes are not in the docstore.
    """

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        docstore: BaseDocumentStore | None = None,
    ) -> None:
        super().__init__(vector_store, docstore)
        self._lock = threading.RLock()  # FAISS must not be searched while it is written to
        self._looks_up = hasattr(vector_store, "_faiss_id_to_node_id_map")
        self._search_in(_numbered(vector_store.client))

    def documents(self) -> DocumentRecords:
        """Return the documents by id; one that is incomplete, or has no vector in the index, has no hash."""
        documents = super().documents()
        present = set(self._names.values())
        for document_id, info in self._listed().items():
            if present.isdisjoint(info.node_ids):
                documents[document_id] = DocumentRecord()
        return documents

    def read_about(self) -> str | None:
        unknown = self._index.ntotal - len(self._names)
        if unknown > 0:
            raise _not_known(unknown)
        return super().read_about()

    def positions(self) -> dict[str, str]:
        if self._looks_up:
            return {name: name for name in self._names.values()}
        return {str(number): name for number, name in self._names.items()}

    def _search_in(self, index: Any) -> None:
        """Use this index for searches from now on, and map its numbers to the ids of our nodes."""
        numbers = set(_numbers_in(index).tolist())
        names = self._listed_names()
        store: Any = self.vector_store
        with self._lock:
            self._index = store._faiss_index = index
            self._names = {number: names[number] for number in numbers if number in names}
            if self._looks_up and numbers == self._names.keys():
                store._faiss_id_to_node_id_map = self._names

    def _listed_names(self) -> dict[int, str]:
        """Return the ids of the nodes in the docstore, by the numbers of their vectors."""
        infos = self._listed().values()
        return {_number(node_id): node_id for info in infos for node_id in info.node_ids}

    def _writers(self) -> Writers:
        return {**super()._writers(), _INDEX: self._write}

    def _write(self, file: str) -> None:
        with self._lock:
            faiss.write_index(self._index, file)

    def _reload_vectors(self, read: ReadPart) -> None:
        index = read(_INDEX, faiss.read_index)
        numbers = _numbers_in(index)
        self._check_same(_numbers_in(self._index).tolist(), numbers.tolist())
        # before a stop, a docstore outside the folder may have been changed after the index was written
        index.remove_ids(np.setdiff1d(numbers, np.fromiter(self._listed_names(), np.int64)))
        self._search_in(index)

    def _wires(self, nodes: Nodes) -> list[BaseNode]:
        for node in nodes:
            if node.embedding is not None:
                self._check_dimension(node.embedding)
        return super()._wires(nodes)

    def _add_vectors(self, wires: Nodes) -> None:
        embeddings = {wire.node_id: wire.get_embedding() for wire in wires}
        if embeddings:
            numbers = _numbers(embeddings)
            with self._lock:
                self._index.add_with_ids(_normalised(list(embeddings.values())), numbers)
                self._names.update(zip(numbers.tolist(), embeddings, strict=True))

    def _delete_vectors(self, document_ids: Iterable[str], node_ids: Ids) -> None:
        numbers = _numbers(node_ids)
        with self._lock:
            self._index.remove_ids(numbers)
            for number in numbers.tolist():
                self._names.pop(number, None)

    def _nearest(self, question: VectorStoreQuery, limit: int) -> dict[str, float]:
        embedding = question.query_embedding or []
        self._check_dimension(embedding)
        vectors = _normalised([embedding])
        with self._lock:
            index = self._index
            count = min(limit, index.ntotal)
            if not count:
                return {}
            scores, numbers = index.search(vectors, count)
            # an index of inverted lists has more vectors in the lists that it did not search
            if numbers[0][-1] < 0:
                every_list = faiss.SearchParametersIVF(nprobe=index.nlist)  # type: ignore[call-arg]
                scores, numbers = index.search(vectors, count, params=every_list)
            if index.metric_type == faiss.METRIC_L2:
                scores = 1 - scores / 2
            # a number may be unknown, because others may write to the same index
            names = [self._names.get(number, str(number)) for number in numbers[0].tolist()]
        return dict(zip(names, np.clip(scores[0], -1, 1).tolist(), strict=True))

    def _check_dimension(self, embedding: Sequence[float]) -> None:
        dimension = len(embedding)
        if dimension != self._index.d:
            raise ValueError(
                f"the FAISS index takes vectors of {self._index.d} dimensions, but the embedding model makes "
                f"{dimension}: create the index with faiss.IndexFlatIP({dimension})"
            )


def open_at(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Create an empty index; the folder's index, if there is one, is read into it later."""
    return exact_store(dimension or 1)


def exact_store(dimension: int) -> BasePydanticVectorStore:
    """Return a store over an empty index that searches exactly."""
    from llama_index.vector_stores.faiss import FaissVectorStore

    return FaissVectorStore(faiss.IndexFlatIP(dimension))  # type: ignore[no-any-return]


def _normalised(embeddings: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
    vectors = np.array(embeddings, dtype=np.float32)
    faiss.normalize_L2(vectors)
    return vectors


def _number(node_id: str) -> int:
    """Return a node's number: 63 bits of a hash, which collide with a probability of one in 2,000 among a
    hundred million nodes."""
    return int.from_bytes(hashlib.blake2b(node_id.encode(), digest_size=8).digest(), "big") >> 1


def _numbers(node_ids: Iterable[str]) -> npt.NDArray[np.int64]:
    return np.array([_number(node_id) for node_id in node_ids], dtype=np.int64)


def _numbers_in(index: Any) -> npt.NDArray[np.int64]:
    """Return the numbers of all vectors in an index."""
    if isinstance(index, faiss.IndexIDMap):
        return faiss.vector_to_array(index.id_map)
    numbers = [get_invlist(index.invlists, place)[0] for place in range(index.nlist)]
    return np.concatenate(numbers)


def _numbered(index: Any) -> Any:
    """Return the index if it takes a number with each vector and can delete by number; otherwise wrap it in
    one that does.

    Raises:
        ValueError: The index cannot be used; the message says why.
    """
    inner = index
    if isinstance(index, faiss.IndexIDMap):
        inner = faiss.downcast_index(index.index)
    has_numbers = inner is not index or isinstance(index, faiss.IndexIVF)
    can_delete = isinstance(index, faiss.IndexIVF) or isinstance(inner, faiss.IndexFlatCodes)
    measures = index.metric_type in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2)
    if not (can_delete and measures and index.is_trained) or isinstance(inner, faiss.IndexLSH):
        raise ValueError(
            f"a {type(index).__name__} of FAISS cannot be used here: an index must be trained with "
            "normalised embeddings (index.train), measure inner products or Euclidean distances, and delete "
            "vectors by number. Use faiss.IndexFlatIP(dimension) for exact search, or "
            "faiss.index_factory(dimension, 'IVF256,Flat', faiss.METRIC_INNER_PRODUCT) for fast search"
        )
    if has_numbers:
        return index
    if index.ntotal:
        raise _not_known(index.ntotal)
    return faiss.IndexIDMap2(index)


def _not_known(count: int) -> ValueError:
    return ValueError(
        f"the FAISS index has {count} vectors whose nodes are unknown, since FAISS keeps no ids. Pass an "
        "empty index and index the documents with it, open the folder of an earlier index, or pass the "
        "docstore= of the pack that wrote the vectors"
    )
