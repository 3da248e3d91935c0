"""`densex demo`: what it prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.console import Console

from llama_pack_densex.cli.printing import print_answer, print_heading, write
from llama_pack_densex.cli.results import answer_question
from llama_pack_densex.cli.session import progress, stderr, stdout, waiting
from llama_pack_densex.demo import (
    LANGUAGES,
    READ_CHARACTERS,
    READ_WORDS,
    REQUIRED_SHARE,
    SHOWN_QUESTIONS,
    Judgement,
    build_demo,
    judge,
    read_questions,
    require_data,
)
from llama_pack_densex.options import Mode

_LANGUAGE_NAMES = {"en": "English", "ja": "Japanese"}
_SHOWN_PASSAGES = 2


def show_demo(data: Path | None, mode: str, embed_model: str | None, verbose: bool) -> bool:
    """Run the demonstration.

    Args:
        data: The data folder; None means the one beside the package.
        mode: The retrieval mode.
        embed_model: What the pack takes.
        verbose: Whether to list the questions whose answers were not found.

    Returns:
        Whether enough answers were found.
    """
    console, data = stdout(), require_data(data)
    questions = read_questions(data / "questions.jsonl")
    with waiting("Indexing in memory"):
        pack = build_demo(data, cast(Mode, mode), embed_model)
    counts = pack.counts()
    write(
        console,
        f"An index in memory, nothing is written: {counts.documents} documents, {counts.passages} passages, "
        f"{counts.propositions} recorded propositions. Mode {mode}; no LLM.",
    )
    for language in LANGUAGES:
        for question in SHOWN_QUESTIONS[language]:
            console.print()
            print_heading(console, question)
            print_answer(console, answer_question(pack, question, _SHOWN_PASSAGES))
    with progress("Questions") as bar:
        judgements = judge(bar.track(questions), pack.retrieve)
    console.print()
    return _print_score(console, judgements, verbose)


def _print_score(console: Console, judgements: Sequence[Judgement], verbose: bool) -> bool:
    missed = [judgement.question for judgement in judgements if not judgement.found]
    if verbose and missed:
        print_heading(console, "Answers not found")
        for question in missed:
            write(console, f"{question.question} ({' / '.join(question.answers)})", bullet=f"{question.id}  ")
        console.print()
    print_heading(console, "Questions with an accepted answer in the context")
    write(
        console,
        f"Counted where it is in the first {READ_WORDS} words (Japanese: {READ_CHARACTERS} characters) of what a "
        "reader gets: the found propositions, then their passages.",
    )
    for language in LANGUAGES:
        of_language = [judgement for judgement in judgements if judgement.question.language == language]
        write(console, f"{_LANGUAGE_NAMES[language]:<9} {_share(of_language)}", indent=2)
    write(console, f"{'in all':<9} {_share(judgements)}", indent=2)
    enough = bool(judgements) and len(judgements) - len(missed) >= REQUIRED_SHARE * len(judgements)
    if not enough:
        write(stderr(), f"Error: fewer than {REQUIRED_SHARE:.0%} of the answers were found")
    return enough


def _share(judgements: Sequence[Judgement]) -> str:
    return f"{sum(judgement.found for judgement in judgements)} of {len(judgements)}"
