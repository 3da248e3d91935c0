"""Node parsers and embedding models in the workers of a Ray cluster: in LlamaIndex's pipeline, or into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from typing import Any, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, TransformComponent
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex.ingestion.report import describe
from llama_pack_densex.llm.usage import NOTHING, Usage
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, STATUS_KEY
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, holds_key
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.stores.foreign import adapter_for
from llama_pack_densex.stores.index import NodeIndex

try:
    import ray
    from llama_index.ingestion.ray import RayTransformComponent
    from ray import cloudpickle
    from ray.data import ActorPoolStrategy
    from ray.util import ActorPool
except ImportError as error:
    raise ImportError('this needs Ray; install it with: pip install "llama-pack-densex[ray]"') from error

MakeEmbedding = Callable[[], BaseEmbedding]

_BATCHES_A_WORKER = 2  # one under way and one that waits
# of a worker that died, and of its batch: one that is killed for its memory each time must end
_RESTARTS = {"max_restarts": -1, "max_task_retries": 3}


def ray_transformations(
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

    Node ids and links are those of one process. The rates and the budget of an `LLMPropositionizer` are divided
    between the workers. Keys never travel: the workers make the LLM again, with the key from their environment or by
    its `llm_factory`. A worker that dies is started again, and gets the batch again that it was working on.

    Args:
        parser: The node parser.
        embed_model: The embedding model, or a function without arguments that makes it in the workers. It takes a
            function where the model holds a key (`OpenAIEmbedding` itself is one) or has its weights in memory.
        workers: Processes that parse.
        embed_workers: Processes that embed; None means as many.
        batch_size: Documents that a parsing worker gets at a time.
        embed_batch_size: Nodes that an embedding worker gets at a time, and texts that its model embeds at a time.
        parser_options: Further arguments of `ray.data.Dataset.map_batches` for the parsing workers, such as
            `{"num_cpus": 0.25}`. A parsing and an embedding worker ask for half a CPU each, one without the other for
            a whole one.
        embed_options: Those for the embedding workers, such as `{"num_gpus": 1}`.

    Raises:
        ValueError: The embedding model holds a key, or a number is not positive.

    Examples:
        >>> from llama_index.ingestion.ray import RayIngestionPipeline
        >>> transformations = ray_transformations(parser, OpenAIEmbedding, workers=8)  # doctest: +SKIP
        >>> nodes = RayIngestionPipeline(transformations=transformations).run(documents=documents)  # doctest: +SKIP
    """
    embed_workers = workers if embed_workers is None else embed_workers
    _require_positive(
        workers=workers, embed_workers=embed_workers, batch_size=batch_size, embed_batch_size=embed_batch_size
    )
    shared = parser.model_copy(update={"propositionizer": _sharing(parser.propositionizer, workers)})
    stages: list[tuple[Callable[[], TransformComponent], int, int, Mapping[str, Any] | None]]
    stages = [(lambda: shared, workers, batch_size, parser_options)]
    if embed_model is not None:
        stages.append((_maker(embed_model, embed_batch_size), embed_workers, embed_batch_size, embed_options))
    cpus = 1 / len(stages)
    return [
        RayTransformComponent(
            MadeInWorker,
            transform_kwargs={"make": cloudpickle.dumps(make)},
            map_batches_kwargs={
                "compute": ActorPoolStrategy(size=size),
                "batch_size": number,
                "num_cpus": cpus,
                **(options or {}),
            },
        )
        for make, size, number, options in stages
    ]


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
    **options: Any,
) -> Iterator[ShardResult]:
    """Bring any number of documents into a vector store, shard by shard, with the workers of a Ray cluster.

    `RayIngestionPipeline` holds all documents and all nodes in the process that calls it, and starts workers for each
    call; here that process holds a shard, and the workers stay: models are loaded once, and a budget is one budget.

    Started again after a stop, it goes on: documents that the store has as they are are left alone, changed ones
    replace their earlier version, and the replies for those that were under way are in the propositionizer's cache, if
    it has one. A document some of whose propositions could not be had, since the provider could not be reached, is done
    again the next time.

    Args:
        documents: Read as the workers need them. They must have ids of their own.
        parser: As in `ray_transformations`.
        vector_store: Where this process writes the nodes.
        embed_model: As in `ray_transformations`.
        shard_size: Documents that are written at a time, and whose nodes are in memory until then.
        **options: The other arguments of `ray_transformations`; its options are those of Ray's actors here.

    Yields:
        What was written, after each shard.

    Raises:
        ValueError: As in `ray_transformations`, a document's id was made up by core, or the store keeps no text.
        ray.exceptions.RayTaskError: A worker failed. It is an instance of the worker's error too (of
            `BudgetExceededError`, say). What was finished before is written.
    """
    _require_positive(shard_size=shard_size)
    stages = ray_transformations(parser, embed_model, **options)
    store = adapter_for(vector_store)
    if store.docstore is not None:
        raise ValueError(f"{store.name} keeps no text, so that its propositions would lead nowhere: take another")
    return _ingest(_Shards(parser, NodeIndex(store)), stages, documents, shard_size)


@dataclass(frozen=True)
class _Batch:
    """What became of some documents, with what is wrong with those that failed, and what that used."""

    documents: list[Document]
    nodes: Sequence[BaseNode]
    failed: dict[str, str]
    usage: Usage


def _ingest(
    shards: _Shards, stages: Sequence[RayTransformComponent], documents: Iterable[Document], shard_size: int
) -> Iterator[ShardResult]:
    workers = _Workers(*stages)
    shard: list[_Batch] = []
    try:
        for batch in workers.run(shards.due(documents)):
            shard.append(batch)
            if sum(len(batch.documents) for batch in shard) >= shard_size:
                written, shard = shards.write(shard), []
                yield written
    except BaseException as error:
        if shard:  # what the workers finished before is kept, at Ctrl-C too
            written = shards.write(shard)
            if isinstance(error, Exception):
                yield written
        raise
    else:
        if shard or shards.unchanged:
            yield shards.write(shard)
    finally:
        workers.stop()


class _Shards:
    """Writes to a store what is not in it as it is."""

    def __init__(self, parser: BasePropositionNodeParser, nodes: NodeIndex) -> None:
        self._nodes, self._hash_of, self._numbers = nodes, parser.document_hasher(), count()
        self._there = {document_id: record.hash for document_id, record in nodes.documents().items()}
        self.unchanged = 0

    def due(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Leave out, and count, the documents that the store has as they are."""
        for document in documents:
            if is_random_id(document.id_):
                raise ValueError(
                    f"document {document.id_!r} ({title_of(document) or 'no title'}) has an id that core made up: "
                    "give each document one of its own, Document(id_=...), by which it is known again"
                )
            if self._there.get(document.id_) == self._hash_of(document):
                self.unchanged += 1
            else:
                yield document

    def write(self, shard: Sequence[_Batch]) -> ShardResult:
        """Write a shard, in place of what there is of its documents."""
        nodes = [node for batch in shard for node in batch.nodes]
        failed = {document_id: why for batch in shard for document_id, why in batch.failed.items()}
        ids = [document.id_ for batch in shard for document in batch.documents if document.id_ not in failed]
        self._nodes.replace(ids, nodes)
        unchanged, self.unchanged = self.unchanged, 0
        passages = [node for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage"]
        return ShardResult(
            number=next(self._numbers),
            documents=len(ids),
            unchanged=unchanged,
            failed=failed,
            nodes=len(nodes),
            fallbacks=sum(node.metadata.get(STATUS_KEY) == "fallback" for node in passages),
            usage=sum((batch.usage for batch in shard), NOTHING),
        )


class _Workers:
    """The actors that parse and those that embed; each is started when there is a first batch for it."""

    def __init__(self, *stages: RayTransformComponent) -> None:
        self._makes = [stage.transform_kwargs["make"] for stage in stages]
        self._options = [{**_RESTARTS, **stage.map_batches_kwargs} for stage in stages]
        self._sizes: list[int] = [options.pop("compute").min_size for options in self._options]
        self._batch_size, *_ = (options.pop("batch_size") for options in self._options)
        self._started: dict[tuple[int, int], Any] = {}
        self._turns = count()  # of those that embed

    def run(self, documents: Iterator[Document]) -> Iterator[_Batch]:
        """Make nodes of documents, and return batches of them as they are finished."""
        # what the pool gives out are turns, not actors, so that each of these has several and is started when it is due
        pool: Any = ActorPool(list(range(self._sizes[0] * _BATCHES_A_WORKER)))
        while batch := list(islice(documents, self._batch_size)):
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(self._send, batch)
        while pool.has_next():
            yield pool.get_next_unordered()

    def _send(self, turn: int, batch: list[Document]) -> Any:
        made = self._actor(0, turn % self._sizes[0]).parse.remote(batch)
        for stage, size in enumerate(self._sizes[1:], 1):
            made = self._actor(stage, next(self._turns) % size).embed.remote(made)
        return made

    def stop(self) -> None:
        """End the actors."""
        for actor in self._started.values():
            ray.kill(actor)

    def _actor(self, stage: int, number: int) -> Any:
        if (stage, number) not in self._started:
            worker: Any = ray.remote(_Worker)
            self._started[stage, number] = worker.options(**self._options[stage]).remote(self._makes[stage])
        return self._started[stage, number]


class _Worker:
    def __init__(self, make: bytes) -> None:
        self._stage = MadeInWorker(make=make)

    def parse(self, documents: list[Document]) -> _Batch:
        """Make nodes of documents."""
        parser = cast(BasePropositionNodeParser, self._stage.made)
        before = parser.propositionizer.usage
        parsed = list(parser.stream(documents))
        failed = {one.document.id_: describe(one.error, one.document.get_content()) for one in parsed if one.error}
        nodes = [node for one in parsed for node in one.nodes]
        return _Batch(documents, nodes, failed, parser.propositionizer.usage - before)

    def embed(self, batch: _Batch) -> _Batch:
        """Embed nodes."""
        return replace(batch, nodes=self._stage(batch.nodes))


class MadeInWorker(TransformComponent):
    """A transformation that is made where it runs, so that what is missing there is an error of its first batch.

    Args:
        make: A function without arguments that makes it, as Ray's cloudpickle writes it.
    """

    make: bytes

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return self.made(nodes, **kwargs)

    @cached_property
    def made(self) -> TransformComponent:
        """The transformation."""
        return cast(TransformComponent, cloudpickle.loads(self.make)())


def _maker(embed_model: BaseEmbedding | MakeEmbedding, batch_size: int) -> MakeEmbedding:
    """A function that makes the embedding model, and may travel."""
    if isinstance(embed_model, BaseEmbedding):
        name = type(embed_model).__name__
        if holds_key(embed_model):
            raise ValueError(
                f"embed_model, a {name}, holds a key, and keys do not travel: pass a function that makes it in the "
                f"workers, as embed_model=lambda: {name}(...), with the key from their environment"
            )

    def make() -> BaseEmbedding:
        model = embed_model if isinstance(embed_model, BaseEmbedding) else embed_model()
        model.embed_batch_size = batch_size
        return model

    return make


def _sharing(propositionizer: Propositionizer, workers: int) -> Propositionizer:
    """The propositionizer, and those inside of it, with limits that so many workers share."""
    update: dict[str, Any] = {}
    for name in type(propositionizer).model_fields:
        value = getattr(propositionizer, name)
        if isinstance(value, Propositionizer):
            update[name] = _sharing(value, workers)
        elif name == "workers":
            update[name] = value * workers
    return propositionizer.model_copy(update=update)


def _require_positive(**numbers: int) -> None:
    """Raise a ValueError for a number that is not positive; it is named."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")
