"""The propositions of documents by OpenAI's Batch API: documents to request files, result files to kept replies."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
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
from llama_pack_densex.llm.cache import KEPT_FAILURES, ReplyCache, open_private
from llama_pack_densex.llm.errors import Failure, classify
from llama_pack_densex.llm.requests import LLMRequest
from llama_pack_densex.llm.usage import NOTHING, Messages, PriceTable, Reply, Usage, price_of
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser

ENDPOINT = "/v1/chat/completions"
MAX_REQUESTS = 50_000
"""Requests that the service takes in one file."""
MAX_BYTES = 190_000_000
"""The service takes 200 MB."""
_KEY = re.compile(r"[0-9a-f]{24}-[0-9a-f]{32}")  # what `reply_key` returns
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")  # to JSON they are none, to some who split lines they are
_NOT_IN_THE_BODY = ("extra_headers", "extra_query", "timeout")  # the client's, though they come with the settings
_UNFINISHED = ".requests-"


def export_requests(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    files: RequestFiles,
    *,
    prices: str | Path | Mapping[str, Any] | None = None,
    indexed: Collection[str] = (),
) -> Estimate:
    """Write a request for each passage whose reply is not kept.

    A request is what the live path sends first for a passage, under the key that its reply is kept by: once the result
    is imported, the live path reads it in place of asking.

    Args:
        documents: The documents, read one after the other.
        parser: What will make nodes of them, with an `LLMPropositionizer`, or one behind another; its cache counts.
        files: Where to.
        prices: As in `estimate`.
        indexed: Hashes of documents (`parser.document_hash`) that need not be done again.

    Returns:
        What was made into requests, and what they will take.

    Raises:
        ValueError: The LLM has no requests for the Batch API.
    """
    propositionizer = llm_behind(parser.propositionizer)
    if propositionizer is None:
        raise ValueError(f"{parser.propositionizer.class_name()} asks no LLM: there is nothing to export")
    body, key = body_maker(propositionizer.llm, propositionizer.form), propositionizer.key

    def write(question: LLMRequest) -> None:
        files.add(request_line(key(question), body(question.messages)))

    return estimate(documents, parser, prices=prices, indexed=indexed, on_request=write)


def body_maker(llm: LLM, form: Mapping[str, Any]) -> Callable[[Messages], dict[str, Any]]:
    """What makes the body of a request, as LlamaIndex's OpenAI does for `chat`.

    Args:
        llm: The LLM.
        form: What `chat` gets besides the messages.

    Raises:
        ValueError: The LLM is none of llama-index-llms-openai, or it does not chat.
    """
    if not isinstance(llm, OpenAI):
        raise ValueError(
            "the Batch API takes the requests of llama-index-llms-openai's OpenAI and of what is built on it, not of "
            f"{type(llm).__name__}: let it be asked directly"
        )
    if not llm.metadata.is_chat_model:
        raise ValueError(f"{llm.model} completes texts, and the requests are for models that chat: choose another")
    settings = llm._get_model_kwargs(**form)
    further = settings.pop("extra_body", None) or {}
    settings = {name: value for name, value in settings.items() if name not in _NOT_IN_THE_BODY}

    def body(messages: Messages) -> dict[str, Any]:
        return {**settings, "messages": to_openai_message_dicts(messages, model=llm.model), **further}

    return body


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    """Write the line of a request.

    Args:
        custom_id: What the result will be known by: at most 64 characters, once in all files.
        body: What would be sent to `ENDPOINT`.
    """
    request = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", text).encode("utf-8", "replace") + b"\n"


@dataclass
class RequestFile:
    """A file that was written."""

    path: str
    requests: int = 0
    bytes: int = 0


@dataclass
class RequestFiles:
    """Requests in numbered files in a folder, each within the service's limits (see `request_files`).

    Args:
        folder: Where they will lie.
        unfinished: Where they are written.
        max_requests: Requests a file.
        max_bytes: Bytes a file.
        written: The files.
    """

    folder: Path
    unfinished: Path
    max_requests: int
    max_bytes: int
    written: list[RequestFile] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        """Write a request."""
        last = self.written[-1] if self.written else None
        if last is None or last.requests == self.max_requests or last.bytes + len(line) > self.max_bytes:
            last = RequestFile(str(self.folder / f"requests-{len(self.written) + 1:04}.jsonl"))
            self.written.append(last)
        with open(self.unfinished / Path(last.path).name, "ab", opener=open_private) as file:
            file.write(line)
        last.requests += 1
        last.bytes += len(line)


@contextmanager
def request_files(
    folder: Path, *, force: bool = False, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES
) -> Iterator[RequestFiles]:
    """Have requests written to numbered files in a folder.

    From `with` to the end of it, they lie in a hidden folder there; an error removes them, and earlier files stay as
    they are. Files and folders are private to the user, since they hold documents' text.

    Args:
        folder: The folder, made if it is not there.
        force: Whether files of an earlier export are replaced.
        max_requests: Requests a file.
        max_bytes: Bytes a file.

    Raises:
        ValueError: There are files of an earlier export.

    Examples:
        >>> with request_files(Path(tempfile.mkdtemp())) as files:
        ...     files.add(request_line("1", {"model": "gpt-4o-mini", "messages": []}))
        >>> [(Path(file.path).name, file.requests) for file in files.written]
        [('requests-0001.jsonl', 1)]
    """
    is_new, earlier = not folder.exists(), sorted(folder.glob("requests-*.jsonl"))
    if earlier and not force:
        raise ValueError(
            f"{folder} holds request files of an earlier export ({earlier[0].name}): give another folder, or --force "
            "(force=True) to replace them"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"{_UNFINISHED}*"):  # of an export that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as unfinished:
            files = RequestFiles(folder, Path(unfinished), max_requests, max_bytes)
            yield files
            for path in earlier:  # what stayed would be uploaded with the new ones
                path.unlink(missing_ok=True)
            for file in files.unfinished.iterdir():
                file.replace(folder / file.name)
    finally:
        if is_new:
            with suppress(OSError):  # there are files in it
                folder.rmdir()


@dataclass(frozen=True)
class ImportReport:
    """What came of result files.

    Args:
        lines: Results in the files.
        imported: Those that are kept from now on.
        already_there: Those for which something had been kept before; that stays.
        unusable: The others, by reason; what they were to be the replies to is asked for directly.
        usage: What the imported ones used.
        cost: What they cost by the Batch API; None where a model's price is not known.
    """

    lines: int
    imported: int
    already_there: int
    unusable: dict[str, int]
    usage: Usage
    cost: float | None


def import_results(files: Sequence[Path], cache: ReplyCache, prices: PriceTable) -> ImportReport:
    """Keep the replies in output files of the Batch API, where there is none yet; error files may be among them.

    Lines are read one after the other, in any order; those that cannot be used are counted.

    Args:
        files: The files.
        cache: Where to keep them.
        prices: What `read_prices` returned.

    Raises:
        OSError: A file cannot be read, or the cache cannot be written. What was kept until then stays.
    """
    unusable, usage = Counter[str](), dict[str, Usage]()
    imported = already_there = 0
    with FileInput(files, mode="rb") as lines:
        for result in map(read_result, filter(bytes.strip, lines)):
            if result.outcome is None:
                unusable[result.problem] += 1
            elif not _KEY.fullmatch(result.custom_id):
                unusable["the custom_id is not of an export of densex"] += 1
            elif cache.get(result.custom_id) is not None:
                already_there += 1
            else:
                cache.put(result.custom_id, result.outcome)
                imported += 1
                if isinstance(result.outcome, Reply):
                    usage[result.model] = usage.get(result.model, NOTHING) + result.outcome.usage
    costs = [price.of(used, batch=True) for model, used in usage.items() if (price := price_of(model, prices))]
    return ImportReport(
        lines=imported + already_there + unusable.total(),
        imported=imported,
        already_there=already_there,
        unusable=dict(unusable.most_common()),
        usage=sum(usage.values(), NOTHING),
        cost=sum(costs) if len(costs) == len(usage) else None,
    )


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


def read_result(line: bytes) -> BatchResult:
    """Read a line of an output file or an error file, as the live path reads a response; nothing is raised."""
    try:
        result = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        result = None
    match result:
        case {"custom_id": str(custom_id), "response": (None | {"status_code": int()}) as answer}:
            answer, error = answer or {}, result.get("error")
        case _:  # a request has no response
            return BatchResult(problem="the line is damaged, or no result but a request")
    status, body = answer.get("status_code"), answer.get("body")
    if status != 200 or error:
        failure = classify(BatchError(status, {"error": error} if error else body))
        if failure.kind in KEPT_FAILURES:
            return BatchResult(custom_id, failure)
        said = failure.summary.removeprefix(BatchError.__name__).strip()
        return BatchResult(custom_id, problem="the request failed" + (f" ({said})" if said else ""))
    match body:
        case {"choices": [{"message": {"content": (None | str()) as content}}, *_], **more}:
            response = ChatResponse(message=ChatMessage(content, role=MessageRole.ASSISTANT), raw=body)
            return BatchResult(custom_id, Reply.of(response, ()), model=str(more.get("model") or ""))
    return BatchResult(custom_id, problem="the response holds no text")


class BatchError(Exception):
    """What the service says of a request that it could not do, in the form that clients raise errors in."""

    def __init__(self, status_code: int | None, body: Any) -> None:
        self.status_code, self.body = status_code, body
        super().__init__("the request failed")
