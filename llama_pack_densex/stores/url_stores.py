"""One function for each kind of store that has a URL: it opens LlamaIndex's integration, set to cosines."""

from __future__ import annotations

import re
from typing import Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.stores.foreign.chroma_folder import ensure_healthy
from llama_pack_densex.stores.foreign.saved_parts import read_notes
from llama_pack_densex.stores.manifest import Manifest, is_index
from llama_pack_densex.stores.urls import StoreAddress

_HNSW_DIMENSIONS = 2_000  # pgvector's HNSW index takes no longer vectors


def open_chroma(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Chroma, whose default is Euclidean distance."""
    import chromadb
    from chromadb.errors import NotFoundError
    from llama_index.vector_stores.chroma import ChromaVectorStore

    path = address.path
    if path is not None:
        if not (path / "chroma.sqlite3").is_file():
            if dimension is None:
                raise address.missing()
        else:
            ensure_healthy(path)
    with address.reaching():
        client: Any
        if path is not None:
            client = chromadb.PersistentClient(str(path))
        else:
            headers = {"x-chroma-token": address.password} if address.password else None
            client = chromadb.HttpClient(address.host, address.port, ssl=address.ssl, headers=headers)
        try:
            collection = client.get_collection(address.collection, embedding_function=None)
        except NotFoundError:
            collection = None
        if collection is None and dimension is not None:
            collection = client.create_collection(
                address.collection, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
            )
    if collection is None:
        raise address.missing()
    configuration = collection.configuration
    measured = next((configuration[kind]["space"] for kind in ("hnsw", "spann") if configuration.get(kind)), "l2")
    some = collection.get(limit=1, include=["embeddings"])["embeddings"]
    address.check(str(measured), len(some[0]) if len(some) else None, dimension)
    store: BasePydanticVectorStore = ChromaVectorStore(chroma_collection=collection)
    return store


def open_qdrant(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Qdrant."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import AsyncQdrantClient, QdrantClient, models

    if address.path is not None and dimension is None and not address.path.is_dir():
        raise address.missing()
    asynchronous: Any = None
    with address.reaching():
        if address.path is not None:
            client = QdrantClient(path=str(address.path))
        else:
            options: dict[str, Any] = {"url": address.http, "api_key": address.password or None}
            client, asynchronous = QdrantClient(**options), AsyncQdrantClient(**options)
        there = client.collection_exists(address.collection)
        vectors = client.get_collection(address.collection).config.params.vectors if there else None
        if isinstance(vectors, dict):
            vectors = vectors.get("text-dense") or next(iter(vectors.values()))
    if vectors is None and dimension is None:
        client.close()
        raise address.missing()
    if vectors is not None:
        address.check(str(vectors.distance.value), vectors.size, dimension)
    wanted = vectors or models.VectorParams(size=dimension or 0, distance=models.Distance.COSINE)
    store: BasePydanticVectorStore = QdrantVectorStore(
        address.collection, client=client, aclient=asynchronous, dense_config=wanted
    )
    return store


def open_milvus(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Milvus."""
    from llama_index.vector_stores.milvus import MilvusVectorStore
    from pymilvus import MilvusClient

    if address.path is not None:
        if address.path.suffix != ".db":
            raise ValueError(f"{address.name}: the file of Milvus Lite must end in .db; a server needs a port")
        if dimension is None and not address.path.exists():
            raise address.missing()
        address.path.parent.mkdir(parents=True, exist_ok=True)
    uri = str(address.path) if address.path is not None else address.http
    token = f"{address.user}:{address.password}".strip(":")
    there = None
    with address.reaching():
        client = MilvusClient(uri=uri, token=token)
        if client.has_collection(address.collection):
            there = client.describe_collection(address.collection)
            (index, *_) = client.list_indexes(address.collection) or [""]
            described = client.describe_index(address.collection, index) if index else {"metric_type": "none"}
    if there is None and dimension is None:
        raise address.missing()
    if there is not None:
        sizes = [one["params"]["dim"] for one in there["fields"] if "dim" in one["params"]]
        address.check(str(described["metric_type"]), int(sizes[0]) if sizes else None, dimension)
        dimension = int(sizes[0]) if sizes else dimension
    with address.reaching():
        store: BasePydanticVectorStore = MilvusVectorStore(
            uri=uri,
            token=token,
            collection_name=address.collection,
            dim=dimension,
            similarity_metric="COSINE",
            index_config={"index_type": "AUTOINDEX"},
            use_async_client=False,
        )
    return store


def open_postgres(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a table of PostgreSQL with pgvector."""
    import sqlalchemy as sa
    from llama_index.vector_stores.postgres import PGVectorStore
    from sqlalchemy.ext.asyncio import create_async_engine

    url = sa.make_url(address.url)
    ssl = url.query.get("sslmode")
    # the two drivers call it by two names
    asynchronous = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": ssl} if ssl else {})
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg2"))
    table = f"data_{address.collection}"
    with address.reaching(), engine.connect() as connection:
        column = connection.execute(
            sa.text(
                "SELECT a.atttypmod, t.typname, m.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
                "JOIN pg_attribute b ON b.attrelid = a.attrelid AND b.attname = 'metadata_' "
                "JOIN pg_type m ON m.oid = b.atttypid "
                "WHERE a.attrelid = to_regclass(:name) AND a.attname = 'embedding'"
            ),
            {"name": f"public.{table}"},
        ).one_or_none()
        indexes = connection.execute(
            sa.text("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = :name"),
            {"name": table},
        ).scalars()
        measured = [found[1] for one in indexes if (found := re.search(r"\bembedding \w+?_(\w+)_ops", one))]
    if column is None and dimension is None:
        engine.dispose()
        raise address.missing()
    size, kind, metadata = column if column is not None else (dimension, "vector", "jsonb")
    address.check(next((one for one in measured if one != "cosine"), "cosine"), size, dimension)
    indexed = size is not None and size <= _HNSW_DIMENSIONS
    store: BasePydanticVectorStore = PGVectorStore(
        engine=engine,
        async_engine=create_async_engine(asynchronous.set(drivername="postgresql+asyncpg")),
        table_name=address.collection,
        embed_dim=size,
        perform_setup=dimension is not None,
        initialization_fail_on_error=True,
        use_jsonb=metadata == "jsonb",
        use_halfvec=kind == "halfvec",
        hnsw_kwargs=_hnsw(kind) if indexed else None,
    )
    return store


def open_faiss(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Make an empty FAISS index for a folder; what the folder has is read by `FaissNodes.load`."""
    import faiss
    from llama_index.vector_stores.faiss import FaissVectorStore

    from llama_pack_densex.stores.foreign.faiss import DIMENSION

    assert address.path is not None
    data = address.path / Manifest.read(address.path).data if is_index(address.path) else address.path
    notes = read_notes(data)
    there = notes.get(DIMENSION) if notes else None
    address.check("cosine", there, dimension)
    size = there or dimension
    if size is None:
        raise address.missing()
    store: BasePydanticVectorStore = FaissVectorStore(faiss.IndexFlatIP(size))
    return store


def _hnsw(kind: str) -> dict[str, Any]:
    return {
        "hnsw_m": 16,
        "hnsw_ef_construction": 64,
        "hnsw_ef_search": 100,
        "hnsw_dist_method": f"{kind}_cosine_ops",
    }
