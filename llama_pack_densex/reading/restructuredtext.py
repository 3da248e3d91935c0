"""Converts reStructuredText to Markdown: tables, code, definitions, links, and the text of directives."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, indent

from llama_pack_densex.reading.files import Part
from llama_pack_densex.reading.plain import read_text
from llama_pack_densex.reading.tables import Texts, pipe_table
from llama_pack_densex.reading.written_tables import separated_rows
from llama_pack_densex.text.column_names import column_names
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
    r"\n{3,}": "\n\n",
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
    elif block["body"]:
        text = _fence(block["body"])
        if block["lead"]:
            text = f"{block['lead']}:\n\n{text}"
    else:
        return block[0]
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
    if definition[:1].isalnum():
        return f"{term}\n: {definition}"
    return f"{term}\n\n{definition}"


def _described(signature: str, description: str) -> str:
    """Return a signature with its description as `<details>`, which mark where the description ends."""
    if not signature:
        return description
    if not description:
        return f"`{signature}`"
    return f"<details>\n<summary>`{signature}`</summary>\n\n{description}\n\n</details>"


def _directive(block: _Match) -> str:
    name = block["name"]
    argument = (block["argument"] or "").strip()
    head, _, body = f"\n{dedent(block['body'])}".partition("\n\n")
    options = {option: value.strip() for option, value in _OPTION.findall(head)}
    head = _OPTION.sub("", head).strip("\n")
    if name in _WITHOUT_TEXT:
        return ""
    if name in _CODE:
        if head or body:
            return _fence(f"{head}\n\n{body}", argument)
        return _fence(argument)
    if name in _TABLES:
        return f"{argument}\n\n{_table(name, options, head + body)}"
    return _text_directive(name, argument, head, body)


def _text_directive(name: str, argument: str, head: str, body: str) -> str:
    """Return a box, a version change, a title, or the description of a function or an option."""
    if name in _BOXES:
        text = _inner(f"{argument}\n{head}\n\n{body}")
        return f"{_BOXES[name]}: {text}" if text[:1].isalnum() else text
    if name in _TITLED:
        return _inner(f"**{argument}**\n\n{head}\n\n{body}")
    if name in _OF_VERSIONS:
        version, _, change = f"{argument} {head}".partition(" ")
        text = f"{_OF_VERSIONS[name]} {version}: {on_one_line(change)}".removesuffix(": ")
        return _inner(f"{text}\n\n{body}")
    if name == "figure":
        return _inner(body)
    return _described(on_one_line(f"{argument} {head}"), _inner(body))


# Tables


def _table(name: str, options: dict[str, str], body: str) -> str:
    if name == "table":
        return _inner(body)
    if name == "list-table":
        names: Texts = []
        rows = _listed_rows(body)
    else:
        delimiter_name = options.get("delim", ",")
        delimiter = _DELIMITERS.get(delimiter_name, delimiter_name)[:1] or ","
        names = separated_rows(options.get("header", ""), delimiter)
        rows = separated_rows(body, delimiter)
    header_rows = options.get("header-rows", "")
    depth = int(header_rows) if header_rows.isdecimal() else 0
    return _markdown_table(names + rows[:depth], rows[depth:])


def _markdown_table(header: Texts, rows: Texts) -> str:
    """Return a pipe table; the names of its columns are empty if it has no header."""
    if not rows:
        return ""
    names = column_names(header) or [""] * max(map(len, rows))
    return pipe_table(names, rows)


_FIRST_CELL = re.compile(r"(?m)^[*+-]( +)[*+-](?= |$)")


def _listed_rows(body: str) -> Texts:
    """Return the rows of a table that is written as a list of lists."""
    first_cell = _FIRST_CELL.search(body)
    if first_cell is None:
        return [[on_one_line(body)]]
    cell_start = rf"(?m)^([*+-]| ){first_cell[1]}[*+-](?: +|$)"
    text_above, *parts = re.split(cell_start, body.strip())
    rows = [[text_above]]
    for row_mark, text in zip(parts[::2], parts[1::2], strict=True):
        if row_mark != " ":
            rows.append([])
        rows[-1].append(text)
    return [[*map(on_one_line, row)] for row in rows if row != [""]]


def _simple_table(table: _Match) -> str:
    """Return a table whose columns are below the parts of its border."""
    border = table["border"]
    starts = [part.start() for part in re.finditer("=+", border)]
    header, _, body = f"\n{dedent(table['rows'])}".rpartition(f"\n{border}\n")
    return _markdown_table(_aligned_rows(header, starts), _aligned_rows(body, starts))


_SPANS = re.compile(r"-{2,}(?: +-{2,})*")  # a line below merged cells


def _aligned_rows(text: str, starts: Sequence[int]) -> Texts:
    rows: Texts = []
    above = ""
    for line in text.splitlines():
        if _SPANS.fullmatch(line):
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
