"""Where documents are cut: what belongs together stays together, and every part says what it is a part of."""

from __future__ import annotations

import base64
import random
import re
import textwrap
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.schema import IndexNode, TextNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, PropositionNodeParser
from llama_pack_densex.node_parsers.metadata import CONTEXT_KEY, SECTION_KEY
from llama_pack_densex.node_parsers.passages import PassageNodeParser, length_of
from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.sentences import split_sentences
from tests.openai_server import OpenAIServer
from tests.text.test_blocks import DOCUMENTS

pytestmark = pytest.mark.pure

PICTURE = "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(45_000)).decode()


def nodes_of(text: str, size: int = 256) -> list[TextNode]:
    """The nodes of a text whose passages have this many tokens at most."""
    parser = PropositionNodeParser(base_parser=PassageNodeParser(chunk_size=size))
    return parser.get_nodes_from_documents([Document(text=text)])  # type: ignore[return-value]


def passage_nodes(text: str, size: int = 256) -> list[TextNode]:
    return [node for node in nodes_of(text, size) if not isinstance(node, IndexNode)]


def passages(text: str, size: int = 256) -> list[str]:
    return [node.text for node in passage_nodes(text, size)]


def contexts(text: str, size: int = 256) -> list[str]:
    return [str(node.metadata[CONTEXT_KEY]) for node in passage_nodes(text, size)]


def units(text: str, size: int = 256) -> list[str]:
    return [node.text for node in nodes_of(text, size) if isinstance(node, IndexNode)]


# Nothing is cut that fits


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([f"| {n} | 最大${n},250,000 |" for n in range(60)], "| 番号 | 金額 |\n|---|---|\n{}\n"),
        (
            [f"- It costs {n},250,000 yen. Ask\n  for it at the desk." for n in range(60)],
            "Prices:\n\n{}",
        ),
        ([f"- 第{n}号は{n},250円。受付で\n  尋ねること。" for n in range(60)], "料金：\n\n{}"),
        ([f"cp a{n}.txt b{n}.txt && ls | wc -l" for n in range(60)], "Run:\n\n```sh\n{}\n```\n"),
        ([f"It rained for {n}.5 days. " for n in range(60)], "{}"),
        ([f"雨が{n}.5日降った。" for n in range(60)], "{}"),
    ],
    ids=["rows", "items", "items in Japanese", "code", "sentences", "sentences in Japanese"],
)
def test_a_row_an_item_a_line_of_code_and_a_sentence_are_in_one_passage(
    lines: list[str], text: str
) -> None:
    cut = passages(text.format(("" if text == "{}" else "\n").join(lines)), size=60)
    assert len(cut) > 5
    for line in lines:
        assert sum(line.strip() in passage for passage in cut) == 1


@given(DOCUMENTS, st.sampled_from([40, 60, 120]))
def test_passages_begin_where_a_block_a_sentence_or_a_line_of_code_does(
    text: str, size: int
) -> None:
    starts = set()
    for block in find_blocks(text):
        own = text[slice(*block.span)]
        spans = split_sentences(own) if block.kind == "prose" else [(0, len(own))]
        starts |= {block.start + start for start, _ in spans}
        if block.kind == "code":
            starts |= {block.start + line.start(1) for line in re.finditer(r"\n\s*(\S)", own)}
    nodes = passage_nodes(text, size)
    assert {node.start_char_idx for node in nodes} <= starts
    assert [node.text for node in nodes] == [text[n.start_char_idx : n.end_char_idx] for n in nodes]


@given(DOCUMENTS)
def test_no_passage_but_of_rows_is_longer_than_asked_for(text: str) -> None:
    for passage in passages(text, size=50):
        line_ends = passage.count("\n")
        assert (
            length_of(passage)
            <= 50 * (1.25 if "|" in passage or "<tr" in passage else 1) + line_ends
        )


# What alone is larger than a passage


def test_a_long_sentence_is_cut_at_clauses_and_never_within_a_number_or_an_address() -> None:
    text = (
        ", ".join(f"it was {n},250.75 yen at https://example.com/a:b/{n};x,{n}" for n in range(60))
        + "."
    )
    cut = passages(text, size=60)
    assert len(cut) > 5
    assert all(passage.startswith("it was ") for passage in cut)
    assert all(re.search(r"x,\d+[,.]\Z", passage) for passage in cut)


def test_a_long_japanese_sentence_is_cut_at_its_commas() -> None:
    text = "、".join(f"雨が{n},250.5ミリ降り" for n in range(60)) + "続けた。"
    cut = passages(text, size=60)
    assert len(cut) > 3
    assert all(passage.startswith("雨が") for passage in cut)


def test_an_address_is_whole_where_a_sentence_has_no_clauses() -> None:
    addresses = [f"https://example.com/page/{n}?x={n}:{n}" for n in range(80)]
    cut = passages("See " + " and ".join(addresses) + ".", size=40)
    assert all(
        any(re.search(rf"{re.escape(one)}(?!\d)", passage) for passage in cut) for one in addresses
    )


@pytest.mark.parametrize(
    "sentence", ["Wool number {} is warm and\n  it is soft.", "羊毛{}号は暖かくて\n  柔らかい。"]
)
def test_a_long_item_is_cut_between_sentences_and_not_where_its_lines_end(sentence: str) -> None:
    sentences = [sentence.format(n) for n in range(60)]
    text = "Bring:\n\n- " + " ".join(sentences) + "\n- water"
    cut = passages(text, size=60)
    assert all(sum(one in passage for passage in cut) == 1 for one in sentences)
    later = contexts(text, size=60)[2:]
    assert all(context.startswith(f"Bring:\n\n- {sentences[0][:6]}") for context in later)


def test_a_long_row_is_cut_between_cells_and_each_part_names_its_row_and_columns() -> None:
    words = {name: f"{name} " * 60 for name in ("steel", "brass", "copper")}
    cells = " | ".join(f"{words[name]}is it." for name in words)
    text = f"| Part | A | B | C |\n|---|---|---|---|\n| P1 | {cells} |\n| P2 | x | y | z |"
    assert contexts(text, size=100)[1:] == [
        "| Part | A | B | C |\n|---|---|---|---|\n| P1 || ",
        "| Part | A | B | C |\n|---|---|---|---|\n| P1 ||| ",
    ]
    assert units(text, size=100) == [
        f"Part: P1; A: {words['steel']}is it.",
        f"Part: P1; B: {words['brass']}is it.",
        f"Part: P1; C: {words['copper']}is it.",
        "Part: P2; A: x; B: y; C: z",
    ]


def test_a_cell_that_is_larger_than_a_passage_is_cut_between_its_sentences() -> None:
    sentences = [f"湯飲みの作り方の{n}番目の手順である。" for n in range(60)]
    text = f"| 品名 | 説明 |\n|---|---|\n| 湯飲み | {''.join(sentences)} |"
    cut = passages(text, size=100)
    assert len(cut) > 3
    assert all(sum(one in passage for passage in cut) == 1 for one in sentences)
    assert all(
        unit.startswith("品名: 湯飲み; 説明: 湯飲みの作り方の") for unit in units(text, size=100)
    )


def test_each_part_of_a_long_record_says_what_it_is_a_record_of() -> None:
    fields = "".join(f"| Field {n} | {'It is said here. ' * 4}|\n" for n in range(20))
    text = f"|  |  |\n| --- | --- |\n| 品名 | 湯飲み |\n{fields}"
    stated = units(text, size=80)
    assert len(stated) > 3
    assert all(unit.startswith("品名: 湯飲み; Field ") for unit in stated)


def test_a_value_of_a_record_that_is_larger_than_a_passage_keeps_its_name() -> None:
    text = f"|  |  |\n| --- | --- |\n| Name | Cup |\n| How | {'It was made by hand. ' * 60}|\n| Price | 800 |"
    first, *others = units(text, size=60)
    assert first == "Name: Cup"
    assert len(others) > 3
    assert all(unit.startswith("Name: Cup; How: It was made by hand. It") for unit in others)
    assert others[-1].endswith("; Price: 800")


def test_a_long_line_of_code_is_cut_and_the_others_are_whole() -> None:
    text = f"Run:\n\n```py\nx = [{', '.join(map(str, range(1000, 1500)))}]\ny = x[2]\n```"
    cut = passages(text)
    assert len(cut) > 3
    assert all(re.search(rf"\b{number}\b", " ".join(cut)) for number in range(1000, 1500))
    assert sum("y = x[2]" in passage for passage in cut) == 1
    assert all(context.startswith("Run:\n\n```py\n") for context in contexts(text)[1:])


# What is no text


@pytest.mark.parametrize(
    "text",
    [
        f"# Tower\n\nIt is high.\n\n![tower]({PICTURE})\n\nIt was finished in 1889.",
        f"# 塔\n\n高い。\n\n![][図1]\n\n1889年に完成した。\n\n[図1]: <{PICTURE}>",
        f"The tower ![tower]({PICTURE}) is high.",
        f"Parts:\n\n- 塔 ![]({PICTURE})\n- deck",
        f"| A | B |\n|---|---|\n| ![]({PICTURE}) | 塔 |",
        f"It is high.\n\n<img src='{PICTURE}' alt='塔'>\n\nIt was finished in 1889.",
        f"It is high.\n\n```html\n<img src='{PICTURE}'>\n```",
    ],
    ids=["line", "reference", "sentence", "item", "row", "tag", "code"],
)
def test_a_picture_in_the_text_makes_no_passage_and_no_request(text: str) -> None:
    reply = '["塔は高い。"]' if "高い" in text else '["The tower is high."]'
    with OpenAIServer(lambda body: reply) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
        parser = PropositionNodeParser(propositionizer=LLMPropositionizer(llm, strictness="off"))
        nodes = parser.get_nodes_from_documents([Document(text=text)])
    assert len([node for node in nodes if not isinstance(node, IndexNode)]) == 1
    (request,) = server.requests
    assert len(request.last_message) < 200
    assert "base64,i" not in request.last_message


def test_links_are_not_counted_as_length() -> None:
    text = " ".join(
        f"See [form {n}](https://hr.example.com/leave/{'x' * 80}?id={n})." for n in range(40)
    )
    assert len(passages(text)) == 1


# Where it is best to cut


@pytest.mark.parametrize(
    ("sentence", "heading"),
    [("It rained on day {} of the week. ", "# Snow"), ("{}日目には雨が降り続けたという。", "# 雪")],
)
def test_a_passage_prefers_to_end_where_a_section_ends(sentence: str, heading: str) -> None:
    def section(count: int) -> str:
        return "".join(sentence.format(n) for n in range(count)).strip()

    first = f"# Rain\n\n{section(8)}"
    second = f"{heading}\n\n{section(12)}"
    assert passages(f"{first}\n\n{second}", size=140) == [first, second]


def test_the_end_of_an_outer_section_is_preferred_to_that_of_an_inner_one() -> None:
    days = "It rained all day long. " * 4
    parts = [f"{heading}\n\n{days.strip()}" for heading in ("# A", "## B", "# C", "## D")]
    assert passages("\n\n".join(parts), size=75) == ["\n\n".join(parts[:2]), "\n\n".join(parts[2:])]


@pytest.mark.parametrize(
    "pair",
    [
        "Can I return item {}?\n\nYes, within {} days of the purchase of it in the shop.",
        "**商品{}は返品できますか？**\n\nはい、購入した日から{}日以内であれば返品できます。",
        "Q{}. 返品できますか\n\nA{}. はい、購入した日から何日以内であれば返品できます。",
        "<details><summary>Can I return item {}?</summary>\n\nYes, within {} days.\n\n</details>",
        "Item {}\n: It is the thing of the shop with the number {} on it.",
        "商品{}\n: 店にある物のうちで番号{}を持つ物のことである。",
    ],
)
@pytest.mark.parametrize("size", [40, 50, 60, 70])
def test_an_answer_is_with_its_question_and_a_definition_with_its_term(
    pair: str, size: int
) -> None:
    pairs = [pair.format(n, n) for n in range(100, 120)]
    cut = passages("# FAQ\n\n" + "\n\n".join(pairs), size)
    assert len(cut) > 3
    assert all(
        sum(one.removesuffix("\n\n</details>") in passage for passage in cut) == 1 for one in pairs
    )


@pytest.mark.parametrize(
    "lead", ["The shop sells what is on this list:", "この店で売っているものは次のとおりである。"]
)
@pytest.mark.parametrize("size", [40, 50, 60, 70])
def test_a_line_that_leads_a_list_in_is_with_its_first_items(lead: str, size: int) -> None:
    items = "\n".join(f"- thing number {n}" for n in range(8))
    text = "\n\n".join(f"{lead}\n\n{items}" for _ in range(4))
    assert not any(passage.endswith(lead) for passage in passages(text, size))


@pytest.mark.parametrize("size", [60, 70, 80, 90])
def test_the_header_of_a_table_is_with_its_first_rows(size: int) -> None:
    table = "| 品名 | Price |\n|---|---|\n" + "\n".join(
        f"| 湯飲み{n} | {n} yen |" for n in range(20)
    )
    cut = passages("\n\n".join([table] * 3), size)
    assert not any(passage.endswith("|---|---|") for passage in cut)


def test_rows_of_a_group_that_begin_a_passage_have_its_name_above_them() -> None:
    groups = {
        name: "".join(f"| {name} {n} | kg | {n} |\n" for n in range(12))
        for name in ("Fruit", "野菜")
    }
    table = "".join(f"| {name} | | |\n{rows}" for name, rows in groups.items())
    text = f"Prices in yen:\n\n| Item | Unit | Price |\n|---|---|---|\n{table}"
    first, *others = passage_nodes(text, size=80)
    assert first.metadata[CONTEXT_KEY] == ""
    for node in others:
        name = node.text.split()[1]
        context = node.metadata[CONTEXT_KEY]
        assert context.startswith("Prices in yen:\n\n| Item | Unit | Price |\n|---|---|---|\n")
        assert node.text.startswith(f"| {name} | | |") or f"| {name} | | |" in context


def test_a_table_in_tags_has_its_names_above_each_passage() -> None:
    rows = "".join(f"<tr><td>部品{n}</td>\n<td>{n} yen</td></tr>\n" for n in range(60))
    text = f"# Parts\n\n<table>\n<tr><th>名前</th><th>Price</th></tr>\n{rows}</table>"
    assert len(passages(text, size=100)) > 3
    assert units(text, size=100) == [f"名前: 部品{n}; Price: {n} yen" for n in range(60)]


def test_a_passage_repeats_no_tag_of_the_one_before() -> None:
    answer = "The office is open from nine to five on each day of the week but Sunday. " * 12
    text = f"<details>\n<summary>When?</summary>\n\n{answer}\n\n</details>\n\n## Where\n\n{answer}"
    assert PassageNodeParser().split_text(text)[-1].startswith("## Where")


def test_a_passage_in_very_many_details_is_below_some_of_them() -> None:
    text = "<details>\n<summary>a</summary>\n\nx\n\n" * 100 + "</details>\n" * 100
    depths = [len(node.metadata[SECTION_KEY].split(", ")) for node in passage_nodes(text)]
    assert 10 < max(depths) < 30


@pytest.mark.parametrize("picture", ["![tower]({})", '<img src="{}">', "It is tall ({}) and old."])
def test_a_picture_whose_bytes_are_wrapped_is_in_one_passage(picture: str) -> None:
    wrapped = "\n".join(textwrap.wrap(PICTURE, 76))
    text = f"# The tower\n\nIt is made of iron.\n\n{picture.format(wrapped)}\n\nIt was finished in 1889."
    assert len(passages(text)) == 1


@pytest.mark.parametrize(
    "text", ["#" * 9_000, "<" * 9_000, "_" * 9_000 + " a", "word " * 3_000, "港町" * 3_000]
)
def test_a_run_without_sentences_fills_passages(text: str) -> None:
    cut = passages(text)
    assert "".join(cut).replace(" ", "") == text.replace(" ", "")
    assert all(length_of(passage) <= 256 for passage in cut)
    assert all(length_of(one + following) > 200 for one, following in pairwise(cut))


@pytest.mark.parametrize("lead", ["word " * 2_000 + ":", "語句" * 3_000 + "："])
@pytest.mark.parametrize("items", ["- item\n" * 300, "- 項目\n" * 300])
def test_what_is_longer_than_several_passages_leads_in_nothing(lead: str, items: str) -> None:
    nodes = nodes_of(f"{lead}\n\n{items}")
    assert max(len(node.metadata[CONTEXT_KEY]) for node in nodes) < 4_500
    assert any(
        lead[-3:] in node.metadata[CONTEXT_KEY] for node in nodes_of(f"{lead[-9:]}\n\n{items}")
    )


@pytest.mark.parametrize(
    "box",
    [
        "> [!WARNING]\n> {}",
        ":::warning\n{}\n:::",
        "!!! warning\n    {}",
        "/// warning\n{}\n///",
        "```{{warning}}\n{}\n```",
        "{{% hint style='danger' %}}\n{}\n{{% endhint %}}",
    ],
)
@pytest.mark.parametrize("statement", ["The valve must stay closed.", "弁は閉じておくこと。"])
def test_a_warning_is_in_the_passage_of_what_it_warns_of(box: str, statement: str) -> None:
    marked = box.format(statement)
    for words in range(1, 12):
        text = f"{'Water ' * words}flows.\n\n{marked}\n\nMore water flows."
        (passage,) = (node.text for node in passage_nodes(text, 16) if statement in node.text)
        assert any(mark in passage.lower() for mark in ("warning", "danger"))


def test_a_quotation_is_cut_around_rather_than_within() -> None:
    quotation = "> The tide comes in twice.\n>\n> It goes out twice, too."
    text = f"The harbour has a long wall.\n\n{quotation}\n\nThe wall is of stone."
    (passage,) = (node.text for node in passage_nodes(text, 20) if "comes in" in node.text)
    assert "goes out" in passage


@pytest.mark.parametrize(
    "text",
    [
        "प्रत्येक कर्मचारी को वर्ष में चौबीस दिन का सवेतन अवकाश मिलता है।",
        "พนักงานทุกคนมีวันลาพักร้อนสิบห้าวันต่อปี",
        "يحصل كل موظف على ثلاثين يوماً من الإجازة السنوية المدفوعة.",
        "כל עובד זכאי לעשרים ימי חופשה בשנה.",
        "すべての社員は年に二十日の休暇を取れます。",
    ],
)
def test_a_character_of_other_scripts_counts_as_half_a_token(text: str) -> None:
    assert length_of(text) <= 0.6 * len(text)
