"""Questions of two hops: what a passage names leads to the passage that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from typer.testing import CliRunner

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.cli import app
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.retrieval.hits import matched_units
from tests.searching import ShortEmbedding

FIRST, SECOND = "first", "second"
CHAINS = {
    "en": (
        "Who was the first president of the body that publishes the Journal of Tidal Studies?",
        "The Journal of Tidal Studies is a quarterly of the Harrowgate Fellowship.",
        "Ada Lindqvist presided over the Harrowgate Fellowship when it began in a tea room.",
        "The first president of the {} body publishes a report on studies each year.",
        (
            "Ashby",
            "Birch",
            "Calder",
            "Denby",
            "Elmet",
            "Farley",
            "Garth",
            "Hexham",
            "Ilkley",
            "Keld",
            "Lund",
        ),
    ),
    "ja": (
        "潮汐学報を発行する団体の初代会長は誰ですか。",
        "『潮汐学報』は、ハロゲイト協会が出す季刊の雑誌である。",
        "アダ・リンドは茶房でハロゲイト協会を起こし、その長となった。",
        "{}という団体の初代会長は、学報を毎年発行する。",
        (
            "アシビ",
            "カバノ",
            "タニマ",
            "ハザマ",
            "マツバ",
            "ヤナギ",
            "ラベル",
            "ワカバ",
            "サクラ",
            "ナギサ",
            "キクノ",
        ),
    ),
}
SEARCHES: dict[str, dict[str, Any]] = {
    "words": {"embed_model": "none"},
    "embeddings": {"embed_model": ShortEmbedding(), "hybrid": False},
    "hybrid": {"embed_model": ShortEmbedding()},
    "another store": {"embed_model": ShortEmbedding(), "vector_store": SimpleVectorStore},
}


def chain(language: str) -> list[Document]:
    _, first, second, other, names = CHAINS[language]
    others = [
        Document(text=other.format(name), id_=name, metadata={"kind": "other"}) for name in names
    ]
    return [Document(text=first, id_=FIRST), *others, Document(text=second, id_=SECOND)]


def pack_of(language: str, hops: int = 2, **options: Any) -> DenseXRetrievalPack:
    arguments = {"embed_model": "none", **options}
    if "vector_store" in arguments:
        arguments["vector_store"] = arguments["vector_store"]()
    return DenseXRetrievalPack(
        chain(language), proposition_llm="none", query_llm="none", hops=hops, **arguments
    )


def sources(results: Sequence[NodeWithScore]) -> list[str | None]:
    return [result.node.ref_doc_id for result in results]


def led_by(results: Sequence[NodeWithScore]) -> dict[str | None, str]:
    return {
        result.node.ref_doc_id: unit.led_by
        for result in results
        for unit in matched_units(result.node)
        if unit.led_by
    }


@pytest.mark.parametrize("language", CHAINS)
@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
def test_a_name_leads_to_the_passage_that_answers(language: str, mode: str) -> None:
    question, first, second, *_ = CHAINS[language]
    assert SECOND not in sources(pack_of(language, hops=1, mode=mode).retrieve(question))
    results = pack_of(language, mode=mode).retrieve(question)
    assert {FIRST, SECOND} <= {*sources(results)}
    assert sources(results).index(FIRST) < sources(results).index(SECOND)
    assert led_by(results)[SECOND] == first
    context = PropositionContextPostprocessor().postprocess_nodes(results)
    read = "\n".join(node.get_content() for node in context)
    assert first in read
    assert second in read


@pytest.mark.parametrize("language", CHAINS)
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_of_every_store_goes_on(language: str, search: str) -> None:
    question = CHAINS[language][0]
    depth = len(chain(language))
    before = pack_of(language, hops=1, **SEARCHES[search]).retrieve(question, depth)
    after = pack_of(language, **SEARCHES[search]).retrieve(question, depth)
    assert sources(after)[0] == sources(before)[0]
    assert {*sources(before), SECOND} <= {*sources(after)}
    assert len({*sources(after)}) == len(after)
    place = sources(after).index(SECOND)
    assert place <= [*sources(before), SECOND].index(SECOND)


@pytest.mark.parametrize("language", CHAINS)
def test_it_goes_on_asynchronously(language: str) -> None:
    question = CHAINS[language][0]
    pack = pack_of(language)
    asynchronous = asyncio.run(pack.aretrieve(question))
    assert [(node.node_id, node.score) for node in asynchronous] == [
        (node.node_id, node.score) for node in pack.retrieve(question)
    ]
    assert led_by(asynchronous)[SECOND]


@pytest.mark.parametrize(
    ("language", "question"),
    [
        ("en", "Of which fellowship is the Journal of Tidal Studies a quarterly?"),
        ("en", "Who presided over the Harrowgate Fellowship when it began in a tea room?"),
        ("ja", "潮汐学報はハロゲイト協会が出す季刊の雑誌ですか。"),
    ],
)
def test_a_question_that_a_passage_answers_is_left_as_it_is(language: str, question: str) -> None:
    before = pack_of(language, hops=1).retrieve(question)
    after = pack_of(language).retrieve(question)
    assert [(node.node_id, node.score) for node in after] == [
        (node.node_id, node.score) for node in before
    ]
    assert not led_by(after)


@pytest.mark.parametrize(
    ("question", "best", "second", "aside"),
    [
        (
            "In which month of spring do the tidal scholars elect a new president at their assembly?",
            "The Harrowgate Fellowship of tidal scholars elects its president every spring.",
            "Scholars of many bodies elect a president.",
            "Visitors admire the Harrowgate Fellowship for its garden in a valley of apple trees.",
        ),
        (
            "春の総会で会長を選挙で選ぶ学者は誰ですか。",
            "ハロゲイト協会の潮汐学者は、毎年春に会長を選挙で選ぶ。",
            "多くの団体の学者は会長を選ぶ。",
            "観光客はハロゲイト協会の庭園と林檎の並木を愛でる。",
        ),
    ],
)
def test_what_a_path_adds_nothing_to_stands_behind_the_best(
    question: str, best: str, second: str, aside: str
) -> None:
    texts = [best, second, aside, *(f"{name} 9:00" for name in CHAINS["en"][-1])]
    pack = DenseXRetrievalPack(
        [Document(text=text, id_=text) for text in texts],
        proposition_llm="none",
        query_llm="none",
        embed_model="none",
        hops=2,
    )
    results = pack.retrieve(question)
    assert sources(results) == [best, second, aside]
    assert led_by(results) == {aside: best}
    scores = [matched_units(result.node)[0].score for result in results]
    assert scores[2] < min(scores[:2])


def test_nothing_is_led_to_that_does_not_pass_the_filters() -> None:
    others = MetadataFilter(key="kind", value="other", operator=FilterOperator.NE)
    question = CHAINS["en"][0]
    documents = [
        *chain("en"),
        Document(text=CHAINS["en"][2], id_="copy", metadata={"kind": "other"}),
    ]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none", hops=2
    )
    filters = MetadataFilters(filters=[others])
    assert sorted(map(str, sources(pack.retrieve(question, filters=filters)))) == [FIRST, SECOND]


def test_a_citation_says_what_led_there() -> None:
    question, first, *_ = CHAINS["en"]
    response = pack_of("en").run(question)
    citations = (response.metadata or {})["citations"]
    assert {citation["led_by"] for citation in citations if citation["document"] != SECOND} <= {""}
    assert all(
        citation["led_by"] == first for citation in citations if citation["document"] == SECOND
    )


def test_an_index_keeps_how_many_hops_its_questions_take(tmp_path: Path) -> None:
    question = CHAINS["en"][0]
    pack_of("en", persist_dir=tmp_path / "index")
    assert led_by(DenseXRetrievalPack.load(tmp_path / "index", query_llm="none").retrieve(question))
    once = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none", hops=1)
    assert not led_by(once.retrieve(question))


def test_the_command_line_has_hops_and_shows_what_led_where(tmp_path: Path) -> None:
    for document in chain("en"):
        (tmp_path / f"{document.id_}.txt").write_text(document.text, encoding="utf-8")
    run = CliRunner().invoke
    index = str(tmp_path / "index")
    indexing = ["index", str(tmp_path), "--to", index, "--llm", "none", "--embed-model", "none"]
    assert run(app, [*indexing, "--hops", "2"]).exit_code == 0
    asking = ["query", index, CHAINS["en"][0], "--llm", "none"]
    assert "led here by: The Journal of Tidal Studies" in " ".join(run(app, asking).output.split())
    assert "led here by" not in run(app, [*asking, "--hops", "1"]).output


@pytest.mark.parametrize("hops", [0, 3, "2"])
def test_there_are_one_or_two_hops(hops: Any) -> None:
    with pytest.raises(ValueError, match="hops="):
        pack_of("en", hops=hops)
