from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.propositionizers.alignment import align
from llama_pack_densex.propositionizers.checks.coverage import uncovered
from llama_pack_densex.text.segments import sentence_spans
from tests.conftest import DATA

pytestmark = pytest.mark.pure

CHECKED = Path(__file__).parents[2] / "benchmarks" / "spans_checked.jsonl"
RECORDED = [
    json.loads(line)
    for line in (DATA / "propositions.jsonl").read_text(encoding="utf-8").splitlines()
]
NASTY = st.text(
    alphabet=st.sampled_from("abAB. 。「」雨が降るカタ1２,\n\t#|-=`😀é\u3000\u0000\u202e"),
    max_size=120,
)
ANY = st.text(max_size=60)
PROSE = st.lists(
    st.sampled_from(
        [
            "Rain fell.",
            "Two foxes ran to Oslo in 1998.",
            "It was cold!",
            "雨が降った。",
            "3万人が東京に集まった。",
            "# A heading",
        ]
    ),
    max_size=8,
).map("\n\n".join)

FOX = (
    "Greta Lund was born in Bergen in 1931. She studied geology, and led an expedition to Svalbard with Ole "
    "Moe. There he fell ill with scurvy in autumn. The two never spoke of it again."
)
HORSE = (
    "アサギリは2015年に北海道で生まれた。母はユウナギである。"
    "デビュー戦では武田騎手が騎乗し、3着に敗れた。その後は連勝した。"
)


def said_by(passage: str, *propositions: str) -> list[str]:
    """The text of each proposition's sources."""
    return [
        " … ".join(passage[slice(*span)] for span in spans)
        for spans in align(passage, propositions)
    ]


@given(NASTY | PROSE | ANY, st.lists(NASTY | PROSE | ANY, max_size=6))
def test_sources_are_sentences_or_the_propositions_own_words(
    passage: str, propositions: list[str]
) -> None:
    borders = sentence_spans(passage)
    for proposition, spans in zip(propositions, align(passage, propositions), strict=True):
        assert list(spans) == sorted(spans)
        assert all(
            span in borders or passage[slice(*span)] == proposition.strip() for span in spans
        )


@given(NASTY | PROSE | ANY, st.lists(NASTY | PROSE | ANY, max_size=6))
def test_what_is_missing_is_in_the_passage_and_in_no_heading(
    passage: str, propositions: list[str]
) -> None:
    missing = [gap.span for gap in uncovered(passage, propositions)]
    assert missing == sorted(missing)
    assert set(missing) <= set(sentence_spans(passage))
    assert all(
        passage[slice(*span)].strip() and not passage[slice(*span)].startswith("# ")
        for span in missing
    )


@given(PROSE, st.lists(NASTY | PROSE, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_propositions_does_not_matter(
    passage: str, propositions: list[str], draw: random.Random
) -> None:
    distinct = list(dict.fromkeys(proposition.strip() for proposition in propositions))
    shuffled = draw.sample(distinct, len(distinct))
    sources = dict(zip(distinct, align(passage, distinct), strict=True))
    assert dict(zip(shuffled, align(passage, shuffled), strict=True)) == sources
    assert uncovered(passage, shuffled) == uncovered(passage, distinct)


@given(NASTY | PROSE)
def test_sentences_are_said_where_they_stand_and_nothing_is_missing(passage: str) -> None:
    spans = sentence_spans(passage)
    sentences = [passage[slice(*span)] for span in spans]
    assert [passage[slice(*where)] for (where,) in align(passage, sentences)] == sentences
    assert uncovered(passage, sentences) == []


def test_repeated_sentences_are_said_one_after_the_other() -> None:
    assert align("Rain fell. Rain fell.", ["Rain fell.", "Rain fell."]) == [((0, 10),), ((11, 21),)]


def test_the_sentence_of_the_fact_counts_and_not_that_of_its_subject() -> None:
    first, second, third, _ = (FOX[slice(*span)] for span in sentence_spans(FOX))
    expected = {
        "Greta Lund was born in Bergen.": first,
        "Greta Lund was born in 1931.": first,
        "Greta Lund studied geology.": second,
        "Greta Lund led an expedition to Svalbard.": second,
        "Ole Moe went to Svalbard with Greta Lund.": second,
        "Ole Moe fell ill with scurvy in autumn.": third,
    }
    assert dict(zip(expected, said_by(FOX, *expected), strict=True)) == expected
    first, second, third, fourth = (HORSE[slice(*span)] for span in sentence_spans(HORSE))
    expected = {
        "アサギリは2015年に生まれた。": first,
        "アサギリの母はユウナギである。": second,
        "アサギリはデビュー戦で3着に敗れた。": third,
        "アサギリはデビュー戦の後は連勝した。": fourth,
    }
    assert dict(zip(expected, said_by(HORSE, *expected), strict=True)) == expected


def test_the_number_tells_between_sentences_about_two_models() -> None:
    passage = (
        "Its heat pump Polaris 7 has an output of 7 kW and costs 890 euros. The larger Polaris 12 has an "
        "output of 12 "
        "kW and costs 990 euros. Both use propane. The Polaris 7 weighs 118 kg, the Polaris 12 weighs 164 "
        "kg. The warranty is five years for the Polaris 7 and seven years for the Polaris 12."
    )
    about = (
        "The heat pump Polaris {} has an output of {} kW.",
        "The heat pump Polaris {} costs {}90 euros.",
    )
    about += (
        "The Polaris {} weighs {} kg.",
        "Polaris {} uses propane.",
        "Polaris {} has a warranty.",
    )
    first, *_, second = said_by(passage, *(text.format(n, n) for n in (7, 12) for text in about))[
        :6
    ]
    assert first.startswith("Its heat pump Polaris 7")
    assert second.startswith("The larger Polaris 12")


def test_a_proposition_of_two_sentences_has_both() -> None:
    text = (
        "The mill burned down in May 1904. Its owner, a Dutch banker, rebuilt it. Bread was dear."
    )
    (both,) = said_by(text, "After the mill burned down in May 1904, a Dutch banker rebuilt it.")
    assert both == "The mill burned down in May 1904. … Its owner, a Dutch banker, rebuilt it."


def test_inflection_full_width_and_grouping_do_not_matter() -> None:
    text = "Costs rose. In all ３,５００ volunteers were planting trees. ﾃﾞﾋﾞｭｰは2015年だった。"
    assert said_by(
        text, "3500 volunteers planted a tree.", "デビューは２０１５年のことである。"
    ) == [
        "In all ３,５００ volunteers were planting trees.",
        "ﾃﾞﾋﾞｭｰは2015年だった。",
    ]


def test_what_no_sentence_says_aligns_nowhere() -> None:
    assert align(FOX, ["Basalt is a volcanic rock.", "", " ", "火山岩である。"]) == [()] * 4
    assert align("", ["Rain fell."]) == [()]
    assert align(FOX, []) == []


@pytest.mark.parametrize(
    ("passage", "propositions", "missing"),
    [
        pytest.param(
            FOX,
            [
                "Greta Lund was born in Bergen in 1931.",
                "Greta Lund studied geology.",
                "Greta Lund led an expedition to Svalbard with Ole Moe.",
            ],
            ["There he fell ill with scurvy in autumn.", "The two never spoke of it again."],
            id="english sentences",
        ),
        pytest.param(
            HORSE,
            [
                "アサギリは2015年に北海道で生まれた。",
                "アサギリのデビュー戦では武田騎手が騎乗し、アサギリは3着に敗れた。",
                "アサギリはデビュー戦の後は連勝した。",
            ],
            ["母はユウナギである。"],
            id="a japanese sentence",
        ),
        pytest.param(
            "Ann and Bob flew to Rome with Max in 1998 for two weeks in spring.",
            ["Ann and Bob flew to Rome for two weeks in spring."],
            ["Ann and Bob flew to Rome with Max in 1998 for two weeks in spring."],
            id="an english number and name",
        ),
        pytest.param(
            "アサギリは2015年に北海道の牧場で、ユウナギの子として生まれた。",
            ["アサギリは北海道の牧場で子として生まれた。"],
            ["アサギリは2015年に北海道の牧場で、ユウナギの子として生まれた。"],
            id="a japanese number and name",
        ),
        pytest.param(
            "# Prices\n\nAll were as follows:\n\n1. Tea cost 3 p.\n2. Ale cost 9 p.\n\n| a | b |\n|---|---|\n"
            "| 7 | 8 |",
            ["Tea cost 3 p.", "Ale cost 9 p."],
            [],
            id="what states nothing or is a table",
        ),
        pytest.param(
            "塔の高さは30メートルだ。", ["塔の高さは30mだ。"], [], id="a unit in other letters"
        ),
        pytest.param(
            "It burned in 1914–18.", ["It burned from 1914 to 1918."], [], id="a shortened year"
        ),
        pytest.param("Rain fell.", [], ["Rain fell."], id="no propositions"),
        pytest.param("", [], [], id="nothing"),
    ],
)
def test_what_no_proposition_says_is_missing(
    passage: str, propositions: list[str], missing: list[str]
) -> None:
    assert [passage[slice(*gap.span)] for gap in uncovered(passage, propositions)] == missing


def test_recorded_propositions_are_said_somewhere_and_miss_little() -> None:
    missing = sentences = 0
    sources = [spans for line in RECORDED for spans in align(line["text"], line["propositions"])]
    assert sum(not spans for spans in sources) <= 0.01 * len(sources)
    for line in RECORDED:
        missing += len(uncovered(line["text"], line["propositions"]))
        sentences += len(sentence_spans(line["text"]))
    assert missing <= 0.05 * sentences


def test_spans_that_were_read_one_by_one_are_found() -> None:
    checked = [json.loads(line) for line in CHECKED.read_text(encoding="utf-8").splitlines()]
    for one in (
        one for one in checked if one["file"] == "propositions.jsonl" and one["verdict"] == "right"
    ):
        line = RECORDED[one["line"] - 1]
        found = align(line["text"], line["propositions"])[one["proposition"] - 1]
        assert [list(span) for span in found] == one["spans"], one


def test_a_sentence_whose_propositions_are_gone_is_missing() -> None:
    gone = found = 0
    for line in RECORDED:
        text, propositions = line["text"], line["propositions"]
        sources = align(text, propositions)
        for span in {
            spans[0] for spans in sources if spans in [(one,) for one in sentence_spans(text)]
        }:
            left = [
                said for said, spans in zip(propositions, sources, strict=True) if span not in spans
            ]
            gone += 1
            found += span in [gap.span for gap in uncovered(text, left)]
    assert gone > 200
    assert found >= 0.95 * gone


def test_long_passages_are_aligned_too() -> None:
    sentences = [
        f"The {i}th of the many lamps of Oslo was lit by Ole number {i}." for i in range(2000)
    ]
    passage = " ".join(sentences)
    sources = align(passage, [f"Ole number {i} lit the lamp." for i in range(2000)])
    assert [passage[slice(*spans[0])] for spans in sources] == sentences
    assert [gap.span for gap in uncovered("ab " * 40_000, ["x"] * 1000)] == [(0, 119_999)]


def test_a_line_has_its_own_span_and_not_that_of_a_heading_with_the_same_words() -> None:
    passage = "### Findings\n\nPhase: approach\n\nFindings\n\n所見\n\n- 所見"
    (phase,), (findings,), *others = align(passage, ["Phase: approach", "Findings", "所見", "所見"])
    assert passage[slice(*phase)] == "Phase: approach"
    assert findings[0] > phase[1]
    assert [span for (span,) in others] == [(41, 43), (47, 49)]
