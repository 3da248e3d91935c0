from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_arrays import Array, Ragged
from llama_pack_densex.retrieval.lexical_files import (
    StoredFile,
    is_whole,
    name_of,
    new_name,
    read_arrays,
    set_aside,
    write_arrays,
    write_file,
)
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.retrieval.lexical_state import FOLDER, damage

SMALL = {"a": np.arange(5, dtype=np.uint8), "b": np.zeros(0, dtype=np.uint32), "c": np.arange(3, dtype=np.uint64)}
LARGE = {"large": np.arange(1 << 20, dtype=np.uint32), "small": np.ones(3, dtype=np.uint16)}


def content(arrays: dict[str, Array]) -> dict[str, tuple[str, list[int]]]:
    return {name: (array.dtype.str, array.tolist()) for name, array in arrays.items()}


@pytest.mark.parametrize("arrays", [SMALL, LARGE, {}])
def test_what_was_written_is_read(tmp_path: Path, arrays: dict[str, Array]) -> None:
    file = write_arrays(tmp_path, arrays, new_name())
    assert content(read_arrays(tmp_path, file)) == content(arrays) == content(set_aside(arrays))
    assert is_whole(tmp_path, file)
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_a_large_file_is_not_read_into_memory(tmp_path: Path) -> None:
    array = read_arrays(tmp_path, write_arrays(tmp_path, LARGE, new_name()))["large"]
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_without_a_name_equal_content_is_one_file(tmp_path: Path) -> None:
    assert write_arrays(tmp_path, SMALL) == write_arrays(tmp_path, SMALL)
    assert write_arrays(tmp_path, SMALL) != write_arrays(tmp_path, {})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_file_is_refused_or_unharmed(tmp_path: Path) -> None:
    file = write_arrays(tmp_path, SMALL)
    whole = (tmp_path / file.name).read_bytes()

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(whole) - 1), st.integers(1, 255), st.booleans())
    def harm(place: int, change: int, cut: bool) -> None:
        harmed = bytearray(whole[:place] if cut else whole)
        if not cut:
            harmed[place] ^= change
        (tmp_path / file.name).write_bytes(harmed)
        assert not is_whole(tmp_path, file)
        with pytest.raises(ValueError, match=r"damaged|another size"):
            read_arrays(tmp_path, file)

    harm()


@pytest.mark.parametrize(
    "header",
    [
        b"[",
        b"[" * 100_000,
        b"3",
        b'{"a": 1}',
        b'{"a": ["|O", 0, 1]}',
        b'{"a": ["<f8", 0, 1]}',
        b'{"a": ["|u1", 0, 9999]}',
        b'{"a": ["|u1", -9, 1]}',
        b'{"a": ["|u1", 0.5, 1]}',
        b'{"a": ["|u1", 0, true]}',
    ],
)
def test_a_file_that_someone_else_made_is_refused(tmp_path: Path, header: bytes) -> None:
    for harmful in (b"densexL1" + len(header).to_bytes(8, "little") + header + bytes(99), header):
        name = name_of(harmful)
        write_file(tmp_path, name, [harmful])
        file = StoredFile(name, len(harmful), crc32(harmful))
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(tmp_path, file)


@pytest.mark.parametrize("name", ["../densex.json", "", "A" * 32, "0" * 31, None, 3])
def test_a_file_is_in_its_folder(name: object) -> None:
    with pytest.raises(ValueError, match="not described"):
        StoredFile.parse({"name": name, "size": 1, "checksum": 1})


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm",)


def test_an_index_from_elsewhere_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = io.BytesIO()
    np.savez(stream, a=np.array([Harmful()], dtype=object))
    for harmful in (stream.getvalue(), pickle.dumps(Harmful())):
        name = name_of(harmful)
        write_file(tmp_path, name, [harmful])
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(tmp_path, StoredFile(name, len(harmful), crc32(harmful)))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("texts", [["b", "", "雨", "\ud800", "a\x00b"], []])
def test_texts_of_any_characters_are_kept_and_found(texts: list[str]) -> None:
    ragged = Ragged.of_texts(sorted(texts))
    assert ragged.texts() == sorted(texts)
    assert [ragged.find(text) for text in sorted(texts)] == list(range(len(texts)))
    assert ragged.find("c") == -1


@given(st.lists(st.lists(st.integers(0, 9))), st.data())
def test_some_lists_are_taken_out(lists: list[list[int]], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(lists) - 1)) if lists else st.just([]))
    values = np.array([number for numbers in lists for number in numbers], dtype=np.uint8)
    ragged = Ragged.of(values, np.array([len(numbers) for numbers in lists], dtype=np.int64))
    taken = ragged.take(np.array(places, dtype=np.int64))
    assert [bytes(lists[place]) for place in places] == [taken.bytes_at(place) for place in range(len(taken))]


def test_every_state_that_a_killed_writer_named_is_whole(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from zlib import crc32
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from tests.retrieval.lexical_records import passages
side, folder = LexicalSide(empty=True), Path(sys.argv[1])
for number in range(100_000):
    side.replace([f"fox {number - 7} " + "lamp " * 99], passages(*(f"fox {number} " + "lamp " * 99, f"hen {number}")))
    print(number, side.save(folder, list), flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    states = [writer.stdout.readline().split() for _ in range(20)]
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    states += [line.split() for line in writer.communicate()[0].splitlines(keepends=True) if line.endswith("\n")]
    for number, state in states:
        assert damage(tmp_path, state) == []
        assert len(LexicalSide(None, tmp_path, state).get(list)) == int(number) + 1 + min(int(number) + 1, 7)
    (tmp_path / FOLDER / ".unfinished-x").write_bytes(b"half")
    LexicalSide().clean(tmp_path, states[-1][1])
    assert damage(tmp_path, states[-1][1]) == []
    assert not (tmp_path / FOLDER / ".unfinished-x").exists()
