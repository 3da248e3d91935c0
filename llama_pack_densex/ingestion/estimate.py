"""Estimate of an ingestion before it starts: requests, tokens, money and time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_pack_densex.ingestion.progress import duration, money
from llama_pack_densex.llm.cache import passage_digest
from llama_pack_densex.llm.names import parse_name
from llama_pack_densex.llm.requests import LLMRequest
from llama_pack_densex.llm.usage import (
    NOTHING,
    Additive,
    Price,
    PriceSource,
    PriceTable,
    Usage,
    count_messages,
    count_tokens,
    price_of,
    read_prices,
)
from llama_pack_densex.models import E5, RETRIEVERS
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.node_parsers.nodes import passage_of
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.propositionizers.base import (
    DelegatingPropositionizer,
    Passage,
    Propositionizer,
    PropositionSet,
)
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.text import markup
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.tokens import has_letters

TOKENS_PER_SECOND = 80.0
SECONDS_TO_START = 0.5
"""The assumed speed of a model's replies."""

_THINKS = re.compile(
    r"(?:^|/)(?:o\d|gpt-[5-9]|gemini-(?:2\.5|[3-9])|magistral|deepseek-(?:reasoner|r\d|v4))|thinking"
)


@dataclass(frozen=True)
class _Ratios:
    """A model's average output for each token of a passage.

    Args:
        reply: Tokens of the reply.
        propositions: Propositions.
        new_sentences: The share of a passage's sentences that are not also propositions verbatim.
        question_reply: Further tokens of the reply if questions are requested too.
        questions: Questions if they are requested.
    """

    reply: float
    propositions: float
    new_sentences: float
    question_reply: float
    questions: float


# Measured on Wikipedia passages with a large model, in cl100k_base tokens: 12.1 propositions per 171 tokens
# in English, 6.3 per 193 in Japanese. On another 301 and 198 such passages, replies had 1.51 and 1.54 tokens
# per token of the passage, and there were 7.4 and 5.5 questions per passage.
_LATIN = _Ratios(1.45, 12.1 / 171, 0.90, 0.60, 0.044)
_OTHERS = _Ratios(1.59, 6.3 / 193, 0.95, 0.86, 0.029)


@dataclass
class Estimate:
    """The requests, tokens, money and time that an ingestion will take.

    Args:
        documents: Documents to ingest.
        unchanged_documents: Documents that the index already has unchanged; no other figure includes them.
        passages: Passages of the documents.
        distinct_passages: Passages with different requests; identical ones share theirs.
        already_kept: Distinct passages whose reply is cached, so that no request is sent for them.
        model: The name of the LLM; "" if there is none.
        requests: Requests to the LLM.
        input_tokens: Tokens sent to it.
        output_tokens: Tokens received.
        price: The model's price; None if it is not known.
        cost: US dollars; None if the price is not known.
        cost_batch: The same through OpenAI's Batch API.
        propositions: Propositions.
        questions: Questions that the passages answer, if they are requested.
        units: All nodes of the index: sections, passages, propositions, sentences and questions.
        embed_model: The embedding model's name; "" if there is none.
        embedding_tokens: Tokens to embed, without metadata (`embed_metadata`).
        embedding_cost: US dollars; None if the price is not known, 0 for a model on this machine.
        seconds: How long the requests take.
        sampled: Passages that were sent to the model to correct the estimate.
        sample_usage: The usage of their requests.
        notes: Sentences on documents that cannot be split, and on the assumptions behind the figures.
    """

    documents: int = 0
    unchanged_documents: int = 0
    passages: int = 0
    distinct_passages: int = 0
    already_kept: int = 0
    model: str = ""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    price: Price | None = None
    cost: float | None = 0.0
    cost_batch: float | None = 0.0
    propositions: int = 0
    questions: int = 0
    units: int = 0
    embed_model: str = ""
    embedding_tokens: int = 0
    embedding_cost: float | None = 0.0
    seconds: float = 0.0
    sampled: int = 0
    sample_usage: Usage = NOTHING
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the figures for people, each with a label and a remark; zero figures are left out."""
        unchanged = ""
        if self.unchanged_documents:
            unchanged = f"and {self.unchanged_documents:,} unchanged in the index"
        rows = [
            ("documents", f"{self.documents:,}", unchanged),
            ("passages", f"{self.passages:,}", ""),
            ("distinct passages", f"{self.distinct_passages:,}", "identical ones count once"),
            ("cached replies", f"{self.already_kept:,}", "which need no request"),
            ("requests", f"{self.requests:,}", f"to {self.model or 'no LLM'}"),
            ("tokens sent", f"{self.input_tokens:,}", ""),
            ("tokens received", f"{self.output_tokens:,}", ""),
            ("cost", money(self.cost), ""),
            ("cost as a batch", money(self.cost_batch), "through OpenAI's Batch API, within a day"),
            ("time", duration(self.seconds), ""),
            ("propositions", f"{self.propositions:,}", ""),
            ("questions", f"{self.questions:,}", "that the passages answer"),
            ("nodes", f"{self.units:,}", "passages and sentences included"),
            ("tokens embedded", f"{self.embedding_tokens:,}", f"by {self.embed_model}"),
            ("cost of embedding", money(self.embedding_cost), ""),
        ]
        is_shown = {
            "documents": True,
            "requests": True,
            "distinct passages": self.distinct_passages != self.passages,
            "cost as a batch": self.cost_batch != self.cost,
            "time": self.requests > 0,
            "cost of embedding": self.embed_model != "",
        }
        return [row for row in rows if is_shown.get(row[0], row[1] != "0")]

    def __str__(self) -> str:
        lines = [f"{label:<20} {figure}  {remark}" for label, figure, remark in self.rows()]
        return "\n".join([*map(str.rstrip, lines), *self.notes])

    def _repr_html_(self) -> str:
        return markup.block("Estimate", markup.table(self.rows()), markup.bullets(self.notes))


def estimate(  # noqa: PLR0913 (public)
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    *,
    prices: PriceSource = None,
    embed_model_name: str | None = None,
    sample: int = 0,
    indexed: Collection[str] = (),
    on_request: Callable[[LLMRequest], None] = lambda request: None,
    before_sample: Callable[[Usage], None] = lambda usage: None,
) -> Estimate:
    """Estimate the requests, tokens, money and time that the ingestion of documents will take.

    Documents are split and requests are formatted exactly as in the ingestion. The content of the replies is
    estimated from measurements, and from a sample if you want one. Documents are read one after the other:
    memory grows by a few bytes per passage.

    Args:
        documents: The documents.
        parser: The parser of the ingestion. The prompts, model, limits and cache of its propositionizer are
            taken into account.
        prices: Prices that add to the package's own or replace them (see `read_prices`); None means those of
            the propositionizer.
        embed_model_name: The embedding model's name; None means no embedding model.
        sample: The number of passages to send to the model, at its price, to correct the estimate; replies to
            single passages differ by 10 to 20 percent. With a reply cache, the ingestion uses these replies.
        indexed: Hashes (`parser.document_hash`) of documents that an index already has unchanged.
        on_request: Called with the first request for each distinct passage.
        before_sample: Called with the expected usage of the sample before it is sent.

    Raises:
        ValueError: A price is malformed.
        PropositionizerError: The requests of the sample fail.

    Example:
        >>> from llama_pack_densex import LLMPropositionizer, PropositionNodeParser, load_sample
        >>> from llama_pack_densex.ingestion.estimate import estimate
        >>> sample = load_sample("en")
        >>> propositionizer = LLMPropositionizer(sample.llm(), prices={"recorded": {"input": 1, "output": 2}})
        >>> expected = estimate(sample.documents, PropositionNodeParser(propositionizer=propositionizer))
        >>> expected.requests, 0.03 < expected.cost < 0.05
        (37, True)
    """
    llm = llm_behind(parser.propositionizer) if "proposition" in parser.granularity else None
    if prices is None and llm:
        prices = llm.prices
    price_table = read_prices(prices)
    survey = _Survey(parser, llm, sample, on_request)
    survey.add(documents, indexed)
    if survey.drawn and llm:
        before_sample(survey.usage_of_sample())
    result = survey.estimate
    for name, amount in vars(survey.certain + survey.corrected()).items():
        setattr(result, name, round(amount))
    if llm:
        result.model = parser.propositionizer.figures.model
        result.price = price_of(result.model, price_table, llm.llm)
        result.seconds = _seconds(result, llm)
    if survey.costs_something:
        usage = Usage(result.requests, result.input_tokens, result.output_tokens)
        result.cost = _cost(result.price, usage)
        result.cost_batch = _cost(result.price, usage, batch=True)
    _add_embedding(result, embed_model_name or "", price_table)
    result.notes += tuple(_notes(result, llm))
    return result


def _cost(price: Price | None, usage: Usage, batch: bool = False) -> float | None:
    if not price:
        return None
    return price.of(usage, batch)


@dataclass(frozen=True)
class _Amounts(Additive):
    """The requests for passages, and the units made of them."""

    requests: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    propositions: float = 0.0
    questions: float = 0.0
    units: float = 0.0
    embedding_tokens: float = 0.0


@dataclass
class _Survey:
    """Counts documents one after the other, and draws a uniform random sample of their distinct passages.

    Args:
        parser: The parser of the ingestion.
        llm: The propositionizer that asks an LLM; None if there is none.
        sample: The size of the sample.
        on_request: Called with the first request for each distinct passage.
        estimate: The counts so far.
        expected: The expected amounts of passages that are sent to a model.
        certain: The amounts that depend on no model.
        drawn: The sample: keys, passages, and the requests for those that an LLM is asked about.
    """

    parser: BasePropositionNodeParser
    llm: LLMPropositionizer | None
    sample: int
    on_request: Callable[[LLMRequest], None]
    estimate: Estimate = field(default_factory=Estimate)
    expected: _Amounts = _Amounts()
    certain: _Amounts = _Amounts()
    drawn: list[tuple[str, Passage, LLMRequest | None]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def add(self, documents: Iterable[BaseNode], indexed: Collection[str]) -> None:
        """Count documents, except those that the index already has unchanged."""
        splitter = self.parser.model_copy(update={"granularity": ()})  # makes no propositions
        for parsed in splitter.stream(self._not_indexed(documents, indexed)):
            if parsed.error:
                self.estimate.notes += (f"Left out: {parsed.error}",)
                continue
            self.estimate.documents += 1
            for node in parsed.nodes:
                tokens = count_tokens(searchable_text(node.get_content()))
                self.certain += _Amounts(units=1, embedding_tokens=tokens)
                # sections get no propositions
                if node.metadata[GRANULARITY_KEY] == "passage":
                    self._add_passage(passage_of(node))

    def _not_indexed(
        self, documents: Iterable[BaseNode], indexed: Collection[str]
    ) -> Iterator[BaseNode]:
        document_hash = self.parser.document_hasher()
        for document in documents:
            if indexed and document_hash(document) in indexed:
                self.estimate.unchanged_documents += 1
            else:
                yield document

    @property
    def costs_something(self) -> bool:
        """Whether requests are sent, or a model on this machine makes propositions."""
        uses_local_model = not self.llm and self.expected != _Amounts()
        return uses_local_model or self.estimate.requests > 0

    def usage_of_sample(self) -> Usage:
        """Return the expected usage of the sample."""
        amounts = _Amounts()
        for key, passage, request in self.drawn:
            if request and not self._is_cached(key):
                amounts += self._expected(passage, request)
        return Usage(*map(round, (amounts.requests, amounts.input_tokens, amounts.output_tokens)))

    def _is_cached(self, key: str) -> bool:
        """Return whether the reply to a passage's request is cached."""
        if not self.llm or not self.llm.cache:
            return False
        return self.llm.cache.get(key) is not None

    def corrected(self) -> _Amounts:
        """Make the propositions of the sample, and return the expected amounts corrected by them."""
        if not self.drawn:
            return self.expected
        propositionizer = self.parser.propositionizer
        passages = [passage for _, passage, _ in self.drawn]
        earlier = propositionizer.figures
        sets = propositionizer.propositionize(passages)
        figures = propositionizer.figures.since(earlier)
        usage = figures.usage
        self.estimate.sampled = len(sets)
        self.estimate.sample_usage = usage
        expected = actual = _Amounts()
        for (_, passage, request), propositions in zip(self.drawn, sets, strict=True):
            expected += self._expected(passage, request)
            reply = json.dumps([*propositions.texts, *propositions.questions], ensure_ascii=False)
            actual += replace(
                self._actual(passage, propositions), output_tokens=count_tokens(reply)
            )
        if usage.requests and not figures.cache_hits:
            actual = replace(actual, output_tokens=usage.output_tokens)
        else:  # the usage of cached replies is not known
            usage = Usage(round(expected.requests), round(expected.input_tokens))
        actual = replace(actual, requests=usage.requests, input_tokens=usage.input_tokens)
        corrected = vars(self.expected).copy()
        for name, guess in vars(expected).items():
            if guess:
                corrected[name] *= getattr(actual, name) / guess
        return _Amounts(**corrected)

    def _add_passage(self, passage: Passage) -> None:
        self.estimate.passages += 1
        maker = None
        if "proposition" in self.parser.granularity:
            maker = _maker_of(passage, self.parser.propositionizer)
        request = None
        key = passage_digest(repr(passage))
        if isinstance(maker, LLMPropositionizer):
            request = maker.question(passage)
            key = maker.key(request)
        is_first = hash(key) not in self._seen
        self._seen.add(hash(key))
        self.estimate.distinct_passages += is_first
        if not maker:
            self.certain += self._actual(passage, PropositionSet(()))
        elif isinstance(maker, (RecordedPropositionizer, SentencePropositionizer)):
            self.certain += self._actual(passage, maker.propositionize([passage])[0])
        else:
            self._expect(passage, key, is_first, request)

    def _expect(
        self, passage: Passage, key: str, is_first: bool, request: LLMRequest | None
    ) -> None:
        """Count a passage that a model is asked about, and its request unless that is counted or cached."""
        if is_first and self.sample:
            # keys are hashes, so that those with the lowest are a random sample
            self.drawn = sorted([*self.drawn, (key, passage, request)])[: self.sample]
        is_cached = request is not None and self._is_cached(key)
        self.estimate.already_kept += is_first and is_cached
        if not is_first or is_cached:
            request = None
        if request:
            self.on_request(request)
        self.expected += self._expected(passage, request)

    def _expected(self, passage: Passage, request: LLMRequest | None) -> _Amounts:
        """Return the expected amounts of a passage, without those of a request if there is none."""
        tokens = count_tokens(searchable_text(passage.text))
        ratios = _LATIN if passage.language in ("en", "latin", "") else _OTHERS
        reply = tokens * ratios.reply
        questions = 0.0
        if self.llm and self.llm.questions:
            reply += tokens * ratios.question_reply
            questions = tokens * ratios.questions
        amounts = self._amounts(
            passage, tokens * ratios.propositions, questions, reply, ratios.new_sentences
        )
        if not request:
            return amounts
        return amounts + _Amounts(1, count_messages(request.messages), reply)

    def _actual(self, passage: Passage, propositions: PropositionSet) -> _Amounts:
        """Return the amounts of a passage with these propositions."""
        texts = propositions.texts
        questions = propositions.questions
        sentences = passage.sentences
        new_sentences = sum(sentence not in texts for sentence in sentences)
        tokens = sum(map(count_tokens, (*texts, *questions)))
        share = new_sentences / max(len(sentences), 1)
        return self._amounts(passage, len(texts), len(questions), tokens, share)

    def _amounts(
        self,
        passage: Passage,
        propositions: float,
        questions: float,
        tokens: float,
        new_sentences: float,
    ) -> _Amounts:
        """Return the amounts of a passage, without those of requests.

        Args:
            passage: The passage.
            propositions: The number of its propositions.
            questions: The number of its questions.
            tokens: Their tokens.
            new_sentences: The share of its sentences that are not also propositions.
        """
        units = propositions + questions
        if "sentence" in self.parser.granularity:
            units += len(passage.sentences) * new_sentences
            tokens += count_tokens(searchable_text(passage.text)) * new_sentences
        return _Amounts(
            propositions=propositions, questions=questions, units=units, embedding_tokens=tokens
        )


def _add_embedding(result: Estimate, model: str, prices: PriceTable) -> None:
    result.embed_model = model
    if not model:
        result.embedding_tokens = 0
        return
    kind = model.partition(":")[0]
    if kind in (E5, "local", "huggingface", "ollama", *RETRIEVERS) or Path(model).is_dir():
        return
    price = price_of(parse_name(model)[1], prices)
    result.embedding_cost = _cost(price, Usage(input_tokens=result.embedding_tokens))


def _seconds(result: Estimate, llm: LLMPropositionizer) -> float:
    """Return how long the requests take: as long as the tightest limit demands, and at least one reply."""
    if not result.requests:
        return 0.0
    reply = SECONDS_TO_START + result.output_tokens / result.requests / TOKENS_PER_SECOND
    tokens = result.input_tokens + result.output_tokens
    return max(
        reply,
        reply * result.requests / llm.concurrency,
        result.requests * 60 / (llm.requests_per_minute or math.inf),
        tokens * 60 / (llm.tokens_per_minute or math.inf),
    )


def _notes(result: Estimate, llm: LLMPropositionizer | None) -> Iterator[str]:
    """Yield sentences on the assumptions behind the figures of an estimate."""
    unknown = "The price of {} is not known: give your own prices (--prices, prices=)."
    if llm and result.requests:
        if result.sampled:
            tokens = f"{result.sample_usage.total_tokens:,} tokens"
            yield (
                f"Corrected by the replies for a sample of {result.sampled:,} passages, which used {tokens}; "
                "the figures include them."
            )
        else:
            yield "The length of replies is assumed from measurements; a sample would show this model's."
            if _THINKS.search(result.model):
                yield f"{result.model} may think before it replies; these tokens cost extra, as output."
        price = result.price
        if not price:
            yield unknown.format(result.model)
        else:
            source = f"list prices of {price.as_of}" if price.as_of else "prices of your own"
            yield (
                f"Costs are by {source}: ${price.input:g} per million tokens sent and ${price.output:g} per "
                "million received, without taxes and discounts."
            )
        yield (
            f"The time is that of the requests alone, {llm.concurrency:,} at a time and within the stated "
            f"limits, at an assumed {TOKENS_PER_SECOND:g} tokens per second."
        )
    if result.embedding_cost is None:
        yield unknown.format(result.embed_model)


def llm_behind(propositionizer: Propositionizer) -> LLMPropositionizer | None:
    """Return the `LLMPropositionizer` that is, or is behind, a propositionizer; None if there is none."""
    behind: Propositionizer | None = propositionizer
    while isinstance(behind, DelegatingPropositionizer):
        behind = behind.otherwise
    if isinstance(behind, LLMPropositionizer):
        return behind
    return None


def _maker_of(passage: Passage, maker: Propositionizer) -> Propositionizer:
    """Return the propositionizer that handles a passage: this one, or another behind it."""
    while isinstance(maker, DelegatingPropositionizer) and not maker.takes(passage):
        if not maker.otherwise:
            return maker
        maker = maker.otherwise
    if isinstance(maker, LLMPropositionizer) and not has_letters(passage.text):
        return SentencePropositionizer()
    return maker
