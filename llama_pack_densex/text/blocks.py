"""The blocks of a text (headings, paragraphs, list items, table rows, code), and what each needs to be
understood.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from unicodedata import normalize

from llama_pack_densex.text.containers import CONTAINER_LEVEL
from llama_pack_densex.text.layout import Block as Block
from llama_pack_densex.text.layout import (
    BlockKind,
    Blocks,
    Line,
    Lines,
    Span,
    find_lines,
    quotation_depth,
)
from llama_pack_densex.text.links import STRUCK_OUT, searchable_text, without_pictures
from llama_pack_densex.text.markdown import Structure, numbers_within
from llama_pack_densex.text.plain import (
    DEFINITION,
    LIST_MARKER,
    PAGE_MARK,
    RULE,
    begins_list,
    end_of_heading,
    is_bold_line,
    item_sign,
    join_wrapped,
    text_at,
)
from llama_pack_densex.text.sentences import STOPS, after_space, split_sentences
from llama_pack_densex.text.tables import TOTAL, bare_row, grid_table, row_statement
from llama_pack_densex.text.tokens import has_words
from llama_pack_densex.text.turns import DAY_ALONE, Turn, find_turns
from llama_pack_densex.text.typed_tables import typed_table

_LONGEST_HEADING = 1_000  # characters; the longest in the documentation of packages has 128

BOLD_LEVEL = 8
"""The level of a bold line that serves as a heading."""


def find_blocks(text: str, context: str = "") -> tuple[Block, ...]:
    """Split a text into blocks in order, that cover all of it but white space and the marks of quotations.

    Args:
        text: Any text, plain or Markdown, whole or cut out of a document.
        context: The Markdown that has to precede it for its first lines to mean what they mean in the
            document (see `Outline.context_of`).

    Returns:
        The blocks of the text. The time is linear in its length.
    """
    if not context:
        return _find_blocks(text)
    offset = len(context)
    blocks = _find_blocks(context + text, is_cut_out=True)
    within = (block for block in blocks if block.end > offset)
    return tuple(_moved(block, -offset) for block in within)


def _moved(block: Block, by: int) -> Block:
    return replace(
        block,
        start=max(block.start + by, 0),
        end=block.end + by,
        needs=tuple((start + by, end + by) for start, end in block.needs if start + by >= 0),
        until=None if block.until is None else block.until + by,
    )


@lru_cache(maxsize=64)  # several checks need the blocks of a passage
def _find_blocks(text: str, is_cut_out: bool = False) -> tuple[Block, ...]:
    scanner = _Scanner(text, is_cut_out)
    relations = _Relations(text, scanner.turns)
    return tuple(map(relations.related, _mark_struck_out(text, scanner.blocks())))


def _mark_struck_out(text: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Change the kind of blocks within struck-out text to "nothing"."""
    struck = [match.span() for match in STRUCK_OUT.finditer(text)]
    for block in blocks:
        number = bisect_right(struck, (block.start, len(text)))
        if number and block.end <= struck[number - 1][1]:
            block = replace(block, kind="nothing")
        yield block


class _Scanner:
    """Finds the blocks of a text, line by line."""

    def __init__(self, text: str, is_cut_out: bool) -> None:
        self._text = text
        self._lines = find_lines(text)
        self._structure = Structure(text, self._lines)
        kept_whole = numbers_within(self._structure.elements.values(), self._lines)
        self._turn_lines = find_turns(self._lines, kept_whole, is_cut_out)
        self._open_items = _OpenItems()

    @property
    def turns(self) -> dict[int, Turn]:
        """The turns of a conversation, by where they begin."""
        starts = {line.number: line.start for line in self._lines}
        return {starts[number]: turn for number, turn in self._turn_lines.items()}

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order, without their needs."""
        run: list[Line] = []
        place = 0
        while place < len(self._lines):
            line = self._lines[place]
            special = self._special_at(place, goes_on=bool(run)) if line.text else ()
            if line.text and not special:
                run.append(line)
            else:
                yield from self._paragraphs(run)
                run = []
                yield from special
            place = self._place_after(special[-1].end) if special else place + 1
        yield from self._paragraphs(run)

    def _place_after(self, end: int) -> int:
        """Return the index of the first line that begins after a place in the text."""
        return bisect_left(self._lines, end, key=attrgetter("start"))

    def _special_at(self, place: int, goes_on: bool) -> Blocks:
        """Return the blocks of something other than prose that begins on a line; empty if nothing does."""
        if self._lines[place].number in self._turn_lines:
            return self._label_at(place)
        return (
            self._element_at(place)
            or self._page_mark_at(place)
            or self._day_at(place)
            or self._heading_at(place, goes_on)
            or self._summary_at(place)
            or self._bold_heading_at(place)
            or self._bare_row_at(place)
        )

    def _label_at(self, place: int) -> Blocks:
        """Return the label of a turn if it takes up its lines alone."""
        line = self._lines[place]
        turn = self._turn_lines[line.number]
        if not turn.lines:
            return ()
        end = self._lines[place + turn.lines - 1].end
        return [Block(line.start, end, "nothing", label=turn.label)]

    def _day_at(self, place: int) -> Blocks:
        """Return the day above the messages of a chat as a heading."""
        line = self._lines[place]
        is_above_turn = any(
            below.number in self._turn_lines for below in self._lines[place + 1 : place + 3]
        )
        if not is_above_turn or not DAY_ALONE.fullmatch(line.text):
            return ()
        return [Block(line.start, line.end, "heading", BOLD_LEVEL)]

    def _element_at(self, place: int) -> Blocks:
        line = self._lines[place]
        element = (
            self._structure.elements.get(line.start)
            or grid_table(self._lines, place)
            or typed_table(self._lines, place)
        )
        if not element:
            return ()
        depth = self._structure.depths.get(line.number, 0)
        return [
            block if block.kind == "heading" else replace(block, level=depth) for block in element
        ]

    def _page_mark_at(self, place: int) -> Blocks:
        line = self._lines[place]
        if not PAGE_MARK.fullmatch(line.text):
            return ()
        return [Block(line.start, line.end, "nothing")]

    def _heading_at(self, place: int, goes_on: bool) -> Blocks:
        line = self._lines[place]
        after, level = end_of_heading(self._lines, place, goes_on=goes_on)
        if not level or len(line.text) > _LONGEST_HEADING:
            return ()
        is_numbered = after == place + 1 and line.text[0].isdigit()
        if is_numbered and line.number in self._structure.later_items:
            return ()  # a step of a list, though a table or code is above it
        until = self._quotation_ends[place]
        return [Block(line.start, self._lines[after - 1].end, "heading", level, until=until)]

    @cached_property
    def _quotation_ends(self) -> list[int | None]:
        """For each line, where the quotation that it is in ends; None if it is in none."""
        ends: list[int | None] = []
        end: int | None = None
        for line in reversed(self._lines):
            if not line.is_quoted:
                end = None
            elif end is None:
                end = line.end
            ends.append(end)
        ends.reverse()
        return ends

    def _summary_at(self, place: int) -> Blocks:
        """Return the summary of `<details>` as a heading, and the rest of its last line."""
        summary = _SUMMARY.match(self._text, self._lines[place].start)
        if not summary:
            return ()
        end = summary.end()
        heading = Block(
            summary.start(), end, "heading", CONTAINER_LEVEL, until=self._end_of_details(end)
        )
        last_line = self._lines[self._place_after(end) - 1]
        if last_line.end <= end:
            return [heading]
        return [heading, self._paragraph((after_space(self._text, end), last_line.end))]

    def _bold_heading_at(self, place: int) -> Blocks:
        line = self._lines[place]
        is_last = place == len(self._lines) - 1
        if is_last or text_at(self._lines, place - 1) or text_at(self._lines, place + 1):
            return ()
        if line.number in self._structure.depths or not is_bold_line(line.text):
            return ()
        return [Block(line.start, line.end, "heading", BOLD_LEVEL)]

    def _bare_row_at(self, place: int) -> Blocks:
        line = self._lines[place]
        cells = bare_row(line.text)
        if cells is None:
            return ()
        kind: BlockKind = "row" if any(cells) else "nothing"
        return [Block(line.start, line.end, kind, cells=cells)]

    @cached_property
    def _details(self) -> list[tuple[int, int | None]]:
        """The places where the innermost `<details>` changes, and where each new one ends (None outside)."""
        places: list[tuple[int, int | None]] = []
        closing: list[int] = []
        for tag in reversed([*_DETAILS.finditer(self._text)]):
            places.append((tag.end(), closing[-1] if closing else None))
            if tag[1]:
                closing.append(tag.start())
            elif closing:
                closing.pop()
        return [(0, None), *reversed(places)]

    def _end_of_details(self, start: int) -> int | None:
        number = bisect_right(self._details, start, key=itemgetter(0))
        return self._details[number - 1][1]

    def _paragraphs(self, run: Lines) -> Iterator[Block]:
        if not run:
            return
        beginnings = self._structure.items.keys() | self._turn_lines.keys()
        for lines in join_wrapped(run, beginnings, self._structure.continued):
            first = lines[0]
            span = (first.start, lines[-1].end)
            last = lines[-1].text[-1]
            item_depth = self._item_depth(first, announces=last in ":：—–" or last.islower())
            if item_depth and first.number not in self._turn_lines:
                yield self._paragraph(span, "item", item_depth)
            else:
                yield self._paragraph(span, "prose", self._structure.depths.get(first.number, 0))

    def _paragraph(self, span: Span, kind: BlockKind = "prose", level: int = 0) -> Block:
        if says_nothing(self._text[slice(*span)]):
            kind = "nothing"
        return Block(*span, kind, level)

    def _item_depth(self, line: Line, announces: bool) -> int:
        """Return the depth of an item, in Markdown or else by its marker and indentation; 0 for any
        other line.
        """
        depth = self._structure.items.get(line.number, 0)
        if depth:
            return self._open_items.add_of_markdown(line, depth, announces)
        if LIST_MARKER.match(line.text) and line.number not in self._structure.depths:
            return self._open_items.add_plain(line, announces)
        self._open_items = _OpenItems()
        return 0


class _OpenItems:
    """The current item and those around it, while the items of a text are read in order.

    Laws and contracts often have no indentation: "(a)" below "1." begins a list within it, and so do
    items of another form below a number that announces them.
    """

    def __init__(self) -> None:
        self._items: list[_PlainItem] = []  # outermost first
        self._announcing: list[_PlainItem] = []  # the last that introduces a list, and those around

    def add_of_markdown(self, line: Line, depth: int, announces: bool) -> int:
        """Add an item that has a depth in Markdown; return its depth."""
        item = _PlainItem.of(line, ())
        if self._is_announced(item, depth):
            inner = depth + 1 - len(self._announcing)
            self._items = [*self._announcing, *[item] * inner]
        else:
            self._items = [item] * depth
            self._announcing = self._items if announces and item.sign else []
        return len(self._items)

    def _is_announced(self, item: _PlainItem, depth: int) -> bool:
        """Return whether an item belongs to a list that an item as deep in Markdown introduces."""
        if not self._announcing:
            return False
        if item.form == self._announcing[-1].form:
            return depth > len(self._announcing)
        return depth >= len(self._announcing)

    def add_plain(self, line: Line, announces: bool) -> int:
        """Add an item of plain text; return its depth."""
        item = _PlainItem.of(line, self._items)
        begins = item.sign != "" and begins_list(line.text)
        self._items = [*_items_around(item, self._items, begins), item]
        self._announcing = self._items if announces else []
        return len(self._items)


def _items_around(item: _PlainItem, items: Sequence[_PlainItem], begins: bool) -> list[_PlainItem]:
    """Return the open items that an item of plain text is within.

    Args:
        item: The item.
        items: The open items above it.
        begins: Whether its number or letter is the first of a list.
    """
    outer = [other for other in items if other.indent <= item.indent]
    forms_beside = [other.form for other in outer if other.indent == item.indent]
    if item.form in forms_beside:
        while outer[-1].form != item.form:
            outer.pop()
        return outer[:-1]
    if forms_beside and not begins:
        return outer[:-1]
    return outer


@dataclass(frozen=True)
class _PlainItem:
    """An item by its indentation and marker, as in plain text.

    Args:
        indent: The columns of its indentation.
        sign: Its number or letter; empty for a bullet.
        form: How the items of its list are marked: "(a)", "1.", "•".
    """

    indent: int
    sign: str
    form: str

    @classmethod
    def of(cls, line: Line, above: Sequence[_PlainItem]) -> _PlainItem:
        """Make an item of a line, below open items.

        "(i)" is a Roman number, unless it follows an "(h)" that is indented as far.
        """
        indent = len(line.indent.expandtabs(4))
        sign = item_sign(line.text)
        marker = LIST_MARKER.match(line.text)
        form = marker[0].strip() if marker else ""
        if not sign:
            return cls(indent, "", form)
        beside = (item for item in above if item.indent == indent)
        follows = any(chr(ord(item.sign[-1:] or " ") + 1) == sign for item in beside)
        kind = _kind_of_sign(sign, follows)
        return cls(indent, sign, re.sub(r"[^\W_]+", kind, normalize("NFKC", form)))


def _kind_of_sign(sign: str, is_next_letter: bool) -> str:
    """Return the first sign that is counted on from as this one is: 1, a, i, 一, ア."""
    if sign.isdecimal():
        return "1"
    if sign.isascii():
        kind = "i" if re.fullmatch("[ivxIVX]+", sign) and not is_next_letter else "a"
        return kind.upper() if sign.isupper() else kind
    return "一" if sign[0] in "一二三四五六七八九十" else "ア"


_SUMMARY = re.compile(
    r"(?:<details\b[^<>]*>\s*)?<summary\b.{0,1000}?</summary>", re.IGNORECASE | re.DOTALL
)
_DETAILS = re.compile(r"<(/?)details\b", re.IGNORECASE)
_LINKS_ALONE = re.compile(
    r"(?:[\W_]*\[[^\[\]]*\]\([^()]*\)){3,}[\W_]*|\W*\[[^\[\]]*\]\(#[^()]*\)\W*"
)
# <Tabs>, </Tabs>, { .left width="50%" }: of components and of Pandoc, where nothing else is on their lines
_TAGS_OR_ATTRIBUTES = re.compile(
    r"(?:\s*</?[A-Za-z][\w.:-]*(?:\s[^<>]*)?/?>)+\s*|\s*:?[ \t]*\{[ \t]*(?:[.#:]|[\w-]+=)[^{}]*\}\s*"
)


def says_nothing(text: str) -> bool:
    """Return whether a paragraph has no words of its own: a rule, a picture, a badge, tags, components,
    attributes, or navigation links.
    """
    rest = without_pictures(text)
    if _TAGS_OR_ATTRIBUTES.fullmatch(rest) or _LINKS_ALONE.fullmatch(text):
        return True
    return not has_words(searchable_text(rest))


# What a block needs


class _Relations:
    """The blocks above the current one that it depends on, while the blocks of a text are read in order.

    Depths are those of lists: a paragraph outside of lists has depth 0, and introduces a list whose items
    have depth 1.
    """

    def __init__(self, text: str, turns: Mapping[int, Turn]) -> None:
        self._text = text
        self._turns = turns
        self._start_section()

    def _start_section(self) -> None:
        self._paragraph: Block | None = None  # directly above
        self._caption: Block | None = None  # above that, if that is a unit
        # lead-ins of the current lists or tables, by their depth
        self._leads: dict[int, Sequence[Span]] = {}
        # those of the last list, which may go on below text
        self._leads_of_list: dict[int, Sequence[Span]] = {}
        self._items: list[Block] = []  # the current item and those around it
        self._columns: Block | None = None  # the header of the current table
        self._group: Block | None = None  # the heading of the current rows
        self._ends_group = False  # whether the last row is the total of these
        self._term: Block | None = None
        self._question: Block | None = None
        self._answers = 0  # paragraphs since the question
        self._speaking: dict[int, tuple[Block, Turn]] = {}  # by the depth of quotations

    def related(self, block: Block) -> Block:
        """Return a block with what it needs and states; to be called for all blocks in order."""
        needs = self._needs_of(block)
        return replace(
            block, needs=needs, row=self._statement_of(block), label=self._label_of(block)
        )

    def _needs_of(self, block: Block) -> tuple[Span, ...]:
        if block.kind == "heading":
            self._start_section()
            return ()
        if block.kind == "nothing":
            if RULE.fullmatch(self._text, *block.span):
                self._start_section()
            self._speak(block)
            return ()
        self._leave(block)
        needs = [self._beginning_of(item) for item in self._items]
        needs += chain(*self._leads.values())
        needs += self._table_needs_of(block)
        if self._question:
            needs.append(self._question.span)
        if self._term and self._defines(block):
            needs.append(self._term.span)
        self._speak(block)
        speaking = self._speaking_at(block)
        if speaking and speaking[0] is not block:
            needs.append(self._beginning_of(speaking[0]))
        self._enter(block)
        return tuple(sorted(set(needs) - {block.span}))

    def _speak(self, block: Block) -> None:
        """Remember the turn that a block begins, if it begins one."""
        turn = self._turns.get(block.start)
        if turn:
            self._speaking[quotation_depth(self._text, block.start) + turn.quotes] = (block, turn)

    def _speaking_at(self, block: Block) -> tuple[Block, Turn] | None:
        """Return the turn that a block is in, with its first block; None if it is in none."""
        speaking = self._speaking.get(quotation_depth(self._text, block.start))
        return speaking if speaking and (speaking[1].lasts or speaking[0] is block) else None

    def _label_of(self, block: Block) -> str:
        """Return the label of the turn that a block is in; empty if it is in none."""
        if block.kind not in ("prose", "item"):
            return block.label
        speaking = self._speaking_at(block)
        return speaking[1].label if speaking else ""

    def _table_needs_of(self, block: Block) -> Iterator[Span]:
        if block.kind not in ("group", "row"):
            return
        if not self._columns or self._columns.names != block.names:
            return
        yield self._columns.span
        if block.kind == "row" and self._group:
            yield self._group.span

    def _statement_of(self, block: Block) -> str:
        """Return the statement of a row, after the heading within its table; empty for other blocks."""
        if block.kind != "row":
            return ""
        group = ""
        if self._group and self._group.names == block.names:
            group = self._group.cells[0]
        if group in block.cells[:1]:
            group = ""
        return row_statement(("", *block.names), (group, *block.cells))

    def _leave(self, block: Block) -> None:
        """Forget what does not apply to a block, and remember its lead-in."""
        if self._ends_group:
            self._group = None
            self._ends_group = False
        if self._paragraph and block.kind in _LED_IN:
            self._remember_lead_in(self._paragraph, block)
        if self._ends_list(block):
            self._items = [item for item in self._items if item.level < self._items[-1].level]
        else:
            self._leave_lists(block)
        if _is_outside_lists(block):
            self._read_question(block)

    def _remember_lead_in(self, paragraph: Block, block: Block) -> None:
        """Remember the paragraph above a block as its lead-in, unless the block continues a list."""
        if block.kind == "item" and not begins_list(block.text_in(self._text)):
            self._leads = {**self._leads_of_list}
        else:
            leads = filter(None, (self._caption, paragraph))
            self._leads[paragraph.level] = [*map(self._lead_in, leads)]

    def _ends_list(self, block: Block) -> bool:
        """Return whether a paragraph ends the sentence that its list is in: "unless the harbour agrees"."""
        if not self._items or not _is_outside_lists(block):
            return False
        above = self._text[self._items[-1].start : self._items[-1].end]
        return self._text[block.start].islower() and not above.endswith(tuple(STOPS))

    def _leave_lists(self, block: Block) -> None:
        item_depth = block.level - 1 if block.kind == "item" else block.level
        lead_depth = block.level - 1 if block.kind in ("item", "prose") else block.level
        self._items = [item for item in self._items if item.level <= item_depth]
        self._leads = {level: lead for level, lead in self._leads.items() if level <= lead_depth}

    def _read_question(self, paragraph: Block) -> None:
        """Remember a question; forget the last one when its answer is complete."""
        self._answers += 1
        if self._is_faq_question(paragraph):
            self._question = paragraph
            self._answers = 0
        elif self._is_answered():
            self._question = None

    def _is_faq_question(self, block: Block) -> bool:
        """Return whether a paragraph is a question, as in an FAQ."""
        text = block.text_in(self._text)
        if not (_QUESTION_END.search(text) or _MARKED_QUESTION.match(text)):
            return False
        return len(split_sentences(text)) <= _LONGEST_QUESTION

    def _is_answered(self) -> bool:
        """Return whether the question's answer is complete: after one paragraph, or, if the question
        is marked ("Q1:"), only at the next question.
        """
        if not self._question or self._answers < 2:
            return False
        return _MARKED_QUESTION.match(self._text, *self._question.span) is None

    def _enter(self, block: Block) -> None:
        """Remember a block for those below it that depend on it."""
        self._enter_paragraph(block)
        if block.kind == "item":
            self._items.append(block)
            self._leads_of_list = {**self._leads}
        elif block.kind == "columns":
            self._columns = block
            self._group = None
        elif block.kind == "group":
            self._group = block
        elif self._group and _is_total_of(self._group, block):
            self._ends_group = True

    def _enter_paragraph(self, block: Block) -> None:
        """Remember a paragraph, which may be a lead-in or a term; forget the last one at other blocks."""
        above = self._paragraph
        self._paragraph = None
        self._caption = None
        if block.kind == "prose":
            self._paragraph = block
            if _UNIT.fullmatch(self._text, *block.span):
                self._caption = above
        if not self._defines(block):
            self._term = self._paragraph

    def _defines(self, block: Block) -> bool:
        """Return whether a block is the definition of the term above it."""
        return DEFINITION.match(self._text, block.start) is not None

    def _lead_in(self, block: Block) -> Span:
        """Return the span of a paragraph, or of its last sentences if it is long (at least one)."""
        spans = split_sentences(block.text_in(self._text))
        length = block.end - block.start
        start = next((start for start, _ in spans if length - start <= _LONGEST_LEAD), spans[-1][0])
        return block.start + start, block.end

    def _beginning_of(self, item: Block) -> Span:
        """Return what the items below need of an item: all of it, or its first sentence if it is long."""
        if item.end - item.start <= _LONGEST_LEAD:
            return item.span
        _, end = split_sentences(item.text_in(self._text))[0]
        return item.start, item.start + end


def _is_total_of(group: Block, block: Block) -> bool:
    """Return whether a block is the row with the total of a group, which ends the group."""
    if block.kind != "row" or not TOTAL.search(block.cells[0]):
        return False
    of_all = not TOTAL.sub("", block.cells[0]).strip(" :：")
    return of_all or group.cells[0].casefold() in block.cells[0].casefold()


def _is_outside_lists(block: Block) -> bool:
    """Return whether a block is a paragraph outside of lists."""
    return block.kind == "prose" and not block.level


_LONGEST_LEAD = 300  # characters
_LED_IN = ("item", "columns", "group", "row", "code")
_UNIT = re.compile(r"[(（][^()（）]*[)）]")  # "(in millions, except per share data)", （単位：円）
_LONGEST_QUESTION = 2  # sentences: "I lost it. Can I return it?"
_MARKED_QUESTION = re.compile(
    r"[*_【\s]*(?:[QＱ](?:\d{0,3}[.．:：)）】\u3000]|\d{1,3}\b)|(?:質問|問)\d{0,3}[.．:：)）】])"
)
_QUESTION_END = re.compile(
    r"(?:[?？]|(?:です|ます|ません|でしょう|のでしょう)か[。．]?)[*_」』”\"'）)]*\Z"
)
