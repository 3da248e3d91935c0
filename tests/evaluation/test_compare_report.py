"""What a comparison's report says, and the files it becomes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from llama_pack_densex import SentencePropositionizer, Strategy, compare
from llama_pack_densex.evaluation.report import Report
from tests.embedding import TrigramEmbedding
from tests.evaluation.comparing import small_set
from tests.evaluation.test_compare import _Always


@pytest.fixture(scope="module")
def report() -> Report:
    return compare(
        small_set("ja"),
        strategies=[
            "densex",
            "vector",
            "dense-x",
            Strategy("<b>mine</b>", _Always("<script>新幹線</script>")),
        ],
        embed_model=TrigramEmbedding(),
        propositionizer=SentencePropositionizer(),
    )


def test_the_json_has_what_readers_of_it_expect(report: Report) -> None:
    given = json.loads(report.to_json())
    assert given["format"] == 1
    assert given["dataset"] | {"hash": ""} == {
        "name": "small ja", "language": "ja", "documents": 2, "passages": 6, "questions": 4,
        "length_unit": "characters", "hash": "", "gold": "passage",
    }  # fmt: skip
    assert given["settings"]["versions"]["llama-index-core"]
    densex = given["strategies"][0]
    assert {"recall@1", "recall@5", "recall@20", "mrr@10", "ndcg@10", "answer_recall@100"} <= set(
        densex["metrics"]
    )
    low, high = densex["intervals"]["answer_recall@100"]
    assert low <= densex["metrics"]["answer_recall@100"] <= high
    assert set(given["questions"][0]["found"]["densex"]) == {
        "rank",
        "gold_rank",
        "words",
        "text",
        "source",
        "unit",
    }


def test_what_cannot_be_given_is_null_and_has_no_interval(report: Report) -> None:
    vector = json.loads(report.to_json())["strategies"][1]
    assert vector["metrics"]["recall@1"] is None
    assert "recall@1" not in vector["intervals"]


def test_each_question_says_what_each_strategy_found(report: Report) -> None:
    question = report.questions[1]
    found = question.found["densex"]
    assert (question.answers, question.document) == (["ドクターイエロー"], "新幹線")
    assert (found.rank, found.gold_rank) == (1, 1)
    assert found.text.startswith("黄色い車両は点検に使われる。")
    assert found.source == "新幹線, characters 67-100"
    assert found.words is not None


def test_three_files_are_written(report: Report, tmp_path: Path) -> None:
    files = report.write(tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["report.json", "report.csv", "report.html"]
    assert json.loads(files[0].read_text(encoding="utf-8")) == json.loads(report.to_json())
    with files[1].open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["strategy"] for row in rows] == ["densex", "vector", "dense-x", "<b>mine</b>"]
    assert float(rows[0]["answer_recall@100"]) == report.strategies[0].metrics["answer_recall@100"]
    assert rows[1]["recall@1"] == ""
    assert rows[0]["units"] == str(report.strategies[0].cost.units)
    assert "<b>mine</b>" not in files[2].read_text(encoding="utf-8")


def test_a_notebook_shows_the_table_with_markup_as_text(report: Report) -> None:
    html = report._repr_html_()
    assert html.count("<tr>") == 1 + len(report.strategies)
    assert "&lt;b&gt;mine&lt;/b&gt;" in html
    assert "<b>mine</b>" not in html


def test_the_table_has_the_metrics_that_were_measured(report: Report) -> None:
    rows = report.table()
    assert [row["strategy"] for row in rows] == [strategy.name for strategy in report.strategies]
    assert rows[0]["recall@1"] == "1.000"
    assert rows[1]["recall@1"] == ""
