"""How `densex serve` holds up under load: clients that ask without a pause, without an LLM.

usage: python benchmarks/serving.py [--clients 50] [--seconds 60] [--warm-up 10]

A separate process serves the repository's sample documents. The clients ask the sample questions in turn, by
/query, /retrieve and /chat, and each waits for its answer before it asks again. Memory is the server's
resident set (`ps`), sampled every second after the warm-up. The exit code is 1 if a request failed, if the
95th percentile is over 5 times the median, or if memory grew by more than a tenth. Figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import httpx

DATA = Path(__file__).parent.parent / "llama_pack_densex" / "samples"
PATHS = ("/query", "/retrieve", "/chat")
DENSEX = "from llama_pack_densex.cli import app; app()"


@dataclass
class Load:
    """Measurements under load: seconds by path (after the warm-up), failures, and the server's MB."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {path: [] for path in PATHS})
    failures: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """Index the sample documents and serve them; yield the URL and the server's process id."""
    index = [
        sys.executable,
        "-c",
        DENSEX,
        "index",
        str(DATA),
        "--to",
        str(folder),
        "--embed-model",
        "none",
    ]
    recorded = ["--propositionizer", f"recorded:{DATA / 'propositions.jsonl'}"]
    subprocess.run(
        [*index, *recorded], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    options = [str(folder), "--port", "0", "--query-llm", "none"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", DENSEX, "serve", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield (
            next(part for part in process.stdout.readline().split() if part.startswith("http")),
            process.pid,
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


async def put_load_on(url: str, pid: int, clients: int, seconds: float, warm_up: float) -> Load:
    """Have clients ask for `seconds` after the warm-up."""
    questions = [
        json.loads(line)["question"]
        for line in (DATA / "questions.jsonl").read_text("utf-8").splitlines()
    ]
    load = Load()
    begin = time.monotonic() + warm_up
    end = begin + seconds

    async def ask(number: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            for turn in itertools.count(number):
                path = PATHS[turn % len(PATHS)]
                start = time.monotonic()
                if start > end:
                    return
                try:
                    response = await client.post(
                        path, json={"question": questions[turn * 7 % len(questions)]}
                    )
                    is_whole = response.status_code == 200 and (
                        path != "/chat" or "event: answer" in response.text
                    )
                    failure = (
                        "" if is_whole else f"{path}: {response.status_code} {response.text[-200:]}"
                    )
                except httpx.HTTPError as error:
                    failure = f"{path}: {error!r}"
                if failure:
                    load.failures.append(failure)
                elif start > begin:
                    load.seconds[path].append(time.monotonic() - start)

    async def sample_memory() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(1)
            if time.monotonic() > begin:
                resident = await asyncio.to_thread(
                    subprocess.check_output, ["ps", "-o", "rss=", "-p", str(pid)]
                )
                load.memory.append(int(resident) / 1024)

    await asyncio.gather(sample_memory(), *map(ask, range(clients)))
    return load


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "index") as (url, pid):
        load = asyncio.run(put_load_on(url, pid, options.clients, options.seconds, options.warm_up))
    print(
        f"{options.clients} clients, {options.seconds:.0f} s, Python {platform.python_version()}, "
        f"{platform.machine()}\n"
    )
    print(f"{'':10} {'requests':>9} {'a second':>9} {'median':>9} {'95 %':>9} {'ratio':>6}")
    is_sound = not load.failures
    all_seconds = [seconds for times in load.seconds.values() for seconds in times]
    for path, times in [*load.seconds.items(), ("all", all_seconds)]:
        middle, slow = median(times), quantiles(times, n=20)[-1]
        is_sound = is_sound and slow <= 5 * middle
        rate = len(times) / options.seconds
        print(
            f"{path:10} {len(times):9,} {rate:9.0f} {middle * 1000:6.0f} ms {slow * 1000:6.0f} ms "
            f"{slow / middle:6.1f}"
        )
    third = max(len(load.memory) // 3, 1)
    first, last = median(load.memory[:third]), median(load.memory[-third:])
    print(
        f"\nmemory: {first:,.0f} MB in the first third, {last:,.0f} MB in the last; failures: "
        f"{len(load.failures)}"
    )
    for failure in load.failures[:5]:
        print(failure)
    return 0 if is_sound and last <= 1.1 * first else 1


if __name__ == "__main__":
    sys.exit(main())
