"""`densex evaluate`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from llama_pack_densex.evaluation import metrics
from tests.evaluation.comparing import ENGLISH, JAPANESE, QUESTIONS
from tests.evaluation.judges import judging, kind_of
from tests.openai_server import OpenAIServer, Reply
from tests.test_cli import run

MODELS = ("--reader-model", "gpt-4o-mini", "--judge-model", "gpt-4o-mini")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the small datasets, in both languages."""
    folder = tmp_path_factory.mktemp("evaluated")
    (folder / "docs").mkdir()
    for title, texts in {**ENGLISH, **JAPANESE}.items():
        (folder / "docs" / f"{title}.md").write_text("\n\n".join(texts), encoding="utf-8")
    code, output = run(
        "index",
        folder / "docs",
        "--to",
        folder / "index",
        "--propositionizer",
        "sentence",
        "--embed-model",
        "none",
    )
    assert code == 0, output
    return folder / "index"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Questions in both languages."""
    file = tmp_path / "questions.jsonl"
    lines = [
        {"language": language, "question": text, "answers": [answer]}
        for language, asked in QUESTIONS.items()
        for text, answer, _, _ in asked
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with OpenAIServer(judging()) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        yield server


def test_without_an_llm_what_is_read_and_quoted_is_measured(index: Path, questions: Path) -> None:
    code, output = run("evaluate", index, questions, "--query-llm", "none", "--language", "en")
    assert code == 0, output
    assert "AR@500" in output
    assert "str_em" in output
    assert "cited" in output
    assert "grounded" not in output
    assert all(cell_len(line) <= 80 for line in output.splitlines())


def test_an_estimate_without_an_llm_says_that_none_is_asked(index: Path, questions: Path) -> None:
    output = run("evaluate", index, questions, "--language", "en", "--estimate")[1]
    assert output.strip() == "No LLM is asked."


def test_answers_are_judged_and_a_second_run_asks_nothing(
    index: Path, questions: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    arguments = (
        "evaluate",
        index,
        questions,
        *MODELS,
        "--language",
        "ja",
        "--out",
        tmp_path / "out",
    )
    code, output = run(*arguments, "--json")
    assert code == 0, output
    found = json.loads(output)
    assert (found["context_relevance"], found["groundedness"], found["answer_relevance"]) == (
        0.75,
        1.0,
        1.0,
    )
    assert {"em@100", "f1@500", "str_em", "answer_recall@100"} <= found.keys()
    others = {"failed", "questions", "language"}
    assert {metrics.kind_of(metric) for metric in found.keys() - others} <= metrics.METRICS.keys()
    assert (found["failed"], found["questions"], found["language"]) == ({}, 4, "ja")
    assert {file.name for file in (tmp_path / "out").glob("report.*")} == {
        "report.json",
        "report.csv",
        "report.html",
    }
    asked = Counter(kind_of(seen.body) for seen in server.requests)
    assert asked["answer"] >= 4
    code, output = run(*arguments)
    assert Counter(kind_of(seen.body) for seen in server.requests) == asked
    assert "grounded" in output


def test_an_estimate_asks_nothing_and_tells_what_is_asked(
    index: Path, questions: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    said = {text: ENGLISH[title][place] for text, _, title, place in QUESTIONS["en"]}
    server.responder = judging(
        answer=lambda body: next(
            f"{passage}[^1]" for text, passage in said.items() if text in json.dumps(body)
        )
    )
    # one question of each document: two may be answered by the same quotation, which is judged once
    lines = questions.read_text(encoding="utf-8").splitlines()
    questions.write_text(
        "\n".join(line for line in lines if "Bay of Fundy" in line or "Akashi" in line),
        encoding="utf-8",
    )
    arguments = (
        "evaluate",
        index,
        questions,
        *MODELS,
        "--language",
        "en",
        "--out",
        tmp_path / "out",
    )
    told = json.loads(run(*arguments, "--estimate", "--json")[1])
    assert server.requests == []
    assert not (tmp_path / "out").exists()
    assert run(*arguments)[0] == 0
    kinds = Counter(kind_of(seen.body) for seen in server.requests)
    assert told["answers"]["usage"]["requests"] == kinds["answer"]
    assert told["reader"]["usage"]["requests"] == kinds["reader"]
    judged = sum(kinds.values()) - kinds["answer"] - kinds["reader"]
    assert told["judge"]["usage"]["requests"] == judged == 6
    assert told["judge"]["cost"] > 0
    sent = len(server.requests)
    again = json.loads(run(*arguments, "--estimate", "--json")[1])
    assert len(server.requests) == sent
    assert all(figures["usage"]["requests"] == 0 for figures in again.values())
    assert all(figures["cost"] == 0 for figures in again.values())
    code, output = run(*arguments, "--estimate")
    assert code == 0
    assert all(cell_len(line) <= 80 for line in output.splitlines())
    assert "LLM of" in output


def test_each_language_has_its_own_figures(
    index: Path, questions: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    code, output = run(
        "evaluate", index, questions, "--query-llm", "none", "--out", tmp_path / "out"
    )
    assert code == 0, output
    assert (
        output.index("\nen\n") < output.index("\nja\n")
        if output.startswith("\n")
        else output.startswith("en\n")
    )
    assert {path.parent.name for path in (tmp_path / "out").glob("*/report.json")} == {"en", "ja"}
    found = json.loads(run("evaluate", index, questions, "--query-llm", "none", "--json")[1])
    assert [found[language]["questions"] for language in ("en", "ja")] == [4, 4]


def test_a_budget_is_kept_to(index: Path, questions: Path, server: OpenAIServer) -> None:
    code, output = run(
        "evaluate", index, questions, *MODELS, "--language", "en", "--max-cost", "0", "--json"
    )
    assert code == 1, output
    assert server.requests == []
    found = json.loads(output)
    assert "groundedness" not in found
    missing = {"str_em", "context_relevance", "groundedness", "answer_relevance"}
    missing |= {f"{name}@{length}" for name in ("em", "f1") for length in (100, 200, 500)}
    assert found["failed"] == dict.fromkeys(missing, 4)


@pytest.mark.parametrize("status", [400, 401])
def test_what_a_model_that_refuses_was_asked_for_has_failed(
    index: Path, questions: Path, server: OpenAIServer, status: int
) -> None:
    server.responder = judging(groundedness=Reply("no", status=status))
    arguments = ("evaluate", index, questions, "--query-llm", "none", *MODELS, "--language", "en")
    code, output = run(*arguments, "--json")
    found = json.loads(output)
    assert code == 1
    assert found["failed"]["groundedness"] > 0
    assert found["str_em"] > 0
    code, output = run(*arguments)
    assert code == 1
    assert "All failed for: " in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{index}", "{missing}"), "missing.jsonl"),
        (("{missing}", "{questions}"), "is not an index"),
        (("{index}", "{questions}", "--trulens", "x.sqlite"), "--judge-model"),
        (("{index}", "{empty}"), "it is empty"),
        (
            ("{index}", "{questions}", "--api-base", "http://127.0.0.1:9/v1"),
            "--api-base needs a model",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    arguments: tuple[str, ...], said: str, index: Path, questions: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    names = {
        "index": index,
        "questions": questions,
        "missing": tmp_path / "missing.jsonl",
        "empty": tmp_path / "empty.jsonl",
    }
    code, output = run("evaluate", *(argument.format(**names) for argument in arguments))
    assert code in (1, 2)
    assert said in " ".join(output.split())


def test_questions_without_answers_need_a_judge(
    index: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text(json.dumps({"question": "What do mills grind?"}), encoding="utf-8")
    code, output = run(
        "evaluate", index, file, "--query-llm", "none", "--judge-model", "gpt-4o-mini"
    )
    assert code == 0, output
    assert "grounded" in output
    assert "AR@" not in output


def test_compare_judges_too(tmp_path: Path, server: OpenAIServer) -> None:
    from tests.test_cli_compare import write_squad

    squad = write_squad(tmp_path, "en")
    code, output = run(
        "compare", squad, "--embed-model", "none", "--strategies", "bm25,densex-sentences", *MODELS
    )
    assert code == 0, output
    assert "grounded" in output
    assert all(cell_len(line) <= 80 for line in output.splitlines())
    code, output = run("compare", squad, "--embed-model", "none", "--judge-model", "gpt-4o-mini")
    assert code == 2
    assert "--reader-model" in output
