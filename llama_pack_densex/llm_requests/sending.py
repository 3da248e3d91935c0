"""One request: looked up, paced, sent, tried again, counted and kept."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from llama_pack_densex.llm_requests.clients import Messages, Response, Transport
from llama_pack_densex.llm_requests.counting import count_messages, count_tokens, usage_of
from llama_pack_densex.llm_requests.failures import Failure, PropositionizerError, classify
from llama_pack_densex.llm_requests.finish_reasons import finish_reason
from llama_pack_densex.llm_requests.metering import Meter, Reserved
from llama_pack_densex.llm_requests.pacing import Outcome, Pacer
from llama_pack_densex.llm_requests.reply import NOTHING, Reply, Usage
from llama_pack_densex.llm_requests.reply_cache import ReplyCache, reply_key
from llama_pack_densex.llm_requests.trying import Tries, is_refusal, limit_per_minute, retry_after

logger = logging.getLogger(__name__)

_GIVEN_UP_IN_A_ROW = 8  # requests; where none succeeds in between, the provider is down
_KEPT_FAILURES = ("too_long", "filtered")  # those that would come back as they are
_A_WHILE = 0.05  # seconds of waiting in which another process may have got the reply


@dataclass(frozen=True)
class Question:
    """What is sent.

    Args:
        passage: The text that it is about; what is kept can be found again by it.
        part: The part of it that is asked for.
        messages: What the model gets.
        attempt: How many-eth time the same is asked.
        turn: The passage's turn: what is asked again about it goes before passages that came later.
        expected_output: Tokens expected back for a token of `part`.
    """

    passage: str
    part: str
    messages: Messages
    attempt: int = 1
    turn: int | None = None
    expected_output: float = 1.6


class Sender:
    """Sends requests to one model, for any number of calls in any threads.

    Args:
        settings: What the model's output depends on, as JSON values; part of the key that replies are kept by.
        pacer: Keeps to the server's limits.
        meter: Counts what is used, and keeps to the budget.
        cache: Where replies are kept; None for nowhere.
        max_retries: Further tries after a time-out, a lost connection or a server's error.
        retry_wait: Scale of the random, exponentially growing wait between tries, in seconds.
        counts_ahead: Whether the tokens of a request are counted before it is sent, since a limit or budget needs it.
        secrets: Texts that must not appear in messages.
    """

    def __init__(
        self,
        settings: Any,
        pacer: Pacer,
        meter: Meter,
        cache: ReplyCache | None,
        *,
        max_retries: int,
        retry_wait: float,
        counts_ahead: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        self._settings = json.dumps(settings, sort_keys=True, ensure_ascii=False)
        self._pacer, self._meter, self._cache = pacer, meter, cache
        self._max_retries, self._counts_ahead, self._secrets = max_retries, counts_ahead, tuple(secrets)
        self._backoff = wait_random_exponential(multiplier=retry_wait, max=60)
        self._given_up = 0
        self._lock = threading.Lock()

    def next_turn(self) -> int:
        """The turn of another passage."""
        return self._pacer.next_turn()

    def key(self, question: Question, kind: str = "") -> str:
        """What a question's reply is kept by: the passage, all that is sent, and the model.

        Args:
            question: The question.
            kind: Tells replies apart that are to the same question and were come by in different ways.
        """
        said = [[message.role.value, message.content] for message in question.messages]
        payload = [self._settings, kind, question.attempt, said]
        return reply_key(question.passage, json.dumps(payload, ensure_ascii=False))

    async def ask(self, question: Question, transport: Transport, stopped: Stop) -> Reply | Failure:
        """Get a reply: the one that is kept, or a new one, which is kept from now on.

        Raises:
            PropositionizerError: The error would meet every other passage too, or the budget is used up.
        """
        if self._cache is None:
            return await self.ask_anew(question, transport, stopped)
        key = self.key(question)
        return await self.look_up(key, transport) or await self.ask_anew(question, transport, stopped, key)

    async def look_up(self, key: str, transport: Transport) -> Reply | Failure | None:
        """The reply that is kept under a key; None where there is none."""
        kept = None if self._cache is None else await transport.run(self._cache.get, key)
        if kept is not None:
            self._meter.count_kept()
        return kept

    async def has(self, key: str, transport: Transport) -> bool:
        """Whether there is a reply under a key."""
        return self._cache is not None and bool(await transport.run(self._cache.known, [key]))

    async def keep(self, key: str, outcome: Reply | Failure, transport: Transport) -> None:
        """Keep a reply, where there is a cache; also when the caller is cancelled meanwhile, since it is paid for."""
        if self._cache is not None:
            await asyncio.shield(transport.run(self._cache.put, key, outcome))

    async def ask_anew(
        self, question: Question, transport: Transport, stopped: Stop, key: str | None = None
    ) -> Reply | Failure:
        """Get a new reply.

        Args:
            question: What to ask.
            transport: How it leaves.
            stopped: Whether it may.
            key: What the reply is to be kept by; None keeps it nowhere.

        Raises:
            PropositionizerError: As `ask`.
        """
        if question.turn is None:
            question = replace(question, turn=self.next_turn())
        tries = Tries(self._max_retries)
        retrying = AsyncRetrying(
            sleep=stopped.pause,
            stop=tries.is_over,
            wait=self._wait,
            retry=retry_if_exception(_is_transient),
            reraise=True,
        )
        outcome: Reply | Failure
        is_new = True
        try:
            is_new, outcome = await retrying(self._try, question, transport, tries, stopped, key)
        except PropositionizerError as error:
            stopped.by(error)
            raise
        except Exception as error:
            outcome = classify(error, self._secrets)
        # Raised outside of the handler: the original error may hold keys and the passage, and would come along.
        if message := self._fatal_message(outcome):
            stopped.by(PropositionizerError(message))
            raise PropositionizerError(message)
        if key is not None and is_new and (isinstance(outcome, Reply) or outcome.kind in _KEPT_FAILURES):
            await self.keep(key, outcome, transport)
        return outcome

    async def _try(
        self, question: Question, transport: Transport, tries: Tries, stopped: Stop, key: str | None
    ) -> tuple[bool, Reply | Failure]:
        """Send a question once; the first value is whether what comes back is new."""
        expected = self._expected(question)
        began = time.monotonic()
        with stopped.waiting():
            await self._pacer.enter(expected.total_tokens, question.turn)
        outcome: Outcome = "failed"
        used: Usage | None = None
        limit: float | None = None
        reserved: Reserved | None = None
        try:
            stopped.check()
            if key is not None and time.monotonic() - began > _A_WHILE:
                kept = await self._look_up_again(key, transport)
                if kept is not None:
                    outcome, used = "ok", NOTHING
                    return False, kept
            while self._meter.has_budget and (reserved := self._meter.reserve(expected)) is None:
                await stopped.pause(0.1)  # others are under way, and may turn out cheaper than expected
            response = await transport.send(question.messages)
            used = usage_of(response, question.messages)
            outcome = "ok"
            return True, Reply(_text_of(response, question), finish_reason(response), used)
        except Exception as error:
            if not isinstance(error, PropositionizerError):
                tries.count(refused := is_refusal(error))
                outcome, limit = ("refused" if refused else "failed"), limit_per_minute(error)
                self._meter.count_failure(refused)
            raise
        finally:
            self._meter.settle(reserved, used)
            tokens = None if used is None else used.total_tokens
            self._pacer.leave(outcome, tokens, expected.total_tokens, limit)

    async def _look_up_again(self, key: str, transport: Transport) -> Reply | Failure | None:
        try:
            return await self.look_up(key, transport)
        except OSError:  # no matter of the provider's, so not for another try: keeping the reply will say it
            return None

    def _expected(self, question: Question) -> Usage:
        if not self._counts_ahead:
            return Usage(1)
        output = int(count_tokens(question.part) * question.expected_output) + 1
        return Usage(1, count_messages(question.messages), output)

    def _wait(self, state: RetryCallState) -> float:
        """How long to wait for the next try: what the server says, a little more for some, else a random back-off."""
        error = state.outcome.exception() if state.outcome is not None else None
        told = None if error is None else retry_after(error)
        if told is None:
            return self._backoff(state)
        return told * (1 + 0.1 * random.random())

    def _fatal_message(self, outcome: Reply | Failure) -> str:
        if isinstance(outcome, Failure) and outcome.kind == "fatal":
            return outcome.message
        if isinstance(outcome, Reply) or outcome.kind != "transient":
            self._given_up = 0
            return ""
        with self._lock:
            self._given_up += 1
            if self._given_up < _GIVEN_UP_IN_A_ROW:
                return ""
        return (
            f"The provider did not answer {self._given_up} requests in a row, each tried again "
            f"{self._max_retries} times ({outcome.summary}): see whether it is up, and run again. With a reply cache, "
            "what it answered before is not asked again."
        )


class Stop:
    """Why a call cannot go on; requests that are under way are left to their end, and no other is sent.

    Requests that wait (for their turn, for a minute's allowance, for the next try) wait no longer: a server may have
    told them to come back in a quarter of an hour.
    """

    def __init__(self) -> None:
        self.error: PropositionizerError | None = None
        self._waiting: set[asyncio.Task[Any]] = set()

    def by(self, error: PropositionizerError) -> None:
        """Stop. May be called from any thread."""
        self.error = self.error or error
        for task in tuple(self._waiting):
            with suppress(RuntimeError):  # its loop is closed
                task.get_loop().call_soon_threadsafe(self._wake, task)

    def check(self) -> None:
        """Raise the error, where there is one."""
        if self.error is not None:
            raise self.error

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait that ends with the error as soon as there is one."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            self.check()
            yield
        except asyncio.CancelledError:
            if self.error is not None:
                raise self.error from None
            raise
        finally:
            self._waiting.discard(task)

    async def pause(self, seconds: float) -> None:
        """Sleep, unless there is an error."""
        with self.waiting():
            await asyncio.sleep(seconds)

    def _wake(self, task: asyncio.Task[Any]) -> None:
        if task in self._waiting:  # it may have gone on meanwhile, and its request must not be cancelled
            self._waiting.discard(task)
            task.cancel()


def _is_transient(error: BaseException) -> bool:
    is_ours = isinstance(error, PropositionizerError) or not isinstance(error, Exception)
    return not is_ours and classify(error).kind == "transient"


def _text_of(response: Response, question: Question) -> str:
    message = getattr(response, "message", None)
    if message is not None:
        return message.content or ""
    text: str = getattr(response, "text", "")
    return text.rpartition(f"Content: {question.part}")[2]  # some models send the prompt back before the answer
