"""`densex query`: an answer from an index and the passages it comes from; metadata filters."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from textwrap import shorten
from typing import Any

import typer
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.postprocessor import SentenceTransformerRerank
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_pack_densex import DenseXRetrievalPack, PropositionContextPostprocessor
from llama_pack_densex.answering.sources import Source, name_of, placed
from llama_pack_densex.cli.app import QueryCommand
from llama_pack_densex.cli.output import waiting, warn, write, write_list
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, GRANULARITY_KEY
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.text.terminal import one_line

INDENT = 3
_UNITS_SHOWN = 3  # per node
_ADVICE = " (for a written one, name an LLM with --query-llm or set OPENAI_API_KEY)"
_CONDITION = re.compile(r"(.+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*)", re.DOTALL)
_UNDECODED = re.compile("[\ud800-\udfff]")

Json = dict[str, Any]
"""A result as printed with --json. A node has `id`, `document` (an id), `title`, `section` (the headings
above it), `start` and `end` (in its document's text, in characters; None if unknown) and `text`."""


def query_index(options: QueryCommand) -> None:
    """Answer a question from an index."""
    if not options.question.strip():
        raise typer.BadParameter("the question is blank", param_hint="QUESTION")
    question = checked_question(options.question)
    reranker = None
    with waiting("Searching"):
        if options.rerank is not None:
            require("sentence_transformers", "sentence-transformers", "--rerank", "huggingface")
            reranker = SentenceTransformerRerank(model=options.rerank, trust_remote_code=False)
        # --rerank names the model; the pack's option `rerank` says what the model scores
        pack = options.index.open_to_ask(options, reranker=reranker, rerank="passage")
        filters = metadata_filters(pack, options.filters)
        response = pack.run(question, options.top_k, filters)
    answer = describe_answer(pack, question, response)
    if options.context is not None:
        postprocessor = PropositionContextPostprocessor(mode=options.context)
        context = postprocessor.postprocess_nodes(response.source_nodes)
        answer["context"] = [node.get_content(MetadataMode.LLM) for node in context]
    options.show(answer, partial(print_answer, advice=_ADVICE if options.query_llm is None else ""))


def checked_question(text: str) -> str:
    """Return a question.

    Raises:
        ValueError: It has bytes that could not be decoded, which Python represents by lone surrogates.
    """
    if _UNDECODED.search(text):
        raise ValueError(
            f"the question is not {sys.stdin.encoding.upper()}: convert it, for example from Shift JIS by "
            "iconv -f CP932"
        )
    return text


def describe_answer(pack: DenseXRetrievalPack, question: str, response: RESPONSE_TYPE) -> Json:
    """Return an answer as JSON.

    Returns:
        `question`; `answer`, empty if there is none; `outcome` and `citations`, as in the response's
        metadata; `written`, whether an LLM wrote the answer (else it is quoted); and `results`, best first:
        nodes with `granularity`, `score`, `matched` (the units that found the node, best first) and
        `metadata` (the document's).
    """
    metadata = response.metadata or {}
    outcome = metadata.get("outcome")
    return {
        "question": question,
        "answer": "" if outcome in ("not_found", "no_answer") else str(response).strip(),
        "outcome": outcome,
        "citations": metadata.get("citations", []),
        "written": pack.get_modules()["query_llm"] is not None,
        "results": [_describe_result(hit.node, hit.score) for hit in response.source_nodes],
    }


def _describe_result(node: BaseNode, score: float | None) -> Json:
    users_keys = [key for key in node.metadata if key not in BOOKKEEPING_KEYS]
    return {
        **describe_node(node),
        "granularity": str(node.metadata.get(GRANULARITY_KEY, "")),
        "score": score,
        "matched": [asdict(unit) for unit in matched_units(node)],
        "metadata": {key: node.metadata[key] for key in users_keys},
    }


def describe_node(node: BaseNode) -> Json:
    """Return the JSON fields that all nodes have."""
    source = Source.of(0, NodeWithScore(node=node))
    names = ("document", "title", "section", "page", "context", "text")
    texts = {name: getattr(source, name) for name in names}
    return {"id": source.node_id, **texts, **placed(source.span)}


def metadata_filters(
    pack: DenseXRetrievalPack, conditions: Sequence[str]
) -> MetadataFilters | None:
    """Return filters for conditions such as "year>=2020", all of which must hold; None without conditions.

    A value is read as the type that the index has under its key: a number, a text, or an item of a list.

    Raises:
        ValueError: A condition is malformed, no document has its key, or its value cannot be compared with
            the key's values.
    """
    if not conditions:
        return None
    values = pack.metadata_values()
    return MetadataFilters(filters=[_filter(condition, values) for condition in conditions])


def _filter(
    condition: str, values_by_key: dict[str, list[Any]]
) -> MetadataFilter | MetadataFilters:
    key, sign, text = _split(condition, values_by_key)
    values = [value for value in values_by_key[key] if value is not None]
    items = _items_of(values)
    examples = shorten(", ".join(map(str, items)), 200, placeholder=" …")
    try:
        if sign in (">", ">=", "<", "<="):
            limit = _limit(text, values)
            return MetadataFilter(key=key, value=limit, operator=FilterOperator(sign))
        value = _known_value(text, items)
    except ValueError:
        raise ValueError(
            f"--filter {condition!r}: the values of {key} are {examples}. Texts, numbers and items of lists "
            "can be compared with = and !=; numbers, and texts that do not look like numbers, also with >, "
            ">=, < and <="
        ) from None
    if value is None:
        warn(f"no document has {key} = {text}; there are: {examples}")
        value = text
    matching: MetadataFilter | MetadataFilters = MetadataFilter(key=key, value=value)
    if any(isinstance(value, list) for value in values):
        matching = _is_or_holds(key, value, values)
    if sign == "!=":
        return MetadataFilters(filters=[matching], condition=FilterCondition.NOT)
    return matching


def _items_of(values: Sequence[Any]) -> list[Any]:
    """Return values with the items of lists in place of the lists."""
    items = []
    for value in values:
        if isinstance(value, list):
            items += value
        else:
            items.append(value)
    return items


def _split(condition: str, keys: Collection[str]) -> tuple[str, str, str]:
    """Split a condition into its key, its sign and its value."""
    parts = _CONDITION.fullmatch(condition.strip())
    if parts is None:
        raise ValueError(
            f"--filter {condition!r}: write key=value, or use !=, >=, <=, > or < in quotes, so that the "
            "shell does not take > and < for redirections"
        )
    if parts[1] not in keys:
        raise ValueError(
            f"--filter {condition!r}: no document has the key {parts[1]!r}; the keys are "
            f"{', '.join(keys)}"
        )
    return parts[1], parts[2], parts[3]


def _limit(text: str, values: Sequence[Any]) -> float | str:
    """Return the limit to compare values with: a number if they are numbers, else a text.

    Raises:
        ValueError: The values have no order.
    """
    if all(type(value) in (int, float) for value in values):
        return float(text)
    if all(isinstance(value, str) and not value.isdecimal() for value in values):
        return text
    raise ValueError


def _known_value(text: str, items: Sequence[Any]) -> Any:
    """Return the metadata value that a text stands for; None if no document has it."""
    value = next((item for item in items if text in (str(item), json.dumps(item))), None)
    if isinstance(value, (dict, list)):
        raise ValueError
    if isinstance(value, bool):
        return int(value)  # filters take no bool; True equals 1
    return value


def _is_or_holds(key: str, value: Any, values: Sequence[Any]) -> MetadataFilters:
    """Return a filter that matches a value, and lists that contain it."""
    texts = [text for text in values if isinstance(text, str)]
    longer = [text for text in texts if str(value) in text and text != value]
    holds = MetadataFilters(
        filters=[
            # CONTAINS also matches longer texts, which are therefore excluded
            MetadataFilter(key=key, value=value, operator=FilterOperator.CONTAINS),
            MetadataFilter(key=key, value=longer, operator=FilterOperator.NIN),
        ]
    )
    equal = MetadataFilter(key=key, value=value)
    return MetadataFilters(filters=[equal, holds], condition=FilterCondition.OR)


def print_answer(answer: Json, advice: str = "") -> None:
    """Print an answer, and the passages with the units that found them.

    Args:
        answer: The answer.
        advice: How to get a written answer; printed above a quoted one.
    """
    if not answer["results"]:
        write(answer["answer"] or "Nothing in the index matches the question.")
        return
    if answer["answer"]:
        heading = "Answer"
        if not answer["written"]:
            heading += f", quoted{advice}"
        write(heading, "bold")
        write(answer["answer"])
    elif answer["outcome"] == "no_answer":
        write("The model gave no answer. These passages may contain one:")
    else:
        write("The answer was not found in the documents. The closest passages:")
    for number, result in enumerate(answer["results"], 1):
        _print_result(number, result)
    if "context" in answer:
        write()
        write("What an LLM reads", "bold")
        for text in answer["context"]:
            print_text(text)


def _print_result(number: int, result: Json) -> None:
    title = f"{result['document']} | {name_of(result)}"
    if result["score"] is not None:
        title += f" ({result['score']:.3f})"
    write()
    write(one_line(title), "bold cyan", bullet=f"{number}. ")
    units = result["matched"]
    if units:
        write(f"{result['granularity'] or 'node'} found by", "dim", INDENT)
    for unit in units[:_UNITS_SHOWN]:
        write(_with_remarks(unit), indent=INDENT, bullet="- ")
    if len(units) > _UNITS_SHOWN:
        write_list([f"and {len(units) - _UNITS_SHOWN} more"], "dim", INDENT)
    print_text(result["text"])


def _with_remarks(unit: Json) -> str:
    remarks = []
    if unit["granularity"] != "proposition":
        remarks.append(unit["granularity"])
    if unit["status"] != "ok":
        remarks.append(unit["status"])
    if unit["question"]:
        remarks.append(f"answers: {unit['question']}")
    if unit["unverified"]:
        remarks.append("unverified")
    if unit["led_by"]:
        remarks.append(f"led here by: {unit['led_by']}")
    shown = ", ".join(filter(None, remarks))
    if not shown:
        return str(unit["text"])
    return f"{unit['text']} ({shown})"


def print_text(text: str) -> None:
    """Print a passage's text below an empty line."""
    write()
    write(text.strip(), "dim", INDENT)
