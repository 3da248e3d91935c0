"""The prompts of `LLMPropositionizer`: the fixed part first, the passage last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate

from llama_pack_densex.propositionizers.base import Finding, Passage
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES
from llama_pack_densex.propositionizers.tokens import sendable

# The rules are those of Chen et al. (2023), figure 8, in our own words and with an example of our own. They go with
# every passage, so that they are short: not more than twice a passage of 128 tokens.
_SYSTEM = """\
Break the passage into propositions: short statements, each true, complete and clear on its own.
1. Split compound sentences; keep the wording.
2. What is said of a named entity in passing is a proposition of its own.
3. Replace pronouns and phrases such as "the company" or "that year" by the full names and dates they stand for.
4. Leave out no fact, add none, keep the order. Title and section only resolve references.
5. Write in the language of the passage. Never translate.
{reply}

Title: Karsted Lighthouse. Section: History. Content: The tower was begun in 1874 by Ida Brandvold, an engineer. \
It is 41 metres high.
{example}"""
_LIST = "Reply with a JSON list of strings and nothing else."
_OBJECT = """\
Add questions that the passage answers, each clear on its own, worded as people search and not as the passage.
Reply with JSON and nothing else."""
_EXAMPLE = """\
["The tower of Karsted Lighthouse was begun in 1874.", \
"The tower of Karsted Lighthouse was begun by Ida Brandvold.", \
"Ida Brandvold was an engineer.", \
"Karsted Lighthouse is 41 metres high."]"""
_EXAMPLE_WITH_QUESTIONS = (
    f'{{"propositions": {_EXAMPLE}, "questions": ["Who built Karsted Lighthouse?", "How tall is Karsted Lighthouse?"]}}'
)

_SYSTEM_JA = """\
文章を命題（単独で正しく通じる短い文）に分ける。
1. 複文は分け、言い回しは残す。
2. 「彼」「同社」「その年」は正式な名前や日付に替え、主語を補う。
3. 名前の説明も命題にする。
4. 事実は落とさず加えず、順に書く。
5. 元の言語で書き、翻訳しない。
{reply}

Title: 霧浜灯台. Section: 歴史. Content: 塔は1874年、技師の佐伯が着工した。
{example}"""
_LIST_JA = "JSON配列だけを返す。"
_OBJECT_JA = "文章が答えになる質問も、検索する人の言葉で書く。JSONだけを返す。"
_EXAMPLE_JA = '["霧浜灯台の塔は1874年に着工した。", "霧浜灯台の塔は佐伯が着工した。", "佐伯は技師である。"]'
_EXAMPLE_WITH_QUESTIONS_JA = f'{{"propositions": {_EXAMPLE_JA}, "questions": ["霧浜灯台を建てた人は？"]}}'

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"

PROMPT_KEY = "proposition_prompt"
JAPANESE_PROMPT_KEY = "japanese_proposition_prompt"


def default_prompts(questions: bool = False) -> dict[str, BasePromptTemplate]:
    """Return the prompts by their names: one in Japanese, and one in English for every other language.

    Their variables are `title`, `section`, `content` and `note`, which is why a passage is asked again ("" the first
    time). A prompt of your own may leave out all but `content`.

    Args:
        questions: Whether to ask for questions that the passage answers too, in an object with both lists.
    """
    english = (_OBJECT, _EXAMPLE_WITH_QUESTIONS) if questions else (_LIST, _EXAMPLE)
    japanese = (_OBJECT_JA, _EXAMPLE_WITH_QUESTIONS_JA) if questions else (_LIST_JA, _EXAMPLE_JA)
    return {PROMPT_KEY: _chat_prompt(_SYSTEM, *english), JAPANESE_PROMPT_KEY: _chat_prompt(_SYSTEM_JA, *japanese)}


def prompt_key(language: str) -> str:
    """Return the name of the prompt for a language (see `language.detect_language`)."""
    return JAPANESE_PROMPT_KEY if language == "ja" else PROMPT_KEY


def format_request(prompt: BasePromptTemplate, llm: LLM, passage: Passage, note: str) -> list[ChatMessage]:
    """Write the messages of a request; a note goes ahead of the last one where the prompt has no place for it."""
    values = {"title": passage.title, "section": passage.section, "content": passage.text, "note": note}
    messages = prompt.format_messages(llm=llm, **{name: sendable(value) for name, value in values.items()})
    if note and not takes_variable(prompt, "note"):
        messages[-1] = ChatMessage(f"{note}{messages[-1].content or ''}", role=messages[-1].role)
    return messages


def takes_variable(prompt: BasePromptTemplate, name: str) -> bool:
    """Tell whether a prompt has a place for a variable."""
    mapped = (prompt.template_var_mappings or {}).get(name, name)
    return mapped in prompt.template_vars or name in (prompt.function_mappings or {})


def ask_again_note(problem: str, language: str) -> str:
    """Say, for the model, why its last reply could not be used.

    Args:
        problem: "empty", "refused", "unreadable", "cut" or "language".
        language: The passage's.
    """
    if language == "ja":
        return f"前回の回答は使えませんでした。{_NOTES_JA[problem]}\n\n"
    name = LANGUAGE_NAMES.get(language, "")
    wanted = "the language of the passage" if not name or name.startswith("a language") else name
    return f"Your last reply could not be used: {_NOTES[problem].format(wanted=wanted)}\n\n"


def repair_note(faults: Iterable[tuple[str, Finding]], language: str) -> str:
    """Say, for the model, what checks found wrong with its last reply.

    Args:
        faults: Findings, each with the proposition that it is about ("" for none).
        language: The passage's.
    """
    lines: list[str] = []
    for text, finding in islice(faults, _MOST_FAULTS):
        why = finding.reason
        if language == "ja":
            term = re.search(r'"(.+)"', why)
            why = _FAULTS_JA[finding.kind] + (f"（{term[1]}）" if term else "")
        lines.append(f"- {json.dumps(text, ensure_ascii=False)}: {why}" if text else f"- {why}")
    return "\n".join([_REPAIR_JA if language == "ja" else _REPAIR, *lines, "", ""])


def context_note(before: str, language: str) -> str:
    """Give the model what stands before a part of a passage ("" for nothing)."""
    if not before:
        return ""
    return f"{_BEFORE_JA if language == 'ja' else _BEFORE}\n{before}\n\n"


def _chat_prompt(system: str, reply: str, example: str) -> ChatPromptTemplate:
    written = system.format(reply=reply, example=example)
    return ChatPromptTemplate(
        [ChatMessage(written, role=MessageRole.SYSTEM), ChatMessage(_REQUEST, role=MessageRole.USER)]
    )


_MOST_FAULTS = 20
_REPAIR = """\
Your last reply had these faults. Write all of it again, in the same form, without them: take every number, date \
and name from the passage, name in each proposition what it is about, and leave nothing out."""
_REPAIR_JA = """\
前回の回答には次の問題がありました。同じ形式で、直した全体をもう一度書いてください。\
数字、日付、名前は文章のとおりにし、どの命題にも何についてのことかを書き、何も漏らさないでください。"""
_FAULTS_JA = {
    "grounding": "文章にない語がある", "language": "文章と違う言語である", "self_containedness": "何のことか不明",
    "coverage": "どの命題にも書かれていない", "duplication": "ほかの命題と同じ内容である", "size": "短すぎるか長すぎる",
}  # fmt: skip
_BEFORE = "This stands before the passage. Use it to resolve references only, and make no propositions of it:"
_BEFORE_JA = "文章の直前には次の文があります。何を指すかを確かめるためだけに使い、命題にはしないでください。"
_NOTES = {
    "empty": "it held no propositions. Reply with the propositions of this passage, as JSON.",
    "refused": "it was a refusal. Only restate what this passage says, as propositions.",
    "unreadable": "it was not the JSON that was asked for. Reply with that and nothing else.",
    "cut": "it broke off before its end. Reply with the whole JSON, without repetitions.",
    "language": "it was in the wrong language. Do not translate: write every proposition in {wanted}.",
}
_NOTES_JA = {
    "empty": "命題が一つもありませんでした。この文章の命題をJSONで返してください。",
    "refused": "回答が拒否されていました。この文章に書かれていることを、命題に言い換えるだけにしてください。",
    "unreadable": "指定のJSONではありませんでした。それだけを返してください。",
    "cut": "途中で切れていました。繰り返しをせずに、JSONを最後まで返してください。",
    "language": "文章と違う言語で書かれていました。翻訳せず、すべての命題を日本語で書いてください。",
}
