"""The report as one HTML file that needs nothing else: no server, no network, no fonts.

`page/` holds the page's markup (Jinja2), style and script; this module puts the figures in. Whatever comes from
documents, questions or strategies is text: escaped where it becomes markup, and never markup in the script, which gets
it as JSON. The page's security policy forbids all other scripts and styles by their hashes, and every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup  # what jinja2 escapes with

from llama_pack_densex.evaluation.strategies import built_in_strategies
from llama_pack_densex.ingestion.progress import money
from llama_pack_densex.text.language import LANGUAGE_NAMES

NOT_GIVEN = "–"

_GROUPS = {
    "recall": "Answer string in the first k passages",
    "gold": "{gold} in the first k",
    "mrr": "{gold}, ranking",
    "ndcg": "{gold}, ranking",
    "answer_recall": "Answer within the first l {unit} of context",
    "em": "Reader, first l {unit}",
    "f1": "Reader, first l {unit}",
    **dict.fromkeys(("str_em", "answered", "cited", "supported"), "Answers"),
    **dict.fromkeys(("context_relevance", "groundedness", "answer_relevance"), "Judged answers"),
}
_LABELS = {"context_relevance": "context", "groundedness": "grounded", "answer_relevance": "relevant"}
_BARS = {"recall": "Answer string", "gold": "{gold}"}
_IN_TABLE = (50, 100, 200, 500)  # lengths of context; plots show more
_GOLD = {"passage": "Gold passage", "document": "Passage of the right document"}
_SHOWN_FIRST = 8  # strategies; a click shows the others
# What XML 1.0 has no way to write: control characters and halves of surrogate pairs.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def render(report: Mapping[str, Any]) -> str:
    """Write the page.

    Args:
        report: What `Report.to_dict()` returns.

    Returns:
        The HTML document, to be saved as UTF-8.
    """
    style, script = _page_file("page.css"), _page_file("page.js") + _page_file("questions.js")
    shown, unit = _columns(report), report["dataset"]["length_unit"]
    bars = {kind: [key for key in shown if key.startswith(f"{kind}@")] for kind in _BARS}
    headline, gold = _headline(report), _GOLD[report["dataset"]["gold"]]
    first = _shown_first(report, headline)
    costs = [strategy["cost"] for strategy in report["strategies"]]
    read = _for_script(report, bars, first)
    data = json.dumps(read, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    page = _ENVIRONMENT.get_template("page.html").render(
        report,
        unit=unit,
        language=LANGUAGE_NAMES.get(report["dataset"]["language"], report["dataset"]["language"]),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=Markup(data.replace("<", "\\u003c")),  # no text in it can end it: neither `</script>` nor `<!--`
        headline=headline,
        first=first,
        gold=gold,
        shown=[{"key": key, "label": _label(key)} for key in shown],
        groups=Counter(_GROUPS.get(key.partition("@")[0], "Other").format(unit=unit, gold=gold) for key in shown),
        curve=[{"key": f"answer_recall@{length}", "label": count(length)} for length in report["settings"]["lengths"]],
        best=_best(report),
        largest={name: max(each[name] or 0 for each in costs) for name in next(iter(costs), ())},
        bars={kind: title.format(gold=gold) for kind, title in _BARS.items() if bars[kind]},
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # half a character in the JSON is its escape


def share(value: float | None) -> str:
    """A metric between 0 and 1, three digits behind the point."""
    return NOT_GIVEN if value is None else f"{value:.3f}"


def difference(value: float) -> str:
    """A difference with its sign."""
    written = f"{value:+.3f}".replace("-", "−")
    return "0.000" if written[1:] == "0.000" else written


def p_value(value: float) -> str:
    """A p-value, three digits behind the point or the bound it is below."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOT_GIVEN if value is None else f"{round(value):,}"


def amount(value: float | None) -> str:
    """A measured amount: three significant digits, and none behind the point from 100 on."""
    if value is None or abs(value) >= 100:
        return count(value)
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _page_file(name: str) -> str:
    return (files("llama_pack_densex.evaluation") / "page" / name).read_text(encoding="utf-8")


def _clean(value: object) -> object:
    """Without the characters that neither HTML nor UTF-8 can hold."""
    return _NOT_IN_XML.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value


_ENVIRONMENT = Environment(
    loader=FunctionLoader(_page_file),
    autoescape=True,
    finalize=_clean,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {each.__name__: each for each in (share, difference, p_value, count, amount, money)}


def _policy(style: str, script: str) -> str:
    hashed = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashed[0]}'; style-src 'sha256-{hashed[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _for_script(report: Mapping[str, Any], bars: Mapping[str, list[str]], first: Sequence[str]) -> dict[str, Any]:
    """The report as the page's script reads it: each found text is there once, however many strategies found it."""
    texts: dict[tuple[str, str, str], int] = {}
    strategies = []
    for strategy in report["strategies"]:
        found = [question["found"][strategy["name"]] for question in report["questions"]]
        columns = {field: [each.get(field, "") for each in found] for field in ("rank", "gold_rank", "words", "answer")}
        columns["text"] = [texts.setdefault((each["text"], each["source"], each["unit"]), len(texts)) for each in found]
        strategies.append({**strategy, "other": strategy["name"] not in first, "found": columns})
    questions = [{**question, "found": None} for question in report["questions"]]
    return {**report, "bars": bars, "strategies": strategies, "questions": questions, "texts": list(texts)}


def _shown_first(report: Mapping[str, Any], headline: Sequence[Mapping[str, Any]]) -> list[str]:
    """The strategies that are shown at first: those that the verdict names, the user's own, and the first others."""
    names, known = [strategy["name"] for strategy in report["strategies"]], built_in_strategies()
    named = [pair[which] for which in ("first", "second") for pair in headline]
    own = [name for name in names if name not in known]
    return list(dict.fromkeys([*named, *own, *names]))[:_SHOWN_FIRST]


def _columns(report: Mapping[str, Any]) -> list[str]:
    """The metrics in the table, those of one group together."""
    plotted = {f"answer_recall@{length}" for length in report["settings"]["lengths"] if length not in _IN_TABLE}
    found = dict.fromkeys(key for strategy in report["strategies"] for key in strategy["metrics"])
    order = {kind: place for place, kind in enumerate(_GROUPS)}
    shown = (key for key in found if key not in plotted)
    return sorted(shown, key=lambda key: order.get(key.partition("@")[0], len(order)))


def _label(key: str) -> str:
    kind, _, at = key.partition("@")
    if kind in ("recall", "gold", "answer_recall"):
        return f"@{at}" if at else "all"
    return _LABELS.get(key, key)


def _best(report: Mapping[str, Any]) -> dict[str, str]:
    """Metric to its best value as it is written: what looks equal is equally good. None where all look equal."""
    best: dict[str, str] = {}
    for key in {key for strategy in report["strategies"] for key in strategy["metrics"]}:
        given = [value for strategy in report["strategies"] if (value := strategy["metrics"].get(key)) is not None]
        if given and share(max(given)) != share(min(given)):
            best[key] = share(max(given))
    return best


def _headline(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The strategy that is compared with all others against the best alternative, metric by metric."""
    by_name = {strategy["name"]: strategy for strategy in report["strategies"]}
    best: dict[str, dict[str, Any]] = {}
    for pair in report["comparisons"]:
        first, second, metric = by_name[pair["first"]], by_name[pair["second"]], pair["metric"]
        is_rival = not (first["ours"] and second["ours"])
        if is_rival and (metric not in best or pair["difference"] < best[metric]["difference"]):
            values = {"first_value": first["metrics"].get(metric), "second_value": second["metrics"].get(metric)}
            best[metric] = {**pair, **values}
    return list(best.values())
