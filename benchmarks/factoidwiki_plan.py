"""What a corpus of FACTOIDWIKI's size comes to: tokens, money, GPU hours, bytes, and days by number of
workers.

usage: python benchmarks/factoidwiki_plan.py [--measured FILE ...]

The files are what `python benchmarks/distributed.py --json FILE` wrote; without them there are no days. All
else is reckoned from published figures and from assumptions, which are the constants below, with their
sources, and from the prompts of this package, counted with LlamaIndex's tokenizer. The tables are in
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from llama_pack_densex import Passage, load_sample
from llama_pack_densex.llm.usage import Usage, count_messages, count_tokens, price_of
from llama_pack_densex.propositionizers.prompts import default_prompts, format_request, prompt_key

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.distributed import Figures, Row, show
from tests.made_up_passages import InstantLLM

ROOT = Path(__file__).resolve().parent.parent

# Chen et al. (2023), table 1: the English Wikipedia of 13 October 2021.
PASSAGES, WORDS_A_PASSAGE = 41_393_528, 58.5
PROPOSITIONS, WORDS_A_PROPOSITION = 256_885_003, 11.2
UNITS = PASSAGES + PROPOSITIONS

MODEL = "gpt-4o-mini"
HEADING_TOKENS = 10  # assumed: a title and a section
# OpenAI's limits for gpt-4o-mini, highest tier (community.openai.com/t/1269349, 2025); requests in a batch
# file.
REQUESTS_A_MINUTE, QUEUED_TOKENS, REQUESTS_A_FILE = 30_000, 15e9, 50_000
# assumed: of one request, and requests of one worker at a time
SECONDS_A_REPLY, CONCURRENCY = 2.0, 32

# Flan-T5-large's parameters by its published configuration: encoder; decoder with the output layer.
T5_ENCODER, T5_DECODER = 0.308e9, 0.442e9
# Tokens a second of T5-base, 128 texts at a time, FP16, sampling, on a V100: FasterTransformer's
# docs/t5_guide.md. The larger model is assumed to be slower by the ratio of the decoders' parameters.
T5_BASE_DECODER, T5_BASE_TOKENS = 0.138e9, {"transformers": 956, "FasterTransformer": 8519}
# assumed: subword tokens of the 32,000 of T5, with the quotes and commas of the list
T5_TOKENS_A_WORD = 1.45
# dense FP16 TFLOP/s, GB/s; vendor's
GPUS = {"V100": (125, 900), "A100 80 GB": (312, 2039), "H100 SXM": (989, 3350)}
UTILISATION = 0.4  # assumed: of the TFLOP/s, at best
MINILM_TEXTS = 14_200  # texts a second on a V100: sbert.net, "Pretrained Models"

# bytes a number
KINDS = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "product, 1/16": 0.25, "binary": 1 / 8}
LINKS = 16 * 2 * 4  # bytes a vector in an HNSW graph: twice m=16 links of four bytes

IN_WORKERS = (
    "splitting, passage nodes",
    "proposition nodes and links",
    "nodes written for another process",
)
ASKING = {
    "live": "propositionising, less the LLM",
    "replies kept": "propositionising from kept replies",
}
IN_DRIVER = ("nodes read by it", "nodes written to the store", "hash of the documents")


@dataclass(frozen=True)
class Tokens:
    """Tokens by core's tokenizer: of what is sent for a passage, of a reply, of instructions, and a word."""

    alone: float
    reply: float
    instructions: int
    text_word: float
    reply_word: float


def tokens_of_corpus() -> Tokens:
    """Tokens a passage: the prompts as they are, words as the sample texts have tokens."""
    lines = load_sample("en").recordings.read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    english = [record for record in records if record["text"].isascii()]
    words = sum(len(record["text"].split()) for record in english)
    text = sum(count_tokens(record["text"]) for record in english) / words
    said = sum(len(one.split()) for record in english for one in record["propositions"])
    reply = sum(count_tokens(json.dumps(record["propositions"])) for record in english) / said
    prompt, blank = default_prompts()[prompt_key("en")], Passage("")
    alone = count_messages(format_request(prompt, InstantLLM(), blank, ""))
    passage = WORDS_A_PASSAGE * text + HEADING_TOKENS
    replied = PROPOSITIONS / PASSAGES * WORDS_A_PROPOSITION * reply
    return Tokens(alone + passage, replied, alone, text, reply)


def money(tokens: Tokens) -> Figures:
    """Tokens and US dollars by way of asking."""
    price = price_of(MODEL, {})
    assert price is not None
    rows = []
    usage = Usage(PASSAGES, int(tokens.alone * PASSAGES), int(tokens.reply * PASSAGES))
    for batch in (False, True):
        queued = usage.input_tokens / QUEUED_TOKENS
        least = (
            f"{queued:.1f} full queues"
            if batch
            else f"{usage.requests / REQUESTS_A_MINUTE / 60:,.0f} h"
        )
        rows.append({
            "asked": "Batch API" if batch else "live",
            "requests, millions": round(usage.requests / 1e6, 1),
            "tokens sent a passage": round(tokens.alone),
            "received": round(tokens.reply),
            "sent, billions": round(usage.input_tokens / 1e9, 1),
            "received, billions": round(usage.output_tokens / 1e9, 1),
            "US dollars": f"{price.of(usage, batch):,.0f}",
            "at the highest limits, at least": least,
        })  # fmt: skip
    files = -(-PASSAGES // REQUESTS_A_FILE)
    note = (
        f"{MODEL}, list prices of {price.as_of}. Instructions of {tokens.instructions} tokens; "
        f"{tokens.text_word:.2f} "
        f"tokens a word of text, {tokens.reply_word:.2f} a word of a reply. The Batch API takes {files} "
        f"files of {REQUESTS_A_FILE:,} requests."
    )
    return Figures("money", note, rows)


def gpu_hours() -> Figures:
    """Hours of the paper's Propositionizer, and of embedding."""
    sent = WORDS_A_PASSAGE * T5_TOKENS_A_WORD + HEADING_TOKENS
    made = PROPOSITIONS / PASSAGES * WORDS_A_PROPOSITION * T5_TOKENS_A_WORD
    operations = 2 * (T5_ENCODER * sent + T5_DECODER * made) * PASSAGES
    slower = T5_DECODER / T5_BASE_DECODER
    rows = []
    for gpu, (teraflops, bandwidth) in GPUS.items():
        row: Row = {"GPU": gpu}
        for engine, speed in T5_BASE_TOKENS.items():
            a_second = speed / slower * bandwidth / GPUS["V100"][1]
            row[f"Propositionizer, {engine}, h"] = f"{made * PASSAGES / a_second / 3600:,.0f}"
        bound = operations / (teraflops * 1e12 * UTILISATION) / 3600
        row["its arithmetic alone, h"] = f"{bound:,.0f}"
        row["MiniLM, all units, h"] = (
            f"{UNITS / MINILM_TEXTS / bandwidth * GPUS['V100'][1] / 3600:,.1f}"
        )
        rows.append(row)
    note = (
        f"{sent:.0f} tokens in and {made:.0f} out a passage, {operations:.1e} operations in all. T5-base's "
        "published "
        f"tokens a second on a V100, {slower:.1f} times as slow for the larger decoder; other GPUs by memory "
        "bandwidth."
    )
    return Figures("gpu", note, rows)


def sizes() -> Figures:
    """Bytes of the vectors, and what the stores hold in memory."""
    rows = []
    for dimension in (384, 1024):
        for kind, size in KINDS.items():
            vectors = dimension * size
            rows.append({
                "dimensions": dimension,
                "numbers": kind,
                "bytes a vector": f"{vectors:,.0f}",
                "propositions, GB": f"{vectors * PROPOSITIONS / 1e9:,.0f}",
                "and passages, GB": f"{vectors * UNITS / 1e9:,.0f}",
                "with a graph (HNSW, m=16), GB": f"{(vectors + LINKS) * UNITS / 1e9:,.0f}",
                "Qdrant's rule (x 1.5), GB": f"{vectors * 1.5 * UNITS / 1e9:,.0f}",
            })  # fmt: skip
    return Figures(
        "sizes",
        f"{PROPOSITIONS:,} propositions, {UNITS:,} with the passages; 1 GB is 10^9 bytes.",
        rows,
    )


def days(work: dict[str, float], alone: float) -> Figures:
    """Time on Ray by number of workers.

    Args:
        work: CPU a passage by step, in milliseconds.
        alone: Passages a second that one worker made of replies that came at once.
    """
    parsing, driver = (sum(work[name] for name in names) for names in (IN_WORKERS, IN_DRIVER))
    own = {way: parsing + work[step] for way, step in ASKING.items()}
    slower = 1000 / alone / own["live"]  # than the sum of the steps
    own = {way: milliseconds * slower for way, milliseconds in own.items()}
    driver *= slower
    embedding = work.get("embedding with all-MiniLM-L6-v2")
    rows = []
    for workers in (1, 4, 16, 64, 256):
        row: Row = {"workers (a core each)": workers}
        live = {
            "replies": workers * CONCURRENCY / SECONDS_A_REPLY,
            "provider": REQUESTS_A_MINUTE / 60,
        }
        for way, milliseconds in own.items():
            bounds = {"workers": workers * 1000 / milliseconds, "driver": 1000 / driver}
            bounds |= live if way == "live" else {}
            narrowest = min(bounds, key=lambda bound: bounds[bound])
            row[f"{way}: passages a second"] = f"{bounds[narrowest]:,.0f}"
            row[f"{way}: days"] = f"{PASSAGES / bounds[narrowest] / 86400:,.1f} ({narrowest})"
        if embedding is not None:
            row["embedding on as many cores: days"] = (
                f"{PASSAGES * embedding / 1000 / workers / 86400:,.1f}"
            )
        rows.append(row)
    note = (
        f"A worker: {own['live']:.2f} ms a passage live, {own['replies kept']:.2f} ms with kept replies; the "
        "driver: "
        f"{driver:.2f} ms for all workers together: {slower:.2f} times the sum of the steps, as one worker "
        f"took. Live: {CONCURRENCY} requests of a worker at a time, {SECONDS_A_REPLY:g} s a reply, "
        f"{REQUESTS_A_MINUTE:,} a minute. A worker takes {worker_memory()} MiB."
    )
    return Figures("days", note, rows)


def worker_memory() -> int:
    """MiB that a process takes that has imported what a worker needs."""
    program = (
        "import resource, llama_pack_densex.propositionizers.llm, llama_pack_densex.node_parsers.parsers; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured", type=Path, nargs="+", default=[], help="what benchmarks/distributed.py wrote"
    )
    options = parser.parse_args()
    measured = {
        one["name"]: one["rows"]
        for file in options.measured
        for one in json.loads(file.read_text("utf-8"))
    }
    tables = [money(tokens_of_corpus()), gpu_hours(), sizes()]
    if measured.keys() >= {"work", "ray"}:
        work = {row["step"]: row["CPU, ms a passage"] for row in measured["work"]}
        tables.append(days(work, measured["ray"][0]["then passages a second"]))
    for figures in tables:
        show(figures)


if __name__ == "__main__":
    main()
