"""What a document is made of, and what has to be read before each part of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import passage_sentences
from llama_pack_densex.text.tables import with_labels

pytestmark = pytest.mark.pure


def kinds(text: str) -> list[tuple[str, str]]:
    """What each block of a text is, and what stands there."""
    return [(block.kind, text[block.start : block.end]) for block in find_blocks(text)]


def needs(text: str) -> dict[str, list[str]]:
    """What has to be read before each block that needs anything."""
    blocks = find_blocks(text)
    spans = {block.span: block.needs for block in blocks if block.needs}
    return {
        text[slice(*own)]: [text[slice(*span)] for span in above] for own, above in spans.items()
    }


def sections(text: str) -> dict[str, str]:
    """The headings above each block that is none itself."""
    outline = Outline(text)
    return {
        text[slice(*block.span)]: outline.section_of(*block.span)
        for block in outline.blocks
        if block.kind not in ("heading", "nothing")
    }


def test_lines_below_the_last_border_of_a_grid_are_not_lost() -> None:
    tree = "+- $schema\n|  +- namespace\n+- variants\n   +- label\n"
    assert [text for _, text in kinds(tree)][-1] == "+- label"


# Headings


def test_a_summary_is_a_heading_of_what_its_details_hold_and_of_nothing_below_them() -> None:
    text = (
        "# FAQ\n\n<details>\n<summary>返品できますか？</summary>\n\n30日以内なら可能。\n\n</details>\n\nAsk "
        "us."
    )
    assert sections(text) == {"30日以内なら可能。": "FAQ, 返品できますか？", "Ask us.": "FAQ"}


@pytest.mark.parametrize(
    "details",
    [
        "<details><summary>Can I return it?</summary>\n\nYes.\n\n</details>",
        "<details>\n  <summary>\n    Can I return it?\n  </summary>\n\n  Yes.\n\n</details>",
        "<details open><summary><b>Can I return it?</b></summary>Yes.</details>",
    ],
    ids=["on a line", "over several lines", "with its answer on the line"],
)
def test_a_summary_is_a_heading_however_its_tags_are_laid_out(details: str) -> None:
    (answer, above), after = sections(f"# FAQ\n\n{details}\n\nAsk us.").items()
    assert (answer.removesuffix("</details>"), above) == ("Yes.", "FAQ, Can I return it?")
    assert after == ("Ask us.", "FAQ")


def test_details_within_details_are_sections_within_sections() -> None:
    inner = "<details>\n<summary>色</summary>\n\n赤い。\n\n</details>"
    text = f"<details>\n<summary>塔</summary>\n\n{inner}\n\n高い。\n\n</details>\n\n終わり。"
    assert sections(text) == {"赤い。": "塔, 色", "高い。": "塔", "終わり。": ""}


@pytest.mark.parametrize("heading", ["**返品の方法**", "__How to return it__", "***Who pays?***"])
def test_a_bold_line_between_blank_ones_is_a_heading_below_all_others(heading: str) -> None:
    text = f"###### Deep\n\n{heading}\n\nText.\n\n## Next\n\nMore."
    assert sections(text) == {"Text.": f"Deep, {heading.strip('*_')}", "More.": "Next"}


@pytest.mark.parametrize(
    "text",
    [
        "**The shop is closed today.**\n\nCome again.",
        "**本日は休業です。**\n\nまたどうぞ。",
        "**Note:**\n\nThe shop is closed.",
        "**Bold** at the beginning\n\nText.",
        "Text.\n**Directly below**\n\nMore.",
        "- An item\n\n  **Within it**\n\n  More of it.",
        "The end is\n\n**bold**",
    ],
)
def test_a_bold_line_that_says_something_or_goes_on_is_no_heading(text: str) -> None:
    assert "heading" not in dict(kinds(text))


def test_what_looks_like_a_heading_in_code_or_in_a_row_is_none() -> None:
    text = "# A\n\n```\n# 見出しではない\n```\n\n| # B |\n|---|\n| ## C |\n"
    assert [kind for kind, _ in kinds(text)] == ["heading", "code", "columns", "row"]


# Lists


def test_an_item_needs_the_line_that_leads_its_list_in_and_the_items_around_it() -> None:
    text = "Bring:\n\n- fruit\n  - apples\n    - red ones\n  - pears\n- bread"
    assert needs(text) == {
        "- fruit": ["Bring:"],
        "- apples": ["Bring:", "- fruit"],
        "- red ones": ["Bring:", "- fruit", "- apples"],
        "- pears": ["Bring:", "- fruit"],
        "- bread": ["Bring:"],
    }


def test_a_step_below_the_table_of_the_step_before_it_is_no_heading() -> None:
    table = "   | Port | Use |\n   | --- | --- |\n   | A1 | uplink |"
    text = f"Connect it:\n\n1. Plug it in.\n\n{table}\n\n2. Press Start\n\nIt is on."
    assert ("item", "2. Press Start") in kinds(text)


def test_an_item_in_japanese_plain_text_needs_it_too() -> None:
    text = "次のものを持参すること：\n・果物\n・パン"
    assert needs(text) == {item: ["次のものを持参すること："] for item in ("・果物", "・パン")}


def test_a_paragraph_of_an_item_needs_the_item() -> None:
    text = "Steps:\n\n1. Open the box.\n\n   It is heavy.\n\n2. Close it."
    assert needs(text)["It is heavy."] == ["Steps:", "1. Open the box."]


def test_of_a_long_paragraph_the_last_sentences_lead_a_list_in() -> None:
    text = f"{'It was a long day at the sea. ' * 20}Bring these:\n\n- a coat"
    (lead,) = needs(text)["- a coat"]
    assert lead.endswith("sea. Bring these:")
    assert len(lead) <= 300


def test_items_of_a_law_are_within_those_above_them_without_indentation() -> None:
    text = (
        "1. The keeper:\n\n(a) oils it, if\n\n(i) it is dry or\n\n(ii) it is loud;\n\n(b) cleans it.\n\n"
        "2. The guest:\n\n一\u3000見る。\n\nイ\u3000昼\n\nロ\u3000夜\n\n二\u3000聞く。"
    )
    keeper, oils, dry, loud, cleans, guest, sees, noon, night, hears = text.split("\n\n")
    assert needs(text) == {
        oils: [keeper],
        dry: [keeper, oils],
        loud: [keeper, oils],
        cleans: [keeper],
        sees: [guest],
        noon: [guest, sees],
        night: [guest, sees],
        hears: [guest],
    }


@pytest.mark.parametrize("items", ["- lamps;\n- wicks.", "1. lamps;\n2. wicks."])
def test_items_below_a_number_that_announces_them_are_within_it(items: str) -> None:
    lead = "(1) We pay for"
    needed = needs(f"{lead}\n\n{items}\n\n(2) Oil is extra.")
    assert needed == {item: [lead] for item in items.splitlines()}


def test_a_list_goes_on_below_a_paragraph_with_its_own_lead_in() -> None:
    text = "We pay for:\n\n(a) lamps;\n\nOil is extra.\n\n(b) wicks."
    lead, lamps, _, wicks = text.split("\n\n")
    assert needs(text) == {lamps: [lead], wicks: [lead]}


def test_a_paragraph_that_ends_the_sentence_of_a_list_needs_its_lead_in() -> None:
    text = "We pay for:\n\n(a) lamps; or\n\n(b) wicks,\n\nunless they are old.\n\nOil is extra."
    lead, lamps, wicks, ending, _ = text.split("\n\n")
    assert needs(text) == {lamps: [lead], wicks: [lead], ending: [lead]}


def test_a_heading_ends_what_leads_a_list_in() -> None:
    text = "# 持ち物\n\n次の物：\n\n- 水\n\n# 注意\n\n- 走らない"
    assert needs(text) == {"- 水": ["次の物："]}


def test_a_rule_ends_what_leads_a_list_in() -> None:
    assert needs("Welcome to the shop.\n\n---\n\n- tea\n\n* * *\n\n- 茶") == {}


def test_the_numbers_of_japanese_laws_begin_items() -> None:
    text = "届出には次の事項を記載する。\n一　氏名\n二　住所\n十一　電話番号"
    assert list(needs(text)) == ["一　氏名", "二　住所", "十一　電話番号"]


def test_kana_number_the_items_within_those_of_a_law() -> None:
    text = "次による。\n(1) 働く環境\n　ア　回線が速いこと。\n　　(ｱ) 光回線\nイ 静かなこと。"
    lead, outer, kana, half_width, space = map(str.strip, text.splitlines())
    assert needs(text) == {
        outer: [lead],
        kana: [lead, outer],
        half_width: [lead, outer, kana],
        space: [lead, outer],
    }


# Tables


NAMES = "| Item | Unit | Price |\n|---|---|---|"


def test_a_row_needs_the_names_of_its_columns_and_what_leads_its_table_in() -> None:
    text = f"Prices in yen:\n\n{NAMES}\n| Tea | kg | 900 |"
    assert needs(text)["| Tea | kg | 900 |"] == ["Prices in yen:", NAMES]


def test_a_row_of_a_name_alone_is_a_heading_of_the_full_rows_below_it() -> None:
    text = f"{NAMES}\n| Fruit | | |\n| Apple | kg | 3 |\n| 野菜 | | |\n| 人参 | 本 | 2 |"
    assert needs(text)["| Apple | kg | 3 |"] == [NAMES, "| Fruit | | |"]
    assert needs(text)["| 人参 | 本 | 2 |"] == [NAMES, "| 野菜 | | |"]


def test_groups_state_nothing_by_themselves_and_stand_before_the_cells_of_their_rows() -> None:
    text = f"{NAMES}\n| 果物 | | |\n| りんご | 個 | 3 |"
    assert passage_sentences(text) == ("果物; Item: りんご; Unit: 個; Price: 3",)


def test_a_cell_over_all_columns_of_an_html_table_is_a_group() -> None:
    header = "<tr><th>Item</th><th>Price</th><th>Unit</th></tr>"
    text = (
        f"<table>\n{header}\n<tr><td colspan=3>果物</td></tr>\n"
        "<tr><td>りんご</td><td>3</td><td>個</td></tr>\n</table>"
    )
    assert passage_sentences(text) == ("果物; Item: りんご; Price: 3; Unit: 個",)


def test_a_cell_over_all_columns_that_a_converter_repeated_in_each_is_a_group() -> None:
    text = f"{NAMES}\n| 果物 | 果物 | 果物 |\n| りんご | 個 | 3 |\n| yes | yes | yes |\n| no | yes | no |"
    assert passage_sentences(text) == (
        "果物; Item: りんご; Unit: 個; Price: 3",
        "果物; Item: yes; Unit: yes; Price: yes",
        "果物; Item: no; Unit: yes; Price: no",
    )


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (
            "区分|料金|料金\n区分|平日|休日\n大人|500円|700円",
            ["区分: 大人; 料金 平日: 500円; 料金 休日: 700円"],
        ),
        (
            "Party|Party|Votes\n-|Left|1,204\nLeft|Left|99",
            ["Party: -; Party: Left; Votes: 1,204", "Party: Left; Party: Left; Votes: 99"],
        ),
        (
            "||Years Ended\n|2019|2018\n|$|$\nSales|7|9",
            ["Sales; 2019 $: 7; Years Ended 2018 $: 9"],
        ),
        (
            "Years Ended||\n(In thousands)|2019|2018\nSales|7|9",
            ["Years Ended (In thousands): Sales; 2019: 7; 2018: 9"],
        ),
        (
            "|East|West\nTea|hot|iced\nPrice|7|9",
            ["Tea; East: hot; West: iced", "Price; East: 7; West: 9"],
        ),
        (
            "Name|Type|Since\n|node|\nsize|text|-\nkind|text|×",
            ["Type: node", "Name: size; Type: text; Since: -", "Name: kind; Type: text; Since: ×"],
        ),
    ],
)
def test_a_header_of_several_rows_names_each_column_after_its_group(
    table: str, rows: list[str]
) -> None:
    header, *below = [f"| {line.replace('|', ' | ')} |" for line in table.splitlines()]
    assert passage_sentences("\n".join([header, "|---|---|---|", *below])) == tuple(rows)


def test_a_name_left_blank_over_the_further_columns_of_its_group_counts_in_each() -> None:
    text = (
        "|  | Plan |  | Actual |  |\n|---|---|---|---|---|\n|  | 2019 | 2018 | 2019 | 2018 |\n"
        "| Sales | 7 | 9 | 6 | 8 |"
    )
    assert passage_sentences(text) == (
        "Sales; Plan 2019: 7; Plan 2018: 9; Actual 2019: 6; Actual 2018: 8",
    )


def test_a_name_in_the_middle_of_all_columns_stands_before_the_first() -> None:
    text = "|  |  | Years Ended |  |\n|---|---|---|---|\n|  | 2019 | 2018 | 2017 |\n| Sales | 7 | 8 | 9 |"
    assert passage_sentences(text) == ("Sales; Years Ended 2019: 7; 2018: 8; 2017: 9",)


def test_a_row_of_a_text_alone_above_figures_is_a_heading_in_whatever_column_it_is() -> None:
    rows = "| | Fruit: | |\n| Apple | 7 | 9 |\n| | | Nuts |\n| Pecan | 6 | 8 |"
    text = f"| | 2019 | 2018 |\n|---|---|---|\n{rows}"
    assert passage_sentences(text) == (
        "Fruit:; Apple; 2019: 7; 2018: 9",
        "Nuts; Pecan; 2019: 6; 2018: 8",
    )


def test_a_group_that_its_rows_name_themselves_is_stated_once() -> None:
    text = f"{NAMES}\n| Fruit | | |\n| | kg | 3 |\n| Nuts | | |\n| | g | 2 |"
    assert passage_sentences(text) == (
        "Item: Fruit; Unit: kg; Price: 3",
        "Item: Nuts; Unit: g; Price: 2",
    )


@pytest.mark.parametrize(
    ("rows", "filled"),
    [
        (
            ["2023|Q1|Jan", "||Feb", "|Q2|Apr", "2024|Q1|Jan", "||Feb"],
            ["2023|Q1|Jan", "2023|Q1|Feb", "2023|Q2|Apr", "2024|Q1|Jan", "2024|Q1|Feb"],
        ),
        (["1|East|Tea", "2||Milk", "3|West|Tea"], ["1|East|Tea", "2|East|Milk", "3|West|Tea"]),
        (
            ["East|Tea|5", "|Milk|3", "|Total|8", "West|Tea|4"],
            ["East|Tea|5", "East|Milk|3", "|Total|8", "West|Tea|4"],
        ),
        (
            ["East|Tea|5", "|Milk|3", "West|Tea|4", "||12"],
            ["East|Tea|5", "East|Milk|3", "West|Tea|4", "||12"],
        ),
        *([rows, rows] for rows in (["x|Tea|5", "|Milk|3", "x|Cake|4"], ["Tea|5", "Ham|3", "|8"])),
        (
            ["P1|yearly|Weber", "P2|〃|同上", "P3|same as above|Kunz"],
            ["P1|yearly|Weber", "P2|yearly|Weber", "P3|yearly|Kunz"],
        ),
        *([rows, rows] for rows in (["Tea|5|7", "|5|7", "Ham|3|4"], ["Tea|5", "|Meat", "Ham|3"])),
    ],
)
def test_labels_of_groups_count_in_the_blank_cells_below_them(
    rows: list[str], filled: list[str]
) -> None:
    assert ["|".join(row) for row in with_labels([row.split("|") for row in rows])] == filled


@pytest.mark.parametrize(
    "question", ["I lost it. Can I return it?", "紛失しました。返品できますか。"]
)
def test_a_question_may_have_two_sentences(question: str) -> None:
    text = f"{question}\n\nYes, within a week."
    assert needs(text)["Yes, within a week."] == [question]


@pytest.mark.parametrize(
    ("group", "total", "below"),
    [
        ("Operating expenses", "Total operating expenses", "Operating income"),
        ("Region", "Total", "Change"),
        ("流動資産", "流動資産合計", "純資産"),
    ],
)
def test_the_total_of_a_group_ends_it(group: str, total: str, below: str) -> None:
    rows = [[group, "", ""], ["A", "1", "2"], [total, "1", "2"], [below, "3", "4"]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    *_, of_total, last = passage_sentences(f"| Item | 2024 | 2023 |\n|---|---|---|\n{table}")
    assert of_total == f"{group}; Item: {total}; 2024: 1; 2023: 2"
    assert last == f"Item: {below}; 2024: 3; 2023: 4"


def test_a_row_of_a_table_of_two_columns_is_no_group() -> None:
    text = "| Day | Plan |\n|---|---|\n| Monday | |\n| Tuesday | Swim |"
    assert passage_sentences(text) == ("Day: Monday", "Day: Tuesday; Plan: Swim")


def test_a_row_may_hold_code_and_escaped_pipes() -> None:
    text = "| Option | Example |\n|---|---|\n| `-v` | `a \\| b` |\n| `-q` | |\n| 出力 | `x \\| y` |"
    assert passage_sentences(text) == (
        "Option: `-v`; Example: `a | b`",
        "Option: `-q`",
        "Option: 出力; Example: `x | y`",
    )


def test_the_line_below_a_table_is_no_row() -> None:
    assert kinds(f"{NAMES}\n| Tea | kg | 9 |\nAll is fresh.")[-1] == ("prose", "All is fresh.")


def test_the_cells_of_a_row_that_is_wider_than_its_header_are_stated() -> None:
    text = "| Part | Use |\n| --- | --- |\n| A1 | up \\| down | since 2019 |\n| B2 | console |"
    stated = ("Part: A1; Use: up | down; since 2019", "Part: B2; Use: console")
    assert passage_sentences(text) == stated
    nameless = "|  |  |\n| --- | --- |\n| A1 | up | since 2019 |"
    assert passage_sentences(nameless) == ("A1; up; since 2019",)


def test_a_table_in_an_item_needs_the_item() -> None:
    table = "   | a | b |\n   |---|---|\n   | 1 | 2 |"
    assert needs(f"1. 料金は次のとおり。\n\n{table}")["| 1 | 2 |"][0] == "1. 料金は次のとおり。"


# Questions, terms, footnotes, quotations, code


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Can I return it?", "Yes, within 30 days."),
        ("Q: Can I return it?", "A: Yes, within 30 days."),
        ("Q1. 返品できますか。", "A1. 30日以内なら可能です。"),
        ("【Q】返品の期限", "【A】30日以内なら可能です。"),
        ("返品できますか？", "30日以内なら可能です。"),
    ],
)
def test_an_answer_needs_its_question(question: str, answer: str) -> None:
    text = f"Welcome to the shop.\n\n{question}\n\n{answer}"
    assert needs(text) == {answer: [question]}


def test_what_follows_an_answer_needs_no_question() -> None:
    text = "返品できますか？\n\n30日以内なら可能です。\n\n店は毎日開いています。"
    assert needs(text) == {"30日以内なら可能です。": ["返品できますか？"]}


def test_all_up_to_the_next_question_answers_one_that_is_marked() -> None:
    text = "Q: Can I return it?\n\nA: Yes.\n\nBring the receipt.\n\nQ: 送料は？\n\nA: 無料です。"
    question = "Q: Can I return it?"
    assert needs(text) == {
        "A: Yes.": [question],
        "Bring the receipt.": [question],
        "A: 無料です。": ["Q: 送料は？"],
    }


def test_a_definition_needs_its_term() -> None:
    text = "Miso\n: A paste of soybeans. It is salty.\n\n有給休暇\n:   給与のある休暇。\n: 年に20日ある。"
    assert needs(text) == {
        ": A paste of soybeans. It is salty.": ["Miso"],
        ":   給与のある休暇。": ["有給休暇"],
        ": 年に20日ある。": ["有給休暇"],
    }


def test_a_definition_in_tags_needs_its_term() -> None:
    assert needs("<dl>\n<dt>味噌</dt>\n<dd>調味料。</dd>\n</dl>") == {
        "<dd>調味料。</dd>": ["<dt>味噌</dt>"]
    }


def test_a_footnote_is_a_block_with_the_lines_that_are_indented_below_it() -> None:
    text = "Tides are high.[^1]\n\n[^1]: Measured in\n    2019.\n[^注]: 満潮の時に\n    計測した。"
    assert kinds(text) == [
        ("prose", "Tides are high.[^1]"),
        ("prose", "[^1]: Measured in\n    2019."),
        ("prose", "[^注]: 満潮の時に\n    計測した。"),
    ]


def test_quoted_lines_are_blocks_beside_what_is_said_of_them() -> None:
    text = "彼は言った。\n\n> 行く。\n> 待て。\n\nそして去った。"
    assert [said for _, said in kinds(text)] == [
        "彼は言った。",
        "行く。",
        "待て。",
        "そして去った。",
    ]


def test_code_needs_the_line_that_leads_it_in() -> None:
    assert needs("Run this:\n\n```sh\nmake test\n```") == {"```sh\nmake test\n```": ["Run this:"]}


@pytest.mark.parametrize(
    ("title", "underline"),
    [("Tides", "~~~~~"), ("Tides", "~~~~~~"), ("潮の満ち引き", "~~~~~~~~~~~~")],
)
def test_a_heading_underlined_with_tildes_begins_no_code(title: str, underline: str) -> None:
    text = f"{title}\n{underline}\n\n```py\nx = 1\n```\n\n{title}\n{underline}\n\nThey rise."
    assert [kind for kind, _ in kinds(text)] == ["heading", "code", "heading", "prose"]


@pytest.mark.parametrize(
    "text",
    ["~~~\nx = 1\n~~~", "~~~~py\n\nx\n~~~~", "Run:\n~~~~\nx\n~~~~", "Run:\n\n~~~~\nx\n\ny\n~~~~"],
)
def test_code_between_tildes_is_code(text: str) -> None:
    assert kinds(text)[-1][0] == "code"


def test_front_matter_is_one_block_above_the_document() -> None:
    text = "---\ntitle: 潮\ntags:\n  - sea\n---\n\n# Tides\n\nThey rise."
    assert [kind for kind, _ in kinds(text)] == ["code", "heading", "prose"]


@pytest.mark.parametrize(
    "text",
    [
        "* * *",
        "![](tower.png)",
        "[![ok](b.svg)](/ci)",
        "<br>",
        "~~Gone.~~",
        "<ImagePreview>",
        '<Tabs id="a"> <Tab>',
        '{.left width="50%"}',
        "<style scoped>\n.a {\n  width: 100%;\n}\n\n</style>",
        "<script setup>\nimport { ref } from 'vue'\n</script>",
        ': {tbl-colwidths="[35,65]"}',
    ],
)
def test_rules_pictures_badges_tags_and_what_was_struck_out_say_nothing(text: str) -> None:
    assert kinds(f"潮は高い。\n\n{text}\n\nIt rises.")[1] == ("nothing", text)


@pytest.mark.parametrize(
    "mark",
    [
        "- 3 -",
        "-12-",
        "— 7 —",
        "Page 4 of 12",
        "Seite 4 von 12",
        "3 / 12 ページ",
        "Doe      Informational      [Page 5]",
    ],
)
def test_the_number_of_a_page_says_nothing(mark: str) -> None:
    for above, below in (("\n\n", "\n\n"), ("\n", "\n")):
        text = f"潮は高い。{above}{mark}{below}It rises."
        assert kinds(text)[1] == ("nothing", mark)
        assert passage_sentences(text) == ("潮は高い。", "It rises.")


@pytest.mark.parametrize(
    "line",
    ["42", "-3", "Page 4", "3 - 12", "12ページ", "- 3 - 4 -", "The trial failed [page 5]"],
)
def test_another_number_on_a_line_of_its_own_is_kept(line: str) -> None:
    text = f"潮は高い。\n\n{line}\n\nIt rises."
    assert any(line in sentence for sentence in passage_sentences(text))


def test_a_passage_of_nothing_but_the_number_of_a_page_keeps_it() -> None:
    assert passage_sentences("- 3 -") == ("- 3 -",)


@pytest.mark.parametrize(
    "comment",
    [
        "<!--\nIt stands on lines of its own.\n\nAnd so does this.\n-->",
        "<!-- 隠した文です。\n\n# Not a heading\n\n| a | b |\n|---|---|\n| 1 | 2 | -->",
    ],
)
def test_a_comment_of_several_lines_says_nothing(comment: str) -> None:
    assert kinds(f"潮は高い。\n\n{comment}\n\nIt rises.")[1] == ("nothing", comment)


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<!--\nIt stays.\n-->\n```",
        "<!-- It is never closed.\nIt stays.",
        "<!-- a --> It stays.\nSo does this. -->",
    ],
)
def test_what_only_looks_like_a_comment_of_several_lines_stays(text: str) -> None:
    assert "nothing" not in {kind for kind, _ in kinds(text)}


def test_paragraphs_that_were_struck_out_together_say_nothing() -> None:
    text = "<del>\n\nDogs may come.\n\n- 猫も来てよい。\n\n</del>\n\nBirds may come."
    assert passage_sentences(text) == ("Birds may come.",)


# What holds for any document

PARTS = (
    "# 見出し", "## Heading ##", "Title\n=====", "**Bold**", "Rain fell. It was cold.",
    "雨が降った。寒かった。",
    "- one\n  - two\n\n    more\n- three", "・果物\n・パン", "1. Open it.\n2. 閉じる。", "Bring:", "次の物：",
    "| a | b |\n|---|---|\n| 1 | x \\| y |", "|  |  |\n|---|---|\n| k | v |\n| l | w |",
    "| a | b | c |\n|---|---|---|\n| 果物 | | |\n| p | q | r |\n| | | s "
    "|", "```py\nx = 1\n\n# y\n```", "~~~\nz",
    "> He said.\n> > Inner.", "---\nk: v\n---", "<details><summary>Q?</summary>A.", "Can I?\n\nYes.",
    "<details>\n<summary>問</summary>\n\n答。\n\n"
    "</details>", "Q1. 可か。\n\nA1. 可。", "[a](https://x.example/b)",
    "Term\n: Its meaning.\n: "
    "Another.", "[^1]: A note\n    goes on.", "![p](data:image/png;base64,iVBORw0KGg=)",
    "<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr>\n<tr><td>3</tr></table>", "~~Old.~~ New. <del>A. B.</del>",
    "+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n"
    "+---+---+", "第１条　この規則は、就業を定める。", "\u3000", "***",
    "\tTabbed text.", "> [!NOTE]\n> It rains.\n> - 傘", ":::tip[Title]\nText.\n:::", ":::",
    "{% tab title=\"a\" %}", "{% endtab %}", "!!! note \"題\"\n    本文。",
    "```{note}\n:class: x\nText.\n```",
)  # fmt: skip
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(PARTS), st.sampled_from(["\n", "\n\n", "\r\n\r\n", "\n\n\n  "])),
    max_size=12,
).map(lambda parts: "".join(f"{text}{gap}" for text, gap in parts))


WHITE_SPACE_AND_QUOTATION_MARKS = " \t\r\n\u3000>"


@given(DOCUMENTS)
@example("<details><summary>Q?</summary>A.\n\n</details>\n\n")
def test_blocks_cover_a_document_in_order(text: str) -> None:
    end = 0
    for block in find_blocks(text):
        assert not text[end : block.start].strip(WHITE_SPACE_AND_QUOTATION_MARKS)
        assert block.start < block.end
        assert text[block.start : block.end].strip() == text[block.start : block.end]
        end = block.end
    assert not text[end:].strip(WHITE_SPACE_AND_QUOTATION_MARKS)


@pytest.mark.parametrize("unit", ["($ in millions, except per share)", "（単位：百万円）"])
def test_a_table_needs_the_caption_above_its_unit(unit: str) -> None:
    table = "| Cash | 2024 | 2023 |\n| --- | --- | --- |\n| Cash | 7 | 8 |"
    text = f"It rained.\n\nBalance sheet\n\n{unit}\n\n{table}"
    outline = Outline(text)
    assert outline.leads_of(len(text) - 10, len(text)) == f"Balance sheet\n{unit}"


@given(DOCUMENTS)
def test_what_a_block_needs_stands_before_it(text: str) -> None:
    for block in find_blocks(text):
        ends = [0]
        for start, end in block.needs:
            assert ends[-1] <= start < end
            ends.append(end)
        assert ends[-1] <= block.start


@given(DOCUMENTS)
def test_a_row_says_the_same_below_its_context_as_in_the_document(text: str) -> None:
    outline = Outline(text)
    for block in outline.blocks:
        own = text[slice(*block.span)]
        found = find_blocks(own, outline.context_of(*block.span))
        if block.kind == "row":
            rows = [(part.kind, part.names, part.cells) for part in found]
            assert rows == [("row", block.names, block.cells)]


def test_a_numbered_item_begins_below_its_context_as_in_the_document() -> None:
    text = "4. 日数は次のとおり。\n    1. 午後出発・・・0.5日\n    2. 午前・・・1日\n    3. 休日・・・0日"
    start = text.index("2.")
    context = Outline(text).context_of(start, len(text))
    below = find_blocks(text[start:], context)
    assert [text[start:][slice(*block.span)] for block in below] == [
        "2. 午前・・・1日",
        "3. 休日・・・0日",
    ]


@pytest.mark.parametrize("number", ["２　", "２ ", "2　"])
def test_a_numbered_paragraph_of_a_law_ends_the_item_above(number: str) -> None:
    item = "二　個人に提供される役務の利用に関して割り当てられた符号その他の番号"
    text = f"第二条　次のものをいう。\n{item}\n{number}この規程において、符号とは、別表に定めるものをいう。"
    assert item in [text[slice(*block.span)] for block in find_blocks(text)]
