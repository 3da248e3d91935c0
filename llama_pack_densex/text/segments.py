"""A text as segments: its sentences, headings, rows and code, and what each of them states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from llama_pack_densex.text.blocks import Block, find_blocks
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.markdown import row_statement
from llama_pack_densex.text.sentences import Span, split_sentences
from llama_pack_densex.text.tokens import contents_of

SegmentKind = Literal["sentence", "heading", "row", "code", "columns", "nothing"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a text without white space around it.

    Args:
        start: Where it begins, in characters.
        end: Where it ends.
        kind: "sentence", "heading", "row" (of a table), "code", "columns" (the header of a table, or of
            some of its rows), or "nothing" for what says nothing.
        level: Of a heading; 1 is outermost.
        row: Of a row, each cell behind the name of its column, and the heading within the table that it is
            below before them, so that it can be understood alone.
    """

    start: int
    end: int
    kind: SegmentKind
    level: int = 0
    row: str = ""

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.start, self.end


# several steps ask about a passage, after all of a batch went through the one before
@lru_cache(maxsize=512)
def segment(text: str, context: str = "") -> tuple[Segment, ...]:
    """Split a text into sentences, headings, rows of tables, and code.

    Args:
        text: Any text, plain or Markdown. The language is not asked for: the rules go by script.
        context: The Markdown that stands before it (see `blocks.find_blocks`); it names the columns of rows.

    Returns:
        The segments in order. They never overlap and cover every character that is not white space. An item
        of a list, a line that no full stop ends or one without letters (a rule, an emoji) is a sentence
        too. The time is linear in the length of the text.
    """
    return tuple(part for block in find_blocks(text, context) for part in _segments_of(text, block))


def _segments_of(text: str, block: Block) -> Iterator[Segment]:
    if block.kind in ("prose", "item"):
        for start, end in split_sentences(text[block.start : block.end]):
            yield Segment(block.start + start, block.start + end, "sentence")
    elif block.kind == "row":
        yield Segment(
            *block.span, "row", row=row_statement(("", *block.names), (block.group, *block.cells))
        )
    else:
        yield Segment(*block.span, _KINDS[block.kind], block.level)


_KINDS: dict[str, SegmentKind] = {
    "heading": "heading",
    "columns": "columns",
    "group": "columns",
    "code": "code",
    "nothing": "nothing",
}


def sentence_spans(text: str) -> list[Span]:
    """Return the (start, end) of every segment of a text."""
    return [part.span for part in segment(text)]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a passage states in one place.

    Args:
        text: The statement.
        span: Where it stands in the passage, in characters.
    """

    text: str
    span: Span


@lru_cache(maxsize=512)
def statements(text: str, context: str = "") -> tuple[Statement, ...]:
    """What stands in for the propositions of a passage, in order.

    Sentences and code are as they stand there, without where links lead; the cells of a row are behind the
    names of their columns. Headings are left out: alone they state nothing, and yet match a question about
    their topic best. So are headers of tables, rules and other lines without a letter or digit, and the
    entries of a table of contents. A passage that holds nothing else keeps them, these as one unit, so that
    every passage that is not blank states something.

    Args:
        text: The passage.
        context: The Markdown that stands before it.
    """
    segments = segment(text, context)
    entries = contents_of(text)
    stated: list[Statement] = []
    for part in segments:
        own = text[part.start : part.end]
        statement = _statement(part, own)
        if any(map(str.isalnum, statement)) and own.splitlines()[-1].strip() not in entries:
            stated.append(Statement(statement, part.span))
    if stated or not segments:
        return tuple(stated)
    if entries:
        span = (segments[0].start, segments[-1].end)
        return (Statement(text[slice(*span)], span),)
    return tuple(Statement(text[part.start : part.end], part.span) for part in segments)


def _statement(part: Segment, own: str) -> str:
    """What a segment with a text of its own states; empty where it states nothing."""
    if part.kind == "code":
        return own
    return part.row or (searchable_text(own).strip() if part.kind == "sentence" else "")


def passage_sentences(text: str, context: str = "") -> tuple[str, ...]:
    """The texts of the statements of a passage (see `statements`)."""
    return tuple(statement.text for statement in statements(text, context))
