"""Reading what a model sends where a JSON array of strings was asked for. Pure: text in, propositions out."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from tokenize import STRING, TokenError, generate_tokens
from typing import Any, Literal

from llama_pack_densex.propositionizers.tokens import compared, has_letters, sendable

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


def read_reply(text: str, *, finished: bool = False, questions: bool = False) -> Reading:
    """Read the propositions out of a reply; never raises.

    Thoughts, fences, talk and one wrapping object around an array are taken off, and numbered or dashed lines are read.
    Nothing is mended: what is mended wrongly looks like propositions, and what is malformed can be asked for again.

    Args:
        text: The reply.
        finished: Whether the provider said that the model stopped by itself. Where it did not, a list of lines whose
            last one breaks off is taken for cut.
        questions: Whether the passage's questions were asked for too: a list named like that, or, where the lists have
            no names, what ends in a question mark.
    """
    try:
        return _read(text.strip().lstrip("\ufeff").strip(), finished, questions)
    except _UnusableReplyError as unusable:
        return Reading(problem=unusable.args[0])


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
    r"|[^\n]{0,20}(?:お答え|お応え|お手伝い|対応)(?:する)?(?:こと[はが])?できません"
    r"|(?:很|非常)?(?:抱歉|对不起|對不起)[^\n]{0,30}(?:无法|無法|不能)"
)
_START = re.compile(r"[\[{]\s*(?:[\[{]\s*){0,3}(?:[\"'\]}]|\.\.\.|\Z)")
_DECODER = json.JSONDecoder(strict=False)
_DEEPEST = 20  # levels of a reply that are looked into
_LONGEST = 300_000  # characters; a longer reply is no list of the propositions of a passage
_QUESTION_MARKS = ("?", "？")
_ASKING = re.compile(r"question|quer(?:y|ies)|質問|疑問|問い|问题|問題", re.IGNORECASE)
_NAMED = re.compile(r"proposition|命題|fact|statement|claim|^(?:text|content|sentence|value)s?$", re.IGNORECASE)


def _read(text: str, finished: bool, with_questions: bool) -> Reading:
    if len(text) > _LONGEST:
        raise _UnusableReplyError("unreadable")
    values = _whole(text)
    if values is None:
        text = _without_thoughts(text)
        values = _values(text)
    asked: tuple[str, ...] = ()
    named: list[Any] = []
    if with_questions:
        values = _without_questions(values, named)
        asked = _propositions(_strings(named, depth=0))
    texts = _propositions(_strings(values, depth=0)) or (() if values else _propositions(_listed(text, finished)))
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
    try:
        return [json.loads(text, strict=False)]
    except (ValueError, RecursionError):
        return None


def _without_thoughts(text: str) -> str:
    """Drop the thoughts before the answer, also where a chat template swallowed the opening tag."""
    starts_with_answer = _START.match(text) is not None
    _, closing, answer = text.rpartition("</think>")
    if closing and not starts_with_answer and not re.match(r"[^\[{]*[\"']", answer):
        return answer.strip()
    if re.match(r"<think>", text):
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
    except (ValueError, SyntaxError, RecursionError, MemoryError, TokenError):
        pass
    raise _UnusableReplyError("unreadable")


def _propositions(texts: Iterable[str]) -> tuple[str, ...]:
    stating = [clean for text in texts if any(map(str.isalnum, clean := sendable(text).strip()))]
    return unique(stating) if any(map(has_letters, stating)) else ()


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        decoded = _whole(value) if depth < 3 and value.lstrip()[:1] in ("[", "{") else None
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
    """Find the propositions in an object: its lists, else the string that is named like one."""
    if item.keys() & {"error", "refusal"} and len(item) <= 2:
        raise _UnusableReplyError("refused")
    named = {key: value for key, value in item.items() if _NAMED.search(key)}
    for choice in (named, item):
        if nested := [value for value in choice.values() if isinstance(value, (list, dict)) and value]:
            return nested
    strings = [value for value in (named or item).values() if isinstance(value, str)]
    if len(strings) > 1 and len(named) < len(item):
        raise _UnusableReplyError("unreadable")
    return list(strings)


_BULLET = r"[-*+•●◦–—]\s+|・\s*|[①-⑳]\s*"
_NUMBER = r"[(（]?[0-9０-９]{1,3}(?:[.)．:]\s+|[）、]\s*|[.．](?=[^\s0-9０-９]))"
_ITEM = re.compile(rf"[ \t]*(?:{_BULLET}|{_NUMBER})(.*)")
_SENTENCE_END = re.compile(r"""[.!?。！？…．][)\]"'”’」』）]*$""")


def _listed(text: str, finished: bool) -> list[str]:
    """Read numbered or dashed lines; other lines before, between and after them are talk."""
    items: list[str] = []
    for line in text.splitlines():
        if item := _ITEM.fullmatch(line):
            items.append(item.group(1).strip())
        elif items and line.startswith(("  ", "\t", "　")) and line.strip():
            items[-1] += " " + line.strip()
    if items and looks_like_refusal(text):
        raise _UnusableReplyError("refused")
    ended = [bool(_SENTENCE_END.search(item)) for item in items]
    if not finished and len(ended) > 1 and all(ended[:-1]) and not ended[-1]:
        raise _UnusableReplyError("cut")
    return items
