"""Metadata values that are no JSON: kept as text where they have a plain one, in every store and filter."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from llama_index.core import Document
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

from llama_pack_densex import DenseXRetrievalPack, PropositionNodeParser

JAPAN = timezone(timedelta(hours=9))


class Kind(Enum):
    MANUAL = "手引き"


VALUES = [
    (date(2024, 5, 1), "2024-05-01"),
    (datetime(2024, 5, 1, 12, tzinfo=JAPAN), "2024-05-01T12:00:00+09:00"),
    (timedelta(hours=1), "1:00:00"),
    (PurePosixPath("資料/a.md"), "資料/a.md"),
    (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal("1.50"), "1.50"),
    (Kind.MANUAL, "手引き"),
    (np.float32(1.5), 1.5),
    (np.bool_(True), True),
    (np.datetime64("NaT"), None),
    (float("nan"), None),
    (np.float64("nan"), None),
    ([1.0, {"k": float("-inf")}], [1.0, {"k": "-inf"}]),
    (np.array([[1, 2]]), [[1, 2]]),
    (frozenset("ba"), ["a", "b"]),
    ({"期限": [date(2024, 5, 1), (Decimal(1),)]}, {"期限": ["2024-05-01", ["1"]]}),
    ({date(2024, 5, 1): 1, 2: None}, {"2024-05-01": 1, "2": None}),
]


@pytest.mark.parametrize(("value", "kept"), VALUES)
def test_what_has_a_plain_form_is_kept_as_that(value: Any, kept: Any) -> None:
    nodes = PropositionNodeParser().get_nodes_from_documents(
        [Document(text="雨が降った。", metadata={"k": value})]
    )
    assert [node.metadata["k"] for node in nodes] == [kept] * len(nodes)


def test_a_pack_keeps_it_and_knows_it_again(tmp_path: Path) -> None:
    values = {str(number): value for number, (value, _) in enumerate(VALUES)}
    document = Document(text="The tunnel lies below the sea.", id_="d", metadata=values)
    pack = DenseXRetrievalPack(
        [document], embed_model="none", query_llm="none", persist_dir=tmp_path / "i"
    )
    metadata = pack.retrieve("tunnel")[0].metadata
    assert [metadata[key] for key in values] == [kept for _, kept in VALUES]
    assert pack.refresh([document]) == [False]


def test_what_json_does_not_have_hinders_no_search() -> None:
    # of which SQLite reads no links before version 3.42
    document = Document(text="The tunnel lies below the sea.", metadata={"depth": float("nan")})
    pack = DenseXRetrievalPack(
        [document], embed_model="none", query_llm="none", mode="auto_merging"
    )
    assert pack.retrieve("tunnel")[0].metadata["depth"] is None


@pytest.mark.parametrize(
    ("operator", "value", "passing"),
    [
        (FilterOperator.EQ, "2022-05-01", ["2022"]),
        (FilterOperator.EQ, date(2022, 5, 1), ["2022"]),
        (FilterOperator.GTE, date(2022, 5, 1), ["2022", "2023"]),
        (FilterOperator.IN, [date(2021, 5, 1), date(2023, 5, 1)], ["2021", "2023"]),
    ],
)
def test_filters_compare_dates(operator: FilterOperator, value: Any, passing: list[str]) -> None:
    documents = [
        Document(text="トンネル", id_=str(y), metadata={"day": date(y, 5, 1)})
        for y in (2021, 2022, 2023)
    ]
    pack = DenseXRetrievalPack(documents, embed_model="none", query_llm="none")
    # core's takes no dates
    condition = MetadataFilter.model_construct(key="day", operator=operator, value=value)
    results = pack.retrieve(
        "トンネル", similarity_top_k=9, filters=MetadataFilters(filters=[condition])
    )
    assert sorted(str(result.node.ref_doc_id) for result in results) == passing


def test_times_of_different_zones_are_compared_as_moments() -> None:
    at = {
        "tokyo": datetime(2024, 5, 1, 12, tzinfo=JAPAN),
        "utc": datetime(2024, 5, 1, 4, tzinfo=timezone.utc),
    }
    documents = [
        Document(text="Tunnel", id_=name, metadata={"at": moment}) for name, moment in at.items()
    ]
    pack = DenseXRetrievalPack(documents, embed_model="none", query_llm="none")
    late = MetadataFilter(key="at", operator=FilterOperator.GT, value="2024-05-01T03:30:00Z")
    results = pack.retrieve("Tunnel", filters=MetadataFilters(filters=[late]))
    assert [result.node.ref_doc_id for result in results] == ["utc"]


def test_what_has_none_is_told_with_key_and_type_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = [
        Document(text="Tunnel", id_="bad", metadata={"raw": b"x"}),
        Document(text="Tunnel", id_="half", metadata={"name": "\ud800"}),
        Document(text="Tunnel", id_="good"),
    ]
    pack = DenseXRetrievalPack(documents, embed_model="none", query_llm="none")
    assert [result.node.ref_doc_id for result in pack.retrieve("Tunnel")] == ["good"]
    assert "'bad'" in caplog.text
    assert "'raw' holds a value of type bytes" in caplog.text
    assert "metadata, under the key 'name'" in caplog.text
