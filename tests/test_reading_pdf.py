"""Reading paragraphs, forms, columns and upright lines of PDFs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from pypdfium2 import raw

from llama_pack_densex.reading import read_file
from tests.pdf_file import (
    form_field,
    heading_drawing,
    pdf_bytes,
    sections,
    table_drawing,
    text_drawing,
)

RADIO = "/Ff 32768"
COMBO = "/Ff 131072 /Opt [(Tokyo) (Osaka)]"


def pages(path: Path, drawings: list[str], fields: list[list[str]] | None = None) -> list[str]:
    path.write_bytes(pdf_bytes([""] * len(drawings), drawings=drawings, fields=fields or ()))
    return [document.text for document in read_file(path, path.name)]


def below(
    *lines: str, left: float = 60, top: float = 700, step: float = 14
) -> list[tuple[float, float, str]]:
    """Lines below one another."""
    return [(left, top - step * number, line) for number, line in enumerate(lines)]


CYCLES = [
    "We work in cycles of six weeks at our company. This fixed cadence serves to give",
    "us a sense of urgency, to keep projects from ballooning, and to provide us with a",
    "regular interval to make decisions about what we work on. Three of the teams plan",
    "together.",
]
DEVICES = [
    "休職を検討している社員は、当社の休職の規程と、国別の休職の情報を確認す",
    "ることを推奨します。また、さまざまな規制の対象となっている地域には会社",
    "所有の端末を持ち込むことも、そこから業務を行うこともできません。詳しく",
    "は、人事部に連絡してください。",
]


@pytest.mark.parametrize(
    ("heading", "paragraph", "joint", "last"),
    [("Cycles", CYCLES, " ", "All teams share it."), ("休職と端末", DEVICES, "", "以上です。")],
)
def test_a_paragraph_is_one_line_below_its_heading(
    tmp_path: Path, heading: str, paragraph: list[str], joint: str, last: str
) -> None:
    lines = below(heading, *paragraph, last)
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text.split("\n") == [heading, joint.join(paragraph), last]


@pytest.mark.parametrize(
    ("mark", "paragraph", "joint"),
    [("- ", CYCLES, " "), ("> ", CYCLES, " "), ("・", DEVICES, ""), ("> ", DEVICES, "")],
)
def test_items_and_quotations_are_a_line_each(
    tmp_path: Path, mark: str, paragraph: list[str], joint: str
) -> None:
    marked = [(mark + paragraph[0])[: len(paragraph[0])], *paragraph[1:]]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*marked, *marked))])
    assert text.split("\n") == [joint.join(marked)] * 2


def test_an_indented_line_begins_a_paragraph(tmp_path: Path) -> None:
    first, *rest = CYCLES[:3]
    lines = [*below(first, left=78), *below(*rest, top=686), *below(first, left=78, top=658)]
    lines += below(*CYCLES[1:], top=644)
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text.split("\n") == [" ".join(CYCLES[:3]), " ".join(CYCLES)]


@pytest.mark.parametrize(
    "lines",
    [
        [f"{number} {number * 1234567} is the figure that was counted in the district that year"
         for number in range(40, 46)],
        [f"1.{number} What there is to see in the old town between the rivers . . . . . . . . . 1{number}"
         for number in range(1, 6)],
        ["Ichiro Yamada", "Head of the department of waste water", "Mai Ito", "Manager", "Ken Sato"],
        ["山田一郎", "上下水道局 維持管理課 施設整備係長", "伊藤舞", "総務課", "佐藤健", "経理課"],
    ],
)  # fmt: skip
def test_figures_contents_and_short_lines_stay_lines(tmp_path: Path, lines: list[str]) -> None:
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*lines))])
    assert text.split("\n") == lines


def test_paragraphs_of_columns_are_a_line_each(tmp_path: Path) -> None:
    column = [
        "We work in cycles of six weeks at our firm.",
        "This gives us all a sense of urgency, so we",
        "keep projects from ballooning, and we then",
        "make decisions about what it is we work on.",
    ]
    lines = [*below(*column, left=40), *below(*column, left=310)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text.split("\n") == [" ".join(column)] * 2


def drawn_below_heading(path: Path, lines: list[str]) -> list[str]:
    """The lines of a page with a wide paragraph, a heading and narrower lines."""
    above = text_drawing(below(*CYCLES)) + heading_drawing(634, "Values")
    (text,) = pages(path / "a.pdf", [above + text_drawing(below(*lines, top=618))])
    return text.split("\n")


def test_a_narrow_column_below_a_heading_has_a_margin_of_its_own(tmp_path: Path) -> None:
    narrow = [
        "We promise to help all who serve the town",
        "council, and whoever asks for their advice",
        "before noon on any day but Sunday, when we",
        "Help nobody.",
    ]
    assert drawn_below_heading(tmp_path, narrow)[-1] == " ".join(narrow)


def test_a_poem_below_a_paragraph_stays_lines(tmp_path: Path) -> None:
    poem = [
        "Come with me to the river where the boats",
        "Are asleep in the reeds, and the moon rose",
        "Over the mill and the sleeping houses, and",
        "None of us knew who was calling from there",
    ]
    assert drawn_below_heading(tmp_path, poem)[-4:] == poem


def test_a_paragraph_in_narrow_letters_is_one_line(tmp_path: Path) -> None:
    column = [
        "Our firm works in cycles of six weeks at",
        "Headquarters, which gives all of us a true",
        "sense of urgency.",
    ]
    drawing = f"60 Tz {text_drawing(below(*column))}"
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text == " ".join(column)


@pytest.mark.parametrize("title", ["glp_exact -- what it does", '"GLP exact": What it does?'])
def test_a_heading_has_the_letters_of_its_bookmark(tmp_path: Path, title: str) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(
        pdf_bytes(["2.8.2 glp exact - What it does"], bookmarks=[(title, 0), ("?", 0)])
    )
    (document,) = read_file(file, file.name)
    assert document.text == "# 2.8.2 glp exact - What it does"


def test_characters_of_two_units_move_no_others(tmp_path: Path) -> None:
    paragraph = [DEVICES[0].replace("休職", "𠮷田"), *DEVICES[1:]]
    table = table_drawing([["項目", "件"], ["🎉", "12"]], [60, 200, 300], 600, style="ruled")
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*paragraph)) + table])
    assert text.split("\n\n") == [
        "".join(paragraph),
        "| 項目 | 件 |\n| --- | --- |\n| 🎉 | 12 |",
    ]


@pytest.mark.parametrize("turn", ["0 1 -1 0 612 0", "0 -1 1 0 0 792", "-1 0 0 -1 612 792"])
def test_turned_pages_are_read_as_if_they_were_not(tmp_path: Path, turn: str) -> None:
    table = table_drawing(
        [["Year", "Guests"], ["2023", "5200"]], [60, 200, 300], 600, style="ruled"
    )
    drawing = f"q {turn} cm {text_drawing(below(*CYCLES))} {table} Q\n"
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text.split("\n\n") == [
        " ".join(CYCLES),
        "| Year | Guests |\n| --- | --- |\n| 2023 | 5200 |",
    ]


def test_raised_digits_stay_in_their_line(tmp_path: Path) -> None:
    lines = [
        *below("The room has 10", *CYCLES[1:]),
        (162, 700, "litres of the air that it would need in all of the time that we may give"),
    ]
    drawing = text_drawing(lines[:1]) + text_drawing([(151, 706, "-3")]).replace("12 Tf", "7 Tf")
    (text,) = pages(tmp_path / "a.pdf", [drawing + text_drawing([lines[-1], *lines[1:-1]])])
    first = (
        "The room has 10⁻³ litres of the air that it would need in all of the time that we may give"
    )
    assert text == " ".join([first, *CYCLES[1:]])


def test_lines_in_a_font_without_height_are_joined(tmp_path: Path) -> None:
    lines = [CYCLES[0], CYCLES[1], "people" + CYCLES[2][7:], CYCLES[3]]
    codes = [line.encode("utf-16-be").hex() for line in lines]
    drawing = "".join(
        f"BT /F7 10 Tf 60 {700 - 14 * number} Td <{code}> Tj ET\n"
        for number, code in enumerate(codes)
    )
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text == " ".join(lines)


def test_an_amount_at_the_beginning_of_a_line_is_no_section(tmp_path: Path) -> None:
    lines = [CYCLES[0], "6.1 hours" + CYCLES[1][4:-4], *CYCLES[2:]]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*lines))])
    assert text == " ".join(lines)


def test_an_indented_line_within_a_sentence_goes_on(tmp_path: Path) -> None:
    lines = [*below(CYCLES[0]), *below(*CYCLES[1:], left=70, top=686)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text == " ".join(CYCLES)


NOTE = heading_drawing(600, "1 It is the same in all offices, and in each year.", 8, "F1")
LEFT = [
    "The tower of the town hall was built in 1412",
    "by the masons of the city. Its bell weighs two",
    "tonnes and is rung at noon by the keeper of",
]
RIGHT = [
    "the tower, who lives in a room below it with",
    "his wife and their dog, and who also looks",
    "after the clock. It is closed in winter.",
]


def test_the_end_of_a_sentence_on_the_next_page_is_read_before_the_footnotes(
    tmp_path: Path,
) -> None:
    first = text_drawing(below(*CYCLES[:2])) + NOTE
    second = text_drawing([(60, 730, "4 The Company"), *below(*CYCLES[2:], *CYCLES)])
    texts = pages(tmp_path / "a.pdf", [first, second])
    start, end = " ".join(CYCLES).split(" Three")
    assert texts[0].split("\n") == [start, "1 It is the same in all offices, and in each year."]
    assert texts[1].split("\n") == ["4 The Company", f"Three{end}", " ".join(CYCLES)]


def test_a_short_end_of_a_sentence_on_the_next_page_is_not_skipped(tmp_path: Path) -> None:
    drawings = [text_drawing(below(*DEVICES[:3])), text_drawing(below("は、人事部へ。", *DEVICES))]
    texts = pages(tmp_path / "a.pdf", drawings)
    assert texts == [f"{''.join(DEVICES[:3])}は、人事部へ。", "".join(DEVICES)]


def test_a_sentence_goes_on_in_the_next_column_behind_a_footnote(tmp_path: Path) -> None:
    drawings = [text_drawing(below(*LEFT)), NOTE, text_drawing(below(*RIGHT, left=330))]
    (text,) = pages(tmp_path / "a.pdf", ["".join(drawings)])
    assert text.split("\n")[0] == " ".join([*LEFT, *RIGHT])


@pytest.mark.parametrize(
    "below_it", ["The tower is closed in winter, and so is the hall.", "a) hall"]
)
def test_a_line_that_begins_anew_does_not_end_a_sentence_above(
    tmp_path: Path, below_it: str
) -> None:
    drawings = [text_drawing(below(*CYCLES[:2])) + NOTE, text_drawing(below(below_it))]
    drawings = [drawing.replace("with a", "with it") for drawing in drawings]
    assert pages(tmp_path / "a.pdf", drawings)[1] == below_it


def test_the_labels_of_a_figure_are_one_line_above_its_caption(tmp_path: Path) -> None:
    labels = text_drawing([(60, 700, "0.5"), (60, 680, "Loss"), (160, 660, "Model A")])
    caption = text_drawing([(60, 630, "Figure 1: The loss of both models.")])
    (text,) = pages(tmp_path / "a.pdf", [labels + caption + text_drawing(below(*CYCLES, top=600))])
    assert text.startswith("0.5 Loss Model A\n\nFigure 1: The loss of both models.\n")


def test_the_line_numbers_of_a_draft_are_left_out(tmp_path: Path) -> None:
    numbers = text_drawing(below(*map(str, range(54, 70)), left=20))
    (text,) = pages(tmp_path / "a.pdf", [numbers + text_drawing(below(*CYCLES * 4))])
    assert text == "\n".join([" ".join(CYCLES)] * 4)


def test_a_paragraph_does_not_end_the_caption_of_a_table(tmp_path: Path) -> None:
    caption = [
        "Table 3: The time that the models of six teams took with a batch and a size of",
        "1",
    ]
    lines = [*below(*caption), *below(*CYCLES, top=600), *below(*CYCLES, top=530)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text.split("\n")[-2:] == [" ".join(CYCLES)] * 2


def test_a_mathematical_letter_has_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unicode_at = raw.FPDFText_GetUnicode

    def with_letters(text_page: object, place: int) -> int:
        code: int = unicode_at(text_page, place)
        return ord("𝑥") if code == ord("x") else code

    monkeypatch.setattr(raw, "FPDFText_GetUnicode", with_letters)
    drawing = text_drawing(below("x x x x x"))
    (text,) = pages(tmp_path / "a.pdf", [drawing + text_drawing(across(TOWER, MARKET))])
    assert text.split("\n") == ["𝑥 𝑥 𝑥 𝑥 𝑥", *TOWER, *MARKET]


def test_an_indented_block_has_a_margin_of_its_own(tmp_path: Path) -> None:
    block = [*LEFT, *RIGHT]
    lines = [*below(*block, left=100), *below(*CYCLES, top=600), *below(*CYCLES, top=530)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines)])
    assert text.split("\n")[0] == " ".join(block)


def test_a_split_word_keeps_the_hyphen_that_it_has_elsewhere(tmp_path: Path) -> None:
    lines = [
        "The models of the three teams are pre-trained, and not at all made for a task-",
        "specific test or a left-to-",
        "right order. A task-specific model is one of the larger ones that the company",
        "pays for.",
    ]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*lines))])
    assert "a task-specific test" in text
    assert "left-to-right order" in text.replace("\n", " ")


def test_code_is_fenced_with_its_indentation(tmp_path: Path) -> None:
    code = text_drawing(
        [(80, 600, "# doubled"), (80, 586, "def f(x):"), (108.8, 572, "return 2 * x")]
    )
    drawing = text_drawing(below(*CYCLES)) + code.replace("/F1", "/F6")
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text.endswith("\n```\n# doubled\ndef f(x):\n    return 2 * x\n```")


def test_text_that_is_all_in_a_font_for_code_is_not_fenced(tmp_path: Path) -> None:
    drawing = text_drawing(below("All of this letter", "was typed.")).replace("/F1", "/F6")
    assert pages(tmp_path / "a.pdf", [drawing]) == ["All of this letter\nwas typed."]


def test_a_paragraph_beside_closer_lines_of_code_is_one_line(tmp_path: Path) -> None:
    code = [f"print({number})" for number in range(20)]
    drawing = text_drawing(below(*code, top=600, step=9)).replace("/F1", "/F6")
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*CYCLES, step=16)) + drawing])
    assert text.split("\n") == [" ".join(CYCLES), "", "```", *code, "```"]


def test_what_was_filled_into_a_form_stands_beside_its_labels(tmp_path: Path) -> None:
    labels = [
        (60, 700, "Name:"),
        (60, 660, "From:"),
        (60, 620, "City:"),
        (60, 580, "Paid"),
        (60, 540, "End."),
    ]
    fields = [
        form_field("Tx", "reason", (150, 656), "3 June 2024"),
        form_field("Tx", "name", (150, 696), "Ichiro Yamada"),
        form_field("Ch", "city", (150, 616), "Osaka", more=COMBO),
        form_field("Btn", "paid", (150, 576, 16), "yes"),
    ]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(labels)], [fields])
    assert text.split("\n") == [
        "Name: Ichiro Yamada",
        "From: 3 June 2024",
        "City: Osaka",
        "Paid ☑",
        "End.",
    ]


def test_a_japanese_form_of_two_pages(tmp_path: Path) -> None:
    drawings = [
        text_drawing([(60, 700, "申請者"), (60, 660, "所属")]),
        text_drawing([(60, 700, "理由")]),
    ]
    fields = [
        [
            form_field("Tx", "a", (150, 696), "山本花子"),
            form_field("Tx", "b", (150, 656), "営業第二課"),
        ],
        [form_field("Tx", "c", (150, 696), "妹の結婚式")],
    ]
    first, second = pages(tmp_path / "a.pdf", drawings, fields)
    assert first.split("\n") == ["申請者 山本花子", "所属 営業第二課"]
    assert second == "理由 妹の結婚式"


def test_boxes_stand_before_the_labels_behind_them(tmp_path: Path) -> None:
    labels = [(90, 700, "by train"), (240, 700, "by car"), (90, 660, "電車"), (240, 660, "車")]
    fields = [
        form_field("Btn", "way", (70, 696, 16), "yes", RADIO),
        form_field("Btn", "way", (220, 696, 16), "", RADIO),
        form_field("Btn", "道", (70, 656, 16)),
        form_field("Btn", "道", (220, 656, 16), "yes"),
    ]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(labels)], [fields])
    assert " ".join(text.split()) == "☑ by train ☐ by car ☐ 電車 ☑ 車"


def test_a_label_may_stand_above_its_field_and_a_field_without_one_has_its_name(
    tmp_path: Path,
) -> None:
    labels = [(60, 700, "Address"), (60, 640, "End of the form")]
    fields = [
        form_field("Tx", "x", (60, 678), "Kyoto"),
        form_field("Tx", "社員番号", (60, 100), "4711"),
    ]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(labels)], [fields])
    assert text.split("\n") == ["Address Kyoto", "End of the form", "社員番号: 4711"]


def test_what_was_filled_into_a_table_stands_in_its_cells(tmp_path: Path) -> None:
    drawing = table_drawing(
        [["Item", "Cost"], ["Train", " "], ["Hotel", " "]], [60, 200, 400], style="ruled", height=20
    )
    fields = [
        form_field("Tx", "train", (210, 662), "52000"),
        form_field("Tx", "hotel", (210, 642), "24000"),
    ]
    (text,) = pages(tmp_path / "a.pdf", [drawing], [fields])
    assert "| Train | 52000 |\n| Hotel | 24000 |" in text


def test_a_form_on_a_page_without_text_is_its_fields(tmp_path: Path) -> None:
    fields = [form_field("Tx", "city", (150, 600), "Kyoto")]
    assert pages(tmp_path / "a.pdf", [""], [fields]) == ["city: Kyoto"]


def test_hidden_fields_passwords_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    hidden = form_field("Tx", "a", (150, 696), "internal").replace("/F 4", "/F 2")
    secret = form_field("Tx", "b", (150, 656), "1234", more="/Ff 8192")
    labels = text_drawing([(60, 700, "Name:"), (60, 660, "PIN:"), (60, 620, "City:")])
    (text,) = pages(
        tmp_path / "a.pdf", [labels], [[hidden, secret, form_field("Tx", "c", (150, 616))]]
    )
    assert text == "Name:\nPIN:\nCity:"


def test_an_xfa_form_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = pdf_bytes(["Please wait."], fields=[[form_field("Tx", "a", (150, 600), "Kyoto")]])
    file = tmp_path / "a.pdf"
    file.write_bytes(data.replace(b"/Fields []", b"/Fields [] /XFA (x)"))
    read_file(file, "a.pdf")
    assert "a.pdf is an XFA form" in caplog.text


TOWER = [
    "The tower of the town hall was",
    "built in 1412 by the masons of",
    "the city. Its bell weighs two",
    "tonnes and is rung at noon.",
]
MARKET = [
    "The market behind it is held",
    "on Thursdays. Farmers sell",
    "cheese and apples there. In",
    "winter it moves inside.",
]
BRIDGE = [
    "A bridge leads over the river",
    "to the mill, which has ground",
    "wheat since the last century",
    "for the whole town.",
]
塔 = [
    "市庁舎の塔は一四一二年に、町の石工",
    "によって建てられた。鐘の重さは二トン",
    "で、正午に鳴らされる。大火にも焼け",
    "残り、今も使われている。",
]
市 = [
    "その裏の市場は木曜日に開かれ、農家が",
    "チーズとりんごを売る。冬の間は、古い",
    "取引所の広間に移り、春になると、また",
    "広場に戻ってくる。",
]


def across(*columns: list[str], shift: float = 0) -> list[tuple[float, float, str]]:
    """Lines of columns that are painted line by line across all of them."""
    width = 510 / len(columns)
    lines = []
    for row in range(len(columns[0])):
        for number, column in enumerate(columns):
            lines.append((40 + number * width, 650 - 16 * row - shift * number, column[row]))
    return lines


@pytest.mark.parametrize(
    "columns",
    [(TOWER, MARKET), (塔, 市)],
)
@pytest.mark.parametrize("shift", [0, 6])
def test_columns_are_read_one_after_another(
    tmp_path: Path, columns: tuple[list[str], ...], shift: float
) -> None:
    heading = (
        40,
        690,
        "What there is to see in the old town between the two rivers and on the hill",
    )
    (text,) = pages(tmp_path / "a.pdf", [text_drawing([heading, *across(*columns, shift=shift)])])
    read = text.removeprefix(heading[2]).replace("\n", "")
    assert read == "".join(chain(*columns))


def test_a_sentence_that_the_next_column_is_painted_into_is_read_to_its_end(
    tmp_path: Path,
) -> None:
    left = [(40.0, 650.0 - 16 * row, line) for row, line in enumerate([*TOWER, *BRIDGE])]
    right = [(310.0, 650.0 - 16 * row, line) for row, line in enumerate(MARKET)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing([*left[:5], *right, *left[5:]])])
    assert text.replace("\n", " ") == " ".join([*TOWER, *BRIDGE, *MARKET])


@pytest.mark.parametrize("line", [TOWER[0], 塔[0]])
def test_a_line_that_is_painted_over_itself_is_read_once(tmp_path: Path, line: str) -> None:
    other = (40, 600, "It is open in May.")
    drawn = [(40, 650, line), other, (40, 650, line), (40, 560, line)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(drawn)])
    assert text.split("\n") == [line, other[2], line]


def test_columns_of_characters_without_shapes_are_read_one_after_another(tmp_path: Path) -> None:
    drawing = text_drawing(across(塔, 市, shift=6)).replace("/F2", "/F4")
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text.split("\n") == ["".join(塔), "".join(市)]


def test_text_in_a_font_that_is_nowhere_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # no font has shapes for what is for private use
    drawing = text_drawing([(90, 660, "\ue000\ue001"), (90, 640, "\ue002")]).replace("/F2", "/F5")
    page = drawing + text_drawing([(90, 600, "An embedded 字"), (90, 580, " ")])
    pages(tmp_path / "a.pdf", [page, page])
    (warning,) = caplog.messages
    assert "a.pdf has text in a font that is neither embedded in it nor installed here" in warning
    caplog.clear()
    pages(tmp_path / "b.pdf", [page.replace("/F5", "/F2")])
    assert not caplog.messages


def test_three_columns_between_a_heading_and_a_line_below(tmp_path: Path) -> None:
    small = [[line[:20] for line in column] for column in (TOWER, MARKET, BRIDGE)]
    below = (
        40,
        500,
        "Printed by the municipal office of the town on the first of May of this year",
    )
    (text,) = pages(tmp_path / "a.pdf", [text_drawing([*across(*small), below])])
    assert [line.strip() for line in text.split("\n")] == [
        *(line.strip() for column in small for line in column),
        below[2],
    ]


def test_a_table_beside_a_column_is_not_cut_apart(tmp_path: Path) -> None:
    table = table_drawing(
        [["Year", "Guests"], ["2023", "5200"], ["2024", "6100"]],
        [320, 420, 520],
        662,
        style="ruled",
    )
    drawing = text_drawing([(40, 650, TOWER[0])]) + table
    drawing += text_drawing([(40, 650 - 16 * row, line) for row, line in enumerate(TOWER) if row])
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert "\n".join(TOWER) in text
    assert "| 2023 | 5200 |\n| 2024 | 6100 |" in text


@pytest.mark.parametrize(
    "rows",
    [
        [
            ("Name", "Role"),
            ("Ichiro Yamada", "head of department"),
            ("Mai Ito", "manager"),
            ("Ken Sato", "clerk"),
        ],
        [
            ("氏名", "所属"),
            ("山本花子", "営業第二課"),
            ("鈴木一郎", "総務部"),
            ("佐藤誠", "経理部"),
        ],
    ],
)
def test_a_table_of_texts_is_read_row_by_row(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(across(*columns))])
    assert text.split("\n") == [" ".join(row) for row in rows]


def rules(*ys: float, left: float = 60, right: float = 400) -> str:
    """Horizontal lines of the same ends."""
    return "".join(f"{left} {y} m {right} {y} l S\n" for y in ys)


CROPS = [
    ("Crop", "Advantage", "Problem"),
    ("Leek", "It is free", "It settles"),
    ("Carrot", "It is light", "Mice like it, and so"),
    ("", "", "do the rabbits"),
    ("Celeriac", "It is local", "It takes water"),
]


def crops(*ys: float) -> str:
    """The lines of a table at the given heights."""
    cells = zip(ys, CROPS, strict=True)
    return text_drawing(
        [
            (x, y, text)
            for y, row in cells
            for x, text in zip((60, 140, 240), row, strict=True)
            if text
        ]
    )


@pytest.mark.parametrize(
    ("lines", "ruled"),
    [
        ((700, 680, 666, 652, 638), (715, 695, 630)),  # as LaTeX's booktabs
        ((700, 676, 652, 638, 614), (715, 692, 606)),  # rows farther apart than lines
        (
            (700, 672, 644, 630, 602),
            (690, 662, 620, 592),
        ),  # a line below each row, as on many web pages
    ],
)
def test_a_table_with_horizontal_lines_alone(
    tmp_path: Path, lines: tuple[float, ...], ruled: tuple[float, ...]
) -> None:
    above = text_drawing([(60, 730, "What the stores are filled with was asked in 2024:")])
    (text,) = pages(tmp_path / "a.pdf", [above + crops(*lines) + rules(*ruled)])
    assert text.split("\n\n")[1].split("\n") == [
        "| Crop | Advantage | Problem |",
        "| --- | --- | --- |",
        "| Leek | It is free | It settles |",
        "| Carrot | It is light | Mice like it, and so do the rabbits |",
        "| Celeriac | It is local | It takes water |",
    ]


def test_signs_without_lines_between_them_are_in_the_rows_of_their_figures(tmp_path: Path) -> None:
    xs = (60, 160, 180, 240, 250, 270, 330, 340)
    rows = ["In May||2024|||2023|", "Sales|$|1,204||$|998|", "Cost||(803|)||(777|)"]
    rows += ["Profit|$|401||$|221|", "Taxes||(9|)||(7|)"]
    drawing = rules(710, 610, right=340)
    for number, row in enumerate(rows):
        y = 690 - 20 * number
        cells = zip(xs, row.split("|"), strict=False)
        drawing += text_drawing([(x + 2, y + 5, cell) for x, cell in cells if cell])
        for left, right in ((60, 160), (180, 240), (270, 330)):
            drawing += rules(y, left=left, right=right)
    drawing += "".join(f"{x} 710 m {x} 610 l S\n" for x in xs)
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text.split("\n") == [
        "| In May | 2024 | 2023 |",
        "| --- | --- | --- |",
        "| Sales | $1,204 | $998 |",
        "| Cost | (803) | (777) |",
        "| Profit | $401 | $221 |",
        "| Taxes | (9) | (7) |",
    ]


@pytest.mark.parametrize("below_first", [(515, 495, 430), (495, 475, 430)])
def test_text_between_the_lines_of_two_tables_is_in_neither(
    tmp_path: Path, below_first: tuple[float, ...]
) -> None:
    drawing = crops(700, 680, 666, 652, 638) + text_drawing(below(*CYCLES, *CYCLES, top=616))
    drawing += crops(500, 480, 466, 452, 438) + rules(715, 695, 630, *below_first)
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    first, prose, second = text.split("\n\n")
    assert first == second
    assert prose.split("\n") == [" ".join(CYCLES)] * 2


def test_columns_of_prose_between_lines_are_no_table(tmp_path: Path) -> None:
    drawing = text_drawing(across(TOWER, MARKET)) + rules(670, 580, 560, left=40, right=560)
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    assert text.split("\n") == [*TOWER, *MARKET]


def test_upright_lines_are_read_from_the_right_and_tier_by_tier(tmp_path: Path) -> None:
    upper = ["いつもお世話になって", "おります。来月から", "本社は京都に移る。"]
    lower = ["二段目はここから始", "まり、左に向かって", "進んでいきます。"]
    tiers = ((750, upper), (500, lower))
    lines = [(500 - 25 * number, y, line) for y, tier in tiers for number, line in enumerate(tier)]
    readings = [(512, 700, "せわ")]
    for painted in (lines, lines[::-1]):
        drawing = text_drawing(painted, upright=True)
        drawing += text_drawing(readings, upright=True).replace("12 Tf", "5 Tf")
        (text,) = pages(tmp_path / "a.pdf", [drawing])
        assert "".join(text.split()) == "".join([*upper, *lower])


# Headings

CHAPTER = heading_drawing(720, "Rules of the house", 18)
MEALS = heading_drawing(690, "Meals", 14)
BODY = text_drawing(below(*CYCLES, top=670))
REST = text_drawing(below(*CYCLES, top=560)) + text_drawing(below(*CYCLES, top=490))


def headings(path: Path, *drawings: str, bookmarks: Sequence[tuple[str, int]] = ()) -> list[str]:
    """The headings on pages."""
    path.write_bytes(pdf_bytes([""] * len(drawings), drawings=drawings, bookmarks=bookmarks))
    texts = [document.text for document in read_file(path, path.name)]
    return [line for text in texts for line in text.split("\n") if line.startswith("#")]


def test_larger_lines_are_headings_until_the_next_one_on_a_later_page(tmp_path: Path) -> None:
    second = BODY + heading_drawing(590, "Quiet", 14) + REST
    file = tmp_path / "a.pdf"
    file.write_bytes(pdf_bytes(["", ""], drawings=[CHAPTER + MEALS + BODY, second]))
    pages = read_file(file, file.name)
    assert pages[0].text.split("\n\n") == [
        "# Rules of the house",
        f"## Meals\n{' '.join(CYCLES)}",
    ]
    names = [f"Rules of the house, {name}" for name in ("Meals", "Quiet")]
    assert [*dict.fromkeys(sections(pages))] == names
    assert set(sections(pages[1:])) == {*names}


def test_bold_lines_with_space_above_are_headings_whose_numbers_give_levels(tmp_path: Path) -> None:
    page = heading_drawing(720, "1 Staff", 12) + heading_drawing(698, "1.1 Leave of absence", 12)
    page += BODY + heading_drawing(590, "2 Guests", 12) + REST
    found = headings(tmp_path / "a.pdf", page)
    assert found == ["# 1 Staff", "## 1.1 Leave of absence", "# 2 Guests"]


def test_numbered_headings_in_a_font_that_is_used_for_more_are_headings(tmp_path: Path) -> None:
    names = "".join(
        heading_drawing(760 - 16 * row, "Ann Lee, Bo Li, Cy Ito,", 14) for row in range(8)
    )
    body = [heading_drawing(600 - 90 * n, f"{n} Part {'abc'[n - 1]}", 14) for n in (1, 2, 3)]
    body += [text_drawing(below(*CYCLES, top=580 - 90 * n)) for n in (1, 2, 3)]
    (text,) = pages(
        tmp_path / "a.pdf", [names + "".join(chain(*zip(body[:3], body[3:], strict=True)))]
    )
    assert re.findall("(?m)^# (.*)", text) == ["1 Part a", "2 Part b", "3 Part c"]


def test_a_heading_as_wide_as_its_column_is_one_beside_another_column(tmp_path: Path) -> None:
    heading = heading_drawing(700, "2.1 Towers and bells of the old town hall")
    left = text_drawing(below(*LEFT, *RIGHT, top=680))
    right = text_drawing(below(*RIGHT, *LEFT, left=320))
    (text,) = pages(tmp_path / "a.pdf", [heading + left + right])
    assert text.startswith("# 2.1 Towers and bells of the old town hall\n")


@pytest.mark.parametrize(
    "drawing",
    [
        heading_drawing(590, "Table 2. Guests by month", 12),
        heading_drawing(590, "Guests pay at the desk.", 16),
        heading_drawing(590, "- Guests", 16),
        heading_drawing(590, "Note:", 12),
        heading_drawing(590, "2024-05-01", 16),
        heading_drawing(590, "Total: 170.00 EUR", 16),
        heading_drawing(590, "info@example.org", 16),
        heading_drawing(590, "(in millions of euros)", 16),
        heading_drawing(590, "Guests") + heading_drawing(590, "none", font="F1", x=120),
        heading_drawing(590, "Guest") + heading_drawing(590, "Room", x=300),
        heading_drawing(614, "Guests"),  # no more space above than between the lines of a paragraph
        "".join(heading_drawing(590 - 13 * n, "Guests may stay for", 12) for n in range(4)),
        heading_drawing(590, "def stay(guest)", 13, "F6"),
    ],
)
def test_lines_that_only_stand_out_are_no_headings(tmp_path: Path, drawing: str) -> None:
    assert headings(tmp_path / "a.pdf", MEALS + BODY + drawing, REST) == ["# Meals"]


def test_what_is_large_on_a_cover_alone_is_no_heading_but_its_title(tmp_path: Path) -> None:
    cover = heading_drawing(600, "Rules", 30) + heading_drawing(500, "The board", 20)
    cover += heading_drawing(450, "Karsted in May", 16)
    assert headings(tmp_path / "a.pdf", cover, MEALS + BODY, BODY) == [
        "# Rules",
        "## Meals",
    ]


def test_slides_have_their_first_lines_as_headings(tmp_path: Path) -> None:
    points = [heading_drawing(650 - 40 * n, f"We met {n} guests", 20, "F1") for n in range(5)]
    slide = "".join(points) + heading_drawing(430, "Next week", 24)
    first = heading_drawing(700, "Staff", 30) + slide
    assert headings(tmp_path / "a.pdf", first, first.replace("Staff", "Guests")) == [
        "# Staff",
        "# Guests",
    ]


def test_tags_tell_headings_whatever_their_font(tmp_path: Path) -> None:
    drawing = MEALS
    for number, name in enumerate(("Guests", "Staff")):
        heading = heading_drawing(650 - 60 * number, name, font="F1")
        drawing += f"/H2 << /MCID {number} >> BDC {heading} EMC\n"
        drawing += heading_drawing(630 - 60 * number, CYCLES[number], font="F1")
    tree = "/StructTreeRoot << /K 91 0 R /ParentTree << /Nums [0 [92 0 R 93 0 R]] >> >>"
    elements = (
        "91 0 obj << /S /Document /K [92 0 R 93 0 R] >> endobj\n"
        "92 0 obj << /S /H1 /P 91 0 R /Pg 4 0 R /K 0 >> endobj\n"
        "93 0 obj << /S /H2 /P 91 0 R /Pg 4 0 R /K 1 >> endobj\n"
    )
    data = pdf_bytes([""], drawings=[drawing]).decode()
    data = data.replace("/Type /Page /", "/Type /Page /StructParents 0 /")
    data = data.replace("/Type /Catalog", f"/Type /Catalog /MarkInfo << /Marked true >> {tree}")
    data = data.replace("trailer", f"{elements}trailer")
    file = tmp_path / "a.pdf"
    file.write_text(
        re.sub(r"startxref\n\d+", "startxref\n0", data)
    )  # so that all objects are sought
    (page,) = read_file(file, file.name)
    assert [line for line in page.text.split("\n") if "#" in line] == ["# Guests", "## Staff"]


@pytest.mark.parametrize(
    ("bookmark", "found"),
    [("Rules of the House", ["# Rules of the house", "## Meals"]), ("We work", ["# We work"])],
)
def test_bookmarks_that_fonts_do_not_confirm_are_the_headings(
    tmp_path: Path, bookmark: str, found: list[str]
) -> None:
    page = CHAPTER + MEALS + BODY + text_drawing(below("We work", top=560))
    assert headings(tmp_path / "a.pdf", page, bookmarks=[(bookmark, 0)]) == found


def test_a_running_head_that_names_a_section_is_left_out(tmp_path: Path) -> None:
    second = text_drawing([(60, 750, "Chapter 1: Rules of the house 2")]) + BODY
    file = tmp_path / "a.pdf"
    third = heading_drawing(720, "Rules of the house 2", 18) + BODY
    file.write_bytes(pdf_bytes([""] * 3, drawings=[CHAPTER + BODY, second, third]))
    texts = [page.text for page in read_file(file, file.name)[1:]]
    assert texts == [" ".join(CYCLES), f"# Rules of the house 2\n{' '.join(CYCLES)}"]


def test_a_heading_below_a_running_head_in_its_font_is_one(tmp_path: Path) -> None:
    names = ("Meals", "Guests", "Staff", "Quiet")
    drawings = [
        heading_drawing(740, "Rules of the house", 14)
        + heading_drawing(722, name, 14)
        + text_drawing(below(*(f"{name} {line.lower()}" for line in CYCLES), top=690))
        for name in names
    ]
    found = headings(tmp_path / "a.pdf", *drawings)
    assert found == ["# Rules of the house Meals", "# Guests", "# Staff", "# Quiet"]


@pytest.mark.parametrize(("size", "heading"), [(14, "# Pilot"), (12, "Pilot")])
def test_the_title_of_a_form_is_its_heading_if_it_is_larger(
    tmp_path: Path, size: int, heading: str
) -> None:
    rows = [["", ""], ["Age:", "85"], ["Seat:", "Left"]]
    form = table_drawing(rows, [60, 200, 400], 640, style="ruled")
    drawing = text_drawing(below(*CYCLES)) + heading_drawing(628, "Pilot", size) + form
    (text,) = pages(tmp_path / "a.pdf", [drawing])
    values = "| Age: | 85 |\n| Seat: | Left |"
    assert text.split("\n\n") == [" ".join(CYCLES), heading, f"|  |  |\n| --- | --- |\n{values}"]


AIRCRAFT = [
    ["Place:", "Tallahassee, FL", "Number:", "NYC08CA055"],
    ["Event:", "", "Injuries:", "1 Minor"],
    ["Under:", "Part 91: General", "", ""],
]
JOURNEY = [
    ["場所：", "那覇市", "番号：", "四五六"],
    ["理由：", "", "負傷者：", "なし"],
    ["規則：", "第九十一部", "", ""],
]


@pytest.mark.parametrize("rows", [AIRCRAFT, JOURNEY])
def test_names_and_values_in_columns_without_lines_are_a_form(
    tmp_path: Path, rows: list[list[str]]
) -> None:
    (text,) = pages(tmp_path / "a.pdf", [table_drawing(rows, [60, 160, 320, 420, 520])])
    pairs = [pair for row in rows for pair in (row[:2], row[2:]) if any(pair)]
    assert text.split("\n")[2:] == [f"| {name} | {value} |" for name, value in pairs]


@pytest.mark.parametrize(
    "lines",
    [
        [
            "Occurrence #2: ON GROUND/WATER ENCOUNTER WITH TERRAIN/WATER",
            "Phase of Operation: LANDING - ROLL",
        ],
        [
            "発生したこと：飛行中における悪天候との遭遇",
            "運航の段階：滑走路における離陸滑走の開始前",
        ],
    ],
)
def test_names_with_values_are_a_line_each(tmp_path: Path, lines: list[str]) -> None:
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(below(*lines))])
    assert text.split("\n") == lines


def test_the_edges_of_highlighted_words_are_no_cells(tmp_path: Path) -> None:
    lines = below(*CYCLES[:2])
    edges = "".join(f"60 {y} m 580 {y} l S " for y in (710, 697, 683))
    edges += "".join(f"{x} 710 m {x} 683 l S " for x in (60, 150, 580))
    (text,) = pages(tmp_path / "a.pdf", [text_drawing(lines) + edges])
    assert text.startswith(CYCLES[0])


def test_a_line_below_the_titles_of_some_statements_is_no_running_header(tmp_path: Path) -> None:
    drawings = []
    for number in range(12):
        lines = ["Harbour Ltd.", f"Report of 2024 {number}", f"Statement {'ABCDEFGHIJKL'[number]}"]
        if 4 <= number < 9:
            lines.append("(In millions)")
        lines.append(
            f"The {['first', 'second', 'third', 'fourth', 'fifth', 'sixth'][number % 6]} text."
        )
        drawings.append(text_drawing(below(*lines)))
    texts = pages(tmp_path / "a.pdf", drawings)
    assert sum("(In millions)" in text for text in texts) == 5
