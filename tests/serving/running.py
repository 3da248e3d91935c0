"""A real server on the loopback interface, and a provider of models that takes its time."""

from __future__ import annotations

import json
import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from llama_index.llms.openai import OpenAI
from uvicorn import Config, Server

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.serving.app import listen, make_app


@contextmanager
def served(
    pack: DenseXRetrievalPack, token: str | None = None, **settings: Any
) -> Iterator[httpx.Client]:
    """Serve a pack until the block ends; gives a client that knows the address."""
    app = make_app(pack, token, **{"requests_per_minute": 0, **settings})
    server = Server(
        Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    )
    with listen("127.0.0.1", 0, token) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60
            ) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


class SlowProvider:
    """An OpenAI-compatible provider that streams the first part of an answer, and the rest when it is let.

    Attributes:
        asked: Set once a request is there.
        go_on: To be set for the rest.
        hung_up: Set once a client went away without having got it.
    """

    def __init__(self, first: str = "", rest: str = "") -> None:
        self.asked, self.go_on, self.hung_up = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                try:
                    self._answer()
                except OSError:
                    provider.hung_up.set()

            def _answer(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.asked.set()
                if body.get("stream"):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.end_headers()
                    self._send(first)
                with selectors.DefaultSelector() as watched:
                    watched.register(self.connection, selectors.EVENT_READ)
                    while not provider.go_on.wait(0.02):
                        if watched.select(0):
                            provider.hung_up.set()
                            return
                if body.get("stream"):
                    self._send(rest, "stop")
                    self.wfile.write(b"data: [DONE]\n\n")

            def _send(self, text: str, reason: str | None = None) -> None:
                choice = {
                    "index": 0,
                    "delta": {"role": "assistant", "content": text},
                    "finish_reason": reason,
                }
                chunk = {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                }
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def llm(self) -> OpenAI:
        url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        return OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test", max_retries=0)

    def __enter__(self) -> SlowProvider:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
