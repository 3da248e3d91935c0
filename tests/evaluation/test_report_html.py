from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.evaluation.page import amount, difference, p_value, render, share
from llama_pack_densex.evaluation.report import Skipped
from tests.evaluation.example_report import HOSTILE, question, report, strategy


class _Tags(HTMLParser):
    """The tags of a page, and what its text elements hold."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.held: list[tuple[str, str]] = []
        self.open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open = tag

    def handle_data(self, data: str) -> None:
        self.held.append((self.open, data))

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def _data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def _small() -> dict[str, Any]:
    found = {"densex": 1, "bm25": None}
    return report(
        [strategy("densex", 0.9), strategy("bm25", 0.7)], [question(1, found), question(2, found)]
    )


def test_the_policy_allows_the_page_s_own_script_and_style_and_nothing_else() -> None:
    page = render(_small())
    policy = (
        next(meta["content"] for meta in _Tags(page).named("meta") if "http-equiv" in meta) or ""
    )
    script, style = (
        page.rsplit("<script>", 1)[1].split("</script>")[0],
        page.split("<style>")[1].split("</style>")[0],
    )
    for source in (script, style):
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_names_no_address() -> None:
    tags = _Tags(render(_small()))
    for name, attributes in tags.found:
        for attribute in ("src", "href", "srcset", "action", "style"):
            value = attributes.get(attribute)
            assert value is None or value.startswith(("#", "data:,")), (name, attribute, value)


def test_whatever_others_wrote_stays_text() -> None:
    plain = _Tags(render(_small()))
    hostile = report(
        [strategy("densex", 0.9), strategy(HOSTILE, 0.7, description=HOSTILE)],
        [question(number, {"densex": 1, HOSTILE: None}, HOSTILE, HOSTILE) for number in (1, 2)],
        name=HOSTILE,
    )
    page = render(hostile)
    tags = _Tags(page)
    assert not tags.named("img")
    assert len(tags.named("script")) == len(plain.named("script")) == 2
    assert _data(page)["questions"][0]["question"] == HOSTILE


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec=None), max_size=20))
def test_any_text_comes_through(text: str) -> None:
    page = render(
        report(
            [strategy("densex" + text, 0.5)], [question(1, {"densex" + text: 2}, "Q" + text, text)]
        )
    )
    page.encode()  # lone surrogates would fail
    data = _data(page)
    assert data["strategies"][0]["name"] == "densex" + text
    assert (data["questions"][0]["question"], data["questions"][0]["answers"]) == (
        "Q" + text,
        [text],
    )


@pytest.mark.parametrize(
    "made",
    [
        report([]),
        report([strategy("densex", 0.9)]),
        report([strategy("densex", None)]),
        report([strategy("densex", 0.0), strategy("bm25", 0.0)]),
        report(
            [strategy("densex", 1.0), strategy("bm25", None)],
            [question(1, {"densex": 1, "bm25": None})],
        ),
        report(
            [strategy("日本語の検索", 0.4)],
            [question(1, {"日本語の検索": 1}, "誰が？", "徳川家康")],
            language="ja",
        ),
    ],
    ids=["no strategy", "no question", "nothing given", "all zero", "some given", "Japanese"],
)
def test_a_page_is_written_of_any_report(made: dict[str, Any]) -> None:
    assert _Tags(render(made)).named("h1")


def test_without_metrics_of_rankings_as_of_an_index_there_is_no_section_for_them() -> None:
    made = _small()
    assert "Recall@k" in render(made)
    for each in made["strategies"]:
        each["metrics"] = {"answer_recall": 0.5}
    assert "Recall@k" not in render(made)


def test_lengths_are_characters_for_japanese() -> None:
    made = report(
        [strategy("densex", 0.9), strategy("bm25", 0.7)],
        [question(1, {"densex": 1, "bm25": 2})],
        language="ja",
    )
    page = render(made)
    assert "Answer recall by characters of context" in page
    assert " words" not in page.split("<script>")[0].split("</style>")[1]


def test_the_best_of_each_column_is_marked_and_what_is_not_given_is_no_zero() -> None:
    page = render(
        report([strategy("densex", 0.9), strategy("vector", None), strategy("bm25", 0.7)])
    )
    rows = dict(
        re.findall(
            r'<tr[^>]*>\s*<th scope="row" data-value="(\w+)">(.*?)</tr>',
            page.split('id="metrics"')[1].split("</table>")[0],
            re.DOTALL,
        )
    )
    assert 'class="number best" data-value="0.9"' in rows["densex"]
    assert "best" not in rows["vector"] + rows["bm25"]
    assert 'data-value=""' in rows["vector"]
    assert "0.000" not in rows["vector"]


def test_the_headline_names_the_best_alternative_and_not_one_of_ours() -> None:
    qualities = {"densex": 0.9, "densex-dense": 0.88, "bm25": 0.6, "hybrid": 0.8}
    made = report(
        [strategy(name, value) for name, value in qualities.items()],
        [question(1, dict.fromkeys(qualities, 1))],
    )
    headline = render(made).split("Against the best alternative</h2>")[1].split("</table>")[0]
    assert "hybrid <b>0.800</b>" in headline
    assert "densex-dense" not in headline
    assert "▲ <span>better</span>" in headline


def test_a_difference_that_may_be_chance_is_not_called_better() -> None:
    made = _small()
    made["comparisons"][0]["p_value"] = 0.05
    headline = render(made).split("Against the best alternative</h2>")[1].split("</table>")[0]
    assert "no clear difference" in headline


def test_skipped_strategies_are_named_with_their_reasons() -> None:
    page = render(
        report([strategy("densex", 0.9)], skipped=[Skipped("dense-x", "it needs <propositions>")])
    )
    assert "<dt>dense-x</dt><dd>it needs &lt;propositions&gt;</dd>" in page


def test_a_text_that_many_found_is_in_the_page_once() -> None:
    names = [f"densex-{number}" for number in range(20)]
    asked = question(1, dict.fromkeys(names, 1))
    for found in asked.found.values():
        object.__setattr__(found, "text", "The same passage.")
    page = render(report([strategy(name, 0.5) for name in names], [asked]))
    assert page.count("The same passage.") == 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (share(0.84549), "0.845"),
        (share(None), "–"),
        (amount(3.14159), "3.14"),
        (amount(31.4159), "31.4"),
        (amount(31415.9), "31,416"),
        (difference(0.0321), "+0.032"),
        (difference(-0.0321), "−0.032"),
        (difference(-0.0001), "0.000"),
        (p_value(0.0001), "< 0.001"),
        (p_value(0.0421), "0.042"),
    ],
)
def test_numbers_have_the_digits_that_mean_something(written: str, expected: str) -> None:
    assert written == expected
