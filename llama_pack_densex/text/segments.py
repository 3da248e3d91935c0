"""The segments of a text (sentences, headings, rows, code), and the statement that each makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llama_pack_densex.text.blocks import Block, find_blocks
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.sentences import Span, after_space, split_sentences
from llama_pack_densex.text.tables import record_lines
from llama_pack_densex.text.tokens import contents_of, has_words
from llama_pack_densex.text.turns import shown_label


# enough for a batch: each step goes through all its passages before the next step begins
@lru_cache(maxsize=512)
def segment(text: str, context: str = "") -> tuple[Block, ...]:
    """Split a text into sentences, headings, rows of tables, and code.

    Args:
        text: Any text, plain or Markdown. No language is needed: the rules depend on the script.
        context: The Markdown that stands before it (see `blocks.find_blocks`); it names the columns of rows.

    Returns:
        The segments in order. They never overlap, and cover all but white space and the marks of quotations.
        A list item or a line without a full stop is a sentence too. The time is linear in the length of the
        text.
    """
    return tuple(part for block in find_blocks(text, context) for part in _segments_of(text, block))


def _segments_of(text: str, block: Block) -> Iterator[Block]:
    if block.kind not in ("prose", "item"):
        yield from record_lines(text, block) or [block]
        return
    own = block.text_in(text)
    if not block.label:
        for start, end in split_sentences(own):
            yield Block(block.start + start, block.start + end, "sentence")
        return
    shown = shown_label(block.label)
    label_length = len(block.label) if own.startswith(block.label) else 0
    start = block.start
    for sentence_start, sentence_end in split_sentences(own[label_length:]):
        end = block.start + label_length + sentence_end
        sentence = searchable_text(
            own[label_length + sentence_start : label_length + sentence_end]
        ).strip()
        yield Block(start, end, "sentence", row=f"{shown}{sentence}", label=shown)
        start = after_space(text, end)


def sentence_spans(text: str) -> list[Span]:
    """Return the (start, end) of every segment of a text."""
    return [part.span for part in segment(text)]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a passage.

    Args:
        text: The statement, which can be understood alone.
        span: Its start and end in the passage, in characters.
    """

    text: str
    span: Span


@lru_cache(maxsize=512)
def statements(text: str, context: str = "") -> tuple[Statement, ...]:
    """Return the statements that stand in for the propositions of a passage, in order.

    Sentences (without the targets of links) and code stay as they are; each cell of a row follows the name of
    its column. Headings are left out: alone they state nothing, yet match a question about their topic best.
    So are table headers, rules and other lines without a letter or digit, and the entries of a table of
    contents. A passage of nothing else keeps them, a table of contents as one unit, so that every passage
    that is not blank states something.

    Args:
        text: The passage.
        context: The Markdown that stands before it.
    """
    segments = segment(text, context)
    entries = contents_of(text)
    units = [Statement(_statement_of(part, text), part.span) for part in segments]
    stated = [
        unit
        for unit in units
        if has_words(unit.text) and _last_line(text, unit.span) not in entries
    ]
    if stated:
        return tuple(stated)
    spans = [unit.span for unit in units]
    if entries:
        spans = [(segments[0].start, segments[-1].end)]
    return tuple(Statement(text[slice(*span)], span) for span in spans)


def _last_line(text: str, span: Span) -> str:
    return text[slice(*span)].splitlines()[-1].strip()


def _statement_of(part: Block, text: str) -> str:
    """Return what a segment of a text states; empty if it states nothing alone."""
    own = part.text_in(text)
    if part.kind == "code":
        return own
    if part.kind == "sentence" and not part.row:
        return searchable_text(own).strip()
    return part.row


def passage_sentences(text: str, context: str = "") -> tuple[str, ...]:
    """Return the texts of the statements of a passage (see `statements`)."""
    return tuple(statement.text for statement in statements(text, context))
