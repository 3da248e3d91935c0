from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_texts import TokenisedTexts
from llama_pack_densex.retrieval.tokens import tokenize

texts_lists = st.lists(st.text(st.sampled_from("ab 東京\ud800"), max_size=8), max_size=8)


def tokenised(*texts: str) -> TokenisedTexts:
    return TokenisedTexts.none("bigrams").updated(texts, tokenize)


def tokens_of(texts: TokenisedTexts, text: str) -> list[str]:
    words = list(texts.vocabulary)
    return [words[number] for number in texts.of([text])[0].tolist()]


@given(st.lists(texts_lists, min_size=1, max_size=4))
def test_after_any_changes_each_text_has_its_own_tokens(states: list[list[str]]) -> None:
    texts = TokenisedTexts.none("bigrams")
    for state in states:
        texts = texts.updated(state, tokenize)
        assert len(texts.digests) == len({*state})
        assert [tokens_of(texts, text) for text in state] == [tokenize(text) for text in state]


def test_a_text_is_split_once() -> None:
    split: list[str] = []

    def counting(text: str) -> list[str]:
        split.append(text)
        return text.split()

    texts = TokenisedTexts.none("counting").updated(["a b", "c", "a b"], counting)
    texts = texts.updated(["c", "d", "a b"], counting)
    assert split == ["a b", "c", "d"]
    assert texts.updated(["d", "a b", "c"], counting) is texts


def test_an_update_leaves_the_texts_that_a_search_is_reading_as_they_are() -> None:
    before = tokenised("one two")
    before.updated(["three"], tokenize)
    assert list(before.vocabulary) == tokenize("one two")


def test_words_of_texts_that_are_gone_are_forgotten() -> None:
    texts = tokenised("fox", "a hundred other words stood here")
    assert list(texts.updated(["fox"], tokenize).vocabulary) == ["fox"]


def test_another_way_of_splitting_is_noticed() -> None:
    texts = tokenised("one fox runs", "two foxes run")
    assert texts.agrees_with(["one fox runs", "not known"], tokenize)
    assert not texts.agrees_with(["one fox runs"], str.split)
    assert texts.agrees_with([], tokenize)


def test_pairs_are_found_by_their_characters() -> None:
    texts = tokenised("雨が 大雨 rain")
    words = list(texts.vocabulary)
    assert {words[number] for number in texts.pairs_with("雨")} == {"雨が", "大雨"}
    assert texts.pairs_with("雪") == []


@pytest.mark.parametrize("wrong", ["a string", [1, 2], [None]])
def test_a_tokenizer_must_return_strings(wrong: Sequence[str]) -> None:
    with pytest.raises(TypeError, match=r"mine\.split must return a sequence of strings"):
        TokenisedTexts.none("mine.split").updated(["text"], lambda text: wrong)
