"""Numbers of a proposition that its passage has not, or has of something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llama_pack_densex.propositionizers.checks.numerals import Number
from llama_pack_densex.propositionizers.checks.texts import Source, Text, taken_apart


@dataclass(frozen=True)
class Ungrounded:
    """Something in a proposition that its passage does not say.

    Args:
        term: What it is; the same in another proposition is not reported again.
        reason: What is wrong with it, in words.
    """

    term: str
    reason: str


def ungrounded_numbers(text: Text, source: Source, said_by: str) -> Iterator[Ungrounded]:
    """Find the numbers of a proposition that are not in its passage, or not in the sentences that say it.

    Args:
        text: The proposition.
        source: Its passage.
        said_by: The sentences of the passage that say it.
    """
    for number in text.numbers:
        values = source.named[number.key, number.is_year] if number.key else set()
        if not values.isdisjoint(number.values):
            continue
        is_other = bool(values) or (number.is_glued and not source.has_number(number))
        if is_other and not source.is_anywhere(number):
            yield _other_in_name(number, source)
        elif number.is_plain:
            yield from _ungrounded_number(number, text, source, said_by)


def _other_in_name(number: Number, source: Source) -> Ungrounded:
    """What is wrong with a number in a name, or beside a month, that has another one in the passage."""
    if number.name:
        return Ungrounded(number.name, f'"{number.name}" is in neither the passage nor its title or section')
    if source.has_number(number):
        with_month = f"{number.shown} {number.key}"
        return Ungrounded(with_month, f'"{number.shown}" is in the passage, but not with "{number.key.title()}"')
    return Ungrounded(number.shown, f'"{number.shown}" is not in the passage')


def _ungrounded_number(number: Number, text: Text, source: Source, said_by: str) -> Iterator[Ungrounded]:
    shown = number.shown
    if source.has_number(number):
        other = _in_its_place(number, text, source, said_by)
        if other:
            reason = f'"{shown}" is in the passage, but where it says this it has "{other}"'
            yield Ungrounded(f"{shown} {other}", reason)
    elif source.values.isdisjoint(number.values):
        yield Ungrounded(shown, f'"{shown}" is not in the passage')
    else:
        yield Ungrounded(f"{shown} {number.unit}", f'"{shown}" is in the passage, but not with "{number.unit}"')


def _in_its_place(number: Number, text: Text, source: Source, said_by: str) -> str:
    """What the sentences that say a proposition have in place of one of its numbers; "" where they have that."""
    if source.is_anywhere(number):
        return ""
    sentences = taken_apart(said_by)
    if not sentences.values_of(number.unit).isdisjoint(number.values):
        return ""
    if _SAME_DATE.search(sentences.plain):
        before = source.plain.partition(sentences.plain)[0][-_BEFORE:]
        if not taken_apart(before).values_of(number.unit).isdisjoint(number.values):
            return ""
    for other in sentences.numbers:
        is_comparable = other.is_plain and not other.is_glued and other.counts == number.counts
        if is_comparable and text.values.isdisjoint(other.values):
            return other.shown
    return ""


_BEFORE = 200  # characters before a sentence, to which "in the same year" points
_SAME_DATE = re.compile(r"\b(?:same|that|these|those) (?:year|month|day|date)s?\b", re.IGNORECASE)
