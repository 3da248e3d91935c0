from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, Settings
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, RecordedPropositionizer, SentencePropositionizer
from llama_pack_densex.index.adapters import docstore
from llama_pack_densex.index.manifest import InvalidIndexError, Manifest
from llama_pack_densex.retrieval.hits import matched_units
from tests.another_process import run_program
from tests.conftest import ROOT
from tests.embedding import TrigramEmbedding
from tests.index_folders import copy_index, files_in
from tests.node_parsers.test_ids import Shouting
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.together("forks")

MODES = ["recursive", "auto_merging"]
QUERIES = ["When did the Akashi Bridge open?", "新幹線が開業したのは何年ですか。", "Bay of Fundy"]


def answers(pack: DenseXRetrievalPack) -> list[object]:
    return [
        (
            str(pack.run(query)),
            [(hit.node.node_id, hit.score, hit.node.metadata) for hit in pack.retrieve(query)],
        )
        for query in QUERIES
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["lexical", "dense"])
def test_a_persisted_pack_answers_the_same_and_embeds_no_document(
    documents: list[Document], mode: str, kind: str, tmp_path: Path
) -> None:
    pack = DenseXRetrievalPack(
        documents, embed_model=TrigramEmbedding() if kind == "dense" else None, mode=mode
    )
    pack.persist(tmp_path / "index")
    model = TrigramEmbedding()
    loaded = DenseXRetrievalPack.load(
        tmp_path / "index", embed_model=model if kind == "dense" else None
    )
    assert answers(loaded) == answers(pack)
    assert model.embedded == 0
    assert loaded.counts() == pack.counts()


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
def test_where_propositions_are_from_is_kept(
    store: type[SimpleVectorStore] | None, tmp_path: Path
) -> None:
    text = "The Akashi Bridge opened in 1998. It crosses a busy strait. Nobody swims there."
    propositions = [
        "The Akashi Bridge crosses a busy strait.",
        "The Akashi Bridge was painted green by Taro Ito.",
    ]
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"text": text, "propositions": propositions}), encoding="utf-8")
    pack = DenseXRetrievalPack(
        [Document(id_="bridges", text=text)],
        propositionizer=RecordedPropositionizer(recorded),
        embed_model=TrigramEmbedding(),
        vector_store=store and store(),
    )
    pack.persist(tmp_path / "index")
    for opened in (
        pack,
        DenseXRetrievalPack.load(tmp_path / "index", embed_model=TrigramEmbedding()),
    ):
        (found,) = opened.retrieve(
            "Which bridge crosses a busy strait and was painted green by Taro Ito?"
        )
        units = {unit.text: unit for unit in matched_units(found.node)}
        crosses, painted = (units[proposition] for proposition in propositions)
        assert crosses.span is not None
        assert (text[slice(*crosses.span)], crosses.unverified) == (
            "It crosses a busy strait.",
            False,
        )
        assert (painted.span, painted.unverified) == ((0, len(text)), True)
        answer = str(opened.run("Who painted the Akashi Bridge green?"))
        assert "The Akashi Bridge was painted green by Taro Ito. (unverified)[^1]" in answer
        assert "The Akashi Bridge crosses a busy strait.[^1]" in answer


def test_another_process_answers_the_same(documents: list[Document], tmp_path: Path) -> None:
    pack = DenseXRetrievalPack(documents, persist_dir=tmp_path / "索引")
    program = (
        "import sys\nfrom llama_pack_densex import DenseXRetrievalPack\n"
        "pack = DenseXRetrievalPack.load(sys.argv[1])\n"
        "for query in sys.argv[2:]: print(pack.run(query))"
    )
    code, output, errors = run_program(program, tmp_path / "索引", *QUERIES)
    assert code == 0, errors
    assert output.splitlines() == "\n".join(str(pack.run(query)) for query in QUERIES).splitlines()


def test_an_index_made_by_an_llm_is_loaded_without_one_call(
    documents: list[Document], tmp_path: Path
) -> None:
    with OpenAIServer(
        lambda body: Reply('["A fact about 新幹線 and the bridge, with kana だ。"]')
    ) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        DenseXRetrievalPack(
            documents[:2],
            proposition_llm=llm,
            query_llm="none",
            embed_model="none",
            persist_dir=tmp_path / "index",
        )
        asked = len(server.requests)
        loaded = DenseXRetrievalPack.load(tmp_path / "index", proposition_llm=llm, query_llm="none")
        loaded.run("bridge")
        assert loaded.refresh(documents[:2]) == [False, False]
        assert len(server.requests) == asked


def test_changes_to_a_pack_with_a_folder_are_there_in_the_next_process(
    documents: list[Document], tmp_path: Path
) -> None:
    pack = DenseXRetrievalPack(documents[:1], persist_dir=tmp_path / "index")
    pack.insert(documents[1:])
    pack.delete("tides")
    loaded = DenseXRetrievalPack.load(tmp_path / "index")
    assert {node.ref_doc_id for node in loaded.nodes()} == {"bridges", "鉄道"}
    assert answers(loaded) == answers(pack)


def test_a_pack_over_an_existing_folder_indexes_only_what_changed(
    documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents, embed_model=TrigramEmbedding(), persist_dir=tmp_path / "index")
    model = TrigramEmbedding()
    again = DenseXRetrievalPack(documents, embed_model=model, persist_dir=tmp_path / "index")
    assert model.embedded == 0
    assert again.counts().documents == 3


def test_persisting_again_replaces_the_folders_index(
    documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents).persist(tmp_path / "index")
    DenseXRetrievalPack(documents[1:2]).persist(tmp_path / "index")
    assert {n.ref_doc_id for n in DenseXRetrievalPack.load(tmp_path / "index").nodes()} == {
        "bridges"
    }
    assert len([entry for entry in (tmp_path / "index").iterdir() if entry.is_dir()]) == 1


def test_a_vector_store_of_the_users_own_is_persisted_with_its_texts(
    documents: list[Document], tmp_path: Path
) -> None:
    store = SimpleVectorStore()
    pack = DenseXRetrievalPack(documents, embed_model=TrigramEmbedding(), vector_store=store)
    pack.persist(tmp_path / "index")
    for given in ({"vector_store": store}, {}):  # one that is in memory is kept in the folder
        loaded = DenseXRetrievalPack.load(
            tmp_path / "index", embed_model=TrigramEmbedding(), **given
        )
        assert answers(loaded) == answers(pack)


def test_an_index_is_in_its_folder_alone_whatever_that_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "家" / "索引 #1 50%"
    pack = DenseXRetrievalPack([Document(id_="rain", text="Rain fell.")], persist_dir=folder)
    pack.insert(Document(id_="snow", text="Snow fell."))
    pack.delete("rain", purge=True)
    assert [path.name for path in tmp_path.iterdir()] == ["家"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert set(DenseXRetrievalPack.load(folder).documents()) == {"snow"}


def test_a_program_may_go_elsewhere_while_it_has_an_index_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    pack = DenseXRetrievalPack([Document(id_="rain", text="Rain fell.")], persist_dir="index")
    monkeypatch.chdir(elsewhere)
    pack.insert(Document(id_="snow", text="Snow fell."))
    assert [hit.node.ref_doc_id for hit in pack.retrieve("snow")] == ["snow"]
    assert not list(elsewhere.iterdir())
    assert set(DenseXRetrievalPack.load(tmp_path / "index").documents()) == {"rain", "snow"}


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    pack = DenseXRetrievalPack(
        [Document(text="A red lamp.")], embed_model="none", query_llm="none", persist_dir="~/i"
    )
    pack.persist("~/copy")
    assert {entry.name for entry in tmp_path.iterdir()} == {"i", "copy"}
    for folder in ("~/i", "~/copy"):
        assert "red lamp" in str(DenseXRetrievalPack.load(folder, query_llm="none").run("lamp"))


def test_what_llama_indexs_own_index_changes_is_kept(tmp_path: Path) -> None:
    model = TrigramEmbedding()
    pack = DenseXRetrievalPack(
        [Document(id_="rain", text="Rain fell.")], persist_dir=tmp_path, embed_model=model
    )
    assert pack.vector_index is not None
    pack.vector_index.insert(Document(id_="snow", text="Snow fell."))
    assert set(DenseXRetrievalPack.load(tmp_path, embed_model=model).documents()) == {
        "rain",
        "snow",
    }
    pack.vector_index.delete_ref_doc("rain")
    assert set(DenseXRetrievalPack.load(tmp_path, embed_model=model).documents()) == {"snow"}
    pack.insert(Document(id_="hail", text="Hail fell."))
    assert set(pack.documents()) == {"snow", "hail"}


@pytest.mark.parametrize("other", ["writes", "compacts"])
def test_llama_indexs_own_index_goes_on_beside_another_writer(other: str, tmp_path: Path) -> None:
    model = TrigramEmbedding()
    pack = DenseXRetrievalPack(
        [Document(id_="rain", text="Rain fell.")], persist_dir=tmp_path, embed_model=model
    )
    assert pack.vector_index is not None
    retriever = pack.vector_index.as_retriever()
    writer = DenseXRetrievalPack.load(tmp_path, embed_model=model)
    writer.compact() if other == "compacts" else writer.insert(
        Document(id_="hail", text="Hail fell.")
    )
    assert "rain" in {hit.node.ref_doc_id for hit in retriever.retrieve("Rain fell.")}
    pack.vector_index.insert(Document(id_="snow", text="Snow fell."))
    writer.insert(Document(id_="fog", text="Fog rose."))
    assert {*pack.documents(), "hail", "fog"} == {"rain", "snow", "hail", "fog"}
    assert {"rain", "snow", "fog"} <= set(
        DenseXRetrievalPack.load(tmp_path, embed_model=model).documents()
    )


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("model", ["none", TrigramEmbedding()])
def test_an_index_whose_files_another_process_replaces_is_not_called_damaged(
    model: Any, asked_before: bool, tmp_path: Path
) -> None:
    options: Any = {
        "embed_model": model,
        "query_llm": "none",
        "dense_weight": 0.5 if model != "none" else None,
    }
    rain = Document(id_="rain", text="Rain fell. It fell all night.")
    writer = DenseXRetrievalPack([rain], persist_dir=tmp_path, **options)
    reader = DenseXRetrievalPack.load(tmp_path, **options)
    if asked_before:
        assert reader.retrieve("Where did rain fall?")[0].node.ref_doc_id == "rain"
    earlier = [*tmp_path.glob("data-*/*")]
    writer.insert(Document(id_="hail", text="Hail fell on the hill."))
    writer.compact()
    assert earlier
    assert not any(file.exists() for file in earlier)
    assert {hit.node.ref_doc_id for hit in reader.retrieve("Where did hail fall? Rain?")} == {
        "rain",
        "hail",
    }
    assert set(reader.documents()) == {"rain", "hail"}
    assert reader.counts().passages == 2


def test_files_that_go_while_an_index_is_opened_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: Any = {"embed_model": TrigramEmbedding(), "query_llm": "none"}
    given = {"persist_dir": tmp_path, "vector_store": SimpleVectorStore(), **models}
    writer = DenseXRetrievalPack(
        [Document(id_="rain", text="Rain fell. It fell all night.")], **given
    )
    read_part = docstore.read_part

    def read_late(*args: Any) -> Any:
        if not writer.documents().keys() & {"hail"}:
            writer.insert(Document(id_="hail", text="Hail fell on the hill."))
            writer.compact()
        return read_part(*args)

    monkeypatch.setattr(docstore, "read_part", read_late)
    reader = DenseXRetrievalPack.load(tmp_path, vector_store=SimpleVectorStore(), **models)
    assert {hit.node.ref_doc_id for hit in reader.retrieve("Where did hail fall? Rain?")} == {
        "rain",
        "hail",
    }


def test_a_copy_that_was_made_while_the_index_was_written_to_is_called_so(tmp_path: Path) -> None:
    pack = DenseXRetrievalPack(
        [Document(text="Green tea is steamed.")], persist_dir=tmp_path / "index"
    )
    copy_index(tmp_path / "index", tmp_path / "copy")
    pack.insert([Document(text="Black tea is oxidised.")])
    shutil.copy(tmp_path / "index" / "densex.json", tmp_path / "copy")
    with pytest.raises(InvalidIndexError, match="copied while being written to"):
        DenseXRetrievalPack.load(tmp_path / "copy")


def test_what_is_damaged_is_called_so(tmp_path: Path) -> None:
    DenseXRetrievalPack(
        [Document(text="Rain fell.")], persist_dir=tmp_path, embed_model="none", query_llm="none"
    )
    reader = DenseXRetrievalPack.load(tmp_path, query_llm="none")
    for folder in tmp_path.glob("data-*"):
        shutil.rmtree(folder)
    with pytest.raises(InvalidIndexError, match="is damaged or missing"):
        reader.retrieve("Where did rain fall?")
    with pytest.raises(InvalidIndexError, match="is damaged or missing"):
        reader.delete("rain")


def test_nothing_is_written_to_an_index_in_whose_place_a_backup_was_put(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    pack = DenseXRetrievalPack(
        [Document(id_="rain", text="Rain fell.")],
        persist_dir=folder,
        embed_model="none",
        query_llm="none",
    )
    copy_index(folder, tmp_path / "backup")
    (data,) = folder.glob("data-*")
    for file in data.iterdir():
        file.unlink()
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    with pytest.raises(InvalidIndexError, match="was replaced by another file since it was opened"):
        pack.insert(Document(id_="hail", text="Hail fell."))
    again = DenseXRetrievalPack.load(folder, query_llm="none")
    again.insert(Document(id_="hail", text="Hail fell."))
    assert set(again.documents()) == {"rain", "hail"}


def test_a_copy_that_is_put_in_the_place_of_an_index_is_searched_and_written_to(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "index"
    models: Any = {"embed_model": TrigramEmbedding(), "query_llm": "none"}
    writer = DenseXRetrievalPack(
        [Document(id_="rain", text="Rain fell.")], persist_dir=folder, **models
    )
    readers = [DenseXRetrievalPack.load(folder, **models) for _ in range(2)]
    copy_index(folder, tmp_path / "copy")
    newer = DenseXRetrievalPack.load(tmp_path / "copy", **models)
    newer.insert(Document(id_="hail", text="Hail fell."))
    newer = None
    folder.rename(tmp_path / "old")
    (tmp_path / "copy").rename(folder)
    hits = readers[0].retrieve("Where did hail fall?", similarity_top_k=1)
    assert [hit.node.ref_doc_id for hit in hits] == ["hail"]
    writer.insert(Document(id_="snow", text="Snow fell."))
    assert set(readers[0].documents()) == set(readers[1].documents()) == {"rain", "hail", "snow"}


def test_persist_without_a_folder_says_so(documents: list[Document]) -> None:
    with pytest.raises(ValueError, match="pass a folder"):
        DenseXRetrievalPack(documents).persist()


def test_an_index_that_cannot_be_written_to_is_searched_and_says_so(
    documents: list[Document], tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    DenseXRetrievalPack(documents, persist_dir=folder)
    (folder / "writer.lock").unlink(missing_ok=True)
    (folder / "writer.lock").mkdir()  # in place of rights, which the superuser always has
    pack = DenseXRetrievalPack.load(folder)
    assert pack.retrieve(documents[0].text)
    with pytest.raises(OSError, match="can be searched there, but not made or changed") as raised:
        pack.insert([Document(text="The harbour was opened in 1859.")])
    assert raised.value.filename == str(folder)


def test_a_folder_with_other_files_is_not_taken(documents: list[Document], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious", encoding="utf-8")
    for use in (lambda: DenseXRetrievalPack(documents, persist_dir=tmp_path),
                lambda: DenseXRetrievalPack(documents).persist(tmp_path)):  # fmt: skip
        with pytest.raises(InvalidIndexError, match="holds other files"):
            use()
    with pytest.raises(InvalidIndexError, match="is a file"):
        DenseXRetrievalPack(documents).persist(tmp_path / "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("what", ["nothing", "empty folder", "file"])
def test_what_is_no_index_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "index"
    if what == "empty folder":
        path.mkdir()
    elif what == "file":
        path.write_text("x", encoding="utf-8")
    with pytest.raises(InvalidIndexError, match=r"is not an index|is a file"):
        DenseXRetrievalPack.load(path)


def test_what_is_no_index_is_refused_with_a_command_that_a_shell_takes(tmp_path: Path) -> None:
    path = tmp_path / "my index"
    with pytest.raises(InvalidIndexError) as refused:
        DenseXRetrievalPack.load(path)
    assert shlex.split(str(refused.value).split("`")[1]) == [
        "densex",
        "index",
        "PATH",
        "--to",
        str(path),
    ]


def test_another_embedding_model_is_refused_with_both_names(
    documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents, embed_model=TrigramEmbedding(), persist_dir=tmp_path / "index")
    other = TrigramEmbedding(model_name="other-trigrams")
    for use in (
        lambda: DenseXRetrievalPack.load(tmp_path / "index", embed_model=other),
        lambda: DenseXRetrievalPack(documents, embed_model=other, persist_dir=tmp_path / "index"),
    ):
        with pytest.raises(
            InvalidIndexError,
            match="'TrigramEmbedding: trigrams', not 'TrigramEmbedding: other-tri",
        ):
            use()
    Settings.embed_model = other
    with pytest.raises(InvalidIndexError, match="other-trigrams"):
        DenseXRetrievalPack.load(tmp_path / "index")


def test_an_index_without_embeddings_stays_lexical_whatever_settings_say(
    documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents, persist_dir=tmp_path / "index")
    Settings.embed_model = TrigramEmbedding()
    assert DenseXRetrievalPack.load(tmp_path / "index").vector_index is None
    with pytest.raises(InvalidIndexError, match="'none', not 'TrigramEmbedding: trigrams'"):
        DenseXRetrievalPack.load(tmp_path / "index", embed_model=TrigramEmbedding())


def test_a_newer_layout_is_refused(documents: list[Document], tmp_path: Path) -> None:
    DenseXRetrievalPack(documents, persist_dir=tmp_path / "index")
    file = tmp_path / "index" / "densex.json"
    file.write_text(
        json.dumps({**json.loads(file.read_text("utf-8")), "schema": 99}), encoding="utf-8"
    )
    with pytest.raises(InvalidIndexError, match=r"another version .*layout 99.*upgrade"):
        DenseXRetrievalPack.load(tmp_path / "index")


def test_an_index_of_an_earlier_version_with_this_layout_opens(
    documents: list[Document], tmp_path: Path
) -> None:
    """A field that was added to `Manifest` since then has a default; the file stays as it is."""
    DenseXRetrievalPack(documents, persist_dir=tmp_path / "index", embed_model="none")
    file = tmp_path / "index" / "densex.json"
    current = json.loads(file.read_text(encoding="utf-8"))
    kept = json.loads((ROOT / "tests" / "stores" / "densex-6.json").read_text(encoding="utf-8"))
    of_this_index = {name: current[name] for name in ("data", "version", "propositionizer")}
    file.write_text(json.dumps(kept | of_this_index), encoding="utf-8")
    pack = DenseXRetrievalPack.load(tmp_path / "index")
    assert pack.counts().documents == len(documents)
    assert Manifest.read(tmp_path / "index").similarity_top_k == 3


@pytest.mark.parametrize("names", [["hybrid"], ["llm_metadata"], ["embed_spec", "languages"]])
def test_an_index_that_lacks_what_is_needed_is_called_an_earlier_versions(
    names: list[str], documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents, persist_dir=tmp_path / "index")
    file = tmp_path / "index" / "densex.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for name in names:
        del content[name]
    file.write_text(json.dumps(content), encoding="utf-8")
    lacking = ", ".join(names)
    with pytest.raises(
        InvalidIndexError, match=rf"an earlier version .* say {lacking}; rebuild the index"
    ):
        DenseXRetrievalPack.load(tmp_path / "index")


def test_a_default_propositionizer_does_not_replace_anothers_propositions(
    documents: list[Document], tmp_path: Path
) -> None:
    DenseXRetrievalPack(documents, propositionizer=Shouting(), persist_dir=tmp_path / "index")
    loaded = DenseXRetrievalPack.load(tmp_path / "index")
    assert "1998" in str(loaded.run("Akashi Bridge"))
    for change in (lambda: loaded.refresh(documents), lambda: loaded.insert(documents[0])):
        with pytest.raises(ValueError, match="made by another propositionizer"):
            change()
    with pytest.raises(ValueError, match="made by another propositionizer"):
        DenseXRetrievalPack(documents, persist_dir=tmp_path / "index")
    again = DenseXRetrievalPack.load(tmp_path / "index", propositionizer=Shouting())
    assert again.refresh(documents) == [False, False, False]
    asked_for = DenseXRetrievalPack.load(
        tmp_path / "index", propositionizer=SentencePropositionizer()
    )
    assert asked_for.refresh(documents) == [True, True, True]


def corruptible(folder: Path) -> list[Path]:
    return [path for path in files_in(folder) if path.stat().st_size]


@pytest.mark.parametrize("damage", ["garbage", "truncated", "missing"])
@pytest.mark.slow_cases("*", but=["truncated"])
def test_a_damaged_file_gives_an_error_that_names_the_index(
    documents: list[Document], damage: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    # held, so that SQLite's log is there to be damaged too
    pack = DenseXRetrievalPack(documents, embed_model=TrigramEmbedding(), persist_dir=index)
    whole = answers(pack)
    good = copy_index(index, tmp_path / "good")
    for number, file in enumerate(corruptible(good)):
        bad = tmp_path / f"bad{number}"
        shutil.copytree(good, bad)
        target = bad / file.relative_to(good)
        content = target.read_bytes()
        if damage == "missing":
            target.unlink()
        else:
            target.write_bytes(
                b"\xff\x00garbage" * 20 if damage == "garbage" else content[: len(content) // 2]
            )
        # a file that no reading needs (a transaction's log) may be damaged without harm
        try:
            found = answers(DenseXRetrievalPack.load(bad, embed_model=TrigramEmbedding()))
        except InvalidIndexError as error:
            found = str(error)
        assert found == whole or str(bad) in str(found)


BUILDER = """
import sys, time
from pathlib import Path
from llama_index.core import Document
from llama_pack_densex import DenseXRetrievalPack
version, folder = sys.argv[1:]
text = "Version {} of document {}. It is about a lamp. "
documents = [Document(id_=f"d{i}", text=text.format(version, i) * 20) for i in range(150)]
pack = DenseXRetrievalPack(documents)
print("ready", flush=True)
while True:
    pack.persist(folder)
"""


@pytest.mark.slow
def test_a_persist_that_is_killed_leaves_the_old_index_or_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    DenseXRetrievalPack(
        [Document(id_="d0", text="Version 0 of document 0. It is about lamp 0.")]
    ).persist(folder)
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(attempt + 1), str(folder)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.03 + 0.05 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        pack = DenseXRetrievalPack.load(folder)
        versions = {node.get_content().split()[1] for node in pack.nodes("passage")}
        assert len(versions) == 1
        assert "lamp" in str(pack.run("lamp"))
        pack.persist()
        assert len([entry for entry in folder.iterdir() if entry.is_dir()]) == 1


def test_a_folder_with_replies_alone_says_that_a_run_stopped(tmp_path: Path) -> None:
    (tmp_path / "replies.db").write_bytes(b"")
    with pytest.raises(InvalidIndexError, match="a run stopped before any document was complete"):
        DenseXRetrievalPack.load(tmp_path)
