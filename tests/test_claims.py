"""An index that somebody else made sends keys and questions nowhere that the user has not named."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms import LLM
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
    Seq2SeqPropositionizer,
)
from llama_pack_densex.llm.claims import name_place, unnamed_place
from llama_pack_densex.llm.reference import LLMReference
from llama_pack_densex.models import RETRIEVERS
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from tests.another_process import run_program
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
    DenseXRetrievalPack(
        documents, embed_model="none", proposition_llm="none", query_llm="none", persist_dir=folder
    )
    manifest = json.loads((folder / "densex.json").read_text())
    manifest |= {"embed_model": "OpenAIEmbedding: x", "embed_spec": model}
    (folder / "densex.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_an_address_that_only_the_index_names_receives_nothing(model: str, tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "") as server:
        named = f"{model}@{server.url}"
        folder = index_naming(named, tmp_path / "index")
        line = re.escape(
            f"embed_model={named!r}, at the command line: --embed-model {shlex.quote(named)}"
        )
        with pytest.raises(ValueError, match=line):
            DenseXRetrievalPack.load(folder, query_llm="none")
        with pytest.raises(ValueError, match=line):
            DenseXRetrievalPack([Document(text="More.")], query_llm="none", persist_dir=folder)
    assert (server.embedded, server.requests) == ([], [])


@pytest.mark.parametrize(
    "command",
    [
        ["query", "INDEX", QUESTION],
        ["chat", "INDEX"],
        ["serve", "INDEX", "--port", "0"],
        ["mcp", "INDEX"],
    ],
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


ANSWERING = """
import os, pty, sys
process, terminal = pty.fork()
if not process:
    os.execv(sys.executable, [sys.executable, "-m", "llama_pack_densex", *sys.argv[2:]])
seen = b""
while b"[y/N]" not in seen:
    seen += os.read(terminal, 4096)
os.write(terminal, sys.argv[1].encode() + b"\\n")
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    seen += part
    if not part:
        break
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such terminals")
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_in_a_terminal_the_user_is_asked(answer: str, tmp_path: Path) -> None:
    with OpenAIServer(lambda body: "") as server:
        model = f"openai:text-embedding-3-small@{server.url}"
        documents = [Document(id_="a", text="The Eiffel Tower was finished in 1889.")]
        made = {"embed_model": model, "proposition_llm": "none", "query_llm": "none"}
        DenseXRetrievalPack(documents, **made, persist_dir=tmp_path / "index")
        embedded = len(server.embedded)
        command = ["query", str(tmp_path / "index"), QUESTION, "--query-llm", "none"]
        code, output, errors = run_program(
            ANSWERING, answer, *command, OPENAI_API_KEY="sk-x", COLUMNS="500"
        )
    assert server.url in output, errors
    assert code == (0 if answer == "y" else 1), output
    assert server.embedded[embedded:] == [QUESTION] * (answer == "y")


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
            documents,
            embed_model=model,
            proposition_llm="none",
            query_llm="none",
            persist_dir=tmp_path / "index",
        )
        with pytest.raises(ValueError, match="embed_model="):
            DenseXRetrievalPack.load(tmp_path / "index", query_llm="none")
        code, output = run(
            "query", tmp_path / "index", QUESTION, "--query-llm", "none", "--embed-model", model
        )
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
    ["openai:text-embedding-3-small", "ollama:bge-m3", "google:gemini-embedding-001",
     "huggingface:BAAI/bge-m3", "local:BAAI/bge-m3", "minilm", "ruri:cl-nagoya/ruri-v3-30m"],
)  # fmt: skip
def test_names_of_a_providers_own_models_are_allowed(model: str) -> None:
    assert unnamed_place(model, RETRIEVERS) == ""


@pytest.mark.parametrize("before", ["", "huggingface:", "local:", "contriever:"])
@pytest.mark.parametrize(
    "place", ["/tmp/model", "../model", "./model", "~/model", "\\\\server\\share", "C:\\model"]
)
def test_folders_of_an_index_are_not_allowed(before: str, place: str) -> None:
    assert unnamed_place(before + place, RETRIEVERS) == place


def test_a_folder_that_looks_like_a_name_on_the_hub_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# Dictionaries

LLMS: dict[str, LLM] = {
    "api_base": OpenAI(model="gpt-4o-mini", api_key="sk-x"),
    "api_base of a server": OpenAILike(
        model="qwen3", api_key="sk-x", api_base="http://127.0.0.1:1/v1"
    ),
    "base_url": Ollama(model="qwen3:8b", context_window=8192),
}


def dictionary_naming(address: str, setting: str) -> dict[str, Any]:
    """A dictionary of a propositionizer that was changed to name an address."""
    data = json.loads(LLMPropositionizer(LLMS[setting]).to_json())
    data["llm"]["settings"][setting.partition(" ")[0]] = address
    del data["fingerprint"]
    return data


@pytest.mark.parametrize("setting", LLMS)
@pytest.mark.parametrize("end", ["", "/", "/v1?key=x"])
def test_an_address_that_only_a_dictionary_names_receives_nothing(setting: str, end: str) -> None:
    with OpenAIServer(lambda body: "") as server:
        data = dictionary_naming(server.url + end, setting)
        with pytest.raises(ValueError, match="pass llm=") as raised:
            LLMPropositionizer.from_dict(data)
        assert server.url in str(raised.value)
        with pytest.raises(ValueError, match="propositionizer=LLMPropositionizer"):
            PropositionNodeParser.from_dict(
                {"propositionizer": data, "class_name": "PropositionNodeParser"}
            )
    assert server.requests == []


def test_each_place_of_a_setting_is_one_that_the_user_has_named() -> None:
    name_place("/the/users/own")
    settings = {"model": "gpt-4o-mini", "modalities": ["/somebody/elses", "/the/users/own"]}
    with pytest.raises(ValueError, match="is at '/somebody/elses'"):
        LLMReference(path="llama_index.llms.openai:OpenAI", settings=settings).rebuild()


@pytest.mark.parametrize("place", ["llm_factory", "factory"])
@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "openai-like:qwen3", "ollama:qwen3:8b"])
def test_a_factory_with_an_address_that_only_a_dictionary_names_is_not_called(
    name: str, place: str
) -> None:
    data = json.loads(LLMPropositionizer(LLMS["api_base"]).to_json())
    model = f"{name}@http://127.0.0.1:2/v1"
    (data if place == "llm_factory" else data["llm"])[place] = model
    with pytest.raises(ValueError, match=re.escape(f"pass llm={model!r} to from_dict")):
        LLMPropositionizer.from_dict(data)
    data.pop("fingerprint")
    assert LLMPropositionizer.from_dict(data, llm=model).llm_factory == model


@pytest.mark.parametrize(
    "name",
    ["openai:gpt-4o-mini@http://127.0.0.1:2/v1", "huggingface:/tmp/model", "ollama:a@http://h"],
)
def test_an_llm_that_a_dictionary_only_names_is_not_asked_at_an_address(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pass llm={name!r}")):
        LLMPropositionizer.from_dict({"llm": name})


def test_a_dictionary_without_an_llm_says_what_to_pass() -> None:
    with pytest.raises(ValueError, match="pass llm="):
        LLMPropositionizer.from_dict({})


def test_a_dictionarys_factory_is_not_imported_where_the_llm_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_another_stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    data = {"llm_factory": "module_of_another_stranger:make"}
    with pytest.raises(ValueError, match="import module_of_another_stranger"):
        LLMPropositionizer.from_dict(data)
    assert LLMPropositionizer.from_dict(data, llm=LLMS["api_base"]).llm_factory == ""


@pytest.mark.parametrize("setting", ["default_headers", "model_kwargs", "http_proxy"])
def test_settings_that_are_never_stored_are_not_taken(setting: str) -> None:
    data = dictionary_naming("https://api.openai.com/v1", "api_base")
    data["llm"]["settings"][setting] = {"trust_remote_code": True}
    with pytest.raises(ValueError, match=setting):
        LLMPropositionizer.from_dict(data)


@pytest.mark.parametrize("setting", LLMS)
def test_a_dictionary_of_this_process_is_read_again(setting: str) -> None:
    asking = LLMPropositionizer(LLMS[setting])
    assert (
        LLMPropositionizer.from_dict(json.loads(asking.to_json())).fingerprint == asking.fingerprint
    )


READING = """
import json, sys
from llama_pack_densex import LLMPropositionizer
print(LLMPropositionizer.from_dict(json.load(open(sys.argv[1]))).class_name())
"""


@pytest.mark.parametrize(
    ("setting", "variable"),
    [
        ("api_base", "OPENAI_API_BASE"),
        ("api_base of a server", "OPENAI_BASE_URL"),
        ("base_url", "OLLAMA_HOST"),
    ],
)
def test_an_address_of_the_environment_is_the_users_in_a_dictionary_too(
    setting: str, variable: str, tmp_path: Path
) -> None:
    address = "http://127.0.0.1:3/v1"
    file = tmp_path / "propositionizer.json"
    file.write_text(json.dumps(dictionary_naming(address, setting)))
    key = {"OPENAI_API_KEY": "sk-x"}
    code, _, errors = run_program(READING, file, **key)
    assert code == 1
    assert address in errors
    code, output, errors = run_program(READING, file, **key, **{variable: address})
    assert (code, output.strip()) == (0, "LLMPropositionizer"), errors


@pytest.mark.parametrize("setting", ["cache", "record_to"])
def test_files_that_only_a_dictionary_names_are_not_written(setting: str, tmp_path: Path) -> None:
    data = json.loads(LLMPropositionizer(LLMS["api_base"]).to_json())
    file = tmp_path / "文書" / "file"
    data[setting] = str(file)
    with pytest.raises(ValueError, match=f"pass {setting}="):
        LLMPropositionizer.from_dict(data)
    LLMPropositionizer.from_dict(data, **{setting: str(file)})
    assert not file.parent.exists()


def test_recordings_and_models_that_only_a_dictionary_names_are_not_read(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    recording.touch()
    with pytest.raises(ValueError, match="pass path="):
        RecordedPropositionizer.from_dict({"path": str(recording)})
    again = RecordedPropositionizer.from_dict({"path": "another"}, path=str(recording))
    assert RecordedPropositionizer.from_dict(again.to_dict()).path == str(recording)
    with pytest.raises(ValueError, match="pass model="):
        Seq2SeqPropositionizer.from_dict({"model": str(tmp_path)})
    for model in (
        str(tmp_path),
        "openai:text-embedding-3-small@http://127.0.0.1:4/v1",
        f"ruri:{tmp_path}",
    ):
        with pytest.raises(ValueError, match="pass embed_model="):
            TopicNodeParser.from_dict({"embed_model": model})
    assert TopicNodeParser.from_dict({"embed_model": "minilm"}).embed_model == "minilm"
