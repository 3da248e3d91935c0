"""The checks that a request must pass before it reaches the pack, and the security headers of responses."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2**20  # bytes: enough for the longest question and history in any encoding
# requests being answered or waiting for a thread; further ones are refused with 503
_MOST_ACTIVE = 200
# bytes read of a body that is too large, so that its sender gets to read the refusal
_MAX_READ = 16 * MAX_BODY
_BODY_SECONDS = 30.0  # time limit for a body to arrive
_DRAIN_SECONDS = 2.0  # the same for a request that is refused
_CLIENTS = 10_000  # clients to remember before those whose bucket is full again are dropped
_BURST_SECONDS = 15.0  # a client may use this much of its rate in one burst
_PUBLIC = re.compile(r"/|/healthz|/openapi\.json|/page/.*")  # paths that need no token
_HOST = re.compile(
    r"(?:(?P<address>\[[0-9a-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3})|(?P<name>[\w.-]+))(?::\d{1,5})?",
    re.ASCII,
)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response: only our own scripts run, and other sites can neither frame nor read it."""


class RateLimit:
    """A limit on requests per minute for each client: a token bucket, stored as the time when it refills.

    Args:
        per_minute: Requests per minute; a quarter of them may come in one burst. 0 means no limit.
        now: Returns the time in seconds.
    """

    def __init__(self, per_minute: float, now: Callable[[], float] = time.monotonic) -> None:
        self._interval = 60 / per_minute if per_minute else 0.0
        self._burst = max(_BURST_SECONDS, self._interval)
        self._now = now
        self._full_at: dict[str, float] = {}

    def wait(self, client: str) -> float:
        """Count a request, and return 0 if it may pass, else the seconds until one will."""
        now = self._now()
        full_at = max(self._full_at.get(client, now), now) + self._interval
        excess = full_at - now - self._burst
        if excess > 1e-9:
            return excess
        if len(self._full_at) >= _CLIENTS:
            self._full_at = {client: time for client, time in self._full_at.items() if time > now}
        self._full_at[client] = full_at
        return 0.0


class Guard:
    """Middleware that refuses requests that are for other hosts, not permitted, too large or too many.

    The Host header, origin, rate, token and number of active requests are checked before the body is read;
    the body's size is checked before the application sees it. When the client disconnects, the work for it
    is cancelled. Refusals are JSON with a `detail`.

    Args:
        app: The application.
        token: The token that requests must send (`Authorization: Bearer ...`); None requires none.
        hosts: Names by which the server may be addressed, besides localhost and IP addresses. Names have to
            be listed, because others can make a name of theirs resolve to this server (DNS rebinding).
        rate: Requests per minute of one client; 0 means no limit.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, hosts: Collection[str], rate: float
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._rate = RateLimit(rate)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # startup and shutdown; there are no WebSockets
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        if not refusal:
            refusal = await self._admit(scope, receive, send_guarded)
        else:
            # a connection closed before the client has sent everything is reset, and the refusal is lost
            with suppress(HTTPException):
                await _read_body(receive, 0, _DRAIN_SECONDS)
        if refusal:
            # otherwise the unread rest of the body would be taken for the next request
            headers = {**(refusal.headers or {}), "Connection": "close"}
            response = JSONResponse({"detail": refusal.detail}, refusal.status_code, headers)
            await response(scope, receive, send_guarded)

    def _is_own(self, host: str) -> bool:
        """Return whether a Host header has an IP address, or one of the server's names."""
        parts = _HOST.fullmatch(host)
        return bool(parts and (parts["address"] or parts["name"] in self._hosts))

    def _refusal(self, scope: Scope, headers: Headers) -> HTTPException | None:
        """Check a request without its body; return why it is refused, or None."""
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            return HTTPException(
                421, "The server is not known by this Host; allow it with --allow-host."
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host:
            return HTTPException(403, "Requests from other sites' pages are refused.")
        address, _ = scope.get("client") or ("", 0)
        wait = self._rate.wait(address)
        if wait:
            return HTTPException(429, "Too many requests.", {"Retry-After": str(int(wait) + 1)})
        is_public = _PUBLIC.fullmatch(scope["path"])
        if not (is_public or self._has_token(headers.get("authorization", ""))):
            scheme = {"WWW-Authenticate": "Bearer"}
            return HTTPException(401, "The request needs the server's token.", scheme)
        if self._active >= _MOST_ACTIVE:
            return HTTPException(503, "The server is busy.", {"Retry-After": "5"})
        return None

    def _has_token(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, token = authorization.partition(" ")
        is_equal = hmac.compare_digest(token.strip().encode(), self._token.encode())
        return scheme.lower() == "bearer" and is_equal

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> HTTPException | None:
        """Have a request answered; return why it is refused if its body cannot be read, else None."""
        self._active += 1
        try:
            body = await _read_body(receive, MAX_BODY, _BODY_SECONDS)
            if body is not None:
                await self._answer(scope, body, receive, send)
        except HTTPException as error:
            return error
        finally:
            self._active -= 1
        return None

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application on the request, and cancel it if the client disconnects."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            if not messages:
                await anyio.sleep_forever()
            return messages.pop()

        async def end_with_client(work: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            work.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(end_with_client, group.cancel_scope)
            await self._app(scope, receive_body, send)
            group.cancel_scope.cancel()


async def _read_body(receive: Receive, most: int, seconds: float) -> bytes | None:
    """Read the whole body, of at most `most` bytes; return None if the client disconnected.

    Raises:
        HTTPException: The body is too large, or takes too long.
    """
    body = bytearray()
    size = 0
    more = True
    with anyio.move_on_after(seconds):
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size <= most:
                body += part
            more = message.get("more_body", False) and size <= _MAX_READ
        if size > most:
            raise HTTPException(413, f"The request is larger than {most:,} bytes.")
        return bytes(body)
    raise HTTPException(408, f"The request did not arrive within {seconds:.0f} seconds.")
