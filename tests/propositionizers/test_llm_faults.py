"""What a wrong setting, a small limit, a dictionary and an interruption may not do: cost money or text in
silence."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.schema import Document
from llama_index.llms.openai import OpenAI
from openai import OpenAI as Client

from llama_pack_densex import PropositionNodeParser, RecordedPropositionizer
from llama_pack_densex.llm.cache import ReplyCache, passage_digest
from llama_pack_densex.llm.errors import classify
from llama_pack_densex.llm.reference import secrets_of
from llama_pack_densex.propositionizers.base import Passage, PropositionizerError
from llama_pack_densex.propositionizers.llm import LLMPropositionizer, PropositionizingEndEvent
from tests.made_up_passages import made_up
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.replies import kept
from tests.stand_in_llm import propositions_of
from tests.waiting import interrupted, wait_until

PASSAGES = list(made_up(40, japanese=0.5))
UNSUPPORTED = Reply(
    "Unsupported value: 'temperature' does not support 0.1.", status=400, code="unsupported_value"
)


def right(body: dict[str, Any], delay: float = 0.0) -> Reply:
    return Reply(json.dumps(propositions_of(asked_content(body)), ensure_ascii=False), delay=delay)


def openai(url: str = "http://127.0.0.1:9/v1", **settings: Any) -> OpenAI:
    return OpenAI(
        **{"model": "gpt-4o-mini", "api_base": url, "api_key": "sk-test-0123456789", **settings}
    )


def propositionizer(url: str, **arguments: Any) -> LLMPropositionizer:
    return LLMPropositionizer(openai(url), **{"retry_wait": 0, "max_retries": 0, **arguments})


# A wrong setting


@pytest.mark.parametrize(
    "error", [SystemExit("no key"), asyncio.CancelledError(), GeneratorExit(), StopIteration()]
)
def test_an_llm_that_would_end_the_process_ends_the_run(error: BaseException) -> None:
    class EndingLLM(MockLLM):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            raise error

    asking = LLMPropositionizer(EndingLLM(), retry_wait=0)
    for _ in range(2):
        with pytest.raises(PropositionizerError, match=f"{type(error).__name__}.*fix it"):
            asking.propositionize(PASSAGES[:1])


def test_a_wrong_setting_stops_the_run_with_the_providers_words_and_nothing_counts_as_done() -> (
    None
):
    documents = [
        Document(id_=str(number), text=passage.text) for number, passage in enumerate(PASSAGES)
    ]
    done: list[Any] = []
    with OpenAIServer(lambda body: UNSUPPORTED) as server:
        parser = PropositionNodeParser(propositionizer=propositionizer(server.url))
        with pytest.raises(
            PropositionizerError,
            match=r"'temperature' does not support 0.1.*check the LLM's settings",
        ):
            done.extend(parser.stream(documents))
        assert len(server.requests) <= 2 * 8  # with that parameter, and without
    assert done == []


class Mistaken(MockLLM):
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return self.no_such_client.ask(prompt)  # type: ignore[attr-defined]


@pytest.mark.parametrize("passages", [1, 40])
@pytest.mark.parametrize("retries", [0, 6])
def test_a_mistake_in_the_users_class_stops_the_run_at_once(retries: int, passages: int) -> None:
    began = time.monotonic()
    with pytest.raises(
        PropositionizerError, match=r"AttributeError: .*no_such_client.*LLM's class"
    ):
        LLMPropositionizer(Mistaken(), max_retries=retries).propositionize(PASSAGES[:passages])
    assert time.monotonic() - began < 30  # the retries alone would have taken longer


def test_a_model_that_never_answers_in_lists_stops_the_run_before_any_set_counts() -> None:
    with OpenAIServer(lambda body: "Here is what I think.") as server:
        stream = propositionizer(server.url).stream(PASSAGES)
        with pytest.raises(
            PropositionizerError, match=r"None of the first 2\d passages.*not a list of strings"
        ):
            next(stream)


@pytest.mark.parametrize("reason", ["length", "stop", "insufficient_system_resource"])
def test_a_limit_of_the_server_that_is_too_small_stops_runs_until_it_is_larger(
    reason: str, tmp_path: Path
) -> None:
    with OpenAIServer(lambda body: Reply(right(body).content[:40], reason)) as server:
        for _ in range(2):
            with pytest.raises(
                PropositionizerError, match=r"replies for whole passages were cut off.*max_tokens"
            ):
                propositionizer(server.url, cache=tmp_path / "replies.db").propositionize(PASSAGES)
        assert len(server.requests) < 2 * len(PASSAGES)
        server.responder = right
        made = propositionizer(server.url, cache=tmp_path / "replies.db").propositionize(PASSAGES)
    assert {one.status for one in made} == {"ok"}


def test_a_part_without_letters_is_not_asked_for() -> None:
    text = (
        "The trial gave these pressures.\n\n12.4, 15.1, 18.9, 22.3.\n\nThe old valve gave much lower "
        "pressures."
    )

    def respond(body: dict[str, Any]) -> Reply:
        return right(body) if len(asked_content(body)) < 45 else Reply('["The', "length")

    with OpenAIServer(respond) as server:
        (made,) = propositionizer(server.url).propositionize([Passage(text)])
        asked = [asked_content(request.body) for request in server.requests]
    assert made.status == "repaired"
    assert "12.4, 15.1, 18.9, 22.3." in made.texts
    assert "12.4, 15.1, 18.9, 22.3." not in asked


@pytest.mark.parametrize(
    "settings",
    [
        {"openai_client": "hush-hush-12345"},
        {"default_headers": {"X-Subscription": "Bearer hush-hush-12345"}},
        {"additional_kwargs": {"extra_headers": {"X-Subscription": "hush-hush-12345"}}},
        {"additional_kwargs": {"extra_query": {"api-key": "hush-hush-12345"}}},
    ],
    ids=["client", "header", "extra header", "query"],
)
def test_a_key_is_in_no_message_wherever_it_was_given(settings: dict[str, Any]) -> None:
    if key := settings.get("openai_client"):
        settings = {"openai_client": Client(base_url="http://127.0.0.1:9/v1", api_key=key)}
    error = RuntimeError("Access denied for hush-hush-12345 here.")
    failure = classify(error, secrets_of(openai(**settings)))
    assert "Access denied for [key] here." in failure.message


def test_a_reply_limit_that_cuts_half_of_the_replies_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = {passage.text for passage in PASSAGES}
    cut = {passage.text for passage in PASSAGES[::2]}

    def respond(body: dict[str, Any]) -> Reply:
        content = asked_content(body)
        return Reply('["The', "length") if content in cut and content in whole else right(body)

    with OpenAIServer(respond) as server:
        propositionizer(server.url, max_concurrency=1).propositionize(PASSAGES)
    warned = [
        record for record in caplog.records if "were cut off, and each" in record.getMessage()
    ]
    assert len(warned) == 1


# What is paid for


def test_what_is_in_flight_when_a_consumer_fails_is_kept_and_counted(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.db")
    with OpenAIServer(
        lambda body: right(body, 0.0 if PASSAGES[0].text == asked_content(body) else 0.5)
    ) as server:
        asking = propositionizer(server.url, cache=cache)

        def consume() -> None:
            for _ in asking.stream(PASSAGES):
                wait_until(lambda: len(server.requests) >= 8)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            consume()
        asked = len(server.requests)
        wait_until(lambda: asking.usage.requests == asked)
    assert kept(cache) == asked >= 8


def test_what_is_in_flight_at_ctrl_c_is_kept(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.db")
    with OpenAIServer(lambda body: right(body, 0.5)) as server:
        asking = propositionizer(server.url, cache=cache)
        with pytest.raises(KeyboardInterrupt), interrupted(lambda: len(server.requests) >= 8):
            asking.propositionize(PASSAGES)
        assert len(server.requests) == kept(cache) == 8


# Dictionaries


@pytest.mark.parametrize(
    "changes",
    [
        {"llm": {"path": "subprocess:run", "settings": {"args": ["touch", "FILE"]}}},
        {"llm": {"path": "x:y", "factory": "tests.propositionizers.test_llm_faults:touch_file"}},
        {"llm": {"path": "os:getcwd", "settings": {}}},
    ],
    ids=["a class", "a factory", "a function"],
)
def test_a_dictionary_runs_nothing_that_makes_no_llm(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {**LLMPropositionizer(MockLLM()).to_dict(), **changes, "fingerprint": None}
    with pytest.raises(ValueError, match="is not called"):
        LLMPropositionizer.from_dict(data)
    assert list(tmp_path.iterdir()) == []


def touch_file() -> None:
    Path("FILE").touch()


def make_mock() -> LLM:
    return MockLLM(max_tokens=7)


def test_a_factory_that_says_what_it_makes_is_called() -> None:
    data = LLMPropositionizer(llm_factory=make_mock).to_dict()
    assert LLMPropositionizer.from_dict(data).llm.max_tokens == 7  # type: ignore[attr-defined]


def test_a_dictionary_keeps_the_budget_the_rates_and_the_cache(tmp_path: Path) -> None:
    limits = {
        "max_cost": 5.0, "max_tokens_total": 1000, "requests_per_minute": 60.0, "tokens_per_minute": 9000.0,
        "max_concurrency": 3, "workers": 2, "max_retries": 1,
    }  # fmt: skip
    prices = {MockLLM().metadata.model_name: {"input": 1.0, "output": 2.0}}
    asking = LLMPropositionizer(MockLLM(), cache=tmp_path / "a:replies.db", prices=prices, **limits)
    again = LLMPropositionizer.from_dict(json.loads(asking.to_json()))
    assert {name: getattr(again, name) for name in limits} == limits
    assert again.cache is not None
    assert again.cache.path == tmp_path / "a:replies.db"
    assert again.fingerprint == asking.fingerprint == LLMPropositionizer(MockLLM()).fingerprint


# Fingerprints


@pytest.mark.parametrize(
    "settings",
    [
        {"additional_kwargs": {"max_completion_tokens": 200}},
        {"additional_kwargs": {"response_format": {"type": "json_object"}}},
        {"additional_kwargs": {"extra_body": {"thinking": True}}},
        {"api_base": "http://127.0.0.1:8/v1"},
    ],
)
def test_what_decides_the_output_is_part_of_the_fingerprint(settings: dict[str, Any]) -> None:
    assert (
        LLMPropositionizer(openai(**settings)).fingerprint
        != LLMPropositionizer(openai()).fingerprint
    )


def test_the_address_of_a_client_that_was_given_is_part_of_the_fingerprint() -> None:
    given = (
        Client(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-test-0123456789")
        for port in (7, 8)
    )
    prints = {LLMPropositionizer(openai(openai_client=client)).fingerprint for client in given}
    assert len({*prints, LLMPropositionizer(openai()).fingerprint}) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": "sk-another"},
        {"default_headers": {"Authorization": "Bearer x"}},
        {"additional_kwargs": {"extra_headers": {"X-Team": "a"}}},
        {"additional_kwargs": {"extra_body": {"api_key": "sk-x", "user_token": "t"}}},
        {"api_base": "http://user:secret@127.0.0.1:9/v1/"},
    ],
)
def test_keys_and_headers_are_not(settings: dict[str, Any]) -> None:
    plain = (
        {"additional_kwargs": {"extra_body": {}}} if "extra_body" in json.dumps(settings) else {}
    )
    assert (
        LLMPropositionizer(openai(**settings)).fingerprint
        == LLMPropositionizer(openai(**plain)).fingerprint
    )


# Limits of a living object


def test_limits_and_prices_may_be_changed_on_the_way() -> None:
    with OpenAIServer(right) as server:
        asking = propositionizer(server.url)
        asking.propositionize(PASSAGES[:3])
        before = asking.figures
        asking.max_concurrency = 2
        asking.prices = {"gpt-4o-mini": {"input": 1_000_000.0, "output": 0.0}}
        asking.propositionize(PASSAGES[3:5])
    since = asking.figures.since(before)
    assert (since.usage.requests, since.cache_hits) == (2, 0)
    # the server says that it was sent one token each time
    assert asking.figures.cost == pytest.approx(5.0)


# Events


class Noting(BaseEventHandler):
    seen: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        if isinstance(event, PropositionizingEndEvent):
            self.seen.append(event)


def test_each_passage_is_told_of_by_an_event_without_its_text() -> None:
    handler = Noting()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(handler)
    passages = PASSAGES[:5]
    try:
        with OpenAIServer(
            lambda body: "No." if passages[0].text in asked_content(body) else right(body)
        ) as server:
            made = propositionizer(server.url).propositionize(
                [*passages, passages[1], Passage("  ")]
            )
    finally:
        dispatcher.event_handlers.remove(handler)
    ends = {event.passage_id: event for event in handler.seen}
    told = [ends[passage_digest(passage.text)] for passage in passages]
    assert [event.propositions for event in told] == [len(one.texts) for one in made[:5]]
    assert [(event.status, event.requests) for event in told] == [("fallback", 3)] + 4 * [("ok", 1)]
    assert [event.reason for event in told] == [one.reason for one in made[:5]]
    assert len(handler.seen) == 5
    said = "".join(event.model_dump_json() for event in handler.seen)
    assert not any(passage.text[:10] in said for passage in passages)


def test_a_passage_that_is_not_recorded_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(ValueError, match=r"1 of 1 passages are not in.*of 'Miso'") as caught:
        RecordedPropositionizer(tmp_path / "none.jsonl").propositionize(
            [Passage("A secret recipe.", "Miso")]
        )
    assert "secret" not in str(caught.value)
