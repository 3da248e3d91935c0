from __future__ import annotations

import logging
from collections.abc import Sequence

import bm25s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_index import LexicalIndex
from llama_pack_densex.retrieval.lexical_samples import scores_by_words
from llama_pack_densex.retrieval.tokens import make_tokenizer
from tests.retrieval.lexical_records import index_of, record

WORDS = "abcdefgh"
words = st.sampled_from(WORDS)
texts_of_words = st.lists(st.lists(words, max_size=6), max_size=6)


def index(texts: list[list[str]], units: Sequence[list[str]] = ()) -> LexicalIndex:
    passages = [record(str(place), "passage", " ".join(text)) for place, text in enumerate(texts)]
    sentences = [record(f"unit {place}", "sentence", " ".join(text), "0") for place, text in enumerate(units)]
    return index_of([*passages, *sentences], str.split)


def reference(texts: list[list[str]], query: list[str]) -> dict[str, float]:
    """The scores above 0 that bm25s gives."""
    if not any(texts) or not query:
        return {}
    numbers = [[WORDS.index(word) for word in text] for text in texts]
    index = bm25s.BM25(method="lucene")
    index.index((numbers, {str(number): number for number in range(len(WORDS))}), show_progress=False)
    scores = index.get_scores_from_ids([WORDS.index(word) for word in query])
    return {str(place): float(score) for place, score in enumerate(scores) if score > 0}


@given(texts_of_words, st.lists(words, max_size=6))
def test_scores_are_those_of_bm25s(texts: list[list[str]], query: list[str]) -> None:
    hits, found = index(texts).search(" ".join(query), len(texts), ())
    assert {hit.passage_id: hit.score for hit in hits} == pytest.approx(reference(texts, query), abs=1e-5)
    assert found == len(hits)


@given(texts_of_words, st.lists(words, max_size=6))
def test_scores_of_units_are_those_of_bm25s_over_the_units(units: list[list[str]], query: list[str]) -> None:
    hits, _ = index([list(WORDS)], units).search(" ".join(query), 1, ("sentence",))
    scores = {unit.id.removeprefix("unit "): unit.score for hit in hits for unit in hit.units}
    assert scores == pytest.approx(reference(units, query), abs=1e-5)


@given(texts_of_words, st.lists(words, max_size=6))
def test_a_text_is_found_where_it_has_a_word_of_the_query(texts: list[list[str]], query: list[str]) -> None:
    hits, _ = index(texts).search(" ".join(query), len(texts), ())
    assert {int(hit.passage_id) for hit in hits} == {place for place, text in enumerate(texts) if {*text} & {*query}}


@given(texts_of_words, st.lists(st.lists(words, max_size=6), max_size=3))
def test_the_scores_of_a_few_texts_are_those_of_an_index(texts: list[list[str]], questions: list[list[str]]) -> None:
    joined = [" ".join(question) for question in questions]
    scores = scores_by_words([" ".join(text) for text in texts], joined, make_tokenizer(str.split))
    assert scores.shape == (len(questions), len(texts))
    for row, question in zip(scores.tolist(), joined, strict=True):
        hits, _ = index(texts).search(question, len(texts), ())
        found = {str(place): score for place, score in enumerate(row) if score > 0}
        assert found == pytest.approx({hit.passage_id: hit.score for hit in hits}, abs=1e-5)


def test_nothing_is_printed_or_logged(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET)
    index([["a", "b"], ["b", "c"]]).search("b", 1, ())
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
