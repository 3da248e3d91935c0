"""The report page's tables of pairs: against the best alternative, every comparison, at equal lengths of context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_pack_densex.evaluation.report_format import amount, count, difference, escaped, p_value, share
from llama_pack_densex.evaluation.report_tables import column_head

_Pair = Mapping[str, Any]


def headline_table(report: Mapping[str, Any]) -> str:
    """The strategy that the comparisons begin with against the best alternative, metric by metric.

    Returns:
        An empty string where there is no alternative to it.
    """
    by_name = {strategy["name"]: strategy for strategy in report["strategies"]}
    best: dict[str, _Pair] = {}
    for pair in report["comparisons"]:
        first, second = by_name[pair["first"]], by_name[pair["second"]]
        if pair["first"] != report["comparisons"][0]["first"] or (first["ours"] and second["ours"]):
            continue
        if pair["metric"] not in best or pair["difference"] < best[pair["metric"]]["difference"]:
            best[pair["metric"]] = pair
    if not best:
        return ""
    heads = (("Metric", False), ("Strategy", False), ("Best alternative", False), ("Difference", True), ("p", True))
    head = "".join(f'<th scope="col"{" class=number" if number else ""}>{label}</th>' for label, number in heads)
    rows = "".join(_headline_row(pair, by_name, report) for pair in best.values())
    return (
        '<div class="box" tabindex="0" role="region" aria-label="Against the best alternative"><table class="headline">'
        f'<thead><tr>{head}<th scope="col">Verdict</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def comparison_table(report: Mapping[str, Any]) -> str:
    """All paired comparisons; the page shows one metric at a time."""
    heads = (("Metric", "text"), ("Strategy", "text"), ("Against", "text"), ("Difference", "descending"),
             ("p", "ascending"), ("Questions", "descending"))  # fmt: skip
    rows = [
        _row(
            pair["metric"],
            [
                f"<td>{escaped(spoken(pair['metric'], report))}</td>",
                *_names(pair),
                _number(pair["difference"], difference(pair["difference"])),
                _number(pair["p_value"], p_value(pair["p_value"])),
                _number(pair["questions"], count(pair["questions"])),
                f"<td>{_verdict(pair, report)}</td>",
            ],
        )
        for pair in report["comparisons"]
    ]
    return _table("comparisons", "Paired comparisons", heads, rows)


def equal_context_table(report: Mapping[str, Any]) -> str:
    """Ours cut to the mean length of another's context; the page shows one of ours at a time."""
    unit = report["dataset"]["length_unit"]
    heads = (("Strategy", "text"), ("Against", "text"), (unit.capitalize(), "ascending"), ("Its recall", "descending"),
             ("The other's", "descending"), ("Difference", "descending"), ("p", "ascending"))  # fmt: skip
    rows = [
        _row(
            pair["first"],
            [
                *_names(pair),
                _number(pair["words"], amount(pair["words"])),
                _number(pair["first_recall"], share(pair["first_recall"])),
                _number(pair["second_recall"], share(pair["second_recall"])),
                _number(pair["difference"], difference(pair["difference"])),
                _number(pair["p_value"], p_value(pair["p_value"])),
                f"<td>{_verdict(pair, report)}</td>",
            ],
        )
        for pair in report["equal_context"]
    ]
    return _table("equal-context", f"Answer recall at equal {unit} of context", heads, rows)


def chooser(table: str, label: str, choices: Iterable[tuple[str, str]]) -> str:
    """A field by which a table shows only some of its rows.

    Args:
        table: The table's id.
        label: What is chosen.
        choices: What the rows are marked with, and how that is written; each of them once is enough.
    """
    options = "".join(f'<option value="{escaped(key)}">{escaped(text)}</option>' for key, text in dict(choices).items())
    return (
        f'<p class="controls"><label>{label} <select data-rows-of="{table}"><option value="">all</option>{options}'
        "</select></label></p>"
    )


def spoken(metric: str, report: Mapping[str, Any]) -> str:
    """A metric's name as a reader would say it."""
    prefix, _, at = metric.partition("@")
    return f"answer within {at} {report['dataset']['length_unit']}" if prefix == "answer_recall" and at else metric


def _headline_row(pair: _Pair, by_name: Mapping[str, Mapping[str, Any]], report: Mapping[str, Any]) -> str:
    metric = pair["metric"]
    values = "".join(
        f"<td>{escaped(pair[side])} <b>{share(by_name[pair[side]]['metrics'].get(metric))}</b></td>"
        for side in ("first", "second")
    )
    return (
        f'<tr><th scope="row">{escaped(spoken(metric, report))}</th>{values}'
        f"{_number(pair['difference'], difference(pair['difference']))}"
        f"{_number(pair['p_value'], p_value(pair['p_value']))}"
        f"<td>{_verdict(pair, report)}</td></tr>"
    )


def _table(name: str, caption: str, heads: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    head = "".join(column_head(label, "", number, first) for number, (label, first) in enumerate(heads))
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{escaped(caption)}"><table id="{name}">'
        f'<caption class="hidden">{escaped(caption)}</caption>'
        f'<thead><tr>{head}<th scope="col">Verdict</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(choice: str, cells: Sequence[str]) -> str:
    return f'<tr data-choice="{escaped(choice)}">{"".join(cells)}</tr>'


def _names(pair: _Pair) -> list[str]:
    first, second = escaped(pair["first"]), escaped(pair["second"])
    return [f'<th scope="row" data-value="{first}">{first}</th>', f'<td data-value="{second}">{second}</td>']


def _number(value: float, written: str) -> str:
    return f'<td class="number" data-value="{value}">{written}</td>'


def _verdict(pair: _Pair, report: Mapping[str, Any]) -> str:
    if pair["p_value"] >= round(1 - report["settings"]["confidence"], 9):
        return '<span class="verdict level">≈ no clear difference</span>'
    if pair["difference"] > 0:
        return '<span class="verdict better">▲ better</span>'
    return '<span class="verdict worse">▼ worse</span>'
