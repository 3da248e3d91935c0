"""What the pack is compared with: LlamaIndex's own ways of retrieving, and the units of Dense X Retrieval."""

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
# SentenceSplitter's own is 200 whatever the size: of chunks of 256, nearly the whole chunk
_OVERLAP = 20
# fetched for each passage that rankings look at: several sentences lead to the same passage
_SENTENCES = 5
_DENSE_X_TOP_K = 4
_DENSE_X_UNITS = 10  # fetched for each chunk that rankings look at: a chunk has many propositions
_HEADER_KEY = "context"
_HEADER_TASK = (
    "Here is the chunk we want to situate within the whole document:\n<chunk>{chunk}</chunk>\n"
    + DocumentContextExtractor.ORIGINAL_CONTEXT_PROMPT
)
_MAX_WORDS = 100  # of the paper's passages
_CHARACTERS_A_WORD = 2  # 200 Japanese characters say about as much as 100 English words
_ID = "{:06}-{:06}"  # the store breaks ties by id: hits are the same in every run


# LlamaIndex's own ways of retrieving


Cut = Callable[[Corpus], Sequence[BaseNode]]
"""Makes the nodes that a strategy searches."""
Build = Callable[[Corpus], BaseRetriever]


def _articles_in(make_parser: Callable[[], NodeParser]) -> Cut:
    """Cuts whole articles; the parser is made when it is needed, since it loads a tokenizer."""
    return lambda corpus: make_parser().get_nodes_from_documents(corpus.documents)


_large_chunks = _articles_in(SentenceSplitter)
_small_chunks = _articles_in(partial(SentenceSplitter, chunk_size=_CHUNK, chunk_overlap=_OVERLAP))


def _passages(corpus: Corpus) -> list[BaseNode]:
    """The dataset's passages, a node each."""
    return WholeDocumentNodeParser().get_nodes_from_documents(corpus.passages)


class _ArrayStore(SimpleVectorStore):
    """Core's store with vectors as arrays: of lists, it would make arrays again for each question."""

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
        # not run over nodes, but core would make the global one
        transformations=[SentenceSplitter()],
        callback_manager=CallbackManager(),
        insert_batch_size=max(len(nodes), 1),
    )


def _vectors(cut: Cut, fetched: int = 1) -> Build:
    """A vector index over nodes, of which several may be fetched for each result that rankings look at."""
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
    """A vector index and BM25 over the same nodes, fused by reciprocal rank (core's QueryFusionRetriever)."""

    def build(corpus: Corpus) -> BaseRetriever:
        nodes = cut(corpus)
        return QueryFusionRetriever(
            [
                _index(nodes, corpus).as_retriever(similarity_top_k=corpus.depth),
                _bm25_retriever(nodes, corpus.depth),
            ],
            llm=MockLLM(),  # it requires one even where it makes no further queries
            mode=FUSION_MODES.RECIPROCAL_RANK,
            similarity_top_k=corpus.depth,
            num_queries=1,
            use_async=False,
            callback_manager=CallbackManager(),
        )

    return build


def _contextual(cut: Cut) -> Build:
    """Contextual retrieval: each chunk with a header that says where in the document it stands."""

    def with_headers(corpus: Corpus) -> Sequence[BaseNode]:
        locator = Locator(corpus.dataset)
        outlines = {key: Outline(article.text) for key, article in corpus.by_id.items()}
        chunks = cut(corpus)
        prompts = []
        for chunk in chunks:
            place = cast("Place", locator.place(chunk))  # chunks are of these articles
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

    The extractor itself works in one event loop only, and caches nothing.
    """
    replies = at_once(llm.ask, prompts)
    if llm.stopped:
        raise llm.stopped
    lacking = 0
    for chunk, reply in zip(chunks, replies, strict=True):
        if isinstance(reply, AskingFailed):
            lacking += 1
        elif reply:
            chunk.metadata[_HEADER_KEY] = reply
    if lacking:
        logger.warning(
            "The LLM wrote no header for %d of %d chunks; title and headings stand in.",
            lacking, len(chunks),
        )  # fmt: skip


def _dense_x(corpus: Corpus) -> Built:
    """What llama-index-packs-dense-x-retrieval did."""
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

    Sentences are added to a passage as long as it has at most `max_words`; a longer sentence is a passage by
    itself. A last passage of fewer than `min_last_words` joins the one before, which may then have more than
    `max_words`. Two Chinese or Japanese characters count as one word.

    Example:
        >>> from llama_pack_densex import PropositionNodeParser
        >>> from llama_pack_densex.evaluation import PaperPassageNodeParser
        >>> parser = PropositionNodeParser(base_parser=PaperPassageNodeParser())
        >>> short = PaperPassageNodeParser(max_words=8, min_last_words=3)
        >>> short.split_text("Miso is salty. Miso keeps for a year. Green tea is bitter.")
        ['Miso is salty. Miso keeps for a year.', 'Green tea is bitter.']
    """

    max_words: int = Field(default=_MAX_WORDS, ge=1, description="The most words of a passage.")
    min_last_words: int = Field(
        default=50, ge=0, description="The fewest words of the last passage."
    )

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
    """Count the words between spaces; of Chinese and Japanese, half the characters."""
    return len(CJK.sub(" ", text).split()) + len(CJK.findall(text)) / _CHARACTERS_A_WORD


def _paper_units(corpus: Corpus, unit: str) -> list[BaseNode]:
    """The paper's units of a corpus: its "passages", "sentences", or the "propositions" of passages."""
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
            # the document's id as metadata marks the span as right, whatever the text
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
    "and its AutoMergingRetriever: {} leaves, merged above a ratio of {}. All that it returns is read."
)
_PAPER = "The {} of Dense X Retrieval (passages: 100 words) in a VectorStoreIndex: what is found is read."
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
        "LlamaIndex's SentenceWindowNodeParser with its defaults over whole articles; each found sentence is "
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
        "LlamaIndex's BM25Retriever as it comes, over the dataset's passages.",
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
        "index; a found proposition leads to its chunk (RecursiveRetriever), and what the best 4 of both "
        "lead to is read. Recorded propositions of passages are shared out to the chunks that hold them.",
    ),
    # of each of the paper's units, about 500 words are read, as its figures go up to
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
