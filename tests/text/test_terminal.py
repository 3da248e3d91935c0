"""What a terminal is shown of names and texts that others wrote."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from llama_pack_densex.text.terminal import (
    PlainFormatter,
    one_line,
    plain,
    plain_json,
    plain_logger,
)

STEERING = ["\x07", "\x08", "\r", "\x1b[2J", "\x7f", "\x9b2J", "\u202e", "\u2066"]


def steers(text: str) -> bool:
    return any(character in text for sequence in STEERING for character in sequence[0])


@pytest.mark.parametrize("sequence", STEERING)
def test_what_steers_a_terminal_is_replaced(sequence: str) -> None:
    assert plain(f"tea{sequence}") == f"tea\N{REPLACEMENT CHARACTER}{sequence[1:]}"


def test_other_texts_stay_as_they_are() -> None:
    text = "お茶\tか\u3099\n\u200cخ 👩\u200d🔬"
    assert plain(text) == text


def test_line_ends_of_a_name_are_shown() -> None:
    assert one_line("a\nError: b\r\u2028c") == "a\\nError: b\\r\\u2028c"


@pytest.mark.parametrize("sequence", STEERING)
def test_json_holds_the_same(sequence: str) -> None:
    name = {"name": f"茶{sequence}"}
    text = plain_json(json.dumps(name, ensure_ascii=False, indent=2))
    assert json.loads(text) == name
    assert not steers(text)


@pytest.mark.parametrize("sequence", STEERING)
def test_a_logger_quotes_its_arguments(sequence: str, caplog: pytest.LogCaptureFixture) -> None:
    plain_logger("tests.terminal").warning(
        "%s: %d of %.1f lines\n%r", f"a{sequence}\n.md", 3, 4.0, sequence
    )
    (message,) = caplog.messages
    assert not steers(message)
    assert ": 3 of 4.0 lines\n" in message
    assert message.count("\n") == 1


def test_a_logged_traceback_is_plain() -> None:
    try:
        raise ValueError("\x1b]0;title\x07")
    except ValueError as error:
        failure = (type(error), error, error.__traceback__)
    record = logging.LogRecord("other", logging.ERROR, __file__, 1, "\x9b2J", None, failure)
    text = PlainFormatter().format(record)
    assert not steers(text)
    assert "ValueError" in text


def test_the_traceback_of_a_fault_is_plain() -> None:
    code = (
        "from llama_pack_densex.cli import app\n@app.command()\n"
        "def fail(): raise RuntimeError('\\x1b]0;title\\x07')\n"
        "app(['fail'])\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert "RuntimeError" in process.stderr
    assert not steers(process.stderr)
