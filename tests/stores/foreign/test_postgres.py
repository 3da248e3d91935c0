"""PostgreSQL with pgvector, a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from llama_pack_densex.stores.foreign.choosing import adapter_for
from tests.llm_requests.test_reply_cache_servers import postgres_port as server_port  # noqa: F401
from tests.stores.foreign.alone_checks import AloneChecks, Open
from tests.stores.foreign.made_nodes import made_nodes, question

postgres = pytest.importorskip(
    "llama_index.vector_stores.postgres", reason="llama-index-vector-stores-postgres is missing"
)


@pytest.fixture
def settings(server_port: int) -> dict[str, Any]:  # noqa: F811
    return {
        "host": "127.0.0.1",
        "port": str(server_port),
        "database": "postgres",
        "user": "densex",
        "password": "hunter2",
        "table_name": f"t{uuid.uuid4().hex}",
        "embed_dim": 4096,
    }


def opener(settings: dict[str, Any]) -> Iterator[Open]:
    stores: list[Any] = []

    def opened() -> Any:
        stores.append(postgres.PGVectorStore.from_params(**settings))
        return stores[-1]

    yield opened
    for store in stores:
        asyncio.run(store.close())


class TestPostgres(AloneChecks):
    @pytest.fixture(params=["json", "jsonb"])
    def opened(self, request: pytest.FixtureRequest, settings: dict[str, Any]) -> Iterator[Open]:
        yield from opener({**settings, "use_jsonb": request.param == "jsonb"})


def test_an_approximate_index_finds_as_many_as_asked_for(settings: dict[str, Any]) -> None:
    hnsw = {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 40}
    for opened in opener({**settings, "embed_dim": 8, "hnsw_kwargs": hnsw}):
        store = adapter_for(opened())
        nodes = [node for place in range(100) for node in made_nodes(f"d{place}", [f"Tea number {place}."])]
        for node in nodes:
            node.embedding = [*(node.embedding or [])[:7], 1.0]
        store.replace([], nodes)
        asked = question("tea", 150)
        asked.query_embedding = [0.0] * 7 + [1.0]
        assert len(store.search(asked)) == 150
