"""A way of retrieving, as `compare` runs it: the seam for a user's own retriever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_pack_densex.evaluation.corpus import Corpus


@dataclass(frozen=True)
class Built:
    """A retriever over a corpus, where `Strategy.build` has more to say than the retriever itself.

    Args:
        retriever: Returns nodes, best first; `Corpus.depth` distinct passages, or as many as it can.
        context_retriever: Returns the nodes of the context that a reader gets by default, where these are not the
            first ones of what `retriever` returns.
        units: The texts that are searched, to be counted; None means those that were embedded.
    """

    retriever: BaseRetriever
    context_retriever: BaseRetriever | None = None
    units: Sequence[str] | None = None


@dataclass(frozen=True)
class Strategy:
    """A retriever to compare, and how what it finds is read.

    Args:
        name: What the report calls it; those that begin with "densex" are taken for ours.
        build: Makes the retriever for a corpus; or a retriever that is ready. The embedding model of the corpus keeps
            what it embeds, for all strategies. `StrategyUnavailable` raised in it leaves the strategy out.
        description: How it is set up, in a sentence or two.
        context_k: How many of the retrieved nodes a reader gets by default; None means all.
        node_postprocessors: What makes the context of the nodes, one after the other; none means the nodes' texts.

    Raises:
        ValueError: The name is blank, or `context_k` is not positive.

    Examples:
        ```python
        def sentences(corpus: Corpus) -> BaseRetriever:
            index = VectorStoreIndex.from_documents(
                corpus.documents, transformations=[SentenceSplitter(chunk_size=64)], embed_model=corpus.embed_model
            )
            return index.as_retriever(similarity_top_k=corpus.depth)

        report = compare("squad.json", strategies=["densex", "vector", Strategy("mine", sentences)])
        ```
    """

    name: str
    build: Callable[[Corpus], BaseRetriever | Built] | BaseRetriever
    description: str = ""
    context_k: int | None = None
    node_postprocessors: Sequence[BaseNodePostprocessor] = ()

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a strategy needs a name")
        if self.context_k is not None and self.context_k < 1:
            raise ValueError(f"context_k of {self.name!r} is {self.context_k}: it must be at least 1, or None for all")

    def on(self, corpus: Corpus) -> Built:
        """The retriever for a corpus.

        Raises:
            StrategyUnavailable: Something that it needs is not there.
            TypeError: `build` returned something else than a retriever.
        """
        built = self.build if isinstance(self.build, BaseRetriever) else self.build(corpus)
        if isinstance(built, BaseRetriever):
            return Built(built)
        if not isinstance(built, Built):
            raise TypeError(f"build of strategy {self.name!r} must return a LlamaIndex retriever, not {built!r}")
        return built
