"""Chroma in memory, in a folder and on a server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_pack_densex.index.adapters.chroma import ChromaNodes
from tests.integration.servers import Servers
from tests.stores.foreign.alone_checks import AloneChecks, Open
from tests.stores.foreign.made_nodes import DIMENSION, made_nodes, question

pytestmark = pytest.mark.together("chroma")

chromadb = pytest.importorskip("chromadb")
chroma = pytest.importorskip("llama_index.vector_stores.chroma")


@pytest.mark.slow_cases("ip*", "l2*", but=["*cosines_best_first*"])
class TestChromaInMemory(AloneChecks):
    @pytest.fixture(params=["cosine", "l2", "ip"])
    def opened(self, request: pytest.FixtureRequest) -> Open:
        client, name = chromadb.EphemeralClient(), f"c{uuid.uuid4().hex}"
        space = {"hnsw:space": request.param}
        return lambda: chroma.ChromaVectorStore(
            client.get_or_create_collection(name, metadata=space)
        )


@pytest.mark.slow_cases("*", but=["*come_back*", "*filter*"])
class TestChromaInAFolder(AloneChecks):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Open]:
        clients = []

        def opened() -> Any:
            clients.append(chromadb.PersistentClient(str(tmp_path)))
            return chroma.ChromaVectorStore(clients[-1].get_or_create_collection("nodes"))

        yield opened
        for client in clients:  # each keeps some files open
            client.close()


@pytest.mark.slow_cases("*", but=["*come_back*", "*filter*"])
class TestChromaOnAServer(AloneChecks):
    @pytest.fixture
    def opened(self, servers: Servers) -> Open:
        name = f"c{uuid.uuid4().hex}"
        return lambda: chroma.ChromaVectorStore(
            host="127.0.0.1", port=servers.chroma, collection_name=name
        )


@pytest.mark.slow
def test_more_rows_are_searched_than_one_statement_of_chroma_has_variables_for() -> None:
    of_little_work = {"hnsw:M": 4, "hnsw:construction_ef": 4}
    collection = chromadb.EphemeralClient().create_collection(
        f"c{uuid.uuid4().hex}", metadata=of_little_work, embedding_function=None
    )
    many, a_time = 33_500, 4_000
    vectors = np.random.default_rng(1).random((a_time, DIMENSION)).tolist()
    for start in range(0, many, a_time):
        part = range(start, min(start + a_time, many))
        metadatas = [{"of": "others"} for _ in part]
        collection.add(
            ids=list(map(str, part)), embeddings=vectors[: len(part)], metadatas=metadatas
        )
    store = ChromaNodes(chroma.ChromaVectorStore(chroma_collection=collection))
    store.replace([], made_nodes("味噌", ["味噌は大豆から作られる。"]))
    found = store.search(question("味噌", many + 2))
    # where Chroma's error would be raised; how much its graph reaches of so many vectors is its own matter
    assert {node.granularity for node in found} <= {"passage", "proposition"}
