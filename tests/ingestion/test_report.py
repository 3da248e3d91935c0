"""The report of an ingestion: written as it goes, whole whatever happens, and summed up for people."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.schema import TextNode
from pydantic import ValidationError

from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.index.folder import REPORT_FILE
from llama_pack_densex.ingestion.progress import display_for
from llama_pack_densex.ingestion.report import (
    KEPT_DOCUMENTS,
    DocumentOutcome,
    IngestionSummary,
    PassageFallback,
    Watch,
    left_out,
    summary_rows,
)
from llama_pack_densex.llm.usage import RequestFigures, Usage
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, REASON_KEY, STATUS_KEY
from llama_pack_densex.node_parsers.parsers import ParsedDocument
from tests.ingestion.reports import read_report

KEY = "sk-proj-abcdefghijklmnop"
TIDES = "文書/潮汐.md"
FAILED = DocumentOutcome(
    "a.pdf", "failed", error="PdfReadError: the file is damaged; save it again"
)
SUMMARY = IngestionSummary(
    state="finished",
    why_stopped="",
    started="2026-05-01T10:00:00+00:00",
    finished="2026-05-01T10:15:40+00:00",
    seconds=940.2,
    documents={"done": 1180, "changed": 12, "failed": 7},
    passages=8000,
    propositions=96412,
    statuses={"ok": 7950, "repaired": 41, "fallback": 9},
    fallback_reasons={"the reply was refused": 5, "the reply was cut off twice": 3},
    requests=RequestFigures(
        Usage(8120, 5_431_020, 3_212_100, 1_200_000), 4.1234, 5000, 12, 3, "gpt-4o-mini"
    ),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / REPORT_FILE


def part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def watch_of(path: Path | None) -> Watch:
    return Watch(SentencePropositionizer(), path, display_for(False))


def parsed(name: str = TIDES, *reasons: str) -> ParsedDocument:
    """A document of a passage with two propositions, and further passages that fell back."""

    def node(granularity: str, **metadata: Any) -> TextNode:
        return TextNode(text="x", metadata={GRANULARITY_KEY: granularity, **metadata})

    made = [node("passage", **{STATUS_KEY: "ok"}), node("proposition"), node("proposition")]
    fallen = [node("passage", **{STATUS_KEY: "fallback", REASON_KEY: reason}) for reason in reasons]
    return ParsedDocument(Document(id_=name, text="x"), [*made, *fallen])


def test_a_summary_counts_what_was_added(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(TIDES, "refused"), replaced=False)
        watch.done(parsed("b", "refused", "refused"), replaced=True)
        watch.failed(Document(id_="c", text=""), ValueError("odd"))
        watch.unchanged(Document(id_="d", text=""))
    summary = read_report(path).summary
    assert summary.documents == {"done": 1, "changed": 1, "failed": 1, "unchanged": 1}
    assert (summary.passages, summary.propositions) == (5, 4)
    assert summary.statuses == {"ok": 2, "fallback": 3}
    assert summary.fallback_reasons == {"refused": 3}
    assert (summary.state, summary.why_stopped) == ("finished", "")
    assert summary == watch.summary


def test_a_finished_report_is_one_json_object_with_a_document_a_line(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(), replaced=False)
        watch.deleted("b")
    text = path.read_text(encoding="utf-8")
    assert set(json.loads(text)) == {"summary", "documents"}
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[1:3]] == json.loads(text)[
        "documents"
    ]
    assert "潮汐" in text


def test_a_report_without_documents_is_valid(path: Path) -> None:
    with watch_of(path):
        pass
    assert read_report(path).documents == ()


@pytest.mark.skipif(os.name != "posix", reason="file modes are of Unix")
def test_a_report_and_its_part_are_private(path: Path) -> None:
    part_of(path).touch(mode=0o644)
    path.touch(mode=0o644)
    with watch_of(path):
        assert stat.S_IMODE(part_of(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_else_is_left_in_the_folder(path: Path) -> None:
    with watch_of(path) as watch:
        watch.deleted("a")
    assert list(path.parent.iterdir()) == [path]


def test_an_error_that_quotes_a_documents_text_brings_none_into_a_report(path: Path) -> None:
    with pytest.raises(ValidationError) as raised, watch_of(path):
        Document(text="Rain fell.", metadata="the secret of Kyoto")
    assert "the secret of Kyoto" in str(raised.value)  # pydantic's own message
    assert "metadata" in read_report(path).summary.why_stopped
    assert "secret" not in path.read_text()


def test_keys_reach_no_report(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_KEY", "0123456789abcdef")
    with watch_of(path) as watch:
        watch.done(parsed(TIDES, "0123456789abcdef was refused"), replaced=False)
        watch.failed(Document(id_="b", text=""), ValueError(f"AuthenticationError: {KEY}"))
        assert KEY not in str(watch.outcomes_failed)
    assert KEY not in path.read_text()
    assert "0123456789abcdef" not in path.read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.ingestion.progress import display_for
from llama_pack_densex.ingestion.report import Watch

with Watch(SentencePropositionizer(), Path(sys.argv[1]), display_for(False)) as watch:
    for number in range(50):
        watch.deleted(f"文書/{number}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only Unix kills so")
@pytest.mark.slow
def test_killed_an_ingestion_leaves_the_earlier_report_and_whole_lines_until_the_next_one(
    path: Path,
) -> None:
    with watch_of(path) as watch:
        watch.deleted("earlier")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [outcome.document_id for outcome in read_report(path).documents] == ["earlier"]
    lines = part_of(path).read_text(encoding="utf-8").splitlines()[1:]
    assert [json.loads(line.rstrip(","))["document_id"] for line in lines] == [
        f"文書/{n}" for n in range(50)
    ]
    with watch_of(path) as watch:
        watch.deleted("later")
    assert [outcome.document_id for outcome in read_report(path).documents] == ["later"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_documents(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(), replaced=False)
        tracemalloc.start()
        for number in range(300):
            watch.done(parsed(f"文書/{number}", *["the reply was cut off"] * 3), replaced=False)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # 1 KB or more for each document if they were kept; threads of other tests may take some 50
    assert grown < 120_000
    assert len(read_report(path).documents) == 301


def test_without_a_path_the_first_failures_are_kept() -> None:
    with watch_of(None) as watch:
        for number in range(50):
            watch.failed(Document(id_=str(number), text=""), ValueError("odd"))
    assert watch.summary is not None
    assert watch.summary.documents == {"failed": 50}
    assert [outcome.document_id for outcome in watch.outcomes_failed] == [
        str(n) for n in range(KEPT_DOCUMENTS)
    ]


def test_a_report_goes_into_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    with watch_of(tmp_path / "new" / "folder" / REPORT_FILE):
        pass
    assert (tmp_path / "new" / "folder" / REPORT_FILE).is_file()


LONE = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@given(ids=st.lists(LONE, max_size=5))
def test_any_name_survives(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    path = tmp_path_factory.mktemp("report") / REPORT_FILE
    with watch_of(path) as watch:
        for each in ids:
            watch.deleted(each)
    documents = json.loads(path.read_text(encoding="utf-8"))["documents"]
    assert [outcome["document_id"] for outcome in documents] == [whole(each) for each in ids]


def whole(text: str) -> str:
    """A text in which two halves of a character that meet are the character, as JSON reads them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def test_a_fallback_is_told_with_its_place(path: Path) -> None:
    with watch_of(path) as watch:
        watch.done(parsed(TIDES, "refused"), replaced=False)
    (outcome,) = read_report(path).documents
    assert outcome.fallbacks == (PassageFallback(2, None, None, "refused"),)


def test_a_summary_is_told_in_a_few_rows() -> None:
    summary = replace(SUMMARY, report=str(Path("index") / "report.json"))
    assert list(summary_rows(summary, [FAILED])) == [
        ("Documents", "1,180 done, 12 changed, 7 failed"),
        ("", "failed: a.pdf: PdfReadError: the file is damaged; save it again"),
        ("Passages", "8,000: 7,950 ok, 41 repaired, 9 fallback"),
        ("", "5 fallbacks: the reply was refused"),
        ("", "3 fallbacks: the reply was cut off twice"),
        ("Propositions", "96,412"),
        (
            "Requests",
            "8,120 answered, 5,000 from the cache, 12 refused for a limit and sent again, 3 failed",
        ),
        ("Tokens", "5,431,020 in (1,200,000 cached), 3,212,100 out"),
        ("Cost", "$4.12 (gpt-4o-mini)"),
        ("Time", "15 min 40 s"),
        ("Report", str(Path("index") / "report.json")),
    ]


def test_a_summary_of_nothing_new_is_short() -> None:
    summary = replace(
        SUMMARY,
        documents={"unchanged": 3},
        passages=0,
        propositions=0,
        requests=RequestFigures(),
        seconds=0.3,
    )
    assert list(summary_rows(summary)) == [("Documents", "3 unchanged"), ("Time", "0.3 s")]


def test_a_summary_says_first_that_the_ingestion_stopped() -> None:
    summary = replace(SUMMARY, state="stopped", why_stopped="max_cost=5 is reached")
    assert next(summary_rows(summary)) == ("Stopped", "max_cost=5 is reached")


def test_a_cost_that_is_not_known_is_not_told_as_nothing() -> None:
    summary = replace(SUMMARY, requests=replace(SUMMARY.requests, cost=None))
    assert ("Cost", "unknown: no price is known (gpt-4o-mini)") in list(summary_rows(summary))


@pytest.mark.parametrize("documents", [1, 3_000])
def test_whoever_asks_is_told_what_the_last_ingestion_left_out(path: Path, documents: int) -> None:
    assert left_out(path) == ""  # there was none
    with watch_of(path) as watch:
        for number in range(documents):
            watch.done(parsed(f"{number}.md"), False)
        assert "are being indexed" in left_out(path)
    assert left_out(path) == ""
    with watch_of(path) as watch:
        watch.done(parsed(), False)
        watch.failed(Document(id_="a.pdf"), ValueError("it is damaged"))
    assert (
        left_out(path)
        == "the last ingestion failed for 1 document (ingestion_report.json says why)"
    )
    with pytest.raises(ConnectionError), watch_of(path) as watch:
        raise ConnectionError("nobody answers")
    assert (
        left_out(path)
        == "the last ingestion stopped before its end: ConnectionError: nobody answers"
    )


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"documents": []}', '{"summary": 3}', '{"summary": {"state": 1, "documents": 2}}'],
)
def test_a_report_that_says_nothing_of_it_is_no_error(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    assert left_out(path) == ""
