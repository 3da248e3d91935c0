"""One code for synchronous and asynchronous callers: running a coroutine from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result.

    Inside a running event loop (a notebook, a web server) it runs on a loop of its own in another thread, with the
    caller's context variables; core's `asyncio_run` does so too, but takes every RuntimeError that the coroutine
    raises for a missing loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(context.run, asyncio.run, coroutine).result()


def run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never waits to its end, with no event loop at all."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine made for blocking calls waited for something")
