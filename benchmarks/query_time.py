"""Where the time of a question goes, in the storage engine and in the code above it, by a profiler.

usage: OMP_NUM_THREADS=1 python benchmarks/query_time.py [--dir FOLDER] [--propositions 50000] [--mode
auto_merging] ...

The index is that of benchmarks/stores.py with `--corpus made-up`, and is built if missing. Questions are
embedded before the clock starts. Times are CPU times, so that other work disturbs them less; each part is the
time within its own code, as the median of several rounds over the questions. The profiler slows down Python,
but hardly SQLite and numpy; the last row is the time without it. Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import cProfile
import logging
import pstats
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from llama_index.core.schema import QueryBundle
from store_bench.corpora import corpus_of
from store_bench.process import build, opened

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor

ENGINE = "the engine: SQLite, usearch, numpy"
PARTS = {
    "sqlite3.": ENGINE,
    "usearch": ENGINE,
    "numpy": ENGINE,
    "/index/keywords.py": "search by words (index/keywords.py)",
    "/index/nearest.py": "search by embeddings (index/nearest.py)",
    "/index/": "rows of the store, states",
    "/retrieval/search.py": "fusing (retrieval/search.py)",
    "/retrieval/hits.py": "gathering by passage, matched units (retrieval/hits.py)",
    "/retrieval/retrievers.py": "merging, arranging (retrieval/retrievers.py)",
    "/retrieval/context.py": "context (retrieval/context.py)",
    "/text/": "tokens, sentences (text/)",
    "/json/": "nodes from JSON",
    "pydantic": "nodes from JSON",
    "llama_index/core": "llama_index.core",
}
"""Parts by a string in the names of their files or functions; the first match counts."""


def part_of(file: str, function: str) -> str:
    """Return the part that a function belongs to; "" for built-ins, which belong to their callers."""
    name = f"{file} {function}"
    rest = "" if file == "~" else "the rest of Python"
    return next((part for text, part in PARTS.items() if text in name), rest)


def profiled(
    ask: Callable[[QueryBundle], object], questions: list[QueryBundle]
) -> Mapping[str, float]:
    """Return CPU milliseconds per question, by part."""
    profiler = cProfile.Profile(time.process_time)
    for question in questions:
        profiler.runcall(ask, question)
    parts: defaultdict[str, float] = defaultdict(float)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, function), (_, _, own_time, _, callers) in stats.items():
        part = part_of(file, function)
        shares = {part: own_time} if part else {}
        if not part:
            for (caller_file, _, caller), (_, _, time_for_caller, _) in callers.items():
                caller_part = part_of(caller_file, caller) or "the rest of Python"
                shares[caller_part] = shares.get(caller_part, 0.0) + time_for_caller
        for name, share in shares.items():
            parts[name] += 1000 * share / len(questions)
    return parts


def rows_of(
    pack: DenseXRetrievalPack, questions: Callable[[], list[QueryBundle]], rounds: int
) -> Iterator[tuple[str, float]]:
    """Yield the parts of a question, their sum, and the time of a question without the profiler."""
    context = PropositionContextPostprocessor()

    def ask(question: QueryBundle) -> object:
        return context.postprocess_nodes(pack.retrieve(question), question)

    profiles = [profiled(ask, questions()) for _ in range(rounds)]
    names = sorted(
        {*PARTS.values(), "the rest of Python"}, key=lambda name: -profiles[0].get(name, 0.0)
    )
    for name in names:
        yield name, median(profile.get(name, 0.0) for profile in profiles)
    yield "all, under the profiler", median(sum(profile.values()) for profile in profiles)
    totals = []
    for _ in range(rounds):
        bundles = questions()
        start = time.process_time()
        for bundle in bundles:
            ask(bundle)
        totals.append(1000 * (time.process_time() - start) / len(bundles))
    yield "all, without it", median(totals)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, help="the folder of benchmarks/stores.py")
    parser.add_argument("--propositions", type=int, default=50_000)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="recursive", choices=("recursive", "auto_merging"))
    parser.add_argument("--dense", action="store_true", help="search only by embeddings")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    corpus = corpus_of("made-up", options.propositions, 80)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (
            (options.dir or Path(temporary)).resolve()
            / f"made-up-{options.propositions}-80"
            / "index"
        )
        if not (folder / "densex.json").exists():
            build(folder, corpus)
        pack = opened(folder, corpus, mode=options.mode, hybrid=not options.dense)
        print("| part of a question | CPU, ms |\n|---|---|")
        for name, milliseconds in rows_of(
            pack, lambda: corpus.questions(options.questions), options.rounds
        ):
            print(f"| {name} | {milliseconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
