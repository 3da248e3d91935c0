"""From text to regions: headings, tables and code, and the lines that are one wrapped stretch of prose."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Region:
    """A stretch of text without surrounding white space; one of kind "text" is still to be split into sentences."""

    start: int
    end: int
    kind: Literal["text", "heading", "block"]


def find_regions(text: str) -> list[Region]:
    """Split a text into regions that cover every character that is not white space, in order."""
    lines = _find_lines(text)
    fences, elements = _pair_fences(lines), _pair_elements(text)
    regions = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if not line.text:
            i += 1
        elif line.start in elements:
            end = elements[line.start]
            regions.append(Region(line.start, end, "block"))
            while i < len(lines) and lines[i].end <= end:
                i += 1
            if i < len(lines) and lines[i].start < end:
                lines[i] = _rest_of_line(text, lines[i], end)
        else:
            after, kind = _measure_block(lines, i, fences)
            if kind == "text":
                after = _end_of_run(lines, i)
                regions += _join_wrapped(lines[i:after])
            else:
                last = next(n for n in range(after - 1, i - 1, -1) if lines[n].text)
                regions.append(Region(line.start, lines[last].end, kind))
            i = after
    return regions


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


def _rest_of_line(text: str, line: _Line, start: int) -> _Line:
    rest = text[start : line.end].lstrip()
    return _Line(line.end - len(rest), line.end, rest, "")


_FENCE = re.compile(r"(`{3,}(?!`)|~{3,}(?!~))([^`]*)")


def _pair_fences(lines: list[_Line]) -> dict[int, int]:
    """Map the line of each opening fence to the line after its block.

    A fence that names a language and is never closed runs to the end, as in CommonMark. A bare one that is never
    closed is more likely the closing fence of a block whose beginning was cut off: it stands for itself.
    """
    found = [(i, fence) for i, line in enumerate(lines) if (fence := _FENCE.fullmatch(line.text))]
    bare: dict[str, list[int]] = {"`": [], "~": []}
    for i, fence in found:
        if not fence[2]:
            bare[fence[1][0]].append(i)
    blocks: dict[int, int] = {}
    free = 0
    for i, fence in found:
        if i < free:
            continue
        candidates = bare[fence[1][0]]
        below = (candidates[k] for k in range(bisect_right(candidates, i), len(candidates)))
        closing = (n for n in below if len(lines[n].text) >= len(fence[1]))
        free = next(closing, len(lines) - 1 if fence[2] else i) + 1
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


_SETEXT = re.compile(r"={3,}|-{3,}")
_ATX = re.compile(r"#{1,6}(?:\s|$)")


def _measure_block(
    lines: list[_Line], i: int, fences: dict[int, int]
) -> tuple[int, Literal["text", "heading", "block"]]:
    """Return the line after the block or heading that begins at line i, and its kind ("text" where none begins)."""
    line = lines[i].text
    below = lines[i + 1].text if i + 1 < len(lines) else ""
    if i in fences:
        return fences[i], "block"
    starts_table = _is_table_rule(below) or (line[0] in "|+" and below[:1] in ("|", "+"))
    if starts_table and _is_table_row(line) and _is_table_row(below):
        after = i + 2
        while after < len(lines) and _is_table_row(lines[after].text):
            after += 1
        return after, "block"
    if _ATX.match(line) or _is_wiki_heading(line):
        return i + 1, "heading"
    is_front_matter = below[:1] == "-" and _FIELD.match(line)  # "date: 2024", and the "---" that closes it
    if _SETEXT.fullmatch(below) and not _RULE.fullmatch(line) and not _MARKER.match(line) and not is_front_matter:
        return i + 2, "heading"
    return i + 1, "text"


def _is_table_row(line: str) -> bool:
    return "|" in line or (line[:2] in ("+-", "+=") and line[-1] == "+")


def _is_table_rule(line: str) -> bool:
    return "-" in line and not line.strip("|:- \t")


def _is_wiki_heading(line: str) -> bool:
    return line.startswith("==") and line.endswith("==") and bool(line.strip("= \t"))


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


def _end_of_run(lines: list[_Line], i: int) -> int:
    """Return the line after the plain lines that start at line i: a list item, a heading or a blank line ends them."""
    rule = _RULE.fullmatch(lines[i].text)
    in_list = _MARKER.match(lines[i].text)
    after = i + 1
    while not rule and after < len(lines) and lines[after].text:
        line, above = lines[after].text, lines[after - 1].text
        marker = _MARKER.match(line)
        if marker:
            # "…at the age of\n45. He then" is a wrapped sentence and not item 45.
            is_wrap = marker["number"] and not in_list and _width(above) >= 40 and not _ends_with(above, _STOPS + ":：")
            if not is_wrap or marker["number"] in ("1", "１", "a", "i", "I"):
                break
        if _RULE.fullmatch(line) or _ATX.match(line) or _is_wiki_heading(line) or _FENCE.fullmatch(line):
            break
        if _TAG.match(line) or (_is_table_row(line) and line[0] in "|+"):
            break
        below = lines[after + 1].text if after + 1 < len(lines) else ""
        if "|" in line and "|" in below and _is_table_rule(below):
            break
        if not marker and _SETEXT.fullmatch(below) and (not _is_full_line(above) or "=" in below):
            break
        after += 1
    return after


def _join_wrapped(run: list[_Line]) -> Iterator[Region]:
    """Join the lines that a wrap cut; every other line is a region of its own."""
    shape = _Shape.of(run)
    start = 0
    for i in range(1, len(run) + 1):
        if i == len(run) or not _goes_on(run[i - 1], run[i], shape, first=i == 1):
            yield Region(run[start].start, run[i - 1].end, "text")
            start = i


_STOPS = ".!?。！？｡．…؟۔।॥։።"
_QUOTES = "\"'”’»)]」』）］】〉》｣*_"
CJK = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U00020000-\U0003ffff]"
)
_OPEN_ENDING = re.compile(
    r"\b(?:the|an?|of|in|is|are|was|were|and|to|by|for|with|or|at|from|that|which|who|as|on|than|into|its|their|his|her)$"
)
_MAY_GO_ON = re.compile(r"\b\w{1,4}\.$|[.!?…][\"”’»)]+$|\.\.$|…$")  # "e.g.", "Is it?" (he asked), "Well..."
_FIELD = re.compile(r"[^\s:：][^:：]{0,30}[:：](?!//)")
_WIDEST_WRAP = 160  # columns; nobody wraps text by hand wider than this, so a longer line is a paragraph


@dataclass(frozen=True)
class _Shape:
    """What a run of lines looks like as a whole, which tells prose wrapped at a margin from verse and lists."""

    width: int  # in columns
    length: int  # in characters: some wrap by these
    full_lines: int
    is_verse: bool
    is_finished: bool

    @classmethod
    def of(cls, run: list[_Line]) -> _Shape:
        widths = [_width(line.text) for line in run]
        widest = max(widths)
        return cls(
            width=widest,
            length=max(len(line.text) for line in run),
            full_lines=sum(width >= 0.8 * widest for width in widths[:-1]),
            is_verse=len(run) > 2 and widest <= 60 and all(_first_letter(line.text).isupper() for line in run),
            is_finished=_ends_with(run[-1].text, _STOPS),
        )


def _goes_on(above: _Line, below: _Line, shape: _Shape, *, first: bool) -> bool:
    """Say whether the break between two lines of a run is only a wrap."""
    if _LONE_MARKER.fullmatch(above.text):
        return True
    in_list = first and _MARKER.match(above.text)
    # An indented line opens a paragraph, in Japanese by a full-width space; below a list marker it is a hanging indent.
    if "\u3000" in below.indent and "\u3000" not in above.indent and not in_list:
        return False
    if len(below.indent) > len(above.indent) + 1 and not in_list:
        return False
    if _FIELD.match(above.text) and _FIELD.match(below.text):
        return False
    if (above.text[0] == ">") != (below.text[0] == ">"):
        return False
    width, letter = _width(above.text), _first_letter(below.text)
    if letter.islower():
        if _ends_with(above.text, _STOPS + ":："):
            return width >= 30 and bool(_MAY_GO_ON.search(above.text[-12:]))
        return width >= 30 or (width >= 12 and shape.is_finished)
    # A full stop may be an abbreviation's: the rules for sentences decide. Every other terminator is final.
    if _ends_with(above.text, _STOPS.replace(".", "")) or (_ends_with(above.text, ":：") and shape.full_lines < 2):
        return False
    if CJK.match(above.text[-1]) or above.text[-1] in "、，」）" or CJK.match(letter):
        if above.text[-1] in "、，をはがにのと" and width >= 30:
            return True
        word = re.match(r"[!-~]{1,30}", below.text)
        slack = (len(word[0]) if word else 2) + 4  # 4: a line may end early so that the next starts no "、" or "）"
        is_full = width + slack >= shape.width or len(above.text) + slack >= shape.length
        is_prose = shape.full_lines > 1 or shape.is_finished
        return is_full and (36 if is_prose else 60) <= width <= _WIDEST_WRAP
    if width >= 20 and _OPEN_ENDING.search(above.text[-10:]):
        return True
    word = re.match(r"\S{1,30}", below.text)
    reach = width + 1 + (_width(word[0]) if word else 0)
    is_prose = shape.full_lines > 1 and shape.is_finished
    is_margin = (34 if is_prose else 45) <= width <= _WIDEST_WRAP and reach > 0.85 * shape.width
    return is_margin and not shape.is_verse and not (first and letter.isupper() and _is_title(above.text))


def _is_full_line(line: str) -> bool:
    return _width(line) >= 40 and not _ends_with(line, _STOPS)


def _is_title(line: str) -> bool:
    words = re.findall(r"[^\W\d_]{4,}", line[:200])
    return "," not in line and len(words) > 2 and sum(word[0].isupper() for word in words) >= 0.7 * len(words)


def _ends_with(line: str, characters: str) -> bool:
    return line.rstrip(_QUOTES)[-1:] in tuple(characters)


def _first_letter(line: str) -> str:
    """Return the first letter or digit, looking through quotes and markup, or "-" where the line has none."""
    found = re.match(r"[^\w\s]{0,4}\s?[^\w\s]{0,2}_{0,2}([^\W_])", line)
    return found[1] if found else "-"


def _width(line: str) -> int:
    """Return the columns that a line takes on a terminal; beyond the first 200 characters it makes no difference."""
    return len(line) + len(_WIDE.findall(line[:200]))
