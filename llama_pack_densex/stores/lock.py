"""One writer at a time for an index folder."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_FILE = "writer.lock"
WRITER_FILE = "writer.json"


class IndexInUseError(RuntimeError):
    """Another process, or another pack of this one, is writing to an index folder."""


class WriterLock:
    """Held while an index folder is written to; the operating system lets go of it when its process ends.

    Threads of one object wait for one another; anybody else is told.

    Args:
        folder: The index's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            IndexInUseError: Another writer has it; the message says which.
        """
        with self._threads:
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(str(self._folder / LOCK_FILE), timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise IndexInUseError(self._said()) from None
            try:
                self._say()
                self._depth = 1
                yield
            finally:
                self._depth = 0
                with suppress(OSError):
                    (self._folder / WRITER_FILE).unlink()
                lock.release()

    def _say(self) -> None:
        writer = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        (self._folder / WRITER_FILE).write_text(json.dumps(writer), encoding="utf-8")

    def _said(self) -> str:
        who = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):
            writer = json.loads((self._folder / WRITER_FILE).read_text(encoding="utf-8"))
            who = f"process {writer['pid']} on {writer['host']} (since {writer['since']})"
        return (
            f"{self._folder} is being written to by {who}: an index folder has one writer at a time. Wait until that "
            "is done; reading meanwhile is fine. Several writers at once need a vector store on a server."
        )
