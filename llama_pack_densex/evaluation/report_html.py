"""The report as one HTML file that needs nothing else: no server, no network, no fonts.

`page/` holds the page's markup, style and script; this module puts the figures in. Whatever comes from documents,
questions or strategies is text: escaped where it becomes markup here, and never markup in the script, which gets it as
JSON. The page's security policy forbids all other scripts and styles by their hashes, and every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from llama_pack_densex.evaluation.report_format import count, escaped
from llama_pack_densex.evaluation.report_pairs import (
    chooser,
    comparison_table,
    equal_context_table,
    headline_table,
    spoken,
)
from llama_pack_densex.evaluation.report_plots import answer_recall_svg, recall_bars_svg, start_of_axis
from llama_pack_densex.evaluation.report_tables import cost_table, curve_table, metric_table
from llama_pack_densex.evaluation.svg import looks, swatch

_LANGUAGES = {"en": "English", "ja": "Japanese", "zh": "Chinese", "ko": "Korean"}
_BARS = {"recall": "Answer string", "gold": "Gold passage"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def render(report: Mapping[str, Any]) -> str:
    """Write the page.

    Args:
        report: What `Report.to_dict()` returns.

    Returns:
        The HTML document, to be saved as UTF-8.
    """
    style, script = _page_file("page.css"), _page_file("page.js") + _page_file("questions.js")
    return Template(_page_file("page.html")).substitute(
        policy=_policy(style, script),
        style=style,
        script=script,
        data=_json(_for_script(report)),
        title=escaped(f"densex compare: {report['dataset']['name']}"),
        name=escaped(report["dataset"]["name"]),
        summary=_summary(report),
        headline=_headline(report),
        metrics=metric_table(report),
        unit=escaped(report["dataset"]["length_unit"]),
        curves=_curves(report),
        curve_table=curve_table(report),
        legend=_legend(report),
        slider=_slider(report),
        bars=_bars(report),
        comparisons=_comparisons(report),
        equal_context=_equal_context(report),
        cost=cost_table(report),
        strategies=_strategies(report),
        settings=_settings(report),
    )


def _page_file(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / "page" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{rule} {value}" for rule, value in rules.items())


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _for_script(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's script needs, each found text once however many strategies found it."""
    names = [strategy["name"] for strategy in report["strategies"]]
    lengths = report["settings"]["lengths"]
    texts: dict[tuple[str, str], int] = {}

    def entry(found: Mapping[str, Any]) -> list[int | None]:
        text = texts.setdefault((found["text"], found["source"]), len(texts))
        return [found["rank"], found["gold_rank"], found["words"], text]

    questions = [
        [
            question["id"],
            question["question"],
            question["answers"],
            question["document"],
            [entry(question["found"][name]) for name in names],
        ]
        for question in report["questions"]
    ]
    return {
        "language": report["dataset"]["language"],
        "unit": report["dataset"]["length_unit"],
        "lengths": lengths,
        "strategies": [
            {
                "name": strategy["name"],
                "ours": strategy["ours"],
                "curve": [strategy["metrics"].get(f"answer_recall@{length}") for length in lengths],
                "bounds": [strategy["intervals"].get(f"answer_recall@{length}") for length in lengths],
            }
            for strategy in report["strategies"]
        ],
        "texts": list(texts),
        "questions": questions,
    }


def _json(value: Any) -> str:
    """JSON that no text in it can end: with no `<` there is neither `</script>` nor `<!--`."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    written = written.replace("<", "\\u003c")
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _summary(report: Mapping[str, Any]) -> str:
    dataset = report["dataset"]
    facts = (
        _counted(len(report["strategies"]), "strategy", "strategies"),
        _counted(dataset["questions"], "question", "questions"),
        _counted(dataset["passages"], "passage", "passages"),
        _counted(dataset["documents"], "document", "documents"),
        escaped(_LANGUAGES.get(dataset["language"], dataset["language"])),
    )
    return "".join(f"<li>{fact}</li>" for fact in facts)


def _headline(report: Mapping[str, Any]) -> str:
    if table := headline_table(report):
        return table
    return '<p class="note">There is no alternative to compare with.</p>'


def _curves(report: Mapping[str, Any]) -> str:
    """The plot twice, wide and narrow; and again from 0 up, where the axis otherwise begins higher."""
    drawings = {"near": False, "whole": True} if start_of_axis(report) > 0 else {"near": True}
    return "".join(
        f'<div class="drawing" data-drawing="{name}"{" hidden" if name == "whole" else ""}>'
        f'<div class="wide">{answer_recall_svg(report, height=540, whole=whole)}</div>'
        f'<div class="narrow">{answer_recall_svg(report, width=400, height=330, whole=whole, labels=False)}</div></div>'
        for name, whole in drawings.items()
    )


def _legend(report: Mapping[str, Any]) -> str:
    strategies = report["strategies"]
    return "".join(
        f'<li><button type="button" aria-pressed="true" data-strategy="{number}"{_ours(strategy)}>'
        f"{swatch(look)}<span>{escaped(strategy['name'])}</span><output></output></button></li>"
        for number, (strategy, look) in enumerate(zip(strategies, looks(strategies), strict=True))
    )


def _slider(report: Mapping[str, Any]) -> str:
    lengths = report["settings"]["lengths"]
    start = min(range(len(lengths)), key=lambda place: abs(lengths[place] - 100))
    return f'min="0" max="{len(lengths) - 1}" value="{start}"'


def _bars(report: Mapping[str, Any]) -> str:
    found = {key.partition("@")[0] for strategy in report["strategies"] for key in strategy["metrics"]}
    return "".join(
        f"<h3>{label} in the first k passages</h3>"
        f'<div class="wide">{recall_bars_svg(report, metric=metric)}</div>'
        f'<div class="narrow">{recall_bars_svg(report, metric=metric, width=400, columns=1)}</div>'
        for metric, label in _BARS.items()
        if metric in found
    )


def _comparisons(report: Mapping[str, Any]) -> str:
    if not report["comparisons"]:
        return '<p class="note">Nothing was compared: that takes two strategies and at least one question.</p>'
    metrics = ((pair["metric"], spoken(pair["metric"], report)) for pair in report["comparisons"])
    return chooser("comparisons", "Metric", metrics) + comparison_table(report)


def _equal_context(report: Mapping[str, Any]) -> str:
    if not report["equal_context"]:
        return ""
    firsts = ((pair["first"], pair["first"]) for pair in report["equal_context"])
    unit = escaped(report["dataset"]["length_unit"])
    return (
        f"<h3>At equal {unit} of context</h3>"
        f'<p class="note">Ours, cut to as many {unit} as the other\'s default context has on average: for how many '
        "questions an answer is in them, and in the other's whole context.</p>"
        f"{chooser('equal-context', 'Strategy', firsts)}{equal_context_table(report)}"
    )


def _strategies(report: Mapping[str, Any]) -> str:
    strategies = report["strategies"]
    described = "".join(
        f"<dt{' class=ours' if strategy['ours'] else ''}>{swatch(look)} {escaped(strategy['name'])}</dt>"
        f"<dd>{escaped(strategy['description'])}</dd>"
        for strategy, look in zip(strategies, looks(strategies), strict=True)
    )
    skipped = "".join(
        f"<dt>{escaped(strategy['name'])}</dt><dd>{escaped(strategy['reason'])}</dd>" for strategy in report["skipped"]
    )
    return f"<dl>{described}</dl>" + (f'<h3 id="skipped">Skipped</h3><dl>{skipped}</dl>' if skipped else "")


def _settings(report: Mapping[str, Any]) -> str:
    dataset, settings = report["dataset"], report["settings"]
    facts = {
        "Dataset": f"{dataset['name']}, SHA-256 {dataset['hash']}",
        "Embedding model": settings["embed_model"] or "none",
        "Propositions": settings["propositionizer"] or "none",
        "LLM": settings["llm"] or "none",
        "Reader LLM": settings["reader_llm"] or "none",
        "Depth": f"{settings['depth']} distinct results in the ranking metrics",
        "Intervals": f"{settings['confidence']:.0%}, bootstrap, {count(settings['resamples'])} resamples",
        "p-values": f"paired randomisation test, two-sided, {count(settings['permutations'])} permutations",
        "Seed": str(settings["seed"]),
        "Versions": ", ".join(f"{name} {version}" for name, version in settings["versions"].items()),
    }
    return _definitions(facts.items())


def _definitions(facts: Iterable[tuple[str, str]]) -> str:
    pairs = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in facts)
    return f'<dl class="facts-list">{pairs}</dl>'


def _ours(strategy: Mapping[str, Any]) -> str:
    return " class=ours" if strategy["ours"] else ""


def _counted(number: int, one: str, many: str) -> str:
    return f"<b>{count(number)}</b> {one if number == 1 else many}"
