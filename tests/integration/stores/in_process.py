"""The stores that run in the process of their user."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.integration.stores.open_store import Address, OpenStore, StoreKind
from tests.openai_server import EMBEDDING_DIMENSION


class EmbeddedMemory(StoreKind):
    name = "embedded, in memory"
    slug = "embedded-memory"
    packages = ("usearch",)
    is_in_memory = True

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, uuid.uuid4().hex)

    def open(self, address: Address) -> OpenStore:
        from llama_pack_densex.index.embedded import EmbeddedVectorStore

        store = EmbeddedVectorStore()
        return OpenStore(
            store,
            count_rows=lambda: len(store.get_nodes()),
            drop_row=lambda node_id: store.delete_nodes([node_id]),
        )


class EmbeddedFolder(StoreKind):
    name = "embedded, in a folder"
    slug = "embedded-folder"
    packages = ("usearch",)
    is_every_days = True

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, str(folder / "索引 1"))

    def open(self, address: Address) -> OpenStore:
        return OpenStore(persist_dir=Path(address.place))


class ChromaMemory(StoreKind):
    name = "Chroma, in memory"
    slug = "chroma-memory"
    packages = ("chromadb", "llama-index-vector-stores-chroma")
    modules = ("chromadb", "llama_index.vector_stores.chroma")
    is_in_memory = True

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, f"c{uuid.uuid4().hex}")

    def open(self, address: Address) -> OpenStore:
        import chromadb

        # with the distance that a collection has whose maker says nothing: squared L2
        collection = chromadb.EphemeralClient().get_or_create_collection(
            address.place, configuration={"hnsw": EXACT}
        )
        return over_collection(collection)


class ChromaFolder(StoreKind):
    name = "Chroma, in a folder"
    slug = "chroma-folder"
    packages = ChromaMemory.packages
    modules = ChromaMemory.modules

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, str(folder / "chroma"))

    def open(self, address: Address) -> OpenStore:
        import chromadb

        client = chromadb.PersistentClient(address.place)
        store = over_collection(cosine_collection(client, "densex"))
        store.shut = client.close
        return store


class QdrantFolder(StoreKind):
    name = "Qdrant, local mode"
    slug = "qdrant-local"
    packages = ("qdrant-client", "llama-index-vector-stores-qdrant")
    modules = ("qdrant_client", "llama_index.vector_stores.qdrant")

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, str(folder / "qdrant"))

    def open(self, address: Address) -> OpenStore:
        from llama_index.vector_stores.qdrant import QdrantVectorStore
        from qdrant_client import QdrantClient

        client = QdrantClient(path=address.place)
        return OpenStore(
            QdrantVectorStore(collection_name="densex", client=client),
            count_rows=lambda: client.count("densex").count,
            drop_row=lambda node_id: client.delete("densex", [node_id]),
            shut=client.close,
        )


class LanceDBFolder(StoreKind):
    name = "LanceDB by LlamaIndex's integration"
    slug = "lancedb-integration"
    packages = ("lancedb", "llama-index-vector-stores-lancedb")
    modules = ("lancedb", "llama_index.vector_stores.lancedb")
    limits: ClassVar[Mapping[str, str]] = {
        "test_rows_of_somebody_else_never_appear": (
            "a table of LanceDB has the metadata keys of its first rows: it refuses what others add with "
            "further keys"
        ),
        "test_rows_of_somebody_else_may_be_there_before": (
            "the rows stay, but the integration's own `get_nodes` takes ids for names of columns"
        ),
    }

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, str(folder / "lancedb"))

    def open(self, address: Address) -> OpenStore:
        import lancedb
        from llama_index.vector_stores.lancedb import LanceDBVectorStore

        connection = lancedb.connect(address.place)

        def table() -> Any:
            return connection.open_table("vectors")

        return OpenStore(
            LanceDBVectorStore(connection=connection),
            count_rows=lambda: int(table().count_rows()),
            drop_row=lambda node_id: table().delete(f"id = '{node_id}'"),
        )


class MilvusLite(StoreKind):
    name = "Milvus Lite"
    slug = "milvus-lite"
    packages = ("milvus-lite", "pymilvus", "llama-index-vector-stores-milvus")
    modules = ("milvus_lite", "llama_index.vector_stores.milvus")
    limits: ClassVar[Mapping[str, str]] = {
        "test_long_metadata_comes_back_as_it_was": (
            "Milvus holds at most 65,535 bytes for a text, and for all metadata of a row: longer values are "
            "refused, with their size"
        )
    }

    def new(self, folder: Path, servers: Any) -> Address:
        return Address(self.slug, str(folder / "milvus.db"))

    def open(self, address: Address) -> OpenStore:
        from llama_index.vector_stores.milvus import MilvusVectorStore
        from milvus_lite.server_manager import server_manager_instance  # type: ignore[import-untyped]

        store = MilvusVectorStore(
            uri=address.place,
            collection_name="densex",
            dim=EMBEDDING_DIMENSION,
            similarity_metric="COSINE",
            use_async_client=False,  # it wants a running event loop when it is made
        )
        client = store.client

        def shut() -> None:
            client.close()
            server_manager_instance.release_server(address.place)

        return OpenStore(
            store,
            count_rows=lambda: int(
                client.query("densex", output_fields=["count(*)"])[0]["count(*)"]
            ),
            drop_row=lambda node_id: client.delete("densex", ids=[node_id]),
            shut=shut,
        )


EXACT = {"max_neighbors": 400, "ef_construction": 1000, "ef_search": 1000}
"""More links and candidates than the corpus has nodes: the approximate index finds what an exact one does."""


def cosine_collection(client: Any, name: str) -> Any:
    """A Chroma collection that measures cosines."""
    return client.get_or_create_collection(
        name, configuration={"hnsw": {"space": "cosine", **EXACT}}
    )


def over_collection(collection: Any) -> OpenStore:
    """The store over a Chroma collection."""
    from llama_index.vector_stores.chroma import ChromaVectorStore

    return OpenStore(
        ChromaVectorStore(chroma_collection=collection),
        count_rows=collection.count,
        drop_row=lambda node_id: collection.delete(ids=[node_id]),
    )
