"""What requests have used and cost so far, and the budget that they stop at."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.llm_requests.prices import Price
from llama_pack_densex.llm_requests.reply import NOTHING, RequestFigures, Usage

_SPARE = 1.5
"""Several requests at a time may together exceed a budget by the errors of all of their estimates: near its end they go
one by one, so that it is the error of one."""


class BudgetExceededError(PropositionizerError):
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


@dataclass(frozen=True)
class Reserved:
    """What is set aside for a request.

    Args:
        expected: What it was expected to use.
        amount: What is set aside for it.
    """

    expected: Usage
    amount: Usage


class Meter:
    """Counts what is used, in any thread, and says whether another request is within the budget.

    What is set aside for a request grows with what earlier ones used beyond what was expected of them: a model that
    thinks before it replies uses several times as much.

    Args:
        budget: What may be used.
        price: What it costs; None where that is not known.
        used: What was used before.
    """

    def __init__(self, budget: Budget, price: Price | None, used: Usage = NOTHING) -> None:
        self._budget, self._price = budget, price
        self._lock = threading.Lock()
        self._usage = used
        self._reserved = NOTHING
        self._expected, self._came_to = NOTHING, NOTHING  # of those requests that something was set aside for
        self._kept = 0
        self._refused = 0
        self._failed = 0

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return self._usage

    def figures(self, model: str) -> RequestFigures:
        """What the requests to a model came to so far."""
        with self._lock:
            return RequestFigures(
                usage=self._usage,
                cost=None if self._price is None else self._price.of(self._usage),
                cache_hits=self._kept,
                refused=self._refused,
                failed=self._failed,
                model=model,
            )

    @property
    def has_budget(self) -> bool:
        """Whether there is a limit at all."""
        return self._budget != Budget()

    def reserve(self, expected: Usage) -> Reserved | None:
        """Set aside what a request is expected to use.

        Returns:
            What was set aside; None where that may be possible after other requests have turned out cheaper.

        Raises:
            BudgetExceededError: It cannot be done, whatever the requests that are under way turn out to use.
        """
        with self._lock:
            amount = self._corrected(expected)
            others = self._reserved
            if self._fits(self._usage + (_with_spare(others + amount) if others.requests else amount)):
                self._reserved = others + amount
                return Reserved(expected, amount)
            if others.requests and self._fits(self._usage + amount):
                return None
        raise BudgetExceededError(self._message())

    def settle(self, reserved: Reserved | None, used: Usage | None) -> None:
        """Replace what was set aside for a request by what it used; None where nothing was, or it was not answered."""
        with self._lock:
            if reserved is not None:
                self._reserved = self._reserved - reserved.amount
            if used is not None:
                self._usage = self._usage + used
            if reserved is not None and used is not None:
                self._expected, self._came_to = self._expected + reserved.expected, self._came_to + used

    def count_kept(self) -> None:
        """Count a reply that was there before."""
        with self._lock:
            self._kept += 1

    def count_failure(self, refused: bool) -> None:
        """Count an attempt that failed."""
        with self._lock:
            self._refused += refused
            self._failed += not refused

    def _corrected(self, expected: Usage) -> Usage:
        sent = max(1.0, self._came_to.input_tokens / max(self._expected.input_tokens, 1))
        received = max(1.0, self._came_to.output_tokens / max(self._expected.output_tokens, 1))
        return Usage(expected.requests, round(expected.input_tokens * sent), round(expected.output_tokens * received))

    def _fits(self, usage: Usage) -> bool:
        budget = self._budget
        if budget.max_tokens_total is not None and usage.total_tokens > budget.max_tokens_total:
            return False
        return budget.max_cost is None or self._price is None or self._price.of(usage) <= budget.max_cost

    def _message(self) -> str:
        spent = f"{self._usage.total_tokens:,} tokens"
        spent += f" (${self._price.of(self._usage):.4f})" if self._price is not None else ""
        limits = []
        if self._budget.max_cost is not None:
            limits.append(f"max_cost is ${self._budget.max_cost:g}")
        if self._budget.max_tokens_total is not None:
            limits.append(f"max_tokens_total is {self._budget.max_tokens_total:,}")
        return (
            f"The budget does not allow another request: {spent} used in {self._usage.requests:,} requests, and "
            f"{' and '.join(limits)}. Raise it and run again; with a reply cache nothing is paid for twice."
        )


def _with_spare(usage: Usage) -> Usage:
    return replace(usage, output_tokens=round(usage.output_tokens * _SPARE))
