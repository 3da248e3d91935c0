"""`densex score` and `densex score-propositions`; they import as little as possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from llama_pack_densex.cli.app import ScoreCommand, ScorePropositionsCommand
from llama_pack_densex.cli.output import print_table, waiting, write
from llama_pack_densex.evaluation.runs import ScoreReport, score_runs
from llama_pack_densex.ingestion.progress import many
from llama_pack_densex.text.terminal import one_line

if TYPE_CHECKING:
    from llama_pack_densex import Propositionizer
    from llama_pack_densex.evaluation import BertScoreSimilarity, EmbeddingSimilarity
    from llama_pack_densex.evaluation.propositions import PropositionReport


def score(options: ScoreCommand) -> None:
    """Score runs, and compare them."""
    with waiting("Scoring"):
        report = score_runs(options.qrels, options.runs, not options.keep_identical_ids)
    options.show(report, _print_scores)


def _print_scores(report: ScoreReport) -> None:
    write(f"{many(report.questions, 'question')} with labels.")
    scores = []
    for run in report.runs:
        for metric, bounds in run.intervals.items():
            interval = f"{bounds.low:.3f}-{bounds.high:.3f}"
            scores.append((run.name, metric, f"{run.scores[metric]:.4f}", interval))
    print_table(["run", "metric", "score", "95 %"], scores, texts=2)
    for run in report.runs:
        if run.unanswered:
            write(
                f"{one_line(run.name)} lacks {run.unanswered:,} of the questions; these count as 0."
            )
    if report.comparisons:
        differences = []
        for test in report.comparisons:
            runs = f"{test.first} vs {test.second}"
            values = (f"{test.difference:+.4f}", f"{test.p_value:.3f}")
            differences.append((runs, test.metric, *values))
        print_table(["runs", "metric", "difference", "p"], differences, texts=2)
        write("First minus second, with p of the paired randomisation test.", "dim")


def score_propositions(options: ScorePropositionsCommand) -> bool:
    """Score propositions against a reference; return False if the user does not agree to the cost."""
    if options.bert_score is not None and options.embed_model is not None:
        raise typer.BadParameter(
            "give one of --embed-model and --bert-score", param_hint="--bert-score"
        )
    from llama_pack_densex import evaluation
    from llama_pack_densex.cli.ingest import make_propositionizer

    predicted = Path(options.predicted)
    propositionizer = None
    if not predicted.exists():
        propositionizer = make_propositionizer(options.predicted, **options.chosen("max_cost"))
    similarity: EmbeddingSimilarity | BertScoreSimilarity
    with waiting("Loading the model"):
        if options.bert_score is None:
            similarity = evaluation.EmbeddingSimilarity(options.embed_model)
        else:
            similarity = evaluation.BertScoreSimilarity(options.bert_score, options.num_layers)
    if not _is_agreed(options, propositionizer):
        return False
    with waiting("Scoring"):
        report = evaluation.score_propositions(
            propositionizer or predicted, options.reference, similarity
        )
    options.show(report, _print_proposition_scores)
    return True


def _is_agreed(options: ScorePropositionsCommand, propositionizer: Propositionizer | None) -> bool:
    """Check the models' servers, and return whether the user agrees to the cost."""
    from llama_index.core.schema import Document

    from llama_pack_densex.cli.spending import (
        expenses_of_embedding,
        expenses_of_indexing,
        is_agreed,
    )
    from llama_pack_densex.evaluation.propositions import read_recorded
    from llama_pack_densex.llm.usage import count_tokens
    from llama_pack_densex.node_parsers.parsers import PropositionNodeParser

    reference = read_recorded(options.reference).values()
    expenses = []
    if propositionizer:
        documents = [Document(text=passage.text) for passage, _ in reference]
        parser = PropositionNodeParser(propositionizer=propositionizer)
        expenses += expenses_of_indexing(documents, parser)
    tokens = sum(count_tokens(text) for _, propositions in reference for text in propositions)
    # the propositions of the other side are assumed to be as long
    expenses += expenses_of_embedding(options.embed_model, 2 * tokens)
    return is_agreed(expenses, options)


def _print_proposition_scores(report: PropositionReport) -> None:
    """Print the scores, a description of both sides, and the number of passages that only one side has."""
    write(f"{many(report.passages, 'passage')}. Similarity: {one_line(report.similarity)}.")
    write()
    for metric, value in report.scores.items():
        bounds = report.intervals[metric]
        write(f"{metric:9} {value:.3f} ({bounds.low:.3f}-{bounds.high:.3f})")
    sides = (report.predicted, report.reference)
    write(
        f"predicted: {one_line(report.predicted.name)}  reference: {one_line(report.reference.name)}"
    )
    rows = [
        ["propositions", *(f"{side.propositions:,}" for side in sides)],
        ["a passage", *(f"{side.a_passage:.1f}" for side in sides)],
        [f"{report.length_unit} each", *(f"{side.length:.1f}" for side in sides)],
    ]
    for kind in report.reference.failing:
        title = f"fails {kind.replace('_', '-')}"
        if kind == "coverage":
            title += " (passages)"
        rows.append([title, *(f"{100 * side.failing[kind]:.1f} %" for side in sides)])
    print_table(["", "predicted", "reference"], rows)
    remarks = {"missing, counted as 0": report.missing, "without a reference": report.extra}
    for remark, passages in remarks.items():
        if passages:
            write(f"{many(len(passages), 'passage')} {remark} (--json names them).")
