"""The report of an ingestion: written as it goes, whole whatever happens, and summed up for people."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llama_pack_densex.ingestion.report import (
    DocumentOutcome,
    IngestionSummary,
    InvalidReportError,
    PassageFallback,
    read_report,
)
from llama_pack_densex.ingestion.report_writer import KEPT_DOCUMENTS, ReportWriter
from llama_pack_densex.ingestion.summary import summary_text
from llama_pack_densex.llm_requests.reply import RequestFigures, Usage
from llama_pack_densex.stores.folder import REPORT_FILE

KEY = "sk-proj-abcdefghijklmnop"
REFUSED = PassageFallback(3, 120, 340, "fallback", "the reply was refused")
DONE = DocumentOutcome("文書/潮汐.md", "done", 8, 96, {"ok": 7, "fallback": 1}, (REFUSED,))
FAILED = DocumentOutcome("a.pdf", "failed", error="PdfReadError: the file is damaged; save it again")
REQUESTS = RequestFigures(Usage(8120, 5_431_020, 3_212_100, 1_200_000), 4.1234, "USD", 5000, 12, 3, "gpt-4o-mini")
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
    requests=REQUESTS,
    version="0.1.0",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / REPORT_FILE


def part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def test_a_report_holds_what_became_of_each_document_in_order(path: Path) -> None:
    with ReportWriter(path) as report:
        report.add(DONE)
        report.add(FAILED)
    assert read_report(path).documents == (DONE, FAILED)


def test_a_summary_counts_what_was_added(path: Path) -> None:
    with ReportWriter(path, lambda: REQUESTS) as report:
        report.add(DONE)
        report.add(replace(DONE, document_id="b", state="changed", fallbacks=(REFUSED, REFUSED)))
        report.add(FAILED)
        report.add(DocumentOutcome("c", "unchanged"))
    summary = read_report(path).summary
    assert summary.documents == {"done": 1, "changed": 1, "failed": 1, "unchanged": 1}
    assert (summary.passages, summary.propositions) == (16, 192)
    assert summary.statuses == {"ok": 14, "fallback": 2}
    assert summary.fallback_reasons == {"the reply was refused": 3}
    assert summary.requests == REQUESTS
    assert (summary.state, summary.why_stopped) == ("finished", "")


def test_a_finished_report_is_one_json_object_with_a_document_a_line(path: Path) -> None:
    with ReportWriter(path) as report:
        report.add(DONE)
        report.add(FAILED)
    text = path.read_text(encoding="utf-8")
    assert list(json.loads(text)) == ["summary", "documents"]
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[-3:-1]] == json.loads(text)["documents"]
    assert "潮汐" in text


def test_a_report_without_documents_is_valid(path: Path) -> None:
    ReportWriter(path).finish()
    assert read_report(path).documents == ()


def test_requests_are_asked_for_when_the_report_is_finished(path: Path) -> None:
    requests = [RequestFigures()]
    with ReportWriter(path, lambda: requests[-1]) as report:
        report.add(DONE)
        requests.append(REQUESTS)
    assert read_report(path).summary.requests == REQUESTS


def test_finishing_twice_writes_once(path: Path) -> None:
    with ReportWriter(path) as report:
        summary = report.finish(why_stopped="max_cost is reached")
        path.unlink()
    assert report.finish() == summary
    assert summary.state == "stopped"
    assert not path.exists()


def test_nothing_is_added_to_a_finished_report(path: Path) -> None:
    report = ReportWriter(path)
    report.finish()
    with pytest.raises(ValueError, match="finished"):
        report.add(DONE)


@pytest.mark.skipif(os.name != "posix", reason="file modes are of Unix")
def test_a_report_and_its_part_are_private(path: Path) -> None:
    part_of(path).touch(mode=0o644)
    path.touch(mode=0o644)
    with ReportWriter(path) as report:
        report.add(DONE)
        assert stat.S_IMODE(part_of(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_else_is_left_in_the_folder(path: Path) -> None:
    with ReportWriter(path) as report:
        report.add(DONE)
    assert list(path.parent.iterdir()) == [path]


def test_an_exception_leaves_a_report_that_says_why(path: Path) -> None:
    def fail() -> None:
        with ReportWriter(path) as report:
            report.add(DONE)
            raise RuntimeError(f"the key {KEY}\nis not accepted")

    with pytest.raises(RuntimeError, match="not accepted"):
        fail()
    report = read_report(path)
    assert report.summary.state == "stopped"
    assert report.summary.why_stopped == "RuntimeError: the key [key] is not accepted"
    assert report.documents == (DONE,)


def test_an_interrupted_ingestion_has_a_report(path: Path) -> None:
    def interrupt() -> None:
        with ReportWriter(path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert read_report(path).summary.why_stopped == "KeyboardInterrupt"


def test_an_exception_is_not_hidden_by_a_report_that_cannot_be_written(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        with ReportWriter(path):
            path.mkdir()  # the report cannot take a folder's place
            raise RuntimeError("the quota is used up")

    with pytest.raises(RuntimeError, match="quota"):
        fail()
    assert "could not be written" in caplog.text
    assert sorted(each.name for each in path.parent.iterdir()) == [REPORT_FILE, f"{REPORT_FILE}.part"]


def test_keys_reach_no_report(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_KEY", "0123456789abcdef")
    with ReportWriter(path) as report:
        report.add(replace(DONE, fallbacks=(replace(REFUSED, reason="0123456789abcdef was refused"),)))
        report.add(replace(FAILED, error=f"AuthenticationError: {KEY}"))
        assert KEY not in str(report.failed)
    assert KEY not in path.read_text()
    assert "0123456789abcdef" not in path.read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from llama_pack_densex.ingestion.report import DocumentOutcome
from llama_pack_densex.ingestion.report_writer import ReportWriter

with ReportWriter(Path(sys.argv[1])) as report:
    for number in range(50):
        report.add(DocumentOutcome(f"文書/{number}", "done", 8, 96, {"ok": 8}))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only Unix kills so")
def test_killed_an_ingestion_leaves_the_earlier_report_and_whole_lines(path: Path) -> None:
    with ReportWriter(path) as report:
        report.add(DONE)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert read_report(path).documents == (DONE,)
    lines = part_of(path).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["document_id"] for line in lines] == [f"文書/{number}" for number in range(50)]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only Unix kills so")
def test_after_a_kill_the_next_ingestion_starts_its_report_anew(path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    with pytest.raises(FileNotFoundError, match=r"was killed.*\.part"):
        read_report(path)
    with ReportWriter(path) as report:
        report.add(DONE)
    assert read_report(path).documents == (DONE,)


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps the file of another writer")
def test_two_ingestions_at_once_each_write_a_whole_report(path: Path) -> None:
    first = ReportWriter(path)
    first.add(DONE)
    second = ReportWriter(path)
    second.add(FAILED)
    first.add(DONE)
    first.finish()
    assert read_report(path).documents == (DONE, DONE)
    second.finish()
    assert read_report(path).documents == (FAILED,)


def test_memory_does_not_grow_with_the_documents(path: Path) -> None:
    with ReportWriter(path) as report:
        report.add(DONE)
        tracemalloc.start()
        for number in range(2000):
            fallback = replace(REFUSED, reason=f"the reply had {number} faults")
            report.add(DocumentOutcome(f"文書/{number}", "done", 8, 96, {"ok": 8}, (fallback,) * 3))
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert grown < 700_000
    assert len(read_report(path).documents) == 2001


def test_a_writer_without_a_path_counts_and_keeps_the_first_failures() -> None:
    report = ReportWriter()
    for number in range(50):
        report.add(replace(FAILED, document_id=str(number)))
        report.add(DONE)
    summary = report.finish()
    assert summary.documents == {"failed": 50, "done": 50}
    assert [outcome.document_id for outcome in report.failed] == [str(number) for number in range(KEPT_DOCUMENTS)]
    assert report.fallen_back == (DONE,) * KEPT_DOCUMENTS


def test_a_report_that_cannot_be_written_is_refused_at_the_beginning(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"):
        ReportWriter(tmp_path)


def test_a_report_goes_into_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    ReportWriter(tmp_path / "new" / "folder" / REPORT_FILE).finish()
    assert (tmp_path / "new" / "folder" / REPORT_FILE).is_file()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"summary": {}, "documents": []}', "\ud800"])
def test_a_damaged_report_is_named(path: Path, content: str) -> None:
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidReportError, match=REPORT_FILE):
        read_report(path)


def test_a_report_of_a_later_version_can_be_read(path: Path) -> None:
    ReportWriter(path).finish()
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "summary": {**content["summary"], "new": 1}}))
    assert read_report(path).summary.state == "finished"


LONE = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@given(ids=st.lists(LONE, max_size=5), error=LONE)
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, ids: list[str], error: str) -> None:
    path = tmp_path_factory.mktemp("report") / REPORT_FILE
    with ReportWriter(path) as report:
        for each in ids:
            report.add(DocumentOutcome(each, "failed", error=error))
    documents = read_report(path).documents
    assert [outcome.document_id for outcome in documents] == [whole(each) for each in ids]


def whole(text: str) -> str:
    """A text in which two halves of a character that meet are the character, as JSON reads them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def test_a_summary_is_told_in_a_few_lines() -> None:
    assert summary_text(SUMMARY, [FAILED], Path("index") / "report.json").splitlines() == [
        "Documents     1,180 done, 12 changed, 7 failed",
        "              failed: a.pdf: PdfReadError: the file is damaged; save it again",
        "              and 6 more that failed",
        "Passages      8,000: 7,950 ok, 41 repaired, 9 fallback",
        "              5 fallbacks: the reply was refused",
        "              3 fallbacks: the reply was cut off twice",
        "              1 fallback: other reasons",
        "Propositions  96,412",
        "Requests      8,120 answered, 5,000 from the cache, 12 refused for a limit and",
        "              sent again, 3 failed",
        "Tokens        5,431,020 in (1,200,000 cached), 3,212,100 out",
        "Cost          $4.12 (gpt-4o-mini)",
        "Time          15 min 40 s, 511 passages/min",
        f"Report        {Path('index') / 'report.json'}",
    ]


def test_a_summary_of_nothing_new_is_short() -> None:
    summary = replace(
        SUMMARY, documents={"unchanged": 3}, passages=0, propositions=0, requests=RequestFigures(), seconds=0.3
    )
    assert summary_text(summary).splitlines() == ["Documents     3 unchanged", "Time          0.3 s"]


def test_a_summary_says_first_that_the_ingestion_stopped() -> None:
    summary = replace(SUMMARY, state="stopped", why_stopped="max_cost=5 is reached")
    assert summary_text(summary).splitlines()[0] == "Stopped       max_cost=5 is reached"


def test_a_cost_that_is_not_known_is_not_told_as_nothing() -> None:
    summary = replace(SUMMARY, requests=replace(REQUESTS, cost=None))
    assert "Cost          unknown: no price is known for gpt-4o-mini" in summary_text(summary)


NAMES = st.text(st.sampled_from("ab /文書ア\x1b\n\u202e\ud800😀"), min_size=1, max_size=120)


@given(name=NAMES, error=NAMES, width=st.integers(40, 120))
def test_a_summary_keeps_to_the_width_and_steers_no_terminal(name: str, error: str, width: int) -> None:
    text = summary_text(SUMMARY, [DocumentOutcome(name, "failed", error=error)], width=width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert not set(text) & set("\x1b\u202e\ud800")
