"""What a place in a document depends on: the headings above it, and what has to be read before it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter

from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.layout import Block, Span, overlapping
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.plain import ARTICLE, LIST_MARKER, heading_text
from llama_pack_densex.text.sentences import after_space, split_sentences
from llama_pack_densex.text.tables import PIPE


@dataclass(frozen=True)
class _Section:
    start: int
    headings: tuple[Block, ...]  # the enclosing ones, outermost first, and its own
    path: tuple[str, ...]  # their texts


_NUMBERED = re.compile(r"[\d第附]")
_TITLE = re.compile(rf"# +(?!{_NUMBERED.pattern})")
_DEEPEST = 20  # the most headings above another one


class Outline:
    """The headings of one document, and what its blocks need to be understood.

    Args:
        text: The document's text.
        above: The headings that it begins below, outermost first, if it is a part of a file.

    Example:
        >>> outline = Outline("# Trips\\n\\nBring:\\n\\n- a coat\\n- boots")
        >>> outline.section_of(26, 33), outline.context_of(26, 33)
        ('Trips', 'Bring:\\n\\n')
    """

    def __init__(self, text: str, above: Sequence[str] = ()) -> None:
        self._text = text
        self._above = tuple(above)
        self.blocks = find_blocks(text)
        self._headers = {block.span for block in self.blocks if block.kind in ("columns", "group")}
        self._sections = [_Section(0, (), self._above)]
        self._read_headings()

    def _read_headings(self) -> None:
        opened: list[Block] = []
        for heading in self.blocks:
            if heading.kind != "heading":
                continue
            self._close_details(opened, heading.start)
            opened = [outer for outer in opened if self._is_within(heading, outer)]
            del opened[_DEEPEST:]
            opened.append(heading)
            self._begin_section(heading.start, opened)
        self._close_details(opened, len(self._text))

    def _is_within(self, heading: Block, outer: Block) -> bool:
        """Return whether a heading belongs to the section of one above it: of one of a lower level, and if it
        has a number instead of a mark, of the title that the document begins with.
        """
        if outer.level < heading.level or outer.until is not None:
            return True
        is_first = outer.start == after_space(self._text, 0)
        is_title = is_first and _TITLE.match(self._text, outer.start) is not None
        return is_title and _NUMBERED.match(self._text, heading.start) is not None

    def _close_details(self, opened: list[Block], place: int) -> None:
        """End the sections of `<details>` that end before a place; what follows belongs to the
        enclosing section.
        """
        while any(heading.until is not None and heading.until <= place for heading in opened):
            until = opened.pop().until
            if until is not None:
                self._begin_section(until, opened)

    def _begin_section(self, start: int, opened: Sequence[Block]) -> None:
        names = map(self._name_of, opened)
        above = self._above[: opened[0].level - 1] if opened else self._above
        self._sections.append(_Section(start, tuple(opened), (*above, *filter(None, names))))

    def _name_of(self, heading: Block) -> str:
        """Return the name of a section; above an article of a Japanese law, with the number of that."""
        name = heading_text(heading.text_in(self._text))
        article = ARTICLE.match(self._text, after_space(self._text, heading.end))
        if article and name[0] in "（(":
            return f"{article[0]}{name}"
        return name

    def _section_at(self, place: int) -> _Section:
        number = bisect_right(self._sections, place, key=attrgetter("start"))
        return self._sections[number - 1]

    def _within(self, start: int, end: int) -> Sequence[Block]:
        """Return the blocks that a stretch overlaps."""
        return [self.blocks[place] for place in overlapping(self.blocks, start, end)]

    def section_of(self, start: int, end: int) -> str:
        """Return the headings that a whole stretch is below, outermost first, joined by ", ".

        A stretch of headings alone belongs to the section of the last one.

        Args:
            start: Where the stretch begins, in characters.
            end: Where it ends.
        """
        return ", ".join(self._common_path(start, end))

    def _common_path(self, start: int, end: int) -> tuple[str, ...]:
        within = self._within(start, end)
        stating = [block for block in within if block.kind not in ("heading", "nothing")]
        beginnings = [max(block.start, start) for block in stating or within[-1:]]
        paths = [self._section_at(place).path for place in beginnings]
        shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
        return tuple(names[0] for names in shared)

    def context_of(self, start: int, end: int) -> str:
        """Return what has to be read before a stretch besides its section, as Markdown.

        It holds whatever of the following stands before the stretch: the lead-in of a list whose items the
        stretch has, the items around the first of them, the header of a table whose rows it has, and the
        question that it answers; the headings above its beginning that do not apply to all of it; and, if
        it begins within an item, a row or code, the beginning of that. With this text in front of it, the
        stretch parses as it does in the document.

        Args:
            start: Where the stretch begins, in characters.
            end: Where it ends.
        """
        context = ""
        last_end = 0
        for span in sorted(set(self._needed_spans(start, end))):
            if not 0 < span[1] - span[0] <= _LONGEST_NEEDED:
                continue
            context += self._gap(last_end, span[0]) if context else self._indentation(span[0])
            context += self._text[slice(*span)]
            last_end = span[1]
        return context and context + self._gap(last_end, start)

    def _needed_spans(self, start: int, end: int) -> Iterator[Span]:
        within = self._within(start, end)
        for block in within:
            yield from (span for span in block.needs if span[1] <= start)
            if block.start < start:
                yield from _beginnings(self._text, block, start)
        stating = next((block for block in within if block.kind != "nothing"), None)
        if stating is None:
            return
        headings = self._section_at(max(stating.start, start)).headings
        for heading in headings[len(self._common_path(start, end)) :]:
            if heading.end <= start:
                yield heading.span

    def leads_of(self, start: int, end: int) -> str:
        """Return the lead-ins of a sentence, an item or a row, outermost first, one per line.

        Table headers, headings within tables and who speaks are left out: a statement already has them.

        Args:
            start: Where the sentence, item or row begins, in characters.
            end: Where it ends.
        """
        within = self._within(start, end)
        needs = within[0].needs if within else ()
        label = within[0].label if within else ""
        leads = [self._text[slice(*span)] for span in needs if span not in self._headers]
        if label:
            leads = [lead for lead in leads if not lead.startswith(label)]
        return "\n".join(lead for lead in leads if len(lead) <= _LONGEST_NEEDED)

    def _gap(self, end: int, start: int) -> str:
        """Return the separator between two spans: the white space between them, or, if text is left
        out there, its line breaks or the bars of its cells.
        """
        between = self._text[end:start]
        if not between.strip():
            return between
        if "\n" not in between:  # within an item, or a row of which cells are left out
            return "|" * len(PIPE.findall(between)) + " "
        # without a blank line, only a list that begins with 1 ends a paragraph in CommonMark
        is_apart = "\n\n" in between or LIST_MARKER.match(self._text, start)
        return ("\n\n" if is_apart else "\n") + self._indentation(start)

    def _indentation(self, start: int) -> str:
        line_start = self._text.rfind("\n", 0, start) + 1
        indentation = self._text[line_start:start]
        if indentation.strip():
            return ""
        return indentation


_LONGEST_BEGINNING = 80  # characters of an item within which a passage begins
# characters; longer text would be repeated before many passages and introduces nothing
_LONGEST_NEEDED = 4_000


# the empty header of a record, and its first line
_HEAD = re.compile(r"\|[| ]*\n.*(?:\n.*(?=\n))?")
_FIRST_CELL = re.compile(r"\|?[^|\n]*\|")


def _beginnings(text: str, block: Block, start: int) -> Iterator[Span]:
    """Yield what a part of a block needs from its beginning: the first line of code, the first words of an
    item, the first cell of a row.

    A record has one line per cell; its parts need its first line and the name of the cell that is cut. Parts
    of a paragraph need nothing, since they are prose themselves.

    Args:
        text: The text.
        block: The block.
        start: Where the part begins.
    """
    first_line = text[block.start : start].split("\n", 1)[0]
    if block.kind == "row":
        line_start = max(text.rfind("\n", 0, start) + 1, block.start)
        head = _HEAD.match(text, block.start, start)
        first_cell = _FIRST_CELL.match(text, line_start, start)
        yield from (part.span() for part in (head, first_cell) if part)
    elif block.kind == "code":
        yield block.start, block.start + len(first_line)
    elif block.kind == "item":
        yield block.start, block.start + min(len(first_line), _LONGEST_BEGINNING)
    elif block.label and text.startswith(block.label, block.start):
        _, end = split_sentences(text[block.start : start])[0]
        yield block.start, block.start + end


_LONGEST_SEARCHED = 120  # characters


def searched_context(context: str) -> str:
    """Return the part of a context that is embedded and searched: the last words of each paragraph and item,
    which introduce what follows, and tables and code as they are.

    Whole paragraphs would make all parts of a list look alike. Headings are left out, since the section has
    them.
    """
    parts: list[str] = []
    for block in find_blocks(context):
        text = block.text_in(context)
        if block.kind in ("prose", "item"):
            start, end = split_sentences(text)[-1]
            parts.append(searchable_text(text[start:end])[-_LONGEST_SEARCHED:])
        elif block.kind != "heading":
            parts.append(text)
    return "\n".join(parts)
