"""A corpus of any size into a vector store, shard by shard, with the workers of a Ray cluster."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.ingestion.estimating import asked_llm
from llama_pack_densex.ingestion.ray import MadeInWorker, MakeEmbedding, ray_transformations, require_positive
from llama_pack_densex.llm_requests.reply import NOTHING, Usage
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY, STATUS_KEY
from llama_pack_densex.node_parsers.passages import title_of
from llama_pack_densex.stores.index import node_store

try:
    import ray
    from llama_index.ingestion.ray import RayTransformComponent
except ImportError as error:
    raise ImportError('this needs Ray; install it with: pip install "llama-pack-densex[ray]"') from error

_BATCHES_A_WORKER = 2  # one under way and one that waits
_MOST_RETRIES = 3  # of a batch whose worker died: one that is killed for its memory each time must end


@dataclass(frozen=True)
class ShardResult:
    """What `ingest_shards` wrote at a time.

    Args:
        number: Of the shard, from 0.
        documents: Documents that were written.
        unchanged: Documents that are in the store as they are, and were left alone.
        failed: What is wrong with each document that could not be parsed, by its id. What the store has of it stays.
        nodes: Nodes that were written.
        fallbacks: Passages among them that their sentences stand in for.
        usage: What the LLM used for them, as the provider counts it.
    """

    number: int
    documents: int
    unchanged: int
    failed: dict[str, str]
    nodes: int
    fallbacks: int
    usage: Usage


def ingest_shards(
    documents: Iterable[Document],
    parser: BasePropositionNodeParser,
    vector_store: BasePydanticVectorStore,
    embed_model: BaseEmbedding | MakeEmbedding | None = None,
    *,
    shard_size: int = 1000,
    ledger: str | Path | None = None,
    **options: Any,
) -> Iterator[ShardResult]:
    """Bring any number of documents into a vector store, shard by shard, with the workers of a Ray cluster.

    `RayIngestionPipeline` holds all documents and all nodes in the process that calls it, and starts workers for each
    call; here that process holds a shard, and the workers stay: models are loaded once, and a budget is one budget.

    Started again after a stop, it goes on: documents that the ledger names and the store has are left alone, and the
    replies for those that were under way are in the propositionizer's cache, if it has one. A document some of whose
    propositions could not be had, since the provider could not be reached, is done again the next time.

    Args:
        documents: Read as the workers need them. They must have ids of their own.
        parser: As in `ray_transformations`.
        vector_store: Where this process writes the nodes.
        embed_model: As in `ray_transformations`.
        shard_size: Documents that are written at a time, and whose nodes are in memory until then.
        ledger: A SQLite file that says what of each document is in the store: of one store, filled with one embedding
            model. A document that has changed replaces its earlier version. None means that all documents are new.
        **options: The other arguments of `ray_transformations`; its options are those of Ray's actors here.

    Yields:
        What was written, after each shard.

    Raises:
        ValueError: As in `ray_transformations`, or a document's id was made up by core.
        ray.exceptions.RayTaskError: A worker failed. It is an instance of the worker's error too (of
            `BudgetExceededError`, say). What was finished before is written.
    """
    require_positive(shard_size=shard_size)
    stages = ray_transformations(parser, embed_model, **options)
    store = _ShardStore(parser, vector_store, None if ledger is None else Ledger(ledger))
    return _ingest(store, stages, documents, shard_size)


class Ledger:
    """What a store holds of which documents: for each document its hash and the id of one of its nodes.

    Args:
        path: A SQLite file. Where it is not there, it is made, readable by its owner only.
    """

    def __init__(self, path: str | Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection = sqlite3.connect(path, check_same_thread=False)
        with self._connection as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, hash TEXT, node TEXT)")

    def read(self, document_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """The hashes and the nodes' ids of those documents that are entered."""
        found: dict[str, tuple[str, str]] = {}
        remaining = iter(document_ids)
        while ids := list(islice(remaining, 500)):  # SQLite takes 999 parameters, or more
            places = ", ".join("?" * len(ids))
            rows = self._connection.execute(f"SELECT id, hash, node FROM documents WHERE id IN ({places})", ids)
            found |= {document_id: (document_hash, node_id) for document_id, document_hash, node_id in rows}
        return found

    def enter(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Enter documents, each as id, hash and a node's id; all of them or none."""
        with self._connection as connection:
            connection.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", entries)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@dataclass(frozen=True)
class _Outcome:
    """What a batch of documents came to, besides its nodes."""

    failed: dict[str, str]
    usage: Usage


@dataclass(frozen=True)
class _Batch:
    documents: list[Document]
    nodes: list[BaseNode]
    outcome: _Outcome


def _ingest(
    store: _ShardStore, stages: Sequence[RayTransformComponent], documents: Iterable[Document], shard_size: int
) -> Iterator[ShardResult]:
    workers = _Workers(*stages)
    number = -1
    try:
        batches = workers.run(store.due(documents, shard_size))
        for number, shard in enumerate(_shards(batches, shard_size)):
            yield store.write(number, shard)
        if store.unchanged:
            yield store.write(number + 1, [])
    finally:
        workers.stop()
        store.close()


def _shards(batches: Iterable[_Batch], shard_size: int) -> Iterator[list[_Batch]]:
    shard: list[_Batch] = []
    try:
        for batch in batches:
            shard.append(batch)
            if sum(len(batch.documents) for batch in shard) >= shard_size:
                yield shard
                shard = []
    except Exception:
        if shard:
            yield shard  # what the other workers finished before is kept
        raise
    if shard:
        yield shard


class _ShardStore:
    """A vector store with its ledger."""

    def __init__(
        self, parser: BasePropositionNodeParser, vector_store: BasePydanticVectorStore, ledger: Ledger | None
    ) -> None:
        adapter = node_store(vector_store)
        self._nodes = adapter if adapter.docstore is None else None  # evens out what stores do differently
        self._store, self._ledger, self._hash_of = vector_store, ledger, parser.document_hasher()
        self.unchanged = 0

    def due(self, documents: Iterable[Document], at_a_time: int) -> Iterator[Document]:
        """Leave out, and count, the documents that the store has as they are."""
        remaining = iter(documents)
        while some := list(islice(remaining, at_a_time)):
            for document in some:
                if is_random_id(document.id_):
                    raise ValueError(
                        f"document {document.id_!r} ({title_of(document) or 'no title'}) has an id that core made up: "
                        "give each document one of its own, Document(id_=...), by which it is known again"
                    )
            there = self._as_they_are(some)
            self.unchanged += len(there)
            yield from (document for document in some if document.id_ not in there)

    def write(self, number: int, shard: Sequence[_Batch]) -> ShardResult:
        """Write a shard, in place of what there is of its documents."""
        nodes = [node for batch in shard for node in batch.nodes]
        failed = {document_id: why for batch in shard for document_id, why in batch.outcome.failed.items()}
        documents = [document for batch in shard for document in batch.documents if document.id_ not in failed]
        if self._ledger is not None:
            ids = [document.id_ for document in documents]
            there = self._ledger.read(ids)
            self._ledger.enter((document_id, "", "") for document_id in ids)  # a stop in between is seen
            self._replace(list(there), nodes)
        else:
            self._replace([], nodes)
        if self._ledger is not None:
            first = {node.ref_doc_id: node for node in reversed(nodes)}
            self._ledger.enter(self._entry(document, first.get(document.id_)) for document in documents)
        unchanged, self.unchanged = self.unchanged, 0
        passages = [node for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage"]
        return ShardResult(
            number=number,
            documents=len(documents),
            unchanged=unchanged,
            failed=failed,
            nodes=len(nodes),
            fallbacks=sum(node.metadata.get(STATUS_KEY) == "fallback" for node in passages),
            usage=sum((batch.outcome.usage for batch in shard), NOTHING),
        )

    def _replace(self, document_ids: Sequence[str], nodes: Sequence[BaseNode]) -> None:
        if self._nodes is not None:
            self._nodes.replace(document_ids, nodes)
            return
        for document_id in document_ids:
            self._store.delete(document_id)
        if nodes:
            self._store.add(list(nodes))

    def _entry(self, document: Document, node: BaseNode | None) -> tuple[str, str, str]:
        if node is None:  # a blank document
            return document.id_, self._hash_of(document), ""
        return document.id_, str(node.metadata[DOCUMENT_HASH_KEY]), node.node_id

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _as_they_are(self, documents: Sequence[Document]) -> set[str]:
        if self._ledger is None:
            return set()
        entered = self._ledger.read(document.id_ for document in documents)
        hashes = {document.id_: self._hash_of(document) for document in documents}
        same = {document_id: node for document_id, (entry, node) in entered.items() if entry == hashes[document_id]}
        nodes = [node for node in same.values() if node]  # a blank document has none
        if not nodes:
            return set(same)
        if self._nodes is None:  # a store that cannot say what it has
            return set(same)
        found = self._nodes.fetch(nodes).keys()
        return {document_id for document_id, node in same.items() if not node or node in found}


class _Workers:
    """The actors that parse and those that embed; each is started when there is a first batch for it."""

    def __init__(self, parsing: RayTransformComponent, *embedding: RayTransformComponent) -> None:
        self._batch_size: int = parsing.map_batches_kwargs["batch_size"]
        self._parsers = _Actors(_Parser, parsing)
        self._embedders = [_Actors(_Embedder, stage) for stage in embedding]

    def run(self, documents: Iterator[Document]) -> Iterator[_Batch]:
        """Make nodes of documents, and return batches of them as they are finished."""
        under_way: dict[Any, tuple[int, list[Document], Any]] = {}
        turns = count()

        def feed(parser: int) -> None:
            batch = list(islice(documents, self._batch_size))
            if not batch:
                return
            nodes, outcome = self._parsers[parser].run.options(num_returns=2).remote(batch)
            turn = next(turns)
            for actors in self._embedders:
                nodes = actors[turn % actors.size].run.remote(nodes)
            under_way[nodes] = parser, batch, outcome

        for parser in [*range(self._parsers.size)] * _BATCHES_A_WORKER:
            feed(parser)
        while under_way:
            (finished,), _ = ray.wait(list(under_way))
            parser, batch, outcome = under_way.pop(finished)
            yield _Batch(batch, *ray.get([finished, outcome]))
            feed(parser)

    def stop(self) -> None:
        """End the actors."""
        for actors in (self._parsers, *self._embedders):
            actors.stop()


class _Actors:
    """Actors of one kind, by number."""

    def __init__(self, kind: type, stage: RayTransformComponent) -> None:
        options = {"max_restarts": -1, "max_task_retries": _MOST_RETRIES, **stage.map_batches_kwargs}
        self.size: int = options.pop("compute").min_size
        del options["batch_size"]
        self._kind, self._options, self._make = kind, options, stage.transform_kwargs["make"]
        self._started: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number not in self._started:
            kind: Any = ray.remote(self._kind)
            self._started[number] = kind.options(**self._options).remote(self._make)
        return self._started[number]

    def stop(self) -> None:
        for actor in self._started.values():
            ray.kill(actor)


class _Parser:
    def __init__(self, make: bytes) -> None:
        self._stage = MadeInWorker(make=make)

    def run(self, documents: Sequence[Document]) -> tuple[list[BaseNode], _Outcome]:
        """Make nodes of documents."""
        parser = cast(BasePropositionNodeParser, self._stage.made)
        asking = asked_llm(parser.propositionizer)
        before = asking.figures.usage if asking is not None else NOTHING
        parsed = list(parser.stream(documents))
        used = asking.figures.usage - before if asking is not None else NOTHING
        failed = {one.document.id_: str(one.error) for one in parsed if one.error is not None}
        return [node for one in parsed for node in one.nodes], _Outcome(failed, used)


class _Embedder:
    def __init__(self, make: bytes) -> None:
        self._stage = MadeInWorker(make=make)

    def run(self, nodes: Sequence[BaseNode]) -> Sequence[BaseNode]:
        """Embed nodes."""
        return self._stage(nodes)
