"""How often a request is sent, and how long it waits in between: what a server's refusals and errors say. Pure."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import Any

from tenacity import RetryCallState

MOST_WAIT = 900.0
"""Seconds: a request that a server's limit has held up for so long is given up."""
_REFUSALS_A_TRY = 10  # a refusal says nothing against the request, and so counts a tenth of a failure


class Tries:
    """How often one request failed.

    Args:
        max_retries: Further tries after the first one.
    """

    def __init__(self, max_retries: int) -> None:
        self._allowed = max_retries + 1
        self._failed = self._refused = 0

    def count(self, refused: bool) -> None:
        """Count a try that failed."""
        self._refused += refused
        self._failed += not refused

    def is_over(self, state: RetryCallState) -> bool:
        """Whether there are no more tries, or a refusal names a time that is too far away."""
        error = state.outcome.exception() if state.outcome is not None else None
        told = (retry_after(error) or 0.0) if error is not None else 0.0
        tries = self._failed + self._refused / _REFUSALS_A_TRY
        # not the time since the first try: a request also waits for its turn, which is nobody's refusal
        return tries >= self._allowed or state.idle_for + told > MOST_WAIT


def retry_after(error: BaseException) -> float | None:
    """How many seconds a server says to wait before the next try; None where it does not say, or says none."""
    headers = _headers(error)
    seconds = _number(headers.get("retry-after-ms"), 1000) or _number(headers.get("retry-after"))
    if seconds is None:
        try:
            seconds = parsedate_to_datetime(str(headers.get("retry-after"))).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return seconds if seconds > 0 else None


def is_refusal(error: BaseException) -> bool:
    """Whether a server's limit refused a request: it is not at fault, and neither is the server."""
    values = (getattr(source, name, None) for source in (error, _response(error)) for name in ("status_code", "code"))
    status = next((value for value in values if isinstance(value, int)), None)
    return status == 429 or (status in (503, 529) and retry_after(error) is not None)


def limit_per_minute(error: BaseException) -> float | None:
    """How many requests a minute the server says that it allows; None where it does not say."""
    return _number(_headers(error).get("x-ratelimit-limit-requests"))


def _number(header: Any, divisor: float = 1) -> float | None:
    try:
        value = float(header) / divisor
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _response(error: BaseException) -> Any:
    return getattr(error, "response", None)


def _headers(error: BaseException) -> Any:
    headers = getattr(_response(error), "headers", None)
    return headers if hasattr(headers, "get") else {}
