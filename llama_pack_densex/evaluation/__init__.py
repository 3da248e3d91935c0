"""Evaluation: datasets with known answers, metrics, strategies to compare, and reports.

This package sits on top of the others; only the command line and `samples` import it. `llama_pack_densex`
itself exports `compare` and `make_questions` too.
Scoring rankings needs the extra `evaluation` (`pip install "llama-pack-densex[evaluation]"`); reading
datasets does not. The modules, from the bottom up:

- `records`: rows of JSON, JSONL, CSV and Parquet files. `runs`: run files of TREC and ranx, scored and
  compared. `significance`: confidence intervals and the randomisation test.
- `evaluation_set`: the data model of a dataset. `formats`: one function for each published format.
  `datasets`: the entry point, and users' own questions. `make_questions`: questions that an LLM writes about
  users' documents.
- `evidence`: what was retrieved, and its place in the documents. `metrics`: figures computed from that (to
  add a metric, add a row to `METRICS` and compute it in `score`). `answers`: answers and the RAG triad;
  `trulens`: the triad as judged by TruLens. `models`: the cached embedding model and LLMs. `propositions`:
  sets of propositions scored against a reference.
- `strategy`: the definition of a strategy. `baselines`: other people's strategies (to add one, add a function
  and a row there). `strategies`: the pack's variants, one row each.
- `compare`: runs strategies. `report`: the results as JSON and CSV. `page`: the results as an HTML page.
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
