"""Waiting for what another thread does, Ctrl-C meanwhile, and time that passes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextmanager
def interrupted(is_so: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C as soon as something is so; what is done in the block must last until then."""

    def press() -> None:
        wait_until(is_so)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        yield
    finally:
        pressing.join()


def let_pass(monkeypatch: pytest.MonkeyPatch, period: timedelta) -> None:
    """Set the clock forward, for what compares times of day."""
    time_ns = time.time_ns
    nanoseconds = 1_000 * (period // timedelta(microseconds=1))
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + nanoseconds)
