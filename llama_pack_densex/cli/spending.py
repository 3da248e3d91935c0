"""What a command is about to spend, which is said, and in a terminal agreed to, before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode

from llama_pack_densex.cli.app import Spending
from llama_pack_densex.cli.output import can_ask, inform, waiting
from llama_pack_densex.cli.places import check_embedding_server, check_server
from llama_pack_densex.ingestion.estimate import Estimate, estimate, llm_behind
from llama_pack_densex.ingestion.progress import many, money
from llama_pack_densex.llm.names import PROVIDERS, is_model_name, parse_name
from llama_pack_densex.llm.reference import output_settings
from llama_pack_densex.llm.usage import RequestFigures, Usage, price_of, read_prices
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

Prices = str | Path | Mapping[str, Any] | None
"""As `read_prices` takes them."""

_SURVEYED = 1_000_000  # characters of documents that are split for an estimate: some seconds
_OWN_SERVERS = ("OpenAILike", "Ollama")  # classes of LLMs that may be on the user's own machine


@dataclass(frozen=True)
class Expense:
    """What a model is about to be asked for.

    Args:
        model: Its name, with whose it is and where.
        task: What it is asked for, and what goes to and fro, in words.
        cost: US dollars; None if the price is not known.
    """

    model: str
    task: str
    cost: float | None

    @classmethod
    def of(cls, model: str, figures: RequestFigures) -> Expense:
        """What requests come to."""
        usage = figures.usage
        task = (
            f"{many(usage.requests, 'request')}, {usage.input_tokens:,} tokens sent and "
            f"{usage.output_tokens:,} received"
        )
        return cls(model, task, figures.cost if usage.requests else 0.0)

    def __str__(self) -> str:
        return f"{self.model}: about {self.task}: {money(self.cost, 'price not known')}"


def is_agreed(expenses: Sequence[Expense], options: Spending) -> bool:
    """Say what is about to be spent, and whether the user agrees.

    In a terminal the user is asked, and Enter alone means no, unless --yes or --max-cost is given. Where
    nobody can be asked, it is logged, and the answer is yes; also where nothing costs anything.
    """
    costly = [expense for expense in expenses if expense.cost != 0]
    for expense in costly:
        if can_ask():
            inform(f"{expense}.")
        else:
            logger.warning("%s.", expense)
    if not costly or not can_ask() or options.yes or options.has_own_limit:
        return True
    if typer.confirm("Go on?", err=True):
        return True
    inform("Nothing was sent.")
    return False


def expenses_of_llm(
    llm: LLM, usage: Usage, prices: Prices = None, purpose: str = ""
) -> list[Expense]:
    """What requests to an LLM come to; nothing where there are none, or it is on the user's own machine.

    Raises:
        ValueError: The LLM's server is not there.
    """
    check_server(llm)
    if is_local(llm) or not usage.requests:
        return []
    price = price_of(llm.metadata.model_name, read_prices(prices), llm)
    figures = RequestFigures(usage, price.of(usage) if price else None)
    return [Expense.of(name_of(llm) + purpose, figures)]


def expenses_of_embedding(model: str | None, tokens: int, prices: Prices = None) -> list[Expense]:
    """What embedding comes to, by a model's name; nothing for a model on the user's own machine.

    Raises:
        ValueError: The model's server is not there.
    """
    check_embedding_server(model)
    if model is None or not tokens or not is_elsewhere(model):
        return []
    price = price_of(parse_name(model)[1], read_prices(prices))
    cost = price.of(Usage(input_tokens=tokens)) if price else None
    return [Expense(model, f"embeddings, {tokens:,} tokens", cost)]


def expenses_of_indexing(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    indexed: Collection[str] = (),
    embed_model: str | None = None,
    prices: Prices = None,
) -> list[Expense]:
    """What models cost that are asked about documents; empty where all of them are on this machine.

    Of many documents some are split, spread over all of them, and the others are taken to be like them.

    Args:
        documents: The documents, which can be gone through several times.
        parser: What is going to make nodes of them.
        indexed: The hashes of the documents that the index has.
        embed_model: The embedding model's name; None for none.
        prices: As for `estimate`.

    Raises:
        ValueError: The server of a model is not there.
    """
    asking = llm_behind(parser.propositionizer)
    check_server(asking and asking.llm)
    check_embedding_server(embed_model)
    asks_elsewhere = bool(asking and not is_local(asking.llm))
    if not asks_elsewhere and not is_elsewhere(embed_model):
        return []
    with waiting("Estimating the cost"):
        report, scale = _estimate_some(documents, parser, indexed, embed_model, asks_elsewhere)
    expenses = expenses_of_embedding(embed_model, round(scale * report.embedding_tokens), prices)
    if not asking:
        return expenses
    amounts = (report.requests, report.input_tokens, report.output_tokens)
    usage = Usage(*(round(scale * amount) for amount in amounts))
    return [*expenses_of_llm(asking.llm, usage, prices), *expenses]


def _estimate_some(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    indexed: Collection[str],
    embed_model: str | None,
    asks_elsewhere: bool,
) -> tuple[Estimate, float]:
    """An estimate of some of the new documents, and how many times as much all of them are."""
    document_hash = parser.document_hasher()

    def new_documents(step: int) -> Iterator[BaseNode]:
        new = (document for document in documents if document_hash(document) not in indexed)
        return islice(new, 0, None, step)

    sizes = [len(document.get_content()) for document in new_documents(1)]
    step = ceil(sum(sizes) / _SURVEYED) or 1
    report = estimate(new_documents(step), parser, embed_model_name=embed_model)
    # all replies of these are there; of the others?
    if step > 1 and asks_elsewhere and not report.requests:
        step = 1
        report = estimate(new_documents(step), parser, embed_model_name=embed_model)
    return report, sum(sizes) / max(sum(sizes[::step]), 1)


def name_of(llm: LLM) -> str:
    """An LLM's name, with whose it is and where."""
    places = filter(None, (type(llm).__name__, output_settings(llm).get("address")))
    return f"{llm.metadata.model_name} ({', '.join(places)})"


def is_local(llm: LLM) -> bool:
    """Whether an LLM is on the user's own machine or network, where no request costs anything."""
    module = type(llm).__module__
    if module.startswith(("llama_index.llms.huggingface.", "llama_index.llms.llama_cpp.")):
        return True
    is_own_server = type(llm).__name__ in _OWN_SERVERS
    return is_own_server and _is_local_address(str(output_settings(llm).get("address", "")))


def is_elsewhere(embed_model: str | None) -> bool:
    """Whether an embedding model by its name is a provider's."""
    return embed_model is not None and is_model_name(embed_model) and not is_local_name(embed_model)


def is_local_name(model: str) -> bool:
    """Whether a model by its name with a provider is on the user's own machine or network."""
    provider, _, address = parse_name(model)
    if provider == "openai-like":
        address = (
            address or os.environ.get("OPENAI_API_BASE") or os.environ.get("OPENAI_BASE_URL", "")
        )
    if provider == "ollama":
        return not address or _is_local_address(address)
    return provider == "huggingface" or (
        not PROVIDERS[provider].keys and _is_local_address(address)
    )


def _is_local_address(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local"))
