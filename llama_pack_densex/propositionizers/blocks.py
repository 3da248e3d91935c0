"""From text to regions: headings, tables and code, and the lines that are one wrapped stretch of prose.

There is one idea of a heading and of a fence, for sections as well as for sentences. It is not CommonMark's to the
letter, since passages are cut out of documents: a closing fence whose beginning was left in the passage before opens
nothing here, and rows without their header are a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Region:
    """A stretch of text without surrounding white space.

    Args:
        start: Where it starts, in characters.
        end: Where it ends.
        kind: "heading", "block" (code, a table), "text", which is still to be split into sentences, or "sentence".
        level: Of a heading; 1 is outermost.
    """

    start: int
    end: int
    kind: Literal["text", "sentence", "heading", "block"]
    level: int = 0


def find_regions(text: str) -> list[Region]:
    """Split a text into regions that cover every character that is not white space, in order."""
    return [region for part in _scan(text) for region in (_join_wrapped(part) if isinstance(part, list) else [part])]


def find_headings(text: str) -> list[Region]:
    """The headings among the regions of a text."""
    return [part for part in _scan(text) if isinstance(part, Region) and part.level]


def heading_text(heading: str) -> str:
    """What a heading says, without its markup."""
    line = heading.splitlines()[0].strip()
    if found := _HEADING.fullmatch(line):
        line = found["wiki"] or re.sub(r"\s+#+$", "", found["atx"])
    return _EMPHASIS.sub(r"\2", line)


def _scan(text: str) -> Iterator[Region | list[_Line]]:
    """Yield headings, blocks, and between these the runs of lines that no blank line ends."""
    lines = _find_lines(text)
    fences, elements = _pair_fences(lines), _pair_elements(text)
    run: list[_Line] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.start in elements:
            whole = [Region(line.start, elements[line.start], "block")]
            while i < len(lines) and lines[i].end <= whole[0].end:
                i += 1
            if i < len(lines) and lines[i].start < whole[0].end:
                rest = text[whole[0].end : lines[i].end].lstrip()
                lines[i] = _Line(lines[i].end - len(rest), lines[i].end, rest, "")
        else:
            after, level = _end_of_block(lines, i, fences), 0
            if after == i:
                after, level = _end_of_heading(lines, i, goes_on=bool(run))
            last = next((lines[n].end for n in range(after - 1, i - 1, -1) if lines[n].text), i)
            whole = [Region(line.start, last, "heading" if level else "block", level)] if after > i else []
            if not whole and line.text:
                run.append(line)
            i = max(after, i + 1)
        if whole or not line.text:
            if run:
                yield run
            yield from whole
            run = []
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str  # stripped; empty for a blank line
    indent: str


def _find_lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    position = 0
    for raw in text.splitlines(keepends=True):
        stripped = raw.strip()
        if stripped:
            indent = raw[: len(raw) - len(raw.lstrip())]
            start = position + len(indent)
            lines.append(_Line(start, start + len(stripped), stripped, indent))
        elif not lines or lines[-1].text:
            lines.append(_Line(position, position, "", ""))
        position += len(raw)
    return lines


_FENCE = re.compile(r"(`{3,}(?!`)|~{3,}(?!~))([^`]*)")


def _pair_fences(lines: list[_Line]) -> dict[int, int]:
    """Map the line of each opening fence to the line after its block.

    A fence that names a language and is never closed runs to the end, as in CommonMark. A bare one that is never
    closed is more likely the closing fence of a block whose beginning was cut off: it stands for itself.
    """
    fences = [(i, found[1], found[2]) for i, line in enumerate(lines) if (found := _FENCE.fullmatch(line.text))]
    blocks: dict[int, int] = {}
    free = 0
    for k, (i, marks, language) in enumerate(fences):
        if i >= free:
            below = (fences[n] for n in range(k + 1, len(fences)))
            closing = (end for end, other, said in below if not said and other.startswith(marks))
            free = next(closing, len(lines) - 1 if language else i) + 1
            blocks[i] = free
    return blocks


_TAG = re.compile(r"<(/?)(table|pre)\b[^<>]{0,1000}>", re.IGNORECASE)


def _pair_elements(text: str) -> dict[int, int]:
    """Map the start of each HTML table (or preformatted text) to its end; one that is never closed is left out.

    Elements that touch count as one, so that a line of many of them is not cut up once for each.
    """
    pairs: dict[int, int] = {}
    opened: dict[str, list[int]] = {"table": [], "pre": []}
    for tag in _TAG.finditer(text):
        starts = opened[tag[2].lower()]
        if not tag[1]:
            starts.append(tag.start())
        elif starts:
            pairs[starts.pop()] = tag.end()
    for start in sorted(pairs, reverse=True):
        pairs[start] = pairs.get(pairs[start], pairs[start])
    return pairs


_GRID = ("|", "+-", "+=")


def _end_of_block(lines: list[_Line], i: int, fences: dict[int, int]) -> int:
    """The line after the code or table that begins at line i; i where none begins."""
    if i in fences:
        return fences[i]
    below = lines[i + 1].text if i + 1 < len(lines) else ""
    has_header = "|" in lines[i].text and "|" in below and "-" in below and not below.strip("|:- \t")
    if not has_header and not (lines[i].text.startswith(_GRID) and below.startswith(_GRID)):
        return i
    after = i + 2
    while after < len(lines) and ("|" in lines[after].text or lines[after].text.startswith(_GRID)):
        after += 1
    return after


_HEADING = re.compile(
    r"(?P<hashes>#{1,6})[ \t\u3000]+(?P<atx>\S.*)"
    r"|(?P<signs>={1,6})[ \t]*(?P<wiki>[^=\s](?:.*[^=\s])?)[ \t]*(?P=signs)"
)
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_EMPHASIS = re.compile(r"(\*\*|__|`)(.+?)\1")


def _end_of_heading(lines: list[_Line], i: int, *, goes_on: bool) -> tuple[int, int]:
    """The line after the heading that is line i, and its level; i and 0 where it is none.

    A line of dashes below prose that goes on is a rule, not what makes a heading of the last line.
    """
    line = lines[i]
    found = _HEADING.fullmatch(line.text)
    if found and len(line.indent) < 4:
        return i + 1, len(found["hashes"] or found["signs"])
    below = lines[i + 1].text if i + 1 < len(lines) else ""
    if not line.text or not _UNDERLINE.fullmatch(below) or (below[0] == "-" and goes_on):
        return i, 0
    if _RULE.fullmatch(line.text) or _MARKER.match(line.text):
        return i, 0
    return i + 2, 1 if below[0] == "=" else 2


_RULE = re.compile(r"(?:([-*_=~#+─━—–・])[ \t]*)\1(?:[ \t]*\1)+")
_MARKER = re.compile(
    r"[-*+–—][ \t\u3000]+"
    r"|[•‣◦▪▫●○■□◆◇►▶➢✓✔※・･·](?![・･·])\s*"
    r"|[①-⓿❶-➓㉑-㉟㊱-㊿㈠-㈩]\s*"
    r"|[(（](?:[0-9０-９]{1,3}|[A-Za-z]|[ivxIVX]{1,5}|[一二三四五六七八九十]{1,3})[)）]\s*"
    r"|(?P<number>[0-9０-９]{1,3}(?:[.-][0-9]{1,3}){0,4}|[a-z]|[ivx]{1,5}|[IVX]{1,5})"
    r"(?:[)）](?=\D)|[.．](?:[ \t\u3000]+|(?=[^\x00-\x7f０-９])))"
)
_LONE_MARKER = re.compile(
    r"[(（]?(?:[0-9０-９]{1,3}(?:\.[0-9]{1,3}){0,4}|[A-Za-z]|[ivxIVX]{1,5})[)）]?[.．)）]|[-*+•●■・①-⓿]"
)
_STOPS = ".!?。！？｡．…؟۔।॥։።။"
_QUOTES = "\"'”’»)］」』）］】〉》｣*_]"
CJK = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U00020000-\U0003ffff]"
)
_OPEN_ENDING = re.compile(
    r"\b(?:the|an?|of|in|is|are|was|were|and|to|by|for|with|or|at|from|that|which|who|as|on|than|into|its|their|his|her)$"
)
_MAY_GO_ON = re.compile(r"\b\w{1,4}\.$|[.!?…][\"”’»)]+$|…$")  # "e.g.", "Is it?" (he asked), "Well…"
_WIDEST_WRAP = 160  # columns; nobody wraps text by hand wider than this, so a longer line is a paragraph


def _join_wrapped(run: Sequence[_Line]) -> Iterator[Region]:
    """Join the lines that a wrap cut; every other line is a region of its own."""
    margin = max(_width(line.text) for line in run)
    is_finished = _ends_with(run[-1].text, _STOPS)
    start = 0
    for i in range(1, len(run) + 1):
        if i == len(run) or not _goes_on(run[i - 1], run[i], margin, is_finished):
            yield Region(run[start].start, run[i - 1].end, "text")
            start = i


def _goes_on(above: _Line, below: _Line, margin: int, is_finished: bool) -> bool:
    """Say whether the break between two lines of a run is only a wrap.

    Args:
        above: The line before the break.
        below: The line after it.
        margin: The columns of the run's widest line.
        is_finished: Whether the run ends in a full stop, as prose does and lists do not.
    """
    if _LONE_MARKER.fullmatch(above.text):
        return True
    in_list = _MARKER.match(above.text)
    # An indented line opens a paragraph, in Japanese by a full-width space; below a list marker it is a hanging indent.
    is_indented = len(below.indent) > len(above.indent) + 1 or (
        "\u3000" in below.indent and "\u3000" not in above.indent
    )
    is_rule = _RULE.fullmatch(above.text) or _RULE.fullmatch(below.text) or _FENCE.fullmatch(below.text)
    if (is_indented and not in_list) or (above.text[0] == ">") != (below.text[0] == ">") or is_rule:
        return False
    width, letter = _width(above.text), _first_letter(below.text)
    marker = _MARKER.match(below.text)
    if marker:
        # "…at the age of\n45. He then" is a wrapped sentence and not item 45.
        is_wrap = not in_list and width >= 40 and not _ends_with(above.text, _STOPS + ":：")
        if not is_wrap or marker["number"] in (None, "1", "１", "a", "i", "I"):
            return False
    # A full stop may be an abbreviation's: the rules for sentences decide. Every other terminator is final.
    if _ends_with(above.text, _STOPS.replace(".", "") + ":：") or (letter.islower() and _ends_with(above.text, ".")):
        return letter.islower() and width >= 30 and bool(_MAY_GO_ON.search(above.text[-12:]))
    if letter.islower():
        return width >= (12 if is_finished else 30)
    if CJK.match(above.text[-1]) or above.text[-1] in "、，」）" or CJK.match(letter):
        word = re.match(r"[!-~]{1,30}", below.text)
        slack = (len(word[0]) if word else 2) + 4  # 4: a line may end early so that the next starts no "、" or "）"
        is_full = width + slack >= margin and (36 if is_finished else 60) <= width <= _WIDEST_WRAP
        return is_full or (above.text[-1] in "、，をはがにのと" and width >= 30)
    word = re.match(r"\S{1,30}", below.text)
    reach = width + 1 + (_width(word[0]) if word else 0)
    is_full = is_finished and 34 <= width <= _WIDEST_WRAP and reach > 0.85 * margin
    return is_full or (width >= 20 and bool(_OPEN_ENDING.search(above.text[-10:])))


def _ends_with(line: str, characters: str) -> bool:
    return line.rstrip(_QUOTES)[-1:] in tuple(characters)


def _first_letter(line: str) -> str:
    """Return the first letter or digit, looking through quotes and markup, or "-" where the line has none."""
    found = re.match(r"[^\w\s]{0,4}\s?[^\w\s]{0,2}_{0,2}([^\W_])", line)
    return found[1] if found else "-"


def _width(line: str) -> int:
    """Return the columns that a line takes on a terminal; beyond the first 200 characters it makes no difference."""
    return len(line) + len(_WIDE.findall(line[:200]))
