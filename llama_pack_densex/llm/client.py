"""How one request reaches an LLM: in a thread, and with a JSON schema for its reply where possible."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.llms import LLM

from llama_pack_densex.llm.errors import refuses_schema
from llama_pack_densex.llm.usage import Messages, Response
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

Receive = Callable[[Response], None]
_NO_SCHEMA = "The server takes no JSON schema for replies (response_format), and is asked without."
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


class Client:
    """Calls an LLM in threads, with the caller's context variables.

    A response is handled in the thread that got it: even where nobody waits for it any more, a response that
    was paid for is counted and kept.

    Args:
        llm: An LLM that does not retry by itself (`without_retries`).
        max_concurrency: Requests at the same time.
        form: What `response_format` returned, for replies by a JSON schema. If the server refuses it, that
            request and all later ones go without it: `form` is emptied, for everybody who shares it.
    """

    def __init__(self, llm: LLM, max_concurrency: int, form: dict[str, Any] | None = None) -> None:
        self._llm = llm
        self._is_chat = llm.metadata.is_chat_model
        self._form: dict[str, Any] = {} if form is None else form
        self._form_works = False
        self._context = copy_context()
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="llm requests")

    async def send(self, messages: Messages, receive: Receive) -> None:
        """Send one request, once, and have the response handled as soon as it is there."""
        context = self._context.copy()  # one context cannot be entered by two threads at a time
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, context.run, self._send_now, messages, receive)

    def close(self) -> None:
        """Let the threads end when their requests do."""
        self._threads.shutdown(wait=False)

    def _send_now(self, messages: Messages, receive: Receive) -> None:
        try:
            if self._is_chat:
                receive(self._chat(messages))
            else:
                receive(self._llm.complete("\n\n".join(message.content or "" for message in messages)))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            # SystemExit and asyncio's CancelledError would end the loop that everybody waits in; and a future
            # takes no StopIteration, which an exhausted list of canned answers raises
            raise AssertionError(f"the LLM raised {type(error).__name__}: {error}") from error

    def _chat(self, messages: Messages) -> ChatResponse:
        form = dict(self._form)
        try:
            response = self._llm.chat(messages, **form)
        except Exception as error:
            if not form or not refuses_schema(error, proven=self._form_works):
                raise
            if self._form.pop("response_format", None) is not None:  # the first of those under way
                logger.warning(_NO_SCHEMA)
            return self._llm.chat(messages)
        self._form_works = self._form_works or bool(form)
        return response


def response_format(llm: LLM, *lists: str) -> dict[str, Any]:
    """What makes replies an object of lists of strings, by a JSON schema.

    Args:
        llm: The LLM. LlamaIndex's OpenAI says whether its model keeps to a schema; for OpenAILike,
            `should_use_structured_outputs` does.
        lists: The names of the lists.

    Returns:
        A further argument of its `chat`; empty where the LLM does not say that it can do this.
    """
    is_structured = getattr(llm, "_should_use_structure_outputs", None)  # there is no public name for this
    if is_structured is None or not is_structured():
        return {}
    properties = {name: {"type": "array", "items": {"type": "string"}} for name in lists}
    schema = {"type": "object", "properties": properties, "required": [*lists], "additionalProperties": False}
    json_schema = {"name": "_and_".join(lists), "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def background_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process in which all requests wait for their turn, in a thread of its own."""
    process = os.getpid()  # a forked process has none of its parent's threads
    if process not in _LOOPS:
        loop = asyncio.new_event_loop()
        if _LOOPS.setdefault(process, loop) is loop:  # else another thread was faster
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
        else:
            loop.close()
    return _LOOPS[process]
