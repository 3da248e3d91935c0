"""A base parser whose passages are cut between blocks where possible."""

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
from llama_pack_densex.text.containers import begins_box
from llama_pack_densex.text.layout import quotation_depth
from llama_pack_densex.text.links import readable_text, searchable_text
from llama_pack_densex.text.sentences import Span, after_space, split_sentences
from llama_pack_densex.text.tables import PIPE
from llama_pack_densex.text.tokens import CJK

DEFAULT_CHUNK_SIZE = 256
"""Tokens in a passage."""

CJK_TOKENS = 0.5
"""Tokens that a Chinese, Japanese or Korean character counts as, or one from Hebrew to Khmer: Arabic, Hindi,
Thai.

LlamaIndex's tokenizer needs more than one token for each, so that Japanese passages held half as much as
English ones. 256 of its tokens of English, and 516 Japanese characters, are 287 tokens each for
multilingual-e5, the default model for Japanese. A handbook of 221 tokens in German has 674 in Hindi, 516 in
Thai, 448 in Arabic by that tokenizer, and 292, 281 and 287 so."""


class PassageNodeParser(TextSplitter):
    """Cuts documents into passages of bounded size, between blocks where it can.

    No passage begins or ends within a sentence, table row, list item or line of code, unless that alone is
    longer than a passage. Of all ways to cut a document the cheapest is chosen: each passage costs 1, and a
    cut costs more the closer its two sides belong together. So passages tend to end where a section ends,
    while headings, lines that introduce a list, and questions stay with the text that follows them. The
    targets of links do not count towards the length, and a character of a script from Hebrew to Khmer, or a
    Chinese, Japanese or Korean one, counts as half a token.

    LlamaIndex's `SentenceSplitter` fills each passage before it begins the next, and detects sentences by
    English rules: of the passages that it made of Debian's manuals, one in eight in English and one in three
    in Japanese ended within a sentence.

    Args:
        chunk_size: The most tokens in a passage; one that ends with a table row may have a quarter more.
        chunk_overlap: The most tokens of the previous passage that a passage repeats, in whole sentences,
            rows or items.

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
        description="The most tokens of the previous passage that a passage repeats.",
    )

    @classmethod
    def class_name(cls) -> str:
        return "PassageNodeParser"

    def split_text(self, text: str) -> list[str]:
        """Split a text into passages, without the white space around them."""
        pieces = find_pieces(text, self.chunk_size)
        passages = []
        for begin, end in pairwise(best_cuts(pieces, self.chunk_size)):
            first = self._with_overlap(pieces, begin)
            passages.append(text[pieces[first].start : pieces[end - 1].end])
        return passages

    def _with_overlap(self, pieces: Sequence[CuttingPiece], begin: int) -> int:
        """Return the index of a passage's first piece, including those repeated from the previous passage."""
        repeated = 0
        while begin and repeated < self.chunk_overlap:
            repeated += pieces[begin - 1].tokens
            if repeated > self.chunk_overlap:
                break
            begin -= 1
        return begin


@dataclass(frozen=True)
class CuttingPiece:
    """A stretch of text that is not cut.

    Args:
        start: Where it begins in the text, in characters.
        end: Where it ends.
        tokens: Its length in tokens.
        cost: The cost of beginning a passage with it.
        is_heading: Whether it is a heading.
        is_row: Whether it is a table row.
    """

    start: int
    end: int
    tokens: int
    cost: float
    is_heading: bool = False
    is_row: bool = False


ROW_SLACK = 1.25
"""Factor of the limit for passages that end with a table row: rows with long cells seldom fill a passage
exactly."""

# Costs of a cut; a passage costs 1.
_AT_LEVEL = 0.02  # times the level of the heading below the cut, 1 to 8
_AT_PARAGRAPH = 0.2
_AT_ITEM = 0.35  # or a row
_AT_NESTED_ITEM = 0.45
_AT_SENTENCE = 0.6
_IN_QUOTATION = 0.9
_WITHIN_PIECE = 2.0
_BELOW_LEAD = 4.0  # below a heading, a line that introduces a list, a table header, or a question
_LONE_ITEM = 0.3  # added if the cut separates a single item or row from the others
_INTO_SECTION = 0.5  # added if a passage ends within a section that begins in its middle
_MOST_PIECES = 1_000  # in a passage, since tags and rules have no length
_UNEVENNESS = 0.1  # times the square of a passage's fill: prefers passages of equal length


def find_pieces(text: str, chunk_size: int) -> list[CuttingPiece]:
    """Split a text into the pieces that passages consist of, in order.

    Args:
        text: A document's text.
        chunk_size: The most tokens in a piece; longer sentences and blocks are cut at their best places.
    """
    blocks = [block for block in find_blocks(text) if not _is_picture_alone(block.text_in(text))]
    pieces = []
    for number, block in enumerate(blocks):
        above = blocks[max(number - 2, 0) : number]
        below = blocks[number + 1 : number + 2]
        cost = _cost_of_cut(text, above, block) + _cost_of_lone_item(above, block, below)
        for start, end in _parts(text, block, chunk_size):
            tokens = length_of(text[start:end])
            is_heading = block.kind == "heading"
            is_row = block.kind == "row"
            pieces.append(CuttingPiece(start, end, tokens, cost, is_heading, is_row))
            cost = _WITHIN_PIECE
            if block.kind == "prose" and not any(map(block.leads_in, below)):
                cost = _AT_SENTENCE
    return pieces


def _is_picture_alone(text: str) -> bool:
    """Return whether a block holds only an embedded picture, whose bytes belong in no passage."""
    return readable_text(text) != text and says_nothing(text)


def _cost_of_cut(text: str, above: Sequence[Block], block: Block) -> float:
    """Return the cost of beginning a passage with a block.

    Args:
        text: The text.
        above: The blocks before it; empty for the first block.
        block: The block.
    """
    if not above:
        return 0.0
    if above[-1].kind in ("heading", "columns", "group") or _is_mark(text, above[-1]):
        return _BELOW_LEAD
    if block.kind == "heading":
        return _AT_LEVEL * block.level
    if _is_mark(text, block):
        return _AT_PARAGRAPH
    if block.kind == "nothing":
        return _WITHIN_PIECE
    return _cost_within_section(text, above[-1], block)


def _cost_within_section(text: str, above: Block, block: Block) -> float:
    goes_on = block.label != "" and block.label == above.label
    if _needs(block, above) and not goes_on:
        return _cost_below_lead(text, above)
    if block.kind in ("item", "group", "row") and block.level < 2:
        return _AT_ITEM
    if block.level or goes_on:
        return _AT_NESTED_ITEM
    if quotation_depth(text, block.start) and quotation_depth(text, above.start):
        return _IN_QUOTATION
    return _AT_PARAGRAPH


def _cost_below_lead(text: str, lead: Block) -> float:
    if lead.kind == "item" and not _announces(text, lead):
        return _AT_NESTED_ITEM
    return _BELOW_LEAD


def _needs(block: Block, above: Block) -> bool:
    """Return whether a block cannot be understood without the one above it, or what that needs itself."""
    return any(above.start < end for _, end in block.needs)


def _is_mark(text: str, block: Block) -> bool:
    """Return whether a block is the mark that begins a box, such as a warning, or says who speaks."""
    return block.kind == "nothing" and (block.label != "" or begins_box(block.text_in(text)))


def _announces(text: str, item: Block) -> bool:
    """Return whether an item introduces those below it: it is a question, or ends with a colon."""
    return item.text_in(text).rstrip("*_").endswith((":", "：", "?", "？"))


def _cost_of_lone_item(above: Sequence[Block], block: Block, below: Sequence[Block]) -> float:
    """Return the additional cost of separating the first or last item of a list, or row of a table.

    Args:
        above: The two blocks before `block`, or as many as there are.
        block: The block that a passage may begin with.
        below: The block after it, if there is one.
    """
    if not _are_alike(*above[-1:], block):
        return 0.0
    is_middle = _are_alike(*above) and _are_alike(block, *below)
    return 0.0 if is_middle else _LONE_ITEM


def _are_alike(*blocks: Block) -> bool:
    """Return whether these are two items of a list, or two rows of a table."""
    kinds = {(block.kind, block.level) for block in blocks}
    return len(blocks) == 2 and len(kinds) == 1 and blocks[0].kind in ("item", "row")


def _parts(text: str, block: Block, chunk_size: int) -> Iterator[Span]:
    """Yield the spans of a block's pieces: the sentences of prose, or the whole of another block.

    Pieces that are too long for a passage are divided.
    """
    spans = [block.span]
    if block.kind == "prose":
        sentences = split_sentences(block.text_in(text))
        spans = [(block.start + start, block.start + end) for start, end in sentences]
    divisions = [*_OUTER_DIVISIONS.get(block.kind, ()), *_DIVISIONS]
    for span in spans:
        yield from _divided(text, span, chunk_size, divisions)


_Division = Callable[[str], Sequence[int]]


def _after(pattern: str) -> _Division:
    return lambda text: [place.end() for place in re.finditer(pattern, text)]


# Places to cut a piece that is too long for a passage, the best first.
_LINES = _after(r"\n")
_OUTER_DIVISIONS: Mapping[str, Sequence[_Division]] = {
    "code": (_LINES,),
    "columns": (_LINES, _after(PIPE.pattern)),
    "row": (_LINES, _after(PIPE.pattern)),
}
_DIVISIONS: Sequence[_Division] = (
    lambda text: [end for _, end in split_sentences(text)],
    _after(r"[,;:]\s+|[、，；：](?!\d)\s*"),
    _after(r"\s+"),
    _after(r"[,;:](?!\d)"),
    lambda text: range(1, len(text)),
)


def _divided(text: str, span: Span, chunk_size: int, divisions: Sequence[_Division]) -> list[Span]:
    """Divide a span into as few parts as possible, none longer than a passage, at the best places."""
    start, end = span
    own = text[start:end]
    if not divisions or length_of(own) <= chunk_size:
        return [span]
    places = sorted({0, *divisions[0](own), len(own)})
    parts = []
    for begin, stop in pairwise(places):
        parts += _divided(text, (start + begin, start + stop), chunk_size, divisions[1:])
    return _joined(text, parts, chunk_size)


def _joined(text: str, parts: Sequence[Span], chunk_size: int) -> list[Span]:
    """Join neighbouring parts, as many as fit into a passage each time."""
    trimmed = []
    for start, end in parts:
        own = text[start:end]
        if own.strip():
            trimmed.append((start + after_space(own, 0), start + len(own.rstrip())))
    joined = []
    while trimmed:
        count = _count_fitting(text, trimmed, chunk_size)
        joined.append((trimmed[0][0], trimmed[count - 1][1]))
        del trimmed[:count]
    return joined


def _count_fitting(text: str, parts: Sequence[Span], chunk_size: int) -> int:
    """Return how many of the first parts fit into a passage.

    It searches by doubling and bisection, since counting the tokens for each part would be slow.
    """

    def length_with(part: Span) -> int:
        return length_of(text[parts[0][0] : part[1]])

    most = 1
    while most < len(parts) and length_with(parts[most]) <= chunk_size:
        most *= 2
    return bisect_right(parts, chunk_size, 1, min(most, len(parts)), key=length_with)


def length_of(text: str) -> int:
    """Return the length of a text in tokens, without the targets of links; see `CJK_TOKENS`."""
    return _length_by(get_tokenizer(), text)


@lru_cache(maxsize=4_096)  # sections and their passages are cut from the same sentences
def _length_by(tokenize: Callable[[str], Sequence[Any]], text: str) -> int:
    words = searchable_text(text)
    without_cjk = _CJK.sub("", words)
    return len(tokenize(without_cjk)) + math.ceil(CJK_TOKENS * (len(words) - len(without_cjk)))


_CJK = re.compile(f"[{CJK}\u0590-\u109f\u1780-\u17ff]")


def best_cuts(pieces: Sequence[CuttingPiece], chunk_size: int) -> list[int]:
    """Find the cuts between pieces with the least total cost of passages and cuts.

    Args:
        pieces: The pieces, none longer than a passage.
        chunk_size: The most tokens in a passage.

    Returns:
        The indices of the pieces to cut before, in order, with 0 and the number of pieces.
    """
    ends = [0, *accumulate(piece.tokens for piece in pieces)]
    costs = [0.0]  # for each place: the least cost of all pieces before it
    begins = [0]  # for each place: where the last passage before it begins
    for end in range(1, len(pieces) + 1):
        limit: float = chunk_size
        if pieces[end - 1].is_row:
            limit *= ROW_SLACK
        cost, begin = _cheapest_passage_until(end, pieces, ends, limit, costs)
        if end < len(pieces):
            cost += pieces[end].cost
        costs.append(cost)
        begins.append(begin)
    return path_to_end(begins)


def path_to_end(begins: Sequence[int]) -> list[int]:
    """Return the cuts, with both ends, given where the best last passage before each place begins."""
    cuts = [len(begins) - 1]
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
    """Return the least cost of the pieces before a place, and where the last passage before it begins."""
    is_section_end = end == len(pieces) or pieces[end].is_heading
    has_heading = False  # whether the passage has a heading after its first piece
    best = (math.inf, end - 1)
    for begin in range(end - 1, max(end - _MOST_PIECES, 0) - 1, -1):
        tokens = ends[end] - ends[begin]
        if tokens > limit and begin < end - 1:
            break
        # costs more if the passage ends within a section that begins after its first piece
        into_section = _INTO_SECTION if has_heading and not is_section_end else 0.0
        cost = costs[begin] + 1 + into_section + _UNEVENNESS * (tokens / limit) ** 2
        if cost < best[0]:
            best = (cost, begin)
        has_heading = has_heading or pieces[begin].is_heading
    return best
