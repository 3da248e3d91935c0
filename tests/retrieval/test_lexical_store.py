from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_store import FILE, read_texts, read_tokenizer, write_texts
from llama_pack_densex.retrieval.lexical_texts import TokenisedTexts
from llama_pack_densex.retrieval.tokens import tokenize

TEXTS = ["雨が降った。", "The fox ran 1,200 metres", "\ud800", ""]


def tokenised(texts: list[str]) -> TokenisedTexts:
    return TokenisedTexts.none("bigrams").updated(texts, tokenize)


def content(texts: TokenisedTexts | None) -> object:
    return texts and (
        texts.tokenizer,
        dict(texts.vocabulary),
        texts.digests,
        texts.lengths.tolist(),
        texts.tokens.tolist(),
    )


@pytest.mark.parametrize("texts", [TEXTS, [], [""]])
def test_what_was_written_is_read(tmp_path: Path, texts: list[str]) -> None:
    write_texts(tokenised(texts), tmp_path)
    assert content(read_texts(tmp_path)) == content(tokenised(texts))
    assert read_tokenizer(tmp_path) == "bigrams"
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_any_token_that_a_tokenizer_makes_is_kept(tmp_path: Path) -> None:
    texts = TokenisedTexts.none("chars").updated(['a\ud800\x00\n"雨\U0001f600'], list)
    write_texts(texts, tmp_path)
    assert content(read_texts(tmp_path)) == content(texts)


def test_where_nothing_was_written_there_is_nothing(tmp_path: Path) -> None:
    assert read_texts(tmp_path) is None
    assert read_tokenizer(tmp_path / "missing") is None


def test_a_damaged_file_is_no_index_or_unharmed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("index")
    write_texts(tokenised(TEXTS), folder)
    whole = (folder / FILE).read_bytes()

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(whole) - 1), st.integers(1, 255), st.booleans())
    def damage(place: int, change: int, cut: bool) -> None:
        harmed = bytearray(whole[:place] if cut else whole)
        if not cut:
            harmed[place] ^= change
        (folder / FILE).write_bytes(harmed)
        assert content(read_texts(folder)) in (None, content(tokenised(TEXTS)))
        assert read_tokenizer(folder) in (None, "bigrams")

    damage()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("tokens", np.array([0, 99], dtype=np.int32)),
        ("tokens", np.array([-1, 0], dtype=np.int32)),
        ("lengths", np.array([1, 1, 1], dtype=np.int32)),
        ("lengths", np.array([3, -1], dtype=np.int32)),
        ("digests", np.zeros(3, dtype=np.uint8)),
        ("vocabulary", np.frombuffer(b'["a", "a"]', dtype=np.uint8)),
        ("about", np.frombuffer(b'{"schema": 99, "tokenizer": "bigrams"}', dtype=np.uint8)),
        ("about", np.frombuffer(b"[" * 100_000, dtype=np.uint8)),
    ],
)
def test_parts_that_do_not_fit_are_no_index(tmp_path: Path, part: str, value: object) -> None:
    write_texts(TokenisedTexts.none("bigrams").updated(["a", "b"], list), tmp_path)
    with np.load(tmp_path / FILE) as parts:
        changed = {**parts, part: value}
    np.savez(tmp_path / FILE, **changed)
    assert read_texts(tmp_path) is None


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm",)


def test_an_index_from_elsewhere_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = io.BytesIO()
    np.savez(stream, about=np.array([Harmful()], dtype=object))
    for harmful in (stream.getvalue(), pickle.dumps(Harmful())):
        (tmp_path / FILE).write_bytes(harmful)
        assert read_texts(tmp_path) is None
        assert read_tokenizer(tmp_path) is None
    assert not (tmp_path / "harm").exists()


def test_a_killed_writer_leaves_the_earlier_index_or_the_new_one(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from llama_pack_densex.retrieval.lexical_store import write_texts
from llama_pack_densex.retrieval.lexical_texts import TokenisedTexts
texts = [TokenisedTexts.none("chars").updated([char * 3_000_000], list) for char in "ab"]
while True:
    for text in texts:
        write_texts(text, Path(sys.argv[1]))
"""
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        while not (tmp_path / FILE).exists():
            assert writer.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    found = read_texts(tmp_path)
    assert found is not None
    assert list(found.vocabulary) in (["a"], ["b"])


def test_unfinished_files_of_killed_writers_are_removed_later(tmp_path: Path) -> None:
    old, new = tmp_path / f".{FILE}.old", tmp_path / f".{FILE}.new"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    write_texts(tokenised(TEXTS), tmp_path)
    assert not old.exists()
    assert new.exists()
