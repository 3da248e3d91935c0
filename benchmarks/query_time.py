"""How long a question takes: the pack beside a plain query of the same store.

usage: python benchmarks/query_time.py [--dir FOLDER] [--propositions 50000] [--questions 200] [--top-k 4]

Documents are made up, half of them of English and half of Japanese shape, with words as frequent as Zipf's law has
them; their embeddings are sums of random vectors, one a word. So nothing is downloaded, and every run has the same
index; with --dir it is kept there for the next one. A question is embedded before the clock starts. All searches take
turns, question by question, so that whatever else the machine does slows all of them alike. Figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import platform
import random
import tempfile
import time
import zlib
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery

from llama_pack_densex import DenseXRetrievalPack, Passage, Propositionizer
from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.words import Words
from llama_pack_densex.propositionizers.base import PropositionSet
from llama_pack_densex.retrieval.hits import MIN_FETCH
from llama_pack_densex.retrieval.search import HEAD_PASSAGES, HEAD_UNITS, UnitSearch
from llama_pack_densex.text.segments import passage_sentences
from llama_pack_densex.text.tokens import tokenize

DIMENSION = 384
VOCABULARY = 30_000
SENTENCES = 40  # in a document, of two facts each
WARM_UP = 10  # questions asked before the measured ones

FILTERS = {
    "half of the documents": MetadataFilter(key="shelf", operator=FilterOperator.LT, value=50),
    "1 % of the documents": MetadataFilter(key="shelf", value=7),
}


@dataclass(frozen=True)
class Language:
    """How made-up text looks.

    Args:
        grammar: The most frequent words, which say nothing; some are put between the others.
        words: The others, the more frequent first.
        space: What parts words.
        joint: What joins the two facts of a sentence.
        stop: What ends a sentence.
    """

    grammar: tuple[str, ...]
    words: tuple[str, ...]
    space: str
    joint: str
    stop: str
    weights: list[float] = field(default_factory=lambda: list(accumulate(1 / (r + 2.7) for r in range(VOCABULARY))))

    def word(self, rng: random.Random) -> str:
        """A word, by Zipf's law with Mandelbrot's shift."""
        return self.words[bisect(self.weights, rng.random() * self.weights[-1])]

    def fact(self, rng: random.Random, topic: Sequence[str]) -> str:
        """Seven to twelve words, of which some belong to the document's topic, and as many words of grammar."""
        words = [rng.choice(topic) if rng.random() < 0.3 else self.word(rng) for _ in range(rng.randint(4, 7))]
        return self.space.join(part for word in words for part in (word, rng.choice(self.grammar)))


def english() -> Language:
    rng = random.Random("en")
    syllables = [c + v + e for c in "bcdfghlmnprstvw" for v in "aeiou" for e in ("", "n", "r", "s", "t", "l")]
    words = dict.fromkeys("".join(rng.choices(syllables, k=rng.choice((2, 2, 3)))) for _ in range(2 * VOCABULARY))
    grammar = ("the", "of", "and", "in", "to", "was", "is", "for", "as", "on", "with", "by", "that", "from", "it")
    return Language(grammar, tuple(words)[:VOCABULARY], " ", ", and ", ". ")


def japanese() -> Language:
    rng = random.Random("ja")
    kanji = [chr(0x4E00 + n) for n in rng.sample(range(0x5000), 2000)]
    kana = [chr(0x30A2 + n) for n in range(0, 64, 2)]
    often = list(accumulate(1 / (rank + 2.7) for rank in range(len(kanji))))
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        katakana = rng.random() < 0.15
        parts = (
            rng.choices(kana, k=4) if katakana else rng.choices(kanji, cum_weights=often, k=rng.choice((1, 2, 2, 3)))
        )
        words["".join(parts)] = None
    grammar = ("は", "が", "を", "に", "の", "で", "と", "した", "された", "から", "まで", "である", "も", "へ")
    return Language(grammar, tuple(words), "", "、そして", "。")


def make_documents(propositions: int) -> tuple[list[Document], list[str]]:
    """Documents with so many facts, and for each of them a question in its words."""
    rng, documents, questions = random.Random("documents"), [], []
    languages = (english(), japanese())
    for number in range(-(-propositions // (2 * SENTENCES))):
        language = languages[number % 2]
        topic = [language.words[rng.randrange(200, VOCABULARY)] for _ in range(20)]
        facts = [language.fact(rng, topic) for _ in range(2 * SENTENCES)]
        sentences = [language.joint.join(facts[i : i + 2]) + language.stop for i in range(0, len(facts), 2)]
        metadata = {"title": f"Volume {number}", "shelf": number * 37 % 100, "source": f"volumes/{number}.txt"}
        documents.append(Document(id_=f"volume-{number}", text="".join(sentences).strip(), metadata=metadata))
        asked = language.fact(rng, topic) if number % 4 == 0 else rng.choice(facts)
        questions.append({" ": f"what was {asked}?", "": f"{asked}何ですか。"}[language.space])
    return documents, questions


class FactPropositionizer(Propositionizer):
    """Takes each fact of a made-up sentence for a proposition, with its document's title in front."""

    @classmethod
    def class_name(cls) -> str:
        return "FactPropositionizer"

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        joints = (english().joint, japanese().joint)
        found = []
        for passage in passages:
            facts = passage_sentences(passage.text)
            for joint in joints:
                facts = tuple(part for fact in facts for part in fact.split(joint))
            found.append(PropositionSet(tuple(f"{passage.title}: {fact}" for fact in facts)))
        return found

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


class WordSumEmbedding(BaseEmbedding):
    """A text is the sum of its words' random vectors, so texts that share words are near to each other."""

    def __init__(self, model_name: str = f"word-sums-{DIMENSION}", **kwargs: Any) -> None:
        super().__init__(model_name=model_name, embed_batch_size=1000, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "WordSumEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        vector = sum((_vector_of(word) for word in tokenize(text)), np.zeros(DIMENSION, dtype=np.float32))
        embedding: list[float] = (vector / max(float(np.linalg.norm(vector)), 1e-9)).tolist()
        return embedding

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


@cache
def _vector_of(word: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION, dtype=np.float32)


def opened(folder: Path, documents: Sequence[Document], hybrid: bool) -> DenseXRetrievalPack:
    """The pack over a folder, made there where it is not there yet."""
    parts: dict[str, Any] = {
        "query_llm": "none",
        "embed_model": WordSumEmbedding(),
        "propositionizer": FactPropositionizer(),
        "hybrid": hybrid,
        "dense_weight": 0.5,  # given, so that no question is left to one side
    }
    if (folder / "densex.json").exists():
        return DenseXRetrievalPack.load(folder, **parts)
    return DenseXRetrievalPack(documents, persist_dir=folder, **parts)


@dataclass(frozen=True)
class Search:
    """A way to search that is measured; `beside` names the one that its time is compared with."""

    name: str
    ask: Callable[[QueryBundle], object]
    beside: str = ""


def searches(dense: DenseXRetrievalPack, hybrid: DenseXRetrievalPack, top_k: int) -> Iterable[Search]:
    """All that is measured, in the order of the table."""
    assert dense.vector_index is not None
    store = dense.vector_index.vector_store
    table = store.client.open_table("nodes")
    index = NodeIndex(adapter_for(store), dense.get_modules()["embed_model"], words=Words.by("bigrams"))
    lexical = UnitSearch(index=index, granularity=("proposition", "sentence", "passage"))
    units = max(MIN_FETCH, 5 * top_k)

    def raw(k: int) -> Callable[[QueryBundle], object]:
        return lambda q: (
            table.search(q.embedding).distance_type("cosine").select(["id", "_distance"]).limit(k).to_arrow()
        )

    def plain(k: int, filters: MetadataFilters | None = None) -> Callable[[QueryBundle], object]:
        return lambda q: store.query(VectorStoreQuery(query_embedding=q.embedding, similarity_top_k=k, filters=filters))

    def pack(pack: DenseXRetrievalPack, filters: MetadataFilters | None = None) -> Callable[[QueryBundle], object]:
        return lambda q: pack.retrieve(q, similarity_top_k=top_k, filters=filters)

    yield Search(f"LanceDB itself, ids only, k={top_k}", raw(top_k))
    yield Search(f"plain query, k={top_k}", plain(top_k))
    yield Search(f"plain query, k={units}", plain(units), f"plain query, k={top_k}")
    yield Search(f"plain query, k={HEAD_UNITS}", plain(HEAD_UNITS), f"plain query, k={top_k}")
    yield Search(f"pack, dense, {top_k} passages", pack(dense), f"plain query, k={top_k}")
    yield Search("search by words alone", lambda q: lexical.by_words(q, max(units, HEAD_PASSAGES)))
    yield Search(f"pack, hybrid, {top_k} passages", pack(hybrid), f"pack, dense, {top_k} passages")
    for which, condition in FILTERS.items():
        filters = MetadataFilters(filters=[condition])
        yield Search(f"plain query, k={top_k}, {which}", plain(top_k, filters), f"plain query, k={top_k}")
        yield Search(f"pack, dense, {which}", pack(dense, filters), f"pack, dense, {top_k} passages")
        yield Search(f"pack, hybrid, {which}", pack(hybrid, filters), f"pack, hybrid, {top_k} passages")


@dataclass(frozen=True)
class Times:
    """Milliseconds for each question: by the clock, and of all cores together, which other processes disturb less."""

    clock: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)


def measured(ways: Sequence[Search], questions: Sequence[QueryBundle]) -> dict[str, Times]:
    """What each way took for each question; every question begins with another way."""
    times = {way.name: Times() for way in ways}
    for number, question in enumerate(questions):
        start = number % len(ways)
        for way in (*ways[start:], *ways[:start]):
            bundle = QueryBundle(question.query_str, embedding=question.embedding)
            clock, cores = time.perf_counter(), time.process_time()
            way.ask(bundle)
            times[way.name].cores.append(1000 * (time.process_time() - cores))
            times[way.name].clock.append(1000 * (time.perf_counter() - clock))
    return {name: Times(found.clock[WARM_UP:], found.cores[WARM_UP:]) for name, found in times.items()}


def table_of(ways: Sequence[Search], times: dict[str, Times]) -> Iterable[str]:
    """The figures as Markdown."""
    yield "| search | median, ms | 95 %, ms | of all cores, ms | compared with | times | ms more |"
    yield "|---|---|---|---|---|---|---|"
    for way in ways:
        clock = times[way.name].clock
        cells = [f"{median(clock):.1f}", f"{np.percentile(clock, 95):.1f}", f"{median(times[way.name].cores):.1f}"]
        if way.beside:
            # question by question, since what slows one search down slows its neighbours down too
            pairs = list(zip(clock, times[way.beside].clock, strict=True))
            cells += [way.beside, f"{median(a / b for a, b in pairs):.2f}", f"{median(a - b for a, b in pairs):+.1f}"]
        yield f"| {' | '.join([way.name, *cells, *[''] * (6 - len(cells))])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to keep the index for the next run")
    parser.add_argument("--propositions", type=int, default=50_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--top-k", type=int, default=4)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as temporary:
        run(options.dir or Path(temporary) / "index", options.propositions, options.questions, options.top_k)


def run(folder: Path, propositions: int, count: int, top_k: int) -> None:
    documents, asked = make_documents(propositions)
    started = time.perf_counter()
    hybrid = opened(folder, documents, hybrid=True)
    dense = opened(folder, documents, hybrid=False)
    counts, embedding = hybrid.counts(), WordSumEmbedding()
    texts = [asked[number % len(asked)] for number in range(0, 7 * (count + WARM_UP), 7)]
    questions = [QueryBundle(text, embedding=embedding.get_query_embedding(text)) for text in texts]
    ways = list(searches(dense, hybrid, top_k))
    for way in ways:
        way.ask(questions[0])  # the lexical index and the metadata are read at the first question
    gc.collect()
    print(
        f"{counts.documents} documents, {counts.passages} passages, {counts.propositions} propositions, "
        f"{counts.sentences} sentences; {DIMENSION} dimensions; {count} questions; ready after "
        f"{time.perf_counter() - started:.0f} s. {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"lancedb {version('lancedb')}, llama-index-core {version('llama-index-core')}.\n"
    )
    for line in table_of(ways, measured(ways, questions)):
        print(line)


if __name__ == "__main__":
    main()
