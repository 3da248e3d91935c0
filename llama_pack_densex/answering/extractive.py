"""Answers without an LLM: the best propositions, word for word, each with its footnote."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.propositionizers.tokens import tokenize
from llama_pack_densex.retrieval.context import Fact, count_words, leading_sentences, rank_facts

ANSWER_WORDS = 60
"""Words of an answer; a Chinese, Japanese or Korean character counts as half a word."""
LIST_WORDS = 100
"""The same with propositions of the first passage that are about as good as the best: they are the items of a list."""
_AS_GOOD = 0.8  # of the best proposition's score
_ALIKE = 0.7  # of the words of the shorter one

UNVERIFIED = {"en": " (unverified)", "ja": "（未確認）"}
"""What is written behind a proposition that no sentence of its passage says, by language."""


def extract(nodes: Sequence[NodeWithScore], words: float = ANSWER_WORDS) -> str:
    """The best propositions of retrieved nodes, word for word, as a text with footnotes.

    Each passage gives a paragraph, in which its propositions stand in its own order; the passage of the best one comes
    first. None says what another says. A node that no proposition found is quoted from its beginning.

    Args:
        nodes: What was retrieved; the first has the footnote `[^1]`.
        words: How long it may be, where it is no list; one proposition is quoted even if it alone is longer.

    Returns:
        The text; empty where there are no nodes.
    """
    numbers = {found.node.node_id: number for number, found in enumerate(nodes, start=1)}
    paragraphs: dict[str, list[Fact]] = {}
    taken = 0.0
    chosen: list[Fact] = []
    ranked = rank_facts(nodes)
    for fact in ranked:
        length, best = count_words(fact.unit.text), ranked[0]
        is_listed = fact.unit.score >= _AS_GOOD * best.unit.score and _is_alike(fact, best)
        if any(_is_said_by(fact, other) for other in chosen):
            continue
        if fact is best or taken + length <= (LIST_WORDS if is_listed else words):
            chosen.append(fact)
            taken += length
            paragraphs.setdefault(fact.source.node.node_id, []).append(fact)
    if not paragraphs and nodes:
        first = leading_sentences(nodes[0], lambda shown: count_words(shown.node.get_content()) <= words) or nodes[0]
        return f"{first.node.get_content().strip()}[^1]"
    return "\n\n".join(_paragraph(facts, numbers[node_id]) for node_id, facts in paragraphs.items())


def _paragraph(facts: Sequence[Fact], number: int) -> str:
    ordered = sorted(facts, key=lambda fact: fact.unit.span or (0, 0))
    texts = [fact.unit.text.strip() for fact in ordered]
    is_japanese = detect_language(texts[0]) == "ja"
    remark = UNVERIFIED["ja" if is_japanese else "en"]
    quoted = [
        f"{text}{remark if fact.unit.unverified else ''}[^{number}]" for text, fact in zip(texts, ordered, strict=True)
    ]
    return ("" if is_japanese else " ").join(quoted)


def _is_said_by(fact: Fact, other: Fact) -> bool:
    """Whether one is a sentence, and the other a proposition that was made of it."""
    kinds = {fact.unit.granularity, other.unit.granularity}
    return fact.source is other.source and len(kinds) == 2 and fact.unit.span == other.unit.span is not None


def _is_alike(fact: Fact, best: Fact) -> bool:
    """Whether two propositions of a passage say the same of different things."""
    tokens, others = set(tokenize(fact.unit.text)), set(tokenize(best.unit.text))
    return fact.source is best.source and len(tokens & others) >= _ALIKE * min(len(tokens), len(others))
