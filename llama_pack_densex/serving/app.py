"""The application: what can be asked of a pack over HTTP, and what comes back."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from jinja2 import StrictUndefined, Template
from llama_index.core.base.response.schema import AsyncStreamingResponse
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import NodeWithScore
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from llama_pack_densex.answering.citations import Outcome, Source, placed
from llama_pack_densex.llm.errors import classify, secrets_in_environment
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.stores.manifest import InvalidIndexError

try:
    from fastapi import FastAPI, Header, HTTPException, Request, Security
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, Response
    from fastapi.security import HTTPBearer
    from fastapi.sse import EventSourceResponse, ServerSentEvent
    from fastapi.staticfiles import StaticFiles
    from uvicorn import Config, Server

    from llama_pack_densex.serving.guard import HEADERS, Guard
except ImportError as error:
    needed = 'the packages fastapi, from version 0.135 on, and uvicorn: pip install "llama-pack-densex[serve]"'
    raise ImportError(f"this needs {needed} ({error})") from error

logger = logging.getLogger(__name__)

MAX_QUESTION = 2_000  # characters
MAX_MESSAGE = 4_000  # characters of an earlier message
MAX_HISTORY = 20  # messages
MAX_TOP_K = 50

_PAGE = Path(__file__).parent / "page"


class Asked(BaseModel):
    """A question, and how many passages to look for."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")] = Field(
        description="The question, in the language of the documents.", examples=["When was the tower finished?"]
    )
    # 4.0 is an integer to JSON, 4 to us; true and "4" are none to either
    top_k: Annotated[
        int | None, BeforeValidator(lambda k: int(k) if isinstance(k, float) and k.is_integer() else k)
    ] = Field(None, ge=1, le=MAX_TOP_K, strict=True, description="Passages to retrieve; by default the index's number.")


class Message(BaseModel):
    """An earlier message of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant"]
    content: str = Field(max_length=MAX_MESSAGE)


class Said(Asked):
    """The newest message of a conversation. The server keeps none: its history comes with each."""

    history: list[Message] = Field([], max_length=MAX_HISTORY, description="Earlier messages, the oldest first.")


class Proposition(BaseModel):
    """A proposition, and the place in its document's text, in characters, of the sentences that say it."""

    id: str
    text: str
    start: int | None = None
    end: int | None = None


class Matched(Proposition):
    """A proposition or sentence by which a passage was found."""

    score: float
    granularity: str
    question: str = Field("", description="The question that led to it.")
    unverified: bool = Field(False, description="No sentence of the passage says it.")


class Place(BaseModel):
    """A text of a document and its place there, in characters."""

    node_id: str
    document: str
    title: str = ""
    section: str = Field("", description="The headings above it.")
    context: str = Field("", description="What has to be read before it: what leads its list in, its table's header.")
    page: str = ""
    start: int | None = None
    end: int | None = None
    text: str


class Passage(Place):
    """What was found."""

    granularity: str
    score: float | None
    propositions: list[Matched] = Field(description="Those that found it, the best first.")


class Citation(Place):
    """A source of an answer."""

    number: int = Field(description="Its footnote: `[^1]` in the answer is number 1.")
    propositions: list[Proposition] = Field(description="Those that support what is said.")


class Sentence(BaseModel):
    """A sentence of an answer."""

    text: str
    footnotes: list[int] = Field(description="Its sources; none where no source supports it.")
    propositions: list[str] = Field(description="The ids of the propositions that support it.")
    supported: bool = Field(description="Whether its sources hold at least half of its words.")


class Answer(BaseModel):
    """An answer and its sources."""

    answer: str = Field(description="The answer, with footnotes.")
    markdown: str = Field(description="The same with the sources below.")
    outcome: Outcome
    cut_off: bool = Field(description="Whether the LLM's limit of tokens ended it.")
    sentences: list[Sentence]
    citations: list[Citation]
    passages: list[Passage] = Field(description="What was retrieved, the best first.")


class Found(BaseModel):
    """What was found for a question, the best first."""

    passages: list[Passage]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str


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
        token: What requests must bring as `Authorization: Bearer ...`; None asks for none. The page, its files,
            `/healthz` and `/openapi.json` are for all.
        hosts: Names, or one, that the server may be called by, besides localhost and addresses.
        requests_per_minute: Of one client, told by its address; a quarter of them may come at once. 0 means no limit;
            None means 240 where there is a token, and no limit where there is none.
        name: What the page calls the index.

    Raises:
        ValueError: The token cannot be sent in a header, or is empty (no token is None); a host is no mere name; the
            rate is negative or no number.
    """
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("the token must be of printable ASCII characters, without spaces around it")
    hosts = (hosts,) if isinstance(hosts, str) else hosts
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+", host, re.ASCII):
            raise ValueError(f"hosts: {host!r} is no name, as search.example.org is, without scheme, port and path")
    rate = requests_per_minute if requests_per_minute is not None else 240 if token is not None else 0
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
    # given as what it is, since FastAPI would have it as events where the answer is
    problem = {"content": {"application/json": {"schema": Problem.model_json_schema()}}}
    problems: dict[int | str, dict[str, Any]] = {"default": {"description": "Why there is no answer.", **problem}}

    needs = [] if token is None else [Security(HTTPBearer(auto_error=False))]  # said in the OpenAPI; the guard looks
    post = partial(app.post, responses=problems, dependencies=needs)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": _complaint(error)}, 422)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The server has failed; its log says how."}, 500, HEADERS)

    @post("/query", summary="Answer a question, with the sources of each sentence.")
    async def query(asked: Asked) -> Answer:
        with _answering():
            response = await pack.arun(asked.question, asked.top_k)
            if isinstance(response, AsyncStreamingResponse):  # of a pack that streams
                response = await response.get_response()
            return _answer(str(response), response.metadata or {}, response.source_nodes)

    @post("/retrieve", summary="Find passages, and the propositions that led to them.")
    async def retrieve(asked: Asked) -> Found:
        with _answering():
            found = await pack.aretrieve(asked.question, asked.top_k)
            return Found(passages=[_passage(node) for node in found])

    @post(
        "/chat",
        response_class=EventSourceResponse,
        summary="Answer in a conversation, as it is written.",
        response_description="Events: `delta` with `text`, many times; then `answer`, as /query gives it, or `problem` "
        "with `detail`.",
    )
    async def chat(said: Said) -> AsyncIterator[ServerSentEvent]:
        history = [ChatMessage(role=message.role, content=message.content) for message in said.history]
        try:
            with _answering():
                engine = pack.as_chat_engine(said.top_k, chat_history=history)
                response = await engine.astream_chat(said.question)
                text = ""
                async with aclosing(response.async_response_gen()) as deltas:
                    async for delta in deltas:
                        text += delta
                        yield ServerSentEvent(event="delta", data={"text": delta})
                yield ServerSentEvent(event="answer", data=_answer(text, response.metadata, response.source_nodes))
        except HTTPException as problem:  # the status is sent
            yield ServerSentEvent(event="problem", data=Problem(detail=problem.detail))

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", responses=problems, summary="Say that the server answers.")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    template = Template((_PAGE / "page.html").read_text("utf-8"), autoescape=True, undefined=StrictUndefined)
    about = {
        "name": name,
        "written": pack.get_modules()["query_llm"] is not None,
        "asks_token": token is not None,
        "limits": {"question": MAX_QUESTION, "message": MAX_MESSAGE, "history": MAX_HISTORY},
    }
    words = json.loads((_PAGE / "words.json").read_text("utf-8"))
    pages = {code: template.render(about, language=code, words=words[code]) for code in words}
    app.mount("/page", StaticFiles(directory=_PAGE))

    @app.api_route("/", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False)
    async def page(lang: str = "", accept_language: Annotated[str, Header()] = "") -> HTMLResponse:
        asked = re.findall(r"\b[a-z]{2}\b", accept_language.lower())  # browsers name the most wanted one first
        code = next((one for one in (lang, *asked) if one in pages), "en")
        return HTMLResponse(pages[code], headers={"Content-Language": code, "Vary": "Accept-Language"})

    return app


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """A socket to serve on.

    Raises:
        ValueError: Others than this machine could ask, and there is no token.
        OSError: The address cannot be listened on.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if token is None and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
            raise ValueError(
                f"{host} can be reached by others, and there is no token: set --token or DENSEX_TOKEN to a long random "
                "text, for one of: python -c 'import secrets; print(secrets.token_urlsafe())'"
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
        HTTPException: The model could not be asked (502), or the index or the code is at fault (500); the log says why.
    """
    try:
        yield
    except Exception as error:
        failure = classify(error, secrets_in_environment())
        of_index, broken = isinstance(error, InvalidIndexError), failure.kind == "broken"
        logger.error("a question could not be answered: %s", error if of_index else failure.summary, exc_info=broken)
        status = 500 if of_index or broken else 502
        raise HTTPException(status, "The question could not be answered; the server's log says why.") from None


def _complaint(error: RequestValidationError) -> str:
    """What is wrong with a request, without repeating what it holds."""
    first = error.errors()[0]
    path = () if first["type"] == "json_invalid" else first["loc"][1:]  # there it is a place in the text
    where = ".".join(str(part) for part in path if isinstance(part, int) or part in _FIELDS)
    return f"{where}: {first['msg']}" if where else str(first["msg"])


_FIELDS = {*Said.model_fields, *Message.model_fields}


def _answer(text: str, metadata: Mapping[str, Any], nodes: list[NodeWithScore]) -> Answer:
    return Answer(**{**metadata, "answer": text, "passages": [_passage(node) for node in nodes]})


def _passage(found: NodeWithScore) -> Passage:
    source = Source.of(0, found)
    return Passage(
        **{**vars(source), **placed(source.span)},
        granularity=str(found.node.metadata.get(GRANULARITY_KEY) or ""),
        score=found.score,
        propositions=[Matched(**{**vars(unit), **placed(unit.span)}) for unit in source.units],
    )
