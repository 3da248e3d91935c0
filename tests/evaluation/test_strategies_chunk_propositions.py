"""Recorded propositions of passages, shared out to chunks cut at other places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document

from llama_pack_densex import Passage, RecordedPropositionizer
from llama_pack_densex.evaluation import EvaluationSet
from llama_pack_densex.evaluation.strategy import ChunkPropositionizer

FIRST = "The mill stood in Nendrum. It was built in 619. Monks dug it up."
SECOND = "The tide drove its wheel. Grain was ground there."
LAKE = "琵琶湖は日本最大の湖である。面積は約670平方キロメートルに及ぶ。"
FACTS = {
    FIRST: [
        "The tidal mill stood in Nendrum.",
        "The tidal mill was built in 619.",
        "Monks dug the mill up.",
    ],
    SECOND: ["The tide drove the mill's wheel.", "Grain was ground in the mill."],
    LAKE: ["琵琶湖は日本最大の湖である。", "琵琶湖の面積は約670平方キロメートルである。"],
}


def over(tmp_path: Path, *articles: list[str]) -> ChunkPropositionizer:
    file = tmp_path / "recorded.jsonl"
    lines = [
        json.dumps({"title": "", "text": text, "propositions": facts})
        for text, facts in FACTS.items()
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    documents = [
        Document(id_=str(number), text="\n\n".join(article))
        for number, article in enumerate(articles)
    ]
    spans = {
        document.id_: [
            (start := document.text.index(passage), start + len(passage)) for passage in article
        ]
        for document, article in zip(documents, articles, strict=True)
    }
    dataset = EvaluationSet("mills", "en", documents, [], spans)
    return ChunkPropositionizer(RecordedPropositionizer(file), dataset)


def test_a_chunk_of_whole_passages_has_all_their_propositions(tmp_path: Path) -> None:
    (made,) = over(tmp_path, [FIRST, SECOND]).propositionize([Passage(f"{FIRST}\n\n{SECOND}")])
    assert made.texts == (*FACTS[FIRST], *FACTS[SECOND])
    assert made.status == "ok"


def test_a_passage_cut_in_two_shares_its_propositions_out(tmp_path: Path) -> None:
    chunks = ["The mill stood in Nendrum.", f"It was built in 619. Monks dug it up.\n\n{SECOND}"]
    first, second = over(tmp_path, [FIRST, SECOND]).propositionize(
        [Passage(chunk) for chunk in chunks]
    )
    assert first.texts == (FACTS[FIRST][0],)
    assert second.texts == (*FACTS[FIRST][1:], *FACTS[SECOND])


def test_overlapping_chunks_both_have_what_is_in_both(tmp_path: Path) -> None:
    chunks = [
        "The mill stood in Nendrum. It was built in 619.",
        "It was built in 619. Monks dug it up.",
    ]
    first, second = over(tmp_path, [FIRST]).propositionize([Passage(chunk) for chunk in chunks])
    assert FACTS[FIRST][1] in first.texts
    assert FACTS[FIRST][1] in second.texts


def test_japanese_passages_are_shared_out_too(tmp_path: Path) -> None:
    first, second = over(tmp_path, [LAKE]).propositionize(
        [Passage("琵琶湖は日本最大の湖である。"), Passage("面積は約670平方キロメートルに及ぶ。")]
    )
    assert (first.texts, second.texts) == ((FACTS[LAKE][0],), (FACTS[LAKE][1],))


def test_every_proposition_goes_to_a_chunk(tmp_path: Path) -> None:
    article = Document(text=f"{FIRST}\n\n{SECOND}")
    chunks = SentenceSplitter(chunk_size=12, chunk_overlap=0).get_nodes_from_documents([article])
    assert len(chunks) > 2
    sets = over(tmp_path, [FIRST, SECOND]).propositionize(
        [Passage(chunk.get_content()) for chunk in chunks]
    )
    assert {text for made in sets for text in made.texts} >= {*FACTS[FIRST], *FACTS[SECOND]}


def test_a_chunk_without_any_has_its_sentences(tmp_path: Path) -> None:
    (made,) = over(tmp_path, [FIRST]).propositionize([Passage("Rain fell.")])
    assert (made.texts, made.status) == (("Rain fell.",), "fallback")


def test_a_passage_that_is_not_recorded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in"):
        over(tmp_path, ["Nobody recorded this."])
