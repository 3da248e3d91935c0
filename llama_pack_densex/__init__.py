"""Dense X Retrieval for LlamaIndex: search propositions, read the passages they came from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_pack_densex.answering.chat import PropositionChatEngine as PropositionChatEngine
    from llama_pack_densex.answering.synthesizer import CitedSynthesizer as CitedSynthesizer
    from llama_pack_densex.download import download_llama_pack as download_llama_pack
    from llama_pack_densex.evaluation.compare import compare as compare
    from llama_pack_densex.evaluation.make_questions import make_questions as make_questions
    from llama_pack_densex.evaluation.strategy import Strategy as Strategy
    from llama_pack_densex.index.folder import IndexInUseError as IndexInUseError
    from llama_pack_densex.index.manifest import InvalidIndexError as InvalidIndexError
    from llama_pack_densex.node_parsers.parsers import (
        HierarchicalPropositionNodeParser as HierarchicalPropositionNodeParser,
    )
    from llama_pack_densex.node_parsers.parsers import (
        PropositionIngestionCache as PropositionIngestionCache,
    )
    from llama_pack_densex.node_parsers.parsers import (
        PropositionNodeParser as PropositionNodeParser,
    )
    from llama_pack_densex.pack import DenseXRetrievalPack as DenseXRetrievalPack
    from llama_pack_densex.propositionizers.base import BudgetExceededError as BudgetExceededError
    from llama_pack_densex.propositionizers.base import Finding as Finding
    from llama_pack_densex.propositionizers.base import Passage as Passage
    from llama_pack_densex.propositionizers.base import Propositionizer as Propositionizer
    from llama_pack_densex.propositionizers.base import PropositionizerError as PropositionizerError
    from llama_pack_densex.propositionizers.checks import check_propositions as check_propositions
    from llama_pack_densex.propositionizers.llm import LLMPropositionizer as LLMPropositionizer
    from llama_pack_densex.propositionizers.recorded import (
        RecordedPropositionizer as RecordedPropositionizer,
    )
    from llama_pack_densex.propositionizers.sentences import (
        SentencePropositionizer as SentencePropositionizer,
    )
    from llama_pack_densex.propositionizers.seq2seq import (
        Seq2SeqPropositionizer as Seq2SeqPropositionizer,
    )
    from llama_pack_densex.retrieval.context import (
        PropositionContextPostprocessor as PropositionContextPostprocessor,
    )
    from llama_pack_densex.retrieval.drawing import draw_tree as draw_tree
    from llama_pack_densex.samples import Sample as Sample
    from llama_pack_densex.samples import load_sample as load_sample

# Imported on first use: LlamaIndex takes seconds to import, and `densex --help` should not wait for it.
_NAMES = {
    "answering.chat": ["PropositionChatEngine"],
    "answering.synthesizer": ["CitedSynthesizer"],
    "download": ["download_llama_pack"],
    "evaluation.compare": ["compare"],
    "evaluation.make_questions": ["make_questions"],
    "evaluation.strategy": ["Strategy"],
    "node_parsers.parsers": [
        "HierarchicalPropositionNodeParser",
        "PropositionIngestionCache",
        "PropositionNodeParser",
    ],
    "pack": ["DenseXRetrievalPack"],
    "propositionizers.base": [
        "BudgetExceededError",
        "Finding",
        "Passage",
        "Propositionizer",
        "PropositionizerError",
    ],
    "propositionizers.checks": ["check_propositions"],
    "propositionizers.llm": ["LLMPropositionizer"],
    "propositionizers.recorded": ["RecordedPropositionizer"],
    "propositionizers.sentences": ["SentencePropositionizer"],
    "propositionizers.seq2seq": ["Seq2SeqPropositionizer"],
    "retrieval.context": ["PropositionContextPostprocessor"],
    "retrieval.drawing": ["draw_tree"],
    "samples": ["Sample", "load_sample"],
    "index.folder": ["IndexInUseError"],
    "index.manifest": ["InvalidIndexError"],
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
