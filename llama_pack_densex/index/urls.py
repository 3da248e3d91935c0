"""Vector stores by URL.

| URL | store | extra |
|---|---|---|
| `chroma://PATH`, `chroma://host:port/collection` | Chroma in a folder, or its server | `chroma` |
| `qdrant://PATH`, `qdrant://host:port/collection` | Qdrant's local mode, or its server | `qdrant` |
| `milvus://PATH.db`, `milvus://host:port/collection` | Milvus Lite in a file, or a server | `milvus` |
| `postgresql://user:password@host:port/db?table=name` | PostgreSQL with pgvector | `postgres` |
| `faiss://PATH` | FAISS and a docstore in a folder | `faiss` |

If the first part after `://` ends in a port (`host:8000`), the URL names a server; everything else is a path:
`chroma:///srv/index` is absolute, `chroma://index` and `chroma://./index` are relative. A path takes its
collection as `?collection=name`. A server takes its key as the URL's password
(`qdrant://:KEY@host:6333/collection`), and `?ssl=true` if it is reached by HTTPS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.adapters.alone import Space, StoreAlone
from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.llm.errors import scrub

COLLECTION = "densex"
"""The collection or table that is used if a URL names none."""

_EXTRAS = {
    "chroma": "chroma",
    "qdrant": "qdrant",
    "milvus": "milvus",
    "postgresql": "postgres",
    "faiss": "faiss",
}
"""For each scheme, the extra with the store's packages; the adapter's module has the same name."""
_PASSWORD = re.compile(
    r"(?<=://)((?P<user>[^/@:?]*:).*|[^/@:?]+(?=@[^/@]+:\d))@|(?P<key>[?&][^=&]*(key|password|secret|token)[^=&]*=)[^&]*",
    re.IGNORECASE,
)
_SERVER = re.compile(
    r"((?P<user>[^/@:]*)(:(?P<password>.*))?@)?(?P<host>\[[^/@]+\]|[^/@:]+):(?P<port>\d{1,5})(/(?P<collection>[^/]*))?/?"
)
_SCHEMES = {"true": "https", "false": "http"}  # by the value of the option ssl
_OTHER = "; name another collection, or delete this one and index the documents again"
_TORN = (
    ". If a process was killed while writing there, Chroma's files are torn: index the documents again, into "
    "an embedded index (a folder's path without chroma://) or a Chroma server, which survive a kill; "
    "cached LLM replies are reused"
)


class MissingIndexError(ValueError):
    """There is no index at a URL that is opened for reading."""


@dataclass(frozen=True)
class StoreAddress:
    """The address of a store.

    Args:
        name: The URL without its password.
        collection: The name of the collection.
        path: The folder or file; None for a server.
        user: The user's name; empty if there is none.
        password: The password or key; empty if there is none.
        url: The address that a server's driver takes; empty for a path.
    """

    name: str
    collection: str = COLLECTION
    path: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    url: str = field(default="", repr=False)

    def missing(self) -> MissingIndexError:
        """Return the error to raise if there is no index at this address."""
        return MissingIndexError(
            f"there is no index at {self.name}: index documents first, with `densex index PATH --to "
            f"'{self.name}'` or DenseXRetrievalPack(documents, vector_store=...)"
        )

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn errors in the block into one that names the store, without its password.

        Raises:
            ConnectionError: Anything but an `ImportError` or `MissingIndexError` was raised in the block.
        """
        try:
            yield
        except (ImportError, MissingIndexError):
            raise
        except Exception as error:
            reason = scrub(str(error), [self.password, quote(self.password, safe="")])
            advice = ""
            if self.path is not None and self.name.startswith("chroma"):
                advice = _TORN
            raise ConnectionError(f"{self.name} cannot be opened: {reason}{advice}") from None

    def check(self, space: Space | None, dimension: int | None) -> None:
        """Check that a collection measures cosines, and has vectors of the embedding model's dimension; see
        `open_url`."""
        if space is None:
            if dimension is None:
                raise self.missing()
            return
        if space.metric.casefold() != "cosine":
            raise ValueError(
                f"the collection at {self.name} measures {space.metric!r} where 'cosine' is needed{_OTHER}"
            )
        if None not in (dimension, space.dimension) and dimension != space.dimension:
            raise ValueError(
                f"the collection at {self.name} has vectors of {space.dimension} dimensions, but the "
                f"embedding model makes {dimension}{_OTHER}"
            )


def is_store_url(text: str) -> bool:
    """Return whether a text is a URL rather than a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def open_url(url: str, dimension: int | None) -> BasePydanticVectorStore:
    """Open a vector store by its URL, and create its collection (with cosine distance) if it is missing.

    Args:
        url: The URL, as listed in the module's documentation. The caller has to persist the index of
            `faiss://PATH` in PATH.
        dimension: The dimension of the embedding model's vectors; None to read an existing index.

    Raises:
        ValueError: The URL is not one of those listed, its collection uses another metric or dimension, or
            there is no index to read.
        ImportError: A package is missing; the message says which extra installs it.
        ConnectionError: The store cannot be opened.
    """
    scheme = url.partition("://")[0]
    if scheme not in _EXTRAS:
        schemes = ", ".join(f"{scheme}://" for scheme in _EXTRAS)
        raise ValueError(
            f"{redacted(url)} is not a known store: use one of {schemes}, or a folder's path for the "
            "embedded store"
        )
    address = _postgres_address(url) if scheme == "postgresql" else _address(url, scheme)
    if address.path is not None:
        _check_path(address, address.path, scheme, dimension)
    extra = _EXTRAS[scheme]
    try:
        with address.reaching():
            store: BasePydanticVectorStore = import_module(
                f"{adapter_for.__module__}.{extra}"
            ).open_at(address, dimension)
            adapter = adapter_for(store)
            space = adapter.described() if isinstance(adapter, StoreAlone) else Space(dimension)
    except ImportError as error:
        raise ImportError(
            f"{address.name} needs packages that are not installed ({error}): pip install "
            f"'llama-pack-densex[{extra}]'"
        ) from error
    address.check(space, dimension)
    return store


def _check_path(address: StoreAddress, path: Path, scheme: str, dimension: int | None) -> None:
    if scheme == "milvus" and path.suffix != ".db":
        raise ValueError(
            f"{address.name}: the file of Milvus Lite must end in .db; a server needs a port"
        )
    exists = is_index(path) if scheme == "faiss" else path.exists()
    if dimension is None and not exists:
        raise address.missing()


def redacted(url: str) -> str:
    """Return a URL with its password left out, so that it may be shown."""
    return _PASSWORD.sub(_without_password, url)


def _without_password(match: re.Match[str]) -> str:
    if match["key"]:
        return f"{match['key']}***"
    return f"{match['user'] or ''}***@"


def _address(url: str, scheme: str) -> StoreAddress:
    has_servers = scheme != "faiss"
    name = redacted(url)
    place, _, query = url.partition("://")[2].partition("?")
    server = None
    if has_servers:
        server = _SERVER.fullmatch(place)
    options = dict(parse_qsl(query, keep_blank_values=True))
    http = "http"
    collection = COLLECTION
    if server is not None:
        http = _SCHEMES.get(options.pop("ssl", "false").casefold(), "")
    elif has_servers:
        collection = options.pop("collection", collection)
    if options or not http:
        raise ValueError(
            f"{name}: a server takes the option ssl=true or ssl=false, and a folder (except faiss://) takes "
            "collection=NAME; a server's port is part of its address, as in host:8000"
        )
    if not place:
        raise ValueError(f"{name} names no folder: write {name}PATH")
    if server is None:
        return StoreAddress(name, collection, Path(os.path.expanduser(place)))
    return _server_address(name, f"{http}://{server['host']}:{server['port']}", server)


def _server_address(name: str, http: str, server: re.Match[str]) -> StoreAddress:
    collection = unquote(server["collection"] or "") or COLLECTION
    user = unquote(server["user"] or "")
    password = unquote(server["password"] or "")
    if not password:  # `KEY@host` gives a key without a user
        password = user
        user = ""
    return StoreAddress(name, collection, None, user, password, http)


def _postgres_address(url: str) -> StoreAddress:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    name = redacted(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(
            f"{name} is not a valid URL: write postgresql://user:password@host:port/db?table=name"
        ) from None
    table = parsed.query.get("table", COLLECTION)
    if not isinstance(table, str) or not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", table):
        raise ValueError(
            f"{name}: a table's name may have only lower-case letters, digits and _, and at most 41 of them"
        )
    bare = parsed.difference_update_query(["table"]).render_as_string(hide_password=False)
    return StoreAddress(name, table, password=parsed.password or "", url=bare)
