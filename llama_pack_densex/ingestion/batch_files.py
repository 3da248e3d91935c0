"""Files of the OpenAI Batch API: requests are written, results are read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole

from llama_pack_densex.llm_requests.counting import usage_of
from llama_pack_densex.llm_requests.failures import Failure, classify
from llama_pack_densex.llm_requests.finish_reasons import finish_reason
from llama_pack_densex.llm_requests.reply import Reply

ENDPOINT = "/v1/chat/completions"
MAX_REQUESTS = 50_000
"""Requests that the service takes in one file."""
MAX_BYTES = 190_000_000
"""The service takes 200 MB."""
_LONGEST_LINE = 64_000_000  # bytes of a result: a damaged file without line ends must not fill the memory
_NAME = "requests-{:04d}.jsonl"
_NAMES = "requests-*.jsonl"
_UNFINISHED = ".requests-"
_KEPT_FAILURES = ("too_long", "filtered")  # those that would come back as they are


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    """Write the line of a request.

    Args:
        custom_id: What the result will be known by: at most 64 characters, once in all files.
        body: What would be sent to `ENDPOINT`.
    """
    request = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    for character in _LINE_ENDS:  # to JSON they are none, to some who split lines they are
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace") + b"\n"


_LINE_ENDS = "\x85\u2028\u2029"  # JSON escapes those below U+0020 anyhow


@dataclass(frozen=True)
class RequestFile:
    """A file that was written."""

    path: str
    requests: int
    bytes: int


class RequestFiles:
    """Writes requests to numbered files in a folder, each within the service's limits.

    From `with` to the end of it, they lie in a hidden folder there; an error removes them, and earlier files stay as
    they are. Files and folders are private to the user, since they hold documents' text.

    Args:
        folder: The folder, made if it is not there.
        force: Whether files of an earlier export are replaced.
        max_requests: Requests a file.
        max_bytes: Bytes a file.

    Raises:
        ValueError: There are files of an earlier export, or the limits are beyond the service's.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with RequestFiles(folder) as files:
        ...     files.add(request_line("1", {"model": "gpt-4o-mini", "messages": []}))
        >>> [(Path(file.path).name, file.requests) for file in files.written]
        [('requests-0001.jsonl', 1)]
    """

    def __init__(
        self, folder: Path, *, force: bool = False, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES
    ) -> None:
        if not 1 <= max_requests <= MAX_REQUESTS:
            raise ValueError(f"a file may have 1 to {MAX_REQUESTS:,} requests, not {max_requests:,}")
        if not 1 <= max_bytes <= MAX_BYTES:
            raise ValueError(f"a file may have 1 to {MAX_BYTES:,} bytes, not {max_bytes:,}")
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; request files need a folder")
        self._folder, self._max_requests, self._max_bytes = folder, max_requests, max_bytes
        self._earlier = sorted(folder.glob(_NAMES))
        if self._earlier and not force:
            raise ValueError(
                f"{folder} holds request files of an earlier export ({self._earlier[0].name}): give another folder, or "
                "--force (force=True) to replace them"
            )
        self.written: list[RequestFile] = []
        self._unfinished, self._is_new = folder, not folder.exists()
        self._stream: BinaryIO | None = None

    def __enter__(self) -> RequestFiles:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob(f"{_UNFINISHED}*"):  # of an export that was killed
            shutil.rmtree(left, ignore_errors=True)
        self._unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._folder))
        return self

    def add(self, line: bytes) -> None:
        """Write a request.

        Raises:
            ValueError: It is larger than a file may be.
        """
        if len(line) > self._max_bytes:
            raise ValueError(f"a request has {len(line):,} bytes, and a file may have {self._max_bytes:,}")
        last = self.written[-1] if self._stream is not None else None
        if last is None or last.requests == self._max_requests or last.bytes + len(line) > self._max_bytes:
            last = self._next_file()
        assert self._stream is not None
        self._stream.write(line)
        self.written[-1] = RequestFile(last.path, last.requests + 1, last.bytes + len(line))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._finish_file()
            if kind is None:
                self._commit()
        finally:
            shutil.rmtree(self._unfinished, ignore_errors=True)
            if self._is_new:
                with suppress(OSError):  # there are files in it
                    self._folder.rmdir()

    def _next_file(self) -> RequestFile:
        self._finish_file()
        name = _NAME.format(len(self.written) + 1)
        self._stream = open(self._unfinished / name, "xb", opener=_open_privately)  # noqa: SIM115  # open until the next
        self.written.append(RequestFile(str(self._folder / name), 0, 0))
        return self.written[-1]

    def _finish_file(self) -> None:
        if self._stream is not None:
            with self._stream as stream:
                stream.flush()
                os.fsync(stream.fileno())
            self._stream = None

    def _commit(self) -> None:
        new = [Path(file.path) for file in self.written]
        for path in new:
            (self._unfinished / path.name).replace(path)
        for path in self._earlier:  # what stayed would be uploaded with the new ones
            if path not in new:
                path.unlink(missing_ok=True)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@dataclass(frozen=True)
class BatchResult:
    """What became of one request.

    Args:
        custom_id: The request's; "" where the line does not say.
        outcome: What to keep: a reply, or a failure that would come back as it is; None where there is nothing.
        problem: Why there is nothing to keep, without any text of a document; "" where there is.
        model: The model that answered, as the provider calls it.
    """

    custom_id: str = ""
    outcome: Reply | Failure | None = None
    problem: str = ""
    model: str = ""


def read_results(stream: BinaryIO) -> Iterator[BatchResult]:
    """Read an output file or an error file, one result a line.

    Blank lines are left out. Nothing that is wrong with a line is raised.
    """
    is_first = True
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield BatchResult(problem="the line is too long")
        elif line.strip():
            yield read_result(line.removeprefix(b"\xef\xbb\xbf") if is_first else line)
        is_first = False


def read_result(line: bytes) -> BatchResult:
    """Read one result, as the live path reads a response."""
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return BatchResult(problem=_DAMAGED)
    if not isinstance(record, dict):
        return BatchResult(problem=_DAMAGED)
    custom_id, response, error = record.get("custom_id"), record.get("response"), record.get("error")
    if not isinstance(custom_id, str):
        return BatchResult(problem="the line has no custom_id")
    if "response" not in record and "error" not in record:
        what = "the line is a request, not a result" if "body" in record else "the line has no response"
        return BatchResult(custom_id, problem=what)
    status, body = None, None
    if isinstance(response, dict):
        status, body = response.get("status_code"), response.get("body")
    if status != 200 or error:
        return _failed(custom_id, status, {"error": error} if error else body)
    return _answered(custom_id, body)


_DAMAGED = "the line is damaged"


def _answered(custom_id: str, body: Any) -> BatchResult:
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return BatchResult(custom_id, problem="the response has no choices")
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        return BatchResult(custom_id, problem="the response holds no text")
    response = ChatResponse(message=ChatMessage(text, role=MessageRole.ASSISTANT), raw=body)
    reply = Reply(response.message.content or "", finish_reason(response), usage_of(response, ()))
    return BatchResult(custom_id, reply, model=str(body.get("model") or ""))


class BatchError(Exception):
    """What the service says of a request that it could not do, in the form that clients raise errors in."""

    def __init__(self, status_code: Any, body: Any) -> None:
        self.status_code, self.body = status_code, body
        super().__init__("the request failed")


def _failed(custom_id: str, status: Any, body: Any) -> BatchResult:
    failure = classify(BatchError(status, body))
    if failure.kind in _KEPT_FAILURES:
        return BatchResult(custom_id, failure)
    said = failure.summary.removeprefix(BatchError.__name__).strip()
    return BatchResult(custom_id, problem="the request failed" + (f" ({said})" if said else ""))
