"""The cost of ingestion besides the LLM: time, CPU, lost passages, unused rate limit and memory.

usage: python benchmarks/ingestion.py [speed | faults | rate | memory] [--passages N] [--json FILE] ...

Passages are made up, half of them in Japanese, and are the same in every run. The LLM is a stand-in that
answers each request after a second, in a separate process and over real HTTP, with the limits and faults of
real servers (tests/stand_in_llm.py); where only the work in this process counts, the LLM answers immediately.
Without the name of a measurement, all four run, which takes half an hour. Figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, Literal

import openai
from llama_index.core.async_utils import run_jobs
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage
from llama_pack_densex.propositionizers.base import PropositionSet
from llama_pack_densex.propositionizers.prompts import default_prompts, format_request, prompt_key
from llama_pack_densex.text.language import detect_language

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.ingestion_checks import expected_of, holds, twice, unreported
from tests.made_up_passages import InstantLLM, made_up
from tests.stand_in_llm import Faults, StandInLLM
from tests.streaming_peak import WAYS

ROOT = Path(__file__).resolve().parent.parent
MODEL = "gpt-4o-mini"
OLD_WORKERS = 8  # requests at a time in llama-index-packs-dense-x-retrieval
OLD_SHARE = 8  # that pack is slow, so it is measured on one passage in eight
FAULTS = Faults(
    rate_limited=0.10,
    retry_after=1.0,
    server_error=0.05,
    timeout=0.02,
    reset=0.02,
    malformed=0.05,
    cut_off=0.03,
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """The table of a measurement, and a note on it."""

    name: str
    note: str
    rows: list[Row]


@dataclass(frozen=True)
class Spent:
    """The seconds of a run: wall-clock time, and CPU time of this process on all cores."""

    wall: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def messages_for(passages: Iterable[Passage]) -> list[list[ChatMessage]]:
    """Return the messages that the propositionizer sends for each passage."""
    prompts, llm = default_prompts(), InstantLLM()
    conversations = []
    for passage in passages:
        language = detect_language(passage.text, f"{passage.title}\n{passage.section}")
        conversations.append(format_request(prompts[prompt_key(language)], llm, passage, ""))
    return conversations


def client(server: StandInLLM, **arguments: Any) -> OpenAI:
    return OpenAI(
        model=MODEL, api_base=server.url, api_key="sk-stand-in", max_retries=0, **arguments
    )


def warm_up() -> None:
    """Send first requests, during which the client imports many of its modules."""
    passages = list(made_up(2, 0.5))
    with StandInLLM() as server:
        LLMPropositionizer(client(server)).propositionize(passages)
        asyncio.run(ask_bare(server, messages_for(passages), 2))


async def ask_bare(
    server: StandInLLM, conversations: Sequence[Sequence[ChatMessage]], concurrency: int
) -> None:
    """Send the same requests with the provider's own client, and ignore the replies."""
    slots = asyncio.Semaphore(concurrency)
    requests: list[Any] = [
        [{"role": message.role.value, "content": message.content} for message in conversation]
        for conversation in conversations
    ]
    async with openai.AsyncOpenAI(
        base_url=server.url, api_key="sk-stand-in", max_retries=0
    ) as bare:

        async def ask(messages: Any) -> None:
            async with slots:
                await bare.chat.completions.create(model=MODEL, messages=messages, temperature=0.1)

        await asyncio.gather(*map(ask, requests))


async def ask_by_llama_index(
    server: StandInLLM, conversations: Sequence[Sequence[ChatMessage]], workers: int
) -> None:
    """Send requests as the old pack did: with LlamaIndex's client, one job each."""
    async with openai.DefaultAsyncHttpxClient() as connections:
        llm = client(server, async_http_client=connections)
        await run_jobs([llm.achat(messages) for messages in conversations], workers=workers)


def measure_speed(options: argparse.Namespace) -> Iterator[Figures]:
    """Compare time and CPU with those of the bare client, for the same requests."""
    passages = list(made_up(options.passages, options.japanese))
    messages, old_messages = messages_for(passages), messages_for(passages[::OLD_SHARE])
    warm_up()
    with StandInLLM(latency=options.latency) as server, tempfile.TemporaryDirectory() as folder:

        def make_propositionizer(**arguments: Any) -> LLMPropositionizer:
            return LLMPropositionizer(
                client(server), max_concurrency=options.concurrency, **arguments
            )

        keeping = {"cache": Path(folder) / "replies.db"}
        ways: dict[str, Callable[[], object]] = {
            "bare": lambda: asyncio.run(ask_bare(server, messages, options.concurrency)),
            "sync": lambda: make_propositionizer().propositionize(passages),
            "async": lambda: asyncio.run(make_propositionizer().apropositionize(passages)),
            "kept": lambda: make_propositionizer(**keeping).propositionize(passages),
            "from kept": lambda: make_propositionizer(**keeping).propositionize(passages),
            "achat": lambda: asyncio.run(ask_by_llama_index(server, messages, options.concurrency)),
            "old": lambda: asyncio.run(ask_by_llama_index(server, old_messages, OLD_WORKERS)),
        }
        runs = {name: spent(ways[name]) for name in ("bare", *options.ways)}
    ideal = len(passages) / options.concurrency * options.latency
    rows = [_speed_row(name, run, runs["bare"], ideal, len(passages)) for name, run in runs.items()]
    sizes = (
        f"{len(passages)} passages, {options.latency:g} s a reply, {options.concurrency} at a time"
    )
    yield Figures("speed", f"{sizes}: ideally {ideal:.1f} s.", rows)
    yield own_work(passages, options.concurrency)


_WAYS = {
    "bare": "bare client (AsyncOpenAI)",
    "sync": "propositionize",
    "async": "apropositionize",
    "kept": "propositionize, replies kept in a file",
    "from kept": "the same again, every reply from the file",
    "achat": "LlamaIndex's client alone (OpenAI.achat)",
    "old": f"old pack's way, {OLD_WORKERS} workers (1/{OLD_SHARE} of the passages, scaled)",
}


def _speed_row(name: str, run: Spent, bare: Spent, ideal: float, passages: int) -> Row:
    scale = OLD_SHARE if name == "old" else 1
    wall, cpu = run.wall * scale, run.cpu * scale
    return {
        "way": _WAYS[name],
        "wall, s": round(wall, 2),
        "times the bare client": round(wall / bare.wall, 3),
        "times the ideal": round(wall / ideal, 3),
        "CPU, ms a passage": round(1000 * cpu / passages, 2),
        "beyond the bare client's": round(1000 * (cpu - bare.cpu) / passages, 2),
    }


def own_work(passages: Sequence[Passage], concurrency: int) -> Figures:
    """Measure the propositionizer's own CPU time, with an LLM that answers immediately, less the LLM's."""
    llm, messages = InstantLLM(), messages_for(passages)
    with tempfile.TemporaryDirectory() as folder:
        files = (Path(folder) / f"{number}.db" for number in count())

        def make_propositionizer(**arguments: Any) -> LLMPropositionizer:
            return LLMPropositionizer(llm, max_concurrency=concurrency, **arguments)

        ways: dict[str, Callable[[], object]] = {
            "the LLM": lambda: [llm.chat(conversation) for conversation in messages],
            "propositionize": lambda: make_propositionizer().propositionize(passages),
            "apropositionize": lambda: asyncio.run(
                make_propositionizer().apropositionize(passages)
            ),
            "stream": lambda: list(make_propositionizer().stream(passages)),
            "propositionize, replies kept in a file": lambda: make_propositionizer(
                cache=next(files)
            ).propositionize(passages),
        }
        seconds = {name: min(spent(work).cpu for _ in range(3)) for name, work in ways.items()}
    llm_seconds = seconds.pop("the LLM")
    rows = [
        {"way": name, "own CPU, ms a passage": round(1000 * (cpu - llm_seconds) / len(passages), 2)}
        for name, cpu in seconds.items()
    ]
    note = (
        "CPU time of this process, with an LLM in it that answers immediately, less the LLM's; the least of "
        "three runs."
    )
    return Figures("own work", note, rows)


def measure_faults(options: argparse.Namespace) -> Iterator[Figures]:
    """Check that nothing is lost or answered twice when much goes wrong, and measure the time."""
    passages = list(made_up(options.passages, options.japanese))
    warm_up()
    with StandInLLM(latency=options.latency, faults=FAULTS, seed=options.seed) as server:
        propositionizer = LLMPropositionizer(
            client(server, timeout=options.timeout), max_concurrency=options.concurrency
        )
        sets: list[PropositionSet] = []
        run = spent(lambda: sets.extend(propositionizer.propositionize(passages)))
        log = server.log()
    requests, seconds = expected_of(FAULTS, options.latency, options.timeout)
    ideal = len(passages) * seconds / options.concurrency
    times = {"timeout": options.timeout, "rate_limited": 0.0, "reset": 0.0}
    request_seconds = (
        sum(times.get(entry.kind, options.latency) for entry in log) / options.concurrency
    )
    statuses = Counter(result.status for result in sets)
    row = {
        "passages": len(passages),
        "lost": sum(not holds(*pair) for pair in zip(passages, sets, strict=True)),
        "answered twice": twice(log),
        "fallbacks not reported": sum(
            unreported(*pair) for pair in zip(passages, sets, strict=True)
        ),
        "repaired": statuses["repaired"],
        "fallbacks": statuses["fallback"],
        "requests": len(log),
        "expected requests": round(requests * len(passages)),
        "wall, s": round(run.wall, 1),
        "times the ideal": round(run.wall / ideal, 2),
        "times the time of the requests": round(run.wall / request_seconds, 2),
    }
    reasons = Counter(result.reason for result in sets if result.status == "fallback").most_common()
    shares = ", ".join(f"{name} {share:.0%}" for name, share in FAULTS.shares.items() if share)
    note = (
        f"{shares}; {options.latency:g} s a reply, {options.timeout:g} s to a time-out, "
        f"{options.concurrency} at a "
        f"time: ideally {ideal:.1f} s for the expected requests, {request_seconds:.1f} s for the "
        "actual ones."
    )
    rows = [{"in all": name, "": value} for name, value in row.items()]
    yield Figures("faults", note, rows)
    yield Figures(
        "faults: requests",
        "What they were answered with.",
        [dict(Counter(entry.kind for entry in log))],
    )
    yield Figures(
        "faults: fallbacks",
        "Their reasons.",
        [{"passages": n, "reason": why} for why, n in reasons],
    )


def measure_rate(options: argparse.Namespace) -> Iterator[Figures]:
    """Measure how much of a server's rate limit is used, and how many requests it refuses."""
    passages = list(made_up(options.passages, options.japanese))
    warm_up()
    rows = []
    for kind in options.kinds:
        for stated_rate in (options.rate, None):
            rows.append(_rate_row(kind, stated_rate, passages, options))
            print(f"... {rows[-1]}", file=sys.stderr, flush=True)
    sizes = f"{len(passages)} passages, {options.rate:g} requests a minute, {options.latency:g} s a reply."
    burst = "A limit lets a burst through at first, so that more than the whole of it can be used."
    yield Figures("rate", f"{sizes} {burst}", rows)


def _rate_row(
    kind: Literal["bucket", "sliding", "fixed"],
    stated_rate: float | None,
    passages: Sequence[Passage],
    options: argparse.Namespace,
) -> Row:
    with StandInLLM(
        latency=options.latency, requests_per_minute=options.rate, limit_kind=kind
    ) as server:
        propositionizer = LLMPropositionizer(
            client(server), max_concurrency=options.concurrency, requests_per_minute=stated_rate
        )
        sets: list[PropositionSet] = []
        run = spent(lambda: sets.extend(propositionizer.propositionize(passages)))
        log = server.log()
    let_through = [entry.arrived for entry in log if entry.kind == "ok"]
    allowed = options.rate / 60 * (let_through[-1] - let_through[0])
    return {
        "limit": kind,
        "told the rate": "yes" if stated_rate else "no",
        "wall, s": round(run.wall, 1),
        "allowance used": f"{(len(let_through) - 1) / allowed:.1%}",
        "requests refused": f"{1 - len(let_through) / len(log):.1%}",
        "peak in flight": max(entry.in_flight for entry in log),
        "fallbacks": sum(result.status == "fallback" for result in sets),
    }


def measure_memory(options: argparse.Namespace) -> Iterator[Figures]:
    """Measure peak memory by number of passages, each in a process of its own."""
    rows = []
    for way in WAYS:
        peaks = []
        for passages in (options.few, options.passages):
            command = [sys.executable, "-m", "tests.streaming_peak", way, str(passages)]
            peaks.append(
                float(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
            )
        labels = (f"{options.few} passages, MB", f"{options.passages} passages, MB", "more, MB")
        rows.append(
            {"way": way, **dict(zip(labels, (*peaks, round(peaks[1] - peaks[0], 1)), strict=True))}
        )
    yield Figures(
        "memory",
        "Peak memory, with an LLM in the process that answers immediately, and no store.",
        rows,
    )


def print_table(figures: Figures) -> None:
    """Print figures as Markdown."""
    print(f"\n**{figures.name}.** {figures.note}\n")
    if not figures.rows:
        print("None.")
        return
    columns = list(figures.rows[0])
    for cells in (
        columns,
        ["---"] * len(columns),
        *([row.get(name, "") for name in columns] for row in figures.rows),
    ):
        print(f"| {' | '.join(map(str, cells))} |")
    sys.stdout.flush()


ALL = ("speed", "faults", "rate", "memory")


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = main_parser.add_subparsers(metavar="|".join(ALL))

    def command(
        name: str, work: Callable[[argparse.Namespace], Iterator[Figures]], passages: int
    ) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, description=work.__doc__)
        subparser.set_defaults(work=work)
        subparser.add_argument("--passages", type=int, default=passages)
        subparser.add_argument(
            "--japanese", type=float, default=0.5, help="share of Japanese passages"
        )
        subparser.add_argument("--concurrency", type=int, default=64, help="concurrent requests")
        subparser.add_argument("--latency", type=float, default=1.0, help="seconds per reply")
        subparser.add_argument("--json", type=Path, help="a file to write the figures to")
        return subparser

    speed = command("speed", measure_speed, 2000)
    speed.add_argument("--ways", nargs="+", choices=list(_WAYS)[1:], default=list(_WAYS)[1:])
    faults = command("faults", measure_faults, 2000)
    faults.add_argument(
        "--timeout", type=float, default=5.0, help="seconds after which the client gives up"
    )
    faults.add_argument("--seed", type=int, default=1, help="seed that decides which requests fail")
    rate = command("rate", measure_rate, 1200)
    rate.add_argument(
        "--rate", type=float, default=600.0, help="requests per minute that the server allows"
    )
    kinds = ("bucket", "sliding", "fixed")
    rate.add_argument(
        "--kinds", nargs="+", choices=kinds, default=kinds, help="how the server's limit works"
    )
    memory = command("memory", measure_memory, 100_000)
    memory.add_argument("--few", type=int, default=1000, help="passages in the run to compare with")
    return main_parser


def main() -> None:
    argv, measurements = sys.argv[1:], []
    is_named = bool(argv) and (argv[0] in ("-h", "--help") or not argv[0].startswith("-"))
    logging.disable(logging.WARNING)
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, llama-index-core "
        f"{version('llama-index-core')}, "
        f"llama-index-llms-openai {version('llama-index-llms-openai')}, openai {version('openai')}."
    )
    for arguments in [argv] if is_named else [[name, *argv] for name in ALL]:
        options = parser().parse_args(arguments)
        for figures in options.work(options):
            print_table(figures)
            measurements.append(asdict(figures))
        if options.json:
            options.json.write_text(
                json.dumps(measurements, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
