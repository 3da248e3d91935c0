"""The application: what can be asked of a pack over HTTP, and what comes back."""

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
_RATE_WITH_TOKEN = 240  # requests a minute, unless something else is asked for

_PAGE = Path(__file__).parent / "page"


def _whole(number: Any) -> Any:
    """A number as JSON has it, to which 4.0 is an integer; strict validation then refuses true and "4"."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


class QuestionRequest(BaseModel, extra="forbid"):
    """A question, and how many passages to look for."""

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
        description="Passages to retrieve; by default the index's number.",
    )


class Message(BaseModel, extra="forbid"):
    """An earlier message of a conversation."""

    role: Literal["user", "assistant"]
    content: str = Field(max_length=MAX_MESSAGE)


class ChatRequest(QuestionRequest):
    """The newest message of a conversation. The server keeps none: its history comes with each."""

    history: list[Message] = Field(
        [],
        max_length=MAX_HISTORY,
        description="Earlier messages, the oldest first.",
    )


class Proposition(BaseModel):
    """A proposition, and the place in its document's text, in characters, of the sentences that say it."""

    id: str
    text: str
    start: int | None = None
    end: int | None = None


class MatchedUnit(Proposition):
    """A proposition or sentence by which a passage was found."""

    score: float
    granularity: str
    question: str = Field("", description="The question that led to it.")
    unverified: bool = Field(False, description="No sentence of the passage says it.")
    led_by: str = Field("", description="What another passage says that led here.")


class SourceText(BaseModel):
    """A text of a document and its place there, in characters."""

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
    """What was found."""

    granularity: str
    score: float | None
    propositions: list[MatchedUnit] = Field(description="Those that found it, the best first.")


class Citation(SourceText):
    """A source of an answer."""

    number: int = Field(description="Its footnote: `[^1]` in the answer is number 1.")
    propositions: list[Proposition] = Field(description="Those that support what is said.")
    led_by: str = Field("", description="What another passage says that led here.")


class Sentence(BaseModel):
    """A sentence of an answer."""

    text: str
    footnotes: list[int] = Field(description="Its sources; none where no source supports it.")
    propositions: list[str] = Field(description="The ids of the propositions that support it.")
    supported: bool = Field(description="Whether its sources hold at least half of its words.")


class Passages(BaseModel):
    """What was retrieved for a question."""

    passages: list[Passage] = Field(description="The best first.")


class Answer(Passages):
    """An answer and its sources."""

    answer: str = Field(description="The answer, with footnotes.")
    markdown: str = Field(description="The same with the sources below.")
    outcome: Outcome
    cut_off: bool = Field(description="Whether the LLM's limit of tokens ended it.")
    sentences: list[Sentence]
    citations: list[Citation]


_DETAIL = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
# FastAPI would describe a model as events where the answer is
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
        pack: The pack. Its LLM, if it has one, answers; without, answers are quotations.
        token: What requests must bring as `Authorization: Bearer ...`; None asks for none. The page, its
            files, `/healthz` and `/openapi.json` are for all.
        hosts: Names, or one, that the server may be called by, besides localhost and addresses.
        requests_per_minute: Of one client, known by its address; a quarter of them may come at once. 0 means
            no limit; None means 240 where there is a token, and no limit where there is none.
        name: What the page calls the index.

    Raises:
        ValueError: The token cannot be sent in a header, or is empty (no token is None); a host is no mere
            name; the rate is negative or no number.

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
    if token is not None and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", token):
        raise ValueError(
            "the token must be of printable ASCII characters, without spaces around it"
        )
    hosts = [hosts] if isinstance(hosts, str) else hosts
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+", host, re.ASCII):
            raise ValueError(
                f"hosts: {host!r} is no name, as search.example.org is, without scheme and port"
            )
    rate = requests_per_minute
    if rate is None:
        rate = 0 if token is None else _RATE_WITH_TOKEN
    if not rate >= 0:  # nan is not
        raise ValueError(f"requests_per_minute is {rate}: it must be at least 0")
    app = FastAPI(
        title="densex",
        summary="Answers and passages of an index, with the propositions that led to them.",
        version=version("llama-pack-densex"),
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.add_middleware(Guard, token=token, hosts=hosts, rate=rate)
    # the guard looks at the token; this says so in the OpenAPI
    security = [] if token is None else [Security(HTTPBearer(auto_error=False))]
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
        return JSONResponse({"detail": "The server has failed; its log says how."}, 500, HEADERS)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", responses=_PROBLEMS, summary="Say that the server answers.")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _answers_of(pack: DenseXRetrievalPack) -> APIRouter:
    """What can be asked of a pack."""
    router = APIRouter()

    @router.post("/query", summary="Answer a question, with the sources of each sentence.")
    async def query(request: QuestionRequest) -> Answer:
        with _answering():
            response = await pack.arun(request.question, request.top_k)
            if isinstance(response, AsyncStreamingResponse):  # of a pack that streams
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
        summary="Answer in a conversation, as it is written.",
        response_description="Events: `delta` with `text`, many times; then `answer`, as /query gives it, or "
        "`problem` with `detail`.",
    )
    async def chat(request: ChatRequest) -> AsyncIterator[ServerSentEvent]:
        history = [
            ChatMessage(role=message.role, content=message.content) for message in request.history
        ]
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
        except HTTPException as problem:  # the status is sent
            yield ServerSentEvent(event="problem", data={"detail": problem.detail})

    return router


def _add_page(app: FastAPI, **settings: Any) -> None:
    """Add the page in each of its languages."""
    template = Template(
        (_PAGE / "page.html").read_text("utf-8"), autoescape=True, undefined=StrictUndefined
    )
    settings["limits"] = {
        "question": MAX_QUESTION,
        "message": MAX_MESSAGE,
        "history": MAX_HISTORY,
    }
    words = json.loads((_PAGE / "words.json").read_text("utf-8"))
    pages = {code: template.render(settings, language=code, words=words[code]) for code in words}
    app.mount("/page", StaticFiles(directory=_PAGE))

    @app.api_route(
        "/", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False
    )
    async def page(lang: str = "", accept_language: Annotated[str, Header()] = "") -> HTMLResponse:
        # browsers name the most wanted one first
        accepted = re.findall(r"\b[a-z]{2}\b", accept_language.lower())
        code = next((code for code in (lang, *accepted) if code in pages), "en")
        return HTMLResponse(
            pages[code], headers={"Content-Language": code, "Vary": "Accept-Language"}
        )


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """A socket to serve on.

    Raises:
        ValueError: Others than this machine could ask, and there is no token.
        OSError: The address cannot be listened on.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        if token is None and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
            raise ValueError(
                f"{host} can be reached by others, and there is no token: set --token or DENSEX_TOKEN to a "
                "long random text, for one of: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}") from error


def serve_app(app: FastAPI, listening: socket.socket, tell: Callable[[str], object]) -> None:
    """Serve until Ctrl-C or SIGTERM; answers that are being written then have some seconds to end.

    Args:
        app: The application.
        listening: Where.
        tell: Gets the URL.
    """
    config = Config(
        app,
        log_level="warning",
        log_config=None,  # what it logs goes where all the rest does
        # else clients on this machine could pretend to be others, and pass the limit on their rate
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
        timeout_graceful_shutdown=5,
    )
    host, port = listening.getsockname()[:2]
    tell(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
    Server(config).run(sockets=[listening])


@contextmanager
def _answering() -> Iterator[None]:
    """Report what goes wrong in answering without what it may quote of a document.

    Raises:
        HTTPException: The model could not be asked (502), or the index or the code is at fault (500); the log
            says why.
    """
    try:
        yield
    except Exception as error:
        failure = classify(error, secrets_in_environment())
        is_of_index = isinstance(error, InvalidIndexError)
        is_of_model = isinstance(error, ConnectionError) or is_of_a_model(error)
        is_fault = failure.kind == "broken" or not (is_of_index or is_of_model)
        reason = error if is_of_index else failure.summary
        logger.error("a question could not be answered: %s", reason, exc_info=is_fault)
        status = 500 if is_of_index or is_fault else 502
        raise HTTPException(
            status,
            "The question could not be answered; the server's log says why.",
        ) from None


def _complaint(error: RequestValidationError) -> str:
    """What is wrong with a request, without repeating what it holds."""
    first = error.errors()[0]
    if first["loc"] == ("body",):
        return "The body has to be a JSON object, sent with Content-Type: application/json."
    # there it is a place in the text
    path = () if first["type"] == "json_invalid" else first["loc"][1:]
    fields = {*ChatRequest.model_fields, *Message.model_fields}
    where = ".".join(str(part) for part in path if isinstance(part, int) or part in fields)
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _answer(text: str, metadata: Mapping[str, Any], nodes: list[NodeWithScore]) -> Answer:
    return Answer(**{**metadata, "answer": text, "passages": [_passage(node) for node in nodes]})


def _passage(hit: NodeWithScore) -> Passage:
    source = Source.of(0, hit)
    return Passage(
        **vars(source) | placed(source.span),
        granularity=str(hit.node.metadata.get(GRANULARITY_KEY) or ""),
        score=hit.score,
        propositions=[MatchedUnit(**vars(unit) | placed(unit.span)) for unit in source.units],
    )
