"""The process behind `tests.stand_in_llm.StandInLLM`: a small HTTP/1.1 server on asyncio, on the loopback
interface.

It imports no llama_index, which takes longer than all the rest of its start.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import re
import signal
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import tiktoken

from tests.stand_in_llm import Settings, Totals, digest, propositions_of

HANG = 120.0  # seconds that a request is held without an answer, where the client does not hang up


def main() -> None:
    """Serve, or fork a server for each line of arguments that comes in."""
    if sys.argv[1:] != ["--forks"]:
        settings, parent = Settings.from_arguments(sys.argv[1:])
        asyncio.run(_serve(settings, parent))
        return
    _token_counter()  # which loads it once for all
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    forking = os.getpid()
    for line in sys.stdin:
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            settings, _ = Settings.from_arguments(json.loads(line))
            asyncio.run(_serve(settings, forking))


async def _serve(settings: Settings, parent: int) -> None:
    server = await asyncio.start_server(_Server(settings).serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while os.getppid() == parent:  # who is orphaned gets another parent
        await asyncio.sleep(0.2)
    os._exit(0)


def asked_for(message: str) -> tuple[list[str], list[str]]:
    """Find the texts that a message asks for, and their numbers where it asks for several."""
    _, *parts = _PASSAGE_LINE.split(message)
    numbers, messages = parts[::2], parts[1::2] or [message]
    texts = [found.group(1) if (found := _CONTENT.search(part)) else part for part in messages]
    return [text.strip() for text in texts] if numbers else texts, numbers


_PASSAGE_LINE = re.compile(r"^### Passage (\d+)[ \t]*$", re.MULTILINE)
_CONTENT = re.compile(r"Title: .*?\. Section: .*?\. Content: (.*)\Z", re.DOTALL)


class Limit(Protocol):
    """So much in a minute."""

    def wait(self, cost: float, now: float) -> float:
        """Seconds until that is allowed; 0 where it is now."""

    def take(self, cost: float, now: float) -> None:
        """Count what was let through."""


class Bucket:
    """Refilled continuously; empties at the rate at which it is filled, once what it holds is used up."""

    def __init__(self, per_minute: float, settings: Settings) -> None:
        self._rate = per_minute / 60
        self._level = self._size = max(1.0, self._rate * settings.burst)
        self._time = 0.0

    def wait(self, cost: float, now: float) -> float:
        self._level, self._time = (
            min(self._size, self._level + self._rate * (now - self._time)),
            now,
        )
        missing = min(cost, self._size) - self._level
        return missing / self._rate if missing > _ROUNDING else 0.0

    def take(self, cost: float, now: float) -> None:
        self._level -= cost


class SlidingWindow:
    """So much in any window."""

    def __init__(self, per_minute: float, settings: Settings) -> None:
        self._window = settings.window
        self._allowed = per_minute * settings.window / 60
        self._taken: deque[tuple[float, float]] = deque()
        self._used = 0.0

    def wait(self, cost: float, now: float) -> float:
        while self._taken and self._taken[0][0] <= now - self._window:
            self._used -= self._taken.popleft()[1]
        used, until = self._used, now
        for when, taken in self._taken:
            if used + cost <= self._allowed:
                break
            used, until = used - taken, when + self._window
        return until - now

    def take(self, cost: float, now: float) -> None:
        self._taken.append((now, cost))
        self._used += cost


class FixedWindow:
    """So much in each window, from the start on."""

    def __init__(self, per_minute: float, settings: Settings) -> None:
        self._window = settings.window
        self._allowed = per_minute * settings.window / 60
        self._start, self._number, self._used = time.monotonic(), 0, 0.0

    def wait(self, cost: float, now: float) -> float:
        number = int((now - self._start) // self._window)
        if number != self._number:
            self._number, self._used = number, 0.0
        fits = not self._used or self._used + cost <= self._allowed
        return 0.0 if fits else self._start + (number + 1) * self._window - now

    def take(self, cost: float, now: float) -> None:
        self._used += cost


_ROUNDING = 1e-6
LIMITS: dict[str, Callable[[float, Settings], Limit]] = {
    "bucket": Bucket,
    "sliding": SlidingWindow,
    "fixed": FixedWindow,
}


@dataclass
class _Request:
    """An `Answered` in the making."""

    digests: Sequence[str]
    start: str
    arrived: float
    in_flight: int
    input_tokens: int
    output_tokens: int = 0
    ended: float | None = None
    kind: str = "pending"


@dataclass(frozen=True)
class _Response:
    value: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        body = json.dumps(self.value, ensure_ascii=False).encode()
        lines = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **self.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{head}\r\n".encode() + body


_REASONS = {200: "OK", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


class _Server:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count = _token_counter()
        # what stands before a passage is always the same
        self._count_again = lru_cache(maxsize=64)(self._count)
        self._held = _read_held(settings.held)
        limits = {"requests": settings.requests_per_minute, "tokens": settings.tokens_per_minute}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        self._limits = {
            name: LIMITS[settings.limit_kind](limit, settings) for name, limit in given.items()
        }
        self._headers = {f"x-ratelimit-limit-{name}": f"{limit:g}" for name, limit in given.items()}
        self._in_flight = 0
        self._requests: list[_Request] = []
        self._asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while (response := await self._respond(reader, writer)) is not None:
                writer.write(response.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has done with the connection
        finally:
            writer.close()

    async def _respond(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Response | None:
        """Read a request and make its response; None hangs up."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length.group(1))) if length else b""
        path = head.split(b" ", 2)[1].decode()
        if path == "/v1/chat/completions" and body:
            return await self._complete(json.loads(body), reader, writer)
        if path == "/log":
            return _Response([asdict(request) for request in self._requests])
        if path == "/totals":
            return _Response(asdict(self._totals()))
        if path == "/reset":
            self._requests, self._asked = [], Counter()
            return _Response(None)
        return _Response(
            {"error": {"message": f"there is nothing at {path}", "code": "not_found"}}, 404
        )

    async def _complete(
        self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Response | None:
        now = time.monotonic()
        *before, last = [_text_of(message) for message in body["messages"]]
        texts, numbers = asked_for(last)
        tokens = sum(map(self._count_again, before)) + self._count(last) + 3 * (len(before) + 1) + 3
        request = _Request([*map(digest, texts)], texts[0][:40], now, self._in_flight + 1, tokens)
        lists = [self._held.get(text) or propositions_of(text) for text in texts]
        reply = json.dumps(
            dict(zip(numbers, lists, strict=True)) if numbers else lists[0], ensure_ascii=False
        )
        self._requests.append(request)
        self._in_flight += 1
        try:
            if refusal := self._refuse(request, reply):
                return refusal
            key = " ".join(request.digests)
            kind, form = self._settings.faults.draw(self._settings.seed, key, self._asked[key])
            self._asked[key] += 1
            if kind in ("rate_limited", "reset", "timeout"):
                request.kind = kind
                return await self._fail(kind, reader, writer)
            await asyncio.sleep(self._settings.latency)
            if reader.at_eof() or reader.exception() is not None:
                request.kind = "gone"
                return None
            request.kind = kind
            if kind == "server_error":
                return self._error(
                    500, "server_error", "The server had an error while processing your request."
                )
            choice = _choice(kind, reply, [text for made in lists for text in made], form)
            request.output_tokens = self._count(
                choice["message"]["content"] or choice["message"]["refusal"] or ""
            )
            return _Response(_completion(body, choice, request), headers=self._headers)
        finally:
            self._in_flight -= 1
            request.ended = time.monotonic()

    def _refuse(self, request: _Request, reply: str) -> _Response | None:
        """Refuse a request that is over a limit; nothing of it counts then."""
        most = self._settings.max_in_flight
        if most is not None and request.in_flight > most:
            request.kind = "too_many"
            return self._error(429, "rate_limit_exceeded", f"Only {most} requests at a time.")
        if not self._limits:
            return None
        costs = {"requests": 1, "tokens": request.input_tokens + self._count(reply)}
        waits = [limit.wait(costs[name], request.arrived) for name, limit in self._limits.items()]
        if max(waits) > 0:
            request.kind = "over_limit"
            return self._error(429, "rate_limit_exceeded", "Rate limit reached.", max(waits))
        for name, limit in self._limits.items():
            limit.take(costs[name], request.arrived)
        return None

    async def _fail(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Response | None:
        """Fail without a reply."""
        if kind == "rate_limited":
            return self._error(
                429, "rate_limit_exceeded", "Rate limit reached.", self._settings.faults.retry_after
            )
        if kind == "reset":
            # closing then sends RST, and what was not sent is dropped
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return None
        with suppress(asyncio.TimeoutError):  # not the built-in one before Python 3.11
            await asyncio.wait_for(reader.read(1), HANG)
        return None

    def _error(self, status: int, code: str, message: str, wait: float | None = None) -> _Response:
        retry = (
            {}
            if wait is None
            else {
                "retry-after": str(math.ceil(wait)),
                "retry-after-ms": str(math.ceil(1000 * wait)),
            }
        )
        error = {"message": message, "type": code, "param": None, "code": code}
        return _Response({"error": error}, status, {**self._headers, **retry})

    def _totals(self) -> Totals:
        replied = [request for request in self._requests if request.output_tokens]
        return Totals(
            dict(Counter(request.kind for request in self._requests)),
            max((request.in_flight for request in self._requests), default=0),
            sum(request.input_tokens for request in replied),
            sum(request.output_tokens for request in replied),
        )


def _choice(kind: str, reply: str, texts: list[str], form: bool) -> dict[str, Any]:
    content: str | None = reply
    finish, refusal = "stop", None
    if kind == "malformed" and form:
        content = str(texts).replace("', '", "' '", 1)
    elif kind == "malformed":
        content = " ".join(texts)
    elif kind == "cut_off":
        content, finish = reply[: len(reply) // 2], "length"
    elif kind == "content_filter":
        content, finish = None, "content_filter"
    elif kind == "refusal":
        content, refusal = None, "I'm sorry, but I can't help with that."
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {"index": 0, "finish_reason": finish, "logprobs": None, "message": message}


def _completion(
    body: Mapping[str, Any], choice: Mapping[str, Any], request: _Request
) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.digests[0]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": request.input_tokens,
            "completion_tokens": request.output_tokens,
            "total_tokens": request.input_tokens + request.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return (
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    )


def _token_counter() -> Callable[[str], int]:
    """Count as `llama_index.core.utils.get_tokenizer` does, with the vocabulary that lies beside it."""
    found = importlib.util.find_spec("llama_index.core")
    assert found is not None
    assert found.origin is not None
    os.environ.setdefault(
        "TIKTOKEN_CACHE_DIR", str(Path(found.origin).parent / "_static" / "tiktoken_cache")
    )
    encoding = tiktoken.encoding_for_model("gpt-3.5-turbo")
    return lambda text: len(encoding.encode(text, allowed_special="all"))


def _read_held(path: str | Path | None) -> dict[str, list[str]]:
    if not path:
        return {}
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {entry["text"]: entry["propositions"] for entry in map(json.loads, filter(None, lines))}
