"""densex.toml, and environment variables for the options of `densex index` and `densex query`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.openai_server import OpenAIServer
from tests.test_cli import invoke, run
from tests.test_cli_spending import in_a_terminal, needs_terminals


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two documents."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tea.md").write_text(
        "Green tea is steamed. Black tea is oxidised.", encoding="utf-8"
    )
    (tmp_path / "docs" / "湖.md").write_text("琵琶湖は日本最大の湖である。", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(folder: Path, text: str) -> Path:
    file = folder / "densex.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_file_sets_options_and_is_shown(place: Path) -> None:
    configure(
        place,
        '[index]\nto = "索引"\nembed-model = "none"\nexclude = ["湖.md"]\n[query]\ntop-k = 1\njson = true',
    )
    result = invoke("index", "docs", COLUMNS="200")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0].startswith(
        'densex.toml, [index]: to = "索引", embed-model = "none"'
    )
    assert "1 indexed" in result.stdout
    answer = invoke("query", "索引", "black or green tea?")
    assert len(json.loads(answer.stdout)["results"]) == 1
    assert answer.stderr.splitlines()[0] == "densex.toml, [query]: top-k = 1, json = true"


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    place: Path,
) -> None:
    configure(place, '[index]\nto = "by-file"\nembed_model = "none"')
    assert run("index", "docs")[0] == 0
    assert run("index", "docs", DENSEX_INDEX_TO="by-variable")[0] == 0
    assert run("index", "docs", "--to", "by-option", DENSEX_INDEX_TO="by-variable2")[0] == 0
    assert {path.name for path in place.glob("by-*")} == {"by-file", "by-variable", "by-option"}


def test_a_list_in_the_environment_is_divided_at_spaces(place: Path) -> None:
    variables = {
        "DENSEX_INDEX_TO": "index",
        "DENSEX_INDEX_EMBED_MODEL": "none",
        "DENSEX_INDEX_EXCLUDE": "湖.md x",
    }
    assert "1 indexed" in run("index", "docs", **variables)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[index]\ncolour = 3", "no option 'colour'"),
        ("[index]\nyes = true", "no option 'yes'"),
        ('[index]\nprices = "free.json"', "no option 'prices'"),
        ("[serve]\nport = 1", "unknown section 'serve'"),
        ("index = 3", "index must be a section"),
        ("[index]\nllm = [", "is not valid TOML"),
        ("[index]\nllm = {a = 1}", "is not a value"),
        ("[index]\nmax-cost = 'much'", "--max-cost"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(text: str, message: str, place: Path) -> None:
    configure(place, text)
    code, output = run("index", "docs", "--to", "index", "--embed-model", "none", COLUMNS="200")
    assert code != 0
    assert message in " ".join(output.split())
    assert not (place / "index").exists()


PLACES = [
    'llm = "openai-like:qwen3@{url}"',
    'api-base = "{url}"\nllm = "openai-like:qwen3"',
    'embed-model = "openai:text-embedding-3-small@{url}"\nllm = "none"',
    'llm = "ollama:qwen3@{url}"',
]


@pytest.mark.parametrize("lines", PLACES)
def test_an_address_in_the_working_directory_s_file_is_not_trusted(
    lines: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer() as server:
        configure(place, f"[index]\n{lines.format(url=server.url)}")
        code, output = run("index", "docs", "--to", "index")
        assert code == 1
        assert server.url in "".join(output.split())
        assert "DENSEX_CONFIG" in output
        assert (server.requests, server.embedded) == ([], [])


@pytest.mark.parametrize(
    "store", ["postgresql://user:hunter2@db.example/x", "qdrant://:hunter2@db.example/x"]
)
def test_nor_is_a_store_s_which_is_shown_without_its_password(store: str, place: Path) -> None:
    configure(place, f'[index]\nto = "{store}"')
    code, output = run("index", "docs")
    assert code == 1
    assert "db.example" in output
    assert "hunter2" not in output


def test_a_file_that_the_environment_names_is_the_user_s_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer(lambda body: '["Tea is made."]') as server:
        own = configure(
            place / "docs", f'[index]\nllm = "openai-like:qwen3@{server.url}"\nembed-model = "none"'
        )
        own = own.rename(place / "own.toml")
        code, output = run("index", "docs", "--to", "index", DENSEX_CONFIG=str(own))
        assert code == 0, output
        assert len(server.requests) >= 2


def test_a_file_that_is_named_has_to_be_there(place: Path) -> None:
    code, output = run("index", "docs", "--to", "index", DENSEX_CONFIG="missing.toml")
    assert code == 1
    assert "missing.toml" in output


@pytest.mark.parametrize("inside", ["index", "index/inside"])
def test_an_index_s_folder_is_never_read_as_configuration(
    inside: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("index", "docs", "--to", "index", "--embed-model", "none", "--llm", "none")[0] == 0
    folder = place / inside
    folder.mkdir(exist_ok=True)
    configure(folder, "[query]\njson = true\nquery-llm = 'openai:gpt-4o'")
    monkeypatch.chdir(folder)
    code, output = run("query", place / "index", "green tea")
    assert code == 0, output
    assert "is not read" in output
    assert '"results"' not in output


@needs_terminals
def test_the_working_directory_s_file_cannot_agree_to_a_price(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    configure(place, '[index]\nmax-cost = 100\nembed-model = "none"')
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        code, output = in_a_terminal("n", "index", place / "docs", "--to", place / "index")
        assert code == 1, output
        assert "[y/N]" in output
        assert server.requests == []
