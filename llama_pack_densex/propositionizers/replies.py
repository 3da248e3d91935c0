"""Reading what a model really sends where a JSON array of strings was asked for. Pure: text in, propositions out."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import json_repair

from llama_pack_densex.propositionizers.reply_arrays import START, close_array, find_start

Problem = Literal["cut", "empty", "refused", "unreadable"]


@dataclass(frozen=True)
class Reading:
    """What could be read from one reply.

    Args:
        texts: The propositions in the order of the reply, without duplicates; empty where there is a problem.
        problem: Why the reply cannot be used: "cut" (an array or a thought that never closes, or one that was
            abbreviated), "empty", "refused", "unreadable"; None where it can.
        repaired: Whether it had to be repaired. A fence, prose, a `<think>` block or an object around a valid
            array is no repair.
    """

    texts: tuple[str, ...] = ()
    problem: Problem | None = None
    repaired: bool = False


class _UnusableReplyError(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def read_reply(text: str, *, finished: bool = False) -> Reading:
    """Read the propositions out of a reply; never raises.

    Truncation is looked for before anything is repaired: json_repair closes what was cut off, and what is
    missing would never be noticed.

    Args:
        text: The reply.
        finished: Whether the provider said that the model stopped by itself. Where it did not, a list of lines whose
            last one breaks off is taken for cut.
    """
    try:
        return _read(text, finished)
    except _UnusableReplyError as unusable:
        return Reading(problem=unusable.problem)


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Drop texts that were there before (compared after NFKC and with single spaces), keeping the order."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(" ".join(unicodedata.normalize("NFKC", text).split()), text)
    return tuple(first.values())


def looks_like_refusal(text: str) -> bool:
    """Tell "I'm sorry, but I can't help with that" from a statement of fact."""
    return bool(_REFUSAL.match(text.strip()))


_APOLOGY = r"(?:(?:i['’]?m|i am|we are) (?:very |really |so )?(?:sorry|afraid)|sorry|i apologi[sz]e|unfortunately)"
_CANNOT = r"(?:can['’]?t|cannot|can not|could(?:n['’]t| not)|won['’]?t|(?:am|['’]m) (?:unable|not able|not allowed))"
_REFUSAL = re.compile(
    rf"{_APOLOGY}\b[^.!?\n]{{0,80}}?\b(?:i|we) ?(?:{_CANNOT}|must decline)"
    rf"|{_APOLOGY},? but (?:there|the|no)\b|as an ai\b|i must decline"
    rf"|i ?{_CANNOT} (?:help|assist|fulfil|comply|provide|process|do|answer|create|generate|complete|extract|split)"
    r"|(?:大変|誠に)?(?:申し訳|すみません|恐れ入り)[^\n]{0,60}(?:できません|できかね|いたしかね|致しかね)"
    r"|(?:大変|誠に)?申し訳(?:ございません|ありません)。?$"
    r"|[^\n]{0,20}(?:お答え|お応え|お手伝い|対応)(?:する)?(?:こと[はが])?できません"
    r"|(?:很|非常)?(?:抱歉|对不起|對不起)[^\n]{0,30}(?:无法|無法|不能)|我(?:无法|無法|不能)(?:帮|幫|提供|协助|協助|回答)"
    r"|죄송(?:합니다|하지만)|je suis désolée?[^\n]{0,30}je ne peux|es tut mir leid[^\n]{0,30}kann"
    r"|lo siento[^\n]{0,30}no puedo",
    re.IGNORECASE,
)
_MAX_REPAIRED = 300_000  # characters; a longer malformed reply is no list of the propositions of a passage
_MAX_WRAPPINGS = 3


def _read(text: str, finished: bool) -> Reading:
    text = text.strip().lstrip("\ufeff").strip()
    if not text:
        raise _UnusableReplyError("empty")
    try:
        values, repaired = [json.loads(text, strict=False)], False
    except (ValueError, RecursionError):
        text = _drop_thoughts(text)
        values, repaired = _find_values(text)
    texts = _propositions(values)
    if not texts:
        listed = [] if values and START.match(text) else _list_items(text, finished=finished)
        texts, repaired = _propositions([listed]), True
    if not texts:
        if looks_like_refusal(text):
            raise _UnusableReplyError("refused")
        raise _UnusableReplyError("empty" if values or not text else "unreadable")
    if len(texts) <= 2 and all(map(looks_like_refusal, texts)):
        raise _UnusableReplyError("refused")
    return Reading(texts, repaired=repaired)


_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def _drop_thoughts(text: str) -> str:
    """Drop the thoughts before the answer, also where a chat template swallowed the opening tag."""
    kept: list[str] = []
    position = 0
    thinking = False
    starts = [match.start() for match in START.finditer(text)]
    answer_first = bool(starts) and starts[0] == 0
    for tag in _THOUGHT.finditer(text):
        closing = bool(tag.group(1))
        if thinking and closing:
            thinking, position = False, tag.end()
        elif closing and not answer_first and starts and starts[-1] >= tag.end():
            kept, position = [], tag.end()
        elif not thinking and not closing:
            if START.search(text, position, tag.start()):
                break  # the tag is part of the answer
            kept.append(text[position : tag.start()])
            thinking = True
    if thinking:
        raise _UnusableReplyError("cut")
    return "".join([*kept, text[position:]]).strip()


def _find_values(text: str) -> tuple[list[Any], bool]:
    """Decode every array and object in a text, repairing those that need it."""
    values: list[Any] = []
    repaired = False
    position: int | None = 0
    decoder = json.JSONDecoder(strict=False)
    while position is not None and (start := find_start(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, position = _repair(text, start)
            repaired = repaired or value is not None
        if value is not None:
            values.append(value)
    return values, repaired


def _repair(text: str, start: int) -> tuple[Any, int | None]:
    if len(text) - start > _MAX_REPAIRED:
        raise _UnusableReplyError("unreadable")
    array = close_array(text, start)
    if array.end is None:
        if array.strings or start == 0:
            raise _UnusableReplyError("cut")
        return None, None  # a bracket in prose
    if not array.strings:
        return None, array.end
    try:
        return json_repair.loads(array.json), array.end
    except (ValueError, RecursionError):
        raise _UnusableReplyError("unreadable") from None


def _propositions(values: list[Any]) -> tuple[str, ...]:
    texts = [clean for text in _strings(values) if any(map(str.isalnum, clean := _clean(text)))]
    return unique(texts) if any(any(map(str.isalpha, text)) for text in texts) else ()


def _strings(values: list[Any]) -> Iterable[str]:
    waiting = values[::-1]
    wrappings = 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            inner = _decode_wrapped(item) if wrappings < _MAX_WRAPPINGS else None
            if inner is None:
                yield item
            else:
                wrappings += 1
                waiting.append(inner)
        elif isinstance(item, list):
            waiting.extend(item[::-1])
        elif isinstance(item, dict):
            waiting.extend(_from_object(item)[::-1])
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            yield str(item)


def _decode_wrapped(text: str) -> Any:
    """Decode an array that was sent as a JSON string."""
    if not re.match(r"\s*[\[{]", text):
        return None
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (list, dict)) else None


_PROPOSITION_KEY = re.compile(r"proposition|命題|fact|statement|claim|^(?:text|content|sentence|value)$", re.IGNORECASE)


def _from_object(item: dict[str, Any]) -> list[Any]:
    """Find the propositions in an object: its lists, else the string that is named like one."""
    if item.keys() & {"error", "refusal"} and len(item) <= 2:
        raise _UnusableReplyError("refused")
    named = [value for key, value in item.items() if _PROPOSITION_KEY.search(key)]
    for choice in (named, list(item.values())):
        if nested := [value for value in choice if isinstance(value, (list, dict)) and value]:
            return nested
    strings = [value for value in item.values() if isinstance(value, str)]
    named_strings = [value for value in named if isinstance(value, str)]
    if named_strings:
        numbered = len(named_strings) == len(item)
        return list(named_strings) if numbered else list(named_strings[:1])
    if len(strings) <= 1 or all(re.search(r"\d$", key) for key in item):
        return list(strings)
    raise _UnusableReplyError("unreadable")


def _clean(text: str) -> str:
    """Join surrogate pairs, replace lone surrogates (no store takes them) and strip white space."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").strip()


_BULLET = r"[-*+•●◦‣–—]\s+|・\s*|[①-⑳㉑-㉟]\s*"
_NUMBER = r"[(（]?[0-9０-９]{1,3}(?:[.)．:]\s+|[）、]\s*|[.．](?=[^\s0-9０-９]))"
_ITEM = re.compile(rf"[ \t]*(?:{_BULLET}|{_NUMBER})(.*)")
_SENTENCE_END = re.compile(r"""[.!?。！？…．][)\]"'”’」』）]*$""")
_QUOTED_LINE = re.compile(r"""[ \t]*(["“「『'])(.+)(["”」』'])[ \t]*[,，、]?[ \t]*""")


def _list_items(text: str, *, finished: bool) -> list[str]:
    """Read numbered, dashed or quoted lines; other lines before, between and after them are talk."""
    items: list[str] = []
    for line in text.splitlines():
        if item := _ITEM.fullmatch(line):
            items.append(item.group(1))
        elif items and line.startswith(("  ", "\t", "　")) and line.strip():
            items[-1] += " " + line.strip()
        elif quoted := _QUOTED_LINE.fullmatch(line):
            items.append(quoted.group(2))
    if items and looks_like_refusal(text):
        raise _UnusableReplyError("refused")
    items = [_unquote(item) for item in items]
    ended = [bool(_SENTENCE_END.search(item)) for item in items]
    if not finished and len(ended) > 1 and all(ended[:-1]) and not ended[-1]:
        raise _UnusableReplyError("cut")
    return items


def _unquote(item: str) -> str:
    item = item.strip()
    quoted = re.fullmatch(r"""(?:"([^"]+)"|“([^“”]+)”|「([^「」]+)」|'((?:[^']|(?<=\w)'(?=\w))+)')[,，、]?""", item)
    return next(filter(None, quoted.groups())) if quoted else item
