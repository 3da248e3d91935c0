"""A process that writes to an index until it is killed, and says in a journal what it has done.

usage: python -m tests.killed_writer FOLDER JOURNAL SEED

The threshold from which on there is a graph of the embeddings is lowered, so that one is built all the time.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index import nearest
from tests.searching import ShortEmbedding

KINDS = ("insert", "insert", "refresh", "delete", "purge", "compact", "persist")
PLACES = ("harbour", "station", "library", "bakery", "琵琶湖", "富士山", "新幹線", "折り紙")


def document(number: int, version: int) -> Document:
    """A version of a document, which says in each sentence which one it is."""
    place = PLACES[number % len(PLACES)]
    says = f"{place} number{number} is in version{version}x."
    sentences = [
        f"{says} Sentence {i} of it says {place} {i * number}."
        for i in range(3 + (number + version) % 5)
    ]
    return Document(
        id_=f"doc-{number}",
        text=" ".join(sentences),
        metadata={"number": number, "version": version},
    )


def arguments() -> dict[str, object]:
    """What the pack is made and opened with."""
    return {"embed_model": ShortEmbedding(), "proposition_llm": "none", "query_llm": "none"}


class Journal:
    """What was begun and what has returned, on the disk before the next thing is begun."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("a", encoding="utf-8")

    def enter(self, event: str, versions: dict[int, int]) -> None:
        """Enter documents' versions; 0 stands for a deleted one."""
        self._stream.write(json.dumps([event, versions]) + "\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())


def read_journal(path: Path) -> tuple[dict[int, int], dict[int, set[int]]]:
    """What must be there, and what may be there in place of it."""
    certain: dict[int, int] = {}
    possible: dict[int, set[int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        event, versions = json.loads(line)
        for number, version in versions.items():
            if event == "begun":
                possible.setdefault(int(number), set()).add(version)
            else:
                certain[int(number)] = version
                possible.pop(int(number), None)
    return certain, possible


def lower_thresholds() -> None:
    """Have a graph built after every few writes."""
    nearest.MOST_COMPARED = 100
    nearest.MOST_COMPARED_MIDWAY = 100


def write(folder: Path, journal: Journal, rng: random.Random, certain: dict[int, int]) -> None:
    """Insert, refresh, delete, purge, compact and persist in turn, without end."""
    pack = None
    while True:
        known = [number for number, version in certain.items() if version]
        kind = rng.choice(KINDS) if len(known) > 20 else "insert"
        if kind == "insert":
            first = max(certain, default=0) + 1
            versions = dict.fromkeys(range(first, first + rng.randint(1, 30)), 1)
        elif kind == "refresh":
            versions = {
                number: certain[number] + rng.randint(0, 1) for number in rng.sample(known, 15)
            }
        else:
            versions = dict.fromkeys(rng.sample(known, 4), 0) if kind in ("delete", "purge") else {}
        journal.enter("begun", versions)
        documents = [document(number, version) for number, version in versions.items() if version]
        if pack is None:
            pack = DenseXRetrievalPack(documents, persist_dir=folder, **arguments())  # type: ignore[arg-type]
        if kind in ("delete", "purge"):
            pack.delete([f"doc-{number}" for number in versions], purge=kind == "purge")
        elif kind == "persist":
            pack.persist()
        elif kind == "compact":
            pack.compact()
        elif kind == "refresh":
            pack.refresh(documents)
        else:
            pack.insert(documents)
        certain.update(versions)
        journal.enter("returned", versions)


if __name__ == "__main__":
    path = Path(sys.argv[2])
    lower_thresholds()
    write(Path(sys.argv[1]), Journal(path), random.Random(int(sys.argv[3])), read_journal(path)[0])
