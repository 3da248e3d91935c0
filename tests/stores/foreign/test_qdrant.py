"""Qdrant's local mode, in memory and in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_pack_densex.stores.foreign.choosing import adapter_for
from tests.stores.foreign.alone_checks import TEA, AloneChecks, Open
from tests.stores.foreign.made_nodes import question, without_embedding

qdrant_client = pytest.importorskip("qdrant_client", reason="qdrant-client is missing")
qdrant = pytest.importorskip("llama_index.vector_stores.qdrant", reason="llama-index-vector-stores-qdrant is missing")
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect")


class TestQdrantInMemory(AloneChecks):
    @pytest.fixture
    def opened(self) -> Open:
        client = qdrant_client.QdrantClient(":memory:")
        return lambda: qdrant.QdrantVectorStore("nodes", client=client)


class TestQdrantInAFolder(AloneChecks):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Open]:
        client = qdrant_client.QdrantClient(path=str(tmp_path))  # one client at a time may have the folder
        yield lambda: qdrant.QdrantVectorStore("nodes", client=client)
        client.close()


def test_a_folder_is_opened_again(tmp_path: Path) -> None:
    for nodes in (TEA, []):
        client = qdrant_client.QdrantClient(path=str(tmp_path))
        store = adapter_for(qdrant.QdrantVectorStore("nodes", client=client))
        store.replace([], nodes)
        assert store.fetch([TEA[0].node_id]) == {TEA[0].node_id: without_embedding(TEA[0])}
        client.close()


@pytest.mark.parametrize("distance", ["EUCLID", "DOT"])
def test_other_distances_become_cosines(distance: str) -> None:
    client = qdrant_client.QdrantClient(":memory:")
    models = qdrant_client.models
    dense = models.VectorParams(size=len(TEA[0].embedding or ()), distance=models.Distance[distance])
    store = adapter_for(qdrant.QdrantVectorStore("nodes", client=client, dense_config=dense))
    store.replace([], TEA)
    (found,) = store.search(question(TEA[0].get_content(), 1))
    assert found.id == TEA[0].node_id
    assert found.score == pytest.approx(1.0, abs=1e-4)


def test_a_store_with_an_async_client_only_is_refused() -> None:
    store = qdrant.QdrantVectorStore("nodes", aclient=qdrant_client.AsyncQdrantClient(":memory:"))
    with pytest.raises(ValueError, match="client=QdrantClient"):
        adapter_for(store)
