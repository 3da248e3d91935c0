"""A way of retrieving, as `compare` runs it: the seam for a user's own retriever, and what that may build from."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_pack_densex.evaluation.datasets import EvaluationSet
from llama_pack_densex.evaluation.models import KeptLLM
from llama_pack_densex.llm.usage import count_tokens
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.text.segments import passage_sentences, sentence_spans
from llama_pack_densex.text.tokens import tokenize


class StrategyUnavailable(Exception):  # not an error: the report lists it
    """A strategy needs something that this comparison does not have; the message says what."""


class Corpus:
    """The documents of a comparison, and the models that strategies share.

    Args:
        dataset: What is asked about.
        depth: How many distinct results the metrics of rankings look at.
        embed_model: Keeps what it embeds; None to compare without an embedding model.
        propositionizer: Where propositions come from; None where there are none.
        header_llm: Writes contextual headers; None where there is none.

    Attributes:
        dataset: What is asked about.
        documents: Whole articles.
        by_id: The same by their ids.
        passages: The passages that the dataset's authors cut, each a document of its own, without blank ones.
        language: "en", "ja", ...
        depth: How many distinct results the metrics of rankings look at.
        embed_model_or_none: The embedding model, where there is one.
        has_sentences_only: Whether sentences stand in for all propositions.
        header_llm: What writes contextual headers, where there is such an LLM.
    """

    def __init__(
        self,
        dataset: EvaluationSet,
        depth: int,
        embed_model: BaseEmbedding | None = None,
        propositionizer: Propositionizer | None = None,
        header_llm: KeptLLM | None = None,
    ) -> None:
        self.dataset = dataset
        self.documents = dataset.documents
        self.by_id = {document.id_: document for document in self.documents}
        self.passages = [passage for passage in dataset.passage_documents() if passage.text.strip()]
        self.language, self.depth = dataset.language, depth
        self.embed_model_or_none, self._propositionizer, self.header_llm = embed_model, propositionizer, header_llm
        self.has_sentences_only = isinstance(propositionizer, SentencePropositionizer)
        self.count_tokens = cache(count_tokens)  # strategies share most of their texts

    def among(self, candidates: Sequence[str]) -> Corpus:
        """The corpus of questions that come with the documents to rank, which are these; of others it is this one."""
        if not candidates:
            return self
        ranked = replace(self.dataset, documents=[self.by_id[key] for key in candidates])
        return Corpus(ranked, self.depth, self.embed_model_or_none, self._propositionizer, self.header_llm)

    def clock(self) -> float:
        """The time in seconds, which stands still while the embedding model works."""
        return time.perf_counter() - getattr(self.embed_model_or_none, "seconds", 0.0)

    def take_embedded(self) -> list[str]:
        """The texts that were embedded since the last call, where the embedding model says."""
        return cast("list[str]", getattr(self.embed_model_or_none, "take_requested", list)())

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model, which embeds each text once for all strategies.

        Raises:
            StrategyUnavailable: There is none.
        """
        if self.embed_model_or_none is None:
            raise StrategyUnavailable("it needs an embedding model, and there is none (embed_model=, --embed-model)")
        return self.embed_model_or_none

    @property
    def propositionizer(self) -> Propositionizer:
        """Makes the propositions of the dataset's passages.

        Raises:
            StrategyUnavailable: There is none.
        """
        if self._propositionizer is None:
            raise StrategyUnavailable("it needs propositions: say where from (propositionizer=, --propositionizer)")
        return self._propositionizer

    @cached_property
    def chunk_propositionizer(self) -> Propositionizer:
        """Makes the propositions of chunks that were cut otherwise than the dataset's passages.

        Recorded propositions are those of the dataset's passages: a chunk gets those of the passages that stand in it.

        Raises:
            StrategyUnavailable: There is no propositionizer.
        """
        inner = self.propositionizer
        return ChunkPropositionizer(inner, self.dataset) if isinstance(inner, RecordedPropositionizer) else inner


@dataclass(frozen=True)
class Built:
    """A retriever over a corpus, where `Strategy.build` has more to say than the retriever itself.

    Args:
        retriever: Returns nodes, best first; `Corpus.depth` distinct passages, or as many as it can.
        context_retriever: Returns the nodes of the context that a reader gets by default, where these are not the
            first ones of what `retriever` returns.
        units: The texts that are searched, to be counted; None means those that were embedded.
        query_engine: Answers questions; None means LlamaIndex's own over the default context, where answers are wanted.
    """

    retriever: BaseRetriever
    context_retriever: BaseRetriever | None = None
    units: Sequence[str] | None = None
    query_engine: BaseQueryEngine | None = None


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


class ChunkPropositionizer(Propositionizer):
    """Gives a chunk the propositions of the passages in it, as if an LLM had read the chunk.

    A passage that was cut in two shares its propositions out: each goes where most of the sentence is with which it
    shares the most words. Chunks that overlap can both have it. A chunk that gets none has its sentences, with the
    status "fallback".

    Args:
        recorded: Makes the propositions of the passages.
        dataset: The documents that chunks are cut from, and their passages.

    Raises:
        ValueError: A passage is not recorded.
    """

    _inner: Propositionizer = PrivateAttr()
    # of each article the text without white space, and the propositions with the places of their sentences in that
    _articles: list[tuple[str, list[tuple[int, int, str]]]] = PrivateAttr(default_factory=list)

    def __init__(self, recorded: Propositionizer, dataset: EvaluationSet) -> None:
        super().__init__()
        self._inner = recorded
        passages = [Passage(passage.text, title_of(passage)) for passage in dataset.passage_documents()]
        sets = iter(recorded.propositionize(passages))
        for document in dataset.documents:
            placed = []
            for start, end in dataset.passages_of(document):
                before = len(_bare(document.text[:start]))
                for begins, ends, text in _with_sentences(next(sets).texts, document.text[start:end]):
                    placed.append((before + begins, before + ends, text))
            self._articles.append((_bare(document.text), placed))

    @classmethod
    def class_name(cls) -> str:
        return "ChunkPropositionizer"

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [self._of_chunk(passage.text) for passage in passages]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"recorded": self._inner.fingerprint}

    def _of_chunk(self, chunk: str) -> PropositionSet:
        bare = _bare(chunk)
        for article, placed in self._articles:
            start = article.find(bare)
            end = start + len(bare)
            shared = ((min(end, ends) - max(start, begins), ends - begins, text) for begins, ends, text in placed)
            texts = tuple(text for part, whole, text in shared if 2 * part >= whole) if start >= 0 else ()
            if texts:
                return PropositionSet(texts)
        return PropositionSet(passage_sentences(chunk), "fallback", "no recorded proposition is about this chunk")


def _with_sentences(propositions: Sequence[str], passage: str) -> Iterator[tuple[int, int, str]]:
    """Propositions with the places of their sentences in the passage, in characters other than white space."""
    spans = sentence_spans(passage) or [(0, len(passage))]
    words = [Counter(tokenize(passage[slice(*span)])) for span in spans]
    for text in propositions:
        own = Counter(tokenize(text))
        shared = [(own & sentence).total() for sentence in words]
        begins, ends = spans[shared.index(max(shared))]
        yield len(_bare(passage[:begins])), len(_bare(passage[:ends])), text


def _bare(text: str) -> str:
    return "".join(text.split())
