"""An LLM behind its server: requests leave out what the server refuses, and never wait without end."""

from __future__ import annotations

import contextvars
import math
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate

from llama_pack_densex.llm.errors import (
    PROGRAMMING_ERRORS,
    NoReplyError,
    ProviderError,
    refused_parameter,
    refuses_schema,
)
from llama_pack_densex.llm.reference import secrets_of
from llama_pack_densex.llm.usage import Arguments, Messages, attribute
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

_REFUSED_LOCK = threading.Lock()  # guards the parameters found to be refused

T = TypeVar("T")

TIME_OUTS = 5
"""Time allowed for a whole request, in client time-outs; a client times only the gap between two bytes."""
_WITHOUT_TIME_OUT = 3600.0  # seconds allowed for a request if the LLM's class has no time-out
_SCHEMA = "response_format"
_LABELS = {_SCHEMA: "a JSON schema for replies (response_format)"}
# fields of LlamaIndex's classes that they send as parameters
_PARAMETERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "seed",
)
_TWINS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
# parameters that a class makes from a field, which must be unset to leave the parameter out
_UNSET = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "reasoning_effort",
    "logprobs": "logprobs",
}
_END = object()


class Endpoint:
    """An LLM to which requests are sent without the parameters that its server was found to refuse.

    A request that is refused because of one of its parameters is sent again without it; once that is
    answered, all later requests leave the parameter out. If an error arrives in place of a reply, or a
    response without a reply, this is raised: LlamaIndex's classes fail on both with errors that do not say
    so.

    Args:
        llm: The LLM.

    Attributes:
        llm: The LLM with its current settings.
        seconds: How long a whole request may take.
    """

    def __init__(self, llm: LLM) -> None:
        self.seconds = longest_request(llm) or _WITHOUT_TIME_OUT
        self.llm = llm
        self._secrets = secrets_of(llm)
        self._refused: set[str] = set()
        self._schema_works = False

    def send(self, method: str, request: Messages | str, **settings: Any) -> Any:
        """Send messages or a prompt by a method of the LLM, such as "chat".

        Returns:
            The response, without a time limit; for a stream, its first response and the iterator of the rest.
        """
        attempt = _Attempt(self, request, settings)
        while True:
            try:
                response = attempt.begin(method)
                if "stream_" in method:
                    responses = iter(response)
                    response = _Stream(next(responses, _END), responses)
            except Exception as error:
                attempt.mend(error)
            else:
                attempt.note_answer()
                return response

    async def asend(self, method: str, request: Messages | str, **settings: Any) -> Any:
        """Do what `send` does, asynchronously, by "achat" and the like."""
        attempt = _Attempt(self, request, settings)
        while True:
            try:
                response = await attempt.begin(method)
                if "stream_" in method:
                    response = _Stream(await anext(response, _END), response)
            except Exception as error:
                attempt.mend(error)
            else:
                attempt.note_answer()
                return response

    def predict(
        self, prompt: BasePromptTemplate, values: Arguments, streaming: bool = False
    ) -> Any:
        """Do what core's `predict` and `stream` do, but keep the reason why the LLM stopped, which they drop.

        Returns:
            The response; with `streaming` a generator of responses, the first of which has arrived.

        Raises:
            TimeoutError: The request took longer than `seconds`; for a stream, while it is read.
        """
        method, request, settings = self._request(prompt, values, streaming)
        patience = _Patience(self.seconds)
        response = patience.wait_for(partial(self.send, method, request, **settings))
        if streaming:
            return _rest_of(response, patience)
        return response

    async def apredict(
        self, prompt: BasePromptTemplate, values: Arguments, streaming: bool = False
    ) -> Any:
        """Do what `predict` does, asynchronously."""
        method, request, settings = self._request(prompt, values, streaming)
        patience = _Patience(self.seconds)
        response = await patience.await_(self.asend(f"a{method}", request, **settings))
        if streaming:
            return _arest_of(response, patience)
        return response

    def _request(
        self, prompt: BasePromptTemplate, values: Arguments, streaming: bool
    ) -> tuple[str, Messages | str, Arguments]:
        """Return the method that sends a prompt, the messages or text to send, and the settings."""
        prefix = "stream_" if streaming else ""
        if self.llm.metadata.is_chat_model:
            return f"{prefix}chat", self.llm._get_messages(prompt, **values), {}
        return f"{prefix}complete", self.llm._get_prompt(prompt, **values), {"formatted": True}


class _Attempt:
    """One request, which is sent again until the server refuses none of its parameters."""

    def __init__(self, endpoint: Endpoint, request: Messages | str, settings: Arguments) -> None:
        self._endpoint = endpoint
        self._request = request
        self._settings = {
            name: value for name, value in settings.items() if name not in endpoint._refused
        }
        self._llm = endpoint.llm
        self._newly_refused: list[str] = []

    def begin(self, method: str) -> Any:
        """Send the request."""
        return getattr(self._llm, method)(self._request, **self._settings)

    def mend(self, error: Exception) -> None:
        """Leave out the parameter that the server refused, so that the request can be sent again.

        Raises:
            Exception: No parameter was refused: the error, or what the provider sent in place of a reply.
        """
        if isinstance(error, PROGRAMMING_ERRORS):
            response = _unread_response(error)
            if response is None:
                raise error
            problem = attribute(response, "error")
            if not problem:
                raise NoReplyError("the provider sent a reply without any choice") from None
            sent = _last_text(self._request)
            raise ProviderError.of(problem, sent, self._endpoint._secrets) from None
        name = self._refused_name(error)
        if not name:
            raise error
        self._newly_refused.append(name)
        if name in self._settings:
            del self._settings[name]
        else:
            self._llm = _without_parameter(self._llm, name, _not_given(error))

    def note_answer(self) -> None:
        """Remember which parameters the answered request left out, and whether a schema worked."""
        endpoint = self._endpoint
        endpoint._schema_works = endpoint._schema_works or _SCHEMA in self._settings
        for name in self._newly_refused:
            with _REFUSED_LOCK:
                is_first = name not in endpoint._refused  # among concurrent requests
                endpoint._refused.add(name)
            if is_first:
                logger.warning(
                    "The server does not accept %s, which is left out from now on.",
                    _LABELS.get(name, name),
                )
            endpoint.llm = self._llm

    def _refused_name(self, error: Exception) -> str:
        """Return the parameter that the server refused; "" if none that can be left out."""
        names = {*self._settings}
        if _not_given(error) is not None:
            names |= _parameters(self._llm)
        name = refused_parameter(
            error, names.difference(self._newly_refused), _last_text(self._request)
        )
        if name or _SCHEMA not in self._settings:
            return name
        if refuses_schema(error, proven=self._endpoint._schema_works):
            return _SCHEMA
        return ""


@dataclass(frozen=True)
class _Stream:
    """A stream whose first response has arrived: refusals are raised while waiting for that."""

    first: Any
    rest: Any


class _Patience:
    """A limit on the total time spent waiting for a server; the time that a reader takes does not count."""

    def __init__(self, seconds: float) -> None:
        self.context = contextvars.copy_context()
        self._seconds = seconds
        self._seconds_left = seconds

    def wait_for(self, work: Callable[[], T]) -> T:
        """Run work in a thread of its own, which is abandoned if it takes too long."""
        started = time.monotonic()
        future = begin_in(self.context, work)
        is_done = bool(wait([future], max(0.0, self._seconds_left)).done)
        self._seconds_left -= time.monotonic() - started
        if not is_done:
            raise self._error()
        return future.result()

    async def await_(self, work: Awaitable[T]) -> T:
        """Await work, and cancel it if it takes too long."""
        started = time.monotonic()
        with anyio.move_on_after(self._seconds_left):
            result = await work
            self._seconds_left -= time.monotonic() - started
            return result
        raise self._error()

    def _error(self) -> TimeoutError:
        return TimeoutError(
            f"the reply was not complete after {self._seconds:g} seconds, {TIME_OUTS} times the client's "
            "time-out: see whether the server is overloaded, or give the LLM's class a longer time-out"
        )


def longest_request(model: Any) -> float | None:
    """Return how many seconds a whole request to a model may take; None if its class has no time-out."""
    for name in ("timeout", "request_timeout"):
        value = getattr(model, name, None)
        if isinstance(value, (int, float)) and value > 0:
            return float(value) * TIME_OUTS
    return None


def begin_in(context: contextvars.Context, work: Callable[[], T]) -> Future[T]:
    """Run work in a daemon thread, for which nobody has to wait, not even the process when it ends."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # whoever stops waiting does not cancel it

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="llm request", daemon=True).start()
    return future


def in_time(model: Any, work: Callable[[], T], requests: int = 1) -> T:
    """Run work that sends a number of requests to a model, limited to the time that these may take.

    Raises:
        TimeoutError: It took longer.
    """
    seconds = longest_request(model)
    if seconds is None:
        return work()
    return _Patience(seconds * requests).wait_for(work)


def embed_texts(model: BaseEmbedding, texts: Sequence[str]) -> list[list[float]]:
    """Embed texts, limited to the time that the necessary requests may take.

    Raises:
        TimeoutError: It took longer.
    """
    requests = math.ceil(len(texts) / model.embed_batch_size)
    return in_time(model, lambda: model.get_text_embedding_batch([*texts]), requests)


async def awithin(seconds: float | None, work: Awaitable[T]) -> T:
    """Await work for at most some seconds; None means no limit.

    Raises:
        TimeoutError: It took longer.
    """
    return await _Patience(seconds or math.inf).await_(work)


def _rest_of(stream: _Stream, patience: _Patience) -> Iterator[Any]:
    response = stream.first
    try:
        while response is not _END:
            yield response
            response = patience.wait_for(partial(next, stream.rest, _END))
    except GeneratorExit:  # the reader has stopped
        if hasattr(stream.rest, "close"):
            patience.context.run(stream.rest.close)
        raise


async def _arest_of(stream: _Stream, patience: _Patience) -> AsyncIterator[Any]:
    response = stream.first
    try:
        while response is not _END:
            yield response
            response = await patience.await_(anext(stream.rest, _END))
    finally:
        if hasattr(stream.rest, "aclose"):
            await stream.rest.aclose()


def _last_text(request: Messages | str) -> str:
    """Return the text of the last message, or the prompt."""
    if isinstance(request, str):
        return request
    if not request:
        return ""
    return request[-1].content or ""


def _unread_response(error: BaseException) -> Any:
    """Return the response on which a class of LlamaIndex failed; None if it failed on something else.

    These classes read an error with status 200, or a reply without choices, as if it were a normal reply. The
    response is then a local variable of the frame that failed.
    """
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        if str(frame.f_globals.get("__name__")).startswith("llama_index.llms."):
            response = frame.f_locals.get("response")
            if attribute(response, "choices") or hasattr(response, "__next__"):
                return None
            return response
    return None


def _parameters(llm: LLM) -> set[str]:
    """Return the names of the parameters that an LLM sends besides the messages and the model."""
    kwargs = getattr(llm, "additional_kwargs", None) or {}
    names = {name for name in _PARAMETERS if getattr(llm, name, None) not in (None, False)}
    names.update(kwargs, kwargs.get("extra_body") or {})
    if "max_tokens" in names:
        names.add(_TWINS["max_tokens"])  # OpenAI's class renames it for some models
    return {name for name in names if not _is_left_out(kwargs.get(name))}


def _is_left_out(value: Any) -> bool:
    return type(value).__name__ in ("NotGiven", "Omit")


def _not_given(error: BaseException) -> Any:
    """Return the value by which the client that raised an error marks "not sent"; None if it has none."""
    package = sys.modules.get(type(error).__module__.partition(".")[0])
    return getattr(package, "NOT_GIVEN", None)


def _without_parameter(llm: LLM, name: str, not_given: Any) -> LLM:
    """Return a copy of an LLM that does not send a parameter; a token limit is sent under its other name."""
    kwargs = dict(getattr(llm, "additional_kwargs", None) or {})
    twin = _TWINS.get(name, "")
    if twin and not _is_left_out(kwargs.get(twin)):
        kwargs[twin] = kwargs.get(twin) or kwargs.get(name) or getattr(llm, "max_tokens", None)
    body = dict(kwargs.get("extra_body") or {})
    if name in body:
        del body[name]
        kwargs["extra_body"] = body
    else:
        kwargs[name] = not_given
    if name == "logprobs":
        kwargs["top_logprobs"] = not_given
    update: Arguments = {"additional_kwargs": kwargs}
    if name in _UNSET:
        update[_UNSET[name]] = None
    return llm.model_copy(update=update)
