"""Run files scored against relevance labels and compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from llama_pack_densex.evaluation.metrics import Scores, rank_metrics
from llama_pack_densex.evaluation.runs import Qrels, read_qrels, read_run
from llama_pack_densex.evaluation.significance import Interval, bootstrap_interval, randomisation_test
from llama_pack_densex.evaluation.ties import rank

METRICS = ("ndcg@10", "mrr@10")
"""What JQaRA reports."""


@dataclass(frozen=True)
class RunScore:
    """How good a run is.

    Args:
        name: The run file's name, or its path where two have the same name.
        scores: Metric name to mean.
        intervals: Metric name to the mean's 95 % confidence interval.
        unanswered: Questions with labels for which the run has nothing; they count as 0.
    """

    name: str
    scores: dict[str, float]
    intervals: dict[str, Interval]
    unanswered: int


@dataclass(frozen=True)
class RunComparison:
    """How two runs differ.

    Args:
        metric: The metric's name.
        first: A run's name.
        second: Another's.
        difference: The first one's mean minus the second's.
        p_value: Of the paired randomisation test.
    """

    metric: str
    first: str
    second: str
    difference: float
    p_value: float


@dataclass(frozen=True)
class ScoreReport:
    """All runs and all pairs of them.

    Args:
        qrels: The file of the labels.
        questions: The number of questions with labels.
        runs: In the order given.
        comparisons: Metric by metric, every pair of runs.
    """

    qrels: str
    questions: int
    runs: list[RunScore]
    comparisons: list[RunComparison]


def score_runs(
    qrels: Path,
    runs: Sequence[Path],
    metrics: Sequence[str] = METRICS,
    permutations: int = 10_000,
    seed: int = 0,
) -> ScoreReport:
    """Score run files, as JQaRA's evaluator does.

    Args:
        qrels: The labels; see `read_qrels`.
        runs: The runs; see `read_run`. Ties are broken as ranx breaks them.
        metrics: What `rank_metrics` knows.
        permutations: Of the randomisation test.
        seed: Of the randomisation test and the confidence intervals.

    Raises:
        ValueError: A file is not what it should be, a metric is not known, or a run has none of the questions.
        OSError: A file cannot be read.
        ImportError: ir-measures is not installed, or cbor2 for an lz4 file.
    """
    labels = read_qrels(qrels)
    names = _names(runs)
    scored = {name: _score(path, labels, metrics) for name, path in zip(names, runs, strict=True)}
    return ScoreReport(
        qrels=str(qrels),
        questions=len(labels),
        runs=[
            RunScore(
                name=name,
                scores=scores.means(),
                intervals={
                    metric: bootstrap_interval(list(values.values()), seed=seed)
                    for metric, values in scores.values.items()
                },
                unanswered=unanswered,
            )
            for name, (scores, unanswered) in scored.items()
        ],
        comparisons=[
            _compare(metric, first, second, scored[first][0], scored[second][0], permutations, seed)
            for metric in metrics
            for first, second in combinations(names, 2)
        ],
    )


def _score(path: Path, labels: Qrels, metrics: Sequence[str]) -> tuple[Scores, int]:
    run = read_run(path)
    answered = labels.keys() & run.keys()
    if not answered:
        raise ValueError(f"{path}: it has none of the questions that have labels; is it a run of another dataset?")
    rankings = {question: rank(run[question]) for question in answered}
    return rank_metrics(labels, rankings, metrics), len(labels) - len(answered)


def _compare(
    metric: str, first: str, second: str, ours: Scores, theirs: Scores, permutations: int, seed: int
) -> RunComparison:
    difference = randomisation_test(ours.values[metric], theirs.values[metric], permutations, seed)
    return RunComparison(metric, first, second, difference.mean, difference.p_value)


def _names(paths: Sequence[Path]) -> list[str]:
    stems = [path.stem for path in paths]
    names = [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    return names
