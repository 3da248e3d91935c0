"""The built-in strategies by name, and our own: variants of the pack, and its ranking without an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TransformComponent
from pydantic import Field, SerializeAsAny

from llama_pack_densex.evaluation.baselines import BASELINES
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.index.keywords import rarity
from llama_pack_densex.index.words import Words
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.parsers import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser
from llama_pack_densex.node_parsers.topics import TopicNodeParser, of_length_one
from llama_pack_densex.options import DEFAULT_GRANULARITY, PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.retrieval.hits import PassageHit
from llama_pack_densex.retrieval.lexical import share_held
from llama_pack_densex.retrieval.search import fuse
from llama_pack_densex.text.tokens import content_words, tokenize


def built_in_strategies() -> dict[str, Strategy]:
    """Return all built-in strategies by name, ours first."""
    return {strategy.name: strategy for strategy in (*_OURS, *_RANKING, *BASELINES)}


def resolve_strategies(
    strategies: Sequence[str | Strategy] | None, ranking: bool = False
) -> list[Strategy]:
    """Look up the strategies that are given by name.

    Args:
        strategies: Names or `Strategy` objects; None means all that come with the pack and search an index.
        ranking: Whether None means the strategies that rank a few documents without an index.

    Raises:
        ValueError: A name is unknown, two strategies have the same name, or there are none.
    """
    if strategies is None:
        strategies = [*_OURS, *BASELINES]
        if ranking:
            strategies = _RANKING
    built_in = built_in_strategies()
    chosen = {}
    for strategy in strategies:
        if isinstance(strategy, str):
            name = strategy.replace(
                "_", "-"
            )  # underscores are accepted too, as in the pack's modes
            if name not in built_in:
                raise ValueError(
                    f"there is no strategy {strategy!r}: use any of {', '.join(built_in)}"
                )
            strategy = built_in[name]
        if strategy.name in chosen:
            raise ValueError(f"there are two strategies named {strategy.name!r}")
        chosen[strategy.name] = strategy
    if not chosen:
        raise ValueError("there are no strategies to compare")
    return list(chosen.values())


# The pack itself


_REMARKS = {
    "auto-merging": ", units found merge into their passage",
    "passage-words": ", BM25 over the passages' own words alone",
    "without-questions": ", without the questions that passages answer",
    "hops": "; a second hop by names",
}


@dataclass(frozen=True)
class Variant:
    """A variant of the pack as a strategy.

    Args:
        name: "densex", followed by what is changed, in any of these words. "sentences": they replace
            propositions. "auto-merging": the units found merge into their passages. "dense": search is by
            embeddings only, without BM25. "chunked" and "topics": whole articles are indexed in place of the
            dataset's passages, and cut by the pack's own splitter, or where the topic changes.
            "passage-words": BM25 counts only the passages' own words, without those of their propositions.
            "without-questions": the questions that come with the propositions are left out. "hops": a search
            has two.
    """

    name: str

    def _has(self, change: str) -> bool:
        return f"-{change}" in self.name

    @property
    def _is_of_articles(self) -> bool:
        return self._has("chunked") or self._has("topics")

    def strategy(self) -> Strategy:
        """Return the variant as `compare` runs it."""
        over = "the dataset's passages"
        if self._is_of_articles:
            over = "whole articles in passages of up to 256 tokens"
        if self._has("topics"):
            over += ", cut where the topic changes"
        units = "propositions and sentences"
        if self._has("sentences"):
            units = "sentences, no LLM"
        search = "dense search and BM25 fused"
        if self._has("dense"):
            search = "dense search alone"
        remarks = "".join(remark for change, remark in _REMARKS.items() if self._has(change))
        return Strategy(
            self.name,
            self._build,
            f"This pack over {over}: {units}; {search}{remarks}. The best units are read first, then "
            "passages.",
            node_postprocessors=(PropositionContextPostprocessor(),),
        )

    def _build(self, corpus: Corpus) -> Built:
        embed_model = corpus.embed_model if self._has("dense") else corpus.embed_model_or_none
        documents = corpus.passages
        if self._is_of_articles:
            documents = corpus.documents
        propositionizer = self._propositionizer(corpus)
        parsing = self._parsing(corpus, propositionizer)
        parsing["tokenizer"] = Words.by("bigrams", propositions=not self._has("passage-words"))
        pack = DenseXRetrievalPack(
            documents,
            query_llm=NONE,
            embed_model=embed_model or NONE,
            hybrid=not self._has("dense"),
            hops=2 if self._has("hops") else 1,
            **parsing,
        )
        if isinstance(propositionizer, _WithoutQuestions) and not propositionizer.had_any:
            raise StrategyUnavailable(
                "the propositions come without questions, so it would be the same as 'densex'"
            )
        records = pack.records()
        return Built(
            pack.as_retriever(corpus.depth),
            pack.as_retriever(PackOptions().similarity_top_k),
            [record.text for record in records if record.granularity in DEFAULT_GRANULARITY],
        )

    def _parsing(self, corpus: Corpus, propositionizer: Propositionizer) -> dict[str, Any]:
        """Return the pack's arguments that decide how documents become nodes."""
        whole = WholeDocumentNodeParser()  # each document is one passage
        if self._has("auto-merging"):
            parser = HierarchicalPropositionNodeParser(
                levels=[whole],
                propositionizer=propositionizer,
                granularity=("proposition", "sentence"),
            )
            return {"node_parser": parser, "mode": "auto_merging"}
        splitter: TransformComponent | None = whole
        if self._has("topics"):
            splitter = TopicNodeParser(embed_model=corpus.embed_model)
        elif self._has("chunked"):
            splitter = None  # the pack's own
        return {"propositionizer": propositionizer, "text_splitter": splitter}

    def _propositionizer(self, corpus: Corpus) -> Propositionizer:
        if self._has("sentences") and corpus.has_sentences_only:
            raise StrategyUnavailable(
                "propositions are sentences here, so it would be the same as the strategy without 'sentences'"
            )
        if self._has("sentences"):
            return SentencePropositionizer()
        propositionizer = (
            corpus.chunk_propositionizer if self._is_of_articles else corpus.propositionizer
        )
        if self._has("without-questions"):
            return _WithoutQuestions(made_by=propositionizer)
        return propositionizer


class _WithoutQuestions(Propositionizer):
    """Wraps a propositionizer and leaves out its questions."""

    made_by: SerializeAsAny[Propositionizer] = Field(description="The wrapped propositionizer.")
    had_any: bool = Field(default=False, description="Whether there were any questions.")

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        sets = await self.made_by.apropositionize(passages)
        self.had_any |= any(propositions.questions for propositions in sets)
        return [replace(propositions, questions=()) for propositions in sets]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"made_by": self.made_by.fingerprint}


_OURS = [
    Variant(name).strategy()
    for name in (
        "densex",
        "densex-dense",
        "densex-sentences",
        "densex-sentences-dense",
        "densex-auto-merging",
        "densex-auto-merging-dense",
        "densex-sentences-auto-merging",
        "densex-sentences-auto-merging-dense",
        "densex-passage-words",
        "densex-without-questions",
        "densex-hops",
        "densex-sentences-hops",
        "densex-chunked",
        "densex-sentences-chunked",
        "densex-topics",
        "densex-sentences-topics",
    )
]


class _Ranker(BaseRetriever):
    """Ranks all of a corpus's documents as the pack ranks passages, without an index.

    Args:
        corpus: The corpus.
        dense_weight: The weight of the embeddings, from 0 to 1; None computes it for each question, as the
            pack does by default.
    """

    def __init__(self, corpus: Corpus, dense_weight: float | None) -> None:
        super().__init__(callback_manager=CallbackManager())
        self._corpus = corpus
        self._dense_weight = dense_weight
        self._embed_model = None
        if dense_weight != 0:
            self._embed_model = corpus.embed_model
        self.texts = [document.get_content(MetadataMode.EMBED) for document in corpus.documents]
        self._tokens = [tokenize(text) for text in self.texts]
        self._frequencies = Counter(token for tokens in self._tokens for token in set(tokens))
        bm25s = require("bm25s", "bm25s", "A strategy with keyword search")
        self._bm25 = bm25s.BM25(k1=1.2, b=0.75)
        self._bm25.index(self._tokens, show_progress=False)
        self._vectors = self._embed_model and of_length_one(
            np.array(self._embed_model.get_text_embedding_batch(self.texts))
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        tokens = tokenize(query)
        scores = self._bm25.get_scores(tokens)
        lexical = [hit for hit in self._hits(scores) if hit.score > 0]
        weight = self._dense_weight
        if weight is None:
            count = len(self._tokens)
            frequencies = self._frequencies
            rarities = {word: rarity(count, frequencies[word]) for word in content_words(query)}
            best_tokens = self._tokens[int(np.argmax(scores))]
            weight = 1 / (1 + share_held(rarities, best_tokens))
        dense = []
        if self._embed_model:
            vector = of_length_one(np.array([self._embed_model.get_query_embedding(query)]))[0]
            dense = self._hits(self._vectors @ vector)
        ranked = fuse(dense, lexical, weight)[: self._corpus.depth]
        return [
            NodeWithScore(node=self._corpus.by_id[hit.passage_id], score=hit.score)
            for hit in ranked
        ]

    def _hits(self, scores: Iterable[float]) -> list[PassageHit]:
        scored = zip(self._corpus.by_id, scores, strict=True)
        hits = [PassageHit(key, float(score), ()) for key, score in scored]
        return sorted(hits, key=lambda hit: hit.score, reverse=True)


def _ranking(name: str, how: str, dense_weight: float | None) -> Strategy:
    def build(corpus: Corpus) -> Built:
        ranker = _Ranker(corpus, dense_weight)
        return Built(ranker, units=ranker.texts)

    description = (
        f"The documents that a question comes with, or all, ranked without an index by {how}."
    )
    return Strategy(name, build, description, PackOptions().similarity_top_k)


_RANKING = (
    _ranking(
        "densex-rank", "embeddings and BM25 over this pack's tokens, fused as this pack does", None
    ),
    _ranking("densex-rank-dense", "embeddings alone", 1.0),
    _ranking("densex-rank-words", "BM25 over this pack's tokens alone", 0.0),
)
