"""What an ingestion will take, before it starts: requests, tokens, money and time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import astuple, dataclass, field, replace
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
from llama_pack_densex.text.segments import passage_sentences
from llama_pack_densex.text.tokens import has_letters

TOKENS_PER_SECOND = 80.0
SECONDS_TO_START = 0.5
"""How fast a model is assumed to reply."""

_THINKS = re.compile(
    r"(?:^|/)(?:o\d|gpt-[5-9]|gemini-(?:2\.5|[3-9])|magistral|deepseek-(?:reasoner|r\d|v4))|thinking",
)


@dataclass(frozen=True)
class _Ratios:
    """What a model makes of a token of a text, on average.

    Args:
        reply: Tokens of the reply.
        propositions: Propositions.
        new_sentences: The share of a text's sentences that are no propositions word for word.
        question_reply: Further tokens of the reply, where questions are asked for too.
        questions: Questions, where they are asked for.
    """

    reply: float
    propositions: float
    new_sentences: float
    question_reply: float
    questions: float


# Measured with a large model's propositions of Wikipedia passages, cl100k_base tokens: 12.1 propositions
# of 171 tokens in English, 6.3 of 193 in Japanese. On another 301 and 198 such passages replies were 1.51 and
# 1.54, and questions written for them 7.4 and 5.5 a passage.
_LATIN = _Ratios(1.45, 12.1 / 171, 0.90, 0.60, 0.044)
_OTHERS = _Ratios(1.59, 6.3 / 193, 0.95, 0.86, 0.029)


@dataclass
class Estimate:
    """What an ingestion will take.

    Args:
        documents: Documents to do.
        unchanged_documents: Documents that are in the index as they are; they take nothing and count nowhere
            below.
        passages: Passages of the documents.
        distinct_passages: Passages that differ in what is asked about them.
        already_kept: Those of the distinct ones whose reply is in the cache; they are not asked for.
        model: The name of the LLM that is asked; "" if there is none.
        requests: Requests to it.
        input_tokens: Tokens sent to it.
        output_tokens: Tokens received.
        price: The model's price; None if it is not known.
        cost: US dollars; None if the price is not known.
        cost_batch: The same through OpenAI's Batch API.
        propositions: Propositions.
        questions: Questions that the passages answer, where they are asked for.
        units: All nodes of the index: sections, passages, propositions, sentences and questions.
        embed_model: The embedding model's name; "" if there is none.
        embedding_tokens: Tokens that it embeds, without metadata (`embed_metadata`).
        embedding_cost: US dollars; None if the price is not known, 0 for a model on this machine.
        seconds: How long the requests take.
        sampled: Passages that were really asked for, to correct the rest by.
        sample_usage: What they used.
        notes: Which documents cannot be split, and what the figures are based on, in sentences.
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
        """Its figures to be read, each with its label and a remark; those that are nothing are left out."""
        unchanged = ""
        if self.unchanged_documents:
            unchanged = f"and {self.unchanged_documents:,} unchanged in the index"
        is_distinct = self.distinct_passages == self.passages
        rows = [
            ("documents", f"{self.documents:,}", unchanged),
            ("passages", f"{self.passages:,}", ""),
            (
                "distinct passages",
                "" if is_distinct else f"{self.distinct_passages:,}",
                "identical ones count once",
            ),
            ("replies kept before", f"{self.already_kept:,}", "they are not asked for"),
            ("requests", f"{self.requests:,}", f"to {self.model or 'no LLM'}"),
            ("tokens sent", f"{self.input_tokens:,}", ""),
            ("tokens received", f"{self.output_tokens:,}", ""),
            ("cost", money(self.cost), ""),
            (
                "cost as a batch",
                "" if self.cost_batch == self.cost else money(self.cost_batch, ""),
                "through OpenAI's Batch API, within a day",
            ),
            ("time", duration(self.seconds) if self.requests else "", ""),
            ("propositions", f"{self.propositions:,}", ""),
            ("questions", f"{self.questions:,}", "that the passages answer"),
            ("nodes", f"{self.units:,}", "passages and sentences included"),
            ("tokens embedded", f"{self.embedding_tokens:,}", f"by {self.embed_model}"),
            ("cost of embedding", money(self.embedding_cost) if self.embed_model else "", ""),
        ]
        return [
            row for row in rows if row[1] not in ("", "0") or row[0] in ("documents", "requests")
        ]

    def __str__(self) -> str:
        lines = [
            f"{label:<20} {figure}  {remark}".rstrip() for label, figure, remark in self.rows()
        ]
        return "\n".join([*lines, *self.notes])

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
    """Estimate what the propositions of documents will take.

    Passages are split and requests are written just as they will be; what the replies hold is estimated from
    measurements, and from a sample if one is asked for. Documents are read one after the other: memory grows
    by some bytes a passage.

    Args:
        documents: The documents.
        parser: What will make nodes of them. Its propositionizer's prompts, model, limits and cache count.
        prices: Beside, or in place of, the package's own (see `read_prices`); None means the
            propositionizer's.
        embed_model_name: The embedding model; None for none.
        sample: So many passages are really asked for, which costs money, and the estimate is corrected by
            them; replies to single passages differ by a tenth or two. With a reply cache they are not asked
            for again.
        indexed: Hashes of documents (`parser.document_hash`) that an index has as they are.
        on_request: Called with each request that will be sent first, once for each distinct passage.
        before_sample: Called with what the sample will use before it is asked for.

    Raises:
        ValueError: A price is no price.
        PropositionizerError: The sample cannot be asked for.

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
    price_table = read_prices(llm.prices if prices is None and llm is not None else prices)
    survey = _Survey(parser, llm, sample, on_request)
    survey.add(documents, indexed)
    if survey.drawn and llm is not None:
        before_sample(survey.usage_of_sample())
    result = survey.estimate
    for name, amount in vars(survey.certain + survey.corrected()).items():
        setattr(result, name, round(amount))
    if llm is not None:
        result.model = parser.propositionizer.figures.model
        result.price = price_of(result.model, price_table, llm.llm)
        result.seconds = _seconds(result, llm)
    if survey.costs_something:
        _add_cost(result)
    if embed_model_name is None:
        result.embedding_tokens = 0
    else:
        result.embed_model = embed_model_name
        result.embedding_cost = _embedding_cost(
            embed_model_name, result.embedding_tokens, price_table
        )
    result.notes += tuple(_notes(result, llm))
    return result


def _add_cost(result: Estimate) -> None:
    if result.price is None:
        result.cost = None
        result.cost_batch = None
        return
    usage = Usage(result.requests, result.input_tokens, result.output_tokens)
    result.cost = result.price.of(usage)
    result.cost_batch = result.price.of(usage, batch=True)


@dataclass(frozen=True)
class _Amounts(Additive):
    """What passages take, and what becomes of them."""

    requests: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    propositions: float = 0.0
    questions: float = 0.0
    units: float = 0.0
    embedding_tokens: float = 0.0


@dataclass
class _Survey:
    """Counts documents one after the other, and draws a sample of their passages, each with the same chance.

    Args:
        parser: What will make nodes of them.
        llm: What will ask an LLM; None if nothing does.
        sample: The size of the sample.
        on_request: Called with each request that will be sent first.
        estimate: What is counted.
        expected: What a model is expected to make of passages.
        certain: What needs no model.
        drawn: The sample: keys, passages, and the requests where an LLM is asked.
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
        """Count documents, without those that are in the index."""
        splitter = self.parser.model_copy(update={"granularity": ()})  # which asks for nothing
        for parsed in splitter.stream(self._not_indexed(documents, indexed)):
            if parsed.error is not None:
                self.estimate.notes += (f"Left out: {parsed.error}",)
                continue
            self.estimate.documents += 1
            for node in parsed.nodes:
                tokens = count_tokens(searchable_text(node.get_content()))
                self.certain += _Amounts(units=1, embedding_tokens=tokens)
                # of a section no propositions are made
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
        """Whether requests are sent, or a model on this machine has passages to make propositions of."""
        asks_here = self.llm is None and self.expected != _Amounts()
        return asks_here or self.estimate.requests > 0

    def usage_of_sample(self) -> Usage:
        """What the sample is expected to use."""
        amounts = _Amounts()
        for key, passage, request in self.drawn:
            if request is not None and not self._is_cached(key):
                amounts += self._expected(passage, request)
        return Usage(*map(round, (amounts.requests, amounts.input_tokens, amounts.output_tokens)))

    def _is_cached(self, key: str) -> bool:
        """Whether there is a reply to a passage's request."""
        cache = None if self.llm is None else self.llm.cache
        return cache is not None and cache.get(key) is not None

    def corrected(self) -> _Amounts:
        """What is expected, corrected by the propositions of the sample, which are asked for here."""
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
        else:  # what earlier replies used is no longer known
            usage = Usage(round(expected.requests), round(expected.input_tokens))
        actual = replace(actual, requests=usage.requests, input_tokens=usage.input_tokens)
        columns = zip(astuple(self.expected), astuple(actual), astuple(expected), strict=True)
        return _Amounts(
            *(total * (real / guess if guess else 1.0) for total, real, guess in columns)
        )

    def _add_passage(self, passage: Passage) -> None:
        self.estimate.passages += 1
        maker = self.parser.propositionizer if "proposition" in self.parser.granularity else None
        if maker is not None:
            maker = _maker_of(passage, maker)
        request = None
        key = passage_digest(repr(passage))
        if isinstance(maker, LLMPropositionizer):
            request = maker.question(passage)
            key = maker.key(request)
        is_first = hash(key) not in self._seen
        self._seen.add(hash(key))
        self.estimate.distinct_passages += is_first
        if maker is None:
            self.certain += self._actual(passage, PropositionSet(()))
        elif isinstance(maker, (RecordedPropositionizer, SentencePropositionizer)):
            self.certain += self._actual(passage, maker.propositionize([passage])[0])
        else:
            self._expect(passage, key, is_first, request)

    def _expect(
        self, passage: Passage, key: str, is_first: bool, request: LLMRequest | None
    ) -> None:
        """Count a passage that a model is asked about; not its request if that is sent or cached already."""
        if is_first and self.sample:  # the lowest keys, which are hashes, are a random sample
            self.drawn = sorted([*self.drawn, (key, passage, request)])[: self.sample]
        is_cached = request is not None and self._is_cached(key)
        self.estimate.already_kept += is_first and is_cached
        if not is_first or is_cached:
            request = None
        if request is not None:
            self.on_request(request)
        self.expected += self._expected(passage, request)

    def _expected(self, passage: Passage, request: LLMRequest | None) -> _Amounts:
        """What a model is expected to make of a passage, and what that takes; nothing if it is not asked."""
        tokens = count_tokens(searchable_text(passage.text))
        ratios = _LATIN if passage.language in ("en", "latin", "") else _OTHERS
        reply = tokens * ratios.reply
        questions = 0.0
        if self.llm is not None and self.llm.questions:
            reply += tokens * ratios.question_reply
            questions = tokens * ratios.questions
        amounts = self._amounts(
            passage, tokens * ratios.propositions, questions, reply, ratios.new_sentences
        )
        if request is None:
            return amounts
        return amounts + _Amounts(1, count_messages(request.messages), reply)

    def _actual(self, passage: Passage, propositions: PropositionSet) -> _Amounts:
        """What was made of a passage."""
        texts = propositions.texts
        questions = propositions.questions
        sentences = passage_sentences(passage.text, passage.context)
        new_sentences = sum(sentence not in texts for sentence in sentences) / max(
            len(sentences), 1
        )
        tokens = sum(map(count_tokens, (*texts, *questions)))
        return self._amounts(passage, len(texts), len(questions), tokens, new_sentences)

    def _amounts(
        self,
        passage: Passage,
        propositions: float,
        questions: float,
        tokens: float,
        new_sentences: float,
    ) -> _Amounts:
        """Those of a passage; `new_sentences` is the share of its sentences that are no propositions."""
        units = propositions + questions
        if "sentence" in self.parser.granularity:
            units += len(passage_sentences(passage.text, passage.context)) * new_sentences
            tokens += count_tokens(searchable_text(passage.text)) * new_sentences
        return _Amounts(
            propositions=propositions, questions=questions, units=units, embedding_tokens=tokens
        )


def _embedding_cost(name: str, tokens: int, prices: PriceTable) -> float | None:
    kind = name.partition(":")[0]
    if kind in (E5, "local", "huggingface", "ollama", *RETRIEVERS) or Path(name).is_dir():
        return 0.0
    price = price_of(parse_name(name)[1], prices)
    return None if price is None else price.of(Usage(input_tokens=tokens))


def _seconds(result: Estimate, llm: LLMPropositionizer) -> float:
    """Requests take as long as the narrowest of the limits makes them, and no less than one reply."""
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
    """What the figures of an estimate are based on."""
    unknown = "The price of {} is not known: give it with prices of your own (--prices, prices=)."
    if llm is not None and result.requests:
        if result.sampled:
            used = f"{result.sample_usage.total_tokens:,} tokens were used for them"
            passages = f"{result.sampled:,} passages that were really asked for"
            yield f"Corrected by {passages}, which count too; {used}."
        else:
            yield "Replies are taken to be as long as those that were measured; a sample shows this model's."
            if _THINKS.search(result.model):
                yield f"{result.model} may think before it replies; thoughts cost like output, and are extra."
        price = result.price
        if price is None:
            yield unknown.format(result.model)
        else:
            source = f"list prices of {price.as_of}" if price.as_of else "prices of your own"
            yield (
                f"Money is by {source}: ${price.input:g} for a million tokens sent and ${price.output:g} for "
                "a million received, without taxes and discounts."
            )
        yield (
            f"The time is that of the requests alone, {llm.concurrency:,} at a time and within the stated "
            f"limits; {TOKENS_PER_SECOND:g} tokens a second are assumed."
        )
    if result.embedding_cost is None:
        yield unknown.format(result.embed_model)


def llm_behind(propositionizer: Propositionizer) -> LLMPropositionizer | None:
    """What asks an LLM for the passages that a propositionizer does not make itself; None if nothing does."""
    if (
        isinstance(propositionizer, DelegatingPropositionizer)
        and propositionizer.otherwise is not None
    ):
        return llm_behind(propositionizer.otherwise)
    return propositionizer if isinstance(propositionizer, LLMPropositionizer) else None


def _maker_of(passage: Passage, maker: Propositionizer) -> Propositionizer:
    """Which propositionizer makes the propositions of a passage: this one, or another behind it."""
    match maker:
        case DelegatingPropositionizer(otherwise=Propositionizer() as behind) if not maker.takes(
            passage
        ):
            return _maker_of(passage, behind)
    if isinstance(maker, LLMPropositionizer) and not has_letters(passage.text):
        return SentencePropositionizer()
    return maker
