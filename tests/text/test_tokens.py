from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.index.words import Words
from llama_pack_densex.text.tokens import (
    IS_CJK,
    content_words,
    forms_among,
    search_tokens,
    tokenize,
)

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("東京優駿", ["東京", "京優", "優駿", "東京優駿"]),
        ("東京の雨", ["東京", "京の", "の雨", "東京", "雨"]),
        ("雨", ["雨"]),
        ("ﾄﾞｳでらーめん", ["ドウ", "ウで", "でら", "らー", "ーめ", "めん", "ドウ"]),
        ("ｶﾞﾊﾟ", ["ガパ", "ガパ"]),
        ("関ヶ原と佐々木", ["関ヶ", "ヶ原", "原と", "と佐", "佐々", "々木", "関ヶ原", "佐々木"]),
        ("ＧⅠレース２着", ["gi", "レー", "ース", "レース", "2", "着"]),
        ("The runners were running", ["runner", "run"]),
        ("1,200 metres in 1998", ["1200", "metr", "1998"]),
        ("data\u00adbase of the \u200b東\u200b京", ["databas", "東京", "東京"]),
        ("iPhone15を買う", ["iphon", "15", "iphone15", "を買", "買う", "買"]),
        ("서울은 수도", ["서울", "울은", "수도"]),
        ("我爱北京。", ["我爱", "爱北", "北京", "我爱北京"]),
        ("𠮷野", ["𠮷野", "𠮷野"]),
        ("廣島の渡邊", ["広島", "島の", "の渡", "渡辺", "広島", "渡辺"]),
        ("Ünïcode u\u0308NICODE unicode", ["unicod", "unicod", "unicod"]),
        (
            "Köln, São Paulo, İstanbul, Łódź, Tromsø",
            ["koln", "sao", "paulo", "istanbul", "lodz", "tromso"],
        ),
        ("Ёлка за\u0301мок Άργος ΑΡΓΟΣ", ["елк", "замок", "αργ", "αργ"]),
        ("שָׁלוֹם أَحْمَد", ["שלום", "احمد"]),
        ("भारत की राजधानी, বাংলা, தமிழ்", ["भारत", "क", "राजधान", "বাংলা", "தமிழ்"]),
        ("ไทย ตก១", ["ไท", "ทย", "ตก", "១"]),
        ("วันลา", ["วัน", "นล", "ลา"]),
        ("сотрудники, сотрудников; еще ещё", ["сотрудник", "сотрудник", "ещ", "ещ"]),
        ("موظف، للموظفين", ["موظف", "موظف"]),
        ("עובד, העובדים, לעובד", ["עובד", "עובד", "עובד"]),
        ("कर्मचारी, कर्मचारियों", ["कर्मचार", "कर्मचार"]),
        ("१२३ ٤٥ ๖", ["123", "45", "6"]),
        ("", []),
        ("?!…。", []),
    ],
)
def test_text_becomes_these_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


def test_a_clause_of_han_is_no_word() -> None:
    assert "中华人民共和国成立" not in tokenize("中华人民共和国成立")
    assert "国成" in tokenize("中华人民共和国成立")


WRAPPED = (
    "まず最初にしなければならないことは、作成するパッ\n"
    "ケージがすでにあるかどうかを確認す\n　　ることです。"
)


def test_words_that_the_end_of_a_line_parts_are_whole() -> None:
    assert tokenize(WRAPPED) == tokenize("".join(WRAPPED.split()))
    assert {"ッケ", "パッケージ", "する"} <= {*tokenize(WRAPPED)}


def test_lines_of_a_list_are_words_of_their_own() -> None:
    assert tokenize("東京\n大阪\n雨") == ["東京", "東京", "大阪", "大阪", "雨"]
    paragraphs = "霧浜灯台の塔は佐伯が設計したものである東京\n\n大阪"
    assert "京大" not in tokenize(paragraphs)


def test_a_grouped_number_is_a_plain_one() -> None:
    assert tokenize("1,991") == tokenize("１９９１")


@pytest.mark.parametrize(
    ("text", "as_one"),
    [("Wi-Fi", "wifi"), ("e-mail", "email"), ("log-in", "login"), ("get_status", "getStatus")],
)
def test_a_word_with_its_parts_joined_is_the_word_without_hyphen(text: str, as_one: str) -> None:
    assert {*tokenize(as_one)} < {*tokenize(text)}


def test_long_words_with_a_hyphen_do_not_count_twice() -> None:
    assert tokenize("well-known") == ["well", "known"]


def test_a_number_and_its_unit_are_two_words_also_without_a_space() -> None:
    assert {*tokenize("5,200 mAh")} < {*tokenize("5200mAh")}
    assert tokenize("the 1st of the 1990s") == ["1st", "1990s"]


@pytest.mark.parametrize(
    "date",
    ["1 May 2024", "May 1st, 2024", "2024/5/1", "2024年5月1日", "令和６年５月１日"],
)
def test_a_date_has_a_token_that_it_has_in_any_form(date: str) -> None:
    assert "20240501" in tokenize(date)
    assert "20240501" in tokenize("2024-05-01")


def test_a_telephone_number_is_the_same_with_and_without_hyphens() -> None:
    assert {*tokenize("0120123456")} < {*tokenize("0120-123-456")}


def test_hangul_and_lone_surrogates_are_not_han() -> None:
    assert tokenize("가나다라마바") == ["가나", "나다", "다라", "라마", "마바"]
    assert tokenize("雨\ud800犬") == ["雨", "犬"]


@given(st.text())
def test_any_text_has_tokens_without_spaces_or_punctuation(text: str) -> None:
    assert all(token and not re.search(r"[\s\ud800-\udfff、。]", token) for token in tokenize(text))


@given(st.text(st.sampled_from("bZé東ー雨カ가 ,1")))
def test_case_and_width_do_not_count(text: str) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
    assert tokenize(text) == tokenize(wide) == tokenize(text.upper())


def test_scripts_are_told_apart_by_their_characters() -> None:
    assert all(IS_CJK.match(character) for character in "東々〇あゝんアーヵㇰ가힣𠮷豈")
    assert not any(IS_CJK.match(character) for character in "aé1Жक。・ \ud800\ue000")


def test_a_function_is_a_tokenizer_with_its_qualified_name() -> None:
    assert Words.by(str.split).name == "str.split"
    assert Words.by(words).name == f"{__name__}.words"
    assert Words.by(functools.partial(words)).name == "functools.partial"
    assert Words.by(words).split("a b") == ["a", "b"]


@pytest.mark.parametrize("tokenizer", ["mecab", "sudachi", "", 3])
def test_an_unknown_tokenizer_is_refused_with_what_there_is(
    tokenizer: Callable[[str], list[str]],
) -> None:
    with pytest.raises(ValueError, match=r'"bigrams" or a function'):
        Words.by(tokenizer)


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Was kostet eine Fahrkarte nach Paris?", {"kostet", "fahrkart", "pari"}),
        ("Combien coûte un billet pour Paris ?", {"cout", "billet", "pari"}),
        ("Ile kosztuje bilet do Paryża?", {"kosztuj", "bilet", "paryza"}),
        ("Сколько стоит билет до Парижа?", {"сто", "билет", "париж"}),
        ("회사 VPN에 어떻게 접속하나요?", {"회사", "vpn", "에", "접속", "속하"}),
        ("When did the man die in the war?", {"man", "die", "war"}),
        ("OS upgrade", {"os", "upgrad"}),
    ],
)
def test_content_words_are_those_that_are_no_function_words_of_their_language(
    question: str, words: set[str]
) -> None:
    assert content_words(question) == words


@pytest.mark.parametrize(
    ("word", "other", "is_form"),
    [
        ("kundigung", "kundigungen", True),
        ("kuendigung", "kundigung", True),
        ("oryginalny", "oryginalnych", True),
        ("hucre", "hucredeki", True),
        ("reis", "reisekosten", False),
        ("truong", "truoc", False),
        ("arbeitszeit", "arbeitgeber", False),
        ("tag", "tage", False),
        ("東京都庁", "東京都庁舎", False),
    ],
)
def test_forms_of_a_word_begin_alike(word: str, other: str, is_form: bool) -> None:
    assert forms_among(word, [other]) == [other] * is_form


@pytest.mark.parametrize(
    ("question", "tokens"),
    [
        ("Was ist eine KI?", ["ki"]),  # "ki" is a function word of Turkish
        ("AIとは何ですか", ["ai"]),
        ("tea lake cat 湖", ["tea", "lake", "cat", "湖"]),
        ("Wie viel kostet die Fahrkarte?", ["kostet", "fahrkart"]),
        ("Come si chiama il presidente?", ["chiama", "president"]),
        ("Какой срок доставки?", ["срок", "доставк"]),
        ("What is Go?", ["go"]),
    ],
)
def test_only_function_words_of_the_language_of_a_question_are_dropped(
    question: str, tokens: list[str]
) -> None:
    assert search_tokens(question) == tokens
