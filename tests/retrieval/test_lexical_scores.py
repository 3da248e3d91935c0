from __future__ import annotations

import logging

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_scores import BM25

WORDS = 8
texts_of_numbers = st.lists(st.lists(st.integers(0, WORDS - 1), max_size=6), max_size=6)


def bm25(texts: list[list[int]]) -> BM25:
    tokens = [number for text in texts for number in text]
    return BM25(np.array(tokens, dtype=np.int64), np.array([len(t) for t in texts], dtype=np.int64), WORDS)


@given(texts_of_numbers, st.lists(st.integers(0, WORDS - 1), max_size=6))
def test_scores_are_those_of_bm25s(texts: list[list[int]], query: list[int]) -> None:
    scores = bm25(texts).scores(query)
    assert scores.shape == (len(texts),)
    if not any(texts) or not query:
        assert not scores.any()
        return
    reference = bm25s.BM25(method="lucene")
    reference.index((texts, {str(number): number for number in range(WORDS)}), show_progress=False)
    assert scores == pytest.approx(reference.get_scores_from_ids(query), abs=1e-5)


@given(texts_of_numbers, st.lists(st.integers(0, WORDS - 1), max_size=6))
def test_a_text_scores_above_zero_where_it_has_a_word_of_the_query(texts: list[list[int]], query: list[int]) -> None:
    assert (bm25(texts).scores(query) > 0).tolist() == [bool({*text} & {*query}) for text in texts]


@pytest.mark.parametrize("texts", [[], [[]], [[], []], [[3]]])
def test_degenerate_corpora_have_scores(texts: list[list[int]]) -> None:
    assert bm25(texts).scores([1, 2]).tolist() == [0.0] * len(texts)


def test_nothing_is_printed_or_logged(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET)
    bm25([[1, 2], [2, 3]]).scores([2])
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
