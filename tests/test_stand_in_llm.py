"""The stand-in LLM is what tests and benchmarks of ingestion are judged by, so it is tested itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from llama_index.core.utils import get_tokenizer
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage
from llama_pack_densex.propositionizers.replies import read_reply
from tests.stand_in_llm import Answered, Faults, Settings, StandInLLM, digest, propositions_of
from tests.stand_in_llm_server import Bucket, FixedWindow, Limit, SlidingWindow, asked_for

ENGLISH = "The tower of Arlen was built in 1874. Its keeper sold the lamp! Who bought it?"
JAPANESE = "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。"


@pytest.fixture(scope="module")
def plain() -> Iterator[StandInLLM]:
    with StandInLLM() as server:
        yield server


@pytest.fixture
def server(plain: StandInLLM) -> StandInLLM:
    plain.reset()
    return plain


def ask(server: StandInLLM, text: str, *, timeout: float = 10) -> httpx.Response:
    return httpx.post(f"{server.url}/chat/completions", json=request_for(text), timeout=timeout)


def request_for(text: str) -> dict[str, Any]:
    user = f"Title: Arlen. Section: . Content: {text}"
    messages = [{"role": "system", "content": "Split."}, {"role": "user", "content": user}]
    return {"model": "gpt-4o-mini", "messages": messages}


def content_of(response: httpx.Response) -> str:
    content: str = response.json()["choices"][0]["message"]["content"]
    return content


async def ask_all(server: StandInLLM, texts: list[str]) -> list[httpx.Response | Exception]:
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=40), timeout=30) as client:
        url = f"{server.url}/chat/completions"
        calls = [client.post(url, json=request_for(text)) for text in texts]
        return await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[return-value]


def numbered(count: int) -> list[str]:
    return [f"Stone number {n} was laid. It is grey." for n in range(count)]


def test_every_sentence_becomes_two_propositions_in_the_passages_script(server: StandInLLM) -> None:
    assert json.loads(content_of(ask(server, ENGLISH)))[:2] == [
        "The tower of Arlen was built in 1874.",
        "Sentence 1: The tower of Arlen was built in 1874.",
    ]
    assert json.loads(content_of(ask(server, JAPANESE))) == [
        "新幹線は1964年に開業した。",
        "第1文：新幹線は1964年に開業した。",
        "最初の路線は東京と新大阪を結んだ。",
        "第2文：最初の路線は東京と新大阪を結んだ。",
    ]


@pytest.mark.parametrize(
    "text", [ENGLISH, JAPANESE, "서울은 한국의 수도이다. 인구가 많다.", "Вода кипит. Пар идёт."]
)
def test_the_propositionizer_takes_the_replies_as_they_come(server: StandInLLM, text: str) -> None:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
    (made,) = LLMPropositionizer(llm).propositionize([Passage(text, title="Arlen")])
    assert (made.status, list(made.texts)) == ("ok", propositions_of(text))


def test_several_numbered_passages_get_an_object_of_lists(server: StandInLLM) -> None:
    several = "\n\n".join(
        f"### Passage {n}\nTitle: Arlen. Section: . Content: {text}"
        for n, text in enumerate((ENGLISH, JAPANESE), 1)
    )
    body = request_for("") | {
        "messages": [{"role": "user", "content": f"Split these.\n\n{several}"}]
    }
    response = httpx.post(f"{server.url}/chat/completions", json=body)
    assert json.loads(content_of(response)) == {
        "1": propositions_of(ENGLISH),
        "2": propositions_of(JAPANESE),
    }
    assert server.log()[0].digests == (digest(ENGLISH), digest(JAPANESE))


def test_a_note_before_the_title_is_no_part_of_the_passage() -> None:
    note = "Text before the passage:\nRain fell.\n\n"
    assert asked_for(f"{note}Title: A. Section: B. C. Content: It stopped.\nContent: yes.") == (
        ["It stopped.\nContent: yes."],
        [],
    )


def test_recorded_propositions_are_preferred_to_sentences(tmp_path: Path) -> None:
    held = tmp_path / "held.jsonl"
    held.write_text(
        json.dumps({"text": JAPANESE, "propositions": ["新幹線は速い。"]}, ensure_ascii=False)
        + "\n",
        "utf-8",
    )
    with StandInLLM(held=held) as server:
        assert json.loads(content_of(ask(server, JAPANESE))) == ["新幹線は速い。"]
        assert json.loads(content_of(ask(server, ENGLISH))) == propositions_of(ENGLISH)


@pytest.mark.parametrize("text", [ENGLISH, JAPANESE])
def test_usage_is_counted_as_the_tokenizer_counts(server: StandInLLM, text: str) -> None:
    response = ask(server, text)
    count = get_tokenizer()
    contents = [message["content"] for message in request_for(text)["messages"]]
    usage = response.json()["usage"]
    assert usage["prompt_tokens"] == sum(len(count(content)) + 3 for content in contents) + 3
    assert usage["completion_tokens"] == len(count(content_of(response)))
    totals = server.totals()
    assert (totals.input_tokens, totals.output_tokens) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def test_a_reply_takes_the_latency_and_the_log_says_when() -> None:
    with StandInLLM(latency=1.0) as server:
        started = time.monotonic()
        asyncio.run(ask_all(server, numbered(20)))
        assert time.monotonic() - started >= 1.0
        log = server.log()
        assert all(entry.ended is not None and entry.ended - entry.arrived >= 1.0 for entry in log)
        assert all(started <= entry.arrived <= time.monotonic() for entry in log)
        assert server.totals().peak_in_flight == max(entry.in_flight for entry in log) == 20


def test_the_log_names_the_passage_and_is_forgotten_on_reset(server: StandInLLM) -> None:
    ask(server, ENGLISH)
    (entry,) = server.log()
    assert (entry.digests, entry.start, entry.kind) == ((digest(ENGLISH),), ENGLISH[:40], "ok")
    server.reset()
    assert server.log() == []
    assert server.totals().kinds == {}


@pytest.mark.slow
def test_faults_come_in_their_shares_and_are_the_same_in_every_run() -> None:
    shares = {
        "rate_limited": 0.15,
        "server_error": 0.15,
        "reset": 0.1,
        "malformed": 0.1,
        "cut_off": 0.1,
    }
    with StandInLLM(faults=Faults(**shares), seed=3) as server:
        runs = []
        for texts in (numbered(200), numbered(200)[::-1]):
            asyncio.run(ask_all(server, texts))
            runs.append({entry.digests: entry.kind for entry in server.log()})
            server.reset()
    assert runs[0] == runs[1]
    kinds = Counter(runs[0].values())
    assert all(
        abs(kinds[kind] / 200 - share) < 0.06 for kind, share in (shares | {"ok": 0.4}).items()
    )


def test_a_passage_that_went_wrong_may_go_right_when_it_is_asked_for_again() -> None:
    with StandInLLM(faults=Faults(server_error=0.5), seed=1) as server:
        assert {ask(server, ENGLISH).status_code for _ in range(20)} == {200, 500}


def test_the_seed_chooses_which_requests_go_wrong() -> None:
    faults = Faults(server_error=0.5)
    one, other = (
        [faults.draw(seed, digest(text), 0)[0] for text in numbered(50)] for seed in (1, 2)
    )
    assert one != other


def test_a_rate_limited_answer_says_when_to_come_back() -> None:
    with StandInLLM(faults=Faults(rate_limited=1.0, retry_after=1.4)) as server:
        response = ask(server, ENGLISH)
        assert (response.status_code, response.json()["error"]["code"]) == (
            429,
            "rate_limit_exceeded",
        )
        assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == (
            "2",
            "1400",
        )
    with StandInLLM(faults=Faults(rate_limited=1.0, retry_after=None)) as server:
        assert "retry-after" not in ask(server, ENGLISH).headers


def test_a_server_error_is_a_status_500() -> None:
    with StandInLLM(faults=Faults(server_error=1.0)) as server:
        assert ask(server, ENGLISH).status_code == 500


def test_a_timeout_is_never_answered_and_ends_when_the_client_hangs_up() -> None:
    with StandInLLM(faults=Faults(timeout=1.0)) as server:
        with pytest.raises(httpx.ReadTimeout):
            ask(server, ENGLISH, timeout=0.3)
        assert ended(server)[0].kind == "timeout"


def test_a_reset_breaks_the_connection() -> None:
    with StandInLLM(faults=Faults(reset=1.0)) as server:
        with pytest.raises(httpx.ReadError) as raised:
            ask(server, ENGLISH)
        assert "reset" in str(raised.value)
        llm = openai.OpenAI(base_url=server.url, api_key="sk-test", max_retries=0)
        with pytest.raises(openai.APIConnectionError):
            llm.chat.completions.create(**request_for(ENGLISH))


def test_malformed_replies_are_unreadable() -> None:
    with StandInLLM(faults=Faults(malformed=1.0)) as server:
        readings = [
            read_reply(content_of(ask(server, text)), finished=True) for text in numbered(30)
        ]
    assert {reading.problem for reading in readings} == {"unreadable"}


def test_a_reply_that_is_cut_off_says_so() -> None:
    with StandInLLM(faults=Faults(cut_off=1.0)) as server:
        response = ask(server, ENGLISH)
        assert response.json()["choices"][0]["finish_reason"] == "length"
        assert json.dumps(propositions_of(ENGLISH)).startswith(content_of(response))


def test_refusals_and_filtered_replies_hold_no_content() -> None:
    with StandInLLM(faults=Faults(refusal=1.0)) as server:
        message = ask(server, ENGLISH).json()["choices"][0]["message"]
        assert message["content"] is None
        assert message["refusal"]
    with StandInLLM(faults=Faults(content_filter=1.0)) as server:
        choice = ask(server, ENGLISH).json()["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", None)


def test_a_request_over_the_limit_is_refused_until_the_time_that_it_is_told() -> None:
    with StandInLLM(requests_per_minute=30) as server:
        first, refused = ask(server, ENGLISH), ask(server, JAPANESE)
        assert (first.status_code, refused.status_code) == (200, 429)
        assert refused.headers["x-ratelimit-limit-requests"] == "30"
        milliseconds = int(refused.headers["retry-after-ms"])
        assert 0 < milliseconds <= 2000
        assert int(refused.headers["retry-after"]) == -(-milliseconds // 1000)
        time.sleep(milliseconds / 1000)
        assert ask(server, JAPANESE).status_code == 200
        assert [entry.kind for entry in server.log()] == ["ok", "over_limit", "ok"]


def test_a_bucket_holds_a_second_of_its_allowance_and_refills() -> None:
    bucket = Bucket(600, Settings())
    assert let_through(bucket, at=100.0) == 10
    assert bucket.wait(1, 100.0) == pytest.approx(0.1)
    assert let_through(bucket, at=100.35) == 3
    assert let_through(bucket, at=200.0) == 10


def test_a_sliding_window_frees_each_request_a_window_later() -> None:
    window = SlidingWindow(600, Settings(window=1.0))
    assert let_through(window, at=100.0, most=4) == 4
    assert let_through(window, at=100.5) == 6
    assert window.wait(1, 100.6) == pytest.approx(0.4)
    assert window.wait(5, 100.6) == pytest.approx(0.9)
    assert let_through(window, at=101.0) == 4


def test_a_fixed_window_starts_anew_as_a_whole() -> None:
    window = FixedWindow(600, Settings(window=1.0))
    now = time.monotonic()
    assert let_through(window, at=now) == 10
    wait = window.wait(1, now)
    assert 0 < wait <= 1
    assert let_through(window, at=now + wait + 0.9) == 10


def test_tokens_are_limited_too() -> None:
    with StandInLLM(tokens_per_minute=60, burst=100.0) as server:
        usage = ask(server, ENGLISH).json()["usage"]["total_tokens"]
        refused = ask(server, ENGLISH)
        assert refused.status_code == 429
        assert refused.headers["x-ratelimit-limit-tokens"] == "60"
        assert 0 < int(refused.headers["retry-after-ms"]) <= usage * 1000


def test_more_requests_at_a_time_than_allowed_are_refused() -> None:
    with StandInLLM(latency=2.0, max_in_flight=4) as server:
        asyncio.run(ask_all(server, numbered(10)))
        assert server.totals().kinds == {"ok": 4, "too_many": 6}


def test_a_client_that_hangs_up_got_no_reply() -> None:
    with StandInLLM(latency=0.5) as server:
        with pytest.raises(httpx.ReadTimeout):
            ask(server, ENGLISH, timeout=0.1)
        assert ended(server)[0].kind == "gone"
        assert server.totals().output_tokens == 0


def test_settings_survive_the_command_line() -> None:
    faults = Faults(reset=0.1, retry_after=None)
    settings = Settings(latency=0.5, requests_per_minute=60, limit_kind="fixed", faults=faults)
    read, parent = Settings.from_arguments([*settings.as_arguments(), "--parent=17"])
    assert (read.as_arguments(), parent) == (settings.as_arguments(), 17)
    assert read.faults == faults


def test_shares_of_more_than_all_are_an_error() -> None:
    with pytest.raises(ValueError, match="at most 1 together"):
        Faults(timeout=0.6, reset=0.6)


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    script = (
        "import time\nfrom tests.stand_in_llm import StandInLLM\n"
        "with StandInLLM() as server:\n    print(server.url, flush=True)\n    time.sleep(60)"
    )
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        assert httpx.get(url.replace("/v1", "/totals")).status_code == 200
        os.kill(owner.pid, signal.SIGKILL)
    for _ in range(50):
        time.sleep(0.1)
        try:
            httpx.get(url.replace("/v1", "/totals"))
        except httpx.TransportError:
            return
    pytest.fail("the server outlived its parent")


def let_through(limit: Limit, at: float, most: int = 100) -> int:
    """How many requests a limit lets through at a moment."""
    count = 0
    while count < most and limit.wait(1, at) == 0:
        limit.take(1, at)
        count += 1
    return count


def ended(server: StandInLLM) -> list[Answered]:
    """The log, once the server has noticed that clients are gone."""
    for _ in range(50):
        log = server.log()
        if log and all(entry.ended is not None for entry in log):
            break
        time.sleep(0.1)
    return log
