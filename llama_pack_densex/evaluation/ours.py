"""The pack as strategies: in both modes, with and without BM25, with and without propositions; and its ways to rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import bm25s
import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import iter_batch

from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.node_parsers.nodes import WholeDocumentNodeParser
from llama_pack_densex.node_parsers.parsers import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from llama_pack_densex.options import DEFAULT_GRANULARITY, PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.language import telling_words, tokenize
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.retrieval.hits import PassageHit
from llama_pack_densex.retrieval.search import fuse
from llama_pack_densex.stores.words import Words

_AT_ONCE = 512  # texts embedded together


def _strategy(name: str) -> Strategy:
    """The pack as a strategy, which is named for what is changed about it.

    Args:
        name: "densex", with any of these behind it. -sentences: they stand in for propositions. -auto-merging: found
            propositions merge upwards. -chunked: whole articles are cut by the pack's own splitter, in place of the
            dataset's passages; -topics: where the topic changes. -passage-words: passages are found by their own words
            alone, and not by those of their propositions. -dense: BM25 is not fused in. -without-questions: questions
            that come with the propositions are left out.
    """
    sentences, auto_merging, chunked, topics = (
        f"-{change}" in name for change in ("sentences", "auto-merging", "chunked", "topics")
    )
    passage_words, hybrid = "-passage-words" in name, "-dense" not in name
    without_questions = "-without-questions" in name

    def build(corpus: Corpus) -> Built:
        embed_model = corpus.embed_model_or_none if hybrid else corpus.embed_model
        if not sentences:
            made_by = corpus.chunk_propositionizer if chunked or topics else corpus.propositionizer
        elif corpus.has_sentences_only:
            raise StrategyUnavailable(
                "propositions are sentences in this comparison: it is the one without 'sentences'"
            )
        else:
            made_by = SentencePropositionizer()
        arguments: dict[str, Any] = {"query_llm": NONE, "embed_model": NONE if embed_model is None else embed_model}

        def index(made_by: Propositionizer) -> tuple[DenseXRetrievalPack, list[str]]:
            given = {"tokenizer": Words.by("bigrams", propositions=False), **arguments} if passage_words else arguments
            whole = WholeDocumentNodeParser()  # each document is a passage
            if auto_merging:
                parser = HierarchicalPropositionNodeParser(
                    levels=[whole], propositionizer=made_by, granularity=("proposition", "sentence")
                )
                pack = DenseXRetrievalPack(corpus.passages, node_parser=parser, mode="auto_merging", **given)
            else:
                cut = None if chunked else TopicNodeParser(embed_model=corpus.embed_model) if topics else whole
                documents = corpus.documents if chunked or topics else corpus.passages
                pack = DenseXRetrievalPack(documents, text_splitter=cut, propositionizer=made_by, **given)
            return pack, [
                node.get_content() for node in pack.nodes() if node.metadata[GRANULARITY_KEY] in DEFAULT_GRANULARITY
            ]

        key = (_strategy, sentences, auto_merging, chunked, topics, passage_words)
        pack, units = corpus.once(key, partial(index, made_by))
        if without_questions:
            if not pack.counts().questions:
                raise StrategyUnavailable("the propositions come without questions: it is the same as 'densex'")
            pack, units = corpus.once((*key, without_questions), partial(index, _WithoutQuestions(made_by)))
        if not hybrid and pack.vector_index is not None:
            store = pack.vector_index.vector_store
            pack = DenseXRetrievalPack.from_vector_store(store, propositionizer=made_by, hybrid=False, **arguments)
        return Built(pack.as_retriever(corpus.depth), pack.as_retriever(PackOptions().similarity_top_k), units)

    units = "sentences, no LLM" if sentences else "propositions and sentences"
    search = "dense search and BM25 fused" if hybrid else "dense search alone"
    search += ", which has the passages' own words alone" if passage_words else ""
    search += ", without the questions that passages answer" if without_questions else ""
    base = "whole articles in passages of up to 256 tokens" if chunked or topics else "the dataset's passages"
    base += ", cut where the topic changes" if topics else ""
    mode = ", found units merge into their passage" if auto_merging else ""
    return Strategy(
        name,
        build,
        f"This pack over {base}: {units}; {search}{mode}. The best units are read first, then passages.",
        node_postprocessors=(PropositionContextPostprocessor(),),
    )


class _WithoutQuestions(Propositionizer):
    """Leaves out the questions of another propositionizer."""

    _made_by: Propositionizer = PrivateAttr()

    def __init__(self, made_by: Propositionizer) -> None:
        super().__init__()
        self._made_by = made_by

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [replace(one, questions=()) for one in await self._made_by.apropositionize(passages)]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"made_by": self._made_by.fingerprint}


class _Ranker(BaseRetriever):
    """Ranks the documents that a question comes with, as the pack ranks passages: by words, by embeddings, by both."""

    def __init__(self, corpus: Corpus, by_words: bool, by_meaning: bool) -> None:
        self._corpus, self._by_words = corpus, by_words
        self._embed_model = corpus.embed_model if by_meaning else None
        self._documents = {document.id_: document for document in corpus.documents}
        self.texts = {key: document.get_content(MetadataMode.EMBED) for key, document in self._documents.items()}
        texts = list(self.texts.values()) if by_meaning else []
        for some in iter_batch(texts, _AT_ONCE):
            corpus.embed_model.get_text_embedding_batch(some)  # it keeps them
        super().__init__(callback_manager=CallbackManager())

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        keys = self._corpus.candidates.get(question, ())
        texts = [self.texts[key] for key in keys]
        dense: list[PassageHit] = []
        words: list[PassageHit] = []
        share = 0.0
        if self._embed_model is not None:
            embedded = self._embed_model.get_text_embedding_batch(texts)
            vectors = np.asarray([self._embed_model.get_query_embedding(question), *embedded])
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            dense = _hits(keys, vectors[1:] @ vectors[0])
        if self._by_words:
            tokens, wanted = [tokenize(text) for text in texts], tokenize(question)
            index = bm25s.BM25(k1=1.2, b=0.75)
            index.index(tokens, show_progress=False)
            scores = index.get_scores(wanted)
            words = [hit for hit in _hits(keys, scores) if hit.score > 0]
            telling = telling_words(wanted)
            share = len(telling.intersection(tokens[int(np.argmax(scores))])) / max(len(telling), 1)
        ranked = fuse(dense, words, 1 / (1 + share) if dense else 0.0)[: self._corpus.depth]
        return [NodeWithScore(node=self._documents[hit.passage_id], score=hit.score) for hit in ranked]


def _rank(corpus: Corpus, by_words: bool, by_meaning: bool) -> Built:
    ranker = _Ranker(corpus, by_words, by_meaning)
    return Built(ranker, units=list(ranker.texts.values()))


def _hits(keys: Sequence[str], scores: Iterable[float]) -> list[PassageHit]:
    hits = [PassageHit(key, float(score), ()) for key, score in zip(keys, scores, strict=True)]
    return sorted(hits, key=lambda hit: hit.score, reverse=True)


STRATEGIES = (
    *(
        _strategy(f"densex{units}{merging}{search}")
        for merging in ("", "-auto-merging")
        for units in ("", "-sentences")
        for search in ("", "-dense")
    ),
    *(_strategy(f"densex-{change}") for change in ("passage-words", "without-questions")),
    *(_strategy(f"densex{units}-{cut}") for cut in ("chunked", "topics") for units in ("", "-sentences")),
    *(
        Strategy(
            name,
            partial(_rank, by_words=by_words, by_meaning=by_meaning),
            f"The documents that a question comes with, ranked by {how}.",
            PackOptions().similarity_top_k,
            ranks_candidates=True,
        )
        for name, how, by_words, by_meaning in (
            ("densex-rank", "embeddings and BM25 over this pack's tokens, fused as this pack does", True, True),
            ("densex-rank-dense", "embeddings alone", False, True),
            ("densex-rank-words", "BM25 over this pack's tokens alone", True, False),
        )
    ),
)
