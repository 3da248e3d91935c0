"""Opens a store in a process of its own, with nothing but its address.

    python -m tests.integration.stores.reopen ADDRESS... < steps.json

The steps are for each address a JSON list of `Step`; what comes of each is a line of JSON on standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_index.core.schema import NodeWithScore

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import MATCHED_KEY
from tests.integration.stores.corpus import QUESTIONS, corpus, options
from tests.integration.stores.kinds import KINDS
from tests.integration.stores.open_store import Address, OpenStore

SEARCHES: dict[str, dict[str, Any]] = {
    "dense": {"hybrid": False},
    "hybrid": {},
    "words": {"dense_weight": 0.0},
}
"""A pack's arguments by what it searches by."""
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Step:
    """What to do with a pack that is opened for it.

    Args:
        do: A key of `ACTIONS`.
        mode: The pack's mode.
        search: A key of `SEARCHES`.
        names: Documents of the corpus.
    """

    do: str
    mode: str
    search: str = "hybrid"
    names: Sequence[str] = ()


def as_json(hits: Sequence[NodeWithScore]) -> list[dict[str, Any]]:
    """What a search found, as JSON."""
    return [
        {
            "id": hit.node.node_id,
            "score": float(hit.score or 0.0),
            "document": hit.node.ref_doc_id,
            "text": hit.node.get_content(),
            "matched": [unit["text"] for unit in hit.node.metadata.get(MATCHED_KEY, [])],
        }
        for hit in hits
    ]


def answers(pack: DenseXRetrievalPack) -> dict[str, Any]:
    """What a pack finds for each question."""
    return {question: as_json(pack.retrieve(question)) for question in QUESTIONS}


def _refresh(pack: DenseXRetrievalPack, step: Step) -> dict[str, Any]:
    indexed = pack.refresh(corpus(*step.names))
    propositionizer: Any = pack.node_parser.propositionizer
    return {
        "indexed": indexed,
        "embedded": pack.get_modules()["embed_model"].embedded,
        "asked": propositionizer.asked,
    }


ACTIONS: dict[str, Callable[[DenseXRetrievalPack, Step], Any]] = {
    "answer": lambda pack, _: answers(pack),
    "insert": lambda pack, step: pack.insert(corpus(*step.names)),
    "refresh": _refresh,
    "delete": lambda pack, step: pack.delete(list(step.names)),
    "documents": lambda pack, _: sorted(pack.documents()),
    "nodes": lambda pack, _: sorted(node.node_id for node in pack.nodes()),
}


def perform(store: OpenStore, step: Step) -> Any:
    """Open a pack and do one thing with it."""
    pack = store.reopen(**options(step.mode, **SEARCHES[step.search]))
    return ACTIONS[step.do](pack, step)


def in_another_process(jobs: Sequence[tuple[Address, Sequence[Step]]]) -> list[list[Any]]:
    """Open stores in a new process, and do some things with each.

    Returns:
        For each store what came of each step.

    Raises:
        AssertionError: One of them failed; with its traceback.
    """
    command = [sys.executable, "-m", __name__, *(address.to_json() for address, _ in jobs)]
    given = json.dumps([[vars(step) for step in steps] for _, steps in jobs])
    done = subprocess.run(command, input=given.encode(), capture_output=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    lines = [
        json.loads(line)
        for line in done.stdout.decode().splitlines()
        if line.startswith('{"store"')
    ]
    return [
        [line["result"] for line in lines if line["store"] == number] for number in range(len(jobs))
    ]


def main(addresses: Sequence[Address], steps: Sequence[Sequence[Step]]) -> None:
    """Print what comes of the steps with each store."""
    for number, (address, theirs) in enumerate(zip(addresses, steps, strict=True)):
        store = KINDS[address.kind].open(address)
        try:
            for step in theirs:
                print(json.dumps({"store": number, "result": perform(store, step)}))
        finally:
            store.shut()


if __name__ == "__main__":
    main(
        [Address.from_json(text) for text in sys.argv[1:]],
        [[Step(**given) for given in steps] for steps in json.load(sys.stdin)],
    )
