"""Several passages in one request: how they are asked for, and how the reply is taken apart. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate

from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.prompts import format_request, group_note


def group_messages(
    prompt: BasePromptTemplate, llm: LLM, passages: Sequence[Passage], language: str
) -> list[ChatMessage]:
    """The messages that ask for the propositions of several passages: the prompt's, with all of them in the last.

    Args:
        prompt: What each of them alone would be asked with.
        llm: The LLM.
        passages: The passages, of languages that have the same prompt.
        language: One of these.
    """
    alone = [format_request(prompt, llm, passage, "") for passage in passages]
    numbered = [f"### Passage {number}\n{messages[-1].content}" for number, messages in enumerate(alone, 1)]
    text = "\n\n".join([group_note(len(passages), language), *numbered])
    return [*alone[0][:-1], ChatMessage(text, role=alone[0][-1].role)]


def split_reply(text: str, passages: Sequence[Passage]) -> list[str | None]:
    """Take a reply for several passages apart.

    A list that is cut off is none, and neither is one that says less of its passage than of another one, or in which a
    proposition clearly is another one's: models mix passages up.

    Args:
        text: The reply: a JSON object of lists by number, or a list of lists, with or without talk around it.
        passages: What was asked for.

    Returns:
        For each passage the JSON list of its propositions, or None where there is none.
    """
    lists = _numbered_lists(text) or _nested_lists(text, len(passages))
    found = [lists.get(number) for number in range(1, len(passages) + 1)]
    grams = [_grams(f"{passage.title} {passage.section} {passage.text}") for passage in passages]
    return [
        json.dumps(one, ensure_ascii=False) if one is not None and _is_of(place, one, grams) else None
        for place, one in enumerate(found)
    ]


_NUMBER = re.compile(r"""["'](?:passage[ _]?)?(\d{1,3})["']\s*:\s*(?=\[)""", re.IGNORECASE)
_CLEARLY = 1.25
"""How many times as much a proposition has in common with another passage, where it is that one's: 98 % of the
propositions of a neighbouring passage of the same article have, and fewer than 0.1 % of a passage's own."""
_DECODER = json.JSONDecoder(strict=False)


def _numbered_lists(text: str) -> dict[int, list[str]]:
    """The lists with a number before them; of two with the same number neither, since one of them is another's."""
    lists: dict[int, list[str]] = {}
    seen: Counter[int] = Counter()
    position = 0
    while found := _NUMBER.search(text, position):
        number, position = int(found.group(1)), found.end()
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            continue
        seen[number] += 1
        if _is_strings(value):
            lists[number] = value
    return {number: value for number, value in lists.items() if seen[number] == 1}


def _nested_lists(text: str, count: int) -> dict[int, list[str]]:
    start = text.find("[")
    try:
        value, _ = _DECODER.raw_decode(text, start) if start >= 0 else ((), 0)
    except (ValueError, RecursionError):
        return {}
    if len(value) != count or not all(_is_strings(one) for one in value):
        return {}
    return dict(enumerate(value, 1))


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _grams(text: str) -> set[str]:
    text = " ".join(text.lower().split())
    return {text[i : i + 3] for i in range(len(text) - 2)}


def _is_of(place: int, said: Sequence[str], grams: Sequence[set[str]]) -> bool:
    *each, whole = [[len(_grams(one) & theirs) for theirs in grams] for one in (*said, " ".join(said))]
    if any(max(shared) > _CLEARLY * shared[place] for shared in each):
        return False
    return 0 < whole[place] == max(whole)
