"""`densex demo`, on the sample documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_cli import DO_DEUCE, run


@pytest.mark.parametrize(("mode", "least"), [("recursive", 57), ("auto_merging", 52)])
@pytest.mark.slow_cases("*", but=["recursive-*"])
def test_it_answers_in_two_languages_and_counts_its_answers(
    mode: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run("demo", "--mode", mode)
    assert code == 0
    assert [*tmp_path.iterdir()] == []
    assert "nothing is written" in output
    assert DO_DEUCE in output
    found = re.search(r"in all +(\d+) of 60$", output.rstrip())
    assert found
    assert int(found[1]) >= least
