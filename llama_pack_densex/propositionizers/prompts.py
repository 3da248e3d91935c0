"""What an LLM is asked about a passage, what is read of its reply, and how parts of a passage become one set."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice, pairwise
from tokenize import STRING, TokenError, generate_tokens
from typing import Any, Literal

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate

from llama_pack_densex.llm.usage import Finish
from llama_pack_densex.propositionizers.base import Finding, Passage, PropositionSet, Status
from llama_pack_densex.text.language import LANGUAGE_NAMES, find_wrong_language
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import passage_sentences, segment
from llama_pack_densex.text.tokens import compared, has_letters, strip_surrogates

# The rules are those of Chen et al. (2023), figure 8, in our own words, with what lists, tables and handbooks need
# besides. They go with every passage, so that they are short: not more than about twice a passage of 128 tokens.
_SYSTEM = """\
Break the passage into propositions: short statements, each true, complete and clear on its own.
1. Split compound sentences; keep wording and order. Conditions, exceptions and amounts stay with their fact.
2. Replace pronouns, "we" and "you" by names. Take missing subjects from title, section or the text before the \
passage, and nothing else.
3. State each list item and table cell, with what leads the list in or its row and column.
4. Leave out no fact, add none. Greetings, navigation and cut-off text are no facts, nor is a link's address unless \
it is the point.
5. Write in the language of the passage. Never translate.
{reply}

Example (title: Karsted Lighthouse): It was begun in 1874 by Ida Brandvold, an engineer. We charge:
- adults 5 euros
{example}"""
_LIST = "Reply with a JSON list of strings and nothing else."
_OBJECT = """\
Add 4 to 8 short questions that the passage answers, worded as people search and not as the passage, each clear on \
its own. Reply with JSON and nothing else."""
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
_EXAMPLE_WITH_QUESTIONS_JA = f'{{"propositions": {_EXAMPLE_JA}, "questions": ["霧浜灯台はいつできた？"]}}'

_OF_EXAMPLES = {
    compared(text)
    for example in (_EXAMPLE_WITH_QUESTIONS, _EXAMPLE_WITH_QUESTIONS_JA)
    for texts in json.loads(example).values()
    for text in texts
}
_IN_EXAMPLES = ("Karsted", "Brandvold", "霧浜")

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"

PROMPT_KEY = "proposition_prompt"
JAPANESE_PROMPT_KEY = "japanese_proposition_prompt"


def default_prompts(questions: bool = False) -> dict[str, BasePromptTemplate]:
    """Return the prompts by their names: one in Japanese, and one in English for every other language.

    Their variables are `title`, `section`, `content`, and `note`: what stands before the passage, and why it is asked
    about again ("" for neither). A prompt of your own may leave out all but `content`.

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
    note = f"{_context_note(passage)}{note}"
    content = readable_text(passage.text)
    values = {"title": passage.title, "section": passage.section, "content": content, "note": note}
    messages = prompt.format_messages(llm=llm, **{name: strip_surrogates(value) for name, value in values.items()})
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
            quoted = "、".join(re.findall(r'"([^"]+)"', why))
            why = _FAULTS_JA[finding.kind] + (f"（{quoted}）" if quoted else "")
        lines.append(f"- {json.dumps(text, ensure_ascii=False)}: {why}" if text else f"- {why}")
    return "\n".join([_REPAIR_JA if language == "ja" else _REPAIR, *lines, "", ""])


def _context_note(passage: Passage) -> str:
    """Give the model what stands before a passage ("" for nothing)."""
    context = readable_text(passage.context).strip()
    if not context:
        return ""
    return f"{_BEFORE_JA if passage.language == 'ja' else _BEFORE}\n{context}\n\n"


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
_BEFORE = "Text before the passage:"
_BEFORE_JA = "文章の前には次の文がある。"
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


Problem = Literal["cut", "empty", "refused", "unreadable"]
REASONS = {
    "cut": "the reply was cut off",
    "empty": "the reply was empty",
    "refused": "the model refused",
    "filtered": "the provider's content filter stopped the reply",
    "unreadable": "the reply was not a list of strings",
}
"""What to say of a problem, and of a content filter."""


@dataclass(frozen=True)
class Reading:
    """What could be read from one reply.

    Args:
        texts: The propositions in the order of the reply, without duplicates; empty where there is a problem.
        questions: What stands among or beside them as a question.
        problem: Why the reply cannot be used: "cut" (an array or a thought that never closes, or one that was
            abbreviated), "empty", "refused", "unreadable"; None where it can.
    """

    texts: tuple[str, ...] = ()
    problem: Problem | None = None
    questions: tuple[str, ...] = ()


class _UnusableReplyError(Exception):
    """Its argument is the problem."""


def judge(
    passage: Passage, reply: str, finish: Finish, *, questions: bool = False, is_last: bool = False
) -> tuple[PropositionSet, str, str]:
    """The propositions in a reply to a passage, the problem with it ("" where it can be used), and that in words.

    Args:
        passage: The passage, or the part of it that was asked about.
        reply: What came.
        finish: Why it ended there.
        questions: As of `read_reply`.
        is_last: As of `read_reply`.
    """
    reading = read_reply(reply, finished=finish == "stop", questions=questions, is_last=is_last)
    texts, asked = (_without_example(found, passage) for found in (reading.texts, reading.questions))
    problem: str = reading.problem or ("" if texts else "empty")
    if finish in ("length", "filtered", "refused"):
        problem = "cut" if finish == "length" else finish
    if not problem and (found := find_wrong_language(passage.text, texts)):
        return PropositionSet(()), "language", f"the reply was in {LANGUAGE_NAMES.get(found, 'another language')}"
    asked = () if asked and find_wrong_language(passage.text, asked) else asked
    return PropositionSet(texts, questions=asked), problem, REASONS.get(problem, "")


def read_reply(text: str, *, finished: bool = False, questions: bool = False, is_last: bool = False) -> Reading:
    """Read the propositions out of a reply; never raises.

    Thoughts, fences, talk and one wrapping object around an array are taken off, and numbered or dashed lines are read.
    What is malformed can be asked for again, and is mended only where it was: what is mended wrongly looks like
    propositions.

    Args:
        text: The reply.
        finished: Whether the provider said that the model stopped by itself. Where it did not, a list of lines whose
            last one breaks off is taken for cut.
        questions: Whether the passage's questions were asked for too: a list named like that, or, where the lists have
            no names, what ends in a question mark.
        is_last: Whether it is not asked for again: a list in other quotation marks and brackets than JSON's is read.
    """
    text = text.strip().lstrip("\ufeff").strip()
    try:
        return _read(text, finished, questions)
    except _UnusableReplyError as unusable:
        problem: Problem = unusable.args[0]
    texts = _propositions(_quoted(text)) if is_last and problem == "unreadable" and not questions else ()
    return Reading(texts, None if texts else problem)


def _without_example(texts: Iterable[str], passage: Passage) -> tuple[str, ...]:
    """Leave out what small models repeat of the prompt, unless the passage is about that."""
    said = f"{passage.title} {passage.section} {passage.text}"
    is_about_it = any(name in said for name in _IN_EXAMPLES)
    return tuple(text for text in texts if is_about_it or compared(text) not in _OF_EXAMPLES)


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Drop texts that were there before (compared after NFKC and with single spaces), keeping the order."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(compared(text), text)
    return tuple(first.values())


def looks_like_refusal(text: str) -> bool:
    """Tell "I'm sorry, but I can't help with that" from a statement of fact."""
    return bool(_REFUSAL.match(text.strip()))


_APOLOGY = r"(?:(?:i['’]?m|i am|we are) (?:very |really |so )?(?:sorry|afraid)|sorry|i apologi[sz]e|unfortunately)"
_CANNOT = r"(?:can['’]?t|cannot|can not|could(?:n['’]t| not)|won['’]?t|(?:am|['’]m) (?:unable|not able|not allowed))"
_REFUSAL = re.compile(
    rf"(?i){_APOLOGY}\b[^.!?\n]{{0,80}}?\b(?:i|we) ?(?:{_CANNOT}|must decline)"
    rf"|as an ai\b|i must decline"
    rf"|i ?{_CANNOT} (?:help|assist|fulfil|comply|provide|process|do|answer|create|generate|complete|extract|split)"
    r"|(?:大変|誠に)?(?:申し訳|すみません|恐れ入り)[^\n]{0,60}(?:できません|できかね|いたしかね|致しかね)"
    r"|[^\n]{0,20}(?:お答え|お応え|お手伝い|回答|対応)(?:する)?(?:こと[はが])?できません"
    r"|(?:很|非常)?(?:抱歉|对不起|對不起)[^\n]{0,30}(?:无法|無法|不能)"
)
_START = re.compile(r"[\[{]\s*(?:[\[{]\s*){0,3}(?:[\"'\]}]|\.\.\.|\Z)")
_DECODER = json.JSONDecoder(strict=False)
_DEEPEST = 20  # levels of a reply that are looked into
_LONGEST = 300_000  # characters; a longer reply is no list of the propositions of a passage
_QUESTION_MARKS = ("?", "？")
_ASKING = re.compile(r"question|quer(?:y|ies)|質問|疑問|問い|问题|問題", re.IGNORECASE)
_TEXT = re.compile(r"^(?:text|content|sentence|value)s?$", re.IGNORECASE)
_NAMED = re.compile(rf"proposition|命題|fact|statement|claim|{_TEXT.pattern}", re.IGNORECASE)


def _read(text: str, finished: bool, with_questions: bool) -> Reading:
    if len(text) > _LONGEST:
        raise _UnusableReplyError("unreadable")
    values = _whole(text)
    if values is None:
        text = _without_thoughts(text)
        values = _values(text)
    named: list[Any] = []
    if with_questions:
        values = _without_questions(values, named)
    asked = _propositions(_strings(named, depth=0))
    texts = _propositions(_strings(values, depth=0)) or (() if values else _propositions(_listed(text, finished)))
    if len(texts) == 1 and "\n" in texts[0]:  # a list as one string
        texts = _propositions(_listed(texts[0], finished) or texts[0].splitlines())
    counted = [re.match(rf"[(（]?{n}(?:[.)．:：]\s|[）、])\s*", text) for n, text in enumerate(texts, 1)]
    if len(texts) > 1 and all(counted):  # numbered within the list
        texts = _propositions(text[found.end() :] for text, found in zip(texts, counted, strict=True) if found)
    if with_questions and not named:
        asked += tuple(one for one in texts if one.endswith(_QUESTION_MARKS))
        texts = tuple(one for one in texts if not one.endswith(_QUESTION_MARKS))
    if looks_like_refusal(text) if not texts else len(texts) <= 2 and all(map(looks_like_refusal, texts)):
        raise _UnusableReplyError("refused")
    if not texts:
        raise _UnusableReplyError("empty" if values or not text else "unreadable")
    return Reading(texts, questions=unique(asked))


def _without_questions(value: Any, named: list[Any], depth: int = 0) -> Any:
    """A value without the parts that are named like questions, which are added to `named`."""
    if isinstance(value, list) and depth < _DEEPEST:
        return [_without_questions(one, named, depth + 1) for one in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        named += [part for key, part in value.items() if _ASKING.search(key)]
        others = {key: part for key, part in value.items() if not _ASKING.search(key)}
        return {key: _without_questions(part, named, depth + 1) for key, part in others.items()}
    return value


def _whole(text: str) -> list[Any] | None:
    for parts in ([text], text.splitlines()):  # or a value a line
        with suppress(ValueError, RecursionError):
            return [json.loads(part.rstrip(", "), strict=False) for part in parts if part.strip()]
    return None


_THOUGHT = "(?:think(?:ing)?|thoughts?|reasoning|analysis|reflection|scratchpad)"
_AFTER_THOUGHTS = re.compile(
    rf".*(?:[<\[◁]/(?i:{_THOUGHT})[>\]▷]|<\|channel\|>final<\|message\|>|assistantfinal)", re.DOTALL
)


def _without_thoughts(text: str) -> str:
    """Drop the thoughts before the answer, also where a chat template swallowed the opening tag."""
    thoughts = None if _START.match(text) else _AFTER_THOUGHTS.match(text)
    if thoughts and not re.match(r"[^\[{]*[\"']", answer := text[thoughts.end() :]):
        return answer.strip()
    if re.match(rf"[<\[◁](?i:{_THOUGHT})[>\]▷]|<\|channel\|>", text):
        raise _UnusableReplyError("cut")
    return text


def _values(text: str) -> list[Any]:
    """Decode every array and object in a text."""
    values: list[Any] = []
    position = 0
    while (start := _START.search(text, position)) is not None:
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            rest = text[start.start() :].rstrip("`\n\r\t ")
            value, position = _python_list(rest), len(text)
        values.append(value)
    return values


def _python_list(text: str) -> Any:
    """Read a list as Python writes it; one that only resembles it may lack a comma between two strings."""
    if not text.endswith(("]", "}")) or re.search(r"(?:\.\.\.|…)[\s\"']*[\]}]*$", text):
        raise _UnusableReplyError("cut")
    try:
        kinds = [token.type for token in generate_tokens(StringIO(text).readline) if token.string.strip()]
        if (STRING, STRING) not in pairwise(kinds):  # Python would join them
            return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError):  # a set of lists
        pass
    raise _UnusableReplyError("unreadable")


def _propositions(texts: Iterable[str]) -> tuple[str, ...]:
    stating = [
        clean for text in texts if any(map(str.isalnum, clean := strip_surrogates(text.replace("\0", "")).strip()))
    ]
    return unique(stating) if any(map(has_letters, stating)) else ()


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        decoded = _whole(value) if depth < _DEEPEST and value.lstrip()[:1] in ("[", "{") else None
        if decoded is not None and isinstance(decoded[0], (list, dict)):
            yield from _strings(decoded, depth + 1)
        else:
            yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        for one in value:
            yield from _strings(one, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        yield from _strings(_listed_in(value), depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def _listed_in(item: dict[str, Any]) -> list[Any]:
    """Find the propositions in an object: what is named like them, else its lists, else its only string."""
    if len(item) <= 2 and (item.get("error") or item.get("refusal")):
        raise _UnusableReplyError("refused")
    lists: dict[str, Any] = {key: one for key, one in item.items() if isinstance(one, (list, dict)) and one}
    strings: dict[str, Any] = {key: one for key, one in item.items() if isinstance(one, str)}
    named = [{key: kind[key] for key in filter(_NAMED.search, kind)} for kind in (lists, strings)]
    if found := named[0] or (not named[1] and lists):
        return list(found.values())
    found = named[1] or strings
    is_any_of_several = len(found) > 1 and len(named[1]) < len(item) and not all(map(str.isdecimal, item))
    if is_any_of_several:
        raise _UnusableReplyError("unreadable")
    if lists and all(map(_TEXT.match, found)):  # a proposition with its words, or the passage with its propositions
        parts = (part for one in lists.values() for part in (one.values() if isinstance(one, dict) else one))
        said = sum(len(part) for part in parts if isinstance(part, str))  # what is deeper comes later
        found = found if said < sum(map(len, found.values())) else lists
    return list(found.values())


def _quoted(text: str) -> list[str]:
    """Texts in quotation marks between brackets; none where it is not certain where one ends."""
    text = "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    if len(text) > _LONGEST or (start := _LIST_START.match(text)) is None:
        return []
    opening = start[1]
    closing = dict(zip("“‘「『", "”’」』", strict=True)).get(opening, opening)
    body, _, rest = text[start.end() :].rpartition(closing)
    texts = re.split(rf"{closing}(?:\s?[,，、]\s?|\s){opening}", body)
    bare = [re.sub(r"(?<=\w)['’](?=\w)", "", one) for one in texts]  # an apostrophe is no quotation mark
    is_odd = any(
        "\n" in one or (one.count(opening) % 2 if opening == closing else one.count(opening) - one.count(closing))
        for one in bare
    )
    if is_odd or not re.fullmatch(r"\s?[,，、]?\s?[\]］]\W*", rest):
        return []
    with suppress(ValueError):  # escapes, as in JSON
        escaped = (re.sub(r'(?<!\\)"', r"\"", one) for one in texts)
        texts = [json.loads(f'"{one}"', strict=False) for one in escaped]
    return texts


_LIST_START = re.compile(r"[^{]*?(?:\{[^{:]*:\s*)?[\[［]\s?([\"'“‘「『])")  # also as the first thing in an object
_BULLET = r"[-*+•◦–—→]\s+|[・●○✅✓✔]\s*|[①-⑳]\s*|\(?[a-z]\)\s+"
_NUMBER = (
    r"(?:\*\*)?(?i:(?:proposition|fact|命題) ?)?[(（]?[0-9０-９]{1,3}"
    r"(?:[.)．:](?:\*\*)?\s+|[）、]\s*|[.．：](?=[^\s0-9０-９*]))"
)
_ITEM = re.compile(rf"[ \t]*(?:{_BULLET}|{_NUMBER})(.*)")
_TAG = re.compile(r"(?i)<(?!/)(?:proposition|fact|statement|claim|item|li)\b[^<>]*>\s*([^<>\s][^<>]*)</[^<>]*>")
_SENTENCE_END = re.compile(r"""[.!?。！？…．][)\]"'”’」』）]*$""")


def _listed(text: str, finished: bool) -> list[str]:
    """Read numbered or dashed lines, or tagged texts; other lines before, between and after them are talk."""
    items: list[str] = []
    for line in _TAG.sub(r"\n- \1\n", text).splitlines():
        if item := _ITEM.fullmatch(line):
            items.append(item.group(1).strip())
        elif items and line.startswith(("  ", "\t", "　")) and line.strip():
            items[-1] += " " + line.strip()
    if items and all(re.fullmatch(r'"[^"]+",?', item) for item in items):
        items = [item.strip('",') for item in items]
    if items and looks_like_refusal(text):
        raise _UnusableReplyError("refused")
    ended = [bool(_SENTENCE_END.search(item)) for item in items]
    if not finished and len(ended) > 1 and all(ended[:-1]) and not ended[-1]:
        raise _UnusableReplyError("cut")
    return items


def split_in_two(passage: Passage) -> tuple[Passage, Passage] | None:
    """Split a passage between the sentences, rows or items nearest to its middle, paragraphs first.

    Returns:
        Both halves without surrounding white space, each with its context; None where there is no place to split.
    """
    text = passage.text
    middle = len(text) / 2
    places: list[tuple[float, int]] = []
    for left, right in pairwise(segment(text, passage.context)):
        if left.kind not in ("heading", "columns"):
            is_paragraph = text.count("\n", left.end, right.start) > 1
            places.append((abs(right.start - middle) * (0.5 if is_paragraph else 1.0), right.start))
    if not places:
        return None
    place = min(places)[1]
    offset = len(passage.context)
    context = Outline(passage.context + text).context_of(offset + place, offset + len(text))
    return replace(passage, text=text[:place].strip()), replace(passage, text=text[place:].strip(), context=context)


_LONGEST_BEFORE = 300  # characters of the sentences before a part


def with_sentences_before(context: str, before: str) -> str:
    """A context with the last one or two sentences before a part, as far as they are short, for its pronouns."""
    starts = [part.start for part in segment(before)[-2:] if len(before) - part.start <= _LONGEST_BEFORE]
    sentences = before[min(starts, default=len(before)) :].strip()
    if not sentences or sentences in context:
        return context
    return f"{sentences}\n\n{context}"


def fall_back(part: Passage, reason: str, is_passing: bool = False) -> PropositionSet:
    """The sentences of a part that came to nothing."""
    return PropositionSet(passage_sentences(part.text, part.context), "fallback", reason, is_passing)


def join_parts(parts: Sequence[PropositionSet]) -> PropositionSet:
    """One set of what came of the parts of a passage, in their order."""
    texts = unique(text for part in parts for text in part.texts)
    failed = {number: part for number, part in enumerate(parts, 1) if part.status == "fallback"}
    reasons = [part.reason for part in failed.values() or parts if part.reason]
    if failed and len(parts) > 1:
        which = ", ".join(map(str, failed))
        reasons.insert(0, f"sentences stand in for part{'s' * (len(failed) > 1)} {which} of {len(parts)}")
    elif len(parts) > 1:
        reasons.insert(0, f"asked in {len(parts)} parts because the whole was too long, or a reply cut off or refused")
    reason = "; ".join(unique(reasons))
    status: Status = "fallback" if failed else "repaired" if reason else "ok"
    questions = unique(question for part in parts for question in part.questions)
    return PropositionSet(texts, status, reason, any(part.is_passing for part in parts), questions)
