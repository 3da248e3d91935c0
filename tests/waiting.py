"""Waiting for what another thread does, and Ctrl-C meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
