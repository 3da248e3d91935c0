"""The strategies that come with the pack: LlamaIndex's own ways of retrieving, the paper's units, and ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import bm25s
import numpy as np
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field, SerializeAsAny
from llama_index.core.callbacks import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.extractors import DocumentContextExtractor
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TextSplitter,
    get_leaf_nodes,
)
from llama_index.core.node_parser.text.sentence_window import DEFAULT_WINDOW_METADATA_KEY
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.retrievers import AutoMergingRetriever, QueryFusionRetriever, RecursiveRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, Document, IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import SimpleVectorStore

from llama_pack_densex.evaluation.datasets import Span
from llama_pack_densex.evaluation.judging import Locator, Place
from llama_pack_densex.evaluation.models import KeptLLM, at_once
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy, StrategyUnavailable
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY, GRANULARITY_KEY
from llama_pack_densex.node_parsers.parsers import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser, title_of
from llama_pack_densex.node_parsers.topics import TopicNodeParser, of_length_one
from llama_pack_densex.options import DEFAULT_GRANULARITY, PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.retrieval.hits import PassageHit
from llama_pack_densex.retrieval.search import fuse
from llama_pack_densex.stores.words import Words
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import sentence_spans
from llama_pack_densex.text.sentences import CJK
from llama_pack_densex.text.tokens import content_words, tokenize

logger = logging.getLogger(__name__)

_TOP_K = DEFAULT_SIMILARITY_TOP_K
_SMALL_CHUNK, _SMALL_OVERLAP = 256, 20
"""Tokens. SentenceSplitter's own overlap is 200 whatever the size: of chunks of 256, nearly the whole chunk."""
_SENTENCES = 5  # fetched for each passage that rankings look at: several sentences lead to the same passage
_DENSE_X_TOP_K = 4
_DENSE_X_UNITS = 10  # fetched for each chunk that rankings look at: a chunk has many propositions
_HEADER_KEY = "context"
_MAX_WORDS = 100  # of the paper's passages
_CHARACTERS_A_WORD = 2  # 200 Japanese characters say about as much as 100 English words


def built_in_strategies() -> dict[str, Strategy]:
    """All of them by name, ours first."""
    return {strategy.name: strategy for strategy in (*_OURS, *_RANKING, *_OTHERS)}


def resolve_strategies(strategies: Sequence[str | Strategy] | None, ranking: bool = False) -> list[Strategy]:
    """Strategies by name, or as they are.

    Args:
        strategies: The strategies; None means all that come with the pack and search an index.
        ranking: Whether None means those that rank a few documents without an index.

    Raises:
        ValueError: There is none of a name, none at all, or two have the same name.
    """
    known = built_in_strategies()
    chosen: dict[str, Strategy] = {}
    for given in (_RANKING if ranking else (*_OURS, *_OTHERS)) if strategies is None else strategies:
        # as modes of the pack are called
        strategy = known.get(given.replace("_", "-")) if isinstance(given, str) else given
        if strategy is None:
            raise ValueError(f"there is no strategy {given!r}: use any of {', '.join(known)}")
        if strategy.name in chosen:
            raise ValueError(f"there are two strategies named {strategy.name!r}")
        chosen[strategy.name] = strategy
    if not chosen:
        raise ValueError("there are no strategies to compare")
    return list(chosen.values())


Cut = Callable[[Corpus], Sequence[BaseNode]]
"""Makes the nodes that a strategy searches."""
Build = Callable[[Corpus], BaseRetriever | Built]


def _large_chunks(corpus: Corpus) -> list[BaseNode]:
    return SentenceSplitter().get_nodes_from_documents(corpus.documents)


def _small_chunks(corpus: Corpus) -> list[BaseNode]:
    splitter = SentenceSplitter(chunk_size=_SMALL_CHUNK, chunk_overlap=_SMALL_OVERLAP)
    return splitter.get_nodes_from_documents(corpus.documents)


def _passages(corpus: Corpus) -> list[BaseNode]:
    """The dataset's passages, a node each."""
    return WholeDocumentNodeParser().get_nodes_from_documents(corpus.passages)


class _ArrayStore(SimpleVectorStore):
    """Core's store with vectors as arrays, which it makes of the lists anew for each question."""

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        ids = super().add(nodes, **kwargs)
        vectors: dict[str, Any] = self.data.embedding_dict
        vectors.update({key: np.array(vectors[key]) for key in ids})
        return ids


def _index(nodes: Sequence[BaseNode], corpus: Corpus) -> VectorStoreIndex:
    """An index in memory that reads nothing from `Settings`."""
    return VectorStoreIndex(
        nodes,
        storage_context=StorageContext.from_defaults(vector_store=_ArrayStore()),
        embed_model=corpus.embed_model,
        transformations=[SentenceSplitter()],  # not run over nodes, but core would make the global one
        callback_manager=CallbackManager(),
        insert_batch_size=max(len(nodes), 1),
    )


def _vectors(cut: Cut, fetched: int = 1) -> Build:
    """A vector index over nodes, of which several may be fetched for each result that rankings look at."""
    return lambda corpus: _index(cut(corpus), corpus).as_retriever(similarity_top_k=fetched * corpus.depth)


def _auto_merging(corpus: Corpus, leaves: int, ratio: float) -> BaseRetriever:
    nodes = HierarchicalNodeParser.from_defaults().get_nodes_from_documents(corpus.documents)
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents(nodes)
    found: Any = _index(get_leaf_nodes(nodes), corpus).as_retriever(similarity_top_k=leaves)  # typed too broadly
    return AutoMergingRetriever(found, storage, ratio, callback_manager=CallbackManager())


def _bm25_retriever(nodes: Sequence[BaseNode], depth: int) -> BaseRetriever:
    library = require("llama_index.retrievers.bm25", "llama-index-retrievers-bm25", "it")
    top_k = min(depth, len(nodes))
    return cast("BaseRetriever", library.BM25Retriever.from_defaults(nodes=list(nodes), similarity_top_k=top_k))


def _bm25(corpus: Corpus) -> Built:
    nodes = _passages(corpus)
    texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
    return Built(_bm25_retriever(nodes, corpus.depth), units=texts)


def _fused(corpus: Corpus, nodes: Sequence[BaseNode]) -> BaseRetriever:
    """A vector index and BM25 over the same nodes, fused by reciprocal rank (core's QueryFusionRetriever)."""
    return QueryFusionRetriever(
        [_index(nodes, corpus).as_retriever(similarity_top_k=corpus.depth), _bm25_retriever(nodes, corpus.depth)],
        llm=MockLLM(),  # it asks for one even where it makes no further queries
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=corpus.depth,
        num_queries=1,
        use_async=False,
        callback_manager=CallbackManager(),
    )


def _hybrid(cut: Cut) -> Build:
    return lambda corpus: _fused(corpus, cut(corpus))


def _contextual(cut: Cut) -> Build:
    """Contextual retrieval: each chunk with a header that says where in the document it stands."""

    def build(corpus: Corpus) -> BaseRetriever:
        chunks, locator = cut(corpus), Locator(corpus.dataset)
        outlines = {key: Outline(article.text) for key, article in corpus.by_id.items()}
        places = [cast("Place", locator.place(chunk)) for chunk in chunks]  # all are of these articles
        written = [""] * len(chunks)
        if corpus.header_llm is not None:
            written = _headers(chunks, [corpus.by_id[place.document_id] for place in places], corpus.header_llm)
        for chunk, place, header in zip(chunks, places, written, strict=True):
            section = "" if place.span is None else outlines[place.document_id].section_of(*place.span)
            known = (title_of(corpus.by_id[place.document_id]), section)
            chunk.metadata[_HEADER_KEY] = header or ", ".join(filter(None, known))
        return _fused(corpus, chunks)

    return build


def _headers(nodes: Sequence[BaseNode], articles: Sequence[Document], llm: KeptLLM) -> list[str]:
    """What DocumentContextExtractor asks for, "" where that failed; but it can be asked in one event loop only, and
    keeps nothing."""
    prompts = []
    for node, article in zip(nodes, articles, strict=True):
        said = "Here is the chunk we want to situate within the whole document:"
        asked = f"{said}\n<chunk>{node.get_content()}</chunk>\n{DocumentContextExtractor.ORIGINAL_CONTEXT_PROMPT}"
        prompts.append([ChatMessage(f"<document>{article.text}</document>"), ChatMessage(asked)])
    headers = [reply if isinstance(reply, str) else "" for reply in at_once(llm.ask, prompts)]
    if llm.stopped is not None:
        raise llm.stopped
    if lacking := headers.count(""):
        logger.warning("The LLM wrote no header for %d of %d chunks; title and headings stand in.", lacking, len(nodes))
    return headers


def _dense_x(corpus: Corpus) -> Built:
    """What llama-index-packs-dense-x-retrieval did."""
    propositionizer = corpus.chunk_propositionizer
    chunks = _large_chunks(corpus)
    passages = [Passage(chunk.get_content(), title_of(corpus.by_id[chunk.ref_doc_id or ""])) for chunk in chunks]
    sets = propositionizer.propositionize(passages)
    # of equal hits the store returns the one with the greatest id: chosen, the same run gives the same report
    units = [
        IndexNode(id_=f"{place:06}-{number:06}", text=text, index_id=chunk.node_id)
        for place, (chunk, made) in enumerate(zip(chunks, sets, strict=True))
        for number, text in enumerate(made.texts)
    ]
    nodes: list[BaseNode] = [*chunks, *units]
    index = _index(nodes, corpus)
    by_id = {node.node_id: node for node in nodes}

    def retriever(units: int) -> RecursiveRetriever:
        found = {"vector": index.as_retriever(similarity_top_k=units)}
        return RecursiveRetriever("vector", found, node_dict=by_id, callback_manager=CallbackManager())

    return Built(retriever(_DENSE_X_UNITS * corpus.depth), context_retriever=retriever(_DENSE_X_TOP_K))


class PaperPassageNodeParser(TextSplitter):
    """Cuts documents into the passages of Dense X Retrieval (Chen et al., 2023, appendix A): 100 words at sentences.

    Sentences are added to a passage while it has at most `max_words`; one sentence that is longer is a passage. A last
    passage of fewer than `min_last_words` joins the one before, which may then have more than `max_words`. Two Chinese
    or Japanese characters count as a word.

    Examples:
        ```python
        pack = DenseXRetrievalPack(documents, text_splitter=PaperPassageNodeParser())
        ```
    """

    max_words: int = Field(default=_MAX_WORDS, ge=1, description="The most words of a passage.")
    min_last_words: int = Field(default=50, ge=0, description="The fewest words of the last passage.")

    @classmethod
    def class_name(cls) -> str:
        return "PaperPassageNodeParser"

    def split_text(self, text: str) -> list[str]:
        """The passages of a text."""
        return [text[start:end] for start, end in self.passage_spans(text)]

    def passage_spans(self, text: str) -> list[Span]:
        """Where the passages stand in a text; together they hold all of its sentences."""
        spans: list[Span] = []
        sizes: list[float] = []
        for start, end in sentence_spans(text):
            size = count_words(text[start:end])
            if spans and sizes[-1] + size <= self.max_words:
                spans[-1] = (spans[-1][0], end)
                sizes[-1] += size
            else:
                spans.append((start, end))
                sizes.append(size)
        if len(spans) > 1 and sizes[-1] < self.min_last_words:
            spans[-2:] = [(spans[-2][0], spans[-1][1])]
        return spans


def count_words(text: str) -> float:
    """Count what spaces divide; of Chinese and Japanese, half the characters."""
    return len(CJK.sub(" ", text).split()) + len(CJK.findall(text)) / _CHARACTERS_A_WORD


def _paper_units(corpus: Corpus, unit: str) -> list[BaseNode]:
    """The paper's units of a corpus's articles: "passages", "sentences", or the "propositions" of passages."""
    cut = sentence_spans if unit == "sentences" else PaperPassageNodeParser().passage_spans
    found = [(document, span) for document in corpus.documents for span in cut(document.text)]
    units = [[document.text[slice(*span)]] for document, span in found]
    if unit == "propositions":
        passages = [Passage(text, title_of(document)) for (document, _), (text,) in zip(found, units, strict=True)]
        units = [list(made.texts) for made in corpus.chunk_propositionizer.propositionize(passages)]
    return [
        TextNode(
            id_=f"{place:06}-{number:06}",  # as above
            text=text,
            start_char_idx=start,
            end_char_idx=end,
            # the document's id as metadata says that the span is to be believed, whatever the text
            metadata={**document.metadata, DOCUMENT_ID_KEY: document.id_},
            excluded_embed_metadata_keys=[*document.excluded_embed_metadata_keys, DOCUMENT_ID_KEY],
            excluded_llm_metadata_keys=[*document.excluded_llm_metadata_keys, DOCUMENT_ID_KEY],
        )
        for place, ((document, (start, end)), texts) in enumerate(zip(found, units, strict=True))
        for number, text in enumerate(texts)
    ]


def _ours(name: str) -> Strategy:
    """The pack as a strategy, which is named for what is changed about it.

    Args:
        name: "densex", with any of these behind it. -sentences: they stand in for propositions. -auto-merging: found
            propositions merge upwards. -chunked: whole articles are cut by the pack's own splitter, in place of the
            dataset's passages; -topics: where the topic changes. -passage-words: passages are found by their own words
            alone, and not by those of their propositions. -dense: BM25 is not fused in. -without-questions: questions
            that come with the propositions are left out.
    """
    sentences, auto_merging, dense = "-sentences" in name, "-auto-merging" in name, "-dense" in name
    topics, passage_words, without_questions = "-topics" in name, "-passage-words" in name, "-without-questions" in name
    articles = topics or "-chunked" in name

    def build(corpus: Corpus) -> Built:
        embed_model = corpus.embed_model if dense else corpus.embed_model_or_none
        if sentences and corpus.has_sentences_only:
            raise StrategyUnavailable("propositions are sentences here: it is the strategy without 'sentences'")
        made_by: Propositionizer = SentencePropositionizer()
        if not sentences:
            made_by = corpus.chunk_propositionizer if articles else corpus.propositionizer
        if without_questions:
            made_by = _WithoutQuestions(made_by=made_by)
        models: dict[str, Any] = {"query_llm": NONE, "embed_model": embed_model or NONE}
        whole = WholeDocumentNodeParser()  # each document is a passage
        parsing: dict[str, Any] = {"text_splitter": whole, "propositionizer": made_by}
        if articles:
            parsing["text_splitter"] = TopicNodeParser(embed_model=corpus.embed_model) if topics else None
        elif auto_merging:
            units: Any = ("proposition", "sentence")
            parser = HierarchicalPropositionNodeParser(levels=[whole], propositionizer=made_by, granularity=units)
            parsing = {"node_parser": parser, "mode": "auto_merging"}

        parsing["tokenizer"] = Words.by("bigrams", propositions=not passage_words)

        documents = corpus.documents if articles else corpus.passages
        pack = DenseXRetrievalPack(documents, hybrid=not dense, **parsing, **models)
        if isinstance(made_by, _WithoutQuestions) and not made_by.had_any:
            raise StrategyUnavailable("the propositions come without questions: it is the same as 'densex'")
        texts = [node.get_content() for node in pack.nodes() if node.metadata[GRANULARITY_KEY] in DEFAULT_GRANULARITY]
        return Built(pack.as_retriever(corpus.depth), pack.as_retriever(PackOptions().similarity_top_k), texts)

    base = "whole articles in passages of up to 256 tokens" if articles else "the dataset's passages"
    base += ", cut where the topic changes" if topics else ""
    units = "sentences, no LLM" if sentences else "propositions and sentences"
    search = "dense search alone" if dense else "dense search and BM25 fused"
    search += ", which has the passages' own words alone" if passage_words else ""
    search += ", without the questions that passages answer" if without_questions else ""
    search += ", found units merge into their passage" if auto_merging else ""
    said = f"This pack over {base}: {units}; {search}. The best units are read first, then passages."
    return Strategy(name, build, said, node_postprocessors=(PropositionContextPostprocessor(),))


class _WithoutQuestions(Propositionizer):
    """Leaves out the questions of another propositionizer."""

    made_by: SerializeAsAny[Propositionizer] = Field(description="The other propositionizer.")
    had_any: bool = Field(default=False, description="Whether there were any questions.")

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        sets = await self.made_by.apropositionize(passages)
        self.had_any = self.had_any or any(one.questions for one in sets)
        return [replace(one, questions=()) for one in sets]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"made_by": self.made_by.fingerprint}


class _Ranker(BaseRetriever):
    """Ranks all of a corpus's documents as the pack ranks passages.

    Args:
        corpus: The corpus.
        dense_weight: The embeddings' share, as the pack's.
    """

    def __init__(self, corpus: Corpus, dense_weight: float | None) -> None:
        self._documents, self._depth, self._dense_weight = corpus.by_id, corpus.depth, dense_weight
        self._embed_model = None if dense_weight == 0 else corpus.embed_model
        self.texts = [document.get_content(MetadataMode.EMBED) for document in corpus.documents]
        super().__init__(callback_manager=CallbackManager())

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        tokens, wanted = [tokenize(text) for text in self.texts], tokenize(query_bundle.query_str)
        index, telling = bm25s.BM25(k1=1.2, b=0.75), content_words(wanted)
        index.index(tokens, show_progress=False)
        scores = index.get_scores(wanted)
        words = [hit for hit in self._hits(scores) if hit.score > 0]
        share = len(telling.intersection(tokens[int(np.argmax(scores))])) / max(len(telling), 1)
        weight, dense = 1 / (1 + share) if self._dense_weight is None else self._dense_weight, []
        if (model := self._embed_model) is not None:  # it keeps the embeddings of the texts
            embedded = [model.get_query_embedding(query_bundle.query_str), *model.get_text_embedding_batch(self.texts)]
            vectors = of_length_one(np.array(embedded))
            dense = self._hits(vectors[1:] @ vectors[0])
        ranked = fuse(dense, words, weight)[: self._depth]
        return [NodeWithScore(node=self._documents[hit.passage_id], score=hit.score) for hit in ranked]

    def _hits(self, scores: Iterable[float]) -> list[PassageHit]:
        hits = [PassageHit(key, float(score), ()) for key, score in zip(self._documents, scores, strict=True)]
        return sorted(hits, key=lambda hit: hit.score, reverse=True)


def _ranking(name: str, how: str, dense_weight: float | None) -> Strategy:
    def build(corpus: Corpus) -> Built:
        ranker = _Ranker(corpus, dense_weight)
        return Built(ranker, units=ranker.texts)

    said = f"The documents that a question comes with, or all, ranked without an index by {how}."
    return Strategy(name, build, said, PackOptions().similarity_top_k)


_RANKING = (
    _ranking("densex-rank", "embeddings and BM25 over this pack's tokens, fused as this pack does", None),
    _ranking("densex-rank-dense", "embeddings alone", 1.0),
    _ranking("densex-rank-words", "BM25 over this pack's tokens alone", 0.0),
)
_OURS = (
    *(
        _ours(f"densex{units}{merging}{search}")
        for merging in ("", "-auto-merging")
        for units in ("", "-sentences")
        for search in ("", "-dense")
    ),
    *(_ours(f"densex-{change}") for change in ("passage-words", "without-questions")),
    *(_ours(f"densex{units}-{cut}") for cut in ("chunked", "topics") for units in ("", "-sentences")),
)
_PASSAGES = "the dataset's passages"
_CHUNKS = f"whole articles in chunks of {_SMALL_CHUNK} tokens"
_HYBRID = "VectorStoreIndex and BM25Retriever over {}, fused by reciprocal rank."
_CONTEXTUAL = (
    "Contextual retrieval over {}: each is embedded and indexed for BM25 with a header, written by the LLM (to "
    "DocumentContextExtractor's prompt) where there is one, else made of title and headings; both are fused by "
    "reciprocal rank."
)
_MERGED = (
    "LlamaIndex's HierarchicalNodeParser with its defaults (2,048, 512 and 128 tokens) over whole articles, and its "
    "AutoMergingRetriever: {} leaves, merged above a ratio of {}. All that it returns is read."
)
_PAPER = f"The {{}} of Dense X Retrieval (passages: {_MAX_WORDS} words) in a VectorStoreIndex: what is found is read."
_OTHERS = (
    Strategy("vector", _vectors(_large_chunks), "LlamaIndex's VectorStoreIndex over chunks of 1,024 tokens.", _TOP_K),
    Strategy(
        "vector-256",
        _vectors(_small_chunks),
        f"The same with chunks of {_SMALL_CHUNK} tokens and an overlap of {_SMALL_OVERLAP}.",
        _TOP_K,
    ),
    Strategy(
        "sentence-window",
        _vectors(lambda corpus: SentenceWindowNodeParser().get_nodes_from_documents(corpus.documents), _SENTENCES),
        "LlamaIndex's SentenceWindowNodeParser with its defaults over whole articles; each found sentence is replaced "
        "by itself and the three on either side (MetadataReplacementPostProcessor).",
        _TOP_K,
        (MetadataReplacementPostProcessor(target_metadata_key=DEFAULT_WINDOW_METADATA_KEY),),
    ),
    Strategy("auto-merging", partial(_auto_merging, leaves=6, ratio=0.5), _MERGED.format(6, 0.5)),  # as in its guide
    Strategy("auto-merging-k12", partial(_auto_merging, leaves=12, ratio=0.3), _MERGED.format(12, 0.3)),
    Strategy("bm25", _bm25, "LlamaIndex's BM25Retriever as it comes, over the dataset's passages.", _TOP_K),
    Strategy("hybrid", _hybrid(_passages), _HYBRID.format(_PASSAGES), _TOP_K),
    Strategy("hybrid-256", _hybrid(_small_chunks), _HYBRID.format(_CHUNKS), _TOP_K),
    Strategy("contextual", _contextual(_passages), _CONTEXTUAL.format(_PASSAGES), _TOP_K),
    Strategy("contextual-256", _contextual(_small_chunks), _CONTEXTUAL.format(_CHUNKS), _TOP_K),
    Strategy(
        "dense-x",
        _dense_x,
        "What LlamaIndex's DenseXRetrievalPack did: chunks of 1,024 tokens and their propositions in one index; a "
        f"found proposition leads to its chunk (RecursiveRetriever), and what the best {_DENSE_X_TOP_K} of both lead "
        "to is read. Recorded propositions of passages are shared out to the chunks that hold them.",
    ),
    # of each of the paper's units, about 500 words are read, as its figures go up to
    *(
        Strategy(f"paper-{unit}", _vectors(partial(_paper_units, unit=unit), fetched), _PAPER.format(unit), read)
        for unit, fetched, read in (
            ("passages", 1, 5),
            ("sentences", _SENTENCES, 25),
            ("propositions", _DENSE_X_UNITS, 45),
        )
    ),
)
