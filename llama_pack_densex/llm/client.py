"""Sends one request to an LLM: in a thread, and with a JSON schema for its reply where possible."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

from llama_index.core.llms import LLM

from llama_pack_densex.llm.endpoint import Endpoint, awithin, begin_in
from llama_pack_densex.llm.usage import Arguments, Messages, Response

Receive = Callable[[Response], None]
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


class Client:
    """A client that calls an LLM in threads, with the caller's context variables.

    A response is handled in the thread that received it, so that a response that was paid for is counted and
    cached even if nobody waits for it any more. A thread whose server never ends its reply is abandoned; it
    delays neither other requests nor the end of the process.

    Args:
        endpoint: An LLM that does not retry by itself (`without_retries`).
        form: The result of `response_format`, for replies that follow a JSON schema.
    """

    def __init__(self, endpoint: Endpoint, form: Arguments | None = None) -> None:
        self._endpoint = endpoint
        self._is_chat = endpoint.llm.metadata.is_chat_model
        self._form = form or {}
        self._context = copy_context()

    async def send(self, messages: Messages, receive: Receive) -> None:
        """Send one request, once, and pass the response to `receive` as soon as it arrives.

        Raises:
            TimeoutError: It took too long (see `Endpoint`).
        """
        context = self._context.copy()  # a context cannot be entered by two threads at a time
        sending = begin_in(context, partial(self._send_now, messages, receive))
        await awithin(self._endpoint.seconds, asyncio.wrap_future(sending))

    def _send_now(self, messages: Messages, receive: Receive) -> None:
        try:
            if self._is_chat:
                receive(self._endpoint.send("chat", messages, **self._form))
            else:
                prompt = "\n\n".join(message.content or "" for message in messages)
                receive(self._endpoint.send("complete", prompt))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            # SystemExit and asyncio's CancelledError would end the loop in which all requests wait; a future
            # does not accept StopIteration, which an exhausted list of canned answers raises
            raise AssertionError(f"the LLM raised {type(error).__name__}: {error}") from error


def response_format(llm: LLM, *lists: str) -> Arguments:
    """Return the argument by which a JSON schema makes replies an object with lists of strings.

    Args:
        llm: The LLM. LlamaIndex's OpenAI class says whether its model supports a schema; for OpenAILike,
            `should_use_structured_outputs` says so.
        lists: The names of the lists.

    Returns:
        An additional argument of its `chat`; empty if the LLM does not declare support for schemas.
    """
    # LlamaIndex has no public name for this
    is_structured = getattr(llm, "_should_use_structure_outputs", None)
    if not is_structured or not is_structured():
        return {}
    properties = {name: {"type": "array", "items": {"type": "string"}} for name in lists}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [*lists],
        "additionalProperties": False,
    }
    json_schema = {"name": "_and_".join(lists), "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def background_loop() -> asyncio.AbstractEventLoop:
    """Return this process's event loop for all waiting requests; it runs in a thread of its own."""
    process = os.getpid()  # a forked process does not inherit threads
    if process not in _LOOPS:
        loop = asyncio.new_event_loop()
        if _LOOPS.setdefault(process, loop) is loop:  # otherwise another thread was faster
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
        else:
            loop.close()
    return _LOOPS[process]
