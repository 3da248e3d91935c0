"""What an estimate rests upon, in sentences for people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llama_pack_densex.ingestion.ratios import ENGLISH, JAPANESE, ratios_of

if TYPE_CHECKING:
    from llama_pack_densex.ingestion.estimate import Estimate

TOKENS_A_SECOND, SECONDS_TO_BEGIN = 80.0, 0.5
"""How fast a model is taken to reply, where nothing else is said."""

_THINKS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9]|gemini-(?:2\.5|[3-9])|magistral|deepseek-(?:reasoner|r\d|v4))|thinking")


def assumptions(estimate: Estimate) -> Iterator[str]:
    """Say what the figures of an estimate rest upon; `notes` of it is not looked at."""
    if estimate.requests:
        yield from _of_tokens(estimate)
        yield from _of_money(estimate)
        yield from _of_time(estimate)
    elif estimate.model:
        yield "Nothing is to be asked for: all replies are there, or nothing has changed."
    elif estimate.passages:
        yield f"{estimate.propositionizer} asks no LLM."
    if estimate.embed_model:
        yield from _of_embedding(estimate)
    yield "The size is that of an embedded index made in one go; measured ones were within a tenth of it."


def _of_tokens(estimate: Estimate) -> Iterator[str]:
    yield (
        "Tokens are counted by LlamaIndex's tokenizer, by default that of GPT-3.5 and GPT-4; the model's own may "
        "count otherwise, above all in other languages than English."
    )
    if estimate.sampled:
        used = estimate.sample_usage
        spent = f"{used.total_tokens:,} tokens were used for them" if used.requests else "they were in the cache"
        cost = "" if estimate.price is None or not used.requests else f", ${estimate.price.of(used):.4f}"
        yield f"Corrected by {estimate.sampled:,} passages that were really asked for, which count too; {spent}{cost}."
    else:
        yield f"{_of_replies(estimate)} A sample shows what the model really does."
        yield "Every reply can be used: requests that have to be repeated are not reckoned with."
    if _THINKS.search(estimate.model) and not estimate.sampled:
        yield f"{estimate.model} may think before it replies. Thoughts cost like output and are not reckoned with."


def _of_replies(estimate: Estimate) -> str:
    known = {ratios_of(language) for language in estimate.languages}
    english = f"{ENGLISH.reply:g} tokens come back for a token of text in English"
    japanese = f"{JAPANESE.reply:g} in Japanese"
    if known == {JAPANESE}:
        english, japanese = "", f"{JAPANESE.reply:g} tokens come back for a token of text in Japanese"
    elif known == {ENGLISH}:
        japanese = ""
    measured = " and ".join(part for part in (english, japanese) if part)
    others = estimate.languages.keys() - {"en", "ja", "latin", ""}
    also = "; other languages count like Japanese, or in Latin script like English" if others else ""
    return f"{measured}, as was measured{also}."


def _of_money(estimate: Estimate) -> Iterator[str]:
    price = estimate.price
    if price is None:
        yield f"The price of {estimate.model} is not known: give it with prices of your own (--prices, prices=)."
        return
    source = f"list prices of {price.as_of}" if price.as_of else "prices of your own"
    yield (
        f"Money is by {source}: ${_exact(price.input)} for a million tokens sent and ${_exact(price.output)} for a "
        "million received, without taxes and discounts."
    )


def _exact(amount: float) -> str:
    return f"{amount:.2f}" if round(amount, 2) == amount else f"{amount:g}"


def _of_time(estimate: Estimate) -> Iterator[str]:
    speed = f"{estimate.max_concurrency:,} requests at a time, {estimate.seconds_a_reply:.1f} s a reply"
    if estimate.is_pace_assumed:
        speed += f" ({SECONDS_TO_BEGIN:g} s to begin and {TOKENS_A_SECOND:g} tokens a second are assumed)"
    bound = {
        "requests": "by the requests a minute that are allowed",
        "tokens": "by the tokens a minute that are allowed",
    }.get(estimate.bound_by, "by the replies")
    yield f"The time is set {bound}: {speed}. Embedding and writing come on top."


def _of_embedding(estimate: Estimate) -> Iterator[str]:
    if estimate.embedding_cost is None:
        yield f"The price of {estimate.embed_model} is not known: give it with prices of your own (--prices, prices=)."
    if estimate.dimension is None:
        yield f"The dimension of {estimate.embed_model} is not known, so its vectors are not in the index's size."
