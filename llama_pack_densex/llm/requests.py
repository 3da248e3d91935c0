"""One request: looked up, held back for the limits, within the budget, sent in a thread, tried again, counted, kept."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.llms import LLM

from llama_pack_densex.llm.cache import KEPT_FAILURES, ReplyCache, reply_key
from llama_pack_densex.llm.errors import SETTING_ADVICE, Failure, LLMError, classify, refuses_schema, without_quotes
from llama_pack_densex.llm.reference import output_settings, secrets_of
from llama_pack_densex.llm.usage import NOTHING, Messages, Price, Reply, RequestFigures, Response, Usage, expected_usage

logger = logging.getLogger(__name__)

_IN_A_ROW = 8  # requests that come to nothing; where none succeeds in between, it is not their fault
_REFUSALS_A_TRY = 10  # a refusal says nothing against a request, and so counts a tenth of a failure
_LONGEST_BACKOFF = 60.0  # seconds

_LOOKS = 0.2  # seconds after which it is looked again whether somebody else has got the reply
_RENEWS = 1.0  # seconds after which others are told again that something is being asked for

_USED = 0.985  # of an allowance that was told: a server may see evenly spaced requests closer together
_LATE = 0.01  # seconds by which a request that leaves late does not shift those after it
_TOKEN_BURST = 0.5  # seconds' worth of tokens that may go at once: requests differ in size
_MEMORY = 60.0  # seconds in which it is counted what a server took: most servers count in minutes
_AT_MOST = 1.15  # times what it took in the last minute
_SLOWER, _FASTER = 0.9, 1.02
_SLOWEST = 0.05  # requests a second
_FIRST_WAIT, _SHORT_WAIT, _LONGEST_WAIT = 0.5, 8.0, 60.0  # seconds after a refusal that does not say how long
# Refusals are by a limit, and not by chance, where they are a larger share of those that came back last, or so many in
# a row that there is hardly such a chance.
_BY_CHANCE, _LATELY, _HARDLY = 0.2, 128, 1 / 3000
# Those that meet requests at less than half the pace that the server took over a minute are by chance: so many of them
# tell its share, and what exceeds that half as much again is a limit. What it takes for one has it trust that less.
_SLOW, _SLOW_ONES, _MORE, _TRUST = 0.5, 16, 1.5, 0.97
_PATIENCE = 16  # times the requests in flight: after so many that were taken, one more at a time is tried at the latest
MOST_WAIT = 900.0
"""Seconds: a server that takes nothing for so long is not waited for."""
_SPARE, _SPARE_AT_FIRST = 1.5, 20.0
"""Several requests at a time may together exceed a budget by the errors of all of their estimates: near its end they go
one by one, so that it is the error of one. How much a model thinks is not known before its first reply."""


@dataclass(frozen=True)
class Question:
    """What is sent.

    Args:
        text: The text that it is about; what is kept can be found again by it.
        part: The part of it that is asked for.
        messages: What the model gets.
        attempt: How many-eth time the same is asked.
        turn: What is asked again about a text has its turn, and so goes before texts that came later.
        owner: Who asks; of several who ask the same at the same time, the others wait for the reply.
    """

    text: str
    part: str
    messages: Messages
    attempt: int = 1
    turn: int | None = None
    owner: str = field(default_factory=lambda: uuid4().hex)


Receive = Callable[[Response], None]
Transport = Callable[[Messages, Receive], Awaitable[None]]
"""Sends one request, once, and has the response dealt with as soon as it is there."""


@dataclass
class Sender:
    """Sends requests to one model, for any number of calls in one event loop.

    Args:
        settings: What the model's output depends on, as JSON values; part of the key that replies are kept by.
        limits: Keeps to the server's limits.
        meter: Counts what is used, and keeps to the budget.
        cache: Where replies are kept; None for nowhere.
        max_retries: Further tries after a time-out, a lost connection or a server's error.
        retry_wait: Scale of the random, exponentially growing wait between tries, in seconds.
        secrets: Texts that must not appear in messages.
    """

    settings: Any
    limits: Limits
    meter: Meter
    cache: ReplyCache | None
    max_retries: int = 6
    retry_wait: float = 1.0
    secrets: Iterable[str] = ()
    _proven: bool = False  # whether the model ever answered with these settings
    _given_up: int = 0  # in a row
    _rejected: int = 0  # since the last one that left after it and was answered
    _rejected_at: float = -math.inf

    @classmethod
    def to(cls, llm: LLM, limits: Limits, meter: Meter, cache: ReplyCache | str | Path | None) -> Sender:
        """What sends to an LLM; replies are kept in a cache, or a file, if any."""
        settings = {"llm": type(llm).__qualname__, **output_settings(llm)}
        kept = cache if cache is None or isinstance(cache, ReplyCache) else ReplyCache(cache)
        return cls(settings, limits, meter, kept, secrets=secrets_of(llm))

    def key(self, question: Question) -> str:
        """What a question's reply is kept by: the text, all that is sent, and the model with its settings."""
        said = [[message.role.value, message.content] for message in question.messages]
        settings = json.dumps(self.settings, sort_keys=True, ensure_ascii=False)
        return reply_key(question.text, json.dumps([settings, question.attempt, said], ensure_ascii=False))

    def count_anew(self) -> None:
        """Forget how many requests in a row came to nothing, as where another call begins."""
        self._given_up = self._rejected = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether requests were rejected and none was answered since: a key or setting may be at fault, and no text."""
        return self._rejected > 0

    async def ask(self, question: Question, transport: Transport, stop: Stop) -> Reply | Failure:
        """Get a reply: the one that is kept, or a new one, which is kept from now on.

        Raises:
            LLMError: The error would meet every other request too, or the budget is used up.
            OSError: The cache cannot be used.
        """
        key = self.key(question) if self.cache is not None else ""
        if (kept := self._kept(key)) is not None:
            self._proven = self._proven or isinstance(kept, Reply)
            return kept
        try:
            outcome = await self._ask_anew(question, key, transport, stop)
        except LLMError as error:
            stop.by(error)
            raise
        finally:
            if self.cache is not None:
                self.cache.release(key, question.owner)
        if self.cache is not None and isinstance(outcome, Failure) and outcome.kind in KEPT_FAILURES:
            self.cache.put(key, outcome)
        return outcome

    def _kept(self, key: str) -> Reply | Failure | None:
        kept = None if self.cache is None else self.cache.get(key)
        if kept is not None:
            self.meter.count("cache_hits")
        return kept

    async def _ask_anew(self, question: Question, key: str, transport: Transport, stop: Stop) -> Reply | Failure:
        failed = refused = 0
        refused_since = math.inf
        while True:
            outcome = await self._send(question, key, transport, stop)
            if isinstance(outcome, Reply):
                self._proven, self._given_up = True, 0
                return outcome
            if outcome.kind == "refused":
                refused += 1
                refused_since = min(refused_since, asyncio.get_running_loop().time())
            else:
                failed += 1
            if outcome.kind == "rejected":
                self._rejected, self._rejected_at = self._rejected + 1, asyncio.get_running_loop().time()
            if message := self._fatal_message(outcome, failed, refused_since):
                raise LLMError(without_quotes(message, question.text))
            if outcome.kind in ("too_long", "filtered", "rejected"):
                self._given_up = 0
                return outcome
            if failed + refused // _REFUSALS_A_TRY > self.max_retries:
                return self._give_up(outcome)
            if outcome.kind == "refused":  # what else holds it back are the limits
                await stop.pause(outcome.wait)
            elif outcome.kind != "broken" or self._proven:
                backoff = min(_LONGEST_BACKOFF, self.retry_wait * 2**failed) * random.random()
                await stop.pause(outcome.wait * (1 + 0.1 * random.random()) or backoff)

    async def _send(self, question: Question, key: str, transport: Transport, stop: Stop) -> Reply | Failure:
        """Send a question once, when its turn has come."""
        is_counted = self.meter.budget != Budget() or self.limits.counts_tokens
        expected = expected_usage(question.messages, question.part) if is_counted else Usage(1)
        stop.check()
        sent = self.limits.enter(expected.total_tokens, question.turn)
        try:
            await stop.unless(sent.departure)
            while True:
                is_mine = self.cache is None or self.cache.claim(key, question.owner)
                if (kept := self._kept(key)) is not None:  # somebody else has asked meanwhile
                    self.limits.leave(sent, used_tokens=0)
                    return kept
                if is_mine:
                    break
                await stop.pause(_LOOKS)
            while not self.meter.reserve(expected):
                await stop.pause(0.1)  # others are under way, and may turn out cheaper than expected
        except BaseException:
            self.limits.leave(sent, used_tokens=0)
            raise
        sending = asyncio.ensure_future(self._attempt(question, key, transport, sent, expected))
        while not sending.done():  # the waiting leaves it alone where it is cancelled
            await asyncio.wait([sending], timeout=None if self.cache is None else _RENEWS)
            if self.cache is not None:
                self.cache.claim(key, question.owner)
        return sending.result()

    async def _attempt(
        self, question: Question, key: str, transport: Transport, sent: Sent, expected: Usage
    ) -> Reply | Failure:
        """Send a question. Whatever becomes of who waits for it, it gives back its place, and is counted and kept."""
        replies: list[Reply] = []
        unkept: list[OSError] = []

        def receive(response: Response) -> None:  # in the thread that got it
            reply = Reply.of(response, question.messages)
            replies.append(reply)
            self.meter.settle(expected, reply.usage)
            if self.cache is not None and reply.finish != "failed":
                try:
                    self.cache.put(key, reply)
                except OSError as error:
                    unkept.append(error)

        failure = Failure("transient", "the provider ended its reply with an error")
        try:
            await transport(question.messages, receive)
        except Exception as error:  # it may hold keys and the text, so that nothing is raised while it is handled
            failure = classify(error, self.secrets, sent=question.text, proven=self._proven)
        if not replies:
            self.meter.settle(expected, None)
        elif replies[0].finish != "failed":
            self.limits.leave(sent, used_tokens=replies[0].usage.total_tokens, taken=True)
            if sent.departed >= self._rejected_at:  # one that left before says nothing of what is so now
                self._rejected = 0
            if unkept:
                raise unkept[0]
            return replies[0]
        is_refused = failure.kind == "refused"
        self.meter.count("refused" if is_refused else "failed")
        self.limits.leave(sent, used_tokens=0 if is_refused else None, refused=is_refused, wait=failure.wait)
        return failure

    def _fatal_message(self, failure: Failure, failed: int, refused_since: float) -> str:
        if failure.kind == "fatal":
            return failure.message
        if failure.kind == "refused":
            return self.limits.used_up(failure.wait, refused_since)
        if failure.kind == "broken" and not self._proven and failed > min(1, self.max_retries):  # one may be garbage
            return f"{failure.message}. The LLM's class or its client fails: mend it, or see what is at its address."
        if failure.kind == "rejected" and (not self._proven or self._rejected >= _IN_A_ROW):
            return f"{failure.message} ({failure.summary}) {SETTING_ADVICE}"
        return ""

    def _give_up(self, failure: Failure) -> Failure:
        self._given_up += 1
        if self._given_up >= _IN_A_ROW:
            raise LLMError(
                f"The provider did not answer {_IN_A_ROW} requests in a row, each tried again "
                f"{self.max_retries} times ({failure.summary}): see whether it is up, and run again. With a reply "
                "cache, what it answered before is not asked again.",
                is_silence=True,
            )
        return replace(failure, kind="transient")


class Stop:
    """Why a call cannot go on; requests that are under way are left to their end, and no other is sent.

    Requests that wait (for their turn, for a minute's allowance, for the next try) wait no longer: a server may have
    told them to come back in a quarter of an hour.

    Args:
        loop: The event loop in which they wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.error: LLMError | None = None
        self._loop = loop
        self._ended = loop.create_future()

    def by(self, error: LLMError) -> None:
        """Stop. May be called from any thread."""
        self.error = self.error or error
        self._loop.call_soon_threadsafe(self._ended.cancel)

    def check(self) -> None:
        """Raise the error, where there is one."""
        if self.error is not None:
            raise self.error

    async def unless(self, awaited: asyncio.Future[None]) -> None:
        """Wait for something, unless there is an error first."""
        await asyncio.wait({awaited, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        self.check()

    async def pause(self, seconds: float) -> None:
        """Sleep, unless there is an error."""
        self.check()
        await asyncio.wait({self._ended}, timeout=seconds)
        self.check()


class Client:
    """Calls an LLM in threads, with the caller's context variables.

    What deals with a response runs in the thread that got it: also where nobody waits for it any more, a response that
    was paid for is counted and kept.

    Args:
        llm: An LLM that tries nothing again (`without_retries`).
        max_concurrency: Requests at the same time.
        form: What `response_format` returned, for replies by a JSON schema. A server that refuses it is asked for the
            same without it, as is everything after that: `form` is emptied, for whoever else has it too.
    """

    def __init__(self, llm: LLM, max_concurrency: int, form: dict[str, Any] | None = None) -> None:
        self._llm, self._is_chat = llm, llm.metadata.is_chat_model
        self._form: dict[str, Any] = {} if form is None else form
        self._form_is_taken = False
        self._context = copy_context()
        self._sending = ThreadPoolExecutor(max_concurrency, thread_name_prefix="llm requests")

    async def send(self, messages: Messages, receive: Receive) -> None:
        """Send one request, once, and have the response dealt with as soon as it is there."""
        # one context cannot be entered by two threads at a time
        work = partial(self._context.copy().run, self._send_now, messages, receive)
        await asyncio.get_running_loop().run_in_executor(self._sending, work)

    def close(self) -> None:
        """Let the threads end when their requests do."""
        self._sending.shutdown(wait=False)

    def _send_now(self, messages: Messages, receive: Receive) -> None:
        try:
            if self._is_chat:
                receive(self._chat(messages))
            else:
                receive(self._llm.complete("\n\n".join(message.content or "" for message in messages)))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            # as SystemExit and asyncio's CancelledError: it is the loop's that they would end, and all wait in that;
            # and a future takes no StopIteration, as of a list of answers that is used up
            raise AssertionError(f"the LLM raised {type(error).__name__}: {error}") from error

    def _chat(self, messages: Messages) -> ChatResponse:
        form = dict(self._form)
        try:
            response = self._llm.chat(messages, **form)
        except Exception as error:
            if not form or not refuses_schema(error, proven=self._form_is_taken):
                raise
            response = self._llm.chat(messages)
            if self._form.pop("response_format", None) is not None:  # the first of those that were under way
                logger.warning("The server takes no JSON schema for replies (response_format), and is asked without.")
        else:
            self._form_is_taken = self._form_is_taken or bool(form)
        return response


def response_format(llm: LLM, *lists: str) -> dict[str, Any]:
    """What has replies be an object of lists of strings, by a JSON schema.

    Args:
        llm: The LLM. Those of LlamaIndex's OpenAI say whether their model keeps to a schema; for OpenAILike that is
            `should_use_structured_outputs`.
        lists: What the lists are called.

    Returns:
        A further argument of its `chat`; empty where the LLM does not say that it can do that.
    """
    says = getattr(llm, "_should_use_structure_outputs", None)  # no public name says it
    if says is None or not says():
        return {}
    properties = {name: {"type": "array", "items": {"type": "string"}} for name in lists}
    schema = {"type": "object", "properties": properties, "required": [*lists], "additionalProperties": False}
    named = {"name": "_and_".join(lists), "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


def background_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process in which all requests wait for their turn, in a thread of its own."""
    process = os.getpid()  # a forked process has no thread of its parent's
    if process not in _LOOPS:
        loop = asyncio.new_event_loop()
        if _LOOPS.setdefault(process, loop) is loop:  # else another thread was faster
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
        else:
            loop.close()
    return _LOOPS[process]


# When requests may go


class Limits:
    """Lets requests through, in one event loop: the first come go first, and one that is sent again keeps its place.

    Where a server refuses, nothing is sent until the moment that it told, or for a growing time if it told none. What
    it took in the last minute then says how fast the next ones go: a little faster with each that is taken, slower with
    each that is refused. No more are in flight than it has proved to take, and one more now and then to try. A refusal
    among many answers says nothing of a limit, and holds up that request alone; nor do those that are as many at any
    pace.

    Args:
        max_concurrency: The most requests in flight, at least 1.
        requests_per_minute: Requests that the server allows, more than 0; None: whatever it turns out to take.
        tokens_per_minute: Tokens, sent and received together, that the server allows; None: any number.

    Examples:
        >>> limits = Limits(64, requests_per_minute=600)
        >>> sent = limits.enter(tokens=900)
        >>> await sent.departure
        >>> response = await llm.achat(messages)
        >>> limits.leave(sent, used_tokens=780, taken=True)

    Attributes:
        counts_tokens: Whether the server limits tokens.
        queue: Requests that wait for their turn, with the number of their turn and that of their arrival.
    """

    def __init__(
        self, max_concurrency: int, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        self._maximum = self._concurrency = max_concurrency
        self._interval = 60 / (requests_per_minute * _USED) if requests_per_minute else 0.0
        self.counts_tokens, self._tokens_a_minute = tokens_per_minute is not None, tokens_per_minute or math.inf
        self._next = self._tokens_paid_until = self._not_before = self._adjusted = -math.inf
        self.queue: list[tuple[int, int, Sent]] = []
        self._turns = count(1)
        self._in_flight: set[Sent] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._taken: deque[float] = deque()  # when requests came back that the server had taken
        self._refused: deque[bool] = deque(maxlen=_LATELY)  # whether it had refused those that came back
        self._refused_slow: deque[bool] = deque(maxlen=_SLOW_ONES)  # the same of those that left slowly
        self._by_chance, self._most = _BY_CHANCE, 0.0  # a share; the most that it took in a minute, a second
        self._rate = math.inf  # requests a second, as far as the server's refusals tell
        self._since = self._last_taken = math.inf  # the first from when the first request left
        self._quiet, self._patience, self._proven, self._refused_in_a_row = 0, 1, 0, 0

    def used_up(self, wait: float, since: float) -> str:
        """Say why a request that was refused need not be sent again: it would be too long from now; "" where it may be.

        Args:
            wait: Seconds that the server says to wait.
            since: When the request was refused for the first time.
        """
        silent = asyncio.get_running_loop().time() - max(since, self._last_taken)
        if max(wait, silent) <= MOST_WAIT:
            return ""
        told = f"says to wait for {wait / 60:.0f}" if wait > MOST_WAIT else f"has refused all of {silent / 60:.0f}"
        return (
            f"The provider's limit is used up: it {told} minutes. Run again after that; with a reply cache, what "
            "it answered before is not asked again."
        )

    def next_turn(self) -> int:
        """A turn after all that were given out before."""
        return next(self._turns)

    def enter(self, tokens: int = 0, turn: int | None = None) -> Sent:
        """Queue a request; its `departure` is done when it may go.

        Args:
            tokens: An estimate of the tokens that it sends and receives.
            turn: What `next_turn` said when it was first to be sent; None for a new one. The lowest goes first: what is
                sent again holds up all that was to come after it.

        Returns:
            What `leave` is to be given, whatever becomes of the request.
        """
        sent = Sent(tokens, asyncio.get_running_loop().create_future())
        arrival = self.next_turn()
        heappush(self.queue, (arrival if turn is None else turn, arrival, sent))
        self._admit()
        return sent

    def leave(
        self, sent: Sent, *, used_tokens: int | None = None, taken: bool = False, refused: bool = False, wait: float = 0
    ) -> None:
        """Give a request's place back.

        Args:
            sent: What `enter` returned.
            used_tokens: Tokens that it used; None where that is not known.
            taken: Whether the server answered it.
            refused: Whether the server refused it for its limits.
            wait: Seconds that the server then says to wait; 0 if it does not say.
        """
        if sent not in self._in_flight:  # it still waits
            sent.departure.cancel()
            return
        self._in_flight.remove(sent)
        if used_tokens is not None:
            self._tokens_paid_until += self._seconds(used_tokens) - self._seconds(sent.tokens)
        self._refused.append(refused)
        if sent.is_slow:
            self._refused_slow.append(refused)
        if taken:
            self._note_taken(sent)
        elif refused:
            self._note_refused(sent, wait)
        asyncio.get_running_loop().call_soon(self._admit)  # when it is known what this means for the run

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.queue and len(self._in_flight) < self._concurrency:
            sent = self.queue[0][2]
            if sent.departure.done():  # given up meanwhile
                heappop(self.queue)
                continue
            now = loop.time()
            moment = max(self._not_before, self._next, self._tokens_paid_until - _TOKEN_BURST)
            if moment > now:
                self._timer = loop.call_later(moment - now, self._admit)
                return
            heappop(self.queue)
            self._in_flight.add(sent)
            sent.departed, sent.in_flight = now, len(self._in_flight)
            sent.is_slow = self._rate < _SLOW * self._most
            self._since = min(self._since, now)
            self._last_taken = min(self._last_taken, now)
            self._next = max(self._next, now - _LATE) + max(self._interval, 1 / self._rate)
            self._tokens_paid_until = max(now, self._tokens_paid_until) + self._seconds(sent.tokens)
            sent.departure.set_result(None)

    def _seconds(self, tokens: int) -> float:
        """How long the server needs to allow so many tokens; a minute's allowance at most is counted."""
        return min(tokens, self._tokens_a_minute) * 60 / (self._tokens_a_minute * _USED)

    def _note_taken(self, sent: Sent) -> None:
        now = asyncio.get_running_loop().time()
        self._refused_in_a_row, self._last_taken = 0, now
        self._rate *= _FASTER
        self._taken.append(now)
        while self._taken[0] < now - _MEMORY:
            self._taken.popleft()
        self._most = max(self._most, len(self._taken) / _MEMORY)
        at_once = min(sent.in_flight, len(self._in_flight) + 1)  # some may have come back before the server had it
        if at_once > self._proven:
            self._proven, self._patience = at_once, 1
        self._quiet += 1
        if self._proven >= self._concurrency < self._maximum and self._quiet >= self._patience * self._concurrency:
            self._concurrency = min(self._maximum, self._concurrency + max(1, self._concurrency // 4))
            self._quiet = 0

    def _note_refused(self, sent: Sent, wait: float) -> None:
        now = asyncio.get_running_loop().time()
        lately = list(self._refused)
        if sent.in_flight > max(self._proven, len(self._in_flight)):
            self._concurrency = max(1, self._proven, len(self._in_flight))
            self._patience, self._quiet = min(2 * self._patience, _PATIENCE), 0
        if len(slow := self._refused_slow) == _SLOW_ONES and not all(slow):
            self._by_chance = max(self._by_chance, min(_MORE * sum(slow) / len(slow), 0.9))
            self._rate, self._most = math.inf, len(self._taken) / _MEMORY
            slow.clear()
        in_a_row = math.ceil(math.log(_HARDLY) / math.log(self._by_chance))
        if not all(lately[-in_a_row:]) and sum(lately) < self._by_chance * len(lately):
            return  # one now and then, at whatever pace, waits alone: if all did, they would come to a standstill
        if sent.departed >= self._adjusted:  # else it left before the last refusal was known, and says nothing new
            self._adjusted = now
            self._by_chance = max(_BY_CHANCE, _TRUST * self._by_chance)
            self._refused_in_a_row += 1
            if all(lately[-2:]):  # else the pace is not far from what the server takes
                taken = (len(self._taken) + len(self._in_flight) + 1) / min(max(now - self._since, 1.0), _MEMORY)
                self._rate = min(self._rate, _AT_MOST * taken)
            self._rate = max(_SLOWEST, _SLOWER * self._rate)
            longest = _SHORT_WAIT if now - self._last_taken < _MEMORY else _LONGEST_WAIT  # a minute's limit ends soon
            told_none = min(_FIRST_WAIT * 2 ** (self._refused_in_a_row - 1), longest)
            self._not_before = max(self._not_before, now + (wait or told_none))
            self._next = max(self._next, self._not_before)
        elif wait:
            self._not_before = max(self._not_before, now + wait)


@dataclass(eq=False)
class Sent:
    """A request that is to be sent, or on its way.

    Args:
        tokens: As they were estimated.
        departure: Done when it may go.
        departed: When that was.
        in_flight: How many it made with those that were on their way.
        is_slow: Whether it left at a pace at which no limit should refuse it.
    """

    tokens: int
    departure: asyncio.Future[None]
    departed: float = math.inf
    in_flight: int = 0
    is_slow: bool = False


# What they may use


class BudgetError(LLMError):
    """The budget does not allow another request. What was paid for is kept where there is a reply cache."""


@dataclass(frozen=True)
class Budget:
    """What may be used; None means no limit.

    Args:
        max_cost: US dollars.
        max_tokens_total: Tokens sent and received.
    """

    max_cost: float | None = None
    max_tokens_total: int | None = None


@dataclass
class Meter:
    """Counts what is used, in any thread, and says whether another request is within the budget.

    Requests are reckoned with as earlier ones turned out: a model that thinks before it replies uses several times what
    is expected.

    Args:
        budget: What may be used.
        price: What it costs; None where that is not known.
        usage: What was used so far.
        cache_hits: As in `RequestFigures`, like `refused` and `failed`.
    """

    budget: Budget
    price: Price | None
    usage: Usage = NOTHING
    cache_hits: int = 0
    refused: int = 0
    failed: int = 0
    _under_way: Usage = NOTHING  # what is expected of requests that are under way
    _expected: Usage = NOTHING  # what was expected of those that were answered, and what they came to
    _came_to: Usage = NOTHING
    _lock: Any = field(default_factory=threading.Lock)

    def figures(self, model: str) -> RequestFigures:
        """What the requests to a model came to so far."""
        with self._lock:
            cost = None if self.price is None else self.price.of(self.usage)
            return RequestFigures(self.usage, cost, self.cache_hits, self.refused, self.failed, model)

    def reserve(self, expected: Usage) -> bool:
        """Set aside what a request is expected to use; False where that may be possible after others are back.

        Raises:
            BudgetError: It cannot be done, whatever the requests that are under way turn out to use.
        """
        with self._lock:
            is_alone = not self._under_way.requests
            spare = _SPARE if self._came_to.requests else _SPARE_AT_FIRST
            if self._fits(self._under_way + expected, 1.0 if is_alone else spare):
                self._under_way += expected
                return True
            if not is_alone and self._fits(expected):
                return False
        raise BudgetError(self._message())

    def settle(self, expected: Usage | None, used: Usage | None) -> None:
        """Replace what was set aside for a request by what it used; None where nothing was, or it was not answered."""
        with self._lock:
            self._under_way -= expected or NOTHING
            self.usage += used or NOTHING
            if expected is not None and used is not None:
                self._expected, self._came_to = self._expected + expected, self._came_to + used

    def count(self, what: Literal["cache_hits", "refused", "failed"]) -> None:
        """Count a reply that was there before, or an attempt that failed."""
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)

    def _fits(self, expected: Usage, spare: float = 1.0) -> bool:
        """Whether what was used and what more is expected are within the budget."""
        sent = max(1.0, self._came_to.input_tokens / max(self._expected.input_tokens, 1))
        received = max(1.0, self._came_to.output_tokens / max(self._expected.output_tokens, 1)) * spare
        more = Usage(0, round(expected.input_tokens * sent), round(expected.output_tokens * received))
        usage, budget = self.usage + more, self.budget
        if budget.max_tokens_total is not None and usage.total_tokens > budget.max_tokens_total:
            return False
        return budget.max_cost is None or self.price is None or self.price.of(usage) <= budget.max_cost

    def _message(self) -> str:
        budget, used = self.budget, self.usage
        spent = f"{used.total_tokens:,} tokens" + (f" (${self.price.of(used):.4f})" if self.price is not None else "")
        limits = [f"max_cost is ${budget.max_cost:g}"] if budget.max_cost is not None else []
        limits += [f"max_tokens_total is {budget.max_tokens_total:,}"] if budget.max_tokens_total is not None else []
        return (
            f"The budget does not allow another request: {spent} used in {used.requests:,} requests, and "
            f"{' and '.join(limits)}. Raise it and run again; with a reply cache nothing is paid for twice."
        )
