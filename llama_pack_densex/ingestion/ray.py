"""Parsing and embedding by the workers of a Ray cluster, in LlamaIndex's pipeline or into a vector store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, TransformComponent
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.ingestion.report import describe, is_fallback
from llama_pack_densex.llm.usage import NOTHING, Usage
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, holds_key
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.propositionizers.base import Propositionizer

try:
    import ray
    from llama_index.ingestion.ray import RayTransformComponent
    from ray import cloudpickle
    from ray.data import ActorPoolStrategy
    from ray.util import ActorPool
except ImportError as error:
    raise ImportError(
        'this needs Ray; install it with: pip install "llama-pack-densex[ray]"'
    ) from error

MakeEmbedding = Callable[[], BaseEmbedding]

_BATCHES_PER_WORKER = 2  # one under way and one waiting
# a worker that dies is restarted; its batch is retried three times, since it may be what kills the worker
# (by its memory)
_RESTARTS = {"max_restarts": -1, "max_task_retries": 3}


def ray_transformations(  # noqa: PLR0913 (public)
    parser: BasePropositionNodeParser,
    embed_model: BaseEmbedding | MakeEmbedding | None = None,
    *,
    workers: int = 2,
    embed_workers: int | None = None,
    batch_size: int = 16,
    embed_batch_size: int = 256,
    parser_options: Mapping[str, Any] | None = None,
    embed_options: Mapping[str, Any] | None = None,
) -> list[RayTransformComponent]:
    """Wrap a parser, and an embedding model, for `RayIngestionPipeline`.

    Node ids and links are the same as in a single process. The rates and the budget of an
    `LLMPropositionizer` are divided between the workers. Keys are never sent to the workers: they make the
    LLM again, with the key from their environment or by its `llm_factory`. A worker that dies is restarted,
    and gets its batch again.

    Args:
        parser: The node parser.
        embed_model: The embedding model, or a function without arguments that makes it in the workers. A
            function is needed if the model holds a key or has its weights in memory; a class, such as
            `OpenAIEmbedding`, is a function in this sense.
        workers: How many processes parse.
        embed_workers: How many processes embed; None means as many as parse.
        batch_size: How many documents a parsing worker gets at a time.
        embed_batch_size: How many nodes an embedding worker gets at a time, and how many texts its model
            embeds at a time.
        parser_options: Further arguments of `ray.data.Dataset.map_batches` for the parsing workers, such as
            `{"num_cpus": 0.25}`. By default parsing and embedding workers reserve half a CPU each, or a whole
            CPU if there is no embedding model.
        embed_options: The same for the embedding workers, such as `{"num_gpus": 1}`.

    Raises:
        ValueError: The embedding model holds a key, or a number is not positive.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_index.embeddings.openai import OpenAIEmbedding
        >>> from llama_index.ingestion.ray import RayIngestionPipeline
        >>> from llama_pack_densex import PropositionNodeParser
        >>> from llama_pack_densex.ingestion.ray import ray_transformations
        >>> transformations = ray_transformations(PropositionNodeParser(), OpenAIEmbedding, workers=8)
        >>> len(transformations)  # one parses, the other embeds
        2
        >>> # not run: starts a Ray cluster, and asks OpenAI
        >>> pipeline = RayIngestionPipeline(transformations=transformations)  # doctest: +SKIP
        >>> nodes = pipeline.run(documents=[Document(text="Miso is salty.")])  # doctest: +SKIP
    """
    if embed_workers is None:
        embed_workers = workers
    _require_positive(
        workers=workers,
        embed_workers=embed_workers,
        batch_size=batch_size,
        embed_batch_size=embed_batch_size,
    )
    propositionizer = _sharing(parser.propositionizer, workers)
    shared = parser.model_copy(update={"propositionizer": propositionizer})
    cpus = 0.5 if embed_model else 1.0
    stages = [_stage(lambda: shared, workers, batch_size, cpus, parser_options)]
    if embed_model:
        make_model = _maker(embed_model, embed_batch_size)
        stages.append(_stage(make_model, embed_workers, embed_batch_size, cpus, embed_options))
    return stages


def _stage(
    make: Callable[[], TransformComponent],
    workers: int,
    batch_size: int,
    cpus: float,
    options: Mapping[str, Any] | None,
) -> RayTransformComponent:
    return RayTransformComponent(
        MadeInWorker,
        transform_kwargs={"make": cloudpickle.dumps(make)},
        map_batches_kwargs={
            "compute": ActorPoolStrategy(size=workers),
            "batch_size": batch_size,
            "num_cpus": cpus,
            **(options or {}),
        },
    )


@dataclass(frozen=True)
class ShardResult:
    """One shard that `ingest_shards` wrote.

    Args:
        number: The shard's number, from 0.
        documents: Documents that were written.
        unchanged: Documents that the store already had unchanged, and that were skipped.
        failed: The errors of documents that could not be parsed, by document id. An earlier version in the
            store stays.
        nodes: Nodes that were written.
        fallbacks: Passages among them whose sentences stand in for propositions.
        usage: The LLM's usage for them, as the provider counts it.
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
    **options: Any,
) -> Iterator[ShardResult]:
    """Write any number of documents into a vector store, shard by shard, with the workers of a Ray cluster.

    `RayIngestionPipeline` holds all documents and all nodes in the calling process, and starts new workers
    for each call. Here the calling process holds one shard, and the workers stay, so that models are loaded
    once and all shards share one budget.

    Started again after a stop, it resumes: documents that the store has unchanged are skipped, changed ones
    replace their earlier version, and replies for documents that were under way are in the propositionizer's
    cache, if it has one. A document for which the provider could not be reached is processed again the next
    time.

    Args:
        documents: The documents, which are read as the workers need them. They must have ids of their own.
        parser: As in `ray_transformations`.
        vector_store: The store; the calling process writes the nodes into it.
        embed_model: As in `ray_transformations`.
        shard_size: How many documents are written at a time; their nodes are in memory until then.
        **options: The other arguments of `ray_transformations`; here the options of workers are those of
            Ray's actors.

    Yields:
        The result of each shard when it has been written.

    Raises:
        ValueError: As in `ray_transformations`, or LlamaIndex made up a document's id, or the store keeps no
            text.
        ray.exceptions.RayTaskError: A worker failed. The error is also an instance of the worker's error
            (such as `BudgetExceededError`). Batches that were finished before have been written.

    Example:
        >>> from chromadb import EphemeralClient
        >>> from llama_index.core import Document
        >>> from llama_index.embeddings.openai import OpenAIEmbedding
        >>> from llama_index.vector_stores.chroma import ChromaVectorStore
        >>> from llama_pack_densex import PropositionNodeParser
        >>> from llama_pack_densex.ingestion.ray import ingest_shards
        >>> # not run: starts a Ray cluster, and asks OpenAI
        >>> documents = [Document(id_="miso.md", text="Miso is salty.")]  # doctest: +SKIP
        >>> store = ChromaVectorStore(EphemeralClient().create_collection("food"))  # doctest: +SKIP
        >>> parser = PropositionNodeParser()
        >>> shards = ingest_shards(documents, parser, store, OpenAIEmbedding)  # doctest: +SKIP
        >>> for shard in shards:  # doctest: +SKIP
        ...     print(shard.documents, shard.nodes)
        1 2
    """
    _require_positive(shard_size=shard_size)
    stages = ray_transformations(parser, embed_model, **options)
    store = adapter_for(vector_store)
    if store.docstore is not None:
        raise ValueError(
            f"{store.name} keeps no text, so its propositions would lead nowhere: use another store"
        )
    return _ingest(_Shards(parser, NodeIndex(store)), stages, documents, shard_size)


@dataclass(frozen=True)
class _Batch:
    """Documents with their nodes, the errors of those that failed, and the LLM's usage for them."""

    documents: list[Document]
    nodes: Sequence[BaseNode]
    failed: dict[str, str]
    usage: Usage


def _ingest(
    shards: _Shards,
    stages: Sequence[RayTransformComponent],
    documents: Iterable[Document],
    shard_size: int,
) -> Iterator[ShardResult]:
    workers = _Workers(stages)
    shard = []
    try:
        for batch in workers.run(shards.due(documents)):
            shard.append(batch)
            if sum(len(batch.documents) for batch in shard) >= shard_size:
                result = shards.write(shard)
                shard = []
                yield result
    except BaseException as error:
        if shard:  # finished batches are written, also at Ctrl-C
            result = shards.write(shard)
            if isinstance(error, Exception):
                yield result
        raise
    else:
        if shard or shards.unchanged:
            yield shards.write(shard)
    finally:
        workers.stop()


class _Shards:
    """Writes new and changed documents to a store, shard by shard."""

    def __init__(self, parser: BasePropositionNodeParser, nodes: NodeIndex) -> None:
        self._nodes = nodes
        self._hash_of = parser.document_hasher()
        self._hashes = {
            document_id: record.hash for document_id, record in nodes.documents().items()
        }
        self._numbers = count()
        self.unchanged = 0

    def due(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield new and changed documents; count those that the store has unchanged.

        Raises:
            ValueError: LlamaIndex made up a document's id.
        """
        for document in documents:
            if is_random_id(document.id_):
                raise ValueError(
                    f"document {document.id_!r} ({title_of(document) or 'no title'}) has a random id made by "
                    "LlamaIndex: give each document a fixed one, Document(id_=...), so that a later run "
                    "recognises it"
                )
            if self._hashes.get(document.id_) == self._hash_of(document):
                self.unchanged += 1
            else:
                yield document

    def write(self, shard: Sequence[_Batch]) -> ShardResult:
        """Write a shard, in place of earlier versions of its documents."""
        ids = []
        nodes: list[BaseNode] = []
        failed: dict[str, str] = {}
        usage = NOTHING
        for batch in shard:
            ids += [
                document.id_ for document in batch.documents if document.id_ not in batch.failed
            ]
            nodes += batch.nodes
            failed |= batch.failed
            usage += batch.usage
        self._nodes.replace(ids, nodes)
        self._nodes.store.commit()
        result = ShardResult(
            number=next(self._numbers),
            documents=len(ids),
            unchanged=self.unchanged,
            failed=failed,
            nodes=len(nodes),
            fallbacks=sum(map(is_fallback, nodes)),
            usage=usage,
        )
        self.unchanged = 0
        return result


class _Workers:
    """The actors that parse, and those that embed."""

    def __init__(self, stages: Sequence[RayTransformComponent]) -> None:
        self._parsing, *self._embedding = map(_Actors, stages)

    def run(self, documents: Iterator[Document]) -> Iterator[_Batch]:
        """Parse and embed documents, and yield batches in the order in which they are finished."""
        # the pool holds turns, not actors, so that an actor can have several, and starts with its first
        pool: Any = ActorPool(list(range(self._parsing.size * _BATCHES_PER_WORKER)))
        for batch in iter_batch(documents, self._parsing.batch_size):
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(self._send, batch)
        while pool.has_next():
            yield pool.get_next_unordered()

    def _send(self, turn: int, batch: list[Document]) -> Any:
        result = self._parsing.of_turn(turn).parse.remote(batch)
        for stage in self._embedding:
            result = stage.of_turn(next(stage.turns)).embed.remote(result)
        return result

    def stop(self) -> None:
        """End the actors."""
        for stage in (self._parsing, *self._embedding):
            for actor in stage.started.values():
                ray.kill(actor)


class _Actors:
    """The actors of a stage; each is started with its first batch."""

    def __init__(self, stage: RayTransformComponent) -> None:
        self._options = {**_RESTARTS, **stage.map_batches_kwargs}
        self._make = stage.transform_kwargs["make"]
        self.size: int = self._options.pop("compute").min_size
        self.batch_size: int = self._options.pop("batch_size")
        self.started: dict[int, Any] = {}
        self.turns = count()

    def of_turn(self, turn: int) -> Any:
        """Return the actor whose turn it is."""
        number = turn % self.size
        if number not in self.started:
            worker: Any = ray.remote(_Worker).options(**self._options)
            self.started[number] = worker.remote(self._make)
        return self.started[number]


class _Worker:
    def __init__(self, make: bytes) -> None:
        self._stage = MadeInWorker(make=make)

    def parse(self, documents: list[Document]) -> _Batch:
        """Parse documents into a batch."""
        parser = cast(BasePropositionNodeParser, self._stage.made)
        earlier = parser.propositionizer.usage
        nodes = []
        failed = {}
        for parsed in parser.stream(documents):
            nodes += parsed.nodes
            if parsed.error:
                failed[parsed.document.id_] = describe(parsed.error, parsed.document.get_content())
        return _Batch(documents, nodes, failed, parser.propositionizer.usage - earlier)

    def embed(self, batch: _Batch) -> _Batch:
        """Embed the nodes of a batch."""
        return replace(batch, nodes=self._stage(batch.nodes))


class MadeInWorker(TransformComponent):
    """A transformation that is made in the worker; anything missing there is an error of its first batch.

    Args:
        make: A function without arguments that makes it, pickled by Ray's cloudpickle.
    """

    make: bytes

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return self.made(nodes, **kwargs)

    @cached_property
    def made(self) -> TransformComponent:
        """The transformation, made at first use."""
        return cast(TransformComponent, cloudpickle.loads(self.make)())


def _maker(embed_model: BaseEmbedding | MakeEmbedding, batch_size: int) -> MakeEmbedding:
    """Return a function that makes the embedding model and can be sent to the workers.

    Raises:
        ValueError: The embedding model holds a key.
    """
    if isinstance(embed_model, BaseEmbedding):
        name = type(embed_model).__name__
        if holds_key(embed_model):
            raise ValueError(
                f"embed_model, a {name}, holds a key, and keys are not sent to workers: pass a function that "
                f"makes it there, as embed_model=lambda: {name}(...), with the key from their environment"
            )

    def make() -> BaseEmbedding:
        model = embed_model
        if not isinstance(model, BaseEmbedding):
            model = model()
        model.embed_batch_size = batch_size
        return model

    return make


def _sharing(propositionizer: Propositionizer, workers: int) -> Propositionizer:
    """Return a copy of a propositionizer, and of those inside it, with limits that the workers share."""
    update: dict[str, Any] = {}
    for name in type(propositionizer).model_fields:
        value = getattr(propositionizer, name)
        if isinstance(value, Propositionizer):
            update[name] = _sharing(value, workers)
        elif name == "workers":
            update[name] = value * workers
    return propositionizer.model_copy(update=update)


def _require_positive(**numbers: int) -> None:
    """Raise a ValueError that names the first number that is not positive."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")
