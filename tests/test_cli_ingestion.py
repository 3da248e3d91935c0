"""`densex index` with an LLM: what it asks for, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from llama_index.core import Settings
from typer.testing import CliRunner

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.cli import app
from llama_pack_densex.index.folder import REPORT_FILE, writing_to
from tests.ingestion.reports import read_report
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.searching import ShortEmbedding

TEXTS = {
    "tea.md": "Green tea is steamed. Black tea is oxidised.",
    "lakes/琵琶湖.md": "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。",
    "lakes/Geneva.md": "Lake Geneva lies in the Alps. The Rhone flows through it.",
    "港.txt": "函館の港は1859年に開かれた。",
}


def echo(body: dict[str, Any]) -> str:
    return json.dumps([asked_content(body)], ensure_ascii=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """OpenAI, as the command line finds it; each passage is its own proposition."""
    with OpenAIServer(echo) as running:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", running.url)
        yield running


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return written(tmp_path / "docs", TEXTS)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "索引"


def written(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def index(*arguments: str | Path) -> Result:
    """Run the command in this process, searching by words where nothing else is said."""
    given = ["index", *map(str, arguments)]
    if "--embed-model" not in given:
        given += ["--embed-model", "none"]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def states(folder: Path) -> dict[str, str]:
    return {
        outcome.document_id: outcome.state
        for outcome in read_report(folder / REPORT_FILE).documents
    }


def unchanged_but(**others: str) -> dict[str, str]:
    return {**dict.fromkeys(TEXTS, "unchanged"), **others}


# what has changed since the last time


def test_the_first_time_each_passage_is_asked_for_once(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    assert index(docs, "--to", to).exit_code == 0
    assert sorted(seen.content for seen in server.requests) == sorted(TEXTS.values())
    assert states(to) == dict.fromkeys(TEXTS, "done")


def touch(docs: Path) -> None:
    for file in docs.rglob("*.*"):
        os.utime(file, (0, 0))


def change(docs: Path) -> None:
    (docs / "tea.md").write_text("White tea is withered.", encoding="utf-8")


def add(docs: Path) -> None:
    (docs / "lakes" / "摩周湖.md").write_text("摩周湖は北海道にある。", encoding="utf-8")


def delete(docs: Path) -> None:
    (docs / "港.txt").unlink()


def move(docs: Path) -> None:
    shutil.move(docs / "tea.md", docs / "lakes" / "tea.md")


def rename(docs: Path) -> None:
    (docs / "tea.md").rename(docs / "drinks.md")


def swap(docs: Path) -> None:
    """Two files take each other's places."""
    (docs / "lakes" / "Geneva.md").write_text(TEXTS["tea.md"], encoding="utf-8")
    (docs / "tea.md").write_text(TEXTS["lakes/Geneva.md"], encoding="utf-8")


# a change, what becomes of whom, requests
CHANGES: list[tuple[Callable[[Path], None], dict[str, str], int]] = [
    (touch, {}, 0),
    (change, {"tea.md": "changed"}, 1),
    (add, {"lakes/摩周湖.md": "done"}, 1),
    (delete, {"港.txt": "deleted"}, 0),
    (move, {"tea.md": "deleted", "lakes/tea.md": "done"}, 0),
    # the file's name is the title that the LLM is told
    (rename, {"tea.md": "deleted", "drinks.md": "done"}, 1),
    (swap, {"tea.md": "changed", "lakes/Geneva.md": "changed"}, 2),
]


@pytest.mark.parametrize("case", CHANGES, ids=[case[0].__name__ for case in CHANGES])
def test_the_next_time_only_what_changed_is_touched(
    server: OpenAIServer,
    docs: Path,
    to: Path,
    case: tuple[Callable[[Path], None], dict[str, str], int],
) -> None:
    happens, became, requests = case
    index(docs, "--to", to)
    server.requests.clear()
    happens(docs)
    assert index(docs, "--to", to).exit_code == 0
    assert states(to) == unchanged_but(**became)
    assert len(server.requests) == requests
    there = {document_id for document_id, state in states(to).items() if state != "deleted"}
    assert set(DenseXRetrievalPack.load(to).documents()) == there


def test_a_change_that_is_taken_back_costs_nothing(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    index(docs, "--to", to)
    change(docs)
    index(docs, "--to", to)
    written(docs, TEXTS)
    server.requests.clear()
    index(docs, "--to", to)
    assert states(to) == unchanged_but(**{"tea.md": "changed"})
    assert server.requests == []


def test_a_copied_file_costs_nothing(server: OpenAIServer, docs: Path, to: Path) -> None:
    index(docs, "--to", to)
    shutil.copy(docs / "tea.md", docs / "lakes" / "tea.md")
    server.requests.clear()
    index(docs, "--to", to)
    assert states(to) == unchanged_but(**{"lakes/tea.md": "done"})
    assert server.requests == []


def test_a_corpus_of_two_folders(
    server: OpenAIServer, docs: Path, to: Path, tmp_path: Path
) -> None:
    more = written(
        tmp_path / "more", {"tea.md": "Oolong is rolled.", "茶.md": "煎茶は蒸して作る。"}
    )
    assert index(docs, more, "--to", to).exit_code == 0
    both = {*TEXTS, "茶.md"} - {"tea.md"} | {"docs/tea.md", "more/tea.md"}
    assert states(to) == dict.fromkeys(both, "done")
    server.requests.clear()
    (more / "茶.md").write_text("抹茶は石臼で挽く。", encoding="utf-8")
    index(docs, more, "--to", to)
    assert states(to) == {**dict.fromkeys(both, "unchanged"), "茶.md": "changed"}
    assert [seen.content for seen in server.requests] == ["抹茶は石臼で挽く。"]


def test_a_folder_by_itself_leaves_the_documents_of_another_one(
    server: OpenAIServer, docs: Path, to: Path, tmp_path: Path
) -> None:
    more = written(tmp_path / "more", {"茶.md": "煎茶は蒸して作る。"})
    index(docs, more, "--to", to)
    (docs / "tea.md").unlink()
    index(more, "--to", to)
    assert states(to) == {"茶.md": "unchanged"}
    assert set(DenseXRetrievalPack.load(to).documents()) == {*TEXTS, "茶.md"}


def test_a_passage_that_could_not_be_asked_for_is_asked_for_the_next_time(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    server.responder = lambda body: (
        Reply("no", status=409, headers={"retry-after-ms": "1"})
        if "琵琶湖" in asked_content(body)
        else echo(body)
    )
    assert index(docs, "--to", to).exit_code == 0
    server.responder = echo
    server.requests.clear()
    assert index(docs, "--to", to).exit_code == 0
    assert states(to) == unchanged_but(**{"lakes/琵琶湖.md": "changed"})
    assert [seen.content for seen in server.requests] == [TEXTS["lakes/琵琶湖.md"]]


# where nothing came of it


def silent(body: dict[str, Any]) -> Reply:
    return Reply("no", status=409, headers={"retry-after-ms": "1"})


def useless(body: dict[str, Any]) -> Reply:
    return Reply("申し訳ありません。I think it is about tea.")


NOTHING = [
    (silent, "The provider never answered"),
    (useless, "None of the passages yielded propositions"),
]
EACH_NOTHING = pytest.mark.parametrize(("responder", "said"), NOTHING, ids=["silent", "useless"])


@EACH_NOTHING
def test_a_run_that_nothing_came_of_is_an_error_and_asks_again(
    server: OpenAIServer,
    docs: Path,
    to: Path,
    responder: Callable[[dict[str, Any]], Reply],
    said: str,
) -> None:
    server.responder = responder
    result = index(docs, "--to", to)
    assert result.exit_code == 1
    assert f"Error: {said}" in result.stderr
    assert "Stopped" in result.stderr
    summary = read_report(to / REPORT_FILE).summary
    assert (summary.state, said in summary.why_stopped, summary.documents) == (
        "stopped",
        True,
        {"failed": 4},
    )
    assert not (to / "densex.json").exists()
    assert not list(to.glob("data-*"))
    server.responder = echo
    server.requests.clear()
    assert index(docs, "--to", to).exit_code == 0
    assert sorted(seen.content for seen in server.requests) == sorted(TEXTS.values())
    assert states(to) == dict.fromkeys(TEXTS, "done")


@EACH_NOTHING
def test_what_the_index_has_stays_where_nothing_came_of_a_change(
    server: OpenAIServer,
    docs: Path,
    to: Path,
    responder: Callable[[dict[str, Any]], Reply],
    said: str,
) -> None:
    index(docs, "--to", to)
    server.responder = responder
    change(docs)
    add(docs)
    delete(docs)
    result = index(docs, "--to", to)
    assert (result.exit_code, said in result.stderr) == (1, True)
    failed = {"tea.md": "failed", "lakes/摩周湖.md": "failed"}
    assert states(to) == {"lakes/琵琶湖.md": "unchanged", "lakes/Geneva.md": "unchanged", **failed}
    passages = {
        node.get_content()
        for node in DenseXRetrievalPack.load(to, proposition_llm="none").nodes("passage")
    }
    assert passages == {*TEXTS.values()}
    server.responder = echo
    server.requests.clear()
    assert index(docs, "--to", to).exit_code == 0
    assert len(server.requests) == 2
    assert states(to) == unchanged_but(
        **{"tea.md": "changed", "lakes/摩周湖.md": "done", "港.txt": "deleted"}
    )


@pytest.mark.parametrize(
    "reply",
    [
        Reply("申し訳ありませんが、お手伝いできません。"),
        Reply(None, finish_reason="content_filter"),
        Reply("flagged", status=400, code="content_filter"),
    ],
)
def test_a_single_document_that_a_provider_refuses_is_indexed_beside_others(
    server: OpenAIServer, docs: Path, to: Path, reply: Reply
) -> None:
    index(docs, "--to", to)
    server.responder = lambda body: reply
    add(docs)
    assert index(docs, "--to", to).exit_code == 0
    assert read_report(to / REPORT_FILE).summary.statuses == {"fallback": 1}


def test_a_provider_that_is_silent_when_the_rest_was_kept_is_an_error(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    index(docs, "--to", to)
    (to / "densex.json").unlink()  # as if it had been stopped before the end
    server.responder = silent
    add(docs)
    result = index(docs, "--to", to)
    assert (result.exit_code, "The provider never answered" in result.stderr) == (1, True)
    assert states(to) == {**dict.fromkeys(TEXTS, "done"), "lakes/摩周湖.md": "failed"}


def test_a_provider_that_is_silent_for_long_is_reported_too(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    server.responder = silent
    written(docs, {f"{number:02}.md": f"第{number}の文書である。" for number in range(20)})
    result = index(docs, "--to", to)
    assert (result.exit_code, "did not answer 8 requests in a row" in result.stderr) == (1, True)
    assert read_report(to / REPORT_FILE).summary.state == "stopped"


def no_key(body: dict[str, Any]) -> Reply:
    return Reply("no such key", status=401, code="invalid_api_key")


@pytest.mark.parametrize(
    ("responder", "options"),
    [
        (no_key, ()),
        (echo, ("--max-tokens-total", "1")),
        (echo, ("--embed-model", "no/such/model")),
        (echo, ("--propositionizer", "recorded:nowhere.jsonl")),
        (
            echo,
            ("--propositionizer", "sentence", "--embed-model", "minilm", "--granularity", "word"),
        ),
    ],
)
def test_an_index_that_fails_leaves_nothing_behind(
    server: OpenAIServer,
    docs: Path,
    to: Path,
    responder: Callable[[dict[str, Any]], Reply],
    options: tuple[str, ...],
) -> None:
    server.responder = responder
    assert index(docs, "--to", to, *options).exit_code != 0
    assert not to.exists()


def test_documents_that_cannot_be_embedded_leave_nothing_behind_but_what_was_paid_for(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    Settings.embed_model = RefusingEmbedding()
    only_tea = docs / "tea.md"
    assert index_with_settings(only_tea, "--to", to, "--propositionizer", "sentence").exit_code == 1
    assert not to.exists()
    assert index_with_settings(only_tea, "--to", to).exit_code == 1
    assert not list(to.glob("data-*"))
    server.requests.clear()
    assert index(only_tea, "--to", to).exit_code == 0
    assert server.requests == []


# how it ends


class RefusingEmbedding(ShortEmbedding):
    """Cannot embed texts about tea."""

    @classmethod
    def class_name(cls) -> str:
        return "RefusingEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        if "tea" in text.split():
            raise ValueError("this text cannot be embedded")
        return super()._get_text_embedding(text)


def index_with_settings(*arguments: str | Path) -> Result:
    """Run the command with the embedding model of `Settings`."""
    return CliRunner().invoke(app, ["index", *map(str, arguments)], env={"COLUMNS": "100"})


def test_it_ends_with_exit_code_1_and_names_the_documents_that_failed(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    Settings.embed_model = RefusingEmbedding()
    result = index_with_settings(docs, "--to", to)
    assert result.exit_code == 1
    assert "Documents: 3 indexed, 0 unchanged, 1 failed." in result.stdout
    assert "failed: tea.md: ValueError: this text cannot be embedded" in result.stdout
    assert str(to / REPORT_FILE) in "".join(result.stdout.split())
    assert states(to)["tea.md"] == "failed"


def test_with_a_key_an_index_of_sentences_stays_so_and_says_how_to_change_it(
    docs: Path, to: Path
) -> None:
    def last_lines(**environment: str) -> str:
        arguments = ["index", str(docs), "--to", str(to), "--embed-model", "none"]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100", **environment})
        assert result.exit_code == 0
        return " ".join(result.stdout.split())

    assert "--llm" not in last_lines(OPENAI_API_KEY="")
    assert "stays so although there is a key now: with --llm gpt-4o-mini" in last_lines(
        OPENAI_API_KEY="sk-1"
    )


def test_whoever_asks_an_index_that_lacks_documents_is_told(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    Settings.embed_model = RefusingEmbedding()
    index_with_settings(docs, "--to", to)
    asked = CliRunner().invoke(
        app, ["query", str(to), "Which lake?", "--query-llm", "none", "--json"]
    )
    assert asked.exit_code == 0
    assert "the last ingestion failed for 1 document" in asked.stderr
    assert json.loads(asked.stdout)["results"]


def test_what_failed_is_tried_again_the_next_time_without_a_request(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    Settings.embed_model = RefusingEmbedding()
    index_with_settings(docs, "--to", to)
    server.requests.clear()
    assert index_with_settings(docs, "--to", to).exit_code == 1
    assert states(to) == unchanged_but(**{"tea.md": "failed"})
    assert server.requests == []


def test_an_error_that_stops_it_is_told_without_a_traceback(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    server.responder = lambda body: Reply("no such key", status=401, code="invalid_api_key")
    result = index(docs, "--to", to)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Error: AuthenticationError: no such key" in result.stderr
    assert "Stopped" in result.stderr
    assert "Traceback" not in result.stderr
    assert not to.exists() or not (to / "densex.json").exists()


@pytest.mark.parametrize("limit", [("--max-tokens-total", "1"), ("--max-cost", "0.00001")])
def test_a_budget_that_is_used_up_is_told_without_a_traceback(
    server: OpenAIServer, docs: Path, to: Path, limit: tuple[str, str]
) -> None:
    result = index(docs, "--to", to, *limit)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Error: The budget does not allow another request" in result.stderr
    assert "Stopped" in result.stderr
    assert "Traceback" not in result.stderr
    assert server.requests == []


@pytest.mark.slow
def test_the_command_of_a_user_ends_without_a_traceback_too(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    arguments = ["index", docs, "--to", to, "--embed-model", "none", "--max-tokens-total", "1"]
    command = [
        sys.executable,
        "-c",
        "from llama_pack_densex.cli import app; app()",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Error: The budget does not allow another request" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_same_command_with_more_money_goes_on_where_it_stopped(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    # the server counts one token a message and the reply; what is set aside for a request is some 400
    many = written(docs, {f"{number:02}.md": f"第{number}の文書である。" for number in range(20)})
    assert (
        index(many, "--to", to, "--max-concurrency", "1", "--max-tokens-total", "500").exit_code
        == 1
    )
    paid_for = [seen.content for seen in server.requests]
    assert 0 < len(paid_for) < 24
    assert index(many, "--to", to).exit_code == 0
    asked = [seen.content for seen in server.requests]
    assert len(asked) == len(set(asked)) == 24


def test_a_run_that_overlaps_another_says_so_in_one_message(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    assert index(docs, "--to", to).exit_code == 0
    with writing_to(to):
        result = index(docs, "--to", to)
    assert result.exit_code == 1
    assert " ".join(result.output.split()).startswith("Error: ")
    assert f"is being written to by process {os.getpid()}" in " ".join(result.output.split())


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP ends a program, also where the tests are run with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    ("stop", "told"),
    [
        ("SIGINT", "KeyboardInterrupt"),
        ("SIGTERM", "SystemExit: 143"),
        ("SIGHUP", "SystemExit: 143"),
    ],
)
def test_an_interruption_leaves_an_index_that_the_next_run_completes(
    server: OpenAIServer, docs: Path, to: Path, stop: str, told: str
) -> None:
    def interrupting(body: dict[str, Any]) -> Reply:
        if len(server.requests) == 10:
            os.kill(os.getpid(), signal.Signals[stop])
            return Reply(echo(body), delay=0.5)
        return Reply(echo(body))

    many = written(docs, {f"{number:02}.md": f"第{number}の文書である。" for number in range(20)})
    server.responder = interrupting
    result = index(many, "--to", to, "--max-concurrency", "1")
    assert result.exit_code == (130 if stop == "SIGINT" else 143)
    assert "Traceback" not in result.output
    assert {signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)} == {signal.SIG_DFL}
    assert read_report(to / REPORT_FILE).summary.why_stopped == told
    answered = {seen.content for seen in server.requests[:10]}
    server.responder = echo
    server.requests.clear()
    assert index(many, "--to", to).exit_code == 0
    assert answered.isdisjoint(seen.content for seen in server.requests)
    assert DenseXRetrievalPack.load(to).counts().documents == 24


# what it says


def test_progress_is_plain_lines_on_stderr_where_there_is_no_terminal(
    server: OpenAIServer, docs: Path, to: Path
) -> None:
    result = index(docs, "--to", to)
    progress = [line for line in result.stderr.splitlines() if "passages" in line]
    assert progress[-1].startswith("4 documents, 4 passages, 4 propositions, ")
    assert "\x1b" not in result.stderr
    assert "\r" not in result.stderr
    assert not set(progress) & set(result.stdout.splitlines())


def test_the_summary_is_on_stdout(server: OpenAIServer, docs: Path, to: Path) -> None:
    result = index(docs, "--to", to)
    assert "Documents: 4 indexed, 0 unchanged." in result.stdout
    assert "Requests      4 answered" in result.stdout
    assert "Cost          <$0.01 (gpt-4o-mini)" in result.stdout


def test_fallbacks_are_told_with_their_reason(server: OpenAIServer, docs: Path, to: Path) -> None:
    server.responder = lambda body: (
        Reply(None, finish_reason="content_filter") if "港" in asked_content(body) else echo(body)
    )
    result = index(docs, "--to", to)
    assert result.exit_code == 0
    assert "1 fallback: the provider's content filter stopped the reply" in result.stdout
    assert "Passages by status: 3 ok, 1 fallback" in result.stdout


# options

LIMITS = [
    ("--max-concurrency", "4"),
    ("--requests-per-minute", "60"),
    ("--tokens-per-minute", "1000"),
    ("--max-cost", "1"),
    ("--max-tokens-total", "1000"),
    ("--prices", "prices.json"),
]


@pytest.mark.parametrize("limit", LIMITS, ids=[limit[0] for limit in LIMITS])
@pytest.mark.parametrize(
    "options", [(), ("--propositionizer", "sentence"), ("--propositionizer", "recorded:FILE")]
)
def test_limits_of_an_llm_are_a_usage_error_where_none_is_asked(
    docs: Path, to: Path, tmp_path: Path, limit: tuple[str, str], options: tuple[str, ...]
) -> None:
    (tmp_path / "made.jsonl").write_text('{"text": "x", "propositions": ["x"]}\n', encoding="utf-8")
    result = index(
        docs,
        "--to",
        to,
        *(part.replace("FILE", str(tmp_path / "made.jsonl")) for part in options),
        *limit,
    )
    assert result.exit_code == 2
    assert limit[0] in result.stderr
    assert "only for --propositionizer llm" in result.stderr
    assert not to.exists()


def test_prices_from_a_file_count(
    server: OpenAIServer, docs: Path, to: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(
        json.dumps({"gpt-4o-mini": {"input": 0, "output": 1_000_000}}), encoding="utf-8"
    )
    result = index(docs, "--to", to, "--prices", prices)
    tokens = read_report(to / REPORT_FILE).summary.requests.usage.output_tokens
    assert tokens > 0
    assert f"Cost          ${tokens}.00 (gpt-4o-mini)" in result.stdout
