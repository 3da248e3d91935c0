"""What a corpus of FACTOIDWIKI's size costs: tokens, money, GPU hours, bytes, and days by number of workers.

usage: python benchmarks/factoidwiki_plan.py [--measured FILE ...]

The files are written by `python benchmarks/distributed.py --json FILE`; without them, days are left out.
Everything else is calculated from published figures and assumptions (the constants below, with their sources)
and from the prompts of this package, counted with LlamaIndex's tokenizer. The tables are in docs/scaling.md.
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
PASSAGES, WORDS_PER_PASSAGE = 41_393_528, 58.5
PROPOSITIONS, WORDS_PER_PROPOSITION = 256_885_003, 11.2
UNITS = PASSAGES + PROPOSITIONS

MODEL = "gpt-4o-mini"
HEADING_TOKENS = 10  # assumed: a title and a section
# OpenAI's limits for gpt-4o-mini in the highest tier (community.openai.com/t/1269349, 2025), and requests
# in a batch file.
REQUESTS_PER_MINUTE, QUEUED_TOKENS, REQUESTS_PER_FILE = 30_000, 15e9, 50_000
# assumed: latency of a request, and concurrent requests of one worker
SECONDS_PER_REPLY, CONCURRENCY = 2.0, 32

# Flan-T5-large's parameters by its published configuration: encoder; decoder with the output layer.
T5_ENCODER, T5_DECODER = 0.308e9, 0.442e9
# Tokens per second of T5-base, 128 texts at a time, FP16, sampling, on a V100: FasterTransformer's
# docs/t5_guide.md. The larger model is assumed to be slower by the ratio of the decoders' parameters.
T5_BASE_DECODER, T5_BASE_TOKENS = 0.138e9, {"transformers": 956, "FasterTransformer": 8519}
# assumed: in T5's vocabulary of 32,000, including the quotes and commas of the list
T5_TOKENS_PER_WORD = 1.45
# dense FP16 TFLOP/s, memory bandwidth in GB/s; vendor's figures
GPUS = {"V100": (125, 900), "A100 80 GB": (312, 2039), "H100 SXM": (989, 3350)}
UTILISATION = 0.4  # assumed: share of the TFLOP/s that is reached at best
MINILM_TEXTS = 14_200  # texts per second on a V100: sbert.net, "Pretrained Models"

# bytes per number
KINDS = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "product, 1/16": 0.25, "binary": 1 / 8}
LINKS = 16 * 2 * 4  # bytes per vector in an HNSW graph: twice m=16 links of four bytes

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
    """Tokens by core's tokenizer.

    Args:
        alone: Tokens sent for a passage, with the instructions.
        reply: Tokens of a reply.
        instructions: Tokens of the instructions.
        text_word: Tokens per word of a text.
        reply_word: Tokens per word of a reply.
    """

    alone: float
    reply: float
    instructions: int
    text_word: float
    reply_word: float


def tokens_of_corpus() -> Tokens:
    """Estimate tokens per passage from the prompts, and from the tokens per word of the sample texts."""
    lines = load_sample("en").recordings.read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    english = [record for record in records if record["text"].isascii()]
    words = sum(len(record["text"].split()) for record in english)
    tokens_per_text_word = sum(count_tokens(record["text"]) for record in english) / words
    proposition_words = sum(
        len(proposition.split()) for record in english for proposition in record["propositions"]
    )
    tokens_per_reply_word = (
        sum(count_tokens(json.dumps(record["propositions"])) for record in english)
        / proposition_words
    )
    prompt, empty_passage = default_prompts()[prompt_key("en")], Passage("")
    instructions = count_messages(format_request(prompt, InstantLLM(), empty_passage, ""))
    passage_tokens = WORDS_PER_PASSAGE * tokens_per_text_word + HEADING_TOKENS
    reply_tokens = PROPOSITIONS / PASSAGES * WORDS_PER_PROPOSITION * tokens_per_reply_word
    return Tokens(
        instructions + passage_tokens,
        reply_tokens,
        instructions,
        tokens_per_text_word,
        tokens_per_reply_word,
    )


def money(tokens: Tokens) -> Figures:
    """Return tokens and US dollars, for live requests and for the Batch API."""
    price = price_of(MODEL, {})
    assert price is not None
    rows = []
    usage = Usage(PASSAGES, int(tokens.alone * PASSAGES), int(tokens.reply * PASSAGES))
    for batch in (False, True):
        queued = usage.input_tokens / QUEUED_TOKENS
        least = (
            f"{queued:.1f} full queues"
            if batch
            else f"{usage.requests / REQUESTS_PER_MINUTE / 60:,.0f} h"
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
    files = -(-PASSAGES // REQUESTS_PER_FILE)
    note = (
        f"{MODEL}, list prices of {price.as_of}. Instructions of {tokens.instructions} tokens; "
        f"{tokens.text_word:.2f} "
        f"tokens a word of text, {tokens.reply_word:.2f} a word of a reply. The Batch API takes {files} "
        f"files of {REQUESTS_PER_FILE:,} requests."
    )
    return Figures("money", note, rows)


def gpu_hours() -> Figures:
    """Return GPU hours of the paper's Propositionizer, and of embedding."""
    tokens_in = WORDS_PER_PASSAGE * T5_TOKENS_PER_WORD + HEADING_TOKENS
    tokens_out = PROPOSITIONS / PASSAGES * WORDS_PER_PROPOSITION * T5_TOKENS_PER_WORD
    operations = 2 * (T5_ENCODER * tokens_in + T5_DECODER * tokens_out) * PASSAGES
    slower = T5_DECODER / T5_BASE_DECODER
    rows = []
    for gpu, (teraflops, bandwidth) in GPUS.items():
        row: Row = {"GPU": gpu}
        for engine, speed in T5_BASE_TOKENS.items():
            tokens_per_second = speed / slower * bandwidth / GPUS["V100"][1]
            row[f"Propositionizer, {engine}, h"] = (
                f"{tokens_out * PASSAGES / tokens_per_second / 3600:,.0f}"
            )
        bound = operations / (teraflops * 1e12 * UTILISATION) / 3600
        row["its arithmetic alone, h"] = f"{bound:,.0f}"
        row["MiniLM, all units, h"] = (
            f"{UNITS / MINILM_TEXTS / bandwidth * GPUS['V100'][1] / 3600:,.1f}"
        )
        rows.append(row)
    note = (
        f"{tokens_in:.0f} tokens in and {tokens_out:.0f} out a passage, {operations:.1e} operations in all. "
        "T5-base's published "
        f"tokens a second on a V100, {slower:.1f} times as slow for the larger decoder; other GPUs by memory "
        "bandwidth."
    )
    return Figures("gpu", note, rows)


def sizes() -> Figures:
    """Return the bytes of the vectors, and what the stores hold in memory."""
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
    """Return the time on Ray by number of workers.

    Args:
        work: CPU milliseconds per passage, by step.
        alone: Passages per second of one worker with an LLM that answers immediately.
    """
    parsing, driver = (sum(work[name] for name in names) for names in (IN_WORKERS, IN_DRIVER))
    own = {way: parsing + work[step] for way, step in ASKING.items()}
    slower = 1000 / alone / own["live"]  # measured time relative to the sum of the steps
    own = {way: milliseconds * slower for way, milliseconds in own.items()}
    driver *= slower
    embedding = work.get("embedding with all-MiniLM-L6-v2")
    rows = []
    for workers in (1, 4, 16, 64, 256):
        row: Row = {"workers (a core each)": workers}
        live = {
            "replies": workers * CONCURRENCY / SECONDS_PER_REPLY,
            "provider": REQUESTS_PER_MINUTE / 60,
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
        f"took. Live: {CONCURRENCY} requests of a worker at a time, {SECONDS_PER_REPLY:g} s a reply, "
        f"{REQUESTS_PER_MINUTE:,} a minute. A worker takes {worker_memory()} MiB."
    )
    return Figures("days", note, rows)


def worker_memory() -> int:
    """Return the MiB of a process that has imported the modules of a worker."""
    program = (
        "import resource, llama_pack_densex.propositionizers.llm, llama_pack_densex.node_parsers.parsers; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return int(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured",
        type=Path,
        nargs="+",
        default=[],
        help="files written by benchmarks/distributed.py",
    )
    options = parser.parse_args()
    measured = {
        figures["name"]: figures["rows"]
        for file in options.measured
        for figures in json.loads(file.read_text("utf-8"))
    }
    tables = [money(tokens_of_corpus()), gpu_hours(), sizes()]
    if measured.keys() >= {"work", "ray"}:
        work = {row["step"]: row["CPU, ms a passage"] for row in measured["work"]}
        tables.append(days(work, measured["ray"][0]["then passages a second"]))
    for figures in tables:
        show(figures)


if __name__ == "__main__":
    main()
