from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.evaluation.evidence import contains_answer, first_words, length_until_answer

pytestmark = pytest.mark.pure

UNITS = ["One two three.", "It is in Normandy, France, today."]


def test_an_answer_is_complete_with_its_last_word() -> None:
    assert length_until_answer(UNITS, ["Normandy, France"]) == 3 + 5
    assert length_until_answer(UNITS, ["Spain"]) is None


def test_japanese_is_counted_in_characters_without_spaces() -> None:
    assert length_until_answer(["灯りは\n赤い。"], ["赤"], "ja") == 4


def test_an_answer_does_not_run_from_one_unit_into_the_next() -> None:
    assert length_until_answer(["It is in New", "York has it."], ["New York"]) is None


def test_a_reader_gets_the_first_words_of_the_units_in_order() -> None:
    assert first_words(UNITS, 5) == ["One two three.", "It is"]
    assert first_words(UNITS, 3) == ["One two three."]
    assert first_words(UNITS, 100) == UNITS
    assert first_words(UNITS, 0) == []
    assert first_words(["灯りは 赤い。"], 4, "ja") == ["灯りは 赤"]


@given(
    st.lists(st.text(alphabet="ab \n"), max_size=5), st.text(alphabet="ab", min_size=1, max_size=3)
)
def test_an_answer_is_in_the_first_words_exactly_from_its_length_on(
    texts: list[str], answer: str
) -> None:
    needed = length_until_answer(texts, [answer])
    for length in range(12):
        found = any(contains_answer(text, [answer]) for text in first_words(texts, length))
        assert found == (needed is not None and needed <= length)
