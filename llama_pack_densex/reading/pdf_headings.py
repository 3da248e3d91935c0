"""Finds the headings of a PDF: by its tags, or by the fonts of its lines against that of most of its text.

A page is read before the fonts of the whole document are known. So lines that may be headings are marked
with their font (or the level that a tag gives them) first, and the marks are replaced at the end.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, starmap
from statistics import median_low, quantiles
from typing import NamedTuple

from llama_pack_densex.reading.pdf_lines import Box
from llama_pack_densex.reading.pdf_paragraphs import TextLine, step
from llama_pack_densex.reading.tables import runs
from llama_pack_densex.text.sentences import STOPS, WIDE
from llama_pack_densex.text.tokens import LEADER, on_one_line


class Font(NamedTuple):
    """The font of a line.

    Args:
        size: Its size, in half points.
        weight: 0 for a regular one, 1 for a Gothic one, which stands out from Mincho, and 2 for a bold one.
        is_code: Whether it is one for code.
    """

    size: int
    weight: int
    is_code: bool = False

    def stands_out_from(self, body: Font) -> bool:
        """Return whether a heading may have it above text in another font."""
        if self.is_code:
            return self.size > _LARGER_CODE * body.size
        if self.size > _LARGER * body.size:
            return True
        return self.size > body.size / _LARGER and self.weight > body.weight


_LARGER = 1.05
_LARGER_CODE = 1.15
_MOST_LINES = 3
_LONGEST = 150  # characters
_NEXT_LINE = 1.7  # times the size of characters, from one line of a heading to the next
_MORE_SPACE = 1.1  # times the usual distance of lines, above a heading no larger than the text
_NEAR = 3  # lines
_BESIDE = 4.0  # times the size of characters; text that is nearer belongs to a label
_INDENT = 1.0  # of all lines below a term; of a paragraph, only the first one has it
_MOST_BELOW_TERM = 4  # lines
_WIDEST_SPACE = 0.7  # times the size of characters, behind the number of a heading aside

_FIRST_MARK = 0x100000  # of private use
_CONTINUES = chr(_FIRST_MARK)
_FIRST_FONT = 16
_PAGE_END = "\U0010fffd"
_MARKS = re.compile("[\U000ffff0-\U000ffff2\U00100000-\U0010fffd]")
_REST = f"[^\n{_PAGE_END}]*"
_MARKED = re.compile(
    f"(?<![^\n{_PAGE_END}])([\U00100001-\U0010fffc])({_REST}(?:\n{_CONTINUES}{_REST})*)"
)


def tag_mark(level: int) -> str:
    """Return the mark of a line that a tag makes a heading."""
    return chr(_FIRST_MARK + level)


def _font_mark(font: Font) -> str:
    return chr(_FIRST_MARK + _FIRST_FONT + 4 * font.size + font.weight)


def without_marks(text: str, replacement: str = "") -> str:
    """Remove or replace the marks in a text."""
    return _MARKS.sub(replacement, text)


def with_mark_of(above: str, line: str) -> str:
    """Return a line that begins a heading if it continued the one that a removed line above it began."""
    is_rest = line.startswith(_CONTINUES) and _MARKS.match(above)
    return above[0] + line[1:] if is_rest else line


_NUMBER = r"(?:[\dA-Z]{1,3}(?:\.\d{1,3})+|\d{1,2})\.?"
_NUMBERED = re.compile(rf"{_NUMBER}[\s\u3000]+|第.{{1,5}}[編部章節条]\s*|Chapter ")
_SPACE = re.compile(r"\S\s+\S")
# Captions, amounts behind their names, and units.
_NO_HEADING = re.compile(
    r"(?i)[(（][^()（）]*[)）]\Z|"
    r"(?:fig(?:ure|ura|\.)|table|tab(?:elle|leau|la|\.)|listing|abb(?:ildung|\.)|図|表|写真)"
    r"[\s\u3000]*[A-Z]?[.-]?[\d０-９]|[^\d:：]+[:：]\s*[€$£¥￥]?\d"
)
_ENTRY = re.compile(r"\s[\divx]{1,4}$")  # of a table of contents
_BULLETS = "-*+–—•‣◦▪▫●○▶➢✓✔・･·※"
_ENDS_NO_HEADING = "".join(set(STOPS) - set("?？")) + ":：;；、，,"
_LEAST_LETTERS = 0.4  # share of a heading's characters


def _may_be_heading(text: str) -> bool:
    """Return whether a text looks like a heading, and not like a sentence, caption, item or date."""
    if len(text) > _LONGEST or text[0] in _BULLETS or text[-1] in _ENDS_NO_HEADING:
        return False
    if _NO_HEADING.match(text) or re.search(LEADER, text) or "@" in text or "://" in text:
        return False
    letters = sum(map(str.isalpha, text))
    return letters >= max(2, _LEAST_LETTERS * len(re.sub(r"\s", "", text)))


# Candidates on a page


def mark_headings(
    text: str,
    lines: Sequence[TextLine],
    box_at: Callable[[int], Box],
    fonts: Mapping[int, Font],
    body: Font,
) -> dict[int, str]:
    """Return the marks of the lines of a page that may be headings by their font, by where they start.

    Args:
        text: The page's text.
        lines: Its lines.
        box_at: Returns the box of the character at a place.
        fonts: The fonts of the lines, by where they start.
        body: The font of most of the page, with its tables.
    """
    marks: dict[int, str] = {}
    page = _Page(text, lines, box_at, fonts)
    for group in runs(lines, page.goes_on):
        font = fonts[group[0].start]
        if font.stands_out_from(body) and page.is_apart(group):
            marks |= {line.start: _CONTINUES for line in group}
            marks[group[0].start] = _font_mark(font)
    return marks


def count_fonts(lines: Iterable[TextLine], fonts: Mapping[int, Font]) -> Counter[Font]:
    """Return how many characters there are in each font."""
    counts: Counter[Font] = Counter()
    for line in lines:
        counts[fonts[line.start]] += len(line.text)
    return counts


def body_font(counts: Counter[Font]) -> Font:
    """Return the font of most of a text, code aside."""
    return max(counts, key=lambda font: (not font.is_code, counts[font]))


def is_apart(marks: Mapping[int, str], above: TextLine, below: TextLine) -> bool:
    """Return whether one of two lines may be a heading, and not both lines of the same."""
    mark = marks.get(below.start)
    return mark != _CONTINUES if mark else above.start in marks


def font_of(text: str, line: TextLine, font_at: Callable[[int], Font]) -> Font:
    """Return the font of a line; it is as bold as its least bold part, Latin letters in Japanese aside."""
    places = (line.start, (line.start + line.end) // 2, line.end - 1)
    fonts = {place: font_at(place) for place in places if not text[place].isspace()}
    wide = [place for place in fonts if WIDE.match(text[place])]
    size = median_low(font.size for font in fonts.values())
    weight = min(fonts[place].weight for place in wide or fonts)
    return Font(size, weight, all(font.is_code for font in fonts.values()))


@dataclass
class _Page:
    text: str
    lines: Sequence[TextLine]
    box_at: Callable[[int], Box]
    fonts: Mapping[int, Font]

    @cached_property
    def usual_step(self) -> float:
        """The usual distance of its lines."""
        pairs = [pair for pair in pairwise(self.lines) if not self._is_code(pair[1])]
        usual = [1.2, *(size for size in starmap(step, pairs) if 0.5 < size < 3)]
        return quantiles(usual, n=4)[0] if len(usual) > 1 else usual[0]

    def _is_code(self, line: TextLine) -> bool:
        return self.fonts[line.start].is_code

    def goes_on(self, run: Sequence[TextLine], line: TextLine) -> bool:
        """Return whether a line may continue a heading."""
        above = run[-1]
        if self.fonts[line.start] != self.fonts[above.start] or _NUMBERED.match(line.text):
            return False
        return 0.5 < step(above, line) < _NEXT_LINE

    def is_apart(self, group: Sequence[TextLine]) -> bool:
        """Return whether lines look like a heading, and stand alone."""
        text = " ".join(line.text for line in group)
        if len(group) > _MOST_LINES or not _may_be_heading(text):
            return False
        if any(self._has_gap(line) or self._has_beside(line) for line in group):
            return False
        first = self.lines.index(group[0])
        below = self.lines[first + len(group) :]
        size = self.fonts[group[0].start].size
        if below and size > _LARGER * self.fonts[below[0].start].size:
            return True
        return not self._is_term(group[0], below) and self._has_space_above(first)

    def _is_term(self, line: TextLine, below: Sequence[TextLine]) -> bool:
        """Return whether a line is a term above its definition, all lines of which are indented."""
        prose = [line.box.left for line in below if not self._is_code(line)][:_MOST_BELOW_TERM]
        return min(prose, default=0) - line.box.left > _INDENT * line.box.size

    def _has_space_above(self, number: int) -> bool:
        line = self.lines[number]
        above = self.lines[number - 1]
        is_at_top = number == 0 or above.box.top > line.box.top  # of the page, or of a column
        return is_at_top or step(above, line) > _MORE_SPACE * self.usual_step

    def _has_gap(self, line: TextLine) -> bool:
        """Return whether a line has a wide gap, as there is between the names of columns."""
        number = _NUMBERED.match(self.text, line.start, line.end)
        start = number.end() if number else line.start
        for space in _SPACE.finditer(self.text, start, line.end):
            left = self.box_at(space.start())
            right = self.box_at(space.end() - 1)
            if right.left - left.right > _WIDEST_SPACE * line.box.size:
                return True
        return False

    def _has_beside(self, line: TextLine) -> bool:
        number = self.lines.index(line)
        near = self.lines[max(number - _NEAR, 0) : number + _NEAR + 1]  # not in another column
        for other in near:
            if other is line or not other.box.is_on_line_of(line.box):
                continue
            is_label = other.box.right <= line.box.left and re.fullmatch(_NUMBER, other.text)
            is_same = self.fonts[other.start] == self.fonts[line.start]
            gap = other.box.left - line.box.right
            is_near = -line.box.size < gap < _BESIDE * line.box.size
            if not is_label and (is_same or is_near):
                return True
        return False


# Headings of a document

_SLIDES = 29  # half points; text is larger than that on slides
_LEAST_PAGES = 3  # of a document that may have a cover
_LEAST_NUMBERED = 3  # headings, which show that their font is one for sections
_MOSTLY = 0.3  # share of the characters in a heading's font that are in headings


class Heading(NamedTuple):
    """A heading of a document.

    Args:
        page: The number of its page, from 0 on.
        start: Where it starts in the text of all pages.
        end: Where it ends there.
        text: Its text.
        code: Its mark's number: a level, or a font.
    """

    page: int
    start: int
    end: int
    text: str
    code: int

    @property
    def is_tagged(self) -> bool:
        """Whether a tag makes it a heading."""
        return self.code < _FIRST_FONT

    @property
    def font(self) -> Font:
        """Its font, unless it is tagged."""
        return Font(*divmod(self.code - _FIRST_FONT, 4))


def find_headings(
    pages: Sequence[str], sizes: Counter[Font]
) -> list[tuple[Heading, Sequence[str]]]:
    """Find the headings of a document, each with its path: the headings above it and its own text.

    Args:
        pages: The marked text of its pages.
        sizes: How many characters there are in each font.
    """
    text = _PAGE_END.join(pages)
    candidates = [*_candidates(text)]
    headings = [heading for heading in candidates if heading.is_tagged]
    ranks: dict[Heading, _Rank] = {}
    if headings:
        ranks = {heading: (heading.code,) for heading in headings}
    elif sizes:
        headings = _by_font(candidates, text, sizes)
        ranks = _ranks(headings, body_font(sizes))
    return [*_with_paths(_with_text(headings, ranks, text), ranks)]


_BLANK = f" \t\n\r{_PAGE_END}"


def _candidates(text: str) -> Iterator[Heading]:
    page = end = 0
    for match in _MARKED.finditer(text):
        page += text.count(_PAGE_END, end, match.start())
        end = match.start()
        words = on_one_line(without_marks(match[2]))
        code = ord(match[1]) - _FIRST_MARK
        if words:
            yield Heading(page, *match.span(), words, code)


def _by_font(candidates: Sequence[Heading], text: str, sizes: Counter[Font]) -> list[Heading]:
    """Return the candidates whose font stands out, and is used for headings."""
    body = body_font(sizes)
    if body.size > _SLIDES:
        return _at_top(candidates, text)
    by_font: defaultdict[Font, list[Heading]] = defaultdict(list)
    for heading in candidates:
        if heading.font.stands_out_from(body) and not _is_entry(heading, text):
            by_font[heading.font].append(heading)
    largest = max(by_font, default=body)
    may_have_cover = text.count(_PAGE_END) >= _LEAST_PAGES - 1
    kept: list[Heading] = []
    for font, headings in by_font.items():
        is_of_cover = {heading.page for heading in headings} == {candidates[0].page}
        if may_have_cover and font != largest and is_of_cover:
            continue
        if _are_of_sections(headings, sizes[font]):
            kept += headings
    return sorted(kept)


def _are_of_sections(headings: Sequence[Heading], characters: int) -> bool:
    """Return whether headings are most of the characters in their font, or some of them are numbered."""
    numbered = sum(_depth(heading.text) > 0 for heading in headings)
    in_headings = sum(len(heading.text) for heading in headings)
    return in_headings >= _MOSTLY * characters or numbered >= _LEAST_NUMBERED


def _at_top(candidates: Iterable[Heading], text: str) -> list[Heading]:
    """Return the candidates that pages begin with, as slides begin with their titles."""
    tops = {match.end() for match in re.finditer(rf"(?:\A|{_PAGE_END})\s*", text)}
    return [heading for heading in candidates if heading.start in tops]


def _is_entry(heading: Heading, text: str) -> bool:
    """Return whether a heading is an entry of a table of contents, as the line below it is."""
    below = text[heading.end : heading.end + _LONGEST].lstrip(_BLANK).split("\n", 1)[0]
    return all(map(_ENTRY.search, (heading.text, below)))


_Rank = tuple[int, ...]


def _ranks(headings: Sequence[Heading], body: Font) -> dict[Heading, _Rank]:
    """Return what headings are ordered by among the levels: their size, weight, and parts of their number."""
    least: dict[Font, int] = {}
    for heading in headings:
        depth = _depth(heading.text)
        if depth:
            least[heading.font] = min(depth, least.get(heading.font, depth))
    ranks: dict[Heading, _Rank] = {}
    for heading in headings:
        font = heading.font
        weight = 0 if font.size > _LARGER * body.size else font.weight
        ranks[heading] = (-font.size, -weight, _depth(heading.text) or least.get(font, 1))
    return ranks


def _depth(text: str) -> int:
    """Return how many parts the number of a heading has; 0 if there is none."""
    match = _NUMBERED.match(text)
    return match[0].rstrip(". \u3000").count(".") + 1 if match else 0


def _with_text(
    headings: Sequence[Heading], ranks: Mapping[Heading, _Rank], text: str
) -> list[Heading]:
    """Return the headings that have text below them, or headings that do."""
    kept: list[Heading] = []
    end = len(text)
    for heading in reversed(headings):
        has_text = text[heading.end : end].strip(_BLANK) != ""
        if has_text or (kept and ranks[kept[-1]] > ranks[heading]):
            kept.append(heading)
        end = heading.start
    return kept[::-1]


def _with_paths(
    headings: Iterable[Heading], ranks: Mapping[Heading, _Rank]
) -> Iterator[tuple[Heading, Sequence[str]]]:
    opened: list[Heading] = []
    for heading in headings:
        while opened and ranks[opened[-1]] >= ranks[heading]:
            opened.pop()
        opened.append(heading)
        yield heading, [outer.text for outer in opened]


Sections = list[tuple[str, Sequence[str]]]
"""The text of each page, with headings, and the path that it begins below."""


def with_headings(
    pages: Sequence[str], headings: Sequence[tuple[Heading, Sequence[str]]]
) -> Sections:
    """Return pages with headings in place of marks.

    Args:
        pages: The marked text of the pages.
        headings: What `find_headings` returns for them.
    """
    text = _PAGE_END.join(pages)
    parts: list[str] = []
    end = 0
    for heading, path in headings:
        parts += [text[end : heading.start], as_heading(heading.text, len(path))]
        end = heading.end
    parts.append(text[end:])
    names = {_name(heading.text) for heading, _ in headings}
    last = {heading.page: path for heading, path in headings}
    sections: Sections = []
    above: Sequence[str] = ()
    for number, page in enumerate("".join(parts).split(_PAGE_END)):
        sections.append((_without_names(without_marks(page), names), above))
        above = last.get(number, above)
    return sections


def _without_names(page: str, names: Container[str]) -> str:
    """Remove a running head or foot that has the name of a section and the page's number."""
    lines = page.strip().split("\n")
    for edge in (0, -1):
        line = lines[edge] if lines else ""
        if re.search(r"^\d|^[^#].*\d$", line) and _name(line) in names:
            del lines[edge]
    return "\n".join(lines)


def _name(heading: str) -> str:
    return re.sub(r"(?i)^chapter|[\W\d_]+", "", heading).casefold()


def as_heading(text: str, level: int) -> str:
    """Return a heading as Markdown, apart from the line above it: "# dh" below one might be a prompt."""
    return f"\n{'#' * min(level, 6)} {on_one_line(text)}"
