from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import llama_index.core
import pytest

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.manifest import InvalidIndexError, Manifest
from llama_pack_densex.index.upkeep import check_index
from tests.searching import (
    ENGLISH,
    JAPANESE,
    MORE_JAPANESE,
    QUESTIONS,
    EnglishEmbedding,
    ShortEmbedding,
    documents,
    identity,
    sources,
)

KINDS = ["lexical", "hybrid"]
SNOW = documents({"雪": "雪は冬に降る。北海道では深く積もる。"})


class Splitter:
    """A tokenizer of a user's own: letters in pairs. It counts the texts that it splits."""

    def __init__(self) -> None:
        self.texts = 0

    def __call__(self, text: str) -> list[str]:
        self.texts += 1
        return [text[i : i + 2] for i in range(len(text) - 1)]


def model(kind: str) -> Any:
    return "none" if kind == "lexical" else ShortEmbedding()


def build(kind: str, folder: Path, **options: Any) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(
        documents(ENGLISH, JAPANESE),
        query_llm="none",
        embed_model=model(kind),
        persist_dir=folder,
        **options,
    )


def load(kind: str, folder: Path, **options: Any) -> DenseXRetrievalPack:
    return DenseXRetrievalPack.load(folder, query_llm="none", embed_model=model(kind), **options)


def words_of(folder: Path) -> str:
    """What an index says of its words; empty where it has none."""
    manifest = Manifest.read(folder)
    return EmbeddedVectorStore(folder / manifest.data).nodes.tokenizer_note


def answers(pack: DenseXRetrievalPack) -> list[Any]:
    return [identity(pack, question) for question in (*QUESTIONS, "lamp 湖")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
def test_a_loaded_pack_finds_the_same(kind: str, mode: str, tmp_path: Path) -> None:
    pack = build(kind, tmp_path / "index", mode=mode)
    assert answers(load(kind, tmp_path / "index")) == answers(pack)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_pack_splits_few_texts_again(kind: str, tmp_path: Path) -> None:
    splitter = Splitter()
    corpus = documents({f"{n}": f"Lamp {n} is red. 灯{n}は赤い。" for n in range(300)})
    options: dict[str, Any] = {"embed_model": model(kind), "query_llm": "none"}
    DenseXRetrievalPack(corpus, tokenizer=splitter, persist_dir=tmp_path / "index", **options)
    assert splitter.texts > 600
    splitter.texts = 0
    loaded = load(kind, tmp_path / "index", tokenizer=splitter)
    assert sources(loaded.retrieve("灯17は赤い"))[0] == "17"
    assert splitter.texts < 50  # a sample shows whether it is the same tokenizer
    splitter.texts = 0
    loaded.insert(SNOW)
    assert "雪" in sources(loaded.retrieve("雪は冬に降る"))
    assert splitter.texts < 10


@pytest.mark.slow
def test_another_process_splits_few_texts_again(tmp_path: Path) -> None:
    corpus = documents({f"{n}": f"Lamp {n} is red. 灯{n}は赤い。" for n in range(300)})
    DenseXRetrievalPack(
        corpus,
        query_llm="none",
        embed_model="none",
        tokenizer=Splitter(),
        persist_dir=tmp_path / "index",
    )
    program = (
        "import sys\nfrom tests.test_pack_persistence_search import Splitter\n"
        "from llama_pack_densex import DenseXRetrievalPack\nsplitter = Splitter()\n"
        "pack = DenseXRetrievalPack.load(sys.argv[1], query_llm='none', embed_model='none', "
        "tokenizer=splitter)\nprint(pack.retrieve('灯17')[0].node.ref_doc_id, splitter.texts < 50)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "index")],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.stdout.split() == ["17", "True"]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_found_by_their_words_in_the_next_process(kind: str, tmp_path: Path) -> None:
    build(kind, tmp_path / "index")
    loaded = load(kind, tmp_path / "index")
    loaded.insert(SNOW)
    loaded.delete("将棋")
    changed = documents({"bridge": "The Akashi Bridge is painted grey."}, kind="new")
    assert loaded.refresh(changed) == [True]
    again = load(kind, tmp_path / "index")
    for pack in (loaded, again):
        assert sources(pack.retrieve("北海道の雪"))[0] == "雪"
        assert sources(pack.retrieve("What is painted grey?"))[0] == "bridge"
        assert "将棋" not in sources(
            pack.retrieve("将棋の駒は何枚ありますか。", similarity_top_k=50)
        )
        assert not any(
            "1998" in hit.node.get_content() for hit in pack.retrieve("1998", similarity_top_k=50)
        )
    assert answers(again) == answers(loaded)


def test_a_deleted_documents_words_are_forgotten_on_disk(tmp_path: Path) -> None:
    pack = build("lexical", tmp_path / "index")
    pack.insert(documents({"secret": "Zyxomma is the password."}))
    pack.delete("secret")
    pack.compact()
    files = (file for file in (tmp_path / "index").rglob("*") if file.is_file())
    assert not [file for file in files if b"zyxomma" in file.read_bytes().lower()]


def damage_words(folder: Path, statement: str) -> None:
    """Damage the tables of words, as no writer of ours leaves them."""
    (file,) = folder.glob("data-*/nodes.db")
    with closing(sqlite3.connect(file)) as database:
        database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM words",
        "DELETE FROM words WHERE row = (SELECT max(row) FROM words)",
        "DELETE FROM postings WHERE token = (SELECT max(token) FROM postings)",
        "UPDATE postings SET entries = x''",
        "DELETE FROM totals",
        "UPDATE totals SET tokens = tokens + 1",
    ],
)
def test_damaged_words_are_found_and_mended(damage: str, tmp_path: Path) -> None:
    expected = answers(build("lexical", tmp_path / "index"))
    damage_words(tmp_path / "index", damage)
    assert {fault.kind for fault in check_index(tmp_path / "index").faults} == {"words"}
    assert check_index(tmp_path / "index", repair=True).sound
    assert answers(load("lexical", tmp_path / "index")) == expected


def test_a_function_must_be_passed_again(tmp_path: Path) -> None:
    splitter = Splitter()
    pack = build("lexical", tmp_path / "index", tokenizer=splitter)
    with pytest.raises(
        ValueError,
        match=r"Splitter, .*: pass that function as tokenizer=, or tokenizer=\"bigrams\"",
    ):
        load("lexical", tmp_path / "index")
    assert answers(load("lexical", tmp_path / "index", tokenizer=splitter)) == answers(pack)
    anew = load("lexical", tmp_path / "index", tokenizer="bigrams")
    assert sources(anew.retrieve("将棋の駒"))[0] == "将棋"
    anew.persist()
    assert sources(load("lexical", tmp_path / "index").retrieve("将棋の駒"))[0] == "将棋"


def test_an_index_of_an_earlier_version_by_sudachi_says_what_to_do(tmp_path: Path) -> None:
    splitter = Splitter()
    splitter.__qualname__, splitter.__module__ = "sudachi", ""
    build("lexical", tmp_path / "index", tokenizer=splitter)
    with pytest.raises(
        ValueError, match=r"tokenizer sudachi, .*: pass that function .*, or tokenizer=\"bigrams\""
    ):
        load("lexical", tmp_path / "index")
    anew = load("lexical", tmp_path / "index", tokenizer="bigrams")
    assert sources(anew.retrieve("将棋の駒"))[0] == "将棋"
    anew.persist()
    assert answers(load("lexical", tmp_path / "index")) == answers(anew)


def test_an_index_that_never_searched_by_words_needs_no_tokenizer(tmp_path: Path) -> None:
    pack = build("hybrid", tmp_path / "index", hybrid=False, tokenizer=Splitter())
    assert words_of(tmp_path / "index") == ""
    assert answers(load("hybrid", tmp_path / "index")) == answers(pack)


def test_hybrid_search_can_be_taken_up_later(tmp_path: Path) -> None:
    build("hybrid", tmp_path / "index", hybrid=False)
    loaded = load("hybrid", tmp_path / "index", hybrid=True)
    assert answers(loaded) == answers(build("hybrid", tmp_path / "other"))
    loaded.persist()
    assert words_of(tmp_path / "index")
    assert answers(load("hybrid", tmp_path / "index")) == answers(loaded)


def test_words_that_came_while_hybrid_search_was_off_are_found_when_it_is_on(
    tmp_path: Path,
) -> None:
    build("hybrid", tmp_path / "index")
    load("hybrid", tmp_path / "index", hybrid=False).insert(SNOW)
    loaded = load("hybrid", tmp_path / "index", hybrid=True, dense_weight=0.0)
    assert sources(loaded.retrieve("北海道")) == ["雪"]


@pytest.mark.parametrize(
    "chosen",
    [
        {"hybrid": False},
        {"hybrid": True, "dense_weight": 0.25},
        {"dense_weight": 0.0},
        {"hybrid": True},
    ],
)
def test_what_was_chosen_for_search_is_remembered(chosen: dict[str, Any], tmp_path: Path) -> None:
    pack = build("hybrid", tmp_path / "index", **chosen)
    loaded = load("hybrid", tmp_path / "index")
    assert answers(loaded) == answers(pack)
    loaded.insert(SNOW)
    manifest = Manifest.read(tmp_path / "index")
    assert manifest.hybrid == chosen.get("hybrid", True)
    assert manifest.dense_weight == chosen.get("dense_weight")


def test_what_is_known_of_languages_is_remembered(tmp_path: Path) -> None:
    corpus = documents(JAPANESE, MORE_JAPANESE)
    DenseXRetrievalPack(corpus, embed_model=EnglishEmbedding(), persist_dir=tmp_path / "index")
    first = Manifest.read(tmp_path / "index").languages
    assert {language for language, *_ in first} == {"ja"}
    loaded = DenseXRetrievalPack.load(tmp_path / "index", embed_model=EnglishEmbedding())
    loaded.insert(SNOW)
    assert Manifest.read(tmp_path / "index").languages == first
    loaded.persist(tmp_path / "copy")
    assert Manifest.read(tmp_path / "copy").languages == first


def test_an_index_that_is_only_searched_reads_no_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("hybrid", tmp_path / "index")
    # where core keeps the one that it has read
    monkeypatch.setattr(llama_index.core, "global_tokenizer", None)
    loaded = load("hybrid", tmp_path / "index")
    assert loaded.run("将棋の駒").source_nodes
    assert llama_index.core.global_tokenizer is None
    loaded.insert(SNOW)
    assert llama_index.core.global_tokenizer is not None


def test_a_copy_has_its_own_words(tmp_path: Path) -> None:
    pack = build("hybrid", tmp_path / "index")
    pack.persist(tmp_path / "copy")
    assert words_of(tmp_path / "copy")
    pack.delete("将棋")
    assert "将棋" in sources(load("hybrid", tmp_path / "copy").retrieve("将棋の駒"))


def test_a_folder_of_the_first_layout_is_refused_clearly(tmp_path: Path) -> None:
    build("lexical", tmp_path / "index")
    file = tmp_path / "index" / "densex.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for name in ("hybrid", "dense_weight", "languages"):
        del content[name]
    file.write_text(json.dumps({**content, "schema": 1}), encoding="utf-8")
    with pytest.raises(
        InvalidIndexError, match=r"made by another version .*layout 1.*rebuild the index"
    ):
        load("lexical", tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "value"),
    [("languages", 3), ("languages", [["ja", 1]]), ("languages", None), ("granularity", 5)],
)
def test_a_damaged_manifest_is_refused_clearly(name: str, value: Any, tmp_path: Path) -> None:
    build("lexical", tmp_path / "index")
    file = tmp_path / "index" / "densex.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, name: value}), encoding="utf-8")
    with pytest.raises(InvalidIndexError, match="is damaged"):
        load("lexical", tmp_path / "index")
