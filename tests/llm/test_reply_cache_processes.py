"""The reply cache in several processes: killed, forked, and all at once in one file."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from llama_pack_densex.llm.cache import ReplyCache, reply_key
from llama_pack_densex.llm.usage import Reply, Usage
from tests.replies import kept

pytestmark = pytest.mark.slow

SERVER = """
import os, sys
from tests.llm.test_reply_cache_processes import *
children = []
print("ready", flush=True)
for line in sys.stdin:
    name, *arguments = line.split()
    if name == "wait":
        print("ended", *[os.waitpid(child, 0)[1] for child in children], flush=True)
        children = []
        continue
    children.append(fork(lambda: globals()[name](*arguments)))
"""


def fork(work: Callable[[], object]) -> int:
    """Do something in a forked process, which then ends; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return pid


def key_of(number: int) -> str:
    return reply_key(f"段落 {number}", "prompt")


def reply_of(number: int) -> Reply:
    return Reply(f"命題 {number} " * (1 + number * 37 % 400), "stop", Usage(1, number, number))


def write_for_ever(path: str, start: str) -> None:
    """Put replies, and print each number when its put has returned."""
    print(f"pid {os.getpid()}", flush=True)
    cache = ReplyCache(path)
    number = int(start)
    while True:
        cache.put(key_of(number), reply_of(number))
        os.write(1, f"{number}\n".encode())
        number += 1


def write_range(path: str, start: str, stop: str) -> None:
    cache = ReplyCache(path)
    for number in range(int(start), int(stop)):
        cache.put(key_of(number), reply_of(number))


def write_unprivileged(path: str) -> None:
    if os.geteuid() == 0:
        os.seteuid(65534)
    write_and_print_error(path)


def write_without_room(path: str) -> None:
    import resource

    ReplyCache(path).get(key_of(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    write_and_print_error(path)


def write_and_print_error(path: str) -> None:
    cache = ReplyCache(path)
    try:
        for number in range(200):
            cache.put(key_of(number), Reply("secret " * 2000))
    except OSError as error:
        print(error)


def use_pickled(pickled: str) -> None:
    cache = pickle.loads(bytes.fromhex(pickled))
    cache.put(key_of(2), reply_of(2))
    print(kept(cache))


class Children:
    """A process that forks a child for each command, so that only one has to import the package."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", SERVER]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.next_line() == "ready"

    def start(self, function: Callable[..., None], *arguments: object) -> None:
        self._send(" ".join([function.__name__, *map(str, arguments)]))

    def next_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def wait(self, *, killed: bool = False) -> list[str]:
        """Wait until all children have ended, and return what they printed."""
        self._send("wait")
        lines = []
        while not (line := self.next_line()).startswith("ended"):
            lines.append(line)
        assert set(line.split()[1:]) == {"9" if killed else "0"}
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    if not hasattr(os, "fork"):
        pytest.skip("the tests' children are forked")
    started = Children()
    yield started
    started.close()


def test_a_killed_writer_loses_nothing_that_it_had_put(tmp_path: Path, children: Children) -> None:
    path = tmp_path / "replies"
    chance = random.Random(4)
    written: set[int] = set()
    for start in range(0, 1_000_000, 100_000):
        children.start(write_for_ever, path, start)
        pid = int(children.next_line().removeprefix("pid "))
        written.add(int(children.next_line()))
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(pid, 9)
        written.update(map(int, children.wait(killed=True)))
        with closing(ReplyCache(path)) as cache:
            lost = [number for number in written if cache.get(key_of(number)) != reply_of(number)]
            assert lost == []
    assert len(written) > 50


def test_two_processes_write_into_one_file_at_once(tmp_path: Path, children: Children) -> None:
    path = tmp_path / "replies"  # both also make it
    children.start(write_range, path, 0, 1500)
    children.start(write_range, path, 1000, 2500)
    children.wait()
    with closing(ReplyCache(path)) as cache:
        assert kept(cache) == 2500
        assert all(cache.get(key_of(number)) == reply_of(number) for number in range(2500))


def test_a_process_that_has_the_file_open_notices_that_another_replaced_it(
    tmp_path: Path, children: Children
) -> None:
    path = tmp_path / "replies"
    with closing(ReplyCache(path)) as cache:
        cache.put(key_of(0), reply_of(0))
        path.rename(tmp_path / "moved away")
        children.start(write_range, path, 1, 50)
        children.wait()
        assert cache.get(key_of(49)) == reply_of(49)
        cache.put(key_of(50), reply_of(50))
    with closing(ReplyCache(path)) as again:
        assert kept(again) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_cache_that_is_open_when_its_process_forks_works_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "replies"
    cache = ReplyCache(path)
    cache.put(key_of(0), reply_of(0))

    def work(part: int) -> None:
        assert cache.get(key_of(0)) == reply_of(0)
        for number in range(part, part + 100):
            cache.put(key_of(number), reply_of(number))

    pids = []
    for part in (1000, 2000, 3000):
        pids.append(fork(partial(work, part)))
        work(part + 500)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
    cache.close()
    assert kept(path) == 1 + 600


def test_a_pickled_cache_is_used_in_another_process(tmp_path: Path, children: Children) -> None:
    cache = ReplyCache(tmp_path / "replies")
    cache.put(key_of(1), reply_of(1))
    children.start(use_pickled, pickle.dumps(cache).hex())
    assert children.wait() == ["2"]
    assert cache.get(key_of(2)) == reply_of(2)


@pytest.mark.parametrize("write", [write_unprivileged, write_without_room])
def test_a_file_that_cannot_be_written_is_named_with_what_to_do(
    children: Children, write: Callable[..., None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies"
        with closing(ReplyCache(path)) as cache:
            cache.put(key_of(300), reply_of(300))
        if write is write_unprivileged:
            path.chmod(0o444)
            Path(folder).chmod(0o555)
        children.start(write, path)
        said = "\n".join(children.wait())
        Path(folder).chmod(0o755)
        assert str(path) in said
        assert "give another path" in said
        assert "secret" not in said
        with closing(ReplyCache(path)) as cache:
            assert cache.get(key_of(300)) == reply_of(300)
