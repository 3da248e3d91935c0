"""Watching an ingestion: what is shown, reported and logged of what becomes of documents."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    LLMPropositionizer,
    Passage,
    PropositionNodeParser,
    SentencePropositionizer,
)
from llama_pack_densex.index.folder import REPORT_FILE
from llama_pack_densex.ingestion.progress import Display, display_for
from llama_pack_densex.ingestion.report import DocumentOutcome, PassageFallback, Watch
from llama_pack_densex.node_parsers.parsers import ParsedDocument
from llama_pack_densex.propositionizers.base import (
    Propositionizer,
    PropositionizerError,
    PropositionSet,
)
from tests.ingestion.reports import read_report
from tests.openai_server import OpenAIServer, Reply, asked_content

RAIN = Document(
    id_="天気/雨.md", text="Rain fell on the harbour. It was cold.\n\n雨が港に降った。寒かった。"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / REPORT_FILE


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """An LLM for which each passage is its own proposition."""
    with OpenAIServer(
        lambda body: json.dumps([asked_content(body)], ensure_ascii=False)
    ) as running:
        yield running


def watch_of(
    path: Path | None, propositionizer: Propositionizer | None = None, **options: Any
) -> Watch:
    return Watch(propositionizer or SentencePropositionizer(), path, display_for(False), **options)


def asking(server: OpenAIServer) -> LLMPropositionizer:
    return LLMPropositionizer(
        OpenAI(api_base=server.url, api_key="sk-test"), max_retries=0, retry_wait=0
    )


def parsed(
    document: Document = RAIN, propositionizer: Propositionizer | None = None
) -> ParsedDocument:
    parser = PropositionNodeParser(propositionizer=propositionizer or SentencePropositionizer())
    (one,) = parser.stream([document])
    return one


def test_each_document_is_reported_with_what_became_of_it(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(), replaced=False)
        watch.done(parsed(), replaced=True)
        watch.done(parsed(Document(id_="空", text=" ")), replaced=False)
        watch.unchanged(Document(id_="same", text="x"))
        watch.failed(Document(id_="bad", text="x"), ValueError("half a character"))
        watch.deleted("gone")
    assert read_report(path).documents == (
        DocumentOutcome("天気/雨.md", "done", 1, 4, {"ok": 1}),
        DocumentOutcome("天気/雨.md", "changed", 1, 4, {"ok": 1}),
        DocumentOutcome("空", "blank"),
        DocumentOutcome("same", "unchanged"),
        DocumentOutcome("bad", "failed", error="ValueError: half a character"),
        DocumentOutcome("gone", "deleted"),
    )


def test_the_summary_is_there_when_it_is_over(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(), replaced=False)
        assert watch.summary is None
    assert watch.summary == read_report(path).summary
    assert (watch.summary.state, watch.summary.documents, watch.summary.propositions) == (
        "finished",
        {"done": 1},
        4,
    )


def test_without_a_file_there_is_a_summary_all_the_same() -> None:
    with watch_of(None) as watch:
        watch.unchanged(RAIN)
    assert watch.summary is not None
    assert watch.summary.documents == {"unchanged": 1}


def test_a_passage_that_fell_back_is_reported_with_its_place_and_reason(
    server: OpenAIServer, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.responder = lambda body: Reply(None, finish_reason="content_filter")
    text = "港に雨。"
    with watch_of(path) as watch:
        watch.done(parsed(Document(id_="港", text=text), asking(server)), replaced=False)
    (outcome,) = read_report(path).documents
    (fallback,) = outcome.fallbacks
    assert fallback == PassageFallback(1, 0, len(text), fallback.reason)
    assert "content filter" in fallback.reason
    assert "Sentences stand in for propositions in 1 of 1 passages" in caplog.text
    assert "content filter stopped the reply (1)" in caplog.text


def test_passages_are_shown_before_their_document_is_done() -> None:
    shown: list[str] = []
    with Watch(SentencePropositionizer(), None, Display(shown.append), documents=2) as watch:
        watch.passage(PropositionSet(("雨が降った。", "寒かった。")))
        watch.passage(PropositionSet(("It rained.",), "fallback", "refused"))
        watch.unchanged(RAIN)
    assert shown[-1].startswith("1/2 documents, 2 passages, 3 propositions, 1 fallback, in ")


def test_requests_are_counted_from_the_beginning_of_the_ingestion(
    server: OpenAIServer, path: Path
) -> None:
    propositionizer = asking(server)
    propositionizer.propositionize([Passage("Before it."), Passage("その前。")])
    with watch_of(path, propositionizer):
        propositionizer.propositionize([Passage("During it.")])
    requests = read_report(path).summary.requests
    assert requests.usage.requests == 1
    assert requests.usage.total_tokens > 0
    assert requests.model == "gpt-3.5-turbo"


def test_an_error_that_stops_it_is_in_the_report_and_goes_on(path: Path) -> None:
    watch = watch_of(path)

    def ingestion() -> None:
        with watch:
            watch.done(parsed(), replaced=False)
            raise PropositionizerError("no key:\nsk-abcdefgh is refused")

    with pytest.raises(PropositionizerError, match="no key"):
        ingestion()
    summary = read_report(path).summary
    assert (summary.state, summary.why_stopped) == (
        "stopped",
        "PropositionizerError: no key: [key] is refused",
    )
    assert summary.documents == {"done": 1}
    assert watch.summary == summary


def test_an_interruption_is_in_the_report(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), watch_of(path):
        raise KeyboardInterrupt
    assert read_report(path).summary.why_stopped == "KeyboardInterrupt"


def test_an_error_goes_on_where_the_report_cannot_be_written(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "index"

    def ingestion() -> None:
        with watch_of(folder / REPORT_FILE):
            shutil.rmtree(folder)
            raise PropositionizerError("no key")

    with pytest.raises(PropositionizerError, match="no key"):
        ingestion()
    assert "The ingestion report could not be written" in caplog.text


def test_a_report_that_cannot_be_written_is_an_error_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "index"
    with pytest.raises(OSError, match="No such file"), watch_of(folder / REPORT_FILE):
        shutil.rmtree(folder)


def test_the_first_error_is_raised_if_no_document_was_indexed(path: Path) -> None:
    def ingestion() -> None:
        with watch_of(path) as watch:
            watch.failed(RAIN, ValueError("the first"))
            watch.failed(RAIN, ValueError("the second"))
            watch.raise_if_all_failed()

    with pytest.raises(ValueError, match="the first"):
        ingestion()
    assert read_report(path).summary.state == "stopped"


@pytest.mark.parametrize("became", ["done", "unchanged"])
def test_no_error_is_raised_if_one_document_is_in_the_index(path: Path, became: str) -> None:
    with watch_of(path) as watch:
        watch.failed(RAIN, ValueError("the first"))
        watch.done(parsed(), replaced=False) if became == "done" else watch.unchanged(RAIN)
        watch.raise_if_all_failed()
    assert [outcome.error for outcome in watch.outcomes_failed] == ["ValueError: the first"]


def test_a_blank_document_beside_it_does_not_hide_an_error(path: Path) -> None:
    with watch_of(path) as watch:
        watch.failed(RAIN, ValueError("the first"))
        watch.done(parsed(Document(id_="空", text=" ")), replaced=False)
        with pytest.raises(ValueError, match="the first"):
            watch.raise_if_all_failed()


def test_nothing_at_all_is_no_error(path: Path) -> None:
    with watch_of(path) as watch:
        watch.raise_if_all_failed()
    assert read_report(path).documents == ()


def test_a_document_with_a_random_id_is_logged_with_its_file(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SimpleDirectoryReader gives documents random ids."""
    file = "/docs/\udc83\x1b[2J.txt"  # no encoding has the first, and the second steers a terminal
    document = Document(text="", metadata={"file_path": file})
    with watch_of(path) as watch:
        watch.failed(document, RuntimeError("refused"))
        watch.done(parsed(document), replaced=False)
    assert f"{document.id_!r} ({file!r}) was not indexed" in caplog.text
    assert f"{document.id_!r} ({file!r}) has no text" in caplog.text


def test_a_document_that_fails_or_has_no_text_is_logged_with_its_name_and_without_keys(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), watch_of(path) as watch:
        watch.failed(
            Document(id_="壊れた", text="secret text"), RuntimeError("refused: api_key=sk-abcdefgh")
        )
        watch.done(parsed(Document(id_="空", text="")), replaced=False)
    assert "Document '壊れた' was not indexed: RuntimeError: refused: api_key=[key]" in caplog.text
    assert "Document '空' has no text" in caplog.text
    assert "secret text" not in caplog.text
