"""The filters that an answer runs through, each by itself: a list of deltas in, a list of texts out."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_pack_densex.answering.footnotes import FootnoteFilter, SentenceMarker
from llama_pack_densex.answering.sources import Source

pytestmark = pytest.mark.pure

TEXTS = ("The bridge opened in 1998.", "灯台は崖の上にある。")
SOURCES = {
    n: Source.of(n, NodeWithScore(node=TextNode(text=text)))
    for n, text in enumerate(TEXTS, start=1)
}


@pytest.mark.parametrize(
    ("deltas", "texts", "rest"),
    [
        (
            ["It opened", " in 1998.", "[^1] It", " turns"],
            ["It opene", "d in 1998", ".[^1] I", "t turn"],
            "s",
        ),
        (["It turns.[^", "9] It opened"], ["It turns", ". It opene"], "d"),
        (["1998年です［＾", "１］。灯台"], ["1998年です", "[^1]。灯"], "台"),
        (["It turns.[^2]\n\n[^2]: a light\n", "x"], ["It turns.[^2]", ""], "\nx"),
        (["It turns [2", "]."], ["It turns", ""], "[^2]."),
    ],
)
def test_footnotes_are_passed_on_once_they_are_whole_and_those_that_lead_nowhere_are_not(
    deltas: list[str], texts: list[str], rest: str
) -> None:
    footnotes = FootnoteFilter(SOURCES)
    assert [footnotes.add(delta).removeprefix("\n") for delta in deltas] == texts
    assert footnotes.close() == rest


@pytest.mark.parametrize(
    ("question", "deltas", "texts", "last"),
    [
        (
            "When?",
            ["It turns", ".\nIt opened", "."],
            ["It turns", ". (no source)\nIt opened", "."],
            " (no source)",
        ),
        (
            "When?",
            ["It turns. It", " opened.", "[^1] It", " is open"],
            ["It turns.", "", " (no source) It opened.[^1] It", " is open"],
            " (no source)",
        ),
        (
            "When?",
            ["It opened.[^1] It", " turns."],
            ["It opened.[^1] It", " turns."],
            " (no source)",
        ),
        (
            "いつですか。",
            ["崖にある。", "1998年。[^1]"],
            ["崖にある。", "（出典なし）1998年。[^1]"],
            "",
        ),
        ("May I?", ["Yes. ", "It opened.[^1]"], ["Yes. ", "It opened.[^1]"], ""),
    ],
)
def test_a_sentence_is_marked_once_its_line_or_the_next_footnote_ends(
    question: str, deltas: list[str], texts: list[str], last: str
) -> None:
    marker = SentenceMarker(SOURCES, question)
    assert [*map(marker.add, deltas)] == texts
    assert marker.last_mark() == last


@pytest.mark.parametrize(
    ("deltas", "begins_cited"),
    [
        (["It opened.[^1] ", "It turns."], True),
        (["It turns. ", "It opened.[^1]"], False),
        (["It opened."], None),
    ],
)
def test_the_marker_tells_whether_the_first_sentence_is_cited(
    deltas: list[str], begins_cited: bool | None
) -> None:
    marker = SentenceMarker(SOURCES, "When?")
    for delta in deltas:
        marker.add(delta)
    assert marker.begins_cited is begins_cited
