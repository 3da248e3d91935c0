"""Qdrant's local mode, in memory and in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQueryMode,
)

from llama_pack_densex.index.adapters import adapter_for
from tests.stores.foreign.alone_checks import TEA, AloneChecks, Open
from tests.stores.foreign.made_nodes import made_nodes, question, without_embedding

qdrant_client = pytest.importorskip("qdrant_client")
qdrant = pytest.importorskip("llama_index.vector_stores.qdrant")
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect")


class TestQdrantInMemory(AloneChecks):
    @pytest.fixture
    def opened(self) -> Open:
        client = qdrant_client.QdrantClient(":memory:")
        return lambda: qdrant.QdrantVectorStore("nodes", client=client)


class TestQdrantInAFolder(AloneChecks):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Open]:
        # one client at a time may have the folder
        client = qdrant_client.QdrantClient(path=str(tmp_path))
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
    dense = models.VectorParams(
        size=len(TEA[0].embedding or ()), distance=models.Distance[distance]
    )
    store = adapter_for(qdrant.QdrantVectorStore("nodes", client=client, dense_config=dense))
    store.replace([], TEA)
    (found,) = store.search(question(TEA[0].get_content(), 1))
    assert found.id == TEA[0].node_id
    assert found.score == pytest.approx(1.0, abs=1e-4)


def test_a_store_with_an_async_client_only_is_refused() -> None:
    store = qdrant.QdrantVectorStore("nodes", aclient=qdrant_client.AsyncQdrantClient(":memory:"))
    with pytest.raises(ValueError, match="client=QdrantClient"):
        adapter_for(store)


def test_the_store_s_own_hybrid_search_is_asked_for_more_where_filters_drop_what_it_found() -> None:
    def words(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        counted = [Counter(sum(map(ord, word)) for word in text.split()) for text in texts]
        return [list(one) for one in counted], [list(map(float, one.values())) for one in counted]

    store = adapter_for(
        qdrant.QdrantVectorStore(
            "nodes",
            client=qdrant_client.QdrantClient(":memory:"),
            enable_hybrid=True,
            sparse_doc_fn=words,
            sparse_query_fn=words,
        )
    )
    french = [
        node
        for place in range(20)
        for node in made_nodes(f"fr{place}", [f"Tea tea {place}."], lang="fr")
    ]
    english = made_nodes(
        "en", ["Some tea among many other things that are on the table."], lang="en"
    )
    store.replace([], [*french, *english])
    filters = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
    asked = question("tea", 2, query_str="tea", mode=VectorStoreQueryMode.HYBRID, filters=filters)
    asked.sparse_top_k = asked.hybrid_top_k = 2
    assert {found.id for found in store.search(asked)} == {node.node_id for node in english}
