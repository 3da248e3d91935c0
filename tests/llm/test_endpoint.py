"""What a server refuses, never ends, or says in place of a reply: real clients, real servers on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer, Passage
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.llm.endpoint import TIME_OUTS
from llama_pack_densex.llm.errors import Failure, classify
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from llama_pack_densex.propositionizers.base import PropositionizerError
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.serving.running import SlowProvider, served

PASSAGES = [Passage(f"Fact {n} is true and old.") for n in range(4)] + [
    Passage(f"湖{n}は深い。") for n in range(2)
]
DOCUMENTS = [
    Document(text="The tower of Karsted was built in 1889."),
    Document(text="霧浜灯台は1874年に着工した。"),
]
QUESTION = "When was the tower of Karsted built?"
JAPANESE_QUESTION = "霧浜灯台はいつ着工しましたか。"
ANSWER = "The tower of Karsted was built in 1889.[^1]"
WAYS = ["run", "arun", "a stream", "an asynchronous stream"]


def llm_of(url: str, **settings: Any) -> OpenAI:
    return OpenAI(
        **{
            "model": "gpt-4o-mini",
            "api_base": url,
            "api_key": "sk-test",
            "max_retries": 0,
            **settings,
        }
    )


def answered(body: dict[str, Any]) -> Reply:
    content = asked_content(body)
    return Reply(json.dumps([content], ensure_ascii=False) if content else ANSWER)


def pack_of(llm: OpenAI, streaming: bool = False) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(DOCUMENTS, "none", llm, "none", streaming=streaming)


async def asked(llm: OpenAI, way: str, question: str = QUESTION) -> tuple[str, dict[str, Any]]:
    """The answer of a pack, and its metadata."""
    pack = pack_of(llm, streaming="stream" in way)
    if way == "run":
        response = pack.run(question)
    elif way == "a stream":
        response = pack.run(question).get_response()
    elif way == "arun":
        response = await pack.arun(question)
    else:
        response = await (await pack.arun(question)).get_response()
    return str(response), response.metadata


# Parameters


def openai_error(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    }


PHRASES: dict[str, Callable[[str], dict[str, Any]]] = {
    "OpenAI": lambda name: openai_error(
        f"Unsupported parameter: '{name}' is not supported with this model.",
        name,
        "unsupported_parameter",
    ),
    "OpenAI, of a value": lambda name: openai_error(
        f"Unsupported value: '{name}' does not support 0.1 with this model.",
        name,
        "unsupported_value",
    ),
    "Azure": lambda name: openai_error(f"Unrecognized request argument supplied: {name}"),
    "vLLM": lambda name: {
        "object": "error",
        "message": (
            f"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs not permitted'}}]"
        ),
        "code": 400,
    },
    "FastAPI": lambda name: {
        "detail": [
            {
                "type": "extra_forbidden",
                "loc": ["body", name],
                "msg": "Extra inputs are not permitted",
            }
        ]
    },
    "LiteLLM": lambda name: openai_error(
        f"litellm.UnsupportedParamsError: m does not support parameters: ['{name}'], for model=m.",
        code="400",
    ),
    "Google": lambda name: openai_error(
        f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    ),
    "in Japanese": lambda name: openai_error(
        f"パラメータ {name} はこのモデルではサポートされていません。"
    ),
}


def without(name: str, phrase: str, status: int = 400) -> Callable[[dict[str, Any]], Reply]:
    def respond(body: dict[str, Any]) -> Reply:
        if name in body:
            return Reply(
                status=status, body_override=json.dumps(PHRASES[phrase](name), ensure_ascii=False)
            )
        return answered(body)

    return respond


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_a_parameter_that_is_refused_is_left_out_from_then_on(
    phrase: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    status = 422 if phrase == "FastAPI" else 400
    with OpenAIServer(without(name, phrase, status)) as server, caplog.at_level(logging.WARNING):
        llm = llm_of(server.url, additional_kwargs={"top_p": 0.9})
        asking = LLMPropositionizer(llm, max_concurrency=1, retry_wait=0)
        sets = asking.propositionize(PASSAGES)
        asking.propositionize([Passage("Fact 9 is new.")])
    assert [made.status for made in sets] == ["ok"] * len(PASSAGES)
    assert sum(name in seen.body for seen in server.requests) == 1
    assert len(server.requests) == len(PASSAGES) + 2
    assert [record.message for record in caplog.records if name in record.message] == [
        f"The server does not accept {name}, which is left out from now on."
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_answers_are_asked_for_without_it_too(way: str) -> None:
    with OpenAIServer(without("temperature", "OpenAI")) as server:
        text, _ = await asked(llm_of(server.url), way)
    assert text == ANSWER
    assert len(server.requests) == 2


def test_several_are_left_out_one_by_one_and_a_limit_of_tokens_goes_by_its_other_name() -> None:
    refused = ("temperature", "max_tokens", "logprobs")

    def respond(body: dict[str, Any]) -> Reply:
        for name in refused:
            if name in body:
                return without(name, "OpenAI")(body)
        return answered(body)

    with OpenAIServer(respond) as server:
        llm = llm_of(server.url, max_tokens=321, logprobs=True)
        sets = LLMPropositionizer(llm, max_concurrency=1).propositionize(PASSAGES)
    assert [made.status for made in sets] == ["ok"] * len(PASSAGES)
    assert len(server.requests) == len(PASSAGES) + len(refused)
    assert server.requests[-1].body["max_completion_tokens"] == 321


@pytest.mark.parametrize(
    "problem",
    [
        openai_error(
            "This model's maximum context length is 10 tokens; you sent temperature and 20 tokens."
        ),
        openai_error(
            "max_tokens is too large: 900. This model supports at most 500.",
            "max_tokens",
            "invalid_value",
        ),
        openai_error(
            "Expected a value of temperature between 0 and 2.",
            "temperature",
            "decimal_above_max_value",
        ),
        openai_error("Unsupported text: 'The temperature of the sea is not supported by data.'"),
        openai_error("画像には対応していません。"),
    ],
)
def test_another_complaint_leaves_no_parameter_out(problem: dict[str, Any]) -> None:
    text = "The temperature of the sea is not supported by data."

    def respond(body: dict[str, Any]) -> Reply:
        if asked_content(body) in text:
            return Reply(status=400, body_override=json.dumps(problem, ensure_ascii=False))
        return answered(body)

    with OpenAIServer(respond) as server:
        llm = llm_of(server.url, max_tokens=900)
        LLMPropositionizer(llm, max_concurrency=1).propositionize(
            [*PASSAGES[:2], Passage(text), *PASSAGES[2:]]
        )
    assert all({"temperature", "max_tokens"} <= seen.body.keys() for seen in server.requests)


def test_what_is_refused_all_the_same_stops_the_run_with_the_providers_words() -> None:
    problem = json.dumps(PHRASES["OpenAI"]("temperature"))
    with (
        OpenAIServer(lambda body: Reply(status=400, body_override=problem)) as server,
        pytest.raises(PropositionizerError, match="'temperature' is not supported with this model"),
    ):
        LLMPropositionizer(llm_of(server.url), max_concurrency=1).propositionize(PASSAGES)
    assert len(server.requests) == 2


async def test_a_pack_finds_out_once_what_its_server_refuses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer(without("temperature", "OpenAI")) as server:
        pack = pack_of(llm_of(server.url))
        for question in (QUESTION, JAPANESE_QUESTION):
            engine = pack.as_chat_engine()
            engine.chat(question)
            "".join(engine.stream_chat("How high is it?").response_gen)
            await pack.as_chat_engine(chat_history=engine.chat_history).achat("How old is it?")
    refused = [seen for seen in server.requests if "temperature" in seen.body]
    assert len(refused) == 2  # the answer's, and that of the follow-up's query
    assert len([record for record in caplog.records if "temperature" in record.message]) == 2


# Errors in place of a reply


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"error": {"message": "The model is overloaded today.", "code": 503}},
            "The model is overloaded today.",
        ),
        ({"error": "モデルを読み込めません。"}, "モデルを読み込めません。"),
        (
            {"error": {"message": "No route to m.", "type": "router"}, "choices": None},
            "No route to m.",
        ),
    ],
)
@pytest.mark.parametrize("way", ["run", "arun"])
async def test_an_error_with_the_status_of_a_reply_is_told_in_the_providers_words(
    body: dict[str, Any], words: str, way: str
) -> None:
    with OpenAIServer(lambda _: Reply(body_override=json.dumps(body))) as server:
        with pytest.raises(RuntimeError, match=words):
            await asked(llm_of(server.url), way)
        asking = LLMPropositionizer(llm_of(server.url), max_retries=0, retry_wait=0)
        with pytest.raises(PropositionizerError, match=words):
            asking.propositionize([Passage(f"Fact {n}.") for n in range(20)])


# Replies that never came


SILENCES = {
    "null": Reply(None),
    "empty": Reply(""),
    "filtered": Reply(None, finish_reason="content_filter"),
    "refused": Reply(None, refusal="I cannot."),
    "thoughts": Reply("<think>It was 1889. 1874年だ。</think>"),
    "a call of a tool": Reply(None, finish_reason="tool_calls", tool="search"),
}
SILENT = {"en": "The model gave no answer.", "ja": "モデルから回答がありませんでした。"}


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_reply_that_never_came_is_no_not_found(silence: str, way: str) -> None:
    with OpenAIServer(lambda body: SILENCES[silence]) as server:
        english, metadata = await asked(llm_of(server.url), way)
        japanese, _ = await asked(llm_of(server.url), way, JAPANESE_QUESTION)
    assert {"en": english, "ja": japanese} == SILENT
    assert metadata["outcome"] == "no_answer"


@pytest.mark.parametrize("way", ["run", "arun"])
async def test_neither_is_one_without_choices(way: str) -> None:
    with OpenAIServer(lambda body: Reply(body_override='{"choices": []}')) as server:
        text, metadata = await asked(llm_of(server.url), way)
    assert (text, metadata["outcome"]) == (SILENT["en"], "no_answer")


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize(
    ("question", "text"), [(QUESTION, SILENT["en"]), (JAPANESE_QUESTION, SILENT["ja"])]
)
async def test_a_silence_is_no_part_of_a_conversation(
    silence: str, question: str, text: str
) -> None:
    with OpenAIServer(lambda body: SILENCES[silence]) as server:
        engine = pack_of(llm_of(server.url)).as_chat_engine()
        assert str(engine.chat(question)) == text
        assert "".join(engine.stream_chat(question).response_gen) == text
        assert str(await engine.achat(question)) == text
        assert engine.chat_history == []


@pytest.mark.parametrize("silence", SILENCES)
def test_a_silence_is_served_as_such(silence: str) -> None:
    with (
        OpenAIServer(lambda body: SILENCES[silence]) as server,
        served(pack_of(llm_of(server.url))) as client,
    ):
        for question, text in ((QUESTION, SILENT["en"]), (JAPANESE_QUESTION, SILENT["ja"])):
            answer = client.post("/query", json={"question": question}).json()
            assert (answer["answer"], answer["outcome"]) == (text, "no_answer")
            assert text in client.post("/chat", json={"question": question}).text


# Time


@contextmanager
def dripping(head: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that sends a little again and again, and never ends."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 20)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + head + b"\r\n\r\n"
            )
            while not ended.wait(0.05):
                connection.sendall(f"{len(drop):x}\r\n".encode() + drop + b"\r\n")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            ended.set()


JSON = b"Content-Type: application/json", b" "
COMMENTS = b"Content-Type: text/event-stream", b": wait\n\n"
CHUNKS = (
    b"Content-Type: text/event-stream",
    b'data: {"choices": [{"delta": {"content": "x "}}]}\n\n',
)


@pytest.mark.parametrize("is_async", [False, True])
async def test_propositions_are_not_waited_for_without_end(is_async: bool) -> None:
    with dripping(*JSON) as url:
        asking = LLMPropositionizer(llm_of(url, timeout=0.2), max_retries=1, retry_wait=0)
        sets = (
            await asking.apropositionize(PASSAGES[:2])
            if is_async
            else asking.propositionize(PASSAGES[:2])
        )
    assert {(made.status, made.is_passing) for made in sets} == {("fallback", True)}
    assert "TimeoutError" in sets[0].reason


@pytest.mark.parametrize("drip", [COMMENTS, CHUNKS], ids=["comments", "chunks"])
@pytest.mark.parametrize("way", ["a stream", "an asynchronous stream"])
async def test_neither_are_streams(drip: tuple[bytes, bytes], way: str) -> None:
    with dripping(*drip) as url, pytest.raises(TimeoutError, match=f"{TIME_OUTS} times"):
        await asked(llm_of(url, timeout=0.2), way)


@pytest.mark.parametrize("way", ["run", "arun"])
async def test_nor_whole_answers(way: str) -> None:
    with dripping(*JSON) as url, pytest.raises(TimeoutError, match=f"{TIME_OUTS} times"):
        await asked(llm_of(url, timeout=0.2), way)


@pytest.mark.parametrize("is_async", [False, True])
async def test_how_long_a_reader_takes_is_not_counted(is_async: bool) -> None:
    text = "The tower of Karsted was built in 1889.[^1] " * 3
    pieces = []
    with OpenAIServer(lambda body: text) as server:
        pack = pack_of(llm_of(server.url, timeout=0.8), streaming=True)  # 4 seconds in all
        if is_async:
            async for piece in (await pack.arun(QUESTION)).async_response_gen():
                pieces.append(piece)
                await asyncio.sleep(1.5 * (len(pieces) < 4))
        else:
            for piece in pack.run(QUESTION).response_gen:
                pieces.append(piece)
                time.sleep(1.5 * (len(pieces) < 4))
    assert "".join(pieces).strip() == text.strip()
    assert len(pieces) > 2


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_stream_whose_reader_has_enough_is_closed(is_async: bool) -> None:
    with SlowProvider("The tower of Karsted was built in 1889.[^1] It") as provider:
        pack = pack_of(provider.llm(), streaming=True)
        if is_async:
            async with aclosing((await pack.arun(QUESTION)).async_response_gen()) as pieces:
                assert "1889" in await anext(pieces)
        else:
            with closing(pack.run(QUESTION).response_gen) as generator:
                assert "1889" in next(generator)
        for _ in range(50):
            gc.collect()  # the client's own streams are cycles
            if await asyncio.to_thread(provider.hung_up.wait, 0.1):
                break
        assert provider.hung_up.is_set()


TEXT = "The tower is old. The sea is deep. 塔は古い。海は深い。" * 50


@pytest.mark.parametrize(
    "embed",
    [
        lambda model: DenseXRetrievalPack(DOCUMENTS, "none", "none", model),
        lambda model: TopicNodeParser(embed_model=model).split_text(TEXT),
        lambda model: CachedEmbedding(model).get_text_embedding(TEXT),
        lambda model: CachedEmbedding(model).embed_queries([QUESTION]),
    ],
    ids=["an index", "topics", "a comparison's texts", "its questions"],
)
def test_texts_are_not_embedded_without_end(embed: Callable[[OpenAIEmbedding], Any]) -> None:
    with dripping(*JSON) as url:
        model = OpenAIEmbedding(api_base=url, api_key="sk-test", timeout=0.2, max_retries=0)
        with pytest.raises(TimeoutError, match=f"{TIME_OUTS} times"):
            embed(model)


@pytest.mark.parametrize("question", [QUESTION, JAPANESE_QUESTION])
async def test_nor_are_questions(question: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"api_key": "sk-test", "timeout": 0.2, "max_retries": 0}
    with OpenAIServer() as server:
        model = OpenAIEmbedding(api_base=server.url, **settings)
        DenseXRetrievalPack(DOCUMENTS, "none", "none", model, persist_dir=tmp_path / "index")
    with dripping(*JSON) as url:
        model = OpenAIEmbedding(api_base=url, **settings)
        pack = DenseXRetrievalPack.load(
            tmp_path / "index", embed_model=model, query_llm="none", dense_weight=1.0
        )
        with pytest.raises(TimeoutError, match=f"{TIME_OUTS} times"):
            pack.retrieve(question)
        with pytest.raises(TimeoutError, match=f"{TIME_OUTS} times"):
            await pack.aretrieve(question)


async def test_a_run_that_is_cancelled_leaves_such_a_server_alone() -> None:
    with dripping(*JSON) as url:
        asking = LLMPropositionizer(llm_of(url, timeout=600))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asking.apropositionize(PASSAGES), 0.5)


# Large errors


class Refused(Exception):
    status_code = 502


@pytest.mark.parametrize("unit", ["<p>bad gateway</p>", "x", "悪", '{"error": "y"}, '])
def test_of_a_large_error_the_beginning_and_the_end_are_looked_at(unit: str) -> None:
    page = f"sk-proj-abcdefgh {unit * 300_000} maximum context length"
    failure = classify(Refused(page), sent="The tower was built in 1889. 塔は古い。" * 5_000)
    assert failure == Failure("transient", "Refused 502")
    assert failure.message.startswith("Refused: [key] ")
    assert len(failure.message) < 1_000


def test_a_quotation_is_found_in_a_long_text() -> None:
    text = "".join(f"Fact {n} is true. 事実{n}は正しい。" for n in range(20_000))
    error = Refused("Not allowed: 'Invalid API key. No, 事実19999は正しい。' Sorry.")
    assert (
        classify(error, sent=f"{text}Invalid API key. No, 事実19999は正しい。").kind == "transient"
    )
