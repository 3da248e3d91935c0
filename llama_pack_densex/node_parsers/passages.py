"""Passages that keep together what belongs together: a base parser."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.node_parser import TextSplitter
from llama_index.core.utils import get_tokenizer

from llama_pack_densex.text.blocks import Block, find_blocks, says_nothing
from llama_pack_densex.text.links import readable_text, searchable_text
from llama_pack_densex.text.markdown import PIPE
from llama_pack_densex.text.sentences import Span, after_space, split_sentences
from llama_pack_densex.text.tokens import CJK

DEFAULT_CHUNK_SIZE = 256
"""Tokens in a passage."""

CJK_TOKENS = 0.5
"""Tokens that a Chinese, Japanese or Korean character counts as.

LlamaIndex's tokenizer takes more than one for each, so that a Japanese passage held half of what an English
one does. For multilingual-e5, the default model for Japanese, 256 tokens of English are 287, as are 516
Japanese characters."""


class PassageNodeParser(TextSplitter):
    """Cuts documents into passages of bounded size, between blocks where it can.

    No passage begins or ends within a sentence, a table's row, a list's item or a line of code, unless that
    alone is longer than a passage. Of all ways to cut a document the cheapest is taken: each passage costs 1,
    and each cut the more, the closer the two things that it parts belong together. So passages prefer to end
    where a section ends, while headings, lines that lead in a list, and questions stay with what follows
    them. Where links lead does not count as length, and a Chinese, Japanese or Korean character counts as
    half a token.

    LlamaIndex's `SentenceSplitter` fills each passage before it begins the next, and its sentences are
    English: of the passages that it made of Debian's manuals, one of eight in English and one of three in
    Japanese ended within one.

    Args:
        chunk_size: The most tokens in a passage.
        chunk_overlap: The most tokens that a passage repeats of the one before it, in whole sentences, rows
            or items.

    Example:
        >>> parser = PassageNodeParser(chunk_size=12)
        >>> parser.split_text(
        ...     "# Rain\\n\\nIt rained for a week in May.\\n\\n# Snow\\n\\nIt snowed for a day in March."
        ... )
        ['# Rain\\n\\nIt rained for a week in May.', '# Snow\\n\\nIt snowed for a day in March.']
    """

    chunk_size: int = Field(
        default=DEFAULT_CHUNK_SIZE, gt=0, description="The most tokens in a passage."
    )
    chunk_overlap: int = Field(
        default=0,
        ge=0,
        description="The most tokens that a passage repeats of the one before.",
    )

    @classmethod
    def class_name(cls) -> str:
        return "PassageNodeParser"

    def split_text(self, text: str) -> list[str]:
        """The passages of a text, without the white space around them."""
        pieces = find_pieces(text, self.chunk_size)
        passages: list[str] = []
        for begin, end in pairwise(best_cuts(pieces, self.chunk_size)):
            first = self._with_overlap(pieces, begin)
            passages.append(text[pieces[first].start : pieces[end - 1].end])
        return passages

    def _with_overlap(self, pieces: Sequence[CuttingPiece], begin: int) -> int:
        """The first piece of a passage with what it repeats of the one before."""
        repeated = 0
        while begin and repeated < self.chunk_overlap:
            repeated += pieces[begin - 1].tokens
            if repeated > self.chunk_overlap:
                break
            begin -= 1
        return begin


@dataclass(frozen=True)
class CuttingPiece:
    """What no passage cuts.

    Args:
        start: Where it begins in the text, in characters.
        end: Where it ends.
        tokens: Its length.
        cost: What it costs to begin a passage with it.
        is_heading: Whether it is a heading.
        is_row: Whether it is a row of a table.
    """

    start: int
    end: int
    tokens: int
    cost: float
    is_heading: bool = False
    is_row: bool = False


ROW_SLACK = 1.25
"""What a passage that ends with a row may have more: where cells are long, few rows fill a passage evenly."""

# What a cut costs, in passages.
_AT_LEVEL = 0.02  # times the level of the heading below it, 1 to 8
_AT_PARAGRAPH = 0.2
_AT_ITEM = 0.35  # or a row
_AT_NESTED_ITEM = 0.45
_AT_SENTENCE = 0.6
_IN_QUOTATION = 0.9
_WITHIN_PIECE = 2.0
_BELOW_LEAD = 4.0  # a heading, a line that leads in a list, a header of a table, a question
_LONE_ITEM = 0.3  # more, where one item or row of several is parted from the others
_INTO_SECTION = 0.5  # more, where a passage takes the beginning of a section for its end
_MOST_PIECES = 1_000  # in a passage: tags and rules have no length
_UNEVENNESS = 0.1  # times the square of how full a passage is: among equals, those of equal length


def find_pieces(text: str, chunk_size: int) -> list[CuttingPiece]:
    """What passages are made of, in order.

    Args:
        text: A document's text.
        chunk_size: The most tokens in a piece; what is longer is cut at its best places.
    """
    blocks = [
        block for block in find_blocks(text) if not _is_picture_alone(text[slice(*block.span)])
    ]
    pieces: list[CuttingPiece] = []
    for number, block in enumerate(blocks):
        above = blocks[max(number - 2, 0) : number]
        below = blocks[number + 1] if number + 1 < len(blocks) else None
        cost = _cost_of_cut(text, above, block) + _cost_of_lone_item(above, block, below)
        for start, end in _parts(text, block, chunk_size):
            tokens = length_of(text[start:end])
            pieces.append(
                CuttingPiece(
                    start, end, tokens, cost, block.kind == "heading", block.kind == "row"
                ),
            )
            cost = (
                _AT_SENTENCE
                if block.kind == "prose" and not _leads_in(block, below)
                else _WITHIN_PIECE
            )
    return pieces


def _leads_in(block: Block, below: Block | None) -> bool:
    """Whether the block below another is nothing without it."""
    return below is not None and any(block.start <= start < block.end for start, _ in below.needs)


def _is_picture_alone(text: str) -> bool:
    """Whether a block is nothing but the bytes of a picture, which are in no passage."""
    return readable_text(text) != text and says_nothing(text)


def _cost_of_cut(text: str, above: Sequence[Block], block: Block) -> float:
    """What it costs to begin a passage with a block.

    Args:
        text: The text.
        above: The blocks before it; empty for the first.
        block: The block.
    """
    if not above:
        return 0.0
    if above[-1].kind in ("heading", "columns", "group"):
        return _BELOW_LEAD
    if block.kind == "heading":
        return _AT_LEVEL * block.level
    if block.kind == "nothing":
        return _WITHIN_PIECE
    return _cost_within_section(text, above[-1], block)


def _cost_within_section(text: str, above: Block, block: Block) -> float:
    if any(above.start < end for _, end in block.needs):
        return (
            _AT_NESTED_ITEM if above.kind == "item" and not _announces(text, above) else _BELOW_LEAD
        )
    if block.kind in ("item", "group", "row"):
        return _AT_ITEM if block.level < 2 else _AT_NESTED_ITEM
    if block.level:
        return _AT_NESTED_ITEM
    is_quoted = text[block.start] == text[above.start] == ">"
    return _IN_QUOTATION if is_quoted else _AT_PARAGRAPH


def _announces(text: str, item: Block) -> bool:
    """Whether an item is nothing without those below it: a question, or what ends in a colon."""
    own = text[slice(*item.span)].rstrip("*_")
    return own.endswith((":", "：", "?", "？"))


def _cost_of_lone_item(above: Sequence[Block], block: Block, below: Block | None) -> float:
    """What it costs besides to part the first or last item of a list, or row of a table, from the others.

    Args:
        above: The two blocks before the one that a passage may begin with, or as many as there are.
        block: That one.
        below: The block after it.
    """
    if not above or not _are_alike(above[-1], block):
        return 0.0
    is_second = len(above) < 2 or not _are_alike(above[0], above[1])
    is_last = below is None or not _are_alike(block, below)
    return _LONE_ITEM if is_second or is_last else 0.0


def _are_alike(block: Block, other: Block) -> bool:
    return block.kind == other.kind and block.kind in ("item", "row") and block.level == other.level


def _parts(text: str, block: Block, chunk_size: int) -> Iterator[Span]:
    """A block in pieces: the sentences of a paragraph, any other whole unless it is too long for a
    passage."""
    if block.kind == "prose":
        sentences = split_sentences(text[slice(*block.span)])
        spans = [(block.start + start, block.start + end) for start, end in sentences]
    else:
        spans = [block.span]
    for span in spans:
        yield from _divided(
            text, span, chunk_size, (*_OUTER_DIVISIONS.get(block.kind, ()), *_DIVISIONS)
        )


_Division = Callable[[str], Sequence[int]]


def _after(pattern: str) -> _Division:
    return lambda text: [place.end() for place in re.finditer(pattern, text)]


# Where to cut what is too long for a passage, the best places first.
_LINES = _after(r"\n")
_OUTER_DIVISIONS: Mapping[str, Sequence[_Division]] = {
    "code": (_LINES,),
    "columns": (_LINES, _after(PIPE)),
    "row": (_LINES, _after(PIPE)),
}
_DIVISIONS: Sequence[_Division] = (
    lambda text: [end for _, end in split_sentences(text)],
    _after(r"[,;:]\s+|[、，；：](?!\d)\s*"),
    _after(r"\s+"),
    _after(r"[,;:](?!\d)"),
    lambda text: range(1, len(text)),
)


def _divided(text: str, span: Span, chunk_size: int, divisions: Sequence[_Division]) -> list[Span]:
    """A stretch in as few parts as possible, none longer than a passage."""
    start, end = span
    own = text[start:end]
    if not divisions or length_of(own) <= chunk_size:
        return [span]
    places = sorted({0, *divisions[0](own), len(own)})
    parts: list[Span] = []
    for begin, stop in pairwise(places):
        parts += _divided(text, (start + begin, start + stop), chunk_size, divisions[1:])
    return _joined(text, parts, chunk_size)


def _joined(text: str, parts: Sequence[Span], chunk_size: int) -> list[Span]:
    """Neighbouring parts together, as many as a passage can hold."""
    trimmed: list[Span] = []
    for start, end in parts:
        own = text[start:end]
        if own.strip():
            trimmed.append((start + after_space(own, 0), start + len(own.rstrip())))
    joined: list[Span] = []
    while trimmed:
        count = _count_fitting(text, trimmed, chunk_size)
        joined.append((trimmed[0][0], trimmed[count - 1][1]))
        del trimmed[:count]
    return joined


def _count_fitting(text: str, parts: Sequence[Span], chunk_size: int) -> int:
    """How many of the first parts a passage can hold; its length is not counted anew for each of them."""

    def length_with(part: Span) -> int:
        return length_of(text[parts[0][0] : part[1]])

    most = 1
    while most < len(parts) and length_with(parts[most]) <= chunk_size:
        most *= 2
    return bisect_right(parts, chunk_size, 1, min(most, len(parts)), key=length_with)


def length_of(text: str) -> int:
    """The length of a text in tokens, without where its links lead; see `CJK_TOKENS`."""
    return _length_by(get_tokenizer(), text)


@lru_cache(maxsize=4_096)  # sections and their passages are cut from the same sentences
def _length_by(tokenize: Callable[[str], Sequence[Any]], text: str) -> int:
    words = searchable_text(text)
    without_cjk = _CJK.sub("", words)
    return len(tokenize(without_cjk)) + math.ceil(CJK_TOKENS * (len(words) - len(without_cjk)))


_CJK = re.compile(f"[{CJK}]")


def best_cuts(pieces: Sequence[CuttingPiece], chunk_size: int) -> list[int]:
    """The places to cut a row of pieces at, so that passages and cuts cost least in all.

    Args:
        pieces: The pieces, none longer than a passage.
        chunk_size: The most tokens in a passage.

    Returns:
        The places in order, with 0 and the number of pieces.
    """
    ends = [0, *accumulate(piece.tokens for piece in pieces)]
    costs = [0.0]  # of all up to a place
    begins = [0]  # of the last passage up to a place
    for end in range(1, len(pieces) + 1):
        limit = chunk_size * ROW_SLACK if pieces[end - 1].is_row else chunk_size
        cost, begin = _cheapest_passage_until(end, pieces, ends, limit, costs)
        costs.append(cost if end == len(pieces) else cost + pieces[end].cost)
        begins.append(begin)
    cuts = [len(pieces)]
    while cuts[-1]:
        cuts.append(begins[cuts[-1]])
    return cuts[::-1]


def _cheapest_passage_until(
    end: int,
    pieces: Sequence[CuttingPiece],
    ends: Sequence[int],
    limit: float,
    costs: Sequence[float],
) -> tuple[float, int]:
    """What all up to a place costs with the best last passage, and where that begins."""
    is_section_end = end == len(pieces) or pieces[end].is_heading
    has_heading = False  # behind its first piece
    best = (math.inf, end - 1)
    for begin in range(end - 1, max(end - _MOST_PIECES, 0) - 1, -1):
        tokens = ends[end] - ends[begin]
        if tokens > limit and begin < end - 1:
            break
        # a passage that begins with a heading takes nothing of another section
        into_section = _INTO_SECTION if has_heading and not is_section_end else 0.0
        cost = costs[begin] + 1 + into_section + _UNEVENNESS * (tokens / limit) ** 2
        if cost < best[0]:
            best = (cost, begin)
        has_heading = has_heading or pieces[begin].is_heading
    return best
