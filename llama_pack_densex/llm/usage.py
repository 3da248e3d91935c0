"""Replies to requests, the tokens that these used, and prices."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from typing_extensions import Self

Messages = Sequence[ChatMessage]
Response = ChatResponse | CompletionResponse
Arguments = dict[str, Any]
"""Keyword arguments of a call, by name."""
Finish = Literal["stop", "length", "filtered", "refused", "failed", ""]


class Additive:
    """Base of dataclasses of numbers that are added and subtracted field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(operator.add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(operator.sub, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class Usage(Additive):
    """The usage of requests, as the provider counts it.

    Args:
        requests: Number of requests that were answered.
        input_tokens: Tokens sent, including those that the provider had cached.
        output_tokens: Tokens received, including a model's thoughts.
        cached_input_tokens: The part of `input_tokens` that the provider had cached.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens


NOTHING = Usage()


@dataclass(frozen=True)
class Reply:
    """A model's answer, why the model stopped, and the usage."""

    text: str
    finish: Finish = ""
    usage: Usage = NOTHING

    @classmethod
    def of(cls, response: Response, messages: Messages) -> Reply:
        """Make the reply of a LlamaIndex response to messages."""
        text = text_of(response)
        if messages and isinstance(response, CompletionResponse):
            prompt = messages[-1].content
            if prompt:  # some models send it back before the answer
                text = text.rpartition(prompt)[2]
        return cls(text, finish_reason(response), usage_of(response, messages))


@dataclass(frozen=True)
class RequestFigures:
    """The figures of a number of requests.

    Args:
        usage: Their usage, as the provider counts it.
        cost: Their cost in US dollars; None if the price is not known.
        cache_hits: Number of replies that came from the cache.
        refused: Number of requests that the provider refused because of its limits; they were sent again.
        failed: Number of requests that failed for another reason.
        model: The model that received them; "" if there was none.
    """

    usage: Usage = NOTHING
    cost: float | None = None
    cache_hits: int = 0
    refused: int = 0
    failed: int = 0
    model: str = ""

    def since(self, earlier: RequestFigures) -> RequestFigures:
        """Return the difference from earlier figures."""
        cost = None
        if self.cost is not None and earlier.cost is not None:
            cost = self.cost - earlier.cost
        return replace(
            self,
            usage=self.usage - earlier.usage,
            cost=cost,
            cache_hits=self.cache_hits - earlier.cache_hits,
            refused=self.refused - earlier.refused,
            failed=self.failed - earlier.failed,
        )


# In this order: names of OpenAI and many others, of Anthropic and Bedrock, of Google, of Ollama.
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "eval_count")
_TOTAL = ("total_tokens", "total_token_count")
_CACHE_READ = "cache_read_input_tokens"  # Anthropic and Bedrock count it separately from the input
_CACHE_WRITTEN = ("cache_creation_input_tokens", "cache_write_input_tokens")
_CACHED = ("cached_tokens", _CACHE_READ, "cached_content_token_count")
_TOKENS_PER_MESSAGE = 3  # that OpenAI adds around each message, and before the reply
_COUNTED_AT_ONCE = 500_000  # characters; tiktoken refuses a million spaces in a row

_FINISH_NAMES = ("finish_reason", "stop_reason", "done_reason", "stop_type", "reason")
_FINISH_WORDS: dict[Finish, str] = {
    "stop": "stop end_turn stop_sequence eos eos_token complete completed",
    "length": "length max_tokens max_output_tokens model_length max_length token_limit limit"
    " model_context_window_exceeded error_limit",
    "filtered": "content_filter content_filtered safety prohibited_content blocklist recitation spii"
    " guardrail_intervened error_toxic",
    "refused": "refusal",
    "failed": "error",
}
_FINISHES = {word: finish for finish, words in _FINISH_WORDS.items() for word in words.split()}


def usage_of(response: Response, messages: Messages) -> Usage:
    """Return the usage of a request: by the provider's own count, else by counting here.

    Args:
        response: A LlamaIndex response, with the provider's own response in `raw`.
        messages: The messages that were sent.
    """
    raw = response.raw
    usages = (attribute(raw, "usage"), attribute(raw, "usage_metadata"))
    for source in (*usages, raw, *_extras(response)):
        sent = _number(source, *_INPUT)
        received = _number(source, *_OUTPUT)
        if not sent and not received:
            continue  # a server that does not count may send zeros
        details = attribute(source, "prompt_tokens_details")
        details = details or attribute(source, "input_tokens_details")
        cached = _number(details, *_CACHED) or _number(source, *_CACHED)
        if sent:
            sent += _number(source, _CACHE_READ) + _number(source, *_CACHE_WRITTEN)
            # Google and xAI count thoughts only in the total
            received = max(received, _number(source, *_TOTAL) - sent)
        else:  # Ollama leaves out tokens that it had cached
            sent = count_messages(messages)
        return Usage(1, sent, received or count_tokens(text_of(response)), min(cached, sent))
    return Usage(1, count_messages(messages), count_tokens(text_of(response)))


EXPECTED_OUTPUT = 1.6
"""Expected output tokens per token of the part of a text that a request is about."""


def expected_usage(messages: Messages, part: str) -> Usage:
    """Return the expected usage of a request.

    Args:
        messages: The messages to send.
        part: The part of the text that the request is about.
    """
    return Usage(1, count_messages(messages), int(count_tokens(part) * EXPECTED_OUTPUT) + 1)


def text_of(response: Response) -> str:
    """Return the text of a LlamaIndex response."""
    if isinstance(response, ChatResponse):
        return response.message.content or ""
    return response.text or ""


def finish_reason(response: Any) -> Finish:
    """Return why a model stopped, looking where each provider says so.

    Args:
        response: A LlamaIndex `ChatResponse` or `CompletionResponse`, with the provider's response in `raw`.

    Returns:
        "stop", "length", "filtered" (by a content filter), "refused" or "failed" (by an error of the provider
        during the reply); "" if the response does not say.
    """
    raw = attribute(response, "raw")
    first = _first_choice(raw)
    if attribute(attribute(first, "message"), "refusal"):
        return "refused"
    nested = [attribute(raw, name) for name in ("details", "incomplete_details", "delta")]
    for source in (first, raw, *nested, *_extras(response)):
        for name in _FINISH_NAMES:
            value = attribute(source, name)
            word = str(attribute(value, "name") or value).lower().rpartition(".")[2]
            if word in _FINISHES:
                return _FINISHES[word]
    return ""


def _extras(response: Any) -> list[Any]:
    """Return what a class of LlamaIndex keeps of the provider's response besides `raw`."""
    parts = (response, attribute(response, "message"))
    return [attribute(part, "additional_kwargs") for part in parts]


def _first_choice(raw: Any) -> Any:
    for name in ("choices", "candidates", "generations"):
        choices = attribute(raw, name)
        if choices and isinstance(choices, (list, tuple)):
            return choices[0]
    return None


def count_messages(messages: Messages) -> int:
    """Return the number of tokens of messages, as OpenAI counts them."""
    contents = sum(count_tokens(message.content or "") for message in messages)
    return contents + _TOKENS_PER_MESSAGE * (len(messages) + 1)


@lru_cache(maxsize=32)  # the instructions are the same for all passages
def count_tokens(text: str) -> int:
    """Return the number of tokens of a text."""
    parts = range(0, len(text), _COUNTED_AT_ONCE)
    return sum(len(tokens_of(text[start : start + _COUNTED_AT_ONCE])) for start in parts)


def tokens_of(text: str) -> list[Any]:
    """Return the tokens of a text by core's tokenizer; the first call loads it (50 MB, half a second)."""
    return get_tokenizer()(text)


def attribute(source: Any, name: str) -> Any:
    """Return a value of a dictionary or object by its name, in snake_case or camelCase; None if missing."""
    head, *rest = name.split("_")
    for spelling in (name, head + "".join(map(str.capitalize, rest))):
        value = getattr(source, spelling, None)
        if isinstance(source, dict):
            value = source.get(spelling)
        if value is not None:
            return value
    return None


def _number(source: Any, *names: str) -> int:
    """Return the first positive integer under one of the names; 0 if there is none."""
    for name in names:
        value = attribute(source, name)
        if type(value) is int and value > 0:
            return value
    return 0


_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Price:
    """The price of a model, in US dollars per million tokens.

    Args:
        input: Price of tokens sent.
        output: Price of tokens received, including a model's thoughts.
        cached_input: Price of tokens sent that the provider had cached; None means the same as `input`.
        batch_factor: Price factor of OpenAI's Batch API; 1 for other providers' models.
        as_of: The price list that it is from; "" for a price given by the user.
    """

    input: _Dollars
    output: _Dollars = 0.0
    cached_input: _Dollars | None = None
    batch_factor: _Dollars = 0.5
    as_of: str = ""

    def of(self, usage: Usage, batch: bool = False) -> float:
        """Return the cost of a usage, in US dollars.

        Args:
            usage: The actual or expected usage.
            batch: Whether requests go through the Batch API.
        """
        cached_price = self.input if self.cached_input is None else self.cached_input
        cost = (
            (usage.input_tokens - usage.cached_input_tokens) * self.input
            + usage.cached_input_tokens * cached_price
            + usage.output_tokens * self.output
        )
        if batch:
            cost *= self.batch_factor
        return cost / 1_000_000


PriceTable = Mapping[str, Price]
"""Prices given by the user, by the model's name."""
PriceSource = str | Path | Mapping[str, Any] | None

_PRICE_TABLE = TypeAdapter(dict[str, Price])
_DATE = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6})$")
_EMBEDDING_PRICES = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.1,
}
"""Input prices of OpenAI's embedding models, which genai-prices lacks."""
_OF_BEDROCK = re.compile(
    r"(?:[a-z-]+\.)?"
    r"(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen|writer)\."
)
_LOCAL_LLMS = (
    "llama_index.llms.ollama.",
    "llama_index.llms.huggingface.",
    "llama_index.llms.llama_cpp.",
)


def read_prices(source: PriceSource = None) -> dict[str, Price]:
    """Read prices that complement or override the list prices.

    Args:
        source: A JSON file, or a mapping, from model names to a `Price` or `{"input": ..., "output": ...,
            "cached_input": ..., "batch_factor": ...}`, of which only "input" is required; None for no prices.

    Raises:
        ValueError: The file or the mapping does not have this form; the message says where.
        OSError: The file cannot be read.
    """
    where = "prices"
    try:
        if not isinstance(source, (str, Path)):
            return _PRICE_TABLE.validate_python(source or {})
        where = str(source)
        return _PRICE_TABLE.validate_json(Path(source).read_text(encoding="utf-8-sig"))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = "".join(f"[{part!r}]" for part in problem["loc"])
        example = '{"gpt-4o-mini": {"input": 0.15, "output": 0.6}}'
        raise ValueError(
            f"{where}{place}: {problem['msg']}; expected {example}, in US dollars for a million tokens, "
            'where "cached_input" and "batch_factor" may be added'
        ) from None


def price_of(
    model: str, prices: PriceTable, llm: Any = None, *, is_needed: bool = False
) -> Price | None:
    """Look up the price of a model.

    Args:
        model: The provider's name for it; a date at its end (gpt-4o-mini-2024-07-18) is ignored if that
            version has no price of its own.
        prices: The result of `read_prices`; these override the list prices.
        llm: The LLM, if it is at hand: list prices do not apply to one on the user's own machine.
        is_needed: Whether there is a `max_cost`.

    Returns:
        The price; None if it is not known. The price of a model is never taken from one whose name begins
        alike.

    Raises:
        ValueError: The price is needed and not known.
    """
    name = model.removeprefix("models/")  # a prefix that Google uses
    undated = _DATE.sub("", name)
    is_local = any(base.__module__.startswith(_LOCAL_LLMS) for base in type(llm).__mro__)
    price = prices.get(name) or prices.get(undated)
    if not price and not is_local:
        price = _list_price(name) or _list_price(undated)
    if is_needed and not price:
        raise ValueError(
            f"max_cost needs the price of {model or 'the model'}, which is not known: leave out max_cost "
            "(--max-cost), name another model, or, where propositions are made, pass "
            f'prices={{{model!r}: {{"input": ..., "output": ...}}}}, in US dollars for a million tokens '
            "(--prices FILE)"
        )
    return price


@lru_cache(maxsize=64)
def _list_price(model: str) -> Price | None:
    from genai_prices import Usage as NoUsage  # the import takes a quarter of a second
    from genai_prices import calc_price

    as_of = f"genai-prices {version('genai-prices')}"
    if model in _EMBEDDING_PRICES:
        return Price(_EMBEDDING_PRICES[model], as_of=as_of)
    try:
        provider = "aws" if _OF_BEDROCK.match(model) else None
        listed = calc_price(NoUsage(input_tokens=0), model, provider_id=provider)
    except LookupError:
        return None
    price = listed.model_price
    sent = _dollars(price.input_mtok)
    if sent is None:
        return None
    received = _dollars(price.output_mtok) or 0.0
    # other providers' batches are not those that `densex batch` makes
    batch_factor = 0.5 if listed.provider.id == "openai" else 1.0
    return Price(sent, received, _dollars(price.cache_read_mtok), batch_factor, as_of)


def _dollars(listed: Any) -> float | None:
    """Return a list price without the tiers for long contexts, which no passage reaches."""
    if listed is None:
        return None
    return float(getattr(listed, "base", listed))
