"""Joins the wrapped lines of paragraphs on a page of a PDF.

The positions of lines show wraps better than their text: letters vary in width, so that a full line may have
fewer of them than one that ends early.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from statistics import median

from llama_pack_densex.reading.pdf_lines import HYPHENS, WIDE_GAP, Box
from llama_pack_densex.reading.tables import runs
from llama_pack_densex.text.plain import LIST_MARKER, RULE
from llama_pack_densex.text.sentences import STOPS, WIDE
from llama_pack_densex.text.tokens import on_one_line

_LINE = re.compile(
    r"[^\s\x02\ufffe](?:[^\r\n\x02\ufffe]*[^\s\x02\ufffe])?(?:[^\S\r\n]*[\x02\ufffe])?"
)
_AT_END = "".join(HYPHENS) + " \t"
_MOST_LINES = 500  # per page; a page with more is a drawing or a table
_LEAST_LETTERS = 31  # of a full line of prose
_FLOWING = 0.3  # share of the lines of prose that begin within a sentence
NAMED = re.compile(r"^[^\W\d_a-z][^:：.。]{0,30}[:：]\s?\S")
"""A name with its value; a line of these does not go on in another one."""
# The following lengths are in heights of a line's characters.
_NARROWEST = 14.0  # minimum width of a full line of something else, or in wide letters
_AT_MARGIN = 3.0  # maximum distance between the ends of lines that mark the margin
_INDENT = 0.4  # minimum indentation of a paragraph's first line
_HANGING = 4.0  # maximum indentation of a list item's lines below its marker
_LONGEST_WORD = 4.0  # the most room that is left at the end of a full line
_KEPT_TOGETHER = 2.0  # letters; this much room may be left so that no line begins with "。" or "ー"
_SPACE = 0.3
_WIDEST_STEP = 2.2  # maximum distance from one line of a paragraph to the next
_SAME = 1.2  # maximum ratio of sizes that count as equal, since fonts differ
_USUAL_LETTER = 0.45  # the width of a letter, or of half a wide one
# times the usual width per letter; such a line has gaps, as the row of a table has
_WIDE_GAPS = 1.4
_LEAST_IN_BLOCK = 4  # lines that show the margin of a block: an abstract has one of its own
_LEAST_SHARE = 0.12  # minimum share of lines that reach the margin
_DASHES = "–—"
_MARKUP_OR_SECTION = re.compile(r"[|>]|#+ |\d{1,3}(?:\.\d{1,3})+\.?\s(?![a-z])|[A-Z]\.\d")
_NUMBERED = re.compile(r"^\d+\s")  # lines of code, or rows of figures
_CONTENTS = re.compile(r"(?:[.．…‥・·] ?){4}|\s[\divx]{1,4}$")


@dataclass(frozen=True)
class TextLine:
    """A line of a page.

    Args:
        text: Its text, without surrounding white space.
        start: Where it starts in the page's text.
        end: Where it ends there.
        box: Its box, by the larger one of its first and last character.
        first_word: The width of its first word, or of its first letter if that is Chinese or Japanese.
    """

    text: str
    start: int
    end: int
    box: Box
    first_word: float

    @property
    def letter_width(self) -> float:
        """The average width of a letter (of wide letters, half of it) in heights of the line."""
        return self.box.width / (len(self.text) + len(WIDE.findall(self.text))) / self.box.size

    def is_as_large_as(self, other: TextLine) -> bool:
        """Return whether it seems to have the same font size as another line."""
        return 1 / _SAME < self.box.size / other.box.size < _SAME


def read_lines(
    text: str, stretches: Iterable[range], box_at: Callable[[int], Box]
) -> list[list[TextLine]]:
    """Return the lines of a page, each in pieces: PDFium breaks lines at what is raised or lowered.

    Args:
        text: The page's text.
        stretches: The stretches of it in reading order.
        box_at: Returns the box of the character at a place.
    """
    pieces = [
        _text_line(match, box_at)
        for stretch in stretches
        for match in _LINE.finditer(text, stretch.start, stretch.stop)
    ]

    def goes_on(run: list[TextLine], piece: TextLine) -> bool:
        return box_at(piece.start).follows(box_at(run[-1].end - 1), WIDE_GAP)

    return runs(pieces, goes_on)


def find_joints(
    text: str,
    lines_in_pieces: Sequence[Sequence[TextLine]],
    are_apart: Callable[[TextLine, TextLine], bool],
) -> tuple[dict[int, str], list[TextLine]]:
    """Return what joins pieces of lines, and lines of paragraphs, and the lines that end within a sentence.

    Args:
        text: The page's text.
        lines_in_pieces: Its lines, as `read_lines` returns them.
        are_apart: Returns whether two lines are not in the same paragraph, whatever their positions.

    Returns:
        The joints (a space or nothing) by where the later piece or line starts, and the full lines that end
        within a sentence and go on nowhere near.
    """
    joints: dict[int, str] = {}
    for pieces in lines_in_pieces:
        for left, right in pairwise(pieces):
            joints[right.start] = _joint_on_line(text, left, right)
    lines = [*map(whole_line, lines_in_pieces)]
    if len(lines) > _MOST_LINES:
        return joints, []
    pairs = [pair for pair in pairwise(lines) if not are_apart(*pair)]
    page = _Page(lines, pairs)
    open_lines = {line.start: line for line in lines if page.is_open(line)}
    for above, below in pairs:
        if page.goes_on(above, below):
            joints[below.start] = joint(above.text, below.text)
            open_lines.pop(above.start, None)
    return joints, [*open_lines.values()]


def _text_line(match: re.Match[str], box_at: Callable[[int], Box]) -> TextLine:
    text = match[0]
    start, end = match.span()
    word = 1 if WIDE.match(text) else len(text.split(maxsplit=1)[0])
    first = box_at(start)
    last = box_at(start + len(text.rstrip(_AT_END)) - 1)
    larger = max(first, last, key=lambda box: box.size)  # the other one may be raised
    box = larger._replace(left=first.left, right=last.right)
    return TextLine(text, start, end, box, box_at(start + word - 1).right - first.left)


def whole_line(pieces: Sequence[TextLine]) -> TextLine:
    """Return the line that pieces form."""
    first = pieces[0]
    last = pieces[-1]
    longest = max(pieces, key=lambda piece: piece.box.width)
    return replace(
        first,
        text="".join(piece.text for piece in pieces),
        end=last.end,
        box=longest.box._replace(left=first.box.left, right=last.box.right),
    )


def _joint_on_line(text: str, left: TextLine, right: TextLine) -> str:
    has_space = " " in text[left.end : right.start]
    is_apart = right.box.left - left.box.right > _SPACE / 2 * left.box.size
    return " " if has_space or is_apart else ""


def joint(above: str, below: str) -> str:
    """Return what joins two lines: a space, but nothing between wide characters or behind a hyphen."""
    if above.endswith(HYPHENS):
        return ""
    return on_one_line(f"{above[-1]}\n{below[0]}")[1:-1]


class _Page:
    """The usual distances and widths on a page, by which its lines are judged."""

    def __init__(
        self, lines: Sequence[TextLine], pairs: Sequence[tuple[TextLine, TextLine]]
    ) -> None:
        self._lines = lines
        together = {above.start for above, below in pairs if _may_be_next(above, below)}
        blocks = runs(lines, lambda run, line: run[-1].start in together)
        self._blocks = {line.start: block for block in blocks for line in block}
        usual = median([*(line.letter_width for line in lines), _USUAL_LETTER])
        self._widest_letter = _WIDE_GAPS * min(usual, _USUAL_LETTER)
        self._steps = [step(above, below) for above, below in pairs if _may_be_next(above, below)]

    def goes_on(self, above: TextLine, below: TextLine) -> bool:
        """Return whether a paragraph continues from one line to the next."""
        if not _may_be_next(above, below) or not self._is_usualstep(above, below):
            return False
        if not _is_below(above, below) or _begins_anew(above, below):
            return False
        is_wide = WIDE.match(below.text) is not None
        size = above.box.size
        room = _KEPT_TOGETHER * below.first_word if is_wide else below.first_word + _SPACE * size
        return above.letter_width <= self._widest_letter and self._is_full(above, room)

    def is_open(self, line: TextLine) -> bool:
        """Return whether a line is full, and ends within a sentence."""
        if line.text[-1] in STOPS + ":：":
            return False
        return line.text[-1] in HYPHENS or self._is_full(line, _LONGEST_WORD * line.box.size)

    def _is_usualstep(self, above: TextLine, below: TextLine) -> bool:
        """Return whether lines are as close as those of paragraphs: closer ones are rare on the page."""
        nearest = step(above, below) / _SAME
        return sum(step < nearest for step in self._steps) <= len(self._steps) / 4

    def _is_full(self, line: TextLine, room: float) -> bool:
        """Return whether something that takes a certain room had none at the end of a line."""
        column = self._lines_with_margin_of(line)
        margin = _margin(line, column)
        if margin is None:
            return False
        least = line.box.left + line.box.size * _least_width(line, column)
        return min(margin, line.box.right) >= least and line.box.right + room > margin

    def _lines_with_margin_of(self, line: TextLine) -> list[TextLine]:
        """Return the aligned lines of a line's block if they are prose, else the block's or the column's."""
        block = [other for other in self._blocks[line.start] if _is_in_column(other, line)]
        aligned = [other for other in block if _is_aligned(other, line)]
        for lines in (aligned, block):
            if len(lines) >= _LEAST_IN_BLOCK and _is_prose(lines):
                return lines
        return [other for other in self._lines if _is_in_column(other, line)]


def _is_prose(column: Sequence[TextLine]) -> bool:
    """Return whether lines do not all begin with a capital letter, as those of a poem or a list of names."""
    flowing = sum(not line.text[0].isupper() for line in column)
    return flowing >= _FLOWING * len(column)


def _least_width(line: TextLine, column: Sequence[TextLine]) -> float:
    """Return how wide a full line of a column is at least, in heights of the line."""
    if _is_prose(column):
        return min(_LEAST_LETTERS * line.letter_width, _NARROWEST)
    return _NARROWEST


def _margin(line: TextLine, column: Sequence[TextLine]) -> float | None:
    """Return the right margin of a line's column, ignoring a few lines that are too long; None if the lines
    have no common end.
    """
    ends = sorted(other.box.right for other in column)
    least = max(2, ceil(_LEAST_SHARE * len(ends)))
    for count in range(len(ends), least - 1, -1):
        margin = ends[count - 1]
        if margin - ends[count - least] < _AT_MARGIN * line.box.size:
            return margin
    return None


def step(above: TextLine, below: TextLine) -> float:
    """Return how far a line is below another one, in heights of the larger one."""
    return (below.box.y - above.box.y) / max(above.box.size, below.box.size)


def _may_be_next(above: TextLine, below: TextLine) -> bool:
    return 0.5 < step(above, below) < _WIDEST_STEP and below.is_as_large_as(above)


def _is_in_column(line: TextLine, other: TextLine) -> bool:
    is_beside = abs(line.box.left - other.box.left) > 2 * _HANGING * other.box.size
    return not is_beside and line.is_as_large_as(other)


def _is_aligned(line: TextLine, other: TextLine) -> bool:
    return abs(line.box.left - other.box.left) < _INDENT * other.box.size


def _is_below(above: TextLine, below: TextLine) -> bool:
    """Return whether a line is aligned with the one above, or within a sentence or an item near to that."""
    indent = (below.box.left - above.box.left) / above.box.size
    if LIST_MARKER.match(above.text):
        return -_INDENT < indent < _HANGING
    is_capital = indent > 0 and below.text[0].isupper()
    is_in_sentence = above.text[-1] not in STOPS + ":：" and not is_capital
    return abs(indent) < (_HANGING if is_in_sentence else _INDENT)


def _begins_anew(above: TextLine, below: TextLine) -> bool:
    """Return whether a line begins something new: an item, a row, a quotation, an entry of contents."""
    if _begins_item(above, below) or _MARKUP_OR_SECTION.match(below.text):
        return True
    signs = (_NUMBERED, NAMED, _CONTENTS)
    if any(sign.search(above.text) and sign.search(below.text) for sign in signs):
        return True
    return any(RULE.fullmatch(line.text) for line in (above, below))


def _begins_item(above: TextLine, below: TextLine) -> bool:
    """Return whether a line begins with a list marker, and not with a dash within a sentence."""
    if not LIST_MARKER.match(below.text):
        return False
    is_in_sentence = below.text[0] in _DASHES and above.text[-1] not in STOPS + ":："
    return not is_in_sentence or LIST_MARKER.match(above.text) is not None
