"""Build the parts of a pack from its options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
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
from llama_pack_densex.index.manifest import InvalidIndexError, Manifest
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import DocumentRecord
from llama_pack_densex.ingestion.progress import many
from llama_pack_densex.llm.claims import UnnamedModelError, unnamed_place
from llama_pack_densex.models import (
    E5,
    LOCAL,
    NO_EMBED_MODEL,
    NONE,
    RETRIEVERS,
    embed_model_identity,
    is_same_embed_model,
    resolve_embed_model,
    resolve_llm,
)
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.nodes import UnitGranularity
from llama_pack_densex.node_parsers.parsers import (
    DEFAULT_CHUNK_SIZES,
    BasePropositionNodeParser,
    HierarchicalPropositionNodeParser,
    PropositionNodeParser,
)
from llama_pack_densex.node_parsers.passages import DEFAULT_CHUNK_SIZE, PassageNodeParser
from llama_pack_densex.options import Hybrid, PackOptions
from llama_pack_densex.options import UserArguments as UserArguments
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.hops import TwoHopSearch
from llama_pack_densex.retrieval.retrievers import (
    MIN_CANDIDATES,
    PropositionAutoMergingRetriever,
    PropositionRecursiveRetriever,
    RerankingRetriever,
)
from llama_pack_densex.retrieval.search import UnitSearch, dense_weight
from llama_pack_densex.retrieval.trust import LanguageTrust
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

# limits of a tool's description, which may have 1,024 characters at OpenAI
_DOCUMENTS_NAMED = 8
_NAME_CHARACTERS = 60


def make_node_parser(
    options: PackOptions, arguments: UserArguments
) -> tuple[BasePropositionNodeParser, str]:
    """Return the node parser for the user's arguments, and a phrase that says where propositions come from.

    Raises:
        ValueError: Two arguments contradict each other.
    """
    passages = arguments.get("text_splitter")
    node_parser = arguments.get("node_parser")
    if node_parser:
        parts = [passages, arguments.get("propositionizer"), arguments.get("proposition_llm")]
        if any(part is not None for part in parts):
            raise ValueError(
                "node_parser brings its own text_splitter and propositionizer: pass it alone"
            )
        return node_parser, f"propositions by {node_parser.propositionizer.class_name()}"
    propositionizer, source = _make_propositionizer(arguments)
    if passages is None:
        _report_unused_settings()
        passages = PassageNodeParser()
    settings: dict[str, Any] = {
        "propositionizer": propositionizer,
        "granularity": _units_to_make(options),
        "embed_metadata": options.embed_metadata,
        "llm_metadata": options.llm_metadata,
    }
    if options.mode == "recursive":
        return PropositionNodeParser(base_parser=passages, **settings), source
    sections = PassageNodeParser(chunk_size=DEFAULT_CHUNK_SIZES[0])
    return HierarchicalPropositionNodeParser(levels=[sections, passages], **settings), source


def _units_to_make(options: PackOptions) -> tuple[UnitGranularity, ...]:
    """Return the units to make besides passages; questions are made together with propositions."""
    units = []
    for unit in options.granularity:
        if unit == "question":
            unit = "proposition"
        if unit != "passage" and unit not in units:
            units.append(unit)
    return tuple(units)


def _make_propositionizer(arguments: UserArguments) -> tuple[Propositionizer, str]:
    propositionizer = arguments.get("propositionizer")
    named_llm = arguments.get("proposition_llm")
    if propositionizer:
        if named_llm is not None:
            raise ValueError("pass proposition_llm or propositionizer, not both")
        return propositionizer, f"propositions by {propositionizer.class_name()}"
    if isinstance(named_llm, str) and named_llm != NONE:
        # by its name, so that an unpickled copy can make the LLM again
        return LLMPropositionizer(llm=named_llm), f"propositions by {named_llm}"
    llm, source = resolve_llm(named_llm, "proposition_llm")
    if llm:
        return LLMPropositionizer(llm=llm), f"propositions by {source}"
    source = f"LLM for propositions: {source}, so sentences stand in for them"
    return SentencePropositionizer(), source


def _report_unused_settings() -> None:
    """Warn if the user's Settings would split documents into other passages.

    The underscored attributes hold only what the user set: reading the properties creates defaults.
    """
    chosen = filter(None, [Settings._node_parser, *(Settings._transformations or ())])
    sizes = {type(part).__name__: getattr(part, "chunk_size", None) for part in chosen}
    if sizes.items() - {("SentenceSplitter", constants.DEFAULT_CHUNK_SIZE)}:
        logger.warning(
            "The splitter in Settings (%s) is not used: passages end at sentence ends and have up to %d "
            "tokens. To use another splitter, pass text_splitter=, for example Settings.node_parser.",
            ", ".join(sizes), DEFAULT_CHUNK_SIZE,
        )  # fmt: skip


def embed_model_for(
    manifest: Manifest | None, embed_model: BaseEmbedding | str | None, where: str
) -> tuple[BaseEmbedding | None, str]:
    """Return the embedding model for an index, and a phrase that says which one it is.

    An existing index needs the model that made it.

    Args:
        manifest: The manifest of the index; None if there is no index yet, or it has no manifest.
        embed_model: The user's argument.
        where: The index, for messages.

    Raises:
        InvalidIndexError: The model is not the one that made the index.
        UnnamedModelError: The index names an address or a folder that the user has not named.
    """
    if not manifest:
        return resolve_embed_model(embed_model)
    if embed_model is None and manifest.embed_model == NONE:
        return None, "none, as when the index was made"
    if embed_model is None and manifest.embed_spec:
        embed_model = manifest.embed_spec
        _refuse_unnamed_place(embed_model, where)
    model, source = resolve_embed_model(embed_model)
    identity = embed_model_identity(model)
    if not is_same_embed_model(manifest.embed_model, identity):
        raise InvalidIndexError(
            f"{where} was made with the embedding model {manifest.embed_model!r}, not {identity!r}: pass "
            "that model as embed_model=, or rebuild the index."
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
    if model.isprintable():  # other characters could control the terminal
        advice += f", at the command line: --embed-model {shlex.quote(model)}"
    raise UnnamedModelError(
        f"{where} says that its embedding model is at {place!r}. Using it would {consequence}, but only "
        f"whoever made the index has named that place. If you trust it, {advice}",
        model,
    )


def describe_choices(hybrid: Hybrid, propositions: str, embedding: str, answering: str) -> str:
    """Return a sentence that says which models are used, and what that means for search and answers.

    Args:
        hybrid: The pack's option.
        propositions: A phrase that says where propositions come from.
        embedding: A phrase that says which embedding model is used; it starts with "none" if there is none.
        answering: The same for the LLM that answers.
    """
    search = "by embeddings"
    if embedding.startswith(NONE):
        search = "by keywords (BM25)"
    elif hybrid:
        search = "by embeddings and by keywords (BM25)"
    answers = "written by the LLM"
    if answering.startswith(NONE):
        answers = "quoted propositions"
    return (
        f"{_capitalized(propositions)}; embedding model: {embedding}, so search is {search}; "
        f"LLM for answers: {answering}, so answers are {answers}."
    )


def describe_lacks(propositions: str, embedding: str, answering: str) -> str:
    """Return a line that says what a pack does without the models it lacks; see `describe_choices`."""
    lacks = []
    if "LLM for propositions: none" in propositions:
        lacks.append("sentences stand in for propositions")
    if embedding.startswith(NONE):
        lacks.append("search is by keywords (BM25)")
    if answering.startswith(NONE):
        lacks.append("answers are quotations")
    return f"{_capitalized(', '.join(lacks))}; print(pack) says why."


@cache
def warn_of_missing_model() -> None:
    """Log, once per process, what it costs to have no embedding model and how to get one."""
    logger.warning("Embedding model: %s.", NO_EMBED_MODEL)


def describe_tool(documents: Mapping[str, DocumentRecord]) -> str:
    """Return the description of a tool that answers from documents; it names some of them."""
    description = f"Answers a question from {many(len(documents), 'document')}, with its sources"
    names = sorted({_document_name(key, record) for key, record in documents.items()} - {""})
    if names:
        shown = [repr(name[:_NAME_CHARACTERS]) for name in names[:_DOCUMENTS_NAMED]]
        description += f": {', '.join(shown)}"
    if len(names) > _DOCUMENTS_NAMED:
        description += " and others"
    return f"{description}."


def _document_name(document_id: str, record: DocumentRecord) -> str:
    """Return the name by which an LLM can recognise a document, without its page; empty if only a random id
    is known."""
    name = Path(record.file).name if is_random_id(document_id) else document_id
    return " ".join(name.partition("#page=")[0].split())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class RetrieverMaker:
    """Makes the retrievers of a pack for its mode, followed by a reranker if there is one.

    Args:
        options: The pack's options.
        nodes: Its index.
        trust: How well the embedding model knows each language.
        reranker: Rescores the nodes that were found; None for no reranking.
    """

    options: PackOptions
    nodes: NodeIndex
    trust: Mapping[str, LanguageTrust]
    reranker: BaseNodePostprocessor | None

    def __call__(
        self, similarity_top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> BaseRetriever:
        """Make a retriever.

        Raises:
            ValueError: `similarity_top_k` is not a positive integer.
            TypeError: `filters` is not a `MetadataFilters`.
        """
        options = self.options
        if filters is not None and not isinstance(filters, MetadataFilters):
            example = "MetadataFilters(filters=[MetadataFilter(key=..., value=...)])"
            raise TypeError(
                f"filters must be LlamaIndex's {example}, not a {type(filters).__name__}"
            )
        top_k = options.similarity_top_k
        if similarity_top_k is not None:
            top_k = PackOptions(similarity_top_k=similarity_top_k).similarity_top_k
        if not self.reranker:
            return self._retriever(top_k, filters)
        candidates = options.rerank_k or max(MIN_CANDIDATES, 5 * top_k)
        retriever = self._retriever(max(candidates, top_k), filters)
        by_units = options.rerank == "proposition"
        return RerankingRetriever(retriever, self.nodes, self.reranker, top_k, by_units)

    def _retriever(self, top_k: int, filters: MetadataFilters | None) -> BaseRetriever:
        options = self.options
        search = self._search(filters)
        settings: dict[str, Any] = {
            "fetch_k": options.fetch_k,
            "callback_manager": callback_manager(),
            "verbose": options.verbose,
        }
        if options.mode == "recursive":
            return PropositionRecursiveRetriever(search, self.nodes, top_k, **settings)
        settings["simple_ratio_thresh"] = options.simple_ratio_thresh
        return PropositionAutoMergingRetriever(search, self.nodes, top_k, **settings)

    def _search(self, filters: MetadataFilters | None) -> UnitSearch:
        options = self.options
        settings: dict[str, Any] = {}
        if options.hybrid == "store":
            settings["of_store"] = {
                "mode": VectorStoreQueryMode.HYBRID,
                "alpha": options.dense_weight,
            }
        elif options.hybrid:
            settings["dense_weight"] = dense_weight(
                self.trust, options.dense_weight, options.languages
            )
        search = TwoHopSearch if options.hops == 2 else UnitSearch
        return search(self.nodes, options.granularity, filters, **settings)


def make_synthesizer(
    options: PackOptions, trust: Mapping[str, LanguageTrust], llm: LLM | None
) -> SourcedSynthesizer:
    """Return the synthesizer that answers: by an LLM over the assembled context, or with quotations."""
    callbacks = callback_manager()
    if llm:
        return CitedSynthesizer(llm, options.context, options.streaming, callbacks, trust)
    return ExtractiveSynthesizer(
        streaming=options.streaming,
        callback_manager=callbacks,
        trust=trust,
    )


def make_vector_index(
    index: NodeIndex, parser: BasePropositionNodeParser
) -> VectorStoreIndex | None:
    """Return LlamaIndex's own index over the same nodes; None without an embedding model."""
    if not index.embed_model:
        return None
    store = index.store
    positions = {} if store.vector_store.stores_text else store.positions()
    return VectorStoreIndex(
        index_struct=IndexDict(nodes_dict=positions),
        storage_context=StorageContext.from_defaults(
            vector_store=store.vector_store, docstore=store.docstore
        ),
        # passed explicitly, so that core neither reads nor fills in Settings
        embed_model=index.embed_model,
        transformations=[parser],
        callback_manager=callback_manager(),
    )


def callback_manager() -> CallbackManager:
    """Return the user's callback manager if they set one, else a new one.

    Reading the property of Settings would set one.
    """
    return Settings._callback_manager or CallbackManager()
