"""Converts reStructuredText to Markdown: tables, code, definitions, links, and the text of directives."""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from textwrap import dedent, indent

from llama_pack_densex.reading.files import Part
from llama_pack_densex.reading.plain import read_text
from llama_pack_densex.reading.tables import pipe_table
from llama_pack_densex.text.sentences import WIDE
from llama_pack_densex.text.tokens import on_one_line, words

_MOST_LINES = 1_000  # of a table, within which its lower border is searched
_BLOCK = re.compile(
    r"(?m)^(?P<indent> *)(?:(?:"
    r"\.\. (?:\|[^|\n]+\| )?(?P<name>[\w:-]+)::(?: +(?P<argument>.*)| *)\n"
    r"|(?P<comment>\.\.(?: +(?![_\[]).*)?\n)"
    r"|(?P<lead>\S.*?)?::\n(?=\n)"
    r"|(?P<term>(?![-*+#] |\(?\w{1,3}[.)] |\.\.|[:|>+=])\S.*)\n(?=(?P=indent) +\S)"
    r")(?P<body>(?:\n*(?P=indent) +\S.*\n)*)"  # deeper lines, and blank ones between them
    rf"|(?P<border>=+(?: +=+)+)\n(?P<rows>(?:.*\n){{1,{_MOST_LINES}}}?)(?P=indent)(?P=border)\n(?=\n|\Z))"
)
_OPTION = re.compile(r"(?m)^ *:([\w-]+):( .*)?$")
_FENCED = re.compile(r"(?ms)^( *```.*?^ *```$)")
_CODE = words(
    "code code-block doctest math parsed-literal productionlist prompt sourcecode testcode testoutput"
)
_WITHOUT_TEXT = words(
    "contents currentmodule highlight image include index literalinclude meta module moduleauthor raw replace"
    " role sectionauthor tabularcolumns testsetup toctree"
)
_BOXES = {
    "attention": "Attention",
    "caution": "Caution",
    "danger": "Danger",
    "error": "Error",
    "hint": "Hint",
    "important": "Important",
    "note": "Note",
    "seealso": "See also",
    "tip": "Tip",
    "warning": "Warning",
}
_TABLES = ("table", "list-table", "csv-table")
_OF_VERSIONS = {
    "deprecated": "Deprecated since version",
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
}
_TITLED = ("admonition", "rubric", "sidebar", "topic")
_DELIMITERS = {"tab": "\t", "space": " "}
_IN_LINES = {
    r"`([^`<]{1,500}?)\s*<([^<>`\s]+)>`__?": r"[\1](\2)",
    r"(?<![\w`]):[\w.:+-]{1,60}:`([^`<]+?)\s*<[^<>`]+>`": r"\1",
    r"(?<![\w`]):(?:doc|numref|ref|term):`([^`]+)`": r"\1",
    r"(?<![\w`]):[\w.:+-]{1,60}:`[~!]?([^`]+)`": r"`\1`",
    r"(?<![\w`])`([^`<>]{1,200})`_(?!\w)": r"[\1][]",
    r"\[#?([\w.-]+|#)\]_(?!\w)": r"[^\1]",
    r"``(.+?)``": r"`\1`",
    r"(?m)^\.\. \[#?([\w.-]+|#)\] ": r"[^\1]: ",
    r"(?m)^ *\.\. _`?([^`:\n]+)`?: +(\S+)$": r"[\1]: \2",
    r"(?m)^ *\.\. _.*:(?: .*)?$": "",
    r"(?m)^( *)#\. ": r"\g<1>1. ",
    r"\\ ": "",
    r"(?m)^( *):(\w[\w ,*.-]*): +(?=\S)": r"\1- \2: ",
}

_Match = re.Match[str]
"""A match of `_BLOCK`."""


def read_restructuredtext(file: Path) -> Iterator[Part]:
    """Yield a reStructuredText file as Markdown; its headings stay, since they are recognised in both."""
    for part in read_text(file):
        yield part._replace(text=_to_markdown(part.text))


def _to_markdown(text: str) -> str:
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    parts = _FENCED.split(_BLOCK.sub(_block, "\n".join([*lines, ""])))  # text and code alternate
    for pattern, replacement in _IN_LINES.items():
        parts[::2] = [re.sub(pattern, replacement, part) for part in parts[::2]]
    parts[::2] = [re.sub(r"\n{3,}", "\n\n", part) for part in parts[::2]]
    return "".join(parts).lstrip("\n")


def _block(block: _Match) -> str:
    if block["comment"]:
        return ""
    if block["term"] and not _may_define(block):
        return block[0]
    if block["border"]:
        text = _simple_table(block)
    elif block["name"]:
        text = _directive(block)
    elif block["term"]:
        text = _defined(block["term"], _inner(block["body"]))
    else:
        lead = f"{block['lead']}:\n\n" if block["lead"] else ""
        text = lead + _fence(block["body"]) if block["body"] else block[0]
    between = "\n" if block["term"] else ""  # another definition may follow
    return indent(f"{text.strip()}\n", block["indent"]) + between


def _may_define(block: _Match) -> bool:
    """Return whether a term is below a blank line or another definition."""
    start = block.string.rfind("\n", 0, max(block.start() - 1, 0)) + 1
    above = block.string[start : block.start()]
    return not above.strip() or above.startswith(f"{block['indent']} ")


def _inner(body: str) -> str:
    """Return the content of a block as Markdown."""
    return _BLOCK.sub(_block, f"{dedent(body).strip()}\n").strip()


def _fence(code: str, language: str = "") -> str:
    return f"```{language}\n{dedent(code).strip()}\n```"


def _defined(term: str, definition: str) -> str:
    is_text = definition[:1].isalnum()
    return f"{term}\n: {definition}" if is_text else f"{term}\n\n{definition}"


def _described(signature: str, description: str) -> str:
    """Return a signature with its description as `<details>`, which mark where the description ends."""
    if not signature or not description:
        return f"`{signature}`" if signature else description
    title = f"<summary>`{signature}`</summary>"
    return f"<details>\n{title}\n\n{description}\n\n</details>"


def _directive(block: _Match) -> str:
    name = block["name"]
    argument = (block["argument"] or "").strip()
    head, _, body = f"\n{dedent(block['body'])}".partition("\n\n")
    options = {option: value.strip() for option, value in _OPTION.findall(head)}
    head = _OPTION.sub("", head).strip("\n")
    if name in _WITHOUT_TEXT:
        return ""
    if name in _CODE:
        code = f"{head}\n\n{body}" if head or body else argument
        return _fence(code, "" if code == argument else argument)
    if name in _TABLES:
        table = _table(name, options, head + body)
        return "\n\n".join(filter(None, [argument, table]))
    return _text_directive(name, argument, head, body)


def _text_directive(name: str, argument: str, head: str, body: str) -> str:
    """Return a box, a version change, a title, or the description of a function or an option."""
    if name in _OF_VERSIONS:
        version, _, change = argument.partition(" ")
        change = on_one_line(f"{change} {head}")
        head = ""
        argument = f"{_OF_VERSIONS[name]} {version}{': ' if change else ''}{change}"
    elif name in _TITLED:
        argument = f"**{argument}**\n"
    elif name not in _BOXES:
        signature = "" if name == "figure" else on_one_line(f"{argument} {head}")
        return _described(signature, _inner(body))
    text = _inner(f"{argument}\n{head}\n\n{body}")
    label = _BOXES.get(name)
    return f"{label}: {text}" if label and text[:1].isalnum() else text


# Tables


def _table(name: str, options: dict[str, str], body: str) -> str:
    if name == "table":
        return _inner(body)
    rows = [*(_listed_rows(body) if name == "list-table" else _separated_rows(body, options))]
    names = [*_separated_rows(options.get("header", ""), options)]
    depth = options.get("header-rows", "")
    header = names + rows[: int(depth) if depth.isdecimal() else 0]
    return _markdown_table(header, rows[len(header) - len(names) :])


def _markdown_table(header: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> str:
    """Return a pipe table; the names of its columns are empty if it has no header."""
    width = max(map(len, rows), default=0)
    columns = [*zip_longest(*header, fillvalue="")] or [()] * width
    names = [" ".join(dict.fromkeys(filter(None, column))) for column in columns]
    return pipe_table(names, rows) if rows else ""


_CELL = re.compile(r"([*+-]| )( +)[-*+](?: +(.*))?")


def _listed_rows(body: str) -> Iterator[list[str]]:
    """Yield the rows of a table that is written as a list of lists."""
    row: list[str] = []
    column = 0
    for line in body.strip("\n").splitlines():
        cell = _CELL.fullmatch(line)
        column = column or (cell.end(2) if cell else 0)
        if not cell or cell.end(2) != column:
            row[-1:] = [on_one_line(f"{''.join(row[-1:])} {line}")]
            continue
        if cell[1].strip() and row:
            yield row
            row = []
        row.append((cell[3] or "").strip())
    yield row


def _separated_rows(text: str, options: dict[str, str]) -> Iterator[list[str]]:
    name = options.get("delim", ",")
    delimiter = _DELIMITERS.get(name, name)[:1] or ","
    for row in csv.reader(text.splitlines(True), delimiter=delimiter, skipinitialspace=True):
        if row:
            yield [*map(on_one_line, row)]


def _simple_table(table: _Match) -> str:
    """Return a table whose columns are below the parts of its border."""
    border = table["border"]
    starts = [part.start() for part in re.finditer("=+", border)]
    lines = dedent(table["rows"]).splitlines()
    if border not in lines:
        return _markdown_table([], _aligned_rows(lines, starts))
    place = lines.index(border)
    header = _aligned_rows(lines[:place], starts)
    return _markdown_table(header, _aligned_rows(lines[place + 1 :], starts))


def _aligned_rows(lines: Iterable[str], starts: Sequence[int]) -> list[list[str]]:
    rows: list[list[str]] = []
    above = ""
    for line in lines:
        if re.fullmatch(r"-{2,}(?: +-{2,})*", line):
            rows[-1:] = [_merged_cells(above, line, starts)]
            continue
        cells = _aligned_cells(line, starts)
        if rows and not cells[0]:  # continues the row above
            rows[-1] = [
                on_one_line(f"{upper} {cell}") for upper, cell in zip(rows[-1], cells, strict=True)
            ]
        elif any(cells):
            rows.append(cells)
        above = line
    return rows


def _aligned_cells(line: str, starts: Sequence[int]) -> list[str]:
    padded = WIDE.sub("\\g<0>\0", line)
    return [
        padded[start:end].replace("\0", "").strip(" \\") for start, end in pairwise([*starts, None])
    ]


def _merged_cells(line: str, marks: str, starts: Sequence[int]) -> list[str]:
    """Return the cells of a line whose spans the marks below it show; one cell per column."""
    spans = [mark.start() for mark in re.finditer("-+", marks)]
    cells = _aligned_cells(line, spans)
    return [cells[max(bisect_right(spans, start) - 1, 0)] for start in starts]
