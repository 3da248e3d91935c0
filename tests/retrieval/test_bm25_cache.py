from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from llama_pack_densex.retrieval.bm25 import LexicalIndex, LexicalIndexCache
from llama_pack_densex.retrieval.lexical_store import FILE
from llama_pack_densex.stores.records import NodeRecord


def record(text: str) -> NodeRecord:
    about = {"id": text, "granularity": "passage", "text": text}
    return NodeRecord(**{**dict.fromkeys((field.name for field in fields(NodeRecord)), ""), **about})


class Nodes:
    """Nodes that can change, and how often they were read."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.read = 0

    def __call__(self) -> Iterator[NodeRecord]:
        self.read += 1
        return iter([record(text) for text in self.texts])


class CountingTokenizer:
    def __init__(self) -> None:
        self.split: list[str] = []

    def __call__(self, text: str) -> list[str]:
        self.split.append(text)
        return text.split()


def found(index: LexicalIndex, query: str) -> set[str]:
    return {hit.passage_id for hit in index.search(query, 100, ("passage",))[0]}


def test_the_index_is_made_once_for_the_same_nodes() -> None:
    cache, nodes = LexicalIndexCache(), Nodes("red fox")
    assert cache.get(nodes) is cache.get(nodes)
    assert nodes.read == 1


def test_after_a_change_the_index_shows_the_nodes_as_they_are() -> None:
    cache, nodes = LexicalIndexCache(), Nodes("red fox", "blue lamp")
    before = cache.get(nodes)
    nodes.texts = ["red fox", "red hen"]
    cache.changed()
    assert found(cache.get(nodes), "red lamp") == {"red fox", "red hen"}
    assert found(before, "red lamp") == {"red fox", "blue lamp"}


def test_after_a_change_only_what_is_new_is_split() -> None:
    tokenizer, nodes = CountingTokenizer(), Nodes("red fox", "blue lamp")
    cache = LexicalIndexCache(tokenizer)
    cache.get(nodes)
    nodes.texts += ["red hen"]
    cache.changed()
    cache.get(nodes)
    assert tokenizer.split == ["red fox", "blue lamp", "red hen"]


def test_a_change_while_the_index_is_made_is_not_missed() -> None:
    cache, nodes = LexicalIndexCache(), Nodes("red fox")

    def changing() -> Iterator[NodeRecord]:
        yield from nodes()
        nodes.texts += ["red hen"]
        cache.changed()

    assert found(cache.get(changing), "red") == {"red fox"}
    assert found(cache.get(nodes), "red") == {"red fox", "red hen"}


def test_searches_beside_changes_always_see_a_whole_index() -> None:
    cache, nodes = LexicalIndexCache(), Nodes("fox 0")
    stop = threading.Event()
    failures: list[BaseException] = []

    def search() -> None:
        known = 0
        try:
            while not stop.is_set():
                now = len(found(cache.get(nodes), "fox"))
                assert now >= known > -1
                known = now
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 30):
        nodes.texts = [*nodes.texts, f"fox {number}"]
        cache.changed()
        assert len(found(cache.get(nodes), "fox")) == number + 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_saved_index_is_loaded_without_splitting_all_texts_again(tmp_path: Path) -> None:
    nodes = Nodes(*(f"fox {number}" for number in range(1000)))
    LexicalIndexCache(CountingTokenizer()).save(tmp_path, nodes)
    tokenizer = CountingTokenizer()
    loaded = LexicalIndexCache(tokenizer, tmp_path)
    assert len(found(loaded.get(nodes), "fox")) == 100
    assert len(tokenizer.split) < 60


def test_a_saved_index_that_is_out_of_step_is_brought_up_to_date(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Nodes("red fox", "red lamp")
    LexicalIndexCache().save(tmp_path, nodes)
    nodes.texts = ["red fox", "red hen"]
    with caplog.at_level(logging.INFO):
        assert found(LexicalIndexCache(None, tmp_path).get(nodes), "red") == {"red fox", "red hen"}
    assert "1 of 2 texts" in caplog.text
    assert "hen" not in caplog.text


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"no index"])
def test_a_damaged_index_is_made_anew_and_says_so(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Nodes("red fox")
    LexicalIndexCache().save(tmp_path, nodes)
    (tmp_path / FILE).write_bytes(damage)
    with caplog.at_level(logging.INFO):
        assert found(LexicalIndexCache(None, tmp_path).get(nodes), "red") == {"red fox"}
    assert "cannot be used" in caplog.text


def test_the_saved_index_is_as_the_nodes_are_now(tmp_path: Path) -> None:
    cache, nodes = LexicalIndexCache(CountingTokenizer()), Nodes("red fox")
    cache.save(tmp_path, nodes)
    nodes.texts += ["red hen"]
    cache.changed()
    cache.save(tmp_path, nodes)
    tokenizer = CountingTokenizer()
    LexicalIndexCache(tokenizer, tmp_path).get(nodes)
    assert len(tokenizer.split) == 2  # both are checked; a new text would have been split twice


def test_what_is_saved_already_is_not_written_again(tmp_path: Path) -> None:
    cache, nodes = LexicalIndexCache(), Nodes("red fox")
    cache.save(tmp_path, nodes)
    written = (tmp_path / FILE).stat().st_mtime_ns
    cache.changed()
    cache.save(tmp_path, nodes)
    LexicalIndexCache(None, tmp_path).save(tmp_path, nodes)
    assert (tmp_path / FILE).stat().st_mtime_ns == written
    (tmp_path / "copy").mkdir()
    cache.save(tmp_path / "copy", nodes)
    assert (tmp_path / "copy" / FILE).is_file()


def test_an_index_remembers_its_tokenizer_by_name(tmp_path: Path) -> None:
    pytest.importorskip("sudachipy", reason='needs pip install "llama-pack-densex[sudachi]"')
    nodes = Nodes("食べられなかった")
    LexicalIndexCache("sudachi").save(tmp_path, nodes)
    cache = LexicalIndexCache(None, tmp_path)
    assert cache.tokenizer.name == "sudachi"
    assert found(cache.get(nodes), "食べる")


def test_an_index_of_a_function_asks_for_the_function(tmp_path: Path) -> None:
    nodes = Nodes("red fox")
    LexicalIndexCache(CountingTokenizer()).save(tmp_path, nodes)
    with pytest.raises(ValueError, match=r"CountingTokenizer.*pass it as tokenizer="):
        LexicalIndexCache(None, tmp_path)


def test_with_another_tokenizer_the_index_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes("red foxes")
    LexicalIndexCache(str.split).save(tmp_path, nodes)
    with caplog.at_level(logging.INFO):
        assert found(LexicalIndexCache("bigrams", tmp_path).get(nodes), "fox") == {"red foxes"}
    assert "another tokenizer" in caplog.text


def test_two_functions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = Nodes("red foxes")
    LexicalIndexCache(lambda text: text.split()).save(tmp_path, nodes)
    upper = LexicalIndexCache(lambda text: text.upper().split(), tmp_path)
    assert found(upper.get(nodes), "RED") == {"red foxes"}


def test_a_tokenizer_that_fails_leaves_the_cache_usable() -> None:
    failing = True

    def tokenizer(text: str) -> list[str]:
        if failing:
            raise RuntimeError("no dictionary")
        return text.split()

    cache, nodes = LexicalIndexCache(tokenizer), Nodes("red fox")
    with pytest.raises(RuntimeError, match="no dictionary"):
        cache.get(nodes)
    failing = False
    assert found(cache.get(nodes), "red") == {"red fox"}
