"""An OpenAI-compatible server on the loopback interface, and Ollama's: real HTTP, with replies that a test
decides.

with OpenAIServer(held({"Miso is salty.": ["Miso is salty."]})) as server:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from llama_index.core.utils import get_tokenizer

EMBEDDING_DIMENSION = 64


@dataclass(frozen=True)
class Reply:
    """What the server answers.

    Args:
        content: The message's text; None as in a refusal.
        finish_reason: "stop", "length" or "content_filter".
        status: The HTTP status; with 400 and more, `content` is the error's message.
        code: The error's code.
        headers: Further HTTP headers.
        delay: Seconds before the answer.
        refusal: The message's `refusal`.
        tool: The name of a function that the message asks to call.
        body_override: The whole body of the response, instead of a well-formed one.
    """

    content: str | None = ""
    finish_reason: str = "stop"
    status: int = 200
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    refusal: str | None = None
    tool: str = ""
    body_override: str | None = None


Responder = Callable[[dict[str, Any]], Reply | str]


@dataclass(frozen=True)
class Seen:
    """A request that the server got."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    time: float

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))

    @property
    def last_message(self) -> str:
        return _last_message(self.body)

    @property
    def content(self) -> str:
        """The passage, or the part of one, that propositions are asked for."""
        return asked_content(self.body)


class OpenAIServer:
    """The server, from `with` to the end of it.

    Args:
        responder: Gets the body of each request for a completion and decides the reply.

    Attributes:
        url: What to pass as `api_base`.
        ollama_url: What to pass as Ollama's `base_url`.
        requests: The requests for completions, in the order in which they came.
        peak: How many of them were being answered at the same time, at most.
        refused: How often texts were to be embedded while `embeds` was not set.
    """

    def __init__(self, responder: Responder = lambda body: "[]", port: int = 0) -> None:
        self.responder = responder
        self.requests: list[Seen] = []
        self.embedded: list[str] = []
        self.embeds, self.refused = True, 0
        self.peak = 0
        self._active = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def ollama_url(self) -> str:
        return self.url.removesuffix("/v1")

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.requests.append(seen)
            self._active += 1
            self.peak = max(self.peak, self._active)
        try:
            reply = self.responder(seen.body)
            reply = Reply(reply) if isinstance(reply, str) else reply
            time.sleep(reply.delay)
            return reply
        finally:
            with self._lock:
                self._active -= 1


def held(
    propositions: Mapping[str, Sequence[str]],
    *,
    max_output_tokens: int | None = None,
    style: Callable[[list[str]], str] = lambda texts: json.dumps(texts, ensure_ascii=False),
    delay: float = 0.0,
) -> Responder:
    """Hold the right propositions and answer with those of the sentences (or passages) that are in the
    request.

    Args:
        propositions: The propositions of each sentence or passage.
        max_output_tokens: Where replies are really cut off, with the finish reason "length".
        style: How a list of propositions is written.
        delay: Seconds before each answer.
    """

    def respond(body: dict[str, Any]) -> Reply:
        content = asked_content(body)
        found = sorted((content.index(key), key) for key in propositions if key in content)
        text = style([text for _, key in found for text in propositions[key]])
        limit = min(filter(None, (max_output_tokens, body.get("max_tokens"))), default=None)
        cut = cut_to_tokens(text, limit) if limit else text
        return Reply(cut, finish_reason="stop" if cut == text else "length", delay=delay)

    return respond


def in_turn(*replies: Reply | str | Responder) -> Responder:
    """Answer the first request for a content with the first reply, the second with the second; the last one
    stays."""
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    def respond(body: dict[str, Any]) -> Reply | str:
        with lock:
            turn = asked[asked_content(body)]
            asked[asked_content(body)] += 1
        reply = replies[min(turn, len(replies) - 1)]
        return reply(body) if callable(reply) else reply

    return respond


def asked_content(body: Mapping[str, Any]) -> str:
    """Return what follows "Content: " in a request."""
    found = re.search(
        r"Title: .*?\. Section: .*?\. Content: (.*)\Z", _last_message(body), re.DOTALL
    )
    return found.group(1) if found else ""


def cut_to_tokens(text: str, max_tokens: int) -> str:
    """Cut a text as a model that runs out of tokens does; tokens are those of core's tokenizer."""
    tokens = get_tokenizer()(text)
    if len(tokens) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if len(get_tokenizer()(text[:middle])) <= max_tokens
            else (low, middle - 1)
        )
    return text[:low]


STYLES: dict[str, Callable[[list[str]], str]] = {
    "fenced": lambda texts: f"```json\n{json.dumps(texts, ensure_ascii=False, indent=2)}\n```",
    "prose around it": lambda texts: (
        f"Here are the propositions [as asked]:\n\n{json.dumps(texts)}\n\nLet me know if you need more."
    ),
    "an object": lambda texts: json.dumps({"language": "as the passage", "propositions": texts}),
    "numbered lines": lambda texts: "\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1)),
    "dashed lines": lambda texts: "Propositions:\n\n" + "\n".join(f"- {text}" for text in texts),
    "single quotes": lambda texts: "[" + ", ".join(f"'{text}'" for text in texts) + "]",
    "Python's repr": str,
    "a trailing comma": lambda texts: json.dumps(texts, ensure_ascii=False)[:-1] + ",\n]",
    "missing commas": lambda texts: "[\n" + "\n".join(json.dumps(text) for text in texts) + "\n]",
    "full-width quotes": lambda texts: "［" + "，".join(f"“{text}”" for text in texts) + "］",
    "Japanese quotes": lambda texts: "［" + "、".join(f"「{text}」" for text in texts) + "］",
    "unescaped quotes": lambda texts: "[" + ", ".join(f'"{text}"' for text in texts) + "]",
    "nested arrays": lambda texts: json.dumps([texts[:1], [texts[1:]]], ensure_ascii=False),
    "duplicated entries": lambda texts: json.dumps([*texts, *texts], ensure_ascii=False),
    "a <think> block": lambda texts: (
        f'<think>\nLet me see: ["one", "two"] ...\n</think>\n\n{json.dumps(texts)}'
    ),
    "objects in the array": lambda texts: json.dumps(
        [{"id": n, "proposition": text} for n, text in enumerate(texts)]
    ),
    "JSON lines": lambda texts: "\n".join(json.dumps({"proposition": text}) for text in texts),
    "a string a line": lambda texts: ",\n".join(
        json.dumps(text, ensure_ascii=False) for text in texts
    ),
    "a JSON string": lambda texts: json.dumps(json.dumps(texts)),
    "comments": lambda texts: (
        "[ // the model's\n" + ",\n".join(json.dumps(text) for text in texts) + "\n]"
    ),
}


MALFORMED = (
    "single quotes", "missing commas", "full-width quotes", "Japanese quotes", "unescaped quotes", "comments",
)  # fmt: skip
"""Styles that are no list in any notation, unless by luck: they are asked for again, not mended."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: OpenAIServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # a reply is sent at once: where its head is by itself, the body waits 40 ms for the head to be noticed
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        models = [{"id": "gpt-4o-mini", "object": "model", "created": 0, "owned_by": "tests"}]
        self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path.endswith("/embeddings"):
            owner = self.server.owner
            owner.refused += not owner.embeds
            self._send(*((200, _embeddings(body, owner)) if owner.embeds else (503, {})))
            return
        reply = self.server.owner.answer(
            Seen(self.path, body, dict(self.headers), time.monotonic())
        )
        if self.path == "/api/chat":
            lines = "".join(f"{json.dumps(line)}\n" for line in _ollama_lines(body, reply))
            self._send_text(reply.status, lines, "application/x-ndjson", reply.headers)
            return
        if reply.body_override is not None:
            self._send_text(reply.status, reply.body_override, "application/json", reply.headers)
        elif reply.status >= 400:
            error = {"message": reply.content, "type": "error", "param": None, "code": reply.code}
            self._send(reply.status, {"error": error}, reply.headers)
        elif body.get("stream"):
            events = "".join(f"data: {event}\n\n" for event in _events(body, reply))
            self._send_text(200, events, "text/event-stream", reply.headers)
        else:
            self._send(200, _completion(body, reply), reply.headers)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _send(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send_text(status, json.dumps(value), "application/json", headers or {})

    def _send_text(
        self, status: int, text: str, content_type: str, headers: Mapping[str, str]
    ) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.send_response(status)
        for name, value in {
            "Content-Type": content_type,
            "Content-Length": str(len(data)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client gave up waiting


def _last_message(body: Mapping[str, Any]) -> str:
    if "prompt" in body:
        return str(body["prompt"])
    content = body["messages"][-1]["content"]
    return (
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    )


def _completion(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    tokens = len(get_tokenizer()(reply.content or ""))
    choice: dict[str, Any] = {"index": 0, "finish_reason": reply.finish_reason, "logprobs": None}
    if "prompt" in body:
        choice["text"] = reply.content
    else:
        choice["message"] = {
            "role": "assistant",
            "content": reply.content,
            "refusal": reply.refusal,
        }
        choice["message"] |= _tool_calls(reply)
    return {
        "id": "chatcmpl-test",
        "object": "text_completion" if "prompt" in body else "chat.completion",
        "created": 0,
        "model": body.get("model"),
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1},
    }


def _tool_calls(reply: Reply) -> dict[str, Any]:
    if not reply.tool:
        return {}
    function = {"name": reply.tool, "arguments": "{}"}
    return {"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]}


def _ollama_lines(body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    """Ollama's reply, which ends where its options say: after num_predict tokens, or where num_ctx is
    full."""
    options = body.get("options") or {}
    sent = sum(len(get_tokenizer()(message["content"])) for message in body["messages"])
    room = [
        limit
        for limit in (options.get("num_predict"), options.get("num_ctx", 4096) - sent)
        if limit is not None
    ]
    text = cut_to_tokens(reply.content or "", max(min(room), 0))
    finish = reply.finish_reason if text == reply.content else "length"
    counts = {
        "prompt_eval_count": sent,
        "eval_count": len(get_tokenizer()(text)),
        "total_duration": 1,
    }
    last = {"done": True, "done_reason": finish, **counts}
    about = {"model": body["model"], "created_at": "2026-01-01T00:00:00Z"}
    if body.get("stream"):
        for piece in re.findall(r".{1,8}", text, re.DOTALL):
            yield {**about, "message": {"role": "assistant", "content": piece}, "done": False}
        text = ""
    yield {**about, "message": {"role": "assistant", "content": text}, **last}


def _events(body: Mapping[str, Any], reply: Reply) -> Iterator[str]:
    pieces = re.findall(r".{1,8}", reply.content or "", re.DOTALL)
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": piece} for piece in pieces),
        _tool_calls(reply),
    ]
    for number, delta in enumerate(deltas):
        finish = reply.finish_reason if number == len(deltas) - 1 else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        yield json.dumps(
            {
                "id": "chatcmpl-test",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": body.get("model"),
                "choices": [choice],
            }
        )
    yield "[DONE]"


def _embeddings(body: Mapping[str, Any], owner: OpenAIServer) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
    owner.embedded += texts
    data = []
    for index, text in enumerate(texts):
        vector: Any = embed(text if isinstance(text, str) else str(text))
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}


def embed(text: str) -> list[float]:
    """Embed a text by its hashed character 1- to 3-grams: a unit vector, the same everywhere."""
    return list(_counted(text))


@functools.lru_cache(8192)  # tests index the same texts again and again
def _counted(text: str) -> tuple[float, ...]:
    vector = [0.0] * EMBEDDING_DIMENSION
    normal = f" {' '.join(text.lower().split())} "
    for size in (1, 2, 3):
        for start in range(len(normal) - size + 1):
            digest = hashlib.blake2b(
                normal[start : start + size].encode("utf-8", "replace"), digest_size=4
            ).digest()
            vector[digest[0] % EMBEDDING_DIMENSION] += 1.0 if digest[1] & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return tuple(value / length for value in vector)
