"""A budget for requests, in dollars and tokens, and the meter that enforces it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from llama_pack_densex.llm.errors import LLMError
from llama_pack_densex.llm.usage import NOTHING, Price, RequestFigures, Usage

_MARGIN = 1.5
_FIRST_MARGIN = 20.0
"""Factors on the expected output of concurrent requests; `_FIRST_MARGIN` applies until the first reply.

Concurrent requests may together exceed a budget by the errors of all their estimates. Near its end they are
sent one by one, so that it is exceeded by the error of one. How much a model thinks is unknown before its
first reply."""


class BudgetError(LLMError):
    """The budget does not allow another request. Paid replies stay in the reply cache, if any."""


@dataclass(frozen=True)
class Budget:
    """The limits of what requests may use; None means no limit.

    Args:
        max_cost: US dollars.
        max_tokens_total: Tokens sent and received.
    """

    max_cost: float | None = None
    max_tokens_total: int | None = None


@dataclass
class Meter:
    """A thread-safe counter of usage that decides whether another request is within the budget.

    Estimates are corrected by how earlier ones turned out: a model that thinks before it replies uses several
    times the estimate.

    Args:
        budget: The limits of usage and cost.
        price: The model's price; None if it is not known.
        usage: The usage so far.
    """

    budget: Budget
    price: Price | None
    usage: Usage = NOTHING
    _counts: Counter[str] = field(default_factory=Counter)
    _reserved: Usage = NOTHING  # for requests in flight
    _expected: Usage = NOTHING  # estimated for the answered requests, and what these actually used
    _actual: Usage = NOTHING
    _lock: Any = field(default_factory=threading.Lock)

    def figures(self, model: str) -> RequestFigures:
        """Return the figures of the requests to a model so far."""
        with self._lock:
            cost = self.price.of(self.usage) if self.price else None
            return RequestFigures(usage=self.usage, cost=cost, model=model, **self._counts)

    def reserve(self, expected: Usage) -> bool:
        """Reserve the expected usage of a request.

        Returns:
            False if there is not enough budget now, but may be once requests in flight have finished.

        Raises:
            BudgetError: There is not enough budget, whatever the requests in flight turn out to use.
        """
        with self._lock:
            is_alone = not self._reserved.requests
            margin = _MARGIN
            if is_alone:
                margin = 1.0
            elif not self._actual.requests:
                margin = _FIRST_MARGIN
            if self._fits(self._reserved + expected, margin):
                self._reserved += expected
                return True
            if not is_alone and self._fits(expected):
                return False
        raise BudgetError(self._message())

    def settle(self, expected: Usage | None, used: Usage | None) -> None:
        """Replace the reservation for a request by its actual usage.

        Args:
            expected: The usage that was reserved; None if nothing was.
            used: The actual usage; None if the request was not answered.
        """
        with self._lock:
            self._reserved -= expected or NOTHING
            self.usage += used or NOTHING
            if expected and used:
                self._expected += expected
                self._actual += used

    def count(self, what: Literal["cache_hits", "refused", "failed"]) -> None:
        """Count a reply that came from the cache, or an attempt that failed."""
        with self._lock:
            self._counts[what] += 1

    def _fits(self, expected: Usage, margin: float = 1.0) -> bool:
        """Return whether the usage so far plus the expected usage is within the budget."""
        input_ratio = _ratio(self._actual.input_tokens, self._expected.input_tokens)
        output_ratio = _ratio(self._actual.output_tokens, self._expected.output_tokens)
        sent = round(expected.input_tokens * input_ratio)
        received = round(expected.output_tokens * output_ratio * margin)
        usage = self.usage + Usage(0, sent, received)
        budget = self.budget
        if budget.max_tokens_total is not None and usage.total_tokens > budget.max_tokens_total:
            return False
        if budget.max_cost is None or not self.price:
            return True
        return self.price.of(usage) <= budget.max_cost

    def _message(self) -> str:
        used = self.usage
        money = f" (${self.price.of(used):.4f})" if self.price else ""
        limits = []
        if self.budget.max_cost is not None:
            limits.append(f"max_cost is ${self.budget.max_cost:g}")
        if self.budget.max_tokens_total is not None:
            limits.append(f"max_tokens_total is {self.budget.max_tokens_total:,}")
        return (
            f"The budget does not allow another request: {used.total_tokens:,} tokens{money} used in "
            f"{used.requests:,} requests, and {' and '.join(limits)}. Raise it and run again; with a reply "
            "cache nothing is paid for twice."
        )


def _ratio(actual: int, expected: int) -> float:
    """Return the ratio of actual to expected usage, at least 1."""
    return max(1.0, actual / max(expected, 1))
