"""The models of an evaluation. Each text is embedded once and each prompt sent once, across runs too."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import (
    LLM,
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    CustomLLM,
    LLMMetadata,
)
from llama_index.core.utils import iter_batch
from pydantic import Field

from llama_pack_densex.embeddings import SynchronousEmbedding
from llama_pack_densex.llm.budget import Budget, Meter
from llama_pack_densex.llm.client import Client, background_loop
from llama_pack_densex.llm.endpoint import Endpoint, embed_texts, in_time
from llama_pack_densex.llm.errors import Failure, LLMError
from llama_pack_densex.llm.limits import Limits
from llama_pack_densex.llm.reference import without_retries
from llama_pack_densex.llm.requests import LLMRequest, Sender, Stop
from llama_pack_densex.llm.thoughts import without_thoughts
from llama_pack_densex.llm.usage import (
    PriceTable,
    Reply,
    RequestFigures,
    Usage,
    count_messages,
    count_tokens,
    price_of,
)
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.propositionizers.replies import REASONS

T = TypeVar("T")
R = TypeVar("R")
Step = Callable[[int, int], None]
"""A progress callback: called with the items done, and the items in all."""

_BATCH = 512  # texts embedded between two writes
# settings that a model's vectors depend on, besides its name
_SETTINGS = (
    "query_instruction",
    "text_instruction",
    "normalize",
    "max_length",
    "pooling",
    "dimensions",
    "api_base",
)
AT_ONCE = 8  # concurrent requests to an LLM, and threads that wait for them
_FLOAT = np.dtype(np.float32)
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"


def _no_step(done: int, total: int) -> None:
    pass


class AskingFailed(Exception):  # not an error: the item is counted as failed
    """An LLM gave no usable reply to a prompt, but may reply to others; the message says why."""


def at_once(
    work: Callable[[T], R], items: Sequence[T], step: Step = _no_step, threads: int = AT_ONCE
) -> list[R | AskingFailed]:
    """Call `work` with each of the items, several at a time.

    Returns:
        The results in the order of the items, or a failure where there is none. If an LLM stops, all are
        failures.
    """

    def attempt(item: T) -> R | AskingFailed:
        try:
            return work(item)
        except AskingFailed as failed:
            return failed

    results = []
    try:
        with ThreadPoolExecutor(threads) as pool:
            for result in pool.map(attempt, items):  # an error cancels work that has not begun
                results.append(result)
                step(len(results), len(items))
    except LLMError as error:
        return [AskingFailed(f"the LLM stopped: {error}")] * len(items)
    return results


class CachedEmbedding(SynchronousEmbedding):
    """Wraps an embedding model so that each text is embedded once.

    Vectors are stored in SQLite under hashes: no text of a document is written.

    Args:
        inner: The model.
        file: The file that keeps vectors for later processes, created if missing; None keeps them in memory.
        step: The progress callback.

    Raises:
        OSError: The file cannot be used.
    """

    seconds: float = Field(0.0, description="Seconds that the model has taken to embed.")
    _inner: BaseEmbedding
    _step: Step
    _database: sqlite3.Connection
    _requested: list[str]
    _salt: str
    _file: Path | None

    def __init__(
        self, inner: BaseEmbedding, file: Path | None = None, step: Step = _no_step
    ) -> None:
        super().__init__(model_name=inner.model_name, embed_batch_size=2048)
        self._inner = inner
        self._step = step
        self._requested = []
        settings = {name: getattr(inner, name, None) for name in _SETTINGS}
        stated = {name: str(value) for name, value in settings.items() if value is not None}
        self._salt = json.dumps([self.identity, stated])
        self._file = file
        with self._errors_explained():
            # batches are embedded in several threads, which take turns
            self._database = sqlite3.connect(file or ":memory:", check_same_thread=False)
            self._database.execute(_TABLE)

    @property
    def identity(self) -> str:
        """The identity of the wrapped model."""
        return embed_model_identity(self._inner)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def take_requested(self) -> list[str]:
        """Return the texts (not questions) that were requested since the last call."""
        requested = self._requested
        self._requested = []
        return requested

    def embed_queries(self, queries: Sequence[str]) -> list[list[float]]:
        """Embed questions, as many at a time as the model's `num_workers`."""
        return self._vectors("query", queries, self._embed_queries)

    def _embed_queries(self, queries: list[str]) -> list[list[float]]:
        def embed(query: str) -> list[float]:
            return in_time(self._inner, lambda: self._inner.get_query_embedding(query))

        with ThreadPoolExecutor(self._inner.num_workers or 1) as threads:
            return list(threads.map(embed, queries))

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.embed_queries([query])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._requested += texts
        return self._vectors("text", texts, partial(embed_texts, self._inner))

    def _vectors(
        self, kind: str, texts: Sequence[str], embed: Callable[[list[str]], list[list[float]]]
    ) -> list[list[float]]:
        keys = {text: self._key(kind, text) for text in texts}
        vectors: dict[bytes, bytes] = {}
        select = "SELECT key, vector FROM vectors WHERE key = ?"
        with self._errors_explained():
            for key in keys.values():
                vectors |= dict(self._database.execute(select, (key,)))
        # sorted by length, because a model pads a batch to its longest text
        missing = sorted((text for text, key in keys.items() if key not in vectors), key=len)
        for number, batch in enumerate(iter_batch(missing, _BATCH)):
            self._step(_BATCH * number, len(missing))
            started = time.perf_counter()
            embedded = embed(batch)
            self.seconds += time.perf_counter() - started
            rows = {}
            for text, vector in zip(batch, embedded, strict=True):
                rows[keys[text]] = np.asarray(vector, _FLOAT).tobytes()
            with self._errors_explained(), self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows.items()
                )
            vectors |= rows
        return [np.frombuffer(vectors[keys[text]], _FLOAT).tolist() for text in texts]

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OSError(
                f"{self._file}: embeddings cannot be cached here ({error}): see whether the disk is full or "
                "another process uses the file; or delete it, or use another folder"
            ) from error

    def _key(self, kind: str, text: str) -> bytes:
        return hashlib.sha256(
            f"{self._salt}\n{kind}\n{text}".encode("utf-8", "surrogatepass")
        ).digest()


class KeptLLM(CustomLLM):
    """Wraps an LLM so that each prompt is sent once, within rate limits and a budget, with retries.

    Thoughts of a reasoning model are removed from its replies.

    Query engines, evaluators and TruLens use it like any other LLM, from any thread. Once it is stopped, for
    example by the budget, it sends no further requests.

    Args:
        llm: The LLM.
        file: The file that caches replies for later processes; None keeps them in memory.
        max_cost: US dollars that it may cost before it stops; None means no limit.
        stand_in: A reply to every prompt that is not cached. Nothing is sent then, and `figures` is an
            estimate.
        limits: The limits of the provider. Default: 8 requests at a time.
        prices: Prices that extend or replace the list prices.

    Raises:
        ValueError: There is a `max_cost`, but the model's price is not known.

    Example:
        >>> from pathlib import Path
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex.evaluation import KeptLLM
        >>> llm = KeptLLM(OpenAI(model="gpt-4o-mini"), Path("replies.db"), max_cost=1.0)
        >>> llm.complete("When did the Akashi Bridge open?").text
        'The Akashi Bridge opened in 1998.[^1]'
    """

    _llm: LLM
    _stand_in: str | None
    _replies: dict[str, str]
    _locks: dict[str, threading.Lock]
    _sender: Sender
    _client: Client
    _stop: Stop

    def __init__(  # noqa: PLR0913 (public)
        self,
        llm: LLM,
        file: str | Path | None = None,
        max_cost: float | None = None,
        stand_in: str | None = None,
        limits: Limits | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        super().__init__()
        price = price_of(llm.metadata.model_name, prices or {}, llm, is_needed=max_cost is not None)
        self._llm = without_retries(llm)
        self._stand_in = stand_in
        self._replies = {}
        self._locks = {}
        self._client = Client(Endpoint(self._llm))
        self._stop = Stop(background_loop())
        self._sender = Sender.to(
            llm, limits or Limits(AT_ONCE), Meter(Budget(max_cost), price), file
        )

    @classmethod
    def of(cls, llm: LLM | None, file: Path, max_cost: float | None) -> KeptLLM | None:
        """Wrap an LLM, unless it is wrapped already or None."""
        if llm is None or isinstance(llm, KeptLLM):
            return llm
        return cls(llm, file, max_cost)

    @property
    def metadata(self) -> LLMMetadata:
        update = {"is_chat_model": True, "is_function_calling_model": False}
        return self._llm.metadata.model_copy(update=update)

    @property
    def stopped(self) -> LLMError | None:
        """The error that stopped it, such as an exhausted budget; None if it is not stopped."""
        return self._stop.error

    @property
    def figures(self) -> RequestFigures:
        """The figures of its requests so far.

        Example:
            >>> llm.figures.usage.requests
            1
        """
        return self._sender.meter.figures(self.metadata.model_name)

    def ask(self, prompt: Sequence[ChatMessage], part: str = "") -> str:
        """Return the reply to a prompt.

        Args:
            prompt: The messages.
            part: The text from whose length the budget estimates that of the reply; "" if replies are short.

        Raises:
            AskingFailed: There is no usable reply to this prompt.
            LLMError: The LLM stops: the budget is used up, or the provider refuses the key or the settings,
                or does not answer.
        """
        text = "\n\n".join(message.content or "" for message in prompt)
        request = LLMRequest(text, part, prompt)
        answer = self._send if self._stand_in is None else self._expected
        # one lock per prompt, so that concurrent calls send it once
        with self._locks.setdefault(text, threading.Lock()):
            if text not in self._replies:
                self._replies[text] = answer(request)
            return self._replies[text]

    def _send(self, request: LLMRequest) -> str:
        asking = self._sender.ask(request, self._client.send, self._stop)
        outcome = asyncio.run_coroutine_threadsafe(asking, background_loop()).result()
        if isinstance(outcome, Failure):
            raise AskingFailed(outcome.summary)
        reply = without_thoughts(outcome.text)
        if outcome.finish in ("refused", "filtered") or not reply:
            raise AskingFailed(REASONS.get(outcome.finish, REASONS["empty"]))
        return reply

    def _expected(self, request: LLMRequest) -> str:
        """Return the cached reply or the stand-in, counted as if the request had been sent."""
        cache = self._sender.cache
        cached = cache and cache.get(self._sender.key(request))
        if cached:
            self._sender.meter.count("cache_hits")
        if isinstance(cached, Reply):
            return without_thoughts(cached.text)
        stand_in = self._stand_in or ""
        if not cached:
            usage = Usage(1, count_messages(request.messages), count_tokens(stand_in))
            self._sender.meter.settle(None, usage)
        return stand_in

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage(self.ask(messages), role="assistant"))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        response = self.chat(messages)
        yield response.model_copy(update={"delta": response.message.content})

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.ask([ChatMessage(prompt)]))

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        response = self.complete(prompt)
        yield response.model_copy(update={"delta": response.text})
