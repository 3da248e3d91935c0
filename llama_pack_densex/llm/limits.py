"""How fast requests go: no more at a time, and no more a minute, than the server takes, told or not told."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

_USED = 0.985  # of an allowance that was told: a server may see evenly spaced requests closer together
_LATE = 0.01  # seconds by which a request that leaves late does not shift those after it
_TOKEN_BURST = 0.5  # seconds' worth of tokens that may go at once: requests differ in size
_MEMORY = 60.0  # seconds in which it is counted what a server took: most servers count in minutes
_AT_MOST = 1.15  # times what it took in the last minute
_SLOWER, _FASTER = 0.9, 1.02
_SLOWEST = 0.05  # requests a second
_FIRST_WAIT, _SHORT_WAIT, _LONGEST_WAIT = 0.5, 8.0, 60.0  # seconds after a refusal that does not say how long
_PATIENCE = 16  # times the requests in flight: after so many that were taken, one more at a time is tried at the latest
MOST_WAIT = 900.0
"""Seconds: a server that takes nothing for so long is not waited for."""


class Limits:
    """Lets requests through, in one event loop: the first come go first, and one that is sent again keeps its place.

    Where a server refuses, nothing is sent until the moment that it told, or for a growing time if it told none. What
    it took in the last minute then says how fast the next ones go: a little faster with each that is taken, slower with
    each that is refused. No more are in flight than it has proved to take, and one more now and then to try.

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
    """

    def __init__(
        self, max_concurrency: int, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        self._maximum = self._concurrency = max_concurrency
        self._interval = 60 / (requests_per_minute * _USED) if requests_per_minute else 0.0
        self.counts_tokens, self._tokens_a_minute = tokens_per_minute is not None, tokens_per_minute or math.inf
        self._next = self._tokens_paid_until = self._not_before = self._adjusted = -math.inf
        self._queue: list[tuple[int, int, Sent]] = []
        self._turns = count(1)
        self._in_flight: set[Sent] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._taken: deque[float] = deque()  # when requests came back that the server had taken
        self._rate = math.inf  # requests a second, as far as the server's refusals tell
        self._since = self._last_taken = math.inf  # the first from when the first request left
        self._quiet, self._patience, self._proven, self._refused_in_a_row = 0, 1, 0, 0

    @property
    def is_waited_for(self) -> bool:
        """Whether requests wait for their turn."""
        return bool(self._queue)

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
        heappush(self._queue, (arrival if turn is None else turn, arrival, sent))
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
        if taken:
            self._note_taken(sent)
        elif refused:
            self._note_refused(sent, wait)
        self._admit()

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and len(self._in_flight) < self._concurrency:
            sent = self._queue[0][2]
            if sent.departure.done():  # given up meanwhile
                heappop(self._queue)
                continue
            now = loop.time()
            moment = max(self._not_before, self._next, self._tokens_paid_until - _TOKEN_BURST)
            if moment > now:
                self._timer = loop.call_later(moment - now, self._admit)
                return
            heappop(self._queue)
            self._depart(sent, now)
            sent.departure.set_result(None)

    def _depart(self, sent: Sent, now: float) -> None:
        sent.departed = now
        self._in_flight.add(sent)
        sent.in_flight = len(self._in_flight)
        self._since = min(self._since, now)
        self._last_taken = min(self._last_taken, now)
        self._next = max(self._next, now - _LATE) + max(self._interval, 1 / self._rate)
        self._tokens_paid_until = max(now, self._tokens_paid_until) + self._seconds(sent.tokens)

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
        if sent.in_flight > self._proven:
            self._proven, self._patience = sent.in_flight, 1
        self._quiet += 1
        if self._proven >= self._concurrency < self._maximum and self._quiet >= self._patience * self._concurrency:
            self._concurrency = min(self._maximum, self._concurrency + max(1, self._concurrency // 4))
            self._quiet = 0

    def _note_refused(self, sent: Sent, wait: float) -> None:
        now = asyncio.get_running_loop().time()
        if sent.departed >= self._adjusted:  # else it left before the last refusal was known, and says nothing new
            self._adjusted = now
            self._refused_in_a_row += 1
            taken = (len(self._taken) + len(self._in_flight) + 1) / min(max(now - self._since, 1.0), _MEMORY)
            self._rate = max(_SLOWEST, _SLOWER * min(self._rate, _AT_MOST * taken))
            longest = _SHORT_WAIT if now - self._last_taken < _MEMORY else _LONGEST_WAIT  # a minute's limit ends soon
            told_none = min(_FIRST_WAIT * 2 ** (self._refused_in_a_row - 1), longest)
            self._not_before = max(self._not_before, now + (wait or told_none))
            self._next = max(self._next, self._not_before)
        elif wait:
            self._not_before = max(self._not_before, now + wait)
        if sent.in_flight > max(self._proven, len(self._in_flight)):
            self._concurrency = max(1, self._proven, len(self._in_flight))
            self._patience, self._quiet = min(2 * self._patience, _PATIENCE), 0


@dataclass(eq=False)
class Sent:
    """A request that is to be sent, or on its way.

    Args:
        tokens: As they were estimated.
        departure: Done when it may go.
        departed: When that was.
        in_flight: How many it made with those that were on their way.
    """

    tokens: int
    departure: asyncio.Future[None]
    departed: float = math.inf
    in_flight: int = 0
