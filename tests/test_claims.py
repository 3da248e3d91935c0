"""An index that somebody else made sends keys and questions nowhere that the user has not named."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer
from llama_pack_densex.llm.claims import unnamed_place
from llama_pack_densex.models import RETRIEVERS
from tests.openai_server import OpenAIServer
from tests.test_cli import run

QUESTION = "What is our secret acquisition price?"
MODELS = ["openai:text-embedding-3-small", "openai-like:bge-m3", "ollama:bge-m3"]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-victims-key-0123456789")
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def index_naming(model: str, folder: Path) -> Path:
    """An index whose manifest was changed to name an embedding model."""
    documents = [Document(id_="a", text="The Eiffel Tower was finished in 1889.")]
    DenseXRetrievalPack(documents, embed_model="none", proposition_llm="none", query_llm="none", persist_dir=folder)
    manifest = json.loads((folder / "densex.json").read_text())
    manifest |= {"embed_model": "OpenAIEmbedding: x", "embed_spec": model}
    (folder / "densex.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_an_address_that_only_the_index_names_receives_nothing(model: str, tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "") as server:
        named = f"{model}@{server.url}"
        folder = index_naming(named, tmp_path / "index")
        line = re.escape(f"embed_model={named!r}, at the command line: --embed-model {shlex.quote(named)}")
        with pytest.raises(ValueError, match=line):
            DenseXRetrievalPack.load(folder, query_llm="none")
        with pytest.raises(ValueError, match=line):
            DenseXRetrievalPack([Document(text="More.")], query_llm="none", persist_dir=folder)
    assert (server.embedded, server.requests) == ([], [])


@pytest.mark.parametrize(
    "command",
    [["query", "INDEX", QUESTION], ["chat", "INDEX"], ["serve", "INDEX", "--port", "0"], ["mcp", "INDEX"]],
    ids=lambda command: command[0],
)
def test_every_command_that_asks_refuses_it(command: list[str], tmp_path: Path) -> None:
    if command[0] == "mcp":
        pytest.importorskip("mcp")
    if command[0] == "serve":
        pytest.importorskip("starlette")
    with OpenAIServer(lambda body: "") as server:
        folder = index_naming(f"openai:text-embedding-3-small@{server.url}", tmp_path / "index")
        words = [str(folder) if word == "INDEX" else word for word in command]
        code, output = run(*words)
    assert code == 1
    assert server.url in "".join(output.split())
    assert "--embed-model" in output
    assert (server.embedded, server.requests) == ([], [])


def test_inspect_searches_without_asking_anybody(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "") as server:
        folder = index_naming(f"openai:text-embedding-3-small@{server.url}", tmp_path / "index")
        code, output = run("inspect", folder, "--search", "Eiffel")
    assert code == 0, output
    assert (server.embedded, server.requests) == ([], [])


def test_an_address_that_the_user_names_is_asked(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "") as server:
        model = f"openai:text-embedding-3-small@{server.url}"
        documents = [Document(id_="a", text="The Eiffel Tower was finished in 1889.")]
        DenseXRetrievalPack(
            documents, embed_model=model, proposition_llm="none", query_llm="none", persist_dir=tmp_path / "index"
        )
        with pytest.raises(ValueError, match="embed_model="):
            DenseXRetrievalPack.load(tmp_path / "index", query_llm="none")
        code, output = run("query", tmp_path / "index", QUESTION, "--query-llm", "none", "--embed-model", model)
    assert code == 0, output
    assert server.embedded[-1] == QUESTION


def test_an_address_of_the_environment_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://127.0.0.1:8000/v1"
    monkeypatch.setenv("OPENAI_API_BASE", f"{address}/")
    assert unnamed_place(f"openai-like:bge-m3@{address}") == ""
    assert unnamed_place(f"openai-like:bge-m3@{address}0") == f"{address}0"
    assert unnamed_place(f"ollama:bge-m3@{address}") == address


@pytest.mark.parametrize(
    "model",
    ["openai:text-embedding-3-small", "ollama:bge-m3", "google:gemini-embedding-001", "huggingface:BAAI/bge-m3",
     "local:BAAI/bge-m3", "minilm", "ruri:cl-nagoya/ruri-v3-30m"],
)  # fmt: skip
def test_names_of_a_providers_own_models_are_allowed(model: str) -> None:
    assert unnamed_place(model, RETRIEVERS) == ""


@pytest.mark.parametrize("before", ["", "huggingface:", "local:", "contriever:"])
@pytest.mark.parametrize("place", ["/tmp/model", "../model", "./model", "~/model", "\\\\server\\share", "C:\\model"])
def test_folders_of_an_index_are_not_allowed(before: str, place: str) -> None:
    assert unnamed_place(before + place, RETRIEVERS) == place


def test_a_folder_that_looks_like_a_name_on_the_hub_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "BAAI" / "bge-m3").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert unnamed_place("huggingface:BAAI/bge-m3", RETRIEVERS) == "BAAI/bge-m3"


def test_the_error_does_not_steer_the_terminal_or_the_shell(tmp_path: Path) -> None:
    folder = index_naming("/tmp/\x1b[2J; touch x", tmp_path / "index")
    with pytest.raises(ValueError, match="embedding model is at") as raised:
        DenseXRetrievalPack.load(folder, query_llm="none")
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("field", ["path", "factory"])
def test_a_dictionary_imports_no_module_that_the_user_has_not_imported(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    reference = {"path": "llama_index.core.llms:MockLLM", field: "module_of_a_stranger:make"}
    with pytest.raises(ValueError, match="import module_of_a_stranger"):
        LLMPropositionizer.from_dict({"llm": reference})
