from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_pack_densex.retrieval.lexical_files import TEMPORARY
from llama_pack_densex.retrieval.lexical_index import LexicalIndex
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.retrieval.lexical_state import FOLDER, damage
from llama_pack_densex.stores.records import NodeRecord
from tests.retrieval.lexical_records import passages


class Nodes:
    """Nodes that can change, and how often they were read."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.read = 0

    def __call__(self) -> Iterator[NodeRecord]:
        self.read += 1
        return iter(passages(*self.texts))


class CountingTokenizer:
    def __init__(self) -> None:
        self.split: list[str] = []

    def __call__(self, text: str) -> list[str]:
        self.split.append(text)
        return text.split()


def found(index: LexicalIndex, query: str) -> set[str]:
    return {hit.passage_id for hit in index.search(query, 100, ("passage",))[0]}


def files(folder: Path) -> set[str]:
    return {file.name for file in (folder / FOLDER).iterdir()}


def fox_and_lamp(folder: Path) -> tuple[Nodes, str]:
    nodes = Nodes("red fox", "赤い lamp")
    return nodes, LexicalSide().save(folder, nodes)


def test_the_index_is_made_once_for_the_same_nodes() -> None:
    side, nodes = LexicalSide(), Nodes("red fox")
    assert side.get(nodes) is side.get(nodes)
    assert nodes.read == 1


def test_after_a_change_the_index_shows_the_nodes_as_they_are() -> None:
    side, nodes = LexicalSide(), Nodes("red fox", "blue lamp")
    before = side.get(nodes)
    side.replace(["blue lamp"], passages("red hen"))
    assert found(side.get(nodes), "red lamp") == {"red fox", "red hen"}
    assert found(before, "red lamp") == {"red fox", "blue lamp"}
    assert nodes.read == 1


def test_only_what_is_new_is_split() -> None:
    tokenizer, nodes = CountingTokenizer(), Nodes("red fox", "blue lamp")
    side = LexicalSide(tokenizer)
    side.get(nodes)
    side.replace(["red fox"], passages("red hen"))
    side.get(nodes)
    assert tokenizer.split == ["red fox", "blue lamp", "red hen"]


def test_a_passage_of_the_same_id_is_replaced() -> None:
    side, nodes = LexicalSide(), Nodes("red fox", "blue lamp")
    side.get(nodes)
    side.replace([], passages("red fox"))
    assert sorted(side.get(nodes).ids()) == [("blue lamp", "passage"), ("red fox", "passage")]


def test_a_new_index_reads_nothing() -> None:
    side, nodes = LexicalSide(empty=True), Nodes("never read")
    assert found(side.get(nodes), "read") == set()
    side.replace([], passages("red fox"))
    assert found(side.get(nodes), "fox") == {"red fox"}
    assert nodes.read == 0


def test_a_change_before_anything_is_known_is_read_with_all_the_rest() -> None:
    side, nodes = LexicalSide(), Nodes("red fox", "red hen")
    side.replace([], passages("red hen"))
    assert found(side.get(nodes), "red") == {"red fox", "red hen"}
    assert nodes.read == 1


def test_a_change_while_the_index_is_made_is_not_missed() -> None:
    side, nodes = LexicalSide(), Nodes("red fox")
    changes = [threading.Thread(target=side.replace, args=([], passages("red hen")))]

    def changing() -> Iterator[NodeRecord]:
        yield from nodes()
        changes[0].start()

    side.get(changing)
    changes[0].join()
    assert found(side.get(nodes), "red") == {"red fox", "red hen"}


def test_searches_beside_changes_always_see_a_whole_index(tmp_path: Path) -> None:
    side, nodes = LexicalSide(), Nodes("fox 0")
    stop = threading.Event()
    failures: list[BaseException] = []

    def search() -> None:
        known = 0
        try:
            while not stop.is_set():
                now = len(found(side.get(nodes), "fox"))
                assert now >= known > -1
                known = now
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 30):
        side.replace([], passages(f"fox {number}"))
        assert len(found(side.get(nodes), "fox")) == number + 1
        side.clean(tmp_path, side.save(tmp_path, nodes))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_saved_index_is_opened_without_reading_or_splitting_a_text(tmp_path: Path) -> None:
    nodes = Nodes(*(f"fox {number}" for number in range(1000)))
    state = LexicalSide(CountingTokenizer()).save(tmp_path, nodes)
    nodes.read, tokenizer = 0, CountingTokenizer()
    side = LexicalSide(tokenizer, tmp_path, state)
    assert len(found(side.get(nodes), "fox")) == 100
    assert nodes.read == 0
    assert len(tokenizer.split) == 2  # the sample that tells tokenizers apart, and the question


def test_a_change_after_opening_is_found(tmp_path: Path) -> None:
    nodes, state = fox_and_lamp(tmp_path)
    side = LexicalSide(None, tmp_path, state)
    side.replace(["赤い lamp"], passages("red hen"))
    assert found(side.get(nodes), "red 赤い") == {"red fox", "red hen"}
    assert nodes.read == 1


def test_each_state_stays_as_it_was(tmp_path: Path) -> None:
    side, nodes = LexicalSide(), Nodes("fox")
    states = {side.save(tmp_path, nodes): {"fox"}}
    for number in range(12):
        side.replace([f"fox {number - 1}"], passages(f"fox {number}"))
        states[side.save(tmp_path, nodes)] = {"fox", f"fox {number}"}
    assert len(states) == 13
    for state, expected in states.items():
        assert found(LexicalSide(None, tmp_path, state).get(nodes), "fox") == expected


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    nodes, state = fox_and_lamp(tmp_path)
    written = files(tmp_path)
    side = LexicalSide(None, tmp_path, state)
    assert side.save(tmp_path, nodes) == state
    assert side.save(tmp_path, nodes) == state
    assert files(tmp_path) == written
    side.replace([], passages("red hen"))
    assert side.save(tmp_path, nodes) != state
    assert len(files(tmp_path) - written) == 2  # what is new, and the state
    assert files(tmp_path) > written


def test_a_copy_is_whole(tmp_path: Path) -> None:
    nodes, state = fox_and_lamp(tmp_path)
    (tmp_path / "copy").mkdir()
    side = LexicalSide(None, tmp_path, state)
    assert side.save(tmp_path / "copy", nodes) == state
    assert found(LexicalSide(None, tmp_path / "copy", state).get(nodes), "lamp") == {"赤い lamp"}
    assert nodes.read == 1


def test_files_that_no_state_needs_are_removed(tmp_path: Path) -> None:
    side, nodes = LexicalSide(), Nodes("red fox")
    for number in range(7):
        side.replace(["hen"], passages(f"hen {number}"))
        state = side.save(tmp_path, nodes)
    (tmp_path / FOLDER / f"{TEMPORARY}1").write_bytes(b"half")
    side.clean(tmp_path, state)
    side.replace(["red fox"], [])
    assert found(side.get(nodes), "fox hen") == found(LexicalSide(None, tmp_path, state).get(nodes), "hen")
    assert damage(tmp_path, state) == []
    assert len(files(tmp_path)) <= 6
    side.clean(tmp_path, side.save(tmp_path, nodes))
    assert found(LexicalSide(None, tmp_path, side.save(tmp_path, nodes)).get(nodes), "fox") == set()


def test_nothing_is_removed_for_a_state_that_is_not_there(tmp_path: Path) -> None:
    _, state = fox_and_lamp(tmp_path)
    for name in ("0" * 32, "", "../densex.json"):
        LexicalSide().clean(tmp_path, name)
    assert damage(tmp_path, state) == []


def test_what_was_removed_is_written_again(tmp_path: Path) -> None:
    side, nodes = LexicalSide(), Nodes("red fox")
    state = side.save(tmp_path, nodes)
    for file in (tmp_path / FOLDER).iterdir():
        file.unlink()
    assert side.save(tmp_path, nodes) == state
    assert damage(tmp_path, state) == []


def test_what_is_forgotten_is_read_and_written_anew(tmp_path: Path) -> None:
    nodes = Nodes("red fox", "secret zyxomma")
    side = LexicalSide()
    before = side.save(tmp_path, nodes)
    old = files(tmp_path)
    nodes.texts = ["red fox"]
    side.replace(["secret zyxomma"], [])
    side.forget()
    after = side.save(tmp_path, nodes)
    side.clean(tmp_path, after)
    assert before != after
    assert not old & files(tmp_path)
    for state in (before, after):
        assert found(LexicalSide(None, tmp_path, state).get(nodes), "zyxomma") == set()


@pytest.mark.parametrize("harmed", ["garbage", "cut", "empty", "gone", "changed"])
@pytest.mark.parametrize("kind", ["segment", "state", "what went"])
def test_a_damaged_index_is_made_anew_and_says_so(
    tmp_path: Path, kind: str, harmed: str, caplog: pytest.LogCaptureFixture
) -> None:
    side, nodes = LexicalSide(), Nodes("red fox", "blue lamp", "red hen", "green bus")
    side.save(tmp_path, nodes)
    segments = files(tmp_path)
    side.replace(["blue lamp"], [])
    nodes.texts.remove("blue lamp")
    state = side.save(tmp_path, nodes)
    side.clean(tmp_path, state)
    (gone,) = files(tmp_path) - segments - {state}
    (segment,) = files(tmp_path) - {gone, state}
    file = tmp_path / FOLDER / {"segment": segment, "state": state, "what went": gone}[kind]
    content = file.read_bytes()
    if harmed == "gone":
        file.unlink()
    else:
        changed = content[:99] + bytes([content[99] ^ 1]) + content[100:]
        file.write_bytes({"garbage": b"\x00garbage", "cut": content[:99], "empty": b"", "changed": changed}[harmed])
    assert damage(tmp_path, state)
    with caplog.at_level(logging.INFO):
        opened = LexicalSide(None, tmp_path, state)
        assert found(opened.get(nodes), "red blue") == {"red fox", "red hen"}
    assert [line.levelname for line in caplog.records if "cannot be used" in line.getMessage()] == ["INFO"]
    mended = opened.save(tmp_path, nodes)
    assert damage(tmp_path, mended) == []
    assert found(LexicalSide(None, tmp_path, mended).get(nodes), "red blue") == {"red fox", "red hen"}


def test_a_state_elsewhere_is_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, state = fox_and_lamp(tmp_path)
    os.rename(tmp_path / FOLDER / state, tmp_path / "state")
    with caplog.at_level(logging.INFO):
        assert len(LexicalSide(None, tmp_path, "../state").get(nodes)) == 2
    assert "is not the name of a state" in caplog.text
    assert nodes.read == 2


def test_an_index_remembers_its_tokenizer_by_name(tmp_path: Path) -> None:
    pytest.importorskip("sudachipy", reason='needs pip install "llama-pack-densex[sudachi]"')
    nodes = Nodes("食べられなかった")
    state = LexicalSide("sudachi").save(tmp_path, nodes)
    side = LexicalSide(None, tmp_path, state)
    assert side.tokenizer.name == "sudachi"
    assert found(side.get(nodes), "食べる")
    assert nodes.read == 1


def test_an_index_of_a_function_asks_for_the_function(tmp_path: Path) -> None:
    state = LexicalSide(CountingTokenizer()).save(tmp_path, Nodes("red fox"))
    with pytest.raises(ValueError, match=r"CountingTokenizer.*pass it as tokenizer="):
        LexicalSide(None, tmp_path, state)


def test_with_another_tokenizer_the_index_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes("red foxes")
    state = LexicalSide(str.split).save(tmp_path, nodes)
    with caplog.at_level(logging.INFO):
        assert found(LexicalSide("bigrams", tmp_path, state).get(nodes), "fox") == {"red foxes"}
    assert "another tokenizer" in caplog.text


def test_two_functions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = Nodes("red foxes")
    state = LexicalSide(lambda text: text.split()).save(tmp_path, nodes)
    upper = LexicalSide(lambda text: text.upper().split(), tmp_path, state)
    assert found(upper.get(nodes), "RED") == {"red foxes"}


def test_a_tokenizer_that_fails_leaves_the_side_usable(tmp_path: Path) -> None:
    failing = True

    def tokenizer(text: str) -> list[str]:
        if failing:
            raise RuntimeError("no dictionary")
        return text.split()

    side, nodes = LexicalSide(tokenizer), Nodes("red fox")
    with pytest.raises(RuntimeError, match="no dictionary"):
        side.get(nodes)
    failing = False
    assert found(side.get(nodes), "red") == {"red fox"}


def test_after_a_change_that_could_not_be_noted_the_nodes_are_read_anew(tmp_path: Path) -> None:
    def tokenizer(text: str) -> list[str]:
        if "hen" in text:
            raise RuntimeError("no hens")
        return text.split()

    side, nodes = LexicalSide(tokenizer), Nodes("red fox")
    side.save(tmp_path, nodes)
    with pytest.raises(RuntimeError, match="no hens"):
        side.replace(["red fox"], passages("red hen"))
    nodes.texts = ["red lamp"]
    assert found(side.get(nodes), "red") == {"red lamp"}
