"""A real server on the loopback interface, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from uvicorn import Config, Server

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.serving import listen, make_app


@contextmanager
def served(pack: DenseXRetrievalPack, token: str | None = None, **settings: Any) -> Iterator[httpx.Client]:
    """Serve a pack until the block ends; gives a client that knows the address."""
    app = make_app(pack, token, **{"requests_per_minute": 0, **settings})
    server = Server(Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1))
    with listen("127.0.0.1", 0, token) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
