"""Puts the text of a PDF's pages together: sentences over columns and pages, split words, and code.

The lines of pages are marked while their positions and fonts are known, and the marks are read here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from textwrap import dedent

from llama_pack_densex.reading.pdf_headings import Font, body_font, count_fonts, without_marks
from llama_pack_densex.reading.pdf_lines import HYPHENS
from llama_pack_densex.reading.pdf_paragraphs import NAMED, TextLine, joint
from llama_pack_densex.text.plain import LIST_MARKER, line_width
from llama_pack_densex.text.sentences import STOPS, WIDE, split_sentences

OPEN = "\U000ffff0"
"""The mark at the end of a line that reaches the margin, and may continue in the next column or page."""
NOTE = "\U000ffff1"
"""The mark of a line that is smaller than the page's text: of a footnote, a caption or a figure."""
CODE = "\U000ffff2"
"""The mark of a line of code, whose indentation follows."""

_MUCH_SMALLER = 1.05
_TURNED = 0.2  # heights of a line; letters are wider, unless they are turned
_SHORTEST = 30  # columns; shorter lines are parts of figures
_LONGEST_LABEL = 40  # columns
_LONG = 60  # columns; more than a line of a column
_FARTHEST = 2  # pages; those between may have figures only
_MOST_RUNNING = 2  # lines at the top of a page
_FIGURE = re.compile(f"{NOTE}?(?:Fig(?:ure|\\.)|図) ?\\d")
_CAPTION = re.compile(r"(?:Fig(?:ure|\.)|Table|Algorithm|Listing|図|表) ?\d")
_OPEN_ENDING = re.compile(r"(?:,|\b(?:the|an?|of|in|to|and|or|with|by|for|from|is|are|that))$")


def mark_lines(
    lines: Sequence[TextLine], fonts: Mapping[int, Font], joints: Container[int]
) -> dict[int, str]:
    """Return the marks of the lines of a page that are notes or code, by where they start.

    Args:
        lines: The lines.
        fonts: Their fonts, by where they start.
        joints: Where lines start that continue the line above.
    """
    if not lines:
        return {}
    size = body_font(count_fonts(lines, fonts)).size
    first = [line for line in lines if line.start not in joints]
    notes = [
        line.start
        for line in first
        if line.letter_width < _TURNED or _MUCH_SMALLER * fonts[line.start].size < size
    ]
    # code is not wrapped
    continued = {above.start for above, below in pairwise(lines) if below.start in joints}
    code = [line for line in first if line.start not in continued and fonts[line.start].is_code]
    return dict.fromkeys(notes, NOTE) | _code_marks(code)


def _code_marks(lines: Sequence[TextLine]) -> dict[int, str]:
    if not lines:
        return {}
    width = median(line.first_word / len(line.text.split(maxsplit=1)[0]) for line in lines)
    return {line.start: CODE + " " * round(line.box.left / width) for line in lines}


def join_sentences(pages: Iterable[str]) -> list[str]:
    """Put the end of each sentence that another column or page breaks behind its beginning.

    What is between them (footnotes, figures, tables) comes after it.
    """
    lines = [_with_joined_labels(page.split("\n")) for page in pages]
    for number, page in enumerate(lines):
        place = 0
        while place < len(page):
            if not _is_open(page[place]) or not _join(lines, number, place):
                place += 1
    return ["\n".join(page).replace(OPEN, "") for page in lines]


def _with_joined_labels(lines: Iterable[str]) -> list[str]:
    """Return lines with the short ones above the caption of a figure, which are its labels, as one."""
    kept: list[str] = []
    for line in lines:
        labels: list[str] = []
        while _FIGURE.match(line) and kept and _is_label(kept[-1], _LONGEST_LABEL):
            labels.insert(0, without_marks(kept.pop()).strip())
        if labels:
            kept += [NOTE + " ".join(labels), ""]
        kept.append(line)
    return kept


def _is_label(line: str, longest: int = _SHORTEST) -> bool:
    text = line.removeprefix(NOTE)
    is_plain = without_marks(text[:1]) not in ("", "|")
    return is_plain and line_width(text) < longest and text[-1] not in STOPS


def _is_open(line: str) -> bool:
    return line.endswith(OPEN) and line[0] != CODE and line_width(line) >= _SHORTEST


def _join(lines: Sequence[list[str]], number: int, place: int) -> bool:
    """Join a line with the one that continues it; return whether there is one."""
    above = lines[number][place].removesuffix(OPEN)
    for other, below in _places_after(lines, number, place):
        line = lines[other][below]
        if _continues(above, line):
            end = len(line) if other == number else split_sentences(line)[0][1]
            rest = line[end:].lstrip()
            text = line[:end].removeprefix(NOTE)
            lines[number][place] = f"{above}{joint(above, text)}{text}"
            lines[other][below : below + 1] = [rest] if rest else []
            return True
        is_running = other > number and below < _MOST_RUNNING
        if not is_running and not _may_be_between(above, line):
            return False
    return False


def _places_after(lines: Sequence[list[str]], number: int, place: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the pages and lines after a line, those of the next pages too."""
    for other in range(number, min(number + _FARTHEST + 1, len(lines))):
        for below in range(place + 1 if other == number else 0, len(lines[other])):
            yield other, below


def _is_note(line: str) -> bool:
    return line.startswith(NOTE)


def _continues(above: str, below: str) -> bool:
    """Return whether a line may continue a sentence that ends within it."""
    text = below.removeprefix(NOTE)
    if _is_note(above) != _is_note(below) or without_marks(text[:1]) in ("", "|", "#"):
        return False
    if LIST_MARKER.match(text) or _CAPTION.match(text) or _is_label(text):
        return False
    if NAMED.match(above.removeprefix(NOTE)) and NAMED.match(text):
        return False
    if WIDE.match(above[-1]):
        return WIDE.match(text) is not None
    if text[0].islower():
        return True
    is_long = line_width(text) >= _LONG and not _CAPTION.match(above.removeprefix(NOTE))
    return is_long and _OPEN_ENDING.search(above[-8:]) is not None


def _may_be_between(above: str, below: str) -> bool:
    """Return whether a line may stand between the parts of a sentence: a note, or part of a figure."""
    if below.startswith(CODE):
        return above.endswith(HYPHENS)
    if not below or below[0] == "|" or _is_note(below) != _is_note(above):
        return True
    return _CAPTION.match(below) is not None or _is_label(below)


_SPLIT_WORD = re.compile(r"([\w-]*)[\x02\ufffe](\n?)(([\w-]*)\S*)( ?)")
_WORD = re.compile(r"\w+(?:-\w+)*(?![\w\x02\ufffe-])")


def join_words(pages: Sequence[str]) -> list[str]:
    """Join words that are split at line ends; those with a hyphen elsewhere in the document keep it."""
    counts = Counter(word for page in pages for word in _WORD.findall(page.casefold()))

    def joined(match: re.Match[str]) -> str:
        first, line_end, rest, last, space = match.groups()
        solid = counts[f"{first}{last}".casefold()]
        hyphenated = counts[f"{first}-{last}".casefold()]
        is_compound = "-" in first or not last[:1].islower()
        hyphen = "-" if (hyphenated, is_compound) > (solid, False) else ""
        return f"{first}{hyphen}{rest}{line_end or space}"

    return [_SPLIT_WORD.sub(joined, page) for page in pages]


_MOST_CODE = 0.8  # share of a document's characters; of more, the font is that of all text
_CODE_LINES = re.compile(f"(?m)(?:^{CODE}.*\\n?)+")


def fence_code(pages: Sequence[str]) -> list[str]:
    """Return pages with their code as fenced blocks, with its indentation."""
    code = [_CODE_LINES.findall(page) for page in pages]
    length = sum(len(re.sub(r"\s", "", block)) for blocks in code for block in blocks)
    is_text = length > _MOST_CODE * sum(len(re.sub(r"\s", "", page)) for page in pages)

    def fenced(match: re.Match[str]) -> str:
        if is_text:
            return re.sub(f"(?m)^{CODE} *", "", match[0])
        lines = dedent(match[0].replace(CODE, "")).rstrip("\n")
        return f"\n```\n{lines}\n```\n"

    return [_CODE_LINES.sub(fenced, page) for page in pages]
