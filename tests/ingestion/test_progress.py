"""How far an ingestion is: what is counted, what is told of it, and how it is shown."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest
from llama_index.core.schema import Document
from nbclient import NotebookClient
from pydantic import PrivateAttr

from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.index.folder import REPORT_FILE
from llama_pack_densex.ingestion.progress import Display, display_for, duration, money
from llama_pack_densex.ingestion.report import Watch
from llama_pack_densex.llm.usage import RequestFigures, Usage
from llama_pack_densex.propositionizers.base import Propositionizer, PropositionSet
from tests.ingestion.reports import read_report
from tests.kernels import kernel_manager
from tests.waiting import wait_until

INGESTION = """
import logging, sys, time
from llama_pack_densex.ingestion.progress import display_for
from llama_pack_densex.ingestion.report import Watch
from llama_pack_densex.llm.usage import RequestFigures, Usage
from llama_pack_densex.propositionizers.base import PropositionSet
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

used = RequestFigures(cost=0.0)

class Asking(SentencePropositionizer):
    @property
    def figures(self):
        return used

logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
with Watch(Asking(), None, display_for(True)) as progress:
    used = RequestFigures(Usage(8, 900_000, 300_000), 0.41)
    for number in range(8):
        time.sleep(0.2)
        progress.passage(PropositionSet(("x",) * 12, "fallback" if number == 3 else "ok"))
        if number == 4:
            logging.warning("a log line")
            print("a printed line")
print("after")
"""


DOCUMENT = Document(id_="雨", text="Rain fell.")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Requests(SentencePropositionizer):
    """What its requests came to is set by hand."""

    _came_to: RequestFigures = PrivateAttr(default=RequestFigures(cost=0.0))

    @property
    def figures(self) -> RequestFigures:
        return self._came_to

    def set_figures(self, figures: RequestFigures) -> None:
        self._came_to = figures


def made(count: int = 10, status: Any = "ok") -> PropositionSet:
    return PropositionSet(("x",) * count, status)


def counting(
    clock: Clock, documents: int | None = None, requests: Propositionizer | None = None
) -> Watch:
    return Watch(requests or SentencePropositionizer(), None, display_for(False), documents, clock)


def shown_by(display: Display, documents: int | None = None) -> Watch:
    return Watch(SentencePropositionizer(), None, display, documents)


def run(progress: Watch, clock: Clock, documents: int, seconds: float) -> None:
    """Documents of ten passages each."""
    for _ in range(documents):
        for _ in range(10):
            clock.now += seconds / documents / 10
            progress.passage(made())
        progress.unchanged(DOCUMENT)


def text(progress: Watch, is_last: bool = False) -> str:
    return ", ".join(progress.figures(is_last))


def test_a_line_tells_all_that_is_known() -> None:
    clock, requests = Clock(), Requests()
    progress = counting(clock, 800, requests)
    run(progress, clock, 119, 140)
    requests.set_figures(RequestFigures(Usage(1191, 1_300_000, 600_000), 0.41))
    progress.passage(made(5, "fallback"))
    progress.unchanged(DOCUMENT)
    assert text(progress) == (
        "120/800 documents, 1,191 passages, 11,905 propositions, 1 fallback, 1,900,000 tokens, $0.41, "
        "510.4/min, 13 min 13 s left"
    )


def test_a_line_leaves_out_what_is_unknown_or_zero() -> None:
    clock = Clock()
    progress = counting(clock)
    clock.now += 2.5
    progress.passage(made(0))
    assert text(progress) == "1 passage, 2.5 s so far"


def test_a_total_that_turned_out_too_small_is_not_told() -> None:
    clock = Clock()
    progress = counting(clock, 10)
    run(progress, clock, 12, 60)
    assert text(progress).startswith("12 documents, 120 passages, ")
    assert text(progress).endswith("1 min 00 s so far")


def test_the_last_line_tells_the_average_rate_and_the_time() -> None:
    clock = Clock()
    progress = counting(clock, 3)
    run(progress, clock, 3, 7500)
    assert (
        text(progress, is_last=True)
        == "3 documents, 30 passages, 300 propositions, 0.2/min, in 2 h 05 min"
    )


def test_the_last_line_of_what_was_stopped_tells_how_much_was_to_be_done() -> None:
    progress = counting(Clock(), 9)
    progress.unchanged(DOCUMENT)
    assert text(progress, is_last=True) == "1/9 documents, 0 passages, in 0.0 s"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.31, "0.3 s"),
        (9.96, "10 s"),
        (59.7, "1 min 00 s"),
        (940.2, "15 min 40 s"),
        (7500, "2 h 05 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_times(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0.414, "$0.41"), (1234.5, "$1,234.50"), (0.003, "<$0.01"), (0, "$0.00")],
)
def test_money(amount: float, expected: str) -> None:
    assert money(amount) == expected


def test_no_time_is_told_in_the_first_seconds() -> None:
    clock = Clock()
    progress = counting(clock, 1000)
    run(progress, clock, 64, 1)
    assert text(progress).endswith("6,400 propositions, 1.0 s so far")


def test_replies_from_the_cache_do_not_make_the_rest_look_quick() -> None:
    clock, requests = Clock(), Requests()
    progress = counting(clock, 800, requests)
    for _ in range(500):
        for _ in range(10):
            clock.now += 0.001
            requests.set_figures(RequestFigures(cache_hits=requests.figures.cache_hits + 1))
            progress.passage(made())
        progress.unchanged(DOCUMENT)
    requests.set_figures(RequestFigures(Usage(1, 100, 50), cache_hits=5000))
    run(progress, clock, 12, 12)
    assert progress.figures()[-2:] == ["600.0/min", "4 min 48 s left"]
    assert "5,000 from the cache" in progress.figures()


def test_documents_that_were_there_do_not_make_the_rest_look_quick() -> None:
    clock = Clock()
    progress = counting(clock, 800)
    for _ in range(500):
        clock.now += 0.01
        progress.unchanged(DOCUMENT)
    run(progress, clock, 12, 12)
    assert progress.figures()[-2:] == ["600.0/min", "4 min 48 s left"]


def test_a_reply_from_the_cache_now_and_then_does_not_begin_the_rate_anew() -> None:
    clock, requests = Clock(), Requests()
    progress = counting(clock, 100, requests)
    for number in range(20):
        requests.set_figures(RequestFigures(Usage(9 * number + 9, 1, 1), cache_hits=number + 1))
        run(progress, clock, 1, 6)
    assert progress.figures()[-2:] == ["100.0/min", "7 min 58 s left"]


def test_lines_are_written_as_the_work_goes_on() -> None:
    lines: list[str] = []
    with shown_by(Display(lines.append, 0.2), 10) as progress:
        for _ in range(5):
            progress.passage(made(12))
        wait_until(lambda: "5 passages" in "".join(lines))
    assert lines[0].startswith("0/10 documents, ")
    assert lines[-1].startswith("0/10 documents, 5 passages, 60 propositions, ")
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_without_a_terminal_progress_is_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_by(display_for(True)) as progress:
        progress.passage(made(12))
    assert re.fullmatch(r"1 passage, 12 propositions, in [\d.]+ s\n", capsys.readouterr().err)


def test_what_is_not_to_be_shown_is_summed_up_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), shown_by(display_for(False)) as progress:
        assert "densex-progress" not in [thread.name for thread in threading.enumerate()]
        progress.passage(made(12))
    assert len(caplog.messages) == 1


def test_an_output_that_was_closed_does_not_stop_the_ingestion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def write(line: str) -> None:
        raise BrokenPipeError("the pipe is closed")

    with shown_by(Display(write, 30)) as progress:
        progress.passage(made(12))
    assert "the pipe is closed" in caplog.text


def test_a_failure_closes_the_display() -> None:
    lines: list[str] = []

    def fail() -> None:
        with shown_by(Display(lines.append, 30)) as progress:
            progress.passage(made(12))
            raise KeyError("gone")

    with pytest.raises(KeyError):
        fail()
    assert len(lines) == 1
    assert "densex-progress" not in [thread.name for thread in threading.enumerate()]


def screen_of(output: str) -> list[str]:
    """What a terminal shows after what was written to it, for the few control sequences that a live line
    takes."""
    lines, row, column = [""], 0, 0
    for control, character in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", output):
        if control.endswith("A"):
            row = max(row - int(control[:-1] or 1), 0)
        elif control == "2K":
            lines[row] = ""
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif character:
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
        else:
            assert re.fullmatch(r"\?25[lh]|[0-9;]*m", control), control
    return [line.rstrip() for line in lines if line.strip()]


def in_terminal(
    columns: int, environment: dict[str, str] | None = None, stdout: Path | None = None
) -> str:
    """What an ingestion writes to a terminal of so many columns, with its stdout there or in a file."""
    pty = pytest.importorskip("pty", reason="only Unix has pseudo-terminals")
    import fcntl
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    }
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, theirs)
        process = subprocess.Popen(
            [sys.executable, "-c", INGESTION],
            stdin=theirs,
            stdout=theirs if stdout is None else stack.enter_context(stdout.open("wb")),
            stderr=theirs,
            env={**inherited, "TERM": "xterm", "PYTHONUTF8": "1", **(environment or {})},
        )
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says so where the other end is closed
            break
        if not data:
            break
        written += data
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return written.decode()


def test_a_terminal_has_a_live_line_below_what_is_logged_and_printed() -> None:
    output = in_terminal(120)
    assert re.search(r"[1-7] passages, \d+ propositions, ", output)
    shown = screen_of(output)
    assert shown[:2] == ["WARNING a log line", "a printed line"]
    assert re.fullmatch(
        r"8 passages, 96 propositions, 1 fallback, 1,200,000 tokens, \$0.41, in [\d.]+ s", shown[2]
    )
    assert shown[3:] == ["after"]
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l"), "the cursor stays hidden"


@pytest.mark.slow
def test_a_narrow_terminal_is_not_overrun() -> None:
    shown = screen_of(in_terminal(40))
    assert shown[:2] == ["WARNING a log line", "a printed line"]
    assert " ".join(shown[2:]).startswith(
        "8 passages, 96 propositions, 1 fallback, 1,200,000 tokens, $0.41, "
    )
    assert shown[-1] == "after"
    assert all(len(line) <= 40 for line in shown)


@pytest.mark.slow
def test_a_terminal_that_cannot_move_its_cursor_gets_no_live_line() -> None:
    assert "\x1b" not in in_terminal(80, {"TERM": "dumb"})


@pytest.mark.slow
def test_what_is_printed_into_a_file_goes_there_and_not_to_the_terminal(tmp_path: Path) -> None:
    output = in_terminal(80, stdout=tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "a printed line\nafter\n"
    assert "printed" not in output


OUTLIVING = """
import os, signal, sys
from pathlib import Path
from llama_index.core.schema import Document
from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.ingestion.progress import display_for
from llama_pack_densex.ingestion.report import Watch

signal.signal(signal.SIGHUP, signal.SIG_IGN)
with Watch(SentencePropositionizer(), Path(sys.argv[1]), display_for(True)) as watch:
    print("begun", flush=True)
    sys.stdin.read()
    watch.unchanged(Document(text="x"))
"""


@pytest.mark.slow
def test_an_ingestion_outlives_its_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="only Unix has pseudo-terminals")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", OUTLIVING, str(tmp_path / REPORT_FILE)]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.close(theirs)
        os.close(ours)
        process.communicate("", timeout=60)
    # with 120 Python says that it could not write what it had for stderr
    assert process.returncode in (0, 120)
    assert read_report(tmp_path / REPORT_FILE).summary.documents == {"unchanged": 1}


@pytest.mark.slow
def test_a_notebook_has_one_output_that_changes(tmp_path: Path) -> None:
    manager = kernel_manager(tmp_path)
    updates: list[str] = []

    class Listening(NotebookClient):
        def process_message(self, msg: dict[str, Any], *arguments: Any) -> Any:
            if msg["msg_type"] == "update_display_data":
                updates.append(msg["content"]["data"]["text/plain"])
            return super().process_message(msg, *arguments)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(INGESTION)])
    Listening(notebook, km=manager, timeout=120).execute()
    outputs = notebook.cells[0].outputs
    shown = [output for output in outputs if output.output_type == "display_data"]
    assert len(shown) == 1
    assert (
        shown[0]
        .data["text/plain"]
        .startswith("8 passages, 96 propositions, 1 fallback, 1,200,000 tokens, $0.41, ")
    )
    assert len(updates) > 1
    assert (
        "".join(output.text for output in outputs if output.get("name") == "stdout")
        == "a printed line\nafter\n"
    )
