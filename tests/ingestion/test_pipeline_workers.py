"""Core's `IngestionPipeline` with worker processes; docs/scaling.md says what cannot work there, and why."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage, PropositionNodeParser
from llama_pack_densex.propositionizers.base import PropositionizerError
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, Reply, asked_content

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEY = "sk-of-this-process"
WORKERS_KEY = "sk-of-the-environment"


def respond(body: dict[str, Any]) -> str:
    """Two propositions for each passage."""
    content = asked_content(body)
    return json.dumps([content, f"{content} It is so."], ensure_ascii=False)


def openai(server: OpenAIServer) -> OpenAI:
    return OpenAI(model="gpt-4o-mini", api_key=KEY, api_base=server.url, max_retries=0)


def parser_of(server: OpenAIServer, **settings: Any) -> PropositionNodeParser:
    return PropositionNodeParser(propositionizer=LLMPropositionizer(openai(server), **settings))


def pipeline_of(parser: PropositionNodeParser) -> IngestionPipeline:
    return IngestionPipeline(transformations=[parser, TrigramEmbedding()], disable_cache=True)


def lamps() -> list[Document]:
    """Documents in English and in Japanese."""
    english = [
        Document(id_=f"lamp-{i}", text=f"Lamp {i} is red. It hangs in hall 7.") for i in range(4)
    ]
    return [
        *english,
        *(Document(id_=f"列車-{i}", text=f"第{i}列車は東京と新大阪を結んだ。") for i in range(3)),
    ]


def content(nodes: Any) -> list[dict[str, Any]]:
    return [node.to_dict() for node in nodes]


@dataclass(frozen=True)
class Made:
    """What two workers made, and what was seen of it."""

    server: OpenAIServer
    folder: Path
    nodes: list[BaseNode]
    asked: list[dict[str, str]]

    @property
    def parser(self) -> PropositionNodeParser:
        return parser_of(
            self.server,
            cache=self.folder / "replies.sqlite",
            record_to=self.folder / "recorded.jsonl",
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("workers")
    with OpenAIServer(respond) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", WORKERS_KEY)
        nodes = pipeline_of(Made(server, folder, [], []).parser).run(
            documents=lamps(), num_workers=2
        )
        yield Made(server, folder, list(nodes), [seen.headers for seen in server.requests])


@pytest.fixture
def environment_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", WORKERS_KEY)


@pytest.fixture(params=["spawn", "forkserver"])
def start_method(request: pytest.FixtureRequest) -> Iterator[str]:
    """The way in which `arun` starts processes: Linux forks up to Python 3.13."""
    multiprocessing.set_start_method(request.param, force=True)
    forkserver._forkserver._stop()  # one that began earlier has another environment
    yield request.param
    multiprocessing.set_start_method(None, force=True)


def test_two_workers_make_the_nodes_of_one_process_in_the_same_order(made: Made) -> None:
    assert content(made.nodes) == content(
        pipeline_of(parser_of(made.server)).run(documents=lamps())
    )
    assert all(node.embedding for node in made.nodes)


def test_workers_have_the_key_of_the_environment(made: Made) -> None:
    assert {headers["Authorization"] for headers in made.asked} == {f"Bearer {WORKERS_KEY}"}


def test_workers_share_a_recording(made: Made) -> None:
    lines = (made.folder / "recorded.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["text"] for line in lines} == {document.text for document in lamps()}
    assert len(lines) == len(lamps())


def test_workers_share_a_reply_cache(made: Made, environment_key: None) -> None:
    asked = len(made.server.requests)
    nodes = pipeline_of(made.parser).run(documents=lamps(), num_workers=2)
    assert content(nodes) == content(made.nodes)
    assert len(made.server.requests) == asked
    assert len(made.asked) == len(lamps())


async def test_workers_of_arun_do_what_one_process_does_beside_busy_threads(
    made: Made, environment_key: None, start_method: str
) -> None:
    with busy_threads(made.server):
        nodes = await pipeline_of(parser_of(made.server)).arun(documents=lamps(), num_workers=2)
    assert content(nodes) == content(made.nodes)


async def test_run_in_a_thread_does_it_whatever_the_start_method(
    made: Made, environment_key: None
) -> None:
    with busy_threads(made.server):
        nodes = await asyncio.to_thread(
            pipeline_of(parser_of(made.server)).run, documents=lamps(), num_workers=2
        )
    assert content(nodes) == content(made.nodes)


def test_an_error_in_a_worker_comes_back_as_it_is(environment_key: None) -> None:
    with (
        OpenAIServer(lambda body: Reply("no such key", status=401)) as server,
        pytest.raises(PropositionizerError, match="does not accept the API key"),
    ):
        pipeline_of(parser_of(server)).run(documents=lamps(), num_workers=2)


PROGRAM = """
import asyncio, sys
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.llms.openai import OpenAI
from llama_pack_densex import LLMPropositionizer, PropositionNodeParser

if __name__ == "__main__":
    llm = OpenAI(model="gpt-4o-mini", api_key="sk-nowhere-else", api_base="http://127.0.0.1:9")
    pipeline = IngestionPipeline(\
transformations=[PropositionNodeParser(propositionizer=LLMPropositionizer(llm))])
    documents = [Document(id_=name, text="Miso is salty.") for name in ("first", "second")]
    if sys.argv[1] == "run":
        pipeline.run(documents=documents, num_workers=2)
    else:
        asyncio.run(pipeline.arun(documents=documents, num_workers=2))
"""


@pytest.mark.parametrize("method", ["run", "arun"])
def test_workers_that_lack_the_key_say_so_and_do_not_hang(method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    variables["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(program), method]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ValueError: A worker could not make the node parser. "
    )
    assert "OPENAI_API_KEY" in done.stderr.splitlines()[-1]


def test_documents_of_equal_text_are_told_apart_by_ids_of_their_own_only() -> None:
    def nodes_of(ids: list[str] | None, workers: int | None) -> list[BaseNode]:
        named = [Document(id_=name, text="Miso is salty. 味噌は塩辛い。") for name in ids or []]
        unnamed = [Document(text="Miso is salty. 味噌は塩辛い。") for _ in range(0 if ids else 2)]
        pipeline = IngestionPipeline(transformations=[PropositionNodeParser()], disable_cache=True)
        return list(pipeline.run(documents=[*named, *unnamed], num_workers=workers))

    for workers in (None, 2):
        named = nodes_of(["味噌", "miso"], workers)
        assert len({node.node_id for node in named}) == len(named) == 6
    apart, together = nodes_of(None, None), nodes_of(None, 2)
    assert len({node.node_id for node in apart}) == 6
    assert len({node.node_id for node in together}) == 3  # each worker counts for itself
    assert len({node.ref_doc_id for node in together}) == 2


@contextmanager
def busy_threads(server: OpenAIServer) -> Iterator[None]:
    """Threads that make clients and ask; a worker must not wait for a lock that one held when it was
    started."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.01):
            LLMPropositionizer(openai(server)).propositionize([Passage("Miso is salty.")])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
