"""Parsing an LLM's reply to a passage, and joining the sets of a passage's parts."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from itertools import chain, filterfalse, pairwise
from tokenize import STRING, TokenError, generate_tokens
from typing import Any

from llama_pack_densex.llm.thoughts import without_thoughts
from llama_pack_densex.llm.usage import Finish
from llama_pack_densex.propositionizers.base import Passage, PropositionSet, Status
from llama_pack_densex.propositionizers.prompts import EXAMPLE_NAMES, EXAMPLE_TEXTS
from llama_pack_densex.text.language import LANGUAGE_NAMES, find_wrong_language
from llama_pack_densex.text.tokens import compared, has_letters, has_words, strip_surrogates

REASONS = {
    "cut": "the reply was cut off",
    "empty": "the reply was empty",
    "refused": "the model refused",
    "filtered": "the provider's content filter stopped the reply",
    "unreadable": "the reply was not a list of strings",
}
"""Descriptions of the problems of `Reading`."""
_OF_FINISH: dict[Finish, str] = {"length": "cut", "filtered": "filtered", "refused": "refused"}

_Texts = tuple[str, ...]
_Object = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True)
class Reading:
    """The result of reading one reply.

    Args:
        texts: The propositions in the order of the reply, without duplicates; empty if there is a problem.
        problem: Why the reply cannot be used: "cut" (an array or thinking block that is not closed, or an
            abbreviated array), "empty", "refused", "filtered", "unreadable" or "language"; or, if there is no
            reply, the kind of the `Failure`. None if the reply can be used.
        questions: The questions in the reply.
        reason: The problem in words; "" unless `judge` or the failed request gave one.
        is_passing: Whether the failure is temporary, so that the same request may succeed later.
    """

    texts: _Texts = ()
    problem: str | None = None
    questions: _Texts = ()
    reason: str = ""
    is_passing: bool = False


class _UnusableReplyError(Exception):
    """A reply that cannot be used; the error's text is the `Reading.problem`."""


def judge(
    passage: Passage,
    reply: str,
    finish: Finish,
    *,
    questions: bool = False,
    is_last: bool = False,
) -> Reading:
    """Read the reply to a passage, and check that it can be used.

    Args:
        passage: The passage, or the part of it that the request was about.
        reply: The reply.
        finish: Why the reply ended.
        questions: As for `read_reply`.
        is_last: As for `read_reply`.
    """
    reading = read_reply(reply, finished=finish == "stop", questions=questions, is_last=is_last)
    texts = _without_example(reading.texts, passage)
    problem = _OF_FINISH.get(finish) or reading.problem
    if not texts:
        problem = problem or "empty"
    if problem:
        return Reading(problem=problem, reason=REASONS[problem])
    if language := find_wrong_language(passage.text, texts):
        name = LANGUAGE_NAMES.get(language, "another language")
        return Reading(problem="language", reason=f"the reply was in {name}")
    answered = _without_example(reading.questions, passage)
    if find_wrong_language(passage.text, answered):
        return Reading(texts)
    return Reading(texts, questions=answered)


def read_reply(
    text: str,
    *,
    finished: bool = False,
    questions: bool = False,
    is_last: bool = False,
) -> Reading:
    """Read the propositions out of a reply; never raises.

    Thoughts, code fences, chatter and an object that wraps the array are removed, and numbered or dashed
    lines are read as a list. Malformed JSON is repaired only on the last attempt, since a wrong repair looks
    like propositions.

    Args:
        text: The reply.
        finished: Whether the provider said that the model stopped by itself. If not, a list whose last line
            lacks the sentence end that the others have counts as cut.
        questions: Whether the request also asked for questions. They are read from lists whose names say so;
            if no list has such a name, they are the texts that end in a question mark.
        is_last: Whether this is the last attempt: then a list in other quotation marks and brackets than
            those of JSON is read too.
    """
    text = text.strip().lstrip("\ufeff").strip()
    try:
        reading = _read(text, finished, questions)
    except _UnusableReplyError as unusable:
        reading = Reading(problem=str(unusable))
    except RecursionError:  # deeply nested lists
        reading = Reading(problem="unreadable")
    if is_last and reading.problem == "unreadable" and not questions:
        texts = _propositions(_quoted_in(text))
        if texts:
            return Reading(texts)
    return reading


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Drop repeated texts (compared after NFKC and with single spaces), keeping the order."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(compared(text), text)
    return tuple(first.values())


def looks_like_refusal(text: str) -> bool:
    """Return whether a text is a refusal, such as "I'm sorry, but I can't help with that"."""
    return bool(_REFUSAL.match(text.strip()))


def fall_back(part: Passage, reason: str, is_passing: bool = False) -> PropositionSet:
    """Return the sentences of a part whose propositions could not be obtained, as a "fallback" set."""
    return PropositionSet(part.sentences, "fallback", reason, is_passing)


def join_parts(parts: Sequence[PropositionSet]) -> PropositionSet:
    """Join the sets of a passage's parts into one, in their order."""
    failed = [part for part in parts if part.status == "fallback"]
    reasons = _reasons(failed or parts)
    if len(parts) > 1:
        reasons.insert(0, _in_parts(parts))
    status: Status = "ok"
    if failed:
        status = "fallback"
    elif reasons:
        status = "repaired"
    return PropositionSet(
        texts=unique(chain.from_iterable(part.texts for part in parts)),
        status=status,
        reason="; ".join(unique(reasons)),
        is_passing=any(part.is_passing for part in parts),
        questions=unique(chain.from_iterable(part.questions for part in parts)),
    )


def _reasons(parts: Sequence[PropositionSet]) -> list[str]:
    return [part.reason for part in parts if part.reason]


def _in_parts(parts: Sequence[PropositionSet]) -> str:
    """Word the reason for the status of a passage that was split into parts."""
    failed = [str(number) for number, part in enumerate(parts, 1) if part.status == "fallback"]
    if not failed:
        return f"asked in {len(parts)} parts: the whole was too long, or a reply was cut off or refused"
    noun = "parts" if len(failed) > 1 else "part"
    return f"sentences stand in for {noun} {', '.join(failed)} of {len(parts)}"


def _without_example(texts: Iterable[str], passage: Passage) -> _Texts:
    """Drop texts of the prompt's example, which small models repeat, unless the passage is about the same."""
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
_ABBREVIATED = re.compile(r"(?:\.\.\.|…)[\s\"']*[\]}]*$")
_DECODER = json.JSONDecoder(strict=False)
_LONGEST = 300_000  # characters; a longer reply cannot be the propositions of one passage
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
        values = _values_in(text)
    named: list[Any] = []
    if with_questions:
        values = _without_questions(values, named)
    texts = _without_numbers(_texts_of(values, text, finished))
    questions = _propositions(_strings(named))
    if with_questions and not named:
        questions = tuple(filter(_is_question, texts))
        texts = tuple(filterfalse(_is_question, texts))
    problem = _problem_of(texts, text, values)
    if problem:
        return Reading(problem=problem)
    return Reading(texts, questions=questions)


def _is_question(text: str) -> bool:
    return text.endswith(("?", "？"))


def _problem_of(texts: _Texts, reply: str, values: list[Any]) -> str:
    """Return the problem with a reply that was read without an error; "" if it can be used."""
    statements = texts or (reply,)
    if len(statements) <= 2 and all(map(looks_like_refusal, statements)):
        return "refused"
    if texts:
        return ""
    return "empty" if values or not reply else "unreadable"


def _texts_of(values: list[Any], text: str, finished: bool) -> _Texts:
    texts = _propositions(_strings(values) if values else _list_in(text, finished))
    if len(texts) != 1 or "\n" not in texts[0]:
        return texts
    # one string that holds the whole list
    return _propositions(_list_in(texts[0], finished) or texts[0].splitlines())


def _without_questions(value: Any, named: list[Any]) -> Any:
    """Return a value without the parts whose keys name questions; these are added to `named`."""
    if isinstance(value, list):
        return [_without_questions(part, named) for part in value]
    if not isinstance(value, dict):
        return value
    named += [part for key, part in value.items() if _ASKING.search(key)]
    rest = {key: part for key, part in value.items() if not _ASKING.search(key)}
    return {key: _without_questions(part, named) for key, part in rest.items()}


def _without_numbers(texts: _Texts) -> _Texts:
    """Remove the numbering of several texts, if each of them begins with its own number."""
    bare = [
        re.sub(rf"\A[(（]?{n}(?:[.)．:：]\s|[）、])\s*", "", text)
        for n, text in enumerate(texts, 1)
    ]
    if len(texts) < 2 or any(map(operator.eq, bare, texts)):
        return texts
    return _propositions(bare)


def _json_values(text: str) -> list[Any] | None:
    for parts in ([text], text.splitlines()):  # the whole reply as one value, or one value per line
        with suppress(ValueError, RecursionError):
            return [json.loads(part.rstrip(", "), strict=False) for part in parts if part.strip()]
    return None


def _values_in(text: str) -> list[Any]:
    """Decode every array and object in a text, whatever stands between them."""
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
    """Read a list in Python's notation; one without a comma between two strings is unreadable."""
    if not text.endswith(("]", "}")) or _ABBREVIATED.search(text):
        raise _UnusableReplyError("cut")
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError):
        tokens = generate_tokens(StringIO(text).readline)
        kinds = [token.type for token in tokens if token.string.strip()]
        if (STRING, STRING) not in pairwise(kinds):  # Python would concatenate them
            # the round trip rejects values that JSON does not have, and makes all keys strings
            return json.loads(json.dumps(ast.literal_eval(text)))
    raise _UnusableReplyError("unreadable")


def _propositions(texts: Iterable[str]) -> _Texts:
    clean = (strip_surrogates(text.replace("\0", "")).strip() for text in texts)
    propositions = unique(filter(has_words, clean))
    if any(map(has_letters, propositions)):
        return propositions
    return ()


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
    """Find the propositions in an object: the lists whose keys say so, else all its lists, else its texts."""
    if len(item) <= 2 and any(map(item.get, ("error", "refusal"))):
        raise _UnusableReplyError("refused")
    lists = {key: part for key, part in _of_type(item, (list, dict)).items() if part}
    named_lists = _named(lists)
    if named_lists:
        return [*named_lists.values()]
    texts = _named(_of_type(item, str))
    if lists and (not texts or _is_passage(texts, lists)):
        return [*lists.values()]
    return _texts_in(item, texts)


def _texts_in(item: _Object, named: _Object) -> list[str]:
    """Return the texts whose keys say that they are propositions, else the only text, else numbered ones."""
    texts = named or _of_type(item, str)
    are_all = len(named) == len(item) or all(map(str.isdecimal, item))
    if len(texts) > 1 and not are_all:  # any could be the proposition
        raise _UnusableReplyError("unreadable")
    return [*texts.values()]


def _of_type(item: _Object, types: type | tuple[type, ...]) -> _Object:
    return {key: part for key, part in item.items() if isinstance(part, types)}


def _named(parts: _Object) -> _Object:
    """Return the parts of an object whose keys say that they are propositions."""
    return {key: part for key, part in parts.items() if _NAMED.search(key)}


def _is_passage(texts: dict[str, str], lists: _Object) -> bool:
    """Return whether an object's only text is the passage, and its lists hold the passage's propositions.

    Otherwise the text is a proposition, and the lists are details of it (such as its words).
    """
    if len(texts) > 1 or not any(map(_TEXT.match, texts)):
        return False
    listed = 0  # values that are nested more deeply are read later
    for part in lists.values():
        values = part.values() if isinstance(part, dict) else part
        listed += sum(len(value) for value in values if isinstance(value, str))
    return listed >= len("".join(texts.values()))


def _quoted_in(text: str) -> list[str]:
    """Read texts in quotation marks of any kind between brackets; none if it is uncertain where one ends."""
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
    if is_torn or not _LIST_END.fullmatch(rest):
        return []
    with suppress(ValueError):  # escapes, as in JSON
        escaped = (_QUOTATION_MARK.sub(r"\"", text) for text in texts)
        return [json.loads(f'"{text}"', strict=False) for text in escaped]
    return texts


def _is_torn(text: str, opening: str, closing: str) -> bool:
    """Return whether a text spans several lines, or lacks one of a pair of quotation marks."""
    if "\n" in text:
        return True
    text = _APOSTROPHE.sub("", text)
    if opening == closing:
        return text.count(opening) % 2 == 1
    return text.count(opening) != text.count(closing)


_CLOSING = dict(zip("“‘「『", "”’」』", strict=True))
# also a list that is an object's first value
_LIST_START = re.compile(r"[^{]*?(?:\{[^{:]*:\s*)?[\[［]\s?([\"'“‘「『])")
_LIST_END = re.compile(r"\s?[,，、]?\s?[\]］]\W*")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_QUOTATION_MARK = re.compile(r'(?<!\\)"')  # that no backslash precedes
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


def _list_in(text: str, finished: bool) -> list[str]:
    """Read numbered or dashed lines, or tagged texts; other lines around them are ignored as chatter."""
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
