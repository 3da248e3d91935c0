"""Files of the Batch API: what is written is what the service takes, what is read is what the live path would
read."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.ingestion.batch import (
    MAX_BYTES,
    MAX_REQUESTS,
    BatchResult,
    import_results,
    read_result,
    request_files,
    request_line,
)
from llama_pack_densex.llm.cache import ReplyCache, reply_key
from llama_pack_densex.llm.errors import Failure
from llama_pack_densex.llm.usage import Reply, Usage

BODY = {
    "model": "gpt-4o-mini",
    "messages": [{"role": "user", "content": "味噌は大豆から作られる。"}],
}
JSON = st.recursive(
    st.just(200) | st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NO_RESULT = "the line is damaged, or no result but a request"
FIELDS = (
    "custom_id",
    "response",
    "error",
    "status_code",
    "body",
    "choices",
    "message",
    "content",
    "finish_reason",
)


def completion(
    content: Any = '["味噌は大豆から作られる。"]', finish_reason: str = "stop", **message: Any
) -> dict[str, Any]:
    return {
        "object": "chat.completion",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **message},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 100},
        },
    }


def result(body: Any, status: Any = 200, error: Any = None, **fields: Any) -> bytes:
    response = {"status_code": status, "request_id": "req_1", "body": body}
    record = {"id": "batch_req_1", "custom_id": "k", "response": response, "error": error, **fields}
    return json.dumps(record, ensure_ascii=False).encode()


def failed(code: str | None, message: str, status: int = 400) -> bytes:
    return result(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": code,
            }
        },
        status,
    )


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


# writing


def test_a_request_has_the_form_that_the_service_takes() -> None:
    line = request_line("k", BODY)
    assert json.loads(line) == {
        "custom_id": "k",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": BODY,
    }


def test_japanese_is_written_as_it_is() -> None:
    assert "味噌は大豆から作られる。" in request_line("k", BODY).decode()


@given(st.text())
def test_a_request_is_one_line_however_lines_are_split(text: str) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    line = request_line("k", body)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["body"] == body


def test_a_lone_surrogate_does_not_stop_the_export() -> None:
    assert json.loads(request_line("k", {"text": "半\ud800分"}))["body"] == {"text": "半?分"}


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 40), max_size=30),
    max_requests=st.integers(1, 6),
    max_bytes=st.integers(41, 120),
)
def test_no_file_is_beyond_the_limits_and_no_request_is_lost(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_requests: int, max_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("requests")
    lines = [b"%d" % (number % 10) * size + b"\n" for number, size in enumerate(sizes)]
    with request_files(folder / "out", max_requests=max_requests, max_bytes=max_bytes) as files:
        for line in lines:
            files.add(line)
    written = [Path(file.path) for file in files.written]
    assert b"".join(path.read_bytes() for path in written) == b"".join(lines)
    assert [(file.requests, file.bytes) for file in files.written] == [
        (path.read_bytes().count(b"\n"), path.stat().st_size) for path in written
    ]
    assert all(
        0 < file.requests <= max_requests and file.bytes <= max_bytes for file in files.written
    )


def test_the_default_limits_are_within_those_of_the_service() -> None:
    assert MAX_REQUESTS <= 50_000
    assert MAX_BYTES < 200_000_000


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_files_and_folder_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with request_files(tmp_path / "out") as files:
            files.add(request_line("k", BODY))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "out" / "requests-0001.jsonl").stat().st_mode) == 0o600


def test_no_file_has_its_name_before_all_are_whole(tmp_path: Path) -> None:
    with request_files(tmp_path, max_requests=1) as files:
        files.add(b"1\n")
        files.add(b"2\n")
        assert not list(tmp_path.glob("*.jsonl"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "requests-0001.jsonl",
        "requests-0002.jsonl",
    ]


def export_and_fail(folder: Path, **options: Any) -> None:
    def documents() -> Iterator[bytes]:
        yield b"new\n"
        raise RuntimeError("no more")

    def export() -> None:
        with request_files(folder, **options) as files:
            for line in documents():
                files.add(line)

    with pytest.raises(RuntimeError, match="no more"):
        export()


def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    export_and_fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_the_earlier_files(tmp_path: Path) -> None:
    (tmp_path / "requests-0001.jsonl").write_text("old\n")
    export_and_fail(tmp_path, force=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("requests-0001.jsonl", "old\n")
    ]


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    export_and_fail(tmp_path)
    assert tmp_path.is_dir()


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".requests-abc").mkdir()
    (tmp_path / ".requests-abc" / "requests-0001.jsonl").write_text("old\n")
    with request_files(tmp_path) as files:
        files.add(b"new\n")
    assert [path.name for path in tmp_path.iterdir()] == ["requests-0001.jsonl"]


def test_earlier_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "requests-0001.jsonl").write_text("old\n")
    with pytest.raises(ValueError, match="earlier export"), request_files(tmp_path):
        pass


def test_force_replaces_all_earlier_files_and_nothing_else(tmp_path: Path) -> None:
    for name in ("requests-0001.jsonl", "requests-0002.jsonl", "results-0001.jsonl"):
        (tmp_path / name).write_text("old\n")
    with request_files(tmp_path, force=True) as files:
        files.add(b"new\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "requests-0001.jsonl": "new\n",
        "results-0001.jsonl": "old\n",
    }


# reading


def test_a_reply_is_read_with_why_it_ended_and_what_it_used() -> None:
    usage = Usage(1, input_tokens=120, output_tokens=30, cached_input_tokens=100)
    reply = Reply('["味噌は大豆から作られる。"]', "stop", usage)
    assert read_result(result(completion())) == BatchResult(
        "k", reply, model="gpt-4o-mini-2024-07-18"
    )


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        (completion('["味噌', "length"), "length"),
        (completion("", "content_filter"), "filtered"),
        (completion(None, "stop", refusal="I cannot help with that."), "refused"),
    ],
)
def test_a_reply_that_is_not_whole_is_kept_as_such(body: dict[str, Any], finish: str) -> None:
    outcome = read_result(result(body)).outcome
    assert isinstance(outcome, Reply)
    assert outcome.finish == finish
    assert outcome.text == (body["choices"][0]["message"]["content"] or "")


def test_a_reply_without_usage_is_counted_here() -> None:
    body = completion()
    del body["usage"]
    outcome = read_result(result(body)).outcome
    assert isinstance(outcome, Reply)
    assert outcome.usage.requests == 1
    assert outcome.usage.output_tokens > 5


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (failed("content_filter", "The response was filtered"), "filtered"),
        (
            failed(
                "context_length_exceeded", "This model's maximum context length is 128000 tokens."
            ),
            "too_long",
        ),
        (failed(None, "Your input was flagged by our moderation."), "filtered"),
    ],
)
def test_a_failure_that_would_come_back_is_kept(line: bytes, kind: str) -> None:
    outcome = read_result(line).outcome
    assert isinstance(outcome, Failure)
    assert outcome.kind == kind


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"custom_id": "k", "response": {"sta', NO_RESULT),
        (b'{"custom_id": "\xff"}', NO_RESULT),
        (b"[" * 100_000, NO_RESULT),
        (b'["k"]', NO_RESULT),
        (result(completion(), custom_id=None), NO_RESULT),
        (request_line("k", BODY), NO_RESULT),
        (b'{"custom_id": "k"}', NO_RESULT),
        (result(None, 500), "the request failed (500)"),
        (result("", 0), "the request failed"),
        (
            failed("rate_limit_exceeded", "Rate limit reached", 429),
            "the request failed (429 invalid_request_error",
        ),
        (
            failed("insufficient_quota", "You exceeded your current quota", 429),
            "the request failed (429 insufficient",
        ),
        (
            result(
                None,
                response=None,
                error={"code": "batch_expired", "message": "It could not be executed."},
            ),
            "the request failed (batch_expired)",
        ),
        (result({**completion(), "choices": []}), "the response holds no text"),
        (result({"choices": [{"index": 0}]}), "the response holds no text"),
        (result("OK"), "the response holds no text"),
        (result(completion(["part"])), "the response holds no text"),
    ],
)
def test_what_cannot_be_used_says_why(line: bytes, problem: str) -> None:
    read = read_result(line)
    assert read.outcome is None
    assert read.problem.startswith(problem)


def test_a_problem_quotes_nothing_of_the_document() -> None:
    read = read_result(failed("味噌 secret", "Invalid: 味噌は大豆から作られる。", 422))
    assert read.problem == "the request failed (422 invalid_request_error)"


@given(
    st.dictionaries(
        st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4)
    )
    | JSON
)
def test_no_record_stops_the_reading(record: Any) -> None:
    read = read_result(json.dumps(record).encode())
    assert (read.outcome is None) == bool(read.problem)


@given(st.binary())
def test_no_bytes_stop_the_reading(data: bytes) -> None:
    for line in io.BytesIO(data):
        assert read_result(line).outcome is None


def test_byte_order_mark_line_ends_of_windows_and_blank_lines_are_passed_over(
    tmp_path: Path,
) -> None:
    first, second = (result(completion(), custom_id=reply_key(text, "prompt")) for text in "茶湖")
    (tmp_path / "results.jsonl").write_bytes(b"\xef\xbb\xbf" + first + b"\r\n\r\n" + second)
    with closing(ReplyCache(tmp_path / "replies.sqlite")) as cache:
        report = import_results([tmp_path / "results.jsonl"], cache, {})
    assert (report.lines, report.imported) == (2, 2)


def test_a_reply_takes_the_place_of_one_that_is_damaged(tmp_path: Path) -> None:
    key, results = reply_key("味噌は大豆から作られる。", "prompt"), tmp_path / "results.jsonl"
    results.write_bytes(result(completion(), custom_id=key) + b"\n")
    with closing(ReplyCache(tmp_path / "replies.sqlite")) as cache:
        cache.put(key, Reply("[]", "stop"))
        with closing(sqlite3.connect(cache.path)) as connection, connection:
            connection.execute("UPDATE replies SET body = substr(body, 3)")
        report = import_results([results], cache, {})
        assert (report.imported, report.already_there) == (1, 0)
        assert cache.get(key) == Reply(
            '["味噌は大豆から作られる。"]', "stop", Usage(1, 120, 30, 100)
        )
