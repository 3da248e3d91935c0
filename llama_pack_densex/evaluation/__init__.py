"""The evaluation room: datasets with known answers, metrics, strategies to compare, reports.

It sits on top of the other rooms. Only the command line imports it; `compare` and `make_questions` are names
of the package.
Scoring rankings needs the extra `evaluation` (`pip install "llama-pack-densex[evaluation]"`); reading
datasets does not. From the bottom to the top:

- `records`: rows of JSON, JSONL, CSV and Parquet files. `runs`: TREC's and ranx's files, scored and compared.
  `significance`: confidence intervals and the randomisation test.
- `evaluation_set`: what a dataset is. `formats`: a function for each published format. `datasets`: the
  entrance, and users' own questions. `make_questions`: questions that an LLM writes about users' documents.
- `evidence`: what was retrieved, and where it stands. `metrics`: the figures of it (another metric: a row of
  `METRICS`, and `score`). `answers`: answers, and the RAG triad; `trulens`: the same by TruLens. `models`:
  the cached embedding model and LLMs. `propositions`: sets of propositions scored against others.
- `strategy`: what a strategy is. `baselines`: those of others (another one: a function and a row there).
  `strategies`: the pack's variants, a row each.
- `compare`: runs strategies. `report`: what comes out, as JSON and CSV. `page`: as an HTML page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_pack_densex.evaluation.baselines import PaperPassageNodeParser
    from llama_pack_densex.evaluation.compare import evaluate
    from llama_pack_densex.evaluation.datasets import (
        DatasetError,
        EvaluationSet,
        Question,
        read_dataset,
    )
    from llama_pack_densex.evaluation.make_questions import QuestionSet, estimate_questions
    from llama_pack_densex.evaluation.models import KeptLLM
    from llama_pack_densex.evaluation.propositions import (
        BertScoreSimilarity,
        EmbeddingSimilarity,
        score_propositions,
    )
    from llama_pack_densex.evaluation.report import Report
    from llama_pack_densex.evaluation.runs import score_runs
    from llama_pack_densex.evaluation.strategy import (
        Built,
        Corpus,
        Strategy,
        StrategyUnavailable,
    )

__all__ = [
    "BertScoreSimilarity",
    "Built",
    "Corpus",
    "DatasetError",
    "EmbeddingSimilarity",
    "EvaluationSet",
    "KeptLLM",
    "PaperPassageNodeParser",
    "Question",
    "QuestionSet",
    "Report",
    "Strategy",
    "StrategyUnavailable",
    "estimate_questions",
    "evaluate",
    "read_dataset",
    "score_propositions",
    "score_runs",
]
_NAMES = {
    "baselines": ("PaperPassageNodeParser",),
    "compare": ("evaluate",),
    "datasets": ("DatasetError", "EvaluationSet", "Question", "read_dataset"),
    "make_questions": ("QuestionSet", "estimate_questions"),
    "models": ("KeptLLM",),
    "propositions": ("BertScoreSimilarity", "EmbeddingSimilarity", "score_propositions"),
    "report": ("Report",),
    "runs": ("score_runs",),
    "strategy": ("Built", "Corpus", "Strategy", "StrategyUnavailable"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
