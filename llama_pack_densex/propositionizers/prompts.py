"""The requests that are sent to an LLM about a passage or a part of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate

from llama_pack_densex.propositionizers.base import FindingKind, Passage, PropositionSet
from llama_pack_densex.text.language import LANGUAGE_NAMES
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import segment
from llama_pack_densex.text.tokens import compared, strip_surrogates

# The rules of Chen et al. (2023), figure 8, in our own words, with additions for lists, tables and handbooks.
# They are sent with every passage, so they are short: at most about twice as long as a passage of 128 tokens.
_SYSTEM = """\
Break the passage into propositions: short statements, each true, complete and clear on its own.
1. Split compound sentences; keep wording and order. Conditions, exceptions and amounts stay with their fact.
2. Replace pronouns, "we" and "you" by names. Take missing subjects from title, section or the text before \
the passage, and nothing else.
3. State each list item and table cell, with what leads the list in or its row and column.
4. Leave out no fact, add none. Greetings, navigation and cut-off text are no facts, nor is a link's address \
unless it is the point.
5. Write in the language of the passage. Never translate.
{reply}

Example (title: Karsted Lighthouse): It was begun in 1874 by Ida Brandvold, an engineer. We charge:
- adults 5 euros
{example}"""
_LIST = "Reply with a JSON list of strings and nothing else."
_OBJECT = """\
Add 4 to 8 short questions that the passage answers, worded as people search and not as the passage, each \
clear on its own. Reply with JSON and nothing else."""
_EXAMPLE = """\
["Karsted Lighthouse was begun in 1874.", \
"Karsted Lighthouse was begun by Ida Brandvold.", \
"Ida Brandvold was an engineer.", \
"Karsted Lighthouse charges adults 5 euros."]"""
_QUESTIONS = '["Who built Karsted Lighthouse?", "How much does Karsted Lighthouse cost?"]'
_EXAMPLE_WITH_QUESTIONS = f'{{"propositions": {_EXAMPLE}, "questions": {_QUESTIONS}}}'

_SYSTEM_JA = """\
文章を命題（単独で通じる短い文）に分ける。
1. 複文は分け、条件・例外・金額は離さない。
2. 代名詞、「当社」「あなた」は名前にし、ない主語だけ題名や前文で補う（前文だけの事は除く）。
3. 箇条書きと表は前置きや列名を補い一つずつ文にする。
4. 漏らさず加えず順に書き、挨拶・案内・断片は除く。
5. 翻訳しない。
{reply}

例: 霧浜灯台は1874年着工。料金:
- 大人500円
{example}"""
_LIST_JA = "JSON配列だけを返す。"
_OBJECT_JA = "文章が答えになる質問も4〜8個、検索する人の短い言葉で書く。JSONだけを返す。"
_EXAMPLE_JA = '["霧浜灯台は1874年に着工した。", "霧浜灯台の料金は大人500円である。"]'
_EXAMPLE_WITH_QUESTIONS_JA = (
    f'{{"propositions": {_EXAMPLE_JA}, "questions": ["霧浜灯台はいつできた？"]}}'
)

EXAMPLE_TEXTS = {
    compared(text)
    for example in (_EXAMPLE_WITH_QUESTIONS, _EXAMPLE_WITH_QUESTIONS_JA)
    for texts in json.loads(example).values()
    for text in texts
}
EXAMPLE_NAMES = ("Karsted", "Brandvold", "霧浜")

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"

PROMPT_KEY = "proposition_prompt"
JAPANESE_PROMPT_KEY = "japanese_proposition_prompt"


def default_prompts(questions: bool = False) -> dict[str, BasePromptTemplate]:
    """Return the prompts by their names: one in Japanese, and one in English for every other language.

    Their variables are `title`, `section`, `content` and `note`. The note holds the text before the passage
    and the reason why the last reply was unusable; it is "" if there is neither. A prompt of your own needs
    only `content`.

    Args:
        questions: Whether to ask also for questions that the passage answers, in an object with both lists.
    """
    english = (_OBJECT, _EXAMPLE_WITH_QUESTIONS) if questions else (_LIST, _EXAMPLE)
    japanese = (_OBJECT_JA, _EXAMPLE_WITH_QUESTIONS_JA) if questions else (_LIST_JA, _EXAMPLE_JA)
    return {
        PROMPT_KEY: _chat_prompt(_SYSTEM, *english),
        JAPANESE_PROMPT_KEY: _chat_prompt(_SYSTEM_JA, *japanese),
    }


def prompt_key(language: str) -> str:
    """Return the name of the prompt for a language (see `language.detect_language`)."""
    return JAPANESE_PROMPT_KEY if language == "ja" else PROMPT_KEY


def format_request(
    prompt: BasePromptTemplate, llm: LLM, passage: Passage, note: str
) -> list[ChatMessage]:
    """Format the messages of a request; without a variable for it, the note precedes the last message."""
    context = readable_text(passage.context).strip()
    if context:
        heading = _BEFORE_JA if passage.language == "ja" else _BEFORE
        note = f"{heading}\n{context}\n\n{note}"
    messages = prompt.format_messages(
        llm=llm,
        title=strip_surrogates(passage.title),
        section=strip_surrogates(passage.section),
        content=strip_surrogates(readable_text(passage.text)),
        note=strip_surrogates(note),
    )
    if note and not takes_variable(prompt, "note"):
        messages[-1] = ChatMessage(f"{note}{messages[-1].content or ''}", role=messages[-1].role)
    return messages


def takes_variable(prompt: BasePromptTemplate, name: str) -> bool:
    """Return whether a prompt has a place for a variable."""
    mapped = (prompt.template_var_mappings or {}).get(name, name)
    return mapped in prompt.template_vars or name in (prompt.function_mappings or {})


def ask_again_note(problem: str, language: str) -> str:
    """Return the note that tells the model why its last reply could not be used.

    Args:
        problem: "empty", "refused", "unreadable", "cut" or "language".
        language: The passage's language.
    """
    if language == "ja":
        return f"前回の回答は使えませんでした。{_NOTES_JA[problem]}\n\n"
    wanted = LANGUAGE_NAMES.get(language, "a language")
    if wanted.startswith("a language"):
        wanted = "the language of the passage"
    return f"Your last reply could not be used: {_NOTES[problem].format(wanted=wanted)}\n\n"


def repair_note(checked: PropositionSet, language: str) -> str:
    """Return the note that tells the model what checks found wrong with its last reply.

    Args:
        checked: The propositions with the findings.
        language: The passage's language.
    """
    lines = []
    for finding in checked.findings[:_MOST_FAULTS]:
        why = finding.reason
        if language == "ja":
            quoted = "、".join(_QUOTED.findall(why))
            why = _FAULTS_JA[finding.kind] + (f"（{quoted}）" if quoted else "")
        if finding.proposition is not None:
            text = checked.texts[finding.proposition]
            why = f"{json.dumps(text, ensure_ascii=False)}: {why}"
        lines.append(f"- {why}")
    return "\n".join([_REPAIR_JA if language == "ja" else _REPAIR, *lines, "", ""])


def _chat_prompt(system: str, reply: str, example: str) -> ChatPromptTemplate:
    written = system.format(reply=reply, example=example)
    return ChatPromptTemplate.from_messages([("system", written), ("user", _REQUEST)])


_MOST_FAULTS = 20
_QUOTED = re.compile(r'"([^"]+)"')
_REPAIR = """\
Your last reply had these faults. Write all of it again, in the same form, without them: take every number, \
date, name, condition and "not" from the passage, name in each proposition what it is about, and leave \
nothing out."""
_REPAIR_JA = """\
前回の回答には次の問題がありました。同じ形式で、直した全体をもう一度書いてください。\
数字、日付、名前、条件、否定は文章のとおりにし、どの命題にも何についてのことかを書き、何も漏らさないでください。"""
_FAULTS_JA: dict[FindingKind, str] = {
    "grounding": "文章と合わない語がある",
    "language": "文章と違う言語である",
    "self_containedness": "何のことか不明",
    "coverage": "どの命題にも書かれていない",
    "duplication": "ほかの命題と同じ内容である",
    "size": "短すぎるか長すぎる",
}
_BEFORE = "Text before the passage:"
_BEFORE_JA = "文章の前には次の文がある。"
_NOTES = {
    "empty": "it held no propositions. Reply with the propositions of this passage, as JSON.",
    "refused": "it was a refusal. Only restate what this passage says, as propositions.",
    "unreadable": "it was not the JSON that was asked for. Reply with that and nothing else.",
    "cut": "it broke off before its end. Reply with the whole JSON, without repetitions.",
    "language": "it was in the wrong language. Do not translate: write every proposition in {wanted}.",
}
ASKED_AGAIN = frozenset(_NOTES)
"""Problems with a reply that may be due to chance, so that asking again can help."""
_NOTES_JA = {
    "empty": "命題が一つもありませんでした。この文章の命題をJSONで返してください。",
    "refused": "回答が拒否されていました。この文章に書かれていることを、命題に言い換えるだけにしてください。",
    "unreadable": "指定のJSONではありませんでした。それだけを返してください。",
    "cut": "途中で切れていました。繰り返しをせずに、JSONを最後まで返してください。",
    "language": "文章と違う言語で書かれていました。翻訳せず、すべての命題を日本語で書いてください。",
}


def split_in_two(passage: Passage) -> tuple[Passage, Passage] | None:
    """Split a passage between the sentences, rows or items nearest to its middle.

    A paragraph break is preferred unless another place is more than twice as near.

    Returns:
        Both halves without surrounding white space, each with its context; None if there is no place to
        split.
    """
    text = passage.text
    middle = len(text) / 2
    places = []
    for left, right in pairwise(segment(text, passage.context)):
        if left.kind not in ("heading", "columns", "group"):
            distance = abs(right.start - middle)
            if text.count("\n", left.end, right.start) > 1:
                distance /= 2
            places.append((distance, right.start))
    if not places:
        return None
    _, place = min(places)
    offset = len(passage.context)
    context = Outline(passage.context + text).context_of(offset + place, offset + len(text))
    first = replace(passage, text=text[:place].strip())
    return first, replace(passage, text=text[place:].strip(), context=context)


_LONGEST_BEFORE = 300  # characters of the sentences that `with_sentences_before` adds


def with_sentences_before(context: str, text_before: str) -> str:
    """Prepend to a part's context the last one or two short sentences before it, for its pronouns."""
    earliest = len(text_before) - _LONGEST_BEFORE
    starts = [part.start for part in segment(text_before)[-2:] if part.start >= earliest]
    sentences = text_before[min(starts, default=len(text_before)) :].strip()
    if not sentences or sentences in context:
        return context
    return f"{sentences}\n\n{context}"
