"""How fast requests go to an LLM: no more at a time, and no more a minute, than its server takes."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from llama_pack_densex.llm_requests.adapting import AdaptiveConcurrency, Outcome

__all__ = ["Outcome", "Pacer"]

_USED = 0.985  # of an allowance: in 1.5 % less time the server may have seen the requests that were to be evenly spaced
_RECOVERED = 0.005  # of the time that goes by: how fast lost time is made up for
_SPREAD = 0.008  # seconds by which wake-ups may differ before it is the spacing that suffers
_EARLY = 0.001  # seconds: an event loop does not wake more exactly
_TOKEN_BURST = 0.5  # seconds' worth of tokens that may go at once: requests differ in size


class Pacer:
    """Lets requests through: not more at a time, nor more a minute, than a server takes.

    One for all calls of a propositionizer, in any thread and any event loop. Requests are spaced evenly, a little below
    the allowance, whatever the server counts in (a sliding minute, fixed seconds, a bucket that fills up). The first
    come go first, and one that is sent again keeps its turn. How many are in flight follows from what the server
    refuses (`AdaptiveConcurrency`).

    Args:
        max_concurrency: The most requests in flight.
        requests_per_minute: Requests that the server allows; None: what it says when it refuses one, else any number.
        tokens_per_minute: Tokens, sent and received together, that the server allows; None: any number.
        clock: Seconds, as `time.monotonic` counts them.

    Raises:
        ValueError: `max_concurrency` is below 1, or an allowance is not a finite number above 0.

    Examples:
        >>> pacer = Pacer(64, requests_per_minute=600)
        >>> await pacer.enter(tokens=900)
        >>> try:
        ...     response = await llm.achat(messages)
        ... except BaseException:  # a cancelled request gives its slot back too
        ...     pacer.leave("failed")
        ...     raise
        ... else:
        ...     pacer.leave("ok", used_tokens=780, estimated_tokens=900)
    """

    def __init__(
        self,
        max_concurrency: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        for name, value in {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}.items():
            if value is not None and not _is_allowance(value):
                raise ValueError(f"{name} must be a finite number above 0, not {value}")
        self._clock = clock
        self._adaptive = AdaptiveConcurrency(max_concurrency)
        self._requests = RequestSchedule(requests_per_minute) if requests_per_minute is not None else None
        self._tokens = TokenSchedule(tokens_per_minute) if tokens_per_minute is not None else None
        self._is_given = requests_per_minute is not None
        self._adopted: float | None = None
        self._queue: list[tuple[int, int, _Ticket]] = []  # a heap by turn
        self._turns, self._arrivals = count(1), count(1)
        self._slots_taken = 0
        self._in_flight = 0  # those among them that need not wait for the rates any more
        # What happens is put here, and whoever finds the lock free deals with it. Nothing ever waits for the lock: a
        # coroutine that the garbage collector closes may call in from anywhere, even from within these methods.
        self._events: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight at the moment."""
        return self._adaptive.limit

    def next_turn(self) -> int:
        """A turn after all that were given out before."""
        return next(self._turns)

    async def enter(self, tokens: int, turn: int | None = None) -> None:
        """Wait for a free slot, then for the rates. Cancelled, it gives back what it has.

        Args:
            tokens: An estimate of the tokens that the request sends and receives.
            turn: What `next_turn` said when it was first to be sent; None for a new one. The lowest goes first: what is
                sent again holds up all that was to come after it.
        """
        ticket = _Ticket(tokens, asyncio.get_running_loop(), self.next_turn() if turn is None else turn)
        try:
            moment = await self._ask(self._join, ticket)
            while moment is not None:
                await asyncio.sleep(moment - self._clock())
                moment = await self._ask(self._go, ticket)
        except BaseException:  # GeneratorExit too: the event loop was closed over it
            self._deal_with(lambda: self._abandon(ticket))
            raise

    def leave(
        self,
        outcome: Outcome,
        used_tokens: int | None = None,
        estimated_tokens: int = 0,
        limit_per_minute: float | None = None,
    ) -> None:
        """Give the slot back. Never waits, and may be called from any thread.

        Args:
            outcome: How the attempt ended: "refused" only for the server's rate or concurrency limit.
            used_tokens: Tokens that the request used; None where that is not known.
            estimated_tokens: What `enter` was told, to be set right by `used_tokens`.
            limit_per_minute: Requests a minute that the refusing server says it allows. It becomes the pace where the
                user gave none.
        """
        self._deal_with(lambda: self._finish(outcome, used_tokens, estimated_tokens, limit_per_minute))

    async def _ask(self, event: Callable[[_Ticket], None], ticket: _Ticket) -> float | None:
        """Return the moment to wait for, or None when the request may go."""
        ticket.answer = ticket.loop.create_future()
        self._deal_with(lambda: event(ticket))
        return await ticket.answer

    def _deal_with(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        while self._events and self._lock.acquire(blocking=False):
            try:
                while self._events:
                    self._events.popleft()()
            finally:
                self._lock.release()

    def _join(self, ticket: _Ticket) -> None:
        heappush(self._queue, (ticket.turn, next(self._arrivals), ticket))
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._slots_taken < self._adaptive.limit:
            _, _, ticket = heappop(self._queue)
            if ticket.is_abandoned:
                continue
            self._slots_taken += 1
            ticket.has_slot = True
            self._reserve(ticket)
            self._go(ticket)

    def _reserve(self, ticket: _Ticket) -> None:
        if self._requests is None and self._tokens is None:
            return
        now = self._clock()
        not_before = self._tokens.reserve(ticket.tokens, now) if self._tokens is not None else now
        ticket.schedule = self._requests
        if ticket.schedule is not None:
            ticket.place = ticket.schedule.reserve(now, not_before)
        elif not_before > now:
            ticket.place = not_before

    def _go(self, ticket: _Ticket) -> None:
        """Let a request that has its slot go, or tell it how long to wait."""
        moment = None
        if ticket.place is not None:
            now = self._clock()
            if ticket.schedule is not None:
                moment = ticket.schedule.depart(ticket.place, now)
            elif ticket.place > now + _EARLY:
                moment = ticket.place
        if moment is None:
            self._in_flight += 1
            ticket.is_in_flight = True
        self._reply(ticket, moment)

    def _reply(self, ticket: _Ticket, moment: float | None) -> None:
        if ticket.loop is _running_loop():
            _resolve(ticket.answer, moment)
            return
        try:
            ticket.loop.call_soon_threadsafe(_resolve, ticket.answer, moment)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            self._events.append(lambda: self._abandon(ticket))

    def _abandon(self, ticket: _Ticket) -> None:
        if ticket.is_abandoned:
            return
        ticket.is_abandoned = True
        if not ticket.has_slot:
            return
        self._slots_taken -= 1
        self._in_flight -= ticket.is_in_flight
        if self._tokens is not None:
            self._tokens.correct(0, ticket.tokens)
        if ticket.schedule is not None and ticket.place is not None:
            ticket.schedule.give_back(ticket.place)
        self._admit()

    def _finish(self, outcome: Outcome, used: int | None, estimated: int, limit_per_minute: float | None) -> None:
        if outcome != "refused" or limit_per_minute is None:  # else it was too soon, and not one too many
            self._adaptive.record(outcome, self._in_flight)
        self._slots_taken -= 1
        self._in_flight -= 1
        if self._tokens is not None and used is not None:
            self._tokens.correct(used, estimated)
        if limit_per_minute not in (None, self._adopted) and not self._is_given and _is_allowance(limit_per_minute):
            self._adopted = limit_per_minute
            self._requests = RequestSchedule(limit_per_minute)
        self._admit()


class RequestSchedule:
    """Moments for requests to leave at, evenly spaced.

    A reservation is a place in a timetable that is never shifted by requests that leave late. What they need is held
    apart: `_behind`, by how much everybody is late, so that the spacing stays as it was after a stall. It is made up
    for slowly, from what is left of the allowance. Only what is later than usual counts: a loop that always wakes
    8 ms late keeps the spacing.

    Args:
        per_minute: Requests that the server allows.
    """

    def __init__(self, per_minute: float) -> None:
        self._interval = 60 / (per_minute * _USED)
        self._next = -math.inf
        self._behind = 0.0
        self._usually_late = 0.0
        self._departed = -math.inf
        self._free: dict[float, float] = {}  # places given back: the place after each, and the place

    def reserve(self, now: float, not_before: float) -> float:
        """Take the next free place at which the request leaves at `not_before` or later, and return it."""
        self._free = {after: place for after, place in self._free.items() if place + self._behind >= now}
        for after, place in sorted(self._free.items()):
            if place + self._behind >= not_before:
                del self._free[after]
                return place
        place = max(self._next, not_before - self._behind)
        self._next = place + self._interval
        return place

    def give_back(self, place: float) -> None:
        """Free a place that nobody left at."""
        self._free[place + self._interval] = place
        while (last := self._free.pop(self._next, None)) is not None:
            self._next = last

    def depart(self, place: float, now: float) -> float | None:
        """Return None when the request at a place may leave, else the moment to wait for."""
        since = min(max(now - self._departed, 0.0), self._interval)
        behind = max(self._behind - since * _RECOVERED, 0.0)
        late = now - place - behind
        if late < -_EARLY:
            return place + behind
        self._departed = now
        self._behind = behind + max(late - self._usually_late - _SPREAD, 0.0)
        self._usually_late += (min(late, 3 * _SPREAD) - self._usually_late) / 16
        return None


class TokenSchedule:
    """Moments at which a server has tokens to give, by estimates that are set right afterwards.

    Args:
        per_minute: Tokens that the server allows.
    """

    def __init__(self, per_minute: float) -> None:
        self._allowance = per_minute
        self._seconds_per_token = 60 / (per_minute * _USED)
        self._paid_until = -math.inf

    def reserve(self, tokens: int, now: float) -> float:
        """Take tokens, and return the moment at which they are there; a minute's allowance at most is counted."""
        moment = max(now, self._paid_until - _TOKEN_BURST)
        self._paid_until = max(moment, self._paid_until) + self._seconds(tokens)
        return moment

    def correct(self, used: int, estimated: int) -> None:
        """Count the tokens that were used in place of those that were estimated."""
        self._paid_until += self._seconds(used) - self._seconds(estimated)

    def _seconds(self, tokens: int) -> float:
        return min(tokens, self._allowance) * self._seconds_per_token


@dataclass(eq=False)
class _Ticket:
    """A request on its way in."""

    tokens: int
    loop: asyncio.AbstractEventLoop
    turn: int
    answer: asyncio.Future[float | None] = field(init=False)
    schedule: RequestSchedule | None = None  # the one that the place is on: another may be adopted meanwhile
    place: float | None = None
    has_slot: bool = False
    is_in_flight: bool = False
    is_abandoned: bool = False


def _is_allowance(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(answer: asyncio.Future[float | None], moment: float | None) -> None:
    if not answer.done():
        answer.set_result(moment)
