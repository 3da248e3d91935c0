"""The searches that benchmarks/stores.py measures: the pack's, and what LlamaIndex's users would take
instead."""

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
_AS_NEAR = 1e-5  # stores work out cosines with different rounding
_ADDED_AT_ONCE = 5_000  # as many as Chroma takes


@dataclass(frozen=True)
class Search:
    """A way to search that is measured.

    Args:
        name: What the table calls it.
        ask: Searches.
        beside: The name of the one that its time is compared with; itself where there is none.
        every: Of how many questions one is asked, where it takes long.
    """

    name: str
    ask: Callable[[QueryBundle], object]
    beside: str
    every: int = 1


@dataclass(frozen=True)
class Times:
    """Milliseconds for each question: by the clock, and of all cores together, which other processes disturb
    less."""

    clock: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Propositions:
    """The propositions of an index.

    Args:
        places: The place of each among the vectors, by its id.
        vectors: The embeddings, at length 1.
    """

    places: dict[str, int]
    vectors: npt.NDArray[np.float32]

    @classmethod
    def of(cls, pack: DenseXRetrievalPack) -> Propositions:
        """Those of an index that was opened."""
        select = "SELECT id, vector FROM nodes JOIN vectors USING (row) WHERE granularity = 'proposition'"
        with _store_of(pack).client.reading() as connection:
            contents = dict(connection.execute(select))
        vectors = np.frombuffer(b"".join(contents.values()), np.float32).reshape(len(contents), -1)
        places = {node_id: place for place, node_id in enumerate(contents)}
        return cls(places, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def nodes(self, pack: DenseXRetrievalPack) -> list[TextNode]:
        """They as LlamaIndex's stores take them, with their embeddings; a million take 20 GB."""
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
        """How near each is to a question."""
        embedding = np.asarray(question.embedding, np.float32)
        cosines: npt.NDArray[np.float32] = self.vectors @ (embedding / np.linalg.norm(embedding))
        return cosines

    def recall(
        self, search: Callable[[QueryBundle], Sequence[str]], questions: Sequence[QueryBundle]
    ) -> float:
        """The share of the ten nearest that a search has among its ten; others that are as near count too."""
        near = 0
        for question in questions:
            cosines = self.cosines(question)
            least = np.partition(cosines, -10)[-10] - _AS_NEAR
            near += sum(cosines[self.places[node_id]] >= least for node_id in set(search(question)))
        return near / (10 * len(questions))


def pack_searches(folder: Path, corpus: Corpus, top_k: int) -> Iterator[Search]:
    """The pack's searches of an index."""

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
    """What LlamaIndex's users would take: its default store, Chroma, and Chroma fused with its keyword
    search."""
    import chromadb
    from llama_index.retrievers.bm25 import BM25Retriever
    from llama_index.vector_stores.chroma import ChromaVectorStore

    default = VectorStoreIndex(list(texts), embed_model=corpus.embed_model).as_retriever(
        similarity_top_k=top_k
    )
    client = chromadb.PersistentClient(str(folder), chromadb.Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection("texts", metadata={"hnsw:space": "cosine"})
    store = ChromaVectorStore(chroma_collection=collection)
    for start in range(collection.count(), len(texts), _ADDED_AT_ONCE):
        store.add(list(texts[start : start + _ADDED_AT_ONCE]))
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
    """The ten nearest propositions by the pack's store, asked for as many nodes as by the pack at least."""
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
    """What each search took for each question, at the least of some rounds; every question begins with
    another one."""
    times = {search.name: Times() for search in searches}
    for number, question in enumerate(questions):
        start = number % len(searches)
        in_turn = [*searches[start:], *searches[:start]]
        for search in in_turn:
            if number % search.every == 0:
                taken = [_time(search, question) for _ in range(rounds)]
                times[search.name].clock.append(min(clock for clock, _ in taken))
                times[search.name].cores.append(min(cores for _, cores in taken))
    return times


def _time(search: Search, question: QueryBundle) -> tuple[float, float]:
    query = QueryBundle(question.query_str, embedding=question.embedding)
    clock = time.perf_counter()
    cores = time.process_time()
    search.ask(query)
    return 1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - cores)
