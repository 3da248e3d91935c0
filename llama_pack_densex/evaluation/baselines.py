"""The baselines of a comparison: LlamaIndex's own retrieval methods, and the units of Dense X Retrieval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager
from llama_index.core.extractors import DocumentContextExtractor
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    NodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TextSplitter,
    get_leaf_nodes,
)
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    BaseRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
)
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, IndexNode, MetadataMode, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from pydantic import Field

from llama_pack_densex.evaluation.evaluation_set import Span
from llama_pack_densex.evaluation.evidence import Locator, Place
from llama_pack_densex.evaluation.models import AskingFailed, KeptLLM, at_once
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.evaluation.strategy import Built, Corpus, Strategy
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser, title_of
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import sentence_spans
from llama_pack_densex.text.sentences import CJK
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

_TOP_K = 2  # what LlamaIndex's retrievers return by default
_CHUNK = 256  # tokens
# tokens; SentenceSplitter's default is 200 at any chunk size, nearly a whole chunk of 256
_OVERLAP = 20
# fetched for each passage that is ranked, since several sentences lead to the same passage
_SENTENCES = 5
_DENSE_X_TOP_K = 4
_DENSE_X_UNITS = 10  # fetched for each chunk that is ranked: a chunk has many propositions
_HEADER_KEY = "context"
_HEADER_TASK = (
    "Here is the chunk we want to situate within the whole document:\n<chunk>{chunk}</chunk>\n"
    + DocumentContextExtractor.ORIGINAL_CONTEXT_PROMPT
)
_MAX_WORDS = 100  # the length of the paper's passages
_CHARACTERS_PER_WORD = 2  # 200 Japanese characters say about as much as 100 English words
# the store breaks ties by id, so fixed ids give the same hits in every run
_ID = "{:06}-{:06}"


# LlamaIndex's own retrieval methods


Cut = Callable[[Corpus], Sequence[BaseNode]]
"""A function that makes the nodes that a strategy searches."""
Build = Callable[[Corpus], BaseRetriever]


def _articles_in(make_parser: Callable[[], NodeParser]) -> Cut:
    """Return a function that cuts whole articles. The parser loads a tokenizer, so it is made only on use."""
    return lambda corpus: make_parser().get_nodes_from_documents(corpus.documents)


_large_chunks = _articles_in(SentenceSplitter)
_small_chunks = _articles_in(partial(SentenceSplitter, chunk_size=_CHUNK, chunk_overlap=_OVERLAP))


def _passages(corpus: Corpus) -> list[BaseNode]:
    """Return the dataset's passages as nodes, one each."""
    return WholeDocumentNodeParser().get_nodes_from_documents(corpus.passages)


class _ArrayStore(SimpleVectorStore):
    """Core's store with its vectors as arrays; it would convert lists to arrays for every question."""

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        ids = super().add(nodes, **kwargs)
        vectors: dict[str, Any] = self.data.embedding_dict
        vectors.update({key: np.array(vectors[key]) for key in ids})
        return ids


def _index(nodes: Sequence[BaseNode], corpus: Corpus) -> VectorStoreIndex:
    """Make an in-memory index that reads nothing from `Settings`."""
    return VectorStoreIndex(
        nodes,
        storage_context=StorageContext.from_defaults(vector_store=_ArrayStore()),
        embed_model=corpus.embed_model,
        # nodes are not transformed, but given None core would create the global transformations
        transformations=[SentenceSplitter()],
        callback_manager=CallbackManager(),
        insert_batch_size=max(len(nodes), 1),
    )


def _vectors(cut: Cut, fetched: int = 1) -> Build:
    """Return a function that builds a vector index; it fetches `fetched` nodes for each ranked result."""
    return lambda corpus: _index(cut(corpus), corpus).as_retriever(
        similarity_top_k=fetched * corpus.depth
    )


def _auto_merging(corpus: Corpus, leaves: int, ratio: float) -> BaseRetriever:
    nodes = HierarchicalNodeParser.from_defaults().get_nodes_from_documents(corpus.documents)
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents(nodes)
    leaf_retriever: Any = _index(get_leaf_nodes(nodes), corpus).as_retriever(
        similarity_top_k=leaves
    )
    return AutoMergingRetriever(leaf_retriever, storage, ratio, callback_manager=CallbackManager())


def _bm25_retriever(nodes: Sequence[BaseNode], depth: int) -> BaseRetriever:
    library = require("llama_index.retrievers.bm25", "llama-index-retrievers-bm25", "it")
    retriever: BaseRetriever = library.BM25Retriever.from_defaults(
        nodes=list(nodes), similarity_top_k=min(depth, len(nodes))
    )
    return retriever


def _bm25(corpus: Corpus) -> Built:
    nodes = _passages(corpus)
    return Built(
        _bm25_retriever(nodes, corpus.depth),
        units=[node.get_content(MetadataMode.EMBED) for node in nodes],
    )


def _hybrid(cut: Cut) -> Build:
    """Return a function that builds a vector index and BM25 over the same nodes, fused by reciprocal rank."""

    def build(corpus: Corpus) -> BaseRetriever:
        nodes = cut(corpus)
        return QueryFusionRetriever(
            [
                _index(nodes, corpus).as_retriever(similarity_top_k=corpus.depth),
                _bm25_retriever(nodes, corpus.depth),
            ],
            llm=MockLLM(),  # required, though it generates no further queries
            mode=FUSION_MODES.RECIPROCAL_RANK,
            similarity_top_k=corpus.depth,
            num_queries=1,
            use_async=False,
            callback_manager=CallbackManager(),
        )

    return build


def _contextual(cut: Cut) -> Build:
    """Return a function that builds contextual retrieval: each chunk has a header that situates it."""

    def with_headers(corpus: Corpus) -> Sequence[BaseNode]:
        locator = Locator(corpus.dataset)
        outlines = {key: Outline(article.text) for key, article in corpus.by_id.items()}
        chunks = cut(corpus)
        prompts = []
        for chunk in chunks:
            place = cast("Place", locator.place(chunk))  # each chunk is from one of these articles
            article = corpus.by_id[place.document_id]
            section = outlines[place.document_id].section_of(*place.span) if place.span else ""
            chunk.metadata[_HEADER_KEY] = ", ".join(filter(None, (title_of(article), section)))
            task = _HEADER_TASK.format(chunk=chunk.get_content())
            prompts.append([ChatMessage(f"<document>{article.text}</document>"), ChatMessage(task)])
        if corpus.header_llm:
            _write_headers(chunks, prompts, corpus.header_llm)
        return chunks

    return _hybrid(with_headers)


def _write_headers(
    chunks: Sequence[BaseNode], prompts: Sequence[list[ChatMessage]], llm: KeptLLM
) -> None:
    """Have an LLM write the headers, as DocumentContextExtractor would.

    The extractor itself works in one event loop only and caches nothing.
    """
    replies = at_once(llm.ask, prompts)
    if llm.stopped:
        raise llm.stopped
    missing = 0
    for chunk, reply in zip(chunks, replies, strict=True):
        if isinstance(reply, AskingFailed):
            missing += 1
        elif reply:
            chunk.metadata[_HEADER_KEY] = reply
    if missing:
        logger.warning(
            "The LLM wrote no header for %d of %d chunks; title and headings are used instead.",
            missing, len(chunks),
        )  # fmt: skip


def _dense_x(corpus: Corpus) -> Built:
    """Build what llama-index-packs-dense-x-retrieval built."""
    propositionizer = corpus.chunk_propositionizer
    chunks = _large_chunks(corpus)
    titles = {key: title_of(article) for key, article in corpus.by_id.items()}
    passages = [Passage(chunk.get_content(), titles[chunk.ref_doc_id or ""]) for chunk in chunks]
    nodes = list(chunks)
    for place, propositions in enumerate(propositionizer.propositionize(passages)):
        for number, text in enumerate(propositions.texts):
            nodes.append(
                IndexNode(id_=_ID.format(place, number), text=text, index_id=chunks[place].node_id)
            )
    index = _index(nodes, corpus)
    by_id = {node.node_id: node for node in nodes}

    def retriever(units: int) -> RecursiveRetriever:
        vector: Any = index.as_retriever(similarity_top_k=units)
        return RecursiveRetriever(
            "vector", {"vector": vector}, node_dict=by_id, callback_manager=CallbackManager()
        )

    return Built(retriever(_DENSE_X_UNITS * corpus.depth), retriever(_DENSE_X_TOP_K))


# The paper's units


class PaperPassageNodeParser(TextSplitter):
    """Cuts documents into the passages of Dense X Retrieval (Chen et al., 2023, appendix A): 100 words.

    A passage takes sentences as long as it has at most `max_words`; a longer sentence is a passage by itself.
    If the last passage has fewer than `min_last_words`, it is joined to the one before, which may then exceed
    `max_words`. Two Chinese, Japanese or Korean characters count as one word.

    Example:
        >>> from llama_pack_densex import PropositionNodeParser
        >>> from llama_pack_densex.evaluation import PaperPassageNodeParser
        >>> parser = PropositionNodeParser(base_parser=PaperPassageNodeParser())
        >>> short = PaperPassageNodeParser(max_words=8, min_last_words=3)
        >>> short.split_text("Miso is salty. Miso keeps for a year. Green tea is bitter.")
        ['Miso is salty. Miso keeps for a year.', 'Green tea is bitter.']
    """

    max_words: int = Field(default=_MAX_WORDS, ge=1, description="The most words in a passage.")
    min_last_words: int = Field(
        default=50, ge=0, description="The fewest words in the last passage."
    )

    @classmethod
    def class_name(cls) -> str:
        return "PaperPassageNodeParser"

    def split_text(self, text: str) -> list[str]:
        """Split a text into passages."""
        return [text[start:end] for start, end in self.passage_spans(text)]

    def passage_spans(self, text: str) -> list[Span]:
        """Return the spans of the passages in a text; together they hold all of its sentences."""
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
    """Count words separated by spaces; two Chinese, Japanese or Korean characters count as one word."""
    return len(CJK.sub(" ", text).split()) + len(CJK.findall(text)) / _CHARACTERS_PER_WORD


def _paper_units(corpus: Corpus, unit: str) -> list[BaseNode]:
    """Return the paper's units of a corpus: "passages", "sentences", or the "propositions" of passages."""
    cut = sentence_spans if unit == "sentences" else PaperPassageNodeParser().passage_spans
    spans = [(document, span) for document in corpus.documents for span in cut(document.text)]
    passages = [
        Passage(document.text[slice(*span)], title_of(document)) for document, span in spans
    ]
    texts: list[Sequence[str]] = [[passage.text] for passage in passages]
    if unit == "propositions":
        texts = [
            propositions.texts
            for propositions in corpus.chunk_propositionizer.propositionize(passages)
        ]
    return [
        TextNode(
            id_=_ID.format(place, number),
            text=text,
            start_char_idx=start,
            end_char_idx=end,
            # with the document's id in the metadata, `Locator` trusts the span, whatever the text
            metadata={**document.metadata, DOCUMENT_ID_KEY: document.id_},
            excluded_embed_metadata_keys=[*document.excluded_embed_metadata_keys, DOCUMENT_ID_KEY],
            excluded_llm_metadata_keys=[*document.excluded_llm_metadata_keys, DOCUMENT_ID_KEY],
        )
        for place, (document, (start, end)) in enumerate(spans)
        for number, text in enumerate(texts[place])
    ]


_PASSAGES = "the dataset's passages"
_CHUNKS = f"whole articles in chunks of {_CHUNK} tokens"
_HYBRID = "VectorStoreIndex and BM25Retriever over {}, fused by reciprocal rank."
_CONTEXTUAL = (
    "Contextual retrieval over {}: each is embedded and indexed for BM25 with a header, written by the LLM "
    "(to DocumentContextExtractor's prompt) where there is one, else made of title and headings; both are "
    "fused by reciprocal rank."
)
_MERGED = (
    "LlamaIndex's HierarchicalNodeParser with its defaults (2,048, 512 and 128 tokens) over whole articles, "
    "and its AutoMergingRetriever: {} leaves, merged above a ratio of {}. All of its results are read."
)
_PAPER = "The {} of Dense X Retrieval (passages: 100 words) in a VectorStoreIndex: the units found are read."
BASELINES = (
    Strategy(
        "vector",
        _vectors(_large_chunks),
        "LlamaIndex's VectorStoreIndex over chunks of 1,024 tokens.",
        _TOP_K,
    ),
    Strategy(
        "vector-256",
        _vectors(_small_chunks),
        f"The same with chunks of {_CHUNK} tokens and an overlap of {_OVERLAP}.",
        _TOP_K,
    ),
    Strategy(
        "sentence-window",
        _vectors(_articles_in(SentenceWindowNodeParser), _SENTENCES),
        "LlamaIndex's SentenceWindowNodeParser with its defaults over whole articles; each sentence found is "
        "replaced by itself and the three on either side (MetadataReplacementPostProcessor).",
        _TOP_K,
        (MetadataReplacementPostProcessor(target_metadata_key="window"),),
    ),
    Strategy(
        "auto-merging", partial(_auto_merging, leaves=6, ratio=0.5), _MERGED.format(6, 0.5)
    ),  # as in its guide
    Strategy(
        "auto-merging-k12", partial(_auto_merging, leaves=12, ratio=0.3), _MERGED.format(12, 0.3)
    ),
    Strategy(
        "bm25",
        _bm25,
        "LlamaIndex's BM25Retriever with its defaults, over the dataset's passages.",
        _TOP_K,
    ),
    Strategy("hybrid", _hybrid(_passages), _HYBRID.format(_PASSAGES), _TOP_K),
    Strategy("hybrid-256", _hybrid(_small_chunks), _HYBRID.format(_CHUNKS), _TOP_K),
    Strategy("contextual", _contextual(_passages), _CONTEXTUAL.format(_PASSAGES), _TOP_K),
    Strategy("contextual-256", _contextual(_small_chunks), _CONTEXTUAL.format(_CHUNKS), _TOP_K),
    Strategy(
        "dense-x",
        _dense_x,
        "What LlamaIndex's DenseXRetrievalPack did: chunks of 1,024 tokens and their propositions in one "
        "index; a proposition leads to its chunk (RecursiveRetriever), and the chunks of the best 4 hits are "
        "read. Recorded propositions of passages are assigned to the chunks that hold them.",
    ),
    # about 500 words of each of the paper's units are read: its figures end there
    *(
        Strategy(
            f"paper-{unit}",
            _vectors(partial(_paper_units, unit=unit), fetched),
            _PAPER.format(unit),
            read,
        )
        for unit, fetched, read in (
            ("passages", 1, 5),
            ("sentences", _SENTENCES, 25),
            ("propositions", _DENSE_X_UNITS, 45),
        )
    ),
)
