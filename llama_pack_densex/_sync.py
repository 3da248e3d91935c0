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
    raises for a missing loop. Ctrl-C there cancels the coroutine.
    """
    if not _is_loop_running():
        return asyncio.run(coroutine)
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def main() -> T:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await coroutine

    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as executor:
        future = executor.submit(context.run, asyncio.run, main())
        try:
            return future.result()
        except BaseException:
            for loop, task in running:
                if task is not None and not future.done():
                    loop.call_soon_threadsafe(task.cancel)
            raise


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
