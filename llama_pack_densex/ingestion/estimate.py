"""What an ingestion will take, before it is begun: requests, tokens, money, time, and the size of the index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from llama_index.core.schema import BaseNode

from llama_pack_densex.ingestion.assumptions import SECONDS_TO_BEGIN, TOKENS_A_SECOND, assumptions
from llama_pack_densex.ingestion.estimating import Survey, asked_llm, runs_free
from llama_pack_densex.ingestion.ratios import Tally
from llama_pack_densex.ingestion.sampling import ENOUGH, ask_sample
from llama_pack_densex.llm_requests.prices import Price, PriceTable, price_of, read_prices
from llama_pack_densex.llm_requests.reply import Usage
from llama_pack_densex.models import E5, MINILM
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.propositionizers.llm import LLMPropositionizer

Bound = Literal["requests", "tokens", "concurrency", ""]

DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "mistral-embed": 1024,
    "gemini-embedding-001": 3072,
    MINILM: 384,
    E5: 384,
}
"""Of the vectors of some embedding models."""


@dataclass(frozen=True)
class Estimate:
    """What an ingestion will take.

    Args:
        documents: Documents to do.
        broken_documents: Documents that cannot be split; they are not counted below.
        first_error: What is wrong with the first of them; "" where there is none.
        unchanged_documents: Documents that are in the index as they are; they take nothing, and are not counted below.
        passages: Passages of the documents.
        distinct_passages: Passages without those that are like another one; these are asked for.
        already_kept: Those of the distinct ones whose reply is in the cache; these are not.
        text_tokens: Tokens of the passages.
        languages: Passages by language (see `language.detect_language`).
        propositionizer: The class of what makes propositions.
        model: The name of the LLM that is asked; "" where none is.
        requests: Requests to it.
        input_tokens: Tokens sent to it.
        cached_input_tokens: Those of them that the provider will have cached, as far as a sample showed it.
        output_tokens: Tokens that come back.
        price: The model's price; None where it is not known.
        cost: US dollars; None where the price is not known.
        cost_batch: The same through the Batch API.
        propositions: Propositions.
        units: All nodes of the index: sections, passages, propositions and sentences.
        embed_model: The embedding model's name; "" where there is none.
        embedding_tokens: Tokens that it embeds.
        embedding_cost: US dollars; None where the price is not known, 0 for a model on this machine.
        dimension: Of the vectors; None where it is not known.
        index_bytes: The size of an embedded index with its lexical side.
        vector_bytes: The vectors' part of it.
        seconds: How long the requests take.
        seconds_a_reply: How long the model is taken to reply.
        is_pace_assumed: Whether nobody said how long.
        bound_by: What `seconds` hangs on: "requests" or "tokens" a minute, or "concurrency"; "" where nothing is asked.
        max_concurrency: Requests at a time.
        sampled: Passages that were really asked for, and by which the rest is corrected.
        sample_usage: What they used.
        notes: What the figures rest upon, in sentences.
    """

    documents: int
    broken_documents: int
    first_error: str
    unchanged_documents: int
    passages: int
    distinct_passages: int
    already_kept: int
    text_tokens: int
    languages: dict[str, int]
    propositionizer: str
    model: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    price: Price | None
    cost: float | None
    cost_batch: float | None
    propositions: int
    units: int
    embed_model: str
    embedding_tokens: int
    embedding_cost: float | None
    dimension: int | None
    index_bytes: int
    vector_bytes: int
    seconds: float
    seconds_a_reply: float
    is_pace_assumed: bool
    bound_by: Bound
    max_concurrency: int
    sampled: int
    sample_usage: Usage
    notes: tuple[str, ...]


def estimate(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    *,
    prices: str | Path | Mapping[str, Any] | None = None,
    embed_model_name: str | None = None,
    dimension: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    max_concurrency: int | None = None,
    seconds_a_reply: float | None = None,
    sample: int = 0,
    indexed: Collection[str] = (),
) -> Estimate:
    """Estimate what the propositions of documents will take, and the index of them.

    Passages are split and requests are written just as they will be; what the replies hold is estimated by what was
    measured (`ratios`), and by a sample where one is asked for. Documents are read one after the other: memory grows by
    some bytes a passage.

    Args:
        documents: The documents.
        parser: What will make nodes of them. Its propositionizer's prompts, model and cache count.
        prices: Beside, or in place of, the package's own (see `read_prices`); None means the propositionizer's.
        embed_model_name: The embedding model; None for none.
        dimension: Of its vectors, where `DIMENSIONS` does not have it.
        requests_per_minute: What the provider allows; None means what the propositionizer keeps to.
        tokens_per_minute: The same for tokens, sent and received together.
        max_concurrency: Requests at a time; None means the propositionizer's.
        seconds_a_reply: How long the model takes to reply; None means half a second, and one more for 80 tokens.
        sample: So many passages are really asked for, which costs money, and the estimate is corrected by them, each
            language of which there are enough. With a reply cache they are not asked for again.
        indexed: Hashes of documents (`parser.document_hash`) that an index has as they are.

    Raises:
        ValueError: A price is no price, or the sample is too small.
        PropositionizerError: The sample cannot be asked for.
    """
    if sample and sample < ENOUGH:
        raise ValueError(f"sample must be 0, or {ENOUGH} or more passages, not {sample}")
    propositionizer = parser.propositionizer
    asker = asked_llm(propositionizer) if "proposition" in parser.granularity else None
    table = read_prices(asker.prices if prices is None and asker is not None else prices)
    survey = Survey(parser, sample, indexed)
    survey.add(documents)
    seen = ask_sample(propositionizer, survey.drawn)
    tallies = survey.known.copy()
    for language, expected in survey.expected.items():
        correction = seen.corrections.get(language)
        tallies[language] += expected if correction is None else correction.of(expected)
    total = sum(tallies.values(), Tally())
    nodes = survey.base_nodes + total.propositions + total.sentences
    usage = Usage(
        round(total.requests), round(total.input_tokens), round(total.output_tokens), round(total.cached_input_tokens)
    )
    model = propositionizer.figures.model if asker is not None else ""
    price = price_of(model, table)
    units = round(nodes.count)
    embedded = round(nodes.tokens) if embed_model_name else 0
    dimension = dimension or DIMENSIONS.get(embed_model_name or "")
    vectors = units * 4 * dimension if dimension and embed_model_name else 0
    duration = _duration(asker, usage, requests_per_minute, tokens_per_minute, max_concurrency, seconds_a_reply)
    found = Estimate(
        documents=survey.documents,
        broken_documents=survey.broken,
        first_error=survey.first_error,
        unchanged_documents=survey.unchanged,
        passages=total.passages,
        distinct_passages=total.distinct,
        already_kept=total.kept,
        text_tokens=total.text_tokens,
        languages={language: tally.passages for language, tally in tallies.items()},
        propositionizer=propositionizer.class_name(),
        model=model,
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        price=price,
        cost=_cost(parser, price, usage),
        cost_batch=_cost(parser, price, usage, batch=True),
        propositions=round(total.propositions.count),
        units=units,
        embed_model=embed_model_name or "",
        embedding_tokens=embedded,
        embedding_cost=_embedding_cost(embed_model_name, embedded, table),
        dimension=dimension if embed_model_name else None,
        index_bytes=round(nodes.size) + vectors,
        vector_bytes=vectors,
        seconds=duration.seconds,
        seconds_a_reply=duration.seconds_a_reply,
        is_pace_assumed=seconds_a_reply is None,
        bound_by=duration.bound_by,
        max_concurrency=duration.max_concurrency,
        sampled=seen.passages,
        sample_usage=seen.usage,
        notes=(),
    )
    return replace(found, notes=tuple(assumptions(found)))


@dataclass(frozen=True)
class _Duration:
    seconds: float = 0.0
    seconds_a_reply: float = 0.0
    bound_by: Bound = ""
    max_concurrency: int = 1


def _duration(
    asker: LLMPropositionizer | None,
    usage: Usage,
    requests_per_minute: float | None,
    tokens_per_minute: float | None,
    max_concurrency: int | None,
    seconds_a_reply: float | None,
) -> _Duration:
    """How long requests take: as long as the narrowest of the limits makes them."""
    if asker is None or not usage.requests:
        return _Duration()
    if seconds_a_reply is None:
        seconds_a_reply = SECONDS_TO_BEGIN + usage.output_tokens / usage.requests / TOKENS_A_SECOND
    max_concurrency = max_concurrency or asker.concurrency
    requests_per_minute = requests_per_minute or asker.requests_per_minute
    tokens_per_minute = tokens_per_minute or asker.tokens_per_minute
    bounds: dict[Bound, float] = {"concurrency": usage.requests * seconds_a_reply / max_concurrency}
    if requests_per_minute:
        bounds["requests"] = usage.requests / requests_per_minute * 60
    if tokens_per_minute:
        bounds["tokens"] = usage.total_tokens / tokens_per_minute * 60
    narrowest = max(bounds, key=lambda bound: bounds[bound])
    # no run is shorter than one reply
    seconds = max(bounds[narrowest], seconds_a_reply)
    return _Duration(seconds, seconds_a_reply, narrowest, max_concurrency)


def _cost(parser: BasePropositionNodeParser, price: Price | None, usage: Usage, batch: bool = False) -> float | None:
    made_here = "proposition" not in parser.granularity or runs_free(parser.propositionizer)
    if made_here or (asked_llm(parser.propositionizer) is not None and not usage.requests):
        return 0.0
    return None if price is None else price.of(usage, batch)


def _embedding_cost(name: str | None, tokens: int, prices: PriceTable) -> float | None:
    if name is None or name in (MINILM, E5) or name.startswith("local:") or Path(name).is_dir():
        return 0.0
    price = price_of(name, prices)
    return None if price is None else price.of(Usage(input_tokens=tokens))
