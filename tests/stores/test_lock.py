from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.folder import IndexInUseError, writing_to
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


def test_the_lock_is_let_go_of_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing_to(tmp_path):
        _ = 1 / 0
    with writing_to(tmp_path):
        pass
