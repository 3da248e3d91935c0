"""The report page's tables of strategies: metrics, answer recall by length, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_pack_densex.evaluation.report_format import NOT_GIVEN, amount, count, escaped, share
from llama_pack_densex.evaluation.svg import looks, swatch

IN_TABLE = (50, 100, 200, 500)
"""The l of answer recall that the table of metrics shows; the plot and the table under it show all."""

_GROUPS = {
    "recall": "Answer string in the first k passages",
    "gold": "Gold passage in the first k",
    "mrr": "Gold passage, ranking",
    "ndcg": "Gold passage, ranking",
    "answer_recall": "Answer within the first l {unit} of context",
    "em": "Reader, first l {unit}",
    "f1": "Reader, first l {unit}",
}
_COSTS = (
    ("units", "Units", "Searched units in the index", count),
    ("tokens", "Tokens", "Tokens of the texts of those units", count),
    ("index_seconds", "Index, s", "Parsing and building, without the embedding model", amount),
    ("query_ms", "Query, ms", "Median time of a query, without embedding the question", amount),
    ("context_words", "Context, {unit}", "Mean length of what the reader gets by default", amount),
    (
        "context_k",
        "Context, nodes",
        "How many nodes that context is made of; – where the retriever says",
        count,
    ),
)


@dataclass(frozen=True)
class _Column:
    label: str
    title: str
    values: list[float | None]
    written: list[str]
    group: str = ""
    lower_is_better: bool = False
    best_is_marked: bool = True


def metric_table(report: Mapping[str, Any]) -> str:
    """All strategies by all metrics, with confidence intervals."""
    unit = report["dataset"]["length_unit"]
    columns = []
    for key in _metrics_in_table(report):
        prefix, _, at = key.partition("@")
        group = _GROUPS.get(prefix, "Other").format(unit=unit)
        label = (
            f"@{at}" if prefix in ("recall", "gold", "answer_recall") and at else {"answer_recall": "all"}.get(key, key)
        )
        columns.append(_metric_column(report, key, label, group))
    return _table(report, columns, "Metrics by strategy; the best of each column is marked", "metrics")


def curve_table(report: Mapping[str, Any]) -> str:
    """What the plot of answer recall shows, as figures."""
    columns = [
        _metric_column(report, f"answer_recall@{length}", count(length)) for length in report["settings"]["lengths"]
    ]
    unit = report["dataset"]["length_unit"]
    return _table(report, columns, f"Answer recall within the first l {unit} of context", "curves")


def cost_table(report: Mapping[str, Any]) -> str:
    """What each strategy costs, with bars that show the share of the largest."""
    columns = []
    for key, label, title, write in _COSTS:
        values: list[float | None] = [strategy["cost"].get(key) for strategy in report["strategies"]]
        largest = max((value for value in values if value is not None), default=0)
        bar = "" if key == "context_k" else _BAR
        columns.append(
            _Column(
                label.format(unit=report["dataset"]["length_unit"]),
                title,
                values,
                [_cost_cell(value, largest, write, bar) for value in values],
                lower_is_better=True,
                best_is_marked=False,
            )
        )
    return _table(report, columns, "Cost by strategy", "cost")


def column_head(label: str, title: str, column: int, first: str) -> str:
    """A column's head, with a button that the page's script sorts by.

    Args:
        label: What it says.
        title: What it means, as a tooltip.
        column: Its number, from 0.
        first: "descending", "ascending" (what the first click does, so that the best comes first) or "text".
    """
    hint = f' title="{escaped(title)}"' if title else ""
    kind = "" if first == "text" else ' class="number"'
    button = f'<button type="button" data-column="{column}" data-first="{first}"{hint}>{escaped(label)}</button>'
    return f'<th scope="col"{kind} aria-sort="none">{button}</th>'


def _metrics_in_table(report: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys(key for strategy in report["strategies"] for key in strategy["metrics"]))
    lengths = {f"answer_recall@{length}" for length in report["settings"]["lengths"]}
    shown = {f"answer_recall@{length}" for length in IN_TABLE} & lengths or lengths
    kept = [name for name in names if name not in lengths or name in shown]
    order = {group: place for place, group in enumerate(_GROUPS)}
    return sorted(kept, key=lambda name: order.get(name.partition("@")[0], len(order)))


def _metric_column(report: Mapping[str, Any], key: str, label: str, group: str = "") -> _Column:
    strategies = report["strategies"]
    values = [strategy["metrics"].get(key) for strategy in strategies]
    intervals = [strategy["intervals"].get(key) for strategy in strategies]
    written = [
        share(value) + (f'<small class="interval">{share(bounds[0])}–{share(bounds[1])}</small>' if bounds else "")
        for value, bounds in zip(values, intervals, strict=True)
    ]
    return _Column(label, key, values, written, group)


def _table(report: Mapping[str, Any], columns: Sequence[_Column], caption: str, name: str) -> str:
    strategies = report["strategies"]
    body = "".join(
        f'<tr{_ours(strategy)}><th scope="row" data-value="{escaped(strategy["name"])}">'
        f'<span class="name">{swatch(look)}'
        f"<span>{escaped(strategy['name'])}</span></span></th>"
        f"{''.join(_cell(column, number) for column in columns)}</tr>"
        for number, (strategy, look) in enumerate(zip(strategies, looks(strategies), strict=True))
    )
    heads = "".join(
        column_head(column.label, column.title, number, "ascending" if column.lower_is_better else "descending")
        for number, column in enumerate(columns, start=1)
    )
    groups = _group_row([column.group for column in columns])
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{escaped(caption)}"><table id="{name}">'
        f'<caption class="hidden">{escaped(caption)}</caption>'
        f"<thead>{groups}<tr>{column_head('Strategy', '', 0, 'text')}{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _group_row(groups: Sequence[str]) -> str:
    """A row above the columns' heads that names what neighbours have in common."""
    if not any(groups):
        return ""
    cells: list[tuple[str, int]] = []
    for group in groups:
        if cells and cells[-1][0] == group:
            cells[-1] = (group, cells[-1][1] + 1)
        else:
            cells.append((group, 1))
    heads = "".join(f'<th scope="colgroup" colspan="{width}">{escaped(group)}</th>' for group, width in cells)
    return f'<tr class="groups"><td></td>{heads}</tr>'


def _cell(column: _Column, row: int) -> str:
    value, written = column.values[row], column.written[row]
    if value is None:
        return f'<td class="number none" data-value=""><abbr title="not given">{NOT_GIVEN}</abbr></td>'
    given = [other for other in column.values if other is not None]
    # As written: what looks equal is equally good.
    if column.best_is_marked and share(value) == share(max(given)) != share(min(given)):
        return f'<td class="number best" data-value="{value}"><b>{written}</b><span class="hidden"> (best)</span></td>'
    return f'<td class="number" data-value="{value}">{written}</td>'


_BAR = (
    '<svg class="part" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
    '<rect width="{:.1f}" height="4"/></svg>'
)


def _cost_cell(value: float | None, largest: float, write: Callable[[float | None], str], bar: str) -> str:
    return write(value) + (bar.format(100 * value / largest) if value is not None and largest > 0 else "")


def _ours(strategy: Mapping[str, Any]) -> str:
    return ' class="ours"' if strategy["ours"] else ""
