"""The web application of a pack: its requests and responses over HTTP."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from jinja2 import StrictUndefined, Template
from llama_index.core.base.response.schema import AsyncStreamingResponse
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import NodeWithScore
from pydantic import BaseModel, BeforeValidator, Field

from llama_pack_densex import DenseXRetrievalPack, InvalidIndexError
from llama_pack_densex.answering.citations import Outcome
from llama_pack_densex.answering.sources import Source, placed
from llama_pack_densex.llm.errors import classify, is_of_a_model, secrets_in_environment
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.text.terminal import plain_logger

try:
    from fastapi import APIRouter, FastAPI, Header, HTTPException, Request, Security
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, Response
    from fastapi.security import HTTPBearer
    from fastapi.sse import EventSourceResponse, ServerSentEvent
    from fastapi.staticfiles import StaticFiles
    from uvicorn import Config, Server

    from llama_pack_densex.serving.guard import HEADERS, Guard
except ImportError as error:
    raise ImportError(
        "this needs fastapi, from version 0.135 on, and uvicorn: pip install "
        f'"llama-pack-densex[serve]" ({error})'
    ) from error

logger = plain_logger(__name__)

MAX_QUESTION = 2_000  # characters
MAX_MESSAGE = 4_000  # characters of an earlier message
MAX_HISTORY = 20  # messages
MAX_TOP_K = 50
_RATE_WITH_TOKEN = 240  # default requests per minute of a client, if there is a token

_PAGE = Path(__file__).parent / "page"


def _whole(number: Any) -> Any:
    """Make an integer of a JSON number such as 4.0; strict validation then refuses true and "4"."""
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number


class QuestionRequest(BaseModel, extra="forbid"):
    """A question, and how many passages to retrieve."""

    question: str = Field(
        min_length=1,
        max_length=MAX_QUESTION,
        pattern=r"\S",
        description="The question, in the language of the documents.",
        examples=["When was the tower finished?"],
    )
    top_k: Annotated[int | None, BeforeValidator(_whole)] = Field(
        None,
        ge=1,
        le=MAX_TOP_K,
        strict=True,
        description="Number of passages to retrieve; by default the index's own.",
    )


class Message(BaseModel, extra="forbid"):
    """An earlier message of a conversation."""

    role: Literal["user", "assistant"]
    content: str = Field(max_length=MAX_MESSAGE)


class ChatRequest(QuestionRequest):
    """The newest message of a conversation. The server stores nothing: each message brings its history."""

    history: list[Message] = Field(
        [], max_length=MAX_HISTORY, description="Earlier messages, the oldest first."
    )


class Proposition(BaseModel):
    """A proposition, and the span, in characters of its document, of the sentences that state it."""

    id: str
    text: str
    start: int | None = None
    end: int | None = None


class MatchedUnit(Proposition):
    """A proposition or sentence by which a passage was found."""

    score: float
    granularity: str
    question: str = Field(
        "", description="The question that matched, if the unit was found by one."
    )
    unverified: bool = Field(False, description="No sentence of the passage states it.")
    led_by: str = Field(
        "", description="The text of another passage's unit that led here by a second hop."
    )


class SourceText(BaseModel):
    """A text of a document, and its span in the document, in characters."""

    node_id: str
    document: str
    title: str = ""
    section: str = Field("", description="The headings above it.")
    context: str = Field(
        "", description="What has to be read before it: a list's lead-in, a table's header."
    )
    page: str = ""
    start: int | None = None
    end: int | None = None
    text: str


class Passage(SourceText):
    """A passage that was retrieved."""

    granularity: str
    score: float | None
    propositions: list[MatchedUnit] = Field(description="The units that found it, best first.")


class Citation(SourceText):
    """A source of an answer."""

    number: int = Field(description="The number of its footnote: `[^1]` in the answer is 1.")
    propositions: list[Proposition] = Field(
        description="The propositions that support what the answer says."
    )
    led_by: str = Field(
        "", description="The text of another passage's unit that led here by a second hop."
    )


class Sentence(BaseModel):
    """A sentence of an answer."""

    text: str
    footnotes: list[int] = Field(
        description="The numbers of its sources; empty if no source supports it."
    )
    propositions: list[str] = Field(description="The ids of the propositions that support it.")
    supported: bool = Field(description="Whether its sources hold at least half of its words.")


class Passages(BaseModel):
    """The passages that were retrieved for a question."""

    passages: list[Passage] = Field(description="Best first.")


class Answer(Passages):
    """An answer and its sources."""

    answer: str = Field(description="The answer, with footnotes.")
    markdown: str = Field(description="The answer with its sources listed below.")
    outcome: Outcome
    cut_off: bool = Field(description="Whether the LLM's limit of tokens ended it.")
    sentences: list[Sentence]
    citations: list[Citation]


_DETAIL = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
# a schema, not a model, which FastAPI would describe as an event stream for /chat
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Why there is no answer.",
        "content": {"application/json": {"schema": _DETAIL}},
    }
}


def make_app(
    pack: DenseXRetrievalPack,
    token: str | None = None,
    *,
    hosts: Collection[str] | str = (),
    requests_per_minute: float | None = None,
    name: str = "densex",
) -> FastAPI:
    """Make a web application of a pack: `/query`, `/retrieve`, `/chat`, `/healthz`, and a page at `/`.

    Args:
        pack: The pack. Its LLM answers; without an LLM, answers are quotations.
        token: The token that requests must send as `Authorization: Bearer ...`; None requires none. The page,
            its files, `/healthz` and `/openapi.json` never need it.
        hosts: Names (or one name) by which the server may be addressed, besides localhost and IP addresses.
        requests_per_minute: The limit for one client, identified by its IP address; a quarter of it may come
            in one burst. 0 means no limit; None means 240 with a token, and no limit without one.
        name: The name of the index on the page.

    Raises:
        ValueError: The token cannot be sent in a header, or is empty (pass None for no token); a host is not
            a bare host name; the rate is negative or NaN.

    Example:
        >>> from fastapi.testclient import TestClient
        >>> from llama_index.core import Document
        >>> from llama_pack_densex import DenseXRetrievalPack
        >>> from llama_pack_densex.serving.app import make_app
        >>> app = make_app(DenseXRetrievalPack([Document(text="The Akashi Bridge opened in 1998.")]))
        >>> client = TestClient(app, "http://localhost")  # in practice: uvicorn.run(app)
        >>> client.post("/query", json={"question": "When did the Akashi Bridge open?"}).json()["answer"]
        'The Akashi Bridge opened in 1998.[^1]'
    """
    app = FastAPI(
        title="densex",
        summary="Answers and passages of an index, with the propositions that led to them.",
        version=version("llama-pack-densex"),
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    security = []
    rate = 0.0
    if token is not None:
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", token):
            raise ValueError(
                "the token must be of printable ASCII characters, without spaces around it"
            )
        rate = _RATE_WITH_TOKEN
        # the guard checks the token; this only documents it in the OpenAPI schema
        security.append(Security(HTTPBearer(auto_error=False)))
    if requests_per_minute is not None:
        rate = requests_per_minute
    if not rate >= 0:  # also false for NaN
        raise ValueError(f"requests_per_minute is {rate}: it must be at least 0")
    app.add_middleware(Guard, token=token, hosts=_checked_hosts(hosts), rate=rate)
    app.include_router(_answers_of(pack), responses=_PROBLEMS, dependencies=security)
    _add_page(
        app,
        name=name,
        written=pack.get_modules()["query_llm"] is not None,
        asks_token=token is not None,
    )

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": _complaint(error)}, 422)

    @app.exception_handler(Exception)
    async def fail(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The server failed; its log says why."}, 500, HEADERS)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", responses=_PROBLEMS, summary="Check that the server is up.")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _checked_hosts(hosts: Collection[str] | str) -> Collection[str]:
    if isinstance(hosts, str):
        hosts = [hosts]
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+", host, re.ASCII):
            raise ValueError(
                f"hosts: {host!r} is not a bare host name such as search.example.org, without scheme and port"
            )
    return hosts


def _answers_of(pack: DenseXRetrievalPack) -> APIRouter:
    """Make the routes that ask a pack: `/query`, `/retrieve` and `/chat`."""
    router = APIRouter()

    @router.post("/query", summary="Answer a question, with the sources of each sentence.")
    async def query(request: QuestionRequest) -> Answer:
        with _answering():
            response = await pack.arun(request.question, request.top_k)
            if isinstance(response, AsyncStreamingResponse):  # the pack streams
                response = await response.get_response()
            return _answer(str(response), response.metadata or {}, response.source_nodes)

    @router.post("/retrieve", summary="Find passages, and the propositions that led to them.")
    async def retrieve(request: QuestionRequest) -> Passages:
        with _answering():
            hits = await pack.aretrieve(request.question, request.top_k)
            return Passages(passages=[_passage(hit) for hit in hits])

    @router.post(
        "/chat",
        response_class=EventSourceResponse,
        summary="Answer in a conversation, streamed as it is written.",
        response_description="Events: `delta` with `text`, many times; then `answer`, as /query gives it, or "
        "`problem` with `detail`.",
    )
    async def chat(request: ChatRequest) -> AsyncIterator[ServerSentEvent]:
        history = [ChatMessage(**vars(message)) for message in request.history]
        try:
            with _answering():
                engine = pack.as_chat_engine(request.top_k, chat_history=history)
                response = await engine.astream_chat(request.question)
                text = ""
                async with aclosing(response.async_response_gen()) as deltas:
                    async for delta in deltas:
                        text += delta
                        yield ServerSentEvent(event="delta", data={"text": delta})
                answer = _answer(text, response.metadata, response.source_nodes)
                yield ServerSentEvent(event="answer", data=answer)
        except HTTPException as problem:  # too late for a status: it has been sent
            yield ServerSentEvent(event="problem", data={"detail": problem.detail})

    return router


def _add_page(app: FastAPI, **settings: Any) -> None:
    """Add the page in each of its languages."""
    template = Template(
        (_PAGE / "page.html").read_text("utf-8"), autoescape=True, undefined=StrictUndefined
    )
    settings["limits"] = {"question": MAX_QUESTION, "message": MAX_MESSAGE, "history": MAX_HISTORY}
    words = json.loads((_PAGE / "words.json").read_text("utf-8"))
    pages = {code: template.render(settings, language=code, words=words[code]) for code in words}
    app.mount("/page", StaticFiles(directory=_PAGE))

    @app.api_route(
        "/", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False
    )
    async def page(lang: str = "", accept_language: Annotated[str, Header()] = "") -> HTMLResponse:
        # browsers name the preferred language first
        accepted = re.findall(r"\b[a-z]{2}\b", accept_language.lower())
        code = next((code for code in (lang, *accepted) if code in pages), "en")
        headers = {"Content-Language": code, "Vary": "Accept-Language"}
        return HTMLResponse(pages[code], headers=headers)


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """Open a socket to serve on.

    Raises:
        ValueError: The address can be reached from other machines, but there is no token.
        OSError: The address cannot be listened on.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        if token is None and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
            raise ValueError(
                f"{host} can be reached by others, but there is no token: set --token or DENSEX_TOKEN to a "
                "long random text, such as from: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}") from error


def serve_app(app: FastAPI, listening: socket.socket, tell: Callable[[str], object]) -> None:
    """Serve until Ctrl-C or SIGTERM; answers in progress then have five seconds to finish.

    Args:
        app: The application.
        listening: The socket to serve on.
        tell: Called with the URL.
    """
    config = Config(
        app,
        log_level="warning",
        log_config=None,  # uvicorn logs through the process's own handlers
        # else clients on this machine could fake their address and evade the rate limit
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
        timeout_graceful_shutdown=5,
    )
    host, port = listening.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    tell(f"http://{host}:{port}/")
    Server(config).run(sockets=[listening])


@contextmanager
def _answering() -> Iterator[None]:
    """Turn an error while answering into a response that quotes no document; the log has the reason.

    Raises:
        HTTPException: The model could not be reached (502), or the index or the code is at fault (500).
    """
    try:
        yield
    except Exception as error:
        failure = classify(error, secrets_in_environment())
        reason: object = failure.summary
        status = 502
        is_fault = failure.kind == "broken"
        if isinstance(error, InvalidIndexError):
            reason = error
            status = 500
        elif is_fault or not (isinstance(error, ConnectionError) or is_of_a_model(error)):
            is_fault = True
            status = 500
        logger.error("a question could not be answered: %s", reason, exc_info=is_fault)
        message = "The question could not be answered; the server's log says why."
        raise HTTPException(status, message) from None


def _complaint(error: RequestValidationError) -> str:
    """Return what is wrong with a request, without repeating its content."""
    first = error.errors()[0]
    if first["loc"] == ("body",):
        return "The body has to be a JSON object, sent with Content-Type: application/json."
    path = first["loc"][1:]
    fields = {*ChatRequest.model_fields, *Message.model_fields}
    where = ".".join(str(part) for part in path if isinstance(part, int) or part in fields)
    # for invalid JSON, the rest of the location is an offset in the text
    if not where or first["type"] == "json_invalid":
        return str(first["msg"])
    return f"{where}: {first['msg']}"


def _answer(text: str, metadata: Mapping[str, Any], nodes: list[NodeWithScore]) -> Answer:
    return Answer(**{**metadata, "answer": text, "passages": [_passage(node) for node in nodes]})


def _passage(hit: NodeWithScore) -> Passage:
    source = Source.of(0, hit)
    return Passage(
        **vars(source) | placed(source.span),
        granularity=str(hit.metadata.get(GRANULARITY_KEY) or ""),
        score=hit.score,
        propositions=[MatchedUnit(**vars(unit) | placed(unit.span)) for unit in source.units],
    )
