"""What a server answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from llama_index.core import Document
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.serving.app import make_app
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, Reply
from tests.serving.running import SlowProvider, served
from tests.test_cli import invoke

QUESTION = "How long is the main span of the Akashi Bridge?"


@pytest.fixture
def server(documents: list[Document]) -> Iterator[httpx.Client]:
    with served(DenseXRetrievalPack(documents, embed_model="none", query_llm="none")) as client:
        yield client


def _events(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(kind, json.loads(data)) for kind, data in found]


def test_retrieve_gives_passages_with_what_found_them_and_where(
    server: httpx.Client, documents: list[Document]
) -> None:
    texts = {document.id_: document.text for document in documents}
    for question, top_k, document in (
        (QUESTION, 1, "bridges"),
        ("新幹線はいつ開業した？", 1.0, "鉄道"),
    ):
        passages = server.post("/retrieve", json={"question": question, "top_k": top_k}).json()[
            "passages"
        ]
        assert [passage["document"] for passage in passages] == [document]
        for place in (*passages, *passages[0]["propositions"]):
            assert texts[document][place["start"] : place["end"]] == place["text"]
        assert passages[0]["propositions"]


def test_an_answer_comes_with_its_sources(server: httpx.Client, documents: list[Document]) -> None:
    answer = server.post("/query", json={"question": QUESTION}).json()
    assert answer["outcome"] == "answered"
    assert "1,991" in answer["answer"]
    numbers = [int(number) for number in re.findall(r"\[\^(\d+)\]", answer["answer"])]
    assert numbers
    sources = {source["number"]: source for source in answer["citations"]}
    assert {*numbers} == {*sources}
    assert (
        documents[1].text[sources[numbers[0]]["start"] : sources[numbers[0]]["end"]]
        == sources[numbers[0]]["text"]
    )
    assert answer["passages"][0]["document"] == sources[numbers[0]]["document"] == "bridges"
    assert f"[^{numbers[0]}]:" in answer["markdown"]


@pytest.mark.parametrize(
    "question", ["Who painted the Mona Lisa?", "Zyzzyva qwxk?", "モナリザを描いたのは誰？"]
)
def test_what_is_not_in_the_documents_is_said_so(server: httpx.Client, question: str) -> None:
    answer = server.post("/query", json={"question": question}).json()
    assert (answer["outcome"], answer["citations"]) == ("not_found", [])
    assert answer["answer"]
    kind, ended = _events(server.post("/chat", json={"question": question}).text)[-1]
    assert (kind, ended["outcome"], ended["answer"]) == ("answer", "not_found", answer["answer"])


@pytest.mark.parametrize(
    ("question", "outcome"),
    [("Hello!", "small_talk"), ("ありがとう", "small_talk"), ("it?", "vague")],
)
def test_what_is_no_question_is_answered_too(
    server: httpx.Client, question: str, outcome: str
) -> None:
    kind, ended = _events(server.post("/chat", json={"question": question}).text)[-1]
    assert (kind, ended["outcome"], ended["citations"]) == ("answer", outcome, [])
    assert ended["answer"]


def test_a_conversation_streams_and_ends_with_what_it_was_made_of(server: httpx.Client) -> None:
    said = {
        "question": QUESTION,
        "history": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}],
    }
    response = server.post("/chat", json=said)
    assert response.headers["Content-Type"].startswith("text/event-stream")
    events = _events(response.text)
    assert [kind for kind, _ in events] == ["delta"] * (len(events) - 1) + ["answer"]
    assert (
        "".join(data["text"] for kind, data in events if kind == "delta") == events[-1][1]["answer"]
    )
    assert events[-1][1]["citations"][0]["document"] == "bridges"


def test_fastapis_test_client_is_answered(documents: list[Document]) -> None:
    with TestClient(
        make_app(DenseXRetrievalPack(documents, "none", "none", "none")), "http://localhost"
    ) as client:
        assert client.post("/retrieve", json={"question": QUESTION}).json()["passages"]
        assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421


def test_a_head_is_answered(server: httpx.Client) -> None:
    for path in ("/", "/healthz", "/openapi.json"):
        assert (server.head(path).status_code, server.head(path).content) == (200, b"")
    assert [*server.get("/openapi.json").json()["paths"]["/healthz"]] == ["get"]


def test_a_pack_that_streams_is_served_as_any_other(documents: list[Document]) -> None:
    with served(DenseXRetrievalPack(documents, "none", "none", "none", streaming=True)) as client:
        answer = client.post("/query", json={"question": QUESTION}).json()
    assert "1,991" in answer["answer"]
    assert answer["citations"][0]["document"] == "bridges"


def test_the_page_is_in_the_language_that_is_asked_for(server: httpx.Client) -> None:
    def language(path: str, accepted: str) -> str:
        response = server.get(path, headers={"Accept-Language": accepted})
        found = re.search(r'<html lang="(\w+)">', response.text)
        assert found
        assert found[1] == response.headers["Content-Language"]
        return found[1]

    assert language("/", "ja,en-US;q=0.9") == "ja"
    assert language("/", "fr, ja-JP;q=0.8, en;q=0.5") == "ja"
    assert language("/", "de-DE, de;q=0.9") == "en"
    assert language("/?lang=en", "ja") == "en"
    assert language("/?lang=xx", "ja") == "ja"
    assert language("/", ";q=,,;;ja;q=x" * 99) in ("en", "ja")


def test_the_page_runs_no_script_but_its_own(server: httpx.Client) -> None:
    page = server.get("/")
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert re.findall(r"<script(?! type=\"application/json\")[^>]*>", page.text) == [
        '<script src="page/page.js" defer>'
    ]
    assert not re.search(r"""\s(style|on\w+)\s*=|javascript:""", page.text)


@pytest.mark.parametrize("path", ["/query", "/chat"])
def test_a_client_that_goes_away_ends_the_work_for_it(documents: list[Document], path: str) -> None:
    with (
        SlowProvider("The Akashi") as provider,
        served(DenseXRetrievalPack(documents, "none", provider.llm(), "none")) as client,
    ):
        body = json.dumps({"question": QUESTION}).encode()
        address = (client.base_url.host, client.base_url.port)
        head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}", "", ""]
        with socket.create_connection(address) as connection:
            connection.sendall("\r\n".join(head).encode() + body)
            assert provider.asked.wait(120)
        assert provider.hung_up.wait(120)
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/query", "/chat"])
def test_a_model_that_cannot_be_asked_is_said_without_keys_or_texts(
    documents: list[Document], path: str
) -> None:
    llm = OpenAI(
        model="gpt-4o-mini",
        api_base="http://127.0.0.1:9/v1",
        api_key="sk-very-secret",
        max_retries=0,
    )
    with served(DenseXRetrievalPack(documents, "none", llm, "none")) as client:
        response = client.post(path, json={"question": QUESTION})
    if path == "/query":
        assert response.status_code == 502
    else:
        assert _events(response.text)[-1][0] == "problem"
    assert "could not be answered" in response.text
    assert "sk-very-secret" not in response.text


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_a_fault_of_ours_is_no_failure_of_the_provider(
    documents: list[Document], error: type[Exception]
) -> None:
    class Failing(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            raise error("a fault")

    pack = DenseXRetrievalPack(documents, "none", "none", "none", reranker=Failing())
    with served(pack) as client:
        assert client.post("/query", json={"question": QUESTION}).status_code == 500


def test_an_error_in_place_of_a_reply_is_a_failure_of_the_provider(
    documents: list[Document],
) -> None:
    with OpenAIServer(
        lambda body: Reply(body_override='{"error": {"message": "Overloaded."}}')
    ) as provider:
        llm = OpenAI(model="gpt-4o-mini", api_base=provider.url, api_key="sk-test", max_retries=0)
        with served(DenseXRetrievalPack(documents, "none", llm, "none")) as client:
            assert client.post("/query", json={"question": QUESTION}).status_code == 502


def test_an_index_that_is_gone_is_named_in_the_log(
    documents: list[Document], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DenseXRetrievalPack(documents, "none", "none", "none", persist_dir=tmp_path / "index")
    pack = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none", embed_model="none")
    shutil.rmtree(tmp_path / "index")
    with served(pack) as client:
        assert client.post("/query", json={"question": QUESTION}).status_code == 500
    assert f"could not be answered: the index in {tmp_path / 'index'}" in caplog.text


@pytest.mark.parametrize("embed_model", ["none", TrigramEmbedding()])
def test_an_index_that_is_made_anew_in_its_place_is_served(
    documents: list[Document], tmp_path: Path, embed_model: Any
) -> None:
    folder, models = tmp_path / "index", {"query_llm": "none", "embed_model": embed_model}
    DenseXRetrievalPack(documents, "none", persist_dir=folder, **models)
    with served(DenseXRetrievalPack.load(folder, **models)) as client:
        assert client.post("/retrieve", json={"question": QUESTION}).json()["passages"]
        folder.rename(tmp_path / "old")
        assert client.post("/retrieve", json={"question": QUESTION}).status_code == 500
        DenseXRetrievalPack(
            [Document(id_="anew", text="Miso is salty.")], "none", persist_dir=folder, **models
        )
        for path in ("/query", "/retrieve"):
            found = client.post(path, json={"question": "Is miso salty?"}).json()["passages"]
            assert [passage["document"] for passage in found] == ["anew"]


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow_cases("2")
def test_densex_serve_serves_until_it_is_stopped(
    documents: list[Document], tmp_path: Path, stop: signal.Signals
) -> None:
    DenseXRetrievalPack(documents, "none", "none", "none", persist_dir=tmp_path / "index")
    command = [sys.executable, "-u", "-c", "from llama_pack_densex.cli import app; app()", "serve"]
    options = [".", "--port", "0", "--query-llm", "none", "--token", "open-sesame"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([*command, *options], cwd=tmp_path / "index", **pipes) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)  # it would be waited for
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Serving . on http://127.0.0.1:")
        with httpx.Client(base_url=line.split(" on ")[1].split()[0], timeout=60) as client:
            assert "<h1>index</h1>" in client.get("/").text
            body = {"question": QUESTION}
            assert client.post("/retrieve", json=body).status_code == 401
            found = client.post(
                "/retrieve", json=body, headers={"Authorization": "Bearer open-sesame"}
            )
            assert found.json()["passages"]
        process.send_signal(stop)
        rest, errors = process.communicate(timeout=120)
        assert (process.returncode, rest, errors) == (128 + stop, "", "")


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "llama_pack_densex.serving.app")
    result = invoke("serve", tmp_path)
    assert result.exit_code == 1
    assert 'pip install "llama-pack-densex[serve]"' in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
