"""Where a splitter's pieces stand in the text they were cut from."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]

_MAX_CANDIDATES = 64  # places looked at for one piece; only repetitive text with overlapping pieces has more than one


def locate(pieces: Sequence[str], text: str) -> list[Span | None]:
    """Find the spans of pieces that were cut from a text in order, with or without overlap.

    Of the places where a piece occurs, those that leave no gap to the piece before it are preferred (only white
    space may be lost between two pieces), so that repeated text is found where it was cut.

    Args:
        pieces: What a splitter returned, in document order.
        text: The document's text.

    Returns:
        For each piece `(start, end)` with `text[start:end] == piece`, or None where it does not stand in the text
        word for word (a parser that rewrites).
    """
    end_to_end = _end_to_end(pieces, text)
    if end_to_end is not None:
        return end_to_end
    spans: list[Span | None] = []
    starts: list[int] = []  # where the last found piece may start
    length = 0  # of the last found piece
    chain: list[list[int]] = []
    for piece in pieces:
        candidates = _candidates(piece, text, starts, length)
        chain.append(candidates)
        if candidates:
            starts, length = candidates, len(piece)
    follow: int | None = None  # the start chosen for the piece after this one
    for piece, candidates in zip(reversed(pieces), reversed(chain), strict=True):
        if not candidates:
            spans.append(None)
            continue
        without_gap = [s for s in candidates if follow is None or s <= follow <= _skip_space(text, s + len(piece))]
        in_order = [s for s in candidates if follow is None or s <= follow]
        follow = max(without_gap or in_order or candidates)
        spans.append((follow, follow + len(piece)))
    return spans[::-1]


def _end_to_end(pieces: Sequence[str], text: str) -> list[Span | None] | None:
    """The spans of pieces that follow one another from the text's start to its end, the usual case; else None."""
    spans: list[Span | None] = []
    place = 0
    for piece in pieces:
        start = place if text.startswith(piece, place) else _skip_space(text, place)
        if not text.startswith(piece, start):
            return None
        place = start + len(piece)
        spans.append((start, place))
    return spans if _skip_space(text, place) == len(text) else None


def _candidates(piece: str, text: str, starts: list[int], length: int) -> list[int]:
    """Where a piece can start, given where the piece before it can start."""
    if not piece:
        return []
    if not starts:
        first = text.find(piece)
        return [] if first < 0 else [first]
    adjacent = [start for s in starts if text.startswith(piece, start := _skip_space(text, s + length))]
    overlapping: list[int] = []
    latest = _skip_space(text, starts[-1] + length)
    place = text.find(piece, starts[0], latest + len(piece))
    while place >= 0 and len(overlapping) < _MAX_CANDIDATES:
        overlapping.append(place)
        place = text.find(piece, place + 1, latest + len(piece))
    found = sorted({*adjacent, *overlapping})[-_MAX_CANDIDATES:]
    if not found:  # a gap: the splitter left something out
        place = text.find(piece, starts[0])
        found = [] if place < 0 else [place]
    return found


def _skip_space(text: str, index: int) -> int:
    while index < len(text) and text[index].isspace():
        index += 1
    return index
