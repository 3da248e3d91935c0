"""Tables of AsciiDoc and MediaWiki as Markdown, and rows whose cells are separated by a character."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from llama_pack_densex.reading.tables import Cell, Row, Texts, lay_out, to_markdown
from llama_pack_densex.text.tables import spanned
from llama_pack_densex.text.tokens import on_one_line


def asciidoc_table(parts: Mapping[str, str]) -> str:
    """Return a table of AsciiDoc as Markdown.

    Args:
        parts: Its "head": the lines directly above it, which are attributes in brackets, and a title. Its
            "mark": "|===", or ",===" or ":===" for values that are separated by these characters. Its
            "table": the lines between its marks.
    """
    head = parts["head"]
    body = parts["table"]
    format_name = _FORMAT.search(head)
    separator = _SEPARATORS.get(format_name[1] if format_name else parts["mark"][0])
    if separator:
        rows = [[*map(Cell, row)] for row in separated_rows(body, separator)]
    else:
        rows = _asciidoc_rows(head, body)
    if rows and _has_header(head, body):
        rows[0] = [replace(cell, is_name=True) for cell in rows[0]]
    title = _TITLE.search(head)
    return to_markdown(lay_out(rows), title[1] if title else "")


def separated_rows(text: str, separator: str) -> Texts:
    """Return the cells of rows, one row per line.

    Args:
        text: The rows.
        separator: The character between two cells.
    """
    rows = csv.reader(text.splitlines(True), delimiter=separator, skipinitialspace=True)
    return [[*map(on_one_line, row)] for row in rows if row]


def wiki_table(parts: Mapping[str, str]) -> str:
    """Return a table of MediaWiki as Markdown.

    Args:
        parts: Its "table": the lines between its marks.
    """
    caption = ""
    rows: list[Row] = [[]]
    for line in parts["table"].split("\n"):
        text = line.strip()
        if text.startswith("|+"):
            _, caption = _split_attributes(text[2:])
        elif text.startswith("|-"):
            rows.append([])
        elif text.startswith(("|", "!")):
            is_name = text[0] == "!"
            written = re.split(r"\|\||!!" if is_name else r"\|\|", text[1:])
            rows[-1] += (_wiki_cell(cell, is_name) for cell in written)
        elif rows[-1]:
            last = rows[-1][-1]
            rows[-1][-1] = replace(last, text=on_one_line(f"{last.text}\n{text}"))
    return to_markdown(lay_out(filter(None, rows)), caption)


# AsciiDoc

_FORMAT = re.compile(r"\bformat=\"?(csv|tsv|dsv)\b")
_SEPARATORS = {",": ",", "csv": ",", "tsv": "\t", ":": ":", "dsv": ":"}
_TITLE = re.compile(r"^\.(?=\w)(.+)$", re.MULTILINE)
_COLUMNS = re.compile(r"\bcols=(\"[^\"]*\"|[^,\]\s]+)")
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


def _asciidoc_rows(head: str, body: str) -> list[Row]:
    """Return the cells in rows of as many columns as the attributes name, or as the first line has."""
    cells = [*_asciidoc_cells(body)]
    first_line = body.lstrip("\n").split("\n", 1)[0]
    columns = _count_columns(head) or sum(cell.across for cell in _asciidoc_cells(first_line))
    columns = max(columns, 1)
    rows: list[Row] = [[]]
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
    columns = re.split("[,;]", named[1].strip('"'))
    repeated = map(_REPEATED.match, columns)
    return sum(int(times[1]) if times else 1 for times in repeated)


def _asciidoc_cells(body: str) -> Iterator[Cell]:
    starts = [*_CELL_START.finditer(body)]
    ends = [*(start.start() for start in starts[1:]), len(body)]
    for start, end in zip(starts, ends, strict=False):
        text = on_one_line(body[start.end() : end].replace(r"\|", "|"))
        is_name = start["style"] == "h"
        for _ in range(_number(start["times"])):
            yield Cell(text, is_name, _number(start["down"]), _number(start["across"]))


def _number(digits: str | None) -> int:
    return max(int(digits or 1), 1)


# MediaWiki

_ATTRIBUTES = re.compile(r"[^\[\]{}|]*=[^\[\]{}|]*\|(?!\|)")


def _wiki_cell(written: str, is_name: bool) -> Cell:
    attributes, text = _split_attributes(written)
    down = spanned(attributes, "row")
    return Cell(on_one_line(text), is_name, down, spanned(attributes, "col"))


def _split_attributes(written: str) -> tuple[str, str]:
    """Return the attributes of a cell, and its text."""
    attributes = _ATTRIBUTES.match(written)
    if attributes is None:
        return "", written
    return attributes[0], written[attributes.end() :]
