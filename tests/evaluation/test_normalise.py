from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.normalise import answer_tokens, contains_answer, normalise_answer


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
def test_japanese_answers_lose_width_punctuation_and_spaces_but_no_article(answer: str, normalised: str) -> None:
    assert normalise_answer(answer, "ja") == normalised


def test_other_languages_keep_their_articles_and_spaces() -> None:
    assert normalise_answer("«La Tour Eiffel»", "fr") == "la tour eiffel"


def test_tokens_are_words_in_english_and_characters_in_japanese() -> None:
    assert answer_tokens("The red lamp.") == ["red", "lamp"]
    assert answer_tokens("赤い 灯り。", "ja") == list("赤い灯り")


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


def test_whole_words_do_not_find_an_answer_inside_a_word() -> None:
    assert contains_answer("The party began.", ["art"])
    assert not contains_answer("The party began.", ["art"], whole_words=True)
    assert contains_answer("Modern art, mostly.", ["art"], whole_words=True)
