"""The searches that benchmarks/stores.py measures: the pack's, and LlamaIndex's usual alternatives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.retrieval.search import LEAST_UNITS
from store_bench.corpora import Corpus
from store_bench.process import opened

FILTERS = {
    "half of the documents": MetadataFilter(key="shelf", operator=FilterOperator.LT, value=50),
    "1 % of the documents": MetadataFilter(key="room", value="room 7"),
}
DENSE = "pack: dense"
HYBRID = "pack: hybrid (default)"
AUTO_MERGING = "pack: auto-merging"
CHROMA = "LlamaIndex: Chroma"
FUSED = "LlamaIndex: Chroma and BM25Retriever, fused"
_COSINE_TOLERANCE = 1e-5  # stores round cosines differently
_CHROMA_BATCH = 5_000  # about the most nodes that Chroma takes in one call


@dataclass(frozen=True)
class Search:
    """A search to measure.

    Args:
        name: The name in the table.
        ask: Runs the search for a question.
        beside: The name of the search that its time is compared with; its own if there is none.
        every: Only one question in this many is asked, for slow searches.
    """

    name: str
    ask: Callable[[QueryBundle], object]
    beside: str
    every: int = 1


@dataclass(frozen=True)
class Times:
    """Milliseconds for each question: wall-clock time, and CPU time, which other processes disturb less."""

    clock: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Propositions:
    """The propositions of an index.

    Args:
        places: Node id to row of `vectors`.
        vectors: The unit-normalised embeddings, one row each.
    """

    places: dict[str, int]
    vectors: npt.NDArray[np.float32]

    @classmethod
    def of(cls, pack: DenseXRetrievalPack) -> Propositions:
        """Read the propositions of an index that is open."""
        select = "SELECT id, vector FROM nodes JOIN vectors USING (row) WHERE granularity = 'proposition'"
        with _store_of(pack).client.reading() as connection:
            contents = dict(connection.execute(select))
        vectors = np.frombuffer(b"".join(contents.values()), np.float32).reshape(len(contents), -1)
        places = {node_id: place for place, node_id in enumerate(contents)}
        return cls(places, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def nodes(self, pack: DenseXRetrievalPack) -> list[TextNode]:
        """Return them as nodes with embeddings, as LlamaIndex's stores take them; a million take 20 GB."""
        nodes = []
        for node in _store_of(pack).get_nodes():
            if node.node_id in self.places:
                embedding = self.vectors[self.places[node.node_id]].tolist()
                metadata = {key: node.metadata[key] for key in ("title", "shelf", "room", "source")}
                text = node.get_content()
                nodes.append(
                    TextNode(id_=node.node_id, text=text, metadata=metadata, embedding=embedding)
                )
        return nodes

    def cosines(self, question: QueryBundle) -> npt.NDArray[np.float32]:
        """Return the cosine of each proposition with a question."""
        embedding = np.asarray(question.embedding, np.float32)
        cosines: npt.NDArray[np.float32] = self.vectors @ (embedding / np.linalg.norm(embedding))
        return cosines

    def recall(
        self, search: Callable[[QueryBundle], Sequence[str]], questions: Sequence[QueryBundle]
    ) -> float:
        """Return the recall@10 of a search; results as near as the tenth nearest proposition count too."""
        hits = 0
        for question in questions:
            cosines = self.cosines(question)
            least = np.partition(cosines, -10)[-10] - _COSINE_TOLERANCE
            hits += sum(cosines[self.places[node_id]] >= least for node_id in set(search(question)))
        return hits / (10 * len(questions))


def pack_searches(folder: Path, corpus: Corpus, top_k: int) -> Iterator[Search]:
    """Yield the pack's searches of an index."""

    def search(
        name: str, pack: DenseXRetrievalPack, beside: str, filters: MetadataFilters | None = None
    ) -> Search:
        return Search(
            name,
            lambda query: pack.retrieve(query, similarity_top_k=top_k, filters=filters),
            beside,
        )

    hybrid = opened(folder, corpus)
    dense = opened(folder, corpus, hybrid=False)
    lexical = opened(folder, corpus, dense_weight=0.0)
    merging = opened(folder, corpus, mode="auto_merging")
    yield search(HYBRID, hybrid, FUSED)
    yield search(DENSE, dense, CHROMA)
    yield search("pack: lexical", lexical, FUSED)
    yield search(AUTO_MERGING, merging, HYBRID)
    for documents, condition in FILTERS.items():
        filters = MetadataFilters(filters=[condition])
        yield search(f"{HYBRID}, {documents}", hybrid, HYBRID, filters)
        yield search(f"{DENSE}, {documents}", dense, DENSE, filters)


def other_searches(
    texts: Sequence[TextNode], corpus: Corpus, folder: Path, top_k: int
) -> Iterator[Search]:
    """Yield LlamaIndex's alternatives: Chroma fused with BM25Retriever, Chroma, and the default store."""
    import chromadb
    from llama_index.retrievers.bm25 import BM25Retriever
    from llama_index.vector_stores.chroma import ChromaVectorStore

    default = VectorStoreIndex(list(texts), embed_model=corpus.embed_model).as_retriever(
        similarity_top_k=top_k
    )
    client = chromadb.PersistentClient(str(folder), chromadb.Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection("texts", metadata={"hnsw:space": "cosine"})
    store = ChromaVectorStore(chroma_collection=collection)
    for start in range(collection.count(), len(texts), _CHROMA_BATCH):
        store.add(list(texts[start : start + _CHROMA_BATCH]))
    index = VectorStoreIndex.from_vector_store(store, embed_model=corpus.embed_model)
    chroma = index.as_retriever(similarity_top_k=top_k)
    keywords = BM25Retriever.from_defaults(nodes=list(texts), similarity_top_k=top_k)
    parts: list[BaseRetriever] = [chroma, keywords]
    fused = QueryFusionRetriever(
        parts,
        llm=MockLLM(),
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=top_k,
        num_queries=1,
        use_async=False,
    )
    yield Search(FUSED, fused.retrieve, FUSED)
    yield Search(CHROMA, chroma.retrieve, CHROMA)
    yield Search("LlamaIndex: SimpleVectorStore (its default)", default.retrieve, FUSED, every=20)


def nearest_propositions(pack: DenseXRetrievalPack) -> Callable[[QueryBundle], list[str]]:
    """Return a search for the ten nearest propositions in the pack's store, among `LEAST_UNITS` nodes."""
    store = _store_of(pack)

    def search(question: QueryBundle) -> list[str]:
        query = VectorStoreQuery(query_embedding=question.embedding, similarity_top_k=LEAST_UNITS)
        nodes = store.query(query).nodes or []
        return [node.node_id for node in nodes if node.metadata[GRANULARITY_KEY] == "proposition"][
            :10
        ]

    return search


def _store_of(pack: DenseXRetrievalPack) -> Any:
    assert pack.vector_index is not None
    return pack.vector_index.vector_store


def measured(
    searches: Sequence[Search], questions: Sequence[QueryBundle], rounds: int = 1
) -> dict[str, Times]:
    """Return the times of each search for each question, the least of some rounds.

    The searches take turns, and every question starts with another one.
    """
    times = {search.name: Times() for search in searches}
    for number, question in enumerate(questions):
        start = number % len(searches)
        in_turn = [*searches[start:], *searches[:start]]
        for search in in_turn:
            if number % search.every == 0:
                timings = [_time(search, question) for _ in range(rounds)]
                times[search.name].clock.append(min(clock for clock, _ in timings))
                times[search.name].cores.append(min(cores for _, cores in timings))
    return times


def _time(search: Search, question: QueryBundle) -> tuple[float, float]:
    query = QueryBundle(question.query_str, embedding=question.embedding)
    clock = time.perf_counter()
    cores = time.process_time()
    search.ask(query)
    return 1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - cores)
