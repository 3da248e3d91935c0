"""Tables of AsciiDoc and MediaWiki as Markdown."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from llama_pack_densex.reading.tables import Cell, lay_out, to_markdown
from llama_pack_densex.text.tables import spanned
from llama_pack_densex.text.tokens import on_one_line


class _Cell(NamedTuple):
    """A cell as it is written.

    Args:
        text: Its text, which may have several lines.
        is_name: Whether it is marked as a header.
        down: The number of rows that it spans.
        across: The number of columns that it spans.
    """

    text: str
    is_name: bool = False
    down: int = 1
    across: int = 1


_Rows = list[list[_Cell]]


def asciidoc_table(head: str, mark: str, body: str) -> str:
    """Return a table of AsciiDoc as Markdown.

    Args:
        head: The lines directly above it: attributes in brackets, and a title.
        mark: Its delimiter: "|===", or ",===" or ":===" for values that are separated by these characters.
        body: The lines between its delimiters.
    """
    format_name = _FORMAT.search(head)
    separator = _SEPARATORS.get(format_name[1] if format_name else mark[0])
    if separator:
        values = csv.reader(body.split("\n"), delimiter=separator, skipinitialspace=True)
        rows = [[_Cell(text) for text in row] for row in values if row]
    else:
        rows = _asciidoc_rows(head, body)
    if rows and _has_header(head, body):
        rows[0] = [cell._replace(is_name=True) for cell in rows[0]]
    title = _TITLE.search(head)
    return _as_markdown(title[1] if title else "", rows)


def wiki_table(body: str) -> str:
    """Return a table of MediaWiki as Markdown.

    Args:
        body: The lines between its delimiters.
    """
    caption = ""
    rows: _Rows = [[]]
    for line in body.split("\n"):
        text = line.strip()
        if text.startswith("|+"):
            _, caption = _split_attributes(text[2:])
        elif text.startswith("|-"):
            rows.append([])
        elif text.startswith(("|", "!")):
            is_name = text[0] == "!"
            parts = re.split(r"\|\||!!" if is_name else r"\|\|", text[1:])
            rows[-1] += (_wiki_cell(part, is_name) for part in parts)
        elif rows[-1]:
            last = rows[-1].pop()
            rows[-1].append(last._replace(text=f"{last.text}\n{text}"))
    return _as_markdown(caption, rows)


def _as_markdown(title: str, rows: _Rows) -> str:
    cells = (
        ((Cell(on_one_line(cell.text), cell.is_name), cell.down, cell.across) for cell in row)
        for row in rows
        if row
    )
    grid = lay_out(cells)
    return "\n\n".join(filter(None, [on_one_line(title), to_markdown(grid)]))


# AsciiDoc

_FORMAT = re.compile(r"\bformat=\"?(csv|tsv|dsv)\b")
_SEPARATORS = {",": ",", "csv": ",", "tsv": "\t", ":": ":", "dsv": ":"}
_TITLE = re.compile(r"^\.(?=\w)(.+)$", re.MULTILINE)
_COLUMNS = re.compile(r"\bcols=(?:\"([^\"]*)\"|([^,\]\s]+))")
_REPEATED = re.compile(r"\s*(\d+)\*")
# before its bar, a cell may say how often it stands, how far it spans, its alignment and style: 2*|, .3+^.^s|
_CELL_START = re.compile(
    r"(?:(?:^|(?<=\s))(?:(?P<times>\d{1,2})\*|(?P<across>\d{0,2})(?:\.(?P<down>\d{1,2}))?\+)?"
    r"[<^>]?(?:\.[<^>])?(?P<style>[adehlmsv]?))?(?<!\\)\|",
    re.MULTILINE,
)


def _has_header(head: str, body: str) -> bool:
    """Return whether the first row is a header: by an option, or by a blank line behind it."""
    if "header" in head:
        return "noheader" not in head
    first, *below = body.split("\n")
    return first.strip() != "" and len(below) > 1 and not below[0].strip()


def _asciidoc_rows(head: str, body: str) -> _Rows:
    """Return the cells in rows of as many columns as the attributes name, or as the first line has."""
    cells = [*_asciidoc_cells(body)]
    first_line = body.lstrip("\n").split("\n", 1)[0]
    columns = _count_columns(head) or sum(cell.across for cell in _asciidoc_cells(first_line))
    columns = max(columns, 1)
    rows: _Rows = [[]]
    covered: Counter[int] = Counter()  # columns of a row that cells above it span
    room = columns
    for cell in cells:
        while room <= 0:
            rows.append([])
            room = columns - covered[len(rows) - 1]
        rows[-1].append(cell)
        room -= cell.across
        covered.update({len(rows) - 1 + lower: cell.across for lower in range(1, cell.down)})
    return rows


def _count_columns(head: str) -> int:
    """Return the number of columns that the attributes name; 0 if they name none."""
    named = _COLUMNS.search(head)
    if named is None:
        return 0
    columns = re.split("[,;]", named[1] or named[2] or "")
    repeated = map(_REPEATED.match, columns)
    return sum(int(times[1]) if times else 1 for times in repeated)


def _asciidoc_cells(body: str) -> Iterator[_Cell]:
    starts = [*_CELL_START.finditer(body)]
    ends = [*(start.start() for start in starts[1:]), len(body)]
    for start, end in zip(starts, ends, strict=False):
        text = body[start.end() : end].replace(r"\|", "|")
        cell = _Cell(text, start["style"] == "h", _number(start["down"]), _number(start["across"]))
        yield from [cell] * _number(start["times"])


def _number(digits: str | None) -> int:
    return max(int(digits or 1), 1)


# MediaWiki

_ATTRIBUTES = re.compile(r"[^\[\]{}|]*=[^\[\]{}|]*\|(?!\|)")


def _wiki_cell(written: str, is_name: bool) -> _Cell:
    attributes, text = _split_attributes(written)
    return _Cell(text, is_name, spanned(attributes, "row"), spanned(attributes, "col"))


def _split_attributes(written: str) -> tuple[str, str]:
    """Return the attributes of a cell, and its text."""
    attributes = _ATTRIBUTES.match(written)
    return (attributes[0], written[attributes.end() :]) if attributes else ("", written)
