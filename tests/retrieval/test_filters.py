from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.retrieval.hits import matched_units
from tests.searching import ShortEmbedding, identity, sources

MODES = ["recursive", "auto_merging"]
KINDS = ["lexical", "dense", "hybrid", "dense in a store", "hybrid in a store"]
QUESTION = "Where is the lamp of the 灯台?"

CORPUS = [
    Document(
        id_="a", text="The red lamp hangs in the hall.", metadata={"year": 1990, "place": "hall"}
    ),
    Document(
        id_="b",
        text="The lamp of the ship is green.",
        metadata={"year": 2001, "tags": ["ship", "灯"]},
    ),
    Document(
        id_="c",
        text="灯台のlampは白い。海から見える。",
        metadata={"year": 2010, "place": "海岸", "tags": ["灯"]},
    ),
    Document(
        id_="d", text="灯台は古い。石でできている。", metadata={"year": 1880, "place": "海岸"}
    ),
    Document(
        id_="e", text="A lamp needs oil. Oil is dear.", metadata={"year": "unknown", "tags": []}
    ),
]


def where(key: str, value: Any, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


def all_of(*parts: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(parts))


def any_of(*parts: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(parts), condition=FilterCondition.OR)


FLAT = {
    "equal": (all_of(where("place", "hall")), "a"),
    "equal in Japanese": (all_of(where("place", "海岸")), "cd"),
    "one of": (all_of(where("year", [1880, 2001], FilterOperator.IN)), "bd"),
    "contains": (all_of(where("tags", "灯", FilterOperator.CONTAINS)), "bc"),
    "contains any": (all_of(where("tags", ["ship", "x"], FilterOperator.ANY)), "b"),
    "text": (all_of(where("place", "岸", FilterOperator.TEXT_MATCH)), "cd"),
    "both": (all_of(where("place", "海岸"), where("tags", "灯", FilterOperator.CONTAINS)), "c"),
    "either": (
        any_of(where("place", "hall"), where("tags", "ship", FilterOperator.CONTAINS)),
        "ab",
    ),
    "no filter": (all_of(), "abcde"),
}
# core's SimpleVectorStore refuses nested filters and values that cannot be compared; before 0.14.20 it finds
# nothing that lacks the key
EMBEDDED_ONLY = {
    "not equal": (all_of(where("place", "海岸", FilterOperator.NE)), "abe"),
    "greater": (all_of(where("year", 1995, FilterOperator.GT)), "bc"),
    "nested": (
        all_of(
            where("year", 1900, FilterOperator.GTE),
            any_of(where("place", "hall"), where("place", "海岸")),
        ),
        "ac",
    ),
    "nested twice": (
        any_of(
            where("place", "hall"),
            all_of(where("place", "海岸"), any_of(where("year", 1880), where("year", 1))),
        ),
        "ad",
    ),
}


def build(kind: str, documents: list[Document] = CORPUS, **options: Any) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(
        documents,
        query_llm="none",
        embed_model="none" if kind == "lexical" else ShortEmbedding(),
        hybrid=not kind.startswith("dense"),
        vector_store=SimpleVectorStore() if kind.endswith("store") else None,
        **options,
    )


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "recursive") for kind in KINDS),
        *((kind, "auto_merging") for kind in ("lexical", "hybrid")),
    ],
)
async def test_only_documents_whose_metadata_pass_are_found(kind: str, mode: str) -> None:
    pack = build(kind, mode=mode)
    cases = FLAT if kind.endswith("store") else {**FLAT, **EMBEDDED_ONLY}
    for name, (filters, expected) in cases.items():
        for found in (
            pack.retrieve(QUESTION, similarity_top_k=5, filters=filters),
            await pack.aretrieve(QUESTION, similarity_top_k=5, filters=filters),
            pack.run(QUESTION, similarity_top_k=5, filters=filters).source_nodes,
            (await pack.arun(QUESTION, similarity_top_k=5, filters=filters)).source_nodes,
        ):
            assert sorted(sources(found)) == list(expected), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
async def test_filters_that_nothing_passes_give_nothing(kind: str, mode: str) -> None:
    pack = build(kind, mode=mode)
    for filters in (all_of(where("place", "nowhere")), all_of(where("no such key", "x"))):
        assert pack.retrieve(QUESTION, filters=filters) == []
        assert await pack.aretrieve(QUESTION, filters=filters) == []
        assert (
            str(pack.run(QUESTION, filters=filters)) == "The answer was not found in the documents."
        )
        assert (
            str(await pack.arun(QUESTION, filters=filters))
            == "The answer was not found in the documents."
        )


@pytest.mark.parametrize("kind", ["lexical", "dense", "hybrid"])
def test_a_filter_of_one_question_is_not_that_of_the_next(kind: str) -> None:
    pack = build(kind)
    before = identity(pack, QUESTION)
    pack.retrieve(QUESTION, filters=all_of(where("place", "hall")))
    assert identity(pack, QUESTION) == before


def numbered(count: int, even: int) -> list[Document]:
    return [
        Document(
            id_=f"{n}",
            text=f"Lamp number {n} hangs in hall {n * 7 % 101}. 灯{n}は{n % 13}番目に点いた。",
            metadata={"kind": "偶" if n < even else "奇"},
        )
        for n in range(count)
    ]


@pytest.mark.slow_cases("*", but=["lexical-501", "dense-3"])
@pytest.mark.parametrize("even", [3, 499, 501])
@pytest.mark.parametrize("kind", ["dense", "lexical"])
def test_a_filtered_ranking_is_the_whole_one_without_what_does_not_pass(
    kind: str, even: int
) -> None:
    pack = build(kind, numbered(700, even), granularity=("passage",))
    filters = all_of(where("kind", "偶"))
    for question in ("Lamp number 3", "灯は何番目に点いたか"):
        whole = pack.retrieve(question, similarity_top_k=700)
        expected = [
            (hit.node.node_id, hit.score) for hit in whole if hit.node.metadata["kind"] == "偶"
        ]
        for top_k in (1, 5, even + 10):
            found = identity(pack, question, similarity_top_k=top_k, filters=filters)
            assert [score for _, score in found] == pytest.approx(
                [score for _, score in expected[:top_k]], abs=1e-5
            )
            assert {node_id for node_id, _ in found} <= {node_id for node_id, _ in expected}
            assert len({node_id for node_id, _ in found}) == min(top_k, len(expected))


@pytest.mark.slow
def test_a_filtered_hybrid_search_goes_on_until_there_are_enough() -> None:
    pack = build("hybrid", numbered(700, 650))
    found = pack.retrieve(
        "Lamp number 690", similarity_top_k=640, filters=all_of(where("kind", "偶"))
    )
    assert len(set(sources(found))) == 640
    assert {hit.node.metadata["kind"] for hit in found} == {"偶"}


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_the_index_reach_the_filters(kind: str) -> None:
    pack, filters = build(kind), all_of(where("place", "hall"))
    assert sources(pack.retrieve("lamp", filters=filters)) == ["a"]
    pack.insert(Document(id_="new", text="A lamp of brass.", metadata={"place": "hall"}))
    assert sorted(sources(pack.retrieve("lamp", filters=filters))) == ["a", "new"]
    pack.insert(
        Document(id_="a", text="The red lamp hangs in the hall.", metadata={"place": "cellar"})
    )
    assert sources(pack.retrieve("lamp", filters=filters)) == ["new"]
    pack.delete("new")
    assert pack.retrieve("lamp", filters=filters) == []
    assert pack.refresh(CORPUS[:1]) == [True]
    assert sources(pack.retrieve("lamp", filters=filters)) == ["a"]


class AskedWhileEmbedding(ShortEmbedding):
    """Has a question answered in the middle of an insertion."""

    _ask: Callable[[], object] = PrivateAttr(default_factory=lambda: lambda: None)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._ask()
        return super()._get_text_embeddings(texts)


@pytest.mark.parametrize("store", [None, SimpleVectorStore()], ids=["embedded", "simple"])
def test_a_filtered_question_in_the_middle_of_a_change_leaves_no_old_filters(
    store: SimpleVectorStore | None,
) -> None:
    model, filters = AskedWhileEmbedding(), all_of(where("place", "hall"))
    pack = DenseXRetrievalPack(CORPUS, embed_model=model, vector_store=store)
    model._ask = lambda: pack.retrieve("lamp", filters=filters)
    pack.insert(Document(id_="new", text="A lamp of brass.", metadata={"place": "hall"}))
    assert sorted(sources(pack.retrieve("lamp", filters=filters))) == ["a", "new"]


def test_what_llama_indexs_own_index_writes_reaches_the_filters() -> None:
    pack = DenseXRetrievalPack(CORPUS[:1], embed_model=ShortEmbedding(), query_llm="none")
    harbour = all_of(where("place", "harbour"))
    assert pack.retrieve("lamp", filters=harbour) == []
    assert pack.vector_index is not None
    added = Document(id_="z", text="A lamp burns there.", metadata={"place": "harbour"})
    pack.vector_index.insert_nodes(pack.node_parser.get_nodes_from_documents([added]))
    assert sources(pack.retrieve("lamp", filters=harbour)) == ["z"]
    pack.vector_index.delete_ref_doc("z")
    assert pack.retrieve("lamp", filters=harbour) == []


@pytest.mark.parametrize("kind", ["lexical", "dense", "hybrid"])
def test_units_of_filtered_passages_match_as_without_filters(kind: str) -> None:
    pack = build(kind)

    def texts(found: list[NodeWithScore]) -> list[set[str]]:
        return [
            {unit.text for unit in matched_units(hit.node)}
            for hit in found
            if hit.node.ref_doc_id == "c"
        ]

    assert texts(pack.retrieve(QUESTION, filters=all_of(where("place", "海岸")))) == texts(
        pack.retrieve(QUESTION, similarity_top_k=5)
    )


def test_ids_and_values_with_quotes_are_safe() -> None:
    pack = build(
        "dense",
        [Document(id_="it's", text="A lamp.", metadata={"owner": 'O\'Brien "x" OR 1=1 --'})],
    )
    assert sources(
        pack.retrieve("lamp", filters=all_of(where("owner", 'O\'Brien "x" OR 1=1 --')))
    ) == ["it's"]
    assert pack.retrieve("lamp", filters=all_of(where("owner", "' OR '1'='1"))) == []
