"""Node parsers as the transformations of a `RayIngestionPipeline`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, TransformComponent

from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.serialising import parser_to_dict
from llama_pack_densex.propositionizers.base import Propositionizer

try:
    from llama_index.ingestion.ray import RayTransformComponent
    from ray import cloudpickle
    from ray.data import ActorPoolStrategy
except ImportError as error:
    raise ImportError('this needs Ray; install it with: pip install "llama-pack-densex[ray]"') from error

T = TypeVar("T")
MakeEmbedding = Callable[[], BaseEmbedding]

_MOST_PICKLED = 8 * 2**20  # bytes; what is larger has a model's weights in it, and Ray refuses actors of 95 MiB


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
        ValueError: The embedding model holds a key or is too large to travel, or a number is not positive.

    Examples:
        >>> from llama_index.ingestion.ray import RayIngestionPipeline
        >>> transformations = ray_transformations(parser, OpenAIEmbedding, workers=8)  # doctest: +SKIP
        >>> nodes = RayIngestionPipeline(transformations=transformations).run(documents=documents)  # doctest: +SKIP
    """
    embed_workers = workers if embed_workers is None else embed_workers
    require_positive(
        workers=workers, embed_workers=embed_workers, batch_size=batch_size, embed_batch_size=embed_batch_size
    )
    shared = parser.model_copy(update={"propositionizer": _sharing(parser.propositionizer, workers)})
    cpus = 1 if embed_model is None else 0.5
    transformations = [_transformation(partial(_same, shared), workers, batch_size, cpus, parser_options)]
    if embed_model is not None:
        make = partial(_embedding_batches, _maker(embed_model), embed_batch_size)
        transformations.append(_transformation(make, embed_workers, embed_batch_size, cpus, embed_options))
    return transformations


class MadeInWorker(TransformComponent):
    """A transformation that is made where it runs, so that what is missing there is an error of its first batch.

    Args:
        make: A function without arguments that makes it, as Ray's cloudpickle writes it.
    """

    make: bytes
    _made: TransformComponent | None = PrivateAttr(default=None)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return self.made(nodes, **kwargs)

    @property
    def made(self) -> TransformComponent:
        """The transformation; the first call makes it."""
        if self._made is None:
            self._made = cast(TransformComponent, cloudpickle.loads(self.make)())
        return self._made


def _transformation(
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


def _maker(embed_model: BaseEmbedding | MakeEmbedding) -> MakeEmbedding:
    """A function that makes the embedding model, and may travel."""
    if not isinstance(embed_model, BaseEmbedding):
        return embed_model
    name = type(embed_model).__name__
    advice = f"pass a function that makes it in the workers, as embed_model=lambda: {name}(...)"
    if parser_to_dict(cast(Any, embed_model)) != embed_model.to_dict():
        raise ValueError(
            f"embed_model, a {name}, holds a key, and keys do not travel: {advice}, with the key from their environment"
        )
    size = len(cloudpickle.dumps(embed_model))
    if size > _MOST_PICKLED:
        raise ValueError(f"embed_model, a {name}, takes {size >> 20} MiB to send to each worker: {advice}")
    return partial(_same, embed_model)


def _embedding_batches(make: MakeEmbedding, size: int) -> BaseEmbedding:
    model = make()
    model.embed_batch_size = size
    return model


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


def require_positive(**numbers: int) -> None:
    """Raise a ValueError for a number that is not positive; it is named."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")


def _same(value: T) -> T:
    return value
