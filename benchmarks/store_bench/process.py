"""Measurements that benchmarks/stores.py runs in processes of their own, for the time and memory of a user's
process.

usage: python -m store_bench.process build|open|change|loop FOLDER --corpus CORPUS ... (see
benchmarks/stores.py)

Each action prints its measurements as one line of JSON. Times are in seconds; repeated actions give lists.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_index.core import Document

    from llama_pack_densex import DenseXRetrievalPack
    from store_bench.corpora import Corpus

Measurements = dict[str, Any]

_QUESTIONS = 20  # number of questions after the first one
_CHANGES = 40  # number of changes of each kind
_INSERTS = 2_000


def memory() -> dict[str, float]:
    """Return this process's memory in MB: resident, the part not mapped from files ("own"), and the peak."""
    megabytes = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    status = Path("/proc/self/status")
    if status.exists():  # only Linux has it
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        names = {"resident": "VmRSS", "own": "RssAnon", "peak": "VmHWM"}
        megabytes |= {name: int(lines[kernel].split()[0]) / 1024 for name, kernel in names.items()}
    return {name: round(value, 1) for name, value in megabytes.items()}


def seconds(work: Callable[[], object]) -> float:
    """Return how long the work takes, in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def build(folder: Path, corpus: Corpus) -> Measurements:
    """Index a corpus."""
    cpu = time.process_time()
    start = time.perf_counter()
    pack = _new_pack(folder, corpus, corpus.documents())
    elapsed = time.perf_counter() - start
    return {"seconds": elapsed, "cpu": time.process_time() - cpu, **memory(), **vars(pack.counts())}


def open_pack(folder: Path, corpus: Corpus) -> Measurements:
    """Open an index and answer questions."""
    questions = corpus.questions(1 + _QUESTIONS)
    imports = memory()
    start = time.perf_counter()
    pack = opened(folder, corpus)
    opening = time.perf_counter() - start
    first = seconds(lambda: pack.retrieve(questions[0]))
    after_first = memory()
    more = [
        seconds(lambda question=question: pack.retrieve(question)) for question in questions[1:]
    ]
    return {
        "open": opening,
        "first": first,
        "more": more,
        "memory": [imports, after_first, memory()],
    }


def change(folder: Path, corpus: Corpus) -> Measurements:
    """Delete documents, insert them again and replace them; ask a question twice after each change."""
    from store_bench.corpora import node_parser

    pack = opened(folder, corpus, node_parser=node_parser())
    documents = [_embedded(corpus, document) for document in islice(corpus.documents(), _CHANGES)]
    questions = corpus.questions(3 * _CHANGES)
    changes = {
        "delete": lambda document: pack.delete(document.id_),
        "insert": pack.insert,
        "replace": pack.insert,
    }
    times: defaultdict[str, list[float]] = defaultdict(list)
    for document in documents:
        for name, make_change in changes.items():
            question = questions.pop()
            times[name].append(seconds(lambda: make_change(document)))  # noqa: B023
            times["next question"].append(seconds(lambda: pack.retrieve(question)))  # noqa: B023
            times["warm question"].append(seconds(lambda: pack.retrieve(question)))  # noqa: B023
    return times


def loop(folder: Path, corpus: Corpus) -> Measurements:
    """Insert documents into a new index one by one, as users of `SimpleDirectoryReader` do."""
    first, *documents = (
        _embedded(corpus, document) for document in islice(corpus.documents(), _INSERTS + 1)
    )
    pack = _new_pack(folder, corpus, [first])
    return {
        "insert": [
            seconds(lambda document=document: pack.insert(document)) for document in documents
        ]
    }


def opened(folder: Path, corpus: Corpus, **options: Any) -> DenseXRetrievalPack:
    """Open an existing index for searching, with the pack's defaults unless `options` say otherwise."""
    from llama_pack_densex import DenseXRetrievalPack

    options = {"mode": "recursive", **options}
    return DenseXRetrievalPack.load(
        folder, query_llm="none", embed_model=corpus.embed_model, **options
    )


def _new_pack(folder: Path, corpus: Corpus, documents: Any) -> DenseXRetrievalPack:
    from llama_pack_densex import DenseXRetrievalPack
    from store_bench.corpora import node_parser

    return DenseXRetrievalPack(
        documents,
        query_llm="none",
        embed_model=corpus.embed_model,
        node_parser=node_parser(),
        dense_weight=0.5,  # fixed, so that every question is searched both ways
        persist_dir=folder,
    )


def _embedded(corpus: Corpus, document: Document) -> Document:
    """Return a document after embedding its texts, so that the corpus's model has them cached."""
    from llama_pack_densex.node_parsers.metadata import embedded_text
    from store_bench.corpora import node_parser

    nodes = node_parser().get_nodes_from_documents([document])
    corpus.embed_model.get_text_embedding_batch([embedded_text(node) for node in nodes])
    return document


def main() -> None:
    from store_bench.corpora import corpus_of

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = {"build": build, "open": open_pack, "change": change, "loop": loop}
    parser.add_argument("action", choices=actions)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", required=True, help="a folder with real text, or 'made-up'")
    parser.add_argument("--propositions", type=int, required=True)
    parser.add_argument("--sentences", type=int, required=True)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    corpus = corpus_of(options.corpus, options.propositions, options.sentences)
    print(json.dumps(actions[options.action](options.folder, corpus)), flush=True)
    os._exit(0)  # does not wait for threads of libraries


if __name__ == "__main__":
    main()
