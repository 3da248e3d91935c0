"""LanceDB by LlamaIndex's integration, in a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import TextNode

from llama_pack_densex.index.adapters import adapter_for
from tests.stores.foreign.alone_checks import TEA, AloneChecks, Open
from tests.stores.foreign.made_nodes import DIMENSION, embed, made_nodes, node_id, question

pytest.importorskip("lancedb")
lancedb = pytest.importorskip("llama_index.vector_stores.lancedb")


def opener(folder: Path) -> Open:
    return lambda: lancedb.LanceDBVectorStore(uri=str(folder))


class TestLanceDB(AloneChecks):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        return opener(tmp_path)

    def test_a_narrow_filter_by_number_reads_what_passes_and_little_else(self) -> None:  # type: ignore[override]
        pytest.skip(
            "a table has the metadata keys of its first rows only: filters are evaluated here"
        )


def test_what_others_write_is_read_though_the_table_was_open_before(tmp_path: Path) -> None:
    reader, writer = adapter_for(opener(tmp_path)()), adapter_for(opener(tmp_path)())
    assert reader.is_empty()
    for number in range(3):
        writer.replace(
            [],
            made_nodes(f"お茶 '{number}'", [f"Tea number {number}."], **{f"key{number}": number}),
        )
        assert len(reader.documents()) == number + 1
    reader.replace([], TEA)
    assert len(writer.search(question("tea", 50))) == 9


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_as_many_are_found_as_asked_for_though_an_index_looks_at_few(
    metric: str, tmp_path: Path
) -> None:
    store = adapter_for(opener(tmp_path)())
    vectors = np.random.default_rng(1).normal(size=(300, DIMENSION))
    (node,) = made_nodes("d", ["Tea"])[:1]
    changes = [
        {"id_": node_id(place), "embedding": vector.tolist()}
        for place, vector in enumerate(vectors)
    ]
    store.replace([], [node.model_copy(update=change) for change in changes])
    store.vector_store.create_index(num_partitions=16, num_sub_vectors=16, metric=metric)  # type: ignore[attr-defined]
    assert len(store.search(question("tea", 300))) == 300


def test_rows_of_others_may_be_there_before(tmp_path: Path) -> None:
    theirs = TextNode(
        text="tea", metadata={"topic": "drinks", "year": 1990}, embedding=embed("tea")
    )
    theirs.relationships = dict(TEA[0].relationships)
    opener(tmp_path)().add([theirs])
    store = adapter_for(opener(tmp_path)())
    store.replace([], TEA)
    store.replace(["docs/tea.md"], TEA)
    assert {found.id for found in store.search(question("tea", 50))} == {
        node.node_id for node in TEA
    }
    assert (store.counts().passages, store.counts().propositions) == (1, 2)
    assert opener(tmp_path)().table.count_rows() == 4
