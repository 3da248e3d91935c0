from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.folder import WRITER_FILE, IndexInUseError, writing_to
from tests.another_process import forks

pytestmark = pytest.mark.together("forks")


def hold(folder: Path, is_held: Event) -> None:
    with writing_to(folder):
        is_held.set()
        time.sleep(600)


def test_a_second_writer_is_told_which_process_writes_until_that_is_killed(tmp_path: Path) -> None:
    is_held = forks().Event()
    holder = forks().Process(target=hold, args=(tmp_path, is_held), daemon=True)
    holder.start()
    assert is_held.wait(120)
    in_use = pytest.raises(IndexInUseError, match=f"process {holder.pid} .*one writer at a time")
    with in_use, writing_to(tmp_path):
        pass
    holder.kill()
    holder.join()
    with writing_to(tmp_path):
        pass


def test_another_object_of_the_same_process_is_another_writer(tmp_path: Path) -> None:
    with writing_to(tmp_path), pytest.raises(IndexInUseError), writing_to(tmp_path):
        pass


def test_threads_of_one_pack_wait_for_one_another(tmp_path: Path) -> None:
    documents = [Document(text=f"Tea number {place}.", id_=str(place)) for place in range(6)]
    pack = DenseXRetrievalPack(
        documents[:1], embed_model="none", query_llm="none", persist_dir=tmp_path
    )
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(pack.insert, documents[1:]))
    assert len(DenseXRetrievalPack.load(tmp_path, query_llm="none").documents()) == 6


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    full_disk = pytest.raises(OSError, match=f"the disk is full.*{re.escape(str(tmp_path))}")
    with full_disk, writing_to(tmp_path):
        Path("/dev/full").write_text("text", encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_does_not_keep_anybody_from_removing_something(tmp_path: Path) -> None:
    (tmp_path / WRITER_FILE).symlink_to("/dev/full")
    with writing_to(tmp_path):
        pass


def test_the_lock_is_let_go_of_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing_to(tmp_path):
        _ = 1 / 0
    with writing_to(tmp_path):
        pass
