"""What Word files and slides have in common: charts and diagrams (SmartArt), and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, timedelta
from html import escape
from typing import Any


def choose_alternatives(root: Any, in_order: Callable[[Any], Iterable[Any]]) -> None:
    """Unwrap one of several alternatives: the first that has text, or else the first.

    Args:
        root: What to search for alternatives, which are a few choices and a fallback.
        in_order: Puts the preferred alternative first: `list`, or `reversed` for the fallback.
    """
    for alternatives in [*root.iter("{*}AlternateContent")]:
        for part in max(in_order(alternatives), key=has_text, default=()):
            alternatives.addprevious(part)
        alternatives.getparent().remove(alternatives)


def letters_of(element: Any) -> str:
    """Return the text of an element without white space."""
    return "".join("".join(element.itertext("{*}t")).split())


def has_text(element: Any) -> bool:
    """Return whether an element has text that is not white space."""
    return letters_of(element) != ""


def chart_html(chart: Any) -> str:
    """Return a chart as a table: a row for each category, a column for each series."""
    labels: dict[int, str] = {}
    names = [""]
    columns = []
    for series in chart.iter("{*}ser"):
        labels = {**_points(series, "{*}cat", "{*}xVal"), **labels}
        names.append(_text(series.find("{*}tx")))
        columns.append(_points(series, "{*}val", "{*}yVal"))
    columns = [labels, *columns]
    html = f"<table><caption>{_text(chart.find('{*}chart/{*}title'))}</caption>"
    html += f"<tr><th>{'<th>'.join(names)}"
    for place in sorted(set().union(*columns)):
        html += f"<tr><td>{'<td>'.join(column.get(place, '') for column in columns)}"
    return f"{html}</table>"


def _points(series: Any, *axes: str) -> dict[int, str]:
    """Return the values of a series on an axis, by their places."""
    axis = next(series.iterchildren(*axes), None)
    if axis is None:
        return {}
    number_format = axis.findtext(".//{*}formatCode") or ""
    return {
        int(point.get("idx")): _value(point.findtext("{*}v") or "", number_format)
        for point in reversed([*axis.iter("{*}pt")])  # of several levels, the first counts
    }


def _value(text: str, number_format: str) -> str:
    """Return a value as text: a name, which has no format, a date, a percentage or another number."""
    with suppress(ValueError, OverflowError):  # as of "#N/A"
        if "yy" in number_format:
            return str(date(1899, 12, 30) + timedelta(float(text)))
        if "%" in number_format:
            return f"{100 * float(text):.15g}%"
        if number_format:
            return f"{float(text):.15g}"
    return escape(text)


def _text(element: Any) -> str:
    """Return the text of an element, which is in the runs of paragraphs or in a cached cell."""
    if element is None:
        return ""
    paragraphs = [*element.iter("{*}p")] or [element]
    lines = ("".join(paragraph.itertext("{*}t", "{*}v")) for paragraph in paragraphs)
    return escape(" ".join(lines)).strip()


def diagram_html(data: Any) -> str:
    """Return the texts of a diagram as a list, given its data."""
    points = (data_point.find("{*}t") for data_point in data.iter("{*}pt"))
    return f"<ul><li>{'<li>'.join(filter(None, map(_text, points)))}</ul>"
