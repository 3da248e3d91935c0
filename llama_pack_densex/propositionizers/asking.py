"""Asking for the propositions of one passage until they are whole, or standing in for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from llama_pack_densex.llm_requests.failures import Failure
from llama_pack_densex.llm_requests.reply import Reply
from llama_pack_densex.propositionizers.base import Passage, PropositionSet, Status
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES, detect_language, find_wrong_language
from llama_pack_densex.propositionizers.prompts import ask_again_note, context_note
from llama_pack_densex.propositionizers.replies import Reading, read_reply, unique
from llama_pack_densex.propositionizers.segmentation import segment
from llama_pack_densex.propositionizers.sentences import passage_sentences

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What a model is asked: one passage or a part of one, what to tell it besides, and how many-eth time."""

    passage: Passage
    language: str
    note: str = ""
    attempt: int = 1


Ask = Callable[[Request], Awaitable[Reply | Failure]]


class PassageRun:
    """One passage's way to its propositions.

    Args:
        passage: The passage.
        ask: Sends a request; what it raises stops the run.
        max_attempts: Requests for the same text, the first included.
        max_requests: Requests for the passage and all the parts that it is split into.
    """

    def __init__(self, passage: Passage, ask: Ask, *, max_attempts: int, max_requests: int) -> None:
        self._passage = passage
        self._ask = ask
        self._max_attempts = max_attempts
        self._max_requests = max_requests
        self._requests = 0
        self._language = detect_language(passage.text, f"{passage.title}\n{passage.section}")

    async def run(self) -> PropositionSet:
        """Ask, split and ask again; a blank passage costs nothing."""
        if not self._passage.text.strip():
            return PropositionSet(())
        return _join(await self._ask_for(self._passage.text))

    async def _ask_for(self, text: str, before: str = "") -> list[_Part]:
        """Ask for the propositions of a text.

        Args:
            text: The passage or a part of it.
            before: The sentences before that part, without which its pronouns cannot be resolved.
        """
        context = context_note(before, self._language)
        note, problem, reasons = context, "", list[str]()
        while len(reasons) < self._max_attempts:
            if self._requests >= self._max_requests:
                return [_fall_back(text, f"the limit of {self._max_requests} requests a passage was reached")]
            self._requests += 1
            passage = Passage(text, self._passage.title, self._passage.section)
            reply = await self._ask(Request(passage, self._language, note, len(reasons) + 1))
            if isinstance(reply, Failure):
                halves = split_in_two(text) if reply.kind in ("too_long", "filtered") else None
                halves = halves or (split_at_clause(text) if reply.kind == "too_long" else None)
                if halves:
                    return await self._ask_for_halves(*halves, before)
                return [_fall_back(text, f"the provider failed ({reply.summary})", reply.kind == "transient")]
            reading, problem, reason = self._judge(text, reply)
            if problem in ("cut", "filtered") and (halves := split_in_two(text)):
                return await self._ask_for_halves(*halves, before)
            if problem == "filtered":
                return [_fall_back(text, reason)]
            if not problem:
                reasons += ["the reply had to be repaired"] if reading.repaired else []
                return [_Part(reading.texts, "; ".join(unique(reasons)))]
            reasons.append(reason)
            note = context + ask_again_note(problem, self._language)
        if problem == "cut" and (halves := split_at_clause(text)):
            return await self._ask_for_halves(*halves, before)
        return [_fall_back(text, f"{'; '.join(unique(reasons))} (asked {len(reasons)} times)")]

    def _judge(self, text: str, reply: Reply) -> tuple[Reading, str, str]:
        """Read a reply; the problem is "" where it can be used."""
        reading = read_reply(reply.text, finished=reply.finish == "stop")
        problem: str = reading.problem or ""
        if reply.finish == "length":
            problem = "cut"
        elif reply.finish in ("filtered", "refused"):
            problem = reply.finish
        reason = _REASONS.get(problem, "")
        if not problem and (found := find_wrong_language(text, reading.texts)):
            problem, reason = "language", f"the reply was in {LANGUAGE_NAMES.get(found, 'another language')}"
        return reading, problem, reason

    async def _ask_for_halves(self, first: str, second: str, before: str) -> list[_Part]:
        halves = await gather_to_the_end(
            [self._ask_for(first, before), self._ask_for(second, _last_sentences(f"{before}\n{first}"))]
        )
        return [part for half in halves for part in half]


def split_in_two(text: str) -> tuple[str, str] | None:
    """Split a text at the sentence boundary nearest to its middle, paragraphs first, never right below a heading.

    Returns:
        Both halves without surrounding white space, or None where there is no place to split.
    """
    middle = len(text) / 2
    places: list[tuple[float, int]] = []
    for left, right in pairwise(segment(text)):
        if left.kind != "heading":
            is_paragraph = text.count("\n", left.end, right.start) > 1
            places.append((abs(right.start - middle) * (0.5 if is_paragraph else 1.0), right.start))
    return _cut_at(text, places)


def split_at_clause(text: str) -> tuple[str, str] | None:
    """Split one long sentence at the comma or semicolon nearest to its middle; tables and code are never split."""
    stating = [found for found in segment(text) if found.kind != "heading"]
    if len(stating) != 1 or stating[0].kind != "sentence":
        return None
    start, end = stating[0].start, stating[0].end
    if len(text[start:end].encode("utf-8", "replace")) < _LONG_SENTENCE:
        return None
    margin = (end - start) // 5
    ends = [match.end() for match in _CLAUSE.finditer(text, start + margin, end - margin)]
    return _cut_at(text, [(abs(place - (start + end) / 2), place) for place in ends])


def _cut_at(text: str, places: list[tuple[float, int]]) -> tuple[str, str] | None:
    if not places:
        return None
    place = min(places)[1]
    return text[:place].strip(), text[place:].strip()


async def gather_to_the_end(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all, then raise the first exception: what was asked for meanwhile is paid for, and worth keeping."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


_LONG_SENTENCE = 240  # bytes of UTF-8: 240 letters in English, 80 characters in Japanese
_CLAUSE = re.compile(r"[;；:：](?=\s)|[；，、]|,(?=\s)|\s[–—](?=\s)")
_REASONS = {
    "cut": "the reply was cut off",
    "empty": "the reply was empty",
    "refused": "the model refused",
    "filtered": "the provider's content filter stopped the reply",
    "unreadable": "the reply was not a list of strings",
}


@dataclass(frozen=True)
class _Part:
    texts: tuple[str, ...]
    reason: str = ""
    is_fallback: bool = False
    is_passing: bool = False


def _fall_back(text: str, reason: str, is_passing: bool = False) -> _Part:
    return _Part(passage_sentences(text), reason, is_fallback=True, is_passing=is_passing)


def _join(parts: list[_Part]) -> PropositionSet:
    texts = unique(text for part in parts for text in part.texts)
    failed = [number for number, part in enumerate(parts, 1) if part.is_fallback]
    reasons = list(unique(part.reason for part in parts if part.reason and (part.is_fallback or not failed)))
    if failed and len(parts) > 1:
        which = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
        reasons.insert(0, f"sentences stand in for part{'s' * (len(failed) > 1)} {which} of {len(parts)}")
    elif len(parts) > 1:
        reasons.insert(0, f"asked in {len(parts)} parts because a reply for the whole was cut off or refused")
    reason = "; ".join(reasons)
    status: Status = "fallback" if failed else "repaired" if reason else "ok"
    return PropositionSet(texts, status, reason, is_passing=any(part.is_passing for part in parts))


def _last_sentences(text: str, longest: int = 300) -> str:
    """Return the last one or two sentences of a text, as far as they are short enough."""
    kept = ""
    for found in segment(text)[-2:][::-1]:
        sentence = text[found.start : found.end]
        if found.kind != "sentence" or len(kept) + len(sentence) > longest:
            break
        kept = f"{sentence} {kept}".strip()
    return kept
