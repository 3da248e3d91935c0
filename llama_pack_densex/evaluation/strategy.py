"""Strategies as `compare` runs them: the interface for users' own retrievers, and their corpus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import BaseQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import Document, NodeWithScore, QueryBundle

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Span
from llama_pack_densex.evaluation.models import CachedEmbedding, KeptLLM
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.text.segments import passage_sentences, sentence_spans
from llama_pack_densex.text.tokens import tokenize


class StrategyUnavailable(Exception):  # not an error: the report lists it
    """A strategy needs something that the comparison lacks; the message names it.

    Example:
        >>> from llama_pack_densex import Strategy, compare, load_sample
        >>> from llama_pack_densex.evaluation import StrategyUnavailable
        >>> def from_server(corpus):
        ...     raise StrategyUnavailable("the search server is not running")
        >>> sample = load_sample("en")
        >>> strategies = ["bm25", Strategy("server", from_server)]
        >>> report = compare(sample.documents, sample.questions, strategies, embed_model="none")
        >>> report.skipped
        [Skipped(name='server', reason='the search server is not running')]
    """


class Corpus:
    """The documents of a comparison, and the models that strategies share.

    Args:
        dataset: The documents and the questions about them.
        depth: How many distinct results a strategy should return.
        embed_model: The embedding model, which embeds each text once; None if there is none.
        propositionizer: The source of propositions; None if there is none.
        header_llm: The LLM that writes contextual headers; None if there is none.

    Attributes:
        dataset: The documents and the questions about them.
        documents: Whole articles.
        by_id: The articles by id.
        language: "en", "ja", ...
        depth: How many distinct results a strategy should return.
        embed_model_or_none: The embedding model; None if there is none.
        propositionizer_or_none: The source of propositions; None if there is none.
        has_sentences_only: Whether all propositions are plain sentences.
        header_llm: The LLM that writes contextual headers; None if there is none.

    Example:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_pack_densex import SentencePropositionizer
        >>> from llama_pack_densex.evaluation import Corpus, EvaluationSet
        >>> documents = [Document(id_="miso.md", text="Miso is salty. Miso keeps for a year.")]
        >>> dataset = EvaluationSet("food", "en", documents, passages={"miso.md": [(0, 14), (15, 37)]})
        >>> corpus = Corpus(dataset, depth=20, propositionizer=SentencePropositionizer())
        >>> [document.id_ for document in corpus.documents]
        ['miso.md']
    """

    def __init__(
        self,
        dataset: EvaluationSet,
        depth: int,
        embed_model: CachedEmbedding | None = None,
        propositionizer: Propositionizer | None = None,
        header_llm: KeptLLM | None = None,
    ) -> None:
        self.dataset = dataset
        self.documents = dataset.documents
        self.by_id = {document.id_: document for document in self.documents}
        self.language = dataset.language
        self.depth = depth
        self.embed_model_or_none = embed_model
        self.propositionizer_or_none = propositionizer
        self.has_sentences_only = isinstance(propositionizer, SentencePropositionizer)
        self.header_llm = header_llm

    def among(self, candidates: Sequence[str]) -> Corpus:
        """Return a corpus of the documents that a question comes with; without candidates, this corpus."""
        if not candidates:
            return self
        ranked = replace(self.dataset, documents=[self.by_id[key] for key in candidates])
        models = (self.embed_model_or_none, self.propositionizer_or_none, self.header_llm)
        return Corpus(ranked, self.depth, *models)

    @cached_property
    def passages(self) -> list[Document]:
        """The dataset's own passages, except blank ones, each as a document of its own.

        Example:
            >>> [passage.text for passage in corpus.passages]
            ['Miso is salty.', 'Miso keeps for a year.']
        """
        return [passage for passage in self.dataset.passage_documents() if passage.text.strip()]

    def clock(self) -> float:
        """Return a time in seconds from a clock that stops while the embedding model works."""
        now = time.perf_counter()
        if self.embed_model_or_none:
            return now - self.embed_model_or_none.seconds
        return now

    def take_embedded(self) -> list[str]:
        """Return the texts that were embedded since the last call."""
        if not self.embed_model_or_none:
            return []
        return self.embed_model_or_none.take_requested()

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model, which embeds each text once for all strategies.

        Raises:
            StrategyUnavailable: There is none.

        Example:
            >>> from llama_pack_densex.evaluation import StrategyUnavailable
            >>> try:
            ...     corpus.embed_model
            ... except StrategyUnavailable as error:
            ...     print(error)
            it needs an embedding model, and there is none (embed_model=, --embed-model)
        """
        if not self.embed_model_or_none:
            raise StrategyUnavailable(
                "it needs an embedding model, and there is none (embed_model=, --embed-model)"
            )
        return self.embed_model_or_none

    @property
    def propositionizer(self) -> Propositionizer:
        """The source of propositions for the dataset's passages.

        Raises:
            StrategyUnavailable: There is none.

        Example:
            >>> corpus.propositionizer.class_name()
            'SentencePropositionizer'
        """
        if not self.propositionizer_or_none:
            raise StrategyUnavailable(
                "it needs propositions: name their source (propositionizer=, --propositionizer)"
            )
        return self.propositionizer_or_none

    @cached_property
    def chunk_propositionizer(self) -> Propositionizer:
        """The source of propositions for chunks that are not the dataset's own passages.

        Recorded propositions belong to the dataset's passages, so a chunk gets those of the passages in it.

        Raises:
            StrategyUnavailable: There is no propositionizer.

        Example:
            >>> corpus.chunk_propositionizer.class_name()
            'SentencePropositionizer'
        """
        if isinstance(self.propositionizer, RecordedPropositionizer):
            return ChunkPropositionizer(self.propositionizer, self.dataset)
        return self.propositionizer


@dataclass(frozen=True)
class Built:
    """The result of building a strategy that is more than a retriever.

    Args:
        retriever: Returns nodes, best first: `Corpus.depth` distinct passages, or as many as it can.
        context_retriever: Returns the nodes of the context that a reader gets by default; None means the
            first results of `retriever`.
        units: The texts that are searched, to be counted; None means the texts that were embedded.
        query_engine: Answers questions; None means that, where answers are needed, LlamaIndex's default
            engine gives them from the default context.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, Strategy, compare, load_sample
        >>> from llama_pack_densex.evaluation import Built
        >>> def answering(corpus):
        ...     pack = DenseXRetrievalPack(corpus.documents, similarity_top_k=corpus.depth)
        ...     return Built(pack.retriever, query_engine=pack.query_engine)
        >>> sample = load_sample("en")
        >>> strategies = [Strategy("mine", answering)]
        >>> report = compare(sample.documents, sample.questions, strategies, embed_model="none")
        >>> report.strategies[0].name
        'mine'
    """

    retriever: BaseRetriever
    context_retriever: BaseRetriever | None = None
    units: Sequence[str] | None = None
    query_engine: BaseQueryEngine | None = None


@dataclass(frozen=True)
class Strategy:
    """A retriever to compare, and how its results are read.

    Args:
        name: The name in the report; "densex", and names that begin with "densex-", count as the pack's own.
        build: A function that makes the retriever for a `Corpus`, or a finished retriever. If the function
            raises `StrategyUnavailable`, the strategy is left out.
        description: How the strategy is set up, in a sentence or two.
        context_k: How many of the retrieved nodes a reader gets by default; None means all.
        node_postprocessors: Postprocessors that turn the nodes into the context, one after the other; without
            any, the context is the nodes' texts.

    Raises:
        ValueError: The name is blank, or `context_k` is not positive.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, Strategy, compare, load_sample
        >>> def passages(corpus):
        ...     pack = DenseXRetrievalPack(corpus.documents, embed_model="none", granularity=["passage"])
        ...     return pack.as_retriever(similarity_top_k=corpus.depth)
        >>> sample = load_sample("en")
        >>> strategies = ["bm25", Strategy("mine", passages, "Passages by words.")]
        >>> report = compare(sample.documents, sample.questions, strategies, embed_model="none")
        >>> [(strategy.name, strategy.description) for strategy in report.strategies][1]
        ('mine', 'Passages by words.')
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
            raise ValueError(
                f"context_k of {self.name!r} is {self.context_k}: it must be at least 1, or None for all"
            )

    def context_of(self, question: str, results: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        """Return the nodes that a reader gets of some results, which are not modified."""
        nodes = [
            NodeWithScore(node=result.node.model_copy(), score=result.score) for result in results
        ]
        for postprocessor in self.node_postprocessors:
            nodes = postprocessor.postprocess_nodes(nodes, query_bundle=QueryBundle(question))
        return nodes

    def on(self, corpus: Corpus) -> Built:
        """Build the strategy for a corpus.

        Raises:
            StrategyUnavailable: The corpus lacks something that the strategy needs.
            TypeError: `build` returned something other than a retriever.
        """
        if isinstance(self.build, BaseRetriever):
            return Built(self.build)
        built = self.build(corpus)
        if isinstance(built, BaseRetriever):
            return Built(built)
        if not isinstance(built, Built):
            raise TypeError(
                f"build of strategy {self.name!r} must return a LlamaIndex retriever, not {built!r}"
            )
        return built


class ChunkPropositionizer(Propositionizer):
    """Gives a chunk the propositions of the passages in it, as if an LLM had read the chunk.

    If a passage was cut in two, each proposition goes to the chunk with at least half of the sentence that
    shares the most words with it. Overlapping chunks can both get it. A chunk without propositions gets its
    sentences, with the status "fallback".

    Args:
        recorded: The source of the passages' propositions.
        dataset: The documents that chunks are cut from, and their passages.

    Raises:
        ValueError: A passage is not recorded.
    """

    _recorded: Propositionizer
    # for each article: its text without white space, and (start, end, proposition) of each sentence in it
    _articles: list[tuple[str, list[tuple[int, int, str]]]]

    def __init__(self, recorded: Propositionizer, dataset: EvaluationSet) -> None:
        super().__init__()
        self._recorded = recorded
        self._articles = []
        passages = [
            Passage(passage.text, title_of(passage)) for passage in dataset.passage_documents()
        ]
        sets = iter(recorded.propositionize(passages))
        for document in dataset.documents:
            placed = []
            for start, end in dataset.passages_of(document):
                offset = _bare_length(document.text[:start])
                passage = document.text[start:end]
                for proposition in next(sets).texts:
                    span = _closest_sentence(proposition, passage)
                    first, last = (offset + _bare_length(passage[:place]) for place in span)
                    placed.append((first, last, proposition))
            self._articles.append(("".join(document.text.split()), placed))

    @classmethod
    def class_name(cls) -> str:
        return "ChunkPropositionizer"

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [self._of_chunk(passage.text) for passage in passages]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"recorded": self._recorded.fingerprint}

    def _of_chunk(self, chunk: str) -> PropositionSet:
        bare = "".join(chunk.split())
        for article, placed in self._articles:
            start = article.find(bare)
            end = start + len(bare)
            texts = []
            for first, last, text in placed:
                shared = min(end, last) - max(start, first)
                if 2 * shared >= last - first:
                    texts.append(text)
            if texts and start >= 0:
                return PropositionSet(tuple(texts))
        return PropositionSet(
            passage_sentences(chunk), "fallback", "no recorded proposition is about this chunk"
        )


def _closest_sentence(proposition: str, passage: str) -> Span:
    """Return the first of the sentences with which a proposition shares the most words."""
    words = Counter(tokenize(proposition))

    def shared(span: Span) -> int:
        return (words & Counter(tokenize(passage[slice(*span)]))).total()

    return max(sentence_spans(passage) or [(0, len(passage))], key=shared)


def _bare_length(text: str) -> int:
    """Count the characters of a text other than white space."""
    return sum(map(len, text.split()))
