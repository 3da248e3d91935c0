from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import MockEmbedding
from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY
from tests.another_process import run_program
from tests.stores.foreign.docstore_nodes import (
    DIMENSION,
    ENGLISH,
    JAPANESE,
    keep,
    kept,
    nodes_of,
    question,
)

faiss = pytest.importorskip("faiss")
from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore  # noqa: E402

from llama_pack_densex.index.adapters.faiss import FaissNodes, exact_store  # noqa: E402


def flat() -> Any:
    return FaissVectorStore(faiss.IndexFlatIP(DIMENSION))


def trained() -> Any:
    index = faiss.index_factory(DIMENSION, "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(np.random.default_rng(0).normal(size=(200, DIMENSION)).astype(np.float32))
    index.nprobe = 4
    return FaissVectorStore(index)


def kept_by_faiss(folder: Path, docstore: Any = None, vector_store: Any = None) -> Any:
    return kept(folder, docstore, vector_store if vector_store is not None else exact_store(1))


KINDS: dict[str, Callable[[], Any]] = {
    "inner product": flat,
    "distance": lambda: FaissVectorStore(faiss.IndexFlatL2(DIMENSION)),
    "inverted lists": trained,
    "with ids": lambda: FaissMapVectorStore(faiss.IndexIDMap2(faiss.IndexFlatL2(DIMENSION))),
    "with ids, older": lambda: FaissMapVectorStore(faiss.IndexIDMap(faiss.IndexFlatIP(DIMENSION))),
}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> FaissNodes:
    store = FaissNodes(KINDS[request.param]())
    store.replace(
        [],
        [node for name, text in {**ENGLISH, **JAPANESE}.items() for node in nodes_of(text, name)],
    )
    return store


def test_scores_are_cosines_whatever_the_index_measures(store: FaissNodes) -> None:
    asked = question("The Akashi Bridge opened in 1998.", 5)
    vectors = {
        n.node_id: n.embedding
        for name, text in {**ENGLISH, **JAPANESE}.items()
        for n in nodes_of(text, name)
    }
    query = np.array(asked.query_embedding)
    # its length does not matter
    asked.query_embedding = [7 * value for value in asked.query_embedding or []]
    found = store.search(asked)
    assert len(found) == 5
    for node in found:
        vector = np.array(vectors[node.id])
        assert node.score == pytest.approx(
            query @ vector / np.linalg.norm(query) / np.linalg.norm(vector), abs=1e-5
        )
    assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)


def test_what_was_replaced_is_gone_from_the_index_as_well(store: FaissNodes) -> None:
    for number in range(30):
        nodes = nodes_of(
            f"Chess, game {number}, is played by two. Each of them has {number} pieces.", "chess"
        )
        store.replace(["chess"], nodes)
    store.replace(["miso", "never there"], [])
    there = {record.id for record in store.records()}
    assert store.vector_store.client.ntotal == len(there) == len(store.positions())
    assert len(store.search(question("Chess is played by two.", 8))) == 8
    assert {node.id for node in store.search(question("Chess is played", 1000))} == there
    # there is nothing to compact, so nothing that one writer has and another has not
    assert not store.maintain()


def test_as_many_are_found_as_asked_for_though_few_lists_are_probed() -> None:
    store = FaissNodes(trained())
    store.vector_store.client.nprobe = 1
    store.replace(
        [],
        [node for name, text in {**ENGLISH, **JAPANESE}.items() for node in nodes_of(text, name)],
    )
    assert {node.id for node in store.search(question("miso", 1000))} == {
        record.id for record in store.records()
    }


def test_an_index_comes_back_from_its_folder(store: FaissNodes, tmp_path: Path) -> None:
    store.replace(["miso"], [])
    keep(store, tmp_path)
    back = kept_by_faiss(tmp_path)
    assert back.documents() == store.documents()
    assert back.search(question("琵琶湖", 9)) == store.search(question("琵琶湖", 9))
    back.replace(["chess"], nodes_of("Chess has clocks.", "chess"))
    keep(back, tmp_path)
    again = kept_by_faiss(tmp_path)
    assert {node.id for node in again.search(question("chess", 99))} == {
        record.id for record in again.records()
    }
    assert len(list(tmp_path.iterdir())) == 3


def test_llama_indexs_own_store_finds_the_same(tmp_path: Path) -> None:
    store = FaissNodes(KINDS["with ids"]())
    store.replace([], nodes_of(ENGLISH["tides"], "tides"))
    store.replace(["tides"], nodes_of(ENGLISH["tides"] + " New.", "tides"))
    asked = question("The Moon pulls the ocean towards itself.", 3)
    assert store.vector_store.query(asked).ids == [node.id for node in store.search(asked)]
    keep(store, tmp_path)
    back = kept_by_faiss(tmp_path, vector_store=KINDS["with ids"]())
    assert back.vector_store.query(asked).ids == [node.id for node in store.search(asked)]


def test_an_index_with_vectors_of_others_is_refused() -> None:
    store = flat()
    store.add(nodes_of(ENGLISH["tides"]))
    with pytest.raises(ValueError, match="FAISS keeps no ids"):
        FaissNodes(store)


@pytest.mark.parametrize("kind", ["inverted lists", "with ids"])
def test_an_index_of_llama_index_s_own_numbers_is_refused_and_stays_as_it_is(kind: str) -> None:
    vector_store = KINDS[kind]()
    docstore = SimpleDocumentStore()
    nodes = nodes_of(ENGLISH["tides"])
    docstore.add_documents(nodes)
    vector_store.add(nodes)
    asked = question("The Moon pulls the ocean towards itself.", 2)
    before = vector_store.query(asked).ids
    with pytest.raises(ValueError, match="4 vectors whose nodes are unknown"):
        DenseXRetrievalPack.from_vector_store(
            vector_store, docstore=docstore, embed_model=MockEmbedding(DIMENSION), query_llm="none"
        )
    assert vector_store.query(asked).ids == before


def test_vectors_that_others_add_later_are_refused_or_never_found() -> None:
    store = FaissNodes(flat())
    store.replace([], nodes_of(ENGLISH["tides"]))
    with pytest.raises(RuntimeError):
        store.vector_store.add(nodes_of(ENGLISH["miso"]))
    numbered = FaissNodes(KINDS["with ids"]())
    numbered.replace([], nodes_of(ENGLISH["tides"]))
    theirs = np.array([node.embedding for node in nodes_of(ENGLISH["miso"])], dtype=np.float32)
    numbered.vector_store.client.add_with_ids(theirs, np.arange(len(theirs)))
    found = {
        node.id for node in numbered.search(question("Miso is made of fermented soybeans.", 4))
    }
    assert found == {record.id for record in numbered.records()}


@pytest.mark.parametrize(
    "index",
    [
        faiss.IndexHNSWFlat(DIMENSION, 16, faiss.METRIC_INNER_PRODUCT),
        faiss.IndexIDMap2(faiss.IndexHNSWFlat(DIMENSION, 16)),
    ],
)
def test_an_index_that_cannot_delete_is_refused_with_advice(index: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"HNSW|IDMap2 of FAISS .* delete vectors by number\. Use faiss\.IndexFlatIP",
    ):
        FaissNodes(FaissVectorStore(index))


def test_an_untrained_index_and_one_of_another_measure_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be trained .*\(index\.train\)"):
        FaissNodes(FaissVectorStore(faiss.index_factory(DIMENSION, "IVF4,Flat")))
    with pytest.raises(ValueError, match="measure inner products or Euclidean distances"):
        FaissNodes(FaissVectorStore(faiss.IndexFlat(DIMENSION, faiss.METRIC_L1)))


def test_vectors_of_another_dimension_are_refused_with_both_named() -> None:
    store = FaissNodes(FaissVectorStore(faiss.IndexFlatIP(3)))
    with pytest.raises(
        ValueError, match=f"3 dimensions, but the embedding model makes {DIMENSION}"
    ):
        store.replace([], nodes_of(ENGLISH["tides"]))
    assert store.is_empty()
    assert store.docstore.docs == {}


def test_filters_reach_what_is_far_from_the_question() -> None:
    store = FaissNodes(flat())
    for number in range(40):
        store.replace(
            [],
            nodes_of(
                f"Fact {number} is about chess.", f"d{number}", shelf="far" if number > 38 else "b"
            ),
        )
    filters = MetadataFilters(filters=[MetadataFilter(key="shelf", value="far")])
    found = store.search(question("Fact 1 is about chess.", 5, filters=filters))
    assert {node.id for node in found} == store.node_ids(["d39"])


def test_a_kept_index_may_be_held_by_the_users_own_store(tmp_path: Path) -> None:
    store = FaissNodes(flat())
    store.replace([], nodes_of(ENGLISH["tides"]))
    keep(store, tmp_path)
    theirs = flat()
    assert kept_by_faiss(tmp_path, vector_store=theirs).vector_store is theirs
    assert theirs.client.ntotal == len(store.positions())
    theirs = flat()
    theirs.add(nodes_of(ENGLISH["miso"]))
    with pytest.raises(ValueError, match="Pass an empty index"):
        kept_by_faiss(tmp_path, vector_store=theirs)


def test_other_vectors_of_the_users_are_not_put_aside_for_those_of_a_folder(tmp_path: Path) -> None:
    store = FaissNodes(flat())
    store.replace([], nodes_of(ENGLISH["tides"]))
    keep(store, tmp_path)
    others = FaissNodes(flat())
    others.replace([], nodes_of(ENGLISH["miso"]))
    before = others.vector_store.client.ntotal
    with pytest.raises(ValueError, match="leave vector_store out"):
        kept_by_faiss(tmp_path, vector_store=others.vector_store)
    assert others.vector_store.client.ntotal == before
    assert (
        kept_by_faiss(tmp_path, vector_store=store.vector_store).vector_store is store.vector_store
    )


def test_a_docstore_that_went_on_without_its_index_counts_as_changed(tmp_path: Path) -> None:
    # stands apart from the folder, as one on a server does
    docstore = KVDocumentStore(SimpleKVStore())
    store = FaissNodes(flat(), docstore)
    store.replace([], nodes_of(ENGLISH["tides"], "tides") + nodes_of(ENGLISH["miso"], "miso"))
    store.replace([], nodes_of(JAPANESE["将棋"], "将棋"))
    keep(store, tmp_path)
    store.replace(["miso"], nodes_of("Miso is salty.", "miso"))
    store.replace([], nodes_of(ENGLISH["chess"], "chess"))
    store.replace(["将棋"], [])  # and the process ends before `persist`
    back = kept_by_faiss(tmp_path, docstore)
    assert {one for one, document in back.documents().items() if document.hash} == {"tides"}
    assert "将棋" not in back.documents()
    assert back.vector_store.client.ntotal == len(back.positions()) == len(back.node_ids(["tides"]))
    back.replace([], nodes_of("Miso is salty.", "miso"))
    keep(back, tmp_path)
    documents = kept_by_faiss(tmp_path, docstore).documents()
    assert {one for one, document in documents.items() if document.hash} == {"tides", "miso"}


def test_an_empty_index_beside_a_full_docstore_has_no_whole_documents() -> None:
    docstore = KVDocumentStore(SimpleKVStore())
    FaissNodes(flat(), docstore).replace([], nodes_of(ENGLISH["tides"], "tides"))
    assert [document.hash for document in FaissNodes(flat(), docstore).documents().values()] == [""]


def test_a_file_that_cannot_be_opened_now_is_not_said_to_be_damaged(tmp_path: Path) -> None:
    store = FaissNodes(flat())
    store.replace([], nodes_of(ENGLISH["tides"]))
    keep(store, tmp_path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.open(tmp_path, os.O_RDONLY), before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            kept_by_faiss(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert kept_by_faiss(tmp_path).documents() == store.documents()


@pytest.mark.parametrize("damage", ["faiss", "docstore"])
def test_a_damaged_folder_is_said_to_be_damaged(damage: str, tmp_path: Path) -> None:
    store = FaissNodes(flat())
    store.replace([], nodes_of(ENGLISH["tides"]))
    keep(store, tmp_path)
    (file,) = (entry for entry in tmp_path.iterdir() if entry.name.startswith(damage))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ValueError, match="index the documents again"):
        kept_by_faiss(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match="index the documents again"):
        kept_by_faiss(tmp_path)


_WRITER = """
import sys
from pathlib import Path
import faiss
from llama_index.vector_stores.faiss import FaissVectorStore
from llama_pack_densex.index.adapters.faiss import FaissNodes, exact_store
from tests.stores.foreign.docstore_nodes import DIMENSION, keep, nodes_of
folder = Path(sys.argv[1])
store = FaissNodes(FaissVectorStore(faiss.IndexFlatIP(DIMENSION)))
keep(store, folder)
for number in range(10_000):
    document = f"d{number % 20}"
    store.replace([document], nodes_of(f"Fact {number} is new. It has a second sentence.", document))
    keep(store, folder)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for seconds in (0.02, 0.05, 0.11):
        folder = tmp_path / str(seconds)
        command = [sys.executable, "-c", _WRITER, str(folder)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ}
        ) as writer:
            assert writer.stdout is not None
            done = [int(writer.stdout.readline())]
            time.sleep(seconds)
            writer.send_signal(signal.SIGKILL)
            done += [int(line) for line in writer.stdout]
        store = kept_by_faiss(folder)
        assert len(store.documents()) >= min(20, len(done))
        assert all(document.hash for document in store.documents().values())
        there = {record.id for record in store.records()}
        assert {node.id for node in store.search(question("Fact", 10_000))} == there
        texts = " ".join(record.text for record in store.records())
        assert f"Fact {done[-1]} " in texts or f"Fact {done[-1] + 1} " in texts


def unit(node_id: str, document: str, vector: list[float], state: int) -> TextNode:
    metadata = {GRANULARITY_KEY: "passage", DOCUMENT_HASH_KEY: f"{document}{state}"}
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    if node_id.endswith("0"):
        return TextNode(
            id_=node_id, text=node_id, embedding=vector, metadata=metadata, relationships=source
        )
    return IndexNode(
        id_=node_id, text=node_id, index_id=node_id[:-1] + "0", embedding=vector,
        metadata={GRANULARITY_KEY: "proposition"}, relationships=source,
    )  # fmt: skip


_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("replace"), st.sampled_from("abcd"), st.integers(0, 6)),
        st.tuples(st.just("remove"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(""), st.just(0)),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(changes=_CHANGES, seed=st.integers(0, 2**16))
def test_any_changes_leave_what_an_exact_search_of_the_present_nodes_finds(
    changes: list[tuple[str, str, int]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    store = FaissNodes(FaissVectorStore(faiss.IndexFlatL2(4)))
    present: dict[str, list[TextNode]] = {}
    for state, (change, document, count) in enumerate(changes):
        if change == "replace":
            nodes = [
                unit(f"{document}{n}", document, rng.normal(size=4).tolist(), state)
                for n in range(count)
            ]
            store.replace([document], list(nodes))
            present[document] = nodes
        elif change == "remove":
            store.replace([document], [])
            present.pop(document, None)
        else:
            folder = tmp_path_factory.mktemp("faiss")
            keep(store, folder)
            store = kept_by_faiss(folder)
    expected = {
        node.node_id: np.array(node.embedding) for nodes in present.values() for node in nodes
    }
    asked = rng.normal(size=4)
    cosines = {
        one: float(asked @ vector / np.linalg.norm(asked) / np.linalg.norm(vector))
        for one, vector in expected.items()
    }
    for wanted in (1, 3, 100):
        found = store.search(
            VectorStoreQuery(query_embedding=asked.tolist(), similarity_top_k=wanted)
        )
        best = sorted(cosines, key=lambda one: -cosines[one])[:wanted]
        assert [node.id for node in found] == best
        assert [node.score for node in found] == pytest.approx(
            [cosines[one] for one in best], abs=1e-5
        )
    hashes = {
        document: nodes[0].metadata[DOCUMENT_HASH_KEY]
        for document, nodes in present.items()
        if nodes
    }
    assert {one: document.hash for one, document in store.documents().items()} == hashes


def test_an_index_of_a_factory_can_be_made_after_the_embedded_store_was_used() -> None:
    program = """
from llama_index.core import Document, MockEmbedding
from llama_pack_densex import DenseXRetrievalPack

pack = DenseXRetrievalPack([Document(text="It rains.")], embed_model=MockEmbedding(8), query_llm="none")
pack.compact()
from llama_pack_densex.index import graph
graph.GraphDraft.of([], None)
graph._index_class()
import faiss
faiss.index_factory(8, "IVF4,Flat")
"""
    code, _, errors = run_program(program)
    assert code == 0, errors
