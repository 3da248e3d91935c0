"""Answers recorded and judged by TruLens; `make test-trulens` installs it, in an environment of its own."""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from llama_pack_densex import SentencePropositionizer, Strategy, compare
from llama_pack_densex.evaluation.report import Report
from tests.another_process import run_program
from tests.evaluation.comparing import small_set
from tests.evaluation.judges import judging, kind_of, openai
from tests.evaluation.test_answers import TRIAD, cited, triad
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.together("forks")

needs_trulens = pytest.mark.skipif(
    find_spec("trulens") is None or find_spec("trulens.apps") is None,
    reason="TruLens is not installed: it needs an older rich than the other extras; make test-trulens has it",
)


def run(
    server: OpenAIServer, database: Path, strategies: Any, language: str = "en", **options: Any
) -> Report:
    llms = {"reader_llm": openai(server), "judge_llm": openai(server), "trulens": database}
    given = {"embed_model": "none", "propositionizer": SentencePropositionizer(), **llms, **options}
    return compare(small_set(language), None, strategies, **given)


def leaderboard(database: Path) -> tuple[dict[str, dict[str, float]], Counter[str]]:
    """The means of each version, and how many records it has, as TruLens' own interface tells them."""
    from trulens.core import TruSession

    session = TruSession(database_url=f"sqlite:///{database}")
    try:
        means = session.get_leaderboard().reset_index().to_dict(orient="records")
        records, _ = session.get_records_and_feedback()
        return {row["app_version"]: row for row in means}, Counter(records["app_version"])
    finally:
        TruSession.delete_singleton(TruSession)


@needs_trulens
@pytest.mark.parametrize("language", ["en", "ja"])
def test_three_strategies_are_on_the_leaderboard(language: str, tmp_path: Path) -> None:
    def verdict(body: Any) -> str:
        return json.dumps({"criteria": "c", "supporting_evidence": "e", "score": "2.0"})

    database = tmp_path / "new" / "trulens.sqlite"
    answer = (
        "The mill stood in Nendrum. It was built in 619."
        if language == "en"
        else "根戸村にあった。619年に建った。"
    )
    with OpenAIServer(judging(answer=answer, trulens=verdict)) as server:
        report = run(server, database, ["densex", "densex-auto-merging", "bm25"], language)
        asked = Counter(kind_of(seen.body) for seen in server.requests)
    means, records = leaderboard(database)
    names = ["densex", "densex-auto-merging", "bm25"]
    assert [strategy.name for strategy in report.strategies] == names
    assert records == dict.fromkeys(names, 4)
    for strategy in report.strategies:
        assert triad(strategy) == [pytest.approx(2 / 3)] * 3
        assert [means[strategy.name][metric] for metric in TRIAD] == triad(strategy)
        assert strategy.failed == {}
    assert not {*TRIAD} & asked.keys()  # LlamaIndex's evaluators are not asked too
    sentences = [
        seen
        for seen in server.requests
        if kind_of(seen.body) == "trulens" and "619" in seen.last_message
    ]
    assert any("Nendrum" not in seen.last_message.rpartition("619")[0][-60:] for seen in sentences)


@needs_trulens
def test_a_failed_verdict_is_neither_a_zero_nor_a_success(tmp_path: Path) -> None:
    bad = iter(
        ["I'd give 3 of 3.", '{"score": 7}', '{"score": true}', "[1]", '{"criteria": "none"}']
    )

    def verdict(body: Any) -> str:
        said = json.dumps(body["messages"])
        return (
            next(bad, "no score")
            if "RESPONSE:" in said.upper() and "Who opened" in said
            else '{"score": 3}'
        )

    database = tmp_path / "trulens.sqlite"
    with OpenAIServer(judging(trulens=verdict)) as server:
        (found,) = run(server, database, ["bm25"]).strategies
    assert found.metrics["answer_relevance"] == 1.0
    assert found.failed["answer_relevance"] == 1
    assert leaderboard(database)[0]["bm25"]["answer_relevance"] == 1.0


@needs_trulens
def test_what_failed_is_not_recorded_and_no_answer_is_not_judged_as_one(tmp_path: Path) -> None:
    first, second, *_ = (question.text for question in small_set().questions)
    strategy: Strategy = cited({first: "fails", second: "not_found"}, ["A mill."])
    database = tmp_path / "trulens.sqlite"
    with OpenAIServer(judging()) as server:
        (found,) = run(server, database, [strategy]).strategies
    assert leaderboard(database)[1] == {"mine": 3}
    assert found.failed == {"str_em": 1, **dict.fromkeys(TRIAD, 1)}


@needs_trulens
def test_a_second_run_asks_nothing_and_two_databases_stay_apart(tmp_path: Path) -> None:
    databases = [tmp_path / "one.sqlite", tmp_path / "two.sqlite"]
    with OpenAIServer(judging()) as server:
        first = run(server, databases[0], ["bm25"], cache_dir=tmp_path)
        asked = len(server.requests)
        second = run(server, databases[1], ["bm25"], cache_dir=tmp_path)
        assert len(server.requests) == asked
    assert first.strategies[0].metrics == second.strategies[0].metrics
    for database in databases:
        assert leaderboard(database)[1] == {"bm25": 4}


@needs_trulens
def test_a_budget_stops_the_judge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(body: Any) -> Reply:
        return Reply("quota", status=429, code="insufficient_quota")

    with OpenAIServer(judging(trulens=refuse)) as server:
        (found,) = run(server, tmp_path / "trulens.sqlite", ["bm25"]).strategies
        assert sum(kind_of(seen.body) == "trulens" for seen in server.requests) <= 8
    assert triad(found) == [None, None, None]
    assert (
        "bm25: not counted, because they failed: 4 of 4 items of context_relevance" in caplog.text
    )
    assert "the LLM stopped: " in caplog.text


@needs_trulens
def test_nothing_of_the_process_is_changed_and_nothing_is_connected_to_but_the_llm(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[Any] = []
    connect = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        connected.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", noted)
    trulens = logging.getLogger("trulens")
    with OpenAIServer(judging()) as server:
        run(server, tmp_path / "warm.sqlite", ["bm25"])  # imports what it needs
        capfd.readouterr()
        before = (
            dict(os.environ),
            list(warnings.filters),
            trulens.level,
            logging.root.level,
            [*logging.root.handlers],
        )
        run(server, tmp_path / "trulens.sqlite", ["bm25"])
        port = int(server.url.split(":")[2].split("/")[0])
    after = (
        dict(os.environ),
        list(warnings.filters),
        trulens.level,
        logging.root.level,
        [*logging.root.handlers],
    )
    assert after == before
    assert {address[1] for address in connected if isinstance(address, tuple)} == {port}
    assert capfd.readouterr().out == ""


@needs_trulens
def test_no_key_is_in_the_database(tmp_path: Path) -> None:
    with OpenAIServer(judging()) as server:
        run(server, tmp_path / "trulens.sqlite", ["bm25"])
    with sqlite3.connect(tmp_path / "trulens.sqlite") as database:
        dump = "\n".join(database.iterdump())
    assert "Nendrum" in dump
    assert "sk-test" not in dump


@pytest.mark.slow
def test_importing_the_module_imports_no_trulens() -> None:
    program = (
        "import sys, llama_pack_densex.evaluation.trulens; print([name for name in sys.modules if "
        "'trulens.' in name])"
    )
    code, output, errors = run_program(program)
    assert (code, output.strip()) == (0, "[]"), errors


@pytest.mark.skipif(find_spec("trulens") is not None, reason="TruLens is installed")
def test_without_trulens_the_error_names_the_extra_before_anything_is_asked(tmp_path: Path) -> None:
    with OpenAIServer(judging()) as server:
        with pytest.raises(ImportError, match=r"llama-pack-densex\[trulens\]"):
            run(server, tmp_path / "trulens.sqlite", ["bm25"])
        assert server.requests == []
