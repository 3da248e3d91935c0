"""Expected expenses of a command: they are shown, and in a terminal confirmed, before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from math import ceil
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
from llama_pack_densex.llm.usage import PriceSource, RequestFigures, Usage, price_of, read_prices
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

_SURVEYED = 1_000_000  # characters of documents to split for an estimate; takes a few seconds
_OWN_SERVERS = ("OpenAILike", "Ollama")  # classes of LLMs that may be on the user's own machine


@dataclass(frozen=True)
class Expense:
    """The requests that a model is about to get.

    Args:
        model: The model's name, with its class and address.
        task: A phrase that describes the requests and their tokens.
        cost: US dollars; None if the price is not known.
    """

    model: str
    task: str
    cost: float | None

    @classmethod
    def of(cls, model: str, figures: RequestFigures) -> Expense:
        """Return the expense of requests."""
        usage = figures.usage
        task = (
            f"{many(usage.requests, 'request')}, {usage.input_tokens:,} tokens sent and "
            f"{usage.output_tokens:,} received"
        )
        return cls(model, task, figures.cost if usage.requests else 0.0)

    def __str__(self) -> str:
        return f"{self.model}: about {self.task}: {money(self.cost, 'price not known')}"


def is_agreed(expenses: Sequence[Expense], options: Spending) -> bool:
    """Show what is about to be spent, and return whether the user agrees.

    In a terminal the user is asked (Enter alone means no), unless --yes or --max-cost is given. Without a
    terminal, the expenses are logged and the answer is yes. It is also yes if nothing costs anything.
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
    llm: LLM, usage: Usage, prices: PriceSource = None, purpose: str = ""
) -> list[Expense]:
    """Return the expense of requests to an LLM; none without requests, or if the LLM is local (`is_local`).

    Raises:
        ValueError: The LLM's server is unreachable.
    """
    check_server(llm)
    if is_local(llm) or not usage.requests:
        return []
    price = price_of(llm.metadata.model_name, read_prices(prices), llm)
    cost = price.of(usage) if price else None
    figures = RequestFigures(usage, cost)
    return [Expense.of(name_of(llm) + purpose, figures)]


def expenses_of_embedding(
    model: str | None, tokens: int, prices: PriceSource = None
) -> list[Expense]:
    """Return the expense of embedding with a model, given by name; none if it is on the user's own machine.

    Raises:
        ValueError: The model's server is unreachable.
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
    prices: PriceSource = None,
) -> list[Expense]:
    """Return the expenses of indexing documents; none if all models are on the user's own machine.

    Of many documents, an evenly spread sample is split, and the rest is assumed to be like it.

    Args:
        documents: The documents; they are iterated over several times.
        parser: Will turn them into nodes.
        indexed: The hashes of the documents in the index.
        embed_model: The embedding model's name; None for none.
        prices: As for `estimate`.

    Raises:
        ValueError: The server of a model is unreachable.
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
    """Return an estimate for a sample of the new documents, and the factor to scale it to all of them."""
    document_hash = parser.document_hasher()

    def new_documents(step: int) -> Iterator[BaseNode]:
        new = (document for document in documents if document_hash(document) not in indexed)
        return islice(new, 0, None, step)

    sizes = [len(document.get_content()) for document in new_documents(1)]
    step = ceil(sum(sizes) / _SURVEYED) or 1
    report = estimate(new_documents(step), parser, embed_model_name=embed_model)
    # every reply for the sample is cached, which may not hold for the other documents
    if step > 1 and asks_elsewhere and not report.requests:
        step = 1
        report = estimate(new_documents(step), parser, embed_model_name=embed_model)
    return report, sum(sizes) / max(sum(sizes[::step]), 1)


def name_of(llm: LLM) -> str:
    """Return an LLM's name with its class and address."""
    places = filter(None, (type(llm).__name__, output_settings(llm).get("address")))
    return f"{llm.metadata.model_name} ({', '.join(places)})"


def is_local(llm: LLM) -> bool:
    """Return whether an LLM runs on the user's own machine or network, where requests cost nothing."""
    module = type(llm).__module__
    if module.startswith(("llama_index.llms.huggingface.", "llama_index.llms.llama_cpp.")):
        return True
    is_own_server = type(llm).__name__ in _OWN_SERVERS
    return is_own_server and _is_local_address(str(output_settings(llm).get("address", "")))


def is_elsewhere(embed_model: str | None) -> bool:
    """Return whether an embedding model, given by name, runs on a provider's server."""
    return embed_model is not None and is_model_name(embed_model) and not is_local_name(embed_model)


def is_local_name(model: str) -> bool:
    """Return whether a model, given by a name with a provider, runs on the user's own machine or network."""
    provider, _, address = parse_name(model)
    if provider == "huggingface" or (provider == "ollama" and not address):
        return True
    if provider == "openai-like" and not address:
        address = os.environ.get("OPENAI_API_BASE") or os.environ.get("OPENAI_BASE_URL", "")
    return not PROVIDERS[provider].keys and _is_local_address(address)


def _is_local_address(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local"))
