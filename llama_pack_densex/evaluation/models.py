"""The models of an evaluation: each text is embedded once, each prompt of an LLM asked once, in later runs too."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatResponseGen, CompletionResponseGen
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import LLM, ChatMessage, ChatResponse, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.utils import iter_batch

from llama_pack_densex.llm.budget import Budget, Meter
from llama_pack_densex.llm.client import Client, background_loop
from llama_pack_densex.llm.errors import Failure, LLMError
from llama_pack_densex.llm.limits import Limits
from llama_pack_densex.llm.reference import without_retries
from llama_pack_densex.llm.requests import LLMRequest, Sender, Stop
from llama_pack_densex.llm.usage import Reply, RequestFigures, Usage, count_messages, count_tokens, price_of
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.propositionizers.prompts import REASONS

T = TypeVar("T")
R = TypeVar("R")
Step = Callable[[int, int], None]
"""Called with how much is done, and how much there is to do."""

_BATCH = 512  # texts between two writes, and keys in one query: SQLite allows 999 in old versions
_SETTINGS = ("query_instruction", "text_instruction", "normalize", "max_length", "pooling", "dimensions", "api_base")
_AT_ONCE = 8  # requests to an LLM, and threads that wait for them
_FLOAT = np.dtype(np.float32)


def _untold(done: int, total: int) -> None:
    """Nobody is told."""


class AskingFailed(Exception):  # not an error: the item is counted as failed
    """An LLM gave no reply to one prompt, and may to others; the message says why."""


def at_once(work: Callable[[T], R], items: Sequence[T], step: Step = _untold) -> list[R | AskingFailed]:
    """Do something with each of the items, some at a time.

    Returns:
        In their order the results, or why there is none: where an LLM stops, to any.
    """
    done: list[R | AskingFailed] = []

    def attempt(item: T) -> R | AskingFailed:
        try:
            return work(item)
        except AskingFailed as failed:
            return failed

    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for result in threads.map(attempt, items):  # which gives up what has not begun where this is left
                done.append(result)
                step(len(done), len(items))
    except LLMError as error:
        return [AskingFailed(f"the LLM stopped: {error}") for _ in items]
    return done


class CachedEmbedding(BaseEmbedding):
    """Another embedding model, each text of which is embedded once.

    Vectors are kept in SQLite by keys that are hashes: no text of a document is written.

    Args:
        inner: The model.
        file: Where vectors are kept for later processes, made if it is not there; None keeps them in memory.
        step: Called while many texts are embedded.

    Raises:
        OSError: The file cannot be used.
    """

    seconds: float = Field(0.0, description="How long the model has worked.")
    _inner: BaseEmbedding = PrivateAttr()
    _step: Step = PrivateAttr()
    _database: sqlite3.Connection = PrivateAttr()
    _requested: list[str] = PrivateAttr()
    _salt: str = PrivateAttr()

    def __init__(self, inner: BaseEmbedding, file: Path | None = None, step: Step = _untold) -> None:
        super().__init__(model_name=inner.model_name, embed_batch_size=2048)
        self._inner, self._step, self._requested = inner, step, []
        settings = {name: str(getattr(inner, name)) for name in _SETTINGS if getattr(inner, name, None) is not None}
        self._salt = json.dumps([embed_model_identity(inner), settings])
        try:
            # threads of a model's batches take turns
            self._database = sqlite3.connect(file or ":memory:", check_same_thread=False)
            self._database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        except sqlite3.Error as error:
            raise OSError(f"{file}: no embeddings can be kept ({error}): delete it, or use another folder") from error

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def take_requested(self) -> list[str]:
        """The texts (not questions) that were asked for since the last call."""
        taken, self._requested = self._requested, []
        return taken

    def embed_queries(self, queries: Sequence[str]) -> None:
        """Embed questions beforehand, `num_workers` of the model at a time."""
        with ThreadPoolExecutor(self._inner.num_workers or 1) as threads:
            self._vectors("query", queries, lambda some: list(threads.map(self._inner.get_query_embedding, some)))

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vectors("query", [query], lambda some: [self._inner.get_query_embedding(text) for text in some])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._requested += texts
        return self._vectors("text", texts, self._inner.get_text_embedding_batch)

    def _vectors(
        self, kind: str, texts: Sequence[str], embed: Callable[[list[str]], list[list[float]]]
    ) -> list[list[float]]:
        salted = (f"{self._salt}\n{kind}\n{text}".encode("utf-8", "surrogatepass") for text in texts)
        keys = [hashlib.sha256(each).digest() for each in salted]
        known: dict[bytes, bytes] = {}
        for some in iter_batch(dict.fromkeys(keys), _BATCH):
            marks = ",".join("?" * len(some))
            known |= dict(self._database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", some))
        # texts of like length together: a model pads a batch to its longest text
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        missing = sorted(wanted, key=lambda key: len(wanted[key]))
        for done, some in enumerate(iter_batch(missing, _BATCH)):
            self._step(_BATCH * done, len(missing))
            started = time.perf_counter()
            vectors = embed([wanted[key] for key in some])
            self.seconds += time.perf_counter() - started
            made = {key: np.asarray(vector, _FLOAT).tobytes() for key, vector in zip(some, vectors, strict=True)}
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", made.items())
            known |= made
            self._step(_BATCH * done + len(some), len(missing))
        return [np.frombuffer(known[key], _FLOAT).tolist() for key in keys]


class KeptLLM(CustomLLM):
    """An LLM that is asked each thing once, as propositions are asked for: in its limits, tried again, within a budget.

    For query engines, evaluators and TruLens it is an LLM like any other, which may be asked in any thread. What
    stopped it once, such as the budget, stops all that comes after.

    Args:
        llm: The LLM.
        file: Where replies are kept for later processes; None keeps them in memory.
        max_cost: US dollars that it may use before it stops; None means no limit.
        stand_in: A reply for all that is not kept: nothing is sent then, and `figures` say what would be.

    Raises:
        ValueError: There is a `max_cost`, and the model's price is not known.
    """

    _llm: LLM = PrivateAttr()
    _stand_in: str | None = PrivateAttr()
    _known: dict[str, str] = PrivateAttr(default_factory=dict)
    _sender: Sender = PrivateAttr()
    _client: Client = PrivateAttr()
    _stop: Stop = PrivateAttr()
    _turns: dict[str, threading.Lock] = PrivateAttr(default_factory=dict)

    def __init__(
        self, llm: LLM, file: Path | None = None, max_cost: float | None = None, stand_in: str | None = None
    ) -> None:
        super().__init__()
        price = price_of(llm.metadata.model_name, {}, llm, is_needed=max_cost is not None)
        self._llm, self._stand_in = without_retries(llm), stand_in
        self._client, self._stop = Client(self._llm, _AT_ONCE), Stop(background_loop())
        self._sender = Sender.to(llm, Limits(_AT_ONCE), Meter(Budget(max_cost), price), file)

    @property
    def metadata(self) -> LLMMetadata:
        return self._llm.metadata.model_copy(update={"is_chat_model": True, "is_function_calling_model": False})

    @property
    def stopped(self) -> LLMError | None:
        """Why it asks no more, such as its budget."""
        return self._stop.error

    @property
    def figures(self) -> RequestFigures:
        """What its requests came to so far."""
        return self._sender.meter.figures(self.metadata.model_name)

    def ask(self, prompt: Sequence[ChatMessage]) -> str:
        """Ask for the reply to some messages.

        Raises:
            AskingFailed: There is no reply to this prompt.
            LLMError: There will be none to others either: the budget is used up, or the provider refuses the key or the
                settings, or does not answer.
        """
        text = "\n\n".join(message.content or "" for message in prompt)
        with self._turns.setdefault(text, threading.Lock()):  # the same is not asked twice at a time
            if text not in self._known and self._stand_in is not None:
                self._known[text] = self._expected(text, prompt, self._stand_in)
            elif text not in self._known:
                # as "part", of which a reply's length is expected to follow, nothing: replies are short
                asking = self._sender.ask(LLMRequest(text, "", prompt), self._client.send, self._stop)
                outcome = asyncio.run_coroutine_threadsafe(asking, background_loop()).result()
                if isinstance(outcome, Failure):
                    raise AskingFailed(outcome.summary)
                if outcome.finish in ("refused", "filtered") or not outcome.text.strip():
                    raise AskingFailed(REASONS.get(outcome.finish, REASONS["empty"]))
                self._known[text] = outcome.text.strip()
            return self._known[text]

    def _expected(self, text: str, prompt: Sequence[ChatMessage], stand_in: str) -> str:
        """The reply that is kept, or what stands in for it, counted as if it had been asked for."""
        cache, meter = self._sender.cache, self._sender.meter
        kept = cache and cache.get(self._sender.key(LLMRequest(text, "", prompt)))
        if kept:
            meter.count("cache_hits")
        else:
            meter.settle(None, Usage(1, count_messages(prompt), count_tokens(stand_in)))
        return kept.text.strip() if isinstance(kept, Reply) else stand_in

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage(self.ask(messages), role="assistant"))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        response = self.chat(messages)
        yield response.model_copy(update={"delta": response.message.content})

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.ask([ChatMessage(prompt)]))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        response = self.complete(prompt)
        yield response.model_copy(update={"delta": response.text})
