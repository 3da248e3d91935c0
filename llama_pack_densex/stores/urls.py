"""Vector stores by URL.

| URL | store | extra |
|---|---|---|
| `chroma://PATH`, `chroma://host:port/collection` | Chroma in a folder, or its server | `chroma` |
| `qdrant://PATH`, `qdrant://host:port/collection` | Qdrant's local mode in a folder, or its server | `qdrant` |
| `milvus://PATH.db`, `milvus://host:port/collection` | Milvus Lite in a file, or a server | `milvus` |
| `postgresql://user:password@host:port/db?table=name` | PostgreSQL with pgvector | `postgres` |
| `faiss://PATH` | FAISS and a docstore in a folder | `faiss` |

What follows `://` is a server where its first part ends in a port (`host:8000`); everything else is a path:
`chroma:///srv/index` is absolute, `chroma://index` and `chroma://./index` are relative. A path's collection is given as
`?collection=name`. A server's key is given as the URL's password (`qdrant://:KEY@host:6333/collection`), and
`?ssl=true` where it is reached by HTTPS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.llm.errors import scrub
from llama_pack_densex.stores.foreign.alone import StoreAlone
from llama_pack_densex.stores.manifest import is_index

COLLECTION = "densex"
"""The collection or table where a URL names none."""

_PASSWORD = re.compile(
    r"(?<=://)((?P<user>[^/@:?]*:).*|[^/@:?]+(?=@[^/@]+:\d))@|(?P<key>[?&][^=&]*(key|password|secret|token)[^=&]*=)[^&]*",
    re.IGNORECASE,
)
_SERVER = re.compile(
    r"((?P<user>[^/@:]*)(:(?P<password>.*))?@)?(?P<host>\[[^/@]+\]|[^/@:]+):(?P<port>\d{1,5})(/(?P<collection>[^/]*))?/?"
)
_HNSW_DIMENSIONS = 2_000  # pgvector's HNSW index takes no longer vectors
_OTHER = "; name another collection, or delete this one and index the documents anew"
_TORN = (
    ". If a process was killed while it wrote there, Chroma's files are torn: index the documents anew, into an "
    "embedded index (a folder's path without chroma://) or a Chroma server, which withstand a kill; replies of an LLM "
    "that are kept are used again"
)


class MissingIndexError(ValueError):
    """There is nothing to read at a URL."""


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is.

    Args:
        name: The URL without a password.
        collection: The name of the collection.
        path: The folder or file; None for a server.
        host: The server; empty for a folder.
        port: Its port.
        user: The user's name; empty where there is none.
        password: The password or key; empty where there is none.
        ssl: Whether it is reached by HTTPS.
        url: The URL, where a driver takes it.
    """

    name: str
    collection: str = COLLECTION
    path: Path | None = None
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    ssl: bool = False
    url: str = field(default="", repr=False)

    @property
    def http(self) -> str:
        """The address of a server that is reached by HTTP."""
        return f"{'https' if self.ssl else 'http'}://{self.host}:{self.port}"

    def missing(self) -> MissingIndexError:
        """What is raised where there is nothing to read."""
        return MissingIndexError(
            f"there is no index at {self.name}: index documents first, with `densex index PATH --to '{self.name}'` or "
            "DenseXRetrievalPack(documents, vector_store=...)"
        )

    def check(self, metric: str, dimension: int | None, wanted: int | None) -> None:
        """Check that a collection that is there measures cosines of vectors of the dimension that is wanted.

        Args:
            metric: What it measures, as its store calls it.
            dimension: Its vectors' dimension; None where it has not been fixed.
            wanted: The embedding model's dimension; None where any will do.

        Raises:
            ValueError: It does not.
        """
        if metric.casefold() != "cosine":
            raise ValueError(f"the collection at {self.name} measures {metric!r} where 'cosine' is needed{_OTHER}")
        if wanted is not None and dimension is not None and wanted != dimension:
            raise ValueError(
                f"the collection at {self.name} has vectors of {dimension} dimensions, but the embedding model makes "
                f"{wanted}{_OTHER}"
            )

    def checked(self, store: BasePydanticVectorStore, dimension: int | None) -> BasePydanticVectorStore:
        """A store whose adapter tells what it measures, once that is checked; see `check`."""
        from llama_pack_densex.stores.foreign import adapter_for

        adapter = adapter_for(store)
        assert isinstance(adapter, StoreAlone), "others keep themselves in a folder"
        with self.reaching():
            known = adapter.described()
        if known is not None:
            self.check(known[1], known[0], dimension)
        elif dimension is None:
            raise self.missing()
        return store

    @contextmanager
    def reaching(self, advice: str = "") -> Iterator[None]:
        """Say which store it is that cannot be reached.

        Args:
            advice: What to do about it.

        Raises:
            ConnectionError: Something was raised in the block.
        """
        try:
            yield
        except MissingIndexError:
            raise
        except Exception as error:
            reason = scrub(str(error), [self.password, quote(self.password, safe="")])
            raise ConnectionError(f"{self.name} cannot be opened: {reason}{advice}") from None


def is_store_url(text: str) -> bool:
    """Whether something is a URL, and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def open_url(url: str, dimension: int | None) -> BasePydanticVectorStore:
    """Open a vector store by its URL; its collection is made where it is missing, and measures cosines.

    Args:
        url: The URL, as the module's documentation lists them. The index of `faiss://PATH` is to be kept in PATH.
        dimension: The dimension of the embedding model's vectors; None to read an index that is there.

    Raises:
        ValueError: The URL is none of those, its collection measures something else or has another dimension, or there
            is nothing to read.
        ImportError: A package is missing; the message says which extra has it.
        ConnectionError: The store cannot be opened.
    """
    scheme = url.partition("://")[0]
    if scheme not in _OPENERS:
        known = ", ".join(f"{scheme}://" for scheme in _OPENERS)
        raise ValueError(
            f"{redacted(url)} is no store that is known: use one of {known}, or a folder's path for the embedded one"
        )
    address = _postgres_address(url) if scheme == "postgresql" else _address(url, servers=scheme != "faiss")
    if address.path is not None and dimension is None and not address.path.exists():
        raise address.missing()
    try:
        return _OPENERS[scheme](address, dimension)
    except ImportError as error:
        extra = scheme.removesuffix("ql")
        raise ImportError(
            f"{address.name} needs packages that are not installed ({error}): pip install 'llama-pack-densex[{extra}]'"
        ) from error


def redacted(url: str) -> str:
    """A URL as it may be shown: its password is left out."""
    return _PASSWORD.sub(lambda found: f"{found['key']}***" if found["key"] else f"{found['user'] or ''}***@", url)


def _address(url: str, servers: bool) -> StoreAddress:
    name = redacted(url)
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    server = _SERVER.fullmatch(place) if servers else None
    allowed = {"ssl"} if server is not None else {"collection"} if servers else set()
    ssl = options.get("ssl", "false").casefold()
    if not options.keys() <= allowed or ssl not in ("true", "false"):
        raise ValueError(
            f"{name}: a server takes the option ssl=true or ssl=false, and a folder (but for faiss://) "
            "collection=NAME; a server's port is part of its address, as in host:8000"
        )
    if server is None:
        if not place:
            raise ValueError(f"{name} names no folder: write {scheme}://PATH")
        return StoreAddress(name, options.get("collection", COLLECTION), path=Path(place).expanduser())
    named, user, password = (unquote(server[part] or "") for part in ("collection", "user", "password"))
    if not password:  # a key that stands alone
        user, password = "", user
    host, port = server["host"], int(server["port"])
    return StoreAddress(name, named or COLLECTION, None, host, port, user, password, ssl == "true")


def _postgres_address(url: str) -> StoreAddress:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    name = redacted(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(f"{name} is no URL: write postgresql://user:password@host:port/db?table=name") from None
    table = parsed.query.get("table", COLLECTION)
    if not isinstance(table, str) or not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", table):
        raise ValueError(f"{name}: a table's name has small letters, digits and _, and at most 41 of them")
    bare = parsed.difference_update_query(["table"]).render_as_string(hide_password=False)
    return StoreAddress(name, table, password=parsed.password or "", url=bare)


# their modules are imported where they are needed, because each of them needs an extra


def _open_chroma(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Chroma, whose default is Euclidean distance."""
    import chromadb
    from chromadb.errors import NotFoundError
    from llama_index.vector_stores.chroma import ChromaVectorStore

    path = address.path
    if path is not None and dimension is None and not (path / "chroma.sqlite3").is_file():  # which it would make
        raise address.missing()
    with address.reaching("" if path is None else _TORN):
        client: Any
        if path is not None:
            client = chromadb.PersistentClient(str(path))
        else:
            headers = {"x-chroma-token": address.password} if address.password else None
            client = chromadb.HttpClient(address.host, address.port, ssl=address.ssl, headers=headers)
        try:
            collection = client.get_collection(address.collection, embedding_function=None)
        except NotFoundError:
            if dimension is None:
                raise address.missing() from None
            cosine = {"hnsw": {"space": "cosine"}}
            collection = client.create_collection(address.collection, configuration=cosine, embedding_function=None)
        some = collection.get(limit=1, include=["embeddings"])["embeddings"]
        if len(some):  # which reads the index of the vectors, that may be torn
            collection.query(query_embeddings=some, n_results=1, include=[])
    return address.checked(ChromaVectorStore(chroma_collection=collection), dimension)


def _open_qdrant(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Qdrant, which is made with the first nodes."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import AsyncQdrantClient, QdrantClient

    asynchronous: Any = None
    with address.reaching():
        if address.path is not None:
            client = QdrantClient(path=str(address.path))
        else:
            options: dict[str, Any] = {"url": address.http, "api_key": address.password or None}
            client, asynchronous = QdrantClient(**options), AsyncQdrantClient(**options)
        store = QdrantVectorStore(address.collection, client=client, aclient=asynchronous)
    return address.checked(store, dimension)


def _open_milvus(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a collection of Milvus."""
    from llama_index.vector_stores.milvus import MilvusVectorStore
    from pymilvus import MilvusClient

    if address.path is not None:
        if address.path.suffix != ".db":
            raise ValueError(f"{address.name}: the file of Milvus Lite must end in .db; a server needs a port")
        address.path.parent.mkdir(parents=True, exist_ok=True)
    place = {"uri": str(address.path or address.http), "token": f"{address.user}:{address.password}".strip(":")}
    with address.reaching():
        if dimension is None and not MilvusClient(**place).has_collection(address.collection):
            raise address.missing()
        store = MilvusVectorStore(
            **place,
            collection_name=address.collection,
            dim=dimension,
            similarity_metric="COSINE",
            index_config={"index_type": "AUTOINDEX"},
            use_async_client=False,
        )
    return address.checked(store, dimension)


def _open_postgres(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Open a table of PostgreSQL with pgvector."""
    import pgvector.sqlalchemy  # noqa: F401  # with which SQLAlchemy knows the vectors' types
    import sqlalchemy as sa
    from llama_index.vector_stores.postgres import PGVectorStore
    from sqlalchemy.ext.asyncio import create_async_engine

    url = sa.make_url(address.url)
    ssl = url.query.get("sslmode")
    # the two drivers call it by two names
    asynchronous = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": ssl} if ssl else {})
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg2"))
    table: dict[str, str] = {"table_name": f"data_{address.collection}", "schema": "public"}
    size = dimension
    with address.reaching():
        there = sa.inspect(engine)
        if there.has_table(**table):
            types: dict[str, Any] = {column["name"]: column["type"] for column in there.get_columns(**table)}
            size = types["embedding"].dim
        elif dimension is None:
            raise address.missing()
    address.check("cosine", size, dimension)  # which is what is asked for, whatever there is an index for
    hnsw = {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 100, "hnsw_dist_method": "vector_cosine_ops"}
    store: BasePydanticVectorStore = PGVectorStore(
        engine=engine,
        async_engine=create_async_engine(asynchronous.set(drivername="postgresql+asyncpg")),
        table_name=address.collection,
        embed_dim=size,
        perform_setup=dimension is not None,
        initialization_fail_on_error=True,
        use_jsonb=True,
        hnsw_kwargs=hnsw if size is not None and size <= _HNSW_DIMENSIONS else None,
    )
    return store


def _open_faiss(address: StoreAddress, dimension: int | None) -> BasePydanticVectorStore:
    """Make an empty FAISS index, into which the folder's is read where there is one."""
    from llama_pack_densex.stores.foreign.faiss import exact_store

    assert address.path is not None
    if dimension is None and not is_index(address.path):
        raise address.missing()
    return exact_store(dimension or 1)


_OPENERS: dict[str, Callable[[StoreAddress, int | None], BasePydanticVectorStore]] = {
    "chroma": _open_chroma,
    "qdrant": _open_qdrant,
    "milvus": _open_milvus,
    "postgresql": _open_postgres,
    "faiss": _open_faiss,
}
