"""The LLM as requests use it: it tries nothing again by itself, and it is called in threads or in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.llms import LLM

T = TypeVar("T")
Response = ChatResponse | CompletionResponse
Messages = Sequence[ChatMessage]

_CLIENTS = {"_client": "_get_client", "_aclient": "_get_aclient"}  # and what makes them, in LlamaIndex's OpenAI
_SETTINGS = (
    "api_key", "base_url", "organization", "project", "timeout", "workload_identity", "_provider", "_api_key_provider",
    "_custom_headers", "_custom_query", "_api_version", "_azure_ad_token", "_azure_ad_token_provider",
)  # fmt: skip


class Transport(Protocol):
    """How requests leave this process, and where work that blocks is done meanwhile."""

    async def send(self, messages: Messages) -> Response:
        """Send one request, once."""

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Do blocking work off the event loop. No task: the end of a loop cancels all tasks, shielded ones too."""


class AsyncTransport:
    """Calls an LLM's asynchronous methods.

    Args:
        llm: An LLM that is used in this event loop only, since an asynchronous client belongs to one.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm, self._is_chat = llm, llm.metadata.is_chat_model

    async def send(self, messages: Messages) -> Response:
        if self._is_chat:
            return await self._llm.achat(messages)
        return await self._llm.acomplete(as_prompt(messages))

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, work, *args)


class ThreadTransport:
    """Calls an LLM's synchronous methods in threads, with the caller's context variables.

    Args:
        llm: An LLM.
        max_concurrency: Requests at the same time.
    """

    def __init__(self, llm: LLM, max_concurrency: int) -> None:
        self._llm, self._is_chat = llm, llm.metadata.is_chat_model
        self._context = copy_context()
        # apart from the loop's own threads, since what is kept must not wait for requests
        self._sending = ThreadPoolExecutor(max_concurrency, thread_name_prefix="propositions")

    async def send(self, messages: Messages) -> Response:
        loop = asyncio.get_running_loop()
        # one context cannot be entered by two threads at a time
        task = partial(self._context.copy().run, self._send_now, messages)
        return await loop.run_in_executor(self._sending, task)

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, work, *args)

    def close(self) -> None:
        """Let the threads end when their requests do."""
        self._sending.shutdown(wait=False, cancel_futures=True)

    def _send_now(self, messages: Messages) -> Response:
        return self._llm.chat(messages) if self._is_chat else self._llm.complete(as_prompt(messages))


def without_retries(llm: LLM) -> LLM:
    """A copy of an LLM whose client tries nothing again.

    LlamaIndex's OpenAI tries thrice, and the client in it thrice again at each of these; with our own tries on top, one
    passage could be asked for dozens of times, and a rate limit would be met by more requests. The copy has clients of
    its own, where they can be made anew: an asynchronous one belongs to one event loop. One that the user gave the LLM
    goes on to be used, with its address and its ways to authenticate.
    """
    changes = {"max_retries": 0} if isinstance(getattr(llm, "max_retries", None), int) else {}
    copy: LLM = llm.model_copy(update=changes)
    private = copy.__pydantic_private__ or {}
    for name in _CLIENTS:
        client: Any = private.get(name)
        if hasattr(client, "with_options") and not _has_its_like(copy, name):  # the clients of OpenAI and Anthropic
            private[name] = client.with_options(max_retries=0)
    return copy


def given_clients(llm: LLM) -> list[str]:
    """The arguments of LlamaIndex's OpenAI by which its user gave it clients of their own."""
    if "reuse_client" not in type(llm).model_fields:
        return []
    copy: LLM = llm.model_copy()
    private = copy.__pydantic_private__ or {}
    arguments = {"_client": "openai_client", "_aclient": "async_openai_client"}
    return [
        argument
        for name, argument in arguments.items()
        if private.get(name) is not None and not _has_its_like(copy, name)
    ]


def _has_its_like(copy: LLM, name: str) -> bool:
    """Give a copy a client of its own, if LlamaIndex makes the like of the one that it has from the LLM's settings."""
    private = copy.__pydantic_private__ or {}
    given, private[name] = private[name], None
    try:
        made = getattr(copy, _CLIENTS[name])()
    except Exception:  # another provider's LLM, or one without a key: nobody but the user can have made the client
        return False
    said = [[getattr(client, setting, None) for setting in _SETTINGS] for client in (made, given)]
    return said[0] == said[1] and type(_http_client(made)) is type(_http_client(given))


def _http_client(client: Any) -> Any:
    return getattr(client, "_client", None)


async def close_async_client(copy: LLM, llm: LLM) -> None:
    """Close the asynchronous client that a copy by `without_retries` made for itself, not one that it was given.

    Left to the garbage collector it would be closed in whatever event loop runs then, and fail there.

    Args:
        copy: The copy.
        llm: What it is a copy of.
    """
    private, given = copy.__pydantic_private__ or {}, llm.__pydantic_private__ or {}
    client = private.get("_aclient")
    if client is None or "reuse_client" not in type(llm).model_fields or private.get("_async_http_client") is not None:
        return
    private["_aclient"] = None
    if _http_client(client) is not _http_client(given.get("_aclient")):
        await client.close()


def as_prompt(messages: Messages) -> str:
    """Messages as one text, for models that complete texts."""
    return "\n\n".join(message.content or "" for message in messages)
