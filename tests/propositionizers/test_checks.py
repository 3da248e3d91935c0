"""What checks find in propositions, and what they leave alone."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex import Finding, Passage, check_propositions
from llama_pack_densex.propositionizers.base import FindingKind, PropositionSet
from llama_pack_densex.propositionizers.checks import is_better
from llama_pack_densex.propositionizers.prompts import _FAULTS_JA, repair_note
from llama_pack_densex.text.segments import passage_sentences
from tests.conftest import DATA, ROOT

pytestmark = pytest.mark.pure

TOWER = Passage(
    "Work on the tower began in March 1874 under Ida Brandvold, an engineer from Norway, and took three "
    "years, since "
    "storms twice washed the scaffolding away. It is 41.5 metres high and was built of 12,300 blocks. The "
    "National "
    'Lighthouse Board (NLB) called it "a needle of light". Between 1901 and 1905 the French added a second '
    "gallery, and the next year a fog signal. In the 1950s the twenty-three keepers were sent home.",
    title="Karsted Lighthouse",
    section="Construction",
)
HORSE = Passage(
    "本馬は2019年5月7日に北海道安平町の牧場で生まれた。2022年の星霜記念では武田豊が騎乗し、"
    "二十三頭立ての十八番枠から１分５８秒３で勝った。翌年はドバイへ渡り、3万5千人の前で走った。"
    "管理したのは「鬼の調教師」と呼ばれた佐伯いとである。",
    title="アオバノカゼ",
)
RUNNER = Passage(
    "アオバノカゼの手綱を取ったのはルメールで、全10戦に騎乗した。", title="クリストフ・ルメール"
)


def found(passage: Passage, *propositions: str) -> list[tuple[str, int | None]]:
    """Kinds and places, without what these few propositions leave out of the passage."""
    findings = check_propositions(passage, propositions)
    return [(one.kind, one.proposition) for one in findings if one.kind != "coverage"]


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (TOWER, "Work on Karsted Lighthouse began in March 1874."),
        (TOWER, "Work on Karsted Lighthouse took 3 years."),
        (TOWER, "Brandvold's work on Karsted Lighthouse was interrupted by two storms."),
        (TOWER, "Karsted Lighthouse is ４１.５ m high."),
        (TOWER, "Karsted Lighthouse was built of 12300 blocks."),
        (TOWER, "The NLB called Karsted Lighthouse “a needle of light”."),
        (TOWER, "The Norwegian engineer Brandvold led the construction."),
        (TOWER, "In 1906 a fog signal was added to Karsted Lighthouse."),
        (TOWER, "France added the 2nd gallery of Karsted Lighthouse."),
        (TOWER, "The 23 keepers of Karsted Lighthouse left in the 1950s."),
        (HORSE, "アオバノカゼは二〇一九年五月七日に生まれた。"),
        (HORSE, "アオバノカゼは2022年の星霜記念を18番枠から1分58秒3で勝った。"),
        (HORSE, "2022年の星霜記念は23頭立てであった。"),
        (HORSE, "アオバノカゼは2023年にドバイへ渡った。"),
        (HORSE, "アオバノカゼは35,000人の前で走った。"),
        (HORSE, "佐伯いとは『鬼の調教師』と呼ばれた。"),
        (RUNNER, "クリストフ・ルメールはアオバノカゼの全１０戦に騎乗した。"),
    ],
)
def test_what_the_passage_or_its_title_says_is_grounded(passage: Passage, proposition: str) -> None:
    assert found(passage, proposition) == []


@pytest.mark.parametrize(
    ("passage", "proposition", "named"),
    [
        (TOWER, "Work on Karsted Lighthouse began in March 1875.", "1875"),
        (TOWER, "Work on Karsted Lighthouse began in May 1874.", "May"),
        (TOWER, "Karsted Lighthouse is 41.5 feet high.", "foot"),
        (TOWER, "Work on Karsted Lighthouse took seven years.", "seven"),
        (TOWER, "Work on Karsted Lighthouse was led by Nils Halvorsen.", "Nils"),
        (TOWER, "Halvorsen was an engineer from Norway.", "Halvorsen"),
        (TOWER, 'The Board called Karsted Lighthouse "a pillar of salt".', "a pillar of salt"),
        (HORSE, "アオバノカゼは2019年5月9日に生まれた。", "9"),
        (HORSE, "アオバノカゼは二十四頭立てのレースを勝った。", "二十四"),
        (HORSE, "アオバノカゼは2022年にパリへ渡った。", "パリ"),
        (HORSE, "2022年の星霜記念では木村哲也が騎乗した。", "木村哲也"),
        (HORSE, "アオバノカゼは青森県で生まれた。", "青森"),
        (HORSE, "アオバノカゼの英語表記はDo Deuceである。", "Do"),
        (
            Passage("The lamp K380 was lit in 1875.", "Karsted"),
            "The lamp K340 was lit in 1875.",
            "K340",
        ),
        (
            Passage("The keeper is Ms. Lund.", "Karsted"),
            "The keeper of Karsted is Ms. Berg.",
            "Berg",
        ),
        (
            Passage("新型灯台XR500は2024年に点灯した。"),
            "新型灯台XR300は2024年に点灯した。",
            "XR300",
        ),
    ],
)
def test_what_it_does_not_say_is_named(passage: Passage, proposition: str, named: str) -> None:
    findings = [one for one in check_propositions(passage, [proposition]) if one.kind != "coverage"]
    assert {one.kind for one in findings} == {"grounding"}
    assert f'"{named}"' in findings[0].reason


SALE = Passage(
    "In 1925 a con man sold the tower. In the same year a car maker began to use it, his name was on it "
    "until 1934. "
    "In October 1953 Ida Brandvold left; on December 12 her men reached the U.S at last. They left on May "
    "16. The next day they landed. In 2019 a diver came down. A year later he came again.",
    title="Karsted Lighthouse",
)


@pytest.mark.parametrize(
    ("proposition", "is_said"),
    [
        ("A car maker began to use Karsted Lighthouse in 1925.", True),
        ("A car maker began to use Karsted Lighthouse in 1953.", False),
        ("Ida Brandvold's men reached the United States on December 12, 1953.", True),
        ("Ida Brandvold's men reached the United States on December 12, 1934.", False),
        ("Ida Brandvold's men reached the United Kingdom.", False),
        ("Ida Brandvold's men landed on May 17.", True),
        ("Ida Brandvold's men landed on May 18.", False),
        ("A diver came to Karsted Lighthouse again in 2020.", True),
        ("A diver came to Karsted Lighthouse again in 2021.", False),
    ],
)
def test_a_date_may_be_said_by_another_one(proposition: str, is_said: bool) -> None:
    assert (found(SALE, proposition) == []) == is_said


def test_a_month_may_be_written_together_with_its_day() -> None:
    passage = Passage("The bonus was paid on December31, 2019 in cash.")
    assert found(passage, "The bonus was paid on December 31, 2019 in cash.") == []
    assert found(passage, "The bonus was paid on December 30, 2019 in cash.") != []


LEASE = Passage(
    "The tenant may not keep animals. The tenant may sublet one room. Rent rises by at most 50 euros a year. "
    "Some costs are charged after 2024. The notice must be written, and the new rooms are "
    "smaller. It is paid without reminders.",
    title="Lease of the tower",
)
RULES = Passage(
    "有給休暇は5日以上取得しなければならない。未使用の休暇は買い取らない。申請書は3月1日までに提出できる。"
    "一部の社員は対象が増加した。書類は上司を除く全員に配らず、窓口で渡す。",
    title="就業規則",
)


@pytest.mark.parametrize(
    ("passage", "proposition", "words"),
    [
        (LEASE, "The tenant may keep animals in the tower.", {"not", "keep"}),
        (LEASE, "The tenant must sublet one room of the tower.", {"must", "may"}),
        (TOWER, "Work on Karsted Lighthouse never took three years.", {"never", "took"}),
        (LEASE, "Rent of the tower rises by at least 50 euros a year.", {"at least", "at most"}),
        (LEASE, "Rent of the tower rises by 50 euros a year.", {"at most", "50"}),
        (LEASE, "All costs of the tower are charged after 2024.", {"all", "some"}),
        (LEASE, "The new rooms are larger in the tower.", {"larger", "smaller"}),
        (RULES, "就業規則では、有給休暇は5日以下取得しなければならない。", {"以下", "以上"}),
        (RULES, "就業規則では、有給休暇は5日取得しなければならない。", {"以上", "5"}),
        (RULES, "就業規則では、未使用の休暇は買い取る。", {"ない", "取"}),
        (HORSE, "アオバノカゼはドバイへ渡らなかった。", {"なかっ", "渡"}),
        (RULES, "就業規則では、すべての社員は対象が増加した。", {"すべて", "一部"}),
        (RULES, "就業規則では、一部の社員は対象が減少した。", {"減少", "増加"}),
    ],
)
def test_the_opposite_of_what_the_passage_says_is_named(
    passage: Passage, proposition: str, words: set[str]
) -> None:
    findings = [one for one in check_propositions(passage, [proposition]) if one.kind != "coverage"]
    assert {one.kind for one in findings} == {"grounding"}
    assert words in [set(re.findall('"([^"]+)"', one.reason)) for one in findings]


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (LEASE, "Keeping animals in the tower is forbidden."),
        (LEASE, "The tower's tenant is not allowed to keep animals."),
        (LEASE, "The rent of the tower rises by no more than 50 euros a year."),
        (LEASE, "The tower's tenant has to give written notice."),
        (LEASE, "No reminders are sent for what is paid."),
        (RULES, "就業規則では、有給休暇を5日以上取得する必要がある。"),
        (RULES, "就業規則では、未使用の休暇の買い取りはない。"),
        (RULES, "就業規則では、書類は窓口で渡す。"),
    ],
)
def test_a_paraphrase_of_a_negation_or_bound_is_left_alone(
    passage: Passage, proposition: str
) -> None:
    assert found(passage, proposition) == []


RECIPE = Passage(
    "電話は03-1234-5678。第二次大戦の後、1969年に店を開いた。"
    "鶏もも肉250グラムとだし150ミリリットルを5分煮る。営業は午後6時まで、13年後に移転した。",
    title="青葉亭の親子丼",
)
PAINTER = Passage(
    "Born in Coyoacán to a German father, Ruiz spent her childhood at La Casa Azul. She contracted polio at "
    "six, met Brandvold on Dec. 5, 1929 and painted 143 works; they parted ten years later.",
    title="Elena Ruiz",
)


FERRY = Passage("In 1994 the ferry had three million guests.", title="Skar Ferry")
LOSS = Passage(
    "It lost $4.5 million, had 3 to 4 million guests and 250 boats. The test ran 3 May 2021 to 7 June 2021.",
    title="Skar Ferry",
)
STAFF = Passage("資本金は1億2,000万円、従業員は250名、床は1,500㎡である。", title="霧浜電機")
FIRM = Passage("売上の30%が輸出である。令和6年に移転した。", title="霧浜電機")


@pytest.mark.parametrize(
    ("passage", "proposition", "is_said"),
    [
        (FERRY, "Skar Ferry had 3 million guests in 1994.", True),
        (FERRY, "Skar Ferry had 3 million guests in 1984.", False),
        (FIRM, "霧浜電機の売上の40%が輸出である。", False),
        (FIRM, "霧浜電機は2024年に移転した。", True),
        (FIRM, "霧浜電機は2023年に移転した。", False),
        (FIRM, "霧浜電機は平成6年に移転した。", False),
        (Passage("霧浜電機は令和元年に移転した。"), "霧浜電機は2019年に移転した。", True),
        (Passage("霧浜電機は2019年に移転した。"), "霧浜電機は令和元年に移転した。", True),
        (Passage("霧浜電機は令和元年に移転した。"), "霧浜電機は2020年に移転した。", False),
        (
            Passage("霧浜電機は1975年に、3割の人と移転した。"),
            "霧浜電機は昭和50年に移転した。",
            True,
        ),
        (RECIPE, "青葉亭の親子丼には鶏もも肉250gを使う。", True),
        (RECIPE, "青葉亭の親子丼には鶏もも肉250mlを使う。", False),
        (RECIPE, "青葉亭の親子丼ではだしは150mlである。", True),
        (RECIPE, "青葉亭の親子丼の所要時間は煮るのに5分である。", True),
        (RECIPE, "青葉亭の電話番号は03-1234-5678である。", True),
        (RECIPE, "青葉亭の店は第2次大戦の後に開いた。", True),
        (RECIPE, "青葉亭の店は第1次大戦の後に開いた。", False),
        (RECIPE, "青葉亭は19時に営業を終える。", False),
        (RECIPE, "青葉亭は1982年に移転した。", True),
        (RECIPE, "青葉亭は1983年に移転した。", False),
        (Passage("霧浜電機では40%が11時に賛成した。"), "霧浜電機では半数が賛成した。", False),
        (Passage("霧浜電機では40%が11時に賛成した。"), "霧浜電機では正午に賛成した。", False),
        (
            Passage("It learned from 12.5k boats at a rate of 2e-5."),
            "The model learned from 12,500 boats.",
            True,
        ),
        (
            Passage("It learned from 5k boats 3 times at a rate of 2e-5."),
            "The rate of learning was 3e-5.",
            False,
        ),
        (Passage("青葉亭の丼は420kcalである。"), "青葉亭の丼は420キロカロリーである。", True),
        (Passage("Skar Ferry took two dozen boats."), "Skar Ferry took 24 boats.", True),
        (Passage("Skar Ferry took two dozen boats."), "Skar Ferry took 25 boats.", False),
        (PAINTER, "Elena Ruiz and Brandvold parted in 1939.", True),
        (PAINTER, "Elena Ruiz and Brandvold parted in 1941.", False),
        (PAINTER, "Elena Ruiz met Brandvold on December 5, 1929.", True),
        (PAINTER, "Elena Ruiz met Brandvold on November 5, 1929.", False),
        (PAINTER, "Elena Ruiz met Halvorsen in 1929.", False),
        (PAINTER, "Elena Ruiz was born in Bogotá.", False),
        (PAINTER, "Elena Ruiz contracted polio at 20.", False),
        (PAINTER, "Elena Ruiz lived in the 18th century.", False),
        (LOSS, "Skar Ferry lost $4.5 million.", True),
        (LOSS, "Skar Ferry lost $4.5 billion.", False),
        (LOSS, "Skar Ferry had 3 million guests.", True),
        (LOSS, "Skar Ferry has 250 thousand boats.", False),
        (LOSS, "The test of Skar Ferry ran from May 3, 2021 to June 7, 2021.", True),
        (LOSS, "The test of Skar Ferry ended on May 7, 2021.", False),
        (STAFF, "霧浜電機には250万人がいる。", False),
        (STAFF, "霧浜電機の資本金は1億2000万円である。", True),
        (STAFF, "霧浜電機の床は1500平方メートルである。", True),
        (
            Passage("| 部 | 売上（百万円） |\n|---|---|\n| 電機 | 250 |"),
            "電機部の売上は250百万円である。",
            True,
        ),
    ],
)
def test_numbers_units_and_names_are_compared_by_what_they_mean(
    passage: Passage, proposition: str, is_said: bool
) -> None:
    assert (found(passage, proposition) == []) is is_said


def test_a_name_that_is_not_there_is_reported_once() -> None:
    texts = [
        "Karsted Lighthouse was sold to Wexford Lines.",
        "Wexford Lines painted Karsted Lighthouse.",
    ]
    assert found(TOWER, *texts) == [("grounding", 0), ("grounding", 0)]  # Wexford, Lines


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (TOWER, "It is 41.5 metres high."),
        (TOWER, "In March 1874, it was begun."),
        (TOWER, "This French gallery was the second one."),
        (TOWER, "Their scaffolding was washed away."),
        (TOWER, "It took the French keepers home."),
        (TOWER, "It was found in March 1874."),
        (TOWER, "Those keepers were sent home."),
        (TOWER, "The latter was added by the French."),
        (HORSE, "彼は2019年に生まれた。"),
        (HORSE, "2022年、同馬は星霜記念を勝った。"),
        (HORSE, "本馬はドバイへ渡った。"),
        (HORSE, "その馬はドバイへ渡った。"),
        (HORSE, "鞍上は武田豊であった。"),
    ],
)
def test_a_word_that_points_outside_is_found(passage: Passage, proposition: str) -> None:
    assert found(passage, proposition) == [("self_containedness", 0)]


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (TOWER, "It is said that the NLB called Karsted Lighthouse a needle."),
        (TOWER, "It was in March 1874 that work on Karsted Lighthouse began."),
        (TOWER, "There was a second gallery on Karsted Lighthouse."),
        (TOWER, "Ida Brandvold saw her scaffolding washed away."),
        (TOWER, "It now seems likely that Karsted Lighthouse needs a fog signal."),
        (TOWER, "It has been implied that storms twice washed the scaffolding away."),
        (TOWER, "It took Ida Brandvold three years to build Karsted Lighthouse."),
        (TOWER, "It is not unusual on Karsted Lighthouse that storms wash scaffolding away."),
        (TOWER, "It was later said of Karsted Lighthouse that storms washed it away."),
        (TOWER, "It was already too late to send the keepers of Karsted Lighthouse home."),
        (TOWER, "Those keepers who were sent home numbered twenty-three."),
        (
            Passage("This American Life is a radio show.", "This American Life"),
            "This American Life is a radio show.",
        ),
        (Passage("『この世界の片隅に』は漫画である。"), "『この世界の片隅に』は漫画である。"),
        (
            Passage("この世界の片隅には漫画である。", "この世界の片隅に"),
            "この世界の片隅には漫画である。",
        ),
        (HORSE, "それぞれの馬はドバイへ渡った。"),
        (HORSE, "アオバノカゼの鞍上は武田豊であった。"),
        (HORSE, "佐伯いとは、その厳しさで知られた。"),
    ],
)
def test_a_word_that_points_at_nothing_or_inside_is_left_alone(
    passage: Passage, proposition: str
) -> None:
    assert found(passage, proposition) == []


def test_other_languages_are_named() -> None:
    texts = [
        "アオバノカゼは2019年に生まれた。",
        "The horse won the race in 2022 and was trained by him.",
    ]
    wrong = [one for one in check_propositions(HORSE, texts) if one.kind == "language"]
    assert [(one.proposition, one.reason) for one in wrong] == [
        (1, "it is in a language in Latin script")
    ]


@pytest.mark.parametrize(
    ("passage", "texts"),
    [
        (TOWER, ["Storms washed the scaffolding away.", "Storms washed away the scaffolding!"]),
        (HORSE, ["アオバノカゼはドバイへ渡った。", "アオバノカゼが　ドバイへ渡った"]),
    ],
)
def test_the_same_words_again_are_a_duplicate(passage: Passage, texts: list[str]) -> None:
    assert found(passage, *texts) == [("duplication", 1)]


def test_other_numbers_and_turned_names_are_no_duplicates() -> None:
    passage = Passage("Ida saw Nils. Nils saw Ida. Ida has three boats. Ida has four boats.")
    assert (
        found(
            passage, "Ida saw Nils.", "Nils saw Ida.", "Ida has three boats.", "Ida has four boats."
        )
        == []
    )


@pytest.mark.parametrize(
    ("passage", "text"),
    [(TOWER, TOWER.text), (HORSE, HORSE.text), (TOWER, "Lighthouse."), (HORSE, "北海道安平町。")],
)
def test_a_single_word_and_the_whole_passage_are_no_propositions(
    passage: Passage, text: str
) -> None:
    assert ("size", 0) in found(passage, text)


def test_a_sentence_without_spaces_is_no_single_word() -> None:
    passage = Passage("อัญชลีเป็นผู้อำนวยการของเทศบาลบ้านใหม่ ค่าน้ำจะขึ้นในปีหน้า")
    propositions = ("อัญชลีเป็นผู้อำนวยการของเทศบาลบ้านใหม่", "ค่าน้ำจะขึ้นในปีหน้า")
    assert found(passage, *propositions) == []


def test_tables_and_code_are_left_alone() -> None:
    table = "| Year | Height |\n|---|---|\n| 1874 | 41 m |"
    assert found(Passage(f"It grew.\n\n{table}", "Tower"), table, "The Tower grew.") == []


def test_names_and_pronouns_of_other_languages_are_not_judged() -> None:
    german = Passage(
        "Der Turm wurde von der Ingenieurin aus Norwegen gebaut und ist mit dem Boot zu erreichen, das er "
        "hat."
    )
    assert (
        found(
            german,
            "Die Bauherrin des Turms war eine Norwegerin.",
            "Der Turm ist vom Wasser aus zu erreichen.",
        )
        == []
    )
    assert found(german, "Der Turm wurde 1874 gebaut.") == [("grounding", 0)]


@given(st.text(max_size=300), st.lists(st.text(max_size=120), max_size=4))
def test_nothing_is_raised_and_indices_are_those_of_propositions(
    text: str, propositions: list[str]
) -> None:
    for finding in check_propositions(Passage(text, text[:9]), propositions):
        assert finding.proposition is None or propositions[finding.proposition].strip()
        assert finding.reason


SENTENCES = [
    "本馬は、1990年に生まれた。",
    "It was 3 km long.",
    "ＮＨＫは「夏」を放送した。",
    "The U.S. bought 1,000 of them.",
]


@given(st.lists(st.sampled_from([*SENTENCES, "Snow fell."]), min_size=1, max_size=6, unique=True))
def test_sentences_of_the_passage_are_grounded(sentences: list[str]) -> None:
    passage = Passage("\n\n".join(sentences))
    assert not [
        one
        for one in check_propositions(passage, passage_sentences(passage.text))
        if one.kind == "grounding"
    ]


def test_what_no_proposition_says_is_shown_where_it_stands() -> None:
    text = "The tower is 41 metres high. The museum shows its lens."
    (missing,) = check_propositions(Passage(text, "Tower"), ["The tower is 41 metres high."])
    assert (missing.kind, missing.proposition, missing.span) == ("coverage", None, (29, len(text)))
    assert missing.reason == 'no proposition says "The museum shows its lens."'


@pytest.mark.parametrize(
    ("text", "proposition", "name"),
    [
        (
            "Every spring the fair of the county moved to London in May.",
            "Every spring the fair, which belongs to the county, moved in May.",
            "London",
        ),
        ("地動説を5月にドイツで Müller が唱えた。", "地動説は5月にドイツで唱えられた。", "Müller"),
    ],
)
def test_a_name_is_not_stated_by_a_part_of_another_word(
    text: str, proposition: str, name: str
) -> None:
    (missing,) = check_propositions(Passage(text), [proposition])
    assert missing.kind == "coverage"
    assert f'"{name}"' in missing.reason


def test_a_number_of_the_passage_that_belongs_to_something_else_is_found() -> None:
    passage = Passage(
        "The Lambeth Company moved its intake in 1852. The doctor died of a stroke in June 1858."
    )
    assert found(passage, "The Lambeth Company moved its intake in 1858.") == [("grounding", 0)]
    assert found(passage, "The doctor died in 1858.") == []


SALES = Passage(
    "| 年度 | 売上高（百万円） |\n| --- | --- |\n| 2023年度 | 1,350 |", title="霧浜電機"
)
TOWNS = Passage("| City | People (thousands) |\n| --- | --- |\n| Oslo | 700 |")
BANK = Passage("Its revenue was $1.2bn, after $950m. It opened at 9:00 on 2021-05-03.", "Skar Bank")
TRAIN = Passage("列車は午後2時5分に出る。The ferry leaves at 14:05.", "Skar Ferry")


@pytest.mark.parametrize(
    ("passage", "proposition", "is_said"),
    [
        (SALES, "霧浜電機の2023年度の売上高は13億5000万円である。", True),
        (SALES, "霧浜電機の2023年度の売上高は1,350百万円である。", True),
        (SALES, "霧浜電機の2023年度の売上高は1,350億円である。", False),
        (TOWNS, "Oslo has 700,000 people.", True),
        (TOWNS, "Oslo has 700 million people.", False),
        (BANK, "Skar Bank's revenue was $1.2 billion.", True),
        (BANK, "Skar Bank's revenue was $1.2 million.", False),
        (BANK, "Skar Bank's revenue was 950 million dollars.", True),
        (BANK, "Skar Bank opened at 9 a.m. on May 3, 2021.", True),
        (BANK, "Skar Bank opened at 9 p.m. on May 3, 2021.", False),
        (BANK, "Skar Bank opened on June 3, 2021.", False),
        (TRAIN, "The ferry leaves at 2:05 PM.", True),
        (TRAIN, "The ferry leaves at 3:05 PM.", False),
        (TRAIN, "列車は14時5分に出る。", True),
    ],
)
def test_powers_of_ten_times_and_dates_are_compared_in_any_form(
    passage: Passage, proposition: str, is_said: bool
) -> None:
    faults = [kind for kind, _ in found(passage, proposition) if kind == "grounding"]
    assert (faults == []) is is_said


def test_a_row_has_the_numbers_in_the_names_of_its_columns() -> None:
    rows = "| P-1 | 1,250 | 1350 |\n| P-2 | 2,400 | 1450 |"
    passage = Passage(f"| Model | Price 2023 | Price 2024 |\n| --- | --- | --- |\n{rows}", "Pumps")
    assert not found(passage, "Pump P-1 cost 1,250 in 2023.", "Pump P-1 cost 1350 in 2024.")
    assert found(passage, "Pump P-2 cost 1350 in 2024.") == [("grounding", 0)]


def test_a_square_of_a_unit_is_said_in_words() -> None:
    stated = ["霧浜電機の資本金は1億2000万円、従業員は250名、床は1500平方メートルである。"]
    assert not check_propositions(STAFF, stated)


def test_words_that_the_end_of_a_line_parts_are_in_the_passage() -> None:
    passage = Passage(
        "最初にすることは、作成したいプログラムのパッ\nケージがすでにあるかどうかを確認することです。"
    )
    proposition = "最初に、作成したいプログラムのパッケージがすでにあるかどうかを確認する。"
    assert [
        one for one in check_propositions(passage, [proposition]) if one.kind == "grounding"
    ] == []


def test_better_is_fewer_and_more_of_no_kind() -> None:
    def of(*kinds: str) -> list[Finding]:
        return [Finding(kind, 0, None, "") for kind in kinds]  # type: ignore[arg-type]

    assert is_better(of("grounding"), of("grounding", "grounding"))
    assert not is_better(of("grounding"), of("grounding"))
    assert not is_better(of("size"), of("grounding", "grounding"))


@pytest.mark.parametrize("title", ["ドウデュース", "イクイノックス"])
def test_propositions_of_the_racehorses_are_japanese_and_name_their_horse_or_race(
    title: str,
) -> None:
    lines = (DATA / "propositions.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = [one for one in map(json.loads, lines) if one["title"] == title]
    kinds = [
        finding.kind
        for one in recorded
        for finding in check_propositions(Passage(one["text"], one["title"]), one["propositions"])
    ]
    assert len(recorded) > 2
    assert not {"language", "self_containedness"} & {*kinds}


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (TOWER, "During this time the lighthouse had no keepers."),
        (TOWER, "At that time, the lighthouse had no keepers."),
        (TOWER, "According to her, storms washed the scaffolding away."),
        (TOWER, "There she was an engineer."),
        (HORSE, "同じ年に北海道で生まれた。"),
        (HORSE, "二人は前で走った。"),
        (HORSE, "氏は北海道で生まれた。"),
    ],
)
def test_what_points_at_something_behind_a_preposition_is_not_self_contained(
    passage: Passage, proposition: str
) -> None:
    assert ("self_containedness", 0) in found(passage, proposition)


BRIDGE = Passage(
    "Harrow Bridge was opened on 3 May 1931 by Dr. Vera Lindqvist of the University of Uppsala. Some 140 "
    "people died "
    "while it was built, and between one hundred and two hundred were hurt. It is 412 m long, covers 2.5 km² "
    "and is "
    "painted once it is warmer than 15 °C. The United Kingdom paid for it, and the Scottish for three towers "
    "of 23,000 stones.",
    title="Harrow Bridge",
)
BRIDGE_RIGHT = [
    "Harrow Bridge was opened on May 3, 1931.",
    "Harrow Bridge was opened by Vera Lindqvist.",
    "Vera Lindqvist was of Uppsala University.",
    "One hundred and forty people died while Harrow Bridge was built.",
    "100 to 200 people were hurt while Harrow Bridge was built.",
    "Harrow Bridge is 412 metres long.",
    "Harrow Bridge covers 2.5 square kilometres.",
    "Harrow Bridge is painted once it is warmer than 15 degrees Celsius.",
    "The UK paid for Harrow Bridge.",
    "Scotland paid for 3 towers of Harrow Bridge, of twenty-three thousand stones.",
]
CITY = Passage(
    "霧ヶ丘市は昭和50年に3町5村が合併して発足した。面積は約345km²で、約80か所の温泉があり、"
    "平均気温は14.2度である。予算は5億3,200万円で、ヴェローナと姉妹都市である。",
    title="霧ヶ丘市",
)
CITY_RIGHT = [
    "霧ヶ丘市は昭和五十年に発足した。",
    "霧ヶ丘市は三町五村が合併して発足した。",
    "霧ヶ丘市の面積は約345平方キロメートルである。",
    "霧ヶ丘市には約八十カ所の温泉がある。",
    "霧ヶ丘市の平均気温は14.2℃である。",
    "霧ヶ丘市の予算は532,000,000円である。",
    "霧ヶ丘市の姉妹都市はヴェローナである。",
]
REPORT = Passage(
    "In Q2 sales rose to SEK 1,284m (1,196m). The shop in Visby opens on 12 Nov. at nine, Mon–Wed only, and "
    "its 1½ tonnes of stock are counted for 45 min every 3 wks. Rent is €5bn, power CHF 85.",
    title="Harrow plc",
)
REPORT_RIGHT = [
    "Harrow plc's sales rose to SEK 1,284 million in the second quarter, from SEK 1,196 million.",
    "The shop in Visby opens on 12 November at nine.",
    "The shop in Visby opens from Monday to Wednesday only.",
    "The shop's one and a half tonnes of stock are counted for 45 minutes every three weeks.",
    "The shop's rent is EUR 5 billion.",
    "The shop's power costs CHF 85.",
]


@pytest.mark.parametrize(
    ("passage", "propositions"),
    [(BRIDGE, BRIDGE_RIGHT), (CITY, CITY_RIGHT), (REPORT, REPORT_RIGHT)],
)
def test_what_is_said_in_another_form_is_grounded(
    passage: Passage, propositions: list[str]
) -> None:
    assert found(passage, *propositions) == []


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (BRIDGE, "Harrow Bridge was opened on May 4, 1931."),
        (BRIDGE, "One hundred and fifty people died while Harrow Bridge was built."),
        (BRIDGE, "Vera Lindqvist was of Oxford University."),
        (BRIDGE, "Harrow Bridge covers 2.5 square miles."),
        (BRIDGE, "Harrow Bridge is painted once it is warmer than 16 degrees Celsius."),
        (REPORT, "Harrow plc's sales rose to SEK 1,284 billion in the second quarter."),
        (REPORT, "Harrow plc's sales rose to SEK 1,284 million in the third quarter."),
        (REPORT, "The shop in Visby opens on 12 December."),
        (REPORT, "The shop's stock is counted for 45 hours."),
        (REPORT, "The shop in Visby opens from Monday to Thursday only."),
        (CITY, "霧ヶ丘市は昭和六十年に発足した。"),
        (CITY, "霧ヶ丘市は三町六村が合併して発足した。"),
        (CITY, "霧ヶ丘市には約九十カ所の温泉がある。"),
        (CITY, "霧ヶ丘市の平均気温は14.5℃である。"),
        (CITY, "霧ヶ丘市の姉妹都市はベネチアである。"),
    ],
)
def test_what_is_replaced_in_another_form_is_found(passage: Passage, proposition: str) -> None:
    assert ("grounding", 0) in found(passage, proposition)


def accused(passage: Passage, *propositions: str) -> list[str]:
    """What grounding says."""
    return [
        one.reason for one in check_propositions(passage, propositions) if one.kind == "grounding"
    ]


NAMED_NUMBERS = Passage(
    "The firm 52North opened a 7-Eleven shop in B2B Park and sold it to 3M in 2019. The Airbus A330 seats "
    "277 people, "
    "the Boeing 767 seats 216. It runs Windows 11 on 4K screens, near a lake full of CO2. Versions 2 and 3 "
    "were free.",
    title="Fjord 21",
)
NAMED_NUMBERS_JA = Passage(
    "第四北越銀行と三井物産は、六本木と四万十川のほとりに五十嵐設計の店を20店開いた。"
    "店ではPS5と4Kのモニターを売り、B2Bの客も多い。"
    "アポロ11号の模型もある。",
    title="一橋商店",
)


@pytest.mark.parametrize(
    ("passage", "propositions"),
    [
        (
            NAMED_NUMBERS,
            [
                "52North opened a 7-Eleven shop in B2B Park.",
                "52North sold its 7-Eleven shop to 3M in 2019.",
                "The Airbus A330 seats 277 people.",
                "The Boeing 767 seats 216 people.",
                "Fjord 21 runs Windows 11 on 4K screens.",
                "Fjord 21 is near a lake full of CO2.",
                "Versions 2 and 3 of Fjord 21 were free.",
                "Version 3 of Fjord 21 was free.",
                "Old 52North shops were sold to 3M.",
                "Selling 52North shops to 3M took until 2019.",
                "Someone opened a shop in B2B Park.",
            ],
        ),
        (
            NAMED_NUMBERS_JA,
            [
                "第四北越銀行と三井物産は、六本木に五十嵐設計の店を開いた。",
                "第四北越銀行と三井物産は、四万十川のほとりに店を開いた。",
                "第四北越銀行と三井物産が開いた店は二十店である。",
                "店ではPS5と4Kのモニターを売る。",
                "店にはB2Bの客も多い。",
                "店にはアポロ11号の模型がある。",
            ],
        ),
    ],
)
def test_a_number_in_a_name_is_a_part_of_it(passage: Passage, propositions: list[str]) -> None:
    assert check_propositions(passage, propositions) == []


def test_a_number_below_the_same_word_in_each_row_is_no_part_of_a_name() -> None:
    rows = "| Kai | Runs 3/6/12 reviews a year. |\n| Mio | Runs 3/6/12 reviews a year. |\n"
    passage = Passage(f"| Who | What |\n|---|---|\n{rows}", title="Roles")
    assert accused(passage, "Kai runs 3/6/12 reviews a year.") == []
    assert accused(passage, "Kai runs 4/6/12 reviews a year.") != []


@pytest.mark.parametrize(
    ("passage", "proposition", "named"),
    [
        (NAMED_NUMBERS, "The firm 53North opened a shop.", "53North"),
        (NAMED_NUMBERS, "The firm 52North opened a 9-Eleven shop.", "9-Eleven"),
        (NAMED_NUMBERS, "The shop is in B2C Park.", "B2C"),
        (NAMED_NUMBERS, "The Airbus A380 seats 277 people.", "A380"),
        (NAMED_NUMBERS, "The Boeing 277 seats 216 people.", "Boeing 277"),
        (NAMED_NUMBERS, "The shop was sold to 5M in 2019.", "5M"),
        (NAMED_NUMBERS_JA, "第五北越銀行は店を開いた。", "第五北越銀行"),
        (NAMED_NUMBERS_JA, "店は五本木にある。", "五本木"),
        (NAMED_NUMBERS_JA, "店ではPS4を売る。", "PS4"),
        (NAMED_NUMBERS_JA, "店にはアポロ20号の模型がある。", "アポロ20"),
    ],
)
def test_a_name_with_another_number_is_reported_as_a_name(
    passage: Passage, proposition: str, named: str
) -> None:
    assert accused(passage, proposition) == [
        f'"{named}" is in neither the passage nor its title or section'
    ]


def test_the_number_of_a_name_counts_nothing() -> None:
    passage = Passage("52North has 60 people. 52North sold 8 ships.", title="52North")
    assert accused(passage, "52North has 52 people.") == ['"52" is not in the passage']
    assert accused(passage, "52North has 60 people.", "52North sold eight ships.") == []


def test_a_name_with_a_number_that_nothing_says_is_missing_as_a_name() -> None:
    passage = Passage(
        "The shop was sold to 52North by Berg, who had painted the roof, the doors and all the walls."
    )
    (missing,) = check_propositions(
        passage, ["Berg sold the shop, and had painted the roof, the doors and all the walls."]
    )
    assert missing.reason.startswith('no proposition says "52North" of "The shop was sold')


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (Passage("申し込みは窓口で受け付ける。"), "申し込みの方法は、窓口での受け付けである。"),
        (Passage("早めに知らせること。", title="欠席"), "欠席は早めに知らせることが推奨される。"),
        (
            Passage("[会則](/rules)を見てください。", title="入会"),
            "入会については、会則のページを参照する。",
        ),
        (
            Passage("荷物は送り先の家へ届ける。"),
            "荷物の配送サービスでは、荷物を送り先の家へ届ける。",
        ),
        (Passage("係がすぐに見にくる。"), "スタッフがすぐに確認する。"),
        (Passage("使い終えたら元の棚へ戻す。"), "使用後は元の棚へ返却する。"),
        (Passage("2つの会は別れた。"), "2つの会は分裂した。"),
        (Passage("旅行の写しはここにある。"), "旅行のコピーはオンラインストレージにある。"),
        (
            Passage("「雨は夜のうちに上がった」と書かれていた。"),
            "「雨は夜のうちに上がった。」という記述がある。",
        ),
        (Passage("9時半に始まり、8割が集まる。"), "9時30分に始まり、80%が集まる。"),
    ],
)
def test_common_words_of_a_japanese_paraphrase_are_no_names(
    passage: Passage, proposition: str
) -> None:
    assert accused(passage, proposition) == []


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (Passage("早めに知らせること。", title="欠席"), "欠席は高橋花子に早めに知らせる。"),
        (Passage("荷物は送り先の家へ届ける。"), "荷物はヤマネコトランスで送り先の家へ届ける。"),
        (Passage("荷物は送り先の家へ届ける。"), "荷物は仙北町の家へ届ける。"),
    ],
)
def test_names_among_common_words_are_found(passage: Passage, proposition: str) -> None:
    assert accused(passage, proposition) != []


LINKED = Passage(
    "See the [rules](https://example.com/doc/2031?page=17&usp=sharing) before May 4. Write to "
    "[the desk](mailto:desk@example.org).",
    title="Harrow Club",
)
LINKED_JA = Passage(
    "5月4日までに[規則](https://example.com/doc/2031?page=17&usp=sharing)を読む。"
    "質問は[窓口](mailto:desk@example.org)に送る。",
    title="霧ヶ丘クラブ",
)


@pytest.mark.parametrize(
    ("passage", "propositions"),
    [
        (
            LINKED,
            [
                "The rules of Harrow Club are to be read before May 4.",
                "Harrow Club has a desk to write to.",
            ],
        ),
        (LINKED_JA, ["霧ヶ丘クラブの規則は5月4日までに読む。", "質問は窓口に送る。"]),
        (
            LINKED,
            [
                "The rules of Harrow Club are to be read before May 4.",
                "Write to the desk at desk@example.org.",
            ],
        ),
        (LINKED_JA, ["規則は5月4日までに読む。", "質問はdesk@example.orgの窓口に送る。"]),
    ],
)
def test_where_a_link_leads_may_be_said_and_may_be_left_out(
    passage: Passage, propositions: list[str]
) -> None:
    assert check_propositions(passage, propositions) == []


@pytest.mark.parametrize("passage", [LINKED, LINKED_JA])
def test_a_wrong_address_and_a_number_out_of_a_link_are_found(passage: Passage) -> None:
    wrong = (
        "Harrow Club has 2031 rules." if passage is LINKED else "霧ヶ丘クラブの規則は2031個ある。"
    )
    assert accused(passage, wrong) == ['"2031" is not in the passage']
    (reason,) = accused(
        passage, "Write to fees@example.org." if passage is LINKED else "fees@example.orgに書く。"
    )
    assert '"fees@example.org"' in reason


def test_what_is_struck_out_is_not_said() -> None:
    passage = Passage("The fee is ~~30~~ 40 euros.", title="Harrow Club")
    assert accused(passage, "The fee of Harrow Club is 40 euros.") == []
    assert accused(passage, "The fee of Harrow Club is 30 euros.") == ['"30" is not in the passage']


@pytest.mark.parametrize(
    "text",
    [
        "Welcome to Harrow Club!",
        "Hi Ms Brandt,",
        "Kind regards",
        "Q: Does it cost anything?",
        "Q. 会費はいくらですか。",
        "Thank you for your interest.",
        "[getsentry.com]",
        "- [Rules](/rules)",
        "Read more [here](/more).",
        "For more details, see [the form](/form).",
        "**Overview**",
        "<summary><strong>Fees</strong></summary>",
        "What does it cost?",
        "The fees are as follows:",
        '{{< label name="new" >}}',
        "ようこそ。",
        "よろしくお願いします。",
        "詳細は[こちら](/a)をご覧ください。",
        "[申し込みはこちら](/a)",
        "関連：[規則](/b)",
        "**概要**",
        "ご質問はありますか？",
        "料金は次のとおりです。",
        "— [*Ida B.*](https://example.com/ida)",
    ],
)
def test_what_greets_asks_announces_or_leads_elsewhere_states_nothing(text: str) -> None:
    fact = "The hall opens at nine." if text.isascii() else "会館は9時に開く。"
    passage = Passage(f"{text}\n\n{fact}", title="Harrow Club")
    assert check_propositions(passage, [fact]) == []


@pytest.mark.parametrize(
    ("text", "proposition"),
    [
        ("1. **Fees.** Adults pay 9 euros.\n2. Pets. Dogs stay outside.", "Adults pay 9 euros."),
        ("1. **Fees.** Adults pay 9 euros.\n2. Dogs stay outside.", "Adults pay 9 euros."),
        ("1. 会費について。会費は9ユーロである。\n2. 夏祭り。7月に開く。", "会費は9ユーロである。"),
        ("2.1 Adults pay 9 euros.\n2.2 Dogs stay outside.", "Adults pay 9 euros."),
    ],
)
def test_the_name_or_number_of_an_item_need_not_be_said(text: str, proposition: str) -> None:
    findings = check_propositions(Passage(text), [proposition])
    assert [finding.kind for finding in findings] == ["coverage"]  # of the second item


@pytest.mark.parametrize(
    ("text", "propositions"),
    [
        (
            "Fees\n\n- Adults pay 9 euros.\n- Children pay 4 euros.",
            ["Adults pay 9 euros.", "Children pay 4 euros."],
        ),
        ("持ち物\n\n- 水筒を持つ。\n- 帽子をかぶる。", ["水筒を持つ。", "帽子をかぶる。"]),
        (
            "Members fulfil the following.\n\n- They pay.\n- They vote.",
            ["Members pay.", "Members vote."],
        ),
        (
            "会員は以下の条件を満たす。\n\n- 会費を払う。\n- 総会に出る。",
            ["会員は会費を払う。", "会員は総会に出る。"],
        ),
    ],
)
def test_what_leads_a_list_in_states_nothing(text: str, propositions: list[str]) -> None:
    assert [
        one for one in check_propositions(Passage(text), propositions) if one.kind == "coverage"
    ] == []


@pytest.mark.parametrize(
    ("text", "said", "missing", "reason"),
    [
        (
            "- Adults pay 9 euros.\n- Guests of members come in without paying.",
            "Adults pay 9 euros.",
            "- Guests of members come in without paying.",
            'no proposition says "- Guests of members come in without paying."',
        ),
        (
            "Ann and Bob sailed to Oslo with Max in 1998 for two weeks in spring.",
            "Ann and Bob sailed to Oslo for two weeks in spring.",
            "Ann and Bob sailed to Oslo with Max in 1998 for two weeks in spring.",
            'no proposition says "1998", "Max" of "Ann and Bob sailed to Oslo with Max in 1998 for two weeks '
            'i…"',
        ),
        (
            "会員は毎年4月に会館で、ヴェルディの歌を歌う会を開く。会費は要らない。",
            "会員は毎年、会館で歌を歌う会を開く。会費は要らない。",
            "会員は毎年4月に会館で、ヴェルディの歌を歌う会を開く。",
            'no proposition says "4", "ヴェルディ" of "会員は毎年4月に会館で、ヴェルディの歌を歌う会を開く。'
            '"',
        ),
    ],
)
def test_a_gap_is_a_whole_sentence_and_names_what_of_it_is_missing(
    text: str, said: str, missing: str, reason: str
) -> None:
    (gap,) = [one for one in check_propositions(Passage(text), [said]) if one.kind == "coverage"]
    assert gap.span is not None
    assert (text[slice(*gap.span)], gap.reason) == (missing, reason)


@pytest.mark.parametrize(
    "text",
    [
        "We charge:\n\n- Adults pay 9 euros\n- Guests come in without paying\n- Dogs stay outside",
        "料金\n\n- 大人は9ユーロを払う\n- 客は払わずに入る\n- 犬は外で待つ",
        "1. Open the lid\n2. Press the red button\n3. Wait for a minute",
    ],
)
def test_every_item_of_a_list_is_to_be_said(text: str) -> None:
    items = [line for line in text.splitlines() if line[:1] in "-123" and line]
    gaps = [
        one
        for one in check_propositions(Passage(text), [items[0][2:].strip()])
        if one.kind == "coverage"
    ]
    assert [text[slice(*gap.span)] for gap in gaps if gap.span] == items[1:]


def test_a_sentence_that_stands_twice_is_said_once() -> None:
    text = (
        "**Summer**: The hall is open. Bring water.\n\n**Winter**: The hall is shut. Bring water."
    )
    texts = [
        "In summer the hall is open.",
        "In winter the hall is shut.",
        "Bring water to the hall.",
    ]
    assert [one for one in check_propositions(Passage(text), texts) if one.kind == "coverage"] == []


def test_a_name_with_its_abbreviation_or_reading_is_said_by_either() -> None:
    passage = Passage("会員はCandidate（候補）に多要素認証（MFA）を使わせる。")
    assert check_propositions(passage, ["会員は候補に多要素認証を使わせる。"]) == []


def test_what_stands_in_the_context_is_grounded_and_need_not_be_said() -> None:
    row = Passage(
        "| P120 | 300 |",
        title="Prices",
        context="| Product of Nordvik | Price in yen in 2024 |\n|---|---|",
    )
    assert check_propositions(row, ["P120, a product of Nordvik, costs 300 yen in 2024."]) == []
    item = Passage("- 水筒", title="遠足", context="ヴェルデ山へ9月に持っていく物：")
    assert accused(item, "遠足では9月にヴェルデ山へ水筒を持っていく。") == []
    assert accused(item, "遠足では8月にアルバ山へ水筒を持っていく。") != []


@pytest.mark.parametrize(
    ("passage", "proposition", "named"),
    [
        (Passage("Fjord 8 sank. Fjord 9 carries 13 men.", "Fjord 9"), "Fjord 13 sank.", "Fjord 13"),
        (
            Passage("Fjord 13 sails. Fjord 13 has a motor of 28 volts."),
            "Fjord 13 has a motor of 13 volts.",
            "13",
        ),
        (
            Passage("It fell in May 1953 and rose in June 1954.", "The Dam"),
            "The Dam rose in June 1953.",
            "1953",
        ),
        (Passage("The 12 boats took 40 minutes.", "The Race"), "The Race took 12 minutes.", "12"),
        (Passage("It costs $40 and lasts 7 days.", "The Trip"), "The Trip costs $7.", "7"),
    ],
)
def test_a_number_beside_another_word_than_in_the_passage_is_found(
    passage: Passage, proposition: str, named: str
) -> None:
    (reason,) = accused(passage, proposition)
    assert f'"{named}"' in reason


@pytest.mark.parametrize(
    ("passage", "proposition"),
    [
        (
            Passage("On June 4 and 7 it rained. Fjord 1 and 2 sank.", "The Race"),
            "Fjord 2 sank on June 7.",
        ),
        (Passage("It took two and a half hours.", "The Race"), "The Race took 2.5 hours."),
        (
            Passage("It lasted 12 full days and cost $40.", "The Race"),
            "The Race lasted 12 days and cost 40 dollars.",
        ),
        (Passage("Visitors came.", "Fjord 9"), "Visitors were on board of Fjord 9."),
        (Passage("They came.", "Fjord 9"), "Travellers were on Fjord 9."),
    ],
)
def test_a_number_or_noun_in_another_form_is_no_fault(passage: Passage, proposition: str) -> None:
    assert accused(passage, proposition) == []


@pytest.mark.parametrize("kind", get_args(FindingKind))
def test_every_kind_of_finding_is_explained(kind: FindingKind) -> None:
    assert kind in _FAULTS_JA, "prompts._FAULTS_JA has words for each kind"
    propositions = PropositionSet(
        ("波は高い。",), findings=(Finding(kind, 0, None, "it is wrong"),)
    )
    assert '- "波は高い。": it is wrong' in repair_note(propositions, "en")
    assert "it is wrong" not in repair_note(propositions, "ja")
    assert f"*{kind}*" in (check_propositions.__doc__ or ""), (
        "the docstring of check_propositions explains each kind"
    )
    assert f"`{kind}`" in (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
