"""What benchmarks/stores.py has done in processes of their own, so that time and memory are those of a user's process.

usage: python -m store_bench.process build|halve|open|bare FOLDER ... (as benchmarks/stores.py calls it)

Each prints what it measured as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

_STARTED = time.perf_counter()
_DELETED_AT_ONCE = 100  # documents
_QUESTIONS = 20  # asked after the first one


def memory() -> dict[str, float]:
    """MB of this process: resident, of that not mapped from files, and the highest that it was."""
    found = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    status = Path("/proc/self/status")
    if status.exists():  # Linux tells more
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        names = {"resident": "VmRSS", "own": "RssAnon", "peak": "VmHWM"}
        found |= {name: int(lines[kernel].split()[0]) / 1024 for name, kernel in names.items()}
    return {name: round(value, 1) for name, value in found.items()}


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Index a corpus, or the half of it that `halve` leaves."""
    from llama_pack_densex import DenseXRetrievalPack
    from store_bench.corpora import corpus_of, node_parser
    from store_bench.places import given

    corpus = corpus_of(options.corpus, options.propositions)
    documents: Iterable[Any] = corpus.documents()
    if options.half:
        documents = islice(documents, 1, None, 2)
    started, cpu = time.perf_counter(), time.process_time()
    pack = DenseXRetrievalPack(
        _told(documents),
        query_llm="none",
        embed_model=corpus.embed_model,
        node_parser=node_parser(),
        dense_weight=0.5,  # given, so that no question is left to one side
        **given(options.store, options.folder, building=True),
    )
    seconds, cores = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cores, **memory(), **vars(pack.counts())}


def halve(options: argparse.Namespace) -> dict[str, Any]:
    """Delete every second document, then give back the space."""
    from llama_pack_densex import DenseXRetrievalPack
    from store_bench.corpora import corpus_of
    from store_bench.places import given, size

    corpus = corpus_of(options.corpus, options.propositions)
    place = given(options.store, options.folder)
    pack = DenseXRetrievalPack.load(place.pop("persist_dir"), query_llm="none", embed_model=corpus.embed_model, **place)
    gone = [document.id_ for document in islice(corpus.documents(), 0, None, 2)]
    before, started = size(options.store, options.folder), time.perf_counter()
    for start in range(0, len(gone), _DELETED_AT_ONCE):
        pack.delete(gone[start : start + _DELETED_AT_ONCE])
    deleted = time.perf_counter()
    after = size(options.store, options.folder)
    compacting = time.perf_counter()
    pack.compact()
    compacted = time.perf_counter()
    return {
        "documents": len(gone),
        "before": before,
        "deleting": deleted - started,
        "deleted": after,
        "compacting": compacted - compacting,
        "compacted": size(options.store, options.folder),
        **{name: count for name, count in vars(pack.counts()).items() if name == "propositions"},
    }


def open_pack(options: argparse.Namespace) -> dict[str, Any]:
    """Open an index and answer questions."""
    import numpy as np
    from llama_index.core.schema import QueryBundle

    from llama_pack_densex import DenseXRetrievalPack
    from store_bench.corpora import named_model
    from store_bench.places import given

    model = named_model(options.corpus)
    place = given(options.store, options.folder)
    vectors = np.load(options.questions.with_suffix(".npy"))
    texts = json.loads(options.questions.read_text(encoding="utf-8"))
    bundles = [QueryBundle(text, embedding=vector.tolist()) for text, vector in zip(texts, vectors, strict=True)]
    found: dict[str, Any] = {"imports": memory()}
    started = time.perf_counter()
    pack = DenseXRetrievalPack.load(place.pop("persist_dir"), query_llm="none", embed_model=model, **place)
    loaded = time.perf_counter()
    found["load"] = memory()
    assert pack.retrieve(bundles[0]), "nothing is found"
    answered = time.perf_counter()
    found["first"] = memory()
    for bundle in bundles[1 : 1 + _QUESTIONS]:
        pack.retrieve(bundle)
    found["more"] = memory()
    return {**found, "loading": loaded - started, "answering": answered - started, "importing": started - _STARTED}


def bare(options: argparse.Namespace) -> dict[str, Any]:
    """Open the table of an embedded index with LanceDB alone, search it and read rows by id."""
    import lancedb
    import numpy as np

    vectors = np.load(options.questions.with_suffix(".npy"))
    found: dict[str, Any] = {"imports": memory()}
    started = time.perf_counter()
    (data,) = options.folder.glob("data-*")
    table = lancedb.connect(str(data)).open_table("nodes")
    loaded = time.perf_counter()
    found["load"] = memory()

    def ask(vector: Any) -> None:
        search = table.search(vector.tolist(), vector_column_name="vector").distance_type("cosine")
        ids = [row["id"] for row in search.select(["id", "_distance"]).limit(20).to_list()]
        named = ", ".join(f"'{node_id}'" for node_id in ids)
        assert len(table.search().where(f"id IN ({named})").select(["id", "node"]).to_list()) == len(ids)

    ask(vectors[0])
    answered = time.perf_counter()
    found["first"] = memory()
    for vector in vectors[1 : 1 + _QUESTIONS]:
        ask(vector)
    found["more"] = memory()
    return {**found, "loading": loaded - started, "answering": answered - started, "importing": started - _STARTED}


def _told(documents: Iterable[Any]) -> Iterator[Any]:
    """Tell now and then how far it is."""
    told = started = time.perf_counter()
    for number, document in enumerate(documents):
        if time.perf_counter() - told > 30:
            told = time.perf_counter()
            print(f"... {number} documents, {told - started:.0f} s, {memory()}", file=sys.stderr, flush=True)
        yield document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = {"build": build, "halve": halve, "open": open_pack, "bare": bare}
    parser.add_argument("action", choices=actions)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", default="lancedb")
    parser.add_argument("--corpus", required=True, help="a folder with real text, or 'made-up'")
    parser.add_argument("--propositions", type=int, default=0)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--questions", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(json.dumps(actions[options.action](options)), flush=True)
    os._exit(0)  # without waiting for threads of clients


if __name__ == "__main__":
    main()
