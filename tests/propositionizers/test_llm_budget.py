"""What LLMPropositionizer says that it used, and where it stops when it has used enough."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms import CustomLLM
from llama_index.llms.openai import OpenAI

from llama_pack_densex.llm.usage import EXPECTED_OUTPUT, Usage, count_messages, count_tokens
from llama_pack_densex.propositionizers.base import BudgetExceededError, Passage, PropositionSet
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.made_up_passages import made_up
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.stand_in_llm import Faults, StandInLLM, Totals, propositions_of

PASSAGES = list(made_up(30, japanese=0.5))
BOTH = pytest.mark.parametrize("way", ["sync", "async"])


def propositionizer(url: str, model: str = "gpt-4o-mini", **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(model=model, api_base=url, api_key="sk-test-0123456789", timeout=10)
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 2, **arguments})


def ask(way: str, asking: LLMPropositionizer, passages: list[Passage]) -> list[PropositionSet]:
    return (
        asking.propositionize(passages)
        if way == "sync"
        else asyncio.run(asking.apropositionize(passages))
    )


def tokens_of(totals: Totals) -> int:
    return totals.input_tokens + totals.output_tokens


def largest_error(asking: LLMPropositionizer) -> int:
    """By how many tokens a request for one of the passages uses more than is expected of it, at most."""
    errors = []
    for passage in PASSAGES:
        question = asking.question(passage)
        reply = json.dumps(propositions_of(passage.text), ensure_ascii=False)
        expected = count_messages(question.messages) + count_tokens(passage.text) * EXPECTED_OUTPUT
        errors.append(count_messages(question.messages) + count_tokens(reply) - expected)
    return round(max(errors))


def answering(usage: dict[str, Any], text: str = '["a b"]') -> Reply:
    """A reply with a usage of the test's own."""
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return Reply(body_override=json.dumps(body))


# What was used


@BOTH
@pytest.mark.slow_cases("*", but=["sync"])
def test_the_usage_is_the_sum_of_what_the_server_says(way: str) -> None:
    faults = Faults(
        server_error=0.1,
        rate_limited=0.1,
        retry_after=0.01,
        malformed=0.1,
        cut_off=0.1,
        refusal=0.1,
    )
    with StandInLLM(faults=faults, seed=3) as server:
        asking = propositionizer(server.url, max_retries=6)
        ask(way, asking, PASSAGES)
        totals = server.totals()
    assert set(faults.shares) - {"timeout", "reset", "content_filter"} < set(totals.kinds)
    answered = sum(totals.kinds[kind] for kind in ("ok", "malformed", "cut_off", "refusal"))
    assert asking.usage == Usage(answered, totals.input_tokens, totals.output_tokens)
    assert asking.figures.refused == totals.kinds["rate_limited"]
    assert asking.figures.failed == totals.kinds["server_error"]


def test_the_cost_is_that_of_the_usage_and_replies_from_the_cache_are_free(tmp_path: Path) -> None:
    with StandInLLM() as server:
        arguments: dict[str, Any] = {
            "cache": tmp_path / "replies.sqlite",
            "prices": {"gpt-4o-mini": {"input": 100, "output": 1000}},
        }
        asking = propositionizer(server.url, **arguments)
        asking.propositionize(PASSAGES[:4])
        totals = server.totals()
        again = propositionizer(server.url, **arguments)
        again.propositionize(PASSAGES[:4])
    assert asking.figures.cost == pytest.approx(
        (totals.input_tokens + 10 * totals.output_tokens) / 10_000
    )
    assert (again.figures.cost, again.usage, again.figures.cache_hits) == (0.0, Usage(), 4)


def test_what_the_provider_had_cached_is_counted_and_has_its_price() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 800},
    }
    with OpenAIServer(lambda body: answering(usage)) as server:
        price = {"input": 10, "output": 50, "cached_input": 1}
        asking = propositionizer(server.url, prices={"gpt-4o-mini": price})
        asking.propositionize([Passage("a b c")])
    assert asking.usage == Usage(1, 1000, 100, 800)
    assert asking.figures.cost == pytest.approx((200 * 10 + 800 * 1 + 100 * 50) / 1_000_000)


class SilentLLM(CustomLLM):
    """An LLM in this process that says nothing of its usage."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="silent", is_chat_model=True)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        asked = (messages[-1].content or "").rpartition(". Content: ")[2]
        return ChatResponse(
            message=ChatMessage(json.dumps(propositions_of(asked)), role="assistant")
        )

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.chat(messages)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("a chat model")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError("a chat model")


@BOTH
def test_an_llm_that_says_nothing_is_counted_by_the_tokenizer(way: str) -> None:
    asking = LLMPropositionizer(SilentLLM())
    made = ask(way, asking, PASSAGES[:5])
    questions = [asking.question(passage).messages for passage in PASSAGES[:5]]
    assert asking.usage.input_tokens == sum(map(count_messages, questions))
    assert asking.usage.output_tokens == sum(count_tokens(json.dumps(one.texts)) for one in made)
    assert asking.figures.cost is None


def test_an_llm_whose_price_the_user_says_has_a_budget_too() -> None:
    arguments: dict[str, Any] = {"prices": {"silent": {"input": 1, "output": 1}}, "max_cost": 0.004}
    asking = LLMPropositionizer(SilentLLM(), **arguments)
    with pytest.raises(BudgetExceededError):
        asking.propositionize(PASSAGES)
    assert 0.002 < (asking.figures.cost or 0) <= 0.006


# Where it stops


@BOTH
@pytest.mark.parametrize("at_a_time", [1, 8])
def test_the_tokens_are_not_exceeded_by_more_than_one_estimates_error(
    way: str, at_a_time: int
) -> None:
    with StandInLLM(latency=0.01) as server:
        asking = propositionizer(server.url, max_tokens_total=15_000, max_concurrency=at_a_time)
        with pytest.raises(BudgetExceededError):
            ask(way, asking, PASSAGES)
        used = tokens_of(server.totals())
    assert asking.usage.total_tokens == used
    assert 15_000 - 1500 < used <= 15_000 + max(largest_error(asking), 0)


@BOTH
def test_the_cost_is_not_exceeded_by_more_than_one_estimates_error(way: str) -> None:
    with StandInLLM(latency=0.01) as server:
        # a dollar a token that comes back
        prices = {"gpt-4o-mini": {"input": 0, "output": 1_000_000}}
        asking = propositionizer(server.url, max_cost=3000.0, prices=prices, max_concurrency=8)
        with pytest.raises(BudgetExceededError):
            ask(way, asking, PASSAGES)
        used = server.totals().output_tokens
    assert asking.figures.cost == pytest.approx(used)
    assert 3000 - 800 < used <= 3000 + max(largest_error(asking), 0)


@pytest.mark.parametrize("budget", [150_000, 25_000])
def test_a_model_that_uses_far_more_than_expected_is_stopped_by_what_it_really_uses(
    budget: int,
) -> None:
    thinking = {"prompt_tokens": 500, "completion_tokens": 5_500}

    def respond(body: dict[str, Any]) -> Reply:
        return replace(answering(thinking, json.dumps([asked_content(body)])), delay=0.1)

    with OpenAIServer(respond) as server:
        asking = propositionizer(server.url, max_tokens_total=budget, max_concurrency=8)
        with pytest.raises(BudgetExceededError):
            asking.propositionize(PASSAGES)
    assert asking.usage.total_tokens <= budget + 6_000


@pytest.mark.parametrize("passages", [PASSAGES, PASSAGES[::-1]])
def test_a_budget_that_is_enough_stops_nothing(passages: list[Passage]) -> None:
    with StandInLLM(latency=0.01) as server:
        free = propositionizer(server.url)
        expected = free.propositionize(passages)
        # with what the last ones under way are expected to use besides
        bound = propositionizer(server.url, max_tokens_total=free.usage.total_tokens + 8 * 500)
        assert bound.propositionize(passages) == expected


@BOTH
def test_what_was_paid_for_is_kept_and_a_higher_limit_asks_for_the_rest(
    way: str, tmp_path: Path
) -> None:
    with StandInLLM(latency=0.01) as server:
        expected = propositionizer(server.url).propositionize(PASSAGES)
        server.reset()
        asking = propositionizer(
            server.url, max_tokens_total=10_000, cache=tmp_path / "replies.sqlite"
        )
        with pytest.raises(BudgetExceededError):
            ask(way, asking, PASSAGES)
        paid = {asked for one in server.log() for asked in one.digests}
        assert 3 < len(paid) < len(PASSAGES)
        asking.max_tokens_total = 1_000_000
        assert ask(way, asking, PASSAGES) == expected
        log = server.log()
        assert len(log) == len(PASSAGES)
        assert asking.usage.total_tokens == tokens_of(server.totals())
    assert not paid & {asked for one in log[len(paid) :] for asked in one.digests}


def test_another_object_with_the_same_budget_goes_on(tmp_path: Path) -> None:
    with StandInLLM(latency=0.01) as server:
        for _ in range(20):
            asking = propositionizer(
                server.url, max_tokens_total=10_000, cache=tmp_path / "replies.sqlite"
            )
            try:
                made = asking.propositionize(PASSAGES)
                break
            except BudgetExceededError:
                continue
        assert len(made) == len(server.log()) == len(PASSAGES)


def test_what_is_kept_is_returned_though_the_budget_is_used_up(tmp_path: Path) -> None:
    with StandInLLM() as server:
        expected = propositionizer(server.url, cache=tmp_path / "replies.sqlite").propositionize(
            PASSAGES[:5]
        )
        asking = propositionizer(server.url, max_tokens_total=0, cache=tmp_path / "replies.sqlite")
        assert asking.propositionize(PASSAGES[:5]) == expected
        with pytest.raises(BudgetExceededError):
            asking.propositionize(PASSAGES[:6])


def test_sets_before_the_end_of_the_budget_are_returned() -> None:
    with StandInLLM() as server:
        made: list[PropositionSet] = []
        stream = propositionizer(server.url, max_tokens_total=8_000, max_concurrency=1).stream(
            PASSAGES
        )
        with pytest.raises(BudgetExceededError):
            made.extend(stream)
    assert 3 < len(made) < len(PASSAGES)
    assert [list(one.texts) for one in made] == [
        propositions_of(one.text) for one in PASSAGES[: len(made)]
    ]


def test_workers_have_their_part_of_the_budget() -> None:
    with StandInLLM() as server:
        asking = propositionizer(server.url, max_tokens_total=15_000, workers=3, max_concurrency=1)
        with pytest.raises(BudgetExceededError):
            asking.propositionize(PASSAGES)
        assert tokens_of(server.totals()) <= 5_000 + max(largest_error(asking), 0)


def test_the_error_says_what_was_used_and_what_to_do() -> None:
    with StandInLLM() as server:
        asking = propositionizer(
            server.url, max_tokens_total=5_000, max_cost=7.5, max_concurrency=1
        )
        with pytest.raises(BudgetExceededError) as caught:
            asking.propositionize(PASSAGES)
    message = str(caught.value)
    assert f"{asking.usage.total_tokens:,} tokens (${asking.figures.cost:.4f}) used" in message
    assert f"in {asking.usage.requests} requests" in message
    assert "max_cost is $7.5 and max_tokens_total is 5,000" in message
    assert "Raise it and run again" in message
    assert PASSAGES[0].text[:20] not in message


def test_a_cost_limit_for_a_model_without_a_price_asks_for_the_price() -> None:
    with pytest.raises(
        ValueError,
        match=r"price of silent.*prices=\{'silent': \{\"input\": \.\.\., \"output\": \.\.\.\}\}",
    ):
        LLMPropositionizer(SilentLLM(), max_cost=1.0)


def test_a_cost_limit_set_later_asks_for_the_price_too() -> None:
    asking = LLMPropositionizer(SilentLLM())
    asking.max_cost = 1.0
    with pytest.raises(ValueError, match="prices="):
        asking.propositionize(PASSAGES[:1])
