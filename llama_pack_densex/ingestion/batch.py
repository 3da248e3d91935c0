"""Propositions by OpenAI's Batch API: request files are exported, and result files become cached replies."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fileinput import FileInput
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai.utils import to_openai_message_dicts

from llama_pack_densex.ingestion.estimate import Estimate, estimate, llm_behind
from llama_pack_densex.llm.cache import KEPT_FAILURES, Outcome, ReplyCache, open_private
from llama_pack_densex.llm.errors import classify
from llama_pack_densex.llm.requests import LLMRequest
from llama_pack_densex.llm.usage import (
    NOTHING,
    Arguments,
    Messages,
    PriceSource,
    PriceTable,
    Reply,
    Usage,
    price_of,
)
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser

ENDPOINT = "/v1/chat/completions"
MAX_REQUESTS = 50_000
"""Requests in one file; the service's limit."""
MAX_BYTES = 190_000_000
"""Bytes in one file; the service's limit is 200 MB."""
_KEY = re.compile(r"[0-9a-f]{24}-[0-9a-f]{32}")  # what `reply_key` returns
# characters that are valid in JSON strings, but at which some programs split lines
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_CLIENT_SETTINGS = ("extra_headers", "extra_query", "timeout")  # these are not part of the body
_UNFINISHED = ".requests-"


def export_requests(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    files: RequestFiles,
    *,
    prices: PriceSource = None,
    indexed: Collection[str] = (),
) -> Estimate:
    """Write a request for each passage whose reply is not cached.

    Each is the first request that an ingestion would send for the passage, with the cache key of its reply as
    its id: once the results are imported, the ingestion finds the replies in the cache.

    Args:
        documents: The documents, read one after the other.
        parser: The parser of the ingestion, whose propositionizer is, or has behind it, an
            `LLMPropositionizer`; passages with a reply in its cache need no request.
        files: The request files to write to.
        prices: As in `estimate`.
        indexed: Hashes (`parser.document_hash`) of documents that an index already has unchanged.

    Returns:
        The estimate for the requests.

    Raises:
        ValueError: The Batch API does not serve this LLM, or there is no LLM.
    """
    propositionizer = llm_behind(parser.propositionizer)
    if not propositionizer:
        raise ValueError(
            f"{parser.propositionizer.class_name()} uses no LLM: there is nothing to export"
        )
    body = body_maker(propositionizer.llm, propositionizer.form)
    key = propositionizer.key

    def write(request: LLMRequest) -> None:
        files.add(request_line(key(request), body(request.messages)))

    return estimate(documents, parser, prices=prices, indexed=indexed, on_request=write)


def body_maker(llm: LLM, form: Mapping[str, Any]) -> Callable[[Messages], Arguments]:
    """Return a function that makes the body of a request, as LlamaIndex's OpenAI does for `chat`.

    Args:
        llm: The LLM.
        form: Further arguments of `chat`.

    Raises:
        ValueError: The LLM is not from llama-index-llms-openai, or is not a chat model.
    """
    if not isinstance(llm, OpenAI):
        raise ValueError(
            "the Batch API takes the requests of llama-index-llms-openai's OpenAI and of its subclasses, "
            f"not of {type(llm).__name__}: index without the Batch API"
        )
    if not llm.metadata.is_chat_model:
        raise ValueError(
            f"{llm.model} completes texts, and batch requests need a chat model: choose another model"
        )
    settings = llm._get_model_kwargs(**form)
    extra_body = settings.pop("extra_body", None) or {}
    settings = {name: value for name, value in settings.items() if name not in _CLIENT_SETTINGS}

    def body(messages: Messages) -> Arguments:
        return {
            **settings,
            "messages": to_openai_message_dicts(messages, model=llm.model),
            **extra_body,
        }

    return body


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a request file.

    Args:
        custom_id: The id by which the result is recognised: at most 64 characters, unique in all files.
        body: The body of a request to `ENDPOINT`.
    """
    request = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    line = _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", text) + "\n"
    return line.encode("utf-8", "replace")


@dataclass
class RequestFile:
    """A request file, with the number of its requests and bytes."""

    path: str
    requests: int = 0
    bytes: int = 0


@dataclass
class RequestFiles:
    """Requests in numbered files in a folder, each within the service's limits (see `request_files`).

    Args:
        folder: The folder for the finished files.
        unfinished: The folder where they are written.
        max_requests: The most requests per file.
        max_bytes: The most bytes per file.
        written: The files so far.
    """

    folder: Path
    unfinished: Path
    max_requests: int
    max_bytes: int
    written: list[RequestFile] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        """Write a request."""
        if not self.written or not self._fits(line, self.written[-1]):
            path = self.folder / f"requests-{len(self.written) + 1:04}.jsonl"
            self.written.append(RequestFile(str(path)))
        last = self.written[-1]
        with open(self.unfinished / Path(last.path).name, "ab", opener=open_private) as file:
            file.write(line)
        last.requests += 1
        last.bytes += len(line)

    def _fits(self, line: bytes, file: RequestFile) -> bool:
        return file.requests < self.max_requests and file.bytes + len(line) <= self.max_bytes


@contextmanager
def request_files(
    folder: Path,
    *,
    force: bool = False,
    max_requests: int = MAX_REQUESTS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[RequestFiles]:
    """Collect requests in numbered files in a folder.

    Until the end of the `with` block the files are in a hidden folder inside it. An error removes them, and
    leaves earlier files as they are. Files and folders are private to the user, since they hold documents'
    text.

    Args:
        folder: The folder, created if it is missing.
        force: Whether files of an earlier export are replaced.
        max_requests: The most requests per file.
        max_bytes: The most bytes per file.

    Raises:
        ValueError: There are files of an earlier export.

    Example:
        >>> with request_files(Path(tempfile.mkdtemp())) as files:
        ...     files.add(request_line("1", {"model": "gpt-4o-mini", "messages": []}))
        >>> [(Path(file.path).name, file.requests) for file in files.written]
        [('requests-0001.jsonl', 1)]
    """
    is_new = not folder.exists()
    earlier = sorted(folder.glob("requests-*.jsonl"))
    if earlier and not force:
        raise ValueError(
            f"{folder} holds request files of an earlier export ({earlier[0].name}): give another folder, or "
            "--force (force=True) to replace them"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in folder.glob(f"{_UNFINISHED}*"):  # from an export that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as unfinished:
            files = RequestFiles(folder, Path(unfinished), max_requests, max_bytes)
            yield files
            for path in earlier:  # else they would be uploaded with the new ones
                path.unlink(missing_ok=True)
            for file in files.unfinished.iterdir():
                file.replace(folder / file.name)
    finally:
        if is_new:
            with suppress(OSError):  # there are files in it
                folder.rmdir()


@dataclass(frozen=True)
class ImportReport:
    """The outcome of importing result files.

    Args:
        lines: Results in the files.
        imported: Results that are now cached.
        already_there: Results whose request already had a cached reply, which stays.
        unusable: The other results, by reason; the ingestion will send their requests directly.
        usage: The usage of the imported results.
        cost: Their cost with the Batch API; None if a model's price is not known.
    """

    lines: int
    imported: int
    already_there: int
    unusable: dict[str, int]
    usage: Usage
    cost: float | None


def import_results(files: Sequence[Path], cache: ReplyCache, prices: PriceTable) -> ImportReport:
    """Cache the replies in output files of the Batch API; error files may be among them.

    Lines may be in any order; unusable ones are counted.

    Args:
        files: The files.
        cache: The cache for the replies; a cached reply is not replaced.
        prices: The prices that `read_prices` returned.

    Raises:
        OSError: A file cannot be read, or the cache cannot be written. Results cached until then stay.
    """
    unusable = Counter[str]()
    usage_by_model: defaultdict[str, Usage] = defaultdict(Usage)
    imported = 0
    already_there = 0
    with FileInput(files, mode="rb") as lines:
        for result in map(read_result, filter(bytes.strip, lines)):
            if not result.outcome:
                unusable[result.problem] += 1
            elif not _KEY.fullmatch(result.custom_id):
                unusable["the custom_id is not of an export of densex"] += 1
            elif cache.get(result.custom_id):
                already_there += 1
            else:
                cache.put(result.custom_id, result.outcome)
                imported += 1
                if isinstance(result.outcome, Reply):
                    usage_by_model[result.model] += result.outcome.usage
    return ImportReport(
        lines=imported + already_there + unusable.total(),
        imported=imported,
        already_there=already_there,
        unusable=dict(unusable.most_common()),
        usage=sum(usage_by_model.values(), NOTHING),
        cost=_batch_cost(usage_by_model, prices),
    )


def _batch_cost(usage_by_model: Mapping[str, Usage], prices: PriceTable) -> float | None:
    cost = 0.0
    for model, usage in usage_by_model.items():
        price = price_of(model, prices)
        if not price:
            return None
        cost += price.of(usage, batch=True)
    return cost


@dataclass(frozen=True)
class BatchResult:
    """The result of one request.

    Args:
        custom_id: The request's id; "" if the line has none.
        outcome: The reply to cache, or a failure that would recur if the request were sent again; None if
            there is neither.
        problem: Why there is nothing to cache, without any text of a document; else "".
        model: The model that answered, by the provider's name for it.
    """

    custom_id: str = ""
    outcome: Outcome | None = None
    problem: str = ""
    model: str = ""


def read_result(line: bytes) -> BatchResult:
    """Read a line of an output or error file, as an ingestion reads a response; never raises."""
    match _decoded(line):
        case {
            "custom_id": str(custom_id),
            "response": (None | {"status_code": int()}) as response,
            **rest,
        }:
            error = rest.get("error")
        case _:  # a request has no response
            return BatchResult(problem="the line is damaged, or no result but a request")
    response = response or {}
    status = response.get("status_code")
    body = response.get("body")
    if error:
        return _failed_result(custom_id, BatchError(status, {"error": error}))
    if status != 200:
        return _failed_result(custom_id, BatchError(status, body))
    match body:
        case {"choices": [{"message": {"content": (None | str()) as content}}, *_], **more}:
            chat = ChatResponse(message=ChatMessage(content, role=MessageRole.ASSISTANT), raw=body)
            return BatchResult(custom_id, Reply.of(chat, ()), model=str(more.get("model") or ""))
    return BatchResult(custom_id, problem="the response holds no text")


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def _failed_result(custom_id: str, error: BatchError) -> BatchResult:
    failure = classify(error)
    if failure.kind in KEPT_FAILURES:
        return BatchResult(custom_id, failure)
    problem = "the request failed"
    codes = failure.summary.removeprefix(BatchError.__name__).strip()
    if codes:
        problem += f" ({codes})"
    return BatchResult(custom_id, problem=problem)


class BatchError(Exception):
    """The service's error for a failed request, in the form of the errors that clients raise."""

    def __init__(self, status_code: int | None, body: Any) -> None:
        self.status_code = status_code
        self.body = body
        super().__init__("the request failed")
