"""What an LLM's reply to a passage says, and how what came of a passage's parts becomes one set."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from itertools import chain, pairwise
from tokenize import STRING, TokenError, generate_tokens
from typing import Any

from llama_pack_densex.llm.thoughts import without_thoughts
from llama_pack_densex.llm.usage import Finish
from llama_pack_densex.propositionizers.base import Passage, PropositionSet, Status
from llama_pack_densex.propositionizers.prompts import EXAMPLE_NAMES, EXAMPLE_TEXTS
from llama_pack_densex.text.language import LANGUAGE_NAMES, find_wrong_language
from llama_pack_densex.text.tokens import compared, has_letters, strip_surrogates

REASONS = {
    "cut": "the reply was cut off",
    "empty": "the reply was empty",
    "refused": "the model refused",
    "filtered": "the provider's content filter stopped the reply",
    "unreadable": "the reply was not a list of strings",
}
"""The problems in words."""
_OF_FINISH: dict[Finish, str] = {"length": "cut", "filtered": "filtered", "refused": "refused"}

_Texts = tuple[str, ...]
_Object = dict[str, Any]
"""An object of JSON."""


@dataclass(frozen=True)
class Reading:
    """What could be read from one reply.

    Args:
        texts: The propositions in the order of the reply, without duplicates; empty if there is a problem.
        problem: Why the reply cannot be used: "cut" (an array or a thought that never closes, or one that was
            abbreviated), "empty", "refused", "filtered", "unreadable", "language", or the kind of a `Failure`
            in its place; None if it can.
        questions: What stands among or beside them as a question.
        reason: The problem in words, if the reply was judged.
        is_passing: Whether the same request may be answered another day.
    """

    texts: _Texts = ()
    problem: str | None = None
    questions: _Texts = ()
    reason: str = ""
    is_passing: bool = False


class _UnusableReplyError(Exception):
    """Its text is the problem."""


def judge(
    passage: Passage,
    reply: str,
    finish: Finish,
    *,
    questions: bool = False,
    is_last: bool = False,
) -> Reading:
    """Read the reply to a passage, and see whether it can be used for it.

    Args:
        passage: The passage, or the part of it that the request was about.
        reply: The reply.
        finish: Why it ended there.
        questions: As for `read_reply`.
        is_last: As for `read_reply`.
    """
    reading = read_reply(reply, finished=finish == "stop", questions=questions, is_last=is_last)
    texts = _without_example(reading.texts, passage)
    problem = _OF_FINISH.get(finish) or reading.problem
    if problem or not texts:
        problem = problem or "empty"
        return Reading(problem=problem, reason=REASONS[problem])
    if language := find_wrong_language(passage.text, texts):
        name = LANGUAGE_NAMES.get(language, "another language")
        return Reading(problem="language", reason=f"the reply was in {name}")
    answered = _without_example(reading.questions, passage)
    return Reading(texts, questions=() if find_wrong_language(passage.text, answered) else answered)


def read_reply(
    text: str,
    *,
    finished: bool = False,
    questions: bool = False,
    is_last: bool = False,
) -> Reading:
    """Read the propositions out of a reply; never raises.

    Thoughts, fences, talk and one wrapping object around an array are taken off, and numbered or dashed lines
    are read. A malformed reply can be asked for again, and is mended only if it was: what is mended wrongly
    looks like propositions.

    Args:
        text: The reply.
        finished: Whether the provider said that the model stopped by itself. If not, a list of lines whose
            last one breaks off is taken for cut.
        questions: Whether the request was also for questions that the passage answers: a list named like
            that, or, if the lists have no names, what ends in a question mark.
        is_last: Whether there is no further attempt: a list in other quotation marks and brackets than JSON's
            is read.
    """
    text = text.strip().lstrip("\ufeff").strip()
    try:
        reading = _read(text, finished, questions)
    except _UnusableReplyError as unusable:
        reading = Reading(problem=str(unusable))
    except RecursionError:  # lists in lists in lists
        reading = Reading(problem="unreadable")
    if is_last and reading.problem == "unreadable" and not questions:
        texts = _propositions(parse_quoted_reply(text))
        return Reading(texts) if texts else reading
    return reading


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Drop repeated texts (compared after NFKC and with single spaces), keeping the order."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(compared(text), text)
    return tuple(first.values())


def looks_like_refusal(text: str) -> bool:
    """Tell "I'm sorry, but I can't help with that" from a statement of fact."""
    return bool(_REFUSAL.match(text.strip()))


def fall_back(part: Passage, reason: str, is_passing: bool = False) -> PropositionSet:
    """The sentences of a part that came to nothing."""
    return PropositionSet(part.sentences, "fallback", reason, is_passing)


def join_parts(parts: Sequence[PropositionSet]) -> PropositionSet:
    """One set of what came of the parts of a passage, in their order."""
    failed = [part for part in parts if part.status == "fallback"]
    reasons = _reasons(failed or parts)
    if len(parts) > 1:
        reasons.insert(0, _in_parts(parts))
    status: Status = "repaired" if reasons else "ok"
    return PropositionSet(
        texts=unique(chain.from_iterable(part.texts for part in parts)),
        status="fallback" if failed else status,
        reason="; ".join(unique(reasons)),
        is_passing=any(part.is_passing for part in parts),
        questions=unique(chain.from_iterable(part.questions for part in parts)),
    )


def _reasons(parts: Sequence[PropositionSet]) -> list[str]:
    return [part.reason for part in parts if part.reason]


def _in_parts(parts: Sequence[PropositionSet]) -> str:
    """What parts say of a passage."""
    failed = [str(number) for number, part in enumerate(parts, 1) if part.status == "fallback"]
    if not failed:
        return f"asked in {len(parts)} parts because the whole was too long, or a reply cut off or refused"
    noun = "parts" if len(failed) > 1 else "part"
    return f"sentences stand in for {noun} {', '.join(failed)} of {len(parts)}"


def _without_example(texts: Iterable[str], passage: Passage) -> _Texts:
    """Leave out what small models repeat of the prompt, unless the passage is about that."""
    subject = f"{passage.title} {passage.section} {passage.text}"
    is_about_it = any(name in subject for name in EXAMPLE_NAMES)
    return tuple(text for text in texts if is_about_it or compared(text) not in EXAMPLE_TEXTS)


_APOLOGY = (
    r"(?:(?:i['’]?m|i am|we are) (?:very |really |so )?(?:sorry|afraid)"
    r"|sorry|i apologi[sz]e|unfortunately)"
)
_CANNOT = (
    r"(?:can['’]?t|cannot|can not|could(?:n['’]t| not)|won['’]?t"
    r"|(?:am|['’]m) (?:unable|not able|not allowed))"
)
_REFUSAL = re.compile(
    rf"(?i){_APOLOGY}\b[^.!?\n]{{0,80}}?\b(?:i|we) ?(?:{_CANNOT}|must decline)"
    rf"|as an ai\b|i must decline"
    rf"|i ?{_CANNOT} (?:help|assist|fulfil|comply|provide|process|do|answer|create|generate|complete"
    r"|extract|split)"
    r"|(?:大変|誠に)?(?:申し訳|すみません|恐れ入り)[^\n]{0,60}(?:できません|できかね|いたしかね|致しかね)"
    r"|[^\n]{0,20}(?:お答え|お応え|お手伝い|回答|対応)(?:する)?(?:こと[はが])?できません"
    r"|(?:很|非常)?(?:抱歉|对不起|對不起)[^\n]{0,30}(?:无法|無法|不能)"
)
_START = re.compile(r"[\[{]\s*(?:[\[{]\s*){0,3}(?:[\"'\]}]|\.\.\.|\Z)")
_DECODER = json.JSONDecoder(strict=False)
_LONGEST = 300_000  # characters; a longer reply is no list of the propositions of a passage
_ASKING = re.compile(r"question|quer(?:y|ies)|質問|疑問|問い|问题|問題", re.IGNORECASE)
_TEXT = re.compile(r"^(?:text|content|sentence|value)s?$", re.IGNORECASE)
_NAMED = re.compile(rf"proposition|命題|fact|statement|claim|{_TEXT.pattern}", re.IGNORECASE)


def _read(text: str, finished: bool, with_questions: bool) -> Reading:
    if len(text) > _LONGEST:
        return Reading(problem="unreadable")
    values = _json_values(text)
    if values is None:
        if not _START.match(text):
            text = without_thoughts(text)
        values = parse_json_reply(text)
    named: list[Any] = []
    if with_questions:
        values = _without_questions(values, named)
    texts = _without_numbers(_texts_of(values, text, finished))
    questions = _propositions(_strings(named))
    if with_questions and not named:
        questions = tuple(text for text in texts if text.endswith(("?", "？")))
        texts = tuple(text for text in texts if text not in questions)
    problem = classify_reply(texts, text, is_list=bool(values))
    return Reading(problem=problem) if problem else Reading(texts, questions=questions)


def classify_reply(texts: Sequence[str], reply: str, *, is_list: bool) -> str | None:
    """The problem with what was read out of a reply; None if there is none."""
    statements = texts or (reply,)
    if len(statements) <= 2 and all(map(looks_like_refusal, statements)):
        return "refused"
    if texts:
        return None
    return "empty" if is_list or not reply else "unreadable"


def _texts_of(values: list[Any], text: str, finished: bool) -> _Texts:
    texts = _propositions(_strings(values) if values else parse_list_reply(text, finished))
    if len(texts) != 1 or "\n" not in texts[0]:
        return texts
    lines = texts[0].splitlines()  # a list as one string
    return _propositions(parse_list_reply(texts[0], finished) or lines)


def _without_questions(value: Any, named: list[Any]) -> Any:
    """A value without the parts that are named like questions, which are added to `named`."""
    if isinstance(value, list):
        return [_without_questions(part, named) for part in value]
    if not isinstance(value, dict):
        return value
    named += [part for key, part in value.items() if _ASKING.search(key)]
    rest = {key: part for key, part in value.items() if not _ASKING.search(key)}
    return {key: _without_questions(part, named) for key, part in rest.items()}


def _without_numbers(texts: _Texts) -> _Texts:
    """Several texts without their numbers, if each begins with its own."""
    bare = [
        re.sub(rf"\A[(（]?{n}(?:[.)．:：]\s|[）、])\s*", "", text)
        for n, text in enumerate(texts, 1)
    ]
    if len(texts) < 2 or any(map(operator.eq, bare, texts)):
        return texts
    return _propositions(bare)


def _json_values(text: str) -> list[Any] | None:
    for parts in ([text], text.splitlines()):  # or a value a line
        with suppress(ValueError, RecursionError):
            return [json.loads(part.rstrip(", "), strict=False) for part in parts if part.strip()]
    return None


def parse_json_reply(text: str) -> list[Any]:
    """Decode every array and object in a text."""
    if not text:
        raise _UnusableReplyError("cut")
    values = []
    position = 0
    while start := _START.search(text, position):
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            value = _python_list(text[start.start() :].rstrip("`\n\r\t "))
            position = len(text)
        values.append(value)
    return values


def _python_list(text: str) -> Any:
    """Read a list as Python writes it; one that only resembles it may lack a comma between two strings."""
    if not text.endswith(("]", "}")) or re.search(r"(?:\.\.\.|…)[\s\"']*[\]}]*$", text):
        raise _UnusableReplyError("cut")
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError):
        tokens = generate_tokens(StringIO(text).readline)
        kinds = [token.type for token in tokens if token.string.strip()]
        if (STRING, STRING) not in pairwise(kinds):  # Python would join them
            # of what JSON has, and keys are texts
            return json.loads(json.dumps(ast.literal_eval(text)))
    raise _UnusableReplyError("unreadable")


def _propositions(texts: Iterable[str]) -> _Texts:
    clean = (strip_surrogates(text.replace("\0", "")).strip() for text in texts)
    stating = unique(text for text in clean if any(map(str.isalnum, text)))
    return stating if any(map(has_letters, stating)) else ()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = _parts(value)
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        value = _json_values(value) or value
    if isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif type(value) in (str, int, float):
        yield str(value)


def _parts(item: _Object) -> list[Any]:
    """Find the propositions in an object: what is named like them, else its lists, else its only string."""
    if len(item) <= 2 and any(map(item.get, ("error", "refusal"))):
        raise _UnusableReplyError("refused")
    lists = {key: part for key, part in _of_type(item, (list, dict)).items() if part}
    named_lists = _named(lists)
    if named_lists:
        return [*named_lists.values()]
    texts = _of_type(item, str)
    named_texts = _named(texts)
    if lists and (not named_texts or _is_passage(named_texts, lists)):
        return [*lists.values()]
    return _chosen_texts(item, named_texts, texts)


def _of_type(item: _Object, types: type | tuple[type, ...]) -> _Object:
    return {key: part for key, part in item.items() if isinstance(part, types)}


def _chosen_texts(item: _Object, named_texts: dict[str, str], texts: dict[str, str]) -> list[str]:
    """The texts that are named like propositions, else the only one, else those that are numbered."""
    stating = named_texts or texts
    has_others = len(named_texts) < len(item)
    if has_others and len(stating) > 1 and not all(map(str.isdecimal, item)):  # any of several
        raise _UnusableReplyError("unreadable")
    return [*stating.values()]


def _is_passage(texts: dict[str, str], lists: _Object) -> bool:
    """Whether a text is the passage that lists say in propositions, not a proposition with its words."""
    if len(texts) > 1 or not any(map(_TEXT.match, texts)):
        return False
    parts = chain.from_iterable(
        part.values() if isinstance(part, dict) else part for part in lists.values()
    )
    listed = "".join(part for part in parts if isinstance(part, str))  # what is deeper comes later
    return len(listed) >= len("".join(texts.values()))


def _named(parts: _Object) -> _Object:
    """The parts of an object that are named like propositions."""
    return {key: part for key, part in parts.items() if _NAMED.search(key)}


def parse_quoted_reply(text: str) -> list[str]:
    """Texts in quotation marks between brackets; none if it is uncertain where one ends."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    text = "\n".join(filter(None, lines))
    start = _LIST_START.match(text)
    if start is None:
        return []
    opening = start[1]
    closing = _CLOSING.get(opening, opening)
    body, _, rest = text[start.end() :].rpartition(closing)
    texts = re.split(rf"{closing}(?:\s?[,，、]\s?|\s){opening}", body)
    is_torn = any(_is_torn(text, opening, closing) for text in texts)
    if is_torn or not re.fullmatch(r"\s?[,，、]?\s?[\]］]\W*", rest):
        return []
    with suppress(ValueError):  # escapes, as in JSON
        escaped = (re.sub(r'(?<!\\)"', r"\"", text) for text in texts)
        return [json.loads(f'"{text}"', strict=False) for text in escaped]
    return texts


def _is_torn(text: str, opening: str, closing: str) -> bool:
    """Whether a text goes on in another line, or lacks one half of a pair of quotation marks."""
    if "\n" in text:
        return True
    text = re.sub(r"(?<=\w)['’](?=\w)", "", text)  # an apostrophe is no quotation mark
    if opening == closing:
        return text.count(opening) % 2 == 1
    return text.count(opening) != text.count(closing)


_CLOSING = dict(zip("“‘「『", "”’」』", strict=True))
# also as the first thing in an object
_LIST_START = re.compile(r"[^{]*?(?:\{[^{:]*:\s*)?[\[［]\s?([\"'“‘「『])")
_BULLET = r"[-*+•◦–—→]\s+|[・●○✅✓✔]\s*|[①-⑳]\s*|\(?[a-z]\)\s+"
_NUMBER = (
    r"(?:\*\*)?(?i:(?:proposition|fact|命題) ?)?[(（]?[0-9０-９]{1,3}"
    r"(?:[.)．:](?:\*\*)?\s+|[）、]\s*|[.．：](?=[^\s0-9０-９*]))"
)
_ITEM = re.compile(rf"[ \t]*(?:{_BULLET}|{_NUMBER})(.*)")
_TAG = re.compile(
    r"(?i)<(?!/)(?:proposition|fact|statement|claim|item|li)\b[^<>]*>"
    r"\s*([^<>\s][^<>]*)</[^<>]*>",
)
_QUOTED_ITEM = re.compile(r'"[^"]+",?')
_SENTENCE_END = re.compile(r"""[.!?。！？…．][)\]"'”’」』）]*$""")


def parse_list_reply(text: str, finished: bool) -> list[str]:
    """Read numbered or dashed lines, or tagged texts; other lines before, between and after them are talk."""
    items = _items(text)
    if items and looks_like_refusal(text):
        raise _UnusableReplyError("refused")
    if all(map(_QUOTED_ITEM.fullmatch, items)):
        items = [item.strip('",') for item in items]
    *earlier, last = [*map(_SENTENCE_END.search, items)] or [None]
    if earlier and all(earlier) and not last and not finished:
        raise _UnusableReplyError("cut")
    return items


def _items(text: str) -> list[str]:
    items = []
    for line in _TAG.sub(r"\n- \1\n", text).splitlines():
        if item := _ITEM.fullmatch(line):
            items.append(item[1].strip())
        elif items and line.startswith(("  ", "\t", "　")) and line.strip():
            items[-1] += " " + line.strip()
    return items
