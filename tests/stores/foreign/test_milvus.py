"""Milvus Lite in a file."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.node_index import NodeIndex
from tests.stores.foreign.alone_checks import TEA, AloneChecks, Open
from tests.stores.foreign.made_nodes import DIMENSION, question, without_embedding

pytest.importorskip("milvus_lite")
milvus = pytest.importorskip("llama_index.vector_stores.milvus")


WRITE = """
import sys
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_pack_densex.index.adapters import adapter_for
from tests.stores.foreign.alone_checks import TEA
from tests.stores.foreign.made_nodes import DIMENSION
adapter_for(MilvusVectorStore(uri=sys.argv[1], dim=DIMENSION, use_async_client=False)).replace([], TEA)
"""


def test_what_another_process_wrote_is_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "nodes.db")
    subprocess.run([sys.executable, "-c", WRITE, uri], check=True, capture_output=True, timeout=120)
    store = adapter_for(milvus.MilvusVectorStore(uri=uri, use_async_client=False))
    assert store.fetch([TEA[0].node_id]) == {TEA[0].node_id: without_embedding(TEA[0])}
    assert len(store.search(question("tea", 9))) == len(TEA)
    with pytest.raises(ValueError, match="dimension"):
        NodeIndex(store).replace([], [TEA[0].model_copy(update={"embedding": [1.0]})])


def test_reading_by_ids_makes_milvus_warn_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "nodes.db")
    store = adapter_for(milvus.MilvusVectorStore(uri=uri, dim=DIMENSION, use_async_client=False))
    store.replace([], TEA)
    monkeypatch.setattr(logging.getLogger("pymilvus"), "handlers", [caplog.handler])
    assert len(store.fetch([node.node_id for node in TEA])) == len(TEA)
    assert "failed to get mvccTs" not in caplog.text


class TestMilvusLite(AloneChecks):
    @pytest.fixture(params=["IP", "COSINE", "L2"])
    def opened(self, request: pytest.FixtureRequest, tmp_path: Path) -> Open:
        return lambda: milvus.MilvusVectorStore(
            uri=str(tmp_path / "nodes.db"),
            dim=DIMENSION,
            similarity_metric=request.param,
            use_async_client=False,
        )


@pytest.mark.parametrize("metadata", [{}, {"long": "x" * 70_000}])
def test_what_milvus_has_no_room_for_is_refused_with_the_document_s_name(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    store = adapter_for(
        milvus.MilvusVectorStore(
            uri=str(tmp_path / "nodes.db"), dim=DIMENSION, use_async_client=False
        )
    )
    changes = {"metadata": {**TEA[0].metadata, **metadata}} if metadata else {"text": "味" * 30_000}
    with pytest.raises(ValueError, match=r"'docs/tea\.md' has .* bytes"):
        store.replace([], [TEA[0].model_copy(update=changes)])
    assert store.search(question("tea")) == []
