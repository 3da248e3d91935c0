"""Stores of different kinds and sizes, side by side: building, opening, searching, deleting.

usage: python benchmarks/stores.py [--dir FOLDER] [--propositions 50000] [--stores lancedb chroma ...]
       python benchmarks/stores.py --dir FOLDER --propositions 1000000 --compare-with 50000 --corpus made-up

Up to 200,000 propositions the corpus is real text with the vectors of all-MiniLM-L6-v2, beyond that made-up text with
vectors of a mixture (store_bench/corpora.py says how both are made; `--corpus made-up` takes the latter at any size).
Sentences stand in for propositions, so that no LLM is asked. The nodes are those that a pack makes with its defaults in
mode "auto_merging" (sections of 2,048 tokens, passages of 256, propositions), so that one index is searched in both
modes; propositions and passages are searched. `--stores` takes lancedb (the embedded default), chroma and qdrant
(folders), faiss (with a docstore), postgres (the `pgserver` package), and URLs of servers.

Building, deleting and opening happen in a process of its own each (store_bench/process.py); memory is what the system
says of it. Then all searches take turns, question by question, in one process. A question is embedded before the clock
starts. Each search has a pack of its own, since a pack keeps nodes that it has read; no question is asked twice of one.
The yardstick is an exact FAISS scan of the propositions' vectors, by one thread (for one question at a time several are
slower), and one passage read by its id from the same store. recall@10: the share of the ten propositions nearest by
that scan which the pack's dense search has among its first ten; others that are as near count too. Figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from store_bench.corpora import Corpus, corpus_of
from store_bench.places import STORES, server_of, size
from store_bench.searches import Exact, Search, measured, recall, searches

HERE = Path(__file__).resolve().parent
MOST_REAL = 200_000  # propositions for which there is enough real text


def in_process(action: str, folder: Path, corpus: str, propositions: int, store: str, *more: object) -> dict[str, Any]:
    """What store_bench/process.py measures."""
    command = [sys.executable, "-m", "store_bench.process", action, folder.resolve()]
    command += ["--corpus", corpus, "--store", store, "--propositions", propositions, *more]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, cwd=HERE)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Bench:
    """One corpus in several stores.

    Args:
        folder: Where indexes are; those that are there are used again.
        corpus: A folder with real text, or "made-up".
        propositions: How many.
        count: Questions that are measured.
    """

    def __init__(self, folder: Path, corpus: str, propositions: int, count: int) -> None:
        self.folder, self.name, self.propositions = folder, corpus, propositions
        folder.mkdir(parents=True, exist_ok=True)
        self.corpus: Corpus = corpus_of(corpus, propositions)
        self.questions = self.corpus.questions(count)
        self._asked = folder / "questions.json"
        self._asked.write_text(json.dumps([question.query_str for question in self.questions]), encoding="utf-8")
        np.save(self._asked.with_suffix(".npy"), np.array([question.embedding for question in self.questions]))

    def index(self, store: str) -> Path:
        """The index's folder."""
        return self.folder / store.partition(":")[0]

    def built(self, store: str, half: bool = False) -> dict[str, Any]:
        """Build the index, unless it is there; what that took."""
        folder = self.index(store).with_name(f"{self.index(store).name}{'-half' if half else ''}")
        kept = folder.with_suffix(".built.json")
        if not kept.exists():
            print(f"... building {folder}", file=sys.stderr, flush=True)
            found = in_process("build", folder, self.name, self.propositions, store, *(["--half"] if half else []))
            kept.write_text(json.dumps({**found, "bytes": size(store, folder)}), encoding="utf-8")
        read: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return read

    def opened(self, store: str, action: str = "open") -> dict[str, Any]:
        """Open it in a fresh process."""
        return in_process(action, self.index(store), self.name, self.propositions, store, "--questions", self._asked)


def building(bench: Bench, stores: Sequence[str]) -> Iterable[dict[str, object]]:
    """A row a store: how fast it is filled, and how large it is."""
    for store in stores:
        found = bench.built(store)
        nodes = sum(found[unit] for unit in ("propositions", "passages", "sections", "sentences"))
        yield {
            "store": _shown(store),
            "documents": found["documents"],
            "propositions": found["propositions"],
            "nodes in all": nodes,
            "seconds": round(found["seconds"]),
            "propositions a second": round(found["propositions"] / found["seconds"]),
            "CPU, ms a proposition": round(1000 * found["cpu"] / found["propositions"], 2),
            "peak memory, MB": round(found["peak"]),
            "on disk, MB": round(found["bytes"] / 1e6),
            "bytes a node": round(found["bytes"] / nodes),
        }


def opening(bench: Bench, stores: Sequence[str]) -> Iterable[dict[str, object]]:
    """A row a store: how soon a fresh process answers, and what memory it takes."""
    ways = [(_shown(store), store, "open") for store in stores]
    if "lancedb" in stores:
        ways.insert(0, ("LanceDB alone", "lancedb", "bare"))
    for name, store, action in ways:
        found = bench.opened(store, action)
        row: dict[str, object] = {
            "store": name,
            "opened, s": round(found["loading"], 2),
            "first answer, s": round(found["answering"], 2),
        }
        steps = {"imports": "imports, MB", "load": "opened, MB", "first": "first answer, MB", "more": "20 more, MB"}
        row |= {shown: round(found[step]["resident"]) for step, shown in steps.items()}
        own = round(found["more"]["own"] - found["imports"]["own"])
        yield {**row, "peak, MB": round(found["more"]["peak"]), "beyond imports, not mapped, MB": own}


def searching(bench: Bench, stores: Sequence[str], top_k: int, warm_up: int) -> tuple[list[dict[str, object]], float]:
    """A row a search and store; and the default search's median on the first store, in ms."""
    exact = Exact.of_index(bench.index("lancedb"))
    ways: list[Search] = []
    recalls: dict[str, float] = {}
    for store in stores:
        made = list(searches(store, bench.index(store), _shown(store), bench.corpus.embed_model, exact, top_k))
        ways += made
        recalls[made[1].name] = recall(made[1].pack, exact, bench.questions)
    for way in ways:
        way.ask(bench.questions[0])  # what is read at the first question
    gc.collect()
    times = measured(ways, bench.questions, warm_up)
    rows: list[dict[str, object]] = []
    for way in ways:
        clock, beside = times[way.name].clock, times[way.beside].clock
        rows.append(
            {
                "search": way.name,
                "median, ms": round(median(clock), 2),
                "95 %, ms": round(float(np.percentile(clock, 95)), 2),
                "of all cores, ms": round(median(times[way.name].cores), 2),
                "times scan and fetch": round(median(clock) / median(beside), 2),
                "recall@10": f"{recalls[way.name]:.4f}" if way.name in recalls else "",
            }
        )
    return rows, median(times[ways[1].name].clock)


def deleting(bench: Bench, store: str) -> Iterable[dict[str, object]]:
    """What is left on disk after half of the documents were deleted, beside a fresh build of the others."""
    fresh = bench.built(store, half=True)
    with tempfile.TemporaryDirectory(dir=bench.folder) as copy:
        folder = Path(copy) / "index"
        subprocess.run(["cp", "-r", bench.index(store), folder], check=True)
        found = in_process("halve", folder, bench.name, bench.propositions, store)
    parts = {
        "before": found["before"],
        f"{found['documents']} documents deleted": found["deleted"],
        "compacted": found["compacted"],
        "the others built afresh": fresh["bytes"],
    }
    seconds = {f"{found['documents']} documents deleted": found["deleting"], "compacted": found["compacting"]}
    for name, taken in parts.items():
        yield {
            "index": name,
            "on disk, MB": round(taken / 1e6, 1),
            "times the fresh build": round(taken / fresh["bytes"], 3),
            "seconds": round(seconds[name], 1) if name in seconds else "",
        }


def print_table(title: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows as Markdown."""
    rows = list(rows)
    columns = list(rows[0])
    print(f"\n**{title}**\n")
    lines: list[Iterable[object]] = [
        columns,
        ["---"] * len(columns),
        *([row[name] for name in columns] for row in rows),
    ]
    for cells in lines:
        print(f"| {' | '.join(map(str, cells))} |")
    sys.stdout.flush()


def _shown(store: str) -> str:
    return store.partition("://")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to keep text, vectors and indexes for the next run")
    parser.add_argument("--propositions", type=int, default=50_000)
    parser.add_argument("--corpus", choices=("real", "made-up"))
    parser.add_argument("--stores", nargs="+", default=["lancedb"], metavar="STORE", help=f"of {', '.join(STORES)}")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20, help="of these questions, how many are not counted")
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--compare-with", type=int, metavar="PROPOSITIONS", help="another size, in the same run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured")
    options = parser.parse_args()
    if "lancedb" not in options.stores:
        options.stores.insert(0, "lancedb")  # exact answers are worked out from its vectors
    logging.disable(logging.WARNING)
    packages = ", ".join(f"{name} {version(name)}" for name in ("lancedb", "faiss-cpu", "llama-index-core"))
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}.")
    with ExitStack() as stack:
        folder = (options.dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        run(options, folder, stack)


PARTS = ("building", "opening", "searching", "deleting")


def run(options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    medians: dict[int, float] = {}
    for propositions in filter(None, (options.compare_with, options.propositions)):
        kind = options.corpus or ("real" if propositions <= MOST_REAL else "made-up")
        corpus = "made-up" if kind == "made-up" else str(folder / f"text-{propositions}")
        bench = Bench(folder / f"{kind}-{propositions}", corpus, propositions, options.questions)
        stores = [stack.enter_context(server_of(store, bench.folder)) for store in options.stores]
        print(f"\n## {propositions:,} propositions: {bench.corpus.name}")
        rows = list(building(bench, stores))
        if "building" in options.parts:
            print_table("Building", rows)
        if "opening" in options.parts:
            print_table("Opening in a fresh process", opening(bench, stores))
        if "searching" in options.parts:
            found, medians[propositions] = searching(bench, stores, options.top_k, options.warm_up)
            print_table(f"Retrieving {options.top_k} nodes, {options.questions - options.warm_up} questions", found)
        if "deleting" in options.parts and propositions <= MOST_REAL:
            print_table("Deleting every second document", deleting(bench, "lancedb"))
    if len(medians) > 1:
        small, large = medians.values()
        print(f"\nThe default search takes {large / small:.2f} times as long as with {options.compare_with:,}.")


if __name__ == "__main__":
    main()
