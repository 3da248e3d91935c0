"""What LLMPropositionizer writes while it works, and RecordedPropositionizer reads."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.recorded import (
    RecordedPropositionizer,
    append_recording,
    open_recording,
)
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from tests.openai_server import OpenAIServer, held
from tests.propositionizers.test_llm import ALL, MISO, MISO_JA, PASSAGE, PASSAGE_JA, propositionizer


def test_what_is_recorded_of_equal_texts_under_two_headings_stays_apart(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    for section, name in (("Lighthouse", "The lighthouse"), ("Chapel", "The chapel")):
        made = PropositionSet(
            (f"{name} has three floors.",), questions=(f"How high is {name.lower()}?",)
        )
        append_recording(path, Passage("It has three floors.", "Karsted", section), made)
    (made,) = RecordedPropositionizer(path).propositionize(
        [Passage("It has three floors.", "Karsted", "Lighthouse")]
    )
    assert (made.texts, made.questions) == (
        ("The lighthouse has three floors.",),
        ("How high is the lighthouse?",),
    )


def test_what_came_back_is_recorded_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "propositions.jsonl"
    failing = Passage("Nothing is known of this.", title="x")
    with OpenAIServer(held({**MISO, **MISO_JA}, max_output_tokens=40)) as server:
        asking = propositionizer(server, record_to=file)
        made = asking.propositionize([PASSAGE, failing, PASSAGE_JA, Passage("  ")])
        asyncio.run(asking.apropositionize([PASSAGE]))
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert sorted(record["title"] for record in records) == ["Miso", "Miso", "味噌"]
    assert {tuple(record) for record in records} == {("text", "title", "section", "propositions")}
    assert file.stat().st_mode & 0o777 == 0o600
    again = RecordedPropositionizer(file).propositionize([PASSAGE, PASSAGE_JA])
    assert [one.texts for one in again] == [made[0].texts, made[2].texts]


@pytest.mark.parametrize("half", ['{"te', '{"text": "The bitters hold worm', '{"text": "秘伝'])
@pytest.mark.parametrize("before", [0, 2])
def test_half_a_line_that_a_kill_left_spoils_no_other(
    tmp_path: Path, half: str, before: int
) -> None:
    file = tmp_path / "propositions.jsonl"
    whole = json.dumps({"text": "It is salty.", "propositions": ["Miso is salty."]}) + "\n"
    file.write_text(whole * before + half, encoding="utf-8")
    recorded = RecordedPropositionizer(file, otherwise=SentencePropositionizer())
    assert recorded.propositionize([Passage("It is salty.")])[0].texts == (
        f"{'Miso' if before else 'It'} is salty.",
    )
    with OpenAIServer(held(MISO)) as server:
        propositionizer(server, record_to=file).propositionize([PASSAGE])
    lines = file.read_text("utf-8").splitlines(keepends=True)
    assert lines[:-1] == [whole] * before
    assert RecordedPropositionizer(file).propositionize([PASSAGE])[0].texts == tuple(ALL)


def test_a_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "by-hand.jsonl"
    file.write_text('{"text": "It is salty.", "propositions": ["Miso is salty."]}')
    with OpenAIServer(held(MISO)) as server:
        propositionizer(server, record_to=file).propositionize([PASSAGE])
    made = RecordedPropositionizer(file).propositionize([Passage("It is salty."), PASSAGE])
    assert [one.texts for one in made] == [("Miso is salty.",), tuple(ALL)]


def test_a_line_that_is_damaged_in_another_way_is_named(tmp_path: Path) -> None:
    file = tmp_path / "by-hand.jsonl"
    file.write_text('{"text": "It is sal\n')
    with pytest.raises(ValueError, match="line 1"):
        RecordedPropositionizer(file)


def test_a_place_that_cannot_be_written_is_an_error_before_anything_is_paid(tmp_path: Path) -> None:
    with OpenAIServer(held(MISO)) as server, pytest.raises(OSError, match="nowhere"):
        propositionizer(server, record_to=tmp_path / "nowhere" / "x.jsonl").propositionize(
            [PASSAGE]
        )
    assert server.requests == []


@pytest.mark.parametrize(
    "last",
    [
        '{"propositions": ["Miso."]}',
        '{"text": "Miso." "propositions": []}',
        "{}\r{}",
        100_000 * "[",
    ],
)
def test_a_mistake_in_the_last_line_is_named_although_the_line_has_no_end(
    tmp_path: Path, last: str
) -> None:
    file = tmp_path / "propositions.jsonl"
    file.write_text(
        '{"text": "Tea.", "propositions": ["Tea."], "reason": 5}\n' + last, encoding="utf-8"
    )
    with pytest.raises(ValueError, match=r"line 2: .*correct or remove"):
        RecordedPropositionizer(file)


def test_a_line_that_is_not_in_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "propositions.jsonl"
    line = json.dumps(
        {"text": "味噌は塩辛い。", "propositions": ["味噌は塩辛い。"]}, ensure_ascii=False
    )
    file.write_bytes(f"{line}\n".encode() + f"{line}\n".encode("cp932"))
    with pytest.raises(ValueError, match=r"propositions\.jsonl, line 2: .*correct or remove"):
        RecordedPropositionizer(file)


def test_what_is_wrong_with_a_line_is_said_without_its_text(tmp_path: Path) -> None:
    file = tmp_path / "propositions.jsonl"
    file.write_text('{"text": "The code is 4711.", "propositions": "The code is 4711."}')
    with pytest.raises(ValueError, match="line 1") as raised:
        RecordedPropositionizer(file)
    assert "4711" not in "".join(traceback.format_exception(raised.value))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Have no file grow beyond a size meanwhile."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(sys.platform == "win32", reason="a limit stands in for a full disk")
def test_a_line_that_the_disk_has_no_room_for_is_an_error_and_leaves_no_half(
    tmp_path: Path,
) -> None:
    file = tmp_path / "propositions.jsonl"
    append_recording(file, Passage("It is salty."), PropositionSet(("Miso is salty.",)))
    before = file.read_bytes()
    assert len(before) < 100
    with files_of_at_most(100), pytest.raises(OSError, match=re.escape(str(file))):
        append_recording(file, Passage("Miso is salty."), PropositionSet(("Miso is salty.",)))
    assert file.read_bytes() == before


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "propositions.jsonl"
    open_recording(file)
    made = PropositionSet(tuple(f"Fact {n} is true." for n in range(200)))

    def write(number: int) -> None:
        for n in range(20):
            append_recording(file, Passage(f"{number}-{n} \ud800 味噌\n"), made)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert len({record["text"] for record in records}) == 160
    assert all(record["propositions"] == list(made.texts) for record in records)
