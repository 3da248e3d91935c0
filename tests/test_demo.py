"""`densex demo`, on the repository's own data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.test_cli import DO_DEUCE, run


@pytest.mark.parametrize(("mode", "least"), [("recursive", 57), ("auto_merging", 52)])
def test_it_answers_in_two_languages_and_counts_its_answers(mode: str, least: int) -> None:
    code, output = run("demo", "--mode", mode)
    assert code == 0
    assert "nothing is written" in output
    assert DO_DEUCE in output
    found = re.search(r"in all +(\d+) of 60$", output.rstrip())
    assert found
    assert int(found[1]) >= least


def test_missing_data_is_an_error_that_says_where_it_is(tmp_path: Path) -> None:
    code, output = run("demo", "--data", tmp_path)
    assert code == 1
    assert "Clone the repository" in " ".join(output.split())


def test_a_line_that_is_no_question_is_an_error_that_names_it(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    with (tmp_path / "data" / "questions.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "en-01"}\n')
    code, output = run("demo", "--data", tmp_path / "data")
    assert code == 1
    assert "line 61" in output


def test_too_few_answers_end_it_with_exit_code_1(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    file = tmp_path / "data" / "questions.jsonl"
    questions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for question in questions:
        question["answers"] = ["xyzzy"]
    file.write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    code, output = run("demo", "--data", tmp_path / "data")
    assert code == 1
    assert "in all    0 of 60" in output
