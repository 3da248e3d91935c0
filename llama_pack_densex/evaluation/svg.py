"""What the report's plots are drawn with: looks of strategies, lines, markers, letters, and the element around them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_pack_densex.evaluation.report_format import escaped

_OURS = ("#0060a8", "#c84c00", "#00795a", "#8a3a9c", "#7a5c00", "#a8123e", "#006d77", "#4a3fb5")
_OTHERS = ("#5b6470", "#8c6d46", "#56774c", "#8a6078", "#47748a", "#7c6c36", "#6b6aa0", "#98645a")
_DASHES = ("6 3", "2 2", "9 3 2 3", "12 4", "4 2 1 2", "1 3", "8 2 2 2 2 2")
_MARKERS = (
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z",  # circle
    "M-.9 -.9H.9V.9H-.9Z",  # square
    "M0 -1.2L1.1 .8H-1.1Z",  # triangle
    "M0 -1.3L1.2 0L0 1.3L-1.2 0Z",  # diamond
    "M0 1.2L1.1 -.8H-1.1Z",  # triangle, on its head
    "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",  # plus
    "M0 -1.2L1.1 -.4L.7 1H-.7L-1.1 -.4Z",  # pentagon
)
INK, SOFT, GRID, GROUND = "#1c2126", "#59626d", "#e1e5ea", "#ffffff"
LETTER = 12  # the size of letters, in the drawing's units
BAR_OURS, BAR_OTHER = _OURS[0], "#aeb7c1"


@dataclass(frozen=True)
class Look:
    """How a strategy is drawn: told apart by colour, and without colour by dashes and markers.

    Args:
        number: Its number among the looks, under which the page's style sheet has a colour for dark ground.
        colour: On white.
        dash: As in SVG's `stroke-dasharray`; empty for ours, whose lines are solid.
        marker: An SVG path around the origin.
        ours: Whether it is one of ours: a stronger line, and filled markers.
    """

    number: int
    colour: str
    dash: str
    marker: str
    ours: bool


def looks(strategies: Sequence[Mapping[str, Any]]) -> list[Look]:
    """Give each strategy of a report its look, in order."""
    seen = {True: 0, False: 0}
    drawn = []
    for strategy in strategies:
        ours = bool(strategy["ours"])
        place = seen[ours]
        seen[ours] += 1
        colour = place % 8
        # Seven markers beside eight colours: the pair comes round again after 56 strategies.
        dash = "" if ours else _DASHES[(place + place // 8) % len(_DASHES)]
        palette = _OURS if ours else _OTHERS
        marker = _MARKERS[(place + place // 8) % len(_MARKERS)]
        drawn.append(Look(colour if ours else 8 + colour, palette[colour], dash, marker, ours))
    return drawn


def swatch(look: Look) -> str:
    """A strategy's line and marker, small, for a legend."""
    return (
        f'<svg class="swatch look-{look.number}" color="{look.colour}" width="30" height="12" viewBox="0 0 30 12" '
        f'aria-hidden="true">{line([(0, 6), (30, 6)], look)}{marker(look, 15, 6)}</svg>'
    )


def series(number: int, look: Look, inside: str, kind: str = "line") -> str:
    ours = " ours" if look.ours else ""
    return (
        f'<g class="series {kind} look-{look.number}{ours}" data-strategy="{number}" color="{look.colour}">{inside}</g>'
    )


def line(points: Sequence[tuple[float, float]], look: Look) -> str:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="{2.6 if look.ours else 1.4}"{dash}/>'


def marker(look: Look, x: float, y: float, tooltip: str = "") -> str:
    filled = 'fill="currentColor"' if look.ours else f'class="hollow" fill="{GROUND}"'
    title = f"<title>{escaped(tooltip)}</title>" if tooltip else ""
    return (
        f'<path d="{look.marker}" transform="translate({x:.1f} {y:.1f}) scale(3.4)" {filled} stroke="currentColor" '
        f'stroke-width="1.3" vector-effect="non-scaling-stroke">{title}</path>'
    )


def letters(x: float, y: float, text: str, anchor: str, colour: str, kind: str, *, weight: int = 400) -> str:
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place} fill="{colour}"{bold}>{escaped(text)}</text>'


def element(width: int, height: int, title: str, inside: str, attributes: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" aria-label="{escaped(title)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="{LETTER}" {attributes}>'
        f'<rect class="ground" width="{width}" height="{height}" fill="{GROUND}"/>{inside}</svg>'
    )


def message(width: int, reason: str) -> str:
    return element(width, 60, reason, letters(16, 35, reason, "start", SOFT, "soft"))


def extent(text: str) -> float:
    """About how wide a text is."""
    return sum(LETTER if unicodedata.east_asian_width(letter) in "WF" else LETTER * 0.62 for letter in text)


def shortened(text: str, room: float) -> str:
    if extent(text) <= room:
        return text
    kept = text
    while kept and extent(kept + "…") > room:
        kept = kept[:-1]
    return kept.rstrip() + "…"
