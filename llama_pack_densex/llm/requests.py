"""One request to an LLM: cached, paced by the limits, kept within the budget, sent, retried and counted."""

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

# Failed requests in a row after which a run ends: if none succeeds, the requests are not to blame.
_IN_A_ROW = 8
# A refusal is not the request's fault, and so counts as a tenth of a failure.
_REFUSALS_PER_TRY = 10
_LONGEST_BACKOFF = 60.0  # seconds
_LOOK_AGAIN = 0.2  # seconds between two checks for a reply that another owner is getting
_RENEWAL = 1.0  # seconds after which a claim is renewed
_BUDGET_WAIT = 0.1  # seconds between two checks for budget that other requests did not use


@dataclass(frozen=True)
class LLMRequest:
    """One request to an LLM.

    Args:
        text: The text that it is about; cached replies can be found by it.
        part: The part of the text that this request is about.
        messages: The messages to the model.
        attempt: The number of this attempt, from 1; each attempt is cached by itself.
        turn: The text's turn; a follow-up request keeps it, ahead of texts that came later.
        owner: An id of the requester; if several send the same request concurrently, the others wait for
            the reply.
    """

    text: str
    part: str
    messages: Messages
    attempt: int = 1
    turn: int | None = None
    owner: str = field(default_factory=lambda: uuid4().hex)


Transport = Callable[[Messages, Receive], Awaitable[None]]
"""Sends one request, once, and passes the response to the receiver as soon as it arrives."""


@dataclass
class Sender:
    """A sender of requests to one model, for any number of calls in one event loop.

    Args:
        settings: The settings that the model's output depends on, as JSON values; part of the key of cached
            replies.
        limits: Paces requests by the server's limits.
        meter: Counts usage, and enforces the budget.
        cache: The cache of replies; None for no cache.
        max_retries: Number of retries after a time-out, a lost connection or a server error.
        retry_wait: Scale of the random, exponentially growing wait between tries, in seconds.
        secrets: Texts that must not appear in messages.
        is_proven: Whether the model ever answered with these settings.
        is_reached: Whether anything ever answered at its address.
        given_up: Number of consecutive requests that were given up.
        rejected: Number of rejections since the last answer to a request sent after a rejection.
        rejected_at: The loop time of the last rejection.
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
        """Make a sender to an LLM; replies are cached in a cache or a file, if one is given."""
        settings = {"llm": type(llm).__qualname__, **output_settings(llm)}
        if isinstance(cache, (str, Path)):
            cache = ReplyCache(cache)
        return cls(settings, limits, meter, cache, secrets=secrets_of(llm))

    def key(self, request: LLMRequest) -> str:
        """Return the key of a request's reply, made from the text, the messages and the model's settings."""
        messages = [[message.role.value, message.content] for message in request.messages]
        settings = json.dumps(self.settings, sort_keys=True, ensure_ascii=False)
        payload = json.dumps([settings, request.attempt, messages], ensure_ascii=False)
        return reply_key(request.text, payload)

    def start_run(self) -> None:
        """Reset the counts of consecutive failures, since another call begins."""
        self.given_up = 0
        self.rejected = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether requests were rejected and none answered since: a key or setting may be at fault."""
        return self.rejected > 0

    async def ask(self, request: LLMRequest, transport: Transport, stop: Stop) -> Outcome:
        """Get the cached reply, or send the request and cache its reply.

        Raises:
            LLMError: Every other request would fail in the same way, or the budget is used up.
            OSError: The cache cannot be used.
        """
        exchange = _Exchange(self, request, transport, stop)
        cached = await exchange.cached()
        if cached:
            self.is_proven = self.is_proven or isinstance(cached, Reply)
            return cached
        try:
            return await exchange.outcome()
        except LLMError as error:
            stop.by(error)
            raise
        finally:
            if self.cache:
                await self.cache.in_thread(self.cache.release, exchange.key, request.owner)


@dataclass
class _Exchange:
    """A request that is retried until it is answered or given up."""

    sender: Sender
    request: LLMRequest
    transport: Transport
    stop: Stop
    failed: int = 0
    refused: int = 0
    refused_since: float = math.inf

    @cached_property
    def key(self) -> str:
        """The key of the request's reply."""
        return self.sender.key(self.request)

    async def cached(self) -> Outcome | None:
        """Return the cached outcome; None if there is none."""
        cache = self.sender.cache
        if not cache:
            return None
        cached = await cache.in_thread(cache.get, self.key)
        if cached:
            self.sender.meter.count("cache_hits")
        return cached

    async def outcome(self) -> Outcome:
        """Send the request until it is answered; return the reply, or why there is none for this text."""
        sender = self.sender
        while True:
            outcome = await self._send()
            if isinstance(outcome, Reply):
                sender.is_proven = True
                sender.given_up = 0
                return outcome
            message = self._fatal_message(outcome)
            if message:
                message = without_quotes(message, self.request.text)
                raise LLMError(message, is_silence=outcome.is_unreachable)
            if outcome.kind in ("too_long", "filtered", "rejected"):
                sender.given_up = 0
                return outcome
            if self.failed + self.refused // _REFUSALS_PER_TRY > sender.max_retries:
                return self._give_up(outcome)
            await self.stop.wait(timeout=self._pause(outcome))

    async def _send(self) -> Outcome:
        """Send the request once, when its turn has come."""
        sender = self.sender
        request = self.request
        expected = Usage(1)
        if sender.meter.budget != Budget() or sender.limits.counts_tokens:
            expected = expected_usage(request.messages, request.part)
        self.stop.check()
        ticket = sender.limits.enter(expected.total_tokens, request.turn)
        sending = None
        try:
            await self.stop.wait(ticket.departure)
            cached = await self._claim()
            if cached:
                return cached
            while not sender.meter.reserve(expected):
                await self.stop.wait(timeout=_BUDGET_WAIT)
            sending = asyncio.ensure_future(self._attempt(ticket, expected))
        finally:
            if not sending:
                sender.limits.leave(ticket, used_tokens=0)
        renewal = _RENEWAL if sender.cache else None
        while not sending.done():  # if the waiting is cancelled, the sending goes on
            await asyncio.wait([sending], timeout=renewal)
            await self._holds_claim()
        return sending.result()

    async def _claim(self) -> Outcome | None:
        """Claim the request; if another owner has, wait for their reply and return it."""
        while True:
            is_claimed = await self._holds_claim()
            cached = await self.cached()
            if is_claimed or cached:
                return cached
            await self.stop.wait(timeout=_LOOK_AGAIN)

    async def _holds_claim(self) -> bool:
        """Claim the request for some more seconds; return False if another owner holds it."""
        cache = self.sender.cache
        return not cache or await cache.in_thread(cache.claim, self.key, self.request.owner)

    async def _attempt(self, ticket: Ticket, expected: Usage) -> Outcome:
        """Send the request, and count and cache its reply, even if nobody waits for it any more."""
        sender = self.sender
        arrival = _Arrival(self, [expected])
        error: Exception | None = None
        failure = Failure("transient", "the provider ended its reply with an error")
        try:
            await self.transport(self.request.messages, arrival.receive)
        except Exception as raised:
            # the error may hold keys and the text: raising another here would attach it as context
            error = raised
            failure = classify(
                error, sender.secrets, sent=self.request.text, proven=sender.is_proven
            )
        arrival.settle(None)
        reply = arrival.reply
        sender.is_reached = sender.is_reached or reply is not None or not failure.is_unreachable
        if not reply or reply.finish == "failed":
            await self._note_failure(ticket, failure)
            return failure
        sender.limits.leave(ticket, used_tokens=reply.usage.total_tokens, taken=True)
        if ticket.departed >= sender.rejected_at:  # else it left before the rejection
            sender.rejected = 0
        if error:  # the reply arrived, so that only caching it can have failed
            raise error
        return reply

    async def _note_failure(self, ticket: Ticket, failure: Failure) -> None:
        sender = self.sender
        if failure.kind == "refused":
            sender.meter.count("refused")
            sender.limits.leave(ticket, used_tokens=0, refused=True, wait=failure.wait)
        else:
            sender.meter.count("failed")
            sender.limits.leave(ticket, wait=failure.wait)
        if sender.cache and failure.kind in KEPT_FAILURES:
            await sender.cache.in_thread(sender.cache.put, self.key, failure)

    def _fatal_message(self, failure: Failure) -> str:
        """Count a failure, and return the reason why it ends the run; "" if it does not."""
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
        # a single failure may be due to one garbled answer
        if self.failed > min(1, sender.max_retries):
            message = self._repeated_message(failure)
            if message:
                return message
        if failure.kind == "fatal":
            return failure.message
        return ""

    def _repeated_message(self, failure: Failure) -> str:
        """Return the reason why a repeated failure ends the run; "" if it does not."""
        sender = self.sender
        if failure.kind == "broken" and not sender.is_proven:
            advice = "The LLM's class or its client fails: fix it, or check what is running at its address."
            return f"{failure.message}. {advice}"
        if failure.is_unreachable and not sender.is_reached:
            return unreachable_message(sender.settings.get("address", ""), failure.summary)
        return ""

    def _pause(self, failure: Failure) -> float:
        """Return the seconds to wait before the next try; a refused request is also delayed by the limits."""
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
                f"The provider did not answer {_IN_A_ROW} requests in a row, each retried "
                f"{sender.max_retries} times ({failure.summary}): check whether it is up, and run again. "
                "With a reply cache, requests that it has answered are not sent again.",
                is_silence=True,
            )
        return replace(failure, kind="transient", may_pass=True)


@dataclass
class _Arrival:
    """The result of sending once, which may arrive after everybody has stopped waiting."""

    exchange: _Exchange
    reserved: list[Usage]  # empty once it has been given back
    reply: Reply | None = None

    def receive(self, response: Response) -> None:
        """Count and cache a response, in the thread that received it."""
        reply = Reply.of(response, self.exchange.request.messages)
        self.settle(reply.usage)
        self.reply = reply
        cache = self.exchange.sender.cache
        if cache and reply.finish != "failed":
            cache.put(self.exchange.key, reply)

    def settle(self, used: Usage | None) -> None:
        """Count actual usage, and give back the reservation unless that has been done."""
        try:
            reserved = self.reserved.pop()
        except IndexError:
            reserved = None
        self.exchange.sender.meter.settle(reserved, used)


class Stop:
    """The signal that a call cannot continue: requests in flight may finish, and no other is sent.

    Requests that wait (for their turn, for a minute's allowance, for the next try) stop waiting, since a
    server may have told them to come back in a quarter of an hour.

    Args:
        loop: The event loop in which the requests wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.error: LLMError | None = None
        self._loop = loop
        self._stopped = loop.create_future()

    def by(self, error: LLMError) -> None:
        """Stop the call because of an error. May be called from any thread."""
        self.error = self.error or error
        self._loop.call_soon_threadsafe(self._stopped.cancel)

    def check(self) -> None:
        """Raise the error that stopped the call, if any."""
        if self.error:
            raise self.error

    async def wait(self, *awaited: asyncio.Future[None], timeout: float | None = None) -> None:
        """Wait for one of the futures, or for some seconds; raise the error if the call is stopped."""
        self.check()
        await asyncio.wait(
            {*awaited, self._stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        self.check()
