from __future__ import annotations

import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from llama_pack_densex.stores.folder import IndexInUseError, WriterLock
from tests.another_process import forks


def hold(folder: Path, is_held: Event) -> None:
    with WriterLock(folder).held():
        is_held.set()
        time.sleep(600)


def test_a_second_writer_is_told_which_process_writes_until_that_is_killed(tmp_path: Path) -> None:
    is_held = forks().Event()
    holder = forks().Process(target=hold, args=(tmp_path, is_held), daemon=True)
    holder.start()
    assert is_held.wait(120)
    in_use = pytest.raises(IndexInUseError, match=f"process {holder.pid} .*one writer at a time")
    with in_use, WriterLock(tmp_path).held():
        pass
    holder.kill()
    holder.join()
    with WriterLock(tmp_path).held():
        pass


def test_a_writer_may_hold_its_lock_again_meanwhile(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    with lock.held(), lock.held():
        pass
    with WriterLock(tmp_path).held():
        pass


def test_another_object_of_the_same_process_is_another_writer(tmp_path: Path) -> None:
    with WriterLock(tmp_path).held(), pytest.raises(IndexInUseError), WriterLock(tmp_path).held():
        pass


def test_threads_of_one_writer_wait_for_one_another(tmp_path: Path) -> None:
    lock, inside, most = WriterLock(tmp_path), [], []

    def write() -> None:
        with lock.held():
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=write) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_the_lock_is_let_go_of_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), WriterLock(tmp_path).held():
        _ = 1 / 0
    with WriterLock(tmp_path).held():
        pass
