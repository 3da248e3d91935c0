"""The LLM as requests use it: with clients that try nothing again, in threads and in event loops."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.llms.openai import OpenAI

from llama_pack_densex.llm.client import Client, background_loop
from llama_pack_densex.llm.endpoint import Endpoint
from llama_pack_densex.llm.reference import describe_llm, without_retries
from tests.openai_server import OpenAIServer, Reply

MESSAGES = [ChatMessage("Split it.", role="system"), ChatMessage("味噌は塩辛い。", role="user")]
BROKEN = Reply("The server had an error.", status=500)


def llm_of(url: str = "http://127.0.0.1:9/v1", **arguments: Any) -> OpenAI:
    return OpenAI(
        **{
            "model": "gpt-4o-mini",
            "api_base": url,
            "api_key": "sk-test",
            "max_retries": 5,
            **arguments,
        }
    )


class OtherLLM(CustomLLM):
    """As other providers' classes: clients that are made at once, and no way to make them again."""

    max_retries: int = 4
    _client: Any = PrivateAttr()
    _aclient: Any = PrivateAttr()

    def __init__(self, url: str) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "base_url": url,
            "api_key": "sk-other",
            "max_retries": self.max_retries,
        }
        self._client, self._aclient = openai.OpenAI(**settings), openai.AsyncOpenAI(**settings)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        made = self._client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}]
        )
        return ChatResponse(message=ChatMessage(made.choices[0].message.content, role="assistant"))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        made = await self._aclient.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}]
        )
        return ChatResponse(message=ChatMessage(made.choices[0].message.content, role="assistant"))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("a chat model")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError("a chat model")


@pytest.mark.parametrize("make", [llm_of, lambda url: llm_of(url, reuse_client=False), OtherLLM])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_copy_asks_once_and_the_llm_as_often_as_before(make: Any, is_used: bool) -> None:
    with OpenAIServer(lambda body: BROKEN) as server:
        llm = make(server.url)
        if is_used and isinstance(llm, OpenAI):
            llm._get_client(), llm._get_aclient()
        with pytest.raises(openai.InternalServerError):
            without_retries(llm).chat(MESSAGES)
        assert len(server.requests) == 1
        if isinstance(llm, OtherLLM):
            assert (llm.max_retries, llm._client.max_retries, llm._aclient.max_retries) == (4, 4, 4)
        else:
            assert (
                llm.max_retries,
                llm._get_client().max_retries,
                llm._get_aclient().max_retries,
            ) == (
                5,
                5,
                5,
            )


def test_a_copy_has_a_client_of_its_own() -> None:
    llm = llm_of()
    mine = llm._get_client()
    copies = without_retries(llm), without_retries(llm)
    assert llm._get_client() is mine
    assert len({id(one._get_client()) for one in (llm, *copies)}) == 3  # type: ignore[attr-defined]


def test_an_llm_without_clients_is_copied_as_it_is() -> None:
    copy = without_retries(MockLLM(max_tokens=7))
    assert isinstance(copy, MockLLM)
    assert copy.max_tokens == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": "sk-gateway"},
        {"base_url": "http://127.0.0.1:9/gateway/v1"},
        {"organization": "org-1"},
        {"default_headers": {"X-Team": "research"}},
        {"http_client": openai.DefaultHttpxClient(proxy="http://127.0.0.1:9")},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_client_that_the_user_made_keeps_all_but_the_retries(settings: dict[str, Any]) -> None:
    given = {
        "api_key": "sk-test",
        "base_url": "http://127.0.0.1:9/v1",
        "timeout": 60.0,
        "max_retries": 5,
        **settings,
    }
    own = openai.OpenAI(**given)
    client = without_retries(llm_of(openai_client=own))._get_client()  # type: ignore[attr-defined]
    assert (client.max_retries, own.max_retries) == (0, 5)
    assert (client.api_key, client.base_url, client.organization) == (
        own.api_key,
        own.base_url,
        own.organization,
    )
    assert client._custom_headers == own._custom_headers
    assert client._client is own._client


def test_a_client_whose_llm_has_no_key_of_its_own_is_used() -> None:
    own = openai.OpenAI(api_key="sk-own", base_url="http://127.0.0.1:9/v1")
    client = without_retries(OpenAI(model="gpt-4o-mini", openai_client=own))._get_client()  # type: ignore[attr-defined]
    assert (client.api_key, client.max_retries) == ("sk-own", 0)


def test_telling_given_clients_from_made_ones_leaves_none_open() -> None:
    llm = llm_of()
    mine = llm._get_client()
    assert describe_llm(llm).lost == ()
    assert not mine.is_closed()
    assert (
        describe_llm(llm_of(openai_client=openai.OpenAI(api_key="sk-own")))
        .lost[0]
        .startswith("a client")
    )


# Transports


def ignore(response: Any) -> None:
    pass


async def test_requests_go_to_the_model_in_its_own_way() -> None:
    with OpenAIServer(lambda body: '["味噌は塩辛い。"]') as server:
        for llm in (llm_of(server.url), llm_of(server.url, model="gpt-3.5-turbo-instruct")):
            client = Client(Endpoint(llm))
            received: list[Any] = []
            await client.send(MESSAGES, received.append)
            response = received[0]
            said = response.message.content if isinstance(response, ChatResponse) else response.text
            assert said == '["味噌は塩辛い。"]'
    assert [len(seen.messages) for seen in server.requests] == [2, 0]
    assert server.requests[1].body["prompt"] == "Split it.\n\n味噌は塩辛い。"


async def test_a_response_is_dealt_with_though_nobody_waits_for_it_any_more() -> None:
    received: list[str] = []
    with OpenAIServer(lambda body: Reply("x", delay=0.2)) as server:
        client = Client(Endpoint(llm_of(server.url)))
        sending = asyncio.ensure_future(
            client.send(MESSAGES, lambda response: received.append(str(response)))
        )
        while not server.requests:
            await asyncio.sleep(0.01)
        sending.cancel()
        until = asyncio.get_running_loop().time() + 20
        while not received and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
    assert len(received) == 1


def test_a_process_has_one_loop_for_requests() -> None:
    assert background_loop() is background_loop()
    assert background_loop().is_running()


async def test_threads_have_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="nobody's")
    seen: list[str] = []

    class Looking(MockLLM):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            seen.append(variable.get())
            variable.set("the thread's")
            return super().complete(prompt, formatted, **kwargs)

    variable.set("the caller's")
    transport = Client(Endpoint(Looking(max_tokens=None)))
    await asyncio.gather(*(transport.send(MESSAGES, ignore) for _ in range(4)))
    assert seen == ["the caller's"] * 4
    assert variable.get() == "the caller's"
