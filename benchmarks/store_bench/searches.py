"""The searches that benchmarks/stores.py measures, and what they are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.retrieval.search import UnitSearch
from store_bench.places import given

FILTERS = {
    "half of the documents": MetadataFilter(key="shelf", operator=FilterOperator.LT, value=50),
    "1 % of the documents": MetadataFilter(key="room", value="room 7"),
}
_AS_NEAR = 1e-5  # stores work out cosines with different rounding


@dataclass(frozen=True)
class Exact:
    """The propositions' vectors of length 1, in a FAISS index that scans all of them.

    Args:
        index: The FAISS index.
        rows: Where each proposition is in it, by node id.
        passages: The passage of each row.
    """

    index: Any
    rows: dict[str, int]
    passages: Sequence[str]

    @classmethod
    def of_index(cls, folder: Path) -> Exact:
        """Read the vectors of an embedded index."""
        import faiss
        import lancedb

        faiss.omp_set_num_threads(1)  # for a single question it is quicker with one than with several
        (data,) = folder.glob("data-*")
        table = lancedb.connect(str(data)).open_table("nodes")
        search = table.search().where("granularity = 'proposition'").select(["id", "passage_id", "vector"])
        rows: dict[str, int] = {}
        passages: list[str] = []
        index = faiss.IndexFlatIP(table.schema.field("vector").type.list_size)
        for batch in search.to_batches():
            vectors = batch.column("vector").flatten().to_numpy().reshape(batch.num_rows, -1)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            index.add(vectors / np.maximum(lengths, 1e-9))
            rows.update(zip(batch.column("id").to_pylist(), range(len(rows), len(rows) + batch.num_rows), strict=True))
            passages += batch.column("passage_id").to_pylist()
        return cls(index, rows, passages)

    def nearest(self, question: QueryBundle, count: int) -> tuple[npt.NDArray[np.float32], list[int]]:
        """The cosines and rows of the nearest propositions, nearest first."""
        scores, rows = self.index.search(_unit(question), count)
        return scores[0], rows[0].tolist()

    def cosines(self, question: QueryBundle, node_ids: Iterable[str]) -> list[float]:
        """How near some propositions are."""
        wanted = _unit(question)[0]
        return [float(self.index.reconstruct(self.rows[node_id]) @ wanted) for node_id in node_ids]


@dataclass(frozen=True)
class Search:
    """A way to search that is measured.

    Args:
        name: What the table calls it.
        pack: What is searched.
        ask: Searches.
        beside: The name of the one that its time is compared with.
    """

    name: str
    pack: DenseXRetrievalPack
    ask: Callable[[QueryBundle], object]
    beside: str


@dataclass(frozen=True)
class Times:
    """Milliseconds for each question: by the clock, and of all cores together, which other processes disturb less."""

    clock: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)


def searches(
    store: str, folder: Path, shown: str, embed_model: BaseEmbedding, exact: Exact, top_k: int
) -> Iterator[Search]:
    """The yardstick of a store, then the pack's default search, then others."""
    place = given(store, folder)
    place.pop("persist_dir")

    def opened(**options: Any) -> DenseXRetrievalPack:
        return DenseXRetrievalPack.load(
            folder, query_llm="none", embed_model=embed_model, **place, **{"mode": "recursive", **options}
        )

    def way(name: str, pack: DenseXRetrievalPack, filters: MetadataFilters | None = None) -> Search:
        ask = lambda question: pack.retrieve(question, similarity_top_k=top_k, filters=filters)  # noqa: E731
        return Search(f"{shown}: {name}", pack, ask, yardstick)

    default = opened()
    nodes = default._index.nodes.store

    def scan_and_fetch(question: QueryBundle) -> object:
        _, (row,) = exact.nearest(question, 1)
        return nodes.fetch([exact.passages[row]])

    yardstick = f"{shown}: FAISS scan, one passage read"
    yield Search(yardstick, default, scan_and_fetch, yardstick)
    yield way("hybrid (default)", default)
    yield way("dense", opened(hybrid=False))
    yield way("auto-merging", opened(mode="auto_merging"))
    yield way("auto-merging, dense", opened(mode="auto_merging", hybrid=False))
    for which, condition in FILTERS.items():
        filters = MetadataFilters(filters=[condition])
        yield way(f"hybrid, {which}", opened(), filters)
        yield way(f"dense, {which}", opened(hybrid=False), filters)


def measured(ways: Sequence[Search], questions: Sequence[QueryBundle], warm_up: int) -> dict[str, Times]:
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
    return {name: Times(found.clock[warm_up:], found.cores[warm_up:]) for name, found in times.items()}


def recall(pack: DenseXRetrievalPack, exact: Exact, questions: Sequence[QueryBundle], cut: int = 10) -> float:
    """The share of the nearest propositions that the dense search has among its first ones."""
    retriever = UnitSearch(pack._index.nodes, granularity=("proposition",))
    right = 0
    for question in questions:
        scores, _ = exact.nearest(question, cut)
        found = retriever.search(QueryBundle(question.query_str, embedding=question.embedding), cut)
        ids = [unit.id for hit in found.passages for unit in hit.units]
        right += sum(cosine >= scores[-1] - _AS_NEAR for cosine in exact.cosines(question, set(ids)))
    return right / (cut * len(questions))


def _unit(question: QueryBundle) -> npt.NDArray[np.float32]:
    vector = np.asarray(question.embedding, dtype=np.float32)
    return (vector / np.linalg.norm(vector))[None, :]
