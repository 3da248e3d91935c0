"""When requests may go: the limits a server was said to have, and those it turns out to have."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

MOST_WAIT = 900.0
"""Seconds: a server that takes nothing for longer is not waited for."""

# of a stated allowance: a server may see evenly spaced requests closer together
_USED_SHARE = 0.985
_LATENESS = 0.01  # seconds by which a request that leaves late does not delay those after it
_TOKEN_BURST = 0.5  # seconds' worth of tokens that may go at once: requests differ in size

# How a server's own limits are found; chosen by simulating the servers of tests/llm/test_limits.py.
_MEMORY = 60.0  # seconds over which throughput is measured: most servers count in minutes
_FASTER = 1.02  # with each request that is taken
_SLOWER = 0.9  # with each round of refusals ...
_ABOVE_THROUGHPUT = 1.08  # ... and to no more than this many times the throughput
_SLOWEST = 0.05  # requests a second
_SHORTEST_WAIT = 0.5  # seconds after a refusal that names no time
_LONGEST_WAIT = 15.0
_RECENT = 48  # requests over which the share of refusals is averaged
_CHANCE_SHARE = 0.2  # of requests that a server may refuse at random without having a limit
_MOST_CHANCE_SHARE = 0.9
# times the share that slowing down did not change: more than that is a limit again
_ABOVE_CHANCE = 1.5
_FORGETTING = 0.97  # of that share, with each round of refusals
# of slowing down in a row; fewer mistake a limit that falls to a tenth for chance
_VAIN_ROUNDS = 24
_MORE = 1 / 64  # of a request at a time, with each that is taken


class Limits:
    """Lets requests through, in one event loop: first come, first served, and a retried one keeps its place.

    Once a server refuses, nothing is sent until the moment it named, or for a growing time if it named none.
    Its recent throughput then sets the pace: a little faster with each request taken, slower with each round
    of refusals. No more are in flight than it has proved to take, with a few more tried now and then. A
    refusal among many answers does not indicate a limit and delays that request alone; neither do refusals
    that stay as frequent at any pace.

    Args:
        max_concurrency: The most requests in flight, at least 1.
        requests_per_minute: Requests that the server allows, more than 0; None: as many as it turns out to
            take.
        tokens_per_minute: Tokens, sent and received together, that the server allows; None: any number.

    Example:
        >>> limits = Limits(64, requests_per_minute=600)
        >>> ticket = limits.enter(tokens=900)
        >>> # not run: needs an event loop, and an LLM
        >>> await ticket.departure  # doctest: +SKIP
        >>> response = await llm.achat(messages)  # doctest: +SKIP
        >>> limits.leave(ticket, used_tokens=780, taken=True)  # doctest: +SKIP

    Attributes:
        counts_tokens: Whether the server limits tokens.
        queue: Requests waiting for their turn: the number of their turn, that of their arrival, and their
            ticket.
    """

    def __init__(
        self,
        max_concurrency: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._interval = 60 / (requests_per_minute * _USED_SHARE) if requests_per_minute else 0.0
        self.counts_tokens = tokens_per_minute is not None
        self._tokens_per_minute = (tokens_per_minute or math.inf) * _USED_SHARE
        self._pace = _Pace(max_concurrency, max_concurrency)
        self._next_departure = -math.inf
        self._tokens_paid_until = -math.inf
        self.queue: list[tuple[int, int, Ticket]] = []
        self._turns = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def used_up(self, wait: float, since: float) -> str:
        """Say why a refused request need not be sent again, as that would be too long from now; "" where it
        may be.

        Args:
            wait: Seconds that the server says to wait.
            since: When the request was first refused.
        """
        silence = asyncio.get_running_loop().time() - max(since, self._pace.last_taken)
        if max(wait, silence) <= MOST_WAIT:
            return ""
        reason = f"has refused all of {silence / 60:.0f}"
        if wait > MOST_WAIT:
            reason = f"says to wait for {wait / 60:.0f}"
        return (
            f"The provider's limit is used up: it {reason} minutes. Run again after that; with a reply "
            "cache, what it answered before is not asked again."
        )

    def next_turn(self) -> int:
        """A turn after all those given out before."""
        return next(self._turns)

    def enter(self, tokens: int = 0, turn: int | None = None) -> Ticket:
        """Queue a request; its `departure` is done when it may go.

        Args:
            tokens: An estimate of the tokens it sends and receives.
            turn: What `next_turn` returned when it was first to be sent; None for a new one. The lowest goes
                first: a retried request goes ahead of everything that came after it.

        Returns:
            What `leave` needs, whatever becomes of the request.
        """
        ticket = Ticket(tokens, asyncio.get_running_loop().create_future())
        arrival = self.next_turn()
        heappush(self.queue, (arrival if turn is None else turn, arrival, ticket))
        self._admit()
        return ticket

    def leave(
        self,
        ticket: Ticket,
        *,
        used_tokens: int | None = None,
        taken: bool = False,
        refused: bool = False,
        wait: float = 0,
    ) -> None:
        """Give a request's place back.

        Args:
            ticket: What `enter` returned.
            used_tokens: Tokens that it used; None where that is not known.
            taken: Whether the server answered it.
            refused: Whether the server refused it because of its limits.
            wait: Seconds that the server then says to wait; 0 if it does not say.
        """
        if not ticket.in_flight:  # it is still waiting
            ticket.departure.cancel()
            return
        self._pace.in_flight -= 1
        if used_tokens is not None:
            self._tokens_paid_until += self._seconds(used_tokens) - self._seconds(ticket.tokens)
        loop = asyncio.get_running_loop()
        if taken:
            self._pace.note_taken(ticket, loop.time())
        elif refused:
            self._pace.note_refused(ticket, loop.time(), wait)
        loop.call_soon(self._admit)  # once it is known what this means for the run

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        pace = self._pace
        if self._timer is not None:
            self._timer.cancel()
        while self.queue and pace.in_flight < int(pace.concurrency):
            ticket = self.queue[0][2]
            now = loop.time()
            departure = max(
                pace.not_before, self._next_departure, self._tokens_paid_until - _TOKEN_BURST
            )
            if departure > now and not ticket.departure.done():
                self._timer = loop.call_later(departure - now, self._admit)
                return
            heappop(self.queue)
            if ticket.departure.done():  # given up meanwhile
                continue
            pace.in_flight += 1
            pace.begun = min(pace.begun, now)
            ticket.in_flight = pace.in_flight
            ticket.departed = now
            interval = max(self._interval, 1 / pace.rate)
            self._next_departure = max(self._next_departure, now - _LATENESS) + interval
            self._tokens_paid_until = max(self._tokens_paid_until, now) + self._seconds(
                ticket.tokens
            )
            ticket.departure.set_result(None)

    def _seconds(self, tokens: int) -> float:
        """How long the server needs to allow so many tokens; at most a minute's allowance counts."""
        return min(tokens, self._tokens_per_minute) * 60 / self._tokens_per_minute


@dataclass(eq=False)
class Ticket:
    """A request that is to be sent, or on its way.

    Args:
        tokens: The estimate.
        departure: Done when it may go.
        departed: When that was.
        in_flight: How many were in flight then, this one included; 0 until then.
    """

    tokens: int
    departure: asyncio.Future[None]
    departed: float = math.inf
    in_flight: int = 0


@dataclass
class _Pace:
    """How fast a server turns out to take requests, learned from those it takes and those it refuses.

    Args:
        max_concurrency: The most requests in flight.
        concurrency: How many may be in flight now.
        in_flight: How many are.
        rate: Requests a second.
        not_before: When the next one may leave.
        begun: When the first one left.
        last_taken: When the last answer came.
    """

    max_concurrency: int
    concurrency: float
    in_flight: int = 0
    rate: float = math.inf
    not_before: float = -math.inf
    begun: float = math.inf
    last_taken: float = -math.inf
    _taken: float = 0.0  # requests in about the last minute, up to the last one
    _refused_share: float = _CHANCE_SHARE  # of the recent requests
    _chance_share: float = _CHANCE_SHARE
    _slowed_down_at: float = -math.inf
    _vain_rounds: int = 0
    _proven: int = 0  # requests in flight that the server took

    def note_taken(self, ticket: Ticket, now: float) -> None:
        """Take note of a request that was answered."""
        self._refused_share -= self._refused_share / _RECENT
        self._taken = self._taken_lately(now) + 1
        self.last_taken = now
        self.rate *= _FASTER
        # some that were in flight when it left may have come back before the server had it
        self._proven = max(self._proven, min(ticket.in_flight, self.in_flight + 1))
        if self._proven >= int(self.concurrency):
            self.concurrency = min(self.max_concurrency, self.concurrency + _MORE)

    def note_refused(self, ticket: Ticket, now: float, wait: float) -> None:
        """Take note of a request that was refused, and of how long the server says to wait."""
        self._refused_share += (1 - self._refused_share) / _RECENT
        if ticket.in_flight > max(self._proven, self.in_flight):
            self.concurrency = max(1, self._proven, self.in_flight)
        if self._refused_share < self._chance_share:
            self._vain_rounds = 0
            return  # a few at random wait alone: if all did, everything would come to a standstill
        if ticket.departed >= self._slowed_down_at:  # those that left earlier tell nothing new
            self._slow_down(now)
            wait = wait or min(
                max(now - max(self.begun, self.last_taken), _SHORTEST_WAIT), _LONGEST_WAIT
            )
        self.not_before = max(self.not_before, now + wait)

    def _slow_down(self, now: float) -> None:
        self._slowed_down_at = now
        self._chance_share = max(_CHANCE_SHARE, _FORGETTING * self._chance_share)
        self._vain_rounds += 1
        if self._vain_rounds > _VAIN_ROUNDS:  # the server refuses as many at any pace
            self._vain_rounds = 0
            self._chance_share = min(_ABOVE_CHANCE * self._refused_share, _MOST_CHANCE_SHARE)
            self.rate = math.inf
            return
        seconds = min(max(now - self.begun, 1.0), _MEMORY)
        throughput = (self._taken_lately(now) + self.in_flight + 1) / seconds
        self.rate = max(_SLOWEST, min(_SLOWER * self.rate, _ABOVE_THROUGHPUT * throughput))

    def _taken_lately(self, now: float) -> float:
        """Requests taken in the last minute, the older the less they count."""
        return self._taken * math.exp((self.last_taken - now) / _MEMORY)
