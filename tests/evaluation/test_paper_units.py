from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import Document

from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.evaluation.data import EvaluationSet
from llama_pack_densex.evaluation.factoid_wiki import read_factoid_wiki, write_factoid_wiki
from llama_pack_densex.evaluation.paper_units import (
    PaperUnit,
    count_words,
    passage_spans,
    passages,
    propositions,
    sentences,
    with_paper_passages,
)
from llama_pack_densex.evaluation.readers.records import DatasetError
from llama_pack_densex.propositionizers.segmentation import sentence_spans


def _sentence(words: int) -> str:
    return " ".join(["Word"] * (words - 1) + ["end."])


def _sizes(*sentence_sizes: int) -> list[float]:
    text = " ".join(map(_sentence, sentence_sizes))
    return [count_words(text[start:end]) for start, end in passage_spans(text)]


def test_a_passage_has_at_most_100_words_and_ends_with_a_sentence() -> None:
    assert _sizes(40, 40, 40, 60) == [80, 100]
    assert _sizes(60, 40, 70) == [100, 70]


def test_a_last_passage_of_under_50_words_joins_the_one_before() -> None:
    assert _sizes(60, 40, 49) == [149]
    assert _sizes(60, 40, 50) == [100, 50]
    assert _sizes(49) == [49]


def test_a_sentence_of_more_than_100_words_is_a_passage() -> None:
    assert _sizes(60, 150, 60) == [60, 150, 60]


def test_two_japanese_characters_count_as_a_word() -> None:
    assert count_words("琵琶湖は日本最大の湖") == 5
    assert count_words("JR東日本 の駅") == 1 + 2.5
    assert count_words("two words") == 2


def test_the_largest_size_is_checked() -> None:
    with pytest.raises(ValueError, match="max_words is 0"):
        passage_spans("Text.", 0)


@given(st.lists(st.integers(1, 130), max_size=12))
def test_passages_are_whole_sentences_in_order(sizes: list[int]) -> None:
    text = "\n\n".join(map(_sentence, sizes))
    spans = passage_spans(text)
    starts, ends = {start for start, _ in sentence_spans(text)}, {end for _, end in sentence_spans(text)}
    assert all(start in starts and end in ends for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert sum(len(text[start:end].split()) for start, end in spans) == sum(sizes)


def test_units_of_the_three_kinds_carry_their_title() -> None:
    text = "Green tea is steamed. Black tea is oxidised."
    documents = [Document(id_="tea", text=text, metadata={"title": "Tea"})]
    assert passages(documents) == [PaperUnit("tea/0", text, "Tea")]
    assert sentences(documents)[1] == PaperUnit("tea/1", "Black tea is oxidised.", "Tea")
    made = propositions(documents, SentencePropositionizer())
    assert made[1] == PaperUnit("tea/0/1", "Black tea is oxidised.", "Tea")


def test_a_set_is_cut_into_the_papers_passages() -> None:
    text = " ".join([_sentence(60), _sentence(60)])
    whole = EvaluationSet("tea", "en", [Document(id_="tea", text=text)], [], {"tea": [(0, len(text))]})
    assert [document.id_ for document in with_paper_passages(whole).passage_documents()] == ["tea/0", "tea/1"]
    assert len(whole.passage_documents()) == 1


@pytest.mark.parametrize("name", ["units.jsonl", "units.jsonl.gz"])
def test_units_come_back_from_factoidwikis_format(tmp_path: Path, name: str) -> None:
    units = [PaperUnit("1/0", "灯りは赤い。\nTwo lines.", "灯り", "Colour"), PaperUnit("2/0", "No title.")]
    assert write_factoid_wiki(tmp_path / name, units) == 2
    assert list(read_factoid_wiki(tmp_path / name)) == units


def test_a_line_has_what_pyserini_indexes_and_where_its_parts_stand(tmp_path: Path) -> None:
    file = tmp_path / "units.jsonl"
    write_factoid_wiki(file, [PaperUnit("1", "It is red.", "Lamp")])
    assert file.read_text(encoding="utf-8") == (
        '{"id": "1", "contents": "Lamp\\nIt is red.", '
        '"metadata": {"title_span": [0, 4], "section_span": [4, 4], "content_span": [5, 15]}}\n'
    )


def test_a_line_without_spans_is_all_text(tmp_path: Path) -> None:
    file = tmp_path / "units.jsonl"
    file.write_text('{"id": "1", "contents": "It is red."}\n', encoding="utf-8")
    assert list(read_factoid_wiki(file)) == [PaperUnit("1", "It is red.")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "1"}', "line 1: 'contents' is missing"),
        ('{"id": "1", "contents": "x", "metadata": []}\n{"id"', "line 2: expected a JSON object"),
        ('{"id": "1", "contents": "x", "metadata": {"content_span": [0, 2]}}', r"content_span is \[0, 2\]"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "units.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(DatasetError, match=said):
        list(read_factoid_wiki(file))
