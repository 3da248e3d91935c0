"""Pacing of requests: by the limits that a server is said to have, and by those that it turns out to have."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

MOST_WAIT = 900.0
"""Seconds to wait for a server that takes no request; then the run ends."""

# share of a stated allowance that is used: evenly spaced requests may reach the server closer together
_USED_SHARE = 0.985
_LATENESS = 0.01  # seconds by which a request may leave late without delaying those after it
_TOKEN_BURST = 0.5  # seconds' worth of tokens that may be sent ahead, as requests differ in size

# Parameters for finding a server's limits, chosen by simulating the servers of tests/llm/test_limits.py.
_MEMORY = 60.0  # seconds over which throughput is measured: most servers count in minutes
_FASTER = 1.02  # factor on the rate for each request that is taken
_SLOWER = 0.9  # factor on the rate for each round of refusals ...
_ABOVE_THROUGHPUT = 1.08  # ... after which it is at most this many times the throughput
_SLOWEST = 0.05  # requests per second
_SHORTEST_WAIT = 0.5  # seconds after a refusal that does not say how long to wait
_LONGEST_WAIT = 15.0
_RECENT = 48  # requests over which the share of refusals is averaged
_CHANCE_SHARE = 0.2  # of requests that a server may refuse at random without having a limit
_MOST_CHANCE_SHARE = 0.9
# factor on the share of refusals that slowing down did not change; more than that indicates a limit again
_ABOVE_CHANCE = 1.5
_FORGETTING = 0.97  # factor on that share for each round of refusals
# rounds of slowing down in a row; with fewer, a limit that falls to a tenth is mistaken for chance
_VAIN_ROUNDS = 24
_MORE = 1 / 64  # of a request more in flight, for each request that is taken


class Limits:
    """A queue of requests in one event loop: first come, first served; retried requests keep their place.

    When a server refuses a request, nothing is sent until the time that it stated, or for a growing time if
    it stated none. Its recent throughput then sets the pace: a little faster with each request taken,
    slower with each round of refusals. No more requests are in flight than the server has proved to take,
    with a few more tried occasionally. A refusal among many answers does not indicate a limit, and delays
    only that request; the same holds for refusals that stay equally frequent at any pace.

    Args:
        max_concurrency: The maximum number of requests in flight, at least 1.
        requests_per_minute: Requests that the server allows, more than 0; None means as many as it turns out
            to take.
        tokens_per_minute: Tokens, sent and received together, that the server allows; None means any number.

    Example:
        >>> limits = Limits(64, requests_per_minute=600)
        >>> ticket = limits.enter(tokens=900)
        >>> # not run: needs an event loop, and an LLM
        >>> await ticket.departure  # doctest: +SKIP
        >>> response = await llm.achat(messages)  # doctest: +SKIP
        >>> limits.leave(ticket, used_tokens=780, taken=True)  # doctest: +SKIP

    Attributes:
        counts_tokens: Whether the server limits tokens.
        queue: The requests waiting for their turn, each as the number of its turn, that of its arrival, and
            its ticket.
    """

    def __init__(
        self,
        max_concurrency: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._interval = 60 / ((requests_per_minute or math.inf) * _USED_SHARE)
        self.counts_tokens = tokens_per_minute is not None
        self._tokens_per_minute = (tokens_per_minute or math.inf) * _USED_SHARE
        self._pace = _Pace(max_concurrency, max_concurrency)
        self._next_departure = -math.inf
        self._tokens_paid_until = -math.inf
        self.queue: list[tuple[int, int, Ticket]] = []
        self._turns = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def used_up(self, wait: float, since: float) -> str:
        """Return why a refused request is not sent again, since the wait would be too long; "" if it may be.

        Args:
            wait: Seconds that the server says to wait.
            since: The loop time at which the request was first refused.
        """
        silence = asyncio.get_running_loop().time() - max(since, self._pace.last_taken)
        if max(wait, silence) <= MOST_WAIT:
            return ""
        reason = f"has refused all requests for {silence / 60:.0f}"
        if wait > MOST_WAIT:
            reason = f"says to wait for {wait / 60:.0f}"
        return (
            f"The provider's limit is used up: it {reason} minutes. Run again after that; with a reply "
            "cache, requests that it has answered are not sent again."
        )

    def next_turn(self) -> int:
        """Return the number of a turn after all previous ones."""
        return next(self._turns)

    def enter(self, tokens: int = 0, turn: int | None = None) -> Ticket:
        """Queue a request; its ticket's `departure` is done when it may be sent.

        Args:
            tokens: An estimate of the tokens that it sends and receives.
            turn: The number that `next_turn` returned for the request; None for a new one. The lowest goes
                first, so that a retried request goes ahead of everything that came after it.

        Returns:
            The ticket, which must be passed to `leave` whatever becomes of the request.
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
        """Give back the place of a request.

        Args:
            ticket: The ticket that `enter` returned.
            used_tokens: Tokens that the request used; None if that is not known.
            taken: Whether the server answered it.
            refused: Whether the server refused it because of its limits.
            wait: Seconds that the server says to wait after a refusal; 0 if it does not say.
        """
        if not ticket.in_flight:  # it was never sent
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
        loop.call_soon(self._admit)  # after the caller has decided whether the run goes on

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
        """Return how many seconds of the allowance these tokens take, at most a minute."""
        return min(tokens, self._tokens_per_minute) * 60 / self._tokens_per_minute


@dataclass(eq=False)
class Ticket:
    """A request that is waiting to be sent, or in flight.

    Args:
        tokens: The estimated tokens.
        departure: Done when the request may be sent.
        departed: The loop time at which that was.
        in_flight: The number of requests in flight then, including this one; 0 until then.
    """

    tokens: int
    departure: asyncio.Future[None]
    departed: float = math.inf
    in_flight: int = 0


@dataclass
class _Pace:
    """The pace at which a server takes requests, learned from those that it takes and refuses.

    Times are loop times in seconds.

    Args:
        max_concurrency: The maximum number of requests in flight.
        concurrency: The number that may be in flight now.
        in_flight: The number that is in flight.
        rate: Requests per second.
        not_before: The earliest time at which the next request may leave.
        begun: The time at which the first request left.
        last_taken: The time of the last answer.
    """

    max_concurrency: int
    concurrency: float
    in_flight: int = 0
    rate: float = math.inf
    not_before: float = -math.inf
    begun: float = math.inf
    last_taken: float = -math.inf
    _taken: float = 0.0  # decaying count of requests over about a minute, as of `last_taken`
    _refused_share: float = _CHANCE_SHARE  # of the recent requests
    _chance_share: float = _CHANCE_SHARE
    _slowed_down_at: float = -math.inf
    _vain_rounds: int = 0
    _proven: int = 0  # most requests in flight that the server has taken

    def note_taken(self, ticket: Ticket, now: float) -> None:
        """Update the pace after a request was answered."""
        self._refused_share -= self._refused_share / _RECENT
        self._taken = self._taken_lately(now) + 1
        self.last_taken = now
        self.rate *= _FASTER
        # some requests that were in flight when it left may have returned before it reached the server
        self._proven = max(self._proven, min(ticket.in_flight, self.in_flight + 1))
        if self._proven >= int(self.concurrency):
            self.concurrency = min(self.max_concurrency, self.concurrency + _MORE)

    def note_refused(self, ticket: Ticket, now: float, wait: float) -> None:
        """Update the pace after a refusal, given how many seconds the server says to wait."""
        self._refused_share += (1 - self._refused_share) / _RECENT
        if ticket.in_flight > max(self._proven, self.in_flight):
            self.concurrency = max(1, self._proven, self.in_flight)
        if self._refused_share < self._chance_share:
            self._vain_rounds = 0
            return  # random refusals delay only themselves: if all requests waited, none would get through
        if ticket.departed >= self._slowed_down_at:  # requests that left before say nothing new
            self._slow_down(now)
            wait = wait or min(
                max(now - max(self.begun, self.last_taken), _SHORTEST_WAIT), _LONGEST_WAIT
            )
        self.not_before = max(self.not_before, now + wait)

    def _slow_down(self, now: float) -> None:
        self._slowed_down_at = now
        self._chance_share = max(_CHANCE_SHARE, _FORGETTING * self._chance_share)
        self._vain_rounds += 1
        if self._vain_rounds > _VAIN_ROUNDS:  # the share of refusals is the same at any pace
            self._vain_rounds = 0
            self._chance_share = min(_ABOVE_CHANCE * self._refused_share, _MOST_CHANCE_SHARE)
            self.rate = math.inf
            return
        seconds = min(max(now - self.begun, 1.0), _MEMORY)
        throughput = (self._taken_lately(now) + self.in_flight + 1) / seconds
        self.rate = max(_SLOWEST, min(_SLOWER * self.rate, _ABOVE_THROUGHPUT * throughput))

    def _taken_lately(self, now: float) -> float:
        """Return the number of requests taken in about the last minute, recent ones counting more."""
        return self._taken * math.exp((self.last_taken - now) / _MEMORY)
