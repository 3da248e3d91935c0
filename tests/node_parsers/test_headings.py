"""One idea of a heading and of a fence, for sections and for sentences."""

from __future__ import annotations

import time

import pytest
from llama_index.core import Document

from llama_pack_densex import PropositionNodeParser
from llama_pack_densex.node_parsers.metadata import SECTION_KEY
from llama_pack_densex.node_parsers.splitting import SectionNodeParser
from llama_pack_densex.text.outline import Outline

pytestmark = pytest.mark.pure


def sections(text: str) -> dict[str, str]:
    """What section each proposition of a text is in."""
    nodes = PropositionNodeParser().get_nodes_from_documents([Document(text=text)])
    return {node.get_content(): node.metadata[SECTION_KEY] for node in nodes[1:]}


def test_a_fence_that_is_never_closed_hides_no_heading_below_it() -> None:
    assert sections("x = 1\n```\n\n# One\n\nRain fell.")["Rain fell."] == "One"


def test_a_fence_inside_of_another_kind_does_not_end_it() -> None:
    code = "```\n~~~\n# no heading\n```"
    assert sections(f"# One\n\n{code}\n\n# Two\n\nRain fell.") == {code: "One", "Rain fell.": "Two"}


@pytest.mark.parametrize(("underline", "found"), [("=====", "One, Two"), ("-----", "One, Two")])
def test_underlined_headings_are_headings_of_sections_too(underline: str, found: str) -> None:
    assert (
        sections(f"One\n===\n\nIt was cold.\n\n{'#' * 2} Two\n\nRain fell.")["Rain fell."] == found
    )
    title = f"Two\n{underline}"
    expected = "Two" if underline[0] == "=" else "One, Two"
    assert sections(f"# One\n\nIt was cold.\n\n{title}\n\nRain fell.")["Rain fell."] == expected


def test_a_heading_says_what_it_says_without_markup() -> None:
    text = "# **Tides** and `code` ##\n\n== 歴史 ==\n\nC#\n--\n\n## C#\n\nRain fell."
    assert sections(text)["Rain fell."] == "Tides and code, C#"
    text = "# ![logo](a.png) Tides\n\n## [![ok](b.svg)](c)\n\n### 1\\. The [moon](d.md) {#moon}\n\nRain fell."
    assert sections(text)["Rain fell."] == "Tides, 1. The moon"


def test_chapters_and_captions_of_articles_are_sections() -> None:
    text = (
        "就業規則\n\n第１章　総則\n（目的）\n第１条　この規則は、就業を定める。\n２　ほかは法令による。\n"
        "(適用範囲)\n"
        "第２条　この規則は、正社員に適用する。\n\n第２章　採用\n\n第３条　希望する者を採用する。"
    )
    assert sections(text) == {
        "就業規則": "",
        "第１条　この規則は、就業を定める。": "第１章　総則, 第１条（目的）",
        "２　ほかは法令による。": "第１章　総則, 第１条（目的）",
        "第２条　この規則は、正社員に適用する。": "第１章　総則, 第２条(適用範囲)",
        "第３条　希望する者を採用する。": "第２章　採用",
    }


def test_full_width_numbers_of_sections_are_those_of_headings() -> None:
    text = (
        "２　仕様\n２．１　電源\n　電圧　：５Ｖ\n\n２－２　環境\n乾いた所で使う。\n\n"
        "３．保証\n（１）一年とする。\n\n４．その他\n　・別に定める。"
    )
    assert sections(text) == {
        "電圧　：５Ｖ": "２　仕様, ２．１　電源",
        "乾いた所で使う。": "２　仕様, ２－２　環境",
        "（１）一年とする。": "３．保証",
        "・別に定める。": "４．その他",
    }


def test_numbered_headings_are_below_the_title_that_a_document_begins_with() -> None:
    text = (
        "# 連結業績\n\n１．経営成績\n\n増収となった。\n\n２．財政状態\n\n安定している。\n\n"
        "# 注記\n\n特になし。"
    )
    assert sections(text) == {
        "増収となった。": "連結業績, １．経営成績",
        "安定している。": "連結業績, ２．財政状態",
        "特になし。": "注記",
    }
    assert (
        sections("# 第１章　総則\n\n目的。\n\n第２章　雑則\n\n定義。")["定義。"] == "第２章　雑則"
    )


@pytest.mark.parametrize(
    "text",
    [
        "費用\n\n１．りんご\n２．みかん\n\n３．なし\n\n４．もも",
        "出席者は次のとおり。\n１．山田\n（部長）\n２．佐藤\n（課長）",
        "versions::\n\n    3.3.1       # Maintenance release\n    3.4a1       # Alpha",
        "約\n1-2　日で届く。\nそれ以上はない。",
    ],
)
def test_full_width_numbers_of_items_and_amounts_are_not(text: str) -> None:
    assert set(sections(text).values()) == {""}


def test_a_number_of_more_parts_is_deeper() -> None:
    text = "2.1 Towers\n2.1.1 Stone\nIt is high.\n2.1.2 Wood\nIt is low.\n2.2 Lamps\nThey are red."
    assert sections(text) == {
        "It is high.": "2.1 Towers, 2.1.1 Stone",
        "It is low.": "2.1 Towers, 2.1.2 Wood",
        "They are red.": "2.2 Lamps",
    }


def test_sections_are_cut_at_underlined_headings() -> None:
    text = "One\n===\n\nRain fell.\n\nTwo\n---\n\nIt was cold."
    nodes = SectionNodeParser().get_nodes_from_documents([Document(text=text)])
    assert [node.get_content() for node in nodes] == [
        "One\n===\n\nRain fell.",
        "Two\n---\n\nIt was cold.",
    ]


@pytest.mark.slow
def test_the_time_for_sections_grows_with_the_text_and_not_with_its_square() -> None:
    def seconds(headings: int) -> float:
        outline = Outline(
            "".join(f"## Part {i}\n\nRain fell. It was cold.\n\n" for i in range(headings))
        )
        began = time.process_time()
        for block in outline.blocks:
            outline.section_of(block.start, block.end)
        return time.process_time() - began

    assert seconds(40_000) < 20  # a second or less; quadratic time would take minutes


@pytest.mark.parametrize("words", ["It rained. ", "雨が降った。", "word "])
def test_a_whole_text_in_the_line_of_a_heading_is_no_section(words: str) -> None:
    text = f"# Rain\n\n# {words * 400}\n\nThe sun shone."
    nodes = PropositionNodeParser().get_nodes_from_documents([Document(text=text)])
    assert {node.metadata["densex_section"] for node in nodes} == {"Rain"}
