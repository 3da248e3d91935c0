from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import cbor2
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from llama_pack_densex.cli import app
from llama_pack_densex.evaluation.runs import rank, read_qrels, read_run, score_runs
from tests.evaluation.published import EVALUATION_DATA, needs_published_data

pytestmark = pytest.mark.pure

# Scores of documents in the order of a file, a digit each, and the ranking that ranx 0.3.21 with numba 0.68
# gives.
TIES = {
    "01011": "1 3 4 0 2",
    "0000000000000000": "14 13 12 11 10 9 8 7 6 5 4 3 2 1 0 15",
    "1001122102121200": "13 11 9 5 6 12 10 7 4 3 0 8 2 1 14 15",
    "5126446102123002502552022216536645602413": (
        "34 31 3 30 6 27 33 28 20 16 19 0 37 32 4 5 12 29 39 36 "
        "2 24 23 25 11 15 18 9 21 26 10 1 38 7 8 17 22 14 35 13"
    ),
}
PUBLISHED = {
    "bm25": (0.458, 0.702),
    "multilingual-e5-small": (0.4917, 0.7291),
    "ruri-small": (0.5359, 0.7661),
    "ruri-reranker-large": (0.7712, 0.9098),
    "static-embedding-japanese": (0.4704, 0.6814),
    "random": (0.0644, 0.1313),
}


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    file = tmp_path / "qrels.trec"
    file.write_text("1 0 a 1\n1 0 b 0\n2 0 c 2\n", encoding="utf-8")
    return file


@pytest.fixture
def run(tmp_path: Path) -> Path:
    file = tmp_path / "good.trec"
    file.write_text(
        "1 Q0 a 1 2.5 good\n1 Q0 b 2 1.5 good\n2 Q0 x 1 9 good\n2 Q0 c 2 8 good\n", encoding="utf-8"
    )
    return file


def _lz4(data: bytes, times: int) -> bytes:
    for _ in range(times):
        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, "lz4") as stream:
            stream.write(data)
        data = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize(("scores", "ranking"), TIES.items())
def test_documents_of_equal_score_are_ranked_as_by_jqaras_evaluator(
    scores: str, ranking: str, tmp_path: Path
) -> None:
    run = tmp_path / "ties.json"
    run.write_text(
        json.dumps({"1": {f"文書{place}": float(score) for place, score in enumerate(scores)}}),
        "utf-8",
    )
    qrels = tmp_path / "qrels.json"
    for position, place in enumerate(ranking.split()[:10], 1):
        qrels.write_text(json.dumps({"1": {f"文書{place}": 1}}), "utf-8")
        (scored,) = score_runs(qrels, [run]).runs
        assert scored.scores["mrr@10"] == pytest.approx(1 / position)


@pytest.mark.parametrize(
    ("labels", "expected"), [({"b": 1}, 1.0), ({"b": 1, "a": 0}, 1.0), ({"a": 1}, 1.0)]
)
def test_a_document_that_is_the_question_itself_is_left_out(
    tmp_path: Path, labels: dict[str, int], expected: float
) -> None:
    run = tmp_path / "run.json"
    run.write_text('{"a": {"a": 3, "b": 2}}', "utf-8")
    qrels = tmp_path / "qrels.json"
    qrels.write_text(json.dumps({"a": labels}), "utf-8")
    assert score_runs(qrels, [run]).runs[0].scores["mrr@10"] == expected
    kept = CliRunner().invoke(
        app, ["score", "--qrels", str(qrels), "--run", str(run), "--keep-identical-ids", "--json"]
    )
    assert json.loads(kept.stdout)["runs"][0]["scores"]["mrr@10"] == (
        1.0 if labels.get("a") else 0.5
    )


@given(st.lists(st.integers(0, 9), max_size=60))
def test_a_ranking_has_every_id_by_falling_score(scores: list[int]) -> None:
    by_id = {str(place): float(score) for place, score in enumerate(scores)}
    ranking = rank(by_id)
    assert sorted(ranking) == sorted(by_id)
    assert [by_id[item] for item in ranking] == sorted(by_id.values(), reverse=True)


def test_all_kinds_of_run_files_are_read(run: Path, tmp_path: Path) -> None:
    expected = {"1": {"a": 2.5, "b": 1.5}, "2": {"x": 9.0, "c": 8.0}}
    (tmp_path / "run.json").write_text(json.dumps(expected), encoding="utf-8")
    (tmp_path / "run.trec.gz").write_bytes(gzip.compress(run.read_bytes()))
    (tmp_path / "once.lz4").write_bytes(_lz4(cbor2.dumps(expected), 1))
    (tmp_path / "twice.lz4").write_bytes(_lz4(cbor2.dumps(expected), 2))
    for name in ("good.trec", "run.json", "run.trec.gz", "once.lz4", "twice.lz4"):
        assert read_run(tmp_path / name) == expected, name


def test_labels_are_read_from_trec_beir_and_json(qrels: Path, tmp_path: Path) -> None:
    expected = {"1": {"a": 1, "b": 0}, "2": {"c": 2}}
    (tmp_path / "beir.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n2\tc\t2\n", encoding="utf-8"
    )
    (tmp_path / "qrels.json").write_text(json.dumps(expected), encoding="utf-8")
    for file in (qrels, tmp_path / "beir.tsv", tmp_path / "qrels.json"):
        assert read_qrels(file) == expected, file


def test_ids_of_beir_may_have_spaces(tmp_path: Path) -> None:
    labels = "query-id\tcorpus-id\tscore\n1\tApollo 13\t1\nq 2\t青函　隧道\t2\n"
    (tmp_path / "beir.tsv").write_text(labels, encoding="utf-8")
    assert read_qrels(tmp_path / "beir.tsv") == {"1": {"Apollo 13": 1}, "q 2": {"青函　隧道": 2}}


def test_of_a_file_without_labels_the_labels_are_named_and_not_the_run(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"beir\.tsv: expected relevance labels, and there are none"
    ):
        score_runs(tmp_path / "beir.tsv", [run])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"1 Q0 a 1 2.5 x\n1 Q0 b\n", "line 2: 3 columns; expected the 6 of"),
        (b"1 Q0 a 1 high x\n", "line 1: the score 'high' is not a number"),
        (b"1 Q0 a 1 2 x\n1 Q0 a 2 1 x\n", "line 2: the document a occurs twice for the question 1"),
        (b"1 Q0 a 1 nan x\n", "the score 'nan' is not a number"),
        (b"\xff\xfe", "neither UTF-8 text nor a file that ranx wrote"),
        (b'{"1": ["a"]}', "question 1: expected an object of questions"),
        (b'{"1"', "it cannot be decoded"),
        (b'\x04"M\x18broken', "the lz4 data is damaged"),
        (b"\x1f\x8bbroken", "the gzip data is damaged"),
        (_lz4(b"\xff", 2), "it cannot be decoded"),
    ],
)
def test_a_damaged_run_is_named_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "run"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_run(file)
    assert str(file) in str(error.value)


def test_runs_are_scored_and_compared(qrels: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "poor.json").write_text('{"1": {"b": 2, "a": 1}}', encoding="utf-8")
    report = score_runs(qrels, [run, tmp_path / "poor.json"])
    good, poor = report.runs
    second = 1 / math.log2(3)
    assert (good.name, good.unanswered) == ("good", 0)
    assert good.scores == {"ndcg@10": pytest.approx((1 + second) / 2), "mrr@10": 0.75}
    assert (poor.name, poor.unanswered) == ("poor", 1)
    assert poor.scores == {"ndcg@10": pytest.approx(second / 2), "mrr@10": 0.25}
    assert good.intervals["mrr@10"].low <= 0.75 <= good.intervals["mrr@10"].high
    assert [
        (found.metric, found.first, found.second, found.difference) for found in report.comparisons
    ] == [
        ("ndcg@10", "good", "poor", pytest.approx(0.5)),
        ("mrr@10", "good", "poor", 0.5),
    ]


def test_a_run_of_another_dataset_is_an_error(qrels: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"9": {"a": 1}}', encoding="utf-8")
    with pytest.raises(ValueError, match="none of the questions that have labels"):
        score_runs(qrels, [tmp_path / "other.json"])


def test_runs_of_one_name_are_told_apart_and_one_run_is_not_compared_with_itself(
    qrels: Path, run: Path
) -> None:
    other = run.parent / "sub" / run.name
    other.parent.mkdir()
    other.write_bytes(run.read_bytes())
    assert [scored.name for scored in score_runs(qrels, [run, other]).runs] == [
        str(run),
        str(other),
    ]
    with pytest.raises(ValueError, match="is given twice"):
        score_runs(qrels, [run, run])


def test_the_command_prints_a_table(qrels: Path, run: Path) -> None:
    result = CliRunner().invoke(
        app, ["score", "--qrels", str(qrels), "--run", str(run)], env={"COLUMNS": "80"}
    )
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert ["good", "ndcg@10", "0.8155", "0.631-1.000"] in lines
    assert ["good", "mrr@10", "0.7500", "0.500-1.000"] in lines
    assert max(map(len, result.output.splitlines())) <= 80


def test_the_command_prints_json_and_nothing_else(qrels: Path, run: Path) -> None:
    result = CliRunner().invoke(app, ["score", "--qrels", str(qrels), "--run", str(run), "--json"])
    assert json.loads(result.stdout)["runs"][0]["scores"]["mrr@10"] == 0.75


def test_the_command_says_what_is_wrong(qrels: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["score", "--qrels", str(qrels), "--run", str(tmp_path / "none.trec")]
    )
    assert result.exit_code == 1
    assert "No such file" in result.output


@needs_published_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_jqaras_published_figures_come_out(name: str) -> None:
    folder = EVALUATION_DATA / "jqara"
    scores = score_runs(folder / "qrels.trec", [folder / f"{name}.lz4"]).runs[0].scores
    assert (round(scores["ndcg@10"], 4), round(scores["mrr@10"], 4)) == PUBLISHED[name]
