"""`densex check` and `densex compact`: what they find, what they mend, what they erase."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from typer.testing import CliRunner

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.cli import app
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.index import nearest
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.folder import IndexInUseError, writing_to
from llama_pack_densex.index.manifest import InvalidIndexError, Manifest
from llama_pack_densex.index.upkeep import check_index, compact_index
from tests.another_process import run_program
from tests.index_folders import bytes_in, copy_index
from tests.searching import ENGLISH, JAPANESE, ShortEmbedding, documents, sources

pytestmark = pytest.mark.together("forks")

SHELF = MetadataFilters(filters=[MetadataFilter(key="shelf", value=1, operator=FilterOperator.NE)])
MODELS: dict[str, Any] = {"proposition_llm": "none", "query_llm": "none"}


@pytest.fixture(scope="module", params=["recursive", "auto_merging"])
def new_index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "index"
    corpus = documents(ENGLISH, JAPANESE)
    DenseXRetrievalPack(
        corpus, persist_dir=folder, embed_model=ShortEmbedding(), mode=request.param, **MODELS
    )
    return folder


@pytest.fixture
def index(new_index: Path, tmp_path: Path) -> Path:
    """A copy of the new index that a test may change."""
    return copy_index(new_index, tmp_path / "index")


def load(folder: Path) -> DenseXRetrievalPack:
    return DenseXRetrievalPack.load(folder, embed_model=ShortEmbedding(), **MODELS)


def rows(folder: Path, change: Any) -> None:
    """Change rows behind the index's back."""
    manifest = Manifest.read(folder)
    store = EmbeddedVectorStore(folder / manifest.data)
    change(store)


def node(folder: Path, document: str, granularity: str) -> Any:
    return next(node for node in load(folder).nodes(granularity) if node.ref_doc_id == document)


def test_a_new_index_is_whole(index: Path) -> None:
    report = check_index(index)
    assert report.faults == ()
    assert report.sound
    assert report.counts.documents == len(ENGLISH) + len(JAPANESE)
    assert report.counts.passages == report.counts.documents


def test_an_index_is_whole_after_every_kind_of_change(index: Path) -> None:
    pack = load(index)
    pack.insert(documents({"雪": "雪は冬に降る。北海道では多い。"}))
    pack.refresh(documents({"bridge": "The Akashi Bridge is painted grey."}))
    pack.delete("将棋")
    assert check_index(index).faults == ()
    pack.compact()
    assert check_index(index).faults == ()


@pytest.mark.parametrize("document", ["bridge", "琵琶湖"])
def test_units_without_their_passage_are_found_and_removed(index: Path, document: str) -> None:
    passage = node(index, document, "passage")
    rows(index, lambda store: store.delete_nodes([passage.node_id]))
    report = check_index(index)
    assert not report.sound
    assert {fault.kind for fault in report.faults} == {"link"}
    assert any("lead to missing passages" in fault.text for fault in report.faults)
    mended = check_index(index, repair=True)
    assert mended.sound
    assert mended.removed == (document,)
    assert check_index(index).faults == ()
    pack = load(index)
    assert document not in pack.documents()
    # what was removed is indexed again
    assert pack.refresh(documents(ENGLISH, JAPANESE)).count(True) == 1
    assert document in pack.documents()


def test_a_lost_proposition_is_found(index: Path) -> None:
    proposition = node(index, "miso", "proposition")
    rows(index, lambda store: store.delete_nodes([proposition.node_id]))
    (fault, *_) = check_index(index).faults
    assert fault.kind == "link"
    assert fault.documents == ("miso",)


def test_nodes_of_two_versions_of_a_document_are_found(index: Path) -> None:
    def add_older(store: EmbeddedVectorStore) -> None:
        other = DenseXRetrievalPack(
            documents({"miso": "Miso is old. It was made long ago."}), **MODELS
        )
        older = other.nodes()
        for one in older:
            one.embedding = [1.0] + [0.0] * 63
        store.add(older)

    rows(index, add_older)
    report = check_index(index)
    assert any(fault.kind == "version" and fault.documents == ("miso",) for fault in report.faults)


def test_embeddings_that_cannot_be_compared_are_found(index: Path) -> None:
    proposition = node(index, "chess", "proposition")
    rows(index, lambda store: store.add([proposition.model_copy(update={"embedding": [0.0] * 64})]))
    (fault,) = check_index(index).faults
    assert fault.kind == "vector"
    assert proposition.node_id in fault.text


@pytest.mark.parametrize("damage", ["vector", "missing"])
def test_a_damaged_graph_is_found_and_built_again(
    index: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "MOST_COMPARED", 1)
    load(index).insert(documents({"tea": "Tea is picked in May."}))
    (graph,) = index.glob("data-*/*.hnsw")
    assert check_index(index).faults == ()
    content = graph.read_bytes()
    graph.unlink()
    if (
        damage == "vector"
    ):  # the last number of the last one; another file, since packs map this one
        graph.write_bytes(content[:-4] + b"\0\0\0\x40")
    (fault,) = check_index(index).faults
    assert fault.kind == "graph"
    mended = check_index(index, repair=True)
    assert mended.sound
    assert mended.removed == ()
    assert check_index(index).faults == ()
    assert sources(load(index).retrieve("Tea is picked in May."))[0] == "tea"


def test_passages_without_words_are_found_and_their_words_told(index: Path) -> None:
    def remove_words(store: EmbeddedVectorStore) -> None:
        passage = node(index, "将棋", "passage")
        database = store.nodes.database
        remove = "DELETE FROM words WHERE row IN (SELECT row FROM nodes WHERE id = ?)"
        database.writing().execute(remove, [passage.node_id])
        database.commit()

    rows(index, remove_words)
    (fault,) = check_index(index).faults
    assert fault.kind == "words"
    report = check_index(index, repair=True)
    assert report.sound
    assert report.removed == ()
    assert check_index(index).faults == ()
    pack = DenseXRetrievalPack.load(index, embed_model=ShortEmbedding(), dense_weight=0.0, **MODELS)
    assert sources(pack.retrieve("将棋の駒は何枚ありますか。"))[0] == "将棋"


def test_a_folder_that_is_no_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidIndexError, match="is not an index"):
        check_index(tmp_path)


def test_mending_waits_for_no_writer(index: Path) -> None:
    with writing_to(index):
        assert check_index(index).sound
        with pytest.raises(IndexInUseError, match="one writer at a time"):
            check_index(index, repair=True)
        with pytest.raises(IndexInUseError):
            compact_index(index)


def test_the_command_says_what_is_wrong_and_how_to_mend_it(index: Path) -> None:
    runner = CliRunner()
    whole = runner.invoke(app, ["check", str(index)])
    assert whole.exit_code == 0
    assert "The index is sound." in whole.output
    passage = node(index, "琵琶湖", "passage")
    rows(index, lambda store: store.delete_nodes([passage.node_id]))
    broken = runner.invoke(app, ["check", str(index)])
    assert broken.exit_code == 1
    assert "units lead to missing passages" in " ".join(broken.output.split())
    assert "--repair" in broken.output
    found = json.loads(runner.invoke(app, ["check", str(index), "--json"]).stdout)
    assert found["faults"][0]["documents"] == ["琵琶湖"]
    mended = runner.invoke(app, ["check", str(index), "--repair"])
    assert mended.exit_code == 0
    assert "琵琶湖" in mended.output


@pytest.mark.slow
def test_a_new_index_has_nothing_that_compacting_would_give_back(tmp_path: Path) -> None:
    texts = {
        str(n): f"Lamp {n} hangs in hall {n}. It was lit in {1000 + n}. 灯{n}は赤い。"
        for n in range(500)
    }
    DenseXRetrievalPack(
        documents(texts), persist_dir=tmp_path / "i", embed_model=ShortEmbedding(), **MODELS
    )
    compaction = compact_index(tmp_path / "i")
    # A tenth is the log's: it holds a page for each time that the page was written, and their number differs
    # from run to run. A document that was left behind twice would double the size.
    assert compaction.bytes_before <= 1.25 * compaction.bytes_after


def test_compacting_gives_back_the_space_of_what_was_deleted(tmp_path: Path) -> None:
    half = {
        f"{n}": f"Lamp {n} hangs in hall {n}. It was lit in {1000 + n}. 灯{n}は赤い。"
        for n in range(160)
    }
    rest = {name: text for name, text in half.items() if int(name) % 2}
    pack = DenseXRetrievalPack(
        documents(half), persist_dir=tmp_path / "i", embed_model=ShortEmbedding(), **MODELS
    )
    pack.delete([name for name in half if name not in rest])
    compaction = compact_index(tmp_path / "i")
    assert compaction.bytes_after < compaction.bytes_before
    DenseXRetrievalPack(
        documents(rest), persist_dir=tmp_path / "j", embed_model=ShortEmbedding(), **MODELS
    )
    assert compaction.bytes_after <= 1.2 * size_of(tmp_path / "j")
    assert check_index(tmp_path / "i").faults == ()
    assert len(load(tmp_path / "i").documents()) == len(rest)


@pytest.mark.parametrize("change", ["compact", "insert", "tokenizer"])
def test_a_pack_that_has_not_read_for_long_keeps_what_others_wrote_into_its_store(
    tmp_path: Path, change: str
) -> None:
    arguments: dict[str, Any] = {"embed_model": "none", **MODELS}
    DenseXRetrievalPack(
        documents({"a": "Foxes run in the snow."}),
        vector_store=EmbeddedVectorStore(tmp_path),
        **arguments,
    )

    def opened(**further: Any) -> DenseXRetrievalPack:
        return DenseXRetrievalPack.from_vector_store(
            EmbeddedVectorStore(tmp_path), **arguments, **further
        )

    others = {"tokenizer": str.split} if change == "tokenizer" else {}
    idle = opened(**others)
    opened().insert(documents({"b": "熊は冬に眠る。"}))
    opened().delete("a", purge=True)
    if change == "compact":
        idle.compact()
    else:
        idle.insert(documents({"c": "Owls see at night."}))
    assert set(opened(**others).documents()) == ({"b"} if change == "compact" else {"b", "c"})


def test_a_purge_that_fails_leaves_the_document_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"a": "Foxes run in the snow.", "b": "熊は冬に眠る。"}
    pack = DenseXRetrievalPack(
        documents(texts), persist_dir=tmp_path / "i", embed_model="none", **MODELS
    )

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("llama_pack_densex.index.database.Database.vacuum", full)
        with pytest.raises(OSError, match="no space left"):
            pack.delete("a", purge=True)
    for _ in range(2):
        assert set(pack.documents()) == {"a", "b"}
        assert sources(pack.retrieve("Do foxes run?"))[0] == "a"
        pack.insert(documents({"b": "熊は冬に眠る。春に起きる。"}))


def test_what_is_done_with_an_index_whose_table_is_gone_names_the_index(tmp_path: Path) -> None:
    pack = DenseXRetrievalPack(
        documents({"a": "Foxes."}), persist_dir=tmp_path / "i", embed_model="none", **MODELS
    )
    for table in (tmp_path / "i").glob("data-*/nodes.db"):
        table.unlink()
    for work in (lambda: pack.insert(documents({"b": "Bears."})), lambda: pack.delete("a")):
        with pytest.raises(InvalidIndexError, match="damaged or missing"):
            work()


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("content", ["{'no': json}", "{}", b"no zlib"])
def test_a_node_that_is_not_readable_is_called_damage(index: Path, content: str | bytes) -> None:
    def damage(store: EmbeddedVectorStore) -> None:
        database = store.nodes.database
        database.writing().execute("UPDATE contents SET node = ?", [content])
        database.commit()

    rows(index, damage)
    pack = load(index)
    for use in (lambda: check_index(index), pack.nodes, lambda: pack.retrieve("chess")):
        with pytest.raises(InvalidIndexError, match="is damaged or missing"):
            use()


def decompress_nodes(store: EmbeddedVectorStore) -> None:
    """Turn the nodes into those of a version that did not compress them."""
    database = store.nodes.database
    database.writing().execute("UPDATE contents SET node = decompress(node)")
    database.commit()


def test_an_index_of_a_version_that_did_not_compress_nodes_is_used_as_it_is(index: Path) -> None:
    before = {node.node_id: node for node in load(index).nodes()}
    rows(index, decompress_nodes)
    pack = load(index)
    assert {node.node_id: node for node in pack.nodes()} == before
    pack.insert(documents({"new": "Lamps hang in the hall."}))
    assert pack.retrieve("Where do lamps hang?")[0].node.ref_doc_id == "new"
    assert check_index(index).faults == ()


def test_compacting_compresses_the_nodes_of_earlier_versions(index: Path) -> None:
    before = {node.node_id: node for node in load(index).nodes()}
    rows(index, decompress_nodes)
    as_text = size_of(index)
    pack = load(index)
    pack.compact()
    assert size_of(index) < as_text
    assert {node.node_id: node for node in pack.nodes()} == before
    assert {node.node_id: node for node in load(index).nodes()} == before
    assert not any(holds(index, name) for name in ("excluded_llm_metadata_keys", "RelatedNodeInfo"))


def test_after_purging_and_compacting_no_file_has_the_text(index: Path) -> None:
    secrets = ("Zyxomma petiolatum", "秘密の合言葉")
    pack = load(index)
    pack.insert(documents({"secret": f"{secrets[0]} is the password. {secrets[1]}は山川である。"}))
    assert any(holds(index, secret) for secret in secrets)
    pack.delete("secret", purge=True)
    pack.compact()
    for secret in secrets:
        assert not holds(index, secret)


def holds(folder: Path, text: str) -> bool:
    return text.encode() in bytes_in(folder)


def test_a_reader_goes_on_after_another_process_compacted_the_index(index: Path) -> None:
    reader, writer = load(index), load(index)
    writer.delete("将棋")
    writer.compact()
    question = "新幹線が開業したのは何年ですか。"
    assert sources(reader.retrieve(question))[0] == "新幹線"
    reader.retrieve("将棋の駒は何枚ありますか。")
    assert "将棋" not in sources(reader.retrieve("将棋の駒は何枚ありますか。", similarity_top_k=20))
    assert sources(reader.retrieve(question))[0] == "新幹線"


def test_ten_refreshes_of_an_unchanged_corpus_rewrite_nothing(index: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = (
            file
            for file in index.rglob("*")
            if file.is_file() and file.name != "ingestion_report.json"
        )
        return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in files}

    before = state()
    for _ in range(10):
        pack = load(index)
        assert not any(pack.refresh(documents(ENGLISH, JAPANESE)))
    assert {
        name: what for name, what in state().items() if "writer" not in name and ".db" not in name
    } == {name: what for name, what in before.items() if "writer" not in name and ".db" not in name}


def test_a_reader_goes_on_in_all_its_methods_after_another_process_compacted_the_index(
    index: Path,
) -> None:
    asked: list[Any] = [
        lambda pack: pack.counts().documents,
        lambda pack: set(pack.documents()),
        lambda pack: {node.ref_doc_id for node in pack.nodes()},
        lambda pack: set(sources(pack.retrieve("灯台", similarity_top_k=20, filters=SHELF))),
        lambda pack: sorted(record.id for record in pack.records("passage")),
        lambda pack: (pack.persist(index.parent / uuid.uuid4().hex), pack.counts().documents)[1],
    ]
    expected = [ask(load(index)) for ask in asked]
    readers = [load(index) for _ in asked]
    assert [ask(reader) for ask, reader in zip(asked, readers, strict=True)] == expected


OUT_OF_DESCRIPTORS = """
import resource, sys
from llama_pack_densex import DenseXRetrievalPack
from tests.test_checking import load
pack = load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for ask in (lambda: load(sys.argv[1]), lambda: pack.compact()):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, "damaged" in str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit on Windows")
@pytest.mark.slow_cases("*", but=["recursive"])
def test_a_system_that_cannot_open_a_file_is_not_called_damage(index: Path) -> None:
    code, output, errors = run_program(OUT_OF_DESCRIPTORS, index)
    assert code == 0, errors
    assert len(output.splitlines()) == 2
    for line in output.splitlines():
        name, is_called_damage = line.split()
        assert name != "InvalidIndexError"
        assert is_called_damage == "False"


@pytest.mark.parametrize(
    "granularity", [("passage",), ("sentence",), ("passage", "sentence"), ("question",)]
)
def test_an_index_without_propositions_is_whole(granularity: Any, tmp_path: Path) -> None:
    DenseXRetrievalPack(documents(ENGLISH), persist_dir=tmp_path, granularity=granularity, **MODELS)
    report = check_index(tmp_path, repair=True)
    assert (report.faults, report.removed) == ((), ())
    assert set(DenseXRetrievalPack.load(tmp_path, **MODELS).documents()) == set(ENGLISH)


@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
def test_documents_that_were_given_in_pieces_are_whole(mode: Any, tmp_path: Path) -> None:
    pieces = SentenceWindowNodeParser().get_nodes_from_documents(documents(ENGLISH))
    DenseXRetrievalPack(
        pieces, persist_dir=tmp_path / "index", embed_model=ShortEmbedding(), mode=mode, **MODELS
    )
    assert check_index(tmp_path / "index", repair=True).faults == ()
    assert load(tmp_path / "index").counts().passages == len(pieces)


def test_an_index_that_is_not_searched_by_words_any_more_is_whole(index: Path) -> None:
    pack = DenseXRetrievalPack.load(index, embed_model=ShortEmbedding(), hybrid=False, **MODELS)
    pack.insert(documents({"kite": "A kite flies on a string."}))
    assert check_index(index).faults == ()
    load_hybrid = DenseXRetrievalPack.load(
        index, embed_model=ShortEmbedding(), hybrid=True, **MODELS
    )
    assert sources(load_hybrid.retrieve("kite", similarity_top_k=1)) == ["kite"]


def test_what_is_read_without_a_pack_follows_where_another_compacts(index: Path) -> None:
    nodes = IndexPlace.of(index).nodes()
    before = nodes.documents()
    load(index).delete("miso", purge=True)
    assert {record.document_id for record in nodes.records()} == before.keys() - {"miso"}
