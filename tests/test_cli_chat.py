"""`densex chat`: questions over a pipe, sources, a new conversation, an answer that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from typer.testing import CliRunner

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.cli import app
from tests.openai_server import OpenAIServer, Reply

TIDES = "The Bay of Fundy has the highest tides. The moon raises them."
LAKE = "琵琶湖は滋賀県にある。日本で最も大きい湖である。"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    documents = [Document(id_="tides.md", text=TIDES), Document(id_="湖.md", text=LAKE)]
    DenseXRetrievalPack(
        documents,
        proposition_llm="none",
        query_llm="none",
        embed_model="none",
        persist_dir=tmp_path / "index",
    )
    return tmp_path / "index"


def said(index: Path, *lines: str, options: tuple[str, ...] = ("--query-llm", "none")) -> Any:
    return CliRunner().invoke(
        app, ["chat", str(index), *options], input="\n".join(lines) + "\n", env={"COLUMNS": "80"}
    )


def test_a_conversation_over_a_pipe(index: Path) -> None:
    result = said(
        index,
        "Which bay has the highest tides?",
        "/sources",
        "thanks!",
        "琵琶湖はどこにありますか。",
        "/quit",
        "never read",
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "The Bay of Fundy has the highest tides.[^1]" in lines[0]
    assert "[^1] tides.md (tides.md)" in result.stdout
    assert "You are welcome." in result.stdout
    assert "琵琶湖は滋賀県にある。[^1]" in result.stdout
    assert "never read" not in result.stdout


def test_a_line_that_is_no_text_is_told_and_the_others_are_answered(index: Path) -> None:
    lines = "Which bay has the highest tides?\n琵琶湖はどこにありますか。\n".encode()
    result = CliRunner().invoke(
        app,
        ["chat", str(index), "--query-llm", "none"],
        input="湖はどこ?\n".encode("cp932") + lines,
    )
    assert result.exit_code == 1
    assert "the question is not UTF-8: convert it" in " ".join(result.stderr.split())
    assert "The Bay of Fundy has the highest tides.[^1]" in result.stdout
    assert "琵琶湖は滋賀県にある。[^1]" in result.stdout


def test_a_reset_forgets_and_an_unknown_command_is_explained(index: Path) -> None:
    result = said(
        index, "Which bay has the highest tides?", "/reset", "/sources", "/what", "summarise that"
    )
    assert "The last answer cites nothing." in result.stdout
    assert "/sources shows" in result.stdout
    assert "What would you like to know?" in result.stdout


def test_a_question_that_the_llm_fails_at_ends_neither_the_conversation_nor_in_a_traceback(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    replies = iter(
        [
            Reply("no such model", status=404, code="model_not_found"),
            Reply("In the Bay of Fundy.[^1]"),
        ]
    )
    with OpenAIServer(lambda body: next(replies)) as server:
        options = ("--query-llm", "openai-like:some", "--api-base", server.url)
        result = said(
            index, "Which bay has the highest tides?", "Which bay has them?", options=options
        )
    assert result.exit_code == 1
    assert "Error: " in result.stderr
    assert "In the Bay of Fundy.[^1]" in result.stdout


def test_a_server_that_answers_with_a_page_is_a_model_that_could_not_be_asked(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer(lambda body: Reply(body_override="<html>Welcome</html>")) as server:
        options = ["--query-llm", "openai-like:some", "--api-base", server.url]
        result = CliRunner().invoke(
            app, ["query", str(index), "Which bay has the highest tides?", *options]
        )
    assert result.exit_code == 1
    assert "the model could not be asked" in result.stderr
    assert "check the server's address" in " ".join(result.stderr.split())


@pytest.mark.parametrize("body", ["<html>Welcome</html>", '{"error": {"message": "overloaded"}}'])
def test_a_page_in_place_of_a_stream_is_no_answer_that_was_not_found(
    index: Path, body: str
) -> None:
    with OpenAIServer(lambda _: Reply(body_override=body)) as server:
        model = f"openai-like:some@{server.url}"
        pack = DenseXRetrievalPack.load(
            index, proposition_llm="none", query_llm=model, streaming=True
        )
        response = pack.run("Which bay has the highest tides?")
        with pytest.raises(
            ConnectionError, match=r"could not be asked.*Check the server's address"
        ):
            str(response)


@pytest.mark.parametrize("command", [["query", "INDEX", "Which bay?"], ["chat", "INDEX"]])
def test_a_reply_without_choices_is_told(
    index: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer(lambda body: Reply(body_override='{"choices": []}')) as server:
        options = ["--query-llm", "openai-like:some", "--api-base", server.url]
        arguments = [part.replace("INDEX", str(index)) for part in command]
        result = CliRunner().invoke(
            app, [*arguments, *options], input="Which bay has the highest tides?\n"
        )
    told = result.stderr if "chat" in command else result.stdout
    assert ("could not be asked" if "chat" in command else "The model gave no answer.") in told


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
def test_a_signal_stops_an_answer_and_not_the_program(index: Path) -> None:
    replies = iter([Reply("Never shown.[^1]", delay=30), Reply("In the Bay of Fundy.[^1]")])
    with OpenAIServer(lambda body: next(replies)) as server:
        command = [
            sys.executable,
            "-c",
            _INTERRUPTED,
            "chat",
            str(index),
            "--query-llm",
            "openai-like:some",
        ]
        environment = {**os.environ, "OPENAI_API_KEY": "sk-test", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            [*command, "--api-base", server.url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("Which bay has the highest tides?\n")
            process.stdin.flush()
            while not server.requests:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert "(stopped)" in process.stdout.readline()
            out, _ = process.communicate("Which bay has the highest tides?\n")
        assert process.returncode == 0
    assert out.strip() == "In the Bay of Fundy.[^1]"


# a process that was started in the background of a shell ignores the signal
_INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from llama_pack_densex.cli import app
app()
"""
