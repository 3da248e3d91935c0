"""On a real Ray cluster of this machine: two workers make what one process makes."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
)
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.llm.usage import Usage
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.propositionizers.base import PropositionizerError
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, Reply, Seen, asked_content

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
pytest.importorskip("llama_index.ingestion.ray", reason="needs the extra [ray]")

from llama_index.ingestion.ray import RayIngestionPipeline, RayTransformComponent  # noqa: E402

from llama_pack_densex.ingestion.ray import ShardResult, ingest_shards, ray_transformations  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.together("ray")]

KEY = "sk-of-the-driver"
WORKERS_KEY = "sk-of-the-workers"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two CPUs of this machine; the folder is where the workers write about themselves."""
    folder, environment = tmp_path_factory.mktemp("workers"), pytest.MonkeyPatch()
    variables = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": WORKERS_KEY}
    # the machine's memory is not this cluster's alone
    environment.setenv("RAY_memory_monitor_refresh_ms", "0")
    ray.shutdown()  # whatever began it in this process
    ray.init(  # the workers import this module
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        logging_level=logging.ERROR,
        log_to_driver=False,
        runtime_env={"env_vars": variables},
    )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield folder
    ray.shutdown()
    environment.undo()


def make_llm() -> LLM:
    """The LLM of a worker, which says in each request which process it is."""
    return openai(os.environ["SERVER"], default_headers={"X-Process": str(os.getpid())})


def openai(url: str, **settings: Any) -> OpenAI:
    return OpenAI(
        **{"model": "gpt-4o-mini", "api_key": KEY, "api_base": url, "max_retries": 0, **settings}
    )


class CountingEmbedding(TrigramEmbedding):
    """Writes down how many texts it gets at a time."""

    folder: str

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        with Path(self.folder, "batches").open("a") as file:
            file.write(f"{len(texts)}\n")
        return super()._get_text_embeddings(texts)


class KeyedEmbedding(TrigramEmbedding):
    """Keeps a key as the clients of providers do."""

    api_key: str

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


def respond(body: dict[str, Any]) -> Reply:
    """Two propositions for each passage."""
    content = asked_content(body)
    return Reply(json.dumps([content, f"{content} It is so."], ensure_ascii=False), delay=0.1)


def lamps(number: int) -> list[Document]:
    """Documents in English and in Japanese."""
    english = [
        Document(id_=f"lamp-{i}", text=f"Lamp {i} is red. It hangs in hall 7.")
        for i in range(number // 2)
    ]
    japanese = [
        Document(
            id_=f"列車-{i}",
            text=f"第{i}列車は1964年に走り始めた。東京と新大阪を結んだ。",
            metadata={"番号": i},
        )
        for i in range(number - number // 2)
    ]
    return [*english, *japanese]


def content(nodes: list[BaseNode]) -> dict[str, dict[str, Any]]:
    return {node.node_id: node.to_dict() for node in nodes}


def in_one_process(
    parser: BasePropositionNodeParser, documents: list[Document], *models: TrigramEmbedding
) -> dict[str, dict[str, Any]]:
    pipeline = IngestionPipeline(transformations=[parser, *models], disable_cache=True)
    return content(list(pipeline.run(documents=documents)))


def on_ray(
    transformations: list[RayTransformComponent], documents: list[Document]
) -> list[BaseNode]:
    return list(RayIngestionPipeline(transformations=transformations).run(documents=documents))


@dataclass(frozen=True)
class Made:
    """What two workers made of some documents, and what was seen of it."""

    documents: list[Document]
    parser: BasePropositionNodeParser
    nodes: list[BaseNode]
    batches: list[int]
    requests: list[Seen]
    port: int


@pytest.fixture(scope="module")
def made(cluster: Path) -> Made:
    given = [*lamps(40), Document(id_="blank", text=" ")]
    with OpenAIServer(respond) as server:
        parser = PropositionNodeParser(
            granularity=("proposition", "sentence"),
            propositionizer=LLMPropositionizer(openai(server.url)),
        )
        model = CountingEmbedding(folder=str(cluster))
        nodes = on_ray(
            ray_transformations(parser, model, embed_workers=1, batch_size=3, embed_batch_size=25),
            given,
        )
        batches = [int(line) for line in (cluster / "batches").read_text().split()]
        return Made(
            given,
            parser,
            nodes,
            batches,
            server.requests,
            int(server.url.split(":")[2].split("/")[0]),
        )


def test_two_workers_make_the_nodes_of_one_process(made: Made) -> None:
    with OpenAIServer(respond, port=made.port) as server:  # node ids tell servers apart
        parser = PropositionNodeParser(
            granularity=made.parser.granularity,
            propositionizer=LLMPropositionizer(openai(server.url)),
        )
        assert content(made.nodes) == in_one_process(parser, made.documents, TrigramEmbedding())
    assert {
        type(node) for node in made.nodes if node.metadata[GRANULARITY_KEY] == "proposition"
    } == {IndexNode}
    assert all(node.embedding for node in made.nodes)


def test_each_worker_embeds_in_batches(made: Made) -> None:
    assert sum(made.batches) == len(made.nodes)
    assert max(made.batches) == 25
    assert len(made.batches) < len(made.nodes) / 10


def test_keys_stay_where_they_are(made: Made) -> None:
    (parsing,) = ray_transformations(made.parser)
    assert KEY.encode() not in parsing.transform_kwargs["make"]
    assert {seen.headers["Authorization"] for seen in made.requests} == {f"Bearer {WORKERS_KEY}"}


def test_limits_are_divided_between_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    asking = LLMPropositionizer(openai("http://127.0.0.1:9"), requests_per_minute=600, workers=2)
    recorded = RecordedPropositionizer(DATA / "propositions.jsonl", otherwise=asking)
    (parsing,) = ray_transformations(PropositionNodeParser(propositionizer=recorded), workers=3)
    there = ray.cloudpickle.loads(parsing.transform_kwargs["make"])()
    assert there.propositionizer.otherwise.workers == 6
    assert asking.workers == 2


def test_sections_and_documents_of_files_come_through_too(documents: list[Document]) -> None:
    parser = HierarchicalPropositionNodeParser.from_defaults(sections=True)
    assert content(on_ray(ray_transformations(parser, batch_size=1), documents)) == in_one_process(
        parser, documents
    )


def test_an_embedding_model_with_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="holds a key, and keys are not sent to workers"):
        ray_transformations(PropositionNodeParser(), KeyedEmbedding(api_key=KEY))


@pytest.mark.parametrize("name", ["workers", "embed_workers", "batch_size", "embed_batch_size"])
def test_numbers_that_are_not_positive_are_refused_by_name(name: str) -> None:
    given: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=name):
        ray_transformations(PropositionNodeParser(), **given)


def test_what_a_worker_lacks_is_said() -> None:
    asking = LLMPropositionizer(openai("http://127.0.0.1:9", default_headers={"X-Team": "a"}))
    transformations = ray_transformations(PropositionNodeParser(propositionizer=asking), workers=1)
    with pytest.raises(ray.exceptions.RayTaskError, match="default_headers may hold secrets"):
        on_ray(transformations, lamps(2))


def test_a_killed_worker_of_a_pipeline_costs_its_batch_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with OpenAIServer(respond) as server:
        parser = parser_of(server, monkeypatch)
        options = server_of(server)
        with killer(server) as killed:
            nodes = on_ray(
                ray_transformations(parser, batch_size=4, parser_options=options), lamps(40)
            )
        assert {first.headers["X-Process"] for first in asked_again(server)} <= set(killed)
        assert content(nodes) == in_one_process(parser, lamps(40))


def test_a_killed_worker_of_shards_costs_what_was_in_flight_where_replies_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(respond) as server:
        parser = parser_of(server, monkeypatch, cache=tmp_path / "replies.sqlite")
        store = EmbeddedVectorStore(tmp_path / "store")
        options = server_of(server)
        with killer(server) as killed:
            results = list(
                ingest_shards(
                    lamps(40), parser, store, shard_size=8, batch_size=10, parser_options=options
                )
            )
        lost = asked_again(server)
        assert {first.headers["X-Process"] for first in lost} <= set(killed)
        assert len(lost) <= 2  # at a time
        assert sum(result.documents for result in results) == 40
        assert stored(tmp_path) == in_one_process(parser, lamps(40)).keys()


def test_what_a_provider_could_not_be_asked_for_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def respond_but_once(body: dict[str, Any]) -> Reply:
        fails = broken and "列車" in asked_content(body)
        return Reply("out of order", status=503) if fails else respond(body)

    with OpenAIServer(respond_but_once) as server:
        parser = parser_of(server, monkeypatch, max_retries=0)
        options: dict[str, Any] = {"parser": parser, "parser_options": server_of(server)}
        (first,) = shards(lamps(6)[2:4], tmp_path, **options)
        broken = False
        (second,) = shards(lamps(6)[2:4], tmp_path, **options)
        assert (first.documents, first.fallbacks) == (2, 1)
        assert (second.documents, second.unchanged, second.fallbacks) == (1, 1, 0)
        assert second.usage.requests == 1
        assert stored(tmp_path) == in_one_process(parser, lamps(6)[2:4]).keys()


def test_rays_pipeline_fails_with_a_docstore() -> None:
    """One reason for `ingest_shards`: if this fails, llama-index-ingestion-ray has mended it."""
    if "effective_strategy" not in signature(IngestionPipeline._update_docstore).parameters:
        pytest.skip(
            "this llama-index-core is older than the change that llama-index-ingestion-ray does not know"
        )
    pipeline = RayIngestionPipeline(
        transformations=ray_transformations(PropositionNodeParser(), workers=1),
        docstore=SimpleDocumentStore(),
    )
    with pytest.raises(TypeError, match="effective_strategy"):
        pipeline.run(documents=lamps(2))


@pytest.fixture(scope="module")
def ingested(
    cluster: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[ShardResult]]:
    folder = tmp_path_factory.mktemp("ingested")
    given = [*lamps(15), Document(id_="blank", text="")]
    return folder, shards(given, folder, TrigramEmbedding(), workers=2, embed_workers=1)


@pytest.fixture
def folder(ingested: tuple[Path, list[ShardResult]], tmp_path: Path) -> Path:
    """A copy of a folder with a store."""
    return Path(shutil.copytree(ingested[0], tmp_path / "copy"))


def test_shards_end_in_the_store_as_the_nodes_of_one_process(
    ingested: tuple[Path, list[ShardResult]],
) -> None:
    folder, results = ingested
    assert [(result.number, result.documents) for result in results] == [(0, 6), (1, 6), (2, 4)]
    there = in_one_process(PropositionNodeParser(), lamps(15))
    assert stored(folder) == there.keys()
    assert sum(result.nodes for result in results) == len(there)


def test_a_second_start_goes_on_where_the_first_one_stopped(tmp_path: Path) -> None:
    store = EmbeddedVectorStore(tmp_path / "store")
    options: dict[str, Any] = {"shard_size": 6, "batch_size": 2, "workers": 1}
    running = ingest_shards(lamps(16), PropositionNodeParser(), store, **options)
    next(running)
    running.close()
    results = shards(lamps(16), tmp_path)
    assert sum(result.unchanged for result in results) == 6
    assert sum(result.documents for result in results) == 10
    assert stored(tmp_path) == in_one_process(PropositionNodeParser(), lamps(16)).keys()


def test_what_was_finished_before_an_interruption_is_kept(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Document]:
        yield from lamps(16)[:14]  # of five batches two are finished when the last one is read
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards(interrupted(), tmp_path, batch_size=3, shard_size=7)
    there = EmbeddedVectorStore(tmp_path / "store").get_nodes()
    assert {node.ref_doc_id for node in there} == {document.id_ for document in lamps(16)[:6]}


def test_where_nothing_changed_nothing_is_done(folder: Path) -> None:
    assert shards(lamps(15), folder) == [ShardResult(0, 0, 15, {}, 0, 0, Usage())]


def test_only_what_changed_is_written_again_and_its_old_nodes_are_gone(folder: Path) -> None:
    changed = [*lamps(15)[:-1], Document(id_=lamps(15)[-1].id_, text="列車は廃止された。")]
    (result,) = shards(changed, folder, TrigramEmbedding())
    assert (result.documents, result.unchanged) == (1, 14)
    assert stored(folder) == in_one_process(PropositionNodeParser(), changed).keys()


def test_documents_that_the_store_lost_are_written_again(folder: Path) -> None:
    EmbeddedVectorStore(folder / "store").delete("lamp-0")
    (result,) = shards(lamps(15), folder, TrigramEmbedding())
    assert (result.documents, result.unchanged) == (1, 14)
    assert stored(folder) == in_one_process(PropositionNodeParser(), lamps(15)).keys()


def test_a_document_that_fails_is_named_and_what_the_store_has_of_it_stays(folder: Path) -> None:
    changed = [
        *lamps(15)[:-2],
        Document(id_="lamp-0", text="half a character: \ud800"),
        lamps(15)[-1],
    ]
    (result,) = shards(changed, folder, TrigramEmbedding())
    assert re.match("ValueError: .*lone surrogate", result.failed["lamp-0"])
    assert (result.documents, result.unchanged) == (0, 14)
    assert stored(folder) == in_one_process(PropositionNodeParser(), lamps(15)).keys()


def test_where_a_provider_refuses_what_was_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond_to_four(body: dict[str, Any]) -> Reply:
        return respond(body) if len(server.requests) <= 4 else Reply("no such key", status=401)

    with OpenAIServer(respond_to_four) as server:
        parser = parser_of(server, monkeypatch)
        with pytest.raises(PropositionizerError, match="does not accept the API key"):
            shards(
                lamps(12), tmp_path, parser=parser, parser_options=server_of(server), shard_size=100
            )
    there = EmbeddedVectorStore(tmp_path / "store").get_nodes()
    assert {node.ref_doc_id for node in there} == {document.id_ for document in lamps(12)[:4]}


def test_documents_without_ids_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="random id made by LlamaIndex"):
        shards([Document(text="Who am I?")], tmp_path)


def test_a_store_that_keeps_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="SimpleVectorStore keeps no text"):
        ingest_shards(lamps(2), PropositionNodeParser(), SimpleVectorStore(), TrigramEmbedding())


def parser_of(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> PropositionNodeParser:
    monkeypatch.setenv("SERVER", server.url)
    asking = LLMPropositionizer(
        openai(server.url), llm_factory=make_llm, max_concurrency=2, **settings
    )
    return PropositionNodeParser(propositionizer=asking)


def server_of(server: OpenAIServer) -> dict[str, Any]:
    return {"runtime_env": {"env_vars": {"SERVER": server.url}}}


@contextmanager
def killer(server: OpenAIServer) -> Iterator[list[str]]:
    """Kill a worker without warning, while it waits for a reply; yields where its process id will be."""
    killed: list[str] = []

    def kill() -> None:
        deadline = time.monotonic() + 300
        while len(server.requests) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        killed.append(server.requests[-1].headers["X-Process"])
        os.kill(int(killed[0]), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    yield killed
    thread.join()
    assert killed


def asked_again(server: OpenAIServer) -> list[Seen]:
    """Of what was asked for more than once, the first requests."""
    first: dict[str, Seen] = {}
    again: dict[str, Seen] = {}
    for seen in server.requests:
        if first.setdefault(seen.content, seen) is not seen:
            again[seen.content] = first[seen.content]
    return list(again.values())


def shards(
    given: Iterable[Document], folder: Path, embed_model: Any = None, **options: Any
) -> list[ShardResult]:
    """Ingest into the store in a folder."""
    store = EmbeddedVectorStore(folder / "store")
    parser = options.pop("parser", PropositionNodeParser())
    options = {"shard_size": 6, "batch_size": 2, "workers": 1, **options}
    return list(ingest_shards(iter(given), parser, store, embed_model, **options))


def stored(folder: Path) -> set[str]:
    return {node.node_id for node in EmbeddedVectorStore(folder / "store").get_nodes()}
