"""The report's plots as SVG: answer recall by words of context, and recall@k with confidence intervals.

The page draws the same SVG and its script adds toggling and hover. Elsewhere (`IPython.display.SVG` in a notebook) they
stand alone: white ground, values as tooltips, no script, no style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from llama_pack_densex.evaluation.report_format import clean, count, escaped, share
from llama_pack_densex.evaluation.svg import (
    BAR_OTHER,
    BAR_OURS,
    GRID,
    GROUND,
    INK,
    LETTER,
    SOFT,
    Look,
    element,
    extent,
    letters,
    line,
    looks,
    marker,
    message,
    series,
    shortened,
)


def answer_recall_svg(
    report: Mapping[str, Any], *, width: int = 960, height: int = 460, whole: bool = False, labels: bool = True
) -> str:
    """Draw for how many questions an answer stands within the first l words of context (the paper's figure 4).

    Args:
        report: What `Report.to_dict()` returns.
        width: In pixels; the drawing scales.
        height: In pixels.
        whole: Let the vertical axis begin at 0. Otherwise it begins below the values at two fifths of the largest l, so
            that strategies that are near each other can be told apart.
        labels: Whether each line has its strategy's name at its right end.

    Returns:
        A whole SVG element.
    """
    lengths: list[int] = report["settings"]["lengths"]
    unit = report["dataset"]["length_unit"]
    curves = [
        [strategy["metrics"].get(f"answer_recall@{length}") for length in lengths] for strategy in report["strategies"]
    ]
    names = [clean(strategy["name"]) for strategy in report["strategies"]]
    if not any(value is not None for curve in curves for value in curve) or max(lengths) == 0:
        return message(width, "No answer recall was measured.")
    low = 0.0 if whole else start_of_axis(report)
    room = min(240.0, 48 + max(extent(name) for name in names)) if labels else 14.0
    left, right, top, bottom = 44.0, width - room, 14.0, height - 44.0

    def across(length: float) -> float:
        return left + (right - left) * length / max(lengths)

    def down(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (1 - low)

    parts = [_axes(across, down, _some(lengths, (right - left) / 56), low, (left, right, top, bottom))]
    parts.append(letters((left + right) / 2, height - 8, f"{unit} of context read (l)", "middle", SOFT, "soft"))
    ends: list[tuple[int, float, float]] = []
    for number, (curve, look) in enumerate(zip(curves, looks(report["strategies"]), strict=True)):
        points = [(float(length), value) for length, value in zip(lengths, curve, strict=True) if value is not None]
        if not points:
            continue
        strokes = "".join(line([(across(x), down(y)) for x, y in piece], look) for piece in _above(points, low))
        markers = "".join(
            marker(look, across(x), down(y), f"{names[number]}, {count(x)} {unit}: {share(y)}")
            for x, y in points
            if y >= low
        )
        parts.append(series(number, look, strokes + markers))
        ends.append((number, across(points[-1][0]), down(max(points[-1][1], low))))
    if labels:
        parts.append(_end_labels(ends, names, looks(report["strategies"]), right, (top, bottom), room - 44))
    title = f"Answer recall by {unit} of context, {len(ends)} strategies"
    frame = (
        f'data-left="{left:g}" data-right="{right:g}" data-top="{top:g}" data-bottom="{bottom:g}" data-low="{low:g}"'
    )
    return element(width, height, title, "".join(parts), frame)


def recall_bars_svg(
    report: Mapping[str, Any], *, metric: str = "recall", width: int = 960, columns: int | None = None
) -> str:
    """Draw a metric at each of its k as bars, with the confidence intervals as whiskers.

    Args:
        report: What `Report.to_dict()` returns.
        metric: What stands before the `@`: "recall" (answer string), "gold" (gold passage), "em", ...
        width: In pixels; the drawing scales.
        columns: How many values of k stand side by side; all of them by default.

    Returns:
        A whole SVG element.
    """
    strategies = report["strategies"]
    found = {
        key for strategy in strategies for key in strategy["metrics"] if key.split("@")[0] == metric and "@" in key
    }
    keys = sorted(found, key=lambda key: float(key.split("@")[1]))
    if not keys:
        return message(width, f"{metric}@k was not measured.")
    beside = min(columns or len(keys), len(keys))
    row, head = 20, 30
    names = min(210.0, 24 + max(extent(clean(strategy["name"])) for strategy in strategies))
    panel_width = (width - names - 10) / beside
    panel_height = head + row * len(strategies) + 14
    parts = []
    for place, key in enumerate(keys):
        left, top = names + panel_width * (place % beside), panel_height * (place // beside)
        parts.append(letters(left, top + 18, key, "start", INK, "ink", weight=600))
        for number, strategy in enumerate(strategies):
            middle = top + head + row * number + row / 2
            if place % beside == 0:
                name = shortened(clean(strategy["name"]), names - 20)
                weight = 600 if strategy["ours"] else 400
                parts.append(letters(names - 10, middle + 4, name, "end", INK, "ink", weight=weight))
            parts.append(_bar(strategy, key, left, middle, panel_width - 62))
    height = panel_height * math.ceil(len(keys) / beside)
    return element(width, round(height), f"{metric}@k of {len(strategies)} strategies, with intervals", "".join(parts))


def start_of_axis(report: Mapping[str, Any]) -> float:
    """Where the vertical axis of the answer recall begins when it does not begin at 0."""
    lengths: list[int] = report["settings"]["lengths"]
    length = next((length for length in lengths if length >= max(lengths) * 0.4), 0)
    values = [strategy["metrics"].get(f"answer_recall@{length}") for strategy in report["strategies"]]
    lowest = min((value for value in values if value is not None), default=0.0)
    return min(0.9, math.floor(lowest * 10) / 10)


def _bar(strategy: Mapping[str, Any], key: str, left: float, middle: float, full: float) -> str:
    value = strategy["metrics"].get(key)
    if value is None:
        return letters(left, middle + 4, "– not given", "start", SOFT, "soft")
    low, high = strategy["intervals"].get(key) or (value, value)
    kind, colour = ("bar-ours", BAR_OURS) if strategy["ours"] else ("bar-other", BAR_OTHER)
    tooltip = f"{clean(strategy['name'])}, {key}: {share(value)} ({share(low)} to {share(high)})"
    start, end = left + full * low, left + full * high
    whisker = f"M{start:.1f} {middle - 4:g}v8M{start:.1f} {middle:g}H{end:.1f}M{end:.1f} {middle - 4:g}v8"
    return (
        f"<g><title>{escaped(tooltip)}</title>"
        f'<rect class="bar-room" x="{left:.1f}" y="{middle - 7:g}" width="{full:.1f}" height="14" fill="{GRID}"/>'
        f'<rect class="{kind}" x="{left:.1f}" y="{middle - 7:g}" width="{full * value:.1f}" height="14" '
        f'fill="{colour}"/>'
        f'<path class="whisker-ground" d="{whisker}" fill="none" stroke="{GROUND}" stroke-width="4"/>'
        f'<path class="whisker" d="{whisker}" fill="none" stroke="{INK}" stroke-width="1.5"/>'
        f"{letters(left + full + 8, middle + 4, share(value), 'start', INK, 'ink')}</g>"
    )


def _axes(
    across: Callable[[float], float],
    down: Callable[[float], float],
    ticks: Sequence[int],
    low: float,
    frame: tuple[float, float, float, float],
) -> str:
    left, right, top, bottom = frame
    step = 0.1 if low < 0.7 else 0.05
    parts = []
    for place in range(round((1 - low) / step) + 1):
        level = low + step * place
        grid = f"M{left:g} {down(level):.1f}H{right:g}"
        parts.append(f'<path class="grid" d="{grid}" fill="none" stroke="{GRID}"/>')
        parts.append(letters(left - 8, down(level) + 4, f"{level:.2f}".rstrip("0").ljust(3, "0"), "end", SOFT, "soft"))
    for tick in ticks:
        mark = f"M{across(tick):.1f} {bottom:g}v5"
        parts.append(f'<path class="axis" d="{mark}" fill="none" stroke="{SOFT}"/>')
        parts.append(letters(across(tick), bottom + 19, count(tick), "middle", SOFT, "soft"))
    parts.append(f'<path class="axis" d="M{left:g} {top:g}V{bottom:g}H{right:g}" fill="none" stroke="{SOFT}"/>')
    return "".join(parts)


def _end_labels(
    ends: Sequence[tuple[int, float, float]],
    names: Sequence[str],
    drawn: Sequence[Look],
    right: float,
    bounds: tuple[float, float],
    room: float,
) -> str:
    """The names beside the lines' ends, moved apart where they would lie on each other."""
    ordered = sorted(ends, key=lambda end: end[2])
    top, bottom = bounds
    places = _apart([y for _, _, y in ordered], LETTER + 2.0, top, bottom)
    parts = []
    for (number, x, y), place in zip(ordered, places, strict=True):
        look = drawn[number]
        leader = f"M{x + 6:.1f} {y:.1f}L{right + 36:.1f} {place:.1f}"
        weight = 600 if look.ours else 400
        parts.append(
            series(
                number,
                look,
                f'<path class="leader" d="{leader}" fill="none" stroke="currentColor" stroke-width=".8" opacity=".6"/>'
                + letters(right + 39, place + 4, shortened(names[number], room), "start", INK, "ink", weight=weight),
                "label",
            )
        )
    return "".join(parts)


def _apart(wanted: Sequence[float], gap: float, top: float, bottom: float) -> list[float]:
    """Ascending places at least a gap apart, as near as can be to the wanted ones: least squares, by pooling."""
    gap = min(gap, (bottom - top) / max(1, len(wanted) - 1))
    pools: list[list[float]] = []
    for number, place in enumerate(wanted):
        pools.append([place - number * gap])
        while len(pools) > 1 and sum(pools[-2]) / len(pools[-2]) > sum(pools[-1]) / len(pools[-1]):
            last = pools.pop()
            pools[-1].extend(last)
    even = [sum(pool) / len(pool) for pool in pools for _ in pool]
    highest = bottom - gap * (len(wanted) - 1)
    return [min(max(place, top), highest) + number * gap for number, place in enumerate(even)]


def _above(points: Sequence[tuple[float, float]], low: float) -> list[list[tuple[float, float]]]:
    """The parts of a line that are not below the axis, cut where it crosses it."""
    pieces: list[list[tuple[float, float]]] = []
    for (x1, y1), (x2, y2) in pairwise(points):
        if y1 < low and y2 < low:
            continue
        first = (x1, y1) if y1 >= low else (x1 + (x2 - x1) * (low - y1) / (y2 - y1), low)
        last = (x2, y2) if y2 >= low else (x1 + (x2 - x1) * (low - y1) / (y2 - y1), low)
        if pieces and pieces[-1][-1] == first:
            pieces[-1].append(last)
        else:
            pieces.append([first, last])
    return pieces


def _some(lengths: Sequence[int], most: float) -> Sequence[int]:
    """Every n-th length, so that not more than `most` are left."""
    return lengths[:: max(1, math.ceil((len(lengths) - 1) / max(1.0, most)))]
