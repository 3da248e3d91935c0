"""The evaluation room: datasets with known answers, metrics, strategies to compare, reports.

It sits on top of the other rooms, and nothing but the command line imports it; `compare` is a name of the package
itself. Scoring rankings needs the extra `evaluation` (`pip install "llama-pack-densex[evaluation]"`); reading datasets
does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_pack_densex.evaluation.compare import evaluate as evaluate
    from llama_pack_densex.evaluation.datasets import DatasetError as DatasetError
    from llama_pack_densex.evaluation.datasets import EvaluationSet as EvaluationSet
    from llama_pack_densex.evaluation.datasets import Question as Question
    from llama_pack_densex.evaluation.datasets import read_dataset as read_dataset
    from llama_pack_densex.evaluation.models import KeptLLM as KeptLLM
    from llama_pack_densex.evaluation.propositions import BertScoreSimilarity as BertScoreSimilarity
    from llama_pack_densex.evaluation.propositions import EmbeddingSimilarity as EmbeddingSimilarity
    from llama_pack_densex.evaluation.propositions import score_propositions as score_propositions
    from llama_pack_densex.evaluation.report import Report as Report
    from llama_pack_densex.evaluation.runs import score_runs as score_runs
    from llama_pack_densex.evaluation.strategies import PaperPassageNodeParser as PaperPassageNodeParser
    from llama_pack_densex.evaluation.strategy import Built as Built
    from llama_pack_densex.evaluation.strategy import Corpus as Corpus
    from llama_pack_densex.evaluation.strategy import Strategy as Strategy
    from llama_pack_densex.evaluation.strategy import StrategyUnavailable as StrategyUnavailable

_NAMES = {
    "compare": ("evaluate",),
    "datasets": ("DatasetError", "EvaluationSet", "Question", "read_dataset"),
    "models": ("KeptLLM",),
    "propositions": ("BertScoreSimilarity", "EmbeddingSimilarity", "score_propositions"),
    "report": ("Report",),
    "runs": ("score_runs",),
    "strategies": ("PaperPassageNodeParser",),
    "strategy": ("Built", "Corpus", "Strategy", "StrategyUnavailable"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
