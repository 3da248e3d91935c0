"""The matched units that are worth reading: ranked, each once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.schema import IndexNode, NodeWithScore

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, TITLE_KEY
from llama_pack_densex.retrieval.context_budget import count_words
from llama_pack_densex.retrieval.hits import MatchedUnit, matched_units
from llama_pack_densex.retrieval.tokens import tokenize

FACT_WORDS = 200
"""Words of matched units above the passages; a Chinese, Japanese or Korean character counts as half a word.

Of 50 to 500 words, 200 had the highest answer recall within 200 words of context, or came within a question or two of
it, for lexical, dense and fused scores; within 100 and 500 words it lost nothing against 100."""

PASSAGE_WEIGHT = 0.5
"""What a passage's score counts beside the unit's own; both are shares of the best.

Of 0, 0.3, 0.5, 1 and 2, 0.3 and 0.5 had the highest answer recall within 100 and 200 words of context, or came within
a question or two of it, for lexical, dense and fused scores."""

NEAR_DUPLICATE = 0.8
"""A unit is left out where one above it has at least this share of its tokens: a sentence and its proposition, say."""

# What makes two otherwise equal sentences say different things; the tokens of lexical search lack the negations.
_DISTINCTIVE = re.compile(
    r"\d+(?:[.,]\d+)*|\b(?:no|not|never|neither|nor|without|cannot)\b|n['’]t\b|ない|なかっ|ません|ずに", re.IGNORECASE
)


@dataclass(frozen=True)
class Fact:
    """A matched unit with the retrieved node that it found."""

    unit: MatchedUnit
    source: NodeWithScore

    @property
    def title(self) -> str:
        """The title of the document that it is from; empty where there is none."""
        return str(self.source.node.metadata.get(TITLE_KEY, "")).strip()


def is_unit(node: NodeWithScore) -> bool:
    """Whether a retrieved node is a proposition or a sentence itself, as retrievers that follow no links return."""
    return node.node.metadata.get(GRANULARITY_KEY) in ("proposition", "sentence")


def rank_facts(nodes: Sequence[NodeWithScore]) -> list[Fact]:
    """All units that found these nodes, best first, none twice and none that one above it says.

    A unit ranks by its own score plus half the score of the node it found, each as a share of the best one's, so that
    a good unit of a good passage comes first. A unit that was itself retrieved counts as found by itself, and belongs
    to its passage where that was retrieved too.
    """
    found = _gather(nodes)
    best_unit = max((abs(fact.unit.score) for fact in found), default=0.0) or 1.0
    best_node = max((abs(fact.source.score or 0.0) for fact in found), default=0.0) or 1.0
    found.sort(
        key=lambda fact: -(fact.unit.score / best_unit + PASSAGE_WEIGHT * (fact.source.score or 0.0) / best_node)
    )
    return list(_without_repetition(found))


def best_facts(nodes: Sequence[NodeWithScore], words: float = FACT_WORDS) -> list[Fact]:
    """The best of the units that found these nodes: as many as fit into a number of words, at least one, none twice.

    Args:
        nodes: What our retrievers returned.
        words: The budget, in words. A unit that does not fit is left out for shorter ones below it.
    """
    return choose_facts(rank_facts(nodes), words)


def choose_facts(
    ranked: Iterable[Fact], words: float | None, fits: Callable[[Sequence[Fact]], bool] | None = None
) -> list[Fact]:
    """Take facts from the best down, leaving out those that do not fit beside what was taken.

    Args:
        ranked: Facts, best first.
        words: Words of facts to take; the first is taken even if it alone has more. None means any number.
        fits: Whether a choice of facts fits into what is to be read; it holds for the first fact too. None means that
            any does.
    """
    kept: list[Fact] = []
    taken = 0.0
    for fact in ranked:
        length = 0.0 if words is None else count_words(fact.unit.text)
        if words is not None and kept and taken + length > words:
            continue
        if fits is None or fits([*kept, fact]):
            kept.append(fact)
            taken += length
    return kept


def render_facts(facts: Sequence[Fact], titles: bool = True) -> str:
    """Write facts as a list, "- ..." each, grouped under the titles of their documents.

    Args:
        facts: Facts, best first; a title stands where its best fact would.
        titles: Whether to write titles and group by them.
    """
    groups: dict[str, list[str]] = {}
    for fact in facts:
        groups.setdefault(fact.title if titles else "", []).append(f"- {fact.unit.text.strip()}")
    return "\n\n".join("\n".join([title, *lines] if title else lines) for title, lines in groups.items())


def _gather(nodes: Sequence[NodeWithScore]) -> list[Fact]:
    by_id = {node.node.node_id: node for node in nodes}
    facts: dict[str, Fact] = {}
    for node in nodes:
        units = matched_units(node.node)
        if not units and is_unit(node):
            units = [MatchedUnit.of(node.node, node.score or 0.0)]
        for unit in units:
            facts.setdefault(unit.id, Fact(unit, _passage_of(node, by_id)))
    return list(facts.values())


def _passage_of(node: NodeWithScore, by_id: Mapping[str, NodeWithScore]) -> NodeWithScore:
    return by_id.get(node.node.index_id, node) if isinstance(node.node, IndexNode) else node


def _without_repetition(facts: Iterable[Fact]) -> Iterable[Fact]:
    bits: dict[str, int] = {}  # sets of tokens as bits of a number: there are many pairs to compare
    said: list[tuple[int, set[str]]] = []
    for fact in facts:
        tokens = 0
        for token in tokenize(fact.unit.text):
            tokens |= 1 << bits.setdefault(token, len(bits))
        least = NEAR_DUPLICATE * tokens.bit_count()
        distinctive = set(_DISTINCTIVE.findall(fact.unit.text.casefold()))
        if any((tokens & other).bit_count() >= least and distinctive <= others for other, others in said):
            continue
        said.append((tokens, distinctive))
        yield fact
