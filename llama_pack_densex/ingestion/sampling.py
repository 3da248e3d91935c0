"""An estimate held against some passages whose propositions were really asked for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_pack_densex.ingestion.estimating import Drawn, RequestCount, asked_llm, new_sentences_in
from llama_pack_densex.ingestion.ratios import Tally, ratios_of
from llama_pack_densex.llm_requests.counting import count_tokens
from llama_pack_densex.llm_requests.reply import Usage
from llama_pack_densex.propositionizers.base import Propositionizer

ENOUGH = 5
"""Passages of a language from which on it is corrected; replies to single passages differ by a tenth or two."""


@dataclass(frozen=True)
class Correction:
    """What was seen for what was expected of the passages of one language.

    Args:
        passages: Passages that were asked for.
        requests: Requests for one that was expected.
        input_tokens: Tokens sent for one that was expected.
        output_tokens: Tokens that came back for one that was expected.
        propositions: Propositions for one that was expected.
        sentences: Sentences that are no propositions for one that was expected.
        cached: The share of the tokens sent that the provider had cached.
    """

    passages: int
    requests: float = 1.0
    input_tokens: float = 1.0
    output_tokens: float = 1.0
    propositions: float = 1.0
    sentences: float = 1.0
    cached: float = 0.0

    def of(self, expected: Tally) -> Tally:
        """Correct a tally."""
        return replace(
            expected,
            requests=expected.requests * self.requests,
            input_tokens=expected.input_tokens * self.input_tokens,
            cached_input_tokens=expected.input_tokens * self.input_tokens * self.cached,
            output_tokens=expected.output_tokens * self.output_tokens,
            propositions=expected.propositions * self.propositions,
            sentences=expected.sentences * self.sentences,
        )


@dataclass(frozen=True)
class Sample:
    """What a sample showed.

    Args:
        corrections: By language.
        usage: What it used.
    """

    corrections: dict[str, Correction]
    usage: Usage

    @property
    def passages(self) -> int:
        """Passages that were asked for."""
        return sum(correction.passages for correction in self.corrections.values())


def ask_sample(propositionizer: Propositionizer, drawn: Sequence[Drawn]) -> Sample:
    """Ask for the propositions of a sample, and compare them with what is expected of them.

    Args:
        propositionizer: What is to be estimated.
        drawn: Passages. Those of languages with fewer than `ENOUGH` are not asked for.
    """
    by_language: defaultdict[str, list[Drawn]] = defaultdict(list)
    for one in drawn:
        by_language[one.language].append(one)
    before = propositionizer.usage
    corrections = {
        language: _correction(propositionizer, some) for language, some in by_language.items() if len(some) >= ENOUGH
    }
    return Sample(corrections, propositionizer.usage - before)


def _correction(propositionizer: Propositionizer, drawn: Sequence[Drawn]) -> Correction:
    ratios = ratios_of(drawn[0].language)
    tokens = sum(count_tokens(one.passage.text) for one in drawn)
    expected = _expected_requests(propositionizer, drawn)
    before = propositionizer.figures
    sets = propositionizer.propositionize([one.passage for one in drawn])
    figures = propositionizer.figures.since(before)
    used = figures.usage
    facts = sum(len(made.texts) for made in sets)
    replies = sum(count_tokens(json.dumps(made.texts, ensure_ascii=False)) for made in sets)
    new_sentences = sum(new_sentences_in(one.passage, made) for one, made in zip(drawn, sets, strict=True))
    seen = Correction(
        passages=len(drawn),
        output_tokens=replies / (tokens * ratios.reply),
        propositions=facts / (tokens * ratios.propositions),
        sentences=new_sentences / len(drawn) / ratios.new_sentences,
    )
    if (
        not used.requests or figures.cache_hits or not expected.requests
    ):  # what earlier replies used is not known any more
        return seen
    return replace(
        seen,
        requests=used.requests / expected.requests,
        input_tokens=used.input_tokens / expected.input_tokens,
        output_tokens=used.output_tokens / (tokens * ratios.reply),
        cached=used.cached_input_tokens / max(used.input_tokens, 1),
    )


def _expected_requests(propositionizer: Propositionizer, drawn: Sequence[Drawn]) -> Tally:
    asker = asked_llm(propositionizer)
    if asker is None:
        return Tally()
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    count = RequestCount(asker, tallies)
    for one in drawn:
        count.add(one.passage, one.language)
    count.finish()
    return tallies[drawn[0].language]
