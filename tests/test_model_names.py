"""One kind of name for any model, at the command line and in Python; two providers with their real
clients."""

from __future__ import annotations

import json
import pickle
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from llama_index.core import Document
from llama_index.core.llms import CustomLLM, LLMMetadata

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer, Passage
from llama_pack_densex.llm.names import (
    ASSUMED_WINDOW,
    PROVIDERS,
    named_llm,
    parse_name,
    with_address,
    with_provider,
)
from llama_pack_densex.models import resolve_embed_model
from tests.evaluation.judges import judging
from tests.index_folders import bytes_in
from tests.openai_server import OpenAIServer, asked_content
from tests.serving.running import served
from tests.stand_in_llm import propositions_of
from tests.test_cli import run, run_json
from tests.test_models import make_tiny_model, needs_huggingface

pytestmark = pytest.mark.together("torch")

KEYS = ("OPENAI_API_KEY", "OPENAI_LIKE_API_KEY", "OPENAI_API_BASE")
KEYS += tuple(key for one in PROVIDERS.values() for key in one.keys)
TEA = "Green tea is steamed. Black tea is oxidised."
LAKE = "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "tea.md").write_text(TEA, encoding="utf-8")
    (folder / "琵琶湖.md").write_text(LAKE, encoding="utf-8")
    return folder


def answering() -> OpenAIServer:
    """A server that makes propositions, and otherwise answers in the question's language."""

    def respond(body: dict[str, Any]) -> str:
        if content := asked_content(body):
            return json.dumps(propositions_of(content), ensure_ascii=False)
        return "日本最大の湖です。[^1]" if "湖" in str(body["messages"]) else "It is steamed.[^1]"

    return OpenAIServer(respond)


def needs_openai_like(kind: str = "llms") -> None:
    pytest.importorskip(
        f"llama_index.{kind}.openai_like", reason="the extra [dev] is not installed"
    )


def squeezed(output: str) -> str:
    return " ".join(output.split())


# Names


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gpt-4o-mini", ("openai", "gpt-4o-mini", "")),
        ("ft:gpt-4o-mini:org::id", ("openai", "ft:gpt-4o-mini:org::id", "")),
        ("openai:gpt-4o-mini", ("openai", "gpt-4o-mini", "")),
        ("ollama:qwen3:8b", ("ollama", "qwen3:8b", "")),
        (
            "openai-like:qwen3:8b@http://127.0.0.1:1/v1",
            ("openai-like", "qwen3:8b", "http://127.0.0.1:1/v1"),
        ),
        (
            "huggingface:intfloat/multilingual-e5-small",
            ("huggingface", "intfloat/multilingual-e5-small", ""),
        ),
    ],
)
def test_a_name_has_a_provider_a_model_and_perhaps_an_address(
    name: str, parts: tuple[str, str, str]
) -> None:
    assert parse_name(name) == parts


@pytest.mark.parametrize("name", ["openia:gpt-4o", "qwen3:8b", "openai:", ":x", ""])
def test_a_wrong_name_is_an_error_that_says_what_is_allowed(name: str) -> None:
    with pytest.raises(
        ValueError, match="PROVIDER is openai, openai-like, ollama, anthropic, google, huggingface"
    ):
        parse_name(name)


@pytest.mark.parametrize(
    "name", ["BAAI/bge-m3", "text-embedding-3-small", "anthropic:claude-haiku-4-5"]
)
def test_an_embedding_model_that_is_none_is_an_error_that_says_what_is_allowed(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"names no embedding model.*openai, openai-like, ollama, google.* minilm,"
    ):
        resolve_embed_model(name)


@pytest.mark.parametrize(
    "address", ["http://me:sesame@127.0.0.1:1/v1", "http://127.0.0.1:1/v1?key=sesame"]
)
def test_a_key_in_an_address_is_refused_and_not_repeated(
    address: str, docs: Path, tmp_path: Path
) -> None:
    to = tmp_path / "index"
    code, output = run("index", docs, "--to", to, "--llm", "openai-like:m", "--api-base", address)
    assert code == 1
    assert "keys are taken from the environment" in squeezed(output)
    assert "sesame" not in output
    assert not to.exists()


def test_an_address_is_for_the_models_of_ones_own_server_first() -> None:
    names = [None, "none", "openai-like:a", "openai:b", "ollama:c@http://x", "docs/model"]
    assert with_address(names, "http://y") == [None, "none", "openai-like:a@http://y", *names[3:]]
    assert with_address(["openai:b"], "http://y") == ["openai:b@http://y"]


@pytest.mark.parametrize(
    ("llm", "address"), [("google:gemini-2.5-flash", "http://y"), ("openai-like:a", "localhost:1")]
)
def test_an_address_that_nothing_can_use_is_an_error(
    llm: str, address: str, docs: Path, tmp_path: Path
) -> None:
    code, output = run(
        "index", docs, "--to", tmp_path / "index", "--llm", llm, "--api-base", address
    )
    assert code == 1
    assert "as openai-like:qwen3:8b" in squeezed(output)


@pytest.mark.parametrize(
    "arguments",
    [
        ["index", "DOCS", "--to", "NEW", "--llm", "nobody:x"],
        ["index", "DOCS", "--to", "NEW", "--embed-model", "nobody:x"],
        ["estimate", "DOCS", "--llm", "nobody:x"],
        ["estimate", "DOCS", "--embed-model", "nobody:x"],
        ["query", "INDEX", "tea", "--query-llm", "nobody:x"],
        [
            "compare",
            "QUESTIONS",
            "--documents",
            "DOCS",
            "--reader-model",
            "nobody:x",
            "--embed-model",
            "none",
        ],
        ["batch", "export", "DOCS", "--to", "NEW", "--out", "OUT", "--llm", "nobody:x"],
    ],
)
def test_every_option_takes_such_names(arguments: list[str], docs: Path, tmp_path: Path) -> None:
    places = {
        "DOCS": docs,
        "NEW": tmp_path / "new",
        "INDEX": tmp_path / "index",
        "OUT": tmp_path / "out",
    }
    places["QUESTIONS"] = tmp_path / "questions.jsonl"
    places["QUESTIONS"].write_text(
        '{"question": "What is steamed?", "answers": ["green tea"], "document": "tea.md"}\n'
    )
    if "INDEX" in arguments:
        run(
            "index",
            docs,
            "--to",
            places["INDEX"],
            "--propositionizer",
            "sentence",
            "--embed-model",
            "none",
        )
    code, output = run(*(places.get(part, part) for part in arguments))
    assert code == 1
    assert "there is no provider 'nobody'" in squeezed(output)
    assert "openai-like, ollama, anthropic, google, huggingface" in squeezed(output)


def test_a_batch_is_openais(docs: Path, tmp_path: Path) -> None:
    arguments = ["--to", tmp_path / "new", "--out", tmp_path / "out", "--llm", "ollama:qwen3:8b"]
    code, output = run("batch", "export", docs, *arguments)
    assert code == 1
    assert "not a model of OpenAI" in squeezed(output)


# Packages and keys


def packages() -> list[tuple[str, str]]:
    llms = [("llms", provider) for provider in PROVIDERS]
    return llms + [("embeddings", provider) for provider, one in PROVIDERS.items() if one.embedding]


@pytest.mark.parametrize(("kind", "provider"), packages())
def test_what_is_not_installed_is_named_with_its_package(kind: str, provider: str) -> None:
    module = f"llama_index.{kind}.{PROVIDERS[provider].module}"
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    package = module.replace(".", "-").replace("_", "-")
    with pytest.raises(ImportError, match=rf"pip install ({package}|.*\[huggingface\])"):
        named_llm(f"{provider}:x") if kind == "llms" else resolve_embed_model(f"{provider}:x")


@pytest.mark.parametrize(
    ("kind", "provider"), [one for one in packages() if PROVIDERS[one[1]].keys]
)
def test_a_missing_key_is_named_by_its_variable(kind: str, provider: str) -> None:
    pytest.importorskip(f"llama_index.{kind}.{PROVIDERS[provider].module}")
    with pytest.raises(
        ValueError, match=f"set the environment variable {PROVIDERS[provider].keys[0]}"
    ):
        named_llm(f"{provider}:x") if kind == "llms" else resolve_embed_model(f"{provider}:x")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("openai:gpt-4o-mini", {"model": "gpt-4o-mini"}),
        (
            "openai-like:qwen3:8b@http://127.0.0.1:1/v1",
            {"api_base": "http://127.0.0.1:1/v1", "is_chat_model": True},
        ),
        (
            "ollama:qwen3:8b",
            {"model": "qwen3:8b", "base_url": "http://localhost:11434", "context_window": 8192},
        ),
        ("ollama:qwen3:8b@http://127.0.0.1:1", {"base_url": "http://127.0.0.1:1"}),
        ("anthropic:claude-haiku-4-5", {"model": "claude-haiku-4-5", "max_tokens": 4096}),
        ("google:gemini-2.5-flash", {"model": "gemini-2.5-flash"}),
    ],
)
def test_an_llm_is_of_its_providers_class_here_and_where_it_is_unpickled(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = PROVIDERS[parse_name(name)[0]]
    module = pytest.importorskip(f"llama_index.llms.{provider.module}")
    for key in provider.keys[:1]:
        monkeypatch.setenv(key, "sk-test-0123456789")
    asking = LLMPropositionizer(name)
    assert type(asking.llm) is getattr(module, provider.llm)
    assert {field: getattr(asking.llm, field) for field in settings} == settings
    saved = asking.to_json()
    assert "sk-test" not in saved
    again = (pickle.loads(pickle.dumps(asking)), LLMPropositionizer.from_dict(json.loads(saved)))
    assert {one.fingerprint for one in again} == {asking.fingerprint}
    # as an estimate has it
    assert LLMPropositionizer(named_llm(name, is_called=False)).fingerprint == asking.fingerprint


@pytest.mark.parametrize(
    "name",
    ["openai:text-embedding-3-small", "ollama:nomic-embed-text", "google:gemini-embedding-001"],
)
def test_an_embedding_model_is_of_its_providers_class(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, model, _ = parse_name(name)
    about = PROVIDERS[provider]
    module = pytest.importorskip(f"llama_index.embeddings.{about.module}")
    for key in about.keys[:1]:
        monkeypatch.setenv(key, "sk-test-0123456789")
    made, said = resolve_embed_model(name)
    assert type(made) is getattr(module, about.embedding)
    assert (getattr(made, "model_name", None), said) == (model, name)


@pytest.mark.parametrize(
    "name", ["gpt-unheard-of", "openai:gpt-9.1-2031-02-03", "ft:gpt-9:org::id"]
)
def test_a_model_that_is_newer_than_its_class_is_taken_for_a_large_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    made = named_llm(name)
    assert (made.metadata.context_window, made.metadata.is_chat_model) == (ASSUMED_WINDOW, True)
    known = named_llm("gpt-4o-mini")
    assert type(made).__qualname__ == type(known).__qualname__
    assert isinstance(made, type(known))
    assert pickle.loads(pickle.dumps(LLMPropositionizer(name))).llm.metadata == made.metadata


def test_so_is_one_of_another_providers_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Anthropic's: such classes know their models' windows by name, and fail on others."""

    class StandIn(CustomLLM):
        model: str
        max_tokens: int
        complete: ClassVar[Any] = None  # nothing is asked
        stream_complete: ClassVar[Any] = None

        @property
        def metadata(self) -> LLMMetadata:
            if self.model != "claude-of-today":
                raise ValueError(f"Unknown model '{self.model}'.")
            return LLMMetadata(model_name=self.model, context_window=200_000, is_chat_model=True)

    module = ModuleType("llama_index.llms.anthropic")
    monkeypatch.setattr(module, "Anthropic", StandIn, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    newer = named_llm("anthropic:claude-of-tomorrow")
    assert isinstance(newer, StandIn)
    assert (newer.metadata.context_window, newer.metadata.model_name) == (
        ASSUMED_WINDOW,
        "claude-of-tomorrow",
    )
    assert named_llm("anthropic:claude-of-today").metadata.context_window == 200_000


@pytest.mark.parametrize("model", ["gpt-9.1", "openai:o9-mini"])
def test_a_newer_model_answers_over_http_and_is_judged(
    model: str, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    documents = [Document(text=TEA), Document(text=LAKE)]
    with answering() as server:
        llm = f"{with_provider(model)}@{server.url}"
        pack = DenseXRetrievalPack(documents, "none", llm, "none", persist_dir=tmp_path / "index")
        with served(pack) as client:
            for question in ("How is green tea made?", "琵琶湖は何ですか。"):
                assert (
                    client.post("/query", json={"question": question}).json()["outcome"]
                    == "answered"
                )
    with OpenAIServer(judging()) as server:
        judge = f"{with_provider(model)}@{server.url}"
        questions = [{"question": "How is green tea made?", "answer": "Steamed."}]
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in questions), encoding="utf-8")
        code, output = run(
            "evaluate", tmp_path / "index", path, "--query-llm", judge, "--judge-model", judge
        )
    assert code == 0, output
    assert {seen.body["model"] for seen in server.requests} == {parse_name(model)[1]}
    assert len(server.requests) > 1


# With real clients


@pytest.mark.parametrize("provider", ["openai", "openai-like", ""])
@pytest.mark.parametrize("by_option", [True, False], ids=["--api-base", "in the name"])
def test_propositions_and_answers_by_name_at_the_command_line(
    provider: str, by_option: bool, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider == "openai-like":
        needs_openai_like()
    else:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine-0123456789")
    model = "qwen3:8b" if provider == "openai-like" else "gpt-4o-mini"
    with answering() as server:
        name = f"{provider}:{model}".removeprefix(":")
        llm = name if by_option else f"{name}@{server.url}"
        where = ["--api-base", server.url] if by_option else []
        code, output = run(
            "index", docs, "--to", tmp_path / "index", "--embed-model", "none", "--llm", llm, *where
        )
        assert code == 0, output
        shown = run_json("inspect", tmp_path / "index")["shown"]
        texts = {unit["text"] for passage in shown for unit in passage["propositions"]}
        assert texts == {*propositions_of(TEA), *propositions_of(LAKE)}
        english = run_json(
            "query", tmp_path / "index", "How is green tea made?", "--query-llm", llm, *where
        )
        japanese = run_json(
            "query", tmp_path / "index", "琵琶湖は何ですか。", "--query-llm", llm, *where
        )
    assert (english["answer"], japanese["answer"]) == (
        "It is steamed.[^1]",
        "日本最大の湖です。[^1]",
    )
    assert {seen.body["model"] for seen in server.requests} == {model}
    expected = "none" if provider == "openai-like" else "sk-mine-0123456789"
    assert {seen.headers["Authorization"] for seen in server.requests} == {f"Bearer {expected}"}
    assert b"sk-mine" not in bytes_in(tmp_path / "index") + output.encode()


def test_a_server_of_ones_own_may_want_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_openai_like()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENAI_LIKE_API_KEY", "sk-of-mine")
    with answering() as server:
        LLMPropositionizer(f"openai-like:m@{server.url}").propositionize([Passage(TEA)])
    assert server.requests[0].headers["Authorization"] == "Bearer sk-of-mine"


def test_a_server_of_ones_own_without_an_address_is_an_error(docs: Path, tmp_path: Path) -> None:
    needs_openai_like()
    code, output = run("index", docs, "--to", tmp_path / "index", "--llm", "openai-like:qwen3:8b")
    assert code == 1
    assert "openai-like:qwen3:8b@http://" in squeezed(output)
    assert "--api-base" in output


@pytest.mark.parametrize("question", ["Which tea is steamed?", "琵琶湖の面積は?"])
def test_an_index_is_asked_with_its_embedding_model_by_its_name_and_address(
    question: str, docs: Path, tmp_path: Path
) -> None:
    needs_openai_like("embeddings")
    folder = tmp_path / "index"
    with answering() as server:
        named = ["--embed-model", "openai-like:bge-m3", "--api-base", server.url]
        code, output = run("index", docs, "--to", folder, "--propositionizer", "sentence", *named)
        assert code == 0, output
        before = len(server.embedded)
        found = run_json("query", folder, question, *named)
        assert server.embedded[before:] == [question]
        pack = DenseXRetrievalPack.load(folder, embed_model=f"openai-like:bge-m3@{server.url}")
        assert pack.retrieve(question)
        assert run("index", docs, "--to", folder, "--propositionizer", "sentence", *named)[0] == 0
    assert (
        json.loads((folder / "densex.json").read_text())["embed_spec"]
        == f"openai-like:bge-m3@{server.url}"
    )
    assert found["results"][0]["document"] == ("tea.md" if "tea" in question else "琵琶湖.md")


def test_who_asks_does_not_wait_for_a_server_of_embeddings_to_come_back(
    docs: Path, tmp_path: Path
) -> None:
    needs_openai_like("embeddings")
    with answering() as server:
        model = f"openai-like:bge-m3@{server.url}"
        to = ["--to", tmp_path / "index", "--propositionizer", "sentence"]
        assert run("index", docs, *to, "--embed-model", model)[0] == 0
        server.embeds = False
        code, output = run(
            "query", tmp_path / "index", "Which tea is steamed?", "--embed-model", model
        )
    assert (code, server.refused) == (1, 2)
    assert "the model could not be asked" in output


def test_a_vector_store_is_asked_with_its_embedding_model(docs: Path, tmp_path: Path) -> None:
    needs_openai_like("embeddings")
    pytest.importorskip("llama_index.vector_stores.chroma")
    with answering() as server:
        model = f"openai-like:bge-m3@{server.url}"
        to = f"chroma://{tmp_path / 'chroma'}?collection=tea"
        code, output = run(
            "index", docs, "--to", to, "--propositionizer", "sentence", "--embed-model", model
        )
        assert code == 0, output
        code, output = run("query", to, "Which tea is steamed?", "--embed-model", model)
        assert code == 0, output
    assert "Green tea is steamed." in output


def test_names_in_python(tmp_path: Path) -> None:
    needs_openai_like()
    needs_openai_like("embeddings")
    documents = [Document(id_="tea", text=TEA), Document(id_="lake", text=LAKE)]
    with answering() as server:
        llm = f"openai-like:qwen3:8b@{server.url}"
        embed_model = f"openai-like:bge-m3@{server.url}"
        pack = DenseXRetrievalPack(
            documents,
            proposition_llm=llm,
            query_llm=llm,
            embed_model=embed_model,
            persist_dir=tmp_path / "index",
        )
        assert str(pack.run("琵琶湖は何ですか。")) == "日本最大の湖です。[^1]"
        asked = len(server.requests)
        again = DenseXRetrievalPack.load(
            tmp_path / "index", proposition_llm=llm, query_llm="none", embed_model=embed_model
        )
        again.refresh(documents)
        assert len(server.requests) == asked
        assert again.get_modules()["embed_model"].model_name == "bge-m3"


@pytest.mark.parametrize("kind", ["huggingface", "local"])  # the second as LlamaIndex writes it
def test_a_local_model_by_name(kind: str, tmp_path: Path) -> None:
    needs_huggingface()
    make_tiny_model(tmp_path / "model")
    documents = [Document(id_="tea", text=TEA), Document(id_="lake", text=LAKE)]
    name = f"{kind}:{tmp_path / 'model'}"
    DenseXRetrievalPack(
        documents, embed_model=name, query_llm="none", persist_dir=tmp_path / "index"
    )
    assert json.loads((tmp_path / "index" / "densex.json").read_text())["embed_spec"] == name
    assert DenseXRetrievalPack.load(tmp_path / "index", embed_model=name).retrieve("tea")
    with pytest.raises(
        ValueError, match=re.escape(f"'huggingface:{tmp_path / 'none'}' cannot be made")
    ):
        resolve_embed_model(f"{kind}:{tmp_path / 'none'}")


# Estimates


def test_an_estimate_knows_the_same_names(docs: Path) -> None:
    def estimated(*arguments: str) -> Any:
        return run_json("estimate", docs, *arguments)

    assert (
        estimated("--llm", "anthropic:claude-haiku-4-5")["cost"]
        == estimated("--llm", "claude-haiku-4-5")["cost"]
        > 0
    )
    assert estimated("--llm", "openai:gpt-4o-mini")["cost"] == estimated()["cost"]
    assert estimated("--llm", "google:gemini-2.5-flash")["cost"] > 0
    local = estimated("--llm", "ollama:qwen3:8b", "--embed-model", "ollama:nomic-embed-text")
    assert (local["model"], local["embedding_cost"]) == ("qwen3:8b", 0.0)
    assert estimated("--embed-model", "openai:text-embedding-3-small")["embedding_cost"] > 0


def test_an_estimate_of_an_index_of_a_server_of_ones_own_has_nothing_left_to_ask(
    docs: Path, tmp_path: Path
) -> None:
    needs_openai_like()
    with answering() as server:
        chosen = [
            "--to",
            tmp_path / "index",
            "--llm",
            "openai-like:qwen3:8b",
            "--api-base",
            server.url,
        ]
        assert run("index", docs, "--embed-model", "none", *chosen)[0] == 0
        found = run_json("estimate", docs, *chosen)
    assert (found["unchanged_documents"], found["requests"]) == (2, 0)


def test_the_table_names_classes_that_exist() -> None:
    for kind, provider in packages():
        about = PROVIDERS[provider]
        if find_spec(f"llama_index.{kind}.{about.module}") is not None:
            module = import_module(f"llama_index.{kind}.{about.module}")
            assert hasattr(module, about.llm if kind == "llms" else about.embedding)


# Azure OpenAI and Bedrock


AZURE = {"AZURE_OPENAI_API_KEY": "key-of-azure", "OPENAI_API_VERSION": "2024-10-21"}


def test_azure_is_asked_for_a_deployment_by_its_own_client(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_index.llms.azure_openai")
    with answering() as server:
        code, output = run(
            "index", docs, "--to", tmp_path / "i", "--llm", "azure:ours", "--embed-model", "none",
            **AZURE, AZURE_OPENAI_ENDPOINT=server.ollama_url,
        )  # fmt: skip
        assert code == 0, output
        assert {seen.path.partition("?")[0] for seen in server.requests} == {
            "/openai/deployments/ours/chat/completions"
        }


@pytest.mark.parametrize(
    "missing", ["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"]
)
def test_what_azure_lacks_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**AZURE, "AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com"}
    pytest.importorskip("llama_index.llms.azure_openai")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=missing):
        named_llm("azure:ours")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("azure:ours", "llama-index-llms-azure-openai"),
        ("bedrock:amazon.nova-lite-v1:0", "llama-index-llms-bedrock-converse"),
    ],
)
def test_a_package_that_is_missing_is_named(name: str, package: str) -> None:
    if find_spec(f"{package.replace('llama-index-llms-', 'llama_index.llms.').replace('-', '_')}"):
        pytest.skip("it is here")
    with pytest.raises(ImportError, match=f"pip install {package}"):
        named_llm(name)


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("azure:gpt-4o-mini", 0.15),
        ("bedrock:amazon.nova-lite-v1:0", 0.06),
        ("bedrock:us.anthropic.claude-3-5-haiku-20241022-v1:0", 0.8),
        ("bedrock:meta.llama3-8b-instruct-v1:0", 0.3),
    ],
)
def test_an_estimate_has_their_prices(name: str, price: float, docs: Path) -> None:
    result = run_json("estimate", docs, "--llm", name)
    assert result["price"]["input"] == price
    assert result["requests"] == 2


@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "openai-like:qwen3"])
def test_the_address_in_openais_own_variable_is_heeded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.example/v1")
    assert named_llm(name).api_base == "http://gateway.example/v1"
    monkeypatch.setenv("OPENAI_API_BASE", "http://proxy.example/v1")
    assert named_llm(name).api_base == "http://proxy.example/v1"
