"""What a request used, as each provider says it; and counting where none does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.utils import get_tokenizer

from llama_pack_densex.llm.usage import Usage, count_messages, count_tokens, usage_of

MESSAGES = [
    ChatMessage("Split the passage.", role="system"),
    ChatMessage("Miso is salty. 味噌は塩辛い。", role="user"),
]
REPLY = '["Miso is salty.", "味噌は塩辛い。"]'
COUNTED = Usage(1, count_messages(MESSAGES), count_tokens(REPLY))


def chat(raw: Any, **extras: Any) -> ChatResponse:
    return ChatResponse(message=ChatMessage(REPLY, role="assistant"), raw=raw, **extras)


def objects(value: Any) -> Any:
    """The same with attributes in place of keys, as the providers' own classes have them."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: objects(item) for name, item in value.items()})
    return value


PROVIDERS: dict[str, tuple[dict[str, Any], Usage]] = {
    "OpenAI": (
        {
            "usage": {
                "prompt_tokens": 900,
                "completion_tokens": 120,
                "total_tokens": 1020,
                "prompt_tokens_details": {"cached_tokens": 768, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 64},
            }
        },
        Usage(1, 900, 120, 768),
    ),
    "OpenAI without details": (
        {"usage": {"prompt_tokens": 900, "completion_tokens": 120, "prompt_tokens_details": None}},
        Usage(1, 900, 120),
    ),
    "OpenAI's responses": (
        {
            "usage": {
                "input_tokens": 900,
                "input_tokens_details": {"cached_tokens": 512},
                "output_tokens": 120,
                "output_tokens_details": {"reasoning_tokens": 64},
            }
        },
        Usage(1, 900, 120, 512),
    ),
    "Anthropic": (
        {
            "usage": {
                "input_tokens": 100,
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 500,
                "output_tokens": 120,
            }
        },
        Usage(1, 900, 120, 500),
    ),
    "Anthropic without a cache": (
        {
            "usage": {
                "input_tokens": 900,
                "cache_creation_input_tokens": None,
                "cache_read_input_tokens": None,
                "output_tokens": 120,
            }
        },
        Usage(1, 900, 120),
    ),
    "Gemini": (
        {
            "usage_metadata": {
                "prompt_token_count": 900,
                "cached_content_token_count": 256,
                "candidates_token_count": 120,
                "thoughts_token_count": 500,
                "total_token_count": 1520,
            }
        },
        Usage(1, 900, 620, 256),
    ),
    "Gemini by OpenAI's protocol, whose thoughts are in the total alone, as xAI's": (
        {"usage": {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1520}},
        Usage(1, 900, 620),
    ),
    "Gemini's JSON": (
        {
            "usageMetadata": {
                "promptTokenCount": 900,
                "cachedContentTokenCount": 256,
                "candidatesTokenCount": 120,
                "thoughtsTokenCount": 500,
                "totalTokenCount": 1520,
            }
        },
        Usage(1, 900, 620, 256),
    ),
    "Gemini that only thought": (
        {
            "usage_metadata": {
                "prompt_token_count": 900,
                "thoughts_token_count": 500,
                "total_token_count": 1400,
            }
        },
        Usage(1, 900, 500),
    ),
    "Ollama": (
        {"model": "m", "prompt_eval_count": 900, "eval_count": 120, "eval_duration": 10**9},
        Usage(1, 900, 120),
    ),
    "Ollama with the prompt in its cache": (
        {"eval_count": 120},
        Usage(1, COUNTED.input_tokens, 120),
    ),
    "Bedrock": (
        {"usage": {"inputTokens": 900, "outputTokens": 120, "totalTokens": 1020}},
        Usage(1, 900, 120),
    ),
    "Bedrock with a cache": (
        {
            "usage": {
                "inputTokens": 100,
                "cacheReadInputTokens": 500,
                "cacheWriteInputTokens": 300,
                "outputTokens": 120,
                "totalTokens": 1020,
            }
        },
        Usage(1, 900, 120, 500),
    ),
}


@pytest.mark.parametrize("form", [dict, objects], ids=["dict", "object"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_providers_own_count_is_taken(provider: str, form: Any) -> None:
    raw, usage = PROVIDERS[provider]
    assert usage_of(chat(form(raw)), MESSAGES) == usage
    assert usage_of(CompletionResponse(text=REPLY, raw=form(raw)), MESSAGES) == usage


@pytest.mark.parametrize("received", [None, 0])
def test_what_a_provider_leaves_out_of_its_count_is_counted(received: int | None) -> None:
    raw = {
        "usage": {
            "prompt_tokens": 900,
            "completion_tokens": received,
            "total_tokens": received and 900,
        }
    }
    assert usage_of(chat(raw), MESSAGES) == Usage(1, 900, COUNTED.output_tokens)
    raw = {"usage": {"prompt_tokens": received, "completion_tokens": 120}}
    assert usage_of(chat(raw), MESSAGES) == Usage(1, COUNTED.input_tokens, 120)


def test_it_is_found_where_llama_index_puts_it() -> None:
    counts = {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020}
    assert usage_of(chat(None, additional_kwargs=counts), MESSAGES) == Usage(1, 900, 120)
    message = ChatMessage(REPLY, role="assistant", additional_kwargs=counts)
    assert usage_of(ChatResponse(message=message), MESSAGES) == Usage(1, 900, 120)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        "text",
        {"usage": None},
        {"usage": {}},
        {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
        {"usage": {"prompt_tokens": None, "completion_tokens": None}},
        {"usage": {"prompt_tokens": "many", "completion_tokens": True}},
        {"usage": {"prompt_tokens": -1, "completion_tokens": -1}},
        [],
    ],
)
def test_where_no_provider_counts_the_tokenizer_does(raw: Any) -> None:
    assert usage_of(chat(raw), MESSAGES) == COUNTED
    assert usage_of(CompletionResponse(text=REPLY, raw=raw), MESSAGES) == COUNTED


def test_a_reply_without_content_used_what_was_sent() -> None:
    response = ChatResponse(message=ChatMessage(None, role="assistant"))
    assert usage_of(response, MESSAGES) == Usage(1, COUNTED.input_tokens, 0)


def test_more_cached_tokens_than_tokens_are_not_believed() -> None:
    raw = {
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 99},
        }
    }
    assert usage_of(chat(raw), MESSAGES) == Usage(1, 10, 1, 10)


NAMES = sorted(
    {
        name
        for raw, _ in PROVIDERS.values()
        for usage in [*raw.values(), raw]
        if isinstance(usage, dict)
        for name in usage
    }
)


@given(
    st.dictionaries(
        st.sampled_from([*NAMES, "usage"]),
        st.none()
        | st.integers()
        | st.text(max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), st.integers()),
    )
)
@settings(max_examples=300, deadline=None)
def test_no_raw_response_makes_it_fail_or_count_below_nothing(raw: dict[str, Any]) -> None:
    usage = usage_of(chat(raw), MESSAGES)
    assert usage.requests == 1
    assert 0 <= usage.cached_input_tokens <= usage.input_tokens
    assert usage.output_tokens >= 0


@pytest.mark.parametrize(
    "text", ["", "Miso is salty.", "味噌は塩辛い。", "<|endoftext|>", "\ud800 half"]
)
def test_tokens_are_those_of_cores_tokenizer(text: str) -> None:
    sendable = text.encode("utf-8", "replace").decode("utf-8")
    assert count_tokens(sendable) == len(get_tokenizer()(sendable))


def test_messages_have_three_tokens_around_each_and_three_ahead_of_the_reply() -> None:
    contents = sum(count_tokens(message.content or "") for message in MESSAGES)
    assert count_messages(MESSAGES) == contents + 3 * len(MESSAGES) + 3


def test_a_million_spaces_are_counted() -> None:
    assert 2 < count_tokens(f"Rain{' ' * 1_000_001}fell") < 20_000
