"""The modules that a query, an insert, and a passage on its way to an LLM and back pass through.

usage: python benchmarks/traces.py [--mode auto_merging] [--persist]

Each is done once before it is traced, so that imports and other one-time work do not count. Calls are counted
in all threads. The query is by embeddings and by keywords; the LLM answers immediately and its replies are
cached. For an insert, the packages that make nodes of documents and report progress (node_parsers,
propositionizers, llm, ingestion) do not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from llama_index.core import Document  # noqa: E402

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer, Passage  # noqa: E402
from llama_pack_densex.llm.client import background_loop  # noqa: E402
from tests.embedding import TrigramEmbedding  # noqa: E402
from tests.made_up_passages import InstantLLM  # noqa: E402

PACKAGE = ROOT / "llama_pack_densex"
PARSING = ("node_parsers", "propositionizers", "llm", "ingestion")
MOST = 10
"""The most modules that each of the three should pass through."""


@contextmanager
def traced() -> Iterator[Counter[str]]:
    """Count calls by module of the package: in this thread, in new ones and on the loop for requests."""
    calls: Counter[str] = Counter()
    loop = background_loop()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls[str(Path(frame.f_code.co_filename).relative_to(PACKAGE))] += 1

    def watch(profile: Any) -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(sys.setprofile, profile)
        loop.call_soon_threadsafe(done.set)
        done.wait()
        threading.setprofile(profile)
        sys.setprofile(profile)

    watch(note)
    try:
        yield calls
    finally:
        watch(None)


def main() -> None:
    """Print the modules that each passes through, with their numbers of calls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("recursive", "auto_merging"), default="recursive")
    parser.add_argument(
        "--persist", action="store_true", help="keep the index in a folder, not in memory"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        propositionizer = LLMPropositionizer(InstantLLM(), cache=Path(folder) / "replies.db")
        pack = DenseXRetrievalPack(
            [
                Document(text=f"The {name} house is old.", id_=name)
                for name in ("first", "second", "third")
            ],
            propositionizer=propositionizer,
            query_llm="none",
            embed_model=TrigramEmbedding(),
            mode=args.mode,
            persist_dir=Path(folder) / "index" if args.persist else None,
        )
        pack.retrieve("Which house is old?")
        with traced() as query:
            pack.retrieve("Which house is the second?")
        pack.insert(Document(text="The fourth house is old.", id_="fourth"))
        with traced() as insert:
            pack.insert(Document(text="The fifth house is old.", id_="fifth"))
        list(propositionizer.stream([Passage("The sixth house is old.")]))
        with traced() as passage:
            list(propositionizer.stream([Passage("The seventh house is old.")]))
    for part in list(insert):
        if part.startswith(PARSING):
            del insert[part]
    for name, calls in {
        "query": query,
        "insert, without parsing": insert,
        "passage to the LLM": passage,
    }.items():
        print(
            f"{name}: {sum(calls.values())} calls in {len(calls)} modules (at most {MOST} wanted)"
        )
        for module, count in sorted(calls.items()):
            print(f"{count:6} {module}")


if __name__ == "__main__":
    main()
