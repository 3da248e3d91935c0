"""What all calls of one `LLMPropositionizer` share: the clients, the limits, the budget, the replies that are kept."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from llama_index.core.llms import LLM
from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_pack_densex.llm_requests.clients import close_async_client, without_retries
from llama_pack_densex.llm_requests.llm_reference import output_settings, secrets_of
from llama_pack_densex.llm_requests.metering import Budget, Meter
from llama_pack_densex.llm_requests.pacing import Pacer
from llama_pack_densex.llm_requests.prices import price_of, read_prices
from llama_pack_densex.llm_requests.reply import NOTHING, Usage
from llama_pack_densex.llm_requests.reply_cache import ReplyCache
from llama_pack_densex.llm_requests.sending import Sender

Prices = str | Path | Mapping[str, Any] | None
CacheSpec = ReplyCache | str | Path | BaseKVStore | Callable[[], BaseKVStore]


DEFAULT_CONCURRENCY = 8
_MOST_CONCURRENCY = 256
_SLOW_REPLY = 8.0  # seconds
_A_REQUEST = 800  # tokens, sent and received: the instructions, and a passage of 170 tokens with its propositions


@dataclass(frozen=True)
class Limits:
    """What a propositionizer keeps to (see `LLMPropositionizer`)."""

    max_concurrency: int | None
    max_retries: int
    retry_wait: float
    requests_per_minute: float | None
    tokens_per_minute: float | None
    max_cost: float | None
    max_tokens_total: int | None
    workers: int

    @property
    def concurrency(self) -> int:
        """Requests in flight at a time: the number that was chosen, else what the rates take if a reply is slow.

        Told a rate, it is the rate that should bound a run; without one, little is known of the server.
        """
        if self.max_concurrency is not None:
            return self.max_concurrency
        rates = [
            *([self.requests_per_minute] if self.requests_per_minute else []),
            *([self.tokens_per_minute / _A_REQUEST] if self.tokens_per_minute else []),
        ]
        if not rates:
            return DEFAULT_CONCURRENCY
        needed = math.ceil(min(rates) / self.workers / 60 * _SLOW_REPLY)
        return min(max(needed, DEFAULT_CONCURRENCY), _MOST_CONCURRENCY)


class Session:
    """The sender of a propositionizer, and the clients it sends with.

    Args:
        llm: The LLM.
        limits: What to keep to; rates and budgets are divided by the number of workers.
        prices: Beside the package's own.
        cache: Where replies are kept; None for nowhere.
        used: What was used before.

    Raises:
        ValueError: There is a `max_cost`, and the model's price is not known.
    """

    def __init__(
        self, llm: LLM, limits: Limits, prices: Prices, cache: ReplyCache | None, used: Usage = NOTHING
    ) -> None:
        self.made_of: tuple[Limits, ReplyCache | None] = (limits, cache)
        self._llm = llm
        settings = output_settings(llm)
        self.model = str(settings.get("model") or settings.get("model_name") or settings.get("model_id") or "")
        price = price_of(self.model, read_prices(prices))
        if limits.max_cost is not None and price is None:
            raise ValueError(
                f"max_cost needs the price of {self.model or 'the model'}, which is not in the price table: pass "
                f'prices={{{self.model!r}: {{"input": ..., "output": ...}}}}, in US dollars for a million tokens'
            )
        share = limits.workers
        budget = Budget(
            None if limits.max_cost is None else limits.max_cost / share,
            None if limits.max_tokens_total is None else limits.max_tokens_total // share,
        )
        self.meter = Meter(budget, price, used)
        pacer = Pacer(
            limits.concurrency,
            None if limits.requests_per_minute is None else limits.requests_per_minute / share,
            None if limits.tokens_per_minute is None else limits.tokens_per_minute / share,
        )

        def make_sender(cache: ReplyCache | None) -> Sender:
            return Sender(
                {"llm": type(llm).__qualname__, **settings},
                pacer,
                self.meter,
                cache,
                max_retries=limits.max_retries,
                retry_wait=limits.retry_wait,
                counts_ahead=limits.tokens_per_minute is not None or budget != Budget(),
                secrets=secrets_of(llm),
            )

        self._make_sender = make_sender
        self.sender = make_sender(cache)
        self._lock = threading.Lock()
        self._in_threads: LLM | None = None
        self._in_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _InLoop] = WeakKeyDictionary()

    def with_cache(self, cache: ReplyCache) -> Session:
        """The same limits, counters and clients with another cache."""
        session = copy(self)
        session.made_of = (self.made_of[0], cache)
        session.sender = self._make_sender(cache)
        return session

    def llm_in_threads(self) -> LLM:
        """The LLM to call synchronously."""
        with self._lock:
            if self._in_threads is None:
                self._in_threads = without_retries(self._llm)
            return self._in_threads

    @asynccontextmanager
    async def llm_in_loop(self) -> AsyncIterator[LLM]:
        """The LLM to call asynchronously in the running event loop; its client is closed when no call uses it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            used = self._in_loops.setdefault(loop, _InLoop())
            used.calls += 1
            if used.llm is None:
                used.llm = without_retries(self._llm)
        try:
            yield used.llm
        finally:
            with self._lock:
                used.calls -= 1
                is_last = not used.calls
                if is_last:
                    self._in_loops.pop(loop, None)
            if is_last:
                await close_async_client(used.llm, self._llm)


@dataclass
class _InLoop:
    llm: LLM | None = None
    calls: int = 0
