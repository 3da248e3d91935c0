from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_pack_densex.stores.foreign.chroma_folder import (
    DamagedFolderError,
    Health,
    ensure_healthy,
    looks_torn,
    probe,
    recover,
)

pytest.importorskip("chromadb")

PROGRAM = """
import sys
import chromadb
import numpy as np
folder, start, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = chromadb.PersistentClient(folder)
configuration = {"hnsw": {"space": "cosine", "sync_threshold": 100}}
collection = client.get_or_create_collection("densex", configuration=configuration, embedding_function=None)
for first in range(start, stop, 50):
    numbers = range(first, first + 50)
    collection.upsert(
        ids=[f"文{number}" for number in numbers],
        embeddings=[np.random.default_rng(number).normal(size=64).astype(np.float32) for number in numbers],
        metadatas=[{"ref_doc_id": f"d{number // 10}"} for number in numbers],
        documents=[f"text {number}" for number in numbers],
    )
    print(first + 50, flush=True)
"""


def write(folder: Path, start: int, stop: int) -> None:
    """Add vectors in another process, since this one would keep the folder open."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(start), str(stop)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def direction(number: int) -> Any:
    vector = np.random.default_rng(number).normal(size=64).astype(np.float32)
    return vector / np.linalg.norm(vector)


def check(folder: Path, least: int, gone: frozenset[str] = frozenset()) -> int:
    """Every node is there with its own vector and finds itself; returns how many there are."""
    import chromadb

    collection = chromadb.PersistentClient(str(folder)).get_collection("densex", embedding_function=None)
    got = collection.get(include=["embeddings", "metadatas", "documents"])
    numbers = [int(node_id[1:]) for node_id in got["ids"]]
    documents = {metadata["ref_doc_id"] for metadata in got["metadatas"]}
    assert not documents & gone
    assert {number for number in range(least) if f"d{number // 10}" not in gone} <= set(numbers)
    assert got["documents"] == [f"text {number}" for number in numbers]
    for number, vector in zip(numbers, got["embeddings"], strict=True):
        assert np.allclose(vector / np.linalg.norm(vector), direction(number), atol=1e-5)
    for number in random.Random(0).sample(numbers, 30):
        assert collection.query(query_embeddings=[direction(number)], n_results=1)["ids"] == [[f"文{number}"]]
    return len(numbers)


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with 450 nodes, of which the last save of the vector index has some, and the same with 900."""
    early, late = tmp_path_factory.mktemp("saves") / "early", tmp_path_factory.mktemp("saves") / "late"
    write(early, 0, 450)
    shutil.copytree(early, late)
    write(late, 450, 900)
    return early, late


def index_of(folder: Path) -> Path:
    return next(folder.glob("*/header.bin")).parent


@pytest.fixture
def torn(saves: tuple[Path, Path], tmp_path: Path) -> Path:
    """What a kill leaves in the middle of a save: the first files of the next one, the others of the last one."""
    early, late = saves
    folder = tmp_path / "torn"
    shutil.copytree(early, folder)
    for name in ("header.bin", "data_level0.bin"):
        shutil.copy(index_of(late) / name, index_of(folder) / name)
    return folder


def test_a_sound_folder_is_not_touched(saves: tuple[Path, Path]) -> None:
    for folder in saves:
        before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
        started = time.perf_counter()
        ensure_healthy(folder)
        assert time.perf_counter() - started < 0.1
        assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


def test_a_folder_with_few_nodes_is_not_taken_for_damaged(tmp_path: Path) -> None:
    write(tmp_path, 0, 50)
    assert not looks_torn(tmp_path)


def test_a_copied_folder_is_opened_twice_once_only(saves: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saves[0], folder)
    (index_of(folder) / "data_level0.bin").touch()
    assert looks_torn(folder)
    ensure_healthy(folder, wait_s=0)
    assert not looks_torn(folder)
    assert check(folder, 450) == 450


def test_a_torn_index_is_built_anew_with_every_vector(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert looks_torn(torn)
    with caplog.at_level(logging.WARNING):
        ensure_healthy(torn, wait_s=0)
    assert "built anew" in caplog.text
    assert "Nothing is lost" in caplog.text
    assert not looks_torn(torn)
    assert check(torn, 450) == 450
    ensure_healthy(torn, wait_s=0)


def test_a_recovered_folder_takes_new_nodes(torn: Path) -> None:
    recover(torn)
    write(torn, 450, 700)
    assert check(torn, 700) == 700


def test_a_stop_during_recovery_is_mended_by_doing_it_again(torn: Path, tmp_path: Path) -> None:
    index = index_of(torn)
    kept = tmp_path / "kept"
    shutil.copytree(index, kept)
    assert recover(torn).vectors > 300
    shutil.copytree(kept, index)  # as if the process had ended before it removed the files
    assert recover(torn).lost == ()
    assert probe(torn).sound
    assert check(torn, 450) == 450


def test_documents_whose_vectors_are_lost_are_deleted_whole_and_named(torn: Path) -> None:
    file = index_of(torn) / "data_level0.bin"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 4])
    lost = recover(torn).lost
    assert lost
    assert all(document.startswith("d") for document in lost)
    assert probe(torn) == Health(True)
    assert check(torn, 450, frozenset(lost)) == 450 - 10 * len(lost)


def test_a_folder_that_ends_the_process_that_opens_it_is_found_out_and_mended(
    saves: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(saves[1], folder)
    file = index_of(folder) / "data_level0.bin"
    rows = np.memmap(file, dtype=np.uint8, mode="r+").reshape(-1, 4 + 32 * 4 + 64 * 4 + 8)
    rows[:, 4 : 4 + 32 * 4] = 0x7F  # the neighbours of each node
    rows.flush()
    health = probe(folder)
    assert not health.sound
    assert "signal" in health.reason
    recover(folder)
    assert probe(folder).sound
    assert check(folder, 900) == 900


@pytest.mark.parametrize("name", ["index_metadata.pickle", "chroma.sqlite3"])
def test_what_cannot_be_mended_is_refused_with_advice(name: str, torn: Path) -> None:
    file = next(torn.rglob(name))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DamagedFolderError, match=r"cannot be mended.*index the documents anew.*LanceDB.*chroma run"):
        recover(torn)


def test_a_pickle_runs_no_code(torn: Path, tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    (index_of(torn) / "index_metadata.pickle").write_bytes(f"cos\nsystem\n(S'touch {harm}'\ntR.".encode())
    with pytest.raises(DamagedFolderError, match=r"os\.system is not expected"):
        recover(torn)
    assert not harm.exists()


def test_every_batch_that_returned_outlives_killed_writers_or_the_damage_is_told(tmp_path: Path) -> None:
    rng = random.Random(5)
    folder, done = tmp_path / "folder", 0
    for _ in range(3):
        command = [sys.executable, "-c", PROGRAM, str(folder), str(done), "1000000"]
        errors = tmp_path / "errors"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as writer,
        ):
            assert writer.stdout is not None
            lines = [writer.stdout.readline()]
            assert lines[0], f"after {done} nodes the folder takes no more: {errors.read_text()}"
            time.sleep(rng.uniform(0.3, 1.2))
            writer.send_signal(signal.SIGKILL)
            lines += list(writer.stdout)
        done = int([line for line in lines if line.endswith("\n")][-1])
        try:
            ensure_healthy(folder, wait_s=0)
        except DamagedFolderError as error:  # one in some hundred kills falls between emptying and writing the ids
            assert "Ran out of input" in str(error)  # noqa: PT017
            shutil.rmtree(folder)
            done = 0
    assert not done or check(folder, done) >= done
