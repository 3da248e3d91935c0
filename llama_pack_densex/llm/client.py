"""How one request reaches an LLM: in a thread, and with a JSON schema for its reply where possible."""

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
    """Calls an LLM in threads, with the caller's context variables.

    A response is handled in the thread that got it: even if nobody waits for it any more, a response that was
    paid for is counted and kept. A thread whose server never ends its reply is left to itself; it delays
    neither other requests nor the end of the process.

    Args:
        endpoint: An LLM that does not retry by itself (`without_retries`).
        form: What `response_format` returned, for replies by a JSON schema.
    """

    def __init__(self, endpoint: Endpoint, form: Arguments | None = None) -> None:
        self._endpoint = endpoint
        self._is_chat = endpoint.llm.metadata.is_chat_model
        self._form = form or {}
        self._context = copy_context()

    async def send(self, messages: Messages, receive: Receive) -> None:
        """Send one request, once, and have the response handled as soon as it is there.

        Raises:
            TimeoutError: That took too long (see `Endpoint`).
        """
        context = self._context.copy()  # one context cannot be entered by two threads at a time
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
            # SystemExit and asyncio's CancelledError would end the loop that everybody waits in; and a future
            # takes no StopIteration, which an exhausted list of canned answers raises
            raise AssertionError(f"the LLM raised {type(error).__name__}: {error}") from error


def response_format(llm: LLM, *lists: str) -> Arguments:
    """What makes replies an object of lists of strings, by a JSON schema.

    Args:
        llm: The LLM. LlamaIndex's OpenAI says whether its model keeps to a schema; for OpenAILike,
            `should_use_structured_outputs` does.
        lists: The names of the lists.

    Returns:
        A further argument of its `chat`; empty where the LLM does not say that it can do this.
    """
    # there is no public name for this
    is_structured = getattr(llm, "_should_use_structure_outputs", None)
    if is_structured is None or not is_structured():
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
    """The event loop of this process in which all requests wait for their turn, in a thread of its own."""
    process = os.getpid()  # a forked process has none of its parent's threads
    if process not in _LOOPS:
        loop = asyncio.new_event_loop()
        if _LOOPS.setdefault(process, loop) is loop:  # else another thread was faster
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
        else:
            loop.close()
    return _LOOPS[process]
