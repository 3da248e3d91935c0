"""An ingestion that is killed, and started again until it ends: nothing is lost, and nothing is asked for
twice."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer, Passage
from llama_pack_densex.index.folder import REPLIES_FILE, REPORT_FILE
from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.ingestion.report import PART_SUFFIX
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, SECTION_KEY, TITLE_KEY
from tests.another_process import forks
from tests.searching import ShortEmbedding
from tests.stand_in_llm import StandInLLM, digest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.together("ingestion"),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

# of kills: while passages are asked for, when a part of the nodes is in the index, or whenever
MOMENTS = {
    "a pack": ("asking", "any", "asking", "writing", "any", "writing"),
    "densex index": ("asking", "writing"),
}
CONCURRENCY = 8
PART = f"{REPORT_FILE}{PART_SUFFIX}"
SECONDS = 120  # that a process may take; none comes near that
IN_TURN = ("Arlen", "函館", "Tromsø", "霧ヶ浜")
SENTENCES = (
    "The harbour of {0} was built in {1}. It took {2} masons {3} years.",
    "{0}の港は{1}年に築かれた。{2}人の石工が{3}年を費やした。",
)


def corpus() -> list[Document]:
    """40 documents of two or three passages, half of them in Japanese: more nodes than are written at a
    time."""
    return [
        Document(
            id_=f"{IN_TURN[number % 4]}/{number}.md",
            text=" ".join(
                SENTENCES[number % 2].format(
                    IN_TURN[number % 4], 1500 + number, line + 2, number + line
                )
                for line in range(16 if number % 2 else 24)
            ),
        )
        for number in range(40)
    ]


def asking(url: str) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test")
    return LLMPropositionizer(llm, max_concurrency=CONCURRENCY)


def build_a_pack(url: str, folder: Path) -> None:
    """What a user's program does."""
    DenseXRetrievalPack(
        corpus(),
        propositionizer=asking(url),
        query_llm="none",
        embed_model=ShortEmbedding(),
        persist_dir=folder,
    )


def run_densex_index(url: str, folder: Path) -> None:
    """What a user types."""
    from llama_pack_densex.cli import app

    os.environ |= {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": url}
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process lives
    files = folder.parent / "docs"
    app(
        [
            "index",
            str(files),
            "--to",
            str(folder),
            "--propositionizer",
            "llm",
            "--embed-model",
            "none",
        ]
    )


def write_files(folder: Path) -> None:
    for document in corpus():
        file = folder / "docs" / document.id_
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document.text, encoding="utf-8")


WAYS = {"a pack": build_a_pack, "densex index": run_densex_index}


@pytest.fixture(scope="module")
def provider() -> Iterator[StandInLLM]:
    with StandInLLM(latency=0.05) as running:
        yield running


def started(work: Callable[[str, Path], None], url: str, folder: Path) -> BaseProcess:
    """Start a process; what takes long to import is imported once for all of them."""
    process = forks().Process(target=work, args=(url, folder), daemon=True)
    process.start()
    return process


def wait_for(condition: Callable[[], bool], process: BaseProcess, seconds: float = SECONDS) -> None:
    """Wait until something holds, the process has ended, or the time is over."""
    until = time.monotonic() + seconds
    while process.is_alive() and time.monotonic() < until and not condition():
        time.sleep(0.02)


def contents(folder: Path) -> dict[str, tuple[str, str, Any]]:
    """Each node's document and text, and its metadata but for where and when its file was read."""
    pack = DenseXRetrievalPack.load(
        folder, propositionizer=asking("http://127.0.0.1:9/v1"), **embedding_of(folder)
    )
    left_out = ("file_path", "creation_date", "last_modified_date", "last_accessed_date")
    return {
        node.node_id: (
            node.ref_doc_id or "",
            node.get_content(),
            {key: value for key, value in node.metadata.items() if key not in left_out},
        )
        for node in pack.nodes()
    }


def embedding_of(folder: Path) -> dict[str, Any]:
    return (
        {"embed_model": "none"}
        if (folder.parent / "docs").exists()
        else {"embed_model": ShortEmbedding()}
    )


def kept(folder: Path, passages: list[Passage], url: str) -> set[Passage]:
    """Those of the passages whose replies were kept before the process died."""
    if not (folder / REPLIES_FILE).exists():
        return set()
    requests = asking(url)
    keys = {requests.key(requests.question(passage)): passage for passage in passages}
    cache = ReplyCache(folder / REPLIES_FILE)
    try:
        return {one for key, one in keys.items() if cache.get(key) is not None}
    finally:
        cache.close()


def stamp(file: Path) -> tuple[int, int]:
    """Tells a file from another one that took its place."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_ino, status.st_ctime_ns)


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_random_moments_it_asks_for_nothing_twice_and_makes_the_same_nodes(
    provider: StandInLLM, tmp_path: Path, way: str
) -> None:
    work = WAYS[way]
    if way == "densex index":
        write_files(tmp_path)
    undisturbed = started(work, provider.url, tmp_path / "whole")
    wait_for((tmp_path / "whole" / PART).exists, undisturbed)
    began = time.monotonic()
    undisturbed.join(SECONDS)
    needed = time.monotonic() - began
    assert undisturbed.exitcode == 0
    whole = contents(tmp_path / "whole")
    passages = passages_in(whole)
    provider.reset()

    folder, part = tmp_path / "index", tmp_path / "index" / PART
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    finished: set[Passage] = set()
    for number, moment in enumerate(MOMENTS[way]):
        before, asked = stamp(part), len(provider.log())
        process = started(work, provider.url, folder)
        wait_for(lambda: stamp(part) != before, process)  # noqa: B023  # it is over before the next one
        if moment == "asking":
            goal = rng.randint(min(asked, len(passages)), len(passages))
            wait_for(lambda: len(provider.log()) >= goal, process)  # noqa: B023
        elif moment == "writing":
            wait_for(lambda: is_index(folder), process)
        wait_for(never, process, rng.uniform(0, needed / 2 if moment == "any" else 0.2))
        process.kill()
        process.join(SECONDS)
        again = {text for entry in provider.log()[asked:] for text in entry.digests}
        assert again.isdisjoint(digest(passage.text) for passage in finished), (
            f"seed {seed}, kill {number}"
        )
        finished |= kept(folder, passages, provider.url)
        if is_index(folder):
            there = contents(folder)
            assert there.items() <= whole.items(), f"seed {seed}, kill {number}"
            assert documents_in(there) <= documents_in(whole)
    assert finished

    asked = len(provider.log())
    process = started(work, provider.url, folder)
    process.join(SECONDS)
    assert process.exitcode == 0
    again = {text for entry in provider.log()[asked:] for text in entry.digests}
    assert again.isdisjoint(digest(passage.text) for passage in finished), f"seed {seed}"
    assert contents(folder) == whole
    assert not part.exists()
    counts = Counter(text for entry in provider.log() for text in entry.digests)
    assert counts.keys() == {digest(passage.text) for passage in passages}
    assert sum(counts.values()) <= len(passages) + 2 * CONCURRENCY * len(MOMENTS[way]), (
        f"seed {seed}"
    )  # those in flight


def never() -> bool:
    return False


def passages_in(nodes: dict[str, tuple[str, str, Any]]) -> list[Passage]:
    return [
        Passage(text, metadata[TITLE_KEY], metadata[SECTION_KEY])
        for _, text, metadata in nodes.values()
        if metadata[GRANULARITY_KEY] == "passage"
    ]


def documents_in(nodes: dict[str, tuple[str, str, Any]]) -> set[tuple[str, int]]:
    """The documents with the number of nodes of each, which tells a whole one from a part."""
    return set(Counter(document for document, _, _ in nodes.values()).items())
