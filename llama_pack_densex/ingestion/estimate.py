"""What an ingestion will take, before it is begun: requests, tokens, money and time."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from llama_index.core.schema import BaseNode

from llama_pack_densex.llm.cache import passage_digest
from llama_pack_densex.llm.names import parse_name
from llama_pack_densex.llm.requests import LLMRequest
from llama_pack_densex.llm.usage import NOTHING, Price, Usage, count_messages, count_tokens, price_of, read_prices
from llama_pack_densex.models import E5, RETRIEVERS
from llama_pack_densex.node_parsers.metadata import CONTEXT_KEY, GRANULARITY_KEY, SECTION_KEY, TITLE_KEY
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.propositionizers.base import DelegatingPropositionizer, Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.text.segments import passage_sentences
from llama_pack_densex.text.tokens import has_letters

TOKENS_A_SECOND, SECONDS_TO_BEGIN = 80.0, 0.5
"""How fast a model is taken to reply."""

_THINKS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9]|gemini-(?:2\.5|[3-9])|magistral|deepseek-(?:reasoner|r\d|v4))|thinking")


@dataclass(frozen=True)
class _Ratios:
    """What a model makes of a text: tokens of the reply and propositions for a token of it, the share of its sentences
    that are no propositions word for word, and, where questions are asked for too, tokens and number of these."""

    reply: float
    propositions: float
    new_sentences: float
    asking: float
    questions: float


# Measured with a large model's propositions of Wikipedia passages, in tokens of cl100k_base: 12.1 propositions of 171
# tokens in English, 6.3 of 193 in Japanese. On another 301 and 198 such passages the replies were 1.51 and 1.54, and
# questions written for them 7.4 and 5.5 a passage.
_LATIN = _Ratios(reply=1.45, propositions=12.1 / 171, new_sentences=0.90, asking=0.60, questions=0.044)
_OTHERS = _Ratios(reply=1.59, propositions=6.3 / 193, new_sentences=0.95, asking=0.86, questions=0.029)


@dataclass
class Estimate:
    """What an ingestion will take.

    Args:
        documents: Documents to do.
        unchanged_documents: Documents that are in the index as they are; they take nothing, and are not counted below.
        passages: Passages of the documents.
        distinct_passages: Passages without those that are asked about as another one is.
        already_kept: Those of the distinct ones whose reply is in the cache; they are not asked for.
        model: The name of the LLM that is asked; "" where none is.
        requests: Requests to it.
        input_tokens: Tokens sent to it.
        output_tokens: Tokens that come back.
        price: The model's price; None where it is not known.
        cost: US dollars; None where the price is not known.
        cost_batch: The same through the Batch API.
        propositions: Propositions.
        questions: Questions that the passages answer, where they are asked for.
        units: All nodes of the index: sections, passages, propositions, sentences and questions.
        embed_model: The embedding model's name; "" where there is none.
        embedding_tokens: Tokens that it embeds, but for metadata (`embed_metadata`); quotes of replies count too.
        embedding_cost: US dollars; None where the price is not known, 0 for a model on this machine.
        seconds: How long the requests take.
        sampled: Passages that were really asked for, and by which the rest is corrected.
        sample_usage: What they used.
        notes: Which documents cannot be split, and what the figures rest upon, in sentences.
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


def estimate(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    *,
    prices: str | Path | Mapping[str, Any] | None = None,
    embed_model_name: str | None = None,
    sample: int = 0,
    indexed: Collection[str] = (),
    on_question: Callable[[LLMRequest], None] = lambda question: None,
) -> Estimate:
    """Estimate what the propositions of documents will take.

    Passages are split and requests are written just as they will be; what the replies hold is estimated by what was
    measured, and by a sample where one is asked for. Documents are read one after the other: memory grows by some bytes
    a passage.

    Args:
        documents: The documents.
        parser: What will make nodes of them. Its propositionizer's prompts, model, limits and cache count.
        prices: Beside, or in place of, the package's own (see `read_prices`); None means the propositionizer's.
        embed_model_name: The embedding model; None for none.
        sample: So many passages are really asked for, which costs money, and the estimate is corrected by them; replies
            to single passages differ by a tenth or two. With a reply cache they are not asked for again.
        indexed: Hashes of documents (`parser.document_hash`) that an index has as they are.
        on_question: Called with what will be asked for first, once for each distinct passage.

    Raises:
        ValueError: A price is no price.
        PropositionizerError: The sample cannot be asked for.
    """
    asker = asked_llm(parser.propositionizer) if "proposition" in parser.granularity else None
    table = read_prices(asker.prices if prices is None and asker is not None else prices)
    survey = _Survey(parser, asker, sample, on_question)
    survey.add(documents, indexed)
    found, total = survey.found, survey.known + survey.corrected()
    for name in ("requests", "input_tokens", "output_tokens", "propositions", "questions", "units"):
        setattr(found, name, round(getattr(total, name)))
    if asker is not None:
        found.model = parser.propositionizer.figures.model
        found.price = price_of(found.model, table, asker.llm)
        found.seconds = _seconds(found, asker)
    usage = Usage(found.requests, found.input_tokens, found.output_tokens)
    if found.requests or (asker is None and survey.expected != _Figures()):  # what is asked, or what nobody can price
        found.cost = None if found.price is None else found.price.of(usage)
        found.cost_batch = None if found.price is None else found.price.of(usage, batch=True)
    if embed_model_name is not None:
        found.embed_model, found.embedding_tokens = embed_model_name, round(total.embedded_tokens)
        kind = embed_model_name.partition(":")[0]
        if not (kind in (E5, "local", "huggingface", "ollama", *RETRIEVERS) or Path(embed_model_name).is_dir()):
            price = price_of(parse_name(embed_model_name)[1], table)
            found.embedding_cost = None if price is None else price.of(Usage(input_tokens=found.embedding_tokens))
    found.notes += tuple(_notes(found, asker))
    return found


@dataclass(frozen=True)
class _Figures:
    """What passages take, and what becomes of them."""

    requests: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    propositions: float = 0.0
    questions: float = 0.0
    units: float = 0.0
    embedded_tokens: float = 0.0

    def __add__(self, other: _Figures) -> _Figures:
        return _Figures(*map(operator.add, astuple(self), astuple(other)))


@dataclass
class _Survey:
    """Counts documents one after the other, and draws a sample of their passages, each distinct one with the same
    chance. `expected` is what passages will take, `known` what is certain."""

    parser: BasePropositionNodeParser
    asker: LLMPropositionizer | None
    sample: int
    on_question: Callable[[LLMRequest], None]
    found: Estimate = field(default_factory=Estimate)
    expected: _Figures = _Figures()
    known: _Figures = _Figures()
    _seen: set[int] = field(default_factory=set)
    _drawn: list[tuple[str, Passage]] = field(default_factory=list)

    def add(self, documents: Iterable[BaseNode], indexed: Collection[str]) -> None:
        document_hash = self.parser.document_hasher()

        def new() -> Iterator[BaseNode]:
            for document in documents:
                if indexed and document_hash(document) in indexed:
                    self.found.unchanged_documents += 1
                else:
                    yield document

        bare = self.parser.model_copy(update={"granularity": ()})  # splits, and asks for nothing
        for parsed in bare.stream(new()):
            if parsed.error is not None:
                self.found.notes += (f"Left out: {parsed.error}",)
                continue
            self.found.documents += 1
            for node in parsed.nodes:
                tokens = count_tokens(node.get_content())
                self.known += _Figures(units=1, embedded_tokens=tokens)
                if node.metadata[GRANULARITY_KEY] == "passage":  # of a section no propositions are made
                    self._add_passage(
                        Passage(
                            node.get_content(),
                            *(str(node.metadata.get(key, "")) for key in (TITLE_KEY, SECTION_KEY, CONTEXT_KEY)),
                        )
                    )

    def corrected(self) -> _Figures:
        """What was expected, as the propositions of the sample correct it, which are asked for."""
        if not self._drawn:
            return self.expected
        propositionizer, passages = self.parser.propositionizer, [passage for _, passage in self._drawn]
        before = propositionizer.figures
        sets = propositionizer.propositionize(passages)
        figures = propositionizer.figures.since(before)
        usage = figures.usage
        self.found.sampled, self.found.sample_usage = len(sets), usage
        expected = made = _Figures()
        for passage, made_of_it in zip(passages, sets, strict=True):
            question = None if self.asker is None else self.asker.question(passage)
            expected += self._expected(passage, question)
            reply = count_tokens(json.dumps([*made_of_it.texts, *made_of_it.questions], ensure_ascii=False))
            made += replace(self._made(passage, made_of_it), output_tokens=reply)
        if usage.requests and not figures.cache_hits:
            used = _Figures(usage.requests, usage.input_tokens, usage.output_tokens)
        else:  # what earlier replies used is not known any more
            used = _Figures(expected.requests, expected.input_tokens, made.output_tokens)
        made = used + replace(made, output_tokens=0.0)
        together = zip(astuple(self.expected), astuple(made), astuple(expected), strict=True)
        return _Figures(*(of_all * (seen / said if said else 1.0) for of_all, seen, said in together))

    def _add_passage(self, passage: Passage) -> None:
        self.found.passages += 1
        made: PropositionSet | None = PropositionSet(())
        question, key = None, passage_digest("\n".join((passage.title, passage.section, passage.context, passage.text)))
        if "proposition" in self.parser.granularity:
            maker = _maker_of(passage, self.parser.propositionizer)
            is_free = isinstance(maker, (RecordedPropositionizer, SentencePropositionizer))
            made = maker.propositionize([passage])[0] if is_free else None
            if isinstance(maker, LLMPropositionizer):
                question = maker.question(passage)
                key = maker.key(question)
        is_first = hash(key) not in self._seen
        self._seen.add(hash(key))
        self.found.distinct_passages += is_first
        if made is not None:
            self.known += self._made(passage, made)
            return
        if is_first and self.sample:  # a key is a hash, so that those that come first by it are drawn by lot
            self._drawn = sorted([*self._drawn, (key, passage)])[: self.sample]
        cache = None if self.asker is None or question is None else self.asker.cache
        is_kept = cache is not None and cache.get(key) is not None
        self.found.already_kept += is_first and is_kept
        if is_first and question is not None and not is_kept:
            self.on_question(question)
        else:
            question = None
        self.expected += self._expected(passage, question)

    def _expected(self, passage: Passage, question: LLMRequest | None) -> _Figures:
        """What a model is expected to make of a passage, and what that takes; None where it is not asked for."""
        tokens, ratios = count_tokens(passage.text), _LATIN if passage.language in ("en", "latin", "") else _OTHERS
        reply, questions = tokens * ratios.reply, 0.0
        if self.asker is not None and self.asker.questions:
            reply, questions = reply + tokens * ratios.asking, tokens * ratios.questions
        found = self._figures(passage, tokens * ratios.propositions, questions, reply, ratios.new_sentences)
        asked = _Figures() if question is None else _Figures(1, count_messages(question.messages), reply)
        return found + asked

    def _made(self, passage: Passage, made: PropositionSet) -> _Figures:
        """What was made of a passage."""
        sentences = passage_sentences(passage.text, passage.context)
        new = sum(sentence not in made.texts for sentence in sentences) / max(len(sentences), 1)
        tokens = sum(map(count_tokens, (*made.texts, *made.questions)))
        return self._figures(passage, len(made.texts), len(made.questions), tokens, new)

    def _figures(
        self, passage: Passage, propositions: float, questions: float, tokens: float, new_sentences: float
    ) -> _Figures:
        """Those of a passage; `new_sentences` is the share of its sentences that are no propositions."""
        units = propositions + questions
        if "sentence" in self.parser.granularity:
            units += len(passage_sentences(passage.text, passage.context)) * new_sentences
            tokens += count_tokens(passage.text) * new_sentences
        return _Figures(propositions=propositions, questions=questions, units=units, embedded_tokens=tokens)


def _seconds(found: Estimate, asker: LLMPropositionizer) -> float:
    """Requests take as long as the narrowest of the limits makes them, and no less than one reply."""
    if not found.requests:
        return 0.0
    reply = SECONDS_TO_BEGIN + found.output_tokens / found.requests / TOKENS_A_SECOND
    tokens = found.input_tokens + found.output_tokens
    by_requests = found.requests / (asker.requests_per_minute or math.inf) * 60
    by_tokens = tokens / (asker.tokens_per_minute or math.inf) * 60
    return max(reply, reply * found.requests / asker.concurrency, by_requests, by_tokens)


def _notes(found: Estimate, asker: LLMPropositionizer | None) -> Iterator[str]:
    """What the figures of an estimate rest upon."""
    unknown = "The price of {} is not known: give it with prices of your own (--prices, prices=)."
    if asker is not None and found.requests:
        if found.sampled:
            used = f"{found.sample_usage.total_tokens:,} tokens were used for them"
            yield f"Corrected by {found.sampled:,} passages that were really asked for, which count too; {used}."
        else:
            yield "Replies are taken to be as long as those that were measured; a sample shows this model's."
            if _THINKS.search(found.model):
                yield f"{found.model} may think before it replies; thoughts cost like output and are not reckoned with."
        if found.price is None:
            yield unknown.format(found.model)
        else:
            source = f"list prices of {found.price.as_of}" if found.price.as_of else "prices of your own"
            yield (
                f"Money is by {source}: ${found.price.input:g} for a million tokens sent and "
                f"${found.price.output:g} for a million received, without taxes and discounts."
            )
        yield (
            f"The time is that of the requests alone, {asker.concurrency:,} at a time and within the limits that were "
            f"given; {TOKENS_A_SECOND:g} tokens a second are assumed."
        )
    if found.embedding_cost is None:
        yield unknown.format(found.embed_model)


def asked_llm(propositionizer: Propositionizer) -> LLMPropositionizer | None:
    """What asks an LLM for the passages that a propositionizer does not make itself; None where nothing does."""
    while isinstance(propositionizer, DelegatingPropositionizer) and propositionizer.otherwise is not None:
        propositionizer = propositionizer.otherwise
    return propositionizer if isinstance(propositionizer, LLMPropositionizer) else None


def _maker_of(passage: Passage, propositionizer: Propositionizer) -> Propositionizer:
    """Which propositionizer makes the propositions of a passage: one, or another behind it."""
    by = propositionizer
    while isinstance(by, DelegatingPropositionizer) and by.otherwise is not None and not by.takes(passage):
        by = by.otherwise
    return by if has_letters(passage.text) or not isinstance(by, LLMPropositionizer) else SentencePropositionizer()
