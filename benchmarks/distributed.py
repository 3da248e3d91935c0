"""The cost of ingestion on several processes, besides the LLM and the embedding model.

usage: python benchmarks/distributed.py [work | ray] [--passages N] [--workers N ...] [--json FILE] ...

work: CPU time per passage, step by step, with an LLM that answers immediately; embedding if all-MiniLM-L6-v2
is installed. ray: passages per second through `ingest_shards` by number of workers, on a cluster on this
machine (needs the extra [ray]), with an LLM that answers immediately and with a slow one. Without a name,
both run. Passages are made up in the shape of FACTOIDWIKI's (58.5 words, 6.2 propositions), so nothing is
downloaded. Figures are in docs/scaling.md; benchmarks/factoidwiki_plan.py calculates with them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import platform
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llama_index.core import Document
from llama_index.core.schema import BaseNode

from llama_pack_densex import LLMPropositionizer, Passage, Propositionizer, PropositionNodeParser
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.models import RETRIEVERS, cached_model, resolve_embed_model
from llama_pack_densex.propositionizers.base import PropositionSet
from llama_pack_densex.propositionizers.prompts import default_prompts, format_request, prompt_key

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.made_up_passages import InstantLLM
from tests.stand_in_llm import StandInLLM, propositions_of

ROOT = Path(__file__).resolve().parent.parent

Row = dict[str, Any]

MODEL = "gpt-4o-mini"
NODES_PER_BATCH = 512  # nodes sent from one process to another together


@dataclass(frozen=True)
class Figures:
    """A table of figures, and a note on them."""

    name: str
    note: str
    rows: list[Row]


def made_up(count: int) -> list[Document]:
    """Make English passages of about 58 words in three sentences, each a document."""
    documents = []
    for number in range(count):
        rng = random.Random(number)
        place = rng.choice(("Arlen", "Karsted", "Velmoor", "Dunbrae"))
        name = rng.choice(("Ida Brandvold", "Ruth Calder"))
        text = (
            f"The old bridge of {place} was built in {rng.randint(1500, 1999)} by {name}, an engineer from "
            "Tromsø, for "
            f"the fishermen. It is {rng.randint(12, 999)} metres long and crosses the river near the painted "
            "market, "
            f"which {rng.randint(3, 99)} masons had restored. Her brother drew the plans of lamp {number}, "
            "and the "
            f"museum, which opened in {rng.randint(1950, 2020)}, still shows them to its visitors on Sundays."
        )
        documents.append(
            Document(id_=f"passage-{number}", text=text, metadata={"title": f"Bridge of {place}"})
        )
    return documents


class Given(Propositionizer):
    """Makes the propositions of the stand-in LLM without an LLM."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return self.propositionize(passages)

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [PropositionSet(tuple(propositions_of(passage.text))) for passage in passages]

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least CPU seconds of three runs (all threads together), and the work's result."""
    times = []
    for _ in range(3):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return min(times), result


def measure_work(options: argparse.Namespace) -> Iterator[Figures]:
    """Measure CPU time per passage, step by step."""
    documents = made_up(options.passages)
    count = len(documents)
    bare = PropositionNodeParser(granularity=())
    propositionizer = LLMPropositionizer(InstantLLM(), max_concurrency=8)
    passages = [passage for document in documents for passage in bare.passages_of(document)]
    messages = [
        format_request(default_prompts()[prompt_key("en")], InstantLLM(), passage, "")
        for passage in passages
    ]
    seconds: dict[str, float] = {}
    seconds["splitting, passage nodes"], _ = cpu(lambda: list(bare.stream(documents)))
    llm_seconds, _ = cpu(lambda: [InstantLLM().chat(conversation) for conversation in messages])
    propositioning_seconds, _ = cpu(lambda: propositionizer.propositionize(passages))
    seconds["propositionising, less the LLM"] = propositioning_seconds - llm_seconds
    with tempfile.TemporaryDirectory() as folder:
        replies = Path(folder) / "replies.db"
        caching = LLMPropositionizer(InstantLLM(), cache=replies)
        caching.propositionize(passages)
        sqlite3.connect(replies).execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cached_bytes = replies.stat().st_size / count
        seconds["propositionising from kept replies"], _ = cpu(
            lambda: caching.propositionize(passages)
        )
    propositions_seconds, _ = cpu(lambda: Given().propositionize(passages))
    parsing_seconds, nodes = cpu(
        lambda: _nodes(PropositionNodeParser(propositionizer=Given()), documents)
    )
    seconds["proposition nodes and links"] = (
        parsing_seconds - propositions_seconds - seconds["splitting, passage nodes"]
    )
    embedded = embed(nodes, seconds) if not options.no_embedding else 0
    for node in nodes:
        node.embedding = node.embedding or [number / 384 for number in range(384)]
    batches = [
        nodes[start : start + NODES_PER_BATCH] for start in range(0, len(nodes), NODES_PER_BATCH)
    ]
    seconds["nodes written for another process"], pickled = cpu(
        lambda: [pickle.dumps(batch, 5) for batch in batches]
    )
    seconds["nodes read by it"], _ = cpu(lambda: [len(pickle.loads(batch)) for batch in pickled])
    with tempfile.TemporaryDirectory() as folder:
        stores = iter([EmbeddedVectorStore(Path(folder) / str(number)) for number in range(3)])
        seconds["nodes written to the store"], _ = cpu(lambda: next(stores).add(nodes))
    hasher = bare.document_hasher()
    seconds["hash of the documents"], _ = cpu(lambda: [hasher(document) for document in documents])
    words = sum(len(passage.text.split()) for passage in passages) / count
    size = sum(map(len, pickled)) / len(nodes)
    note = (
        f"{count} made-up passages of {words:.1f} words; {len(nodes) / count:.1f} nodes a passage, "
        f"{size:,.0f} bytes a "
        f"node between processes with its 384 numbers, {cached_bytes:,.0f} bytes a kept reply; least of "
        "three runs."
    )
    if not embedded:
        note += " Embedding was not measured: all-MiniLM-L6-v2 is not installed, or was left out."
    yield Figures(
        "work",
        note,
        [{"step": name, "CPU, ms a passage": _ms(s / count)} for name, s in seconds.items()],
    )


def embed(nodes: Sequence[BaseNode], seconds: dict[str, float]) -> int:
    """Embed a sample with MiniLM if it is installed; return how many texts were embedded."""
    if cached_model(RETRIEVERS["minilm"].checkpoint) is None:
        return 0
    model, _ = resolve_embed_model("minilm")
    assert model is not None
    import torch

    torch.set_num_threads(1)  # with several, waiting threads would count as work
    sample = nodes[: max(256, len(nodes) // 8)]
    model.get_text_embedding_batch(["a text to begin with"])
    start = time.process_time()
    model([*sample])
    seconds["embedding with all-MiniLM-L6-v2"] = (
        (time.process_time() - start) * len(nodes) / len(sample)
    )
    return len(sample)


def _nodes(parser: PropositionNodeParser, documents: Sequence[Document]) -> list[BaseNode]:
    return [node for parsed in parser.stream(documents) for node in parsed.nodes]


def make_instant_llm() -> InstantLLM:
    """Make the LLM of a worker, which answers immediately."""
    return InstantLLM()


def measure_ray(options: argparse.Namespace) -> Iterator[Figures]:
    """Measure passages per second by number of workers."""
    if find_spec("ray") is None:
        print('the measurement "ray" needs: pip install "llama-pack-densex[ray]"', file=sys.stderr)
        return
    import ray

    environment = {
        "env_vars": {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "OPENAI_API_KEY": "sk-stand-in"}
    }
    cpus = max(options.workers)
    ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=300 * 2**20,
             logging_level=logging.ERROR, log_to_driver=False, runtime_env=environment)  # fmt: skip
    rows = []
    with StandInLLM(latency=options.latency) as server:
        from llama_index.llms.openai import OpenAI

        waiting = OpenAI(model=MODEL, api_base=server.url, api_key="sk-stand-in")
        ways = {
            "answers at once": LLMPropositionizer(
                llm_factory="distributed:make_instant_llm", max_concurrency=8
            ),
            f"takes {options.latency:g} s, 8 at a time": LLMPropositionizer(
                waiting, max_concurrency=8
            ),
        }
        for way, propositionizer in ways.items():
            for workers in options.workers:
                count = (
                    options.passages
                    if way == "answers at once"
                    else int(8 * workers / options.latency * 20)
                )
                parser = PropositionNodeParser(propositionizer=propositionizer)
                rows.append({"LLM": way, "workers": workers, **ray_run(parser, count, workers)})
    ray.shutdown()
    note = (
        f"`ingest_shards` into the embedded store, no embedding; a cluster of {cpus} CPUs on "
        f"{os.cpu_count()} cores."
    )
    yield Figures("ray", note, rows)


def ray_run(parser: PropositionNodeParser, count: int, workers: int) -> Row:
    """Ingest passages; the time until the first batch, which includes the workers' start, is separate."""
    from llama_pack_densex.ingestion.ray import ingest_shards

    start = time.perf_counter()
    times = []
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedVectorStore(Path(folder) / "store")
        settings: dict[str, Any] = {"workers": workers, "batch_size": 64, "shard_size": 64}
        for result in ingest_shards(iter(made_up(count)), parser, store, **settings):
            times.append((time.perf_counter() - start, result.documents))
    first, last = times[0], times[-1]
    steady = (count - first[1]) / (last[0] - first[0]) if len(times) > 1 else float("nan")
    return {
        "passages": count,
        "first 64 after, s": round(first[0], 1),
        "then passages a second": round(steady, 1),
    }


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def show(figures: Figures) -> None:
    print(f"\n{figures.name}\n\n{figures.note}\n")
    names = list(figures.rows[0])
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in figures.rows:
        print(f"| {' | '.join(str(row[name]) for name in names)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", nargs="*", choices=[*MEASUREMENTS, []], default=[])
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--latency", type=float, default=1.0, help="seconds per reply of the slow LLM"
    )
    parser.add_argument("--no-embedding", action="store_true")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    options = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    print(
        f"{os.cpu_count()} cores ({platform.processor() or platform.machine()}), Python "
        f"{platform.python_version()}, llama-index-core {version('llama-index-core')}"
    )
    measurements = []
    for name in options.which or MEASUREMENTS:
        for figures in MEASUREMENTS[name](options):
            show(figures)
            measurements.append(figures)
    if options.json:
        options.json.write_text(
            json.dumps([asdict(figures) for figures in measurements], indent=1), "utf-8"
        )


MEASUREMENTS = {"work": measure_work, "ray": measure_ray}

if __name__ == "__main__":
    main()
