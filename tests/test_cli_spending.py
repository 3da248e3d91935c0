"""What a command says, and asks in a terminal, before it spends money; and servers that are not there."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage, PropositionizerError
from tests.another_process import run_program
from tests.openai_server import OpenAIServer, asked_content
from tests.test_cli import invoke, run, run_process

TEXTS = {
    "tea.md": "Green tea is steamed. Black tea is oxidised.",
    "琵琶湖.md": "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。",
    "Geneva.md": "Lake Geneva lies in the Alps. The Rhone flows through it.",
}
EMBEDDED = ("--embed-model", "openai:text-embedding-3-small")
PRICED = ("gpt-4o-mini", "3 requests", "tokens sent", "$0.01")

IN_A_TERMINAL = """
import os, pty, sys
process, terminal = pty.fork()
if not process:
    os.execv(sys.executable, [sys.executable, "-m", "llama_pack_densex", *sys.argv[2:]])
seen = b""
is_answered = False
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    seen += part
    if b"[y/N]" in seen and not is_answered:
        is_answered = True
        os.write(terminal, sys.argv[1].encode() + b"\\n")
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""

needs_terminals = pytest.mark.skipif(sys.platform == "win32", reason="it has no such terminals")


def in_a_terminal(answer: str, *command: object, **environment: str) -> tuple[int, str]:
    """Run a command in a terminal, and answer if it asks: its exit code and what was to be seen."""
    terminal = {"COLUMNS": "300", "TERM": "xterm"}
    code, output, _ = run_program(IN_A_TERMINAL, answer, *command, **terminal, **environment)
    return code, output


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """OpenAI, as the command line finds it; each passage is its own proposition."""

    def echo(body: dict[str, Any]) -> str:
        return json.dumps([asked_content(body)], ensure_ascii=False)

    with OpenAIServer(echo) as running:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", running.url)
        yield running


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address at which nothing listens, nor may for as long as the test runs."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/v1"


@needs_terminals
@pytest.mark.parametrize(("answer", "is_sent"), [("y", True), ("n", False), ("", False)])
def test_a_terminal_asks_before_anything_is_sent(
    answer: str, is_sent: bool, server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    code, output = in_a_terminal(
        answer, "index", docs, "--to", tmp_path / "index", "--embed-model", "none"
    )
    assert all(figure in output for figure in (*PRICED, server.url)), output
    assert code == (0 if is_sent else 1), output
    assert len(server.requests) == (len(TEXTS) if is_sent else 0)
    assert (tmp_path / "index").exists() == is_sent


@needs_terminals
@pytest.mark.parametrize("option", [["--yes"], ["-y"], ["--max-cost", "1"]])
def test_who_has_said_so_is_not_asked(
    option: list[str], server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    command = ("index", docs, "--to", tmp_path / "index", "--embed-model", "none", *option)
    code, output = in_a_terminal("n", *command)
    assert code == 0, output
    assert "3 requests" in output
    assert "[y/N]" not in output


def test_without_a_terminal_it_is_said_and_done(
    server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    result = run_process("index", docs, "--to", tmp_path / "index", "--embed-model", "none")
    assert result.returncode == 0
    assert all(figure in result.stderr for figure in PRICED), result.stderr
    assert len(server.requests) == len(TEXTS)


@needs_terminals
def test_what_is_cached_is_not_asked_about(
    server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    command = ("index", docs, "--to", tmp_path / "index", "--embed-model", "none")
    assert run(*command)[0] == 0
    sent = len(server.requests)
    # nothing to do, and all to do again with the same replies
    for change in ([], ["--mode", "auto_merging"]):
        _, output = in_a_terminal("n", *command, *change)
        assert "[y/N]" not in output
        assert "requests" not in output
    assert len(server.requests) == sent


@needs_terminals
def test_only_new_documents_count(server: OpenAIServer, docs: Path, tmp_path: Path) -> None:
    command = ("index", docs, "--to", tmp_path / "index", "--embed-model", "none")
    assert run(*command)[0] == 0
    (docs / "摩周湖.md").write_text("摩周湖は北海道にある。", encoding="utf-8")
    code, output = in_a_terminal("y", *command)
    assert code == 0
    assert "about 1 request," in output


@needs_terminals
@pytest.mark.parametrize("llm", ["none", "openai-like:qwen3", "ollama:qwen3"])
def test_what_costs_nothing_is_not_asked_about(
    llm: str, server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    if llm.startswith("ollama"):
        pytest.importorskip("llama_index.llms.ollama")
        llm = f"{llm}@{server.ollama_url}"
    code, output = in_a_terminal(
        "n", "index", docs, "--to", tmp_path / "i", "--embed-model", "none", "--llm", llm
    )
    assert "[y/N]" not in output
    assert llm.startswith("ollama") or code == 0, output


@needs_terminals
def test_an_embedding_model_that_costs_is_asked_about(
    server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    command = ["index", docs, "--to", tmp_path / "i", "--llm", "none"]
    code, output = in_a_terminal("n", *command, "--embed-model", "openai:text-embedding-3-small")
    assert code == 1
    assert "text-embedding-3-small" in output
    assert server.embedded == []


@needs_terminals
def test_of_many_documents_some_are_looked_at(
    server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    words = "The lamp of the lighthouse is lit at dusk and put out at dawn."
    for number in range(40):
        text = "\n\n".join(f"{words} It is night {number}.{line}." for line in range(600))
        (docs / f"log{number}.md").write_text(text, encoding="utf-8")
    code, output = in_a_terminal(
        "n", "index", docs, "--to", tmp_path / "i", "--embed-model", "none"
    )
    assert code == 1
    told = int(output.partition("about ")[2].partition(" request")[0].replace(",", ""))
    estimated = json.loads(invoke("estimate", docs, "--json").stdout)["requests"]
    assert told == pytest.approx(estimated, rel=0.1)


@pytest.fixture
def index(docs: Path, tmp_path: Path) -> Path:
    assert (
        run("index", docs, "--to", tmp_path / "index", "--llm", "none", "--embed-model", "none")[0]
        == 0
    )
    return tmp_path / "index"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    lines = [
        {"question": "How is green tea made?", "answers": ["steamed"], "language": "en"},
        {"question": "琵琶湖の面積は？", "answers": ["約670平方キロメートル"], "language": "ja"},
    ]
    file = tmp_path / "q.jsonl"
    file.write_text(
        "\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8"
    )
    return file


@needs_terminals
@pytest.mark.parametrize("answer", ["y", "n"])
def test_evaluate_asks_once_for_all_its_languages(
    answer: str, index: Path, questions: Path, server: OpenAIServer
) -> None:
    command = ("evaluate", index, questions, "--reader-model", "gpt-4o-mini")
    _, output = in_a_terminal(answer, *command)
    assert output.count("[y/N]") == 1
    assert "gpt-4o-mini (answers)" in output
    assert "gpt-4o-mini (reader)" in output
    assert bool(server.requests) == (answer == "y")


def test_evaluate_says_it_without_a_terminal(
    index: Path, questions: Path, server: OpenAIServer
) -> None:
    result = run_process("evaluate", index, questions, "--json")
    assert "gpt-4o-mini (answers): about 1 request" in result.stderr
    assert json.loads(result.stdout)["en"]["questions"] == 1


# servers that are not there


@pytest.mark.parametrize(
    "options",
    [
        ["--embed-model", "none"],
        ["--embed-model", "none", "--llm", "openai-like:qwen3"],
        ["--llm", "none", "--embed-model", "openai:text-embedding-3-small"],
    ],
    ids=["openai", "openai-like", "embedding"],
)
def test_index_says_at_once_that_nothing_listens(
    options: list[str], dead: str, docs: Path, tmp_path: Path
) -> None:
    code, output = run("index", docs, "--to", tmp_path / "index", *options, OPENAI_API_BASE=dead)
    assert code == 1
    assert dead in "".join(output.split())
    assert "Retrying" not in output
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("command", ["query", "evaluate", "chat", "serve"])
def test_who_asks_hears_at_once_that_nothing_listens(
    command: str, dead: str, index: Path, questions: Path
) -> None:
    arguments = {
        "query": ["green tea?"],
        "evaluate": [questions],
        "chat": [],
        "serve": ["--port", "0"],
    }[command]
    code, output = run(command, index, *arguments, OPENAI_API_BASE=dead)
    assert code == 1
    assert dead in "".join(output.split())
    assert "Retrying" not in output


@needs_terminals
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--reader-model", "gpt-4o-mini"], "for answers: about 3 requests"),
        (["--propositionizer", "llm", "--strategies", "densex"], "about 3 requests"),
        (["--reader-model", "gpt-4o-mini", "--judge-model", "gpt-4o"], "gpt-4o (OpenAI"),
    ],
)
def test_compare_asks_before_anything_is_sent(
    options: list[str], told: str, docs: Path, tmp_path: Path, server: OpenAIServer
) -> None:
    (tmp_path / "q.jsonl").write_text(
        '{"question": "How is green tea made?", "answers": ["steamed"]}'
    )
    strategies = [] if "--strategies" in options else ["--strategies", "bm25"]
    command = [
        "compare",
        tmp_path / "q.jsonl",
        "--documents",
        docs,
        "--embed-model",
        "none",
        *strategies,
        *options,
    ]
    code, output = in_a_terminal("n", *command)
    assert code == 1, output
    assert told in output
    assert output.count("[y/N]") == 1
    assert server.requests == []
    assert told in run_process(*command).stderr
    assert server.requests


@needs_terminals
@pytest.mark.parametrize("llm", ["--reader-model", "--llm"])
def test_compare_does_not_ask_about_replies_that_it_has(
    llm: str, docs: Path, tmp_path: Path, server: OpenAIServer, questions: Path
) -> None:
    strategies = "contextual-256" if llm == "--llm" else "bm25"
    command = [
        "compare",
        questions,
        "--documents",
        docs,
        "--embed-model",
        "none",
        "--out",
        tmp_path / "out",
    ]
    command += [
        "--strategies",
        f"densex,{strategies}",
        "--propositionizer",
        "llm",
        llm,
        "gpt-4o-mini",
    ]
    assert in_a_terminal("y", *command)[0] == 0
    sent = len(server.requests)
    code, output = in_a_terminal("n", *command)
    assert code == 0, output
    assert "[y/N]" not in output
    assert "tokens sent" not in output
    assert len(server.requests) == sent
    _, output = in_a_terminal("n", *command, "--judge-model", "gpt-4o")
    assert ("[y/N]" in output) == (llm == "--reader-model")


@needs_terminals
@pytest.mark.parametrize(
    "case",
    [
        (["estimate", "DOCS", "--sample", "2", "--embed-model", "none"], "about 2 requests"),
        (
            ["estimate", "DOCS", "--sample", "9", "--embed-model", "none", "--to", "INDEX"],
            "about 3 requests",
        ),
        (["questions", "DOCS", "--out", "OUT"], "about 4 requests"),
        (
            ["score-propositions", "--predicted", "llm", "--reference", "RECORDED", *EMBEDDED],
            "about 2 requests",
        ),
        (
            ["score-propositions", "--predicted", "RECORDED", "--reference", "RECORDED", *EMBEDDED],
            "small: about embed",
        ),
        (
            [
                "compare",
                "QUESTIONS",
                "--documents",
                "DOCS",
                "--strategies",
                "densex-sentences",
                *EMBEDDED,
            ],
            "small: about embed",
        ),
    ],
)
def test_each_command_that_costs_asks_once(
    case: tuple[list[str], str], docs: Path, tmp_path: Path, server: OpenAIServer, questions: Path
) -> None:
    command, told = case
    recorded = tmp_path / "recorded.jsonl"
    rows = [{"text": text, "propositions": [text]} for text in list(TEXTS.values())[:2]]
    recorded.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    places = {
        "DOCS": docs,
        "INDEX": tmp_path / "index",
        "OUT": tmp_path / "own.jsonl",
        "RECORDED": recorded,
        "QUESTIONS": questions,
    }
    words = [places.get(word, word) for word in command]
    code, output = in_a_terminal("n", *words)
    assert code == 1, output
    assert told in output
    assert output.count("[y/N]") == 1
    assert server.requests == server.embedded == []
    in_a_terminal("y", *words)
    assert server.requests or server.embedded


@needs_terminals
def test_a_sample_that_was_asked_for_is_not_asked_about(
    server: OpenAIServer, docs: Path, tmp_path: Path
) -> None:
    command = (
        "estimate",
        docs,
        "--sample",
        "2",
        "--embed-model",
        "none",
        "--to",
        tmp_path / "index",
    )
    assert in_a_terminal("y", *command)[0] == 0
    code, output = in_a_terminal("n", *command)
    assert (code, len(server.requests)) == (0, 2), output
    assert "[y/N]" not in output


def test_a_propositionizer_whose_server_is_not_there_gives_up_after_the_second_try(
    dead: str,
) -> None:
    propositionizer = LLMPropositionizer(OpenAI("gpt-4o-mini", api_base=dead, api_key="sk-test"))
    with pytest.raises(PropositionizerError, match=re.escape(dead)):
        propositionizer.propositionize([Passage(text) for text in TEXTS.values()])
    assert propositionizer.figures.failed <= 2 * len(TEXTS)
