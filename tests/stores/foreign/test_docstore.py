from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, IndexNode, TextNode
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_pack_densex.index.adapters.docstore import DocstoreNodes
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from tests.integration.servers import POSTGRES_USER, Servers
from tests.stores.foreign.docstore_nodes import ENGLISH, JAPANESE, keep, kept, nodes_of, question

pytestmark = pytest.mark.together("postgres")


@pytest.fixture(params=["memory", "redis", "postgres"])
def docstore(request: pytest.FixtureRequest, servers: Servers) -> BaseDocumentStore:
    namespace = f"n{uuid.uuid4().hex}"
    if request.param == "redis":
        from llama_index.storage.kvstore.redis import RedisKVStore

        return KVDocumentStore(
            RedisKVStore(redis_uri=f"redis://127.0.0.1:{servers.redis}"), namespace
        )
    if request.param == "postgres":
        from llama_index.storage.kvstore.postgres import PostgresKVStore

        values = PostgresKVStore.from_params(
            "127.0.0.1", str(servers.postgres), "postgres", POSTGRES_USER, ""
        )
        return KVDocumentStore(values, namespace)
    return SimpleDocumentStore()


class Elsewhere(BasePydanticVectorStore):
    """Keeps its vectors itself, and deletes whole documents only, as several integrations do."""

    stores_text: bool = False
    _kept: SimpleVectorStore = PrivateAttr(default_factory=SimpleVectorStore)

    @property
    def client(self) -> Any:
        return self._kept

    def add(self, nodes: list[BaseNode], **options: Any) -> list[str]:
        return self._kept.add(nodes)

    def delete(self, ref_doc_id: str, **options: Any) -> None:
        self._kept.delete(ref_doc_id)

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        return self._kept.query(query)


def filled(
    docstore: BaseDocumentStore | None = None, vector_store: BasePydanticVectorStore | None = None
) -> DocstoreNodes:
    store = DocstoreNodes(vector_store or SimpleVectorStore(), docstore)
    store.replace(
        [],
        [node for name, text in {**ENGLISH, **JAPANESE}.items() for node in nodes_of(text, name)],
    )
    return store


def test_nodes_come_back_whole_from_the_docstore(docstore: BaseDocumentStore) -> None:
    store = DocstoreNodes(SimpleVectorStore(), docstore)
    metadata = {"list": [1, "二", None], "nested": {"a": {"b": [True]}}, "none": None}
    nodes = nodes_of(JAPANESE["琵琶湖"], "文書/一", **metadata)
    store.replace([], nodes)
    back = store.fetch([node.node_id for node in nodes] + ["gone"])
    assert len(back) == len(nodes)
    for node in nodes:
        assert back[node.node_id] == node.model_copy(update={"embedding": None})
        assert type(back[node.node_id]) is type(node)
    assert store.fetch([]) == {}


@pytest.mark.parametrize(
    ("asked", "answer"), [("the Akashi Bridge opened", "bridge"), ("将棋の駒は四十枚", "将棋")]
)
def test_a_search_tells_what_was_found_and_where_it_leads(asked: str, answer: str) -> None:
    store = filled()
    found = store.search(question(asked, 3))
    assert len(found) == 3
    assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)
    unit = store.fetch([found[0].id])[found[0].id]
    assert unit.ref_doc_id == answer
    assert found[0].granularity == unit.metadata[GRANULARITY_KEY]
    assert isinstance(unit, IndexNode)
    assert found[0].passage_id == found[0].leads_to == unit.index_id


def test_documents_have_the_hash_that_their_nodes_have(docstore: BaseDocumentStore) -> None:
    store = filled(docstore)
    assert set(store.documents()) == {*ENGLISH, *JAPANESE}
    head = next(record for record in store.records("passage") if record.document_id == "miso")
    assert store.documents()["miso"].hash == head.document_hash != ""


def test_a_replaced_document_has_its_new_nodes_only(docstore: BaseDocumentStore) -> None:
    store = filled(docstore)
    before = store.node_ids(["chess"])
    nodes = nodes_of("Chess is played by two people. A clock limits their time.", "chess")
    store.replace(["chess"], nodes)
    assert store.node_ids(["chess"]) == {node.node_id for node in nodes}
    gone = before - store.node_ids(["chess"])
    assert gone
    assert store.fetch(sorted(gone)) == {}
    found = store.search(question("Each of them has sixteen pieces.", 100))
    assert not gone & {node.id for node in found}
    assert len(found) == sum(1 for _ in store.records())


def test_a_removed_document_leaves_nothing(docstore: BaseDocumentStore) -> None:
    store = filled(docstore)
    ids = store.node_ids(["新幹線"])
    store.replace(["新幹線", "never there"], [])
    assert "新幹線" not in store.documents()
    assert "never there" not in store.documents()
    assert store.node_ids(["新幹線"]) == set()
    assert store.fetch(sorted(ids)) == {}
    assert not ids & {node.id for node in store.search(question("新幹線", 100))}
    assert set(store.docstore.docs) == {record.id for record in store.records()}


def test_the_docstore_is_as_llama_index_would_have_written_it(docstore: BaseDocumentStore) -> None:
    store, theirs = filled(docstore), SimpleDocumentStore()
    for name, text in ENGLISH.items():
        bare = [node.model_copy(update={"embedding": None}) for node in nodes_of(text, name)]
        theirs.add_documents(bare)
    store.replace(list(JAPANESE), [])
    assert docstore.docs == theirs.docs
    assert docstore.get_all_ref_doc_info() == theirs.get_all_ref_doc_info()
    ours = {
        key: value
        for key, value in docstore.get_all_document_hashes().items()
        if not value.startswith("densex/")
    }
    assert ours == theirs.get_all_document_hashes()


def test_what_others_keep_in_the_docstore_is_left_alone(docstore: BaseDocumentStore) -> None:
    docstore.add_documents([TextNode(id_="theirs", text="not ours")])
    store = filled(docstore)
    assert "theirs" not in {record.id for record in store.records()}
    store.replace([*ENGLISH, *JAPANESE], [])
    assert store.is_empty()
    assert list(docstore.docs) == ["theirs"]


def test_filters_drop_hits_and_more_are_asked_for() -> None:
    store = DocstoreNodes(SimpleVectorStore())
    for number in range(60):
        store.replace(
            [],
            nodes_of(
                f"Fact {number} is about chess.", f"d{number}", shelf="b" if number % 20 else "a"
            ),
        )
    filters = MetadataFilters(filters=[MetadataFilter(key="shelf", value="a")])
    found = store.search(question("about chess", 4, filters=filters))
    documents = {node.ref_doc_id for node in store.fetch([one.id for one in found]).values()}
    assert len(found) == 4
    assert documents <= {"d0", "d20", "d40"}
    nothing = MetadataFilters(filters=[MetadataFilter(key="shelf", value="c")])
    assert store.search(question("about chess", 4, filters=nothing)) == []


def test_a_vector_without_its_node_is_not_found() -> None:
    store = filled()
    lost = [record.id for record in store.records() if record.document_id == "chess"]
    for node_id in lost:
        store.docstore.delete_document(node_id)
    found = store.search(question("Chess is played by two people.", 5))
    assert len(found) == 5
    assert not {node.id for node in found} & set(lost)


def test_a_vector_store_that_deletes_whole_documents_only_is_enough() -> None:
    store = DocstoreNodes(Elsewhere())
    store.replace([], nodes_of(ENGLISH["chess"], "chess") + nodes_of(ENGLISH["miso"], "miso"))
    store.replace(["chess"], nodes_of("Chess has clocks.", "chess"))
    assert len(store.search(question("chess", 100))) == sum(1 for _ in store.records())
    store.replace(["chess"], [])
    assert {node.leads_to for node in store.search(question("chess", 100))} <= store.node_ids(
        ["miso"]
    )


class Stopping(SimpleKVStore):
    """Fails at one of its writes, as a connection does."""

    left = 10**9

    def put(self, *args: Any, **options: Any) -> None:
        self._count()
        super().put(*args, **options)

    def delete(self, *args: Any, **options: Any) -> bool:
        self._count()
        return super().delete(*args, **options)

    def _count(self) -> None:
        if self.left == 0:
            raise ConnectionError("stopped")
        self.left -= 1


def test_a_stop_at_any_write_leaves_a_document_that_counts_as_changed_and_is_mended_by_writing_it_again() -> (
    None
):
    old, new = nodes_of(ENGLISH["tides"]), nodes_of(ENGLISH["tides"] + " It is a new sentence.")
    stops = 0
    for writes in range(10**6):
        values = Stopping()
        store = DocstoreNodes(SimpleVectorStore(), SimpleDocumentStore(values))
        store.replace([], old)
        whole = store.documents()
        values.left = writes
        try:
            store.replace(["d"], new)
        except ConnectionError:
            stops += 1
        else:
            break
        values.left = 10**9
        hash_then = store.documents()["d"].hash
        assert not hash_then or (writes == 0 and store.documents() == whole)
        for node in store.search(question("tides", 100)):
            assert node.id in store.fetch([node.id])
        store.replace(["d"], new)
        assert {record.id for record in store.records()} == {node.node_id for node in new}
        assert {node.id for node in store.search(question("tides", 100))} == {
            node.node_id for node in new
        }
        assert set(store.docstore.docs) == {node.node_id for node in new}
    assert stops > len(new)


@pytest.mark.parametrize(
    "given", [None, SimpleVectorStore()], ids=["none given", "an empty one given"]
)
def test_stores_in_memory_are_kept_in_a_folder(
    given: SimpleVectorStore | None, tmp_path: Path
) -> None:
    store = filled()
    store.write_about("MiniLM")
    keep(store, tmp_path)
    back = kept(tmp_path, None, given)
    assert given is None or back.vector_store is given
    assert back.documents() == store.documents()
    assert back.read_about() == "MiniLM"
    assert back.search(question("将棋", 5)) == store.search(question("将棋", 5))
    assert sorted(record.id for record in back.records()) == sorted(
        record.id for record in store.records()
    )


def test_what_was_written_after_the_docstore_was_kept_counts_as_changed(tmp_path: Path) -> None:
    store = filled(vector_store=Elsewhere())
    keep(store, tmp_path)
    store.replace(["chess"], nodes_of("Chess has clocks.", "chess"))  # and the process is killed
    back = kept(tmp_path, vector_store=store.vector_store)
    assert back.documents()["chess"].hash == ""
    assert back.documents()["miso"] == store.documents()["miso"]
    back.replace(["chess"], nodes_of(ENGLISH["chess"], "chess"))
    keep(back, tmp_path)
    again = kept(tmp_path, vector_store=store.vector_store)
    assert again.documents() == back.documents()
    assert all(document.hash for document in again.documents().values())


def test_a_store_that_is_not_in_the_folder_is_asked_for(tmp_path: Path) -> None:
    keep(filled(vector_store=Elsewhere()), tmp_path)
    with pytest.raises(ValueError, match="pass it as vector_store="):
        kept(tmp_path)


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    store = filled()
    store.persist(tmp_path, "one")
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    store.persist(tmp_path, "one")
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_purged_text_is_in_no_file_of_the_folder(tmp_path: Path) -> None:
    store = filled()
    keep(store, tmp_path)
    store.replace(["miso"], [])
    keep(store, tmp_path)
    assert not any(b"fermented soybeans" in file.read_bytes() for file in tmp_path.iterdir())


def test_metadata_that_is_no_json_is_refused_with_the_documents_name_before_anything_changes() -> (
    None
):
    store = filled()
    before, nodes = (
        store.documents(),
        nodes_of("A text.", "papers/one.md") + nodes_of("Miso is salty.", "miso"),
    )
    nodes[0].metadata["when"] = object()
    with pytest.raises(ValueError, match=r"document 'papers/one\.md' cannot be kept as JSON"):
        store.replace(["miso"], nodes)
    assert store.documents() == before


def test_nodes_without_embeddings_are_kept_and_not_given_to_the_vector_store() -> None:
    nodes: list[BaseNode] = [
        node.model_copy(update={"embedding": None}) for node in nodes_of(ENGLISH["tides"])
    ]
    store = DocstoreNodes(SimpleVectorStore())
    store.replace([], nodes)
    assert store.counts().documents == 1
    assert store.documents()["d"].hash
    assert store.search(question("tides")) == []


def test_other_vectors_of_the_users_are_not_put_aside_for_those_of_a_folder(tmp_path: Path) -> None:
    store, others = DocstoreNodes(SimpleVectorStore()), DocstoreNodes(SimpleVectorStore())
    store.replace([], nodes_of(ENGLISH["tides"]))
    others.replace([], nodes_of(ENGLISH["miso"]))
    keep(store, tmp_path)
    with pytest.raises(ValueError, match="leave vector_store out"):
        kept(tmp_path, vector_store=others.vector_store)
    assert others.search(question("miso"))
    assert kept(tmp_path, vector_store=store.vector_store).search(question("tides"))
