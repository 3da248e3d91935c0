"""`densex questions`: questions about the user's own documents, for measurements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from llama_pack_densex.cli.app import QuestionsCommand
from llama_pack_densex.cli.output import write, write_list
from llama_pack_densex.cli.spending import expenses_of_llm, is_agreed
from llama_pack_densex.evaluation.datasets import read_folder
from llama_pack_densex.evaluation.make_questions import estimate_questions, make_questions
from llama_pack_densex.ingestion.progress import many, money
from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm
from llama_pack_densex.llm.usage import RequestFigures
from llama_pack_densex.text.terminal import one_line


def write_questions(options: QuestionsCommand) -> bool:
    """Show what the questions will cost, and have the LLM write them.

    Returns:
        False if the user did not agree to the cost, or no question can be used.
    """
    name = options.llm or OPENAI_MODEL
    settings = options.chosen("number", "prices")
    settings["cache"] = options.out.with_name(f"{options.out.name}.replies.sqlite")
    documents = read_folder(options.documents)
    expected = estimate_questions(documents, name, **settings)
    if options.estimate:
        options.show(expected, _print_estimate)
        return True
    llm = named_llm(name)
    if not is_agreed(expenses_of_llm(llm, expected.usage, options.prices), options):
        return False
    options.out.parent.mkdir(parents=True, exist_ok=True)
    limits = options.chosen(
        "max_cost", "max_concurrency", "requests_per_minute", "tokens_per_minute"
    )
    question_set = make_questions(documents, llm, show_progress=True, **settings, **limits)
    if question_set.questions:
        question_set.write(options.out)
    result = {
        "questions": len(question_set.questions),
        "left_out": question_set.left_out,
        "requests": question_set.requests,
    }
    options.show(result, partial(_print_result, options))
    return bool(question_set.questions)


def _print_estimate(expected: RequestFigures) -> None:
    write(f"To send: {_described(expected)}.")


def _print_result(options: QuestionsCommand, result: Mapping[str, Any]) -> None:
    write(f"Sent: {_described(result['requests'])}.")
    place = ""
    if result["questions"]:
        place = f" in {one_line(str(options.out))}"
    write(f"{many(result['questions'], 'question')} of {options.number:,}{place}.")
    if result["left_out"]:
        write("Left out:")
        write_list(f"{count:,}: {reason}" for reason, count in result["left_out"].most_common())


def _described(requests: RequestFigures) -> str:
    """Describe requests by model, number, tokens and cost."""
    usage = requests.usage
    number = many(usage.requests, "request")
    if requests.cache_hits:
        number += f" ({requests.cache_hits:,} replies were cached)"
    return f"{requests.model}, {number}, {usage.total_tokens:,} tokens, cost {money(requests.cost)}"
