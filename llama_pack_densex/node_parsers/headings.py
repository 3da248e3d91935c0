"""Headings of a document, and the section that a place in it belongs to."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

# ATX headings of Markdown up to three spaces in (CommonMark 4.2), and wiki headings with as many signs on both sides.
_HEADING = re.compile(
    r"^(?P<fence> {0,3}(?:```|~~~))|^ {0,3}(?P<hashes>#{1,6})[ \t　]+(?P<atx>\S[^\n]*)"
    r"|^(?P<signs>={1,6})[ \t]*(?P<wiki>[^=\s](?:[^\n]*[^=\s])?)[ \t]*(?P=signs)[ \t]*\r?$",
    re.MULTILINE,
)
_CLOSING_HASHES = re.compile(r"[ \t]+#+[ \t]*$")
_EMPHASIS = re.compile(r"(\*\*|__|`)(.+?)\1")


@dataclass(frozen=True)
class Heading:
    """A heading: where its line starts and ends, its level (1 is outermost), its text without markup."""

    start: int
    end: int
    level: int
    text: str


class Outline:
    """The headings of one document.

    Args:
        text: The document's text; Markdown (`# …`) and wiki (`== … ==`) headings are found, outside fenced code.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.headings = find_headings(text)
        self._starts = [heading.start for heading in self.headings]

    def section_at(self, start: int, end: int) -> str:
        """The headings above a passage, outermost first, joined by ", ".

        A passage that begins with headings belongs under them; further headings inside it do not count.

        Args:
            start: Where the passage starts, in characters.
            end: Where it ends.
        """
        while start < end and (heading := self._heading_at(start)) is not None:
            start = heading.end
        path: list[Heading] = []
        # a passage of headings alone belongs to the section that its last heading opens
        for heading in self.headings[: bisect_right(self._starts, min(start, end - 1))]:
            while path and path[-1].level >= heading.level:
                path.pop()
            path.append(heading)
        return ", ".join(heading.text for heading in path)

    def _heading_at(self, start: int) -> Heading | None:
        while start < len(self._text) and self._text[start].isspace():
            start += 1
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and self.headings[index].start <= start < self.headings[index].end:
            return self.headings[index]
        return None


def find_headings(text: str) -> list[Heading]:
    """Find the Markdown and wiki headings of a text, in order, leaving out what stands in fenced code."""
    headings: list[Heading] = []
    in_code = False
    for match in _HEADING.finditer(text):
        if match["fence"] is not None:
            in_code = not in_code
        elif not in_code:
            level = len(match["hashes"] or match["signs"])
            title = _CLOSING_HASHES.sub("", (match["atx"] or match["wiki"]).strip())
            start = match.start() + len(match[0]) - len(match[0].lstrip(" "))
            headings.append(Heading(start, match.end(), level, _EMPHASIS.sub(r"\2", title)))
    return headings
