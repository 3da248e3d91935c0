"""Tables that are typed in plain text, as programs print them and as they are copied from sheets."""

from __future__ import annotations

import pytest

from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import passage_sentences

TABLES = {
    "bars": "Plan | Price | Users\nBasic | 10 EUR | 1\nTeam | 45 EUR | 20",
    "outer bars": "| Plan | Price | Users |\n| Basic | 10 EUR | 1 |\n| Team | 45 EUR | 20 |",
    "psql": " Plan  | Price  | Users\n-------+--------+-------\n Basic | 10 EUR |     1\n"
    " Team  | 45 EUR |    20",
    "MySQL": "+-------+--------+-------+\n| Plan  | Price  | Users |\n+-------+--------+-------+\n"
    "| Basic | 10 EUR |     1 |\n| Team  | 45 EUR |    20 |\n+-------+--------+-------+",
    "box": "┌───────┬────────┬───────┐\n│ Plan  │ Price  │ Users │\n├───────┼────────┼───────┤\n"
    "│ Basic │ 10 EUR │     1 │\n│ Team  │ 45 EUR │    20 │\n└───────┴────────┴───────┘",
    "tabs": "Plan\tPrice\tUsers\nBasic\t10 EUR\t1\nTeam\t45 EUR\t20",
    "spaces": "Plan    Price   Users\nBasic   10 EUR  1\nTeam    45 EUR  20",
    "ruled spaces": "Plan   Price   Users\n-----  ------  -----\nBasic  10 EUR  1\nTeam   45 EUR  20",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_each_row_has_the_names_of_its_columns(table: str) -> None:
    text = f"What we charge:\n\n{table}\n\nPrices are without tax."
    assert list(passage_sentences(text)) == [
        "What we charge:",
        "Plan: Basic; Price: 10 EUR; Users: 1",
        "Plan: Team; Price: 45 EUR; Users: 20",
        "Prices are without tax.",
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param(
            "プラン｜料金｜人数\n基本｜1,000円｜1人\n標準｜2,000円｜5人",
            ["プラン: 基本; 料金: 1,000円; 人数: 1人", "プラン: 標準; 料金: 2,000円; 人数: 5人"],
            id="Japanese",
        ),
        pytest.param(
            "Revenue in EUR\t2024\t2025\nEurope\t120\t135\nAsia\t80\t95",
            [
                "Revenue in EUR: Europe; 2024: 120; 2025: 135",
                "Revenue in EUR: Asia; 2024: 80; 2025: 95",
            ],
            id="years are names",
        ),
        pytest.param(
            "2008 | high | low\nMarch | 42.72 | 32.10\n2007 | high | low\nMarch | 41.31 | 36.63",
            ["2008: March; high: 42.72; low: 32.10", "2007: March; high: 41.31; low: 36.63"],
            id="repeated names hold for what follows",
        ),
        pytest.param(
            "\tMale\tFemale\nUnder 30\t12\t14\nOver 30\t-\t9\nUnknown\t3",
            [
                "Under 30; Male: 12; Female: 14",
                "Over 30; Male: -; Female: 9",
                "Unknown; Male: 3",
            ],
            id="a column without a name, cells without a value",
        ),
        pytest.param(
            "Service           Fee    Remarks\n--------------------------------\n"
            "Statement         2.50   per page; waived for\n                         students\n"
            "Replacement card         after a loss",
            [
                "Service: Statement; Fee: 2.50; Remarks: per page; waived for students",
                "Service: Replacement card; Remarks: after a loss",
            ],
            id="text that goes on below a row, and a cell left blank",
        ),
        pytest.param(
            "Branch      Mon-Thu      Fri\n"
            "Altstadt    9:00-16:00   closed\n"
            "Bahnhof     8:00-18:00   9:00-14:00",
            [
                "Branch: Altstadt; Mon-Thu: 9:00-16:00; Fri: closed",
                "Branch: Bahnhof; Mon-Thu: 8:00-18:00; Fri: 9:00-14:00",
            ],
            id="times",
        ),
    ],
)
def test_names_of_other_columns(text: str, rows: list[str]) -> None:
    assert list(passage_sentences(text)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "It costs 5 euros.  We sell it.\nIt weighs 3 kg.  We ship it.",
        "cat names | sort | uniq\ncat pages | grep x | wc",
        "Home | Products | About | Contact",
        "Name:\tAnna\nAge:\t30\nFloor:\t2",
        "2.1.1\t2001\tPSF\n2.2\t2001\tPSF",
        "Anna\tRome\nBerta\tOslo",
    ],
)
def test_lines_without_names_are_no_table(text: str) -> None:
    assert all(": " not in sentence for sentence in passage_sentences(text))


def test_a_passage_from_the_middle_of_a_table_keeps_the_names() -> None:
    text = TABLES["tabs"]
    start = text.index("Team")
    context = Outline(text).context_of(start, len(text))
    assert "Price" in context
    assert list(passage_sentences(text[start:], context)) == [
        "Plan: Team; Price: 45 EUR; Users: 20"
    ]


def test_a_drawing_with_more_columns_below_is_no_table() -> None:
    drawing = (
        "  yes            |\n  |              |             does it\n"
        "  |              +<--- yes --- behave?\n  |              |               |"
    )
    assert passage_sentences(drawing)[0] == "yes            |"
