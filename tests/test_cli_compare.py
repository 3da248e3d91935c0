"""`densex compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.conftest import DATA
from tests.evaluation.comparing import small_set
from tests.openai_server import OpenAIServer, Reply, held
from tests.test_cli import run
from tests.test_cli_spending import in_a_terminal, needs_terminals


@pytest.fixture(params=["en", "ja"])
def squad(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file in SQuAD's format."""
    return write_squad(tmp_path, request.param)


def write_squad(folder: Path, language: str) -> Path:
    dataset = small_set(language)
    data = [
        {
            "title": document.id_,
            "paragraphs": [
                {
                    "context": document.text[slice(*span)],
                    "qas": [
                        {
                            "id": question.id,
                            "question": question.text,
                            "answers": [
                                {"text": answer, "answer_start": 0} for answer in question.answers
                            ],
                        }
                        for question in dataset.questions
                        if (question.document_id, question.span) == (document.id_, span)
                    ],
                }
                for span in dataset.passages[document.id_]
            ],
        }
        for document in dataset.documents
    ]
    file = folder / f"small_{language}.json"
    file.write_text(
        json.dumps({"version": "1.1", "data": data}, ensure_ascii=False), encoding="utf-8"
    )
    return file


def write_recording(folder: Path, dataset: Path) -> Path:
    articles = json.loads(dataset.read_text(encoding="utf-8"))["data"]
    texts = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    lines = [
        json.dumps({"title": "", "text": text, "propositions": [f"{text} (fact)"]})
        for text in texts
    ]
    file = folder / "recorded.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_an_earlier_report_is_none_of_the_documents_that_it_stands_among(tmp_path: Path) -> None:
    (tmp_path / "lamp.md").write_text("The lamp is red.", encoding="utf-8")
    asked = '{"question": "What colour is the lamp?", "answers": ["red"], "document": "lamp.md"}'
    (tmp_path / "q.jsonl").write_text(asked, encoding="utf-8")
    given = (
        "compare",
        tmp_path / "q.jsonl",
        "--documents",
        tmp_path,
        "--strategies",
        "bm25",
        "--embed-model",
        "none",
    )
    for _ in range(2):
        assert "1 question about 1 document in" in run(*given, "--out", tmp_path / "report")[1]
    assert run(*given, "--out", tmp_path)[0] == 0


@pytest.mark.slow_cases("*", but=["ja"])
def test_a_table_and_three_files_come_out(squad: Path, tmp_path: Path) -> None:
    recorded = write_recording(tmp_path, squad)
    code, output = run(
        "compare",
        squad,
        "--embed-model",
        "none",
        "--propositionizer",
        f"recorded:{recorded}",
        "--out",
        tmp_path / "out",
    )
    assert code == 0, output
    assert "4 questions about 2 documents in 6 passages" in " ".join(output.split())
    lines = output.splitlines()
    assert any(line.startswith("densex ") for line in lines)
    assert any(line.startswith("bm25 ") for line in lines)
    assert "Left out: " in output
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "report.json",
        "report.csv",
        "report.html",
    }
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert {"densex", "densex-sentences", "bm25"} <= {
        strategy["name"] for strategy in report["strategies"]
    }


@pytest.mark.slow_cases("*", but=["ja"])
def test_it_fits_into_80_columns(squad: Path) -> None:
    code, output = run("compare", squad, "--embed-model", "none")
    assert code == 0
    assert all(cell_len(line) <= 80 for line in output.splitlines())


def test_strategies_and_questions_can_be_chosen(tmp_path: Path) -> None:
    squad = write_squad(tmp_path, "en")
    arguments = ("--embed-model", "none", "--strategies", "bm25, densex-sentences", "--limit", "2")
    code, output = run("compare", squad, *arguments)
    assert code == 0
    assert "2 questions" in output
    names = [line.split()[0] for line in output.splitlines() if line.startswith(("bm25", "densex"))]
    assert names == ["bm25", "densex-sentences"]


def test_an_unknown_strategy_is_named_with_what_there_is(tmp_path: Path) -> None:
    code, output = run("compare", write_squad(tmp_path, "en"), "--strategies", "vectors")
    assert code == 1
    assert "no strategy 'vectors'" in output
    assert "sentence-window" in output


def test_questions_of_ones_own_over_a_folder(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tea.md").write_text(
        "# Tea\n\nGreen tea is steamed. Black tea is oxidised.", encoding="utf-8"
    )
    (tmp_path / "docs" / "blank.md").write_text(" \n", encoding="utf-8")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        '{"question": "What is done to green tea?", "answers": ["steamed"]}\n', encoding="utf-8"
    )
    code, output = run(
        "compare", questions, "--documents", tmp_path / "docs", "--embed-model", "none"
    )
    assert code == 0, output
    assert "1 question about 1 document" in " ".join(output.split())


@pytest.mark.slow
def test_the_samples_questions_give_a_report_for_each_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--embed-model", "none", "--strategies", "densex-sentences,bm25")
    monkeypatch.chdir(DATA)
    code, output = run("compare", "questions.jsonl", *options, "--out", tmp_path / "out")
    assert code == 0, output
    for language in ("en", "ja"):
        assert f"questions ({language}): 30 questions about 14 documents" in " ".join(
            output.split()
        )
        report = json.loads(
            (tmp_path / "out" / language / "report.json").read_text(encoding="utf-8")
        )
        assert report["dataset"]["language"] == language
        assert {question["document"] for question in report["questions"]} != {""}
    monkeypatch.chdir(tmp_path)
    code, output = run(
        "compare", DATA / "questions.jsonl", *options, "--language", "ja", "--out", "one"
    )
    assert code == 0, output
    assert "questions: 30 questions" in " ".join(output.split())
    assert (tmp_path / "one" / "report.html").exists()


def test_without_the_documents_the_error_says_what_to_pass(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "Why?", "answers": ["so"]}\n', encoding="utf-8")
    code, output = run("compare", questions, "--embed-model", "none")
    assert code == 1
    assert "documents" in output


def test_a_passage_that_is_not_recorded_leaves_out_what_needs_it_with_advice(
    tmp_path: Path,
) -> None:
    (tmp_path / "recorded.jsonl").write_text(
        '{"text": "x", "propositions": ["x"]}\n', encoding="utf-8"
    )
    squad = write_squad(tmp_path, "en")
    recorded = f"recorded:{tmp_path / 'recorded.jsonl'}"
    arguments = (
        "compare",
        squad,
        "--embed-model",
        "none",
        "--propositionizer",
        recorded,
        "--strategies",
    )
    code, output = run(*arguments, "densex")
    assert code == 1
    assert "passages are not in" in " ".join(output.split())
    code, output = run(*arguments, "densex,bm25")
    assert code == 0
    assert "Left out: densex: it failed: " in output
    assert "passages are not in" in " ".join(output.split())


def test_questions_without_answers_have_their_gold_passages_in_the_table(tmp_path: Path) -> None:
    file = tmp_path / "tea.questions.jsonl"
    lines = [
        {
            "title": "Tea",
            "text": "Green tea is steamed.",
            "questions": ["What is done to green tea?"],
        },
        {"title": "Tea", "text": "Black tea is oxidised.", "questions": ["What is black tea?"]},
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    code, output = run(
        "compare", file, "--embed-model", "none", "--strategies", "densex-sentences,bm25"
    )
    assert code == 0, output
    assert "gold@1" in output
    assert "AR@" not in output


def test_an_llm_makes_propositions_when_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squad = write_squad(tmp_path, "en")
    with OpenAIServer(held({})) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        quiet = run("compare", squad, "--embed-model", "none", "--strategies", "densex-sentences")
        assert (quiet[0], server.requests) == (0, [])
        run(
            "compare",
            squad,
            "--embed-model",
            "none",
            "--strategies",
            "densex",
            "--propositionizer",
            "llm",
        )
        assert server.requests


def test_where_no_answer_could_be_had_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    ask = [
        "compare",
        write_squad(tmp_path, "en"),
        "--embed-model",
        "none",
        "--strategies",
        "densex-sentences",
    ]
    for status, expected in ((401, 1), (200, 0)):
        with OpenAIServer(lambda request, status=status: Reply("1889", status=status)) as server:
            monkeypatch.setenv("OPENAI_API_BASE", server.url)
            code, output = run(*ask, "--reader-model", "gpt-4o-mini")
        assert code == expected, output
        assert ("All failed for: em@100, f1@100" in output) == (expected == 1)
        assert "densex-sentences" in output


def test_an_llm_without_a_key_is_an_error(tmp_path: Path) -> None:
    code, output = run(
        "compare",
        write_squad(tmp_path, "en"),
        "--embed-model",
        "none",
        "--reader-model",
        "gpt-4o-mini",
    )
    assert code == 1
    assert "OPENAI_API_KEY" in output


@needs_terminals
def test_a_terminal_shows_the_progress_and_keeps_the_result_alone(tmp_path: Path) -> None:
    (tmp_path / "茶.md").write_text("Green tea is steamed. 緑茶は蒸される。", encoding="utf-8")
    questions = tmp_path / "q.jsonl"
    questions.write_text(
        '{"question": "How is green tea made?", "answers": ["steamed"]}', encoding="utf-8"
    )
    command = (
        "compare",
        questions,
        "--documents",
        tmp_path,
        "--strategies",
        "bm25",
        "--embed-model",
        "none",
    )
    code, output = in_a_terminal("", *command)
    assert code == 0, output
    progress, _, result = output.rpartition("\x1b[1A\x1b[2K")  # up, and the line erased
    assert "Loading the embedding model: 0 of 1" in progress
    assert "1 of 1" not in result
    assert "AR@100" in result
