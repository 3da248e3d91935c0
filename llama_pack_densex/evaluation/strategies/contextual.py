"""Contextual retrieval: each chunk with a header that says where in the document it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.extractors import DocumentContextExtractor
from llama_index.core.llms import (
    LLM,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CompletionResponseGen,
    CustomLLM,
    LLMMetadata,
)
from llama_index.core.schema import BaseNode, Document
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_pack_densex._sync import run_sync
from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.evaluation.strategies.hybrid import fused
from llama_pack_densex.evaluation.strategies.passages import passage_nodes
from llama_pack_densex.evaluation.strategies.vector import SMALL_CHUNK, small_chunks
from llama_pack_densex.evaluation.strategy import Strategy
from llama_pack_densex.node_parsers.headings import Outline
from llama_pack_densex.node_parsers.passages import title_of

logger = logging.getLogger(__name__)

_KEY = "context"


def _build(corpus: Corpus, chunked: bool) -> BaseRetriever:
    nodes = small_chunks(corpus) if chunked else passage_nodes(corpus)
    articles = {document.id_: document for document in corpus.documents}
    of_node = [articles.get(_source(node)) or articles[_source(node).rpartition("/")[0]] for node in nodes]
    if corpus.llm is not None:
        _write_headers(nodes, of_node, corpus.llm)
    outlines = {document.id_: Outline(document.text) for document in corpus.documents}
    for node, article in zip(nodes, of_node, strict=True):
        if _KEY not in node.metadata:  # no LLM, or it failed
            node.metadata[_KEY] = _title_and_headings(node, article, outlines[article.id_])
    return fused(nodes, corpus)


def _write_headers(nodes: Sequence[BaseNode], articles: Sequence[Document], llm: LLM) -> None:
    store = SimpleDocumentStore()
    store.add_documents(
        [Document(id_=_source(node), text=article.text) for node, article in zip(nodes, articles, strict=True)]
    )
    extractor = DocumentContextExtractor(store, _InThreads(inner=llm), key=_KEY, oversized_document_strategy="ignore")
    for node, found in zip(nodes, run_sync(extractor.aextract(nodes)), strict=True):
        node.metadata.update(found)
    lacking = sum(_KEY not in node.metadata for node in nodes)
    if lacking:
        logger.warning("The LLM wrote no header for %d of %d chunks; title and headings stand in.", lacking, len(nodes))


class _InThreads(CustomLLM):
    """An LLM whose asynchronous chat is its synchronous one in a thread.

    A provider's asynchronous client belongs to the event loop that first used it, and each strategy has its own.
    """

    inner: LLM

    @property
    def metadata(self) -> LLMMetadata:
        return self.inner.metadata

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return self.inner.complete(prompt, formatted, **kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        return self.inner.stream_complete(prompt, formatted, **kwargs)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.inner.chat(messages, **kwargs)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return await asyncio.to_thread(self.inner.chat, messages, **kwargs)


def _title_and_headings(node: BaseNode, article: Document, outline: Outline) -> str:
    start = article.text.find(node.get_content())
    section = outline.section_at(start, start + len(node.get_content())) if start >= 0 else ""
    return ", ".join(part for part in (title_of(article), section) if part)


def _source(node: BaseNode) -> str:
    return node.source_node.node_id if node.source_node else ""


_HEADER = "written by the LLM (DocumentContextExtractor) where there is one, else made of the title and the headings"
STRATEGIES = (
    Strategy(
        "contextual",
        partial(_build, chunked=False),
        f"Contextual retrieval over the dataset's passages: each is embedded and indexed for BM25 with a header, "
        f"{_HEADER}; both are fused by reciprocal rank.",
        DEFAULT_SIMILARITY_TOP_K,
    ),
    Strategy(
        "contextual-256",
        partial(_build, chunked=True),
        f"The same over whole articles in chunks of {SMALL_CHUNK} tokens.",
        DEFAULT_SIMILARITY_TOP_K,
    ),
)
