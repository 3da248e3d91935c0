"""Adapters for vector stores of LlamaIndex integrations, which differ in what they keep and give back."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.stores.embedded import EmbeddedNodes, EmbeddedVectorStore
from llama_pack_densex.stores.node_store import NodeStore

# of the stores' classes, by name, since importing an integration needs the store's own packages
_MODULES = {
    "ChromaVectorStore": "chroma",
    "QdrantVectorStore": "qdrant",
    "PGVectorStore": "postgres",
    "MilvusVectorStore": "milvus",
    "FaissVectorStore": "faiss",
    "FaissMapVectorStore": "faiss",
}


def adapter_for(vector_store: BasePydanticVectorStore | None, docstore: BaseDocumentStore | None = None) -> NodeStore:
    """The store of an index that is kept in a vector store of LlamaIndex.

    Args:
        vector_store: None means an embedded one in memory.
        docstore: Where the nodes are kept if the store keeps no text, cannot return nodes, or is one that nothing is
            known of; others need none.

    Raises:
        ValueError: It is none, or LlamaIndex's own `LanceDBVectorStore`.
    """
    if vector_store is None:
        return EmbeddedNodes()
    if not isinstance(vector_store, BasePydanticVectorStore):
        raise ValueError(f"vector_store must be a vector store of LlamaIndex, not a {type(vector_store).__name__}")
    for name in (cls.__name__ for cls in type(vector_store).__mro__):
        if name == "LanceDBVectorStore":
            raise ValueError(
                "LanceDBVectorStore cannot keep an index: it quotes ids wrongly, and writes an id twice that is there. "
                "Leave vector_store out: the embedded store has none of these faults."
            )
        if name in _MODULES:
            adapters = import_module(f"{__name__}.{_MODULES[name]}")
            adapter: Callable[..., NodeStore] = getattr(adapters, f"{_MODULES[name].capitalize()}Nodes")
            return adapter(vector_store, docstore) if _MODULES[name] == "faiss" else adapter(vector_store)
    if isinstance(vector_store, EmbeddedVectorStore):
        return vector_store.nodes
    gives_back = type(vector_store).get_nodes is not BasePydanticVectorStore.get_nodes
    if docstore is None and vector_store.stores_text and gives_back:
        from llama_pack_densex.stores.foreign.alone import StoreAlone

        return StoreAlone(vector_store)
    from llama_pack_densex.stores.foreign.docstore import DocstoreNodes

    return DocstoreNodes(vector_store, docstore)
