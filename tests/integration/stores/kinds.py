"""All kinds of stores."""

from __future__ import annotations

from tests.integration.stores.in_process import (
    ChromaFolder,
    ChromaMemory,
    EmbeddedFolder,
    EmbeddedMemory,
    LanceDBFolder,
    MilvusLite,
    QdrantFolder,
)
from tests.integration.stores.open_store import StoreKind
from tests.integration.stores.served import ChromaServer, Faiss, FaissWithRedis, Postgres

KINDS: dict[str, StoreKind] = {
    kind.slug: kind
    for kind in (
        EmbeddedMemory(),
        EmbeddedFolder(),
        ChromaMemory(),
        ChromaFolder(),
        ChromaServer(),
        QdrantFolder(),
        LanceDBFolder(),
        MilvusLite(),
        Postgres(),
        Faiss(),
        FaissWithRedis(),
    )
}
