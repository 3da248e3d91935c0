"""Parts of a pack, made from its options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from llama_index.core import Settings, StorageContext, VectorStoreIndex, constants
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.data_structs import IndexDict
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQueryMode

from llama_pack_densex.answering.extractive import ExtractiveSynthesizer
from llama_pack_densex.answering.synthesizer import CitedSynthesizer, SourcedSynthesizer
from llama_pack_densex.llm.claims import UnnamedModelError, unnamed_place
from llama_pack_densex.models import (
    E5,
    LOCAL,
    NONE,
    RETRIEVERS,
    embed_model_identity,
    is_same_embed_model,
    resolve_embed_model,
    resolve_llm,
)
from llama_pack_densex.node_parsers.nodes import UnitGranularity
from llama_pack_densex.node_parsers.parsers import (
    DEFAULT_CHUNK_SIZES,
    BasePropositionNodeParser,
    HierarchicalPropositionNodeParser,
    PropositionNodeParser,
    default_base_parser,
)
from llama_pack_densex.node_parsers.passages import DEFAULT_CHUNK_SIZE, PassageNodeParser
from llama_pack_densex.options import Given as Given
from llama_pack_densex.options import Hybrid, PackOptions
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.retrievers import (
    MIN_CANDIDATES,
    PropositionAutoMergingRetriever,
    PropositionRecursiveRetriever,
    RerankingRetriever,
)
from llama_pack_densex.retrieval.search import UnitSearch, dense_weight
from llama_pack_densex.retrieval.trust import LanguageTrust
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)


def make_node_parser(options: PackOptions, given: Given) -> tuple[BasePropositionNodeParser, str]:
    """The node parser for what the user gave, and a phrase that says where propositions come from.

    Raises:
        ValueError: Two arguments say different things about the same part.
    """
    if (node_parser := given.get("node_parser")) is not None:
        if any(given.get(part) is not None for part in ("text_splitter", "propositionizer", "proposition_llm")):
            raise ValueError("node_parser brings its own text_splitter and propositionizer: pass it alone")
        return node_parser, f"propositions by {node_parser.propositionizer.class_name()}"
    propositionizer, source = _make_propositionizer(given)
    passages = given.get("text_splitter")
    if passages is None:
        _report_unused_settings()
        passages = default_base_parser()
    made = ("proposition" if unit == "question" else unit for unit in options.granularity if unit != "passage")
    units: tuple[UnitGranularity, ...] = tuple(dict.fromkeys(made))  # questions come with propositions
    common: dict[str, Any] = {
        "propositionizer": propositionizer,
        "granularity": units,
        "embed_metadata": options.embed_metadata,
        "llm_metadata": options.llm_metadata,
    }
    if options.mode == "recursive":
        return PropositionNodeParser(base_parser=passages, **common), source
    sections = PassageNodeParser(chunk_size=DEFAULT_CHUNK_SIZES[0])
    return HierarchicalPropositionNodeParser(levels=[sections, passages], **common), source


def _make_propositionizer(given: Given) -> tuple[Propositionizer, str]:
    propositionizer, named = given.get("propositionizer"), given.get("proposition_llm")
    if propositionizer is not None:
        if named is not None:
            raise ValueError("pass proposition_llm or propositionizer, not both")
        return propositionizer, f"propositions by {propositionizer.class_name()}"
    if isinstance(named, str) and named != NONE:  # it makes it elsewhere by its name
        return LLMPropositionizer(llm=named), f"propositions by {named}"
    llm, source = resolve_llm(named, "proposition_llm")
    if llm is not None:
        return LLMPropositionizer(llm=llm), f"propositions by {source}"
    return SentencePropositionizer(), f"LLM for propositions: {source}, so sentences stand in for them"


def _report_unused_settings() -> None:
    """Say where the user's Settings would make other passages; what it makes up when it is read does not count."""
    chosen = [getattr(Settings, "_node_parser", None), *(getattr(Settings, "_transformations", None) or ())]
    sizes = {type(part).__name__: getattr(part, "chunk_size", None) for part in chosen if part is not None}
    if sizes.items() - {("SentenceSplitter", constants.DEFAULT_CHUNK_SIZE)}:
        logger.warning(
            "What Settings says of splitting (%s) is not used: passages end at sentence ends and have up to %d tokens. "
            "Pass text_splitter=, Settings.node_parser for one, to have others.",
            ", ".join(sizes), DEFAULT_CHUNK_SIZE,
        )  # fmt: skip


def embed_model_for(
    manifest: Manifest | None, given: BaseEmbedding | str | None, where: str
) -> tuple[BaseEmbedding | None, str]:
    """The embedding model for an index: the one that made it, where there is an index already.

    Args:
        manifest: What the index says about itself; None where there is none yet, or it does not say.
        given: What the user gave.
        where: The index, for messages.

    Raises:
        InvalidIndexError: Another model was given, or the one that made it cannot be told.
        UnnamedModelError: The index names an address or a folder that the user has not named.
    """
    if manifest is None:
        return resolve_embed_model(given)
    if given is None and manifest.embed_model == NONE:
        return None, "none, as when the index was made"
    if given is None and manifest.embed_spec:
        _refuse_unnamed_place(manifest.embed_spec, where)
    model, source = resolve_embed_model(given if given is not None else manifest.embed_spec or None)
    identity = embed_model_identity(model)
    if not is_same_embed_model(manifest.embed_model, identity):
        raise InvalidIndexError(
            f"{where} was made with the embedding model {manifest.embed_model!r}, not {identity!r}: pass that one as "
            "embed_model=, or build the index anew."
        )
    return model, source


def _refuse_unnamed_place(model: str, where: str) -> None:
    place = unnamed_place(model, (NONE, LOCAL, E5, *RETRIEVERS))
    if not place:
        return
    consequence = "send your questions and your key there"
    if "://" not in place:
        consequence = "run a model from there"
    advice = f"pass embed_model={model!r}"
    if model.isprintable():  # else the line would steer the terminal
        advice += f", at the command line: --embed-model {shlex.quote(model)}"
    raise UnnamedModelError(
        f"{where} says that its embedding model is at {place!r}. To use it would {consequence}, and only whoever made "
        f"the index has named that place. If you trust it, {advice}",
        model,
    )


def describe_choices(hybrid: Hybrid, propositions: str, embedding: str, answering: str) -> str:
    """A sentence that says what was chosen and what it means."""
    search = "by embeddings and by words (BM25)" if hybrid else "by embeddings"
    search = "by words (BM25)" if embedding.startswith(NONE) else search
    answers = "quoted propositions" if answering.startswith(NONE) else "written by the LLM"
    return (
        f"{propositions[:1].upper()}{propositions[1:]}; embedding model: {embedding}, so search is {search}; "
        f"LLM for answers: {answering}, so answers are {answers}."
    )


def describe_lacks(propositions: str, embedding: str, answering: str) -> str:
    """A line that says what a pack works with where models are lacking; arguments as for `describe_choices`."""
    lacks = {
        "sentences stand in for propositions": "LLM for propositions: none" in propositions,
        "search is by words (BM25)": embedding.startswith(NONE),
        "answers are quotations": answering.startswith(NONE),
    }
    told = ", ".join(text for text, is_lacking in lacks.items() if is_lacking)
    return f"{told[:1].upper()}{told[1:]}; print(pack) says why."


def make_retriever(
    options: PackOptions,
    nodes: NodeIndex,
    trust: Mapping[str, LanguageTrust],
    reranker: BaseNodePostprocessor | None,
    similarity_top_k: int | None = None,
    filters: MetadataFilters | None = None,
) -> BaseRetriever:
    """The retriever for a mode, with a reranker behind it where there is one.

    Raises:
        ValueError: `similarity_top_k` is not a positive whole number.
        TypeError: `filters` are none.
    """
    if filters is not None and not isinstance(filters, MetadataFilters):
        made = "MetadataFilters(filters=[MetadataFilter(key=..., value=...)])"
        raise TypeError(f"filters must be LlamaIndex's {made}, not a {type(filters).__name__}")
    asked_for = options if similarity_top_k is None else PackOptions(similarity_top_k=similarity_top_k)
    top_k = asked_for.similarity_top_k
    candidates = top_k if reranker is None else max(options.rerank_k or max(MIN_CANDIDATES, 5 * top_k), top_k)
    retriever = PropositionRecursiveRetriever if options.mode == "recursive" else PropositionAutoMergingRetriever
    of_mode = {} if options.mode == "recursive" else {"simple_ratio_thresh": options.simple_ratio_thresh}
    of_store: dict[str, Any] | None = None
    if options.hybrid == "store":
        of_store = {"mode": VectorStoreQueryMode.HYBRID, "alpha": options.dense_weight}
    weight = dense_weight(trust, options.dense_weight, options.languages) if options.hybrid is True else None
    found = retriever(
        UnitSearch(nodes, options.granularity, filters, weight, of_store),
        nodes,
        candidates,
        fetch_k=options.fetch_k,
        callback_manager=callback_manager(),
        verbose=options.verbose,
        **of_mode,
    )
    if reranker is None:
        return found
    by_units = options.rerank == "proposition"
    return RerankingRetriever(found, nodes, reranker, top_k, by_units, callback_manager())


def make_synthesizer(options: PackOptions, trust: Mapping[str, LanguageTrust], llm: LLM | None) -> SourcedSynthesizer:
    """What answers: an LLM over the assembled context, or quotations."""
    callbacks = callback_manager()
    if llm is not None:
        return CitedSynthesizer(llm, options.context, options.streaming, callbacks, trust)
    return ExtractiveSynthesizer(trust, options.streaming, callbacks)


def make_vector_index(index: NodeIndex, parser: BasePropositionNodeParser) -> VectorStoreIndex | None:
    """An index of LlamaIndex's own over the same nodes; None without an embedding model."""
    if index.embed_model is None:
        return None
    store = index.store
    positions = {} if store.vector_store.stores_text else store.positions()
    return VectorStoreIndex(
        index_struct=IndexDict(nodes_dict=positions),
        storage_context=StorageContext.from_defaults(vector_store=store.vector_store, docstore=store.docstore),
        # given here, so that core neither reads nor fills in Settings
        embed_model=index.embed_model,
        transformations=[parser],
        callback_manager=callback_manager(),
    )


def callback_manager() -> CallbackManager:
    """The user's callback manager, where they set one; reading the property would set one."""
    chosen = getattr(Settings, "_callback_manager", None)
    return chosen if chosen is not None else CallbackManager()
