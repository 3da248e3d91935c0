"""Whether the first row of a table names its columns, in every format that has tables; and figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, dropwhile, pairwise, zip_longest

from llama_pack_densex.text.tokens import has_words

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
    below = [row for row in rest if len(row) == len(first)]
    if not below:
        return otherwise
    columns = [[*filter(None, column)] for column in zip(*below, strict=True)]
    if all(map(_PAIR.search, filter(None, first))) or _has_amounts(first, columns):
        return False
    return otherwise or _are_names(first, below, columns)


def _are_names(
    first: Sequence[str], below: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]
) -> bool:
    if not first[0] and is_above_figures(first, below):
        return True
    names = [*filter(None, first)]
    if len(names) < 2 or not all(map(_may_be_name, names)):
        return False
    return any(map(_USUAL.fullmatch, first)) or any(map(_is_above_values, first, columns))


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
    """Return whether a text is a figure, a date or the like, a mark, or stands for one, as "yes" does."""
    if text[0].isdigit() or not any(map(str.isalpha, text)):
        return True
    return is_figure(text) or _MARK.fullmatch(text) is not None


_MARK = re.compile(
    r"x|yes|no|true|false|n/?a|none|あり|なし|有り?|無し?|不?可|不?要", re.IGNORECASE
)


def further_names(header: Sequence[Sequence[str]], below: Sequence[Sequence[str]]) -> int:
    """Return how many rows below the first ones of a header go on naming the columns of a table."""
    rows = [*header]
    for depth, row in enumerate(below[:-1]):
        if depth == _MOST_FURTHER or not _goes_on(column_names(rows), row, below[depth + 1 :]):
            return depth
        rows.append(row)
    return max(0, len(below) - 1)


_MOST_FURTHER = 10  # rows of names; each one looks at all rows below


def _goes_on(names: Sequence[str], row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a row below names of columns names them too: below groups of columns, which converters
    to Markdown repeat over each column; or above figures, without a label or where names are missing.
    """
    are_repeated = any(name and name == following for name, following in pairwise(names))
    if are_repeated and has_names([row, *below]):
        return True
    return is_above_figures(row, below) and _adds_names(names, row)


def _adds_names(names: Sequence[str], row: Sequence[str]) -> bool:
    label, *values = row
    texts = [*filter(None, values)]
    if label in ("", names[0]):
        # one text below names of all columns is a heading, unless it is their unit
        is_alone = len(texts) == 1 and len(row) > 2 and all(names[1:])
        return not is_alone or texts[0].startswith(("(", "（", "[", "［"))
    are_missing = any(text and not name for name, text in zip(names[1:], values, strict=True))
    return are_missing and (any(names[1:]) or any(map(_YEAR.search, texts)))


def is_above_figures(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether the cells of a row behind its label are no figures, but most of those below are.

    Rows without figures directly below, which may be names of columns too, do not count.
    """
    texts = [*filter(None, row[1:])]
    if not texts or any(map(is_figure, texts)):
        return False
    rows = dropwhile(lambda cells: not any(map(is_figure, cells[1:])), below)
    cells = [*filter(has_words, chain.from_iterable(cells[1:] for cells in rows))]
    return 2 * sum(map(is_value, cells)) > len(cells)


def column_names(header: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of columns, given the rows of a header, of which upper ones name groups of columns."""
    groups = map(_over_groups, map(_over_all, header), header[1:])
    columns = zip_longest(*groups, *header[-1:], fillvalue="")
    return [" ".join(dict.fromkeys(filter(None, column))) for column in columns]


def _over_all(row: Sequence[str]) -> Sequence[str]:
    """Return a row with the name of all columns, which is in the middle, before the first one instead."""
    middle = len(row) // 2
    around = [*row[:middle], *row[middle + 1 :]]
    if any(around) or len(row) < 3:
        return row
    return ["", row[middle], *around[1:]]


def _over_groups(row: Sequence[str], below: Sequence[str]) -> Sequence[str]:
    """Return the names of groups over each of their columns, if each of several is over several columns."""
    spread = [*row]
    named = [x for x, name in enumerate(below[: len(row)]) if name]
    for x in named:
        if x and not row[x]:
            spread[x] = spread[x - 1]
    counts = Counter(spread[x] for x in named)
    are_groups = len(counts) > 1 and min(counts.values()) > 1
    return spread if are_groups else row
