"""The retrieval units of Dense X Retrieval, as a base parser and as strategies, and FACTOIDWIKI's format."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import Document

from llama_pack_densex import DenseXRetrievalPack, SentencePropositionizer, compare
from llama_pack_densex.evaluation import DatasetError, PaperPassageNodeParser, read_dataset
from llama_pack_densex.evaluation.baselines import count_words
from llama_pack_densex.text.segments import sentence_spans
from tests.embedding import TrigramEmbedding
from tests.evaluation.comparing import small_set


def _sentence(words: int) -> str:
    return " ".join(["Word"] * (words - 1) + ["end."])


def _sizes(*sentence_sizes: int) -> list[float]:
    document = Document(text=" ".join(map(_sentence, sentence_sizes)))
    return [
        count_words(node.get_content())
        for node in PaperPassageNodeParser().get_nodes_from_documents([document])
    ]


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
    with pytest.raises(ValueError, match="max_words"):
        PaperPassageNodeParser(max_words=0)


@given(st.lists(st.integers(1, 130), max_size=12))
def test_passages_are_whole_sentences_in_order(sizes: list[int]) -> None:
    text = "\n\n".join(map(_sentence, sizes))
    spans = PaperPassageNodeParser().passage_spans(text)
    starts, ends = (
        {start for start, _ in sentence_spans(text)},
        {end for _, end in sentence_spans(text)},
    )
    assert all(start in starts and end in ends for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert sum(len(text[start:end].split()) for start, end in spans) == sum(sizes)


def test_the_pack_takes_them_for_its_passages() -> None:
    text = " ".join([_sentence(60), "The harbour was painted in 1901.", _sentence(60)])
    pack = DenseXRetrievalPack(
        [Document(text=text, id_="harbour")],
        embed_model="none",
        text_splitter=PaperPassageNodeParser(),
    )
    (found, *_) = pack.retrieve("When was the harbour painted?")
    assert found.node.get_content() == " ".join([_sentence(60), "The harbour was painted in 1901."])


@pytest.mark.parametrize("language", ["en", "ja"])
def test_its_units_are_compared(language: str) -> None:
    names = ["paper-passages", "paper-sentences", "paper-propositions"]
    report = compare(
        small_set(language),
        strategies=names,
        embed_model=TrigramEmbedding(),
        propositionizer=SentencePropositionizer(),
    )
    assert [strategy.name for strategy in report.strategies] == names
    passages, sentences, propositions = report.strategies
    assert passages.cost.units == 2
    assert sentences.cost.units == propositions.cost.units == 12
    assert sentences.metrics["gold@5"] == 1.0
    assert all(strategy.metrics["answer_recall"] == 1.0 for strategy in report.strategies)


class TestFactoidWiki:
    """A corpus as https://huggingface.co/datasets/chentong00/factoid-wiki has it, to ask DPR's questions."""

    LAMP = "Lamp\nColour\nIt is red."

    def corpus(self, folder: Path, *lines: object) -> Path:
        file = folder / "units.jsonl.gz"
        file.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
        (folder / "q.jsonl").write_text(
            '{"question": "What colour is it?", "answers": ["red"]}\n', encoding="utf-8"
        )
        return file

    def test_units_of_one_title_are_the_passages_of_an_article(self, tmp_path: Path) -> None:
        spans = {"title_span": [0, 4], "section_span": [5, 11], "content_span": [12, 22]}
        corpus = self.corpus(
            tmp_path,
            {"id": "1", "contents": self.LAMP, "metadata": spans},
            {
                "id": "2",
                "contents": "Lamp\nIt burns.",
                "metadata": {"title_span": [0, 4], "content_span": [5, 14]},
            },
            {"id": "3", "contents": "No title."},
        )
        found = read_dataset(tmp_path / "q.jsonl", corpus)
        assert [(document.text, document.metadata) for document in found.documents] == [
            ("It is red. It burns.", {"title": "Lamp"}),
            ("No title.", {}),
        ]
        assert [passage.text for passage in found.passage_documents()] == [
            "It is red.",
            "It burns.",
            "No title.",
        ]

    def test_a_damaged_line_is_named(self, tmp_path: Path) -> None:
        corpus = self.corpus(tmp_path, {"id": "1"})
        with pytest.raises(DatasetError, match="line 1: 'text' or 'contents' is missing"):
            read_dataset(tmp_path / "q.jsonl", corpus)
