"""A text as segments: its sentences, headings, rows and code, and what each of them states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llama_pack_densex.text.blocks import Block, find_blocks
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.sentences import Span, split_sentences
from llama_pack_densex.text.tokens import contents_of


# several steps ask about a passage, after all of a batch went through the one before
@lru_cache(maxsize=512)
def segment(text: str, context: str = "") -> tuple[Block, ...]:
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


def _segments_of(text: str, block: Block) -> Iterator[Block]:
    if block.kind not in ("prose", "item"):
        yield block
        return
    for start, end in split_sentences(text[block.start : block.end]):
        yield Block(block.start + start, block.start + end, "sentence")


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
    if stated:
        return tuple(stated)
    spans = [part.span for part in segments]
    if entries:
        spans = [(segments[0].start, segments[-1].end)]
    return tuple(Statement(text[slice(*span)], span) for span in spans)


def _statement(part: Block, own: str) -> str:
    """What a segment with a text of its own states; empty where it states nothing."""
    if part.kind == "code":
        return own
    return part.row or (searchable_text(own).strip() if part.kind == "sentence" else "")


def passage_sentences(text: str, context: str = "") -> tuple[str, ...]:
    """The texts of the statements of a passage (see `statements`)."""
    return tuple(statement.text for statement in statements(text, context))
