"""Answers without an LLM: the best propositions, word for word, each with its footnote."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.retrieval.context import Fact, best_facts, count_words, leading_sentences

ANSWER_WORDS = 60
"""Words of an answer; a Chinese, Japanese or Korean character counts as half a word."""

UNVERIFIED = {"en": " (unverified)", "ja": "（未確認）"}
"""What is written behind a proposition that no sentence of its passage says, by language."""


def extract(nodes: Sequence[NodeWithScore], words: float = ANSWER_WORDS) -> str:
    """The best propositions of retrieved nodes, word for word, as a text with footnotes.

    Each passage gives a paragraph, in which its propositions stand in its own order; the passage of the best one comes
    first. None says what another says. A node that no proposition found is quoted from its beginning.

    Args:
        nodes: What was retrieved; the first has the footnote `[^1]`.
        words: How long it may be; one proposition is quoted even if it alone is longer.

    Returns:
        The text; empty where there are no nodes.
    """
    numbers = {found.node.node_id: number for number, found in enumerate(nodes, start=1)}
    paragraphs: dict[str, list[Fact]] = {}
    for fact in best_facts(nodes, words):
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
