"""The stores with a server, and FAISS with a docstore."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from tests.integration.servers import POSTGRES_USER, Servers
from tests.integration.stores.in_process import ChromaMemory, cosine_collection, over_collection
from tests.integration.stores.open_store import Address, OpenStore, StoreKind
from tests.openai_server import EMBEDDING_DIMENSION


class ChromaServer(StoreKind):
    name = "Chroma, server"
    slug = "chroma-server"
    packages = ChromaMemory.packages
    modules = ChromaMemory.modules

    def new(self, folder: Path, servers: Servers) -> Address:
        return Address(self.slug, f"c{uuid.uuid4().hex}", servers.chroma)

    def open(self, address: Address) -> OpenStore:
        import chromadb

        client = chromadb.HttpClient("127.0.0.1", address.port)
        return over_collection(cosine_collection(client, address.place))


class Postgres(StoreKind):
    name = "PostgreSQL with pgvector"
    slug = "postgres"
    packages = ("pgserver", "llama-index-vector-stores-postgres")
    modules = ("pgserver", "llama_index.vector_stores.postgres")

    def new(self, folder: Path, servers: Servers) -> Address:
        return Address(self.slug, f"t{uuid.uuid4().hex[:12]}", servers.postgres)

    def open(self, address: Address) -> OpenStore:
        from llama_index.vector_stores.postgres import PGVectorStore
        from sqlalchemy import create_engine, text

        at = f"{POSTGRES_USER}@127.0.0.1:{address.port}/postgres"
        store = PGVectorStore.from_params(
            connection_string=f"postgresql+psycopg2://{at}",
            async_connection_string=f"postgresql+asyncpg://{at}",
            table_name=address.place,
            embed_dim=EMBEDDING_DIMENSION,
        )
        engine = create_engine(f"postgresql+psycopg2://{at}")
        table = f"public.data_{address.place}"

        def count_rows() -> int:
            with engine.connect() as connection:
                return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())

        def drop_row(node_id: str) -> None:
            with engine.begin() as connection:
                connection.execute(
                    text(f"DELETE FROM {table} WHERE node_id = :id"), {"id": node_id}
                )

        def shut() -> None:
            engine.dispose()
            if store.client is not None:
                store.client.dispose()

        return OpenStore(store, count_rows=count_rows, drop_row=drop_row, shut=shut)


NO_IDS = {
    "test_rows_of_somebody_else_never_appear": (
        "FAISS keeps no ids, so a vector that others added cannot be told from the pack's own: an index with "
        "vectors that a pack does not know is refused, and so is adding to one by another way than the pack"
    )
}


class Faiss(StoreKind):
    name = "FAISS with a docstore in a folder"
    slug = "faiss"
    packages = ("faiss-cpu", "llama-index-vector-stores-faiss")
    modules = ("faiss", "llama_index.vector_stores.faiss")
    is_every_days = True
    limits = NO_IDS

    def new(self, folder: Path, servers: Servers) -> Address:
        return Address(self.slug, str(folder / "faiss"))

    def open(self, address: Address) -> OpenStore:
        return OpenStore(persist_dir=Path(address.place), empty_store=empty_faiss_store)


class FaissWithRedis(StoreKind):
    name = "FAISS with Redis as docstore"
    slug = "faiss-redis"
    packages = (*Faiss.packages, "redis", "llama-index-storage-kvstore-redis")
    modules = (*Faiss.modules, "redis", "llama_index.storage.kvstore.redis")
    limits = NO_IDS

    def new(self, folder: Path, servers: Servers) -> Address:
        return Address(self.slug, str(folder / "faiss"), servers.redis)

    def open(self, address: Address) -> OpenStore:
        from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
        from llama_index.storage.kvstore.redis import RedisKVStore

        values = RedisKVStore(redis_uri=f"redis://127.0.0.1:{address.port}")
        docstore = KVDocumentStore(values, namespace=address.place)
        return OpenStore(
            docstore=docstore,
            persist_dir=Path(address.place),
            empty_store=empty_faiss_store,
            drop_row=lambda node_id: docstore.delete_document(node_id),
        )

    def missing(self) -> str | None:
        return super().missing() or (
            None if shutil.which("redis-server") else "redis-server is not installed"
        )


def empty_faiss_store() -> Any:
    """An empty FAISS index that measures inner products."""
    import faiss
    from llama_index.vector_stores.faiss import FaissVectorStore

    return FaissVectorStore(faiss.IndexFlatIP(EMBEDDING_DIMENSION))
