"""`densex evaluate`: ask an index, measure what it answers, and tell before what that costs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from llama_pack_densex.cli.compare import shown_progress
from llama_pack_densex.cli.output import bare_table, many, one_line, print_heading, print_json, write
from llama_pack_densex.cli.places import IndexPlace
from llama_pack_densex.evaluation.answers import TRIAD
from llama_pack_densex.evaluation.compare import REPLIES, evaluate
from llama_pack_densex.evaluation.datasets import languages_of
from llama_pack_densex.evaluation.models import CachedLLM, KeptLLM
from llama_pack_densex.evaluation.report import Report
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import RequestFigures, count_tokens
from llama_pack_densex.models import NONE
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES

_VERDICT = 'YES {"criteria": "it", "supporting_evidence": "' + "word " * 60 + '", "score": 2} [RESULT] 2'
_STAND_INS = {"answers": "word " * 60, "reader": "word " * 5, "judge": _VERDICT}
"""Replies of the length that is reckoned with; what thinks before it replies uses more."""
_LENGTHS = ("", "100", "200", "500")
_ANSWERS = ("str_em", "answered", "cited", "supported")
_MEANINGS = {
    "answer_recall@100": "answer_recall@l: an answer is in the first l {unit} that are read.",
    "em@100": "em@l, f1@l: what the reader answers from them, exactly, and by the words that agree.",
    "str_em": "str_em: an accepted answer is in the answer.",
    "answered": 'answered: it is no "not found".',
    "cited": "cited, supported: sentences with a footnote, and with a proposition that says them.",
    "groundedness": "context_relevance, groundedness, answer_relevance: the RAG triad, by the judge.",
}


@dataclass(frozen=True)
class Roles:
    """The LLMs that are asked, by name and what for; None and "none" mean that nothing is."""

    answers: str | None = None
    reader: str | None = None
    judge: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """What `densex evaluate` is to do.

    Args:
        place: The index.
        questions: The file or folder.
        roles: What is asked.
        pack: Further arguments of the pack.
        trulens: The database of TruLens, which then judges.
        out: Where replies are kept, and the report goes.
        max_cost: US dollars that each of the LLMs may use.
        prices: Prices of the user's own.
        limit: Questions.
    """

    place: IndexPlace
    questions: Path
    roles: Roles
    pack: dict[str, Any]
    trulens: Path | None = None
    out: Path | None = None
    max_cost: float | None = None
    prices: Path | None = None
    limit: int | None = None

    def run(self, language: str | None) -> tuple[Report, dict[str, RequestFigures]]:
        """Ask the questions of one language.

        Args:
            language: None means that of all.

        Returns:
            What was found, and what was asked for each role.
        """
        asked = self._llms()
        with shown_progress() as tell:
            given = {"reader": asked["reader"], "judge": asked["judge"], "progress": tell, "trulens": self.trulens}
            report = self._evaluate(asked["answers"], language, **given)
        return report, {name: llm.figures for name, llm in asked.items() if llm is not None}

    def estimate(self, language: str | None) -> dict[str, RequestFigures]:
        """What would be asked for each role; nothing is.

        Quotations stand in for the answers that are to be judged.
        """
        asked = self._llms(dry=True)
        answers, reader, judge = (asked[name] for name in ("answers", "reader", "judge"))
        with shown_progress() as tell, tempfile.TemporaryDirectory() as folder:
            self._evaluate(answers, language, reader=reader, judge=None, progress=tell)
            if judge is not None:
                is_new = answers is not None and answers.figures.usage.requests > 0
                database = None if self.trulens is None else Path(folder, "trulens.sqlite")
                given = {"reader": None, "judge": judge, "progress": tell, "trulens": database}
                self._evaluate(None if is_new else answers, language, **given)
        return {name: llm.figures for name, llm in asked.items() if llm is not None}

    def _evaluate(
        self, answers: CachedLLM | None, language: str | None, *, reader: Any, judge: Any, **options: Any
    ) -> Report:
        query_llm = NONE if answers is None else KeptLLM(answers)
        pack = self.place.open(proposition_llm=NONE, query_llm=query_llm, **self.pack)
        options |= {"name": self.place.name, "language": language, "max_questions": self.limit}
        return evaluate(pack, self.questions, reader_llm=reader, judge_llm=judge, **options)

    def _llms(self, dry: bool = False) -> dict[str, CachedLLM | None]:
        replies = None if self.out is None else self.out / REPLIES
        if dry and replies is not None and not replies.exists():
            replies = None
        has_key = bool(os.environ.get("OPENAI_API_KEY"))
        names = {**vars(self.roles), "answers": self.roles.answers or (OPENAI_MODEL if has_key else None)}
        return {
            role: None
            if name in (None, NONE)
            else CachedLLM(
                named_llm(name, asked=not dry),
                replies,
                None if dry else self.max_cost,
                prices=self.prices,
                stand_in=_STAND_INS[role] if dry else None,
            )
            for role, name in names.items()
        }


def run_evaluation(
    console: Console, evaluation: Evaluation, language: str | None, only_estimate: bool, as_json: bool
) -> None:
    """Evaluate, or estimate, language by language, and print what came of it.

    Args:
        console: Where to.
        evaluation: What to do.
        language: Of the questions; None means each that they say they are in.
        only_estimate: Whether nothing is asked.
        as_json: Whether JSON is printed: by language, where there are several.
    """
    languages: list[str | None] = (
        [language] if language is not None else [*languages_of(evaluation.questions)] or [None]
    )
    found: dict[str, Any] = {}
    for each in languages:
        if only_estimate:
            asked = evaluation.estimate(each)
            found[each or ""] = {role: asdict(figures) for role, figures in asked.items()}
            show = partial(print_estimate, console, asked)
        else:
            report, asked = evaluation.run(each)
            out = evaluation.out
            written = [] if out is None else report.write(out if len(languages) == 1 or each is None else out / each)
            found[each or ""] = _flat(report)
            show = partial(print_evaluation, console, report, asked, written)
        if not as_json:
            if len(languages) > 1:
                console.print()
                print_heading(console, LANGUAGE_NAMES.get(each or "", each or ""))
            show()
    if as_json:
        print_json(found if len(languages) > 1 else next(iter(found.values())))


def _flat(report: Report) -> dict[str, Any]:
    """A report's metrics by their usual names, with how many items failed."""
    found = report.strategies[0]
    return {
        **{name: value for name, value in found.metrics.items() if value is not None},
        "failed": found.failed,
        "questions": report.dataset.questions,
        "language": report.dataset.language,
    }


def print_evaluation(
    console: Console, report: Report, asked: Mapping[str, RequestFigures], written: Sequence[Path] = ()
) -> None:
    """Print the metrics of an index, with their intervals and what failed, and what LLMs were asked."""
    found, dataset = report.strategies[0], report.dataset
    shown = [name for name, value in found.metrics.items() if value is not None and _is_shown(name)]
    write(
        console,
        f"{one_line(found.name)}: {many(dataset.questions, 'question')} ({one_line(dataset.name)}, {dataset.language}) "
        f"about {many(dataset.documents, 'document')} in {many(dataset.passages, 'passage')}.",
    )
    if not shown:
        write(console, "Nothing can be measured: the questions have no answers, and there is no judge (--judge-model).")
        return
    console.print()
    table = bare_table()
    for title in ("metric", "mean", "95 %", "failed"):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    for name in shown:
        low, high = found.intervals[name]
        failed = f"{found.failed[name]:,}" if name in found.failed else ""
        table.add_row(name, f"{found.metrics[name]:.3f}", f"{low:.3f}-{high:.3f}", failed)
    console.print(table)
    console.print()
    for name, meaning in _MEANINGS.items():
        if name in shown:
            write(console, meaning.format(unit=dataset.length_unit), style="dim")
    if asked:
        console.print()
        print_requests(console, asked)
    if written:
        write(console, f"Written: {', '.join(one_line(str(path)) for path in written)}.")


def print_requests(console: Console, asked: Mapping[str, RequestFigures]) -> None:
    """Print what LLMs were, or would be, asked, and what that costs."""
    if not asked:
        write(console, "No LLM is asked.")
        return
    table = bare_table()
    for title in ("LLM of", "model", "requests", "kept", "tokens sent", "received", "cost"):
        table.add_column(title, justify="left" if title in ("LLM of", "model") else "right", overflow="fold")
    for role, figures in asked.items():
        used = figures.usage
        cost = "not known" if figures.cost is None and used.requests else money(figures.cost or 0.0)
        numbers = (used.requests, figures.cache_hits, used.input_tokens, used.output_tokens)
        table.add_row(role, one_line(figures.model), *(f"{number:,}" for number in numbers), cost)
    console.print(table)


def print_estimate(console: Console, asked: Mapping[str, RequestFigures]) -> None:
    """Print what an evaluation would ask, and what that rests upon."""
    print_requests(console, asked)
    if asked:
        console.print()
        lengths = ", ".join(f"{count_tokens(_STAND_INS[role])} from the LLM of {role}" for role in asked)
        write(console, f"Tokens received are taken to be {lengths}, a reply; quotations stand in for answers.", "dim")


def _is_shown(metric: str) -> bool:
    kind, _, at = metric.partition("@")
    return kind in ("em", "f1") or (kind == "answer_recall" and at in _LENGTHS) or metric in (*_ANSWERS, *TRIAD)
