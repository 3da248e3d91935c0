"""What the LLM reads: the facts that were found, then the passages they came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_index.core.schema import IndexNode, NodeWithScore, TextNode

from llama_pack_densex.retrieval.hits import MatchedUnit, matched_units
from llama_pack_densex.retrieval.tokens import CJK, tokenize

FACT_WORDS = 100
"""Words of matched units above the passages; a Chinese, Japanese or Korean character counts as half a word."""

NEAR_DUPLICATE = 0.8
"""A unit is left out where one above it has at least this share of its tokens: a sentence and its proposition, say."""

_WORD = re.compile(rf"(?P<cjk>[{CJK}])|[^\W_{CJK}]+(?:['’.,-][^\W_{CJK}]+)*")


@dataclass(frozen=True)
class Fact:
    """A matched unit with the retrieved node that it found."""

    unit: MatchedUnit
    source: NodeWithScore


def count_words(text: str) -> float:
    """Words of a text; a Chinese, Japanese or Korean character counts as half a word."""
    return sum(0.5 if match["cjk"] else 1.0 for match in _WORD.finditer(text))


def best_facts(nodes: Sequence[NodeWithScore], words: float = FACT_WORDS) -> list[Fact]:
    """The best of the units that found these nodes: as many as fit into a number of words, at least one, none twice.

    A unit ranks by its own score plus the score of the node it found, each as a share of the best one's, so that a
    good unit of a good passage comes first.

    Args:
        nodes: What our retrievers returned.
        words: The budget, in words.
    """
    facts = [Fact(unit, node) for node in nodes for unit in matched_units(node.node)]
    if not facts:
        return []
    best_unit = max(abs(fact.unit.score) for fact in facts) or 1.0
    best_node = max(abs(node.score or 0.0) for node in nodes) or 1.0
    facts.sort(key=lambda fact: -(fact.unit.score / best_unit + (fact.source.score or 0.0) / best_node))
    kept: list[Fact] = []
    said: list[set[str]] = []
    left = words
    for fact in facts:
        tokens = set(tokenize(fact.unit.text))
        if any(len(tokens & other) >= NEAR_DUPLICATE * len(tokens) for other in said):
            continue
        left -= count_words(fact.unit.text)
        if left < 0 and kept:
            break
        said.append(tokens)
        kept.append(fact)
    return kept


def assemble_context(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """The nodes for the LLM to read: one with the best facts, then the passages and sections.

    A retrieved unit that was not merged into a passage is among the facts and not repeated below them.

    Args:
        nodes: What our retrievers returned; nodes of other retrievers are passed on as they are.
    """
    facts = best_facts(nodes)
    if not facts:
        return list(nodes)
    text = "\n".join(f"- {fact.unit.text.strip()}" for fact in facts)
    shown = {fact.unit.id for fact in facts}
    rest = [node for node in nodes if not (isinstance(node.node, IndexNode) and node.node.node_id in shown)]
    return [NodeWithScore(node=TextNode(text=text), score=facts[0].source.score), *rest]


def context_units(nodes: Sequence[NodeWithScore]) -> Iterator[str]:
    """The texts of the context in order: facts one by one, then passages; for measuring what a reader gets."""
    for node in assemble_context(nodes):
        yield node.node.get_content()
