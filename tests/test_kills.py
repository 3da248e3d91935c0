"""Writers killed at random: the index is whole after each of them."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.index.upkeep import check_index
from tests.killed_writer import arguments, read_journal

pytestmark = pytest.mark.slow


def killed(folder: Path, journal: Path, seed: int, entries: int, seconds: float) -> None:
    """Run a writer, and kill it so long after so many entries in its journal, however slow the machine is."""
    command = [sys.executable, "-m", "tests.killed_writer", str(folder), str(journal), str(seed)]
    before = journal.read_bytes().count(b"\n") if journal.exists() else 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n") >= before + entries:
                break
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors


def versions_in(pack: DenseXRetrievalPack) -> dict[int, set[int]]:
    """The versions of each document of which there is any node."""
    found: dict[int, set[int]] = {}
    for node in pack.nodes():
        for number, version in re.findall(r"number(\d+) is in version(\d+)x", node.get_content()):
            found.setdefault(int(number), set()).add(int(version))
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_an_index_is_whole_and_has_all_that_was_written_after_each_of_many_kills(
    tmp_path: Path,
) -> None:
    folder, journal, rng = tmp_path / "index", tmp_path / "journal", random.Random(11)
    kills = int(os.environ.get("DENSEX_TEST_KILLS", "20"))
    readers: list[subprocess.Popen[str]] = []
    for kill in range(kills):
        killed(folder, journal, kill, rng.randint(1, 12), rng.uniform(0.0, 0.5))
        if not is_index(folder):
            assert not any(read_journal(journal)[0].values())
            continue
        if not readers:
            command = [sys.executable, "-m", "tests.reader_of_a_killed_writer", str(folder)]
            readers = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in "123"
            ]
        pack = DenseXRetrievalPack.load(folder, **arguments())  # type: ignore[arg-type]
        assert check_index(folder).faults == (), f"after kill {kill}"
        found = versions_in(pack)
        certain, possible = read_journal(journal)
        for number in certain.keys() | possible.keys():
            there, may_be = (
                found.get(number, {0}),
                {certain.get(number, 0), *possible.get(number, set())},
            )
            assert len(there) == 1, f"half of a document after kill {kill}: {number} in {there}"
            assert there <= may_be, f"after kill {kill}: {number} is {there}, not {may_be}"
        number = next(number for number, versions in found.items() if versions)
        assert pack.retrieve(f"What is number{number} in?", similarity_top_k=3)
    assert len(found) > kills
    for reader in readers:
        output, _ = reader.communicate("stop\n", timeout=300)
        assert output.startswith("no failure in "), output
