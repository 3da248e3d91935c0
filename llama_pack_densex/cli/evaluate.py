"""`densex evaluate`: ask an index, measure what it answers, and tell before what that costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Column

from llama_pack_densex.cli.compare import print_report, shown_progress
from llama_pack_densex.cli.output import one_line, print_heading, print_json, print_table, write
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.evaluation.compare import REPLIES, evaluate
from llama_pack_densex.evaluation.datasets import languages_of
from llama_pack_densex.evaluation.models import KeptLLM
from llama_pack_densex.evaluation.report import Report
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import RequestFigures, count_tokens
from llama_pack_densex.models import NONE

_VERDICT = 'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
_STAND_INS = {"answers": "word " * 60, "reader": "word " * 5, "judge": _VERDICT}
"""By what an LLM is asked for, replies of the length that is reckoned with."""


def evaluate_index(
    place: IndexPlace,
    questions: Path,
    models: Mapping[str, str | None],
    options: Mapping[str, Any],
    *,
    out: Path | None,
    max_cost: float | None,
    language: str | None,
    only_estimate: bool,
    as_json: bool,
) -> bool:
    """Evaluate an index, or estimate what that takes, language by language, and print what came of it.

    Args:
        place: The index.
        questions: The questions.
        models: The names of the LLMs for "answers", "reader" and "judge"; None and "none" are not asked.
        options: `similarity_top_k` (the pack's), `trulens` and `max_questions` (of `evaluate`).
        out: Where replies are kept, and the report goes.
        max_cost: US dollars that each of the LLMs may use.
        language: Of the questions; None means each that they say they are in.
        only_estimate: Whether nothing is asked.
        as_json: Whether JSON is printed: by language, where there are several.

    Returns:
        Whether something came of all that LLMs were asked for.
    """
    said: list[str | None] = [*(languages_of(questions) if language is None else [language])]
    if models["answers"] is None and os.environ.get("OPENAI_API_KEY"):
        models = {**models, "answers": OPENAI_MODEL}
    found: dict[str, Any] = {}
    complete = True
    for each in said or [None]:
        asked = _llms(models, None if out is None else out / REPLIES, max_cost, only_estimate)
        report = (_estimate if only_estimate else _run)(place, questions, asked, {**options, "language": each})
        folder = out if out is None or each is None or len(said) < 2 else out / each
        written = [] if folder is None or only_estimate else report.write(folder)
        figures = {role: llm.figures for role, llm in asked.items()}
        found[str(each)] = {role: asdict(one) for role, one in figures.items()} if only_estimate else _flat(report)
        one = report.strategies[0]
        lost = [] if only_estimate else [name for name in one.failed if one.metrics.get(name) is None]
        complete = complete and not lost
        if as_json:
            continue
        if len(said) > 1:
            print_heading(str(each))
        if not only_estimate:
            print_report(report, written)
        if lost:
            write(f"All failed for: {', '.join(lost)}.")
        _print_requests(figures, only_estimate)
    if as_json:
        print_json(found if len(said) > 1 else next(iter(found.values())))
    return complete


def _llms(
    models: Mapping[str, str | None], replies: Path | None, max_cost: float | None, dry: bool
) -> dict[str, KeptLLM]:
    file = None if dry and replies is not None and not replies.exists() else replies
    cost, stand_ins = (None, _STAND_INS) if dry else (max_cost, {})
    return {
        role: KeptLLM(named_llm(name, asked=not dry), file, cost, stand_in=stand_ins.get(role))
        for role, name in models.items()
        if name is not None and name != NONE
    }


def _run(place: IndexPlace, questions: Path, asked: Mapping[str, KeptLLM], options: Mapping[str, Any]) -> Report:
    given = {**options, "reader_llm": asked.get("reader"), "judge_llm": asked.get("judge")}
    query_llm = asked.get("answers", NONE)
    pack = place.open(proposition_llm=NONE, query_llm=query_llm, similarity_top_k=given.pop("similarity_top_k"))
    with shown_progress() as tell:
        return evaluate(pack, questions, name=place.name, progress=tell, **given)


def _estimate(place: IndexPlace, questions: Path, asked: Mapping[str, KeptLLM], options: Mapping[str, Any]) -> Report:
    """Run with what stands in for LLMs; where answers are not there yet, quotations are judged in their place."""
    before = {role: llm for role, llm in asked.items() if role != "judge"}
    report = _run(place, questions, before, {**options, "trulens": None})
    if "judge" in asked:
        is_new = "answers" in asked and asked["answers"].figures.usage.requests > 0
        after = {role: llm for role, llm in asked.items() if role == "judge" or (role == "answers" and not is_new)}
        with TemporaryDirectory() as folder:
            _run(place, questions, after, {**options, "trulens": options["trulens"] and Path(folder, "trulens.sqlite")})
    return report


def _flat(report: Report) -> dict[str, Any]:
    """A report's metrics by their usual names, with how many items failed."""
    found, dataset = report.strategies[0], report.dataset
    metrics = {name: value for name, value in found.metrics.items() if value is not None}
    return {**metrics, "failed": found.failed, "questions": dataset.questions, "language": dataset.language}


def _print_requests(asked: Mapping[str, RequestFigures], only_estimate: bool) -> None:
    """Print what LLMs were, or would be, asked, and what that costs."""
    rows = []
    for role, figures in asked.items():
        used = figures.usage
        numbers = (used.requests, figures.cache_hits, used.input_tokens, used.output_tokens)
        rows.append([role, one_line(figures.model), *(f"{number:,}" for number in numbers), money(figures.cost)])
    if asked:
        titles = ("requests", "kept", "tokens sent", "received", "cost")
        numbered = (Column(title, justify="right", overflow="fold") for title in titles)
        write()
        print_table(["LLM of", "model", *numbered], rows)
    elif only_estimate:
        write("No LLM is asked.")
    if asked and only_estimate:
        lengths = ", ".join(f"{count_tokens(_STAND_INS[role])} tokens of {role}" for role in asked)
        write(f"Replies are taken to be {lengths}; quotations stand in for answers.", "dim")
