"""One request to an LLM: cached, held back for the limits, within the budget, sent, retried and counted."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from llama_index.core.llms import LLM

from llama_pack_densex.llm.budget import Budget, Meter
from llama_pack_densex.llm.cache import KEPT_FAILURES, Outcome, ReplyCache, reply_key
from llama_pack_densex.llm.client import Receive
from llama_pack_densex.llm.errors import (
    SETTING_ADVICE,
    Failure,
    LLMError,
    classify,
    unreachable_message,
    without_quotes,
)
from llama_pack_densex.llm.limits import Limits, Ticket
from llama_pack_densex.llm.reference import output_settings, secrets_of
from llama_pack_densex.llm.usage import Messages, Reply, Response, Usage, expected_usage

# failed requests in a row; if none succeeds in between, the requests are not to blame
_IN_A_ROW = 8
# a refusal says nothing against a request, and so counts as a tenth of a failure
_REFUSALS_PER_TRY = 10
_LONGEST_BACKOFF = 60.0  # seconds
_LOOK_AGAIN = 0.2  # seconds between two looks for a reply that somebody else is getting
_RENEWAL = 1.0  # seconds after which a claim is renewed
_BUDGET_WAIT = 0.1  # seconds after which others may have turned out cheaper than expected


@dataclass(frozen=True)
class LLMRequest:
    """What is sent.

    Args:
        text: The text it is about; what is cached can be found by it.
        part: The part of it that is asked about.
        messages: What the model gets.
        attempt: The number of times the same has been asked, this time included.
        turn: A follow-up request about a text keeps the text's turn, ahead of texts that came later.
        owner: Who asks; if several ask the same at the same time, the others wait for the reply.
    """

    text: str
    part: str
    messages: Messages
    attempt: int = 1
    turn: int | None = None
    owner: str = field(default_factory=lambda: uuid4().hex)


Transport = Callable[[Messages, Receive], Awaitable[None]]
"""Sends one request, once, and has the response handled as soon as it is there."""


@dataclass
class Sender:
    """Sends requests to one model, for any number of calls in one event loop.

    Args:
        settings: What the model's output depends on, as JSON values; part of the key of cached replies.
        limits: Keeps to the server's limits.
        meter: Counts what is used, and keeps to the budget.
        cache: Where replies are kept; None for nowhere.
        max_retries: Further tries after a time-out, a lost connection or a server's error.
        retry_wait: Scale of the random, exponentially growing wait between tries, in seconds.
        secrets: Texts that must not appear in messages.
        is_proven: Whether the model ever answered with these settings.
        is_reached: Whether anything ever answered at its address.
        given_up: Requests in a row that were given up.
        rejected: Requests rejected since the last one that left after them and was answered.
        rejected_at: When the last one was rejected.
    """

    settings: Any
    limits: Limits
    meter: Meter
    cache: ReplyCache | None
    max_retries: int = 6
    retry_wait: float = 1.0
    secrets: Iterable[str] = ()
    is_proven: bool = False
    is_reached: bool = False
    given_up: int = 0
    rejected: int = 0
    rejected_at: float = -math.inf

    @classmethod
    def to(
        cls, llm: LLM, limits: Limits, meter: Meter, cache: ReplyCache | str | Path | None
    ) -> Sender:
        """A sender to an LLM; replies are kept in a cache or a file, if any."""
        settings = {"llm": type(llm).__qualname__, **output_settings(llm)}
        if isinstance(cache, (str, Path)):
            cache = ReplyCache(cache)
        return cls(settings, limits, meter, cache, secrets=secrets_of(llm))

    def key(self, request: LLMRequest) -> str:
        """The key of a request's reply: by the text, all that is sent, and the model with its settings."""
        messages = [[message.role.value, message.content] for message in request.messages]
        settings = json.dumps(self.settings, sort_keys=True, ensure_ascii=False)
        return reply_key(
            request.text, json.dumps([settings, request.attempt, messages], ensure_ascii=False)
        )

    def start_run(self) -> None:
        """Forget how many requests in a row failed: another call begins."""
        self.given_up = 0
        self.rejected = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether requests were rejected and none was answered since: a key or setting may be at fault."""
        return self.rejected > 0

    async def ask(self, request: LLMRequest, transport: Transport, stop: Stop) -> Outcome:
        """Get a reply: the cached one, or a new one, which is cached from now on.

        Raises:
            LLMError: The error would meet every other request too, or the budget is used up.
            OSError: The cache cannot be used.
        """
        exchange = _Exchange(self, request, transport, stop)
        cached = await exchange.cached()
        if cached is not None:
            self.is_proven = self.is_proven or isinstance(cached, Reply)
            return cached
        try:
            return await exchange.outcome()
        except LLMError as error:
            stop.by(error)
            raise
        finally:
            if self.cache is not None:
                await self.cache.in_thread(self.cache.release, exchange.key, request.owner)


@dataclass
class _Exchange:
    """A request that is sent until it is answered or given up."""

    sender: Sender
    request: LLMRequest
    transport: Transport
    stop: Stop
    failed: int = 0
    refused: int = 0
    refused_since: float = math.inf

    @cached_property
    def key(self) -> str:
        """The key of its reply."""
        return self.sender.key(self.request)

    async def cached(self) -> Outcome | None:
        """What is cached."""
        cache = self.sender.cache
        cached = None if cache is None else await cache.in_thread(cache.get, self.key)
        if cached is not None:
            self.sender.meter.count("cache_hits")
        return cached

    async def outcome(self) -> Outcome:
        """The reply, or why there is none for this text."""
        sender = self.sender
        while True:
            outcome = await self._send()
            if isinstance(outcome, Reply):
                sender.is_proven = True
            elif message := self._fatal_message(outcome):
                raise LLMError(
                    without_quotes(message, self.request.text), is_silence=outcome.is_unreachable
                )
            if isinstance(outcome, Reply) or outcome.kind in ("too_long", "filtered", "rejected"):
                sender.given_up = 0
                return outcome
            if self.failed + self.refused // _REFUSALS_PER_TRY > sender.max_retries:
                return self._give_up(outcome)
            await self.stop.wait(timeout=self._pause(outcome))

    async def _send(self) -> Outcome:
        """Send the request once, when its turn has come."""
        sender = self.sender
        request = self.request
        is_counted = sender.meter.budget != Budget() or sender.limits.counts_tokens
        expected = expected_usage(request.messages, request.part) if is_counted else Usage(1)
        self.stop.check()
        ticket = sender.limits.enter(expected.total_tokens, request.turn)
        sending = None
        try:
            await self.stop.wait(ticket.departure)
            cached = await self._claim()
            if cached is not None:
                return cached
            while not sender.meter.reserve(expected):
                await self.stop.wait(timeout=_BUDGET_WAIT)
            sending = asyncio.ensure_future(self._attempt(ticket, expected))
        finally:
            if sending is None:
                sender.limits.leave(ticket, used_tokens=0)
        while not sending.done():  # if the waiting is cancelled, the sending goes on
            await asyncio.wait([sending], timeout=None if sender.cache is None else _RENEWAL)
            await self._holds_claim()
        return sending.result()

    async def _claim(self) -> Outcome | None:
        """Claim the request; if somebody else has, wait for their reply and return it."""
        while True:
            is_claimed = await self._holds_claim()
            cached = await self.cached()
            if is_claimed or cached is not None:
                return cached
            await self.stop.wait(timeout=_LOOK_AGAIN)

    async def _holds_claim(self) -> bool:
        """Claim the request for some more seconds, unless somebody else has."""
        cache = self.sender.cache
        return cache is None or await cache.in_thread(cache.claim, self.key, self.request.owner)

    async def _attempt(self, ticket: Ticket, expected: Usage) -> Outcome:
        """Send the request; its place is given back, and it is counted and cached, even if nobody waits."""
        sender = self.sender
        arrival = _Arrival(self, expected)
        error: Exception | None = None
        failure = Failure("transient", "the provider ended its reply with an error")
        try:
            await self.transport(self.request.messages, arrival.receive)
        except Exception as raised:
            # it may hold keys and the text, so nothing is raised while it is handled
            error = raised
            failure = classify(
                error, sender.secrets, sent=self.request.text, proven=sender.is_proven
            )
        arrival.settle(None)
        reply = arrival.reply
        sender.is_reached = sender.is_reached or reply is not None or not failure.is_unreachable
        if reply is None or reply.finish == "failed":
            is_refused = failure.kind == "refused"
            sender.meter.count("refused" if is_refused else "failed")
            used_tokens = 0 if is_refused else None
            sender.limits.leave(
                ticket, used_tokens=used_tokens, refused=is_refused, wait=failure.wait
            )
            if sender.cache is not None and failure.kind in KEPT_FAILURES:
                await sender.cache.in_thread(sender.cache.put, self.key, failure)
            return failure
        sender.limits.leave(ticket, used_tokens=reply.usage.total_tokens, taken=True)
        if ticket.departed >= sender.rejected_at:  # an earlier one says nothing about the present
            sender.rejected = 0
        if error is not None:  # after the reply there is nothing but the cache to fail
            raise error
        return reply

    def _fatal_message(self, failure: Failure) -> str:
        """Count a failure, and say why it ends the run; "" if it does not."""
        sender = self.sender
        now = asyncio.get_running_loop().time()
        if failure.kind == "refused":
            self.refused += 1
            self.refused_since = min(self.refused_since, now)
            return sender.limits.used_up(failure.wait, self.refused_since)
        self.failed += 1
        if failure.kind == "rejected":
            sender.rejected += 1
            sender.rejected_at = now
            if not sender.is_proven or sender.rejected >= _IN_A_ROW:
                return f"{failure.message} ({failure.summary}) {SETTING_ADVICE}"
        # once may be due to one garbled answer
        is_repeated = self.failed > min(1, sender.max_retries)
        if is_repeated and (message := self._repeated_message(failure)):
            return message
        return failure.message if failure.kind == "fatal" else ""

    def _repeated_message(self, failure: Failure) -> str:
        """Why a repeated failure ends the run; "" if it does not."""
        sender = self.sender
        if failure.kind == "broken" and not sender.is_proven:
            advice = "The LLM's class or its client fails: mend it, or see what is at its address."
            return f"{failure.message}. {advice}"
        if failure.is_unreachable and not sender.is_reached:
            return unreachable_message(sender.settings.get("address", ""), failure.summary)
        return ""

    def _pause(self, failure: Failure) -> float:
        """Seconds until the next try; a refused request is also held back by the limits."""
        if failure.kind == "refused":
            return failure.wait
        if failure.wait:
            return failure.wait * random.uniform(1.0, 1.1)
        return min(_LONGEST_BACKOFF, self.sender.retry_wait * 2.0**self.failed) * random.random()

    def _give_up(self, failure: Failure) -> Failure:
        sender = self.sender
        sender.given_up += 1
        if sender.given_up >= _IN_A_ROW:
            raise LLMError(
                f"The provider did not answer {_IN_A_ROW} requests in a row, each tried again "
                f"{sender.max_retries} times ({failure.summary}): see whether it is up, and run again. With "
                "a reply cache, what it answered before is not asked again.",
                is_silence=True,
            )
        return replace(failure, kind="transient", may_pass=True)


class _Arrival:
    """What comes of one sending, also when it comes later than anybody waited."""

    def __init__(self, exchange: _Exchange, expected: Usage) -> None:
        self.reply: Reply | None = None
        self._exchange = exchange
        self._reserved = [expected]

    def receive(self, response: Response) -> None:
        """Count and cache a response, in the thread that got it."""
        reply = Reply.of(response, self._exchange.request.messages)
        self.settle(reply.usage)
        self.reply = reply
        cache = self._exchange.sender.cache
        if cache is not None and reply.finish != "failed":
            cache.put(self._exchange.key, reply)

    def settle(self, used: Usage | None) -> None:
        """Count what was used in place of what was set aside, which whoever comes first gives back."""
        try:
            reserved = self._reserved.pop()
        except IndexError:
            reserved = None
        if reserved is not None or used is not None:
            self._exchange.sender.meter.settle(reserved, used)


class Stop:
    """Why a call cannot go on; requests under way are left to finish, and no other is sent.

    Requests that wait (for their turn, for a minute's allowance, for the next try) stop waiting: a server may
    have told them to come back in a quarter of an hour.

    Args:
        loop: The event loop in which they wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.error: LLMError | None = None
        self._loop = loop
        self._stopped = loop.create_future()

    def by(self, error: LLMError) -> None:
        """Stop. May be called from any thread."""
        self.error = self.error or error
        self._loop.call_soon_threadsafe(self._stopped.cancel)

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error

    async def wait(self, *awaited: asyncio.Future[None], timeout: float | None = None) -> None:
        """Wait for something, or for some seconds, unless the call is stopped first."""
        self.check()
        await asyncio.wait(
            {*awaited, self._stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        self.check()
