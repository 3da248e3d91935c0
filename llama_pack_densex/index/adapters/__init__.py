"""Adapters for the vector stores of LlamaIndex integrations, which differ in what they keep and return."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.embedded import EmbeddedNodes, EmbeddedVectorStore
from llama_pack_densex.index.node_store import NodeStore

# by the name of the store's class, because importing an integration needs the store's own packages
_ADAPTERS = {
    "ChromaVectorStore": "chroma:ChromaNodes",
    "QdrantVectorStore": "qdrant:QdrantNodes",
    "PGVectorStore": "postgres:PostgresNodes",
    "MilvusVectorStore": "milvus:MilvusNodes",
    "LanceDBVectorStore": "lancedb:LanceDBNodes",
    "FaissVectorStore": "faiss:FaissNodes",
    "FaissMapVectorStore": "faiss:FaissNodes",
}


def adapter_for(
    vector_store: BasePydanticVectorStore | None, docstore: BaseDocumentStore | None = None
) -> NodeStore:
    """Return the adapter for a vector store of LlamaIndex.

    Args:
        vector_store: The vector store; None means an embedded one in memory.
        docstore: The docstore for the nodes, if the vector store keeps no text or cannot return nodes. A
            store without an adapter of its own uses it too, if it is given; the others ignore it.

    Raises:
        ValueError: `vector_store` is not a vector store of LlamaIndex.
    """
    if vector_store is None:
        return EmbeddedNodes()
    if not isinstance(vector_store, BasePydanticVectorStore):
        raise ValueError(
            f"vector_store must be a vector store of LlamaIndex, not a {type(vector_store).__name__}"
        )
    if isinstance(vector_store, EmbeddedVectorStore):
        return vector_store.nodes
    place = _adapter_name(vector_store, docstore)
    adapter: Callable[..., NodeStore] = resolve_name(f"{__name__}.{place}")
    if place in ("faiss:FaissNodes", "docstore:DocstoreNodes"):
        return adapter(vector_store, docstore)
    return adapter(vector_store)


def _adapter_name(vector_store: BasePydanticVectorStore, docstore: BaseDocumentStore | None) -> str:
    for cls in type(vector_store).__mro__:
        if cls.__name__ in _ADAPTERS:
            return _ADAPTERS[cls.__name__]
    returns_nodes = type(vector_store).get_nodes is not BasePydanticVectorStore.get_nodes
    if docstore is None and vector_store.stores_text and returns_nodes:
        return "alone:StoreAlone"
    return "docstore:DocstoreNodes"
