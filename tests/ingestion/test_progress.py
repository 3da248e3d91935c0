"""How far an ingestion is: what is counted, what is told of it, and how it is shown."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from llama_pack_densex.ingestion.displays import display_for, is_due, line_display
from llama_pack_densex.ingestion.progress import IngestionProgress, ProgressState
from llama_pack_densex.ingestion.rendering import (
    DOT,
    Figure,
    duration,
    figures,
    fit,
    last_figures,
    money,
    one_line,
    per_minute,
    short,
    time_left,
)
from llama_pack_densex.llm_requests.reply import Usage

INGESTION = """
import logging, sys, time
from llama_pack_densex.ingestion.displays import display_for
from llama_pack_densex.ingestion.progress import IngestionProgress
from llama_pack_densex.llm_requests.reply import Usage

logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
with IngestionProgress(display_for(True)) as progress:
    progress.expect(passages=8)
    for number in range(8):
        time.sleep(0.2)
        progress.passage(12, "fallback" if number == 3 else "ok")
        progress.used(Usage(number + 1, 900_000, 300_000), 0.41)
        if number == 4:
            logging.warning("a log line")
            print("a printed line")
print("after")
"""


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def counting(clock: Clock) -> IngestionProgress:
    return IngestionProgress(display_for(False), clock)


def run(progress: IngestionProgress, clock: Clock, passages: int, seconds: float) -> None:
    for _ in range(passages):
        clock.now += seconds / passages
        progress.passage(10, "ok")


def text(state: ProgressState) -> str:
    return one_line(figures(state), DOT)


def test_a_line_tells_all_that_is_known() -> None:
    state = ProgressState(
        passages=1204,
        passages_total=8000,
        propositions=14310,
        fallbacks=3,
        usage=Usage(1204, 1_300_000, 600_000),
        cost=0.41,
        now=141,
        rate=512,
    )
    assert text(state) == (
        "1,204/8,000 passages · 14,310 propositions · 3 fallbacks · 1.9M tokens · $0.41 · 512/min · 13 min left"
    )


def test_a_line_leaves_out_what_is_unknown_or_zero() -> None:
    assert text(ProgressState(passages=1, now=2.5)) == "1 passage · 2.5 s so far"


def test_documents_are_told_where_the_number_of_passages_is_not_known() -> None:
    state = ProgressState(documents=12, documents_total=40, passages=96, now=60)
    assert text(state) == "12/40 documents · 96 passages · 2 min left"


def test_a_total_that_turned_out_too_small_is_not_told() -> None:
    assert text(ProgressState(passages=12, passages_total=10, now=3)) == "12 passages · 3.0 s so far"


def test_replies_from_the_cache_are_told() -> None:
    assert "5,000 passages · 5.0k from the cache" in text(ProgressState(passages=5000, kept=5000, now=2))


def test_the_last_line_tells_the_average_rate_and_the_time() -> None:
    state = ProgressState(documents=2, documents_total=2, passages=30, passages_total=30, propositions=360, now=7500)
    assert one_line(last_figures(state)) == "2 documents, 30 passages, 360 propositions, 0.2/min, in 2 h 05 min"


def test_the_last_line_of_what_was_stopped_tells_how_much_was_to_be_done() -> None:
    assert one_line(last_figures(ProgressState(passages=3, passages_total=9))) == "3/9 passages, in 0.0 s"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (780, "13 min"),
        (3590, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_time_left(seconds: float, expected: str) -> None:
    assert time_left(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.31, "0.3 s"), (9.96, "10 s"), (59.7, "1 min 00 s"), (940.2, "15 min 40 s"), (7500, "2 h 05 min")],
)
def test_time_passed(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (950, "950"),
        (12_345, "12.3k"),
        (153_900, "154k"),
        (999_960, "1.0M"),
        (1_900_000, "1.9M"),
        (2_140_000_000, "2.1B"),
        (5_200_000_000_000, "5,200B"),
    ],
)
def test_large_numbers_in_short(number: int, expected: str) -> None:
    assert short(number) == expected


@pytest.mark.parametrize(
    ("amount", "currency", "expected"),
    [
        (0.414, "USD", "$0.41"),
        (1234.5, "USD", "$1,234.50"),
        (0.003, "USD", "<$0.01"),
        (0, "USD", "$0.00"),
        (2.5, "EUR", "2.50 EUR"),
    ],
)
def test_money(amount: float, currency: str, expected: str) -> None:
    assert money(amount, currency) == expected


def test_rates() -> None:
    assert [per_minute(rate) for rate in (0.25, 9.94, 9.96, 1986.4)] == ["0.2/min", "9.9/min", "10/min", "1,986/min"]


PARTS = st.lists(st.builds(Figure, st.text("ab1 ", min_size=1, max_size=30), st.integers(1, 8)), min_size=1, max_size=9)


@given(parts=PARTS, width=st.integers(30, 120), lines=st.integers(1, 3))
def test_figures_fit_into_the_lines_that_there_are(parts: list[Figure], width: int, lines: int) -> None:
    filled = fit(parts, width, lines=lines)
    assert len(filled) <= lines
    assert all(len(line) <= width for line in filled)
    assert filled[0].startswith(parts[0].text)


@given(parts=PARTS, width=st.integers(1, 120))
def test_nothing_is_left_out_where_lines_are_not_limited(parts: list[Figure], width: int) -> None:
    assert DOT.join(fit(parts, width, lines=None)) == one_line(parts, DOT)


def test_the_time_left_outlives_the_tokens_in_a_narrow_terminal() -> None:
    state = ProgressState(
        passages=1204, passages_total=8000, propositions=14310, usage=Usage(1, 900, 50), cost=0.41, now=99, rate=512
    )
    assert fit(figures(state), 40, lines=1) == ["1,204/8,000 passages · 13 min left"]


def test_passages_and_documents_are_counted() -> None:
    progress = counting(Clock())
    progress.passage(12, "ok")
    progress.passage(3, "fallback")
    progress.document()
    state = progress.state()
    assert (state.passages, state.propositions, state.fallbacks, state.documents) == (2, 15, 1, 1)


def test_usage_is_set_and_not_added() -> None:
    progress = counting(Clock())
    progress.used(Usage(1, 100, 50), 0.1)
    progress.used(Usage(2, 200, 90), 0.2, kept=7)
    state = progress.state()
    assert (state.usage, state.cost, state.kept) == (Usage(2, 200, 90), 0.2, 7)


def test_what_is_expected_may_become_known_bit_by_bit() -> None:
    progress = counting(Clock())
    progress.expect(documents=3)
    progress.expect(passages=20)
    assert (progress.state().documents_total, progress.state().passages_total) == (3, 20)


def test_no_time_is_told_in_the_first_seconds() -> None:
    clock = Clock()
    progress = counting(clock)
    progress.expect(passages=1000)
    run(progress, clock, 64, 1)
    assert progress.state().rate is None
    assert progress.state().seconds_left is None


def test_the_time_left_follows_the_rate_of_the_last_minute() -> None:
    clock = Clock()
    progress = counting(clock)
    progress.expect(passages=10_000)
    run(progress, clock, 4000, 600)
    run(progress, clock, 200, 120)
    assert progress.state().rate == pytest.approx(100, rel=0.05)
    assert progress.state().seconds_left == pytest.approx(58 * 60, rel=0.05)


def test_replies_from_the_cache_do_not_make_the_rest_look_quick() -> None:
    clock = Clock()
    progress = counting(clock)
    progress.expect(passages=8000)
    for number in range(5000):
        clock.now += 0.0005
        progress.used(Usage(), None, kept=number + 1)
        progress.passage(10, "ok")
    run(progress, clock, 120, 12)
    assert progress.state().rate == pytest.approx(600, rel=0.05)


def test_a_slow_model_has_a_steady_rate() -> None:
    clock = Clock()
    progress = counting(clock)
    rates = []
    for number in range(60):
        clock.now += 30 if number % 2 else 10
        progress.passage(10, "ok")
        rates.append(progress.state().rate)
    assert all(rate == pytest.approx(3, rel=0.1) for rate in rates[20:])


def test_the_rate_falls_while_nothing_comes() -> None:
    clock = Clock()
    progress = counting(clock)
    run(progress, clock, 600, 60)
    clock.now += 60
    rate = progress.state().rate
    assert rate is not None
    assert rate < 320


@given(gaps=st.lists(st.floats(0, 50), min_size=1, max_size=200))
def test_the_rate_is_that_of_some_stretch_up_to_now(gaps: list[float]) -> None:
    clock = Clock()
    progress = counting(clock)
    times = [clock.now]
    for gap in gaps:
        clock.now += gap
        times.append(clock.now)
        progress.passage(1, "ok")
    rate = progress.state().rate
    possible = [
        (len(gaps) - number) / (clock.now - moment) * 60
        for number, moment in enumerate(times)
        if clock.now - moment >= 5 and number < len(gaps)
    ]
    assert rate is None or any(rate == pytest.approx(each) for each in possible)


def test_documents_tell_the_time_left_where_passages_do_not() -> None:
    clock = Clock()
    progress = counting(clock)
    progress.expect(documents=10)
    for _ in range(4):
        clock.now += 10
        progress.document()
    assert progress.state().seconds_left == pytest.approx(60)


def test_counting_from_many_threads_loses_nothing() -> None:
    progress = IngestionProgress(line_display(lambda line: None))
    with progress:
        threads = [threading.Thread(target=lambda: [progress.passage(2, "ok") for _ in range(2000)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (progress.state().passages, progress.state().propositions) == (16_000, 32_000)


def test_counting_takes_less_than_twenty_microseconds() -> None:
    with IngestionProgress(line_display(lambda line: None)) as progress:
        began = time.thread_time()
        for _ in range(20_000):
            progress.passage(12, "ok")
            progress.used(Usage(1, 2, 3), 0.1)
        assert time.thread_time() - began < 20_000 * 20e-6


def test_finishing_twice_tells_the_same_line() -> None:
    clock = Clock()
    progress = counting(clock)
    run(progress, clock, 4, 2)
    line = progress.finish()
    clock.now += 10
    assert progress.finish() == line == "4 passages, 40 propositions, 120/min, in 2.0 s"


def test_a_log_gets_a_line_every_thirty_seconds_and_every_twentieth() -> None:
    shown = ProgressState(passages=10, passages_total=100, now=50)
    assert not is_due(shown, ProgressState(passages=14, passages_total=100, now=79))
    assert is_due(shown, ProgressState(passages=14, passages_total=100, now=80))
    assert is_due(shown, ProgressState(passages=15, passages_total=100, now=51))
    assert not is_due(ProgressState(passages=10, now=50), ProgressState(passages=9000, now=79))


def test_lines_are_written_as_the_work_goes_on() -> None:
    lines: list[str] = []
    with IngestionProgress(line_display(lines.append)) as progress:
        progress.expect(passages=10)
        for _ in range(5):
            progress.passage(12, "ok")
        deadline = time.monotonic() + 10
        while not lines and time.monotonic() < deadline:
            time.sleep(0.05)
    assert lines[0].startswith("5/10 passages, 60 propositions, ")
    assert lines[-1].startswith("5/10 passages, 60 propositions, ")
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_without_a_terminal_progress_goes_to_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "llama_pack_densex.ingestion"), IngestionProgress(display_for(True)) as progress:
        progress.passage(12, "ok")
    assert [record.name for record in caplog.records] == ["llama_pack_densex.ingestion"]
    assert caplog.messages[0].startswith("1 passage, 12 propositions, in ")


def test_what_is_not_to_be_shown_is_summed_up_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), IngestionProgress(display_for(False)) as progress:
        assert "densex-progress" not in [thread.name for thread in threading.enumerate()]
        progress.passage(12, "ok")
    assert len(caplog.messages) == 1


def test_an_output_that_was_closed_does_not_stop_the_ingestion(caplog: pytest.LogCaptureFixture) -> None:
    def write(line: str) -> None:
        raise BrokenPipeError("the pipe is closed")

    with IngestionProgress(line_display(write)) as progress:
        progress.passage(12, "ok")
    assert "the pipe is closed" in caplog.text


def test_a_failure_closes_the_display() -> None:
    lines: list[str] = []

    def fail() -> None:
        with IngestionProgress(line_display(lines.append)) as progress:
            progress.passage(12, "ok")
            raise KeyError("gone")

    with pytest.raises(KeyError):
        fail()
    assert len(lines) == 1
    assert "densex-progress" not in [thread.name for thread in threading.enumerate()]


def screen_of(output: str) -> list[str]:
    """What a terminal shows after what was written to it, for the few control sequences that a live line takes."""
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


def in_terminal(columns: int, environment: dict[str, str] | None = None, stdout: Path | None = None) -> str:
    """What an ingestion writes to a terminal of so many columns, with its stdout there or in a file."""
    pty = pytest.importorskip("pty", reason="only Unix has pseudo-terminals")
    import fcntl
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, theirs)
        process = subprocess.Popen(
            [sys.executable, "-c", INGESTION],
            stdin=theirs,
            stdout=theirs if stdout is None else stack.enter_context(stdout.open("wb")),
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **(environment or {})},
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
    assert re.search(r"[1-7]/8 passages · \d+ propositions · ", output)
    shown = screen_of(output)
    assert shown[:2] == ["WARNING a log line", "a printed line"]
    assert re.fullmatch(
        r"8 passages · 96 propositions · 1 fallback · 1.2M tokens · \$0.41 · \d+/min · in [\d.]+ s", shown[2]
    )
    assert shown[3:] == ["after"]
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l"), "the cursor stays hidden"


def test_a_narrow_terminal_is_not_overrun() -> None:
    shown = screen_of(in_terminal(40))
    assert shown[:3] == ["WARNING a log line", "a printed line", "8 passages · 96 propositions"]
    assert shown[-1] == "after"
    assert all(len(line) <= 40 for line in shown)


def test_a_terminal_that_cannot_move_its_cursor_gets_no_live_line() -> None:
    assert "\x1b" not in in_terminal(80, {"TERM": "dumb"})


def test_what_is_printed_into_a_file_goes_there_and_not_to_the_terminal(tmp_path: Path) -> None:
    output = in_terminal(80, stdout=tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "a printed line\nafter\n"
    assert "printed" not in output


def test_a_notebook_has_one_output_that_changes(tmp_path: Path) -> None:
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "kernel.json").write_text(json.dumps({**spec, "display_name": "tests"}), encoding="utf-8")
    manager = AsyncKernelManager(
        kernel_name="tests",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False),
    )
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
    assert shown[0].data["text/plain"].startswith("8 passages · 96 propositions · 1 fallback · 1.2M tokens · $0.41 · ")
    assert len(updates) > 1
    assert "".join(output.text for output in outputs if output.get("name") == "stdout") == "a printed line\nafter\n"
