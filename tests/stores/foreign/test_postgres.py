"""PostgreSQL with pgvector, a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import threading
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from llama_index.core import Document
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQueryMode,
)

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.adapters.wire import HEAD_KEY
from tests.integration.servers import Servers
from tests.openai_server import EMBEDDING_DIMENSION
from tests.searching import ShortEmbedding
from tests.stores.foreign.alone_checks import AloneChecks, Open, StoppedError
from tests.stores.foreign.made_nodes import DIMENSION, made_nodes, question

pytestmark = pytest.mark.together("postgres")

postgres = pytest.importorskip("llama_index.vector_stores.postgres")


@pytest.fixture
def settings(servers: Servers) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": str(servers.postgres),
        "database": "postgres",
        "user": "densex",
        "password": "hunter2",
        "table_name": f"t{uuid.uuid4().hex}",
        "embed_dim": DIMENSION,
    }


def opener(settings: dict[str, Any]) -> Iterator[Open]:
    stores: list[Any] = []

    def opened() -> Any:
        stores.append(postgres.PGVectorStore.from_params(**settings))
        return stores[-1]

    yield opened
    for store in stores:
        asyncio.run(store.close())


@pytest.mark.slow_cases("json", "json-*", but=["*come_back*", "*filter*"])
class TestPostgres(AloneChecks):
    @pytest.fixture(params=["json", "jsonb"])
    def opened(self, request: pytest.FixtureRequest, settings: dict[str, Any]) -> Iterator[Open]:
        yield from opener({**settings, "use_jsonb": request.param == "jsonb"})


def test_an_approximate_index_finds_as_many_as_asked_for(settings: dict[str, Any]) -> None:
    hnsw = {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 40}
    for opened in opener({**settings, "embed_dim": 8, "hnsw_kwargs": hnsw}):
        store = adapter_for(opened())
        nodes = [
            node
            for place in range(100)
            for node in made_nodes(f"d{place}", [f"Tea number {place}."])
        ]
        for node in nodes:
            node.embedding = [*(node.embedding or [])[:7], 1.0]
        store.replace([], nodes)
        asked = question("tea", 150)
        asked.query_embedding = [0.0] * 7 + [1.0]
        assert len(store.search(asked)) == 150


def test_the_store_s_own_hybrid_search_is_passed_on_and_filtered(settings: dict[str, Any]) -> None:
    for opened in opener({**settings, "hybrid_search": True}):
        store = adapter_for(opened())
        english, french = (
            made_nodes("en", ["Tea is hot."], lang="en"),
            made_nodes("fr", ["Tea is cold."], lang="fr"),
        )
        store.replace([], [*english, *french])
        filters = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
        asked = question(
            "nothing alike", 9, query_str="tea", mode=VectorStoreQueryMode.HYBRID, filters=filters
        )
        asked.sparse_top_k = 9
        assert {found.id for found in store.search(asked)} == {node.node_id for node in english}


def test_the_store_s_own_hybrid_search_is_asked_for_more_where_filters_drop_what_it_found(
    settings: dict[str, Any],
) -> None:
    for opened in opener({**settings, "hybrid_search": True}):
        store = adapter_for(opened())
        french = [
            node
            for place in range(20)
            for node in made_nodes(f"fr{place}", [f"Tea tea tea {place}."], lang="fr")
        ]
        english = made_nodes(
            "en", ["Some tea among many other things that are on the table."], lang="en"
        )
        store.replace([], [*french, *english])
        filters = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
        asked = question(
            "tea tea", 2, query_str="tea", mode=VectorStoreQueryMode.HYBRID, filters=filters
        )
        asked.sparse_top_k = asked.hybrid_top_k = 2
        assert {found.id for found in store.search(asked)} == {node.node_id for node in english}


def test_threads_that_write_at_once_do_not_share_a_transaction(settings: dict[str, Any]) -> None:
    for opened in opener({**settings, "embed_dim": DIMENSION}):
        store = adapter_for(opened())
        both_write, parts = (
            threading.Barrier(2),
            {name: made_nodes(name, [f"Tea {name}."]) for name in ("a", "b")},
        )
        store.replace([], made_nodes("first", ["Tea is hot."]))
        put: Any = store._put  # type: ignore[attr-defined]

        def put_together(wires: Any, both_write: Any = both_write, put: Any = put) -> None:
            if wires[0].metadata[HEAD_KEY]:
                if wires[0].ref_doc_id == "b":
                    raise StoppedError
            else:
                with suppress(threading.BrokenBarrierError):
                    both_write.wait(timeout=10)
            put(wires)

        store._put = put_together  # type: ignore[attr-defined]
        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(store.replace, [], nodes) for nodes in parts.values()]
        assert [type(future.exception()) for future in done] == [type(None), StoppedError]
        reader = adapter_for(opened())
        assert set(reader.documents()) == {"first", "a"}
        assert reader.node_ids(["a"]) == {node.node_id for node in parts["a"]}
        assert reader.node_ids(["b"]) == set()


def test_a_table_with_two_rows_of_an_id_is_mended_by_the_next_writing(
    settings: dict[str, Any],
) -> None:
    for opened in opener(settings):
        nodes = made_nodes("d", ["Tea is hot."])
        for _ in range(2):
            opened().add(nodes)
        store = adapter_for(opened())
        assert [found.id for found in store.search(question("Tea is hot.", 9))].count(
            nodes[0].node_id
        ) == 1
        store.replace(["d"], nodes)
        assert (store.counts().passages, store.counts().propositions) == (1, 1)


def test_a_change_that_the_server_does_not_take_is_told_without_the_text(
    settings: dict[str, Any],
) -> None:
    documents = [
        Document(id_=name, text=f"The {name} is hidden in the cellar.")
        for name in ("quinine", "wormwood")
    ]
    for opened in opener({**settings, "embed_dim": EMBEDDING_DIMENSION}):
        store = opened()
        options: dict[str, Any] = {"embed_model": ShortEmbedding(), "query_llm": "none"}
        pack = DenseXRetrievalPack(documents[:1], vector_store=store, **options)
        with store.client.begin() as connection:
            table = f"public.data_{settings['table_name']}"
            connection.execute(
                sa.text(f"ALTER TABLE {table} ADD CHECK (text NOT LIKE '%wormwood%')")
            )
        with pytest.raises(ConnectionError, match="check constraint") as failed:
            pack.insert(documents[1])
        assert "cellar" not in "".join(traceback.format_exception(failed.value))
        assert set(pack.documents()) == {"quinine"}
