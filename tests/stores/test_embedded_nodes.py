from __future__ import annotations

import sqlite3
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import usearch.index
from llama_index.core import Document
from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_pack_densex import HierarchicalPropositionNodeParser
from llama_pack_densex.index import database, nearest
from llama_pack_densex.index.compression import compress, decompress
from llama_pack_densex.index.embedded import EmbeddedNodes, EmbeddedVectorStore
from llama_pack_densex.index.graph import GraphDraft
from llama_pack_densex.index.manifest import InvalidIndexError
from llama_pack_densex.index.node_store import DocumentRecord, IndexCounts, NodeLinks, NodeRecord
from llama_pack_densex.index.words import Words
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY, STATUS_KEY
from tests.another_process import run_program
from tests.index_folders import bytes_in, copy_index

DIMENSION = 16


def vector_of(text: str) -> list[float]:
    seed = np.frombuffer(text.encode().ljust(8, b"-"), np.uint8)
    return [float(value) for value in np.random.default_rng(seed).standard_normal(DIMENSION)]


def document(name: str, units: int = 3, text: str = "", **metadata: object) -> list[BaseNode]:
    """A passage and its propositions."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=name)}
    passage_id = f"{name}/p"
    passage = TextNode(
        id_=passage_id,
        text=f"{name} の本文 {text}",
        embedding=vector_of(passage_id),
        metadata={
            GRANULARITY_KEY: "passage",
            STATUS_KEY: "ok",
            DOCUMENT_HASH_KEY: f"hash of {text}",
            **metadata,
        },
        relationships=source,
    )
    propositions = [
        IndexNode(
            id_=f"{name}/{text}{n}",
            text=f"fact {n} of {name} {text}",
            index_id=passage_id,
            embedding=vector_of(f"{name}/{text}{n}"),
            metadata={GRANULARITY_KEY: "proposition", **metadata},
            relationships=source,
        )
        for n in range(units)
    ]
    return [passage, *propositions]


def many(start: int, stop: int) -> list[BaseNode]:
    return [node for n in range(start, stop) for node in document(f"d{n}", n=n)]


def ids_found(
    nodes: EmbeddedNodes, text: str, k: int = 1, filters: MetadataFilters | None = None
) -> list[str]:
    question = VectorStoreQuery(
        query_embedding=vector_of(text), similarity_top_k=k, filters=filters
    )
    return [found.id for found in nodes.search(question)]


def all_ids(nodes: EmbeddedNodes) -> set[str]:
    return {record.id for record in nodes.records()}


def one_of(key: str, values: list[Any]) -> MetadataFilters:
    return MetadataFilters(
        filters=[MetadataFilter(key=key, operator=FilterOperator.IN, value=values)]
    )


@pytest.fixture(params=["memory", "folder"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedNodes:
    return (
        EmbeddedVectorStore(tmp_path) if request.param == "folder" else EmbeddedVectorStore()
    ).nodes


@pytest.fixture
def soon_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a graph from 40 embeddings on, and another one after 40 more."""
    monkeypatch.setattr(nearest, "MOST_COMPARED", 40)
    monkeypatch.setattr(nearest, "MOST_COMPARED_MIDWAY", 40)


def graphs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.hnsw"))


def test_documents_are_replaced_and_others_stay(nodes: EmbeddedNodes) -> None:
    nodes.replace([], [*document("a", text="old"), *document("it's 二")])
    nodes.replace(["a", "gone"], [*document("a", 2, text="new"), *document("b")])
    assert nodes.node_ids(["a"]) == {"a/p", "a/new0", "a/new1"}
    assert nodes.fetch(["a/p"])["a/p"].get_content() == "a の本文 new"
    assert nodes.node_ids(["it's 二"]) == {node.node_id for node in document("it's 二")}
    assert ids_found(nodes, "a/old1") != ["a/old1"]
    assert ids_found(nodes, "b/0") == ["b/0"]


def test_who_writes_once_more_still_replaces_what_is_there(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    others = EmbeddedVectorStore(tmp_path).nodes

    def write(where: EmbeddedNodes, name: str, parts: list[BaseNode]) -> None:
        where.replace([name], parts)
        where.commit()

    for name in "abab":
        write(nodes, name, document(name))
    write(others, "c", document("c"))
    for name in "cdca":
        write(nodes, name, document(name))
    write(others, "e", document("e"))
    write(nodes, "a", [])
    for name in "eabe":
        write(nodes, name, document(name))
    nodes.compact()
    write(nodes, "e", document("e"))
    assert sorted(record.id for record in nodes.records()) == sorted(
        n.node_id for one in "abcde" for n in document(one)
    )
    write(nodes, "a", document("a")[:1])  # all nodes of the document
    assert nodes.node_ids(["a"]) == {"a/p"}
    nodes.vector_store.clear()
    for name in "aabeb":
        write(nodes, name, document(name))
    assert sorted(record.id for record in nodes.records()) == sorted(
        n.node_id for one in "abe" for n in document(one)
    )


def test_nothing_in_place_of_documents_removes_them(nodes: EmbeddedNodes) -> None:
    nodes.replace([], [*document("a"), *document("b")])
    nodes.replace(["a"], [])
    nodes.replace(["gone"], [])
    nodes.replace([], [])
    assert all_ids(nodes) == {node.node_id for node in document("b")}
    nodes.replace(["b"], [])
    assert nodes.is_empty()


def test_an_empty_store_answers_everything(nodes: EmbeddedNodes) -> None:
    assert nodes.is_empty()
    assert not nodes.maintain()
    nodes.clean(timedelta(0))
    nodes.compact()
    nodes.replace(["a"], [])
    assert ids_found(nodes, "a") == []
    assert ids_found(nodes, "a", filters=one_of("n", [1])) == []
    assert nodes.fetch(["a"]) == {}
    assert nodes.documents() == {}
    assert nodes.counts() == IndexCounts(0, 0, 0, 0, 0, 0, {})


def test_a_store_that_was_emptied_answers_everything(nodes: EmbeddedNodes) -> None:
    nodes.replace([], document("a"))
    nodes.replace(["a"], [])
    assert nodes.is_empty()
    nodes.compact()
    nodes.clean(timedelta(0))
    assert ids_found(nodes, "a/1", 3) == []
    assert ids_found(nodes, "a/1", 3, one_of("n", [1])) == []
    assert nodes.fetch(["a/p", "a/1"]) == {}
    assert nodes.vector_store.query(VectorStoreQuery(vector_of("a/1"), 3, doc_ids=["a"])).ids == []


@pytest.mark.parametrize("documents", [1, 20])
@pytest.mark.usefixtures("soon_a_graph")
def test_a_store_that_was_emptied_takes_embeddings_of_another_dimension(
    nodes: EmbeddedNodes, documents: int
) -> None:
    nodes.replace([], many(0, documents))
    nodes.commit()
    nodes.maintain()
    assert len(ids_found(nodes, "a", 3)) == 3
    nodes.replace([*nodes.documents()], [])
    nodes.replace([], [TextNode(id_="x", text="t", embedding=[1.0, 0.0])])
    assert [
        found.id
        for found in nodes.search(VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=9))
    ] == ["x"]


def test_nodes_are_read_in_the_order_of_the_ids(nodes: EmbeddedNodes) -> None:
    parts = [*document("a", tags=["ä", "二"]), *document("b")]
    nodes.replace([], parts)
    read = nodes.fetch(["b/p", "gone", "a/p"])
    assert list(read) == ["b/p", "a/p"]
    assert read["a/p"].metadata == parts[0].metadata
    assert nodes.fetch([]) == {}


def test_records_of_one_granularity(nodes: EmbeddedNodes) -> None:
    parts = [*document("a"), *document("b", title="題")]
    nodes.replace([], parts)
    assert list(nodes.records()) == [NodeRecord.of(node) for node in parts]
    assert [record.id for record in nodes.records("passage")] == ["a/p", "b/p"]
    assert list(nodes.records("section")) == []


def test_documents_and_nodes_are_counted(nodes: EmbeddedNodes) -> None:
    nodes.replace([], [*document("a", text="x", file_path="a.md"), *document("b", 1)])
    assert nodes.documents() == {
        "a": DocumentRecord("hash of x", "a.md"),
        "b": DocumentRecord("hash of ", ""),
    }
    assert nodes.counts() == IndexCounts(2, 2, 4, 0, 0, 0, {"ok": 2})


def test_nodes_without_embeddings_are_kept_and_counted(nodes: EmbeddedNodes) -> None:
    bare = [node.model_copy(update={"embedding": None}) for node in document("a")]
    nodes.replace([], bare)
    assert all_ids(nodes) == {node.node_id for node in bare}
    assert not nodes.maintain()
    assert list(nodes.bad_vectors()) == []
    with pytest.raises(ValueError, match="16 dimensions and none"):
        nodes.replace([], document("b"))


def test_embeddings_that_cannot_be_compared_are_told(nodes: EmbeddedNodes) -> None:
    good, zero, nan, *_ = document("a")
    zero.embedding = [0.0] * DIMENSION
    nan.embedding = [float("inf")] * DIMENSION
    nodes.replace([], [good, zero, nan])
    assert list(nodes.bad_vectors()) == [("a/0", "a"), ("a/1", "a")]


@pytest.mark.parametrize("passing", [[3], list(range(150)), list(range(590)), []])
@pytest.mark.parametrize("has_graph", [False, True])
def test_filters_cost_no_result(
    passing: list[int], has_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_graph:
        monkeypatch.setattr(nearest, "MOST_COMPARED", 100)
    nodes = EmbeddedNodes()
    nodes.replace([], many(0, 600))
    assert nodes.maintain() is has_graph
    found = ids_found(nodes, "d3/1", 40, one_of("n", passing))
    assert len(found) == min(40, 4 * len(passing))
    assert {int(node_id[1:].split("/")[0]) for node_id in found} <= set(passing)
    assert found[:1] == ["d3/1"][: len(passing)]


def test_a_filter_that_passes_some_passages_of_a_document_costs_no_result_either() -> None:
    """Whole documents are asked for by their ids; here that would bring the other passage's units too."""
    nodes = EmbeddedNodes()
    parts = [document(f"d{n}/{part}", n=n, part=part) for n in range(40) for part in "ab"]
    for node in (node for nodes_of in parts for node in nodes_of):
        node.relationships[NodeRelationship.SOURCE].node_id = node.ref_doc_id.partition("/")[0]
    nodes.replace([], [node for nodes_of in parts for node in nodes_of])
    one = MetadataFilters(
        filters=[MetadataFilter(key="part", value="a"), MetadataFilter(key="n", value=3)]
    )
    assert sorted(ids_found(nodes, "d3/b/1", 40, one)) == ["d3/a/0", "d3/a/1", "d3/a/2", "d3/a/p"]
    assert len(ids_found(nodes, "d3/b/1", 40, one_of("n", [3]))) == 8


def test_a_write_that_fails_half_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = EmbeddedNodes()
    nodes.replace([], document("a", text="old"))

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(nearest.VectorTable, "add", full)
        with pytest.raises(OSError, match="no space left"):
            nodes.replace(["a"], document("a", text="new"))
    assert all_ids(nodes) == {node.node_id for node in document("a", text="old")}
    nodes.replace(["a"], document("a", text="new"))
    assert ids_found(nodes, "a/new1") == ["a/new1"]


@pytest.mark.usefixtures("soon_a_graph")
def test_a_large_table_gets_an_index_and_finds_what_came_before_and_after_it(
    nodes: EmbeddedNodes,
) -> None:
    nodes.replace([], many(0, 9))
    assert not nodes.maintain()
    nodes.replace([], many(9, 200))
    assert nodes.maintain()
    nodes.replace([], many(200, 205))
    assert not nodes.maintain()
    for name in ("d0/1", "d150/p", "d204/2"):
        assert ids_found(nodes, name, 3)[0] == name
    nodes.replace([], many(205, 260))
    assert nodes.maintain()
    for name in ("d0/1", "d150/p", "d204/2", "d250/0"):
        assert ids_found(nodes, name, 3)[0] == name
    assert (
        len(ids_found(nodes, "d0/1", 2000)) == len(set(ids_found(nodes, "d0/1", 2000))) == 4 * 260
    )


@pytest.mark.usefixtures("soon_a_graph")
def test_many_equal_embeddings_do_not_hide_others_in_the_index(nodes: EmbeddedNodes) -> None:
    equal = [
        TextNode(id_=f"e{n}", text="equal", embedding=vector_of("equal")) for n in range(1_500)
    ]
    others = [f"o{n}" for n in range(50)]
    nodes.replace([], equal)
    nodes.replace([], [TextNode(id_=o, text=o, embedding=vector_of(o)) for o in others])
    nodes.commit()
    assert nodes.maintain()
    assert [ids_found(nodes, other) for other in others] == [[other] for other in others]
    assert set(ids_found(nodes, "equal", 9)) <= {node.node_id for node in equal}


def test_every_row_that_many_threads_add_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = usearch.index.Index.add

    def add_by_many(self: Any, keys: Any, vectors: Any, threads: int = 16) -> None:
        add(self, keys, vectors, threads=threads)

    monkeypatch.setattr(usearch.index.Index, "add", add_by_many)
    vectors = np.random.default_rng(1).standard_normal((6_000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pages = [(np.arange(1, 6_001), vectors)]
    draft = GraphDraft.of(pages, None)
    assert draft is not None
    graph = draft.graph(pages)
    lost = [row for row in range(1, 6_001) if row not in graph.nearest(vectors[row - 1], 1)[0]]
    assert lost == []


@pytest.mark.usefixtures("soon_a_graph")
def test_deleted_and_replaced_nodes_are_not_found_through_the_index(nodes: EmbeddedNodes) -> None:
    nodes.replace([], many(0, 200))
    nodes.maintain()
    nodes.replace([f"d{n}" for n in range(0, 100)], [])
    nodes.replace(["d150"], document("d150", text="new"))
    for _ in range(2):
        assert not {
            node_id
            for node_id in ids_found(nodes, "d7/1", 30)
            if int(node_id[1:].split("/")[0]) < 100
        }
        assert ids_found(nodes, "d150/1") != ["d150/1"]
        assert ids_found(nodes, "d150/new1") == ["d150/new1"]
        assert len(ids_found(nodes, "d7/1", 2000)) == 400
        nodes.replace([], many(200, 300))
        assert nodes.maintain()
        nodes.replace([f"d{n}" for n in range(200, 300)], [])


@pytest.mark.usefixtures("soon_a_graph")
@pytest.mark.parametrize("documents", [20, 150])
def test_compacting_leaves_nothing_of_what_was_deleted_or_replaced(
    tmp_path: Path, documents: int
) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    secret = "秘密の文 SECRET"
    marked = document("secret", text=secret, note="METADATA-SECRET")
    nodes.replace([], [*marked, *document("d-old", text="OLDTEXT"), *many(0, documents)])
    nodes.maintain()
    nodes.replace(["d-old"], document("d-old", text="newtext"))
    nodes.replace(["secret"], [])
    nodes.compact()
    nodes.clean(timedelta(0))
    content = bytes_in(tmp_path)
    embedding = np.array(marked[1].embedding, dtype=np.float32).tobytes()
    for erased in (secret.encode(), b"METADATA-SECRET", b"secret", b"OLDTEXT", embedding[:32]):
        assert erased not in content
    assert len(all_ids(nodes)) == 4 * (documents + 1)
    assert ids_found(nodes, "d3/1") == ["d3/1"]


@pytest.mark.usefixtures("soon_a_graph")
def test_a_compacted_folder_is_no_larger_than_one_made_anew(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path / "used").nodes
    for start in range(0, 400, 20):
        nodes.replace([], many(start, start + 20))
        nodes.maintain()
    nodes.replace([f"d{n}" for n in range(0, 400, 2)], [])
    nodes.compact()
    nodes.clean(timedelta(0))
    fresh = EmbeddedVectorStore(tmp_path / "fresh").nodes
    fresh.replace([], [node for n in range(1, 400, 2) for node in document(f"d{n}", n=n)])
    fresh.maintain()
    fresh.clean(timedelta(0))
    assert size(tmp_path / "used") <= 1.2 * size(tmp_path / "fresh")


@pytest.mark.usefixtures("soon_a_graph")
@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("deleted", [[], ["d7"]])
def test_a_copy_has_all_nodes_and_its_own_graph(
    tmp_path: Path, in_memory: bool, deleted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    nodes = (EmbeddedVectorStore() if in_memory else EmbeddedVectorStore(tmp_path / "source")).nodes
    nodes.replace([], many(0, 150))
    nodes.maintain()
    nodes.replace(deleted, [])
    nodes.commit()
    folder = tmp_path / "二 copy"
    folder.mkdir()
    nodes.copy_to(folder, "")
    assert len(graphs(folder)) == 1
    copy = EmbeddedVectorStore(folder).nodes
    assert list(copy.records()) == list(nodes.records())
    assert "missing or damaged" not in caplog.text
    assert ids_found(copy, "d3/1", 5) == ids_found(nodes, "d3/1", 5)
    assert not copy.database.is_a_copy
    copy.maintain()
    assert ids_found(copy, "d3/1", 5) == ids_found(nodes, "d3/1", 5)
    assert len(graphs(folder)) == 1


def test_threads_that_read_see_each_document_whole(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], [*document("a", text="0"), *many(0, 10)])
    nodes.commit()
    problems: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                ids = nodes.node_ids(["a"])
                assert len(ids) == 4
                assert len(set(ids_found(nodes, "a/1", 44))) == 44
            except BaseException as problem:
                problems.append(problem)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(1, 13):
        nodes.replace(["a"], document("a", text=str(n)))
        nodes.maintain()
        nodes.commit()
    stop.set()
    for reader in readers:
        reader.join()
    assert not problems


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("soon_a_graph")
def test_graphs_do_not_pile_up(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    for start in range(0, 100, 5):
        nodes.replace([], many(start, start + 5))
        if nodes.maintain():
            nodes.clean(timedelta(0))
        nodes.commit()
        assert len(graphs(tmp_path)) <= 1
    assert len(graphs(tmp_path)) == 1
    assert ids_found(nodes, "d3/1") == ["d3/1"]


@pytest.mark.usefixtures("soon_a_graph")
def test_all_is_found_where_the_disk_has_no_room_for_a_graph(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no limit on the size of a file")
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 100))
    nodes.commit()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        assert not nodes.maintain()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"cannot be written to {tmp_path}" in caplog.text
    assert not list(tmp_path.glob("*.hnsw*"))
    assert ids_found(nodes, "d3/1") == ["d3/1"]
    assert nodes.maintain()
    assert ids_found(EmbeddedVectorStore(tmp_path).nodes, "d3/1") == ["d3/1"]


@pytest.mark.usefixtures("soon_a_graph")
@pytest.mark.parametrize("damage", ["gone", "cut", "garbage", "empty"])
def test_without_its_graph_all_is_found_and_the_next_compaction_makes_another(
    tmp_path: Path, damage: str
) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 100))
    nodes.commit()
    nodes.maintain()
    (graph,) = graphs(tmp_path)
    content = graph.read_bytes()
    graph.unlink()
    if damage != "gone":
        kept = {"cut": content[: len(content) // 2], "garbage": content[::-1], "empty": b""}
        graph.write_bytes(kept[damage])
    reader = EmbeddedVectorStore(tmp_path).nodes
    assert ids_found(reader, "d3/1", 400) == ids_found(nodes, "d3/1", 400)
    reader.compact()
    reader.clean(timedelta(0))
    (another,) = graphs(tmp_path)
    assert another.name != graph.name
    assert ids_found(EmbeddedVectorStore(tmp_path).nodes, "d3/1") == ["d3/1"]


@pytest.mark.usefixtures("soon_a_graph")
def test_a_reader_goes_on_with_each_new_graph(tmp_path: Path) -> None:
    writer = EmbeddedVectorStore(tmp_path).nodes
    reader = EmbeddedVectorStore(tmp_path).nodes
    for start in range(0, 90, 30):
        writer.replace([f"d{start - 1}"], many(start, start + 30))
        writer.commit()
        writer.maintain()
        assert ids_found(reader, f"d{start + 3}/1") == [f"d{start + 3}/1"]
        assert ids_found(reader, "d0/1") == ["d0/1"]
    writer.replace([f"d{n}" for n in range(60)], [])
    writer.commit()
    assert writer.maintain()
    assert len(ids_found(reader, "d0/1", 999)) == 4 * 30


@pytest.mark.usefixtures("soon_a_graph")
def test_a_state_is_read_to_its_end_while_others_make_the_graph_anew(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 100))
    nodes.commit()
    nodes.maintain()

    def delete_half_and_add_one() -> None:
        nodes.replace([f"d{n}" for n in range(50)], many(100, 101))
        nodes.commit()
        assert nodes.maintain()
        assert len(ids_found(nodes, "d3/1", 400)) == 204

    with nodes.snapshot():
        everything = ids_found(nodes, "d3/1", 400)
        writer = threading.Thread(target=delete_half_and_add_one)
        writer.start()
        writer.join()
        assert len(everything) == 400
        assert ids_found(nodes, "d3/1", 400) == everything
    assert len(ids_found(nodes, "d3/1", 400)) == 204


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 20))
    nodes.commit()
    (pages,) = nodes.database.writing().execute("PRAGMA page_count").fetchone()
    nodes.database.writing().execute(f"PRAGMA max_page_count = {pages + 4}")
    for _ in range(2):
        with pytest.raises(OSError, match="disk is full"):
            nodes.replace(["d3"], many(3, 60))
        nodes.commit()
        assert all_ids(nodes) == {node.node_id for node in many(0, 20)}
    nodes.database.writing().execute(f"PRAGMA max_page_count = {10 * pages}")
    nodes.replace([], many(20, 30))
    nodes.commit()
    assert all_ids(EmbeddedVectorStore(tmp_path).nodes) == {node.node_id for node in many(0, 30)}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no limit on the size of files")
def test_a_disk_that_cannot_be_written_is_no_damage(tmp_path: Path) -> None:
    import resource

    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 20))
    nodes.commit()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    nodes.replace(["d3"], many(3, 60))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # as a quota that is used up
    try:
        with pytest.raises(OSError, match="its disk cannot be read or written"):
            nodes.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert all_ids(nodes) == {node.node_id for node in many(0, 20)}


def test_two_writers_wait_for_one_another(tmp_path: Path) -> None:
    stores = [EmbeddedVectorStore(tmp_path) for _ in range(3)]

    def write(number: int) -> None:
        for n in range(10):
            stores[number].add(document(f"{number}-{n}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert EmbeddedVectorStore(tmp_path).nodes.counts().documents == 30


WRITER = """
import sys
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from tests.stores.test_embedded_nodes import document
EmbeddedVectorStore(sys.argv[1]).add(document("b"))
"""


def test_who_may_not_write_sees_what_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedVectorStore(tmp_path)
    store.add(document("a"))
    store.nodes.database.close()
    # in place of rights, which the superuser always has
    monkeypatch.setattr(database, "_is_writable", lambda file: False)
    reader = EmbeddedVectorStore(tmp_path).nodes
    assert set(reader.documents()) == {"a"}
    assert run_program(WRITER, tmp_path)[0] == 0
    assert set(reader.documents()) == {"a", "b"}


def test_a_copy_made_by_others_is_looked_into_once(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path / "index").nodes
    nodes.replace([], many(0, 20))
    nodes.commit()
    nodes.database.close()
    copy_index(tmp_path / "index", tmp_path / "copy")
    copy = EmbeddedVectorStore(tmp_path / "copy").nodes
    assert not copy.database.is_a_copy
    assert all_ids(copy) == all_ids(nodes)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM contents WHERE row = 3",
        "DELETE FROM nodes WHERE row = 3",
        "DELETE FROM nodes WHERE granularity = 'passage'",
        "DELETE FROM words WHERE row = 3",
        "DELETE FROM postings WHERE block = 0 AND token = (SELECT max(token) FROM postings)",
    ],
)
def test_a_copy_of_several_states_is_refused(tmp_path: Path, statement: str) -> None:
    store = EmbeddedVectorStore(tmp_path / "index")
    store.nodes.words = Words.by("bigrams")
    store.add(many(0, 20))
    with closing(sqlite3.connect(tmp_path / "index" / "nodes.db")) as database:
        database.execute(statement)
        database.commit()
    EmbeddedVectorStore(tmp_path / "index")  # which is not the copy
    copy_index(tmp_path / "index", tmp_path / "copy")
    for _ in range(2):
        with pytest.raises(
            InvalidIndexError, match="If it was copied while being written to, copy it again"
        ):
            EmbeddedVectorStore(tmp_path / "copy")


@pytest.mark.parametrize(
    "text", ["Tides rise twice a day. The moon pulls them.", "潮は日に二度満ちる。月が引くからだ。"]
)
def test_links_are_those_of_the_whole_nodes(text: str) -> None:
    document = Document(id_="doc", text=f"# A\n\n{text}\n\n# B\n\n{text}")
    parsed = HierarchicalPropositionNodeParser.from_defaults().get_nodes_from_documents([document])
    nodes = EmbeddedNodes()
    nodes.replace(["doc"], parsed)
    links = nodes.links([*(node.node_id for node in parsed), "not there"])
    assert links == {node.node_id: NodeLinks.of(node) for node in parsed}
    assert any(link.parent_id for link in links.values())
    assert any(link.child_ids for link in links.values())
    assert nodes.links([]) == {}


def test_compacting_says_that_somebody_reads_what_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
    store = EmbeddedVectorStore(tmp_path)
    store.add(document("a", text="SECRET"))
    reader = EmbeddedVectorStore(tmp_path).nodes
    with reader.snapshot():
        assert reader.counts().documents == 1
        store.delete("a")
        with pytest.raises(OSError, match="still in its files; try again"):
            store.nodes.compact()
    store.nodes.compact()
    assert b"SECRET" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.usefixtures("soon_a_graph")
def test_compacting_leaves_no_graph_of_what_was_deleted(tmp_path: Path) -> None:
    nodes = EmbeddedVectorStore(tmp_path).nodes
    nodes.replace([], many(0, 100))
    nodes.commit()
    nodes.maintain()
    (old,) = graphs(tmp_path)
    nodes.replace(["d3"], [])
    nodes.compact()
    assert not old.exists()
    assert len(graphs(tmp_path)) == 1


def test_a_node_that_was_compressed_long_ago_is_readable() -> None:
    compressed = (
        b"x}\xb2\xd1\x86d\xab\xc6Q\x1d\xf9$\xe6\x02s\x16H\x03,H\x9e7\xaeW\xaa\x05\x00w\x07\x0f\xdb"
    )
    content = '{"metadata": {"title": "Lamps"}, "text": "灯"}'
    assert decompress(compressed) == content
    assert decompress(compress(content)) == content
