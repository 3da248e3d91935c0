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
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from llama_index.core.vector_stores.types import BasePydanticVectorStore

COLLECTION = "densex"
"""The collection or table where a URL names none."""

_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^/\\:\[\]]+):(?P<port>\d{1,5})(?:/(?P<collection>[^/]*))?/?")
_PASSWORD = re.compile(r"(?<=://)(?P<user>[^/@:?]*):[^/]*@|(?P<key>[?&]password=)[^&]*")
_WITH_SSL = frozenset(("collection", "ssl"))


@dataclass(frozen=True)
class OpenedUrl:
    """A store that was opened by its URL.

    Args:
        vector_store: The store.
        folder: Where its index is to be kept, for a store that is in memory; otherwise None.
        name: The URL as it may be shown: without a password.
    """

    vector_store: BasePydanticVectorStore
    folder: Path | None
    name: str


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is.

    Args:
        url: The URL.
        name: The URL without a password.
        collection: The name of the collection.
        path: The folder or file; None for a server.
        host: The server; empty for a folder.
        port: Its port.
        user: The user's name; empty where there is none.
        password: The password or key; empty where there is none.
        ssl: Whether it is reached by HTTPS.
    """

    url: str = field(repr=False)
    name: str
    collection: str = COLLECTION
    path: Path | None = None
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    ssl: bool = False

    @property
    def http(self) -> str:
        """The address of a server that is reached by HTTP."""
        return f"{'https' if self.ssl else 'http'}://{self.host}:{self.port}"

    def missing(self) -> ValueError:
        """What is raised where there is nothing to read."""
        return ValueError(
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
        other = "; name another collection, or delete this one and index the documents anew"
        if metric.casefold() != "cosine":
            raise ValueError(f"the collection at {self.name} measures {metric!r} where 'cosine' is needed{other}")
        if wanted is not None and dimension is not None and wanted != dimension:
            raise ValueError(
                f"the collection at {self.name} has vectors of {dimension} dimensions, but the embedding model makes "
                f"{wanted}{other}"
            )

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Say which store it is that cannot be reached.

        Raises:
            ConnectionError: Something was raised in the block.
        """
        try:
            yield
        except Exception as error:
            said = str(error).replace(self.password, "***") if self.password else str(error)
            raise ConnectionError(f"{self.name} cannot be opened: {said}") from None


Opener = Callable[[StoreAddress, int | None], BasePydanticVectorStore]

# the modules are imported where they are needed, because each of them needs an extra
_OPENERS = {
    "chroma": ("open_chroma", "chroma", _WITH_SSL, ("chromadb", "llama_index.vector_stores.chroma")),
    "qdrant": ("open_qdrant", "qdrant", _WITH_SSL, ("qdrant_client", "llama_index.vector_stores.qdrant")),
    "milvus": ("open_milvus", "milvus", _WITH_SSL, ("pymilvus", "llama_index.vector_stores.milvus")),
    "postgresql": ("open_postgres", "postgres", None, ("llama_index.vector_stores.postgres",)),
    "faiss": ("open_faiss", "faiss", frozenset[str](), ("faiss", "llama_index.vector_stores.faiss")),
}


def is_store_url(text: str) -> bool:
    """Whether something is a URL, and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def open_url(url: str, dimension: int | None) -> OpenedUrl:
    """Open a vector store by its URL; its collection is made where it is missing, and measures cosines.

    Args:
        url: The URL, as the module's documentation lists them.
        dimension: The dimension of the embedding model's vectors; None to read an index that is there.

    Raises:
        ValueError: The URL is none of those, its collection measures something else or has another dimension, or there
            is nothing to read.
        ImportError: A package is missing; the message says which extra has it.
        ConnectionError: The store cannot be opened.
    """
    name = redacted(url)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _OPENERS:
        known = ", ".join(f"{scheme}://" for scheme in _OPENERS)
        raise ValueError(
            f"{name} is no store that is known: use one of {known}, or a folder's path for the embedded one"
        )
    function, extra, allowed, modules = _OPENERS[scheme]
    address = _postgres_address(url) if allowed is None else _address(url, allowed)
    _require(modules, extra, name)
    opener: Opener = getattr(import_module("llama_pack_densex.stores.url_stores"), function)
    store = opener(address, dimension)
    return OpenedUrl(store, address.path if scheme == "faiss" else None, name)


def redacted(url: str) -> str:
    """A URL as it may be shown: its password is left out."""
    return _PASSWORD.sub(lambda found: f"{found['key']}***" if found["key"] else f"{found['user']}:***@", url)


def _address(url: str, allowed: frozenset[str]) -> StoreAddress:
    name = redacted(url)
    place, _, query = url.partition("://")[2].partition("?")
    options = _options(query, allowed, name)
    ssl = options.get("ssl", "false").casefold()
    if ssl not in ("true", "false"):
        raise ValueError(f"{name}: ssl must be true or false")
    who, at, server = place.rpartition("@")
    found = _SERVER.fullmatch(server)
    if found is None or "ssl" not in allowed:
        if not place:
            raise ValueError(f"{name} names no folder: write {url.partition('://')[0]}://PATH")
        if ssl == "true":
            raise ValueError(f"{name}: a folder has no ssl; a server's port is part of its address, as in host:8000")
        path = Path(place).expanduser()
        return StoreAddress(url, name, options.get("collection", COLLECTION), path=path)
    if found["collection"] and "collection" in options:
        raise ValueError(f"{name} names two collections: leave one of them out")
    user, _, password = who.partition(":") if at else ("", "", "")
    return StoreAddress(
        url,
        name,
        unquote(found["collection"] or "") or options.get("collection", COLLECTION),
        host=found["host"],
        port=int(found["port"]),
        user=unquote(user),
        password=unquote(password),
        ssl=ssl == "true",
    )


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
    return StoreAddress(
        parsed.difference_update_query(["table"]).render_as_string(hide_password=False),
        name,
        table,
        host=parsed.host or "",
        port=parsed.port or 0,
        user=parsed.username or "",
        password=parsed.password or "",
    )


def _options(query: str, allowed: frozenset[str], name: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - allowed)
    if unknown:
        known = f"there are {', '.join(sorted(allowed))}" if allowed else "there are none"
        raise ValueError(f"{name}: unknown option {unknown[0]!r}; {known}")
    return options


def _require(modules: tuple[str, ...], extra: str, name: str) -> None:
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{name} needs packages that are not installed ({error}): pip install 'llama-pack-densex[{extra}]'"
            ) from error
