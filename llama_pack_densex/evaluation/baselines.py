"""The baselines of a comparison: LlamaIndex's own retrieval methods, and the units of Dense X Retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager
from llama_index.core.extractors import DocumentContextExtractor
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
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


def _large_chunks(corpus: Corpus) -> list[BaseNode]:
    return SentenceSplitter().get_nodes_from_documents(corpus.documents)


def _small_chunks(corpus: Corpus) -> list[BaseNode]:
    splitter = SentenceSplitter(chunk_size=_CHUNK, chunk_overlap=_OVERLAP)
    return splitter.get_nodes_from_documents(corpus.documents)


def _sentences(corpus: Corpus) -> list[BaseNode]:
    return SentenceWindowNodeParser().get_nodes_from_documents(corpus.documents)


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


def _vectors(corpus: Corpus, nodes: Sequence[BaseNode], fetched: int = 1) -> BaseRetriever:
    """Build a vector index; `fetched` nodes are fetched for each ranked result."""
    return _index(nodes, corpus).as_retriever(similarity_top_k=fetched * corpus.depth)


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


def _hybrid(corpus: Corpus, nodes: Sequence[BaseNode]) -> BaseRetriever:
    """Build a vector index and BM25 over the same nodes, fused by reciprocal rank."""
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


def _contextual(corpus: Corpus, chunks: Sequence[BaseNode]) -> BaseRetriever:
    """Build contextual retrieval: each chunk has a header that situates it."""
    locator = Locator(corpus.dataset)
    outlines = {key: Outline(article.text) for key, article in corpus.by_id.items()}
    prompts = []
    for chunk in chunks:
        place = cast("Place", locator.place(chunk))  # each chunk is from one of these articles
        article = corpus.by_id[place.document_id]
        header = [title_of(article)]
        if place.span:
            header.append(outlines[place.document_id].section_of(*place.span))
        chunk.metadata[_HEADER_KEY] = ", ".join(filter(None, header))
        task = _HEADER_TASK.format(chunk=chunk.get_content())
        prompts.append([ChatMessage(f"<document>{article.text}</document>"), ChatMessage(task)])
    if corpus.header_llm:
        _write_headers(chunks, prompts, corpus.header_llm)
    return _hybrid(corpus, chunks)


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
    cut = PaperPassageNodeParser().passage_spans
    if unit == "sentences":
        cut = sentence_spans
    spans = [(document, span) for document in corpus.documents for span in cut(document.text)]
    passages = [
        Passage(document.text[start:end], title_of(document)) for document, (start, end) in spans
    ]
    texts: list[Sequence[str]] = [[passage.text] for passage in passages]
    if unit == "propositions":
        sets = corpus.chunk_propositionizer.propositionize(passages)
        texts = [propositions.texts for propositions in sets]
    nodes: list[BaseNode] = []
    for place, (document, (start, end)) in enumerate(spans):
        # with the document's id in the metadata, `Locator` trusts the span, whatever the text
        metadata = {**document.metadata, DOCUMENT_ID_KEY: document.id_}
        excluded_from_embedding = [*document.excluded_embed_metadata_keys, DOCUMENT_ID_KEY]
        excluded_from_llm = [*document.excluded_llm_metadata_keys, DOCUMENT_ID_KEY]
        for number, text in enumerate(texts[place]):
            node = TextNode(
                id_=_ID.format(place, number),
                text=text,
                start_char_idx=start,
                end_char_idx=end,
                metadata=metadata,
                excluded_embed_metadata_keys=excluded_from_embedding,
                excluded_llm_metadata_keys=excluded_from_llm,
            )
            nodes.append(node)
    return nodes


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


def _auto_merging_strategy(name: str, leaves: int, ratio: float) -> Strategy:
    return Strategy(
        name,
        lambda corpus: _auto_merging(corpus, leaves, ratio),
        _MERGED.format(leaves, ratio),
    )


def _paper_strategy(unit: str, fetched: int, read: int) -> Strategy:
    return Strategy(
        f"paper-{unit}",
        lambda corpus: _vectors(corpus, _paper_units(corpus, unit), fetched),
        _PAPER.format(unit),
        read,
    )


BASELINES = (
    Strategy(
        "vector",
        lambda corpus: _vectors(corpus, _large_chunks(corpus)),
        "LlamaIndex's VectorStoreIndex over chunks of 1,024 tokens.",
        _TOP_K,
    ),
    Strategy(
        "vector-256",
        lambda corpus: _vectors(corpus, _small_chunks(corpus)),
        f"The same with chunks of {_CHUNK} tokens and an overlap of {_OVERLAP}.",
        _TOP_K,
    ),
    Strategy(
        "sentence-window",
        lambda corpus: _vectors(corpus, _sentences(corpus), _SENTENCES),
        "LlamaIndex's SentenceWindowNodeParser with its defaults over whole articles; each sentence found is "
        "replaced by itself and the three on either side (MetadataReplacementPostProcessor).",
        _TOP_K,
        (MetadataReplacementPostProcessor(target_metadata_key="window"),),
    ),
    _auto_merging_strategy("auto-merging", leaves=6, ratio=0.5),  # as in its guide
    _auto_merging_strategy("auto-merging-k12", leaves=12, ratio=0.3),
    Strategy(
        "bm25",
        _bm25,
        "LlamaIndex's BM25Retriever with its defaults, over the dataset's passages.",
        _TOP_K,
    ),
    Strategy(
        "hybrid",
        lambda corpus: _hybrid(corpus, _passages(corpus)),
        _HYBRID.format(_PASSAGES),
        _TOP_K,
    ),
    Strategy(
        "hybrid-256",
        lambda corpus: _hybrid(corpus, _small_chunks(corpus)),
        _HYBRID.format(_CHUNKS),
        _TOP_K,
    ),
    Strategy(
        "contextual",
        lambda corpus: _contextual(corpus, _passages(corpus)),
        _CONTEXTUAL.format(_PASSAGES),
        _TOP_K,
    ),
    Strategy(
        "contextual-256",
        lambda corpus: _contextual(corpus, _small_chunks(corpus)),
        _CONTEXTUAL.format(_CHUNKS),
        _TOP_K,
    ),
    Strategy(
        "dense-x",
        _dense_x,
        "What LlamaIndex's DenseXRetrievalPack did: chunks of 1,024 tokens and their propositions in one "
        "index; a proposition leads to its chunk (RecursiveRetriever), and the chunks of the best 4 hits are "
        "read. Recorded propositions of passages are assigned to the chunks that hold them.",
    ),
    # about 500 words of each of the paper's units are read: its figures end there
    _paper_strategy("passages", fetched=1, read=5),
    _paper_strategy("sentences", fetched=_SENTENCES, read=25),
    _paper_strategy("propositions", fetched=_DENSE_X_UNITS, read=45),
)
