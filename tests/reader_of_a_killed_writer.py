"""A process that reads an index beside writers that are killed, until a line comes in; then it says what
failed.

usage: python -m tests.reader_of_a_killed_writer FOLDER
"""

from __future__ import annotations

import random
import re
import sys
import threading
import traceback
from pathlib import Path

from llama_pack_densex import DenseXRetrievalPack
from tests.killed_writer import arguments


def read_once(pack: DenseXRetrievalPack, number: int) -> None:
    """Ask a question, and look whether each document among the hits is whole and of one version."""
    for hit in pack.retrieve(f"What is number{number} in?", similarity_top_k=3):
        seen = {*re.findall(r"number\d+ is in version\d+x", hit.node.get_content())}
        assert len(seen) == 1, seen
    assert pack.counts().documents > 0


def main(folder: Path) -> None:
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
    pack = DenseXRetrievalPack.load(folder, **arguments())  # type: ignore[arg-type]
    rng = random.Random(5)
    readings = 0
    while not stopped.is_set():
        try:
            read_once(pack, rng.randint(1, 50))
        except Exception:
            print(traceback.format_exc())
            return
        readings += 1
    print(f"no failure in {readings} readings")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
