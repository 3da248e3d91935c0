"""The pack, in both modes, with and without BM25, with and without propositions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.evaluation.corpus import NO_EMBED_MODEL, Corpus, StrategyUnavailable
from llama_pack_densex.evaluation.strategy import Built, Strategy
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser, UnitGranularity
from llama_pack_densex.node_parsers.hierarchical import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.node_parsers.proposition import PropositionNodeParser
from llama_pack_densex.node_parsers.sections import WholeDocumentNodeParser
from llama_pack_densex.options import DEFAULT_GRANULARITY, PackOptions
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor

_UNITS: tuple[UnitGranularity, ...] = ("proposition", "sentence")
_SEARCHED = DEFAULT_GRANULARITY


@dataclass(frozen=True)
class _Variant:
    """Which of the pack's settings a strategy changes.

    Args:
        sentences: Whether sentences stand in for propositions.
        auto_merging: Whether found propositions merge upwards.
        chunked: Whether whole articles are cut by the pack's own splitter, in place of the dataset's passages.
        hybrid: Whether BM25 is fused in.
    """

    sentences: bool = False
    auto_merging: bool = False
    chunked: bool = False
    hybrid: bool = True

    @property
    def name(self) -> str:
        parts = {"sentences": self.sentences, "auto-merging": self.auto_merging, "chunked": self.chunked}
        return "-".join(["densex", *(part for part, wanted in parts.items() if wanted), *["dense"] * (not self.hybrid)])

    @property
    def description(self) -> str:
        units = "sentences, no LLM" if self.sentences else "propositions and sentences"
        search = "dense search and BM25 fused" if self.hybrid else "dense search alone"
        base = "whole articles in passages of 256 tokens" if self.chunked else "the dataset's passages"
        mode = ", found units merge into their passage" if self.auto_merging else ""
        return f"This pack over {base}: {units}; {search}{mode}. The best units are read first, then passages."


class _PackRetriever(BaseRetriever):
    """A pack as a retriever of so many nodes."""

    def __init__(self, pack: DenseXRetrievalPack, similarity_top_k: int) -> None:
        self._pack, self._similarity_top_k = pack, similarity_top_k
        super().__init__(callback_manager=CallbackManager())

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._pack.retrieve(query_bundle, similarity_top_k=self._similarity_top_k)


def _build(corpus: Corpus, variant: _Variant) -> Built:
    embed_model = corpus.models.embed_model
    if embed_model is None and not variant.hybrid:
        raise StrategyUnavailable(NO_EMBED_MODEL)
    propositionizer = _propositionizer(corpus, variant)
    common: dict[str, Any] = {
        "query_llm": NONE,
        "embed_model": embed_model if embed_model is not None else NONE,
        "hybrid": variant.hybrid,
        "mode": "auto_merging" if variant.auto_merging else "recursive",
    }
    if variant.chunked:
        pack = DenseXRetrievalPack(corpus.documents, propositionizer=propositionizer, **common)
    else:
        pack = DenseXRetrievalPack(corpus.passages, node_parser=_over_passages(propositionizer, variant), **common)
    units = [node.get_content() for node in pack.nodes() if node.metadata[GRANULARITY_KEY] in _SEARCHED]
    return Built(_PackRetriever(pack, corpus.depth), _PackRetriever(pack, PackOptions().similarity_top_k), units)


def _propositionizer(corpus: Corpus, variant: _Variant) -> Propositionizer:
    if variant.sentences:
        if isinstance(corpus.models.propositionizer, SentencePropositionizer):
            raise StrategyUnavailable(
                "propositions are sentences in this comparison: it is the one without 'sentences'"
            )
        return SentencePropositionizer()
    return corpus.chunk_propositionizer if variant.chunked else corpus.propositionizer


def _over_passages(propositionizer: Propositionizer, variant: _Variant) -> BasePropositionNodeParser:
    """A node parser that takes each document for a passage."""
    if variant.auto_merging:
        return HierarchicalPropositionNodeParser(
            levels=[WholeDocumentNodeParser()], propositionizer=propositionizer, granularity=_UNITS
        )
    return PropositionNodeParser(
        base_parser=WholeDocumentNodeParser(), propositionizer=propositionizer, granularity=_UNITS
    )


def _strategies() -> Iterator[Strategy]:
    for variant in _VARIANTS:
        yield Strategy(
            variant.name,
            partial(_build, variant=variant),
            variant.description,
            node_postprocessors=(PropositionContextPostprocessor(),),
        )


_VARIANTS = (
    *(
        _Variant(sentences, auto_merging, hybrid=hybrid)
        for auto_merging in (False, True)
        for sentences in (False, True)
        for hybrid in (True, False)
    ),
    _Variant(chunked=True),
    _Variant(sentences=True, chunked=True),
)
STRATEGIES = tuple(_strategies())
