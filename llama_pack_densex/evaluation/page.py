"""The report as one self-contained HTML file: it needs no server, no network and no fonts.

`page/` holds the page's markup (Jinja2), style and script; this module fills in the figures. Everything that
comes from documents, questions or strategies is treated as text: it is escaped in markup, and the script gets
it as JSON and never makes markup of it. The page's security policy allows only the page's own script and
style, by their hashes, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup  # the library that jinja2 escapes with

from llama_pack_densex.evaluation.metrics import METRICS, Metric, kind_of, title_of
from llama_pack_densex.evaluation.strategies import built_in_strategies
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.text.language import LANGUAGE_NAMES

Json = Mapping[str, Any]

NOT_GIVEN = "–"

_BARS = {"recall": "Answer string", "gold": "{gold}"}
_IN_TABLE = (50, 100, 200, 500)  # lengths of context in the table; plots show more
_GOLD = {"passage": "Gold passage", "document": "Passage of the right document"}
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_UNKNOWN = Metric("", "Other", "")
_SHOWN_FIRST = 8  # strategies shown at first; a click shows the others
_SCRIPT_FIELDS = ("rank", "gold_rank", "words", "answer")
# characters that XML 1.0 cannot represent: control characters and lone surrogates
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def render(report: Json) -> str:
    """Render the page.

    Args:
        report: The report, as `Report.to_dict()` returns it.

    Returns:
        The HTML document, to be saved as UTF-8.
    """
    dataset = report["dataset"]
    strategies = report["strategies"]
    unit = dataset["length_unit"]
    gold = _GOLD[dataset["gold"]]
    style = _page_file("page.css")
    script = _page_file("page.js") + _page_file("questions.js")
    shown = _columns(report)
    metrics = [METRICS.get(kind_of(key), _UNKNOWN) for key in shown]
    bars = _bars(shown)
    headline = _headline(report)
    first = _shown_first(strategies, headline)
    data = json.dumps(
        _for_script(report, bars, first),
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    names = {"unit": unit, "gold": dataset["gold"], "heading": gold}
    lengths = report["settings"]["lengths"]
    page = _ENVIRONMENT.get_template("page.html").render(
        report,
        unit=unit,
        language=LANGUAGE_NAMES.get(dataset["language"], dataset["language"]),
        policy=_POLICY.format(script=_digest(script), style=_digest(style)),
        style=Markup(style),
        script=Markup(script),
        # without "<", no text in the data can end the script element (`</script>`, `<!--`)
        data=Markup(data.replace("<", "\\u003c")),
        headline=headline,
        first=first,
        gold=gold,
        shown=_labelled(shown),
        legend={metric.name: metric.meaning.format(**names) for metric in metrics if metric.name},
        groups=Counter(metric.group.format(**names) for metric in metrics),
        curve=[{"key": f"answer_recall@{length}", "label": count(length)} for length in lengths],
        best=_best(strategies),
        bars={kind: _BARS[kind].format(gold=gold) for kind, keys in bars.items() if keys},
    )
    # a lone surrogate in the JSON becomes its escape
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def share(value: float | None) -> str:
    """Format a metric between 0 and 1 with three decimals."""
    if value is None:
        return NOT_GIVEN
    return f"{value:.3f}"


def difference(value: float) -> str:
    """Format a difference with its sign and three decimals."""
    if abs(value) < 0.0005:
        return "0.000"
    return f"{value:+.3f}".replace("-", "−")


def p_value(value: float) -> str:
    """Format a p-value with three decimals, or as "< 0.001"."""
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}"


def count(value: float | None) -> str:
    """Format a number, rounded to a whole one, with thousands separators."""
    if value is None:
        return NOT_GIVEN
    return f"{round(value):,}"


def amount(value: float | None) -> str:
    """Format a measured amount: two decimals below 10, one below 100, none above."""
    if value is None or abs(value) >= 100:
        return count(value)
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _page_file(name: str) -> str:
    return (files("llama_pack_densex.evaluation") / "page" / name).read_text(encoding="utf-8")


def _clean(value: object) -> object:
    """Replace the characters that neither HTML nor UTF-8 can represent."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _NOT_IN_XML.sub("\ufffd", value)
    return value


_ENVIRONMENT = Environment(
    loader=FunctionLoader(_page_file),
    autoescape=True,
    finalize=_clean,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
for write in (share, difference, p_value, count, amount, money):
    _ENVIRONMENT.filters[write.__name__] = write


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _for_script(report: Json, bars: Mapping[str, list[str]], first: Sequence[str]) -> Json:
    """Return the report for the page's script; a text that several strategies found is stored once."""
    texts: dict[tuple[str, str, str], int] = {}
    strategies = []
    for strategy in report["strategies"]:
        name = strategy["name"]
        columns = defaultdict(list)
        for question in report["questions"]:
            retrieval = question["found"][name]
            for field in _SCRIPT_FIELDS:
                columns[field].append(retrieval.get(field, ""))
            text = (retrieval["text"], retrieval["source"], retrieval["unit"])
            columns["text"].append(texts.setdefault(text, len(texts)))
        strategies.append({**strategy, "other": name not in first, "found": columns})
    questions = [{**question, "found": None} for question in report["questions"]]
    return {
        **report,
        "bars": bars,
        "strategies": strategies,
        "questions": questions,
        "texts": list(texts),
    }


def _shown_first(strategies: Sequence[Json], headline: Sequence[Json]) -> list[str]:
    """Return the strategies shown at first: those that the verdict names, the user's own, then the others."""
    names = [strategy["name"] for strategy in strategies]
    named = [pair[which] for which in ("first", "second") for pair in headline]
    own = [name for name in names if name not in built_in_strategies()]
    return list(dict.fromkeys([*named, *own, *names]))[:_SHOWN_FIRST]


def _bars(shown: Sequence[str]) -> dict[str, list[str]]:
    """Return the metrics in the table that are drawn as bars, by kind."""
    bars: dict[str, list[str]] = {kind: [] for kind in _BARS}
    for key in shown:
        kind, at, _ = key.partition("@")
        if at and kind in bars:
            bars[kind].append(key)
    return bars


def _columns(report: Json) -> list[str]:
    """Return the metrics in the table, those of one kind together, in the order of `METRICS`."""
    lengths = report["settings"]["lengths"]
    plotted = {f"answer_recall@{length}" for length in lengths if length not in _IN_TABLE}
    keys = dict.fromkeys(key for strategy in report["strategies"] for key in strategy["metrics"])
    order = [*METRICS, *map(kind_of, keys)]  # unknown metrics come last
    shown = [key for key in keys if key not in plotted]
    return sorted(shown, key=lambda key: order.index(kind_of(key)))


def _labelled(shown: Sequence[str]) -> list[dict[str, str]]:
    """Label the columns: the first of a kind is "R@1", the next ones are "@5", to keep them narrow."""
    columns = []
    kind_before = ""
    for key in shown:
        kind, at, number = key.partition("@")
        label = title_of(key)
        if at and kind == kind_before:
            label = f"@{number}"
        columns.append({"key": key, "label": label})
        kind_before = kind
    return columns


def _best(strategies: Sequence[Json]) -> dict[str, str]:
    """Return the best value of each metric as formatted, unless all strategies show the same value."""
    values = defaultdict(list)
    for strategy in strategies:
        for key, value in strategy["metrics"].items():
            if value is not None:
                values[key].append(value)
    best = {}
    for key, row in values.items():
        if share(max(row)) != share(min(row)):
            best[key] = share(max(row))
    return best


def _headline(report: Json) -> list[Json]:
    """Return, for each metric, the comparison of our main strategy with the best alternative."""
    strategies = report["strategies"]
    metrics = {strategy["name"]: strategy["metrics"] for strategy in strategies}
    ours = {strategy["name"] for strategy in strategies if strategy["ours"]}
    pairs = [pair for pair in report["comparisons"] if not {pair["first"], pair["second"]} <= ours]
    headline: list[Json] = []
    for metric, of_metric in groupby(pairs, key=itemgetter("metric")):
        pair = min(of_metric, key=itemgetter("difference"))
        first_value = metrics[pair["first"]].get(metric)
        second_value = metrics[pair["second"]].get(metric)
        headline.append({**pair, "first_value": first_value, "second_value": second_value})
    return headline
