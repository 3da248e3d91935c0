"""Dense X Retrieval for LlamaIndex: search propositions, read the passages they came from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_pack_densex.answering.chat import PropositionChatEngine
    from llama_pack_densex.answering.synthesizer import CitedSynthesizer
    from llama_pack_densex.download import download_llama_pack
    from llama_pack_densex.evaluation.compare import compare
    from llama_pack_densex.evaluation.strategy import Strategy
    from llama_pack_densex.node_parsers.parsers import (
        HierarchicalPropositionNodeParser,
        PropositionIngestionCache,
        PropositionNodeParser,
    )
    from llama_pack_densex.pack import DenseXRetrievalPack
    from llama_pack_densex.propositionizers.base import (
        BudgetExceededError,
        Finding,
        Passage,
        Propositionizer,
        PropositionizerError,
    )
    from llama_pack_densex.propositionizers.checks import check_propositions
    from llama_pack_densex.propositionizers.llm import LLMPropositionizer
    from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
    from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
    from llama_pack_densex.propositionizers.seq2seq import Seq2SeqPropositionizer
    from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
    from llama_pack_densex.stores.folder import IndexInUseError
    from llama_pack_densex.stores.manifest import InvalidIndexError

__all__ = [
    "BudgetExceededError",
    "CitedSynthesizer",
    "DenseXRetrievalPack",
    "Finding",
    "HierarchicalPropositionNodeParser",
    "IndexInUseError",
    "InvalidIndexError",
    "LLMPropositionizer",
    "Passage",
    "PropositionChatEngine",
    "PropositionContextPostprocessor",
    "PropositionIngestionCache",
    "PropositionNodeParser",
    "Propositionizer",
    "PropositionizerError",
    "RecordedPropositionizer",
    "SentencePropositionizer",
    "Seq2SeqPropositionizer",
    "Strategy",
    "check_propositions",
    "compare",
    "download_llama_pack",
]

# Imported where they are first used: LlamaIndex and LanceDB take seconds, which `densex --help` need not wait for.
_MODULES = {
    "BudgetExceededError": "propositionizers.base",
    "CitedSynthesizer": "answering.synthesizer",
    "DenseXRetrievalPack": "pack",
    "Finding": "propositionizers.base",
    "HierarchicalPropositionNodeParser": "node_parsers.parsers",
    "IndexInUseError": "stores.folder",
    "InvalidIndexError": "stores.manifest",
    "LLMPropositionizer": "propositionizers.llm",
    "Passage": "propositionizers.base",
    "PropositionChatEngine": "answering.chat",
    "PropositionContextPostprocessor": "retrieval.context",
    "PropositionIngestionCache": "node_parsers.parsers",
    "PropositionNodeParser": "node_parsers.parsers",
    "Propositionizer": "propositionizers.base",
    "PropositionizerError": "propositionizers.base",
    "RecordedPropositionizer": "propositionizers.recorded",
    "SentencePropositionizer": "propositionizers.sentences",
    "Seq2SeqPropositionizer": "propositionizers.seq2seq",
    "Strategy": "evaluation.strategy",
    "check_propositions": "propositionizers.checks",
    "compare": "evaluation.compare",
    "download_llama_pack": "download",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
