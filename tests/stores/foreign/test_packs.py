"""Packs over other stores: what a stop leaves, and what several writers do."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore, SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_pack_densex import (
    DenseXRetrievalPack,
    InvalidIndexError,
    PropositionNodeParser,
    RecordedPropositionizer,
)
from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.upkeep import delete_documents
from tests.searching import ShortEmbedding
from tests.stores.foreign.alone_checks import StoppedError, stopped_after

pytestmark = pytest.mark.slow_cases("chroma*", but=["*half_written*", "*writes_later*"])

OPTIONS: dict[str, Any] = {"embed_model": ShortEmbedding(), "query_llm": "none"}
SECRET = Document(
    id_="秘密", text="The bitters hold wormwood. They hold quinine as well. 山椒が入る。"
)
OTHER = Document(id_="天気", text="Rain fell on the harbour. It was cold.")


def chroma() -> Any:
    chromadb = pytest.importorskip("chromadb")
    integration = pytest.importorskip("llama_index.vector_stores.chroma")
    client = chromadb.EphemeralClient()
    return integration.ChromaVectorStore(client.get_or_create_collection(f"c{uuid.uuid4().hex}"))


def qdrant() -> Any:
    client = pytest.importorskip("qdrant_client")
    integration = pytest.importorskip("llama_index.vector_stores.qdrant")
    return integration.QdrantVectorStore("nodes", client=client.QdrantClient(":memory:"))


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_what_a_stop_left_half_written_is_deleted_and_counted_once(make: Callable[[], Any]) -> None:
    store = make()
    pack = DenseXRetrievalPack([OTHER], vector_store=store, **OPTIONS)
    nodes = pack.node_parser.get_nodes_from_documents([SECRET])
    for node in nodes:
        node.embedding = ShortEmbedding().get_text_embedding(node.get_content())
    adapter = adapter_for(store)
    with stopped_after(adapter, 1), pytest.raises(StoppedError):
        adapter.replace([], nodes)
    again = DenseXRetrievalPack.from_vector_store(store, **OPTIONS)
    assert "秘密" not in again.documents()
    assert adapter.node_ids(["秘密"])
    assert again.delete(["秘密", "秘密", "never there"], purge=True) == 1
    assert adapter.node_ids(["秘密"]) == set()
    assert not adapter.fetch([node.node_id for node in nodes])
    assert again.delete(["天気", "天気"]) == 1


def test_a_document_that_a_docstore_has_half_of_is_erased() -> None:
    values, vectors = SimpleKVStore(), SimpleVectorStore()
    docstore: BaseDocumentStore = KVDocumentStore(values)
    DenseXRetrievalPack([OTHER], vector_store=vectors, docstore=docstore, **OPTIONS)
    put_all, left = values.put_all, [3]

    def stopping(*args: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StoppedError
        put_all(*args, **options)

    values.put_all = stopping  # type: ignore[method-assign]  # stands for a connection that is lost
    with pytest.raises(StoppedError):
        DenseXRetrievalPack([SECRET], vector_store=vectors, docstore=docstore, **OPTIONS)
    values.put_all = put_all  # type: ignore[method-assign]
    assert any("wormwood" in node.get_content() for node in docstore.docs.values())
    pack = DenseXRetrievalPack([], vector_store=vectors, docstore=docstore, **OPTIONS)
    assert pack.delete("秘密", purge=True) == 1
    assert "wormwood" not in str(values.to_dict())
    assert {node.ref_doc_id for node in docstore.docs.values()} == {"天気"}


@pytest.fixture
def faiss_stores() -> Callable[[], Any]:
    faiss = pytest.importorskip("faiss")
    integration = pytest.importorskip("llama_index.vector_stores.faiss")
    dimension = len(ShortEmbedding().get_text_embedding("a"))
    return lambda: integration.FaissVectorStore(faiss.IndexFlatIP(dimension))


@pytest.mark.slow
def test_two_writers_to_a_faiss_folder_lose_nothing_after_many_deletions(
    faiss_stores: Callable[[], Any], tmp_path: Path
) -> None:
    def documents(numbers: range, says: str) -> list[Document]:
        text = " ".join(f"Sentence {place} {says}." for place in range(12))
        return [Document(id_=f"d{number}", text=f"Number {number}. {text}") for number in numbers]

    first = DenseXRetrievalPack(
        documents(range(100), "is old"),
        vector_store=faiss_stores(),
        persist_dir=tmp_path,
        **OPTIONS,
    )
    first.refresh(documents(range(100), "is new"))  # which replaces nearly all vectors
    second = DenseXRetrievalPack.load(tmp_path, **OPTIONS)
    first.refresh(documents(range(100), "is newer"))
    second.insert(documents(range(100, 101), "is newer"))
    expected = {f"d{number}" for number in range(101)}
    for pack in (second, DenseXRetrievalPack.load(tmp_path, **OPTIONS)):
        assert set(pack.documents()) == expected
        assert {str(node.ref_doc_id) for node in pack.nodes()} == expected
        assert all("is newer" in node.get_content() for node in pack.nodes("passage"))


@pytest.mark.parametrize("by", ["a pack that does not search by words", "without a model"])
def test_purging_reaches_words_that_are_not_searched_now(
    by: str, faiss_stores: Callable[[], Any], tmp_path: Path
) -> None:
    DenseXRetrievalPack(
        [SECRET, OTHER], vector_store=faiss_stores(), persist_dir=tmp_path, **OPTIONS
    )
    if by == "without a model":
        delete_documents(tmp_path, ["秘密"], purge=True)
    else:
        DenseXRetrievalPack.load(tmp_path, hybrid=False, **OPTIONS).delete("秘密", purge=True)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(
        word.encode() in file.read_bytes() for file in files for word in ("wormwood", "山椒")
    )
    assert (
        DenseXRetrievalPack.load(tmp_path, **OPTIONS).retrieve("harbour")[0].node.ref_doc_id
        == "天気"
    )


def test_llama_indexs_own_index_goes_on_after_a_copy_was_persisted(tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    integration = pytest.importorskip("llama_index.vector_stores.faiss")
    flat = faiss.IndexFlatIP(len(ShortEmbedding().get_text_embedding("a")))
    store = integration.FaissMapVectorStore(faiss.IndexIDMap2(flat))
    pack = DenseXRetrievalPack([OTHER], vector_store=store, **OPTIONS)
    pack.persist(tmp_path / "copy")
    pack.insert(SECRET)
    assert pack.vector_index is not None
    found = pack.vector_index.as_retriever(similarity_top_k=20).retrieve("wormwood")
    assert {hit.node.ref_doc_id for hit in found} == {"秘密", "天気"}


class MeetingEmbedding(ShortEmbedding):
    """Has threads that embed wait a while for one another."""

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        with suppress(threading.BrokenBarrierError):
            MEETING.wait(timeout=0.5)
        return super()._get_text_embeddings(texts)


MEETING = threading.Barrier(2)


def test_threads_that_replace_a_document_at_once_leave_one_of_its_versions() -> None:
    pack = DenseXRetrievalPack([OTHER], embed_model=MeetingEmbedding(), query_llm="none")
    MEETING.reset()
    versions = [
        Document(id_="d", text=f"It is version {number}. Nothing else.") for number in range(2)
    ]
    with ThreadPoolExecutor() as threads:
        list(threads.map(pack.insert, versions))
    assert len([record for record in pack.records("passage") if record.document_id == "d"]) == 1


def test_deleted_text_is_in_no_file_of_a_faiss_folder(
    faiss_stores: Callable[[], Any], tmp_path: Path
) -> None:
    pack = DenseXRetrievalPack(
        [SECRET, OTHER], vector_store=faiss_stores(), persist_dir=tmp_path, hybrid=False, **OPTIONS
    )
    size = pack.vector_index.vector_store.client.ntotal if pack.vector_index is not None else 0
    assert pack.delete("秘密", purge=True) == 1
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(
        word.encode() in file.read_bytes() for file in files for word in ("wormwood", "山椒")
    )
    assert pack.vector_index is not None
    assert 0 < pack.vector_index.vector_store.client.ntotal < size


def test_a_folder_whose_collection_is_another_one_now_has_the_words_of_that(tmp_path: Path) -> None:
    DenseXRetrievalPack([SECRET, OTHER], vector_store=chroma(), persist_dir=tmp_path, **OPTIONS)
    empty, now = chroma(), chroma()
    with pytest.raises(InvalidIndexError, match="there is no index in the ChromaVectorStore"):
        DenseXRetrievalPack.load(tmp_path, vector_store=empty, **OPTIONS)
    made = DenseXRetrievalPack([OTHER], vector_store=now, persist_dir=tmp_path, **OPTIONS)
    for pack in (made, DenseXRetrievalPack.load(tmp_path, vector_store=now, **OPTIONS)):
        assert [hit.node.ref_doc_id for hit in pack.retrieve("wormwood and quinine")] == [OTHER.id_]
        assert pack.missing_links == 0


def test_another_kind_of_store_than_the_folders_is_refused(tmp_path: Path) -> None:
    DenseXRetrievalPack([SECRET], vector_store=SimpleVectorStore(), persist_dir=tmp_path, **OPTIONS)
    with pytest.raises(InvalidIndexError, match="there is no index in the ChromaVectorStore"):
        DenseXRetrievalPack.load(tmp_path, vector_store=chroma(), **OPTIONS)


def test_a_store_without_text_is_opened_with_the_docstore_beside_it() -> None:
    store = SimpleVectorStore()
    docstore = SimpleDocumentStore()
    DenseXRetrievalPack([SECRET], vector_store=store, docstore=docstore, **OPTIONS)
    with pytest.raises(InvalidIndexError, match="the docstore, if the store keeps no text"):
        DenseXRetrievalPack.from_vector_store(store, **OPTIONS)
    pack = DenseXRetrievalPack.from_vector_store(store, docstore=docstore, **OPTIONS)
    assert [hit.node.ref_doc_id for hit in pack.retrieve("wormwood")] == [SECRET.id_]


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_a_default_does_not_replace_what_a_pipeline_made_with_a_model(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    line = json.dumps({"text": OTHER.text, "propositions": ["It rained on the harbour."]})
    (tmp_path / "recorded.jsonl").write_text(line, encoding="utf-8")
    made, store = RecordedPropositionizer(tmp_path / "recorded.jsonl"), make()
    steps = [PropositionNodeParser(propositionizer=made), ShortEmbedding()]
    IngestionPipeline(transformations=steps, vector_store=store).run(documents=[OTHER])
    with pytest.raises(ValueError, match="made by another propositionizer"):
        DenseXRetrievalPack.from_vector_store(store, **OPTIONS).refresh([OTHER])
    pack = DenseXRetrievalPack.from_vector_store(store, propositionizer=made, **OPTIONS)
    pack.refresh([OTHER])
    assert [node.text for node in pack.nodes("proposition")] == ["It rained on the harbour."]


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_documents_that_a_pipeline_wrote_are_known(make: Callable[[], Any]) -> None:
    store = make()
    steps = [PropositionNodeParser(granularity=("proposition", "sentence")), ShortEmbedding()]
    IngestionPipeline(transformations=steps, vector_store=store).run(documents=[OTHER, SECRET])
    pack = DenseXRetrievalPack.from_vector_store(store, proposition_llm="none", **OPTIONS)
    assert set(pack.documents()) == {OTHER.id_, SECRET.id_}
    assert pack.refresh([OTHER]) == [False]
    pack.insert(Document(id_="third", text="Snow fell."))
    assert pack.delete(SECRET.id_) == 1
    assert set(pack.documents()) == {OTHER.id_, "third"}


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_documents_that_a_pipeline_writes_later_are_known(make: Callable[[], Any]) -> None:
    store = make()
    pack = DenseXRetrievalPack([OTHER], vector_store=store, proposition_llm="none", **OPTIONS)
    assert set(pack.documents()) == {OTHER.id_}
    pack.insert(Document(id_="third", text="Snow fell."))
    IngestionPipeline(transformations=[pack.node_parser, ShortEmbedding()], vector_store=store).run(
        documents=[SECRET]
    )
    assert set(pack.documents()) == {OTHER.id_, "third", SECRET.id_}
    pack.insert(Document(id_="fourth", text="Hail fell."))
    assert pack.refresh([SECRET]) == [False]
    assert pack.delete(SECRET.id_) == 1
    assert set(pack.documents()) == {OTHER.id_, "third", "fourth"}


ABOUT_BOTH = "wormwood, quinine; harbour"  # of which SECRET has more words


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_a_pack_that_writes_finds_by_words_what_another_one_wrote(make: Callable[[], Any]) -> None:
    store = make()
    pack = DenseXRetrievalPack([OTHER], vector_store=store, dense_weight=0.0, **OPTIONS)
    assert pack.retrieve(ABOUT_BOTH)[0].node.ref_doc_id == OTHER.id_
    DenseXRetrievalPack([SECRET], vector_store=store, **OPTIONS)
    pack.insert(Document(id_="third", text="Snow fell."))
    assert pack.retrieve(ABOUT_BOTH)[0].node.ref_doc_id == SECRET.id_


@pytest.mark.parametrize("make", [chroma, qdrant])
def test_compacting_tells_words_of_what_was_written_past_the_pack(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    store, folder = make(), tmp_path / "index"
    given: dict[str, Any] = {"vector_store": store, "dense_weight": 0.0, **OPTIONS}
    pack = DenseXRetrievalPack([OTHER], persist_dir=folder, **given)
    IngestionPipeline(transformations=[pack.node_parser, ShortEmbedding()], vector_store=store).run(
        documents=[SECRET]
    )
    pack.compact()
    for opened in (pack, DenseXRetrievalPack.load(folder, **given)):
        assert opened.retrieve(ABOUT_BOTH)[0].node.ref_doc_id == SECRET.id_
    pack.vector_index.delete_ref_doc(SECRET.id_)  # type: ignore[union-attr]
    pack.compact()
    assert not any(b"wormwood" in file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("make", [lambda: None, SimpleVectorStore, chroma, qdrant])
def test_filters_are_about_passages_where_a_unit_has_other_metadata(
    make: Callable[[], Any],
) -> None:
    text = "# Food\n\n## Miso\n\nMiso is salty.\n\n## Tea\n\nTea is hot."  # one passage
    pack = DenseXRetrievalPack(
        [Document(text=text)], vector_store=make(), granularity=("sentence",), **OPTIONS
    )
    pack.insert(OTHER)

    def passes(value: str) -> bool:
        filters = MetadataFilters(filters=[MetadataFilter(key="section", value=value)])
        return any(found.text == text for found in pack.retrieve("hot tea", 5, filters=filters))

    assert (passes("Food"), passes("Miso"), passes("Food, Tea")) == (True, False, False)


def nodes_of_wells(number: int, of: str, **source: Any) -> list[BaseNode]:
    texts = [f"Well {place} {of}. It is deep." for place in range(number)]
    document = Document(text="\n".join(texts), **source)
    nodes = build_nodes_from_splits(texts, document)
    return [node.model_copy(update={"metadata": document.metadata}) for node in nodes]


def kept(pack: DenseXRetrievalPack) -> list[str]:
    return sorted(node.get_content() for node in pack.nodes("passage"))


SOURCES: list[dict[str, Any]] = [{"id_": "wells"}, {"metadata": {"file_path": "/wells.txt"}}]


@pytest.mark.parametrize("make", [lambda: None, SimpleVectorStore, chroma, qdrant])
def test_nodes_of_another_parser_are_documents_of_their_own(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    source = {"metadata": {"file_path": "/wells.txt"}}
    given = nodes_of_wells(9, "in town", **source)
    pack = DenseXRetrievalPack(
        [*given[:5], OTHER], vector_store=make(), persist_dir=tmp_path, **OPTIONS
    )
    pack.insert(given[5:])
    assert kept(pack) == sorted(node.get_content() for node in (*given, OTHER))
    assert set(pack.documents()) == {node.node_id for node in (*given, OTHER)}
    assert "Well 7" in pack.retrieve("Is well 7 in town deep?", 1)[0].text
    again = nodes_of_wells(9, "in town", **source)  # with other ids
    assert pack.refresh(iter([*again, OTHER])) == [False] * 10
    changed = [*again[:6], *nodes_of_wells(9, "by the sea", **source)[6:]]
    assert pack.refresh(changed) == [False] * 6 + [True] * 3
    assert kept(pack) == sorted(node.get_content() for node in (*changed, OTHER))
    indexed = {node.get_content(): node.ref_doc_id for node in pack.nodes("passage")}
    assert pack.delete([indexed[changed[1].get_content()], "never there"], purge=True) == 1
    assert pack.delete(changed[8]) == 1
    assert kept(pack) == sorted(node.get_content() for node in (changed[0], *changed[2:8], OTHER))
    assert pack.missing_links == 0


@pytest.mark.parametrize(("make", "source"), [(lambda: None, SOURCES[1]), (chroma, SOURCES[0])])
def test_a_document_in_more_pieces_than_are_written_at_a_time(
    make: Callable[[], Any], source: dict[str, Any]
) -> None:
    given = nodes_of_wells(600, "in town", **source)
    pack = DenseXRetrievalPack(
        given, vector_store=make(), embed_model=MockEmbedding(embed_dim=2), query_llm="none"
    )
    assert pack.counts().propositions == 1_200
    assert kept(pack) == sorted(node.get_content() for node in given)
