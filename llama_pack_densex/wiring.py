"""Parts of a pack, made from its options."""

from __future__ import annotations

from typing import Any

from llama_index.core import Settings, StorageContext, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.data_structs import IndexDict
from llama_index.core.llms import LLM
from llama_index.core.node_parser import NodeParser, SentenceSplitter
from llama_index.core.response_synthesizers import get_response_synthesizer

from llama_pack_densex.answering.engine import PropositionQueryEngine
from llama_pack_densex.answering.extractive import ExtractiveQueryEngine
from llama_pack_densex.models import resolve_llm
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.hierarchical import DEFAULT_CHUNK_SIZES, HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.proposition import PropositionNodeParser, default_base_parser
from llama_pack_densex.options import PackOptions
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.auto_merging import PropositionAutoMergingRetriever
from llama_pack_densex.retrieval.bm25 import LexicalIndexCache
from llama_pack_densex.retrieval.recursive import PropositionRecursiveRetriever
from llama_pack_densex.retrieval.units import DenseUnitRetriever, LexicalUnitRetriever, UnitRetriever
from llama_pack_densex.stores.index import NodeIndex


def make_node_parser(
    options: PackOptions,
    node_parser: BasePropositionNodeParser | None,
    text_splitter: NodeParser | None,
    propositionizer: Propositionizer | None,
    proposition_llm: LLM | str | None,
) -> tuple[BasePropositionNodeParser, str]:
    """The node parser for what the user gave, and a phrase that says where propositions come from.

    Raises:
        ValueError: Two arguments say different things about the same part.
    """
    if node_parser is not None:
        if text_splitter is not None or propositionizer is not None or proposition_llm is not None:
            raise ValueError("node_parser brings its own text_splitter and propositionizer: pass it alone")
        return node_parser, node_parser.propositionizer.class_name()
    if propositionizer is not None and proposition_llm is not None:
        raise ValueError("pass proposition_llm or propositionizer, not both")
    if propositionizer is None:
        llm, source = resolve_llm(proposition_llm, "proposition_llm")
        propositionizer = LLMPropositionizer(llm=llm) if llm is not None else SentencePropositionizer()
        source = f"propositions by {source}" if llm is not None else f"LLM for propositions: {source}"
    else:
        source = f"propositions by {propositionizer.class_name()}"
    passages = text_splitter if text_splitter is not None else default_base_parser()
    if options.mode == "recursive":
        return PropositionNodeParser(
            base_parser=passages, propositionizer=propositionizer, granularity=options.granularity
        ), source
    sections = SentenceSplitter(chunk_size=DEFAULT_CHUNK_SIZES[0], chunk_overlap=0)
    return HierarchicalPropositionNodeParser(
        levels=[sections, passages], propositionizer=propositionizer, granularity=options.granularity
    ), source


def make_retriever(
    options: PackOptions, index: NodeIndex, lexical: LexicalIndexCache, similarity_top_k: int
) -> BaseRetriever:
    """The retriever for a mode: dense where there is an embedding model, lexical where there is none."""
    callbacks = callback_manager()
    units: UnitRetriever
    if index.embed_model is not None:
        units = DenseUnitRetriever(index, options.granularity, callback_manager=callbacks)
    else:
        units = LexicalUnitRetriever(lexical, index=index, granularity=options.granularity, callback_manager=callbacks)
    if options.mode == "recursive":
        return PropositionRecursiveRetriever(
            units, index, similarity_top_k, options.fetch_k, callback_manager=callbacks, verbose=options.verbose
        )
    return PropositionAutoMergingRetriever(
        units,
        index,
        similarity_top_k,
        options.simple_ratio_thresh,
        options.fetch_k,
        callback_manager=callbacks,
        verbose=options.verbose,
    )


def make_query_engine(
    options: PackOptions, retriever: BaseRetriever, llm: LLM | None
) -> PropositionQueryEngine | ExtractiveQueryEngine:
    """The query engine: an LLM over the assembled context, or quotations."""
    callbacks = callback_manager()
    if llm is None:
        return ExtractiveQueryEngine(retriever, streaming=options.streaming, callback_manager=callbacks)
    synthesizer = get_response_synthesizer(llm=llm, streaming=options.streaming, callback_manager=callbacks)
    return PropositionQueryEngine(retriever, synthesizer, callback_manager=callbacks)


def make_vector_index(index: NodeIndex, parser: BasePropositionNodeParser) -> VectorStoreIndex | None:
    """An index of LlamaIndex's own over the same nodes; None without an embedding model."""
    if index.embed_model is None:
        return None
    # given here, so that core neither reads nor fills in Settings
    common: dict[str, Any] = {
        "embed_model": index.embed_model,
        "transformations": [parser],
        "callback_manager": callback_manager(),
    }
    if index.vector_store.stores_text:
        return VectorStoreIndex.from_vector_store(index.vector_store, **common)
    struct = IndexDict(nodes_dict={record.id: record.id for record in index.records()})
    context = StorageContext.from_defaults(vector_store=index.vector_store, docstore=index.docstore)
    return VectorStoreIndex(index_struct=struct, storage_context=context, **common)


def callback_manager() -> CallbackManager:
    """The user's callback manager, where they set one; reading the property would set one."""
    chosen = getattr(Settings, "_callback_manager", None)
    return chosen if chosen is not None else CallbackManager()
