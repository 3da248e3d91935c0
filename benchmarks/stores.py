"""The embedded store compared with LlamaIndex's usual alternatives: building, opening, searching, changing.

usage: OMP_NUM_THREADS=1 python benchmarks/stores.py [--dir FOLDER] [--propositions 50000] [--parts searching
...]
       ... --dir FOLDER --propositions 50000 1000000 --corpus made-up
       ... --dir FOLDER --propositions 5000 50000 500000 --sentences 5 --corpus made-up --parts changing

Up to 200,000 propositions, the corpus is real text with the vectors of all-MiniLM-L6-v2; beyond that, it is
made-up text with vectors of a mixture (store_bench/corpora.py describes both; `--corpus made-up` selects the
latter at any size). Sentences are used as propositions, so no LLM is needed. The nodes are those that a pack
makes with its defaults in mode "auto_merging" (sections of 2,048 tokens, passages of 256, propositions), so
that one index serves both modes; propositions and passages are searched. LlamaIndex's stores and retrievers
(the extra `chroma`, and the package llama-index-retrievers-bm25) get the propositions, with the same texts,
vectors and metadata.

Building, opening and changing run in a process of their own each (store_bench/process.py); memory is as the
operating system reports it. All searches take turns, question by question, in one process. Texts are embedded
before the clock starts. recall@10 is the share of the ten nearest propositions by an exact scan that is among
the store's first ten; results that are as near count too. Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from store_bench.corpora import Corpus, corpus_of
from store_bench.process import opened
from store_bench.searches import (
    HYBRID,
    Propositions,
    measured,
    nearest_propositions,
    other_searches,
    pack_searches,
)

HERE = Path(__file__).resolve().parent
MOST_REAL = 200_000  # the most propositions that real text suffices for
PARTS = ("building", "opening", "searching", "changing", "loop")

Row = dict[str, object]


@dataclass(frozen=True)
class Bench:
    """One corpus and its index.

    Args:
        folder: The folder of indexes; existing ones are reused.
        text: The folder of real text, or "made-up".
        propositions: The number of propositions.
        sentences: The number of sentences in a made-up document.
    """

    folder: Path
    text: str
    propositions: int
    sentences: int

    @property
    def index(self) -> Path:
        return self.folder / "index"

    def corpus(self) -> Corpus:
        return corpus_of(self.text, self.propositions, self.sentences)

    def in_process(self, action: str, folder: Path) -> dict[str, Any]:
        """Run an action of store_bench/process.py in a new process, and return its measurements."""
        command = [
            sys.executable,
            "-m",
            "store_bench.process",
            action,
            folder,
            "--corpus",
            self.text,
        ]
        command += ["--propositions", self.propositions, "--sentences", self.sentences]
        done = subprocess.run(
            list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        measurements: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measurements

    def built(self) -> dict[str, Any]:
        """Build the index unless it exists, and return the measurements of building it."""
        file = self.folder / "built.json"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(self.in_process("build", self.index)), encoding="utf-8")
        measurements: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return measurements


def building(bench: Bench) -> Row:
    """Measure how fast an index is built, and how large it is."""
    built = bench.built()
    size = sum(file.stat().st_size for file in bench.index.rglob("*") if file.is_file())
    return {
        "documents": built["documents"],
        "nodes in all": sum(
            built[unit] for unit in ("propositions", "passages", "sections", "sentences")
        ),
        "seconds": round(built["seconds"]),
        "propositions a second": round(built["propositions"] / built["seconds"]),
        "CPU, ms a proposition": round(1000 * built["cpu"] / built["propositions"], 2),
        "peak memory, MB": round(built["peak"]),
        "on disk, MB": round(size / 1e6),
    }


def opening(bench: Bench) -> Row:
    """Measure how soon a new process answers, and how much memory it takes."""
    measurements = bench.in_process("open", bench.index)
    imports, first, more = measurements["memory"]
    return {
        "opened, s": round(measurements["open"], 2),
        "first answer, ms": milliseconds(measurements["first"]),
        "20 more, ms": milliseconds(median(measurements["more"])),
        "imports, MB": round(imports["resident"]),
        "first answer, MB": round(first["resident"]),
        "20 more, MB": round(more["resident"]),
        "beyond imports, not mapped, MB": round(more["own"] - imports["own"]),
    }


def changing(bench: Bench) -> Row:
    """Measure the time of a change to one document, and of the questions after it."""
    times = bench.in_process("change", bench.index)
    row: Row = {"documents": bench.built()["documents"]}
    for name, seconds in times.items():
        row[f"{name}, ms"] = (
            f"{milliseconds(median(seconds))} ({milliseconds(np.percentile(seconds, 95))})"
        )
    return row


def looping(bench: Bench) -> Row:
    """Measure the time of inserting documents one by one."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        seconds = bench.in_process("loop", Path(folder) / "index")["insert"]
    parts = {"first 100, ms": seconds[:100], "last 100, ms": seconds[-100:]}
    inserts: Row = {"documents": len(seconds), "seconds": round(sum(seconds), 1)}
    return inserts | {name: milliseconds(median(part)) for name, part in parts.items()}


def searching(bench: Bench, options: argparse.Namespace) -> tuple[list[Row], float]:
    """Measure the searches: one row each, and the default search's median in milliseconds."""
    corpus = bench.corpus()
    pack = opened(bench.index, corpus)
    propositions = Propositions.of(pack)
    questions = corpus.questions(options.questions)
    searches = list(pack_searches(bench.index, corpus, options.top_k))
    if not options.alone:
        searches += other_searches(
            propositions.nodes(pack), corpus, bench.folder / "chroma", options.top_k
        )
    measured(searches, questions[:1])  # loads what is read at the first question
    times = measured(searches, questions[options.warm_up :], options.rounds)
    rows: list[Row] = []
    for search in searches:
        own = times[search.name]
        compared = times.get(search.beside, own)
        rows.append(
            {
                "search": search.name,
                "median, ms": round(median(own.clock), 2),
                "95 %, ms": round(float(np.percentile(own.clock, 95)), 2),
                "of all cores, ms": round(median(own.cores), 2),
                "beside": search.beside,
                "times": round(median(own.clock) / median(compared.clock), 2),
                "times of all cores": round(median(own.cores) / median(compared.cores), 2),
            }
        )
    recall = propositions.recall(nearest_propositions(pack), questions)
    print(
        f"\nrecall@10 of the store: {recall:.4f}; {os.getloadavg()[0]:.1f} processes wait for the cores."
    )
    return rows, median(times[HYBRID].clock)


def milliseconds(seconds: float) -> float:
    return round(1000 * float(seconds), 1)


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows as Markdown."""
    lines: list[Iterable[object]] = [
        rows[0],
        ["---"] * len(rows[0]),
        *(row.values() for row in rows),
    ]
    print(f"\n**{title}**\n")
    for cells in lines:
        print(f"| {' | '.join(map(str, cells))} |")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, help="a folder that keeps text, vectors and indexes for the next run"
    )
    parser.add_argument(
        "--propositions", type=int, nargs="+", default=[50_000], help="one size, or several"
    )
    parser.add_argument("--corpus", choices=("real", "made-up"))
    parser.add_argument("--sentences", type=int, default=80, help="sentences in a made-up document")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument(
        "--warm-up", type=int, default=20, help="how many of these questions are not counted"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="how often each question is asked; the least time counts",
    )
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--alone", action="store_true", help="search only the pack's index")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    packages = ", ".join(f"{name} {version(name)}" for name in ("usearch", "llama-index-core"))
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}."
    )
    with tempfile.TemporaryDirectory() as temporary:
        run(options, (options.dir or Path(temporary)).resolve())


def run(options: argparse.Namespace, folder: Path) -> None:
    medians: list[float] = []
    for propositions in options.propositions:
        kind = options.corpus or ("real" if propositions <= MOST_REAL else "made-up")
        text = "made-up" if kind == "made-up" else str(folder / f"text-{propositions}")
        bench = Bench(
            folder / f"{kind}-{propositions}-{options.sentences}",
            text,
            propositions,
            options.sentences,
        )
        print(f"\n## {propositions:,} propositions: {bench.corpus().name}")
        table = building(bench)
        if "building" in options.parts:
            print_table("Building", [table])
        if "opening" in options.parts:
            print_table("Opening in a fresh process", [opening(bench)])
        if "searching" in options.parts:
            rows, default = searching(bench, options)
            medians.append(default)
            print_table(
                f"Retrieving {options.top_k} nodes, {options.questions - options.warm_up} questions",
                rows,
            )
        if "changing" in options.parts:
            print_table("Changing a document: median (95 %)", [changing(bench)])
        if "loop" in options.parts:
            print_table("Inserting documents one by one", [looping(bench)])
    if len(medians) > 1:
        print(
            f"\nThe default search takes {medians[-1] / medians[0]:.2f} times as long as with the first size."
        )


if __name__ == "__main__":
    main()
