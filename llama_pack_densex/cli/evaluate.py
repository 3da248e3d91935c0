"""`densex evaluate`: ask an index, measure what it answers, and tell before what that costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llama_pack_densex.cli.compare import by_language, print_report, shown_progress
from llama_pack_densex.cli.output import figures, one_line, print_heading, print_json, print_table, write
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.evaluation.compare import REPLIES, evaluate
from llama_pack_densex.evaluation.models import KeptLLM
from llama_pack_densex.evaluation.report import Report
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.models import NONE

_VERDICT = 'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
_STAND_INS = {"answers": "word " * 60 + "[^1]", "reader": "word " * 5, "judge": _VERDICT}
"""By what an LLM is asked for, replies of the length that is reckoned with."""


def evaluate_index(
    place: IndexPlace,
    questions: Path,
    language: str | None,
    models: Mapping[str, str | None],
    options: Mapping[str, Any],
    out: Path | None,
    max_cost: float | None,
    only_estimate: bool,
    as_json: bool,
) -> bool:
    """Evaluate an index, or estimate what that takes, language by language, and print what came of it.

    Args:
        place: The index.
        questions: The questions.
        language: Of the questions; None means each that they are in.
        models: The names of the LLMs for "answers", "reader" and "judge"; None and "none" are not asked.
        options: `similarity_top_k` (the pack's), `trulens` and `max_questions` (of `evaluate`).
        out: Where replies are kept, and the report goes.
        max_cost: US dollars that each of the LLMs may use.
        only_estimate: Whether nothing is asked.
        as_json: Whether JSON is printed: by language, where there are several.

    Returns:
        Whether something came of all that LLMs were asked for.
    """
    if models["answers"] is None and os.environ.get("OPENAI_API_KEY"):
        models = {**models, "answers": OPENAI_MODEL}
    named = {role: name for role, name in models.items() if name is not None and name != NONE}
    stand_ins, replies = {}, out and out / REPLIES
    if only_estimate:
        stand_ins, max_cost = _STAND_INS, None
        replies = replies if replies and replies.exists() else None
    found: dict[str | None, Any] = {}
    lost: list[str] = []
    for each, folder in by_language(questions, language, out):
        options = {**options, "language": each}
        asked = {
            role: KeptLLM(named_llm(name, asked=not only_estimate), replies, max_cost, stand_ins.get(role))
            for role, name in named.items()
        }
        if each != language and not as_json:
            print_heading(str(each))
        if only_estimate:
            with TemporaryDirectory() as folder_of_estimate:
                recorded = options["trulens"] and Path(folder_of_estimate, "trulens.sqlite")
                _run(place, questions, asked, {**options, "trulens": recorded})
            found[each] = {role: llm.figures for role, llm in asked.items()}
        else:
            report = _run(place, questions, asked, options)
            found[each] = _flat(report)
            lost += [name for name in found[each]["failed"] if name not in found[each]]
            written = [] if folder is None else report.write(folder)
            if not as_json:
                print_report(report, written)
        if not as_json:
            _print_requests([(role, llm.figures) for role, llm in asked.items()], only_estimate)
    if as_json:
        print_json(found.get(language, found))
    elif lost:
        write(f"All failed for: {', '.join(dict.fromkeys(lost))}.")
    return not lost


def _run(place: IndexPlace, questions: Path, asked: Mapping[str, KeptLLM], options: Mapping[str, Any]) -> Report:
    given = {**options, "reader_llm": asked.get("reader"), "judge_llm": asked.get("judge")}
    query_llm = asked.get("answers", NONE)
    pack = place.open(proposition_llm=NONE, query_llm=query_llm, similarity_top_k=given.pop("similarity_top_k"))
    with shown_progress() as tell:
        return evaluate(pack, questions, name=place.name, progress=tell, **given)


def _flat(report: Report) -> dict[str, Any]:
    """A report's metrics by their usual names, with how many items failed."""
    found, dataset = report.strategies[0], report.dataset
    metrics = {name: value for name, value in found.metrics.items() if value is not None}
    return {**metrics, "failed": found.failed, "questions": dataset.questions, "language": dataset.language}


def _print_requests(asked: Sequence[tuple[str, RequestFigures]], only_estimate: bool) -> None:
    """Print what LLMs were, or would be, asked, and what that costs."""
    rows = []
    for role, of_role in asked:
        used = of_role.usage
        numbers = (used.requests, of_role.cache_hits, used.input_tokens, used.output_tokens)
        rows.append([role, one_line(of_role.model), *(f"{number:,}" for number in numbers), money(of_role.cost)])
    if rows:
        write()
        print_table(["LLM of", "model", *map(figures, ("requests", "kept", "tokens sent", "received", "cost"))], rows)
    if only_estimate:
        write("Replies are taken to be of the usual length.", "dim")
