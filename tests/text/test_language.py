"""Which language a passage is in, and whether a reply is in another one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.text.language import LANGUAGE_NAMES, detect_language, find_wrong_language
from tests.conftest import DATA

pytestmark = pytest.mark.pure

MISO = "味噌は、蒸すか煮るかした大豆に麹と塩を混ぜ、発酵・熟成させて作る日本の調味料である。"
CODE = (
    "Pythonの`asyncio.run()`を使うとevent loopが作られる。`import asyncio as aio`と書くことも多い。"
)
PHONE = "iPhone 15 ProはAppleが2023年に発売したスマートフォンである。iPhone 15 Proはチタンを使う。"
EIFFEL = (
    "La tour Eiffel est une tour de fer puddlé de 330 mètres de hauteur située à Paris, à l'extrémité "
    "nord-ouest du parc du Champ-de-Mars en bordure de la Seine."
)
BEIJING = "北京是中华人民共和国的首都，也是中国的政治和文化中心。它的人口超过两千万，这个城市有三千年的历史。"
MIXED_LIST = "Apollo 13, 1970, Jim Lovell; Apollo 14, 1971, Alan Shepard"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (MISO, "ja"),
        (CODE, "ja"),
        (PHONE, "ja"),
        ("明治畑の駅", "ja"),
        (
            "The word miso (味噌, みそ) is used by every cook in the country, and it comes from Japan.",
            "en",
        ),
        ("The tower was built by the engineers of the company in 1889 and is in Paris.", "en"),
        (EIFFEL, "latin"),
        (BEIJING, "zh"),
        ("서울은 대한민국의 수도이다.", "ko"),
        ("Москва — столица России.", "cyrillic"),
        ("1234 — 5678", ""),
    ],
)
def test_the_language_goes_by_the_script(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_the_title_decides_for_a_list_of_kanji_names() -> None:
    assert detect_language("伊能忠敬、間宮林蔵、高橋至時", "幕末のはかり手たち") == "ja"
    assert detect_language("1821 — 1830", "幕末のはかり手たち") == "ja"


@pytest.mark.parametrize(
    ("text", "propositions", "found"),
    [
        (
            MISO,
            [
                "Miso is a seasoning from Japan that is made of soybeans, and the cook mixes them with salt."
            ],
            "en",
        ),
        (MISO, ["Miso (味噌, みそ) is made of soybeans (大豆).", "The cook adds salt."], "latin"),
        (MISO, ["味噌は日本の調味料である。", "Miso is made of soybeans."], "latin"),
        (MISO, ["味噌是日本的调味料，由大豆发酵制成。", "味噌在日本很受欢迎，历史悠久。"], "zh"),
        ("メモリは32GBです。", ["内存为32GB。"], "zh"),
        ("円盤の容量は1TBです。形は丸い。", ["円盤の容量は1TBである。", "形状为圆形。"], "zh"),
        ("売上高124億円。従業員1,204名。", ["销售额为124亿日元。", "员工为1,204名。"], "zh"),
        (CODE, ["Using asyncio.run() in Python creates an event loop."], "latin"),
        (BEIJING, ["北京は中国の首都である。", "北京の人口は二千万人を超えるとされている。"], "ja"),
        (
            "The tower was built by Gustave Eiffel in 1889.",
            ["エッフェル塔は1889年に建てられた。"],
            "ja",
        ),
        (
            EIFFEL,
            ["The tower is in Paris, by the Seine, and it is at the end of the Champ-de-Mars."],
            "en",
        ),
        (
            "Москва — столица России и крупнейший город.",
            ["Moscow is the capital of Russia."],
            "latin",
        ),
        (
            "Miasto podniesie ceny wody od 1 stycznia. Podwyżka dotyczy domów i firm, mówi dyrektorka.",
            [
                "The city raises the price of water, and it is for the households that are in the town."
            ],
            "en",
        ),
        ("ঢাকা বাংলাদেশের রাজধানী ও বৃহত্তম শহর।", ["Dhaka is the capital of Bangladesh."], "latin"),
    ],
)
def test_another_language_is_found(text: str, propositions: list[str], found: str) -> None:
    assert find_wrong_language(text, propositions) == found


@pytest.mark.parametrize(
    ("text", "propositions"),
    [
        (MISO, ["味噌は日本の調味料である。", "発酵食品", "独立行政法人宇宙航空研究開発機構"]),
        (PHONE, ["iPhone 15 Pro", "iPhone 15 ProはAppleのスマートフォンである。"]),
        (CODE, ["`asyncio.run()`はevent loopを作る。", "import asyncio as aio"]),
        (
            "NASAは1958年に設立された。",
            ["NASA（National Aeronautics and Space Administration）は1958年に設立された。"],
        ),
        (MIXED_LIST, ["Apollo 13 flew in 1970.", "Apollo 14 flew in 1971."]),
        ("髙田氏と𠮷野氏と习近平氏が会った。", ["髙田氏、𠮷野氏、习近平氏"]),
        (
            "開ける前に電源を切ること。开启前请断电。",
            ["开启前请断开电源。", "開ける前に電源を切ること。"],
        ),
        ("伊能忠敬、間宮林蔵、高橋至時", ["伊能忠敬", "間宮林蔵は地理学者の一人である。"]),
        ("def f(x): return x + 1", ["The function f returns x + 1."]),
        (
            "The Mariana Trench (马里亚纳海沟) is deep.",
            ["The Chinese name of the Mariana Trench is 马里亚纳海沟."],
        ),
        (
            EIFFEL,
            [
                "La tour Eiffel est une tour.",
                "La tour Eiffel est haute de 330 mètres et se trouve à Paris.",
            ],
        ),
        ("3.14 2.71 1.41", ["π is 3.14."]),
        (MISO, []),
    ],
)
def test_names_numbers_code_and_mixed_text_are_no_mistake(
    text: str, propositions: list[str]
) -> None:
    assert find_wrong_language(text, propositions) is None


def test_no_proposition_of_the_data_is_in_the_wrong_language() -> None:
    lines = (DATA / "propositions.jsonl").read_text("utf-8").splitlines()
    for record in map(json.loads, lines):
        for proposition in record["propositions"]:
            assert find_wrong_language(record["text"], [proposition]) is None, proposition
        assert find_wrong_language(record["text"], record["propositions"]) is None


@given(st.text(), st.lists(st.text()))
def test_no_text_raises(text: str, propositions: list[str]) -> None:
    assert detect_language(text) in {*LANGUAGE_NAMES, ""}
    assert find_wrong_language(text, propositions) in {*LANGUAGE_NAMES, "", None}


@given(st.text())
def test_a_text_is_in_its_own_language(text: str) -> None:
    assert find_wrong_language(text, [text]) is None
