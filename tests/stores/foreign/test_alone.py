"""Integrations as if nothing were known of them but LlamaIndex's own interface."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.simple import SimpleVectorStore

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.adapters.alone import StoreAlone
from llama_pack_densex.index.adapters.docstore import DocstoreNodes
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.node_store import NodeStore
from tests.stores.foreign.alone_checks import TEA, AloneChecks, Open
from tests.stores.foreign.made_nodes import question


class AnyStoreChecks(AloneChecks):
    @pytest.fixture
    def store(self, opened: Open) -> NodeStore:
        return StoreAlone(opened())

    def test_a_narrow_filter_by_number_reads_what_passes_and_little_else(self) -> None:  # type: ignore[override]
        pytest.skip(
            "LlamaIndex's interface does not say how a store takes filters: they are evaluated here"
        )

    def test_a_search_returns_cosines_best_first(self, store: NodeStore) -> None:
        """Best first, that is, and with the store's own scores."""
        store.replace([], TEA)
        found = store.search(question(TEA[1].get_content(), 3))
        assert found[0].id == TEA[1].node_id
        assert found == sorted(found, key=lambda node: -node.score)


class TestChroma(AnyStoreChecks):
    @pytest.fixture
    def opened(self) -> Open:
        chromadb = pytest.importorskip("chromadb")
        integration = pytest.importorskip("llama_index.vector_stores.chroma")
        client, name = chromadb.EphemeralClient(), f"c{uuid.uuid4().hex}"
        return lambda: integration.ChromaVectorStore(client.get_or_create_collection(name))


def test_a_store_that_does_not_find_what_was_written_is_refused() -> None:
    with pytest.raises(ValueError, match="does not return nodes by document"):
        StoreAlone(EmbeddedVectorStore()).replace([], TEA)


def test_a_store_that_nothing_is_known_of_is_used_with_a_docstore_where_one_is_given() -> None:
    from llama_index.core.storage.docstore import SimpleDocumentStore

    class OtherStore(SimpleVectorStore):
        """Of a class that no adapter is for; it gives nodes back."""

        stores_text: bool = True

        def get_nodes(self, *args: Any, **kwargs: Any) -> list[BaseNode]:
            return []

    assert isinstance(adapter_for(OtherStore(), SimpleDocumentStore()), DocstoreNodes)
