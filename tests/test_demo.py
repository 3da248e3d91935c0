"""`densex demo`, on the repository's own data."""

from __future__ import annotations

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
