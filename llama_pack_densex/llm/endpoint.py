"""An LLM as its server turns out to be: asked without what it refuses, and never waited for without end."""

from __future__ import annotations

import contextvars
import math
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

import anyio
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate

from llama_pack_densex.llm.errors import (
    PROGRAMMING_ERRORS,
    NoReplyError,
    ProviderError,
    refused_parameter,
    refuses_schema,
)
from llama_pack_densex.llm.usage import Messages, attribute
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

T = TypeVar("T")

TIME_OUTS = 5
"""How many time-outs of its client a whole request may take: a client counts from one byte to the next."""
_WITHOUT_TIME_OUT = 3600.0  # seconds that a request may take if the LLM's class has no time-out
_SCHEMA = "response_format"
_SCHEMA_REFUSED = "The server takes no JSON schema for replies (response_format), and is asked without."
_REFUSED = "The server takes no %s, and is asked without."
# What LlamaIndex's classes send of their own fields.
_PARAMETERS = ("temperature", "top_p", "max_tokens", "logprobs", "top_logprobs", "reasoning_effort", "seed")
_TWINS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_FORMATTED = {"complete": {"formatted": True}, "stream_complete": {"formatted": True}}
_END = object()


class Endpoint:
    """Asks an LLM, with what its server was found to refuse left out.

    A request that is refused for one of its parameters is sent again without it; once that is answered, all
    later ones go without. Where there is an error in place of a reply, or no reply in it, that is what is
    raised: LlamaIndex's classes fail on both without saying so.

    Args:
        llm: The LLM.
        secrets: Texts that must not appear in messages.

    Attributes:
        llm: The LLM, as it is asked now.
        seconds: How long a whole request may take.
    """

    def __init__(self, llm: LLM, secrets: Sequence[str] = ()) -> None:
        self.seconds = longest_request(llm) or _WITHOUT_TIME_OUT
        self.llm = llm
        self._secrets = secrets
        self._refused: set[str] = set()
        self._schema_works = False

    def send(self, method: str, *arguments: Any, **settings: Any) -> Any:
        """Send one request by a method of the LLM, as "chat" or "stream_complete", and return what came.

        Of a stream, the first response has come when this returns.
        """
        attempt = _Attempt(self, method, arguments, settings)
        while True:
            try:
                response = attempt.begin()
                if attempt.is_stream:
                    response = _opened(response)
            except Exception as error:
                attempt.mend(error)
            else:
                attempt.note_answer()
                return response

    async def asend(self, method: str, *arguments: Any, **settings: Any) -> Any:
        """What `send` does, asynchronously, by "achat" and the like."""
        attempt = _Attempt(self, method, arguments, settings)
        while True:
            try:
                response = await attempt.begin()
                if attempt.is_stream:
                    response = await _aopened(response)
            except Exception as error:
                attempt.mend(error)
            else:
                attempt.note_answer()
                return response

    def predict(self, prompt: BasePromptTemplate, values: dict[str, Any], streaming: bool = False) -> Any:
        """Ask as core's `predict` and `stream` do, which drop why the LLM ended; in time, as `within_time`."""
        method, *arguments = self._formatted(prompt, values, streaming)
        return self.within_time(method, *arguments, **_FORMATTED.get(method, {}))

    async def apredict(self, prompt: BasePromptTemplate, values: dict[str, Any], streaming: bool = False) -> Any:
        """What `predict` does, asynchronously."""
        method, *arguments = self._formatted(prompt, values, streaming)
        return await self.awithin_time(f"a{method}", *arguments, **_FORMATTED.get(method, {}))

    def _formatted(self, prompt: BasePromptTemplate, values: dict[str, Any], streaming: bool) -> tuple[str, Any]:
        kind = "stream_" if streaming else ""
        if self.llm.metadata.is_chat_model:
            return f"{kind}chat", self.llm._get_messages(prompt, **values)
        return f"{kind}complete", self.llm._get_prompt(prompt, **values)

    def within_time(self, method: str, *arguments: Any, **settings: Any) -> Any:
        """What `send` does, for who would otherwise wait as long as the server likes.

        Raises:
            TimeoutError: The request took longer than `seconds`; of a stream while it is read.
        """
        end = time.monotonic() + self.seconds
        response = within(self.seconds, partial(self.send, method, *arguments, **settings))
        return _stream_within(end, self.seconds, response) if _is_stream(method) else response

    async def awithin_time(self, method: str, *arguments: Any, **settings: Any) -> Any:
        """What `within_time` does, asynchronously."""
        end = time.monotonic() + self.seconds
        response = await awithin(self.seconds, self.asend(method, *arguments, **settings))
        return _astream_within(end, self.seconds, response) if _is_stream(method) else response


class _Attempt:
    """One request, which is sent until nothing of it is refused."""

    def __init__(self, endpoint: Endpoint, method: str, arguments: Sequence[Any], settings: dict[str, Any]) -> None:
        self.is_stream = _is_stream(method)
        self._endpoint = endpoint
        self._method = method
        self._arguments = arguments
        self._settings = settings
        self._llm = endpoint.llm
        self._newly_refused: list[str] = []
        for name in endpoint._refused & settings.keys():
            del settings[name]

    def begin(self) -> Any:
        """Send it."""
        return getattr(self._llm, self._method)(*self._arguments, **self._settings)

    def mend(self, error: Exception) -> None:
        """Leave out what the server refused, so that the request can be sent again.

        Raises:
            Exception: It refused nothing of the kind: the error, or what the provider says in its place.
        """
        if isinstance(error, PROGRAMMING_ERRORS):
            self._raise_for_response(error)
            raise error
        name = self._refused_name(error)
        if not name:
            raise error
        self._newly_refused.append(name)
        if name in self._settings:
            del self._settings[name]
        else:
            self._llm = _without_parameter(self._llm, name, error)

    def note_answer(self) -> None:
        """Remember what worked."""
        endpoint = self._endpoint
        endpoint._schema_works = endpoint._schema_works or _SCHEMA in self._settings
        for name in self._newly_refused:
            if name not in endpoint._refused:  # the first of those under way
                logger.warning(*([_SCHEMA_REFUSED] if name == _SCHEMA else [_REFUSED, name]))
            endpoint._refused.add(name)
            endpoint.llm = self._llm

    def _refused_name(self, error: Exception) -> str:
        """The parameter that a server refuses; "" if there is none that can be left out."""
        sent = _text_sent(self._arguments)
        names = {*self._settings, *_parameters(self._llm)} - {*self._newly_refused}
        if _not_given(error) is None:
            names &= self._settings.keys()
        name = refused_parameter(error, names, sent)
        is_schema = _SCHEMA in self._settings and refuses_schema(error, proven=self._endpoint._schema_works)
        return name or (_SCHEMA if is_schema else "")

    def _raise_for_response(self, error: Exception) -> None:
        response = _unread_response(error)
        if response is None:
            return
        problem = attribute(response, "error")
        if not problem:
            raise NoReplyError("the provider sent a reply without any choice") from None
        raise ProviderError.of(problem, _text_sent(self._arguments), self._endpoint._secrets) from None


def longest_request(model: Any) -> float | None:
    """Seconds that a whole request to a model may take; None if its class has no time-out."""
    for name in ("timeout", "request_timeout"):
        value = getattr(model, name, None)
        if isinstance(value, (int, float)) and value > 0:
            return float(value) * TIME_OUTS
    return None


def begin_in(context: contextvars.Context, work: Callable[[], T]) -> Future[T]:
    """Do something in a thread of its own, for which nobody has to wait, the process at its end neither."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # who stops waiting does not stop it

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="llm request", daemon=True).start()
    return future


def within(seconds: float, work: Callable[[], T]) -> T:
    """Do something in a thread of its own, which is left to itself after some seconds.

    Raises:
        TimeoutError: It took longer.
    """
    return _within(contextvars.copy_context(), seconds, seconds, work)


def in_time(model: Any, work: Callable[[], T], requests: int = 1) -> T:
    """Have a model do something, for as long as some requests to its server may take, if it has one.

    Raises:
        TimeoutError: It took longer.
    """
    seconds = longest_request(model)
    return work() if seconds is None else within(seconds * requests, work)


async def awithin(seconds: float | None, work: Awaitable[T], longest: float | None = None) -> T:
    """Await something for some seconds at most; None means as long as it takes.

    Raises:
        TimeoutError: It took longer.
    """
    with anyio.move_on_after(seconds):
        return await work
    raise _too_long(longest or seconds or math.inf)


def _within(context: contextvars.Context, seconds: float, longest: float, work: Callable[[], T]) -> T:
    future = begin_in(context, work)
    if not wait([future], max(0.0, seconds)).done:
        raise _too_long(longest)
    return future.result()


def _stream_within(end: float, longest: float, stream: Iterator[Any]) -> Iterator[Any]:
    context = contextvars.copy_context()
    is_waiting = False
    try:
        while True:
            is_waiting = True
            response = _within(context, end - time.monotonic(), longest, partial(next, stream, _END))
            is_waiting = False
            if response is _END:
                return
            yield response
    finally:
        if not is_waiting:  # else the server has it
            context.run(_close, stream)


async def _astream_within(end: float, longest: float, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        while True:
            response = await awithin(end - time.monotonic(), _next(stream), longest)
            if response is _END:
                return
            yield response
    finally:
        if hasattr(stream, "aclose"):
            await stream.aclose()


async def _next(stream: AsyncIterator[Any]) -> Any:
    return await anext(stream, _END)


def _close(stream: Any) -> None:
    if hasattr(stream, "close"):
        stream.close()


def _too_long(seconds: float) -> TimeoutError:
    return TimeoutError(
        f"the reply was not complete after {seconds:g} seconds, {TIME_OUTS} times what the client's time-out is: "
        "see whether the server is overloaded, or give the LLM's class a longer time-out"
    )


def _is_stream(method: str) -> bool:
    return "stream_" in method


def _opened(stream: Any) -> Iterator[Any]:
    """A stream whose first response is there: the request is sent, and refused, when that is asked for."""
    stream = iter(stream)
    first = next(stream, _END)

    def responses() -> Iterator[Any]:
        try:
            if first is not _END:
                yield first
                yield from stream
        finally:
            _close(stream)

    return responses()


async def _aopened(stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    first = await anext(stream, _END)

    async def responses() -> AsyncIterator[Any]:
        try:
            if first is not _END:
                yield first
                async for response in stream:
                    yield response
        finally:
            if hasattr(stream, "aclose"):
                await stream.aclose()

    return responses()


def _text_sent(arguments: Sequence[Any]) -> str:
    """The last of the messages, or the prompt."""
    messages: str | Messages = arguments[0] if arguments else ""
    if isinstance(messages, str):
        return messages
    return messages[-1].content or "" if messages else ""


def _unread_response(error: BaseException) -> Any:
    """What had come when a class of LlamaIndex failed on it; None if it failed on something else.

    An error with status 200, and a reply without choices, are read as if they were replies; what came is then
    a local variable of the frame that failed.
    """
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        if str(frame.f_globals.get("__name__")).startswith("llama_index.llms."):
            response = frame.f_locals.get("response")
            is_empty = response is not None and not attribute(response, "choices")
            return response if is_empty and not hasattr(response, "__next__") else None
    return None


def _parameters(llm: LLM) -> set[str]:
    """What an LLM sends besides messages and the model."""
    kwargs = getattr(llm, "additional_kwargs", None) or {}
    names = {name for name in _PARAMETERS if getattr(llm, name, None) not in (None, False)}
    names |= {name for name, value in kwargs.items() if value is not None and not _is_left_out(value)}
    names |= {*(kwargs.get("extra_body") or {})}
    if "max_tokens" in names:
        names.add(_TWINS["max_tokens"])  # which OpenAI's class makes of it for some models
    return names - {name for name, value in kwargs.items() if _is_left_out(value)}


def _is_left_out(value: Any) -> bool:
    return type(value).__name__ in ("NotGiven", "Omit")


def _not_given(error: BaseException) -> Any:
    """What the client that raised an error takes for "not sent"; None if it has no such value."""
    package = sys.modules.get(type(error).__module__.partition(".")[0])
    return getattr(package, "NOT_GIVEN", None)


def _without_parameter(llm: LLM, name: str, error: BaseException) -> LLM:
    """A copy of an LLM that does not send a parameter; a limit of tokens goes by its other name."""
    kwargs = dict(getattr(llm, "additional_kwargs", None) or {})
    value = kwargs.get(name, getattr(llm, name, None))
    twin = _TWINS.get(name, "")
    if twin and not _is_left_out(kwargs.get(twin)):
        kwargs[twin] = kwargs.get(twin) or value or getattr(llm, "max_tokens", None)
    further = kwargs.get("extra_body") or {}
    if name in further:
        kwargs["extra_body"] = {key: item for key, item in further.items() if key != name}
    else:
        kwargs[name] = _not_given(error)
    if name == "logprobs":
        kwargs["top_logprobs"] = kwargs[name]
    update: dict[str, Any] = {"additional_kwargs": kwargs}
    if name in ("max_tokens", "max_completion_tokens"):
        update["max_tokens"] = None
    elif name in ("reasoning_effort", "logprobs"):
        update[name] = None
    return llm.model_copy(update=update)
