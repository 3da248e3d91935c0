"""Boxes and tabs in dialects of Markdown: notes, warnings, details, a tab per operating system.

The marks of a box state nothing. Its title is the heading of what is in it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from llama_pack_densex.text.layout import Block, Blocks, Line, Lines

CONTAINER_LEVEL = 7
"""The level of a box's title, and of the `<summary>` of `<details>`: below Markdown's six levels."""

_LONGEST_MARK = 500  # characters

# GitHub and Obsidian, in a quotation: [!NOTE], [!tip]- Title
_ALERT = re.compile(r"\[![A-Za-z][^\[\]]*\][+-]?(?:[ \t]+(?P<title>.+))?")
# DocFX: [!INCLUDE [title](file)], [!VIDEO address]; MkDocs: {* file *}
_EMBEDDED = re.compile(r"\[!(?:INCLUDE|VIDEO|code)\b.*[\])]|\{\*.*\*\}", re.IGNORECASE)

# Docusaurus, VitePress, Pandoc, DocFX: :::tip[Title], ::: details Title, ::: {.note}, :::zone-end
_COLONS = re.compile(r":{3,}[ \t]*(?P<name>\{[^{}]*\}|[A-Za-z][A-Za-z\d_-]*|)[ \t]*(?P<rest>.*)")
_LABEL = re.compile(r"\[(?P<title>.+)\](?:[ \t]*\{.*\})?")
_ATTRIBUTE = re.compile(
    r"\b(?:title|label|summary|header|heading|name)=[\"'](?P<title>[^\"'\n]+)[\"']"
)
_UNTITLED = "message"  # Zenn: its kind follows it, as in ":::message alert"

# MkDocs: /// note | Title
_SLASHES = re.compile(r"/{3,}(?:[ \t]+(?P<name>[A-Za-z][\w-]*)(?:[ \t]*\|[ \t]*(?P<title>.+))?)?")

# MkDocs, with indented content: !!! note "Title", ??? tip, === "Tab"
_INDENTED = re.compile(
    r"(?:(?:!!!|\?\?\?\+?)(?=[ \t]+[\w\"])(?:[ \t]+[\w-]+)*|===[+!]?(?=[ \t]+\"))"
    r"(?:[ \t]+\"(?P<title>[^\"]*)\")?"
)

# Hugo, Liquid and Markdoc, alone on a line: {{< note >}}, {% tab title="macOS" %}
_TAGS = re.compile(r"(?:(?:\{%[^{}]*%\}|\{\{[<%][^{}]*[>%]\}\})[ \t]*)+")
_ALONE_QUOTED = re.compile(r"[ \t]*\"(?P<title>[^\"]+)\"[ \t%>]*\Z")
_TAG = re.compile(
    r"\{\{?[<%]-?[ \t]*(?P<closing>/|end(?=\w))?[ \t]*(?P<name>[\w-]*)(?P<rest>[^{}]*)"
)

# MyST: ```{note} Title. Its other directives are code.
_DIRECTIVE = re.compile(
    r"(?P<fence>`{3,}|~{3,})\{(?:note|tip|hint|important|attention|caution|warning|danger|error|seealso"
    r"|admonition|dropdown|card|tab-item|tab-set|grid|grid-item|grid-item-card|margin|sidebar|topic)\}"
    r"[ \t]*(?P<title>.*)"
)
_OPTION = re.compile(r":[\w-]+:(?:[ \t].*)?")
_FENCE = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")

_ENDS_SENTENCE = (".", "。", "!", "！")  # a question may be a title

_ALERT_BOX = ">"
_COLON_BOX = ":::"
_INDENTED_BOX = "!!!"
_SLASH_BOX = "///"
_WITH_OPTIONS = ("`", "~", _COLON_BOX)  # MyST's
_MOST_OPEN = 20  # boxes within one another


_Match = re.Match[str]
"""A line that a pattern matches."""


class _Mark(NamedTuple):
    """What a line says about a box.

    Args:
        box: What the lines that begin and end the box have in common: a tag's name, the fence of a directive,
            or one of the constants above. Empty if it has no content.
        title: The title of the box that the line begins.
        ends: Whether the line ends a box.
    """

    box: str
    title: str = ""
    ends: bool = False


@dataclass
class _Box:
    """A box that a line begins, or a line that ends one.

    Args:
        mark: What the line says.
        line: The line.
        end: Where the box ends, in characters; None if nothing ends it.
    """

    mark: _Mark
    line: Line
    end: int | None = None

    def is_left_at(self, line: Line) -> bool:
        """Return whether a line is outside a box that no mark has to end."""
        if self.mark.box == _ALERT_BOX:
            return self.line.is_quoted and not line.is_quoted
        return self.mark.box == _INDENTED_BOX and _depth(line) <= _depth(self.line)

    @property
    def blocks(self) -> Blocks:
        """The line as a heading, or nothing; a title that is a sentence is prose."""
        start = self.line.start
        end = self.line.end
        title = self.mark.title
        is_picture = self.mark.box.isidentifier() and self.end is None  # a tag without an end
        if not title or is_picture:
            return [Block(start, end, "nothing")]
        if not title.endswith(_ENDS_SENTENCE):
            return [Block(start, end, "heading", CONTAINER_LEVEL, until=self.end)]
        mark, _, closing = self.line.text.rpartition(title)
        title_end = end - len(closing)
        blocks = [
            Block(start, start + len(mark.rstrip()), "nothing"),
            Block(title_end - len(title), title_end, "prose"),
        ]
        if closing:
            blocks.append(Block(title_end, end, "nothing"))
        return blocks


def title_of(line: str) -> str:
    """Return the title that a line gives to a box as its heading; empty if it gives none."""
    mark = _read_mark(line)
    if mark is None or mark.title.endswith(_ENDS_SENTENCE):
        return ""
    return mark.title


def begins_box(line: str) -> bool:
    """Return whether a line begins a box."""
    mark = _read_mark(line)
    return mark is not None and not mark.ends and mark.box != ""


def find_containers(lines: Lines) -> Iterator[Blocks]:
    """Find the lines that begin and end boxes.

    Args:
        lines: The lines of a text that are not blank.

    Yields:
        Each of these lines as the heading of a box, or as nothing.
    """
    for box in _Reader(lines).read():
        yield box.blocks


class _Reader:
    """Reads the marks of a text.

    Args:
        lines: Its lines that are not blank.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._open = deque[_Box](maxlen=_MOST_OPEN)  # the outermost first
        self._code = ""  # the fence of the code that a line is in
        self._may_be_option = False  # behind the first line of a directive

    def read(self) -> list[_Box]:
        """Return the lines that are marks."""
        marks: list[_Box] = []
        for place, line in enumerate(self._lines):
            if self._code:
                self._code = fence_below(line.text, self._code)
                continue
            while self._open and self._open[-1].is_left_at(line):
                self._open.pop().end = line.start
            mark = self._mark_at(place)
            if mark is None:
                self._code = fence_below(line.text)
                continue
            marks.append(_Box(mark, line))
            if mark.ends:
                self._end(mark.box, line.start)
            elif mark.box:
                self._open.append(marks[-1])
        return marks

    def _mark_at(self, place: int) -> _Mark | None:
        line = self._lines[place]
        is_option = self._may_be_option and _OPTION.fullmatch(line.text) is not None
        self._may_be_option = is_option
        if is_option:
            return _Mark("")
        for box in reversed(self._open):
            if closes_fence(line.text, box.mark.box):
                return _Mark(box.mark.box, ends=True)
        mark = _read_mark(line.text)
        if mark is None:
            return None
        self._may_be_option = mark.box.startswith(_WITH_OPTIONS)
        below = self._lines[place + 1 : place + 2]  # empty where a passage was cut
        if mark.box == _INDENTED_BOX and below and _depth(below[0]) <= _depth(line):
            return None
        return mark

    def _end(self, name: str, place: int) -> None:
        """End the innermost box of a name, and those within it."""
        while name in [box.mark.box for box in self._open]:
            box = self._open.pop()
            box.end = place
            if box.mark.box == name:
                return


def _depth(line: Line) -> int:
    return len(line.indent.expandtabs(4))


def fence_below(text: str, fence: str = "") -> str:
    """Return the fence of the code that goes on below a line; empty if none does.

    Args:
        text: The line.
        fence: The fence of the code that the line is in; empty if it is in none.
    """
    if fence:
        return "" if closes_fence(text, fence) else fence
    begun = _FENCE.match(text)
    return begun[0] if begun else ""


def closes_fence(text: str, fence: str) -> bool:
    """Return whether a line ends what began with a fence."""
    return fence[:1] in ("`", "~") and text.startswith(fence) and not text.strip(fence[0])


def _read_mark(text: str) -> _Mark | None:
    """Return what a line says about a box; None if it is text."""
    if len(text) > _LONGEST_MARK:
        return None
    for pattern, read in _READERS:
        match = pattern.fullmatch(text)
        if match:
            return read(match)
    return None


def _read_tags(line: _Match) -> _Mark:
    """Return what a line of tags says, by the last of them."""
    *_, tag = _TAG.finditer(line[0])
    if tag["closing"]:
        return _Mark(tag["name"], ends=True)
    title = _ATTRIBUTE.search(tag["rest"]) or _ALONE_QUOTED.match(tag["rest"])
    return _Mark(tag["name"], title["title"] if title else "")


def _read_titled(box: str, line: _Match) -> _Mark:
    return _Mark(box, line["title"] or "")


def _read_colons(line: _Match) -> _Mark | None:
    name = line["name"]
    rest = line["rest"]
    if rest.endswith(_COLON_BOX):  # on one line, as DocFX's pictures are
        return _Mark("")
    if name.endswith("-end") or not name + rest:
        return _Mark(_COLON_BOX, ends=True)
    label = _LABEL.fullmatch(rest) or _ATTRIBUTE.search(name + rest)
    if label:
        return _Mark(_COLON_BOX, label["title"])
    if rest.endswith(_ENDS_SENTENCE) and not name.startswith("{"):
        return None  # "::: is a mark."
    if _is_title(name, rest):
        return _Mark(_COLON_BOX, rest)
    return _Mark(_COLON_BOX)


def _is_title(name: str, rest: str) -> bool:
    """Return whether what follows the name of a box is its title, not its kind or attributes."""
    return name != _UNTITLED and "=" not in rest and not rest.startswith("{")


def _read_slashes(line: _Match) -> _Mark:
    return _Mark(_SLASH_BOX, line["title"] or "", ends=line["name"] is None)


def _read_directive(line: _Match) -> _Mark:
    return _Mark(line["fence"], line["title"])


_READERS: tuple[tuple[re.Pattern[str], Callable[[_Match], _Mark | None]], ...] = (
    (_EMBEDDED, lambda line: _Mark("")),
    (_TAGS, _read_tags),
    (_ALERT, partial(_read_titled, _ALERT_BOX)),
    (_COLONS, _read_colons),
    (_SLASHES, _read_slashes),
    (_DIRECTIVE, _read_directive),
    (_INDENTED, partial(_read_titled, _INDENTED_BOX)),
)
"""What reads a line that a pattern matches, in this order."""
