"""Thoughts of a model whose server leaves them in its replies: no answer and no query has any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from tests.openai_server import OpenAIServer, Reply
from tests.serving.running import served
from tests.thoughts import MARKS

DOCUMENTS = [
    Document(
        text="The Seikan Tunnel links Honshu with Hokkaido. It lies 240 metres below the sea.",
        id_="seikan",
    ),
    Document(text="琵琶湖は滋賀県にある。最も深い所の水深は104メートルである。", id_="琵琶湖"),
]
CASES = {
    "en": (
        "How deep is the Seikan Tunnel?",
        "Document [^1] says 240 metres, [^1] again. I will cite it.[^1] Or [^2]?",
        "It lies 240 metres below the sea.[^1]",
    ),
    "ja": (
        "琵琶湖の水深は？",
        "文書[^1]に水深がある。104メートルと答えよう。[^1]",
        "最も深い所の水深は104メートルである。[^1]",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def packs(server: OpenAIServer) -> dict[bool, DenseXRetrievalPack]:
    llm = OpenAI(
        model="gpt-4o-mini",
        api_base=server.url,
        api_key="sk-test",
        max_retries=0,
        reuse_client=False,
    )
    return {
        streams: DenseXRetrievalPack(DOCUMENTS, "none", llm, "none", streaming=streams)
        for streams in (False, True)
    }


@pytest.mark.parametrize("language", CASES)
@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
async def test_thoughts_are_in_no_answer(
    server: OpenAIServer,
    packs: dict[bool, DenseXRetrievalPack],
    marks: tuple[str, str],
    language: str,
) -> None:
    question, thoughts, answer = CASES[language]
    server.responder = lambda body: f"{marks[0]}{thoughts}{marks[1]}{answer}"
    whole = packs[False].run(question)
    streamed: Any = packs[True].run(question)
    answers = [str(whole), str(await packs[False].arun(question)), "".join(streamed.response_gen)]
    astreamed: Any = await packs[True].arun(question)
    answers.append("".join([piece async for piece in astreamed.response_gen]))
    assert [text.strip() for text in answers] == [answer] * 4
    for response in (whole, streamed, astreamed):
        assert [sentence["text"] for sentence in response.metadata["sentences"]] == [answer]
        assert response.metadata["outcome"] == "answered"


@pytest.mark.parametrize(
    "marks", [MARKS["<think>"], MARKS["channels"], MARKS["a closing tag alone"]], ids=str
)
@pytest.mark.parametrize("streams", [False, True])
def test_thoughts_are_in_no_conversation(
    server: OpenAIServer,
    packs: dict[bool, DenseXRetrievalPack],
    marks: tuple[str, str],
    streams: bool,
) -> None:
    _, thoughts, answer = CASES["en"]

    def reply(body: Any) -> str:
        text = "How deep is the Seikan Tunnel?\nSeikan Tunnel depth"
        return (
            f"{marks[0]}{thoughts}{marks[1]}{answer if 'documents ' in json.dumps(body) else text}"
        )

    server.responder = reply
    engine = packs[False].as_chat_engine()
    say = (
        (lambda message: "".join(engine.stream_chat(message).response_gen))
        if streams
        else engine.chat
    )
    say("What is the Seikan Tunnel?")
    assert str(say("And how deep is it?")).strip() == answer
    assert "How deep is the Seikan Tunnel?" in server.requests[-1].last_message
    assert "I will cite" not in server.requests[-1].last_message
    assert str(say("Summarise that.")).strip() == answer
    assert {
        str(message.content) for message in engine.chat_history if message.role == "assistant"
    } == {answer}


@pytest.mark.parametrize("language", CASES)
def test_thoughts_are_not_served(
    server: OpenAIServer, packs: dict[bool, DenseXRetrievalPack], language: str
) -> None:
    question, thoughts, answer = CASES[language]
    server.responder = lambda body: f"{thoughts}\n</think>\n\n{answer}"
    with served(packs[False]) as client:
        assert client.post("/query", json={"question": question}).json()["answer"] == answer
        events = client.post("/chat", json={"question": question}).text
    lines = [
        line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: ")
    ]
    *deltas, last = map(json.loads, lines)
    assert "".join(delta["text"] for delta in deltas).strip() == answer
    assert last["answer"].strip() == answer
    assert thoughts[-8:] not in events


@pytest.mark.parametrize("opening", ["<think>", "[THINK]", "<|channel|>analysis<|message|>"])
@pytest.mark.parametrize("streams", [False, True])
def test_thoughts_that_were_cut_off_are_no_answer(
    server: OpenAIServer, packs: dict[bool, DenseXRetrievalPack], opening: str, streams: bool
) -> None:
    server.responder = lambda body: Reply(
        f"{opening}It lies 240 metres below the sea.[^1] Or", finish_reason="length"
    )
    response: Any = packs[streams].run(CASES["en"][0])
    text = "".join(response.response_gen) if streams else str(response)
    assert "240" not in text
    assert response.metadata["outcome"] != "answered"


@pytest.mark.parametrize(
    "answer",
    [
        "It lies 240 metres below the sea.[^1] `<think>` is no depth.[^1]",
        "It lies 240 metres below the sea.[^1] The tags <think> and </think> say nothing of it.[^1]",
        "The tag </think> says that it lies 240 metres below the sea.[^1]",
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_that_speaks_of_marks_stays_whole(
    server: OpenAIServer, packs: dict[bool, DenseXRetrievalPack], answer: str, streams: bool
) -> None:
    server.responder = lambda body: answer
    response: Any = packs[streams].run(CASES["en"][0])
    assert ("".join(response.response_gen) if streams else str(response)) == answer


def test_a_quotation_without_an_llm_may_be_of_marks() -> None:
    text = "<think> opens the thoughts of Qwen.\n\n</think> closes the thoughts of Qwen."
    pack = DenseXRetrievalPack([Document(text=text, id_="tags")], "none", "none", "none")
    assert "opens the thoughts of Qwen" in str(pack.run("What opens the thoughts of Qwen?"))


def test_an_answer_whose_first_sentence_is_cited_streams(
    server: OpenAIServer, packs: dict[bool, DenseXRetrievalPack]
) -> None:
    sentence = "It lies 240 metres below the sea.[^1] "
    server.responder = lambda body: sentence * 5
    response: Any = packs[True].run(CASES["en"][0])
    pieces = list(filter(str.strip, response.response_gen))
    assert len(pieces) > 4
    server.responder = lambda body: f"The depth is asked for. {sentence * 5}"
    uncited: Any = packs[True].run(CASES["en"][0])
    assert len(list(filter(str.strip, uncited.response_gen))) == 1


def test_thoughts_in_a_field_of_their_own_are_no_text(server: OpenAIServer) -> None:
    question, thoughts, answer = CASES["en"]
    message = {"role": "assistant", "content": answer}
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {**message, "reasoning_content": thoughts},
    }
    completion = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    openai = OpenAI(
        model="gpt-4o-mini",
        api_base=server.url,
        api_key="sk-test",
        max_retries=0,
        reuse_client=False,
    )
    server.responder = lambda _: Reply(body_override=json.dumps(completion))
    assert str(DenseXRetrievalPack(DOCUMENTS, "none", openai, "none").run(question)) == answer
