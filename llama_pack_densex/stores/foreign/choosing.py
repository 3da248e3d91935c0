"""Which adapter a vector store needs."""

from __future__ import annotations

from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.stores.node_store import NodeStore


def adapter_for(vector_store: BasePydanticVectorStore, docstore: BaseDocumentStore | None = None) -> NodeStore:
    """The adapter for a store of LlamaIndex.

    Args:
        vector_store: Any but our own `LanceVectorStore`.
        docstore: Where the nodes are kept if the store keeps no text, cannot return nodes, or is one that nothing is
            known of; others need none.

    Raises:
        ValueError: It is LlamaIndex's own `LanceDBVectorStore`.
    """
    # by name, since importing an integration needs the store's own packages
    classes = {cls.__name__ for cls in type(vector_store).__mro__}
    if "LanceDBVectorStore" in classes:
        raise ValueError(
            "LanceDBVectorStore cannot keep an index: it quotes ids wrongly, takes the metadata keys of the first node "
            "for those of all, and writes a second row for an id that is there. Give no vector_store, or persist_dir "
            "only: the embedded store is a LanceDB table without these faults."
        )
    if classes & {"FaissVectorStore", "FaissMapVectorStore"}:
        from llama_pack_densex.stores.foreign.faiss import FaissNodes

        return FaissNodes(vector_store, docstore)
    if "ChromaVectorStore" in classes:
        from llama_pack_densex.stores.foreign.chroma import ChromaNodes

        return ChromaNodes(vector_store)
    if "QdrantVectorStore" in classes:
        from llama_pack_densex.stores.foreign.qdrant import QdrantNodes

        return QdrantNodes(vector_store)
    if "PGVectorStore" in classes:
        from llama_pack_densex.stores.foreign.postgres import PostgresNodes

        return PostgresNodes(vector_store)
    if "MilvusVectorStore" in classes:
        from llama_pack_densex.stores.foreign.milvus import MilvusNodes

        return MilvusNodes(vector_store)
    if (
        docstore is None
        and vector_store.stores_text
        and type(vector_store).get_nodes is not BasePydanticVectorStore.get_nodes
    ):
        from llama_pack_densex.stores.foreign.alone import StoreAloneNodes

        return StoreAloneNodes(vector_store)
    from llama_pack_densex.stores.foreign.docstore import DocstoreNodes

    return DocstoreNodes(vector_store, docstore)
