"""What a store holds, opened with nothing but its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_pack_densex.index.manifest import InvalidIndexError
from llama_pack_densex.models import embed_model_identity
from tests.integration.servers import Servers
from tests.integration.stores.checks import (
    close_to,
    each_search,
    everything,
    indexed_documents,
    node_ids,
)
from tests.integration.stores.corpus import METADATA, MODES, corpus, options
from tests.integration.stores.open_store import OpenStore, StoreKind
from tests.integration.stores.reopen import SEARCHES, Step, answers, in_another_process
from tests.searching import EnglishEmbedding, ShortEmbedding

AT_FIRST = [name for name in METADATA if name not in ("miso", "琵琶湖")]


@pytest.mark.column("another process")
@pytest.mark.slow
def test_another_process(kind: StoreKind, servers: Servers, tmp_path: Path) -> None:
    """It finds the same with the same scores in the same order, and what it changes is there in this one."""
    if kind.is_in_memory:
        pytest.xfail(
            "it lives in the memory of one process, so there is nothing for another one to open"
        )
    addresses = {mode: kind.new(_new_folder(tmp_path / mode), servers) for mode in MODES}
    here = {mode: _build(kind.open(address), mode) for mode, address in addresses.items()}
    there = in_another_process([(address, _steps(mode)) for mode, address in addresses.items()])
    for (mode, address), done in zip(addresses.items(), there, strict=True):
        nodes, before = here[mode]
        assert done[0] == nodes
        for found, search in zip(done[1:4], SEARCHES, strict=True):
            assert found == close_to(before[search])
        assert done[4] == {"indexed": [False] * len(AT_FIRST), "embedded": 0, "asked": 0}
        changed = sorted({*AT_FIRST, "miso"} - {"bridge"})
        assert done[7] == changed
        again = kind.open(address)
        reopened = again.reopen(**options(mode))
        assert sorted(reopened.documents()) == changed
        assert indexed_documents(reopened) == set(changed)
        assert answers(reopened) == close_to(done[8])
        again.shut()


def _new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _build(store: OpenStore, mode: str) -> tuple[list[str], dict[str, Any]]:
    """Build an index, and return its nodes and what each way to search finds in it."""
    pack = store.build(corpus(*AT_FIRST), **options(mode))
    nodes = node_ids(pack)
    found = {search: answers(opened) for search, opened in each_search(store, mode).items()}
    assert found["hybrid"] == close_to(answers(pack))
    store.shut()
    return nodes, found


def _steps(mode: str) -> list[Step]:
    return [
        Step("nodes", mode),
        *(Step("answer", mode, search) for search in SEARCHES),
        Step("refresh", mode, names=AT_FIRST),
        Step("insert", mode, names=["miso"]),
        Step("delete", mode, names=["bridge"]),
        Step("documents", mode),
        Step("answer", mode),
    ]


@pytest.mark.column("insert")
def test_documents_are_added_to_what_was_opened(store: OpenStore, mode: str) -> None:
    first = store.build(corpus(*AT_FIRST), **options(mode))
    before = set(node_ids(first))
    pack = store.reopen(**options(mode))
    pack.insert(corpus("miso", "琵琶湖"))
    assert set(pack.documents()) == set(METADATA)
    assert before < set(node_ids(pack))
    for opened in each_search(store, mode).values():
        assert everything(opened) == set(METADATA)
        assert opened.retrieve("Miso is made of fermented soybeans.")[0].node.ref_doc_id == "miso"


@pytest.mark.column("other model refused")
@pytest.mark.parametrize(
    "other", [ShortEmbedding(model_name="newer"), EnglishEmbedding()], ids=["name", "dimension"]
)
def test_another_embedding_model_is_refused(store: OpenStore, other: ShortEmbedding) -> None:
    store.build(corpus("bridge", "将棋"), **options("recursive"))
    with pytest.raises(InvalidIndexError) as caught:
        store.reopen(**{**options("recursive"), "embed_model": other})
    assert embed_model_identity(ShortEmbedding()) in str(caught.value)
    assert embed_model_identity(other) in str(caught.value)
    assert store.reopen(**options("recursive")).retrieve("When did the Akashi Bridge open?")


@pytest.mark.column("other model refused")
def test_another_embedding_model_is_not_let_write_either(store: OpenStore) -> None:
    pack = store.build(corpus("bridge"), **options("recursive"))
    before = node_ids(pack)
    with pytest.raises(InvalidIndexError):
        store.build(
            corpus("将棋"),
            **{**options("recursive"), "embed_model": ShortEmbedding(model_name="newer")},
        )
    assert node_ids(store.reopen(**options("recursive"))) == before
