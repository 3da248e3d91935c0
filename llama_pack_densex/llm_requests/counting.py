"""Tokens: those that a provider says were used, and how many a request will use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llama_index.core.utils import get_tokenizer

from llama_pack_densex.llm_requests.clients import Messages, Response
from llama_pack_densex.llm_requests.reply import Usage

# OpenAI's names and those of many others, Anthropic's, Google's (in Python and in JSON), Ollama's, Bedrock's
_INPUT = (
    "prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount", "prompt_eval_count", "inputTokens",
)  # fmt: skip
_OUTPUT = (
    "completion_tokens", "output_tokens", "candidates_token_count", "candidatesTokenCount", "eval_count",
    "outputTokens",
)  # fmt: skip
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")  # which Google counts apart
_READ, _WRITTEN = (
    ("cache_read_input_tokens", "cacheReadInputTokens"),
    ("cache_creation_input_tokens", "cacheWriteInputTokens"),
)  # which Anthropic and Bedrock count apart
_CACHED = ("cached_tokens", *_READ, "cached_content_token_count", "cachedContentTokenCount")
_A_MESSAGE = 3  # tokens of OpenAI's around a message, and ahead of the reply


def usage_of(response: Response, messages: Messages) -> Usage:
    """What a request used: by the provider's own count, else counted here.

    Args:
        response: A LlamaIndex response; what the provider sent is in its `raw`.
        messages: What was sent.
    """
    raw, message = response.raw, getattr(response, "message", None)
    places = (
        *(_get(raw, name) for name in ("usage", "usage_metadata", "usageMetadata")),
        raw,
        response.additional_kwargs,
        getattr(message, "additional_kwargs", None),
    )
    for place in places:
        sent, received = _number(place, _INPUT), _number(place, _OUTPUT)
        if not sent and not received:
            continue  # a server that does not count may send zeros
        details = _get(place, "prompt_tokens_details") or _get(place, "input_tokens_details")
        cached = _number(details, _CACHED) or _number(place, _CACHED) or 0
        if sent is None:  # Ollama leaves out what it had cached
            sent = count_messages(messages)
        elif _number(place, (*_READ, *_WRITTEN)) is not None:
            sent += cached + (_number(place, _WRITTEN) or 0)
        received = (received or 0) + (_number(place, _THOUGHTS) or 0)
        return Usage(1, sent, received, min(cached, sent))
    text = message.content if message is not None else getattr(response, "text", "")
    return Usage(1, count_messages(messages), count_tokens(text or ""))


def count_messages(messages: Messages) -> int:
    """The tokens of messages, as OpenAI counts them."""
    texts = [message.content or "" for message in messages]
    fixed = sum(_count_fixed(text) for text in texts[:-1])  # the same for all passages
    return fixed + sum(map(count_tokens, texts[-1:])) + _A_MESSAGE * (len(texts) + 1)


def count_tokens(text: str) -> int:
    """The tokens of a text, by core's tokenizer."""
    return len(get_tokenizer()(text))


@lru_cache(maxsize=32)
def _count_fixed(text: str) -> int:
    return count_tokens(text)


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)


def _number(source: Any, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = None if source is None else _get(source, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
