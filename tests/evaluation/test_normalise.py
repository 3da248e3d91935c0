from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.judging import contains_answer, normalise_answer

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("answer", "normalised"),
    [
        ("The Eiffel Tower!", "eiffel tower"),
        ("  an   apple, a day ", "apple day"),
        ("anthem", "anthem"),
        ("U.S.", "us"),
        ("1,991", "1991"),
    ],
)
def test_english_answers_are_normalised_as_in_squads_script(answer: str, normalised: str) -> None:
    assert normalise_answer(answer) == normalised


@pytest.mark.parametrize(
    ("answer", "normalised"),
    [
        ("「２０２３ 年」。", "2023年"),
        ("東京優駿（日本ダービー）", "東京優駿日本ダービー"),
        ("レオナルド・ダ・ヴィンチ", "レオナルドダヴィンチ"),
        ("ｶﾞｽ、 Tower", "ガスtower"),
        ("the A 級", "thea級"),
        ("人々", "人々"),
    ],
)
def test_japanese_answers_lose_width_punctuation_and_spaces_but_no_article(
    answer: str, normalised: str
) -> None:
    assert normalise_answer(answer, "ja") == normalised


def test_other_languages_keep_their_articles_and_spaces() -> None:
    assert normalise_answer("«La Tour Eiffel»", "fr") == "la tour eiffel"


@given(st.text(), st.sampled_from(["en", "ja", "fr"]))
def test_no_punctuation_and_no_needless_space_is_left(text: str, language: str) -> None:
    normalised = normalise_answer(text, language)
    assert not set(normalised) & set(string.punctuation)
    assert normalised == ("" if language == "ja" else " ").join(normalised.split())


def test_an_answer_is_found_whatever_its_case_width_and_spacing() -> None:
    assert contains_answer("It is in NORMANDY,\nFrance.", ["normandy, france"])
    assert contains_answer("面積は６７０ 平方キロ", ["670平方キロ"], "ja")
    assert not contains_answer("It is in Spain.", ["France"])


def test_a_blank_answer_is_never_found() -> None:
    assert not contains_answer("Anything.", ["", "  "])


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("It was built in 1993.", "3", False),
        ("It was built in 1993.", "1993", True),
        ("The party began.", "art", False),
        ("Modern art, mostly.", "art", True),
        ("Rollo's followers", "Rollo", True),
        ("It cost US$3 million.", "$3 million", True),
        ("It cost $3 million.", "$3", True),
        ("(10th century)", "10th Century", True),
        ("a 10-year plan", "10", True),
        ("un café serré", "cafe", False),
    ],
)
def test_an_answer_begins_and_ends_where_a_word_does(text: str, answer: str, found: bool) -> None:
    assert contains_answer(text, [answer]) == found


@pytest.mark.parametrize(
    ("text", "answer", "language"),
    [
        ("面積は約670平方キロです", "670", "ja"),
        ("它建于1993年", "1993", "zh"),
        ("서울에서 열렸다", "서울", "ko"),
    ],
)
def test_where_words_are_written_together_an_answer_stands_anywhere(
    text: str, answer: str, language: str
) -> None:
    assert contains_answer(text, [answer], language)
