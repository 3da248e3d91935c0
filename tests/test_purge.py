"""Documents whose text is erased from what is kept of an LLM's replies."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.folder import REPLIES_FILE
from llama_pack_densex.propositionizers.base import Propositionizer
from tests.index_folders import files_in
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.searching import ShortEmbedding

SECRET = Document(
    id_="配合/秘密.md",
    text="The bitters hold wormwood and quinine. 秘伝の調味料には山椒と陳皮が入る。",
)
OTHER = Document(id_="天気.md", text="Rain fell on the harbour. 港には霧雨が降った。")
WORDS = ("wormwood", "quinine", "山椒", "陳皮")
OTHER_WORDS = ("harbour", "霧雨")


def echo(body: dict[str, Any]) -> str:
    return json.dumps([asked_content(body)], ensure_ascii=False)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """An LLM for which each passage is its own proposition."""
    with OpenAIServer(echo) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


def asking(server: OpenAIServer, **settings: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
    return LLMPropositionizer(llm, **{"max_retries": 0, "retry_wait": 0, **settings})


def pack_of(
    documents: list[Document], folder: Path, propositionizer: Propositionizer
) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(
        documents,
        propositionizer=propositionizer,
        query_llm="none",
        embed_model="none",
        persist_dir=folder,
    )


def found(words: tuple[str, ...], *files: Path) -> set[str]:
    """Those of the words that are in files, as UTF-8, as UTF-16 or as JSON escapes them."""
    data = b"".join(file.read_bytes() for file in files)
    return {
        word
        for word in words
        if any(
            form in data
            for form in (word.encode(), word.encode("utf-16-le"), json.dumps(word)[1:-1].encode())
        )
    }


def replies_in(folder: Path) -> list[Path]:
    """The cache's file, with all that SQLite keeps beside it."""
    return [file for file in files_in(folder) if file.match(f"{REPLIES_FILE}*")]


# the reply cache


def test_what_the_llm_said_of_a_document_is_kept_when_it_is_deleted(
    server: OpenAIServer, folder: Path
) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server))
    assert pack.delete(SECRET.id_) == 1
    assert found(WORDS, *replies_in(folder)) == set(WORDS)
    asked = len(server.requests)
    pack.insert(SECRET)
    assert len(server.requests) == asked


def test_purging_leaves_nothing_of_a_document_in_the_files_of_the_cache(
    server: OpenAIServer, folder: Path
) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server))
    assert found(WORDS, *replies_in(folder)) == set(WORDS)
    assert pack.delete(SECRET.id_, purge=True) == 1
    assert found(WORDS, *replies_in(folder)) == set()


def test_purging_leaves_what_belongs_to_others(server: OpenAIServer, folder: Path) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server))
    pack.delete(SECRET, purge=True)
    assert found(OTHER_WORDS, *replies_in(folder)) == set(OTHER_WORDS)
    server.requests.clear()
    pack.insert([OTHER, SECRET])
    assert [seen.content for seen in server.requests] == [SECRET.text]


def test_purging_reaches_the_replies_of_an_earlier_process(
    server: OpenAIServer, folder: Path
) -> None:
    pack_of([SECRET, OTHER], folder, asking(server))
    loaded = DenseXRetrievalPack.load(folder, propositionizer=asking(server))
    loaded.delete(SECRET.id_, purge=True)
    assert found(WORDS, *replies_in(folder)) == set()
    assert found(OTHER_WORDS, *replies_in(folder)) == set(OTHER_WORDS)


def test_purging_reaches_the_replies_for_the_parts_of_a_passage(
    server: OpenAIServer, folder: Path
) -> None:
    def cut_off_if_long(body: dict[str, Any]) -> Reply:
        long = "wormwood" in asked_content(body) and "山椒" in asked_content(body)
        return Reply(echo(body)[:40], finish_reason="length") if long else Reply(echo(body))

    server.responder = cut_off_if_long
    pack = pack_of([SECRET, OTHER], folder, asking(server))
    assert len(server.requests) == 4  # the passage, its halves, and the other one
    pack.delete(SECRET.id_, purge=True)
    assert found(WORDS, *replies_in(folder)) == set()


def test_purging_reaches_a_cache_of_the_users_own(
    server: OpenAIServer, folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    pack = pack_of([SECRET, OTHER], folder, asking(server, cache=own / REPLIES_FILE))
    assert replies_in(folder) == []
    pack.delete(SECRET.id_, purge=True)
    assert found((*WORDS, *OTHER_WORDS), *replies_in(own)) == set(OTHER_WORDS)


def test_purging_several_documents_at_once(server: OpenAIServer, folder: Path) -> None:
    third = Document(id_="third", text="Snow lay on the hills. 丘には雪が積もった。")
    pack = pack_of([SECRET, OTHER, third], folder, asking(server))
    assert pack.delete([SECRET, "third", "never there"], purge=True) == 2
    assert found((*WORDS, "hills", "丘には雪", *OTHER_WORDS), *replies_in(folder)) == set(
        OTHER_WORDS
    )


def test_purging_works_without_a_folder_and_without_an_llm() -> None:
    pack = DenseXRetrievalPack([SECRET, OTHER], "none", "none", "none")
    assert pack.delete(SECRET.id_, purge=True) == 1
    assert set(pack.documents()) == {OTHER.id_}


# recordings


def test_purging_leaves_nothing_of_a_document_in_what_was_recorded(
    server: OpenAIServer, folder: Path, recording: Path
) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server, record_to=recording))
    assert found(WORDS, recording) == set(WORDS)
    pack.delete(SECRET.id_, purge=True)
    assert found((*WORDS, *OTHER_WORDS), recording) == set(OTHER_WORDS)
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


def test_purging_leaves_nothing_of_what_a_kill_left_in_the_middle_of_a_line(
    server: OpenAIServer, folder: Path, recording: Path
) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server, record_to=recording))
    with recording.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"text": SECRET.text}, ensure_ascii=False)[:-9])
    pack.delete(SECRET.id_, purge=True)
    assert found((*WORDS, *OTHER_WORDS), recording) == set(OTHER_WORDS)


@pytest.mark.parametrize("ensure_ascii", [False, True], ids=["UTF-8", "escaped"])
def test_purging_leaves_nothing_of_a_document_in_a_recording_that_is_read(
    folder: Path, recording: Path, ensure_ascii: bool
) -> None:
    lines = [
        json.dumps(
            {"title": "", "text": each.text, "propositions": [each.text]}, ensure_ascii=ensure_ascii
        )
        for each in (SECRET, OTHER)
    ]
    recording.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pack = pack_of([SECRET, OTHER], folder, RecordedPropositionizer(recording))
    assert found(WORDS, recording) == set(WORDS)
    pack.delete(SECRET.id_, purge=True)
    assert recording.read_text(encoding="utf-8") == lines[1] + "\n"
    with pytest.raises(ValueError, match="not in"):
        pack.insert(SECRET)


def test_purging_reaches_the_replies_of_what_stands_in_for_a_recording(
    server: OpenAIServer, folder: Path, recording: Path
) -> None:
    recording.write_text("", encoding="utf-8")
    pack = pack_of(
        [SECRET, OTHER], folder, RecordedPropositionizer(recording, otherwise=asking(server))
    )
    assert found(WORDS, *replies_in(folder)) == set(WORDS)
    pack.delete(SECRET.id_, purge=True)
    assert found(WORDS, *replies_in(folder)) == set()


def test_a_recording_is_left_alone_where_nothing_is_purged(folder: Path, recording: Path) -> None:
    recording.write_text(
        json.dumps({"text": SECRET.text, "propositions": ["x"]}) + "\n", encoding="utf-8"
    )
    before = recording.read_bytes()
    pack = pack_of(
        [SECRET, OTHER],
        folder,
        RecordedPropositionizer(recording, otherwise=SentencePropositionizer()),
    )
    pack.delete(SECRET.id_)
    pack.delete(OTHER.id_, purge=True)
    assert recording.read_bytes() == before


# the index's own files


def test_purging_leaves_nothing_of_a_document_in_any_file_of_the_index(
    server: OpenAIServer, folder: Path
) -> None:
    many = [
        Document(id_=f"{n}", text=f"Rain fell on day {n}. {n}日に雨が降った。") for n in range(200)
    ]
    pack = pack_of([SECRET, OTHER, *many], folder, SentencePropositionizer())
    assert found(WORDS, *files_in(folder)) >= {"wormwood", "山椒"}
    pack.delete(SECRET.id_, purge=True)
    assert found(WORDS, *files_in(folder)) == set()
    assert found(OTHER_WORDS, *files_in(folder)) == set(OTHER_WORDS)
    loaded = DenseXRetrievalPack.load(folder)
    assert loaded.retrieve("harbour")[0].node.ref_doc_id == OTHER.id_
    assert loaded.counts().documents == 201


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
def test_purging_leaves_nothing_of_a_document_where_the_clock_was_set_back(
    store: Any, folder: Path
) -> None:
    given: dict[str, Any] = {} if store is None else {"vector_store": store()}
    models: dict[str, Any] = {"query_llm": "none", "embed_model": ShortEmbedding()}
    pack = DenseXRetrievalPack([SECRET], persist_dir=folder, **given, **models)
    pack.insert(OTHER)
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() + 86_400,) * 2)
    reader = DenseXRetrievalPack.load(folder, **models)
    pack.delete(SECRET.id_, purge=True)
    assert found(WORDS, *files_in(folder)) == set()
    for one in (pack, reader, DenseXRetrievalPack.load(folder, **models)):
        assert one.retrieve("harbour", similarity_top_k=1)[0].node.ref_doc_id == OTHER.id_


def test_purging_leaves_nothing_of_a_document_in_an_embedded_store_of_the_users_own(
    folder: Path,
) -> None:
    store = EmbeddedVectorStore(folder)
    pack = DenseXRetrievalPack(
        [SECRET, OTHER], vector_store=store, query_llm="none", embed_model="none"
    )
    assert found(WORDS, *files_in(folder)) >= {"wormwood", "山椒"}
    pack.delete(SECRET.id_, purge=True)
    assert found(WORDS, *files_in(folder)) == set()
    again = DenseXRetrievalPack.from_vector_store(EmbeddedVectorStore(folder), query_llm="none")
    assert set(again.documents()) == {OTHER.id_}


def test_purging_reaches_the_replies_for_a_document_that_the_index_does_not_have(
    server: OpenAIServer, folder: Path
) -> None:
    pack = pack_of([SECRET, OTHER], folder, asking(server))
    pack.delete(SECRET.id_)
    assert pack.delete(SECRET, purge=True) == 0
    assert found(WORDS, *replies_in(folder)) == set()
