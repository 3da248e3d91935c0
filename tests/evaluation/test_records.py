from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from llama_pack_densex.evaluation.records import DatasetError, Record, read_records

pytestmark = pytest.mark.pure


def test_all_kinds_of_files_give_the_same_records(tmp_path: Path) -> None:
    rows = [
        {"question": "灯りは？", "answer": "赤"},
        {"question": "Tea, or\ncoffee?", "answer": '"tea"'},
    ]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(
        "\n\n".join(json.dumps(row) for row in rows), encoding="utf-8-sig"
    )
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    (tmp_path / "a.csv").write_text(
        'question,answer\n灯りは？,赤\n"Tea, or\ncoffee?","""tea"""\n', encoding="utf-8"
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for file in sorted(tmp_path.iterdir()):
        assert [record.fields for record in read_records(file)] == rows, file
    assert [record.where for record in read_records(tmp_path / "a.csv")] == [
        f"{tmp_path / 'a.csv'}, line 2",
        f"{tmp_path / 'a.csv'}, line 3",
    ]


@pytest.mark.parametrize("encoding", ["cp932", "utf-8-sig", "utf-16"])
def test_a_csv_file_may_be_in_what_excel_writes(tmp_path: Path, encoding: str) -> None:
    text = "question,answers\r\n松本城の観覧料はいくらですか。,1200円\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    (record,) = read_records(tmp_path / "a.csv")
    assert record.fields == {"question": "松本城の観覧料はいくらですか。", "answers": "1200円"}


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_csv_file_may_be_divided_as_a_spreadsheet_divides_it(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.csv").write_text(
        f'question{mark}answers\n"When; where, why?"{mark}here|there\n', encoding="utf-8"
    )
    (record,) = read_records(tmp_path / "a.csv")
    assert (record.text("question"), record.answers()) == ("When; where, why?", ("here", "there"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a"\n', "line 2: expected JSON"),
        ("a.jsonl", b"[1]\n", "line 1: expected a JSON object, but this is list"),
        ("a.jsonl", b'{"a": "\xff"}\n', "expected UTF-8"),
        ("a.tsv", b"question\tanswer\na\t\xff\n", "expected UTF-8"),
        ("a.jsonl.gz", b"not packed", "expected gzip"),
        ("a.jsonl.gz", gzip.compress(b"{}\n" * 99, mtime=0)[:-12], "expected gzip"),
        ("a.csv", b"question,answer\na\n", "line 2: 1 columns; expected the header's 2"),
        ("a.parquet", b"no parquet at all", "expected a Parquet file"),
        ("a.json", b"1", "expected a JSON object, but this is int"),
        ("a.json", b"[1, 2", "line 1: expected JSON"),
        (
            "a.jsonl",
            b'{"a": 1}\n{"a":' + 100_000 * b"[",
            "line 2: expected JSON, but this is nested too deeply",
        ),
        ("a.json", b'[{"a": 1}, 2]', "item 2: expected a JSON object, but this is int"),
        ("a.txt", b"", "expected a .jsonl, .json, .csv, .tsv or .parquet file"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DatasetError, match=said) as error:
        list(read_records(file))
    assert str(file) in str(error.value)


def test_a_field_is_asked_for_by_any_of_its_names() -> None:
    record = Record({"qid": 7, "answer": ["a", "a", " "], "label": 1.5}, "file, line 1")
    assert record.text("id", "qid") == "7"
    assert record.texts("answers", "answer") == ("a",)
    assert record.texts("none") == ()
    with pytest.raises(DatasetError, match="file, line 1: 'text' or 'contents' is missing"):
        record.text("text", "contents")
    with pytest.raises(DatasetError, match="label is float, but text is expected"):
        record.text("label")
    with pytest.raises(DatasetError, match="'qid' must be a text or a list of texts"):
        record.texts("qid")
