from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.judging import exact_match, f1

pytestmark = pytest.mark.pure


def test_exact_match_takes_the_best_of_the_right_answers() -> None:
    assert exact_match("the France.", ("Normandy", "France")) == 1.0
    assert exact_match("in France", ("Normandy", "France")) == 0.0
    assert exact_match("「東京」。", ("東京",), "ja") == 1.0


def test_f1_counts_shared_words_as_often_as_both_have_them() -> None:
    assert f1("in northern France", ("France",)) == pytest.approx(0.5)
    assert f1("red red lamp", ("red lamp",)) == pytest.approx(0.8)
    assert f1("東京都", ("東京",), "ja") == pytest.approx(0.8)
    assert f1("Spain", ("France",)) == 0.0


def test_an_answer_of_articles_and_punctuation_alone_equals_only_another_such_one() -> None:
    assert f1("the.", ("a",)) == 1.0
    assert f1("the.", ("France",)) == 0.0


@given(st.text(), st.text(), st.sampled_from(["en", "ja"]))
def test_f1_is_symmetric_within_bounds_and_one_where_exact_match_is(
    first: str, second: str, language: str
) -> None:
    score = f1(first, [second], language)
    assert 0 <= score <= 1
    assert score == pytest.approx(f1(second, [first], language))
    if exact_match(first, [second], language):
        assert score == 1
