"""An ingestion's progress as a line of text: figures for people, and as many of them as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_pack_densex.ingestion.progress import ProgressState

DOT = " · "
"""What stands between the figures where the output can show it."""

COMMA = ", "
"""What stands between the figures in logs, whose encoding is not known."""


@dataclass(frozen=True)
class Figure:
    """One figure of a line.

    Args:
        text: The figure with what it counts.
        weight: How much a reader would miss it; where there is no room, the lightest is left out first.
    """

    text: str
    weight: int


def figures(state: ProgressState) -> list[Figure]:
    """The figures of a live line; what is unknown or zero is left out."""
    left = state.seconds_left
    time = f"{time_left(left)} left" if left else f"{duration(state.seconds)} so far"
    rate = [] if state.rate is None else [Figure(per_minute(state.rate), 2)]
    return [*_done(state), *rate, Figure(time, 6)]


def last_figures(state: ProgressState) -> list[Figure]:
    """The figures of the last line: what was done, at what rate and in what time."""
    average = state.passages / state.seconds * 60 if state.seconds >= 1 else 0
    rate = [Figure(per_minute(average), 2)] if average else []
    if state.passages == state.passages_total:
        state = replace(state, passages_total=None)
    if state.documents == state.documents_total:
        state = replace(state, documents_total=None)
    return [*_done(state), *rate, Figure(f"in {duration(state.seconds)}", 6)]


def one_line(parts: Sequence[Figure], separator: str = COMMA) -> str:
    """All figures on one line, however long."""
    return separator.join(part.text for part in parts)


def fit(parts: Sequence[Figure], width: int, separator: str = DOT, lines: int | None = 2) -> list[str]:
    """Put figures on a few lines of at most `width` characters, without the lightest of them where they do not fit.

    Args:
        parts: The figures; the first is shown in any case.
        width: Characters a line.
        separator: What stands between two figures of a line.
        lines: Lines at most; None for as many as it takes.
    """
    shown = list(parts)
    while lines is not None and len(shown) > 1 and len(_fill(shown, width, separator)) > lines:
        del shown[min(range(1, len(shown)), key=lambda place: shown[place].weight)]
    return _fill(shown, width, separator)


def count(number: int, noun: str) -> str:
    """A number with what it counts, such as "1 passage" and "14,310 passages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(number: int) -> str:
    """A large number in three digits or so, such as "950", "12.3k" and "1.9M"."""
    for unit, size in (("", 1), ("k", 10**3), ("M", 10**6), ("B", 10**9)):
        scaled = number / size
        if round(scaled, 1) < 1000 or unit == "B":
            return f"{scaled:,.0f}{unit}" if not unit or scaled >= 99.95 else f"{scaled:.1f}{unit}"
    raise AssertionError("the last unit takes any number")


def money(amount: float, currency: str = "USD") -> str:
    """An amount of money, such as "$0.41" and "0.41 EUR"; what is less than a cent is not called nothing."""
    tiny = 0 < amount < 0.01
    number = "0.01" if tiny else f"{amount:,.2f}"
    return ("<" if tiny else "") + (f"${number}" if currency == "USD" else f"{number} {currency}")


def per_minute(rate: float, what: str = "") -> str:
    """A rate, such as "512/min"."""
    return f"{rate:,.{0 if rate >= 9.95 else 1}f}{what}/min"


def time_left(seconds: float) -> str:
    """A time to come, as exactly as it can be told: "40 s", "13 min", "2 h 05 min", "3 d 4 h"."""
    if round(seconds) < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def duration(seconds: float) -> str:
    """A time that has passed: "8.3 s", "40 s", "2 min 05 s", and from an hour on as `time_left`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else time_left(seconds)


def _done(state: ProgressState) -> list[Figure]:
    """What was made, and what it took."""
    shown = []
    if state.passages_total is None and (state.documents or state.documents_total):
        shown.append(Figure(_of(state.documents, state.documents_total, "document"), 7))
    shown.append(Figure(_of(state.passages, state.passages_total, "passage"), 8))
    if state.propositions:
        shown.append(Figure(count(state.propositions, "proposition"), 4))
    if state.fallbacks:
        shown.append(Figure(count(state.fallbacks, "fallback"), 5))
    if state.kept:
        shown.append(Figure(f"{short(state.kept)} from the cache", 1))
    if state.usage.total_tokens:
        shown.append(Figure(f"{short(state.usage.total_tokens)} tokens", 3))
    if state.cost:
        shown.append(Figure(money(state.cost), 5))
    return shown


def _of(done: int, total: int | None, noun: str) -> str:
    return count(done, noun) if total is None or total < done else f"{done:,}/{count(total, noun)}"


def _fill(parts: Sequence[Figure], width: int, separator: str) -> list[str]:
    lines = [parts[0].text]
    for part in parts[1:]:
        if len(lines[-1]) + len(separator) + len(part.text) <= width:
            lines[-1] += separator + part.text
        else:
            lines.append(part.text)
    return lines
