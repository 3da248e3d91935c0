"""A corpus of any size into a vector store, shard by shard, with the workers of a Ray cluster."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.ingestion.ray import MadeInWorker, MakeEmbedding, ray_transformations, require_positive
from llama_pack_densex.llm_requests.reply import Usage
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, STATUS_KEY
from llama_pack_densex.node_parsers.passages import title_of
from llama_pack_densex.propositionizers.base import Propositionizer

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
        nodes: Nodes that were written.
        fallbacks: Passages among them that their sentences stand in for.
        usage: What the LLM used for them, as the provider counts it.
    """

    number: int
    documents: int
    unchanged: int
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
    replies for those that were under way are in the propositionizer's cache, if it has one.

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
class _Batch:
    documents: list[Document]
    nodes: list[BaseNode]
    usage: Usage


def _ingest(
    store: _ShardStore, stages: Sequence[RayTransformComponent], documents: Iterable[Document], shard_size: int
) -> Iterator[ShardResult]:
    workers = _Workers(stages)
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
        self._parser, self._store, self._ledger = parser, vector_store, ledger
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
        documents = [document for batch in shard for document in batch.documents]
        nodes = [node for batch in shard for node in batch.nodes]
        if self._ledger is not None:
            ids = [document.id_ for document in documents]
            there = self._ledger.read(ids)
            self._ledger.enter((document_id, "", "") for document_id in ids)  # a stop in between is seen
            for document_id in there:
                self._store.delete(document_id)
        if nodes:
            self._store.add(nodes)
        if self._ledger is not None:
            last = {node.ref_doc_id: node.node_id for node in nodes}
            self._ledger.enter((d.id_, self._parser.document_hash(d), last.get(d.id_, "")) for d in documents)
        unchanged, self.unchanged = self.unchanged, 0
        passages = [node for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage"]
        return ShardResult(
            number=number,
            documents=len(documents),
            unchanged=unchanged,
            nodes=len(nodes),
            fallbacks=sum(node.metadata.get(STATUS_KEY) == "fallback" for node in passages),
            usage=sum((batch.usage for batch in shard), Usage()),
        )

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _as_they_are(self, documents: Sequence[Document]) -> set[str]:
        if self._ledger is None:
            return set()
        entered = self._ledger.read(document.id_ for document in documents)
        hashes = {document.id_: self._parser.document_hash(document) for document in documents}
        same = {document_id: node for document_id, (entry, node) in entered.items() if entry == hashes[document_id]}
        nodes = [node for node in same.values() if node]  # a blank document has none
        if not nodes:
            return set(same)
        try:
            found = {node.node_id for node in self._store.get_nodes(nodes)}
        except NotImplementedError:  # a store that cannot say what it has
            return set(same)
        return {document_id for document_id, node in same.items() if not node or node in found}


class _Workers:
    """The actors of all stages; each is started when there is a first batch for it."""

    def __init__(self, stages: Sequence[RayTransformComponent]) -> None:
        self._stages = [dict(stage.map_batches_kwargs) for stage in stages]
        self._makes = [stage.transform_kwargs["make"] for stage in stages]
        self._sizes = [stage.pop("compute").min_size for stage in self._stages]
        self._batch_size, *_ = [stage.pop("batch_size") for stage in self._stages]
        self._actors: dict[tuple[int, int], Any] = {}

    def run(self, documents: Iterator[Document]) -> Iterator[_Batch]:
        """Make nodes of documents, and return batches of them as they are finished."""
        under_way: dict[Any, tuple[int, list[Document], Any]] = {}
        turns = count()

        def feed(parser: int) -> None:
            batch = list(islice(documents, self._batch_size))
            if not batch:
                return
            turn = next(turns)
            nodes, usage = self._run(0, parser, batch)
            for stage in range(1, len(self._stages)):
                nodes, _ = self._run(stage, turn % self._sizes[stage], nodes)
            under_way[nodes] = parser, batch, usage

        for parser in [*range(self._sizes[0])] * _BATCHES_A_WORKER:
            feed(parser)
        while under_way:
            (finished,), _ = ray.wait(list(under_way))
            parser, batch, usage = under_way.pop(finished)
            yield _Batch(batch, *ray.get([finished, usage]))
            feed(parser)

    def stop(self) -> None:
        """End the actors."""
        for actor in self._actors.values():
            ray.kill(actor)

    def _run(self, stage: int, place: int, nodes: Any) -> Any:
        if (stage, place) not in self._actors:
            options = {"max_restarts": -1, "max_task_retries": _MOST_RETRIES, **self._stages[stage]}
            actor: Any = ray.remote(_Actor)
            self._actors[stage, place] = actor.options(**options).remote(self._makes[stage])
        return self._actors[stage, place].run.options(num_returns=2).remote(nodes)


class _Actor:
    def __init__(self, make: bytes) -> None:
        self._transformation = MadeInWorker(make=make)

    def run(self, nodes: Sequence[BaseNode]) -> tuple[list[BaseNode], Usage]:
        """Transform nodes; returns the new ones, and what the LLM used for them."""
        before = _usage(self._transformation.made)
        made = list(self._transformation(nodes))
        after = _usage(self._transformation.made)
        return made, Usage(*(b - a for a, b in zip(astuple(before), astuple(after), strict=True)))


def _usage(part: Any) -> Usage:
    """What a parser, or a propositionizer and those inside of it, used so far."""
    if isinstance(part, BasePropositionNodeParser):
        return _usage(part.propositionizer)
    if not isinstance(part, Propositionizer):
        return Usage()
    inner = [_usage(getattr(part, name)) for name in type(part).model_fields]
    return sum(inner, getattr(part, "usage", Usage()))
